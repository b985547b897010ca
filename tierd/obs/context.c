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
		json_t *one = json_object();

		json_object_set_new(one, "tier", json_string(obs_tier_name[t]));
		json_object_set_new(one, "quota", obs_number(s->tier[t].quota));
		json_object_set_new(one, "resident_pages", obs_number(s->resident[t]));
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
	json_t *document = json_object();

	json_object_set_new(document, "id", obs_number(s->id));
	json_object_set_new(document, "name", obs_text(spec->name));
	json_object_set_new(document, "number", obs_number(spec->uid));
	json_object_set_new(document, "uid", obs_number(spec->uid)); /* its old name: no user's */
	json_object_set_new(document, "owner_uid", obs_number(spec->owner_uid));
	json_object_set_new(document, "owner_gid", obs_number(spec->owner_gid));
	json_object_set_new(document, "mode", json_sprintf("%04o", spec->mode));
	json_object_set_new(document, "epoch", obs_number(spec->epoch));
	json_object_set_new(document, "policy", obs_text(spec->policy));
	json_object_set_new(document, "fingerprint", hex32(spec->fingerprint));
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
		json_t *one = json_object();

		json_object_set_new(one, "name", obs_text(p->name));
		json_object_set_new(one, "kind", json_string(kind_name(p->kind)));
		json_object_set_new(one, "layers", obs_number(p->layers));
		json_object_set_new(one, "groups", obs_number(p->groups));
		json_object_set_new(one, "page_bytes", obs_number(p->page_bytes));
		json_object_set_new(one, "page_stride", obs_number(p->page_stride));
		json_object_set_new(one, "page_base", obs_number(p->page_base));
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

static json_t *resident(const struct core_location *l)
{
	json_t *pages = json_object();

	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		json_object_set_new(pages, obs_tier_name[t], obs_number(l->resident[t]));
	return pages;
}

json_t *obs_locate(const struct obs_args *a, int *error)
{
	struct core_location l;
	json_t *document;

	*error = core_locate(a->o->core, a->context_id, a->key, &l);
	if (*error)
		return NULL;
	document = json_object();
	json_object_set_new(document, "context", json_string(a->context));
	json_object_set_new(document, "key", hex32(a->key));
	json_object_set_new(document, "slot", obs_number(l.slot));
	json_object_set_new(document, "state", json_string(state_name(l.block.state)));
	json_object_set_new(document, "generation", obs_number(l.block.generation));
	json_object_set_new(document, "epoch", obs_number(l.block.epoch));
	json_object_set_new(document, "depth", obs_number(l.block.depth));
	json_object_set_new(document, "parts", obs_number(l.block.parts));
	json_object_set_new(document, "pages", obs_number(l.pages));
	json_object_set_new(document, "resident", resident(&l));
	json_object_set_new(document, "pins", obs_number(l.pins));
	json_object_set_new(document, "salt", obs_hex64(l.salt));
	json_object_set_new(document, "durable", json_boolean(l.durable));
	json_object_set_new(document, "nvme_offset", obs_number(l.nvme_offset));
	return document;
}

/* The trial that runs, or the last one. */
json_t *obs_policy_tried(const struct obs_args *a)
{
	const struct core_trial *t = core_policy_tried(a->o->core);
	struct core_context_stats stats;
	uint64_t now = a->question->now_ns, end = t->until_ns < now ? t->until_ns : now;
	json_t *all = json_pack("{s:b, s:b, s:s?}", "on", t->on && now < t->until_ns, "begun",
				t->begun, "tried", t->policy);

	if (t->policy && core_context_stats(a->o->core, t->context, &stats) == 0) {
		json_object_set_new(all, "context", obs_text(stats.spec.name));
		json_object_set_new(all, "policy", obs_text(stats.spec.policy));
	}
	json_object_set_new(all, "counted_ns", obs_number(t->begun ? end - t->from_ns : 0));
	json_object_set_new(all, "blocks", obs_number(t->blocks));
	json_object_set_new(all, "uses", obs_number(t->uses));
	json_object_set_new(all, "reads", obs_number(t->reads));
	json_object_set_new(all, "would_read", obs_number(t->would_read));
	return all;
}
