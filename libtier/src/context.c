/*
 * Contexts: create, open, close, remove, raise the epoch. All of it goes through the socket, one
 * question at a time; what a context is good for afterwards needs no daemon.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/time.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/submit.h"

#define CONTEXT_FDS (1 + ABI_MEM_TIERS)

/* ---- questions ------------------------------------------------------------------------------- */

static int set_name(struct wire_ctx *q, const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";
	size_t length = name ? strnlen(name, sizeof(q->name)) : 0;

	if (length == 0 || length == sizeof(q->name) || strspn(name, allowed) != length)
		return error_note(-EINVAL, "context: the name is not [A-Za-z0-9._-]{1,63}");
	memcpy(q->name, name, length);
	return 0;
}

static int set_options(struct wire_ctx *q, const struct tier_context_options *options)
{
	struct tier_context_options o;
	size_t length;
	int rc = options_read(&o, sizeof(o), options);

	if (rc)
		return rc;
	length = o.policy ? strnlen(o.policy, sizeof(q->policy)) : 0;
	if (o.flags & ~(TIER_CREATE_EXCLUSIVE | TIER_OPEN_FOREIGN))
		return error_set(-EINVAL, "context: flags %x are unknown", o.flags);
	if (o.mode & ~0666u)
		return error_set(-EINVAL, "context: mode %o has bits beyond 0666", o.mode);
	if (length == sizeof(q->policy))
		return error_set(-EINVAL, "context: the policy's name has %zu characters or more",
				 sizeof(q->policy));
	if (o.blocks_max >= ABI_SLOT_NONE)
		return error_note(-EINVAL, "context: blocks_max is beyond what an index holds");
	q->flags = (o.flags & TIER_CREATE_EXCLUSIVE ? WIRE_CTX_EXCLUSIVE : 0) |
		   (o.flags & TIER_OPEN_FOREIGN ? WIRE_CTX_FOREIGN : 0);
	q->mode = o.mode;
	q->blocks_max = o.blocks_max;
	memcpy(q->quota, o.quota, sizeof(q->quota));
	memcpy(q->fingerprint, o.fingerprint, sizeof(q->fingerprint));
	if (length > 0)
		memcpy(q->policy, o.policy, length);
	return 0;
}

int context_question(struct wire_ctx *q, const char *name,
		     const struct tier_context_options *options)
{
	int rc = set_name(q, name);

	return rc ? rc : set_options(q, options);
}

/* The daemon says the same of the quotas of memory. */
static int check_store_quota(const struct wire_ctx *q)
{
	uint64_t quota = q->quota[TIER_NVME];

	if (quota == 0 || quota >= q->geometry.block_bytes) /* TIER_QUOTA_NONE, too */
		return 0;
	return error_set(-ENOSPC, "context: the NVMe quota of %llu bytes is too small for a block "
				  "of %llu; raise it, or write TIER_QUOTA_NONE",
			 (unsigned long long)quota, (unsigned long long)q->geometry.block_bytes);
}

/* Take the lock for questions and make sure of a daemon; on error the lock is not held. */
static int wire_begin(struct tier *t) LOCK_ATTRIBUTE(try_acquire_capability(0, t->wire))
	LOCK_ATTRIBUTE(no_thread_safety_analysis)
{
	int rc;

	lock_acquire(&t->wire);
	rc = attach_ensure_wired(t);
	if (rc)
		lock_release(&t->wire);
	return rc;
}

/* ---- making handles -------------------------------------------------------------------------- */

/* The map that an answer describes. The message's descriptors are closed by the caller. */
static int map_answer(struct message *m, const struct attachment *a, struct map **out)
{
	const struct map_source source = {
		.info = &m->info,
		.fd = m->fd,
		.boot_token = a->boot_token,
		.number = a->number,
	};

	if (m->fd_count != CONTEXT_FDS)
		return error_set(-EPROTO, "context: the daemon's answer carries %u descriptors, "
					  "not %u", m->fd_count, CONTEXT_FDS);
	return map_open(out, &source);
}

