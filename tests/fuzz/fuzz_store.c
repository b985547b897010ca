/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segment headers and records as recovery reads them: store_recover and store_next over a summary
 * that real code wrote and the input patched, with checksums made right again or not.
 *
 * Must hold: every record told lies in the buffer and agrees with itself, both walks count the
 * same, and what is appended afterwards has an lsn that was never seen before and lies in a life
 * that was not either (D2, D3), or behind all there is of the life that it goes on with (D13).
 */
#include <errno.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/reseal.h"
#include "tierd/core/unit/store.h"

#define SUMMARY (64u << 10)
#define PAGES_MAX 600u /* of a block: records of several sectors */
#define RESEAL 1u
#define EMPTY 2u /* begin with zeros instead of the real summary */
#define CUT 4u   /* the buffer ends early */

static struct {
	struct disk_super super;
	uint8_t summary[SUMMARY] __attribute__((aligned(8)));
} image;

static void take_run(struct store *s, uint32_t blocks, uint32_t pages, uint64_t context)
{
	struct disk_record head = { .type = DISK_RECORD_RUN, .context_uid = context, .epoch = 1,
				    .parts = 3, .pages_per_block = pages };
	struct disk_block block[DISK_RUN_BLOCKS_MAX] = { 0 };
	uint32_t crc[PAGES_MAX * 4] = { 0 };
	struct store_run run;

	FUZZ_CHECK(blocks * pages <= PAGES_MAX * 4);
	if (pages)
		FUZZ_CHECK(store_append(s, DISK_LOG_DURABLE, blocks, 8192, pages, &run) == 0);
	else
		FUZZ_CHECK(store_append_tombstone(s, blocks, false, &run) == 0);
	head.block_count = run.blocks;
	head.type = pages ? DISK_RECORD_RUN : DISK_RECORD_TOMBSTONE;
	for (uint32_t i = 0; i < run.blocks; i++)
		memset(block[i].key, (int)(i + 1), ABI_KEY_BYTES);
	FUZZ_CHECK(run.segment == 0);
	if (run.header_offset)
		store_header(s, &run, image.summary);
	store_record(s, &run, &head, block, crc,
		     image.summary + (run.record_offset - image.super.segment_offset));
	store_append_done(s, &run, true);
}

void fuzz_open(void)
{
	struct store *s;

	FUZZ_CHECK(store_super_plan(&image.super, 4u << 20, 256u << 10, 0x5eed) == 0);
	disk_super_seal(&image.super);
	FUZZ_CHECK(image.super.summary_bytes == SUMMARY);
	FUZZ_CHECK(store_open(&s, &image.super) == 0);
	take_run(s, 1, 4, 1);
	take_run(s, 5, 4, 1);
	take_run(s, 3, 0, 1);
	take_run(s, 2, 3, 2);
	take_run(s, 4, PAGES_MAX, 1);
	take_run(s, 9, 0, 2);
	store_close(s);
}

/* ---- what must be true of a record ---------------------------------------------------------- */

struct seen {
	uint64_t lsn, sequence;
	uint32_t records;
	uint64_t record_end; /* in the summary */
	uint64_t data_end;   /* in the store */
};

static void check_view(const struct store_view *v, const uint8_t *buf, size_t bytes)
{
	const uint8_t *at = (const uint8_t *)v->head;
	uint32_t there = disk_there_below(v->head, v->head->block_count);
	const uint8_t *end = (const uint8_t *)(v->crc +
					       there * (size_t)v->head->pages_per_block);
	uint64_t segments = image.super.segment_count * image.super.segment_bytes;

	FUZZ_CHECK(at >= buf + DISK_SECTOR && at + sizeof(*v->head) <= buf + bytes);
	FUZZ_CHECK(v->head->bytes <= (size_t)(buf + bytes - at) && end <= at + v->head->bytes);
	FUZZ_CHECK(v->head->block_count && v->segment == 0);
	FUZZ_CHECK((const uint8_t *)v->block == at + sizeof(*v->head));
	for (uint32_t i = 0; i < v->head->block_count; i++)
		FUZZ_CHECK(v->block[i].origin_bytes == 0);
	if (v->head->type != DISK_RECORD_RUN) {
		FUZZ_CHECK(v->head->type == DISK_RECORD_TOMBSTONE);
		return;
	}
	FUZZ_CHECK(v->head->block_count <= DISK_RUN_BLOCKS_MAX && there);
	FUZZ_CHECK(disk_there(v->head, 0) && disk_there(v->head, v->head->block_count - 1));
	FUZZ_CHECK(v->data_offset >= image.super.segment_offset + SUMMARY);
	FUZZ_CHECK(v->data_offset + v->head->data_bytes <=
		   image.super.segment_offset + image.super.segment_bytes);
	FUZZ_CHECK(v->data_offset < image.super.segment_offset + segments);
}

