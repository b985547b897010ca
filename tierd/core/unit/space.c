/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places for pages (space.h): which segment and which place of it. It must never hand out a place
 * twice, nor charge a byte that no segment holds; the core's audit recounts both.
 *
 * A segment is taken at the lowest unused address, so no segment beyond quota / segment_bytes is
 * ever touched, and what is kept about them is that small; it is zero-filled and touched only with
 * its segment. Within a segment a bitmap says which places are taken and a summary which of its
 * words are full. Segments of a class stand in heaps by fullness, in steps of 1/61, so most calls
 * move nothing: fullest first for allocation, emptiest first for evacuation, and the empty ones.
 * An evacuated segment that a few leased places keep is given back in units around them.
 *
 * An empty segment serves whichever class runs out: its memory is there already. A class takes one
 * of another's only when that keeps a spare, or when no further segment can be taken.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "libtier/abi/index.h"
#include "libtier/base/bitmap.h"
#include "tierd/core/unit/space_priv.h"

#define BYTES_MAX ((ABI_ADDR_MASK + 1) << ABI_UNIT_SHIFT)
#define PAGES_MIN 4u  /* places of the largest class in a segment, at least */
#define WASTE_SHIFT 3 /* a segment's tail that fits no place: at most 1/8 */
#define AHEAD_SHARE 8 /* of pool and quota: nothing is taken ahead of need when less is free */
#define SHARE_MIN 8u  /* segments that the quota should give to each class */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- life --------------------------------------------------------------------------------- */

static bool strides_ok(const uint32_t *stride, uint32_t classes)
{
	if (classes == 0 || classes > ABI_PARTS_MAX)
		return false;
	for (uint32_t i = 0; i < classes; i++) {
		if (stride[i] == 0 || stride[i] % ABI_UNIT || stride[i] > ABI_PAGE_BYTES_MAX)
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (stride[k] == stride[i])
				return false;
	}
	return true;
}

static bool wastes_little(uint64_t size, const uint32_t *stride, uint32_t classes)
{
	for (uint32_t i = 0; i < classes; i++)
		if (size % stride[i] > size >> WASTE_SHIFT)
			return false;
	return true;
}

/*
 * The pool's preference; less where the quota would not give every class a share of segments, more
 * where pages are so large that a segment would hold too few or waste too much. Ends at 8 of the
 * largest pages: from there on nothing wastes more than 1/8.
 */
static uint64_t segment_choose(uint64_t preferred, uint64_t quota, const uint32_t *stride,
			       uint32_t classes)
{
	uint64_t size = min_u64(preferred, quota / (SHARE_MIN * classes));

	for (uint32_t i = 0; i < classes; i++)
		if (size < (uint64_t)PAGES_MIN * stride[i])
			size = (uint64_t)PAGES_MIN * stride[i];
	size = (size + ABI_HUGE - 1) / ABI_HUGE * ABI_HUGE;
	while (!wastes_little(size, stride, classes))
		size += ABI_HUGE;
	return size;
}

uint64_t space_least(const struct pool *pool, uint64_t quota, const uint32_t *stride,
		     uint32_t classes)
{
	assert(classes);
	return classes * segment_choose(pool->segment_bytes, quota, stride, classes);
}

/* By bytes of the segment, not by places: costs compare across classes. */
static uint8_t fill_of(const struct space *s, const struct space_class *c, uint32_t live)
{
	if (live == 0)
		return FILL_EMPTY;
	if (live == c->places)
		return FILL_FULL;
	return (uint8_t)(FILL_EMPTY + 1 +
			 (uint64_t)live * c->stride * (FILL_FULL - FILL_EMPTY - 1) /
				 s->segment_bytes);
}

/* Counts from none to all of a segment's places, for each class. */
static size_t fills_bytes(uint64_t segment_bytes, const uint32_t *stride, uint32_t classes)
{
	size_t bytes = classes;

	for (uint32_t i = 0; i < classes; i++)
		bytes += segment_bytes / stride[i];
	return bytes;
}

