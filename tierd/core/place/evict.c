/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making room: who leaves a memory tier (asking the context's policy, checking its advice, those
 * over their share first: quota.c). Who leaves NVMe is in evict_nvme.c, which segment the cache log
 * drops in log/drop.c; how whole slabs of memory pass from one context to another in evacuate.c.
 *
 * Only clean copies leave a tier; a dirty block waits for write-back. In a context without NVMe a
 * victim leaves the service. Nothing here waits: callers queue for space and are woken by reclaim.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define STAGED_SHARE 4u       /* of a tier: what is brought ahead is kept before other blocks */
#define WALK_MAX 8192u	      /* candidates looked at in one call */
#define ROOM_MIN (1u << 20)   /* bytes evicted at a time, at least */
#define FIRST_WALK 65536u     /* ... for those that give first; goes on where it ended */
#define ACCESS_WEIGHT_MAX 64u /* of one log entry: a client cannot shout */
#define SPARES_NS (10000 * MS)        /* between looks at empty slabs */
#define INDEX_PREPARE_MAX (16u << 20) /* bytes of an area of an index, each tick */

/* ---- access logs -------------------------------------------------------------------------- */

static void access_entry(struct core *c, const struct client *k, uint64_t entry)
{
	uint32_t index = entry >> 32 & 0xffff;
	struct context *x = index < c->contexts_high ? c->context[index] : NULL;
	uint32_t slot = (uint32_t)entry, weight = (uint32_t)(entry >> 48);

	/* A client's word: judged, then used. */
	if (!x || slot >= x->ix.slots_used || !bit_get(k->attached, index))
		return;
	if (weight > ACCESS_WEIGHT_MAX)
		weight = ACCESS_WEIGHT_MAX;
	c->metrics.leased_bytes += block_bytes(x, slot) / x->ix.pages_per_block * weight;
	stage_use(c, x, slot);
	block_used(c, x, slot, weight);
}

/* What a reader has read since, as far as an event goes. False: not all. */
static bool access_log(struct core *c, uint32_t client, uint32_t reader)
{
	struct client *k = &c->client[client];
	struct readers *rs = &c->reclaim.readers[client];
	const struct abi_reader *r = &k->open.readers[reader];
	uint64_t tail = atomic_load_acquire_u64(&r->access_tail);
	uint64_t seen = rs->access_seen[reader], end = tail;
	uint32_t most = meter_spent(&c->meter) ? 0 : meter_logs(&c->meter) - c->meter.logs;

	if (tail - seen > ABI_ACCESS_LOG) {
		c->metrics.access_lost += tail - seen - ABI_ACCESS_LOG;
		seen = tail - ABI_ACCESS_LOG;
	}
	if (end - seen > most)
		end = seen + most;
	c->meter.logs += (uint32_t)(end - seen);
	meter_charge(&c->meter, (uint32_t)(end - seen));
	c->metrics.access_entries += end - seen;
	for (; seen != end; seen++)
		access_entry(c, k, atomic_load_relaxed_u64(&r->access[seen % ABI_ACCESS_LOG]));
	rs->access_seen[reader] = seen;
	if (tail && rs->used <= reader)
		rs->used = reader + 1;
	return seen == tail;
}

/*
 * What this client has read until now, before what it puts. Readers are handed out in order,
 * mostly: one beyond those known is looked at, the rest shows at the next walk.
 */
void evict_drain_client(struct core *c, uint32_t client)
{
	uint32_t known = c->reclaim.readers[client].used + 1;

	for (uint32_t r = 0; r < known && r < c->client[client].open.readers_max; r++)
		access_log(c, client, r);
}

/* All readers of a client, from the one where its part ended last time. */
static void drain_client(struct core *c, uint32_t client)
{
	struct readers *rs = &c->reclaim.readers[client];
	uint32_t first = rs->drain, readers = c->client[client].open.readers_max;

	rs->drain = 0;
	meter_charge_table(&c->meter, readers);
	for (uint32_t n = 0; n < readers; n++) {
		uint32_t r = (first + n) % readers;

		if (access_log(c, client, r))
			continue;
		rs->drain = r;
		return;
	}
}

