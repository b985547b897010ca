/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's segments: where the next run goes, what is live in which segment, and when a segment
 * may begin a new life. Pure: callers write what store_codec.c encodes. Called by writeback.c
 * (append), block.c (live bytes), fetch.c (reads) and evict.c (oldest, dead, free).
 *
 * A free segment's old header and records stay on disk until its next life's header is written, and
 * a recovery before that finds them valid. That is harmless (blocks are named by their content),
 * except for removed blocks: so a tombstone is needed as long as any other segment, free ones
 * included, may show records that it makes void (D8). That is told by its bound, an lsn: several
 * segments are open at a time, so a tombstone can be about a record in a segment with a higher
 * sequence number than its own. Free segments with the oldest records are opened first, which ends
 * that need soonest; the cleaner carries what is still needed. One whose data is discarded begins a
 * life without records for that, so that it shows nothing of what is gone.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/unit/store_priv.h"

/* ---- life --------------------------------------------------------------------------------- */

int store_open(struct store **out, const struct disk_super *super)
{
	struct store *s;
	char why[80];

	assert(super);
	if (store_super_check(super, why, sizeof(why)))
		return -EINVAL;
	s = calloc(1, sizeof(*s) + super->segment_count * sizeof(s->segment[0]));
	if (!s)
		return -ENOMEM;
	s->super = *super;
	s->segment_count = (uint32_t)super->segment_count;
	for (uint32_t i = 0; i < STORE_STREAMS; i++)
		s->open[i] = ABI_SLOT_NONE;
	s->next_sequence = 1;
	s->own = (struct store_set){ .member = { s }, .count = 1, .next_lsn = 1 };
	s->set = &s->own;
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	free(s);
}

void store_join(struct store *s, struct store *home)
{
	assert(s->set == &s->own && home->set == &home->own && home->own.count < STORES_MAX);
	s->set = &home->own;
	home->own.member[home->own.count++] = s;
}

/* ---- appending ---------------------------------------------------------------------------- */

/* What one run needs of a segment. */
struct need {
	uint32_t blocks;
	uint32_t pages;       /* CRCs a block */
	uint64_t block_bytes; /* 0: a tombstone */
	uint32_t absent;      /* D14: bits of blocks that are named beside these */
};

/* How many a record names, absent ones included, whose data is that of the first `blocks`. */
static uint32_t named(const struct need *need, uint32_t blocks)
{
	uint32_t n = 0;

	if (!need->absent)
		return blocks;
	for (; blocks; n++)
		blocks -= !(need->absent >> n & 1);
	return n;
}

/* How many of the blocks fit behind data_next and record_next. */
static uint32_t blocks_that_fit(const struct store *s, const struct need *need, uint64_t data_next,
				uint64_t record_next)
{
	uint64_t record_left = s->super.summary_bytes - record_next;
	uint64_t fit = need->blocks;

	assert(data_next <= s->super.segment_bytes && record_next <= s->super.summary_bytes);
	if (record_left < DISK_SECTOR)
		return 0;
	while (fit &&
	       store_record_bytes(named(need, (uint32_t)fit), fit, need->pages) > record_left)
		fit--;
	if (need->block_bytes && fit > (s->super.segment_bytes - data_next) / need->block_bytes)
		fit = (s->super.segment_bytes - data_next) / need->block_bytes;
	return (uint32_t)fit;
}

/* Free segments are opened in this order: the oldest records on disk first, then those without. */
static uint64_t opens_at(const struct store_segment *g)
{
	return g->lsn_on_disk ? g->lsn_on_disk : UINT64_MAX - 1;
}

static uint32_t pick_free(const struct store *s)
{
	uint32_t best = ABI_SLOT_NONE;
	uint64_t best_lsn = UINT64_MAX;

	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (g->state == STORE_FREE && opens_at(g) < best_lsn) {
			best = i;
			best_lsn = opens_at(g);
		}
	}
	return best;
}

uint32_t store_free(const struct store *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->segment_count; i++)
		n += s->segment[i].state == STORE_FREE;
	return n;
}

/* Free segments that must be left over. */
static uint32_t reserve(const struct store *s, enum store_stream stream)
{
	if (s->segment_count < STORE_RESERVED_FROM || stream == STORE_CLEANED)
		return 0;
	return STORE_RESERVE;
}

static uint32_t log_of(enum store_stream stream)
{
	return stream == STORE_CACHE ? DISK_LOG_CACHE : DISK_LOG_DURABLE;
}

