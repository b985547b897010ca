/*
 * Contexts whose blocks find no room on NVMe, in a core with a small host around it: that stops
 * neither other contexts nor the catalog, and who has much to write leaves others their turn.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define MSEC 1000000ull
#define ROOM 8u	    /* blocks that the first context may have on NVMe */
#define SOON 20u    /* ticks of 2 ms: far less than it takes to give a block up */
#define FOR_GOOD (300 * MSEC) /* what found no room for so long is given up */
#define TOKEN 0x5009u
#define MANY 20u /* blocks of which a segment holds a few */
#define FEW 2u
#define BLOCKS 600u

static struct {
	uint32_t completions;
	bool replied;
	int32_t res;
} heard;

static void on_complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	heard.completions++;
	host.answer = *cqe;
}

static void on_reply(void *arg, uint64_t token, int32_t res, uint64_t value)
{
	(void)arg;
	(void)value;
	if (token != TOKEN)
		return;
	heard.replied = true;
	heard.res = res;
}

static struct context *context_at(uint32_t i)
{
	return core_context(host.core, host.context[i].id);
}

static int set_up(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.quota[ABI_TIER_NVME] = ROOM * spec.geometry.block_bytes;
	spec.blocks_max = BLOCKS; /* more than fit in CXL */
	one_host_boot(&spec, 0);
	host_spec(&spec, HOST_KIND_STORE, 1);
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	assert_true(host_settle(&host, 60));
	memset(&heard, 0, sizeof(heard));
	host.ears = (struct host_ears){ .complete = on_complete, .reply = on_reply };
	return 0;
}

static int tear_down(void **state)
{
	host.ears = (struct host_ears){ 0 };
	return one_host_off(state);
}

/* Blocks [first, first + count) of context i. */
static void reserve(uint32_t i, uint32_t first, uint32_t count, uint16_t flags)
{
	struct abi_put_args args = { .count = count, .depth = first };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = flags, .count = count };
	uint8_t *at = host.client[0].staging;

	if (first)
		host_key(first - 1, args.parent);
	memcpy(at, &args, sizeof(args));
	for (uint32_t n = 0; n < count; n++)
		host_key(first + n, at + sizeof(args) + (size_t)n * ABI_KEY_BYTES);
	sqe.context_id = host.context[i].id;
	sqe.arg_bytes = (uint32_t)(sizeof(args) + (size_t)count * ABI_KEY_BYTES);
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 0);
	heard.completions = 0;
}

/* The same, committed: who waits for them is not answered yet. */
static void put(uint32_t i, uint32_t first, uint32_t count, uint16_t flags)
{
	reserve(i, first, count, flags);
	assert_true(host_commit(&host, flags));
}

/* What was begun last is answered soon. Returns the answer. */
static int put_answer(void)
{
	for (uint32_t i = 0; i < SOON && !heard.completions; i++)
		host_tick(&host, 2 * MSEC);
	assert_int_equal(heard.completions, 1);
	return host.answer.res;
}

static int reply(void)
{
	for (uint32_t i = 0; i < SOON && !heard.replied; i++)
		host_tick(&host, 2 * MSEC);
	assert_true(heard.replied);
	heard.replied = false;
	return heard.res;
}

/* The first context has all that it may have on NVMe, and one block more that wants to go there. */
static void fill(uint16_t flags)
{
	uint32_t log = flags & ABI_SQE_DURABLE ? DISK_LOG_DURABLE : DISK_LOG_CACHE;

	host.core->config.admit_all = true;
	put(0, 0, ROOM, ABI_SQE_DURABLE);
	assert_int_equal(put_answer(), 0);
	put(0, ROOM, 1, flags);
	for (uint32_t i = 0; i < 4; i++)
		host_tick(&host, 2 * MSEC);
	assert_int_equal(context()->dirty[log].list.count, 1);
}

static void others_go_on(void)
{
	struct disk_context spec;
	char why[256];

	host_spec(&spec, HOST_KIND_STORE, 2);
	assert_int_equal(host_context_create(&host, 2, &spec, TOKEN, why), 0);
	assert_int_equal(reply(), 0);
	assert_int_equal(core_context_epoch(host.core, host.context[1].id, 0, TOKEN), 0);
	assert_int_equal(reply(), 0);
	put(1, 0, 1, ABI_SQE_DURABLE);
	assert_int_equal(put_answer(), 0);
	host_audit(&host);
}

static void test_a_promise_without_room_stops_nobody_else(void **state)
{
	(void)state;
	fill(ABI_SQE_DURABLE);
	others_go_on();
}

static void test_a_block_without_room_stops_nobody_else(void **state)
{
	(void)state;
	fill(0);
	others_go_on();
}

static void wait_until_given_up(void)
{
	for (uint32_t i = 0; i < 500 && context()->dirty_bytes; i++)
		host_tick(&host, 2 * MSEC);
	assert_int_equal(context()->dirty_bytes, 0);
	host_audit(&host);
}

/* Of the context's room on NVMe, what is under way there has its part. */
static void test_what_is_being_written_counts(void **state)
{
	const uint32_t half = ROOM / 2;
	uint32_t written = 0;

	(void)state;
	put(0, 0, 1, ABI_SQE_DURABLE); /* the log is open */
	assert_int_equal(put_answer(), 0);
	host.held = true;
	for (uint32_t n = 0; n < 2; n++) {
		put(0, 1 + n * half, half, ABI_SQE_DURABLE);
		for (uint32_t i = 0; i < host.bag_count;)
			if (host.bag[i].kind == CORE_AC_COPY)
				host_carry(&host, i);
			else
				i++;
		for (uint32_t i = 0; i < SOON; i++)
			host_tick(&host, 2 * MSEC);
	}
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		written += host.core->drive[0]->run[i].blocks;
	assert_in_range(written, half, ROOM - 1);
	host.held = false;
	host_carry_all(&host);
	wait_until_given_up();
}

