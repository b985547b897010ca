/* SPDX-License-Identifier: Apache-2.0 */
/* The points of the experiments (points.h). */
#include "points.h"

#define WARM 4u /* times as many requests as there are random lines, before anything counts */
#define PIECES 4u
#define DEMAND_US 10
#define UNIT_FLITS_LOG 11u /* a unit is 128 KiB */
#define PIECE_FLITS (1u << 20) /* 64 MiB: 3.7 ms at 18 GB/s, many times flash's latency */

struct point_rates point_rates(void)
{
	return (struct point_rates){
		.clock_mhz = 400, /* stated, not placed */
		.link = 18,       /* ITME: measured, reads that hit; its balance of link and DRAM */
		.flash = 18,      /* ITME's balance: 4 channels of DRAM and two SSDs */
		.latency = 70,    /* Samsung CMM-H: a miss */
		.dirty = 250,     /* nobody's: a quarter of the lines is written each pass */
	};
}

struct exp_setting point_setting(const struct point *p, const struct point_rates *r,
				 uint32_t sets_log)
{
	uint32_t log = p->line_log ? p->line_log : 6, sets = sets_log - (log - 6);
	double flit = 64 * r->clock_mhz / 1e3; /* bytes a cycle at 1 GB/s, upside down */

	return (struct exp_setting){
		.line_log = log, .sets_log = sets, .tag_bits = 9,
		.unit_log = UNIT_FLITS_LOG - log, .units = p->units ? p->units : 32,
		.cleans = 32,
		.clean_wait = 400, /* 1 us: four times as often as lines become dirty */
		.dirty_most = p->cleaned ? POINT_WAYS << sets >> 6 : 0,
		.dirty = p->dirty ? (uint32_t)r->dirty : 0, .scattered = p->scattered,
		.windows = p->windows, .random = p->random,
		.random_lines = 20ull << sets, /* 1.25 of DRAM's: some hit, some do not */
		.link_cycles = flit / r->link, .flash_cycles = (1u << log) * flit / r->flash,
		.flash_latency = (uint32_t)(r->latency * r->clock_mhz),
		.dram_latency = 40,  /* 100 ns, about DDR4's */
		.poll_cycles = (uint32_t)r->clock_mhz, /* 1 us; ITME: 1 to 3 for a call */
	};
}

uint64_t point_lines(const struct point *p, uint32_t sets_log)
{
	uint32_t sets = sets_log - (p->line_log ? p->line_log - 6 : 0);
	uint64_t lines = (uint64_t)(p->size * (double)((uint64_t)POINT_WAYS << sets));

	return lines & ~(uint64_t)31; /* whole units */
}

double point_rate(const struct point_rates *r, const struct clock_outcome *o)
{
	return (double)o->flits * 64 / (double)o->cycles * r->clock_mhz / 1e3;
}

int point_twice(const struct point *p, const struct point_rates *r, uint32_t sets_log,
		struct clock_outcome *second, uint64_t *cycles)
{
	struct exp_setting set = point_setting(p, r, sets_log);
	uint64_t lines = point_lines(p, sets_log);
	struct clock *c;
	int rc = clock_open(&c, &set, p->mshrs, p->slots);

	if (rc)
		return rc;
	*cycles = clock_run(c, 0, lines).cycles;
	*second = clock_run(c, 0, lines);
	*cycles += second->cycles;
	clock_close(c);
	return 0;
}

static void add(struct clock_outcome *to, const struct clock_outcome *one)
{
	to->cycles += one->cycles;
	to->flits += one->flits;
	to->random += one->random;
	to->random_hits += one->random_hits;
}

int point_pieces(const struct point *p, const struct point_rates *r, uint32_t sets_log,
		 struct point_outcome *out)
{
	struct exp_setting set = point_setting(p, r, sets_log);
	uint64_t lines = point_lines(p, sets_log);
	uint64_t piece = PIECE_FLITS >> set.line_log;
	bool small = lines < 8 * PIECES * piece; /* then all of the second pass */
	uint64_t pieces = small ? 1 : PIECES;
	uint64_t step = small ? lines : lines / 4 / PIECES & ~31ull;
	uint64_t length = small ? lines : piece;
	struct clock *c;
	int rc = clock_open(&c, &set, p->mshrs, p->slots);

	if (rc)
		return rc;
	*out = (struct point_outcome){ 0 };
	if (p->random)
		out->alone = (double)clock_random(c, WARM * set.random_lines, set.random_lines) /
			     (double)set.random_lines;
	if (!p->windows)
		clock_skip(c, 0, lines);
	for (uint64_t i = 0; i < pieces; i++) {
		struct clock_outcome one = clock_run(c, i * step, i * step + length);

		add(&out->by_clock, &one);
		if (!p->windows)
			clock_skip(c, i * step + length, (i + 1) * step);
	}
	clock_close(c);
	return 0;
}

struct exp_setting point_demand(const struct point_rates *r, uint32_t sets_log, uint32_t units)
{
	struct point p = { .windows = units > 0 };
	struct exp_setting set = point_setting(&p, r, sets_log);

	set.demand_cycles = (uint32_t)(DEMAND_US * r->clock_mhz);
	set.random_lines = 1ull << (set.sets_log + set.tag_bits - 1); /* half of flash: all miss */
	set.class = 3;
	set.stage_most = units;
	return set;
}

int point_demanded(const struct exp_setting *set, uint32_t mshrs, uint32_t slots, uint64_t lines,
		   uint64_t cycles, struct clock_outcome *out)
{
	struct clock *c;
	int rc = clock_open(&c, set, mshrs, slots);

	if (rc)
		return rc;
	*out = set->windows ? clock_run(c, 0, lines) : clock_demand(c, cycles);
	clock_close(c);
	return 0;
}