/* What all have read. Who is not heard in this event comes first in the next. */
void evict_drain_logs(struct core *c)
{
	uint32_t first = c->evict.drain_next;

	c->evict.drain_next = 0;
	for (uint32_t n = 0; n < c->clients_high; n++) {
		uint32_t i = (first + n) % c->clients_high;

		if (c->meter.logs >= meter_logs(&c->meter)) {
			c->evict.drain_next = i;
			return;
		}
		if (c->client[i].state == 1)
			drain_client(c, i);
	}
}

/* ---- blocks out of a memory tier ---------------------------------------------------------- */

/* May pages of the block leave? So many who hold it need but some of them. */
static bool may_leave(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier,
		      uint32_t holds)
{
	const struct block_use *use = block_use(x, slot);
	const struct block_meta *m = &x->meta[slot];

	if (use->hold > holds || use->pins[tier])
		return false;
	if (tier == ABI_TIER_HBM)
		return true; /* always a copy: dirty pages cannot leave CXL */
	if (!block_leaves_whole(c, x, slot))
		return m->persist == PERSIST_CLEAN && m->settle != SETTLE_WRITTEN;
	return !use->hold && !use->pins[ABI_TIER_HBM] && !use->lead_pins[ABI_TIER_CXL] &&
	       !use->lead_pins[ABI_TIER_HBM]; /* it would leave whole */
}

bool evict_may(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier)
{
	return may_leave(c, x, slot, tier, 0);
}

/* Does the page leave now? False: no batch has room. */
static bool page_leaves(struct core *c, struct context *x, const struct abi_page_ref *at,
			uint32_t tier, bool leads)
{
	meter_charge(&c->meter, 1);
	if (!descs_there(&x->descs, at->slot, at->page) ||
	    page_state(index_page(&x->ix, at->slot, at->page), tier) != ABI_PAGE_READY ||
	    stream_page_count(index_page(&x->ix, at->slot, at->page), tier) ||
	    pin_holds(x, at->slot, at->page, tier) ||
	    (!leads && lead_holds(x, at->slot, at->page, tier)))
		return true;
	if (!retire_page(c, x, at->slot, at->page, tier))
		return false;
	if (tier == ABI_TIER_HBM)
		c->metrics.evicted_hbm++;
	else
		c->metrics.evicted_cxl++;
	return true;
}

/* leads: pages of leads that are kept go, too. What is too much for one event goes on there. */
static uint64_t leave(struct core *c, struct context *x, uint32_t slot, uint32_t tier, bool leads)
{
	uint64_t before = x->retiring[tier];
	struct abi_page_ref at = { .slot = slot };

	if (tier == ABI_TIER_CXL && block_leaves_whole(c, x, slot)) {
		block_drop(c, x, slot);
		return x->retiring[tier] - before;
	}
	if (x->left_at[tier].slot == slot)
		at.page = x->left_at[tier].page;
	for (; at.page < x->ix.pages_per_block && x->meta[slot].there[tier].pages; at.page++)
		if (meter_spent(&c->meter) || !page_leaves(c, x, &at, tier, leads))
			break;
	if (at.page >= x->ix.pages_per_block || !x->meta[slot].there[tier].pages)
		at.page = 0;
	x->left_at[tier].slot = slot;
	x->left_at[tier].page = at.page;
	return x->retiring[tier] - before;
}

/* One block out of one tier, if it may: its READY pages retire. False: it may not, now. */
bool evict_block(struct core *c, struct context *x, uint32_t slot, uint32_t tier)
{
	if (!evict_may(c, x, slot, tier))
		return false;
	leave(c, x, slot, tier, true);
	return true;
}

/*
 * Wanted by a plan, or brought ahead and not read so far (while that is at most a quarter of the
 * tier): it leaves when nothing else can. What was just brought looks worthless to any policy.
 */
static bool is_awaited(const struct core *c, const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_use *use = block_use(x, slot);

	return use->planned[tier] ||
	       (use->staged[tier] && c->staged.bytes <= c->pool[tier].capacity / STAGED_SHARE);
}

/* One walk along the policy's order in a lane, for blocks up to a rank or of one account. */
struct walk {
	struct lanes *lanes;
	uint32_t tier, lane;
	uint32_t most; /* in, out: candidates to look at */
	uint32_t rank;
	bool leads;                    /* leads that are kept, too */
	bool awaited;                  /* blocks that are awaited there, too */
	bool streamed;                 /* pages of blocks that streams hold and do not need now */
	const struct holding *account; /* NULL = any */
	uint32_t cursor;               /* in, out: 1 + slot to go on behind; 0 = the first */
	uint64_t bytes;                /* wanted */
};

