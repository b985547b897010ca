/* SPDX-License-Identifier: Apache-2.0 */
/* tierctl status, stat: the daemon as a whole. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/units.h"
#include "tierd/ctl/ctl.h"
#include "tierd/ctl/cxl.h"

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

/* ---- status -------------------------------------------------------------------------------- */

int ctl_show_tiers(const json_t *status, FILE *to, uint32_t terminal)
{
	static const char *const heads[] = { "tier",   ">capacity", ">used",   ">live",
					     ">dirty", ">pinned",   ">leased", "backend" };
	static const char *const bytes[] = { "capacity", "used",   "live",
					     "dirty",	 "pinned", "quarantined" };
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL], last[2 * CTL_CELL];
	const json_t *tiers = json_at(status, "tiers");

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *one = json_array_get(tiers, i);

		if (json_is_false(json_at(one, "present")))
			continue;
		grid_add(g, ctl_text(cell, one, "tier"));
		for (uint32_t k = 0; k < COUNT(bytes); k++)
			grid_add(g, ctl_bytes_short(cell, one, bytes[k]));
		snprintf(last, sizeof(last), "%s%s%s", ctl_text(cell, one, "backend"),
			 json_is_true(json_at(one, "emulated")) ? " (EMULATED)" : "",
			 json_is_true(json_at(one, "failing")) ? " (FAILING)" : "");
		grid_add(g, last);
	}
	return grid_print(g, to, terminal);
}

/* What stands behind each of them, in words. */
static void show_backends(const json_t *status, FILE *to)
{
	const json_t *tiers = json_at(status, "tiers");
	char name[CTL_CELL], detail[CTL_CELL];

	for (size_t i = 0; i < json_array_size(tiers); i++) {
		const json_t *one = json_array_get(tiers, i);

		if (json_is_string(json_at(one, "detail")) &&
		    !json_is_false(json_at(one, "present")))
			fprintf(to, "  %-18s %s\n", ctl_text(name, one, "tier"),
				ctl_text(detail, one, "detail"));
	}
}

static void show_facts(const json_t *status, FILE *to)
{
	json_t *kernel = json_object_get(status, "kernel"), *value;
	const char *name;

	json_object_foreach(kernel, name, value) if (json_is_string(value))
		fprintf(to, "  %-18s %s\n", name, json_string_value(value));
	ctl_cxl_regions("", to);
}

static void show_limits(const json_t *status, FILE *to)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	fprintf(to, "limits     %s clients; a user: %s connections, %s contexts;\n",
		ctl_count(a, status, "limits.clients"),
		ctl_count(b, status, "limits.user_connections"),
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

		fprintf(to, "  %-8s %s segments, %s live of %s, written %.2f times\n",
			ctl_text(a, one, "log"), ctl_count(b, one, "segments"),
			ctl_bytes(c, one, "live"), ctl_bytes(d, one, "capacity"),
			json_number_value(json_at(one, "write_amplification")));
	}
}

/* One alone is the store itself. */
static void show_drives(const json_t *status, FILE *to)
{
	const json_t *drives = json_at(status, "store.drives");
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	for (size_t i = 0; json_array_size(drives) > 1 && i < json_array_size(drives); i++) {
		const json_t *one = json_array_get(drives, i);

		fprintf(to, "  drive    %s, %s%s, %s live of %s\n", ctl_text(a, one, "path"),
			ctl_text(b, one, "state"),
			json_is_true(json_at(one, "no_room")) ? " (no room elsewhere)" : "",
			ctl_bytes(c, one, "live"), ctl_bytes(d, one, "capacity"));
	}
}

static void show_store(const json_t *status, FILE *to)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	fprintf(to, "store      %s, %s segments of %s\n", ctl_text(a, status, "store.path"),
		ctl_count(b, status, "store.segments"),
		ctl_bytes(c, status, "store.segment_bytes"));
	show_drives(status, to);
	show_logs(status, to);
	fprintf(to, "recovered  %s blocks of %s records in %s; %s records did not verify;\n",
		ctl_count(a, status, "recovery.blocks"), ctl_count(b, status, "recovery.records"),
		ctl_ns(c, status, "recovery.ns"), ctl_count(d, status, "recovery.records_bad"));
	fprintf(to, "           %s orphaned blocks dropped, %s kept that no prefix finds\n",
		ctl_count(a, status, "recovery.blocks_orphaned"),
		ctl_count(b, status, "recovery.blocks_unreached"));
}

