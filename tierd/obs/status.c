/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents about the daemon as a whole: status, stat, check, clients, pins, requests.
 */
#include <string.h>
#include <unistd.h>

#include "tierd/obs/obs_priv.h"

#define CHECK_MESSAGES_MAX 256u

/* ---- status -------------------------------------------------------------------------------- */

static json_t *tier_list(const struct obs *o, const struct core_stats *stats)
{
	json_t *list = json_array();

	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		const struct obs_tier *tier = &o->tier[t];
		json_t *one = json_pack("{s:s, s:b, s:o, s:o, s:b, s:b, s:o}", "tier",
					obs_tier_name[t], "present", tier->present, "backend",
					obs_text(tier->backend), "detail", obs_text(tier->detail),
					"emulated", tier->emulated, "failing",
					stats->tier[t].failing, "capacity",
					obs_number(stats->tier[t].capacity));

		json_object_update_new(one, obs_tier_numbers(&stats->tier[t]));
		json_array_append_new(list, one);
	}
	return list;
}

struct counts {
	uint32_t open, shared; /* connections; of these under the daemon's own uid */
};

static struct counts count_connections(const struct obs *o, const struct obs_question *q)
{
	struct counts n = { 0, 0 };

	for (uint32_t i = 0; i < q->connections; i++) {
		n.open += q->connection[i].open;
		n.shared += q->connection[i].open && q->connection[i].uid == o->uid;
	}
	return n;
}

/* I3 and I4 hold between uids: say so when they do not. */
static json_t *isolation(const struct obs *o, struct counts n)
{
	if (n.shared)
		return json_pack("{s:b, s:o}", "isolated", 0, "text",
				 json_sprintf("no isolation: %u of %u clients share the daemon's "
					      "uid %u", n.shared, n.open, o->uid));
	return json_pack("{s:b, s:s}", "isolated", 1, "text",
			 "clients have other uids than the daemon");
}

static json_t *recovery(const struct obs *o)
{
	const struct core_recovery *r = &o->recovery;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "segments",
			 obs_number(r->segments), "records", obs_number(r->records),
			 "records_bad", obs_number(r->records_bad), "blocks",
			 obs_number(r->blocks), "blocks_stale", obs_number(r->blocks_stale),
			 "blocks_unproven", obs_number(r->blocks_unproven), "blocks_orphaned",
			 obs_number(r->blocks_orphaned), "blocks_unreached",
			 obs_number(r->blocks_unreached), "bytes",
			 obs_number(r->bytes), "ns", obs_number(o->recovery_ns));
}

static json_t *handover(const struct obs *o)
{
	const struct core_handover *h = &o->handover;

	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "blocks", obs_number(h->blocks), "pages",
			 obs_number(h->pages), "bytes", obs_number(h->bytes), "dirty",
			 obs_number(h->dirty), "refused", obs_number(h->refused));
}

static json_t *log_of(const char *name, const struct core_log_stats *l)
{
	double factor = l->written ? (double)(l->written + l->again) / (double)l->written : 1;

	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:f}", "log", name, "segments",
			 obs_number(l->segments), "live", obs_number(l->live), "capacity",
			 obs_number(l->capacity), "written", obs_number(l->written),
			 "written_again", obs_number(l->again), "write_amplification", factor);
}

static const char *state_of(const struct core_drive_stats *s)
{
	if (s->drained)
		return "drained";
	return s->failing ? "FAILING" : s->leaving ? "DRAINING" : "ok";
}

static json_t *drives(const struct obs *o)
{
	json_t *list = json_array();
	struct core_drive_stats s;
	struct disk_drive gone;

	for (uint32_t i = 0; core_drive_stats(o->core, i, &s) == 0; i++)
		json_array_append_new(
			list, json_pack("{s:o, s:s, s:o, s:b, s:b, s:o, s:o, s:o, s:o}", "path",
					obs_text(i ? o->drive[i] : o->store), "state",
					state_of(&s), "store_id", obs_hex64(s.store_id),
					"draining", s.leaving && !s.drained, "no_room", s.no_room,
					"capacity", obs_number(s.capacity), "live",
					obs_number(s.live), "segments", obs_number(s.segments),
					"segments_free", obs_number(s.segments_free)));
	for (uint32_t i = 0; core_drive_missing(o->core, i, &gone) == 0; i++)
		json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:o}", "path",
						      obs_hex64(gone.store_id), "state", "MISSING",
						      "store_id", obs_hex64(gone.store_id),
						      "capacity", obs_number(gone.capacity)));
	return list;
}

