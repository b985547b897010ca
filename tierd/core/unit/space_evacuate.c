/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emptying slabs of a space (space.h): which one costs least, which one to compact, and how the
 * room around places that stay is given back. It moves no page: evict.c and move.c do.
 */
#include <assert.h>
#include <errno.h>

#include "libtier/base/bitmap.h"
#include "tierd/core/unit/space_priv.h"

/* Classes may differ in free room by so many 256ths before one is compacted. */
#define COMPACT_SLACK 8u
/* A byte that leaves costs as much as so many that move. */
#define LOSS 8u
/* Of a slab's places: so many are room for what comes. */
#define ROOM_SHARE 16u
#define RECALL_LOOKS 512u /* slabs that are looked at for one that is lent */

/* Free places of the slab leave its class's account; it stands in no heap until the end. */
static int64_t evacuate(struct space *s, uint32_t number, uint32_t *live)
{
	struct slab *slab = &s->slab[number];
	struct space_class *c = &s->klass[slab->klass];

	assert(slab->state == SLAB_TAKEN && slab->live > 0 && !slab->lent);
	slab->state = SLAB_EVACUATED;
	slab->going = slab->gone = 0;
	space_settle(s, number);
	*live = slab->live;
	s->free_evacuated += (uint64_t)(c->places - slab->live) * c->stride;
	c->free -= c->places - slab->live;
	c->going += slab->live;
	assert(c->free >= c->reserved);
	return (int64_t)(number * s->slab_bytes);
}

/* Without the slab's free places: is there room for what was promised? */
static bool can_do_without(const struct space *s, const struct space_class *c, uint32_t number)
{
	return c->free - (c->places - s->slab[number].live) >= c->reserved;
}

static bool may_take(const struct slab *slab, bool shunned)
{
	return !slab->lent && (shunned || !slab->shunned);
}

/*
 * The class's emptiest slab that is not empty and whose room is not promised, shunned or not;
 * false: it has none. Where the emptiest has the room that was promised, a fuller one can go.
 */
static bool evacuable(const struct space *s, uint32_t k, bool shunned, uint32_t *number)
{
	const struct space_class *c = &s->klass[k];
	const struct heap *heap = &c->heap[HEAP_EVACUATE];
	uint32_t least = UINT32_MAX;

	if (!heap->count)
		return false;
	*number = heap_slab(HEAP_EVACUATE, heap->key[0]);
	if (!may_take(&s->slab[*number], shunned))
		return false; /* those that are stand behind all others */
	if (can_do_without(s, c, *number))
		return true;
	for (uint32_t i = 1; i < heap->count; i++) {
		uint32_t next = heap_slab(HEAP_EVACUATE, heap->key[i]);
		const struct slab *at = &s->slab[next];

		if (may_take(at, shunned) && at->live < least && can_do_without(s, c, next)) {
			*number = next;
			least = at->live;
		}
	}
	return least != UINT32_MAX;
}

/* Places that pages may move to, but for so many. */
static uint64_t class_room(const struct space_class *c, uint64_t but)
{
	uint64_t taken = c->reserved + but + (uint64_t)c->heap[HEAP_EMPTY].count * c->places;

	return c->free > taken ? c->free - taken : 0;
}

/* Places of a class that look for room and find none, if the slab (NULL = none) is emptied. */
static uint64_t class_lacks(const struct space_class *c, const struct slab *slab)
{
	uint64_t live = c->going + (slab ? slab->live : 0);
	uint64_t room = class_room(c, slab ? c->places - slab->live : 0);

	return live > room ? live - room : 0;
}

uint32_t space_lacks(const struct space *s, uint32_t klass, const uint64_t *slab, uint32_t count)
{
	uint64_t live = 0, room = class_room(&s->klass[klass], 0);

	for (uint32_t i = 0; i < count; i++) {
		const struct slab *at = &s->slab[space_slab_at(s, slab[i])];

		assert(at->state == SLAB_EVACUATED);
		live += at->klass == klass ? at->live : 0;
	}
	return live > room ? (uint32_t)(live - room) : 0;
}