static void show_objects(const json_t *status, FILE *to)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	if (!json_is_object(json_at(status, "objects")))
		return;
	fprintf(to, "objects    %s, %s of them in memory, %s being written;\n",
		ctl_count(a, status, "objects.count"), ctl_count(b, status, "objects.resident"),
		ctl_count(c, status, "objects.uploads"));
	fprintf(to, "           CXL %s of %s, NVMe %s of %s\n",
		ctl_bytes(a, status, "objects.cxl_used"), ctl_bytes(b, status, "objects.cxl_most"),
		ctl_bytes(c, status, "objects.nvme_used"),
		ctl_bytes(d, status, "objects.nvme_most"));
	if (json_integer_value(json_at(status, "objects.passed")))
		fprintf(to, "           %s real files were opened for writing below a PATH of tier "
			"run\n", ctl_count(a, status, "objects.passed"));
}

/* Beside the tiers: what is used of contexts' tables, and what all accounts allow. */
static void show_memory(const json_t *status, FILE *to)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];

	fprintf(to, "memory     at most %s beside tiers: %s at start, clients %s,\n",
		ctl_bytes(a, status, "memory.most"), ctl_bytes(b, status, "memory.fixed"),
		ctl_bytes(c, status, "memory.clients"));
	fprintf(to, "           tables of contexts %s of %s, and %s for a moment\n",
		ctl_bytes(a, status, "memory.tables"), ctl_bytes(b, status, "memory.tables_most"),
		ctl_bytes(d, status, "memory.slack"));
	if (json_integer_value(json_at(status, "memory.cold_bytes")))
		fprintf(to, "           cold tables %s by memkind (%s): so much less DRAM\n",
			ctl_bytes(a, status, "memory.cold_bytes"),
			ctl_text(b, status, "memory.cold"));
}

/* Contexts that could not be made: they are kept, and serve nobody. */
static void show_aside(const json_t *status, FILE *to)
{
	const json_t *list = json_at(status, "aside");
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL];

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);

		fprintf(to, "SET ASIDE  context %s of user %s:\n           %s\n",
			ctl_text(a, one, "name"), ctl_count(b, one, "uid"),
			ctl_text(c, one, "why"));
	}
}

int ctl_show_status(const json_t *status, FILE *to, uint32_t terminal)
{
	char a[CTL_CELL], b[CTL_CELL], c[CTL_CELL], d[CTL_CELL];
	int error;

	fprintf(to, "tierd %s, pid %s, up %s, boot %s\n", ctl_text(a, status, "version"),
		ctl_count(b, status, "pid"), ctl_ns(c, status, "uptime_ns"),
		ctl_text(d, status, "boot"));
	fprintf(to, "socket     %s\n", ctl_text(a, status, "socket"));
	fprintf(to, "isolation  %s\n", ctl_text(a, status, "isolation.text"));
	fprintf(to, "clients    %s open, %s ended whose process may still read\n",
		ctl_count(a, status, "connections.open"),
		ctl_count(b, status, "connections.ended"));
	fprintf(to, "contexts   %s%s with %s blocks of %s pages, index %s\n",
		ctl_count(a, status, "contexts"), ctl_only_own(status) ? " of yours" : "",
		ctl_count(b, status, "blocks"), ctl_count(c, status, "pages"),
		ctl_bytes(d, status, "index_bytes"));
	fprintf(to, "under way  %s requests, %s device operations, %s copies; %s pins\n",
		ctl_count(a, status, "requests"), ctl_count(b, status, "ios"),
		ctl_count(c, status, "copies"), ctl_count(d, status, "pins"));
	show_memory(status, to);
	show_aside(status, to);
	show_limits(status, to);
	if (json_is_null(json_at(status, "store")))
		fputs("store      none: nothing survives a restart\n", to);
	else
		show_store(status, to);
	show_objects(status, to);
	fputc('\n', to);
	error = ctl_show_tiers(status, to, terminal);
	fputs("\nhost\n", to);
	show_backends(status, to);
	show_facts(status, to);
	return error;
}

