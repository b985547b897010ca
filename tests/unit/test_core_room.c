/*
 * Room is made ahead of need, and who leaves for it depends on what was asked for, not on when time
 * passed: a daemon that was slow keeps the same blocks as one that was not. Who finds no room while
 * requests hold what could leave waits for their end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 16u
#define RUNS 1500u
#define BLOCKS (RUNS * RUN)

/* A prompt of its own, or one that goes on behind an earlier one. With `slow`, time passes while
 * its bytes are copied. */
static void put(uint32_t run, bool slow)
{
	struct abi_put_args args = { .count = RUN };

	if (run % 3) {
		args.depth = run % 3 * RUN;
		host_key(run * RUN - 1, args.parent);
	}
	assert_int_equal(host_reserve(&host, &args, run * RUN, 0), 0);
	host.held = true;
	assert_true(host_commit(&host, 0));
	for (uint32_t i = 0; i < 3 && slow; i++)
		host_tick(&host, 10 * MS);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(host.answer.res, 0);
	for (uint32_t i = 0; i < 3 && !slow; i++)
		host_tick(&host, 10 * MS);
}

static void fill(bool slow, uint8_t there[BLOCKS])
{
	const struct context *x;
	struct disk_context spec;
	uint8_t key[ABI_KEY_BYTES];

	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = BLOCKS;
	snprintf(spec.policy, sizeof(spec.policy), "%s", POLICY_DEFAULT);
	one_host_boot(&spec, 1);
	for (uint32_t run = 0; run < RUNS; run++)
		put(run, slow);
	x = core_context(host.core, host.context[0].id);
	for (uint32_t n = 0; n < BLOCKS; n++) {
		host_key(n, key);
		there[n] = index_find(&x->ix, key) != ABI_SLOT_NONE;
	}
	assert_true(host.core->metrics.dropped_blocks > BLOCKS / 4);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

static void test_a_slow_copy_changes_nobody(void **state)
{
	static uint8_t quick[BLOCKS], slow[BLOCKS];

	(void)state;
	fill(false, quick);
	fill(true, slow);
	assert_memory_equal(quick, slow, sizeof(quick));
}

/* ---- who holds it ------------------------------------------------------------------------- */

static struct context *small_context(uint32_t i)
{
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_MEMORY, i);
	spec.quota[ABI_TIER_CXL] = 4 * ABI_HUGE;
	spec.blocks_max = 1u << 14;
	if (!i)
		one_host_boot(&spec, 1);
	else
		assert_int_equal(host_context_make(&host, i, &spec), 0);
	host_client_attach(&host, 0);
	return core_context(host.core, host.context[i].id);
}

static void put_one(const struct context *x, uint32_t n)
{
	const struct abi_put_args args = { .count = 1 };
	uint8_t *at = host.client[0].staging;
	const struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .context_id = x->id, .count = 1,
				     .arg_bytes = sizeof(args) + ABI_KEY_BYTES };

	memcpy(at, &args, sizeof(args));
	host_key(n, at + sizeof(args));
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(host.answer.res, 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.res, 0);
}

/* A reader keeps the block's pages. */
static void lease_block(const struct context *x, uint32_t n)
{
	struct abi_reader *r = &host.client[0].readers[0];
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot;

	host_key(n, key);
	slot = index_find(&x->ix, key);
	for (uint32_t i = 0; i < block_pages(x, slot); i++)
		r->slot[r->high_water++] = abi_place(
			x->id, ABI_TIER_CXL, index_page(&x->ix, slot, i)->word[ABI_TIER_CXL]);
}

static uint64_t charged(const struct context *x)
{
	struct space_stats st;

	space_stats(x->space[ABI_TIER_CXL], &st);
	return st.charged;
}

/*
 * A context that may have more finds nothing, since leases keep the segments of one that is not
 * there any more: it is told so, and not what it has itself.
 */