/* With a slab less, has the class room for that one's pages, its promises, and some to come? */
static bool leaves_room(const struct space_class *c)
{
	return c->free >= c->reserved + c->places + c->places / ROOM_SHARE;
}

/*
 * What finds room in other slabs of its class moves; for the rest others leave. These make room
 * in all classes, so the class that lacks most counts: no class is emptied beside the others. A
 * class that is left no room takes a slab again with its next page, and one that is full may
 * have to move for it: the only room of a class, however empty, costs as much beside.
 */
static uint64_t evacuation_cost(const struct space *s, uint32_t k, uint32_t number)
{
	const struct slab *slab = &s->slab[number];
	uint64_t lacks = class_lacks(&s->klass[k], slab), loss = lacks * s->klass[k].weight;

	for (uint32_t i = 0; i < s->classes; i++) {
		uint64_t other = class_lacks(&s->klass[i], NULL) * s->klass[i].weight;

		loss = i != k && other > loss ? other : loss;
	}
	lacks = lacks < slab->live ? lacks : slab->live;
	return loss * LOSS + (slab->live - lacks) * s->klass[k].stride +
	       (leaves_room(&s->klass[k]) ? 0 : s->slab_bytes);
}

static bool cheapest(const struct space *s, uint32_t except, bool shunned, uint32_t *best)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t k = 0; k < s->classes; k++) {
		uint32_t number;
		uint64_t cost;

		if (k == except || !evacuable(s, k, shunned, &number))
			continue;
		cost = evacuation_cost(s, k, number);
		if (cost < least) {
			least = cost;
			*best = number;
		}
	}
	return least != UINT64_MAX;
}

int64_t space_evacuate_begin(struct space *s, uint32_t except, uint32_t *live)
{
	uint32_t best = 0;

	if (!cheapest(s, except, false, &best) && !cheapest(s, except, true, &best))
		return -ENOENT;
	return evacuate(s, best, live);
}

/* Free places of a class in 256ths of its places. */
static uint64_t class_slack(const struct space_class *c)
{
	return c->free * 256 / (c->free + c->live + 1);
}

int64_t space_compact_begin(struct space *s, uint32_t *live)
{
	uint64_t most = 0, least = UINT64_MAX;
	uint32_t best = 0;

	if (space_slabs_left(s) > 0)
		return -ENOENT;
	for (uint32_t k = 0; k < s->classes; k++) {
		const struct space_class *c = &s->klass[k];
		uint64_t slack = class_slack(c);
		uint32_t number;

		if (c->free + c->live == 0 && !c->wanting)
			continue; /* not used so far */
		least = slack < least ? slack : least;
		if (slack <= most || c->heap[HEAP_EMPTY].count || !evacuable(s, k, false, &number))
			continue;
		if (!leaves_room(c)) /* pages of a slab that is compacted move, or stay */
			continue;
		most = slack;
		best = number;
	}
	return most < least + COMPACT_SLACK ? -ENOENT : evacuate(s, best, live);
}

void space_evacuate_end(struct space *s, uint64_t slab)
{
	uint32_t number = space_slab_at(s, slab);
	struct slab *at = &s->slab[number];
	struct space_class *c = &s->klass[at->klass];

	assert(at->state == SLAB_EVACUATED && !at->going);
	at->state = SLAB_TAKEN;
	s->free_evacuated -= (uint64_t)(c->places - at->live) * c->stride;
	c->free += c->places - at->live;
	c->going -= at->live;
	space_settle(s, number);
}

