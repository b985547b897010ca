/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reclaim: the daemon's half of the lease protocol (abi/hazard.h). Retired places gather in a
 * batch; FENCE makes every reader's slots visible, SCAN marks the places somebody reads; the others
 * are free. Held ones are quarantined and scanned again: no new lease of them can start, so no
 * further fence is needed. Kernels of clients name no places: what they may still read follows from
 * two counters of each stream, looked at in the same scan. Pages of held places let go of them and
 * are absent: who reads an old place keeps its bytes, and keeps nobody from bringing the page to
 * another place.
 *
 *   retire_page -> batch_open -> [256 pages | 1 ms | someone waits] -> FENCE -> SCAN -> free
 *                                                       quarantine <---------------'   ^
 *                                                           '--- again every 2 ms -----'
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define QUARANTINE_SCAN_NS (2 * MS)
#define TABLE_BITS 9u
#define TABLE (1u << TABLE_BITS) /* half full of a whole batch */
_Static_assert(TABLE >= 2 * CORE_RETIRE_BATCH, "places are found in few steps");

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
	struct core_batch *b = c->batch_free;

	if (!b)
		return NULL;
	c->batch_free = b->next;
	b->count = 0;
	b->next = NULL;
	b->since_ns = c->now_ns;
	return b;
}

static void batch_put(struct core *c, struct core_batch *b)
{
	b->count = 0; /* the audit looks at all of them */
	b->next = c->batch_free;
	c->batch_free = b;
}

/* Enter the page's present place into the open batch, which has room. */
static void batch_add(struct core *c, struct context *x, uint32_t slot, uint32_t page,
		      uint32_t tier)
{
	struct core_batch *b = c->batch_open;

	assert(b->count < CORE_RETIRE_BATCH);
	b->place[b->count] = abi_place(x->id, tier, index_page(&x->ix, slot, page)->word[tier]);
	b->slot[b->count] = slot;
	b->page[b->count] = page;
	b->stray[b->count] = 0;
	b->era[b->count] = 0;
	if (!b->count++)
		b->since_ns = c->now_ns;
	x->retiring[tier] += page_stride(x, page);
	c->metrics.retired++;
}

static bool batch_ready(struct core *c)
{
	if (!c->batch_open)
		c->batch_open = batch_get(c);
	return c->batch_open;
}

/* Unpublish a READY page. False: no batch has room now, nothing was done. */
bool retire_page(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	if (!batch_ready(c))
		return false;
	assert(!stream_page_claims(index_page(&x->ix, slot, page), tier)); /* they hold its block */
	stage_leave(c, x, slot, tier, page_stride(x, page));
	batch_add(c, x, slot, page, tier);
	page_retire(index_page(&x->ix, slot, page), tier);
	block_left(c, x, slot, page, tier);
	if (c->batch_open->count == CORE_RETIRE_BATCH)
		reclaim_flush(c);
	return true;
}

/* Publish a READY page's new place and retire the old one. False: nothing was done. */
bool retire_moved(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier,
		  uint64_t to)
{
	if (!batch_ready(c))
		return false;
	assert(!index_page(&x->ix, slot, page)->claim[tier]); /* a stream holds its block */
	batch_add(c, x, slot, page, tier);
	c->batch_open->stray[c->batch_open->count - 1] = CORE_STRAY;
	x->strays++;
	page_move(index_page(&x->ix, slot, page), tier, to);
	if (c->batch_open->count == CORE_RETIRE_BATCH)
		reclaim_flush(c);
	return true;
}

void reclaim_flush(struct core *c)
{
	struct core_batch *b = c->batch_open;

	if (!b || !b->count)
		return;
	c->batch_open = NULL;
	c->metrics.fences++;
	core_push(c, CORE_AC_FENCE)->batch = b;
}

static void batch_swap(struct core_batch *b, uint32_t i, uint32_t j)
{
	uint64_t place = b->place[i];
	uint32_t slot = b->slot[i], page = b->page[i];
	uint64_t era = b->era[i];
	uint8_t stray = b->stray[i];

	b->place[i] = b->place[j];
	b->slot[i] = b->slot[j];
	b->page[i] = b->page[j];
	b->era[i] = b->era[j];
	b->stray[i] = b->stray[j];
	b->place[j] = place;
	b->slot[j] = slot;
	b->page[j] = page;
	b->era[j] = era;
	b->stray[j] = stray;
}

