/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts: how they begin and end. Keys are reserved as PENDING; put_commit.c has their bytes copied
 * into CXL, and waits for the log where they are durable.
 *
 *   reserve: key new -> block PENDING, writers + 1     key there -> "exists"
 *   commit:  COPY jobs -> words READY -> missing = 0 -> COMMITTED -> dirty list
 *            durable: -> WRITTEN (all clean in the durable log) -> SYNC -> answer
 *
 * Among equal keys the first commit fills a page; later ones find it taken and skip it, so n ranks
 * that put a replicated part store it once. A hung writer blocks nobody.
 *
 * At its end what came is counted and kept as the put says, what nobody brings any more leaves, and
 * its place is free. Each of these looks at all of its blocks, so each is a walk that goes on in
 * later events: by the step of who waits for the answer, or, for one whose end nobody waits for
 * (aborted, expired, its client or context gone), by put_work.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define EXPIRE_BLOCKS 256u /* incomplete ones of a context looked at every 10 ms */
#define PUT_HORIZON_NS (3600000 * MS) /* no put is open for longer; put.deadline is at most that */

static void put_let_free(struct core *c, struct put *p);

/* ---- reserve ------------------------------------------------------------------------------ */

static int args_check(const struct context *x, const struct request *r)
{
	const struct abi_put_args *a = (const struct abi_put_args *)r->arg;

	for (size_t i = 0; i < sizeof(a->reserved); i++)
		if (a->reserved[i])
			return -EINVAL;
	if (a->count != r->sqe.count || (r->sqe.flags & ABI_SQE_APART && a->depth))
		return -EINVAL;
	if (a->shards > ABI_PAGES_PER_BLOCK_MAX)
		return -EINVAL;
	if (a->shards ? a->shard >= a->shards : a->shard)
		return -EINVAL;
	if (a->parts & ~parts_mask(x))
		return -EINVAL;
	if (a->priority > ABI_PRIORITY_HIGH || a->ttl_ms > ABI_TTL_MS_MAX)
		return -EINVAL;
	return 0;
}

/* Parts a block must have to be whole: those with rule "every block", and what the put carries. */
static uint32_t parts_needed(const struct context *x, uint64_t carried)
{
	const struct abi_geometry *g = context_geometry(x);
	uint64_t need = carried;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (g->part[i].hit_rule == ABI_HIT_EVERY)
			need |= 1ull << i;
	return (uint32_t)need;
}

/* As block_meta keeps it: the logarithm, as far as it goes. */
static uint8_t brought_step(uint32_t blocks)
{
	uint32_t step = 31 - (uint32_t)__builtin_clz(blocks);

	return (uint8_t)(step < BLOCK_BROUGHT_MAX ? step : BLOCK_BROUGHT_MAX);
}

/* Tables are full, but descriptors that nobody uses can be given up: once, then it looks again. */
static bool tables_come(struct core *c, struct context *x, struct request *r)
{
	bool come = !r->given && tables_want(x);

	if (come)
		lend_recall_index(c, x);
	r->given = true;
	return come;
}

/*
 * Blocks that have left keep their slots until their pages are out of memory and those behind them
 * have gone, too: that is soon, unless somebody holds these.
 */
static bool slots_come(const struct core *c, const struct context *x)
{
	uint64_t left = x->slots_live - x->blocks - x->blocks_pending;

	assert(x->slots_live >= x->blocks + x->blocks_pending);
	return left > c->dropped.waiting.count;
}

/* A slot for a new block, and room for what it takes of tables. */
static uint32_t pending_slot(struct core *c, struct context *x, struct put *p, const uint8_t *key)
{
	uint32_t limit = tables_slot(c, x, p->args.salt), slot;

	slot = limit ? ABI_SLOT_NONE : block_new(x, key);
	if (slot != ABI_SLOT_NONE) {
		quota_name(c, x, slot, p->args.salt, c->client[p->client].owner);
		limit = tables_begin(c, x, slot, p->needs);
	}
	if (!limit)
		return slot;
	if (slot != ABI_SLOT_NONE)
		block_unnew(c, x, slot);
	p->tables_limit = (uint8_t)limit;
	return ABI_SLOT_NONE;
}

