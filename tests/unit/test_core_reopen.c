/*
 * What a crash left unfinished is gone on with: a nearly full store takes writes crash after crash,
 * and loses none; and what is appended lies behind all that is of the segment's life, also behind
 * what does not verify, so that nothing of it can come true later.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/one_host.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

/* ---- a store, crash after crash -------------------------------------------------------------- */

#define SEGMENTS 40u
#define STORE_BYTES ((8u << 10) + 2 * HOST_CATALOG + SEGMENTS * 2 * HOST_SEGMENT)
#define GROUP 3u /* blocks put, and deleted, together */
#define LIVE 144u /* groups: 95 % of what fits beside the cleaner's reserve, 12 blocks a segment */
#define CRASHES 100u
#define GROUPS (LIVE + 4 * CRASHES)

enum known { STORED = 1, DELETED, UNSURE };

struct life {
	struct rng rng;
	enum known group[GROUPS];
	uint32_t groups; /* so far */
};

static struct life *begin(uint64_t seed)
{
	struct life *l = calloc(1, sizeof(*l));
	struct disk_context spec;

	assert_non_null(l);
	l->rng.state = seed;
	one_host_disk(STORE_BYTES, SEGMENTS, 2 * HOST_SEGMENT, 2 * HOST_SUMMARY);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 500;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
	return l;
}

static void end(struct life *l)
{
	one_host_off(NULL);
	one_host_disk_back();
	free(l);
}

static void put_begin(struct life *l)
{
	assert_true(l->groups < GROUPS);
	assert_int_equal(one_host_put_begin(GROUP * l->groups, GROUP, ABI_SQE_DURABLE), 0);
	l->group[l->groups++] = UNSURE;
}

static void put(struct life *l)
{
	put_begin(l);
	assert_int_equal(one_host_answer(), 0);
	assert_int_equal(host.answer.value, GROUP);
	l->group[l->groups - 1] = STORED;
}

static void drop_begin(struct life *l, uint32_t g)
{
	l->group[g] = UNSURE;
	one_host_delete_begin(GROUP * g, GROUP);
}

static void drop(struct life *l, uint32_t g)
{
	drop_begin(l, g);
	assert_int_equal(one_host_answer(), 0);
	l->group[g] = DELETED;
}

static uint32_t a_stored_one(struct life *l)
{
	uint32_t g;

	do
		g = (uint32_t)rng_below(&l->rng, l->groups);
	while (l->group[g] != STORED);
	return g;
}

/* Something is under way, and any part of it has come to pass, when everything stops. */
static void crash(struct life *l)
{
	uint32_t steps = (uint32_t)rng_below(&l->rng, 60);

	host.held = true;
	drop_begin(l, a_stored_one(l));
	put_begin(l);
	while (steps--) {
		host_carry(&host, (uint32_t)rng_below(&l->rng, host.bag_count + !host.bag_count));
		if (!host.bag_count)
			host_tick(&host, MS);
	}
	one_host_restart(rng_below(&l->rng, 2));
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	host_audit(&host);
}

static void check(struct life *l)
{
	for (uint32_t n = 0; n < GROUP * l->groups; n++) {
		uint8_t key[ABI_KEY_BYTES];
		bool there;

		host_key(n, key);
		there = index_find(&context()->ix, key) != ABI_SLOT_NONE;
		if (l->group[n / GROUP] != UNSURE)
			assert_int_equal(there, l->group[n / GROUP] == STORED);
	}
}

static void live(struct life *l)
{
	while (l->groups < LIVE)
		put(l);
	for (uint32_t i = 0; i < CRASHES; i++) {
		crash(l);
		check(l);
		for (uint32_t g = 0; g < l->groups; g++)
			if (l->group[g] == UNSURE)
				drop(l, g);
		for (uint32_t n = 0; n < 2; n++)
			put(l);
		drop(l, a_stored_one(l)); /* as many as there were */
	}
	check(l);
}

static void test_a_full_store_survives_crashes(void **state)
{
	struct life *l = begin(3); /* in most lives tombstones carried again would fill it */

	(void)state;
	live(l);
	end(l);
}

/* ---- a small table --------------------------------------------------------------------------- */

#define TABLE 24u /* blocks that the context may have */

