/*
 * What happens to the blocks behind one that leaves: they follow, however many there are, a bounded
 * number at a time; what is pinned or durable stays as long as it is; what is put again behind a
 * new parent stays; and a restart brings none back alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define NONE UINT32_MAX
#define LONG_MS 2000u /* far behind all deadlines */
#define ABSENT 1000u /* keys from here on are never put */
#define MSEC 1000000ull
#define WIDE_RUN 16u
#define WIDE_RUNS 25u
#define PAIRS 20u
#define STEP 256u /* blocks that leave in one event, at most: prefix.c */

/* Blocks [first, first + count) of which the first stands behind block `parent` at `depth`. */
static void put(uint32_t first, uint32_t count, uint32_t parent, uint32_t depth, uint16_t flags)
{
	struct abi_put_args args = { .count = count, .depth = depth };

	if (parent != NONE)
		host_key(parent, args.parent);
	assert_int_equal(host_reserve(&host, &args, first, flags), 0);
	assert_true(host_commit(&host, flags));
	host_settle(&host, 40);
	assert_int_equal(host.answer.res, 0);
}

static uint64_t by_key(uint32_t op, uint32_t n)
{
	struct abi_sqe sqe = { .op = (uint16_t)op, .flags = ABI_SQE_KEYS, .count = 1,
			       .tier = ABI_TIER_CXL, .arg_bytes = ABI_KEY_BYTES };

	sqe.context_id = host.context[0].id;
	host_key(n, host.client[0].staging);
	assert_true(host_request(&host, 0, &sqe));
	return host.answer.value;
}

static void unpin(uint64_t pin)
{
	struct abi_sqe sqe = { .op = ABI_OP_UNPIN, .handle = pin };

	sqe.context_id = host.context[0].id;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 0);
}

static void start(uint32_t kind, uint32_t blocks)
{
	struct disk_context spec;

	memset(host.disk, 0, HOST_NVME);
	host_boot(&host, NULL);
	host_spec(&spec, kind, 0);
	if (blocks)
		spec.blocks_max = blocks;
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

static void stop(void)
{
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

static void test_who_is_behind_follows(void **state)
{
	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 8, NONE, 0, 0);
	put(20, 3, 3, 4, 0); /* another end, behind block 3 */
	by_key(ABI_OP_DELETE, 2);
	for (uint32_t n = 0; n < 8; n++)
		assert_int_equal(is_there(n), n < 2);
	for (uint32_t n = 20; n < 23; n++)
		assert_false(is_there(n));
	host_settle(&host, 40);
	assert_int_equal(host.core->metrics.prefix_dropped, 8);
	assert_int_equal(context()->slots_live, 2);
	stop();
}

/* Links that a client says, but that no prefix has, are none. */
static void test_lies_link_nothing(void **state)
{
	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 2, NONE, 0, 0);
	put(5, 1, 1, 1, 0);  /* not the depth behind block 1 */
	put(6, 1, 6, 1, 0);  /* behind itself */
	put(7, 1, 50, 9, 0); /* behind a block that was never there: a beginning */
	by_key(ABI_OP_DELETE, 0);
	host_settle(&host, 40);
	assert_false(is_there(1));
	for (uint32_t n = 5; n < 8; n++)
		assert_true(is_there(n));
	stop();
}

static void test_a_pin_keeps_it_until_it_ends(void **state)
{
	uint64_t pin;

	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 4, NONE, 0, 0);
	pin = by_key(ABI_OP_PIN, 2);
	by_key(ABI_OP_DELETE, 0);
	host_settle(&host, 8);
	assert_false(is_there(1));
	assert_true(is_there(2));
	assert_true(is_there(3)); /* its parent is there */
	host_audit(&host);
	unpin(pin);
	for (uint32_t ms = 0; ms < 110; ms++)
		host_tick(&host, MSEC);
	assert_false(is_there(2) || is_there(3));
	assert_int_equal(host.core->dropped.waiting.count, 0);
	stop();
}

