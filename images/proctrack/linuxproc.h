/*
 * linuxproc.h - what Slurm calls (src/interfaces/proctrack.c, 24.11 and 26.05), as far as it is replaced here.
 */
#ifndef SLURMSTACK_LINUXPROC_H
#define SLURMSTACK_LINUXPROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

int proctrack_p_add(void *step, pid_t pid);

/* Returns 0, an errno of the last process that could not be signalled, or -1 where processes cannot be read. */
int proctrack_p_signal(uint64_t id, int number);

bool proctrack_p_has_pid(uint64_t id, pid_t pid);

#endif