static void walk(const struct store *s, const uint8_t *buf, size_t bytes, struct seen *seen)
{
	struct store_view v;
	size_t cursor = 0, before = 0;
	int rc;

	while ((rc = store_next(s, 0, buf, bytes, &cursor, &v)) == 0) {
		FUZZ_CHECK(cursor > before);
		before = cursor;
		check_view(&v, buf, bytes);
		FUZZ_CHECK(!v.head->data_bytes || v.data_offset >= seen->data_end); /* D10 */
		if (v.head->data_bytes)
			seen->data_end = v.data_offset + v.head->data_bytes;
		seen->records++;
		seen->sequence = v.head->segment_seq;
		seen->record_end = (uint64_t)((const uint8_t *)v.head - buf) + v.head->bytes;
		if (v.head->lsn > seen->lsn)
			seen->lsn = v.head->lsn;
	}
	FUZZ_CHECK(rc == -ENOENT || rc == -EBADMSG);
}

/* Nothing of the life that is gone on with lies where the run goes, or behind it. */
static void check_behind(const struct store_run *run, const struct seen *seen, const uint8_t *buf)
{
	uint64_t at = run->record_offset - image.super.segment_offset;

	FUZZ_CHECK(seen->records && run->segment_seq == seen->sequence && !run->header_offset);
	FUZZ_CHECK(at >= seen->record_end && run->offset >= seen->data_end);
	for (; at < SUMMARY; at += DISK_SECTOR) {
		const struct disk_record *r = (const struct disk_record *)(buf + at);

		FUZZ_CHECK(r->store_id != image.super.store_id ||
			   r->segment_seq != seen->sequence);
	}
}

/* The store goes on, in the recovered segment or in another. */
static void go_on(struct store *s, const struct seen *seen, const uint8_t *buf, size_t bytes)
{
	struct store_run run;

	for (uint32_t log = 0; log < 2; log++) {
		FUZZ_CHECK(store_append(s, log, 2, 8192, 2, &run) == 0);
		FUZZ_CHECK(run.lsn > seen->lsn);
		if (run.segment_seq > seen->sequence)
			FUZZ_CHECK(!seen->records || run.segment != 0);
		else
			FUZZ_CHECK(run.segment == 0 && bytes == SUMMARY);
		if (run.segment == 0 && seen->records)
			check_behind(&run, seen, buf);
		store_append_done(s, &run, true);
	}
}

void fuzz_one(struct fuzz_input *in)
{
	uint8_t flags = fuzz_u8(in);
	size_t bytes = flags & CUT ? fuzz_u16(in) : SUMMARY;
	uint8_t *buf = aligned_alloc(8, (bytes + 7) & ~(size_t)7);
	struct seen seen = { 0 };
	struct store *s;
	int records;

	FUZZ_CHECK(buf);
	memset(buf, 0, bytes);
	if (!(flags & EMPTY))
		memcpy(buf, image.summary, bytes);
	if (bytes)
		fuzz_patch(in, buf, bytes, 4);
	if (flags & RESEAL)
		reseal_summary(buf, bytes);
	FUZZ_CHECK(store_open(&s, &image.super) == 0);
	records = store_recover(s, 0, buf, bytes);
	FUZZ_CHECK(records >= 0 || records == -EBADMSG);
	walk(s, buf, bytes, &seen);
	FUZZ_CHECK((int)seen.records == (records < 0 ? 0 : records));
	store_resume(s);
	go_on(s, &seen, buf, bytes);
	store_close(s);
	free(buf);
}

/* ---- seeds -------------------------------------------------------------------------------- */

void fuzz_seeds(void)
{
	static struct fuzz_seed s;
	uint32_t word = 0x40;
	uint64_t sequence = 1ull << 61;

	fuzz_put_u8(&s, 0);
	fuzz_seed_end(&s, "as-written");
	fuzz_put_u8(&s, RESEAL | CUT);
	fuzz_put_u16(&s, 9 * DISK_SECTOR + 77);
	fuzz_seed_end(&s, "cut");
	/* members of the first record, each by its name */
	fuzz_put_u8(&s, RESEAL);
	fuzz_put_patch(&s, (DISK_SECTOR + offsetof(struct disk_record, block_count)) / 4, &word, 4);
	fuzz_put_patch(&s, (DISK_SECTOR + offsetof(struct disk_record, bytes)) / 4, &word, 4);
	fuzz_put_patch(&s, (DISK_SECTOR + offsetof(struct disk_record, pages_per_block)) / 4, &word,
		       4);
	fuzz_put_patch(&s, (2 * DISK_SECTOR + offsetof(struct disk_record, lsn)) / 4, &sequence, 8);
	fuzz_seed_end(&s, "members");
	/* a summary built from nothing: header and first record */
	fuzz_put_u8(&s, RESEAL | EMPTY);
	fuzz_put_patch(&s, 0, image.summary, 48);
	fuzz_put_patch(&s, DISK_SECTOR / 4, image.summary + DISK_SECTOR, 136);
	fuzz_put_patch(&s, 2 * DISK_SECTOR / 4, image.summary + 2 * DISK_SECTOR, 136);
	fuzz_seed_end(&s, "from-nothing");
}
