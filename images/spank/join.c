/*
 * join.c - takes slurmd into a job's mount where it works for the job without slurmstepd: for `sbcast`, whose files are
 * to be where the job looks for them.
 *
 * Slurm asks its plugin for private directories of jobs, in a child of slurmd that becomes the user next. For 24.11 this
 * is such a plugin, named in the node's own slurm.conf (images/worker/confine.py). 26.05 would start another
 * slurmstepd for each job as soon as it has one (PrologFlags=Contain); there the function that asks all plugins is in a
 * library, and this takes its place by LD_PRELOAD.
 *
 * slurmstepd goes in by itself (jail.c), before it is asked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "helper.h"

static int join(const slurm_step_id_t *step, uid_t uid)
{
	char request[64], job_mount[HELPER_LONGEST];
	int connection, done;

	if (strcmp(program_invocation_short_name, "slurmd") != 0)
		return SLURM_SUCCESS;
	connection = helper_connect();
	if (connection < 0)
		return errno == ENOENT ? SLURM_SUCCESS : SLURM_ERROR; /* a worker without the jail has no helper */
	snprintf(request, sizeof(request), "mount %" PRIu32 " %u -1 -1", step->job_id, uid);
	done = helper_ask(connection, request, job_mount, NULL) == 0 && chroot(job_mount) == 0 && chdir("/") == 0;
	close(connection);
	return done ? SLURM_SUCCESS : SLURM_ERROR;
}

#ifdef AS_PLUGIN
const char plugin_name[] = "Mounts of jobs";
const char plugin_type[] = "job_container/jail";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

int init(void)
{
	return SLURM_SUCCESS;
}

int fini(void)
{
	return SLURM_SUCCESS;
}

/* `for_step`: it is slurmd's child that becomes slurmstepd, which goes in later. */
int container_p_join(slurm_step_id_t *step, uid_t uid, bool for_step)
{
	return for_step ? SLURM_SUCCESS : join(step, uid);
}

int container_p_join_external(uint32_t job_id)
{
	(void)job_id;
	return SLURM_SUCCESS;
}

int container_p_restore(char *directory, bool recover)
{
	(void)directory;
	(void)recover;
	return SLURM_SUCCESS;
}

int container_p_stepd_create(uint32_t job_id, void *step)
{
	(void)job_id;
	(void)step;
	return SLURM_SUCCESS;
}

int container_p_stepd_delete(uint32_t job_id)
{
	(void)job_id;
	return SLURM_SUCCESS;
}

int container_p_send_stepd(int file)
{
	(void)file;
	return SLURM_SUCCESS;
}

int container_p_recv_stepd(int file)
{
	(void)file;
	return SLURM_SUCCESS;
}
#else
int namespace_g_join(slurm_step_id_t *step, uid_t uid, bool for_step)
{
	return for_step ? SLURM_SUCCESS : join(step, uid);
}
#endif
