/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping a tierd; see service.h. */
#include "bench/service.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/process.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/json_at.h"
#include "libtier/base/time.h"

#define ARGUMENTS_MAX 48
#define START_NS (300 * NS_PER_S)
#define REMOVE_TRIES 500
#define SOCKET_BYTES_MAX 108 /* sun_path */

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
		process_moment();
	}
	return -ETIMEDOUT;
}

int service_start(struct service *s, const struct service_options *options, void (*tick)(void))
{
	struct arguments a = { .count = 0 };
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
		s->started_ns = time_now_ns();
		error = process_start(&s->pid, (const char *const *)a.arg,
				      &(struct process_files){ .log = s->log });
	}
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
	pid_t pid = s->pid;

	s->pid = 0;
	return process_stop(pid, "tierd", s->log);
}

uint64_t service_cpu_ns(const struct service *s)
{
	return process_cpu_ns(s->pid);
}

void service_tell_log(const struct service *s)
{
	process_tell_log(s->log);
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
			process_moment();
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
