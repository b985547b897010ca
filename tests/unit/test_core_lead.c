/*
 * Leads of conversations: what is behind them leaves first, nobody is kept from room by them, they
 * come to no more than their share, of which users have equal parts, and READY is said of whole
 * leads only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define KEYS 24u
#define LAYERS 8u
#define PAGE 4096u
#define SECOND (1000 * MS)

/* Blocks of one part of so many layers, of low priority from the half on, all written back. */
static int begin(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	g->part_count = 1;
	g->part[0].layers = LAYERS;
	g->part[0].groups = 1;
	g->pages_per_block = LAYERS;
	g->block_bytes = (uint64_t)LAYERS * PAGE;
	one_host_boot(&spec, 1);
	one_host_other_user(1);
	for (uint32_t n = 0; n < KEYS; n++) {
		const struct abi_put_args args = {
			.count = 1,
			.priority = n < KEYS / 2 ? 0 : ABI_PRIORITY_LOW,
		};

		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
		assert_true(host_settle(&host, 100));
	}
	return 0;
}

static struct abi_block_ref block(uint32_t n)
{
	uint8_t key[ABI_KEY_BYTES];
	struct abi_block_ref ref;

	host_key(n, key);
	ref.slot = index_find(&context()->ix, key);
	ref.generation = index_block(&context()->ix, ref.slot)->generation;
	return ref;
}

static uint32_t pages(uint32_t n)
{
	return context()->meta[block(n).slot].there[ABI_TIER_CXL].pages;
}

/* Its first pages are there, and no others. */
static bool only_first(uint32_t n, uint32_t count)
{
	for (uint32_t i = 0; i < LAYERS; i++)
		if ((page_state(index_page(&context()->ix, block(n).slot, i), ABI_TIER_CXL) ==
		     ABI_PAGE_READY) != (i < count))
			return false;
	return true;
}

static void say(uint32_t client, uint64_t id, uint8_t mode, uint32_t first, uint32_t count)
{
	const struct abi_conversation_args args = { .salt = 5, .layer_ns = 3600 * SECOND };
	struct abi_sqe sqe = { .op = ABI_OP_CONVERSATION, .handle = id, .mode = mode,
			       .tier = ABI_TIER_CXL };
	uint8_t *at = host.client[client].staging;

	sqe.context_id = host.context[0].id;
	memcpy(at, &args, sizeof(args));
	for (uint32_t i = 0; i < count; i++) {
		struct abi_block_ref ref = block(first + i);

		memcpy(at + sizeof(args) + i * sizeof(ref), &ref, sizeof(ref));
	}
	sqe.count = count;
	if (mode == ABI_CONVERSATION_TURN_END)
		sqe.arg_bytes = (uint32_t)(sizeof(args) + count * sizeof(struct abi_block_ref));
	assert_true(host_request(&host, client, &sqe));
	assert_int_equal(host.answer.res, 0);
}

static void evict(void)
{
	core_evict(host.core, context()->id, ABI_TIER_CXL, UINT64_MAX, 1);
	host_look(&host);
	for (uint32_t i = 0; i < 10; i++)
		host_tick(&host, MS); /* users are away meanwhile, but not for long */
	host_audit(&host);
}

/* ... whose lead is the first two layers. */
static void say_two(uint32_t client, uint64_t id, uint32_t first, uint32_t count)
{
	struct conversation *s = host.core->conversations.table;

	say(client, id, ABI_CONVERSATION_TURN_END, first, count);
	while (s->id != id)
		s++;
	s->lead = 2;
	lead_keep(host.core, s, 2);
}

/* What is kept is what the test says. */
static void no_looks(void)
{
	context()->lead_ns[ABI_TIER_CXL] = host.now_ns + 1000 * SECOND;
}

static struct conversation *conversation(uint32_t i)
{
	return &host.core->conversations.table[i];
}

/* Evicting all leaves the leads for now. */
static void test_the_rest_leaves_before_the_lead(void **state)
{
	(void)state;
	say_two(0, 1, 0, 2);
	evict();
	for (uint32_t n = 0; n < KEYS; n++)
		assert_true(n < 2 ? only_first(n, 2) : pages(n) == 0);
	say(0, 1, ABI_CONVERSATION_RETURN, 0, 0);
	assert_int_equal(host.answer.status, ABI_STATUS_READY);
	assert_int_equal(host.answer.aux, 2);
	host_audit(&host);
}

