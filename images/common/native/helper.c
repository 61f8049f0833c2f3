/*
 * helper.c - see helper.h.
 */
#include "helper.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_SECONDS = 300 }; /* the kernel may free hundreds of GiB of a job's /dev/shm meanwhile */

int helper_connect(void)
{
	const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = HELPER_SOCKET };
	const struct timeval patience = { .tv_sec = MOST_SECONDS };
	int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int number;

	if (connection < 0)
		return -1;
	if (setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0
	    && setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0
	    && connect(connection, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return connection;
	number = errno;
	close(connection);
	errno = number;
	return -1;
}

int helper_ask(int connection, const char *request, char answer[HELPER_LONGEST], int *files)
{
	char room[CMSG_SPACE(sizeof(int) * HELPER_FILES)];
	struct iovec text = { answer, HELPER_LONGEST - 1 };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1 };
	struct cmsghdr *header;
	ssize_t length;
	size_t count = 0;

	answer[0] = '\0';
	do
		length = send(connection, request, strlen(request), MSG_NOSIGNAL);
	while (length < 0 && errno == EINTR);
	if (length < 0)
		return -1;
	do {
		message.msg_control = files != NULL ? room : NULL;
		message.msg_controllen = files != NULL ? sizeof(room) : 0;
		length = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
	} while (length < 0 && errno == EINTR);
	if (length < 0)
		return -1;
	answer[length] = '\0';
	header = files != NULL ? CMSG_FIRSTHDR(&message) : NULL;
	if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
		count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(files, CMSG_DATA(header), count * sizeof(int));
	}
	if (strncmp(answer, "ok", 2) == 0 && count == (files != NULL ? HELPER_FILES : 0)) {
		memmove(answer, answer + 2 + (answer[2] == ' '), strlen(answer + 2 + (answer[2] == ' ')) + 1);
		return 0;
	}
	while (count > 0)
		close(files[--count]);
	errno = length == 0 ? ECONNRESET : EPROTO;
	return -1;
}