static void test_a_promise_is_kept_by_itself(void **state)
{
	uint32_t slot;

	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 3, NONE, 0, 0);
	put(3, 2, 2, 3, ABI_SQE_DURABLE);
	put(5, 1, 4, 5, 0);
	by_key(ABI_OP_DELETE, 1);
	host_settle(&host, 40);
	assert_true(is_there(0) && !is_there(1) && !is_there(2));
	assert_true(is_there(3) && is_there(4) && is_there(5));
	put(1, 3, 0, 1, 0); /* the prefix is whole again */
	slot = slot_of(3);
	assert_int_equal(block_parent(context(), slot), slot_of(2));
	assert_int_equal(index_block(&context()->ix, slot_of(2))->child, slot);
	stop();
}

/* A beginning that many prompts share: so many leave in one event, the rest soon. */
static void test_many_follow_in_steps(void **state)
{
	uint32_t left = 0, events = 0;

	(void)state;
	start(HOST_KIND_MEMORY, 1 + WIDE_RUNS * WIDE_RUN);
	put(0, 1, NONE, 0, 0);
	for (uint32_t i = 0; i < WIDE_RUNS; i++)
		put(100 * (i + 1), WIDE_RUN, 0, 1, 0);
	assert_int_equal(context()->blocks, 1 + WIDE_RUNS * WIDE_RUN);
	host_audit(&host);
	host.held = true; /* no other event brings it on */
	by_key(ABI_OP_DELETE, 0);
	left = (uint32_t)context()->blocks;
	assert_true(left >= WIDE_RUNS * WIDE_RUN - STEP && left < WIDE_RUNS * WIDE_RUN);
	assert_true(core_next_tick(host.core) <= host.now_ns + MSEC);
	for (; context()->blocks; events++) {
		assert_true(events < 4);
		host_tick(&host, MSEC);
		assert_true(left - context()->blocks <= STEP);
		left = (uint32_t)context()->blocks;
	}
	host.held = false;
	host_settle(&host, 40);
	assert_int_equal(context()->slots_live, 0);
	stop();
}

/* All slots are taken; only blocks may leave that others are behind, which are not written yet. */
static void fill_with_pairs(void)
{
	struct abi_put_args args = { .count = 1, .depth = 1 };

	start(HOST_KIND_STORE, 2 * PAIRS);
	for (uint32_t n = 0; n < PAIRS; n++)
		put(n, 1, NONE, 0, 0);
	host_settle(&host, 60);
	for (uint32_t n = 0; n < PAIRS; n++) {
		assert_int_equal(context()->meta[slot_of(n)].persist, PERSIST_CLEAN);
		host_key(n, args.parent);
		assert_int_equal(host_reserve(&host, &args, PAIRS + n, 0), 0);
		assert_true(host_commit(&host, 0));
		assert_int_equal(host.answer.value, 1);
		assert_int_equal(block_parent(context(), slot_of(PAIRS + n)), slot_of(n));
	}
	assert_int_equal(context()->slots_live, 2 * PAIRS);
}

/* Each keeps its slot until those behind it have gone: no put is told of a full table meanwhile. */
static void test_a_slot_is_there_when_those_behind_have_gone(void **state)
{
	const struct abi_put_args args = { .count = 1 };

	(void)state;
	fill_with_pairs();
	host.answer.res = 1;
	host_reserve(&host, &args, ABSENT, 0);
	assert_int_equal(one_host_answer(), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, 1);
	host_settle(&host, 40);
	stop();
}

/* What a put that waits for slots would bring is of the epoch in which it was asked for. */
static void test_who_waits_for_a_slot_is_told_of_a_new_epoch(void **state)
{
	const struct abi_put_args args = { .count = 1 };

	(void)state;
	fill_with_pairs();
	host.answer.res = 1;
	host_reserve(&host, &args, ABSENT, 0);
	assert_int_equal(host.answer.res, 1); /* it waits */
	assert_int_equal(core_context_epoch(host.core, context()->id, 0, 0), 0);
	assert_int_equal(one_host_answer(), -ESTALE);
	host_settle(&host, 40);
	stop();
}