static void small_begin(void)
{
	struct disk_context spec;

	one_host_disk(STORE_BYTES, SEGMENTS, 2 * HOST_SEGMENT, 2 * HOST_SUMMARY);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = TABLE;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
}

static void small_end(void)
{
	one_host_off(NULL);
	one_host_disk_back();
}

/* However many the table has not: both ways, crash after crash. */
static void survive(uint32_t first, uint32_t count)
{
	for (uint32_t way = 0; way < 4; way++) {
		one_host_restart(way % 2);
		for (uint32_t n = first; n < first + count; n++)
			assert_true(is_there(n));
		assert_true(context()->slots_live <= TABLE);
		host_client_open(&host, 0);
		host_client_attach(&host, 0);
		host_audit(&host);
	}
}

/* The store has more records than the table has slots: of durable blocks that were deleted. */
static void test_the_deleted_take_no_slot_from_the_durable(void **state)
{
	(void)state;
	small_begin();
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(one_host_put(16 * i, 16, ABI_SQE_DURABLE), 0);
		assert_int_equal(host.answer.value, 16);
		if (i < 2)
			assert_int_equal(one_host_delete(16 * i, 16), 0);
		one_host_pause(100); /* no reader keeps a slot any more */
	}
	survive(32, 16);
	for (uint32_t n = 0; n < 32; n++)
		assert_false(is_there(n));
	small_end();
}

/* A put that begins behind the block of key `before`; it is there in the end. */
static void put_behind(uint32_t first, uint32_t count, uint32_t before, uint16_t flags)
{
	struct abi_put_args args = { .count = count, .depth = before + 1 };
	bool done = false;

	host_key(before, args.parent);
	for (uint32_t i = 0; i < 10 && !done; i++) {
		host.answer.res = 1;
		done = !host_reserve(&host, &args, first, flags) && host_commit(&host, flags) &&
		       !one_host_answer() && host.answer.value == count;
		one_host_pause(20);
	}
	assert_true(done);
}

/* ... or of cached blocks that made way, and stand before durable ones. */
static void test_the_cached_make_way_for_the_durable(void **state)
{
	(void)state;
	small_begin();
	assert_int_equal(one_host_put(0, 12, 0), 0);
	one_host_pause(500);
	assert_true(context()->nvme_bytes > 0);
	put_behind(12, 10, 11, ABI_SQE_DURABLE);
	put_behind(22, 10, 21, ABI_SQE_DURABLE);
	survive(12, 20);
	small_end();
}

/* ---- a full store, and nobody has asked for anything yet ------------------------------------- */

#define FREE 4u /* segments that are kept free ahead of need */

static uint32_t segments_free(void)
{
	struct store_stats st;

	store_stats(host.core->drive[0]->store, &st);
	return st.segments_free;
}

/* The oldest segment has what all others begin with: it is not dropped with them all behind it. */
static void test_what_others_begin_with_outlives_a_restart(void **state)
{
	uint32_t n = 1, fresh = 5000;
	struct disk_context spec;

	(void)state;
	one_host_disk(STORE_BYTES, SEGMENTS, 2 * HOST_SEGMENT, 2 * HOST_SUMMARY);
	host_spec(&spec, HOST_KIND_STORE, 0);
	spec.blocks_max = 2000;
	spec.quota[ABI_TIER_NVME] = UINT32_MAX;
	one_host_boot(&spec, 1);
	host.core->config.admit_all = true;
	assert_int_equal(one_host_put(0, 1, 0), 0);
	for (; segments_free() > FREE; n += GROUP)
		put_behind(n, GROUP, 0, 0);
	one_host_restart(false);
	host_client_open(&host, 0);
	host_client_attach(&host, 0);
	host.core->config.admit_all = true;
	for (; host.core->metrics.segments_dropped < 3; fresh += GROUP) {
		assert_true(fresh < 5000 + 1000);
		assert_int_equal(one_host_put(fresh, GROUP, 0), 0);
		one_host_pause(50);
	}
	assert_true(is_there(0));
	assert_true(is_there(n - GROUP));
	host_audit(&host);
	small_end();
}

/* ---- one segment ----------------------------------------------------------------------------- */

#define SUMMARY (32u << 10)
#define SEGMENT (128u << 10)
#define FIRST (64u << 10)
#define ALL 16u

