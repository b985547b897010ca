/*
 * Foresight on the modelled host (bench/model): what a prefetch has to show for itself when its
 * deadline comes before its last byte; that large blocks do not make large jobs; and that leads of
 * those who announced their return are there although others' reads come first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "bench/model/model.h"
#include "tests/lib/unit.h"
#include "tierd/core/state.h"

#define BLOCKS 48u
#define LAYERS 4u
#define PAGE_BYTES (1u << 20)
#define BLOCK_NS (LAYERS * (uint64_t)PAGE_BYTES) /* of the device: one byte a nanosecond */

struct answer {
	struct abi_cqe cqe;
	bool came;
};

static void answered(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct answer *a = arg;

	(void)m;
	a->cqe = *cqe;
	a->came = true;
}

/* Blocks on NVMe alone. */
static struct model *stored(struct abi_block_ref *ref)
{
	const struct model_spec spec = { .cxl_bytes = 1ull << 30,
					 .nvme_bytes = 8ull << 30,
					 .layers = LAYERS,
					 .page_bytes = PAGE_BYTES,
					 .read_gbps = 1,
					 .write_gbps = 1,
					 .copy_gbps = 10,
					 .latency_ns = 80000 };
	struct model *m;

	assert_int_equal(model_open(&m, &spec), 0);
	assert_int_equal(model_store(m, 0, BLOCKS), 0);
	assert_int_equal(core_evict(m->core, m->context_id, ABI_TIER_CXL, 1ull << 30, 0), 0);
	model_run(m, m->now_ns + 1000000000);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		assert_true(model_block(m, i, &ref[i]));
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			assert_false(model_there(m, ref[i], layer, ABI_TIER_CXL));
	}
	return m;
}

/* The deadline leaves time for so many blocks: their number is what the answer says, about. */
static void test_what_came_in_time_is_whole_blocks(void **state)
{
	struct abi_block_ref ref[BLOCKS];
	struct answer got = { .came = false };
	struct model *m = stored(ref);
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .klass = ABI_CLASS_DEADLINE,
			       .tier = ABI_TIER_CXL, .count = BLOCKS, .arg_bytes = sizeof(ref),
			       .deadline_ns = m->now_ns + BLOCK_NS * BLOCKS / 2 };

	(void)state;
	model_ask(m, &sqe, ref, answered, &got);
	model_run(m, sqe.deadline_ns + 100000000);
	assert_true(got.came);
	assert_int_equal(got.cqe.res, 0);
	assert_int_equal(got.cqe.status, ABI_STATUS_LATE);
	assert_in_range(got.cqe.value, BLOCKS / 2 - 4, BLOCKS / 2 + 4);
	for (uint32_t i = 0; i < got.cqe.value; i++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			assert_true(model_there(m, ref[i], layer, ABI_TIER_CXL));
	model_close(m);
}

/* In time it brings all, whatever the order. */
static void test_all_of_it_comes_in_time(void **state)
{
	struct abi_block_ref ref[BLOCKS];
	struct answer got = { .came = false };
	struct model *m = stored(ref);
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .klass = ABI_CLASS_DEADLINE,
			       .tier = ABI_TIER_CXL, .count = BLOCKS, .arg_bytes = sizeof(ref),
			       .deadline_ns = m->now_ns + 3 * BLOCK_NS * BLOCKS };

	(void)state;
	model_ask(m, &sqe, ref, answered, &got);
	model_run(m, sqe.deadline_ns + 100000000);
	assert_true(got.came);
	assert_int_equal(got.cqe.status, ABI_STATUS_READY);
	assert_int_equal(got.cqe.value, BLOCKS);
	model_close(m);
}

static void prefetch_now(struct model *m, struct abi_block_ref ref)
{
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .klass = ABI_CLASS_SPECULATIVE,
			       .tier = ABI_TIER_CXL, .count = 1, .arg_bytes = sizeof(ref) };

	model_ask(m, &sqe, &ref, NULL, NULL);
}