/* Also of batches that are looked at again, whose places have their era. */
void reclaim_fenced(struct core *c, struct core_batch *b)
{
	c->era++;
	for (uint32_t i = 0; i < b->count; i++)
		if (!b->era[i])
			b->era[i] = c->era;
	memset(b->held, 0, b->count);
	core_push(c, CORE_AC_SCAN)->batch = b;
}

/* ---- scan --------------------------------------------------------------------------------- */

/* What one client was seen to hold of a batch: the same place in ten slots counts once. */
struct seen {
	uint64_t map[CORE_RETIRE_BATCH / 64];
	uint64_t bytes[ABI_MEM_TIERS];
};

/* Where a batch's places stand in it, by hash; made for the first reader that has a lease. */
struct table {
	bool made;
	uint16_t at[TABLE]; /* 1 + index in the batch; 0 = free */
};

static uint32_t table_first(uint64_t place)
{
	return (uint32_t)(place * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TABLE_BITS));
}

static void table_make(struct table *t, const struct core_batch *b)
{
	memset(t, 0, sizeof(*t));
	t->made = true;
	for (uint32_t i = 0; i < b->count; i++) {
		uint32_t at = table_first(b->place[i]);

		while (t->at[at])
			at = (at + 1) % TABLE;
		t->at[at] = (uint16_t)(i + 1);
	}
}

/* The batch's index of a place; its count = not in it. No place is in a batch twice. */
static uint32_t table_find(const struct table *t, const struct core_batch *b, uint64_t place)
{
	uint32_t at = table_first(place);

	for (; t->at[at]; at = (at + 1) % TABLE)
		if (b->place[t->at[at] - 1] == place)
			return t->at[at] - 1u;
	return b->count;
}

static void mark(const struct core *c, struct core_batch *b, uint32_t i, struct seen *seen)
{
	b->held[i] = 1;
	if (bit_get(seen->map, i))
		return;
	seen->map[i / 64] |= 1ull << i % 64;
	seen->bytes[place_tier(b->place[i])] +=
		page_stride(place_context(c, b->place[i]), b->page[i]);
}

static void scan_reader(const struct core *c, const struct client *k, const struct abi_reader *r,
			struct core_batch *b, struct table *t, struct seen *seen)
{
	uint32_t high = atomic_load_acquire_u32(&r->high_water);

	if (high > ABI_HAZARD_SLOTS)
		high = ABI_HAZARD_SLOTS; /* a client's word: never trusted */
	for (uint32_t i = 0; i < high; i++) {
		uint64_t place = atomic_load_acquire_u64(&r->slot[i]);
		uint32_t context = place >> (ABI_ADDR_BITS + 3) & 0xffff, held;

		if (!(place & ABI_HAZARD_VALID))
			continue;
		if (context >= ABI_CONTEXTS_MAX || !bit_get(k->attached, context)) /* H3 */
			continue;
		if (!t->made)
			table_make(t, b);
		held = table_find(t, b, place);
		if (held < b->count)
			mark(c, b, held, seen);
	}
}

/*
 * Of one stream: what its kernels that were announced up to now may still read. One snapshot at a
 * time will do: whoever comes later waits for the next one. False: it reads nothing.
 */
static bool look_at_era(const struct core *c, struct era *e, const struct abi_reader *r)
{
	uint64_t begin = atomic_load_acquire_u64(&r->era_begin); /* first: done may overtake it */
	uint64_t done = atomic_load_acquire_u64(&r->era_done);

	/* A client's words: whatever they say, it keeps only what is its own. */
	if (done >= begin) {
		*e = (struct era){ .clear = c->era };
		return false;
	}
	if (e->fence && done >= e->begin)
		*e = (struct era){ .clear = e->fence };
	if (!e->fence) {
		e->fence = c->era;
		e->begin = begin;
	}
	return true;
}

static void scan_era(const struct core *c, struct client *k, struct era *e,
		     const struct abi_reader *r, struct core_batch *b, struct seen *seen)
{
	if (!look_at_era(c, e, r))
		return;
	for (uint32_t i = 0; i < b->count; i++)
		if (b->era[i] > e->clear &&
		    bit_get(k->attached, b->place[i] >> (ABI_ADDR_BITS + 3) & 0xffff))
			mark(c, b, i, seen);
}

