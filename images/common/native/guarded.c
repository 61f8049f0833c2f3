/*
 * guarded.c - for LD_PRELOAD in slurmd, and by it in each slurmstepd: what users ask of these two does no harm to others.
 *
 * Each function below takes the place of the C library's in calls that were looked up in Slurm 24.11 and 26.05. Tried by
 * tests/slurm/test_boundary.py. What ends the node without this, or gives a user what is another's:
 *
 * fchmod, fchown: for `sbcast --force` slurmd opens a file as the user, and then gives it, as root, to the user: /dev/null
 *   and any file of others that the user may write.
 * sched_setaffinity: slurmstepd, which lacks CAP_SYS_NICE, binds tasks to their cores when they are their user's already.
 * chmod: anybody may connect to a step's socket, and slurmstepd has a thread for each connection.
 * chdir, chroot, connect, mkdir, open, rmdir: paths.c. clone, execle, mount: startfiles.c. fopen: reads.c.
 * setenv: PMIx in slurmstepd, which is root, would write its messages into a file of a known name in the jail's /tmp,
 *   where a symbolic link may lie.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

int setenv(const char *name, const char *value, int overwrite)
{
	typedef int (*setenv_function)(const char *, const char *, int);
	setenv_function next = (setenv_function)dlsym(RTLD_NEXT, "setenv");

	if (strcmp(name, "PMIX_DEBUG") == 0 || strcmp(name, "PMIX_OUTPUT_REDIRECT") == 0)
		return 0;
	return next(name, value, overwrite);
}

/*
 * slurmstepd adopts what loses its parent: without cgroups Slurm finds a step's processes by their parents (proctrack/
 * linuxproc), and a daemon would go on when its step has ended.
 */
__attribute__((constructor)) static void adopt_orphans(void)
{
	if (strcmp(program_invocation_short_name, "slurmstepd") == 0)
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}
