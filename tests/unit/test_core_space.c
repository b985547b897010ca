/*
 * Spaces against a model that keeps every place and every slab in plain arrays: random
 * allocations, frees, evacuations and punches of several spaces on one pool, each answer judged and
 * every byte recounted. Then sizes, misuse, and what a space of 32 TiB costs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/space.h"
#include "libtier/base/time.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
#define UNIT 512u
#define STEPS_OF_FULLNESS 61u /* "fuller" is told apart this finely */
#define LOSS 8u /* what a byte lost costs beside one that moves */

enum { UNUSED, TAKEN, EVACUATED, PUNCHED };

struct place {
	uint64_t offset;
	uint32_t klass;
};

struct model_slab {
	uint32_t state, klass, live;
	bool shunned;
};

#define CLASSES_MAX 3u

struct model {
	struct space *space;
	struct pool *pool;
	uint64_t bytes, quota, slab_bytes;
	const uint32_t *stride;
	uint32_t classes, slabs;
	struct model_slab *slab;
	struct place *place;
	uint64_t places;
	uint32_t low[CLASSES_MAX];  /* empty slabs: the fewest since the last look, */
	uint32_t idle[CLASSES_MAX]; /* ... of the look before, those that may go */
	uint8_t *unit; /* a byte for each 512 bytes of the range: handed out? */
};

static struct model *model_new(struct pool *pool, uint64_t bytes, uint64_t quota,
			       const uint32_t *stride, uint32_t classes)
{
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	*m = (struct model){ .pool = pool, .bytes = bytes, .quota = quota, .stride = stride,
			     .classes = classes };
	assert_int_equal(space_open(&m->space, pool, bytes, quota, stride, classes), 0);
	m->slab_bytes = space_slab_bytes(m->space);
	m->slabs = (uint32_t)(bytes / m->slab_bytes);
	m->slab = calloc(m->slabs, sizeof(*m->slab));
	m->place = calloc(bytes / UNIT, sizeof(*m->place));
	m->unit = calloc(bytes / UNIT, 1);
	assert_true(m->slab && m->place && m->unit);
	return m;
}

static void model_free(struct model *m)
{
	space_close(m->space);
	free(m->unit);
	free(m->place);
	free(m->slab);
	free(m);
}

static struct model_slab *slab_of(const struct model *m, uint64_t offset)
{
	assert_in_range(offset / m->slab_bytes, 0, m->slabs - 1);
	return &m->slab[offset / m->slab_bytes];
}

static uint32_t places_of(const struct model *m, uint32_t klass)
{
	return (uint32_t)(m->slab_bytes / m->stride[klass]);
}

/* ---- recounts ------------------------------------------------------------------------------ */

static uint64_t charged(const struct model *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < m->slabs; i++)
		bytes += m->slab[i].state != UNUSED ? m->slab_bytes : 0;
	return bytes;
}

static bool can_take(const struct model *m)
{
	return charged(m) + m->slab_bytes <= m->quota &&
	       charged(m) + m->slab_bytes <= m->slabs * m->slab_bytes &&
	       m->pool->used + m->slab_bytes <= m->pool->capacity;
}

static bool is_spare(const struct model_slab *s)
{
	return s->state == TAKEN && s->live == 0;
}

static uint32_t spares(const struct model *m, uint32_t klass)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->slabs; i++)
		n += is_spare(&m->slab[i]) && m->slab[i].klass == klass;
	return n;
}

static uint32_t spares_most(const struct model *m)
{
	uint32_t most = 0;

	for (uint32_t k = 0; k < m->classes; k++)
		most = spares(m, k) > most ? spares(m, k) : most;
	return most;
}

static void note_low(struct model *m)
{
	for (uint32_t k = 0; k < m->classes; k++)
		m->low[k] = spares(m, k) < m->low[k] ? spares(m, k) : m->low[k];
}

/* May an empty slab of the class go though nobody asks for one? */
static bool is_idle(const struct model *m, uint32_t klass)
{
	return m->idle[klass] && m->low[klass] > 1 && spares(m, klass) > 1;
}

