/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a crash at this moment would leave. The device's sectors are put together as extreme fates
 * of all that no flush has covered would have them, and read by the format's rules (abi/disk.h), as
 * recovery reads them but without the core. So an order of writes that is wrong shows as soon as it
 * is there, and does not wait for the crash that happens to meet it:
 *
 *   LOST       nothing of it came through
 *   TORN       ... and headers that were being written, or had been, are neither old nor new: also
 *              where the same was written again
 *   SUMMARIES  catalogs, headers and records did, their data did not
 *   HEADERS    catalogs and headers did, nothing else
 *   DATA       data did, nothing else
 *   KEPT       all of it did
 *
 * What is owed then is what is owed after a real crash: contexts and epochs (lives.c), keys that
 * were acknowledged durable, with their bytes, none that were deleted or never put; data of every
 * record that is proven to have some (D9); and under LOST each block that the core calls settled.
 * And under KEPT what the core does not call needless: a tombstone that alone keeps a record void
 * (D8). So it shows when one is about to be lost, not when a key comes back long after.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

#define SAMPLED 8u /* of so many keys one has its bytes compared; at the next look, the next */

enum fate { LOST, TORN, SUMMARIES, HEADERS, DATA, KEPT, FATES };

/* The newest record of a key, and what tombstones say of it. */
struct found {
	uint64_t lsn, void_lsn;
	uint32_t tomb_segment; /* of what void_lsn is from, */
	uint64_t others_lsn;   /* ... and what those in other segments void */
	struct store_view view;
	uint32_t i; /* its block in the run */
	bool durable; /* in the durable log */
};

struct image {
	struct world *w;
	enum fate fate;
	bool tombs; /* all of them are in it */
	uint64_t flushed_lsn[WORLD_DRIVES];
	const struct disk_context *entry; /* of the context that has NVMe */
	struct found key[WORLD_KEYS];
};

/* ---- sectors ------------------------------------------------------------------------------ */

static bool comes_through(const struct image *m, uint64_t sector)
{
	const struct disk_super *s = &m->w->super;
	uint64_t at = sector * DISK_SECTOR % NVME_BYTES;
	bool catalog = at < s->segment_offset;
	uint64_t in = catalog ? 0 : (at - s->segment_offset) % s->segment_bytes;

	switch (m->fate) {
	case LOST:
	case TORN:
		return false;
	case SUMMARIES:
		return in < s->summary_bytes;
	case HEADERS:
		return in == 0;
	case DATA:
		return in >= s->summary_bytes;
	default:
		return true;
	}
}

/* Is it a header that is being written, or that no flush has covered since it was? */
static bool is_unsure_header(const struct world *w, uint64_t sector)
{
	uint64_t at = sector * DISK_SECTOR % NVME_BYTES;

	if (at < w->super.segment_offset || (at - w->super.segment_offset) % w->super.segment_bytes)
		return false;
	for (uint32_t i = 0; i < w->bag_count; i++)
		if (w->bag[i].kind == CORE_AC_WRITE &&
		    device_flat(w->bag[i].io) == sector * DISK_SECTOR)
			return true;
	return device_fate(w, sector) == DEVICE_UNSURE;
}

static const uint8_t *sector_of(const struct image *m, uint64_t sector)
{
	static const uint8_t torn[DISK_SECTOR];
	enum device_fate fate = device_fate(m->w, sector);
	bool there = fate == DEVICE_UNSURE && comes_through(m, sector);

	if (m->fate == TORN && is_unsure_header(m->w, sector))
		return torn;
	return (there ? m->w->disk : m->w->stable) + sector * DISK_SECTOR;
}

/* These bytes in one piece: where they are the same whatever happens, in place. */
static const uint8_t *piece_of(struct image *m, uint64_t at, uint64_t bytes)
{
	uint64_t first = at / DISK_SECTOR, end = (at + bytes) / DISK_SECTOR;
	bool mixed = false;

	for (uint64_t s = first; s < end && !mixed; s++)
		mixed = sector_of(m, s) != m->w->stable + s * DISK_SECTOR;
	for (uint64_t s = first; mixed && s < end; s++)
		memcpy(m->w->image + s * DISK_SECTOR, sector_of(m, s), DISK_SECTOR);
	return (mixed ? m->w->image : m->w->stable) + at;
}

/* ---- what recovery would find ------------------------------------------------------------- */

