/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment c: ITME's turn sweep (bench/model/sweep.h), the service's core on a modelled host. Its
 * store lies behind this device with its clock in place of 18 and 12 GB/s and 70 us. A block's
 * recomputation takes so long that the constant is ITME's 18 GB/s.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/model/sweep.h"
#include "exp.h"
#include "port.h"

#define CONSTANT_GBPS 18
/* log2, of lines of 4 KiB: 2 GiB beside 5 GB of host memory (ITME: 32 and 128), 64 GiB of flash, of
 * which the store takes half; whatever the size of the others. */
#define SETS 15u
#define CASES 6u
#define READS 64u /* of the check */
#define READ_BYTES (4u << 20)
#define AT_A_TIME 16u

static const struct {
	const char *name;
	bool windows;
	uint32_t line_log;
	double speed;
} CASE[CASES] = {
	{ "windows, lines of 64 KiB", true, 10, 1 },
	{ "windows, lines of 4 KiB", true, 6, 1 },
	{ "cache, lines of 64 KiB", false, 10, 1 },
	{ "cache, lines of 4 KiB", false, 6, 1 },
	{ "windows, 64 KiB, both x 0.5", true, 10, 0.5 },
	{ "windows, 64 KiB, both x 2", true, 10, 2 },
};

static int sweep(struct sweep *s, bool tiered, double speed, const struct model_drive *drive)
{
	const struct sweep_spec spec = {
		.tiered = tiered, .speed = speed, .drive = drive,
		.recompute_ns = (uint64_t)(SWEEP_BLOCK_BYTES / (ITME_DEVICE * CONSTANT_GBPS)),
	};

	return sweep_run(s, &spec);
}

static void judge(struct exp *e, const char *name, const char *which, double value, double goal)
{
	char text[160], want[32];
	struct row r = { .figure = text, .unit = "x", .against = "conventional offload",
			 .goal = want, .value = value, .against_value = 1, .ratio = value,
			 .met = value >= goal };

	snprintf(text, sizeof(text), "ITME's sweep, %s, %s", which, name);
	snprintf(want, sizeof(want), "ratio >= %g", goal);
	exp_row(e, &r);
	printf("  %-60s %.3f: goal >= %g %s\n", text, value, goal, r.met ? "met" : "missed");
}

static void verdicts(struct exp *e, const char *name, const struct sweep *offload,
		     const struct sweep *own)
{
	double worst = 1e9, best = 0;
	char which[48];
	uint32_t worst_at = 0, best_at = 0;

	for (uint32_t k = 1; k <= ITME_TURNS; k++) {
		double ratio = offload->seconds[k] / own->seconds[k];

		if (ratio < worst) {
			worst = ratio;
			worst_at = k;
		}
		if (ratio > best) {
			best = ratio;
			best_at = k;
		}
		if (k == 1 || k % 5 == 0 || k == 11 || k == 12)
			exp_value(e, "turns", name, k, ratio);
	}
	snprintf(which, sizeof(which), "worst turn (%u)", worst_at);
	judge(e, name, which, worst, 1);
	snprintf(which, sizeof(which), "best turn (%u)", best_at);
	judge(e, name, which, best, ITME_GAIN);
}

static void say_traffic(struct exp *e, struct port *p, bool write)
{
	const struct port_traffic *t = port_traffic(p, write);
	double us = 1 / e->rates.clock_mhz;

	if (t->count)
		printf("    %s: %.1f GB in pieces of %.0f KiB, %.2f GB/s while any is under way, "
		       "%.0f us each\n", write ? "writes" : "reads", (double)t->bytes / 1e9,
		       (double)t->bytes / 1024 / (double)t->count,
		       (double)t->bytes / ((double)t->busy * us) / 1e3,
		       (double)t->waited * us / (double)t->count);
}

/* What the device did that a constant rate knows nothing of. */
static void say_wrong(struct exp *e, struct port *p, uint32_t line_log)
{
	const struct device_counters *n = device_counters(port_device(p));
	double line = 64.0 * (1u << line_log) / 1e9;
	double units = (double)n->units_taken * 128 * 1024 / 1e9;

	say_traffic(e, p, false);
	say_traffic(e, p, true);
	printf("    flash: %.1f GB staged, %.1f GB read for misses, %.1f GB written (%.1f as "
	       "evictions);\n    %.1f GB of what was staged were in the cache\n", units,
	       (double)n->fills * line, (double)(n->dirty_evictions + n->cleaned) * line,
	       (double)n->dirty_evictions * line, (double)n->skips * line);
}

