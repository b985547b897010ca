/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit's second part: who is in which list of blocks, what pins hold, and what clients and
 * users are charged for. Like the first it recounts from the things themselves, and must not use
 * what keeps the counters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/audit/audit_priv.h"
#include "tierd/core/io/sched.h"

/* ---- lists of blocks ---------------------------------------------------------------------- */

/* Walks a list, both ways at once. Returns its blocks that may be in it. */
static uint32_t audit_list(struct audit *a, const struct block_list *list, const char *what,
			   bool (*belongs)(const struct context *x, uint32_t slot))
{
	uint32_t slot = list->head, ctx = list->head_ctx, before = ABI_SLOT_NONE, n = 0;

	for (; slot != ABI_SLOT_NONE && n <= list->count; n++) {
		const struct context *x = ctx < ABI_CONTEXTS_MAX ? a->c->context[ctx] : NULL;

		if (!x || slot >= x->ix.slots_used || x->meta[slot].prev != before ||
		    !belongs(x, slot)) {
			audit_tell(a, "%s: block %u of context %u does not belong there", what,
				   slot, ctx);
			return n;
		}
		before = slot;
		slot = x->meta[slot].next;
		ctx = x->meta[before].next_ctx;
	}
	if (n != list->count || (n && list->tail != before))
		audit_tell(a, "%s: the list has %u blocks and says %u", what, n, list->count);
	return n;
}

static bool is_pending(const struct context *x, uint32_t slot)
{
	return index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING;
}

static bool is_queued(const struct context *x, uint32_t slot)
{
	return block_queued(&x->meta[slot]);
}

static bool is_promised(const struct context *x, uint32_t slot)
{
	return is_queued(x, slot) && x->meta[slot].flags & BLOCK_DURABLE;
}

static bool is_cached(const struct context *x, uint32_t slot)
{
	return is_queued(x, slot) && !(x->meta[slot].flags & BLOCK_DURABLE);
}

static bool is_clean(const struct context *x, uint32_t slot)
{
	return x->meta[slot].persist == PERSIST_CLEAN;
}

static bool is_unretired(const struct context *x, uint32_t slot)
{
	return x->meta[slot].flags & BLOCK_UNRETIRED;
}

static bool is_leaving(const struct context *x, uint32_t slot)
{
	return x->meta[slot].flags & BLOCK_LEAVING;
}

/* Each block is in the list that its state names; none of a context with NVMe is in no state. */
static void audit_lists(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t clean = 0, listed = 0, leaving = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];
		uint32_t pending = 0, queued = 0, refused = 0;

		for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++) {
			bool there = index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED;

			pending += is_pending(x, slot);
			leaving += is_leaving(x, slot);
			queued += there && is_queued(x, slot);
			clean += there && is_clean(x, slot);
			if (there && context_has_nvme(c, x) &&
			    x->meta[slot].persist == PERSIST_NONE)
				audit_tell(a, "context %s: block %u is never written",
					   x->spec.name, slot);
			if (!there || x->meta[slot].persist != PERSIST_REFUSED)
				continue;
			refused++;
			if (x->meta[slot].there[ABI_TIER_CXL].pages != block_pages(x, slot))
				audit_tell(a, "context %s: block %u is not whole anywhere",
					   x->spec.name, slot);
		}
		if (!x)
			continue;
		audit_compare(a, audit_whose(a, x), "blocks refused for NVMe", refused, x->refused);
		audit_compare(a, audit_whose(a, x), "blocks in the pending list", pending,
			      audit_list(a, &x->pending, "pending list", is_pending));
		audit_compare(a, audit_whose(a, x), "blocks in the dirty lists", queued,
			      audit_list(a, &x->dirty[DISK_LOG_DURABLE].list, "durable dirty list",
					 is_promised) +
				      audit_list(a, &x->dirty[DISK_LOG_CACHE].list,
						 "cached dirty list", is_cached));
	}
	for (uint32_t k = 0; k < c->drives; k++)
		for (uint32_t i = 0; i < c->drive[k]->super.segment_count; i++)
			listed += audit_list(a, &c->drive[k]->segment_blocks[i],
					     "a segment's blocks", is_clean);
	audit_compare(a, "host", "blocks in segments' lists", clean, listed);
	audit_list(a, &c->dropped.unretired, "unretired", is_unretired);
	audit_compare(
		a, "host", "dropped blocks with others behind them", leaving,
		audit_list(a, &c->dropped.parents_leaving, "leaving blocks", is_leaving) +
			audit_list(a, &c->dropped.waiting, "blocks that wait to part", is_leaving));
}

