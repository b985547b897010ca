/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: counted claims that blocks stay at a tier or above, with an owner, a deadline and a budget.
 * A pin never moves data: what is not there yet is protected once it comes. Its id is a plain
 * number that any client with the context open may use; the owner's end ends it.
 *
 * Budgets of a tier, a context and a salt are of memory: what several pins hold is charged to them
 * once, from the first to the last of these, and no longer than the block lives. A client's counts
 * what it asked for: each of its pins, whatever others hold.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

/* Chunks and pins are handed out from the untouched end of their array, then from free lists. */
static struct pin_chunk *chunk_get(struct core *c)
{
	struct pin_chunk *k = c->chunk_free;

	if (k)
		c->chunk_free = k->next;
	else if (c->chunks_high < CORE_PIN_CHUNKS)
		k = &c->chunk[c->chunks_high++];
	if (k) {
		k->next = NULL;
		k->count = 0;
	}
	return k;
}

static struct pin *pin_get(struct core *c, uint32_t client)
{
	struct pin *p = NULL;

	if (c->pin_free != ABI_SLOT_NONE) {
		p = &c->pin[c->pin_free];
		c->pin_free = p->next_free;
	} else if (c->pins_high < CORE_PINS_MAX) {
		p = &c->pin[c->pins_high++];
	}
	if (p) {
		memset(p, 0, sizeof(*p));
		p->used = true;
		p->client = client;
		p->owner = c->client[client].owner;
		account_take(c, &c->client[client], ACCOUNT_PINS);
		c->pins++;
	}
	return p;
}

/* Bytes of a block that its pins keep in a tier, however many they are. */
static uint64_t kept_bytes(const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_use *use = block_use(x, slot);

	if (use->pins[tier])
		return block_bytes(x, slot);
	return use->head_pins[tier] ? pin_block_bytes(x, slot, use->head_layers[tier]) : 0;
}

/* Its pins have changed: it was charged with so many bytes before. */
static void charge_anew(struct core *c, struct context *x, uint32_t slot, uint32_t tier,
			uint64_t before)
{
	uint64_t now = kept_bytes(x, slot, tier);

	assert(x->pinned[tier] >= before && c->pinned[tier] >= x->pinned[tier]);
	x->pinned[tier] += now - before; /* modulo 2^64 */
	c->pinned[tier] += now - before;
	ledger_unpin(&x->salts, block_account(x, slot), tier, before);
	ledger_pin(&x->salts, block_account(x, slot), tier, now);
}

/* The block leaves the service: those who pinned it have nothing of it any more. */
void pin_lost(struct core *c, struct context *x, uint32_t slot)
{
	struct block_use *use = block_use_make(x, slot);

	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		uint64_t before = kept_bytes(x, slot, tier);

		use->pins[tier] = use->head_pins[tier] = use->head_layers[tier] = 0;
		charge_anew(c, x, slot, tier, before);
	}
}

static void unpin_block(struct core *c, struct pin *p, struct abi_block_ref ref)
{
	struct block_use *use;
	uint64_t before;

	/* A slot whose block went has a new generation and no pins of ours left. */
	if (index_block(&p->ctx->ix, ref.slot)->generation != ref.generation)
		return;
	before = kept_bytes(p->ctx, ref.slot, p->tier);
	use = block_use_make(p->ctx, ref.slot);
	if (p->layers) {
		assert(use->head_pins[p->tier] > 0);
		if (!--use->head_pins[p->tier])
			use->head_layers[p->tier] = 0;
	} else {
		assert(use->pins[p->tier] > 0);
		use->pins[p->tier]--;
	}
	charge_anew(c, p->ctx, ref.slot, p->tier, before);
	block_use_settle(p->ctx, ref.slot);
}

