/*
 * A fetch that waits for pages that another request brings: when that fails, it brings them itself,
 * all at once. And how the pages of fetches are counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 6u /* of one run, side by side in the store */

static struct context *context(void)
{
	return core_context(host.core, host.context[0].id);
}

/* Blocks that are on NVMe alone. */
static int setup(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS };
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 2);
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.value, BLOCKS);
	assert_int_equal(core_evict(host.core, host.context[0].id, ABI_TIER_CXL, UINT64_MAX, 1), 0);
	host_look(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 0);
	host.held = true;
	return 0;
}

static void ask(uint32_t client, uint8_t op, uint8_t klass)
{
	const struct abi_sqe sqe = { .op = op, .klass = klass, .tier = ABI_TIER_CXL };

	assert_true(host_request_keys(&host, client, sqe, 0, BLOCKS));
}

static uint64_t bytes_under_way(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < host.bag_count; i++)
		bytes += host.bag[i].kind == CORE_AC_READ ? host.bag[i].io->bytes : 0;
	return bytes;
}

static void test_what_another_lost_is_brought_at_once(void **state)
{
	uint64_t all = BLOCKS * context()->spec.geometry.block_bytes;

	(void)state;
	ask(0, ABI_OP_PREFETCH, ABI_CLASS_SPECULATIVE);
	assert_int_equal(bytes_under_way(), all);
	ask(1, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(bytes_under_way(), all); /* it waits for these */
	assert_int_equal(host.bag_count, 1);
	host.fault = HOST_FAILS;
	host_carry(&host, 0);
	assert_int_equal(bytes_under_way(), all);
	host_carry_all(&host);
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, BLOCKS);
}

/* Each page is counted once, as it was found: absent, on its way, there. */
static void test_pages_are_counted_as_they_were_found(void **state)
{
	const struct core_metrics *m = core_metrics(host.core);
	uint64_t pages = BLOCKS * (uint64_t)context()->ix.pages_per_block;

	(void)state;
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(m->fetch_pages, pages);
	assert_int_equal(m->fetch_joined + m->fetch_hits, 0);
	ask(1, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(m->fetch_joined, pages);
	host_carry_all(&host);
	assert_int_equal(host.answer.value, BLOCKS);
	assert_int_equal(m->fetch_hits, 0);
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(m->fetch_hits, pages);
	assert_int_equal(m->fetch_joined, pages);
	assert_int_equal(m->fetch_pages, 3 * pages);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, one_host_off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_what_another_lost_is_brought_at_once),
		EACH(test_pages_are_counted_as_they_were_found),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
