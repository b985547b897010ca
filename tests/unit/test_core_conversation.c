/*
 * Conversations: what one turn takes the next one gives back, what a client takes ends with it,
 * think times are learned of each tenant by itself, and READY is said only of a lead that is there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define KEYS 8u
#define SECOND (1000 * MS)

static struct context *context_at(uint32_t i)
{
	return core_context(host.core, host.context[i].id);
}

static int begin(void **state)
{
	const struct abi_put_args args = { .count = KEYS };
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 1);
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, KEYS);
	return 0;
}

static struct abi_block_ref block(uint32_t n)
{
	const struct context *x = context_at(0);
	uint8_t key[ABI_KEY_BYTES];
	struct abi_block_ref ref;

	host_key(n, key);
	ref.slot = index_find(&x->ix, key);
	ref.generation = index_block(&x->ix, ref.slot)->generation;
	return ref;
}

/* One event of a conversation; TURN_END names the first `count` blocks, and a part; NULL = all. */
static uint64_t said; /* user_data of the last entry */

static struct abi_cqe say_of(uint32_t client, uint32_t which, uint64_t id, uint8_t mode,
			     uint32_t count, const uint16_t *part)
{
	const struct abi_conversation_args args = { .salt = 5,
						    .return_ns = host.now_ns + 100 * MS };
	struct abi_sqe sqe = { .op = ABI_OP_CONVERSATION, .handle = id, .mode = mode,
			       .tier = ABI_TIER_CXL };
	uint8_t *at = host.client[client].staging;

	sqe.context_id = host.context[which].id;
	if (part) {
		sqe.part_first = *part;
		sqe.part_count = 1;
	}
	if (mode == ABI_CONVERSATION_TURN_END) {
		memcpy(at, &args, sizeof(args));
		for (uint32_t i = 0; i < count; i++) {
			struct abi_block_ref ref = block(i % KEYS);

			memcpy(at + sizeof(args) + i * sizeof(ref), &ref, sizeof(ref));
		}
		sqe.count = count;
		sqe.arg_bytes = (uint32_t)(sizeof(args) + count * sizeof(struct abi_block_ref));
	}
	sqe.user_data = ++said;
	assert_true(host_request(&host, client, &sqe));
	for (uint32_t i = 0; i < 1000 && host.answer.user_data != said; i++)
		host_tick(&host, 0); /* what makes room for it is more than one event's */
	assert_int_equal(host.answer.user_data, said);
	return host.answer;
}

static struct abi_cqe say(uint32_t which, uint64_t id, uint8_t mode, uint32_t count)
{
	return say_of(0, which, id, mode, count, NULL);
}

/* More conversations than a client or the tables hold at a time, one after the other. */
static void test_what_ends_gives_back(void **state)
{
	(void)state;
	for (uint64_t id = 1; id <= CONVERSATIONS_CLIENT_MAX + 50; id++) {
		struct abi_cqe end =
			say(0, id, ABI_CONVERSATION_TURN_END, 16 * CONVERSATION_CHUNK_REFS);

		assert_int_equal(end.res, 0);
		assert_int_equal(end.value, 16 * CONVERSATION_CHUNK_REFS);
		assert_int_equal(say(0, id, ABI_CONVERSATION_CLOSE, 0).res, 0);
	}
	assert_int_equal(host.core->conversations.count, 0);
	assert_int_equal(host.core->client[0].used[ACCOUNT_CONVERSATIONS], 0);
	/* One that goes on for ever keeps its last turn's blocks, not those of all. */
	for (uint32_t turn = 0; turn < CONVERSATION_CHUNKS / 16 + 50; turn++) {
		struct abi_cqe end =
			say(0, 1, ABI_CONVERSATION_TURN_END, 16 * CONVERSATION_CHUNK_REFS);

		assert_int_equal(end.value, 16 * CONVERSATION_CHUNK_REFS);
	}
}

/*
 * What is staged for a user's conversations waits for its share of the parked prefetches, as others
 * do.
 */
static void test_staging_takes_its_users_parked_prefetches(void **state)
{
	const uint32_t most = PARKED_MAX / 4 * 3;
	uint32_t account = host.core->client[0].account;
	struct conversation *s = host.core->conversations.table;

	(void)state;
	one_host_other_user(1);
	for (uint32_t i = 0; i < most; i++)
		account_take_for(host.core, account, ACCOUNT_PARKED);
	assert_int_equal(say(0, 1, ABI_CONVERSATION_TURN_END, KEYS).res, 0);
	assert_int_equal(say_of(1, 0, 2, ABI_CONVERSATION_TURN_END, KEYS, NULL).res, 0);
	for (uint32_t i = 0; i < 5; i++)
		host_tick(&host, 10 * MS);
	assert_int_equal(s[0].state, CONVERSATION_AWAY);
	assert_true(s[1].state == CONVERSATION_STAGING || s[1].state == CONVERSATION_STAGED);
	for (uint32_t i = 0; i < most; i++)
		account_give(host.core, account, NULL, ACCOUNT_PARKED);
	for (uint32_t i = 0; i < 2; i++)
		host_tick(&host, 10 * MS);
	assert_true(s[0].state == CONVERSATION_STAGING || s[0].state == CONVERSATION_STAGED);
	host_audit(&host);
}

