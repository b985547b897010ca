/* SPDX-License-Identifier: Apache-2.0 */
/* Questions as they come, lists, and what is told of the whole; object.c goes on with the rest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/object/index.h"

/* ---- questions ----------------------------------------------------------------------------- */

static void take_names(struct task *t, const struct wire_object *m)
{
	t->name_bytes = (uint32_t)strnlen(m->name, sizeof(m->name) - 1);
	t->other_bytes = (uint32_t)strnlen(m->other, sizeof(m->other) - 1);
	memcpy(t->name, m->name, t->name_bytes);
	memcpy(t->other, m->other, t->other_bytes);
}

static bool writes(uint16_t type)
{
	return type != WIRE_OBJ_OPEN && type != WIRE_OBJ_STAT && type != WIRE_OBJ_INDEX;
}

static void ask_abort(struct objects *o, struct task *t, uint64_t id)
{
	struct upload *u = upload_find(o, t, id);

	if (!u || u->busy) {
		task_fail(o, t, -ESTALE, "there is no such upload any more");
		return;
	}
	upload_drop(o, u);
	t->answer->done = true;
	task_end(o, t);
}

static void raise_epoch(struct objects *o, struct object_account *a, uint64_t epoch)
{
	if (a->epoch >= epoch)
		return;
	a->epoch = epoch;
	index_drop(o, a);
}

/* The context's, with what its owner set last. NULL: no memory. */
static struct object_account *account_of(struct objects *o, const struct object_ask *ask)
{
	struct object_account *a = object_account(&o->table, ask->context);

	o->now_ns = time_now_ns();
	o->wall_ms = time_wall_ms();
	if (!a)
		return NULL;
	memcpy(a->quota, ask->quota, sizeof(a->quota));
	raise_epoch(o, a, ask->epoch);
	return object_own(&o->table, a, ask->owner) ? NULL : a;
}