struct disk {
	struct disk_super super;
	struct store *s;
	uint8_t *summary; /* of all segments, one after another */
};

static int disk_open(void **state)
{
	struct disk *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	d->super = (struct disk_super){
		.features = DISK_FEATURES, .store_id = 0x5eed, .catalog_offset = 8 << 10,
		.catalog_bytes = 16 << 10, .segment_offset = FIRST, .segment_bytes = SEGMENT,
		.segment_count = ALL, .summary_bytes = SUMMARY,
	};
	d->summary = aligned_alloc(DISK_SECTOR, ALL * SUMMARY);
	assert_non_null(d->summary);
	memset(d->summary, 0, ALL * SUMMARY);
	assert_int_equal(store_open(&d->s, &d->super), 0);
	*state = d;
	return 0;
}

static int disk_close(void **state)
{
	struct disk *d = *state;

	store_close(d->s);
	free(d->summary);
	free(d);
	return 0;
}

static uint8_t *at(struct disk *d, uint64_t offset)
{
	uint64_t in = (offset - FIRST) % SEGMENT;

	assert_true(in < SUMMARY);
	return d->summary + (offset - FIRST) / SEGMENT * SUMMARY + in;
}

/* A run of so many sectors of data whose record has `pages` CRCs (0: a tombstone); whole, on disk
 * and counted. */
static struct store_run append(struct disk *d, enum store_stream stream, uint32_t sectors,
			       uint32_t pages)
{
	static const uint32_t crc[4096];
	struct disk_record head = {
		.type = pages ? DISK_RECORD_RUN : DISK_RECORD_TOMBSTONE, .context_uid = 1,
		.epoch = 1, .parts = pages != 0, .block_count = 1, .pages_per_block = pages,
		.flags = stream == STORE_CLEANED ? DISK_RECORD_SETTLED : 0,
	};
	struct disk_block block = { .salt = 1 };
	struct store_run run;
	uint64_t bytes = (uint64_t)sectors * DISK_SECTOR;
	int err = pages ? store_append(d->s, stream, 1, bytes, pages, &run) :
			  store_append_tombstone(d->s, 1, stream == STORE_CLEANED, &run);

	assert_int_equal(err, 0);
	if (run.header_offset)
		store_header(d->s, &run, at(d, run.header_offset));
	store_record(d->s, &run, &head, &block, crc, at(d, run.record_offset));
	store_append_done(d->s, &run, true);
	return run;
}

/* A new store on the same bytes. Segment `without` cannot be read (ALL = all can). */
static void reboot(struct disk *d, uint32_t without)
{
	store_close(d->s);
	assert_int_equal(store_open(&d->s, &d->super), 0);
	for (uint32_t i = 0; i < ALL; i++)
		store_recover(d->s, i, d->summary + i * SUMMARY,
			      i == without ? SUMMARY - DISK_SECTOR : SUMMARY);
	store_resume(d->s);
}

/* What a start finds in the segment: so many records, the last with this lsn. */
static void assert_found(struct disk *d, uint32_t segment, uint32_t records, uint64_t lsn)
{
	struct store_view v = { .head = NULL };
	size_t cursor = 0;
	uint32_t n = 0;

	while (!store_next(d->s, segment, d->summary + segment * SUMMARY, SUMMARY, &cursor, &v))
		n++;
	assert_int_equal(n, records);
	assert_int_equal(v.lsn_end, lsn);
}

static void test_it_goes_on_where_it_ended(void **state)
{
	struct disk *d = *state;
	struct store_run run[STORE_STREAMS], next;

	for (uint32_t stream = 0; stream < STORE_STREAMS; stream++)
		run[stream] = append(d, stream, 2, 1);
	reboot(d, ALL);
	for (uint32_t stream = 0; stream < STORE_STREAMS; stream++) {
		next = append(d, stream, 1, 1);
		assert_int_equal(next.segment, run[stream].segment);
		assert_int_equal(next.segment_seq, run[stream].segment_seq);
		assert_int_equal(next.offset, run[stream].offset + run[stream].data_bytes);
		assert_int_equal(next.record_offset, run[stream].record_offset + DISK_SECTOR);
		assert_int_equal(next.header_offset, 0);
		assert_true(next.lsn > run[stream].lsn);
		assert_found(d, next.segment, 2, next.lsn);
	}
}

