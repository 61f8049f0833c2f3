/*
 * guarded.c - for LD_PRELOAD in slurmd, and by it in each slurmstepd: what users ask of these two does no harm to others.
 *
 * Each function below takes the place of the C library's in calls that were looked up in Slurm 24.11 and 26.05. Tried by
 * tests/slurm/test_boundary.py. What ends the node without this, or gives a user what is another's:
 *
 * fchmod, fchown: for `sbcast --force` slurmd opens a file as the user, and then gives it, as root, to the user: /dev/null
 *   and any file of others that the user may write.
 * sched_setaffinity: slurmstepd, which lacks CAP_SYS_NICE, binds tasks to their cores when they are their user's already.
 * chdir, chroot, mkdir, open, rmdir: paths.c. clone, execle, mount: startfiles.c.
 * setenv: PMIx in slurmstepd, which is root, would write its messages into a file of a known name in the jail's /tmp,
 *   where a symbolic link may lie.
 * fopen: of the cluster's configuration slurmd reads what its own node adds to it, too: which plugins hold jobs to what
 *   they asked for is a question of the machine's kernel and of its container runtime (images/worker/confine.py).
 *
 *   /proc/PID/io is for its owner, and for whoever has CAP_SYS_PTRACE, which no pod has. slurmstepd can open a task's, but
 *   not read it, and then throws away all that it knows of the task: sacct had no memory of any user's job (tried with
 *   24.11 and 26.05). It is read in the name of the owner.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE "/conf-cache/"
#define OF_NODE "/run/slurmstack/node/"

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

static FILE *next_fopen(const char *path, const char *mode)
{
	typedef FILE *(*fopen_function)(const char *, const char *);
	fopen_function next = (fopen_function)dlsym(RTLD_NEXT, "fopen");

	return next(path, mode);
}

/* Whether a file has a line with the key of this line. */
static int has_key(FILE *file, const char *line)
{
	size_t length = strcspn(line, "= \t\n"), size = 0;
	char *other = NULL;
	int found = 0;

	rewind(file);
	while (!found && length > 0 && line[0] != '#' && getline(&other, &size, file) > 0)
		found = strncasecmp(other, line, length) == 0 && strcspn(other, "= \t\n") == length;
	free(other);
	return found;
}

/* One file and then the other, without the lines of the first whose keys the second has. NULL if there is no room. */
static FILE *merge(FILE *first, FILE *second)
{
	int memory = memfd_create("conf", MFD_CLOEXEC);
	FILE *merged = memory < 0 ? NULL : fdopen(memory, "w+");
	size_t size = 0;
	char *line = NULL;

	if (merged == NULL) {
		if (memory >= 0)
			close(memory);
		return NULL;
	}
	while (getline(&line, &size, first) > 0)
		(void)fputs(has_key(second, line) ? "\n" : line, merged);
	(void)fputc('\n', merged);
	rewind(second);
	while (getline(&line, &size, second) > 0)
		(void)fputs(line, merged);
	free(line);
	if (fflush(merged) == 0 && !ferror(merged)) {
		rewind(merged);
		return merged;
	}
	fclose(merged);
	return NULL;
}

/*
 * A process's counters, read as its owner: only this thread, for files only, and for these three calls. NULL where that
 * may not read them either, as with a program that has become root: then these counters alone are unknown.
 */
static FILE *counters(const char *path, unsigned int pid)
{
	char process[64], content[4096];
	struct stat status;
	ssize_t size = -1;
	FILE *copy;
	int fd;

	snprintf(process, sizeof(process), "/proc/%u", pid);
	if (stat(process, &status) != 0)
		return NULL;
	(void)syscall(SYS_setfsgid, status.st_gid);
	(void)syscall(SYS_setfsuid, status.st_uid);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		size = read(fd, content, sizeof(content));
		close(fd);
	}
	(void)syscall(SYS_setfsuid, 0);
	(void)syscall(SYS_setfsgid, 0);
	if (size <= 0 || (fd = memfd_create("io", MFD_CLOEXEC)) < 0)
		return NULL;
	copy = write(fd, content, (size_t)size) == size && lseek(fd, 0, SEEK_SET) == 0 ? fdopen(fd, "r") : NULL;
	if (copy == NULL)
		close(fd);
	return copy;
}

/* Slurm has the cluster's file's length for the longest line, so what a node adds has short lines only. */
FILE *fopen(const char *path, const char *mode)
{
	const char *name = strstr(path, CACHE);
	FILE *cluster = next_fopen(path, mode), *node, *merged;
	char of_node[256], sign[2];
	unsigned int pid;

	if (sscanf(path, "/proc/%u/i%1[o]", &pid, sign) == 2 && *mode == 'r' && geteuid() == 0) {
		if (cluster != NULL)
			fclose(cluster);
		return counters(path, pid);
	}
	if (cluster == NULL || name == NULL || *mode != 'r')
		return cluster;
	snprintf(of_node, sizeof(of_node), OF_NODE "%s", name + strlen(CACHE));
	node = next_fopen(of_node, "re");
	if (node == NULL)
		return cluster;
	merged = merge(cluster, node);
	fclose(node);
	fclose(cluster);
	return merged;
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