void pin_end(struct core *c, struct pin *p)
{
	struct client *owner = &c->client[p->client];

	assert(p->used && c->pins > 0);
	while (p->chunk) {
		struct pin_chunk *k = p->chunk;

		for (uint32_t i = 0; i < k->count; i++)
			unpin_block(c, p, k->ref[i]);
		p->chunk = k->next;
		k->next = c->chunk_free;
		c->chunk_free = k;
		account_give(c, owner->account, owner, ACCOUNT_PIN_CHUNKS);
	}
	account_give(c, owner->account, owner, ACCOUNT_PINS);
	ledger_unpin(&c->owners, p->owner, p->tier, p->bytes);
	p->used = false;
	p->next_free = c->pin_free;
	c->pin_free = (uint32_t)(p - c->pin);
	c->pins--;
}

/* A chunk that has room. */
static struct pin_chunk *chunk_for(struct core *c, struct pin *p)
{
	struct pin_chunk *k = p->chunk;

	if (k && k->count < CORE_PIN_CHUNK_REFS)
		return k;
	k = account_may(c, &c->client[p->client], ACCOUNT_PIN_CHUNKS) ? chunk_get(c) : NULL;
	if (!k)
		return NULL;
	account_take(c, &c->client[p->client], ACCOUNT_PIN_CHUNKS);
	k->next = p->chunk;
	p->chunk = k;
	return k;
}

static int pin_block(struct core *c, struct pin *p, struct abi_block_ref ref)
{
	uint64_t before = kept_bytes(p->ctx, ref.slot, p->tier);
	struct pin_chunk *k;
	struct block_use *use;

	/* Its size stays as it is: what it is charged with now is what it gives back. */
	assert(index_block(&p->ctx->ix, ref.slot)->state == ABI_BLOCK_COMMITTED);
	if (block_use(p->ctx, ref.slot)->pins[p->tier] == UINT16_MAX ||
	    block_use(p->ctx, ref.slot)->head_pins[p->tier] == UINT16_MAX)
		return -EUSERS;
	k = chunk_for(c, p);
	if (!k)
		return -EDQUOT;
	k->ref[k->count++] = ref;
	p->blocks++;
	use = block_use_make(p->ctx, ref.slot);
	if (!p->layers)
		use->pins[p->tier]++;
	else
		use->head_pins[p->tier]++;
	if (use->head_layers[p->tier] < p->layers)
		use->head_layers[p->tier] = (uint16_t)p->layers;
	charge_anew(c, p->ctx, ref.slot, p->tier, before);
	return 0;
}

/* Bytes of the first layers of each part of a block; layers 0 = all. */
uint64_t pin_block_bytes(const struct context *x, uint32_t slot, uint32_t layers)
{
	const struct abi_geometry *g = context_geometry(x);
	uint64_t bytes = 0;

	if (!layers)
		return block_bytes(x, slot);
	for (uint32_t i = 0; i < g->part_count; i++) {
		uint32_t n = layers < g->part[i].layers ? layers : g->part[i].layers;

		if (index_block(&x->ix, slot)->parts >> i & 1)
			bytes += (uint64_t)n * g->part[i].groups * g->part[i].page_stride;
	}
	return bytes;
}

static int pin_ref(const struct request *r, uint32_t i, struct abi_block_ref *ref)
{
	if (r->sqe.flags & ABI_SQE_KEYS) {
		ref->slot = index_find(&r->ctx->ix, r->arg + (size_t)i * ABI_KEY_BYTES);
		if (ref->slot == ABI_SLOT_NONE)
			return -ESTALE;
		ref->generation = index_block(&r->ctx->ix, ref->slot)->generation;
	} else {
		*ref = ((const struct abi_block_ref *)r->arg)[i];
	}
	if (!block_alive(r->ctx, *ref) ||
	    index_block(&r->ctx->ix, ref->slot)->state != ABI_BLOCK_COMMITTED)
		return -ESTALE;
	return 0;
}

static uint64_t pin_budget(const struct core *c, const struct context *x, uint32_t tier)
{
	uint64_t all = c->pool[tier].capacity;

	if (x->plan.quota[tier] < all)
		all = x->plan.quota[tier];
	all = all / 100 * c->config.pin_percent;
	return x->spec.pins[tier] && x->spec.pins[tier] < all ? x->spec.pins[tier] : all;
}

