/*
 * image.h - `srun --container-image=DIRECTORY`: tasks see the root file system of a container image, unpacked to a
 * directory of the jail, in place of the jail's own.
 *
 * No namespace is made and no program of the image runs as root: the kernel refuses user namespaces to processes in a
 * chroot, and root must load nothing that a user has put somewhere. The task is its user already, for good, when it goes
 * in; of root it has kept the right to change its root directory, and gives that up at once.
 */
#ifndef SLURMSTACK_IMAGE_H
#define SLURMSTACK_IMAGE_H

/* Longest message that these write, with its terminating zero. */
#define IMAGE_MESSAGE_SIZE 512

/* What is wrong with the option's argument, or NULL. It has to be an absolute path: a step does not know where `srun` was. */
const char *image_problem(const char *argument);

/*
 * As the user, in the job's cell: finds the directory, makes those in it that the job's own are shown at, and has the
 * warden show them. Returns 0, or -1 with what failed in message; nothing may be started then.
 */
int image_show(int warden, const char *argument, char message[IMAGE_MESSAGE_SIZE]);

/*
 * In a task that is root still: what it keeps when it becomes its user is the right to change its root directory, and
 * nobody else's process may look into it meanwhile. Returns 0, or -1 with errno.
 */
int image_keep_way(void);

/*
 * In a task that is its user: goes into what image_show() has found, and gives up the right to, and ever to become more by
 * starting a program (a set-user-ID one would believe what the image says of users). The working directory stays if the
 * image has one of that path, else it is "/". Returns 0, or -1 with what failed in message.
 */
int image_enter(char message[IMAGE_MESSAGE_SIZE]);

#endif