/* Of a slab, whichever class it will serve. */
static uint64_t least_room(const struct model *m)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t k = 0; k < m->classes; k++) {
		uint64_t all = (uint64_t)places_of(m, k) * m->stride[k];

		least = all < least ? all : least;
	}
	return least;
}

static void compare(const struct model *m)
{
	uint64_t live = 0, room = 0, usable = 0, punching = 0;
	struct space_stats stats;

	for (uint32_t i = 0; i < m->slabs; i++) {
		const struct model_slab *s = &m->slab[i];
		uint64_t all = (uint64_t)places_of(m, s->klass) * m->stride[s->klass];
		uint64_t used = (uint64_t)s->live * m->stride[s->klass];

		live += used;
		if (s->state == TAKEN || s->state == EVACUATED)
			room += all - used;
		if (s->state == TAKEN)
			usable += all - used;
		if (s->state == PUNCHED)
			punching += least_room(m);
		/* What is unused, and that only, may be punched by others. */
		assert_int_equal(space_hole(m->space, i * m->slab_bytes) ==
					 i * m->slab_bytes, s->state == UNUSED);
	}
	space_stats(m->space, &stats);
	assert_int_equal(stats.charged, charged(m));
	assert_int_equal(stats.live, live);
	assert_int_equal(stats.free, room);
	assert_true(stats.available >= usable);
	assert_int_equal(stats.available > usable, can_take(m));
	assert_int_equal(stats.punching, punching);
	assert_true(stats.charged <= m->quota && m->pool->used <= m->pool->capacity);
}

static void compare_places(const struct model *m, struct rng *rng)
{
	for (uint64_t i = 0; i < m->places; i++)
		assert_true(space_is_live(m->space, m->place[i].offset));
	for (uint32_t i = 0; i < 1000; i++) {
		uint64_t offset = rng_below(rng, m->bytes / UNIT) * UNIT;

		/* Live means: a place begins here. */
		if (space_is_live(m->space, offset))
			assert_int_equal(m->unit[offset / UNIT], 2);
		assert_false(space_is_live(m->space, offset + 1));
	}
}

/* ---- steps --------------------------------------------------------------------------------- */

/* The allocator's choice: none of the class was fuller by a step, and of equals the lowest. */
static void judge_choice(const struct model *m, const struct model_slab *chosen)
{
	uint32_t all = places_of(m, chosen->klass), step = all / STEPS_OF_FULLNESS + 2;

	for (uint32_t i = 0; i < m->slabs; i++) {
		const struct model_slab *s = &m->slab[i];

		if (s == chosen || s->state != TAKEN || s->klass != chosen->klass ||
		    s->live == all)
			continue;
		assert_true(s->live < chosen->live + step);
		assert_false(s->live == chosen->live && s < chosen);
	}
}

static void judge_refusal(const struct model *m, uint32_t klass)
{
	assert_false(can_take(m));
	assert_int_equal(spares_most(m), 0);
	for (uint32_t i = 0; i < m->slabs; i++)
		assert_false(m->slab[i].state == TAKEN && m->slab[i].klass == klass &&
			     m->slab[i].live < places_of(m, klass));
}

static void take_fresh(struct model *m, uint64_t fresh, uint32_t klass)
{
	struct model_slab *s = slab_of(m, fresh);

	assert_int_equal(fresh % m->slab_bytes, 0);
	assert_int_equal(s->state, UNUSED);
	for (uint32_t i = 0; &m->slab[i] < s; i++)
		assert_int_not_equal(m->slab[i].state, UNUSED);
	*s = (struct model_slab){ .state = TAKEN, .klass = klass };
}

static bool step_alloc(struct model *m, uint32_t klass)
{
	uint64_t fresh = 0, stride = m->stride[klass], offset;
	int64_t rc = space_alloc(m->space, klass, &fresh);
	struct model_slab *s;

	if (rc == -ENOSPC) {
		assert_int_equal(fresh, UINT64_MAX);
		judge_refusal(m, klass);
		return false;
	}
	offset = (uint64_t)rc;
	s = slab_of(m, offset);
	if (fresh != UINT64_MAX) {
		assert_ptr_equal(slab_of(m, fresh), s);
		take_fresh(m, fresh, klass);
	} else if (s->klass != klass) {
		assert_true(is_spare(s));
		s->klass = klass;
	}
	assert_int_equal(s->state, TAKEN);
	assert_int_equal(offset % m->slab_bytes % stride, 0);
	assert_true(offset % m->slab_bytes + stride <= m->slab_bytes);
	judge_choice(m, s);
	for (uint64_t i = 0; i < stride / UNIT; i++) {
		assert_int_equal(m->unit[offset / UNIT + i], 0);
		m->unit[offset / UNIT + i] = i ? 1 : 2;
	}
	s->live++;
	m->place[m->places++] = (struct place){ offset, klass };
	note_low(m);
	return true;
}

