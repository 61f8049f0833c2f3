/*
 * warden.c - see warden.h.
 */
#include "warden.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_SECONDS = 60 };

int warden_connect(void)
{
	const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = WARDEN_SOCKET };
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

int warden_ask(int connection, const char *request, char answer[WARDEN_LONGEST])
{
	ssize_t length;

	answer[0] = '\0';
	do
		length = send(connection, request, strlen(request), MSG_NOSIGNAL);
	while (length < 0 && errno == EINTR);
	if (length < 0)
		return -1;
	do
		length = recv(connection, answer, WARDEN_LONGEST - 1, 0);
	while (length < 0 && errno == EINTR);
	if (length < 0)
		return -1;
	answer[length] = '\0';
	if (strncmp(answer, "ok", 2) == 0) {
		memmove(answer, answer + 2 + (answer[2] == ' '), strlen(answer + 2 + (answer[2] == ' ')) + 1);
		return 0;
	}
	errno = length == 0 ? ECONNRESET : EPROTO;
	return -1;
}