/* Leads are kept for whom it is not to give first, by share or priority. */
static bool walk_takes_leads(const struct core *c, const struct context *x, const struct walk *w,
			     uint32_t slot)
{
	return w->leads || (block_use(x, slot)->leads[w->tier].count &&
			    quota_rank(c, x, slot, w->tier) < RANK_NORMAL);
}

static bool walk_wants(const struct core *c, const struct context *x, const struct walk *w,
		       uint32_t slot)
{
	if (!w->awaited && is_awaited(c, x, slot, w->tier))
		return false;
	if (w->account && !quota_of(c, x, slot, w->account))
		return false;
	if (lead_is_all(x, slot, w->tier) && !walk_takes_leads(c, x, w, slot))
		return false;
	if (pin_is_all(x, slot, w->tier))
		return false; /* page by page, such blocks would take all of an event's share */
	return quota_within(c, x, slot, w->tier, w->rank) &&
	       may_leave(c, x, slot, w->tier, w->streamed ? block_use(x, slot)->streams : 0);
}

/* Cold, mostly, and needed one after the other: bring it all at once. */
static void candidate_prefetch(const struct context *x, uint32_t slot)
{
	__builtin_prefetch(&x->meta[slot], 1);
	__builtin_prefetch(index_block(&x->ix, slot), 1);
	__builtin_prefetch(index_page(&x->ix, slot, 0), 1);
}

/*
 * Who may follow this candidate has its lines brought while the present one leaves, in two steps:
 * what its number names when it is two away, and what its key and its parent's number name when it
 * is next. Guesses: nothing depends on them.
 */
static void candidates_expect(const struct context *x, const void *state, uint32_t slot)
{
	const struct policy_ops *policy = block_lanes(x, slot)->policy;
	uint32_t next = policy->expect(state, slot, NULL), then;
	const uint8_t *key;

	if (next == ABI_SLOT_NONE)
		return;
	key = index_block(&x->ix, next)->key;
	index_prefetch(&x->ix, key);
	prefix_prefetch(x, next);
	then = policy->expect(state, next, key);
	if (then != ABI_SLOT_NONE)
		candidate_prefetch(x, then);
}

/* Returns the bytes that retire by it. */
static uint64_t walk(struct core *c, struct context *x, struct walk *w)
{
	void *state = w->lanes->state[w->tier][w->lane];
	uint32_t stays = w->cursor - 1; /* the last block that was passed over */
	uint64_t gone = 0;

	if (!w->cursor || !(x->meta[stays].there[w->tier].ordered) ||
	    block_lane(x, stays) != w->lane || block_lanes(x, stays) != w->lanes)
		stays = ABI_SLOT_NONE;
	for (; gone < w->bytes && w->most && !meter_spent(&c->meter); w->most--) {
		uint32_t slot = w->lanes->policy->victim(state, stays);

		if (w->most % 8 == 0)
			meter_charge(&c->meter, 1); /* candidates, as of a table */
		if (slot == ABI_SLOT_NONE) {
			stays = slot;
			break;
		}
		candidate_prefetch(x, slot);
		candidates_expect(x, state, slot);
		if (walk_wants(c, x, w, slot))
			gone += leave(c, x, slot, w->tier, walk_takes_leads(c, x, w, slot));
		if (x->meta[slot].there[w->tier].ordered)
			stays = slot;
	}
	w->cursor = stays + 1; /* ABI_SLOT_NONE becomes 0 */
	return gone;
}

/* All lanes, whose tenants are most over first; from where walks ended (NULL = the front). */
static uint64_t walk_lanes(struct core *c, struct context *x, struct walk w,
			   const struct lane_order *lanes, uint32_t cursor[LANES])
{
	uint64_t bytes = w.bytes, gone = 0;
	uint32_t most = w.most;

	for (uint32_t i = 0; i < lanes->count && gone < bytes; i++) {
		w.lane = lanes->lane[i];
		w.most = most / lanes->count;
		w.cursor = cursor ? cursor[w.lane] : 0;
		w.bytes = bytes - gone;
		if (w.rank == RANK_OVER && lanes->over[i] <= 0 && !quota_of_clients(c, w.tier))
			break; /* nor is any behind it */
		gone += walk(c, x, &w);
		if (cursor)
			cursor[w.lane] = w.cursor;
	}
	return gone;
}