static json_t *store(const struct obs *o, const struct core_stats *stats)
{
	if (!o->store)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:[o, o]}", "drives", drives(o), "path",
			 obs_text(o->store), "segments",
			 obs_number(o->super.segment_count), "segment_bytes",
			 obs_number(o->super.segment_bytes), "segments_free",
			 obs_number(stats->segments_free), "logs",
			 log_of("durable", &stats->log[DISK_LOG_DURABLE]),
			 log_of("cache", &stats->log[DISK_LOG_CACHE]));
}

static json_t *objects(const struct obs *o)
{
	struct objects_stats s;

	if (!o->objects)
		return json_null();
	objects_stats(o->objects, &s);
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
			 "s:o}", "count", obs_number(s.objects), "resident",
			 obs_number(s.resident), "uploads", obs_number(s.uploads), "cxl_used",
			 obs_number(s.used[OBJECT_CXL]),
			 "cxl_most", obs_number(s.most[OBJECT_CXL]), "cxl_held",
			 obs_number(s.held), "nvme_used", obs_number(s.used[OBJECT_NVME]),
			 "nvme_most", obs_number(s.most[OBJECT_NVME]), "opened",
			 obs_number(s.opened), "brought", obs_number(s.brought), "evicted",
			 obs_number(s.evicted), "committed", obs_number(s.committed), "removed",
			 obs_number(s.removed), "rotten", obs_number(s.rotten),
			 "passed", obs_number(s.passed));
}

static json_t *facts(const struct obs *o)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < o->facts; i++)
		json_object_set_new(object, o->fact[i].name, obs_text(o->fact[i].value));
	return object;
}

static json_t *limits(const struct obs *o)
{
	const struct obs_limits *l = &o->limits;

	json_t *all = json_pack("{s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:i}", "clients",
				(int)l->clients, "user_connections", (int)l->user_connections,
				"user_contexts", (int)l->user_contexts, "client_staging_bytes",
				obs_number(l->staging_bytes), "client_requests", (int)l->requests,
				"client_puts", (int)l->puts, "client_pins", (int)l->pins,
				"pin_percent", (int)l->pin_percent, "quarantine_percent",
				(int)l->quarantine_percent);

	json_object_set(all, "user_sessions", json_object_get(all, "user_connections")); /* (old) */
	return all;
}

/*
 * Memory beside the tiers: what contexts' tables take and may take, what was taken at start, and
 * what the clients that are there were granted. The sum is what all accounts allow.
 */
static json_t *memory(const struct obs *o, const struct obs_question *q,
		      const struct core_stats *stats)
{
	uint64_t tables = o->limits.table_bytes, used = stats->table_bytes, clients = 0;
	uint64_t cold = o->cold_kind ? *o->cold_bytes : 0;
	struct objects_stats objects = { .memory = 0 };

	if (o->objects)
		objects_stats(o->objects, &objects);
	for (uint32_t i = 0; i < q->connections; i++)
		clients += q->connection[i].staging_bytes + q->connection[i].region_bytes;
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}",
			 "tables", obs_number(used),
			 "tables_most", obs_number(tables), "slack",
			 obs_number(stats->slack_bytes), "fixed", obs_number(o->fixed_bytes),
			 "clients", obs_number(clients),
			 "objects", obs_number(objects.memory),
			 "answers", obs_number(q->answer_bytes), "most",
			 obs_number(o->fixed_bytes + clients + stats->slack_bytes +
				    objects.memory + q->answer_bytes +
				    (tables > used ? tables : used)),
			 "cold", o->cold_kind ? o->cold_kind : "dram", "cold_bytes",
			 obs_number(cold));
}

/* Contexts that could not be made; whose they are is theirs and the operators' to know. */
static json_t *aside(const struct obs *o, const struct obs_question *q)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < o->asides; i++)
		if (q->operator_ || q->uid == o->aside[i].owner_uid)
			json_array_append_new(list, json_pack("{s:o, s:i, s:i, s:o}", "name",
							      obs_text(o->aside[i].name), "uid",
							      (int)o->aside[i].owner_uid, "error",
							      o->aside[i].error, "why",
							      obs_text(o->aside[i].why)));
	return list;
}

