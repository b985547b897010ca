/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: what lies in the NVMe tier's file.
 *
 *   offset                       what
 *   0                            struct disk_super, one 4096-byte sector; a copy at 4096
 *   catalog_offset               two catalog slots of catalog_bytes each
 *   segment_offset + i * segment_bytes   segment i:
 *     +0                         struct disk_segment, one sector
 *     +4096 .. summary_bytes     records, one after another, each padded to 4096
 *     +summary_bytes .. end      data
 *
 * Life of a segment
 *   1. free: whatever it holds is stale.
 *   2. opened: header with a new, never used sequence number; all older records are void (D2).
 *      It is written by one run, or batch of the cleaner, and not again: no write tears it later.
 *   3. appended: a run's data (any order), then its record; for *durable* answers then a flush.
 *      The record also says up to which lsn a flush had covered all data when it was written.
 *   4. sealed when the next run does not fit; closed for ever when its last live block is gone or
 *      was moved by the cleaner, or its log drops it; then free. Its data may be discarded behind
 *      the flushed header of a life that has no records.
 *   5. after a crash the same life goes on, under the same header, behind every record of it, also
 *      those that do not verify, and behind the data that any of them names: what has no record
 *      is nobody's and is written over. Only if a record of it verifies (so its header was flushed
 *      before), its whole summary was read, and no record behind the last valid run is too torn
 *      to say which data it names.
 *
 * Recovery: read the super block, the catalog slot with the highest valid sequence, each segment's
 * header and every record behind it that verifies (records are written in any order: one that does
 * not verify is a hole, not the end); apply all records by lsn.
 *
 * Invariants
 *   D1  A record is written only after all its data writes completed. A durable completion is sent
 *       only after a flush that began after the record's write completed.
 *   D2  A record is valid only if store_id and segment_seq equal those of its segment's header.
 *   D3  lsn grows with every record of the store and is never used twice.
 *   D4  The CRC of a sector structure or record covers all of its bytes, the crc field as zero.
 *   D5  A page's CRC32C starts from seed = crc32c(crc32c(0, key), salt as 8 bytes LE, page number
 *       as 4 bytes LE) and runs over page_stride bytes: a page of another key, tenant or place
 *       does not verify. Behind page_bytes they are zeros, whatever the client's staging had
 *       there (in pages that were stored before that: what it had).
 *   D6  The catalog's two slots are written in turn; slot (sequence & 1) holds that sequence.
 *   D7  The data of a run is layer-major: for each part carried, for each layer, for each block,
 *       for each group of it, page_stride bytes; without gaps. Blocks that the record only names
 *       (D14) have no bytes there.
 *   D8  A tombstone is kept (carried by the cleaner) while another segment, free or not, may still
 *       show a run that it makes void: one with an lsn up to its bound. Of equal ones the newest
 *       is kept, and of several of one key the one with the highest bound.
 *   D9  The data of a record is known to be on the medium if a valid record's flushed_lsn reaches
 *       its lsn, or it has DISK_RECORD_SETTLED itself. A record alone proves nothing: it can have
 *       survived a crash that its data did not. What is not known is read before a durable answer
 *       is built upon it. A flush that failed freezes flushed_lsn until all that was written since
 *       the last good one has been written again, and a tombstone on the medium voids what that
 *       may have left without data, as it does what a start finds after flushed_lsn and
 *       hidden by a later record. No header ends a life before a new epoch or a removal that
 *       made its runs needless is known to be on the medium.
 *   D10 The runs of one life have their data in the order of their records, and none overlap.
 *   D11 A catalog without limits is byte for byte what it was before there were any; readers of
 *       that time refuse one that has some, as another version's.
 *   D12 A record says when it was written, by the store's clock, and of each block of a run its
 *       priority and what was left of its TTL then. The store's clock is the wall clock, but never
 *       behind its newest record.
 *   D13 Records of one life have rising lsns in the order of their places. One that follows a
 *       record with a higher lsn is void: it was not seen when the life went on after a crash (the
 *       device showed other bytes then), and its data may have been written over since.
 *   D14 Each block of a run follows the one before it in the record. Those that are marked absent
 *       are only named, for what follows them: of the run that the cleaner moved they were dead.
 *       The first and the last one are there.
 *   D15 A store may have several drives. Each has a super block, segments, sequence numbers and a
 *       flushed_lsn of its own; lsns are of all together, and so are tombstones, which are on the
 *       first with the catalog. The catalog names the others before any record is written there;
 *       one that it does not name holds nothing. While one that it names is missing every
 *       tombstone is kept.
 */
