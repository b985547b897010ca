/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be true: the reference model. It knows what was put, acknowledged, deleted and pinned,
 * and looks at the same shared memory that a client maps.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"

/* ---- content ------------------------------------------------------------------------------ */

#define KEY_STEP 0x9e3779b97f4a7c15ull
#define KEY_STEP_INVERSE 0xf1de83e19937733dull
#define WORD_STEP 0x2545f4914f6cdd1dull /* from word to word of a page */

void model_key(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	uint64_t v = (n + 1) * KEY_STEP;

	for (uint32_t i = 0; i < 4; i++, v = v * 0xd1342543de82ef95ull + 1)
		memcpy(key + (size_t)i * 8, &v, 8);
}

/* Which key it is; WORLD_KEYS = none of ours. */
uint32_t model_number(const uint8_t key[ABI_KEY_BYTES])
{
	uint64_t word;

	_Static_assert((uint64_t)(KEY_STEP * KEY_STEP_INVERSE) == 1, "to divide by multiplying");
	memcpy(&word, key, sizeof(word));
	word = word * KEY_STEP_INVERSE - 1;
	return word < WORLD_KEYS ? (uint32_t)word : WORLD_KEYS;
}

/* What a put that begins with key n says of the one before it: one long prefix, which forks. */
void model_behind(uint32_t n, struct abi_put_args *args)
{
	uint32_t parent = n > WORLD_FORK && n % WORLD_FORK == 0 ? WORLD_FORK - 1 : n - 1;

	if (!n)
		return;
	model_key(parent, args->parent);
	args->depth = n > WORLD_FORK ? WORLD_FORK + n % WORLD_FORK : n;
}

/* Different for each page of each key of each context. */
static uint64_t first_word(uint32_t context, uint32_t n, uint32_t page)
{
	return ((uint64_t)context << 40 ^ (uint64_t)n << 20 ^ page) * 0x9e3779b97f4a7c15ull;
}

uint32_t model_page_part(uint32_t page)
{
	return page < 4 ? 0 : page < 6 ? 1 : 2;
}

uint32_t model_page_bytes(const struct world *w, uint32_t context, uint32_t page)
{
	return w->context[context].geometry.part[model_page_part(page)].page_bytes;
}

void model_page(const struct world *w, uint32_t context, uint32_t n, uint32_t page, void *dst)
{
	uint64_t *to = dst, word = first_word(context, n, page);
	uint32_t words = model_page_bytes(w, context, page) / 8;

	for (uint32_t i = 0; i < words; i++, word += WORD_STEP)
		to[i] = word;
}

bool model_page_is(const struct world *w, uint32_t context, uint32_t n, uint32_t page,
		   const void *src)
{
	uint64_t word = first_word(context, n, page);
	uint32_t words = model_page_bytes(w, context, page) / 8;
	const uint64_t *from = src;

	for (uint32_t i = 0; i < words; i++, word += WORD_STEP)
		if (from[i] != word)
			return false;
	return true;
}

/*
 * How the put's blocks are to be kept, into its arguments and as a bit of `said`. Of most keys
 * all puts say the same, so it shows when that is lost.
 */
uint8_t model_said(struct world *w, const struct ask *a, struct abi_put_args *args)
{
	static const uint8_t priority_of[8] = { [1] = ABI_PRIORITY_LOW, [3] = ABI_PRIORITY_HIGH };
	uint32_t region = a->first / 16 % 8;

	args->priority = priority_of[region];
	args->ttl_ms = region == 6 ? 1 + world_below(w, SAID_TTL_MS) : 0;
	return region == 6 ? SAID_TTL : (uint8_t)(1u << priority_of[region]);
}

/* ---- what a client sees ------------------------------------------------------------------- */