/*
 * The newest segment that a crash left unfinished, that has room for some of it and is not read:
 * the cleaner's victim must not be gone on with. The cleaner's own are its reserve: puts do not get
 * them; what it may have of others, when there is no free segment, is in `any`.
 */
static uint32_t pick_unfinished(const struct store *s, enum store_stream stream,
				const struct need *need, bool any)
{
	uint32_t best = ABI_SLOT_NONE;

	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (!g->unfinished || g->state != STORE_SEALED || g->reads || g->pending ||
		    g->log != log_of(stream))
			continue;
		if (g->moved != (stream == STORE_CLEANED) && !any)
			continue;
		if (!blocks_that_fit(s, need, g->data_next, g->record_next))
			continue;
		if (best == ABI_SLOT_NONE || s->segment[best].sequence < g->sequence)
			best = i;
	}
	return best;
}

static void take_up(struct store *s, enum store_stream stream, uint32_t segment)
{
	if (s->open[stream] != ABI_SLOT_NONE)
		s->segment[s->open[stream]].state = STORE_SEALED;
	s->segment[segment].state = STORE_OPEN;
	s->segment[segment].unfinished = false;
	s->segment[segment].shunned = false;
	s->open[stream] = segment;
}

static void begin_life(struct store *s, enum store_stream stream, uint32_t segment)
{
	struct store_segment *g = &s->segment[segment];

	assert(g->live == 0 && g->reads == 0 && g->pending == 0);
	g->log = (uint8_t)log_of(stream);
	g->header_done = false;
	g->lsn_first = g->lsn_tombstone = g->tomb_keys = 0;
	g->recovered = false;
	g->sequence = s->next_sequence++;
	g->data_next = s->super.summary_bytes;
	g->record_next = DISK_SECTOR;
	s->opened_cleaned += stream == STORE_CLEANED;
}

/*
 * One that was left unfinished before a free one: crashes in a row must not use up those. So many
 * free ones must be left over.
 */
static int open_segment(struct store *s, enum store_stream stream, const struct need *need,
			uint32_t left)
{
	uint32_t i = pick_unfinished(s, stream, need, stream == STORE_CACHE);
	bool room = store_free(s) > left;

	if (i == ABI_SLOT_NONE && !room && stream == STORE_CLEANED)
		i = pick_unfinished(s, stream, need, true);
	if (i == ABI_SLOT_NONE && !room)
		return -ENOSPC;
	if (i == ABI_SLOT_NONE) {
		i = pick_free(s);
		assert(i != ABI_SLOT_NONE);
		begin_life(s, stream, i);
	}
	take_up(s, stream, i);
	return 0;
}

void store_resume(struct store *s)
{
	const struct need least = { .blocks = 1, .pages = 1, .block_bytes = DISK_SECTOR };

	for (uint32_t stream = 0; stream < STORE_STREAMS; stream++) {
		uint32_t i = pick_unfinished(s, stream, &least, stream == STORE_CACHE);

		if (i != ABI_SLOT_NONE)
			take_up(s, stream, i);
	}
}

static void seal(struct store *s, enum store_stream stream)
{
	if (s->open[stream] == ABI_SLOT_NONE)
		return;
	s->segment[s->open[stream]].state = STORE_SEALED;
	s->open[stream] = ABI_SLOT_NONE;
}

static int append(struct store *s, enum store_stream stream, const struct need *need, uint32_t left,
		  struct store_run *run)
{
	struct store_segment *g = NULL;
	uint32_t fit = 0;
	int err;

