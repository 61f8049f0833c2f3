/*
 * test_options.c - the jail plugin's arguments, right and wrong. Exit code 0: all as expected.
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void expect_root(const char *name, int argc, char **argv, const char *root)
{
	char message[JAIL_MESSAGE_SIZE];
	struct jail_options options;
	int result = jail_parse_options(argc, argv, &options, message);

	if (result != 0 || strcmp(options.root, root) != 0) {
		fprintf(stderr, "FAILED %s: result %d, message \"%s\"\n", name, result, message);
		failures++;
	}
}

static void expect_images(const char *name, int argc, char **argv, int images)
{
	char message[JAIL_MESSAGE_SIZE];
	struct jail_options options;
	int result = jail_parse_options(argc, argv, &options, message);

	if (result != 0 || options.images != images) {
		fprintf(stderr, "FAILED %s: result %d, message \"%s\"\n", name, result, message);
		failures++;
	}
}

static void expect_refusal(const char *name, int argc, char **argv, const char *part_of_message)
{
	char message[JAIL_MESSAGE_SIZE];
	struct jail_options options;
	int result = jail_parse_options(argc, argv, &options, message);

	if (result == 0 || strstr(message, part_of_message) == NULL) {
		fprintf(stderr, "FAILED %s: result %d, message \"%s\"\n", name, result, message);
		failures++;
	}
}

int main(void)
{
	char root[] = "root=/jail", nested[] = "root=/mnt/jail", dotted[] = "root=/.jail";
	char relative[] = "root=jail", empty[] = "root=", slash[] = "root=/", slashes[] = "root=/..", unknown[] = "rooot=/jail";
	char images[] = "container_images", images_value[] = "container_images=no", long_name[600];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';

	expect_root("an absolute directory is taken", 1, (char *[]){root}, "/jail");
	expect_root("a nested directory is taken", 1, (char *[]){nested}, "/mnt/jail");
	expect_root("a name with a dot is taken", 1, (char *[]){dotted}, "/.jail");
	expect_images("no images by default", 1, (char *[]){root}, 0);
	expect_images("images", 2, (char *[]){root, images}, 1);
	expect_images("images, said first", 2, (char *[]){images, root}, 1);
	expect_refusal("images without a jail", 1, (char *[]){images}, "root=DIRECTORY is missing");
	expect_refusal("images with a value", 2, (char *[]){root, images_value}, "unknown argument \"container_images=no\"");
	expect_refusal("nothing given", 0, NULL, "root=DIRECTORY is missing");
	expect_refusal("a relative path", 1, (char *[]){relative}, "root=jail is not an absolute path");
	expect_refusal("an empty path", 1, (char *[]){empty}, "is not an absolute path");
	expect_refusal("the file system's root", 1, (char *[]){slash}, "not a jail");
	expect_refusal("the file system's root in disguise", 1, (char *[]){slashes}, "not a jail");
	expect_refusal("a misspelt argument", 1, (char *[]){unknown}, "unknown argument \"rooot=/jail\"");
	expect_refusal("twice", 2, (char *[]){root, nested}, "given twice");
	expect_refusal("a very long argument does not overflow", 1, (char *[]){long_name}, "unknown argument");

	if (failures == 0)
		printf("all argument tests passed\n");
	return failures == 0 ? 0 : 1;
}
