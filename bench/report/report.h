/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a demo run came to: as JSON, as a page to look at (template.html with the JSON put in; no
 * other file, no network), and as a table on the terminal.
 */
#ifndef TIER_BENCH_REPORT_REPORT_H
#define TIER_BENCH_REPORT_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "bench/trace/replay.h"

/* Stopping the daemon, starting it on the same store, the first hit. */
struct report_restart {
	double stop_s;	     /* SIGTERM to its end: everything dirty is written */
	double ready_s;	     /* its start to its first answer */
	double hit_s;	     /* its start to the first block read and verified */
	double first_hit_ms; /* look-up, fetch from NVMe and verification of that block */
	uint64_t blocks;     /* of the longest prefix found again, read and verified */
	uint64_t bad_pages;
	double prefix_ms;
};

struct report {
	const struct replay *replay;
	const struct report_restart *restart; /* NULL = there was none */
	const char *trace_name;
	const char *commit;
	double generator_gbps, verifier_gbps;
	const json_t *status; /* the daemon's, before it was stopped; may be NULL */
	const json_t *stat;
};

/* One of the daemon's counters, by its name; 0 when it has none of that name. */
uint64_t report_metric(const struct report *r, const char *name);

/* NULL = out of memory. */
json_t *report_json(const struct report *r);

void report_table(const struct report *r, FILE *to);

/* Write the JSON; errors negative errno. */
int report_write_json(const json_t *json, const char *path);

/*
 * Write the page: the template with its one marker replaced. Errors: -EINVAL the template has no
 * marker, else from open and write.
 */
int report_write_html(const json_t *json, const char *template_path, const char *path);

#define REPORT_MARKER "@REPORT_DATA@"

#endif
