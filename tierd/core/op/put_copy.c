/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a put: committed staging is copied into CXL while it is checksummed; each block is
 * visible when its last page is in (I5), retained as its put says.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define PUT_COPIES 4u /* copy jobs of one put under way */

static void page_abandon(struct core *c, struct context *x, uint32_t slot, uint32_t page)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	space_free(x->space[ABI_TIER_CXL], page_addr(d, ABI_TIER_CXL));
	page_free(d, ABI_TIER_CXL);
	block_page_freed(c, x, slot, page, ABI_TIER_CXL);
}

static int page_copied(struct core *c, const struct request *r, const struct core_copy *copy,
		       uint32_t i)
{
	struct context *x = r->ctx;
	uint32_t slot = copy->priv.slot[i], page = copy->priv.page[i];
	struct abi_page *d = index_page(&x->ix, slot, page);
	bool pending = index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING;

	if (copy->res || x->meta[slot].flags & BLOCK_DROPPED) {
		page_abandon(c, x, slot, page);
		return copy->res;
	}
	if (!pending && d->crc != copy->item[i].crc) {
		page_abandon(c, x, slot, page); /* not the bytes stored under this key */
		return -EBADMSG;
	}
	d->crc = copy->item[i].crc;
	c->metrics.put_bytes += copy->item[i].bytes;
	page_publish(d, ABI_TIER_CXL);
	block_resident(c, x, slot, page, ABI_TIER_CXL);
	if (x->meta[slot].settle == SETTLE_MISREAD)
		path_repair(c, x, slot);
	assert(!pending || block_use(x, slot)->missing > 0);
	if (pending && !--block_use_make(x, slot)->missing) {
		block_commit(c, x, slot);
		writeback_enqueue(c, x, slot);
		put_retain_block(c, r->put, slot); /* before a record can be written */
	}
	return 0;
}

static void put_copied(struct core *c, struct core_copy *copy)
{
	struct request *r = copy->priv.owner;

	put_places_settled(c, r->ctx, copy);
	for (uint32_t i = 0; i < copy->count; i++) {
		int err = page_copied(c, r, copy, i);

		if (err && !r->error)
			r->error = err;
	}
	core_copy_put(c, copy);
	r->ctx->put_copies--;
	request_landed(c, r);
}

static void copy_submit(struct core *c, struct request *r, struct core_copy *copy)
{
	if (!copy)
		return;
	r->outstanding++;
	r->ctx->put_copies++;
	sched_copy(c, copy);
}

static struct core_copy *copy_begin(struct core *c, struct request *r)
{
	struct core_copy *copy = core_copy_get(c, ABI_CLASS_DEMAND, r->client);

	if (!copy)
		return NULL;
	copy->deadline_ns = r->deadline_ns;
	copy->checksum = 1;
	copy->src_tier = ABI_TIER_COUNT;
	copy->dst_tier = ABI_TIER_CXL;
	copy->priv.done = put_copied;
	copy->priv.owner = r;
	return copy;
}

static void copy_page(struct core *c, struct request *r, struct core_copy *copy,
		      const struct shard_page *s, uint64_t offset)
{
	struct put *p = r->put;
	struct put_place *own = put_place_of(p, r->cursor);
	struct context *x = r->ctx;
	uint32_t slot = p->ref[s->block].slot;
	const struct core_copy_item item = {
		.dst = (uint8_t *)x->memory.mem[ABI_TIER_CXL] + offset,
		.src = own ? NULL : c->client[r->client].open.staging + r->sqe.arg_offset +
				    s->block * p->block_bytes + s->offset,
		.bytes = page_stride(x, s->page),
		.pad = page_padding(x, s->page),
		.seed = store_page_seed(index_block(&x->ix, slot)->key, block_salt(x, slot),
					s->page),
	};

	block_page_taken(c, x, slot, s->page, ABI_TIER_CXL, offset);
	sched_copy_add(copy, &item, slot, s->page);
	if (!own)
		return;
	put_copy_in_place(copy, x);
	put_place_forget(p, own);
}

