/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit (I7): recounts every byte of every tier from the ground up (descriptors, block lines,
 * segments, batches, copies, pins) and compares with what the counters say, each by its name. It
 * shares no arithmetic with the code that keeps them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/audit/audit_priv.h"

struct recount {
	uint64_t blocks, pending, live_slots, kept;
	uint64_t resident[ABI_MEM_TIERS]; /* pages */
	uint64_t bytes[ABI_MEM_TIERS];	  /* of places that a word names */
	uint64_t retiring[ABI_MEM_TIERS];
	uint64_t streamed[ABI_MEM_TIERS];      /* bytes of places of the stream pool */
	uint64_t stream_counts[ABI_MEM_TIERS]; /* of streams on pages */
	uint64_t detached[ABI_MEM_TIERS];      /* of places that no page names any more */
	uint64_t detached_places, reserved_most;
	uint64_t placed; /* bytes of puts' places that no page names yet */
	uint64_t reserved[ABI_PARTS_MAX]; /* places */
	uint64_t dirty, nvme, records;
	uint64_t staged; /* bytes brought ahead and not read */
};

void audit_tell(struct audit *a, const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	a->wrong++;
	if (a->tell)
		a->tell(a->arg, text);
}

void audit_compare(struct audit *a, const char *whose, const char *what, uint64_t counted,
		   uint64_t kept)
{
	if (counted != kept)
		audit_tell(a, "%s: %s: counted %llu, the counter says %llu", whose, what,
		     (unsigned long long)counted, (unsigned long long)kept);
}

const char *audit_whose(struct audit *a, const struct context *x)
{
	snprintf(a->whose, sizeof(a->whose), "context %.63s", x->spec.name);
	return a->whose;
}

/* ---- blocks and pages --------------------------------------------------------------------- */

static void charge(struct audit *a, const struct context *x, uint32_t slot, uint32_t tier,
		   uint64_t bytes)
{
	a->salts.account[block_account(x, slot)].used[tier] += bytes;
	a->owners.account[x->meta[slot].owner].used[tier] += bytes;
}

static uint32_t audit_page(struct audit *a, const struct context *x, uint32_t slot, uint32_t page,
			   struct recount *n)
{
	const struct abi_page *d = index_page(&x->ix, slot, page);
	uint32_t held = 0;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		uint32_t state = page_state(d, t), bytes = page_stride(x, page);

		n->stream_counts[t] += stream_page_count(d, t);
		n->streamed[t] += d->streams[t] & STREAMS_POOL ? bytes : 0;
		if (d->streams[t] == STREAMS_POOL && state == ABI_PAGE_READY)
			audit_tell(a, "context %s: block %u page %u: a stream's page in tier %u is "
				   "nobody's", x->spec.name, slot, page, t);
		if (state == ABI_PAGE_ABSENT)
			continue;
		held++;
		n->bytes[t] += bytes;
		n->resident[t] += state == ABI_PAGE_READY;
		charge(a, x, slot, t, bytes);
		if (state == ABI_PAGE_RETIRING)
			n->retiring[t] += bytes;
		if (!x->space[t] || !space_is_live(x->space[t], page_addr(d, t)))
			audit_tell(a, "context %s: block %u page %u: tier %u place is not handed "
				   "out", x->spec.name, slot, page, t);
	}
	return held;
}

static void audit_pages(struct audit *a, const struct context *x, uint32_t slot,
			struct recount *n, uint32_t *nvme, uint64_t *bytes)
{
	const struct abi_block *b = index_block(&x->ix, slot);
	uint32_t held = 0, carried = 0, missing = 0;

	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		bool there = descs_there(&x->descs, slot, page);