/* The visible block of a key: COMMITTED and of the present epoch, else NULL. */
const struct abi_block *model_find(struct world *w, uint32_t context, uint32_t n, uint32_t *slot)
{
	struct world_context *x = &w->context[context];
	const struct abi_block *b;
	struct core_location at;
	uint8_t key[ABI_KEY_BYTES];

	if (!x->made || x->removing)
		return NULL;
	model_key(n, key);
	if (core_locate(w->core, x->id, key, &at))
		return NULL;
	*slot = at.slot;
	b = (const struct abi_block *)(x->index + x->header->block_offset) + at.slot;
	return b->state == ABI_BLOCK_COMMITTED && b->epoch == (uint32_t)x->header->epoch ? b : NULL;
}

const struct abi_page *model_desc(struct world *w, uint32_t context, uint32_t slot, uint32_t page)
{
	struct world_context *x = &w->context[context];

	return (const struct abi_page *)(x->index + x->header->desc_offset) +
	       (uint64_t)slot * x->geometry.pages_per_block + page;
}

/* ---- pins --------------------------------------------------------------------------------- */

static bool page_at(struct world *w, uint32_t context, uint32_t slot, uint32_t page, uint32_t tier)
{
	return abi_word_state(model_desc(w, context, slot, page)->word[tier]) == ABI_PAGE_READY;
}

/* What did not verify, and what was promised durability that its account's quota refuses. */
static uint64_t given_up(const struct world *w)
{
	const struct core_metrics *m = core_metrics(w->core);

	return m->read_bad + m->quota_dropped;
}

void model_pinned(struct world *w, uint32_t client, const struct ask *ask, uint64_t id)
{
	struct world_pin *p = NULL;

	w->result->pins++;
	for (uint32_t i = 0; i < WORLD_LEASES && !p; i++)
		if (!w->pin[i].id || w->pin[i].deadline_ns <= w->now_ns)
			p = &w->pin[i];
	if (!p)
		return; /* held until its deadline, but not watched */
	*p = (struct world_pin){
		.id = id,
		.client = client,
		.context = ask->context,
		.tier = ask->shard,
		.first = ask->first,
		.count = ask->count,
		.deadline_ns = ask->deadline_ns,
		.epoch = w->context[ask->context].epoch,
		.gone = given_up(w),
	};
	for (uint32_t i = 0; i < p->count; i++) {
		uint32_t slot;
		const struct abi_block *b = model_find(w, p->context, p->first + i, &slot);

		if (!b) {
			world_fail(w, "pin: key %u is pinned and not visible", p->first + i);
			return;
		}
		p->block[i] = (struct abi_block_ref){ slot, b->generation };
		p->there |= 1u << i;
		for (uint32_t page = 0; page < w->context[p->context].geometry.pages_per_block;
		     page++)
			p->resident[i] |= (uint64_t)page_at(w, p->context, slot, page, p->tier)
					  << page;
	}
}

static void unwatch(struct world_pin *p, uint32_t i)
{
	p->resident[i] = 0;
	p->there &= ~(1u << i);
}

/* A durable put without a part that the block has: it is stored anew without, pinned or not. */
void model_put_anew(struct world *w, const struct ask *a)
{
	for (uint32_t n = a->first; a->durable && n < a->first + a->count; n++) {
		uint32_t slot;
		const struct abi_block *b = model_find(w, a->context, n, &slot);

		for (uint32_t i = 0; b && b->parts & ~a->parts && i < WORLD_LEASES; i++) {
			struct world_pin *p = &w->pin[i];

			if (p->context == a->context && n - p->first < p->count)
				unwatch(p, n - p->first);
		}
	}
}

