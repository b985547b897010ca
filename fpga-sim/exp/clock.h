/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden model with a clock: the host and the drive of readers.h around it, a decision a cycle,
 * constant latencies between. Where the RTL runs the same, its cycles are within 5 % of these.
 */
#ifndef TIER_FPGA_CLOCK_H
#define TIER_FPGA_CLOCK_H

#include "device.h"
#include "readers.h"

struct clock;

struct clock_outcome {
	uint64_t cycles;
	uint64_t flits;              /* of the stream */
	uint64_t random, random_hits; /* requests to random lines, found in DRAM at once */
	uint32_t p50, p99;            /* cycles of those, from the request to its answer */
};

/* Errors: -EINVAL, -ENOMEM. slots: requests inside at a time. */
int clock_open(struct clock **out, const struct exp_setting *set, uint32_t mshrs, uint32_t slots);
void clock_close(struct clock *c);

/*
 * Another host than the readers. next: the request that it lets out at this cycle, false: none;
 * when: at which cycle it may be asked again, UINT64_MAX: after an answer or a call from outside.
 */
struct clock_host {
	bool (*next)(void *arg, uint64_t now, struct exp_request *q);
	uint64_t (*when)(void *arg);
	void (*answer)(void *arg, uint64_t now, uint16_t reader);
	void *arg;
};
void clock_serve(struct clock *c, const struct clock_host *host);
/* A decision, or time goes on, to `until` at most, or to `poll` while there are windows. Returns
 * the clock. */
uint64_t clock_step(struct clock *c, uint64_t poll, uint64_t until);

/* Lines [from, to) of the stream, read by the clock. In windows these are a window of their own. */
struct clock_outcome clock_run(struct clock *c, uint64_t from, uint64_t to);

/* Demand alone, for so many cycles. */
struct clock_outcome clock_demand(struct clock *c, uint64_t cycles);
/* The lines of the setting's list, then nothing but look-ahead of other lines until `least` cycles
 * have passed since the run began: a layer of a model, and its computing. */
struct clock_outcome clock_layer(struct clock *c, uint64_t from, uint64_t to,
				 const uint64_t *ahead, uint32_t count, uint32_t least);

/* The same lines are looked up and filled, without a clock and without windows; the random
 * requests beside them, too. */
void clock_skip(struct clock *c, uint64_t from, uint64_t to);
/* So many random lines are; of the last `count`, how many were found. */
uint64_t clock_random(struct clock *c, uint64_t times, uint64_t count);

/* A line is looked up and filled, without the clock; true: it was there. */
bool clock_touch(struct clock *c, uint64_t line, bool write);
struct device *clock_device(struct clock *c);

#endif