static void classes_init(struct space *s, const uint32_t *stride)
{
	uint64_t *memory = s->heap_memory;
	uint32_t most = 0;
	uint8_t *fill = s->fill_memory;

	for (uint32_t i = 0; i < s->classes; i++) {
		s->klass[i].stride = stride[i];
		s->klass[i].weight = stride[i];
		s->klass[i].places = (uint32_t)(s->segment_bytes / stride[i]);
		assert(s->klass[i].places >= PAGES_MIN);
		if (most < s->klass[i].places)
			most = s->klass[i].places;
		for (uint32_t h = 0; h < HEAPS; h++, memory += s->segments)
			s->klass[i].heap[h].key = memory;
		s->klass[i].fill = fill;
		for (uint32_t live = 0; live <= s->klass[i].places; live++)
			*fill++ = fill_of(s, &s->klass[i], live);
	}
	assert(BITMAP_WORDS(most) == s->words);
}

int space_open(struct space **out, struct pool *pool, uint64_t bytes, uint64_t quota,
	       const uint32_t *stride, uint32_t classes)
{
	uint64_t most = min_u64(min_u64(bytes, quota), pool->capacity), size;
	uint32_t smallest = UINT32_MAX;
	struct space *s;

	if (!strides_ok(stride, classes) || bytes % ABI_HUGE || bytes > BYTES_MAX)
		return -EINVAL;
	size = segment_choose(pool->segment_bytes, most, stride, classes);
	if (most < size) /* not one segment of these pages */
		return -EINVAL;
	s = calloc(1, sizeof(*s) + classes * sizeof(s->klass[0]));
	if (!s)
		return -ENOMEM;
	for (uint32_t i = 0; i < classes; i++)
		smallest = stride[i] < smallest ? stride[i] : smallest;
	s->pool = pool;
	s->segment_bytes = size;
	s->segments = s->limit = (uint32_t)(most / size);
	s->unit_bytes = (size / ABI_HUGE + UNITS_MAX - 1) / UNITS_MAX * ABI_HUGE;
	s->classes = classes;
	s->words = (uint32_t)BITMAP_WORDS(size / smallest);
	s->summary_words = (uint32_t)BITMAP_WORDS(s->words);
	s->segment = calloc(s->segments, sizeof(*s->segment));
	s->taken_bits = calloc(BITMAP_WORDS(s->segments), sizeof(uint64_t));
	s->place_bits = calloc(s->segments, (s->words + s->summary_words) * sizeof(uint64_t));
	s->heap_memory = calloc((size_t)s->segments * HEAPS, classes * sizeof(uint64_t));
	s->fill_memory = calloc(fills_bytes(size, stride, classes), 1);
	if (!s->segment || !s->taken_bits || !s->place_bits || !s->heap_memory || !s->fill_memory) {
		space_close(s);
		return -ENOMEM;
	}
	classes_init(s, stride);
	*out = s;
	return 0;
}

void space_close(struct space *s)
{
	if (!s)
		return;
	assert(s->pool->used >= s->taken * s->segment_bytes - s->returned);
	s->pool->used -= s->taken * s->segment_bytes - s->returned;
	s->pool->live -= s->live;
	free(s->fill_memory);
	free(s->heap_memory);
	free(s->place_bits);
	free(s->taken_bits);
	free(s->segment);
	free(s);
}

uint64_t space_segment_bytes(const struct space *s)
{
	return s->segment_bytes;
}

/* ---- heaps -------------------------------------------------------------------------------- */

/*
 * Smaller is better. Allocation packs low addresses; what is to be emptied is taken from high.
 * Heaps keep the keys of their segments: these change with fill alone, and with `shunned`.
 */
