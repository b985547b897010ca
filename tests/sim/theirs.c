/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is whose, by the core's own words, after each event:
 *   Limits: what a context is charged for, of memory and, with what is being written, of NVMe, does
 *   not grow above its quota.
 *   Pins: what pins keep does not grow above a budget: of the host, a context, a salt, a client.
 *   ... Foresight's leave half of it free. One that was acknowledged stays until its deadline.
 *   Reservations: they end with their time and with their client; what they may come to together
 *   does not grow above what promises, pins and quarantine may take.
 *   Puts: a removed context keeps none that nobody commits, and while a put may still bring its
 *   bytes its pending blocks leave for a deletion or a new epoch alone.
 *   Runs: the blocks of one are charged to one account, as its room was asked for.
 *   Lines: when a client's process is dead nothing is written into what was its memory.
 *   Retention: a block is kept as puts of its own tenant said.
 *   Conversations: nobody but who ended a turn goes on with it.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"
#include "tierd/core/state.h"

#define LATE_NS (200 * MSEC)
/* a conversation is remembered so long after its turn's end, at least */
#define KNOWN_NS (59000 * MSEC)

/* ---- pins --------------------------------------------------------------------------------- */

static void pinned_check(struct world *w, uint64_t *before, uint64_t now, uint64_t limit,
			 const char *whose)
{
	if (limit && now > limit && now > *before)
		world_fail(w, "P7: pins of %s claim %llu bytes of %llu", whose,
			   (unsigned long long)now, (unsigned long long)limit);
	*before = now;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return b && b < a ? b : a;
}

static void context_pins(struct world *w, uint32_t which, uint32_t t)
{
	const struct core *c = w->core;
	const struct context *x = core_context(c, w->context[which].id);
	uint64_t all;

	if (!w->context[which].made || !x)
		return;
	all = least(c->pool[t].capacity, x->plan.quota[t]) / 100 * c->config.pin_percent;
	pinned_check(w, &w->theirs.context[which][t], x->pinned[t], least(all, x->spec.pins[t]),
		     "a context");
	for (uint32_t i = LEDGER_FIRST; i < x->salts.count; i++) {
		const struct holding *a = &x->salts.account[i];
		uint64_t own = a->pin_limit[t] ? a->pin_limit[t] : c->config.salt_pins[t];

		if (a->open && a->key < WORLD_SALTS)
			pinned_check(w, &w->theirs.salt[which][a->key][t], a->pinned[t], own,
				     "a salt");
	}
}

/* A pin that was acknowledged is one until its deadline, or until its client ends it or goes. */
static void pins_kept(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < WORLD_LEASES; i++) {
		const struct world_pin *p = &w->pin[i];
		const struct pin *at = &c->pins.table[p->id % CORE_PINS_MAX];

		if (p->id && p->deadline_ns > w->now_ns && w->client[p->client].state == 1 &&
		    !w->context[p->context].removing && !(at->used && at->id == p->id))
			world_fail(w, "P7: a pin ended %llu ms before its deadline",
				   (unsigned long long)((p->deadline_ns - w->now_ns) / MSEC));
	}
}

/* What foresight pinned last left half of the budget to those who read. */
static void foresight_pins(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < c->pins.high; i++) {
		const struct pin *p = &c->pins.table[i];
		uint64_t all = c->pool[p->tier].capacity / 100 * c->config.pin_percent;

		if (p->used && p->layers && p->id / CORE_PINS_MAX == c->pins.seq &&
		    c->pins.bytes[p->tier] > all / 2)
			world_fail(w, "P7: foresight pinned up to %llu bytes of %llu",
				   (unsigned long long)c->pins.bytes[p->tier],
				   (unsigned long long)all);
	}
}

static void pins_check(struct world *w)
{
	const struct core *c = w->core;
	uint64_t seen = c->pins.seq + c->pins.bytes[ABI_TIER_HBM] + c->pins.bytes[ABI_TIER_CXL];

	if (w->theirs.pins == seen)
		return; /* nothing was pinned or let go */
	w->theirs.pins = seen;
	foresight_pins(w);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		uint64_t sum[WORLD_CLIENTS] = { 0 };

		pinned_check(w, &w->theirs.host[t], c->pins.bytes[t],
			     c->pool[t].capacity / 100 * c->config.pin_percent, "all");
		for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
			context_pins(w, i, t);
		for (uint32_t i = 0; c->pins.count && i < c->pins.high; i++)
			if (c->pins.table[i].used && c->pins.table[i].tier == t)
				sum[c->pins.table[i].client] += c->pins.table[i].bytes;
		for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
			pinned_check(w, &w->theirs.client[i][t], sum[i],
				     c->config.client_pins_bytes[t], "a client");
	}
}

/* ---- quotas ------------------------------------------------------------------------------- */

