/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine process of the replay: for each request of the trace it matches the prompt's prefix,
 * reads what hits, puts what misses, then decodes a few steps. It has no model; the bytes come from
 * gen.h and every byte that is read is verified. Built on the public API only (tier.h).
 *
 *   engine.c   life, requests, completions        read.c     the prefix: lease, fetch, verify
 *   write.c    puts                               decode.c   page lists per layer and group
 *
 * One thread; statistics lie in memory that the parent process reads meanwhile.
 */
#ifndef TIER_BENCH_TRACE_ENGINE_H
#define TIER_BENCH_TRACE_ENGINE_H

#include <stdbool.h>

#include "bench/tick.h"
#include "bench/trace/trace.h"
#include "libtier/base/hist.h"

/* Parts of the geometry, by number. */
#define ENGINE_PART_KV 0u
#define ENGINE_PART_INDEX 1u

#define ENGINE_TOP_MAX 64u
#define ENGINE_LAYERS_MAX 16u
#define ENGINE_GROUPS_MAX 8u
#define ENGINE_WINDOW_PAGES 480u /* leased at a time */
#define ENGINE_OPS 32u		 /* requests to the daemon under way */

struct engine_settings {
	const char *socket;
	const char *context;
	uint32_t layers, groups; /* of the KV part; the sidecar has one group */
	uint32_t page_bytes;	 /* of a KV page */
	uint32_t sidecar_bytes;	 /* of the sidecar's page of a layer */
	uint32_t decode_steps;	 /* a request */
	uint32_t top;		 /* pages selected a step, layer and group */
	uint32_t repeat_percent; /* of a selection that was in the step before's */
	uint64_t staging_bytes;
	struct tick tick; /* calibrated by whoever starts engines */
};

/* Where pages were when they were wanted, and how long reading and verifying them took. */
struct engine_tier {
	uint64_t pages, bytes, ns;
};

/* Counted by one engine; the parent reads them with relaxed loads, a moment old. */
struct engine_stats {
	uint64_t requests;
	uint64_t blocks;	       /* of all prompts */
	uint64_t blocks_hit;	       /* matched and read, whole and right */
	uint64_t hit_tier[TIER_COUNT]; /* of these: the slowest tier a page came from */
	uint64_t blocks_lost;	       /* matched, but gone before they were read */
	uint64_t tokens, tokens_saved;
	uint64_t put_blocks, put_bytes, put_ns;
	uint64_t put_exists;  /* blocks that another engine had put meanwhile */
	uint64_t put_dropped; /* blocks of best-effort puts that were not taken */
	uint64_t put_failed;
	int64_t put_error; /* of the last of these: negative errno */
	struct engine_tier read[TIER_COUNT];
	uint64_t fetch_ns;    /* time with a fetch under way */
	uint64_t fetch_bytes; /* that came from NVMe */
	uint64_t fetches_late;
	uint64_t streams; /* prefixes asked for layer by layer: whole, */
	uint64_t streams_ready, streams_late, streams_missed, streams_failed;
	uint64_t streams_ended_early; /* ... or let go when no block was left */
	uint64_t layers, layers_there; /* wanted; of these, there already */
	uint64_t layer_wait_ns;
	uint64_t verified_pages, verified_bytes, bad_pages;
	uint64_t decode_lists, decode_pages, decode_gone;
	uint64_t pins, pins_refused;
	uint64_t ended; /* 1: the engine is done */
	int64_t error;	/* negative errno that ended it */
	char error_text[256];
	struct hist lease_one;	/* lease and release of one page, ns */
	struct hist lease_list; /* the same of a list, ns a page */
};

struct engine_op {
	bool busy, done, fetch;
	struct tier_completion got;
};

/* The present request. */
struct engine_request {
	uint32_t blocks;
	uint32_t usable; /* blocks that can be decoded over */
	tier_key *key;
	struct tier_found *found;
	tier_block *block;
	uint32_t step;
	uint32_t list[ENGINE_LAYERS_MAX][ENGINE_GROUPS_MAX][ENGINE_TOP_MAX];
};

struct engine {
	const struct engine_settings *set;
	struct engine_stats *stats;
	tier *t;
	tier_context *c;
	tier_reader *r;
	uint32_t pages_per_block;
	uint64_t block_bytes;
	uint64_t random;
	uint32_t fetches; /* under way */
	uint64_t fetching_since_ns;
	struct engine_op op[ENGINE_OPS];
	struct tier_lease lease[ENGINE_WINDOW_PAGES];
	struct engine_request request;
};

/*
 * Connect and create or open the context. stats lives as long as the engine. number makes its
 * random choices its own. Errors as of tier_connect, tier_context_create, tier_reader_open.
 */
int engine_open(struct engine **out, const struct engine_settings *set, struct engine_stats *stats,
		uint32_t number);
void engine_close(struct engine *e);

/* Serve one request of the trace. Errors: what ends a replay (-ENOTCONN, -ENOMEM ...). */
int engine_serve(struct engine *e, const struct trace *t, const struct trace_request *r);

/*
 * Only match the request's prompt and read and verify what hits. Returns the number of usable
 * blocks. *first_ns: how long until the first block had been read and verified.
 */
int64_t engine_look(struct engine *e, const struct trace *t, const struct trace_request *r,
		    uint64_t *first_ns);

/* The geometry that the settings mean; free it with tier_geometry_free. */
int engine_geometry(tier_geometry **out, const struct engine_settings *set);

/* ---- between the engine's files ------------------------------------------------------------ */

/* A free entry for a request to the daemon, waiting for one if need be; fetch: count its time. */
int engine_op_begin(struct engine *e, bool fetch);
/* The request was not accepted: give the entry back. */
void engine_op_drop(struct engine *e, int op);
/* Wait for it, give the entry back. Errors: -ETIMEDOUT, -ENOTCONN. */
int engine_op_wait(struct engine *e, int op, struct tier_completion *got);
/* Take what completions there are, waiting for at least min. */
int engine_reap(struct engine *e, uint32_t min);
/* Entry's user_data. */
uint64_t engine_op_tag(int op);
/* Mark: nobody waits for it; it gives itself back. */
void engine_op_detach(struct engine *e, int op);

/* Read and verify the first `count` blocks of the request; returns how many were usable. */
int64_t engine_read_prefix(struct engine *e, uint32_t count);
/* Verify a leased page, count it for the tier it was wanted from, release it. */
int engine_verify(struct engine *e, struct tier_lease *lease, const struct tier_page *page,
		  const tier_key *key, uint32_t where);
/* Fetch pages and wait; -ENODATA when they did not come. */
int engine_fetch_pages(struct engine *e, const struct tier_page *page, uint32_t count,
		       uint32_t target);

/* Put the blocks of the request from `first` on; returns when they are visible or dropped. */
int engine_put(struct engine *e, uint32_t first);

/* Decode over the first request.usable blocks. */
int engine_decode(struct engine *e);

/* Statistics are read by another process: whole words, no order. */
void engine_count(uint64_t *counter, uint64_t more);

#endif
