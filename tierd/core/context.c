/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: planning, creating, finding, raising the epoch, removing. The catalog (log/catalog.c)
 * makes each of these survive.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define BLOCKS_MAX ((1u << 30) - 2) /* policies and block_meta keep slots in 30 bits */

/* ---- plan --------------------------------------------------------------------------------- */

static void plan_quotas(const struct core *c, struct disk_context *spec,
			struct core_context_plan *plan)
{
	for (uint32_t tier = 0; tier < ABI_TIER_COUNT; tier++) {
		uint64_t all = tier == ABI_TIER_NVME && !c->drives ? 0 : c->config.capacity[tier];
		uint64_t asked = spec->quota[tier];

		plan->most[tier] = asked == UINT64_MAX ? 0 : asked && asked < all ? asked : all;
		if (spec->kind != DISK_KIND_OBJECT) /* whose tiers are others */
			spec->quota[tier] = plan->most[tier] ? plan->most[tier] : UINT64_MAX;
		plan->quota[tier] = plan->most[tier];
		if (spec->hard[tier] && spec->hard[tier] < plan->most[tier])
			plan->quota[tier] = spec->hard[tier];
	}
}

static uint32_t class_of(uint32_t *stride, uint32_t *classes, uint32_t bytes)
{
	for (uint32_t i = 0; i < *classes; i++)
		if (stride[i] == bytes)
			return i;
	stride[*classes] = bytes;
	return (*classes)++;
}

static uint32_t classes_of(const struct abi_geometry *g, uint32_t *stride)
{
	uint32_t classes = 0;

	assert(g->part_count && g->part_count <= ABI_PARTS_MAX);
	for (uint32_t i = 0; i < g->part_count; i++)
		class_of(stride, &classes, g->part[i].page_stride);
	return classes;
}

/*
 * A part of a tier serves a new context only if each size of its pages has a slab: a block has
 * all of them. (Of all that the tier has it may have less; one of the catalog is as it is.)
 */
static int plan_slabs(const struct core *c, const struct disk_context *spec,
		      const uint64_t quota[ABI_TIER_COUNT], char *why, size_t n)
{
	static const char *const name[ABI_MEM_TIERS] = { "HBM", "CXL" };
	uint32_t stride[ABI_PARTS_MAX], classes = classes_of(&spec->geometry, stride);

	for (uint32_t t = 0; t < ABI_MEM_TIERS && !spec->uid; t++) {
		uint64_t least = space_least(&c->pool[t], quota[t], stride, classes);

		if (!quota[t] || quota[t] >= c->config.capacity[t] || quota[t] >= least)
			continue;
		snprintf(why, n,
			 "the %s quota of %llu bytes is too small for pages of %u sizes: it takes "
			 "%llu",
			 name[t], (unsigned long long)quota[t], classes,
			 (unsigned long long)least);
		return -ENOSPC;
	}
	return 0;
}

static int plan_check(const struct core *c, const struct disk_context *spec,
		      const uint64_t quota[ABI_TIER_COUNT], char *why, size_t n)
{
	const struct abi_geometry *g = &spec->geometry;

	if (quota[ABI_TIER_CXL] < 2 * ABI_HUGE + 2 * g->block_bytes) {
		snprintf(why, n,
			 "the CXL quota of %llu bytes is too small for blocks of %llu: it takes "
			 "two of them and 4 MiB",
			 (unsigned long long)quota[ABI_TIER_CXL],
			 (unsigned long long)g->block_bytes);
		return -ENOSPC;
	}
	if (quota[ABI_TIER_HBM] && quota[ABI_TIER_HBM] < ABI_HUGE) {
		snprintf(why, n,
			 "an HBM quota below 2 MiB cannot be used; leave it out or raise it");
		return -ENOSPC;
	}
	if (plan_slabs(c, spec, quota, why, n))
		return -ENOSPC;
	if (!quota[ABI_TIER_NVME])
		return 0;
	if (g->page_align % DISK_SECTOR) {
		snprintf(why, n, "pages aligned to %u bytes need a context without NVMe quota",
			 g->page_align);
		return -EINVAL;
	}
	if (g->block_bytes > c->config.super.segment_bytes - c->config.super.summary_bytes) {
		snprintf(why, n,
			 "a block of %llu bytes does not fit a segment of the store; format it "
			 "with a larger nvme.segment",
			 (unsigned long long)g->block_bytes);
		return -ENOSPC;
	}
	return 0;
}

