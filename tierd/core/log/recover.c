/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: segments' records become blocks again, without reading data. Records may be fed in any
 * order: the newest lsn of a key wins, and tombstones are applied at the end, as is what prefix.c
 * demands: a cached block whose parent did not come back goes. Nothing read here is trusted before
 * store_next has checked it; what no longer fits its context is counted and skipped.
 *
 * Records of the durable log may be of more blocks than their context's table holds: of those that
 * were deleted, too, and cached blocks that had made way for others come back beside them. A run
 * that finds no slot waits for the tombstones; then cached blocks make way for it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

enum note_kind {
	NOTE_TOMB,
	NOTE_CHILD,  /* a block whose parent was not there when its record was read */
	NOTE_HIDDEN, /* a record that another of its key hides, and that nothing proves */
};

/* For the end. */
struct recover_note {
	enum note_kind kind;
	struct context *ctx;
	uint64_t lsn; /* of a tombstone: the bound */
	uint64_t at;  /* ... its record's lsn */
	uint32_t device, segment; /* ... where that is; device: of a hidden one, too */
	uint32_t slot, generation; /* of a child */
	uint8_t key[ABI_KEY_BYTES]; /* of a child: its parent's */
};

/* A run of the durable log some of which had no slot; its record follows, in core.recover.late. */
struct recover_late {
	uint32_t context, device, segment, sector;
	uint64_t data_offset;
	uint64_t bytes; /* of the record, and of the crc table, as they are copied */
};

static uint64_t *lsn_of(struct core *c, struct context *x, uint32_t slot)
{
	if (!c->recover.lsn[x->index])
		c->recover.lsn[x->index] = calloc(x->plan.blocks_max, sizeof(uint64_t));
	return c->recover.lsn[x->index] ? &c->recover.lsn[x->index][slot] : NULL;
}

static struct recover_note *note_take(struct core *c, enum note_kind kind, struct context *x,
				      const uint8_t *key)
{
	struct recover_note *n;

	if (c->recover.notes == c->recover.notes_max) {
		uint32_t max = c->recover.notes_max ? 2 * c->recover.notes_max : 1024;

		n = realloc(c->recover.note, max * sizeof(*n));
		if (!n)
			return NULL;
		c->recover.note = n;
		c->recover.notes_max = max;
	}
	n = &c->recover.note[c->recover.notes++];
	*n = (struct recover_note){ .kind = kind, .ctx = x };
	memcpy(n->key, key, ABI_KEY_BYTES);
	return n;
}

static int tomb_keep(struct core *c, struct context *x, const struct store_view *v, uint32_t i)
{
	struct recover_note *n = note_take(c, NOTE_TOMB, x, v->block[i].key);

	if (!n)
		return -ENOMEM;
	n->lsn = v->block[i].salt;
	n->at = v->head->lsn;
	n->device = v->device;
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
	n = note_take(c, NOTE_CHILD, x, parent);
	if (!n)
		return -ENOMEM;
	n->slot = slot;
	n->generation = index_block(&x->ix, slot)->generation;
	return 0;
}

/* What stood behind what was dropped goes too, or stands alone: slots are free at once. */
static void part_all(struct core *c)
{
	while (c->dropped.parents_leaving.count) {
		meter_begin(&c->meter); /* there is no event: as often as it takes */
		prefix_step(c);
	}
}

/* A cached block makes way, and what is bound to it. */
static bool make_way(struct core *c, struct context *x)
{
	for (uint32_t n = 0; n < x->ix.slots_used; n++) {
		uint32_t slot = x->nvme_cursor++ % (uint32_t)x->ix.slots_used;

		if (index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED ||
		    x->meta[slot].flags & BLOCK_DURABLE)
			continue;
		block_drop(c, x, slot);
		part_all(c);
		return true;
	}
	return false;
}

/* Does it take more than the record to know that its data is there? */
static bool is_unsure(const struct store_view *v)
{
	return v->log == DISK_LOG_DURABLE && !(v->head->flags & DISK_RECORD_SETTLED);
}

/*
 * The key's record of this lsn is hidden by a newer one: nobody will read it. Where it cannot be
 * noted it stays suspect.
 */