static void context_free(struct tier_context *c)
{
	free(c->create);
	free(c);
}

/*
 * What this attachment has mapped of the context already, for another handle: no mapping, no
 * registration.
 */
static struct map *map_there(struct tier *t, struct attachment *a, const struct wire_ctx_info *info)
{
	LOCK_SCOPE(&t->lock);
	list_each(at, &a->maps) {
		struct map *m = list_entry(at, struct map, link);

		if (m->uid == info->uid && m->context_id == info->context_id && !m->lost &&
		    !map_closed(m) && m->writable == (info->writable != 0))
			return m;
	}
	return NULL;
}

bool context_has(const struct tier_context *c, const struct map *m)
{
	return m->owner == c || (m->shared && m->shared == c->shares);
}

static struct tier_context *context_new(struct tier *t, const struct wire_ctx *q,
					const struct map *m)
{
	struct tier_context *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->t = t;
	c->alive = t->alive;
	c->geometry.abi = m->geometry;
	memcpy(c->name, q->name, sizeof(c->name));
	memcpy(c->fingerprint, m->fingerprint, sizeof(c->fingerprint));
	if (q->header.type != WIRE_CTX_CREATE)
		return c;
	c->create = malloc(sizeof(*c->create));
	if (!c->create) {
		context_free(c);
		return NULL;
	}
	*c->create = *q;
	c->create->flags &= ~WIRE_CTX_EXCLUSIVE;
	return c;
}

/* Ask, map, and make a handle of it. */
static int context_obtain(struct tier *t, struct wire_ctx *q, tier_context **out)
	REQUIRES(t->wire)
{
	struct attachment *a = connection_attachment(t);
	struct tier_context *c;
	struct map *m, *there;
	uint32_t owner;
	int rc;

	if (!a->owners) {
		if (q->flags & WIRE_CTX_OWNED)
			return error_note(-ENOTSUP, "context: the daemon is older and does not "
						    "tell whose one is");
		q->flags &= ~WIRE_CTX_FOREIGN; /* which it does by itself */
	}
	rc = attach_ask(t, &q->header, sizeof(*q), WIRE_CTX_INFO);
	if (rc)
		return rc;
	a = connection_attachment(t);
	owner = t->message->info.owner;
	there = m = map_there(t, a, &t->message->info);
	if (!there)
		rc = map_answer(t->message, a, &m);
	message_drop(t->message);
	if (rc)
		return rc;
	c = context_new(t, q, m);
	if (!c) {
		if (!there)
			map_close(m);
		return error_note(-ENOMEM, "context: out of memory");
	}
	c->owner = owner;
	c->owned = a->owners;
	atomic_store_release_u64(&c->map_word, (uintptr_t)m);
	LOCK_SCOPE(&t->lock);
	if (there) {
		if (!m->shared)
			m->shared = ++t->last_shared;
		c->shares = m->shared;
		m->uses++;
	} else {
		m->owner = c;
		list_push_back(&a->maps, &m->link);
	}
	list_push_back(&t->contexts, &c->link);
	*out = c;
	return 0;
}

static int context_make(struct tier *t, struct wire_ctx *q, tier_context **out)
{
	int rc = wire_begin(t);

	if (rc)
		return rc;
	rc = context_obtain(t, q, out);
	lock_release(&t->wire);
	return rc;
}

int tier_context_create(tier *t, const char *name, const tier_geometry *g,
			const struct tier_context_options *options, tier_context **out)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_CREATE };
	int rc = connection_check(t);

	if (rc)
		return rc;
	if (!out || !g)
		return error_note(-EINVAL, "tier_context_create: geometry or out is NULL");
	*out = NULL;
	rc = context_question(&q, name, options);
	if (rc)
		return rc;
	q.geometry = g->abi;
	rc = check_store_quota(&q);
	return rc ? rc : context_make(t, &q, out);
}

