/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving pages up for a request: from NVMe into CXL or straight into HBM, pages that lie side by
 * side in the store by one operation, and CXL -> HBM. fetch.c and stream.c say which page is next
 * (path.c: by which of the paths into HBM); here is how it comes, and what becomes of those that do
 * not.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

/* ---- from NVMe ---------------------------------------------------------------------------- */

static void page_fail(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	stage_fail(c, x, slot, tier, page_stride(x, page));
	space_free(x->space[tier], page_addr(d, tier));
	page_free(d, tier);
	stream_page_uncharge(c, x, slot, page, tier);
	block_page_freed(c, x, slot, page, tier);
}

/* The next put of its block brings it once more, and does not take it for stored. */
static void page_misread(const struct core_io *io, struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (drive_misread(io) && m->persist == PERSIST_CLEAN && m->settle == SETTLE_NONE)
		m->settle = SETTLE_MISREAD;
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
static void page_bad(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		     uint32_t tier)
{
	drive_read_bad(c, 1);
	if (!(x->meta[slot].flags & BLOCK_DROPPED)) {
		tombstone(c, x, index_block(&x->ix, slot)->key, core_lsn(c));
		block_drop(c, x, slot);
	}
	page_fail(c, x, slot, page, tier);
}

/*
 * What was withdrawn is told by who withdrew it; what was not begun in time is late. What could not
 * be read ends a fetch; a stream goes on with the blocks before it.
 */
static void move_failed(struct request *r, int res, const uint32_t *slot, uint32_t count)
{
	if (res == -ETIME)
		r->late = true;
	else if (res != -ECANCELED && r->sqe.op == ABI_OP_STREAM)
		for (uint32_t i = 0; i < count; i++)
			core_signals.page_lost(r, slot[i]);
	else if (!r->error)
		r->error = -EIO;
}

/* Bytes of a prefetch that came after their time of use. */
static void landed(struct core *c, const struct request *r, uint64_t bytes)
{
	if (r->foreseen && r->sqe.deadline_ns && c->now_ns > r->deadline_ns)
		c->metrics.prefetch_late += bytes;
}

static bool io_failed(const struct core_io *io)
{
	return io->res < 0 || (uint64_t)io->res != io->bytes;
}

static void piece_came(struct core *c, const struct core_io *io, uint32_t i, uint32_t tier)
{
	struct request *r = io->priv.owner;

	c->metrics.read_pages++;
	c->metrics.read_bytes += io->piece[i].bytes;
	if (tier == ABI_TIER_HBM)
		c->metrics.direct_bytes += io->piece[i].bytes;
	landed(c, r, io->piece[i].bytes);
	page_came(c, r->ctx, io->priv.slot[i], io->priv.page[i], tier);
}

/* A read is over. Places were freed: who waits for room looks, else those who wait for pages. */
static void read_over(struct core *c, struct core_io *io, bool freed)
{
	struct request *r = io->priv.owner;

	core_io_put(c, io);
	core_signals.landed(c, r);
	if (freed)
		request_wake_space(c);
	else
		request_wake_joiners(c);
}

static void read_done(struct core *c, struct core_io *io)
{
	struct request *r = io->priv.owner;
	struct context *x = r->ctx;
	bool failed = io_failed(io);
	bool undone = io->res == -ETIME || io->res == -ECANCELED; /* never given to the device */

	drive_read_end(c, io);
	for (uint32_t i = 0; i < io->piece_count; i++) {
		uint32_t slot = io->priv.slot[i], page = io->priv.page[i];

		if (failed) {
			drive_read_bad(c, !undone);
			page_misread(io, x, slot);
			page_fail(c, x, slot, page, ABI_TIER_CXL);
		} else if (io->bad_mask >> i & 1) {
			page_bad(c, x, slot, page, ABI_TIER_CXL);
		} else {
			piece_came(c, io, i, ABI_TIER_CXL);
		}
	}
	if (failed)
		move_failed(r, io->res, io->priv.slot, io->piece_count);
	read_over(c, io, failed || io->bad_mask);
}

/* Its bytes on NVMe are rotten. While CXL has the page nothing is lost: it comes from there. */
static void direct_bad(struct core *c, struct request *r, uint32_t slot, uint32_t page)
{
	struct context *x = r->ctx;

	if (x->meta[slot].flags & BLOCK_DROPPED ||
	    page_state(index_page(&x->ix, slot, page), ABI_TIER_CXL) != ABI_PAGE_READY) {
		page_bad(c, x, slot, page, ABI_TIER_HBM);
		return;
	}
	drive_read_bad(c, 1);
	page_fail(c, x, slot, page, ABI_TIER_HBM);
	path_repair(c, x, slot);
	path_failed(c, r, PATH_DIRECT);
}

/* It failed. Each page may still come through CXL, from there or from NVMe, unless copies fail. */
static void direct_failed(struct core *c, struct core_io *io)
{
	struct request *r = io->priv.owner;
	bool undone = io->res == -ETIME || io->res == -ECANCELED;

	drive_read_bad(c, undone ? 0 : io->piece_count);
	for (uint32_t i = 0; i < io->piece_count; i++) {
		page_misread(io, r->ctx, io->priv.slot[i]);
		page_fail(c, r->ctx, io->priv.slot[i], io->priv.page[i], ABI_TIER_HBM);
	}
	if (undone || r->path_bad & PATH_COPY)
		move_failed(r, io->res, io->priv.slot, io->piece_count);
	else
		path_failed(c, r, PATH_DIRECT);
}

static void direct_done(struct core *c, struct core_io *io)
{
	struct request *r = io->priv.owner;
	bool failed = io_failed(io);

	drive_read_end(c, io);
	if (failed)
		direct_failed(c, io);
	for (uint32_t i = 0; i < io->piece_count && !failed; i++) {
		if (io->bad_mask >> i & 1)
			direct_bad(c, r, io->priv.slot[i], io->priv.page[i]);
		else
			piece_came(c, io, i, ABI_TIER_HBM);
	}
	read_over(c, io, failed || io->bad_mask);
}

static void io_submit(struct core *c, struct request *r, struct mover *b)
{
	if (!b->io)
		return;
	r->outstanding++;
	drive_read_begin(c, b->io);
	sched_io(c, b->io);
	b->io = NULL;
}

/* Has the read room for so many bytes from there? Its end is where they lie, and it is not full. */
static bool goes_on(const struct core_io *io, uint64_t nvme, uint32_t bytes)
{
	return io->device == abi_nvme_device(nvme) &&
	       io->offset + io->bytes == abi_nvme_offset(nvme) &&
		       io->piece_count < CORE_SEGMENTS_IO && io->bytes + bytes <= CORE_IO_BYTES_MAX;
}

static struct core_io *io_for(struct core *c, struct request *r, struct mover *b, uint64_t nvme,
			      uint32_t bytes, uint32_t tier)
{
	void (*done)(struct core *c, struct core_io *io) =
		tier == ABI_TIER_HBM ? direct_done : read_done;

	if (b->io && (b->io->priv.done != done || !goes_on(b->io, nvme, bytes)))
		io_submit(c, r, b);
	if (b->io)
		return b->io;
	b->io = core_io_get(c, r->sqe.klass, r->client);
	if (!b->io)
		return NULL;
	b->io->verify = 1;
	b->io->direct = tier == ABI_TIER_HBM;
	b->io->device = abi_nvme_device(nvme);
	b->io->offset = abi_nvme_offset(nvme);
	b->io->deadline_ns = r->deadline_ns;
	b->io->priv.done = done;
	b->io->priv.owner = r;
	return b->io;
}

/* Does what the request brings belong to the stream pool? */
static bool request_streams(const struct request *r)
{
	return r->sqe.op == ABI_OP_STREAM && r->sqe.mode == ABI_MODE_STREAM;
}

static int64_t page_place(struct core *c, struct request *r, uint32_t slot, uint32_t page,
			  uint32_t tier)
{
	return request_streams(r) ? place_for_stream(c, r->ctx, slot, page, tier)
				  : place_for(c, r->ctx, slot, page, tier);
}

/* Charged to the accounts of the block, and for a stream to the stream pool. */
static void page_taken(struct core *c, struct request *r, uint32_t slot, uint32_t page,
		       uint32_t tier, int64_t place)
{
	if (r->foreseen && !c->staged.bytes)
		evict_drain_logs(c); /* what was read before is no use of it */
	if (r->foreseen)
		stage_commit(c, r->ctx, slot, tier, page_stride(r->ctx, page));
	block_page_taken(c, r->ctx, slot, page, tier, (uint64_t)place);
	if (request_streams(r))
		stream_page_charge(c, r->ctx, slot, page, tier);
}

static enum move_state blocked(struct mover *b, uint32_t tier, uint64_t bytes)
{
	b->blocked_tier = tier;
	b->blocked_bytes = bytes;
	b->blocked_slot = ABI_SLOT_NONE;
	return MOVE_BLOCKED;
}

/* There is no place for a page of the block: whose room is short? */
static enum move_state no_place(struct mover *b, uint32_t slot, uint32_t tier, uint64_t bytes,
				int64_t error)
{
	blocked(b, tier, bytes);
	if (error == -EDQUOT)
		b->blocked_slot = slot;
	return MOVE_BLOCKED;
}

static enum move_state read_page(struct core *c, struct request *r, struct mover *b,
				 const struct abi_page_ref *at, uint32_t tier)
{
	struct context *x = r->ctx;
	uint32_t slot = at->slot, page = at->page;
	struct abi_page *d = index_page(&x->ix, slot, page);
	uint32_t bytes = page_stride(x, page), n;
	struct core_io *io;
	int64_t place;

	if (!(d->nvme & ABI_NVME_PRESENT) || !page_usable(d, tier))
		return MOVE_GONE;
	io = io_for(c, r, b, d->nvme, bytes, tier);
	if (!io)
		return blocked(b, tier, 0);
	place = page_place(c, r, slot, page, tier);
	if (place < 0) {
		if (!io->piece_count) {
			core_io_put(c, io);
			b->io = NULL;
		}
		return no_place(b, slot, tier, bytes, place);
	}
	page_taken(c, r, slot, page, tier, place);
	n = io->piece_count++;
	io->klass = (uint8_t)block_class(x, slot, tier, io->klass);
	io->bytes += bytes;
	io->piece[n] = (struct core_io_piece){
		.addr = (uint8_t *)x->memory.mem[tier] + place,
		.bytes = bytes,
		.seed = store_page_seed(index_block(&x->ix, slot)->key, block_salt(x, slot), page),
		.crc = d->crc,
	};
	io->priv.slot[n] = slot;
	io->priv.page[n] = page;
	return MOVE_UNDER_WAY;
}

enum move_state move_read(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			  uint32_t page)
{
	const struct abi_page_ref at = { .slot = slot, .page = page };

	return read_page(c, r, b, &at, ABI_TIER_CXL);
}

enum move_state move_direct(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			    uint32_t page)
{
	const struct abi_page_ref at = { .slot = slot, .page = page };

	return read_page(c, r, b, &at, ABI_TIER_HBM);
}

/* Does the page, of so many bytes, go on where the read being built ends? */
bool move_goes_on(const struct mover *b, const struct abi_page *d, uint32_t bytes)
{
	return b->io && goes_on(b->io, d->nvme, bytes);
}

/* The same for a direct read: its bytes so far; else 0. */
uint64_t move_direct_building(const struct mover *b, const struct abi_page *d, uint32_t bytes)
{
	return move_goes_on(b, d, bytes) && b->io->direct ? b->io->bytes : 0;
}

/* ---- CXL -> HBM --------------------------------------------------------------------------- */

static uint32_t page_layer(const struct context *x, uint32_t page)
{
	const struct abi_part *part = &x->spec.geometry.part[x->page_part[page]];

	return (page - part->page_base) / part->groups;
}

/* A copy failed that the device can stand in for. */
static bool other_path(const struct core *c, const struct core_copy *copy)
{
	const struct request *r = copy->priv.owner;
	bool other = copy->res != -ETIME && copy->res != -ECANCELED;

	for (uint32_t i = 0; other && i < copy->count; i++)
		other = path_direct(c, r, index_page(&r->ctx->ix, copy->priv.slot[i],
						     copy->priv.page[i]));
	return other;
}

static void copy_done(struct core *c, struct core_copy *copy)
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
	if (copy->res) {
		if (other_path(c, copy))
			path_failed(c, r, PATH_COPY);
		else
			move_failed(r, copy->res, copy->priv.slot, copy->count);
		request_wake_space(c);
	} else {
		request_wake_joiners(c);
	}
	core_copy_put(c, copy);
	core_signals.landed(c, r);
}

