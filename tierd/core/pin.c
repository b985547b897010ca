/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: counted claims that blocks stay at a tier or above, with an owner, a deadline and a budget.
 * A pin never moves data: what is not there yet is protected once it comes. Its id is a plain
 * number that any client with the context open may use; the owner's end ends it.
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
		account_take(c, &c->client[client], ACCOUNT_PINS);
		c->pins++;
	}
	return p;
}

static void unpin_block(struct core *c, struct pin *p, struct abi_block_ref ref)
{
	struct block_meta *m = &p->ctx->meta[ref.slot];

	/* A slot whose block went has a new generation and no pins of ours left. */
	(void)c;
	if (index_block(&p->ctx->ix, ref.slot)->generation != ref.generation)
		return;
	assert(m->pins[p->tier] > 0);
	m->pins[p->tier]--;
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
	assert(p->ctx->pinned[p->tier] >= p->bytes);
	p->ctx->pinned[p->tier] -= p->bytes;
	c->pinned[p->tier] -= p->bytes;
	p->used = false;
	p->next_free = c->pin_free;
	c->pin_free = (uint32_t)(p - c->pin);
	c->pins--;
}

static int pin_block(struct core *c, struct pin *p, struct abi_block_ref ref)
{
	struct pin_chunk *k = p->chunk;
	struct block_meta *m = &p->ctx->meta[ref.slot];

	if (m->pins[p->tier] == UINT16_MAX)
		return -EUSERS;
	if (!k || k->count == CORE_PIN_CHUNK_REFS) {
		if (!account_may(c, &c->client[p->client], ACCOUNT_PIN_CHUNKS))
			return -EDQUOT;
		k = chunk_get(c);
		if (!k)
			return -EDQUOT;
		account_take(c, &c->client[p->client], ACCOUNT_PIN_CHUNKS);
		k->next = p->chunk;
		p->chunk = k;
	}
	k->ref[k->count++] = ref;
	m->pins[p->tier]++;
	p->blocks++;
	return 0;
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

/* Sum of the blocks' bytes against the tier's budget; refs are resolved on the way (in place). */
static int pin_budget(struct core *c, struct request *r, uint64_t *bytes)
{
	uint64_t budget = c->pool[r->sqe.tier].capacity / 100 * c->config.pin_percent;

	if (r->ctx->plan.quota[r->sqe.tier] < c->pool[r->sqe.tier].capacity)
		budget = r->ctx->plan.quota[r->sqe.tier] / 100 * c->config.pin_percent;
	*bytes = 0;
	for (uint32_t i = 0; i < r->sqe.count; i++) {
		struct abi_block_ref ref;
		int err = pin_ref(r, i, &ref);

		if (err)
			return err;
		*bytes += block_bytes(r->ctx, ref.slot);
		((struct abi_block_ref *)r->arg)[i] = ref;
	}
	if (c->pinned[r->sqe.tier] + *bytes >
	    c->pool[r->sqe.tier].capacity / 100 * c->config.pin_percent)
		return -EDQUOT; /* all contexts together */
	return r->ctx->pinned[r->sqe.tier] + *bytes > budget ? -EDQUOT : 0;
}

void pin_request(struct core *c, struct request *r)
{
	const struct abi_block_ref *ref = (const struct abi_block_ref *)r->arg;
	struct pin *p = NULL;
	uint64_t bytes = 0, resident = 0;
	int err = pin_budget(c, r, &bytes);

	if (!err && !account_may(c, &c->client[r->client], ACCOUNT_PINS))
		err = -EDQUOT;
	c->metrics.limit_refusals += err == -EDQUOT;
	if (!err && !(p = pin_get(c, r->client)))
		err = -EAGAIN;
	if (err) {
		request_end(c, r, err, 0, 0);
		return;
	}
	p->ctx = r->ctx;
	p->tier = r->sqe.tier;
	p->deadline_ns = r->sqe.deadline_ns ? r->sqe.deadline_ns : UINT64_MAX;
	p->id = ++c->pin_seq * CORE_PINS_MAX + (uint64_t)(p - c->pin);
	for (uint32_t i = 0; i < r->sqe.count && !err; i++) {
		const struct block_meta *m = &r->ctx->meta[ref[i].slot];

		err = pin_block(c, p, ref[i]);
		for (uint32_t t = 0, found = 0; t <= p->tier && !found; t++)
			resident += found = m->resident[t] == block_pages(r->ctx, ref[i].slot);
	}
	p->bytes = bytes;
	p->ctx->pinned[p->tier] += bytes;
	c->pinned[p->tier] += bytes;
	c->metrics.pins++;
	if (err)
		pin_end(c, p);
	request_end(c, r, err, err ? 0 : p->id, resident);
}

void unpin_request(struct core *c, struct request *r)
{
	struct pin *p = &c->pin[r->sqe.handle % CORE_PINS_MAX];
	bool found = p->used && p->id == r->sqe.handle && p->ctx == r->ctx;

	if (found)
		pin_end(c, p);
	request_end(c, r, found ? 0 : -ENOENT, 0, 0);
}

/* Pins of one client (its end), one context (its removal), or past their deadline. */
static void pins_end(struct core *c, uint32_t client, const struct context *x, uint64_t now_ns)
{
	for (uint32_t i = 0; c->pins && i < c->pins_high; i++) {
		struct pin *p = &c->pin[i];

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
	c->pins_next_ns = c->now_ns + 50 * MS;
	pins_end(c, CORE_CLIENTS_MAX, NULL, c->now_ns);
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