/* A record that does not verify may have been whole a moment before it was read. */
static void test_nothing_of_its_life_is_written_over(void **state)
{
	struct disk *d = *state;
	struct store_run first = append(d, STORE_DURABLE, 1, 1);
	struct store_run torn = append(d, STORE_DURABLE, 3, 2000); /* a record of two sectors */
	struct store_run next;

	assert_int_equal(torn.record_bytes, 3 * DISK_SECTOR);
	*at(d, torn.record_offset + DISK_SECTOR) ^= 1;
	reboot(d, ALL);
	next = append(d, STORE_DURABLE, 1, 1);
	assert_int_equal(next.segment, first.segment);
	assert_int_equal(next.record_offset, torn.record_offset + torn.record_bytes);
	assert_int_equal(next.offset, torn.offset + torn.data_bytes);
	assert_found(d, next.segment, 2, next.lsn);
	*at(d, torn.record_offset + DISK_SECTOR) ^= 1;
	assert_found(d, next.segment, 3, next.lsn);
}

/* Its head says nothing that can be believed: nobody knows where its data ends. */
static void test_what_says_nothing_ends_its_segment(void **state)
{
	struct disk *d = *state;
	struct store_run first = append(d, STORE_DURABLE, 1, 1);
	struct store_run torn = append(d, STORE_DURABLE, 3, 1);
	struct disk_record *r = (struct disk_record *)at(d, torn.record_offset);

	r->data_bytes = 0;
	reboot(d, ALL);
	assert_true(append(d, STORE_DURABLE, 1, 1).segment != first.segment);
}

/* ... unless runs behind it say where theirs begins. */
static void test_a_hole_ends_nothing(void **state)
{
	struct disk *d = *state;
	struct store_run torn = append(d, STORE_DURABLE, 3, 1);
	struct store_run last = append(d, STORE_DURABLE, 1, 1), next;
	struct disk_record *r = (struct disk_record *)at(d, torn.record_offset);

	r->data_bytes = 0;
	reboot(d, ALL);
	next = append(d, STORE_DURABLE, 1, 1);
	assert_int_equal(next.segment, last.segment);
	assert_int_equal(next.offset, last.offset + DISK_SECTOR);
}

/* D13: what the start did not see is void from then on, should it be read after all. */
static void test_what_was_not_seen_does_not_come_back(void **state)
{
	struct disk *d = *state;
	uint8_t kept[DISK_SECTOR];
	struct store_run first = append(d, STORE_DURABLE, 1, 1), lost, next;

	append(d, STORE_DURABLE, 1, 1);
	lost = append(d, STORE_DURABLE, 9, 1);
	memcpy(kept, at(d, lost.record_offset), DISK_SECTOR);
	memset(at(d, lost.record_offset - DISK_SECTOR), 0, 2 * DISK_SECTOR);
	reboot(d, ALL);
	next = append(d, STORE_DURABLE, 1, 1);
	assert_int_equal(next.segment, first.segment);
	memcpy(at(d, lost.record_offset), kept, DISK_SECTOR);
	assert_found(d, next.segment, 2, next.lsn);
}

/* Its header may not be on the medium, or not all of it was read: it is as it was before. */
static void test_what_is_not_known_is_not_gone_on_with(void **state)
{
	struct disk *d = *state;
	struct store_run first = append(d, STORE_DURABLE, 1, 1), next;

	reboot(d, first.segment);
	next = append(d, STORE_DURABLE, 1, 1);
	assert_true(next.segment != first.segment);
	memset(at(d, next.record_offset), 0, DISK_SECTOR);
	memset(at(d, first.record_offset), 0, DISK_SECTOR);
	reboot(d, ALL);
	next = append(d, STORE_DURABLE, 1, 1);
	assert_true(next.header_offset != 0);
}

