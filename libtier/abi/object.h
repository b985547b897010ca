/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: named bytes of any length in a context of kind object. What the socket carries about
 * them, and the catalog of names on disk (docs/objects.md).
 *
 *   client                          daemon
 *   OBJ_OPEN              ->
 *                         <-        OBJ_INFO + 1 fd: read-only, offset 0 is the first byte
 *   OBJ_CREATE            ->
 *                         <-        OBJ_INFO + 1 fd: the upload, to be written
 *   OBJ_COMMIT | OBJ_SYNC ->
 *                         <-        OBJ_INFO, when it is durable
 *   OBJ_STAT              ->        of a name, or of the context's room
 *                         <-        OBJ_INFO
 *   OBJ_LIST              ->
 *                         <-        OBJ_NAMES
 *   OBJ_INDEX             ->
 *                         <-        OBJ_INFO + 1 fd: the context's index of names, read-only
 *   OBJ_HOLD | OBJ_HINT   ->        no answer
 *   OBJ_ABORT | OBJ_REMOVE | OBJ_RENAME | OBJ_SET ->
 *                         <-        DONE (but for ABORT when durable)
 *   anything              <-        ERROR instead of the answer
 *
 * W5  A name is 1 to 255 bytes, none of them NUL, and zeros follow it. It is compared byte by byte.
 * W6  Questions name the context, not its id: they need no context open. One that the credentials
 *     do not open is not there (I4).
 * W7  An upload is its connection's. When that ends it is dropped, unless WIRE_OBJ_AT_CLOSE was
 *     said and its descriptor is still open somewhere: then it is committed when the last one
 *     closes.
 * W8  A shared upload is its user's: whoever of the uid knows its number may commit and sync it. It
 *     ends when nobody has it open. Without a COMMIT before it is dropped then: what was synced
 *     last stays.
 * W9  A temporary upload is published by the RENAME that takes it to its last name, which is
 *     answered when it is durable; one that is never renamed goes with its process.
 *
 * The index of names is memory of a context that the daemon alone writes: a header of a page, then
 * slots, a power of two of them, probed one behind the other from the name's key on.
 *
 * N1  A slot is written under its sequence word: odd while it changes. What was read between two
 *     equal even ones is what it held.
 * N2  A name's slot stays where it is until the name goes. A key of 0 ends a probe; a dead slot
 *     (key 1) does not.
 * N3  An index says nothing before it is READY, and nothing any more when it is GONE (it became too
 *     small, the epoch was raised, the context removed): who reads asks, and asks for the next one.
 *     What a look-up says counts if the index is READY before it and behind it.
 * N4  A slot that says ASK is of a name that somebody writes: the daemon is asked.
 * N5  What look-ups found counts as used: HOLD names the slots, and their versions leave memory
 *     last, as if they were opened. What has left by the open all the same is brought.
 *
 * The catalog is a file of records, each padded to DISK_OBJECT_ALIGN, appended in the order of
 * their lsn. The first one is of type HEADER. A version's bytes lie in a plain file of its own,
 * named by the version's number in 16 hex digits.
 *
 * O1  A record of type PUT is appended after its version's file was written, and is answered after
 *     both file and catalog were flushed, side by side (O10).
 * O8  What is lazy is answered when its record is written, and is flushed within 100 ms: a kill of
 *     the daemon does not lose it, a loss of power may, as in a directory that nobody flushed. SYNC
 *     of upload 0 waits for the flush of all that was answered.
 * O2  A version's number is never used twice in a store. Files of versions that no record names are
 *     removed at start.
 * O3  The CRC of a record covers all of its bytes, the crc field as zero.
 * O4  A record that does not verify is a hole: what is behind it counts. One whose lsn is not above
 *     that of the record before it is void.
 * O5  A chunk is 4096 << shift bytes, the last one shorter; its CRC32C starts from seed = crc32c(0,
 *     context uid, version, number of the chunk, 8 bytes LE each).
 * O6  MOVE gives the version that it describes the new name, and takes the old one off it.
 * O7  A PUT of a version that the name has already changes what stat tells of it.
 * O9  Versions of a name have one inode, and a rename takes it along, as in a directory: it goes
 *     with the name's removal or replacement alone. It is the number of the upload that began it.
 * O10 A PUT that was appended before its file was flushed says EARLY. A record's `settled` says up
 *     to which lsn all that was appended is flushed, files too. An EARLY one beyond the last of
 *     these counts if its file holds what its sums say; else it only uses up its version's number,
 *     the name has what it had, and the catalog is written anew before anything is appended.
 * O11 The catalog may end in zeros, which are room for records to come.
 */