static void pin_check(struct world *w, struct world_pin *p)
{
	const struct world_context *x = &w->context[p->context];

	if (!p->id || p->deadline_ns <= w->now_ns || w->client[p->client].state != 1)
		return;
	for (uint32_t i = 0; i < p->count; i++) {
		uint32_t slot;
		const struct abi_block *b = model_find(w, p->context, p->first + i, &slot);

		/* A block that was deleted or did not verify is gone: no prefetch keeps it. */
		if (!b || slot != p->block[i].slot || b->generation != p->block[i].generation) {
			if (p->there >> i & 1 && !x->now.key[p->first + i].doomed &&
			    !x->removing && p->epoch == x->epoch &&
			    p->gone == given_up(w))
				world_fail(w, "pin: key %u left the service", p->first + i);
			unwatch(p, i);
			continue;
		}
		for (uint32_t page = 0; page < 64; page++)
			if (p->resident[i] >> page & 1 &&
			    !page_at(w, p->context, slot, page, p->tier))
				world_fail(w, "pin: key %u page %u left tier %u", p->first + i,
					   page, p->tier);
	}
}

/* ---- what is stored ----------------------------------------------------------------------- */

/* The bytes that the index names on NVMe, if any: a block that is written again names none. */
static void stored_check(struct world *w, uint32_t n, uint32_t slot, const struct abi_block *b)
{
	const struct world_context *x = &w->context[0];

	for (uint32_t page = 0; page < x->geometry.pages_per_block; page++) {
		uint64_t word = model_desc(w, 0, slot, page)->nvme;
		uint64_t at = (uint64_t)abi_nvme_device(word) * NVME_BYTES + abi_nvme_offset(word);

		if (!word || !(b->parts >> model_page_part(page) & 1) ||
		    model_page_is(w, 0, n, page, w->disk + at))
			continue;
		if (x->now.key[n].durable)
			world_fail(w, "I6: durable key %u lost the bytes of page %u", n, page);
		else if (!device_lost(w, at, model_page_bytes(w, 0, page)))
			world_fail(w, "I6: key %u page %u was never written where it should be", n,
				   page);
	}
}

/*
 * Blocks that were acknowledged durable, or all: after a crash memory holds nothing, and the disk
 * shows what survived. Looked at as a reader would, so a block whose record came through without
 * its data is a loss, not a miss. Of others the device may have lost what it was not told to flush.
 */
void model_check_stored(struct world *w, bool durable)
{
	const struct world_context *x = &w->context[0];

	for (uint32_t n = 0; x->made && n < WORLD_KEYS; n++) {
		uint32_t slot;
		const struct abi_block *b = model_find(w, 0, n, &slot);

		if (b && (x->now.key[n].durable || !durable))
			stored_check(w, n, slot, b);
	}
}

/* ---- visible blocks ----------------------------------------------------------------------- */

static void whole_check(struct world *w, uint32_t context, uint32_t n, uint32_t slot,
			const struct abi_block *b)
{
	struct world_context *x = &w->context[context];

	for (uint32_t page = 0; page < x->geometry.pages_per_block; page++) {
		const struct abi_page *d = model_desc(w, context, slot, page);
		bool there = d->nvme != 0;

		if (!(b->parts >> model_page_part(page) & 1))
			continue;
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
			if (abi_word_state(d->word[t]) != ABI_PAGE_READY)
				continue;
			there = true;
			if (!model_page_is(w, context, n, page,
					   x->mem[t] + abi_word_addr(d->word[t])))
				world_fail(w, "context %u key %u page %u: wrong bytes in tier %u",
					   context, n, page, t);
		}
		if (!there)
			world_fail(w, "I5: context %u key %u is visible without page %u", context,
				   n, page);
	}
	if ((b->parts & 3) != 3)
		world_fail(w, "I5: key %u is visible without a part that every block needs", n);
}

void model_check_key(struct world *w, uint32_t context, uint32_t n)
{
	struct world_context *x = &w->context[context];
	const struct abi_block *b;
	uint32_t slot;

	if (!x->made || x->removing)
		return;
	b = model_find(w, context, n, &slot);
	if (!b) {
		if (x->now.key[n].durable)
			world_fail(w, "I6: durable key %u is gone", n);
		return;
	}
	if (x->now.key[n].deleted)
		world_fail(w, "context %u key %u is back after its deletion", context, n);
	if (!(x->now.key[n].put_epochs >> x->epoch % 64 & 1))
		world_fail(w, "context %u key %u is visible and was not put in this epoch", context,
			   n);
	theirs_retained(w, context, n, slot);
	whole_check(w, context, n, slot, b);
}

