/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holes that readers touched, and memory that somebody keeps. A context's memory is a sparse memfd
 * as large as its quota; where it holds nothing there is a hole, and a client that reads there
 * makes the kernel allocate a page. So the physical bytes of each memfd are compared with what the
 * core has taken, and what is above is punched out again, a little at a time: here and not by a
 * worker, for the core must not take a slab while it is punched. The index is watched likewise.
 *
 * A client can put pages of its mappings into pipes (splice, vmsplice), which keep them when they
 * are punched, a whole huge page for each. No book of ours has them; the host's has: pages of
 * memfds are on its lists of anonymous ones, and counted as shared memory while a file has them. By
 * what the lists have more the tier is taken for smaller, so that the host does not run out.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/shell.h"

#define LOOK_NS (100 * NS_PER_MS)
#define LOST_NOISE (32ll << 20) /* so far the host's numbers swing by themselves */
#define LOOKS 32u            /* regions compared at a time */
#define PUNCH_BYTES (8u << 20) /* of one turn, in whole slabs */
#define INDEX_STEPS 256u /* pieces of an index, likewise */
#define IDLE_STEPS 64u   /* ... that are given up */

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

static int take(const struct mem_region *region, uint64_t at, uint64_t bytes)
{
	return fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			 (off_t)bytes);
}

/*
 * The index: what lies behind the used lines of an area is untouched by us, and so are most
 * descriptors of blocks that have few pages. Only what is there is punched, for these holes may be
 * very large. The cursor goes through them in order, once: who fills one again behind it must not
 * keep us from the other contexts.
 */
static bool punch_index(struct shell *s, const struct mem_region *region, uint32_t id)
{
	struct holes *h = &s->holes;
	uint64_t left = PUNCH_BYTES;
	struct core_range hole;

	for (uint32_t n = 0; n < INDEX_STEPS; n++) {
		off_t data = lseek(region->fd, (off_t)h->offset, SEEK_DATA);
		uint64_t end, bytes;

		if (data < 0 || !core_index_hole(s->core, id, (uint64_t)data, &hole))
			return false;
		h->offset = hole.offset;
		data = lseek(region->fd, (off_t)hole.offset, SEEK_DATA);
		end = hole.offset + hole.bytes;
		if (data < 0)
			return false;
		h->offset = (uint64_t)data;
		if (h->offset >= end)
			continue;
		bytes = end - h->offset < left ? end - h->offset : left;
		if (take(region, h->offset, bytes))
			return false;
		h->offset += bytes;
		left -= bytes;
		if (!left)
			return true;
	}
	return true;
}

/* Descriptors that nobody uses, of a context whose tables have no room. True: perhaps more. */
static bool take_idle(struct shell *s, const struct mem_region *region, uint32_t id)
{
	uint64_t left = PUNCH_BYTES;
	struct core_range idle;

	for (uint32_t n = 0; n < IDLE_STEPS && left; n++) {
		if (!core_index_idle(s->core, id, &idle))
			return false;
		if (!idle.bytes)
			continue;
		if (take(region, idle.offset, idle.bytes))
			return false;
		core_index_given(s->core, &idle);
		left -= idle.bytes < left ? idle.bytes : left;
	}
	return true;
}

/* Look at one region; true when there is more to punch in it. */
static bool look(struct shell *s, const struct context_memory *made, uint32_t tier)
{
	bool index = tier == CORE_RANGE_INDEX;
	const struct mem_region *region = index ? &made->index : &made->mem[tier];
	uint64_t taken = core_context_taken(s->core, made->id, tier);
	const struct mem_ops *ops = index ? mem_index : s->mem[tier];
	int64_t resident = region->bytes ? ops->resident(region) : 0;

	if (index && take_idle(s, region, made->id))
		return true;
	taken += index ? CORE_INDEX_SLACK : 0;
	if (resident <= 0 || (uint64_t)resident <= taken)
		return false;
	if (s->holes.offset == 0)
		s->obs.holes_filled += (uint64_t)resident - taken;
	return index ? punch_index(s, region, made->id) : punch_some(s, region, made->id, tier);
}

/* Bytes on the lists that are nobody's. False: the host does not tell. */
static bool read_lost(int64_t *out)
{
	static const struct {
		const char *name;
		int sign;
	} part[] = { { "Active(anon):", 1 }, { "Inactive(anon):", 1 }, { "AnonPages:", -1 },
		     { "Shmem:", -1 }, { "SwapCached:", -1 } };
	int fd CLEANUP_CLOSE = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	char text[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return false;
	text[n] = '\0';
	*out = 0;
	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		const char *at = strstr(text, part[i].name);

		if (!at)
			return false;
		*out += part[i].sign * 1024 * strtoll(at + strlen(part[i].name), NULL, 10);
	}
	return true;
}

/*
 * What was lost since the fewest were, as far as we gave anything back since: other programs move
 * these numbers, too.
 */
static void look_for_lost(struct shell *s)
{
	struct holes *h = &s->holes;
	int64_t now, lost;

	if (!read_lost(&now))
		return;
	if (!h->lost_known || now < h->lost_least) {
		h->lost_known = true;
		h->lost_least = now;
		h->punched = 0;
	}
	lost = now - h->lost_least - LOST_NOISE;
	if (lost < 0)
		lost = 0;
	if ((uint64_t)lost > h->punched)
		lost = (int64_t)h->punched;
	s->obs.memory_lost = (uint64_t)lost;
	core_memory_lost(s->core, ABI_TIER_CXL, (uint64_t)lost);
}

void holes_turn(struct shell *s, uint64_t now_ns)
{
	struct holes *h = &s->holes;

	if (!h->busy && now_ns - h->looked_ns < LOOK_NS)
		return;
	if (now_ns - h->looked_ns >= LOOK_NS)
		look_for_lost(s);
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