/* One user's conversations fill the table: it is its own that are forgotten, also the next ones. */
static void test_who_has_most_is_forgotten_first(void **state)
{
	(void)state;
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	one_host_other_user(2);
	/* Theirs is the one whose patience ends first. */
	assert_int_equal(say_of(2, 0, 1, ABI_CONVERSATION_TURN_END, KEYS, NULL).res, 0);
	host.now_ns++;
	for (uint32_t client = 0; client < 2; client++)
		for (uint64_t id = 0; id < CONVERSATIONS_CLIENT_MAX; id++)
			assert_int_equal(say_of(client, 0,
						client * CONVERSATIONS_CLIENT_MAX + id + 2,
						ABI_CONVERSATION_TURN_END, 1, NULL)
						 .res,
					 0);
	assert_int_equal(host.core->conversations.count, CONVERSATIONS_MAX);
	assert_int_equal(say_of(2, 0, 1, ABI_CONVERSATION_RETURN, 0, NULL).status,
			 ABI_STATUS_READY);
	assert_int_equal(host.answer.value, KEYS);
	for (uint64_t id = 0; id < 3; id++)
		assert_int_equal(
			say_of(2, 0, (1u << 20) + id, ABI_CONVERSATION_TURN_END, 1, NULL).value, 1);
	assert_int_equal(host.core->client[2].used[ACCOUNT_CONVERSATIONS], 4);
	assert_int_equal(host.core->conversations.count, CONVERSATIONS_MAX);
	assert_int_equal(say_of(1, 0, 1u << 21, ABI_CONVERSATION_TURN_END, 1, NULL).res, -ENOBUFS);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_LIMIT, ABI_LIMIT_CLIENT);
	host_audit(&host);
}

/* The same of what they will read; who has most keeps as much as there is. */
static void test_who_will_read_most_is_forgotten_first(void **state)
{
	const uint32_t many = 256 * CONVERSATION_CHUNK_REFS, few = 3 * CONVERSATION_CHUNK_REFS;

	(void)state;
	one_host_other_user(1);
	for (uint64_t id = 1; id <= CONVERSATION_CHUNKS / 256; id++)
		assert_int_equal(say(0, id, ABI_CONVERSATION_TURN_END, many).value, many);
	assert_int_equal(say(0, 1000, ABI_CONVERSATION_TURN_END, few).value, 0);
	assert_int_equal(say_of(1, 0, 2000, ABI_CONVERSATION_TURN_END, few, NULL).value, few);
	assert_int_equal(host.core->client[0].used[ACCOUNT_REFS], CONVERSATION_CHUNKS - 256);
	assert_int_equal(say_of(1, 0, 2000, ABI_CONVERSATION_CLOSE, 0, NULL).res, 0);
	host_audit(&host);
}

/* A return protects the prefix, once, until the turn's end; it counts as one return. */
static void test_a_turn_is_protected_while_it_lasts(void **state)
{
	(void)state;
	for (uint32_t turn = 1; turn <= 5; turn++) {
		assert_int_equal(say(0, 1, ABI_CONVERSATION_TURN_END, KEYS).res, 0);
		assert_int_equal(host.core->pins.count, 0);
		host_tick(&host, 10 * MS);
		assert_int_equal(say(0, 1, ABI_CONVERSATION_RETURN, 0).res, 0);
		assert_int_equal(host.core->pins.count, 1);
		assert_int_equal(say(0, 1, ABI_CONVERSATION_RETURN, 0).res, 0);
		assert_int_equal(host.core->metrics.conversation_returns, turn);
	}
	host_audit(&host);
}

static void test_ready_only_if_it_is_there(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_DELETE };

	(void)state;
	assert_int_equal(say(0, 1, ABI_CONVERSATION_TURN_END, KEYS).res, 0);
	for (uint32_t i = 0; i < 30; i++)
		host_tick(&host, 5 * MS);
	assert_int_equal(say(0, 1, ABI_CONVERSATION_RETURN, 0).status, ABI_STATUS_READY);
	assert_int_equal(say(0, 1, ABI_CONVERSATION_TURN_END, KEYS).res, 0);
	for (uint32_t i = 0; i < 30; i++)
		host_tick(&host, 5 * MS);
	host_key(2, host.client[0].staging);
	sqe.context_id = host.context[0].id;
	sqe.count = 1;
	sqe.arg_bytes = ABI_KEY_BYTES;
	assert_true(host_request(&host, 0, &sqe));
	host_tick(&host, 5 * MS);
	assert_int_equal(say(0, 1, ABI_CONVERSATION_RETURN, 0).status, ABI_STATUS_LATE);
	assert_int_equal(host.core->metrics.conversation_returns, 2);
	assert_int_equal(host.core->metrics.conversation_ready, 1);
}

