/*
 * Reservations: what a client promises itself is kept within what all may promise together, also
 * when it grows, and its growth pushes nothing out that the promise did not cover.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 8u
#define PROMISES_PERCENT 80u

static struct context *boot(void)
{
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = 1u << 14;
	one_host_boot(&spec, 1);
	return core_context(host.core, host.context[0].id);
}

static struct abi_cqe reserve_as(uint32_t client, const struct abi_reserve_args *args,
				 uint64_t deadline_ns)
{
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .count = 1, .arg_bytes = sizeof(*args) };

	sqe.context_id = host.context[0].id;
	sqe.deadline_ns = deadline_ns;
	memcpy(host.client[client].staging, args, sizeof(*args));
	assert_true(host_request(&host, client, &sqe));
	return host.answer;
}

static struct abi_cqe reserve(const struct abi_reserve_args *args)
{
	return reserve_as(0, args, host.now_ns + 60000 * MS);
}

/* A put of keys of `first` on, under the reservation (0 = none). */
static void put(uint64_t reservation, uint32_t first, uint32_t count)
{
	struct abi_put_args args = { .count = count };
	uint8_t *at = host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .handle = reservation, .count = count };

	memcpy(at, &args, sizeof(args));
	for (uint32_t i = 0; i < count; i++)
		host_key(first + i, at + sizeof(args) + (size_t)i * ABI_KEY_BYTES);
	sqe.context_id = host.context[0].id;
	sqe.arg_bytes = (uint32_t)(sizeof(args) + (size_t)count * ABI_KEY_BYTES);
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.res, 0);
}

static struct abi_cqe hand_back(uint64_t reservation)
{
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .handle = reservation };

	sqe.context_id = host.context[0].id;
	assert_true(host_request(&host, 0, &sqe));
	return host.answer;
}

static uint64_t promisable(const struct context *x)
{
	return x->plan.quota[ABI_TIER_CXL] / 100 * PROMISES_PERCENT / x->spec.geometry.block_bytes;
}

/* The room is full of others' blocks; a promise of two blocks asks to grow by all there is. */
static void test_a_huge_step_pushes_nobody_out(void **state)
{
	struct context *x = boot();
	struct abi_reserve_args args = { .expected = 2, .p95 = 4 };
	uint64_t blocks = promisable(x), id, there;

	(void)state;
	for (uint32_t i = 0; i < blocks / RUN * RUN; i += RUN)
		put(0, i, RUN);
	there = x->blocks;
	args.step = ABI_RESERVE_BLOCKS_MAX;
	id = reserve(&args).value;
	assert_int_equal(host.answer.res, 0);
	put(id, 1u << 20, 2);
	for (uint32_t i = 0; i < 50; i++)
		host_tick(&host, 2 * MS);
	assert_true(x->reserved_most_blocks <= 4);
	assert_true(x->blocks + 16 >= there);
	host_audit(&host);
}

/* What comes in the end is more than p95 said: it goes on growing, as far as promises may go. */
static void test_growth_ends_where_promises_do(void **state)
{
	struct context *x = boot();
	struct abi_reserve_args args = { .expected = 8, .p95 = 8, .step = 8 };
	uint32_t most = (uint32_t)promisable(x), key = 0;
	uint64_t id = reserve(&args).value, drawn;

	(void)state;
	assert_int_equal(host.answer.res, 0);
	for (uint32_t n = 0; n < 4; n++, key += RUN) {
		put(id, key, RUN);
		host_tick(&host, 2 * MS);
		assert_true(x->reserved_most_blocks <= most);
	}
	drawn = host.core->metrics.reserve_drawn;
	assert_true(drawn >= 3 * RUN * x->ix.pages_per_block);
	/* Another one takes all that is left of the promises: now it is not its turn. */
	args = (struct abi_reserve_args){ .expected = 1, .step = 1 };
	args.p95 = most - (uint32_t)x->reserved_most_blocks;
	assert_int_equal(reserve(&args).res, 0);
	for (uint32_t n = 0; n < 6; n++, key += RUN) {
		put(id, key, RUN);
		host_tick(&host, 2 * MS);
		assert_true(x->reserved_most_blocks <= most);
	}
	host_audit(&host);
}

