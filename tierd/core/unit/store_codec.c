/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's bytes (abi/disk.h): super block, catalog, segment headers and records as they are
 * written, and the arithmetic of D5 and D7. Super block and catalog are also judged here; whatever
 * is read may be a rotten disk's, so nothing of it is used before it was checked.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "tierd/core/unit/store_priv.h"

#define MIB (1ull << 20)

/* ---- checksums ---------------------------------------------------------------------------- */

uint32_t store_crc(const void *buf, size_t bytes, size_t crc_at)
{
	static const uint8_t zero[sizeof(uint32_t)];
	const uint8_t *b = buf;
	size_t behind = crc_at + sizeof(zero);
	uint32_t crc = crc32c(0, b, crc_at);

	assert(behind <= bytes);
	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, b + behind, bytes - behind);
}

bool store_is_zero(const void *buf, size_t bytes)
{
	const uint8_t *b = buf;

	return !bytes || (!b[0] && memcmp(b, b + 1, bytes - 1) == 0);
}

uint32_t store_page_seed(const uint8_t *key, uint64_t salt, uint32_t page)
{
	uint64_t salt_le = htole64(salt);
	uint32_t page_le = htole32(page);
	uint8_t bytes[ABI_KEY_BYTES + sizeof(salt_le) + sizeof(page_le)];

	memcpy(bytes, key, ABI_KEY_BYTES);
	memcpy(bytes + ABI_KEY_BYTES, &salt_le, sizeof(salt_le));
	memcpy(bytes + ABI_KEY_BYTES + sizeof(salt_le), &page_le, sizeof(page_le));
	return crc32c(0, bytes, sizeof(bytes));
}

/* ---- super block -------------------------------------------------------------------------- */

static int refuse(char *why, size_t why_bytes, const char *text)
{
	snprintf(why, why_bytes, "%s", text);
	return -EINVAL;
}

static bool sectors(uint64_t bytes)
{
	return bytes % DISK_SECTOR == 0;
}

static int check_catalog(const struct disk_super *p, char *why, size_t n)
{
	if (!sectors(p->catalog_offset) || !sectors(p->catalog_bytes))
		return refuse(why, n, "the catalog is not aligned to sectors");
	if (p->catalog_offset < 2 * DISK_SECTOR)
		return refuse(why, n, "the catalog overlaps the super blocks");
	if (p->catalog_bytes < 2 * DISK_SECTOR || p->catalog_bytes > STORE_CATALOG_BYTES_MAX)
		return refuse(why, n, "the catalog's size is out of bounds");
	if (p->catalog_offset > p->segment_offset ||
	    p->catalog_bytes > (p->segment_offset - p->catalog_offset) / 2)
		return refuse(why, n, "the catalog overlaps the segments");
	return 0;
}

int store_super_check(const struct disk_super *p, char *why, size_t why_bytes)
{
	if (!sectors(p->segment_offset) || !sectors(p->segment_bytes) ||
	    !sectors(p->summary_bytes))
		return refuse(why, why_bytes, "the segments are not aligned to sectors");
	if (p->segment_bytes < STORE_SEGMENT_BYTES_MIN ||
	    p->segment_bytes > STORE_SEGMENT_BYTES_MAX)
		return refuse(why, why_bytes, "segment_bytes is out of bounds");
	if (p->summary_bytes < 2 * DISK_SECTOR || p->summary_bytes > STORE_SUMMARY_BYTES_MAX ||
	    p->summary_bytes >= p->segment_bytes)
		return refuse(why, why_bytes, "summary_bytes is out of bounds");
	if (p->segment_count < STORE_SEGMENTS_MIN || p->segment_count > STORE_SEGMENTS_MAX)
		return refuse(why, why_bytes, "segment_count is out of bounds");
	/* At most 2^18 segments of 2^34 bytes, so only the offset can be too large. */
	if (p->segment_offset > (uint64_t)INT64_MAX - p->segment_count * p->segment_bytes)
		return refuse(why, why_bytes, "the store ends beyond any file");
	return check_catalog(p, why, why_bytes);
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	if (value < low)
		return low;
	return value < high ? value : high;
}