static void hide(struct core *c, struct drive *dv, struct context *x, const uint8_t *key,
		 uint64_t lsn)
{
	struct recover_note *n;

	if (lsn <= store_flushed_lsn(dv->store))
		return;
	n = note_take(c, NOTE_HIDDEN, x, key);
	if (!n) {
		flushed_suspects(c);
		return;
	}
	n->lsn = lsn;
	n->device = dv->device;
}

/* A slot for the i-th block; ABI_SLOT_NONE: the newer one is in, or there is none (*full). */
static uint32_t slot_for(struct core *c, struct context *x, const struct store_view *v, uint32_t i,
			 bool *full)
{
	uint32_t slot = index_find(&x->ix, v->block[i].key);

	if (slot != ABI_SLOT_NONE) {
		uint64_t lsn = *lsn_of(c, x, slot);

		if (lsn > v->head->lsn && is_unsure(v))
			hide(c, c->drive[v->device], x, v->block[i].key, v->head->lsn);
		if (lsn >= v->head->lsn)
			return ABI_SLOT_NONE; /* the newer one is in */
		if (x->meta[slot].settle == SETTLE_RECOVERED)
			hide(c, block_drive(c, x, slot), x, v->block[i].key, lsn);
		block_unwritten(c, x, slot);
		return slot;
	}
	slot = block_new(x, v->block[i].key);
	*full |= slot == ABI_SLOT_NONE;
	return slot != ABI_SLOT_NONE && block_enter(c, x, slot) ? slot : ABI_SLOT_NONE;
}

static int place_block(struct core *c, struct context *x, const struct store_view *v, uint32_t i,
			uint32_t slot)
{
	struct abi_block *b = index_block(&x->ix, slot);
	struct block_meta *m = &x->meta[slot];
	uint32_t all = disk_there_below(v->head, v->head->block_count);
	uint32_t nth = disk_there_below(v->head, i);
	const uint32_t *crc = v->crc + (size_t)nth * v->head->pages_per_block;
	uint64_t word = ABI_NVME_PRESENT | (v->log == DISK_LOG_DURABLE ? ABI_NVME_DURABLE : 0) |
			(uint64_t)v->sector << ABI_NVME_RECORD_SHIFT;
	const uint8_t *parent = i ? v->block[i - 1].key : v->head->parent;
	int err;

	b->parts = (uint32_t)v->head->parts;
	b->depth = v->head->depth + i;
	b->tier = ABI_TIER_NVME;
	quota_name(c, x, slot, v->block[i].salt, LEDGER_NONE);
	tables_lane(x, block_lane(x, slot));
	m->flags = v->log == DISK_LOG_DURABLE ? BLOCK_DURABLE : 0;
	/* core_recover_finish knows better of some */
	m->settle = is_unsure(v) ? SETTLE_RECOVERED : SETTLE_NONE;
	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		int64_t at = store_run_page(&x->spec.geometry, v->head->parts, all, nth, page);
		struct abi_page *d = index_page(&x->ix, slot, page);

		if (at < 0)
			continue;
		descs_touch(&x->descs, slot, page);
		d->nvme = word | abi_nvme_place(v->device, v->data_offset + (uint64_t)at);
		d->crc = *crc++;
	}
	m->persist = PERSIST_CLEAN;
	x->nvme_bytes += block_bytes(x, slot);
	x->record_bytes += records_join(c, x, slot, c->record_live);
	quota_add(c, x, slot, ABI_TIER_NVME, block_bytes(x, slot));
	store_live(c->drive[v->device]->store, v->segment, (int64_t)block_bytes(x, slot));
	block_link(c, &c->drive[v->device]->segment_blocks[v->segment], x, slot);
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

static size_t record_bytes(const struct store_view *v)
{
	uint32_t there = disk_there_below(v->head, v->head->block_count);
	const uint32_t *end = v->crc + (size_t)there * v->head->pages_per_block;

	return (size_t)((const uint8_t *)end - (const uint8_t *)v->head);
}

