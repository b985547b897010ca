/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demand fetch: brings the pages of a list into CXL (reading NVMe) or further into HBM (copying
 * from CXL). Pages that lie side by side in the store are read by one operation; pages that another
 * request is already bringing are waited for, not read twice.
 *
 * Blocks are held from begin to end, so what has come stays until the answer. Order of items is
 * part, layer, block, group: that of a run on NVMe (abi/disk.h D7).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define FETCH_WINDOW 2048u /* items looked at in one step */

enum fetch_state { FETCH_READY, FETCH_MOVING, FETCH_BLOCKED, FETCH_GONE };

/* What one step is building. */
struct builder {
	struct core_io *io;
	struct core_copy *copy;
	uint64_t blocked_bytes;
	uint32_t blocked_tier;
};

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

static uint32_t range_pages(const struct request *r)
{
	const struct abi_geometry *g = context_geometry(r->ctx);
	uint32_t pages = 0, first;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (range_part(r, i))
			pages += range_layers(r, &g->part[i], &first) * g->part[i].groups;
	return pages;
}

/* Item i of a FETCH: which block, which page. */
static void fetch_item(const struct request *r, uint32_t i, uint32_t *ref, uint32_t *page)
{
	const struct abi_geometry *g = context_geometry(r->ctx);

	for (uint32_t k = 0; k < g->part_count; k++) {
		const struct abi_part *part = &g->part[k];
		uint32_t first, n, per_layer = r->held * part->groups;

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
	r->total = r->held * range_pages(r);
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
	} else if (r->late && value < whole) {
		r->status = ABI_STATUS_LATE;
	}
	if (r->sqe.op == ABI_OP_PREFETCH && !r->error)
		claim_protect(c, r);
	claim_finished(c, r);
	request_end(c, r, r->error, value, r->protected_blocks);
}

/* ---- NVMe -> CXL -------------------------------------------------------------------------- */

static void page_fail(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	stage_fail(c, x, slot, tier, page_stride(x, page));
	space_free(x->space[tier], page_addr(d, tier));
	page_free(d, tier);
	block_page_freed(c, x, slot, page, tier);
}

static void page_came(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	if (x->meta[slot].flags & BLOCK_DROPPED) {
		page_fail(c, x, slot, page, tier);
		return;
	}
	page_publish(index_page(&x->ix, slot, page), tier);
	block_resident(c, x, slot, page, tier);
}

/* Rotten or foreign bytes: the block is not offered again, now or after a restart. */
static void page_bad(struct core *c, struct context *x, uint32_t slot, uint32_t page)
{
	c->metrics.read_bad++;
	if (!(x->meta[slot].flags & BLOCK_DROPPED)) {
		tombstone(c, x, index_block(&x->ix, slot)->key, store_lsn(c->store));
		block_drop(c, x, slot);
	}
	page_fail(c, x, slot, page, ABI_TIER_CXL);
}

/* What was withdrawn is told by who withdrew it; what was not begun in time is late. */
static void fetch_failed(struct request *r, int res)
{
	if (res == -ETIME)
		r->late = true;
	else if (res && !r->error)
		r->error = -EIO;
}

/* Bytes of a prefetch that came after their time of use. */
static void landed(struct core *c, const struct request *r, uint64_t bytes)
{
	if (r->foreseen && r->sqe.deadline_ns && c->now_ns > r->deadline_ns)
		c->metrics.prefetch_late += bytes;
}