static int one(struct exp *e, uint32_t i, const struct sweep *offload)
{
	struct point at = { .windows = CASE[i].windows, .line_log = CASE[i].line_log,
			    .mshrs = e->mshrs, .cleaned = true };
	struct point_rates rates = e->rates;
	struct sweep *own = calloc(1, sizeof(*own));
	struct model_drive drive;
	struct port *p = NULL;
	int rc = own ? 0 : -ENOMEM;

	rates.link *= CASE[i].speed;
	rates.flash *= CASE[i].speed;
	if (!rc)
		rc = port_open(&p, &at, &rates, SETS);
	if (!rc) {
		drive = port_drive(p);
		rc = sweep(own, true, 1, &drive);
	}
	if (!rc && device_counters(port_device(p))->refusals)
		rc = -ERANGE; /* the store is larger than the flash */
	if (!rc) {
		verdicts(e, CASE[i].name, offload, own);
		say_wrong(e, p, CASE[i].line_log);
		fflush(stdout);
	}
	if (p)
		port_close(p);
	free(own);
	return rc;
}

/* So many neighbours are read, or written, some at a time, in GB/s. */
static int by_lines(struct exp *e, const struct point *at, bool write, double *rate)
{
	struct core_io io[READS] = { 0 };
	struct model_drive drive;
	const struct port_traffic *t;
	struct port *p;
	uint64_t now = 0;
	int rc = port_open(&p, at, &e->rates, SETS);

	if (rc)
		return rc;
	drive = port_drive(p);
	for (uint32_t i = 0; i < READS + AT_A_TIME; i++) {
		if (i >= AT_A_TIME && !drive.run(drive.arg, UINT64_MAX, &now))
			rc = -EIO;
		if (i >= READS)
			continue;
		io[i].offset = (uint64_t)i * READ_BYTES;
		io[i].bytes = READ_BYTES;
		io[i].write = write;
		drive.submit(drive.arg, now, &io[i]);
	}
	t = port_traffic(p, write);
	*rate = (double)t->bytes / (double)t->busy * e->rates.clock_mhz / 1e3;
	port_close(p);
	return rc;
}

/* Requests of whole lines are judged beside the same flit by flit, which the RTL runs too. */
static int check(struct exp *e)
{
	const struct point at = { .windows = true, .line_log = 6, .mshrs = e->mshrs,
				  .slots = e->slots, .cleaned = true };
	struct exp_setting set = point_setting(&at, &e->rates, SETS);
	struct row r = { .figure = "reads by whole lines, windows, lines of 4 KiB", .unit = "GB/s",
			 .against = "flit by flit", .goal = "within 5 %" };
	struct clock_outcome o;
	struct clock *c;
	int rc = by_lines(e, &at, false, &r.value);

	if (!rc)
		rc = clock_open(&c, &set, at.mshrs, at.slots);
	if (rc)
		return rc;
	o = clock_run(c, 0, (uint64_t)READS * READ_BYTES / DEVICE_FLIT >> set.line_log);
	clock_close(c);
	r.against_value = point_rate(&e->rates, &o);
	r.ratio = r.value / r.against_value;
	r.met = r.ratio > 0.95 && r.ratio < 1.05;
	exp_row(e, &r);
	printf("  %-60s %.2f GB/s, %.3f of %s: goal %s %s\n", r.figure, r.value, r.ratio,
	       r.against, r.goal, r.met ? "met" : "missed");
	return 0;
}

/* What is written anew, with nothing beside it. */
static int written(struct exp *e, uint32_t line_log)
{
	const struct point at = { .windows = true, .line_log = line_log, .mshrs = e->mshrs,
				  .cleaned = true };
	char text[64];
	struct row r = { .figure = text, .unit = "GB/s", .against = "the constant's 12",
			 .against_value = 12, .goal = "none" };
	int rc = by_lines(e, &at, true, &r.value);

	if (rc)
		return rc;
	r.ratio = r.value / r.against_value;
	snprintf(text, sizeof(text), "writes alone, lines of %u KiB", (64u << line_log) >> 10);
	exp_row(e, &r);
	printf("  %-60s %.2f GB/s, %.3f of %s\n", text, r.value, r.ratio, r.against);
	return 0;
}

void exp_turns(struct exp *e)
{
	struct sweep *s = calloc(2, sizeof(*s));
	int rc = s ? sweep(&s[0], false, 1, NULL) : -ENOMEM;

	printf("c: ITME's turn sweep, the service's core before this device (%u MiB of DRAM)\n",
	       1u << (SETS - 4));
	if (!rc)
		rc = check(e);
	if (!rc)
		rc = written(e, 10);
	if (!rc)
		rc = written(e, 6);
	if (!rc)
		rc = sweep(&s[1], true, 1, NULL);
	if (!rc)
		verdicts(e, "constant 18 GB/s", &s[0], &s[1]);
	for (uint32_t i = 0; !rc && i < CASES; i++)
		rc = one(e, i, &s[0]);
	free(s);
	if (rc)
		e->error = rc;
}
