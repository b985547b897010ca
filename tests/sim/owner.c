/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts of the world, and what their owners do: raise epochs, evict, drain, remove contexts and
 * make them again, and set limits of salts, shares and limits of contexts; model_check_quotas
 * checks that limits hold.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/twice.h"
#include "tests/sim/world_priv.h"

/* ---- contexts ----------------------------------------------------------------------------- */

static void part(struct abi_geometry *g, const char *name, uint32_t kind, uint32_t layers,
		 uint32_t groups, uint32_t bytes)
{
	struct abi_part *p = &g->part[g->part_count++];

	snprintf(p->name, sizeof(p->name), "%s", name);
	p->kind = (uint16_t)kind;
	p->hit_rule = kind == ABI_KIND_STATE ? ABI_HIT_LAST : ABI_HIT_EVERY;
	p->hit_arg = kind == ABI_KIND_STATE ? 1 : 0;
	p->shard_rule = kind == ABI_KIND_SPARSE ? ABI_SHARD_GROUPS : ABI_SHARD_REPLICATED;
	p->layers = layers;
	p->groups = groups;
	p->page_bytes = p->page_stride = bytes;
	p->page_base = g->pages_per_block;
	g->pages_per_block += layers * groups;
	g->block_bytes += (uint64_t)layers * groups * bytes;
}

/* flat: all pages are of one size, so that its slabs can be full to the last place. */
static void context_spec(const struct world *w, struct disk_context *spec, uint32_t which)
{
	bool flat = w->faults->flat >> which & 1;

	memset(spec, 0, sizeof(*spec));
	snprintf(spec->name, sizeof(spec->name), "%s", which ? "memory" : "store");
	spec->mode = 0600;
	spec->kind = 1;
	spec->quota[ABI_TIER_NVME] = which ? UINT64_MAX : 0;
	spec->geometry.block_tokens = 128;
	spec->geometry.page_align = ABI_PAGE_ALIGN;
	part(&spec->geometry, "kv", ABI_KIND_SPARSE, 2, 2, wide_part(w, which, 0, PAGE));
	part(&spec->geometry, "index", ABI_KIND_INDEX, 2, 1, wide_part(w, which, 1, PAGE));
	part(&spec->geometry, "state", ABI_KIND_STATE, 1, 1,
	     wide_part(w, which, 2, flat ? PAGE : STATE_BYTES));
	spec->geometry.part[1].layer_first = 1; /* four layers of a model */
	spec->geometry.part[2].layer_first = 3;
}

bool context_make(struct world *w, uint32_t which, const struct disk_context *from)
{
	struct world_context *x = &w->context[which];
	struct core_context_plan plan;
	struct core_context_memory memory = { .index = NULL };
	struct disk_context spec;
	char why[128] = "";

	if (from)
		spec = *from;
	else
		context_spec(w, &spec, which);
	if (!from && w->faults->wide)
		wide_spec(w, which, &spec);
	if (!from)
		lives_mark(&spec, w->lives + 1);
	if (core_context_plan(w->core, &spec, &plan, why, sizeof(why))) {
		if (strstr(why, "index.size"))
			return false; /* tables are full: wide_config */
		world_fail(w, "plan: %s", why);
		return false;
	}
	memory.index = x->index = calloc(1, plan.index_bytes);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		memory.mem[t] = x->mem[t] = calloc(1, plan.mem_bytes[t] + 1);
	x->hbm_bytes = plan.mem_bytes[ABI_TIER_HBM];
	x->header = (const struct abi_index_header *)x->index;
	x->geometry = spec.geometry;
	if (core_context_create(w->core, &spec, &memory,
				token_of(TOKEN_MAKE, which, w->lives + 1), &x->id)) {
		context_free(w, which);
		return false;
	}
	if (w->starve_ns % 2) /* by chance: a policy that admits little to NVMe */
		twice_use(core_context(w->core, x->id));
	if (from)
		lives_found(w, which, from);
	else
		lives_begin(w, which);
	memset(x->hard, 0, sizeof(x->hard));
	if (which) /* nothing in it outlives the daemon */
		for (uint32_t n = 0; n < WORLD_KEYS; n++)
			x->now.key[n].put_epochs = 0;
	x->epoch = from ? from->epoch : 1;
	x->made = true;
	x->removing = false;
	return true;
}

void context_free(struct world *w, uint32_t which)
{
	struct world_context *x = &w->context[which];

	free(x->index);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		free(x->mem[t]);
		x->mem[t] = NULL;
	}
	x->index = NULL;
	x->made = false;
	x->id = UINT32_MAX; /* nobody's: after a crash another may get the number that it had */
}

/* ---- owners ------------------------------------------------------------------------------- */

static void raise_epoch(struct world *w, uint32_t which)
{
	struct world_context *x = &w->context[which];

	if (core_context_epoch(w->core, x->id, 0, token_of(TOKEN_EPOCH, which, x->now.number)))
		return;
	w->result->epochs++;
	x->epoch = x->header->epoch;
	w->anew |= !which;
	for (uint32_t n = 0; n < WORLD_KEYS; n++)
		x->now.key[n].durable = false;
	for (uint32_t p = 0; p < WORLD_LEASES; p++)
		if (w->pin[p].context == which)
			w->pin[p].id = 0;
}

static void remove_context(struct world *w, uint32_t which)
{
	struct world_context *x = &w->context[which];

	if (!x->made || x->removing)
		return;
	x->removing = true;
	for (uint32_t n = 0; n < WORLD_KEYS; n++)
		x->now.key[n].durable = false;
	for (uint32_t p = 0; p < WORLD_LEASES; p++)
		if (w->pin[p].context == which)
			w->pin[p].id = 0;
	core_context_remove(w->core, x->id, token_of(TOKEN_REMOVED, which, x->now.number),
			    token_of(TOKEN_REMOVE, which, x->now.number));
}

