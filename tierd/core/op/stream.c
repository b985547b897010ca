/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: n blocks of a prefix brought up layer by layer, for a reader that begins with its first
 * layer. Layers are announced in the client's abi_stream as they come (P3) and let go as the client
 * says that it is done with them (P1), which moves the window on.
 *
 *   item   0 ........ dropped ........ done ....... copy ........ issue ......... end
 *          let go      in memory, told  into HBM     from NVMe    window's end
 *
 * What goes straight from NVMe into HBM is there when the copy cursor comes, which passes it.
 * A page that is there is used, one that comes is waited for, the rest is brought. Every page that
 * the stream passes counts it (stream_page.c), and item[] remembers which have it, so that
 * exactly those are taken back. The blocks are held from begin to end.
 *
 * The request is answered when the last layer came, or at its deadline; the stream lives on until
 * its layers are released, its client goes, or until_ns: stream_end.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define IOS_MAX 32u        /* device operations and copies of one stream under way */
#define IOS_FIRST 2u       /* likewise, of later layers while the first one is awaited */
#define LOOK_ITEMS 65536u  /* looked at for the usable prefix of a late stream */

/* ---- items -------------------------------------------------------------------------------- */

/* What an item is. False: void, or of a block that is not waited for any more. */
bool stream_item(const struct stream *s, uint32_t i, uint32_t *block, uint32_t *page)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint32_t layer = s->layer_first + i / s->per_layer, k = i % s->per_layer, p = s->part_first;

	for (; k >= s->count * g->part[p].groups; p++)
		k -= s->count * g->part[p].groups;
	assert(p < s->part_end);
	*block = k / g->part[p].groups;
	layer -= g->part[p].layer_first;
	if (layer >= g->part[p].layers)
		return false;
	*page = g->part[p].page_base + layer * g->part[p].groups + k % g->part[p].groups;
	return index_block(&s->ctx->ix, s->ref[*block].slot)->parts >> p & 1;
}

static uint32_t items(const struct stream *s)
{
	return s->layers * s->per_layer;
}

static void lost_from(struct stream *s, uint32_t block)
{
	if (block < s->usable)
		s->usable = block;
}

/* A page of the block could not be read: what is before it goes on. */
void stream_lost(struct request *r, uint32_t slot)
{
	struct stream *s = r->stream;

	for (uint32_t i = 0; s && i < s->usable; i++)
		if (s->ref[i].slot == slot)
			lost_from(s, i);
}

/* As stream_item, for one that is still wanted; notices that its block has gone. */
static bool item_wanted(struct stream *s, uint32_t i, uint32_t *slot, uint32_t *page)
{
	uint32_t block;

	if (!stream_item(s, i, &block, page) || block >= s->usable)
		return false;
	*slot = s->ref[block].slot;
	if (fetch_block_there(s->ctx, s->ref[block]))
		return true;
	lost_from(s, block);
	return false;
}

static void count_in(struct stream *s, uint32_t i, uint32_t slot, uint32_t page, uint8_t flag)
{
	if (s->item[i] & flag)
		return;
	stream_page_take(s->ctx, slot, page, flag == ITEM_COUNTED ? s->tier : ABI_TIER_CXL);
	s->item[i] |= flag;
}

/* ---- progress ----------------------------------------------------------------------------- */

static void tell(struct core *c, struct stream *s)
{
	struct abi_stream *line = s->line;
	uint32_t ready = s->done / s->per_layer, wait;

	if (!line || (ready == s->ready && !s->ended))
		return;
	s->ready = ready;
	atomic_store_relaxed_u32(&line->usable, s->usable);
	/* usable before the layers that it is true for */
	atomic_store_release_u32(&line->ready, ready);
	if (s->ended) {
		atomic_store_relaxed_u32(&line->status, s->status);
		atomic_store_release_u32(&line->ended, 1);
	}
	full_fence(); /* pairs with the client's, between its wait and its last look */
	wait = atomic_load_relaxed_u32(&line->wait);
	if (wait && (s->ended || ready >= wait))
		core_push(c, CORE_AC_WAKE)->wake = s->client;
}

