/*
 * capabilities.c - see capabilities.h.
 */
#include "capabilities.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))

/*
 * What installing packages and administering the jail's files takes. Not here, of what containers have by default:
 * SYS_CHROOT (leads out of the jail), MKNOD (devices of the machine), NET_RAW (others' packets), SETPCAP, and
 * NET_BIND_SERVICE (file servers that trust a low port take it for a machine's own root).
 */
static const uint64_t of_users = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID)
	| BIT(CAP_KILL) | BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETFCAP)
	| BIT(CAP_AUDIT_WRITE); /* sudo complains at each start without it */

/* Narrows what the calling thread itself has. Root in the jail would inherit what its bounding set lacks. */
static int narrow(uint64_t kept)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	size_t i;

	if (syscall(SYS_capget, &header, data) != 0)
		return -1;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(kept >> (32 * i));
		data[i].effective &= (uint32_t)(kept >> (32 * i));
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) == 0 ? 0 : -1;
}

int bound_for_users(void)
{
	int capability, set;

	/* The kernel says EINVAL for the first one that it does not know. */
	for (capability = 0; (set = prctl(PR_CAPBSET_READ, capability, 0, 0, 0)) >= 0; capability++)
		if (set == 1 && !(of_users & BIT(capability)) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
			return -1;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		return -1;
	return narrow(UINT64_MAX);
}

static const uint64_t in_jail = of_users | BIT(CAP_SETPCAP);

static void narrow_thread(int number)
{
	int before = errno;

	(void)number;
	if (bound_for_users() == 0)
		(void)narrow(in_jail); /* whether it worked is looked up */
	errno = before;
}

/* 1: a thread of this process has, or could get by starting a program, more than it may; 0: not; -1: it has gone. */
static int has_more(const char *thread)
{
	char path[64], text[4096], *permitted, *bounding;
	ssize_t length = -1;
	int file;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", thread);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		length = read(file, text, sizeof(text) - 1);
		close(file);
	}
	if (length <= 0)
		return -1;
	text[length] = '\0';
	permitted = strstr(text, "\nCapPrm:");
	bounding = strstr(text, "\nCapBnd:");
	return permitted == NULL || bounding == NULL || (strtoull(permitted + 8, NULL, 16) & ~in_jail) != 0
	       || (strtoull(bounding + 8, NULL, 16) & ~of_users) != 0;
}

enum { ROUNDS = 2000 }; /* of a millisecond */

/*
 * Capabilities are each thread's own, and slurmstepd has a dozen threads by now. So each is asked by a signal, as the C
 * library does it for setuid(2), until no thread is found that has more: one may just have been started by another.
 */
int stay_in_jail(void)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	const struct sigaction action = { .sa_handler = narrow_thread, .sa_flags = SA_RESTART };
	const int number = SIGRTMAX - 2; /* the handler stays: a signal may be on its way still */
	int round, left = 1;

	if (sigaction(number, &action, NULL) != 0)
		return -1;
	narrow_thread(0);
	for (round = 0; left && round < ROUNDS; round++) {
		DIR *threads = opendir("/proc/self/task");
		struct dirent *entry;

		if (threads == NULL)
			return -1;
		left = 0;
		while ((entry = readdir(threads)) != NULL) {
			int more = entry->d_name[0] == '.' ? 0 : has_more(entry->d_name);

			if (more == 0)
				continue;
			left = 1; /* one that has gone may have started another, which is in no list yet */
			if (more < 0)
				continue;
			(void)syscall(SYS_tgkill, getpid(), atoi(entry->d_name), number);
		}
		closedir(threads);
		if (left)
			(void)nanosleep(&pause, NULL);
	}
	return left ? -1 : 0;
}
