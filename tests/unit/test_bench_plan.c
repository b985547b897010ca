/*
 * Plans on the modelled host (bench/model): a run of loads that no reader waits for begins before
 * its first one is due; a plan that may use a whole tier is not evicted from it; and what the bench
 * calls the least wait is that, in cases that can be reckoned by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/model/least.h"
#include "bench/model/planrun.h"
#include "tests/lib/unit.h"

#define BLOCK_NS 1000000ull /* of the device: one byte a nanosecond */
#define BLOCK_BYTES 999424u /* whole pages */
#define BURST 40u

static double least(const uint32_t *seq, uint32_t count, uint32_t capacity, uint64_t compute_ns)
{
	const struct least_spec spec = { seq, count, capacity, BLOCK_NS, compute_ns };
	struct least out;

	assert_int_equal(least_stall(&spec, &out), 0);
	return out.stall_ns / (double)BLOCK_NS;
}

static void test_the_least_wait_is_that(void **state)
{
	static const uint32_t once[] = { 0, 1, 2, 3 };
	static const uint32_t again[] = { 0, 0, 0, 1, 2, 3 };
	static const uint32_t kept[] = { 0, 1, 0, 2, 0, 3, 0 };

	(void)state;
	/* Nothing is computed: all transfers; as much as they take: the first one alone. */
	assert_true(least(once, 4, 4, 0) == 4);
	assert_true(least(once, 4, 4, BLOCK_NS) == 1);
	/* With one place the next load waits for the reader. */
	assert_true(least(once, 4, 1, BLOCK_NS / 2) == 1 + 3 * 0.5);
	/* While accesses load nothing the loads get ahead. */
	assert_true(least(again, 6, 4, BLOCK_NS / 2) == 1 + 0.5);
	/* With one place none begins before the last of them; with two one does. */
	assert_true(least(again, 6, 1, BLOCK_NS / 2) == 1 + 0.5 * 3);
	assert_true(least(again, 6, 2, BLOCK_NS / 2) == 1 + 0.5);
	/* A block that stays takes a place of two, and the other one serves all others. */
	assert_true(least(kept, 7, 2, BLOCK_NS / 2) == 1 + 0.5);
}

/* ---- a burst ------------------------------------------------------------------------------ */

static void submit(struct model *m, const struct abi_block_ref *ref, uint64_t burst_ns)
{
	struct {
		struct abi_plan_args args;
		struct abi_access access[1 + BURST];
	} plan = { .args = { .position_offset = MODEL_POSITION, .start_ns = m->now_ns,
			     .budget_bytes = 128ull * BLOCK_BYTES } };
	struct abi_sqe sqe = { .op = ABI_OP_PLAN, .mode = ABI_PLAN_BEGIN, .tier = ABI_TIER_CXL,
			       .count = 1 + BURST, .arg_bytes = sizeof(plan) };

	for (uint32_t i = 0; i <= BURST; i++) {
		plan.access[i].block = ref[i];
		plan.access[i].time_us = i ? (uint32_t)(burst_ns / 1000) : 0;
	}
	model_ask(m, &sqe, &plan, NULL, NULL);
}

/* Read from NVMe once, for the core to see how fast that goes. */
static void measure(struct model *m, const struct abi_block_ref *ref)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .count = 1 + BURST,
				     .arg_bytes = (1 + BURST) * sizeof(*ref) };

	model_ask(m, &sqe, ref, NULL, NULL);
	model_run(m, m->now_ns + 2 * BURST * BLOCK_NS);
	assert_int_equal(core_evict(m->core, m->context_id, ABI_TIER_CXL, 1ull << 30, 0), 0);
	model_run(m, m->now_ns + 1000000000);
}

static uint32_t there(struct model *m, const struct abi_block_ref *ref)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i <= BURST; i++)
		count += model_there(m, ref[i], 0, ABI_TIER_CXL);
	return count;
}

/* All blocks of a burst are there when it comes, though they take longer than any margin. */
static void test_a_burst_begins_before_its_first_is_due(void **state)
{
	const struct model_spec spec = { .cxl_bytes = 512ull << 20, .nvme_bytes = 8ull << 30,
					 .layers = 1, .page_bytes = BLOCK_BYTES, .read_gbps = 1,
					 .write_gbps = 1, .copy_gbps = 10, .latency_ns = 80000 };
	const uint64_t burst_ns = 1000000000;
	struct abi_block_ref ref[1 + BURST];
	struct model *m;
	uint64_t begin;

	(void)state;
	assert_int_equal(model_open(&m, &spec), 0);
	assert_int_equal(model_store(m, 0, 1 + BURST), 0);
	for (uint32_t i = 0; i <= BURST; i++)
		assert_true(model_block(m, i, &ref[i]));
	assert_int_equal(core_evict(m->core, m->context_id, ABI_TIER_CXL, 1ull << 30, 0), 0);
	model_run(m, m->now_ns + 1000000000);
	measure(m, ref);
	assert_int_equal(there(m, ref), 0);
	begin = m->now_ns;
	submit(m, ref, burst_ns);
	/* Nor does it begin long before: twice its transfer is enough. */
	model_run(m, begin + burst_ns - 2 * BURST * BLOCK_NS);
	assert_int_equal(there(m, ref), 1);
	model_run(m, begin + burst_ns);
	assert_int_equal(there(m, ref), 1 + BURST);
	model_close(m);
}

/* ---- a whole tier ------------------------------------------------------------------------- */

#define ACCESSES 12000u
#define DISTINCT 3000u
#define TIER_BLOCKS 201u

/* Half of the accesses go to a tenth of the blocks. */
static void references(uint32_t *seq)
{
	uint64_t random = 5;

	for (uint32_t i = 0; i < ACCESSES; i++)
		seq[i] = bench_random_below(&random, i % 2 ? DISTINCT : DISTINCT / 10);
	for (uint32_t i = 0; i < DISTINCT; i++) /* each occurs */
		seq[i * 3] = i;
}

/*
 * What it loads is near Belady's with the whole tier, and the wait near the least, also when the
 * tier has not a block to spare and computing takes no longer than all transfers.
 */
static void test_a_plan_may_use_the_whole_tier(void **state)
{
	uint32_t *seq = calloc(ACCESSES, sizeof(*seq));
	struct least_spec spec = { seq, ACCESSES, TIER_BLOCKS, 524288, 0 };
	struct plan_run run = {
		.host = { .cxl_bytes = (uint64_t)TIER_BLOCKS << 19, .nvme_bytes = 8ull << 30,
			  .layers = 1, .page_bytes = 512u << 10, .read_gbps = 1, .write_gbps = 1,
			  .copy_gbps = 10, .latency_ns = 80000 },
		.seq = seq, .count = ACCESSES, .distinct = DISTINCT, .tier = ABI_TIER_CXL,
		.budget = (uint64_t)TIER_BLOCKS << 19, .mode = PLAN_RIGHT,
	};
	struct plan_outcome out;
	struct least least;

	(void)state;
	assert_non_null(seq);
	references(seq);
	assert_int_equal(least_stall(&spec, &least), 0);
	run.compute_ns = least.loads * spec.block_ns / ACCESSES + 1;
	assert_int_equal(plan_run(&run, &out), 0);
	assert_true((double)out.loads <= 1.03 * least.loads);
	assert_true(out.stall_s * 1e9 <= 0.1 * (double)(least.loads * spec.block_ns));
	free(seq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_least_wait_is_that),
		cmocka_unit_test(test_a_burst_begins_before_its_first_is_due),
		cmocka_unit_test(test_a_plan_may_use_the_whole_tier),
	};

	return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