static void count_end(struct core *c, const struct stream *s, int error)
{
	if (error)
		c->metrics.streams_failed++;
	else if (s->status == ABI_STATUS_READY)
		c->metrics.streams_ready++;
	else if (s->status == ABI_STATUS_LATE)
		c->metrics.streams_late++;
	else if (s->status == ABI_STATUS_MISS)
		c->metrics.streams_missed++;
	else
		c->metrics.streams_dropped++;
}

/* What is still coming comes too late; said of each page, for the account (P8). False: not all. */
static bool mark_late(struct core *c, struct stream *s)
{
	for (; s->marked < s->issue; s->marked++) {
		uint32_t block, page;

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (s->item[s->marked] & ITEM_MINE && stream_item(s, s->marked, &block, &page) &&
		    page_state(index_page(&s->ctx->ix, s->ref[block].slot, page), s->tier) !=
			    ABI_PAGE_READY)
			s->item[s->marked] |= ITEM_LATE;
	}
	return true;
}

/*
 * Blocks whose layers not announced are all there, too: from the last layer, where none is. False:
 * not known yet.
 */
static bool count_at_deadline(struct core *c, struct stream *s)
{
	for (; s->there && s->counted > s->done; s->counted--) {
		uint32_t block, page;

		if (items(s) - s->counted == LOOK_ITEMS)
			s->there = 0;
		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (stream_item(s, s->counted - 1, &block, &page) && block < s->there &&
		    page_state(index_page(&s->ctx->ix, s->ref[block].slot, page), s->tier) !=
			    ABI_PAGE_READY)
			s->there = block;
	}
	return true;
}

/* The one answer, once what came by now is counted. */
static void finish_on(struct core *c, struct request *r)
{
	struct stream *s = r->stream;
	uint32_t status = s->finish_status;
	int error = s->finish_error;

	if (!count_at_deadline(c, s) || (status == ABI_STATUS_LATE && !mark_late(c, s))) {
		request_go_on(c, r);
		return;
	}
	s->status = r->status = status;
	s->ended = true;
	s->until_ns = c->now_ns + c->config.stream_hold_ns;
	count_end(c, s, error);
	tell(c, s);
	if (error || s->released == s->layers || !s->issue)
		stream_over(c, s);
	request_end(c, r, error, error ? 0 : s->there, s->ready);
}

static void finish(struct core *c, struct request *r, uint32_t status, int error)
{
	struct stream *s = r->stream;

	s->finishing = true;
	s->finish_status = status;
	s->finish_error = error;
	s->marked = s->done;
	s->counted = items(s);
	s->there = s->usable;
	finish_on(c, r);
}

/* ---- cursors ------------------------------------------------------------------------------ */

/* The page is nowhere above NVMe, or for HBM in CXL: bring it one step, or straight (path.c). */
static enum move_state bring(struct core *c, struct request *r, struct mover *m, uint32_t i,
			     const struct abi_page_ref *at)
{
	struct stream *s = r->stream;
	const struct abi_page *d = index_page(&s->ctx->ix, at->slot, at->page);
	uint32_t below = page_state(d, ABI_TIER_CXL);
	enum move_state state;

	if (s->tier == ABI_TIER_HBM &&
	    (below == ABI_PAGE_READY || below == ABI_PAGE_ABSENT)) {
		state = path_to_hbm(c, r, m, at->slot, at->page);
	} else if (below == ABI_PAGE_ABSENT) {
		state = move_read(c, r, m, at->slot, at->page);
	} else {
		move_join(c, r, at->slot, d); /* another's, or on its way already */
		return MOVE_UNDER_WAY;
	}
	if (state == MOVE_GONE)
		stream_lost(r, at->slot);
	if (state != MOVE_UNDER_WAY || s->item[i] & ITEM_MINE)
		return state;
	s->item[i] |= ITEM_MINE;
	s->moved += page_stride(s->ctx, at->page);
	c->metrics.stream_bytes += page_stride(s->ctx, at->page);
	return state;
}