		if (there)
			held += audit_page(a, x, slot, page, n);
		if (b->state == ABI_BLOCK_FREE || !(b->parts >> x->page_part[page] & 1))
			continue;
		carried++;
		*bytes += page_stride(x, page);
		missing += !there;
		if (!there)
			continue;
		*nvme += index_page(&x->ix, slot, page)->nvme != 0;
		missing += page_state(index_page(&x->ix, slot, page), ABI_TIER_CXL) !=
			   ABI_PAGE_READY;
	}
	if (b->state == ABI_BLOCK_PENDING && missing != block_use(x, slot)->missing)
		audit_tell(a, "context %s: block %u: counted %u missing pages, the counter says %u",
			   x->spec.name, slot, missing, block_use(x, slot)->missing);
	if (held != block_words(x, slot))
		audit_tell(a, "context %s: block %u: held words: counted %u, the counter says %u",
		     x->spec.name, slot, held, block_words(x, slot));
	if (b->state == ABI_BLOCK_COMMITTED && *nvme && *nvme != carried)
		audit_tell(a, "context %s: block %u has %u of %u pages on NVMe", x->spec.name, slot,
		     *nvme, carried);
}

/* In the eviction order are the blocks with a page that is not a stream's, and no others. */
static void audit_policy(struct audit *a, const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		uint32_t streamed = 0, cached = 0;
		bool in = m->there[t].ordered;

		for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
			const struct abi_page *d = index_page(&x->ix, slot, page);

			if (!descs_there(&x->descs, slot, page) ||
			    page_state(d, t) != ABI_PAGE_READY)
				continue;
			if (d->streams[t] & STREAMS_POOL)
				streamed++;
			else
				cached++;
		}
		if (in != (cached > 0))
			audit_tell(a, "context %s: block %u has %u pages in tier %u for the cache "
				   "and is %s its order", x->spec.name, slot, cached, t,
				   in ? "in" : "not in");
		if (streamed != block_use(x, slot)->streamed[t])
			audit_tell(a, "context %s: block %u: counted %u pages of streams in tier "
				   "%u, the counter says %u", x->spec.name, slot, streamed, t,
				   block_use(x, slot)->streamed[t]);
	}
}

static void audit_block(struct audit *a, const struct context *x, uint32_t slot, struct recount *n)
{
	const struct abi_block *b = index_block(&x->ix, slot);
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];
	bool lives = b->state != ABI_BLOCK_FREE || m->flags & BLOCK_DROPPED;
	uint32_t nvme = 0;
	uint64_t bytes = 0;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		n->staged += (uint64_t)use->staged[t] << ABI_UNIT_SHIFT;
	a->stream_holds += use->streams;
	n->live_slots += lives;
	n->blocks += b->state == ABI_BLOCK_COMMITTED;
	n->pending += b->state == ABI_BLOCK_PENDING;
	n->kept += m->keep != 0;
	a->salts.account[block_account(x, slot)].uses += lives;
	a->owners.account[m->owner].uses += lives;
	a->owners.account[m->owner].pending += b->state == ABI_BLOCK_PENDING;
	audit_pages(a, x, slot, n, &nvme, &bytes);
	if (b->state != ABI_BLOCK_COMMITTED)
		return;
	audit_policy(a, x, slot);
	if (index_find(&x->ix, b->key) != slot)
		audit_tell(a, "context %s: block %u is not found by its key", x->spec.name, slot);
	if (block_queued(m) || m->persist == PERSIST_WRITING)
		n->dirty += bytes;
	if (nvme) {
		n->nvme += bytes;
		n->records += records_join(a->c, x, slot, a->record);
		charge(a, x, slot, ABI_TIER_NVME, bytes);
		a->segment[block_drive(a->c, x, slot)->first + block_segment(a->c, x,
									     slot)] += bytes;
	}
}

/* A block that was dropped while its run is being written still counts as dirty. */
static uint64_t dirty_dropped(const struct core *c, const struct context *x)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < c->drives * CORE_RUNS_MAX; i++) {
		const struct run *run = drive_run(c, i);

		for (uint32_t k = 0;
		     run->phase != RUN_FREE && run->ctx == x && k < run->blocks; k++)
			if (x->meta[run->slot[k]].flags & BLOCK_DROPPED)
				bytes += block_bytes(x, run->slot[k]);
	}
	return bytes;
}

/* A run is charged to its blocks' accounts from its beginning. */
static void audit_runs(struct audit *a, const struct context *x)
{
	for (uint32_t i = 0; i < a->c->drives * CORE_RUNS_MAX; i++) {
		const struct run *run = drive_run(a->c, i);

		if (run->phase == RUN_FREE || run->ctx != x)
			continue;
		for (uint32_t k = 0; k < run->blocks; k++)
			charge(a, x, run->slot[k], ABI_TIER_NVME,
			       block_bytes(x, run->slot[k]));
	}
}

