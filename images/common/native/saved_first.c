/*
 * saved_first.c - for LD_PRELOAD in slurmctld: a job that it has accepted is on the disk.
 *
 * slurmctld answers a submission, and a thread of its own saves the queue up to five seconds later. Killed between the
 * two it forgets an accepted job. So answers to submissions and allocations wait for a save that has begun after what
 * they tell. One save serves all that wait. What could not be saved, as on a volume that is full, is not said: the
 * connection ends.
 *
 * What jobs do afterwards is not waited for: each start and each end would cost a save, and Slurm asks the nodes.
 *
 * Looked up in 24.11 and 26.05: none of these is sent with a lock of slurmctld held, unless SlurmctldParameters has
 * enable_rpc_queue (config/rules refuses it).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	RESPONSE_RESOURCE_ALLOCATION = 4002,
	RESPONSE_SUBMIT_BATCH_JOB = 4004,
	RESPONSE_HET_JOB_ALLOCATION = 4026,
	FAILED = -1, /* SLURM_ERROR */
	PATIENCE_S = 20, /* MessageTimeout is 10 s or more: who asked has given up, or asks again */
	AGAIN_US = 100000,
};

typedef int (*respond_t)(void *, int, void *);
typedef int (*save_t)(const char *, void *, uint32_t *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked_one = PTHREAD_COND_INITIALIZER, saved_one = PTHREAD_COND_INITIALIZER;
static unsigned long asked, saved; /* numbers of requests for a save */
static bool has_saver;
static __thread bool is_saver;

/* Whether the name of what was saved is on the disk as well. */
static bool is_named(void)
{
	const char *path = getenv("SLURMSTACK_STATE");
	int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	bool found = fd >= 0 && !fsync(fd);

	if (fd >= 0) {
		found = found && !faccessat(fd, "job_state", F_OK, 0);
		close(fd);
	}
	return found;
}

static void *save_for_ever(void *nothing)
{
	int (*dump)(void) = (int (*)(void)) dlsym(RTLD_DEFAULT, "dump_all_job_state");

	is_saver = true;
	pthread_mutex_lock(&mutex);
	for (;;) {
		unsigned long up_to;
		bool done;

		while (saved == asked)
			pthread_cond_wait(&asked_one, &mutex);
		up_to = asked;
		pthread_mutex_unlock(&mutex);
		done = dump && !dump() && is_named();
		if (!done)
			usleep(AGAIN_US);
		pthread_mutex_lock(&mutex);
		if (done) {
			saved = up_to;
			pthread_cond_broadcast(&saved_one);
		}
	}
	return nothing;
}

/* Wait for a save of the queue that begins from now on. False where there was none in time. */
static bool is_saved(void)
{
	struct timespec until;
	unsigned long mine;
	pthread_t thread;
	bool found;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&mutex);
	if (!has_saver)
		has_saver = !pthread_create(&thread, NULL, save_for_ever, NULL) && !pthread_detach(thread);
	mine = ++asked;
	pthread_cond_signal(&asked_one);
	while (saved < mine && pthread_cond_timedwait(&saved_one, &mutex, &until) != ETIMEDOUT)
		;
	found = saved >= mine;
	pthread_mutex_unlock(&mutex);
	return found;
}

/*
 * All saves of the queue are the saver's: of two that overlap, the one that has seen less could be written last. Who
 * asked gets an error for it, which nobody reads; with success slurmctld would note a time that is not the file's.
 */
int save_buf_to_state(const char *file, void *buffer, uint32_t *high)
{
	save_t next = (save_t) dlsym(RTLD_NEXT, "save_buf_to_state");

	if (is_saver || strcmp(file, "job_state"))
		return next(file, buffer, high);
	(void) is_saved();
	return FAILED;
}

int send_msg_response(void *source, int type, void *data)
{
	respond_t next = (respond_t) dlsym(RTLD_NEXT, "send_msg_response");

	if ((type == RESPONSE_SUBMIT_BATCH_JOB || type == RESPONSE_RESOURCE_ALLOCATION || type == RESPONSE_HET_JOB_ALLOCATION)
	    && !is_saved())
		return FAILED;
	return next(source, type, data);
}
