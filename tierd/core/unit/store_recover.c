/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading segments back: which records of a summary are true. The bytes may be torn, rotten, stale
 * or foreign; every number is compared with the buffer before it is used, and the work is linear in
 * the buffer whatever it holds.
 *
 * A place that does not verify is a hole, not the end: records are written in any order (two runs
 * of one segment are under way at once, and one may fail), so a durable record may lie behind one
 * that never came (D1). Whether a record is accepted depends on its own bytes (D2, D4) and on those
 * of its life that lie before it (D10, D13).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "libtier/abi/ring.h"
#include "libtier/base/crc32c.h"
#include "tierd/core/unit/store_priv.h"

#define CURSOR_BAD 1u /* in the low bits of a cursor, which counts sectors: a bad record was seen */

/* The part of a segment that holds records, as far as it was read. */
struct summary {
	const uint8_t *base;
	size_t bytes; /* whole sectors */
	const struct disk_segment *header; /* NULL = not valid */
};

static bool header_is_valid(const struct store *s, const struct disk_segment *h)
{
	if (h->magic != DISK_SEGMENT_MAGIC || h->version != DISK_VERSION)
		return false;
	if (h->store_id != s->super.store_id || h->log > DISK_LOG_DURABLE || h->reserved0)
		return false;
	if (h->sequence == 0 || h->sequence >= STORE_NUMBER_MAX)
		return false;
	return h->crc == store_crc(h, sizeof(*h), offsetof(struct disk_segment, crc));
}

/*
 * Put one flipped bit of a sector right: what two CRCs differ by tells which, for each bit changes
 * them by another value (CRC32C has distance 4 up to 256 MiB). False: more than one is wrong.
 */
static bool sector_mend(uint8_t *sector, size_t crc_at)
{
	uint32_t found, bit = CRC32C_POLY, differ;

	memcpy(&found, sector + crc_at, sizeof(found));
	differ = found ^ store_crc(sector, DISK_SECTOR, crc_at);
	if (!(differ & (differ - 1))) { /* in the CRC itself, or none */
		found ^= differ;
		memcpy(sector + crc_at, &found, sizeof(found));
		return differ != 0;
	}
	/* The last bit first; each one before it goes through one step more of the division. */
	for (size_t at = 8u * DISK_SECTOR; at-- > 0; bit = bit >> 1 ^ (CRC32C_POLY & -(bit & 1))) {
		if (bit != differ || at / 8 - crc_at < sizeof(found))
			continue;
		sector[at / 8] ^= (uint8_t)(1u << at % 8);
		return true;
	}
	return false;
}

/* Do so many words differ by one bit at most? */
static bool is_near(uint64_t differ)
{
	return !(differ & (differ - 1));
}

void store_mend(const struct store *s, void *summary, size_t bytes, bool header)
{
	const struct disk_segment *h = summary;

	if (header && bytes >= DISK_SECTOR && !header_is_valid(s, h) &&
	    is_near(h->magic ^ DISK_SEGMENT_MAGIC) && is_near(h->store_id ^ s->super.store_id))
		sector_mend(summary, offsetof(struct disk_segment, crc));
	for (size_t at = header ? DISK_SECTOR : 0; at + DISK_SECTOR <= bytes; at += DISK_SECTOR) {
		struct disk_record *r = (struct disk_record *)((uint8_t *)summary + at);

		if (!is_near(r->magic ^ DISK_RECORD_MAGIC) ||
		    !is_near(r->type ^ DISK_RECORD_TOMBSTONE) ||
		    !is_near(r->store_id ^ s->super.store_id) ||
		    r->crc == store_crc(r, DISK_SECTOR, offsetof(struct disk_record, crc)))
			continue;
		sector_mend((uint8_t *)r, offsetof(struct disk_record, crc));
	}
}

static struct summary summary_of(const struct store *s, const void *buf, size_t bytes)
{
	struct summary m = { .base = buf };

	assert((uintptr_t)buf % _Alignof(struct disk_record) == 0);
	if (bytes > s->super.summary_bytes)
		bytes = s->super.summary_bytes;
	m.bytes = bytes - bytes % DISK_SECTOR;
	if (m.bytes && header_is_valid(s, buf))
		m.header = buf;
	return m;
}

/* D14: the first and the last are there. */
static bool absent_is_sane(const struct store *s, const struct disk_record *r)
{
	if (!r->absent)
		return true;
	return store_may_name_absent(s) && disk_there(r, 0) &&
	       !(r->absent >> (r->block_count - 1));
}

