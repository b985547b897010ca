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
	struct pin_chunk *k = c->pins.chunk_free;

	if (k)
		c->pins.chunk_free = k->next;
	else if (c->pins.chunks_high < CORE_PIN_CHUNKS)
		k = &c->pins.chunk[c->pins.chunks_high++];
	if (k) {
		k->next = NULL;
		k->count = 0;
	}
	return k;
}

static struct pin *pin_get(struct core *c, uint32_t client)
{
	struct pin *p = NULL;

	if (c->pins.free != ABI_SLOT_NONE) {
		p = &c->pins.table[c->pins.free];
		c->pins.free = p->next_free;
	} else if (c->pins.high < CORE_PINS_MAX) {
		p = &c->pins.table[c->pins.high++];
	}
	if (p) {
		memset(p, 0, sizeof(*p));
		p->used = true;
		p->client = client;
		p->owner = c->client[client].owner;
		account_take(c, &c->client[client], ACCOUNT_PINS);
		c->pins.count++;
	}
	return p;
}

/* Bytes of a block that its pins keep in a tier, however many they are. */
static uint64_t kept_bytes(const struct context *x, uint32_t slot, uint32_t tier)
{
	const struct block_use *use = block_use(x, slot);

	if (use->pins[tier])
		return block_bytes(x, slot);
	return use->lead_pins[tier] ? pin_block_bytes(x, slot, use->lead_layers[tier]) : 0;
}

/* Its pins have changed: it was charged with so many bytes before. */
static void charge_anew(struct core *c, struct context *x, uint32_t slot, uint32_t tier,
			uint64_t before)
{
	uint64_t now = kept_bytes(x, slot, tier);

	assert(x->pinned[tier] >= before && c->pins.bytes[tier] >= x->pinned[tier]);
	x->pinned[tier] += now - before; /* modulo 2^64 */
	c->pins.bytes[tier] += now - before;
	ledger_unpin(&x->salts, block_account(x, slot), tier, before);
	ledger_pin(&x->salts, block_account(x, slot), tier, now);
}

/* The block leaves the service: those who pinned it have nothing of it any more. */
void pin_lost(struct core *c, struct context *x, uint32_t slot)
{
	struct block_use *use = block_use_make(x, slot);

	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		uint64_t before = kept_bytes(x, slot, tier);

		use->pins[tier] = use->lead_pins[tier] = use->lead_layers[tier] = 0;
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
		assert(use->lead_pins[p->tier] > 0);
		if (!--use->lead_pins[p->tier])
			use->lead_layers[p->tier] = 0;
	} else {
		assert(use->pins[p->tier] > 0);
		use->pins[p->tier]--;
	}
	charge_anew(c, p->ctx, ref.slot, p->tier, before);
	block_use_settle(p->ctx, ref.slot);
}

/* Let its blocks go, then its place. False: there are more than one event looks at. */
static bool pin_empty(struct core *c, struct pin *p)
{
	struct client *owner = &c->client[p->client];

	while (p->chunk) {
		struct pin_chunk *k = p->chunk;

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, k->count);
		for (uint32_t i = 0; i < k->count; i++)
			unpin_block(c, p, k->ref[i]);
		p->chunk = k->next;
		k->next = c->pins.chunk_free;
		c->pins.chunk_free = k;
		account_give(c, owner->account, owner, ACCOUNT_PIN_CHUNKS);
	}
	account_give(c, owner->account, owner, ACCOUNT_PINS);
	ledger_unpin(&c->owners, p->owner, p->tier, p->bytes);
	p->used = p->ending = false;
	p->next_free = c->pins.free;
	c->pins.free = (uint32_t)(p - c->pins.table);
	c->pins.count--;
	return true;
}

void pin_end(struct core *c, struct pin *p)
{
	assert(p->used && !p->ending && c->pins.count > 0);
	p->ending = true;
	p->id = 0;
	if (pin_empty(c, p))
		return;
	p->next_free = c->pins.ending;
	c->pins.ending = (uint32_t)(p - c->pins.table) + 1;
}

/* That of an id that the core has taken; NULL = it has ended. */
static struct pin *pin_find(struct core *c, uint64_t id)
{
	struct pin *p = &c->pins.table[id % CORE_PINS_MAX];

	return id && p->used && p->id == id ? p : NULL;
}

void pin_drop(struct core *c, uint64_t id)
{
	struct pin *p = pin_find(c, id);

	if (p)
		pin_end(c, p);
}