#ifndef TIER_ABI_DISK_H
#define TIER_ABI_DISK_H

#include <stdbool.h>

#include "libtier/abi/geometry.h"

#define DISK_SUPER_MAGIC 0x31524f5453524954ull  /* "TIRSTOR1" */
#define DISK_CATALOG_MAGIC 0x3154414353524954ull /* "TIRSCAT1" */
#define DISK_SEGMENT_MAGIC 0x3147455353524954ull /* "TIRSSEG1" */
#define DISK_RECORD_MAGIC 0x3143455253524954ull  /* "TIRSREC1" */
#define DISK_VERSION 1u
#define DISK_FEATURE_FLUSHED 1ull /* records have flushed_lsn and flags (D9), else both are zero */
#define DISK_FEATURE_KEPT 2ull /* records say how their blocks are kept (D12), likewise */
#define DISK_FEATURE_ABSENT 4ull /* records may name blocks that are absent (D14), else none does */
#define DISK_FEATURE_HOME 8ull /* the first drive of several: its catalog names the others (D15) */
#define DISK_FEATURE_MEMBER 16ull /* one of the others: nothing without its home */
#define DISK_FEATURES                                                                              \
	(DISK_FEATURE_FLUSHED | DISK_FEATURE_KEPT | DISK_FEATURE_ABSENT | DISK_FEATURE_HOME |      \
	 DISK_FEATURE_MEMBER)
#define DISK_DRIVES_MAX 8u
#define DISK_WRITTEN_MS_MAX (1ull << 48)
#define DISK_SECTOR 4096u
#define DISK_RUN_BLOCKS_MAX 32u

struct disk_super {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* D4 */
	uint64_t features; /* DISK_FEATURE_*; an unknown bit is refused */
	uint64_t store_id; /* random at format */
	uint64_t catalog_offset;
	uint64_t catalog_bytes; /* of one slot */
	uint64_t segment_offset;
	uint64_t segment_bytes;
	uint64_t segment_count;
	uint64_t summary_bytes;
	uint64_t home; /* of a member: store_id of its home; else zero */
	uint8_t reserved[4096 - 88];
}; /* 4096 bytes */

#define DISK_KIND_KV 1u
#define DISK_KIND_OBJECT 2u /* its objects are in a catalog of their own (object.h) */
struct disk_context {
	uint64_t uid; /* never used twice in a store */
	char name[ABI_NAME_BYTES];
	uint32_t owner_uid;
	uint32_t owner_gid;
	uint32_t mode; /* 0600, 0660 ...: r = open, w = put */
	uint32_t kind; /* DISK_KIND_* */
	uint64_t epoch;
	uint64_t blocks_max;
	uint64_t quota[ABI_TIER_COUNT]; /* bytes */
	uint8_t fingerprint[32];
	char policy[16];
	uint64_t soft[ABI_TIER_COUNT]; /* bytes that others cannot take; 0 = a fair share */
	uint64_t hard[ABI_TIER_COUNT]; /* in force, at most quota; 0 = quota */
	uint64_t pins[ABI_MEM_TIERS]; /* bytes that pins may claim; 0 = not set */
	uint8_t reserved0[960 - 264];
	struct abi_geometry geometry;
}; /* 4096 bytes */

/* A further drive of the store, there or not. */
#define DISK_DRIVE_LEAVES ((uint64_t)1) /* in capacity, of whole sectors: it is being drained */
struct disk_drive {
	uint64_t store_id;
	uint64_t capacity; /* bytes of data, and DISK_DRIVE_LEAVES */
}; /* 16 bytes */