static void test_leases_of_a_removed_context_are_named(void **state)
{
	struct context *x = small_context(0), *removed;
	uint64_t held, kept;

	(void)state;
	removed = small_context(1);
	put_one(removed, 0);
	lease_block(removed, 0);
	for (uint32_t n = 0; charged(x) < 3 * ABI_HUGE; n++)
		put_one(x, n);
	kept = charged(removed);
	assert_true(kept > 0 && host.core->pool[ABI_TIER_CXL].used == charged(x) + kept);
	held = quota_holders(host.core, x, ABI_TIER_CXL);
	assert_int_equal(held >> 8 * ABI_HELD_LEASED & 0xff, 0);
	host_context_remove(&host, 1);
	for (uint32_t i = 0; i < 20; i++)
		host_tick(&host, 2 * MS);
	assert_int_equal(charged(removed), kept);
	held = quota_holders(host.core, x, ABI_TIER_CXL);
	assert_int_equal(held >> 8 * ABI_HELD_LIMIT & 0xff, ABI_LIMIT_HOST);
	assert_int_equal(held >> 8 * ABI_HELD_REMOVED & 0xff, kept * 100 / HOST_CXL);
	assert_in_range(held >> 8 * ABI_HELD_LEASED & 0xff, kept * 100 / HOST_CXL, 100);
	host_audit(&host);
	host.client[0].readers[0].high_water = 0;
}

/* ---- what requests hold ------------------------------------------------------------------- */

#define MANY 64u   /* blocks: more than is kept free ahead of need */
#define FETCHED 256u   /* blocks of a fetch */
#define NONE 12345 /* no answer yet */

static struct abi_cqe answer;

static void hear(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	if (client == 0)
		answer = *cqe;
}

/* All but the copies into HBM, as long as there is something. */
static void carry_but_hbm(void)
{
	for (uint32_t i = 0; i < host.bag_count;) {
		const struct core_action *a = &host.bag[i];

		if (a->kind == CORE_AC_COPY && a->copy->dst_tier == ABI_TIER_HBM) {
			i++;
		} else {
			host_carry(&host, i);
			i = 0;
		}
	}
}

/* Client 1 wants the sidecars of all blocks in HBM, and has what is there of them held. */
static void hold_all(uint32_t blocks)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_HBM, .part_first = 1,
				     .part_count = 1 };
	const struct context *x = core_context(host.core, host.context[0].id);
	uint32_t first = 0;
	uint8_t key[ABI_KEY_BYTES];

	for (host_key(0, key); index_find(&x->ix, key) == ABI_SLOT_NONE; host_key(first, key))
		first++;
	host.held = true;
	for (; first < blocks; first += FETCHED)
		assert_true(host_request_keys(&host, 1, sqe, first,
					      blocks - first < FETCHED ? blocks - first : FETCHED));
	carry_but_hbm();
}

static void test_a_put_waits_for_what_a_fetch_holds(void **state)
{
	const struct abi_put_args args = { .count = MANY };
	struct disk_context spec;
	uint32_t blocks = 0;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = BLOCKS;
	snprintf(spec.policy, sizeof(spec.policy), "lru");
	one_host_boot(&spec, 2);
	for (; !host.core->metrics.dropped_blocks; blocks += MANY) {
		assert_int_equal(host_reserve(&host, &args, blocks, 0), 0);
		assert_true(host_commit(&host, 0));
		host_settle(&host, 100);
	}
	hold_all(blocks);
	host.ears.complete = hear;
	host_reserve(&host, &args, blocks, 0);
	carry_but_hbm();
	assert_int_equal(answer.res, 0);
	answer.res = NONE;
	host.answer = answer;
	assert_true(host_commit(&host, 0));
	for (uint32_t i = 0; i < 20; i++) {
		host_tick(&host, MS);
		carry_but_hbm();
		assert_int_equal(answer.res, NONE); /* it is not refused */
	}
	host.held = false;
	host_settle(&host, 100);
	assert_int_equal(answer.res, 0);
	assert_int_equal(answer.value, MANY);
	host.ears.complete = NULL;
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

/* ---- parked prefetches -------------------------------------------------------------------- */

/* One block of pages of 12 and of 4 KiB, which is on NVMe alone. */
static struct context *stored_context(void)
{
	const struct abi_put_args args = { .count = 1 };
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_LARGE, 0);
	memset(host.disk, 0, host.disk_bytes); /* no catalog of other tests */
	one_host_boot(&spec, 1);
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_true(host_settle(&host, 100));
	one_host_restart(false);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	return core_context(host.core, host.context[0].id);
}

/*
 * A context has places for pages of one size and none for those of the other, and all segments are
 * taken: a prefetch begins in time for one to pass to it.
 */