	if (!blocks_that_fit(s, need, s->super.summary_bytes, DISK_SECTOR))
		return -EFBIG;
	if (s->open[stream] != ABI_SLOT_NONE) {
		g = &s->segment[s->open[stream]];
		fit = blocks_that_fit(s, need, g->data_next, g->record_next);
	}
	if (!fit) {
		err = open_segment(s, stream, need, left);
		if (err)
			return err;
		g = &s->segment[s->open[stream]];
		fit = blocks_that_fit(s, need, g->data_next, g->record_next);
	}
	assert(g->state == STORE_OPEN && fit > 0 && fit <= need->blocks);
	run->segment = s->open[stream];
	run->log = g->log;
	run->blocks = fit;
	run->named = named(need, fit);
	run->record_bytes = (uint32_t)store_record_bytes(run->named, fit, need->pages);
	run->data_bytes = fit * need->block_bytes;
	run->offset = store_segment_offset(s, run->segment) + g->data_next;
	run->record_offset = store_segment_offset(s, run->segment) + g->record_next;
	run->lsn = s->set->next_lsn++;
	run->segment_seq = g->sequence;
	/* Every run until one is done: none then depends on another's header write. */
	run->header_offset = g->header_done ? 0 : store_segment_offset(s, run->segment);
	g->stale |= need->block_bytes != 0;
	if (need->block_bytes && !g->lsn_first)
		g->lsn_first = run->lsn;
	if (need->block_bytes && !g->lsn_on_disk)
		g->lsn_on_disk = run->lsn; /* from now on, whatever becomes of the writes */
	g->data_next += run->data_bytes;
	g->record_next += run->record_bytes;
	g->pending++;
	assert(g->data_next <= s->super.segment_bytes);
	assert(g->record_next <= s->super.summary_bytes);
	return 0;
}

uint64_t store_lsn(const struct store *s)
{
	return s->set->next_lsn - 1;
}

void store_flushed(struct store *s, uint64_t lsn)
{
	assert(lsn < s->set->next_lsn);
	if (s->flushed_lsn < lsn)
		s->flushed_lsn = lsn;
}

uint64_t store_flushed_lsn(const struct store *s)
{
	return s->flushed_lsn;
}

int store_append(struct store *s, enum store_stream stream, uint32_t blocks, uint64_t block_bytes,
		 uint32_t pages, struct store_run *run)
{
	struct need need = { .pages = pages, .block_bytes = block_bytes };

	assert(stream < STORE_STREAMS);
	assert(blocks > 0 && pages > 0 && pages <= ABI_PAGES_PER_BLOCK_MAX);
	/* Pages are padded to ABI_PAGE_ALIGN in every context that has a place here. */
	assert(block_bytes > 0 && block_bytes % DISK_SECTOR == 0);
	need.blocks = blocks < DISK_RUN_BLOCKS_MAX ? blocks : DISK_RUN_BLOCKS_MAX;
	return append(s, stream, &need, reserve(s, stream), run);
}

bool store_may_name_absent(const struct store *s)
{
	return s->super.features & DISK_FEATURE_ABSENT;
}

int store_append_thinned(struct store *s, enum store_stream stream, uint64_t block_bytes,
			 uint32_t pages, uint32_t absent, struct store_run *run)
{
	const struct need need = {
		.blocks = run->blocks, .pages = pages, .block_bytes = block_bytes, .absent = absent,
	};

	assert(store_may_name_absent(s) && !(absent & 1));
	assert(need.blocks > 0 && named(&need, need.blocks) <= DISK_RUN_BLOCKS_MAX);
	return append(s, stream, &need, reserve(s, stream), run);
}

void store_no_room(struct store *s, enum store_stream stream)
{
	bool small = s->segment_count < STORE_RESERVED_FROM;

	if (stream == STORE_CACHE || (small && store_oldest(s, DISK_LOG_CACHE) < 0))
		seal(s, STORE_CACHE);
}

/* Nothing can be appended to it any more: sealed, it can be cleaned. */
static void seal_full(struct store *s, enum store_stream stream)
{
	struct store_segment *g;

	if (s->open[stream] == ABI_SLOT_NONE)
		return;
	g = &s->segment[s->open[stream]];
	assert(g->state == STORE_OPEN);
	if (s->super.summary_bytes - g->record_next < DISK_SECTOR)
		seal(s, stream);
}

/*
 * In the cleaner's stream, which it may be in the middle of: only while a free segment is left for
 * it besides. What it carries itself is a part of what that one is for.
 */
static int append_reserved(struct store *s, const struct need *need, bool carried,
			   struct store_run *run)
{
	int err = -ENOSPC;

	if (s->segment_count < STORE_RESERVED_FROM)
		return err;
	if (store_opening(s, STORE_CLEANED))
		return -EBUSY;
	if (carried)
		return append(s, STORE_CLEANED, need, 0, run);
	if (store_free(s))
		err = append(s, STORE_CLEANED, need, 1, run);
	if (err == -ENOSPC) {
		seal_full(s, STORE_DURABLE);
		seal_full(s, STORE_CLEANED);
	}
	return err;
}

