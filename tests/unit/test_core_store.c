/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against a model that remembers every record ever written: whatever a crash, a rotten
 * disk or a foreign one leaves behind, recovery accepts only records of a segment's present life,
 * byte for byte as they were written, and all of those that are whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "tests/lib/unit.h"
#include "tierd/core/store_priv.h"

#define KIB 1024ull
#define STORE_ID 0x5eedf00dull
#define SUMMARY (32 * KIB)
#define SEGMENT (128 * KIB)
#define SEGMENTS 8u
#define FIRST (64 * KIB)
#define RECORDS_MAX 4096u
#define PENDING_MAX 6u

/* ---- a small deterministic source of chance ------------------------------------------------- */

static uint64_t rnd(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(rnd(seed) >> 16) % n;
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
	uint64_t seed;
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
	w->seed = seed * 0x9e3779b97f4a7c15ull | 1;
	w->disk = aligned_alloc(4096, SEGMENTS * SUMMARY);
	assert_non_null(w->disk);
	for (size_t i = 0; i < SEGMENTS * SUMMARY; i++)
		w->disk[i] = seed % 2 ? 0 : (uint8_t)rnd(&w->seed);
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
		.context_uid = 1 + below(&w->seed, 5),
		.epoch = 1,
		.block_count = run->blocks,
		.pages_per_block = pages,
		.parts = 1,
		.depth = below(&w->seed, 1000),
	};
	struct disk_block block[STORE_TOMBSTONE_KEYS_MAX];
	uint32_t *crc = malloc((run->blocks * pages + 1) * sizeof(*crc));

	assert_non_null(crc);
	memset(block, 0, sizeof(block));
	for (uint32_t i = 0; i < run->blocks; i++) {
		block[i].salt = rnd(&w->seed);
		for (uint32_t k = 0; k < ABI_KEY_BYTES; k++)
			block[i].key[k] = (uint8_t)rnd(&w->seed);
	}
	for (uint32_t i = 0; i < run->blocks * pages; i++)
		crc[i] = (uint32_t)rnd(&w->seed);
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
	uint64_t block_bytes = DISK_SECTOR * (1 + below(&w->seed, 4));
	uint32_t pages = 1 + below(&w->seed, below(&w->seed, 4) ? 4 : 1500);
	struct store_run run;
	struct entry *e = &w->entry[w->entries];
	int err;

	if (w->pendings == PENDING_MAX || w->entries == RECORDS_MAX)
		return;
	if (below(&w->seed, 8) == 0) {
		pages = 0;
		err = store_append_tombstone(w->s, 1 + below(&w->seed, 100), &run);
	} else {
		err = store_append(w->s, below(&w->seed, 2), 1 + below(&w->seed, 40), block_bytes,
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
	struct pending *p = &w->pending[below(&w->seed, w->pendings ? w->pendings : 1)];
	struct entry *e = &w->entry[p->entry];
	bool ok = below(&w->seed, 10) != 0;

	if (!w->pendings)
		return;
	if (!p->header_written) {
		write_header(w, p);
		return;
	}
	if (ok || below(&w->seed, 2))
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
	int64_t segment = below(&w->seed, 2) ? store_dead(w->s) :
					       store_oldest(w->s, below(&w->seed, 2));

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
	assert_true((const uint8_t *)(v->crc + v->head->block_count * v->head->pages_per_block) <=
		    end);
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
	const struct entry *e = &w->entry[below(&w->seed, w->entries ? w->entries : 1)];
	uint32_t segment = below(&w->seed, SEGMENTS);
	size_t at = DISK_SECTOR * (1 + below(&w->seed, SUMMARY / DISK_SECTOR - 1));
	struct disk_record *r;

	if (!w->entries || at + e->size > SUMMARY || e->seq == w->header_seq[segment])
		return;
	r = (struct disk_record *)(summary_at(disk, segment) + at);
	memcpy(r, e->bytes, e->size);
	if (below(&w->seed, 2)) {
		r->store_id ^= 1;
		r->segment_seq = w->header_seq[segment];
		r->crc = store_crc(r, e->size, offsetof(struct disk_record, crc));
	}
}

static void hurt(struct world *w, uint8_t *disk, size_t *bytes)
{
	uint32_t flips = below(&w->seed, 20);

	for (uint32_t i = 0; i < flips; i++) {
		/* Half of them in the first bytes of sectors, where the numbers are. */
		size_t at = below(&w->seed, SEGMENTS * SUMMARY);

		if (below(&w->seed, 2))
			at = at / DISK_SECTOR * DISK_SECTOR + at % 128;
		disk[at] ^= (uint8_t)(1u << below(&w->seed, 8));
	}
	for (uint32_t i = below(&w->seed, 4); i > 0; i--)
		plant(w, disk);
	if (below(&w->seed, 2))
		bytes[below(&w->seed, SEGMENTS)] = below(&w->seed, SUMMARY + 1);
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
		size_t part = below(&w->seed, (uint32_t)w->entry[p->entry].size + 1);

		if (!p->header_written && below(&w->seed, 2))
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
			uint32_t what = below(&w->seed, 200);

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
	int err = tombstone ? store_append_tombstone(w->s, blocks, &p.run) :
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

/* ---- hostile bytes with a good CRC ---------------------------------------------------------- */

static uint64_t nasty(uint64_t *seed)
{
	static const uint64_t value[] = { 0, 1, 31, 32, 33, 65535, 65536, 65537, 0x7fffffff,
		0x80000000, 0xffffffff, SEGMENT, SEGMENT - 1, SUMMARY, SUMMARY - DISK_SECTOR,
		1ull << 62, INT64_MAX, UINT64_MAX, UINT64_MAX - 4095 };

	return below(seed, 3) ? value[below(seed, COUNT(value))] : rnd(seed);
}

static void mutate_record(struct world *w, uint8_t *buf, size_t bytes)
{
	/* Sector-aligned place, 4-byte field, then a CRC that fits if it can be computed. */
	size_t at = DISK_SECTOR * (1 + below(&w->seed, 5));
	struct disk_record *r = (struct disk_record *)(buf + at);
	uint32_t field = 4 * below(&w->seed, 26);
	uint64_t value = nasty(&w->seed);

	if (at + DISK_SECTOR > bytes)
		return;
	memcpy((uint8_t *)r + field, &value, below(&w->seed, 2) ? 4 : 8);
	if (below(&w->seed, 4) == 0) {
		r->pages_per_block = 1 + below(&w->seed, 4096);
		r->bytes = (uint32_t)store_record_bytes(r->block_count % 64, r->pages_per_block);
	}
	if (r->bytes > offsetof(struct disk_record, crc) + 4 && r->bytes <= bytes - at)
		r->crc = store_crc(r, r->bytes, offsetof(struct disk_record, crc));
}

/* Touch everything that a view promises: the sanitizer watches the ends. */
static uint64_t touch(const struct store_view *v)
{
	uint64_t sum = v->head->lsn + v->data_offset;

	for (uint32_t i = 0; i < v->head->block_count; i++)
		sum += v->block[i].salt + v->block[i].key[ABI_KEY_BYTES - 1];
	for (uint32_t i = 0; i < v->head->block_count * v->head->pages_per_block; i++)
		sum += v->crc[i];
	if (v->head->type == DISK_RECORD_RUN)
		assert_true(v->head->data_bytes <= FIRST + 2 * SEGMENT - v->data_offset);
	return sum;
}

static void walk(const struct world *w, const uint8_t *bytes_at, size_t bytes)
{
	uint8_t *exact = malloc(bytes ? bytes : 1); /* so that one byte beyond is caught */
	struct store_view v;
	struct store *s;
	size_t cursor = 0;
	int records, n = 0;

	assert_non_null(exact);
	memcpy(exact, bytes_at, bytes);
	assert_int_equal(store_open(&s, &w->super), 0);
	records = store_recover(s, 1, exact, bytes);
	while (store_next(s, 1, exact, bytes, &cursor, &v) == 0) {
		touch(&v);
		assert_true(++n <= (int)(SUMMARY / DISK_SECTOR));
	}
	assert_int_equal(n, records < 0 ? 0 : records);
	store_close(s);
	free(exact);
}

static void test_hostile_summaries(void **state)
{
	struct world *w = *state;
	uint8_t *buf = malloc(SUMMARY);
	struct store_run run;

	assert_non_null(buf);
	for (uint32_t i = 0; i < 3; i++)
		run = put(w, DISK_LOG_CACHE, 3, false);
	put(w, 0, 2, true);
	for (int i = 0; i < 4000; i++) {
		size_t bytes = below(&w->seed, 3) ? SUMMARY : below(&w->seed, SUMMARY + 1);

		memcpy(buf, summary_at(w->disk, run.segment), SUMMARY);
		if (i % 4 == 0)
			for (size_t k = i % 8 ? DISK_SECTOR : 0; k < SUMMARY; k++)
				buf[k] = (uint8_t)rnd(&w->seed);
		for (uint32_t m = below(&w->seed, 4); m > 0 && i % 4; m--)
			mutate_record(w, buf, SUMMARY);
		walk(w, buf, bytes);
	}
	free(buf);
}

/* ---- super block and catalog ---------------------------------------------------------------- */

static void test_super(void **state)
{
	struct disk_super p, q;
	uint64_t seed = 7;
	char why[64];

	(void)state;
	for (uint64_t bytes = 1; bytes < 1ull << 48; bytes += bytes / 3 + 4097) {
		if (store_super_plan(&p, bytes, 0, 42))
			continue;
		assert_int_equal(store_super_check(&p, why, sizeof(why)), 0);
		assert_true(p.segment_offset + p.segment_count * p.segment_bytes <= bytes);
		/* No more than a segment and the head is left unused, from 64 MiB on. */
		assert_true(bytes < 64 << 20 || p.segment_count >= 14);
	}
	assert_int_equal(store_super_plan(&p, 64 << 20, 0, 42), 0);
	assert_int_equal(p.segment_bytes, 4 << 20);
	assert_int_equal(store_super_plan(&p, 1ull << 40, 0, 42), 0);
	assert_int_equal(p.segment_bytes, 1 << 30);
	assert_int_equal(store_super_plan(&p, 1 << 20, 0, 42), -EINVAL);
	assert_int_equal(store_super_plan(&p, 1 << 30, 1000, 42), -EINVAL);
	assert_int_equal(store_super_plan(&p, 1 << 30, 1 << 20, 42), 0);
	disk_super_seal(&p);
	assert_int_equal(disk_super_open(&p, &q), 0);
	assert_memory_equal(&p, &q, sizeof(p));
	for (int i = 0; i < 2000; i++) {
		q = p;
		((uint8_t *)&q)[below(&seed, i % 2 ? 80 : sizeof(q))] ^= 1u << below(&seed, 8);
		assert_true(disk_super_open(&q, &(struct disk_super){ 0 }) < 0);
	}
	q = p;
	q.version++;
	assert_int_equal(disk_super_open(&q, &(struct disk_super){ 0 }), -EPROTO);
	q = p;
	q.features = 1;
	q.crc = store_crc(&q, sizeof(q), offsetof(struct disk_super, crc));
	assert_int_equal(disk_super_open(&q, &(struct disk_super){ 0 }), -EPROTO);
}

static void test_super_check_is_overflow_safe(void **state)
{
	struct disk_super good, p;
	uint64_t seed = 11;
	uint64_t *field[] = { &p.catalog_offset, &p.catalog_bytes, &p.segment_offset,
			      &p.segment_bytes, &p.segment_count, &p.summary_bytes };
	struct store *s;
	char why[64];

	(void)state;
	fill_super(&good);
	p = good;
	assert_int_equal(store_super_check(&p, why, sizeof(why)), 0);
	for (int i = 0; i < 20000; i++) {
		p = good;
		for (uint32_t n = 1 + below(&seed, 3); n > 0; n--)
			*field[below(&seed, COUNT(field))] = nasty(&seed) &
				(below(&seed, 2) ? ~0ull : ~4095ull);
		why[0] = 0;
		if (store_super_check(&p, why, sizeof(why))) {
			assert_true(why[0]);
			assert_int_equal(store_open(&s, &p), -EINVAL);
			continue;
		}
		/* Sums computed wide agree that all of it lies before the end of any file. */
		assert_true((__uint128_t)p.segment_offset +
			    (__uint128_t)p.segment_count * p.segment_bytes <= INT64_MAX);
		assert_true((__uint128_t)p.catalog_offset + 2 * (__uint128_t)p.catalog_bytes <=
			    p.segment_offset);
	}
}

#define CONTEXTS 5u

static void fill_catalog(struct disk_catalog *head, struct disk_context *x)
{
	memset(head, 0, sizeof(*head));
	memset(x, 0, CONTEXTS * sizeof(*x));
	head->store_id = STORE_ID;
	head->sequence = 9;
	head->next_uid = 100;
	head->count = CONTEXTS;
	for (uint32_t i = 0; i < CONTEXTS; i++) {
		x[i].uid = 10 + i;
		strcpy(x[i].name, "ctx");
		x[i].geometry.part_count = 1;
	}
}

static void test_catalog(void **state)
{
	static struct disk_context x[CONTEXTS];
	struct disk_catalog head;
	const struct disk_catalog *h;
	const struct disk_context *c;
	size_t bytes = (1 + CONTEXTS) * DISK_SECTOR;
	uint8_t *buf = malloc(bytes), *bad = malloc(bytes);
	uint64_t seed = 3;

	(void)state;
	fill_catalog(&head, x);
	assert_int_equal(disk_catalog_seal(buf, bytes - 1, &head, x), -EFBIG);
	assert_int_equal(disk_catalog_seal(buf, bytes, &head, x), bytes);
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), 0);
	assert_int_equal(h->sequence, 9);
	assert_memory_equal(c, x, sizeof(x));
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID + 1, &h, &c), -EBADMSG);
	for (size_t cut = 0; cut < bytes; cut += 1 + cut / 3)
		assert_int_equal(disk_catalog_open(buf, cut, STORE_ID, &h, &c), -EBADMSG);
	for (int i = 0; i < 3000; i++) {
		memcpy(bad, buf, bytes);
		bad[below(&seed, i % 2 ? 48 : (uint32_t)bytes)] ^= 1u << below(&seed, 8);
		assert_true(disk_catalog_open(bad, bytes, STORE_ID, &h, &c) < 0);
	}
	((struct disk_catalog *)buf)->version = 2;
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), -EPROTO);
	free(buf);
	free(bad);
}