/* Whatever was held when a limit was set, it does not grow above that. */
static void grown_check(struct world *w, uint64_t *before, uint64_t now, uint64_t limit,
			const char *what)
{
	if (now > limit && now > *before)
		world_fail(w, "quota: %s: %llu bytes of %llu", what, (unsigned long long)now,
			   (unsigned long long)limit);
	*before = now;
}

/* Bytes that runs under way bring the context. */
static uint64_t coming(const struct core *c, const struct context *x)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < c->drives * CORE_RUNS_MAX; i++) {
		const struct run *run = drive_run(c, i);

		for (uint32_t k = 0;
		     run->phase != RUN_FREE && run->ctx == x && k < run->blocks; k++)
			bytes += block_bytes(x, run->slot[k]);
	}
	return bytes;
}

static void quotas_check(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		const struct context *x = core_context(c, w->context[i].id);
		struct space_stats st;

		if (!w->context[i].made || !x)
			continue;
		grown_check(w, &w->theirs.has[i][ABI_TIER_NVME], x->nvme_bytes + coming(c, x),
			    x->plan.quota[ABI_TIER_NVME], "a context's NVMe");
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
			if (!x->space[t])
				continue;
			space_stats(x->space[t], &st);
			grown_check(w, &w->theirs.has[i][t], st.charged, x->plan.quota[t],
				    "a context's memory");
		}
	}
}

/* ---- reservations, puts, runs ------------------------------------------------------------- */

/* In the event that granted promises pages may have been let go that a reader holds, after that. */
static void promises_check(struct world *w, uint32_t which)
{
	struct world_theirs *t = &w->theirs;
	const struct core *c = w->core;
	const struct context *x = core_context(c, w->context[which].id);
	uint64_t promises, held, least, whole;

	if (!w->context[which].made || !x)
		return;
	promises = x->reserved_most_blocks * x->spec.geometry.block_bytes;
	held = x->pinned[ABI_TIER_CXL] + c->reclaim.quarantined[ABI_TIER_CXL];
	least = held < t->beside[which] ? held : t->beside[which];
	whole = x->plan.quota[ABI_TIER_CXL] / 100 * 80;
	if (promises > t->promises[which] && promises + least > whole)
		world_fail(w, "I7: promises of %llu bytes beside %llu held, of %llu",
			   (unsigned long long)promises, (unsigned long long)least,
			   (unsigned long long)whole);
	t->promises[which] = promises;
	t->beside[which] = held;
}

static void reservations_check(struct world *w)
{
	const struct core *c = w->core;

	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		promises_check(w, i);

	for (uint32_t i = 0; c->reserve.count && i < c->reserve.high; i++) {
		const struct reservation *r = &c->reserve.table[i];

		if (r->used && (r->deadline_ns + LATE_NS + w->patience_ns < w->now_ns ||
				c->client[r->client].state != 1 || r->ctx->closing))
			world_fail(w, "I7: a reservation outlives its time or its client");
	}
}

static struct world_writer *writer_of(struct world *w, const struct put *p)
{
	struct world_writer *unused = NULL;

	for (uint32_t i = 0; i < WORLD_WRITERS; i++) {
		if (w->theirs.writer[i].handle == p->handle)
			return &w->theirs.writer[i];
		if (w->theirs.writer[i].looked + 1 < w->theirs.looked)
			unused = &w->theirs.writer[i];
	}
	if (unused)
		*unused = (struct world_writer){ .handle = p->handle };
	return unused;
}

/* committed: some block was dropped that was visible; it may be one of these. */
static void put_check(struct world *w, const struct put *p, bool committed)
{
	const struct context *x = p->ctx;
	struct world_writer *seen = writer_of(w, p);
	uint64_t pending = 0;

	if (x->closing && !p->committing)
		world_fail(w, "a put of a removed context that nobody commits is there");
	for (uint32_t i = 0; seen && i < p->done && i < 64; i++) {
		uint32_t n = model_number(index_block(&x->ix, p->ref[i].slot)->key);
		bool gone = !block_alive(x, p->ref[i]);
		const struct world_life *now = &w->context[strcmp(x->spec.name, "memory") == 0].now;

		if (gone && i >= p->freed && seen->pending >> i & 1 && !committed &&
		    p->epoch == x->spec.epoch && !x->closing && n < WORLD_KEYS &&
		    !now->key[n].doomed)
			world_fail(w, "I5: block %u left under its writer", p->ref[i].slot);
		if (bit_get(p->mine, i) && !gone &&
		    index_block(&x->ix, p->ref[i].slot)->state == ABI_BLOCK_PENDING)
			pending |= 1ull << i;
	}
	if (seen)
		seen->pending = pending;
	if (seen)
		seen->looked = w->theirs.looked;
}