int store_append_tombstone(struct store *s, uint32_t keys, bool carried, struct store_run *run)
{
	struct need need = { 0 };
	int err;

	assert(keys > 0);
	need.blocks = keys < STORE_TOMBSTONE_KEYS_MAX ? keys : STORE_TOMBSTONE_KEYS_MAX;
	/* The cache log is dropped by the segment, needed or not; the durable one is cleaned. */
	err = append(s, STORE_DURABLE, &need, reserve(s, STORE_DURABLE), run);
	if (err == -ENOSPC)
		err = append_reserved(s, &need, carried, run);
	if (!err)
		run->bound = run->lsn;
	return err;
}

bool store_opening(const struct store *s, enum store_stream stream)
{
	uint32_t i = s->open[stream];

	return i != ABI_SLOT_NONE && s->segment[i].pending && !s->segment[i].header_done;
}

void store_header_flushed(struct store *s, const struct store_run *run)
{
	assert(s->segment[run->segment].sequence == run->segment_seq);
	s->segment[run->segment].header_done = true;
}

void store_append_done(struct store *s, const struct store_run *run, bool ok)
{
	struct store_segment *g = &s->segment[run->segment];

	assert(run->segment < s->segment_count);
	assert(g->pending > 0 && g->sequence == run->segment_seq && has_life(g));
	g->pending--;
	if (!ok)
		return;
	g->header_done = true;
	g->lsn_on_disk = g->lsn_first; /* its new header voids all former lives (D2) */
	g->suspect &= g->recovered;
	if (run->data_bytes == 0) {
		if (run->bound > g->lsn_tombstone)
			g->lsn_tombstone = run->bound;
		g->tomb_keys += run->blocks;
	}
	s->appended_data += run->data_bytes;
	s->appended_records++;
}

void store_append_undo(struct store *s, const struct store_run *run)
{
	struct store_segment *g = &s->segment[run->segment];
	uint64_t from = store_segment_offset(s, run->segment);

	store_append_done(s, run, false);
	if (run->offset + run->data_bytes != from + g->data_next ||
	    run->record_offset + run->record_bytes != from + g->record_next)
		return;
	g->data_next -= run->data_bytes;
	g->record_next -= run->record_bytes;
	assert(g->data_next >= s->super.summary_bytes && g->record_next >= DISK_SECTOR);
}

/* ---- accounts ----------------------------------------------------------------------------- */

uint32_t store_segment_of(const struct store *s, uint64_t offset)
{
	uint64_t segment;

	assert(offset >= s->super.segment_offset);
	segment = (offset - s->super.segment_offset) / s->super.segment_bytes;
	assert(segment < s->segment_count);
	return (uint32_t)segment;
}

void store_live(struct store *s, uint32_t segment, int64_t bytes)
{
	struct store_segment *g = &s->segment[segment];

	assert(segment < s->segment_count && has_life(g));
	/* Unsigned sums wrap as they should; the bounds show what went below zero. */
	g->live += (uint64_t)bytes;
	s->live += (uint64_t)bytes;
	assert(g->live <= s->super.segment_bytes - s->super.summary_bytes);
	assert(s->live >= g->live);
}

void store_read_begin(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count && has_life(&s->segment[segment]));
	s->segment[segment].reads++;
}

void store_read_end(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count && s->segment[segment].reads > 0);
	s->segment[segment].reads--;
}

uint64_t store_segment_live(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	return s->segment[segment].live;
}

uint32_t store_segment_reads(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	return s->segment[segment].reads;
}

uint32_t store_segment_pending(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	return s->segment[segment].pending;
}

uint32_t store_segment_records(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	return (uint32_t)(s->segment[segment].record_next / DISK_SECTOR - 1);
}

/* ---- discarding --------------------------------------------------------------------------- */

int64_t store_stale(const struct store *s, uint32_t spared)
{
	int64_t best = -ENOENT;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (g->state != STORE_FREE || !g->stale)
			continue;
		n++;
		if (best < 0 || opens_at(g) >= opens_at(&s->segment[best]))
			best = i;
	}
	return n > spared ? best : -ENOENT;
}

void store_discard_begin(struct store *s, uint32_t segment, struct store_run *run)
{
	struct store_segment *g = &s->segment[segment];

	assert(segment < s->segment_count && g->state == STORE_FREE && g->stale);
	begin_life(s, (enum store_stream)g->log, segment);
	g->state = STORE_DISCARDING;
	*run = (struct store_run){ .segment = segment,
				   .log = g->log,
				   .segment_seq = g->sequence,
				   .header_offset = store_segment_offset(s, segment) };
}

