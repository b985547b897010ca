/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against a model that remembers every record ever written: whatever a crash, a rotten
 * disk or a foreign one leaves behind, recovery accepts only records of a segment's present life,
 * byte for byte as they were written, and all of those that are whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/core/unit/store_priv.h"

#define KIB 1024ull
#define STORE_ID 0x5eedf00dull
#define SUMMARY (32 * KIB)
#define SEGMENT (128 * KIB)
#define SEGMENTS 8u
#define FIRST (64 * KIB)
#define RECORDS_MAX 4096u
#define PENDING_MAX 6u

static uint32_t below(struct rng *rng, uint32_t n)
{
	return (uint32_t)rng_below(rng, n);
}

/* ---- the model ------------------------------------------------------------------------------ */

struct entry {
	uint32_t segment;
	bool done;     /* append_done(ok): must be found again */
	bool accepted; /* by the recovery under check */
	uint64_t seq;
	uint64_t live; /* bytes that the store counts for it now */
	uint8_t *bytes;
	size_t size;
};

struct pending {
	struct store_run run;
	uint32_t entry;
	bool header_written;
};

struct world {
	struct rng rng;
	struct disk_super super;
	struct store *s;
	uint8_t *disk; /* the segments' summaries; data is not the store's business */
	uint64_t header_seq[SEGMENTS];
	struct entry entry[RECORDS_MAX]; /* index = order of append */
	uint32_t entries;
	struct pending pending[PENDING_MAX];
	uint32_t pendings;
	uint64_t lsn_max, seq_max;
};

static uint8_t *summary_at(uint8_t *disk, uint32_t segment)
{
	return disk + segment * SUMMARY;
}

/* Where an offset in the store lies in our disk of summaries. */
static uint8_t *on_disk(struct world *w, uint64_t offset)
{
	uint64_t in = (offset - FIRST) % SEGMENT;

	assert_true(in < SUMMARY);
	return summary_at(w->disk, (uint32_t)((offset - FIRST) / SEGMENT)) + in;
}

static void fill_super(struct disk_super *super)
{
	memset(super, 0, sizeof(*super));
	super->store_id = STORE_ID;
	super->catalog_offset = 8 * KIB;
	super->catalog_bytes = 16 * KIB;
	super->segment_offset = FIRST;
	super->segment_bytes = SEGMENT;
	super->segment_count = SEGMENTS;
	super->summary_bytes = SUMMARY;
}

static struct world *world_make(uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->rng.state = seed;
	w->disk = aligned_alloc(4096, SEGMENTS * SUMMARY);
	assert_non_null(w->disk);
	for (size_t i = 0; i < SEGMENTS * SUMMARY; i++)
		w->disk[i] = seed % 2 ? 0 : (uint8_t)rng_next(&w->rng);
	fill_super(&w->super);
	assert_int_equal(store_open(&w->s, &w->super), 0);
	return w;
}

static void world_free(struct world *w)
{
	store_close(w->s);
	for (uint32_t i = 0; i < w->entries; i++)
		free(w->entry[i].bytes);
	free(w->disk);
	free(w);
}

/* ---- appending ------------------------------------------------------------------------------ */

static void encode(struct world *w, const struct store *s, struct store_run *run, uint32_t pages,
		   uint8_t *buf)
{
	struct disk_record head = {
		.type = run->data_bytes ? DISK_RECORD_RUN : DISK_RECORD_TOMBSTONE,
		.context_uid = 1 + below(&w->rng, 5),
		.epoch = 1,
		.block_count = run->blocks,
		.pages_per_block = pages,
		.parts = 1,
		.depth = below(&w->rng, 1000),
	};
	struct disk_block block[STORE_TOMBSTONE_KEYS_MAX];
	uint32_t *crc = malloc((run->blocks * pages + 1) * sizeof(*crc));

	assert_non_null(crc);
	memset(block, 0, sizeof(block));
	for (uint32_t i = 0; i < run->blocks; i++) {
		block[i].salt = rng_next(&w->rng);
		for (uint32_t k = 0; k < ABI_KEY_BYTES; k++)
			block[i].key[k] = (uint8_t)rng_next(&w->rng);
	}
	for (uint32_t i = 0; i < run->blocks * pages; i++)
		crc[i] = (uint32_t)rng_next(&w->rng);
	store_record(s, run, &head, block, crc, buf);
	free(crc);
}

