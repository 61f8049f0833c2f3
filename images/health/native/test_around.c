/*
 * test_around.c - what is the usual case around a job, and what is not. Exit code 0: all as expected.
 */
#include "around.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOADAVG "0.00 0.00 0.00 1/10 25\n"

static int failures;
static char root[] = "/tmp/around-XXXXXX";
static char jobs[64], tmp[64], proc[64], slurmstepd[64], path[128];
static const char *shared[] = { tmp, NULL };
static const struct places places = { jobs, shared, proc, slurmstepd };

static void expect(const char *what, int got, int wanted)
{
	if (got != wanted) {
		fprintf(stderr, "FAILED %s: %d, not %d\n", what, got, wanted);
		failures++;
	}
}

static const char *in(const char *directory, const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void write_file(const char *directory, const char *name, const char *text)
{
	FILE *file = fopen(in(directory, name), "w");

	if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
		perror(name);
		exit(2);
	}
}

/* A process as /proc has it: `stat` up to the group, and how many threads there are. */
static void process(const char *pid, const char *stat, int threads, const char *uid, const char *program)
{
	char directory[96], status[128];

	snprintf(directory, sizeof(directory), "%s/%s", proc, pid);
	mkdir(directory, 0755);
	snprintf(status, sizeof(status), "%s 0 0 0 0 0 0 0 0 0 0 0 0 20 0 %d 0 4711", stat, threads);
	write_file(directory, "stat", status);
	snprintf(status, sizeof(status), "Name:\tx\nUid:\t%s\t%s\t%s\t%s\n", uid, uid, uid, uid);
	write_file(directory, "status", status);
	if (symlink(program, in(directory, "exe")) != 0)
		exit(2);
}

static void no_process(const char *pid)
{
	char directory[96];

	snprintf(directory, sizeof(directory), "%s/%s", proc, pid);
	unlink(in(directory, "stat"));
	unlink(in(directory, "status"));
	unlink(in(directory, "exe"));
	rmdir(directory);
}

static void numbers(void)
{
	expect("a number", (int)around_number("17"), 17);
	expect("no text", (int)around_number(NULL), -1);
	expect("empty", (int)around_number(""), -1);
	expect("a path", (int)around_number("../17"), -1);
	expect("negative", (int)around_number("-1"), -1);
	expect("too long", (int)around_number("1234567890123456"), -1);
}

static void directories(uid_t uid)
{
	struct stat status;

	expect("made", around_make(&places, "17", uid, getgid()), 0);
	expect("is there", stat(in(jobs, "17"), &status), 0);
	expect("for its user only", (int)(status.st_mode & 0777), 0700);
	expect("made twice", around_make(&places, "17", uid, getgid()), -1);
	expect("removed", around_end(&places, "17", uid + 1), 0);
	expect("is gone", stat(in(jobs, "17"), &status), -1);
	expect("never made", around_end(&places, "18", uid + 1), 0);

	expect("made again", around_make(&places, "17", uid, getgid()), 0);
	snprintf(path, sizeof(path), "%s/17/file", jobs);
	fclose(fopen(path, "w"));
	expect("has a file", around_end(&places, "17", uid + 1), -1);
	unlink(path);

	mkdir(in(jobs, ".gone-16-1"), 0700);
	expect("an earlier job's is still there", around_end(&places, "17", uid + 1), -1);
	rmdir(in(jobs, ".gone-16-1"));
	expect("it has gone", around_end(&places, "17", uid + 1), 0);

	chmod(jobs, 0777);
	expect("others may write", around_make(&places, "19", uid, getgid()), -1);
	chmod(jobs, 0755);
}

