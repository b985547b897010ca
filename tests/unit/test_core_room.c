/*
 * Room is made ahead of need, and who leaves for it depends on what was asked for, not on when time
 * passed: a daemon that was slow keeps the same blocks as one that was not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 16u
#define RUNS 1500u
#define BLOCKS (RUNS * RUN)

/* A prompt of its own, or one that goes on behind an earlier one. With `slow`, time passes while
 * its bytes are copied. */
static void put(uint32_t run, bool slow)
{
	struct abi_put_args args = { .count = RUN };

	if (run % 3) {
		args.depth = run % 3 * RUN;
		host_key(run * RUN - 1, args.parent);
	}
	assert_int_equal(host_reserve(&host, &args, run * RUN, 0), 0);
	host.held = true;
	assert_true(host_commit(&host, 0));
	for (uint32_t i = 0; i < 3 && slow; i++)
		host_tick(&host, 10 * MS);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(host.answer.res, 0);
	for (uint32_t i = 0; i < 3 && !slow; i++)
		host_tick(&host, 10 * MS);
}

static void fill(bool slow, uint8_t there[BLOCKS])
{
	const struct context *x;
	struct disk_context spec;
	uint8_t key[ABI_KEY_BYTES];

	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = BLOCKS;
	snprintf(spec.policy, sizeof(spec.policy), "%s", POLICY_DEFAULT);
	one_host_boot(&spec, 1);
	for (uint32_t run = 0; run < RUNS; run++)
		put(run, slow);
	x = core_context(host.core, host.context[0].id);
	for (uint32_t n = 0; n < BLOCKS; n++) {
		host_key(n, key);
		there[n] = index_find(&x->ix, key) != ABI_SLOT_NONE;
	}
	assert_true(host.core->metrics.dropped_blocks > BLOCKS / 4);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

static void test_a_slow_copy_changes_nobody(void **state)
{
	static uint8_t quick[BLOCKS], slow[BLOCKS];

	(void)state;
	fill(false, quick);
	fill(true, slow);
	assert_memory_equal(quick, slow, sizeof(quick));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_slow_copy_changes_nobody),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
