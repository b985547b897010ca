/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demand fetch: brings the pages of a list into CXL (reading NVMe) or into HBM (by either of two
 * paths, path.c). Pages that lie side by side in the store are read by one operation; pages that
 * another request is already bringing are waited for, not read twice.
 *
 * Blocks are held from begin to end, so what has come stays until the answer. Order of items is
 * part, layer, block, group: that of a run on NVMe (abi/disk.h D7). A client's prefetch with a
 * deadline goes so by stripes, a few blocks at a time: what has come in time counts by whole blocks
 * from the first (P4), and all but the last layer of all of them would count for nothing. A stripe
 * is as many blocks as it takes to read a layer in full units.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define FETCH_WINDOW 2048u /* items looked at in one step */

/* ---- what is asked for -------------------------------------------------------------------- */

static bool range_part(const struct request *r, uint32_t part)
{
	const struct abi_sqe *q = &r->sqe;

	return !q->part_count || (part >= q->part_first && part - q->part_first < q->part_count);
}

static uint32_t range_layers(const struct request *r, const struct abi_part *part, uint32_t *first)
{
	const struct abi_sqe *q = &r->sqe;

	*first = 0;
	if (!q->layer_count)
		return part->layers;
	*first = q->layer_first;
	if (q->layer_first >= part->layers)
		return 0;
	return q->layer_count < part->layers - q->layer_first ? q->layer_count
							      : part->layers - q->layer_first;
}

/* Bytes of the range in one block that carries all of its parts. */
uint64_t fetch_range_bytes(const struct request *r)
{
	const struct abi_geometry *g = context_geometry(r->ctx);
	uint64_t bytes = 0;
	uint32_t first;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (range_part(r, i))
			bytes += (uint64_t)range_layers(r, &g->part[i], &first) *
				 g->part[i].groups * g->part[i].page_stride;
	return bytes;
}

/* Pages of the range in such a block. */
uint32_t fetch_range_pages(const struct request *r)
{
	const struct abi_geometry *g = context_geometry(r->ctx);
	uint32_t pages = 0, first;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (range_part(r, i))
			pages += range_layers(r, &g->part[i], &first) * g->part[i].groups;
	return pages;
}

/* Blocks that come whole before the next ones; r->held is known. */
static uint32_t stripe_blocks(const struct request *r)
{
	const struct abi_geometry *g = context_geometry(r->ctx);
	uint64_t layer = 1, blocks;

	if (r->sqe.op != ABI_OP_PREFETCH || !r->sqe.deadline_ns || r->ended || !r->held)
		return r->held ? r->held : 1;
	for (uint32_t i = 0; i < g->part_count; i++) {
		uint64_t bytes = (uint64_t)g->part[i].groups * g->part[i].page_stride;

		if (range_part(r, i) && bytes > layer)
			layer = bytes;
	}
	blocks = (SCHED_UNIT_BYTES + layer - 1) / layer;
	return blocks < r->held ? (uint32_t)blocks : r->held;
}

/* Item i of so many blocks: which block, which page. */
static void blocks_item(const struct request *r, uint32_t i, uint32_t blocks, uint32_t *ref,
			uint32_t *page)
{
	const struct abi_geometry *g = context_geometry(r->ctx);

	for (uint32_t k = 0; k < g->part_count; k++) {
		const struct abi_part *part = &g->part[k];
		uint32_t first, n, per_layer = blocks * part->groups;

		if (!range_part(r, k))
			continue;
		n = range_layers(r, part, &first);
		if (i >= n * per_layer) {
			i -= n * per_layer;
			continue;
		}
		*ref = i % per_layer / part->groups;
		*page = part->page_base + (first + i / per_layer) * part->groups + i % part->groups;
		return;
	}
	assert(!"i is below r->total");
}

/* Item i of a FETCH. */
static void fetch_item(const struct request *r, uint32_t i, uint32_t *ref, uint32_t *page)
{
	uint32_t pages = r->total / r->held; /* of a block */
	uint32_t start = i / pages / r->stripe * r->stripe;
	uint32_t blocks = r->held - start < r->stripe ? r->held - start : r->stripe;

	blocks_item(r, i - start * pages, blocks, ref, page);
	*ref += start;
}