int ctl_status(struct ctl *ctl, int argc, char **argv)
{
	json_t *status;
	int rc = ctl_ask(ctl, "status", NULL, &status);

	(void)argc;
	(void)argv;
	if (rc != CTL_OK)
		return rc;
	if (ctl->json)
		rc = ctl_print_json(status);
	else
		rc = ctl_show_status(status, stdout, ctl->terminal) ? CTL_FAILED : CTL_OK;
	json_decref(status);
	return rc;
}

/* ---- stat ---------------------------------------------------------------------------------- */

/* Leaves only the counters of these names. */
static void keep_matches(json_t *metrics, const char *pattern)
{
	char cell[CTL_CELL];

	for (size_t i = json_array_size(metrics); i-- > 0;)
		if (fnmatch(pattern, ctl_text(cell, json_array_get(metrics, i), "name"), 0))
			json_array_remove(metrics, i);
}

/* A value as people say it. */
static const char *with_unit(char cell[CTL_CELL], const json_t *one)
{
	const char *unit = json_string_value(json_at(one, "unit"));
	double value = json_number_value(json_at(one, "value"));

	ctl_count(cell, one, "value");
	if (!unit || strcmp(unit, "1") == 0)
		return cell;
	if (strcmp(unit, "B") == 0)
		return ctl_bytes(cell, one, "value");
	if (strcmp(unit, "ns") == 0)
		return ctl_ns(cell, one, "value");
	if (strcmp(unit, "B/s") == 0)
		return units_print_rate(cell, value);
	if (strcmp(unit, "1/100") == 0 || strcmp(unit, "1/1000") == 0) {
		snprintf(cell, CTL_CELL, "%g %%", unit[5] ? value / 10 : value);
		return cell;
	}
	snprintf(cell + strlen(cell), CTL_CELL - strlen(cell), " %s", unit);
	return cell;
}

/* By old names only where they are asked for. */
static int show_metrics(const json_t *metrics, bool asked, uint32_t terminal)
{
	static const char *const heads[] = { "counter", ">value", "=meaning" };
	struct grid *g = grid_new(heads, COUNT(heads));
	char cell[CTL_CELL];

	for (size_t i = 0; i < json_array_size(metrics); i++) {
		const json_t *one = json_array_get(metrics, i);

		if (!asked && json_object_get(one, "alias"))
			continue;
		grid_add(g, ctl_text(cell, one, "name"));
		grid_add(g, with_unit(cell, one));
		grid_add(g, ctl_text(cell, one, "help"));
	}
	return grid_print(g, stdout, terminal);
}

int ctl_show_latencies(const json_t *latencies, FILE *to, uint32_t terminal)
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
	return grid_print(g, to, terminal);
}

int ctl_stat(struct ctl *ctl, int argc, char **argv)
{
	json_t *stat, *metrics;
	int rc = ctl_ask(ctl, "stat", NULL, &stat), error;

	if (rc != CTL_OK)
		return rc;
	metrics = json_object_get(stat, "metrics");
	if (argc)
		keep_matches(metrics, argv[0]);
	if (argc && !json_array_size(metrics)) {
		fprintf(stderr, "tierctl stat: no counter is called \"%.64s\"; tierctl stat shows "
				"all\n", argv[0]);
		rc = CTL_FAILED;
	} else if (ctl->json) {
		rc = ctl_print_json(stat);
	} else {
		error = show_metrics(metrics, argc, ctl->terminal);
		if (!error && !argc) {
			fputc('\n', stdout);
			error = ctl_show_latencies(json_at(stat, "latency"), stdout,
						   ctl->terminal);
		}
		rc = error ? CTL_FAILED : CTL_OK;
	}
	json_decref(stat);
	return rc;
}
