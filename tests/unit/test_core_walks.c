/*
 * What leaves by thousands, as no client asks for it: blocks of an epoch that is over, children
 * that may not follow their parent yet, a segment that is dropped or cannot be read. A share leaves
 * in each event; the host looks after each that it kept to the bound (tests/fuzz/host.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 6000u /* of one page: more than an event may look at */
#define PUT 200u     /* of these in one put, a chain */
#define MANY 2000u   /* that a request may name; two looks at each are more than one event's */
#define PAGE 4096u   /* of a store's blocks */

static void boot(uint32_t kind, uint32_t page_bytes)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	host_spec(&spec, kind, 0);
	spec.blocks_max = BLOCKS + 16;
	spec.quota[ABI_TIER_CXL] = 0; /* all */
	if (kind == HOST_KIND_STORE)
		spec.quota[ABI_TIER_NVME] = 72u << 20;
	g->part[0].page_bytes = g->part[0].page_stride = page_bytes;
	g->part[0].layers = g->part[0].groups = 1;
	memset(&g->part[1], 0, (ABI_PARTS_MAX - 1) * sizeof(g->part[1]));
	g->part_count = g->pages_per_block = 1;
	g->block_bytes = page_bytes;
	host.cxl_bytes = 64u << 20;
	one_host_boot(&spec, 1);
}

static int32_t answer(void)
{
	for (uint32_t i = 0; i < 100000 && host.answer.res > 0; i++)
		host_tick(&host, 0);
	return host.answer.res;
}

static void put(const struct abi_put_args *args, uint32_t first)
{
	assert_int_equal(host_reserve(&host, args, first, 0), 0);
	host.answer.res = 1;
	assert_true(host_commit(&host, 0));
	assert_int_equal(answer(), 0);
}

static void put_all(void)
{
	for (uint32_t n = 0; n < BLOCKS; n += PUT)
		put(&(struct abi_put_args){ .count = PUT }, n);
}

/* ---- an epoch, a context ------------------------------------------------------------------ */

static int setup_memory(void **state)
{
	(void)state;
	boot(HOST_KIND_MEMORY, 512);
	return 0;
}

static void test_an_epoch_ends(void **state)
{
	struct abi_block_ref last;

	(void)state;
	put_all();
	last.slot = slot_of(BLOCKS - 1);
	last.generation = index_block(&context()->ix, last.slot)->generation;
	assert_true(block_alive(context(), last));
	assert_int_equal(core_context_epoch(host.core, host.context[0].id, 0, 1), 0);
	assert_true(context()->blocks > 0);
	/* It has not left yet, and nobody gets at it any more. */
	assert_int_equal(index_block(&context()->ix, last.slot)->state, ABI_BLOCK_COMMITTED);
	assert_false(block_alive(context(), last));
	for (uint32_t i = 0; i < 20 && context()->blocks; i++)
		host_tick(&host, 0); /* without time to pass */
	assert_int_equal(context()->blocks, 0);
	one_host_pause(100);
	assert_int_equal(host.core->leaving, 0);
	assert_int_equal(context()->slots_live, 0);
	host_audit(&host);
}

static void test_a_context_is_removed(void **state)
{
	(void)state;
	put_all();
	host_context_remove(&host, 0);
	one_host_pause(100);
	assert_int_equal(host.core->contexts, 0);
	assert_int_equal(host.core->leaving, 0);
}

/* Its blocks are counted in several events: not answered when an epoch ends, it is stale. */
static void test_a_put_is_of_the_epoch_it_ends_in(void **state)
{
	const struct abi_put_args args = { .count = PUT };
	uint32_t raised = 0;

	(void)state;
	for (uint32_t events = 0; events < 40; events++) {
		host.walk_items = 64;
		boot(HOST_KIND_MEMORY, 512);
		assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
		host.answer.res = 1;
		assert_true(host_commit(&host, 0));
		for (uint32_t i = 0; i < events; i++)
			host_tick(&host, 0);
		if (host.answer.res == 1) {
			raised = events;
			assert_int_equal(core_context_epoch(host.core, context()->id, 0, 1), 0);
			assert_int_equal(answer(), -ESTALE);
		}
		host.walk_items = 0;
		one_host_off(state);
	}
	assert_in_range(raised, 3, 38);
}

