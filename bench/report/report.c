/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's outcome as JSON and as a page; see report.h. The table is in table.c. */
#include "bench/report/report.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"

#define CDF_POINTS 200u
#define TEMPLATE_BYTES_MAX (1u << 20)

static const char *const tier_names[TIER_COUNT] = { "hbm", "cxl", "nvme", "remote" };

static json_t *pack_u64(uint64_t value)
{
	return json_integer((json_int_t)value);
}

/* ---- where it ran -------------------------------------------------------------------------- */

/* The value of a line "name : value" in /proc/cpuinfo or /proc/meminfo. */
static void proc_line(char *out, size_t bytes, const char *path, const char *name)
{
	FILE *f CLEANUP_FCLOSE = fopen(path, "re");
	char line[256];

	snprintf(out, bytes, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, name, strlen(name)) != 0)
			continue;
		colon += 1 + strspn(colon + 1, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		snprintf(out, bytes, "%s", colon);
		return;
	}
}

static json_t *host_json(void)
{
	struct utsname u;
	char cpu[128], memory[64];

	if (uname(&u))
		memset(&u, 0, sizeof(u));
	proc_line(cpu, sizeof(cpu), "/proc/cpuinfo", "model name");
	proc_line(memory, sizeof(memory), "/proc/meminfo", "MemTotal");
	return json_pack("{ss ss si ss}", "kernel", u.release, "cpu", cpu, "cores",
			 (int)sysconf(_SC_NPROCESSORS_ONLN), "memory", memory);
}

static json_t *date_json(void)
{
	char text[32];
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &tm);
	return json_string(text);
}

/* ---- parts --------------------------------------------------------------------------------- */

static json_t *settings_json(const struct report *r)
{
	const struct engine_settings *s = &r->replay->set;

	return json_pack(
		"{ss si sI sI sI si si si si si si si}", "trace", r->trace_name, "engines",
		(int)r->replay->engines, "requests", (json_int_t)r->replay->trace->request_count,
		"blocks_distinct", (json_int_t)r->replay->trace->distinct, "block_bytes",
		(json_int_t)s->layers * (s->groups * s->page_bytes + s->sidecar_bytes),
		"block_tokens", (int)r->replay->trace->block_tokens, "layers", (int)s->layers,
		"groups", (int)s->groups, "page_bytes", (int)s->page_bytes, "sidecar_bytes",
		(int)s->sidecar_bytes, "decode_steps", (int)s->decode_steps, "top", (int)s->top);
}

/* One of the daemon's counters. */
uint64_t report_metric(const struct report *r, const char *name)
{
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(r->stat, "metrics"), i, one)
		if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
			return (uint64_t)json_integer_value(json_object_get(one, "value"));
	return 0;
}

static json_t *totals_json(const struct report *r)
{
	const struct engine_stats *t = &r->replay->total;
	const struct trace *trace = r->replay->trace;
	json_t *out = json_object();
	const struct {
		const char *name;
		uint64_t value;
	} counts[] = {
		{ "requests", t->requests },
		{ "blocks", t->blocks },
		{ "blocks_hit", t->blocks_hit },
		{ "blocks_reusable", trace->reusable },
		{ "blocks_lost", t->blocks_lost },
		{ "tokens", t->tokens },
		{ "tokens_saved", t->tokens_saved },
		{ "put_blocks", t->put_blocks },
		{ "put_bytes", t->put_bytes },
		{ "put_exists", t->put_exists },
		{ "put_dropped", t->put_dropped },
		{ "put_failed", t->put_failed },
		{ "verified_pages", t->verified_pages },
		{ "verified_bytes", t->verified_bytes },
		{ "bad_pages", t->bad_pages },
		{ "decode_lists", t->decode_lists },
		{ "decode_pages", t->decode_pages },
		{ "decode_gone", t->decode_gone },
		{ "fetches_late", t->fetches_late },
		{ "streams", t->streams },
		{ "streams_ready", t->streams_ready },
		{ "streams_late", t->streams_late },
		{ "streams_missed", t->streams_missed },
		{ "streams_failed", t->streams_failed },
		{ "streams_ended_early", t->streams_ended_early },
		{ "layers", t->layers },
		{ "layers_there", t->layers_there },
		{ "layer_wait_ns", t->layer_wait_ns },
		{ "stream_bytes", report_metric(r, "stream_bytes") },
		{ "stream_used", report_metric(r, "stream_used") },
		{ "stream_late", report_metric(r, "stream_late") },
		{ "stream_wasted", report_metric(r, "stream_wasted") },
		{ "pins", t->pins },
		{ "pins_refused", t->pins_refused },
	};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		json_object_set_new(out, counts[i].name, pack_u64(counts[i].value));
	json_object_set_new(out, "repeat_percent", pack_u64(r->replay->set.repeat_percent));
	json_object_set_new(out, "clock_ns", json_real(r->replay->set.tick.resolution_ns));
	json_object_set_new(out, "seconds", json_real(r->replay->seconds));
	json_object_set_new(out, "generator_gbps", json_real(r->generator_gbps));
	json_object_set_new(out, "verifier_gbps", json_real(r->verifier_gbps));
	return out;
}

