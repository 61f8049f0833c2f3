/*
 * test_environment.c - lists of directories. Exit code 0: all as expected.
 */
#include "environment.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect(const char *name, const char *list, int code, const char *wanted)
{
	char result[32];
	int returned = append_directory(list, "/gpu/lib", result, sizeof(result));

	if (returned != code || (code == 0 && strcmp(result, wanted) != 0)) {
		fprintf(stderr, "FAILED %s: returned %d\n", name, returned);
		failures++;
	}
}

int main(void)
{
	expect("a variable that is not set", NULL, 0, "/gpu/lib");
	expect("an empty variable gets no empty entry", "", 0, "/gpu/lib");
	expect("the user's own directories come first", "/opt/lib", 0, "/opt/lib:/gpu/lib");
	expect("nothing is added twice", "/opt/lib:/gpu/lib", 1, "");
	expect("nothing is added twice, first entry", "/gpu/lib:/opt/lib", 1, "");
	expect("a directory that only begins the same is another", "/gpu/lib64", 0, "/gpu/lib64:/gpu/lib");
	expect("a directory that only ends the same is another", "/x/gpu/lib", 0, "/x/gpu/lib:/gpu/lib");
	expect("a list that just fits", "/22-characters-in-this", 0, "/22-characters-in-this:/gpu/lib");
	expect("a list that is too long", "/23-characters-in-this-", -1, "");

	if (failures == 0)
		printf("all environment tests passed\n");
	return failures == 0 ? 0 : 1;
}
