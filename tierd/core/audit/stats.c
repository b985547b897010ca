/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's views (stats.h): sums and look-ups over the core's state, nothing changes.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

const struct core_metrics *core_metrics(const struct core *c)
{
	return &c->metrics;
}

static void context_tiers(const struct core *c, const struct context *x,
			  struct core_tier_stats tier[ABI_TIER_COUNT])
{
	memset(tier, 0, sizeof(*tier) * ABI_TIER_COUNT);
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		tier[t].quota = x->plan.quota[t];
		tier[t].soft = x->plan.quota[t] ? quota_share(c, x, t) : 0;
		tier[t].capacity = c->config.capacity[t];
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		struct space_stats st;

		if (!x->space[t])
			continue;
		space_stats(x->space[t], &st);
		tier[t].used = st.charged;
		tier[t].live = st.live;
		tier[t].free = st.free;
		tier[t].reserved = st.reserved;
		tier[t].retiring = x->retiring[t];
		tier[t].quarantined = reclaim_held(c, x, t);
		tier[t].pinned = x->pinned[t];
	}
	tier[ABI_TIER_CXL].dirty = x->dirty_bytes;
	tier[ABI_TIER_NVME].live = x->nvme_bytes;
	tier[ABI_TIER_NVME].used = x->nvme_bytes + x->record_bytes;
}

static void drive_stats(const struct core *c, const struct drive *dv, struct core_stats *out)
{
	uint64_t data = dv->super.segment_bytes - dv->super.summary_bytes;
	struct store_stats st;

	store_stats(dv->store, &st);
	for (uint32_t i = 0; i < 2; i++) {
		out->log[i].segments += st.log_segments[i];
		out->log[i].live += st.log_live[i];
		out->log[i].capacity += st.log_segments[i] * data;
	}
	out->segments_free += st.segments_free;
	out->tier[ABI_TIER_NVME].used += (uint64_t)(st.segments - st.segments_free) * data;
	out->tier[ABI_TIER_NVME].failing |= drive_is_bad(c, dv);
	out->drives++;
	out->drives_failing += drive_is_bad(c, dv);
	out->drives_draining += dv->leaving && !drive_drained(c, dv);
}

/* What was written is counted for all devices together. */
static void log_stats(const struct core *c, struct core_stats *out)
{
	const struct core_metrics *m = &c->metrics;
	struct disk_drive gone;

	for (uint32_t i = 0; i < c->drives; i++)
		drive_stats(c, c->drive[i], out);
	while (core_drive_missing(c, out->drives_missing, &gone) == 0)
		out->drives_missing++;
	out->log[DISK_LOG_DURABLE].written = m->durable_bytes;
	out->log[DISK_LOG_DURABLE].again = m->cleaned_bytes;
	out->log[DISK_LOG_CACHE].written = m->written_bytes - m->durable_bytes;
	out->log[DISK_LOG_CACHE].again = m->reinserted_bytes;
}

int core_drive_stats(const struct core *c, uint32_t i, struct core_drive_stats *out)
{
	const struct drive *dv = i < c->drives ? c->drive[i] : NULL;
	struct store_stats st;

	if (!dv)
		return -ENOENT;
	store_stats(dv->store, &st);
	*out = (struct core_drive_stats){
		.capacity = st.capacity,
		.live = st.live,
		.segments = st.segments,
		.segments_free = st.segments_free,
		.store_id = dv->super.store_id,
		.failing = drive_is_bad(c, dv),
		.leaving = dv->leaving,
		.no_room = dv->no_room && dv->leaving,
		.drained = drive_drained(c, dv),
	};
	return 0;
}