/* Those that give first may stand far from the front: their walk goes on, anew every 10 ms. */
static uint64_t evict_rank(struct core *c, struct context *x, const struct lane_order *lanes,
			   struct walk w)
{
	struct lanes *dv = w.lanes;
	uint64_t *since_ns;

	if (w.rank >= RANKS_SOUGHT)
		return walk_lanes(c, x, w, lanes, NULL);
	since_ns = &dv->since_ns[w.tier][w.rank];
	if (c->now_ns >= *since_ns + 10 * MS) {
		*since_ns = c->now_ns;
		memset(dv->cursor[w.tier][w.rank], 0, sizeof(dv->cursor[w.tier][w.rank]));
	}
	w.most = FIRST_WALK;
	return walk_lanes(c, x, w, lanes, dv->cursor[w.tier][w.rank]);
}

static uint64_t evict_from(struct core *c, struct context *x, struct lanes *of, uint32_t tier,
			   uint64_t bytes)
{
	struct walk w = { .lanes = of, .tier = tier, .most = WALK_MAX };
	struct lane_order lanes;
	uint64_t gone = 0;

	lanes_by_need(&lanes, c, x, of, tier);
	for (w.rank = 0; w.rank < RANKS && gone < bytes; w.rank++) {
		w.bytes = bytes - gone;
		if (quota_ranked(c, x, tier, w.rank))
			gone += evict_rank(c, x, &lanes, w);
	}
	w = (struct walk){ .lanes = of, .tier = tier, .most = WALK_MAX, .rank = RANK_KEEP,
			   .leads = true, .bytes = bytes };
	if (!gone && c->conversations.count) /* wishes: they stall nobody */
		gone = walk_lanes(c, x, w, &lanes, NULL);
	w.awaited = true;
	if (!gone && (c->plans.count || c->conversations.awaited || c->staged.bytes))
		gone = walk_lanes(c, x, w, &lanes, NULL);
	return gone;
}

/* Evict about `bytes` of the context from the tier. Returns the bytes that retire by it. */
uint64_t evict_some(struct core *c, struct context *x, uint32_t tier, uint64_t bytes)
{
	uint64_t gone = 0;

	evict_drain_logs(c);
	core_signals.room_short(c, x, tier);
	if (x->former)
		gone = evict_from(c, x, x->former, tier, bytes);
	return gone < bytes ? gone + evict_from(c, x, &x->lanes, tier, bytes - gone) : gone;
}

/* Lane by lane, from where the walk is: until something left, or it looked at many of one lane. */
static uint64_t walk_on(struct core *c, struct context *x, struct walk *w)
{
	uint64_t gone = 0;

	w->lane = w->cursor ? block_lane(x, w->cursor - 1) : 0;
	do {
		w->most = FIRST_WALK;
		if (w->lanes->state[w->tier][w->lane])
			gone = walk(c, x, w);
	} while (!gone && !w->cursor && ++w->lane < LANES); /* of a client: any */
	return gone;
}

/* Once through the order, from behind the cursor. It is 0 then if all were looked at. */
static uint64_t walk_around(struct core *c, struct context *x, struct walk *w)
{
	uint64_t gone;
	bool whole;

	w->lanes = x->former ? x->former : &x->lanes;
	if (w->cursor > x->ix.slots_used ||
	    (w->cursor && !x->meta[w->cursor - 1].there[w->tier].ordered))
		w->cursor = 0; /* it left; or a client's walk ended in another context */
	whole = !w->cursor;
	gone = walk_on(c, x, w);
	if (!gone && !w->cursor && !whole)
		gone = walk_on(c, x, w); /* nothing is behind where the last one ended */
	if (!gone && !w->cursor && x->former) {
		w->lanes = &x->lanes;
		gone = walk_on(c, x, w);
	}
	return gone;
}

/*
 * Nothing else can leave: pages that streams do not need now, of blocks that they hold. What they
 * have not reached yet they will have to read; but they go on.
 */
