/*
 * Puts: reserve, where to write, commit, abort. The bytes lie in the staging arena in the order of
 * libtier/abi/ring.h; from commit on the arena's piece belongs to the request and is free when the
 * completion comes, for until then the daemon may read it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/put.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/promise.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

#define PUT_KEYS_MAX ((ABI_ARG_BYTES_MAX - sizeof(struct abi_put_args)) / sizeof(tier_key))
#define PUT_FLAGS (TIER_PUT_DURABLE | TIER_PUT_APART)
#define ABORT_NS (100 * NS_PER_MS)

/* ---- plan ------------------------------------------------------------------------------------ */

static int check_options(const struct tier_put_options *o, uint32_t part_count)
{
	if (o->flags & ~PUT_FLAGS)
		return error_set(-EINVAL, "put: flags %x are unknown", o->flags & ~PUT_FLAGS);
	if (o->shards > ABI_PAGES_PER_BLOCK_MAX || (o->shards == 0 && o->shard != 0) ||
	    (o->shards > 0 && o->shard >= o->shards))
		return error_set(-EINVAL, "put: shard %u of %u is not possible", o->shard,
				 o->shards);
	if (o->depth && !o->parent)
		return error_set(-EINVAL, "put: depth is %u, but parent does not say which block "
				 "comes before the first", o->depth);
	if (o->flags & TIER_PUT_APART && (o->depth || o->parent || o->replaces))
		return error_note(-EINVAL, "put: blocks that stand apart have no depth, no parent "
					   "and replace nothing");
	if (o->priority > TIER_PRIORITY_HIGH)
		return error_set(-EINVAL, "put: priority %u is none of TIER_PRIORITY_*",
				 o->priority);
	if (o->reserved)
		return error_note(-EINVAL, "put: reserved is not 0");
	if (o->ttl_ns > ABI_TTL_MS_MAX * NS_PER_MS)
		return error_set(-EINVAL, "put: ttl_ns is more than 14 days");
	if (part_count < 64 && o->parts >> part_count != 0)
		return error_set(-EINVAL, "put: parts names a part beyond the geometry's %u",
				 part_count);
	return 0;
}

static void plan_parts(struct put_plan *plan, const struct abi_geometry *g)
{
	uint32_t pages = 0;

	plan->part_count = g->part_count;
	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *from = &g->part[i];
		struct put_part *part = &plan->part[i];

		part->offset = plan->block_bytes;
		part->before = pages;
		part->layers = from->layers;
		part->stride = from->page_stride;
		if (plan->args.parts == 0 || plan->args.parts >> i & 1)
			geometry_shard(from, plan->args.shard, plan->args.shards, &part->first,
				       &part->groups);
		plan->block_bytes += (uint64_t)part->layers * part->groups * part->stride;
		pages += part->layers * part->groups;
	}
}

int put_plan(struct put_plan *plan, const tier_context *c, const struct tier_put_options *options)
{
	struct tier_put_options o;
	int rc = options_read(&o, sizeof(o), options);

	if (rc == 0)
		rc = check_options(&o, c->geometry.abi.part_count);
	if (rc)
		return rc;
	*plan = (struct put_plan){
		.args = { .salt = o.salt,
			  .parts = o.parts,
			  .depth = o.depth,
			  .shard = o.shard,
			  .shards = o.shards,
			  .ttl_ms = (uint32_t)((o.ttl_ns + NS_PER_MS - 1) / NS_PER_MS),
			  .priority = (uint8_t)o.priority },
		.deadline_ns = o.deadline_ns,
		.reservation = o.reservation,
		.flags = (uint16_t)((o.flags & TIER_PUT_DURABLE ? ABI_SQE_DURABLE : 0) |
				    (o.flags & TIER_PUT_APART ? ABI_SQE_APART : 0)),
	};
	if (o.parent)
		memcpy(plan->args.parent, o.parent->bytes, sizeof(plan->args.parent));
	if (o.replaces)
		memcpy(plan->args.replaces, o.replaces->bytes, sizeof(plan->args.replaces));
	plan_parts(plan, &c->geometry.abi);
	if (plan->block_bytes == 0)
		return error_set(-EINVAL, "put: shard %u of %u carries no page of these parts",
				 o.shard, o.shards);
	return 0;
}

