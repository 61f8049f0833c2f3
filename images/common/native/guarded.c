/*
 * guarded.c - for LD_PRELOAD in slurmd, and by it in each slurmstepd: what users ask of these two does no harm to others.
 *
 * Each function below takes the place of the C library's in calls that were looked up in Slurm 24.11 and 26.05. Tried by
 * tests/slurm/test_boundary.py. What ends the node without this, or gives a user what is another's:
 *
 * clone, mount, execle: `sbatch --export=NONE` and `--get-user-env` have slurmd run `su - USER` in namespaces of its own.
 *   It may not make any here, takes that for fatal and ends, with all jobs of the node. And `su` would run the user's
 *   start-up files outside the jail. So it runs in the jail, without namespaces, and can do what users can do.
 * fchmod, fchown: for `sbcast --force` slurmd opens a file as the user, and then gives it, as root, to the user: /dev/null
 *   and any file of others that the user may write.
 * execve, fexecve: a variable of 128 KiB is too long for execve(2). A user's SPANK variables are in the environment of
 *   prolog and epilog: neither starts, and slurmctld drains the node.
 * chroot, mkdir, rmdir, open: the jail shows the cgroups of the node, and nobody in it may change them, not even root.
 *   slurmstepd makes, limits and removes those of its job when it is in there. It takes the way from before with it.
 * sched_setaffinity: slurmstepd, which lacks CAP_SYS_NICE, binds tasks to their cores when they are their user's already.
 * chmod: anybody may connect to a step's socket, and slurmstepd has a thread for each connection.
 * open: for a job's files slurmstepd waits for whoever is at the other end of a FIFO, for ever and beyond any scancel: the
 *   job stays COMPLETING, and slurmctld gives its node to nobody. A terminal may be stopped. Neither is a job's file.
 * fopen: reads.c.
 * setenv: PMIx in slurmstepd, which is root, would write its messages into a file of a known name in the jail's /tmp,
 *   where a symbolic link may lie.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "capabilities.h"

enum { MOST_ARGUMENTS = 16, LONGEST_VARIABLE = 64 * 1024, MEMORY_DEVICES = 1 /* major number: null, zero, random */ };

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

/*
 * What fchmod was asked for, until fchown says for whom: slurmd asks for both, in this order, in one thread, and nothing
 * else in slurmd or slurmstepd asks for either of a file that it keeps.
 */
static __thread int asked_of = -1;
static __thread mode_t asked_mode;

int fchmod(int fd, mode_t mode)
{
	asked_of = fd;
	asked_mode = mode;
	return 0;
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	int asked = asked_of == fd;
	struct stat status;

	asked_of = -1;
	if (fstat(fd, &status) != 0)
		return -1;
	if (!S_ISREG(status.st_mode) || status.st_uid != uid) {
		errno = EPERM;
		return -1;
	}
	if (asked && syscall(SYS_fchmod, fd, asked_mode) != 0)
		return -1;
	return (int)syscall(SYS_fchown, fd, uid, gid);
}

int chmod(const char *path, mode_t mode)
{
	struct stat status;

	if (mode == 0777 && lstat(path, &status) == 0 && S_ISSOCK(status.st_mode))
		mode = 0700;
	return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}

#define CGROUPS "/sys/fs/cgroup/"

static int cgroups = -1; /* where they can be written */

int chroot(const char *path)
{
	if (cgroups < 0)
		cgroups = (int)syscall(SYS_openat, AT_FDCWD, CGROUPS, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return (int)syscall(SYS_chroot, path);
}

/* From where a path is to be looked up, which loses its beginning then. */
static int base_of(const char **path)
{
	if (cgroups < 0 || strncmp(*path, CGROUPS, sizeof(CGROUPS) - 1) != 0)
		return AT_FDCWD;
	*path += sizeof(CGROUPS) - 1;
	return cgroups;
}

int mkdir(const char *path, mode_t mode)
{
	int base = base_of(&path);

	return (int)syscall(SYS_mkdirat, base, path, mode);
}

int rmdir(const char *path)
{
	int base = base_of(&path);

	return (int)syscall(SYS_unlinkat, base, path, AT_REMOVEDIR);
}

/* Whether what lies at the other end can keep a reader or a writer waiting: all but files and /dev/null and its kind. */
static int keeps_waiting(int fd)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		return 1;
	return S_ISFIFO(status.st_mode) || (S_ISCHR(status.st_mode) && major(status.st_rdev) != MEMORY_DEVICES);
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list rest;
	int fd;

	if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
		va_start(rest, flags);
		mode = va_arg(rest, mode_t);
		va_end(rest);
	}
	if (geteuid() == 0) { /* not a file of a user's */
		int base = base_of(&path);

		return (int)syscall(SYS_openat, base, path, flags, mode);
	}
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_NONBLOCK, mode);
	if (fd < 0)
		return fd;
	if (keeps_waiting(fd)) {
		close(fd);
		errno = ENXIO;
		return -1;
	}
	if ((flags & O_NONBLOCK) == 0)
		(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fd;
}

/* In the name of whom the process belongs to: only this thread becomes that user, for that one call. */
int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
	int result = (int)syscall(SYS_sched_setaffinity, pid, size, mask), number = errno;
	struct stat status;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (result == 0 || number != EPERM || geteuid() != 0 || stat(path, &status) != 0
	    || syscall(SYS_setresuid, -1, status.st_uid, -1) != 0) {
		errno = number;
		return result;
	}
	result = (int)syscall(SYS_sched_setaffinity, pid, size, mask);
	number = errno;
	if (syscall(SYS_setresuid, -1, 0, -1) != 0)
		abort(); /* never goes on as somebody else */
	errno = number;
	return result;
}

/* The environment without what users can make longer than execve(2) takes. */
static char **short_environment(char *const *environment)
{
	char **shorter;
	size_t count = 0, kept = 0;

	while (environment[count] != NULL)
		count++;
	shorter = calloc(count + 1, sizeof(*shorter));
	for (count = 0; shorter != NULL && environment[count] != NULL; count++)
		if (strncmp(environment[count], "SPANK_", 6) != 0 && strlen(environment[count]) < LONGEST_VARIABLE)
			shorter[kept++] = environment[count];
	return shorter;
}

/* A second try is for what root starts: a user's own program is not started with less than it was given. */
static int again(char *const **environment)
{
	char **shorter;

	if (errno != E2BIG || geteuid() != 0 || *environment == NULL || (shorter = short_environment(*environment)) == NULL)
		return 0;
	*environment = shorter;
	return 1;
}

int execve(const char *path, char *const argv[], char *const environment[])
{
	(void)syscall(SYS_execve, path, argv, environment);
	if (again(&environment))
		(void)syscall(SYS_execve, path, argv, environment);
	return -1;
}

int fexecve(int fd, char *const argv[], char *const environment[])
{
	(void)syscall(SYS_execveat, fd, "", argv, environment, AT_EMPTY_PATH);
	if (again(&environment))
		(void)syscall(SYS_execveat, fd, "", argv, environment, AT_EMPTY_PATH);
	return -1;
}

int setenv(const char *name, const char *value, int overwrite)
{
	typedef int (*setenv_function)(const char *, const char *, int);
	setenv_function next = (setenv_function)dlsym(RTLD_NEXT, "setenv");

	if (strcmp(name, "PMIX_DEBUG") == 0 || strcmp(name, "PMIX_OUTPUT_REDIRECT") == 0)
		return 0;
	return next(name, value, overwrite);
}