/*
 * A device shares itself among what it has: what is behind the first layer waits until that is
 * there, but for what keeps the device from idling.
 */
static bool held_back(const struct stream *s)
{
	return s->done < s->per_layer && s->issue >= s->per_layer;
}

/* Is as much under way as may be? What goes on in the read being built makes it no more. */
static bool enough(const struct request *r, const struct mover *m, const struct abi_page *d,
		   uint32_t bytes)
{
	uint32_t most = held_back(r->stream) ? IOS_FIRST : IOS_MAX;

	return r->outstanding + !!m->io >= most && !move_goes_on(m, d, bytes);
}

/*
 * The first look at an item: read it if nobody has, and count on it once that is possible.
 * UNDER_WAY: enough is, later.
 */
static enum move_state issue_item(struct core *c, struct request *r, struct mover *m, uint32_t i)
{
	struct stream *s = r->stream;
	struct abi_page_ref at = { .slot = 0 };
	const struct abi_page *d;
	enum move_state state = MOVE_THERE;
	uint32_t here;

	if (!item_wanted(s, i, &at.slot, &at.page))
		return MOVE_THERE;
	d = index_page(&s->ctx->ix, at.slot, at.page);
	here = page_state(d, s->tier);
	if (here == ABI_PAGE_ABSENT && enough(r, m, d, page_stride(s->ctx, at.page)))
		return MOVE_UNDER_WAY;
	if (s->mode == ABI_MODE_CACHE)
		stream_page_adopt(c, s->ctx, at.slot, at.page, s->tier);
	if (here != ABI_PAGE_ABSENT) {
		c->metrics.stream_joined += page_stride(s->ctx, at.page);
		move_join(c, r, at.slot, d);
	} else if (s->tier == ABI_TIER_CXL || page_state(d, ABI_TIER_CXL) == ABI_PAGE_ABSENT) {
		state = bring(c, r, m, i, &at);
	}
	if (state == MOVE_BLOCKED)
		return state;
	count_in(s, i, at.slot, at.page, ITEM_COUNTED);
	if (s->tier == ABI_TIER_HBM && page_state(d, ABI_TIER_HBM) == ABI_PAGE_ABSENT)
		count_in(s, i, at.slot, at.page, ITEM_STAGE);
	return MOVE_THERE;
}

/* CXL -> HBM, in order. */
static enum move_state copy_item(struct core *c, struct request *r, struct mover *m, uint32_t i)
{
	struct stream *s = r->stream;
	struct abi_page_ref at = { .slot = 0 };
	const struct abi_page *d;
	enum move_state state;

	if (!item_wanted(s, i, &at.slot, &at.page))
		return MOVE_THERE;
	d = index_page(&s->ctx->ix, at.slot, at.page);
	if (page_state(d, ABI_TIER_HBM) != ABI_PAGE_ABSENT)
		return MOVE_THERE;
	count_in(s, i, at.slot, at.page, ITEM_STAGE);
	state = bring(c, r, m, i, &at);
	if (state == MOVE_UNDER_WAY && page_state(d, ABI_TIER_HBM) != ABI_PAGE_ABSENT)
		return MOVE_THERE;
	return state == MOVE_GONE ? MOVE_THERE : state;
}

/* Is it where it was wanted? One that came and went again (another's read failed) is brought. */
static enum move_state done_item(struct core *c, struct request *r, struct mover *m, uint32_t i)
{
	struct stream *s = r->stream;
	struct abi_page_ref at = { .slot = 0 };
	const struct abi_page *d;
	enum move_state state;