static void test_a_parked_prefetch_waits_for_places_of_each_size(void **state)
{
	const struct abi_sqe small = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .part_first = 1,
				       .part_count = 1 };
	struct abi_sqe later = { .op = ABI_OP_PREFETCH, .tier = ABI_TIER_CXL };
	struct context *x = stored_context(), *other = small_context(1);
	struct space_stats st;

	(void)state;
	for (uint32_t n = 0; charged(other) < 4 * ABI_HUGE; n++)
		put_one(other, n);
	assert_true(host_request_keys(&host, 0, small, 0, 1));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.status, ABI_STATUS_READY);
	assert_int_equal(host.core->pool[ABI_TIER_CXL].used, HOST_CXL);
	space_stats(x->space[ABI_TIER_CXL], &st);
	assert_int_equal(st.charged, ABI_HUGE);
	assert_true(st.available > x->spec.geometry.block_bytes);
	later.deadline_ns = host.now_ns + 200 * MS;
	host.answer.res = NONE;
	assert_true(host_request_keys(&host, 0, later, 0, 1));
	for (uint32_t ms = 0; ms < 170 && host.answer.res == NONE; ms++)
		host_tick(&host, MS); /* here a segment passes at once */
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.status, ABI_STATUS_READY);
	host_audit(&host);
}

/* ---- how much leaves ---------------------------------------------------------------------- */

/* In a tier that is mostly others', a put makes about as much leave as it needs. */
static void test_a_small_share_is_not_emptied(void **state)
{
	const struct abi_put_args args = { .count = MANY };
	const struct context *x;
	struct disk_context spec;
	uint64_t most = 0;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.blocks_max = BLOCKS;
	one_host_boot(&spec, 1);
	host.core->pool[ABI_TIER_CXL].capacity = 1ull << 30;
	x = core_context(host.core, host.context[0].id);
	for (uint32_t n = 0; n < 6000; n += MANY) {
		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
		host_settle(&host, 100);
		most = x->blocks > most ? x->blocks : most;
		assert_true(x->blocks + 3 * MANY >= most);
	}
	assert_true(host.core->metrics.dropped_blocks > 0);
	host.core->pool[ABI_TIER_CXL].capacity = HOST_CXL;
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

/* Blocks of one page each: a tier of 384. */
static void large_pages(struct disk_context *spec)
{
	struct abi_geometry *g = &spec->geometry;

	host_spec(spec, HOST_KIND_MEMORY, 0);
	g->part_count = g->part[0].groups = g->pages_per_block = 1;
	g->part[0].page_bytes = g->part[0].page_stride = 16384;
	g->block_bytes = 16384;
	spec->blocks_max = BLOCKS;
}

/* In a small tier, a put makes no more leave than it lacks; the rest is what is kept free. */
static void test_a_put_makes_leave_what_it_lacks(void **state)
{
	const struct abi_put_args args = { .count = RUN };
	struct disk_context spec;
	const struct context *x;
	uint64_t most;

	(void)state;
	large_pages(&spec);
	one_host_boot(&spec, 1);
	x = core_context(host.core, host.context[0].id);
	most = spec.quota[ABI_TIER_CXL] / spec.geometry.block_bytes;
	for (uint32_t n = 0; n < 4 * most; n += RUN) {
		assert_int_equal(host_reserve(&host, &args, n, 0), 0);
		assert_true(host_commit(&host, 0));
		assert_true(host_settle(&host, 100));
		assert_int_equal(host.answer.res, 0);
		assert_true(n < most || x->blocks + 3 * most / ROOM_AHEAD_SHARE + 1 >= most);
	}
	assert_true(host.core->metrics.dropped_blocks > most);
	host_audit(&host);
	host_empty(&host);
	host_halt(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_slow_copy_changes_nobody),
		cmocka_unit_test_teardown(test_leases_of_a_removed_context_are_named, one_host_off),
		cmocka_unit_test(test_a_put_waits_for_what_a_fetch_holds),
		cmocka_unit_test_teardown(test_a_parked_prefetch_waits_for_places_of_each_size,
					  one_host_off),
		cmocka_unit_test(test_a_small_share_is_not_emptied),
		cmocka_unit_test(test_a_put_makes_leave_what_it_lacks),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
