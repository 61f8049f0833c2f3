/*
 * watch.c - in slurmd, by LD_PRELOAD: it ends where the worker's warden is gone (images/worker/warden.py).
 *
 * Root in the jail sees both processes of the warden and can end them at once, or stop them. No job starts then, each
 * that is tried drains the node, and nothing in the container may make another: that takes CAP_SYS_ADMIN, which slurmd
 * has given up. Kubernetes starts a container anew whose first process has ended. That is slurmd itself, which nobody in
 * the container can kill or stop, nor a thread of it. So the thread here looks: a process of its own could be ended like
 * the two, and a probe of kubelet's would start a program each time, take its period longer, and wait for the jobs first
 * (`preStop`).
 *
 * Nobody at the socket: both have ended. No answer: only where a process of the warden is stopped. It may also
 * be slow, on a busy machine or when the jail's volume does not answer; jobs that run must not end for that.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "warden.h"

enum { SECONDS = 10 /* between two looks, and to wait for an answer */, SYS_ADMIN = 21 };

#define REQUEST "here"

static void end(const char *why)
{
	dprintf(STDERR_FILENO, "slurmd: the warden %s, and no job can start without it: ending, to be started anew\n", why);
	_exit(1);
}

/* Whether it is a warden, and stopped. Only who has this right is one: a shell of kubectl's has it, but not its name. */
static int is_stopped_warden(const char *pid)
{
	char path[64], line[256], name[16] = "", state = '?';
	unsigned long long rights = 0;
	unsigned uid = 1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL) {
		(void)sscanf(line, "Name: %15s", name);
		(void)sscanf(line, "State: %c", &state);
		(void)sscanf(line, "Uid: %u", &uid); /* in a user namespace of theirs users have all rights */
		(void)sscanf(line, "CapPrm: %llx", &rights);
	}
	fclose(file);
	return strcmp(name, "warden") == 0 && (state == 'T' || state == 't') && uid == 0 && (rights >> SYS_ADMIN & 1) != 0;
}

static void end_if_stopped(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	int found = 0;

	if (processes == NULL)
		return;
	while (!found && (entry = readdir(processes)) != NULL)
		found = isdigit((unsigned char)entry->d_name[0]) && is_stopped_warden(entry->d_name);
	closedir(processes);
	if (found)
		end("was stopped");
}

/* Asks again and again; returns when the connection has ended, as it does with one of the two. */
static void keep_asking(int connection)
{
	const struct timeval patience = { .tv_sec = SECONDS };
	struct pollfd closed = { .fd = connection, .events = POLLIN };
	char answer[WARDEN_LONGEST];
	ssize_t length;

	if (setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0)
		return;
	do {
		if (send(connection, REQUEST, strlen(REQUEST), MSG_NOSIGNAL) < 0)
			return;
		while ((length = recv(connection, answer, sizeof(answer), 0)) < 0 && (errno == EAGAIN || errno == EINTR))
			end_if_stopped();
	} while (length > 0 && poll(&closed, 1, SECONDS * 1000) == 0);
}

static void *watch(void *unused)
{
	int connection;

	(void)unused;
	/* slurmd begins with closing all that is open. */
	for (sleep(SECONDS);; sleep(1)) {
		connection = warden_connect();
		if (connection >= 0) {
			keep_asking(connection);
			close(connection);
		} else if (errno == ENOENT)
			return NULL; /* a worker without the jail has none */
		else if (errno == ECONNREFUSED)
			end("has ended");
		else
			end_if_stopped();
	}
}

/* Only in the daemon itself: slurmd starts itself also to start other programs. */
__attribute__((constructor)) static void start(int argc, char **argv)
{
	sigset_t all, before;
	pthread_t thread;

	if (strcmp(program_invocation_short_name, "slurmd") != 0 || argc < 2 || strcmp(argv[1], "-D") != 0)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for slurmd's own threads */
	if (pthread_create(&thread, NULL, watch, NULL) == 0)
		pthread_detach(thread);
	else
		perror("slurmd: nobody looks after the warden");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