static void check_place(const struct world *w, const struct store_run *run)
{
	uint64_t begin = FIRST + run->segment * SEGMENT;

	assert_true(run->segment < SEGMENTS && run->blocks > 0);
	assert_true(run->record_offset >= begin + DISK_SECTOR);
	assert_true(run->record_offset + run->record_bytes <= begin + SUMMARY);
	assert_true(run->offset >= begin + SUMMARY);
	assert_true(run->offset + run->data_bytes <= begin + SEGMENT);
	assert_true(run->lsn > w->lsn_max && run->segment_seq);
	assert_true(run->header_offset == 0 || run->header_offset == begin);
}

static void op_append(struct world *w)
{
	uint64_t block_bytes = DISK_SECTOR * (1 + below(&w->rng, 4));
	uint32_t pages = 1 + below(&w->rng, below(&w->rng, 4) ? 4 : 1500);
	struct store_run run;
	struct entry *e = &w->entry[w->entries];
	int err;

	if (w->pendings == PENDING_MAX || w->entries == RECORDS_MAX)
		return;
	if (below(&w->rng, 8) == 0) {
		pages = 0;
		err = store_append_tombstone(w->s, 1 + below(&w->rng, 100), false, &run);
	} else {
		err = store_append(w->s, below(&w->rng, 2), 1 + below(&w->rng, 40), block_bytes,
				   pages, &run);
	}
	if (err) {
		assert_int_equal(err, -ENOSPC);
		return;
	}
	check_place(w, &run);
	w->lsn_max = run.lsn;
	if (run.segment_seq > w->seq_max)
		w->seq_max = run.segment_seq;
	e->segment = run.segment;
	e->seq = run.segment_seq;
	e->size = run.record_bytes;
	e->bytes = malloc(e->size);
	assert_non_null(e->bytes);
	encode(w, w->s, &run, pages, e->bytes);
	w->pending[w->pendings++] = (struct pending){ .run = run, .entry = w->entries++ };
}

static void write_header(struct world *w, struct pending *p)
{
	if (p->run.header_offset)
		store_header(w->s, &p->run, on_disk(w, p->run.header_offset));
	if (p->run.header_offset)
		w->header_seq[p->run.segment] = p->run.segment_seq;
	p->header_written = true;
}

/* One step of a random run under way: its header, or its record and the end. */
static void op_step(struct world *w)
{
	struct pending *p = &w->pending[below(&w->rng, w->pendings ? w->pendings : 1)];
	struct entry *e = &w->entry[p->entry];
	bool ok = below(&w->rng, 10) != 0;

	if (!w->pendings)
		return;
	if (!p->header_written) {
		write_header(w, p);
		return;
	}
	if (ok || below(&w->rng, 2))
		memcpy(on_disk(w, p->run.record_offset), e->bytes, e->size);
	store_append_done(w->s, &p->run, ok);
	e->done = ok;
	if (ok) {
		e->live = p->run.data_bytes;
		store_live(w->s, e->segment, (int64_t)e->live);
	}
	*p = w->pending[--w->pendings];
}

static void drop_live(struct world *w, uint32_t segment)
{
	for (uint32_t i = 0; i < w->entries; i++) {
		struct entry *e = &w->entry[i];

		if (e->segment != segment || !e->live)
			continue;
		store_live(w->s, segment, -(int64_t)e->live);
		e->live = 0;
	}
	assert_int_equal(store_segment_live(w->s, segment), 0);
}

