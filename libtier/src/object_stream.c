/*
 * Weights part by part (tier_object.h): the objects NAME/0000 ... that `tier import` made, brought
 * ahead of the reader within a window. What the daemon hears needs no answer: which parts are next,
 * and, as each is let go, which of those that were read is read again last (Belady's order).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/abi/object.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "libtier/base/time.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/object.h"
#include "libtier/src/options.h"

#define TABLE_MAX (64u << 20)
#define WINDOW_BYTES (128u << 20)
#define NAME_ROOM 16u /* for "/tensors" or a part's number */
#define NEVER UINT32_MAX

struct part {
	uint64_t bytes;
	uint64_t due; /* step at which it is read again; 0: it is not here */
	uint32_t layer;
	bool told; /* to leave first */
};

struct step {
	uint32_t part;
	uint32_t again; /* so many steps until its part is read again; NEVER */
};

struct tier_object_stream {
	struct tier *t;
	const uint32_t *alive;
	uint64_t window;
	uint32_t flags;
	uint32_t parts, steps;
	struct step *step; /* of a pass */
	uint64_t next, asked; /* steps that were given, asked for; over all passes */
	struct tier_object_part at; /* data NULL = none */
	char context[ABI_NAME_BYTES], name[ABI_OBJECT_NAME_BYTES];
	struct part part[];
};

static struct step *step_at(const struct tier_object_stream *s, uint64_t number)
{
	return &s->step[number % s->steps];
}

static void name_part(const struct tier_object_stream *s, uint32_t part,
		      char out[ABI_OBJECT_NAME_BYTES])
{
	snprintf(out, ABI_OBJECT_NAME_BYTES, "%.*s/%04u",
		 (int)(ABI_OBJECT_NAME_BYTES - NAME_ROOM), s->name, part);
}

/* Without an answer: what does not arrive costs time, no more. */
static void hint(const struct tier_object_stream *s, uint32_t part, uint32_t flags)
{
	struct wire_object q = { .header.type = WIRE_OBJ_HINT, .flags = flags };
	struct tier *t = s->t;

	memcpy(q.context, s->context, sizeof(q.context));
	name_part(s, part, q.name);
	LOCK_SCOPE(&t->wire);
	if (attach_ensure_wired(t) == 0)
		socket_send(&connection_attachment(t)->socket, &q.header, sizeof(q),
			    time_now_ns() + NS_PER_MS);
}

/* ---- open ---------------------------------------------------------------------------------- */

/* "tier weights 1 PARTS", then "part NUMBER LAYER BYTES" of each in order; tensors follow. */
static int take_parts(const char *text, struct tier_object_stream **out)
{
	struct tier_object_stream *s;
	uint32_t parts, number;
	int used = 0;

	if (sscanf(text, "tier weights 1 %" SCNu32 "%n", &parts, &used) != 1 || !used ||
	    parts == 0 || parts > TIER_OBJECT_PARTS_MAX)
		return -EBADMSG;
	s = calloc(1, sizeof(*s) + parts * sizeof(s->part[0]));
	if (!s)
		return -ENOMEM;
	s->parts = parts;
	for (uint32_t i = 0; i < parts; i++) {
		text += used;
		used = 0;
		if (sscanf(text, " part %" SCNu32 " %" SCNu32 " %" SCNu64 "%n", &number,
			   &s->part[i].layer, &s->part[i].bytes, &used) != 3 ||
		    !used || number != i) {
			free(s);
			return -EBADMSG;
		}
	}
	*out = s;
	return 0;
}

static int read_table(tier *t, const char *context, const char *name,
		      struct tier_object_stream **out)
{
	char table[ABI_OBJECT_NAME_BYTES];
	char *text CLEANUP_FREE = NULL;
	int fd CLEANUP_CLOSE = -1;
	struct stat st;
	int rc;

