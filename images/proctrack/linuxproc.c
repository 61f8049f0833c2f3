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

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "processes.h"
#include "stock.h"

#define ROUNDS 100 /* of looking for what was started while the others were killed */
#define DEEPEST 100000 /* ancestors of a process: more than there are numbers of processes on most machines */

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
