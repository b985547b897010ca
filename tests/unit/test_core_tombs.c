/*
 * Tombstones that outgrow the records of a segment: those that are needed are made few records of,
 * whichever contexts they are of, and then left alone, and the cleaner ends; those that nothing
 * needs are not carried.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

#define SEGMENTS 24u
#define RUN 6u	     /* blocks of a put */
#define ABSENT 100000u /* keys from here on were never put */
#define CACHE 10000u

static int set_up(uint64_t segment_bytes, uint64_t summary_bytes)
{
	struct disk_context spec;

	one_host_disk((8u << 10) + 2 * HOST_CATALOG + SEGMENTS * segment_bytes, SEGMENTS,
		      segment_bytes, summary_bytes);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 5000;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
	host.core->config.admit_all = true;
	one_host_suspect();
	return 0;
}

static int set_up_many(void **state)
{
	(void)state;
	return set_up(1u << 20, 64u << 10); /* 15 records, 60 blocks */
}

static int set_up_few(void **state)
{
	(void)state;
	return set_up(128u << 10, 24u << 10); /* 5 records, 6 blocks */
}

static int tear_down(void **state)
{
	one_host_off(state);
	one_host_disk_back();
	return 0;
}

static void drop(uint32_t first, uint32_t count)
{
	for (uint32_t n = 0; n < count; n++)
		assert_int_equal(one_host_delete(first + n, 1), 0);
}

static void pause_s(uint32_t seconds)
{
	for (uint32_t i = 0; i < 100 * seconds; i++)
		host_tick(&host, 10 * MS);
}

/* Blocks of the cache log, as many as the store takes, three times. */
static void fill(uint32_t blocks)
{
	for (uint32_t n = 0; n < 3 * SEGMENTS * blocks; n += RUN) {
		assert_int_equal(one_host_put(CACHE + n, RUN, 0), 0);
		host_tick(&host, 10 * MS);
	}
}

/*
 * A segment of promised blocks stays, and so do all tombstones that came after it, each in a record
 * of its own at first; the rest of the store is the cache log's, and always full.
 */
static void outgrow(uint32_t blocks, uint32_t keys)
{
	const struct core_metrics *m = &host.core->metrics;
	uint64_t cleaned, carried;

	for (uint32_t n = 0; n < 2 * blocks; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	drop(ABSENT, keys);
	fill(blocks);
	assert_true(m->tombstones_carried > 0);
	pause_s(5);
	cleaned = m->cleaned_segments;
	carried = m->tombstones_carried;
	pause_s(5);
	assert_int_equal(m->cleaned_segments, cleaned);
	fill(blocks);
	assert_in_range(m->tombstones_carried - carried, 0, keys);
	host_audit(&host);
}

static void test_needed_ones_come_to_rest(void **state)
{
	(void)state;
	outgrow(60, 3000);
}

static void test_needed_ones_come_to_rest_in_few_records(void **state)
{
	(void)state;
	outgrow(6, 1200);
}

/* Of a key that was never put; there are two contexts. */
static void drop_of(uint32_t context, uint32_t n)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE,
				     .flags = ABI_SQE_KEYS,
				     .context_id = host.context[context].id,
				     .count = 1,
				     .arg_bytes = ABI_KEY_BYTES };

	host_key(ABSENT + n, host.client[0].staging);
	host.answer.res = 1;
	assert_true(host_request(&host, 0, &sqe));
	assert_int_equal(one_host_answer(), 0);
}

/* Records of tombstones in segments that are in use. */
static uint32_t tombstone_records(void)
{
	const struct disk_super *p = &host.super;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->segment_count; i++) {
		const uint8_t *summary = host.disk + p->segment_offset + i * p->segment_bytes;
		struct store_view v;
		size_t cursor = 0;

		if (host.core->store->segment[i].state == STORE_FREE)
			continue;
		while (!store_next(host.core->store, i, summary, p->summary_bytes, &cursor, &v))
			n += v.head->type == DISK_RECORD_TOMBSTONE;
	}
	return n;
}

#define BY_TURNS 400u

