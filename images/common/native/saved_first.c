/*
 * saved_first.c - for LD_PRELOAD in slurmctld: what it has said is on the disk.
 *
 * slurmctld answers a submission, and a thread of its own saves the queue up to five seconds later. Killed between the
 * two it forgets an accepted job; it sends a job to its node and forgets that, and the job runs twice; it takes a job's
 * end, slurmd forgets the job, and it runs again. So these messages wait for a save that has begun after what they tell:
 * answers to submissions, allocations, ends and cancellations of jobs, and the launch of a batch job. One save serves
 * all that wait. What could not be saved, as on a volume that is full, is not said: the connection ends.
 *
 * The same for nodes, whose records it saves as late: one that has registered, and is forgotten or known by the address
 * of the pod before, is never asked again, and does not register by itself once it was answered. So answers to a
 * registration wait, and those to a change of a node, as are drains, and to its removal.
 *
 * Looked up in 24.11 and 26.05: none of these is sent with a lock of slurmctld held, unless SlurmctldParameters has
 * enable_rpc_queue (config/rules refuses it).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	RESPONSE_RESOURCE_ALLOCATION = 4002,
	RESPONSE_SUBMIT_BATCH_JOB = 4004,
	REQUEST_BATCH_JOB_LAUNCH = 4005,
	RESPONSE_HET_JOB_ALLOCATION = 4026,
	REQUEST_CANCEL_JOB_STEP = 5005,
	REQUEST_COMPLETE_JOB_ALLOCATION = 5017,
	REQUEST_COMPLETE_BATCH_SCRIPT = 5018,
	REQUEST_KILL_JOB = 5032,
	RESPONSE_KILL_JOBS = 5042,
	REQUEST_NODE_REGISTRATION_STATUS = 1001,
	MESSAGE_NODE_REGISTRATION_STATUS = 1002,
	REQUEST_UPDATE_NODE = 3002,
	REQUEST_DELETE_NODE = 3014,
	FIRST_LOOK_S = 30, /* BatchStartTimeout and ten seconds, which Slurm gives a job to appear, with the default of 10 */
	SECOND_LOOK_S = 60, /* after that, for one that is longer */
	PATIENCE_S = 20, /* MessageTimeout is 10 s or more: who asked has given up, or asks again */
	AGAIN_US = 100000,
	MOST_OF_NODES = 2, /* answers that wait: each has one of slurmctld's workers, of which a machine may have four */
};

/* The beginning of slurm_msg_t of slurm_protocol_defs.h, which is in no package. */
typedef struct {
	struct sockaddr_storage address;
	void *auth_cred;
	int auth_index;
	uid_t auth_uid;
	gid_t auth_gid;
	bool auth_ids_set;
	uid_t restrict_uid;
	bool restrict_uid_set;
	uint32_t body_offset;
	void *buffer;
	void *persistent;
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0)
	int conn_fd;
#endif
	void *conmgr;
	void *data;
	uint16_t flags;
	uint8_t hash_index;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
	char *tls_cert;
	void *connection;
	bool is_mtls;
#endif
	uint16_t msg_type;
} message_t;

typedef int (*respond_t)(message_t *, int, void *);
typedef int (*answer_t)(message_t *, int);
typedef void *(*to_nodes_t)(const char *, message_t *, int);
typedef void *(*to_tree_t)(void *, message_t *, int);
typedef void *(*to_address_t)(message_t *, char *, int);
typedef int (*save_t)(const char *, void *, uint32_t *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked_one = PTHREAD_COND_INITIALIZER, saved_one = PTHREAD_COND_INITIALIZER;
static unsigned long asked, saved; /* numbers of requests for a save */
static bool has_saver, with_nodes; /* the latter: the next save is one of nodes as well */
static int of_nodes; /* answers about nodes that wait */
static __thread bool is_saver, has_waited;

/* Whether the names of what was saved are on the disk as well. */
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
	int (*dump_nodes)(void) = (int (*)(void)) dlsym(RTLD_DEFAULT, "dump_all_node_state");
	bool nodes = false;

	is_saver = true;
	pthread_mutex_lock(&mutex);
	for (;;) {
		unsigned long up_to;
		bool done;

		while (saved == asked)
			pthread_cond_wait(&asked_one, &mutex);
		up_to = asked;
		nodes = nodes || with_nodes;
		with_nodes = false;
		pthread_mutex_unlock(&mutex);
		done = dump && dump_nodes && !dump() && (!nodes || !dump_nodes()) && is_named();
		if (!done)
			usleep(AGAIN_US);
		else
			nodes = false;
		pthread_mutex_lock(&mutex);
		if (done) {
			saved = up_to;
			pthread_cond_broadcast(&saved_one);
		}
	}
	return nothing;
}

/* slurmctld_lock_t of locks.h; 24.11 has not the last one, and reads the others from the same places. */
typedef struct {
	int config, job, node, partition, federation, selected_nodes;
} locks_t;

/*
 * A job may have been saved as running and not have reached its node when the slurmctld before this one ended. Slurm
 * notices when the node registers and does not have it, and requeues it; but a node registers by itself only every twenty
 * pings, a quarter of an hour.
 */
