/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations: see conversation.h for what they are. This file keeps the table, decides what of a
 * conversation is staged and when, and answers the client. The transfers are prefetches of the
 * core's own, parked like anybody else's, of the speculative class; what came is pinned
 * (lead layers only: lead.c) until patience ends, and is then given back unread.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define PARK_AHEAD_NS (500 * MS) /* of the estimated return: then it is parked */
#define RETRY_NS (10 * MS)
#define GROWTH_SHARE 8u          /* of a lead: less is not brought for itself */
#define LATER_NS (20000 * MS)    /* an expected read after the return */
#define HINT_SLACK_NS (1000 * MS)
#define EXPIRES_NS (60000 * MS)  /* at the earliest, after the end of patience */
#define EXPIRES_MOST_NS (3600000 * MS)
#define LOOK_PAGES 65536u        /* at the return, of blocks that are there in part */

/* ---- table -------------------------------------------------------------------------------- */

int conversations_open(struct core *c)
{
	c->conversations.table =
		cold_alloc(c, CONVERSATIONS_MAX, sizeof(*c->conversations.table));
	c->conversations.chunk =
		cold_alloc(c, CONVERSATION_CHUNKS, sizeof(*c->conversations.chunk));
	c->conversations.tenant = calloc(THINK_TENANTS, sizeof(*c->conversations.tenant));
	c->conversations.next_ns = UINT64_MAX;
	return c->conversations.table && c->conversations.chunk && c->conversations.tenant
		       ? 0 : -ENOMEM;
}

void conversations_close(struct core *c)
{
	cold_free(c, c->conversations.table);
	cold_free(c, c->conversations.chunk);
	free(c->conversations.tenant);
}

static uint32_t *bucket_of(struct core *c, const struct context *x, uint64_t id)
{
	uint64_t hash = (id ^ (uint64_t)x->id << 32) * 0x9e3779b97f4a7c15ull;

	return &c->conversations.bucket[(hash >> 32) % CONVERSATION_BUCKETS];
}

static struct conversation *find(struct core *c, const struct context *x, uint64_t id)
{
	uint32_t at = *bucket_of(c, x, id);

	for (; at; at = c->conversations.table[at - 1].next) {
		struct conversation *s = &c->conversations.table[at - 1];

		if (s->ctx == x && s->id == id)
			return s;
	}
	return NULL;
}

static void refs_free(struct core *c, struct conversation *s)
{
	struct client *owner = &c->client[s->client];

	assert(owner->connection == s->client_connection && !s->await.to && !s->leads.to);
	while (s->chunks) {
		meter_charge(&c->meter, 1);
		struct conversation_chunk *k = &c->conversations.chunk[s->chunks - 1];
		uint32_t next = k->next;

		k->next = c->conversations.chunk_free;
		c->conversations.chunk_free = s->chunks;
		s->chunks = next;
		account_give(c, owner->account, owner, ACCOUNT_REFS);
	}
	s->blocks = 0;
}

static void refs_copy(struct core *c, const struct conversation *s, struct abi_block_ref *to)
{
	for (uint32_t at = s->chunks; at; at = c->conversations.chunk[at - 1].next) {
		const struct conversation_chunk *k = &c->conversations.chunk[at - 1];

		meter_charge(&c->meter, 1);
		memcpy(to, k->ref, k->count * sizeof(*to));
		to += k->count;
	}
}

/* ---- staging ------------------------------------------------------------------------------ */

static void wake_at(struct core *c, struct conversation *s, uint64_t ns)
{
	s->wake_ns = ns;
	if (ns < c->conversations.next_ns)
		c->conversations.next_ns = ns;
}

static void unpin(struct core *c, struct conversation *s)
{
	pin_drop(c, s->pin);
	s->pin = 0;
}

/* What the last return brings is for a client, and ends with its conversation. */
static void rest_end(struct core *c, struct conversation *s)
{
	struct request *r = s->rest;

	s->rest = NULL;
	if (!r)
		return;
	r->owner = NULL;
	request_abort(c, r, -ECONNRESET);
}

static void let_go(struct core *c, struct conversation *s)
{
	if (s->r) {
		s->r->owner = NULL;
		request_abort(c, s->r, -ECANCELED);
		s->r = NULL;
	}
	unpin(c, s);
	s->landed = false;
	conversation_await(c, s, false);
	lead_keep(c, s, 0);
}

