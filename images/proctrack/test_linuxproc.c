/*
 * test_linuxproc.c - a step whose processes do what they can to be taken for something else, with real processes.
 */
#include "linuxproc.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS 3 /* kinds of it, each ends its tracer */
#define NOBODY 65534 /* a user: root's own debuggers are let be */

static int failures;
static int tracer[2]; /* a socket to the process that holds another at its exit, and its own end */
static int said[2]; /* each process that is to end holds one end of this pipe, and says there that it is ready */

static void *forever(void *nothing)
{
	if (write(said[1], "", 1) != 1)
		_exit(1);
	alarm(60); /* whatever becomes of the test */
	for (;;)
		pause();
	return nothing;
}

static void as_named(const char *name)
{
	prctl(PR_SET_NAME, name, 0, 0, 0);
	forever(NULL);
}

static void without_first_thread(void)
{
	pthread_t other;

	pthread_create(&other, NULL, forever, NULL);
	pthread_exit(NULL);
}

static void as_daemon(void)
{
	if (fork() != 0)
		_exit(0);
	setsid();
	if (fork() != 0)
		_exit(0);
	forever(NULL);
}

static void as_parent(void)
{
	if (fork() == 0)
		as_named("x S 1");
	as_named("slurmstepd");
}

static void become_user(void)
{
	if (getuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
		_exit(1);
}

struct request {
	pid_t thread;
	int options;
};

/* Another job of the same user's: holds whom it is told to, and does nothing more. */
static void trace(void)
{
	struct request request;

	alarm(60);
	become_user();
	if (read(tracer[1], &request, sizeof(request)) != sizeof(request))
		_exit(0);
	if (ptrace(PTRACE_SEIZE, request.thread, NULL, (void *)(intptr_t)request.options) != 0)
		_exit(1);
	(void)!write(tracer[1], "", 1);
	for (;;)
		pause();
}

static void *sleep_on(void *own_number)
{
	atomic_store((atomic_int *)own_number, (int)syscall(SYS_gettid));
	for (;;)
		pause();
	return own_number;
}

/* Asks to be held: at its exit, or as a zombie, all of it or its second thread. */
static void held(int options, int second_thread)
{
	struct request request = { .thread = getpid(), .options = options };
	atomic_int second = 0;
	pthread_t other;
	char byte;

	become_user();
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	if (second_thread) {
		pthread_create(&other, NULL, sleep_on, &second);
		while ((request.thread = (pid_t)atomic_load(&second)) == 0)
			usleep(1000);
	}
	if (write(tracer[0], &request, sizeof(request)) != sizeof(request) || read(tracer[0], &byte, 1) != 1)
		_exit(1);
	forever(NULL);
}

/* Runs `what` in a process of another program than ours, which the kernel tells from ours by its file. */
static pid_t start(const char *self, const char *what)
{
	char end[16], way[16];
	pid_t child;

	snprintf(end, sizeof(end), "%d", said[1]);
	child = fork();
	if (child == 0) {
		close(said[0]);
		snprintf(way, sizeof(way), "%d", tracer[0]);
		execl(self, self, what, end, way, (char *)NULL);
		_exit(1);
	}
	return child;
}

static void be(const char *what)
{
	if (strcmp(what, "named") == 0)
		as_named("test_linuxproc"); /* what our own process is called */
	if (strcmp(what, "blank") == 0)
		as_named("x S 1");
	if (strcmp(what, "bracket") == 0)
		as_named("a) S 1 (");
	if (strcmp(what, "parent") == 0)
		as_parent();
	if (strcmp(what, "thread") == 0)
		without_first_thread();
	if (strcmp(what, "daemon") == 0)
		as_daemon();
	if (strcmp(what, "held at its exit") == 0)
		held(PTRACE_O_TRACEEXIT, 0);
	if (strcmp(what, "held as a zombie") == 0)
		held(0, 0);
	if (strcmp(what, "held in a thread") == 0)
		held(0, 1);
	_exit(2);
}

static const char *current = "";

/* What hangs is told by its name. */
static void too_long(int number)
{
	(void)number;
	(void)!write(2, current, strlen(current));
	(void)!write(2, ": hangs\n", 8);
	_exit(1);
}

static void expect(const char *what, int got, int wanted)
{
	if (got == wanted)
		return;
	failures++;
	fprintf(stderr, "%s: %d, not %d\n", what, got, wanted);
}

static void ends(const char *other, const char *what, int processes)
{
	siginfo_t ended = { .si_pid = 0 };
	pid_t child;
	char byte;

	current = what;
	if (pipe(said) != 0)
		exit(2);
	child = start(other, what);
	close(said[1]);
	for (; processes > 0; processes--)
		expect(what, (int)read(said[0], &byte, 1), 1);
	expect(what, proctrack_p_signal((uint64_t)getpid(), SIGKILL), 0);
	while (strncmp(what, "held", 4) == 0 && waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT | WNOHANG) == 0
	       && ended.si_pid == 0) { /* it takes a moment to end and be held: Slurm signals again every second */
		usleep(100000);
		expect(what, proctrack_p_signal((uint64_t)getpid(), SIGKILL), 0);
	}
	expect(what, (int)read(said[0], &byte, 1), 0); /* hangs while one of them lives */
	expect(what, waitpid(child, NULL, 0), child); /* hangs while somebody holds it */
	close(said[0]);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(int argc, char **argv)
{
	static const char *const all[] = { "named", "blank", "bracket", "parent", "thread", "daemon",
					   "held at its exit", "held as a zombie", "held in a thread" };
	char other[] = "/tmp/linuxproc.XXXXXX", command[4200];
	pid_t fork_of_ours, step;

	if (argc > 3) {
		said[1] = atoi(argv[2]);
		tracer[0] = atoi(argv[3]);
		be(argv[1]);
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, tracer) != 0)
		return 2;
	if ((step = fork()) > 0) { /* this process is not of the step */
		int status;

		for (status = 0; status < HOLDS; status++)
			if (fork() == 0) {
				close(tracer[0]);
				trace();
			}
		close(tracer[0]);
		close(tracer[1]);
		return waitpid(step, &status, 0) == step && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
	}
	close(tracer[1]);
	signal(SIGALRM, too_long);
	alarm(30);
	close(mkstemp(other));
	snprintf(command, sizeof(command), "cp /proc/%d/exe %s && chmod 755 %s", (int)getpid(), other, other);
	if (system(command) != 0)
		return 2;
	fork_of_ours = fork();
	while (fork_of_ours == 0)
		pause();
	proctrack_p_add(NULL, fork_of_ours);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		ends(other, all[i], strcmp(all[i], "parent") == 0 ? 2 : 1);
	expect("a fork of ours is spared", waitpid(fork_of_ours, NULL, WNOHANG), 0);
	expect("ours", proctrack_p_has_pid((uint64_t)getpid(), fork_of_ours), 1);
	expect("not ours", proctrack_p_has_pid((uint64_t)fork_of_ours, getpid()), 0);
	kill(fork_of_ours, SIGKILL);
	unlink(other);
	return failures != 0;
}
