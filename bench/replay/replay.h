/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays of a trace that ask one question: how much of it finds its prefix, and what that saves.
 * Three ways to answer, with the same rules: the real core with a shell that completes everything
 * at once and moves no bytes (core.c); a daemon and clients, every byte verified (real.c); and the
 * offline optimum (optimum.c).
 *
 * Rules: a request hits as many blocks as its prefix has from the start without a gap; it then puts
 * the rest. A block behind a gap is computed and put again, and is no hit.
 */
#ifndef TIER_BENCH_REPLAY_REPLAY_H
#define TIER_BENCH_REPLAY_REPLAY_H

#include <stdbool.h>

#include "bench/service.h"
#include "bench/trace/trace.h"

/* A block is one page: small, so that a store of many blocks fits anywhere. */
#define REPLAY_PAGE_BYTES 16384u
/* Of one put; longer prompts come in pieces. One copy job each: several end in any order. */
#define REPLAY_PUT_BLOCKS 32u

struct outcome {
	uint64_t requests, blocks, blocks_hit;
	uint64_t tokens, tokens_hit; /* and bytes: each token has as many of KV */
	double flops, flops_hit;     /* of the prompts; of the blocks that hit */
	uint64_t put_blocks;	     /* that were not stored */
	uint64_t dropped_blocks;     /* that the store let go */
	uint64_t bad_pages;	     /* real.c: wrong bytes */
	uint64_t fetched_blocks;     /* of the hits, from NVMe */
	uint64_t device_bytes;	     /* written to NVMe, all in all */
	double seconds;
	uint32_t *hit; /* the caller's: of each request, in their order; NULL = not wanted */
};

/*
 * Computing the first so many tokens of a prompt: Llama-3.1-8B, 8.03e9 parameters, 32 layers of
 * width 4,096. Two operations a parameter and token, and for attention four a layer, dimension and
 * earlier token: a token at 30,630 costs twice one at the start.
 */
double replay_flops(uint64_t tokens);

/* Count a request of t of which `hit` blocks were found. */
void outcome_add(struct outcome *o, const struct trace *t, const struct trace_request *r,
		 uint64_t hit);

/* Add another's counts of requests, blocks and pages. */
void outcome_sum(struct outcome *o, const struct outcome *other);

/* A trace with its ids numbered from 0, and a key for each. */
struct prepared {
	const struct trace *trace;
	uint32_t *number; /* as trace->id */
	uint32_t count;
	tier_key *key; /* by number */
};
int prepare(struct prepared *p, const struct trace *t);
void prepared_free(struct prepared *p);

/* A store of about so many blocks: whole slabs of the memory tier. */
uint64_t replay_capacity(uint64_t blocks);

/* So many blocks on NVMe, or as many as the smallest store there is has room for. */
uint64_t replay_store(uint64_t blocks);

/*
 * Counts anew, but for `hit`. Errors: -ENOMEM, or what the core or library said. capacity as of
 * replay_capacity.
 */
int replay_core(struct outcome *out, const struct prepared *p, const char *policy,
		uint64_t capacity);

/* The same with an NVMe tier of so many blocks behind it, to which all or what is admitted goes. */
int replay_flash(struct outcome *out, const struct prepared *p, const char *policy,
		 const uint64_t capacity[2], bool admit_all);

#define REPLAY_CLIENTS_MAX 4u
struct replay_through {
	const struct service_options *service;
	uint64_t capacity;
	uint32_t free_clients; /* 0 = one, in lock-step; no `hit` of several */
};
int replay_real(struct outcome *out, const struct prepared *p, const char *policy,
		const struct replay_through *how);

/*
 * The most blocks that any order of eviction could hit: Belady's MIN, with the right to store
 * nothing, the deeper first among equals, which keeps prefixes whole.
 */
int replay_optimum(struct outcome *out, const struct prepared *p, uint64_t capacity);

/*
 * "5 %" of a trace's distinct blocks; where the store that there is differs by a twentieth of that
 * or more, also how large it is.
 */
#define REPLAY_SIZE_TEXT 48
void replay_size_text(char text[REPLAY_SIZE_TEXT], uint32_t percent, uint64_t capacity,
		      uint64_t distinct);

struct bench;
/* The part of the workload with an NVMe tier: bytes written to it for each hit gained. */
int bench_replay_flash(struct bench *b, const struct prepared *p);
/* How far behind LRU the default falls on made-up traces. */
int bench_replay_made(struct bench *b);
/* How fast the core is by itself. */
int bench_replay_speed(struct bench *b, const struct prepared *p);
/* Through a daemon: the first requests of the trace. */
int bench_replay_real(struct bench *b, const struct trace *t);

/* The sizes of stores, in percent of the distinct blocks. */
#define REPLAY_SIZES 4u
extern const uint32_t replay_percent[REPLAY_SIZES];

#endif