void pin_work(struct core *c)
{
	while (c->pins.ending && !meter_spent(&c->meter)) {
		struct pin *p = &c->pins.table[c->pins.ending - 1];
		uint32_t next = p->next_free;

		if (pin_empty(c, p))
			c->pins.ending = next;
	}
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
	    block_use(p->ctx, ref.slot)->lead_pins[p->tier] == UINT16_MAX)
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
		use->lead_pins[p->tier]++;
	if (use->lead_layers[p->tier] < p->layers)
		use->lead_layers[p->tier] = (uint16_t)p->layers;
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
	if (c->pins.bytes[t] + more > all / share || !quota_may_promise(c, t, more))
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
	if (deadline_ns < c->pins.next_ns)
		c->pins.next_ns = deadline_ns;
}

/* A pin that was just begun. NULL: its client, or the host, has no more. */
static struct pin *pin_begin(struct core *c, struct pin_ask *ask)
{
	struct pin *p = NULL;

	if (account_may(c, &c->client[ask->client], ACCOUNT_PINS))
		p = pin_get(c, ask->client);
	else
		account_refused(c);
	if (!p)
		return NULL;
	p->ctx = ask->ctx;
	p->tier = ask->tier;
	p->layers = ask->layers;
	p->deadline_ns = ask->deadline_ns;
	p->id = ask->id = ++c->pins.seq * CORE_PINS_MAX + (uint64_t)(p - c->pins.table);
	return p;
}

/* One more block. 0, or what keeps it from that. */
static int pin_one(struct core *c, struct pin *p, struct pin_ask *ask)
{
	struct abi_block_ref ref = ask->ref[ask->at];
	uint64_t bytes;
	int err;

	if (!block_alive(p->ctx, ref))
		return -EDQUOT;
	bytes = pin_block_bytes(p->ctx, ref.slot, p->layers);
	ask->limit = pin_limit(c, p, ref.slot, bytes);
	err = ask->limit ? -EDQUOT : pin_block(c, p, ref);
	if (err)
		return err;
	p->bytes += bytes;
	ledger_pin(&c->owners, p->owner, p->tier, bytes);
	return 0;
}

/*
 * Pin as many blocks from the first as the budget has room for: the rest stays unprotected, and
 * the count says so (P7). Returns that count. Errors: -EINPROGRESS there are more than one event
 * looks at: to be called again with what it left in ask; -EDQUOT not one, -EAGAIN, -EUSERS.
 */
int64_t pin_take(struct core *c, struct pin_ask *ask)
{
	struct pin *p = ask->id ? pin_find(c, ask->id) : pin_begin(c, ask);
	int err = 0;

	assert(ask->tier < ABI_MEM_TIERS);
	if (!p && ask->id)
		return ask->at; /* it has ended since */
	if (!p)
		return account_may(c, &c->client[ask->client], ACCOUNT_PINS) ? -EAGAIN : -EDQUOT;
	for (; !err && ask->at < ask->count; ask->at += !err) {
		if (meter_spent(&c->meter))
			return -EINPROGRESS;
		meter_charge(&c->meter, 1);
		err = pin_one(c, p, ask);
	}
	if (!p->blocks) {
		pin_end(c, p);
		ask->id = 0;
		return err ? err : -EDQUOT;
	}
	pin_until(c, p, p->deadline_ns);
	c->metrics.pins++;
	c->metrics.pins_degraded += p->blocks < ask->count;
	return p->blocks;
}

/* Find all that it names. 0, -ESTALE one has gone, -EINPROGRESS as above. */
static int pin_refs(struct core *c, struct request *r)
{
	struct abi_block_ref *ref = (struct abi_block_ref *)r->arg, at;

	for (; r->cursor < r->sqe.count; r->cursor++) {
		int err;

		if (meter_spent(&c->meter))
			return -EINPROGRESS;
		meter_charge(&c->meter, 1);
		err = pin_ref(r, r->cursor, &at);
		if (err)
			return err;
		ref[r->cursor] = at; /* in place: 8 bytes take the room of 8 or 32 */
	}
	return 0;
}

/* How many of the first `blocks` are there, in the tier or above? 0, or -EINPROGRESS. */
static int pin_resident(struct core *c, struct request *r, int64_t blocks)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;

	for (; r->counting < blocks; r->counting++) {
		const struct block_meta *m = &r->ctx->meta[ref[r->counting].slot];
		uint32_t pages = block_pages(r->ctx, ref[r->counting].slot), found = 0;

		if (meter_spent(&c->meter))
			return -EINPROGRESS;
		meter_charge(&c->meter, 1);
		for (uint32_t t = 0; t <= r->sqe.tier && !found; t++)
			found = m->there[t].pages == pages;
		r->usable += found;
	}
	return 0;
}

/* All that it asks for. Returns how many are pinned, or an error as pin_take. */
static int64_t pin_all(struct core *c, struct request *r, struct pin_ask *ask)
{
	int64_t blocks = pin_refs(c, r);

	if (!blocks && !r->total) {
		blocks = pin_take(c, ask);
		r->pin = ask->id;
		r->moved = ask->at;
		r->total = blocks > 0 ? (uint32_t)blocks : 0;
	} else if (!blocks) {
		blocks = r->total; /* only what is there was still to be counted */
	}
	if (blocks > 0 && pin_resident(c, r, blocks))
		return -EINPROGRESS;
	return blocks;
}