static uint32_t pending_new(struct core *c, struct context *x, struct put *p, uint32_t i)
{
	const uint8_t *key = p->keys + (size_t)i * ABI_KEY_BYTES;
	uint32_t slot = pending_slot(c, x, p, key);
	struct block_meta *m;
	struct block_use *use;
	struct abi_block *b;

	if (slot == ABI_SLOT_NONE && !slots_come(c, x) &&
	    evict_nvme(c, x, 64 * x->spec.geometry.block_bytes))
		slot = pending_slot(c, x, p, key);
	if (slot == ABI_SLOT_NONE)
		return slot;
	m = &x->meta[slot];
	b = index_block(&x->ix, slot);
	b->parts = p->needs;
	b->depth = p->args.depth + (p->apart ? 0 : i);
	use = block_use_make(x, slot);
	use->missing = p->whole;
	if (!p->brings) /* the first new one: all from here on are counted as new */
		p->brought += p->args.count - i;
	p->brings = true;
	if (block_policy(x, slot, ABI_TIER_CXL))
		block_lanes(x, slot)->policy->expect(block_policy(x, slot, ABI_TIER_CXL),
						     ABI_SLOT_NONE, key);
	use->expires_ms = (uint32_t)(p->deadline_ns / MS);
	m->flags = (uint8_t)((p->args.shards > 1 ? BLOCK_SHARDED : 0) |
			     (p->durable ? BLOCK_DURABLE : 0));
	index_block_state(&x->ix, slot, ABI_BLOCK_PENDING);
	prefix_join(x, slot, p->before);
	if (index_insert(&x->ix, slot)) {
		index_block_state(&x->ix, slot, ABI_BLOCK_FREE);
		if (use->begun)
			tables_settled(x, slot);
		block_unnew(c, x, slot);
		p->collides = true;
		return ABI_SLOT_NONE;
	}
	block_link(c, &x->pending, x, slot);
	x->blocks_pending++;
	c->owners.account[m->owner].pending++;
	m->brought = brought_step(p->brought); /* last: they share words with links and tenant */
	m->joined = p->joined;
	m->last = p->apart || i + 1 == p->args.count;
	return slot;
}

/* Is the stored block all that this put wants? A durable put may have to write it again. */
static bool satisfied(struct core *c, struct context *x, const struct put *p, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!p->durable || m->flags & BLOCK_DURABLE)
		return true;
	if (!block_queued(m) && m->persist != PERSIST_REFUSED)
		return false;
	writeback_promise(c, x, slot);
	return true;
}

/*
 * Must the stored block make way? One of an old epoch; and one that a durable put cannot write
 * again because it has a part (of rule "last n") that the put does not carry: put anew without.
 */
static bool makes_way(struct core *c, struct context *x, const struct put *p, uint32_t slot)
{
	const struct abi_block *b = index_block(&x->ix, slot);

	if (b->epoch != (uint32_t)x->spec.epoch)
		return true;
	return b->state == ABI_BLOCK_COMMITTED && p->args.shards < 2 &&
	       b->parts & ~p->args.parts && !satisfied(c, x, p, slot);
}

static int reserve_one(struct core *c, struct context *x, struct put *p, uint32_t i, uint64_t *aux)
{
	uint32_t slot = index_find(&x->ix, p->keys + (size_t)i * ABI_KEY_BYTES);
	const struct abi_block *b;
	bool fresh;

	if (slot != ABI_SLOT_NONE && makes_way(c, x, p, slot)) {
		block_drop(c, x, slot);
		slot = ABI_SLOT_NONE;
	}
	fresh = slot == ABI_SLOT_NONE;
	if (fresh)
		slot = pending_new(c, x, p, i);
	if (slot == ABI_SLOT_NONE)
		return -ENOSPC;
	if (!fresh)
		prefix_join(x, slot, p->before); /* the one before it had gone */
	p->joined = fresh && !p->apart;
	p->before = p->apart ? ABI_SLOT_NONE : slot;
	b = index_block(&x->ix, slot);
	p->ref[i] = (struct abi_block_ref){ slot, b->generation };
	if (b->state == ABI_BLOCK_COMMITTED && satisfied(c, x, p, slot) &&
	    !block_unreadable(c, x, slot)) {
		c->metrics.blocks_duplicate++;
		block_used(c, x, slot, 1);
		if (i < 64)
			*aux |= 1ull << i;
		return 0;
	}
	if (p->durable && b->state == ABI_BLOCK_PENDING)
		x->meta[slot].flags |= BLOCK_DURABLE;
	block_use_make(x, slot)->writers++;
	p->mine[i / 64] |= 1ull << i % 64;
	return 0;
}

