/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: segments' records become blocks again, without reading data. Records may be fed in any
 * order: the newest lsn of a key wins, and tombstones are applied at the end. Nothing read here is
 * trusted before store_next has checked it; what no longer fits its context is counted and skipped.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

struct recover_tomb {
	struct context *ctx;
	uint64_t lsn;
	uint8_t key[ABI_KEY_BYTES];
};

static struct context *context_by_uid(struct core *c, uint64_t uid)
{
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->context[i]->spec.uid == uid)
			return c->context[i];
	return NULL;
}

static uint64_t *lsn_of(struct core *c, struct context *x, uint32_t slot)
{
	if (!c->recover_lsn[x->index])
		c->recover_lsn[x->index] = calloc(x->spec.blocks_max, sizeof(uint64_t));
	return c->recover_lsn[x->index] ? &c->recover_lsn[x->index][slot] : NULL;
}

static int tomb_keep(struct core *c, struct context *x, const struct store_view *v, uint32_t i)
{
	if (c->tombs == c->tombs_max) {
		uint32_t max = c->tombs_max ? 2 * c->tombs_max : 1024;
		struct recover_tomb *t = realloc(c->tomb, max * sizeof(*t));

		if (!t)
			return -ENOMEM;
		c->tomb = t;
		c->tombs_max = max;
	}
	c->tomb[c->tombs].ctx = x;
	c->tomb[c->tombs].lsn = v->block[i].salt;
	memcpy(c->tomb[c->tombs++].key, v->block[i].key, ABI_KEY_BYTES);
	return 0;
}

static uint32_t slot_for(struct core *c, struct context *x, const struct store_view *v, uint32_t i,
			 uint32_t log)
{
	uint32_t slot = index_find(&x->ix, v->block[i].key);

	if (slot != ABI_SLOT_NONE) {
		if (*lsn_of(c, x, slot) >= v->head->lsn)
			return ABI_SLOT_NONE; /* the newer one is in */
		block_unwritten(c, x, slot);
		return slot;
	}
	slot = block_new(c, x, v->block[i].key);
	if (slot == ABI_SLOT_NONE && log == DISK_LOG_DURABLE &&
	    evict_nvme(c, x, x->spec.geometry.block_bytes)) /* a cached block makes way */
		slot = block_new(c, x, v->block[i].key);
	if (slot == ABI_SLOT_NONE)
		return slot;
	index_block_state(&x->ix, slot, ABI_BLOCK_COMMITTED);
	if (index_insert(&x->ix, slot)) {
		index_block_state(&x->ix, slot, ABI_BLOCK_FREE);
		block_unnew(c, x, slot);
		return ABI_SLOT_NONE;
	}
	x->blocks++;
	return slot;
}

static int place_block(struct core *c, struct context *x, const struct store_view *v, uint32_t i,
			uint32_t slot, uint32_t log)
{
	struct abi_block *b = index_block(&x->ix, slot);
	struct block_meta *m = &x->meta[slot];
	const uint32_t *crc = v->crc + (size_t)i * v->head->pages_per_block;
	uint64_t word = ABI_NVME_PRESENT | (log == DISK_LOG_DURABLE ? ABI_NVME_DURABLE : 0);
	const uint8_t *parent = i ? v->block[i - 1].key : v->head->parent;

	b->parts = (uint32_t)v->head->parts;
	b->depth = v->head->depth + i;
	b->parent = index_find(&x->ix, parent);
	block_parent_note(x, slot);
	m->joined = b->parent != ABI_SLOT_NONE; /* which was recovered, too */
	b->tier = ABI_TIER_NVME;
	quota_name(c, x, slot, v->block[i].salt, LEDGER_NONE);
	m->flags = log == DISK_LOG_DURABLE ? BLOCK_DURABLE : 0;
	m->settle = SETTLE_NONE;
	if (log == DISK_LOG_DURABLE && !(v->head->flags & DISK_RECORD_SETTLED))
		m->settle = SETTLE_RECOVERED; /* core_recover_finish knows better of some */
	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		int64_t at = store_run_page(&x->spec.geometry, v->head->parts, v->head->block_count,
					    i, page);
		struct abi_page *d = index_page(&x->ix, slot, page);

		if (at < 0)
			continue;
		d->nvme = word | (v->data_offset + (uint64_t)at) / DISK_SECTOR;
		d->crc = *crc++;
	}
	m->persist = PERSIST_CLEAN;
	x->nvme_bytes += block_bytes(x, slot);
	quota_add(c, x, slot, ABI_TIER_NVME, block_bytes(x, slot));
	store_live(c->store, v->segment, (int64_t)block_bytes(x, slot));
	block_link(c, &c->segment_blocks[v->segment], x, slot);
	*lsn_of(c, x, slot) = v->head->lsn;
	c->recovery.blocks++;
	return retain_recovered(c, x, slot, v->block[i].keep, v->head->written_ms);
}

