/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scraper gets: a snapshot of counters, tiers and contexts, taken by the loop between
 * events, and its text, made by whoever serves it. The two formats are OpenMetrics 1.0 and
 * Prometheus' text format 0.0.4; names follow Prometheus' conventions.
 */
#ifndef TIERD_OBS_METRICS_H
#define TIERD_OBS_METRICS_H

#include <stdio.h>

#include "tierd/obs/obs.h"

/* Contexts that are named in a snapshot; the text says how many are not. */
#define OBS_SCRAPE_CONTEXTS 32u

struct obs_scrape_context {
	char name[ABI_NAME_BYTES + 1];
	uint64_t blocks, index_bytes;
	uint64_t live[ABI_TIER_COUNT]; /* bytes */
};

struct obs_scrape {
	uint64_t now_ns, turns, sleeps, gave_way, turn_ns_most, holes_filled;
	uint64_t memory_foreign, memory_lost, event_ns_most;
	struct core_metrics metrics;
	struct core_stats stats;
	struct obs_scrape_context context[OBS_SCRAPE_CONTEXTS];
	uint32_t contexts;
};

enum obs_format { OBS_OPENMETRICS, OBS_PROMETHEUS };

/* Copies what changes. The loop's thread; at most OBS_SCRAPE_CONTEXTS look-ups. */
void obs_scrape_take(const struct obs *o, uint64_t now_ns, struct obs_scrape *out);

/*
 * Writes the text. Any thread: of o it reads what is fixed after start, and histograms, which
 * change meanwhile. named: with the contexts' names, which only an operator may know (I4).
 */
void obs_scrape_write(const struct obs *o, const struct obs_scrape *s, enum obs_format format,
		      bool named, FILE *out);

#endif
