/*
 * stock.h - functions of Slurm's plugin that ours, which is linked with it, stands before.
 */
#ifndef SLURMSTACK_STOCK_H
#define SLURMSTACK_STOCK_H

#include <dlfcn.h>
#include <stdint.h>
#include <sys/types.h>

#include "processes.h"

static int (*stock_signal)(uint64_t id, int number) __attribute__((unused));
static int (*stock_get_pids)(uint64_t id, pid_t **pids, int *count);

/* At the load: later slurmstepd is in the jail, where this path is another's. */
__attribute__((constructor)) static void find_stock(void)
{
	void *stock = dlopen(STOCK, RTLD_LAZY | RTLD_NOLOAD);

	if (stock == NULL)
		return;
	stock_signal = (int (*)(uint64_t, int))dlsym(stock, "proctrack_p_signal");
	stock_get_pids = (int (*)(uint64_t, pid_t **, int *))dlsym(stock, "proctrack_p_get_pids");
}

/*
 * Slurm asks before it kills, and kills nobody as long as one of these dumps core. A process that has done so, and that
 * somebody holds at its exit, looks like that for ever.
 */
int proctrack_p_get_pids(uint64_t id, pid_t **pids, int *count)
{
	int code = stock_get_pids == NULL ? -1 : stock_get_pids(id, pids, count);

	if (code == 0)
		end_holders_of((pid_t)id, *pids, *count, true);
	return code;
}

#endif