#ifndef TIER_ABI_OBJECT_H
#define TIER_ABI_OBJECT_H

#include "libtier/abi/wire.h"

#define WIRE_OBJ_OPEN 16u
#define WIRE_OBJ_CREATE 17u
#define WIRE_OBJ_COMMIT 18u
#define WIRE_OBJ_ABORT 19u
#define WIRE_OBJ_STAT 20u
#define WIRE_OBJ_LIST 21u
#define WIRE_OBJ_REMOVE 22u
#define WIRE_OBJ_RENAME 23u
#define WIRE_OBJ_SYNC 24u /* what an upload holds now becomes a version; it goes on */
#define WIRE_OBJ_SET 25u /* mode or mtime, of a name or (upload not 0) of an upload */
#define WIRE_OBJ_INFO 26u
#define WIRE_OBJ_NAMES 27u
#define WIRE_OBJ_INDEX 28u
#define WIRE_OBJ_HOLD 29u
#define WIRE_OBJ_HINT 30u /* it will be opened soon: bring it; or (LAST) not soon again */

#define ABI_OBJECT_NAME_BYTES 256u /* with the NUL */
#define ABI_OBJECT_PRIORITY_MAX 3u

#define WIRE_OBJ_EXCLUSIVE 1u /* CREATE, RENAME: -EEXIST if the name is taken */
#define WIRE_OBJ_AT_CLOSE 2u  /* CREATE: W7. COMMIT: when nobody has it open any more */
#define WIRE_OBJ_COPY 4u      /* CREATE: the upload begins as a copy of the present version */
/* CREATE: one upload for all of the same uid who ask so; OPEN: that one, if there is one (W8) */
#define WIRE_OBJ_SHARED 8u
#define WIRE_OBJ_EXISTING 16u /* CREATE: -ENOENT unless there is one already */
#define WIRE_OBJ_FLAT 32u     /* LIST: only names without a slash behind the prefix */
#define WIRE_OBJ_MODE 64u     /* SET: the mode */
#define WIRE_OBJ_MTIME 128u   /* SET: mtime_ns */
#define WIRE_OBJ_LAST 256u    /* HINT */
#define WIRE_OBJ_LAZY 512u /* REMOVE, RENAME, SET: O8 */
/* CREATE: a shared upload of a temporary name; COMMIT and SYNC of it keep nothing (W9) */
#define WIRE_OBJ_TEMPORARY 1024u
#define WIRE_OBJ_FLAGS 2047u
struct wire_object {
	struct wire_header header;
	char context[ABI_NAME_BYTES];
	uint64_t wait_ns; /* OPEN, CREATE: how long who asks waits for the bytes; 0 = default */
	uint64_t upload;  /* COMMIT, ABORT, SYNC */
	uint64_t ttl_ms;  /* CREATE: removed so long after the commit; 0 = never */
	uint32_t flags;   /* WIRE_OBJ_* */
	uint32_t mode;    /* CREATE: what stat tells, 0777; 0 = 0644 */
	uint32_t priority; /* CREATE: 0 leaves memory first ... 3; */
	uint32_t count;    /* LIST: names at most; 0 = what fits */
	uint64_t mtime_ns;
	uint8_t reserved[32];
	char name[ABI_OBJECT_NAME_BYTES];  /* LIST: a prefix, may be empty */
	char other[ABI_OBJECT_NAME_BYTES]; /* RENAME: the new name; LIST: those behind this one */
}; /* 672 bytes */

