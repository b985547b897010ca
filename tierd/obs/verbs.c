/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of verbs: who may ask, what arguments there are, who makes the document.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/key.h"
#include "libtier/base/time.h"
#include "tierd/core/unit/policy_ops.h"
#include "tierd/obs/obs_priv.h"

const char *const obs_tier_name[ABI_TIER_COUNT] = { "hbm", "cxl", "nvme", "remote" };
const char *const obs_class_name[ABI_CLASS_COUNT] = { "demand", "deadline", "speculative",
						      "writeback", "cleanup" };

/* Which arguments a verb needs. */
#define ARG_CONTEXT 1u
#define ARG_KEY 2u
#define ARG_TIER 4u
#define ARG_CONTEXT_OR_NOT 8u
#define ARG_QUOTA 16u
#define ARG_POLICY 32u
#define ARG_DRIVE 64u
#define ARG_TRACE 128u
#define ARG_TRY 256u

#define TRY_SECONDS_MAX 86400u

struct verb {
	const char *name;
	bool everyone; /* of contexts they are told what obs_next gives them */
	uint32_t needs;
	enum obs_deed_kind deed;
	json_t *(*document)(const struct obs_args *a); /* NULL: a deed, or locate */
};

static const struct verb verbs[] = {
	{ "status", true, 0, OBS_DEED_NONE, obs_status },
	{ "stat", false, 0, OBS_DEED_NONE, obs_stat },
	{ "contexts", true, 0, OBS_DEED_NONE, obs_contexts },
	{ "context", true, ARG_CONTEXT, OBS_DEED_NONE, obs_context },
	{ "locate", true, ARG_CONTEXT | ARG_KEY, OBS_DEED_NONE, NULL },
	{ "check", false, 0, OBS_DEED_NONE, obs_check },
	{ "pins", false, 0, OBS_DEED_NONE, obs_pins },
	{ "requests", false, 0, OBS_DEED_NONE, obs_requests },
	{ "clients", false, 0, OBS_DEED_NONE, obs_clients },
	{ "evict", false, ARG_CONTEXT | ARG_TIER, OBS_DEED_EVICT, NULL },
	{ "drain", false, 0, OBS_DEED_DRAIN, NULL },
	{ "policy-set", false, ARG_CONTEXT | ARG_POLICY, OBS_DEED_POLICY, NULL },
	{ "policy-try", false, ARG_TRY, OBS_DEED_NONE, obs_policy_tried },
	{ "upgrade", false, 0, OBS_DEED_UPGRADE, NULL },
	{ "quota", false, ARG_CONTEXT_OR_NOT, OBS_DEED_NONE, obs_quota },
	{ "quota-set", false, ARG_QUOTA, OBS_DEED_QUOTA, NULL },
	{ "drive", false, ARG_DRIVE, OBS_DEED_DRIVE, NULL },
	{ "trace", false, ARG_TRACE, OBS_DEED_NONE, obs_trace },
};

/* ---- values -------------------------------------------------------------------------------- */

json_t *obs_number(uint64_t value)
{
	return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

json_t *obs_hex64(uint64_t value)
{
	return json_sprintf("0x%016" PRIx64, value);
}

json_t *obs_text(const char *text)
{
	char safe[512];
	size_t len = 0;

	for (; text[len] && len + 1 < sizeof(safe); len++) {
		unsigned char byte = (unsigned char)text[len];

		safe[len] = byte < 0x20 || byte >= 0x7f ? '?' : (char)byte;
	}
	return json_stringn(safe, len);
}

json_t *obs_tier_numbers(const struct core_tier_stats *s)
{
	json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:o}", "used", obs_number(s->used), "live",
				obs_number(s->live), "dirty", obs_number(s->dirty), "pinned",
				obs_number(s->pinned), "quarantined", obs_number(s->quarantined));

	json_object_set_new(all, "free", obs_number(s->free));
	json_object_set_new(all, "reserved", obs_number(s->reserved));
	json_object_set_new(all, "retiring", obs_number(s->retiring));
	return all;
}

void obs_fact(struct obs *o, const char *name, const char *format, ...)
{
	struct obs_fact *fact = &o->fact[o->facts];
	va_list args;

	if (o->facts == OBS_FACTS_MAX)
		return;
	o->facts++;
	fact->name = name;
	va_start(args, format);
	vsnprintf(fact->value, sizeof(fact->value), format, args);
	va_end(args);
}

void obs_latency(struct obs *o, const char *name, const char *klass, const struct hist *hist)
{
	if (o->latencies < OBS_LATENCIES_MAX)
		o->latency[o->latencies++] = (struct obs_latency){ name, klass, hist };
}

/* ---- contexts ------------------------------------------------------------------------------ */

static bool sees(const struct obs_question *q, const struct core_context_stats *stats)
{
	return q->operator_ || stats->spec.owner_uid == q->uid;
}

