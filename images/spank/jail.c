/*
 * jail.c - SPANK plugin that takes every job step into the jail.
 *
 *   required /usr/lib/slurmstack/jail.so root=/jail
 *
 * The jail is a whole root file system on a shared volume. slurmstepd itself enters it, right after it has read its
 * options and before it opens a job's files: steps, batch scripts and their output files are then all inside. In a
 * later hook (task_init_privileged) only the tasks would be inside; slurmstepd would open a batch job's output
 * outside, and the batch script would not be found.
 *
 * chroot() and not a mount namespace: slurmstepd may have threads by now, and these would keep the old one.
 *
 * From then on nothing that it starts can do what leads out of a jail: sudo in a job is root in there and no more. That
 * happens here and not in each task alone, as slurmstepd starts other programs of users too (`srun --task-epilog`).
 *
 * slurmstepd gives up, too, what leads out: it loads libraries from the jail (PMIx its components), which root in there
 * can put in place. The next container of the pod would trust what these could write outside.
 *
 * Each job has a view of the jail of its own, with its own /tmp and /dev/shm, which the helper makes: slurmstepd asks for
 * it before it goes in.
 *
 * No directory is entered where there is none of that name (a worker without a jail, or a process already inside the jail),
 * and by the external step, which belongs to the node and not to the user. Nothing happens in srun, salloc and sbatch.
 *
 * Who asks for it (`srun --user-namespace`) has tasks that are not in a chroot but in namespaces of their own, so that
 * containers run in them. The helper has these made (images/worker/namespaces.py). A user may enter a user namespace that is
 * his own, without any capability, and from there what it owns: so the task does it as the user, after all that root does.
 *
 * On nodes with GPUs it also tells the tasks where the driver's libraries and programs are: the pod's entry point has
 * bound them below GPU_DIRECTORY (images/common/gpu_view.py). And it tells the tasks of the job's own temporary
 * directory, where the prolog has made one (images/worker/job_mounts.py).
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "capabilities.h"
#include "helper.h"

SPANK_PLUGIN(jail, 1)

enum { USER, MOUNTS };

static int namespaces_wanted; /* whether the step's user asked for them */
static int namespaces[HELPER_FILES] = { -1, -1 };
static char refusal[512] = "this worker has no jail, and so no namespaces for jobs"; /* for the task, which can tell its user */

static int want_namespaces(int value, const char *argument, int remote)
{
	(void)value;
	(void)argument;
	(void)remote;
	namespaces_wanted = 1;
	return 0;
}

static struct spank_option user_namespace = {
	"user-namespace", NULL,
	"run tasks in a user namespace of their own, in which containers can be started (pools with containers: true)", 0, 0,
	want_namespaces
};

/* Slurm 24.11 starts the step all the same where a plugin returns ESPANK_ERROR: it looks for numbers below 0 only. */
enum { REFUSED = -1 };

/* As root, before slurmstepd is in the jail. */
static void ask_for_namespaces(uint32_t job, uid_t uid, gid_t gid)
{
	char request[64], answer[HELPER_LONGEST] = "";
	int connection = helper_connect();

	snprintf(request, sizeof(request), "namespaces %" PRIu32 " %u %u", job, uid, gid);
	if (connection >= 0 && helper_ask(connection, request, answer, namespaces) == 0)
		refusal[0] = '\0';
	else
		snprintf(refusal, sizeof(refusal), "%.500s", answer[0] != '\0' ? answer : strerror(errno));
	if (connection >= 0)
		close(connection);
}

/* In the task, as its user: goes in, and stays in its directory. What failed is the refusal then. */
static void enter_namespaces(void)
{
	const char *failed = NULL;
	char directory[PATH_MAX];

	if (getcwd(directory, sizeof(directory)) == NULL)
		strcpy(directory, "/");
	if (setns(namespaces[USER], CLONE_NEWUSER) != 0)
		failed = "cannot enter the user namespace";
	else if (setns(namespaces[MOUNTS], CLONE_NEWNS) != 0)
		failed = "cannot enter the mount namespace";
	else if (chdir(directory) != 0)
		failed = "cannot go back to the task's directory";
	if (failed != NULL)
		snprintf(refusal, sizeof(refusal), "%s: %s", failed, strerror(errno));
	close(namespaces[USER]);
	close(namespaces[MOUNTS]);
}

