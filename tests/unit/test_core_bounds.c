/*
 * What one event may look at, with a geometry whose blocks have 65,536 pages: what is asked of them
 * goes on in later events, comes to the same answer, and ends with who asked. The host looks after
 * each event that it kept to the bound (tests/fuzz/host.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 20u
#define LAYERS 15u
#define GROUPS 4369u
#define REFS 64u /* of the same block */
#define ONE 1u   /* parts: one page of each block; */
#define MANY 2u  /* ... all others, which few blocks have */

static void wide_spec(struct disk_context *spec)
{
	struct abi_geometry *g = &spec->geometry;

	host_spec(spec, HOST_KIND_MEMORY, 0);
	spec->blocks_max = BLOCKS + 4;
	spec->quota[ABI_TIER_CXL] = 0; /* all */
	g->part[0] = g->part[1]; /* "index": every block has it */
	g->part[0].page_base = 0;
	g->part[0].page_bytes = g->part[0].page_stride = 512;
	g->part[1] = g->part[2]; /* "state" */
	g->part[1].page_base = 1;
	g->part[1].layers = LAYERS;
	g->part[1].groups = GROUPS;
	memset(&g->part[2], 0, sizeof(g->part[2]));
	g->part_count = 2;
	g->pages_per_block = 1 + LAYERS * GROUPS;
	g->block_bytes = g->pages_per_block * 512ull;
}

static int32_t answer(void)
{
	for (uint32_t i = 0; i < 100000 && host.answer.res > 0; i++)
		host_tick(&host, 0);
	return host.answer.res;
}

static int32_t put(uint32_t first, uint32_t count, uint64_t parts)
{
	const struct abi_put_args args = { .count = count, .parts = parts };
	int32_t res = host_reserve(&host, &args, first, 0);

	if (res)
		return res;
	host.answer.res = 1;
	assert_true(host_commit(&host, 0));
	return answer();
}

static int setup(void **state)
{
	struct disk_context spec;

	(void)state;
	wide_spec(&spec);
	host.cxl_bytes = 96u << 20; /* two of these blocks */
	one_host_boot(&spec, 2);
	assert_int_equal(put(0, BLOCKS / 2, ONE), 0);
	assert_int_equal(host.answer.value, BLOCKS / 2);
	return 0;
}

/* A list that names block n so often. */
static void ask(uint8_t op, uint32_t n, uint32_t count, uint8_t mode)
{
	size_t head = op == ABI_OP_CONVERSATION ? sizeof(struct abi_conversation_args) : 0;
	struct abi_block_ref *ref = (struct abi_block_ref *)(host.client[0].staging + head);
	struct abi_sqe sqe = { .op = op, .tier = ABI_TIER_CXL, .count = count, .mode = mode,
			       .context_id = host.context[0].id };
	uint8_t key[ABI_KEY_BYTES];

	memset(host.client[0].staging, 0, head);
	host_key(n, key);
	for (uint32_t i = 0; i < count; i++) {
		ref[i].slot = index_find(&context()->ix, key);
		ref[i].generation = index_block(&context()->ix, ref[i].slot)->generation;
	}
	sqe.arg_bytes = (uint32_t)(head + count * sizeof(*ref));
	sqe.handle = op == ABI_OP_CONVERSATION ? 7 : 0;
	if (op == ABI_OP_CONVERSATION && mode != ABI_CONVERSATION_TURN_END)
		sqe.count = sqe.arg_bytes = 0;
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
}

/* ---- fetch -------------------------------------------------------------------------------- */

static void test_a_block_asked_for_often(void **state)
{
	uint64_t before = host.core->metrics.items;

	(void)state;
	ask(ABI_OP_FETCH, 0, REFS, 0);
	assert_int_equal(host.answer.res, 1); /* not in that event */
	assert_int_equal(answer(), 0);
	assert_int_equal(host.answer.value, REFS);
	assert_true(host.core->metrics.items - before >= REFS * LAYERS * GROUPS);
	assert_int_equal(block_use(context(), 0)->hold, 0);
}

/* As many as an entry can name, and the last of them has gone. */
static void test_a_list_with_an_end(void **state)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)host.client[0].staging;
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .part_first = 0,
				     .part_count = 1, .context_id = host.context[0].id,
				     .count = ABI_ARG_BYTES_MAX / sizeof(*ref),
				     .arg_bytes = ABI_ARG_BYTES_MAX };

	(void)state;
	for (uint32_t i = 0; i < sqe.count; i++)
		ref[i] = (struct abi_block_ref){ 1, index_block(&context()->ix, 1)->generation };
	ref[sqe.count - 1].generation++;
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer(), 0);
	assert_int_equal(host.answer.value, sqe.count - 1);
	assert_int_equal(host.answer.status, ABI_STATUS_MISS);
	while (host.core->requests.count) /* it lets go behind its answer */
		host_tick(&host, 0);
	assert_int_equal(block_use(context(), 1)->hold, 0);
}

