/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wide worlds: what other worlds never or hardly have. By the bits of faults.wide, which a seed
 * makes: each policy, pages and tables of odd sizes, contexts without HBM, limits of all that
 * clients may have, small windows of streams, events whose share is so small that few walks end in
 * one. And requests that are rare: single pages, parts and
 * layers of blocks, limits of connections and of the public salt, clients that may only read,
 * clients whose leases keep too much, processes that die without a word. Others' random numbers
 * stay as they are: nothing here is drawn in a world that is not wide.
 *
 * What must hold beside the rest: a page that is said to be there is; who may only read changes
 * nothing; no connection ends but over its leases; limits hold; what is written lies in memory that
 * is charged; what is told of requests and streams adds up.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world_priv.h"

#define PAGES_ASKED 24u
#define PAGES_OF_ALL 7u /* of a block */

/* What each number of the world's shape is for. */
enum trait {
	TRAIT_POLICY, /* ... of context 0, of context 1; so are others in twos */
	TRAIT_PAGES = 2,
	TRAIT_BLOCKS = 4,
	TRAIT_TIERS = 6,
	TRAIT_SHARES = 8,
	TRAIT_REQUESTS = 10,
	TRAIT_PUTS,
	TRAIT_PINS,
	TRAIT_LEASES,
	TRAIT_STREAMS,
	TRAIT_WRITEBACK,
	TRAIT_DIRTY,
	TRAIT_SALTS,
	TRAIT_CLIENTS,
	TRAIT_TALK,
	TRAIT_TABLES = 40,
	TRAIT_WALKS,
	TRAIT_SPENT,
};

/* A number below n: the same for this trait of this world for ever. */
static uint32_t trait(const struct world *w, uint32_t which, uint32_t n)
{
	uint64_t z = (w->faults->wide + which) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 32) * 0xd6e8feb86659fd93ull;
	return (uint32_t)((z ^ z >> 32) % n);
}

/* ---- settings ----------------------------------------------------------------------------- */

static struct core_limit limit_of(const struct world *w, uint32_t which, uint32_t tier)
{
	uint32_t kind = trait(w, which, 6);
	uint64_t hard = (12ull + trait(w, which + 100 * (tier + 1), 40)) * BLOCK_BYTES;

	switch (kind) {
	case 0:
		return (struct core_limit){ .hard = hard };
	case 1:
		return (struct core_limit){ .soft = hard / 3, .hard = hard };
	case 2:
		return (struct core_limit){ .soft = hard / 4 };
	default:
		return (struct core_limit){ 0 };
	}
}

void wide_config(struct world *w, struct core_config *config)
{
	static const uint32_t requests[] = { 0, 0, 0, 4, 6 }, puts[] = { 0, 0, 0, 1, 3 },
			      pins[] = { 0, 0, 0, 1, 2 }, leases[] = { 0, 0, 1, 1, 2 },
			      streams[] = { 0, 24, 40, 64 }, writeback[] = { 0, 1, 50 },
			      dirty[] = { 0, 2, 10, 80 },
			      tables[] = { 0, 0, 1400 << 10, 2400 << 10 },
			      walks[] = { 0, 0, 0, 64, 256 };

	if (!w->faults->wide)
		return;
	config->client_requests = requests[trait(w, TRAIT_REQUESTS, 5)];
	config->client_puts = puts[trait(w, TRAIT_PUTS, 5)];
	config->client_pins = pins[trait(w, TRAIT_PINS, 5)];
	config->quarantine_percent = leases[trait(w, TRAIT_LEASES, 5)];
	config->stream_share = streams[trait(w, TRAIT_STREAMS, 4)];
	config->writeback_percent = writeback[trait(w, TRAIT_WRITEBACK, 3)];
	config->dirty_percent = dirty[trait(w, TRAIT_DIRTY, 4)];
	config->table_bytes = tables[trait(w, TRAIT_TABLES, 4)];
	config->walk_items = walks[trait(w, TRAIT_WALKS, 5)];
	w->patience_ns = config->walk_items ? 60000 * MSEC : 0;
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		config->salt_limit[t] = limit_of(w, TRAIT_SALTS, t);
		config->client_limit[t] = limit_of(w, TRAIT_CLIENTS, t);
	}
}

/* So many blocks the context may have; 0 = as many as there is room for. */
static uint32_t blocks_of(const struct world *w, uint32_t which)
{
	static const uint32_t blocks[] = { 0, 0, 0, 64, 100, 160, 200 };

	return blocks[trait(w, TRAIT_BLOCKS + which, 7)];
}

