/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics' text; see metrics.h. Counters come from the core's own list (metrics.def), so each
 * figure of `tierctl stat` is here. A unit there decides the name's end and the type here.
 *
 * Sources: OpenMetrics 1.0 (openmetrics.io, "ABNF" and "Overall Structure"); Prometheus'
 * "Exposition formats" and "Metric and label naming".
 */
#include "tierd/obs/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"

struct writer {
	FILE *out;
	enum obs_format format;
};

/* How a unit of metrics.def shows outside. */
struct unit {
	const char *unit;  /* in metrics.def */
	const char *drop;  /* end of a name that says the same */
	const char *word;  /* as the name ends; NULL = none */
	bool counter;      /* only grows; else a gauge */
	double scale;
};

static const struct unit units[] = {
	{ "1", NULL, NULL, true, 1 },
	{ "B", "_bytes", "bytes", true, 1 },
	{ "B s", "_byte_seconds", "byte_seconds", true, 1 },
	{ "B/s", NULL, "bytes_per_second", false, 1 },
	{ "ns", "_ns", "seconds", false, 1e-9 },
	{ "1/1000", NULL, "ratio", false, 1e-3 },
	{ "1/100", NULL, "ratio", false, 1e-2 },
};

static const struct unit plain = { "1", NULL, NULL, false, 1 };
static const struct unit bytes = { "B", NULL, "bytes", false, 1 };
static const struct unit seconds = { "s", NULL, "seconds", false, 1 };

/* Upper ends of a histogram's buckets in ns: of a copy, of a flash read, of a disk in trouble. */
static const uint64_t ends_ns[] = {
	1000,	   2500,      5000,	 10000,	    25000,     50000,	   100000,
	250000,	   500000,    1000000,	 2500000,   5000000,   10000000,   25000000,
	50000000,  100000000, 250000000, 500000000, 1000000000, 2500000000, 10000000000,
};
#define ENDS (sizeof(ends_ns) / sizeof(ends_ns[0]))

/* ---- names --------------------------------------------------------------------------------- */

static const struct unit *unit_of(const char *unit)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(units[i].unit, unit))
			return &units[i];
	return &plain;
}

/* "tier_", the name without an end that its unit says, and the unit. */
static void family_name(char *out, size_t room, const char *name, const struct unit *u)
{
	size_t length = strlen(name), end = u->drop ? strlen(u->drop) : 0;

	if (end && length > end && !strcmp(name + length - end, u->drop))
		length -= end;
	snprintf(out, room, "tier_%.*s%s%s", (int)length, name, u->word ? "_" : "",
		 u->word ? u->word : "");
}

/* Help as both formats want it: a line, with \ and line feeds escaped. Ours has neither. */
static void head(const struct writer *w, const char *family, const char *type, const char *unit,
		 const char *help)
{
	const char *end = w->format == OBS_PROMETHEUS && !strcmp(type, "counter") ? "_total" : "";

	fprintf(w->out, "# TYPE %s%s %s\n", family, end, type);
	if (w->format == OBS_OPENMETRICS && unit)
		fprintf(w->out, "# UNIT %s %s\n", family, unit);
	fprintf(w->out, "# HELP %s%s %s\n", family, end, help);
}

static void single(const struct writer *w, const char *name, const struct unit *u,
		   const char *help, uint64_t value)
{
	char family[96];

	family_name(family, sizeof(family), name, u);
	head(w, family, u->counter ? "counter" : "gauge", u->word, help);
	if (u->scale < 1)
		fprintf(w->out, "%s %.9g\n", family, (double)value * u->scale);
	else
		fprintf(w->out, "%s%s %" PRIu64 "\n", family, u->counter ? "_total" : "", value);
}

/* ---- tiers --------------------------------------------------------------------------------- */

#define TIER_FIELD(name, help) { #name, offsetof(struct core_tier_stats, name), help }
static const struct {
	const char *name;
	size_t offset;
	const char *help;
} tier_fields[] = {
	TIER_FIELD(capacity, "bytes that the tier has"),
	TIER_FIELD(used, "bytes of slabs given to contexts"),
	TIER_FIELD(live, "bytes of pages in the tier, of live blocks on nvme"),
	TIER_FIELD(dirty, "bytes that exist nowhere else"),
	TIER_FIELD(pinned, "bytes that pins keep"),
	TIER_FIELD(quarantined, "bytes that are evicted and still leased"),
	TIER_FIELD(streamed, "bytes of the stream pool in use"),
	TIER_FIELD(free, "bytes of free places in used slabs"),
	TIER_FIELD(reserved, "bytes of these that are promised"),
	TIER_FIELD(retiring, "bytes between eviction and release"),
};