/* What a reader relies on is refused although the CRC is right. */
static void test_catalog_contents(void **state)
{
	static struct disk_context x[CONTEXTS];
	size_t bytes = (1 + CONTEXTS) * DISK_SECTOR;
	struct disk_catalog head, *out = malloc(bytes);
	const struct disk_catalog *h;
	const struct disk_context *c;

	(void)state;
	for (int what = 0; what < 7; what++) {
		fill_catalog(&head, x);
		if (what == 1)
			memset(x[2].name, 'a', sizeof(x[2].name));
		if (what == 2)
			memset(x[4].policy, 'a', sizeof(x[4].policy));
		if (what == 3)
			x[0].geometry.part_count = ABI_PARTS_MAX + 1;
		if (what == 4)
			x[1].uid = head.next_uid;
		if (what == 5)
			memset(x[3].geometry.part[15].name, 'x', ABI_PART_NAME_BYTES);
		if (what == 6)
			head.sequence = UINT64_MAX;
		assert_int_equal(disk_catalog_seal(out, bytes, &head, x), bytes);
		assert_int_equal(disk_catalog_open(out, bytes, STORE_ID, &h, &c),
				 what ? -EBADMSG : 0);
	}
	free(out);
}

/* ---- D5, D7 --------------------------------------------------------------------------------- */