static void run_take(struct image *m, const struct store_view *v, bool durable)
{
	for (uint32_t i = 0; v->head->epoch == m->entry->epoch && i < v->head->block_count; i++) {
		uint32_t n = model_number(v->block[i].key);
		struct found *k = &m->key[n];

		if (n == WORLD_KEYS || !disk_there(v->head, i) || k->lsn >= v->head->lsn)
			continue;
		k->lsn = v->head->lsn;
		k->view = *v;
		k->i = disk_there_below(v->head, i);
		k->durable = durable;
	}
}

static void tombs_take(struct image *m, const struct store_view *v)
{
	for (uint32_t i = 0; i < v->head->block_count; i++) {
		uint32_t n = model_number(v->block[i].key);
		struct found *k = &m->key[n];

		if (n == WORLD_KEYS)
			continue;
		if (k->void_lsn < v->block[i].salt) {
			if (k->tomb_segment != v->segment)
				k->others_lsn = k->void_lsn;
			k->tomb_segment = v->segment;
			k->void_lsn = v->block[i].salt;
		} else if (k->tomb_segment != v->segment && k->others_lsn < v->block[i].salt) {
			k->others_lsn = v->block[i].salt;
		}
	}
}

static void segment_take(struct image *m, uint32_t drive, uint32_t segment)
{
	const struct disk_super *s = &m->w->super;
	const uint8_t *summary =
		piece_of(m, (uint64_t)drive * NVME_BYTES + s->segment_offset +
				    segment * s->segment_bytes, s->summary_bytes);
	bool durable = ((const struct disk_segment *)summary)->log == DISK_LOG_DURABLE;
	struct store_view v = { .device = drive };
	size_t cursor = 0;

	while (!store_next(m->w->reader[drive], segment, summary, s->summary_bytes, &cursor, &v)) {
		if (v.head->flushed_lsn > m->flushed_lsn[drive])
			m->flushed_lsn[drive] = v.head->flushed_lsn;
		if (v.head->context_uid != m->entry->uid)
			continue;
		if (v.head->type == DISK_RECORD_RUN)
			run_take(m, &v, durable);
		else
			tombs_take(m, &v);
	}
}

/* The newest catalog that verifies; NULL = none. */
static const struct disk_catalog *catalog_of(struct image *m, const struct disk_context **list)
{
	const struct disk_super *s = &m->w->super;
	const struct disk_catalog *best = NULL, *h;
	const struct disk_context *l;

	for (uint32_t i = 0; i < 2; i++) {
		const uint8_t *slot = piece_of(m, s->catalog_offset + i * s->catalog_bytes,
					       s->catalog_bytes);

		if (disk_catalog_open(slot, s->catalog_bytes, s->store_id, &h, &l) ||
		    (best && h->sequence < best->sequence))
			continue;
		best = h;
		*list = l;
	}
	return best;
}

/* ---- what is owed ------------------------------------------------------------------------- */

static void fail(const struct image *m, uint32_t n, const char *what)
{
	static const char *const kept[FATES] = { "nothing", "headers torn", "summaries", "headers",
						 "data", "all" };

	world_fail(m->w, "I6: at a crash that keeps %s of what is not flushed, key %u %s",
		   kept[m->fate], n, what);
}

static bool has_bytes(const struct image *m, uint32_t n)
{
	const struct abi_geometry *g = &m->w->context[0].geometry;
	const struct found *k = &m->key[n];
	uint8_t want[STATE_MOST];

	for (uint32_t page = 0; page < g->pages_per_block; page++) {
		const struct disk_record *r = k->view.head;
		int64_t at = store_run_page(g, r->parts, disk_there_below(r, r->block_count), k->i,
					    page);
		uint64_t first = ((uint64_t)k->view.device * NVME_BYTES + k->view.data_offset +
				  (uint64_t)at) / DISK_SECTOR;

		if (at < 0)
			continue;
		model_page(m->w, 0, n, page, want);
		for (uint32_t s = 0; s < model_page_bytes(m->w, 0, page) / DISK_SECTOR; s++)
			if (memcmp(sector_of(m, first + s), want + s * DISK_SECTOR, DISK_SECTOR))
				return false;
	}
	return true;
}

static bool is_visible(const struct found *k)
{
	return k->lsn > k->void_lsn;
}