static int context_find(tier *t, struct wire_ctx *q, const char *name,
			const uint8_t fingerprint[32], tier_context **out)
{
	int rc = connection_check(t);

	if (rc)
		return rc;
	if (!out)
		return error_note(-EINVAL, "tier_context_open: out is NULL");
	*out = NULL;
	rc = set_name(q, name);
	if (rc)
		return rc;
	if (fingerprint)
		memcpy(q->fingerprint, fingerprint, sizeof(q->fingerprint));
	return context_make(t, q, out);
}

int tier_context_open(tier *t, const char *name, const uint8_t fingerprint[32],
		      tier_context **out)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_OPEN };

	return context_find(t, &q, name, fingerprint, out);
}

int tier_context_open_of(tier *t, const char *name, uint32_t owner, const uint8_t fingerprint[32],
			 tier_context **out)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_OPEN, .flags = WIRE_CTX_OWNED,
			      .owner = owner };

	return context_find(t, &q, name, fingerprint, out);
}

int tier_context_owner(const tier_context *c, uint32_t *uid)
{
	int rc = context_check(c);

	if (rc)
		return rc;
	if (!uid)
		return error_note(-EINVAL, "tier_context_owner: uid is NULL");
	if (!c->owned)
		return error_note(-ENOTSUP, "context: the daemon is older and did not tell whose "
					    "it is");
	*uid = atomic_load_relaxed_u32(&c->owner);
	return 0;
}

/* ---- after a re-attach ----------------------------------------------------------------------- */

/* Ask the new daemon; it is not ours yet, so its errors are not the old one's. */
static int ask_new(struct tier *t, struct attachment *a, struct wire_ctx *q, uint64_t deadline_ns)
	REQUIRES(t->wire)
{
	int rc = socket_send(&a->socket, &q->header, sizeof(*q), deadline_ns);

	return rc ? rc : socket_receive(&a->socket, t->message, WIRE_CTX_INFO, deadline_ns);
}

static bool is_fatal(int error)
{
	return error == -ENOTCONN || error == -ETIMEDOUT || error == -ENOMEM ||
	       error == -EMFILE || error == -EPROTO;
}

int context_reopen(struct tier *t, struct tier_context *c, struct attachment *a,
		   uint64_t deadline_ns, struct map **out)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_OPEN };
	struct map *m = NULL;
	int rc;

	*out = NULL;
	memcpy(q.name, c->name, sizeof(q.name));
	memcpy(q.fingerprint, c->fingerprint, sizeof(q.fingerprint));
	if (c->owned && a->owners) { /* else what another user has made of its name meanwhile */
		q.flags = WIRE_CTX_OWNED;
		q.owner = c->owner;
	}
	rc = ask_new(t, a, &q, deadline_ns);
	if (rc == -ENOENT && c->create) {
		/* A daemon without a store forgets its contexts; who made one makes it again. */
		q = *c->create;
		if (!a->owners)
			q.flags &= ~WIRE_CTX_FOREIGN;
		rc = ask_new(t, a, &q, deadline_ns);
	}
	if (rc == 0) {
		atomic_store_relaxed_u32(&c->owner, t->message->info.owner);
		rc = map_answer(t->message, a, &m);
		message_drop(t->message);
	}
	if (rc)
		return is_fatal(rc) ? rc : 0;
	/* Another geometry under the same name is another context. */
	if (memcmp(&m->geometry, &c->geometry.abi, sizeof(m->geometry)) != 0) {
		map_close(m);
		return 0;
	}
	m->owner = c;
	*out = m;
	return 0;
}

/* ---- close ----------------------------------------------------------------------------------- */

static void drop_maps(struct attachment *a, const struct tier_context *c)
{
	list_each(at, &a->maps) {
		struct map *m = list_entry(at, struct map, link);

		if (!context_has(c, m))
			continue;
		if (m->owner == c)
			m->owner = NULL;
		if (!--m->uses)
			map_close(m);
	}
}