/* Puts leave the cleaner its own; tombstones and the cleaner take what there is. */
static void test_who_goes_on_with_what(void **state)
{
	struct disk *d = *state;
	uint32_t whole = (SEGMENT - SUMMARY) / DISK_SECTOR;
	struct store_run moved = append(d, STORE_CLEANED, 1, 1), put, next;

	for (uint32_t i = 1; i + 1 < ALL; i++)
		append(d, STORE_CLEANED, i + 2 < ALL ? whole : 1, 1); /* no free one but one */
	put = append(d, STORE_CLEANED, whole, 1);
	reboot(d, ALL);
	assert_int_equal(store_append(d->s, STORE_DURABLE, 1, DISK_SECTOR, 1, &next), -ENOSPC);
	assert_int_equal(store_append_tombstone(d->s, 1, false, &next), -ENOSPC);
	assert_int_equal(append(d, STORE_CLEANED, 1, 0).log, DISK_LOG_DURABLE);
	assert_true(append(d, STORE_CLEANED, 1, 1).segment != put.segment);
	store_read_begin(d->s, moved.segment); /* the cleaner's victim */
	for (uint32_t i = 0; i < 2 * whole; i++)
		if (!store_append(d->s, STORE_CLEANED, 1, DISK_SECTOR, 1, &next))
			assert_true(next.segment != moved.segment);
	store_read_end(d->s, moved.segment);
	assert_int_equal(store_append(d->s, STORE_CLEANED, 1, DISK_SECTOR, 1, &next), 0);
	assert_int_equal(next.segment, moved.segment);
}

/* No segment is free: it goes on with one of the puts' that they do not need. */
static void test_the_cleaner_takes_what_puts_left(void **state)
{
	struct disk *d = *state;
	uint32_t whole = (SEGMENT - SUMMARY) / DISK_SECTOR;
	struct store_run first = append(d, STORE_DURABLE, 1, 1), last;

	for (uint32_t i = 1; i + 3 < ALL; i++)
		append(d, STORE_DURABLE, whole, 1);
	last = append(d, STORE_DURABLE, 1, 1);
	append(d, STORE_CLEANED, whole, 1);
	append(d, STORE_CLEANED, whole, 1);
	reboot(d, ALL);
	assert_int_equal(append(d, STORE_DURABLE, 1, 1).segment, last.segment);
	assert_int_equal(append(d, STORE_CLEANED, 1, 1).segment, first.segment);
}

#define DISK(test) cmocka_unit_test_setup_teardown(test, disk_open, disk_close)

/* ---- a put that failed ----------------------------------------------------------------------- */

#define ROOM 8u /* blocks */
#define MORE 12u

static uint32_t found(bool there[MORE])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MORE; i++) {
		uint8_t key[ABI_KEY_BYTES];

		host_key(i, key);
		there[i] = index_find(&context()->ix, key) != ABI_SLOT_NONE;
		n += there[i];
	}
	return n;
}

/* There is room for some of its blocks: so many are whole as it is told, also after a crash. */
static void test_a_put_without_room_is_found_as_it_was_told(void **state)
{
	bool before[MORE], after[MORE];
	struct life *l = begin(1);

	(void)state;
	context()->plan.quota[ABI_TIER_NVME] = ROOM * context()->spec.geometry.block_bytes;
	assert_int_equal(one_host_put(0, MORE, ABI_SQE_DURABLE), -ENOSPC);
	assert_int_equal(host.answer.value, ROOM);
	assert_int_equal(found(before), ROOM);
	one_host_restart(false);
	assert_int_equal(found(after), ROOM);
	assert_memory_equal(after, before, sizeof(before));
	host_audit(&host);
	end(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_put_without_room_is_found_as_it_was_told),
		cmocka_unit_test(test_a_full_store_survives_crashes),
		cmocka_unit_test(test_the_deleted_take_no_slot_from_the_durable),
		cmocka_unit_test(test_the_cached_make_way_for_the_durable),
		cmocka_unit_test(test_what_others_begin_with_outlives_a_restart),
		DISK(test_it_goes_on_where_it_ended),
		DISK(test_nothing_of_its_life_is_written_over),
		DISK(test_what_says_nothing_ends_its_segment),
		DISK(test_a_hole_ends_nothing),
		DISK(test_what_was_not_seen_does_not_come_back),
		DISK(test_what_is_not_known_is_not_gone_on_with),
		DISK(test_who_goes_on_with_what),
		DISK(test_the_cleaner_takes_what_puts_left),
	};

	return cmocka_run_group_tests(tests, one_host, NULL);
}