/*
 * Where the job's mount is, the jail with a /tmp of its own (images/worker/job_mounts.py). Returns 0 with the way
 * into the jail itself where the worker has no helper, or -1 after saying what failed.
 */
static int find_job_mount(spank_t spank, const char *root, char job_mount[HELPER_LONGEST])
{
	uint32_t job_id = 0;
	uint64_t memory_mib = 0; /* of this node; 0: no limit */
	uid_t uid = 0;
	gid_t gid = 0;
	char request[128];
	/* Never closed: the job's mount stays at least as long as this process. */
	int connection = helper_connect();

	snprintf(job_mount, HELPER_LONGEST, "%s", root);
	if (connection < 0 && errno == ENOENT)
		return 0;
	if (connection < 0) {
		slurm_error("jail: cannot reach the helper: %s", strerror(errno));
		return -1;
	}
	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS
	    || spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS
	    || spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS
	    || spank_get_item(spank, S_JOB_ALLOC_MEM, &memory_mib) != ESPANK_SUCCESS) {
		slurm_error("jail: the job's number, user or memory is not known");
		return -1;
	}
	snprintf(request, sizeof(request), "mount %" PRIu32 " %u %u %" PRIu64, job_id, uid, gid, memory_mib);
	if (helper_ask(connection, request, job_mount, NULL) == 0) {
		int *shared = dlsym(RTLD_DEFAULT, "slurmstack_helper"); /* images/common/native/devices.c */

		if (shared != NULL)
			*shared = connection;
		if (namespaces_wanted)
			ask_for_namespaces(job_id, uid, gid);
		return 0;
	}
	slurm_error("jail: the job has no mount: %s", job_mount[0] != '\0' ? job_mount : strerror(errno));
	return -1;
}

/* Enters the jail. Returns 0, or -1 after saying what failed. */
static int enter(const char *root)
{
	if (chroot(root) != 0) {
		slurm_error("jail: chroot(\"%s\"): %s", root, strerror(errno));
		return -1;
	}
	/* Without this the working directory would stay outside, and ".." would lead out. */
	if (chdir("/") != 0) {
		slurm_error("jail: chdir(\"/\") inside \"%s\": %s", root, strerror(errno));
		return -1;
	}
	return 0;
}

/* Gives up what leads out of a jail, for all that this process starts. Without that no step may start. */
static int bound(void)
{
	if (bound_for_users() == 0)
		return ESPANK_SUCCESS;
	slurm_error("jail: cannot give up capabilities: %s", strerror(errno));
	return REFUSED;
}

/* The table of options that Slurm looks for by its name would be for srun alone. */
int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	const spank_context_t context = spank_context();

	(void)argc;
	(void)argv;
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return ESPANK_SUCCESS;
	return spank_option_register(spank, &user_namespace) == ESPANK_SUCCESS ? ESPANK_SUCCESS : REFUSED;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	const char *root;
	char job_mount[HELPER_LONGEST];
	uint32_t step_id = 0;
	spank_err_t error;
	int exists;

	if (spank_context() != S_CTX_REMOTE)
		return ESPANK_SUCCESS;

	if (argc != 1 || strncmp(argv[0], "root=/", 6) != 0) {
		slurm_error("jail: plugstack.conf: the plugin takes root=DIRECTORY, and nothing else");
		return REFUSED;
	}
	root = argv[0] + strlen("root=");

	error = spank_get_item(spank, S_JOB_STEPID, &step_id);
	if (error != ESPANK_SUCCESS) {
		slurm_error("jail: the step's number is not known: %s", spank_strerror(error));
		return REFUSED;
	}
	exists = step_id != SLURM_EXTERN_CONT && (access(root, F_OK) == 0 || errno != ENOENT);
	if (exists && (find_job_mount(spank, root, job_mount) != 0 || enter(job_mount) != 0))
		return REFUSED;
	if (exists && stay_in_jail() != 0) {
		slurm_error("jail: cannot give up in all threads what leads out of it");
		return REFUSED;
	}
	return bound();
}

