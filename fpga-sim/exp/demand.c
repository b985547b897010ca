/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment f: reads of random lines that miss, one in 10 us on average, beside a window that is
 * staged as fast as the host reads it. How long they take by how many units of the window may be in
 * the drive at a time (`stage_most`), and what that costs the staging.
 */
#include "exp.h"

#define BOUNDS 6u
#define STAGE_LINES (128u << 10) /* 512 MiB of 4 KiB */
#define IDLE_US 30000

static const uint32_t BOUND[BOUNDS] = { 4, 6, 8, 10, 16, 32 };

static int run(struct exp *e, uint32_t most, struct clock_outcome *o)
{
	struct exp_setting set = point_demand(&e->rates, e->sets_log, most);

	return point_demanded(&set, e->mshrs, e->slots, STAGE_LINES,
			      (uint64_t)(IDLE_US * e->rates.clock_mhz), o);
}

static void judge(struct exp *e, const char *what, double value, double against, const char *goal,
		  bool met)
{
	struct row r = { .figure = what, .unit = "us", .against = "idle", .goal = goal,
			 .value = value, .against_value = against, .ratio = value / against,
			 .met = met };

	exp_row(e, &r);
	printf("  %-60s %8.2f, %.2f of %s: goal %s %s\n", what, value, r.ratio, r.against, goal,
	       met ? "met" : "missed");
}

/* The bound that the manual page recommends: the most that keeps demand within the goal. */
static void verdicts(struct exp *e, const struct clock_outcome *idle, const struct clock_outcome *o,
		     const double *rate)
{
	double us = 1 / e->rates.clock_mhz, p50 = idle->p50 * us, p99 = idle->p99 * us;
	const struct clock_outcome *all = &o[BOUNDS - 1];
	uint32_t best = 0;
	char text[3][120];
	struct row r = { .figure = text[2], .unit = "GB/s", .against = "unbounded staging",
			 .goal = "ratio >= 0.7", .against_value = rate[BOUNDS - 1] };

	for (uint32_t i = 0; i < BOUNDS; i++) {
		if (o[i].p50 * us <= 1.1 * p50 && o[i].p99 * us <= 1.5 * p99)
			best = i;
	}
	judge(e, "demand beside unbounded staging, p50", all->p50 * us, p50, "ratio >= 1.5",
	      all->p50 * us >= 1.5 * p50);
	snprintf(text[0], sizeof(text[0]), "demand beside staging of %u units at a time, p50",
		 BOUND[best]);
	judge(e, text[0], o[best].p50 * us, p50, "ratio <= 1.1", o[best].p50 * us <= 1.1 * p50);
	snprintf(text[1], sizeof(text[1]), "demand beside staging of %u units at a time, p99",
		 BOUND[best]);
	judge(e, text[1], o[best].p99 * us, p99, "ratio <= 1.5", o[best].p99 * us <= 1.5 * p99);
	snprintf(text[2], sizeof(text[2]), "staging of %u units at a time beside demand",
		 BOUND[best]);
	r.value = rate[best];
	r.ratio = r.value / r.against_value;
	r.met = r.ratio >= 0.7;
	exp_row(e, &r);
	printf("  %-60s %8.2f, %.2f of %s: goal %s %s\n", r.figure, r.value, r.ratio, r.against,
	       r.goal, r.met ? "met" : "missed");
}

void exp_demand(struct exp *e)
{
	struct clock_outcome idle, o[BOUNDS];
	double rate[BOUNDS], us = 1 / e->rates.clock_mhz;
	int rc = run(e, 0, &idle);

	if (!rc)
		printf("f: demand, one read in 10 us, beside staging; units in the drive\n"
		       "  %-8s p50 %7.1f us, p99 %7.1f us (%llu reads)\n", "idle",
		       idle.p50 * us, idle.p99 * us, (unsigned long long)idle.random);
	for (uint32_t i = 0; !rc && i < BOUNDS; i++) {
		rc = run(e, BOUND[i], &o[i]);
		if (rc)
			break;
		rate[i] = point_rate(&e->rates, &o[i]);
		printf("  %-8u p50 %7.1f us, p99 %7.1f us (%llu reads), staging %5.2f GB/s\n",
		       BOUND[i], o[i].p50 * us, o[i].p99 * us, (unsigned long long)o[i].random,
		       rate[i]);
		exp_value(e, "demand", "demand, p50", BOUND[i], o[i].p50 * us);
		exp_value(e, "demand", "demand, p99", BOUND[i], o[i].p99 * us);
	}
	if (rc)
		e->error = rc;
	else
		verdicts(e, &idle, o, rate);
}
