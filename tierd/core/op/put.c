/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts: reserve keys as PENDING, have committed bytes copied into CXL (put_copy.c), and for durable
 * puts wait for the log.
 *
 *   reserve: key new -> block PENDING, writers + 1     key there -> "exists"
 *   commit:  COPY jobs -> words READY -> missing = 0 -> COMMITTED -> dirty list
 *            durable: -> WRITTEN (all clean in the durable log) -> SYNC -> answer
 *
 * Among equal keys the first commit fills a page; later ones find it taken and skip it, so n ranks
 * that put a replicated part store it once. A hung writer blocks nobody.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define EXPIRE_BLOCKS 256u /* incomplete ones of a context looked at every 10 ms */
#define PUT_HORIZON_NS (3600000 * MS) /* no put is open for longer; put.deadline is at most that */

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
	uint64_t used = x->ix.slots_used;
	uint32_t slot = block_new(c, x, key);

	if (slot == ABI_SLOT_NONE ||
	    tables_begin(x, slot, p->needs, x->ix.slots_used > used, &p->room))
		return slot;
	block_unnew(c, x, slot);
	p->short_of_tables = true;
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
	quota_name(c, x, slot, p->args.salt, c->client[p->client].owner);
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
	p->next = k->puts;
	k->puts = p;
	return p;
}

/*
 * Which prompt is it that this put brings blocks of? One goes on where its client's last put ended;
 * what was read until now was read before it.
 */
static void prompt_begin(struct core *c, struct put *p)
{
	struct client *k = &c->client[p->client];
	uint32_t parent = p->args.depth ? index_find(&p->ctx->ix, p->args.parent) : ABI_SLOT_NONE;
	bool on = parent != ABI_SLOT_NONE && parent == k->prompt.tail &&
		  p->ctx->id == k->prompt.context_id;

	evict_drain_client(c, k);
	p->before = parent;
	p->brought = on ? k->prompt.brought : 0;
	p->joined = on && k->prompt.joined;
	p->brings = false;
}