/* ---- contexts ----------------------------------------------------------------------------- */

/* Places that no page names any more: only their batches know them. */
static void audit_detached(struct audit *a, const struct context *x, struct recount *n)
{
	const struct core *c = a->c;

	for (uint32_t i = 0; i < CORE_BATCHES_MAX; i++)
		for (uint32_t k = 0; k < c->reclaim.batch[i].count; k++) {
			const struct core_batch *b = &c->reclaim.batch[i];
			uint32_t tier = b->place[k] >> ABI_ADDR_BITS & 7;
			uint32_t bytes;

			if (!b->detached[k] ||
			    (b->place[k] >> (ABI_ADDR_BITS + 3) & 0xffff) != x->index)
				continue;
			bytes = page_stride(x, b->page[k]);
			n->detached_places++;
			n->detached[tier] += bytes;
			n->retiring[tier] += bytes;
			if (b->detached[k] == CORE_DETACHED_HELD)
				a->quarantined[tier] += bytes;
		}
}

/* Places that clients write: their puts know them, or the jobs by which they let go of them. */
static void audit_places(struct audit *a, const struct context *x, struct recount *n)
{
	uint64_t lent = 0;

	for (uint32_t i = 0; i < CORE_REQUESTS_MAX; i++) {
		const struct put *p = &a->c->puts.table[i];

		for (uint32_t k = 0; p->used && p->ctx == x && k < p->places; k++, lent++)
			n->placed += page_stride(
				x, shard_page(x, p, p->place[k].cursor % p->pages).page);
	}
	for (uint32_t i = 0; i < CORE_COPIES_MAX; i++) {
		const struct core_copy *copy = &a->c->actions.copy[i];

		if (!copy->count || !copy->in_place || copy->context_id != x->id)
			continue;
		lent += copy->count;
		for (uint32_t k = 0; copy->priv.owner == x && k < copy->count; k++)
			n->placed += copy->item[k].bytes;
	}
	a->puts_lent += lent;
	audit_compare(a, audit_whose(a, x), "bytes of places of puts", n->placed, x->placed);
}

static void audit_attached(struct audit *a, const struct context *x)
{
	uint64_t attached = 0;

	for (uint32_t i = 0; i < a->c->clients_high; i++)
		attached += a->c->client[i].state && bit_get(a->c->client[i].attached, x->index);
	audit_compare(a, audit_whose(a, x), "clients attached", attached, x->attached);
}

static void audit_reservations(struct audit *a, const struct context *x, struct recount *n)
{
	for (uint32_t i = 0; i < a->c->reserve.high; i++) {
		const struct reservation *r = &a->c->reserve.table[i];
		uint32_t per = x->ix.pages_per_block, most = r->p95;

		if (!r->used || r->ctx != x)
			continue;
		for (uint32_t k = 0; k < ABI_PARTS_MAX; k++)
			n->reserved[k] += r->left[k];
		most = r->granted > most ? r->granted : most;
		for (uint64_t pages = r->drawn; most && pages; most--)
			pages -= pages < per ? pages : per;
		n->reserved_most += most;
	}
}

/* What pins keep of a block, all or its first layers: those count no more that others have. */
uint64_t audit_pinned_bytes(const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct abi_geometry *g = context_geometry(x);
	const struct block_use *use = block_use(x, slot);
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *part = &g->part[i];
		uint32_t layers = use->lead_pins[tier] ? use->lead_layers[tier] : 0;

		if (use->pins[tier] || layers > part->layers)
			layers = part->layers;
		if (index_block(&x->ix, slot)->parts >> i & 1)
			bytes += (uint64_t)layers * part->groups * part->page_stride;
	}
	return bytes;
}

/* A pin counts in full for its client; for salts what is kept of their blocks does. */
static void audit_pinned(struct audit *a, const struct context *x)
{
	for (uint32_t i = 0; i < a->c->pins.high; i++) {
		const struct pin *p = &a->c->pins.table[i];

		if (!p->used || p->ctx != x)
			continue;
		a->owners.account[p->owner].pinned[p->tier] += p->bytes;
	}
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
			a->salts.account[block_account(x, slot)].pinned[t] +=
				audit_pinned_bytes(x, slot, t);
}