static void pin_request(struct core *c, struct request *r)
{
	struct pin_ask ask = {
		.client = r->client,
		.tier = r->sqe.tier,
		.ctx = r->ctx,
		.deadline_ns = r->sqe.deadline_ns ? r->sqe.deadline_ns : UINT64_MAX,
		.ref = (const struct abi_block_ref *)r->arg,
		.count = r->sqe.count,
		.id = r->pin,
		.at = r->moved,
	};
	uint64_t held = 0;
	int64_t blocks;

	r->phase = REQUEST_RUN;
	if (r->error) {
		pin_drop(c, r->pin);
		request_end(c, r, r->error, 0, 0);
		return;
	}
	blocks = pin_all(c, r, &ask);
	if (blocks == -EINPROGRESS) {
		request_go_on(c, r);
		return;
	}
	if (blocks >= 0 && blocks < ask.count)
		r->status = ABI_STATUS_DROPPED; /* the others are not protected */
	if (blocks == -EDQUOT && ask.limit)
		held = quota_held(c, r->ctx, ask.tier) |
		       (uint64_t)ask.limit << 8 * ABI_HELD_LIMIT;
	request_end(c, r, blocks < 0 ? (int)blocks : 0, blocks < 0 ? 0 : r->pin,
		    blocks < 0 ? held : r->usable);
}

/* Ids can be guessed: they are good for processes of the user who pinned, and for operators. */
static bool may_end(const struct core *c, const struct pin *p, uint32_t client)
{
	const struct core_client_open *who = &c->client[client].open;

	return who->uid == c->client[p->client].open.uid || who->operator_;
}

static void unpin_request(struct core *c, struct request *r)
{
	struct pin *p = &c->pins.table[r->sqe.handle % CORE_PINS_MAX];
	bool found = pin_find(c, r->sqe.handle) && p->ctx == r->ctx && may_end(c, p, r->client);

	if (found)
		pin_end(c, p);
	request_end(c, r, found ? 0 : -ENOENT, 0, 0);
}

/* Those of one client (its end) or one context (its removal). False: not all of them yet. */
bool pin_leave(struct core *c, uint32_t client, const struct context *x, struct meter_pass *pass)
{
	for (; c->pins.count && pass->at < c->pins.high; pass->at++) {
		struct pin *p = &c->pins.table[pass->at];

		if (meter_spent(&c->meter))
			return false;
		meter_charge_table(&c->meter, pass->at % 8 == 0);
		if (!p->used || (p->client != client && p->ctx != x))
			continue;
		c->metrics.pins_expired += !p->ending;
		if (!p->ending)
			pin_end(c, p);
		pass->met |= p->used;
	}
	return meter_pass_over(pass);
}

/* Those past their deadline. */
void pin_tick(struct core *c)
{
	if (!c->pins.looked && c->now_ns < c->pins.next_ns)
		return;
	if (!c->pins.looked)
		c->pins.next_ns = UINT64_MAX;
	for (; c->pins.count && c->pins.looked < c->pins.high; c->pins.looked++) {
		struct pin *p = &c->pins.table[c->pins.looked];

		if (meter_spent(&c->meter))
			return;
		meter_charge_table(&c->meter, c->pins.looked % 8 == 0);
		if (!p->used || p->ending)
			continue;
		if (p->deadline_ns < c->pins.next_ns)
			c->pins.next_ns = p->deadline_ns;
		if (p->deadline_ns > c->now_ns)
			continue;
		c->metrics.pins_expired++;
		pin_end(c, p);
	}
	c->pins.looked = 0;
	if (c->pins.next_ns < c->now_ns + 50 * MS)
		c->pins.next_ns = c->now_ns + 50 * MS;
}

uint64_t pin_next(const struct core *c)
{
	if (c->pins.ending || c->pins.looked)
		return c->now_ns;
	return c->pins.count ? c->pins.next_ns : UINT64_MAX;
}

int core_pin_view(const struct core *c, uint32_t i, struct core_pin_view *out)
{
	for (uint32_t k = 0; k < c->pins.high; k++) {
		const struct pin *p = &c->pins.table[k];

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

/* ---- operations ------------------------------------------------------------------------------ */

const struct op_ops op_pin = {
	.name = "pin",
	.tiers = ABI_MEM_TIERS,
	.context = true,
	.arg_bytes = op_blocks_bytes,
	.begin = pin_request,
	.step = pin_request,
};

const struct op_ops op_unpin = {
	.name = "unpin",
	.context = true,
	.begin = unpin_request,
};