static inline uint64_t heap_key(const struct space *s, enum heap_kind kind, uint32_t seg)
{
	uint64_t fill = s->segment[seg].fill;

	if (kind == HEAP_ALLOC)
		return (uint64_t)(FILL_FULL - fill) << 32 | seg;
	if (s->segment[seg].shunned)
		fill += FILL_FULL; /* behind all others */
	return fill << 32 | (UINT32_MAX - seg);
}

static inline void heap_place(struct space *s, struct heap *heap, enum heap_kind kind, uint32_t at,
		       uint64_t key)
{
	heap->key[at] = key;
	s->segment[heap_segment(kind, key)].at[kind != HEAP_ALLOC] = at;
}

static inline void heap_rise(struct space *s, struct heap *heap, enum heap_kind kind, uint32_t at,
		      uint64_t key)
{
	for (uint32_t above; at > 0; at = above) {
		above = (at - 1) / 2;
		if (heap->key[above] < key)
			break;
		heap_place(s, heap, kind, at, heap->key[above]);
	}
	heap_place(s, heap, kind, at, key);
}

static inline void heap_sink(struct space *s, struct heap *heap, enum heap_kind kind, uint32_t at,
		      uint64_t key)
{
	uint32_t below;

	while ((below = 2 * at + 1) < heap->count) {
		if (below + 1 < heap->count)
			below += heap->key[below + 1] < heap->key[below];
		if (key < heap->key[below])
			break;
		heap_place(s, heap, kind, at, heap->key[below]);
		at = below;
	}
	heap_place(s, heap, kind, at, key);
}

static void heap_add(struct space *s, enum heap_kind kind, uint32_t seg)
{
	struct heap *heap = &s->klass[s->segment[seg].klass].heap[kind];

	assert(heap->count < s->segments);
	heap_rise(s, heap, kind, heap->count++, heap_key(s, kind, seg));
}

static void heap_remove(struct space *s, enum heap_kind kind, uint32_t seg)
{
	struct space_class *c = &s->klass[s->segment[seg].klass];
	struct heap *heap = &c->heap[kind];
	uint32_t which = kind != HEAP_ALLOC, at = s->segment[seg].at[which];
	uint64_t last;

	assert(heap->count > 0 && at < heap->count);
	assert(heap_segment(kind, heap->key[at]) == seg);
	last = heap->key[--heap->count];
	if (kind == HEAP_EMPTY && heap->count < c->low)
		c->low = heap->count;
	if (at == heap->count)
		return;
	heap_rise(s, heap, kind, at, last);
	heap_sink(s, heap, kind, s->segment[heap_segment(kind, last)].at[which], last);
}

/* Its key has become smaller, or larger. */
static inline void heap_move(struct space *s, enum heap_kind kind, uint32_t seg, bool smaller)
{
	struct heap *heap = &s->klass[s->segment[seg].klass].heap[kind];
	uint32_t at = s->segment[seg].at[kind != HEAP_ALLOC];

	assert(at < heap->count && heap_segment(kind, heap->key[at]) == seg);
	if (smaller)
		heap_rise(s, heap, kind, at, heap_key(s, kind, seg));
	else
		heap_sink(s, heap, kind, at, heap_key(s, kind, seg));
}

/* Does a segment so full stand in a heap of that kind? */
static bool fill_in_heap(uint32_t fill, enum heap_kind kind)
{
	if (kind == HEAP_ALLOC)
		return fill != FILL_NONE && fill != FILL_FULL;
	return kind == HEAP_EMPTY ? fill == FILL_EMPTY : fill > FILL_EMPTY;
}

static uint32_t segment_fill(const struct space *s, const struct segment *segment)
{
	if (segment->state != SEGMENT_TAKEN)
		return FILL_NONE;
	return s->klass[segment->klass].fill[segment->live];
}

static bool fill_partial(uint32_t fill)
{
	return fill > FILL_EMPTY && fill < FILL_FULL;
}

/* Some of its places are taken, as some were before: it stays in its two heaps. */
static void fill_step(struct space *s, uint32_t seg, uint32_t fill)
{
	bool fuller = fill > s->segment[seg].fill;

	s->segment[seg].fill = (uint8_t)fill;
	heap_move(s, HEAP_ALLOC, seg, fuller);
	heap_move(s, HEAP_EVACUATE, seg, !fuller);
}

