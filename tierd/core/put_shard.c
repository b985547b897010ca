/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry of a shard: which pages of a block one writer of several brings (abi/ring.h), and where
 * they lie in what it hands over.
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
	struct shard_page out = { 0, 0 };

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *part = &g->part[i];
		uint32_t first, n = shard_groups(part, &p->args, &first);

		if (!(p->args.parts >> i & 1) || !n)
			continue;
		if (k < part->layers * n) {
			out.page = part->page_base + k / n * part->groups + first + k % n;
			out.offset += (uint64_t)k * part->page_stride;
			return out;
		}
		k -= part->layers * n;
		out.offset += (uint64_t)part->layers * n * part->page_stride;
	}
	assert(!"k is below p->pages");
	return out;
}
