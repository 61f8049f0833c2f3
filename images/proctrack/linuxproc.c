/*
 * linuxproc.c - the parts of Slurm's proctrack/linuxproc that believe what a process says of itself.
 *
 * Slurm's own spares every process with slurmstepd's name, does not see one with a blank in its name, or whose first
 * thread has ended, and loses each that makes itself a daemon. A job may do all of that, and then neither scancel nor
 * the end of its step ends it. Here a process is of a step because the kernel says that it descends from it:
 *
 * - slurmstepd adopts what loses its parent (PR_SET_CHILD_SUBREAPER), so that nothing leaves its step;
 * - who traces a process that was killed, and so keeps it at its exit or as a zombie for ever, is killed, too: slurmctld
 *   would drain the node, for good ("Kill task failed");
 * - what is spared is slurmstepd's own program run by its own user: its forks that have not become a task yet.
 *
 * Everything else is Slurm's plugin, which this one is linked with: Slurm looks up each function by name, and finds
 * those that are not here there.
 */
#include "linuxproc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 100 /* of looking for what was started while the others were killed */
#define MOST_HOLDERS 1000 /* one held by the next, in a circle perhaps; Slurm asks again where more are left */
#define DEEPEST 100000 /* ancestors of a process: more than there are numbers of processes on most machines */

struct process {
	pid_t pid, parent;
	unsigned long long start; /* with the number it names a process for good */
	bool has_ended, is_ours, was_signalled;
};

struct list {
	struct process *items;
	size_t count, room;
};

/* What a file of /proc says. Returns whether it could be read. */
static bool read_text(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, size - 1);

	if (file >= 0)
		close(file);
	text[length < 0 ? 0 : length] = '\0';
	return length >= 0;
}

/* One process as the kernel has it. Its name ends at the last bracket, whatever is in it. */
static bool read_process(const char *number, struct process *found)
{
	char path[64], text[1024], state, *rest;
	long parent, threads;

	memset(found, 0, sizeof(*found));
	found->pid = atoi(number);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)found->pid);
	if (!read_text(path, text, sizeof(text)))
		return false;
	rest = strrchr(text, ')');
	if (rest == NULL || sscanf(rest + 1, " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
				   &state, &parent, &threads, &found->start) != 4)
		return false;
	found->parent = (pid_t)parent;
	/* The first thread of a process may end before the others. */
	found->has_ended = (state == 'Z' || state == 'X') && threads <= 1;
	return true;
}

static int by_number(const void *one, const void *other)
{
	pid_t left = ((const struct process *)one)->pid, right = ((const struct process *)other)->pid;

	return (left > right) - (left < right);
}

static struct process *find(const struct list *list, pid_t pid)
{
	const struct process key = { .pid = pid };

	return list->count == 0 ? NULL : bsearch(&key, list->items, list->count, sizeof(key), by_number);
}

/* All processes, those below `top` marked as ours. Returns 0, or -1 if they cannot be read. */
static int read_all(pid_t top, struct list *list)
{
	DIR *directory = opendir("/proc");
	struct dirent *entry;
	bool more = true;

	list->count = 0;
	if (directory == NULL)
		return -1;
	while ((entry = readdir(directory)) != NULL) {
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		if (list->count == list->room) {
			size_t room = list->room ? 2 * list->room : 256;
			struct process *items = realloc(list->items, room * sizeof(*items));

			if (items == NULL) {
				closedir(directory);
				return -1;
			}
			list->items = items;
			list->room = room;
		}
		if (read_process(entry->d_name, &list->items[list->count]))
			list->count++;
	}
	closedir(directory);
	if (list->count > 0)
		qsort(list->items, list->count, sizeof(*list->items), by_number);
	while (more) { /* a child mostly has a higher number than its parent: once or twice */
		more = false;
		for (size_t i = 0; i < list->count; i++) {
			struct process *one = &list->items[i], *parent;

			if (one->is_ours || one->pid == top)
				continue;
			parent = one->parent == top ? NULL : find(list, one->parent);
			one->is_ours = one->parent == top || (parent != NULL && parent->is_ours);
			more = more || one->is_ours;
		}
	}
	return 0;
}

/* The number after a word of a status file of /proc; -1 if it is not there. */
static long number_after(const char *text, const char *word)
{
	const char *line = strstr(text, word);

	return line == NULL ? -1 : strtol(line + strlen(word), NULL, 10);
}

/*
 * Whether a process runs slurmstepd's own program: a fork that is not a task yet. For SIGKILL it has to be its user's
 * too, as anybody can start that program.
 */
static bool is_spared(pid_t pid, int number)
{
	struct stat ours, theirs;
	char path[64], text[2048];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	if (stat("/proc/self/exe", &ours) != 0 || stat(path, &theirs) != 0 || ours.st_dev != theirs.st_dev
	    || ours.st_ino != theirs.st_ino)
		return false;
	if (number != SIGKILL)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return read_text(path, text, sizeof(text)) && number_after(text, "\nUid:") == (long)getuid();
}

