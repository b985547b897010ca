/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry of a shard: which pages of a block one writer of several brings (abi/ring.h), and where
 * they lie in what it hands over, and which of them are still missing when it has begun them all.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

static uint32_t shard_groups(const struct abi_part *part, const struct abi_put_args *a,
			     uint32_t *first)
{
	*first = 0;
	if (a->shards < 2 || part->shard_rule == ABI_SHARD_REPLICATED)
		return part->groups;
	*first = (uint32_t)((uint64_t)a->shard * part->groups / a->shards);
	return (uint32_t)((uint64_t)(a->shard + 1) * part->groups / a->shards) - *first;
}

/* How many pages and bytes of each block the put brings. */
void shard_measure(const struct context *x, struct put *p)
{
	const struct abi_geometry *g = context_geometry(x);

	p->pages = 0;
	p->block_bytes = 0;
	for (uint32_t i = 0; i < g->part_count; i++) {
		uint32_t first, n = shard_groups(&g->part[i], &p->args, &first);

		if (!(p->args.parts >> i & 1))
			continue;
		p->pages += g->part[i].layers * n;
		p->block_bytes += (uint64_t)g->part[i].layers * n * g->part[i].page_stride;
	}
}

/* The k-th page of the shard: order of abi/ring.h. */
struct shard_page shard_page(const struct context *x, const struct put *p, uint32_t k)
{
	const struct abi_geometry *g = context_geometry(x);
	struct shard_page out = { 0, 0, 0 };

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *part = &g->part[i];
		uint32_t first, n = shard_groups(part, &p->args, &first);

		if (!(p->args.parts >> i & 1) || !n)
			continue;
		if (k < part->layers * n) {
			out.page = part->page_base + k;
			if (n < part->groups) /* mostly not, and dividing takes long */
				out.page += k / n * (part->groups - n) + first;
			out.offset += (uint64_t)k * part->page_stride;
			return out;
		}
		k -= part->layers * n;
		out.offset += (uint64_t)part->layers * n * part->page_stride;
	}
	assert(!"k is below p->pages");
	return out;
}

/* The same for one block, from p->look on. 1, 0, or -EAGAIN: not known yet. */
static int block_gap(struct core *c, struct put *p, uint32_t slot, uint32_t *state)
{
	const struct context *x = p->ctx;
	uint32_t parts = index_block(&x->ix, slot)->parts;

	for (; p->look < p->pages; p->look++) {
		uint32_t page = shard_page(x, p, p->look).page;
		const struct abi_page *d = index_page(&x->ix, slot, page);

		if (meter_spent(&c->meter))
			return -EAGAIN;
		meter_charge(&c->meter, 1);
		*state = page_state(d, ABI_TIER_CXL);
		if (*state != ABI_PAGE_READY && page_usable(d, ABI_TIER_CXL) &&
		    parts >> x->page_part[page] & 1)
			return 1;
	}
	p->look = 0;
	return 0;
}

/*
 * A page of a block that is not whole, though all that this put has to bring was begun: another
 * put's copy of it was stepped over, and has failed since or may yet fail. The cursor goes back to
 * it: 1. There is none, what is still missing is another shard's: 0. -EAGAIN: not known yet.
 */
int shard_gap(struct core *c, struct request *r, uint32_t *state)
{
	struct put *p = r->put;
	int gap = 0;

	for (; p->gap < p->done; p->gap++) {
		uint32_t slot = p->ref[p->gap].slot;

		if (meter_spent(&c->meter))
			return -EAGAIN;
		meter_charge(&c->meter, 1);
		if (!bit_get(p->mine, p->gap) || p->ctx->meta[slot].flags & BLOCK_DROPPED ||
		    index_block(&p->ctx->ix, slot)->state != ABI_BLOCK_PENDING)
			p->look = 0;
		else if ((gap = block_gap(c, p, slot, state)))
			break;
	}
	if (gap > 0)
		r->cursor = p->gap * p->pages + p->look;
	if (gap >= 0)
		p->gap = p->look = 0;
	return gap;
}