/* Has somebody a limit there that holds for blocks of any salt, or the context's table? */
bool wide_limits(const struct world *w, uint32_t which, uint32_t tier)
{
	return w->faults->wide &&
	       (limit_of(w, TRAIT_SALTS, tier).hard || limit_of(w, TRAIT_CLIENTS, tier).hard ||
		w->clients_limited || blocks_of(w, which));
}

/* Are events spent before it is known who can leave? */
bool wide_spends(const struct world *w)
{
	return w->faults->wide && !trait(w, TRAIT_SPENT, 4);
}

/* Has the context with a part of the store filled half of that? */
bool wide_store_full(const struct world *w)
{
	struct core_context_stats st;

	return w->faults->wide && w->context[0].made &&
	       !core_context_stats(w->core, w->context[0].id, &st) &&
	       st.tier[ABI_TIER_NVME].used >= st.tier[ABI_TIER_NVME].quota / 2;
}

/* Of two sizes at most: HBM has no more slabs for both contexts. */
uint32_t wide_part(const struct world *w, uint32_t which, uint32_t part, uint32_t usual)
{
	static const uint32_t bytes[2][6][3] = {
		{ { 4096, 4096, 20480 }, { 8192, 4096, 4096 }, { 4096, 8192, 8192 },
		  { 4096, 8192, 4096 }, { 4096, 4096, 16384 }, { 4096, 12288, 4096 } },
		{ { 512, 512, 1536 }, { 3584, 512, 512 }, { 4608, 512, 4608 },
		  { 1536, 1536, 4096 }, { 8192, 2048, 2048 }, { 2560, 2560, 2560 } },
	};
	uint32_t kind = trait(w, TRAIT_PAGES + which, 10);

	return w->faults->wide && kind < 6 ? bytes[which][kind][part] : usual;
}

void wide_spec(const struct world *w, uint32_t which, struct disk_context *spec)
{
	static const char *const policy[] = { "lru",	    "fifo",  "arc", "s3fifo",
					      "reuse-hits", "reuse", "" };
	uint32_t tiers = trait(w, TRAIT_TIERS + which, 6);

	snprintf(spec->policy, sizeof(spec->policy), "%s",
		 policy[trait(w, TRAIT_POLICY + which, 7)]);
	spec->blocks_max = blocks_of(w, which);
	if (which && trait(w, TRAIT_PAGES + which, 10) < 6)
		spec->geometry.page_align = 512;
	if (tiers == 0)
		spec->quota[ABI_TIER_HBM] = UINT64_MAX; /* none of it */
	if (tiers == 1)
		spec->quota[ABI_TIER_HBM] = 4u << 20;
	if (tiers == 1 || tiers == 2)
		spec->quota[ABI_TIER_CXL] = 6u << 20;
	if (!which && tiers == 2)
		spec->quota[ABI_TIER_NVME] = 2u << 20;
	if (trait(w, TRAIT_SHARES + which, 3) == 0)
		spec->soft[ABI_TIER_CXL] = (1 + which) * (1u << 20);
}

/* ---- requests ----------------------------------------------------------------------------- */

/* Only some layers, or parts. */
void wide_range(struct world *w, struct ask *a, struct abi_sqe *sqe)
{
	const struct abi_geometry *g = &w->context[a->context].geometry;

	if ((sqe->op != ABI_OP_FETCH && sqe->op != ABI_OP_PREFETCH) || world_chance(w, 600000))
		return;
	if (world_chance(w, 500000)) {
		sqe->part_first = (uint16_t)world_below(w, 4);
		sqe->part_count = (uint16_t)world_below(w, 3);
	}
	sqe->layer_first = (uint16_t)world_below(w, 3);
	sqe->layer_count = (uint16_t)world_below(w, 3);
	for (uint32_t page = 0; page < PAGES_OF_ALL; page++) {
		uint32_t p = model_page_part(page);
		uint32_t layer = (page - g->part[p].page_base) / g->part[p].groups;
		bool part = !sqe->part_count || p - sqe->part_first < sqe->part_count;

		if (part && (!sqe->layer_count || layer - sqe->layer_first < sqe->layer_count))
			a->pages |= 1ull << page;
	}
	a->pages |= 1ull << 63; /* it is known, even if it is none */
}

