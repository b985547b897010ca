/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the core's own words show (holds, pins, persistence, queues; core_audit recounts most
 * of them). It must not ask the functions that decide.
 *   Room: an answer of -ENOSPC says that nothing can go (I8): pages are pinned, leased, held by
 *   requests under way, dirty, or kept by an evacuation that failed several times. The tier is
 *   searched for what could have gone all the same, in the context that asked and, while that is
 *   below its share, in the one that is most above its own.
 *   Leads: what the core pinned of conversations stays.
 *   Retention: what a crash left is kept as some put said, and for no longer.
 *   Prefixes: no cached block that stood behind another one stays when that one has left the
 *   service, on whatever tier, but for as long as something holds or pins it.
 *   Classes: nobody waits for a page that is queued in a less urgent class (P6).
 *   Flushes: what a failed one has written again is still there.
 *   Operations: what they move lies where it lay when they were begun.
 *   Streams: who does not let go keeps layers for a while after the answer, and no longer.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world_priv.h"
#include "tierd/core/io/sched_priv.h"
#include "tierd/core/state.h"

/* ---- room --------------------------------------------------------------------------------- */

#define SLACK (16u * BLOCK_BYTES) /* what may have been let go since, in the same event */
#define FAILED_MANY 4u /* slabs in a row that could not be emptied: it is not tried again */

static bool pinned(const struct block_use *use, uint32_t tier)
{
	return use->pins[tier] || use->lead_pins[tier];
}

/* Nothing that is known keeps the block there. */
static bool is_free_to_go(const struct core *c, const struct context *x, uint32_t slot,
			  uint32_t tier)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];

	if (index_block(&x->ix, slot)->state != ABI_BLOCK_COMMITTED || use->hold > use->streams ||
	    pinned(use, tier))
		return false;
	if (tier == ABI_TIER_HBM)
		return true;
	if (c->drives && x->plan.quota[ABI_TIER_NVME] && m->persist != PERSIST_REFUSED)
		return m->persist == PERSIST_CLEAN && m->settle != SETTLE_WRITTEN;
	return !use->hold && !pinned(use, ABI_TIER_HBM);
}

/* Of its pages there, those that no stream needs now. */
static uint64_t there(const struct context *x, uint32_t slot, uint32_t tier)
{
	uint64_t bytes = 0;

	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		const struct abi_page *d = index_page(&x->ix, slot, page);

		if (page_state(d, tier) == ABI_PAGE_READY && !stream_page_count(d, tier))
			bytes += page_stride(x, page);
	}
	return bytes;
}

/* Bytes of the context that could leave the tier. */
static uint64_t could_go(const struct core *c, uint32_t id, uint32_t tier)
{
	const struct context *x = core_context(c, id);
	uint64_t bytes = 0;

	for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++)
		if (is_free_to_go(c, x, slot, tier))
			bytes += there(x, slot, tier);
	return bytes;
}

/* What others are above their shares, each by a slab at least, and could let go. */
static uint64_t donors(const struct world *w, uint32_t which, uint32_t tier)
{
	struct core_context_stats taker, st;
	uint64_t most = 0, over, bytes = 0;

	if (core_context_stats(w->core, w->context[which].id, &taker) ||
	    taker.tier[tier].used >= taker.tier[tier].soft)
		return 0;
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		const struct world_context *y = &w->context[i];

		if (i == which || !y->made || y->removing ||
		    core_context_stats(w->core, y->id, &st) ||
		    st.tier[tier].used < st.tier[tier].soft + ABI_HUGE)
			continue;
		over = st.tier[tier].used - st.tier[tier].soft;
		if (over > most)
			bytes = could_go(w->core, y->id, tier);
		most = over > most ? over : most;
	}
	return bytes;
}

/* Do the blocks' accounts have limits? Then only their own blocks may go. (Salts: see client.c.) */
static bool is_limited(const struct world_context *x, const struct ask *a, uint32_t tier)
{
	uint32_t from = a->first < WORLD_RUN ? 0 : a->first - WORLD_RUN;

	for (uint32_t n = from; n < a->first + a->count; n++)
		if (x->hard[world_salt(n)][tier])
			return true;
	return false;
}

static bool is_asked(struct world *w, const struct ask *a, uint32_t slot)
{
	uint32_t its;

	for (uint32_t n = a->first; n < a->first + a->count; n++)
		if (model_find(w, a->context, n, &its) && its == slot)
			return true;
	return false;
}

