/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry of a shard: which pages of a block one writer of several brings (abi/ring.h), and where
 * they lie in what it hands over, and which of them are still missing when it has begun them all.
 */
#include <assert.h>

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

/*
 * A page of a block that is not whole, though all that this put has to bring was begun: another
 * put's copy of it was stepped over, and has failed since or may yet fail. The cursor goes back to
 * it. False: there is none, what is still missing is another shard's.
 */
bool shard_gap(struct request *r, uint32_t *state)
{
	const struct put *p = r->put;
	const struct context *x = r->ctx;

	for (uint32_t i = 0; i < p->done; i++) {
		uint32_t slot = p->ref[i].slot;
		const struct abi_block *b = index_block(&x->ix, slot);

		if (!bit_get(p->mine, i) || x->meta[slot].flags & BLOCK_DROPPED ||
		    b->state != ABI_BLOCK_PENDING)
			continue;
		for (uint32_t k = 0; k < p->pages; k++) {
			uint32_t page = shard_page(x, p, k).page;
			const struct abi_page *d = index_page(&x->ix, slot, page);

			*state = page_state(d, ABI_TIER_CXL);
			if (*state == ABI_PAGE_READY || !page_usable(d, ABI_TIER_CXL) ||
			    !(b->parts >> x->page_part[page] & 1))
				continue;
			r->cursor = i * p->pages + k;
			return true;
		}
	}
	return false;
}
