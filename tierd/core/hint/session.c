/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: see session.h for what they are. This file keeps the table, decides what of a session
 * is staged and when, and answers the client. The transfers are prefetches of the core's own,
 * parked as claims like anybody else's, of the speculative class; what came is pinned (head layers
 * only: heads.c) until patience ends, and is then given back unread.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define PARK_AHEAD_NS (500 * MS) /* of the estimated return: then it becomes a claim */
#define RETRY_NS (10 * MS)
#define GROWTH_SHARE 8u          /* of a head: less is not brought for itself */
#define LATER_NS (20000 * MS)    /* an expected read after the return */
#define HINT_SLACK_NS (1000 * MS)
#define EXPIRES_NS (60000 * MS)  /* at the earliest, after the end of patience */
#define EXPIRES_MOST_NS (3600000 * MS)
#define LOOK_PAGES 65536u        /* at the return, of blocks that are there in part */

/* ---- table -------------------------------------------------------------------------------- */

int sessions_open(struct core *c)
{
	c->sessions.table = calloc(SESSIONS_MAX, sizeof(*c->sessions.table));
	c->sessions.chunk = calloc(SESSION_CHUNKS, sizeof(*c->sessions.chunk));
	c->sessions.tenant = calloc(THINK_TENANTS, sizeof(*c->sessions.tenant));
	c->sessions.next_ns = UINT64_MAX;
	return c->sessions.table && c->sessions.chunk && c->sessions.tenant ? 0 : -ENOMEM;
}

void sessions_close(struct core *c)
{
	free(c->sessions.table);
	free(c->sessions.chunk);
	free(c->sessions.tenant);
}

static uint32_t *bucket_of(struct core *c, const struct context *x, uint64_t id)
{
	uint64_t hash = (id ^ (uint64_t)x->id << 32) * 0x9e3779b97f4a7c15ull;

	return &c->sessions.bucket[(hash >> 32) % SESSION_BUCKETS];
}

static struct session *find(struct core *c, const struct context *x, uint64_t id)
{
	uint32_t at = *bucket_of(c, x, id);

	for (; at; at = c->sessions.table[at - 1].next) {
		struct session *s = &c->sessions.table[at - 1];

		if (s->ctx == x && s->id == id)
			return s;
	}
	return NULL;
}

static void refs_free(struct core *c, struct session *s)
{
	struct client *owner = &c->client[s->client];

	assert(owner->session == s->client_session && !s->kept);
	while (s->chunks) {
		struct session_chunk *k = &c->sessions.chunk[s->chunks - 1];
		uint32_t next = k->next;

		k->next = c->sessions.chunk_free;
		c->sessions.chunk_free = s->chunks;
		s->chunks = next;
		account_give(c, owner->account, owner, ACCOUNT_REFS);
	}
	s->blocks = 0;
}

static void refs_copy(const struct core *c, const struct session *s, struct abi_block_ref *to)
{
	for (uint32_t at = s->chunks; at; at = c->sessions.chunk[at - 1].next) {
		const struct session_chunk *k = &c->sessions.chunk[at - 1];

		memcpy(to, k->ref, k->count * sizeof(*to));
		to += k->count;
	}
}

/* ---- staging ------------------------------------------------------------------------------ */

static void wake_at(struct core *c, struct session *s, uint64_t ns)
{
	s->wake_ns = ns;
	if (ns < c->sessions.next_ns)
		c->sessions.next_ns = ns;
}

/*
 * Whose user is back will be read, for sure and soon: its blocks leave after all others, whatever
 * the policy makes of them (it sees blocks that were just brought and not used). A preference, as
 * for a plan's: pins have a budget, and those who wait for the engine may be more than it holds.
 */
static void await(struct core *c, struct session *s, bool yes)
{
	if (s->awaited == yes)
		return;
	s->awaited = yes;
	c->sessions.awaited += yes ? 1 : -1u;
	for (uint32_t at = s->chunks; at; at = c->sessions.chunk[at - 1].next)
		for (uint32_t i = 0; i < c->sessions.chunk[at - 1].count; i++) {
			struct abi_block_ref *ref = &c->sessions.chunk[at - 1].ref[i];

			if (yes && !block_alive(s->ctx, *ref))
				ref->slot = ABI_SLOT_NONE; /* it is no block, now or later */
			if (ref->slot != ABI_SLOT_NONE)
				plan_mark(s->ctx, *ref, s->tier, yes);
		}
}

