/*
 * Descriptors that have memory: which groups count, which may be given up, and that a page whose
 * descriptor was given up begins at a version that it never had. And what a context may span.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/lib/unit.h"

#include <errno.h>

#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/descs.h"

#define MIB (1ull << 20)
#define WIDE_PAGES 512u /* 4 groups a slot */
#define WIDE_BYTES 4096u
#define WIDE_QUOTA (8 * MIB)
#define SINGLES 100u

/* ---- groups ---------------------------------------------------------------------------------- */

static void test_groups(void **state)
{
	uint64_t group, count;
	struct descs d;

	(void)state;
	assert_int_equal(descs_open(&d, 100, 200), 0);
	assert_int_equal(descs_fresh(&d, 0, 0, 200), 2);
	assert_int_equal(descs_fresh(&d, 1, 0, 200), 3); /* of pages 200 to 399 */
	descs_touch(&d, 1, 0);
	descs_touch(&d, 1, 55); /* the same */
	assert_int_equal(d.groups, 1);
	assert_true(descs_there(&d, 1, 0) && descs_there(&d, 0, 199));
	assert_false(descs_there(&d, 1, 56) || descs_there(&d, 0, 127));
	assert_int_equal(descs_fresh(&d, 1, 0, 200), 2);
	assert_true(descs_hole(&d, 0, 10, &group, &count) && group == 0 && count == 1);
	assert_true(descs_hole(&d, 1, 10, &group, &count) && group == 2 && count == 8);
	assert_false(descs_hole(&d, 1, 2, &group, &count));
	/* Only what no other slot shares. */
	assert_int_equal(descs_inside(&d, 1, &group, &count), 0);
	assert_true(group == 2 && count == 1);
	descs_touch_range(&d, 0, 70);
	assert_int_equal(d.groups, 70);
	assert_int_equal(descs_inside(&d, 1, &group, &count), 1);
	descs_forget(&d, group, count);
	assert_int_equal(d.groups, 69);
	assert_false(descs_touched(&d, 2));
	descs_close(&d);
}

static void test_a_group_of_many_slots_is_never_given_up(void **state)
{
	uint64_t group, count;
	struct descs d;

	(void)state;
	assert_int_equal(descs_open(&d, 100, 6), 0);
	for (uint32_t slot = 0; slot < 100; slot++) {
		descs_touch(&d, slot, 5);
		assert_int_equal(descs_inside(&d, slot, &group, &count), 0);
		assert_int_equal(count, 0);
	}
	assert_int_equal(descs_bytes(&d), 5 * DESCS_GROUP_BYTES);
	descs_close(&d);
}

/* ---- a context of many pages a block --------------------------------------------------------- */

/* One page that a block must have, and WIDE_PAGES - 1 that it may have. */
static void wide_spec(struct disk_context *spec)
{
	struct abi_geometry *g = &spec->geometry;

	host_spec(spec, HOST_KIND_MEMORY, 0);
	spec->blocks_max = 1000000;
	spec->quota[ABI_TIER_CXL] = WIDE_QUOTA;
	memset(&g->part[2], 0, sizeof(g->part[2]));
	g->part_count = 2;
	for (uint32_t i = 0; i < 2; i++) {
		g->part[i].hit_rule = i ? ABI_HIT_LAST : ABI_HIT_EVERY;
		g->part[i].hit_arg = i;
		g->part[i].layers = i ? WIDE_PAGES - 1 : 1;
		g->part[i].groups = 1;
		g->part[i].page_bytes = g->part[i].page_stride = WIDE_BYTES;
		g->part[i].page_base = i;
		g->part[i].layer_first = 0;
	}
	g->pages_per_block = WIDE_PAGES;
	g->block_bytes = (uint64_t)WIDE_PAGES * WIDE_BYTES;
}

/* For blocks, beside what an empty context takes and its first lane; its owner has 3/4 of it. */
static void boot(uint64_t table_bytes)
{
	struct disk_context spec;
	uint64_t empty;

	wide_spec(&spec);
	one_host_boot(&spec, 1);
	if (!table_bytes)
		return;
	context()->lanes.named = 1;
	empty = context()->plan.empty_bytes + lanes_most(&context()->lanes, 0);
	context()->lanes.named = 0;
	one_host_off(NULL);
	host.table_bytes = table_bytes + empty * 4 / 3;
	one_host_boot(&spec, 1);
}

static int tear_down(void **state)
{
	host.table_bytes = 0;
	host.held = false;
	return one_host_off(state);
}

static int reserve(uint32_t first, uint32_t count, uint64_t parts)
{
	const struct abi_put_args args = { .count = count, .parts = parts };
	int rc = host_reserve(&host, &args, first, 0);

	host_audit(&host);
	return rc ? rc : host.answer.res;
}

static void drop(void)
{
	assert_true(host_request(&host, 0, &(struct abi_sqe){ .op = ABI_OP_PUT_ABORT,
							      .handle = host.answer.value }));
	host_audit(&host);
}

