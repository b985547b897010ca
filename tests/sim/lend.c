/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs in devices of clients, in unusual worlds: a device reads the pages that it was shown for as
 * long as it has them, so no slab is punched or emptied meanwhile, whatever room is wanted. Clients
 * leave what is wanted back, sooner or later, and some things by themselves.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world_priv.h"

static void forget(struct world_loan *l)
{
	memset(l, 0, sizeof(*l));
}

void lend_forget(struct world *w, uint32_t client)
{
	for (uint32_t i = 0; i < WORLD_LOANS; i++)
		if (client == WORLD_CLIENTS || w->loan[i].client == client)
			forget(&w->loan[i]);
}

/* Of a page that is there, or of anywhere. */
static uint64_t any_byte(struct world *w, uint32_t context, uint32_t tier)
{
	uint32_t slot, n = world_below(w, WORLD_KEYS);
	uint64_t word;

	for (uint32_t i = 0; i < 16 && !model_find(w, context, n, &slot); i++)
		n = world_below(w, WORLD_KEYS);
	if (!model_find(w, context, n, &slot))
		return world_below(w, 64u << 20);
	word = model_desc(w, context, slot,
			  world_below(w, w->context[context].geometry.pages_per_block))->word[tier];
	return abi_word_addr(word);
}

static bool is_leaving(const struct world *w, const struct core_range *range)
{
	for (uint32_t i = 0; i < w->bag_count; i++) {
		const struct core_range *r = &w->bag[i].range;

		if (w->bag[i].kind == CORE_AC_PUNCH && r->context_id == range->context_id &&
		    r->tier == range->tier && r->offset < range->offset + range->bytes &&
		    range->offset < r->offset + r->bytes)
			return true;
	}
	return false;
}

static void take(struct world *w, struct world_loan *l)
{
	uint32_t client = world_below(w, WORLD_CLIENTS), which = world_below(w, WORLD_CONTEXTS);
	struct core_range range = { .tier = world_below(w, CORE_RANGE_INDEX + 1) };
	int rc;

	if (!w->context[which].made)
		return;
	range.context_id = w->context[which].id;
	range.offset = range.tier == CORE_RANGE_INDEX ? world_below(w, 4096)
						      : any_byte(w, which, range.tier);
	rc = core_slab_lend(w->core, client, &range);
	if (w->client[client].state != 1 && rc != -ENOENT)
		world_fail(w, "a client that is not there took a slab: %d", rc);
	if (rc)
		return;
	if (is_leaving(w, &range))
		world_fail(w, "a slab was lent while it is punched");
	*l = (struct world_loan){ .client = client, .context = which, .range = range };
	w->result->loans++;
}

/* The device has let go. */
static void leave(struct world *w, struct world_loan *l)
{
	int rc = core_slab_leave(w->core, l->client, &l->range);

	if (rc)
		world_fail(w, "a slab that a device has is not known to be lent: %d", rc);
	forget(l);
}

/* Somebody asks what is wanted back. */
static void answer(struct world *w, uint32_t client, uint32_t context)
{
	struct core_range from = { { context }, 0, 0, 0 }, range;

	if (w->client[client].state != 1 || !core_slab_wanted(w->core, client, &from, &range))
		return;
	for (uint32_t i = 0; i < WORLD_LOANS; i++) {
		struct world_loan *l = &w->loan[i];

		if (l->range.bytes && l->client == client &&
		    l->range.context_id == range.context_id && l->range.tier == range.tier &&
		    l->range.offset == range.offset) {
			w->result->recalled++;
			leave(w, l);
			return;
		}
	}
	world_fail(w, "a slab is wanted back that no device has");
}

void lend_step(struct world *w)
{
	struct world_loan *l = &w->loan[world_below(w, WORLD_LOANS)];

	if (!l->range.bytes)
		take(w, l);
	else if (world_chance(w, 100000) && w->client[l->client].state == 1)
		leave(w, l);
	else
		answer(w, l->client, l->range.context_id);
}

/* Everyone lets go; who has no connection any more, by dying. */
void lend_rest(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_LOANS; i++) {
		struct world_loan *l = &w->loan[i];

		if (l->range.bytes && w->client[l->client].state == 1)
			leave(w, l);
		else if (l->range.bytes)
			world_dies(w, l->client);
	}
}

void lend_punched(struct world *w, const struct core_range *range)
{
	for (uint32_t i = 0; i < WORLD_LOANS; i++) {
		const struct core_range *r = &w->loan[i].range;

		if (r->bytes && r->context_id == range->context_id && r->tier == range->tier &&
		    r->offset < range->offset + range->bytes &&
		    range->offset < r->offset + r->bytes)
			world_fail(w, "a slab is punched that a device has");
	}
}

/* Pages move from place to place within a tier: their slab is being emptied. */
void lend_moved(struct world *w, const struct core_copy *copy)
{
	if (copy->src_tier != copy->dst_tier)
		return;
	for (uint32_t i = 0; i < WORLD_LOANS; i++) {
		const struct world_loan *l = &w->loan[i];
		const uint8_t *from = w->context[l->context].mem[copy->src_tier];

		if (!l->range.bytes || l->range.tier != copy->src_tier || !from)
			continue;
		from += l->range.offset;
		for (uint32_t k = 0; k < copy->count; k++)
			if ((const uint8_t *)copy->item[k].src >= from &&
			    (const uint8_t *)copy->item[k].src < from + l->range.bytes)
				world_fail(w, "a slab is emptied that a device has");
	}
}

void lend_removed(struct world *w, uint32_t context)
{
	for (uint32_t i = 0; i < WORLD_LOANS; i++)
		if (w->loan[i].range.bytes && w->loan[i].context == context)
			world_fail(w, "context %u went while devices had slabs of it", context);
}