static void op_reclaim(struct world *w)
{
	int64_t segment = below(&w->rng, 2) ? store_dead(w->s) :
					       store_oldest(w->s, below(&w->rng, 2));

	if (segment < 0)
		return;
	store_read_begin(w->s, (uint32_t)segment);
	drop_live(w, (uint32_t)segment);
	assert_true(store_dead(w->s) != segment);
	store_read_end(w->s, (uint32_t)segment);
	store_segment_free(w->s, (uint32_t)segment);
}

/* ---- recovery under check ------------------------------------------------------------------- */

static struct entry *find_entry(struct world *w, const struct store_view *v)
{
	for (uint32_t i = 0; i < w->entries; i++) {
		struct entry *e = &w->entry[i];

		if (e->segment == v->segment && e->size == v->head->bytes &&
		    !memcmp(e->bytes, v->head, e->size))
			return e;
	}
	return NULL;
}

static void check_view(const struct store_view *v)
{
	const uint8_t *end = (const uint8_t *)v->head + v->head->bytes;
	uint64_t begin = FIRST + v->segment * SEGMENT;

	assert_ptr_equal(v->block, v->head + 1);
	assert_true((const uint8_t *)(v->crc + disk_there_below(v->head, v->head->block_count) *
						       v->head->pages_per_block) <= end);
	if (v->head->type == DISK_RECORD_RUN)
		assert_int_equal(v->data_offset, begin + v->head->data_offset);
	else
		assert_int_equal(v->data_offset, 0);
}

/* Recover `disk` into a new store and mark what was accepted: nothing that was never written, and
 * nothing of another life than the header's. */
static struct store *recover(struct world *w, uint8_t *disk, const size_t *bytes)
{
	struct store *s;

	assert_int_equal(store_open(&s, &w->super), 0);
	for (uint32_t i = 0; i < w->entries; i++)
		w->entry[i].accepted = false;
	for (uint32_t g = 0; g < SEGMENTS; g++) {
		const struct disk_segment *h = (const void *)summary_at(disk, g);
		int expected = store_recover(s, g, h, bytes[g]), found = 0, err;
		struct store_view v;
		size_t cursor = 0;

		while ((err = store_next(s, g, h, bytes[g], &cursor, &v)) == 0) {
			struct entry *e = find_entry(w, &v);

			check_view(&v);
			assert_non_null(e);
			assert_int_equal(e->seq, h->sequence);
			assert_false(e->accepted);
			e->accepted = true;
			found++;
		}
		assert_true(err == -ENOENT || err == -EBADMSG);
		assert_int_equal(found, expected < 0 ? 0 : expected);
		assert_int_equal(store_next(s, g, h, bytes[g], &cursor, &v), err);
	}
	return s;
}

/* Is the record where it was put, in a segment that is still in the same life? */
static bool is_whole(const struct world *w, const struct entry *e, const uint8_t *disk,
		     const size_t *bytes)
{
	const uint8_t *base = disk + e->segment * SUMMARY;

	if (w->header_seq[e->segment] != e->seq || !bytes[e->segment] ||
	    memcmp(base, w->disk + e->segment * SUMMARY, DISK_SECTOR) != 0)
		return false;
	for (size_t at = DISK_SECTOR; at + e->size <= bytes[e->segment]; at += DISK_SECTOR)
		if (!memcmp(base + at, e->bytes, e->size))
			return true;
	return false;
}

static void check_complete(const struct world *w, const uint8_t *disk, const size_t *bytes)
{
	for (uint32_t i = 0; i < w->entries; i++)
		if (w->entry[i].done && is_whole(w, &w->entry[i], disk, bytes))
			assert_true(w->entry[i].accepted);
}

