/*
 * Lanes: which order of leaving a block stands in, what one tenant's blocks do to another's, and
 * whose turn it is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 8u
#define CXL ABI_TIER_CXL

static int begin(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = 1u << 12;
	one_host_boot(&spec, 2);
	return 0;
}

/* Each is a prompt of its own. */
static void put(uint32_t client, uint64_t salt, uint32_t first)
{
	struct abi_put_args *args = (struct abi_put_args *)host.client[client].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE,
			       .count = RUN,
			       .context_id = host.context[0].id,
			       .arg_bytes = sizeof(*args) + RUN * ABI_KEY_BYTES };

	*args = (struct abi_put_args){ .count = RUN, .salt = salt };
	for (uint32_t i = 0; i < RUN; i++)
		host_key(first + i, (uint8_t *)(args + 1) + (size_t)i * ABI_KEY_BYTES);
	assert_true(host_request(&host, client, &sqe));
	assert_int_equal(host.answer.res, 0);
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = host.answer.value,
				.arg_offset = HOST_PUT_DATA };
	assert_true(host_request(&host, client, &sqe));
	assert_int_equal(host.answer.value, RUN);
}

/* One whose block left. */
static uint32_t slot_of_nobody(void)
{
	const struct context *x = context();

	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		if (!x->meta[slot].there[CXL].ordered)
			return slot;
	fail_msg("all slots are in use");
	return 0;
}

static uint32_t lane_at(uint32_t n)
{
	return block_lane(context(), slot_of(n));
}

static void share(enum core_holder who, uint64_t key, uint64_t soft)
{
	const struct core_quota q = { .who = who, .context_id = host.context[0].id, .key = key,
				      .tier = CXL, .limit = { soft, 0 } };

	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_look(&host);
}

static uint64_t block_size(void)
{
	return context()->spec.geometry.block_bytes;
}

/* The order in which a lane's blocks would leave; n of them. */
static uint32_t order_of(uint32_t lane, uint32_t slot[64])
{
	const struct policy_ops *policy = context()->lanes.policy;
	void *its = context()->lanes.state[CXL][lane];
	uint32_t n = 0;

	for (uint32_t at = policy->victim(its, ABI_SLOT_NONE); at != ABI_SLOT_NONE && n < 64;
	     at = policy->victim(its, at))
		slot[n++] = at;
	return n;
}

static void test_each_salt_has_a_lane(void **state)
{
	(void)state;
	put(0, 0, 0);
	put(0, 7, RUN);
	put(0, 8, 2 * RUN);
	put(1, 7, 3 * RUN);
	assert_int_equal(lane_at(0), 0);
	assert_true(lane_at(RUN) && lane_at(2 * RUN) && lane_at(RUN) != lane_at(2 * RUN));
	assert_int_equal(lane_at(3 * RUN), lane_at(RUN));
	for (uint32_t i = 0; i < 3 * LANES; i++) {
		put(0, 100 + i, (4 + i) * RUN);
		assert_true(lane_at((4 + i) * RUN) < LANES);
	}
	host_audit(&host);
}

/* What was put before a client had a share stays where it stands. */
static void test_clients_with_shares_have_lanes(void **state)
{
	uint32_t owner = host.core->client[1].owner;

	(void)state;
	put(1, 0, 0);
	share(CORE_HOLDER_CLIENT, 1, 4 * block_size());
	put(1, 0, RUN);
	put(1, 7, 2 * RUN);
	put(0, 0, 3 * RUN);
	assert_int_equal(lane_at(0), 0);
	assert_int_equal(lane_at(RUN), owner % LANES);
	assert_int_equal(lane_at(2 * RUN), block_account(context(), slot_of(2 * RUN)) % LANES);
	assert_int_equal(lane_at(3 * RUN), 0);
	host_audit(&host);
}

/* Neither order nor what was learnt is touched by what another tenant puts and uses. */
static void test_a_scan_teaches_others_nothing(void **state)
{
	uint32_t before[64], after[64], n, lane;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		put(0, 7, i * RUN);
	lane = lane_at(0);
	n = order_of(lane, before);
	assert_int_equal(n, 4 * RUN);
	for (uint32_t i = 4; i < 20; i++) {
		put(0, 8, i * RUN);
		for (uint32_t k = 0; k < RUN; k++)
			block_used(host.core, context(), slot_of(i * RUN + k), 1);
	}
	assert_int_equal(order_of(lane, after), n);
	assert_memory_equal(before, after, n * sizeof(*before));
}