/* Limits that the context can live with, of one salt; or a share of the context itself. */
static void owner_quota(struct world *w, uint32_t which)
{
	struct world_context *x = &w->context[which];
	struct core_quota q = { .context_id = x->id };
	uint32_t salt = 1 + world_below(w, WORLD_SALTS - 1);
	bool lift = world_chance(w, 400000);

	q.tier = world_below(w, ABI_TIER_NVME + 1);
	if (!lift && q.tier < ABI_MEM_TIERS && world_chance(w, 400000))
		q.pins = (1 + world_below(w, 24)) * BLOCK_BYTES; /* the audit follows them */
	if (world_chance(w, 500000)) {
		q.limit.soft = lift ? 0 : (1 + world_below(w, 4)) << 20;
		if (!lift && world_chance(w, 500000) && q.tier < ABI_MEM_TIERS)
			q.limit.hard = (5ull + world_below(w, 4)) << 20;
		core_quota_set(w->core, &q, TOKEN_OTHER);
		return;
	}
	q.who = CORE_HOLDER_SALT;
	q.key = salt;
	if (!lift)
		q.limit.hard = (8 + world_below(w, 32)) * BLOCK_BYTES;
	if (!lift && world_chance(w, 500000))
		q.limit.soft = q.limit.hard / 2;
	if (core_quota_set(w->core, &q, TOKEN_OTHER))
		return;
	x->hard[salt][q.tier] = q.limit.hard;
	x->held[salt][q.tier] = UINT64_MAX;
}

/* A limit of the catalog is in force again, and as before puts of the salt keep to it. */
void owner_limit_restore(struct world *w, const struct disk_limit *limit)
{
	int err = core_limit_restore(w->core, limit);

	if (err || (!limit->salt && !w->faults->wide) || limit->salt >= WORLD_SALTS)
		world_fail(w, "a limit of salt %llu: %d", (unsigned long long)limit->salt, err);
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
			struct core_context_stats st;
			struct world_context *x = &w->context[i];

			if (!x->made || core_context_stats(w->core, x->id, &st) ||
			    st.spec.uid != limit->context_uid)
				continue;
			x->hard[limit->salt][t] = limit->hard[t];
			x->held[limit->salt][t] = UINT64_MAX;
		}
}

/* Another eviction policy while blocks come and go; what it says of them is checked as ever. */
static void owner_policy(struct world *w, uint32_t which)
{
	uint32_t count = 0;

	while (policy_at(count))
		count++;
	if (world_below(w, 2))
		core_policy_try(w->core, w->context[which].id,
				policy_at(world_below(w, count))->name, world_below(w, 1000000000));
	else
		core_policy_set(w->core, w->context[which].id,
				policy_at(world_below(w, count))->name, TOKEN_OTHER);
}

/* Memory is to be empty, as far as nobody uses it. */
void owner_evict_all(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++)
		for (uint32_t t = 0; w->context[i].made && t < ABI_MEM_TIERS; t++)
			core_evict(w->core, w->context[i].id, t, CXL_BYTES, TOKEN_OTHER);
}

void owner_step(struct world *w)
{
	uint32_t which = world_below(w, WORLD_CONTEXTS), dice = world_below(w, 100);
	struct world_context *x;
	struct core_event e = { .kind = CORE_EV_TICK };

	if (drives_owner(w))
		return;
	if (w->faults->wide && wide_owner(w))
		return;
	if (!w->context[!which].made)
		which = !which; /* nobody can do much without it */
	x = &w->context[which];
	if (!x->made) {
		if (lives_room(x)) /* open to clients once owner_replied says so */
			context_make(w, which, NULL);
	} else if (dice < 6 || (w->faults->voids && dice > 69)) {
		raise_epoch(w, which);
	} else if (dice < (w->faults->tight ? 14 : 9)) {
		remove_context(w, which);
	} else if (dice < 50) {
		core_evict(w->core, x->id, world_below(w, ABI_MEM_TIERS), 1u << 20, TOKEN_OTHER);
	} else if (dice < 55) {
		core_drain(w->core, TOKEN_OTHER);
	} else if (dice < 80) {
		owner_quota(w, which);
	} else if (dice < 90) {
		owner_policy(w, which);
	}
	world_event(w, &e);
}

void owner_replied(struct world *w, uint64_t token, int res, uint64_t value)
{
	uint32_t kind = token % 16, which = token / 16 % 16;
	uint64_t life = token / 256;

	if (!res && (kind == TOKEN_MAKE || kind == TOKEN_EPOCH || kind == TOKEN_REMOVED))
		client_crash_soon(w);
	if (kind == TOKEN_MAKE && !res) {
		lives_made(w, which, life);
		for (uint32_t i = 0; i < WORLD_CLIENTS; i++)
			if (w->client[i].state == 1)
				client_attach(w, i);
	}
	if (kind == TOKEN_EPOCH && !res)
		lives_raised(w, which, life, value);
	if (kind == TOKEN_REMOVED && !res)
		lives_removed(w, which, life);
	if (kind != TOKEN_REMOVE || res)
		return;
	for (uint32_t l = 0; l < WORLD_LEASES; l++)
		if (w->lease[l].data && w->lease[l].context == which)
			world_fail(w, "context %u went while its pages were leased", which);
	lend_removed(w, which);
	reader_release(w, WORLD_CLIENTS, which);
	lives_end(w, which);
	context_free(w, which);
}