static void item(const struct request *r, uint32_t i, struct abi_block_ref *ref, uint32_t *page)
{
	uint32_t k = 0;

	if (r->sqe.op == ABI_OP_FETCH_PAGES) {
		const struct abi_page_ref *p = (const struct abi_page_ref *)r->arg + i;

		*ref = (struct abi_block_ref){ p->slot, p->generation };
		*page = p->page;
		return;
	}
	fetch_item(r, i, &k, page);
	*ref = ((const struct abi_block_ref *)r->arg)[k];
}

/* ---- begin, end --------------------------------------------------------------------------- */

bool fetch_block_there(const struct context *x, struct abi_block_ref ref)
{
	return block_alive(x, ref) && index_block(&x->ix, ref.slot)->state == ABI_BLOCK_COMMITTED;
}

/* Resolve keys to references in place, once: 8 bytes take the room of 32, from the front. */
void fetch_resolve(struct core *c, struct request *r)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)r->arg;
	uint8_t key[ABI_KEY_BYTES];

	if (!(r->sqe.flags & ABI_SQE_KEYS))
		return;
	r->sqe.flags &= (uint16_t)~ABI_SQE_KEYS;
	meter_charge(&c->meter, r->sqe.count); /* no more keys fit than are a piece */
	for (uint32_t i = 0; i < r->sqe.count; i++) {
		memcpy(key, r->arg + (size_t)i * ABI_KEY_BYTES, sizeof(key));
		ref[i].slot = index_find(&r->ctx->ix, key);
		ref[i].generation = ref[i].slot == ABI_SLOT_NONE
					    ? 0
					    : index_block(&r->ctx->ix, ref[i].slot)->generation;
	}
}

/* A demand for blocks is a use of what was brought for it. */
static void hold(struct core *c, struct request *r, uint32_t slot)
{
	block_hold(r->ctx, slot);
	if (!r->foreseen)
		stage_use(c, r->ctx, slot);
}

/* Returns false when the one at r->held is not there: it is the first that does not count. */
static bool hold_block(struct core *c, struct request *r)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;

	if (!fetch_block_there(r->ctx, ref[r->held])) {
		r->status = ABI_STATUS_MISS;
		return false;
	}
	hold(c, r, ref[r->held].slot);
	return true;
}

static bool hold_page(struct core *c, struct request *r)
{
	struct abi_page_ref *p = (struct abi_page_ref *)r->arg + r->held;
	struct abi_block_ref ref = { p->slot, p->generation };

	if (p->page < r->ctx->ix.pages_per_block && fetch_block_there(r->ctx, ref)) {
		hold(c, r, ref.slot);
		return true;
	}
	p->slot = ABI_SLOT_NONE;
	r->status = ABI_STATUS_MISS;
	return true;
}

/* Hold what is there. False: not all of it yet, there is more than one event looks at. */
static bool hold_all(struct core *c, struct request *r)
{
	bool pages = r->sqe.op == ABI_OP_FETCH_PAGES, more = true;

	for (; more && r->held < r->sqe.count && !meter_spent(&c->meter); r->held += more) {
		meter_charge(&c->meter, 1);
		more = pages ? hold_page(c, r) : hold_block(c, r);
	}
	r->total = pages ? r->held : r->held * fetch_range_pages(r);
	if (more && r->held < r->sqe.count)
		return false;
	r->holding = false;
	r->stripe = pages ? 0 : stripe_blocks(r);
	c->metrics.fetch_pages += r->total;
	return true;
}