/* So many layers as are not there in time: one where a layer takes an hour, all if nobody knows. */
static void test_a_lead_is_what_is_needed(void **state)
{
	struct conversation *s = conversation(0);

	(void)state;
	say(0, 1, ABI_CONVERSATION_TURN_END, 0, 4);
	assert_int_equal(s->lead, 1);
	s->layer_ns = 1;
	assert_int_equal(lead_need(host.core, s), LAYERS);
	s->layer_ns = 0;
	assert_int_equal(lead_need(host.core, s), LAYERS);
}

/* Nothing else is there: the lead goes, and nobody waits for its room. */
static void test_a_lead_keeps_nobody_from_room(void **state)
{
	(void)state;
	say_two(0, 1, 0, 2);
	evict();
	assert_int_equal(pages(0), 2);
	evict();
	assert_int_equal(pages(0), 0);
}

/* Nor is it kept for whom it is to leave first anyway. */
static void test_low_priority_keeps_no_lead(void **state)
{
	(void)state;
	say_two(0, 1, KEYS - 2, 2);
	evict();
	assert_int_equal(pages(KEYS - 1), 0);
}

/* Two conversations share a block: it is kept while one of them is away. */
static void test_a_shared_lead_is_kept_for_both(void **state)
{
	(void)state;
	say_two(0, 1, 0, 2);
	say_two(0, 2, 1, 2);
	say(0, 1, ABI_CONVERSATION_CLOSE, 0, 0);
	evict();
	assert_true(pages(0) == 0 && only_first(1, 2) && only_first(2, 2));
	say(0, 2, ABI_CONVERSATION_CLOSE, 0, 0);
	evict();
	assert_true(pages(1) == 0 && pages(2) == 0);
}

/* Whoever guesses a reference to a block that is only begun: it has no lead before it is whole. */
static void test_a_block_that_is_begun_has_no_lead(void **state)
{
	const struct abi_put_args args = { .count = 1 };
	uint64_t handle;
	uint32_t slot;

	(void)state;
	assert_int_equal(host_reserve(&host, &args, KEYS, 0), 0);
	handle = host.answer.value;
	slot = block(KEYS).slot;
	assert_int_equal(index_block(&context()->ix, slot)->state, ABI_BLOCK_PENDING);
	say_two(1, 7, KEYS, 1);
	host_audit(&host);
	assert_int_equal(block_use(context(), slot)->missing, LAYERS);
	host.answer.value = handle;
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, 1);
	host_audit(&host);
}

static uint64_t kept_bytes(uint32_t client)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < host.core->conversations.high; i++)
		if (conversation(i)->client == client)
			bytes += (uint64_t)conversation(i)->kept * conversation(i)->blocks * PAGE;
	return bytes;
}

/* All together have their share of what is there, and whoever talks more gets no more of it. */
static void test_leads_share_what_there_is(void **state)
{
	const uint32_t many = 60, blocks = 8;
	struct space_stats st;
	uint64_t room;

	(void)state;
	space_stats(context()->space[ABI_TIER_CXL], &st);
	room = (st.live + st.available + st.punching) / 100 * QUOTA_PROMISES_PERCENT;
	for (uint64_t id = 0; id < many; id++)
		say(id >= many - 10, id, ABI_CONVERSATION_TURN_END, 0, blocks);
	for (uint32_t i = 0; i < many; i++) { /* as if layers took no time */
		conversation(i)->lead = LAYERS;
		lead_keep(host.core, conversation(i), LAYERS);
	}
	assert_true(kept_bytes(0) > room && kept_bytes(1) < room);
	host.now_ns += SECOND;
	host_tick(&host, 0);
	meter_begin(&host.core->meter);
	lead_look(host.core, context(), ABI_TIER_CXL);
	assert_true(kept_bytes(0) + kept_bytes(1) <= room);
	assert_in_range(kept_bytes(0), room / 2 - room / 8, room / 2 + room / 8);
	assert_in_range(kept_bytes(1), room / 2 - room / 8, room / 2 + room / 8);
	host_audit(&host);
}