void core_stats(const struct core *c, struct core_stats *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];
		struct core_tier_stats tier[ABI_TIER_COUNT];

		if (!x)
			continue;
		context_tiers(c, x, tier);
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
			out->tier[t].live += tier[t].live;
			out->tier[t].dirty += tier[t].dirty;
			out->tier[t].pinned += tier[t].pinned;
			out->tier[t].free += tier[t].free;
			out->tier[t].reserved += tier[t].reserved;
			out->tier[t].retiring += tier[t].retiring;
		}
		out->blocks += x->blocks;
		out->pages += x->pages_resident[ABI_TIER_HBM] + x->pages_resident[ABI_TIER_CXL];
		out->index_bytes += tables_of(x);
		out->slack_bytes += x->plan.index_bytes < CORE_INDEX_SLACK ? x->plan.index_bytes :
									 CORE_INDEX_SLACK;
	}
	out->table_bytes = c->tables.bytes;
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		out->tier[t].capacity = c->config.capacity[t];
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		out->tier[t].used = c->pool[t].used;
		out->tier[t].quarantined = c->reclaim.quarantined[t];
		out->tier[t].streamed = c->streamed[t];
	}
	out->leaving = c->dropped.parents_leaving.count + c->dropped.waiting.count;
	log_stats(c, out);
	for (uint32_t i = 0; i < c->clients_high; i++)
		out->clients += c->client[i].state == 1;
	out->contexts = c->contexts;
	out->requests = c->requests.count;
	out->ios = c->actions.ios;
	out->copies = c->actions.copies;
	out->pins = c->pins.count;
}

int64_t core_context_next(const struct core *c, uint32_t id)
{
	uint32_t from = id == UINT32_MAX ? 0 : ABI_CONTEXT_INDEX(id) + 1;

	for (uint32_t i = from; i < c->contexts_high; i++)
		if (c->context[i] && !c->context[i]->closing)
			return c->context[i]->id;
	return -ENOENT;
}

static void context_stats(const struct core *c, const struct context *x,
			  struct core_context_stats *out)
{
	memset(out, 0, sizeof(*out));
	out->spec = x->spec;
	out->id = x->id;
	out->attached = x->attached;
	out->blocks = x->blocks;
	out->blocks_pending = x->blocks_pending;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		out->resident[t] = x->pages_resident[t];
	out->resident[ABI_TIER_NVME] =
		x->nvme_bytes / x->spec.geometry.block_bytes * x->ix.pages_per_block;
	context_tiers(c, x, out->tier);
	out->fit = space_fit(x->space[ABI_TIER_CXL], x->block_places, 0);
	out->index_bytes = tables_of(x);
}

int core_context_stats(const struct core *c, uint32_t id, struct core_context_stats *out)
{
	const struct context *x = core_context(c, id);

	if (!x || x->closing)
		return -ENOENT;
	context_stats(c, x, out);
	return 0;
}

int core_removed_at(const struct core *c, uint32_t i, struct core_context_stats *out)
{
	for (uint32_t k = 0; k < c->contexts_high; k++)
		if (c->context[k] && c->context[k]->closing && i-- == 0) {
			context_stats(c, c->context[k], out);
			return 0;
		}
	return -ENOENT;
}

bool core_context_hole(const struct core *c, uint32_t id, uint32_t tier, uint64_t from,
		       struct core_range *hole)
{
	const struct context *x = core_context(c, id);
	uint64_t at, end, bytes;

	if (!x || !x->space[tier])
		return false;
	at = space_hole(x->space[tier], from);
	bytes = space_slab_bytes(x->space[tier]);
	end = x->plan.mem_bytes[tier];
	*hole = (struct core_range){ .context_id = id, .tier = tier, .offset = at,
				     .bytes = end - at < bytes ? end - at : bytes };
	return at < end;
}

/* In the used part of the descriptors: groups that nothing was written into. */
static bool descs_gap(const struct context *x, uint64_t from, struct core_range *hole)
{
	struct index_area area = index_area(&x->ix, INDEX_DESCS);
	uint64_t at = from > area.begin ? from - area.begin : 0, group, count;

	if (!descs_hole(&x->descs, (at + DESCS_GROUP_BYTES - 1) / DESCS_GROUP_BYTES,
			(area.used - area.begin) / DESCS_GROUP_BYTES, &group, &count))
		return false;
	hole->offset = area.begin + group * DESCS_GROUP_BYTES;
	hole->bytes = count * DESCS_GROUP_BYTES;
	return true;
}