static bool is_on_disk(const struct world *w, const struct entry *e)
{
	const uint8_t *base = w->disk + e->segment * SUMMARY;

	for (size_t at = DISK_SECTOR; at + e->size <= SUMMARY; at += DISK_SECTOR)
		if (!memcmp(base + at, e->bytes, e->size))
			return true;
	return false;
}

/* Numbers of which a trace is left, of whatever life, are never given out again; the others were
 * never used as far as anybody can tell. */
static void forget_lost_numbers(struct world *w)
{
	w->lsn_max = w->seq_max = 0;
	for (uint32_t i = 0; i < w->entries; i++) {
		const struct disk_record *r = (const void *)w->entry[i].bytes;

		if (!is_on_disk(w, &w->entry[i]))
			continue;
		w->lsn_max = r->lsn > w->lsn_max ? r->lsn : w->lsn_max;
		w->seq_max = r->segment_seq > w->seq_max ? r->segment_seq : w->seq_max;
	}
	for (uint32_t g = 0; g < SEGMENTS; g++)
		w->seq_max = w->header_seq[g] > w->seq_max ? w->header_seq[g] : w->seq_max;
}

static void check_numbers(const struct world *w, struct store *s)
{
	struct store_run run;
	int err = store_append(s, DISK_LOG_CACHE, 1, DISK_SECTOR, 1, &run);

	if (err == -ENOSPC)
		return; /* all segments taken; the next test frees some */
	assert_int_equal(err, 0);
	assert_true(run.lsn > w->lsn_max);
	assert_true(run.segment_seq > w->seq_max);
}

/* ---- damage --------------------------------------------------------------------------------- */

/* A true record of another store, or of another life of this one, somewhere in a summary. */
static void plant(struct world *w, uint8_t *disk)
{
	const struct entry *e = &w->entry[below(&w->rng, w->entries ? w->entries : 1)];
	uint32_t segment = below(&w->rng, SEGMENTS);
	size_t at = DISK_SECTOR * (1 + below(&w->rng, SUMMARY / DISK_SECTOR - 1));
	struct disk_record *r;

	if (!w->entries || at + e->size > SUMMARY || e->seq == w->header_seq[segment])
		return;
	r = (struct disk_record *)(summary_at(disk, segment) + at);
	memcpy(r, e->bytes, e->size);
	if (below(&w->rng, 2)) {
		r->store_id ^= 1;
		r->segment_seq = w->header_seq[segment];
		r->crc = store_crc(r, e->size, offsetof(struct disk_record, crc));
	}
}

static void hurt(struct world *w, uint8_t *disk, size_t *bytes)
{
	uint32_t flips = below(&w->rng, 20);

	for (uint32_t i = 0; i < flips; i++) {
		/* Half of them in the first bytes of sectors, where the numbers are. */
		size_t at = below(&w->rng, SEGMENTS * SUMMARY);

		if (below(&w->rng, 2))
			at = at / DISK_SECTOR * DISK_SECTOR + at % 128;
		disk[at] ^= (uint8_t)(1u << below(&w->rng, 8));
	}
	for (uint32_t i = below(&w->rng, 4); i > 0; i--)
		plant(w, disk);
	if (below(&w->rng, 2))
		bytes[below(&w->rng, SEGMENTS)] = below(&w->rng, SUMMARY + 1);
}

static void check_damaged(struct world *w)
{
	uint8_t *disk = aligned_alloc(4096, SEGMENTS * SUMMARY);
	size_t bytes[SEGMENTS];

	assert_non_null(disk);
	memcpy(disk, w->disk, SEGMENTS * SUMMARY);
	for (uint32_t g = 0; g < SEGMENTS; g++)
		bytes[g] = SUMMARY;
	hurt(w, disk, bytes);
	store_close(recover(w, disk, bytes));
	check_complete(w, disk, bytes);
	free(disk);
}