/* Single pages of blocks that are there, mostly. */
static void ask_pages(struct world *w, uint32_t client, uint32_t i)
{
	struct world_client *k = &w->client[client];
	struct ask *a = &k->ask[i];
	struct abi_page_ref *ref = (struct abi_page_ref *)(k->staging + a->staging + ARENA_ARGS);
	struct abi_sqe sqe = { .op = ABI_OP_FETCH_PAGES, .user_data = i };

	client_keys(w, a);
	a->kind = ASK_OTHER;
	a->op = ABI_OP_FETCH_PAGES;
	sqe.count = 1 + world_below(w, PAGES_ASKED);
	for (uint32_t n = 0; n < sqe.count; n++) {
		uint32_t slot = 0;
		const struct abi_block *b =
			model_find(w, a->context, (a->first + world_below(w, 24)) % WORLD_KEYS,
				   &slot);

		ref[n] = (struct abi_page_ref){ .slot = slot, .generation = b ? b->generation : 0 };
		ref[n].page = world_below(w, PAGES_OF_ALL + (world_chance(w, 50000) ? 60 : 0));
		if (world_chance(w, 20000))
			ref[n].generation--;
	}
	a->count = sqe.count;
	sqe.context_id = w->context[a->context].id;
	sqe.arg_offset = a->staging + ARENA_ARGS;
	sqe.arg_bytes = sqe.count * (uint32_t)sizeof(*ref);
	sqe.tier = world_chance(w, 500000) ? ABI_TIER_HBM : ABI_TIER_CXL;
	sqe.klass = (uint8_t)world_below(w, ABI_CLASS_SPECULATIVE + 1);
	sqe.deadline_ns = a->deadline_ns;
	a->shard = sqe.tier;
	client_submit(w, client, &sqe);
}

/* READY: all of them are there, unless some have left since, in this event. */
void wide_pages(struct world *w, uint32_t client, const struct ask *a, const struct abi_cqe *cqe)
{
	const struct abi_page_ref *ref = (const struct abi_page_ref *)(w->client[client].staging +
								       a->staging + ARENA_ARGS);

	if (cqe->value > a->count)
		world_fail(w, "pages: %llu of %u are there", (unsigned long long)cqe->value,
			   a->count);
	if (a->unhurried && cqe->status == ABI_STATUS_LATE && !model_clogged(w))
		world_fail(w, "I8: a fetch of pages is late on a host at rest");
	if (cqe->res || cqe->status != ABI_STATUS_READY || client_left(w))
		return;
	if (cqe->value != a->count)
		world_fail(w, "pages: READY, and %llu of %u are there",
			   (unsigned long long)cqe->value, a->count);
	for (uint32_t n = 0; n < a->count; n++) {
		const struct world_context *x = &w->context[a->context];
		const struct abi_block *b =
			(const struct abi_block *)(x->index + x->header->block_offset) +
			ref[n].slot;

		if (ref[n].page >= PAGES_OF_ALL || b->generation != ref[n].generation)
			world_fail(w, "pages: READY with one that is not there");
		else if (b->parts >> model_page_part(ref[n].page) & 1 &&
			 abi_word_state(model_desc(w, a->context, ref[n].slot, ref[n].page)
						->word[a->shard]) != ABI_PAGE_READY)
			world_fail(w, "pages: READY without page %u of block %u", ref[n].page,
				   ref[n].slot);
	}
}

/* True: that is what the client asks for. */
bool wide_ask(struct world *w, uint32_t client, uint32_t i)
{
	if (!w->faults->wide)
		return false;
	if (world_chance(w, 100000)) {
		ask_pages(w, client, i);
		return true;
	}
	if (world_chance(w, trait(w, TRAIT_TALK, 4) ? 10000 : 250000)) {
		ahead_conversation(w, client, i);
		return true;
	}
	return false;
}

/* ---- owners, ends ------------------------------------------------------------------------- */

/* True: that is what an owner, or an operator, does. */
bool wide_owner(struct world *w)
{
	uint32_t which = world_below(w, WORLD_CONTEXTS);
	struct core_event e = { .kind = CORE_EV_TICK };
	struct core_quota q = { .context_id = w->context[which].id,
				.who = CORE_HOLDER_CLIENT,
				.key = world_below(w, WORLD_CLIENTS + 1),
				.tier = world_below(w, ABI_TIER_COUNT) };

	if (!world_chance(w, 150000))
		return false;
	if (world_chance(w, 700000))
		q.limit.hard = (8 + world_below(w, 32)) * BLOCK_BYTES;
	if (world_chance(w, 500000))
		q.limit.soft = q.limit.hard / 2;
	if (q.tier < ABI_MEM_TIERS && world_chance(w, 300000))
		q.pins = (1 + world_below(w, 24)) * BLOCK_BYTES;
	if (world_chance(w, 300000)) {
		q.who = CORE_HOLDER_SALT;
		q.key = 0;
	}
	if (!core_quota_set(w->core, &q, TOKEN_OTHER)) {
		w->clients_limited |= q.limit.hard != 0;
		memset(w->theirs.holder, 0, sizeof(w->theirs.holder)); /* what held before */
	}
	world_event(w, &e);
	return true;
}

/* The daemon ends connections for one reason only: its leases, or its user's, keep too much. */
void wide_ended(struct world *w, const struct core_action *a)
{
	if (!w->faults->wide || a->end.error != -EDQUOT || a->end.client >= WORLD_CLIENTS ||
	    w->client[a->end.client].state == 0)
		world_fail(w, "connection ended: %s", a->end.why);
	else
		w->client[a->end.client].over = true;
}

