/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a page knows of streams (abi_page.streams, one word a tier): how many live streams count on
 * it, and whether its place is charged to the stream pool. A page of the pool is in no eviction
 * order; it goes when the last stream does, or is adopted by the cache when somebody else wants it
 * too. All exact, whatever becomes of the page in between: the count belongs to the descriptor.
 */
#include <assert.h>

#include "tierd/core/state.h"

/* The cache takes the page over, there or still coming; nothing when it is not the pool's. */
void stream_page_adopt(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		       uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);
	struct block_use *use;
	uint32_t state = page_state(d, tier);

	if (!stream_page_charged(d, tier) || (state != ABI_PAGE_READY && state != ABI_PAGE_FILLING))
		return;
	stream_page_uncharge(c, x, slot, page, tier);
	c->metrics.stream_adopted += page_stride(x, page);
	if (state != ABI_PAGE_READY)
		return;
	use = block_use_make(x, slot);
	assert(use->streamed[tier] > 0);
	use->streamed[tier]--;
	block_use_settle(x, slot);
	if (!(x->meta[slot].flags & BLOCK_DROPPED))
		block_enter_policy(c, x, slot, tier);
}

void stream_page_adopt_block(struct core *c, struct context *x, uint32_t slot, uint32_t tier)
{
	meter_charge_words(&c->meter, x->ix.pages_per_block);
	for (uint32_t page = 0; page < x->ix.pages_per_block; page++)
		if (descs_there(&x->descs, slot, page))
			stream_page_adopt(c, x, slot, page, tier);
}

void stream_page_take(struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	assert(stream_page_count(d, tier) < CORE_STREAMS_MAX);
	d->streams[tier]++;
}

/*
 * One stream less counts on the page. The last one's page leaves the tier, unless the block was
 * streamed twice of late or is pinned, somebody else holds it (a fetch, a put that found its page
 * there), or no batch can take it now: then it is the cache's.
 */
void stream_page_drop(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	struct abi_page *d = index_page(&x->ix, slot, page);
	const struct block_use *use = block_use(x, slot);
	bool keep = x->meta[slot].flags & BLOCK_AGAIN || use->pins[tier] ||
		    pin_holds(x, slot, page, tier) || use->hold > use->streams;

	assert(stream_page_count(d, tier) > 0);
	d->streams[tier]--;
	if (stream_page_count(d, tier) || !stream_page_charged(d, tier))
		return;
	assert(page_state(d, tier) != ABI_PAGE_FILLING); /* its stream waits for what is coming */
	if (page_state(d, tier) != ABI_PAGE_READY)
		return; /* retiring already */
	if (keep || !retire_page(c, x, slot, page, tier))
		stream_page_adopt(c, x, slot, page, tier);
}

/* Bytes that are set aside for streams and hold nothing of theirs now. */
uint64_t stream_aside_unused(const struct core *c, uint32_t tier)
{
	return c->streams.aside[tier] > c->streamed[tier]
		       ? c->streams.aside[tier] - c->streamed[tier]
		       : 0;
}
