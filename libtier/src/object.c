/*
 * Objects: questions on the daemon's socket, and descriptors that come with the answers. No handle
 * but those of uploads: an object's name is all there is to it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "libtier/abi/object.h"
#include "libtier/base/time.h"
#include "libtier/src/attach.h"
#include "libtier/src/context.h"
#include "libtier/src/error.h"
#include "libtier/src/object.h"
#include "libtier/src/options.h"

#define LIST_MAX 65536u

struct tier_object {
	struct tier *t;
	struct list link; /* tier.objects */
	const uint32_t *alive;
	uint64_t attachment; /* number: an upload ends with its connection */
	uint64_t upload;
	struct wire_object begin; /* how it was asked for */
	int fd;
};

/* ---- questions ------------------------------------------------------------------------------- */

static int set_text(char *field, size_t bytes, const char *text, const char *what)
{
	size_t length = text ? strnlen(text, bytes) : 0;

	if (length == bytes)
		return error_set(-EINVAL, "object: %s has %zu bytes or more", what, bytes);
	if (length)
		memcpy(field, text, length);
	return 0;
}

static int set_names(struct wire_object *q, const char *context, const char *name)
{
	int rc = set_text(q->context, sizeof(q->context), context, "the context's name");

	if (rc == 0)
		rc = set_text(q->name, sizeof(q->name), name, "the name");
	if (rc == 0 && !q->context[0])
		rc = error_note(-EINVAL, "object: no context is named");
	if (rc == 0 && !q->name[0] && q->header.type != WIRE_OBJ_LIST)
		rc = error_note(-EINVAL, "object: its name is empty");
	return rc;
}

/* Ask, with the connection's lock held; the answer is in t->message. */
static int ask(struct tier *t, struct wire_object *q, uint16_t answer) REQUIRES(t->wire)
{
	int rc = attach_ensure_wired(t);

	return rc ? rc : attach_ask(t, &q->header, sizeof(*q), answer);
}

static int order(struct tier *t, struct wire_object *q)
{
	int rc;

	LOCK_SCOPE(&t->wire);
	rc = ask(t, q, WIRE_DONE);
	if (rc == 0)
		message_drop(t->message);
	return rc;
}

/* INFO, and the descriptor that must come with it. Negative, or the descriptor. */
static int ask_fd(struct tier *t, struct wire_object *q, struct wire_object_info *info)
	REQUIRES(t->wire)
{
	int rc = ask(t, q, WIRE_OBJ_INFO), fd;

	if (rc)
		return rc;
	memcpy(info, t->message->bytes, sizeof(*info));
	fd = message_take_fd(t->message, 0);
	message_drop(t->message);
	return fd < 0 ? error_note(-EPROTO, "object: the answer carries no descriptor") : fd;
}

int tier_object_context(tier *t, const char *name, const struct tier_context_options *options)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_CREATE };
	int rc = connection_check(t);

	if (rc == 0)
		rc = context_question(&q, name, options);
	if (rc)
		return rc;
	q.flags |= WIRE_CTX_OBJECTS;
	LOCK_SCOPE(&t->wire);
	rc = attach_ensure_wired(t);
	if (rc == 0)
		rc = attach_ask(t, &q.header, sizeof(q), WIRE_DONE);
	if (rc == 0)
		message_drop(t->message);
	return rc;
}

/* ---- read ------------------------------------------------------------------------------------ */

int tier_object_open(tier *t, const char *context, const char *name, uint64_t deadline_ns)
{
	struct wire_object q = { .header.type = WIRE_OBJ_OPEN };
	struct wire_object_info info;
	uint64_t now = time_now_ns();
	int rc = connection_check(t);

	if (rc == 0)
		rc = set_names(&q, context, name);
	if (rc)
		return rc;
	if (deadline_ns)
		q.wait_ns = deadline_ns > now ? deadline_ns - now : 1;
	LOCK_SCOPE(&t->wire);
	return ask_fd(t, &q, &info);
}

int tier_object_stat(tier *t, const char *context, const char *name, struct tier_object_info *out)
{
	struct wire_object q = { .header.type = WIRE_OBJ_STAT };
	struct wire_object_info info;
	int rc = connection_check(t);

	if (rc == 0 && !out)
		rc = error_note(-EINVAL, "tier_object_stat: out is NULL");
	if (rc == 0)
		rc = set_names(&q, context, name);
	if (rc)
		return rc;
	LOCK_SCOPE(&t->wire);
	rc = ask(t, &q, WIRE_OBJ_INFO);
	if (rc)
		return rc;
	memcpy(&info, t->message->bytes, sizeof(info));
	message_drop(t->message);
	*out = (struct tier_object_info){
		.size = info.size,
		.mtime_ns = info.mtime_ns,
		.expires_ms = info.expires_ms,
		.version = info.version,
		.mode = info.mode,
		.priority = info.priority,
		.flags = info.flags & (TIER_OBJECT_RESIDENT | TIER_OBJECT_PENDING),
	};
	return 0;
}