void tier_context_close(tier_context *c)
{
	struct tier *t;

	if (!c || connection_orphaned(c->alive))
		return;
	t = c->t;
	{
		LOCK_SCOPE(&t->wire);
		LOCK_SCOPE(&t->lock);
		list_remove(&c->link);
		again_forget_context(t, c);
		drop_maps(connection_attachment(t), c);
		list_each(at, &t->old)
			drop_maps(list_entry(at, struct attachment, link), c);
	}
	context_free(c);
}

/* ---- remove, epoch --------------------------------------------------------------------------- */

static int context_order(struct tier *t, struct wire_ctx *q, uint64_t *value)
{
	int rc = wire_begin(t);

	if (rc)
		return rc;
	rc = attach_ask(t, &q->header, sizeof(*q), WIRE_DONE);
	if (rc == 0 && value)
		*value = t->message->done.value;
	if (rc == 0)
		message_drop(t->message);
	lock_release(&t->wire);
	return rc;
}

int tier_context_remove(tier *t, const char *name)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_REMOVE };
	int rc = connection_check(t);

	if (rc == 0)
		rc = set_name(&q, name);
	return rc ? rc : context_order(t, &q, NULL);
}

int tier_context_raise_epoch(tier *t, const char *name, uint64_t *epoch)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_EPOCH, .epoch = epoch ? *epoch : 0 };
	int rc = connection_check(t);

	if (rc == 0)
		rc = set_name(&q, name);
	return rc ? rc : context_order(t, &q, epoch);
}

/* ---- usage ----------------------------------------------------------------------------------- */

/* What the answer tells, into out; a lying daemon's count is cut to what it sent. */
static int64_t take_usage(const struct message *m, struct tier_usage *out, uint32_t count)
{
	const struct wire_usage *from = (const void *)(m->bytes + sizeof(m->usage));
	size_t sent = (m->header.length - sizeof(m->usage)) / sizeof(*from);
	uint32_t there = m->usage.count < sent ? m->usage.count : (uint32_t)sent;

	for (uint32_t i = 0; i < there && i < count; i++) {
		out[i] = (struct tier_usage){ .salt = from[i].salt, .uses = from[i].uses,
					      .kind = from[i].kind };
		memcpy(out[i].used, from[i].used, sizeof(out[i].used));
		memcpy(out[i].pinned, from[i].pinned, sizeof(out[i].pinned));
	}
	return there < count ? there : count;
}

static int64_t ask_usage(tier *t, struct wire_ctx *q, struct tier_usage *out, uint32_t count)
{
	int64_t n = 0;
	int rc = wire_begin(t);

	if (rc)
		return rc;
	if (!connection_attachment(t)->usage)
		rc = error_note(-ENOTSUP, "usage: the daemon is older; update it");
	if (rc == 0)
		rc = attach_ask(t, &q->header, sizeof(*q), WIRE_USAGE_LIST);
	if (rc == 0) {
		n = take_usage(t->message, out, count);
		message_drop(t->message);
	}
	lock_release(&t->wire);
	return rc ? rc : n;
}

int64_t tier_usage_salts(tier *t, const char *name, struct tier_usage *out, uint32_t count)
{
	struct wire_ctx q = { .header.type = WIRE_CTX_USAGE };
	int rc = connection_check(t);

	if (rc == 0 && count > 0 && !out)
		rc = error_note(-EINVAL, "tier_usage_salts: out is NULL");
	if (rc == 0)
		rc = set_name(&q, name);
	return rc ? rc : ask_usage(t, &q, out, count);
}

/* ---- look ------------------------------------------------------------------------------------ */

const tier_geometry *tier_context_geometry(const tier_context *c)
{
	return c ? &c->geometry : NULL;
}

uint64_t tier_context_epoch(const tier_context *c)
{
	struct attachment *a;
	const struct map *m;
	uint64_t epoch;

	if (context_check(c))
		return 0;
	/* Entering changes the connection's count, nothing of the context. */
	m = context_enter((struct tier_context *)(uintptr_t)c, &a);
	if (!m)
		return 0;
	epoch = atomic_load_acquire_u64(&m->header->epoch);
	context_leave(a);
	return epoch;
}
