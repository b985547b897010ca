/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emptying slabs: so that their memory passes to another context or another size class. Pages
 * move to other slabs of their class. Where these have no room, blocks leave in the order of the
 * policy until there is some: what happens to stand in the slab is no worse than others. Only
 * when nothing leaves that way do the pages that stand there. Where a context gives memory to
 * others, these blocks leave before pages move, and slabs that are empty by then go first.
 *
 *   begin -> walk the descriptors -> each READY page there: copy, publish the new place, retire the
 *   old one (detached: no word names it) -> fence -> scan -> free
 *   what readers keep: the units of 2 MiB around it are parked, that is given back at once; its
 *   own when the reader lets go
 *
 * There is no map from places back to pages (it would cost 8 bytes a page): a walk looks at all
 * descriptors, some in each event, and several slabs share it. A page that something holds
 * (an io, a copy, a put, a stream that counts on it) stays where it is until that is over: no
 * engine of ours reads a place without a hold, and readers have hazard words.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define WALKS_MAX 16u       /* then pages that cannot move keep their slab */
#define WALKS_LEASED 4u     /* then places that are only leased are left behind */
#define LOOKS_MAX 4u /* before the first walk: others leave, and slabs are chosen anew */
#define ROUNDS_MAX 3u       /* of others leaving; then pages do that find no room all the same */
#define WALK_WAIT_NS (2 * MS)
#define FAILED_MAX 4u /* slabs in a row: then no more is hoped for */
#define FAILED_FORGET_NS (100 * MS) /* slabs that could not be emptied so long ago may be now */
#define COPIES_MAX 8u       /* jobs under way: others need the pool too */
#define PUNCHES_MAX 64u     /* asked for in one tick */

/* ---- memory back to the host -------------------------------------------------------------- */

static void punch(struct core *c, struct context *x, uint32_t tier, uint64_t offset, uint64_t bytes)
{
	struct core_range *range = &core_push(c, CORE_AC_PUNCH)->range;

	range->context_id = x->id;
	range->tier = tier;
	range->offset = offset;
	range->bytes = bytes;
	c->evict.punching[tier]++;
	x->punching++;
}

/*
 * Is there empty memory beyond what streams will want at once? Punching what a window leaves and
 * backing it anew for the next one costs several times what reading into it does.
 */
static bool spare(const struct core *c, uint32_t tier)
{
	const struct pool *p = &c->pool[tier];

	return p->used - p->live > stream_aside_unused(c, tier) + p->slab_bytes;
}

void evacuate_surplus(struct core *c, struct context *x, uint32_t tier, bool all)
{
	uint64_t bytes = space_slab_bytes(x->space[tier]);
	int64_t offset;

	for (uint32_t n = 0; n < PUNCHES_MAX && (all || spare(c, tier)); n++) {
		offset = space_surplus(x->space[tier], all);
		if (offset < 0)
			return;
		punch(c, x, tier, (uint64_t)offset, bytes);
	}
}

/* What nobody needs of an evacuated slab goes; returns how many ranges. */
static uint32_t park(struct core *c, struct context *x, uint32_t tier, uint64_t slab)
{
	uint64_t bytes;
	int64_t offset;
	uint32_t n = 0;

	while ((offset = space_park(x->space[tier], slab, &bytes)) >= 0) {
		punch(c, x, tier, (uint64_t)offset, bytes);
		c->metrics.parked_bytes += bytes;
		n++;
	}
	return n;
}

void evacuate_punched(struct core *c, const struct core_range *range)
{
	struct context *x = core_context(c, range->context_id);
	struct space *s;

	assert(x && c->evict.punching[range->tier] > 0 && x->punching > 0);
	c->evict.punching[range->tier]--;
	x->punching--;
	s = x->space[range->tier];
	if (space_is_evacuated(s, range->offset))
		space_park_punched(s, range->offset, range->bytes);
	else
		space_punched(s, range->offset);
	request_wake_space(c);
	core_signals.context_idle(c, x);
}

/* ---- moving ------------------------------------------------------------------------------- */

/* Publish the copy, unless the page has changed or something reads the old place by now. */
static bool publish(struct core *c, struct context *x, const struct core_copy *copy, uint32_t i,
		    uint64_t to)
{
	uint32_t slot = copy->priv.slot[i], page = copy->priv.page[i], tier = copy->dst_tier;
	const struct abi_page *d = index_page(&x->ix, slot, page);

	if (copy->res || x->meta[slot].flags & BLOCK_DROPPED || block_use(x, slot)->hold > 1)
		return false;
	assert(page_state(d, tier) == ABI_PAGE_READY); /* our hold keeps it so */
	if (copy->checksum && copy->item[i].crc != d->crc)
		return false; /* memory that rots is not spread */
	return retire_moved(c, x, slot, page, tier, to);
}

