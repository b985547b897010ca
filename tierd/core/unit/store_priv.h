/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What store.c (appending), store_codec.c (bytes) and store_recover.c (reading back) share. Nobody
 * else includes it; the interface is store.h.
 */
#ifndef TIERD_CORE_STORE_PRIV_H
#define TIERD_CORE_STORE_PRIV_H

#include "tierd/core/unit/store.h"

/* Bounds on what a super block may say, so that no number of it can overflow a later sum or make
 * the daemon take memory without measure. */
#define STORE_SEGMENTS_MAX (1ull << 18)
#define STORE_SEGMENTS_MIN 2ull /* one a log */
#define STORE_SEGMENT_BYTES_MAX (16ull << 30)
#define STORE_SUMMARY_BYTES_MAX (64ull << 20)
#define STORE_CATALOG_BYTES_MAX ((1ull + ABI_CONTEXTS_MAX) * DISK_SECTOR)

/*
 * Sequence numbers and lsn at or above this are not ours (a rotten disk must not make them wrap).
 * After recovery both continue STORE_GAP above the highest seen, beyond all that was handed out
 * before the crash, also where its only trace is what could not be read this time (D2, D3).
 */
#define STORE_NUMBER_MAX (1ull << 62)
#define STORE_GAP (1ull << 32)

/* DISCARDING: free, but for what is being done to it. */
enum store_segment_state { STORE_FREE = 0, STORE_OPEN, STORE_SEALED, STORE_DISCARDING };

struct store_segment {
	uint8_t state; /* enum store_segment_state */
	uint8_t log;   /* of this life */
	uint8_t header_done; /* this life's header is known to be on disk */
	uint8_t shunned; /* cleaning it failed: others first */
	uint32_t pending;     /* runs between append and append_done */
	uint32_t reads;       /* under way */
	uint8_t unfinished;   /* recovered with room behind all that is of this life */
	uint8_t moved;        /* ... by what the cleaner moved */
	uint8_t stale; /* data was written since it was discarded, or may have been */
	uint8_t recovered; /* it is in the life in which recovery found it */
	uint8_t suspect; /* it may have records that nobody has seen */
	uint8_t held; /* has records of a context that was set aside: stays as it is */
	uint64_t sequence;    /* of this life; 0 = never opened and nothing recovered */
	uint64_t lsn_first;   /* of this life's first run (recovered: record); 0 = none */
	uint64_t lsn_on_disk; /* no run older than this can be found in it; 0 = none at all */
	uint64_t lsn_tombstone; /* what tombstones of this life void, up to here; 0 = none */
	uint64_t tomb_keys;     /* how many these are */
	uint64_t live;        /* bytes */
	uint64_t data_next;   /* offsets in the segment of the next run's data and record */
	uint64_t record_next;
};

struct store {
	struct disk_super super;
	uint32_t segment_count;
	uint32_t open[STORE_STREAMS]; /* the open segment, or ABI_SLOT_NONE */
	uint64_t next_sequence;
	uint64_t next_lsn;
	uint64_t flushed_lsn; /* D9 */
	uint64_t live;
	uint64_t appended_data, appended_records;
	uint64_t opened_cleaned; /* segments, for STORE_CLEANED */
	struct store_segment segment[];
};

static inline uint64_t sector_align(uint64_t bytes)
{
	return (bytes + DISK_SECTOR - 1) & ~(uint64_t)(DISK_SECTOR - 1);
}

/* Bytes of a record, padded. No factor can overflow: 32 blocks, 2^16 pages. */
static inline uint64_t store_record_bytes(uint64_t named, uint64_t blocks, uint64_t pages)
{
	return sector_align(sizeof(struct disk_record) + named * sizeof(struct disk_block) +
			    blocks * pages * sizeof(uint32_t));
}

/* Can it hold anything? */
static inline bool has_life(const struct store_segment *g)
{
	return g->state == STORE_OPEN || g->state == STORE_SEALED;
}

static inline uint64_t store_segment_offset(const struct store *s, uint32_t segment)
{
	return s->super.segment_offset + segment * s->super.segment_bytes;
}

/* D4: the CRC of bytes with the 4 bytes at crc_at as zero. */
uint32_t store_crc(const void *buf, size_t bytes, size_t crc_at);

/* All `bytes` bytes zero? For reserved fields. */
bool store_is_zero(const void *buf, size_t bytes);

#endif
