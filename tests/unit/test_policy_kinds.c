/*
 * What reuse tells blocks by: their depth, and whether it counts; how they were put, and how often
 * they were used since.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/policy/reuse.h"
#include "tests/lib/unit.h"
#include "tests/unit/policy_key.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 60u

struct tier {
	const struct policy_ops *ops;
	struct reuse *r;
};

static struct tier tier_new(const char *policy)
{
	const struct policy_size size = { BLOCKS, BLOCKS, BLOCKS, false };
	struct tier t = { .ops = policy_find(policy) };

	assert_non_null(t.ops);
	t.r = calloc(1, t.ops->state_bytes(&size));
	assert_non_null(t.r);
	t.ops->init(t.r, &size);
	return t;
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

static uint32_t kind_of(const struct tier *t, uint32_t slot)
{
	return t->r->node[reuse_node_of(t->r, slot)].kind;
}

/* In an epoch of its own: others are not counted. */
static void use(const struct tier *t, uint32_t slot)
{
	t->r->clock = t->r->epoch_end;
	put(t, BLOCKS - 1, (struct policy_hint){ .parent = ABI_SLOT_NONE, .brought = 1 });
	t->ops->remove(t->r, BLOCKS - 1, (const uint8_t[ABI_KEY_BYTES]){ 0 });
	t->ops->touch(t->r, slot, 1, 0);
}

/* Ends of prompts or not, each where a few others had been (behind slot 0) or not. */
static void put_origins(const struct tier *t)
{
	put(t, 0, (struct policy_hint){ .parent = ABI_SLOT_NONE, .brought = 1 });
	use(t, 0);
	for (uint32_t i = 0; i < REUSE_ORIGINS; i++)
		put(t, 1 + i, (struct policy_hint){ .parent = i / 2 ? 0 : ABI_SLOT_NONE,
						    .brought = 1,
						    .last = i % 2 });
}

static void expect_kinds(const struct tier *t, uint32_t first)
{
	for (uint32_t i = 0; i < REUSE_ORIGINS; i++)
		assert_int_equal(kind_of(t, 1 + i), first + i);
}

/* Blocks that are used again stay apart by how they were put, also when they left and came back. */
static void test_used_blocks_keep_their_origin(void **state)
{
	const struct tier t = tier_new("reuse");
	uint8_t key[ABI_KEY_BYTES];

	(void)state;
	put_origins(&t);
	for (uint32_t uses = 2; uses <= 8; uses++) {
		for (uint32_t i = 0; i < REUSE_ORIGINS; i++)
			use(&t, 1 + i);
		expect_kinds(&t, REUSE_KINDS_NEW + (uses > 4) * REUSE_ORIGINS);
	}
	for (uint32_t i = 0; i < REUSE_ORIGINS; i++) {
		key_bytes(key, 1 + i);
		t.ops->remove(t.r, 1 + i, key);
		put(&t, 1 + i, (struct policy_hint){ .parent = ABI_SLOT_NONE, .brought = 9 });
	}
	expect_kinds(&t, REUSE_KINDS_NEW + REUSE_ORIGINS);
	free(t.r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_deep_stays),
		cmocka_unit_test(test_used_blocks_keep_their_origin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
