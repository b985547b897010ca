/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build/fpga/exp: the experiments (docs/fpga-experiments.md) in the golden model with its clock, by
 * default at ITME's size; here a and b. Prints tables; writes rows in the form of bench/results,
 * and the curves for `plot`.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exp.h"

#define SIZES 7u
#define MSHRS 6u
#define CAUSES 7u

static const double SIZE[SIZES] = { 0.5, 0.75, 1, 1.25, 1.5, 2, 4 };

void exp_row(struct exp *e, const struct row *r)
{
	if (!e->rows)
		return;
	fprintf(e->rows, "%s\n{\"workload\": \"device\", ", e->count++ ? "," : "[");
	if (!strcmp(r->goal, "none"))
		fprintf(e->rows, "\"note\": \"%s: %.6g %s, %.6g of %s\"}", r->figure, r->value,
			r->unit, r->ratio, r->against);
	else
		fprintf(e->rows, "\"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", "
			"\"against\": \"%s\", \"against_value\": %.6g, \"ratio\": %.6g, "
			"\"goal\": \"%s\", \"verdict\": \"%s\", \"spread\": [%.6g, %.6g]}",
			r->figure, r->value, r->unit, r->against, r->against_value, r->ratio,
			r->goal, r->met ? "met" : "short", r->ratio, r->ratio);
}

void exp_value(struct exp *e, const char *plot, const char *curve, double x, double y)
{
	if (e->curves)
		fprintf(e->curves, "%s|%s|%g|%.4f\n", plot, curve, x, y);
}

/* One curve over all sizes, printed and kept. */
static void put_curve(struct exp *e, const char *plot, const char *name, const double *rate)
{
	printf("  %-46s", name);
	for (uint32_t i = 0; i < SIZES; i++)
		printf(" %6.2f", rate[i]);
	printf("\n");
	for (uint32_t i = 0; i < SIZES; i++)
		exp_value(e, plot, name, SIZE[i], rate[i]);
	fflush(stdout);
}

static void head(const char *title)
{
	printf("%s\n  %-46s", title, "stream, in DRAMs:");
	for (uint32_t i = 0; i < SIZES; i++)
		printf(" %6.4g", SIZE[i]);
	printf("   GB/s\n");
}

static struct point_outcome one(struct exp *e, struct point p)
{
	struct point_outcome o = { 0 };
	int rc;

	p.slots = e->slots;
	rc = point_pieces(&p, &e->rates, e->sets_log, &o);
	if (rc && !e->error)
		e->error = rc;
	return o;
}

static void curve(struct exp *e, struct point p, double *rate)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		struct point_outcome o;

		p.size = SIZE[i];
		o = one(e, p);
		rate[i] = point_rate(&e->rates, &o.by_clock);
	}
}

static double highest_beyond(const double *rate)
{
	double most = 0;

	for (uint32_t i = 0; i < SIZES; i++) {
		if (SIZE[i] >= 1.5 && rate[i] > most)
			most = rate[i];
	}
	return most;
}

/* Beyond DRAM, at its best of 1.5 to 4 DRAMs, beside half of it. */
static void judge_cliff(struct exp *e, const char *name, const double *rate, bool judged)
{
	char text[160];
	struct row r = { .figure = text, .unit = "GB/s", .against = "half of DRAM",
			 .goal = judged ? "ratio <= 0.3" : "none", .against_value = rate[0],
			 .value = highest_beyond(rate) };

	r.ratio = r.value / r.against_value;
	r.met = r.ratio <= 0.3;
	snprintf(text, sizeof(text), "a stream beyond DRAM (best of 1.5x to 4x), LRU, %s", name);
	exp_row(e, &r);
	printf("  %-46s %.3f of before%s\n", "", r.ratio,
	       !judged ? "" : r.met ? ": goal <= 0.3 met" : ": goal <= 0.3 missed");
}

static void sweep(struct exp *e)
{
	static const uint32_t many[MSHRS] = { 16, 32, 64, 128, 256, 512 };
	double rate[SIZES];
	char name[64];

	head("a: one stream through the cache; miss registers");
	for (uint32_t i = 0; i < MSHRS; i++) {
		curve(e, (struct point){ .mshrs = many[i], .dirty = true, .scattered = true },
		      rate);
		snprintf(name, sizeof(name), "%u miss registers", many[i]);
		put_curve(e, "cliff", name, rate);
		judge_cliff(e, name, rate, many[i] <= 64);
	}
}