static void tiers(const struct writer *w, const struct obs *o, const struct obs_scrape *s)
{
	char family[96], name[64];

	for (size_t i = 0; i < sizeof(tier_fields) / sizeof(tier_fields[0]); i++) {
		snprintf(name, sizeof(name), "tier_%s", tier_fields[i].name);
		family_name(family, sizeof(family), name, &bytes);
		head(w, family, "gauge", "bytes", tier_fields[i].help);
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
			const char *at = (const char *)&s->stats.tier[t] + tier_fields[i].offset;
			uint64_t value;

			memcpy(&value, at, sizeof(value));
			if (o->tier[t].present)
				fprintf(w->out, "%s{tier=\"%s\"} %" PRIu64 "\n", family,
					obs_tier_name[t], value);
		}
	}
	head(w, "tier_tier_failing", "gauge", NULL, "1: its device failed several times in a row");
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		if (o->tier[t].present)
			fprintf(w->out, "tier_tier_failing{tier=\"%s\"} %d\n", obs_tier_name[t],
				s->stats.tier[t].failing);
	head(w, "tier_tier_emulated", "gauge", NULL, "1: it stands in for hardware");
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
		if (o->tier[t].present)
			fprintf(w->out, "tier_tier_emulated{tier=\"%s\"} %d\n", obs_tier_name[t],
				o->tier[t].emulated);
}

/* ---- contexts ------------------------------------------------------------------------------ */

static void context_sample(const struct writer *w, const char *family,
			   const struct obs_scrape_context *c, const char *tier, uint64_t value)
{
	/* Names are [A-Za-z0-9._-]: nothing in them has to be escaped. */
	fprintf(w->out, "%s{context=\"%s", family, c->name);
	if (tier)
		fprintf(w->out, "\",tier=\"%s", tier);
	fprintf(w->out, "\"} %" PRIu64 "\n", value);
}

static void contexts(const struct writer *w, const struct obs *o, const struct obs_scrape *s)
{
	head(w, "tier_context_blocks", "gauge", NULL, "blocks of a context");
	for (uint32_t i = 0; i < s->contexts; i++)
		context_sample(w, "tier_context_blocks", &s->context[i], NULL,
			       s->context[i].blocks);
	head(w, "tier_context_index_bytes", "gauge", "bytes", "memory of a context's index");
	for (uint32_t i = 0; i < s->contexts; i++)
		context_sample(w, "tier_context_index_bytes", &s->context[i], NULL,
			       s->context[i].index_bytes);
	head(w, "tier_context_live_bytes", "gauge", "bytes", "bytes of a context in a tier");
	for (uint32_t i = 0; i < s->contexts; i++)
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
			if (o->tier[t].present)
				context_sample(w, "tier_context_live_bytes", &s->context[i],
					       obs_tier_name[t], s->context[i].live[t]);
	single(w, "contexts_unnamed", &plain, "contexts beyond those with figures of their own",
	       s->stats.contexts - s->contexts);
}

/* ---- histograms ---------------------------------------------------------------------------- */

/*
 * Cumulative counts. The loop records meanwhile: each bucket is read once, and the count is what
 * the buckets come to, so that the text agrees with itself.
 */
static void histogram(const struct writer *w, const char *family, const struct obs_latency *l)
{
	uint64_t sum = 0;
	uint32_t bucket = 0;

	for (size_t i = 0; i <= ENDS; i++) {
		while (bucket < HIST_BUCKETS &&
		       (i == ENDS || hist_bucket_floor(bucket + 1) <= ends_ns[i] + 1))
			sum += atomic_load_relaxed_u64(&l->hist->buckets[bucket++]);
		fprintf(w->out, "%s_bucket{", family);
		if (l->klass)
			fprintf(w->out, "class=\"%s\",", l->klass);
		if (i < ENDS)
			fprintf(w->out, "le=\"%.9g\"} %" PRIu64 "\n",
				(double)ends_ns[i] * 1e-9, sum);
		else
			fprintf(w->out, "le=\"+Inf\"} %" PRIu64 "\n", sum);
	}
	for (int k = 0; k < 2; k++) {
		fprintf(w->out, "%s_%s", family, k ? "count" : "sum");
		if (l->klass)
			fprintf(w->out, "{class=\"%s\"}", l->klass);
		if (k)
			fprintf(w->out, " %" PRIu64 "\n", sum);
		else
			fprintf(w->out, " %.9g\n", (double)l->hist->sum * 1e-9);
	}
}

static bool told_before(const struct obs *o, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (!strcmp(o->latency[k].name, o->latency[i].name))
			return true;
	return false;
}

static void latencies(const struct writer *w, const struct obs *o)
{
	for (uint32_t i = 0; i < o->latencies; i++) {
		char family[96], name[64], help[96];

		if (told_before(o, i))
			continue;
		snprintf(name, sizeof(name), "%s_duration", o->latency[i].name);
		family_name(family, sizeof(family), name, &seconds);
		snprintf(help, sizeof(help), "how long a %s takes", o->latency[i].name);
		head(w, family, "histogram", "seconds", help);
		for (uint32_t k = i; k < o->latencies; k++)
			if (!strcmp(o->latency[k].name, o->latency[i].name))
				histogram(w, family, &o->latency[k]);
	}
}

