/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: which device operation or copy may go, and when (P6). Files of the core build an
 * operation and hand it over; nothing else pushes READ, WRITE or COPY to the shell.
 *
 *   core_io_get -> fill in -> sched_io      queued          core_copy_get -> ... -> sched_copy
 *     -> sched_step (end of each event)     issued, whole or in units
 *     -> sched_landed (IO_LANDED)           measured, if the read is still to be verified
 *     -> sched_done (IO_DONE)               measured; priv.done when the last unit is over
 *
 * Order. A more urgent class goes first: demand, deadline, speculative, write-back, clean-up.
 * Within a class clients take turns by device time (deficit round robin): a client's thousand reads
 * delay another's one by a turn, and a deadline orders only its own client's work, so that nobody
 * gains by lying about it. Within a client the earliest deadline goes first, then the lowest
 * `order` (layer), then arrival. The daemon's own work counts as one client, SCHED_DAEMON.
 *
 * The device. At most config.device_depth operations are under way, and no demand is added to more
 * than SCHED_BUDGET_DEMAND_NS of device time (small reads: SCHED_BUDGET_SMALL_NS): that is what the
 * next one waits behind, however deep the queue and however slow the device. All classes but demand
 * are background, bounded by the device time that they have under way: while demand was seen in the
 * last SCHED_BUSY_NS they go in units of SCHED_UNIT_BUSY, as many as fit SCHED_BUDGET_BUSY_NS but
 * always one; else in units of SCHED_UNIT_BYTES up to SCHED_BUDGET_IDLE_NS. With config.yield none
 * goes while demand is there or was seen in the last SCHED_YIELD_NS. Two things pass this order, a
 * unit at a time:
 *   - a background class that has had nothing issued for config.starve_ns though something waited;
 *   - write-back, which is owed config.writeback_percent of the device's time while it has work, up
 *     to SCHED_WRITEBACK_MOST as the dirty limit comes near or someone waits for durability. What
 *     is waited for has up to OWED_MOST_NS of that ahead, while no demand is there.
 * With config.yield they look for a moment without demand: what is owed waits for one until
 * as much is owed as can be, and a class that will starve goes a quarter earlier in one if a unit
 * fits. A class that has starved goes whether it fits or not.
 *
 * Gaps. Demand that comes in steps leaves gaps, and of late none was shorter than sched.gap_ns
 * (falls at once, rises slowly). The first three quarters of that, from where the last demand
 * landed, are background's: up to SCHED_BUDGET_GAP_NS of it at a time, in small units, that end
 * before the last quarter begins. So it is not under way when the next demand comes; one that
 * comes unforeseen waits for no more than that budget, and once. Where gaps differ, it is the part
 * of a gap in which demand is least likely (sched_gap.c), by SCHED_BUDGET_MET_NS at a time unless
 * hardly any demand came there; and a burst of demand is let pass whole before its pause.
 * "Busy" then lasts for twice the longest gap of late, instead of SCHED_BUSY_NS.
 *
 * Copies go in channels, one a direction; the channels to and from HBM carry SCHED_HBM_COPIES at a
 * time.
 *
 * What has not been issued at its deadline ends with -ETIME, at no cost to the device; writes and
 * copies of puts have none. What is withdrawn ends with -ECANCELED.
 */
#ifndef TIERD_CORE_SCHED_H
#define TIERD_CORE_SCHED_H

#include "tierd/core/core.h"

#define SCHED_DAEMON CORE_CLIENTS_MAX /* as a client: the daemon's own work */

#define SCHED_UNIT_BYTES (512u << 10) /* of background while the device is its own */
#define SCHED_UNIT_BUSY (128u << 10)  /* ... beside demand */
#define SCHED_BUSY_NS 10000000ull     /* demand this long ago still counts as there */
#define SCHED_YIELD_NS 5000000ull     /* likewise, for the yield rule */
#define SCHED_BUDGET_BUSY_NS 80000ull
#define SCHED_BUDGET_GAP_NS 400000ull
#define SCHED_BUDGET_MET_NS 200000ull /* where demand is likely to come */
#define SCHED_GAP_LEAST_NS 500000ull  /* a shorter one is nobody's */
#define SCHED_BUDGET_DEMAND_NS 2500000ull
#define SCHED_BUDGET_SMALL_NS 8000000ull /* a read of SCHED_SMALL_BYTES at most is added */
#define SCHED_SMALL_BYTES (64u << 10)
#define SCHED_BUDGET_IDLE_NS 2500000ull
#define SCHED_WRITEBACK_MOST 75u      /* percent */
#define SCHED_HBM_COPIES 2u
#define SCHED_COPY_BYTES (4u << 20)   /* of one job: smaller ones of puts make shorter runs */
#define SCHED_BACKGROUND_IOS 64u      /* of the pool, for reads that are not demand */

struct sched;

int sched_open(struct core *c);
void sched_close(struct core *c);