/* From some heaps into others. */
static void fill_turn(struct space *s, uint32_t seg, uint32_t fill)
{
	struct segment *segment = &s->segment[seg];
	uint32_t was = segment->fill;

	for (enum heap_kind kind = 0; kind < HEAPS; kind++)
		if (fill_in_heap(was, kind) && !fill_in_heap(fill, kind))
			heap_remove(s, kind, seg);
	segment->fill = (uint8_t)fill;
	for (enum heap_kind kind = 0; kind < HEAPS; kind++) {
		if (!fill_in_heap(fill, kind))
			continue;
		if (fill_in_heap(was, kind))
			heap_move(s, kind, seg, (fill > was) == (kind == HEAP_ALLOC));
		else
			heap_add(s, kind, seg);
	}
}

/* Put the segment where its state and its live places want it. */
void space_settle(struct space *s, uint32_t seg)
{
	const struct segment *segment = &s->segment[seg];
	uint32_t fill = segment_fill(s, segment);

	assert(segment->live <= s->klass[segment->klass].places);
	assert(fill <= FILL_FULL);
	if (fill == segment->fill)
		return;
	if (fill_partial(fill) && fill_partial(segment->fill))
		fill_step(s, seg, fill);
	else
		fill_turn(s, seg, fill);
}

/* ---- segments ----------------------------------------------------------------------------- */

/* The segment of an offset that is a segment's start. */
uint32_t space_segment_at(const struct space *s, uint64_t offset)
{
	assert(offset % s->segment_bytes == 0);
	assert(offset / s->segment_bytes < s->segments);
	return (uint32_t)(offset / s->segment_bytes);
}

/* Its bits are all clear, whichever class it served: it is empty. */
static void segment_serve(struct space *s, uint32_t seg, uint32_t klass)
{
	struct segment *segment = &s->segment[seg];

	assert(segment->live == 0 && segment->fill == FILL_NONE);
	assert(space_segment_bits(s, seg)[0] == 0 && space_segment_bits(s, seg)[s->words] == 0);
	segment->klass = (uint8_t)klass;
	segment->state = SEGMENT_TAKEN;
	s->free += space_class_bytes(s, klass);
	s->klass[klass].free += s->klass[klass].places;
	space_settle(s, seg);
}

static uint64_t pool_left(const struct pool *pool)
{
	uint64_t gone = pool->used + pool->lost;

	return pool->capacity > gone ? pool->capacity - gone : 0;
}

/* How many more segments the pool allows, and range and quota, which s->segments stands for. */
uint64_t space_segments_left(const struct space *s)
{
	assert(s->taken <= s->segments);
	return min_u64(s->limit > s->taken ? s->limit - s->taken : 0,
		       pool_left(s->pool) / s->segment_bytes);
}

static void segment_take(struct space *s, uint32_t klass, uint64_t *fresh)
{
	uint32_t seg = (uint32_t)bitmap_find_clear(s->taken_bits, s->segments, s->unused_from);

	assert(seg < s->segments && s->segment[seg].state == SEGMENT_UNUSED);
	bitmap_set(s->taken_bits, seg);
	s->unused_from = seg + 1;
	s->taken++;
	s->pool->used += s->segment_bytes;
	assert(s->pool->used <= s->pool->capacity);
	*fresh = seg * s->segment_bytes;
	segment_serve(s, seg, klass);
}

/* Out of all heaps; its free places no longer count. */
static uint32_t empty_withdraw(struct space *s, uint32_t klass)
{
	const struct heap *heap = &s->klass[klass].heap[HEAP_EMPTY];
	uint32_t seg = heap_segment(HEAP_EMPTY, heap->key[0]);
	struct segment *segment = &s->segment[seg];

	assert(heap->count > 0);
	assert(segment->state == SEGMENT_TAKEN && segment->live == 0);
	segment->state = SEGMENT_PUNCHED;
	space_settle(s, seg);
	s->free -= space_class_bytes(s, klass);
	s->klass[klass].free -= s->klass[klass].places;
	assert(s->klass[klass].free >= s->klass[klass].reserved);
	return seg;
}

