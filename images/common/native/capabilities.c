/*
 * capabilities.c - see capabilities.h.
 */
#include "capabilities.h"

#include <linux/capability.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))

/*
 * What installing packages and administering the jail's files takes. Not here, of what containers have by default:
 * SYS_CHROOT (leads out of the jail), MKNOD (devices of the machine), NET_RAW (others' packets), SETPCAP, and
 * NET_BIND_SERVICE (file servers that trust a low port take it for a machine's own root).
 */
static const uint64_t of_users = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID)
	| BIT(CAP_KILL) | BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETFCAP)
	| BIT(CAP_AUDIT_WRITE); /* sudo complains at each start without it */

/* Else root in the jail would inherit what its bounding set lacks. */
static int empty_inheritable(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	size_t i;

	if (syscall(SYS_capget, &header, data) != 0)
		return -1;
	for (i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		data[i].inheritable = 0;
	return syscall(SYS_capset, &header, data) == 0 ? 0 : -1;
}

int bound_for_users(void)
{
	int capability, set;

	/* The kernel says EINVAL for the first one that it does not know. */
	for (capability = 0; (set = prctl(PR_CAPBSET_READ, capability, 0, 0, 0)) >= 0; capability++)
		if (set == 1 && !(of_users & BIT(capability)) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
			return -1;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		return -1;
	return empty_inheritable();
}