static uint64_t evict_streamed(struct core *c, struct context *x, uint32_t tier, uint64_t bytes)
{
	struct walk w = { .tier = tier, .rank = RANK_KEEP, .leads = true, .awaited = true,
			  .streamed = true, .bytes = bytes, .cursor = x->streamed_at[tier] };
	uint64_t gone;

	if (!c->streams.count)
		return 0;
	gone = walk_around(c, x, &w);
	x->streamed_at[tier] = w.cursor;
	return gone;
}

/* ---- room for a page ---------------------------------------------------------------------- */

/* A slab was taken (UINT64_MAX = none): back it with memory. */
void place_prepare(struct core *c, struct context *x, uint32_t tier, uint64_t fresh)
{
	struct core_range *range;

	if (fresh == UINT64_MAX)
		return;
	range = &core_push(c, CORE_AC_PREPARE)->range;
	range->context_id = x->id;
	range->tier = tier;
	range->offset = fresh;
	range->bytes = space_slab_bytes(x->space[tier]);
}

/* Would so many bytes more leave streams less than what is set aside for them? */
bool place_set_aside(const struct core *c, uint32_t tier, uint64_t bytes)
{
	const struct pool *p = &c->pool[tier];
	uint64_t unused = stream_aside_unused(c, tier);

	return unused && p->live + p->reserved + bytes + unused > p->capacity;
}

int64_t place_alloc(struct core *c, struct context *x, uint32_t page, uint32_t tier)
{
	if (place_set_aside(c, tier, page_stride(x, page)))
		return -ENOSPC;
	return place_alloc_stream(c, x, page, tier);
}

int64_t place_alloc_stream(struct core *c, struct context *x, uint32_t page, uint32_t tier)
{
	uint32_t klass = x->part_class[x->page_part[page]];
	uint64_t fresh;
	int64_t offset;

	if (!x->space[tier])
		return -ENOSPC;
	offset = space_alloc(x->space[tier], klass, &fresh);
	if (offset < 0)
		return offset;
	place_prepare(c, x, tier, fresh);
	place_prepare(c, x, tier, space_ahead(x->space[tier], klass));
	return offset;
}

static bool account_full(const struct core *c, const struct context *x, uint32_t slot,
			 uint32_t page, uint32_t tier)
{
	return quota_left(c, x, slot, tier) < page_stride(x, page);
}

/* The same for a page of a certain block: -EDQUOT when an account of the block is full. */
int64_t place_for(struct core *c, struct context *x, uint32_t slot, uint32_t page, uint32_t tier)
{
	if (account_full(c, x, slot, page, tier))
		return -EDQUOT;
	return place_alloc(c, x, page, tier);
}

int64_t place_for_stream(struct core *c, struct context *x, uint32_t slot, uint32_t page,
			 uint32_t tier)
{
	if (account_full(c, x, slot, page, tier))
		return -EDQUOT;
	return place_alloc_stream(c, x, page, tier);
}

/* What waits for a flush can go after it. */
static bool flush_frees(struct core *c)
{
	bool frees = false;

	for (uint32_t i = 0; i < c->drives; i++) {
		struct drive *dv = c->drive[i];

		if (dv->unflushed_head == dv->unflushed_tail)
			continue;
		sync_want(dv); /* nobody else may */
		frees = true;
	}
	return frees;
}

/* Room may come by itself: what is retiring, being punched, written back, flushed, or emptied. */
static bool room_comes(struct core *c, const struct context *x, uint32_t tier)
{
	if (x->retiring[tier] > c->reclaim.quarantined[tier] || c->evict.punching[tier])
		return true;
	if (tier == ABI_TIER_CXL && (x->dirty_bytes || flush_frees(c)))
		return true; /* what is dirty is written, or given up */
	return lend_comes(c) || (c->evacuation.tier == tier && evacuate_hopeful(c));
}

/*
 * Below its share, the context is given slabs by who is over his; its own blocks stay. False:
 * nobody has to give, or what he has could not be emptied several times in a row.
 */
static bool evict_donor(struct core *c, struct context *x, uint32_t tier, uint64_t bytes)
{
	struct context *donor = quota_donor(c, x, tier);

	if (!donor)
		return false;
	evacuate_give(c, donor, tier, bytes);
	return evacuate_hopeful(c) || c->evict.punching[tier];
}