static void moved(struct core *c, struct core_copy *copy)
{
	struct evacuation *e = &c->evacuation;
	struct context *x = e->ctx;
	uint32_t tier = copy->dst_tier;

	assert(x && e->copies > 0 && e->tier == tier);
	for (uint32_t i = 0; i < copy->count; i++) {
		uint64_t to = (uint64_t)((uint8_t *)copy->item[i].dst -
					 (uint8_t *)x->memory.mem[tier]);

		x->moving[tier] -= copy->item[i].bytes;
		if (publish(c, x, copy, i, to)) {
			c->metrics.moved_pages++;
		} else {
			space_free(x->space[tier], to);
			c->metrics.moves_failed++;
			e->stuck++;
		}
		if (i + 1 == copy->count || copy->priv.slot[i + 1] != copy->priv.slot[i])
			block_unhold(c, x, copy->priv.slot[i]);
	}
	e->copies--;
	core_copy_put(c, copy);
}

/* Bytes of new places whose copies are under way, for the audit. */
uint64_t evacuate_copying(const struct core *c, const struct context *x, uint32_t tier)
{
	uint64_t bytes = 0;

	if (c->evacuation.ctx != x || c->evacuation.tier != tier)
		return 0;
	for (uint32_t i = 0; i < CORE_COPIES_MAX; i++) {
		const struct core_copy *copy = &c->actions.copy[i];

		for (uint32_t k = 0; k < copy->count && copy->priv.done == moved; k++)
			bytes += copy->item[k].bytes;
	}
	return bytes;
}

static void submit(struct core *c)
{
	struct evacuation *e = &c->evacuation;

	if (!e->copy)
		return;
	if (e->copy->count) {
		e->copies++;
		sched_copy(c, e->copy);
	} else {
		core_copy_put(c, e->copy);
	}
	e->copy = NULL;
}

/* A job for a page, of the block that it holds already: such a block goes in one, however large. */
static struct core_copy *copy_for(struct core *c, bool held)
{
	struct evacuation *e = &c->evacuation;

	if (e->copy && !held && sched_copy_full(e->copy))
		submit(c);
	if (e->copy || e->copies >= COPIES_MAX)
		return e->copy;
	e->copy = core_copy_get(c, ABI_CLASS_CLEANUP, SCHED_DAEMON);
	if (!e->copy)
		return NULL;
	e->copy->src_tier = e->copy->dst_tier = (uint8_t)e->tier;
	e->copy->checksum = e->tier == ABI_TIER_CXL;
	e->copy->priv.done = moved;
	return e->copy;
}

/* One hold is for all pages of a block that stand side by side in a job. */
static bool held_by_job(const struct evacuation *e, uint32_t slot)
{
	const struct core_copy *copy = e->copy;

	return copy && copy->count && copy->count < CORE_SEGMENTS_IO &&
	       copy->priv.slot[copy->count - 1] == slot;
}

/*
 * Begin to copy a page to another slab. Returns 0; -EBUSY: something holds its block; -EAGAIN:
 * no job; -ENOSPC: no room there.
 */
static int move(struct core *c, uint32_t slot, uint32_t page)
{
	struct evacuation *e = &c->evacuation;
	struct context *x = e->ctx;
	const struct abi_page *d = index_page(&x->ix, slot, page);
	uint8_t *memory = x->memory.mem[e->tier];
	bool held = held_by_job(e, slot);
	struct core_copy_item item;
	struct core_copy *copy;
	int64_t to;

	if (block_use(x, slot)->hold > held)
		return -EBUSY;
	copy = copy_for(c, held);
	if (!copy)
		return -EAGAIN;
	to = space_alloc_move(x->space[e->tier], x->part_class[x->page_part[page]]);
	if (to < 0)
		return (int)to;
	item = (struct core_copy_item){
		.dst = memory + to,
		.src = memory + page_addr(d, e->tier),
		.bytes = page_stride(x, page),
		.seed = store_page_seed(index_block(&x->ix, slot)->key, block_salt(x, slot), page),
	};
	sched_copy_add(copy, &item, slot, page);
	x->moving[e->tier] += item.bytes;
	if (!held)
		block_hold(x, slot);
	return 0;
}

/* ---- the walk ----------------------------------------------------------------------------- */

