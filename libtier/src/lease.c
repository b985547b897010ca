/*
 * The hot read: lease a page where it lies. A probe, a store, a fence, a re-read; the protocol and
 * why it is safe are in libtier/abi/hazard.h. No system call, no lock, nothing that waits.
 *
 * A list is worked on in groups: descriptors of the next group are on their way while this one is
 * published as a whole, then looked at again as a whole, so that each group pays one fence and its
 * misses overlap.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>

#include "libtier/src/error.h"
#include "libtier/src/index_read.h"
#include "libtier/src/reader.h"
#include "libtier/src/stream.h"

#define LEASE_TRIES 16u /* a descriptor that changes that often is not there for us */
#define LEASE_GROUP 32u
#define LEASE_PLAIN (TIER_LEASE_CXL | TIER_LEASE_NO_USE)
#define LEASE_FLAGS (LEASE_PLAIN | TIER_LEASE_LAST | STREAM_FLAGS)

/* A page that is wanted. */
struct target {
	const struct abi_block *block;
	const struct abi_page *page;
	const struct map_part *part;
	uint32_t slot;
	uint32_t generation;
};

/* A page whose place has been published, but not yet looked at again. */
struct attempt {
	uint64_t word;
	uint32_t tier;
	uint32_t hazard; /* slot of the reader's area */
};

static inline void count_one(uint64_t *counter)
{
	atomic_store_relaxed_u64(counter, *counter + 1);
}

/* ---- one page -------------------------------------------------------------------------------- */

static inline int find_target(const struct map *m, tier_block block, uint32_t page,
			      struct target *out)
{
	if (unlikely(page >= m->pages_per_block)) {
		error_note(-EINVAL, "lease: the page number is not of this geometry");
		return -EINVAL; /* as the compiler can see: *out is not looked at */
	}
	if (unlikely(block.slot >= m->blocks_max))
		return -ESTALE;
	out->slot = block.slot;
	out->generation = block.generation ^ m->salt;
	out->block = &m->block[block.slot];
	out->page = &m->page[(uint64_t)block.slot * m->pages_per_block + page];
	out->part = &m->part[map_part_of(m, page)];
	return 0;
}

/* Is it still the block that was found, and a whole one? */
static inline int judge_block(const struct target *at, uint32_t epoch, bool closed)
{
	uint32_t state;

	if (unlikely(atomic_load_acquire_u32(&at->block->generation) != at->generation))
		return -ESTALE;
	state = atomic_load_acquire_u32(&at->block->state);
	if (unlikely(atomic_load_relaxed_u32(&at->block->epoch) != epoch || closed))
		return -ESTALE;
	if (likely(state == ABI_BLOCK_COMMITTED))
		return 0;
	return state == ABI_BLOCK_PENDING ? -ENODATA : -ESTALE;
}

/* Ready, and inside what we have mapped. */
static inline bool is_usable(const struct map *m, uint64_t word, uint32_t level, uint32_t bytes)
{
	return abi_word_state(word) == ABI_PAGE_READY &&
	       (likely(abi_word_addr(word) + bytes <=
		       atomic_load_relaxed_u64(&m->mem_bytes[level])) ||
		map_is_left(m, level, abi_word_addr(word), bytes));
}

/* The fastest copy that the caller takes. false: none is in memory. */
static inline bool choose_word(const struct map *m, const struct target *at, uint32_t flags,
			       struct attempt *attempt)
{
	uint32_t bytes = at->part->page_stride;

	if (!(flags & TIER_LEASE_CXL)) {
		attempt->tier = ABI_TIER_HBM;
		attempt->word = atomic_load_acquire_u64(&at->page->word[ABI_TIER_HBM]);
		if (is_usable(m, attempt->word, ABI_TIER_HBM, bytes))
			return true;
	}
	attempt->tier = ABI_TIER_CXL;
	attempt->word = atomic_load_acquire_u64(&at->page->word[ABI_TIER_CXL]);
	return is_usable(m, attempt->word, ABI_TIER_CXL, bytes);
}

/* Publishes the place in a slot that is still on the free stack: this call is inside, so nobody
 * but us looks at the stack until it leaves. */
