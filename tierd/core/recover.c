/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: segments' records become blocks again, without reading data. Records may be fed in any
 * order: the newest lsn of a key wins, and tombstones are applied at the end, as is what prefix.c
 * demands: a cached block whose parent did not come back goes. Nothing read here is trusted before
 * store_next has checked it; what no longer fits its context is counted and skipped.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

/* For the end: a tombstone, or a block whose parent was not there when its record was read. */
struct recover_note {
	struct context *ctx;
	uint64_t lsn; /* of a tombstone: the bound */
	uint64_t at;  /* ... its record's lsn */
	uint32_t segment; /* ... where that is */
	uint32_t slot, generation; /* of a block; ABI_SLOT_NONE = a tombstone */
	uint8_t key[ABI_KEY_BYTES]; /* of the tombstone, of the parent */
};

static uint64_t *lsn_of(struct core *c, struct context *x, uint32_t slot)
{
	if (!c->recover_lsn[x->index])
		c->recover_lsn[x->index] = calloc(x->spec.blocks_max, sizeof(uint64_t));
	return c->recover_lsn[x->index] ? &c->recover_lsn[x->index][slot] : NULL;
}

static struct recover_note *note_take(struct core *c, struct context *x, const uint8_t *key)
{
	struct recover_note *n;

	if (c->notes == c->notes_max) {
		uint32_t max = c->notes_max ? 2 * c->notes_max : 1024;

		n = realloc(c->note, max * sizeof(*n));
		if (!n)
			return NULL;
		c->note = n;
		c->notes_max = max;
	}
	n = &c->note[c->notes++];
	*n = (struct recover_note){ .ctx = x, .slot = ABI_SLOT_NONE };
	memcpy(n->key, key, ABI_KEY_BYTES);
	return n;
}

static int tomb_keep(struct core *c, struct context *x, const struct store_view *v, uint32_t i)
{
	struct recover_note *n = note_take(c, x, v->block[i].key);

	if (!n)
		return -ENOMEM;
	n->lsn = v->block[i].salt;
	n->at = v->head->lsn;
	n->segment = v->segment;
	return 0;
}

/* Link the block behind its parent, now or at the end. */
static int parent_keep(struct core *c, struct context *x, uint32_t slot, const uint8_t *parent)
{
	static const uint8_t none[ABI_KEY_BYTES];
	struct recover_note *n;

	prefix_leave(x, slot);
	prefix_join(x, slot, index_find(&x->ix, parent));
	x->meta[slot].joined = block_parent(x, slot) != ABI_SLOT_NONE; /* recovered, too */
	if (x->meta[slot].joined || !memcmp(parent, none, sizeof(none)))
		return 0;
	n = note_take(c, x, parent);
	if (!n)
		return -ENOMEM;
	n->slot = slot;
	n->generation = index_block(&x->ix, slot)->generation;
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
	uint32_t all = disk_there_below(v->head, v->head->block_count);
	uint32_t nth = disk_there_below(v->head, i);
	const uint32_t *crc = v->crc + (size_t)nth * v->head->pages_per_block;
	uint64_t word = ABI_NVME_PRESENT | (log == DISK_LOG_DURABLE ? ABI_NVME_DURABLE : 0);
	const uint8_t *parent = i ? v->block[i - 1].key : v->head->parent;
	int err;

	b->parts = (uint32_t)v->head->parts;
	b->depth = v->head->depth + i;
	b->tier = ABI_TIER_NVME;
	quota_name(c, x, slot, v->block[i].salt, LEDGER_NONE);
	m->flags = log == DISK_LOG_DURABLE ? BLOCK_DURABLE : 0;
	m->settle = SETTLE_NONE;
	if (log == DISK_LOG_DURABLE && !(v->head->flags & DISK_RECORD_SETTLED))
		m->settle = SETTLE_RECOVERED; /* core_recover_finish knows better of some */
	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		int64_t at = store_run_page(&x->spec.geometry, v->head->parts, all, nth, page);
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
	err = retain_recovered(c, x, slot, v->block[i].keep, v->head->written_ms);
	return err ? err : parent_keep(c, x, slot, parent);
}

static bool run_fits(const struct context *x, const struct store_view *v)
{
	const struct disk_record *h = v->head;

	return h->parts && !(h->parts & ~parts_mask(x)) &&
	       h->pages_per_block == store_block_pages(&x->spec.geometry, h->parts) &&
	       h->data_bytes == disk_there_below(h, h->block_count) *
					store_block_bytes(&x->spec.geometry, h->parts);
}

static int apply_run(struct core *c, struct context *x, const struct store_view *v, uint32_t log)
{
	uint64_t bytes = v->head->data_bytes;
	int err = 0;

	if (!run_fits(x, v)) {
		c->recovery.records_bad++;
		return 0;
	}
	/* Never so high that none could be raised above it, whatever a forger wrote. */
	if (v->head->epoch > x->epoch_seen && v->head->epoch < UINT32_MAX)
		x->epoch_seen = v->head->epoch;
	if (v->head->epoch != x->spec.epoch ||
	    (log == DISK_LOG_CACHE && x->nvme_bytes + bytes > x->plan.quota[ABI_TIER_NVME])) {
		c->recovery.blocks_stale += disk_there_below(v->head, v->head->block_count);
		return 0;
	}
	if (!lsn_of(c, x, 0))
		return -ENOMEM;
	for (uint32_t i = 0; i < v->head->block_count && !err; i++) {
		uint32_t slot = disk_there(v->head, i) ? slot_for(c, x, v, i, log) : ABI_SLOT_NONE;

		if (slot != ABI_SLOT_NONE)
			err = place_block(c, x, v, i, slot, log);
	}
	return err;
}