/* What is asked for, and what cannot go beside it, is more than a salt may have: it cannot come. */
bool inside_no_room(struct world *w, const struct ask *a, uint32_t tier)
{
	const struct world_context *x = &w->context[a->context];
	const struct context *in = core_context(w->core, x->id);
	uint64_t need[WORLD_SALTS] = { 0 };

	for (uint32_t n = 0; in && n < WORLD_KEYS; n++) {
		uint32_t slot, salt = world_salt(n);

		if (!model_find(w, a->context, n, &slot))
			continue;
		if (is_asked(w, a, slot))
			need[salt] += block_bytes(in, slot);
		else if (!is_free_to_go(w->core, in, slot, tier))
			need[salt] += there(in, slot, tier);
	}
	for (uint32_t n = a->first; n < a->first + a->count; n++) {
		uint64_t hard = x->hard[world_salt(n)][tier];

		if (hard && need[world_salt(n)] > hard)
			return true;
	}
	return false;
}

static bool explained(const struct world *w, const struct ask *a, uint32_t tier)
{
	const struct core *c = w->core;
	const struct world_context *x = &w->context[a->context];

	if (!x->made || x->removing || is_limited(x, a, tier) || wide_limits(w, a->context, tier) ||
	    c->evict.failed[false] >= FAILED_MANY)
		return true;
	return could_go(c, x->id, tier) + donors(w, a->context, tier) <= SLACK;
}

/* Was it the store that had no room, or the block's way to it? */
static bool is_stores(const struct ask *a)
{
	return a->durable || a->op == ABI_OP_DELETE ||
	       (a->op == ABI_OP_MIGRATE && a->shard == ABI_TIER_NVME);
}

static void refusal_check(struct world *w, const struct ask *a)
{
	bool hbm = a->op == ABI_OP_FETCH || a->op == ABI_OP_PREFETCH || a->op == ABI_OP_STREAM ||
		   a->op == ABI_OP_MIGRATE || a->op == ABI_OP_FETCH_PAGES;

	if (is_stores(a) || explained(w, a, ABI_TIER_CXL) ||
	    (hbm && a->shard == ABI_TIER_HBM && explained(w, a, ABI_TIER_HBM)))
		return;
	world_fail(w, "I8: op %u of context %u was refused for want of room, and nothing holds it",
		   a->op, a->context);
}

/* The answer is sent: if the refusal was not seen before, now is when it was decided. */
void inside_refused(struct world *w, const struct ask *a)
{
	w->result->refused++;
	if (!a->refused)
		refusal_check(w, a);
}

/*
 * A refused request is answered once what moves for it has landed; what held the room may have
 * ended by then. So it is judged when it is decided.
 */
void inside_decided(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];
		struct ask *a;

		if (r->phase == REQUEST_FREE || r->answered || r->error != -ENOSPC ||
		    r->client >= WORLD_CLIENTS || w->client[r->client].state != 1)
			continue;
		a = &w->client[r->client].ask[r->sqe.user_data];
		if (a->refused || a->kind == ASK_NONE)
			continue;
		a->refused = true;
		refusal_check(w, a);
	}
}

/* ---- leads -------------------------------------------------------------------------------- */

/* Pages of the first layers that are in the tier. */
static uint64_t lead_pages_of(const struct context *x, const struct pin *p, uint32_t slot)
{
	uint64_t pages = 0;

	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		const struct abi_part *part = &x->spec.geometry.part[x->page_part[page]];

		if ((page - part->page_base) / part->groups < p->layers &&
		    page_state(index_page(&x->ix, slot, page), p->tier) == ABI_PAGE_READY)
			pages |= 1ull << page;
	}
	return pages;
}

static struct world_lead *head_of(struct world *w, const struct pin *p, struct abi_block_ref ref)
{
	struct world_lead *unused = NULL;

	for (uint32_t i = 0; i < WORLD_LEADS; i++) {
		struct world_lead *h = &w->lead[i];

		if (h->pin == p->id && h->ref.slot == ref.slot &&
		    h->ref.generation == ref.generation)
			return h;
		if (!unused && h->looked + 1 < w->looked)
			unused = h;
	}
	if (unused)
		*unused = (struct world_lead){ .pin = p->id, .ref = ref };
	return unused;
}