static void causes(struct exp *e)
{
	static const struct {
		const char *name;
		bool registers, dirty, scattered, cleaned;
	} cause[CAUSES] = {
		{ "all causes", true, true, true, false },
		{ "dirty lines cleaned ahead", true, true, true, true },
		{ "without dirty lines", true, false, true, false },
		{ "without conflicts in sets", true, true, false, false },
		{ "with 512 registers", false, true, true, false },
		{ "512 registers, no dirty lines", false, false, true, false },
		{ "none of the causes", false, false, false, false },
	};
	double rate[SIZES];
	char name[64];

	head("a: its cause, each taken away in turn");
	for (uint32_t i = 0; i < CAUSES; i++) {
		curve(e, (struct point){ .mshrs = cause[i].registers ? e->mshrs : 512,
					 .dirty = cause[i].dirty, .cleaned = cause[i].cleaned,
					 .scattered = cause[i].scattered }, rate);
		snprintf(name, sizeof(name), "%s", cause[i].name);
		put_curve(e, "causes", name, rate);
		judge_cliff(e, name, rate, false);
	}
}

static void removal(struct exp *e)
{
	double rate[SIZES], most = e->rates.link < e->rates.flash ? e->rates.link : e->rates.flash;
	char text[96];

	head("b: the same stream by windows");
	curve(e, (struct point){ .mshrs = e->mshrs, .windows = true }, rate);
	put_curve(e, "windows", "by windows", rate);
	for (uint32_t i = 0; i < SIZES; i++) {
		struct row r = { .figure = text, .unit = "GB/s", .against = "min(link, flash)",
				 .goal = "ratio >= 0.9", .value = rate[i], .against_value = most,
				 .ratio = rate[i] / most, .met = rate[i] >= 0.9 * most };

		snprintf(text, sizeof(text), "a stream of %g DRAMs by windows", SIZE[i]);
		exp_row(e, &r);
		printf("  %-46s %.2f DRAMs: %.3f of min(link, flash)%s\n", "", SIZE[i], r.ratio,
		       r.met ? "" : ": goal >= 0.9 missed");
	}
	curve(e, (struct point){ .mshrs = e->mshrs }, rate);
	put_curve(e, "windows", "through the cache, clean", rate);
	curve(e, (struct point){ .mshrs = e->mshrs, .dirty = true, .scattered = true }, rate);
	put_curve(e, "windows", "through the cache, all causes", rate);
}

static double lost(const struct point_outcome *o)
{
	return 100 * (o->alone - (double)o->by_clock.random_hits / (double)o->by_clock.random);
}

static void beside(struct exp *e)
{
	struct point p = { .mshrs = e->mshrs, .random = 50, .size = 2, .windows = true };
	struct point_outcome windows = one(e, p), cache;
	struct row r = { .figure = "hits that a random reader loses beside a stream by windows",
			 .unit = "points", .against = "beside the same stream through the cache",
			 .goal = "value <= 1" };

	p.windows = false;
	cache = one(e, p);
	if (e->error)
		return;
	r.value = lost(&windows);
	r.against_value = lost(&cache);
	r.ratio = r.value / r.against_value;
	r.met = r.value <= 1;
	exp_row(e, &r);
	printf("b: a random reader of 1.25 DRAMs, 5 %% of requests, beside a stream of 2 DRAMs:\n"
	       "  alone %.2f %% hits; %.2f points fewer by windows (%llu requests)%s, %.2f through "
	       "the cache (%llu)\n", 100 * windows.alone, r.value,
	       (unsigned long long)windows.by_clock.random, r.met ? "" : ": goal <= 1 missed",
	       r.against_value, (unsigned long long)cache.by_clock.random);
}

static void rated(struct exp *e, const char *what, double link, double flash, double clock,
		  uint32_t units)
{
	struct point_rates was = e->rates;
	struct point p = { .mshrs = e->mshrs, .size = 2, .dirty = true, .scattered = true };
	struct point_outcome cache, windows;
	char text[96];
	struct row r = { .figure = text, .unit = "GB/s", .against = "min(link, flash)",
			 .goal = "ratio >= 0.9" };

	e->rates.link *= link;
	e->rates.flash *= flash;
	e->rates.clock_mhz *= clock;
	cache = one(e, p);
	windows = one(e, (struct point){ .mshrs = e->mshrs, .size = 2, .windows = true,
					 .units = units });
	r.value = point_rate(&e->rates, &windows.by_clock);
	r.against_value = e->rates.link < e->rates.flash ? e->rates.link : e->rates.flash;
	r.ratio = r.value / r.against_value;
	r.met = r.ratio >= 0.9;
	snprintf(text, sizeof(text), "a stream of 2 DRAMs by windows, %s", what);
	exp_row(e, &r);
	printf("  %-24s by windows %5.2f, %.3f of min(link, flash)%s; through the cache %5.2f "
	       "GB/s\n",
	       what, r.value, r.ratio, r.met ? "" : ": goal >= 0.9 missed",
	       point_rate(&e->rates, &cache.by_clock));
	e->rates = was;
}

