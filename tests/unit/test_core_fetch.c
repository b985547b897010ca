/*
 * A fetch that waits for pages that another request brings: when that fails, it brings them itself,
 * all at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/fuzz/host.h"
#include "tests/lib/unit.h"
#include "tierd/core/state.h"

#define BLOCKS 6u /* of one run, side by side in the store */

static struct host host;

static int once(void **state)
{
	(void)state;
	host_init(&host);
	return 0;
}

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
	host_boot(&host, NULL);
	host_spec(&spec, HOST_KIND_STORE, 0);
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	for (uint32_t i = 0; i < 2; i++) {
		host_client_open(&host, i);
		host_client_attach(&host, i);
	}
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

static int teardown(void **state)
{
	(void)state;
	host_empty(&host);
	host_halt(&host);
	return 0;
}

static void ask(uint32_t client, uint8_t op, uint8_t klass)
{
	struct abi_sqe sqe = { .op = op, .klass = klass, .flags = ABI_SQE_KEYS,
			       .tier = ABI_TIER_CXL };

	for (uint32_t i = 0; i < BLOCKS; i++)
		host_key(i, host.client[client].staging + i * ABI_KEY_BYTES);
	sqe.context_id = host.context[0].id;
	sqe.count = BLOCKS;
	sqe.arg_bytes = BLOCKS * ABI_KEY_BYTES;
	assert_true(host_request(&host, client, &sqe));
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

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_what_another_lost_is_brought_at_once),
	};

	return cmocka_run_group_tests(tests, once, NULL);
}
