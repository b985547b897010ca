/*
 * The smallest stores, and the smallest segments: what is dropped or deleted makes room again, and
 * what is asked for stays.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 3u
#define LEAST 2u /* segments */
#define MOST 5u

static void boot(uint32_t segments)
{
	struct disk_context spec;

	memset(host.disk, 0, HOST_NVME);
	host.super.segment_count = segments;
	disk_super_seal(&host.super);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
}

static void off(void)
{
	host_audit(&host);
	one_host_off(NULL);
	host.super.segment_count = HOST_SEGMENTS;
	disk_super_seal(&host.super);
}

/* The cache log has one segment, which is open: it is dropped all the same when it is full. */
static void test_the_cache_goes_round(void **state)
{
	(void)state;
	for (uint32_t segments = LEAST; segments <= MOST; segments++) {
		boot(segments);
		assert_int_equal(one_host_put(0, BLOCKS, ABI_SQE_DURABLE), 0);
		for (uint32_t n = 1; n < 40; n++) {
			assert_int_equal(one_host_put(n * BLOCKS, BLOCKS, 0), 0);
			one_host_pause(50);
		}
		assert_true(host.core->metrics.blocks_written >= 30 * BLOCKS);
		off();
	}
}

/* Promises fill a larger store, but for the segment that the cache has: it goes round in that. */
static void test_the_cache_goes_round_in_what_is_left(void **state)
{
	uint32_t n = 1;
	uint64_t promised;

	(void)state;
	boot(STORE_RESERVED_FROM);
	assert_int_equal(one_host_put(0, BLOCKS, 0), 0);
	one_host_pause(50);
	while (n < 40 && one_host_put(n++ * BLOCKS, BLOCKS, ABI_SQE_DURABLE) == 0)
		;
	assert_true(n > 10 && n < 40);
	/* or it took what the cache gives */
	assert_int_equal(one_host_delete((n - 1) * BLOCKS, BLOCKS), 0);
	promised = host.core->metrics.blocks_written;
	for (uint32_t end = n + 20; n < end; n++) {
		assert_int_equal(one_host_put(n * BLOCKS, BLOCKS, 0), 0);
		one_host_pause(50);
	}
	assert_true(host.core->metrics.blocks_written >= promised + 12 * BLOCKS);
	off();
}

/*
 * What was promised is deleted, and others can be promised: tombstones are needed while the cache
 * may show older records, so the cache's only segment makes way.
 */
static void test_deletions_make_room(void **state)
{
	(void)state;
	for (uint32_t segments = LEAST; segments <= MOST; segments++) {
		boot(segments);
		assert_int_equal(one_host_put(1000, BLOCKS, 0), 0);
		one_host_pause(50);
		for (uint32_t n = 0; n < 60; n++) {
			assert_int_equal(one_host_put(n * BLOCKS, BLOCKS, ABI_SQE_DURABLE), 0);
			assert_int_equal(one_host_delete(n * BLOCKS, BLOCKS), 0);
			one_host_pause(100);
		}
		off();
	}
}

/* ---- segments of one block ------------------------------------------------------------------ */

#define ONE_SEGMENTS (STORE_RESERVED_FROM + 4)
#define ONE_BLOCK (16u << 10)
#define ONE_SEGMENT ((uint32_t)STORE_SEGMENT_BYTES_MIN)
#define ONE_SUMMARY (ONE_SEGMENT - ONE_BLOCK - ONE_BLOCK / 2)

static void put_one(uint32_t n)
{
	assert_int_equal(one_host_put(n, 1, 0), 0);
	one_host_pause(100);
}

/* It is a use; is it there? */
static bool ask_for(uint32_t n)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL };

	assert_true(host_request_keys(&host, 0, sqe, n, 1));
	one_host_pause(10);
	assert_int_equal(host.answer.res, 0);
	return host.answer.value;
}

static void boot_one_block_a_segment(void)
{
	struct disk_context spec;

	one_host_disk((8u << 10) + 2 * HOST_CATALOG + ONE_SEGMENTS * ONE_SEGMENT, ONE_SEGMENTS,
		      ONE_SEGMENT, ONE_SUMMARY);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
}

static int off_one_block_a_segment(void **state)
{
	one_host_off(state);
	one_host_disk_back();
	return 0;
}

/* Half of what goes round may stay, also where a half is no block: of these the one in use. */
static void test_one_block_a_segment(void **state)
{
	const uint32_t end = 4 * ONE_SEGMENTS;
	uint32_t there = 0;

	(void)state;
	boot_one_block_a_segment();
	for (uint32_t n = 0; n < end; n++) {
		put_one(n);
		assert_true(ask_for(0));
	}
	assert_true(host.core->metrics.reinserted_bytes >= 2 * ONE_BLOCK);
	for (uint32_t n = 1; n < end; n++)
		there += ask_for(n);
	assert_in_range(there, ONE_SEGMENTS / 2, ONE_SEGMENTS); /* and the others went */
	host_audit(&host);
}

/* All are in use: every second one stays, and new ones find their room all the same. */
static void test_all_segments_of_one_block_in_use(void **state)
{
	const uint32_t end = 8 * ONE_SEGMENTS;

	(void)state;
	boot_one_block_a_segment();
	for (uint32_t n = 0; n < end; n++) {
		put_one(n);
		for (uint32_t i = n < ONE_SEGMENTS ? 0 : n - ONE_SEGMENTS; i < n; i++)
			ask_for(i);
		assert_true(ask_for(n));
	}
	assert_int_equal(host.core->metrics.blocks_written, end);
	assert_in_range(host.core->metrics.reinserted_bytes, end / 2 * ONE_BLOCK, end * ONE_BLOCK);
	host_audit(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_cache_goes_round),
		cmocka_unit_test(test_the_cache_goes_round_in_what_is_left),
		cmocka_unit_test(test_deletions_make_room),
		cmocka_unit_test_teardown(test_one_block_a_segment, off_one_block_a_segment),
		cmocka_unit_test_teardown(test_all_segments_of_one_block_in_use,
					  off_one_block_a_segment),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
