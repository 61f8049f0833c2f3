/*
 * image.c - see image.h.
 */
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "warden.h"

static char directory[PATH_MAX]; /* without links; empty until it is found */

const char *image_problem(const char *argument)
{
	if (argument == NULL || argument[0] != '/')
		return "it takes the absolute path of a directory (the shell does not expand ~ after =)";
	if (strlen(argument) >= WARDEN_LONGEST / 2)
		return "the path is too long";
	return NULL;
}

/* What images built without a shell in them may lack; the warden shows them all (images/worker/image_view.py). */
static const char *const places[] = {
	"proc", "sys", "dev", "tmp", "home", "run", "run/munge", "run/slurm", "run/slurmstack", "run/slurmstack/gpu",
	"var", "var/spool", "var/spool/slurmd",
};

/* Those that cannot be made, in an image of somebody else's, are missed by the warden where they matter. */
static void make_places(int image)
{
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		(void)mkdirat(image, places[i], 0755);
}

int image_show(int warden, const char *argument, char message[IMAGE_MESSAGE_SIZE])
{
	char request[PATH_MAX + 16], answer[WARDEN_LONGEST];
	int image;

	if (realpath(argument, directory) == NULL) {
		snprintf(message, IMAGE_MESSAGE_SIZE, "%.200s: %s", argument, strerror(errno));
		return -1;
	}
	image = open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (image < 0 || faccessat(image, ".", X_OK, AT_EACCESS) != 0) {
		snprintf(message, IMAGE_MESSAGE_SIZE, "%.200s: %s", directory, strerror(errno));
		return -1;
	}
	make_places(image);
	close(image);
	snprintf(request, sizeof(request), "image %s", directory);
	if (warden_ask(warden, request, answer) == 0)
		return 0;
	snprintf(message, IMAGE_MESSAGE_SIZE, "%.200s: %.200s", directory, answer[0] != '\0' ? answer : strerror(errno));
	return -1;
}

#define BIT(capability) (UINT64_C(1) << (capability))

/* Narrows what the calling thread may have to `kept`, and what it has to `used`. Returns 0, or -1 with errno. */
static int narrow(uint64_t kept, uint64_t used)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	size_t i;

	if (syscall(SYS_capget, &header, data) != 0)
		return -1;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		data[i].permitted &= (uint32_t)(kept >> (32 * i));
		data[i].effective = data[i].permitted & (uint32_t)(used >> (32 * i));
		data[i].inheritable = 0;
	}
	return (int)syscall(SYS_capset, &header, data);
}

static const uint64_t to_become_user = BIT(CAP_SETUID) | BIT(CAP_SETGID);
static const uint64_t to_enter = BIT(CAP_SYS_CHROOT);

int image_keep_way(void)
{
	if (narrow(to_become_user | to_enter, to_become_user) != 0)
		return -1;
	return prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
}

static int failed(char message[IMAGE_MESSAGE_SIZE], const char *what)
{
	snprintf(message, IMAGE_MESSAGE_SIZE, "%.200s: %s: %s", directory, what, strerror(errno));
	(void)narrow(0, 0);
	return -1;
}

int image_enter(char message[IMAGE_MESSAGE_SIZE])
{
	char before[PATH_MAX];

	if (getcwd(before, sizeof(before)) == NULL)
		snprintf(before, sizeof(before), "/");
	/* Whoever may write the image's files could have root run them. */
	if (geteuid() == 0 || getuid() == 0) {
		errno = EPERM;
		return failed(message, "not for root");
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return failed(message, "PR_SET_NO_NEW_PRIVS");
	if (narrow(to_enter, to_enter) != 0)
		return failed(message, "capset");
	if (directory[0] == '\0' || chroot(directory) != 0)
		return failed(message, "chroot");
	if (narrow(0, 0) != 0 || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0)
		return failed(message, "capset");
	if (chdir("/") != 0)
		return failed(message, "chdir");
	(void)!chdir(before);
	return 0;
}
