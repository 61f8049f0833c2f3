/*
 * cgroup.c - Slurm's proctrack/cgroup, for workers that hold jobs by cgroups, and what that does not do: to end who
 * traces a process that was killed. He keeps it at its exit or as a zombie for as long as he likes, and slurmctld drains
 * the node, for good ("Kill task failed"). See linuxproc.c, which does the same where there are no cgroups.
 *
 * What is not here is Slurm's, which this is linked with.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "linuxproc.h"
#include "processes.h"

static int (*stock_add)(void *step, pid_t pid);
static int (*stock_signal)(uint64_t id, int number);

/* At the load: later slurmstepd is in the jail, where this path is another's. */
__attribute__((constructor)) static void find_stock(void)
{
	void *stock = dlopen(STOCK, RTLD_LAZY | RTLD_NOLOAD);

	if (stock == NULL)
		return;
	stock_add = (int (*)(void *, pid_t))dlsym(stock, "proctrack_p_add");
	stock_signal = (int (*)(uint64_t, int))dlsym(stock, "proctrack_p_signal");
}

int proctrack_p_add(void *step, pid_t pid)
{
	adopt();
	return stock_add == NULL ? -1 : stock_add(step, pid);
}

int proctrack_p_signal(uint64_t id, int number)
{
	struct list now = { 0 };
	int code = stock_signal == NULL ? -1 : stock_signal(id, number);

	if (number == SIGKILL && read_all((pid_t)id, &now) == 0)
		end_holders((pid_t)id, &now);
	free(now.items);
	return code;
}