/* The least that a whole block takes: what each one must have, or the smallest part. */
static uint64_t least_bytes(const struct abi_geometry *g)
{
	uint64_t every = 0, least = UINT64_MAX;

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *p = &g->part[i];
		uint64_t bytes = (uint64_t)p->layers * p->groups * p->page_stride;

		if (p->hit_rule == ABI_HIT_EVERY)
			every += bytes;
		least = bytes < least ? bytes : least;
	}
	return every ? every : least;
}

/* Slots for as many blocks of a size as the quotas hold, for those that are begun or on their way
 * out beside them. */
static uint64_t blocks_room(uint64_t block_bytes, const struct core_context_plan *plan)
{
	uint64_t blocks = (plan->most[ABI_TIER_NVME] + plan->most[ABI_TIER_CXL]) / block_bytes;

	return blocks + blocks / 8 + 1024;
}

/*
 * What the daemon keeps for it from the start: accounts, places, the index's head and first
 * buckets, and a page of each table that has its own mapping.
 */
static uint64_t empty_bytes(const struct core *c, const struct disk_context *spec,
			    const struct core_context_plan *plan, uint64_t head_bytes)
{
	uint32_t stride[ABI_PARTS_MAX], classes = classes_of(&spec->geometry, stride);
	uint64_t bytes = sizeof(struct context) + head_bytes + spec->geometry.pages_per_block;

	bytes += CONTEXT_SALTS * (sizeof(struct holding) + sizeof(uint16_t));
	bytes += (CONTEXT_TABLES + ABI_MEM_TIERS * LANES) * ABI_PAGE_ALIGN;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (plan->mem_bytes[tier])
			bytes += space_own_bytes(&c->pool[tier], plan->mem_bytes[tier],
						 plan->most[tier], stride, classes);
	return bytes;
}

int core_context_plan(const struct core *c, struct disk_context *spec,
		      struct core_context_plan *plan, char *why, size_t why_bytes)
{
	struct abi_index_header header;
	uint64_t blocks, most;
	int err;

	plan_quotas(c, spec, plan);
	if (!memchr(spec->policy, 0, sizeof(spec->policy)) || !spec->policy[0] ||
	    policy_retired(spec->policy))
		snprintf(spec->policy, sizeof(spec->policy), POLICY_DEFAULT);
	if (!policy_find(spec->policy)) {
		snprintf(why, why_bytes, "no such eviction policy: %.15s", spec->policy);
		return -EINVAL;
	}
	err = plan_check(c, spec, plan->most, why, why_bytes);
	if (err)
		return err;
	blocks = blocks_room(spec->geometry.block_bytes, plan);
	if (!spec->blocks_max)
		spec->blocks_max = blocks;
	most = blocks_room(least_bytes(&spec->geometry), plan);
	plan->blocks_max = spec->blocks_max < most ? spec->blocks_max : most;
	if (spec->blocks_max > BLOCKS_MAX) {
		snprintf(why, why_bytes, "more than %u blocks: lower blocks_max or the quotas",
			 BLOCKS_MAX);
		return -EINVAL;
	}
	memset(&header, 0, sizeof(header));
	index_plan(&header, &spec->geometry, plan->blocks_max);
	plan->index_bytes = header.total_bytes;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		/* Room for the tails of slabs: addresses cost nothing. */
		uint64_t range = plan->most[tier] + plan->most[tier] / 8 + 64 * ABI_HUGE;

		plan->mem_bytes[tier] = plan->most[tier] ? range & ~(uint64_t)(ABI_HUGE - 1) : 0;
	}
	plan->empty_bytes = empty_bytes(c, spec, plan, header.bucket_offset + ABI_PAGE_ALIGN);
	return tables_may_make(c, spec, plan, why, why_bytes);
}

/* ---- create ------------------------------------------------------------------------------- */