static struct put *put_get(struct core *c, struct request *r)
{
	struct put *p = c->puts.free;
	struct client *k = &c->client[r->client];

	if (!p)
		return NULL;
	c->puts.free = p->next;
	p->used = true;
	p->committing = false;
	p->expired = false;
	p->client = r->client;
	p->account = k->account;
	account_take(c, k, ACCOUNT_PUTS);
	p->ctx = r->ctx;
	p->epoch = r->ctx->spec.epoch;
	p->handle = ++c->puts.seq * CORE_REQUESTS_MAX + (uint64_t)(p - c->puts.table);
	memcpy(&p->args, r->arg, sizeof(p->args));
	p->keys = r->arg + sizeof(p->args);
	p->reservation = r->sqe.handle;
	p->durable = r->sqe.flags & ABI_SQE_DURABLE;
	p->apart = r->sqe.flags & ABI_SQE_APART;
	p->deadline_ns =
		r->sqe.deadline_ns ? r->sqe.deadline_ns : c->now_ns + c->config.put_deadline_ns;
	if (p->deadline_ns > c->now_ns + PUT_HORIZON_NS)
		p->deadline_ns = c->now_ns + PUT_HORIZON_NS;
	p->done = p->freed = p->kept_on = p->counted = p->visible = 0;
	p->prepared = p->look = p->gap = p->begun = p->drives = 0;
	p->ending = p->freeing = p->shared = p->replaced = false;
	p->places = 0;
	memset(p->mine, 0, sizeof(p->mine));
	memset(p->kept, 0, sizeof(p->kept));
	p->next = c->puts.of[p->client].first;
	c->puts.of[p->client].first = p;
	return p;
}

/*
 * Which prompt is it that this put brings blocks of? One goes on where its client's last put ended;
 * what was read until now was read before it.
 */
static void prompt_begin(struct core *c, struct put *p)
{
	const struct prompt *last = &c->puts.of[p->client].prompt;
	uint32_t parent = p->args.depth ? index_find(&p->ctx->ix, p->args.parent) : ABI_SLOT_NONE;
	bool on = parent != ABI_SLOT_NONE && parent == last->tail &&
		  p->ctx->id == last->context_id;

	evict_drain_client(c, p->client);
	p->before = parent;
	p->brought = on ? last->brought : 0;
	p->joined = on && last->joined;
	p->brings = false;
}

static void prompt_end(struct core *c, const struct put *p)
{
	c->puts.of[p->client].prompt = (struct prompt){
		.context_id = p->ctx->id,
		.tail = p->args.count && !p->apart ? p->ref[p->args.count - 1].slot : ABI_SLOT_NONE,
		.brought = p->brought,
		.joined = p->joined,
	};
}

