/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's core alone, in simulated time: what counts are decisions and bytes, so no byte is
 * copied and a day passes in seconds. A memory-only core with some clients; every action is
 * carried out at once, in order, but for copies, which may be given a time. Used by the workloads
 * quota, reserve and churn.
 */
#ifndef TIER_BENCH_SPACE_COREHOST_H
#define TIER_BENCH_SPACE_COREHOST_H

#include <stdbool.h>

#include "tierd/core/core.h"

#define COREHOST_CONTEXTS 8u
#define COREHOST_CLIENTS 3u
#define COREHOST_MS 1000000ull
#define COREHOST_LEASES 1024u
#define COREHOST_COPIES 4096u /* under way at a time */

struct corehost_context {
	uint32_t id; /* 0 = none */
	void *index;
	uint8_t *mem;
	uint64_t index_bytes, mem_bytes;
};

/* Copies follow one another on a channel of their own. */
struct corehost_channel {
	uint64_t bytes_per_s; /* 0 = copies take no time */
	uint64_t idle_ns;     /* from then on */
	struct {
		struct core_action copy;
		uint64_t done_ns;
	} queue[COREHOST_COPIES];
	uint32_t head, tail; /* modulo COREHOST_COPIES */
};

struct corehost {
	struct core *core;
	uint64_t now_ns;
	struct corehost_channel channel;
	uint8_t *staging[COREHOST_CLIENTS]; /* NULL = no such client */
	struct abi_reader *reader[COREHOST_CLIENTS];
	uint32_t leases; /* hazard words handed out, of client 0 */
	bool answered;
	struct abi_cqe answer; /* of the request that was fed last */
	uint64_t copied;       /* bytes that moved within the tier */
	uint64_t punched;
	struct corehost_context context[COREHOST_CONTEXTS];
};

struct corehost_block {
	uint32_t context; /* which of the host's */
	uint32_t client;  /* who puts or uses it */
	uint64_t key;
	uint32_t depth;	 /* blocks of its prompt before it */
	uint64_t before; /* the key of the last of them */
	uint64_t salt;
	uint64_t parts;       /* 0 = all */
	uint64_t reservation; /* 0 = none */
	uint8_t priority;
	uint32_t ttl_ms;
};

/* With client 0. cxl, slab: bytes. Errors: -ENOMEM, -EINVAL. */
int corehost_open(struct corehost *h, uint64_t cxl, uint64_t slab);
void corehost_close(struct corehost *h);

/* From here on copies take time. */
void corehost_bandwidth(struct corehost *h, uint64_t bytes_per_s);

/* Before the contexts: one more client. Errors: -ENOMEM. */
int corehost_client(struct corehost *h, uint32_t client);
/*
 * What of CXL the block's context, salt or client may hold before it gives first. Errors: the
 * core's.
 */
int corehost_share(struct corehost *h, enum core_holder who, const struct corehost_block *b,
		   uint64_t soft);

/*
 * Make context i: blocks of two parts, `pages` pages of 64 KiB and one of `side_bytes`; part 1 may
 * be left out. Errors: as core_context_create.
 */
int corehost_context(struct corehost *h, uint32_t i, uint32_t pages, uint32_t side_bytes);

/* Let simulated time pass. */
void corehost_advance(struct corehost *h, uint64_t ns);

/* Put one block; waits in simulated time. Returns blocks visible (0 or 1), or a negative errno. */
int64_t corehost_put(struct corehost *h, const struct corehost_block *b);

/* Is the block there? Then it was used now. */
bool corehost_get(struct corehost *h, const struct corehost_block *b);

/*
 * A reader keeps one page of a block that is there. Returns the lease, or a negative errno; the
 * place is freed by corehost_release.
 */
int corehost_lease(struct corehost *h, const struct corehost_block *b);
void corehost_release(struct corehost *h, int lease);

/* Reserve room; *id. args->expected 0: the core predicts. Errors: those of the request. */
int corehost_reserve(struct corehost *h, uint32_t context, const struct abi_reserve_args *args,
		     uint64_t deadline_ns, uint64_t *id);
int64_t corehost_hand_back(struct corehost *h, uint32_t context, uint64_t id);

/* Numbers of disagreements that the core's audit finds; the first is printed. */
uint64_t corehost_audit(const struct corehost *h);

#endif