/* There is no room for a step: it is tried again a millisecond later. */
static void test_growth_is_tried_again(void **state)
{
	struct context *x = boot();
	const uint32_t step = (uint32_t)promisable(x) / 4;
	const struct abi_reserve_args args = { .expected = RUN, .p95 = 2 * step, .step = step };
	const struct reservation *r;
	uint64_t id;

	(void)state;
	for (uint32_t n = 0; !host.core->metrics.dropped_blocks; n += RUN)
		put(0, n, RUN);
	one_host_pause(20);
	id = reserve(&args).value;
	assert_int_equal(host.answer.res, 0);
	r = reserve_find(host.core, id, 0, x);
	put(id, 1u << 20, RUN / 2);
	assert_true(r->growing);
	host.held = true; /* nothing that makes room is carried out */
	host_tick(&host, MS);
	assert_int_equal(r->granted, RUN);
	assert_true(r->growing);
	assert_int_equal(r->retry_ns, host.now_ns + MS);
	host.held = false;
	for (uint32_t i = 0; i < 50 && r->growing; i++) {
		host_carry_all(&host);
		host_tick(&host, MS);
	}
	assert_int_equal(r->granted, RUN + step);
	host_audit(&host);
}

/* What a put could not draw finds its place elsewhere, and is part of what the request came to. */
static void test_what_is_put_beside_it_counts(void **state)
{
	struct context *x = boot();
	struct abi_reserve_args args = { .expected = RUN, .p95 = RUN, .step = RUN };
	uint64_t id = reserve(&args).value;

	(void)state;
	assert_int_equal(host.answer.res, 0);
	put(id, 0, 3 * RUN); /* at once: it grows in between */
	put(id, 3 * RUN, RUN / 2);
	assert_true(host.core->metrics.reserve_short > 0);
	assert_true(host.core->metrics.reserve_drawn < 3 * RUN * x->ix.pages_per_block);
	host_audit(&host);
	assert_int_equal(hand_back(id).value, 3 * RUN + RUN / 2);
	assert_int_equal(host.answer.res, 0);
	host_audit(&host);
}

static void test_more_than_may_be_promised_is_refused(void **state)
{
	struct context *x = boot();
	struct abi_reserve_args args = { .expected = 1, .p95 = (uint32_t)promisable(x) + 1 };

	(void)state;
	assert_int_equal(reserve(&args).res, -EDQUOT);
	args.p95--;
	assert_int_equal(reserve(&args).res, 0);
	args.p95 = 1;
	assert_int_equal(reserve(&args).res, -EDQUOT);
	host_audit(&host);
}

/* One user has as many as one may; the other is served, and neither for ever. */
static void test_a_user_leaves_reservations_to_others(void **state)
{
	const struct abi_reserve_args args = { .expected = 1, .p95 = 1, .step = 1 };
	const uint32_t most = CORE_RESERVATIONS_MAX / 4 * 3;
	struct abi_cqe answer;

	(void)state;
	boot();
	one_host_other_user(1);
	for (uint32_t i = 0; i < most; i++)
		account_take(host.core, &host.core->client[0], ACCOUNT_RESERVATIONS);
	answer = reserve(&args);
	assert_int_equal(answer.res, -EAGAIN);
	assert_int_equal(answer.aux, (uint64_t)ABI_LIMIT_USER << 8 * ABI_HELD_LIMIT |
				     (uint64_t)CORE_RESERVATIONS_MAX << ABI_FULL_MOST | most);
	answer = reserve_as(1, &args, UINT64_MAX);
	assert_int_equal(answer.res, 0);
	assert_int_equal(host.core->reserve.table[answer.value % CORE_RESERVATIONS_MAX].deadline_ns,
			 host.now_ns + PARK_HORIZON_NS);
	for (uint32_t i = 0; i < most; i++)
		account_give(host.core, host.core->client[0].account, &host.core->client[0],
			     ACCOUNT_RESERVATIONS);
	assert_int_equal(reserve(&args).res, 0);
	host_audit(&host);
}

