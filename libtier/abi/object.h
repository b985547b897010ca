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
 *   OBJ_STAT              ->
 *                         <-        OBJ_INFO
 *   OBJ_LIST              ->
 *                         <-        OBJ_NAMES
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
 *
 * The catalog is a file of records, each padded to DISK_OBJECT_ALIGN, appended in the order of
 * their lsn. The first one is of type HEADER. A version's bytes lie in a plain file of its own,
 * named by the version's number in 16 hex digits.
 *
 * O1  A record of type PUT is appended after its version's file was flushed, and is answered after
 *     the catalog was flushed.
 * O2  A version's number is never used twice in a store. Files of versions that no record names are
 *     removed at start.
 * O3  The CRC of a record covers all of its bytes, the crc field as zero.
 * O4  A record that does not verify is a hole: what is behind it counts. One whose lsn is not above
 *     that of the record before it is void.
 * O5  A chunk is 4096 << shift bytes, the last one shorter; its CRC32C starts from seed = crc32c(0,
 *     context uid, version, number of the chunk, 8 bytes LE each).
 * O6  MOVE gives the version that it describes the new name, and takes the old one off it.
 * O7  A PUT of a version that the name has already changes what stat tells of it.
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
#define WIRE_OBJ_FLAGS 255u
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
	uint8_t reserved[40];
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

#define DISK_OBJECT_MAGIC 0x314a424f53524954ull /* "TIRSOBJ1" */
#define DISK_OBJECT_VERSION 1u
#define DISK_OBJECT_ALIGN 64u
#define DISK_OBJECT_CHUNKS_MAX 256u
#define DISK_OBJECT_RECORD_MAX 2048u

#define DISK_OBJECT_HEADER 0u
#define DISK_OBJECT_PUT 1u
#define DISK_OBJECT_REMOVE 2u
#define DISK_OBJECT_MOVE 3u
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
	uint8_t reserved[36];
	/* name, former name, zeros up to a multiple of 4, uint32_t crc[chunks], zeros */
}; /* 144 bytes */

#endif
