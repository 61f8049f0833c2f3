/*
 * cgroup.c - Slurm's proctrack/cgroup, for workers that hold jobs by cgroups, and what that does not do: to end who
 * traces a process that was killed. He keeps it at its exit or as a zombie for as long as he likes, and slurmctld drains
 * the node, for good ("Kill task failed"). See linuxproc.c, which does the same where there are no cgroups.
 *
 * What is not here is Slurm's, which this is linked with.
 */
#include <signal.h>
#include <stdlib.h>

#include "linuxproc.h"
#include "stock.h"

/* Those at their exit are still in the cgroup. Zombies are not; of these only slurmstepd's own children matter to it. */
int proctrack_p_signal(uint64_t id, int number)
{
	struct list now = { 0 };
	pid_t *pids = NULL;
	int count = 0, code = stock_signal == NULL ? -1 : stock_signal(id, number);

	if (number != SIGKILL)
		return code;
	if (read_all((pid_t)id, &now) == 0)
		end_holders((pid_t)id, &now);
	free(now.items);
	if (stock_get_pids != NULL && stock_get_pids(id, &pids, &count) == 0)
		end_holders_of((pid_t)id, pids, count, false); /* Slurm's memory, of a process that is about to end */
	return code;
}