static void step_free(struct model *m, uint64_t i)
{
	struct place place = m->place[i];

	assert_true(space_is_live(m->space, place.offset));
	space_free(m->space, place.offset);
	assert_false(space_is_live(m->space, place.offset));
	slab_of(m, place.offset)->live--;
	slab_of(m, place.offset)->shunned = false;
	memset(&m->unit[place.offset / UNIT], 0, m->stride[place.klass] / UNIT);
	m->place[i] = m->place[--m->places];
}

static void step_punch(struct model *m, bool all)
{
	int64_t rc = space_surplus(m->space, all);
	struct model_slab *s;

	if (rc == -ENOENT) {
		for (uint32_t k = 0; k < m->classes; k++)
			assert_false(all ? spares(m, k) > 0 : is_idle(m, k));
		return;
	}
	s = slab_of(m, (uint64_t)rc);
	assert_true(is_spare(s));
	assert_true(all || is_idle(m, s->klass));
	m->idle[s->klass] -= m->idle[s->klass] > 0;
	s->state = PUNCHED;
	note_low(m);
	compare(m);
	space_punched(m->space, (uint64_t)rc);
	*s = (struct model_slab){ .state = UNUSED };
}

static void step_look(struct model *m)
{
	space_look(m->space);
	for (uint32_t k = 0; k < m->classes; k++) {
		m->idle[k] = m->low[k] > 1 ? m->low[k] - 1 : 0;
		m->low[k] = spares(m, k);
	}
}

/* One ahead of need: when the class has none, nobody has two, and pool and quota have plenty. */
static void step_ahead(struct model *m, uint32_t klass)
{
	uint64_t free = m->pool->capacity - m->pool->used;
	uint64_t quota = m->quota < m->bytes ? m->quota : m->bytes, used = charged(m);
	uint64_t limit = quota / m->slab_bytes, left = limit - used / m->slab_bytes;
	bool due = !spares(m, klass) && spares_most(m) < 2 &&
		   free >= m->pool->capacity / 8 + m->slab_bytes && left > limit / 8;
	uint64_t fresh = space_ahead(m->space, klass);

	assert_int_equal(fresh != UINT64_MAX, due);
	if (due)
		take_fresh(m, fresh, klass);
	compare(m);
}

/*
 * What other slabs of the class that are in use have no room for is lost; the rest moves. A
 * class that is left no room, a sixteenth of a slab, costs as much as a slab holds beside.
 */
static uint64_t evacuation_cost(const struct model *m, const struct model_slab *s)
{
	uint64_t room = 0, left = 0, places = places_of(m, s->klass), moves;

	for (uint32_t i = 0; i < m->slabs; i++) {
		const struct model_slab *o = &m->slab[i];

		if (o->state != TAKEN || o->klass != s->klass)
			continue;
		left += places - o->live;
		room += o != s && o->live ? places - o->live : 0;
	}
	moves = room < s->live ? room : s->live;
	return (moves + (s->live - moves) * LOSS) * m->stride[s->klass] +
	       (left < places + places / 16 ? m->slab_bytes : 0);
}

/* No other slab costs less by more than a step. */
static void judge_evacuation(const struct model *m, const struct model_slab *chosen,
			     uint32_t except)
{
	uint64_t cost = evacuation_cost(m, chosen);

	assert_int_equal(chosen->state, TAKEN);
	assert_int_not_equal(chosen->klass, except);
	assert_in_range(chosen->live, 1, places_of(m, chosen->klass));
	for (uint32_t i = 0; i < m->slabs; i++) {
		const struct model_slab *s = &m->slab[i];

		if (s->state != TAKEN || s->klass == except || s->live == 0)
			continue;
		assert_true(!chosen->shunned || s->shunned); /* these come last */
		if (s->shunned == chosen->shunned)
			assert_true(evacuation_cost(m, s) + m->slab_bytes / STEPS_OF_FULLNESS +
					    1 >= cost);
	}
}

