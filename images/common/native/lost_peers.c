/*
 * lost_peers.c - for LD_PRELOAD in slurmctld and slurmdbd: a connection to a machine that is gone ends in seconds.
 *
 * slurmctld waits up to 900 s for an answer of slurmdbd (SLURMDBD_TIMEOUT in slurmdbd_defs.h), and `scontrol
 * reconfigure` waits for it: slurmctld then answers nobody. slurmdbd waits as long for its database. Where only the
 * daemon died the kernel of its machine says so at once. Where the machine died nobody does, and TCP repeats what it has
 * sent for a quarter of an hour (tcp_retries2). Slurm's own KeepAliveTime does not help: nothing is probed while data is
 * on its way.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	LOST_MS = 15000, /* a switch that starts again or a route that moves takes seconds; the connection is only remade */
	IDLE_S = 10,	 /* also where nothing was sent: the answer may be what got lost */
	INTERVAL_S = 5,
	PROBES = 3,
};

static const struct {
	int level, name, value;
} options[] = {
	{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	{ IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S },
	{ IPPROTO_TCP, TCP_KEEPINTVL, INTERVAL_S },
	{ IPPROTO_TCP, TCP_KEEPCNT, PROBES },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, LOST_MS },
};

/* In the place of the C library's; what a listening socket accepts takes the options over from it. */
int socket(int domain, int type, int protocol)
{
	int fd = (int) syscall(SYS_socket, domain, type, protocol), before = errno;
	size_t i;

	if (fd < 0 || (domain != AF_INET && domain != AF_INET6)
	    || (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM)
		return fd;
	for (i = 0; i < sizeof(options) / sizeof(*options); i++)
		(void) setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
	errno = before; /* MPTCP and the like lack some: then it is as it was */
	return fd;
}
