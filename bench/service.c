/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping a tierd; see service.h. */
#include "bench/service.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/time.h"

#define ARGUMENTS_MAX 48
#define START_NS (300 * NS_PER_S)
#define STOP_NS (60 * NS_PER_S)
#define LOG_TAIL_BYTES 4096
#define REMOVE_TRIES 500
#define SOCKET_BYTES_MAX 108 /* sun_path */

static void moment(void)
{
	const struct timespec t = { .tv_nsec = 2000000 };

	nanosleep(&t, NULL);
}

struct arguments {
	char *arg[ARGUMENTS_MAX + 1];
	int count;
	bool failed;
};

static void push(struct arguments *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void push(struct arguments *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (a->count == ARGUMENTS_MAX || vasprintf(&a->arg[a->count], format, args) < 0)
		a->failed = true;
	else
		a->count++;
	va_end(args);
}

static void free_arguments(struct arguments *a)
{
	for (int i = 0; i < a->count; i++)
		free(a->arg[i]);
}

static void arguments_of(struct arguments *a, const struct service *s,
			 const struct service_options *options)
{
	push(a, "%s", options->tierd);
	push(a, "--foreground");
	push(a, "--socket");
	push(a, "%s", s->socket);
	push(a, "--store");
	push(a, "%s", s->store);
	push(a, "--set");
	push(a, "hbm.size=%llu", (unsigned long long)options->hbm_bytes);
	push(a, "--set");
	push(a, "cxl.size=%llu", (unsigned long long)options->cxl_bytes);
	push(a, "--set");
	push(a, "nvme.size=%llu", (unsigned long long)options->nvme_bytes);
	for (int i = 0; options->set && options->set[i]; i++) {
		push(a, "--set");
		push(a, "%s", options->set[i]);
	}
}

/* In the child: errors can only be told by the exit status. */
static void become(const struct service *s, char *const *arguments, pid_t parent)
{
	int log = open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	int nothing = open("/dev/null", O_RDONLY);

	if (log < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(126);
	setsid();
	execv(arguments[0], arguments);
	dprintf(2, "%s: %s\n", arguments[0], strerror(errno));
	_exit(127);
}

static int wait_ready(struct service *s, void (*tick)(void))
{
	const struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = s->socket,
		.name = "bench-start",
		.staging_bytes = 1 << 20,
	};

	while (time_now_ns() - s->started_ns < START_NS) {
		tier *t;
		int status;

		if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
			s->pid = 0;
			return -ECHILD;
		}
		if (tier_connect(&t, &options) == 0) {
			s->ready_ns = time_now_ns();
			tier_close(t);
			return 0;
		}
		if (tick)
			tick();
		moment();
	}
	return -ETIMEDOUT;
}

int service_start(struct service *s, const struct service_options *options, void (*tick)(void))
{
	struct arguments a = { .count = 0 };
	pid_t parent = getpid();
	int error = 0;

	*s = (struct service){ .pid = 0 };
	if (snprintf(s->socket, sizeof(s->socket), "%s/tier.sock", options->dir) >=
	    SOCKET_BYTES_MAX) {
		fprintf(stderr, "%s: too long for a socket's path; choose a shorter folder\n",
			s->socket);
		return -ENAMETOOLONG;
	}
	snprintf(s->store, sizeof(s->store), "%s/store", options->dir);
	snprintf(s->log, sizeof(s->log), "%s/tierd.log", options->dir);
	arguments_of(&a, s, options);
	if (a.failed)
		error = -ENOMEM;
	else if (access(options->tierd, X_OK))
		error = -errno;
	if (!error) {
		fflush(NULL);
		s->started_ns = time_now_ns();
		s->pid = fork();
		error = s->pid < 0 ? -errno : 0;
	}
	if (!error && s->pid == 0)
		become(s, a.arg, parent);
	free_arguments(&a);
	if (error) {
		s->pid = 0;
		fprintf(stderr, "%s: %s\n", options->tierd, strerror(-error));
		return error;
	}
	error = wait_ready(s, tick);
	if (error) {
		fprintf(stderr, "tierd did not come up; the end of its log:\n");
		service_tell_log(s);
		service_stop(s);
	}
	return error;
}

int service_stop(struct service *s)
{
	uint64_t since = time_now_ns();
	int status = 0, error = 0;

	if (s->pid <= 0)
		return 0;
	kill(s->pid, SIGTERM);
	while (waitpid(s->pid, &status, WNOHANG) == 0) {
		if (!error && time_now_ns() - since > STOP_NS) {
			kill(s->pid, SIGKILL);
			error = -ETIMEDOUT;
		}
		moment();
	}
	s->pid = 0;
	if (!error && (!WIFEXITED(status) || WEXITSTATUS(status)))
		error = -EIO;
	if (error) {
		fprintf(stderr, "tierd ended badly (%s %d); the end of its log:\n",
			WIFSIGNALED(status) ? "signal" : "exit status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		service_tell_log(s);
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

uint64_t service_cpu_ns(const struct service *s)
{
	return process_cpu_ns(s->pid);
}

void service_tell_log(const struct service *s)
{
	int fd CLEANUP_CLOSE = open(s->log, O_RDONLY | O_CLOEXEC);
	char tail[LOG_TAIL_BYTES + 1];
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	ssize_t got;

	if (fd < 0)
		return;
	got = pread(fd, tail, LOG_TAIL_BYTES, end > LOG_TAIL_BYTES ? end - LOG_TAIL_BYTES : 0);
	if (got > 0)
		fprintf(stderr, "%.*s", (int)got, tail);
}

int service_dir_make(char **out, const char *base)
{
	if (!base)
		base = getenv("TMPDIR");
	if (asprintf(out, "%s/tierbench.XXXXXX", base && *base ? base : "/tmp") < 0)
		return -ENOMEM;
	if (!mkdtemp(*out)) {
		int error = -errno;

		free(*out);
		*out = NULL;
		return error;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

void service_dir_remove(char *dir)
{
	if (!dir)
		return;
	/* A daemon that is just ending may take its own files away meanwhile. */
	for (int i = 0; i < REMOVE_TRIES && access(dir, F_OK) == 0; i++) {
		if (i)
			moment();
		nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
	if (access(dir, F_OK) == 0)
		fprintf(stderr, "%s is left\n", dir);
	free(dir);
}

static int ask(tier *t, const char *verb, json_t **out)
{
	char *reply CLEANUP_FREE = NULL;
	int error = tier_admin(t, verb, NULL, &reply);

	if (error)
		return error;
	*out = json_loads(reply, 0, NULL);
	return *out ? 0 : -EPROTO;
}

int service_metric(tier *t, const char *name, uint64_t *out)
{
	json_t *all, *one;
	size_t i;
	int error = ask(t, "stat", &all);

	if (error)
		return error;
	error = -ENOENT;
	json_array_foreach(json_object_get(all, "metrics"), i, one)
	{
		const char *found = json_string_value(json_object_get(one, "name"));

		if (!found || strcmp(found, name) != 0)
			continue;
		*out = (uint64_t)json_integer_value(json_object_get(one, "value"));
		error = 0;
	}
	json_decref(all);
	return error;
}

int service_number(tier *t, const char *verb, const char *path, double *out)
{
	json_t *all;
	const json_t *at;
	int error = ask(t, verb, &all);

	if (error)
		return error;
	at = json_at(all, path);
	error = json_is_number(at) ? 0 : -ENOENT;
	if (!error)
		*out = json_number_value(at);
	json_decref(all);
	return error;
}