static void put_reserve(struct core *c, struct request *r)
{
	struct context *x = r->ctx;
	struct put *p;
	uint64_t aux = 0;
	int err;

	err = args_check(x, r);
	if (!err && r->sqe.flags & ABI_SQE_DURABLE && !context_has_nvme(c, x))
		err = -EOPNOTSUPP;
	if (!err && r->sqe.handle && !reserve_find(c, r->sqe.handle, r->client, x))
		err = -ENOENT;
	if (!err && r->sqe.flags & ABI_SQE_DURABLE && x->dirty_bytes > dirty_limit(c, x))
		err = -EAGAIN;
	if (!err && !account_may(c, &c->client[r->client], ACCOUNT_PUTS)) {
		account_refused(c);
		err = -EDQUOT;
	}
	p = err ? NULL : put_get(c, r);
	if (!p) {
		request_end(c, r, err ? err : -EAGAIN, 0, 0);
		return;
	}
	if (!p->args.parts)
		p->args.parts = parts_mask(x);
	p->needs = parts_needed(x, p->args.parts);
	p->whole = store_block_pages(context_geometry(x), p->needs);
	shard_measure(x, p);
	prompt_begin(c, p);
	meter_charge(&c->meter, p->args.count); /* no more keys fit than are a piece */
	tables_count(c, x);
	p->tables_limit = ABI_LIMIT_NONE;
	p->collides = false;
	for (uint32_t i = 0; i < p->args.count; i++) /* all at once: each is far from the others */
		index_prefetch(&x->ix, p->keys + (size_t)i * ABI_KEY_BYTES);
	for (; p->done < p->args.count && !err; p->done += !err)
		err = reserve_one(c, x, p, p->done, &aux);
	p->keys = NULL; /* the request's memory */
	if (err)
		put_let_free(c, p);
	else
		prompt_end(c, p);
	if (err)
		aux = 0;
	if (err == -ENOSPC && p->tables_limit) {
		aux = tables_held(p->tables_limit);
		account_refused(c);
	}
	if (err == -ENOSPC && p->collides)
		aux = (uint64_t)(1 + ABI_HELD_CHAIN) << 8 * ABI_HELD_TIER;
	if (err != -ENOSPC || p->collides ||
	    !(p->tables_limit ? tables_come(c, x, r) : slots_come(c, x))) {
		request_end(c, r, err, err ? 0 : p->handle, aux);
		return;
	}
	r->epoch = x->spec.epoch;
	request_wait_space(c, r);
}

/*
 * There may be slots now, or room for tables: it begins anew, once there are enough or no more to
 * come.
 */
static void put_reserve_step(struct core *c, struct request *r)
{
	r->phase = REQUEST_RUN;
	if (!r->error && r->epoch != r->ctx->spec.epoch)
		r->error = -ESTALE; /* what it would bring is of the old one */
	if (r->error || r->late)
		request_end(c, r, r->error ? r->error : -ENOSPC, 0,
			    r->given ? tables_held(ABI_LIMIT_NONE) : 0);
	else if ((r->given && r->ctx->descs_short) ||
		 (r->ctx->ix.slots_free < r->sqe.count && slots_come(c, r->ctx)))
		request_wait_space(c, r);
	else
		put_reserve(c, r);
}

/* ---- retention ---------------------------------------------------------------------------- */

/* What the put says of a block that is committed, if it is its tenant's. */
void put_retain_block(struct core *c, const struct put *p, uint32_t slot)
{
	struct context *x = p->ctx;

	if ((!p->args.priority && !p->args.ttl_ms) || block_salt(x, slot) != p->args.salt)
		return;
	retain_say(c, x, slot, p->args.priority, p->args.ttl_ms);
	if (x->meta[slot].persist == PERSIST_REFUSED)
		admit_again(c, x, slot, false); /* priority counts there, too */
}

/* False: not all of them yet. */
static bool put_retain(struct core *c, struct put *p)
{
	if (!p->args.priority && !p->args.ttl_ms)
		return true;
	for (; p->kept_on < p->done; p->kept_on++) {
		struct abi_block_ref ref = p->ref[p->kept_on];

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (block_alive(p->ctx, ref) &&
		    index_block(&p->ctx->ix, ref.slot)->state == ABI_BLOCK_COMMITTED)
			put_retain_block(c, p, ref.slot);
	}
	return true;
}

/* ---- letting go --------------------------------------------------------------------------- */

static void put_unlink(struct core *c, struct put *p)
{
	struct put **link = &c->puts.orphans;

	if (p->client < CORE_CLIENTS_MAX)
		link = &c->puts.of[p->client].first;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
}

/* One block of it: pending, it goes, but for one of a sharded put, unless others write it. */
static void block_free(struct core *c, struct put *p, uint32_t i)
{
	struct context *x = p->ctx;
	uint32_t slot = p->ref[i].slot;
	const struct block_meta *m = &x->meta[slot];
	struct block_use *use;
	bool pending;

	if (bit_get(p->kept, i)) {
		p->kept[i / 64] &= ~(1ull << i % 64);
		block_unhold(c, x, slot);
	}
	if (!put_mine(p, i))
		return;
	p->mine[i / 64] &= ~(1ull << i % 64);
	use = block_use_make(x, slot);
	assert(use->writers > 0);
	use->writers--;
	pending = index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING;
	p->shared |= pending && use->writers;
	if (m->flags & BLOCK_DROPPED)
		block_release(c, x, slot);
	else if (pending && !use->writers &&
		 !(m->flags & BLOCK_SHARDED && quota_client_lives(c, m->owner)))
		block_drop(c, x, slot);
	else
		block_use_settle(x, slot);
}

