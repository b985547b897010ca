/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator can ask of the core: counters, sizes, where a block is, and a recount of every
 * byte. All of these are pure look-ups between events.
 */
#ifndef TIERD_CORE_STATS_H
#define TIERD_CORE_STATS_H

struct core_metrics {
#define METRIC(name, unit, help) uint64_t name;
#include "tierd/core/metrics.def"
#undef METRIC
};
const struct core_metrics *core_metrics(const struct core *c);

struct core_tier_stats {
	uint64_t capacity;    /* bytes */
	uint64_t used;        /* bytes of slabs given to contexts */
	uint64_t live;        /* bytes of pages in them (nvme: of live blocks) */
	uint64_t dirty;       /* bytes that exist nowhere else (cxl) */
	uint64_t pinned;
	uint64_t quarantined; /* bytes retired but still leased */
	uint64_t streamed;    /* bytes of the stream pool in use, all contexts together */
	bool failing;         /* nvme: writes or flushes have failed several times in a row */
	uint64_t quota;       /* context only: hard */
	uint64_t soft;        /* context only: its share when room is short */
	uint64_t free;        /* bytes of places free in used slabs */
	uint64_t reserved;    /* of these, promised */
	uint64_t retiring;    /* bytes between retirement and release, quarantined ones included */
};

/* One of the store's logs. */
struct core_log_stats {
	uint32_t segments;
	uint64_t live, capacity; /* bytes of data, in these segments */
	uint64_t written;        /* for clients, since the start */
	uint64_t again;          /* by the cleaner, beside that */
};

struct core_stats {
	struct core_log_stats log[2]; /* DISK_LOG_* */
	uint32_t segments_free, drives, drives_failing;
	uint32_t drives_draining, drives_missing;
	struct core_tier_stats tier[ABI_TIER_COUNT];
	uint32_t clients, contexts, requests, ios, copies, pins;
	uint64_t index_bytes; /* shared and private memory of the indexes in use */
	uint64_t table_bytes; /* the same as charged: what pending blocks may come to counts */
	uint64_t slack_bytes; /* what indexes may have beside for a moment: readers touch holes */
	uint64_t blocks, pages;
	uint64_t leaving; /* blocks that left, whose children are still to follow */
};
void core_stats(const struct core *c, struct core_stats *out);

/* The i-th drive of the store. Errors: -ENOENT after the last. */
struct core_drive_stats {
	uint64_t capacity, live; /* bytes of data */
	uint32_t segments, segments_free;
	uint64_t store_id;
	bool failing; /* its writes, flushes or reads have failed several times in a row */
	bool leaving; /* it is being drained, */
	bool no_room; /* ... and there was no room elsewhere when last tried */
	bool drained; /* the catalog does not name it any more */
};
int core_drive_stats(const struct core *c, uint32_t i, struct core_drive_stats *out);
/* The i-th that the catalog names and that was not there at the start. Likewise. */
int core_drive_missing(const struct core *c, uint32_t i, struct disk_drive *out);

struct core_context_stats {
	struct disk_context spec;
	uint32_t id;
	uint32_t attached; /* clients that have it open */
	uint64_t blocks, blocks_pending;
	uint64_t resident[ABI_TIER_COUNT]; /* pages with a copy there */
	struct core_tier_stats tier[ABI_TIER_COUNT];
	uint64_t fit; /* whole blocks for which its own slabs in CXL have room as they are */
	uint64_t index_bytes;
};
/* Walk: id = 0xffffffff first; returns the next id, or -ENOENT after the last. */
int64_t core_context_next(const struct core *c, uint32_t id);
int core_context_stats(const struct core *c, uint32_t id, struct core_context_stats *out);
/* The i-th that was removed and still keeps bytes, as those that are leased. -ENOENT: no more. */
int core_removed_at(const struct core *c, uint32_t i, struct core_context_stats *out);

/*
 * Memory of a context that holds nothing and will not before the next event: the first such range
 * at `from` or behind it. A reader that touches it makes the host allocate it. False = none.
 */
bool core_context_hole(const struct core *c, uint32_t id, uint32_t tier, uint64_t from,
		       struct core_range *hole);
/* An index may have so many bytes more than is touched before they are looked for. */
#define CORE_INDEX_SLACK (1ull << 20)
/* The same for its index: behind the used parts of its areas, and descriptors never used. */
bool core_index_hole(const struct core *c, uint32_t id, uint64_t from, struct core_range *hole);

/*
 * The next descriptors that may be given up: their context is short of room for tables, and their
 * slots are free. Before the next event their memory must have been taken, which is told, or
 * nothing. bytes 0 = none among those looked at. False: that was all.
 */
