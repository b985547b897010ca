/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two paths lead into HBM: copies from CXL, and reads straight from NVMe where the device can write
 * into HBM (config.direct). They share no link, so a request uses both: each page that could come
 * either way goes where it would be there first, by what is queued and by the bandwidths measured.
 * As each page evens the two out, they end together (the split of ForeMoE, x_i in proportion to
 * bandwidth_i, found page by page). No more is queued ahead than PATH_AHEAD_NS, so that a wrong
 * estimate is seen and set right before much hangs on it.
 *
 * A page that is on NVMe alone is read in any case. Through CXL it leaves a copy there, for the
 * next time; straight it does not wait for the other channel. So it goes through CXL while that
 * channel would be ready for it, but what was foreseen never pushes a page out of CXL (P1), and
 * what a stream brings to be read once goes straight: the copy that it would leave is let go at
 * once.
 *
 * A path that fails is not tried again by the request; the other one takes over.
 */
#include <assert.h>

#include "tierd/core/state.h"

#define PATH_AHEAD_NS (2 * MS)
#define PATH_LATENCY_NS (MS / 2)
#define PATH_ROOM 8u /* CXL has room: this part of what is charged is free, or can be charged */

/* Could the page come straight from NVMe, for this request? */
bool path_direct(const struct core *c, const struct request *r, const struct abi_page *d)
{
	return c->config.direct && d->nvme & ABI_NVME_PRESENT && !(r->path_bad & PATH_DIRECT);
}

static bool cxl_has_room(const struct context *x)
{
	struct space_stats st;

	space_stats(x->space[ABI_TIER_CXL], &st);
	return st.available >= st.charged / PATH_ROOM;
}

/* When the page would be there by either path, in ns from now. */
struct outlook {
	uint64_t direct_ns, copy_ns;
};

/*
 * As the scheduler sees it, but for a latency that no path has: such a one was measured on a host
 * that was busy elsewhere, and a path that is not used because of it would never be measured again.
 */
static uint64_t ready_ns(const struct core *c, enum sched_channel channel, uint64_t bytes,
			 uint32_t klass)
{
	struct sched_channel_stats st;

	sched_channel_stats(c, channel, &st);
	return sched_ready_ns(c, channel, bytes, klass, 0) -
	       (st.latency_ns > PATH_LATENCY_NS ? st.latency_ns - PATH_LATENCY_NS : 0);
}

static struct outlook outlook(const struct core *c, const struct request *r,
			      const struct mover *b, uint64_t bytes)
{
	uint64_t reading = b->io ? b->io->bytes : 0;

	return (struct outlook){
		ready_ns(c, SCHED_READ, reading + bytes, r->sqe.klass),
		ready_ns(c, SCHED_TO_HBM, b->copy_bytes + bytes, r->sqe.klass),
	};
}

/* Copied in pieces of the size of reads: what came is used, and left, while the rest comes. */
static enum move_state copy_page(struct core *c, struct request *r, struct mover *b, uint32_t slot,
				 uint32_t page)
{
	enum move_state state;

	/* It stays while it is copied; a stream that counts on it keeps it. */
	if (r->sqe.op != ABI_OP_STREAM)
		stream_page_adopt(c, r->ctx, slot, page, ABI_TIER_CXL);
	state = move_promote(c, r, b, slot, page);
	if (b->copy_bytes >= CORE_IO_BYTES_MAX)
		move_submit_copy(c, r, b);
	return state;
}

static enum move_state wait_turn(struct mover *b)
{
	b->blocked_tier = ABI_TIER_HBM;
	b->blocked_bytes = 0;
	b->blocked_slot = ABI_SLOT_NONE;
	return MOVE_BLOCKED;
}

/* It is in CXL and on NVMe. */
static enum move_state either(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			      uint32_t page)
{
	struct outlook o = outlook(c, r, b, page_stride(r->ctx, page));
	bool direct = o.direct_ns < o.copy_ns;

	if (r->outstanding && (direct ? o.direct_ns : o.copy_ns) > PATH_AHEAD_NS)
		return wait_turn(b);
	return direct ? move_direct(c, r, b, slot, page) : copy_page(c, r, b, slot, page);
}

/* It is on NVMe alone. What is read once and goes leaves nothing in CXL: no copy for it. */
static enum move_state upwards(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			       uint32_t page)
{
	struct outlook o = outlook(c, r, b, page_stride(r->ctx, page));

	if (r->sqe.op == ABI_OP_STREAM && r->sqe.mode == ABI_MODE_STREAM)
		return move_direct(c, r, b, slot, page);
	if (o.copy_ns > o.direct_ns || (r->foreseen && !cxl_has_room(r->ctx)))
		return move_direct(c, r, b, slot, page);
	return move_read(c, r, b, slot, page);
}

/* The page is absent from HBM, and in CXL ready or absent: bring it a step. */
enum move_state path_to_hbm(struct core *c, struct request *r, struct mover *b, uint32_t slot,
			    uint32_t page)
{
	const struct abi_page *d = index_page(&r->ctx->ix, slot, page);
	bool in_cxl = page_state(d, ABI_TIER_CXL) == ABI_PAGE_READY;
	uint64_t building;

	assert(in_cxl || page_state(d, ABI_TIER_CXL) == ABI_PAGE_ABSENT);
	if (!path_direct(c, r, d))
		return in_cxl ? copy_page(c, r, b, slot, page) : move_read(c, r, b, slot, page);
	if (r->path_bad & PATH_COPY)
		return move_direct(c, r, b, slot, page);
	building = move_direct_building(b, d, page_stride(r->ctx, page));
	if (building && building < sched_unit_bytes(c, r->sqe.klass))
		return move_direct(c, r, b, slot, page); /* one larger read instead of two */
	return in_cxl ? either(c, r, b, slot, page) : upwards(c, r, b, slot, page);
}

/* The request tries it no more, and looks at its pages anew. */
void path_failed(struct core *c, struct request *r, uint32_t path)
{
	assert(path == PATH_DIRECT || path == PATH_COPY);
	r->path_bad |= (uint8_t)path;
	r->leaving = true;
	c->metrics.path_failed++;
}

/*
 * A page's bytes on NVMe are rotten, or cannot be read, but CXL has them. If CXL has the whole
 * block to itself, the block is written again and its old place given up; else the next read from
 * there will tell. So for a durable one: recovery takes the newer record, which may have come
 * through without its data.
 */
void path_repair(struct core *c, struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	if (m->persist != PERSIST_CLEAN ||
	    (m->settle != SETTLE_NONE && m->settle != SETTLE_MISREAD) ||
	    m->flags & (BLOCK_MOVING | BLOCK_DURABLE) ||
	    block_use(x, slot)->streamed[ABI_TIER_CXL] ||
	    m->there[ABI_TIER_CXL].pages != block_pages(x, slot))
		return;
	block_unwritten(c, x, slot);
	writeback_enqueue(c, x, slot);
	c->metrics.blocks_repaired++;
}
