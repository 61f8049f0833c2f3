/*
 * namespaces.c - see namespaces.h.
 *
 * The warden has them made (images/worker/namespaces.py). A user may enter a user namespace that is his own, without any
 * capability, and from there what it owns: so the task does it as the user, after everything that root does for it.
 */
#include "namespaces.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "warden.h"

enum { USER, MOUNTS };

int namespaces_wanted;

static int files[WARDEN_FILES] = { -1, -1 };
static char refusal[512] = "this worker has no jail, and so no namespaces for jobs";

int namespaces_option(int value, const char *argument, int remote)
{
	(void)value;
	(void)argument;
	(void)remote;
	namespaces_wanted = 1;
	return 0;
}

void namespaces_ask(unsigned job, uid_t uid, gid_t gid)
{
	char request[64], answer[WARDEN_LONGEST] = "";
	int connection = warden_connect();

	snprintf(request, sizeof(request), "namespaces %u %u %u", job, uid, gid);
	if (connection >= 0 && warden_ask_files(connection, request, answer, files) == 0)
		refusal[0] = '\0';
	else
		snprintf(refusal, sizeof(refusal), "%.500s", answer[0] != '\0' ? answer : strerror(errno));
	if (connection >= 0)
		close(connection);
}

static const char *failed(const char *what)
{
	snprintf(refusal, sizeof(refusal), "%s: %s", what, strerror(errno));
	return refusal;
}

const char *namespaces_enter(void)
{
	char directory[PATH_MAX];

	if (refusal[0] != '\0')
		return refusal;
	if (getcwd(directory, sizeof(directory)) == NULL)
		strcpy(directory, "/");
	if (setns(files[USER], CLONE_NEWUSER) != 0)
		return failed("cannot enter the user namespace");
	if (setns(files[MOUNTS], CLONE_NEWNS) != 0)
		return failed("cannot enter the mount namespace");
	if (chdir(directory) != 0)
		return failed("cannot go back to the task's directory");
	close(files[USER]);
	close(files[MOUNTS]);
	return NULL;
}
