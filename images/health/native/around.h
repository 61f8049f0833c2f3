/*
 * around.h - the usual case of what happens around a job: a directory is made before it, and nothing is left after it.
 *
 * Everything else is the work of the Python programs (prolog.py, epilog.py), which see the same node by the same rules.
 */
#ifndef SLURMSTACK_AROUND_H
#define SLURMSTACK_AROUND_H

#include <sys/types.h>

/* Where to look; the tests have places of their own. */
struct places {
	const char *jobs; /* the directory of the jobs' temporary directories (images/common/job_directory.py) */
	const char *const *shared; /* where users leave files, up to a NULL (images/health/leftovers.py) */
	const char *proc;
	const char *slurmstepd; /* the program that runs steps */
};

/* A number, and nothing else: its value, or -1. */
long long around_number(const char *text);

/* Makes the temporary directory of a job. Returns 0, or -1 where it is not as simple as that. */
int around_make(const struct places *places, const char *job, uid_t uid, gid_t gid);

/*
 * Removes an empty temporary directory, and looks whether anything else is left of the user's.
 * Returns 0 if nothing is left, -1 where something is, or may be.
 */
int around_end(const struct places *places, const char *job, uid_t uid);

#endif
