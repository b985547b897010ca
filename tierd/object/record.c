/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the catalog of objects; see record.h. */
#include "tierd/object/record.h"

#include <assert.h>
#include <string.h>

#include "libtier/base/crc32c.h"

#define SHIFT_MAX 40u

void object_record_cut(struct object_record *r, uint64_t size)
{
	uint64_t chunk = ABI_PAGE_ALIGN;

	r->size = size;
	r->shift = 0;
	while (r->shift < SHIFT_MAX && size / chunk >= DISK_OBJECT_CHUNKS_MAX) {
		chunk *= 2;
		r->shift++;
	}
	r->chunks = (uint32_t)((size + chunk - 1) / chunk);
}

uint32_t object_record_seed(uint64_t context, uint64_t version, uint64_t chunk)
{
	uint64_t words[3] = { context, version, chunk };

	return crc32c(0, words, sizeof(words));
}

/* Where the sums begin: names are padded to their alignment. */
static size_t sums_at(uint32_t name_bytes, uint32_t from_bytes)
{
	return (sizeof(struct disk_object) + name_bytes + from_bytes + 3) & ~(size_t)3;
}

static size_t record_bytes(uint32_t name_bytes, uint32_t from_bytes, uint32_t chunks)
{
	size_t bytes = sums_at(name_bytes, from_bytes) + chunks * sizeof(uint32_t);

	return (bytes + DISK_OBJECT_ALIGN - 1) & ~(size_t)(DISK_OBJECT_ALIGN - 1);
}