#define WIRE_OBJ_RESIDENT 1u /* in memory now */
#define WIRE_OBJ_PENDING 2u  /* an upload of who asks, not committed */
#define WIRE_OBJ_DIRECT 4u   /* OPEN: the descriptor is of the file on NVMe (object.direct) */
struct wire_object_info {
	struct wire_header header;
	uint64_t upload; /* CREATE */
	uint64_t version;
	uint64_t size;
	uint64_t mtime_ns; /* since 1970 */
	uint64_t expires_ms; /* since 1970; 0 = never */
	uint32_t mode;
	uint32_t flags;
	uint32_t priority;
	uint32_t reserved0;
	uint64_t inode; /* O9 */
	uint64_t limit, free; /* STAT of no name: bytes in NVMe of the context, and left of them */
	uint8_t reserved[16];
}; /* 112 bytes */

struct wire_object_names {
	struct wire_header header;
	uint32_t count;
	uint32_t more; /* 1: there are further names behind the last one */
	/* struct wire_object_name, each padded to 8 */
}; /* 24 bytes */

struct wire_object_name {
	uint64_t size;
	uint64_t mtime_ns;
	uint32_t flags; /* WIRE_OBJ_RESIDENT */
	uint32_t name_bytes;
	/* the name, no NUL */
}; /* 24 bytes */

#define WIRE_HOLDS_MAX 64u
struct wire_object_hold {
	struct wire_header header;
	char context[ABI_NAME_BYTES];
	uint64_t generation; /* of the index that the slots are of */
	uint32_t count;
	uint32_t slot[WIRE_HOLDS_MAX];
	uint32_t passed; /* 1: a real file below a PATH was opened for writing; it is counted */
}; /* 352 bytes */

#define ABI_NAMES_MAGIC 0x3153454d414e5254ull /* "TRNAMES1" */
#define ABI_NAMES_SLOTS_MAX (1u << 21)
#define ABI_NAMES_FILLING 0u
#define ABI_NAMES_READY 1u
#define ABI_NAMES_GONE 2u
#define ABI_NAMES_DEAD 1u
#define ABI_NAMES_ASK 1u
struct abi_names_slot {
	uint64_t sequence; /* N1 */
	uint64_t key[2];
	uint64_t inode; /* O9 */
	uint64_t size;
	uint64_t mtime_ns;
	uint64_t expires_ms; /* since 1970; 0 = never */
	uint64_t word;       /* mode, priority << 16, flags (ABI_NAMES_ASK) << 32 */
}; /* 64 bytes */

struct abi_names {
	uint64_t magic;
	uint32_t abi_version; /* ABI_VERSION */
	uint32_t slots;
	uint64_t generation; /* another for each index of a boot */
	uint64_t seed[2];    /* of keys */
	uint32_t state;      /* N3 */
	uint32_t reserved[1013];
	struct abi_names_slot slot[];
}; /* 4096 bytes */

#define DISK_OBJECT_MAGIC 0x314a424f53524954ull /* "TIRSOBJ1" */
#define DISK_OBJECT_VERSION 1u
#define DISK_OBJECT_ALIGN 64u
#define DISK_OBJECT_CHUNKS_MAX 256u
#define DISK_OBJECT_RECORD_MAX 2048u

#define DISK_OBJECT_HEADER 0u
#define DISK_OBJECT_PUT 1u
#define DISK_OBJECT_REMOVE 2u
#define DISK_OBJECT_MOVE 3u

#define DISK_OBJECT_EARLY 1u /* PUT: O10 */
struct disk_object {
	uint64_t magic;
	uint32_t crc;   /* O3 */
	uint32_t bytes; /* of the record with its padding */
	uint32_t disk_version; /* DISK_OBJECT_VERSION */
	uint32_t type;
	uint64_t store_id;
	uint64_t lsn;
	uint64_t context_uid;
	uint64_t epoch; /* of the context when it was put */
	uint64_t version; /* HEADER: all numbers below are used up */
	uint64_t size;
	uint64_t mtime_ns;
	uint64_t expires_ms;
	uint32_t mode;
	uint32_t priority;
	uint32_t shift;  /* O5 */
	uint32_t chunks; /* entries of the crc table */
	uint16_t name_bytes;
	uint16_t from_bytes; /* MOVE: the name that it had */
	uint32_t flags; /* DISK_OBJECT_EARLY */
	uint64_t inode; /* O9; 0: the version */
	uint64_t settled; /* O10 */
	uint8_t reserved[16];
	/* name, former name, zeros up to a multiple of 4, uint32_t crc[chunks], zeros */
}; /* 144 bytes */

#endif