/* Who says no number gets that of those before him, once some have told. */
static void test_what_is_handed_back_teaches(void **state)
{
	const struct abi_reserve_args known = { .expected = RUN }, asked = { 0 };
	struct abi_cqe granted;

	(void)boot();
	(void)state;
	for (uint32_t n = 0; n < 16; n++) {
		uint64_t id = reserve(&known).value;

		put(id, n * RUN, 3);
		assert_int_equal(hand_back(id).res, 0);
		assert_int_equal(host.answer.value, 3);
		assert_int_equal(hand_back(id).res, -ENOENT);
	}
	granted = reserve(&asked);
	assert_int_equal(granted.res, 0);
	assert_int_equal((uint32_t)granted.aux, 3);
	host_audit(&host);
}

/* Pins and what readers hold cannot leave for it: promises get what these let. */
static void test_what_is_pinned_is_not_promised(void **state)
{
	struct context *x = boot();
	struct abi_reserve_args args = { .expected = 1 };
	const struct abi_sqe pin = { .op = ABI_OP_PIN, .tier = ABI_TIER_CXL };

	(void)state;
	x->plan.quota[ABI_TIER_CXL] /= 2; /* it has not all of the tier, whose own sum is larger */
	args.p95 = (uint32_t)promisable(x);
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	put(0, 0, RUN);
	assert_true(host_request_keys(&host, 0, pin, 0, RUN));
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(reserve(&args).res, -EDQUOT);
	assert_true(host_request_keys(&host, 1, pin, 0, RUN)); /* the same: it takes no room */
	assert_int_equal(host.answer.res, 0);
	args.p95 -= RUN;
	assert_int_equal(reserve(&args).res, 0);
	host_audit(&host);
}

static int32_t answered[2];

static void answer_of(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	answered[client] = cqe->res;
}

/* Who waited for room is granted what others have left of the promises by then. */
static void test_what_was_promised_meanwhile_is_not_granted(void **state)
{
	struct context *x = boot();
	struct abi_reserve_args args = { .p95 = (uint32_t)promisable(x) * 2 / 3 };

	(void)state;
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	for (uint32_t i = 0; !host.core->metrics.dropped_blocks; i += RUN)
		put(0, i, RUN);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, 2 * MS);
	host.ears.complete = answer_of;
	host.held = true;
	answered[0] = answered[1] = 1;
	args.expected = args.p95; /* more than there is room for */
	reserve_as(0, &args, host.now_ns + 60000 * MS);
	assert_int_equal(answered[0], 1);
	args.expected = 1;
	reserve_as(1, &args, host.now_ns + 60000 * MS);
	assert_int_equal(answered[1], 0);
	host.held = false;
	for (uint32_t i = 0; i < 20 && answered[0] == 1; i++) {
		host_carry_all(&host);
		host_tick(&host, 2 * MS);
	}
	assert_int_equal(answered[0], -EDQUOT);
	assert_true(x->reserved_most_blocks <= promisable(x));
	host_audit(&host);
}

/* What is promised of a tier is not pinned as well, whoever pins; it can be pinned afterwards. */
static void test_what_is_promised_is_not_pinned(void **state)
{
	struct context *x = boot();
	const struct abi_reserve_args all = { .expected = 1, .p95 = (uint32_t)promisable(x) };
	const struct abi_sqe pin = { .op = ABI_OP_PIN, .tier = ABI_TIER_CXL };
	uint64_t id, held;

	(void)state;
	put(0, 0, RUN);
	id = reserve(&all).value;
	assert_int_equal(host.answer.res, 0);
	assert_true(host_request_keys(&host, 0, pin, 0, RUN));
	assert_int_equal(host.answer.res, -EDQUOT);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_LIMIT & 0xff, ABI_LIMIT_HOST);
	/* A context that has half its quota left is told what all have. */
	x->plan.quota[ABI_TIER_CXL] *= 8;
	held = quota_holders(host.core, x, ABI_TIER_CXL);
	x->plan.quota[ABI_TIER_CXL] /= 8;
	assert_int_equal(held >> 8 * ABI_HELD_LIMIT & 0xff, ABI_LIMIT_HOST);
	assert_int_equal(held >> 8 * ABI_HELD_TIER & 0xff, 1 + ABI_TIER_CXL);
	assert_true((held >> 8 * ABI_HELD_RESERVED & 0xff) >= PROMISES_PERCENT - 2);
	assert_int_equal(hand_back(id).res, 0);
	assert_int_equal(host.core->reserve.most_bytes, 0);
	assert_true(host_request_keys(&host, 0, pin, 0, RUN));
	assert_int_equal(host.answer.res, 0);
	host_audit(&host);
}