static void *look_after_launches(void *nothing)
{
	void (*lock)(locks_t) = (void (*)(locks_t)) dlsym(RTLD_DEFAULT, "lock_slurmctld");
	void (*unlock)(locks_t) = (void (*)(locks_t)) dlsym(RTLD_DEFAULT, "unlock_slurmctld");
	void (*begin)(void) = (void (*)(void)) dlsym(RTLD_DEFAULT, "ping_begin"); /* whose end the answer is */
	void (*tell_nodes)(int) = (void (*)(int)) dlsym(RTLD_DEFAULT, "msg_to_slurmd");
	static const int pauses[] = { FIRST_LOOK_S, SECOND_LOOK_S };
	const locks_t nodes = { .config = 1, .node = 1 }; /* to read */
	size_t i;

	for (i = 0; lock && unlock && begin && tell_nodes && i < sizeof(pauses) / sizeof(*pauses); i++) {
		sleep((unsigned) pauses[i]);
		begin();
		lock(nodes);
		tell_nodes(REQUEST_NODE_REGISTRATION_STATUS);
		unlock(nodes);
	}
	return nothing;
}

/* Wait for a save that begins from now on, of the queue, and of nodes if asked. False where there was none in time. */
static bool is_saved(bool nodes)
{
	struct timespec until;
	unsigned long mine;
	pthread_t thread;
	bool found;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&mutex);
	if (!has_saver)
		has_saver = !pthread_create(&thread, NULL, save_for_ever, NULL) && !pthread_detach(thread)
			    && !pthread_create(&thread, NULL, look_after_launches, NULL) && !pthread_detach(thread);
	mine = ++asked;
	with_nodes = with_nodes || nodes;
	pthread_cond_signal(&asked_one);
	while (saved < mine && pthread_cond_timedwait(&saved_one, &mutex, &until) != ETIMEDOUT)
		;
	found = saved >= mine;
	pthread_mutex_unlock(&mutex);
	return found;
}

/*
 * The same for an answer about a node. Where many register at once, as after a restart, most only have the save begin:
 * their records are known already, and who waited with all workers would answer nobody.
 */
static bool is_node_saved(void)
{
	bool waits, found = true;

	pthread_mutex_lock(&mutex);
	waits = of_nodes < MOST_OF_NODES;
	if (waits) {
		of_nodes++;
	} else if (has_saver) {
		++asked;
		with_nodes = true;
		pthread_cond_signal(&asked_one);
	}
	pthread_mutex_unlock(&mutex);
	if (waits) {
		found = is_saved(true);
		pthread_mutex_lock(&mutex);
		of_nodes--;
		pthread_mutex_unlock(&mutex);
	}
	return found;
}

/*
 * All saves of the queue and of nodes are the saver's: of two that overlap, the one that has seen less could be written last. Who
 * asked gets an error for it, which nobody reads; with success slurmctld would note a time that is not the file's.
 */
int save_buf_to_state(const char *file, void *buffer, uint32_t *high)
{
	save_t next = (save_t) dlsym(RTLD_NEXT, "save_buf_to_state");

	bool nodes = !strcmp(file, "node_state");

	if (is_saver || (!nodes && strcmp(file, "job_state")))
		return next(file, buffer, high);
	(void) is_saved(nodes);
	return SLURM_ERROR;
}

int send_msg_response(message_t *source, int type, void *data)
{
	respond_t next = (respond_t) dlsym(RTLD_NEXT, "send_msg_response");

	if ((type == RESPONSE_SUBMIT_BATCH_JOB || type == RESPONSE_RESOURCE_ALLOCATION
	     || type == RESPONSE_HET_JOB_ALLOCATION || type == RESPONSE_KILL_JOBS) && !is_saved(false))
		return SLURM_ERROR;
	if (source->msg_type == MESSAGE_NODE_REGISTRATION_STATUS && !has_waited && !is_node_saved())
		return SLURM_ERROR;
	return next(source, type, data);
}

int slurm_send_rc_msg(message_t *request, int code)
{
	answer_t next = (answer_t) dlsym(RTLD_NEXT, "slurm_send_rc_msg");
	int type = request->msg_type;

	if ((type == REQUEST_COMPLETE_BATCH_SCRIPT || type == REQUEST_COMPLETE_JOB_ALLOCATION || type == REQUEST_KILL_JOB
	     || type == REQUEST_CANCEL_JOB_STEP) && !is_saved(false))
		return SLURM_ERROR;
	if (type == MESSAGE_NODE_REGISTRATION_STATUS || type == REQUEST_UPDATE_NODE || type == REQUEST_DELETE_NODE) {
		int done;

		if (!is_node_saved())
			return SLURM_ERROR;
		has_waited = true; /* it goes on by send_msg_response */
		done = next(request, code);
		has_waited = false;
		return done;
	}
	return next(request, code);
}

/* Without an answer from the node slurmctld asks the node again, or another slurmctld does. */
static bool may_go(const message_t *message)
{
	return message->msg_type != REQUEST_BATCH_JOB_LAUNCH || is_saved(false);
}

void *slurm_send_recv_msgs(const char *nodes, message_t *message, int timeout)
{
	to_nodes_t next = (to_nodes_t) dlsym(RTLD_NEXT, "slurm_send_recv_msgs");

	return may_go(message) ? next(nodes, message, timeout) : NULL;
}

void *start_msg_tree(void *nodes, message_t *message, int timeout)
{
	to_tree_t next = (to_tree_t) dlsym(RTLD_NEXT, "start_msg_tree");

	return may_go(message) ? next(nodes, message, timeout) : NULL;
}

void *slurm_send_addr_recv_msgs(message_t *message, char *name, int timeout)
{
	to_address_t next = (to_address_t) dlsym(RTLD_NEXT, "slurm_send_addr_recv_msgs");

	return may_go(message) ? next(message, name, timeout) : NULL;
}