/*
 * Let a put's blocks go and unhook it; who else writes them waits no longer for what this one has
 * not brought. False: there are more than one event looks at.
 */
static bool put_free(struct core *c, struct put *p)
{
	p->committing = true; /* nobody finds it any more */
	if (!put_places_drop(c, p))
		return false;
	for (; p->freed < p->done && !meter_spent(&c->meter); p->freed++) {
		meter_charge(&c->meter, 1);
		block_free(c, p, p->freed);
	}
	if (p->freed < p->done)
		return false;
	if (p->shared)
		request_wake_phase(c, REQUEST_WRITTEN);
	put_unlink(c, p);
	account_give(c, p->account, p->client < CORE_CLIENTS_MAX ? &c->client[p->client] : NULL,
		     ACCOUNT_PUTS);
	p->used = false;
	p->next = c->puts.free;
	c->puts.free = p;
	return true;
}

/* The same for one whose end nobody waits for: it goes on in put_work. */
static void put_let_free(struct core *c, struct put *p)
{
	if (put_free(c, p))
		return;
	p->freeing = true;
	p->next_freeing = c->puts.freeing;
	c->puts.freeing = p;
}

void put_work(struct core *c)
{
	struct put *p;

	while ((p = c->puts.freeing) && !meter_spent(&c->meter)) {
		struct put *next = p->next_freeing;

		if (put_free(c, p))
			c->puts.freeing = next;
	}
}

/* The client has gone. A committing put ends with its request, when its copies are over. */
static void put_abort(struct core *c, struct put *p)
{
	if (!p->committing)
		put_let_free(c, p);
	if (!p->used)
		return;
	put_unlink(c, p);
	p->next = c->puts.orphans;
	c->puts.orphans = p;
	p->client = CORE_CLIENTS_MAX;
}

/* ---- the answer --------------------------------------------------------------------------- */

/*
 * All of a put is whole: the shorter block that it goes on from is not needed any more. Where no
 * tombstone finds room it may come back after a restart, and leave as others do.
 */
static void put_replace(struct core *c, struct put *p)
{
	static const uint8_t none[ABI_KEY_BYTES];
	uint32_t slot;

	if (memcmp(p->args.replaces, none, sizeof(none)) == 0 || p->epoch != p->ctx->spec.epoch ||
	    p->replaced)
		return;
	p->replaced = true;
	slot = index_find(&p->ctx->ix, p->args.replaces);
	if (slot == ABI_SLOT_NONE || index_block(&p->ctx->ix, slot)->state != ABI_BLOCK_COMMITTED)
		return;
	tombstone(c, p->ctx, p->args.replaces, core_lsn(c));
	block_drop(c, p->ctx, slot);
	c->metrics.blocks_replaced++;
}

/* How many of its blocks are whole? False: not known yet. */
static bool count_visible(struct core *c, struct put *p)
{
	for (; p->counted < p->done; p->counted++) {
		struct abi_block_ref ref = p->ref[p->counted];

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		p->visible += block_alive(p->ctx, ref) &&
			      index_block(&p->ctx->ix, ref.slot)->state == ABI_BLOCK_COMMITTED;
	}
	return true;
}

/* It is over, and told so once what came was counted. */
void put_end(struct core *c, struct request *r, int res)
{
	struct put *p = r->put;

	assert(!r->outstanding);
	if (!p->ending) {
		p->ending = true;
		p->res = res;
		p->counted = p->visible = 0;
	}
	if (!p->res && p->epoch != p->ctx->spec.epoch) { /* raised while it was counted */
		p->res = -ESTALE;
		p->counted = p->visible = 0;
	}
	if (!count_visible(c, p)) {
		request_go_on(c, r);
		return;
	}
	if (!p->res && p->visible == p->args.count)
		put_replace(c, p);
	if (!put_retain(c, p) || !put_free(c, p)) {
		request_go_on(c, r);
		return;
	}
	r->put = NULL;
	evict_room_ahead(c, r->ctx, ABI_TIER_CXL);
	request_end(c, r, p->res, p->visible, 0);
}