/*
 * One output as large as all that may be promised does not make every later prediction too large.
 */
static void test_a_prediction_can_be_granted(void **state)
{
	struct context *x = boot();
	const struct abi_reserve_args most = { .expected = (uint32_t)promisable(x) }, asked = { 0 };
	uint32_t blocks = (uint32_t)promisable(x), n;
	uint64_t id = reserve(&most).value;

	(void)state;
	assert_int_equal(host.answer.res, 0);
	for (n = 0; n + RUN <= blocks; n += RUN)
		put(id, n, RUN);
	assert_int_equal(hand_back(id).value, n);
	for (reserve(&asked); !host.answer.aux && !host.answer.res;)
		host_tick(&host, 2 * MS); /* others' blocks leave for it, or its time is over */
	assert_int_equal(host.answer.res, 0);
	assert_in_range(host.answer.aux >> 32, n, blocks);
	host_audit(&host);
}

/* ---- room for others ---------------------------------------------------------------------- */

#define SEGMENT_BLOCKS (ABI_HUGE / (16u << 10))

/* Contexts of pages of one size: two that share the tier, and one that has nothing yet. */
static void boot_three(void)
{
	struct disk_context spec;

	host_boot(&host, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		host_spec(&spec, HOST_KIND_STORE, i);
		spec.quota[ABI_TIER_CXL] = HOST_CXL;
		spec.quota[ABI_TIER_NVME] = UINT64_MAX; /* none */
		spec.blocks_max = 1u << 12;
		assert_int_equal(host_context_make(&host, i, &spec), 0);
	}
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* What follows is about context i. */
static void turn_to(uint32_t i)
{
	struct host_context first = host.context[0];

	host.context[0] = host.context[i];
	host.context[i] = first;
}

/* One has most of the tier promised: it has nothing to give, but the other one has. */
static void test_who_can_give_room_does(void **state)
{
	const struct abi_reserve_args most = { .expected = 3 * SEGMENT_BLOCKS };
	uint32_t n = 0;

	(void)state;
	boot_three();
	assert_int_equal(reserve(&most).res, 0);
	turn_to(1);
	for (; n < 2 * SEGMENT_BLOCKS; n += RUN)
		put(0, n, RUN);
	assert_true(host.core->pool[ABI_TIER_CXL].used == 5 * ABI_HUGE);
	turn_to(1);
	turn_to(2);
	for (uint32_t end = n + 4 * RUN; n < end; n += RUN)
		put(0, n, RUN);
	turn_to(2);
	host_audit(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_a_huge_step_pushes_nobody_out, one_host_off),
		cmocka_unit_test_teardown(test_growth_ends_where_promises_do, one_host_off),
		cmocka_unit_test_teardown(test_growth_is_tried_again, one_host_off),
		cmocka_unit_test_teardown(test_what_is_put_beside_it_counts, one_host_off),
		cmocka_unit_test_teardown(test_more_than_may_be_promised_is_refused, one_host_off),
		cmocka_unit_test_teardown(test_a_user_leaves_reservations_to_others, one_host_off),
		cmocka_unit_test_teardown(test_what_is_handed_back_teaches, one_host_off),
		cmocka_unit_test_teardown(test_what_is_pinned_is_not_promised, one_host_off),
		cmocka_unit_test_teardown(test_what_was_promised_meanwhile_is_not_granted,
					  one_host_off),
		cmocka_unit_test_teardown(test_what_is_promised_is_not_pinned, one_host_off),
		cmocka_unit_test_teardown(test_a_prediction_can_be_granted, one_host_off),
		cmocka_unit_test_teardown(test_who_can_give_room_does, one_host_off),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