static bool over(uint64_t bytes, uint64_t limit)
{
	return limit && bytes > limit;
}

/* Whose limit would be broken when so much more of a block stays; ABI_LIMIT_NONE = nobody's. */
static uint32_t memory_limit(const struct core *c, const struct pin *p, uint32_t slot,
			     uint64_t more)
{
	const struct context *x = p->ctx;
	uint32_t t = p->tier, account = block_account(x, slot), share = p->layers ? 2 : 1;
	uint64_t all = c->pool[t].capacity / 100 * c->config.pin_percent;

	/* Foresight leaves half of the budget to what is being read. */
	if (c->pinned[t] + more > all / share || !quota_may_promise(c, t, more))
		return ABI_LIMIT_HOST;
	if (x->pinned[t] + more > pin_budget(c, x, t) / share)
		return ABI_LIMIT_CONTEXT;
	if (over(x->salts.account[account].pinned[t] + more, quota_pins(c, x, account, t)))
		return ABI_LIMIT_SALT;
	return ABI_LIMIT_NONE;
}

/*
 * Whose limit a pin of so many bytes of a block would break. What stays anyway takes nobody's room;
 * but foresight, which would keep it when readers have let go, counts all of it.
 */
static uint32_t pin_limit(const struct core *c, const struct pin *p, uint32_t slot, uint64_t bytes)
{
	uint64_t kept = kept_bytes(p->ctx, slot, p->tier), more = bytes > kept ? bytes - kept : 0;
	uint32_t limit = ABI_LIMIT_NONE;

	if (more || p->layers)
		limit = memory_limit(c, p, slot, more);
	if (!limit && over(c->owners.account[p->owner].pinned[p->tier] + bytes,
			   quota_pins(c, NULL, p->owner, p->tier)))
		limit = ABI_LIMIT_CLIENT;
	return limit;
}

/* It ends then. */
void pin_until(struct core *c, struct pin *p, uint64_t deadline_ns)
{
	p->deadline_ns = deadline_ns;
	if (deadline_ns < c->pins_next_ns)
		c->pins_next_ns = deadline_ns;
}

/*
 * Pin as many blocks from the first as the budget has room for: the rest stays unprotected, and
 * the count says so (P7). Returns that count. Errors: -EDQUOT not one, -EAGAIN, -EUSERS.
 */
int64_t pin_take(struct core *c, struct pin_ask *ask, uint64_t *id)
{
	struct pin *p = NULL;
	int err = -EDQUOT;

	assert(ask->tier < ABI_MEM_TIERS);
	if (account_may(c, &c->client[ask->client], ACCOUNT_PINS))
		p = pin_get(c, ask->client);
	else
		c->metrics.limit_refusals++;
	if (!p)
		return account_may(c, &c->client[ask->client], ACCOUNT_PINS) ? -EAGAIN : -EDQUOT;
	p->ctx = ask->ctx;
	p->tier = ask->tier;
	p->layers = ask->layers;
	p->deadline_ns = ask->deadline_ns;
	p->id = *id = ++c->pin_seq * CORE_PINS_MAX + (uint64_t)(p - c->pin);
	for (uint32_t i = 0; i < ask->count; i++) {
		uint64_t bytes;

		if (!block_alive(p->ctx, ask->ref[i]))
			break;
		bytes = pin_block_bytes(p->ctx, ask->ref[i].slot, p->layers);
		ask->limit = pin_limit(c, p, ask->ref[i].slot, bytes);
		if (ask->limit)
			break;
		err = pin_block(c, p, ask->ref[i]);
		if (err)
			break;
		p->bytes += bytes;
		ledger_pin(&c->owners, p->owner, p->tier, bytes);
	}
	if (!p->blocks) {
		pin_end(c, p);
		return err;
	}
	pin_until(c, p, p->deadline_ns);
	c->metrics.pins++;
	c->metrics.pins_degraded += p->blocks < ask->count;
	return p->blocks;
}

