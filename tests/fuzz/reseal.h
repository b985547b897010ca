/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums keep a fuzzer out of a format. These make them right again after the input has changed
 * the bytes, from nothing but the format's rule (abi/disk.h D4), so that what is behind them is
 * reached: a disk does not forge checksums, but whoever may write the file does.
 */
#ifndef TIER_TESTS_FUZZ_RESEAL_H
#define TIER_TESTS_FUZZ_RESEAL_H

#include "libtier/abi/disk.h"
#include "libtier/base/crc32c.h"
#include "tests/fuzz/fuzz.h"

static inline void reseal_super(struct disk_super *super)
{
	super->crc = 0;
	super->crc = crc32c(0, super, sizeof(*super));
}

static inline void reseal_catalog(struct disk_catalog *head, size_t bytes)
{
	uint64_t need = sizeof(*head) + head->count * (uint64_t)sizeof(struct disk_context);
	uint64_t limits = (head->limit_count * sizeof(struct disk_limit) + 4095) / 4096 * 4096;

	if (need + limits > bytes)
		return;
	head->limit_crc = limits ? crc32c(0, (const uint8_t *)head + need, limits) : 0;
	head->crc = 0;
	head->crc = crc32c(0, head, need);
}

/* A segment's header, and what begins like a record behind it. */
static inline void reseal_summary(uint8_t *base, size_t bytes)
{
	struct disk_segment *header = (struct disk_segment *)base;

	if (bytes < DISK_SECTOR || header->magic != DISK_SEGMENT_MAGIC)
		return;
	header->crc = 0;
	header->crc = crc32c(0, header, sizeof(*header));
	for (size_t at = DISK_SECTOR; at + DISK_SECTOR <= bytes; at += DISK_SECTOR) {
		struct disk_record *r = (struct disk_record *)(base + at);

		if (r->magic != DISK_RECORD_MAGIC || r->bytes < sizeof(*r) || r->bytes > bytes - at)
			continue;
		r->crc = 0;
		r->crc = crc32c(0, r, r->bytes);
	}
}

#endif