static void prompt_end(struct core *c, const struct put *p)
{
	c->client[p->client].prompt = (struct prompt){
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
	uint32_t limit;
	int err;

	err = args_check(x, r);
	if (!err && r->sqe.flags & ABI_SQE_DURABLE && !context_has_nvme(c, x))
		err = -EOPNOTSUPP;
	if (!err && r->sqe.handle && !reserve_find(c, r->sqe.handle, r->client, x))
		err = -ENOENT;
	if (!err && r->sqe.flags & ABI_SQE_DURABLE && x->dirty_bytes > dirty_limit(c, x))
		err = -EAGAIN;
	if (!err && !account_may(c, &c->client[r->client], ACCOUNT_PUTS)) {
		c->metrics.limit_refusals++;
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
	p->room = tables_room(c, x, &limit);
	p->short_of_tables = p->collides = false;
	for (uint32_t i = 0; i < p->args.count; i++) /* all at once: each is far from the others */
		index_prefetch(&x->ix, p->keys + (size_t)i * ABI_KEY_BYTES);
	for (; p->done < p->args.count && !err; p->done += !err)
		err = reserve_one(c, x, p, p->done, &aux);
	p->keys = NULL; /* the request's memory */
	if (err)
		put_let_free(c, p);
	else
		prompt_end(c, p);
	tables_count(c, x);
	if (err)
		aux = 0;
	if (err == -ENOSPC && p->short_of_tables) {
		aux = tables_held(limit);
		c->metrics.limit_refusals++;
	}
	if (err == -ENOSPC && p->collides)
		aux = (uint64_t)(1 + ABI_HELD_CHAIN) << 8 * ABI_HELD_TIER;
	if (err != -ENOSPC || p->collides ||
	    !(p->short_of_tables ? tables_come(c, x, r) : slots_come(c, x))) {
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

/* ---- commit ------------------------------------------------------------------------------- */

static uint64_t put_visible(const struct put *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->done; i++)
		n += block_alive(p->ctx, p->ref[i]) &&
		     index_block(&p->ctx->ix, p->ref[i].slot)->state == ABI_BLOCK_COMMITTED;
	return n;
}

/* For operators: blocks, and how many of them are what the put promises. */
static void put_view(const struct core *c, const struct request *r, struct core_request_view *out)
{
	const struct put *p = r->put;

	(void)c;
	if (!p)
		return;
	out->count = p->args.count;
	out->done = p->durable ? p->written : (uint32_t)put_visible(p);
	assert(out->done <= out->count);
}

/* A block stored before without durability: write it again, into the durable log. */
static bool make_durable(struct core *c, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (m->flags & BLOCK_DURABLE)
		return m->persist == PERSIST_CLEAN && m->settle != SETTLE_RECOVERED;
	if (m->persist == PERSIST_REFUSED || block_queued(m)) { /* also: its segment was dropped */
		writeback_promise(c, x, slot);
	} else if (m->persist == PERSIST_CLEAN &&
		   m->there[ABI_TIER_CXL].pages == block_pages(x, slot)) {
		stream_page_adopt_block(c, x, slot, ABI_TIER_CXL); /* its only copy from now on */
		block_unwritten(c, x, slot);
		m->flags |= BLOCK_DURABLE;
		writeback_enqueue(c, x, slot);
	}
	return false;
}

/*
 * Has anyone a page of the part in CXL, or on its way there? 1 yes, 0 no, -EAGAIN: not known yet;
 * it is looked at from p->look on.
 */
static int part_begun(struct core *c, struct put *p, uint32_t slot, uint32_t part)
{
	const struct context *x = p->ctx;
	const struct abi_part *q = &x->spec.geometry.part[part];
	uint32_t pages = block_words(x, slot) ? q->layers * q->groups : 0;
	int begun = 0;

	for (; !begun && p->look < pages; p->look++) {
		if (meter_spent(&c->meter))
			return -EAGAIN;
		meter_charge(&c->meter, 1);
		begun = page_state(index_page(&x->ix, slot, q->page_base + p->look),
				   ABI_TIER_CXL) != ABI_PAGE_ABSENT;
	}
	p->look = 0;
	return begun;
}

/* A pending block does not wait for the part any more. */
static void narrow_part(struct core *c, struct put *p, uint32_t slot, uint32_t part)
{
	struct context *x = p->ctx;

	index_block(&x->ix, slot)->parts &= ~(1u << part);
	block_use_make(x, slot)->missing -=
		x->spec.geometry.part[part].layers * x->spec.geometry.part[part].groups;
	if (block_use(x, slot)->missing)
		return;
	block_commit(c, x, slot);
	writeback_enqueue(c, x, slot);
	put_retain_block(c, p, slot);
}

/*
 * First commit wins: a pending block no longer waits for parts of rule "last n" that only another,
 * perhaps hung, writer announced. If these were all that it waited for, it is whole now. False: it
 * is not known yet whether they have begun.
 */
static bool narrow(struct core *c, struct put *p, uint32_t i)
{
	struct context *x = p->ctx;
	uint32_t slot = p->ref[i].slot, foreign;
	struct abi_block *b = index_block(&x->ix, slot);
	int begun;

	meter_charge(&c->meter, 1);
	if (!put_mine(p, i) || b->state != ABI_BLOCK_PENDING)
		return true;
	foreign = b->parts & ~p->args.parts; /* mostly none */
	if (foreign)
		foreign &= ~p->needs;
	for (; foreign; foreign &= foreign - 1) {
		uint32_t part = (uint32_t)__builtin_ctz(foreign);

		begun = p->begun >> part & 1 ? 1 : part_begun(c, p, slot, part);
		if (begun < 0)
			return false;
		p->begun |= (uint32_t)begun << part;
		if (!begun)
			narrow_part(c, p, slot, part);
	}
	p->begun = 0;
	return true;
}

/*
 * All of its blocks are clean in the durable log? A block that went meanwhile fails the put.
 * -EAGAIN: not all were looked at.
 */
static int put_written(struct core *c, struct request *r)
{
	struct put *p = r->put;

	for (; p->written < p->done; p->written++) {
		struct abi_block_ref ref = p->ref[p->written];

		/* again: who brought the rest may have failed */
		if (meter_spent(&c->meter) || !narrow(c, p, p->written))
			return -EAGAIN;
		if (!block_alive(p->ctx, ref))
			r->error = -ENOSPC;
		else if (prove_fails(c, p->ctx, ref.slot))
			r->error = -EIO;
		else if (!make_durable(c, p->ctx, ref.slot))
			return 0;
		else if (p->ctx->meta[ref.slot].settle == SETTLE_WRITTEN) /* else a flush has it */
			p->drives |= 1u << block_drive(c, p->ctx, ref.slot)->device;
	}
	return 1;
}

/* Does a durable catalog say the context's epoch? Recovery takes blocks of that one alone. */
static bool epoch_listed(const struct core *c, const struct context *x)
{
	return !c->drives || x->epoch_listed == x->spec.epoch;
}

static void put_durable_step(struct core *c, struct request *r)
{
	if (!r->syncing) {
		int written = put_written(c, r);

		if (written <= 0) {
			r->phase = REQUEST_WRITTEN;
			if (written < 0)
				request_go_on(c, r);
			return;
		}
		request_sync_from(c, r, r->put->drives ? r->put->drives : 1);
	}
	if (request_synced(c, r) && epoch_listed(c, r->ctx)) {
		put_end(c, r, r->error);
		return;
	}
	r->phase = REQUEST_SYNC; /* the catalog's flush wakes it, too */
	request_sync_want(c, r);
}

void put_let_go(struct core *c, struct put *p)
{
	if (p->durable)
		meter_charge(&c->meter, p->done);
	for (uint32_t i = 0; p->durable && i < p->done; i++) {
		uint32_t slot = p->ref[i].slot;

		if (!bit_get(p->kept, i))
			continue;
		if (block_alive(p->ctx, p->ref[i]))
			make_durable(c, p->ctx, slot);
		if (block_alive(p->ctx, p->ref[i]) && !(p->ctx->meta[slot].flags & BLOCK_DURABLE))
			continue;
		p->kept[i / 64] &= ~(1ull << i % 64);
		block_unhold(c, p->ctx, slot);
	}
}

static int put_trouble(const struct request *r)
{
	if (r->error)
		return r->error;
	if (r->late)
		return -ETIMEDOUT;
	return r->put->epoch != r->ctx->spec.epoch ? -ESTALE : 0;
}

/*
 * Is all of it done, though it was cancelled or its time was over while the last bytes came? A
 * durable put wants more: that it survives is not known.
 */
static bool put_done(struct core *c, const struct request *r, int trouble)
{
	const struct put *p = r->put;

	meter_charge(&c->meter, p->done);

	assert(trouble && !r->outstanding);
	return (trouble == -ECANCELED || trouble == -ETIMEDOUT) && !p->durable &&
	       !r->ctx->closing && p->epoch == r->ctx->spec.epoch &&
	       put_visible(p) == p->args.count;
}

/* What a durable put finds stored without durability must stay in CXL until it is written again. */
static void put_keep(struct put *p, uint32_t i)
{
	if (!put_mine(p, i) || !block_alive(p->ctx, p->ref[i]))
		return;
	block_hold(p->ctx, p->ref[i].slot);
	p->kept[i / 64] |= 1ull << i % 64;
}

/* Before the first byte is copied. False: not all of its blocks are ready yet. */
static bool put_prepare(struct core *c, struct put *p)
{
	uint32_t all = p->durable ? 2 * p->done : p->done;

	for (; p->prepared < all && !meter_spent(&c->meter); p->prepared++) {
		if (p->prepared >= p->done)
			put_keep(p, p->prepared - p->done);
		else if (!narrow(c, p, p->prepared))
			break;
	}
	return p->prepared == all;
}

static void put_commit_step(struct core *c, struct request *r)
{
	int trouble = put_trouble(r), gap;
	uint32_t state;

	r->phase = REQUEST_RUN;
	if (r->put->ending) {
		put_end(c, r, 0);
		return;
	}
	if (r->error != -ECONNRESET && !put_prepare(c, r->put)) {
		request_go_on(c, r);
		return;
	}
	if (!trouble && r->cursor < r->total) {
		if (!put_copy(c, r))
			return;
		trouble = r->error;
	}
	if (r->outstanding)
		return; /* request_landed comes back */
	if (trouble)
		put_end(c, r, put_done(c, r, trouble) ? 0 : trouble);
	else if (r->cursor < r->total)
		request_wake(c, r);
	else if (!r->syncing && (gap = shard_gap(c, r, &state)))
		gap < 0			   ? request_go_on(c, r) :
		state == ABI_PAGE_ABSENT ? request_wake(c, r) :
					     request_wait_space(c, r);
	else if (!r->put->durable)
		put_end(c, r, 0);
	else
		put_durable_step(c, r);
}

struct put *put_open(struct core *c, uint32_t client, uint64_t handle)
{
	struct put *p = &c->puts.table[handle % CORE_REQUESTS_MAX];

	return p->used && p->handle == handle && p->client == client && !p->committing ? p : NULL;
}

/* Is it not there because it came too late? That is known until its place is another's. */
static bool put_expired(const struct core *c, const struct request *r)
{
	const struct put *p = &c->puts.table[r->sqe.handle % CORE_REQUESTS_MAX];

	assert(!p->used || !p->expired || p->freeing);
	return p->expired && p->handle == r->sqe.handle && p->client == r->client;
}

static int commit_check(struct core *c, const struct request *r, const struct put *p)
{
	const struct client *k = &c->client[r->client];
	uint64_t bytes = p->block_bytes * p->args.count;

	if (r->sqe.arg_offset % ABI_UNIT || r->sqe.arg_offset > k->open.staging_bytes ||
	    bytes > k->open.staging_bytes - r->sqe.arg_offset)
		return -EFAULT;
	return 0;
}

static void put_commit_begin(struct core *c, struct request *r)
{
	struct put *p = put_open(c, r->client, r->sqe.handle);
	int err;

	if (!p) {
		request_end(c, r, put_expired(c, r) ? -ETIMEDOUT : -ENOENT, 0, 0);
		return;
	}
	err = commit_check(c, r, p);
	if (err) {
		request_end(c, r, err, 0, 0);
		return;
	}
	c->metrics.puts++;
	r->ctx = p->ctx;
	r->put = p;
	r->total = p->args.count * p->pages;
	p->committing = true;
	p->written = 0;
	if (!p->durable && context_has_nvme(c, p->ctx) &&
	    p->ctx->dirty_bytes + p->block_bytes * p->args.count > dirty_limit(c, p->ctx)) {
		c->metrics.puts_dropped++; /* P5: it only serves later reuse */
		r->status = ABI_STATUS_DROPPED;
		put_end(c, r, 0);
		return;
	}
	put_commit_step(c, r);
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
	while (c->client[client].puts)
		put_abort(c, c->client[client].puts);
}

/* Its context goes: puts that no request commits end here, the others with their request. */
static void put_context_gone(struct core *c, struct context *x)
{
	for (uint32_t i = 0; i < CORE_REQUESTS_MAX; i++)
		if (c->puts.table[i].used && !c->puts.table[i].committing &&
		    c->puts.table[i].ctx == x)
			put_let_free(c, &c->puts.table[i]);
}

void put_tick(struct core *c)
{
	/* Those whose client has gone are committing all. */
	for (uint32_t i = 0; i < c->clients_high; i++) {
		struct put *next;

		for (struct put *p = c->client[i].puts; p; p = next) {
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
	.context = true,
	.writes = true,
	.arg_bytes = reserve_bytes,
	.begin = put_reserve,
	.step = put_reserve_step,
	.client_gone = put_client_gone,
	.context_gone = put_context_gone,
};

const struct op_ops op_put_commit = {
	.name = "put-commit",
	.begin = put_commit_begin,
	.step = put_commit_step,
	.view = put_view,
};

const struct op_ops op_put_abort = {
	.name = "put-abort",
	.begin = put_abort_request,
};