	if (!item_wanted(s, i, &at.slot, &at.page))
		return MOVE_THERE;
	d = index_page(&s->ctx->ix, at.slot, at.page);
	if (s->item[i] & ITEM_STAGE && page_state(d, ABI_TIER_CXL) == ABI_PAGE_FILLING)
		return MOVE_UNDER_WAY;
	if (page_state(d, s->tier) == ABI_PAGE_READY) {
		stream_drop_stage(c, s, i, &at);
		return MOVE_THERE;
	}
	if (page_state(d, s->tier) != ABI_PAGE_ABSENT)
		return MOVE_UNDER_WAY;
	if (s->tier == ABI_TIER_HBM)
		count_in(s, i, at.slot, at.page, ITEM_STAGE);
	state = bring(c, r, m, i, &at);
	return state == MOVE_GONE ? MOVE_THERE : state;
}

/* Move one cursor on. Returns what stopped it; MOVE_THERE: its end, or enough for one step. */
static enum move_state advance(struct core *c, struct request *r, struct mover *m, uint32_t *cursor,
			       uint32_t end)
{
	struct stream *s = r->stream;

	for (; *cursor < end && !meter_spent(&c->meter); ++*cursor) {
		enum move_state state;

		meter_charge(&c->meter, 1);
		if (cursor == &s->issue) {
			state = issue_item(c, r, m, *cursor);
			if (state != MOVE_THERE)
				return state;
			continue;
		}
		state = cursor == &s->copy ? copy_item(c, r, m, *cursor)
					   : done_item(c, r, m, *cursor);
		if (state != MOVE_THERE)
			return state;
	}
	return MOVE_THERE;
}

static uint32_t window_end(const struct stream *s)
{
	uint32_t layer = s->dropped / s->per_layer + s->window;

	return layer < s->layers ? layer * s->per_layer : items(s);
}

/* No room: make some. False: there is none, and no reader of ours who could let go of any. */
static bool make_room(struct core *c, struct request *r, const struct mover *m)
{
	struct stream *s = r->stream;
	uint64_t bytes = 4 * (uint64_t)CORE_IO_BYTES_MAX;

	if (!m->blocked_bytes)
		return true; /* ios or copies: some will be back */
	if (bytes > s->layer_bytes && s->layer_bytes)
		bytes = s->layer_bytes;
	return !move_make_room(c, r, m, bytes) || r->outstanding ||
	       s->done > s->dropped;
}

static void run(struct core *c, struct request *r)
{
	struct stream *s = r->stream;
	struct mover m = { .io = NULL };
	uint32_t end = window_end(s);
	enum move_state state[3] = { MOVE_THERE, MOVE_THERE, MOVE_THERE };
	bool is_blocked;

	if (s->tier == ABI_TIER_HBM)
		state[0] = advance(c, r, &m, &s->copy, s->issue);
	state[1] = advance(c, r, &m, &s->issue, end);
	if (s->tier == ABI_TIER_CXL)
		s->copy = s->issue;
	state[2] = advance(c, r, &m, &s->done, s->copy);
	move_submit(c, r, &m);
	is_blocked = state[0] == MOVE_BLOCKED || state[1] == MOVE_BLOCKED ||
		     state[2] == MOVE_BLOCKED;
	if (!s->usable) {
		s->done = items(s); /* nothing is left to wait for */
		s->copy = s->issue = s->done;
	}
	tell(c, s);
	if (s->done == items(s))
		finish(c, r, s->usable < s->count ? ABI_STATUS_MISS : r->status, 0);
	else if (is_blocked && !make_room(c, r, &m))
		finish(c, r, ABI_STATUS_MISS, -ENOSPC);
	else if (is_blocked || (!r->outstanding && s->done < s->copy && state[2] != MOVE_THERE) ||
		 (!r->outstanding && s->copy < s->issue && state[0] == MOVE_UNDER_WAY))
		request_wait_space(c, r); /* room, or pages that others bring */
	else if ((s->done < s->copy && state[2] == MOVE_THERE) ||
		 (s->copy < s->issue && state[0] == MOVE_THERE) ||
		 (s->issue < end && state[1] == MOVE_THERE))
		meter_spent(&c->meter) ? request_go_on(c, r) : request_wake(c, r);
}

