/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cleaner moves together: blocks of one prefix that lie in several runs of the segment
 * become one run, as far as a window of the segment's list shows them; or each run as it is, with
 * the dead among its blocks as names only, where that takes fewer records or room is short.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/log/clean_priv.h"

#define TORN_LOOKS 4096u /* blocks of a segment */

static bool movable(const struct core *c, const struct drive *dv, const struct context *x,
		    uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];

	return !x->closing && m->persist == PERSIST_CLEAN &&
	       !(m->flags & (BLOCK_DROPPED | BLOCK_MOVING)) &&
	       index_block(&x->ix, slot)->epoch == (uint32_t)x->spec.epoch &&
	       block_lies(c, x, slot, dv, dv->cleaner.segment) &&
	       (!dv->cleaner.hot || dv->cleaner.all || m->heat || block_use_is_pinned(use));
}

static uint32_t *bucket(struct cleaner *k, uint32_t parent, uint32_t step)
{
	return &k->by_parent[(parent * 2654435761u + step) % (2 * CLEAN_WINDOW)];
}

/*
 * Brings a block that may move to the list's front: those that may not go behind all others.
 * -ENOENT there is none, -EBUSY none was among those that this event could look at.
 */
static int front(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	struct block_list *list = &dv->segment_blocks[k->segment];

	for (; k->passed < list->count; k->passed++) {
		if (movable(c, dv, c->context[list->head_ctx], list->head))
			return 0;
		if (meter_spent(&c->meter))
			return -EBUSY;
		meter_charge_table(&c->meter, k->passed % 8 == 0);
		block_list_turn(c, list);
	}
	return -ENOENT;
}

