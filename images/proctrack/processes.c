/*
 * processes.c - see processes.h.
 */
#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DUMPCORE 0x200 /* PF_DUMPCORE (include/linux/sched.h): it is dumping core, or has */
#define MOST_HOLDERS 1000 /* one held by the next, in a circle perhaps; Slurm asks again where more are left */

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

bool read_process(const char *number, struct process *found)
{
	char path[64], text[1024], state, *rest;
	long parent, threads;
	unsigned flags;

	memset(found, 0, sizeof(*found));
	found->pid = atoi(number);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)found->pid);
	if (!read_text(path, text, sizeof(text)))
		return false;
	rest = strrchr(text, ')');
	if (rest == NULL || sscanf(rest + 1, " %c %ld %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
				   &state, &parent, &flags, &threads, &found->start) != 5)
		return false;
	found->parent = (pid_t)parent;
	found->has_dumped = (flags & DUMPCORE) != 0;
	/* The first thread of a process may end before the others. */
	found->has_ended = (state == 'Z' || state == 'X') && threads <= 1;
	return true;
}

static int by_number(const void *one, const void *other)
{
	pid_t left = ((const struct process *)one)->pid, right = ((const struct process *)other)->pid;

	return (left > right) - (left < right);
}

struct process *find(const struct list *list, pid_t pid)
{
	const struct process key = { .pid = pid };

	return list->count == 0 ? NULL : bsearch(&key, list->items, list->count, sizeof(key), by_number);
}

int read_all(pid_t top, struct list *list)
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

bool is_spared(pid_t pid, int number)
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

static const struct timespec moment = { .tv_nsec = 50 * 1000 * 1000 };

void end_holders(pid_t step, struct list *list)
{
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

static bool may_be_held(pid_t pid, bool dumped)
{
	struct process one;
	char number[16];

	snprintf(number, sizeof(number), "%d", (int)pid);
	return read_process(number, &one) && (one.has_dumped || !dumped) && !is_spared(pid, SIGKILL);
}

void end_holders_of(pid_t step, const pid_t *pids, int count, bool dumped)
{
	bool held = false;
	int i, kills = 0;

	for (i = 0; i < count && !held; i++)
		held = may_be_held(pids[i], dumped) && is_held(pids[i], step, false, NULL);
	if (!held)
		return;
	(void)nanosleep(&moment, NULL);
	for (i = 0; i < count; i++)
		if (may_be_held(pids[i], dumped))
			(void)is_held(pids[i], step, false, &kills);
}
