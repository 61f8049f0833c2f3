/*
 * reads.c - a part of guarded.so: what slurmd and slurmstepd read as files.
 *
 * fopen: of the cluster's configuration slurmd reads what its own node adds to it, too: which plugins hold jobs to what
 *   they asked for is a question of the machine's kernel and of its container runtime (images/worker/confine.py).
 *
 *   /proc/PID/io is for its owner, and for whoever has CAP_SYS_PTRACE, which no pod has. slurmstepd can open a task's, but
 *   not read it, and then throws away all that it knows of the task: sacct had no memory of any user's job (tried with
 *   24.11 and 26.05). It is read in the name of the owner.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE "/conf-cache/"
#define OF_NODE "/run/slurmstack/node/"

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
