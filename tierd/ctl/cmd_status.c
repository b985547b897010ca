/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl status, stat, top: the daemon as a whole. */
#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

/* ---- status -------------------------------------------------------------------------------- */

int ctl_show_tiers(const json_t *status, FILE *to)
{
	static const char *const heads[] = { "tier",   ">capacity", ">used",	    ">live",
					     ">dirty", ">pinned",   ">quarantined", "backend" };
	static const char *const bytes[] = { "capacity", "used",   "live",
					     "dirty",	 "pinned", "quarantined" };
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL], detail[CTL_CELL], last[3 * CTL_CELL];
	const json_t *tiers = json_at(status, "tiers");

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *one = json_array_get(tiers, i);

		if (json_is_false(json_at(one, "present")))
			continue;
		grid_add(g, ctl_text(cell, one, "tier"));
		for (uint32_t k = 0; k < COUNT(bytes); k++)
			grid_add(g, ctl_bytes(cell, one, bytes[k]));
		snprintf(last, sizeof(last), "%s%s%s, %s", ctl_text(cell, one, "backend"),
			 json_is_true(json_at(one, "emulated")) ? " (EMULATED)" : "",
			 json_is_true(json_at(one, "failing")) ? " (FAILING)" : "",
			 ctl_text(detail, one, "detail"));
		grid_add(g, last);
	}
	return grid_print(g, to);
}

static void show_facts(const json_t *status, FILE *to)
{
	json_t *kernel = json_object_get(status, "kernel"), *value;
	const char *name;

	json_object_foreach(kernel, name, value) if (json_is_string(value))
		fprintf(to, "  %-18s %s\n", name, json_string_value(value));
}

static void show_limits(const json_t *status, FILE *to)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	fprintf(to, "limits     %s clients; a user: %s sessions, %s contexts;\n",
		ctl_count(a, status, "limits.clients"),
		ctl_count(b, status, "limits.user_sessions"),
		ctl_count(c, status, "limits.user_contexts"));
	fprintf(to, "           a client: %s staging, %s requests, %s puts, %s pins;\n",
		ctl_bytes(a, status, "limits.client_staging_bytes"),
		ctl_count(b, status, "limits.client_requests"),
		ctl_count(c, status, "limits.client_puts"),
		ctl_count(d, status, "limits.client_pins"));
	fprintf(to, "           of a tier: %s%% pinned, %s%% kept by a client's leases\n",
		ctl_count(a, status, "limits.pin_percent"),
		ctl_count(b, status, "limits.quarantine_percent"));
}

static void show_logs(const json_t *status, FILE *to)
{
	const json_t *logs = json_at(status, "store.logs");
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	for (size_t i = 0; i < json_array_size(logs); i++) {
		const json_t *one = json_array_get(logs, i);

		fprintf(to, "  %-8s %s segments, %s live of %s; written %.2f times\n",
			ctl_text(a, one, "log"), ctl_count(b, one, "segments"),
			ctl_bytes(c, one, "live"), ctl_bytes(d, one, "capacity"),
			json_number_value(json_at(one, "write_amplification")));
	}
}

int ctl_show_status(const json_t *status, FILE *to)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];
	int error;

	fprintf(to, "tierd %s, pid %s, up %s, boot %s\n", ctl_text(a, status, "version"),
		ctl_count(b, status, "pid"), ctl_ns(c, status, "uptime_ns"),
		ctl_text(d, status, "boot"));
	fprintf(to, "socket     %s\n", ctl_text(a, status, "socket"));
	fprintf(to, "isolation  %s\n", ctl_text(a, status, "isolation.text"));
	fprintf(to, "clients    %s open, %s ended whose process may still read\n",
		ctl_count(a, status, "sessions.open"), ctl_count(b, status, "sessions.ended"));
	fprintf(to, "contexts   %s with %s blocks of %s pages, index %s\n",
		ctl_count(a, status, "contexts"), ctl_count(b, status, "blocks"),
		ctl_count(c, status, "pages"), ctl_bytes(d, status, "index_bytes"));
	fprintf(to, "under way  %s requests, %s device operations, %s copies; %s pins\n",
		ctl_count(a, status, "requests"), ctl_count(b, status, "ios"),
		ctl_count(c, status, "copies"), ctl_count(d, status, "pins"));
	show_limits(status, to);
	fprintf(to, "store      %s, %s segments of %s\n", ctl_text(a, status, "store.path"),
		ctl_count(b, status, "store.segments"),
		ctl_bytes(c, status, "store.segment_bytes"));
	show_logs(status, to);
	fprintf(to, "recovered  %s blocks of %s records in %s; %s records did not verify\n\n",
		ctl_count(a, status, "recovery.blocks"), ctl_count(b, status, "recovery.records"),
		ctl_ns(c, status, "recovery.ns"), ctl_count(d, status, "recovery.records_bad"));
	error = ctl_show_tiers(status, to);
	if (json_object_size(json_object_get(status, "kernel"))) {
		fputs("\nhost\n", to);
		show_facts(status, to);
	}
	return error;
}

