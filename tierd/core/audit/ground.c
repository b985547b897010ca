/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host should hold of a context's memory: charged ranges from the slabs, bytes from the
 * page descriptors. The shell compares it with what the kernel says (tierd/recount.c).
 */
#include "libtier/base/bitmap.h"
#include "tierd/core/unit/space_priv.h"
#include "tierd/core/state.h"

static void ground_slab(const struct space *s, uint32_t number, uint64_t *charged)
{
	const struct slab *at = &s->slab[number];
	uint64_t begin = number * s->slab_bytes / ABI_HUGE, per = s->unit_bytes / ABI_HUGE;

	for (uint64_t i = 0; i < s->slab_bytes / ABI_HUGE; i++) {
		bool given_back = at->state == SLAB_EVACUATED && at->gone >> i / per & 1;

		if (at->state != SLAB_UNUSED && !given_back)
			bitmap_set(charged, begin + i);
	}
}

static void ground_page(const struct context *x, const struct abi_page *d, uint32_t page,
			uint32_t tier, uint64_t *written)
{
	uint32_t state = page_state(d, tier);
	uint64_t at = page_addr(d, tier), end = at + page_stride(x, page);

	if (state == ABI_PAGE_ABSENT || state < ABI_PAGE_READY)
		return;
	for (at /= ABI_PAGE_ALIGN; at * ABI_PAGE_ALIGN < end; at++)
		bitmap_set(written, at);
}

void core_ground(const struct core *c, uint32_t id, uint32_t tier, const struct core_ground *out)
{
	const struct context *x = core_context(c, id);
	const struct space *s = x && tier < ABI_MEM_TIERS ? x->space[tier] : NULL;

	if (!s)
		return;
	for (uint32_t number = 0; number < s->slabs; number++)
		ground_slab(s, number, out->charged);
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		for (uint32_t page = 0; page < x->ix.pages_per_block; page++)
			if (descs_there(&x->descs, slot, page))
				ground_page(x, index_page(&x->ix, slot, page), page, tier,
					    out->written);
}
