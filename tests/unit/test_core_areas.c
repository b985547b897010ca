/*
 * The areas of an index: how they lie, what is used of them, and that each of them is prepared for
 * huge pages as it grows, once, or again where that was refused, and no further than it is used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"

#define BLOCKS 560000u /* the smallest area has a huge page, the index lies within 64 MiB */
#define PARTS 8u       /* in so many pieces it grows, each within what a tick prepares */

/* Prepared ranges of the index, by area. */
static struct {
	uint64_t from[INDEX_AREAS];
	uint64_t to[INDEX_AREAS];
	bool refuses; /* instead */
	struct core_range refused[2 * INDEX_AREAS];
	uint32_t count;
} ready;

static uint64_t bucket_count; /* before it grew */

/* A range lies in one area's used part, and goes on where the one before it ended. */
static void prepared(void *arg, const struct core_range *range)
{
	const struct index *ix = &context()->ix;
	uint32_t i = 0;

	(void)arg;
	if (range->tier != CORE_RANGE_INDEX)
		return;
	while (i < INDEX_AREAS && range->offset >= index_area(ix, i).end)
		i++;
	assert_true(i < INDEX_AREAS);
	assert_true(range->offset >= index_area(ix, i).begin);
	assert_true(range->offset + range->bytes <= index_area(ix, i).used);
	assert_int_equal(range->offset % ABI_HUGE, 0);
	assert_int_equal(range->bytes % ABI_HUGE, 0);
	if (ready.refuses) {
		assert_true(ready.count < 2 * INDEX_AREAS);
		ready.refused[ready.count++] = *range;
		return;
	}
	if (!ready.to[i])
		ready.from[i] = range->offset;
	else
		assert_int_equal(range->offset, ready.to[i]);
	ready.to[i] = range->offset + range->bytes;
}

static int set_up(void **state)
{
	struct disk_context spec;
	struct abi_geometry *g = &spec.geometry;

	(void)state;
	memset(&ready, 0, sizeof(ready));
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = BLOCKS;
	spec.quota[ABI_TIER_CXL] = 0; /* all: so many blocks are possible */
	memset(&g->part[1], 0, 2 * sizeof(g->part[0]));
	g->part_count = g->part[0].layers = g->part[0].groups = g->pages_per_block = 1;
	g->block_bytes = g->part[0].page_stride;
	host.ears.prepare = prepared;
	host.cxl_bytes = (uint64_t)BLOCKS * g->block_bytes / ABI_HUGE * ABI_HUGE + ABI_HUGE;
	one_host_boot(&spec, 0);
	bucket_count = context()->ix.header->bucket_count;
	return 0;
}

static int tear_down(void **state)
{
	struct index *ix = &context()->ix;

	ix->slots_used = ix->overflow_used = 0;
	ix->header->bucket_count = bucket_count;
	host.ears.prepare = NULL;
	host.cxl_bytes = 0;
	return one_host_off(state);
}

static void test_areas_follow_each_other(void **state)
{
	const struct index *ix = &context()->ix;
	const struct abi_index_header *h = ix->header;
	uint64_t at = h->bucket_offset;

	(void)state;
	for (uint32_t i = 0; i < INDEX_AREAS; i++) {
		struct index_area area = index_area(ix, i);

		assert_int_equal(area.begin, at);
		assert_true(area.used >= area.begin && area.used < area.end);
		at = area.end;
	}
	assert_int_equal(at, h->total_bytes);
	assert_int_equal(index_bytes_used(ix),
			 h->bucket_offset + h->bucket_count * sizeof(struct abi_bucket));
}

/* As if entries had come: what is used grows, and with it what is prepared. */
static void grow(struct index *ix, uint64_t part)
{
	ix->header->bucket_count = ix->header->buckets_max * part / PARTS;
	ix->overflow_used = ix->header->overflow_max * part / PARTS;
	ix->slots_used = ix->blocks_max * part / PARTS;
	descs_touch_range(&context()->descs, 0, ix->slots_used / DESCS_GROUP);
}

/* To its end, and some time more: all of it is prepared that is full of what is used. */
static void grow_up(uint64_t part)
{
	struct index *ix = &context()->ix;

	for (; part <= 2 * PARTS; part++) {
		grow(ix, part < PARTS ? part : PARTS);
		host_tick(&host, 10 * MS);
	}
	for (uint32_t i = 0; i < INDEX_AREAS; i++) {
		struct index_area area = index_area(ix, i);
		uint64_t begin = (area.begin + ABI_HUGE - 1) / ABI_HUGE * ABI_HUGE;

		assert_int_equal(ready.from[i], begin);
		assert_true(ready.to[i] > ready.from[i]);
		assert_int_equal(ready.to[i], area.used / ABI_HUGE * ABI_HUGE);
	}
}

static void test_each_area_is_prepared(void **state)
{
	(void)state;
	grow_up(1);
}

/* Two ranges of an area one behind the other, told of in any order. */
static void test_what_is_refused_is_asked_for_again(void **state)
{
	(void)state;
	ready.refuses = true;
	for (uint64_t part = 1; part <= PARTS && ready.count <= INDEX_AREAS; part++) {
		grow(&context()->ix, part);
		host_tick(&host, 10 * MS);
	}
	assert_true(ready.count > INDEX_AREAS);
	ready.refuses = false;
	for (uint32_t i = 0; i < ready.count; i++) {
		struct core_event e = { .kind = CORE_EV_PREPARE_REFUSED,
					.range = ready.refused[i] };

		host_event(&host, &e);
	}
	grow_up(PARTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_areas_follow_each_other, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_each_area_is_prepared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_refused_is_asked_for_again, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