/* How many contexts others have, and how full, is theirs to know. */
static void count_seen(const struct obs_args *a, struct core_stats *stats)
{
	struct core_context_stats one;
	int64_t id = OBS_FIRST;

	if (a->question->operator_)
		return;
	stats->contexts = 0;
	stats->blocks = stats->pages = stats->index_bytes = 0;
	while ((id = obs_next(a->o->core, a->question, id, &one)) >= 0) {
		stats->contexts++;
		stats->blocks += one.blocks;
		stats->pages += one.resident[ABI_TIER_HBM] + one.resident[ABI_TIER_CXL];
		stats->index_bytes += one.index_bytes;
	}
}

json_t *obs_status(const struct obs_args *a)
{
	const struct obs *o = a->o;
	const struct obs_question *q = a->question;
	struct counts n = count_connections(o, q);
	struct core_stats stats;
	json_t *document;

	core_stats(o->core, &stats);
	count_seen(a, &stats);
	document = json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:i}", "version", o->version,
			     "pid", (int)getpid(), "uid", (int)o->uid, "boot",
			     obs_hex64(o->boot_token), "uptime_ns",
			     obs_number(q->now_ns - o->started_ns), "ready_ns",
			     obs_number(o->ready_ns), "socket", obs_text(o->socket), "workers",
			     (int)o->workers);
	json_object_set_new(document, "isolation", isolation(o, n));
	json_object_set_new(document, "connections",
			    json_pack("{s:i, s:i, s:i}", "open", (int)n.open, "ended",
				      (int)(q->connections - n.open), "shared_uid", (int)n.shared));
	json_object_set(document, "sessions", json_object_get(document, "connections")); /* (old) */
	json_object_set_new(document, "limits", limits(o));
	json_object_set_new(document, "tiers", tier_list(o, &stats));
	json_object_set_new(document, "store", store(o, &stats));
	json_object_set_new(document, "objects", objects(o));
	json_object_set_new(document, "kernel", facts(o));
	json_object_set_new(document, "recovery", recovery(o));
	json_object_set_new(document, "handover", handover(o));
	json_object_set_new(document, "seen", json_string(obs_seen(q)));
	json_object_set_new(document, "contexts", obs_number(stats.contexts));
	json_object_set_new(document, "blocks", obs_number(stats.blocks));
	json_object_set_new(document, "pages", obs_number(stats.pages));
	json_object_set_new(document, "index_bytes", obs_number(stats.index_bytes));
	json_object_set_new(document, "memory", memory(o, q, &stats));
	json_object_set_new(document, "aside", aside(o, q));
	json_object_set_new(document, "leaving",
			    q->operator_ ? obs_number(stats.leaving) : json_null());
	json_object_set(document, "parting", json_object_get(document, "leaving")); /* old name */
	json_object_set_new(document, "requests", obs_number(stats.requests));
	json_object_set_new(document, "ios", obs_number(stats.ios));
	json_object_set_new(document, "copies", obs_number(stats.copies));
	json_object_set_new(document, "pins", obs_number(stats.pins));
	return document;
}

/* ---- stat ---------------------------------------------------------------------------------- */

static void metric(json_t *list, const char *name, const char *unit, const char *help,
		   uint64_t value)
{
	json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:s}", "name", name, "unit", unit,
					      "value", obs_number(value), "help", help));
}

/* By the name that it had; alias says the one it has. */
static void old_metric(json_t *list, const char *old, const char *name, uint64_t value)
{
	json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:s, s:s}", "name", old, "unit", "1",
					      "value", obs_number(value), "help", "an old name",
					      "alias", name));
}

static json_t *metrics(const struct core_metrics *m)
{
	json_t *list = json_array();

#define METRIC(name, unit, help) metric(list, #name, unit, help, m->name);
#define ALIAS(old, name) old_metric(list, #old, #name, m->name);
#include "tierd/core/metrics.def"
#undef METRIC
	return list;
}

static json_t *latency(const struct obs_latency *l)
{
	const struct hist *h = l->hist;

	return json_pack("{s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o}", "name", l->name, "class",
			 l->klass, "count", obs_number(h->count), "mean_ns",
			 obs_number((uint64_t)hist_mean(h)), "p50_ns",
			 obs_number(hist_quantile(h, 0.5)), "p99_ns",
			 obs_number(hist_quantile(h, 0.99)), "p999_ns",
			 obs_number(hist_quantile(h, 0.999)), "max_ns", obs_number(h->max));
}

