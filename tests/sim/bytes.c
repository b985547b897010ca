/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client writes of a put: into its staging, or here and there where it is going to stay, if
 * the core gives it a place.
 */
#include "tests/sim/world_priv.h"

/* In its place, where the core gives one and the client takes it; else in staging. */
static uint8_t *where(struct world *w, uint32_t client, const struct ask *a,
		      const struct core_put_page *at, uint8_t *staging)
{
	uint32_t draw = (uint32_t)(a->handle + 7 * at->block + 3 * at->page);
	struct core_range range;

	if (draw % 3 || core_put_place(w->core, client, at, &range))
		return staging;
	if (draw % 5 == 0) { /* it cannot be granted */
		core_put_unplace(w->core, client, at);
		return staging;
	}
	w->result->placed++;
	return w->context[a->context].mem[ABI_TIER_CXL] + range.offset;
}

/* The bytes of the ask's put, in the order of abi/ring.h; returns how many. */
uint64_t client_put_bytes(struct world *w, uint32_t client, const struct ask *a)
{
	const struct abi_geometry *g = &w->context[a->context].geometry;
	uint8_t *to = w->client[client].staging + a->staging;
	struct core_put_page at = { .put = a->handle };

	for (at.block = 0; at.block < a->count; at.block++, at.page = 0)
		for (uint32_t page = 0; page < g->pages_per_block; page++) {
			uint32_t p = page < 4 ? 0 : page < 6 ? 1 : 2;

			if (a->parts && !(a->parts >> p & 1))
				continue;
			if (p == 0 && a->shards && page % 2 != a->shard)
				continue;
			model_page(w, a->context, a->first + at.block, page,
				   where(w, client, a, &at, to));
			at.page++;
			to += model_page_bytes(w, a->context, page);
		}
	return (uint64_t)(to - w->client[client].staging) - a->staging;
}