/* ---- begin -------------------------------------------------------------------------------- */

static struct stream *stream_get(struct core *c)
{
	for (uint32_t i = 0; i < CORE_STREAMS_MAX; i++) {
		struct stream *s = &c->streams.table[i];

		if (s->used)
			continue;
		*s = (struct stream){ .used = true, .number = i, .ref = s->ref, .item = s->item };
		if (c->streams.high <= i)
			c->streams.high = i + 1;
		c->streams.count++;
		return s;
	}
	return NULL;
}

/* Parts and layers that are asked for. Errors: -EINVAL. */
static int take_range(struct stream *s, const struct abi_sqe *q)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint32_t first = UINT32_MAX, end = 0, groups = 0;

	s->part_first = q->part_count ? q->part_first : 0;
	s->part_end = q->part_count ? (uint32_t)q->part_first + q->part_count : g->part_count;
	if (s->part_end > g->part_count)
		return -EINVAL;
	for (uint32_t p = s->part_first; p < s->part_end; p++) {
		const struct abi_part *part = &g->part[p];

		groups += part->groups;
		if (part->layer_first < first)
			first = part->layer_first;
		if (part->layer_first + part->layers > end)
			end = part->layer_first + part->layers;
	}
	if (q->layer_count && q->layer_first + q->layer_count < end)
		end = q->layer_first + q->layer_count;
	if (q->layer_count && q->layer_first > first)
		first = q->layer_first;
	if (first >= end)
		return -EINVAL;
	s->layer_first = first;
	s->layers = end - first;
	s->groups = groups;
	return 0;
}

/* Hold one block, of so many bytes. Twice within the horizon: worth keeping, as far as it fits. */
static void take_block(struct core *c, struct stream *s, struct abi_block_ref ref, uint64_t bytes,
		       uint64_t keeps)
{
	struct context *x = s->ctx;
	struct block_meta *m = &x->meta[ref.slot];
	struct block_use *use;
	uint32_t now_ms = (uint32_t)(c->now_ns / MS);
	bool again = m->streamed &&
		     now_ms - x->streamed_ms[ref.slot] < c->config.stream_again_ns / MS;

	block_hold(x, ref.slot);
	use = block_use_make(x, ref.slot);
	again = again && bytes && s->kept + bytes <= keeps;
	again |= use->streams && m->flags & BLOCK_AGAIN; /* another stream keeps it */
	s->kept += again ? bytes : 0;
	s->ref[s->held] = ref;
	use->streams++;
	if (s->klass != ABI_CLASS_SPECULATIVE)
		stage_use(c, x, ref.slot);
	m->flags = (uint8_t)(again ? m->flags | BLOCK_AGAIN : m->flags & ~BLOCK_AGAIN);
	m->streamed = 1;
	x->streamed_ms[ref.slot] = now_ms;
	x->streamed_high = x->streamed_high > ref.slot ? x->streamed_high : ref.slot + 1;
}

/* The blocks that are there, `most` at most, held. False: not all of them yet. */
static bool take_blocks(struct core *c, struct stream *s, const struct request *r, uint32_t most)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;
	uint64_t bytes = stream_block_bytes(s), keeps = stream_window_keeps(c, s);

	most = most < r->sqe.count ? most : r->sqe.count;
	for (; s->held < most && fetch_block_there(s->ctx, ref[s->held]); s->held++) {
		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		take_block(c, s, ref[s->held], bytes, keeps);
	}
	s->count = s->usable = s->held;
	s->per_layer = s->count * s->groups;
	return true;
}

