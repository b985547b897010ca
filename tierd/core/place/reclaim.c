/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reclaim: the daemon's half of the lease protocol (abi/hazard.h). Retired places gather in a
 * batch; FENCE makes every reader's slots visible, SCAN marks the places somebody reads; the others
 * are free. Held ones are quarantined and scanned again: no new lease of them can start, so no
 * further fence is needed. Pages of held places let go of them and are absent: who reads an old
 * place keeps its bytes, and keeps nobody from bringing the page to another place.
 *
 *   retire_page -> batch_open -> [256 pages | 1 ms | someone waits] -> FENCE -> SCAN -> free
 *                                                       quarantine <---------------'   ^
 *                                                           '--- again every 2 ms -----'
 *
 * One pass over all readers' slots serves all batches that were fenced before it began, those in
 * quarantine included. It takes as many turns as there are slots: a place that is free of leases
 * stays so, so it does not matter when each slot is looked at.
 *
 * Kernels of clients name no places: what they may still read follows from two counters of each
 * stream, looked at behind its slots, and from the fence behind which a place came. If some of a
 * client's run, the pass goes over its places for that client, as far as a turn goes likewise.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define QUARANTINE_SCAN_NS (2 * MS)
#define TABLE_BITS 13u /* its buckets stay near, which each place that leaves comes to twice */
#define SCAN_SLOTS CORE_ITEMS_MAX /* of readers, looked at in one turn */
#define DETACHED_MAX (CORE_BATCHES_MAX * CORE_RETIRE_BATCH / 8) /* of one context */
_Static_assert(CORE_BATCHES_MAX * CORE_RETIRE_BATCH >> TABLE_BITS <= 32u, "places a bucket");

int reclaim_open(struct core *c)
{
	c->reclaim.scan.table = calloc((size_t)1 << TABLE_BITS, sizeof(*c->reclaim.scan.table));
	c->reclaim.readers = calloc(CORE_CLIENTS_MAX, sizeof(*c->reclaim.readers));
	return c->reclaim.scan.table && c->reclaim.readers ? 0 : -ENOMEM;
}

void reclaim_close(struct core *c)
{
	free(c->reclaim.scan.table);
	free(c->reclaim.readers);
}

void reclaim_client_open(struct core *c, uint32_t client)
{
	memset(&c->reclaim.readers[client], 0, sizeof(c->reclaim.readers[client]));
}

/* Its hazard words count no more there: those are places of memory that it does not see. */
void reclaim_client_revoked(struct core *c, uint32_t client, uint32_t tiers)
{
	c->reclaim.readers[client].revoked |= tiers;
	reclaim_now(c);
}

static struct context *place_context(const struct core *c, uint64_t place)
{
	struct context *x = c->context[place >> (ABI_ADDR_BITS + 3) & 0xffff];

	assert(x); /* a context lives while it has pages */
	return x;
}

static uint32_t place_tier(uint64_t place)
{
	return place >> ABI_ADDR_BITS & 7;
}

static struct core_batch *batch_get(struct core *c)
{
	struct core_batch *b = c->reclaim.free;

	if (!b)
		return NULL;
	c->reclaim.free = b->next;
	b->count = b->marked = 0;
	b->kept = false;
	b->next = NULL;
	b->since_ns = c->now_ns;
	return b;
}

static void batch_put(struct core *c, struct core_batch *b)
{
	b->count = 0; /* the audit looks at all of them */
	b->next = c->reclaim.free;
	c->reclaim.free = b;
}

/* Enter the page's present place into the open batch, which has room. */
static void batch_add(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	struct core_batch *b = c->reclaim.open;

	assert(b->count < CORE_RETIRE_BATCH);
	b->place[b->count] = abi_place(x->id, tier, index_page(&x->ix, slot, page)->word[tier]);
	b->slot[b->count] = slot;
	b->page[b->count] = page;
	b->detached[b->count] = 0;
	if (!b->count++)
		b->since_ns = c->now_ns;
	x->retiring[tier] += page_stride(x, page);
	c->metrics.retired++;
}

/* What readers keep of one context's places leaves room for others' in the batches. */
static bool batch_ready(struct core *c, const struct context *x)
{
	if (x->detached >= DETACHED_MAX)
		return false;
	if (!c->reclaim.open)
		c->reclaim.open = batch_get(c);
	return c->reclaim.open;
}