void core_scan(struct core *c, struct core_batch *b)
{
	struct table t;

	t.made = false;
	for (uint32_t i = 0; i < c->clients_high; i++) {
		struct client *k = &c->client[i];
		struct seen seen = { .bytes = { 0 } };

		for (uint32_t r = 0; k->state && r < k->open.readers_max; r++) {
			scan_reader(c, k, &k->open.readers[r], b, &t, &seen);
			scan_era(c, k, &k->era[r], &k->open.readers[r], b, &seen);
		}
		for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
			k->held[tier] += seen.bytes[tier];
	}
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

	if (b->stray[i] == CORE_STRAY_HELD) {
		assert(c->quarantined[tier] >= bytes);
		c->quarantined[tier] -= bytes;
	}
	space_free(x->space[tier], (b->place[i] & ABI_ADDR_MASK) << ABI_UNIT_SHIFT);
	assert(x->retiring[tier] >= bytes);
	x->retiring[tier] -= bytes;
	if (!b->stray[i]) {
		page_lets_go(c, x, b, i);
		return;
	}
	assert(x->strays > 0);
	x->strays--;
}

static void place_keep(struct core *c, struct core_batch *b, uint32_t i)
{
	struct context *x = place_context(c, b->place[i]);
	uint32_t tier = place_tier(b->place[i]);

	if (b->stray[i] == CORE_STRAY_HELD)
		return;
	if (!b->stray[i]) {
		x->strays++; /* first: it keeps the context */
		page_lets_go(c, x, b, i);
	}
	b->stray[i] = CORE_STRAY_HELD;
	c->quarantined[tier] += page_stride(x, b->page[i]);
	c->metrics.quarantined++;
}

/* Bytes of the context's that readers keep after they left. Walks: for operators. */
uint64_t reclaim_held(const struct core *c, const struct context *x, uint32_t tier)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; x->strays && i < CORE_BATCHES_MAX; i++) {
		const struct core_batch *b = &c->batch[i];

		for (uint32_t k = 0; k < b->count; k++)
			if (b->stray[k] == CORE_STRAY_HELD && place_tier(b->place[k]) == tier &&
			    place_context(c, b->place[k]) == x)
				bytes += page_stride(x, b->page[k]);
	}
	assert(bytes <= c->quarantined[tier] && bytes <= x->retiring[tier]);
	return bytes;
}

static void quarantine(struct core *c, struct core_batch *b)
{
	struct core_batch *tail = c->quarantine_tail;

	/* Half-empty batches merge: the number of batches follows the number of held places. */
	if (tail && tail->count + b->count <= CORE_RETIRE_BATCH) {
		memcpy(&tail->place[tail->count], b->place, b->count * sizeof(b->place[0]));
		memcpy(&tail->slot[tail->count], b->slot, b->count * sizeof(b->slot[0]));
		memcpy(&tail->page[tail->count], b->page, b->count * sizeof(b->page[0]));
		memcpy(&tail->era[tail->count], b->era, b->count * sizeof(b->era[0]));
		memcpy(&tail->stray[tail->count], b->stray, b->count * sizeof(b->stray[0]));
		tail->count += b->count;
		batch_put(c, b);
		return;
	}
	b->next = NULL;
	if (tail)
		tail->next = b;
	else
		c->quarantine_head = b;
	c->quarantine_tail = b;
}

void reclaim_scanned(struct core *c, struct core_batch *b)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < b->count; i++) {
		if (!b->held[i]) {
			place_release(c, b, i);
			continue;
		}
		place_keep(c, b, i);
		batch_swap(b, kept++, i);
	}
	b->count = kept;
	if (kept)
		quarantine(c, b);
	else
		batch_put(c, b);
	request_wake_space(c);
}

/* ---- time --------------------------------------------------------------------------------- */

static void rescan(struct core *c)
{
	struct core_batch *b = c->quarantine_head;

	c->quarantine_head = c->quarantine_tail = NULL;
	c->quarantine_next_ns = c->now_ns + QUARANTINE_SCAN_NS;
	while (b) {
		struct core_batch *next = b->next;

		b->next = NULL;
		reclaim_fenced(c, b); /* clears the marks, asks for the scan */
		b = next;
	}
}

static void retry_zombies(struct core *c)
{
	for (uint32_t n = c->zombies.count; n && c->batch_free; n--) {
		struct context *x = c->context[c->zombies.head_ctx];

		block_bury(c, x, c->zombies.head);
	}
}

void reclaim_tick(struct core *c)
{
	if (c->batch_open && c->batch_open->count && c->now_ns >= c->batch_open->since_ns + MS)
		reclaim_flush(c);
	if ((c->quarantine_head || c->quarantine_seen) && c->now_ns >= c->quarantine_next_ns) {
		c->quarantine_seen = c->quarantine_head != NULL;
		account_round(c);
		rescan(c);
	}
	if (c->zombies.count)
		retry_zombies(c);
}
