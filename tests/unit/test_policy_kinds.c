/*
 * What reuse tells blocks by: their depth, and whether it counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/policy/reuse.h"
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 60u

struct tier {
	const struct policy_ops *ops;
	struct reuse *r;
};

static struct tier tier_new(const char *policy)
{
	const struct policy_size size = { BLOCKS, BLOCKS, BLOCKS };
	struct tier t = { .ops = policy_find(policy) };

	assert_non_null(t.ops);
	t.r = calloc(1, t.ops->state_bytes(&size));
	assert_non_null(t.r);
	t.ops->init(t.r, &size);
	return t;
}

static void key_bytes(uint8_t key[ABI_KEY_BYTES], uint32_t number)
{
	memset(key, 0, ABI_KEY_BYTES);
	number = (number + 1) * 2654435761u;
	memcpy(key, &number, sizeof(number));
}

static void put(const struct tier *t, uint32_t slot, struct policy_hint hint)
{
	uint8_t key[ABI_KEY_BYTES];

	key_bytes(key, slot);
	hint.key = key;
	t->ops->insert(t->r, slot, &hint);
}

/* Of two leaves alike but for their depth, the second deep: who leaves first. */
static uint32_t first_of_depths(const char *policy)
{
	const struct tier t = tier_new(policy);
	uint32_t first;

	put(&t, 0, (struct policy_hint){ .parent = ABI_SLOT_NONE, .brought = 1 });
	put(&t, 1, (struct policy_hint){ .parent = ABI_SLOT_NONE, .brought = 1,
					 .position = 100000 });
	first = t.ops->victim(t.r, ABI_SLOT_NONE);
	free(t.r);
	return first;
}

/* What costs much to compute again stays, unless hits alone count: then the newer of two leaves. */
static void test_what_is_deep_stays(void **state)
{
	(void)state;
	assert_int_equal(first_of_depths("reuse"), 0);
	assert_int_equal(first_of_depths("reuse-hits"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_deep_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