/* What was staged for nothing leaves, but for what was read. */
static void give_back(struct core *c, struct conversation *s)
{
	evict_drain_logs(c);
	s->gives = true;
	s->given = 0;
	conversation_settle(c, s);
}

/* Nothing of it is left but its place and what it names. */
static void end(struct core *c, struct conversation *s)
{
	uint32_t index = (uint32_t)(s - c->conversations.table) + 1;
	struct client *k = &c->client[s->client];

	assert(!s->unsettled);
	refs_free(c, s);
	account_give(c, k->account, k, ACCOUNT_CONVERSATIONS);
	s->state = CONVERSATION_FREE;
	s->next = c->conversations.free;
	c->conversations.free = index;
	c->conversations.count--;
	c->conversations.going--;
}

/* Nobody finds it any more; its place is free once all is settled. */
static void forget(struct core *c, struct conversation *s)
{
	uint32_t index = (uint32_t)(s - c->conversations.table) + 1;
	uint32_t *link = bucket_of(c, s->ctx, s->id);

	let_go(c, s);
	rest_end(c, s);
	while (*link != index)
		link = &c->conversations.table[*link - 1].next;
	*link = s->next;
	s->state = CONVERSATION_GONE;
	c->conversations.going++;
	if (!s->unsettled)
		end(c, s);
}

void conversation_work(struct core *c)
{
	while (c->conversations.unsettled && !meter_spent(&c->meter)) {
		struct conversation *s = &c->conversations.table[c->conversations.unsettled - 1];
		uint32_t next = s->next_unsettled;

		if (!conversation_settle(c, s))
			continue;
		c->conversations.unsettled = next;
		s->unsettled = false;
		if (s->state == CONVERSATION_GONE)
			end(c, s);
	}
}

/* The prefetch of a conversation's lead is over. */
static void staged(struct core *c, struct request *r, uint64_t value)
{
	struct conversation *s = r->owner;

	if (!s) {
		pin_drop(c, r->pin);
		return;
	}
	assert(s->r == r);
	if (s->state == CONVERSATION_STAGING) {
		s->landed = !r->error && value && value == s->blocks && s->staged == s->lead;
		s->pin = r->pin; /* of its lead */
		s->state = CONVERSATION_STAGED;
		wake_at(c, s, s->patience_ns);
	} else {
		pin_drop(c, r->pin);
	}
	s->r = NULL;
}

