/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's own data: what its files share and nobody else may see. Everything is owned by the one
 * thread that calls core_event. Pools are taken at core_open; per-context memory at creation.
 */
#ifndef TIERD_CORE_STATE_H
#define TIERD_CORE_STATE_H

#include <stdlib.h>

#include "tierd/core/book/account.h"
#include "tierd/core/context.h"
#include "tierd/core/op/pin.h"
#include "tierd/core/op/request.h"
#include "tierd/core/op/reserve.h"
#include "tierd/core/op/stream.h"
#include "tierd/core/place/scan.h"
#include "tierd/core/place/tables.h"
#include "tierd/core/unit/block_meta.h"
#include "tierd/core/op/park.h"
#include "tierd/core/core.h"
#include "tierd/core/signal.h"
#include "tierd/core/place/evacuate.h"
#include "tierd/core/unit/descs.h"
#include "tierd/core/unit/index.h"
#include "tierd/core/book/lane.h"
#include "tierd/core/unit/ledger.h"
#include "tierd/core/unit/meter.h"
#include "tierd/core/unit/page.h"
#include "tierd/core/hint/plan.h"
#include "tierd/core/unit/policy_ops.h"
#include "tierd/core/io/actions.h"
#include "tierd/core/io/sched.h"
#include "tierd/core/hint/conversation.h"
#include "tierd/core/unit/predict.h"
#include "tierd/core/log/catalog.h"
#include "tierd/core/log/recover.h"
#include "tierd/core/book/retain.h"
#include "tierd/core/unit/space.h"
#include "tierd/core/unit/store.h"
#include "tierd/core/unit/table_new.h"
#include "tierd/core/unit/tenants.h"
#include "tierd/core/log/writeback.h"

#define CORE_RUN_IOS 8u        /* writes of one run under way */
#define CORE_IO_BYTES_MAX (1u << 20)

#define MS 1000000ull

/* ---- the core ----------------------------------------------------------------------------- */

/* Keys that may have a record (tombs.c). */
struct recorded {
	uint64_t *lsn;
	uint32_t places; /* a power of two */
};

/* Contexts of the catalog that cannot be made now (aside.c). */
struct aside {
	struct disk_context *context;
	struct disk_limit *limit;
	uint32_t count, limits;
};

struct core {
	struct core_config config;
	uint64_t now_ns;
	struct core_metrics metrics;
	struct meter meter;
	uint64_t turns; /* ticks */
	struct pool pool[ABI_MEM_TIERS];
	struct drive *drive[CORE_DRIVES_MAX]; /* [0] NULL: no NVMe tier */
	uint32_t drives;

	struct context **context; /* by index, [contexts_high] */
	uint32_t contexts_high, contexts;
	uint64_t next_uid;
	uint16_t context_generation;

	struct client *client;
	uint32_t clients_high; /* clients [0, high) may be open */
	uint32_t leaving;      /* clients and contexts that are */
	struct accounts accounts;
	struct ledger owners;  /* what clients put, by connection */

	struct requests requests;
	struct queues queues;
	struct puts puts;

	struct sched *sched; /* of each drive */
	struct actions actions;

	struct dropped dropped;
	struct reclaim reclaim;
	struct evacuation evacuation;
	struct evicting evict;

	struct parked parked;
	struct staged staged;
	struct conversations conversations;
	struct plans plans;
	struct streams streams;
	uint64_t streamed[ABI_MEM_TIERS]; /* bytes of places that are the pool's */
	struct pins pins;
	struct reservations reserve;

	struct tables tables;
	struct aside aside;
	struct recorded recorded;
	struct tombs tombs[TOMBS_KINDS];
	uint64_t tombs_bound; /* the cleaner is to move what is as old: a context has too many */
	bool tombs_refused;
	uint64_t suspects; /* blocks that became SETTLE_SUSPECT and were not written again since */
	struct writeback writeback;
	struct core_catalog catalog;
	uint8_t *record_live; /* live blocks of each record of the durable log (book/records.c) */

	struct recover recover;
	struct retain retain;
	uint64_t next_slow_ns;
};

