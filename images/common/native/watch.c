/*
 * watch.c - in slurmd, by LD_PRELOAD: it ends where the worker's warden has (images/worker/warden.py).
 *
 * No job starts without it, each that is tried drains the node, and nothing in the container may make another: that takes
 * CAP_SYS_ADMIN, which slurmd has given up. Kubernetes starts a container anew whose first process has ended, and that is
 * slurmd itself. A probe of kubelet's would start a program each time, and wait for the jobs first (`preStop`).
 *
 * A warden that is slow, on a busy machine or when the jail's volume does not answer, ends no job.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "warden.h"

enum { SECONDS = 2 /* between two looks */ };

static void *watch(void *unused)
{
	(void)unused;
	/* slurmd begins with closing all that is open. */
	for (sleep(10);; sleep(SECONDS)) {
		int connection = warden_connect();

		if (connection >= 0)
			close(connection);
		else if (errno == ENOENT)
			return NULL; /* a worker without the jail has none */
		else if (errno == ECONNREFUSED) {
			dprintf(STDERR_FILENO,
				"slurmd: the warden has ended, and no job can start without it: ending, to be started anew\n");
			_exit(1);
		}
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
