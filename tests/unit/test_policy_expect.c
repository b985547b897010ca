/*
 * What policies are told ahead: a hint changes nothing of their state, and names a block that is
 * there; where the order is plain, the one that is next when the block has left.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/policy_ops.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/policy_key.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 60u
#define STEPS 1000u

struct cache {
	const struct policy_ops *ops;
	void *policy, *before;
	size_t bytes;
	bool there[BLOCKS];
	struct rng rng;
};

static struct cache *cache_new(const struct policy_ops *ops, const struct policy_size *size)
{
	struct cache *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->ops = ops;
	c->bytes = ops->state_bytes(size);
	c->policy = calloc(1, c->bytes);
	c->before = calloc(1, c->bytes);
	assert_true(c->policy && c->before);
	ops->init(c->policy, size);
	c->rng = (struct rng){ size->resident };
	return c;
}

static void cache_free(struct cache *c)
{
	free(c->policy);
	free(c->before);
	free(c);
}

static void insert(struct cache *c, uint32_t slot, uint32_t parent)
{
	uint8_t key[ABI_KEY_BYTES];
	const struct policy_hint hint = {
		.parent = parent,
		.key = key,
		.joined = parent != ABI_SLOT_NONE,
		.brought = 8,
	};

	key_bytes(key, slot);
	c->ops->insert(c->policy, slot, &hint);
	c->there[slot] = true;
}

static void take_out(struct cache *c, uint32_t slot)
{
	uint8_t key[ABI_KEY_BYTES];

	key_bytes(key, slot);
	c->ops->remove(c->policy, slot, key);
	c->there[slot] = false;
}

/* The answer to a hint, of which the state must not show anything. */
static uint32_t expect(struct cache *c, uint32_t slot, bool with_key)
{
	uint8_t key[ABI_KEY_BYTES];
	uint32_t next;

	key_bytes(key, slot);
	memcpy(c->before, c->policy, c->bytes);
	next = c->ops->expect(c->policy, slot, with_key ? key : NULL);
	assert_memory_equal(c->before, c->policy, c->bytes);
	if (next != ABI_SLOT_NONE) {
		assert_in_range(next, 0, BLOCKS - 1);
		assert_true(c->there[next] && next != slot);
	}
	return next;
}

static void random_life(struct cache *c)
{
	for (uint32_t i = 0; i < STEPS; i++) {
		uint32_t slot = (uint32_t)rng_below(&c->rng, BLOCKS);
		uint32_t parent = (uint32_t)rng_below(&c->rng, BLOCKS);

		assert_int_equal(expect(c, ABI_SLOT_NONE, i % 2), ABI_SLOT_NONE);
		if (!c->there[slot]) {
			insert(c, slot, c->there[parent] ? parent : ABI_SLOT_NONE);
			continue;
		}
		expect(c, slot, i % 2);
		if (rng_below(&c->rng, 2))
			take_out(c, slot);
		else
			c->ops->touch(c->policy, slot, 1, i);
	}
	cache_free(c);
}

static void test_a_hint_changes_nothing(void **state)
{
	const struct policy_size dense = { BLOCKS, BLOCKS, BLOCKS, false };
	const struct policy_size few = { BLOCKS, BLOCKS / 4, BLOCKS, false };
	const struct policy_ops *ops;

	(void)state;
	for (uint32_t p = 0; (ops = policy_at(p)) != NULL; p++) {
		random_life(cache_new(ops, &dense));
		random_life(cache_new(ops, &few));
	}
}

/* Blocks of one prompt, in the order in which they would leave: each names the next. */
static void in_order(const char *policy, uint32_t first, int step)
{
	const struct policy_size size = { BLOCKS, BLOCKS, BLOCKS, false };
	struct cache *c = cache_new(policy_find(policy), &size);

	for (uint32_t slot = 0; slot < 10; slot++)
		insert(c, slot, slot ? slot - 1 : ABI_SLOT_NONE);
	for (uint32_t n = 0; n < 9; n++, first += (uint32_t)step) {
		assert_int_equal(c->ops->victim(c->policy, ABI_SLOT_NONE), first);
		assert_int_equal(expect(c, first, true), first + (uint32_t)step);
		take_out(c, first);
	}
	assert_int_equal(expect(c, first, true), ABI_SLOT_NONE);
	cache_free(c);
}

static void test_the_next_in_line_is_named(void **state)
{
	(void)state;
	in_order("lru", 0, 1);
	in_order("lru", 0, 1);
	in_order("reuse", 9, -1); /* ends of prefixes first */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_hint_changes_nothing),
		cmocka_unit_test(test_the_next_in_line_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
