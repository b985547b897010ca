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

/* ---- headers ------------------------------------------------------------------------------- */

static struct core_action late; /* the write of a header that ends after all else; kind 0: none */

static uint64_t header_of(uint32_t segment)
{
	return host.super.segment_offset + segment * host.super.segment_bytes;
}

/* The first write of a header in the bag, from 1 on; 0 = there is none. */
static uint32_t header_waits(void)
{
	const struct disk_super *p = &host.super;

	for (uint32_t i = 0; i < host.bag_count; i++) {
		const struct core_action *a = &host.bag[i];

		if (a->kind == CORE_AC_WRITE && a->io->offset >= p->segment_offset &&
		    (a->io->offset - p->segment_offset) % p->segment_bytes == 0)
			return i + 1;
	}
	return 0;
}

static void make_late(uint32_t i)
{
	late = host.bag[i - 1];
	host.bag[i - 1] = host.bag[--host.bag_count];
}

static void end_late(void)
{
	if (late.kind)
		host.bag[host.bag_count++] = late;
	late.kind = 0;
}

/*
 * Would a start find the key, should power be lost now? A sector that is being written may then be
 * neither what it was nor what it was to be, the same or not.
 */
static bool survives(uint32_t n)
{
	const struct disk_super *p = &host.super;
	uint64_t run = 0, bound = 0;
	uint8_t key[ABI_KEY_BYTES];

	host_key(n, key);
	for (uint32_t i = 0; i < p->segment_count; i++) {
		bool torn = late.kind && late.io->offset == header_of(i);
		struct store_view v;
		size_t cursor = 0;

		while (!torn && !store_next(host.core->drive[0]->store, i,
					    one_host_stable + header_of(i), p->summary_bytes,
					    &cursor, &v))
			for (uint32_t k = 0; k < v.head->block_count; k++) {
				bool tomb = v.head->type == DISK_RECORD_TOMBSTONE;
				uint64_t lsn = tomb ? v.block[k].salt : v.head->lsn;
				uint64_t *most = tomb ? &bound : &run;

				if (!memcmp(v.block[k].key, key, ABI_KEY_BYTES) && *most < lsn)
					*most = lsn;
			}
	}
	return run > bound;
}

#define MOVED 0u /* the one block that lives in the first segment; those behind it are deleted */
#define DEAD 11u
#define GONE 12u /* deleted while the cleaner opens a segment */

/* The cleaner writes the header of a segment that it opens, and deletions have room only there. */
static void cleaner_opens(void)
{
	uint32_t n = 0;

	for (; n + 6 < FULL; n += 3)
		one_host_put_half(n);
	for (; n < FULL; n++) /* the records of these leave room for one more */
		assert_int_equal(one_host_put(n, 1, ABI_SQE_DURABLE), 0);
	assert_true(host_settle(&host, 100));
	assert_int_equal(segments_free(), STORE_RESERVE);
	host.held = true;
	one_host_delete_begin(MOVED + 1, DEAD);
	for (n = 0; !header_waits(); n++) {
		assert_true(n < 1000);
		one_host_step();
	}
	make_late(header_waits());
	assert_int_equal(host.core->drive[0]->cleaner.phase, CLEAN_HEADER);
	for (n = 0; host.answer.res; n++) {
		assert_true(n < 1000);
		one_host_step();
	}
	assert_true(survives(MOVED) && survives(GONE) && !survives(MOVED + 1));
}

/* A deletion's record stands behind the header that the cleaner's write may tear. */
static void test_a_late_header_undoes_no_deletion(void **state)
{
	(void)state;
	cleaner_opens();
	one_host_delete_begin(GONE, 1);
	for (uint32_t n = 0; n < 300; n++) {
		one_host_step();
		assert_true(survives(MOVED));
		assert_false(host.answer.res == 0 && survives(GONE));
	}
	end_late();
	assert_int_equal(one_host_answer(), 0);
	assert_true(host_settle(&host, 100));
	host_audit(&host);
}

/* A block that was moved stands behind the header that the deletion's write may tear. */
static void test_a_late_header_loses_no_moved_block(void **state)
{
	uint32_t first;

	(void)state;
	cleaner_opens();
	first = segment_of(MOVED);
	end_late();
	one_host_delete_begin(GONE, 1);
	if (header_waits() && header_waits() < host.bag_count)
		make_late(host.bag_count);
	for (uint32_t n = 0; n < 300; n++) {
		one_host_step();
		assert_true(survives(MOVED));
	}
	assert_true(segment_of(MOVED) != first);
	assert_int_equal(one_host_put_begin(FULL, 3, 0), 0);
	for (uint32_t n = 0; n < 600; n++) {
		one_host_step();
		assert_true(survives(MOVED));
	}
	assert_int_equal(segment_of(FULL), first); /* it is used anew */
	end_late();
	assert_true(host_settle(&host, 100));
	assert_true(survives(MOVED) && !survives(GONE));
	host_audit(&host);
}

static int off(void **state)
{
	end_late(); /* of a test that failed */
	host.held = false;
	return one_host_off(state);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, one_host_stable_boot, off)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(test_carried_tombstones_are_flushed_first),
		EACH(test_the_furthest_tombstone_is_kept),
		EACH(test_deletions_leave_the_cleaner_its_segment),
		EACH(test_a_late_header_undoes_no_deletion),
		EACH(test_a_late_header_loses_no_moved_block),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
