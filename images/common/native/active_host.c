/*
 * active_host.c - for LD_PRELOAD in the slurmctld of a second pod: the host's name is the one that slurm.conf has.
 *
 * Whichever of two pods runs slurmctld, all others know it by one name and one address, that of a Service. slurmctld
 * refuses to start on a host that slurm.conf does not name, and Kubernetes gives each pod of a StatefulSet its own name.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

int gethostname(char *name, size_t length)
{
	const char *wanted = getenv("SLURMSTACK_HOST");
	struct utsname own;

	if (!wanted && uname(&own))
		return -1;
	wanted = wanted ? wanted : own.nodename;
	if (strlen(wanted) >= length) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(name, wanted);
	return 0;
}