int64_t space_recall(struct space *s)
{
	uint32_t best = s->slabs;

	for (uint32_t n = 0; n < RECALL_LOOKS && n < s->slabs; n++) {
		uint32_t i = s->recall_from++ % s->slabs;

		if (s->slab[i].lent && !s->slab[i].recalled &&
		    (best == s->slabs || s->slab[i].fill < s->slab[best].fill))
			best = i;
	}
	if (best == s->slabs)
		return -ENOENT;
	s->slab[best].recalled = s->looks;
	return (int64_t)(best * s->slab_bytes);
}

void space_shun(struct space *s, uint64_t slab)
{
	uint32_t number = space_slab_at(s, slab);

	assert(s->slab[number].state == SLAB_EVACUATED && s->slab[number].live > 0);
	s->slab[number].shunned = true;
}

bool space_is_evacuated(const struct space *s, uint64_t offset)
{
	uint64_t number = offset / s->slab_bytes;

	return number < s->slabs && s->slab[number].state == SLAB_EVACUATED;
}

uint32_t space_slab_live(const struct space *s, uint64_t slab)
{
	return s->slab[space_slab_at(s, slab)].live;
}

static uint32_t slab_units(const struct space *s)
{
	return (uint32_t)((s->slab_bytes + s->unit_bytes - 1) / s->unit_bytes);
}

/* No place that is handed out reaches into the unit. */
static bool unit_vacant(const struct space *s, uint32_t number, uint32_t unit)
{
	const struct space_class *c = &s->klass[s->slab[number].klass];
	uint64_t begin = unit * s->unit_bytes, end = begin + s->unit_bytes;
	uint64_t last = (end + c->stride - 1) / c->stride;

	last = last < c->places ? last : c->places;
	return begin / c->stride >= last ||
	       bitmap_find_set(space_slab_bits(s, number), last, begin / c->stride) == last;
}

int64_t space_park(struct space *s, uint64_t slab, uint64_t *bytes)
{
	uint32_t number = space_slab_at(s, slab), units = slab_units(s), first = 0, last;
	struct slab *at = &s->slab[number];

	assert(at->state == SLAB_EVACUATED);
	while (first < units && (at->going >> first & 1 || !unit_vacant(s, number, first)))
		first++;
	if (first == units)
		return -ENOENT;
	s->parked += !at->going;
	for (last = first; last < units && !(at->going >> last & 1) && unit_vacant(s, number, last);
	     last++)
		at->going |= 1ull << last;
	*bytes = (last < units ? last * s->unit_bytes : s->slab_bytes) - first * s->unit_bytes;
	return (int64_t)(slab + first * s->unit_bytes);
}

uint64_t space_parked(const struct space *s, uint64_t after)
{
	uint64_t number = after == UINT64_MAX ? 0 : after / s->slab_bytes + 1;

	for (; s->parked && number < s->slabs; number++)
		if (s->slab[number].state == SLAB_EVACUATED && s->slab[number].going)
			return number * s->slab_bytes;
	return UINT64_MAX;
}

void space_park_punched(struct space *s, uint64_t offset, uint64_t bytes)
{
	uint32_t number = (uint32_t)(offset / s->slab_bytes);
	struct slab *at = &s->slab[number];
	uint64_t all = ~0ull >> (UNITS_MAX - slab_units(s));
	uint64_t unit = offset % s->slab_bytes / s->unit_bytes;

	assert(number < s->slabs && at->state == SLAB_EVACUATED);
	for (uint64_t done = 0; done < bytes; done += s->unit_bytes, unit++) {
		assert(at->going >> unit & 1 && !(at->gone >> unit & 1));
		at->gone |= 1ull << unit;
	}
	assert(s->pool->used >= bytes);
	s->pool->used -= bytes;
	s->returned += bytes;
	if (at->gone != all)
		return;
	assert(at->live == 0 && s->parked > 0 && s->taken > 0);
	s->free -= space_class_bytes(s, at->klass);
	s->free_evacuated -= space_class_bytes(s, at->klass);
	s->returned -= s->slab_bytes;
	s->taken--;
	s->parked--;
	at->going = at->gone = 0;
	space_slab_unused(s, number);
}
