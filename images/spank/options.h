/*
 * options.h - arguments of the jail plugin in plugstack.conf.
 */
#ifndef SLURMSTACK_JAIL_OPTIONS_H
#define SLURMSTACK_JAIL_OPTIONS_H

#include <stddef.h>

/* Longest message that jail_parse_options() writes, with its terminating zero. */
#define JAIL_MESSAGE_SIZE 256

struct jail_options {
	const char *root; /* absolute path of the jail's root directory; points into argv */
	int images; /* whether steps may have a container's image (image.h) */
};

/*
 * Reads the arguments that follow the plugin's path in plugstack.conf.
 *
 * Known: root=/absolute/path (required, not "/" itself), container_images.
 * Returns 0, or -1 with what is wrong in message.
 */
int jail_parse_options(int argc, char **argv, struct jail_options *options, char message[JAIL_MESSAGE_SIZE]);

#endif