static void puts_check(struct world *w)
{
	const struct core *c = w->core;
	bool committed = w->theirs.dropped != c->metrics.dropped_blocks;

	w->theirs.dropped = c->metrics.dropped_blocks;
	w->theirs.looked++;
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
		for (const struct put *p = c->puts.of[i].first; p; p = p->next)
			put_check(w, p, committed);
}

static void run_check(struct world *w, const struct run *run)
{
	for (uint32_t i = 1; i < run->blocks; i++)
		if (!(run->ctx->meta[run->slot[i]].flags & BLOCK_DROPPED) &&
		    !(run->ctx->meta[run->slot[0]].flags & BLOCK_DROPPED) &&
		    block_account(run->ctx, run->slot[i]) !=
			    block_account(run->ctx, run->slot[0]))
			world_fail(w, "quota: a run of blocks of several accounts");
}

/* ---- lines -------------------------------------------------------------------------------- */

#define DEAD_BYTE 0x5c

/* The memory of a client whose process is dead is nobody's; the next one has its own. */
void theirs_lines_anew(struct world *w, uint32_t client)
{
	struct world_client *k = &w->client[client];
	struct abi_stream *old = k->line;

	k->line = k->dead_line;
	k->dead_line = old;
	memset(old, DEAD_BYTE, WORLD_LINES * sizeof(*old));
	memset(k->line, 0, WORLD_LINES * sizeof(*k->line));
}

static void lines_check(struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++) {
		const uint8_t *at = (const uint8_t *)w->client[c].dead_line;
		size_t bytes = WORLD_LINES * sizeof(struct abi_stream);

		if (at[0] != DEAD_BYTE || memcmp(at, at + 1, bytes - 1) != 0) {
			world_fail(w, "I3: a line of a dead client was written");
			return;
		}
	}
}

/* ---- retention ---------------------------------------------------------------------------- */

/*
 * What some put of the block's salt said of the key. A put of another one may have brought the
 * bytes of what this one reserved: then nothing is said.
 */
void theirs_retained(struct world *w, uint32_t context, uint32_t n, uint32_t slot)
{
	const struct context *x = core_context(w->core, w->context[context].id);
	const struct world_key *key = &w->context[context].now.key[n];
	uint64_t salt = block_salt(x, slot);
	uint32_t keep = x->meta[slot].keep, others = 0;
	bool said;

	if (salt >= WORLD_SALTS) {
		world_fail(w, "retention: key %u is of salt %llu", n, (unsigned long long)salt);
		return;
	}
	for (uint32_t i = 0; i < WORLD_SALTS; i++)
		others |= i != salt ? key->said[i] : 0u;
	said = keep & KEEP_TTL ? key->said[salt] & SAID_TTL : key->said[salt] >> keep & 1;
	if (!said && !(keep == 0 && others))
		world_fail(w, "retention: key %u of salt %llu is kept as %u, its puts said %x", n,
			   (unsigned long long)salt, keep, key->said[salt]);
}

/* ---- conversations ------------------------------------------------------------------------ */

/* It is asked for: is it known to be another's? */
void theirs_conversation_asked(struct world *w, uint32_t client, struct ask *a,
			       const struct abi_sqe *sqe)
{
	const struct world_context *x = &w->context[a->context];
	const struct world_conversation *s = &w->conversation[sqe->handle];

	a->handle = sqe->handle;
	a->mode = sqe->mode;
	if (s->holder != client && s->known_ns > w->now_ns && s->context_id == x->id && x->made &&
	    !x->removing)
		a->wild = true;
}

void theirs_conversation_answered(struct world *w, uint32_t client, const struct ask *a,
				  const struct abi_cqe *cqe)
{
	struct world_conversation *s = &w->conversation[a->handle];

	if (cqe->res)
		return;
	if (a->mode == ABI_CONVERSATION_TURN_END) {
		s->holder = client;
		s->context_id = w->context[a->context].id;
		s->known_ns = w->now_ns + KNOWN_NS;
	} else if (a->mode == ABI_CONVERSATION_CLOSE) {
		s->known_ns = 0;
	}
}

/* ---- after each event --------------------------------------------------------------------- */

void theirs_check(struct world *w)
{
	pins_check(w);
	pins_kept(w);
	quotas_check(w);
	reservations_check(w);
	puts_check(w);
	lines_check(w);
	for (uint32_t i = 0; i < w->core->drives * CORE_RUNS_MAX; i++)
		if (drive_run(w->core, i)->phase != RUN_FREE && drive_run(w->core, i)->ctx)
			run_check(w, drive_run(w->core, i));
}

/* A new core. */
void theirs_boot(struct world *w)
{
	memset(&w->theirs, 0, sizeof(w->theirs));
	memset(w->theirs.has, 0xff, sizeof(w->theirs.has)); /* whatever is read back */
}
