/*
 * namespaces.h - `srun --user-namespace`: tasks outside of a chroot, so that containers run in them.
 */
#ifndef SLURMSTACK_NAMESPACES_H
#define SLURMSTACK_NAMESPACES_H

#include <stddef.h>
#include <sys/types.h>

/* Whether the step's user asked for them. */
extern int namespaces_wanted;

/* SPANK's callback for the option. */
int namespaces_option(int value, const char *argument, int remote);

/* What to ask the warden for, with as many of the user's groups as there is room for. Returns 0, or -1 if it is too small. */
int namespaces_request(char *request, size_t size, unsigned job, uid_t uid, gid_t gid, const gid_t *groups, int count);

/*
 * As root, before slurmstepd is in the jail: has the warden make them. Why it does not is kept for the task, which can tell
 * its user.
 */
void namespaces_ask(unsigned job, uid_t uid, gid_t gid, const gid_t *groups, int count);

/* In the task, as its user: goes in, and stays in its directory. Returns NULL, or why not. */
const char *namespaces_enter(void);

#endif