/* Unpublish a READY page. False: no batch has room now, nothing was done. */
bool retire_page(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	if (!batch_ready(c, x))
		return false;
	assert(!stream_page_count(index_page(&x->ix, slot, page), tier)); /* they hold its block */
	stage_leave(c, x, slot, tier, page_stride(x, page));
	batch_add(c, x, slot, page, tier);
	page_retire(index_page(&x->ix, slot, page), tier);
	descs_version(&x->descs, slot,
		      abi_word_version(index_page(&x->ix, slot, page)->word[tier]));
	block_left(c, x, slot, page, tier);
	if (c->reclaim.open->count == CORE_RETIRE_BATCH)
		reclaim_flush(c);
	return true;
}

/* Publish a READY page's new place and retire the old one. False: nothing was done. */
bool retire_moved(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier,
		  uint64_t to)
{
	if (!batch_ready(c, x))
		return false;
	assert(!index_page(&x->ix, slot, page)->streams[tier]); /* a stream holds its block */
	batch_add(c, x, slot, page, tier);
	c->reclaim.open->detached[c->reclaim.open->count - 1] = CORE_DETACHED;
	x->detached++;
	page_move(index_page(&x->ix, slot, page), tier, to);
	descs_version(&x->descs, slot,
		      abi_word_version(index_page(&x->ix, slot, page)->word[tier]));
	if (c->reclaim.open->count == CORE_RETIRE_BATCH)
		reclaim_flush(c);
	return true;
}

/*
 * A place that a former daemon left and no page of this one names; `page` is as large. False: no
 * batch has room, and nothing was done.
 */
bool retire_left(struct core *c, struct context *x, uint32_t page, uint32_t tier, uint64_t offset)
{
	struct core_batch *b;

	if (!batch_ready(c, x) || space_claim(x->space[tier], x->part_class[x->page_part[page]],
					      offset))
		return false;
	b = c->reclaim.open;
	assert(b->count < CORE_RETIRE_BATCH);
	b->place[b->count] = abi_place(x->id, tier, abi_word(offset, ABI_PAGE_READY, 0));
	b->slot[b->count] = ABI_SLOT_NONE;
	b->page[b->count] = page;
	b->detached[b->count] = CORE_DETACHED;
	if (!b->count++)
		b->since_ns = c->now_ns;
	x->detached++;
	x->retiring[tier] += page_stride(x, page);
	if (b->count == CORE_RETIRE_BATCH)
		reclaim_flush(c);
	return true;
}

void reclaim_flush(struct core *c)
{
	struct core_batch *b = c->reclaim.open;

	if (!b || !b->count)
		return;
	c->reclaim.open = NULL;
	c->metrics.fences++;
	core_push(c, CORE_AC_FENCE)->batch = b;
}

/* ---- scan --------------------------------------------------------------------------------- */

static uint32_t *bucket_of(struct core *c, uint64_t place)
{
	return &c->reclaim.scan.table[place * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TABLE_BITS)];
}

/* 1 + the number by which the table knows the batch's i-th place. */
static uint32_t entry_of(const struct core *c, const struct core_batch *b, uint32_t i)
{
	return (uint32_t)(b - c->reclaim.batch) * CORE_RETIRE_BATCH + i + 1;
}

static struct core_batch *batch_of(struct core *c, uint32_t entry, uint32_t *i)
{
	*i = (entry - 1) % CORE_RETIRE_BATCH;
	return &c->reclaim.batch[(entry - 1) / CORE_RETIRE_BATCH];
}

static void table_enter(struct core *c, struct core_batch *b, uint32_t i)
{
	uint32_t *bucket = bucket_of(c, b->place[i]);

	b->chain[i] = *bucket;
	*bucket = entry_of(c, b, i);
}

/* What names the place in its chain. */
static uint32_t *table_link(struct core *c, const struct core_batch *b, uint32_t i)
{
	uint32_t *link = bucket_of(c, b->place[i]), entry = entry_of(c, b, i), k;

	while (*link != entry) {
		assert(*link);
		link = &batch_of(c, *link, &k)->chain[k];
	}
	return link;
}

/* The batch's i-th place becomes the k-th of another one, or of the same. */
static void place_move(struct core *c, struct core_batch *b, uint32_t i, struct core_batch *to,
		       uint32_t k)
{
	if (b == to && i == k)
		return;
	*table_link(c, b, i) = entry_of(c, to, k);
	to->place[k] = b->place[i];
	to->slot[k] = b->slot[i];
	to->page[k] = b->page[i];
	to->era[k] = b->era[i];
	to->detached[k] = b->detached[i];
	to->held[k] = b->held[i];
	to->seen_by[k] = b->seen_by[i];
	to->chain[k] = b->chain[i];
}