/* More than `keep` empty segments, one of which is not promised? */
static bool has_empty(const struct space_class *c, uint32_t keep)
{
	return c->heap[HEAP_EMPTY].count > keep && c->free - c->places >= c->reserved;
}

/* Such a class; classes = none. */
static uint32_t class_with_empty(const struct space *s, uint32_t keep, uint32_t except)
{
	uint32_t klass = 0;

	while (klass < s->classes && (klass == except || !has_empty(&s->klass[klass], keep)))
		klass++;
	return klass;
}

/* A segment for a class that has no free place, or none that is not promised. */
static int class_extend(struct space *s, uint32_t klass, uint64_t *fresh)
{
	uint32_t from = class_with_empty(s, 1, klass);

	if (from == s->classes && space_segments_left(s) > 0) {
		segment_take(s, klass, fresh);
		return 0;
	}
	if (from == s->classes)
		from = class_with_empty(s, 0, klass);
	if (from == s->classes)
		return -ENOSPC;
	segment_serve(s, empty_withdraw(s, from), klass);
	return 0;
}

void space_segment_unused(struct space *s, uint32_t seg)
{
	s->segment[seg].state = SEGMENT_UNUSED;
	bitmap_clear(s->taken_bits, seg);
	if (seg < s->unused_from)
		s->unused_from = seg;
}

void space_weigh(struct space *s, uint32_t klass, uint64_t bytes)
{
	assert(klass < s->classes);
	s->klass[klass].weight = bytes;
}

void space_limit(struct space *s, uint64_t quota)
{
	s->limit = (uint32_t)min_u64(quota / s->segment_bytes, s->segments);
}

uint64_t space_ahead(struct space *s, uint32_t klass)
{
	uint64_t free = pool_left(s->pool), fresh = UINT64_MAX;

	assert(klass < s->classes);
	if (s->klass[klass].heap[HEAP_EMPTY].count ||
	    free < s->pool->capacity / AHEAD_SHARE + s->segment_bytes ||
	    s->limit < s->taken + s->limit / AHEAD_SHARE + 1 ||
	    class_with_empty(s, 1, klass) < s->classes)
		return fresh;
	segment_take(s, klass, &fresh);
	return fresh;
}

static bool may_go(const struct space_class *c, bool all)
{
	return has_empty(c, all ? 0 : 1) && (all || (c->idle && c->low > 1));
}

int64_t space_surplus(struct space *s, bool all)
{
	uint32_t klass = 0;

	while (klass < s->classes && !may_go(&s->klass[klass], all))
		klass++;
	if (klass == s->classes)
		return -ENOENT;
	s->klass[klass].idle -= s->klass[klass].idle > 0;
	s->punching++;
	return (int64_t)(empty_withdraw(s, klass) * s->segment_bytes);
}

void space_look(struct space *s)
{
	for (uint32_t k = 0; k < s->classes; k++) {
		struct space_class *c = &s->klass[k];

		c->idle = c->low > 1 ? c->low - 1 : 0;
		c->low = c->heap[HEAP_EMPTY].count;
	}
}

bool space_may_take(const struct space *s)
{
	return s->limit > s->taken;
}

void space_punched(struct space *s, uint64_t offset)
{
	uint32_t seg = space_segment_at(s, offset);
	struct segment *segment = &s->segment[seg];

	assert(segment->live == 0 && segment->state == SEGMENT_PUNCHED);
	assert(s->taken > 0 && s->pool->used >= s->segment_bytes);
	assert(s->punching > 0);
	s->punching--;
	s->taken--;
	s->pool->used -= s->segment_bytes;
	space_segment_unused(s, seg);
}