bool core_index_hole(const struct core *c, uint32_t id, uint64_t from, struct core_range *hole)
{
	const struct context *x = core_context(c, id);

	*hole = (struct core_range){ .context_id = id, .tier = CORE_RANGE_INDEX };
	for (uint32_t i = 0; x && !x->index_lent && i < INDEX_AREAS; i++) {
		struct index_area area = index_area(&x->ix, i);
		uint64_t begin = (area.used + ABI_PAGE_ALIGN - 1) & ~(ABI_PAGE_ALIGN - 1ull);
		uint64_t end = area.end;

		if (i == INDEX_DESCS && descs_gap(x, from, hole))
			return true;
		begin = begin > from ? begin : from;
		if (begin >= end)
			continue;
		hole->offset = begin;
		hole->bytes = end - begin;
		return true;
	}
	return false;
}

uint64_t core_context_taken(const struct core *c, uint32_t id, uint32_t tier)
{
	const struct context *x = core_context(c, id);
	struct space_stats st;

	if (x && tier == CORE_RANGE_INDEX && x->index_lent)
		return x->plan.index_bytes;
	if (x && tier == CORE_RANGE_INDEX)
		return index_bytes_used(&x->ix) + descs_bytes(&x->descs);
	if (!x || !x->space[tier])
		return 0;
	space_stats(x->space[tier], &st);
	return st.charged;
}

int core_holder_at(const struct core *c, uint32_t id, uint32_t i, struct core_holder_view *out)
{
	const struct context *x = id == UINT32_MAX ? NULL : core_context(c, id);
	const struct ledger *dv = x ? &x->salts : &c->owners;

	if (id != UINT32_MAX && !x)
		return -ENOENT;
	for (uint32_t k = 0, left = dv->open + LEDGER_FIRST; left; k++) {
		const struct holding *a = &dv->account[k];
		bool bytes = a->limited;

		assert(k < dv->count);
		if (!a->open)
			continue;
		left--;
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
			bytes |= a->used[t] || (t < ABI_MEM_TIERS && a->pinned[t]);
		if (!bytes || i--)
			continue;
		memset(out, 0, sizeof(*out));
		out->kind = k < CORE_HOLDER_KEY ? k : CORE_HOLDER_KEY;
		out->key = a->key;
		out->uses = a->uses;
		memcpy(out->used, a->used, sizeof(out->used));
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
			out->limit[t] = quota_limit(c, x, k, t);
		memcpy(out->pinned, a->pinned, sizeof(out->pinned));
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
			out->pin_limit[t] = quota_pins(c, x, k, t);
		return 0;
	}
	return -ENOENT;
}

int core_locate(const struct core *c, uint32_t id, const uint8_t *key, struct core_location *out)
{
	const struct context *x = core_context(c, id);
	uint32_t slot = x ? index_find(&x->ix, key) : ABI_SLOT_NONE;

	if (slot == ABI_SLOT_NONE)
		return -ENOENT;
	memset(out, 0, sizeof(*out));
	out->block = *index_block(&x->ix, slot);
	out->slot = slot;
	out->salt = block_salt(x, slot);
	out->durable =
		x->meta[slot].flags & BLOCK_DURABLE && x->meta[slot].persist == PERSIST_CLEAN;
	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		const struct abi_page *d = index_page(&x->ix, slot, page);

		out->pages += out->block.parts >> x->page_part[page] & 1;
		if (!descs_there(&x->descs, slot, page))
			continue;
		for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
			out->resident[t] += page_state(d, t) == ABI_PAGE_READY;
		if (!(d->nvme & ABI_NVME_PRESENT))
			continue;
		out->resident[ABI_TIER_NVME]++;
		if (!out->nvme_offset)
			out->nvme_offset = abi_nvme_offset(d->nvme);
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		out->pins += block_use(x, slot)->pins[t];
	return 0;
}
