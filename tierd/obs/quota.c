/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what: the document of `quota`, and the arguments of `quota-set`.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/obs/obs_priv.h"

#define HOLDERS_MAX 512u /* of one list */
#define TIERS_HELD 3u    /* hbm, cxl, nvme */

/* ---- who holds what ------------------------------------------------------------------------ */

static json_t *limits(uint64_t used, uint64_t soft, uint64_t hard)
{
	return json_pack("{s:o, s:o, s:o}", "used", obs_number(used), "soft", obs_number(soft),
			 "hard", obs_number(hard));
}

static void add_pins(json_t *to, uint64_t pinned, uint64_t limit)
{
	json_object_set_new(to, "pinned", obs_number(pinned));
	json_object_set_new(to, "pin_limit", obs_number(limit));
}

static json_t *holder(const struct core_holder_view *v, bool salts)
{
	json_t *one;

	if (v->kind == CORE_HOLDER_OTHER)
		one = json_pack("{s:s}", "holder", "other");
	else if (v->kind == CORE_HOLDER_NONE)
		one = json_pack("{s:s}", "holder", salts ? "public" : "nobody");
	else if (salts)
		one = json_pack("{s:o}", "holder", obs_hex64(v->key));
	else
		one = json_pack("{s:o, s:I, s:I}", "holder",
				json_sprintf("client %u", (uint32_t)v->key), "client",
				(json_int_t)(uint32_t)v->key, "connection",
				(json_int_t)(v->key >> 32));
	if (json_object_get(one, "connection"))
		json_object_set(one, "session", json_object_get(one, "connection")); /* (old) */
	json_object_set_new(one, "uses", obs_number(v->uses));
	for (uint32_t t = 0; t < TIERS_HELD; t++) {
		json_t *here = limits(v->used[t], v->limit[t].soft, v->limit[t].hard);

		if (t < ABI_MEM_TIERS)
			add_pins(here, v->pinned[t], v->pin_limit[t]);
		json_object_set_new(one, obs_tier_name[t], here);
	}
	return one;
}

static json_t *holders(const struct core *core, uint32_t id)
{
	struct core_holder_view v;
	json_t *list = json_array();

	for (uint32_t i = 0; i < HOLDERS_MAX && core_holder_at(core, id, i, &v) == 0; i++)
		json_array_append_new(list, holder(&v, id != UINT32_MAX));
	return list;
}

static json_t *of_context(const struct core_context_stats *s)
{
	json_t *one = json_pack("{s:o}", "context", obs_text(s->spec.name));

	for (uint32_t t = 0; t < TIERS_HELD; t++) {
		json_t *tier = limits(s->tier[t].used, s->tier[t].soft, s->tier[t].quota);

		json_object_update_new(tier, obs_tier_numbers(&s->tier[t]));
		if (t < ABI_MEM_TIERS)
			add_pins(tier, s->tier[t].pinned, s->spec.pins[t]);
		json_object_set_new(one, obs_tier_name[t], tier);
	}
	return one;
}

/* Nobody has them open: what is left of them is what leases keep, and what is just leaving. */
static json_t *removed(const struct core *core)
{
	struct core_context_stats stats;
	json_t *list = json_array();

	for (uint32_t i = 0; core_removed_at(core, i, &stats) == 0; i++)
		json_array_append_new(list, of_context(&stats));
	return list;
}

json_t *obs_quota(const struct obs_args *a)
{
	const struct core *core = a->o->core;
	struct core_context_stats stats;
	json_t *list = json_array(), *one;
	int64_t id = OBS_FIRST;

	while ((id = obs_next(core, a->question, id, &stats)) >= 0) {
		if (a->context && (uint32_t)id != a->context_id)
			continue;
		one = of_context(&stats);
		json_object_set_new(one, "salts", holders(core, stats.id));
		json_array_append_new(list, one);
	}
	return json_pack("{s:o, s:o, s:o}", "contexts", list, "removed",
			 a->context ? json_array() : removed(core), "clients",
			 holders(core, UINT32_MAX));
}

/* ---- setting ------------------------------------------------------------------------------- */

static int say(char *why, const char *text)
{
	snprintf(why, OBS_WHY_BYTES, "%s", text);
	return -EINVAL;
}

static int take_bytes(const json_t *given, const char *name, uint64_t *out)
{
	const json_t *value = json_object_get(given, name);

	*out = 0;
	if (!value)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -EINVAL;
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

/* A salt is 64 bits wide: as text, "0x..." or digits; JSON's numbers end at 63. */
static int take_salt(const json_t *given, uint64_t *out)
{
	const char *text = json_string_value(json_object_get(given, "salt"));
	char *end;

	if (!text || *text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return errno || *end ? -EINVAL : 0;
}

int obs_take_quota(struct obs_args *a, const json_t *given, char *why)
{
	struct core_quota *q = &a->quota;
	const char *tier = json_string_value(json_object_get(given, "tier"));
	uint64_t client = 0;

	for (q->tier = 0; q->tier < TIERS_HELD; q->tier++)
		if (tier && strcmp(tier, obs_tier_name[q->tier]) == 0)
			break;
	if (q->tier == TIERS_HELD)
		return say(why, "argument \"tier\" must be hbm, cxl or nvme");
	if (take_bytes(given, "soft", &q->limit.soft) || take_bytes(given, "hard", &q->limit.hard))
		return say(why, "\"soft\" and \"hard\" must be numbers of bytes; 0 = none");
	if (take_bytes(given, "pins", &q->pins))
		return say(why, "\"pins\" must be a number of bytes; 0 = none");
	if (q->pins && q->tier >= ABI_MEM_TIERS)
		return say(why, "\"pins\" are of hbm and cxl: nothing is pinned on nvme");
	if (json_object_get(given, "client")) {
		if (take_bytes(given, "client", &client) || a->context)
			return say(why, "\"client\" must be a number, and stands alone");
		q->who = CORE_HOLDER_CLIENT;
		q->key = client;
		return 0;
	}
	if (!a->context)
		return say(why, "name a \"context\" or a \"client\"");
	q->context_id = a->context_id;
	q->who = json_object_get(given, "salt") ? CORE_HOLDER_SALT : CORE_HOLDER_CONTEXT;
	if (q->who == CORE_HOLDER_SALT && take_salt(given, &q->key))
		return say(why, "argument \"salt\" must be a number of 64 bits, 7 or 0x7 (a JSON "
				"text)");
	return 0;
}
