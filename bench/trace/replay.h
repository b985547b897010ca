/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay: engine processes that share one context take the requests of a trace in turn, as fast
 * as they can; this process watches, draws the progress bar and samples what the report plots.
 */
#ifndef TIER_BENCH_TRACE_REPLAY_H
#define TIER_BENCH_TRACE_REPLAY_H

#include "bench/trace/engine.h"

#define REPLAY_ENGINES_MAX 8u
#define REPLAY_SAMPLES_MAX 1024u

struct replay_sample {
	double seconds; /* since the replay's start */
	uint64_t requests, blocks, blocks_put;
	uint64_t hit_tier[TIER_COUNT];
	uint64_t tier_bytes[TIER_COUNT]; /* read, by where the page was */
	uint64_t put_bytes;
	uint64_t used[TIER_COUNT]; /* of the tiers, as the daemon says */
	uint64_t live[TIER_COUNT];
	uint64_t dirty;
};

struct replay {
	const struct trace *trace;
	struct engine_settings set;
	uint32_t engines;
	/* the outcome */
	double seconds;
	struct engine_stats total;
	struct replay_sample *sample;
	uint32_t sample_count;
	uint64_t sample_ns; /* between two samples */
	int error;
	char error_text[256];
};

/*
 * Replay all of r->trace. Errors: what an engine ended with (r->error_text tells), -ENOMEM,
 * -ECHILD an engine died. Wrong bytes are no error here: look at r->total.bad_pages.
 */
int replay_run(struct replay *r);
void replay_free(struct replay *r);

/* A progress line on standard error: a bar on a terminal, else a line every tenth. */
struct progress {
	const char *what;
	uint64_t begin_ns;
	uint64_t drawn_ns;
	int tenth;
};
void progress_draw(struct progress *p, double share, const char *note);
void progress_end(struct progress *p);

#endif