/* Power fails: of each run under way, any prefix of sectors of what was next is on disk. */
static void op_crash(struct world *w)
{
	size_t bytes[SEGMENTS];

	for (uint32_t i = 0; i < w->pendings; i++) {
		struct pending *p = &w->pending[i];
		size_t part = below(&w->rng, (uint32_t)w->entry[p->entry].size + 1);

		if (!p->header_written && below(&w->rng, 2))
			write_header(w, p);
		else if (p->header_written)
			memcpy(on_disk(w, p->run.record_offset), w->entry[p->entry].bytes, part);
	}
	w->pendings = 0;
	for (int i = 0; i < 4; i++)
		check_damaged(w);
	for (uint32_t g = 0; g < SEGMENTS; g++)
		bytes[g] = SUMMARY;
	store_close(w->s);
	w->s = recover(w, w->disk, bytes);
	check_complete(w, w->disk, bytes);
	forget_lost_numbers(w);
	for (uint32_t i = 0; i < w->entries; i++) {
		struct entry *e = &w->entry[i];
		const struct disk_record *r = (const void *)e->bytes;

		/* What was freed but not overwritten is there again; the core drops it anew. */
		e->done = e->done && e->accepted;
		e->live = e->accepted ? r->data_bytes : 0;
		if (e->accepted)
			store_live(w->s, e->segment, (int64_t)e->live);
	}
}

static void test_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct world *w = world_make(seed);

		for (int step = 0; step < 1500; step++) {
			uint32_t what = below(&w->rng, 200);

			if (what < 80)
				op_append(w);
			else if (what < 185)
				op_step(w);
			else if (what < 198)
				op_reclaim(w);
			else
				op_crash(w);
		}
		op_crash(w);
		check_numbers(w, w->s);
		world_free(w);
	}
}

/* ---- particular cases ----------------------------------------------------------------------- */

static int make_fixture(void **state)
{
	*state = world_make(1);
	return 0;
}

static int free_fixture(void **state)
{
	world_free(*state);
	return 0;
}

/* Append one run (or tombstone) and carry it through to the disk. */
static struct store_run put(struct world *w, uint32_t log, uint32_t blocks, bool tombstone)
{
	struct entry *e = &w->entry[w->entries];
	struct pending p = { .entry = w->entries++ };
	int err = tombstone ? store_append_tombstone(w->s, blocks, false, &p.run) :
			      store_append(w->s, log, blocks, DISK_SECTOR, 1, &p.run);

	assert_int_equal(err, 0);
	e->segment = p.run.segment;
	e->seq = p.run.segment_seq;
	e->size = p.run.record_bytes;
	e->bytes = malloc(e->size);
	assert_non_null(e->bytes);
	encode(w, w->s, &p.run, tombstone ? 0 : 1, e->bytes);
	write_header(w, &p);
	memcpy(on_disk(w, p.run.record_offset), e->bytes, e->size);
	store_append_done(w->s, &p.run, true);
	return p.run;
}

/* Fill the log's segment until another one is opened; returns the first run there. */
static struct store_run next_segment(struct world *w, uint32_t log)
{
	uint32_t first = w->s->open[log];
	struct store_run run;

	do
		run = put(w, log, 24, false);
	while (run.segment == first);
	return run;
}