static void walk_page(struct core *c, uint32_t slot, uint32_t page)
{
	struct evacuation *e = &c->evacuation;
	struct context *x = e->ctx;
	const struct abi_page *d = index_page(&x->ix, slot, page);
	uint32_t state = page_state(d, e->tier);
	uint32_t block = index_block(&x->ix, slot)->state;
	int err = -EBUSY;

	if (state == ABI_PAGE_ABSENT || state >= ABI_PAGE_RETIRING ||
	    !space_is_evacuated(x->space[e->tier], page_addr(d, e->tier)))
		return;
	if (state == ABI_PAGE_READY && block != ABI_BLOCK_FREE && page_movable(d, e->tier))
		err = move(c, slot, page);
	if (!err)
		return;
	if (err == -ENOSPC)
		e->short_of[x->part_class[x->page_part[page]]]++;
	if (err == -EAGAIN || (err == -ENOSPC && !e->forced))
		e->stuck++;
	else if (state != ABI_PAGE_READY || block != ABI_BLOCK_COMMITTED || e->compact ||
	    !evict_may(c, x, slot, e->tier) || pin_holds(x, slot, page, e->tier))
		e->stuck++;
	else if (e->tier == ABI_TIER_CXL && block_leaves_whole(c, x, slot))
		block_drop(c, x, slot);
	else
		e->stuck += !retire_page(c, x, slot, page, e->tier);
}

static void walk_begin(struct core *c)
{
	struct evacuation *e = &c->evacuation;

	e->slot = e->page = 0;
	e->stuck = 0;
	memset(e->short_of, 0, sizeof(e->short_of));
	e->wait_ns = c->now_ns + WALK_WAIT_NS;
}

/* The walks of one slab are over: it is empty, stays in use, or is parked. */
static void slab_end(struct core *c, uint64_t slab)
{
	struct evacuation *e = &c->evacuation;
	struct space *s = e->ctx->space[e->tier];
	bool leased = space_slab_live(s, slab) && !e->stuck;

	if (leased && park(c, e->ctx, e->tier, slab))
		return;
	if (leased)
		space_shun(s, slab);
	c->evict.failed[e->compact] =
		space_slab_live(s, slab) ? c->evict.failed[e->compact] + 1 : 0;
	c->evict.failed_ns[e->compact] = c->now_ns;
	space_evacuate_end(s, slab);
}

/*
 * Pages found no room in this walk: let others leave, unless some are about to. Long stretches of
 * the policy's order may have no page of the class; then it costs less to let those leave that
 * stand there.
 */
static void make_room(struct core *c)
{
	struct evacuation *e = &c->evacuation;
	struct context *x = e->ctx;
	uint64_t blocks = 0;

	/* A block that leaves makes room in all classes. */
	for (uint32_t k = 0; k < x->classes; k++) {
		uint64_t n = (e->short_of[k] + x->block_places[k] - 1) / x->block_places[k];

		blocks = n > blocks ? n : blocks;
	}
	if (e->compact || e->forced || !blocks)
		return;
	if (x->retiring[e->tier] > c->reclaim.quarantined[e->tier] || x->unretired)
		return;
	e->forced = e->rounds == ROUNDS_MAX ||
		    (!evict_some(c, x, e->tier, blocks * x->spec.geometry.block_bytes) &&
		     !meter_spent(&c->meter));
	e->rounds += !meter_spent(&c->meter); /* else it goes on */
}

/* ---- which slabs -------------------------------------------------------------------------- */

/* So many must be emptied; more after one that could not be, which would else be chosen again. */
static uint32_t wanted(const struct core *c, uint64_t bytes)
{
	const struct evacuation *e = &c->evacuation;
	uint64_t slab_bytes = space_slab_bytes(e->ctx->space[e->tier]);
	uint64_t n = (bytes + slab_bytes - 1) / slab_bytes;

	n += n ? c->evict.failed[false] : 0;
	return n < EVACUATE_SLABS ? (uint32_t)n : EVACUATE_SLABS;
}

/* Those that cost least; those that devices have are wanted back where there are no others. */
static void choose(struct core *c, uint32_t count)
{
	struct evacuation *e = &c->evacuation;
	uint32_t live;

	assert(e->ctx && !e->slabs && !e->compact);
	while (e->slabs < count) {
		int64_t slab = space_evacuate_begin(e->ctx->space[e->tier], ABI_SLOT_NONE,
						    &live);

		if (slab < 0) {
			lend_recall(c, e->ctx, e->tier, count - e->slabs);
			return;
		}
		e->slab[e->slabs++] = (uint64_t)slab;
	}
}