int64_t obs_next(const struct core *core, const struct obs_question *q, int64_t id,
		 struct core_context_stats *stats)
{
	do
		id = core_context_next(core, (uint32_t)id);
	while (id >= 0 && (core_context_stats(core, (uint32_t)id, stats) || !sees(q, stats)));
	return id;
}

static int64_t find_context(const struct core *core, const struct obs_question *q,
			    const char *name)
{
	struct core_context_stats stats;
	int64_t id = OBS_FIRST;

	do
		id = obs_next(core, q, id, &stats);
	while (id >= 0 && strncmp(stats.spec.name, name, ABI_NAME_BYTES) != 0);
	return id;
}

int64_t obs_context_id(const struct core *core, const char *name)
{
	const struct obs_question all = { .operator_ = true };

	return find_context(core, &all, name);
}

const char *obs_seen(const struct obs_question *q)
{
	return q->operator_ ? "all" : "own";
}

/* ---- arguments ----------------------------------------------------------------------------- */

static int wrong(int error, char *why, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int wrong(int error, char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, OBS_WHY_BYTES, format, args);
	va_end(args);
	return error;
}

static int take_context(struct obs_args *a, const json_t *given, char *why)
{
	const char *name = json_string_value(json_object_get(given, "context"));
	int64_t id;

	if (!name)
		return wrong(-EINVAL, why, "argument \"context\" is missing; name a context");
	id = find_context(a->o->core, a->question, name);
	if (id < 0)
		return wrong(-ENOENT, why, "no context \"%.64s\"; tierctl context list shows %s",
			     name, a->question->operator_ ? "all" : "yours");
	a->context = name;
	a->context_id = (uint32_t)id;
	return 0;
}

static int take_key(struct obs_args *a, const json_t *given, char *why)
{
	const char *key = json_string_value(json_object_get(given, "key"));

	if (!key || key_parse(a->key, key))
		return wrong(-EINVAL, why, "argument \"key\" must be 64 hex digits");
	return 0;
}

static int take_tier(struct obs_args *a, const json_t *given, char *why)
{
	const char *name = json_string_value(json_object_get(given, "tier"));
	const json_t *bytes = json_object_get(given, "bytes");

	for (a->tier = 0; a->tier < ABI_MEM_TIERS; a->tier++)
		if (name && strcmp(name, obs_tier_name[a->tier]) == 0)
			break;
	if (a->tier == ABI_MEM_TIERS)
		return wrong(-EINVAL, why, "argument \"tier\" must be hbm or cxl");
	if (bytes && (!json_is_integer(bytes) || json_integer_value(bytes) < 0))
		return wrong(-EINVAL, why, "argument \"bytes\" must be a number, not negative");
	a->bytes = bytes ? (uint64_t)json_integer_value(bytes) : UINT64_MAX;
	return 0;
}

static int take_policy(struct obs_args *a, const json_t *given, char *why)
{
	const char *name = json_string_value(json_object_get(given, "policy"));
	char known[64] = "";

	a->policy = name ? policy_find(name) : NULL;
	if (a->policy)
		return 0;
	for (uint32_t i = 0; policy_at(i); i++)
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
			 i ? ", " : "", policy_at(i)->name);
	return wrong(-EINVAL, why, "argument \"policy\" must be one of: %s", known);
}

/* By its path, or by its store_id as the status tells it. */
static int take_drive(struct obs_args *a, const json_t *given, char *why)
{
	static const char *const deeds[] = { [CORE_DRIVE_DRAIN] = "drain",
					     [CORE_DRIVE_FORGET] = "forget",
					     [CORE_DRIVE_KEEP] = "keep" };
	const char *name = json_string_value(json_object_get(given, "drive"));
	const char *deed = json_string_value(json_object_get(given, "do"));
	struct core_drive_stats s;
	uint32_t kind = 0;

	while (kind < sizeof(deeds) / sizeof(deeds[0]) && deed && strcmp(deed, deeds[kind]) != 0)
		kind++;
	if (!name || !deed || kind == sizeof(deeds) / sizeof(deeds[0]))
		return wrong(-EINVAL, why, "name a \"drive\", and what to \"do\" with it: drain, "
					   "forget or keep");
	a->drive = (enum core_drive_deed)kind;
	a->store_id = strncmp(name, "0x", 2) == 0 ? strtoull(name, NULL, 16) : 0;
	for (uint32_t i = 0; core_drive_stats(a->o->core, i, &s) == 0; i++)
		if (a->o->drive[i] && strcmp(a->o->drive[i], name) == 0)
			a->store_id = s.store_id;
	return a->store_id ? 0 : wrong(-ENOENT, why, "no drive \"%.128s\" in the store; tierctl "
						     "status lists them", name);
}

