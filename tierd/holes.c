/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holes that readers touched. A context's memory is a sparse memfd as large as its quota; where it
 * holds nothing there is a hole, and a client that reads there makes the kernel allocate a page. So
 * the physical bytes of each memfd are compared with what the core has taken, and what is above
 * is punched out again, a little at a time: here and not by a worker, for the core must not take a
 * segment while it is punched. The index is watched likewise.
 */
#include <fcntl.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/shell.h"

#define LOOK_NS (100 * NS_PER_MS)
#define LOOKS 32u            /* regions compared at a time */
#define INDEX_SLACK (8u << 20) /* what huge pages at the ends of four areas may take */
#define PUNCH_BYTES (8u << 20) /* of one turn, in whole segments */

/* Punch from the cursor on; false when the region has been gone through. */
static bool punch_some(struct shell *s, const struct mem_region *region, uint32_t id, uint32_t tier)
{
	struct holes *h = &s->holes;
	uint64_t left = PUNCH_BYTES;
	struct core_range hole;

	while (left && core_context_hole(s->core, id, tier, h->offset, &hole)) {
		if (s->mem[tier]->punch(region, hole.offset, hole.bytes))
			return false;
		h->offset = hole.offset + hole.bytes;
		left -= hole.bytes < left ? hole.bytes : left;
	}
	return left == 0;
}

/*
 * The index: what lies behind the used lines of an area is untouched by us. Only what is there is
 * punched, for these holes may be very large. The cursor goes through the areas, which lie in
 * order, once: who fills one again behind it must not keep us from the other contexts.
 */
static bool punch_index(struct shell *s, const struct mem_region *region, uint32_t id)
{
	struct holes *h = &s->holes;
	uint64_t left = PUNCH_BYTES;

	for (uint32_t i = 0; i < CORE_INDEX_AREAS; i++) {
		struct core_range hole = core_index_hole(s->core, id, i);
		off_t end = (off_t)(hole.offset + hole.bytes);
		off_t at = (off_t)(hole.offset > h->offset ? hole.offset : h->offset);

		while (left && at < end) {
			off_t bytes = end - at < (off_t)left ? end - at : (off_t)left;

			at = lseek(region->fd, at, SEEK_DATA);
			if (at < 0 || at >= end)
				break;
			bytes = end - at < bytes ? end - at : bytes;
			if (fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
				      bytes))
				return false;
			at += bytes;
			left -= (uint64_t)bytes;
			h->offset = (uint64_t)at;
		}
	}
	return left == 0;
}

/* Look at one region; true when there is more to punch in it. */
static bool look(struct shell *s, const struct context_memory *made, uint32_t tier)
{
	bool index = tier == CORE_RANGE_INDEX;
	const struct mem_region *region = index ? &made->index : &made->mem[tier];
	uint64_t taken = core_context_taken(s->core, made->id, tier) + (index ? INDEX_SLACK : 0);
	const struct mem_ops *ops = s->mem[index ? ABI_TIER_CXL : tier];
	int64_t resident = region->bytes ? ops->resident(region) : 0;

	if (resident <= 0 || (uint64_t)resident <= taken)
		return false;
	if (s->holes.offset == 0)
		s->obs.holes_filled += (uint64_t)resident - taken;
	return index ? punch_index(s, region, made->id) : punch_some(s, region, made->id, tier);
}

void holes_turn(struct shell *s, uint64_t now_ns)
{
	struct holes *h = &s->holes;

	if (!h->busy && now_ns - h->looked_ns < LOOK_NS)
		return;
	h->looked_ns = now_ns;
	h->busy = false;
	for (uint32_t i = 0; i < LOOKS; i++) {
		const struct context_memory *made = memory_next(s->memory, &h->index);

		if (!made) {
			h->index = 0;
			h->tier = 0;
			return;
		}
		if (look(s, made, h->tier)) {
			h->busy = true; /* the rest comes in the next turn */
			return;
		}
		h->offset = 0;
		if (++h->tier <= CORE_RANGE_INDEX)
			continue;
		h->tier = 0;
		h->index++;
	}
}
