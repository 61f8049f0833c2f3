/*
 * processes.h - the processes of a step as the kernel has them, and those that keep them from ending.
 */
#ifndef SLURMSTACK_PROCESSES_H
#define SLURMSTACK_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process {
	pid_t pid, parent;
	unsigned long long start; /* with the number it names a process for good */
	bool has_ended, has_dumped, is_ours, was_signalled;
};

struct list {
	struct process *items;
	size_t count, room;
};

/* One process as the kernel has it. Its name ends at the last bracket, whatever is in it. */
bool read_process(const char *number, struct process *found);

struct process *find(const struct list *list, pid_t pid);

/* All processes, those below `top` marked as ours. Returns 0, or -1 if they cannot be read. */
int read_all(pid_t top, struct list *list);

/*
 * Whether a process runs slurmstepd's own program: a fork that is not a task yet. For SIGKILL it has to be its user's
 * too, as anybody can start that program.
 */
bool is_spared(pid_t pid, int number);

/* Ends those who hold what has been killed, unless they let go within a moment, as debuggers do. */
void end_holders(pid_t step, struct list *list);

/* The same for these processes, all of them or only those that have dumped core. */
void end_holders_of(pid_t step, const pid_t *pids, int count, bool dumped);

#endif