static void fetch_read(struct core *c, struct core_io *io)
{
	struct request *r = io->priv.owner;
	struct context *x = r->ctx;
	bool failed = io->res < 0 || (uint64_t)io->res != io->bytes;
	bool undone = io->res == -ETIME || io->res == -ECANCELED; /* never given to the device */
	bool freed;

	store_read_end(c->store, store_segment_of(c->store, io->offset));
	for (uint32_t i = 0; i < io->piece_count; i++) {
		uint32_t slot = io->priv.slot[i], page = io->priv.page[i];

		if (failed) {
			c->metrics.read_bad += !undone;
			page_fail(c, x, slot, page, ABI_TIER_CXL);
		} else if (io->bad_mask >> i & 1) {
			page_bad(c, x, slot, page);
		} else {
			c->metrics.read_pages++;
			c->metrics.read_bytes += io->piece[i].bytes;
			landed(c, r, io->piece[i].bytes);
			page_came(c, x, slot, page, ABI_TIER_CXL);
		}
	}
	freed = failed || io->bad_mask;
	fetch_failed(r, failed ? io->res : 0);
	core_io_put(c, io);
	request_landed(c, r);
	if (freed)
		request_wake_space(c);
	else
		request_wake_joiners(c);
}

static void io_submit(struct core *c, struct request *r, struct builder *b)
{
	if (!b->io)
		return;
	r->outstanding++;
	store_read_begin(c->store, store_segment_of(c->store, b->io->offset));
	sched_io(c, b->io);
	b->io = NULL;
}

static struct core_io *io_for(struct core *c, struct request *r, struct builder *b, uint64_t offset,
			      uint32_t bytes)
{
	if (b->io &&
	    (b->io->piece_count == CORE_SEGMENTS_IO || b->io->offset + b->io->bytes != offset ||
	     b->io->bytes + bytes > CORE_IO_BYTES_MAX))
		io_submit(c, r, b);
	if (b->io)
		return b->io;
	b->io = core_io_get(c, r->sqe.klass, r->client);
	if (!b->io)
		return NULL;
	b->io->verify = 1;
	b->io->offset = offset;
	b->io->deadline_ns = r->deadline_ns;
	b->io->priv.done = fetch_read;
	b->io->priv.owner = r;
	return b->io;
}

static enum fetch_state blocked(struct builder *b, uint32_t tier, uint64_t bytes)
{
	b->blocked_tier = tier;
	b->blocked_bytes = bytes;
	return FETCH_BLOCKED;
}

static enum fetch_state read_page(struct core *c, struct request *r, struct builder *b,
				  uint32_t slot, uint32_t page)
{
	struct context *x = r->ctx;
	struct abi_page *d = index_page(&x->ix, slot, page);
	uint32_t bytes = page_stride(x, page), n;
	struct core_io *io;
	int64_t place;

	if (!(d->nvme & ABI_NVME_PRESENT) || !page_usable(d, ABI_TIER_CXL))
		return FETCH_GONE;
	io = io_for(c, r, b, abi_nvme_offset(d->nvme), bytes);
	if (!io)
		return blocked(b, ABI_TIER_CXL, 0);
	place = place_alloc(c, x, page, ABI_TIER_CXL);
	if (place < 0) {
		if (!io->piece_count) {
			core_io_put(c, io);
			b->io = NULL;
		}
		return blocked(b, ABI_TIER_CXL, bytes);
	}
	if (r->foreseen)
		stage_commit(c, x, slot, ABI_TIER_CXL, bytes);
	page_reserve(d, ABI_TIER_CXL, (uint64_t)place);
	page_fill(d, ABI_TIER_CXL);
	x->meta[slot].held++;
	n = io->piece_count++;
	io->bytes += bytes;
	io->piece[n] = (struct core_io_piece){
		.addr = (uint8_t *)x->memory.mem[ABI_TIER_CXL] + place,
		.bytes = bytes,
		.seed = store_page_seed(index_block(&x->ix, slot)->key, x->meta[slot].salt, page),
		.crc = d->crc,
	};
	io->priv.slot[n] = slot;
	io->priv.page[n] = page;
	return FETCH_MOVING;
}

/* ---- CXL -> HBM --------------------------------------------------------------------------- */

static uint32_t page_layer(const struct context *x, uint32_t page)
{
	const struct abi_part *part = &x->spec.geometry.part[x->page_part[page]];

	return (page - part->page_base) / part->groups;
}

