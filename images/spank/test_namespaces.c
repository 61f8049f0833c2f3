/*
 * test_namespaces.c - what the warden is asked for, and what a task says that has none. Exit code 0: all as expected.
 */
#include "namespaces.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(const char *name, size_t size, int count, int code, const char *wanted)
{
	const gid_t groups[] = { 20, 4294967295u, 7 };
	char request[128] = "";
	int result = namespaces_request(request, size, 17, 10001, 10002, groups, count);

	if (result != code || (code == 0 && strcmp(request, wanted) != 0)) {
		fprintf(stderr, "FAILED %s: result %d, request \"%s\"\n", name, result, request);
		failures++;
	}
}

int main(void)
{
	const char *refusal;

	expect("a user with one group", 128, 0, 0, "namespaces 17 10001 10002 10002");
	expect("a user with several groups", 128, 3, 0, "namespaces 17 10001 10002 10002,20,4294967295,7");
	expect("room for all", 48, 3, 0, "namespaces 17 10001 10002 10002,20,4294967295,7");
	expect("a group that does not fit is left out, not cut", 47, 3, 0, "namespaces 17 10001 10002 10002,20,4294967295");
	expect("no room for a group", 32, 3, 0, "namespaces 17 10001 10002 10002");
	expect("no room", 31, 0, -1, "");

	refusal = namespaces_enter();
	if (refusal == NULL || strstr(refusal, "no jail") == NULL) {
		fprintf(stderr, "FAILED a worker without the jail: \"%s\"\n", refusal == NULL ? "" : refusal);
		failures++;
	}
	namespaces_ask(17, 10001, 10002, NULL, 0); /* where there is no warden */
	refusal = namespaces_enter();
	if (refusal == NULL || strstr(refusal, "No such file") == NULL) {
		fprintf(stderr, "FAILED a worker without a warden: \"%s\"\n", refusal == NULL ? "" : refusal);
		failures++;
	}
	namespaces_option(0, NULL, 1);
	if (!namespaces_wanted) {
		fprintf(stderr, "FAILED the option is not noticed\n");
		failures++;
	}

	if (failures == 0)
		printf("all tests of namespaces passed\n");
	return failures == 0 ? 0 : 1;
}
