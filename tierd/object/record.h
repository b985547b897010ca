/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the catalog of objects (libtier/abi/object.h): to bytes and back. Pure; what is read
 * is judged, whatever the bytes.
 */
#ifndef TIERD_OBJECT_RECORD_H
#define TIERD_OBJECT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libtier/abi/object.h"

/* Names and sums lie where the record was read from, or where its maker keeps them. */
struct object_record {
	uint32_t type;
	uint64_t lsn;
	uint64_t context;
	uint64_t epoch;
	uint64_t version, inode;
	uint64_t size;
	uint64_t mtime_ns;
	uint64_t expires_ms;
	uint32_t mode;
	uint32_t priority;
	uint32_t shift;
	uint32_t chunks;
	uint32_t name_bytes, from_bytes;
	bool early;       /* O10 */
	uint64_t settled; /* O10 */
	const char *name, *from;
	const uint32_t *crc;
};

/* How a version of so many bytes is cut into chunks: sets shift and chunks. */
void object_record_cut(struct object_record *r, uint64_t size);

/*
 * It has lapsed, or is of an epoch before this one: it went without a record, and its file may
 * have, too. What it replaced is void all the same.
 */
static inline bool object_record_void(const struct object_record *r, uint64_t epoch,
				      uint64_t wall_ms)
{
	return r->epoch < epoch || (r->expires_ms && r->expires_ms <= wall_ms);
}

/* The CRC with which a chunk begins (O5). */
uint32_t object_record_seed(uint64_t context, uint64_t version, uint64_t chunk);

/* Into a buffer of DISK_OBJECT_RECORD_MAX bytes; returns how many of them it takes. */
size_t object_record_encode(const struct object_record *r, uint64_t store_id, void *buffer);

/* Reading a catalog. */
struct object_scan {
	const uint8_t *bytes;
	size_t count;
	uint64_t store_id;
	/* set as it goes on */
	size_t at;    /* behind the last record */
	uint64_t lsn; /* of the last record */
	uint64_t holes; /* bytes that were no record, but for zeros at the end (O11) */
	uint64_t zeros; /* since the last record */
	bool foreign;   /* a record that verifies is of another store */
};

/* The next record; false: there is none any more. */
bool object_scan_next(struct object_scan *s, struct object_record *out);

/* Up to which lsn the records of a catalog say that all is flushed (O10). */
uint64_t object_scan_settled(const void *bytes, size_t count, uint64_t store_id);

#endif