static inline void publish(struct tier_reader *r, const struct map *m, struct attempt *attempt)
{
	if (unlikely(attempt->hazard >= r->high_water)) {
		r->high_water = attempt->hazard + 1;
		atomic_store_release_u32(&r->area->high_water, r->high_water);
	}
	atomic_store_release_u64(&r->area->slot[attempt->hazard],
				 abi_place(m->context_id, attempt->tier, attempt->word));
}

static inline void withdraw(struct tier_reader *r, const struct attempt *attempt)
{
	atomic_store_release_u64(&r->area->slot[attempt->hazard], 0);
}

/* After the fence: nothing has changed, so the daemon sees our slot before it frees the place. */
static inline bool holds(const struct target *at, const struct attempt *attempt)
{
	return atomic_load_acquire_u64(&at->page->word[attempt->tier]) == attempt->word &&
	       atomic_load_acquire_u32(&at->block->generation) == at->generation;
}

static inline void note_access(struct tier_reader *r, const struct map *m, uint32_t slot,
			       uint32_t flags)
{
	if (unlikely(flags & TIER_LEASE_NO_USE))
		return;
	atomic_store_relaxed_u64(&r->area->access[r->access_tail & (ABI_ACCESS_LOG - 1)],
				 abi_access(m->context_id, slot, 1));
	r->access_tail++;
}

static inline void fill_lease(const struct map *m, const struct target *at,
			      const struct attempt *attempt, struct tier_lease *lease)
{
	*lease = (struct tier_lease){
		.data = m->mem[attempt->tier] + abi_word_addr(attempt->word),
		.bytes = at->part->page_bytes,
		.tier = (uint16_t)attempt->tier,
		.slot = (uint16_t)attempt->hazard,
	};
}

static inline void note_last(const struct map *m, const struct target *at, uint32_t flags,
			     struct tier_lease *lease)
{
	uint64_t first = (uint64_t)at->slot * m->pages_per_block;

	if (unlikely(flags & TIER_LEASE_LAST))
		lease->stream = stream_leased(m, (uint32_t)(at->page - m->page - first), flags);
}

/* Tells why a page is not leased; off the hot path. */
static __attribute__((cold, noinline)) int refuse(struct tier_reader *r, int error,
						  struct tier_lease *lease)
{
	*lease = (struct tier_lease){ .error = error };
	switch (error) {
	case -ENODATA:
		count_one(&r->counts.not_ready);
		return error_note(error, "lease: the page is not in memory now; tier_fetch it");
	case -ESTALE:
		count_one(&r->counts.stale);
		return error_note(error, "lease: the block has gone since it was found; match "
					 "again");
	case -ENOENT:
		return error_note(error, "lease: no block has this key");
	case -EAGAIN:
		return error_note(error, "lease: all slots of the reader are held; release some");
	default:
		return error; /* told where it was found */
	}
}

static __always_inline int lease_target(struct tier_reader *r, const struct map *m,
					const struct target *at, uint32_t flags,
					struct tier_lease *lease)
{
	struct attempt attempt;

	if (unlikely(reader_free_slots(r) == 0))
		return refuse(r, -EAGAIN, lease);
	for (uint32_t i = 0; i < LEASE_TRIES; i++) {
		int rc = judge_block(at, map_epoch(m), map_closed(m));

		if (unlikely(rc))
			return refuse(r, rc, lease);
		if (unlikely(!choose_word(m, at, flags, &attempt)))
			return refuse(r, -ENODATA, lease);
		attempt.hazard = r->free[r->free_count - 1];
		publish(r, m, &attempt);
		/* The slot before the second look at the word (H1). */
		asymmetric_light_fence();
		if (likely(holds(at, &attempt))) {
			atomic_store_release_u32(&r->free_count, r->free_count - 1);
			note_access(r, m, at->slot, flags);
			atomic_store_release_u64(&r->area->access_tail, r->access_tail);
			count_one(&r->counts.leases);
			fill_lease(m, at, &attempt, lease);
			note_last(m, at, flags, lease);
			return 0;
		}
		withdraw(r, &attempt);
		count_one(&r->counts.retries);
	}
	return refuse(r, -ENODATA, lease);
}

static bool flags_known(uint32_t flags)
{
	if (likely(!(flags & ~LEASE_PLAIN)))
		return true;
	if (flags & TIER_LEASE_LAST && !(flags & ~LEASE_FLAGS))
		return true;
	error_set(-EINVAL, "lease: flags %x are unknown", flags & ~LEASE_PLAIN);
	return false;
}