/* For the end. */
static int late_keep(struct core *c, const struct context *x, const struct store_view *v)
{
	size_t bytes = (record_bytes(v) + 7) & ~(size_t)7, need = sizeof(struct recover_late);
	struct recover_late *at;

	need += c->recover.late_bytes + bytes;
	if (need > c->recover.late_max) {
		uint8_t *late = realloc(c->recover.late, 2 * need);

		if (!late)
			return -ENOMEM;
		c->recover.late = late;
		c->recover.late_max = 2 * need;
	}
	at = (struct recover_late *)(c->recover.late + c->recover.late_bytes);
	*at = (struct recover_late){ x->index,  v->device,	  v->segment,
				     v->sector, v->data_offset, bytes };
	memcpy(at + 1, v->head, record_bytes(v));
	c->recover.late_bytes = need;
	return 0;
}

static int apply_run(struct core *c, struct context *x, const struct store_view *v)
{
	bool full = false;
	uint64_t bytes = v->head->data_bytes;
	int err = 0;

	for (uint32_t i = 0; i < v->head->block_count; i++)
		recorded_add(c, x, v->block[i].key, v->head->lsn);
	if (!run_fits(x, v)) {
		c->recover.found.records_bad++;
		return 0;
	}
	/* Never so high that none could be raised above it, whatever a forger wrote. */
	if (v->head->epoch > x->epoch_seen && v->head->epoch < UINT32_MAX)
		x->epoch_seen = v->head->epoch;
	if (v->head->epoch != x->spec.epoch ||
	    (v->log == DISK_LOG_CACHE && x->nvme_bytes + bytes > x->plan.quota[ABI_TIER_NVME])) {
		c->recover.found.blocks_stale += disk_there_below(v->head, v->head->block_count);
		return 0;
	}
	if (!lsn_of(c, x, 0))
		return -ENOMEM;
	for (uint32_t i = 0; i < v->head->block_count && !err; i++) {
		uint32_t slot =
			disk_there(v->head, i) ? slot_for(c, x, v, i, &full) : ABI_SLOT_NONE;

		if (slot != ABI_SLOT_NONE)
			err = place_block(c, x, v, i, slot);
	}
	if (!err && full && v->log == DISK_LOG_DURABLE)
		err = late_keep(c, x, v);
	return err;
}

static int apply(struct core *c, const struct store_view *v)
{
	struct context *x = core_context_by_uid(c, v->head->context_uid);
	int err = 0;

	c->recover.found.records++;
	/* A catalog that was lost named it: its uid must not become another context's. */
	if (v->head->context_uid >= c->next_uid && v->head->context_uid < UINT64_MAX / 2)
		c->next_uid = v->head->context_uid + 1;
	if (!x && aside_is(c, v->head->context_uid)) {
		aside_record(c, v, is_unsure(v));
		c->recover.found.blocks_aside +=
			v->head->type == DISK_RECORD_RUN ?
				disk_there_below(v->head, v->head->block_count) : 0;
		return 0;
	}
	if (!x) {
		c->recover.found.blocks_stale += disk_there_below(v->head, v->head->block_count);
		return 0; /* the context was removed */
	}
	if (v->head->type == DISK_RECORD_RUN)
		return apply_run(c, x, v);
	for (uint32_t i = 0; i < v->head->block_count && !err; i++)
		err = tomb_keep(c, x, v, i);
	return err;
}

void core_recover_unread(struct core *c, uint32_t device, uint32_t segment)
{
	store_suspect(c->drive[device]->store, segment);
}

int core_recover_segment(struct core *c, uint32_t device, uint32_t segment, void *summary,
			 size_t bytes)
{
	const struct store *s = c->drive[device]->store;
	struct store_view v = { .device = device };
	size_t cursor = 0;
	int err, n;

	store_mend(s, summary, bytes, true);
	n = store_recover(c->drive[device]->store, segment, summary, bytes);
	if (n < 0)
		return n;
	c->recover.found.segments++;
	while (!(err = store_next(s, segment, summary, bytes, &cursor, &v))) {
		err = apply(c, &v);
		if (err)
			return err;
	}
	if (err == -EBADMSG)
		c->recover.found.records_bad++;
	return n;
}