/* Move what lives in a slab elsewhere, as far as there is room. */
static void step_evacuate(struct model *m, uint32_t except)
{
	uint32_t live = 0;
	int64_t rc = space_evacuate_begin(m->space, except, &live);
	struct model_slab *s;

	if (rc == -ENOENT) {
		for (uint32_t i = 0; i < m->slabs; i++) {
			s = &m->slab[i];
			assert_true(s->state != TAKEN || s->klass == except || s->live == 0);
		}
		return;
	}
	s = slab_of(m, (uint64_t)rc);
	judge_evacuation(m, s, except);
	assert_int_equal(live, s->live);
	s->state = EVACUATED;
	compare(m);
	for (uint64_t i = m->places; i-- > 0 && s->live > 0;) {
		if (slab_of(m, m->place[i].offset) != s)
			continue;
		if (!step_alloc(m, m->place[i].klass)) /* never in s: it is not TAKEN */
			break;
		step_free(m, i);
	}
	s->shunned = s->live > 0;
	if (s->shunned)
		space_shun(m->space, (uint64_t)rc);
	space_evacuate_end(m->space, (uint64_t)rc);
	s->state = TAKEN;
}

/* push: of 16 random steps, how many allocate. */
static void random_step(struct model *m, struct rng *rng, uint32_t push)
{
	uint32_t klass = (uint32_t)rng_below(rng, m->classes);
	uint64_t what = rng_below(rng, 16);

	if (what < push)
		step_alloc(m, klass);
	else if (m->places > 0)
		step_free(m, rng_below(rng, m->places));
	if (rng_below(rng, 50) == 0)
		step_punch(m, rng_below(rng, 2));
	if (rng_below(rng, 50) == 0)
		step_look(m);
	if (rng_below(rng, 20) == 0)
		step_ahead(m, klass);
	if (rng_below(rng, 400) == 0)
		step_evacuate(m, (uint32_t)rng_below(rng, m->classes + 1));
}

/* ---- tests --------------------------------------------------------------------------------- */

static const uint32_t one[] = { 65536 };
static const uint32_t three[] = { 65536, 12288, 131072 + 512 };
static const uint32_t large[] = { 1u << 20, 4096 * 77 };

static void run(uint64_t seed, const uint32_t *stride, uint32_t classes)
{
	struct pool pool = { .capacity = 40 * MIB, .slab_bytes = 2 * MIB };
	struct model *m[2] = { model_new(&pool, 32 * MIB, 24 * MIB, stride, classes),
			       model_new(&pool, 64 * MIB, 64 * MIB, one, COUNT(one)) };
	struct rng rng = { seed };
	struct space_stats stats;

	for (uint32_t round = 0; round < 12; round++) {
		uint32_t push = (uint32_t)rng_below(&rng, 15) + 1;

		for (uint32_t i = 0; i < 4000; i++) {
			struct model *at = m[rng_below(&rng, 2)];

			random_step(at, &rng, push);
			if (i % 8 == 0)
				compare(at);
			assert_int_equal(pool.used, charged(m[0]) + charged(m[1]));
		}
		compare_places(m[0], &rng);
		compare_places(m[1], &rng);
	}
	while (m[0]->places)
		step_free(m[0], m[0]->places - 1);
	while (spares_most(m[0]))
		step_punch(m[0], true);
	compare(m[0]);
	space_stats(m[0]->space, &stats);
	assert_int_equal(stats.charged + stats.live + stats.free, 0);
	model_free(m[0]);
	assert_int_equal(pool.used, charged(m[1]));
	model_free(m[1]);
	assert_int_equal(pool.used, 0);
}

static void test_random_against_model(void **state)
{
	(void)state;
	run(1, one, COUNT(one));
	run(2, three, COUNT(three));
	run(3, large, COUNT(large));
	run(4, three, COUNT(three));
}

