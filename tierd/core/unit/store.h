/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's logs (abi/disk.h), purely: which segment takes the next run, what bytes its record
 * has, what is live where, and how records are read back. No I/O: callers write what this encodes.
 *
 * Appending a run
 *   1. store_append: a place in the log's open segment, or a new segment (then the header at
 *      run->header_offset must be written, and complete, before anything else of it).
 *   2. Write the data at run->offset (any order, D7), wait.
 *   3. store_record: encode; write at run->record_offset, wait. For durable answers then flush.
 *   4. store_append_done: with ok = false the place is dead (counted until the segment is freed).
 */
#ifndef TIERD_CORE_STORE_H
#define TIERD_CORE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "libtier/abi/disk.h"

#define STORE_SEGMENT_BYTES_MIN (64ull << 10) /* of a segment; operators: config.c */

struct store;

/*
 * Each stream of runs has an open segment of its own. What the cleaner moves is older than what is
 * put: apart from it, it stays together, and the segments of either empty sooner.
 */
enum store_stream {
	STORE_CACHE = DISK_LOG_CACHE,
	STORE_DURABLE = DISK_LOG_DURABLE,
	STORE_CLEANED, /* of the durable log */
	STORE_STREAMS
};

struct store_run {
	uint32_t segment;
	uint32_t log;
	uint32_t blocks;          /* how many of those wanted fit */
	uint32_t named;           /* by its record: these, and absent ones between them (D14) */
	uint32_t record_bytes;    /* padded */
	uint64_t offset;          /* of the data in the store */
	uint64_t data_bytes;
	uint64_t record_offset;   /* in the store */
	uint64_t lsn;
	uint64_t bound;           /* tombstones: the highest lsn that one of them makes void; set to
				   * lsn by store_append_tombstone, lower it before append_done */
	uint64_t segment_seq;
	uint64_t header_offset;   /* 0 = the header is known to be on disk. Not 0: write it and
				   * wait before the data; once for all of them (store_opening) */
};

/* Check the super block's numbers against each other. Errors: -EINVAL (why says which). */
int store_super_check(const struct disk_super *super, char *why, size_t why_bytes);

/*
 * Numbers for a new store of this size. segment_bytes 0 = clamp(bytes/256, 4 MiB, 1 GiB). Errors:
 * -E2BIG more segments than there may be, -EINVAL too few, or a size that none can have.
 */
int store_super_plan(struct disk_super *super, uint64_t bytes, uint64_t segment_bytes,
		     uint64_t store_id);

int store_open(struct store **out, const struct disk_super *super); /* all segments free */
void store_close(struct store *s);
/*
 * It is a further device of the other's store, which outlives it: lsns are of all of them together,
 * and so is what tombstones are needed for (D3, D8). Before anything is read or appended.
 */
void store_join(struct store *s, struct store *home);
/* A device is not there, and comes back perhaps: all tombstones are needed until then. */
void store_missing(struct store *home, bool missing);
/*
 * The device is drained. store_seal: nothing is appended to what is open. store_next_live: the next
 * segment behind that one, round and round, in which something lives and that can be cleaned now;
 * -ENOENT = none. store_is_empty: nothing lives in it, nor is read or held. store_left: its home no
 * longer knows it, so it shows nothing that tombstones would be needed for.
 */
void store_seal(struct store *s);
int64_t store_next_live(const struct store *s, uint32_t segment);
bool store_is_empty(const struct store *s);
void store_left(struct store *s);
uint32_t store_segment_log(const struct store *s, uint32_t segment);

/*
 * Place for a run of up to `blocks` blocks of block_bytes with `pages` CRCs each, in a stream.
 * At least one block, at most DISK_RUN_BLOCKS_MAX. Errors: -ENOSPC no free segment (drop or clean
 * one), -EFBIG one block does not fit an empty segment. The last STORE_RESERVE free segments are
 * tombstones' and the cleaner's, the last one of all the cleaner's alone, so that cleaning can
 * always end.
 */