	snprintf(table, sizeof(table), "%s/tensors", name);
	fd = tier_object_open(t, context, table, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || st.st_size > TABLE_MAX)
		return error_note(-EBADMSG, "tier_object_stream_open: a table of tensors that no "
					    "import makes");
	text = calloc(1, (size_t)st.st_size + 1);
	if (!text)
		return error_note(-ENOMEM, "tier_object_stream_open: out of memory");
	rc = file_read(fd, text, (size_t)st.st_size, 0);
	if (rc == 0)
		rc = take_parts(text, out);
	return rc ? error_set(rc, "tier_object_stream_open: %s is no table of tensors", table) : 0;
}

static void free_stream(struct tier_object_stream *s)
{
	free(s->step);
	free(s);
}

/* Each pass' order: as it is told, or part after part. */
static int take_order(struct tier_object_stream *s, const struct tier_object_stream_options *o)
{
	uint32_t *seen CLEANUP_FREE = calloc(s->parts, sizeof(*seen)); /* 1 + its nearest step */

	s->steps = o->order_count ? o->order_count : s->parts;
	s->step = calloc(s->steps, sizeof(s->step[0]));
	if (!seen || !s->step)
		return error_note(-ENOMEM, "tier_object_stream_open: out of memory");
	for (uint32_t i = 0; i < s->steps; i++) {
		s->step[i].part = o->order_count ? o->order[i] : i;
		if (s->step[i].part >= s->parts)
			return error_set(-EINVAL, "tier_object_stream_open: step %u of the order "
						  "names part %u of %u", i, s->step[i].part,
					 s->parts);
	}
	/* Backwards; twice, if the first step is behind the last one. */
	for (uint32_t k = s->flags & TIER_OBJECT_STREAM_AGAIN ? 2 * s->steps : s->steps; k--;) {
		struct step *step = step_at(s, k);
		uint32_t at = seen[step->part];

		step->again = at ? at - 1 - k : NEVER;
		seen[step->part] = k + 1;
	}
	return 0;
}

static bool options_wrong(const struct tier_object_stream_options *o)
{
	return o->flags & ~TIER_OBJECT_STREAM_AGAIN || o->order_count > TIER_OBJECT_STEPS_MAX ||
	       !o->order != !o->order_count;
}

int tier_object_stream_open(tier *t, const char *context, const char *name,
			    const struct tier_object_stream_options *options,
			    tier_object_stream **out)
{
	struct tier_object_stream_options o;
	struct tier_object_stream *s = NULL;
	int rc = connection_check(t);

	if (rc == 0)
		rc = options_read(&o, sizeof(o), options);
	if (rc == 0 && (!out || !context || !name ||
			strlen(name) + NAME_ROOM > ABI_OBJECT_NAME_BYTES || options_wrong(&o)))
		rc = error_note(-EINVAL, "tier_object_stream_open: no name or one of more than "
					 "239 bytes, nowhere to put it, an unknown flag, or an "
					 "order of no or too many steps");
	if (rc == 0)
		rc = read_table(t, context, name, &s);
	if (rc)
		return rc;
	s->flags = o.flags;
	rc = take_order(s, &o);
	if (rc) {
		free_stream(s);
		return rc;
	}
	s->t = t;
	s->alive = t->alive;
	s->window = o.window_bytes ? o.window_bytes : WINDOW_BYTES;
	memcpy(s->context, context, strlen(context)); /* it was asked with: it fits */
	memcpy(s->name, name, strlen(name));
	*out = s;
	return 0;
}

/* ---- read ---------------------------------------------------------------------------------- */

static bool at_end(const struct tier_object_stream *s, uint64_t number)
{
	return number >= s->steps && !(s->flags & TIER_OBJECT_STREAM_AGAIN);
}

/* The next one, and what of those behind it the window has room for. */
static void ask_ahead(struct tier_object_stream *s)
{
	uint64_t bytes = 0, end = s->next;

	for (; end < s->next + s->steps && !at_end(s, end); end++) {
		bytes += s->part[step_at(s, end)->part].bytes;
		if (bytes > s->window && end > s->next)
			break;
	}
	if (s->asked < s->next)
		s->asked = s->next;
	for (; s->asked < end; s->asked++)
		hint(s, step_at(s, s->asked)->part, 0);
}