static int spaces_open(struct core *c, struct context *x)
{
	const struct abi_geometry *g = &x->spec.geometry;
	uint32_t stride[ABI_PARTS_MAX], classes = 0;

	for (uint32_t i = 0; i < g->part_count; i++) {
		x->part_class[i] = class_of(stride, &classes, g->part[i].page_stride);
		x->block_places[x->part_class[i]] += g->part[i].layers * g->part[i].groups;
	}
	x->classes = classes;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		int err;

		if (!x->plan.mem_bytes[tier])
			continue;
		err = space_open(&x->space[tier], &c->pool[tier], x->plan.mem_bytes[tier],
				 x->plan.most[tier], stride, classes);
		if (err)
			return err;
		space_limit(x->space[tier], x->plan.quota[tier]);
		/* Without NVMe a page that has to leave takes its block along. */
		for (uint32_t k = 0; k < classes && !context_has_nvme(c, x); k++)
			space_weigh(x->space[tier], k, g->block_bytes / x->block_places[k]);
	}
	return 0;
}

/*
 * How much a policy of the tier has to remember. Blocks can be there with single pages of theirs,
 * so more may come than fill it.
 */
static struct policy_size policy_size(const struct context *x, uint32_t tier)
{
	const struct abi_geometry *g = &x->spec.geometry;
	uint64_t block = 0, page = UINT64_MAX;
	struct policy_size size = { .blocks_max = x->plan.blocks_max };

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *p = &g->part[i];

		page = p->page_stride < page ? p->page_stride : page;
		if (p->hit_rule == ABI_HIT_EVERY)
			block += (uint64_t)p->layers * p->groups * p->page_stride;
	}
	size.resident = x->plan.most[tier] / (block ? block : page);
	size.most = x->plan.most[tier] / page;
	size.resident = size.resident < size.blocks_max ? size.resident : size.blocks_max;
	size.most = size.most < size.blocks_max ? size.most : size.blocks_max;
	return size;
}

static int policy_alloc(struct context *x)
{
	const struct policy_ops *policy = policy_find(x->spec.policy);
	struct policy_size size[ABI_MEM_TIERS] = { 0 };

	if (!policy)
		return -EINVAL;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (x->plan.mem_bytes[tier])
			size[tier] = policy_size(x, tier);
	return lanes_open(&x->lanes, policy, size);
}

static int private_alloc(const struct core *c, struct context *x)
{
	const struct abi_geometry *g = &x->spec.geometry;

	x->meta = cold_alloc(c, x->plan.blocks_max, sizeof(*x->meta));
	x->lapse_ms = cold_alloc(c, x->plan.blocks_max, sizeof(*x->lapse_ms));
	x->streamed_ms = cold_alloc(c, x->plan.blocks_max, sizeof(*x->streamed_ms));
	x->page_part = calloc(g->pages_per_block, 1);
	if (!x->meta || !x->lapse_ms || !x->streamed_ms || !x->page_part ||
	    descs_open(&x->descs, x->plan.blocks_max, g->pages_per_block) ||
	    block_uses_open(&x->uses, (uint32_t)x->plan.blocks_max) ||
	    siblings_open(&x->siblings, (uint32_t)x->plan.blocks_max) ||
	    tenants_open(&x->tenants, (uint32_t)x->plan.blocks_max))
		return -ENOMEM;
	for (uint32_t i = 0; i < g->part_count; i++)
		memset(x->page_part + g->part[i].page_base, (int)i,
		       (size_t)g->part[i].layers * g->part[i].groups);
	return policy_alloc(x);
}

static void format_index(struct core *c, struct context *x)
{
	struct abi_index_header header;

	memset(&header, 0, sizeof(header));
	index_plan(&header, &x->spec.geometry, x->plan.blocks_max);
	header.boot_token = c->config.boot_token;
	header.context_id = x->id;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		header.mem_bytes[tier] = x->plan.mem_bytes[tier];
	memcpy(header.fingerprint, x->spec.fingerprint, sizeof(header.fingerprint));
	header.epoch = x->spec.epoch;
	index_format(&x->ix, x->memory.index, &header, &x->spec.geometry);
	if (x->memory.former && former_open(&x->left, &x->ix, x->memory.former,
					    x->memory.former_slots))
		x->left = NULL; /* references to its blocks are stale, then */
	x->memory.former = NULL;
}

