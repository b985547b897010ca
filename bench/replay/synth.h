/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Made-up request traces, each one pattern that an eviction policy meets: they are what policies'
 * parameters were chosen on, so that no recorded trace had to serve for it, and what shows where a
 * policy is weak. The same name and seed always give the same trace.
 */
#ifndef TIER_BENCH_REPLAY_SYNTH_H
#define TIER_BENCH_REPLAY_SYNTH_H

#include "bench/trace/trace.h"

struct synth {
	const char *name;
	const char *help;
};

/* The i-th pattern; NULL after the last. */
const struct synth *synth_at(uint32_t i);

/*
 * Make about `references` block references of a pattern. Errors: -ENOENT no such pattern, -ENOMEM.
 * Close with trace_close.
 */
int synth_make(struct trace **out, const char *name, uint64_t seed, size_t references);

#endif