/* Nothing of his own can go: empty slabs that others keep. His own serve him already. */
static bool evict_spares(struct core *c, const struct context *x, uint32_t tier)
{
	if (!space_may_take(x->space[tier]))
		return false;
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->context[i] != x && c->context[i]->space[tier])
			evacuate_surplus(c, c->context[i], tier, true);
	for (uint32_t i = 0; !c->evict.punching[tier] && i < c->contexts_high; i++)
		if (c->context[i] && c->context[i] != x && c->context[i]->space[tier])
			lend_recall(c, c->context[i], tier, 1);
	return c->evict.punching[tier];
}

/*
 * place_alloc has failed. Start what makes room. Returns 0: wait in the queue for space, or
 * -ENOSPC: nothing can go (pinned, leased, held).
 */
int evict_room(struct core *c, struct context *x, uint32_t tier, uint64_t bytes)
{
	struct space_stats st;
	uint64_t gone = 0;

	if (!x->space[tier])
		return -ENOSPC;
	reclaim_flush(c);
	if (x->retiring[tier] >= bytes + c->reclaim.quarantined[tier] || x->unretired)
		return 0;
	space_stats(x->space[tier], &st);
	if (evict_donor(c, x, tier, bytes))
		return 0;
	if (evacuate_compact(c, x, tier))
		return 0; /* there is room, in places of another size */
	if (bytes < ROOM_MIN && ROOM_MIN < (st.live + st.available + st.punching) / 64)
		bytes = ROOM_MIN; /* little of what the context can have */
	if (x->unsought[tier])
		gone = evict_streamed(c, x, tier, bytes);
	if (!gone)
		gone = evict_some(c, x, tier, bytes);
	x->unsought[tier] = !gone && meter_spent(&c->meter);
	if (gone || x->unsought[tier]) {
		reclaim_flush(c);
		return 0; /* or what can go was not looked for to the end */
	}
	if (!c->evacuation.ctx && st.live < st.charged / 2)
		evacuate_begin(c, x, tier, bytes);
	if (room_comes(c, x, tier) || evict_spares(c, x, tier))
		return 0;
	if (!evict_streamed(c, x, tier, bytes) && !x->streamed_at[tier] && !meter_spent(&c->meter))
		return -ENOSPC;
	reclaim_flush(c);
	return 0;
}

/*
 * place_for has said -EDQUOT: room in the block's account comes from its own blocks alone. Returns
 * as evict_room.
 */
int evict_account(struct core *c, struct context *x, uint32_t slot, uint32_t tier, uint64_t bytes)
{
	struct holding *a = quota_short(c, x, slot, tier);
	struct walk w = { .tier = tier, .rank = RANK_KEEP, .account = a, .bytes = bytes,
			  .leads = true, .awaited = true, .streamed = true,
			  .cursor = a->cursor[tier] };
	uint64_t gone;

	evict_drain_logs(c);
	gone = walk_around(c, x, &w);
	a->cursor[tier] = w.cursor;
	reclaim_flush(c);
	if (gone || w.cursor || meter_spent(&c->meter))
		return 0; /* not all of them were looked at */
	return room_comes(c, x, tier) ? 0 : -ENOSPC;
}

/* Operator's eviction: as much as can go now. */
int core_evict(struct core *c, uint32_t id, uint32_t tier, uint64_t bytes, uint64_t token)
{
	struct context *x = core_context(c, id);
	uint64_t gone, all = 0;

	if (!x || x->closing)
		return -ENOENT;
	if (tier >= ABI_MEM_TIERS || !x->space[tier])
		return -EINVAL;
	do { /* an operator's, all at once */
		meter_begin(&c->meter);
		gone = evict_some(c, x, tier, bytes - all);
		all += gone;
	} while (gone && meter_spent(&c->meter) && all < bytes);
	core_reply(c, token, 0, all);
	reclaim_flush(c);
	return 0;
}

/* ---- time --------------------------------------------------------------------------------- */

/*
 * Keep some room ahead of need. Called where room was used, so that who leaves depends on what was
 * asked and not on when a tick came, nor on when spares were given back, which can be taken again;
 * and by ticks, for room that was lost otherwise. While puts copy the ticks wait: a put's blocks
 * are in no order yet, and its end comes here.
 */