static uint32_t layers_of_all(void)
{
	const struct abi_geometry *g = &context_at(0)->spec.geometry;
	uint32_t most = 0;

	for (uint32_t i = 0; i < g->part_count; i++)
		most = g->part[i].layers > most ? g->part[i].layers : most;
	return most;
}

/* Whoever brought it: what is in the tier needs no staging. */
static void test_ready_before_anything_was_staged(void **state)
{
	const struct abi_part *part = &context_at(0)->spec.geometry.part[1];
	struct abi_sqe fetch = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .part_first = 1,
				 .part_count = 1 };
	const uint16_t one = 1, two = 2;
	struct abi_cqe back;

	(void)state;
	say(0, 1, ABI_CONVERSATION_TURN_END, KEYS);
	back = say(0, 1, ABI_CONVERSATION_RETURN, 0);
	assert_int_equal(back.status, ABI_STATUS_READY);
	assert_int_equal(back.aux, layers_of_all());
	assert_int_equal(host.core->metrics.conversation_ready, 1);
	assert_int_equal(say(0, 1, ABI_CONVERSATION_CLOSE, 0).res, 0);
	assert_true(host_settle(&host, 100));
	core_evict(host.core, context_at(0)->id, ABI_TIER_CXL, UINT64_MAX, 1);
	host_look(&host);
	assert_true(host_settle(&host, 100));
	assert_true(host_request_keys(&host, 0, fetch, 0, KEYS));
	assert_true(host_settle(&host, 100));
	/* In part: of the parts that will be read it is there, of others it is not. */
	say_of(0, 0, 2, ABI_CONVERSATION_TURN_END, KEYS, &one);
	back = say(0, 2, ABI_CONVERSATION_RETURN, 0);
	assert_int_equal(back.status, ABI_STATUS_READY);
	assert_int_equal(back.aux, part->layers);
	say_of(0, 0, 3, ABI_CONVERSATION_TURN_END, KEYS, &two);
	back = say(0, 3, ABI_CONVERSATION_RETURN, 0);
	assert_int_equal(back.status, ABI_STATUS_LATE);
	assert_int_equal(back.aux, 0);
	say(0, 4, ABI_CONVERSATION_TURN_END, KEYS);
	assert_int_equal(say(0, 4, ABI_CONVERSATION_RETURN, 0).status, ABI_STATUS_LATE);
	host_audit(&host);
}

static void test_a_conversation_is_its_contexts_and_clients(void **state)
{
	struct disk_context spec;

	(void)state;
	/* There are no such events. */
	assert_int_equal(say(0, 1, ABI_CONVERSATION_TURN_END - 1, 0).res, -EINVAL);
	assert_int_equal(say(0, 1, ABI_CONVERSATION_CLOSE + 1, 0).res, -EINVAL);
	host_spec(&spec, HOST_KIND_MEMORY, 1);
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	assert_int_equal(say(0, 9, ABI_CONVERSATION_TURN_END, KEYS).res, 0);
	assert_int_equal(say(1, 9, ABI_CONVERSATION_RETURN, 0).status, ABI_STATUS_MISS);
	assert_int_equal(say(1, 9, ABI_CONVERSATION_CLOSE, 0).res, -ENOENT);
	host_client_gone(&host, 0);
	assert_int_equal(host.core->conversations.count, 0);
	host_audit(&host);
}

/* One tenant is back in a second, the other in a minute: neither is taken for the other. */
static void test_tenants_think_for_themselves(void **state)
{
	struct context *x = context_at(0);
	uint64_t low, high;

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		think_learn(host.core, x, 1, SECOND);
		think_learn(host.core, x, 2, 60 * SECOND);
	}
	think_window(host.core, x, 1, &low, &high);
	assert_true(low <= SECOND && high >= SECOND && high < 10 * SECOND);
	think_window(host.core, x, 2, &low, &high);
	assert_true(low > 30 * SECOND && low <= 60 * SECOND && high >= 60 * SECOND);
	/* Twelve returns are enough to be known by. */
	for (uint32_t i = 0; i < 12; i++)
		think_learn(host.core, x, 3, 60 * SECOND);
	think_window(host.core, x, 3, &low, &high);
	assert_true(low > 30 * SECOND && high >= 60 * SECOND);
	/* Nor for one that stands beside it in the table. */
	for (uint64_t salt = 3; salt < 3 + 2 * THINK_TENANTS / THINK_WAYS; salt++)
		for (uint32_t i = 0; i < 20; i++)
			think_learn(host.core, x, salt, 60 * SECOND);
	think_window(host.core, x, 1, &low, &high);
	assert_true(low <= SECOND && high >= SECOND && high < 10 * SECOND);
}