void step_index(struct objects *o, struct task *t)
{
	int fd = index_share(o, t->account, &t->answer->info.size);

	if (fd == -EAGAIN) {
		t->stage = TASK_BLOCKED;
		return;
	}
	if (fd < 0) {
		task_fail(o, t, fd, "there is no memory for an index of names");
		return;
	}
	t->answer->fd = fd;
	task_end(o, t);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t room(uint64_t most, uint64_t used)
{
	return most > used ? most - used : 0;
}

/* Of the context, and of the tier: either may be smaller than what it has by now. */
static void ask_room(struct objects *o, struct task *t)
{
	struct wire_object_info *i = &t->answer->info;
	uint64_t quota = t->account->quota[OBJECT_NVME];
	uint64_t most = o->table.most[OBJECT_NVME];

	i->limit = least(quota, most);
	i->free = least(room(quota, t->account->used[OBJECT_NVME]),
			room(most, o->table.used[OBJECT_NVME]));
	task_end(o, t);
}

void objects_hold(struct objects *o, uint64_t context, const struct wire_object_hold *m)
{
	const struct object_account *a = object_account_find(&o->table, context);

	if (a)
		index_hold(o, a, m);
	o->stats.passed += m->passed == 1;
}

int objects_ask(struct objects *o, const struct object_ask *ask)
{
	const struct wire_object *m = ask->message;
	uint64_t wait_ns = m->wait_ns ? m->wait_ns : o->config.wait_ns;
	struct task *t = task_new(o, m->header.type, true);

	if (!t)
		return -ENOMEM;
	t->answer->who = ask->who;
	t->account = account_of(o, ask);
	t->context = ask->context;
	t->epoch = ask->epoch;
	t->uid = ask->uid;
	t->limited = ask->limited;
	t->flags = m->flags;
	t->mode = m->mode;
	t->priority = m->priority;
	t->ttl_ms = m->ttl_ms;
	t->upload_id = m->upload;
	t->mtime_ns = m->mtime_ns;
	t->deadline_ns = wait_ns < UINT64_MAX - o->now_ns ? o->now_ns + wait_ns : UINT64_MAX;
	take_names(t, m);
	if (!t->account) {
		task_fail(o, t, -ENOMEM, "out of memory");
		return 0;
	}
	if (writes(t->type) && !ask->writable)
		task_fail(o, t, -EACCES, "these credentials may only read this context");
	else if (t->type == WIRE_OBJ_ABORT)
		ask_abort(o, t, m->upload);
	else if (t->type == WIRE_OBJ_INDEX)
		step_index(o, t);
	else if (t->type == WIRE_OBJ_STAT && !t->name_bytes)
		ask_room(o, t);
	else
		task_step(o, t);
	return 0;
}

#define PROMISE_NS (5 * NS_PER_S)

void objects_hint(struct objects *o, const struct object_ask *ask)
{
	const struct wire_object *m = ask->message;
	struct object_account *a = account_of(o, ask);
	struct object *x = object_find(&o->table, ask->context, m->name,
				       (uint32_t)strnlen(m->name, sizeof(m->name) - 1));

	if (!a || !x || x->epoch != ask->epoch || lapsed(o, x))
		return;
	if (m->flags & WIRE_OBJ_LAST) {
		object_leave_next(&o->table, x);
		return;
	}
	if (x->state == OBJECT_STORED &&
	    make_room_of(o, a, 0, object_charge(x->size), o->now_ns) == 0)
		start_bring(o, x); /* if not, the open does it */
	object_touch(&o->table, x);
	x->promised_ns = o->now_ns + PROMISE_NS;
}

static bool begins(const struct object *x, const char *prefix, uint32_t bytes)
{
	return x->name_bytes >= bytes && memcmp(x->name, prefix, bytes) == 0;
}

/* Where the list goes on behind x; flat: behind all of the folder that x lies in. */
static const struct object *next_of(const struct objects *o, const struct object *x, bool flat,
				    uint32_t prefix)
{
	const char *slash = flat ? memchr(x->name + prefix, '/', x->name_bytes - prefix) : NULL;
	char behind[ABI_OBJECT_NAME_BYTES];
	uint32_t bytes;

	if (!slash)
		return object_next(&o->table, x->context, x->name, x->name_bytes, false);
	bytes = (uint32_t)(slash - x->name) + 1;
	memcpy(behind, x->name, bytes);
	behind[bytes - 1] = '/' + 1;
	return object_next(&o->table, x->context, behind, bytes, true);
}

static size_t put_name(struct wire_object_name *n, const struct object *x)
{
	size_t padded = (sizeof(*n) + x->name_bytes + 7) & ~(size_t)7;

	memset(n, 0, padded);
	n->size = x->size;
	n->mtime_ns = x->mtime_ns;
	n->flags = x->state == OBJECT_RESIDENT ? WIRE_OBJ_RESIDENT : 0;
	n->name_bytes = x->name_bytes;
	memcpy(n + 1, x->name, x->name_bytes);
	return padded;
}

#define LIST_STEPS 4096u

size_t objects_list(struct objects *o, const struct object_ask *ask, struct wire_object_names *out,
		    char looked[ABI_OBJECT_NAME_BYTES])
{
	const struct wire_object *m = ask->message;
	uint32_t prefix = (uint32_t)strnlen(m->name, sizeof(m->name) - 1), steps = 0;
	uint32_t after = (uint32_t)strnlen(m->other, sizeof(m->other) - 1);
	bool flat = m->flags & WIRE_OBJ_FLAT;
	bool from_prefix = after == 0 || memcmp(m->other, m->name, prefix) < 0;
	const struct object *x = object_next(&o->table, ask->context,
					     from_prefix ? m->name : m->other,
					     from_prefix ? prefix : after, from_prefix);
	size_t bytes = sizeof(*out), room = WIRE_MESSAGE_MAX - ABI_OBJECT_NAME_BYTES -
					    sizeof(struct wire_object_name);

	account_of(o, ask);
	for (; x && begins(x, m->name, prefix); x = next_of(o, x, flat, prefix)) {
		if (bytes > room || (m->count && out->count >= m->count) ||
		    (out->count && steps >= LIST_STEPS)) {
			out->more = 1;
			break;
		}
		if (steps++ >= LIST_STEPS) {
			memcpy(looked, x->name, x->name_bytes);
			looked[x->name_bytes] = '\0';
			return 0;
		}
		if (x->epoch != ask->epoch || lapsed(o, x) ||
		    (flat && memchr(x->name + prefix, '/', x->name_bytes - prefix)))
			continue;
		bytes += put_name((void *)((char *)out + bytes), x);
		out->count++;
	}
	return bytes;
}

void objects_context_changed(struct objects *o, uint64_t context, uint64_t epoch)
{
	struct object_account *a = object_account_find(&o->table, context);

	if (a)
		raise_epoch(o, a, epoch);
}

void objects_context_gone(struct objects *o, uint64_t context)
{
	struct object_account *a = object_account_find(&o->table, context);

	if (!a)
		return;
	raise_epoch(o, a, UINT64_MAX);
	list_remove(&a->gone);
	list_push_back(&o->gone, &a->gone);
}

/* ---- accounts ------------------------------------------------------------------------------ */

void objects_stats(const struct objects *o, struct objects_stats *out)
{
	*out = o->stats;
	out->objects = o->table.objects;
	out->resident = o->table.resident;
	out->uploads = o->upload_count;
	out->accounts = o->table.accounts;
	memcpy(out->used, o->table.used, sizeof(out->used));
	memcpy(out->most, o->table.most, sizeof(out->most));
	out->memory = o->table.bytes +
		      o->upload_count * (sizeof(struct upload) + sizeof(struct task) +
					 sizeof(struct object_answer));
	list_each(at, &o->table.held)
		out->held += object_charge(list_entry(at, struct object, link)->size);
}