int put_check_keys(const struct put_plan *plan, const tier_key *keys, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (memcmp(&keys[i], plan->args.replaces, sizeof(keys[i])) == 0)
			return error_set(-EINVAL, "put: it would replace its own block %u", i);
	return 0;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Room in the arena; the attachment stays mapped as long as the put has it. */
static int stage(struct tier *t, struct tier_put *p, tier_context *c) REQUIRES(t->lock)
{
	struct attachment *a = connection_attachment(t);
	uint64_t bytes;

	if (a->dead)
		return error_note(-ENOTCONN, "the daemon is away");
	if (!context_map(c)->writable && !context_map(c)->lost)
		return error_set(-EACCES, "put: context %s is read-only for this user", c->name);
	if (p->plan.block_bytes > UINT64_MAX / p->count)
		return error_note(-EINVAL, "put: too many blocks");
	bytes = p->plan.block_bytes * p->count;
	if (bytes > a->arena.bytes - PUT_ASK_BYTES(p->count) ||
	    arena_alloc(&a->arena, bytes, ARENA_LOW, &p->data.start) != 0)
		return error_set(-ENOBUFS, "put: %llu bytes do not fit into the staging arena of "
					   "%llu (%llu in use); commit or abort others, or connect "
					   "with more staging_bytes",
				 (unsigned long long)bytes, (unsigned long long)a->arena.bytes,
				 (unsigned long long)a->arena.used_bytes);
	p->data.bytes = bytes;
	p->a = a;
	a->puts++;
	return 0;
}

static void unstage(struct tier *t, struct tier_put *p) REQUIRES(t->lock)
{
	arena_free(&p->a->arena, p->data.start, p->data.bytes);
	p->a->puts--;
	pthread_cond_broadcast(&t->moved);
}

/* Ask the daemon to enter the keys, and wait for its word. */
static int reserve(struct tier *t, struct tier_put *p, tier_context *c, const tier_key *keys)
	REQUIRES(t->lock)
{
	const struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_PUT_RESERVE,
			   .klass = ABI_CLASS_DEADLINE,
			   .flags = p->plan.flags,
			   .deadline_ns = p->plan.deadline_ns,
			   .handle = promise_now(t, ABI_OP_RESERVE, p->plan.reservation) },
		.args = { .put = &p->plan.args, .keys = keys, .count = p->count },
		.owner = REQUEST_WAITER,
	};
	struct tier_completion completion;
	struct request *rq;
	int rc;

	rc = submit_entry(t, &s, &rq);
	if (rc == 0)
		rc = submit_wait(t, rq, submit_until(p->plan.deadline_ns, SUBMIT_DEFAULT_NS),
				 &completion);
	if (rc == 0)
		p->number = rq->number; /* free, but nobody's before the lock is given up */
	if (rc == 0)
		rc = submit_explain("put", &completion);
	if (rc)
		return rc;
	p->handle = completion.value;
	p->exists = completion.aux;
	return 0;
}

static struct tier_put *put_new(const tier_key *keys, uint32_t count)
{
	struct tier_put *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->keys = malloc(count * sizeof(*keys));
	if (!p->keys) {
		free(p);
		return NULL;
	}
	memcpy(p->keys, keys, count * sizeof(*keys));
	return p;
}

void put_free(struct tier_put *p)
{
	if (!p)
		return;
	free(p->keys);
	free(p);
}

int put_begin(tier_context *c, const tier_key *keys, uint32_t count, const struct put_plan *plan,
	      struct tier_put **out)
{
	struct tier *t = c->t;
	struct tier_put *p;
	int rc = attach_ensure(t);

	if (rc)
		return rc;
	p = put_new(keys, count);
	if (!p)
		return error_note(-ENOMEM, "put: out of memory");
	p->t = t;
	p->c = c;
	p->count = count;
	p->plan = *plan;
	p->plan.args.count = count;
	LOCK_SCOPE(&t->lock);
	submit_collect(t);
	wait_handover(t);
	rc = stage(t, p, c);
	if (rc) {
		put_free(p);
		return rc;
	}
	rc = reserve(t, p, c, keys);
	if (rc) {
		unstage(t, p);
		put_free(p);
		return rc;
	}
	list_push_back(&t->puts, &p->link);
	*out = p;
	return 0;
}

int tier_put_begin(tier_context *c, const tier_key *keys, uint32_t count,
		   const struct tier_put_options *options, tier_put **out)
{
	struct put_plan plan;
	int rc = context_check(c);

	if (rc)
		return rc;
	if (!out || !keys)
		return error_note(-EINVAL, "tier_put_begin: keys or out is NULL");
	*out = NULL;
	if (count == 0 || count > PUT_KEYS_MAX)
		return error_set(-EINVAL, "put: count %u is not 1 to %zu", count, PUT_KEYS_MAX);
	rc = put_plan(&plan, c, options);
	if (rc == 0)
		rc = put_check_keys(&plan, keys, count);
	return rc ? rc : put_begin(c, keys, count, &plan, out);
}

/* ---- write ----------------------------------------------------------------------------------- */