static void audit_tier(struct audit *a, const struct context *x, const char *whose, uint32_t t,
		       const struct recount *n)
{
	uint64_t moving = evacuate_copying(a->c, x, t);
	struct space_stats st;

	audit_compare(a, whose, "resident pages", n->resident[t], x->pages_resident[t]);
	audit_compare(a, whose, "retiring bytes", n->retiring[t], x->retiring[t]);
	audit_compare(a, whose, "moving bytes", moving, x->moving[t]);
	a->streamed[t] += n->streamed[t];
	a->stream_counts[t] += n->stream_counts[t];
	if (!x->space[t])
		return;
	space_stats(x->space[t], &st);
	audit_compare(a, whose, "bytes of places",
		      n->bytes[t] + n->detached[t] + moving +
			      (t == ABI_TIER_CXL ? n->placed : 0), st.live);
	audit_space(a, whose, x->space[t], t == ABI_TIER_CXL ? n->reserved : NULL);
	a->charged[t] += st.charged;
	a->places[t] += st.live;
	a->promised[t] += st.reserved;
}

static void ledger_clear(struct ledger *dv)
{
	memset(dv->account, 0, dv->count * sizeof(*dv->account));
}

static void audit_context(struct audit *a, const struct context *x)
{
	struct recount n;
	const char *whose = audit_whose(a, x);

	memset(&n, 0, sizeof(n));
	ledger_clear(&a->salts);
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		audit_block(a, x, slot, &n);
	a->staged += n.staged;
	if (n.staged > n.bytes[ABI_TIER_HBM] + n.bytes[ABI_TIER_CXL])
		audit_tell(a, "context %s: more bytes are staged than there are", x->spec.name);
	audit_tables(a, x);
	audit_needs(a, x);
	audit_runs(a, x);
	audit_detached(a, x, &n);
	audit_places(a, x, &n);
	audit_attached(a, x);
	audit_reservations(a, x, &n);
	a->reserved_most += n.reserved_most * x->spec.geometry.block_bytes;
	audit_pinned(a, x);
	audit_compare(a, whose, "blocks", n.blocks, x->blocks);
	audit_compare(a, whose, "pending blocks", n.pending, x->blocks_pending);
	audit_compare(a, whose, "block slots in use", n.live_slots, x->slots_live);
	audit_compare(a, whose, "blocks with a priority", n.kept, x->kept_blocks);
	audit_compare(a, whose, "places that no page names", n.detached_places, x->detached);
	audit_compare(a, whose, "blocks that reservations may come to", n.reserved_most,
		      x->reserved_most_blocks);
	audit_compare(a, whose, "dirty bytes", n.dirty + dirty_dropped(a->c, x), x->dirty_bytes);
	audit_compare(a, whose, "NVMe bytes", n.nvme, x->nvme_bytes);
	audit_compare(a, whose, "room of records", n.records, x->record_bytes);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		audit_tier(a, x, whose, t, &n);
	audit_ledger(a, whose, &x->salts, &a->salts);
	a->live += n.nvme;
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* A sum that the limit does not allow, unless a start brought so much back. */
static void audit_limit(struct audit *a, uint64_t bytes, uint64_t most, uint64_t brought)
{
	if (a->c->config.table_bytes && bytes > most && bytes > brought)
		audit_tell(a, "host: tables may come to %llu bytes, the limit is %llu",
			   (unsigned long long)bytes, (unsigned long long)most);
}

static void audit_tables_sums(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t tables = 0, users = 0, most = c->config.table_bytes;

	for (uint32_t i = 0; i < c->contexts_high; i++)
		tables += c->context[i] ? c->context[i]->table_bytes : 0;
	for (uint32_t i = 0; i < c->tables.users_high; i++) {
		users += c->tables.user[i].bytes;
		audit_limit(a, c->tables.user[i].bytes, most / 4 * 3, c->tables.user[i].brought);
	}
	audit_limit(a, c->tables.bytes, most, c->tables.brought);
	audit_compare(a, "host", "bytes of tables", tables, c->tables.bytes);
	audit_compare(a, "host", "bytes of users' tables", users, c->tables.bytes);
}

static void audit_host(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t contexts = 0, punching = 0, requests = 0, reservations = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		contexts += c->context[i] != NULL;
		punching += c->context[i] ? c->context[i]->punching : 0;
	}
	for (uint32_t i = 0; i < c->requests.high; i++)
		requests += c->requests.table[i].phase != REQUEST_FREE;
	for (uint32_t i = 0; i < c->reserve.high; i++)
		reservations += c->reserve.table[i].used;
	audit_compare(a, "host", "bytes that reservations may come to", a->reserved_most,
		      c->reserve.most_bytes);
	audit_compare(a, "host", "reservations", reservations, c->reserve.count);
	audit_tables_sums(a);
	audit_compare(a, "host", "contexts", contexts, c->contexts);
	audit_compare(a, "host", "ranges being punched", punching,
		      c->evict.punching[ABI_TIER_HBM] + c->evict.punching[ABI_TIER_CXL]);
	audit_compare(a, "host", "requests", requests, c->requests.count);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		audit_compare(a, "host", "bytes charged to the pool", a->charged[t],
			      c->pool[t].used);
		audit_compare(a, "host", "quarantined bytes", a->quarantined[t],
			      c->reclaim.quarantined[t]);
		audit_compare(a, "host", "bytes of live places", a->places[t], c->pool[t].live);
		audit_compare(a, "host", "bytes promised", a->promised[t], c->pool[t].reserved);
	}
}

