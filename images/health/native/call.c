/*
 * call.c - what slurmd starts: health-periodic, health-prolog, health-epilog.
 *
 * Where a node has no checks around jobs (it has no GPU), and a job is as most jobs are, this program makes and removes
 * the job's directory itself. Everything else is the work of Python, which needs 0.1 s of CPU time to read these
 * programs: the resident process (images/health/resident.py) has read them, and only forks. Where that does not answer,
 * health-alone does the work, as it would without it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "around.h"
#include "warden.h"

#define ALONE "/usr/libexec/slurmstack/health-alone"
#ifndef SOCKET
#define SOCKET "/run/slurmstack/health/socket"
#endif
#define PLAIN "/run/slurmstack/health/plain" /* there if no check runs around jobs; the resident process makes it */
#define SETTINGS "/config/health" /* there if the cluster has checks at all */
#ifndef PATIENCE_SECONDS
#define PATIENCE_SECONDS 55 /* the programs limit themselves to less; slurmd ends HealthCheckProgram after 60 s */
#endif

extern char **environ;

static const char *const shared[] = { "/tmp", "/dev/shm", "/dev/mqueue", NULL };
static const struct places places = { "/tmp/jobs", shared, "/proc", "/usr/sbin/slurmstepd" };

/* root, munge, slurm and nobody, of whom nothing is ever removed (leftovers.py): rare, and left to Python. */
static int is_protected(long long uid)
{
	return uid == 0 || uid == 950 || uid == 64030 || uid == 65534;
}

/* Does the work here if it is the usual case. Returns 0 if it is done. */
static int do_here(const char *program)
{
	const char *job = getenv("SLURM_JOB_ID");
	long long uid = around_number(getenv("SLURM_JOB_UID")), gid = around_number(getenv("SLURM_JOB_GID"));

	if (around_number(job) <= 0 || uid < 0 || is_protected(uid)
	    || (access(PLAIN, F_OK) != 0 && access(SETTINGS, F_OK) == 0))
		return -1;
	if (strcmp(program, "prolog") == 0)
		return gid < 0 ? -1 : around_make(&places, job, (uid_t)uid, (gid_t)gid);
	if (strcmp(program, "epilog") == 0)
		return around_end(&places, job, (uid_t)uid);
	return -1;
}

/* Asks the warden for the end of a job's cell. Returns whether that is to come later. */
static int comes_later(const char *job, const char *when)
{
	char request[64], answer[WARDEN_LONGEST];
	int connection = warden_connect(), answered, number;

	if (connection < 0)
		return 0;
	snprintf(request, sizeof(request), "end %s%s", job, when);
	answered = warden_ask(connection, request, answer);
	number = errno;
	close(connection);
	/* It has ended meanwhile, and another takes its place: else what lies in the job's /dev/shm would stay for a day. */
	if (answered != 0 && (number == ECONNRESET || number == EPIPE))
		return *when == '\0';
	return answered == 0 && strcmp(answer, "later") == 0;
}

enum { SHORTEST_MS = 5, LONGEST_MS = 200, MOST_MS = 20000 };

/*
 * Has the job's cell taken away (images/worker/cells.py) when the last slurmstepd of the job is done: Slurm's epilog may
 * begin a moment before. Whatever comes of it, the rest is to be done.
 */
static void end_cell(void)
{
	const char *job = getenv("SLURM_JOB_ID");
	long waited = 0, pause = SHORTEST_MS;

	if (around_number(job) <= 0)
		return;
	while (comes_later(job, waited < MOST_MS ? "" : " now")) {
		const struct timespec time = { .tv_nsec = pause * 1000000 };

		nanosleep(&time, NULL);
		waited += pause;
		pause = pause * 2 < LONGEST_MS ? pause * 2 : LONGEST_MS;
	}
}

static int send_all(int connection, const char *data, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(connection, data, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -1;
		data += sent;
		length -= (size_t)sent;
	}
	return 0;
}

/* The program's exit code from the resident process; -1 with errno if it does not answer, -2 if it ends without one. */
static int ask(int connection, const char *program)
{
	const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };
	const struct timeval patience = { .tv_sec = PATIENCE_SECONDS };
	unsigned char answer;
	char **variable;
	ssize_t length;

	if (setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0
	    || setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0
	    || connect(connection, (const struct sockaddr *)&address, sizeof(address)) != 0
	    || send_all(connection, program, strlen(program) + 1) != 0)
		return -1;
	for (variable = environ; *variable != NULL; variable++)
		if (send_all(connection, *variable, strlen(*variable) + 1) != 0)
			return -1;
	if (shutdown(connection, SHUT_WR) != 0)
		return -1;
	do
		length = recv(connection, &answer, 1, 0);
	while (length < 0 && errno == EINTR);
	if (length < 0)
		return -1;
	return length == 1 ? answer : -2;
}

int main(int argc, char **argv)
{
	const char *name = argc > 0 ? argv[0] : "", *program;
	char alone[] = "health-alone";
	int connection, code = -2;

	program = strrchr(name, '-');
	program = program == NULL ? name : program + 1;
	if (strcmp(program, "epilog") == 0)
		end_cell();
	if (do_here(program) == 0)
		return 0;
	connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection >= 0) {
		code = ask(connection, program);
		/* Whatever hangs there must not keep jobs from starting. */
		if (code == -1 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETIMEDOUT))
			return 0;
		close(connection);
	}
	if (code >= 0)
		return code;
	execv(ALONE, (char *const[]){ alone, (char *)program, NULL });
	perror(ALONE);
	return 0; /* a prolog or epilog that fails drains the node */
}