static void lead_check(struct world *w, const struct pin *p, struct abi_block_ref ref)
{
	const struct context *x = p->ctx;
	const struct abi_block *b = index_block(&x->ix, ref.slot);
	struct world_lead *h;
	uint64_t pages;

	if (b->generation != ref.generation || b->state != ABI_BLOCK_COMMITTED)
		return; /* a block that was deleted or did not verify is gone */
	h = head_of(w, p, ref);
	if (!h)
		return;
	if (block_use(x, ref.slot)->lead_layers[p->tier] < p->layers)
		world_fail(w, "pin: block %u is pinned by fewer layers than asked", ref.slot);
	pages = lead_pages_of(x, p, ref.slot);
	if (h->pages & ~pages)
		world_fail(w, "pin: a page of the head of block %u left tier %u", ref.slot,
			   p->tier);
	h->pages = pages;
	h->looked = w->looked;
}

/* What was there under a pin of first layers at the last look is there. */
static void leads_check(struct world *w)
{
	const struct core *c = w->core;

	w->looked++;
	for (uint32_t i = 0; c->pins.count && i < c->pins.high; i++) {
		const struct pin *p = &c->pins.table[i];

		if (!p->used || !p->layers || p->ctx->closing)
			continue;
		for (const struct pin_chunk *k = p->chunk; k; k = k->next)
			for (uint32_t n = 0; n < k->count; n++)
				lead_check(w, p, k->ref[n]);
	}
}

/* ---- prefixes ----------------------------------------------------------------------------- */

#define ALONE_NS (150 * MSEC)
#define LOOK_NS (20 * MSEC) /* a longer time between two looks counts as that */

static bool is_kept(const struct context *x, uint32_t slot)
{
	const struct block_use *use = block_use(x, slot);

	return use->hold || use->writers || pinned(use, ABI_TIER_HBM) || pinned(use, ABI_TIER_CXL);
}

/* Block n, which has a place in the index, beside block n - 1, which is at `before` or nowhere: its
 * parent, unless it stands at a fork. */
static void link_check(struct world *w, struct world_link *l, const struct context *x,
		       uint32_t slot, uint32_t before)
{
	const struct abi_block *b = index_block(&x->ix, slot);

	if (l->context != x->id || l->slot != slot || l->generation != b->generation)
		*l = (struct world_link){ x->id, slot, b->generation, false, 0 };
	if (before != ABI_SLOT_NONE || (b->parent < x->ix.slots_used &&
					index_block(&x->ix, b->parent)->state != ABI_BLOCK_FREE)) {
		l->seen |= b->parent == before;
		l->alone_ns = 0;
		return;
	}
	if (!l->seen || b->state != ABI_BLOCK_COMMITTED ||
	    b->epoch != (uint32_t)x->spec.epoch || x->meta[slot].flags & BLOCK_DURABLE)
		return;
	l->alone_ns = is_kept(x, slot) ? 0 : l->alone_ns + w->passed_ns;
	if (l->alone_ns > ALONE_NS)
		world_fail(w, "context %u: block %u stayed %llu ms without the one before it",
			   x->index, slot, (unsigned long long)(l->alone_ns / MSEC));
}

void inside_prefixes(struct world *w)
{
	/* While a device is silent the core is told of time, but by few looks of ours. */
	w->passed_ns = w->now_ns - w->linked_ns < LOOK_NS ? w->now_ns - w->linked_ns : LOOK_NS;
	w->linked_ns = w->now_ns;
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		const struct world_context *y = &w->context[i];
		const struct context *x = y->made ? core_context(w->core, y->id) : NULL;
		uint32_t before = ABI_SLOT_NONE;

		for (uint32_t n = 0; x && !x->closing && n < WORLD_KEYS; n++) {
			uint8_t key[ABI_KEY_BYTES];
			uint32_t slot;

			model_key(n, key);
			slot = index_find(&x->ix, key);
			if (slot != ABI_SLOT_NONE)
				link_check(w, &w->link[i][n], x, slot, before);
			before = slot;
		}
	}
}

/* ---- classes ------------------------------------------------------------------------------ */

