/*
 * devices.c - part of guarded.so: slurmstepd has the helper load its programs that say which devices a job may open.
 *
 * slurmstepd writes them for the kernel and may not load them any more when it is in the jail (images/worker/devices.py).
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int slurmstack_helper = -1; /* the step's connection, from the plugin that took the step into its mount */

enum { LONGEST = 4096 * sizeof(struct bpf_insn) };

/* Keeps a program in a file of its own, whose descriptor stands for the one that the kernel would give. */
static int keep(const union bpf_attr *attributes)
{
	size_t size = attributes->insn_cnt * sizeof(struct bpf_insn);
	int file;

	if (size > LONGEST) {
		errno = E2BIG;
		return -1;
	}
	file = memfd_create("devices", MFD_CLOEXEC);
	if (file >= 0 && write(file, (const void *)(uintptr_t)attributes->insns, size) != (ssize_t)size) {
		close(file);
		errno = ENOMEM;
		return -1;
	}
	return file;
}

/* Sends a program and the cgroup that it is for. Returns 0, or -1 with errno. */
static int send_program(const union bpf_attr *attributes)
{
	static const char request[] = "devices ";
	static char program[LONGEST];
	char answer[256], room[CMSG_SPACE(sizeof(int))] = { 0 };
	int cgroup = (int)attributes->target_fd;
	ssize_t size = pread((int)attributes->attach_bpf_fd, program, sizeof(program), 0);
	struct iovec parts[] = { { (void *)request, sizeof(request) - 1 }, { program, size < 0 ? 0 : (size_t)size } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &cgroup, sizeof(cgroup));
	if (size < 0 || sendmsg(slurmstack_helper, &message, MSG_NOSIGNAL) < 0)
		return -1;
	size = recv(slurmstack_helper, answer, sizeof(answer), 0);
	if (size == 2 && memcmp(answer, "ok", 2) == 0)
		return 0;
	errno = EPERM;
	return -1;
}

long syscall(long number, ...)
{
	static long (*next)(long, ...);
	long argument[6];
	va_list rest;
	int i;

	va_start(rest, number);
	for (i = 0; i < 6; i++)
		argument[i] = va_arg(rest, long);
	va_end(rest);
	if (number == SYS_bpf && slurmstack_helper >= 0) {
		const union bpf_attr *attributes = (const void *)argument[1];

		if (argument[0] == BPF_PROG_LOAD && attributes->prog_type == BPF_PROG_TYPE_CGROUP_DEVICE)
			return keep(attributes);
		if (argument[0] == BPF_PROG_ATTACH && attributes->attach_type == BPF_CGROUP_DEVICE)
			return send_program(attributes);
	}
	if (next == NULL)
		next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