#define STORE_RESERVE 2u
#define STORE_RESERVED_FROM 12u /* smaller stores have no reserve, and are not cleaned */
int store_append(struct store *s, enum store_stream stream, uint32_t blocks, uint64_t block_bytes,
		 uint32_t pages, struct store_run *run);
/*
 * It said -ENOSPC, or store_append_tombstone did: the open segment of the cache log may be dropped.
 * What is wanted of it does not fit; or, in the smallest stores, it is all that could make way.
 */
void store_no_room(struct store *s, enum store_stream stream);
/*
 * The same for what the cleaner carries of one run, whose record also names `absent` ones, by the
 * bits of D14; not in every store. run->blocks: how many are wanted.
 */
bool store_may_name_absent(const struct store *s);
int store_append_thinned(struct store *s, enum store_stream stream, uint64_t block_bytes,
			 uint32_t pages, uint32_t absent, struct store_run *run);
/* The header that the run wrote is on the medium: runs that are appended from now on need none. */
void store_header_flushed(struct store *s, const struct store_run *run);
/*
 * A run under way opens the stream's segment: nothing is appended there but of its own batch. It
 * would write the header once more, and could tear it when others rely on it.
 */
bool store_opening(const struct store *s, enum store_stream stream);
/* Counts no live bytes: then call store_live. */
void store_append_done(struct store *s, const struct store_run *run, bool ok);

/*
 * It comes to nothing, and its record was never begun to be written: if nothing was appended behind
 * it, its room is used again. Of several the last one first.
 */
void store_append_undo(struct store *s, const struct store_run *run);

/* A tombstone record is one sector. */
#define STORE_TOMBSTONE_KEYS_MAX                                                                   \
	((DISK_SECTOR - (uint32_t)sizeof(struct disk_record)) / (uint32_t)sizeof(struct disk_block))

/* Place for a tombstone record of so many keys, in the durable log. As store_append; no data.
 * run->blocks says how many fit (at most a sector's). carried: by the cleaner, out of the segment
 * that it empties, where they had as many records at least. -EBUSY: the cleaner opens the only one
 * that has room. */
int store_append_tombstone(struct store *s, uint32_t keys, bool carried, struct store_run *run);

/* The last lsn that was given out: a tombstone for what is stored now reaches up to it. */
uint64_t store_lsn(const struct store *s);

/*
 * D9: all records up to this lsn have their data on the medium. Goes into later records; never
 * falls. After recovery it is what the store's records say.
 */
void store_flushed(struct store *s, uint64_t lsn);
uint64_t store_flushed_lsn(const struct store *s);

/* Bytes of the open segment headers and records. buf is record_bytes (4096 for the header). */
void store_header(const struct store *s, const struct store_run *run, void *buf);
/* head: context_uid, epoch, parts, parent, depth, pages_per_block, block_count, absent and type
 * filled; block_count is run->named, pages_per_block 0 in a tombstone. crc: of each block that is
 * there the carried pages, in the order of their numbers. flags: DISK_RECORD_*. */
void store_record(const struct store *s, const struct store_run *run,
		  const struct disk_record *head, const struct disk_block *blocks,
		  const uint32_t *crc, void *buf);

/* D7: where page `page` of block `block` of a run of `blocks` blocks starts, from its data start.
 * -ENOENT when its part is not carried. */
int64_t store_run_page(const struct abi_geometry *g, uint64_t parts, uint32_t blocks,
		       uint32_t block, uint32_t page);
uint64_t store_block_bytes(const struct abi_geometry *g, uint64_t parts);
uint32_t store_block_pages(const struct abi_geometry *g, uint64_t parts);

/*
 * What the record of one block of so many pages holds of the store: the share of a segment's data
 * that goes with as many sectors of its summary.
 */
uint64_t store_record_room(const struct store *s, uint32_t pages);
/* The same for so many tombstones, as the cleaner packs them. */
uint64_t store_tombstone_room(const struct store *s, uint64_t keys);

/* D5. */
uint32_t store_page_seed(const uint8_t *key, uint64_t salt, uint32_t page);

/* Accounts of live bytes by segment, and reads under way that keep a segment from re-use. */
uint32_t store_segment_of(const struct store *s, uint64_t offset);
void store_live(struct store *s, uint32_t segment, int64_t bytes);
void store_read_begin(struct store *s, uint32_t segment);
void store_read_end(struct store *s, uint32_t segment);