#define LEASE_OVER 1 /* the lease's error is no answer, since the daemon hands over */

static __always_inline int lease_page(tier_reader *r, tier_context *c, tier_block block,
				      uint32_t page, uint32_t flags, struct tier_lease *lease)
{
	const struct map *m;
	struct target at;
	int rc;

	if (unlikely(!lease))
		return error_note(-EINVAL, "lease: lease is NULL");
	m = flags_known(flags) ? reader_enter(r, c, &rc) : (rc = -EINVAL, NULL);
	if (unlikely(!m)) {
		*lease = (struct tier_lease){ .error = rc };
		return rc;
	}
	rc = find_target(m, block, page, &at);
	rc = likely(rc == 0) ? lease_target(r, m, &at, flags, lease) : refuse(r, rc, lease);
	rc = unlikely(rc) && reader_is_over(r) ? LEASE_OVER : rc;
	reader_leave(r);
	return rc;
}

/* What the next daemon says; apart, so that what is hot is one function. */
static __attribute__((cold, noinline)) int page_of_next(tier_reader *r, tier_context *c,
							tier_block block, uint32_t page,
							uint32_t flags, struct tier_lease *lease)
{
	int rc = reader_next(r) ? lease_page(r, c, block, page, flags, lease) : LEASE_OVER;

	return rc == LEASE_OVER ? lease->error : rc;
}

int tier_lease_page(tier_reader *r, tier_context *c, tier_block block, uint32_t page,
		    uint32_t flags, struct tier_lease *lease)
{
	int rc = lease_page(r, c, block, page, flags, lease);

	return likely(rc != LEASE_OVER) ? rc : page_of_next(r, c, block, page, flags, lease);
}

static __always_inline int lease_key(tier_reader *r, tier_context *c, const tier_key *key,
				     uint32_t page, uint32_t flags, struct tier_lease *lease)
{
	struct index_found found;
	const struct map *m;
	struct target at;
	int rc;

	if (unlikely(!lease || !key))
		return error_note(-EINVAL, "lease: key or lease is NULL");
	m = flags_known(flags) ? reader_enter(r, c, &rc) : (rc = -EINVAL, NULL);
	if (unlikely(!m)) {
		*lease = (struct tier_lease){ .error = rc };
		return rc;
	}
	if (index_read_find(m, key->bytes, page, &found) && found.epoch == map_epoch(m)) {
		tier_block block = { found.slot, found.generation ^ m->salt };

		rc = find_target(m, block, page, &at);
		rc = rc ? refuse(r, rc, lease) : lease_target(r, m, &at, flags, lease);
	} else {
		rc = refuse(r, page < m->pages_per_block ? -ENOENT : -EINVAL, lease);
	}
	rc = unlikely(rc) && reader_is_over(r) ? LEASE_OVER : rc;
	reader_leave(r);
	return rc;
}

static __attribute__((cold, noinline)) int key_of_next(tier_reader *r, tier_context *c,
						       const tier_key *key, uint32_t page,
						       uint32_t flags, struct tier_lease *lease)
{
	int rc = reader_next(r) ? lease_key(r, c, key, page, flags, lease) : LEASE_OVER;

	return rc == LEASE_OVER ? lease->error : rc;
}