static void classes_check(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];

		if (r->phase == REQUEST_SPACE && !r->answered &&
		    (r->sqe.op == ABI_OP_FETCH || r->sqe.op == ABI_OP_FETCH_PAGES) &&
		    fetch_outranks(c, r))
			world_fail(w, "P6: client %u waits in class %u for a read queued below it",
				   r->client, r->sqe.klass);
	}
}

/* ---- flushes ------------------------------------------------------------------------------ */

static void unflushed_check(struct world *w, const struct drive *dv)
{
	const struct core *c = w->core;

	for (uint64_t i = dv->unflushed_head; i != dv->unflushed_tail; i++) {
		const struct unflushed *u = &dv->unflushed[i % UNFLUSHED_MAX];
		const struct context *x = core_context(c, u->context_id);
		uint32_t slot = u->ref.slot;

		if (x && index_block(&x->ix, slot)->generation == u->ref.generation &&
		    !(x->meta[slot].flags & BLOCK_DROPPED) &&
		    x->meta[slot].settle == SETTLE_WRITTEN &&
		    x->meta[slot].there[ABI_TIER_CXL].pages != block_pages(x, slot))
			world_fail(w, "I6: block %u left CXL before it was flushed", slot);
	}
}

/*
 * Tombstones are queued, written and flushed, in this order. A block of the durable log stays in
 * CXL until a flush has covered it: one that fails has it written again, from there.
 */
static void flushes_check(struct world *w)
{
	const struct core *c = w->core;

	for (const struct tombs *t = c->tombs; t < c->tombs + TOMBS_KINDS; t++)
		if (t->flushed > t->written || t->written > t->queued)
			world_fail(w, "I6: %llu tombstones were flushed, %llu written, %llu queued",
				   (unsigned long long)t->flushed, (unsigned long long)t->written,
				   (unsigned long long)t->queued);
	for (uint32_t i = 0; i < c->drives; i++)
		unflushed_check(w, c->drive[i]);
}

/* ---- write-back ---------------------------------------------------------------------------- */

static bool is_in(const struct run *run, uint32_t slot)
{
	for (uint32_t i = 0; i < run->blocks; i++)
		if (run->slot[i] == slot)
			return true;
	return false;
}

/*
 * Of a run that was just begun: no cached block is written while the one before it is to be, and
 * was so before the event. Within an event the order cannot be seen.
 */
static void order_check(struct world *w, const struct run *run)
{
	const struct context *x = run->ctx;

	for (uint32_t i = 0; i < run->blocks; i++) {
		uint32_t slot = run->slot[i], parent = block_parent(x, slot);

		if (parent >= WORLD_SLOTS || !w->queued[parent] || is_in(run, parent) ||
		    (x->meta[slot].flags & ~x->meta[parent].flags & BLOCK_DURABLE))
			continue;
		if (block_queued(&x->meta[parent]))
			world_fail(w, "write-back takes block %u before block %u, its parent", slot,
				   parent);
	}
}

static void runs_check(struct world *w)
{
	const struct core *c = w->core;
	const struct context *x = core_context(c, w->context[0].id); /* it alone has NVMe */
	bool one = w->result->events == w->run_events + 1;

	_Static_assert(sizeof(w->run_lsn[0]) == CORE_RUNS_MAX * sizeof(uint64_t), "all runs");
	w->run_events = w->result->events;
	for (uint32_t i = 0; i < c->drives * CORE_RUNS_MAX; i++) {
		const struct run *run = drive_run(c, i);
		uint64_t lsn = run->phase == RUN_FREE ? 0 : run->place.lsn;
		uint64_t *last = &w->run_lsn[i / CORE_RUNS_MAX][i % CORE_RUNS_MAX];

		if (one && lsn && lsn != *last && run->ctx == x)
			order_check(w, run);
		*last = lsn;
	}
	for (uint32_t slot = 0; slot < WORLD_SLOTS; slot++)
		w->queued[slot] = x && slot < x->ix.slots_used && block_queued(&x->meta[slot]);
}

/* ---- operations --------------------------------------------------------------------------- */

struct spot {
	const struct context *x; /* NULL: it is no context's memory */
	uint32_t tier;
	uint64_t offset;
};

static struct spot spot_of(const struct world *w, const void *at)
{
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		const struct context *x = core_context(w->core, w->context[i].id);