/* What a flush has covered for sure needs no proof. */
static void settle_flushed(struct core *c, struct context *x)
{
	const uint64_t *lsn = c->recover.lsn[x->index];

	for (uint32_t slot = 0; lsn && slot < x->ix.slots_used; slot++) {
		if (x->meta[slot].settle != SETTLE_RECOVERED ||
		    index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED)
			continue; /* or deleted since */
		if (lsn[slot] <= store_flushed_lsn(block_drive(c, x, slot)->store))
			x->meta[slot].settle = SETTLE_NONE;
		else
			c->recover.found.blocks_unproven++;
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
	if (parent != ABI_SLOT_NONE || !prefix_binds(x, n->slot) || drives_missing(c))
		return; /* the drive that has it may come back */
	block_drop(c, x, n->slot);
	c->recover.found.blocks_orphaned++;
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
static void tomb_found(struct core *c, const struct recover_note *n)
{
	uint64_t bound = n->lsn < n->at ? n->lsn : n->at;

	store_tombs_found(c->drive[n->device]->store, n->segment, bound);
	tomb_count(n->ctx, bound);
}

static uint32_t tombs_sort_out(struct core *c)
{
	uint32_t tombs = 0;

	for (uint32_t i = 0; i < c->recover.notes; i++)
		if (c->recover.note[i].kind == NOTE_TOMB) {
			struct recover_note n = c->recover.note[i];

			c->recover.note[i] = c->recover.note[tombs];
			c->recover.note[tombs++] = n;
		}
	if (tombs)
		qsort(c->recover.note, tombs, sizeof(*c->recover.note), by_key);
	for (uint32_t i = 0; i < c->drives; i++)
		store_tombs_forget(c->drive[i]->store);
	for (uint32_t i = 0; i < tombs; i++) {
		const struct recover_note *n = &c->recover.note[i];

		if (!i || n->ctx != n[-1].ctx || memcmp(n->key, n[-1].key, ABI_KEY_BYTES))
			tomb_found(c, n);
	}
	return tombs;
}

/* Does a tombstone, of the first so many notes, void the key's record? */
static bool is_void(const struct core *c, uint32_t tombs, const struct context *x,
		    const uint8_t *key, uint64_t lsn)
{
	uint32_t low = 0, high = tombs;
	struct recover_note n = { .ctx = c->context[x->index], .lsn = UINT64_MAX,
				  .at = UINT64_MAX };

	memcpy(n.key, key, ABI_KEY_BYTES);
	while (low < high) { /* the first that does not come before all of this key */
		uint32_t middle = low + (high - low) / 2;

		if (by_key(&c->recover.note[middle], &n) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < tombs && c->recover.note[low].ctx == x && c->recover.note[low].lsn >= lsn &&
	       !memcmp(c->recover.note[low].key, key, ABI_KEY_BYTES);
}

/* The i-th block of a run that came late: cached ones make way, as often as it takes. */
static int late_place(struct core *c, struct context *x, const struct store_view *v, uint32_t i)
{
	uint32_t slot;
	bool full;

	do {
		full = false;
		slot = slot_for(c, x, v, i, &full);
	} while (full && make_way(c, x));
	return slot == ABI_SLOT_NONE ? 0 : place_block(c, x, v, i, slot);
}

/* All tombstones are known, and have been applied to what is in. */
static int late_apply(struct core *c, uint32_t tombs)
{
	struct recover *r = &c->recover;
	const struct recover_late *late;
	int err = 0;

	part_all(c);
	for (uint64_t at = 0; at < r->late_bytes && !err; at += sizeof(*late) + late->bytes) {
		struct store_view v = { .log = DISK_LOG_DURABLE };
		struct context *x;

		late = (const struct recover_late *)(r->late + at);
		x = c->context[late->context];
		v.device = late->device;
		v.segment = late->segment;
		v.sector = late->sector;
		v.data_offset = late->data_offset;
		v.head = (const struct disk_record *)(late + 1);
		v.block = (const struct disk_block *)(v.head + 1);
		v.crc = (const uint32_t *)(v.block + v.head->block_count);
		assert(x && record_bytes(&v) <= late->bytes);
		for (uint32_t i = 0; i < v.head->block_count && !err; i++)
			if (disk_there(v.head, i) &&
			    !is_void(c, tombs, x, v.block[i].key, v.head->lsn))
				err = late_place(c, x, &v, i);
	}
	free(r->late);
	r->late = NULL;
	r->late_bytes = r->late_max = 0;
	return err;
}

/*
 * flushed_lsn will be beyond it, with nothing known of its data: it is not to come back, whatever
 * becomes of what hides it, which has a higher lsn.
 */
static void hidden_end(struct core *c, uint32_t tombs, const struct recover_note *n)
{
	struct drive *dv = c->drive[n->device];

	if (n->lsn <= store_flushed_lsn(dv->store) || is_void(c, tombs, n->ctx, n->key, n->lsn))
		return;
	flushed_freeze(dv);
	if (!tombstone(c, n->ctx, n->key, n->lsn))
		flushed_suspects(c);
}

static int notes_apply(struct core *c)
{
	uint32_t tombs = tombs_sort_out(c);
	int err;

	for (uint32_t i = 0; i < tombs; i++)
		tomb_apply(c, &c->recover.note[i]);
	err = late_apply(c, tombs);
	for (uint32_t i = 0; i < c->recover.notes; i++)
		if (c->recover.note[i].kind == NOTE_CHILD)
			parent_find(c, &c->recover.note[i]);
		else if (c->recover.note[i].kind == NOTE_HIDDEN)
			hidden_end(c, tombs, &c->recover.note[i]);
	part_all(c);
	c->recover.found.blocks_orphaned += c->metrics.prefix_dropped;
	free(c->recover.note);
	c->recover.note = NULL;
	c->recover.notes = c->recover.notes_max = 0;
	return err;
}

/* Was the block put behind its parent later than that one was? As far as the store tells. */
static bool is_later(struct core *c, const struct context *x, uint32_t slot, uint32_t parent)
{
	uint32_t first = index_block(&x->ix, parent)->child;

	assert(first != ABI_SLOT_NONE);
	return prefix_sibling(x, first) != ABI_SLOT_NONE ||
	       block_drive(c, x, slot) != block_drive(c, x, parent) ||
	       block_segment(c, x, slot) != block_segment(c, x, parent);
}

/*
 * Nobody has asked for anything yet, but what others were put behind was asked for then, with all
 * before it. The oldest segment has the beginnings that prompts share: dropped as never asked for
 * it would take what lies behind them in all others along.
 */
static void heat_find(struct core *c, struct context *x)
{
	for (uint32_t slot = 0; prefix_rules(x) && slot < x->ix.slots_used; slot++) {
		uint32_t parent;

		if (index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED)
			continue;
		parent = block_parent(x, slot);
		if (parent == ABI_SLOT_NONE || !is_later(c, x, slot, parent))
			continue;
		for (; parent != ABI_SLOT_NONE && !x->meta[parent].heat;
		     parent = block_parent(x, parent))
			x->meta[parent].heat = 1;
	}
}

int recover_finish(struct core *c, struct core_recovery *out)
{
	int err = notes_apply(c);

	if (err)
		return err;
	aside_recovered(c);
	for (uint32_t i = 0; i < c->drives; i++)
		store_resume(c->drive[i]->store);
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		if (c->context[i]) {
			settle_flushed(c, c->context[i]);
			heat_find(c, c->context[i]);
			tables_come_back(c, c->context[i]);
			c->recover.found.blocks += c->context[i]->blocks; /* each once */
			c->recover.found.blocks_unreached += count_unreached(c->context[i]);
			c->recover.found.bytes += c->context[i]->nvme_bytes;
		}
		free(c->recover.lsn[i]);
		c->recover.lsn[i] = NULL;
	}
	retain_recovery_end(c);
	drain_recovered(c);
	for (uint32_t i = 0; i < c->drives && !err; i++) {
		c->drive[i]->discarder.looked = false;
		err = prove_begin(c, c->drive[i]);
	}
	if (err)
		return err;
	*out = c->recover.found;
	return 0;
}

void recover_close(struct core *c)
{
	for (uint32_t i = 0; i < c->contexts_high; i++)
		free(c->recover.lsn[i]);
	free(c->recover.note);
	free(c->recover.late);
}
