/*
 * How runs are cut, in a core with a small host around it: a run waits for the block behind it that
 * is being copied, no longer than it must, and for nothing that may never come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define MSEC 1000000ull
#define BEHIND 3u /* blocks of the second put */

static int set_up(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_true(host_settle(&host, 60));
	return 0;
}

/* Blocks [first, first + count), behind the one before them. Returns the put. */
static uint64_t reserve(uint32_t first, uint32_t count)
{
	struct abi_put_args args = { .count = count, .depth = first };

	if (first)
		host_key(first - 1, args.parent);
	assert_int_equal(host_reserve(&host, &args, first, ABI_SQE_DURABLE), 0);
	return host.answer.value;
}

static void commit(uint64_t put)
{
	host.answer.value = put;
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
}

/* Carry out the first action of this kind. False: there is none. */
static bool carry(enum core_action_kind kind)
{
	for (uint32_t i = 0; i < host.bag_count; i++)
		if (host.bag[i].kind == kind) {
			host_carry(&host, i);
			return true;
		}
	return false;
}

static bool writes(void)
{
	for (uint32_t i = 0; i < host.bag_count; i++)
		if (host.bag[i].kind == CORE_AC_WRITE)
			return true;
	return false;
}

/* One block, and more behind it; each put's copy is held. */
static void put_two(bool both)
{
	uint64_t first = reserve(0, 1), second = reserve(1, BEHIND);

	host.held = true;
	commit(first);
	if (both)
		commit(second);
	assert_true(carry(CORE_AC_COPY));
}

static void assert_runs(uint32_t runs, uint32_t blocks)
{
	assert_int_equal(core_metrics(host.core)->runs_written, runs);
	assert_int_equal(core_metrics(host.core)->blocks_written, blocks);
}

static void test_a_run_waits_for_what_is_copied(void **state)
{
	(void)state;
	put_two(true);
	for (uint32_t i = 0; i < 10; i++) {
		host_tick(&host, 2 * MSEC);
		assert_false(writes());
	}
	assert_true(carry(CORE_AC_COPY));
	host_tick(&host, MSEC);
	assert_true(writes());
	host.held = false;
	assert_true(host_settle(&host, 60));
	assert_runs(1, 1 + BEHIND);
}

static void test_a_copy_that_takes_for_ever_is_not_waited_for(void **state)
{
	(void)state;
	put_two(true);
	for (uint32_t i = 0; i < 60 && !writes(); i++)
		host_tick(&host, 2 * MSEC);
	assert_true(writes());
	host.held = false;
	assert_true(host_settle(&host, 60));
	assert_runs(2, 1 + BEHIND);
}

/* The second put was begun and may never be committed. */
static void test_what_is_only_reserved_is_hardly_waited_for(void **state)
{
	(void)state;
	put_two(false);
	for (uint32_t i = 0; i < 3 && !writes(); i++)
		host_tick(&host, 2 * MSEC);
	assert_true(writes());
	host.held = false;
	assert_true(host_settle(&host, 60));
	assert_runs(1, 1);
}

/* What is behind became dirty first: it waits for what is before it, and goes with it. */
static void test_no_block_is_written_before_its_parent(void **state)
{
	uint64_t first = reserve(0, 1), second = reserve(1, BEHIND);

	(void)state;
	host.held = true;
	commit(second);
	assert_true(carry(CORE_AC_COPY));
	commit(first);
	assert_true(carry(CORE_AC_COPY));
	host.held = false;
	assert_true(host_settle(&host, 60));
	assert_runs(1, 1 + BEHIND);
}

/* Best-effort blocks that have nothing to do with each other. */
static void put_apart(uint32_t first, uint32_t count)
{
	const struct abi_put_args args = { .count = 1 };

	host.core->config.admit_all = true;
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(host_reserve(&host, &args, first + i, 0), 0);
		assert_true(host_commit(&host, 0));
	}
}

/* A durable put takes the time of what it does, however much that is only cached lies before it. */
static void test_what_is_cached_delays_no_promise(void **state)
{
	static const uint32_t before[] = { 0, 1, 8, 31, 100 };
	uint32_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
		const struct abi_put_args args = { .count = 1 };
		uint64_t from;

		put_apart(n, before[i]);
		n += before[i];
		from = host.now_ns;
		assert_int_equal(host_reserve(&host, &args, n++, ABI_SQE_DURABLE), 0);
		assert_true(host_commit(&host, ABI_SQE_DURABLE));
		assert_int_equal(one_host_answer(), 0);
		assert_in_range(host.now_ns - from, 0, 2 * MSEC);
		assert_true(host_settle(&host, 4000));
	}
	host_audit(&host);
}