/* Churn at half load: fuller slabs are filled up, so that others run empty. */
static void test_slabs_empty_themselves(void **state)
{
	struct pool pool = { .capacity = 128 * MIB, .slab_bytes = 2 * MIB };
	struct model *m = model_new(&pool, 128 * MIB, 128 * MIB, one, COUNT(one));
	struct rng rng = { 9 };
	uint64_t all;

	(void)state;
	while (step_alloc(m, 0))
		continue;
	all = m->places;
	assert_int_equal(all, 128 * MIB / 65536);
	while (m->places > all / 2)
		step_free(m, rng_below(&rng, m->places));
	for (uint64_t i = 0; i < 20 * all; i++) {
		step_free(m, rng_below(&rng, m->places));
		assert_true(step_alloc(m, 0));
		while (spares_most(m) > 1)
			step_punch(m, true);
	}
	printf("# half of 128 MiB live, after churn: %.0f MiB charged\n",
	       (double)charged(m) / (double)MIB);
	assert_true(charged(m) < 96 * MIB);
	while (charged(m) > 66 * MIB) {
		step_evacuate(m, 1);
		step_punch(m, true);
	}
	assert_int_equal(m->places, all / 2);
	model_free(m);
}

static void test_limits(void **state)
{
	struct pool pool = { .capacity = 16 * MIB, .slab_bytes = 2 * MIB };
	struct model *small = model_new(&pool, 16 * MIB, 6 * MIB, one, 1);
	struct model *rest = model_new(&pool, 16 * MIB, UINT64_MAX, one, 1);
	struct space_stats stats;

	(void)state;
	space_stats(small->space, &stats);
	assert_int_equal(stats.available, 6 * MIB);
	while (step_alloc(small, 0))
		continue;
	assert_int_equal(charged(small), 6 * MIB);
	while (step_alloc(rest, 0))
		continue;
	assert_int_equal(charged(rest), 10 * MIB);
	assert_int_equal(pool.used, pool.capacity);
	space_stats(rest->space, &stats);
	assert_int_equal(stats.available, 0);
	/* An empty slab stays charged until it was not needed from one look to the next. */
	while (small->places)
		step_free(small, 0);
	step_look(small);
	step_punch(small, false);
	assert_int_equal(pool.used, pool.capacity);
	assert_false(step_alloc(rest, 0));
	step_look(small);
	step_punch(small, false);
	assert_true(step_alloc(rest, 0));
	model_free(small);
	model_free(rest);
	assert_int_equal(pool.used, 0);
}

/* A class that runs out takes an empty slab of another before it refuses. */
static void test_spares_serve_any_class(void **state)
{
	static const uint32_t stride[] = { 65536, 4096 };
	struct pool pool = { .capacity = 4 * MIB, .slab_bytes = 2 * MIB };
	struct model *m = model_new(&pool, 4 * MIB, 4 * MIB, stride, COUNT(stride));
	uint64_t fresh;

	(void)state;
	while (step_alloc(m, 0))
		continue;
	assert_false(step_alloc(m, 1));
	while (m->places > 32)
		step_free(m, m->places - 1);
	assert_int_equal(spares(m, 0), 1);
	assert_true(step_alloc(m, 1)); /* the model says that nothing fresh was taken */
	assert_int_equal(spares(m, 0), 0);
	assert_int_equal(space_alloc(m->space, 0, &fresh), -ENOSPC);
	compare(m);
	model_free(m);
}

/* Whatever the pages: several to a slab, and at most 1/8 of it wasted. */
static void test_slab_sizes(void **state)
{
	struct rng rng = { 3 };

	(void)state;
	for (uint32_t i = 0; i < 2000; i++) {
		struct pool pool = { .capacity = 1ull << 40,
				     .slab_bytes = 2 * MIB << rng_below(&rng, 6) };
		uint32_t stride[3], classes = 1 + (uint32_t)rng_below(&rng, 3);
		struct space *s = NULL;
		uint64_t size;

		for (uint32_t k = 0; k < classes; k++)
			stride[k] = (uint32_t)(1 + rng_below(&rng, 1u << rng_below(&rng, 16))) *
				    UNIT;
		if ((classes > 1 && stride[0] == stride[1]) ||
		    (classes > 2 && (stride[2] == stride[0] || stride[2] == stride[1])))
			continue;
		assert_int_equal(space_open(&s, &pool, 1ull << 34, 1ull << 34, stride, classes),
				 0);
		size = space_slab_bytes(s);
		assert_int_equal(size % (2 * MIB), 0);
		assert_true(size >= pool.slab_bytes);
		for (uint32_t k = 0; k < classes; k++)
			assert_true(size >= 4ull * stride[k] && size % stride[k] <= size / 8);
		space_close(s);
	}
}