/* ---- small shared functions --------------------------------------------------------------- */

static inline struct context *core_context(const struct core *c, uint32_t id)
{
	uint32_t index = ABI_CONTEXT_INDEX(id);
	struct context *x = index < c->contexts_high ? c->context[index] : NULL;

	return x && x->id == id ? x : NULL;
}

/* By the number that the store knows it by, in all its lives. */
static inline struct context *core_context_by_uid(const struct core *c, uint64_t uid)
{
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->context[i]->spec.uid == uid)
			return c->context[i];
	return NULL;
}

static inline bool context_has_nvme(const struct core *c, const struct context *x)
{
	return c->drives && x->plan.quota[ABI_TIER_NVME];
}

/* What an event, or a turn's scan of hazard words, came to. */
static inline void core_looked_at(struct core *c, uint32_t items)
{
	c->metrics.items += items;
	if (items > c->metrics.event_items_most)
		c->metrics.event_items_most = items;
}

/* The device that has what is of the store as a whole; NULL = there is no NVMe tier. */
static inline struct drive *core_home(const struct core *c)
{
	return c->drive[0];
}

/* A flush, with the next step. */
static inline void sync_want(struct drive *dv)
{
	dv->sync_wanted = true;
}

/* Is a run of the kind (DISK_LOG_*) under way there? */
static inline bool drive_writes(const struct drive *dv, uint32_t kind)
{
	for (uint32_t i = CORE_RUN_FIRST(kind); i < CORE_RUN_END(kind); i++)
		if (dv->run[i].phase != RUN_FREE)
			return true;
	return false;
}

/* ... of either kind? */
static inline bool drive_busy(const struct drive *dv)
{
	return drive_writes(dv, DISK_LOG_CACHE) || drive_writes(dv, DISK_LOG_DURABLE);
}

/* Is a run of the kind under way anywhere? */
static inline bool drives_write(const struct core *c, uint32_t kind)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (drive_writes(c->drive[i], kind))
			return true;
	return false;
}

/* The newest record's number: a tombstone for what is stored now reaches up to it. */
static inline uint64_t core_lsn(const struct core *c)
{
	return c->drives ? store_lsn(core_home(c)->store) : 0;
}

/* Dirty bytes of a context: beyond them no durable put begins, and no other one is taken. */
static inline uint64_t dirty_limit(const struct core *c, const struct context *x)
{
	uint64_t cxl = c->pool[ABI_TIER_CXL].capacity;

	if (x->plan.quota[ABI_TIER_CXL] < cxl)
		cxl = x->plan.quota[ABI_TIER_CXL];
	return cxl / 100 * c->config.dirty_percent;
}

/* Does the block leave the service when CXL lets it go? */
static inline bool block_leaves_whole(const struct core *c, const struct context *x, uint32_t slot)
{
	return !context_has_nvme(c, x) || x->meta[slot].persist == PERSIST_REFUSED;
}

/* core.c */
void core_client_end(struct core *c, uint32_t id);
void core_context_free(struct core *c, struct context *x);

/* leave.c */
void leave_client(struct core *c, uint32_t id);
void leave_context(struct core *c, struct context *x);
void context_sweep(struct core *c, struct context *x);
void leave_work(struct core *c);

/* context.c */
void context_tick(struct core *c);
void context_maybe_gone(struct core *c, struct context *x);

#include "tierd/core/book/book.h"
#include "tierd/core/book/room.h"
static inline void *cold_alloc(const struct core *c, size_t count, size_t bytes)
{
	const struct core_cold *cold = &c->config.cold;

	return cold->alloc ? cold->alloc(cold->arg, count, bytes) : calloc(count, bytes);
}

static inline void cold_free(const struct core *c, void *memory)
{
	if (c->config.cold.alloc)
		c->config.cold.free(c->config.cold.arg, memory);
	else
		free(memory);
}

#include "tierd/core/move/move.h"
#include "tierd/core/op/op.h"
#include "tierd/core/op/put.h"
#include "tierd/core/place/place.h"

#endif