/* ---- the whole ----------------------------------------------------------------------------- */

void obs_scrape_take(const struct obs *o, uint64_t now_ns, struct obs_scrape *out)
{
	int64_t id = core_context_next(o->core, UINT32_MAX);
	struct core_context_stats one;

	out->now_ns = now_ns;
	out->turns = o->turns;
	out->sleeps = o->sleeps;
	out->gave_way = o->gave_way;
	out->turn_ns_most = o->turn_ns_most;
	out->holes_filled = o->holes_filled;
	out->memory_foreign = o->memory_foreign;
	out->event_ns_most = o->event_ns_most;
	out->memory_lost = o->memory_lost;
	out->metrics = *core_metrics(o->core);
	core_stats(o->core, &out->stats);
	for (out->contexts = 0; id >= 0 && out->contexts < OBS_SCRAPE_CONTEXTS;
	     id = core_context_next(o->core, (uint32_t)id)) {
		struct obs_scrape_context *c = &out->context[out->contexts];

		if (core_context_stats(o->core, (uint32_t)id, &one))
			continue;
		snprintf(c->name, sizeof(c->name), "%.*s", (int)ABI_NAME_BYTES, one.spec.name);
		c->blocks = one.blocks;
		c->index_bytes = one.index_bytes;
		for (uint32_t t = 0; t < ABI_TIER_COUNT; t++)
			c->live[t] = one.tier[t].live;
		out->contexts++;
	}
}

static void daemon_figures(const struct writer *w, const struct obs *o, const struct obs_scrape *s)
{
	static const struct unit counter = { "1", NULL, NULL, true, 1 };
	static const struct unit filled = { "B", NULL, "bytes", true, 1 };
	static const struct unit longest = { "ns", NULL, "seconds", false, 1e-9 };
	static const struct unit since = { "ns", NULL, "seconds", false, 1e-9 };

	head(w, "tier_build", w->format == OBS_OPENMETRICS ? "info" : "gauge", NULL,
	     "the daemon's version");
	fprintf(w->out, "tier_build%s{version=\"%s\"} 1\n",
		w->format == OBS_OPENMETRICS ? "_info" : "", o->version);
	single(w, "uptime", &since, "time since the daemon was started",
	       s->now_ns - o->started_ns);
	single(w, "loop_turns", &counter, "turns of the daemon's loop", s->turns);
	single(w, "loop_sleeps", &counter, "of these, ended in a sleep", s->sleeps);
	single(w, "loop_gave_way", &counter,
	       "gave way to a client on the loop's processor", s->gave_way);
	single(w, "loop_turn_longest", &longest, "time that the longest of these took",
	       s->turn_ns_most);
	single(w, "event_longest", &longest, "time that the core's longest event took",
	       s->event_ns_most);
	single(w, "holes_filled", &filled, "memory that readers made appear, given back",
	       s->holes_filled);
	single(w, "memory_foreign", &plain,
	       "pieces of memory of which others had set the policy, put right",
	       s->memory_foreign);
	single(w, "memory_lost", &bytes, "memory given back that pipes of somebody keep",
	       s->memory_lost);
	single(w, "clients", &plain, "connections that are open", s->stats.clients);
	single(w, "contexts", &plain, "contexts that there are", s->stats.contexts);
	single(w, "blocks", &plain, "blocks in all contexts", s->stats.blocks);
	single(w, "index", &bytes, "memory of all indexes", s->stats.index_bytes);
	single(w, "requests_active", &plain, "ring requests in progress", s->stats.requests);
	single(w, "store_segments_free", &plain, "segments of the store without data",
	       s->stats.segments_free);
	single(w, "store_drives", &plain, "drives of the store that are there", s->stats.drives);
	single(w, "store_drives_failing", &plain, "of these, not written to for now",
	       s->stats.drives_failing);
	single(w, "store_drives_draining", &plain, "of these, being drained",
	       s->stats.drives_draining);
	single(w, "store_drives_missing", &plain, "drives that the catalog names beside these",
	       s->stats.drives_missing);
}

void obs_scrape_write(const struct obs *o, const struct obs_scrape *s, enum obs_format format,
		      bool named, FILE *out)
{
	struct writer w = { out, format };

	daemon_figures(&w, o, s);
#define METRIC(name, unit, help) single(&w, #name, unit_of(unit), help, s->metrics.name);
#define ALIAS(old, name) single(&w, #old, unit_of("1"), "the old name of " #name, s->metrics.name);
#include "tierd/core/metrics.def"
#undef METRIC
	tiers(&w, o, s);
	if (named)
		contexts(&w, o, s);
	latencies(&w, o);
	if (format == OBS_OPENMETRICS)
		fputs("# EOF\n", out);
}
