/*
 * What the default policy keeps for slots that are not in its tier, or not of its lane: few bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/policy_key.h"
#include "tierd/core/unit/policy_ops.h"

#define SLOTS 1000000u
#define FEW (SLOTS / 10)

struct cache {
	const struct policy_ops *ops;
	void *policy;
	size_t empty;
};

static void cache_make(struct cache *c, const struct policy_size *size)
{
	c->ops = policy_find("reuse");
	c->policy = calloc(1, c->ops->state_bytes(size));
	assert_non_null(c->policy);
	c->ops->init(c->policy, size);
	c->empty = c->ops->state_used(c->policy, 0);
}

static void insert(struct cache *c, uint32_t slot)
{
	uint8_t key[ABI_KEY_BYTES];
	const struct policy_hint hint = { .parent = ABI_SLOT_NONE, .key = key, .brought = 1 };

	key_bytes(key, slot);
	c->ops->insert(c->policy, slot, &hint);
}

static void take_out(struct cache *c, uint32_t slot)
{
	uint8_t key[ABI_KEY_BYTES];

	key_bytes(key, slot);
	c->ops->remove(c->policy, slot, key);
}

/* 4 bytes for each slot, and 24 for those that were there at a time. */
static void cache_end(struct cache *c)
{
	assert_in_range(c->ops->state_used(c->policy, SLOTS) - c->empty, 4 * SLOTS,
			4 * SLOTS + 25 * FEW);
	free(c->policy);
}

static void test_one_slot_of_ten_at_a_time(void **state)
{
	const struct policy_size size = { SLOTS, FEW, SLOTS, false };
	struct cache c;

	(void)state;
	cache_make(&c, &size);
	assert_true(c.empty < 200000 + 16 * FEW);
	for (uint32_t i = 0; i < SLOTS; i++) {
		insert(&c, i);
		if (i >= FEW)
			take_out(&c, i - FEW);
	}
	cache_end(&c);
}

/* All would fit the tier; but the others are another lane's. */
static void test_one_slot_of_ten_in_a_lane(void **state)
{
	const struct policy_size size = { SLOTS, SLOTS, SLOTS, true };
	struct cache c;

	(void)state;
	cache_make(&c, &size);
	for (uint32_t i = 0; i < SLOTS; i += SLOTS / FEW)
		insert(&c, i);
	cache_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_slot_of_ten_at_a_time),
		cmocka_unit_test(test_one_slot_of_ten_in_a_lane),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