json_t *obs_stat(const struct obs_args *a)
{
	const struct obs *o = a->o;
	json_t *list = json_array();

	for (uint32_t i = 0; i < o->latencies; i++)
		json_array_append_new(list, latency(&o->latency[i]));
	return json_pack("{s:o, s:o, s:o, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}}", "now_ns",
			 obs_number(a->question->now_ns), "metrics",
			 metrics(core_metrics(o->core)), "latency", list, "loop", "turns",
			 obs_number(o->turns), "sleeps", obs_number(o->sleeps), "longest_ns",
			 obs_number(o->turn_ns_most), "gave_way", obs_number(o->gave_way),
			 "event_longest_ns",
			 obs_number(o->event_ns_most), "holes_filled",
			 obs_number(o->holes_filled), "memory_foreign",
			 obs_number(o->memory_foreign), "memory_lost",
			 obs_number(o->memory_lost));
}

/* ---- check --------------------------------------------------------------------------------- */

static void take_message(void *arg, const char *what)
{
	json_t *list = arg;

	if (json_array_size(list) < CHECK_MESSAGES_MAX)
		json_array_append_new(list, obs_text(what));
}

static json_t *ground(const struct obs_ground *g)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "charged", obs_number(g->charged),
			 "written", obs_number(g->written), "resident", obs_number(g->resident),
			 "found", obs_number(g->found), "foreign", obs_number(g->foreign),
			 "missing", obs_number(g->missing));
}

static json_t *recounted(const struct obs_recount *r)
{
	json_t *host = json_pack("{s:o, s:o, s:o, s:i, s:i, s:o, s:o, s:b}", "index_resident",
				 obs_number(r->index_resident), "region_bytes",
				 obs_number(r->region_bytes), "mapped", obs_number(r->mapped),
				 "regions", (int)r->regions, "descriptors", (int)r->descriptors,
				 "hbm", ground(&r->tier[ABI_TIER_HBM]), "cxl",
				 ground(&r->tier[ABI_TIER_CXL]), "busy", r->busy);

	if (r->store)
		json_object_set_new(host, "store",
				    json_pack("{s:o, s:o, s:o, s:o}", "bytes",
					      obs_number(r->store_bytes), "length",
					      obs_number(r->store_length), "allocated",
					      obs_number(r->store_allocated), "holes",
					      obs_number(r->store_holes)));
	return host;
}

json_t *obs_check(const struct obs_args *a)
{
	struct obs_recount r = { .regions = 0 };
	json_t *list = json_array(), *answer;
	uint64_t errors = core_audit(a->o->core, take_message, list);

	if (a->o->recount)
		errors += a->o->recount(a->o->shell, &r, take_message, list);
	answer = json_pack("{s:o, s:o}", "errors", obs_number(errors), "messages", list);
	if (a->o->recount)
		json_object_set_new(answer, "host", recounted(&r));
	return answer;
}

/* ---- lists --------------------------------------------------------------------------------- */

/*
 * What it holds of what is limited; nothing of a connection that the core does not know any more.
 */
static json_t *client_holds(const struct core *core, uint32_t id)
{
	struct core_client_view v = { .requests = 0 };

	if (core_client_view(core, id, &v))
		v = (struct core_client_view){ .requests = 0 };
	return json_pack("{s:i, s:i, s:i, s:i, s:o}", "requests", (int)v.requests, "puts",
			 (int)v.puts, "pending", (int)v.pending, "pins", (int)v.pins, "quarantined",
			 obs_number(v.quarantined[ABI_TIER_HBM] + v.quarantined[ABI_TIER_CXL]));
}

json_t *obs_clients(const struct obs_args *a)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < a->question->connections; i++) {
		const struct obs_connection *s = &a->question->connection[i];
		json_t *one =
			json_pack("{s:i, s:o, s:i, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:o}", "id",
				  (int)s->id, "name", obs_text(s->name), "pid", (int)s->pid, "uid",
				  (json_int_t)s->uid, "gid", (json_int_t)s->gid, "open", s->open,
				  "operator", s->operator_, "staging_bytes",
				  obs_number(s->staging_bytes), "taken", obs_number(s->taken),
				  "posted", obs_number(s->posted), "since_ns",
				  obs_number(s->since_ns));

		json_object_update_new(one, client_holds(a->o->core, s->id));
		json_array_append_new(list, one);
	}
	return json_pack("{s:o}", "clients", list);
}