static struct request *transfer(struct core *c, struct conversation *s, uint64_t use_ns,
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

static void stage(struct core *c, struct conversation *s)
{
	struct request *r = NULL;

	assert(c->client[s->client].connection == s->client_connection);
	assert(s->lead <= lead_layers(s));
	lead_keep(c, s, lead_may(c, s));
	s->staged = s->kept;
	if (s->staged && park_may(c, c->client[s->client].account))
		r = transfer(c, s, s->use_ns, s->patience_ns);
	if (!r) {
		wake_at(c, s, c->now_ns + (s->staged ? RETRY_NS : PARK_AHEAD_NS));
		return;
	}
	r->sqe.layer_count = s->staged;
	r->guard = true;
	r->guard_client = s->client;
	r->guard_layers = s->staged;
	r->guard_ns = s->patience_ns;
	s->r = r;
	s->state = CONVERSATION_STAGING;
	wake_at(c, s, s->patience_ns);
	c->metrics.conversations_staged++;
	if (s->told)
		r->behind_bytes = lead_bytes(s, lead_layers(s)) - lead_bytes(s, s->lead);
	park_take(c, r);
}

/* So much of its lead is kept now: less may have been staged, then the rest comes. */
void conversation_kept(struct core *c, struct conversation *s)
{
	if (s->staged > s->kept)
		s->staged = s->kept;
	if (s->state == CONVERSATION_STAGED && s->kept > s->staged + s->lead / GROWTH_SHARE)
		wake_at(c, s, c->now_ns);
}

/* ---- the client's word -------------------------------------------------------------------- */

/* Of those of one user, the one that nobody will miss most: its patience ended first. */
static struct conversation *stalest(struct core *c, uint32_t account, bool with_blocks)
{
	struct conversation *found = NULL;

	meter_charge_table(&c->meter, c->conversations.high);
	for (uint32_t i = 0; i < c->conversations.high; i++) {
		struct conversation *s = &c->conversations.table[i];

		if (conversation_gone(s) || c->client[s->client].account != account ||
		    (with_blocks && !s->chunks))
			continue;
		if (!found || s->patience_ns < found->patience_ns)
			found = s;
	}
	assert(found); /* who has most of them has one */
	return found;
}

/*
 * None is left: who has most forgets a conversation, for those who have fewer. 0, -ENOBUFS, or
 * -EINPROGRESS: one that is forgotten has not let go of all yet.
 */
static int chunk_get(struct core *c, const struct client *k, uint32_t *index)
{
	struct conversations *t = &c->conversations;

	while (!t->chunk_free && t->chunks_high == CONVERSATION_CHUNKS) {
		uint32_t fullest = account_fullest(c, ACCOUNT_REFS);

		if (t->going || meter_spent(&c->meter))
			return -EINPROGRESS;
		if (c->accounts.table[fullest].used[ACCOUNT_REFS] <=
		    c->accounts.table[k->account].used[ACCOUNT_REFS])
			return -ENOBUFS;
		forget(c, stalest(c, fullest, true));
	}
	*index = t->chunk_free;
	if (*index)
		t->chunk_free = t->chunk[*index - 1].next;
	else
		*index = ++t->chunks_high;
	meter_charge(&c->meter, 1);
	return 0;
}

/*
 * Keep as many references from the first as the chunks have room for. False: there will be more
 * room, or marks of the old ones are still to be withdrawn.
 */
static bool refs_keep(struct core *c, struct conversation *s, const struct request *r)
{
	const struct abi_block_ref *ref =
		(const struct abi_block_ref *)(r->arg + sizeof(struct abi_conversation_args));
	struct client *owner = &c->client[r->client];
	uint32_t *link = &s->chunks;

	if (s->await.to || s->leads.to)
		return false;
	refs_free(c, s);
	while (s->blocks < r->sqe.count) {
		uint32_t n = r->sqe.count - s->blocks, index;
		int err = chunk_get(c, owner, &index);
		struct conversation_chunk *k = &c->conversations.chunk[index - 1];

		if (err)
			return err != -EINPROGRESS;
		account_take(c, owner, ACCOUNT_REFS);
		n = n < CONVERSATION_CHUNK_REFS ? n : CONVERSATION_CHUNK_REFS;
		memcpy(k->ref, ref + s->blocks, n * sizeof(*ref));
		k->count = n;
		k->next = 0;
		*link = index;
		link = &k->next;
		s->blocks += n;
	}
	return true;
}

/* NULL: it has as many as it may, or *comes: a place will be free. */
static struct conversation *make(struct core *c, const struct request *r, bool *comes)
{
	struct client *k = &c->client[r->client];
	struct conversations *t = &c->conversations;
	uint32_t index;
	struct conversation *s;

	*comes = false;
	if (k->used[ACCOUNT_CONVERSATIONS] >= CONVERSATIONS_CLIENT_MAX)
		return NULL;
	if (!t->free && t->high == CONVERSATIONS_MAX && !t->going)
		forget(c, stalest(c, account_fullest(c, ACCOUNT_CONVERSATIONS), false));
	*comes = !t->free && t->high == CONVERSATIONS_MAX;
	if (*comes)
		return NULL;
	index = t->free;
	if (index)
		t->free = t->table[index - 1].next;
	else
		index = ++t->high;
	s = &t->table[index - 1];
	*s = (struct conversation){
		.state = CONVERSATION_ACTIVE,
		.client = r->client,
		.client_connection = r->connection,
		.ctx = r->ctx,
		.id = r->sqe.handle,
		.next = *bucket_of(c, r->ctx, r->sqe.handle),
	};
	*bucket_of(c, r->ctx, r->sqe.handle) = index;
	t->count++;
	account_take(c, k, ACCOUNT_CONVERSATIONS);
	return s;
}

static void turn_ended(struct core *c, struct request *r, struct conversation *s)
{
	const struct abi_conversation_args *args = (const struct abi_conversation_args *)r->arg;
	uint64_t low, high;

	let_go(c, s);
	s->gives = false; /* what was to be given back is perhaps named again */
	s->given = 0;
	if (!refs_keep(c, s, r)) {
		request_go_on(c, r);
		return;
	}
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
	s->state = CONVERSATION_AWAY;
	s->lead = lead_need(c, s);
	lead_keep(c, s, s->blocks ? s->lead : 0);
	low = s->use_ns > c->now_ns + PARK_AHEAD_NS ? s->use_ns - PARK_AHEAD_NS : c->now_ns;
	wake_at(c, s, low);
	c->metrics.conversation_turns++;
	request_end(c, r, 0, s->blocks, 0);
}

/*
 * Are a block's first layers READY, page by page, from r->counting on? No more than LOOK_PAGES are
 * looked at for all blocks. 1, 0, or -EINPROGRESS.
 */
static int pages_ready(struct core *c, const struct conversation *s, struct request *r,
		       uint32_t slot, uint32_t layers)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	uint32_t parts = index_block(&s->ctx->ix, slot)->parts, base = 0;

	for (uint32_t i = 0; i < g->part_count; i++) {
		uint32_t pages = lead_pages(&g->part[i], layers);

		if (!lead_reads(s, i) || !(parts >> i & 1))
			continue;
		if (r->counting == base && r->usable + pages > LOOK_PAGES)
			return 0;
		r->usable += r->counting == base ? pages : 0;
		for (; r->counting < base + pages; r->counting++) {
			uint32_t page = g->part[i].page_base + r->counting - base;

			if (meter_spent(&c->meter))
				return -EINPROGRESS;
			meter_charge(&c->meter, 1);
			if (page_state(index_page(&s->ctx->ix, slot, page), s->tier) !=
			    ABI_PAGE_READY)
				return 0;
		}
		base += pages;
	}
	r->counting = 0;
	return 1;
}