void move_submit_copy(struct core *c, struct request *r, struct mover *b)
{
	if (!b->copy)
		return;
	b->copy_bytes = 0;
	if (!b->copy->count) {
		core_copy_put(c, b->copy);
	} else {
		r->outstanding++;
		sched_copy(c, b->copy);
	}
	b->copy = NULL;
}

enum move_state move_promote(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			     uint32_t page)
{
	struct context *x = r->ctx;
	struct abi_page *d = index_page(&x->ix, slot, page);
	struct core_copy_item item;
	int64_t place;

	if (!page_usable(d, ABI_TIER_HBM))
		return MOVE_GONE;
	if (b->copy && b->copy->count == CORE_SEGMENTS_IO)
		move_submit_copy(c, r, b);
	if (!b->copy) {
		b->copy = core_copy_get(c, r->sqe.klass, r->client);
		if (!b->copy)
			return blocked(b, ABI_TIER_HBM, 0);
		b->copy->deadline_ns = r->deadline_ns;
		b->copy->order = page_layer(x, page);
		b->copy->src_tier = ABI_TIER_CXL;
		b->copy->dst_tier = ABI_TIER_HBM;
		b->copy->priv.done = copy_done;
		b->copy->priv.owner = r;
	}
	place = page_place(c, r, slot, page, ABI_TIER_HBM);
	if (place < 0)
		return no_place(b, slot, ABI_TIER_HBM, page_stride(x, page), place);
	page_taken(c, r, slot, page, ABI_TIER_HBM, place);
	b->copy->klass = (uint8_t)block_class(x, slot, ABI_TIER_HBM, b->copy->klass);
	item = (struct core_copy_item){
		.dst = (uint8_t *)x->memory.mem[ABI_TIER_HBM] + place,
		.src = (uint8_t *)x->memory.mem[ABI_TIER_CXL] + page_addr(d, ABI_TIER_CXL),
		.bytes = page_stride(x, page),
	};
	sched_copy_add(b->copy, &item, slot, page);
	b->copy_bytes += page_stride(x, page);
	return MOVE_UNDER_WAY;
}