/* Entries of one answer. The daemon's words are judged like anybody's. */
static int64_t take_names(const struct message *m, struct tier_object_entry *list, uint32_t count)
{
	const struct wire_object_names *head = (const void *)m->bytes;
	size_t at = sizeof(*head), end = m->header.length;
	uint32_t n = 0;

	for (; n < head->count && n < count; n++) {
		struct wire_object_name one;

		if (at + sizeof(one) > end)
			break;
		memcpy(&one, m->bytes + at, sizeof(one));
		if (one.name_bytes == 0 || one.name_bytes >= sizeof(list->name) ||
		    one.name_bytes > end - at - sizeof(one))
			return error_note(-EPROTO, "object: a list with a name that cannot be");
		memset(&list[n], 0, sizeof(list[n]));
		memcpy(list[n].name, m->bytes + at + sizeof(one), one.name_bytes);
		list[n].size = one.size;
		list[n].mtime_ns = one.mtime_ns;
		list[n].flags = one.flags;
		at += (sizeof(one) + one.name_bytes + 7) & ~(size_t)7;
	}
	return n;
}

int64_t tier_object_list(tier *t, const char *context, const char *prefix, const char *after,
			 struct tier_object_entry *list, uint32_t count)
{
	struct wire_object q = { .header.type = WIRE_OBJ_LIST };
	int64_t total = 0, n;
	int rc = connection_check(t);
	bool more = true;

	if (rc == 0 && (!list || count > LIST_MAX))
		rc = error_note(-EINVAL, "tier_object_list: no list, or one of more than 65536");
	if (rc == 0)
		rc = set_names(&q, context, prefix);
	if (rc == 0)
		rc = set_text(q.other, sizeof(q.other), after, "the cursor");
	if (rc)
		return rc;
	LOCK_SCOPE(&t->wire);
	while (more && total < count) {
		q.count = count - (uint32_t)total;
		rc = ask(t, &q, WIRE_OBJ_NAMES);
		if (rc)
			return rc;
		n = take_names(t->message, list + total, q.count);
		more = ((const struct wire_object_names *)(const void *)t->message->bytes)->more;
		message_drop(t->message);
		if (n <= 0)
			return n ? n : total;
		total += n;
		memcpy(q.other, list[total - 1].name, sizeof(q.other));
	}
	return total;
}

/* ---- write ----------------------------------------------------------------------------------- */

static int set_options(struct wire_object *q, const struct tier_object_options *options)
{
	struct tier_object_options o;
	int rc = options_read(&o, sizeof(o), options);

	if (rc)
		return rc;
	if (o.flags & ~TIER_OBJECT_EXCLUSIVE || o.mode & ~0777u ||
	    o.priority > ABI_OBJECT_PRIORITY_MAX)
		return error_note(-EINVAL, "object: an unknown flag, a mode beyond 0777 or a "
					   "priority beyond 3");
	q->flags = o.flags & TIER_OBJECT_EXCLUSIVE ? WIRE_OBJ_EXCLUSIVE : 0;
	q->mode = o.mode;
	q->priority = o.priority;
	q->ttl_ms = (o.ttl_ns + NS_PER_MS - 1) / NS_PER_MS;
	return 0;
}

int tier_object_create(tier *t, const char *context, const char *name,
		       const struct tier_object_options *options, tier_object **out)
{
	struct wire_object q = { .header.type = WIRE_OBJ_CREATE };
	struct wire_object_info info;
	struct tier_object *o;
	int rc = connection_check(t);

	if (rc == 0 && !out)
		rc = error_note(-EINVAL, "tier_object_create: out is NULL");
	if (rc == 0)
		rc = set_names(&q, context, name);
	if (rc == 0)
		rc = set_options(&q, options);
	if (rc)
		return rc;
	o = calloc(1, sizeof(*o));
	if (!o)
		return error_note(-ENOMEM, "object: out of memory");
	o->t = t;
	o->alive = t->alive;
	o->begin = q;
	LOCK_SCOPE(&t->wire);
	o->fd = ask_fd(t, &q, &info);
	if (o->fd < 0) {
		rc = o->fd;
		free(o);
		return rc;
	}
	o->upload = info.upload;
	o->attachment = connection_attachment(t)->number;
	LOCK_SCOPE(&t->lock);
	list_push_back(&t->objects, &o->link);
	*out = o;
	return 0;
}

