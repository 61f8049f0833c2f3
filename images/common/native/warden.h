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

enum { WARDEN_FILES = 2 };

/*
 * Asks, and waits for the answer at most five minutes. Returns 0 with what was asked for, which may be nothing, or -1 with
 * errno and, where the warden refuses, its reason. `files`: room for WARDEN_FILES descriptors, closed on exec, which the answer
 * has then; NULL: it has none.
 */
int warden_ask(int connection, const char *request, char answer[WARDEN_LONGEST], int *files);

#endif
