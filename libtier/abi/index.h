/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of one context: a memfd that the daemon writes and everyone else maps read-only.
 *
 *   offset            what
 *   0                 struct abi_index_header (one page of 4096 bytes)
 *   4096              struct abi_geometry
 *   event_offset      events, 128 bytes each, ABI_EVENTS of them, a ring
 *   bucket_offset     bucket lines, 64 bytes each, buckets_max of them (sparse)
 *   overflow_offset   overflow lines, the same struct
 *   block_offset      block lines, 64 bytes each, one a slot
 *   desc_offset       page descriptors, 32 bytes each, pages_per_block a slot
 *
 * Life of a block slot
 *   1. free: block.state = FREE, in no bucket.
 *   2. The writer fills key, epoch, parent, depth, raises generation, sets state PENDING (or
 *      COMMITTED, at recovery), then enters the slot into a bucket.
 *   3. All pages READY or on NVMe: state = COMMITTED (release). From here it can be a hit.
 *   4. Removal: the slot leaves its bucket (sequence word), state = FREE (release), generation is
 *      raised; every memory word of its pages is retired. The slot is re-used only when all its
 *      pages are ABSENT again.
 *
 * A reader's look-up
 *   1. h = abi_key_hash(key); n = bucket_count (acquire); b = abi_bucket_of(h, n).
 *   2. Read the head line's seq (acquire; odd = being written, retry); compare tags through the
 *      chain; for each equal tag read the block line: generation, state (both acquire), key, the
 *      other members, generation again: changed = retry. (State before key: a slot that is being
 *      filled anew shows FREE until its key is whole.)
 *   3. Nothing found: re-read seq and bucket_count; changed = back to 1. After ABI_READ_RETRIES
 *      look again ABI_READ_NAPS times, a nap before each: the writer may have been scheduled away
 *      in the middle of the bucket. Then the answer is a miss.
 *   4. A found slot is a hit when state is COMMITTED and block.epoch equals header.epoch.
 *
 * Invariants
 *   X1  seq of a head line covers its whole chain and the membership of the slots in it.
 *   X2  A key is in the table at most once.
 *   X3  generation of a slot changes between any two lives of it; key never changes within one.
 *   X4  A word is READY only between its publication and its retirement, which raises the version,
 *       as a move to another place does: no two lives of a page in a tier show the same word. A
 *       word whose version is ABI_VERSION_MAX is never made READY again. Descriptors of a free slot
 *       may become zero again: their pages begin beyond every version that the slot had.
 *   X5  bucket_count only grows; with count n, the lines [0, n) are valid.
 *
 * Events: what became of blocks, for who follows a context without asking (routers). The daemon
 * writes each into the next place of the ring and waits for nobody.
 *   E1  Event n, counted from 1, lies in place n % ABI_EVENTS. Its seq is n; 0 while it is written.
 *   E2  A reader looks at seq, copies, and looks again: any other number than the one it wants says
 *       that it was overtaken, and has lost what lies between.
 *   E3  A block's state changes before its event is written: who notes event_seq and reads all of
 *       the table then knows every block but for what later events say.
 *   E4  Which block comes and goes is told in the order in which it did.
 */
#ifndef TIER_ABI_INDEX_H
#define TIER_ABI_INDEX_H

#include "libtier/abi/geometry.h"

#define ABI_INDEX_MAGIC 0x3158444952454954ull /* "TIERIDX1" */
#define ABI_READ_RETRIES 64u
#define ABI_READ_NAPS 200u
#define ABI_READ_NAP_NS 50000u /* 10 to 20 ms in all */
#define ABI_BUCKET_SLOTS 9u
#define ABI_CHAIN_MAX 8u /* lines of one chain; a torn one may be a ring */