static void fetch_copied(struct core *c, struct core_copy *copy)
{
	struct request *r = copy->priv.owner;

	for (uint32_t i = 0; i < copy->count; i++) {
		uint32_t slot = copy->priv.slot[i], page = copy->priv.page[i];

		if (copy->res) {
			page_fail(c, r->ctx, slot, page, ABI_TIER_HBM);
			continue;
		}
		c->metrics.promoted_bytes += copy->item[i].bytes;
		landed(c, r, copy->item[i].bytes);
		page_came(c, r->ctx, slot, page, ABI_TIER_HBM);
	}
	fetch_failed(r, copy->res);
	if (copy->res)
		request_wake_space(c);
	else
		request_wake_joiners(c);
	core_copy_put(c, copy);
	request_landed(c, r);
}

static void copy_submit(struct core *c, struct request *r, struct builder *b)
{
	if (!b->copy)
		return;
	if (!b->copy->count) {
		core_copy_put(c, b->copy);
	} else {
		r->outstanding++;
		sched_copy(c, b->copy);
	}
	b->copy = NULL;
}

static enum fetch_state promote_page(struct core *c, struct request *r, struct builder *b,
				     uint32_t slot, uint32_t page)
{
	struct context *x = r->ctx;
	struct abi_page *d = index_page(&x->ix, slot, page);
	uint32_t n;
	int64_t place;

	if (!page_usable(d, ABI_TIER_HBM))
		return FETCH_GONE;
	if (b->copy && b->copy->count == CORE_SEGMENTS_IO)
		copy_submit(c, r, b);
	if (!b->copy) {
		b->copy = core_copy_get(c, r->sqe.klass, r->client);
		if (!b->copy)
			return blocked(b, ABI_TIER_HBM, 0);
		b->copy->deadline_ns = r->deadline_ns;
		b->copy->order = page_layer(x, page);
		b->copy->src_tier = ABI_TIER_CXL;
		b->copy->dst_tier = ABI_TIER_HBM;
		b->copy->priv.done = fetch_copied;
		b->copy->priv.owner = r;
	}
	place = place_alloc(c, x, page, ABI_TIER_HBM);
	if (place < 0)
		return blocked(b, ABI_TIER_HBM, page_stride(x, page));
	if (r->foreseen)
		stage_commit(c, x, slot, ABI_TIER_HBM, page_stride(x, page));
	page_reserve(d, ABI_TIER_HBM, (uint64_t)place);
	page_fill(d, ABI_TIER_HBM);
	x->meta[slot].held++;
	n = b->copy->count++;
	b->copy->item[n] = (struct core_copy_item){
		.dst = (uint8_t *)x->memory.mem[ABI_TIER_HBM] + place,
		.src = (uint8_t *)x->memory.mem[ABI_TIER_CXL] + page_addr(d, ABI_TIER_CXL),
		.bytes = page_stride(x, page),
	};
	b->copy->priv.slot[n] = slot;
	b->copy->priv.page[n] = page;
	return FETCH_MOVING;
}

/* ---- step --------------------------------------------------------------------------------- */

static bool leaves(uint32_t state)
{
	return state == ABI_PAGE_RETIRING || state == ABI_PAGE_QUARANTINED;
}

/*
 * Somebody brings the page: what he has queued for it takes our class if that is more urgent. Each
 * item looks once, and again when operations ended undone or a page was on its way out, for others
 * may have begun anew.
 */
static enum fetch_state join(struct core *c, struct request *r, const struct abi_page *d,
			     uint32_t i)
{
	const uint8_t *hbm = r->ctx->memory.mem[ABI_TIER_HBM];
	uint32_t in_cxl = page_state(d, ABI_TIER_CXL), in_hbm = page_state(d, ABI_TIER_HBM);

	if (i < r->joined)
		return FETCH_MOVING;
	r->joined = i + 1;
	if (in_cxl == ABI_PAGE_FILLING)
		sched_raise(c, abi_nvme_offset(d->nvme), r->sqe.klass, r->deadline_ns);
	else if (in_hbm == ABI_PAGE_FILLING)
		sched_raise_copy(c, hbm + page_addr(d, ABI_TIER_HBM), r->sqe.klass, r->deadline_ns);
	r->leaving |= leaves(in_cxl) || leaves(in_hbm);
	return FETCH_MOVING;
}