bool core_index_idle(struct core *c, uint32_t id, struct core_range *range);
void core_index_given(struct core *c, const struct core_range *range);

/*
 * Bytes of the tier (CORE_RANGE_INDEX: of the index) that the context has taken, those being
 * punched included; 0 = no such one.
 */
uint64_t core_context_taken(const struct core *c, uint32_t id, uint32_t tier);

/*
 * For the recount with the host: what of a context's memory in a tier is charged, and where bytes
 * lie that somebody may read. Sets bits only.
 */
struct core_ground {
	uint64_t *charged; /* a bit for each ABI_HUGE of the memory */
	uint64_t *written; /* ... ABI_PAGE_ALIGN */
};
void core_ground(const struct core *c, uint32_t id, uint32_t tier, const struct core_ground *out);

/*
 * The i-th account of a context's salts, or of all clients' connections (id = UINT32_MAX), as far
 * as it holds something or has a limit. Errors: -ENOENT after the last.
 */
#define CORE_HOLDER_NONE 0u  /* the public salt; blocks that no connection has put */
#define CORE_HOLDER_OTHER 1u /* all for whom there was no account free */
#define CORE_HOLDER_KEY 2u
struct core_holder_view {
	uint32_t kind;  /* CORE_HOLDER_NONE ... */
	uint64_t key;   /* salt; client and, in the upper half, its connection */
	uint32_t uses;  /* blocks and connections */
	uint64_t used[ABI_TIER_COUNT];
	struct core_limit limit[ABI_TIER_COUNT]; /* in force */
	uint64_t pinned[ABI_MEM_TIERS];    /* of its blocks, once; a client: by each of its pins */
	uint64_t pin_limit[ABI_MEM_TIERS]; /* in force; 0 = the budget of all alone */
};
int core_holder_at(const struct core *c, uint32_t id, uint32_t i, struct core_holder_view *out);

/* Where one block is. Errors: -ENOENT. */
struct core_location {
	struct abi_block block;
	uint32_t slot;
	uint32_t pages;                    /* in all */
	uint32_t resident[ABI_TIER_COUNT]; /* pages with a copy in the tier */
	uint32_t pins;
	uint64_t salt;
	bool durable;
	uint64_t nvme_offset; /* of its first page; 0 = none */
};
int core_locate(const struct core *c, uint32_t id, const uint8_t *key, struct core_location *out);

/*
 * Recount every byte of every tier from descriptors, slabs, segments and runs, and compare with the
 * counters. Each disagreement is told through `tell`; returns their number.
 */
uint64_t core_audit(const struct core *c, void (*tell)(void *arg, const char *what), void *arg);

/* What operators call an operation of the ring; "?": there is none of that number. */
const char *core_op_name(uint32_t op);

struct core_request_view {
	const char *name; /* of the operation */
	uint32_t client;
	uint8_t op, klass;
	uint32_t context_id, count, done; /* pages of a fetch, else blocks */
	uint64_t deadline_ns, since_ns;
	bool parked;       /* a prefetch that is not due: it holds nothing, and of it is known */
	uint64_t bytes;    /* ... what it has to bring into its tier, as things are now, */
	uint64_t start_ns; /* ... when it must begin at the latest; 0 = nobody looked yet */
};
/* The i-th request in progress. Errors: -ENOENT after the last. */
int core_request_view(const struct core *c, uint32_t i, struct core_request_view *out);

/* What a client holds of what is limited. Errors: -ENOENT no connection has that number. */
struct core_client_view {
	uint32_t requests, puts, pins;
	uint32_t pending; /* blocks that it began and that are not whole */
	uint64_t quarantined[ABI_MEM_TIERS]; /* bytes, at the last look */
};
int core_client_view(const struct core *c, uint32_t client, struct core_client_view *out);

struct core_stream_view {
	uint32_t client, context_id;
	uint8_t klass, tier, mode;
	bool ended;
	uint32_t status; /* ABI_STATUS_*, when ended */
	uint32_t blocks, usable;
	uint32_t layers, ready, released, window;
	uint64_t bytes, used, late, wasted;
	uint64_t since_ns, deadline_ns;
};
/* The i-th stream, answered ones that still hold layers included. -ENOENT after the last. */
int core_stream_view(const struct core *c, uint32_t i, struct core_stream_view *out);

struct core_pin_view {
	uint64_t id;
	uint32_t client, context_id, tier, blocks;
	uint64_t bytes, deadline_ns;
};
int core_pin_view(const struct core *c, uint32_t i, struct core_pin_view *out);

#endif