static void test_page_seed(void **state)
{
	uint8_t text[ABI_KEY_BYTES + 12];

	(void)state;
	for (uint32_t i = 0; i < ABI_KEY_BYTES; i++)
		text[i] = (uint8_t)(i * 7);
	memcpy(text + 32, "\x08\x07\x06\x05\x04\x03\x02\x01" "\x0d\x0c\x0b\x0a", 12);
	assert_int_equal(store_page_seed(text, 0x0102030405060708ull, 0x0a0b0c0d),
			 crc32c(0, text, sizeof(text)));
}

static void test_run_layout(void **state)
{
	struct abi_geometry g = { .part_count = 3, .part = {
		{ .layers = 3, .groups = 2, .page_stride = 4096, .page_base = 0 },
		{ .layers = 1, .groups = 5, .page_stride = 8192, .page_base = 6 },
		{ .layers = 2, .groups = 1, .page_stride = 12288, .page_base = 11 },
	} };

	(void)state;
	for (uint64_t parts = 1; parts < 8; parts++) {
		int64_t at = 0;
		uint32_t pages = 0;

		/* D7, spelled out. */
		for (uint32_t p = 0; p < 3; p++)
			for (uint32_t i = 0; i < g.part[p].layers * 4 * g.part[p].groups; i++) {
				uint32_t group = i % g.part[p].groups;
				uint32_t block = i / g.part[p].groups % 4;
				uint32_t layer = i / g.part[p].groups / 4;
				uint32_t page = g.part[p].page_base + layer * g.part[p].groups +
						group;
				bool has = parts >> p & 1;

				assert_int_equal(store_run_page(&g, parts, 4, block, page),
						 has ? at : -ENOENT);
				at += has ? g.part[p].page_stride : 0;
				pages += has;
			}
		assert_int_equal(at, 4 * store_block_bytes(&g, parts));
		assert_int_equal(pages, 4 * store_block_pages(&g, parts));
		assert_int_equal(store_run_page(&g, parts, 4, 0, 13), -ENOENT);
	}
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, make_fixture, free_fixture)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		CASE(test_fill_and_full),
		CASE(test_header_until_done),
		CASE(test_tombstones_are_kept),
		CASE(test_stale_life_is_void),
		CASE(test_hole_hides_nothing),
		CASE(test_forged_table_is_no_record),
		CASE(test_numbers_survive_a_rotten_header),
		CASE(test_hostile_summaries),
		cmocka_unit_test(test_super),
		cmocka_unit_test(test_super_check_is_overflow_safe),
		cmocka_unit_test(test_catalog),
		cmocka_unit_test(test_catalog_contents),
		cmocka_unit_test(test_page_seed),
		cmocka_unit_test(test_run_layout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
