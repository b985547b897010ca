/* SPDX-License-Identifier: Apache-2.0 */
/* What the experiments run, in the model at any size, in the RTL at its own. */
#ifndef TIER_FPGA_POINTS_H
#define TIER_FPGA_POINTS_H

#include "clock.h"

#define POINT_WAYS 16u

/* What a user may change; the defaults and their sources stand in points.c. */
struct point_rates {
	double clock_mhz, link, flash; /* GB/s */
	double latency;                /* of flash, us */
	double dirty;                  /* of lines, per mille */
};

struct point {
	double size;      /* of the stream, in DRAMs */
	uint32_t mshrs, slots;
	bool dirty, scattered, windows;
	bool cleaned;     /* dirty lines are written ahead, but for one of 64 lines */
	uint32_t random;  /* per mille of requests beside the stream */
	uint32_t units;   /* that can be staged; 0: 32 */
	uint32_t line_log; /* log2 of the flits of a line; 0: 6, 4 KiB */
};

struct point_outcome {
	struct clock_outcome by_clock;
	double alone; /* hits of the random reader without a stream */
};

struct point_rates point_rates(void);
/* The setting of a point; sets_log says how large the device is: its sets with lines of 4 KiB. */
struct exp_setting point_setting(const struct point *p, const struct point_rates *r,
				 uint32_t sets_log);
uint64_t point_lines(const struct point *p, uint32_t sets_log);
double point_rate(const struct point_rates *r, const struct clock_outcome *o); /* GB/s */

/* Two passes from an empty device, all of it by the clock: the second, and all cycles. -errno. */
int point_twice(const struct point *p, const struct point_rates *r, uint32_t sets_log,
		struct clock_outcome *second, uint64_t *cycles);
/*
 * Of the second pass four pieces of 64 MiB, in its first quarter, by the clock (all of it, where
 * the device is small); what lies between and before without one. -errno.
 */
int point_pieces(const struct point *p, const struct point_rates *r, uint32_t sets_log,
		 struct point_outcome *out);

/*
 * f: reads of random lines that miss, one in 10 us, beside a window of so many lines (without: for
 * so many cycles), of which at most `units` units are in the drive at a time. -errno.
 */
struct exp_setting point_demand(const struct point_rates *r, uint32_t sets_log, uint32_t units);
int point_demanded(const struct exp_setting *set, uint32_t mshrs, uint32_t slots, uint64_t lines,
		   uint64_t cycles, struct clock_outcome *out);

#endif