/* What is left of it is nobody's: it ends, and its holds go, without the rest being looked at. */
static void test_who_asked_goes(void **state)
{
	uint64_t before;

	(void)state;
	ask(ABI_OP_FETCH, 0, 8000, 0);
	host_tick(&host, 0);
	before = host.core->metrics.items;
	host_client_gone(&host, 0);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, 0);
	assert_int_equal(host.core->requests.count, 0);
	assert_int_equal(block_use(context(), 0)->hold, 0);
	assert_true(host.core->metrics.items - before < 20000);
	host_client_dead(&host, 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* Who asks for little beside it is answered in his own event. */
static void test_others_are_answered_at_once(void **state)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .user_data = 5 };

	(void)state;
	ask(ABI_OP_FETCH, 0, 8000, 0);
	host_tick(&host, 0);
	for (uint32_t i = 0; i < 10; i++) {
		host.answer.user_data = 0;
		assert_true(host_request_keys(&host, 1, sqe, i % 4, 1));
		while (host.answer.user_data != 5)
			host_tick(&host, 0);
		assert_int_equal(host.answer.value, 1);
	}
	host_client_gone(&host, 0);
	host_client_dead(&host, 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* ---- put ---------------------------------------------------------------------------------- */

/* Another announced pages that it has not begun: they are not waited for. */
static void test_a_put_narrows_what_another_announced(void **state)
{
	const struct abi_put_args all = { .count = BLOCKS / 2 };

	(void)state;
	assert_int_equal(host_reserve(&host, &all, 100, 0), 0);
	assert_int_equal(put(100, BLOCKS / 2, ONE), 0);
	assert_int_equal(host.answer.value, BLOCKS / 2);
	host_audit(&host);
}

static void test_a_put_is_aborted(void **state)
{
	const struct abi_put_args all = { .count = BLOCKS / 2 };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_ABORT };

	(void)state;
	assert_int_equal(host_reserve(&host, &all, 200, 0), 0);
	sqe.handle = host.answer.value;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer(), 0);
	assert_int_equal(context()->blocks_pending, 0);
}

/* Half of a sharded put of so many blocks, whose client goes no further with it. */
static void begin_half(uint32_t first, uint32_t count, uint64_t deadline_ns)
{
	const struct abi_put_args args = { .count = count, .shards = 2 };
	uint8_t *at = host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = count,
			       .context_id = host.context[0].id, .deadline_ns = deadline_ns,
			       .arg_bytes = (uint32_t)(sizeof(args) + count * ABI_KEY_BYTES) };

	memcpy(at, &args, sizeof(args));
	for (uint32_t i = 0; i < count; i++)
		host_key(first + i, at + sizeof(args) + (size_t)i * ABI_KEY_BYTES);
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 0);
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_ABORT, .handle = host.answer.value };
	assert_true(host_request(&host, 0, &sqe));
}

static int setup_many(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 700;
	host.cxl_bytes = 0;
	one_host_boot(&spec, 1);
	return 0;
}

/* However many wait longer before it. */
static void test_an_incomplete_block_goes_when_its_time_is_over(void **state)
{
	(void)state;
	begin_half(0, 600, host.now_ns + 60000 * MS);
	begin_half(1000, 10, host.now_ns + 20 * MS);
	assert_int_equal(context()->blocks_pending, 610);
	one_host_pause(60);
	assert_int_equal(context()->blocks_pending, 600);
	host_audit(&host);
}

/* ---- control ------------------------------------------------------------------------------ */

#define TOKEN (1ull << 32)
static uint32_t replies, refused;

static void replied(void *arg, uint64_t token, int32_t res, uint64_t value)
{
	(void)arg;
	(void)value;
	replies += token >= TOKEN;
	refused += token >= TOKEN && res != 0;
}

/* As many as there can be connections: each is answered, by one write of the catalog or two. */
static void test_all_ask_for_epochs_at_once(void **state)
{
	(void)state;
	replies = refused = 0;
	host.ears.reply = replied;
	host.held = true;
	for (uint32_t i = 0; i < CORE_CLIENTS_MAX; i++)
		assert_int_equal(core_context_epoch(host.core, host.context[0].id, 0, TOKEN + i),
				 0);
	host.held = false;
	assert_true(host_settle(&host, 100));
	assert_int_equal(replies, CORE_CLIENTS_MAX);
	assert_int_equal(refused, 0);
	host.ears.reply = NULL;
}

