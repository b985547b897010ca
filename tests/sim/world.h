/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deterministic world around the real core: simulated device, copies, fences, readers, clients
 * and clock. A run is a list of moves; each move carries its own random number, so any part of the
 * list can be left out and the rest still means something: that is how a failing run is shrunk.
 *
 * Every action that the core emits waits in a bag; a move takes any one of them, so completions
 * come in every order that a real host could show. Fence, scan and free are moves apart.
 *
 * Fault model (what the core promises to survive)
 *   - a crash between any two events; each sector written since the last flush is then kept or lost
 *     by itself: lost, reordered and torn writes
 *   - reads: flipped bits, errors, too few bytes; writes: errors, too few bytes, no space
 *   - discards that forget all, some or nothing, show anything afterwards, or fail
 *   - flushes that fail and lose what they should have kept
 *   - a device that answers nothing for a while, or fails everything and comes back
 *   - clients that die, that stop reading completions' order, that send stale or senseless entries
 *   - clients that name what is not theirs, or lies outside of their memory; readers whose stores
 *     are seen late by others (processors have store buffers), or are nonsense
 *   - copies between tiers that fail; moves within one that garble what their checksum then shows
 *   - catalogs that cannot be written, flushes that take long, owners that raise epochs meanwhile
 *   - cancel in the middle of anything; and what only wide worlds have (wide.c)
 *
 * Checked (model.c): a leased byte is that of its key as long as the lease lasts; what is visible
 * is whole, was put, and was not deleted; acknowledged durable blocks survive; pins hold; requests
 * are answered by their deadline when the host makes progress; no parked prefetch costs bytes
 * before it is due; a layer below a stream's watermark is there until it is released (stream.c);
 * what CXL has comes to HBM though the device fails or lies (path.c); all sums are right
 * (core_audit); contexts, epochs and removals that were answered survive (lives.c); an answer of
 * -ENOSPC has something that holds the room (inside.c); what is discarded is nobody's, now and
 * after a crash. After flushes, answers and writes of records the same is asked of what a crash
 * would leave then, in extreme fates of what is not flushed (image.c); there a header whose write
 * is under way is torn to nothing, also by bytes that are the same.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "tierd/core/core.h"

enum move_kind {
	MOVE_ACTION, /* one action of the bag is carried out */
	MOVE_CLIENT, /* a client does something */
	MOVE_LEASE,  /* a reader leases, reads or releases */
	MOVE_TICK,   /* time passes */
	MOVE_OWNER,  /* epoch, evict, remove and make again, drain */
	MOVE_DEVICE, /* the device's mood changes */
	MOVE_DEATH,  /* a client goes, its process dies later */
	MOVE_CRASH,  /* the daemon and its host stop and start again */
	MOVE_QUIET,  /* everyone waits until nothing is under way; then all is checked */
	MOVE_KINDS,
};

struct move {
	uint32_t kind;
	uint32_t random;
};

struct world_faults {
	uint32_t read_ppm, write_ppm, flush_ppm; /* faulty operations a million */
	uint32_t drives;  /* of the store; 0 = 1 */
	bool small_store; /* its segments are cleaned and dropped all the time */
	uint32_t direct_ppm;  /* ... reads straight into HBM */
	uint32_t catalog_ppm; /* ... writes of the catalog */
	bool voids;       /* owners raise epochs often, and flushes take long */
	bool tight;       /* little CXL, which contexts pass to each other as they come and go */
	uint32_t fill[2]; /* keys of each context that are put before all else */
	uint32_t flat;    /* bit = context whose pages are all of one size */
	uint64_t wide;    /* 0, or what is unusual about the world: see wide.c */
	uint32_t crash_ppm, death_ppm, device_ppm; /* such moves a million */
};

struct world_result {
	uint64_t events, commits, leases, fetches, pins, deletes, epochs, crashes, deaths, quiets;
	uint64_t streams, layers; /* begun; released by their clients */
	uint64_t flushes_failed, proved, cleaned, moved, carried, reinserted, discards;
	uint64_t drained, drives_added;
	uint64_t evicted, segments_dropped, quarantined, runs; /* the core's own counters, summed */
	/* likewise */
	uint64_t parked_prefetches, plan_loads, staged_conversations, staged_used, staged_wasted;
	uint64_t refused; /* answers of -ENOSPC */
	uint64_t moved_pages, moves_failed, parked, reservations, drawn;
	uint64_t loans, recalled; /* slabs in devices; left because they were wanted back */
	uint64_t placed;          /* pages that clients wrote where they stay */
	/* two paths into HBM; bytes, times, blocks */
	uint64_t direct, copied, path_failed, repaired;
	uint64_t move;     /* at which it failed */
	char failure[256]; /* empty: all held */
};

/* What is unusual about the wide world of a seed: never 0. */
uint64_t world_shape(uint64_t seed);

/* Fill n moves from a seed. */
void world_moves(struct move *moves, uint32_t n, uint64_t seed, const struct world_faults *faults);

/* Run them. Returns 0, or -EILSEQ when a check failed. trace: print each move (NULL = no). */
int world_run(const struct move *moves, uint32_t n, const struct world_faults *faults, bool trace,
	      struct world_result *result);

/* random.c: the next number of a sequence of one's own */
uint64_t random_next(uint64_t *state);

#endif
