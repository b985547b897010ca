/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks on a block that keep some of its first layers in a tier: of pins, which promise, and of
 * leads of conversations, which are wishes. Here they are only read; pin.c and lead.c set them.
 */
#include <assert.h>

#include "tierd/core/state.h"

/* Is this page among the first layers that somebody pinned? (Whole blocks: block_use.pins.) */
bool pin_holds(const struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	const struct abi_part *part = &context_geometry(x)->part[x->page_part[page]];
	const struct block_use *use = block_use(x, slot);

	return use->lead_pins[tier] &&
	       (page - part->page_base) / part->groups < use->lead_layers[tier];
}

/* Pages of a part that its first layers, so many, are. */
uint32_t lead_pages(const struct abi_part *part, uint32_t layers)
{
	return (layers < part->layers ? layers : part->layers) * part->groups;
}

/* Is this page in a lead that is kept? */
bool lead_holds(const struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	const struct abi_part *part = &context_geometry(x)->part[x->page_part[page]];
	const struct block_use *use = block_use(x, slot);

	assert(index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED);
	return (page - part->page_base) / part->groups < use->leads[tier].layers;
}

/* How many pages the block's first layers are, so many. */
static uint32_t first_pages(const struct context *x, uint32_t slot, uint32_t layers)
{
	const struct abi_geometry *g = context_geometry(x);
	uint32_t pages = 0;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (index_block(&x->ix, slot)->parts >> i & 1)
			pages += lead_pages(&g->part[i], layers);
	return pages;
}

/* Is no more of the block in the tier than such pages? By their number. */
bool lead_is_all(const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_use *use = block_use(x, slot);

	assert(index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED);
	return use->leads[tier].count &&
	       x->meta[slot].there[tier].pages <= first_pages(x, slot, use->leads[tier].layers);
}

/* The same of first layers that are pinned, all of which are there. */
bool pin_is_all(const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_use *use = block_use(x, slot);

	return use->lead_pins[tier] &&
	       x->meta[slot].there[tier].pages == first_pages(x, slot, use->lead_layers[tier]);
}

bool lead_reads(const struct conversation *s, uint32_t part)
{
	return !s->part_count || (part >= s->part_first && part - s->part_first < s->part_count);
}

uint32_t lead_layers(const struct conversation *s)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint32_t most = 1;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (lead_reads(s, i))
			most = g->part[i].layers > most ? g->part[i].layers : most;
	return most;
}

/* Bytes of the first layers of all blocks of a conversation. */
uint64_t lead_bytes(const struct conversation *s, uint32_t layers)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (lead_reads(s, i))
			bytes += (uint64_t)lead_pages(&g->part[i], layers) *
				 g->part[i].page_stride;
	return bytes * s->blocks;
}
