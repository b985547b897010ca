/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold tables by memkind; see cold.h. The library's own types are opaque and its kinds are
 * variables of it, so that nothing of it is needed to build.
 */
#include "tierd/cold.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libmemkind.so.0"

struct cold {
	void *kind;
	void *(*calloc)(void *kind, size_t count, size_t bytes);
	void (*free)(void *kind, void *memory);
	size_t (*usable)(void *kind, void *memory);
	int (*check_available)(void *kind);
	uint64_t bytes;
};

static int load(struct cold *d, const char *variable)
{
	/* It stays: its threads and tables do, too. */
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void **kind;

	if (!library)
		return -ENOSYS;
	*(void **)&d->calloc = dlsym(library, "memkind_calloc");
	*(void **)&d->free = dlsym(library, "memkind_free");
	*(void **)&d->usable = dlsym(library, "memkind_malloc_usable_size");
	*(void **)&d->check_available = dlsym(library, "memkind_check_available");
	kind = dlsym(library, variable);
	if (!d->calloc || !d->free || !d->usable || !d->check_available || !kind)
		return -ENOSYS;
	d->kind = *kind;
	return d->check_available(d->kind) ? -ENODEV : 0;
}

int cold_open(struct cold **out, const char *kind)
{
	const char *variable = !strcmp(kind, "capacity") ? "MEMKIND_HIGHEST_CAPACITY" :
			       !strcmp(kind, "dax-kmem") ? "MEMKIND_DAX_KMEM" : NULL;
	struct cold *d;
	int rc;

	if (!variable)
		return -ENOENT;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	rc = load(d, variable);
	if (rc) {
		free(d);
		return rc;
	}
	*out = d;
	return 0;
}

void cold_close(struct cold *d)
{
	free(d);
}

static void *cold_alloc(void *arg, size_t count, size_t bytes)
{
	struct cold *d = arg;
	void *memory = d->calloc(d->kind, count, bytes);

	d->bytes += memory ? d->usable(d->kind, memory) : 0;
	return memory;
}

static void cold_free(void *arg, void *memory)
{
	struct cold *d = arg;

	if (!memory)
		return;
	d->bytes -= d->usable(d->kind, memory);
	d->free(d->kind, memory);
}

struct core_cold cold_memory(struct cold *d)
{
	return (struct core_cold){ d, cold_alloc, cold_free };
}

const uint64_t *cold_bytes(const struct cold *d)
{
	return &d->bytes;
}