/*
 * Does it wait for a page that is queued in a less urgent class? Never between events, but for
 * items that it has not looked at yet.
 */
bool fetch_outranks(const struct core *c, const struct request *r)
{
	for (uint32_t i = r->cursor; i < r->joined && i < r->total; i++) {
		struct abi_block_ref ref;
		const struct abi_page *d;
		uint32_t page;

		item(r, i, &ref, &page);
		if (ref.slot == ABI_SLOT_NONE || !fetch_block_there(r->ctx, ref))
			continue;
		d = index_page(&r->ctx->ix, ref.slot, page);
		if (page_state(d, ABI_TIER_CXL) == ABI_PAGE_FILLING &&
		    sched_outranks(c, abi_nvme_offset(d->nvme), r->sqe.klass))
			return true;
	}
	return false;
}

static enum fetch_state fetch_page(struct core *c, struct request *r, struct builder *b, uint32_t i)
{
	struct abi_block_ref ref;
	uint32_t page, state;
	const struct abi_page *d;

	item(r, i, &ref, &page);
	if (ref.slot == ABI_SLOT_NONE)
		return FETCH_READY; /* told by status */
	if (!fetch_block_there(r->ctx, ref))
		return FETCH_GONE;
	if (!(index_block(&r->ctx->ix, ref.slot)->parts >> r->ctx->page_part[page] & 1))
		return FETCH_READY;
	d = index_page(&r->ctx->ix, ref.slot, page);
	state = page_state(d, r->sqe.tier);
	if (state == ABI_PAGE_READY)
		return FETCH_READY;
	if (state != ABI_PAGE_ABSENT)
		return join(c, r, d, i);
	if (r->sqe.tier == ABI_TIER_CXL)
		return read_page(c, r, b, ref.slot, page);
	state = page_state(d, ABI_TIER_CXL);
	if (state == ABI_PAGE_READY)
		return promote_page(c, r, b, ref.slot, page);
	if (state != ABI_PAGE_ABSENT)
		return join(c, r, d, i);
	return read_page(c, r, b, ref.slot, page);
}

static void fetch_wait(struct core *c, struct request *r, const struct builder *b, bool is_blocked)
{
	if (is_blocked && b->blocked_bytes) {
		uint64_t bytes = b->blocked_bytes * (r->total - r->cursor);

		if (bytes > 4 * CORE_IO_BYTES_MAX)
			bytes = 4 * CORE_IO_BYTES_MAX;
		if (evict_room(c, r->ctx, b->blocked_tier, bytes) && !r->outstanding) {
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
static enum fetch_state fetch_items(struct core *c, struct request *r, struct builder *b,
				    uint32_t end)
{
	enum fetch_state state = FETCH_READY;
	uint32_t i = r->cursor;

	while (i < end) {
		state = fetch_page(c, r, b, i);
		if (state == FETCH_BLOCKED)
			break;
		if (state == FETCH_GONE)
			r->status = ABI_STATUS_MISS;
		if (i++ == r->cursor && state != FETCH_MOVING)
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
	struct builder b = { .io = NULL };
	enum fetch_state state;
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
	io_submit(c, r, &b);
	copy_submit(c, r, &b);
	if (r->cursor == r->total)
		fetch_end(c, r);
	else if (state != FETCH_BLOCKED && end < r->total && r->cursor == end)
		request_wake(c, r);
	else
		fetch_wait(c, r, &b, state == FETCH_BLOCKED);
}

void fetch_begin(struct core *c, struct request *r)
{
	if (r->sqe.op == ABI_OP_FETCH_PAGES)
		hold_pages(c, r);
	else
		hold_blocks(c, r);
	c->metrics.fetch_pages += r->total;
	fetch_step(c, r);
}