/* Of one block: its number of pages there tells, if that is enough of them. As pages_ready. */
static int block_there(struct core *c, const struct conversation *s, struct request *r,
		       struct abi_block_ref ref, uint32_t layers)
{
	const struct abi_geometry *g = context_geometry(s->ctx);
	bool landed = s->landed && layers == s->lead;
	uint32_t there, whole, pages = 0;

	if (!fetch_block_there(s->ctx, ref))
		return 0;
	for (uint32_t i = 0; landed && i < g->part_count; i++)
		pages += lead_reads(s, i) ? lead_pages(&g->part[i], layers) : 0;
	there = s->ctx->meta[ref.slot].there[s->tier].pages;
	whole = block_pages(s->ctx, ref.slot);
	assert(there <= whole);
	if (there >= (landed && pages < whole ? pages : whole))
		return 1;
	return landed ? 0 : pages_ready(c, s, r, ref.slot, layers);
}

/*
 * Are the first layers of all its blocks in the tier? The number of a block's pages there tells, if
 * it is whole; also of a lead that has landed, for that is pinned (but blocks can be deleted, or
 * left unprotected). 1, 0, or -EINPROGRESS.
 */
static int layers_there(struct core *c, const struct conversation *s, struct request *r,
			uint32_t layers)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;

	for (; r->cursor < r->sqe.count; r->cursor++) {
		int there;

		if (meter_spent(&c->meter))
			return -EINPROGRESS;
		meter_charge(&c->meter, 1);
		there = block_there(c, s, r, ref[r->cursor], layers);
		if (there <= 0)
			return there;
	}
	return 1;
}

/* Where a return is: with how many layers may the turn begin? All of them, its lead, or none. */
enum { LOOK_BEGINS, LOOK_ALL, LOOK_LEAD, LOOK_PINS };

static void look_at(struct request *r, uint32_t what)
{
	r->built = what;
	r->cursor = r->counting = r->usable = 0;
}

/* r->stripe: with how many layers; none: not all are there that it takes. False: not known yet. */
static bool layers_ready(struct core *c, const struct conversation *s, struct request *r)
{
	uint32_t layers = r->built == LOOK_ALL ? lead_layers(s) : s->lead;
	int there = 0;

	assert(s->lead <= lead_layers(s));
	if (r->sqe.count && layers)
		there = layers_there(c, s, r, layers);
	if (there < 0)
		return false;
	if (!there && r->built == LOOK_ALL) {
		look_at(r, LOOK_LEAD);
		return layers_ready(c, s, r);
	}
	r->stripe = there ? layers : 0;
	look_at(r, LOOK_PINS);
	return true;
}