/* All but so many stay in use, the fullest first. */
static void let_stay(struct evacuation *e, uint32_t count)
{
	struct space *s = e->ctx->space[e->tier];

	while (e->slabs > count) {
		uint32_t most = 0;

		for (uint32_t i = 1; i < e->slabs; i++)
			if (space_slab_live(s, e->slab[i]) >
			    space_slab_live(s, e->slab[most]))
				most = i;
		space_evacuate_end(s, e->slab[most]);
		e->slab[most] = e->slab[--e->slabs];
	}
}

static void over(struct core *c)
{
	c->evacuation.ctx = NULL;
	request_wake_space(c);
}

/*
 * Who left for pages without room may have emptied whole slabs, into which nothing moves: they
 * are given in place of those that were to be emptied. Returns how many of these it still takes.
 */
static uint32_t still_wanted(struct core *c)
{
	struct evacuation *e = &c->evacuation;
	uint64_t held;

	assert(e->gives);
	evacuate_surplus(c, e->ctx, e->tier, true);
	held = space_held(e->ctx->space[e->tier]);
	return wanted(c, held > e->goal ? held - e->goal : 0);
}

/*
 * Before anything moves: are there pages without room? What has to leave for them goes first, else
 * they move into slabs that are about to be empty. Which ones cost least is seen again then.
 */
static void leave_first(struct core *c)
{
	struct evacuation *e = &c->evacuation;
	struct space *s = e->ctx->space[e->tier];
	uint32_t lacks = 0;

	for (uint32_t k = 0; k < e->ctx->classes; k++)
		lacks += e->short_of[k] = space_lacks(s, k, e->slab, e->slabs);
	make_room(c);
	reclaim_flush(c);
	memset(e->short_of, 0, sizeof(e->short_of));
	e->again = lacks && !e->forced && e->walks < LOOKS_MAX;
	e->wait_ns = e->again ? c->now_ns + WALK_WAIT_NS : 0;
}

static void choose_again(struct core *c)
{
	struct evacuation *e = &c->evacuation;

	e->walks++; /* it takes as long */
	let_stay(e, 0);
	choose(c, still_wanted(c));
	if (e->slabs)
		leave_first(c);
	else
		over(c);
}

/* ---- walks that end ----------------------------------------------------------------------- */

static void walk_end(struct core *c)
{
	struct evacuation *e = &c->evacuation;
	struct space *s = e->ctx->space[e->tier];
	uint32_t live = 0;
	bool goes_on;

	submit(c);
	reclaim_flush(c);
	if (e->copies)
		return;
	if (e->gives)
		let_stay(e, still_wanted(c));
	if (!e->slabs) {
		over(c);
		return;
	}
	make_room(c);
	reclaim_flush(c);
	for (uint32_t i = 0; i < e->slabs; i++)
		live += space_slab_live(s, e->slab[i]);
	e->walks++;
	/* What moved just now is not free before the next scan, nor is it leased. */
	goes_on = e->stuck || e->ctx->retiring[e->tier] > c->reclaim.quarantined[e->tier];
	if (live && e->walks < (goes_on ? WALKS_MAX : WALKS_LEASED)) {
		walk_begin(c); /* what moved or left becomes free meanwhile */
		return;
	}
	for (uint32_t i = 0; i < e->slabs; i++)
		slab_end(c, e->slab[i]);
	if (!e->compact)
		evacuate_surplus(c, e->ctx, e->tier, true);
	over(c);
}

/* Is there more to look at, now? */
bool evacuate_goes_on(const struct core *c)
{
	const struct evacuation *e = &c->evacuation;

	return e->ctx && c->now_ns >= e->wait_ns && e->copies < COPIES_MAX &&
	       e->slot < e->ctx->ix.slots_used;
}

/*
 * The pages of a block, if any of it is in the tier or on its way: each descriptor is an item, as
 * is a group that has no memory. False: the event has done its share.
 */
