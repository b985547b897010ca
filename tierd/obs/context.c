/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents about contexts and single blocks: contexts, context, locate.
 */
#include "libtier/base/key.h"
#include "tierd/obs/obs_priv.h"

static json_t *tiers(const struct core_context_stats *s)
{
	json_t *list = json_array();

	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		json_t *one = json_pack("{s:s, s:o, s:o}", "tier", obs_tier_name[t], "quota",
					obs_number(s->tier[t].quota), "resident_pages",
					obs_number(s->resident[t]));

		json_object_update_new(one, obs_tier_numbers(&s->tier[t]));
		json_array_append_new(list, one);
	}
	return list;
}

static json_t *hex32(const uint8_t digest[32])
{
	char text[KEY_HEX_BYTES];

	return json_string(key_print(text, digest));
}

static json_t *describe(const struct core_context_stats *s)
{
	const struct disk_context *spec = &s->spec;
	const struct abi_geometry *g = &spec->geometry;
	json_t *document = json_pack("{s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "id",
				     (json_int_t)s->id, "name", obs_text(spec->name), "uid",
				     obs_number(spec->uid), "owner_uid",
				     (json_int_t)spec->owner_uid, "owner_gid",
				     (json_int_t)spec->owner_gid, "mode",
				     json_sprintf("%04o", spec->mode), "epoch",
				     obs_number(spec->epoch), "policy", obs_text(spec->policy),
				     "fingerprint", hex32(spec->fingerprint));

	json_object_set_new(document, "attached", obs_number(s->attached));
	json_object_set_new(document, "blocks", obs_number(s->blocks));
	json_object_set_new(document, "blocks_pending", obs_number(s->blocks_pending));
	json_object_set_new(document, "blocks_max", obs_number(spec->blocks_max));
	json_object_set_new(document, "block_bytes", obs_number(g->block_bytes));
	json_object_set_new(document, "block_tokens", obs_number(g->block_tokens));
	json_object_set_new(document, "pages_per_block", obs_number(g->pages_per_block));
	json_object_set_new(document, "index_bytes", obs_number(s->index_bytes));
	json_object_set_new(document, "tiers", tiers(s));
	return document;
}

json_t *obs_contexts(const struct obs_args *a)
{
	struct core_context_stats stats;
	json_t *list = json_array();
	int64_t id = OBS_FIRST;

	while ((id = obs_next(a->o->core, a->question, id, &stats)) >= 0)
		json_array_append_new(list, describe(&stats));
	return json_pack("{s:s, s:o}", "seen", obs_seen(a->question), "contexts", list);
}

static const char *kind_name(uint16_t kind)
{
	static const char *const names[] = { "?",      "dense",	 "sparse", "follows",
					     "window", "state", "index" };

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

static json_t *geometry(const struct abi_geometry *g)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < g->part_count && i < ABI_PARTS_MAX; i++) {
		const struct abi_part *p = &g->part[i];
		json_t *one = json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "name",
					obs_text(p->name), "kind", kind_name(p->kind), "layers",
					obs_number(p->layers), "groups", obs_number(p->groups),
					"page_bytes", obs_number(p->page_bytes), "page_stride",
					obs_number(p->page_stride), "page_base",
					obs_number(p->page_base));

		json_object_set_new(one, "kind_arg", obs_number(p->kind_arg));
		json_object_set_new(one, "layer_first", obs_number(p->layer_first));
		json_object_set_new(one, "needed_last", p->hit_rule == ABI_HIT_LAST ?
				    obs_number(p->hit_arg) : json_null());
		json_object_set_new(one, "replicated",
				    json_boolean(p->shard_rule == ABI_SHARD_REPLICATED));
		json_array_append_new(list, one);
	}
	return json_pack("{s:o}", "parts", list);
}

json_t *obs_context(const struct obs_args *a)
{
	struct core_context_stats stats;
	json_t *document;

	if (core_context_stats(a->o->core, a->context_id, &stats))
		return NULL;
	document = describe(&stats);
	json_object_set_new(document, "geometry", geometry(&stats.spec.geometry));
	return document;
}

static const char *state_name(uint32_t state)
{
	static const char *const names[] = { "free", "pending", "committed" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

json_t *obs_locate(const struct obs_args *a, int *error)
{
	struct core_location l;
	json_t *document, *resident = json_object();

	*error = core_locate(a->o->core, a->context_id, a->key, &l);
	if (*error) {
		json_decref(resident);
		return NULL;
	}
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		json_object_set_new(resident, obs_tier_name[t], obs_number(l.resident[t]));
	document = json_pack("{s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "context",
			     a->context, "key", hex32(a->key), "slot", obs_number(l.slot), "state",
			     state_name(l.block.state), "generation",
			     obs_number(l.block.generation), "epoch", obs_number(l.block.epoch),
			     "depth", obs_number(l.block.depth), "parts",
			     obs_number(l.block.parts), "pages", obs_number(l.pages));
	json_object_set_new(document, "resident", resident);
	json_object_set_new(document, "pins", obs_number(l.pins));
	json_object_set_new(document, "salt", obs_hex64(l.salt));
	json_object_set_new(document, "durable", json_boolean(l.durable));
	json_object_set_new(document, "nvme_offset", obs_number(l.nvme_offset));
	return document;
}
