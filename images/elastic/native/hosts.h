/* hosts - whose nodes are in a host list. */
#ifndef HOSTS_H
#define HOSTS_H

#include <ctype.h>
#include <string.h>

/* Whether a name of this length is one of the lines. */
static int is_line(const char *name, size_t length, const char *lines)
{
	while (*lines != '\0') {
		size_t line = strcspn(lines, "\n");

		if (line == length && strncmp(lines, name, length) == 0)
			return 1;
		lines += line + (lines[line] == '\n');
	}
	return 0;
}

/* Whether a host list such as "gpu-[0-3,7],cpu-0" has nodes of one of the pools, which are a name a line. */
static int hosts_are_of(const char *hosts, const char *pools)
{
	while (*hosts != '\0') {
		size_t length = strcspn(hosts, ",["), pool = length;

		/* "gpu-" before a bracket, or "gpu-12". */
		while (hosts[length] != '[' && pool > 0 && isdigit((unsigned char)hosts[pool - 1]))
			pool--;
		if (pool > 0 && hosts[pool - 1] == '-' && is_line(hosts, pool - 1, pools))
			return 1;
		hosts += length;
		if (*hosts == '[')
			hosts += strcspn(hosts, "]");
		hosts += strcspn(hosts, ",");
		hosts += *hosts == ',';
	}
	return 0;
}

#endif
