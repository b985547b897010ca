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

/* Item i of a FETCH: which block, which page. */
static void fetch_item(const struct request *r, uint32_t i, uint32_t *ref, uint32_t *page)
{
	const struct abi_geometry *g = context_geometry(r->ctx);
	uint32_t pages = r->total / r->held; /* of a block */
	uint32_t start = i / pages / r->stripe * r->stripe;
	uint32_t blocks = r->held - start < r->stripe ? r->held - start : r->stripe;

	i -= start * pages;
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
		*ref = start + i % per_layer / part->groups;
		*page = part->page_base + (first + i / per_layer) * part->groups + i % part->groups;
		return;
	}
	assert(!"i is below r->total");
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
void fetch_resolve(struct request *r)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)r->arg;
	uint8_t key[ABI_KEY_BYTES];

	if (!(r->sqe.flags & ABI_SQE_KEYS))
		return;
	r->sqe.flags &= (uint16_t)~ABI_SQE_KEYS;
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

static void hold_blocks(struct core *c, struct request *r)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;

	fetch_resolve(r);
	for (; r->held < r->sqe.count && fetch_block_there(r->ctx, ref[r->held]); r->held++)
		hold(c, r, ref[r->held].slot);
	if (r->held < r->sqe.count)
		r->status = ABI_STATUS_MISS;
	r->total = r->held * fetch_range_pages(r);
	r->stripe = stripe_blocks(r);
}

static void hold_pages(struct core *c, struct request *r)
{
	struct abi_page_ref *p = (struct abi_page_ref *)r->arg;

	for (r->held = 0; r->held < r->sqe.count; r->held++) {
		struct abi_block_ref ref = { p[r->held].slot, p[r->held].generation };

		if (p[r->held].page < r->ctx->ix.pages_per_block &&
		    fetch_block_there(r->ctx, ref)) {
			hold(c, r, ref.slot);
			continue;
		}
		p[r->held].slot = ABI_SLOT_NONE;
		r->status = ABI_STATUS_MISS;
	}
	r->total = r->held;
}

void fetch_release(struct core *c, struct request *r)
{
	size_t item_bytes = r->sqe.op == ABI_OP_FETCH_PAGES ? sizeof(struct abi_page_ref)
							    : sizeof(struct abi_block_ref);

	for (uint32_t i = 0; i < r->held; i++) {
		uint32_t slot;

		memcpy(&slot, r->arg + i * item_bytes, sizeof(slot));
		if (slot == ABI_SLOT_NONE)
			continue;
		/* It was asked for: it is recent, also where only some of its pages came. */
		block_used(c, r->ctx, slot, 1);
		block_unhold(c, r->ctx, slot);
		if (r->sqe.op == ABI_OP_MIGRATE)
			migrate_released(c, r, slot);
	}
	r->held = 0;
}

static bool item_ready(const struct request *r, uint32_t i)
{
	struct abi_block_ref ref;
	uint32_t page;
	const struct abi_page *d;

	item(r, i, &ref, &page);
	if (ref.slot == ABI_SLOT_NONE || !fetch_block_there(r->ctx, ref))
		return false;
	if (!(index_block(&r->ctx->ix, ref.slot)->parts >> r->ctx->page_part[page] & 1))
		return true; /* not a page that this block has */
	d = index_page(&r->ctx->ix, ref.slot, page);
	return page_state(d, r->sqe.tier) == ABI_PAGE_READY;
}

/* Blocks usable from the first, or pages that are there. */
static uint64_t usable(const struct request *r)
{
	uint32_t first_bad = r->held;
	uint64_t ready = 0;

	for (uint32_t i = 0; i < r->total; i++) {
		uint32_t ref = 0, page;

		if (item_ready(r, i)) {
			ready++;
			continue;
		}
		if (r->sqe.op == ABI_OP_FETCH_PAGES)
			continue;
		fetch_item(r, i, &ref, &page);
		if (ref < first_bad)
			first_bad = ref;
	}
	return r->sqe.op == ABI_OP_FETCH_PAGES ? ready : first_bad;
}

static void fetch_end(struct core *c, struct request *r)
{
	uint64_t whole = r->sqe.op == ABI_OP_FETCH_PAGES ? r->total : r->held;
	uint64_t value = usable(r);

	if (r->error == -EIO) {
		r->error = 0; /* told by status: the engine recomputes */
		r->status = ABI_STATUS_MISS;
	} else if ((r->late && value < whole) || claim_over(c, r)) {
		r->status = ABI_STATUS_LATE;
	}
	if (r->sqe.op == ABI_OP_PREFETCH && !r->error)
		claim_protect(c, r);
	claim_finished(c, r);
	request_end(c, r, r->error, value, r->protected_blocks);
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
		    sched_outranks(c, abi_nvme_offset(d->nvme), r->sqe.klass,
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
 * Look at items from the cursor on. Those before r->built are there or on their way: while the one
 * at the cursor is not there yet, they are not looked at again.
 */
static enum move_state fetch_items(struct core *c, struct request *r, struct mover *b,
				    uint32_t end)
{
	enum move_state state = MOVE_THERE;
	uint32_t i = r->cursor;

	while (i < end) {
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

void fetch_step(struct core *c, struct request *r)
{
	struct mover b = { .io = NULL };
	enum move_state state;
	uint32_t end;

	r->phase = REQUEST_RUN;
	if (r->error || r->late || r->ctx->closing) {
		if (r->ctx->closing && !r->error)
			r->error = -ENOENT;
		fetch_end(c, r);
		return;
	}
	if (r->losses != sched_losses(c) || r->leaving) {
		r->losses = sched_losses(c);
		r->leaving = false;
		r->joined = r->built = r->cursor;
	}
	if (r->sqe.tier == ABI_TIER_HBM)
		r->built = r->cursor; /* what came to CXL goes further */
	end = r->total - r->cursor > FETCH_WINDOW ? r->cursor + FETCH_WINDOW : r->total;
	state = fetch_items(c, r, &b, end);
	move_submit(c, r, &b);
	if (r->cursor == r->total)
		fetch_end(c, r);
	else if (state != MOVE_BLOCKED && end < r->total && r->cursor == end)
		request_wake(c, r);
	else
		fetch_wait(c, r, &b, state == MOVE_BLOCKED);
}

void fetch_begin(struct core *c, struct request *r)
{
	if (r->foreseen && c->staged.bytes)
		evict_drain_logs(c); /* what was read before is no use of what comes now */
	if (r->sqe.op == ABI_OP_FETCH_PAGES)
		hold_pages(c, r);
	else
		hold_blocks(c, r);
	c->metrics.fetch_pages += r->total;
	fetch_step(c, r);
}