/* Contexts that delete by turns, each key in a record of its own, are in few after the cleaner. */
static void test_those_of_two_contexts_are_sorted(void **state)
{
	const struct core_metrics *m = &host.core->metrics;
	struct disk_context spec;

	(void)state;
	host_spec(&spec, HOST_KIND_STORE, 1);
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	assert_int_equal(host_context_make(&host, 1, &spec), 0);
	host_client_attach(&host, 0);
	for (uint32_t n = 0; n < 120; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	for (uint32_t n = 0; n < BY_TURNS; n++)
		drop_of(n % 2, n);
	fill(60);
	pause_s(5);
	assert_true(m->tombstones_carried > BY_TURNS / 2);
	assert_in_range(tombstone_records(), 1, 60);
	host_audit(&host);
}

static uint64_t tombs_queued(void)
{
	return host.core->tombs[TOMBS_NEW].queued;
}

/*
 * Keys that never were leave none, and keys that have left the index all the same: their record
 * may come back. At a new start likewise, but where part of the store was not read.
 */
static void test_keys_that_never_were_leave_none(void **state)
{
	uint64_t queued;

	(void)state;
	one_host_off(state);
	one_host_disk_back();
	set_up(1u << 20, 64u << 10);
	for (uint32_t i = 0; i < SEGMENTS; i++)
		host.core->store->segment[i].suspect = false; /* it is new */
	for (uint32_t n = 0; n < 5 * RUN; n += RUN)
		assert_int_equal(one_host_put(n, RUN, ABI_SQE_DURABLE), 0);
	queued = tombs_queued();
	drop(ABSENT, 2000);
	assert_in_range(tombs_queued() - queued, 0, 40); /* keys may share a place */
	queued = tombs_queued();
	drop(0, RUN);
	assert_int_equal(tombs_queued() - queued, RUN);
	/* What leaves by itself leaves its record. */
	block_drop(host.core, core_context(host.core, host.context[0].id), 2 * RUN);
	queued = tombs_queued();
	for (uint32_t n = 0; n < 5 * RUN; n++)
		assert_true(one_host_delete(n, 1) <= 1);
	assert_int_equal(tombs_queued() - queued, 5 * RUN);
	one_host_restart(false);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	queued = tombs_queued();
	drop(ABSENT, 2000);
	assert_in_range(tombs_queued() - queued, 0, 40);
	queued = tombs_queued();
	drop(0, RUN);
	assert_int_equal(tombs_queued() - queued, RUN);
	core_recover_unread(host.core, SEGMENTS - 1);
	queued = tombs_queued();
	drop(ABSENT, RUN);
	assert_int_equal(tombs_queued() - queued, RUN);
	host_audit(&host);
}

static struct store_run tombstone_of_one(struct store *s)
{
	struct store_run run;

	assert_int_equal(store_append_tombstone(s, 1, false, &run), 0);
	store_append_done(s, &run, true);
	return run;
}

/* Only a run can be made void: tombstones of the segment before do not make later ones needed. */
static void test_one_makes_no_other_needed(void **state)
{
	struct store_run first, next;
	struct store *s;
	uint64_t oldest;

	(void)state;
	assert_int_equal(store_open(&s, &host.super), 0);
	first = tombstone_of_one(s);
	do
		next = tombstone_of_one(s);
	while (next.segment == first.segment);
	assert_false(store_tombs_needed(s, next.segment, &oldest));
	assert_int_equal(store_append(s, STORE_CACHE, 1, DISK_SECTOR, 1, &first), 0);
	next = tombstone_of_one(s);
	assert_true(store_tombs_needed(s, next.segment, &oldest));
	assert_int_equal(oldest, first.lsn);
	store_close(s);
}

#define TEST(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_needed_ones_come_to_rest, set_up_many),
		TEST(test_needed_ones_come_to_rest_in_few_records, set_up_few),
		TEST(test_those_of_two_contexts_are_sorted, set_up_many),
		TEST(test_keys_that_never_were_leave_none, set_up_many),
		cmocka_unit_test(test_one_makes_no_other_needed),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
