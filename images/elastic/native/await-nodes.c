/*
 * await-nodes - Slurm's PrologSlurmctld: returns when a job's nodes are there.
 *
 * Without it a job whose nodes were powered up is looked at again only every 30 seconds (job_time_limit of slurmctld):
 * it starts 16 to 32 s after its nodes have come, with it within half a second. It is started for every job, so it is
 * written in C, and asks nobody about a job without nodes of elastic pools (ELASTIC_POOLS, a file with a name a line).
 *
 * It never fails: a job that it could not wait for starts when Slurm itself looks, and one whose nodes do not come goes
 * back to the queue by Slurm's ResumeTimeout.
 *
 * As ResumeProgram, SuspendProgram and ResumeFailProgram, which are for no job, it has `elastic` look at once, and waits
 * for nothing: where nobody answers, the next look comes within ten seconds.
 */
#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef POOLS
#define POOLS "/var/spool/slurmctld/slurmstack/current/elastic.pools"
#endif
#ifndef HOST
#define HOST "elastic"
#endif
#ifndef PORT
#define PORT "8818"
#endif
#define CONNECTS 5 /* seconds: a job on nodes that are up waits for it, too, while that pod's machine is lost */
#define LOST 30 /* seconds: without a word from that machine, after which the job is not kept waiting for it */
#define LONGEST 7230 /* seconds: config/sections/workers.py lets no pool have more than two hours */

static char *read_pools(void)
{
	static char text[65536];
	FILE *file = fopen(POOLS, "re");
	size_t length;

	if (file == NULL)
		return NULL;
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = '\0';
	return text;
}

/* Whether a name of this length is one of the lines. */
static int is_line(const char *name, size_t length, const char *lines)
{
	while (*lines != '\0') {
		size_t line = strcspn(lines, "\n");

		if (line == length && strncmp(lines, name, length) == 0)
			return 1;
		lines += line + (lines[line] == '\n');
	}
	return 0;
}

/* Whether a host list such as "gpu-[0-3,7],cpu-0" has nodes of one of the pools, which are a name a line. */
static int hosts_are_of(const char *hosts, const char *pools)
{
	while (*hosts != '\0') {
		size_t length = strcspn(hosts, ",["), pool = length;

		/* "gpu-" before a bracket, or "gpu-12". */
		while (hosts[length] != '[' && pool > 0 && isdigit((unsigned char)hosts[pool - 1]))
			pool--;
		if (pool > 0 && hosts[pool - 1] == '-' && is_line(hosts, pool - 1, pools))
			return 1;
		hosts += length;
		if (*hosts == '[')
			hosts += strcspn(hosts, "]");
		hosts += strcspn(hosts, ",");
		hosts += *hosts == ',';
	}
	return 0;
}

/* That machine may be lost while we wait, and then nobody says so. */
static void notice_a_loss(int connection)
{
	int yes = 1, often = LOST / 6, tries = 5;

	setsockopt(connection, IPPROTO_TCP, TCP_KEEPIDLE, &often, sizeof(often));
	setsockopt(connection, IPPROTO_TCP, TCP_KEEPINTVL, &often, sizeof(often));
	setsockopt(connection, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
	setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
}

static int connect_to(const char *host, const char *port)
{
	struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found, *at;
	struct timeval longest = {.tv_sec = LONGEST}, to_connect = {.tv_sec = CONNECTS};
	int connection = -1;

	if (getaddrinfo(host, port, &wanted, &found) != 0)
		return -1;
	for (at = found; at != NULL; at = at->ai_next) {
		connection = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		if (connection < 0)
			continue;
		notice_a_loss(connection);
		setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
		setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &to_connect, sizeof(to_connect)); /* of connect, too */
		if (connect(connection, at->ai_addr, at->ai_addrlen) == 0)
			break;
		close(connection);
		connection = -1;
	}
	freeaddrinfo(found);
	return connection;
}

int main(void)
{
	const char *nodes = getenv("SLURM_JOB_NODELIST"), *host = getenv("ELASTIC_HOST");
	char *pools = read_pools(), *request, answer[512];
	int connection, length;

	if (nodes != NULL && (pools == NULL || !hosts_are_of(nodes, pools)))
		return 0;
	signal(SIGPIPE, SIG_IGN);
	connection = connect_to(host != NULL ? host : HOST, PORT);
	if (connection < 0)
		return 0;
	length = nodes == NULL ? asprintf(&request, "GET /look HTTP/1.0\r\n\r\n")
			       : asprintf(&request, "GET /ready/%s HTTP/1.0\r\n\r\n", nodes);
	if (length > 0 && send(connection, request, (size_t)length, 0) == length && nodes != NULL)
		while (recv(connection, answer, sizeof(answer), 0) > 0)
			;
	return 0;
}
