/*
 * The smallest stores: a segment for each log, and what is dropped or deleted makes room again.
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

static int32_t put(uint32_t first, uint16_t flags)
{
	const struct abi_put_args args = { .count = BLOCKS };
	int32_t res = host_reserve(&host, &args, first, flags);

	if (res)
		return res;
	host.answer.res = 1;
	host.held = true;
	assert_true(host_commit(&host, flags));
	host.held = false;
	for (uint32_t i = 0; i < 3000 && host.answer.res > 0; i++)
		host_tick(&host, MS);
	return host.answer.res;
}

static void pause_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i++)
		host_tick(&host, MS);
}

/* The cache log has one segment, which is open: it is dropped all the same when it is full. */
static void test_the_cache_goes_round(void **state)
{
	(void)state;
	for (uint32_t segments = LEAST; segments <= MOST; segments++) {
		boot(segments);
		assert_int_equal(put(0, ABI_SQE_DURABLE), 0);
		for (uint32_t n = 1; n < 40; n++) {
			assert_int_equal(put(n * BLOCKS, 0), 0);
			pause_ms(50);
		}
		assert_true(host.core->metrics.blocks_written >= 30 * BLOCKS);
		off();
	}
}

static int32_t drop(uint32_t first)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE };

	host.answer.res = 1;
	assert_true(host_request_keys(&host, 0, sqe, first, BLOCKS));
	for (uint32_t i = 0; i < 3000 && host.answer.res > 0; i++)
		host_tick(&host, MS);
	return host.answer.res;
}

/* Promises fill a larger store, but for the segment that the cache has: it goes round in that. */
static void test_the_cache_goes_round_in_what_is_left(void **state)
{
	uint32_t n = 1;
	uint64_t promised;

	(void)state;
	boot(STORE_RESERVED_FROM);
	assert_int_equal(put(0, 0), 0);
	pause_ms(50);
	while (n < 40 && put(n++ * BLOCKS, ABI_SQE_DURABLE) == 0)
		;
	assert_true(n > 10 && n < 40);
	assert_int_equal(drop((n - 1) * BLOCKS), 0); /* or it took what the cache gives */
	promised = host.core->metrics.blocks_written;
	for (uint32_t end = n + 20; n < end; n++) {
		assert_int_equal(put(n * BLOCKS, 0), 0);
		pause_ms(50);
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
		assert_int_equal(put(1000, 0), 0);
		pause_ms(50);
		for (uint32_t n = 0; n < 60; n++) {
			assert_int_equal(put(n * BLOCKS, ABI_SQE_DURABLE), 0);
			assert_int_equal(drop(n * BLOCKS), 0);
			pause_ms(100);
		}
		off();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_cache_goes_round),
		cmocka_unit_test(test_the_cache_goes_round_in_what_is_left),
		cmocka_unit_test(test_deletions_make_room),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
