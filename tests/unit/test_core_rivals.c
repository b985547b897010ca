/*
 * Puts of several clients, begun together, that in sum need more than CXL holds: each of them fits,
 * so each gets its turn, in bounded time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define PUTS 9u
#define BLOCK (16u << 10)
#define CXL (2 * ABI_HUGE + 2 * BLOCK) /* 256 blocks: the least that there may be */
#define SIXTH 60u   /* blocks of a put: all six need 140 % */
#define THIRD 102u  /* ... all three 120 % */
#define SMALL 34u   /* can be dirty at once */
#define STAGING (2u << 20)
#define DATA 8192u /* in staging, behind a put's arguments */
#define NVME ((8u << 10) + 2 * HOST_CATALOG + (HOST_SEGMENTS * 4ull << 20))

static struct abi_cqe answer[PUTS];
static uint64_t answered_ns[PUTS];
static uint8_t *staging[HOST_CLIENTS]; /* the clients' own */

static void hear(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	answer[cqe->user_data] = *cqe;
	answered_ns[cqe->user_data] = host.now_ns;
}

static int set_up(void **state)
{
	struct disk_context spec;

	(void)state;
	one_host_disk(NVME, HOST_SEGMENTS, 4u << 20, 256u << 10);
	host.staging_bytes = STAGING;
	for (uint32_t i = 0; i < HOST_CLIENTS; i++) {
		staging[i] = host.client[i].staging;
		host.client[i].staging = aligned_alloc(4096, STAGING);
		assert_non_null(host.client[i].staging);
	}
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 2000;
	spec.quota[ABI_TIER_CXL] = CXL;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, HOST_CLIENTS);
	host.ears.complete = hear;
	return 0;
}

static int tear_down(void **state)
{
	host.ears.complete = NULL;
	one_host_off(state);
	one_host_disk_back();
	host.staging_bytes = HOST_STAGING;
	for (uint32_t i = 0; i < HOST_CLIENTS; i++) {
		free(host.client[i].staging);
		host.client[i].staging = staging[i];
	}
	return 0;
}

static void reserve(uint32_t i, uint32_t blocks, uint16_t flags)
{
	const struct abi_put_args args = { .count = blocks };
	uint8_t *at = host.client[i % HOST_CLIENTS].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = flags, .count = blocks,
			       .user_data = i };

	memcpy(at, &args, sizeof(args));
	for (uint32_t n = 0; n < blocks; n++)
		host_key(i * blocks + n, at + sizeof(args) + (size_t)n * ABI_KEY_BYTES);
	sqe.context_id = host.context[0].id;
	sqe.arg_bytes = (uint32_t)(sizeof(args) + (size_t)blocks * ABI_KEY_BYTES);
	assert_true(host_request(&host, i % HOST_CLIENTS, &sqe));
	assert_int_equal(answer[i].res, 0);
}

static void commit(uint32_t i, uint16_t flags)
{
	const struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT, .flags = flags, .user_data = i,
				     .handle = answer[i].value, .arg_offset = DATA,
				     .deadline_ns = host.now_ns + 10000 * MS };

	answer[i].res = 1;
	assert_true(host_request(&host, i % HOST_CLIENTS, &sqe));
}

/* All begin at once, and each goes on as its copies end, one after another. */
static void race(uint32_t puts, uint32_t blocks, uint16_t flags)
{
	uint64_t begin;

	host.held = false;
	for (uint32_t i = 0; i < puts; i++)
		reserve(i, blocks, flags);
	host.held = true;
	for (uint32_t i = 0; i < puts; i++)
		commit(i, flags);
	begin = host.now_ns;
	for (uint32_t i = 0; i < 12000; i++) {
		for (uint32_t n = 0; n < 8 && host.bag_count; n++)
			host_carry(&host, 0);
		host_tick(&host, MS);
	}
	for (uint32_t i = 0; i < puts; i++) {
		assert_int_equal(answer[i].res, 0);
		assert_true(answered_ns[i] < begin + 2000 * MS);
		if (flags & ABI_SQE_DURABLE)
			assert_int_equal(answer[i].value, blocks);
	}
	host_audit(&host);
}

static void test_durable_puts_get_their_turns(void **state)
{
	(void)state;
	race(6, SIXTH, ABI_SQE_DURABLE);
}

static void test_other_puts_get_their_turns(void **state)
{
	(void)state;
	race(6, SIXTH, 0);
}

/* Each copies a part, and none could go on if it held that until it is all durable. */
static void test_large_puts_get_their_turns(void **state)
{
	(void)state;
	race(3, THIRD, ABI_SQE_DURABLE);
}

/* What the cache has of them is not promised yet: it stays until it is in the durable log. */
static void test_what_is_made_durable_gets_its_turn(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * THIRD / SMALL; i++) {
		host.held = false;
		reserve(i, SMALL, 0);
		commit(i, 0);
		for (uint32_t ms = 0; ms < 300; ms++)
			host_tick(&host, MS);
	}
	assert_int_equal(host.core->metrics.puts_dropped, 0);
	assert_int_equal(core_evict(host.core, host.context[0].id, ABI_TIER_CXL, CXL, 1), 0);
	host_tick(&host, 100 * MS);
	race(3, THIRD, ABI_SQE_DURABLE);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_durable_puts_get_their_turns),
		EACH(test_other_puts_get_their_turns),
		EACH(test_large_puts_get_their_turns),
		EACH(test_what_is_made_durable_gets_its_turn),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