/* Let go of its blocks, each of which `then` (NULL = nobody) is told. False: not of all yet. */
bool fetch_release_each(struct core *c, struct request *r,
			void (*then)(struct core *c, struct request *r, uint32_t slot))
{
	size_t item_bytes = r->sqe.op == ABI_OP_FETCH_PAGES ? sizeof(struct abi_page_ref)
							    : sizeof(struct abi_block_ref);

	assert(r->answered && r->released <= r->held);
	while (r->released < r->held) {
		uint32_t slot;

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		memcpy(&slot, r->arg + r->released++ * item_bytes, sizeof(slot));
		if (slot == ABI_SLOT_NONE)
			continue;
		/* It was asked for: it is recent, also where only some of its pages came. */
		block_used(c, r->ctx, slot, 1);
		block_unhold(c, r->ctx, slot);
		if (then)
			then(c, r, slot);
	}
	r->held = r->released = 0;
	return true;
}

bool fetch_release(struct core *c, struct request *r)
{
	return fetch_release_each(c, r, NULL);
}

static bool page_ready(const struct request *r, struct abi_block_ref ref, uint32_t page)
{
	if (ref.slot == ABI_SLOT_NONE || !fetch_block_there(r->ctx, ref))
		return false;
	if (!(index_block(&r->ctx->ix, ref.slot)->parts >> r->ctx->page_part[page] & 1))
		return true; /* not a page that this block has */
	return page_state(index_page(&r->ctx->ix, ref.slot, page), r->sqe.tier) == ABI_PAGE_READY;
}

/* Is all of a block there? Then its pages need not be looked at. */
static bool block_ready(const struct request *r, struct abi_block_ref ref)
{
	return fetch_block_there(r->ctx, ref) &&
	       r->ctx->meta[ref.slot].there[r->sqe.tier].pages == block_pages(r->ctx, ref.slot);
}

/* Count the pages of the list that are there. False: not all yet. */
static bool count_pages(struct core *c, struct request *r)
{
	const struct abi_page_ref *p = (const struct abi_page_ref *)r->arg;

	for (; r->counting < r->total; r->counting++) {
		struct abi_block_ref ref = { p[r->counting].slot, p[r->counting].generation };

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		r->usable += page_ready(r, ref, p[r->counting].page);
	}
	return true;
}

/* Count the blocks that are usable, from the first. False: not all yet. */
static bool count_blocks(struct core *c, struct request *r)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;
	uint32_t pages = r->held ? r->total / r->held : 0, none, page;

	while (r->usable < r->held) {
		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (r->counting == pages || block_ready(r, ref[r->usable])) {
			r->usable++;
			r->counting = 0;
			continue;
		}
		blocks_item(r, r->counting, 1, &none, &page);
		if (!page_ready(r, ref[r->usable], page))
			return true;
		r->counting++;
	}
	return true;
}

/* How many are there? Of a client that has gone nobody asks. False: not known yet. */
static bool count_usable(struct core *c, struct request *r)
{
	if (r->error == -ECONNRESET)
		return true;
	return r->sqe.op == ABI_OP_FETCH_PAGES ? count_pages(c, r) : count_blocks(c, r);
}

static void fetch_end(struct core *c, struct request *r)
{
	uint32_t whole = r->sqe.op == ABI_OP_FETCH_PAGES ? r->total : r->held;
	const struct op_ops *op = core_ops[r->sqe.op];
	bool lost = r->error == -EIO;

	r->ending = true;
	if (!count_usable(c, r)) {
		request_go_on(c, r);
		return;
	}
	if (lost) {
		r->error = 0; /* told by status: the engine recomputes */
		r->status = ABI_STATUS_MISS;
	} else if (r->usable < whole) { /* or it was there, and its block has gone since */
		r->status = r->late ? ABI_STATUS_LATE : ABI_STATUS_MISS;
	}
	if (op->came && !op->came(c, r, lost)) {
		request_go_on(c, r);
		return;
	}
	request_end(c, r, r->error, r->usable, r->protected_blocks);
}

/* ---- step --------------------------------------------------------------------------------- */

/*
 * Somebody brings the page. Each item looks once, and again when operations ended undone or a page
 * was on its way out, for others may have begun anew.
 */
static enum move_state join(struct core *c, struct request *r, const struct abi_page *d,
			    uint32_t slot, uint32_t i)
{
	if (i < r->joined)
		return MOVE_UNDER_WAY;
	r->joined = i + 1;
	move_join(c, r, slot, d);
	r->leaving |= page_state(d, ABI_TIER_CXL) == ABI_PAGE_RETIRING ||
		      page_state(d, ABI_TIER_HBM) == ABI_PAGE_RETIRING;
	return MOVE_UNDER_WAY;
}

