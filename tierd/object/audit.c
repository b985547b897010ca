/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recount of objects for `tierctl check`: the table's own sums, and what the host has of each
 * version. It changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tierd/object/index.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct audit {
	void (*tell)(void *arg, const char *what);
	void *arg;
	uint64_t wrong;
};

static void say(struct audit *a, const struct object *x, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void say(struct audit *a, const struct object *x, const char *format, ...)
{
	char text[256], what[128];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	snprintf(text, sizeof(text), "object %.*s, version %llu: %s",
		 (int)(x->name_bytes < 80 ? x->name_bytes : 80), x->name,
		 (unsigned long long)x->version, what);
	a->tell(a->arg, text);
	a->wrong++;
}

/* Whoever has it open reads this very memory. */
static void look_at_memory(struct audit *a, const struct object *x)
{
	struct stat st;

	if (x->fd < 0)
		return;
	if (fstat(x->fd, &st))
		say(a, x, "its memory cannot be looked at: %s", strerror(errno));
	else if ((uint64_t)st.st_size != x->size)
		say(a, x, "its memory has %lld bytes, not %llu", (long long)st.st_size,
		    (unsigned long long)x->size);
	else if ((fcntl(x->fd, F_GET_SEALS) & SEALS) != SEALS)
		say(a, x, "its memory is not sealed");
}

static void look_at_file(struct audit *a, const struct objects *o, const struct object *x)
{
	struct stat st;
	int rc = object_files_look(o->files, x->version, &st);

	if (rc)
		say(a, x, "its file cannot be looked at: %s", strerror(-rc));
	else if ((uint64_t)st.st_size != x->size)
		say(a, x, "its file has %lld bytes, not %llu", (long long)st.st_size,
		    (unsigned long long)x->size);
	else if ((uint64_t)st.st_blocks * 512 > object_charge(x->size))
		say(a, x, "its file takes %lld bytes, and is charged for %llu",
		    (long long)st.st_blocks * 512, (unsigned long long)object_charge(x->size));
}

uint64_t objects_audit(struct objects *o, void (*tell)(void *arg, const char *what),
		       void *arg)
{
	struct audit a = { .tell = tell, .arg = arg };
	uint64_t extra[OBJECT_TIERS] = { [OBJECT_CXL] = index_charged(o) };

	list_each(at, &o->uploads)
		extra[OBJECT_CXL] += list_entry(at, struct upload, link)->charged;
	list_each(at, &o->tasks) {
		extra[OBJECT_NVME] += list_entry(at, struct task, link)->reserved;
		extra[OBJECT_CXL] += list_entry(at, struct task, link)->charged;
	}
	for (uint32_t i = 0; i < OBJECTS_LOOKED_MAX; i++) {
		const struct object *x = object_walk(&o->table, &o->audited);

		if (!x)
			break;
		look_at_memory(&a, x);
		look_at_file(&a, o, x);
	}
	list_each(at, &o->table.held)
		look_at_memory(&a, list_entry(at, struct object, link));
	return a.wrong + object_audit(&o->table, extra, tell, arg);
}
