/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler of a signal that closes a descriptor and asks for a name, while the program does the
 * same: neither waits for the other. objects_programs.sh runs it under `tier run`.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define COPIES 100000

static const char *path;

static void handle(int signal)
{
	struct stat st;

	(void)signal;
	close(dup(STDIN_FILENO));
	stat(path, &st);
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	const struct itimerval often = { { 0, 150 }, { 0, 150 } }, never = { { 0, 0 }, { 0, 0 } };
	int fd;

	path = argc > 1 ? argv[1] : "signals";
	if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &often, NULL))
		return 1;
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	for (int i = 0; i < COPIES; i++)
		if (close(dup(fd)))
			return 1;
	setitimer(ITIMER_REAL, &never, NULL);
	return write(fd, "kept\n", 5) != 5 || close(fd);
}