/*
 * Does it wait for a page that is queued in a less urgent class? Never between events, but for
 * items that it has not looked at yet.
 */
bool fetch_outranks(const struct core *c, const struct request *r)
{
	const uint8_t *hbm = r->ctx->memory.mem[ABI_TIER_HBM];

	for (uint32_t i = r->cursor; i < r->joined && i < r->total; i++) {
		struct abi_block_ref ref;
		const struct abi_page *d;
		uint32_t page, tier;

		item(r, i, &ref, &page);
		if (ref.slot == ABI_SLOT_NONE || !fetch_block_there(r->ctx, ref))
			continue;
		d = index_page(&r->ctx->ix, ref.slot, page);
		tier = r->sqe.tier;
		if (page_state(d, tier) == ABI_PAGE_READY)
			continue; /* whatever brings it elsewhere is not waited for */
		if (tier == ABI_TIER_HBM && page_state(d, tier) != ABI_PAGE_FILLING)
			tier = ABI_TIER_CXL; /* it goes on from there */
		if (page_state(d, tier) == ABI_PAGE_FILLING &&
		    sched_outranks(c, d->nvme, r->sqe.klass,
				   tier == ABI_TIER_HBM))
			return true;
		if (page_state(d, tier) == ABI_PAGE_FILLING && tier == ABI_TIER_HBM &&
		    sched_outranks_copy(c, hbm + page_addr(d, tier), r->sqe.klass))
			return true;
	}
	return false;
}

/* How item i was found when it was looked at first. */
static void count_first(struct core *c, struct request *r, uint32_t i, const struct abi_page *d)
{
	uint32_t state = page_state(d, r->sqe.tier);

	if (i < r->counted)
		return;
	r->counted = i + 1;
	if (state == ABI_PAGE_READY)
		c->metrics.fetch_hits++;
	if (state == ABI_PAGE_ABSENT)
		state = page_state(d, ABI_TIER_CXL); /* the way to HBM */
	if (state == ABI_PAGE_FILLING)
		c->metrics.fetch_joined++;
}

static enum move_state fetch_page(struct core *c, struct request *r, struct mover *b, uint32_t i)
{
	struct abi_block_ref ref;
	uint32_t page, state;
	const struct abi_page *d;

	item(r, i, &ref, &page);
	if (ref.slot == ABI_SLOT_NONE)
		return MOVE_THERE; /* told by status */
	if (!fetch_block_there(r->ctx, ref))
		return MOVE_GONE;
	if (!(index_block(&r->ctx->ix, ref.slot)->parts >> r->ctx->page_part[page] & 1))
		return MOVE_THERE;
	d = index_page(&r->ctx->ix, ref.slot, page);
	state = page_state(d, r->sqe.tier);
	count_first(c, r, i, d);
	stream_page_adopt(c, r->ctx, ref.slot, page, r->sqe.tier); /* not a stream's alone */
	if (state == ABI_PAGE_READY)
		return MOVE_THERE;
	if (state != ABI_PAGE_ABSENT)
		return join(c, r, d, ref.slot, i);
	if (r->sqe.tier == ABI_TIER_CXL)
		return move_read(c, r, b, ref.slot, page);
	state = page_state(d, ABI_TIER_CXL);
	if (state == ABI_PAGE_READY || state == ABI_PAGE_ABSENT)
		return path_to_hbm(c, r, b, ref.slot, page);
	stream_page_adopt(c, r->ctx, ref.slot, page, ABI_TIER_CXL); /* stays until it is copied */
	return join(c, r, d, ref.slot, i);
}

