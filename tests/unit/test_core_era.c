/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels keep what was retired while they ran (abi/hazard.h H4): from a snapshot behind the fence
 * until their stream has counted so many launches, and no longer; nobody else's places, and none
 * for ever.
 */
#include "tests/unit/one_host.h"
#include "tierd/core/book/book.h"

static struct context *begin(uint32_t clients)
{
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = 4 * ABI_HUGE;
	one_host_boot(&spec, clients);
	return core_context(host.core, host.context[0].id);
}

static void put(uint32_t n)
{
	const struct abi_put_args args = { .count = 1 };

	assert_int_equal(host_reserve(&host, &args, n, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, 1);
}

static void drop(uint32_t n)
{
	assert_true(host_request_keys(&host, 0, (struct abi_sqe){ .op = ABI_OP_DELETE }, n, 1));
	assert_int_equal(host.answer.res, 0);
}

static struct abi_reader *stream_of(uint32_t client, uint32_t i)
{
	return &host.client[client].readers[i];
}

static void pass(uint32_t ticks)
{
	while (ticks-- > 0)
		host_tick(&host, 2 * MS);
}

static uint64_t kept(void)
{
	return host.core->reclaim.quarantined[ABI_TIER_CXL];
}

static void end(void)
{
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

static void test_kept_until_the_stream_has_counted(void **state)
{
	(void)state;
	begin(1);
	put(0);
	put(1);
	stream_of(0, 1)->era_begin = 7;
	stream_of(0, 1)->era_done = 6;
	drop(0);
	pass(10);
	assert_true(kept() > 0);
	stream_of(0, 1)->era_begin = 9; /* later launches do not matter */
	pass(2);
	assert_true(kept() > 0);
	stream_of(0, 1)->era_done = 7;
	pass(2);
	assert_int_equal(kept(), 0);
	stream_of(0, 1)->era_done = 9;
	end();
}

/* A launch behind another, always one under way: what is retired goes nevertheless. */
static void test_a_busy_stream_starves_nobody(void **state)
{
	struct abi_reader *r;
	uint64_t most = 0;

	(void)state;
	begin(1);
	r = stream_of(0, 0);
	r->era_begin = 2;
	for (uint32_t n = 0; n < 200; n++) {
		put(n);
		drop(n);
		pass(1);
		r->era_begin++;
		r->era_done++;
		most = kept() > most ? kept() : most;
	}
	assert_true(most > 0);
	pass(1);
	assert_true(kept() < most + 1);
	for (uint32_t i = 0; i < 3; i++) { /* two snapshots, one behind the other */
		r->era_begin += 2;
		r->era_done += 2;
		pass(1);
	}
	assert_int_equal(kept(), 0);
	r->era_done = r->era_begin;
	end();
}

/* The slower of two streams counts; of a client that has not opened the context, none does. */
static void test_whose_streams_count(void **state)
{
	(void)state;
	begin(2);
	host_client_open(&host, 2); /* attached to nothing */
	put(0);
	put(1);
	stream_of(0, 0)->era_begin = stream_of(1, HOST_READERS - 1)->era_begin = 5;
	stream_of(2, 0)->era_begin = 1;
	drop(0);
	pass(4);
	stream_of(0, 0)->era_done = 5;
	pass(4);
	assert_true(kept() > 0);
	stream_of(1, HOST_READERS - 1)->era_done = 5;
	pass(4);
	assert_int_equal(kept(), 0);
	/* Retired after their end: nobody has it. */
	drop(1);
	pass(2);
	assert_int_equal(kept(), 0);
	end();
}

/* Gone is not dead: kernels of a client that hung up go on. */
static void test_death_ends_it(void **state)
{
	(void)state;
	begin(2);
	put(0);
	stream_of(1, 0)->era_begin = 1;
	drop(0);
	pass(4);
	host_client_gone(&host, 1);
	pass(4);
	assert_true(kept() > 0);
	host_client_dead(&host, 1);
	pass(4);
	assert_int_equal(kept(), 0);
	/* Its successor under the same number has none of it. */
	memset(stream_of(1, 0), 0, sizeof(*stream_of(1, 0)));
	host_client_open(&host, 1);
	host_client_attach(&host, 1);
	put(1);
	drop(1);
	pass(2);
	assert_int_equal(kept(), 0);
	end();
}

/* A client's words: nonsense keeps what is its own to keep, at most. */
static void test_nonsense(void **state)
{
	(void)state;
	begin(1);
	put(0);
	put(1);
	stream_of(0, 0)->era_begin = 1;
	stream_of(0, 0)->era_done = UINT64_MAX;
	drop(0);
	pass(2);
	assert_int_equal(kept(), 0);
	stream_of(0, 0)->era_begin = UINT64_MAX;
	stream_of(0, 0)->era_done = 5;
	drop(1);
	pass(2);
	assert_true(kept() > 0);
	stream_of(0, 0)->era_begin = 0; /* back again */
	pass(2);
	assert_int_equal(kept(), 0);
	end();
}

/*
 * Slots of readers take most of a turn: the pass goes over the places of the client's kernels in
 * two, and misses none, and counts none twice.
 */
static void test_places_are_gone_over_in_turns(void **state)
{
	const struct scan *s;
	bool parted = false;
	uint64_t one;

	(void)state;
	begin(2);
	s = &host.core->reclaim.scan;
	for (uint32_t n = 0; n < 12; n++)
		put(n);
	for (uint32_t i = 0; i < 4; i++)
		stream_of(i / 2, i % 2)->high_water = ABI_HAZARD_SLOTS;
	stream_of(1, 1)->high_water -= 5;
	stream_of(1, 0)->era_begin = 1;
	drop(0);
	pass(4);
	one = kept();
	assert_true(one > 0);
	for (uint32_t n = 1; n < 12; n++)
		drop(n);
	for (uint32_t i = 0; i < 20; i++) {
		pass(1);
		parted |= s->running && s->client == 1 && s->reader == HOST_READERS && s->slot;
	}
	assert_true(parted);
	assert_int_equal(host.core->metrics.event_items_most, CORE_ITEMS_MAX);
	assert_int_equal(kept(), 12 * one);
	assert_int_equal(host.core->client[0].held_last[ABI_TIER_CXL], 0);
	assert_int_equal(host.core->client[1].held_last[ABI_TIER_CXL], 12 * one);
	stream_of(1, 0)->era_done = 1;
	pass(6);
	assert_int_equal(kept(), 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept_until_the_stream_has_counted),
		cmocka_unit_test(test_a_busy_stream_starves_nobody),
		cmocka_unit_test(test_whose_streams_count),
		cmocka_unit_test(test_death_ends_it),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_places_are_gone_over_in_turns),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
