/*
 * Fetches, page by page: what is asked for comes and nothing else, what is not there is no part of
 * the answer, and who waits for pages that another request brings gets them itself, all at once,
 * when that fails. And how pages are counted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 6u /* of one run, side by side in the store */

static struct abi_cqe answered[2]; /* by user_data */

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	answered[cqe->user_data % 2] = *cqe;
}

/* Blocks that are on NVMe alone. */
static int setup(void **state)
{
	const struct abi_put_args args = { .count = BLOCKS };
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 0);
	one_host_boot(&spec, 2);
	assert_int_equal(host_reserve(&host, &args, 0, ABI_SQE_DURABLE), 0);
	assert_true(host_commit(&host, ABI_SQE_DURABLE));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.value, BLOCKS);
	assert_int_equal(core_evict(host.core, host.context[0].id, ABI_TIER_CXL, UINT64_MAX, 1), 0);
	host_look(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 0);
	host.ears.complete = complete;
	host.held = true;
	return 0;
}

static void ask(uint32_t client, uint8_t op, uint8_t klass)
{
	const struct abi_sqe sqe = { .op = op, .klass = klass, .tier = ABI_TIER_CXL };

	assert_true(host_request_keys(&host, client, sqe, 0, BLOCKS));
}

static uint64_t bytes_under_way(void)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < host.bag_count; i++)
		bytes += host.bag[i].kind == CORE_AC_READ ? host.bag[i].io->bytes : 0;
	return bytes;
}

static void test_what_another_lost_is_brought_at_once(void **state)
{
	uint64_t all = BLOCKS * context()->spec.geometry.block_bytes;

	(void)state;
	ask(0, ABI_OP_PREFETCH, ABI_CLASS_SPECULATIVE);
	assert_int_equal(bytes_under_way(), all);
	ask(1, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(bytes_under_way(), all); /* it waits for these */
	assert_int_equal(host.bag_count, 1);
	host.fault = HOST_FAILS;
	host_carry(&host, 0);
	assert_int_equal(bytes_under_way(), all);
	host_carry_all(&host);
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, BLOCKS);
}

/* What another brings on to HBM goes there in the class of who waits for it. */
static void test_what_is_waited_for_goes_on_in_that_class(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .klass = ABI_CLASS_SPECULATIVE,
			       .tier = ABI_TIER_HBM };
	uint32_t copies = 0;

	(void)state;
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	sqe.op = ABI_OP_FETCH;
	sqe.klass = ABI_CLASS_DEMAND;
	assert_true(host_request_keys(&host, 1, sqe, 0, BLOCKS));
	while (host.bag_count && host.bag[0].kind == CORE_AC_READ)
		host_carry(&host, 0);
	for (uint32_t i = 0; i < host.bag_count; i++) {
		if (host.bag[i].kind != CORE_AC_COPY)
			continue;
		assert_int_equal(host.bag[i].copy->klass, ABI_CLASS_DEMAND);
		copies++;
	}
	assert_true(copies > 0);
	host.held = false;
	host_carry_all(&host);
	assert_int_equal(host.answer.value, BLOCKS);
}

/* Each page is counted once, as it was found: absent, on its way, there. */
static void test_pages_are_counted_as_they_were_found(void **state)
{
	const struct core_metrics *m = core_metrics(host.core);
	uint64_t pages = BLOCKS * (uint64_t)context()->ix.pages_per_block;

	(void)state;
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(m->fetch_pages, pages);
	assert_int_equal(m->fetch_joined + m->fetch_hits, 0);
	ask(1, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(m->fetch_joined, pages);
	host_carry_all(&host);
	assert_int_equal(host.answer.value, BLOCKS);
	assert_int_equal(m->fetch_hits, 0);
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(m->fetch_hits, pages);
	assert_int_equal(m->fetch_joined, pages);
	assert_int_equal(m->fetch_pages, 3 * pages);
}

static uint32_t ready(uint32_t slot, uint32_t part)
{
	const struct abi_part *p = &context()->spec.geometry.part[part];
	uint32_t count = 0;

	for (uint32_t i = 0; i < p->layers * p->groups; i++)
		count += page_state(index_page(&context()->ix, slot, p->page_base + i),
				    ABI_TIER_CXL) == ABI_PAGE_READY;
	return count;
}

static void test_only_the_range_comes(void **state)
{
	const struct abi_sqe sqe = { .op = ABI_OP_FETCH, .tier = ABI_TIER_CXL, .part_first = 1,
				     .part_count = 1 };

	(void)state;
	host.held = false;
	assert_true(host_request_keys(&host, 0, sqe, 0, BLOCKS));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.value, BLOCKS);
	for (uint32_t n = 0; n < BLOCKS; n++) {
		assert_int_equal(ready(slot_of(n), 0), 0);
		assert_int_equal(ready(slot_of(n), 1), 1);
		assert_int_equal(ready(slot_of(n), 2), 0);
	}
}

