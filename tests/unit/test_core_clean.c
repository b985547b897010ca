/*
 * What the cleaner takes out of a segment is safe elsewhere before that segment may be used again:
 * told from what a device would have after a loss of power, which knows what was flushed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

static void drop(uint32_t first, uint32_t count)
{
	const struct abi_sqe sqe = { .op = ABI_OP_DELETE };

	assert_true(host_request_keys(&host, 0, sqe, first, count));
	assert_true(host_settle(&host, 100));
	assert_int_equal(host.answer.res, 0);
}

static uint32_t segment_of(uint32_t n)
{
	struct context *x = core_context(host.core, host.context[0].id);
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	return block_segment(host.core, x, index_find(&x->ix, key));
}

/* Is there a tombstone of the key outside of the segment? */
static bool is_void(const uint8_t *disk, uint32_t n, uint32_t segment)
{
	const struct disk_super *p = &host.super;
	uint8_t key[ABI_KEY_BYTES];
	bool found = false;

	host_key(n, key);
	for (uint32_t i = 0; i < p->segment_count; i++) {
		const uint8_t *summary = disk + p->segment_offset + i * p->segment_bytes;
		struct store_view v;
		size_t cursor = 0;

		while (i != segment && !store_next(host.core->drive[0]->store, i, summary,
						   p->summary_bytes,
						   &cursor, &v))
			for (uint32_t k = 0; k < v.head->block_count; k++)
				found |= v.head->type == DISK_RECORD_TOMBSTONE &&
					 !memcmp(v.block[k].key, key, ABI_KEY_BYTES);
	}
	return found;
}

/* All of it is dead but a tombstone: without that one a block that was deleted would come back. */
static void test_carried_tombstones_are_flushed_first(void **state)
{
	uint32_t segment, steps = 0;

	(void)state;
	one_host_put_half(0);
	one_host_put_half(3); /* the first segment is full */
	one_host_put_half(6);
	segment = segment_of(6);
	assert_true(segment != segment_of(0));
	drop(0, 1);
	one_host_put_half(9);
	assert_int_equal(segment_of(9), segment);
	one_host_put_half(12);
	assert_true(segment_of(12) != segment);
	drop(6, 6);
	assert_int_equal(store_segment_live(host.core->drive[0]->store, segment), 0);
	assert_int_equal(store_dead(host.core->drive[0]->store), -ENOENT);
	assert_false(is_void(host.disk, 0, segment));
	host.held = true;
	assert_true(clean_begin(host.core, host.core->drive[0]));
	assert_int_equal(host.core->drive[0]->cleaner.segment, segment);
	for (; store_dead(host.core->drive[0]->store) < 0; steps++) {
		assert_true(steps < 100);
		one_host_step();
	}
	assert_int_equal(store_dead(host.core->drive[0]->store), segment);
	assert_true(is_void(one_host_stable, 0, segment));
}

/* Of two of one key, in two segments, a start needs the one that reaches further. */
static void test_the_furthest_tombstone_is_kept(void **state)
{
	uint32_t first, second;
	const struct store *s;

	(void)state;
	one_host_put_half(0);
	one_host_put_half(3);
	one_host_put_half(6);
	first = segment_of(6);
	drop(0, 1);
	one_host_put_half(9);
	one_host_put_half(12);
	second = segment_of(12);
	one_host_put_half(0); /* it is written again, */
	assert_int_equal(segment_of(0), second);
	drop(0, 1);
	one_host_restart(false);
	s = host.core->drive[0]->store;
	assert_true(first != second);
	assert_int_equal(s->segment[first].lsn_tombstone, 0);
	assert_true(s->segment[second].lsn_tombstone > s->segment[first].lsn_first);
}

#define FULL 60u     /* blocks: all segments but the reserve */
#define ABSENT 1000u /* keys from here on were never put */

static uint32_t segments_free(void)
{
	struct store_stats st;

	store_stats(host.core->drive[0]->store, &st);
	return st.segments_free;
}

/*
 * Deletions one by one take a record each, seven a segment. They never take the last free segment,
 * with which the cleaner makes one record of many: so none of them is refused, and a full store can
 * be emptied afterwards.
 */
static void test_deletions_leave_the_cleaner_its_segment(void **state)
{
	(void)state;
	for (uint32_t n = 0; n < FULL; n += 3)
		one_host_put_half(n);
	assert_int_equal(segments_free(), STORE_RESERVE);
	for (uint32_t n = 0; n < 300; n++) {
		drop(ABSENT + n, 1);
		assert_true(clean_busy(host.core->drive[0]) || segments_free() > 0);
	}
	for (uint32_t n = 0; n < FULL; n++)
		drop(n, 1);
	one_host_put_half(FULL);
	assert_true(host.core->metrics.tombstones_carried > 0);
	host_audit(&host);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, one_host_stable_boot, one_host_off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_carried_tombstones_are_flushed_first),
		EACH(test_the_furthest_tombstone_is_kept),
		EACH(test_deletions_leave_the_cleaner_its_segment),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