/* It stands in the access log still when the block is brought again. */
static void test_a_read_before_is_no_use(void **state)
{
	struct abi_block_ref ref[BLOCKS];
	struct model *m = stored(ref);
	const struct core_metrics *metrics = core_metrics(m->core);
	uint64_t used;

	(void)state;
	prefetch_now(m, ref[0]);
	model_run(m, m->now_ns + 100000000);
	used = metrics->prefetch_used;
	model_read(m, ref[1], LAYERS);
	prefetch_now(m, ref[1]);
	model_run(m, m->now_ns + 200000000);
	assert_true(model_there(m, ref[1], LAYERS - 1, ABI_TIER_CXL));
	assert_int_equal(metrics->prefetch_used, used);
	model_read(m, ref[1], LAYERS);
	model_run(m, m->now_ns + 200000000);
	assert_int_equal(metrics->prefetch_used, used + LAYERS * PAGE_BYTES);
	model_close(m);
}

/* A put of 192 MiB is copied in jobs that a demand can wait for. */
static void test_copies_of_puts_are_small(void **state)
{
	struct abi_block_ref ref[BLOCKS];
	struct model *m = stored(ref);

	(void)state;
	assert_in_range(m->copy_most, PAGE_BYTES, PAGE_BYTES + SCHED_COPY_BYTES - 1);
	model_close(m);
}

/* ---- announced returns -------------------------------------------------------------------- */

#define TALK_BLOCKS (BLOCKS / 2)
#define LAYER_NS (TALK_BLOCKS * (uint64_t)PAGE_BYTES) /* of the device */
#define COMPUTE_NS (LAYER_NS / 10 * 9) /* a lead is three layers of four, then */
#define AWAY_NS 3000000000ull

/* The talk has half of the blocks; its user is away for so long. */
static void turn_ends(struct model *m, uint32_t talk, const struct abi_block_ref *ref,
		      uint64_t return_ns)
{
	struct {
		struct abi_conversation_args args;
		struct abi_block_ref ref[TALK_BLOCKS];
	} told = { .args = { .return_ns = return_ns, .layer_ns = COMPUTE_NS } };
	struct abi_sqe sqe = { .op = ABI_OP_CONVERSATION,
			       .klass = ABI_CLASS_SPECULATIVE,
			       .mode = ABI_CONVERSATION_TURN_END,
			       .handle = talk,
			       .tier = ABI_TIER_CXL,
			       .count = TALK_BLOCKS,
			       .arg_bytes = sizeof(told) };

	memcpy(told.ref, ref + talk * TALK_BLOCKS, sizeof(told.ref));
	model_ask(m, &sqe, &told, NULL, NULL);
}

static struct abi_cqe comes_back(struct model *m, uint32_t talk)
{
	struct abi_sqe sqe = { .op = ABI_OP_CONVERSATION,
			       .klass = ABI_CLASS_SPECULATIVE,
			       .mode = ABI_CONVERSATION_RETURN,
			       .handle = talk,
			       .tier = ABI_TIER_CXL };
	struct answer got = { .came = false };

	model_ask(m, &sqe, NULL, answered, &got);
	model_run(m, m->now_ns + 1000);
	assert_true(got.came);
	assert_int_equal(got.cqe.res, 0);
	return got.cqe;
}

/*
 * Two are back one after the other: what the device reads for the first from then on is time that
 * the second's lead does not have. It is brought before, but not much sooner than that.
 */
static void test_a_lead_is_there_behind_anothers_return(void **state)
{
	struct abi_block_ref ref[BLOCKS];
	struct model *m = stored(ref);
	uint64_t back_ns = m->now_ns + AWAY_NS, next_ns = back_ns + LAYER_NS;

	(void)state;
	turn_ends(m, 0, ref, back_ns);
	turn_ends(m, 1, ref, next_ns);
	model_run(m, back_ns - 12 * LAYER_NS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_false(model_there(m, ref[i], 0, ABI_TIER_CXL));
	model_run(m, back_ns);
	assert_int_equal(comes_back(m, 0).status, ABI_STATUS_READY);
	model_run(m, next_ns);
	assert_int_equal(comes_back(m, 1).status, ABI_STATUS_READY);
	model_close(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_of_puts_are_small),
		cmocka_unit_test(test_a_read_before_is_no_use),
		cmocka_unit_test(test_what_came_in_time_is_whole_blocks),
		cmocka_unit_test(test_all_of_it_comes_in_time),
		cmocka_unit_test(test_a_lead_is_there_behind_anothers_return),
	};

	return cmocka_run_group_tests_name("foresight", tests, NULL, NULL);
}