int store_super_plan(struct disk_super *super, uint64_t bytes, uint64_t segment_bytes,
		     uint64_t store_id)
{
	struct disk_super p = { .store_id = store_id };

	if (!segment_bytes)
		segment_bytes = clamp(bytes / 256, 4 * MIB, 1024 * MIB) & ~(MIB - 1);
	p.segment_bytes = segment_bytes;
	/* 63 records in the smallest default segment; a 1 GiB one reads 16 MiB at recovery. */
	p.summary_bytes = clamp(segment_bytes / 64, MIB / 4, 16 * MIB);
	if (p.summary_bytes > segment_bytes / 4)
		p.summary_bytes = segment_bytes / 4;
	p.summary_bytes = sector_align(p.summary_bytes);
	p.catalog_offset = 2 * DISK_SECTOR;
	/* 63 contexts in the smallest, all that a host may have from 32 GiB on. */
	p.catalog_bytes = sector_align(clamp(bytes / 512, MIB / 4, STORE_CATALOG_BYTES_MAX));
	p.segment_offset = p.catalog_offset + 2 * p.catalog_bytes;
	p.segment_offset = (p.segment_offset + MIB - 1) & ~(MIB - 1);
	if (!segment_bytes || segment_bytes % DISK_SECTOR || bytes <= p.segment_offset)
		return -EINVAL;
	p.segment_count = (bytes - p.segment_offset) / segment_bytes;
	if (p.segment_count > STORE_SEGMENTS_MAX)
		return -E2BIG;
	if (store_super_check(&p, NULL, 0))
		return -EINVAL;
	*super = p;
	return 0;
}

void disk_super_seal(struct disk_super *super)
{
	super->magic = DISK_SUPER_MAGIC;
	super->version = DISK_VERSION;
	super->features = DISK_FEATURES & ~(DISK_FEATURE_HOME | DISK_FEATURE_MEMBER);
	if (super->home)
		super->features |= DISK_FEATURE_MEMBER;
	disk_super_again(super);
}

void disk_super_again(struct disk_super *super)
{
	memset(super->reserved, 0, sizeof(super->reserved));
	super->crc = store_crc(super, sizeof(*super), offsetof(struct disk_super, crc));
}

int disk_super_open(const void *sector, struct disk_super *out)
{
	memcpy(out, sector, sizeof(*out));
	if (out->magic != DISK_SUPER_MAGIC)
		return -EBADMSG;
	/* Before the CRC, whose rule is the version's: a newer store must not look like a rotten
	 * one, which somebody might format anew. */
	if (out->version != DISK_VERSION)
		return -EPROTO;
	if (out->crc != store_crc(out, sizeof(*out), offsetof(struct disk_super, crc)))
		return -EBADMSG;
	if (out->features & ~DISK_FEATURES || !store_is_zero(out->reserved, sizeof(out->reserved)))
		return -EPROTO;
	if (!out->home != !(out->features & DISK_FEATURE_MEMBER))
		return -EPROTO;
	return 0;
}

/* ---- catalog ------------------------------------------------------------------------------ */

static uint64_t limits_bytes(uint64_t limits)
{
	return sector_align(limits * sizeof(struct disk_limit));
}

uint64_t disk_catalog_bytes(uint64_t contexts, uint64_t limits)
{
	return sizeof(struct disk_catalog) + contexts * sizeof(struct disk_context) +
	       limits_bytes(limits);
}

const struct disk_limit *disk_catalog_limits(const struct disk_catalog *head)
{
	const struct disk_context *context = (const struct disk_context *)(head + 1);

	return (const struct disk_limit *)(context + head->count);
}

int64_t disk_catalog_seal(void *buf, size_t buf_bytes, const struct disk_catalog *head,
			  const struct disk_context *context, const struct disk_limit *limit)
{
	struct disk_catalog *out = buf;
	uint64_t whole = disk_catalog_bytes(head->count, head->limit_count);
	uint64_t bytes = disk_catalog_bytes(head->count, 0);

	_Static_assert(sizeof(*head) == DISK_SECTOR && sizeof(*context) == DISK_SECTOR, "sectors");
	assert(head->sequence > 0 && head->next_uid > 0);
	if (head->count > ABI_CONTEXTS_MAX || whole > buf_bytes)
		return -EFBIG;
	*out = *head;
	out->magic = DISK_CATALOG_MAGIC;
	out->version = DISK_VERSION;
	out->limit_crc = 0;
	memset(out->reserved, 0, sizeof(out->reserved));
	for (uint32_t i = head->drive_count; i < DISK_DRIVES_MAX - 1; i++)
		out->drive[i] = (struct disk_drive){ 0 };
	if (head->count)
		memcpy(out + 1, context, head->count * sizeof(*context));
	memset((uint8_t *)buf + bytes, 0, whole - bytes);
	if (head->limit_count) {
		memcpy((uint8_t *)buf + bytes, limit, head->limit_count * sizeof(*limit));
		out->limit_crc = crc32c(0, (uint8_t *)buf + bytes, whole - bytes);
	}
	out->crc = store_crc(buf, bytes, offsetof(struct disk_catalog, crc));
	return (int64_t)whole;
}

