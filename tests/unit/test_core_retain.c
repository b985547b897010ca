/*
 * Priority and TTL over a restart (D12): they are as the put said; what lapsed while the daemon was
 * down is the first to go; a clock that was set back makes no TTL longer. A store of before says
 * nothing of them and is read as it was.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define WALL_MS 1790000000000ull /* of 2026 */
#define SECOND 1000u

enum { PLAIN, HIGH, LOW, BRIEF, LONG, KEYS };

static struct disk_context spec;

static void put(uint32_t n, uint8_t priority, uint32_t ttl_ms)
{
	const struct abi_put_args args = { .count = 1, .priority = priority, .ttl_ms = ttl_ms };

	assert_int_equal(host_reserve(&host, &args, n, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, 0));
	assert_true(host_settle(&host, 1000));
	assert_int_equal(host.answer.value, 1);
}

static void clock_says(uint64_t wall_ms)
{
	struct core_event e = { .kind = CORE_EV_CLOCK, .wall_ms = wall_ms };

	host_event(&host, &e);
}

/* UINT32_MAX = the block is not there. */
static uint32_t rank_of(uint32_t n)
{
	struct context *x = core_context(host.core, host.context[0].id);
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot, its;

	host_key(n, key);
	slot = index_find(&x->ix, key);
	if (slot == ABI_SLOT_NONE)
		return UINT32_MAX;
	its = quota_rank(host.core, x, slot, ABI_TIER_NVME);
	for (uint32_t to = 0; to < RANKS; to++)
		assert_int_equal(quota_within(host.core, x, slot, ABI_TIER_NVME, to), its <= to);
	return its;
}

static void client(void)
{
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
}

/* A new store with a block of each kind. */
static void begin_store(uint64_t features)
{
	struct core_context_stats st;

	host.super.features = features;
	memset(host.disk, 0, HOST_NVME);
	host_boot(&host, NULL);
	clock_says(WALL_MS);
	host_spec(&spec, HOST_KIND_STORE, 0);
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	client();
	core_context_stats(host.core, host.context[0].id, &st);
	spec = st.spec;
	put(PLAIN, 0, 0);
	put(HIGH, ABI_PRIORITY_HIGH, 0);
	put(LOW, ABI_PRIORITY_LOW, 0);
	put(BRIEF, ABI_PRIORITY_HIGH, 60 * SECOND);
	put(LONG, 0, 3600 * SECOND);
}

static void restart(uint64_t wall_ms)
{
	const struct disk_catalog catalog = { .sequence = 100, .next_uid = spec.uid + 1 };
	struct core_recovery r;

	host_halt(&host);
	host_boot(&host, &catalog);
	clock_says(wall_ms);
	assert_int_equal(host_context_make(&host, 0, &spec), 0);
	for (uint32_t i = 0; i < HOST_SEGMENTS; i++)
		core_recover_segment(host.core, 0, i,
				     host.disk + host.super.segment_offset +
					     i * host.super.segment_bytes,
				     host.super.summary_bytes);
	assert_int_equal(core_recover_finish(host.core, &r), 0);
	assert_int_equal(r.blocks, KEYS);
	client();
	host_audit(&host);
}

static void test_priority_and_ttl_survive(void **state)
{
	(void)state;
	begin_store(DISK_FEATURES);
	restart(WALL_MS + 30 * SECOND);
	assert_int_equal(rank_of(PLAIN), RANK_NORMAL);
	assert_int_equal(rank_of(HIGH), RANK_KEEP);
	assert_int_equal(rank_of(LOW), RANK_LOW);
	assert_int_equal(rank_of(BRIEF), RANK_KEEP);
	assert_int_equal(rank_of(LONG), RANK_NORMAL);
	host_tick(&host, 40000 * MS); /* the rest of it runs on */
	assert_int_equal(rank_of(BRIEF), RANK_LAPSED);
	assert_int_equal(rank_of(LONG), RANK_NORMAL);
	host_halt(&host);
}

static void test_what_lapsed_meanwhile_goes_first(void **state)
{
	struct context *x;

	(void)state;
	begin_store(DISK_FEATURES);
	restart(WALL_MS + 600 * SECOND);
	assert_int_equal(rank_of(BRIEF), RANK_LAPSED);
	assert_int_equal(rank_of(LONG), RANK_NORMAL);
	assert_int_equal(rank_of(HIGH), RANK_KEEP);
	x = core_context(host.core, host.context[0].id);
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		x->meta[slot].flags &= (uint16_t)~BLOCK_DURABLE; /* may leave */
	assert_true(evict_nvme(host.core, x, 1));
	assert_int_equal(rank_of(BRIEF), UINT32_MAX);
	for (uint32_t n = 0; n < KEYS; n++)
		assert_true(n == BRIEF || rank_of(n) != UINT32_MAX);
	host_halt(&host);
}

static void test_a_clock_set_back_makes_none_longer(void **state)
{
	(void)state;
	begin_store(DISK_FEATURES);
	clock_says(WALL_MS - 1000000 * (uint64_t)SECOND); /* while it runs: no matter */
	put(PLAIN, 0, 0);
	restart(WALL_MS - 2000000 * (uint64_t)SECOND);
	assert_int_equal(rank_of(BRIEF), RANK_KEEP);
	host_tick(&host, 61000 * MS);
	assert_int_equal(rank_of(BRIEF), RANK_LAPSED);
	assert_int_equal(rank_of(LONG), RANK_NORMAL);
	host_tick(&host, 3600000 * MS);
	assert_int_equal(rank_of(LONG), RANK_LAPSED);
	host_halt(&host);
}

static void test_an_older_store_says_nothing(void **state)
{
	(void)state;
	begin_store(DISK_FEATURE_FLUSHED);
	assert_int_equal(rank_of(HIGH), RANK_KEEP);
	restart(WALL_MS + SECOND);
	for (uint32_t n = 0; n < KEYS; n++)
		assert_int_equal(rank_of(n), RANK_NORMAL);
	host_halt(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_priority_and_ttl_survive),
		cmocka_unit_test(test_what_lapsed_meanwhile_goes_first),
		cmocka_unit_test(test_a_clock_set_back_makes_none_longer),
		cmocka_unit_test(test_an_older_store_says_nothing),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
