/*
 * options.c - arguments of the jail plugin in plugstack.conf.
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

static const char ROOT_OPTION[] = "root=";
static const char IMAGES_OPTION[] = "container_images";

/* True for "/", "//", "/..": a root that would be no jail at all. */
static int is_the_file_system_root(const char *path)
{
	return path[strspn(path, "/.")] == '\0';
}

int jail_parse_options(int argc, char **argv, struct jail_options *options, char message[JAIL_MESSAGE_SIZE])
{
	const size_t prefix = sizeof(ROOT_OPTION) - 1;
	int i;

	options->root = NULL;
	options->images = 0;
	message[0] = '\0';

	for (i = 0; i < argc; i++) {
		if (strcmp(argv[i], IMAGES_OPTION) == 0) {
			options->images = 1;
			continue;
		}
		if (strncmp(argv[i], ROOT_OPTION, prefix) != 0) {
			snprintf(message, JAIL_MESSAGE_SIZE, "unknown argument \"%.100s\" (known: root=DIRECTORY, container_images)",
				 argv[i]);
			return -1;
		}
		if (options->root != NULL) {
			snprintf(message, JAIL_MESSAGE_SIZE, "root= is given twice");
			return -1;
		}
		options->root = argv[i] + prefix;
	}
	if (options->root == NULL) {
		snprintf(message, JAIL_MESSAGE_SIZE, "root=DIRECTORY is missing");
		return -1;
	}
	if (options->root[0] != '/') {
		snprintf(message, JAIL_MESSAGE_SIZE, "root=%.100s is not an absolute path", options->root);
		return -1;
	}
	if (is_the_file_system_root(options->root)) {
		snprintf(message, JAIL_MESSAGE_SIZE, "root=%.100s is the whole file system, not a jail", options->root);
		return -1;
	}
	return 0;
}
