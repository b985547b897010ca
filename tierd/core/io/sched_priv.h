/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scheduler's files share: sched.c (who goes next), sched_queue.c (turns, deadlines, and
 * what became more urgent), sched_meter.c (what it costs), sched_gap.c (when demand will come).
 * Nothing is allocated after sched_open: a queued operation is a node inside the operation itself.
 *
 *   core_io      IDLE -> QUEUED -> FLYING -> IDLE            whole
 *                IDLE -> QUEUED -> CUT -> IDLE               in units: CUT when all are issued
 *   a unit       IDLE -> FLYING -> IDLE                      one of sched.unit
 * A read that is still verified is LANDED after FLYING.
 */
#ifndef TIERD_CORE_SCHED_PRIV_H
#define TIERD_CORE_SCHED_PRIV_H

#include "tierd/core/state.h"

#define SCHED_UNITS CORE_DEPTH_MAX
#define SCHED_FLOWS (CORE_IO_MAX + CORE_COPIES_MAX) /* one has at least one node */

enum sched_state { SCHED_IDLE, SCHED_QUEUED, SCHED_CUT, SCHED_FLYING, SCHED_LANDED };

/* What one client has queued in one class of one channel, in the order in which it goes. */
struct sched_flow {
	struct list ring; /* of the queue's flows; of free ones */
	struct list nodes;
	int64_t credit_ns; /* device time left in its turn */
	uint32_t client;
};

struct sched_queue {
	struct list ring; /* the first flow's turn it is */
	uint32_t count;
	uint64_t bytes;
};

struct sched_channel_state {
	struct sched_queue queue[ABI_CLASS_COUNT];
	uint32_t ops;           /* under way */
	uint64_t bytes;         /* likewise */
	uint64_t bandwidth;     /* bytes a second */
	uint64_t latency_ns;
	uint64_t moved;         /* bytes since the start */
	uint64_t busy_ns, busy_since_ns;
	uint64_t window_ns, window_busy_ns; /* where the idle share was last taken */
	uint32_t idle_permille;
	uint64_t sample_busy_ns, sample_moved; /* where the bandwidth was */
	uint64_t sample_full;  /* bytes moved since, beside much else, */
	uint64_t sample_mixed; /* ... beside the device's other channel */
	uint32_t mixed_count;  /* samples with such bytes, in a row */
};

#define SCHED_GAP_BINS 65u /* up to 33 ms; one more for those that are longer */

/* Times without demand, between two. */
struct sched_gaps {
	uint64_t shortest_ns; /* of late; 0 = not seen */
	uint64_t burst_ns;    /* the last one that was not short ended */
	uint32_t count[SCHED_GAP_BINS + 1];
	uint32_t total;          /* of these counts */
	uint32_t fresh;          /* gaps since the last look at them: it says */
	uint64_t from_ns, to_ns; /* ... which part of a gap is background's; to = 0: none */
	uint64_t budget_ns;      /* ... how much of it at a time */
	uint32_t hits;           /* demand that came in that part since */
	uint32_t window_percent; /* ... its share of the time of all gaps */
	uint64_t busy_ns;        /* ... longer gaps are pauses */
	bool bursts;             /* ... and demand is mostly close to demand */
};

/*
 * One a drive; what all share (copies, the pools of operations, losses) is in the first.
 */
