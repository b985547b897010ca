/*
 * Plans, carried out: each access finds its block, in a tier that holds a few of them; times that
 * were given are kept to; a plan that its reader does not follow is let go; and a position word is
 * within the client's own memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 40u
#define BUDGET 12u   /* blocks */
#define AT 4096u     /* in the staging: arguments; the position stands at its start */
#define ACCESSES 120u /* three times all of them */

static struct abi_block_ref block(uint32_t n)
{
	uint8_t key[ABI_KEY_BYTES];
	struct abi_block_ref ref;

	host_key(n % BLOCKS, key);
	ref.slot = index_find(&context()->ix, key);
	ref.generation = index_block(&context()->ix, ref.slot)->generation;
	return ref;
}

/* Blocks that are on NVMe alone. */
static int begin(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS };
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.value, BLOCKS);
	assert_int_equal(core_evict(host.core, context()->id, ABI_TIER_CXL, UINT64_MAX, 1), 0);
	host_look(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 0);
	return 0;
}

/* BEGIN (plan 0) or APPEND accesses [first, end), one every each_us when that is not 0. */
static struct abi_cqe plan_as(uint32_t client, uint64_t number, uint64_t position_offset,
			      uint32_t first, uint32_t end, uint32_t each_us)
{
	struct abi_plan_args args = { .position_offset = position_offset,
				      .start_ns = each_us ? host.now_ns : 0,
				      .access_ns = each_us ? 0 : MS };
	struct abi_sqe sqe = { .op = ABI_OP_PLAN, .tier = ABI_TIER_CXL, .handle = number,
			       .mode = number ? ABI_PLAN_APPEND : ABI_PLAN_BEGIN,
			       .arg_offset = AT, .count = end - first };
	uint8_t *at = host.client[client].staging + AT;

	args.budget_bytes = BUDGET * context()->spec.geometry.block_bytes;
	sqe.context_id = context()->id;
	if (!number) {
		memcpy(at, &args, sizeof(args));
		at += sizeof(args);
	}
	for (uint32_t i = first; i < end; i++, at += sizeof(struct abi_access)) {
		const struct abi_access a = { .block = block(i), .time_us = i * each_us };

		memcpy(at, &a, sizeof(a));
	}
	sqe.arg_bytes = (uint32_t)(at - host.client[client].staging) - AT;
	assert_true(host_request(&host, client, &sqe));
	return host.answer;
}

static struct abi_cqe plan(uint64_t number, uint64_t position_offset, uint32_t first, uint32_t end,
			   uint32_t each_us)
{
	return plan_as(0, number, position_offset, first, end, each_us);
}

static bool is_in_cxl(uint32_t access)
{
	return context()->meta[block(access).slot].there[ABI_TIER_CXL].pages ==
	       context()->ix.pages_per_block;
}

/*
 * The reader comes to this access; and says that it reads, if it does. Was the block there then,
 * after the core had seen that it is its turn?
 */
static bool arrive(uint32_t access, bool reads)
{
	uint64_t position = access;
	bool found;

	memcpy(host.client[0].staging, &position, sizeof(position));
	host_tick(&host, MS / 2);
	found = is_in_cxl(access);
	if (reads) {
		const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL };
		struct abi_sqe one = sqe;
		struct abi_block_ref ref = block(access);

		memcpy(host.client[0].staging + AT, &ref, sizeof(ref));
		one.context_id = context()->id;
		one.arg_offset = AT;
		one.arg_bytes = sizeof(ref);
		one.count = 1;
		assert_true(host_request(&host, 0, &one));
	}
	host_tick(&host, MS / 2);
	return found;
}

/* Returns how many of the accesses found their block, the first few aside. */
static uint32_t read_all(void)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < ACCESSES; i++) {
		found += arrive(i, true) && i >= 8;
		assert_true(context()->pages_resident[ABI_TIER_CXL] <=
			    (BUDGET + 2) * context()->ix.pages_per_block);
	}
	return found;
}

/* Whose limit it is, and how many of how many. */
static void assert_refused(struct abi_cqe answer, uint64_t limit, uint64_t used, uint64_t most)
{
	assert_int_equal(answer.res, -ENOBUFS);
	assert_int_equal(answer.aux >> 8 * ABI_HELD_LIMIT, limit);
	assert_int_equal(answer.aux >> ABI_FULL_USED & UINT16_MAX, used);
	assert_int_equal(answer.aux >> ABI_FULL_MOST & UINT16_MAX, most);
}