/* ---- what is told ------------------------------------------------------------------------- */

static void views_check(struct world *w)
{
	struct core_request_view r;
	struct core_stream_view s;
	struct core_client_view k;
	struct core_stats st;
	uint32_t n = 0, of_clients = 0;

	core_stats(w->core, &st);
	while (!core_request_view(w->core, n, &r))
		n++;
	if (n != st.requests)
		world_fail(w, "views: %u requests of %u", n, st.requests);
	for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
		if (!core_client_view(w->core, i, &k) && w->client[i].state == 1)
			of_clients += k.requests;
	if (of_clients > n)
		world_fail(w, "views: clients have %u requests of %u", of_clients, n);
	for (n = 0; !core_stream_view(w->core, n, &s); n++)
		if (s.released > s.layers || s.ready > s.layers || s.window > s.layers)
			world_fail(w, "views: a stream of %u layers: %u ready, %u released, window "
				   "%u", s.layers, s.ready, s.released, s.window);
	core_device_ns(w->core);
}

#define CHARGED_BITS 4096u
#define WRITTEN_BITS 65536u

/* What is written lies in memory that is charged, and memory that holds nothing is not. */
static void ground_check(struct world *w, uint32_t which, uint32_t tier)
{
	const struct world_context *x = &w->context[which];
	uint64_t charged[CHARGED_BITS / 64] = { 0 }, written[WRITTEN_BITS / 64] = { 0 }, bytes = 0;
	struct core_ground out = { charged, written };
	struct core_range hole;

	core_ground(w->core, x->id, tier, &out);
	for (uint32_t i = 0; i < WRITTEN_BITS; i++) {
		uint32_t huge = i / (ABI_HUGE / ABI_PAGE_ALIGN);

		if (written[i / 64] >> i % 64 & 1 && !(charged[huge / 64] >> huge % 64 & 1))
			world_fail(w, "ground: context %u has bytes in tier %u at %u MiB, where "
				   "nothing is charged", which, tier, 2 * huge);
	}
	for (uint32_t i = 0; i < CHARGED_BITS; i++)
		bytes += charged[i / 64] >> i % 64 & 1 ? ABI_HUGE : 0;
	for (uint64_t at = 0; core_context_hole(w->core, x->id, tier, at, &hole);
	     at = hole.offset + hole.bytes)
		for (uint64_t b = hole.offset / ABI_HUGE;
		     b < (hole.offset + hole.bytes) / ABI_HUGE && b < CHARGED_BITS; b++)
			if (charged[b / 64] >> b % 64 & 1)
				world_fail(w, "ground: a hole of context %u in tier %u is charged",
					   which, tier);
	if (bytes > core_context_taken(w->core, x->id, tier))
		world_fail(w, "ground: context %u has taken less of tier %u than is charged", which,
			   tier);
}

/* Limits of connections: what is held does not grow above them. */
static void connection_check(struct world *w, const struct core_holder_view *v)
{
	struct world_holder *was =
		&w->theirs.holder[(v->key ^ (v->key >> 32) * WORLD_CLIENTS) % WORLD_HOLDERS];

	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		uint64_t hard = v->limit[t].hard, used = v->used[t];

		if (was->key == v->key && was->hard[t] == hard && hard && used > hard &&
		    used > was->held[t])
			world_fail(w, "quota: connection %llx holds %llu of tier %u, at most %llu",
				   (unsigned long long)v->key, (unsigned long long)used, t,
				   (unsigned long long)hard);
		was->hard[t] = hard;
		was->held[t] = used;
	}
	was->key = v->key;
}

/* Descriptors that are given up come back as zeros. */
static void idle_take(struct world *w, uint32_t which)
{
	struct core_range idle;

	while (core_index_idle(w->core, w->context[which].id, &idle)) {
		if (idle.bytes)
			lend_punched(w, &idle);
		memset(w->context[which].index + idle.offset, 0, idle.bytes);
		core_index_given(w->core, &idle);
	}
}

void wide_check(struct world *w)
{
	struct core_holder_view v;
	char why[256];

	views_check(w);
	for (uint32_t k = 0; !core_holder_at(w->core, UINT32_MAX, k, &v); k++)
		if (v.kind == CORE_HOLDER_KEY)
			connection_check(w, &v);
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		for (uint32_t t = 0; w->context[i].made && t < ABI_MEM_TIERS; t++)
			ground_check(w, i, t);
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		if (w->context[i].made)
			idle_take(w, i);
	core_user_may_connect(w->core, world_below(w, 3), why, sizeof(why));
}
