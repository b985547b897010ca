/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping programs; see process.h. */
#include "bench/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"

#define STOP_NS (60 * NS_PER_S)
#define LOG_TAIL_BYTES 4096
#define PATH_BYTES 1024

void process_moment(void)
{
	const struct timespec t = { .tv_nsec = 2000000 };

	nanosleep(&t, NULL);
}

/* In the child: errors can only be told by the exit status. */
static void become(const char *const argv[], const struct process_files *files, pid_t parent)
{
	int log = open(files->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	int in = files->input > 0 ? files->input : open("/dev/null", O_RDONLY);

	if (log < 0 || in < 0 || dup2(in, 0) < 0 || dup2(log, 2) < 0 ||
	    dup2(files->output > 0 ? files->output : log, 1) < 0)
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(126);
	setsid();
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int process_start(pid_t *out, const char *const argv[], const struct process_files *files)
{
	pid_t parent = getpid();

	fflush(NULL);
	*out = fork();
	if (*out == 0)
		become(argv, files, parent);
	if (*out > 0)
		return 0;
	*out = 0;
	return -errno;
}

int process_stop(pid_t pid, const char *name, const char *log)
{
	uint64_t since = time_now_ns();
	int status = 0, error = 0;

	if (pid <= 0)
		return 0;
	kill(pid, SIGTERM);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (!error && time_now_ns() - since > STOP_NS) {
			kill(pid, SIGKILL);
			error = -ETIMEDOUT;
		}
		process_moment();
	}
	if (!error && (!WIFEXITED(status) || WEXITSTATUS(status)))
		error = -EIO;
	if (error) {
		fprintf(stderr, "%s ended badly (%s %d); the end of its log:\n", name,
			WIFSIGNALED(status) ? "signal" : "exit status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		process_tell_log(log);
	}
	return error;
}

uint64_t process_cpu_ns(pid_t pid)
{
	char path[64 + sizeof(((struct dirent *)NULL)->d_name)];
	const struct dirent *entry;
	uint64_t sum = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return 0;
	while ((entry = readdir(tasks))) {
		unsigned long long ns = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (f && fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return sum;
}

uint64_t process_memory(pid_t pid)
{
	char path[64], line[256];
	unsigned long long kib;
	FILE *f CLEANUP_FCLOSE = NULL;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %llu kB", &kib) == 1)
			return (uint64_t)kib << 10;
	return 0;
}

int process_there(const char *program)
{
	const char *at = getenv("PATH");
	char path[PATH_BYTES];

	if (strchr(program, '/'))
		return access(program, X_OK) == 0;
	while (at && *at) {
		size_t length = strcspn(at, ":");

		snprintf(path, sizeof(path), "%.*s/%s", (int)length, at, program);
		if (access(path, X_OK) == 0)
			return 1;
		at += length + (at[length] != '\0');
	}
	return 0;
}

void process_tell_log(const char *log)
{
	int fd CLEANUP_CLOSE = open(log, O_RDONLY | O_CLOEXEC);
	char tail[LOG_TAIL_BYTES + 1];
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	ssize_t got;

	if (fd < 0)
		return;
	got = pread(fd, tail, LOG_TAIL_BYTES, end > LOG_TAIL_BYTES ? end - LOG_TAIL_BYTES : 0);
	if (got > 0)
		fprintf(stderr, "%.*s", (int)got, tail);
}

static long futex(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

uint32_t process_wait(uint32_t *word, uint32_t value)
{
	uint32_t now;

	while ((now = atomic_load_acquire_u32(word)) == value)
		futex(word, FUTEX_WAIT, value);
	return now;
}

void process_set(uint32_t *word, uint32_t value)
{
	atomic_store_release_u32(word, value);
	futex(word, FUTEX_WAKE, INT_MAX);
}