static void test_fill_and_full(void **state)
{
	struct world *w = *state;
	struct store_run run;
	struct store_stats stats;
	int err;

	assert_int_equal(store_append(w->s, 0, 1, SEGMENT, 1, &run), -EFBIG);
	assert_int_equal(store_append(w->s, 0, 1, DISK_SECTOR, 1 + SUMMARY / 4, &run), -EFBIG);
	/* 24 blocks of a sector fill the data part (96 KiB) of a segment. */
	run = put(w, DISK_LOG_CACHE, 100, false);
	assert_int_equal(run.blocks, 24);
	assert_int_equal(run.header_offset, FIRST + run.segment * SEGMENT);
	run = put(w, DISK_LOG_CACHE, 20, false);
	assert_int_equal(run.blocks, 20);
	run = put(w, DISK_LOG_CACHE, 20, false);
	assert_int_equal(run.blocks, 4); /* the rest of the segment */
	assert_int_equal(run.header_offset, 0);
	do {
		err = store_append(w->s, DISK_LOG_CACHE, 32, DISK_SECTOR, 1, &run);
		if (!err)
			store_append_done(w->s, &run, false);
	} while (!err);
	assert_int_equal(err, -ENOSPC);
	store_stats(w->s, &stats);
	assert_int_equal(stats.segments, SEGMENTS);
	assert_int_equal(stats.segments_free, 0);
	assert_int_equal(stats.segments_open, 1);
	assert_int_equal(stats.live, 0);
	assert_int_equal(stats.capacity, SEGMENTS * (SEGMENT - SUMMARY));
	assert_int_equal(stats.appended_records, 3);
	assert_int_equal(stats.appended_data, 48 * DISK_SECTOR);
	assert_int_equal(store_segment_of(w->s, run.offset), run.segment);
}

/* The header goes with every run until one of them is done. */
static void test_header_until_done(void **state)
{
	struct world *w = *state;
	struct store_run a, b, c;

	assert_int_equal(store_append(w->s, 0, 1, DISK_SECTOR, 1, &a), 0);
	assert_int_equal(store_append(w->s, 0, 1, DISK_SECTOR, 1, &b), 0);
	assert_true(a.header_offset && b.header_offset == a.header_offset);
	store_append_done(w->s, &a, false);
	assert_int_equal(store_append(w->s, 0, 1, DISK_SECTOR, 1, &c), 0);
	assert_int_equal(c.header_offset, a.header_offset);
	store_append_done(w->s, &b, true);
	store_append_done(w->s, &c, true);
	assert_int_equal(store_append(w->s, 0, 1, DISK_SECTOR, 1, &a), 0);
	assert_int_equal(a.header_offset, 0);
	store_append_done(w->s, &a, true);
}

static void check_dead_after_recovery(struct world *w, uint32_t segment, bool dead)
{
	size_t bytes[SEGMENTS];
	struct store *s;
	bool found = false;
	int64_t i;

	for (uint32_t g = 0; g < SEGMENTS; g++)
		bytes[g] = SUMMARY;
	s = recover(w, w->disk, bytes);
	/* No bytes were counted live: all segments but those with needed tombstones are dead. */
	for (uint32_t g = 0; g < SEGMENTS; g++)
		if (s->segment[g].state == STORE_SEALED && g != segment)
			store_live(s, g, 1);
	while ((i = store_dead(s)) >= 0) {
		found = found || i == segment;
		store_segment_free(s, (uint32_t)i);
	}
	assert_int_equal(found, dead);
	store_close(s);
}

/* D8: a tombstone outlives every older record on disk, also those of free segments, and also in a
 * segment that was opened after the tombstone's. */
static void test_tombstones_are_kept(void **state)
{
	struct world *w = *state;
	struct store_run d = put(w, DISK_LOG_DURABLE, 1, false);
	struct store_run c = put(w, DISK_LOG_CACHE, 1, false);
	struct store_run t = put(w, 0, 3, true), run;

	assert_true(c.segment_seq > d.segment_seq && t.segment == d.segment);
	assert_int_equal(t.log, DISK_LOG_DURABLE);
	next_segment(w, DISK_LOG_DURABLE);
	/* The tombstone's segment is sealed and empty, but the removed block is still in c's. */
	assert_int_equal(store_dead(w->s), -ENOENT);
	check_dead_after_recovery(w, d.segment, false);
	next_segment(w, DISK_LOG_CACHE);
	assert_int_equal(store_dead(w->s), c.segment);
	store_segment_free(w->s, c.segment);
	assert_int_equal(store_dead(w->s), -ENOENT); /* free, yet its records are on disk */
	/* The oldest life is the first to be overwritten; then the tombstone is not needed. */
	assert_int_equal(next_segment(w, DISK_LOG_CACHE).segment, c.segment);
	assert_int_equal(store_dead(w->s), d.segment);
	check_dead_after_recovery(w, d.segment, true);
	store_segment_free(w->s, d.segment);
	run = next_segment(w, DISK_LOG_DURABLE);
	assert_int_equal(run.segment, d.segment);
	assert_true(run.segment_seq > c.segment_seq);
}