static void stream_init(struct core *c, struct stream *s, struct request *r)
{
	struct client *k = &c->client[r->client];

	assert(k->connection == r->connection && k->account == r->account);
	account_take(c, k, ACCOUNT_STREAMS);
	s->client = r->client;
	s->connection = r->connection;
	s->account = r->account;
	s->ctx = r->ctx;
	s->request = r;
	s->line = &k->open.streams[r->sqe.stream];
	s->generation = r->sqe.generation;
	s->tier = r->sqe.tier;
	s->mode = r->sqe.mode;
	s->klass = r->sqe.klass;
	s->since_ns = c->now_ns;
	s->deadline_ns = r->deadline_ns;
	r->stream = s;
}

/*
 * What of it is there and can be held. Errors: -EINVAL, -E2BIG, -EMSGSIZE; -EINPROGRESS there is
 * more of it than one event looks at.
 */
static int take(struct core *c, struct stream *s, struct request *r)
{
	int error = take_range(s, &r->sqe);

	if (!take_blocks(c, s, r, error ? UINT32_MAX : stream_window_blocks(s)))
		return -EINPROGRESS;
	if (s->count < r->sqe.count)
		r->status = ABI_STATUS_MISS;
	if (error || !s->count)
		return s->count ? error : 0;
	if ((uint64_t)s->layers * s->per_layer > STREAM_ITEMS_MAX)
		return -E2BIG;
	return stream_window_plan(c, s, r->sqe.handle);
}

static void line_begin(const struct stream *s)
{
	struct abi_stream *line = s->line;

	atomic_store_relaxed_u32(&line->generation, 0);
	compiler_fence();
	atomic_store_relaxed_u32(&line->ready, 0);
	atomic_store_relaxed_u32(&line->usable, s->usable);
	atomic_store_relaxed_u32(&line->layers, s->layers);
	atomic_store_relaxed_u32(&line->status, 0);
	atomic_store_relaxed_u32(&line->ended, 0);
	atomic_store_release_u32(&line->generation, s->generation);
}

/* One that still uses the line: let it go when it was answered. */
static int line_take(struct core *c, const struct request *r)
{
	const struct client *k = &c->client[r->client];

	if (r->sqe.stream >= k->open.streams_max || !k->open.streams)
		return -EINVAL;
	for (uint32_t i = 0; i < c->streams.high; i++) {
		struct stream *s = &c->streams.table[i];

		if (!s->used || s->line != &k->open.streams[r->sqe.stream])
			continue;
		if (!s->ended)
			return -EBUSY;
		stream_over(c, s);
	}
	return 0;
}

/* Refused, before anything moved. */
static void refuse(struct core *c, struct request *r, int error)
{
	struct stream *s = r->stream;
	uint64_t need = s->need;

	s->ended = true;
	c->metrics.streams_failed++;
	stream_over(c, s);
	request_end(c, r, error, 0, error == -EMSGSIZE ? need : 0);
}

/* A stream for the request: false when it has to wait for one, or was answered. */
static bool stream_open(struct core *c, struct request *r)
{
	const struct client *k = &c->client[r->client];
	int error = r->error ? r->error : line_take(c, r);

	if (error || r->late) {
		r->status = ABI_STATUS_LATE;
		request_end(c, r, error, 0, 0);
		return false;
	}
	if (account_may(c, k, ACCOUNT_STREAMS))
		r->stream = stream_get(c);
	if (!r->stream) {
		request_wait_space(c, r);
		return false;
	}
	stream_init(c, r->stream, r);
	return true;
}

/* ... with its blocks. */
static bool start(struct core *c, struct request *r)
{
	struct stream *s;
	int error;

	if (!r->stream && !stream_open(c, r))
		return false;
	s = r->stream;
	error = r->error || r->late ? r->error : take(c, s, r);
	if (error == -EINPROGRESS) {
		s->taking = true;
		request_go_on(c, r);
		return false;
	}
	s->taking = false;
	if (error || r->late || !s->count) {
		if (r->late)
			r->status = ABI_STATUS_LATE;
		refuse(c, r, error);
		return false;
	}
	r->total = items(s);
	c->metrics.streams++;
	line_begin(s);
	return true;
}

