/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another policy for a context in use: each block is in one of the two all the time, victims are
 * found at any moment, and the new one's order holds in the end. Events of all kinds between any
 * two steps are the simulator's (tests/sim/owner.c).
 */
#include <errno.h>
#include <string.h>

#include "tests/unit/one_host.h"

#define CXL ABI_TIER_CXL
#define RUN 8u
#define BLOCKS 200u /* several shares of a tick */

static int begin(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = 1u << 12;
	one_host_boot(&spec, 1);
	return 0;
}

static void put(uint32_t first)
{
	const struct abi_put_args args = { .count = RUN };

	assert_int_equal(host_reserve(&host, &args, first, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, RUN);
}

static void tick(void)
{
	struct core_event e = { .kind = CORE_EV_TICK, .now_ns = host.now_ns += 1000 };

	core_event(host.core, &e);
}

/* Blocks that a policy has, which are what it says, in its order; each once. */
static uint32_t order_of(const struct lanes *l, uint32_t slot[BLOCKS])
{
	uint32_t n = 0;

	for (uint32_t lane = 0; l && lane < LANES; lane++) {
		void *its = l->state[CXL][lane];
		uint32_t at = its ? l->policy->victim(its, ABI_SLOT_NONE) : ABI_SLOT_NONE;

		for (; at != ABI_SLOT_NONE && n < BLOCKS; at = l->policy->victim(its, at)) {
			assert_ptr_equal(block_lanes(context(), at), l);
			slot[n++] = at;
		}
	}
	return n;
}

static void test_blocks_go_over(void **state)
{
	uint32_t slot[BLOCKS], before, after, share = 0;
	uint64_t gone;

	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i += RUN)
		put(i);
	assert_int_equal(core_policy_set(host.core, host.context[0].id, "magic", 7), -EINVAL);
	assert_int_equal(core_policy_set(host.core, host.context[0].id, "lru", 7), 0);
	assert_int_equal(core_policy_set(host.core, host.context[0].id, "reuse", 7), -EBUSY);
	assert_int_equal(order_of(context()->former, slot), BLOCKS);
	while (context()->former) {
		before = order_of(context()->former, slot);
		assert_int_equal(before + order_of(&context()->lanes, slot), BLOCKS);
		assert_true(core_goes_on(host.core));
		tick();
		after = context()->former ? order_of(context()->former, slot) : 0;
		assert_true(after < before);
		share = before - after > share ? before - after : share;
	}
	assert_true(share > 0 && share <= 64); /* of one event */
	assert_int_equal(order_of(&context()->lanes, slot), BLOCKS);
	for (uint32_t i = 1; i < BLOCKS; i++)
		assert_true(slot[i] > slot[i - 1]); /* as they came over */
	assert_string_equal(context()->spec.policy, "lru");
	/* Room is made at any moment. */
	assert_int_equal(core_policy_set(host.core, host.context[0].id, "reuse", 7), 0);
	tick();
	assert_non_null(context()->former);
	before = (uint32_t)context()->blocks;
	gone = evict_some(host.core, context(), CXL, 150 * context()->spec.geometry.block_bytes);
	assert_true(gone >= 150 * context()->spec.geometry.block_bytes);
	assert_true(context()->blocks <= before - 150);
	while (context()->former)
		tick();
	assert_int_equal(order_of(&context()->lanes, slot), context()->blocks);
	assert_int_equal(core_policy_set(host.core, host.context[0].id, "lru", 7), 0);
	tick(); /* and the core goes in the middle of it: its memory does, too */
}

static int end(void **state)
{
	(void)state;
	host_halt(&host);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_blocks_go_over, begin, end),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