/* How long a user was away is learned from the return itself. */
static void test_a_return_says_how_long_its_user_thinks(void **state)
{
	uint64_t low, high;

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(say(0, 1, ABI_CONVERSATION_TURN_END, 1).res, 0);
		host_tick(&host, 20 * SECOND);
		assert_int_equal(say(0, 1, ABI_CONVERSATION_RETURN, 0).res, 0);
	}
	assert_int_equal(core_metrics(host.core)->conversation_returns, 40);
	think_window(host.core, context_at(0), 5, &low, &high);
	assert_in_range(low, 10 * SECOND, 20 * SECOND);
	assert_in_range(high, 20 * SECOND, 80 * SECOND);
}

/* The window begins where the first of many come back, and ends behind the last. */
static void test_the_window_holds_those_who_come_back(void **state)
{
	uint64_t low, high;

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		think_learn(host.core, context_at(0), 5, SECOND + i * SECOND / 10);
	think_window(host.core, context_at(0), 5, &low, &high);
	assert_in_range(low, SECOND / 2, SECOND + SECOND / 10); /* bounds of buckets, outwards */
	assert_in_range(high, 11 * SECOND, 40 * SECOND);
}

/* Blocks that are on NVMe alone are staged for a turn that never comes: closed, or too late. */
static void test_an_abandoned_lead_leaves(void **state)
{
	const struct context *x = context_at(0);

	(void)state;
	for (uint32_t patient = 0; patient < 2; patient++) {
		assert_true(host_settle(&host, 100));
		core_evict(host.core, x->id, ABI_TIER_CXL, UINT64_MAX, 1);
		host_look(&host);
		assert_true(host_settle(&host, 100));
		assert_int_equal(x->pages_resident[ABI_TIER_CXL], 0);
		say(0, 9, ABI_CONVERSATION_TURN_END, KEYS);
		for (uint32_t ms = 0; ms < 150 && !host.core->staged.bytes; ms++)
			host_tick(&host, MS);
		assert_int_equal(x->pages_resident[ABI_TIER_CXL], KEYS * x->ix.pages_per_block);
		if (!patient)
			assert_int_equal(say(0, 9, ABI_CONVERSATION_CLOSE, 0).res, 0);
		for (uint32_t ms = 0; patient && ms < 2000; ms += 10)
			host_tick(&host, 10 * MS);
		assert_int_equal(x->pages_resident[ABI_TIER_CXL], 0);
		assert_int_equal(host.core->staged.bytes, 0);
		host_audit(&host);
	}
}

/* More conversations than one event ends: those that are left begin nothing meanwhile. */
static void test_a_removed_contexts_conversations_stage_nothing(void **state)
{
	struct context *x = context_at(0);

	(void)state;
	for (uint64_t id = 1; id <= CONVERSATIONS_CLIENT_MAX; id++)
		assert_int_equal(say(0, id, ABI_CONVERSATION_TURN_END, KEYS).res, 0);
	host_context_remove(&host, 0);
	assert_true(x->leaving);
	host_tick(&host, 100 * MS);
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.core->conversations.count, 0);
	host_audit(&host);
}

/* Pauses that are longer than any bucket has are of the last. */
static void test_the_longest_pauses_have_a_bucket(void **state)
{
	const struct think *t = &context_at(0)->think;

	(void)state;
	for (uint32_t octave = 43; octave < 64; octave++)
		think_learn(host.core, context_at(0), 5, 1ull << octave);
	assert_int_equal(t->count, 64 - 43);
	assert_int_equal(t->bucket[THINK_BUCKETS - 4], 1);
	assert_int_equal(t->bucket[THINK_BUCKETS - 1], 64 - 44);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_what_ends_gives_back),
		CASE(test_staging_takes_its_users_parked_prefetches),
		CASE(test_who_has_most_is_forgotten_first),
		CASE(test_who_will_read_most_is_forgotten_first),
		CASE(test_a_turn_is_protected_while_it_lasts),
		CASE(test_ready_only_if_it_is_there),
		CASE(test_ready_before_anything_was_staged),
		CASE(test_a_conversation_is_its_contexts_and_clients),
		CASE(test_tenants_think_for_themselves),
		CASE(test_a_return_says_how_long_its_user_thinks),
		CASE(test_the_longest_pauses_have_a_bucket),
		CASE(test_the_window_holds_those_who_come_back),
		CASE(test_an_abandoned_lead_leaves),
		CASE(test_a_removed_contexts_conversations_stage_nothing),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