static void leftovers(uid_t uid)
{
	expect("a file of the user's", around_end(&places, "17", uid), -1);

	write_file(root, "slurmstepd", "");
	process("1", "1 (tini) S 0 1", 1, "0", "/bin/true");
	process("20", "20 (any name) S 1 20", 1, "0", slurmstepd);
	process("21", "21 (a) job)) S 20 20", 1, "4321", "/bin/true");
	process("22", "22 (child) R 21 20", 1, "4321", "/bin/true");
	expect("processes of a step", around_end(&places, "17", 4321), 0);
	process("23", "23 (gone) Z 1 20", 1, "4321", "/bin/true");
	expect("has ended", around_end(&places, "17", 4321), 0);
	no_process("23");
	process("23", "23 (headless) Z 1 20", 2, "4321", "/bin/true");
	expect("only its first thread has ended", around_end(&places, "17", 4321), -1);
	no_process("23");
	process("24", "24 (slurmstepd) S 1 24", 1, "4321", "/bin/true");
	expect("a daemon that calls itself one of ours", around_end(&places, "17", 4321), -1);
	no_process("24");
	process("24", "24 (slurmstepd) S 1 24", 1, "4321", slurmstepd);
	process("25", "25 (child) S 24 24", 1, "4322", "/bin/true");
	expect("the child of a slurmstepd that is a user's", around_end(&places, "17", 4322), -1);
	no_process("24");
	process("24", "24 (slurmstepd) S 1 24", 1, "0", "/bin/true");
	expect("the child of another program of that name", around_end(&places, "17", 4322), -1);
	no_process("25");
	no_process("24");
	process("24", "24 (daemon) S 1 24", 1, "4321", "/bin/true");
	expect("a daemon", around_end(&places, "17", 4321), -1);
	expect("of somebody else", around_end(&places, "17", 4322), 0);
	no_process("24");
	expect("nothing", around_end(&places, "17", 4321), 0);
	unlink(in(proc, "loadavg"));
	expect("nobody knows what is forked", around_end(&places, "17", 4321), -1);
	write_file(proc, "loadavg", "0.00 0.00 0.00 1/10\n");
	expect("no number in it", around_end(&places, "17", 4321), -1);
	write_file(proc, "loadavg", LOADAVG);

	mkdir(in(proc, "sysvipc"), 0755);
	write_file(proc, "sysvipc/shm", "key shmid perms size cpid lpid nattch uid gid\n"
					"0 1 600 4096 1 1 0 4321 4321 4321 4321 0 0 0\n");
	expect("a segment", around_end(&places, "17", 4321), -1);
	expect("a segment of somebody else", around_end(&places, "17", 4322), 0);
	write_file(proc, "sysvipc/shm", "key shmid perms size cpid lpid nattch uid gid\n"
					"0 1 600 4096 1 1 0 5432 4321 4321 4321 0 0 0\n");
	expect("a segment that was given away", around_end(&places, "17", 4321), -1);
	write_file(proc, "sysvipc/shm", "key shmid perms size cpid lpid nattch uid gid\nnonsense\n");
	expect("a segment of nobody knows whom", around_end(&places, "17", 4322), -1);
	write_file(proc, "sysvipc/shm", "key shmid perms size cpid lpid nattch uid gid\n");
	write_file(proc, "sysvipc/msg", "key msqid perms cbytes qnum lspid lrpid uid gid\n"
					"0 1 600 0 0 0 0 4321 4321 4321 4321 0 0 0\n");
	write_file(proc, "sysvipc/sem", "key semid perms nsems uid gid\n0 1 600 1 4323 4323 4323 4323 0 0\n");
	expect("a queue", around_end(&places, "17", 4321), -1);
	expect("a semaphore", around_end(&places, "17", 4323), -1);
	expect("both of somebody else", around_end(&places, "17", 4322), 0);
}

static void next_number(int number)
{
	FILE *file = fopen(in(proc, "loadavg"), "w"); /* waits for who reads it */

	if (file == NULL)
		_exit(2);
	fprintf(file, "%d %d %d %d %d\n", number, number, number, number, number);
	fclose(file);	/* nobody may read it any more */
	usleep(1000);	/* a reader gets no two of them */
}

/* A number that is another one at each look, as where something forks all the time. */
static void moving(void)
{
	pid_t forks;
	int status;

	unlink(in(proc, "loadavg"));
	if (mkfifo(in(proc, "loadavg"), 0600) != 0)
		exit(2);
	forks = fork();
	if (forks == 0) {
		int number;

		signal(SIGPIPE, SIG_IGN);
		alarm(60);
		for (number = 26;; number++)
			next_number(number);
	}
	expect("something forks faster than anybody looks", around_end(&places, "17", 4322), -1);
	kill(forks, SIGKILL);
	waitpid(forks, &status, 0);
	unlink(in(proc, "loadavg"));
	write_file(proc, "loadavg", LOADAVG);
	expect("nothing does", around_end(&places, "17", 4322), 0);
}

int main(void)
{
	char command[96];

	if (mkdtemp(root) == NULL)
		return 2;
	snprintf(jobs, sizeof(jobs), "%s/jobs", root);
	snprintf(tmp, sizeof(tmp), "%s/tmp", root);
	snprintf(proc, sizeof(proc), "%s/proc", root);
	snprintf(slurmstepd, sizeof(slurmstepd), "%s/slurmstepd", root);
	mkdir(tmp, 0755);
	mkdir(proc, 0755);
	write_file(tmp, "mine", "");
	write_file(proc, "loadavg", LOADAVG);
	numbers();
	directories(getuid());
	leftovers(getuid());
	moving();
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command) != 0 || failures != 0;
}