static void unpin(struct core *c, struct session *s)
{
	struct pin *p = &c->pin[s->pin % CORE_PINS_MAX];

	if (s->pin && p->used && p->id == s->pin)
		pin_end(c, p);
	s->pin = 0;
}

static void let_go(struct core *c, struct session *s)
{
	if (s->r) {
		s->r->owner = NULL;
		request_abort(c, s->r, -ECANCELED);
		s->r = NULL;
	}
	unpin(c, s);
	s->landed = false;
	await(c, s, false);
	claim_expect_no_more(c, s);
	heads_keep(c, s, 0);
}

/* What was staged for nothing leaves: an abandoned session costs nothing. */
static void give_back(struct core *c, struct session *s)
{
	struct context *x = s->ctx;

	evict_drain_logs(c); /* what was read is not given back */
	for (uint32_t at = s->chunks; at; at = c->sessions.chunk[at - 1].next)
		for (uint32_t i = 0; i < c->sessions.chunk[at - 1].count; i++) {
			struct abi_block_ref ref = c->sessions.chunk[at - 1].ref[i];

			for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
				if (fetch_block_there(x, ref) &&
				    block_use(x, ref.slot)->staged[tier])
					evict_block(c, x, ref.slot, tier);
		}
	reclaim_flush(c);
}

static void forget(struct core *c, struct session *s)
{
	uint32_t index = (uint32_t)(s - c->sessions.table) + 1;
	uint32_t *link = bucket_of(c, s->ctx, s->id);
	struct client *k = &c->client[s->client];

	let_go(c, s);
	refs_free(c, s);
	while (*link != index)
		link = &c->sessions.table[*link - 1].next;
	*link = s->next;
	account_give(c, k->account, k, ACCOUNT_SESSIONS);
	s->state = SESSION_FREE;
	s->next = c->sessions.free;
	c->sessions.free = index;
	c->sessions.count--;
}

static void pin_head(struct core *c, struct session *s)
{
	const struct request *r = s->r;
	struct pin_ask ask = {
		.client = s->client,
		.tier = s->tier,
		.ctx = s->ctx,
		.deadline_ns = s->patience_ns,
		.layers = s->staged,
		.ref = (const struct abi_block_ref *)r->arg,
		.count = r->held,
	};
	int64_t blocks = r->held ? pin_take(c, &ask, &s->pin) : 0;

	if (blocks < (int64_t)r->held)
		c->metrics.claims_unprotected++;
	if (blocks <= 0)
		s->pin = 0;
}

/* From the return on all of it stays and is protected as it comes, until the turn ends. */
static void pin_turn(struct core *c, struct session *s, const struct request *r, uint64_t end_ns)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;
	struct pin_ask ask = {
		.client = s->client,
		.tier = s->tier,
		.ctx = s->ctx,
		.deadline_ns = end_ns,
		.ref = ref,
	};

	while (ask.count < s->blocks && fetch_block_there(s->ctx, ref[ask.count]))
		ask.count++;
	if (!ask.count || pin_take(c, &ask, &s->pin) <= 0)
		s->pin = 0;
}

/* The prefetch of a session's head is over. */
static void staged(struct core *c, struct request *r, uint64_t value)
{
	struct session *s = r->owner;

	if (!s)
		return;
	assert(s->r == r);
	if (s->state == SESSION_STAGING) {
		s->landed = !r->error && value && value == s->blocks && s->staged == s->head;
		if (!r->error && value)
			pin_head(c, s);
		s->state = SESSION_STAGED;
		wake_at(c, s, s->patience_ns);
	}
	s->r = NULL;
}

static struct request *transfer(struct core *c, struct session *s, uint64_t use_ns,
				uint64_t deadline_ns)
{
	struct request *r = request_own(c, s->ctx);

	if (!r)
		return NULL;
	r->sqe = (struct abi_sqe){
		.op = ABI_OP_PREFETCH,
		.klass = ABI_CLASS_SPECULATIVE,
		.context_id = s->ctx->id,
		.deadline_ns = deadline_ns,
		.count = s->blocks,
		.part_first = s->part_first,
		.part_count = s->part_count,
		.tier = s->tier,
	};
	r->account = c->client[s->client].account;
	r->use_ns = use_ns;
	r->deadline_ns = deadline_ns;
	r->foreseen = true;
	r->owner = s;
	r->ended = staged;
	refs_copy(c, s, (struct abi_block_ref *)r->arg);
	return r;
}