/*
 * Room in a pool for one more of this class and client? The last quarter is for clients that have
 * few, and background reads get SCHED_BACKGROUND_IOS of the pool. Asked by core_io_get and
 * core_copy_get, which tell what was taken and given back; a request that got none waits for room
 * (request_wait_space) and looks again when one of anyone's is done.
 */
bool sched_admits_io(const struct core *c, uint32_t klass, uint32_t client);
void sched_io_taken(struct core *c, struct core_io *io, uint32_t client);
void sched_io_left(struct core *c, const struct core_io *io);
bool sched_admits_copy(const struct core *c, uint32_t client);
void sched_copy_taken(struct core *c, struct core_copy *copy, uint32_t client);
void sched_copy_left(struct core *c, const struct core_copy *copy);

/* One more page of a copy job that has room. */
void sched_copy_add(struct core_copy *copy, const struct core_copy_item *item, uint32_t slot,
		    uint32_t page);

/*
 * Is the copy as much as one job takes? A worker that copies is not interrupted: what is urgent
 * waits for all of it (P6), and several workers share what is cut.
 */
bool sched_copy_full(const struct core_copy *copy);

/* Queue it. The class and deadline in it are used (deadline 0 = none); done is always called. */
void sched_io(struct core *c, struct core_io *io);
void sched_copy(struct core *c, struct core_copy *copy);

/*
 * IO_DONE, COPY_DONE: measures, then calls done. IO_LANDED goes before the IO_DONE of a read whose
 * verification takes a while: the device has room again, and what it did is measured.
 */
void sched_landed(struct core *c, struct core_io *io);
void sched_done(struct core *c, struct core_io *io);
void sched_copied(struct core *c, struct core_copy *copy);

void sched_step(struct core *c); /* issues what may go; at the end of each event */
void sched_tick(struct core *c); /* ends what is past its deadline */
uint64_t sched_next_tick(const struct core *c);

/*
 * Someone of a more urgent class (at least `klass`) waits for the page that a queued read brings
 * from this place of the store, or a queued copy to this address: it goes with that class from now
 * on, and stays when its owner is cancelled. True: found. What is under way already is not changed.
 */
bool sched_raise(struct core *c, uint64_t nvme, uint32_t klass, uint64_t deadline_ns);
bool sched_raise_copy(struct core *c, const void *dst, uint32_t klass, uint64_t deadline_ns);

/* Would raising find a read into CXL, or a direct one into HBM? A copy? */
bool sched_outranks(const struct core *c, uint64_t nvme, uint32_t klass, bool direct);
bool sched_outranks_copy(const struct core *c, const void *dst, uint32_t klass);

/* Take what this client's owner (NULL = all its owners) has queued back: each ends -ECANCELED. */
void sched_withdraw(struct core *c, uint32_t client, const void *owner);

/* Counts the operations that ended without having brought their bytes: joiners look again. */
uint32_t sched_losses(const struct core *c);

/* ---- estimates ---------------------------------------------------------------------------- */

enum sched_channel {
	SCHED_READ,
	SCHED_WRITE,
	SCHED_TO_HBM,
	SCHED_FROM_HBM,
	SCHED_TO_CXL,
	SCHED_CHANNELS
};

/*
 * Time from now until so many bytes, queued now with this class and deadline (0 = none), would be
 * there: what is under way, what goes before it, the measured bandwidth and latency, the pace that
 * background is held to. What requests have not built yet is not in it.
 */
uint64_t sched_ready_ns(const struct core *c, enum sched_channel channel, uint64_t bytes,
			uint32_t klass, uint64_t deadline_ns);

/* Time until a device is done with what it has and what goes before write-back. */
uint64_t sched_queue_ns(const struct core *c, uint32_t device);

/* Time that the device still needs for what is under way. */
uint64_t sched_under_way_ns(const struct core *c);

/* Bytes in which an operation of this class goes now. */
uint32_t sched_unit_bytes(const struct core *c, uint32_t klass);

/* Has demand been seen within the last `within_ns`, or is it queued or under way? */
bool sched_demand(const struct core *c, uint64_t within_ns);

/* How long a background class has waited with nothing issued; 0 = it has nothing queued. */
uint64_t sched_waits_ns(const struct core *c, uint32_t drive, uint32_t klass);

/* For the audit: is it queued or under way? Do the counts of the queued agree with the queues? */
bool sched_has(const struct sched_node *node);
bool sched_agrees(const struct core *c);

struct sched_channel_stats {
	uint64_t bandwidth;  /* bytes a second, while kept busy */
	uint64_t latency_ns; /* of an operation beyond its bytes' time */
	uint64_t busy_ns;    /* with something under way, since the start */
	uint64_t bytes;      /* moved since the start */
	uint32_t idle_permille; /* of the last tenths of a second */
	uint32_t under_way;
	uint32_t queued[ABI_CLASS_COUNT];
	uint64_t queued_bytes[ABI_CLASS_COUNT];
};
void sched_channel_stats(const struct core *c, enum sched_channel channel,
			 struct sched_channel_stats *out);
void sched_drive_stats(const struct core *c, uint32_t drive, enum sched_channel channel,
		       struct sched_channel_stats *out);

#endif