void evict_room_ahead(struct core *c, struct context *x, uint32_t tier)
{
	struct space_stats st;
	uint64_t room, whole, more;

	space_stats(x->space[tier], &st);
	room = st.available + st.punching;
	whole = st.live + room;
	more = 2 * whole / ROOM_AHEAD_SHARE;
	if (room + x->retiring[tier] >= whole / ROOM_AHEAD_SHARE || x->unretired)
		return;
	if (!evict_donor(c, x, tier, more) && evict_some(c, x, tier, more))
		reclaim_flush(c);
}

static void balance(struct core *c, struct context *x, uint32_t tier)
{
	uint64_t held, quota = x->plan.quota[tier];

	evacuate_surplus(c, x, tier, false);
	held = space_held(x->space[tier]);
	if (held > quota) { /* it was lowered */
		evacuate_give(c, x, tier, held - quota);
	} else if (tier != ABI_TIER_CXL || !x->put_copies) {
		evict_room_ahead(c, x, tier);
	}
	evacuate_tick(c, x, tier);
}

/*
 * Areas of the index grow from their front. What is full of used lines gets huge pages: 10^7 blocks
 * in 4 KiB pages cost every look-up a walk of the page table. Descriptors are worth it while most
 * of them are used: blocks may have a few of their pages only.
 */
static bool descs_dense(const struct context *x, uint64_t used)
{
	return 2 * descs_bytes(&x->descs) >= used;
}

static void index_prepare(struct core *c, struct context *x)
{
	uint32_t limit;

	for (uint32_t i = 0; i < INDEX_AREAS && !x->index_lent; i++) {
		struct index_area area = index_area(&x->ix, i);
		uint64_t end = area.used & ~(uint64_t)(ABI_HUGE - 1);
		uint64_t from = x->index_ready[i];
		struct core_range *range;

		if (!from)
			from = (area.begin + ABI_HUGE - 1) & ~(uint64_t)(ABI_HUGE - 1);
		if (from + ABI_HUGE > end)
			continue;
		if (end > from + INDEX_PREPARE_MAX)
			end = from + INDEX_PREPARE_MAX;
		if (i == INDEX_DESCS && (!descs_dense(x, end - area.begin) ||
					 tables_room(c, x, &limit) < end - from))
			continue;
		range = &core_push(c, CORE_AC_PREPARE)->range;
		range->context_id = x->id;
		range->tier = CORE_RANGE_INDEX;
		range->offset = from;
		range->bytes = end - from;
		x->index_ready[i] = end;
		if (i == INDEX_DESCS) /* all of it has memory then */
			descs_touch_range(&x->descs, (from - area.begin) / DESCS_GROUP_BYTES,
					  (end - from) / DESCS_GROUP_BYTES);
	}
}

/* A range of an index: it is asked for again, with all behind it. */
void evict_prepare_refused(struct core *c, const struct core_range *range)
{
	struct context *x = core_context(c, range->context_id);

	for (uint32_t i = 0; x && i < INDEX_AREAS; i++) {
		struct index_area area = index_area(&x->ix, i);

		if (range->offset >= area.begin && range->offset < area.end &&
		    range->offset < x->index_ready[i])
			x->index_ready[i] = range->offset;
	}
}

static void context_balance(struct core *c, struct context *x)
{
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (x->space[tier])
			balance(c, x, tier);
	index_prepare(c, x);
	if (x->slots_live > x->plan.blocks_max - x->plan.blocks_max / 64)
		evict_nvme(c, x, x->plan.blocks_max / 64 * x->spec.geometry.block_bytes);
	tables_count(c, x);
}

/* What was empty all the time is not needed: so much of it goes with the next ticks. */
static void look_at_spares(struct core *c)
{
	if (c->now_ns < c->evict.spares_ns + SPARES_NS)
		return;
	c->evict.spares_ns = c->now_ns;
	for (uint32_t i = 0; i < c->contexts_high; i++)
		for (uint32_t tier = 0; c->context[i] && tier < ABI_MEM_TIERS; tier++)
			if (c->context[i]->space[tier])
				space_look(c->context[i]->space[tier]);
}

void evict_tick(struct core *c)
{
	look_at_spares(c);
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && !c->context[i]->closing)
			context_balance(c, c->context[i]);
}