static void test_who_is_most_over_gives_first(void **state)
{
	struct lane_order o;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		put(0, 7, i * RUN);
	lanes_by_need(&o, host.core, context(), &context()->lanes, CXL);
	assert_int_equal(o.count, 1);
	for (uint32_t i = 4; i < 12; i++)
		put(0, 8, i * RUN);
	for (uint32_t i = 12; i < 14; i++)
		put(0, 0, i * RUN);
	share(CORE_HOLDER_SALT, 7, block_size());
	share(CORE_HOLDER_SALT, 8, 60 * block_size());
	lanes_by_need(&o, host.core, context(), &context()->lanes, CXL);
	assert_int_equal(o.count, 3);
	assert_int_equal(o.lane[0], lane_at(0));
	assert_int_equal(o.over[0], (4 * RUN - 1) * block_size());
	assert_int_equal(o.lane[1], lane_at(4 * RUN));
	assert_int_equal(o.over[1], 4 * block_size());
	assert_int_equal(o.lane[2], 0);
	assert_true(o.over[2] < 0);
	assert_true(evict_some(host.core, context(), CXL, 8 * block_size()) > 0);
	assert_true(host_settle(&host, 100));
	assert_int_equal(quota_over(host.core, context(), block_account(context(), slot_of(32)),
				    CXL), 4 * block_size());
	assert_true(context()->salts.account[0].used[CXL] == 2 * RUN * block_size());
	host_audit(&host);
}

/* Where a walk ended stands a block of another lane by now: it begins anew. */
static void test_a_walk_that_ended_where_another_tenant_is_now(void **state)
{
	struct context *x = context();
	struct lanes *l = &x->lanes;

	(void)state;
	put(0, 7, 0);
	put(0, 8, RUN);
	share(CORE_HOLDER_SALT, 7, block_size());
	l->since_ns[CXL][RANK_OVER] = host.core->now_ns;
	l->cursor[CXL][RANK_OVER][lane_at(0)] = 1 + slot_of(RUN);
	assert_true(evict_some(host.core, x, CXL, 3 * block_size()) >= 3 * block_size());
	assert_true(host_settle(&host, 100));
	assert_int_equal(x->salts.account[block_account(x, slot_of(RUN))].used[CXL],
			 RUN * block_size());
	for (uint32_t i = 0; i < RUN; i++)
		assert_true(is_there(RUN + i));
	host_audit(&host);
}

/* A client at its limit: its blocks of all salts may go, in whatever lanes they stand. */
static void test_a_limit_of_a_client_goes_through_its_lanes(void **state)
{
	const struct core_quota q = { .who = CORE_HOLDER_CLIENT, .key = 1, .tier = CXL,
				      .limit = { 0, 4 * RUN * block_size() } };
	uint32_t owner = host.core->client[1].owner;

	(void)state;
	put(0, 9, 900);
	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_look(&host);
	for (uint32_t i = 0; i < 4; i++)
		put(1, 7 + i, i * RUN);
	assert_true(lane_at(0) != lane_at(RUN) && lane_at(RUN) != lane_at(2 * RUN));
	for (uint32_t i = 4; i < 8; i++) {
		put(1, 20, i * RUN);
		host.core->owners.account[owner].cursor[CXL] = 1 + slot_of_nobody();
	}
	for (uint32_t i = 0; i < 4 * RUN; i++)
		assert_false(is_there(i));
	assert_true(is_there(900));
	host_audit(&host);
}

/* Nothing is behind where the last walk ended: what is before it leaves in the same call. */
static void test_a_limit_of_a_client_goes_round(void **state)
{
	const struct core_quota q = { .who = CORE_HOLDER_CLIENT, .key = 1, .tier = CXL,
				      .limit = { 0, 2 * RUN * block_size() } };
	struct context *x = context();
	uint32_t owner = host.core->client[1].owner, order[64], lane[2], n;

	(void)state;
	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	for (uint32_t i = 0; i < 2; i++) {
		put(1, 7 + i, i * RUN);
		lane[i] = lane_at(i * RUN);
	}
	host_look(&host);
	n = order_of(lane[0] > lane[1] ? lane[0] : lane[1], order);
	host.core->owners.account[owner].cursor[CXL] = 1 + order[n - 1];
	assert_int_equal(x->retiring[CXL], 0);
	assert_int_equal(evict_account(host.core, x, slot_of(0), CXL, block_size()), 0);
	assert_true(x->retiring[CXL] >= block_size());
	assert_true(host_settle(&host, 100));
	host_audit(&host);
}

/* Tables for so much beside what the context takes while it is empty, of which it has 3/4. */
static void boot_with(uint64_t bytes)
{
	uint64_t empty = context()->plan.empty_bytes;
	struct disk_context spec;

	one_host_off(NULL);
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = 1u << 12;
	host.table_bytes = (empty + bytes) * 4 / 3 + 4;
	one_host_boot(&spec, 2);
}

static int end(void **state)
{
	host.table_bytes = 0;
	return one_host_off(state);
}

