/*
 * around.c - see around.h. Whatever is not clear is answered with -1: then the Python program looks.
 */
#include "around.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEEPEST 64 /* ancestors that are looked at */
#define MOST_ENTRIES 10000 /* of a directory; the Python program has the same limit */
#define GONE ".gone-" /* as in job_directory.py */
#define LOOKS 20 /* at all processes, until one is whole; the Python program (proc.py) has the same limit */
#define SKIP_2 " %*s %*s"
#define SKIP_15 " %*s" SKIP_2 SKIP_2 SKIP_2 SKIP_2 SKIP_2 SKIP_2 SKIP_2

long long around_number(const char *text)
{
	long long value = 0;

	if (text == NULL || *text == '\0' || strlen(text) > 15)
		return -1;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		value = value * 10 + (*text - '0');
	}
	return value;
}

/* Opens the directory of all jobs, which has to belong to root alone: else a user could lead us elsewhere. */
static int open_jobs(const struct places *places)
{
	struct stat status;
	int jobs;

	if (mkdir(places->jobs, 0755) != 0 && errno != EEXIST)
		return -1;
	jobs = open(places->jobs, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (jobs < 0)
		return -1;
	if (fstat(jobs, &status) != 0 || status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
		close(jobs);
		return -1;
	}
	return jobs;
}

int around_make(const struct places *places, const char *job, uid_t uid, gid_t gid)
{
	int jobs = open_jobs(places), made = -1;

	if (jobs < 0)
		return -1;
	if (mkdirat(jobs, job, 0700) == 0) {
		made = fchownat(jobs, job, uid, gid, AT_SYMLINK_NOFOLLOW);
		if (made != 0)
			unlinkat(jobs, job, AT_REMOVEDIR);
	}
	close(jobs);
	return made;
}

/* 1: something in a directory belongs to the user, or it cannot be told, as with too many entries; 0: nothing does. */
static int has_files(const char *place, uid_t uid)
{
	DIR *directory = opendir(place);
	struct dirent *entry;
	struct stat status;
	int found = 0, seen = 0;

	if (directory == NULL)
		return errno != ENOENT;
	while (!found && (entry = readdir(directory)) != NULL) {
		if (++seen > MOST_ENTRIES) {
			found = 1;
			break;
		}
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
			found = errno != ENOENT;
		else
			found = status.st_uid == uid;
	}
	closedir(directory);
	return found;
}

/* The file of a process as a string. Returns 0, or -1 if there is none (any more). */
static int read_file(const char *proc, long pid, const char *name, char *text, size_t size)
{
	char path[256];
	ssize_t length;
	int file;

	snprintf(path, sizeof(path), "%s/%ld/%s", proc, pid, name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	length = read(file, text, size - 1);
	close(file);
	if (length <= 0)
		return -1;
	text[length] = '\0';
	return 0;
}

/*
 * Parent of a process, and whether it has ended, from proc_pid_stat(5). Returns 0, or -1 if there is none.
 * The first thread of a process may end before the others.
 */
static int read_stat(const char *proc, long pid, long *parent, int *has_ended)
{
	char text[1024], state, *rest;
	long threads;

	if (read_file(proc, pid, "stat", text, sizeof(text)) != 0)
		return -1;
	rest = strrchr(text, ')'); /* a name may have brackets of its own */
	if (rest == NULL || sscanf(rest + 1, " %c %ld" SKIP_15 " %ld", &state, parent, &threads) != 3)
		return -1;
	*has_ended = (state == 'Z' || state == 'X') && threads <= 1;
	return 0;
}

/* Whether a process is the user's; 1 also where that cannot be read of one that lives. */
static int belongs(const char *proc, long pid, uid_t uid)
{
	char text[4096], *line;
	unsigned long owner;

	if (read_file(proc, pid, "status", text, sizeof(text)) != 0)
		return 0;
	line = strstr(text, "\nUid:");
	return line == NULL || sscanf(line, "\nUid: %lu", &owner) != 1 || owner == uid;
}

/* Whether a process runs steps: it is slurmstepd, by its file, and root's. Anybody may take its name. */
static int is_step(const struct places *places, long pid)
{
	struct stat ours, theirs;
	char path[256];

	snprintf(path, sizeof(path), "%s/%ld/exe", places->proc, pid);
	return stat(places->slurmstepd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev
	       && ours.st_ino == theirs.st_ino && belongs(places->proc, pid, 0);
}

/* Whether a process is of a job that is still here: slurmstepd is among its ancestors. */
static int in_step(const struct places *places, long pid)
{
	long parent;
	int depth, has_ended;

	for (depth = 0; depth < DEEPEST; depth++) {
		if (read_stat(places->proc, pid, &parent, &has_ended) != 0)
			return 0;
		if (depth > 0 && is_step(places, pid))
			return 1;
		if (parent <= 0)
			return 0;
		pid = parent;
	}
	return 0;
}

/* 1: a process of the user's belongs to no step, or it cannot be told; 0: none was seen. */
static int sees_processes(const struct places *places, uid_t uid)
{
	DIR *directory = opendir(places->proc);
	struct dirent *entry;
	int found = 0;

	if (directory == NULL)
		return 1;
	while (!found && (entry = readdir(directory)) != NULL) {
		long long pid = around_number(entry->d_name);
		long parent;
		int has_ended;

		if (pid <= 0 || !belongs(places->proc, (long)pid, uid))
			continue;
		if (read_stat(places->proc, (long)pid, &parent, &has_ended) != 0 || has_ended)
			continue;
		found = !in_step(places, (long)pid);
	}
	closedir(directory);
	return found;
}

/* The number that was given to a process or thread last, from proc_loadavg(5); -1 if it cannot be read. */
static long last_pid(const char *proc)
{
	char path[256], text[128];
	ssize_t length = -1;
	int file;
	long last;

	snprintf(path, sizeof(path), "%s/loadavg", proc);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		length = read(file, text, sizeof(text) - 1);
		close(file);
	}
	if (length <= 0)
		return -1;
	text[length] = '\0';
	return sscanf(text, "%*s %*s %*s %*s %ld", &last) == 1 ? last : -1;
}

/*
 * 1: a process of the user's belongs to no step, or it cannot be told; 0: none does. A chain of processes that fork and
 * end is not seen where each lives for less than a look takes. But one of them lives at any time: of two looks
 * during which no number was given away, one has seen it. One look is not enough: it may miss a process that had its
 * number already and was not listed yet, and then its parent, which has ended.
 */
static int has_processes(const struct places *places, uid_t uid)
{
	int look;

	for (look = 0; look < LOOKS; look++) {
		long before = last_pid(places->proc);

		if (before < 0 || sees_processes(places, uid) || sees_processes(places, uid))
			return 1;
		if (last_pid(places->proc) == before)
			return 0;
	}
	return 1;
}

/* 1: the user has something in a list of /proc/sysvipc, or it cannot be told; 0: nothing. `format` finds the owner. */
static int has_listed(const char *proc, const char *kind, const char *format, uid_t uid)
{
	char path[256], line[1024];
	unsigned long owner, maker;
	int found = 0, first = 1;
	FILE *file;

	snprintf(path, sizeof(path), "%s/sysvipc/%s", proc, kind);
	file = fopen(path, "re");
	if (file == NULL)
		return errno != ENOENT;
	while (!found && fgets(line, sizeof(line), file) != NULL) {
		if (!first)
			found = sscanf(line, format, &owner, &maker) != 2 || owner == uid || maker == uid;
		first = 0;
	}
	fclose(file);
	return found;
}

/*
 * System V's shared memory, queues and semaphores (proc_sysvipc(5)), which outlive every process. Whose it is now and who
 * made it, who may have given it away: uid, gid, cuid.
 */
static int has_ipc(const char *proc, uid_t uid)
{
	/* Before these: key id perms size cpid lpid nattch; key id perms cbytes qnum lspid lrpid; key id perms nsems. */
	return has_listed(proc, "shm", "%*s %*s %*s %*s %*s %*s %*s %lu %*s %lu", uid)
	       || has_listed(proc, "msg", "%*s %*s %*s %*s %*s %*s %*s %lu %*s %lu", uid)
	       || has_listed(proc, "sem", "%*s %*s %*s %*s %lu %*s %lu", uid);
}

/* 1: something that was moved aside is still there, or it cannot be told: the Python program removes it. */
static int has_gone(int jobs)
{
	struct dirent *entry;
	int found = 0, copy = openat(jobs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = copy < 0 ? NULL : fdopendir(copy);

	if (directory == NULL) {
		if (copy >= 0)
			close(copy);
		return 1;
	}
	while (!found && (entry = readdir(directory)) != NULL)
		found = strncmp(entry->d_name, GONE, strlen(GONE)) == 0;
	closedir(directory);
	return found;
}

int around_end(const struct places *places, const char *job, uid_t uid)
{
	const char *const *place;
	int jobs = open_jobs(places), removed;

	if (jobs < 0)
		return -1;
	removed = (unlinkat(jobs, job, AT_REMOVEDIR) == 0 || errno == ENOENT) && !has_gone(jobs);
	close(jobs);
	if (!removed)
		return -1;
	for (place = places->shared; *place != NULL; place++)
		if (has_files(*place, uid))
			return -1;
	return has_ipc(places->proc, uid) || has_processes(places, uid) ? -1 : 0;
}
