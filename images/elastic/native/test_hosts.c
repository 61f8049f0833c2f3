/* test_hosts.c - run while the image is built. */
#include "hosts.h"

#include <assert.h>
#include <stdio.h>

int main(void)
{
	assert(hosts_are_of("gpu-[0-3,7],cpu-0", "gpu\n"));
	assert(hosts_are_of("gpu-[0-3,7],cpu-0", "other\ncpu\n"));
	assert(hosts_are_of("cpu-12", "cpu"));
	assert(hosts_are_of("a-b-[1-2]", "a-b\n"));
	assert(hosts_are_of("a-2-3", "a-2\n"));
	assert(!hosts_are_of("gpu-[0-3,7],cpu-0", ""));
	assert(!hosts_are_of("gpu-[0-3,7],cpu-0", "gp\ngpu-0\npu\ncpu-\n"));
	assert(!hosts_are_of("gpu", "gpu\n"));
	assert(!hosts_are_of("", "gpu\n"));
	assert(!hosts_are_of("gpu-[0-3", "cpu\n"));
	puts("hosts: fine");
	return 0;
}