/*
 * A deletion of a prefix ends when there was room for half of its tombstones: promised blocks stay
 * that were before the others, not behind them.
 */
static void test_an_unfinished_deletion_leaves_no_gap(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_DELETE };

	(void)state;
	for (uint16_t flags = 0; flags <= ABI_SQE_DURABLE; flags += ABI_SQE_DURABLE) {
		start(HOST_KIND_STORE, 0);
		put(0, 8, NONE, 0, flags);
		one_host_suspect();
		host.held = true;
		for (uint32_t n = TOMBS_MAX - 4; n; n -= n < 1024 ? n : 1024)
			assert_true(host_request_keys(&host, 0, sqe, ABSENT, n < 1024 ? n : 1024));
		assert_true(host_request_keys(&host, 0, sqe, 0, 8));
		for (uint32_t ms = 0; ms < LONG_MS; ms++)
			host_tick(&host, MSEC);
		assert_int_equal(host.core->requests.count, 0); /* their time is over */
		for (uint32_t n = 0; n < 8; n++)
			assert_int_equal(is_there(n), n < 4);
		host.held = false;
		host_settle(&host, 40);
		stop();
	}
}

/* ---- over a restart ------------------------------------------------------------------------ */

static void test_a_restart_brings_none_back_alone(void **state)
{
	struct core_recovery r;

	(void)state;
	for (uint32_t backwards = 0; backwards < 2; backwards++) {
		start(HOST_KIND_STORE, 0);
		for (uint32_t n = 0; n < 24; n += 4) /* many runs, over several segments */
			put(n, 4, n ? n - 1 : NONE, n, 0);
		put(24, 4, 23, 24, ABI_SQE_DURABLE);
		assert_int_equal(context()->blocks, 28);
		by_key(ABI_OP_DELETE, 9); /* a tombstone for it alone */
		host_settle(&host, 40);
		r = one_host_restart(backwards);
		assert_int_equal(r.blocks, context()->blocks);
		assert_int_equal(r.blocks_orphaned, 24 - 10);
		assert_int_equal(r.blocks_unreached, 4);
		host_client_open(&host, 0);
		host_client_attach(&host, 0);
		host_audit(&host);
		for (uint32_t n = 0; n < 28; n++)
			assert_int_equal(is_there(n), n < 9 || n >= 24);
		for (uint32_t n = 1; n < 9; n++)
			assert_int_equal(block_parent(context(), slot_of(n)), slot_of(n - 1));
		stop();
	}
}

/* However many there are: a start has no later event to leave some to. */
static void test_a_restart_ends_with_more_orphans_than_an_event(void **state)
{
	struct core_recovery r;

	(void)state;
	start(HOST_KIND_STORE, 0);
	for (uint32_t n = 0; n < 24; n += 4)
		put(n, 4, n ? n - 1 : NONE, n, 0);
	by_key(ABI_OP_DELETE, 2);
	host_settle(&host, 40);
	host.walk_items = 8;
	r = one_host_restart(false);
	host.walk_items = 0;
	assert_int_equal(r.blocks_orphaned, 24 - 3);
	assert_int_equal(context()->blocks, 2);
	stop();
}

/* What was deleted, and the older of two records of one block, did not come back. */
static void test_a_restart_counts_what_is_there(void **state)
{
	struct core_recovery r;

	(void)state;
	for (uint32_t backwards = 0; backwards < 2; backwards++) {
		start(HOST_KIND_STORE, 0);
		put(0, 4, NONE, 0, ABI_SQE_DURABLE);
		by_key(ABI_OP_DELETE, 2);
		by_key(ABI_OP_DELETE, 3);
		put(2, 1, 1, 2, ABI_SQE_DURABLE); /* again, and it stays */
		put(4, 4, NONE, 0, ABI_SQE_DURABLE);
		for (uint32_t n = 4; n < 8; n++)
			by_key(ABI_OP_DELETE, n);
		host_settle(&host, 40);
		r = one_host_restart(backwards);
		assert_int_equal(context()->blocks, 3);
		assert_int_equal(r.blocks, 3);
		assert_true(r.blocks_unproven <= r.blocks);
		host_client_open(&host, 0);
		host_client_attach(&host, 0);
		host_audit(&host);
		stop();
	}
}

