/*
 * capabilities.h - what processes of users may become at most: root inside the jail, and nothing that leads out of it.
 *
 * A set-user-ID program such as sudo gets what is in the bounding set, so that is where capabilities have to go.
 */
#ifndef SLURMSTACK_CAPABILITIES_H
#define SLURMSTACK_CAPABILITIES_H

/*
 * Takes all capabilities but those of users from the calling thread's bounding set, and empties its inheritable and
 * ambient sets. What the thread itself has stays: as it has more than any process of a user, the kernel lets none of
 * these look into it, whatever user they become (ptrace(2), "Ptrace access mode checking").
 * Returns 0, or -1 with errno: nothing of a user's may be started then.
 */
int bound_for_users(void);

/*
 * For a process that has entered the jail as root: takes from all its threads what users cannot have either, but for
 * SETPCAP, which keeps users from looking into it. What it loads from the jail runs in it, and with SYS_CHROOT leads
 * out again. Every thread is bound for users, too. Returns 0, or -1 if that could not be seen to be so.
 *
 * `way_into_image`: the calling thread may still use SYS_CHROOT, for the tasks that it forks (images/spank/image.h), and no
 * program that it starts may.
 */
int stay_in_jail(int way_into_image);

#endif
