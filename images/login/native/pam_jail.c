/*
 * pam_jail.c - PAM module of the login pod's sshd.
 *
 * Account: refuses who is locked (`passwd --lock`), as sshd itself does where it uses no PAM.
 *
 * Session: it goes into its user's cgroup, where the login node has some (images/login/sshd.py). Where that fails, the
 * user is let in all the same, as on machines without.
 * What a user starts, and what sudo makes of it, can be root inside the jail and no more. sshd needs CAP_SYS_CHROOT to
 * lead users into the jail; it opens the session before, and chroot() needs nothing of the bounding set. sshd ends a
 * session that could not be opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <shadow.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "capabilities.h"

#define SHARES "/run/slurmstack/shares"
#define GROUPS "/sys/fs/cgroup/users"

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

/*
 * Takes this process, and so all that it starts, into the user's cgroup, which is made where there is none. SHARES has a
 * line for each file of that cgroup: "memory.max 4294967296". Where there is no such file, the machine lets nothing be
 * divided. Returns 0, or -1 with errno: the session has no limit then but the login node's own.
 */
static int join_share(uid_t user)
{
	FILE *file = fopen(SHARES, "re");
	char path[256];
	int group, result = -1, saved;

	if (file == NULL)
		return errno == ENOENT ? 0 : -1;
	snprintf(path, sizeof(path), GROUPS "/%u", (unsigned int)user);
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

int pam_sm_acct_mgmt(pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	const char *user = NULL;
	const struct spwd *shadow;

	(void)flags;
	(void)argc;
	(void)argv;
	if (pam_get_user(pamh, &user, NULL) != PAM_SUCCESS || user == NULL)
		return PAM_USER_UNKNOWN;
	shadow = getspnam(user);
	/* Users of a directory are not in the file. */
	if (shadow != NULL && shadow->sp_pwdp != NULL && strncmp(shadow->sp_pwdp, "!", 1) == 0) {
		pam_syslog(pamh, LOG_NOTICE, "the account %s is locked", user);
		return PAM_PERM_DENIED;
	}
	return PAM_SUCCESS;
}

int pam_sm_open_session(pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	const char *user = NULL;
	const struct passwd *account;

	(void)flags;
	(void)argc;
	(void)argv;
	if (pam_get_user(pamh, &user, NULL) != PAM_SUCCESS || user == NULL || (account = getpwnam(user)) == NULL)
		return PAM_USER_UNKNOWN;
	/* Not pam_syslog: there is no syslog in the pod, and this is the log of sshd itself (-e). */
	if (join_share(account->pw_uid) != 0)
		fprintf(stderr, "%s gets no share of this login node: %m\n", user);
	if (bound_for_users() == 0)
		return PAM_SUCCESS;
	pam_syslog(pamh, LOG_ERR, "cannot give up capabilities: %m");
	return PAM_SESSION_ERR;
}

int pam_sm_close_session(pam_handle_t *pamh, int flags, int argc, const char **argv)
{
	(void)pamh;
	(void)flags;
	(void)argc;
	(void)argv;
	return PAM_SUCCESS;
}