/* Blocks of one context, all with the same parts, from the front of the segment's list. */
static void window_fill(struct core *c, struct drive *dv, struct context **ctx)
{
	struct cleaner *k = &dv->cleaner;
	const struct block_list *list = &dv->segment_blocks[k->segment];
	uint32_t slot = list->head, index = list->head_ctx, n = 0, parts = 0, walked;

	*ctx = NULL;
	memset(k->by_parent, 0, 2 * CLEAN_WINDOW * sizeof(*k->by_parent));
	for (walked = 0; slot != ABI_SLOT_NONE && walked < CLEAN_WINDOW; walked++) {
		struct context *x = c->context[index];
		const struct abi_block *b = index_block(&x->ix, slot);
		const struct block_meta *m = &x->meta[slot];
		uint32_t step = 0;

		if ((!*ctx || (x == *ctx && b->parts == parts)) && movable(c, dv, x, slot)) {
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
	meter_charge_table(&c->meter, walked);
	assert(n); /* the first one may */
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
static uint32_t first_of(const struct core *c, const struct drive *dv, const struct context *x,
			 uint32_t slot)
{
	uint32_t parts = index_block(&x->ix, slot)->parts;

	for (uint32_t n = 0; n < CLEAN_WINDOW; n++) {
		const struct abi_block *b = index_block(&x->ix, slot);
		uint32_t parent = b->parent;

		if (!b->depth || parent >= x->ix.slots_used || !movable(c, dv, x, parent) ||
		    index_block(&x->ix, parent)->parts != parts ||
		    index_block(&x->ix, parent)->depth + 1 != b->depth)
			break;
		slot = parent;
	}
	return slot;
}

static uint32_t chain(struct drive *dv, struct run *run, const struct context *x, uint32_t slot)
{
	uint32_t n = 0, most = DISK_RUN_BLOCKS_MAX;

	if (dv->cleaner.hot && dv->cleaner.budget / 2 < most)
		most = dv->cleaner.budget / 2;
	while (slot != ABI_SLOT_NONE && n < most) {
		run->slot[n] = slot;
		run->generation[n++] = index_block(&x->ix, slot)->generation;
		slot = child_of(&dv->cleaner, x, slot);
	}
	return n;
}

/* The run has its place: its blocks stay where they are until it is written. */
static void take(struct core *c, struct drive *dv, struct run *run, struct context *x)
{
	run->ctx = x;
	run->log = dv->cleaner.to;
	run->blocks = run->place.blocks;
	run->cursor = 0;
	run->written = 0;
	for (uint32_t i = 0; i < run->blocks; i++) {
		block_hold(x, run->slot[i]);
		x->meta[run->slot[i]].flags |= BLOCK_MOVING;
	}
	run_head(c, run);
	if (!dv->cleaner.hot)
		run->head.flags = DISK_RECORD_SETTLED;
}

/* Elsewhere the cleaner writes as puts do: the reserve is for that drive's own. */
enum store_stream clean_stream(const struct drive *dv)
{
	if (dv->cleaner.hot)
		return STORE_CACHE;
	return dv->cleaner.to == dv ? STORE_CLEANED : STORE_DURABLE;
}

/* Choose the batch's next run. 0, -ENOENT no block is left, -ENOSPC, -EBUSY: in a later event. */
int clean_gather(struct core *c, struct drive *dv, struct run *run)
{
	struct cleaner *k = &dv->cleaner;
	int err = k->hot && k->budget < 2 ? -ENOENT : front(c, dv);
	struct context *x = NULL;
	uint32_t n, slot;

	if (err)
		return err;
	window_fill(c, dv, &x);
	slot = first_of(c, dv, x, k->window[0]);
	n = chain(dv, run, x, slot);
	err = store_append(k->to->store, clean_stream(dv), n, block_bytes(x, slot),
			   block_pages(x, slot), &run->place);
	if (err)
		return err;
	run->absent = 0;
	take(c, dv, run, x);
	k->budget -= k->hot ? 2 * run->blocks : 0;
	return 0;
}

/* ---- run by run --------------------------------------------------------------------------- */

/* Where a chain begins: nothing before it is here. */
static bool is_head(const struct core *c, const struct drive *dv, const struct context *x,
		    uint32_t slot)
{
	uint32_t parent = block_parent(x, slot);

	return parent == ABI_SLOT_NONE || x->meta[parent].persist != PERSIST_CLEAN ||
	       !block_lies(c, x, parent, dv, dv->cleaner.segment);
}

/* By the first of its blocks, where it has many. */
bool clean_is_torn(struct core *c, const struct drive *dv)
{
	const struct cleaner *k = &dv->cleaner;
	const struct block_list *list = &dv->segment_blocks[k->segment];
	uint32_t slot = list->head, index = list->head_ctx, heads = 0, looked = 0;

	for (; slot != ABI_SLOT_NONE && looked < TORN_LOOKS; looked++) {
		const struct context *x = c->context[index];

		heads += is_head(c, dv, x, slot);
		index = x->meta[slot].next_ctx;
		slot = x->meta[slot].next;
	}
	meter_charge_table(&c->meter, looked);
	return (uint64_t)heads * list->count >
	       (uint64_t)looked * store_segment_records(dv->store, k->segment);
}

/* What of the record's run is still in the segment; how many. Bits of run->absent behind the last
 * of them name nothing. */
static uint32_t survivors(const struct core *c, const struct drive *dv, struct run *run,
			  const struct context *x,
			  const struct disk_record *r)
{
	const struct disk_block *b = (const struct disk_block *)(r + 1);
	uint32_t n = 0, first = 0;

	run->absent = 0;
	for (uint32_t i = 0; i < r->block_count; i++) {
		uint32_t slot = disk_there(r, i) ? index_find(&x->ix, b[i].key) : ABI_SLOT_NONE;

		if (slot != ABI_SLOT_NONE && movable(c, dv, x, slot) &&
		    index_block(&x->ix, slot)->parts == r->parts) {
			first = n ? first : i;
			run->slot[n] = slot;
			run->generation[n++] = index_block(&x->ix, slot)->generation;
		} else if (n) {
			run->absent |= 1u << (i - first);
			memcpy(run->named[i - first], b[i].key, ABI_KEY_BYTES);
		}
	}
	return n;
}

/*
 * The next run of the segment, of what was read of its summary, as one record again however its
 * dead lie: so all that is carried takes no more records than it took there. Of one that does not
 * fit where the last ended the rest is gathered next. 0, -ENOENT none left in what was read,
 * -ENOSPC.
 */
int clean_gather_run(struct core *c, struct drive *dv, struct run *run)
{
	struct cleaner *k = &dv->cleaner;
	const struct disk_record *r;
	size_t at = k->part_cursor;

	for (; (r = store_next_run(dv->store, k->segment, k->chunk[0].data, k->part_bytes,
				   &k->part_cursor)); at = k->part_cursor) {
		struct context *x = core_context_by_uid(c, r->context_uid);
		uint32_t n = x ? survivors(c, dv, run, x, r) : 0;
		int err;

		if (!n)
			continue;
		run->place.blocks = n;
		err = store_append_thinned(k->to->store, clean_stream(dv),
					   block_bytes(x, run->slot[0]),
					   block_pages(x, run->slot[0]), run->absent, &run->place);
		if (err || run->place.blocks < n)
			k->part_cursor = at;
		if (err)
			return err;
		take(c, dv, run, x);
		return 0;
	}
	return -ENOENT;
}