/* ---- pins --------------------------------------------------------------------------------- */

/* References of a pin to blocks that are there. */
static uint64_t pin_refs(const struct pin *p)
{
	uint64_t refs = 0;

	for (const struct pin_chunk *k = p->chunk; k; k = k->next)
		for (uint32_t i = 0; i < k->count; i++)
			refs += index_block(&p->ctx->ix, k->ref[i].slot)->generation ==
				k->ref[i].generation;
	return refs;
}

/* What the blocks say of their pins: how many these are, and the bytes that they keep. */
static uint64_t block_pins(const struct context *x, uint64_t bytes[ABI_MEM_TIERS])
{
	uint64_t pins = 0;

	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
			if (index_block(&x->ix, slot)->state == ABI_BLOCK_FREE)
				continue;
			pins += block_use(x, slot)->pins[t] + block_use(x, slot)->lead_pins[t];
			bytes[t] += audit_pinned_bytes(x, slot, t);
		}
	return pins;
}

static void audit_pins(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t all[ABI_MEM_TIERS] = { 0 }, pins = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];
		uint64_t refs = 0, bytes[ABI_MEM_TIERS] = { 0 };

		if (!x)
			continue;
		for (uint32_t k = 0; k < c->pins.high; k++) {
			if (!c->pins.table[k].used || c->pins.table[k].ctx != x)
				continue;
			refs += pin_refs(&c->pins.table[k]);
			pins++;
		}
		audit_compare(a, audit_whose(a, x), "pins of blocks", refs, block_pins(x, bytes));
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
			audit_compare(a, audit_whose(a, x), "pinned bytes", bytes[t],
				      x->pinned[t]);
			all[t] += bytes[t];
		}
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		audit_compare(a, "host", "pinned bytes", all[t], c->pins.bytes[t]);
	audit_compare(a, "host", "pins", pins, c->pins.count);
}

/* ---- accounts ----------------------------------------------------------------------------- */

/* Entries of the tables that all share. */
struct charges {
	uint64_t used[ACCOUNT_KINDS];
	uint64_t connections; /* of a user */
	uint64_t lent[ABI_MEM_TIERS];
};

struct charged {
	struct charges *user, *client;
};

/* client: only while its connection is the one that took it. */
static void charge(const struct core *c, struct charged *n, uint32_t account, uint32_t client,
		   enum account_kind kind)
{
	if (account < c->accounts.high)
		n->user[account].used[kind]++;
	if (client < c->clients_high)
		n->client[client].used[kind]++;
}

/* Of tables whose entries end with the connection that took them. */
static void charge_client(const struct core *c, struct charged *n, uint32_t client,
			  enum account_kind kind)
{
	charge(c, n, c->client[client].account, client, kind);
}

static void count_foresight(const struct core *c, struct charged *n)
{
	for (uint32_t i = 0; i < PLANS_MAX; i++)
		if (c->plans.table[i].ctx && !c->plans.table[i].ended)
			charge_client(c, n, c->plans.table[i].client, ACCOUNT_PLANS);
	for (uint32_t i = 0; i < c->reserve.high; i++)
		if (c->reserve.table[i].used)
			charge_client(c, n, c->reserve.table[i].client, ACCOUNT_RESERVATIONS);
	for (uint32_t i = 0; i < c->streams.high; i++) {
		const struct stream *s = &c->streams.table[i];

		if (s->used)
			charge(c, n, s->account,
			       c->client[s->client].connection == s->connection ? s->client
										: UINT32_MAX,
			       ACCOUNT_STREAMS);
	}
	for (uint32_t i = 0; i < c->conversations.high; i++) {
		const struct conversation *s = &c->conversations.table[i];

		if (s->state == CONVERSATION_FREE)
			continue;
		charge_client(c, n, s->client, ACCOUNT_CONVERSATIONS);
		for (uint32_t at = s->chunks; at; at = c->conversations.chunk[at - 1].next)
			charge_client(c, n, s->client, ACCOUNT_REFS);
	}
}

static void count_lends(const struct core *c, struct charged *n)
{
	for (uint32_t i = 0; i < c->clients_high; i++)
		for (uint32_t at = c->evict.lends.to[i].first, tier; at; at = lend_next(c, at)) {
			uint64_t bytes = lend_of_others(c, at, &tier);

			charge_client(c, n, i, ACCOUNT_LENDS);
			if (bytes && c->client[i].account < c->accounts.high)
				n->user[c->client[i].account].lent[tier] += bytes;
		}
}

