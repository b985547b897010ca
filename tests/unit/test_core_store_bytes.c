/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's bytes as an enemy may write them: super blocks, catalogs and summaries with good CRCs
 * and bad numbers never lead outside of a buffer. And the arithmetic of D5 and D7, spelled out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/core/unit/store_priv.h"

#define KIB 1024ull
#define STORE_ID 0x5eedf00dull
#define SUMMARY (32 * KIB)
#define SEGMENT (128 * KIB)
#define SEGMENTS 8u
#define FIRST (64 * KIB)

static uint32_t below(struct rng *rng, uint32_t n)
{
	return (uint32_t)rng_below(rng, n);
}

static void fill_super(struct disk_super *super)
{
	memset(super, 0, sizeof(*super));
	super->features = DISK_FEATURES;
	super->store_id = STORE_ID;
	super->catalog_offset = 8 * KIB;
	super->catalog_bytes = 16 * KIB;
	super->segment_offset = FIRST;
	super->segment_bytes = SEGMENT;
	super->segment_count = SEGMENTS;
	super->summary_bytes = SUMMARY;
}

/* ---- hostile bytes with a good CRC ---------------------------------------------------------- */

static uint64_t nasty(struct rng *rng)
{
	static const uint64_t value[] = { 0, 1, 31, 32, 33, 65535, 65536, 65537, 0x7fffffff,
		0x80000000, 0xffffffff, SEGMENT, SEGMENT - 1, SUMMARY, SUMMARY - DISK_SECTOR,
		1ull << 62, INT64_MAX, UINT64_MAX, UINT64_MAX - 4095 };

	return below(rng, 3) ? value[below(rng, COUNT(value))] : rng_next(rng);
}