/* The sealed segment of the log with the lowest sequence number that is not read just now; -ENOENT
 * = none. */
int64_t store_oldest(const struct store *s, uint32_t log);
/* The next one after it (negative: the oldest). */
int64_t store_oldest_after(const struct store *s, uint32_t log, int64_t segment);
/* The sealed one of the log that shows the oldest run, if that is not newer than lsn. */
int64_t store_oldest_shown(const struct store *s, uint32_t log, uint64_t lsn);
/* A sealed segment without live bytes, reads or needed tombstones; -ENOENT = none. */
int64_t store_dead(const struct store *s);
/* Make it free: no live bytes, no reads. */
void store_segment_free(struct store *s, uint32_t segment);

/*
 * Of the free segments whose data area is not known to be discarded the one that will be opened
 * last, if more than `spared` are; -ENOENT = none. Those spared are opened before it.
 */
int64_t store_stale(const struct store *s, uint32_t spared);
/*
 * Discarding it
 *   1. store_discard_begin: the header of a new life at run->header_offset is to be written; until
 *      the end it is not opened.
 *   2. It is on the medium, flushed: store_discard_void. No record of before can be found in it.
 *   3. All of its data, behind the summary, may be anything from now on.
 *   4. store_discard_end: it is free again; stale = at 3 nothing was done, or not all.
 */
void store_discard_begin(struct store *s, uint32_t segment, struct store_run *run);
void store_discard_void(struct store *s, uint32_t segment);
void store_discard_end(struct store *s, uint32_t segment, bool stale);

/*
 * The sealed segment of the durable log that is best cleaned: much dead, and for long, so that what
 * lives in it stays (Rosenblum and Ousterhout 1992, section 3.6: (1 - u) * age / (1 + u)); or, for
 * room at once, the one with most dead. Only one of which at least `permille` is dead, `least` if
 * anything lives in it, and that is not read just now. Needed tombstones do not count as dead.
 * -ENOENT = none.
 */
int64_t store_victim(const struct store *s, uint32_t permille, uint32_t least, bool at_once);
/* How much of a segment's room would be won by emptying it. */
uint32_t store_dead_permille(const struct store *s, uint32_t segment);
/* It has records of a context that is set aside: whatever else it holds, it is not taken back. */
void store_hold(struct store *s, uint32_t segment);

/* It could not be cleaned: until its next life only when there is no other. */
void store_shun(struct store *s, uint32_t segment);
/* Segments that were opened for what the cleaner moves, in all. */
uint64_t store_opened_cleaned(const struct store *s);
/*
 * The lowest lsn that a run has which any segment shows; UINT64_MAX = there is none. 0: not all
 * that recovery was fed could be read, and what it did not see may be there at another start; until
 * these segments begin a new life.
 */
uint64_t store_oldest_lsn(const struct store *s);
void store_suspect(struct store *s, uint32_t segment);
/* Must tombstones of the segment be carried before it can be free (D8)? Those with a bound of at
 * least *oldest. Carried and flushed: it needs none of them any more. */
bool store_tombs_needed(const struct store *s, uint32_t segment, uint64_t *oldest);
void store_tombs_carried(struct store *s, uint32_t segment);
/* After recovery: no segment needs its tombstones; this one does, for one with this bound. */
void store_tombs_forget(struct store *s);
void store_tombs_found(struct store *s, uint32_t segment, uint64_t bound);

struct store_stats {
	uint32_t segments, segments_free, segments_open, segments_held;
	uint32_t log_segments[2];
	uint64_t log_live[2];
	uint64_t live, capacity; /* bytes of data */
	uint64_t appended_data, appended_records;
};
void store_stats(const struct store *s, struct store_stats *out);
/* Free segments, the reserve's included, but none that is being discarded. */
uint32_t store_free(const struct store *s);
/* As many records as its room for them that is used up, at most. */
uint32_t store_segment_records(const struct store *s, uint32_t segment);
/* For the audit: live bytes of one segment, who reads in it, runs that are being written; is it
 * being discarded? */