/* Does item `cursor` (*s) want a copy? Blocks that are whole or gone are stepped over at once. */
static bool wants_copy(struct request *r, struct shard_page *s)
{
	const struct put *p = r->put;
	struct context *x = r->ctx;
	uint32_t i = r->cursor / p->pages;
	uint32_t slot = p->ref[i].slot, state;
	const struct abi_page *d;

	if (!put_mine(p, i) || x->meta[slot].flags & BLOCK_DROPPED) {
		r->cursor = (i + 1) * p->pages;
		return false;
	}
	*s = shard_page(x, p, r->cursor - i * p->pages);
	s->block = i;
	d = index_page(&x->ix, slot, s->page);
	state = page_state(d, ABI_TIER_CXL);
	if (index_block(&x->ix, slot)->parts >> x->page_part[s->page] & 1 &&
	    (state == ABI_PAGE_ABSENT ||
	     (state != ABI_PAGE_READY &&
	      index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED)) &&
	    page_usable(d, ABI_TIER_CXL))
		return true;
	r->cursor++;
	return false;
}

/* A place for the page; -EAGAIN while it is leaving or on its way (durable puts). */
static int64_t copy_place(struct core *c, struct request *r, const struct shard_page *s)
{
	uint32_t slot = r->put->ref[s->block].slot, page = s->page;
	const struct abi_page *d = index_page(&r->ctx->ix, slot, page);
	const struct put_place *own = put_place_of(r->put, r->cursor);

	if (page_state(d, ABI_TIER_CXL) != ABI_PAGE_ABSENT)
		return -EAGAIN;
	if (!own)
		return put_alloc(c, r->put, slot, page);
	/* It was charged to nobody until now. */
	return quota_left(c, r->ctx, slot, ABI_TIER_CXL) < page_stride(r->ctx, page) ?
		       -EDQUOT : (int64_t)own->offset;
}

/* Pages that the put may still want at once, the one at the cursor first: no more need to leave. */
static uint64_t pages_ahead(const struct request *r)
{
	assert(r->cursor < r->total);
	return r->total - r->cursor < CORE_SEGMENTS_IO ? r->total - r->cursor : CORE_SEGMENTS_IO;
}

/*
 * No place for a page of the block: start what makes room. 0: wait for it. What requests and
 * streams of the context hold can leave once they are over, and they end by their deadlines, as
 * this put does; and what puts are copying, this one too, when it is written.
 */
static int copy_room(struct core *c, struct request *r, const struct shard_page *s, int64_t lack)
{
	uint32_t slot = r->put->ref[s->block].slot;
	uint64_t bytes = page_stride(r->ctx, s->page);
	int err = 0;

	put_let_go(c, r->put);
	if (lack == -ENOSPC)
		err = evict_room(c, r->ctx, ABI_TIER_CXL, bytes * pages_ahead(r));
	else if (lack == -EDQUOT)
		err = evict_account(c, r->ctx, slot, ABI_TIER_CXL, bytes);
	if (err == -ENOSPC && (r->ctx->put_copies || request_holds(c, r->ctx)))
		err = 0;
	return err;
}

bool put_copy(struct core *c, struct request *r)
{
	struct core_copy *copy = NULL;

	while (r->cursor < r->total && r->outstanding < PUT_COPIES) {
		struct shard_page s;
		int64_t offset;

		if (meter_spent(&c->meter)) {
			request_go_on(c, r);
			break;
		}
		meter_charge(&c->meter, 1);
		if (!wants_copy(r, &s))
			continue;
		/* A job is all in place, or not at all. */
		if (copy && copy->count && copy->in_place != !!put_place_of(r->put, r->cursor)) {
			copy_submit(c, r, copy);
			copy = NULL;
			continue;
		}
		if (!copy)
			copy = copy_begin(c, r);
		offset = copy ? copy_place(c, r, &s) : -EAGAIN;
		if (offset < 0) {
			if (copy && copy->count)
				copy_submit(c, r, copy);
			else if (copy)
				core_copy_put(c, copy);
			r->error = copy_room(c, r, &s, offset);
			if (!r->error)
				request_wait_space(c, r);
			return !!r->error;
		}
		copy_page(c, r, copy, &s, (uint64_t)offset);
		r->cursor++;
		if (sched_copy_full(copy)) {
			copy_submit(c, r, copy);
			copy = NULL;
		}
	}
	copy_submit(c, r, copy);
	return true;
}