/*
 * A segment that is read is not opened anew: by reads of data, and by the cleaner until it is done
 * with it. One that were never let go would be lost to the store.
 */
static void count_reads(const struct core *c, const struct drive *dv, uint64_t *reads)
{
	const struct disk_super *p = &dv->super;

	for (uint32_t i = 0; i < CORE_IO_MAX; i++) {
		const struct core_io *io = &c->actions.io[i];

		if (sched_has(&io->priv.node) && !io->write && io->device == dv->device &&
		    (io->offset - p->segment_offset) % p->segment_bytes >= p->summary_bytes)
			reads[store_segment_of(dv->store, io->offset)]++;
	}
	if (clean_busy(dv))
		reads[dv->cleaner.segment]++;
}

/* Nor is one to which a run is being written. */
static void count_runs(const struct core *c, const struct drive *dv, uint64_t *runs)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE)
			runs[dv->run[i].place.segment]++;
	for (uint32_t i = 0; i < c->drives * CLEAN_RUNS; i++) { /* or by who is drained */
		const struct run *run = &c->drive[i / CLEAN_RUNS]->cleaner.run[i % CLEAN_RUNS];

		if (run->ctx && run->log == dv)
			runs[run->place.segment]++;
	}
}

static void count_discards(const struct core *c, const struct drive *dv, uint64_t *discards)
{
	(void)c;
	if (discard_busy(dv))
		discards[dv->discarder.place.segment]++;
}

/* What keeps segments from being opened anew, and what the store says of each. */
static const struct segment_use {
	const char *what;
	void (*count)(const struct core *c, const struct drive *dv, uint64_t *by_segment);
	uint32_t (*kept)(const struct store *s, uint32_t segment);
} segment_uses[] = {
	{ "reads", count_reads, store_segment_reads },
	{ "runs", count_runs, store_segment_pending },
	{ "discards", count_discards, store_segment_discarding },
};

static void audit_segment_use(struct audit *a, const struct segment_use *use,
			      const struct drive *dv)
{
	uint32_t segments = (uint32_t)dv->super.segment_count;
	uint64_t *n = calloc(segments + 1, sizeof(*n));

	if (!n) {
		audit_tell(a, "out of memory for the recount");
		return;
	}
	use->count(a->c, dv, n);
	for (uint32_t i = 0; i < segments; i++)
		if (n[i] != use->kept(dv->store, i))
			audit_tell(a, "segment %u: counted %llu %s, the store says %u",
				   dv->first + i, (unsigned long long)n[i], use->what,
				   use->kept(dv->store, i));
	free(n);
}