/* wanted: 1 + an index, which may be beyond all, 0 = the first that is free. */
static int context_index_free(struct core *c, const char *name, uint32_t wanted, uint32_t *index)
{
	uint32_t i;

	if (core_aside_find(c, name))
		return -EEXIST;
	*index = ABI_CONTEXTS_MAX;
	for (i = 0; i < c->contexts_high; i++) {
		if (!c->context[i] && *index == ABI_CONTEXTS_MAX)
			*index = i;
		if (c->context[i] && !c->context[i]->closing &&
		    !strcmp(c->context[i]->spec.name, name))
			return -EEXIST;
	}
	if (*index == ABI_CONTEXTS_MAX)
		*index = i;
	if (wanted && wanted <= ABI_CONTEXTS_MAX && !c->context[wanted - 1])
		*index = wanted - 1;
	if (*index >= ABI_CONTEXTS_MAX || !catalog_room(c, 1, 0))
		return -ENFILE;
	return 0;
}

int core_context_create(struct core *c, const struct disk_context *spec,
			const struct core_context_memory *memory, uint64_t token, uint32_t *id)
{
	struct context *x;
	char why[128];
	uint32_t index;
	int err = context_index_free(c, spec->name, memory->at, &index);

	if (err)
		return err;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->spec = *spec;
	err = core_context_plan(c, &x->spec, &x->plan, why, sizeof(why)); /* not one of them yet */
	if (err) {
		free(x);
		return err;
	}
	x->index = index;
	x->part_of = x->part_at = ABI_SLOT_NONE;
	x->id = *id = index | (uint32_t)++c->context_generation << 16;
	x->memory = *memory;
	block_list_init(&x->pending);
	for (uint32_t log = 0; log < CORE_LOGS; log++)
		block_list_init(&x->dirty[log].list);
	c->context[index] = x; /* core_context_free undoes all of it */
	c->contexts++;
	tables_join(c, x);
	if (index >= c->contexts_high)
		c->contexts_high = index + 1;
	err = private_alloc(c, x);
	if (!err)
		err = spaces_open(c, x);
	if (!err)
		err = ledger_open(&x->salts, CONTEXT_SALTS);
	if (!err && c->drives)
		err = writeback_reserve(c, &x->spec.geometry);
	if (err) {
		core_context_free(c, x);
		return err;
	}
	x->listed = x->spec.uid || !c->drives;
	x->epoch_listed = x->listed ? x->spec.epoch : 0;
	if (x->spec.uid) {
		format_index(c, x);
		tables_come_back(c, x);
		return 0;
	}
	x->spec.uid = c->next_uid++;
	x->spec.epoch = x->spec.epoch ? x->spec.epoch : 1;
	format_index(c, x);
	tables_count(c, x);
	catalog_write(c, token, x->id);
	return 0;
}

/* ---- find, attach ------------------------------------------------------------------------- */

int core_context_find(struct core *c, const char *name, uint32_t uid, uint32_t gid,
		      struct core_context_view *view)
{
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		struct context *x = c->context[i];
		bool owner, group, readable;

		if (!x || x->closing || !x->listed || strcmp(x->spec.name, name))
			continue;
		owner = uid == 0 || uid == x->spec.owner_uid;
		group = gid == x->spec.owner_gid;
		readable = owner || x->spec.mode & (group ? 040u : 04u);
		if (!readable)
			return -ENOENT; /* I4: as if it were not there */
		view->id = x->id;
		view->owner = owner;
		view->writable = owner || x->spec.mode & (group ? 020u : 02u);
		view->spec = &x->spec;
		view->index_bytes = x->plan.index_bytes;
		memcpy(view->mem_bytes, x->plan.mem_bytes, sizeof(view->mem_bytes));
		return 0;
	}
	return -ENOENT;
}

int core_context_attach(struct core *c, uint32_t client, const struct core_context_view *view)
{
	struct client *k = &c->client[client];
	struct context *x = core_context(c, view->id);

	if (client >= CORE_CLIENTS_MAX || k->state != 1 || !x)
		return -ENOENT;
	if (!bit_get(k->attached, x->index))
		x->attached++;
	k->attached[x->index / 64] |= 1ull << x->index % 64;
	if (view->writable)
		k->writable[x->index / 64] |= 1ull << x->index % 64;
	return 0;
}

void core_client_attached(const struct core *c, uint32_t client,
			  uint64_t bits[ABI_CONTEXTS_MAX / 64])
{
	assert(client < CORE_CLIENTS_MAX && c->client[client].attached);
	memcpy(bits, c->client[client].attached, ABI_CONTEXTS_MAX / 8);
}