/* ---- passes ------------------------------------------------------------------------------- */

static void scan_ask(struct core *c)
{
	c->reclaim.scan.running = c->reclaim.scan.asked = true;
	core_push(c, CORE_AC_SCAN);
}

/* A pass, when there is something for it: at once, or when a turn has not had its share. */
static void scan_begin(struct core *c)
{
	struct scan *s = &c->reclaim.scan;

	if (s->running ||
	    (!s->fresh_head && (!c->reclaim.quarantine_head || c->now_ns < c->reclaim.next_ns)))
		return;
	if (s->slots < SCAN_SLOTS)
		scan_ask(c);
}

void reclaim_fenced(struct core *c, struct core_batch *b)
{
	struct scan *s = &c->reclaim.scan;

	meter_charge(&c->meter, b->count);
	c->reclaim.era++;
	for (uint32_t i = 0; i < b->count; i++) {
		b->era[i] = c->reclaim.era;
		b->held[i] = 0;
		table_enter(c, b, i);
	}
	b->next = NULL;
	if (s->fresh_tail)
		s->fresh_tail->next = b;
	else
		s->fresh_head = b;
	s->fresh_tail = b;
	scan_begin(c);
}

/* All that is fenced by now, and what was found leased before. */
static void pass_begin(struct core *c)
{
	struct scan *s = &c->reclaim.scan;

	s->begun = true;
	s->over = false;
	s->pass++;
	s->client = s->reader = s->slot = 0;
	s->set = s->fresh_head;
	if (s->set)
		s->fresh_tail->next = c->reclaim.quarantine_head;
	else
		s->set = c->reclaim.quarantine_head;
	s->fresh_head = s->fresh_tail = NULL;
	c->reclaim.quarantine_head = c->reclaim.quarantine_tail = NULL;
	s->walk = s->set;
	for (struct core_batch *b = s->set; b; b = b->next)
		b->marked = 0;
}

/* A client reads the batch's i-th place: seen in ten slots of his, it counts once. */
static void mark(struct core *c, struct core_batch *b, uint32_t i)
{
	uint16_t client = (uint16_t)(c->reclaim.scan.client + 1);

	if (b->held[i] == c->reclaim.scan.pass && b->seen_by[i] == client)
		return;
	b->marked += b->held[i] != c->reclaim.scan.pass;
	b->held[i] = c->reclaim.scan.pass;
	b->seen_by[i] = client;
	account_hold(c, c->reclaim.scan.client, place_tier(b->place[i]),
		     page_stride(place_context(c, b->place[i]), b->page[i]));
}

static void mark_place(struct core *c, uint64_t place)
{
	uint32_t i;

	for (uint32_t entry = *bucket_of(c, place); entry;) {
		struct core_batch *b = batch_of(c, entry, &i);

		if (b->place[i] == place) {
			mark(c, b, i);
			return;
		}
		entry = b->chain[i];
	}
}

/* A context that the client has not opened protects nothing (H3, H4), nor what was taken back. */
static bool is_attached(const struct core *c, uint32_t client, uint64_t place)
{
	uint32_t context = place >> (ABI_ADDR_BITS + 3) & 0xffff;

	if (c->reclaim.readers[client].revoked >> place_tier(place) & 1)
		return false;
	return context < ABI_CONTEXTS_MAX && bit_get(c->client[client].attached, context);
}

/*
 * Of one stream: what its kernels that were announced up to now may still read. One snapshot at a
 * time will do: whoever comes later waits for the next one.
 */
static void look_at_era(const struct core *c, struct era *e, const struct abi_reader *r)
{
	uint64_t begin = atomic_load_acquire_u64(&r->era_begin); /* first: done may overtake it */
	uint64_t done = atomic_load_acquire_u64(&r->era_done);

	/* A client's words: whatever they say, it keeps only what is its own. */
	if (done >= begin) {
		*e = (struct era){ .clear = c->reclaim.era };
		return;
	}
	if (e->fence && done >= e->begin)
		*e = (struct era){ .clear = e->fence };
	if (!e->fence) {
		e->fence = c->reclaim.era;
		e->begin = begin;
	}
}