static void stage(struct core *c, struct session *s)
{
	struct request *r = NULL;

	assert(c->client[s->client].session == s->client_session);
	heads_keep(c, s, heads_may(c, s));
	s->staged = s->kept;
	if (s->staged && claim_may(c, c->client[s->client].account))
		r = transfer(c, s, s->use_ns, s->patience_ns);
	if (!r) {
		wake_at(c, s, c->now_ns + (s->staged ? RETRY_NS : PARK_AHEAD_NS));
		return;
	}
	r->sqe.layer_count = s->staged;
	s->r = r;
	s->state = SESSION_STAGING;
	wake_at(c, s, s->patience_ns);
	c->metrics.sessions_staged++;
	if (s->told)
		claim_expect(c, s);
	claim_take(c, r);
}

/* So much of its head is kept now: less may have been staged, then the rest comes. */
void session_kept(struct core *c, struct session *s)
{
	if (s->staged > s->kept)
		s->staged = s->kept;
	if (s->state == SESSION_STAGED && s->kept > s->staged + s->head / GROWTH_SHARE)
		wake_at(c, s, c->now_ns);
}

/* ---- the client's word -------------------------------------------------------------------- */

/* Of those of one user, the one that nobody will miss most: its patience ended first. */
static struct session *stalest(struct core *c, uint32_t account, bool with_blocks)
{
	struct session *found = NULL;

	for (uint32_t i = 0; i < c->sessions.high; i++) {
		struct session *s = &c->sessions.table[i];

		if (s->state == SESSION_FREE || c->client[s->client].account != account ||
		    (with_blocks && !s->chunks))
			continue;
		if (!found || s->patience_ns < found->patience_ns)
			found = s;
	}
	assert(found); /* who has most of them has one */
	return found;
}

/* None is left: who has most forgets a session, for those who have fewer. */
static struct session_chunk *chunk_get(struct core *c, const struct client *k, uint32_t *index)
{
	struct sessions *t = &c->sessions;

	while (!t->chunk_free && t->chunks_high == SESSION_CHUNKS) {
		uint32_t fullest = account_fullest(c, ACCOUNT_REFS);

		if (c->account[fullest].used[ACCOUNT_REFS] <=
		    c->account[k->account].used[ACCOUNT_REFS])
			return NULL;
		forget(c, stalest(c, fullest, true));
	}
	*index = t->chunk_free;
	if (*index)
		t->chunk_free = t->chunk[*index - 1].next;
	else
		*index = ++t->chunks_high;
	return &t->chunk[*index - 1];
}

/* Keep as many references from the first as the chunks have room for. */
static void refs_keep(struct core *c, struct session *s, const struct request *r)
{
	const struct abi_block_ref *ref =
		(const struct abi_block_ref *)(r->arg + sizeof(struct abi_session_args));
	struct client *owner = &c->client[r->client];
	uint32_t *link = &s->chunks;

	refs_free(c, s);
	while (s->blocks < r->sqe.count) {
		uint32_t n = r->sqe.count - s->blocks, index;
		struct session_chunk *k = chunk_get(c, owner, &index);

		if (!k)
			return;
		account_take(c, owner, ACCOUNT_REFS);
		n = n < SESSION_CHUNK_REFS ? n : SESSION_CHUNK_REFS;
		memcpy(k->ref, ref + s->blocks, n * sizeof(*ref));
		k->count = n;
		k->next = 0;
		*link = index;
		link = &k->next;
		s->blocks += n;
	}
}

static struct session *make(struct core *c, const struct request *r)
{
	struct client *k = &c->client[r->client];
	struct sessions *t = &c->sessions;
	uint32_t index;
	struct session *s;

	if (k->used[ACCOUNT_SESSIONS] >= SESSIONS_CLIENT_MAX)
		return NULL;
	if (!t->free && t->high == SESSIONS_MAX)
		forget(c, stalest(c, account_fullest(c, ACCOUNT_SESSIONS), false));
	index = t->free;
	if (index)
		t->free = t->table[index - 1].next;
	else
		index = ++t->high;
	s = &t->table[index - 1];
	*s = (struct session){
		.state = SESSION_ACTIVE,
		.client = r->client,
		.client_session = r->session,
		.ctx = r->ctx,
		.id = r->sqe.handle,
		.next = *bucket_of(c, r->ctx, r->sqe.handle),
	};
	*bucket_of(c, r->ctx, r->sqe.handle) = index;
	t->count++;
	account_take(c, k, ACCOUNT_SESSIONS);
	return s;
}

