/*
 * no_triggers.c - for LD_PRELOAD in slurmctld: programs of triggers (strigger) are not started.
 *
 * Slurm runs a trigger's program in slurmctld's container as the user who has set it, and only SlurmUser may. Who is root
 * in the jail can say to be SlurmUser: munge attests any user whom a process has become. The script of a job of theirs
 * lies there, too, as a file that may be executed. No setting of Slurm turns triggers off.
 *
 * Of what slurmctld starts by execv(3), a trigger's program has a process group of its own (trigger_mgr.c; looked up in
 * 24.11 and 26.05), and so has SlurmctldPrimaryOnProg, which a controller without another one does not need.
 * slurmscriptd, which starts what else slurm.conf names, has not.
 */
#include <errno.h>
#include <unistd.h>

int execv(const char *path, char *const argv[])
{
	if (getpgrp() == getpid()) {
		errno = EPERM;
		return -1;
	}
	return execve(path, argv, environ);
}