static bool run_is_sane(const struct store *s, const struct disk_record *r)
{
	if (r->block_count == 0 || r->block_count > DISK_RUN_BLOCKS_MAX || !absent_is_sane(s, r))
		return false;
	if (r->pages_per_block == 0 || r->pages_per_block > ABI_PAGES_PER_BLOCK_MAX)
		return false;
	if (r->parts == 0 || r->parts >> ABI_PARTS_MAX)
		return false;
	if (r->data_offset < s->super.summary_bytes || r->data_offset >= s->super.segment_bytes ||
	    r->data_offset % DISK_SECTOR)
		return false;
	/* Each block is whole sectors, since each page is. */
	return r->data_bytes > 0 && r->data_bytes <= s->super.segment_bytes - r->data_offset &&
	       r->data_bytes % (disk_there_below(r, r->block_count) * DISK_SECTOR) == 0;
}

static bool tombstone_is_sane(const struct disk_record *r)
{
	return r->block_count > 0 && r->block_count <= STORE_TOMBSTONE_KEYS_MAX && !r->absent &&
	       r->pages_per_block == 0 && r->data_offset == 0 && r->data_bytes == 0;
}

static bool proof_is_sane(const struct store *s, const struct disk_record *r)
{
	if (!(s->super.features & DISK_FEATURE_FLUSHED))
		return !r->flushed_lsn && !r->flags;
	return r->flushed_lsn < r->lsn && !(r->flags & ~DISK_RECORD_SETTLED);
}

static uint64_t bytes_of(const struct disk_record *r)
{
	return store_record_bytes(r->block_count, disk_there_below(r, r->block_count),
				  r->pages_per_block);
}

/* Do the head's numbers agree with each other and with `left` bytes of buffer? Before the CRC, so
 * that r->bytes can be trusted not to be beyond the buffer. */
static bool head_is_sane(const struct store *s, const struct disk_record *r, size_t left)
{
	if (r->type == DISK_RECORD_RUN ? !run_is_sane(s, r) :
	    r->type == DISK_RECORD_TOMBSTONE ? !tombstone_is_sane(r) : true)
		return false;
	if (r->lsn == 0 || r->lsn >= STORE_NUMBER_MAX || r->context_uid == 0)
		return false;
	if (r->segment_seq == 0 || r->segment_seq >= STORE_NUMBER_MAX)
		return false;
	return proof_is_sane(s, r) && r->bytes <= left && r->bytes == bytes_of(r);
}

/* D12: nothing longer than a put may ask for, and not of a tombstone. */
static bool keep_is_sane(const struct store *s, const struct disk_record *r, uint32_t keep)
{
	if (!(s->super.features & DISK_FEATURE_KEPT) || r->type == DISK_RECORD_TOMBSTONE)
		return keep == 0;
	return disk_keep_priority(keep) <= ABI_PRIORITY_HIGH &&
	       (!disk_keep_lapses(keep) ||
		disk_keep_units(keep) <= ABI_TTL_MS_MAX / DISK_KEEP_UNIT_MS);
}

static bool body_is_valid(const struct store *s, const struct disk_record *r)
{
	const struct disk_block *b = (const struct disk_block *)(r + 1);

	if (r->crc != store_crc(r, r->bytes, offsetof(struct disk_record, crc)))
		return false;
	if (!store_is_zero(r->reserved, sizeof(r->reserved)))
		return false;
	if (r->written_ms >= (s->super.features & DISK_FEATURE_KEPT ? DISK_WRITTEN_MS_MAX : 1))
		return false;
	for (uint32_t i = 0; i < r->block_count; i++)
		if (b[i].origin_bytes || !keep_is_sane(s, r, b[i].keep))
			return false;
	for (uint32_t i = 0; r->absent && i < r->block_count; i++)
		if (!disk_there(r, i) && (b[i].salt || b[i].keep))
			return false;
	return true;
}

/* Of this store, and with numbers that can be believed so far as to find its end? */
static bool head_is_ours(const struct store *s, const struct summary *m, size_t at)
{
	const struct disk_record *r = (const struct disk_record *)(m->base + at);

	return r->magic == DISK_RECORD_MAGIC && r->store_id == s->super.store_id &&
	       head_is_sane(s, r, m->bytes - at);
}