/* ---- conversations ------------------------------------------------------------------------ */

static void test_a_turn_ends_and_another_begins(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		ask(ABI_OP_CONVERSATION, 2, 8000, ABI_CONVERSATION_TURN_END);
		assert_int_equal(answer(), 0);
		assert_int_equal(host.answer.value, 8000);
		ask(ABI_OP_CONVERSATION, 2, 0, ABI_CONVERSATION_RETURN);
		assert_int_equal(answer(), 0);
		assert_int_equal(host.answer.value, 8000);
	}
	host_audit(&host);
	ask(ABI_OP_CONVERSATION, 2, 0, ABI_CONVERSATION_CLOSE);
	assert_int_equal(answer(), 0);
	host_audit(&host);
}

static void test_conversations_end_with_their_client(void **state)
{
	uint64_t before;

	(void)state;
	ask(ABI_OP_CONVERSATION, 2, 8000, ABI_CONVERSATION_TURN_END);
	assert_int_equal(answer(), 0);
	ask(ABI_OP_CONVERSATION, 2, 0, ABI_CONVERSATION_RETURN);
	before = host.core->metrics.items;
	host_client_gone(&host, 0);
	for (uint32_t i = 0; i < 100; i++)
		host_tick(&host, 0);
	assert_int_equal(host.core->requests.count, 0);
	assert_int_equal(host.core->conversations.count, 0);
	assert_int_equal(block_use(context(), 2)->hold, 0);
	assert_true(host.core->metrics.items - before < 100000);
	host_client_dead(&host, 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* ---- pins --------------------------------------------------------------------------------- */

static void test_a_long_pin(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_UNPIN, .context_id = host.context[0].id };

	(void)state;
	ask(ABI_OP_PIN, 3, 8000, 0);
	assert_int_equal(answer(), 0);
	host_audit(&host);
	sqe.handle = host.answer.value;
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer(), 0);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, 0);
	assert_int_equal(block_use(context(), 3)->pins[ABI_TIER_CXL], 0);
	assert_int_equal(host.core->pins.count, 0);
	host_audit(&host);
}

/* ---- plans ------------------------------------------------------------------------------- */

#define PLANNED 3000u /* blocks of one page: more than a walk may look at in one event */

static int setup_small(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = PLANNED;
	g->part[0].page_bytes = g->part[0].page_stride = 512;
	g->part[0].layers = g->part[0].groups = 1;
	memset(&g->part[1], 0, 2 * sizeof(g->part[1]));
	g->part_count = g->pages_per_block = 1;
	g->block_bytes = 512;
	one_host_boot(&spec, 1);
	for (uint32_t n = 0; n < PLANNED; n += 500)
		assert_int_equal(put(n, 500, 0), 0);
	return 0;
}

/* BEGIN with an access to each block, or the END of plan number. */
static struct abi_cqe plan(uint64_t number)
{
	const struct abi_plan_args args = { .access_ns = MS, .budget_bytes = 2 * 512 * PLANNED };
	struct abi_sqe sqe = { .op = ABI_OP_PLAN, .tier = ABI_TIER_CXL, .handle = number,
			       .mode = number ? ABI_PLAN_END : ABI_PLAN_BEGIN, .arg_offset = 8,
			       .context_id = host.context[0].id, .count = number ? 0 : PLANNED };
	uint8_t *at = host.client[0].staging + 8;

	memcpy(at, &args, sizeof(args));
	at += sizeof(args);
	for (uint32_t i = 0; i < PLANNED; i++, at += sizeof(struct abi_access)) {
		const struct abi_access a = {
			.block = { i, index_block(&context()->ix, i)->generation },
		};

		memcpy(at, &a, sizeof(a));
	}
	sqe.arg_bytes = number ? 0 : (uint32_t)(at - host.client[0].staging) - 8;
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer(), 0);
	return host.answer;
}

static uint32_t marks(void)
{
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < PLANNED; slot++)
		n += block_use(context(), slot)->planned[ABI_TIER_CXL];
	return n;
}

/* Who ends one has its answer at once, and who waits for the place has it in a few turns. */
static void test_a_long_plan_is_let_go(void **state)
{
	uint64_t position = PLANNED, id[PLANS_CLIENT_MAX];

	(void)state;
	memcpy(host.client[0].staging, &position, sizeof(position));
	for (uint32_t i = 0; i < PLANS_MAX * 2; i += PLANS_CLIENT_MAX) {
		for (uint32_t k = 0; k < PLANS_CLIENT_MAX; k++)
			id[k] = plan(0).value;
		one_host_pause(100);
		assert_int_equal(marks(), PLANS_CLIENT_MAX * PLANNED);
		for (uint32_t k = 0; k < PLANS_CLIENT_MAX; k++)
			plan(id[k]);
		assert_true(marks() > 0);
		assert_true(host.core->plans.count > 0);
	}
	one_host_pause(100);
	assert_int_equal(marks(), 0);
	assert_int_equal(host.core->plans.count, 0);
	host_audit(&host);
}