static void mutate_record(struct rng *rng, uint8_t *buf, size_t bytes)
{
	/* Sector-aligned place, 4-byte field, then a CRC that fits if it can be computed. */
	size_t at = DISK_SECTOR * (1 + below(rng, 5));
	struct disk_record *r = (struct disk_record *)(buf + at);
	uint32_t field = 4 * below(rng, 36);
	uint64_t value = nasty(rng);

	if (at + DISK_SECTOR > bytes)
		return;
	memcpy((uint8_t *)r + field, &value, below(rng, 2) ? 4 : 8);
	if (below(rng, 4) == 0) {
		r->pages_per_block = 1 + below(rng, 4096);
		r->bytes = (uint32_t)store_record_bytes(
			r->block_count % 64, disk_there_below(r, r->block_count) % 64,
			r->pages_per_block);
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
	for (uint32_t i = 0; i < disk_there_below(v->head, v->head->block_count) *
					 v->head->pages_per_block; i++)
		sum += v->crc[i];
	if (v->head->type == DISK_RECORD_RUN)
		assert_true(v->head->data_bytes <= FIRST + 2 * SEGMENT - v->data_offset);
	return sum;
}

static void walk(const struct disk_super *super, const uint8_t *bytes_at, size_t bytes)
{
	uint8_t *exact = malloc(bytes ? bytes : 1); /* so that one byte beyond is caught */
	struct store_view v;
	struct store *s;
	size_t cursor = 0;
	int records, n = 0;

	assert_non_null(exact);
	memcpy(exact, bytes_at, bytes);
	assert_int_equal(store_open(&s, super), 0);
	records = store_recover(s, 1, exact, bytes);
	while (store_next(s, 1, exact, bytes, &cursor, &v) == 0) {
		touch(&v);
		assert_true(++n <= (int)(SUMMARY / DISK_SECTOR));
	}
	assert_int_equal(n, records < 0 ? 0 : records);
	store_close(s);
	free(exact);
}

/* A summary with a header, three runs of three blocks and a tombstone. */
static void fill_summary(const struct disk_super *super, uint8_t *buf)
{
	struct disk_block block[3] = { { .salt = 1 }, { .salt = 2 }, { .salt = 3 } };
	uint32_t crc[3] = { 11, 22, 33 };
	struct store *s;

	memset(buf, 0, SUMMARY);
	assert_int_equal(store_open(&s, super), 0);
	for (uint32_t i = 0; i < 4; i++) {
		struct disk_record head = { .type = DISK_RECORD_RUN, .context_uid = 1, .parts = 1,
					    .block_count = 3, .pages_per_block = 1 };
		struct store_run run;

		if (i < 3) {
			assert_int_equal(store_append(s, DISK_LOG_DURABLE, 3, DISK_SECTOR, 1, &run),
					 0);
		} else {
			head.type = DISK_RECORD_TOMBSTONE;
			head.pages_per_block = 0;
			assert_int_equal(store_append_tombstone(s, 3, false, &run), 0);
		}
		store_header(s, &run, buf);
		store_record(s, &run, &head, block, crc, buf + run.record_offset - FIRST);
		store_append_done(s, &run, true);
	}
	store_close(s);
}

static void test_hostile_summaries(void **state)
{
	uint8_t *good = malloc(SUMMARY), *buf = malloc(SUMMARY);
	struct rng rng = { .state = 5 };
	struct disk_super super;

	(void)state;
	assert_true(good && buf);
	fill_super(&super);
	fill_summary(&super, good);
	for (int i = 0; i < 4000; i++) {
		size_t bytes = below(&rng, 3) ? SUMMARY : below(&rng, SUMMARY + 1);

		memcpy(buf, good, SUMMARY);
		if (i % 4 == 0)
			for (size_t k = i % 8 ? DISK_SECTOR : 0; k < SUMMARY; k += 8)
				*(uint64_t *)(buf + k) = rng_next(&rng);
		for (uint32_t m = below(&rng, 4); m > 0 && i % 4; m--)
			mutate_record(&rng, buf, SUMMARY);
		walk(&super, buf, bytes);
	}
	free(good);
	free(buf);
}

/* ---- D9 ------------------------------------------------------------------------------------- */

/* What a later daemon knows of flushes, from one summary. */
static uint64_t flushed_after(const struct disk_super *super, const uint8_t *buf, int *records)
{
	struct store *s;
	uint64_t lsn;

	assert_int_equal(store_open(&s, super), 0);
	*records = store_recover(s, 0, buf, SUMMARY);
	lsn = store_flushed_lsn(s);
	store_close(s);
	return lsn;
}

static void append_one(struct store *s, uint32_t flags, uint8_t *buf)
{
	struct disk_record head = { .type = DISK_RECORD_RUN, .context_uid = 1, .parts = 1,
				    .block_count = 1, .pages_per_block = 1, .flags = flags };
	struct disk_block block = { .salt = 1 };
	struct store_run run;
	uint32_t crc = 7;

	assert_int_equal(store_append(s, DISK_LOG_DURABLE, 1, DISK_SECTOR, 1, &run), 0);
	store_header(s, &run, buf);
	store_record(s, &run, &head, &block, &crc, buf + run.record_offset - FIRST);
	store_append_done(s, &run, true);
}

static void test_flushed_lsn(void **state)
{
	uint8_t *buf = calloc(1, SUMMARY);
	struct disk_super super;
	struct store_view v;
	struct store *s;
	size_t cursor = 0;
	int records;

	(void)state;
	assert_non_null(buf);
	fill_super(&super);
	assert_int_equal(store_open(&s, &super), 0);
	append_one(s, 0, buf);
	append_one(s, 0, buf);
	assert_int_equal(flushed_after(&super, buf, &records), 0);
	store_flushed(s, 2);
	store_flushed(s, 1); /* it never falls */
	append_one(s, DISK_RECORD_SETTLED, buf);
	assert_int_equal(flushed_after(&super, buf, &records), 2);
	assert_int_equal(records, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(store_next(s, 0, buf, SUMMARY, &cursor, &v), 0);
		assert_int_equal(v.head->flags, i == 2 ? DISK_RECORD_SETTLED : 0);
	}
	/* A record cannot know of flushes after itself; and in an older store of none. */
	cursor = DISK_SECTOR * 3;
	((struct disk_record *)(buf + cursor))->flushed_lsn = 3;
	((struct disk_record *)(buf + cursor))->crc =
		store_crc(buf + cursor, DISK_SECTOR, offsetof(struct disk_record, crc));
	assert_int_equal(flushed_after(&super, buf, &records), 0);
	assert_int_equal(records, 2);
	store_close(s);

	super.features = 0;
	assert_int_equal(store_open(&s, &super), 0);
	memset(buf, 0, SUMMARY);
	append_one(s, DISK_RECORD_SETTLED, buf);
	store_flushed(s, 1);
	append_one(s, DISK_RECORD_SETTLED, buf);
	assert_int_equal(flushed_after(&super, buf, &records), 0);
	assert_int_equal(records, 2);
	store_close(s);
	free(buf);
}

/* ---- D14 ------------------------------------------------------------------------------------ */

/* Is a record of five of which these are absent, with data and checksums of `there`, one? */
static bool is_record(const struct disk_super *super, uint32_t absent, uint32_t there,
		      uint64_t salt)
{
	struct disk_block *block;
	struct disk_record *r;
	uint8_t *buf = calloc(1, SUMMARY);
	struct store *s;
	int records;

	assert_non_null(buf);
	assert_int_equal(store_open(&s, super), 0);
	append_one(s, 0, buf);
	store_close(s);
	r = (struct disk_record *)(buf + DISK_SECTOR);
	block = (struct disk_block *)(r + 1);
	r->block_count = 5;
	r->absent = absent;
	r->data_bytes = there * DISK_SECTOR;
	r->bytes = (uint32_t)store_record_bytes(5, there, 1);
	block[1].salt = salt;
	r->crc = store_crc(r, r->bytes, offsetof(struct disk_record, crc));
	assert_int_equal(store_open(&s, super), 0);
	records = store_recover(s, 0, buf, SUMMARY);
	store_close(s);
	free(buf);
	return records == 1;
}

static void test_absent_blocks(void **state)
{
	struct disk_super super;

	(void)state;
	fill_super(&super);
	assert_true(is_record(&super, 0, 5, 1));
	assert_true(is_record(&super, 2, 4, 0));
	assert_true(is_record(&super, 14, 2, 0));
	assert_false(is_record(&super, 2, 4, 1));   /* it is only named */
	assert_false(is_record(&super, 2, 3, 0));   /* data of others */
	assert_false(is_record(&super, 1, 4, 0));   /* the first */
	assert_false(is_record(&super, 16, 4, 0));  /* the last */
	assert_false(is_record(&super, 34, 3, 0));  /* beyond it */
	super.features &= ~DISK_FEATURE_ABSENT;
	assert_true(is_record(&super, 0, 5, 1));
	assert_false(is_record(&super, 2, 4, 0));
}

/* ---- cleaning ------------------------------------------------------------------------------- */

static void append_to(struct store *s, enum store_stream stream, uint64_t bytes,
		      struct store_run *run)
{
	assert_int_equal(store_append(s, stream, 1, bytes, 1, run), 0);
	store_append_done(s, run, true);
	store_live(s, run->segment, (int64_t)bytes);
}

/* The last free segments are the cleaner's; small stores have no reserve. */
static void test_reserve(void **state)
{
	const uint64_t block = SEGMENT - SUMMARY; /* fills a segment */
	struct store_run run;
	struct disk_super super;
	struct store *s;

	(void)state;
	fill_super(&super);
	super.segment_count = STORE_RESERVED_FROM;
	assert_int_equal(store_open(&s, &super), 0);
	for (uint32_t i = 0; i < STORE_RESERVED_FROM - STORE_RESERVE; i++)
		append_to(s, i % 2 ? STORE_CACHE : STORE_DURABLE, block, &run);
	assert_int_equal(store_append(s, STORE_DURABLE, 1, block, 1, &run), -ENOSPC);
	assert_int_equal(store_append(s, STORE_CACHE, 1, block, 1, &run), -ENOSPC);
	assert_int_equal(store_append_tombstone(s, 1, false, &run), 0);
	store_append_done(s, &run, true);
	append_to(s, STORE_CLEANED, block, &run);
	assert_int_equal(run.log, DISK_LOG_DURABLE);
	append_to(s, STORE_CLEANED, block / 2, &run);
	assert_int_equal(store_append(s, STORE_CLEANED, 1, block, 1, &run), -ENOSPC);
	store_close(s);

	super.segment_count = 2;
	assert_int_equal(store_open(&s, &super), 0);
	append_to(s, STORE_DURABLE, block, &run);
	append_to(s, STORE_DURABLE, block, &run);
	store_close(s);
}

static void test_victim(void **state)
{
	const uint64_t block = SEGMENT - SUMMARY;
	struct store_run run[6];
	struct disk_super super;
	struct store *s;

	(void)state;
	fill_super(&super);
	super.segment_count = 16;
	assert_int_equal(store_open(&s, &super), 0);
	for (uint32_t i = 0; i < 6; i++)
		append_to(s, i == 2 ? STORE_CACHE : STORE_DURABLE, block, &run[i]);
	assert_int_equal(store_victim(s, 30, 0, false), -ENOENT); /* all live */
	store_live(s, run[2].segment, -(int64_t)block);
	store_live(s, run[5].segment, -(int64_t)block);
	assert_int_equal(store_victim(s, 30, 0, false), -ENOENT); /* of the cache log; open */
	store_live(s, run[0].segment, -(int64_t)block / 2);
	store_live(s, run[4].segment, -(int64_t)block * 6 / 10);
	assert_int_equal(store_victim(s, 30, 0, false), run[0].segment); /* older */
	assert_int_equal(store_victim(s, 30, 0, true), run[4].segment); /* more dead */
	assert_int_equal(store_victim(s, 550, 0, false), run[4].segment);
	assert_int_equal(store_victim(s, 650, 0, false), -ENOENT);
	store_read_begin(s, run[0].segment);
	assert_int_equal(store_victim(s, 30, 0, false), run[4].segment);
	store_read_end(s, run[0].segment);
	store_shun(s, run[0].segment);
	assert_int_equal(store_victim(s, 30, 0, false), run[4].segment);
	store_close(s);
}

/* Tombstones are found in parts of a summary, whatever lies between; their bound tells the need. */
static void test_tombstones_are_found(void **state)
{
	uint8_t *buf = calloc(1, SUMMARY);
	const size_t part = 2 * DISK_SECTOR;
	struct disk_super super;
	struct store_run run;
	struct store *s;
	size_t cursor = 0;
	uint64_t oldest;
	uint32_t found = 0;

	(void)state;
	assert_non_null(buf);
	fill_super(&super);
	fill_summary(&super, buf);
	assert_int_equal(store_open(&s, &super), 0);
	assert_int_equal(store_recover(s, 0, buf, SUMMARY), 4);
	for (size_t at = DISK_SECTOR; at + part <= SUMMARY; at += part, cursor -= part) {
		const struct disk_record *r;

		while ((r = store_next_tombstone(s, 0, buf + at, part, &cursor))) {
			assert_int_equal(r->type, DISK_RECORD_TOMBSTONE);
			found += r->block_count;
		}
	}
	assert_int_equal(found, 3);
	assert_false(store_tombs_needed(s, 0, &oldest)); /* nothing else is in the store */
	append_to(s, STORE_CACHE, DISK_SECTOR, &run);
	assert_false(store_tombs_needed(s, 0, &oldest)); /* newer than what they make void */
	assert_int_equal(oldest, run.lsn);
	store_close(s);
	free(buf);
}

/* ---- super block and catalog ---------------------------------------------------------------- */

static void test_super(void **state)
{
	struct disk_super p, q;
	struct rng rng = { .state = 7 };
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
	assert_int_equal(store_super_plan(&p, 1ull << 40, 1 << 20, 42), -E2BIG);
	assert_int_equal(store_super_plan(&p, UINT64_MAX, 0, 42), -E2BIG);
	assert_int_equal(store_super_plan(&p, 1 << 30, 1 << 20, 42), 0);
	disk_super_seal(&p);
	assert_int_equal(disk_super_open(&p, &q), 0);
	assert_memory_equal(&p, &q, sizeof(p));
	for (int i = 0; i < 2000; i++) {
		q = p;
		((uint8_t *)&q)[below(&rng, i % 2 ? 80 : sizeof(q))] ^= 1u << below(&rng, 8);
		assert_true(disk_super_open(&q, &(struct disk_super){ 0 }) < 0);
	}
	q = p;
	q.version++;
	assert_int_equal(disk_super_open(&q, &(struct disk_super){ 0 }), -EPROTO);
	q = p;
	q.features |= 1ull << 63;
	q.crc = store_crc(&q, sizeof(q), offsetof(struct disk_super, crc));
	assert_int_equal(disk_super_open(&q, &(struct disk_super){ 0 }), -EPROTO);
}

static void test_super_check_is_overflow_safe(void **state)
{
	struct disk_super good, p;
	struct rng rng = { .state = 11 };
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
		for (uint32_t n = 1 + below(&rng, 3); n > 0; n--)
			*field[below(&rng, COUNT(field))] = nasty(&rng) &
				(below(&rng, 2) ? ~0ull : ~4095ull);
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
	struct rng rng = { .state = 3 };

	(void)state;
	fill_catalog(&head, x);
	assert_int_equal(disk_catalog_seal(buf, bytes - 1, &head, x, NULL), -EFBIG);
	assert_int_equal(disk_catalog_seal(buf, bytes, &head, x, NULL), bytes);
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), 0);
	assert_int_equal(h->sequence, 9);
	assert_memory_equal(c, x, sizeof(x));
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID + 1, &h, &c), -EBADMSG);
	for (size_t cut = 0; cut < bytes; cut += 1 + cut / 3)
		assert_int_equal(disk_catalog_open(buf, cut, STORE_ID, &h, &c), -EBADMSG);
	for (int i = 0; i < 3000; i++) {
		memcpy(bad, buf, bytes);
		bad[below(&rng, i % 2 ? 48 : (uint32_t)bytes)] ^= 1u << below(&rng, 8);
		assert_true(disk_catalog_open(bad, bytes, STORE_ID, &h, &c) < 0);
	}
	((struct disk_catalog *)buf)->version = 2;
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), -EPROTO);
	free(buf);
	free(bad);
}

