/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves: dropped blocks, batches of places, the pass over all readers' slots (reclaim.c). */
#ifndef TIERD_CORE_PLACE_SCAN_H
#define TIERD_CORE_PLACE_SCAN_H

#include "tierd/core/core.h"
#include "tierd/core/unit/block_meta.h"

/*
 * A pass looks at every reader's slots once, a share in each turn, for all places that were fenced
 * before it began; the others wait for the next one.
 */
struct scan {
	uint32_t *table;   /* by hash of a place: 1 + entry (batch, index in it); 0 = none */
	uint32_t pass;     /* counts them */
	bool running;      /* slots are looked at, or what they showed is gone through */
	bool begun, over;  /* ... the first was, all were */
	bool asked;        /* an AC_SCAN is with the shell */
	uint32_t slots;    /* looked at in this turn */
	uint32_t client, reader, slot; /* where it goes on */
	struct core_batch *walk; /* ... over places, for the client's kernels: slot counts them */
	struct core_batch *fresh_head, *fresh_tail; /* fenced, and in no pass so far */
	struct core_batch *set; /* of the pass */
};

/*
 * What a client's stream of kernels may still read (abi/hazard.h H4): nothing that was unpublished
 * up to fence `clear`. At any time one snapshot of its era_begin is waited for: it was taken behind
 * fence `fence`, and later ones ask for another.
 */
struct era {
	uint64_t clear;
	uint64_t fence; /* 0: none is waited for */
	uint64_t begin;
};

/* What a client reads. */
struct readers {
	uint64_t access_seen[ABI_READERS_MAX];
	struct era era[ABI_READERS_MAX];
	uint32_t used;    /* those below have ever logged something */
	uint32_t drain;   /* whose log is heard first next time */
	uint32_t revoked; /* gone, and reads nothing in these tiers any more: a bit each */
};

struct reclaim {
	struct readers *readers; /* [CORE_CLIENTS_MAX] */
	struct core_batch *batch, *free;
	struct core_batch *open;                              /* collects */
	struct core_batch *quarantine_head, *quarantine_tail; /* wait for another scan */
	uint64_t next_ns;                                     /* ... not before */
	uint64_t era; /* fences that are over: behind which one places were retired */
	struct scan scan;
	uint64_t quarantined[ABI_MEM_TIERS]; /* bytes */
};

struct dropped {
	struct block_list unretired; /* their pages found no room in a batch */
	struct block_list parents_leaving, waiting; /* their children are to follow; cannot yet */
	uint64_t waiting_next_ns;
	uint32_t waiting_left; /* of the round under way */
};

/* Slabs that devices of clients have (lend.c). */
struct lent {
	uint32_t first;   /* slab that the client's devices have: 1 + its number */
	uint64_t recalls; /* times that some of them were wanted back */
};

struct lends {
	struct lent *to;    /* [CORE_CLIENTS_MAX] */
	struct lend *table; /* [CORE_LENDS_MAX] */
	uint32_t *bucket;   /* by hash: 1 + number */
	uint32_t free, high; /* 1 + number; used ones lie below high */
	uint32_t count;
	uint64_t recalled_ns;
	uint64_t recalls; /* asked of clients */
};

struct evicting {
	struct lends lends;
	uint32_t punching[ABI_MEM_TIERS]; /* segments */
	uint64_t spares_ns;    /* the last look at empty segments */
	uint32_t failed[2];    /* segments in a row that could not be emptied, */
	uint64_t failed_ns[2]; /* ... the last one then; [1] = compacted */
	uint32_t swaps;        /* contexts whose blocks go over to another policy */
	struct trial *trial;   /* of another policy; NULL = none runs */
	struct core_trial tried;
	uint32_t drain_next;   /* client whose logs are heard first next time */
};

#endif