/* From the return on all of it stays and is protected as it comes, until the turn ends. */
static bool pin_turn(struct core *c, struct conversation *s, struct request *r)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;
	struct pin_ask ask = {
		.client = s->client,
		.tier = s->tier,
		.ctx = s->ctx,
		.deadline_ns = c->now_ns + LATER_NS,
		.ref = ref,
		.id = r->pin,
		.at = r->protected_blocks,
	};

	for (; r->cursor < r->sqe.count && !meter_spent(&c->meter); r->cursor++) {
		meter_charge(&c->meter, 1);
		if (!fetch_block_there(s->ctx, ref[r->cursor]))
			break;
	}
	ask.count = r->cursor;
	if (ask.count < r->sqe.count && meter_spent(&c->meter))
		return false;
	if (ask.count && pin_take(c, &ask) == -EINPROGRESS) {
		r->pin = ask.id;
		r->protected_blocks = ask.at;
		return false;
	}
	r->pin = ask.id;
	return true;
}

/* What is behind the lead, or all of it, has come or will not. */
static void rest_over(struct core *c, struct request *r, uint64_t value)
{
	struct conversation *s = r->owner;

	(void)c;
	(void)value;
	if (s)
		s->rest = NULL;
}

/* What is missing comes now, in layer order: for its client, and no longer than that. */
static void rest_begin(struct core *c, struct conversation *s, uint32_t ready)
{
	uint32_t account = c->client[s->client].account;
	struct request *rest = NULL;

	rest_end(c, s);
	if (s->blocks && account_user_may(c, account, ACCOUNT_REQUESTS))
		rest = transfer(c, s, c->now_ns, c->now_ns + LATER_NS);
	if (!rest) {
		unpin(c, s);
		return;
	}
	rest->charged = true;
	account_take_for(c, account, ACCOUNT_REQUESTS);
	rest->ended = rest_over;
	rest->sqe.klass = ABI_CLASS_DEMAND;
	rest->sqe.layer_first = (uint16_t)ready;
	rest->sqe.layer_count = UINT16_MAX;
	s->rest = rest;
	fetch_begin(c, rest);
}

static void return_begins(struct core *c, struct request *r, struct conversation *s)
{
	refs_copy(c, s, (struct abi_block_ref *)r->arg); /* it has none of its own */
	r->sqe.count = s->blocks;
	look_at(r, LOOK_ALL);
}

/* The user is back. */
static void returned(struct core *c, struct request *r, struct conversation *s)
{
	bool first = r->built < LOOK_PINS;

	if (r->built == LOOK_BEGINS)
		return_begins(c, r, s);
	if (first && !layers_ready(c, s, r)) {
		request_go_on(c, r);
		return;
	}
	if (first) {
		if (s->turn_end_ns) {
			think_learn(c, s->ctx, s->salt, c->now_ns - s->turn_end_ns);
			c->metrics.conversation_returns++;
			c->metrics.conversation_ready += r->stripe > 0;
		}
		s->turn_end_ns = 0;
		if (s->r && s->r->parked)
			let_go(c, s);
		unpin(c, s);
	}
	if (!pin_turn(c, s, r)) {
		request_go_on(c, r);
		return;
	}
	s->pin = r->pin;
	rest_begin(c, s, r->stripe);
	s->state = CONVERSATION_ACTIVE;
	lead_keep(c, s, 0);
	conversation_await(c, s, true);
	s->expires_ns = c->now_ns + EXPIRES_MOST_NS;
	wake_at(c, s, c->now_ns + LATER_NS);
	r->status = r->stripe ? ABI_STATUS_READY : s->blocks ? ABI_STATUS_LATE : ABI_STATUS_MISS;
	request_end(c, r, 0, s->blocks, r->stripe);
}

static void turn_end(struct core *c, struct request *r, struct conversation *s)
{
	bool comes = false;

	if (!s)
		s = make(c, r, &comes);
	if (s)
		turn_ended(c, r, s);
	else if (comes)
		request_go_on(c, r);
	else
		request_end(c, r, -ENOBUFS, 0,
			    account_lack(c, &c->client[r->client], ACCOUNT_CONVERSATIONS));
}

static int conversation_check(const struct request *r, const struct conversation *s)
{
	const struct abi_conversation_args *args = (const struct abi_conversation_args *)r->arg;

	if (r->error)
		return r->error;
	for (uint32_t i = 0; r->sqe.mode == ABI_CONVERSATION_TURN_END && i < sizeof(args->reserved);
	     i++)
		if (args->reserved[i])
			return -EINVAL;
	if (s && (s->client != r->client || s->client_connection != r->connection))
		return -EBUSY; /* another connection's */
	return 0;
}