/* The part of a lead that there was room for is no READY. */
static void test_ready_is_a_whole_lead(void **state)
{
	(void)state;
	say_two(0, 1, 0, 2);
	no_looks();
	lead_keep(host.core, conversation(0), 1);
	evict();
	assert_int_equal(pages(0), 1);
	say(0, 1, ABI_CONVERSATION_RETURN, 0, 0);
	assert_int_equal(host.answer.status, ABI_STATUS_LATE);
	assert_int_equal(host.answer.aux, 0);
}

/* Pins of leads have a budget: as if it were full. */
static void unpin_all(void)
{
	for (uint32_t i = 0; i < host.core->pins.high; i++)
		if (host.core->pins.table[i].used)
			pin_end(host.core, &host.core->pins.table[i]);
}

/* When more may be kept again, the rest of the lead is brought. */
static void test_what_may_be_kept_again_comes_back(void **state)
{
	struct conversation *s = conversation(0);

	(void)state;
	say_two(0, 1, 0, 2);
	for (uint32_t n = 0; n < 200 && s->state != CONVERSATION_STAGED; n++)
		host_tick(&host, 10 * MS);
	assert_int_equal(s->state, CONVERSATION_STAGED);
	unpin_all();
	no_looks();
	lead_keep(host.core, s, 1);
	conversation_kept(host.core, s);
	evict();
	assert_int_equal(s->staged, 1);
	lead_keep(host.core, s, 2);
	conversation_kept(host.core, s);
	for (uint32_t n = 0; n < 20; n++)
		host_tick(&host, 10 * MS);
	assert_true(only_first(0, 2) && only_first(1, 2));
	host_audit(&host);
}

/* Pinned leads cannot leave: to see that takes an event one look each, not one a page. */
static void test_pinned_leads_are_passed_over_whole(void **state)
{
	(void)state;
	say_two(0, 1, 0, KEYS / 2);
	evict();
	for (uint32_t n = 0; n < 200 && conversation(0)->state != CONVERSATION_STAGED; n++)
		host_tick(&host, 10 * MS);
	assert_int_equal(conversation(0)->state, CONVERSATION_STAGED);
	for (uint32_t n = 0; n < KEYS / 2; n++)
		assert_true(only_first(n, 2));
	meter_begin(&host.core->meter);
	assert_int_equal(evict_some(host.core, context(), ABI_TIER_CXL, PAGE), 0);
	assert_true(host.core->meter.items < KEYS);
	host_audit(&host);
}

/* Who was away for as long as most were before they came back, against who just left or is late. */
static void test_odds_follow_what_is_known(void **state)
{
	struct context *x = context();
	uint64_t soon;

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		think_learn(host.core, x, 5, 8 * SECOND + i * SECOND / 25);
	soon = think_soon_ns(host.core, x, 5);
	assert_in_range(soon, SECOND, 4 * SECOND);
	assert_true(think_odds(host.core, x, 5, 9 * SECOND, soon) >
		    10 * think_odds(host.core, x, 5, SECOND, soon));
	assert_true(think_odds(host.core, x, 5, 9 * SECOND, soon) >
		    2 * think_odds(host.core, x, 5, 600 * SECOND, soon));
	/* Nothing is known: who left last is back first. */
	assert_true(think_odds(host.core, x, 6, SECOND, soon) <= 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_the_rest_leaves_before_the_lead),
		CASE(test_a_lead_is_what_is_needed),
		CASE(test_a_lead_keeps_nobody_from_room),
		CASE(test_low_priority_keeps_no_lead),
		CASE(test_a_shared_lead_is_kept_for_both),
		CASE(test_a_block_that_is_begun_has_no_lead),
		CASE(test_leads_share_what_there_is),
		CASE(test_ready_is_a_whole_lead),
		CASE(test_what_may_be_kept_again_comes_back),
		CASE(test_pinned_leads_are_passed_over_whole),
		CASE(test_odds_follow_what_is_known),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