int tier_lease_key(tier_reader *r, tier_context *c, const tier_key *key, uint32_t page,
		   uint32_t flags, struct tier_lease *lease)
{
	int rc = lease_key(r, c, key, page, flags, lease);

	return likely(rc != LEASE_OVER) ? rc : key_of_next(r, c, key, page, flags, lease);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What a list call wants: pages, or one page number of many blocks. */
struct wanted {
	const struct tier_page *pages; /* NULL: blocks and page */
	const tier_block *blocks;
	uint32_t page;
	uint32_t count;
	uint32_t flags;
	struct tier_lease *leases;
};

static inline struct tier_page wanted_at(const struct wanted *w, uint32_t i)
{
	if (w->pages)
		return w->pages[i];
	return (struct tier_page){ .block = w->blocks[i], .page = w->page };
}

static inline void prefetch_group(const struct map *m, const struct wanted *w, uint32_t from)
{
	uint32_t end = w->count - from < LEASE_GROUP ? w->count : from + LEASE_GROUP;

	for (uint32_t i = from; i < end; i++) {
		struct tier_page at = wanted_at(w, i);

		if (at.block.slot >= m->blocks_max || at.page >= m->pages_per_block)
			continue;
		prefetch_read(&m->block[at.block.slot]);
		prefetch_read(&m->page[(uint64_t)at.block.slot * m->pages_per_block + at.page]);
	}
}

/* A group between its first and its second look; only what was published is in it. */
struct group {
	struct target at[LEASE_GROUP];
	struct attempt attempt[LEASE_GROUP];
	uint32_t index[LEASE_GROUP]; /* in the list */
	uint32_t attempted;
	uint32_t failed; /* changed between the looks; moved to the front */
	uint32_t epoch;
	bool closed;
};

/* Publishes one page of a group; its error, if any, goes to its lease. */
static inline void attempt_one(struct tier_reader *r, const struct map *m, const struct wanted *w,
			       struct group *g, uint32_t i)
{
	struct tier_page page = wanted_at(w, i);
	/* In registers until they are known to be good; slots from the stack's top downwards. */
	struct attempt attempt = { .hazard = r->free[r->free_count - g->attempted - 1] };
	struct target at;
	int rc = find_target(m, page.block, page.page, &at);

	if (likely(rc == 0))
		rc = judge_block(&at, g->epoch, g->closed);
	if (likely(rc == 0) && unlikely(!choose_word(m, &at, w->flags, &attempt)))
		rc = -ENODATA;
	if (unlikely(rc)) {
		refuse(r, rc, &w->leases[i]);
		return;
	}
	publish(r, m, &attempt);
	g->at[g->attempted] = at;
	g->attempt[g->attempted] = attempt;
	g->index[g->attempted++] = i;
}

/* Second look: fills the leases that hold; those that do not give their slot back. */
static inline void confirm_group(struct tier_reader *r, const struct map *m,
				 const struct wanted *w, struct group *g)
{
	uint32_t top = r->free_count - g->attempted;

	for (uint32_t i = 0; i < g->attempted; i++) {
		struct tier_lease *lease = &w->leases[g->index[i]];

		if (unlikely(!holds(&g->at[i], &g->attempt[i]))) {
			withdraw(r, &g->attempt[i]);
			r->free[top++] = (uint16_t)g->attempt[i].hazard;
			g->at[g->failed] = g->at[i];
			g->index[g->failed++] = g->index[i];
			continue;
		}
		note_access(r, m, g->at[i].slot, w->flags);
		fill_lease(m, &g->at[i], &g->attempt[i], lease);
		note_last(m, &g->at[i], w->flags, lease);
		prefetch_read(lease->data);
	}
	atomic_store_release_u32(&r->free_count, top);
	atomic_store_release_u64(&r->area->access_tail, r->access_tail);
}

static uint32_t lease_group(struct tier_reader *r, const struct map *m, const struct wanted *w,
			    uint32_t from)
{
	uint32_t end = w->count - from < LEASE_GROUP ? w->count : from + LEASE_GROUP;
	struct group g;
	uint32_t leased;

	g.attempted = 0;
	g.failed = 0;
	g.epoch = map_epoch(m);
	g.closed = map_closed(m);
	for (uint32_t i = from; i < end; i++)
		attempt_one(r, m, w, &g, i);
	/* All slots before the second look at any word (H1). */
	asymmetric_light_fence();
	confirm_group(r, m, w, &g);
	leased = g.attempted - g.failed;
	atomic_store_relaxed_u64(&r->counts.leases, r->counts.leases + leased);
	for (uint32_t i = 0; i < g.failed; i++) {
		count_one(&r->counts.retries);
		leased += lease_target(r, m, &g.at[i], w->flags, &w->leases[g.index[i]]) == 0;
	}
	return leased;
}

static int lease_list(struct tier_reader *r, const struct map *m, const struct wanted *w)
{
	uint32_t leased = 0;

	if (w->count > reader_free_slots(r))
		return error_set(-EAGAIN, "lease: %u pages, but the reader has %u slots free; "
					  "release some", w->count, reader_free_slots(r));
	prefetch_group(m, w, 0);
	for (uint32_t from = 0; from < w->count; from += LEASE_GROUP) {
		if (w->count - from > LEASE_GROUP)
			prefetch_group(m, w, from + LEASE_GROUP);
		leased += lease_group(r, m, w, from);
	}
	return (int)leased;
}

/* Those of a list that the former daemon had taken back: of the next one. */
static int lease_rest(tier_reader *r, tier_context *c, const struct wanted *w, int leased)
{
	if (!reader_next(r))
		return leased;
	for (uint32_t i = 0; i < w->count; i++) {
		struct tier_page page = wanted_at(w, i);

		if (w->leases[i].error)
			leased += tier_lease_page(r, c, page.block, page.page, w->flags,
						  &w->leases[i]) == 0;
	}
	return leased;
}

/* Of a reader that has entered: leaves it. */
static int lease_all(tier_reader *r, tier_context *c, const struct map *m, const struct wanted *w)
{
	int rc = w->count > 0 ? lease_list(r, m, w) : 0;
	bool over = rc >= 0 && unlikely((uint32_t)rc < w->count) && reader_is_over(r);

	reader_leave(r);
	return unlikely(over) ? lease_rest(r, c, w, rc) : rc;
}

int tier_lease_pages(tier_reader *r, tier_context *c, const struct tier_page *pages,
		     uint32_t count, uint32_t flags, struct tier_lease *leases)
{
	const struct wanted w = { .pages = pages, .count = count, .flags = flags,
				  .leases = leases };
	const struct map *m;
	int rc;

	if (count > 0 && (!pages || !leases))
		return error_note(-EINVAL, "lease: pages or leases is NULL");
	if (!flags_known(flags))
		return -EINVAL;
	m = reader_enter(r, c, &rc);
	if (unlikely(!m))
		return rc;
	return lease_all(r, c, m, &w);
}

int tier_lease_blocks(tier_reader *r, tier_context *c, const struct tier_selection *selection,
		      struct tier_lease *leases)
{
	struct wanted w = { .leases = leases };
	const struct map *m;
	int rc = 0;

	if (!selection || (selection->count > 0 && (!selection->blocks || !leases)))
		return error_note(-EINVAL, "lease: the selection, its blocks or leases is NULL");
	if (!flags_known(selection->flags))
		return -EINVAL;
	w.blocks = selection->blocks;
	w.page = selection->page;
	w.count = selection->count;
	w.flags = selection->flags;
	m = reader_enter(r, c, &rc);
	if (unlikely(!m))
		return rc;
	if (likely(w.page < c->geometry.abi.pages_per_block))
		return lease_all(r, c, m, &w);
	reader_leave(r);
	return error_set(-EINVAL, "lease: page %u is not within the %u of a block", w.page,
			 c->geometry.abi.pages_per_block);
}

/* ---- release --------------------------------------------------------------------------------- */

/*
 * Clears the slot of a lease and puts it back on the stack at *top. False: it holds nothing. The
 * stack's count is stored by the caller, last: from there on the area may be let go.
 */
static inline bool release_one(struct tier_reader *r, struct tier_lease *lease, uint32_t top)
{
	struct abi_reader *area = r->area;
	uint32_t hazard = lease->slot;

	if (!lease->data || hazard >= ABI_HAZARD_SLOTS || top == ABI_HAZARD_SLOTS)
		return false;
	lease->data = NULL;
	if (unlikely(r->old_count > 0))
		area = reader_area_of(r, hazard);
	/* A lease that was copied and released twice must not enter the stack twice. */
	if (unlikely(!area || atomic_load_relaxed_u64(&area->slot[hazard]) == 0))
		return false;
	atomic_store_release_u64(&area->slot[hazard], 0);
	if (unlikely(area != r->area))
		reader_forget(r, hazard);
	r->free[top] = (uint16_t)hazard;
	if (unlikely(lease->stream))
		stream_used(r->t, area == r->area ? r->number : 0, lease->stream);
	return true;
}

void tier_release(tier_reader *r, struct tier_lease *lease)
{
	if (unlikely(!r || !lease || connection_orphaned(r->alive)))
		return;
	if (release_one(r, lease, r->free_count))
		atomic_store_release_u32(&r->free_count, r->free_count + 1);
}

void tier_release_many(tier_reader *r, struct tier_lease *leases, uint32_t count)
{
	uint32_t top;

	if (unlikely(!r || !leases || connection_orphaned(r->alive)))
		return;
	top = r->free_count;
	for (uint32_t i = 0; i < count; i++)
		top += release_one(r, &leases[i], top);
	atomic_store_release_u32(&r->free_count, top);
}
