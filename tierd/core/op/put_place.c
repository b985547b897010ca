/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of puts: where the tier can grant a client the right to write them (config.place_bytes), a
 * page's bytes are written where they are going to stay, and the commit sums them there (wire.h
 * W10).
 *
 *   core_put_place -> the put has a place that no page names, and its slab is lent (space.h)
 *   commit -> the right ends, then the page is summed and published, as a copy's is
 *   not committed, or the page came from elsewhere -> the right ends, then the place is free
 *
 * So a hung writer keeps room until its put's deadline, and no page: who puts the same key copies
 * as ever. Nothing leaves to make room for a place; without one the client writes its staging.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

struct put_place *put_place_of(struct put *p, uint32_t cursor)
{
	for (uint32_t i = 0; i < p->places; i++)
		if (p->place[i].cursor == cursor)
			return &p->place[i];
	return NULL;
}

/* The right to write it is over, or was never given. */
static void lend_over(struct core *c, struct context *x, uint64_t offset)
{
	uint64_t slab = space_slab_bytes(x->space[ABI_TIER_CXL]);

	assert(x->lent > 0 && c->puts.lent > 0);
	space_lend_end(x->space[ABI_TIER_CXL], offset - offset % slab);
	x->lent--;
	c->puts.lent--;
}

static uint64_t offset_of(const struct context *x, const struct core_copy_item *item)
{
	return (uint64_t)((const uint8_t *)item->dst -
			  (const uint8_t *)x->memory.mem[ABI_TIER_CXL]);
}

void put_places_settled(struct core *c, struct context *x, const struct core_copy *copy)
{
	for (uint32_t i = 0; i < copy->count && copy->in_place; i++)
		lend_over(c, x, offset_of(x, &copy->item[i]));
}

/* A page has the place now, or nobody has. */
void put_place_forget(struct put *p, struct put_place *at)
{
	const struct context *x = p->ctx;
	uint32_t page = shard_page(x, p, at->cursor % p->pages).page;

	assert(x->placed >= page_stride(x, page));
	p->ctx->placed -= page_stride(x, page);
	*at = p->place[--p->places];
}

/* ---- letting go --------------------------------------------------------------------------- */

static void place_dropped(struct core *c, struct core_copy *copy)
{
	struct context *x = copy->priv.owner;

	put_places_settled(c, x, copy);
	for (uint32_t i = 0; i < copy->count; i++) {
		space_free(x->space[ABI_TIER_CXL], offset_of(x, &copy->item[i]));
		assert(x->placed >= copy->item[i].bytes);
		x->placed -= copy->item[i].bytes;
	}
	core_copy_put(c, copy);
	request_wake_space(c);
}

static void drop_one(struct put *p, struct core_copy *copy)
{
	const struct put_place *at = &p->place[--p->places];
	uint32_t page = shard_page(p->ctx, p, at->cursor % p->pages).page;
	const struct core_copy_item item = {
		.dst = (uint8_t *)p->ctx->memory.mem[ABI_TIER_CXL] + at->offset,
		.bytes = page_stride(p->ctx, page),
	};

	sched_copy_add(copy, &item, p->ref[at->cursor / p->pages].slot, page);
}

bool put_places_drop(struct core *c, struct put *p)
{
	while (p->places) {
		struct core_copy *copy = core_copy_get(c, ABI_CLASS_DEMAND, SCHED_DAEMON);

		if (!copy)
			return false;
		put_copy_in_place(copy, p->ctx);
		copy->priv.done = place_dropped;
		copy->priv.owner = p->ctx;
		while (p->places && !sched_copy_full(copy))
			drop_one(p, copy);
		sched_copy(c, copy);
	}
	return true;
}

/* ---- the client's side --------------------------------------------------------------------- */

/* Is the page one that this put may still bring? */
static bool wants_place(struct put *p, uint32_t block, const struct shard_page *s)
{
	struct context *x = p->ctx;
	uint32_t slot = p->ref[block].slot;
	const struct abi_page *d;

	if (!put_mine(p, block) || x->meta[slot].flags & BLOCK_DROPPED ||
	    index_block(&x->ix, slot)->state != ABI_BLOCK_PENDING)
		return false;
	d = index_page(&x->ix, slot, s->page);
	return page_state(d, ABI_TIER_CXL) == ABI_PAGE_ABSENT && page_usable(d, ABI_TIER_CXL);
}

static int place_take(struct core *c, struct put *p, uint32_t cursor, const struct shard_page *s,
		      struct core_range *out)
{
	struct context *x = p->ctx;
	int64_t offset = put_alloc(c, p, p->ref[cursor / p->pages].slot, s->page);

	if (offset < 0)
		return -EAGAIN;
	if (space_lend(x->space[ABI_TIER_CXL], (uint64_t)offset) < 0) { /* it is wanted back */
		space_free(x->space[ABI_TIER_CXL], (uint64_t)offset);
		return -EAGAIN;
	}
	x->lent++;
	c->puts.lent++;
	x->placed += page_stride(x, s->page);
	p->place[p->places++] = (struct put_place){ (uint64_t)offset, cursor };
	*out = (struct core_range){ { x->id }, ABI_TIER_CXL, (uint64_t)offset,
				    page_stride(x, s->page) };
	return 0;
}

int core_put_place(struct core *c, uint32_t client, const struct core_put_page *at,
		   struct core_range *out)
{
	struct put *p = put_open(c, client, at->put);
	struct shard_page s;
	uint32_t cursor;

	if (!p)
		return -ENOENT;
	if (at->block >= p->done || at->page >= p->pages)
		return -EINVAL;
	s = shard_page(p->ctx, p, at->page);
	cursor = at->block * p->pages + at->page;
	if (!c->config.place_bytes || page_stride(p->ctx, s.page) % c->config.place_bytes)
		return -EOPNOTSUPP;
	if (p->ctx->closing || p->epoch != p->ctx->spec.epoch || p->places == PUT_PLACES_MAX)
		return -EAGAIN;
	if (put_place_of(p, cursor) || !wants_place(p, at->block, &s))
		return -EEXIST;
	return place_take(c, p, cursor, &s, out);
}

void core_put_unplace(struct core *c, uint32_t client, const struct core_put_page *at)
{
	struct put *p = put_open(c, client, at->put);
	struct put_place *place =
		p ? put_place_of(p, at->block * p->pages + at->page) : NULL;

	if (!place)
		return;
	lend_over(c, p->ctx, place->offset);
	space_free(p->ctx->space[ABI_TIER_CXL], place->offset);
	put_place_forget(p, place);
}