void *tier_put_data(tier_put *p, uint32_t block, uint32_t part, uint32_t layer, uint32_t group)
{
	const struct put_part *at;
	void *placed;
	uint32_t page;

	if (!p || connection_orphaned(p->t->alive) || block >= p->count ||
	    part >= p->plan.part_count)
		return NULL;
	at = &p->plan.part[part];
	if (layer >= at->layers || group < at->first || group - at->first >= at->groups)
		return NULL;
	page = layer * at->groups + (group - at->first);
	placed = put_place(p, block, at->before + page, at->stride);
	return placed ? placed : p->a->staging + p->data.start + block * p->plan.block_bytes +
				 at->offset + (uint64_t)page * at->stride;
}

int tier_put_exists(const tier_put *p, uint32_t block)
{
	return p && block < p->count && block < 64 && (p->exists >> block & 1);
}

/* ---- commit, abort --------------------------------------------------------------------------- */

int put_submit(struct tier *t, struct tier_put *p, enum request_owner owner, uint64_t user_data,
	       struct request **rq)
{
	const struct submission s = {
		.entry = { .op = ABI_OP_PUT_COMMIT,
			   .klass = ABI_CLASS_DEADLINE,
			   .flags = p->plan.flags & ABI_SQE_DURABLE,
			   .deadline_ns = p->plan.deadline_ns,
			   .handle = p->handle,
			   .arg_offset = p->data.start,
			   .arg_bytes = p->data.bytes < UINT32_MAX ? (uint32_t)p->data.bytes :
								     UINT32_MAX },
		.args.count = p->count,
		.data = p->data,
		.put = p,
		.owner = owner,
		.user_data = user_data,
	};
	struct attachment *a = p->a;
	int rc;

	submit_collect(t);
	wait_handover(t);
	if (connection_attachment(t)->dead || a->number < t->unbroken ||
	    (a != connection_attachment(t) && p->places))
		return error_note(-ENOTCONN, "put: the daemon went away since it began");
	if (p->broken)
		return error_note(-ENOMEM, "put: a place of it could not be mapped; abort it");
	p->placed = p->places > 0;
	rc = a == connection_attachment(t) ? submit_entry(t, &s, rq)
					   : again_commit(t, &s, a, rq);
	if (rc)
		return rc;
	/* The piece is the request's now, and so is the put. */
	a->puts--;
	list_remove(&p->link);
	put_unplace(p);
	return 0;
}

/* The daemon that knew the put is gone: its end is told by a completion all the same. */
static int commit_lost(struct tier *t, struct tier_put *p, uint64_t user_data)
	REQUIRES(t->lock)
{
	const struct tier_completion lost = { .user_data = user_data, .result = -ENOTCONN };
	int rc = submit_complete(t, &lost);

	if (rc)
		return rc;
	unstage(t, p);
	list_remove(&p->link);
	put_unplace(p);
	put_free(p);
	return 0;
}

int tier_put_commit(tier_put *p, uint64_t user_data)
{
	struct tier *t;
	int rc;

	if (!p)
		return error_note(-EINVAL, "tier_put_commit: the put is NULL");
	t = p->t;
	rc = connection_check(t);
	if (rc == 0)
		rc = submit_check_user_data(user_data);
	if (rc)
		return rc;
	LOCK_SCOPE(&t->lock);
	rc = put_submit(t, p, REQUEST_CALLER, user_data, NULL);
	return rc == -ENOTCONN ? commit_lost(t, p, user_data) : rc;
}

/* Tell the daemon; a ring that stays full leaves it to the put's deadline. */
static void tell_abort(struct tier *t, struct tier_put *p) REQUIRES(t->lock)
{
	const struct submission s = {
		.entry = { .op = ABI_OP_PUT_ABORT,
			   .klass = ABI_CLASS_DEADLINE,
			   .handle = p->handle },
		.owner = REQUEST_ORPHAN,
	};
	uint64_t until = time_now_ns() + ABORT_NS;

	while (p->number == connection_attachment(t)->number &&
	       submit_entry(t, &s, NULL) == -EAGAIN && time_now_ns() < until) {
		wait_step(t, time_now_ns() + NS_PER_MS);
		submit_collect(t);
	}
}

void tier_put_abort(tier_put *p)
{
	if (!p || connection_orphaned(p->t->alive))
		return;
	{
		struct tier *t = p->t;

		LOCK_SCOPE(&t->lock);
		tell_abort(t, p);
	}
	put_drop(p);
}

void put_drop(struct tier_put *p)
{
	struct tier *t = p->t;

	{
		LOCK_SCOPE(&t->lock);
		unstage(t, p);
		list_remove(&p->link);
	}
	put_unplace(p);
	put_free(p);
}