static int take_trace(struct obs_args *a, const json_t *given, char *why)
{
	const char *what;
	int rc = obs_take_trace(a, given, &what);

	return rc ? wrong(rc, why, "%s", what) : 0;
}

/* With "seconds" a trial begins; without any argument the last one is looked at. */
static int take_try(struct obs_args *a, const json_t *given, char *why)
{
	json_int_t seconds = json_integer_value(json_object_get(given, "seconds"));
	int rc;

	if (!json_object_size(given))
		return 0;
	if (seconds < 1 || seconds > TRY_SECONDS_MAX)
		return wrong(-EINVAL, why, "argument \"seconds\" must be 1 to %u", TRY_SECONDS_MAX);
	rc = take_context(a, given, why);
	if (rc == 0)
		rc = take_policy(a, given, why);
	if (rc)
		return rc;
	rc = core_policy_try(a->o->core, a->context_id, a->policy->name,
			     (uint64_t)seconds * NS_PER_S);
	if (rc == -EBUSY)
		return wrong(rc, why, "blocks still go over to the policy that was set before; "
				      "ask again");
	if (rc == -EINVAL)
		return wrong(rc, why, "context \"%.64s\" does not use CXL: no policy chooses there",
			     a->context);
	return rc ? wrong(rc, why, "there is no memory for the trial's tables") : 0;
}

static int take_args(struct obs_args *a, const struct verb *verb, const json_t *given, char *why)
{
	int rc = 0;

	if (verb->needs & ARG_CONTEXT ||
	    (verb->needs & (ARG_CONTEXT_OR_NOT | ARG_QUOTA) && json_object_get(given, "context")))
		rc = take_context(a, given, why);
	if (rc == 0 && verb->needs & ARG_KEY)
		rc = take_key(a, given, why);
	if (rc == 0 && verb->needs & ARG_TIER)
		rc = take_tier(a, given, why);
	if (rc == 0 && verb->needs & ARG_POLICY)
		rc = take_policy(a, given, why);
	if (rc == 0 && verb->needs & ARG_QUOTA)
		rc = obs_take_quota(a, given, why);
	if (rc == 0 && verb->needs & ARG_DRIVE)
		rc = take_drive(a, given, why);
	if (rc == 0 && verb->needs & ARG_TRACE)
		rc = take_trace(a, given, why);
	if (rc == 0 && verb->needs & ARG_TRY)
		rc = take_try(a, given, why);
	return rc;
}

/* ---- answers ------------------------------------------------------------------------------- */

static char *print(json_t *document)
{
	char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;

	json_decref(document);
	return text;
}

char *obs_done(enum obs_deed_kind kind, uint64_t value)
{
	if (kind == OBS_DEED_EVICT)
		return print(json_pack("{s:o}", "freed", obs_number(value)));
	if (kind == OBS_DEED_UPGRADE)
		return print(json_pack("{s:b}", "upgrading", 1));
	return print(json_pack("{s:b}", kind == OBS_DEED_DRAIN ? "drained" : "set", 1));
}

static const struct verb *find(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static int answer(struct obs_args *a, const struct verb *verb, char **json, char *why)
{
	int error = 0;
	json_t *document = verb->document ? verb->document(a) : obs_locate(a, &error);

	if (error)
		return wrong(error, why, "no such block in \"%.64s\"", a->context);
	*json = print(document);
	return *json ? 0 : wrong(-ENOMEM, why, "out of memory for the answer");
}

int obs_answer(const struct obs *o, const struct obs_question *q, char **json,
	       struct obs_deed *deed, char why[OBS_WHY_BYTES])
{
	const struct verb *verb = find(q->verb);
	struct obs_args a = { .o = o, .question = q };
	json_error_t at;
	json_t *given;
	int rc;

	if (!verb)
		return wrong(-ENOENT, why, "no such verb; see tierctl --help");
	if (!verb->everyone && !q->operator_)
		return wrong(-EPERM, why,
			     "only root and the daemon's own user may ask \"%s\"; status and "
			     "contexts of one's own are for everyone",
			     verb->name);
	given = json_loads(q->args[0] ? q->args : "{}", 0, &at);
	if (!json_is_object(given)) {
		json_decref(given);
		return wrong(-EINVAL, why, "the arguments are not a JSON object: %s",
			     at.text[0] ? at.text : "they are something else");
	}
	rc = take_args(&a, verb, given, why);
	if (rc == 0 && verb->deed) {
		*deed = (struct obs_deed){ verb->deed, a.context_id, a.tier, a.bytes, a.quota,
					  a.policy ? a.policy->name : NULL, a.store_id, a.drive };
		rc = -EINPROGRESS;
	} else if (rc == 0) {
		rc = answer(&a, verb, json, why);
	}
	json_decref(given);
	return rc;
}