static void count_charges(const struct core *c, struct charged *n)
{
	for (uint32_t i = 0; i < CORE_REQUESTS_MAX; i++) {
		const struct request *r = &c->requests.table[i];
		const struct put *p = &c->puts.table[i];
		bool own = r->client == SCHED_DAEMON; /* the core's, for a user */
		bool there = !own && c->client[r->client].connection == r->connection;

		if (r->phase != REQUEST_FREE && (!own || r->charged))
			charge(c, n, r->account, there ? r->client : UINT32_MAX, ACCOUNT_REQUESTS);
		if (r->phase != REQUEST_FREE && r->parked)
			charge(c, n, r->account, there ? r->client : UINT32_MAX, ACCOUNT_PARKED);
		if (p->used)
			charge(c, n, p->account, p->client, ACCOUNT_PUTS);
	}
	for (uint32_t i = 0; i < c->pins.high; i++) {
		const struct pin *p = &c->pins.table[i];
		if (!p->used)
			continue;
		charge_client(c, n, p->client, ACCOUNT_PINS);
		for (const struct pin_chunk *k = p->chunk; k; k = k->next)
			charge_client(c, n, p->client, ACCOUNT_PIN_CHUNKS);
	}
	count_foresight(c, n);
	count_lends(c, n);
	for (uint32_t i = 0; i < c->clients_high; i++)
		if (c->client[i].state && c->client[i].account < c->accounts.high)
			n->user[c->client[i].account].connections++;
}

static void compare_charges(struct audit *a, const struct charged *n)
{
	const struct core *c = a->c;
	char whose[32];

	for (uint32_t i = 0; i < c->accounts.high; i++) {
		snprintf(whose, sizeof(whose), "user %u", c->accounts.table[i].uid);
		audit_compare(a, whose, "connections", n->user[i].connections,
			      c->accounts.table[i].connections);
		for (uint32_t kind = 0; kind < ACCOUNT_KINDS; kind++)
			audit_compare(a, whose, "entries of a shared table", n->user[i].used[kind],
				      c->accounts.table[i].used[kind]);
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
			audit_compare(a, whose, "bytes of others in devices", n->user[i].lent[t],
				      c->accounts.table[i].lent[t]);
	}
	for (uint32_t i = 0; i < c->clients_high; i++) {
		snprintf(whose, sizeof(whose), "client %u", i);
		for (uint32_t kind = 0; c->client[i].state == 1 && kind < ACCOUNT_KINDS; kind++)
			audit_compare(a, whose, "entries of a shared table",
				      n->client[i].used[kind], c->client[i].used[kind]);
	}
}

static void audit_accounts(struct audit *a)
{
	struct charged n = {
		.user = calloc(a->c->accounts.high + (size_t)1, sizeof(*n.user)),
		.client = calloc(a->c->clients_high + (size_t)1, sizeof(*n.client)),
	};

	if (n.user && n.client) {
		count_charges(a->c, &n);
		compare_charges(a, &n);
	} else {
		audit_tell(a, "out of memory for the recount");
	}
	free(n.user);
	free(n.client);
}

/* What else clients have so many of at most: a count that is not given back locks one out. */
static void audit_client(struct audit *a, uint32_t client)
{
	const struct client *k = &a->c->client[client];
	uint64_t orders = 0;
	char whose[32];

	for (uint32_t i = 0; i < a->c->requests.high; i++) {
		const struct request *r = &a->c->requests.table[i];

		if (r->phase == REQUEST_FREE || r->client != client ||
		    r->connection != k->connection)
			continue;
		orders += r->phase == REQUEST_ORDER;
	}
	snprintf(whose, sizeof(whose), "client %u", client);
	audit_compare(a, whose, "orders that wait", orders,
		      a->c->requests.orders[client]);
}

/* Who waits for room is in the one queue that is woken, and that ends where it says. */
static void audit_waiting(struct audit *a)
{
	const struct request *tail = NULL;
	uint64_t listed = 0, waiting = 0;

	for (const struct request *r = a->c->queues.space_head; r && listed <= CORE_REQUESTS_MAX;
	     r = r->next, listed++)
		tail = r;
	for (uint32_t i = 0; i < a->c->requests.high; i++)
		waiting += a->c->requests.table[i].phase == REQUEST_SPACE;
	audit_compare(a, "host", "requests that wait for room", listed, waiting);
	if (tail != a->c->queues.space_tail)
		audit_tell(a, "the queue of those who wait for room does not end with its tail");
}

void audit_held(struct audit *a)
{
	audit_lists(a);
	audit_pins(a);
	audit_accounts(a);
	audit_waiting(a);
	for (uint32_t i = 0; i < a->c->clients_high; i++)
		if (a->c->client[i].state == 1)
			audit_client(a, i);
}