/* Of one reader, up to so many slots. Returns how many were looked at. */
static uint32_t scan_reader(struct core *c, uint32_t client, uint32_t most)
{
	struct readers *rs = &c->reclaim.readers[client];
	const struct abi_reader *r = &c->client[client].open.readers[c->reclaim.scan.reader];
	uint32_t high = atomic_load_acquire_u32(&r->high_water), begin = c->reclaim.scan.slot, end;

	if (high > ABI_HAZARD_SLOTS)
		high = ABI_HAZARD_SLOTS; /* a client's word: never trusted */
	end = begin + most < high ? begin + most : high;
	for (uint32_t i = begin; i < end; i++) {
		uint64_t place = atomic_load_acquire_u64(&r->slot[i]);

		if (place & ABI_HAZARD_VALID && is_attached(c, client, place))
			mark_place(c, place);
	}
	if (end < high) {
		c->reclaim.scan.slot = end;
		return end - begin;
	}
	look_at_era(c, &rs->era[c->reclaim.scan.reader], r);
	c->reclaim.scan.reader++;
	c->reclaim.scan.slot = 0;
	return end > begin ? end - begin : 1;
}

/* The fence up to which none of the client's kernels reads what was unpublished. */
static uint64_t kernels_clear(const struct core *c, uint32_t client)
{
	const struct era *e = c->reclaim.readers[client].era;
	uint64_t clear = UINT64_MAX;

	for (uint32_t r = 0; r < c->client[client].open.readers_max; r++)
		if (e[r].fence && e[r].clear < clear) /* some kernel runs */
			clear = e[r].clear;
	return clear;
}

/* What the client's kernels may read, up to so many places. Returns how many were looked at. */
static uint32_t scan_kernels(struct core *c, uint32_t client, uint32_t most)
{
	struct scan *s = &c->reclaim.scan;
	uint64_t clear = kernels_clear(c, client);
	uint32_t items = 0;

	if (clear == UINT64_MAX)
		s->walk = NULL;
	while (s->walk && items < most) {
		struct core_batch *b = s->walk;

		if (s->slot == b->count) {
			s->walk = b->next;
			s->slot = 0;
			continue;
		}
		if (b->era[s->slot] > clear && is_attached(c, client, b->place[s->slot]))
			mark(c, b, s->slot);
		s->slot++;
		items++;
	}
	return items;
}

void core_scan(struct core *c)
{
	struct scan *s = &c->reclaim.scan;
	uint32_t items = 0;

	if (!s->begun)
		pass_begin(c);
	while (s->client < c->clients_high && s->slots + items < SCAN_SLOTS) {
		uint32_t most = SCAN_SLOTS - s->slots - items;
		const struct client *k = &c->client[s->client];
		bool reads = k->state == 1 || k->state == 2;

		if (reads && s->reader < k->open.readers_max) {
			items += scan_reader(c, s->client, most);
			continue;
		}
		if (reads && s->walk) {
			items += scan_kernels(c, s->client, most);
			continue;
		}
		s->client++;
		s->reader = s->slot = 0;
		s->walk = s->set;
	}
	s->over = s->client >= c->clients_high;
	s->slots += items;
	core_looked_at(c, items);
}

/* ---- after the scan ----------------------------------------------------------------------- */

/* The page is absent from now on; its block's slot may go, and become another's. */
static void page_lets_go(struct core *c, struct context *x, const struct core_batch *b, uint32_t i)
{
	uint32_t tier = place_tier(b->place[i]);
	struct abi_page *d = index_page(&x->ix, b->slot[i], b->page[i]);

	assert(page_state(d, tier) == ABI_PAGE_RETIRING);
	assert(abi_place(x->id, tier, d->word[tier]) == b->place[i]);
	page_free(d, tier);
	stream_page_uncharge(c, x, b->slot[i], b->page[i], tier);
	block_page_freed(c, x, b->slot[i], b->page[i], tier);
}

static void place_release(struct core *c, struct core_batch *b, uint32_t i)
{
	struct context *x = place_context(c, b->place[i]);
	uint32_t tier = place_tier(b->place[i]);
	uint32_t bytes = page_stride(x, b->page[i]);

	if (b->detached[i] == CORE_DETACHED_HELD) {
		assert(c->reclaim.quarantined[tier] >= bytes);
		c->reclaim.quarantined[tier] -= bytes;
	}
	space_free(x->space[tier], (b->place[i] & ABI_ADDR_MASK) << ABI_UNIT_SHIFT);
	assert(x->retiring[tier] >= bytes);
	x->retiring[tier] -= bytes;
	if (!b->detached[i]) {
		page_lets_go(c, x, b, i);
		return;
	}
	assert(x->detached > 0);
	x->detached--;
}