static void audit_tell(void *arg, const char *what)
{
	world_fail(arg, "I7: %s", what);
}

static void asks_check(struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; w->client[c].state == 1 && i < WORLD_ASKS; i++) {
			const struct ask *a = &w->client[c].ask[i];

			if (a->kind != ASK_NONE && a->kind != ASK_RESERVED)
				world_fail(w, "I8: client %u has no answer to op %u", c, a->op);
		}
}

/* Hard limits: what is held does not grow above them, whatever was held when they were set. */
void model_check_quotas(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		struct world_context *x = &w->context[i];
		struct core_holder_view v;

		for (uint32_t k = 0; x->made && !core_holder_at(w->core, x->id, k, &v); k++)
			for (uint32_t t = 0; v.key < WORLD_SALTS && t < ABI_TIER_COUNT; t++) {
				uint64_t *held = &x->held[v.key][t], hard = x->hard[v.key][t];

				if (v.kind != CORE_HOLDER_KEY || !hard)
					continue;
				if (v.used[t] > hard && v.used[t] > *held)
					world_fail(w, "quota: salt %u holds %llu of tier %u",
						   (uint32_t)v.key,
						   (unsigned long long)v.used[t], t);
				*held = v.used[t];
			}
	}
}

void model_check_all(struct world *w, bool content)
{
	for (uint32_t i = 0; content && i < WORLD_CONTEXTS; i++)
		for (uint32_t n = 0; n < WORLD_KEYS; n++)
			model_check_key(w, i, n);
	for (uint32_t i = 0; i < WORLD_LEASES; i++)
		pin_check(w, &w->pin[i]);
	reader_check(w);
	streams_check_all(w);
	core_audit(w->core, audit_tell, w);
}

/* Cannot the store be expected to find room? */
bool model_full(struct world *w)
{
	struct core_stats st;

	core_stats(w->core, &st);
	return st.tier[ABI_TIER_NVME].live >= st.tier[ABI_TIER_NVME].capacity / 2 ||
	       wide_store_full(w);
}

/* At rest a context is there or gone, keeps nothing for readers and waits for no writer. */
static void rest_check(struct world *w, uint32_t context)
{
	struct world_context *x = &w->context[context];
	struct core_context_stats st;

	for (uint32_t n = 0; n < WORLD_KEYS; n++)
		x->now.key[n].ghost = false;
	if (x->made && x->removing)
		world_fail(w, "at rest context %u is still being removed", context);
	if (!x->made || core_context_stats(w->core, x->id, &st))
		return;
	if (st.blocks_pending)
		world_fail(w, "at rest %llu blocks of context %u are pending",
			   (unsigned long long)st.blocks_pending, context);
	inside_rest(w, context);
}

/* A request whose kind ends at its deadline, whatever the device does, and that is late. */
static const struct ask *ask_late(const struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; w->client[c].state == 1 && i < WORLD_ASKS; i++) {
			const struct ask *a = &w->client[c].ask[i];
			bool bound = a->op == ABI_OP_FETCH || a->op == ABI_OP_PREFETCH ||
				     a->op == ABI_OP_MIGRATE || a->op == ABI_OP_DELETE ||
				     a->op == ABI_OP_FETCH_PAGES;

			if (a->kind == ASK_OTHER && bound && a->deadline_ns &&
			    a->deadline_ns + 2 * MSEC + w->patience_ns < w->now_ns)
				return a;
		}
	return NULL;
}

/*
 * None is late. But a tick may leap over deadlines, and the event that sees it have no item left
 * for the answer: the core then asks for its next turn at once, and gets as many as fit a
 * millisecond.
 */