/* Until nothing is left to give up, as the shell does it; returns how many groups were. */
static uint64_t give_up(void)
{
	uint64_t groups = 0;
	struct core_range idle;

	while (core_index_idle(host.core, host.context[0].id, &idle)) {
		groups += idle.bytes / DESCS_GROUP_BYTES;
		memset((uint8_t *)host.context[0].index + idle.offset, 0, idle.bytes);
		core_index_given(host.core, &idle);
	}
	host_look(&host);
	return groups;
}

/* The table is as large as what the quotas hold can need, whatever was asked for. */
static void test_blocks_are_bounded_by_quotas(void **state)
{
	uint64_t most;

	(void)state;
	boot(0);
	most = WIDE_QUOTA / WIDE_BYTES;
	assert_int_equal(context()->ix.blocks_max, most + most / 8 + 1024);
	assert_int_equal(context()->spec.blocks_max, 1000000); /* as it was asked for */
	assert_int_equal(host.core->tables.addresses,
			 context()->plan.index_bytes + context()->plan.mem_bytes[ABI_TIER_CXL] +
				 context()->plan.mem_bytes[ABI_TIER_HBM]);
}

/* As many contexts as the host has mappings for, a user three quarters; what was made is back. */
static void test_contexts_have_mappings(void **state)
{
	struct core_context_plan plan;
	struct disk_context spec;
	char why[128] = "";

	(void)state;
	boot(0);
	wide_spec(&spec);
	spec.owner_uid = context()->spec.owner_uid + 1;
	host.core->config.contexts_most = 1;
	assert_int_equal(core_context_plan(host.core, &spec, &plan, why, sizeof(why)), -ENOSPC);
	assert_non_null(strstr(why, "vm.max_map_count"));
	host.core->config.contexts_most = 2;
	assert_int_equal(core_context_plan(host.core, &spec, &plan, why, sizeof(why)), 0);
	spec.owner_uid = context()->spec.owner_uid;
	assert_int_equal(core_context_plan(host.core, &spec, &plan, why, sizeof(why)),
			 -EDQUOT);
	spec.uid = 77;
	assert_int_equal(core_context_plan(host.core, &spec, &plan, why, sizeof(why)), 0);
}

/* Blocks that are begun count for what they may come to, and touch nothing. */
static void test_what_is_begun_counts_and_touches_nothing(void **state)
{
	uint64_t before;

	(void)state;
	boot(MIB);
	before = host.core->tables.bytes;
	assert_int_equal(reserve(0, 16, 3), 0);
	assert_int_equal(context()->begun, 16 * 5); /* each: one group, and four for the rest */
	assert_true(host.core->tables.bytes >= before + 16 * 5 * DESCS_GROUP_BYTES);
	assert_int_equal(context()->descs.groups, 0);
	drop();
	assert_int_equal(context()->begun, 0);
	assert_int_equal(context()->descs.groups, 0); /* nor does letting go of them */
	/* Its owner may have three quarters of the mebibyte. */
	host.answer.res = 1;
	assert_int_equal(reserve(100, 40, 3), 1); /* it waits for what free slots may have */
	host_tick(&host, 5 * MS);
	assert_int_equal(host.answer.res, 1);
	assert_int_equal(give_up(), 0);
	host_tick(&host, MS);
	assert_int_equal(host.answer.res, -ENOSPC);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_TIER, 1 + ABI_HELD_TABLES);
	assert_int_equal(host.answer.aux >> 8 * ABI_HELD_LIMIT & 255, ABI_LIMIT_USER);
	assert_int_equal(context()->begun, 0);
	assert_int_equal(reserve(200, 40, 1), 0);
	drop();
}

/* Puts of one page each; the other descriptors have no memory. */
static void put_singles(uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(reserve(first + i, 1, 1), 0);
		assert_true(host_commit(&host, 0));
		assert_true(host_settle(&host, 100));
		assert_int_equal(host.answer.res, 0);
	}
}

static void test_a_block_of_one_page_has_one_group(void **state)
{
	(void)state;
	boot(MIB);
	put_singles(0, 8);
	assert_int_equal(context()->descs.groups, 8);
	assert_int_equal(context()->begun, 0);
	host_audit(&host);
}

static void del(uint32_t first, uint32_t count)
{
	host_request_keys(&host, 0, (struct abi_sqe){ .op = ABI_OP_DELETE, .flags = ABI_SQE_KEYS },
			  first, count);
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.value, count);
}

/*
 * Full with blocks of few pages that left again, the tables have no room for one of all pages: what
 * the free slots have is given up for it, and a page of them begins beyond every version it had.
 */