/* A context by name in lists; one that is just leaving has its number. */
static json_t *context_name(const struct core *core, uint32_t id)
{
	struct core_context_stats stats;

	if (core_context_stats(core, id, &stats))
		return json_sprintf("#%u", id);
	return obs_text(stats.spec.name);
}

json_t *obs_pins(const struct obs_args *a)
{
	const struct core *core = a->o->core;
	struct core_pin_view pin;
	json_t *list = json_array();

	for (uint32_t i = 0; core_pin_view(core, i, &pin) == 0; i++) {
		uint64_t ends_ns = pin.deadline_ns == UINT64_MAX ? 0 : pin.deadline_ns;

		json_array_append_new(
			list, json_pack("{s:o, s:i, s:o, s:s, s:o, s:o, s:o}", "id",
					obs_hex64(pin.id), "client", (int)pin.client, "context",
					context_name(core, pin.context_id), "tier",
					obs_tier_name[pin.tier % ABI_TIER_COUNT], "blocks",
					obs_number(pin.blocks), "bytes", obs_number(pin.bytes),
					"deadline_ns", obs_number(ends_ns)));
	}
	return json_pack("{s:o}", "pins", list);
}

/* Watermarks and accounts of streams, answered ones that still hold layers included. */
static json_t *streams(const struct core *core)
{
	static const char *const status[] = { "ready", "late", "missed", "dropped" };
	struct core_stream_view s;
	json_t *list = json_array();

	for (uint32_t i = 0; core_stream_view(core, i, &s) == 0; i++)
		json_array_append_new(
			list,
			json_pack("{s:i, s:s, s:o, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i,"
				  " s:o, s:o, s:o, s:o, s:o, s:o}",
				  "client", (int)s.client, "class",
				  obs_class_name[s.klass % ABI_CLASS_COUNT], "context",
				  context_name(core, s.context_id), "tier",
				  obs_tier_name[s.tier % ABI_TIER_COUNT], "mode",
				  s.mode == ABI_MODE_CACHE ? "cache" : "stream", "status",
				  s.ended ? status[s.status % 4] : s.window ? "running" : "queued",
				  "blocks", (int)s.blocks, "usable", (int)s.usable, "layers",
				  (int)s.layers, "ready", (int)s.ready, "released",
				  (int)s.released, "window", (int)s.window, "bytes",
				  obs_number(s.bytes), "used", obs_number(s.used), "late",
				  obs_number(s.late), "wasted", obs_number(s.wasted), "since_ns",
				  obs_number(s.since_ns), "deadline_ns",
				  obs_number(s.deadline_ns)));
	return list;
}

/* What a parked prefetch will do; there is nothing of the kind of a request under way. */
static void add_parked(json_t *one, const struct core_request_view *r)
{
	json_object_set_new(one, "parked", json_boolean(r->parked));
	json_object_set_new(one, "bytes", r->parked ? obs_number(r->bytes) : json_null());
	json_object_set_new(one, "start_ns",
			    r->parked && r->start_ns ? obs_number(r->start_ns) : json_null());
}

json_t *obs_requests(const struct obs_args *a)
{
	const struct core *core = a->o->core;
	struct core_request_view r;
	json_t *list = json_array();

	for (uint32_t i = 0; core_request_view(core, i, &r) == 0; i++) {
		json_t *one =
			json_pack("{s:o, s:s, s:s, s:o, s:i, s:i, s:o, s:o}", "client",
				  r.client < CORE_CLIENTS_MAX ? obs_number(r.client) : json_null(),
				  "op", r.name, "class",
				  obs_class_name[r.klass % ABI_CLASS_COUNT], "context",
				  context_name(core, r.context_id), "count", (int)r.count, "done",
				  (int)r.done, "since_ns", obs_number(r.since_ns), "deadline_ns",
				  obs_number(r.deadline_ns));

		add_parked(one, &r);
		json_array_append_new(list, one);
	}
	return json_pack("{s:o, s:o}", "requests", list, "streams", streams(core));
}