/* Nor does it wait for its own block's age when that was put before, and not written yet. */
static void test_a_cached_block_that_is_promised_is_written_at_once(void **state)
{
	const struct abi_put_args args = { .count = 1 };
	uint64_t from = host.now_ns;

	(void)state;
	put_apart(0, 8);
	assert_int_equal(host_reserve(&host, &args, 5, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_int_equal(one_host_answer(), 0);
	assert_in_range(host.now_ns - from, 0, 2 * MSEC);
	host_audit(&host);
}

/* Blocks that are as old as one may be are written then, not each after as long again. */
static void test_all_that_is_old_is_written(void **state)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	uint64_t age = host.core->config.writeback_age_ns;

	(void)state;
	put_apart(0, 20);
	for (uint64_t t = 0; t < age + 20 * MSEC; t += MSEC)
		host_tick(&host, MSEC);
	assert_int_equal(x->dirty_bytes, 0);
	assert_runs(20, 20);
}

static void put_cached(uint32_t first, uint32_t count)
{
	const struct abi_put_args args = { .count = count };

	assert_int_equal(host_reserve(&host, &args, first, 0), 0);
	assert_true(host_commit(&host, 0));
}

/* Its segment is dropped, others depend on it: it does not wait behind all that is dirty. */
static void test_what_others_depend_on_is_written_again_first(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	const struct run *run = &host.core->drive[0]->run[DISK_LOG_CACHE];

	(void)state;
	host.core->config.admit_all = true;
	put_cached(0, 4);
	assert_true(host_settle(&host, 60));
	host.held = true;
	put_cached(10, 3);
	assert_true(carry(CORE_AC_COPY));
	evict_segment(host.core, host.core->drive[0], block_segment(host.core, x, slot_of(0)));
	assert_int_equal(x->dirty[DISK_LOG_CACHE].list.count, 3 + 2); /* half of it was kept */
	host_tick(&host, 10 * MSEC);
	assert_int_equal(run->blocks, 2);
	assert_int_equal(run->slot[0], slot_of(0));
	assert_int_equal(run->slot[1], slot_of(1));
	host.held = false;
	assert_true(host_settle(&host, 60));
}

/*
 * What is pinned is written again in any case. Were half of the others, too, nothing might be won
 * by dropping the segment: a full store would write the same blocks again and again.
 */
static void test_dropping_a_segment_gains_beside_pinned_blocks(void **state)
{
	const struct abi_sqe pin = { .op = ABI_OP_PIN, .tier = ABI_TIER_CXL };
	struct context *x = core_context(host.core, host.context[0].id);
	uint32_t first;

	(void)state;
	host.core->config.admit_all = true;
	put_cached(0, 4);
	assert_true(host_settle(&host, 60));
	assert_true(host_request_keys(&host, 0, pin, 2, 2));
	assert_int_equal(host.answer.aux, 2);
	first = slot_of(2);
	evict_segment(host.core, host.core->drive[0], block_segment(host.core, x, slot_of(0)));
	assert_int_equal(x->dirty[DISK_LOG_CACHE].list.count, 2);
	assert_int_equal(slot_of(0), ABI_SLOT_NONE);
	assert_int_equal(slot_of(1), ABI_SLOT_NONE);
	one_host_pause(100);
	assert_int_equal(slot_of(2), first);
	assert_int_equal(x->meta[first].persist, PERSIST_CLEAN);
	host_audit(&host);
}

/* One block of a run has lost its memory: it leaves, others are written, the drive is well. */
static void test_a_block_without_memory_holds_up_no_other(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	uint64_t put = reserve(0, 4);
	uint32_t lost = slot_of(1);

	(void)state;
	host.held = true;
	commit(put);
	assert_true(carry(CORE_AC_COPY));
	for (uint32_t i = 0; i < 60 && !writes(); i++)
		host_tick(&host, 2 * MSEC);
	assert_true(writes());
	host.answer.res = 1; /* not yet */
	host.gone = (uint8_t *)x->memory.mem[ABI_TIER_CXL] +
		    page_addr(index_page(&x->ix, lost, 0), ABI_TIER_CXL);
	host.held = false;
	assert_int_equal(one_host_answer(), -ENOSPC);
	assert_true(host_settle(&host, 60));
	host.gone = NULL;
	assert_int_equal(slot_of(1), ABI_SLOT_NONE);
	for (uint32_t n = 0; n < 4; n += n ? 1 : 2)
		assert_int_equal(x->meta[slot_of(n)].persist, PERSIST_CLEAN);
	assert_int_equal(core_metrics(host.core)->blocks_written, 3);
	assert_int_equal(host.core->drive[0]->write_failures, 0);
	put = reserve(10, 1);
	commit(put);
	assert_int_equal(one_host_answer(), 0);
	host_audit(&host);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, one_host_off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_run_waits_for_what_is_copied),
		TEST(test_a_copy_that_takes_for_ever_is_not_waited_for),
		TEST(test_what_is_only_reserved_is_hardly_waited_for),
		TEST(test_no_block_is_written_before_its_parent),
		TEST(test_what_is_cached_delays_no_promise),
		TEST(test_a_cached_block_that_is_promised_is_written_at_once),
		TEST(test_all_that_is_old_is_written),
		TEST(test_what_others_depend_on_is_written_again_first),
		TEST(test_dropping_a_segment_gains_beside_pinned_blocks),
		TEST(test_a_block_without_memory_holds_up_no_other),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