void store_discard_void(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count && s->segment[segment].state == STORE_DISCARDING);
	s->segment[segment].lsn_on_disk = 0;
	s->segment[segment].suspect = false;
}

void store_discard_end(struct store *s, uint32_t segment, bool stale)
{
	struct store_segment *g = &s->segment[segment];

	assert(segment < s->segment_count && g->state == STORE_DISCARDING);
	assert(stale || !g->lsn_on_disk); /* nothing goes before its records do */
	g->state = STORE_FREE;
	g->stale = stale;
}

uint32_t store_segment_discarding(const struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	return s->segment[segment].state == STORE_DISCARDING;
}

/* ---- taking segments back ----------------------------------------------------------------- */

int64_t store_oldest(const struct store *s, uint32_t log)
{
	return store_oldest_after(s, log, -ENOENT);
}

int64_t store_oldest_after(const struct store *s, uint32_t log, int64_t segment)
{
	int64_t best = -ENOENT;
	uint64_t best_sequence = UINT64_MAX, after = segment < 0 ? 0 : s->segment[segment].sequence;

	assert(log == DISK_LOG_CACHE || log == DISK_LOG_DURABLE);
	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (g->state != STORE_SEALED || g->log != log || g->pending || g->reads || g->held)
			continue;
		if (g->sequence > after && g->sequence < best_sequence) {
			best = i;
			best_sequence = g->sequence;
		}
	}
	return best;
}

int64_t store_oldest_shown(const struct store *s, uint32_t log, uint64_t lsn)
{
	int64_t best = -ENOENT;

	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (g->state != STORE_SEALED || g->log != log || g->pending || g->reads ||
		    g->held || !g->lsn_on_disk || g->lsn_on_disk > lsn)
			continue;
		best = i;
		lsn = g->lsn_on_disk;
	}
	return best;
}

/* The lowest lsn of a run that any segment may show, and any but that one; UINT64_MAX = none. */
struct oldest {
	uint64_t lsn, next;
	const struct store_segment *segment;
};

static void oldest_of(const struct store *s, struct oldest *o)
{
	for (uint32_t i = 0; i < s->segment_count; i++) {
		uint64_t lsn = s->segment[i].lsn_on_disk;

		if (lsn && lsn < o->lsn)
			*o = (struct oldest){ lsn, o->lsn, &s->segment[i] };
		else if (lsn && lsn < o->next)
			o->next = lsn;
	}
}

/* On all devices: tombstones are about each of them. One that is missing may show anything. */
static struct oldest oldest_run(const struct store *s)
{
	struct oldest o = { UINT64_MAX, UINT64_MAX, NULL };

	if (s->set->missing)
		return (struct oldest){ 0, 0, NULL };
	for (uint32_t i = 0; i < s->set->count; i++)
		oldest_of(s->set->member[i], &o);
	assert(o.lsn <= o.next);
	return o;
}

static uint64_t oldest_elsewhere(const struct oldest *o, const struct store_segment *g)
{
	return o->segment == g ? o->next : o->lsn;
}

uint64_t store_oldest_lsn(const struct store *s)
{
	for (uint32_t k = 0; k < s->set->count; k++)
		for (uint32_t i = 0; i < s->set->member[k]->segment_count; i++)
			if (s->set->member[k]->segment[i].suspect)
				return 0;
	return oldest_run(s).lsn;
}

void store_missing(struct store *home, bool missing)
{
	assert(home->set == &home->own);
	home->own.missing = missing;
}

void store_suspect(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	s->segment[segment].suspect = true;
}

bool store_tombs_needed(const struct store *s, uint32_t segment, uint64_t *oldest)
{
	struct oldest o = oldest_run(s);

	assert(segment < s->segment_count);
	*oldest = oldest_elsewhere(&o, &s->segment[segment]);
	return s->segment[segment].lsn_tombstone && s->segment[segment].lsn_tombstone >= *oldest;
}

/*
 * What emptying the segment would take of another one, in bytes of data: what lives in it, or the
 * share of its records that needed tombstones take when each record has as many as it can. So what
 * is full of such is not carried round and round.
 */