static int apply(struct core *c, const struct store_view *v, uint32_t log)
{
	struct context *x = core_context_by_uid(c, v->head->context_uid);
	int err = 0;

	c->recovery.records++;
	/* A catalog that was lost named it: its uid must not become another context's. */
	if (v->head->context_uid >= c->next_uid && v->head->context_uid < UINT64_MAX / 2)
		c->next_uid = v->head->context_uid + 1;
	if (!x) {
		c->recovery.blocks_stale += disk_there_below(v->head, v->head->block_count);
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
		if (x->meta[slot].settle != SETTLE_RECOVERED ||
		    index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED)
			continue; /* or deleted since */
		if (lsn[slot] <= store_flushed_lsn(c->store))
			x->meta[slot].settle = SETTLE_NONE;
		else
			c->recovery.blocks_unproven++;
	}
}

static void tomb_apply(struct core *c, const struct recover_note *n)
{
	uint32_t slot = index_find(&n->ctx->ix, n->key);

	if (slot == ABI_SLOT_NONE || *lsn_of(c, n->ctx, slot) > n->lsn)
		return;
	block_drop(c, n->ctx, slot);
}

/* All that came back is there. */
static void parent_find(struct core *c, const struct recover_note *n)
{
	struct context *x = n->ctx;
	uint32_t parent;

	if (index_block(&x->ix, n->slot)->generation != n->generation)
		return; /* dropped */
	parent = index_find(&x->ix, n->key);
	prefix_join(x, n->slot, parent);
	x->meta[n->slot].joined = block_parent(x, n->slot) != ABI_SLOT_NONE;
	if (parent != ABI_SLOT_NONE || !prefix_binds(x, n->slot))
		return;
	block_drop(c, x, n->slot);
	c->recovery.blocks_orphaned++;
}

/* The block and all behind it. */
static uint64_t count_behind(const struct context *x, uint32_t top)
{
	uint32_t slot = top;
	uint64_t n = 1;

	for (;; n++) {
		if (index_block(&x->ix, slot)->child != ABI_SLOT_NONE) {
			slot = index_block(&x->ix, slot)->child;
			continue;
		}
		while (slot != top && prefix_sibling(x, slot) == ABI_SLOT_NONE)
			slot = index_block(&x->ix, slot)->parent;
		if (slot == top)
			return n;
		slot = prefix_sibling(x, slot);
	}
}

static uint64_t count_unreached(const struct context *x)
{
	uint64_t n = 0;

	for (uint32_t slot = 0; prefix_rules(x) && slot < x->ix.slots_used; slot++) {
		const struct abi_block *b = index_block(&x->ix, slot);

		if (b->state == ABI_BLOCK_COMMITTED && b->depth &&
		    block_parent(x, slot) == ABI_SLOT_NONE)
			n += count_behind(x, slot);
	}
	return n;
}

static int by_key(const void *one, const void *other)
{
	const struct recover_note *a = one, *b = other;
	int order = memcmp(a->key, b->key, ABI_KEY_BYTES);

	if (a->ctx != b->ctx)
		return a->ctx->index < b->ctx->index ? -1 : 1;
	if (order)
		return order;
	if (a->lsn != b->lsn)
		return a->lsn > b->lsn ? -1 : 1;
	return a->at > b->at ? -1 : a->at < b->at;
}

/*
 * Of tombstones of one key the one that reaches furthest is needed, and of equal ones the newest:
 * free segments come back with what the cleaner had carried from them. Carried again after each
 * crash, tombstones would fill the store. Segments without one that is needed can be free at once.
 */
static void tombs_sort_out(struct core *c)
{
	uint32_t tombs = 0;

	for (uint32_t i = 0; i < c->notes; i++)
		if (c->note[i].slot == ABI_SLOT_NONE) {
			struct recover_note n = c->note[i];

			c->note[i] = c->note[tombs];
			c->note[tombs++] = n;
		}
	if (tombs)
		qsort(c->note, tombs, sizeof(*c->note), by_key);
	store_tombs_forget(c->store);
	for (uint32_t i = 0; i < tombs; i++) {
		const struct recover_note *n = &c->note[i];

		if (!i || n->ctx != n[-1].ctx || memcmp(n->key, n[-1].key, ABI_KEY_BYTES))
			store_tombs_found(c->store, n->segment, n->lsn < n->at ? n->lsn : n->at);
	}
}

static void notes_apply(struct core *c)
{
	tombs_sort_out(c);
	for (uint32_t i = 0; i < c->notes; i++)
		if (c->note[i].slot == ABI_SLOT_NONE)
			tomb_apply(c, &c->note[i]);
	for (uint32_t i = 0; i < c->notes; i++)
		if (c->note[i].slot != ABI_SLOT_NONE)
			parent_find(c, &c->note[i]);
	while (c->parting.count)
		prefix_step(c);
	c->recovery.blocks_orphaned += c->metrics.prefix_dropped;
	free(c->note);
	c->note = NULL;
	c->notes = c->notes_max = 0;
}

int core_recover_finish(struct core *c, struct core_recovery *out)
{
	int err;

	notes_apply(c);
	store_resume(c->store);
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		if (c->context[i]) {
			settle_flushed(c, c->context[i]);
			c->recovery.blocks += c->context[i]->blocks; /* each once */
			c->recovery.blocks_unreached += count_unreached(c->context[i]);
			c->recovery.bytes += c->context[i]->nvme_bytes;
		}
		free(c->recover_lsn[i]);
		c->recover_lsn[i] = NULL;
	}
	retain_recovery_end(c);
	c->discarder.looked = false;
	memset(&c->metrics, 0, sizeof(c->metrics));
	err = prove_begin(c);
	if (err)
		return err;
	*out = c->recovery;
	return 0;
}
