/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places for pages (space.h): which slab and which place of it. It must never hand out a place
 * twice, nor charge a byte that no slab holds; the core's audit recounts both.
 *
 * A slab is taken at the lowest unused address, so no slab beyond quota / slab_bytes is
 * ever touched, and what is kept about them is that small; it is zero-filled and touched only with
 * its slab. Within a slab a bitmap says which places are taken and a summary which of its
 * words are full. Slabs of a class stand in heaps by fullness, in steps of 1/61, so most calls
 * move nothing: fullest first for allocation, emptiest first for evacuation, and the empty ones.
 * An evacuated slab that a few leased places keep is given back in units around them.
 *
 * An empty slab serves whichever class runs out: its memory is there already. A class takes one
 * of another's only when that keeps a spare, or when no further slab can be taken.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "libtier/abi/index.h"
#include "libtier/base/bitmap.h"
#include "tierd/core/unit/space_priv.h"

#define BYTES_MAX ((ABI_ADDR_MASK + 1) << ABI_UNIT_SHIFT)
#define PAGES_MIN 4u  /* places of the largest class in a slab, at least */
#define WASTE_SHIFT 3 /* a slab's tail that fits no place: at most 1/8 */
#define AHEAD_SHARE 8 /* of pool and quota: nothing is taken ahead of need when less is free */
#define SHARE_MIN 8u  /* slabs that the quota should give to each class */

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
 * The pool's preference; less where the quota would not give every class a share of slabs, more
 * where pages are so large that a slab would hold too few or waste too much. Ends at 8 of the
 * largest pages: from there on nothing wastes more than 1/8.
 */
static uint64_t slab_choose(uint64_t preferred, uint64_t quota, const uint32_t *stride,
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
	return classes * slab_choose(pool->slab_bytes, quota, stride, classes);
}

/* By bytes of the slab, not by places: costs compare across classes. */
static uint8_t fill_of(const struct space *s, const struct space_class *c, uint32_t live)
{
	if (live == 0)
		return FILL_EMPTY;
	if (live == c->places)
		return FILL_FULL;
	return (uint8_t)(FILL_EMPTY + 1 +
			 (uint64_t)live * c->stride * (FILL_FULL - FILL_EMPTY - 1) /
				 s->slab_bytes);
}