/* What a reader of the context may rely on without looking: texts end, counts index their arrays.
 * Whether its geometry makes sense is the core's to say (core_context_plan). */
static bool context_is_sane(const struct disk_context *x, uint64_t next_uid)
{
	const struct abi_geometry *g = &x->geometry;

	if (x->uid == 0 || x->uid >= next_uid || g->part_count > ABI_PARTS_MAX)
		return false;
	if (!memchr(x->name, 0, sizeof(x->name)) || !memchr(x->policy, 0, sizeof(x->policy)))
		return false;
	for (uint32_t i = 0; i < ABI_PARTS_MAX; i++)
		if (!memchr(g->part[i].name, 0, sizeof(g->part[i].name)))
			return false;
	return store_is_zero(x->reserved0, sizeof(x->reserved0));
}

static bool drives_are_sane(const struct disk_catalog *h)
{
	uint32_t n = h->drive_count;

	if (n >= DISK_DRIVES_MAX ||
	    !store_is_zero(h->drive + n, (DISK_DRIVES_MAX - 1 - n) * sizeof(h->drive[0])))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!h->drive[i].store_id || h->drive[i].capacity >> 56)
			return false;
	return true;
}

static bool limits_are_sane(const struct disk_catalog *h)
{
	const struct disk_limit *limit = disk_catalog_limits(h);
	uint64_t bytes = limits_bytes(h->limit_count), used = h->limit_count * sizeof(*limit);

	if (h->limit_crc != (bytes ? crc32c(0, limit, bytes) : 0))
		return false;
	for (uint32_t i = 0; i < h->limit_count; i++)
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
			if (limit[i].hard[t] && limit[i].soft[t] > limit[i].hard[t])
				return false;
	return store_is_zero((const uint8_t *)limit + used, bytes - used);
}

int disk_catalog_open(const void *buf, size_t bytes, uint64_t store_id,
		      const struct disk_catalog **head, const struct disk_context **context)
{
	const struct disk_catalog *h = buf;
	const struct disk_context *x = (const struct disk_context *)(h + 1);
	uint64_t need;

	assert((uintptr_t)buf % _Alignof(struct disk_catalog) == 0);
	if (bytes < sizeof(*h) || h->magic != DISK_CATALOG_MAGIC)
		return -EBADMSG;
	if (h->version != DISK_VERSION)
		return -EPROTO;
	need = disk_catalog_bytes(h->count, 0);
	if (h->count > ABI_CONTEXTS_MAX || h->store_id != store_id ||
	    disk_catalog_bytes(h->count, h->limit_count) > bytes)
		return -EBADMSG;
	if (h->crc != store_crc(buf, need, offsetof(struct disk_catalog, crc)))
		return -EBADMSG;
	if (h->sequence == 0 || h->sequence >= STORE_NUMBER_MAX || h->next_uid == 0 ||
	    h->next_uid >= STORE_NUMBER_MAX)
		return -EBADMSG;
	if (!store_is_zero(h->reserved, sizeof(h->reserved)))
		return -EPROTO;
	if (!limits_are_sane(h) || !drives_are_sane(h))
		return -EBADMSG;
	for (uint32_t i = 0; i < h->count; i++)
		if (!context_is_sane(&x[i], h->next_uid))
			return -EBADMSG;
	*head = h;
	*context = x;
	return 0;
}

/* ---- segment header and records ----------------------------------------------------------- */

void store_header(const struct store *s, const struct store_run *run, void *buf)
{
	struct disk_segment *h = buf;

	assert((uintptr_t)buf % _Alignof(struct disk_segment) == 0);
	assert(run->segment < s->segment_count && run->segment_seq > 0);
	memset(h, 0, sizeof(*h));
	h->magic = DISK_SEGMENT_MAGIC;
	h->version = DISK_VERSION;
	h->store_id = s->super.store_id;
	h->sequence = run->segment_seq;
	h->log = run->log;
	h->crc = store_crc(h, sizeof(*h), offsetof(struct disk_segment, crc));
}

