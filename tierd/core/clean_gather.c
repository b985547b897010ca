/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cleaner moves together: blocks of one prefix that lie in several runs of the segment
 * become one run, as far as a window of the segment's list shows them.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/clean_priv.h"

static bool movable(const struct core *c, const struct context *x, uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];

	return !x->closing && m->persist == PERSIST_CLEAN &&
	       !(m->flags & (BLOCK_DROPPED | BLOCK_MOVING)) &&
	       index_block(&x->ix, slot)->epoch == (uint32_t)x->spec.epoch &&
	       block_segment(c, x, slot) == c->cleaner.segment &&
	       (!c->cleaner.hot || m->heat || block_use_is_pinned(use));
}

static uint32_t *bucket(struct cleaner *k, uint32_t parent, uint32_t step)
{
	return &k->by_parent[(parent * 2654435761u + step) % (2 * CLEAN_WINDOW)];
}

/* Blocks of one context, all with the same parts, from the front of the segment's list. */
static uint32_t window_fill(struct core *c, struct context **ctx)
{
	struct cleaner *k = &c->cleaner;
	const struct block_list *list = &c->segment_blocks[k->segment];
	uint32_t slot = list->head, index = list->head_ctx, n = 0, parts = 0, walked = 0;

	*ctx = NULL;
	memset(k->by_parent, 0, 2 * CLEAN_WINDOW * sizeof(*k->by_parent));
	while (slot != ABI_SLOT_NONE && n < CLEAN_WINDOW && (!n || walked++ < CLEAN_WINDOW)) {
		struct context *x = c->context[index];
		const struct abi_block *b = index_block(&x->ix, slot);
		const struct block_meta *m = &x->meta[slot];
		uint32_t step = 0;

		if ((!*ctx || (x == *ctx && b->parts == parts)) && movable(c, x, slot)) {
			*ctx = x;
			parts = b->parts;
			k->window[n++] = slot;
			while (*bucket(k, b->parent, step))
				step++;
			*bucket(k, b->parent, step) = n;
		}
		slot = m->next;
		index = m->next_ctx;
	}
	return n;
}

/* A parent's slot may have been used again: the depth tells. */
static uint32_t child_of(struct cleaner *k, const struct context *x, uint32_t parent)
{
	uint32_t depth = index_block(&x->ix, parent)->depth + 1;

	for (uint32_t step = 0; *bucket(k, parent, step); step++) {
		uint32_t slot = k->window[*bucket(k, parent, step) - 1];

		if (index_block(&x->ix, slot)->parent == parent &&
		    index_block(&x->ix, slot)->depth == depth)
			return slot;
	}
	return ABI_SLOT_NONE;
}

/* The first block of the prefix that begins in this segment. */
static uint32_t first_of(const struct core *c, const struct context *x, uint32_t slot)
{
	uint32_t parts = index_block(&x->ix, slot)->parts;

	for (uint32_t n = 0; n < CLEAN_WINDOW; n++) {
		const struct abi_block *b = index_block(&x->ix, slot);
		uint32_t parent = b->parent;

		if (!b->depth || parent >= x->ix.slots_used || !movable(c, x, parent) ||
		    index_block(&x->ix, parent)->parts != parts ||
		    index_block(&x->ix, parent)->depth + 1 != b->depth)
			break;
		slot = parent;
	}
	return slot;
}

static uint32_t chain(struct core *c, struct run *run, const struct context *x, uint32_t slot)
{
	uint32_t n = 0, most = DISK_RUN_BLOCKS_MAX;

	if (c->cleaner.hot && c->cleaner.budget < most)
		most = c->cleaner.budget;
	while (slot != ABI_SLOT_NONE && n < most) {
		run->slot[n] = slot;
		run->generation[n++] = index_block(&x->ix, slot)->generation;
		slot = child_of(&c->cleaner, x, slot);
	}
	return n;
}

/* Choose the batch's next run. 0, -ENOENT no block is left, -ENOSPC. */
int clean_gather(struct core *c, struct run *run)
{
	struct cleaner *k = &c->cleaner;
	struct context *x = NULL;
	uint32_t n = k->hot && !k->budget ? 0 : window_fill(c, &x), slot;
	int err;

	if (!n)
		return -ENOENT;
	slot = first_of(c, x, k->window[0]);
	n = chain(c, run, x, slot);
	err = store_append(c->store, k->hot ? STORE_CACHE : STORE_CLEANED, n, block_bytes(x, slot),
			   block_pages(x, slot), &run->place);
	if (err)
		return err;
	run->ctx = x;
	run->blocks = run->place.blocks;
	run->cursor = 0;
	run->written = 0;
	for (uint32_t i = 0; i < run->blocks; i++) {
		block_hold(x, run->slot[i]);
		x->meta[run->slot[i]].flags |= BLOCK_MOVING;
	}
	run_head(run);
	if (!k->hot)
		run->head.flags = DISK_RECORD_SETTLED;
	k->budget -= k->hot ? run->blocks : 0;
	return 0;
}