/* Two of a connection, six of a user's, and the last two for others. */
static void test_a_user_leaves_plans_to_others(void **state)
{
	struct client *k = &host.core->client[0];

	(void)state;
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	one_host_other_user(2);
	assert_int_equal(plan_as(0, 0, 0, 0, 2, 0).res, 0);
	assert_int_equal(plan_as(0, 0, 8, 0, 2, 0).res, 0);
	assert_refused(plan_as(0, 0, 16, 0, 2, 0), ABI_LIMIT_CLIENT, PLANS_CLIENT_MAX,
		       PLANS_CLIENT_MAX);
	host.core->accounts.table[k->account].used[ACCOUNT_PLANS] += 3; /* of connections more */
	assert_int_equal(plan_as(1, 0, 0, 0, 2, 0).res, 0);
	assert_refused(plan_as(1, 0, 8, 0, 2, 0), ABI_LIMIT_USER, 6, PLANS_MAX);
	assert_int_equal(plan_as(2, 0, 0, 0, 2, 0).res, 0);
	assert_int_equal(plan_as(2, 0, 8, 0, 2, 0).res, 0);
	host.core->accounts.table[k->account].used[ACCOUNT_PLANS] -= 3;
	host_audit(&host);
	host_client_gone(&host, 0);
	assert_int_equal(plan_as(1, 0, 8, 0, 2, 0).res, 0);
	host_audit(&host);
}

static void test_each_access_finds_its_block(void **state)
{
	uint64_t id = plan(0, 0, 0, 50, 0).value;

	(void)state;
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(plan(id, 0, 50, ACCESSES, 0).res, 0);
	assert_in_range(read_all(), ACCESSES - 8 - 2, ACCESSES - 8);
	assert_int_equal(host.core->metrics.plans_wrong, 0);
	/* More than half of what does not fit is loaded each time, not all of it (Belady). */
	assert_in_range(host.core->metrics.plan_loads, 2 * (BLOCKS - BUDGET), 3 * BLOCKS - BUDGET);
	host_audit(&host);
}

/* An access of an hour from now is of no use to anybody now, also one that was told of later. */
static void test_nothing_comes_long_before_its_time(void **state)
{
	uint64_t id = plan(0, 0, 0, 4, 500000).value;

	(void)state;
	assert_int_equal(plan(id, 0, 4, 8, 500000).res, 0);
	for (uint32_t ms = 0; ms < 900; ms++)
		host_tick(&host, MS);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(is_in_cxl(i), i < 2);
	for (uint32_t ms = 900; ms < 2600; ms++)
		host_tick(&host, MS);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(is_in_cxl(i), i < 6);
}

/* Before anything is measured, the client's word on how fast it reads says what its time is. */
static void test_the_pace_is_what_the_client_says(void **state)
{
	(void)state;
	assert_int_equal(plan(0, 0, 0, 8, 0).res, 0); /* one each ms */
	host_tick(&host, MS);
	assert_true(is_in_cxl(0));
	assert_false(is_in_cxl(7));
}

/* Also when most of what it brings has left again before it is looked at. It lets go once. */
static void test_a_plan_that_is_not_followed_is_let_go(void **state)
{
	(void)state;
	assert_int_equal(plan(0, 0, 0, ACCESSES, 0).res, 0);
	for (uint32_t i = 0; i < ACCESSES; i++)
		arrive(i, false);
	assert_int_equal(host.core->metrics.plans_wrong, 1);
	assert_true(host.core->metrics.plan_loads < BLOCKS);
	/* Of marks that others set then, none is its own to take. */
	for (uint32_t n = 0; n < BLOCKS; n++)
		plan_mark(context(), block(n), ABI_TIER_CXL, true);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, 50 * MS);
	for (uint32_t n = 0; n < BLOCKS; n++) {
		assert_int_equal(block_use(context(), block(n).slot)->planned[ABI_TIER_CXL], 1);
		plan_mark(context(), block(n), ABI_TIER_CXL, false);
	}
	host_audit(&host);
}

static void test_the_position_is_in_the_clients_memory(void **state)
{
	(void)state;
	assert_int_equal(plan(0, HOST_STAGING - 8, 0, 1, 0).res, 0);
	assert_int_equal(plan(0, HOST_STAGING, 0, 1, 0).res, -EFAULT);
	assert_int_equal(plan(0, UINT64_MAX - 7, 0, 1, 0).res, -EFAULT);
	assert_int_equal(plan(0, 4, 0, 1, 0).res, -EFAULT);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_a_user_leaves_plans_to_others),
		CASE(test_each_access_finds_its_block),
		CASE(test_nothing_comes_long_before_its_time),
		CASE(test_the_pace_is_what_the_client_says),
		CASE(test_a_plan_that_is_not_followed_is_let_go),
		CASE(test_the_position_is_in_the_clients_memory),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