struct abi_index_header {
	uint64_t magic;
	uint32_t version;
	uint32_t features;
	uint64_t boot_token; /* of the daemon that made it: another one = re-attach (I15) */
	uint32_t context_id;
	uint32_t pages_per_block;
	uint64_t blocks_max;
	uint64_t buckets_max;
	uint64_t overflow_max;
	uint64_t bucket_offset;
	uint64_t overflow_offset;
	uint64_t block_offset;
	uint64_t desc_offset;
	uint64_t total_bytes;
	uint64_t mem_bytes[ABI_MEM_TIERS]; /* size of the context's memfd in each memory tier */
	uint8_t fingerprint[32];
	uint64_t event_offset; /* 0: a daemon that writes no events */
	/* References to blocks are good as long as it stays; 0 = boot_token. A daemon that takes
	 * over keeps it, and with it slots and generations (abi/handover.h Y4). */
	uint64_t life;
	uint8_t reserved0[4096 - 160 - 64];
	/* Written while clients read; a line of its own. */
	uint64_t bucket_count;
	uint64_t epoch;
	uint64_t closed; /* 1: the context was removed; every look-up is a miss */
	uint64_t event_seq; /* the newest event; 0 = none yet */
	uint64_t reserved1[4];
}; /* 4096 bytes */

#define ABI_EVENTS 1024u
#define ABI_EVENT_STORED 1u  /* a block is committed */
#define ABI_EVENT_MOVED 2u   /* its tier is another one */
#define ABI_EVENT_REMOVED 3u /* it was evicted or deleted */
#define ABI_EVENT_CLEARED 4u /* epoch raised, or context removed: no block of before is a hit */
struct abi_event {
	uint64_t seq;   /* E1 */
	uint32_t kind;
	uint32_t tier;  /* as abi_block.tier */
	uint32_t depth; /* as abi_block.depth */
	uint32_t reserved0;
	uint64_t epoch;
	uint8_t key[ABI_KEY_BYTES];
	uint8_t parent[ABI_KEY_BYTES]; /* STORED: key of the one before it; zero: none known */
	uint64_t reserved1[4];
}; /* 128 bytes */

struct abi_bucket {
	uint32_t seq;      /* odd while the writer is inside; only the head line's counts (X1) */
	uint32_t overflow; /* 1 + number of the next overflow line; 0 = none */
	uint32_t slot[ABI_BUCKET_SLOTS]; /* ABI_SLOT_NONE when empty */
	uint16_t tag[ABI_BUCKET_SLOTS];
	uint16_t reserved;
}; /* 64 bytes */

/* abi_block.state */
#define ABI_BLOCK_FREE 0u
#define ABI_BLOCK_PENDING 1u
#define ABI_BLOCK_COMMITTED 2u

struct abi_block {
	uint8_t key[ABI_KEY_BYTES];
	uint32_t state;
	uint32_t epoch;
	uint32_t generation;
	uint32_t parent; /* slot of the block before it, as far as known: a hint */
	uint32_t depth;  /* blocks before it in its prefix, as far as known */
	uint32_t parts;  /* bit p: part p is whole */
	uint32_t tier;   /* the slowest tier that a page's best copy is in: a hint for match */
	uint32_t child;  /* slot of one behind it: the daemon's; readers pass it over */
}; /* 64 bytes */

/*
 * One word per memory tier:  version:24 | state:4 | address:36 (units of 512 bytes in the
 * context's memfd of that tier; 32 TiB). Zero is ABSENT, version 0.
 */
#define ABI_ADDR_BITS 36u
#define ABI_STATE_BITS 4u
#define ABI_ADDR_MASK ((1ull << ABI_ADDR_BITS) - 1)
#define ABI_VERSION_SHIFT (ABI_ADDR_BITS + ABI_STATE_BITS)
#define ABI_VERSION_MAX 0xffffffu

#define ABI_PAGE_ABSENT 0u
#define ABI_PAGE_RESERVED 1u
#define ABI_PAGE_FILLING 2u
#define ABI_PAGE_READY 3u
#define ABI_PAGE_RETIRING 4u
#define ABI_PAGE_STATES 5u

/*
 * nvme word: 0 = absent, else  1:1 | log:1 | record:14 | device:6 | offset/4096:42. Device and
 * offset are the place; devices are numbered anew at each start, the store's first one is 0.
 * record: the sector of its segment's summary at which its record begins, for the daemon's books.
 */
