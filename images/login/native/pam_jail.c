/*
 * pam_jail.c - PAM module of the login pod's sshd.
 *
 * Account: refuses who is locked (`passwd --lock`), as sshd itself does where it uses no PAM.
 *
 * Session: it goes into its user's cgroup, where the login node has some (share.h). Where that fails, the user is let in
 * all the same, as on machines without.
 * What a user starts, and what sudo makes of it, can be root inside the jail and no more. sshd needs CAP_SYS_CHROOT to
 * lead users into the jail; it opens the session before, and chroot() needs nothing of the bounding set. sshd ends a
 * session that could not be opened.
 */
#include <pwd.h>
#include <shadow.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "capabilities.h"
#include "share.h"

#define SHARES "/run/slurmstack/shares"
#define GROUPS "/sys/fs/cgroup/users"

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
	if (join_share(SHARES, GROUPS, account->pw_uid) != 0)
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
