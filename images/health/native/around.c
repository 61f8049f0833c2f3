/*
 * around.c - what slurmd starts around each job: health-prolog and health-epilog.
 *
 * The prolog makes the job's temporary directory. The epilog has its mount taken away (images/worker/job_mounts.py), and
 * removes that directory and what PMIx has left of the job's steps. In C, as to start Python costs more than that: a
 * 1,000-task array would take three times as long. On nodes with GPUs of NVIDIA's health-gpus (gpu_job.py) does the rest.
 *
 * Nothing here fails: Slurm would drain the node.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

/* The tests have places of their own. */
#ifndef ROOT
#define ROOT ""
#endif
#define JOBS ROOT "/tmp/jobs" /* images/worker/job_mounts.py */
#define SPOOL ROOT "/var/spool/slurmd"
#define JOB_MOUNTS ROOT "/run/slurmstack/job-mounts" /* images/worker/job_mounts.py */
#define WITH_GPUS ROOT "/run/slurmstack/health/gpus" /* there if the node has some; images/worker/slurmd.py makes it */
#define GPUS ROOT "/usr/libexec/slurmstack/health-gpus"
#define GONE ".gone-"

enum { SHORTEST_MS = 5, LONGEST_MS = 200, MOST_MS = 20000 };

/* A number, and nothing else: its value, or -1. */
static long long number(const char *text)
{
	size_t length = text == NULL ? 0 : strlen(text);

	return length > 0 && length <= 15 && strspn(text, "0123456789") == length ? atoll(text) : -1;
}

/* Opens a directory that has to belong to root alone: else a user could lead us elsewhere. -1 if it does not. */
static int open_own(const char *path)
{
	struct stat status;
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (directory < 0)
		return -1;
	if (fstat(directory, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 022) == 0)
		return directory;
	close(directory);
	return -1;
}

/* Removes what was moved aside, in the background: a million files take their time. rm follows no link. */
static void remove_gone(void)
{
	char *const argv[] = { "find", JOBS, SPOOL, "-mindepth", "1", "-maxdepth", "1", "-name", GONE "*", "-exec", "rm",
			       "-rf", "--one-file-system", "--", "{}", "+", NULL };
	int nothing;

	if (fork() != 0)
		return;
	setsid(); /* slurmd ends what is left of an epilog's process group */
	nothing = open("/dev/null", O_RDWR);
	dup2(nothing, 0);
	dup2(nothing, 1);
	dup2(nothing, 2);
	execv("/usr/bin/find", argv);
	_exit(0);
}

/* Moves a name aside. Returns whether it is there no longer. */
static int move_aside(int directory, const char *name)
{
	char gone[NAME_MAX + 1];

	snprintf(gone, sizeof(gone), GONE "%.200s-%ld", name, (long)getpid());
	return renameat(directory, name, directory, gone) == 0;
}

/* Makes the temporary directory of a job. One that is there is of an earlier run, unless sbcast has made it just now. */
static void make_directory(const char *job, uid_t uid, gid_t gid)
{
	int jobs = mkdir(JOBS, 0755) == 0 || errno == EEXIST ? open_own(JOBS) : -1;
	char job_mount[PATH_MAX];

	if (jobs < 0) {
		perror(JOBS);
		return;
	}
	snprintf(job_mount, sizeof(job_mount), JOB_MOUNTS "/%s", job);
	if (mkdirat(jobs, job, 0700) != 0 && errno == EEXIST) {
		if (access(job_mount, F_OK) == 0)
			return;
		if (move_aside(jobs, job))
			remove_gone();
		mkdirat(jobs, job, 0700);
	}
	if (fchownat(jobs, job, uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
		perror(JOBS);
}

/* Moves aside what PMIx has left of the steps of a job (pmixp_info.c in Slurm). Returns whether there was anything. */
static int retire_steps(const char *job)
{
	int spool = open_own(SPOOL), found = 0;
	DIR *directory = spool < 0 ? NULL : fdopendir(dup(spool));
	struct dirent *entry;
	size_t length = strlen(job);

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		const char *name = entry->d_name, *of = NULL;

		if (strncmp(name, "pmix.", 5) == 0)
			of = name + 5;
		else if (strncmp(name, "spmix_appdir_", 13) == 0 && (of = strchr(name + 13, '_')) != NULL)
			of++;
		if (of != NULL && strncmp(of, job, length) == 0 && of[length] == '.')
			found |= move_aside(spool, name);
	}
	return found;
}

/* Removes what the job had for itself: at once if it is empty, as mostly. */
static void end_directories(const char *job)
{
	int jobs = open_own(JOBS), found = retire_steps(job);

	if (jobs >= 0 && unlinkat(jobs, job, AT_REMOVEDIR) != 0 && errno != ENOENT)
		found |= move_aside(jobs, job);
	if (found)
		remove_gone();
}

/* Asks the helper for the end of a job's mount. Returns whether that is to come later. */
static int comes_later(const char *job, const char *when)
{
	char request[64], answer[HELPER_LONGEST];
	int connection = helper_connect(), answered, reason;

	if (connection < 0)
		return 0;
	snprintf(request, sizeof(request), "end %s%s", job, when);
	answered = helper_ask(connection, request, answer, NULL);
	reason = errno;
	close(connection);
	/* It has ended meanwhile, and another takes its place: else what lies in the job's /dev/shm would stay. */
	if (answered != 0 && (reason == ECONNRESET || reason == EPIPE))
		return *when == '\0';
	return answered == 0 && strcmp(answer, "later") == 0;
}

/* Has the job's mount taken away when the last slurmstepd of the job is done: Slurm's epilog may begin a moment before. */
static void end_job_mount(const char *job)
{
	long waited = 0, pause = SHORTEST_MS;

	while (comes_later(job, waited < MOST_MS ? "" : " now")) {
		const struct timespec time = { .tv_nsec = pause * 1000000 };

		nanosleep(&time, NULL);
		waited += pause;
		pause = pause * 2 < LONGEST_MS ? pause * 2 : LONGEST_MS;
	}
}

int main(int argc, char **argv)
{
	const char *name = argc > 0 ? argv[0] : "", *job = getenv("SLURM_JOB_ID");
	long long uid = number(getenv("SLURM_JOB_UID")), gid = number(getenv("SLURM_JOB_GID"));
	int is_prolog = strstr(name, "prolog") != NULL;

	if (number(job) > 0 && is_prolog && uid >= 0 && gid >= 0)
		make_directory(job, (uid_t)uid, (gid_t)gid);
	else if (number(job) > 0 && !is_prolog) {
		end_job_mount(job);
		end_directories(job);
	}
	if (access(WITH_GPUS, F_OK) == 0) {
		execv(GPUS, (char *const[]){ "health-gpus", is_prolog ? "prolog" : "epilog", NULL });
		perror(GPUS);
	}
	return 0;
}