uint64_t space_hole(const struct space *s, uint64_t from)
{
	uint64_t seg = (from + s->segment_bytes - 1) / s->segment_bytes;

	while (seg < s->segments && s->segment[seg].state != SEGMENT_UNUSED)
		seg++;
	return seg * s->segment_bytes;
}

/* ---- places ------------------------------------------------------------------------------- */

/* The lowest free place of a segment that has one; so what lies past the last is never reached. */
static uint32_t place_take(const struct space *s, uint32_t seg)
{
	uint64_t *bits = space_segment_bits(s, seg), *summary = bits + s->words;
	size_t full = 0, word;
	uint32_t place;

	while (!~summary[full]) /* there is one: what follows the last word's bits is clear, too */
		full++;
	word = full * 64 + (size_t)__builtin_ctzll(~summary[full]);
	assert(full < s->summary_words && word < s->words && ~bits[word] != 0);
	place = (uint32_t)(word * 64) + (uint32_t)__builtin_ctzll(~bits[word]);
	bitmap_set(bits, place);
	if (~bits[word] == 0)
		bitmap_set(summary, word);
	return place;
}

/* From the fullest segment of the class that has a place. */
static int64_t place_from(struct space *s, uint32_t klass)
{
	struct space_class *c = &s->klass[klass];
	uint32_t seg = heap_segment(HEAP_ALLOC, c->heap[HEAP_ALLOC].key[0]), place;

	assert(c->heap[HEAP_ALLOC].count > 0 && c->free > 0);
	assert(s->segment[seg].state == SEGMENT_TAKEN && s->segment[seg].klass == klass);
	place = place_take(s, seg);
	assert(place < c->places && s->free >= c->stride);
	s->segment[seg].live++;
	s->live += c->stride;
	s->pool->live += c->stride;
	s->free -= c->stride;
	c->free--;
	c->live++;
	space_settle(s, seg);
	return (int64_t)(seg * s->segment_bytes + (uint64_t)place * c->stride);
}

int64_t space_alloc(struct space *s, uint32_t klass, uint64_t *fresh)
{
	struct space_class *c = &s->klass[klass];

	assert(klass < s->classes);
	*fresh = UINT64_MAX;
	c->wanting = c->free == c->reserved && class_extend(s, klass, fresh) < 0;
	return c->wanting ? -ENOSPC : place_from(s, klass);
}

int64_t space_alloc_move(struct space *s, uint32_t klass)
{
	const struct space_class *c = &s->klass[klass];

	assert(klass < s->classes);
	if (c->free == c->reserved ||
	    s->segment[heap_segment(HEAP_ALLOC, c->heap[HEAP_ALLOC].key[0])].fill == FILL_EMPTY)
		return -ENOSPC;
	return place_from(s, klass);
}

int64_t space_alloc_reserved(struct space *s, uint32_t klass)
{
	assert(klass < s->classes && s->klass[klass].reserved > 0);
	s->klass[klass].reserved--;
	s->pool->reserved -= s->klass[klass].stride;
	return place_from(s, klass);
}

int space_reserve(struct space *s, uint32_t klass, uint64_t places, uint64_t *fresh)
{
	struct space_class *c = &s->klass[klass];

	assert(klass < s->classes);
	*fresh = UINT64_MAX;
	if (c->free - c->reserved >= places) {
		c->reserved += places;
		s->pool->reserved += places * c->stride;
		return 0;
	}
	return class_extend(s, klass, fresh) < 0 ? -ENOSPC : 1;
}

void space_unreserve(struct space *s, uint32_t klass, uint64_t places)
{
	assert(klass < s->classes && s->klass[klass].reserved >= places);
	s->klass[klass].reserved -= places;
	s->pool->reserved -= places * s->klass[klass].stride;
}