static double per_second(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0; /* GB/s */
}

static json_t *tiers_json(const struct report *r)
{
	const struct engine_stats *t = &r->replay->total;
	json_t *out = json_array();

	for (uint32_t k = 0; k <= TIER_NVME; k++) {
		bool nvme = k == TIER_NVME;
		double rate = nvme ? per_second(t->fetch_bytes, t->fetch_ns)
				   : per_second(t->read[k].bytes, t->read[k].ns);

		json_array_append_new(out, json_pack("{ss sI sI sI sf}", "name", tier_names[k],
						     "hit_blocks", (json_int_t)t->hit_tier[k],
						     "pages", (json_int_t)t->read[k].pages, "bytes",
						     (json_int_t)t->read[k].bytes, "gbps", rate));
	}
	return out;
}

/* Quantiles, and a curve: [ns, share at or below]. */
static json_t *latency_json(const struct hist *h)
{
	json_t *cdf = json_array();

	for (uint32_t i = 0; h->count && i <= CDF_POINTS; i++) {
		/* Denser towards the tail: it is what the curve is looked at for. */
		double q = 1.0 - (1.0 - (double)i / CDF_POINTS) * (1.0 - (double)i / CDF_POINTS) *
					 (1.0 - (double)i / CDF_POINTS);

		json_array_append_new(cdf, json_pack("[If]", (json_int_t)hist_quantile(h, q), q));
	}
	return json_pack("{sI sI sI sI sI so}", "count", (json_int_t)h->count, "p50",
			 (json_int_t)hist_quantile(h, 0.5), "p99",
			 (json_int_t)hist_quantile(h, 0.99), "p999",
			 (json_int_t)hist_quantile(h, 0.999), "max",
			 (json_int_t)(h->count ? h->max : 0), "cdf", cdf);
}

/* One array a column keeps the page small. */
static json_t *series_json(const struct replay *r)
{
	json_t *out = json_object();
	const struct {
		const char *name;
		size_t offset;
	} columns[] = {
		{ "requests", offsetof(struct replay_sample, requests) },
		{ "blocks", offsetof(struct replay_sample, blocks) },
		{ "hit_hbm", offsetof(struct replay_sample, hit_tier[TIER_HBM]) },
		{ "hit_cxl", offsetof(struct replay_sample, hit_tier[TIER_CXL]) },
		{ "hit_nvme", offsetof(struct replay_sample, hit_tier[TIER_NVME]) },
		{ "bytes_hbm", offsetof(struct replay_sample, tier_bytes[TIER_HBM]) },
		{ "bytes_cxl", offsetof(struct replay_sample, tier_bytes[TIER_CXL]) },
		{ "bytes_nvme", offsetof(struct replay_sample, tier_bytes[TIER_NVME]) },
		{ "bytes_put", offsetof(struct replay_sample, put_bytes) },
		{ "live_hbm", offsetof(struct replay_sample, live[TIER_HBM]) },
		{ "live_cxl", offsetof(struct replay_sample, live[TIER_CXL]) },
		{ "live_nvme", offsetof(struct replay_sample, live[TIER_NVME]) },
		{ "dirty", offsetof(struct replay_sample, dirty) },
	};
	json_t *seconds = json_array();

	for (uint32_t i = 0; i < r->sample_count; i++)
		json_array_append_new(seconds, json_real(r->sample[i].seconds));
	json_object_set_new(out, "seconds", seconds);
	for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++) {
		json_t *column = json_array();

		for (uint32_t i = 0; i < r->sample_count; i++) {
			uint64_t value;

			memcpy(&value, (const char *)&r->sample[i] + columns[c].offset, 8);
			json_array_append_new(column, pack_u64(value));
		}
		json_object_set_new(out, columns[c].name, column);
	}
	return out;
}