/* Counts from none to all of a slab's places, for each class. */
static size_t fills_bytes(uint64_t slab_bytes, const uint32_t *stride, uint32_t classes)
{
	size_t bytes = classes;

	for (uint32_t i = 0; i < classes; i++)
		bytes += slab_bytes / stride[i];
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
		s->klass[i].places = (uint32_t)(s->slab_bytes / stride[i]);
		assert(s->klass[i].places >= PAGES_MIN);
		if (most < s->klass[i].places)
			most = s->klass[i].places;
		for (uint32_t h = 0; h < HEAPS; h++, memory += s->slabs)
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
	size = slab_choose(pool->slab_bytes, most, stride, classes);
	if (most < size) /* not one slab of these pages */
		return -EINVAL;
	s = calloc(1, sizeof(*s) + classes * sizeof(s->klass[0]));
	if (!s)
		return -ENOMEM;
	for (uint32_t i = 0; i < classes; i++)
		smallest = stride[i] < smallest ? stride[i] : smallest;
	s->pool = pool;
	s->looks = 1;
	s->slab_bytes = size;
	s->slabs = s->limit = (uint32_t)(most / size);
	s->unit_bytes = (size / ABI_HUGE + UNITS_MAX - 1) / UNITS_MAX * ABI_HUGE;
	s->classes = classes;
	s->words = (uint32_t)BITMAP_WORDS(size / smallest);
	s->summary_words = (uint32_t)BITMAP_WORDS(s->words);
	s->slab = calloc(s->slabs, sizeof(*s->slab));
	s->taken_bits = calloc(BITMAP_WORDS(s->slabs), sizeof(uint64_t));
	s->place_bits = calloc(s->slabs, (s->words + s->summary_words) * sizeof(uint64_t));
	s->heap_memory = calloc((size_t)s->slabs * HEAPS, classes * sizeof(uint64_t));
	s->fill_memory = calloc(fills_bytes(size, stride, classes), 1);
	if (!s->slab || !s->taken_bits || !s->place_bits || !s->heap_memory || !s->fill_memory) {
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
	assert(s->pool->used >= s->taken * s->slab_bytes - s->returned);
	s->pool->used -= s->taken * s->slab_bytes - s->returned;
	s->pool->live -= s->live;
	free(s->fill_memory);
	free(s->heap_memory);
	free(s->place_bits);
	free(s->taken_bits);
	free(s->slab);
	free(s);
}

uint64_t space_slab_bytes(const struct space *s)
{
	return s->slab_bytes;
}

/* ---- heaps -------------------------------------------------------------------------------- */

/*
 * Smaller is better. Allocation packs low addresses; what is to be emptied is taken from high.
 * Heaps keep the keys of their slabs: these change with fill, and with `shunned` and `lent`.
 */
static inline uint64_t heap_key(const struct space *s, enum heap_kind kind, uint32_t number)
{
	uint64_t fill = s->slab[number].fill;

	if (kind == HEAP_ALLOC)
		return (uint64_t)(FILL_FULL - fill) << 32 | number;
	if (s->slab[number].shunned)
		fill += FILL_FULL; /* behind all others */
	if (s->slab[number].lent)
		fill += 2 * FILL_FULL; /* and behind these */
	return fill << 32 | (UINT32_MAX - number);
}

static inline void heap_place(struct space *s, struct heap *heap, enum heap_kind kind, uint32_t at,
		       uint64_t key)
{
	heap->key[at] = key;
	s->slab[heap_slab(kind, key)].at[kind != HEAP_ALLOC] = at;
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

static void heap_add(struct space *s, enum heap_kind kind, uint32_t number)
{
	struct heap *heap = &s->klass[s->slab[number].klass].heap[kind];

	assert(heap->count < s->slabs);
	heap_rise(s, heap, kind, heap->count++, heap_key(s, kind, number));
}

static void heap_remove(struct space *s, enum heap_kind kind, uint32_t number)
{
	struct space_class *c = &s->klass[s->slab[number].klass];
	struct heap *heap = &c->heap[kind];
	uint32_t which = kind != HEAP_ALLOC, at = s->slab[number].at[which];
	uint64_t last;

	assert(heap->count > 0 && at < heap->count);
	assert(heap_slab(kind, heap->key[at]) == number);
	last = heap->key[--heap->count];
	if (kind == HEAP_EMPTY && heap->count < c->low)
		c->low = heap->count;
	if (at == heap->count)
		return;
	heap_rise(s, heap, kind, at, last);
	heap_sink(s, heap, kind, s->slab[heap_slab(kind, last)].at[which], last);
}

/* Its key has become smaller, or larger. */
static inline void heap_move(struct space *s, enum heap_kind kind, uint32_t number, bool smaller)
{
	struct heap *heap = &s->klass[s->slab[number].klass].heap[kind];
	uint32_t at = s->slab[number].at[kind != HEAP_ALLOC];

	assert(at < heap->count && heap_slab(kind, heap->key[at]) == number);
	if (smaller)
		heap_rise(s, heap, kind, at, heap_key(s, kind, number));
	else
		heap_sink(s, heap, kind, at, heap_key(s, kind, number));
}

/* Does a slab so full stand in a heap of that kind? */
static bool fill_in_heap(uint32_t fill, enum heap_kind kind)
{
	if (kind == HEAP_ALLOC)
		return fill != FILL_NONE && fill != FILL_FULL;
	return kind == HEAP_EMPTY ? fill == FILL_EMPTY : fill > FILL_EMPTY;
}

static uint32_t slab_fill(const struct space *s, const struct slab *slab)
{
	if (slab->state != SLAB_TAKEN)
		return FILL_NONE;
	return s->klass[slab->klass].fill[slab->live];
}

static bool fill_partial(uint32_t fill)
{
	return fill > FILL_EMPTY && fill < FILL_FULL;
}

/* Some of its places are taken, as some were before: it stays in its two heaps. */
static void fill_step(struct space *s, uint32_t number, uint32_t fill)
{
	bool fuller = fill > s->slab[number].fill;

	s->slab[number].fill = (uint8_t)fill;
	heap_move(s, HEAP_ALLOC, number, fuller);
	heap_move(s, HEAP_EVACUATE, number, !fuller);
}

/* From some heaps into others. */
static void fill_turn(struct space *s, uint32_t number, uint32_t fill)
{
	struct slab *slab = &s->slab[number];
	uint32_t was = slab->fill;

	for (enum heap_kind kind = 0; kind < HEAPS; kind++)
		if (fill_in_heap(was, kind) && !fill_in_heap(fill, kind))
			heap_remove(s, kind, number);
	slab->fill = (uint8_t)fill;
	for (enum heap_kind kind = 0; kind < HEAPS; kind++) {
		if (!fill_in_heap(fill, kind))
			continue;
		if (fill_in_heap(was, kind))
			heap_move(s, kind, number, (fill > was) == (kind == HEAP_ALLOC));
		else
			heap_add(s, kind, number);
	}
}

/* Put the slab where its state and its live places want it. */
void space_settle(struct space *s, uint32_t number)
{
	const struct slab *slab = &s->slab[number];
	uint32_t fill = slab_fill(s, slab);

	assert(slab->live <= s->klass[slab->klass].places);
	assert(fill <= FILL_FULL);
	if (fill == slab->fill)
		return;
	if (fill_partial(fill) && fill_partial(slab->fill))
		fill_step(s, number, fill);
	else
		fill_turn(s, number, fill);
}

/* ---- slabs -------------------------------------------------------------------------------- */

/* The slab of an offset that is a slab's start. */
uint32_t space_slab_at(const struct space *s, uint64_t offset)
{
	assert(offset % s->slab_bytes == 0);
	assert(offset / s->slab_bytes < s->slabs);
	return (uint32_t)(offset / s->slab_bytes);
}

/* Its bits are all clear, whichever class it served: it is empty. */
static void slab_serve(struct space *s, uint32_t number, uint32_t klass)
{
	struct slab *slab = &s->slab[number];

	assert(slab->live == 0 && slab->fill == FILL_NONE);
	assert(space_slab_bits(s, number)[0] == 0 && space_slab_bits(s, number)[s->words] == 0);
	slab->klass = (uint8_t)klass;
	slab->state = SLAB_TAKEN;
	s->free += space_class_bytes(s, klass);
	s->klass[klass].free += s->klass[klass].places;
	space_settle(s, number);
}

static uint64_t pool_left(const struct pool *pool)
{
	uint64_t gone = pool->used + pool->lost;

	return pool->capacity > gone ? pool->capacity - gone : 0;
}

/* How many more slabs the pool allows, and range and quota, which s->slabs stands for. */
uint64_t space_slabs_left(const struct space *s)
{
	assert(s->taken <= s->slabs);
	return min_u64(s->limit > s->taken ? s->limit - s->taken : 0,
		       pool_left(s->pool) / s->slab_bytes);
}

static void slab_charge(struct space *s, uint32_t number, uint32_t klass)
{
	assert(number < s->slabs && s->slab[number].state == SLAB_UNUSED);
	bitmap_set(s->taken_bits, number);
	s->taken++;
	s->pool->used += s->slab_bytes;
	assert(s->pool->used <= s->pool->capacity);
	slab_serve(s, number, klass);
}

static void slab_take(struct space *s, uint32_t klass, uint64_t *fresh)
{
	uint32_t number = (uint32_t)bitmap_find_clear(s->taken_bits, s->slabs, s->unused_from);

	s->unused_from = number + 1;
	*fresh = number * s->slab_bytes;
	slab_charge(s, number, klass);
}

/* Out of all heaps; its free places no longer count. */
static uint32_t empty_withdraw(struct space *s, uint32_t klass)
{
	const struct heap *heap = &s->klass[klass].heap[HEAP_EMPTY];
	uint32_t number = heap_slab(HEAP_EMPTY, heap->key[0]);
	struct slab *slab = &s->slab[number];

	assert(heap->count > 0);
	assert(slab->state == SLAB_TAKEN && slab->live == 0);
	slab->state = SLAB_PUNCHED;
	space_settle(s, number);
	s->free -= space_class_bytes(s, klass);
	s->klass[klass].free -= s->klass[klass].places;
	assert(s->klass[klass].free >= s->klass[klass].reserved);
	return number;
}

/* More than `keep` empty slabs, one of which is not promised? */
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

/* A slab for a class that has no free place, or none that is not promised. */
static int class_extend(struct space *s, uint32_t klass, uint64_t *fresh)
{
	uint32_t from = class_with_empty(s, 1, klass);

	if (from == s->classes && space_slabs_left(s) > 0) {
		slab_take(s, klass, fresh);
		return 0;
	}
	if (from == s->classes)
		from = class_with_empty(s, 0, klass);
	if (from == s->classes)
		return -ENOSPC;
	slab_serve(s, empty_withdraw(s, from), klass);
	return 0;
}

void space_slab_unused(struct space *s, uint32_t number)
{
	assert(!s->slab[number].lent);
	s->slab[number].state = SLAB_UNUSED;
	s->slab[number].recalled = 0;
	bitmap_clear(s->taken_bits, number);
	if (number < s->unused_from)
		s->unused_from = number;
}

void space_weigh(struct space *s, uint32_t klass, uint64_t bytes)
{
	assert(klass < s->classes);
	s->klass[klass].weight = bytes;
}

void space_limit(struct space *s, uint64_t quota)
{
	s->limit = (uint32_t)min_u64(quota / s->slab_bytes, s->slabs);
}

uint64_t space_ahead(struct space *s, uint32_t klass)
{
	uint64_t free = pool_left(s->pool), fresh = UINT64_MAX;

	assert(klass < s->classes);
	if (s->klass[klass].heap[HEAP_EMPTY].count ||
	    free < s->pool->capacity / AHEAD_SHARE + s->slab_bytes ||
	    s->limit < s->taken + s->limit / AHEAD_SHARE + 1 ||
	    class_with_empty(s, 1, klass) < s->classes)
		return fresh;
	slab_take(s, klass, &fresh);
	return fresh;
}

static bool may_go(const struct space *s, const struct space_class *c, bool all)
{
	if (!has_empty(c, all ? 0 : 1) || !(all || (c->idle && c->low > 1)))
		return false;
	return !s->slab[heap_slab(HEAP_EMPTY, c->heap[HEAP_EMPTY].key[0])].lent;
}

int64_t space_surplus(struct space *s, bool all)
{
	uint32_t klass = 0;

	while (klass < s->classes && !may_go(s, &s->klass[klass], all))
		klass++;
	if (klass == s->classes)
		return -ENOENT;
	s->klass[klass].idle -= s->klass[klass].idle > 0;
	s->punching++;
	return (int64_t)(empty_withdraw(s, klass) * s->slab_bytes);
}

void space_look(struct space *s)
{
	s->looks++; /* what was wanted back before, and nobody took, is not any more */
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
	uint32_t number = space_slab_at(s, offset);
	struct slab *slab = &s->slab[number];

	assert(slab->live == 0 && slab->state == SLAB_PUNCHED);
	assert(s->taken > 0 && s->pool->used >= s->slab_bytes);
	assert(s->punching > 0);
	s->punching--;
	s->taken--;
	s->pool->used -= s->slab_bytes;
	space_slab_unused(s, number);
}

uint64_t space_hole(const struct space *s, uint64_t from)
{
	uint64_t number = (from + s->slab_bytes - 1) / s->slab_bytes;

	while (number < s->slabs && s->slab[number].state != SLAB_UNUSED)
		number++;
	return number * s->slab_bytes;
}

/* ---- places ------------------------------------------------------------------------------- */

/* The lowest free place of a slab that has one; so what lies past the last is never reached. */
static uint32_t place_take(const struct space *s, uint32_t number)
{
	uint64_t *bits = space_slab_bits(s, number), *summary = bits + s->words;
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

/* One more of the slab's places is handed out: its bit is set. */
static void place_count(struct space *s, uint32_t number)
{
	struct space_class *c = &s->klass[s->slab[number].klass];

	assert(s->free >= c->stride && c->free > 0);
	s->slab[number].live++;
	s->live += c->stride;
	s->pool->live += c->stride;
	s->free -= c->stride;
	c->free--;
	c->live++;
	space_settle(s, number);
}

/* From the fullest slab of the class that has a place. */
static int64_t place_from(struct space *s, uint32_t klass)
{
	struct space_class *c = &s->klass[klass];
	uint32_t number = heap_slab(HEAP_ALLOC, c->heap[HEAP_ALLOC].key[0]), place;

	assert(c->heap[HEAP_ALLOC].count > 0);
	assert(s->slab[number].state == SLAB_TAKEN && s->slab[number].klass == klass);
	place = place_take(s, number);
	assert(place < c->places);
	place_count(s, number);
	return (int64_t)(number * s->slab_bytes + (uint64_t)place * c->stride);
}

int space_claim(struct space *s, uint32_t klass, uint64_t offset)
{
	uint64_t number = offset / s->slab_bytes, within = offset % s->slab_bytes, *bits;
	const struct space_class *c = &s->klass[klass];
	uint32_t place = (uint32_t)(within / c->stride);

	assert(klass < s->classes);
	if (number >= s->slabs || within % c->stride || place >= c->places)
		return -EINVAL;
	if (s->slab[number].state == SLAB_UNUSED) {
		if (pool_left(s->pool) < s->slab_bytes) /* over its quota it was before, too */
			return -ENOSPC;
		slab_charge(s, (uint32_t)number, klass);
	}
	bits = space_slab_bits(s, (uint32_t)number);
	if (s->slab[number].state != SLAB_TAKEN || s->slab[number].klass != klass ||
	    bitmap_test(bits, place) || c->free == c->reserved)
		return -EEXIST;
	bitmap_set(bits, place);
	if (~bits[place / 64] == 0)
		bitmap_set(bits + s->words, place / 64);
	place_count(s, (uint32_t)number);
	return 0;
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
	    s->slab[heap_slab(HEAP_ALLOC, c->heap[HEAP_ALLOC].key[0])].fill == FILL_EMPTY)
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

/* Is the offset a place of a slab in use, and handed out? */
static bool place_find(const struct space *s, uint64_t offset, uint32_t *number, uint32_t *place)
{
	uint64_t index = offset / s->slab_bytes, within = offset % s->slab_bytes;
	const struct slab *slab;
	uint32_t stride;

	if (index >= s->slabs)
		return false;
	slab = &s->slab[index];
	if (slab->state != SLAB_TAKEN && slab->state != SLAB_EVACUATED)
		return false;
	stride = s->klass[slab->klass].stride;
	*number = (uint32_t)index;
	*place = (uint32_t)(within / stride);
	return within % stride == 0 && *place < s->klass[slab->klass].places &&
	       bitmap_test(space_slab_bits(s, *number), *place);
}

/* Who has become better, or worse, moves in the heap that it stands in. */
static void rank(struct space *s, uint32_t number, bool better)
{
	uint32_t fill = s->slab[number].fill;

	if (fill != FILL_NONE)
		heap_move(s, fill == FILL_EMPTY ? HEAP_EMPTY : HEAP_EVACUATE, number, better);
}

/* Until its devices have let go, and then until the next look. */
static bool is_recalled(const struct space *s, const struct slab *slab)
{
	return slab->recalled && (slab->lent || slab->recalled == s->looks);
}

int64_t space_lend(struct space *s, uint64_t offset)
{
	uint64_t number = offset / s->slab_bytes;
	struct slab *slab;

	if (number >= s->slabs)
		return -EAGAIN;
	slab = &s->slab[number];
	if (slab->state != SLAB_TAKEN || is_recalled(s, slab) || slab->lent == UINT16_MAX)
		return -EAGAIN;
	slab->recalled = 0;
	if (!slab->lent++)
		rank(s, (uint32_t)number, false);
	return (int64_t)(number * s->slab_bytes);
}

void space_lend_end(struct space *s, uint64_t offset)
{
	uint32_t number = space_slab_at(s, offset);

	assert(s->slab[number].lent > 0 && s->slab[number].state == SLAB_TAKEN);
	if (--s->slab[number].lent)
		return;
	if (s->slab[number].recalled)
		s->slab[number].recalled = s->looks;
	rank(s, number, true);
}

bool space_is_recalled(const struct space *s, uint64_t slab)
{
	return is_recalled(s, &s->slab[space_slab_at(s, slab)]);
}

/* A place of it is going to be free: emptying it may be of use again. */
static void unshun(struct space *s, uint32_t number)
{
	struct slab *slab = &s->slab[number];

	if (!slab->shunned)
		return;
	slab->shunned = false;
	rank(s, number, true);
}

void space_free(struct space *s, uint64_t offset)
{
	uint32_t number = 0, place = 0, stride;
	uint64_t *bits;
	bool found = place_find(s, offset, &number, &place);

	assert(found);
	(void)found;
	bits = space_slab_bits(s, number);
	bitmap_clear(bits, place);
	bitmap_clear(bits + s->words, place / 64);
	stride = s->klass[s->slab[number].klass].stride;
	assert(s->slab[number].live > 0 && s->live >= stride);
	unshun(s, number);
	s->slab[number].live--;
	s->live -= stride;
	s->pool->live -= stride;
	s->free += stride;
	s->klass[s->slab[number].klass].live--;
	if (s->slab[number].state == SLAB_EVACUATED) {
		s->free_evacuated += stride;
		s->klass[s->slab[number].klass].going--;
	} else {
		s->klass[s->slab[number].klass].free++;
	}
	space_settle(s, number);
}

bool space_is_live(const struct space *s, uint64_t offset)
{
	uint32_t number, place;

	return place_find(s, offset, &number, &place);
}
