/*
 * share.h - a login session goes into its user's cgroup, with what one user may have of the login node.
 */
#ifndef SLURMSTACK_SHARE_H
#define SLURMSTACK_SHARE_H

#include <sys/types.h>

/*
 * Takes the calling process, and so all that it starts, into the user's cgroup, which is made where there is none.
 * `shares` has a line for each file of that cgroup: "memory.max 4294967296" (images/login/sshd.py). Where there is no
 * such file, the machine lets nothing be divided, and there is nothing to do.
 * Returns 0, or -1 with errno: the session has no limit then but the login node's own.
 */
int join_share(const char *shares, const char *groups, uid_t user);

#endif