int ctl_status(struct ctl *ctl, int argc, char **argv)
{
	json_t *status;
	int rc = ctl_arguments(ctl, argc, 0, 0);

	(void)argv;
	if (rc == CTL_OK)
		rc = ctl_ask(ctl, "status", NULL, &status);
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(status);
	else
		rc = ctl_show_status(status, stdout) ? CTL_FAILED : CTL_OK;
	json_decref(status);
	return rc;
}

/* ---- stat ---------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *name)
{
	return !pattern || fnmatch(pattern, name, 0) == 0;
}

static bool any_matches(const json_t *metrics, const char *pattern)
{
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(metrics); i++)
		if (matches(pattern, ctl_text(cell, json_array_get(metrics, i), "name")))
			return true;
	return false;
}

static int show_metrics(const json_t *metrics, const char *pattern)
{
	static const char *const heads[] = { "counter", ">value", "", "meaning" };
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(metrics); i++) {
		const json_t *one = json_array_get(metrics, i);
		const char *unit = json_string_value(json_at(one, "unit"));
		bool bytes = unit && strcmp(unit, "B") == 0;

		if (!matches(pattern, ctl_text(cell, one, "name")))
			continue;
		grid_add(g, cell);
		grid_add(g, ctl_count(cell, one, "value"));
		grid_add(g, bytes ? ctl_bytes(cell, one, "value") : "");
		grid_add(g, ctl_text(cell, one, "help"));
	}
	return grid_print(g, stdout);
}

static int show_latencies(const json_t *latencies)
{
	static const char *const heads[] = { "latency", "class", ">count", ">mean",
					     ">p50",	">p99",	 ">p99.9", ">max" };
	static const char *const times[] = { "mean_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns" };
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(latencies); i++) {
		const json_t *one = json_array_get(latencies, i);

		if (!json_integer_value(json_at(one, "count")))
			continue;
		grid_add(g, ctl_text(cell, one, "name"));
		grid_add(g, ctl_text(cell, one, "class"));
		grid_add(g, ctl_count(cell, one, "count"));
		for (uint32_t k = 0; k < COUNT(times); k++)
			grid_add(g, ctl_ns(cell, one, times[k]));
	}
	return grid_print(g, stdout);
}

int ctl_stat(struct ctl *ctl, int argc, char **argv)
{
	json_t *stat;
	int rc = ctl_arguments(ctl, argc, 0, 1), error;

	if (rc == CTL_OK)
		rc = ctl_ask(ctl, "stat", NULL, &stat);
	if (rc != CTL_OK)
		return rc;
	if (ctl->json) {
		rc = ctl_print_json(stat);
	} else if (argc && !any_matches(json_at(stat, "metrics"), argv[0])) {
		fprintf(stderr, "tierctl stat: no counter is called \"%.64s\"; tierctl stat shows "
				"all\n", argv[0]);
		rc = CTL_FAILED;
	} else {
		error = show_metrics(json_at(stat, "metrics"), argc ? argv[0] : NULL);
		if (!error && !argc) {
			fputc('\n', stdout);
			error = show_latencies(json_at(stat, "latency"));
		}
		rc = error ? CTL_FAILED : CTL_OK;
	}
	json_decref(stat);
	return rc;
}

/* ---- top ----------------------------------------------------------------------------------- */

struct top {
	double interval_s;
	uint64_t count; /* 0 = until interrupted */
};

/* Counters that are worth a line when they move, and what they are called there. */
static const struct {
	const char *metric, *text;
	bool bytes;
} top_rates[] = {
	{ "requests", "requests", false },
	{ "blocks_committed", "blocks committed", false },
	{ "put_bytes", "put", true },
	{ "read_bytes", "read from NVMe", true },
	{ "promoted_bytes", "copied to HBM", true },
	{ "direct_bytes", "read straight into HBM", true },
	{ "written_bytes", "written to NVMe", true },
	{ "evicted_cxl", "pages out of CXL", false },
	{ "evicted_hbm", "pages out of HBM", false },
	{ "puts_dropped", "puts dropped", false },
	{ "read_bad", "pages that did not verify", false },
};