/* ---- children ----------------------------------------------------------------------------- */

/* All behind block 0, pinned (a list of them at a time). */
static void put_children(uint64_t *pin)
{
	struct abi_put_args args = { .count = 1, .depth = 1 };
	struct abi_block_ref *ref = (struct abi_block_ref *)host.client[0].staging;

	put(&(struct abi_put_args){ .count = 1 }, 0);
	host_key(0, args.parent);
	for (uint32_t n = 1; n < BLOCKS; n++)
		put(&args, n);
	for (uint32_t n = 1; n < BLOCKS; n++) {
		uint32_t slot = slot_of(n);

		ref[n - 1].slot = slot;
		ref[n - 1].generation = index_block(&context()->ix, slot)->generation;
	}
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &(struct abi_sqe){
					.op = ABI_OP_PIN, .tier = ABI_TIER_CXL,
					.count = BLOCKS - 1, .context_id = host.context[0].id,
					.arg_bytes = (BLOCKS - 1) * sizeof(*ref) }));
	assert_int_equal(answer(), 0);
	*pin = host.answer.value;
}

static void test_children_that_may_not_go_yet(void **state)
{
	uint64_t pin, before, alone;

	(void)state;
	put_children(&pin);
	before = host.core->metrics.items;
	one_host_pause(1000);
	alone = host.core->metrics.items - before; /* it looks at the pin */
	host.answer.res = 1;
	one_host_delete_begin(0, 1);
	assert_int_equal(answer(), 0);
	one_host_pause(300);
	assert_int_equal(context()->blocks, BLOCKS - 1);
	before = host.core->metrics.items;
	one_host_pause(1000);
	assert_in_range(host.core->metrics.items - before - alone, 5 * BLOCKS, 12 * BLOCKS);
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &(struct abi_sqe){ .op = ABI_OP_UNPIN, .handle = pin,
							      .context_id = host.context[0].id }));
	assert_int_equal(answer(), 0);
	one_host_pause(300);
	assert_int_equal(context()->blocks, 0);
	assert_int_equal(context()->slots_live, 0);
	host_audit(&host);
}

/* All of it is there: it is answered when all is protected, some events later. */
static void test_a_prefetch_of_many(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .tier = ABI_TIER_CXL };
	uint64_t waited = 0;

	(void)state;
	put_all();
	sqe.deadline_ns = host.now_ns + 50 * MS;
	host.answer.res = 1;
	assert_true(host_request_keys(&host, 0, sqe, 0, MANY));
	while (host.answer.res > 0 && waited++ < 60)
		host_tick(&host, MS);
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, MANY);
	assert_int_equal(host.answer.aux, MANY);
	assert_int_equal(context()->pinned[ABI_TIER_CXL], MANY * 512u);
	host_audit(&host);
	one_host_pause(200);
	assert_int_equal(context()->pinned[ABI_TIER_CXL], 0);
}

/* ---- segments ----------------------------------------------------------------------------- */

static int setup_store(void **state)
{
	(void)state;
	one_host_disk((8u << 10) + 2 * HOST_CATALOG + 12 * (20u << 20), 12, 20u << 20,
		      1u << 20);
	boot(HOST_KIND_STORE, PAGE);
	host.core->config.admit_all = true;
	put_all();
	assert_true(host_settle(&host, 300));
	return 0;
}

static int teardown_store(void **state)
{
	int rc = one_host_off(state);

	one_host_disk_back();
	return rc;
}