/* The record at `at`, if it is one of this life. *step: how far to the next place to look at.
 * before: what those before it say, and then this one. */
static bool take(const struct store *s, const struct summary *m, size_t at, size_t *step,
		 struct store_view *before)
{
	const struct disk_record *r = (const struct disk_record *)(m->base + at);

	*step = DISK_SECTOR;
	if (!head_is_ours(s, m, at))
		return false;
	/* Whole even if the CRC is wrong: places of one life do not overlap, and its inner sectors
	 * are tables that clients' data shapes. */
	*step = r->bytes;
	if (!body_is_valid(s, r))
		return false;
	/* D13: it was not seen when the segment was gone on with, and its data may be gone. */
	if (r->lsn <= before->lsn_end)
		return false;
	/* D10, also against a forger: more bytes would be live than the segment has. */
	if (r->type == DISK_RECORD_RUN && r->data_offset < before->data_end)
		return false;
	before->lsn_end = r->lsn;
	if (r->type == DISK_RECORD_RUN)
		before->data_end = r->data_offset + r->data_bytes;
	return true;
}

int store_next(const struct store *s, uint32_t segment, const void *buf, size_t bytes,
	       size_t *cursor, struct store_view *view)
{
	struct summary m = summary_of(s, buf, bytes);
	size_t bad = *cursor & CURSOR_BAD;
	size_t at = *cursor & ~(size_t)CURSOR_BAD;
	size_t step = DISK_SECTOR;

	assert(segment < s->segment_count && at % DISK_SECTOR == 0);
	if (!m.header)
		return -EBADMSG;
	if (at == 0) {
		at = DISK_SECTOR;
		view->data_end = view->lsn_end = 0;
	}
	for (; at < m.bytes; at += step) {
		const struct disk_record *r = (const struct disk_record *)(m.base + at);

		step = DISK_SECTOR;
		if (r->store_id != m.header->store_id || r->segment_seq != m.header->sequence)
			continue; /* D2: an earlier life's, or nothing */
		if (!take(s, &m, at, &step, view)) {
			bad = CURSOR_BAD;
			continue;
		}
		view->head = r;
		view->block = (const struct disk_block *)(r + 1);
		view->crc = (const uint32_t *)(view->block + r->block_count);
		view->data_offset = r->type == DISK_RECORD_RUN ?
				    store_segment_offset(s, segment) + r->data_offset : 0;
		view->segment = segment;
		view->sector = (uint32_t)(at / DISK_SECTOR);
		view->log = m.header->log;
		*cursor = (at + step) | bad;
		return 0;
	}
	*cursor = at | bad;
	return bad ? -EBADMSG : -ENOENT;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void adopt(uint64_t *next, uint64_t seen)
{
	assert(seen < STORE_NUMBER_MAX);
	if (*next < seen + STORE_GAP)
		*next = seen + STORE_GAP;
}

/* Numbers of every verifying record, of former lives too: the header that would have told a life's
 * number may be the very thing that rotted. Records of former lives may be partly overwritten by
 * later ones, so one that does not verify is not stepped over whole; patience bounds the work. */
static void adopt_all(struct store *s, const struct summary *m)
{
	size_t step, patience = 4 * m->bytes;

	if (m->header)
		adopt(&s->next_sequence, m->header->sequence);
	for (size_t at = DISK_SECTOR; at < m->bytes; at += step) {
		const struct disk_record *r = (const struct disk_record *)(m->base + at);

		step = DISK_SECTOR;
		if (!head_is_ours(s, m, at) || patience < r->bytes)
			continue;
		if (!body_is_valid(s, r)) {
			patience -= r->bytes;
			continue;
		}
		step = r->bytes;
		adopt(&s->next_sequence, r->segment_seq);
		adopt(&s->set->next_lsn, r->lsn);
		store_flushed(s, r->flushed_lsn);
	}
}

/*
 * Where the segment can be gone on with: behind every record of this life, those that do not verify
 * included, and behind the data that any of them names. So nothing is written over that could ever
 * be taken for a part of it. m: valid. g->data_next, from: behind the last run that verifies.
 */
static void find_end(const struct store *s, const struct summary *m, struct store_segment *g,
		     size_t from)
{
	g->record_next = from;
	for (size_t at = from, step; at < m->bytes; at += step) {
		const struct disk_record *r = (const struct disk_record *)(m->base + at);

		step = DISK_SECTOR;
		if (r->store_id != m->header->store_id || r->segment_seq != m->header->sequence)
			continue;
		if (!head_is_ours(s, m, at))
			return; /* it does not say which data is its own */
		step = r->bytes;
		g->record_next = at + step;
		if (r->type == DISK_RECORD_RUN && g->data_next < r->data_offset + r->data_bytes)
			g->data_next = r->data_offset + r->data_bytes;
	}
	/* A record of this life: so its header was flushed before (D8). */
	g->stale = g->data_next > s->super.summary_bytes;
	g->unfinished = g->header_done = g->lsn_first && m->bytes == s->super.summary_bytes;
}

static void tombs_seen(struct store_segment *g, const struct store_view *v)
{
	assert(v->head->block_count > 0);
	for (uint32_t i = 0; i < v->head->block_count; i++) {
		uint64_t bound = min_u64(v->block[i].salt, v->head->lsn);

		g->lsn_tombstone = bound > g->lsn_tombstone ? bound : g->lsn_tombstone;
		g->tomb_keys++;
	}
}

int store_recover(struct store *s, uint32_t segment, const void *buf, size_t bytes)
{
	struct summary m = summary_of(s, buf, bytes);
	struct store_segment *g = &s->segment[segment];
	struct store_view view;
	size_t cursor = 0, behind = DISK_SECTOR;
	int records = 0;

	assert(segment < s->segment_count);
	assert(g->state == STORE_FREE && g->sequence == 0);
	adopt_all(s, &m);
	g->recovered = true;
	g->suspect = bytes < s->super.summary_bytes ||
		      (!m.header && !store_is_zero(buf, bytes)); /* else it was never used */
	if (!m.header)
		return -EBADMSG;
	g->state = STORE_SEALED;
	g->log = (uint8_t)m.header->log;
	g->sequence = m.header->sequence;
	while (store_next(s, segment, buf, bytes, &cursor, &view) == 0) {
		uint64_t lsn = view.head->lsn;

		records++;
		if (!g->lsn_first || lsn < g->lsn_first)
			g->lsn_first = lsn;
		if (view.head->type == DISK_RECORD_RUN) {
			behind = (size_t)((const uint8_t *)view.head - m.base) + view.head->bytes;
			g->moved |= view.head->flags & DISK_RECORD_SETTLED;
		}
		if (view.head->type == DISK_RECORD_TOMBSTONE)
			tombs_seen(g, &view);
	}
	g->suspect |= cursor & CURSOR_BAD;
	/* Of tombstones, too: a run behind them may have been misread, and show up later. */
	g->lsn_on_disk = g->lsn_first;
	g->data_next = view.data_end ? view.data_end : s->super.summary_bytes;
	find_end(s, &m, g, behind);
	return records;
}

static bool is_of_life(const struct store *s, uint32_t segment, const struct disk_record *r)
{
	return r->magic == DISK_RECORD_MAGIC && r->store_id == s->super.store_id &&
	       r->segment_seq == s->segment[segment].sequence &&
	       head_is_sane(s, r, s->super.summary_bytes);
}

const struct disk_record *store_next_run(const struct store *s, uint32_t segment, const void *buf,
					 size_t bytes, size_t *cursor)
{
	assert(segment < s->segment_count && bytes % DISK_SECTOR == 0);
	while (*cursor < bytes) {
		const struct disk_record *r =
			(const struct disk_record *)((const uint8_t *)buf + *cursor);
		bool ours = is_of_life(s, segment, r);

		if (ours && *cursor && r->bytes > bytes - *cursor)
			return NULL; /* it goes on behind these bytes */
		*cursor += ours ? r->bytes : DISK_SECTOR;
		if (ours && r->type == DISK_RECORD_RUN && *cursor <= bytes && body_is_valid(s, r))
			return r;
	}
	return NULL;
}

const struct disk_record *store_next_tombstone(const struct store *s, uint32_t segment,
					       const void *buf, size_t bytes, size_t *cursor)
{
	assert(segment < s->segment_count && bytes % DISK_SECTOR == 0);
	while (*cursor < bytes) {
		const struct disk_record *r =
			(const struct disk_record *)((const uint8_t *)buf + *cursor);
		bool ours = is_of_life(s, segment, r);

		*cursor += ours ? r->bytes : DISK_SECTOR;
		if (ours && r->type == DISK_RECORD_TOMBSTONE && body_is_valid(s, r))
			return r;
	}
	return NULL;
}
