/*
 * The policies that replay compares: s3fifo and arc against references that keep plain arrays;
 * every one in walks as the core does them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/policy/policy.h"
#include "tests/unit/policy_cache.h"

/* ---- references ---------------------------------------------------------------------------- */

/* Ordered lists of keys, oldest first. */
struct list {
	uint32_t key[STEPS];
	uint32_t count;
};

static uint32_t list_find(const struct list *l, uint32_t key)
{
	for (uint32_t i = l->count; i-- > 0;)
		if (l->key[i] == key)
			return i;
	return UINT32_MAX;
}

static void list_take(struct list *l, uint32_t key)
{
	uint32_t i = list_find(l, key);

	assert_int_not_equal(i, UINT32_MAX);
	l->count--;
	memmove(&l->key[i], &l->key[i + 1], (l->count - i) * sizeof(l->key[0]));
}

static void list_add(struct list *l, uint32_t key)
{
	l->key[l->count++] = key;
}

/* Was the key among the last `most` that were added to this list? Then it is struck. */
static bool list_strike(struct list *l, uint32_t key, uint32_t most)
{
	uint32_t i = list_find(l, key);
	bool recent = i != UINT32_MAX && l->count - i <= most;

	if (recent)
		l->key[i] = UINT32_MAX;
	return recent;
}

struct reference {
	struct list queue[2], ghost[2];
	uint32_t touches[KEYS];
	uint32_t target;
};

static uint32_t queue_of(const struct reference *r, uint32_t key)
{
	return list_find(&r->queue[0], key) != UINT32_MAX ? 0 : 1;
}

static void s3_insert(struct reference *r, uint32_t key)
{
	uint32_t i = list_find(&r->ghost[0], key);
	bool back = list_strike(&r->ghost[0], key, r->queue[1].count);

	if (!back && i != UINT32_MAX)
		r->ghost[0].key[i] = UINT32_MAX;
	r->touches[key] = 0;
	list_add(&r->queue[back], key);
}

static void s3_touch(struct reference *r, uint32_t key)
{
	if (r->touches[key] < 3)
		r->touches[key]++;
}

static uint32_t s3_victim(struct reference *r)
{
	for (;;) {
		uint32_t all = r->queue[0].count + r->queue[1].count;
		uint32_t q = r->queue[0].count * 10 > all || !r->queue[1].count ? 0 : 1;
		uint32_t key = r->queue[q].key[0];

		if (r->touches[key] < (q ? 1 : 2))
			return key;
		list_take(&r->queue[q], key);
		r->touches[key] = q ? r->touches[key] - 1 : 0;
		list_add(&r->queue[1], key);
	}
}

static void s3_remove(struct reference *r, uint32_t key)
{
	uint32_t q = queue_of(r, key);

	list_take(&r->queue[q], key);
	if (q == 0)
		list_add(&r->ghost[0], key);
}

static void arc_insert(struct reference *r, uint32_t key)
{
	uint32_t one = r->queue[0].count, two = r->queue[1].count, to = 0;

	if (list_strike(&r->ghost[0], key, two)) {
		uint32_t step = one && two > one ? two / one : two > 1 && !one ? two : 1;

		r->target = r->target + step < one + two ? r->target + step : one + two;
		to = 1;
	} else if (list_strike(&r->ghost[1], key, one + two)) {
		uint32_t step = two && one > two ? one / two : one > 1 && !two ? one : 1;

		r->target = r->target > step ? r->target - step : 0;
		to = 1;
	}
	list_add(&r->queue[to], key);
}

static void arc_touch(struct reference *r, uint32_t key)
{
	list_take(&r->queue[queue_of(r, key)], key);
	list_add(&r->queue[1], key);
}

static uint32_t arc_victim(struct reference *r)
{
	bool once = r->queue[0].count && (r->queue[0].count > r->target || !r->queue[1].count);

	return r->queue[!once].key[0];
}

static void arc_remove(struct reference *r, uint32_t key)
{
	uint32_t q = queue_of(r, key);

	list_take(&r->queue[q], key);
	list_add(&r->ghost[q], key);
}

struct reference_ops {
	const char *name;
	void (*insert)(struct reference *r, uint32_t key);
	void (*touch)(struct reference *r, uint32_t key);
	uint32_t (*victim)(struct reference *r);
	void (*remove)(struct reference *r, uint32_t key);
};

static void compare(const struct reference_ops *ref, uint64_t seed)
{
	struct reference *r = calloc(1, sizeof(*r));
	struct policy_ops ops;
	struct cache *c;

	assert_true(bench_policy_find(ref->name, &ops));
	c = cache_new(&ops, seed);
	for (uint32_t i = 0; i < STEPS; i++) {
		uint64_t low = rng_below(&c->rng, KEYS); /* low keys more often */
		uint32_t key = (uint32_t)(low * rng_below(&c->rng, KEYS) / KEYS);

		if (c->slot_of[key] != ABI_SLOT_NONE) {
			c->ops.touch(c->policy, c->slot_of[key], 1, 0);
			ref->touch(r, key);
			continue;
		}
		if (c->count == BLOCKS) {
			uint32_t slot = c->ops.victim(c->policy, ABI_SLOT_NONE);

			assert_int_equal(c->key_of[slot], ref->victim(r));
			ref->remove(r, c->key_of[slot]);
			cache_remove(c, slot);
		}
		cache_insert(c, key);
		ref->insert(r, key);
	}
	free(r);
	cache_free(c);
}

static void test_s3fifo_agrees_with_reference(void **state)
{
	static const struct reference_ops ref = { "s3fifo", s3_insert, s3_touch, s3_victim,
						  s3_remove };

	(void)state;
	compare(&ref, 1);
	compare(&ref, 2);
}

static void test_arc_agrees_with_reference(void **state)
{
	static const struct reference_ops ref = { "arc", arc_insert, arc_touch, arc_victim,
						  arc_remove };

	(void)state;
	compare(&ref, 3);
	compare(&ref, 4);
}

/* ---- walks --------------------------------------------------------------------------------- */

static void test_all_walks(void **state)
{
	const struct policy_size size = { BLOCKS, BLOCKS, BLOCKS, false };
	const struct policy_size few = { KEYS, BLOCKS / 2, BLOCKS, false };
	const struct policy_size sparse = { BLOCKS, BLOCKS, BLOCKS, true };
	struct policy_ops ops;

	(void)state;
	for (uint32_t p = 0; bench_policy_at(p, &ops); p++) {
		random_life(cache_sized(&ops, 10 + p, &size), walk_all);
		random_life(cache_sized(&ops, 50 + p, &few), walk_all);
		random_life(cache_sized(&ops, 70 + p, &sparse), walk_all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_s3fifo_agrees_with_reference),
		cmocka_unit_test(test_arc_agrees_with_reference),
		cmocka_unit_test(test_all_walks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