static json_t *restart_json(const struct report_restart *r)
{
	if (!r)
		return json_null();
	return json_pack("{sf sf sf sf sI sI sf}", "stop_s", r->stop_s, "ready_s", r->ready_s,
			 "hit_s", r->hit_s, "first_hit_ms", r->first_hit_ms, "blocks",
			 (json_int_t)r->blocks, "bad_pages", (json_int_t)r->bad_pages, "prefix_ms",
			 r->prefix_ms);
}

json_t *report_json(const struct report *r)
{
	json_t *lease = json_pack("{so so}", "one", latency_json(&r->replay->total.lease_one),
				  "list", latency_json(&r->replay->total.lease_list));
	json_t *status = r->status ? json_deep_copy(r->status) : json_null();
	json_t *stat = r->stat ? json_deep_copy(r->stat) : json_null();

	return json_pack("{so ss so so so so so so so so so}", "date", date_json(), "commit",
			 r->commit ? r->commit : "", "host", host_json(), "settings",
			 settings_json(r), "totals", totals_json(r), "tiers", tiers_json(r),
			 "lease", lease, "series", series_json(r->replay), "restart",
			 restart_json(r->restart), "status", status, "stat", stat);
}

/* ---- files --------------------------------------------------------------------------------- */

int report_write_json(const json_t *json, const char *path)
{
	FILE *f CLEANUP_FCLOSE = fopen(path, "we");

	if (!f)
		return -errno;
	if (json_dumpf(json, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || fputc('\n', f) == EOF ||
	    fflush(f))
		return errno ? -errno : -EIO;
	return 0;
}

static int read_all(char **out, const char *path)
{
	FILE *f CLEANUP_FCLOSE = fopen(path, "re");
	char *text CLEANUP_FREE = malloc(TEMPLATE_BYTES_MAX);
	size_t got;

	if (!f)
		return -errno;
	if (!text)
		return -ENOMEM;
	got = fread(text, 1, TEMPLATE_BYTES_MAX, f);
	if (ferror(f))
		return -EIO;
	if (got == TEMPLATE_BYTES_MAX)
		return -E2BIG;
	text[got] = '\0';
	*out = take_ptr(text);
	return 0;
}

/* JSON inside a script element: nothing in it may look like the element's end. */
static int put_data(FILE *f, const char *json)
{
	for (; *json; json++) {
		int done = *json == '<' ? fputs("\\u003c", f) : fputc(*json, f);

		if (done == EOF)
			return -EIO;
	}
	return 0;
}

int report_write_html(const json_t *json, const char *template_path, const char *path)
{
	char *page CLEANUP_FREE = NULL, *data CLEANUP_FREE = NULL, *marker;
	FILE *f CLEANUP_FCLOSE = NULL;
	int error = read_all(&page, template_path);

	if (error)
		return error;
	marker = strstr(page, REPORT_MARKER);
	if (!marker)
		return -EINVAL;
	data = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6));
	if (!data)
		return -ENOMEM;
	f = fopen(path, "we");
	if (!f)
		return -errno;
	if (fwrite(page, 1, (size_t)(marker - page), f) != (size_t)(marker - page))
		return -EIO;
	error = put_data(f, data);
	if (!error && fputs(marker + strlen(REPORT_MARKER), f) == EOF)
		error = -EIO;
	if (!error && fflush(f))
		error = -errno;
	return error;
}