static void key_check(const struct image *m, uint32_t n)
{
	const struct world_key *key = &m->w->context[0].now.key[n];
	const struct found *k = &m->key[n];
	bool proven = k->lsn && k->durable && (k->lsn <= m->flushed_lsn[k->view.device] ||
					       k->view.head->flags & DISK_RECORD_SETTLED);

	if (!is_visible(k)) {
		if (key->durable)
			fail(m, n, "was acknowledged durable and is gone");
		return;
	}
	if (key->voided && m->tombs)
		fail(m, n, "is back though it did not verify");
	if (key->deleted)
		fail(m, n, "is back after its deletion");
	if (!(key->put_epochs >> m->entry->epoch % 64 & 1))
		fail(m, n, "was not put in this epoch");
	if ((key->durable || proven) && n % SAMPLED == m->w->images % SAMPLED && !has_bytes(m, n))
		fail(m, n, key->durable ? "was acknowledged durable and has other bytes"
					: "has a record that says more than is true (D9)");
}

/* What the core takes for settled is on the medium. */
static void settled_check(const struct image *m)
{
	const struct context *x = core_context(m->w->core, m->w->context[0].id);

	for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++) {
		const struct abi_block *b = index_block(&x->ix, slot);
		const struct block_meta *meta = &x->meta[slot];
		uint32_t n = model_number(b->key);

		if (b->state != ABI_BLOCK_COMMITTED || b->epoch != m->entry->epoch ||
		    n == WORLD_KEYS || !(meta->flags & BLOCK_DURABLE) ||
		    meta->persist != PERSIST_CLEAN || meta->settle != SETTLE_NONE)
			continue;
		if (!is_visible(&m->key[n]))
			fail(m, n, "is settled and gone");
		else if (n % SAMPLED == m->w->images % SAMPLED && !has_bytes(m, n))
			fail(m, n, "is settled and has other bytes");
	}
}

/* ---- tombstones --------------------------------------------------------------------------- */

/* Is there one of the key in the queue, from here on? */
static bool is_queued(const struct image *m, uint32_t n, const struct tombs *t, uint64_t from)
{
	uint8_t key[ABI_KEY_BYTES];

	model_key(n, key);
	for (uint64_t i = from; i < t->queued; i++) {
		const struct tomb *at = &t->tomb[i % TOMBS_MAX];

		if (at->context_uid == m->entry->uid && at->block.salt >= m->key[n].lsn &&
		    !memcmp(at->block.key, key, sizeof(key)))
			return true;
	}
	return false;
}

/* ... on its way to another segment, or to be written again: its write was told to have failed. */
static bool is_carried(const struct image *m, uint32_t n)
{
	const struct tombs *t = m->w->core->tombs;

	return is_queued(m, n, &t[TOMBS_CARRIED], t[TOMBS_CARRIED].flushed) ||
	       is_queued(m, n, &t[TOMBS_NEW], t[TOMBS_NEW].written);
}

/* A segment's tombstone is the only one that keeps the record in another one void. */
static void needed_check(const struct image *m, uint32_t n)
{
	const struct core *c = m->w->core;
	const struct drive *home = core_home(c); /* tombstones lie there */
	uint32_t segment = m->key[n].tomb_segment;
	const struct store_segment *g = &home->store->segment[segment];
	bool left = home->cleaner.phase > CLEAN_TOMBS && home->cleaner.segment == segment;
	uint64_t oldest;

	if (g->pending || g->state == STORE_OPEN)
		return; /* it may not have been told of it yet */
	left = left || g->state == STORE_FREE || store_dead(home->store) == segment ||
	       !store_tombs_needed(home->store, segment, &oldest);
	if (left && !is_carried(m, n))
		fail(m, n, "has a tombstone that is needed and will be lost (D8)");
}

static void tombs_check(const struct image *m)
{
	for (uint32_t n = 0; n < WORLD_KEYS; n++) {
		const struct found *k = &m->key[n];

		if (k->lsn && k->lsn <= k->void_lsn && k->lsn > k->others_lsn &&
		    (k->view.device || k->view.segment != k->tomb_segment))
			needed_check(m, n);
	}
}