/* Is the offset a place of a segment in use, and handed out? */
static bool place_find(const struct space *s, uint64_t offset, uint32_t *seg, uint32_t *place)
{
	uint64_t index = offset / s->segment_bytes, within = offset % s->segment_bytes;
	const struct segment *segment;
	uint32_t stride;

	if (index >= s->segments)
		return false;
	segment = &s->segment[index];
	if (segment->state != SEGMENT_TAKEN && segment->state != SEGMENT_EVACUATED)
		return false;
	stride = s->klass[segment->klass].stride;
	*seg = (uint32_t)index;
	*place = (uint32_t)(within / stride);
	return within % stride == 0 && *place < s->klass[segment->klass].places &&
	       bitmap_test(space_segment_bits(s, *seg), *place);
}

/* A place of it is going to be free: emptying it may be of use again. */
static void unshun(struct space *s, uint32_t seg)
{
	struct segment *segment = &s->segment[seg];

	if (!segment->shunned)
		return;
	segment->shunned = false;
	if (fill_in_heap(segment->fill, HEAP_EVACUATE))
		heap_move(s, HEAP_EVACUATE, seg, true);
}

void space_free(struct space *s, uint64_t offset)
{
	uint32_t seg = 0, place = 0, stride;
	uint64_t *bits;
	bool found = place_find(s, offset, &seg, &place);

	assert(found);
	(void)found;
	bits = space_segment_bits(s, seg);
	bitmap_clear(bits, place);
	bitmap_clear(bits + s->words, place / 64);
	stride = s->klass[s->segment[seg].klass].stride;
	assert(s->segment[seg].live > 0 && s->live >= stride);
	unshun(s, seg);
	s->segment[seg].live--;
	s->live -= stride;
	s->pool->live -= stride;
	s->free += stride;
	s->klass[s->segment[seg].klass].live--;
	if (s->segment[seg].state == SEGMENT_EVACUATED) {
		s->free_evacuated += stride;
		s->klass[s->segment[seg].klass].going--;
	} else {
		s->klass[s->segment[seg].klass].free++;
	}
	space_settle(s, seg);
}

void space_stats(const struct space *s, struct space_stats *out)
{
	uint64_t least = UINT64_MAX, reserved = 0;

	for (uint32_t k = 0; k < s->classes; k++) {
		least = min_u64(least, space_class_bytes(s, k));
		reserved += s->klass[k].reserved * s->klass[k].stride;
	}
	assert(s->free >= s->free_evacuated + reserved);
	*out = (struct space_stats){
		.charged = s->taken * s->segment_bytes - s->returned,
		.live = s->live,
		.free = s->free,
		.reserved = reserved,
		.available = s->free - s->free_evacuated - reserved +
			     space_segments_left(s) * least,
		.punching = s->punching * least,
	};
	assert(out->live <= out->charged);
}

uint64_t space_held(const struct space *s)
{
	assert(s->taken >= s->punching);
	return (s->taken - s->punching) * s->segment_bytes - s->returned;
}

bool space_is_live(const struct space *s, uint64_t offset)
{
	uint32_t seg, place;

	return place_find(s, offset, &seg, &place);
}

uint64_t space_fit(const struct space *s, const uint32_t *need, uint64_t pool_segments)
{
	uint64_t low = 0, high = s->segments * (s->segment_bytes / ABI_UNIT) + 1;

	/* The largest n for which every class finds n times its need. */
	while (high - low > 1) {
		uint64_t n = low + (high - low) / 2, spare = pool_segments, wanted = 0;

		for (uint32_t k = 0; k < s->classes; k++) {
			const struct space_class *c = &s->klass[k];
			uint64_t empty = c->heap[HEAP_EMPTY].count;
			uint64_t own = c->free - c->reserved;

			/* Promised places are taken from segments in use first. */
			own = own > empty * c->places ? own - empty * c->places : 0;
			spare += empty;
			if (n * need[k] > own)
				wanted += (n * need[k] - own + c->places - 1) / c->places;
		}
		if (wanted <= spare)
			low = n;
		else
			high = n;
	}
	return low;
}
