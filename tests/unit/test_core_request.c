/*
 * Orders and foresight of one client: a cancel ends what it names and nothing else, a drain waits
 * for what was begun before it, parked prefetches are bounded, and a reservation is its client's in
 * its context.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define ANSWERS 16u

static struct abi_cqe answer[ANSWERS]; /* by user_data; .res 1 = none came */

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	assert_in_range(cqe->user_data, 0, ANSWERS - 1);
	answer[cqe->user_data] = *cqe;
}

static int begin(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 2);
	host.ears.complete = complete;
	for (uint32_t i = 0; i < ANSWERS; i++)
		answer[i].res = 1;
	return 0;
}

static void prefetch(uint32_t client, uint64_t name, uint64_t in_ns)
{
	const struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .user_data = name,
				     .tier = ABI_TIER_CXL, .klass = ABI_CLASS_DEADLINE,
				     .deadline_ns = host.now_ns + in_ns };

	assert_true(host_request_keys(&host, client, sqe, 0, 1));
}

static void order(uint32_t client, uint8_t op, uint64_t name, uint64_t target)
{
	const struct abi_sqe sqe = { .op = op, .user_data = name, .handle = target };

	assert_true(host_request(&host, client, &sqe));
}

static void store(void)
{
	const struct abi_put_args args = { .count = 1 };

	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 100));
	answer[0].res = 1;
}

/* The same, and it is on NVMe alone. */
static void store_cold(void)
{
	store();
	core_evict(host.core, host.context[0].id, ABI_TIER_CXL, UINT64_MAX, 1);
	host_look(&host);
	assert_true(host_settle(&host, 100));
}

static void test_a_cancel_ends_what_it_names(void **state)
{
	(void)state;
	store();
	prefetch(0, 1, 5000 * MS);
	prefetch(0, 2, 5000 * MS);
	prefetch(1, 3, 5000 * MS);
	order(1, ABI_OP_CANCEL, 4, 1);
	assert_int_equal(answer[4].res, -ENOENT);
	order(0, ABI_OP_CANCEL, 5, 1);
	assert_int_equal(answer[1].res, -ECANCELED);
	assert_int_equal(answer[5].res, 0);
	host_tick(&host, 10 * MS);
	assert_int_equal(answer[2].res, 1);
	assert_int_equal(answer[3].res, 1);
}

/* The device answers nothing: who reads is told so at the deadline, and its read goes on. */
static void test_a_device_that_hangs_is_a_miss_at_the_deadline(void **state)
{
	struct abi_sqe fetch = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .user_data = 1 };

	(void)state;
	store_cold();
	host.held = true;
	fetch.deadline_ns = host.now_ns + 50 * MS;
	assert_true(host_request_keys(&host, 0, fetch, 0, 1));
	host_tick(&host, 40 * MS);
	assert_int_equal(answer[1].res, 1);
	host_tick(&host, 20 * MS);
	assert_int_equal(answer[1].res, 0);
	assert_int_equal(answer[1].status, ABI_STATUS_LATE);
	assert_int_equal(answer[1].value, 0);
	host.held = false;
	host_carry_all(&host);
	host_audit(&host);
	fetch.user_data = 2;
	fetch.deadline_ns = 0;
	assert_true(host_request_keys(&host, 0, fetch, 0, 1));
	assert_int_equal(answer[2].status, ABI_STATUS_READY);
	assert_int_equal(answer[2].value, 1);
}

static void test_a_drain_waits_for_what_was_before_it(void **state)
{
	const struct abi_sqe fetch = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .user_data = 1 };

	(void)state;
	store_cold();
	host.held = true;
	assert_true(host_request_keys(&host, 0, fetch, 0, 1));
	order(0, ABI_OP_DRAIN, 2, 0);
	prefetch(0, 3, 60000 * MS);
	prefetch(1, 4, 60000 * MS);
	assert_int_equal(answer[2].res, 1);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(answer[1].res, 0);
	assert_int_equal(answer[2].res, 0);
	assert_int_equal(answer[3].res, 1);
	assert_int_equal(answer[4].res, 1);
}