static uint64_t audit_log(struct audit *a, const struct drive *dv)
{
	const uint64_t *counted = a->segment + dv->first;
	struct store_stats st;

	for (size_t i = 0; i < sizeof(segment_uses) / sizeof(segment_uses[0]); i++)
		audit_segment_use(a, &segment_uses[i], dv);
	for (uint32_t i = 0; i < dv->super.segment_count; i++)
		if (counted[i] != store_segment_live(dv->store, i))
			audit_tell(a, "segment %u: counted %llu live bytes, the store says %llu",
				   dv->first + i, (unsigned long long)counted[i],
				   (unsigned long long)store_segment_live(dv->store, i));
	store_stats(dv->store, &st);
	return st.live;
}

static void audit_store(struct audit *a)
{
	uint64_t live = 0;

	for (uint32_t i = 0; i < a->c->drives; i++)
		live += audit_log(a, a->c->drive[i]);
	audit_compare(a, "store", "live bytes", a->live, live);
}

static void audit_lent(struct audit *a)
{
	uint64_t clients = a->puts_lent, contexts = 0;
	uint64_t lent = a->c->evict.lends.count + a->c->puts.lent;

	audit_compare(a, "host", "places of puts", a->puts_lent, a->c->puts.lent);
	for (uint32_t i = 0; i < a->c->clients_high; i++)
		clients += a->c->client[i].used[ACCOUNT_LENDS];
	for (uint32_t i = 0; i < a->c->contexts_high; i++) {
		contexts += a->c->context[i] ? a->c->context[i]->lent : 0;
		a->lent += a->c->context[i] ? a->c->context[i]->index_lent : 0;
	}
	audit_compare(a, "host", "slabs in devices", a->lent, lent);
	audit_compare(a, "clients", "slabs in devices", clients, lent);
	audit_compare(a, "contexts", "slabs in devices", contexts, lent);
}

/* Connections hold their accounts, whether they have put anything or not, until they have left. */
static void audit_owners(struct audit *a)
{
	for (uint32_t i = 0; i < a->c->clients_high; i++)
		if (a->c->client[i].state == 1 || a->c->client[i].leaving)
			a->owners.account[a->c->client[i].owner].uses++;
	audit_ledger(a, "clients", &a->c->owners, &a->owners);
}

static void audit_staged(struct audit *a)
{
	const struct core_metrics *m = &a->c->metrics;

	audit_compare(a, "host", "staged bytes", a->staged, a->c->staged.bytes);
	audit_compare(a, "host", "prefetched bytes",
		      m->prefetch_used + m->prefetch_wasted + m->prefetch_failed + a->staged,
		      m->prefetch_bytes);
}

/* What is begun and neither let go nor released is within the window. */
static void audit_window(struct audit *a, const struct stream *s)
{
	uint32_t first;

	if (!s->used || !s->per_layer || !s->window || !s->usable)
		return;
	first = s->dropped / s->per_layer;
	if (first < s->released)
		first = s->released;
	if (s->issue > first * s->per_layer &&
	    (s->issue - first * s->per_layer - 1) / s->per_layer + 1 > s->window)
		audit_tell(a, "stream %u of client %u: layers %u to item %u of %u a layer are more "
			   "than its window of %u", s->number, s->client, first, s->issue,
			   s->per_layer, s->window);
}

/* What windows the streams of a context have, or (NULL) those of an account. */
static void audit_windows(struct audit *a, const char *who, const struct context *x,
			  uint32_t account, const uint64_t has[ABI_MEM_TIERS])
{
	const struct core *c = a->c;
	uint64_t grants[ABI_MEM_TIERS] = { 0 };

	for (uint32_t i = 0; i < c->streams.high; i++) {
		const struct stream *s = &c->streams.table[i];

		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
			if (s->used && (x ? s->ctx == x : s->account == account))
				grants[t] += s->grant[t];
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		audit_compare(a, who, "windows of streams", grants[t], has[t]);
}

/* Of users, also for connections that have ended, and of contexts; and how many users there are. */
static void audit_users(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t users = 0;

	for (uint32_t i = 0; i < c->accounts.high; i++) {
		users += c->accounts.table[i].connections > 0;
		audit_windows(a, "a user", NULL, i, c->accounts.table[i].windows);
	}
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i])
			audit_windows(a, c->context[i]->spec.name, c->context[i], 0,
				      c->context[i]->windows);
	audit_compare(a, "host", "users", users, c->accounts.users);
}