struct disk_catalog {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* over header and contexts, D4 */
	uint64_t store_id;
	uint64_t sequence;
	uint64_t next_uid;
	uint32_t count;
	uint32_t limit_count;
	uint32_t limit_crc; /* over the sectors of limits; zero without */
	uint32_t drive_count; /* D15; zero without further drives */
	struct disk_drive drive[DISK_DRIVES_MAX - 1];
	uint8_t reserved[4096 - 56 - 16 * (DISK_DRIVES_MAX - 1)];
	/* struct disk_context context[count]; struct disk_limit limit[limit_count], zero padded */
}; /* 4096 bytes */

/*
 * What one salt of a context may hold. Bytes; 0 = not set. With DISK_LIMIT_PINS in context_uid:
 * hard says what its pins may claim, in a second entry beside the first.
 */
#define DISK_LIMIT_PINS (1ull << 63)
struct disk_limit {
	uint64_t context_uid;
	uint64_t salt; /* 0 = the public one */
	uint64_t soft[ABI_TIER_COUNT];
	uint64_t hard[ABI_TIER_COUNT];
}; /* 80 bytes */

#define DISK_LOG_CACHE 0u
#define DISK_LOG_DURABLE 1u
struct disk_segment {
	uint64_t magic;
	uint32_t version;
	uint32_t crc;
	uint64_t store_id;
	uint64_t sequence; /* D2 */
	uint32_t log;      /* DISK_LOG_* */
	uint32_t reserved0;
	uint8_t reserved[4096 - 40];
}; /* 4096 bytes */

#define DISK_RECORD_RUN 1u
#define DISK_RECORD_TOMBSTONE 2u
#define DISK_RECORD_SETTLED 1u /* flags: its data was flushed before it was written */
struct disk_record {
	uint64_t magic;
	uint32_t type;
	uint32_t crc; /* D4, over `bytes` bytes */
	uint64_t store_id;
	uint64_t segment_seq;
	uint64_t lsn;
	uint64_t context_uid;
	uint64_t epoch;
	uint32_t bytes; /* of the record with its padding */
	uint32_t block_count;
	uint64_t parts;       /* bit p: carried, in every block of the run */
	uint64_t data_offset; /* from the start of the segment */
	uint64_t data_bytes;
	uint8_t parent[ABI_KEY_BYTES]; /* key before the first block; zero = root */
	uint32_t depth;                /* blocks before the first */
	uint32_t pages_per_block;      /* carried: crc entries a block that is there */
	uint64_t flushed_lsn;          /* D9; below its own lsn */
	uint32_t flags;
	uint32_t absent; /* D14: bit i = the i-th block is only named */
	uint64_t written_ms; /* D12; since 1970, below DISK_WRITTEN_MS_MAX */
	uint8_t reserved[256 - 152];
	/* struct disk_block block[block_count]; uint32_t crc[pages_per_block] of those there */
}; /* 256 bytes */

struct disk_block {
	uint8_t key[ABI_KEY_BYTES];
	uint64_t salt; /* tombstone: records of the key up to this lsn are void */
	uint32_t origin_bytes; /* [later] the engine's own key, bounded, behind the crc table */
	uint32_t keep; /* D12: priority:2 | 0 = no TTL, 1 + units left:30; tombstone: 0 */
}; /* 48 bytes */

/* Of a run: is its i-th block there? How many of the first n are (n = block_count: all)? */
static inline bool disk_there(const struct disk_record *r, uint32_t i)
{
	return !(r->absent >> i & 1);
}

static inline uint32_t disk_there_below(const struct disk_record *r, uint32_t n)
{
	uint32_t absent = n < DISK_RUN_BLOCKS_MAX ? r->absent & ((1u << n) - 1) : r->absent;

	return n - (uint32_t)__builtin_popcount(absent);
}

#define DISK_KEEP_UNIT_MS 10u

static inline uint32_t disk_keep(uint32_t priority, bool lapses, uint32_t units)
{
	return (lapses ? units + 1 : 0) << 2 | priority;
}

static inline uint32_t disk_keep_priority(uint32_t keep)
{
	return keep & 3;
}

static inline bool disk_keep_lapses(uint32_t keep)
{
	return keep >> 2 != 0;
}

static inline uint32_t disk_keep_units(uint32_t keep)
{
	return (keep >> 2) - 1;
}

#endif