/* A parked prefetch is no byte on its way until it is due, and may be minutes off; begun, it is. */
static void test_a_drain_leaves_prefetches_that_are_not_due(void **state)
{
	(void)state;
	store_cold();
	prefetch(0, 1, 50 * MS);
	prefetch(0, 2, 60000 * MS);
	order(0, ABI_OP_DRAIN, 3, 0);
	assert_int_equal(answer[3].res, 0);
	assert_int_equal(answer[1].res, 1);
	host.held = true;
	while (host.core->parked.count == 2) /* until the first is due */
		host_tick(&host, MS / 4);
	assert_int_equal(answer[1].res, 1);
	order(0, ABI_OP_DRAIN, 4, 0);
	assert_int_equal(answer[4].res, 1);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(answer[1].res, 0);
	assert_int_equal(answer[4].res, 0);
	assert_int_equal(answer[2].res, 1);
	assert_int_equal(host.core->parked.count, 1);
}

static void test_parked_prefetches_are_bounded(void **state)
{
	(void)state;
	store();
	prefetch(0, 1, PARK_HORIZON_NS + 1000 * MS);
	assert_int_equal(answer[1].status, ABI_STATUS_DROPPED);
	for (uint32_t i = 0; i < PARKED_CLIENT_MAX; i++)
		prefetch(0, 2, 60000 * MS);
	assert_int_equal(answer[2].res, 1);
	prefetch(0, 3, 60000 * MS);
	assert_int_equal(answer[3].status, ABI_STATUS_DROPPED);
	assert_int_equal(answer[3].aux >> 8 * ABI_HELD_LIMIT, ABI_LIMIT_CLIENT);
	prefetch(1, 4, 60000 * MS);
	assert_int_equal(answer[4].res, 1);
	/* The next client in the place of one that went begins with none. */
	host_client_gone(&host, 0);
	host_client_dead(&host, 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	assert_int_equal(host.core->client[0].used[ACCOUNT_PARKED], 0);
	assert_int_equal(host.core->parked.count, 1);
}

static uint8_t whose(uint64_t name)
{
	assert_int_equal(answer[name].status, ABI_STATUS_DROPPED);
	return (uint8_t)(answer[name].aux >> 8 * ABI_HELD_LIMIT);
}

/* All connections of a user together get three quarters, with what is parked for conversations. */
static void test_a_user_leaves_parked_prefetches_to_others(void **state)
{
	const uint32_t most = PARKED_MAX / 4 * 3;
	uint32_t account = host.core->client[0].account;

	(void)state;
	store();
	one_host_other_user(2);
	for (uint32_t i = 0; i < most - 1; i++)
		account_take_for(host.core, account, ACCOUNT_PARKED);
	prefetch(0, 1, 60000 * MS);
	assert_int_equal(answer[1].res, 1);
	prefetch(0, 2, 60000 * MS);
	assert_int_equal(whose(2), ABI_LIMIT_USER);
	assert_int_equal(answer[2].aux & UINT32_MAX, PARKED_MAX << ABI_FULL_MOST | most);
	prefetch(1, 3, 60000 * MS); /* of the same user */
	assert_int_equal(whose(3), ABI_LIMIT_USER);
	prefetch(2, 4, 60000 * MS);
	assert_int_equal(answer[4].res, 1);
	order(0, ABI_OP_CANCEL, 5, 1);
	assert_int_equal(answer[1].res, -ECANCELED);
	prefetch(1, 6, 60000 * MS);
	assert_int_equal(answer[6].res, 1);
	for (uint32_t i = 0; i < most - 1; i++)
		account_give(host.core, account, NULL, ACCOUNT_PARKED);
	host_audit(&host);
}

/* The deadline is judged once: what is all there is protected, or it is late. */
static void test_a_parked_prefetch_is_protected_or_late(void **state)
{
	const uint64_t after_ns[] = { 1, 90 * MS, 200 * MS };
	struct core_pin_view pin;

	(void)state;
	store();
	for (uint32_t i = 0; i < 3; i++) {
		bool late = i == 2; /* by more than it would have been protected for */

		prefetch(0, i + 1, 50 * MS);
		host_tick(&host, 50 * MS + after_ns[i]);
		assert_int_equal(answer[i + 1].res, 0);
		assert_int_equal(answer[i + 1].value, 1);
		assert_int_equal(answer[i + 1].status, late ? ABI_STATUS_LATE : ABI_STATUS_READY);
		assert_int_equal(answer[i + 1].aux, !late);
		assert_int_equal(core_pin_view(host.core, 0, &pin), late ? -ENOENT : 0);
		host_tick(&host, 200 * MS);
		assert_int_equal(core_pin_view(host.core, 0, &pin), -ENOENT);
	}
}

/* A put under a reservation, or its handing back: errors or 0. */
static int use(uint32_t client, uint32_t context, uint8_t op, uint64_t reservation)
{
	const struct abi_put_args args = { .count = 1 };
	uint8_t *at = host.client[client].staging;
	struct abi_sqe sqe = { .op = op, .handle = reservation, .user_data = 1, .count = 1 };

	sqe.context_id = host.context[context].id;
	if (op == ABI_OP_PUT_RESERVE) {
		memcpy(at, &args, sizeof(args));
		host_key(900, at + sizeof(args));
		sqe.arg_bytes = sizeof(args) + ABI_KEY_BYTES;
	}
	assert_true(host_request(&host, client, &sqe));
	return answer[1].res;
}

static void test_a_reservation_is_its_clients(void **state)
{
	const struct abi_reserve_args args = { .expected = 2, .p95 = 4, .step = 1 };
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .count = 1, .arg_bytes = sizeof(args) };
	struct disk_context spec;
	uint64_t id;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 1);
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	host_client_attach(&host, 1);
	sqe.context_id = host.context[0].id;
	sqe.user_data = 2;
	memcpy(host.client[0].staging, &args, sizeof(args));
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer[2].res, 0);
	id = answer[2].value;
	assert_int_equal(use(1, 0, ABI_OP_PUT_RESERVE, id), -ENOENT);
	assert_int_equal(use(0, 1, ABI_OP_PUT_RESERVE, id), -ENOENT);
	assert_int_equal(use(1, 0, ABI_OP_RESERVE, id), -ENOENT);
	assert_int_equal(use(0, 1, ABI_OP_RESERVE, id), -ENOENT);
	assert_int_equal(use(0, 0, ABI_OP_PUT_RESERVE, id), 0);
	assert_int_equal(use(0, 0, ABI_OP_RESERVE, id), 0);
	assert_int_equal(use(0, 0, ABI_OP_RESERVE, id), -ENOENT);
}

