/*
 * startfiles.c - a part of guarded.so: `sbatch --export=NONE` and `--get-user-env` have slurmd run `su - USER`, and so the
 * user's start-up files.
 *
 * clone, mount: it would do so in namespaces of its own. It may not make any here, takes that for fatal and ends, with all
 *   jobs of the node.
 * execle: they would run outside of the jail, and they did run beside slurmd: in its cgroup, with all of the node's devices,
 *   and what they started lived on. So `su` runs in the jail, with the rights that users have there, and where the node
 *   has cgroups in one of its own, and with a /tmp and /dev/shm of its own, which end with it
 *   (images/worker/startfiles.py).
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capabilities.h"
#include "warden.h"

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

/* This process moves itself: the warden has fewer rights, and the kernel lets nobody move who has more than he. */
static int enter(const char *group)
{
	int file = (int)syscall(SYS_openat, AT_FDCWD, group, O_WRONLY | O_CLOEXEC);
	int moved = file >= 0 && write(file, "0", 1) == 1;

	if (file >= 0)
		close(file);
	return moved ? 0 : -1;
}

/*
 * Has the warden make a cgroup and a cell for this process, which are there for as long as the connection is, and goes on
 * in a child: what users run gets no connection to the warden. Does not return in this process then. Where the node has
 * no cgroups it goes on itself, and `cell` stays empty. Returns 0, or -1 after a failure.
 */
static int hold(const char *user, char cell[WARDEN_LONGEST])
{
	char request[256], answer[WARDEN_LONGEST], *blank;
	int connection = warden_connect(), status;
	long child;

	if (connection < 0)
		return errno == ENOENT ? 0 : -1; /* a worker without the jail has no warden */
	snprintf(request, sizeof(request), "hold %s", user);
	for (blank = request + strlen("hold "); (blank = strchr(blank, ' ')) != NULL;)
		*blank = '_'; /* a name of a directory service may have one */
	if (warden_ask(connection, request, answer) != 0) {
		close(connection);
		return -1;
	}
	blank = strchr(answer, ' ');
	if (blank != NULL) {
		*blank = '\0';
		strcpy(cell, blank + 1);
	}
	if (answer[0] == '\0' || blank == NULL || enter(answer) != 0) {
		close(connection);
		return answer[0] == '\0' ? 0 : -1;
	}
	/* Not fork(2), which would ask for locks that other threads of slurmd had in the moment of the clone. */
	child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child == 0) {
		close(connection);
		return 0;
	}
	close(STDOUT_FILENO); /* slurmd reads until nobody has it */
	_exit(child > 0 && waitpid((pid_t)child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* `su` for a user, in the jail, and asking env(1): the jail has no slurmstepd. Returns if it cannot be started. */
static int become_user(const char *path, char **argv, char *const *environment)
{
	const char *jail = getenv("JAIL"), *user = "";
	char cell[WARDEN_LONGEST] = "", command[512], *at;
	int i;

	for (i = 0; argv[i] != NULL; i++) {
		if (argv[i + 1] != NULL && strcmp(argv[i + 1], "-c") == 0)
			user = argv[i]; /* su [-] USER -c COMMAND */
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
	if (hold(user, cell) != 0)
		return -1;
	if (cell[0] != '\0')
		jail = cell;
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
