/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hazard slots and access logs: how a reader says "I am here" without a system call.
 *
 * Each reader (one thread at a time) owns an area in the client region (ring.h): a header line,
 * 1,024 hazard words and a small access log. A hazard word names the *place* that is read:
 *
 *   valid:1 | reserved:8 | context index:16 | tier:3 | address:36 (units of 512 bytes)
 *
 * One aligned 64-bit store publishes it, so the daemon never sees half a word.
 *
 * Lease (reader)                              Retire (daemon)
 *   1. w = descriptor word; must be READY       1. word = RETIRING, version + 1 (relaxed store)
 *   2. slot = place(w)          (release)       2. membarrier(GLOBAL_EXPEDITED), one a batch
 *   3. compiler fence                           3. read every slot up to high_water (acquire)
 *   4. re-read word and generation: changed     4. in a slot: keep, look again later;
 *      = clear the slot, try again                 in none: the place is free
 *   5. read the page
 *   6. slot = 0                 (release)
 *
 * H1  Step 2 of the daemon is a full fence in every reader: a reader that passed its step 4 with
 *     the old word has its slot visible at the daemon's step 3 (asymmetric Dekker).
 * H2  high_water is raised (release) before a slot above it is used, and never lowered.
 * H3  Words naming a context that the client has not opened are ignored: they protect nothing.
 * H4  Kernels name no places: a launch is announced in era_begin before it is made, and the last
 *     node of its graph counts it in era_done. Whatever a batch holds of contexts that the client
 *     has opened is kept until era_done reaches what era_begin was after the batch's fence
 *     (docs/cuda.md). Equal words, as both 0, keep nothing.
 */
#ifndef TIER_ABI_HAZARD_H
#define TIER_ABI_HAZARD_H

#include "libtier/abi/index.h"

#define ABI_HAZARD_SLOTS 1024u
#define ABI_READERS_MAX 64u
#define ABI_ACCESS_LOG 2048u /* entries, a power of two */

#define ABI_HAZARD_VALID (1ull << 63)

static inline uint64_t abi_place(uint32_t context, uint32_t level, uint64_t word)
{
	return ABI_HAZARD_VALID |
	       (uint64_t)ABI_CONTEXT_INDEX(context) << (ABI_ADDR_BITS + 3) |
	       (uint64_t)level << ABI_ADDR_BITS | (word & ABI_ADDR_MASK);
}

/*
 * Access log entry: weight:16 | context index:16 | slot:32. Lossy: the daemon reads what is there
 * when it needs victims; an overrun costs the reader's own blocks their recency.
 */
static inline uint64_t abi_access(uint32_t context, uint32_t slot, uint32_t weight)
{
	return (uint64_t)weight << 48 | (uint64_t)ABI_CONTEXT_INDEX(context) << 32 | slot;
}

struct abi_reader {
	uint32_t owned;      /* client: 1 while a reader handle owns the area */
	uint32_t high_water; /* client: slots [0, high_water) may be in use (H2) */
	uint64_t access_tail; /* client: entries ever written */
	uint64_t era_begin; /* client: launches announced */
	uint64_t era_done;  /* the client's device: launches that have ended */
	uint64_t reserved[4];
	uint64_t slot[ABI_HAZARD_SLOTS];
	uint64_t access[ABI_ACCESS_LOG];
}; /* 64 + 8192 + 16384 = 24640 bytes */

#endif