/* Counts are the bits of streams' items; grants are within what was set aside. */
static void audit_streams(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t counts[ABI_MEM_TIERS] = { 0 }, grants[ABI_MEM_TIERS] = { 0 };
	uint64_t holds = 0, streams = 0;

	audit_users(a);
	for (uint32_t i = 0; i < c->streams.high; i++) {
		const struct stream *s = &c->streams.table[i];

		for (uint32_t k = s->dropped; s->used && k < s->issue; k++) {
			counts[s->tier] += (s->item[k] & ITEM_COUNTED) != 0;
			counts[ABI_TIER_CXL] += (s->item[k] & ITEM_STAGE) != 0;
		}
		for (uint32_t t = 0; s->used && t < ABI_MEM_TIERS; t++)
			grants[t] += s->grant[t];
		holds += s->used ? s->held : 0;
		streams += s->used;
		audit_window(a, s);
	}
	audit_compare(a, "host", "streams", streams, c->streams.count);
	audit_compare(a, "host", "blocks that streams hold", a->stream_holds, holds);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		audit_compare(a, "host", "counts of streams", a->stream_counts[t], counts[t]);
		audit_compare(a, "host", "bytes of the stream pool", a->streamed[t],
			      c->streamed[t]);
		audit_compare(a, "host", "windows of streams", grants[t], c->streams.grants[t]);
		if (grants[t] > c->streams.aside[t] ||
		    c->streams.aside[t] > c->pool[t].capacity / c->config.stream_share)
			audit_tell(a, "windows of %llu bytes in tier %u are more than is set "
				   "aside, or that more than the pool",
				   (unsigned long long)grants[t], t);
	}
}

/* The scheduler's counts; and nobody waits for a read that is queued behind less urgent ones. */
static void audit_sched(struct audit *a)
{
	const struct core *c = a->c;

	if (!sched_agrees(c))
		audit_tell(a, "the scheduler's queues do not hold what they count");
	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];
		bool fetch = r->sqe.op == ABI_OP_FETCH || r->sqe.op == ABI_OP_FETCH_PAGES;

		if (r->phase == REQUEST_SPACE && fetch && !r->answered && fetch_outranks(c, r))
			audit_tell(a, "client %u waits in class %u for a read queued below it",
				   r->client, r->sqe.klass);
	}
}

uint64_t core_audit(const struct core *c, void (*tell_fn)(void *arg, const char *what), void *arg)
{
	struct audit a = { .c = c, .tell = tell_fn, .arg = arg };
	const struct drive *last = c->drives ? c->drive[c->drives - 1] : NULL;
	uint32_t segments = last ? last->first + (uint32_t)last->super.segment_count : 0;

	a.segment = calloc(segments + 1, sizeof(*a.segment));
	a.record = calloc(c->drives ? records_count(c) : 1, 1);
	if (!a.segment || !a.record || ledger_open(&a.owners, c->owners.count) ||
	    ledger_open(&a.salts, CONTEXT_SALTS)) {
		audit_tell(&a, "out of memory for the recount");
	} else {
		ledger_clear(&a.owners);
		for (uint32_t i = 0; i < c->contexts_high; i++)
			if (c->context[i])
				audit_context(&a, c->context[i]);
		audit_host(&a);
		audit_store(&a);
		audit_lent(&a);
		audit_owners(&a);
		audit_staged(&a);
		audit_sched(&a);
		audit_streams(&a);
		audit_held(&a);
		audit_work(&a);
		audit_limits(&a);
		if (c->metrics.event_items_most > CORE_ITEMS_MAX)
			audit_tell(&a, "an event looked at %llu items, at most %u",
				   (unsigned long long)c->metrics.event_items_most,
				   CORE_ITEMS_MAX);
	}
	ledger_close(&a.owners);
	ledger_close(&a.salts);
	free(a.segment);
	free(a.record);
	return a.wrong;
}