/* All of them that are there, beside those that it has: what a former daemon's client had. */
static void test_a_client_is_attached_to_all_it_had(void **state)
{
	uint64_t bits[ABI_CONTEXTS_MAX / 64] = { 0 }, then[ABI_CONTEXTS_MAX / 64];
	struct disk_context spec;
	struct context *x[2];

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 1);
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	for (uint32_t i = 0; i < 2; i++)
		x[i] = core_context(host.core, host.context[i].id);
	bits[0] = 7; /* the third is none */
	core_client_attach_all(host.core, 1, bits);
	core_client_attached(host.core, 1, then);
	bits[0] = 3;
	assert_memory_equal(then, bits, sizeof(bits));
	assert_int_equal(x[0]->attached, 2);
	assert_int_equal(x[1]->attached, 1);
	bits[0] = 0;
	core_client_attach_all(host.core, 0, bits);
	assert_int_equal(x[1]->attached, 1);
	host_audit(&host);
	host_client_gone(&host, 1);
	host_client_dead(&host, 1);
	assert_int_equal(x[0]->attached, 1);
	assert_int_equal(x[1]->attached, 0);
	bits[0] = 2;
	core_client_attach_all(host.core, 1, bits); /* it has gone */
	assert_int_equal(x[1]->attached, 0);
}