size_t object_record_encode(const struct object_record *r, uint64_t store_id, void *buffer)
{
	size_t bytes = record_bytes(r->name_bytes, r->from_bytes, r->chunks);
	struct disk_object *d = buffer;
	char *names = (char *)(d + 1);

	assert(r->name_bytes < ABI_OBJECT_NAME_BYTES && r->from_bytes < ABI_OBJECT_NAME_BYTES);
	assert(r->chunks <= DISK_OBJECT_CHUNKS_MAX && bytes <= DISK_OBJECT_RECORD_MAX);
	memset(buffer, 0, bytes);
	*d = (struct disk_object){
		.magic = DISK_OBJECT_MAGIC,
		.bytes = (uint32_t)bytes,
		.disk_version = DISK_OBJECT_VERSION,
		.type = r->type,
		.store_id = store_id,
		.lsn = r->lsn,
		.context_uid = r->context,
		.epoch = r->epoch,
		.version = r->version,
		.inode = r->inode,
		.size = r->size,
		.mtime_ns = r->mtime_ns,
		.expires_ms = r->expires_ms,
		.mode = r->mode,
		.priority = r->priority,
		.shift = r->shift,
		.chunks = r->chunks,
		.name_bytes = (uint16_t)r->name_bytes,
		.from_bytes = (uint16_t)r->from_bytes,
		.flags = r->early ? DISK_OBJECT_EARLY : 0,
		.settled = r->settled,
	};
	if (r->name_bytes)
		memcpy(names, r->name, r->name_bytes);
	if (r->from_bytes)
		memcpy(names + r->name_bytes, r->from, r->from_bytes);
	if (r->chunks)
		memcpy((char *)buffer + sums_at(r->name_bytes, r->from_bytes), r->crc,
		       r->chunks * sizeof(uint32_t));
	d->crc = crc32c(0, buffer, bytes);
	return bytes;
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool sums_good(const struct disk_object *d)
{
	struct object_record cut;

	if (d->type != DISK_OBJECT_PUT && d->type != DISK_OBJECT_MOVE)
		return d->chunks == 0 && d->shift == 0;
	if (d->size > INT64_MAX - ABI_PAGE_ALIGN)
		return false;
	object_record_cut(&cut, d->size);
	return d->chunks == cut.chunks && d->shift == cut.shift;
}

static bool name_good(const char *name, uint32_t bytes)
{
	return bytes > 0 && bytes < ABI_OBJECT_NAME_BYTES && !memchr(name, 0, bytes);
}

/* What verifies was written by a daemon; still, nothing of it is taken unseen. */
static bool record_good(const struct disk_object *d)
{
	const char *names = (const char *)(d + 1);
	bool moved = d->type == DISK_OBJECT_MOVE;

	if (d->disk_version != DISK_OBJECT_VERSION || d->type > DISK_OBJECT_MOVE)
		return false;
	if (d->name_bytes >= ABI_OBJECT_NAME_BYTES || d->from_bytes >= ABI_OBJECT_NAME_BYTES ||
	    d->chunks > DISK_OBJECT_CHUNKS_MAX ||
	    d->bytes != record_bytes(d->name_bytes, d->from_bytes, d->chunks))
		return false;
	if (d->type != DISK_OBJECT_HEADER && !name_good(names, d->name_bytes))
		return false;
	if (moved ? !name_good(names + d->name_bytes, d->from_bytes) : d->from_bytes != 0)
		return false;
	return d->priority <= ABI_OBJECT_PRIORITY_MAX && d->mode <= 0777 && sums_good(d);
}

/* A whole record whose CRC holds; *foreign: of another store. */
static bool verify(const struct object_scan *s, struct disk_object *d, bool *foreign)
{
	const uint8_t *at = s->bytes + s->at;
	size_t left = s->count - s->at;
	uint32_t sum;

	if (left < sizeof(*d))
		return false;
	memcpy(d, at, sizeof(*d));
	if (d->magic != DISK_OBJECT_MAGIC || d->bytes > left || d->bytes < sizeof(*d) ||
	    d->bytes > DISK_OBJECT_RECORD_MAX || d->bytes % DISK_OBJECT_ALIGN)
		return false;
	sum = d->crc;
	d->crc = 0;
	if (crc32c(crc32c(0, d, sizeof(*d)), at + sizeof(*d), d->bytes - sizeof(*d)) != sum)
		return false;
	*foreign = d->store_id != s->store_id;
	return !*foreign;
}

static void take(const uint8_t *at, const struct disk_object *d, struct object_record *out)
{
	const char *names = (const char *)at + sizeof(*d);

	*out = (struct object_record){
		.type = d->type,
		.lsn = d->lsn,
		.context = d->context_uid,
		.epoch = d->epoch,
		.version = d->version,
		.inode = d->inode ? d->inode : d->version,
		.size = d->size,
		.mtime_ns = d->mtime_ns,
		.expires_ms = d->expires_ms,
		.mode = d->mode,
		.priority = d->priority,
		.shift = d->shift,
		.chunks = d->chunks,
		.name_bytes = d->name_bytes,
		.from_bytes = d->from_bytes,
		.early = d->flags & DISK_OBJECT_EARLY,
		.settled = d->settled,
		.name = names,
		.from = names + d->name_bytes,
		.crc = (const uint32_t *)(const void *)(at + sums_at(d->name_bytes, d->from_bytes)),
	};
}

/* What is no record: zeros count once something follows them. */
static void pass(struct object_scan *s, size_t bytes)
{
	static const uint8_t zeros[DISK_OBJECT_ALIGN];

	if (bytes <= sizeof(zeros) && memcmp(s->bytes + s->at, zeros, bytes) == 0) {
		s->zeros += bytes;
	} else {
		s->holes += s->zeros + bytes;
		s->zeros = 0;
	}
	s->at += bytes;
}

bool object_scan_next(struct object_scan *s, struct object_record *out)
{
	while (s->at < s->count) {
		const struct disk_object *in = (const void *)(s->bytes + s->at);
		struct disk_object d;
		bool foreign = false;

		if (!verify(s, &d, &foreign)) {
			size_t left = s->count - s->at;

			s->foreign = s->foreign || foreign;
			pass(s, left < DISK_OBJECT_ALIGN ? left : DISK_OBJECT_ALIGN);
			continue;
		}
		if (!record_good(in) || d.lsn <= s->lsn) { /* O4 */
			pass(s, d.bytes);
			continue;
		}
		take(s->bytes + s->at, &d, out);
		s->holes += s->zeros;
		s->zeros = 0;
		s->at += d.bytes;
		s->lsn = d.lsn;
		return true;
	}
	return false;
}

uint64_t object_scan_settled(const void *bytes, size_t count, uint64_t store_id)
{
	struct object_scan s = { .bytes = bytes, .count = count, .store_id = store_id };
	struct object_record r;
	uint64_t settled = 0;

	while (object_scan_next(&s, &r))
		settled = r.settled > settled ? r.settled : settled;
	return settled;
}
