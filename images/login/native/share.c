#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "share.h"

static int put(int group, const char *file, const char *value)
{
	int fd = openat(group, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW), failed;

	if (fd < 0)
		return -1;
	failed = write(fd, value, strlen(value)) != (ssize_t)strlen(value);
	close(fd);
	return failed ? -1 : 0;
}

/* The limits first: who is in already has them, too. */
static int limit_and_join(FILE *shares, int group)
{
	char file[64], value[64];

	while (fscanf(shares, "%63s %63[^\n]", file, value) == 2)
		if (put(group, file, value) != 0)
			return -1;
	return put(group, "cgroup.procs", "0");
}

int join_share(const char *shares, const char *groups, uid_t user)
{
	FILE *file = fopen(shares, "re");
	char path[256];
	int group, result = -1, saved;

	if (file == NULL)
		return errno == ENOENT ? 0 : -1;
	snprintf(path, sizeof(path), "%s/%u", groups, (unsigned int)user);
	if (mkdir(path, 0755) == 0 || errno == EEXIST) {
		group = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (group >= 0) {
			result = limit_and_join(file, group);
			saved = errno;
			close(group);
			errno = saved;
		}
	}
	saved = errno;
	fclose(file);
	errno = saved;
	return result;
}