/* Where a plan's position would lie outside of the arena, and more of a tier than there is. */
static void test_a_plan_asks_for_what_there_is(void **state)
{
	struct abi_plan_args args = { .position_offset = HOST_STAGING };
	struct abi_sqe sqe = { .op = ABI_OP_PLAN, .mode = ABI_PLAN_BEGIN, .count = 1,
			       .tier = ABI_TIER_CXL, .user_data = 1,
			       .arg_bytes = sizeof(args) + sizeof(struct abi_access) };

	(void)state;
	sqe.context_id = host.context[0].id;
	memset(host.client[0].staging, 0, sqe.arg_bytes);
	for (uint64_t at = HOST_STAGING - 4096; at <= HOST_STAGING; at += 8) {
		args.position_offset = at;
		args.budget_bytes = 1ull << 50;
		memcpy(host.client[0].staging, &args, sizeof(args));
		assert_true(host_request(&host, 0, &sqe));
		assert_int_equal(answer[1].res, at == HOST_STAGING ? -EFAULT : -EINVAL);
	}
	assert_int_equal(host.core->plans.count, 0);
}

/* What a client says that it has read counts only where it may read. */
static void test_nobody_speaks_for_a_context_of_others(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	uint8_t key[ABI_KEY_BYTES];
	uint64_t word;

	(void)state;
	store();
	host_key(0, key);
	word = abi_access(x->id, index_find(&x->ix, key), 1);
	host_client_open(&host, 2); /* attached to nothing */
	for (uint32_t i = 0; i < 2; i++) {
		struct abi_reader *r = host.client[i ? 0 : 2].readers;

		r->access[r->access_tail++ % ABI_ACCESS_LOG] = word;
		evict_drain_logs(host.core);
		assert_int_equal(host.core->metrics.leased_bytes > 0, i);
	}
	assert_int_equal(host.core->metrics.access_entries, 2);
}

/* Of the smallest segments that an operator gets: the cleaner empties one into another. */
static void test_a_segment_holds_the_queue_of_deletions(void **state)
{
	struct disk_super super;

	(void)state;
	assert_int_equal(store_super_plan(&super, 64u << 20, 1u << 20, 1), 0);
	assert_true((super.summary_bytes / DISK_SECTOR - 1) * STORE_TOMBSTONE_KEYS_MAX >=
		    TOMBS_MAX);
}

/* Of the store an answer of -ENOSPC says how much of the context's quota is taken. */
static void test_a_full_store_is_named(void **state)
{
	const struct context *x = core_context(host.core, host.context[0].id);
	uint64_t held;

	(void)state;
	store();
	held = quota_holders(host.core, x, ABI_TIER_NVME);
	assert_int_equal(held >> 8 * ABI_HELD_TIER, 1 + ABI_TIER_NVME);
	assert_int_equal(held >> 8 * ABI_HELD_USED & 0xff,
			 x->nvme_bytes * 100 / x->plan.quota[ABI_TIER_NVME]);
	assert_true(x->nvme_bytes > 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_a_cancel_ends_what_it_names),
		CASE(test_a_device_that_hangs_is_a_miss_at_the_deadline),
		CASE(test_a_drain_waits_for_what_was_before_it),
		CASE(test_a_drain_leaves_prefetches_that_are_not_due),
		CASE(test_parked_prefetches_are_bounded),
		CASE(test_a_user_leaves_parked_prefetches_to_others),
		CASE(test_a_parked_prefetch_is_protected_or_late),
		CASE(test_a_reservation_is_its_clients),
		CASE(test_a_client_is_attached_to_all_it_had),
		CASE(test_a_plan_asks_for_what_there_is),
		CASE(test_nobody_speaks_for_a_context_of_others),
		CASE(test_a_segment_holds_the_queue_of_deletions),
		CASE(test_a_full_store_is_named),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
