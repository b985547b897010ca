/*
 * The registry, and lru against a list of slots in the order of their last use: random inserts,
 * touches and removes, and walks that remove victims on their way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/policy_ops.h"
#include "libtier/base/time.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS 60u

static const uint8_t no_key[ABI_KEY_BYTES];

/* The model: slots, least recently used first. */
struct model {
	uint32_t slot[BLOCKS];
	uint32_t count;
};

static uint32_t model_find(const struct model *m, uint32_t slot)
{
	uint32_t i = 0;

	while (i < m->count && m->slot[i] != slot)
		i++;
	return i;
}

static void model_remove(struct model *m, uint32_t slot)
{
	uint32_t i = model_find(m, slot);

	assert_in_range(i, 0, m->count - 1);
	m->count--;
	memmove(&m->slot[i], &m->slot[i + 1], (m->count - i) * sizeof(m->slot[0]));
}

static void compare_walk(const struct policy_ops *ops, void *policy, const struct model *m)
{
	uint32_t at = ABI_SLOT_NONE;

	for (uint32_t i = 0; i < m->count; i++) {
		at = ops->victim(policy, at);
		assert_int_equal(at, m->slot[i]);
	}
	assert_int_equal(ops->victim(policy, at), ABI_SLOT_NONE);
}

static void random_step(const struct policy_ops *ops, void *policy, struct model *m,
			struct rng *rng)
{
	uint32_t slot = (uint32_t)rng_below(rng, BLOCKS);
	uint32_t weight = (uint32_t)rng_below(rng, 3);
	struct policy_hint hint = { .parent = ABI_SLOT_NONE };

	if (model_find(m, slot) == m->count) {
		ops->insert(policy, slot, &hint);
	} else if (rng_below(rng, 3) == 0) {
		ops->remove(policy, slot, no_key);
		model_remove(m, slot);
		return;
	} else {
		ops->touch(policy, slot, weight, 0);
		if (weight == 0)
			return;
		model_remove(m, slot);
	}
	m->slot[m->count++] = slot;
}

static void *policy_new(const struct policy_ops *ops, uint64_t blocks)
{
	const struct policy_size size = { blocks, blocks, blocks, false };
	void *policy = calloc(1, ops->state_bytes(&size));

	assert_non_null(policy);
	ops->init(policy, &size);
	return policy;
}

static void test_lru_agrees_with_model(void **state)
{
	const struct policy_ops *ops = policy_find("lru");
	void *policy = policy_new(ops, BLOCKS);
	struct model m = { .count = 0 };
	struct rng rng = { 42 };

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		random_step(ops, policy, &m, &rng);
		if (i % 16 == 0)
			compare_walk(ops, policy, &m);
	}
	free(policy);
}

/* As the core walks: the successor is taken, then the victim is removed. */
static void test_lru_walk_removes_victims(void **state)
{
	const struct policy_ops *ops = policy_find("lru");
	void *policy = policy_new(ops, BLOCKS);
	struct policy_hint hint = { .parent = ABI_SLOT_NONE };
	struct model m = { .count = 0 };
	uint32_t at, next, expected = 0;

	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++)
		ops->insert(policy, i, &hint);
	for (at = ops->victim(policy, ABI_SLOT_NONE); at != ABI_SLOT_NONE; at = next) {
		assert_int_equal(at, expected++);
		next = ops->victim(policy, at);
		if (at % 3 == 0)
			ops->remove(policy, at, no_key);
		else
			m.slot[m.count++] = at;
	}
	assert_int_equal(expected, BLOCKS);
	compare_walk(ops, policy, &m);
	free(policy);
}

struct misuse {
	const struct policy_ops *ops;
	void *policy;
	uint32_t slot;
};

static void misuse_insert(void *arg)
{
	struct misuse *m = arg;
	struct policy_hint hint = { .parent = ABI_SLOT_NONE };

	m->ops->insert(m->policy, m->slot, &hint);
}

static void misuse_touch(void *arg)
{
	struct misuse *m = arg;

	m->ops->touch(m->policy, m->slot, 1, 0);
}

static void misuse_remove(void *arg)
{
	struct misuse *m = arg;

	m->ops->remove(m->policy, m->slot, no_key);
}

static void misuse_victim(void *arg)
{
	struct misuse *m = arg;

	m->ops->victim(m->policy, m->slot);
}

static void test_lru_asserts(void **state)
{
	const struct policy_ops *ops = policy_find("lru");
	struct misuse m = { .ops = ops, .policy = policy_new(ops, BLOCKS), .slot = 3 };

	(void)state;
	assert_true(aborts(misuse_touch, &m));
	assert_true(aborts(misuse_remove, &m));
	assert_true(aborts(misuse_victim, &m));
	assert_false(aborts(misuse_insert, &m));
	misuse_insert(&m);
	assert_true(aborts(misuse_insert, &m));
	assert_false(aborts(misuse_touch, &m));
	m.slot = BLOCKS;
	assert_true(aborts(misuse_insert, &m));
	assert_true(aborts(misuse_touch, &m));
	assert_true(aborts(misuse_remove, &m));
	assert_true(aborts(misuse_victim, &m));
	free(m.policy);
}

static void test_registry(void **state)
{
	uint32_t count = 0;

	(void)state;
	for (; policy_at(count); count++) {
		const struct policy_ops *ops = policy_at(count);

		assert_ptr_equal(policy_find(ops->name), ops);
		assert_int_equal(ops->size, sizeof(*ops));
		assert_true(ops->version >= 1);
		assert_true(strlen(ops->help) > 10);
		assert_non_null(ops->state_bytes);
		assert_non_null(ops->init);
		assert_non_null(ops->state_used);
		assert_non_null(ops->insert);
		assert_non_null(ops->touch);
		assert_non_null(ops->remove);
		assert_non_null(ops->victim);
	}
	assert_in_range(count, 1, 100);
	assert_null(policy_at(count));
	assert_null(policy_at(UINT32_MAX));
	assert_non_null(policy_find("lru"));
	assert_null(policy_find("lr"));
	assert_null(policy_find(""));
}

/* Ten million blocks: 8 bytes each, touched only where used. */
static void test_lru_scales(void **state)
{
	const struct policy_ops *ops = policy_find("lru");
	const uint64_t blocks = 10000000, used = 1000000;
	const struct policy_size size = { blocks, blocks, blocks, false };
	size_t bytes = ops->state_bytes(&size);
	struct policy_hint hint = { .parent = ABI_SLOT_NONE };
	struct rng rng = { 7 };
	uint64_t begin, end;
	void *policy = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)state;
	assert_ptr_not_equal(policy, MAP_FAILED);
	assert_in_range(bytes, 8 * blocks, 8 * blocks + 64);
	assert_in_range(ops->state_used(policy, used), 8 * used, 8 * used + 64);
	ops->init(policy, &size);
	for (uint32_t i = 0; i < used; i++)
		ops->insert(policy, i, &hint);
	begin = time_now_ns();
	for (uint32_t i = 0; i < used; i++)
		ops->touch(policy, (uint32_t)rng_below(&rng, used), 1, 0);
	end = time_now_ns();
	printf("# lru: %.1f ns a random touch of 10^6 blocks, 8 bytes a block\n",
	       (double)(end - begin) / (double)used);
	munmap(policy, bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registry),
		cmocka_unit_test(test_lru_agrees_with_model),
		cmocka_unit_test(test_lru_walk_removes_victims),
		cmocka_unit_test(test_lru_asserts),
		cmocka_unit_test(test_lru_scales),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