void model_check_deadlines(struct world *w)
{
	struct core_event e = { .kind = CORE_EV_TICK };
	const struct ask *a = ask_late(w);
	uint64_t end = w->now_ns + MSEC;

	while (a && w->now_ns < end && core_next_tick(w->core) <= w->now_ns &&
	       !w->result->failure[0]) {
		world_event(w, &e);
		a = ask_late(w);
	}
	if (a)
		world_fail(w, "I8: op %u has no answer %llu us after its deadline", a->op,
			   (unsigned long long)(w->now_ns - a->deadline_ns) / 1000);
}

/* Is much of the memory held by what a full store cannot take? Then some wait in vain. */
bool model_clogged(struct world *w)
{
	struct core_stats st;

	core_stats(w->core, &st);
	if (inside_pauses(w))
		return true;
	return model_full(w) && st.tier[ABI_TIER_CXL].dirty >= st.tier[ABI_TIER_CXL].capacity / 8;
}

/* Nothing moves any more, the device is well, time has passed: everyone has his answer. */
void model_quiet(struct world *w)
{
	struct core_stats st;

	core_stats(w->core, &st);
	asks_check(w);
	if (st.ios || st.copies || st.requests)
		world_fail(w, "I8: at rest %u requests, %u ios, %u copies are under way",
			   st.requests, st.ios, st.copies);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		if (st.tier[t].quarantined)
			world_fail(w, "at rest %llu bytes of tier %u are quarantined",
				   (unsigned long long)st.tier[t].quarantined, t);
	/* In a full store what is dirty stays so. */
	if (st.tier[ABI_TIER_CXL].dirty && !model_full(w))
		world_fail(w, "at rest %llu bytes are dirty",
			   (unsigned long long)st.tier[ABI_TIER_CXL].dirty);
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		rest_check(w, i);
	model_check_stored(w, false);
	model_check_all(w, true);
	image_rest(w);
}

/* ---- what ends an obligation -------------------------------------------------------------- */

void model_died(struct world *w, uint32_t client)
{
	for (uint32_t i = 0; i < WORLD_ASKS; i++) {
		const struct ask *a = &w->client[client].ask[i];

		for (uint32_t n = 0; a->kind == ASK_COMMIT && n < a->count; n++)
			w->context[a->context].now.key[a->first + n].ghost = true;
	}
}

/* The core voids a block whose bytes the device garbled: it is no longer owed to anyone. */
void model_forgive(struct world *w, const struct core_io *io, uint32_t piece)
{
	struct world_context *x = &w->context[0];
	const struct abi_block *b = (const struct abi_block *)(x->index + x->header->block_offset) +
				    io->priv.slot[piece];
	uint8_t key[ABI_KEY_BYTES];

	if (path_spares(w, io, piece) || inside_reads_again(w, io))
		return;
	for (uint32_t n = 0; n < WORLD_KEYS; n++) {
		model_key(n, key);
		if (!memcmp(key, b->key, sizeof(key)))
			x->now.key[n].durable = false;
	}
}

/* Pieces of a read that do not verify. */
void model_rotten(struct world *w, const struct core_io *io, struct world_rotten *out)
{
	struct world_context *x = &w->context[0];

	out->count = 0;
	for (uint32_t i = 0; x->made && i < io->piece_count; i++) {
		const struct abi_block *b =
			(const struct abi_block *)(x->index + x->header->block_offset) +
			io->priv.slot[i];
		uint32_t slot, n = io->bad_mask >> i & 1 ? model_number(b->key) : WORLD_KEYS;

		if (n < WORLD_KEYS && model_find(w, 0, n, &slot) && slot == io->priv.slot[i])
			out->n[out->count++] = n;
	}
}

/* The read was told: blocks that went by it must not come back. */
void model_voided(struct world *w, const struct world_rotten *rotten)
{
	uint32_t slot;

	for (uint32_t i = 0; i < rotten->count; i++)
		if (!model_find(w, 0, rotten->n[i], &slot))
			w->context[0].now.key[rotten->n[i]].voided = true;
}