static int reserve(uint64_t salt, uint32_t first)
{
	const struct abi_put_args args = { .count = RUN, .salt = salt };
	int rc = host_reserve(&host, &args, first, 0);

	host_audit(&host);
	return rc ? rc : host.answer.res;
}

static uint64_t charged(void)
{
	return host.core->tables.bytes;
}

/* A lane is charged before it has a block; one that there is no room for has none. */
static void test_a_lane_without_room_is_refused(void **state)
{
	struct context *x = context();
	uint64_t one, before;

	(void)state;
	put(0, 0, 0);
	one = charged() - x->plan.empty_bytes;
	boot_with(2 * one + 2 * RUN * DESCS_GROUP_BYTES);
	x = context();
	assert_int_equal(reserve(0, 0), 0);
	before = charged();
	assert_int_equal(reserve(7, RUN), 0);
	assert_true(charged() >= before + one / 2);
	for (uint32_t lane = 0; lane < LANES; lane++)
		assert_null(x->lanes.state[CXL][lane]); /* nothing has come so far */
	before = charged();
	assert_int_equal(reserve(9, 2 * RUN), -ENOSPC);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_TIER, 1 + ABI_HELD_TABLES);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_LIMIT & 255, ABI_LIMIT_USER);
	assert_int_equal(__builtin_popcount(x->lanes.named), 2);
	assert_true(charged() < before + 4096); /* a slot was used */
	assert_int_equal(core_policy_set(host.core, x->id, "lru", 1), -EDQUOT);
	assert_null(x->former);
	host_audit(&host);
}

/* A context of eight runs of slots. */
static void boot_small(void)
{
	struct disk_context spec;

	one_host_off(NULL);
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = 8 * RUN;
	one_host_boot(&spec, 2);
}

/* One salt has three quarters of a context's slots at most, while others have some. */
static void test_a_salt_leaves_slots_to_others(void **state)
{
	(void)state;
	boot_small();
	assert_int_equal(reserve(9, 0), 0);
	for (uint32_t n = 1; n < 7; n++)
		assert_int_equal(reserve(7, n * RUN), 0);
	assert_int_equal(reserve(7, 7 * RUN), -ENOSPC);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_TIER, 1 + ABI_HELD_TABLES);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_LIMIT & 255, ABI_LIMIT_SALT);
	assert_int_equal(reserve(9, 7 * RUN), 0);
	assert_int_equal(context()->ix.slots_used, 8 * RUN);
	host_audit(&host);
}

/* Alone it has all of them. */
static void test_a_salt_alone_has_all_slots(void **state)
{
	(void)state;
	boot_small();
	for (uint32_t n = 0; n < 8; n++)
		assert_int_equal(reserve(7, n * RUN), 0);
	assert_int_equal(context()->ix.slots_used, 8 * RUN);
}

/* What blocks come to have while they are there was charged with their slots. */
static void test_what_blocks_have_later_is_charged_already(void **state)
{
	struct context *x = context();
	uint64_t before, touched;

	(void)state;
	put(0, 0, 0);
	put(0, 0, RUN); /* in their turn they have used the places that the others had */
	host_audit(&host);
	before = charged();
	touched = tables_of(x);
	for (uint32_t i = 0; i < 2 * RUN; i++)
		block_hold(x, slot_of(i));
	assert_true(tables_of(x) > touched);
	tables_count(host.core, x);
	assert_int_equal(charged(), before);
	for (uint32_t i = 0; i < 2 * RUN; i++)
		block_unhold(host.core, x, slot_of(i));
	host_audit(&host);
}

/* An instance counts once it has had a block. */
static void test_memory_of_lanes(void **state)
{
	struct context *x = context();
	uint64_t bytes;

	(void)state;
	put(0, 0, 0);
	bytes = lanes_bytes(&x->lanes, x->ix.slots_used);
	for (uint32_t lane = 1; lane < LANES; lane++)
		assert_null(x->lanes.state[CXL][lane]);
	put(0, 7, RUN);
	assert_true(lanes_bytes(&x->lanes, x->ix.slots_used) > bytes + bytes / 2);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_each_salt_has_a_lane),
		CASE(test_clients_with_shares_have_lanes),
		CASE(test_a_scan_teaches_others_nothing),
		CASE(test_who_is_most_over_gives_first),
		CASE(test_a_walk_that_ended_where_another_tenant_is_now),
		CASE(test_a_limit_of_a_client_goes_through_its_lanes),
		CASE(test_a_limit_of_a_client_goes_round),
		CASE(test_memory_of_lanes),
		cmocka_unit_test_setup_teardown(test_a_lane_without_room_is_refused, begin, end),
		CASE(test_what_blocks_have_later_is_charged_already),
		CASE(test_a_salt_leaves_slots_to_others),
		CASE(test_a_salt_alone_has_all_slots),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