/* Nor does anyone read what was deleted, to prove it. */
static void test_what_was_deleted_needs_no_proof(void **state)
{
	struct core_recovery r;

	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 4, NONE, 0, ABI_SQE_DURABLE);
	r = one_host_restart(false);
	assert_int_equal(r.blocks_unproven, 4); /* no record behind it says that it was flushed */
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	by_key(ABI_OP_DELETE, 3);
	r = one_host_restart(false);
	assert_int_equal(r.blocks, 3);
	assert_in_range(r.blocks_unproven, 0, 3);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	stop();
}

/* A put of what recovery found is answered once that is proven; then flushes count again. */
static void test_who_waits_for_proof_is_told(void **state)
{
	const struct drive *dv;
	uint64_t flushed;

	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 4, NONE, 0, ABI_SQE_DURABLE);
	assert_int_equal(one_host_restart(false).blocks_unproven, 4);
	dv = host.core->drive[0];
	assert_true(dv->flushed_frozen);
	host.held = true;
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	assert_int_equal(one_host_put_begin(0, 4, ABI_SQE_DURABLE), 0);
	assert_int_equal(host.answer.res, 1);
	host.held = false;
	for (uint32_t i = 0; i < 4; i++)
		host_carry_all(&host);
	assert_int_equal(host.core->metrics.proved_blocks, 4);
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, 4);
	flushed = store_flushed_lsn(dv->store);
	put(4, 4, NONE, 0, ABI_SQE_DURABLE);
	assert_true(host_settle(&host, 100));
	assert_false(dv->flushed_frozen);
	assert_true(store_flushed_lsn(dv->store) > flushed);
	stop();
}

/* A block that reads as rotten is read again, each of them as often as the first. */
static void test_each_block_has_its_tries(void **state)
{
	(void)state;
	start(HOST_KIND_STORE, 0);
	put(0, 4, NONE, 0, ABI_SQE_DURABLE);
	assert_int_equal(one_host_restart(false).blocks_unproven, 4);
	host.held = true;
	for (uint32_t proved = 0, ms = 0; proved < 4; proved++)
		for (uint32_t i = 0; host.core->metrics.proved_blocks == proved; i++) {
			for (; !one_host_waits(CORE_AC_READ) && ms < 1000; ms++)
				host_tick(&host, MS);
			assert_int_not_equal(one_host_waits(CORE_AC_READ), 0);
			host.fault = i < 2 ? HOST_ROTTEN : HOST_WELL;
			host_carry(&host, one_host_waits(CORE_AC_READ) - 1);
		}
	for (uint32_t n = 0; n < 4; n++)
		assert_true(is_there(n));
	host.held = false;
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_is_behind_follows),
		cmocka_unit_test(test_lies_link_nothing),
		cmocka_unit_test(test_a_pin_keeps_it_until_it_ends),
		cmocka_unit_test(test_a_promise_is_kept_by_itself),
		cmocka_unit_test(test_many_follow_in_steps),
		cmocka_unit_test(test_a_slot_is_there_when_those_behind_have_gone),
		cmocka_unit_test(test_who_waits_for_a_slot_is_told_of_a_new_epoch),
		cmocka_unit_test(test_an_unfinished_deletion_leaves_no_gap),
		cmocka_unit_test(test_a_restart_brings_none_back_alone),
		cmocka_unit_test(test_a_restart_ends_with_more_orphans_than_an_event),
		cmocka_unit_test(test_a_restart_counts_what_is_there),
		cmocka_unit_test(test_what_was_deleted_needs_no_proof),
		cmocka_unit_test(test_who_waits_for_proof_is_told),
		cmocka_unit_test(test_each_block_has_its_tries),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