static void test_a_prefetch_that_fails_is_no_use(void **state)
{
	uint64_t all = BLOCKS * context()->spec.geometry.block_bytes;
	const struct core_metrics *m = &host.core->metrics;

	(void)state;
	ask(0, ABI_OP_PREFETCH, ABI_CLASS_SPECULATIVE);
	assert_int_equal(host.core->staged.bytes, all);
	host.fault = HOST_FAILS;
	host_carry_all(&host);
	assert_int_equal(m->prefetch_bytes, all);
	assert_int_equal(m->prefetch_failed, all);
	assert_int_equal(m->prefetch_used + m->prefetch_wasted, 0);
}

/* In the tier that it was brought to, whichever that is. */
static void test_a_prefetch_that_is_asked_for_is_used(void **state)
{
	uint64_t all = BLOCKS * context()->spec.geometry.block_bytes;

	(void)state;
	host.held = false;
	ask(0, ABI_OP_PREFETCH, ABI_CLASS_SPECULATIVE);
	assert_int_equal(host.core->staged.bytes, all);
	ask(1, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_int_equal(host.core->staged.bytes, 0);
	assert_int_equal(host.core->metrics.prefetch_used, all);
}

/* A block that goes while its pages come is not usable, nor are those behind it. */
static void test_what_is_deleted_meanwhile_does_not_count(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_DELETE, .context_id = host.context[0].id, .count = 1,
			       .arg_bytes = ABI_KEY_BYTES, .user_data = 1 };

	(void)state;
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	host_key(3, host.client[1].staging);
	assert_true(host_request(&host, 1, &sqe));
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(answered[0].res, 0);
	assert_int_equal(answered[0].status, ABI_STATUS_MISS);
	assert_int_equal(answered[0].value, 3);
	assert_int_equal(answered[1].res, 0);
}

/* The page behind a block's last one is none, and not the next block's first. */
static void test_a_page_beyond_its_block_is_a_miss(void **state)
{
	struct abi_page_ref *ref = (struct abi_page_ref *)(void *)host.client[0].staging;
	struct abi_sqe sqe = { .op = ABI_OP_FETCH_PAGES, .context_id = host.context[0].id,
			       .tier = ABI_TIER_CXL, .count = 2, .arg_bytes = 2 * sizeof(*ref) };
	uint32_t slot = slot_of(0), pages = context()->ix.pages_per_block;

	(void)state;
	ref[0] = (struct abi_page_ref){ .slot = slot, .page = pages - 1 };
	ref[0].generation = index_block(&context()->ix, slot)->generation;
	ref[1] = ref[0];
	ref[1].page = pages;
	host.held = false;
	assert_true(host_request(&host, 0, &sqe));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.status, ABI_STATUS_MISS);
	assert_int_equal(host.answer.value, 1);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], 1);
}

/* A read outlives the user's last connection: whoever comes next is not taken for its owner. */
static void test_what_a_connection_leaves_under_way_stays_charged(void **state)
{
	(void)state;
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	for (uint32_t i = 0; i < 2; i++) {
		host_client_gone(&host, i);
		host_client_dead(&host, i);
	}
	assert_int_equal(host.core->requests.count, 1);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	host_audit(&host);
	host.held = false;
	host_carry_all(&host);
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.core->requests.count, 0);
	host_audit(&host);
}

/* A reader names the page's place; where that is in memory. */
static const uint8_t *lease(uint32_t slot, uint32_t page)
{
	const struct abi_page *d = index_page(&context()->ix, slot, page);
	struct abi_reader *r = host.client[0].readers;

	assert_int_equal(page_state(d, ABI_TIER_CXL), ABI_PAGE_READY);
	r->slot[0] = abi_place(context()->id, ABI_TIER_CXL, d->word[ABI_TIER_CXL]);
	r->high_water = 1;
	return (const uint8_t *)context()->memory.mem[ABI_TIER_CXL] + page_addr(d, ABI_TIER_CXL);
}

/* While something is leased the host never settles: it is looked for again. */
static void pass(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i++)
		host_tick(&host, MS);
}