/* What one space handed out another one gives again, place by place, and charges the same. */
static void test_claims(void **state)
{
	static const uint32_t stride[2] = { 4096, 12288 };
	struct pool from = { .capacity = 64 * MIB, .slab_bytes = 2 * MIB }, to = from;
	struct space *a, *b;
	uint64_t fresh, at[2][700];

	(void)state;
	assert_int_equal(space_open(&a, &from, 64 * MIB, 64 * MIB, stride, 2), 0);
	assert_int_equal(space_open(&b, &to, 64 * MIB, 64 * MIB, stride, 2), 0);
	for (uint32_t i = 0; i < 1400; i++)
		at[i % 2][i / 2] = (uint64_t)space_alloc(a, i % 2, &fresh);
	for (uint32_t i = 0; i < 1400; i++) {
		uint32_t n = (i * 37) % 1400;

		assert_int_equal(space_claim(b, n % 2, at[n % 2][n / 2]), 0);
		assert_int_equal(space_claim(b, n % 2, at[n % 2][n / 2]), -EEXIST);
	}
	assert_true(from.used == to.used && from.live == to.live);
	assert_int_equal(space_claim(b, 0, at[1][0]), -EEXIST); /* a slab of the other class */
	assert_int_equal(space_claim(b, 1, at[1][0] + 4096), -EINVAL);
	assert_int_equal(space_claim(b, 0, 64 * MIB), -EINVAL);
	to.lost = to.capacity;
	assert_int_equal(space_claim(b, 0, 62 * MIB), -ENOSPC);
	for (uint32_t i = 0; i < 1400; i++)
		space_free(b, at[i % 2][i / 2]);
	assert_int_equal(to.live, 0);
	space_close(a);
	space_close(b);
}

static void test_refuses_nonsense(void **state)
{
	static const uint32_t zero[] = { 0 }, odd[] = { 700 }, twice[] = { 4096, 512, 4096 };
	static const uint32_t huge[] = { 16u << 20 }, over[] = { (16u << 20) + 512 };
	struct pool pool = { .capacity = 1ull << 40, .slab_bytes = 2 * MIB };
	struct space *s = NULL;

	(void)state;
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, zero, 1), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, odd, 1), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, over, 1), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, twice, 3), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, one, 0), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, one, 17), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 63 * MIB, 64 * MIB, one, 1), -EINVAL);
	assert_int_equal(space_open(&s, &pool, (1ull << 45) + 2 * MIB, 64 * MIB, one, 1),
			 -EINVAL);
	/* Not one slab. */
	assert_int_equal(space_open(&s, &pool, 64 * MIB, MIB, one, 1), -EINVAL);
	assert_int_equal(space_open(&s, &pool, 32 * MIB, 64 * MIB, huge, 1), -EINVAL);
	assert_null(s);
	assert_int_equal(space_open(&s, &pool, 64 * MIB, 64 * MIB, huge, 1), 0);
	space_close(s);
	space_close(NULL);
}

/* ---- misuse -------------------------------------------------------------------------------- */

struct misuse {
	struct space *space;
	uint64_t offset;
};

static void misuse_free(void *arg)
{
	struct misuse *m = arg;

	space_free(m->space, m->offset);
}

static void misuse_punched(void *arg)
{
	struct misuse *m = arg;

	space_punched(m->space, m->offset);
}

static void misuse_end(void *arg)
{
	struct misuse *m = arg;

	space_evacuate_end(m->space, m->offset);
}

static void misuse_alloc(void *arg)
{
	struct misuse *m = arg;
	uint64_t fresh;

	space_alloc(m->space, 1, &fresh);
}

