/*
 * paths.c - a part of guarded.so: the paths that slurmd and slurmstepd go for a user, and those to the cgroups.
 *
 * chdir, open, as a user: slurmd and slurmstepd have descriptors of what is outside of the jail, which a
 *   process may always reach by /proc/self/fd: `sbatch --chdir=/proc/self/fd/15/../../..` led out of the jail, and so did
 *   `sbcast`. No path of a user's goes by such a link (RESOLVE_NO_MAGICLINKS).
 * open, as a user, in slurmd: what `sbcast` writes into memory (/dev/shm) is slurmd's own memory to the kernel, and would
 *   end slurmd with all jobs of the node.
 * chroot, mkdir, rmdir, open, as root: the jail shows the cgroups of the node, and nobody in it may change them, not even
 *   root. slurmstepd makes, limits and removes those of its job when it is in there. It takes the way from before with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CGROUPS "/sys/fs/cgroup/"

static int cgroups = -1; /* where they can be written */

int chroot(const char *path)
{
	if (cgroups < 0)
		cgroups = (int)syscall(SYS_openat, AT_FDCWD, CGROUPS, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return (int)syscall(SYS_chroot, path);
}

/* From where a path is to be looked up, which loses its beginning then. */
static int base_of(const char **path)
{
	if (cgroups < 0 || strncmp(*path, CGROUPS, sizeof(CGROUPS) - 1) != 0)
		return AT_FDCWD;
	*path += sizeof(CGROUPS) - 1;
	return cgroups;
}

/* Opens a path that a user has chosen. ELOOP: it goes by a descriptor of this process's. */
static int open_for_user(const char *path, int flags, mode_t mode)
{
	struct open_how how = { .flags = (unsigned)flags, .mode = mode, .resolve = RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

static void close_quietly(int fd)
{
	int number = errno;

	close(fd);
	errno = number;
}

int chdir(const char *path)
{
	int fd, result;

	if (geteuid() == 0)
		return (int)syscall(SYS_chdir, path);
	fd = open_for_user(path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	result = (int)syscall(SYS_fchdir, fd);
	close_quietly(fd);
	return result;
}

int mkdir(const char *path, mode_t mode)
{
	int base = geteuid() == 0 ? base_of(&path) : AT_FDCWD;

	return (int)syscall(SYS_mkdirat, base, path, mode);
}

int rmdir(const char *path)
{
	int base = base_of(&path);

	return (int)syscall(SYS_unlinkat, base, path, AT_REMOVEDIR);
}

/* Whether it is a file of /dev/shm, and so would lie in slurmd's own memory. */
static int fills_slurmd(int fd, int flags)
{
	struct stat file, memory;

	return (flags & O_ACCMODE) != O_RDONLY && strcmp(program_invocation_short_name, "slurmd") == 0
	       && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && stat("/dev/shm", &memory) == 0
	       && memory.st_dev == file.st_dev;
}

static int open_file_of_user(const char *path, int flags, mode_t mode)
{
	int fd = open_for_user(path, flags, mode);

	if (fd < 0 || !fills_slurmd(fd, flags))
		return fd;
	close(fd);
	if ((flags & O_EXCL) != 0)
		(void)unlink(path);
	errno = EOPNOTSUPP;
	return -1;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list rest;
	int base;

	if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
		va_start(rest, flags);
		mode = va_arg(rest, mode_t) & 07777; /* openat2 refuses what openat ignores */
		va_end(rest);
	}
	if (geteuid() != 0)
		return open_file_of_user(path, flags, mode);
	base = base_of(&path);
	return (int)syscall(SYS_openat, base, path, flags, mode);
}