/* Who reads an old place keeps its bytes, and nobody from having the page: it comes elsewhere. */
static void test_a_page_comes_back_beside_a_lease(void **state)
{
	uint64_t all = BLOCKS * (uint64_t)context()->ix.pages_per_block;
	uint32_t slot = slot_of(0), bytes = page_stride(context(), 0);
	const uint8_t *old, *new;
	uint8_t was[4096];

	(void)state;
	assert_in_range(bytes, 1, sizeof(was));
	host.held = false;
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_true(host_settle(&host, 100));
	old = lease(slot, 0);
	memcpy(was, old, bytes);
	assert_int_equal(core_evict(host.core, context()->id, ABI_TIER_CXL, UINT64_MAX, 1), 0);
	host_look(&host);
	pass(20);
	assert_int_equal(host.core->reclaim.quarantined[ABI_TIER_CXL], bytes);
	host.answer.value = 0;
	ask(1, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	pass(20);
	assert_int_equal(host.answer.res, 0);
	assert_int_equal(host.answer.value, BLOCKS);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], all);
	new = (const uint8_t *)context()->memory.mem[ABI_TIER_CXL] +
	      page_addr(index_page(&context()->ix, slot, 0), ABI_TIER_CXL);
	assert_ptr_not_equal(new, old);
	assert_memory_equal(new, was, bytes);
	assert_memory_equal(old, was, bytes);
	assert_int_equal(host.core->reclaim.quarantined[ABI_TIER_CXL], bytes);
	host_audit(&host);
	host.client[0].readers[0].slot[0] = 0;
	pass(20);
	assert_int_equal(host.core->reclaim.quarantined[ABI_TIER_CXL], 0);
	assert_int_equal(context()->retiring[ABI_TIER_CXL], 0);
	assert_int_equal(context()->pages_resident[ABI_TIER_CXL], all);
	host_audit(&host);
}

/* Nor does it keep the block's slot: the block is gone, and what may come there is another's. */
static void test_a_lease_keeps_no_slot(void **state)
{
	struct abi_sqe sqe = { .op = ABI_OP_DELETE, .context_id = host.context[0].id, .count = 1,
			       .arg_bytes = ABI_KEY_BYTES };
	uint32_t live = context()->slots_live;

	(void)state;
	host.held = false;
	ask(0, ABI_OP_FETCH, ABI_CLASS_DEMAND);
	assert_true(host_settle(&host, 100));
	lease(slot_of(BLOCKS - 1), 0);
	host_key(BLOCKS - 1, host.client[1].staging);
	assert_true(host_request(&host, 1, &sqe));
	pass(20);
	assert_int_equal(context()->slots_live, live - 1);
	assert_int_equal(host.core->reclaim.quarantined[ABI_TIER_CXL], page_stride(context(), 0));
	host_audit(&host);
	host_client_gone(&host, 0);
	host_client_dead(&host, 0);
	pass(20);
	assert_int_equal(host.core->reclaim.quarantined[ABI_TIER_CXL], 0);
	host_audit(&host);
}

/* A prefetch with a deadline goes by stripes of blocks: to the last of the last one. */
static void test_all_stripes_of_a_prefetch_come(void **state)
{
	const struct abi_put_args args = { .count = 10 };
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH, .tier = ABI_TIER_HBM };
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	host_spec(&spec, HOST_KIND_MEMORY, 0);
	g->part_count = 1;
	g->part[0].page_bytes = g->part[0].page_stride = 4096;
	g->part[0].groups = (uint16_t)(g->pages_per_block = 16);
	g->block_bytes = 16 * 4096;
	_Static_assert(8 * 16 * 4096 == SCHED_UNIT_BYTES, "a stripe of 8 blocks, and one of 2");
	one_host_boot(&spec, 1);
	assert_int_equal(host_reserve(&host, &args, 0, 0), 0);
	assert_true(host_commit(&host, 0));
	assert_int_equal(host.answer.value, 10);
	host.answer.status = UINT32_MAX;
	sqe.deadline_ns = host.now_ns + 200 * MS;
	assert_true(host_request_keys(&host, 0, sqe, 0, 10));
	for (uint32_t ms = 0; ms < 200; ms++)
		host_tick(&host, MS);
	assert_int_equal(host.answer.status, ABI_STATUS_READY);
	assert_int_equal(host.answer.value, 10);
	for (uint32_t n = 0; n < 10; n++)
		assert_int_equal(context()->meta[slot_of(n)].there[ABI_TIER_HBM].pages,
				 context()->ix.pages_per_block);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, setup, one_host_off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_what_another_lost_is_brought_at_once),
		EACH(test_what_is_waited_for_goes_on_in_that_class),
		EACH(test_pages_are_counted_as_they_were_found),
		EACH(test_only_the_range_comes),
		EACH(test_a_prefetch_that_fails_is_no_use),
		EACH(test_a_prefetch_that_is_asked_for_is_used),
		EACH(test_what_is_deleted_meanwhile_does_not_count),
		EACH(test_a_page_beyond_its_block_is_a_miss),
		EACH(test_what_a_connection_leaves_under_way_stays_charged),
		EACH(test_a_page_comes_back_beside_a_lease),
		EACH(test_a_lease_keeps_no_slot),
		cmocka_unit_test_teardown(test_all_stripes_of_a_prefetch_come, one_host_off),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
