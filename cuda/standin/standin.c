/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's door: look-up, failures by order, the device and its context; see standin.h. */
#include "cuda/standin/standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/device/launch.h"
#include "cuda/standin/inside.h"

#define PUBLIC __attribute__((visibility("default")))
#define CALLS (sizeof(struct cuda_driver) / sizeof(void (*)(void)))
#define FAILS_MAX 32u
#define SM_MAJOR 9 /* that the kernels were made for */

struct call {
	const char *name;
	int32_t version;
	uint32_t count;
};

struct failure {
	size_t call;
	uint32_t at;
	cuda_result answer;
};

struct standin standin = { .api = PTHREAD_MUTEX_INITIALIZER };

static struct call calls[] = {
#define ENTRY(field, name, version, parameters) { name, version, 0 },
#include "libtier/base/cuda_driver.def"
#undef ENTRY
};
static struct failure failures[FAILS_MAX];
static uint32_t failure_count, failures_told;
static struct cuda_driver table;
static __thread bool current; /* a context is, in this thread */

static struct call *call_of(const char *name)
{
	for (size_t i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return &calls[i];
	return NULL;
}

/* ---- failures ------------------------------------------------------------------------------ */

PUBLIC void standin_fail(const char *name, uint32_t nth, cuda_result answer);
PUBLIC uint32_t standin_calls(const char *name);
PUBLIC void standin_left(struct standin_left *out);

void standin_fail(const char *name, uint32_t nth, cuda_result answer)
{
	struct call *c = call_of(name);

	pthread_mutex_lock(&standin.api);
	if (!strcmp(name, "engine")) {
		standin.bad_copy = nth ? standin.copies + nth : 0;
		standin.bad_answer = answer;
	} else if (!c || failure_count == FAILS_MAX) {
		fprintf(stderr, "libcuda stand-in: cannot make %s fail\n", name);
		abort();
	} else {
		failures[failure_count++] = (struct failure){ (size_t)(c - calls), c->count + nth,
							      answer };
	}
	pthread_mutex_unlock(&standin.api);
}

uint32_t standin_calls(const char *name)
{
	struct call *c = call_of(name);

	return !strcmp(name, "engine") ? standin.copies : c ? c->count : 0;
}

void standin_left(struct standin_left *out)
{
	pthread_mutex_lock(&standin.api);
	*out = standin.left;
	out->contexts = standin.contexts;
	pthread_mutex_unlock(&standin.api);
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("STANDIN_LEFT");
	const struct standin_left *l = &standin.left;
	FILE *f = path && table.init ? fopen(path, "w") : NULL;

	if (!f)
		return;
	fprintf(f, "failed=%u left=%u contexts=%u handles=%u ranges=%u reservations=%u streams=%u "
		"events=%u registered=%u\n", failures_told, standin.contexts + l->handles +
		l->ranges + l->reservations + l->streams + l->events + l->registered,
		standin.contexts, l->handles, l->ranges, l->reservations, l->streams, l->events,
		l->registered);
	fclose(f);
}

static void read_settings(void)
{
	const char *at = getenv("STANDIN_FAIL"), *us = getenv("STANDIN_US");
	char name[64];
	unsigned int nth;
	int answer;

	standin.copy_us = us ? (uint32_t)atoi(us) : 0;
	for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "")
		if (sscanf(at, "%63[^:]:%u:%d", name, &nth, &answer) == 3)
			standin_fail(name, nth, answer);
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Is there a context, current and well? */
static cuda_result look_at_context(void)
{
	/* A forked child has none of it. */
	if (!current || !standin.contexts || standin.client != getpid())
		return CUDA_INVALID_CONTEXT;
	return __atomic_load_n(&standin.sticky, __ATOMIC_ACQUIRE);
}

cuda_result enter_launch(void)
{
	return standin.ready ? look_at_context() : CUDA_NOT_INITIALIZED;
}

cuda_result enter(size_t offset, bool context)
{
	const size_t call = offset / sizeof(void (*)(void));
	cuda_result answer = 0;
	uint32_t count;

	pthread_mutex_lock(&standin.api);
	count = ++calls[call].count;
	for (uint32_t i = 0; i < failure_count; i++)
		if (failures[i].call == call && failures[i].at == count)
			answer = failures[i].answer;
	failures_told += answer != 0;
	pthread_mutex_unlock(&standin.api);
	if (answer)
		return answer;
	if (!standin.ready)
		return CUDA_NOT_INITIALIZED;
	return context ? look_at_context() : 0;
}

static cuda_result do_init(uint32_t flags)
{
	bool first = !standin.ready;
	cuda_result told;

	standin.ready = true;
	if (first)
		read_settings();
	told = enter(offsetof(struct cuda_driver, init), false);
	standin.ready = told == 0 || !first;
	return told ? told : flags ? CUDA_INVALID_VALUE : 0;
}

static int32_t version_said(void)
{
	const char *said = getenv("STANDIN_CUDA");

	return said ? atoi(said) : 13000;
}

cuda_result do_version(int32_t *version)
{
	*version = version_said();
	return 0;
}

static cuda_result do_error_name(cuda_result error, const char **name)
{
	*name = error == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR";
	return 0;
}

static cuda_result do_device_count(int32_t *count)
{
	ENTER(device_count, false);
	*count = 1;
	return 0;
}

static cuda_result do_device(int32_t *device, int32_t index)
{
	ENTER(device, false);
	*device = 0;
	return index ? CUDA_INVALID_DEVICE : 0;
}

static cuda_result do_device_name(char *name, int32_t bytes, int32_t device)
{
	ENTER(device_name, false);
	if (device)
		return CUDA_INVALID_DEVICE;
	snprintf(name, (size_t)bytes, "stand-in, no GPU");
	return 0;
}

static cuda_result do_device_memory(size_t *bytes, int32_t device)
{
	ENTER(device_memory, false);
	*bytes = STANDIN_DEVICE_BYTES;
	return device ? CUDA_INVALID_DEVICE : 0;
}

static cuda_result do_device_attribute(int32_t *value, int32_t attribute, int32_t device)
{
	ENTER(device_attribute, false);
	*value = attribute == CUDA_ATTRIBUTE_VIRTUAL_MEMORY ||
		 attribute == CUDA_ATTRIBUTE_HANDLE_FD ||
		 attribute == CUDA_ATTRIBUTE_HOST_POINTER ||
		 attribute == CUDA_ATTRIBUTE_REGISTER_READ_ONLY;
	if (attribute == CUDA_ATTRIBUTE_MAJOR)
		*value = SM_MAJOR;
	return device ? CUDA_INVALID_DEVICE : 0;
}

static cuda_result do_context_retain(struct cuda_context **context, int32_t device)
{
	int rc = 0;

	ENTER(context_retain, false);
	if (device)
		return CUDA_INVALID_DEVICE;
	pthread_mutex_lock(&standin.api);
	if (standin.contexts == 0) {
		standin.client = getpid();
		standin.sticky = 0;
		rc = device_begin();
	}
	standin.contexts += rc == 0;
	pthread_mutex_unlock(&standin.api);
	*context = rc ? NULL : (struct cuda_context *)&standin;
	return rc ? CUDA_OUT_OF_MEMORY : 0;
}

static cuda_result do_context_release(int32_t device)
{
	ENTER(context_release, false);
	pthread_mutex_lock(&standin.api);
	if (device || !standin.contexts) {
		pthread_mutex_unlock(&standin.api);
		return CUDA_INVALID_CONTEXT;
	}
	if (--standin.contexts == 0)
		device_end();
	pthread_mutex_unlock(&standin.api);
	return 0;
}

static cuda_result do_context_set(struct cuda_context *context)
{
	ENTER(context_set, false);
	if (context && context != (struct cuda_context *)&standin)
		return CUDA_INVALID_CONTEXT;
	current = context != NULL;
	return 0;
}

static cuda_result do_context_get(struct cuda_context **context)
{
	ENTER(context_get, false);
	*context = current ? (struct cuda_context *)&standin : NULL;
	return 0;
}

static cuda_result do_context_device(int32_t *device)
{
	ENTER(context_device, true);
	*device = 0;
	return 0;
}

/* The look-up of the driver: a call in the form of the version that is asked for. */
PUBLIC cuda_result cuGetProcAddress_v2(const char *name, void **call, int32_t version,
				       uint64_t flags, int32_t *status);

cuda_result cuGetProcAddress_v2(const char *name, void **call, int32_t version, uint64_t flags,
				int32_t *status)
{
	const struct call *c = call_of(name);

	(void)flags;
	if (!table.init) {
		fill_memory_calls(&table);
		fill_stream_calls(&table);
		table.version = do_version;
		table.error_name = do_error_name;
		table.device_count = do_device_count;
		table.device = do_device;
		table.device_name = do_device_name;
		table.device_memory = do_device_memory;
		table.device_attribute = do_device_attribute;
		table.context_retain = do_context_retain;
		table.context_release = do_context_release;
		table.context_set = do_context_set;
		table.context_get = do_context_get;
		table.context_device = do_context_device;
		table.init = do_init;
	}
	*call = NULL;
	if (c && version >= c->version && version_said() >= c->version)
		*call = ((void **)&table)[c - calls];
	if (!c)
		*call = launch_call(name);
	if (status)
		*status = *call ? 0 : 1;
	return *call ? 0 : CUDA_NOT_FOUND;
}
