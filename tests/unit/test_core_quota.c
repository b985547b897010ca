/*
 * Who gives first and what is left to whom: ranks of blocks, limits of the accounts that a block
 * has, and when a limit counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define RUN 8u
#define TTL_MS 50u

static uint64_t replied; /* the last token */

static void reply(void *arg, uint64_t token, int32_t res, uint64_t value)
{
	(void)arg;
	(void)value;
	assert_int_equal(res, 0);
	replied = token;
}

static int begin(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 1u << 12;
	one_host_boot(&spec, 1);
	host.ears.reply = reply;
	return 0;
}

/* Without a store: deletions leave nothing behind. */
static int begin_memory(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	one_host_boot(&spec, 1);
	return 0;
}

/* The same with all of CXL, and more blocks than it holds. */
static int begin_large(void **state)
{
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	spec.quota[ABI_TIER_CXL] = HOST_CXL;
	spec.blocks_max = 1u << 14;
	one_host_boot(&spec, 1);
	return 0;
}

static void put(uint64_t salt, uint32_t first, uint8_t priority, uint32_t ttl_ms)
{
	const struct abi_put_args args = { .count = RUN, .salt = salt, .priority = priority,
					   .ttl_ms = ttl_ms };

	assert_int_equal(host_reserve(&host, &args, first, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, RUN);
}

static uint32_t rank(uint32_t n)
{
	uint32_t slot = slot_of(n), its = quota_rank(host.core, context(), slot, ABI_TIER_CXL);

	for (uint32_t to = 0; to < RANKS; to++)
		assert_int_equal(quota_within(host.core, context(), slot, ABI_TIER_CXL, to),
				 its <= to);
	return its;
}

static void set(enum core_holder who, uint64_t key, uint64_t soft, uint64_t hard)
{
	const struct core_quota q = { .who = who, .context_id = host.context[0].id, .key = key,
				      .tier = ABI_TIER_CXL, .limit = { soft, hard } };

	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_look(&host);
}

static void test_who_gives_first(void **state)
{
	uint64_t block = context()->spec.geometry.block_bytes;

	(void)state;
	put(7, 0, ABI_PRIORITY_NORMAL, 0);
	put(7, RUN, ABI_PRIORITY_LOW, 0);
	put(7, 2 * RUN, ABI_PRIORITY_HIGH, 0);
	put(8, 3 * RUN, ABI_PRIORITY_NORMAL, 0);
	put(8, 4 * RUN, ABI_PRIORITY_LOW, 0);
	put(8, 5 * RUN, ABI_PRIORITY_HIGH, TTL_MS);
	assert_int_equal(rank(0), RANK_NORMAL);
	assert_int_equal(rank(RUN), RANK_LOW);
	assert_int_equal(rank(2 * RUN), RANK_KEEP);
	set(CORE_HOLDER_SALT, 7, block, 0);
	assert_int_equal(rank(0), RANK_OVER);
	assert_int_equal(rank(RUN), RANK_LAPSED);
	assert_int_equal(rank(2 * RUN), RANK_LOW);
	assert_int_equal(rank(3 * RUN), RANK_NORMAL);
	assert_int_equal(rank(4 * RUN), RANK_LOW);
	assert_int_equal(rank(5 * RUN), RANK_KEEP);
	host_tick(&host, (TTL_MS + 1) * MS);
	assert_int_equal(rank(5 * RUN), RANK_LAPSED);
	assert_true(RANK_LAPSED < RANK_OVER && RANK_OVER < RANK_LOW && RANK_LOW < RANK_NORMAL &&
		    RANK_NORMAL < RANK_KEEP);
	host_audit(&host);
}

/* A block has two accounts: what the fuller one leaves counts. */
static void test_the_nearer_limit_counts(void **state)
{
	uint64_t block = context()->spec.geometry.block_bytes;

	(void)state;
	put(7, 0, 0, 0);
	set(CORE_HOLDER_SALT, 7, 0, 20 * block);
	assert_int_equal(quota_left(host.core, context(), slot_of(0), ABI_TIER_CXL), 12 * block);
	set(CORE_HOLDER_CLIENT, 0, 0, 10 * block);
	assert_int_equal(quota_left(host.core, context(), slot_of(0), ABI_TIER_CXL), 2 * block);
	set(CORE_HOLDER_SALT, 7, 0, 9 * block);
	assert_int_equal(quota_left(host.core, context(), slot_of(0), ABI_TIER_CXL), block);
}

static void test_a_client_that_is_not_there(void **state)
{
	struct core_quota q = { .who = CORE_HOLDER_CLIENT, .key = 0, .tier = ABI_TIER_CXL,
				.limit = { 0, 1 << 20 } };

	(void)state;
	host_client_gone(&host, 0);
	assert_int_equal(core_quota_set(host.core, &q, 1), -ENOENT);
	q.key = 1;
	assert_int_equal(core_quota_set(host.core, &q, 1), -ENOENT);
	q.key = CORE_CLIENTS_MAX;
	assert_int_equal(core_quota_set(host.core, &q, 1), -ENOENT);
}

/* One that goes on behind another one's is written with it: each keeps to its own limit. */
static void test_a_run_of_two_connections_keeps_to_both_limits(void **state)
{
	uint64_t block = context()->spec.geometry.block_bytes;
	struct core_quota q = { .who = CORE_HOLDER_CLIENT, .key = 0, .tier = ABI_TIER_NVME,
				.limit = { 0, 2 * block } };
	struct abi_put_args args = { .count = RUN, .depth = RUN };
	struct core_holder_view v;
	uint32_t n = 0;

	(void)state;
	put(0, 0, 0, 0);
	host_client_gone(&host, 0);
	host_client_dead(&host, 0);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	assert_int_equal(core_quota_set(host.core, &q, 1), 0);
	host_key(RUN - 1, args.parent);
	assert_int_equal(host_reserve(&host, &args, RUN, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.core->metrics.runs_written, 0);
	for (uint32_t i = 0; i < 100; i++) {
		host_tick(&host, 10 * MS);
		for (n = 0; !core_holder_at(host.core, UINT32_MAX, n, &v); n++)
			assert_true(!v.limit[ABI_TIER_NVME].hard ||
				    v.used[ABI_TIER_NVME] <= 2 * block);
	}
	assert_true(n > 0 && context()->nvme_bytes >= RUN * block);
	host_audit(&host);
}

/* It is answered when a flushed catalog has it. */
static void test_a_limit_is_durable_with_its_answer(void **state)
{
	struct core_quota q = { .who = CORE_HOLDER_SALT, .context_id = host.context[0].id,
				.key = 7, .tier = ABI_TIER_CXL, .limit = { 0, 1 << 20 } };

	(void)state;
	put(7, 0, 0, 0);
	assert_true(host_settle(&host, 100));
	replied = 0;
	host.held = true;
	assert_int_equal(core_quota_set(host.core, &q, 77), 0);
	host_look(&host);
	host_tick(&host, MS);
	assert_int_equal(replied, 0);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(replied, 77);
}

static void test_a_lowered_quota_is_kept(void **state)
{
	const struct abi_put_args many = { .count = 60 };
	struct context *x = context();
	uint64_t hard = 2 * ABI_HUGE + 2 * x->spec.geometry.block_bytes + 4096;
	struct space_stats st;

	(void)state;
	for (uint32_t i = 0; i < 40; i++)
		put(7, i * RUN, 0, 0);
	set(CORE_HOLDER_CONTEXT, 0, 0, hard);
	for (uint32_t i = 0; i < 200; i++)
		host_tick(&host, 5 * MS);
	for (uint32_t i = 40; i < 80; i++) {
		put(7, i * RUN, 0, 0);
		space_stats(x->space[ABI_TIER_CXL], &st);
		assert_true(st.charged <= hard);
		host_tick(&host, 5 * MS);
	}
	/* Also by those who are faster than what makes room ahead. */
	for (uint32_t i = 80 * RUN; i < 1000; i += many.count) {
		assert_int_equal(host_reserve(&host, &many, i, 0), 0);
		assert_true(host_commit(&host, 0));
		space_stats(x->space[ABI_TIER_CXL], &st);
		assert_true(st.charged <= hard);
	}
	host_audit(&host);
}

static int planned(struct disk_context spec, uint32_t tier, uint64_t quota)
{
	static const char *const name[] = { "HBM", "CXL" };
	struct core_context_plan plan;
	char why[128] = "";
	int err;

	spec.quota[tier] = quota;
	err = core_context_plan(host.core, &spec, &plan, why, sizeof(why));
	if (err)
		assert_non_null(strstr(why, name[tier]));
	return err;
}

/* Of less than a slab for each no block would ever find all its places. */
static void test_each_size_of_page_has_a_slab(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 1);
	spec.quota[ABI_TIER_HBM] = UINT64_MAX;
	g->block_bytes = 0;
	for (uint32_t i = 0; i < g->part_count; i++) {
		g->part[i].page_bytes = g->part[i].page_stride = (i + 1) * 4096;
		g->block_bytes += (uint64_t)g->part[i].layers * g->part[i].groups * (i + 1) * 4096;
	}
	assert_int_equal(g->part_count, 3);
	assert_int_equal(planned(spec, ABI_TIER_CXL, 3 * ABI_HUGE - 4096), -ENOSPC);
	assert_int_equal(planned(spec, ABI_TIER_CXL, 3 * ABI_HUGE), 0);
	assert_int_equal(planned(spec, ABI_TIER_HBM, 2 * ABI_HUGE), -ENOSPC);
	assert_int_equal(planned(spec, ABI_TIER_HBM, 3 * ABI_HUGE), 0);
	assert_int_equal(planned(spec, ABI_TIER_HBM, 0), 0); /* all that there is */
	spec.uid = 7; /* one of the catalog has what it has */
	assert_int_equal(planned(spec, ABI_TIER_HBM, 2 * ABI_HUGE), 0);
}

/* Without a limit the context may have again what it was made for; its own share counts once. */
static void test_a_limit_that_is_lifted_limits_no_more(void **state)
{
	const struct context *x = context();
	uint64_t share = host.core->config.capacity[ABI_TIER_CXL];
	uint64_t most = x->plan.most[ABI_TIER_CXL];

	(void)state;
	set(CORE_HOLDER_CONTEXT, 0, 0, 2 * ABI_HUGE + ABI_HUGE / 2);
	assert_int_equal(x->plan.quota[ABI_TIER_CXL], 2 * ABI_HUGE + ABI_HUGE / 2);
	set(CORE_HOLDER_CONTEXT, 0, 0, 0);
	assert_int_equal(x->plan.quota[ABI_TIER_CXL], most);
	set(CORE_HOLDER_CONTEXT, 0, share, 0);
	set(CORE_HOLDER_CONTEXT, 0, share - 1, 0);
	set(CORE_HOLDER_CONTEXT, 0, share, 0);
	assert_int_equal(x->spec.soft[ABI_TIER_CXL], share);
}

/* Accounts are for blocks: when these go the account goes, and there are always enough. */
static void test_accounts_go_with_their_blocks(void **state)
{
	struct context *x = context();

	(void)state;
	for (uint32_t i = 0; i < 3 * CONTEXT_SALTS; i++) {
		struct abi_sqe sqe = { .op = ABI_OP_DELETE, .context_id = host.context[0].id,
				       .count = RUN, .arg_bytes = RUN * ABI_KEY_BYTES };

		put(1000 + i, i * RUN, 0, 0);
		assert_int_equal(x->salts.account[block_account(x, slot_of(i * RUN))].key,
				 1000 + i);
		for (uint32_t k = 0; k < RUN; k++)
			host_key(i * RUN + k, host.client[0].staging + k * ABI_KEY_BYTES);
		assert_true(host_request(&host, 0, &sqe));
		assert_true(host_settle(&host, 100));
	}
	assert_int_equal(x->salts.open, 0);
	assert_int_equal(x->salts.overflowed, 0);
}

/*
 * Who leaves first stands in whole slabs, which are the ones to go: what is in the others stays,
 * and nothing leaves once the context has no more than it may.
 */
static void test_a_lowered_limit_lets_the_rest_stay(void **state)
{
	struct context *x = context();
	uint64_t slab = space_slab_bytes(x->space[ABI_TIER_CXL]), lowered = 3 * slab;
	struct space_stats st;

	(void)state;
	for (uint32_t n = 0; n < 8192 && !host.core->metrics.dropped_blocks; n += RUN)
		put(0, n, ABI_PRIORITY_NORMAL, 0);
	assert_true(host.core->metrics.dropped_blocks > 0);
	space_stats(x->space[ABI_TIER_CXL], &st);
	assert_true(st.live > lowered);
	set(CORE_HOLDER_CONTEXT, 0, 0, lowered);
	for (uint32_t i = 0; i < 500; i++)
		host_tick(&host, 2 * MS);
	space_stats(x->space[ABI_TIER_CXL], &st);
	assert_true(st.charged <= lowered);
	assert_true(st.live > lowered - slab);
	host_audit(&host);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, one_host_off)
	const struct CMUnitTest tests[] = {
		CASE(test_who_gives_first),
		CASE(test_the_nearer_limit_counts),
		CASE(test_a_client_that_is_not_there),
		CASE(test_a_run_of_two_connections_keeps_to_both_limits),
		CASE(test_a_limit_is_durable_with_its_answer),
		CASE(test_a_lowered_quota_is_kept),
		CASE(test_each_size_of_page_has_a_slab),
		CASE(test_a_limit_that_is_lifted_limits_no_more),
		cmocka_unit_test_setup_teardown(test_accounts_go_with_their_blocks, begin_memory,
						one_host_off),
		cmocka_unit_test_setup_teardown(test_a_lowered_limit_lets_the_rest_stay,
						begin_large, one_host_off),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