static void place_keep(struct core *c, struct core_batch *b, uint32_t i)
{
	struct context *x = place_context(c, b->place[i]);
	uint32_t tier = place_tier(b->place[i]);

	if (b->detached[i] == CORE_DETACHED_HELD)
		return;
	if (!b->detached[i]) {
		x->detached++; /* first: it keeps the context */
		page_lets_go(c, x, b, i);
	}
	b->detached[i] = CORE_DETACHED_HELD;
	c->reclaim.quarantined[tier] += page_stride(x, b->page[i]);
	c->metrics.quarantined++;
}

/* Bytes of the context's that readers keep after they left. Walks: for operators. */
uint64_t reclaim_held(const struct core *c, const struct context *x, uint32_t tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; x->detached && i < CORE_BATCHES_MAX; i++) {
		const struct core_batch *b = &c->reclaim.batch[i];

		for (uint32_t k = 0; k < b->count; k++)
			if (b->detached[k] == CORE_DETACHED_HELD &&
			    place_tier(b->place[k]) == tier && place_context(c, b->place[k]) == x)
				bytes += page_stride(x, b->page[k]);
	}
	assert(bytes <= c->reclaim.quarantined[tier] && bytes <= x->retiring[tier]);
	return bytes;
}

static void quarantine(struct core *c, struct core_batch *b)
{
	struct core_batch *tail = c->reclaim.quarantine_tail;

	/* Half-empty batches merge: the number of batches follows the number of held places. */
	if (tail && tail->count + b->count <= CORE_RETIRE_BATCH) {
		for (uint32_t i = 0; i < b->count; i++)
			place_move(c, b, i, tail, tail->count++);
		batch_put(c, b);
		return;
	}
	b->next = NULL;
	if (tail)
		tail->next = b;
	else
		c->reclaim.quarantine_head = b;
	c->reclaim.quarantine_tail = b;
}

/* What the pass showed of a batch: nobody reads what was not seen. */
static void batch_settle(struct core *c, struct core_batch *b)
{
	uint32_t kept = 0;

	if (b->marked == b->count && b->kept) { /* as it was before */
		meter_charge(&c->meter, 1);
		quarantine(c, b);
		return;
	}
	meter_charge(&c->meter, b->count);
	for (uint32_t i = 0; i < b->count; i++) {
		if (b->held[i] == c->reclaim.scan.pass) {
			place_keep(c, b, i);
			place_move(c, b, i, b, kept++);
			continue;
		}
		*table_link(c, b, i) = b->chain[i];
		place_release(c, b, i);
	}
	b->count = kept;
	b->kept = true;
	if (kept)
		quarantine(c, b);
	else
		batch_put(c, b);
}

/* All slots were looked at: batch by batch, as far as one event goes; then others may begin. */
static void pass_settle(struct core *c)
{
	struct scan *s = &c->reclaim.scan;

	while (s->set && !meter_spent(&c->meter)) {
		struct core_batch *b = s->set;

		s->set = b->next;
		batch_settle(c, b);
	}
	request_wake_space(c);
	if (s->set)
		return;
	s->running = s->begun = s->over = false;
	c->reclaim.next_ns = c->now_ns + QUARANTINE_SCAN_NS;
	account_round(c);
	scan_begin(c);
}

/* Leases ended: what was found held is looked at again, without waiting. */
void reclaim_now(struct core *c)
{
	c->reclaim.next_ns = 0;
	scan_begin(c);
}

void reclaim_scanned(struct core *c)
{
	c->reclaim.scan.asked = false;
	if (c->reclaim.scan.over)
		pass_settle(c);
}

/* ---- time --------------------------------------------------------------------------------- */

/* A share of the pass under way each turn. */
static void scan_tick(struct core *c)
{
	struct scan *s = &c->reclaim.scan;

	s->slots = 0;
	if (!s->running)
		scan_begin(c);
	else if (s->over)
		pass_settle(c);
	else if (!s->asked)
		scan_ask(c);
}

uint64_t reclaim_next(const struct core *c)
{
	const struct scan *s = &c->reclaim.scan;

	if (s->running ? !s->asked : s->fresh_head != NULL)
		return c->now_ns;
	return c->reclaim.quarantine_head && !s->running ? c->reclaim.next_ns : UINT64_MAX;
}

void reclaim_tick(struct core *c)
{
	if (c->reclaim.open && c->reclaim.open->count &&
	    c->now_ns >= c->reclaim.open->since_ns + MS)
		reclaim_flush(c);
	scan_tick(c);
}