static void turn_ended(struct core *c, struct request *r, struct session *s)
{
	const struct abi_session_args *args = (const struct abi_session_args *)r->arg;
	uint64_t low, high;

	let_go(c, s);
	refs_keep(c, s, r);
	s->salt = args->salt;
	s->layer_ns = args->layer_ns;
	s->part_first = r->sqe.part_first;
	s->part_count = r->sqe.part_count;
	s->tier = r->sqe.tier;
	s->staged = 0;
	s->turn_end_ns = c->now_ns;
	think_window(c, s->ctx, s->salt, &low, &high);
	s->told = args->return_ns > c->now_ns;
	if (s->told) { /* a hint is believed, and waited for three times */
		low = args->return_ns - c->now_ns;
		high = 3 * low + HINT_SLACK_NS;
	}
	if (high > EXPIRES_MOST_NS)
		high = EXPIRES_MOST_NS;
	s->use_ns = c->now_ns + (low < high ? low : high);
	s->patience_ns = c->now_ns + high;
	s->expires_ns = s->patience_ns + (high > EXPIRES_NS ? high : EXPIRES_NS);
	s->state = SESSION_AWAY;
	s->head = heads_need(c, s);
	heads_keep(c, s, s->blocks ? s->head : 0);
	low = s->use_ns > c->now_ns + PARK_AHEAD_NS ? s->use_ns - PARK_AHEAD_NS : c->now_ns;
	wake_at(c, s, low);
	c->metrics.session_turns++;
	request_end(c, r, 0, s->blocks, 0);
}

/* Are a block's first layers READY, page by page? No more pages are looked at than *look counts. */
static bool pages_ready(const struct session *s, uint32_t slot, uint32_t layers, uint32_t *look)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint32_t parts = index_block(&s->ctx->ix, slot)->parts;

	for (uint32_t i = 0; i < g->part_count; i++) {
		uint32_t pages = heads_pages(&g->part[i], layers);

		if (!heads_reads(s, i) || !(parts >> i & 1))
			continue;
		if (*look < pages)
			return false;
		*look -= pages;
		for (uint32_t k = 0; k < pages; k++)
			if (page_state(index_page(&s->ctx->ix, slot, g->part[i].page_base + k),
				       s->tier) != ABI_PAGE_READY)
				return false;
	}
	return true;
}

/*
 * Are the first layers of all its blocks in the tier? The number of a block's pages there tells, if
 * it is whole; also of a head that has landed, for that is pinned (but blocks can be deleted, or
 * left unprotected).
 */
static bool layers_there(const struct core *c, const struct session *s, uint32_t layers)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	bool landed = s->landed && layers == s->head;
	uint32_t pages = 0, look = LOOK_PAGES;

	for (uint32_t i = 0; i < g->part_count; i++)
		pages += heads_reads(s, i) ? heads_pages(&g->part[i], layers) : 0;
	for (uint32_t at = s->chunks; at; at = c->sessions.chunk[at - 1].next)
		for (uint32_t i = 0; i < c->sessions.chunk[at - 1].count; i++) {
			struct abi_block_ref ref = c->sessions.chunk[at - 1].ref[i];
			uint32_t there, whole;

			if (!fetch_block_there(s->ctx, ref))
				return false;
			there = s->ctx->meta[ref.slot].there[s->tier].pages;
			whole = block_pages(s->ctx, ref.slot);
			assert(there <= whole);
			if (there < (landed && pages < whole ? pages : whole) &&
			    (landed || !pages_ready(s, ref.slot, layers, &look)))
				return false;
		}
	return true;
}

/* With how many layers may the turn begin? Nought: not all are there that it takes. */
static uint32_t layers_ready(const struct core *c, const struct session *s)
{
	uint32_t all = heads_layers(s);

	assert(s->head <= all);
	if (!s->blocks)
		return 0;
	if (layers_there(c, s, all))
		return all;
	return s->head && layers_there(c, s, s->head) ? s->head : 0;
}