/* Of a segment's tombstones each must be needed no more: the last one, too. */
static void test_the_newest_tombstone_counts(void **state)
{
	struct world *w = *state;
	struct store_run first = put(w, 0, 3, true), c = put(w, DISK_LOG_CACHE, 1, false);
	struct store_run second = put(w, 0, 3, true);

	assert_int_equal(first.segment, second.segment);
	assert_true(first.lsn < c.lsn && c.lsn < second.lsn);
	next_segment(w, DISK_LOG_DURABLE);
	assert_int_equal(store_dead(w->s), -ENOENT); /* c may be what the second one removed */
	check_dead_after_recovery(w, first.segment, false);
}

/* D2: the records of an earlier life lie right behind the new life's, untouched. */
static void test_stale_life_is_void(void **state)
{
	struct world *w = *state;
	struct store_run run = put(w, DISK_LOG_CACHE, 1, false);
	uint32_t segment = run.segment;
	struct store_view v;
	size_t cursor = 0, bytes[SEGMENTS];
	struct store *s;

	for (int i = 0; i < 5; i++)
		put(w, DISK_LOG_CACHE, 1, false);
	next_segment(w, DISK_LOG_CACHE);
	store_segment_free(w->s, segment);
	run = next_segment(w, DISK_LOG_CACHE);
	assert_int_equal(run.segment, segment);
	for (uint32_t g = 0; g < SEGMENTS; g++)
		bytes[g] = SUMMARY;
	s = recover(w, w->disk, bytes);
	assert_int_equal(store_next(s, segment, summary_at(w->disk, segment), SUMMARY, &cursor, &v),
			 0);
	assert_int_equal(v.head->lsn, run.lsn);
	assert_int_equal(store_next(s, segment, summary_at(w->disk, segment), SUMMARY, &cursor, &v),
			 -ENOENT);
	store_close(s);
}

/* A run that failed leaves a hole; what was done behind it is found, and the hole is told. */
static void test_hole_hides_nothing(void **state)
{
	struct world *w = *state;
	struct store_run a = put(w, DISK_LOG_CACHE, 1, false), b = put(w, DISK_LOG_CACHE, 1, false);
	struct store_view v;
	size_t cursor = 0;
	struct store *s;

	on_disk(w, a.record_offset)[200] ^= 4;
	assert_int_equal(store_open(&s, &w->super), 0);
	assert_int_equal(store_recover(s, a.segment, summary_at(w->disk, a.segment), SUMMARY), 1);
	assert_int_equal(store_next(s, a.segment, summary_at(w->disk, a.segment), SUMMARY, &cursor,
				    &v), 0);
	assert_int_equal(v.head->lsn, b.lsn);
	assert_int_equal(store_next(s, a.segment, summary_at(w->disk, a.segment), SUMMARY, &cursor,
				    &v), -EBADMSG);
	store_close(s);
}