static bool run_fits(const struct context *x, const struct store_view *v)
{
	const struct disk_record *h = v->head;

	return h->parts && !(h->parts & ~parts_mask(x)) &&
	       h->pages_per_block == store_block_pages(&x->spec.geometry, h->parts) &&
	       h->data_bytes == h->block_count * store_block_bytes(&x->spec.geometry, h->parts);
}

static int apply_run(struct core *c, struct context *x, const struct store_view *v, uint32_t log)
{
	uint64_t bytes = v->head->data_bytes;

	if (!run_fits(x, v)) {
		c->recovery.records_bad++;
		return 0;
	}
	/* Never so high that none could be raised above it, whatever a forger wrote. */
	if (v->head->epoch > x->epoch_seen && v->head->epoch < UINT32_MAX)
		x->epoch_seen = v->head->epoch;
	if (v->head->epoch != x->spec.epoch ||
	    (log == DISK_LOG_CACHE && x->nvme_bytes + bytes > x->plan.quota[ABI_TIER_NVME])) {
		c->recovery.blocks_stale += v->head->block_count;
		return 0;
	}
	if (!lsn_of(c, x, 0))
		return -ENOMEM;
	for (uint32_t i = 0; i < v->head->block_count; i++) {
		uint32_t slot = slot_for(c, x, v, i, log);
		int err = slot == ABI_SLOT_NONE ? 0 : place_block(c, x, v, i, slot, log);

		if (err)
			return err;
	}
	return 0;
}

static int apply(struct core *c, const struct store_view *v, uint32_t log)
{
	struct context *x = context_by_uid(c, v->head->context_uid);
	int err = 0;

	c->recovery.records++;
	/* A catalog that was lost named it: its uid must not become another context's. */
	if (v->head->context_uid >= c->next_uid && v->head->context_uid < UINT64_MAX / 2)
		c->next_uid = v->head->context_uid + 1;
	if (!x) {
		c->recovery.blocks_stale += v->head->block_count;
		return 0; /* the context was removed */
	}
	if (v->head->type == DISK_RECORD_RUN)
		return apply_run(c, x, v, log);
	for (uint32_t i = 0; i < v->head->block_count && !err; i++)
		err = tomb_keep(c, x, v, i);
	return err;
}

int core_recover_segment(struct core *c, uint32_t segment, const void *summary, size_t bytes)
{
	uint32_t log;
	struct store_view v;
	size_t cursor = 0;
	int err, n = store_recover(c->store, segment, summary, bytes);

	if (n < 0)
		return n;
	log = ((const struct disk_segment *)summary)->log;
	c->recovery.segments++;
	while (!(err = store_next(c->store, segment, summary, bytes, &cursor, &v))) {
		err = apply(c, &v, log);
		if (err)
			return err;
	}
	if (err == -EBADMSG)
		c->recovery.records_bad++;
	return n;
}

/* What a flush has covered for sure needs no proof. */
static void settle_flushed(struct core *c, struct context *x)
{
	const uint64_t *lsn = c->recover_lsn[x->index];

	for (uint32_t slot = 0; lsn && slot < x->ix.slots_used; slot++) {
		if (x->meta[slot].settle != SETTLE_RECOVERED)
			continue;
		if (lsn[slot] <= store_flushed_lsn(c->store))
			x->meta[slot].settle = SETTLE_NONE;
		else
			c->recovery.blocks_unproven++;
	}
}

int core_recover_finish(struct core *c, struct core_recovery *out)
{
	int err;

	for (uint32_t i = 0; i < c->tombs; i++) {
		struct context *x = c->tomb[i].ctx;
		uint32_t slot = index_find(&x->ix, c->tomb[i].key);

		if (slot == ABI_SLOT_NONE || *lsn_of(c, x, slot) > c->tomb[i].lsn)
			continue;
		block_drop(c, x, slot);
		c->recovery.blocks--;
	}
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		if (c->context[i]) {
			settle_flushed(c, c->context[i]);
			c->recovery.bytes += c->context[i]->nvme_bytes;
		}
		free(c->recover_lsn[i]);
		c->recover_lsn[i] = NULL;
	}
	retain_recovery_end(c);
	free(c->tomb);
	c->tomb = NULL;
	c->tombs = c->tombs_max = 0;
	memset(&c->metrics, 0, sizeof(c->metrics));
	err = prove_begin(c);
	if (err)
		return err;
	*out = c->recovery;
	return 0;
}