/* Who traces a thread that stands still or has ended, or, if `always`, any thread; 0: nobody. */
static pid_t holder_of(const char *status, bool always)
{
	char path[64], text[2048];
	const char *state;
	long holder;

	if (!read_text(status, text, sizeof(text)))
		return 0;
	state = strstr(text, "\nState:\t");
	holder = number_after(text, "\nTracerPid:");
	if (holder <= 0 || state == NULL || !(always || state[8] == 't' || state[8] == 'Z'))
		return 0;
	snprintf(path, sizeof(path), "/proc/%ld/status", holder); /* a thread's number */
	return read_text(path, text, sizeof(text)) ? (pid_t)number_after(text, "\nTgid:") : 0;
}

/* Ends a process if it still is who traces that thread: its number may have become another's. */
static void end_holder(pid_t holder, const char *status, bool always)
{
	int descriptor = (int)syscall(SYS_pidfd_open, holder, 0);

	if (holder_of(status, always) == holder
	    && (descriptor < 0 || syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0) != 0))
		(void)kill(holder, SIGKILL); /* where a filter of system calls knows none of these two */
	if (descriptor >= 0)
		close(descriptor);
}

/*
 * Whether somebody holds a thread of this process; if `kills` is there, who does is ended, and who holds those in turn.
 * Whoever they are: a user's tracer may turn into sudo. Only slurmstepd itself and the container's first process are
 * let be, as a process can make its parent its tracer.
 */
static bool is_held(pid_t pid, pid_t step, bool always, int *kills)
{
	char path[300];
	DIR *threads;
	struct dirent *entry;
	bool held = false;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	while (threads != NULL && (entry = readdir(threads)) != NULL) {
		pid_t holder;

		snprintf(path, sizeof(path), "/proc/%d/task/%.255s/status", (int)pid, entry->d_name);
		holder = entry->d_name[0] == '.' ? 0 : holder_of(path, always);
		if (holder <= 1 || holder == step)
			continue;
		held = true;
		if (kills == NULL || ++*kills > MOST_HOLDERS)
			continue;
		end_holder(holder, path, always);
		(void)is_held(holder, step, true, kills);
	}
	if (threads != NULL)
		closedir(threads);
	return held;
}

/* Ends those who hold what has been killed, unless they let go within a moment, as debuggers do. */
static void end_holders(pid_t step, struct list *list)
{
	static const struct timespec moment = { .tv_nsec = 50 * 1000 * 1000 };
	bool held = false;
	int kills = 0;

	for (size_t i = 0; i < list->count && !held; i++)
		held = list->items[i].is_ours && is_held(list->items[i].pid, step, false, NULL);
	if (!held)
		return;
	(void)nanosleep(&moment, NULL);
	if (read_all(step, list) != 0)
		return;
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].is_ours && !is_spared(list->items[i].pid, SIGKILL))
			(void)is_held(list->items[i].pid, step, false, &kills);
}

/* Slurm calls this for each task, before the task becomes the user's program. */
int proctrack_p_add(void *step, pid_t pid)
{
	(void)step;
	(void)pid;
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	return 0;
}

/* Signals all that descends from a slurmstepd; with SIGKILL also what was started meanwhile. */
int proctrack_p_signal(uint64_t id, int number)
{
	struct list now = { 0 }, before = { 0 }, swap;
	int code = 0, round, fresh = 1;

	for (round = 0; fresh > 0 && round < (number == SIGKILL ? ROUNDS : 1); round++) {
		fresh = 0;
		swap = before;
		before = now;
		now = swap;
		if (read_all((pid_t)id, &now) != 0) {
			code = -1;
			break;
		}
		for (size_t i = 0; i < now.count; i++) {
			struct process *one = &now.items[i], *known = find(&before, one->pid);

			if (!one->is_ours || one->has_ended)
				continue;
			one->was_signalled = known != NULL && known->start == one->start && known->was_signalled;
			if (one->was_signalled || is_spared(one->pid, number))
				continue;
			if (kill(one->pid, number) != 0 && errno != ESRCH)
				code = errno;
			one->was_signalled = true;
			fresh++;
		}
	}
	if (number == SIGKILL && code != -1)
		end_holders((pid_t)id, &now);
	free(now.items);
	free(before.items);
	return code;
}

/* Whether a process descends from a slurmstepd. */
bool proctrack_p_has_pid(uint64_t id, pid_t pid)
{
	struct process one;
	char number[16];
	int depth;

	for (depth = 0; depth < DEEPEST && pid > 1; depth++) {
		if (pid == (pid_t)id)
			return true;
		snprintf(number, sizeof(number), "%d", (int)pid);
		if (!read_process(number, &one))
			return false;
		pid = one.parent;
	}
	return false;
}
