/*
 * namespaces.h - `srun --user-namespace`: tasks outside of a chroot, so that containers run in them.
 */
#ifndef SLURMSTACK_NAMESPACES_H
#define SLURMSTACK_NAMESPACES_H

#include <sys/types.h>

/* Whether the step's user asked for them. */
extern int namespaces_wanted;

/* SPANK's callback for the option. */
int namespaces_option(int value, const char *argument, int remote);

/*
 * As root, before slurmstepd is in the jail: has the warden make them. Why it does not is kept for the task, which can tell
 * its user.
 */
void namespaces_ask(unsigned job, uid_t uid, gid_t gid);

/* In the task, as its user: goes in, and stays in its directory. Returns NULL, or why not. */
const char *namespaces_enter(void);

#endif