static uint64_t wanted_of(const struct store *s, const struct oldest *o, uint32_t segment)
{
	const struct store_segment *g = &s->segment[segment];
	uint64_t capacity = s->super.segment_bytes - s->super.summary_bytes;
	uint64_t room = s->super.summary_bytes / DISK_SECTOR - 1, records = 0;

	assert(room > 0 && (g->tomb_keys || !g->lsn_tombstone));
	if (g->tomb_keys && g->lsn_tombstone >= oldest_elsewhere(o, g))
		records = (g->tomb_keys + STORE_TOMBSTONE_KEYS_MAX - 1) / STORE_TOMBSTONE_KEYS_MAX;
	records = records < room ? records : room;
	return g->live * room > records * capacity ? g->live : records * capacity / room;
}

uint32_t store_dead_permille(const struct store *s, uint32_t segment)
{
	uint64_t capacity = s->super.segment_bytes - s->super.summary_bytes;
	struct oldest o = oldest_run(s);

	assert(segment < s->segment_count);
	return (uint32_t)((capacity - wanted_of(s, &o, segment)) * 1000 / capacity);
}

void store_tombs_carried(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count && s->segment[segment].state == STORE_SEALED);
	s->segment[segment].lsn_tombstone = s->segment[segment].tomb_keys = 0;
}

void store_tombs_forget(struct store *s)
{
	for (uint32_t i = 0; i < s->segment_count; i++)
		s->segment[i].lsn_tombstone = s->segment[i].tomb_keys = 0;
}

void store_tombs_found(struct store *s, uint32_t segment, uint64_t bound)
{
	assert(segment < s->segment_count && s->segment[segment].state == STORE_SEALED);
	if (s->segment[segment].lsn_tombstone < bound)
		s->segment[segment].lsn_tombstone = bound;
	s->segment[segment].tomb_keys++;
}

int64_t store_dead(const struct store *s)
{
	struct oldest o = oldest_run(s);

	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];

		if (g->state != STORE_SEALED || g->live || g->reads || g->pending || g->held)
			continue;
		if (!g->lsn_tombstone || g->lsn_tombstone < oldest_elsewhere(&o, g))
			return i;
	}
	return -ENOENT;
}

void store_hold(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count && has_life(&s->segment[segment]));
	s->segment[segment].held = true;
}

void store_shun(struct store *s, uint32_t segment)
{
	assert(segment < s->segment_count);
	s->segment[segment].shunned = true;
}

uint64_t store_opened_cleaned(const struct store *s)
{
	return s->opened_cleaned;
}

int64_t store_victim(const struct store *s, uint32_t permille, uint32_t least, bool at_once)
{
	uint64_t capacity = s->super.segment_bytes - s->super.summary_bytes;
	struct oldest o = oldest_run(s);
	double best_score = 0;
	int64_t best = -ENOENT;

	if (s->segment_count < STORE_RESERVED_FROM)
		return -ENOENT;
	for (uint32_t i = 0; i < s->segment_count; i++) {
		const struct store_segment *g = &s->segment[i];
		uint64_t wanted = wanted_of(s, &o, i);
		uint32_t bar = g->live && least > permille ? least : permille;
		double use = (double)wanted / (double)capacity, score;

		if (g->state != STORE_SEALED || g->log != DISK_LOG_DURABLE || g->pending ||
		    g->reads || g->held || (capacity - wanted) * 1000 < capacity * bar)
			continue;
		score = 1 - use;
		if (!at_once)
			score *= (double)(s->next_sequence - g->sequence) / (1 + use);
		if (g->shunned)
			score *= 1e-9;
		if (score > best_score) {
			best = i;
			best_score = score;
		}
	}
	return best;
}

void store_segment_free(struct store *s, uint32_t segment)
{
	struct store_segment *g = &s->segment[segment];

	assert(segment < s->segment_count);
	assert(g->state == STORE_SEALED && g->live == 0 && g->reads == 0 && g->pending == 0);
	assert(!g->held);
	g->state = STORE_FREE;
	g->unfinished = g->moved = false;
}

void store_stats(const struct store *s, struct store_stats *out)
{
	*out = (struct store_stats){
		.segments = s->segment_count,
		.live = s->live,
		.capacity = s->segment_count * (s->super.segment_bytes - s->super.summary_bytes),
		.appended_data = s->appended_data,
		.appended_records = s->appended_records,
	};
	for (uint32_t i = 0; i < s->segment_count; i++) {
		if (has_life(&s->segment[i])) {
			out->log_segments[s->segment[i].log]++;
			out->log_live[s->segment[i].log] += s->segment[i].live;
		}
		out->segments_free += !has_life(&s->segment[i]);
		out->segments_open += s->segment[i].state == STORE_OPEN;
		out->segments_held += s->segment[i].held;
	}
}