/* The CRC table of a torn record is shaped like a record by whoever chose the pages' bytes. */
static void test_forged_table_is_no_record(void **state)
{
	struct world *w = *state;
	struct store_run run = put(w, DISK_LOG_CACHE, 1, false);
	uint8_t *outer = on_disk(w, run.record_offset);
	struct disk_record *r = (struct disk_record *)outer;
	struct store *s;

	memcpy(outer + DISK_SECTOR, outer, DISK_SECTOR);
	memset(outer + 2 * DISK_SECTOR, 0, DISK_SECTOR);
	r->pages_per_block = 2500;
	r->bytes = 3 * DISK_SECTOR;
	r->crc = store_crc(r, r->bytes, offsetof(struct disk_record, crc));
	for (int torn = 0; torn < 2; torn++) {
		outer[300] ^= torn;
		assert_int_equal(store_open(&s, &w->super), 0);
		assert_int_equal(store_recover(s, run.segment, summary_at(w->disk, run.segment),
					       SUMMARY), !torn);
		store_close(s);
	}
}

/* D10: whoever may write the file says that two runs lie in the same place, checksums and all. */
static void test_runs_in_one_place_are_not_both_taken(void **state)
{
	struct world *w = *state;
	struct store_run a = put(w, DISK_LOG_CACHE, 1, false), b = put(w, DISK_LOG_CACHE, 1, false);
	struct disk_record *r = (struct disk_record *)on_disk(w, b.record_offset);
	struct store_view v;
	size_t cursor = 0;
	struct store *s;

	assert_int_equal(a.segment, b.segment);
	r->data_offset -= DISK_SECTOR;
	r->crc = store_crc(r, r->bytes, offsetof(struct disk_record, crc));
	assert_int_equal(store_open(&s, &w->super), 0);
	assert_int_equal(store_recover(s, a.segment, summary_at(w->disk, a.segment), SUMMARY), 1);
	assert_int_equal(store_next(s, a.segment, summary_at(w->disk, a.segment), SUMMARY, &cursor,
				    &v), 0);
	assert_int_equal(v.head->lsn, a.lsn);
	assert_int_equal(store_next(s, a.segment, summary_at(w->disk, a.segment), SUMMARY, &cursor,
				    &v), -EBADMSG);
	store_close(s);
}

/* The header of the newest life rots: its number is still never given out again. */
static void test_numbers_survive_a_rotten_header(void **state)
{
	struct world *w = *state;
	struct store_run run = put(w, DISK_LOG_CACHE, 1, false), next;
	struct store *s;

	w->lsn_max = run.lsn;
	w->seq_max = run.segment_seq;
	summary_at(w->disk, run.segment)[24] ^= 1;
	assert_int_equal(store_open(&s, &w->super), 0);
	assert_int_equal(store_recover(s, run.segment, summary_at(w->disk, run.segment), SUMMARY),
			 -EBADMSG);
	check_numbers(w, s);
	store_close(s);
	/* A number that would wrap is nobody's. */
	summary_at(w->disk, run.segment)[24] ^= 1;
	/* Nor when the header is all that is left. */
	assert_int_equal(store_open(&s, &w->super), 0);
	assert_int_equal(store_recover(s, run.segment, summary_at(w->disk, run.segment),
				       DISK_SECTOR), 0);
	w->lsn_max = 0;
	check_numbers(w, s);
	store_close(s);
	next = run;
	next.segment_seq = UINT64_MAX;
	store_header(w->s, &next, summary_at(w->disk, run.segment));
	assert_int_equal(store_open(&s, &w->super), 0);
	assert_int_equal(store_recover(s, run.segment, summary_at(w->disk, run.segment), SUMMARY),
			 -EBADMSG);
	assert_int_equal(store_append(s, 0, 1, DISK_SECTOR, 1, &next), 0);
	assert_true(next.segment_seq < STORE_NUMBER_MAX);
	store_close(s);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_fixture, free_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		CASE(test_fill_and_full),
		CASE(test_header_until_done),
		CASE(test_tombstones_are_kept),
		CASE(test_the_newest_tombstone_counts),
		CASE(test_stale_life_is_void),
		CASE(test_hole_hides_nothing),
		CASE(test_forged_table_is_no_record),
		CASE(test_runs_in_one_place_are_not_both_taken),
		CASE(test_numbers_survive_a_rotten_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