static bool walk_block(struct core *c)
{
	struct evacuation *e = &c->evacuation;
	struct context *x = e->ctx;

	if (c->meter.items >= meter_ahead(&c->meter))
		return false;
	if (!x->meta[e->slot].there[e->tier].pages && !block_use(x, e->slot)->moving) {
		meter_charge_table(&c->meter, e->slot % 8 ? 0 : 8);
		e->page = 0;
		return true;
	}
	while (e->page < x->ix.pages_per_block) {
		if (c->meter.items >= meter_ahead(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (descs_there(&x->descs, e->slot, e->page))
			walk_page(c, e->slot, e->page++);
		else
			e->page = descs_behind(&x->descs, e->slot, e->page);
	}
	e->page = 0;
	return true;
}

void evacuate_step(struct core *c)
{
	struct evacuation *e = &c->evacuation;

	if (e->ctx && e->again && c->now_ns >= e->wait_ns)
		choose_again(c);
	if (!e->ctx || c->now_ns < e->wait_ns)
		return;
	for (; e->slot < e->ctx->ix.slots_used; e->slot++)
		if (e->copies >= COPIES_MAX || !walk_block(c))
			return; /* goes on when a copy is done, or in a later event */
	walk_end(c);
}

/* ---- begin -------------------------------------------------------------------------------- */

static void begin(struct core *c, struct context *x, uint32_t tier, bool compact)
{
	struct evacuation *e = &c->evacuation;

	memset(e, 0, sizeof(*e));
	e->ctx = x;
	e->tier = tier;
	e->compact = compact;
	walk_begin(c);
	e->wait_ns = 0;
}

static void failed_forget(struct core *c, bool compact)
{
	if (c->now_ns > c->evict.failed_ns[compact] + FAILED_FORGET_NS)
		c->evict.failed[compact] = 0; /* others hold what they hold, by now */
}

/* Is one of its slabs empty already? It passes on when the walks are over. */
static bool has_emptied(const struct evacuation *e)
{
	uint32_t i = 0;

	assert(e->ctx && e->slabs <= EVACUATE_SLABS);
	while (i < e->slabs && space_slab_live(e->ctx->space[e->tier], e->slab[i]))
		i++;
	return i < e->slabs;
}

/* Is a slab being emptied, and is it empty, or did not several before it fail in a row? */
bool evacuate_hopeful(const struct core *c)
{
	const struct evacuation *e = &c->evacuation;

	return e->ctx && (c->evict.failed[e->compact] < FAILED_MAX || has_emptied(e));
}

/* Empty as many slabs of the context as about `bytes` take. */
void evacuate_begin(struct core *c, struct context *x, uint32_t tier, uint64_t bytes)
{
	if (c->evacuation.ctx)
		return;
	failed_forget(c, false);
	begin(c, x, tier, false);
	choose(c, wanted(c, bytes));
	if (!c->evacuation.slabs)
		c->evacuation.ctx = NULL;
}

/* The same for others: his empty slabs go first, and what becomes empty on the way. */
void evacuate_give(struct core *c, struct context *x, uint32_t tier, uint64_t bytes)
{
	struct evacuation *e = &c->evacuation;
	const struct space *s = x->space[tier];
	uint64_t held = space_held(s), goal = held > bytes ? held - bytes : 0;

	evacuate_surplus(c, x, tier, true);
	held = space_held(s);
	if (e->ctx || held <= goal)
		return;
	evacuate_begin(c, x, tier, held - goal);
	if (!e->ctx)
		return; /* nothing can be emptied */
	assert(e->ctx == x && !e->compact);
	e->gives = true;
	e->goal = goal;
	leave_first(c);
}

void evacuate_forget(struct core *c, const struct context *x)
{
	if (c->evacuation.ctx != x)
		return;
	submit(c); /* nothing is in it: a page that moves keeps its context */
	c->evacuation.ctx = NULL;
}

/*
 * Room that stands in the wrong class: is some being moved to where it is wanted, or is now? Puts
 * may take the places that its pages were to move to; after some such failures it rests. They say
 * nothing of other slabs: an evacuation takes no more at a time for them.
 */
bool evacuate_compact(struct core *c, struct context *x, uint32_t tier)
{
	struct evacuation *e = &c->evacuation;
	int64_t slab = -EBUSY;
	uint32_t live;

	failed_forget(c, true);
	if (!e->ctx && c->evict.failed[true] < FAILED_MAX)
		slab = space_compact_begin(x->space[tier], &live);
	if (slab >= 0) {
		begin(c, x, tier, true);
		e->slab[e->slabs++] = (uint64_t)slab;
	}
	return e->ctx == x && e->compact && evacuate_hopeful(c);
}

/* Parked slabs whose readers have let go, and compaction. */
void evacuate_tick(struct core *c, struct context *x, uint32_t tier)
{
	struct space *s = x->space[tier];
	uint64_t at = space_parked(s, UINT64_MAX);
	uint32_t punches = 0;

	for (; at != UINT64_MAX && punches < PUNCHES_MAX; at = space_parked(s, at))
		punches += park(c, x, tier, at);
	evacuate_compact(c, x, tier);
}
