/*
 * warden.h - asks the warden of a worker (images/worker/warden.py), the one process there that may still mount.
 */
#ifndef SLURMSTACK_WARDEN_H
#define SLURMSTACK_WARDEN_H

#include <stddef.h>

#ifndef WARDEN_SOCKET /* tests have one of their own */
#define WARDEN_SOCKET "/run/slurmstack/warden/socket"
#endif

enum { WARDEN_LONGEST = 4096 };

/* A connection, closed on exec; -1 with errno: ENOENT where there is no warden, and nowhere inside the jail is one. */
int warden_connect(void);

/*
 * Asks, and waits for the answer at most five minutes. Returns 0 with what was asked for, which may be nothing, or -1 with
 * errno and, where the warden refuses, its reason.
 */
int warden_ask(int connection, const char *request, char answer[WARDEN_LONGEST]);

enum { WARDEN_FILES = 2 };

/* The same for what comes with descriptors, which are closed on exec. Without all of them it is an error. */
int warden_ask_files(int connection, const char *request, char answer[WARDEN_LONGEST], int files[WARDEN_FILES]);

#endif
