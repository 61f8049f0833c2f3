/*
 * environment.h - variables that are lists of directories.
 */
#ifndef JAIL_ENVIRONMENT_H
#define JAIL_ENVIRONMENT_H

#include <stddef.h>

/*
 * Appends a directory to a list such as PATH; `list` may be NULL or empty.
 * Returns 0 with the new list in `result`, 1 if the list has the directory already, -1 if `result` is too small.
 */
int append_directory(const char *list, const char *directory, char *result, size_t size);

#endif