/* Behind the contexts; a catalog without any is what it was before there were limits. */
static void test_catalog_limits(void **state)
{
	static struct disk_context x[CONTEXTS];
	struct disk_limit limit[70] = { { 10, 1, { 1, 2, 3 }, { 4, 5, 0 } } };
	struct disk_catalog head;
	const struct disk_catalog *h;
	const struct disk_context *c;
	size_t bytes = (1 + CONTEXTS + 2) * DISK_SECTOR;
	uint8_t *buf = malloc(bytes);

	(void)state;
	fill_catalog(&head, x);
	head.limit_count = 70;
	for (uint32_t i = 1; i < 70; i++)
		limit[i] = (struct disk_limit){ 11, i, { i }, { 0, i, i } };
	assert_int_equal(disk_catalog_bytes(CONTEXTS, 70), bytes);
	assert_int_equal(disk_catalog_seal(buf, bytes - 1, &head, x, limit), -EFBIG);
	assert_int_equal(disk_catalog_seal(buf, bytes, &head, x, limit), bytes);
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), 0);
	assert_memory_equal(disk_catalog_limits(h), limit, sizeof(limit));
	assert_int_equal(disk_catalog_open(buf, bytes - 1, STORE_ID, &h, &c), -EBADMSG);
	for (size_t at = (1 + CONTEXTS) * DISK_SECTOR; at < bytes; at += 61) {
		buf[at] ^= 4; /* padding too */
		assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), -EBADMSG);
		buf[at] ^= 4;
	}
	limit[3].soft[1] = limit[3].hard[1] + 1;
	assert_int_equal(disk_catalog_seal(buf, bytes, &head, x, limit), bytes);
	assert_int_equal(disk_catalog_open(buf, bytes, STORE_ID, &h, &c), -EBADMSG);
	free(buf);
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
		assert_int_equal(disk_catalog_seal(out, bytes, &head, x, NULL), bytes);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_summaries),
		cmocka_unit_test(test_flushed_lsn),
		cmocka_unit_test(test_absent_blocks),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_victim),
		cmocka_unit_test(test_tombstones_are_found),
		cmocka_unit_test(test_super),
		cmocka_unit_test(test_super_check_is_overflow_safe),
		cmocka_unit_test(test_catalog),
		cmocka_unit_test(test_catalog_limits),
		cmocka_unit_test(test_catalog_contents),
		cmocka_unit_test(test_page_seed),
		cmocka_unit_test(test_run_layout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
