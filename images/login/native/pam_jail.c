/*
 * pam_jail.c - PAM module of the login pod's sshd.
 *
 * Account: refuses who is locked (`passwd --lock`), as sshd itself does where it uses no PAM.
 *
 * Session: what a user starts, and what sudo makes of it, can be root inside the jail and no more. sshd needs
 * CAP_SYS_CHROOT to lead users into the jail; it opens the session before, and chroot() needs nothing of the bounding
 * set. sshd ends a session that could not be opened.
 */
#include <shadow.h>
#include <stddef.h>
#include <string.h>
#include <syslog.h>

#include <security/pam_ext.h>
#include <security/pam_modules.h>

#include "capabilities.h"

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
	(void)flags;
	(void)argc;
	(void)argv;
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
