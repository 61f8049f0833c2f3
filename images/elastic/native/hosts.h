/* hosts - whose nodes are in a host list. */
#ifndef HOSTS_H
#define HOSTS_H

/* Whether a host list such as "gpu-[0-3,7],cpu-0" has nodes of one of the pools, which are a name a line. */
int hosts_are_of(const char *hosts, const char *pools);

#endif