static void stream_step(struct core *c, struct request *r)
{
	struct stream *s = r->stream;

	r->phase = REQUEST_RUN;
	if (s && s->finishing) {
		finish_on(c, r);
		return;
	}
	if (!s || s->taking) {
		if (!start(c, r))
			return;
		s = r->stream;
	}
	r->cursor = s->done;
	if (r->error)
		finish(c, r, r->status, r->error);
	else if (r->late)
		finish(c, r, ABI_STATUS_LATE, 0);
	else if (s->window || stream_admit(c, s))
		run(c, r);
	else if (s->klass == ABI_CLASS_SPECULATIVE)
		finish(c, r, ABI_STATUS_DROPPED, 0);
	else
		request_wait_space(c, r);
}

static void stream_begin(struct core *c, struct request *r)
{
	int error = r->sqe.mode < ABI_MODE_COUNT && r->sqe.generation ? 0 : -EINVAL;

	if (!error && !r->ctx->space[r->sqe.tier])
		error = -ENOSPC;
	if (error) {
		request_end(c, r, error, 0, 0);
		return;
	}
	if (r->deadline_ns > c->now_ns + PARK_HORIZON_NS) /* what it holds is held for so long */
		r->deadline_ns = c->now_ns + PARK_HORIZON_NS;
	fetch_resolve(c, r);
	stream_step(c, r);
}

/* ---- the pool, the view ------------------------------------------------------------------- */

int stream_memory(struct core *c)
{
	size_t refs = ABI_ARG_BYTES_MAX / sizeof(struct abi_block_ref);
	struct abi_block_ref *ref = calloc(CORE_STREAMS_MAX * refs, sizeof(*ref));
	uint8_t *item = calloc(CORE_STREAMS_MAX, STREAM_ITEMS_MAX);

	c->streams.table[0].ref = ref; /* owned here: core_close frees [0] */
	c->streams.table[0].item = item;
	if (!ref || !item)
		return -ENOMEM;
	for (uint32_t i = 0; i < CORE_STREAMS_MAX; i++) {
		c->streams.table[i].ref = ref + i * refs;
		c->streams.table[i].item = item + (size_t)i * STREAM_ITEMS_MAX;
	}
	return 0;
}

int core_stream_view(const struct core *c, uint32_t i, struct core_stream_view *out)
{
	for (uint32_t k = 0; k < c->streams.high; k++) {
		const struct stream *s = &c->streams.table[k];

		if (!s->used || i--)
			continue;
		*out = (struct core_stream_view){
			.client = s->client,
			.klass = s->klass,
			.tier = s->tier,
			.mode = s->mode,
			.status = s->status,
			.ended = s->ended,
			.context_id = s->ctx->id,
			.blocks = s->count,
			.usable = s->usable,
			.layers = s->layers,
			.ready = s->per_layer ? s->done / s->per_layer : 0,
			.released = s->released,
			.window = s->window,
			.bytes = s->moved,
			.used = s->used_bytes,
			.late = s->late,
			.wasted = s->wasted,
			.since_ns = s->since_ns,
			.deadline_ns = s->deadline_ns,
		};
		return 0;
	}
	return -ENOENT;
}

const struct op_ops op_stream = {
	.name = "stream",
	.generation = true,
	.tiers = ABI_MEM_TIERS,
	.context = true,
	.arg_bytes = op_blocks_bytes,
	.begin = stream_begin,
	.step = stream_step,
	.release = stream_release,
	.client_gone = stream_client_gone,
	.context_gone = stream_context_gone,
	.keeps = stream_keeps,
};