/* A step was blocked: start what makes room for so many bytes. As evict_room. */
int move_make_room(struct core *c, struct request *r, const struct mover *b, uint64_t bytes)
{
	if (b->blocked_slot == ABI_SLOT_NONE)
		return evict_room(c, r->ctx, b->blocked_tier, bytes);
	return evict_account(c, r->ctx, b->blocked_slot, b->blocked_tier, bytes);
}

void move_submit(struct core *c, struct request *r, struct mover *b)
{
	io_submit(c, r, b);
	move_submit_copy(c, r, b);
}

/*
 * Somebody brings the page: what he has queued for it takes our class if that is more urgent. So
 * does what will be queued for it when it has come to CXL only and is to go on, or when it fails.
 */
void move_join(struct core *c, const struct request *r, uint32_t slot, const struct abi_page *d)
{
	const uint8_t *hbm = r->ctx->memory.mem[ABI_TIER_HBM];
	bool to_hbm = page_state(d, ABI_TIER_HBM) == ABI_PAGE_FILLING;

	for (uint32_t tier = r->sqe.tier; tier < ABI_MEM_TIERS; tier++)
		block_await(r->ctx, slot, tier, r->sqe.klass);
	if (to_hbm)
		sched_raise_copy(c, hbm + page_addr(d, ABI_TIER_HBM), r->sqe.klass, r->deadline_ns);
	if (!to_hbm && page_state(d, ABI_TIER_CXL) != ABI_PAGE_FILLING)
		return;
	while (sched_raise(c, d->nvme, r->sqe.klass, r->deadline_ns))
		; /* of two reads of the page, one to either tier, both */
}