void core_client_attach_all(struct core *c, uint32_t client,
			    const uint64_t bits[ABI_CONTEXTS_MAX / 64])
{
	struct client *k = &c->client[client];

	assert(client < CORE_CLIENTS_MAX);
	for (uint32_t i = 0; k->state == 1 && i < c->contexts_high; i++) {
		if (!c->context[i] || !bit_get(bits, i) || bit_get(k->attached, i))
			continue;
		k->attached[i / 64] |= 1ull << i % 64;
		c->context[i]->attached++;
	}
}

/* ---- epoch, remove ------------------------------------------------------------------------ */

int core_context_epoch(struct core *c, uint32_t id, uint64_t epoch, uint64_t token)
{
	struct context *x = core_context(c, id);

	if (!x || x->closing)
		return -ENOENT;
	if (!epoch)
		epoch = (x->epoch_seen > x->spec.epoch ? x->epoch_seen : x->spec.epoch) + 1;
	if (epoch <= x->spec.epoch || epoch > UINT32_MAX)
		return -EINVAL;
	c->catalog.voids++;
	x->spec.epoch = epoch;
	index_epoch(&x->ix, epoch); /* readers at once; the answer when it is durable */
	context_sweep(c, x);
	request_wake_phase(c, REQUEST_WRITTEN); /* durable puts of the old epoch fail now */
	request_wake_phase(c, REQUEST_SYNC);
	catalog_write(c, token, epoch);
	return 0;
}

int core_policy_set(struct core *c, uint32_t id, const char *name, uint64_t token)
{
	const struct policy_ops *policy = policy_find(name);
	struct context *x = core_context(c, id);
	int err = 0;

	if (!x || x->closing)
		return -ENOENT;
	if (!policy)
		return -EINVAL;
	if (x->former)
		return -EBUSY;
	if (policy != x->lanes.policy)
		err = swap_begin(c, x, policy);
	if (err)
		return err;
	snprintf(x->spec.policy, sizeof(x->spec.policy), "%s", policy->name);
	catalog_write(c, token, 0);
	return 0;
}

int core_context_remove(struct core *c, uint32_t id, uint64_t token, uint64_t gone)
{
	struct context *x = core_context(c, id);

	if (!x || x->closing)
		return -ENOENT;
	c->catalog.voids++;
	x->closing = true;
	x->gone_token = gone;
	atomic_store_release_u64(&x->ix.header->closed, 1);
	index_event(&x->ix, ABI_EVENT_CLEARED, ABI_SLOT_NONE);
	meter_begin(&c->meter);
	if (x->ix.slots_used)
		context_sweep(c, x);
	leave_context(c, x);
	lend_context_closing(c, x);
	request_context_gone(c, x);
	for (uint32_t op = 0; op < ABI_OP_COUNT; op++)
		if (core_ops[op] && core_ops[op]->context_gone)
			core_ops[op]->context_gone(c, x);
	catalog_write(c, token, id);
	context_maybe_gone(c, x);
	return 0;
}

static bool runs_of(const struct core *c, const struct context *x)
{
	for (uint32_t i = 0; i < c->drives; i++) {
		const struct drive *dv = c->drive[i];

		for (uint32_t k = 0; k < CORE_RUNS_MAX; k++)
			if (dv->run[k].phase != RUN_FREE && dv->run[k].ctx == x)
				return true;
		if (clean_moves(dv, x))
			return true;
	}
	return false;
}

/* The last page, request and write of a removed context is over: it goes. */
void context_maybe_gone(struct core *c, struct context *x)
{
	uint64_t token = x->gone_token;
	uint32_t id = x->id;

	if (!x->closing || x->leaving || x->sweeping || x->slots_live || x->detached ||
	    x->punching || x->lent || runs_of(c, x) || request_of_context(c, x))
		return;
	evacuate_forget(c, x);
	for (uint32_t i = 0; i < c->clients_high; i++) {
		struct client *k = &c->client[i];

		if (!k->attached)
			continue;
		k->attached[x->index / 64] &= ~(1ull << x->index % 64);
		k->writable[x->index / 64] &= ~(1ull << x->index % 64);
	}
	core_context_free(c, x);
	core_reply(c, token, 0, id);
}

/* ---- time --------------------------------------------------------------------------------- */

void context_tick(struct core *c)
{
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->context[i]->closing)
			context_maybe_gone(c, c->context[i]);
}