/*
 * Where a job is over its memory, the kernel is to end a task and not slurmstepd, which is in the job's limit, too: then
 * nobody would say that the job has ended. Slurm would protect slurmstepd itself, which takes CAP_SYS_RESOURCE. All of
 * the scale, 1000: of a small job slurmstepd may be the largest part. It still is the first where the pod's own score is
 * as high (a worker that asks for little of its machine). A user can take it back down to the pod's.
 */
static void be_killed_sooner(void)
{
	FILE *file = fopen("/proc/self/oom_score_adj", "we");

	if (file == NULL)
		return;
	fputs("1000", file);
	fclose(file);
}

/* In each task while it is still root: the last look before it becomes the user's. */
int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
	(void)spank;
	(void)argc;
	(void)argv;
	be_killed_sooner();
	return bound();
}

#define GPU_DIRECTORY "/run/slurmstack/gpu"

/*
 * Appends a directory to a variable of the tasks, a list of directories; what the user has set comes first, and nothing is
 * added twice. A variable without a value is only made where `make` says so: a PATH with one directory would hide all
 * programs. An empty entry would mean the working directory. One that is too long is left alone.
 */
static void append_to_variable(spank_t spank, const char *name, const char *directory, int make)
{
	static char value[65536];
	spank_err_t error = spank_getenv(spank, name, value, sizeof(value) - 64);
	size_t length;

	if (error == ESPANK_ENV_NOEXIST)
		value[0] = '\0';
	else if (error != ESPANK_SUCCESS)
		return;
	length = strlen(value);
	if ((length == 0 && !make) || strstr(value, directory) != NULL)
		return;
	snprintf(value + length, sizeof(value) - length, "%s%s", length == 0 ? "" : ":", directory);
	if (spank_setenv(spank, name, value, 1) != ESPANK_SUCCESS)
		slurm_info("jail: cannot set %s", name);
}

#define JOBS_DIRECTORY "/tmp/jobs"

/* Sets TMPDIR to the job's own directory, if there is one. What the user has set stays. */
static void set_temporary_directory(spank_t spank)
{
	char directory[sizeof(JOBS_DIRECTORY) + 16], old[8];
	uint32_t job_id = 0;
	spank_err_t error = spank_getenv(spank, "TMPDIR", old, sizeof(old));

	/* slurmstepd has not set its own default, /tmp, yet. One that does not fit is the user's. */
	if (error != ESPANK_ENV_NOEXIST && !(error == ESPANK_SUCCESS && strcmp(old, "/tmp") == 0))
		return;
	if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS)
		return;
	snprintf(directory, sizeof(directory), JOBS_DIRECTORY "/%" PRIu32, job_id);
	if (access(directory, W_OK | X_OK) != 0)
		return;
	error = spank_setenv(spank, "TMPDIR", directory, 1);
	if (error != ESPANK_SUCCESS)
		slurm_info("jail: cannot set TMPDIR: %s", spank_strerror(error));
}

/* Already inside the jail, as the user, before the tasks are started. */
int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	set_temporary_directory(spank);
	if (access(GPU_DIRECTORY "/lib", X_OK) != 0)
		return ESPANK_SUCCESS;
	append_to_variable(spank, "LD_LIBRARY_PATH", GPU_DIRECTORY "/lib", 1);
	append_to_variable(spank, "PATH", GPU_DIRECTORY "/bin", 0);
	return ESPANK_SUCCESS;
}

/* In each task, as its user: the last before its program. What is said here the user sees. */
int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	char container[8];
	spank_err_t error = spank_getenv(spank, "SLURM_CONTAINER", container, sizeof(container));

	(void)argc;
	(void)argv;
	/* Slurm would ignore it without an oci.conf, and run the program in the jail. */
	if (error == ESPANK_NOSPACE || (error == ESPANK_SUCCESS && container[0] != '\0')) {
		slurm_error("jail: there is no --container here; see --user-namespace");
		return REFUSED;
	}
	if (namespaces_wanted && refusal[0] == '\0')
		enter_namespaces();
	if (!namespaces_wanted || refusal[0] == '\0')
		return ESPANK_SUCCESS;
	slurm_error("jail: --user-namespace: %s", refusal);
	return REFUSED;
}