void pin_request(struct core *c, struct request *r)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)r->arg;
	struct pin_ask ask = {
		.client = r->client,
		.tier = r->sqe.tier,
		.ctx = r->ctx,
		.deadline_ns = r->sqe.deadline_ns ? r->sqe.deadline_ns : UINT64_MAX,
		.ref = ref,
		.count = r->sqe.count,
	};
	uint64_t id = 0, resident = 0;
	int64_t blocks = 0;

	for (uint32_t i = 0; i < ask.count && !blocks; i++) {
		struct abi_block_ref at;

		blocks = pin_ref(r, i, &at);
		if (!blocks)
			ref[i] = at; /* in place: 8 bytes take the room of 8 or 32 */
	}
	if (!blocks)
		blocks = pin_take(c, &ask, &id);
	for (int64_t i = 0; i < blocks; i++) {
		const struct block_meta *m = &r->ctx->meta[ref[i].slot];

		for (uint32_t t = 0, found = 0; t <= ask.tier && !found; t++)
			resident += found = m->there[t].pages == block_pages(r->ctx, ref[i].slot);
	}
	if (blocks >= 0 && blocks < ask.count)
		r->status = ABI_STATUS_DROPPED; /* the others are not protected */
	if (blocks == -EDQUOT && ask.limit)
		resident = quota_held(c, r->ctx, ask.tier) |
			   (uint64_t)ask.limit << 8 * ABI_HELD_LIMIT;
	request_end(c, r, blocks < 0 ? (int)blocks : 0, blocks < 0 ? 0 : id, resident);
}

/* Ids can be guessed: they are good for processes of the user who pinned, and for operators. */
static bool may_end(const struct core *c, const struct pin *p, uint32_t client)
{
	const struct core_client_open *who = &c->client[client].open;

	return who->uid == c->client[p->client].open.uid || who->operator_;
}

void unpin_request(struct core *c, struct request *r)
{
	struct pin *p = &c->pin[r->sqe.handle % CORE_PINS_MAX];
	bool found = p->used && p->id == r->sqe.handle && p->ctx == r->ctx &&
		     may_end(c, p, r->client);

	if (found)
		pin_end(c, p);
	request_end(c, r, found ? 0 : -ENOENT, 0, 0);
}

/* Pins of one client (its end), one context (its removal), or past their deadline. */
static void pins_end(struct core *c, uint32_t client, const struct context *x, uint64_t now_ns)
{
	c->pins_next_ns = UINT64_MAX;
	for (uint32_t i = 0; c->pins && i < c->pins_high; i++) {
		struct pin *p = &c->pin[i];

		if (p->used && p->deadline_ns < c->pins_next_ns)
			c->pins_next_ns = p->deadline_ns;
		if (!p->used || (p->client != client && p->ctx != x && p->deadline_ns > now_ns))
			continue;
		c->metrics.pins_expired++;
		pin_end(c, p);
	}
}

void pin_client_gone(struct core *c, uint32_t client)
{
	pins_end(c, client, NULL, 0);
}

void pin_context_gone(struct core *c, const struct context *x)
{
	pins_end(c, CORE_CLIENTS_MAX, x, 0);
}

void pin_tick(struct core *c)
{
	if (c->now_ns < c->pins_next_ns)
		return;
	pins_end(c, CORE_CLIENTS_MAX, NULL, c->now_ns);
	if (c->pins_next_ns < c->now_ns + 50 * MS)
		c->pins_next_ns = c->now_ns + 50 * MS;
}

int core_pin_view(const struct core *c, uint32_t i, struct core_pin_view *out)
{
	for (uint32_t k = 0; k < c->pins_high; k++) {
		const struct pin *p = &c->pin[k];

		if (!p->used || i--)
			continue;
		*out = (struct core_pin_view){
			.id = p->id,
			.client = p->client,
			.context_id = p->ctx->id,
			.tier = p->tier,
			.blocks = p->blocks,
			.bytes = p->bytes,
			.deadline_ns = p->deadline_ns,
		};
		return 0;
	}
	return -ENOENT;
}