uint64_t store_segment_live(const struct store *s, uint32_t segment);
uint32_t store_segment_reads(const struct store *s, uint32_t segment);
uint32_t store_segment_pending(const struct store *s, uint32_t segment);
uint32_t store_segment_discarding(const struct store *s, uint32_t segment);

/* ---- reading back ------------------------------------------------------------------------- */

/* One record, checked against the segment and itself; pointers into the caller's buffer. Whether
 * parts, pages and bytes suit the context's geometry is the caller's to check. */
struct store_view {
	const struct disk_record *head;
	const struct disk_block *block;
	const uint32_t *crc;
	uint64_t data_offset; /* in the store */
	uint32_t sector; /* of its segment, at which the record begins */
	uint64_t data_end;    /* of the runs so far, in the segment: store_next's, between calls */
	uint64_t lsn_end;     /* of the records so far; likewise */
	uint32_t device; /* the caller's, not touched */
	uint32_t segment;
	uint32_t log; /* DISK_LOG_* */
};

/* Take a segment's header and the records that follow: adopts the sequence numbers and lsn, marks
 * the segment sealed, and, if it has room, as one to go on with. Returns the number of valid
 * records, or -EBADMSG (header; stays free). Once a segment, before the first append. Buffers of
 * summaries are aligned to 8. */
int store_recover(struct store *s, uint32_t segment, const void *summary, size_t bytes);

/*
 * Before either of these: put right one flipped bit in the header, which lies at the beginning of
 * a whole summary, or in a tombstone's record. Their CRCs tell where it is. It would undo deletions
 * that were acknowledged; of other records it costs the blocks that they name.
 */
void store_mend(const struct store *s, void *summary, size_t bytes, bool header);

/* After the last segment: each stream goes on with the newest segment of its own that was open. */
void store_resume(struct store *s);

/* Walk the records of a summary: *cursor = 0 first, then both as they were left. 0 = view filled,
 * -ENOENT = end, -EBADMSG = something was there that does not verify (also the end; what verifies
 * behind it was told before: records are written in any order, so a hole does not hide durable
 * ones, D1). */
int store_next(const struct store *s, uint32_t segment, const void *summary, size_t bytes,
	       size_t *cursor, struct store_view *view);

/*
 * Tombstones of the segment's present life, from part of its summary (whole sectors, from its
 * second on): *cursor = where in buf to look next, which may be behind it when a record goes on
 * there; subtract `bytes` for the part that follows. NULL = no more in here.
 */
const struct disk_record *store_next_tombstone(const struct store *s, uint32_t segment,
					       const void *buf, size_t bytes, size_t *cursor);

/*
 * Runs of the segment's present life, likewise. NULL = no more that are whole in here: at *cursor,
 * or behind the buffer, the next part begins. A record larger than the buffer is passed over.
 */
const struct disk_record *store_next_run(const struct store *s, uint32_t segment, const void *buf,
					 size_t bytes, size_t *cursor);

/* ---- super block and catalog -------------------------------------------------------------- */

/* Of a new store, with all that this version knows; of one that is there, as it is. */
void disk_super_seal(struct disk_super *super);
void disk_super_again(struct disk_super *super);
int disk_super_open(const void *sector, struct disk_super *out); /* -EBADMSG, -EPROTO version */

/* Encode into buf (zero padded to a sector). Returns bytes, or -EFBIG. */
int64_t disk_catalog_seal(void *buf, size_t buf_bytes, const struct disk_catalog *head,
			  const struct disk_context *context, const struct disk_limit *limit);
/* Check a slot. Errors: -EBADMSG, -EPROTO. */
int disk_catalog_open(const void *buf, size_t bytes, uint64_t store_id,
		      const struct disk_catalog **head, const struct disk_context **context);
/* Of one that was checked: its limit_count limits. */
const struct disk_limit *disk_catalog_limits(const struct disk_catalog *head);
/* Bytes of a catalog of so many contexts and limits. */
uint64_t disk_catalog_bytes(uint64_t contexts, uint64_t limits);

#endif