/* Its block is not there and waits for nothing. The next has its own time, and room that comes. */
static void test_a_promise_without_room_is_given_up(void **state)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE };

	(void)state;
	fill(ABI_SQE_DURABLE);
	wait_until_given_up();
	assert_int_equal(put_answer(), -ENOSPC);
	assert_int_equal(slot_of(ROOM), ABI_SLOT_NONE);
	put(0, ROOM, 1, ABI_SQE_DURABLE);
	for (uint32_t i = 0; i < SOON; i++)
		host_tick(&host, 2 * MSEC);
	assert_int_equal(heard.completions, 0);
	assert_true(host_request_keys(&host, 0, sqe, ROOM - 1, 1));
	for (uint32_t i = 0; i < SOON && heard.completions < 2; i++)
		host_tick(&host, 2 * MSEC);
	assert_int_equal(heard.completions, 2);
	assert_int_equal(host.answer.res, 0);
	assert_int_not_equal(slot_of(ROOM), ABI_SLOT_NONE);
	host_audit(&host);
}

/* It stays where it is, to be evicted from there, and others are taken. */
static void test_a_block_without_room_stays_in_memory(void **state)
{
	(void)state;
	fill(0);
	wait_until_given_up();
	assert_int_equal(context()->meta[slot_of(ROOM)].persist, PERSIST_REFUSED);
	put(0, ROOM + 1, 1, 0);
	assert_int_equal(put_answer(), 0);
	assert_int_equal(host.answer.value, 1);
}

static bool has_room(const struct context *x)
{
	struct space_stats st;

	space_stats(x->space[ABI_TIER_CXL], &st);
	return st.available + st.punching + x->retiring[ABI_TIER_CXL] >=
	       x->spec.geometry.block_bytes;
}

/*
 * All of CXL is dirty, and its wait for room on NVMe ends in the very moment in which a put wants
 * room: what is given up then makes it, so the put is not refused.
 */
static void test_a_put_waits_for_what_is_given_up(void **state)
{
	struct context *x = context();
	uint32_t n = ROOM + 1;

	(void)state;
	fill(0);
	host.core->config.dirty_percent = 200; /* all of it, not just half */
	for (; has_room(x); n++) {
		assert_true(n < BLOCKS);
		put(0, n, 1, 0);
		assert_int_equal(put_answer(), 0);
	}
	assert_true(x->dirty[DISK_LOG_CACHE].full_since_ns && !writeback_full(host.core, x));
	reserve(0, n, 1, 0);
	host.now_ns += FOR_GOOD;
	assert_true(host_commit(&host, 0));
	assert_true(x->refused > 0);
	assert_int_equal(put_answer(), 0);
	assert_int_equal(host.answer.value, 1);
	host_audit(&host);
}

/* Carry out what was begun longest ago. False: there is nothing. */
static bool carry_one(void)
{
	if (!host.bag_count)
		return false;
	host_carry(&host, 0);
	return true;
}

/* Both have put before the first run begins: how much is left of one when the other is written? */
static uint32_t left_of(uint32_t much, uint32_t little)
{
	struct drive *dv = host.core->drive[0];
	struct run *run = &dv->run[DISK_LOG_DURABLE];
	enum run_phase phase = run->phase;

	context()->plan.quota[ABI_TIER_NVME] = context_at(1)->plan.quota[ABI_TIER_NVME];
	assert_int_equal(phase, RUN_FREE);
	run->phase = RUN_HEADER_SYNC; /* busy, as far as the others see, which go one at a time */
	run->header_sync = UINT64_MAX;
	dv->write_failures = 1;
	put(much, 0, MANY, ABI_SQE_DURABLE);
	put(little, 0, FEW, ABI_SQE_DURABLE);
	assert_int_equal(context_at(much)->dirty[DISK_LOG_DURABLE].list.count, MANY);
	assert_int_equal(context_at(little)->dirty[DISK_LOG_DURABLE].list.count, FEW);
	run->phase = phase;
	dv->write_failures = 0;
	host.held = true;
	for (uint32_t i = 0; i < 1000 && context_at(little)->dirty_bytes; i++)
		if (!carry_one())
			host_tick(&host, MSEC);
	assert_int_equal(context_at(little)->dirty_bytes, 0);
	host.held = false;
	return context_at(much)->dirty[DISK_LOG_DURABLE].list.count;
}

static void test_who_writes_much_leaves_others_their_turn(void **state)
{
	(void)state;
	assert_true(left_of(0, 1) > 0);
}

static void test_who_comes_later_writes_no_less(void **state)
{
	(void)state;
	assert_true(left_of(1, 0) > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_promise_without_room_stops_nobody_else),
		TEST(test_a_block_without_room_stops_nobody_else),
		TEST(test_what_is_being_written_counts),
		TEST(test_a_promise_without_room_is_given_up),
		TEST(test_a_block_without_room_stays_in_memory),
		TEST(test_a_put_waits_for_what_is_given_up),
		TEST(test_who_writes_much_leaves_others_their_turn),
		TEST(test_who_comes_later_writes_no_less),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