struct sched {
	struct sched_channel_state channel[SCHED_CHANNELS];
	uint16_t flow_of[SCHED_CHANNELS][ABI_CLASS_COUNT][CORE_CLIENTS_MAX + 1]; /* 1 + index */
	struct sched_flow flow[SCHED_FLOWS];
	struct list flow_free;
	uint32_t queued; /* nodes in the queues of all channels */
	struct core_io unit[SCHED_UNITS];
	struct core_io *unit_free;
	uint32_t ios[CORE_CLIENTS_MAX + 1]; /* of the pools, by client */
	uint32_t copies[CORE_CLIENTS_MAX + 1];
	uint32_t direct_ops;      /* reads into HBM, on the device or still verified */
	uint32_t background_ios;  /* of the pool, for reads */
	uint32_t background_ops;  /* on the device */
	uint64_t background_ns;   /* their time */
	uint64_t demand_ns;       /* when demand was last there; 0 = never */
	struct sched_gaps gaps;
	uint64_t waits_ns[ABI_CLASS_COUNT]; /* since when a class has waited with nothing issued */
	int64_t writeback_ns;     /* device time owed to write-back */
	uint32_t writeback_share; /* percent, now */
	bool pressed;             /* someone waits for write-back */
	uint32_t losses;
	uint64_t expires_ns; /* no queued node expires before */
	uint64_t refresh_ns;
};

/* sched_queue.c */
void queue_insert(struct core *c, struct sched_node *node);
void queue_remove(struct core *c, struct sched_node *node);
void queue_shrink(struct core *c, struct sched_node *node, uint64_t bytes);
struct sched_node *queue_first(const struct sched_queue *q);
void queue_charge(struct core *c, struct sched_node *node, uint64_t ns);

/* sched.c */
void sched_enqueue(struct core *c, struct sched_node *node);
bool sched_yields(const struct core *c, const struct sched *s);
bool sched_sees(const struct core *c, const struct sched *s, uint64_t within_ns);
uint64_t sched_waits(const struct core *c, const struct sched *s, uint32_t klass);

/* sched_meter.c */
void meter_open(struct sched *s);
uint64_t meter_cost(const struct sched *s, uint32_t channel, uint64_t bytes);
uint64_t meter_under_way_ns(const struct sched *s);
void meter_fly(struct core *c, struct sched_node *node, uint64_t bytes);
void meter_land(struct core *c, struct sched_node *node, bool good);
void meter_refresh(struct core *c);

/* sched_gap.c */
void gap_over(struct core *c, struct sched *s);
/* Is there a part of gaps that is background's? */
bool gap_foreseen(const struct sched *s);
/* Where that part of the present gap ends; 0 = it is over, or has not begun. */
uint64_t gap_end(const struct core *c, const struct sched *s);
/* ... how much may be under way at a time, */
uint64_t gap_budget_ns(const struct core *c, const struct sched *s);
/* ... and where it begins, with demand that comes in bursts; 0 = nowhere. */
uint64_t gap_begins(const struct sched *s);
/* In a burst: background has the pauses between them. */
bool gap_holds(const struct core *c, const struct sched *s);
/* So long after demand it still counts as there. */
uint64_t gap_busy_ns(const struct sched *s);
/* Share of the time that gaps leave to background when demand takes so long beside them. */
uint32_t gap_percent(const struct sched *s, uint64_t beside_ns);

static inline bool sched_is_device(uint32_t channel)
{
	return channel <= SCHED_WRITE;
}

static inline uint32_t sched_device_ops(const struct sched *s)
{
	return s->channel[SCHED_READ].ops + s->channel[SCHED_WRITE].ops;
}

/* Is demand queued, or on the device? */
static inline bool sched_demand_there(const struct sched *s)
{
	return s->channel[SCHED_READ].queue[ABI_CLASS_DEMAND].count ||
	       s->channel[SCHED_WRITE].queue[ABI_CLASS_DEMAND].count ||
	       sched_device_ops(s) > s->background_ops;
}

static inline uint32_t sched_count(const struct core *c)
{
	return c->config.drives ? c->config.drives : 1;
}

static inline struct sched *sched_of(const struct core *c, const struct sched_node *node)
{
	return &c->sched[node->device];
}

static inline struct core_io *io_of(struct sched_node *node)
{
	return list_entry(node, struct core_io, priv.node);
}

static inline struct core_copy *copy_of(struct sched_node *node)
{
	return list_entry(node, struct core_copy, priv.node);
}

#endif