/* Half of what is in memory is written again, the rest goes; a share in each event. */
static void test_a_segment_is_dropped(void **state)
{
	struct drive *dv = host.core->drive[0];
	uint32_t segment = block_segment(host.core, context(), slot_of(0)), events = 1;
	uint32_t blocks = dv->segment_blocks[segment].count;

	(void)state;
	assert_true(blocks > CORE_ITEMS_MAX);
	for (meter_begin(&host.core->meter); !evict_segment(host.core, dv, segment); events++) {
		assert_true(host.core->meter.items <= CORE_ITEMS_MAX);
		meter_begin(&host.core->meter);
	}
	assert_true(events > 2);
	assert_int_equal(dv->segment_blocks[segment].count, 0);
	assert_int_equal(context()->dirty[DISK_LOG_CACHE].list.count, blocks / 2);
	meter_begin(&host.core->meter);
	host_audit(&host);
}

/* What memory has stays; of the rest a share is given up each time that it could not be read. */
static void test_a_drive_is_given_up(void **state)
{
	struct drive *dv = host.core->drive[0];
	uint32_t segment = block_segment(host.core, context(), slot_of(0)), kept, events = 0;

	(void)state;
	assert_int_equal(core_evict(host.core, context()->id, ABI_TIER_CXL, BLOCKS / 2 * PAGE, 1),
			 0);
	one_host_pause(100);
	kept = (uint32_t)context()->pages_resident[ABI_TIER_CXL];
	assert_in_range(kept, 1, BLOCKS / 2 + 500);
	dv->leaving = dv->lost = true;
	for (uint32_t before = 0; before != dv->segment_blocks[segment].count; events++) {
		before = dv->segment_blocks[segment].count;
		meter_begin(&host.core->meter);
		drain_gave_up(host.core, dv, segment);
		assert_true(host.core->meter.items <= CORE_ITEMS_MAX);
		if (events > 10)
			break;
	}
	dv->leaving = dv->lost = false;
	assert_in_range(events, 2, 10);
	for (uint32_t n = 0, slot; n < BLOCKS; n++) {
		slot = slot_of(n);
		assert_true(slot == ABI_SLOT_NONE ||
			    context()->meta[slot].there[ABI_TIER_CXL].pages == 1 ||
			    block_segment(host.core, context(), slot) != segment);
	}
	meter_begin(&host.core->meter);
	host_audit(&host);
}

/* All that it has of the cache log is pinned: it is looked at, and looked at, and stays. */
static void test_segments_that_are_pinned(void **state)
{
	struct drive *dv = host.core->drive[0];
	uint32_t segment = block_segment(host.core, context(), slot_of(0));
	struct block_list *list = &dv->segment_blocks[segment];

	(void)state;
	assert_int_equal(store_oldest(dv->store, DISK_LOG_CACHE), segment);
	for (uint32_t n = 0; n < BLOCKS; n++)
		block_use_make(context(), slot_of(n))->pins[ABI_TIER_HBM]++;
	meter_begin(&host.core->meter);
	assert_int_equal(evict_oldest(host.core, dv), -ENOENT);
	assert_true(host.core->meter.items < 100);
	/* The last that it would look at is free. */
	block_use_make(context(), list->tail)->pins[ABI_TIER_HBM]--;
	for (uint32_t i = 0; i < BLOCKS / 64 && evict_oldest(host.core, dv) < 0; i++)
		meter_begin(&host.core->meter);
	assert_int_equal(evict_oldest(host.core, dv), segment);
	for (uint32_t n = 0; n < BLOCKS; n++)
		if (block_use(context(), slot_of(n))->pins[ABI_TIER_HBM])
			block_use_make(context(), slot_of(n))->pins[ABI_TIER_HBM]--;
}

int main(void)
{
#define T(name, on, off) cmocka_unit_test_setup_teardown(name, on, off)
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_put_is_of_the_epoch_it_ends_in),
		T(test_an_epoch_ends, setup_memory, one_host_off),
		T(test_a_context_is_removed, setup_memory, one_host_off),
		T(test_children_that_may_not_go_yet, setup_memory, one_host_off),
		T(test_a_prefetch_of_many, setup_memory, one_host_off),
		T(test_a_segment_is_dropped, setup_store, teardown_store),
		T(test_a_drive_is_given_up, setup_store, teardown_store),
		T(test_segments_that_are_pinned, setup_store, teardown_store),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("core, walks", tests, one_host, NULL);
}
