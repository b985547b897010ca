/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What records of the durable log hold of the store beyond the bytes of their blocks. A segment is
 * full when its data is, or its summary: a record of a single small block takes a sector of that,
 * and keeps it until its last block is gone. So each is charged to its context, exactly: how many
 * of its blocks live is counted by record.
 *
 *   count[first_record of the drive + segment * sectors of a summary + sector of the record] = live
 *   blocks, which are one context's
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

/* The drives are open. */
int records_open(struct core *c)
{
	c->record_live = calloc(records_count(c) + 1, 1);
	return c->record_live ? 0 : -ENOMEM;
}

void records_close(struct core *c)
{
	free(c->record_live);
}

/* Of all drives: one count for each sector at which a record may begin. */
uint64_t records_count(const struct core *c)
{
	const struct drive *last = c->drive[c->drives - 1];

	return last->first_record + records_sectors(&last->super) * last->super.segment_count;
}

static uint64_t beyond(const struct store *store, const struct context *x, uint32_t slot,
		       uint32_t blocks)
{
	uint64_t bytes = blocks * block_bytes(x, slot);
	uint64_t room = blocks ? store_record_room(store, block_pages(x, slot)) : 0;

	return room > bytes ? room - bytes : 0;
}

/* Beyond their bytes, for so many of the context's blocks in one record, wherever it will be. */
uint64_t records_beyond(const struct core *c, const struct context *x, uint32_t slot,
			uint32_t blocks)
{
	return beyond(core_home(c)->store, x, slot, blocks);
}

/* The count of the clean block's record; NULL: it is in the cache log, which no record keeps. */
static uint8_t *count_of(const struct core *c, const struct context *x, uint32_t slot,
			 uint8_t *count)
{
	const struct drive *dv = block_drive(c, x, slot);
	uint64_t word = block_word(x, slot), sectors = records_sectors(&dv->super);

	assert(abi_nvme_record(word) < sectors);
	if (!(word & ABI_NVME_DURABLE))
		return NULL;
	return &count[dv->first_record + block_segment(c, x, slot) * sectors +
		      abi_nvme_record(word)];
}

/* The block is in its record from now on, by these counts. Returns by how much *bytes rises. */
uint64_t records_join(const struct core *c, const struct context *x, uint32_t slot, uint8_t *count)
{
	uint8_t *n = count_of(c, x, slot, count);
	uint64_t before;

	if (!n)
		return 0;
	assert(*n < DISK_RUN_BLOCKS_MAX);
	before = beyond(block_drive(c, x, slot)->store, x, slot, *n);
	++*n;
	return beyond(block_drive(c, x, slot)->store, x, slot, *n) - before; /* may wrap: a sum */
}

/* ... and no more. By how much they fall. */
uint64_t records_leave(const struct core *c, const struct context *x, uint32_t slot)
{
	uint8_t *n = count_of(c, x, slot, c->record_live);
	uint64_t before;

	if (!n)
		return 0;
	assert(*n > 0);
	before = beyond(block_drive(c, x, slot)->store, x, slot, *n);
	--*n;
	return before - beyond(block_drive(c, x, slot)->store, x, slot, *n);
}