static void fetch_wait(struct core *c, struct request *r, const struct mover *b, bool is_blocked)
{
	if (is_blocked && b->blocked_bytes) {
		uint64_t bytes = b->blocked_bytes * (r->total - r->cursor);

		if (bytes > 4 * CORE_IO_BYTES_MAX)
			bytes = 4 * CORE_IO_BYTES_MAX;
		if (move_make_room(c, r, b, bytes) && !r->outstanding) {
			r->error = -ENOSPC;
			fetch_end(c, r);
			return;
		}
	}
	r->room = is_blocked && b->blocked_bytes && r->sqe.tier == ABI_TIER_CXL;
	if (is_blocked || !r->outstanding)
		request_wait_space(c, r); /* room, or pages that others bring */
}

/*
 * Look at items from the cursor on, to *end or as far as one event goes. Those before r->built are
 * there or on their way: while the one at the cursor is not there yet, they are not looked at
 * again.
 */
static enum move_state fetch_items(struct core *c, struct request *r, struct mover *b,
				   uint32_t *end)
{
	enum move_state state = MOVE_THERE;
	uint32_t i = r->cursor;

	while (i < *end) {
		if (meter_spent(&c->meter)) {
			*end = i;
			break;
		}
		meter_charge(&c->meter, 1);
		state = fetch_page(c, r, b, i);
		if (state == MOVE_BLOCKED)
			break;
		if (state == MOVE_GONE)
			r->status = ABI_STATUS_MISS;
		if (i++ == r->cursor && state != MOVE_UNDER_WAY)
			r->cursor++;
		if (i > r->cursor && i < r->built)
			i = r->built;
	}
	if (r->built < i)
		r->built = i;
	return state;
}

/* Is there nothing to look at any more? */
static bool fetch_is_over(struct request *r)
{
	return r->error || r->late || r->ending;
}

static void fetch_look(struct core *c, struct request *r)
{
	uint32_t left = r->total - r->cursor;
	struct mover b = { .io = NULL };
	enum move_state state;
	uint32_t end, window;

	if (r->losses != sched_losses(c) || r->leaving) {
		r->losses = sched_losses(c);
		r->leaving = false;
		r->joined = r->built = r->cursor;
	}
	if (r->sqe.tier == ABI_TIER_HBM)
		r->built = r->cursor; /* what came to CXL goes further */
	end = window = left > FETCH_WINDOW ? r->cursor + FETCH_WINDOW : r->total;
	state = fetch_items(c, r, &b, &end);
	move_submit(c, r, &b);
	if (r->cursor == r->total)
		fetch_end(c, r);
	else if (state != MOVE_BLOCKED && (end < window || (end < r->total && r->cursor == end)))
		request_go_on(c, r);
	else
		fetch_wait(c, r, &b, state == MOVE_BLOCKED);
}

void fetch_step(struct core *c, struct request *r)
{
	r->phase = REQUEST_RUN;
	if (r->holding && !r->error && !hold_all(c, r))
		request_go_on(c, r);
	else if (fetch_is_over(r))
		fetch_end(c, r);
	else
		fetch_look(c, r);
}

void fetch_begin(struct core *c, struct request *r)
{
	if (r->foreseen && c->staged.bytes)
		evict_drain_logs(c); /* what was read before is no use of what comes now */
	if (r->sqe.op != ABI_OP_FETCH_PAGES)
		fetch_resolve(c, r);
	r->holding = true;
	fetch_step(c, r);
}

/* ---- operations ------------------------------------------------------------------------------ */

static uint64_t pages_bytes(const struct abi_sqe *q)
{
	return (uint64_t)q->count * sizeof(struct abi_page_ref);
}

static uint32_t fetch_lacks(const struct request *r)
{
	return r->sqe.tier;
}

const struct op_ops op_fetch = {
	.name = "fetch",
	.tiers = ABI_MEM_TIERS,
	.context = true,
	.arg_bytes = op_blocks_bytes,
	.begin = fetch_begin,
	.step = fetch_step,
	.release = fetch_release,
	.lacks = fetch_lacks,
};

const struct op_ops op_fetch_pages = {
	.name = "fetch-pages",
	.tiers = ABI_MEM_TIERS,
	.context = true,
	.arg_bytes = pages_bytes,
	.begin = fetch_begin,
	.step = fetch_step,
	.release = fetch_release,
};