struct put *put_open(struct core *c, uint32_t client, uint64_t handle)
{
	struct put *p = &c->puts.table[handle % CORE_REQUESTS_MAX];

	return p->used && p->handle == handle && p->client == client && !p->committing ? p : NULL;
}

static void put_abort_request(struct core *c, struct request *r)
{
	struct put *p = put_open(c, r->client, r->sqe.handle);

	if (p)
		put_let_free(c, p);
	request_end(c, r, p ? 0 : -ENOENT, 0, 0);
}

/* ---- time --------------------------------------------------------------------------------- */

/* Nobody writes it, and its time is over, or its client has gone. */
static bool pending_over(const struct core *c, const struct context *x, uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);
	uint32_t now_ms = (uint32_t)(c->now_ns / MS);

	if (!use->writers && (int32_t)(now_ms - use->expires_ms) >= 0)
		return true;
	return !use->writers && !quota_client_lives(c, x->meta[slot].owner);
}

/* Incomplete blocks past their deadline, a few at a time: those that stay go to the list's end. */
static void pending_expire(struct core *c, struct context *x)
{
	uint32_t n = x->pending.count;

	n = n < EXPIRE_BLOCKS ? n : EXPIRE_BLOCKS;
	meter_charge(&c->meter, n);
	for (; n; n--) {
		uint32_t slot = x->pending.head;

		if (pending_over(c, x, slot)) {
			c->metrics.puts_expired++;
			block_drop(c, x, slot);
			continue;
		}
		block_unlink(c, &x->pending, x, slot);
		block_link(c, &x->pending, x, slot);
	}
}

/* Contexts in turn, as far as one event goes. */
static void pendings_expire(struct core *c)
{
	for (uint32_t n = 0; n < c->contexts_high && !meter_spent(&c->meter); n++) {
		struct context *x = c->context[c->puts.expire_context++ % c->contexts_high];

		if (x && x->pending.count)
			pending_expire(c, x);
	}
}

static void put_client_gone(struct core *c, uint32_t client)
{
	while (c->puts.of[client].first)
		put_abort(c, c->puts.of[client].first);
}

/* Its context goes: puts that no request commits end here, the others with their request. */
static void put_context_gone(struct core *c, struct context *x)
{
	for (uint32_t i = 0; i < CORE_REQUESTS_MAX; i++)
		if (c->puts.table[i].used && !c->puts.table[i].committing &&
		    c->puts.table[i].ctx == x)
			put_let_free(c, &c->puts.table[i]);
}

static bool put_keeps(const struct core *c, const struct context *x, bool holds)
{
	for (uint32_t i = 0; !holds && i < CORE_REQUESTS_MAX; i++)
		if (c->puts.table[i].used && c->puts.table[i].ctx == x)
			return true;
	return false;
}

void put_tick(struct core *c)
{
	/* Those whose client has gone are committing all. */
	for (uint32_t i = 0; i < c->clients_high; i++) {
		struct put *next;

		for (struct put *p = c->puts.of[i].first; p; p = next) {
			next = p->next;
			if (p->committing || p->deadline_ns > c->now_ns)
				continue;
			c->metrics.puts_expired++;
			p->expired = true;
			put_let_free(c, p);
		}
	}
	pendings_expire(c);
}

/* ---- operations ------------------------------------------------------------------------------ */

static uint64_t reserve_bytes(const struct abi_sqe *q)
{
	return sizeof(struct abi_put_args) + (uint64_t)q->count * ABI_KEY_BYTES;
}

const struct op_ops op_put_reserve = {
	.name = "put-reserve",
	.flags = ABI_SQE_APART,
	.context = true,
	.writes = true,
	.arg_bytes = reserve_bytes,
	.begin = put_reserve,
	.step = put_reserve_step,
	.client_gone = put_client_gone,
	.context_gone = put_context_gone,
	.keeps = put_keeps,
};

const struct op_ops op_put_abort = {
	.name = "put-abort",
	.begin = put_abort_request,
};