/* ---- parked prefetches ------------------------------------------------------------------- */

/* All are due at once: some are looked at in each tick, and counted, until all are answered. */
static void test_parked_prefetches_are_due(void **state)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)host.client[0].staging;
	const uint32_t count = ABI_ARG_BYTES_MAX / sizeof(*ref);
	const struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .tier = ABI_TIER_CXL, .count = count,
				     .klass = ABI_CLASS_DEADLINE, .arg_bytes = ABI_ARG_BYTES_MAX,
				     .context_id = host.context[0].id,
				     .deadline_ns = host.now_ns + 1000 * MS };
	uint64_t before;

	(void)state;
	for (uint32_t i = 0; i < count; i++)
		ref[i] = (struct abi_block_ref){ i % PLANNED,
			index_block(&context()->ix, i % PLANNED)->generation };
	for (uint32_t i = 0; i < PARKED_CLIENT_MAX; i++) {
		before = host.core->metrics.items;
		assert_true(host_request(&host, 0, &sqe));
		assert_true(host.core->metrics.items - before >= count / 8);
	}
	assert_int_equal(host.core->parked.count, PARKED_CLIENT_MAX);
	while (host.core->parked.count == PARKED_CLIENT_MAX) {
		assert_true(host.now_ns < sqe.deadline_ns);
		host_tick(&host, MS);
	}
	assert_true(host.core->parked.count > PARKED_CLIENT_MAX / 2);
	for (uint32_t i = 0; i < 20 * PARKED_CLIENT_MAX && host.core->parked.count; i++)
		host_tick(&host, 0); /* without time to pass */
	assert_int_equal(host.core->parked.count, 0);
	one_host_pause(2000);
	assert_int_equal(host.core->requests.count, 0);
	host_audit(&host);
}

/* ---- reservations ------------------------------------------------------------------------ */

#define ROOM (1ull << 30) /* 512 slabs */
#define ROOM_PAGE 65536u

static int setup_room(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = 16;
	spec.quota[ABI_TIER_CXL] = 0;
	g->part[0].page_bytes = g->part[0].page_stride = ROOM_PAGE;
	g->part[0].layers = g->part[0].groups = 1;
	memset(&g->part[1], 0, 2 * sizeof(g->part[1]));
	g->part_count = g->pages_per_block = 1;
	g->block_bytes = ROOM_PAGE;
	host.cxl_bytes = ROOM;
	one_host_boot(&spec, 1);
	return 0;
}

/* Three quarters of all slabs: they are taken in several events, and then promised at once. */
static void test_a_large_reservation(void **state)
{
	const struct abi_reserve_args args = { .expected = ROOM / 4 * 3 / ROOM_PAGE,
					       .p95 = ROOM / 4 * 3 / ROOM_PAGE };
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .context_id = host.context[0].id, .count = 1,
			       .arg_bytes = sizeof(args) };
	const struct pool *pool = &host.core->pool[ABI_TIER_CXL];

	(void)state;
	memcpy(host.client[0].staging, &args, sizeof(args));
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 1); /* not in that event */
	assert_int_equal(pool->reserved, 0);
	assert_int_equal(answer(), 0);
	assert_int_equal(pool->reserved, ROOM / 4 * 3);
	sqe.handle = host.answer.value;
	sqe.count = sqe.arg_bytes = 0;
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(answer(), 0);
	assert_int_equal(pool->reserved, 0);
	host_audit(&host);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, one_host_off)
	static const struct CMUnitTest tests[] = {
		T(test_a_block_asked_for_often),
		T(test_a_list_with_an_end),
		T(test_who_asked_goes),
		T(test_others_are_answered_at_once),
		T(test_a_put_narrows_what_another_announced),
		T(test_a_put_is_aborted),
		cmocka_unit_test_setup_teardown(
			test_an_incomplete_block_goes_when_its_time_is_over, setup_many,
			one_host_off),
		cmocka_unit_test_setup_teardown(test_all_ask_for_epochs_at_once, setup_many,
						one_host_off),
		T(test_a_turn_ends_and_another_begins),
		T(test_conversations_end_with_their_client),
		T(test_a_long_pin),
		cmocka_unit_test_setup_teardown(test_a_long_plan_is_let_go, setup_small,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_parked_prefetches_are_due, setup_small,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_large_reservation, setup_room,
						one_host_off),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core, bounds", tests, one_host, NULL);
}