static void test_asserts(void **state)
{
	static const uint64_t wrong[] = { 1, 512, 65536, 2 * MIB, 64 * MIB, 1ull << 60 };
	struct pool pool = { .capacity = 64 * MIB, .slab_bytes = 2 * MIB };
	struct misuse m = { .offset = 0 };
	uint64_t fresh;

	(void)state;
	assert_int_equal(space_open(&m.space, &pool, 64 * MIB, 64 * MIB, one, 1), 0);
	assert_int_equal(space_alloc(m.space, 0, &fresh), 0);
	assert_int_equal(fresh, 0);
	assert_true(aborts(misuse_alloc, &m));
	assert_true(aborts(misuse_punched, &m));
	assert_true(aborts(misuse_end, &m));
	assert_false(aborts(misuse_free, &m));
	for (uint32_t i = 0; i < COUNT(wrong); i++) {
		m.offset = wrong[i];
		assert_true(aborts(misuse_free, &m));
		assert_true(aborts(misuse_punched, &m));
		assert_true(aborts(misuse_end, &m));
	}
	m.offset = 0;
	space_free(m.space, 0);
	assert_true(aborts(misuse_free, &m));
	assert_int_equal(space_surplus(m.space, true), 0);
	assert_true(aborts(misuse_free, &m));
	assert_false(aborts(misuse_punched, &m));
	space_close(m.space);
}

/* ---- figures ------------------------------------------------------------------------------- */

static long resident_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, resident;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
	fclose(f);
	return resident;
}

static void test_largest_opens_cheaply(void **state)
{
	static const uint32_t page[] = { 4096 };
	struct pool pool = { .capacity = 1ull << 45, .slab_bytes = 64 * MIB };
	long before = resident_pages();
	uint64_t begin = time_now_ns(), opened, fresh; /* told, not judged: resident pages are */
	struct space *s;

	(void)state;
	assert_int_equal(space_open(&s, &pool, 1ull << 45, 1ull << 45, page, 1), 0);
	opened = time_now_ns();
	assert_int_equal(space_slab_bytes(s), 64 * MIB);
	for (uint64_t i = 0; i < 100 * 16384; i++)
		assert_int_equal(space_alloc(s, 0, &fresh), i * 4096);
	printf("# 32 TiB in 4 KiB pages: opened in %llu us; %ld KiB resident with 6.25 GiB of it "
	       "in use\n",
	       (unsigned long long)((opened - begin) / NS_PER_US),
	       (resident_pages() - before) * 4);
	assert_true(resident_pages() - before < 8192);
	space_close(s);
}

/* 10^6 pages of 64 KiB, 95 % full: one leaves, one comes. */
static void test_figures(void **state)
{
	static const uint32_t page[] = { 65536 };
	const uint64_t count = 1000000, bytes = 62500 * MIB / (64 * MIB) * (64 * MIB);
	struct pool pool = { .capacity = bytes, .slab_bytes = 64 * MIB };
	uint64_t *offset = malloc(count * sizeof(*offset)), n = 0, begin, fresh;
	struct rng rng = { 5 };
	struct space *s;

	(void)state;
	assert_non_null(offset);
	assert_int_equal(space_open(&s, &pool, bytes, bytes, page, 1), 0);
	begin = time_now_ns();
	while (n < bytes / 65536 * 95 / 100)
		offset[n++] = (uint64_t)space_alloc(s, 0, &fresh);
	printf("# space: %.0f ns an allocation while it fills", (double)(time_now_ns() - begin) /
								       (double)n);
	begin = time_now_ns();
	for (uint64_t i = 0; i < count; i++) {
		uint64_t *at = &offset[rng_below(&rng, n)];

		space_free(s, *at);
		*at = (uint64_t)space_alloc(s, 0, &fresh);
	}
	printf(", %.0f ns a random free and an allocation at 95 %%\n",
	       (double)(time_now_ns() - begin) / (double)count);
	space_close(s);
	free(offset);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_against_model),
		cmocka_unit_test(test_slabs_empty_themselves),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_spares_serve_any_class),
		cmocka_unit_test(test_slab_sizes),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_refuses_nonsense),
		cmocka_unit_test(test_asserts),
		cmocka_unit_test(test_largest_opens_cheaply),
		cmocka_unit_test(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
