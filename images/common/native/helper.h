/*
 * helper.h - asks the helper of a worker (images/worker/helper.py), the one process there that may still mount.
 */
#ifndef SLURMSTACK_HELPER_H
#define SLURMSTACK_HELPER_H

#include <stddef.h>

#ifndef HELPER_SOCKET /* tests have one of their own */
#define HELPER_SOCKET "/run/slurmstack/helper/socket"
#endif

enum { HELPER_LONGEST = 4096 };

/* A connection, closed on exec; -1 with errno: ENOENT where there is no helper, and nowhere inside the jail is one. */
int helper_connect(void);

enum { HELPER_FILES = 2 };

/*
 * Asks, and waits for the answer at most five minutes. Returns 0 with what was asked for, which may be nothing, or -1 with
 * errno and, where the helper refuses, its reason. `files`: room for HELPER_FILES descriptors, closed on exec, which the answer
 * has then; NULL: it has none.
 */
int helper_ask(int connection, const char *request, char answer[HELPER_LONGEST], int *files);

#endif