static void test_idle_descriptors_are_given_up(void **state)
{
	const struct abi_page *page;
	uint32_t version;

	(void)state;
	boot(MIB);
	put_singles(0, SINGLES);
	page = index_page(&context()->ix, 0, 0);
	version = abi_word_version(page->word[ABI_TIER_CXL]);
	del(0, SINGLES);
	assert_true(abi_word_version(page->word[ABI_TIER_CXL]) > version);
	version = abi_word_version(page->word[ABI_TIER_CXL]);
	assert_int_equal(context()->descs.groups, SINGLES);
	/* So many that they fit only when what is idle is not counted. */
	assert_false(context()->descs_short);
	host.answer.res = 1;
	assert_int_equal(host_reserve(&host, &(struct abi_put_args){ .count = 30, .parts = 3 },
				      500, 0), 1); /* it waits */
	assert_true(context()->descs_short);
	assert_int_equal(give_up(), SINGLES * WIDE_PAGES / DESCS_GROUP);
	assert_int_equal(context()->descs.groups, 0);
	host_audit(&host);
	host_tick(&host, MS);
	assert_int_equal(host.answer.res, 0);
	drop();
	put_singles(600, SINGLES);
	for (uint32_t slot = 0; slot < SINGLES; slot++)
		assert_true(abi_word_version(
				    index_page(&context()->ix, slot, 0)->word[ABI_TIER_CXL]) >=
			    version);
	host_audit(&host);
}

static int lend_index(struct core_range *index)
{
	*index = (struct core_range){ { host.context[0].id }, CORE_RANGE_INDEX, 4096, 0 };
	return core_slab_lend(host.core, 0, index);
}

/* Devices have the index: all of it counts, and nothing is offered, until they have left it. */
static void test_nothing_of_a_lent_index_is_given_up(void **state)
{
	struct core_range index, wanted, hole, from;
	uint64_t before;

	(void)state;
	boot(0);
	put_singles(0, SINGLES);
	before = host.core->tables.bytes;
	assert_true(core_index_hole(host.core, host.context[0].id, 0, &hole));
	assert_int_equal(lend_index(&index), 0);
	assert_int_equal(index.offset, 0);
	assert_int_equal(index.bytes, context()->plan.index_bytes);
	assert_true(host.core->tables.bytes > before + index.bytes / 2);
	assert_false(core_index_hole(host.core, host.context[0].id, 0, &hole));
	assert_int_equal(core_context_taken(host.core, host.context[0].id, CORE_RANGE_INDEX),
			 index.bytes);
	host_audit(&host);
	del(0, SINGLES);
	/* Somebody is short of room: it is wanted back, and nothing is given up before it came. */
	context()->descs_short = true;
	lend_recall_index(host.core, context());
	assert_int_equal(core_slab_recalls(host.core, 0), 1);
	from = (struct core_range){ { index.context_id }, 0, 0, 0 };
	assert_true(core_slab_wanted(host.core, 0, &from, &wanted));
	assert_int_equal(wanted.tier, CORE_RANGE_INDEX);
	assert_int_equal(wanted.bytes, index.bytes);
	assert_int_equal(give_up(), 0);
	assert_true(context()->descs_short);
	assert_int_equal(core_slab_leave(host.core, 0, &index), 0);
	assert_int_equal(lend_index(&index), -EAGAIN); /* not before somebody has what he wants */
	assert_int_equal(give_up(), SINGLES * WIDE_PAGES / DESCS_GROUP);
	assert_int_equal(lend_index(&index), 0);
	/* Nobody gives it back: who waits is refused, not kept waiting. */
	context()->descs_short = true;
	lend_recall_index(host.core, context());
	host_tick(&host, 300 * MS);
	assert_int_equal(give_up(), 0);
	assert_false(context()->descs_short);
	assert_int_equal(core_slab_leave(host.core, 0, &index), 0);
	host_audit(&host);
}

static void test_an_index_that_has_no_room_is_not_lent(void **state)
{
	struct core_range index;

	(void)state;
	boot(MIB);
	put_singles(0, 1);
	assert_int_equal(lend_index(&index), -EDQUOT);
	host_audit(&host);
}

/* A slot whose versions are used up is never used again, whatever became of its descriptors. */
static void test_a_worn_slot_is_not_used_again(void **state)
{
	uint64_t free;

	(void)state;
	boot(0);
	put_singles(0, 1);
	context()->descs.version[0] = ABI_VERSION_MAX;
	free = context()->ix.slots_free;
	del(0, 1);
	assert_int_equal(context()->ix.slots_free, free);
	put_singles(1, 1);
	assert_int_equal(index_block(&context()->ix, 0)->state, ABI_BLOCK_FREE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_a_group_of_many_slots_is_never_given_up),
		cmocka_unit_test_teardown(test_blocks_are_bounded_by_quotas, tear_down),
		cmocka_unit_test_teardown(test_contexts_have_mappings, tear_down),
		cmocka_unit_test_teardown(test_what_is_begun_counts_and_touches_nothing, tear_down),
		cmocka_unit_test_teardown(test_a_block_of_one_page_has_one_group, tear_down),
		cmocka_unit_test_teardown(test_idle_descriptors_are_given_up, tear_down),
		cmocka_unit_test_teardown(test_nothing_of_a_lent_index_is_given_up, tear_down),
		cmocka_unit_test_teardown(test_an_index_that_has_no_room_is_not_lent, tear_down),
		cmocka_unit_test_teardown(test_a_worn_slot_is_not_used_again, tear_down),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
