/*
 * environment.c - variables that are lists of directories.
 */
#include "environment.h"

#include <stdio.h>
#include <string.h>

static int has_directory(const char *list, const char *directory)
{
	const size_t length = strlen(directory);
	const char *entry = list;

	for (;;) {
		const size_t end = strcspn(entry, ":");

		if (end == length && strncmp(entry, directory, length) == 0)
			return 1;
		if (entry[end] == '\0')
			return 0;
		entry += end + 1;
	}
}

int append_directory(const char *list, const char *directory, char *result, size_t size)
{
	int written;

	/* An empty entry would mean the working directory, so an empty list gets no colon. */
	if (list == NULL || list[0] == '\0')
		written = snprintf(result, size, "%s", directory);
	else if (has_directory(list, directory))
		return 1;
	else
		written = snprintf(result, size, "%s:%s", list, directory);
	return written >= 0 && (size_t)written < size ? 0 : -1;
}
