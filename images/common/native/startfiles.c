/*
 * startfiles.c - a part of guarded.so: `sbatch --export=NONE` and `--get-user-env` have slurmd run `su - USER`, and so the
 * user's start-up files.
 *
 * clone, mount: it would do so in namespaces of its own. It may not make any here, takes that for fatal and ends, with all
 *   jobs of the node.
 * execle: they would run outside of the jail, and what they start would live on, with all of the node's devices. So `su`
 *   runs in the jail, with the rights that users have there, and what it has started ends with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capabilities.h"

enum { MOST_ARGUMENTS = 16 };

#define NAMESPACES (CLONE_NEWPID | CLONE_NEWNS)

struct child {
	int (*function)(void *);
	void *argument;
};

static __thread int in_child; /* of a clone that wanted namespaces */

static int start_child(void *pointer)
{
	const struct child *child = pointer;

	in_child = 1;
	(void)setpgid(0, 0); /* slurmd ends the group, as it would the namespace */
	return child->function(child->argument);
}

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	typedef int (*clone_function)(int (*)(void *), void *, int, void *, ...);
	clone_function next = (clone_function)dlsym(RTLD_NEXT, "clone");
	struct child child = { function, argument };

	if ((flags & NAMESPACES) == 0 || (flags & CLONE_VM) != 0) /* slurmstepd's own, which name no thread ids */
		return next(function, stack, flags, argument, NULL, NULL, NULL);
	return next(start_child, stack, flags & ~NAMESPACES, &child);
}

int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
	if (in_child)
		return 0; /* /proc of a namespace that there is none of */
	return (int)syscall(SYS_mount, source, target, type, flags, data);
}

/* Ends what start-up files have started, also what has made itself a daemon: who adopts it is `end_with_su`. */
static void end_children(void)
{
	char list[4096], *at, *end;
	ssize_t length;
	long pid;
	int file;

	do {
		file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
		length = file < 0 ? 0 : read(file, list, sizeof(list) - 1);
		close(file);
		list[length < 0 ? 0 : length] = '\0';
		for (at = list; (pid = strtol(at, &end, 10)) > 0 && *end == ' '; at = end)
			(void)kill((pid_t)pid, SIGKILL);
	} while (waitpid(-1, NULL, 0) > 0);
}

/*
 * Goes on in a child, and ends all that is left when that has ended: Slurm's namespace of processes would do so. Does
 * not return in this process, which leaves the group that slurmd kills where su takes too long. slurmd reads until nobody
 * has its pipe, and that is this process in the end. Returns 0, or -1 after a failure.
 */
static int end_with_su(void)
{
	int status = 0;
	long child;

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		return -1;
	/* Not fork(2), which would ask for locks that other threads of slurmd had in the moment of the clone. */
	child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child <= 0)
		return (int)child;
	(void)signal(SIGCHLD, SIG_DFL);
	(void)setpgid(0, getpgid(getppid()));
	while (waitpid((pid_t)child, &status, 0) < 0 && errno == EINTR)
		;
	end_children();
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* `su` for a user, in the jail, and asking env(1): the jail has no slurmstepd. Returns if it cannot be started. */
static int become_user(const char *path, char **argv, char *const *environment)
{
	const char *jail = getenv("JAIL");
	char command[512], *at;
	int i;

	for (i = 0; argv[i] != NULL; i++) {
		at = strstr(argv[i], "XXXX; ");
		if (at == NULL || strlen(argv[i]) >= sizeof(command) - 64)
			continue;
		/* env.c: /bin/echo XXXXSLURMSTARTPARSINGHEREXXXX; /usr/sbin/slurmstepd getenv; /bin/echo ... */
		at += strlen("XXXX; ");
		memcpy(command, argv[i], (size_t)(at - argv[i]));
		strcpy(command + (at - argv[i]), "/usr/bin/env");
		at = strchr(at, ';');
		if (at == NULL)
			continue;
		strcat(command, at);
		argv[i] = command;
	}
	if (end_with_su() != 0)
		return -1;
	if (jail != NULL && *jail != '\0' && (chroot(jail) != 0 || chdir("/") != 0))
		return -1;
	if (bound_for_users() != 0)
		return -1;
	return execve(path, argv, environment);
}

int execle(const char *path, const char *first, ...)
{
	char *argv[MOST_ARGUMENTS], *const *environment;
	va_list rest;
	int count = 0;

	va_start(rest, first);
	for (argv[0] = (char *)first; argv[count] != NULL; argv[count] = va_arg(rest, char *))
		if (++count == MOST_ARGUMENTS) {
			va_end(rest);
			errno = E2BIG;
			return -1;
		}
	environment = va_arg(rest, char *const *);
	va_end(rest);
	return in_child ? become_user(path, argv, environment) : execve(path, argv, environment);
}