static void rates(struct exp *e)
{
	printf("a, b: with link and flash half and twice as fast\n");
	rated(e, "link x 0.5", 0.5, 1, 1, 0);
	rated(e, "link x 2", 2, 1, 1, 0);
	rated(e, "flash x 0.5", 1, 0.5, 1, 0);
	rated(e, "flash x 2", 1, 2, 1, 0);
	rated(e, "both x 2", 2, 2, 1, 0);
	rated(e, "both x 2, 64 units", 2, 2, 1, 64); /* what holds the last one back: not these */
	rated(e, "both and the clock x 2", 2, 2, 2, 0);
}

static int usage(const char *name)
{
	fprintf(stderr,
		"usage: %s [--part N] [--mshrs N] [--slots N] [--link GB/S] [--flash GB/S]\n"
		"       [--latency US] [--dirty PER-MILLE] [--json FILE] [--curves FILE] "
		"[a|causes|b|beside|rates|c|d|e|f...]\n"
		"--part N: a device of 1/N of ITME's 32 GB (a power of two, default 1)\n", name);
	return 2;
}

static int take(struct exp *e, int argc, char **argv)
{
	static const struct option LONG[] = {
		{ "part", 1, NULL, 'p' },    { "mshrs", 1, NULL, 'm' }, { "slots", 1, NULL, 's' },
		{ "link", 1, NULL, 'l' },    { "flash", 1, NULL, 'f' }, { "latency", 1, NULL, 't' },
		{ "dirty", 1, NULL, 'd' },   { "json", 1, NULL, 'j' },  { "curves", 1, NULL, 'c' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
		double value = optarg ? strtod(optarg, NULL) : 0;

		switch (c) {
		case 'p':
			for (uint32_t n = (uint32_t)value; n > 1; n /= 2)
				e->sets_log--;
			break;
		case 'm': e->mshrs = (uint32_t)value; break;
		case 's': e->slots = (uint32_t)value; break;
		case 'l': e->rates.link = value; break;
		case 'f': e->rates.flash = value; break;
		case 't': e->rates.latency = value; break;
		case 'd': e->rates.dirty = value; break;
		case 'j': e->rows = fopen(optarg, "w"); break;
		case 'c': e->curves = fopen(optarg, "w"); break;
		default: return usage(argv[0]);
		}
		if (c != 'j' && c != 'c' && (value < 0 || (value == 0 && c != 'd')))
			return usage(argv[0]);
		if ((c == 'j' && !e->rows) || (c == 'c' && !e->curves)) {
			perror(optarg);
			return 2;
		}
	}
	return e->sets_log < 8 ? usage(argv[0]) : 0;
}

static const struct {
	const char *name;
	void (*run)(struct exp *e);
} PARTS[] = { { "a", sweep }, { "causes", causes }, { "b", removal }, { "beside", beside },
	    { "rates", rates }, { "c", exp_turns },
	    { "d", exp_lines }, { "e", exp_decode }, { "f", exp_demand } };
#define PARTS_COUNT (sizeof(PARTS) / sizeof(PARTS[0]))

int main(int argc, char **argv)
{
	struct exp e = { .rates = point_rates(), .sets_log = 19, .mshrs = 64, .slots = 1024 };
	int rc = take(&e, argc, argv);

	if (rc)
		return rc;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("fpga-exp: the model's clock; %u sets x 16 x 4 KiB = %u MiB of DRAM, %u miss "
	       "registers, %u slots;\nlink %g GB/s, flash %g GB/s and %g us, at %g MHz, which is "
	       "stated, not placed\n", 1u << e.sets_log, 1u << (e.sets_log - 4), e.mshrs, e.slots,
	       e.rates.link, e.rates.flash, e.rates.latency, e.rates.clock_mhz);
	for (uint32_t i = 0; i < PARTS_COUNT; i++) {
		bool wanted = optind == argc;

		for (int k = optind; k < argc; k++)
			wanted |= !strcmp(argv[k], PARTS[i].name);
		if (wanted)
			PARTS[i].run(&e);
	}
	if (e.error)
		fprintf(stderr, "fpga-exp: the model: %s\n", strerror(-e.error));
	if (e.rows) {
		fprintf(e.rows, "%s]\n", e.count ? "\n" : "[");
		fclose(e.rows);
	}
	if (e.curves)
		fclose(e.curves);
	return e.error ? 1 : 0;
}
