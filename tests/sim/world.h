/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deterministic world around the real core: simulated device, copies, fences and readers, driven
 * by one seed. Every action that the core emits waits in a bag; the world takes a random one at a
 * time, so completions come in any order that a real host could show.
 *
 * Fault model (what the core promises to survive)
 *   - a crash between any two events; writes since the last flush are then lost one by
 *     one at random
 *   - a read that returns flipped bits, an error, or too few bytes
 *   - a write that fails
 *
 * Checked: every leased byte is that of its key for as long as the lease lasts; every acknowledged
 * durable block is found after a crash; all sums are right (core_audit) between events.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "tierd/core/core.h"

#define WORLD_CLIENTS 3u
#define WORLD_KEYS 4096u
#define WORLD_LEASES 16u
#define WORLD_BAG 16384u

struct world_options {
	uint64_t seed;
	uint64_t steps;
	uint64_t cxl_bytes, hbm_bytes, nvme_bytes;
	uint32_t read_bad_ppm, write_bad_ppm; /* faults a million operations */
	bool verbose;
};

struct world_result {
	uint64_t events, commits, leases, fetches, crashes, bad_reads;
	uint64_t evicted, segments_dropped, quarantined, runs; /* the core's own counters, summed */
	char failure[256]; /* empty: all held */
};

/* Run one world to its end. Returns 0, or -EILSEQ when a check failed (failure says which). */
int world_run(const struct world_options *options, struct world_result *result);

#endif