/* From the beginning, each time: what it waited for may have ended otherwise. */
static void conversation_request(struct core *c, struct request *r)
{
	struct conversation *s = find(c, r->ctx, r->sqe.handle);
	int err = conversation_check(r, s);

	r->phase = REQUEST_RUN;
	if (err || (!s && r->sqe.mode != ABI_CONVERSATION_TURN_END)) {
		pin_drop(c, r->pin);
		r->status = err ? r->status : ABI_STATUS_MISS;
		if (!err && r->sqe.mode != ABI_CONVERSATION_RETURN)
			err = -ENOENT;
		request_end(c, r, err, 0, 0);
	} else if (r->sqe.mode == ABI_CONVERSATION_TURN_END) {
		turn_end(c, r, s);
	} else if (r->sqe.mode == ABI_CONVERSATION_RETURN) {
		returned(c, r, s);
	} else {
		let_go(c, s);
		give_back(c, s);
		forget(c, s);
		request_end(c, r, 0, 0, 0);
	}
}

/* ---- time and ends ------------------------------------------------------------------------ */

static void step(struct core *c, struct conversation *s)
{
	if (c->now_ns >= s->expires_ns) {
		c->metrics.conversations_expired++;
		forget(c, s);
	} else if (s->state == CONVERSATION_AWAY && c->now_ns < s->patience_ns) {
		stage(c, s);
	} else if (s->state == CONVERSATION_STAGED && c->now_ns < s->patience_ns) {
		unpin(c, s);
		stage(c, s);
	} else if (s->state != CONVERSATION_ACTIVE && s->state != CONVERSATION_FADED) {
		let_go(c, s);
		give_back(c, s);
		s->state = CONVERSATION_FADED;
		wake_at(c, s, s->expires_ns);
	} else {
		conversation_await(c, s, false); /* a turn that long is no turn */
		wake_at(c, s, s->expires_ns);
	}
}

void conversation_tick(struct core *c)
{
	struct conversations *t = &c->conversations;
	uint64_t next = UINT64_MAX;

	if (!t->count || c->now_ns < t->next_ns)
		return;
	meter_charge_table(&c->meter, t->high);
	for (uint32_t i = 0; i < t->high; i++) {
		struct conversation *s = &t->table[i];

		/* With its context it goes, by conversation_leave, and begins nothing before. */
		if (conversation_gone(s) || s->ctx->closing)
			continue;
		if (s->wake_ns <= c->now_ns && !meter_spent(&c->meter))
			step(c, s);
		if (!conversation_gone(s) && s->wake_ns < next)
			next = s->wake_ns;
	}
	t->next_ns = next;
}

uint64_t conversation_next(const struct core *c)
{
	if (c->conversations.unsettled)
		return c->now_ns;
	return c->conversations.count ? c->conversations.next_ns : UINT64_MAX;
}

/* Those of one client (its end) or one context (its removal). False: not all of them yet. */
bool conversation_leave(struct core *c, uint32_t client, const struct context *x,
			struct meter_pass *pass)
{
	for (; c->conversations.count && pass->at < c->conversations.high; pass->at++) {
		struct conversation *s = &c->conversations.table[pass->at];

		if (meter_spent(&c->meter))
			return false;
		meter_charge_table(&c->meter, pass->at % 8 == 0);
		if (s->state == CONVERSATION_FREE || (s->client != client && s->ctx != x))
			continue;
		if (s->state != CONVERSATION_GONE) {
			let_go(c, s);
			if (!s->ctx->closing)
				give_back(c, s);
			forget(c, s);
		}
		pass->met |= s->state != CONVERSATION_FREE;
	}
	return meter_pass_over(pass);
}

static bool conversation_fits(const struct abi_sqe *q)
{
	return !q->flags && q->mode >= ABI_CONVERSATION_TURN_END &&
	       q->mode <= ABI_CONVERSATION_CLOSE && !q->layer_count;
}

static uint64_t conversation_bytes(const struct abi_sqe *q)
{
	return q->mode == ABI_CONVERSATION_TURN_END
		       ? sizeof(struct abi_conversation_args) + op_blocks_bytes(q)
		       : 0;
}

const struct op_ops op_session = {
	.name = "conversation",
	.tiers = ABI_MEM_TIERS,
	.fits = conversation_fits,
	.context = true,
	.arg_bytes = conversation_bytes,
	.begin = conversation_request,
	.step = conversation_request,
};