static uint64_t metric_value(const json_t *stat, const char *name)
{
	const json_t *metrics = json_at(stat, "metrics");

	for (size_t i = 0; i < json_array_size(metrics); i++) {
		const json_t *one = json_array_get(metrics, i);
		const char *found = json_string_value(json_at(one, "name"));

		if (found && strcmp(found, name) == 0)
			return (uint64_t)json_integer_value(json_at(one, "value"));
	}
	return 0;
}

static void show_rates(const json_t *now, const json_t *before)
{
	double seconds = (json_number_value(json_at(now, "now_ns")) -
			  json_number_value(json_at(before, "now_ns"))) /
			 1e9;
	char text[UNITS_TEXT_BYTES];

	for (uint32_t i = 0; i < COUNT(top_rates); i++) {
		uint64_t value = metric_value(now, top_rates[i].metric);
		double rate =
			before && seconds > 0
				? (double)(value - metric_value(before, top_rates[i].metric)) /
					  seconds
				: 0;

		if (top_rates[i].bytes)
			printf("  %-28s %14s", top_rates[i].text, units_print_rate(text, rate));
		else
			printf("  %-28s %12s/s", top_rates[i].text, units_print_count(text, rate));
		fputs(i % 2 || i + 1 == COUNT(top_rates) ? "\n" : "", stdout);
	}
}

/* One screen. *before becomes the present counters. */
static int top_screen(struct ctl *ctl, json_t **before)
{
	json_t *status = NULL, *stat = NULL;
	int rc = ctl_ask(ctl, "status", NULL, &status);
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL];

	if (rc == CTL_OK)
		rc = ctl_ask(ctl, "stat", NULL, &stat);
	if (rc == CTL_OK) {
		/* Home, and clear what is below: it does not flicker. In a file: an empty line. */
		if (isatty(STDOUT_FILENO))
			fputs(*before ? "\033[H\033[J" : "\033[2J\033[H", stdout);
		else if (*before)
			fputc('\n', stdout);
		printf("tierd %s, up %s, %s clients, ",
		       ctl_text(a, status, "version"), ctl_ns(b, status, "uptime_ns"),
		       ctl_count(c, status, "sessions.open"));
		printf("%s blocks, %s requests under way, %s pins\n\n",
		       ctl_count(a, status, "blocks"), ctl_count(b, status, "requests"),
		       ctl_count(c, status, "pins"));
		rc = ctl_show_tiers(status, stdout) ? CTL_FAILED : CTL_OK;
		fputc('\n', stdout);
		show_rates(stat, *before);
		fflush(stdout);
		json_decref(*before);
		*before = json_incref(stat);
	}
	json_decref(status);
	json_decref(stat);
	return rc;
}

static int take_top(struct ctl *ctl, struct top *top, int argc, char **argv)
{
	static const struct option options[] = { { "interval", 1, NULL, 'i' },
						 { "count", 1, NULL, 'n' },
						 { 0 } };
	char *end;
	int c;

	optind = 0; /* anew: the words before were read by another table */
	while ((c = getopt_long(argc + 1, argv - 1, "i:n:", options, NULL)) != -1) {
		errno = 0;
		if (c == 'i') {
			top->interval_s = strtod(optarg, &end);
			if (errno || *end || !(top->interval_s >= 0.1 && top->interval_s <= 3600))
				return ctl_usage(ctl, "--interval %s: 0.1 to 3600 seconds", optarg);
		} else if (c == 'n') {
			top->count = strtoull(optarg, &end, 10);
			if (errno || *end || *optarg == '-' || !top->count)
				return ctl_usage(ctl, "--count %s: a number from 1 on", optarg);
		} else {
			return CTL_USAGE;
		}
	}
	return ctl_arguments(ctl, argc + 1 - optind, 0, 0);
}

int ctl_top(struct ctl *ctl, int argc, char **argv)
{
	struct top top = { .interval_s = 1 };
	json_t *before = NULL;
	int rc = take_top(ctl, &top, argc, argv);
	struct timespec pause;

	if (rc == CTL_OK && ctl->json)
		rc = ctl_usage(ctl, "it has no --json form; ask for stat");
	if (rc != CTL_OK)
		return rc;
	pause = time_to_timespec((uint64_t)(top.interval_s * 1e9));
	for (uint64_t i = 0; rc == CTL_OK && (!top.count || i < top.count); i++) {
		if (i)
			nanosleep(&pause, NULL);
		rc = top_screen(ctl, &before);
	}
	json_decref(before);
	return rc;
}
