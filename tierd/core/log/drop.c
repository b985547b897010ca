/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which segment of the cache log is dropped when the store needs a free one, and what of it is
 * written again. The cleaner (clean.c) comes first, where there is room for it to work. And blocks
 * that cannot be written, because their memory is gone.
 */
#include <errno.h>

#include "tierd/core/state.h"

#define STORE_FREE_MIN 2u /* segments kept free in advance, beside the reserve */
#define KEPT_LOOKS 64u	  /* blocks of a segment */

/* Can it be written again? What a stream brought is about to go. */
static bool stays_in_cxl(const struct context *x, uint32_t slot)
{
	return !block_use(x, slot)->streamed[ABI_TIER_CXL] &&
	       x->meta[slot].there[ABI_TIER_CXL].pages == block_pages(x, slot);
}

static void write_again(struct core *c, struct drive *dv, struct context *x, uint32_t slot)
{
	dv->keep -= dv->keep > 0;
	block_unwritten(c, x, slot);
	writeback_again(c, x, slot);
}

/* What is pinned is written again in any case, so it is the first of what may stay. */
static void keep_pinned(struct core *c, struct drive *dv, struct block_list *list)
{
	for (; dv->unseen && list->count && !meter_spent(&c->meter); dv->unseen--) {
		struct context *x = c->context[list->head_ctx];
		uint32_t slot = list->head;

		if (block_use(x, slot)->pins[ABI_TIER_CXL] && stays_in_cxl(x, slot)) {
			write_again(c, dv, x, slot);
		} else {
			meter_charge(&c->meter, 1); /* as block_unwritten does */
			block_list_turn(c, list);
		}
	}
}

/*
 * Drop a segment of the cache log. What is whole in CXL has earned its place there and is written
 * again (at most half of the segment, so that dropping gains), and so was by the cleaner what is
 * hot; the rest leaves. What is pinned never does: where nothing in CXL can be written again, it
 * stays, and the segment with it, until the pin ends or the cleaner moves it. A share in one event:
 * false says that there is more, which a later call goes on with.
 */
bool evict_segment(struct core *c, struct drive *dv, uint32_t segment)
{
	struct block_list *list = &dv->segment_blocks[segment];
	uint32_t all = list->count, before, left;
	bool over;

	if (dv->dropping != segment + 1) {
		dv->keep = all / 2;
		dv->unseen = all;
	}
	dv->dropping = segment + 1;
	keep_pinned(c, dv, list);
	before = left = list->count;
	for (; left && !meter_spent(&c->meter); left--) {
		struct context *x = c->context[list->head_ctx];
		uint32_t slot = list->head;
		const struct block_use *use = block_use(x, slot);

		if ((dv->keep || use->pins[ABI_TIER_CXL]) && stays_in_cxl(x, slot)) {
			write_again(c, dv, x, slot);
		} else if (!block_use_is_pinned(use)) {
			block_drop(c, x, slot);
		} else {
			meter_charge(&c->meter, 1);
			block_list_turn(c, list);
		}
	}
	c->metrics.segments_dropped += all && list->count == 0;
	over = !left || (left < before && list->count == before); /* or it met pinned ones only */
	dv->dropping = over ? 0 : dv->dropping;
	return over;
}

/* Are those of it that are looked at all pinned? The next look is at others. */
static bool is_kept(struct core *c, struct drive *dv, uint32_t segment)
{
	struct block_list *list = &dv->segment_blocks[segment];
	uint32_t n = list->count < KEPT_LOOKS ? list->count : KEPT_LOOKS;

	meter_charge_table(&c->meter, n);
	for (; n; n--) {
		if (!block_use_is_pinned(block_use(c->context[list->head_ctx], list->head)))
			return false;
		block_list_turn(c, list);
	}
	return list->count > 0;
}

/*
 * The oldest segment of the cache log that is worth dropping: one whose blocks are all pinned would
 * stay, or be written again, and so on in circles while a full log holds nothing else. Of many such
 * some are looked at in one event, and the others, behind these, next.
 */
int64_t evict_oldest(struct core *c, struct drive *dv)
{
	int64_t segment = store_oldest_after(dv->store, DISK_LOG_CACHE, dv->kept);

	while (segment >= 0 && is_kept(c, dv, (uint32_t)segment)) {
		dv->kept = segment;
		if (meter_spent(&c->meter))
			return -ENOENT;
		segment = store_oldest_after(dv->store, DISK_LOG_CACHE, segment);
	}
	dv->kept = -ENOENT;
	return segment;
}

/*
 * Make a free segment at once. False: nothing can go now; the cleaner may be at work. The oldest
 * segment of the cache log goes without its hot blocks being looked for: that was clean_begin's
 * chance, and writers are faster than it.
 */
bool evict_store(struct core *c, struct drive *dv)
{
	int64_t segment = store_dead(dv->store);

	if (segment < 0 && discard_release(dv))
		return true;
	if (segment < 0) {
		segment = evict_oldest(c, dv);
		if (segment < 0) {
			clean_begin(c, dv);
			return false;
		}
		evict_segment(c, dv, (uint32_t)segment);
		segment = store_dead(dv->store);
	}
	if (segment < 0)
		return false;
	store_segment_free(dv->store, (uint32_t)segment);
	return true;
}

/* The same for a run that found no room, or tombstones. */
bool evict_store_for(struct core *c, struct drive *dv, enum store_stream stream)
{
	store_no_room(dv->store, stream);
	return evict_store(c, dv);
}

/* Keep segments free in advance, so that nobody waits and the cleaner finds the time. */
void evict_ahead(struct core *c, struct drive *dv)
{
	bool cleaned = dv->super.segment_count >= STORE_RESERVED_FROM;
	uint32_t want = STORE_FREE_MIN + (cleaned ? STORE_RESERVE : 0);
	struct store_stats st;
	int64_t segment;

	if (dv->leaving)
		return;
	store_stats(dv->store, &st);
	while (st.segments_free < want && (segment = store_dead(dv->store)) >= 0) {
		store_segment_free(dv->store, (uint32_t)segment);
		st.segments_free++;
	}
	if (st.segments_free >= want)
		return;
	if (cleaned)
		clean_begin(c, dv);
	else
		evict_store(c, dv);
}

/* This was the only copy of some; the others of the run are written anew without them. */
bool drop_lost(struct core *c, const struct run *run, const struct core_io *io)
{
	struct context *x = run->ctx;

	if (run->phase != RUN_DATA)
		return false;
	for (uint64_t bad = io->bad_mask; bad; bad &= bad - 1) {
		uint32_t slot = io->priv.slot[__builtin_ctzll(bad)];

		if (!(x->meta[slot].flags & BLOCK_DROPPED))
			block_drop(c, x, slot);
	}
	return io->bad_mask != 0;
}