/* The user is back: what is missing comes now, in layer order. */
static void returned(struct core *c, struct request *r, struct session *s)
{
	uint64_t last = c->now_ns + LATER_NS;
	uint32_t ready = layers_ready(c, s);
	struct request *rest;

	if (s->turn_end_ns) {
		think_learn(c, s->ctx, s->salt, c->now_ns - s->turn_end_ns);
		c->metrics.session_returns++;
		c->metrics.session_ready += ready > 0;
	}
	s->turn_end_ns = 0;
	if (s->r && s->r->parked)
		let_go(c, s);
	claim_expect_no_more(c, s);
	unpin(c, s);
	rest = s->blocks ? transfer(c, s, c->now_ns, last) : NULL;
	if (rest) {
		rest->owner = NULL;
		rest->sqe.klass = ABI_CLASS_DEMAND;
		rest->sqe.layer_first = (uint16_t)ready;
		rest->sqe.layer_count = UINT16_MAX;
		pin_turn(c, s, rest, last);
		fetch_begin(c, rest);
	}
	s->state = SESSION_ACTIVE;
	heads_keep(c, s, 0);
	await(c, s, true);
	s->expires_ns = c->now_ns + EXPIRES_MOST_NS;
	wake_at(c, s, last);
	r->status = ready ? ABI_STATUS_READY : s->blocks ? ABI_STATUS_LATE : ABI_STATUS_MISS;
	request_end(c, r, 0, s->blocks, ready);
}

void session_request(struct core *c, struct request *r)
{
	struct session *s = find(c, r->ctx, r->sqe.handle);

	const struct abi_session_args *args = (const struct abi_session_args *)r->arg;
	bool end = r->sqe.mode == ABI_SESSION_TURN_END;

	for (uint32_t i = 0; end && i < sizeof(args->reserved); i++)
		if (args->reserved[i]) {
			request_end(c, r, -EINVAL, 0, 0);
			return;
		}
	if (s && (s->client != r->client || s->client_session != r->session)) {
		request_end(c, r, -EBUSY, 0, 0); /* another connection's */
		return;
	}
	if (end) {
		if (!s)
			s = make(c, r);
		if (s)
			turn_ended(c, r, s);
		else
			request_end(c, r, -ENOBUFS, 0,
				    account_lack(c, &c->client[r->client], ACCOUNT_SESSIONS));
		return;
	}
	if (!s) {
		r->status = ABI_STATUS_MISS;
		request_end(c, r, r->sqe.mode == ABI_SESSION_RETURN ? 0 : -ENOENT, 0, 0);
	} else if (r->sqe.mode == ABI_SESSION_RETURN) {
		returned(c, r, s);
	} else {
		let_go(c, s);
		give_back(c, s);
		forget(c, s);
		request_end(c, r, 0, 0, 0);
	}
}

/* ---- time and ends ------------------------------------------------------------------------ */

static void step(struct core *c, struct session *s)
{
	if (c->now_ns >= s->expires_ns) {
		c->metrics.sessions_expired++;
		forget(c, s);
	} else if (s->state == SESSION_AWAY && c->now_ns < s->patience_ns) {
		stage(c, s);
	} else if (s->state == SESSION_STAGED && c->now_ns < s->patience_ns) {
		unpin(c, s);
		stage(c, s);
	} else if (s->state != SESSION_ACTIVE && s->state != SESSION_FADED) {
		let_go(c, s);
		give_back(c, s);
		s->state = SESSION_FADED;
		wake_at(c, s, s->expires_ns);
	} else {
		await(c, s, false); /* a turn that long is no turn */
		wake_at(c, s, s->expires_ns);
	}
}

void session_tick(struct core *c)
{
	struct sessions *t = &c->sessions;
	uint64_t next = UINT64_MAX;

	if (!t->count || c->now_ns < t->next_ns)
		return;
	for (uint32_t i = 0; i < t->high; i++) {
		struct session *s = &t->table[i];

		if (s->state != SESSION_FREE && s->wake_ns <= c->now_ns)
			step(c, s);
		if (s->state != SESSION_FREE && s->wake_ns < next)
			next = s->wake_ns;
	}
	t->next_ns = next;
}

uint64_t session_next(const struct core *c)
{
	return c->sessions.count ? c->sessions.next_ns : UINT64_MAX;
}

static void sessions_end(struct core *c, uint32_t client, const struct context *x)
{
	for (uint32_t i = 0; c->sessions.count && i < c->sessions.high; i++) {
		struct session *s = &c->sessions.table[i];

		if (s->state == SESSION_FREE || (s->client != client && s->ctx != x))
			continue;
		let_go(c, s);
		if (!s->ctx->closing)
			give_back(c, s);
		forget(c, s);
	}
}

void session_client_gone(struct core *c, uint32_t client)
{
	sessions_end(c, client, NULL);
}

void session_context_gone(struct core *c, const struct context *x)
{
	sessions_end(c, CORE_CLIENTS_MAX, x);
}