int tier_object_fd(const tier_object *o)
{
	return o ? o->fd : error_note(-EINVAL, "tier_object_fd: no object");
}

/* What lies between two holes; *at goes on to the second. */
static int copy_piece(int from, int to, off_t *at)
{
	off_t end = lseek(from, *at, SEEK_HOLE);

	if (end < 0 || lseek(to, *at, SEEK_SET) < 0)
		return -errno;
	while (*at < end) {
		ssize_t n = sendfile(to, from, at, (size_t)(end - *at));

		if (n <= 0)
			return n ? -errno : -EIO;
	}
	return 0;
}

static int copy_all(int from, int to)
{
	off_t at = 0, size = lseek(from, 0, SEEK_END);
	int rc = size < 0 || ftruncate(to, size) ? -errno : 0;

	while (rc == 0 && (at = lseek(from, at, SEEK_DATA)) >= 0)
		rc = copy_piece(from, to, &at);
	return rc || errno == ENXIO ? rc : -errno; /* there is no data behind it */
}

/* The daemon that had it is gone; its bytes are not: they become an upload of the one there is. */
static int upload_again(struct tier *t, struct tier_object *o) REQUIRES(t->wire)
{
	struct wire_object q = o->begin;
	struct wire_object_info info;
	int fd = ask_fd(t, &q, &info), rc;

	if (fd < 0)
		return fd;
	o->upload = info.upload;
	o->attachment = connection_attachment(t)->number;
	rc = copy_all(o->fd, fd);
	close(o->fd);
	o->fd = fd;
	return rc ? error_note(rc, "object: its bytes cannot be copied; write it again") : 0;
}

/* COMMIT or ABORT. One that was begun with a former daemon: that one has dropped it. */
static int end_upload(struct tier_object *o, uint16_t type, uint16_t answer)
{
	struct wire_object q = { .header.type = type };
	struct tier *t = o->t;
	int rc, lost = 0;

	memcpy(q.context, o->begin.context, sizeof(q.context));
	LOCK_SCOPE(&t->wire);
	rc = attach_ensure_wired(t);
	if (rc == 0 && connection_attachment(t)->number != o->attachment) {
		if (type == WIRE_OBJ_ABORT)
			return 0;
		lost = upload_again(t, o);
		if (lost && connection_attachment(t)->number != o->attachment)
			return lost;
		q.header.type = lost ? WIRE_OBJ_ABORT : type;
	}
	q.upload = o->upload;
	if (rc == 0)
		rc = ask(t, &q, lost ? WIRE_DONE : answer);
	if (rc == 0)
		message_drop(t->message);
	return lost ? lost : rc;
}

static void object_free(struct tier_object *o)
{
	{
		LOCK_SCOPE(&o->t->lock);
		list_remove(&o->link);
	}
	close(o->fd);
	free(o);
}

void object_drop_all(struct tier *t)
{
	list_each(at, &t->objects)
		object_free(list_entry(at, struct tier_object, link));
}

int tier_object_commit(tier_object *o)
{
	int rc;

	if (!o)
		return error_note(-EINVAL, "tier_object_commit: no object");
	if (connection_orphaned(o->alive))
		return error_note(-EOWNERDEAD, "object: it is the parent's; create one here");
	rc = end_upload(o, WIRE_OBJ_COMMIT, WIRE_OBJ_INFO);
	object_free(o);
	return rc;
}

void tier_object_abort(tier_object *o)
{
	if (!o || connection_orphaned(o->alive))
		return;
	end_upload(o, WIRE_OBJ_ABORT, WIRE_DONE);
	object_free(o);
}

int tier_object_remove(tier *t, const char *context, const char *name)
{
	struct wire_object q = { .header.type = WIRE_OBJ_REMOVE };
	int rc = connection_check(t);

	if (rc == 0)
		rc = set_names(&q, context, name);
	return rc ? rc : order(t, &q);
}

int tier_object_rename(tier *t, const char *context, const char *name, const char *to,
		       uint32_t flags)
{
	struct wire_object q = { .header.type = WIRE_OBJ_RENAME };
	int rc = connection_check(t);

	if (rc == 0)
		rc = set_names(&q, context, name);
	if (rc == 0)
		rc = set_text(q.other, sizeof(q.other), to, "the new name");
	if (rc == 0 && (!q.other[0] || flags & ~TIER_RENAME_EXCLUSIVE))
		rc = error_note(-EINVAL, "object: no new name, or an unknown flag");
	q.flags = flags & TIER_RENAME_EXCLUSIVE ? WIRE_OBJ_EXCLUSIVE : 0;
	return rc ? rc : order(t, &q);
}