void store_record(const struct store *s, const struct store_run *run,
		  const struct disk_record *head, const struct disk_block *blocks,
		  const uint32_t *crc, void *buf)
{
	bool tombstone = head->type == DISK_RECORD_TOMBSTONE;
	size_t block_bytes = head->block_count * sizeof(*blocks);
	size_t crc_bytes = run->blocks * (size_t)head->pages_per_block * sizeof(*crc);
	size_t used = sizeof(*head) + block_bytes + crc_bytes;
	struct disk_record *r = buf;
	uint8_t *body = (uint8_t *)(r + 1);

	assert((uintptr_t)buf % _Alignof(struct disk_record) == 0);
	assert(head->type == DISK_RECORD_RUN || tombstone);
	assert(tombstone == (run->data_bytes == 0) && tombstone == (head->pages_per_block == 0));
	assert(head->block_count == run->named && head->context_uid > 0);
	assert(tombstone ? !head->absent : disk_there_below(head, run->named) == run->blocks);
	assert(store_record_bytes(run->named, run->blocks, head->pages_per_block) ==
	       run->record_bytes);
	*r = *head;
	r->flushed_lsn = 0;
	r->magic = DISK_RECORD_MAGIC;
	r->crc = 0;
	r->store_id = s->super.store_id;
	r->segment_seq = run->segment_seq;
	r->lsn = run->lsn;
	r->bytes = run->record_bytes;
	r->data_bytes = run->data_bytes;
	r->data_offset =
		tombstone ? 0 : run->offset - store_segment_offset(s, run->segment);
	/* Older stores have these bytes as zero, and keep them so. */
	if (s->super.features & DISK_FEATURE_FLUSHED)
		r->flushed_lsn = s->flushed_lsn < run->lsn ? s->flushed_lsn : run->lsn - 1;
	else
		r->flags = 0;
	memset(r->reserved, 0, sizeof(r->reserved));
	memcpy(body, blocks, block_bytes);
	if (!(s->super.features & DISK_FEATURE_KEPT)) {
		struct disk_block *block = (struct disk_block *)body;

		r->written_ms = 0;
		for (uint32_t i = 0; i < r->block_count; i++)
			block[i].keep = 0;
	}
	if (crc_bytes)
		memcpy(body + block_bytes, crc, crc_bytes);
	memset((uint8_t *)buf + used, 0, run->record_bytes - used);
	r->crc = store_crc(buf, run->record_bytes, offsetof(struct disk_record, crc));
}

/* ---- D7 ----------------------------------------------------------------------------------- */

static bool carried(uint64_t parts, uint32_t part)
{
	return parts >> part & 1;
}

static uint64_t part_bytes(const struct abi_part *p)
{
	return (uint64_t)p->layers * p->groups * p->page_stride;
}

int64_t store_run_page(const struct abi_geometry *g, uint64_t parts, uint32_t blocks,
		       uint32_t block, uint32_t page)
{
	uint64_t offset = 0;

	assert(g->part_count <= ABI_PARTS_MAX && block < blocks && blocks <= DISK_RUN_BLOCKS_MAX);
	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *p = &g->part[i];
		uint32_t in_part = page - p->page_base;
		uint32_t layer, group;

		if (page < p->page_base || in_part >= p->layers * p->groups) {
			offset += carried(parts, i) ? blocks * part_bytes(p) : 0;
			continue;
		}
		if (!carried(parts, i))
			return -ENOENT;
		layer = in_part / p->groups;
		group = in_part % p->groups;
		offset += (((uint64_t)layer * blocks + block) * p->groups + group) *
			  p->page_stride;
		return (int64_t)offset;
	}
	return -ENOENT;
}

uint64_t store_block_bytes(const struct abi_geometry *g, uint64_t parts)
{
	uint64_t bytes = 0;

	assert(g->part_count <= ABI_PARTS_MAX);
	for (uint32_t i = 0; i < g->part_count; i++)
		bytes += carried(parts, i) ? part_bytes(&g->part[i]) : 0;
	return bytes;
}

uint32_t store_block_pages(const struct abi_geometry *g, uint64_t parts)
{
	uint32_t pages = 0;

	assert(g->part_count <= ABI_PARTS_MAX);
	for (uint32_t i = 0; i < g->part_count; i++)
		pages += carried(parts, i) ? g->part[i].layers * g->part[i].groups : 0;
	return pages;
}

/* ---- what records hold of the store ------------------------------------------------------- */

/* A segment is full when its data is or its summary: so much data goes with a sector of that. */
static uint64_t sector_room(const struct store *s)
{
	uint64_t capacity = s->super.segment_bytes - s->super.summary_bytes;

	return capacity / (s->super.summary_bytes / DISK_SECTOR - 1);
}

uint64_t store_record_room(const struct store *s, uint32_t pages)
{
	return store_record_bytes(1, 1, pages) / DISK_SECTOR * sector_room(s);
}

uint64_t store_tombstone_room(const struct store *s, uint64_t keys)
{
	return keys * sector_room(s) / STORE_TOMBSTONE_KEYS_MAX;
}