		for (uint32_t t = 0; x && w->context[i].made && t < ABI_MEM_TIERS; t++) {
			uint64_t offset = (uintptr_t)at - (uintptr_t)w->context[i].mem[t];

			if (offset < x->plan.mem_bytes[t])
				return (struct spot){ x, t, offset };
		}
	}
	return (struct spot){ .x = NULL };
}

/* What an operation moves lies in a place that was handed out, and not taken back meanwhile. */
static void place_check(struct world *w, const void *at)
{
	struct spot s = spot_of(w, at);

	if (s.x && !space_is_live(s.x->space[s.tier], s.offset))
		world_fail(w, "I2: an operation in tier %u on a place that is free", s.tier);
}

/* A page that something reads stays where it is. */
static void source_check(struct world *w, const struct core_copy *copy, uint32_t i)
{
	struct spot s = spot_of(w, copy->item[i].src);
	uint32_t slot = copy->priv.slot[i], page = copy->priv.page[i];

	if (s.x && page_addr(index_page(&s.x->ix, slot, page), s.tier) != s.offset)
		world_fail(w, "I2: block %u page %u moved while it was copied", slot, page);
}

/* Who proves what recovery found believes no first reading: a block is not lost by it. */
bool inside_reads_again(const struct world *w, const struct core_io *io)
{
	const struct prover *p = &w->core->drive[io->device]->prover;
	uintptr_t at = (uintptr_t)io->piece[0].addr - (uintptr_t)p->buf;

	return p->reading && !p->tries && at < p->buf_bytes;
}

/* The operation that it is a unit of; NULL = it is one by itself. */
static struct core_io *cut_of(const struct world *w, const struct core_io *io)
{
	const struct sched *s = w->core->sched;

	return io >= s->unit && io < s->unit + SCHED_UNITS ? io->priv.owner : NULL;
}

/* The piece was garbled on its way from the device. */
void inside_misread(struct world *w, const struct core_io *io, uint32_t piece)
{
	const struct core_io *whole = cut_of(w, io);

	if (whole)
		w->misread[whole - w->core->actions.io] |= 1ull << (io->priv.node.cut + piece);
}

/*
 * The core is about to be told of the read. What goes in units is judged when the last of them
 * ends: a block that did not verify in an earlier one may have been answered for since, and is
 * voided now.
 */
void inside_units_end(struct world *w, const struct core_io *io)
{
	const struct core_io *whole = cut_of(w, io);
	uint64_t bad, *misread;

	if (!whole || whole->priv.node.flying > 1 || whole->priv.node.state != SCHED_CUT)
		return;
	bad = whole->bad_mask | io->bad_mask << io->priv.node.cut;
	misread = &w->misread[whole - w->core->actions.io];
	for (uint32_t i = 0; i < whole->piece_count; i++)
		if (*misread & bad & 1ull << i)
			model_forgive(w, whole, i);
	*misread = 0;
}

/* A copy within a tier that its checksum shows to be wrong: no page is there. */
void inside_unmoved(struct world *w, const struct core_copy *copy)
{
	for (uint32_t i = 0; i < copy->count; i++) {
		struct spot s = spot_of(w, copy->item[i].dst);
		uint32_t slot = copy->priv.slot[i], page = copy->priv.page[i];
		const struct abi_page *d = s.x ? index_page(&s.x->ix, slot, page) : NULL;

		if (d && page_state(d, s.tier) == ABI_PAGE_READY &&
		    page_addr(d, s.tier) == s.offset)
			world_fail(w, "I2: block %u page %u moved, and the copy does not verify",
				   slot, page);
	}
}

/* At rest no page is on its way to memory: nothing would end it. */
void inside_rest(struct world *w, uint32_t context)
{
	const struct context *x = core_context(w->core, w->context[context].id);

	for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++)
		if (index_block(&x->ix, slot)->state != ABI_BLOCK_FREE &&
		    index_block(&x->ix, slot)->epoch != (uint32_t)x->spec.epoch)
			world_fail(w, "at rest block %u is of an old epoch", slot);
	for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++)
		for (uint32_t page = 0; page < x->ix.pages_per_block; page++)
			for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
				uint32_t state = page_state(index_page(&x->ix, slot, page), t);

				if (state == ABI_PAGE_FILLING || state == ABI_PAGE_RESERVED)
					world_fail(w, "at rest block %u page %u is on its way",
						   slot, page);
			}
}