static bool is_here(const struct tier_object_stream *s, uint32_t part)
{
	struct tier_object_info info;
	char name[ABI_OBJECT_NAME_BYTES];

	name_part(s, part, name);
	return tier_object_stat(s->t, s->context, name, &info) == 0 &&
	       info.flags & TIER_OBJECT_RESIDENT;
}

/*
 * Of what was read and is here, who is read again last makes room first; not who was asked for
 * already. In the order of layers that is the part that was just read.
 */
static void pass_on(struct tier_object_stream *s)
{
	struct part *own = &s->part[s->at.part], *last;
	uint32_t again = step_at(s, s->next - 1)->again;

	own->due = again == NEVER ? UINT64_MAX : s->next - 1 + again;
	own->told = false;
	for (;;) {
		last = own;
		for (uint32_t i = 0; i < s->parts; i++)
			if (s->part[i].due > last->due)
				last = &s->part[i];
		if (last == own || is_here(s, (uint32_t)(last - s->part)))
			break;
		last->due = 0;
	}
	if (last->due < s->asked || last->told)
		return;
	last->told = true;
	hint(s, (uint32_t)(last - s->part), WIRE_OBJ_LAST);
}

static void let_go(struct tier_object_stream *s)
{
	if (!s->at.data)
		return;
	if (s->at.bytes)
		munmap((void *)(uintptr_t)s->at.data, s->at.bytes);
	close(s->at.fd);
	s->at.data = NULL;
	pass_on(s);
}

static int map_part(struct tier_object_stream *s, uint32_t part, int fd)
{
	struct stat st;
	void *at = s; /* of an empty one: never read */

	if (fstat(fd, &st) || (uint64_t)st.st_size != s->part[part].bytes)
		return error_note(-ESTALE, "tier_object_stream_next: it was imported anew "
					   "meanwhile; open the stream again");
	if (st.st_size)
		at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return error_set(-errno, "tier_object_stream_next: it cannot be mapped: %s",
				 strerror(errno));
	s->at = (struct tier_object_part){ .data = at, .bytes = (uint64_t)st.st_size,
					   .part = part, .layer = s->part[part].layer, .fd = fd };
	return 0;
}

int tier_object_stream_next(tier_object_stream *s, uint64_t deadline_ns,
			    struct tier_object_part *out)
{
	char name[ABI_OBJECT_NAME_BYTES];
	uint32_t part;
	int fd, rc;

	if (!s || !out)
		return error_note(-EINVAL, "tier_object_stream_next: no stream, or no out");
	if (connection_orphaned(s->alive))
		return error_note(-EOWNERDEAD, "object: it is the parent's; open one here");
	let_go(s);
	if (at_end(s, s->next))
		return -ENODATA;
	part = step_at(s, s->next)->part;
	ask_ahead(s);
	name_part(s, part, name);
	fd = tier_object_open(s->t, s->context, name, deadline_ns);
	if (fd < 0)
		return fd;
	rc = map_part(s, part, fd);
	if (rc) {
		close(fd);
		return rc;
	}
	s->next++;
	ask_ahead(s);
	*out = s->at;
	return 0;
}

int tier_object_stream_ready(tier_object_stream *s)
{
	struct tier_object_info info;
	char name[ABI_OBJECT_NAME_BYTES];
	int ready = 0, rc = 0;

	if (!s)
		return error_note(-EINVAL, "tier_object_stream_ready: no stream");
	if (connection_orphaned(s->alive))
		return error_note(-EOWNERDEAD, "object: it is the parent's; open one here");
	for (uint64_t i = s->next; i < s->asked; i++, ready++) {
		name_part(s, step_at(s, i)->part, name);
		rc = tier_object_stat(s->t, s->context, name, &info);
		if (rc || !(info.flags & TIER_OBJECT_RESIDENT))
			break;
	}
	return rc ? rc : ready;
}

void tier_object_stream_close(tier_object_stream *s)
{
	if (!s || connection_orphaned(s->alive))
		return;
	let_go(s);
	free_stream(s);
}