static void check(struct world *w, enum fate fate)
{
	const struct world_context *x = &w->context[0];
	const struct core *c = w->core;
	struct image m = { .w = w, .fate = fate };
	const struct disk_context *list = NULL, *found[WORLD_CONTEXTS] = { NULL };
	const struct disk_catalog *head = catalog_of(&m, &list);
	uint64_t number;

	w->images++;
	m.tombs = true;
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		m.tombs &= c->tombs[i].flushed == c->tombs[i].queued ||
			   (fate == KEPT && c->tombs[i].written == c->tombs[i].queued);
	for (uint32_t i = 0; head && i < head->count; i++)
		found[strcmp(list[i].name, "memory") == 0] = &list[i];
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		lives_owed(w, i, found[i]);
	m.entry = found[0];
	if (!m.entry || !x->made || x->removing)
		return;
	memcpy(&number, m.entry->fingerprint, sizeof(number));
	if (number != x->now.number)
		return; /* its next life is not durable yet */
	/* A drive that it does not name holds nothing (D15). */
	for (uint32_t i = 0; i < (1 + head->drive_count) * w->super.segment_count; i++)
		segment_take(&m, i / (uint32_t)w->super.segment_count,
			     i % (uint32_t)w->super.segment_count);
	for (uint32_t n = 0; n < WORLD_KEYS; n++)
		key_check(&m, n);
	if (fate == LOST || fate == TORN)
		settled_check(&m);
	if (fate == KEPT)
		tombs_check(&m);
}

/* What lies there is to go: of the segment nothing may be found that a crash now would leave. */
void image_discards(struct world *w, const struct core_range *range)
{
	struct image m = { .w = w, .fate = LOST };
	const struct disk_super *s = &w->super;
	struct store *reader = w->reader[range->device];
	uint32_t segment = store_segment_of(reader, range->offset);
	uint64_t at = s->segment_offset + segment * s->segment_bytes;
	uint64_t flat = (uint64_t)range->device * NVME_BYTES + at;
	struct store_view v;
	size_t cursor = 0;

	if (range->tier != ABI_TIER_NVME || range->offset < at + s->summary_bytes ||
	    range->bytes > at + s->segment_bytes - range->offset)
		world_fail(w, "a discard outside of a segment's data");
	else if (!store_next(reader, segment, piece_of(&m, flat, s->summary_bytes),
			     s->summary_bytes, &cursor, &v))
		world_fail(w, "a crash brings back what is being discarded");
}

/* ---- when --------------------------------------------------------------------------------- */

void image_open(struct world *w)
{
	for (uint32_t i = 0; i < w->disks; i++) {
		struct disk_super super = w->super;
		int err;

		super.store_id += i;
		err = store_open(&w->reader[i], &super);
		assert(!err);
	}
	w->image = calloc(w->disks, NVME_BYTES);
	assert(w->image);
}

void image_close(struct world *w)
{
	for (uint32_t i = 0; i < w->disks; i++)
		store_close(w->reader[i]);
	free(w->image);
}

/* Nothing moves any more. */
void image_rest(struct world *w)
{
	check(w, KEPT);
}

/* What was written, if it is a header, a record or a catalog: what recovery begins with. */
enum image_part image_part(const struct world *w, const struct core_event *e)
{
	const struct disk_super *s = &w->super;
	uint64_t in;

	if (e->kind != CORE_EV_IO_DONE || !e->io->write)
		return IMAGE_NONE;
	if (e->io->offset < s->segment_offset)
		return IMAGE_RECORD;
	in = (e->io->offset - s->segment_offset) % s->segment_bytes;
	if (in >= s->summary_bytes)
		return IMAGE_NONE;
	return in ? IMAGE_RECORD : IMAGE_HEADER;
}

static bool any_unsure_header(const struct world *w)
{
	const struct disk_super *s = &w->super;

	for (uint32_t i = 0; i < w->drives * s->segment_count; i++) {
		uint64_t drive = i / s->segment_count, segment = i % s->segment_count;
		uint64_t at = s->segment_offset + segment * s->segment_bytes;

		if (is_unsure_header(w, (drive * NVME_BYTES + at) / DISK_SECTOR))
			return true;
	}
	return false;
}

/*
 * After an event: a flush has ended or an answer was sent, so more is owed; or a part of what is
 * read first was written, so that what came before it must be safe.
 */
void image_look(struct world *w, bool flushed, enum image_part written)
{
	static const enum fate others[] = { SUMMARIES, DATA, KEPT };

	if (w->result->failure[0])
		return;
	if (w->owed || (flushed && w->looks++ % 2))
		check(w, LOST);
	else if (written == IMAGE_HEADER)
		check(w, HEADERS);
	else if (flushed || (written && w->looks++ % 2))
		check(w, others[w->images % 3]);
	if ((w->owed || flushed) && any_unsure_header(w))
		check(w, TORN);
	w->owed = false;
}