void inside_copies(struct world *w, const struct core_copy *copy)
{
	for (uint32_t i = 0; i < copy->count; i++) {
		place_check(w, copy->item[i].src);
		place_check(w, copy->item[i].dst);
		source_check(w, copy, i);
	}
}

void inside_reads_or_writes(struct world *w, const struct core_io *io)
{
	for (uint32_t i = 0; i < io->piece_count; i++) {
		struct spot s = spot_of(w, io->piece[i].addr);

		place_check(w, io->piece[i].addr);
		if (s.x && !io->write && !io->verify)
			world_fail(w, "I6: a read into memory that nobody verifies");
		if (io->direct != (s.x && !io->write && s.tier == ABI_TIER_HBM))
			world_fail(w, "paths: a read into HBM is not told from others");
	}
}

/* Time has passed: of the streams that were answered long ago none has its line any more. */
void inside_streams(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; c->streams.count && i < c->streams.high; i++) {
		const struct stream *s = &c->streams.table[i];
		const struct world_client *k = &w->client[s->client];
		const struct world_stream *told;

		if (!s->used || s->over || !s->line || k->state != 1)
			continue;
		told = &k->stream[s->line - k->line];
		if (told->used && told->ended_ns && w->now_ns >= told->ended_ns + WORLD_HOLD)
			world_fail(w, "P1: a stream keeps its layers %llu ms after its answer",
				   (unsigned long long)((w->now_ns - told->ended_ns) / MSEC));
	}
}

static bool paused(const struct world *w, uint64_t until_ns)
{
	return until_ns && until_ns + 50 * MSEC > w->now_ns;
}

/* No block lies there. */
void inside_discards(struct world *w, const struct core_range *range)
{
	const struct context *x = core_context(w->core, w->context[0].id);

	for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++)
		for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
			uint64_t word = index_page(&x->ix, slot, page)->nvme;

			if (index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED &&
			    word & ABI_NVME_PRESENT && abi_nvme_device(word) == range->device &&
			    abi_nvme_offset(word) - range->offset < range->bytes)
				world_fail(w, "a page that lies on NVMe is discarded");
		}
}

/* A write has failed, or found no room: write-back pauses, or did until a moment ago. */
bool inside_pauses(const struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < c->contexts_high; i++)
		for (uint32_t log = 0; log < CORE_LOGS; log++)
			if (c->context[i] && paused(w, c->context[i]->dirty[log].full_retry_ns))
				return true;
	for (uint32_t i = 0; i < c->drives; i++)
		if (paused(w, c->drive[i]->write_retry_ns))
			return true;
	return false;
}

/*
 * As if an event had been spent before it was known who can leave: blocks that streams hold are
 * looked at first, which else give only what nobody else can.
 */
void inside_spent(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		struct context *x = w->context[i].made ? core_context(w->core, w->context[i].id)
						       : NULL;

		for (uint32_t tier = 0; x && tier < ABI_MEM_TIERS; tier++)
			x->unsought[tier] = true;
	}
}

void inside_check(struct world *w)
{
	leads_check(w);
	classes_check(w);
	flushes_check(w);
	runs_check(w);
}

/* ---- retention ---------------------------------------------------------------------------- */

static void recovered(struct world *w, const struct context *x, uint32_t n, uint32_t slot)
{
	uint32_t keep = x->meta[slot].keep, now_ms = (uint32_t)(w->now_ns / MSEC);
	int32_t left = (int32_t)(x->lapse_ms[slot] - now_ms); /* negative: it is over */

	theirs_retained(w, 0, n, slot);
	if (keep & KEEP_TTL && left > (int32_t)(SAID_TTL_MS + DISK_KEEP_UNIT_MS))
		world_fail(w, "retention: key %u has %d ms left after a crash", n, left);
}

/* Of the context that has NVMe, right after it was read back. */
void inside_recovered(struct world *w)
{
	const struct context *x = core_context(w->core, w->context[0].id);

	for (uint32_t n = 0; x && n < WORLD_KEYS; n++) {
		uint8_t key[ABI_KEY_BYTES];
		uint32_t slot;

		model_key(n, key);
		slot = index_find(&x->ix, key);
		if (slot != ABI_SLOT_NONE)
			recovered(w, x, n, slot);
		w->context[0].now.key[n].voided = false; /* its tombstone may be lost */
	}
}