#define ABI_NVME_PRESENT (1ull << 63)
#define ABI_NVME_DURABLE (1ull << 62)
#define ABI_NVME_RECORD_SHIFT 48u
#define ABI_NVME_RECORD_MASK 0x3fffull
#define ABI_NVME_DEVICE_SHIFT 42u
#define ABI_NVME_DEVICE_MASK 0x3fu
#define ABI_NVME_ADDR_MASK ((1ull << 42) - 1)

struct abi_page {
	uint64_t word[ABI_MEM_TIERS];
	uint64_t nvme;
	uint32_t crc; /* CRC32C, seeded with key and page number: abi/disk.h D5 */
	uint16_t streams[ABI_MEM_TIERS]; /* the daemon's book of streams; readers pass it over */
}; /* 32 bytes */

static inline uint64_t abi_word(uint64_t addr_bytes, uint32_t state, uint32_t version)
{
	return (uint64_t)version << ABI_VERSION_SHIFT | (uint64_t)state << ABI_ADDR_BITS |
	       addr_bytes >> ABI_UNIT_SHIFT;
}

static inline uint64_t abi_word_addr(uint64_t word)
{
	return (word & ABI_ADDR_MASK) << ABI_UNIT_SHIFT;
}

static inline uint32_t abi_word_state(uint64_t word)
{
	return word >> ABI_ADDR_BITS & ((1u << ABI_STATE_BITS) - 1);
}

static inline uint32_t abi_word_version(uint64_t word)
{
	return (uint32_t)(word >> ABI_VERSION_SHIFT);
}

static inline uint32_t abi_nvme_record(uint64_t nvme)
{
	return nvme >> ABI_NVME_RECORD_SHIFT & ABI_NVME_RECORD_MASK;
}

static inline uint64_t abi_nvme_offset(uint64_t nvme)
{
	return (nvme & ABI_NVME_ADDR_MASK) * 4096;
}

static inline uint32_t abi_nvme_device(uint64_t nvme)
{
	return (uint32_t)(nvme >> ABI_NVME_DEVICE_SHIFT) & ABI_NVME_DEVICE_MASK;
}

/* The place alone: without which log it is of. */
static inline uint64_t abi_nvme_place(uint32_t device, uint64_t offset)
{
	return (uint64_t)device << ABI_NVME_DEVICE_SHIFT | offset / 4096;
}

/* Keys are digests; one multiplication spreads what a careless engine leaves regular. */
static inline uint64_t abi_key_hash(const uint8_t *key)
{
	uint64_t a, b;

	__builtin_memcpy(&a, key, 8);
	__builtin_memcpy(&b, key + 8, 8);
	a = (a ^ b >> 32 ^ b << 32) * 0x9e3779b97f4a7c15ull;
	return a ^ a >> 32;
}

static inline uint16_t abi_key_tag(uint64_t hash)
{
	return (uint16_t)(hash >> 48);
}

/*
 * The entries of a line with this tag, as a set: bit i is entry i. The line's tags come as the
 * words that they lie in. Four are compared at once: a lane is zero where one is equal.
 */
static inline uint32_t abi_lanes_equal(uint32_t low, uint32_t high, uint64_t all)
{
	const uint64_t rest = 0x7fff7fff7fff7fffull;
	uint64_t x = (low | (uint64_t)high << 32) ^ all;
	uint64_t zero = ~(((x & rest) + rest) | x | rest) >> 15;

	/* The lowest bits of the lanes, side by side. */
	return (uint32_t)(zero * 0x0001000200040008ull >> 48 & 0xf);
}

static inline uint32_t abi_tags_equal(const uint32_t word[5], uint16_t tag)
{
	const uint64_t all = tag * 0x0001000100010001ull;

	return abi_lanes_equal(word[0], word[1], all) |
	       abi_lanes_equal(word[2], word[3], all) << 4 |
	       (uint32_t)((uint16_t)word[4] == tag) << 8;
}

/* Linear hashing (Litwin 1980): with n lines, 2^L <= n < 2^(L+1), lines below n - 2^L are split. */
static inline uint64_t abi_bucket_of(uint64_t hash, uint64_t count)
{
	uint64_t low = 1ull << (63 - __builtin_clzll(count));
	uint64_t b = hash & (2 * low - 1);

	return b < count ? b : b & (low - 1);
}

#endif
