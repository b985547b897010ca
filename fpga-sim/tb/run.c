/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build/fpga/bench: runs the device through phases in lock-step with its model, and says what was
 * compared. The fixed phases each have one purpose; the random ones come of the seed. Exit status 1
 * when anything differed.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

/* Stated, not placed: about what vendors' CXL cores give to 512 bits of x8 Gen5. */
#define CLOCK_MHZ 400.0
#define PHASE_CYCLES 600000u  /* of a phase: then nothing more is asked */
#define RANDOM_CYCLES 150000u /* ... of a random one, which is one of many */

static const struct phase FIXED[] = {
	/* lines come, 4 KiB each, and all is in DRAM: a flit a cycle */
	{ .name = "fills", .requests = 6000, .sets = 64, .tags = 8, .dram_cycles = 40,
	  .flash_least = 100, .flash_most = 400 },
	{ .name = "hits", .full_rate = true, .requests = 200000, .sets = 64, .tags = 8,
	  .dram_cycles = 40, .flash_least = 100, .flash_most = 400 },
	/* reads and writes, evictions, all kinds of back-pressure */
	{ .name = "mixed", .requests = 150000, .sets = 32, .tags = 40, .pattern = PATTERN_HOT,
	  .dirty_most = 60, .clean_wait = 2000, .writes = 300, .poisons = 20, .bads = 5,
	  .gaps = 200, .stalls = 200, .dram_cycles = 30,
	  .flash_least = 20, .flash_most = 600 },
	/* few sets, most requests miss, half of the victims are dirty, the drive fails */
	{ .name = "faults", .requests = 60000, .sets = 3, .tags = 48, .writes = 500, .poisons = 50,
	  .gaps = 100, .stalls = 300, .dram_cycles = 60, .flash_least = 1, .flash_most = 60,
	  .errors = 200, .doubles = 200, .slow = 20 },
	/* the drive is late, forgets to answer, and has room for few commands */
	{ .name = "lost", .requests = 20000, .sets = 16, .tags = 40, .writes = 400, .stalls = 100,
	  .poisons = 20, .dram_cycles = 20, .flash_least = 20, .flash_most = 200, .slow = 50,
	  .losts = 50, .timeout = 300, .errors = 100, .doubles = 50, .drive_room = 6,
	  .dram_room = 4, .windows = 2, .dirty_most = 20, .clean_wait = 300 },
	/* who is offered something says so late */
	{ .name = "late", .requests = 40000, .sets = 8, .tags = 30, .writes = 400, .poisons = 20,
	  .stalls = 600, .late_ready = true, .dram_cycles = 10, .flash_least = 1, .flash_most = 200,
	  .errors = 20, .doubles = 20 },
	/* windows beside requests, most of them into windows; the drive fails now and then */
	{ .name = "windows", .requests = 60000, .sets = 64, .tags = 40, .writes = 150,
	  .poisons = 20, .gaps = 300, .stalls = 100, .dram_cycles = 30, .flash_least = 20,
	  .flash_most = 600, .errors = 250, .doubles = 50, .windows = 4 },
	/* one stream of twice the DRAM's sets, 70 us for a miss (Samsung CMM-H) */
	{ .name = "stream", .requests = 6400, .sets = 1024, .tags = 32, .pattern = PATTERN_STREAM,
	  .dram_cycles = 40, .flash_least = 28000, .flash_most = 28000 },
};

struct options {
	uint64_t seed, random;
	const char *wave, *only;
	uint8_t bug;
	bool quiet, cover;
	const char *experiment, *serve;
};

/* A drive that fails at its start stays out, whatever way it fails; the other one starts. */
static int run_sick(const struct options *o)
{
	uint32_t differences = 0;

	for (uint32_t sick = 1; sick <= drives_sickest() && differences == 0; sick++) {
		struct bench *b = NULL;
		int rc = bench_open(&b, NULL, o->bug, sick);

		if (!rc && nvme_started(b->nvme) != (1u << (nvme_drives(b->nvme) - 1)) - 1)
			bench_differ(b, "a drive that fails (%u) has started", sick);
		differences = rc ? 1 : b->differences;
		bench_close(b);
	}
	return differences > 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct phase random_phase(struct bench *b)
{
	static const uint32_t LATENCY[] = { 1, 10, 100, 1000 };
	struct phase p = { .name = "random", .random = true, .requests = 30000 };

	p.pattern = (enum pattern)(bench_random(b) % 3);
	p.sets = 1u << bench_random(b) % 7;
	p.tags = 1 + (uint32_t)bench_random(b) % 64;
	p.writes = (uint32_t)bench_random(b) % 1000;
	p.poisons = bench_chance(b, 500) ? 30 : 0;
	p.bads = bench_chance(b, 300) ? 20 : 0;
	p.gaps = bench_chance(b, 500) ? (uint32_t)bench_random(b) % 900 : 0;
	p.stalls = bench_chance(b, 500) ? (uint32_t)bench_random(b) % 800 : 0;
	p.late_ready = bench_chance(b, 200);
	p.dram_cycles = (uint32_t)bench_random(b) % 80;
	p.flash_least = LATENCY[bench_random(b) % 4];
	p.flash_most = p.flash_least * (1 + (uint32_t)bench_random(b) % 4);
	p.errors = bench_chance(b, 300) ? (uint32_t)bench_random(b) % 500 : 0;
	p.doubles = bench_chance(b, 300) ? (uint32_t)bench_random(b) % 300 : 0;
	if (bench_chance(b, 300)) {
		p.timeout = p.flash_most / 2 + (uint32_t)bench_random(b) % (2 * p.flash_most) + 8;
		p.losts = (uint32_t)bench_random(b) % 100;
		p.slow = (uint32_t)bench_random(b) % 100;
	}
	p.dirty_most = bench_chance(b, 500) ? 1 + (uint32_t)bench_random(b) % 64 : 0;
	p.clean_wait = bench_chance(b, 500) ? 20000 : LATENCY[bench_random(b) % 4];
	p.drive_room = bench_chance(b, 300) ? 1 + (uint32_t)bench_random(b) % 8 : 0;
	p.dram_room = bench_chance(b, 300) ? 1 + (uint32_t)bench_random(b) % 8 : 0;
	p.windows = bench_chance(b, 400) ? 1 + (uint32_t)bench_random(b) % 4 : 0;
	if (p.windows && p.poisons)
		p.poisons = 150;
	return p;
}

static void set(struct bench *b, uint32_t offset, uint64_t *of_model, uint64_t value)
{
	b->setting = of_model; /* of the model, in the cycle in which the RTL has it */
	bench_set_register(b, offset, value);
	b->setting = NULL;
}

static void run_phase(struct bench *b, const struct phase *p)
{
	uint64_t tries = bench_random(b) % 5;
	uint64_t end = b->cycle + (p->random ? RANDOM_CYCLES : PHASE_CYCLES);
	uint64_t stage_most = bench_chance(b, 500) ? 0xffffffff :
						     0x01010101 + (bench_random(b) & 0x03030303);
	uint64_t patience = BENCH_PATIENCE + (tries + 1) * 32 * p->flash_most;

	b->phase = *p;
	b->phase.drive_room = p->drive_room ? p->drive_room : BENCH_FLASH / 2;
	b->phase.dram_room = p->dram_room ? p->dram_room : BENCH_DRAM;
	b->asked = b->answered = b->stream_at = 0;
	b->last_decision = b->cycle;
	set(b, DEVICE_REG_FLASH_TRIES, &device_settings(b->model)->flash_tries, tries);
	set(b, DEVICE_REG_FLASH_TIMEOUT, &device_settings(b->model)->flash_timeout, p->timeout);
	set(b, DEVICE_REG_CLEAN_WAIT, &device_settings(b->model)->clean_wait, p->clean_wait);
	b->clean_since = b->starves_since = b->cycle;
	set(b, DEVICE_REG_DIRTY_MOST, &device_settings(b->model)->dirty_most,
	    p->dirty_most ? p->dirty_most : UINT32_MAX);
	set(b, DEVICE_REG_STAGE_MOST, &device_settings(b->model)->stage_most, stage_most);
	while ((b->answered < b->asked || b->asked < b->phase.requests || !stream_rests(b)) &&
	       b->differences < BENCH_DIFFERENCES) {
		bench_cycle(b);
		if (b->phase.windows && bench_chance(b, 10))
			stream_step(b);
		/* long latencies: no more of them */
		if (b->cycle >= end && b->phase.requests > b->asked)
			b->phase.requests = b->asked;
		if (b->cycle - b->last_decision > patience) {
			bench_differ(b, "no decision in %llu cycles; %llu requests are in the "
				     "device", (unsigned long long)patience,
				     (unsigned long long)(b->asked - b->answered));
			return;
		}
	}
	/* doubled answers may still come; no more is cleaned */
	set(b, DEVICE_REG_DIRTY_MOST, &device_settings(b->model)->dirty_most, UINT32_MAX);
	while ((b->drives.orders > 0 || device_cleaning(b->model) > 0) && b->differences == 0)
		bench_cycle(b);
}

/* A look-up a cycle, all from DRAM: what is left are registers before, and latency behind. */
static void check_rate(struct bench *b, uint64_t cycles)
{
	if (b->phase.full_rate && cycles > b->answered + b->answered / 100)
		bench_differ(b, "%llu look-ups took %llu cycles", (unsigned long long)b->answered,
			     (unsigned long long)cycles);
}

static void phase_line(struct bench *b, const char *name, uint64_t cycles,
		       const struct device_counters *was)
{
	const struct device_counters *now = device_counters(b->model);
	uint64_t misses = now->misses - was->misses;

	if (!b->quiet)
		printf("  %-8s %8llu requests %10llu cycles %6.2f GB/s %8llu misses %7llu dirty "
		       "evictions\n", name, (unsigned long long)b->answered,
		       (unsigned long long)cycles,
		       (double)b->answered * 64 / (double)cycles * CLOCK_MHZ / 1e3,
		       (unsigned long long)misses,
		       (unsigned long long)(now->dirty_evictions - was->dirty_evictions));
	if (!b->quiet && b->phase.windows)
		printf("  %8s %8llu units %llu failed, %llu staged reads, lines: %llu left to the "
		       "cache, %llu lost to writes\n", "",
		       (unsigned long long)(now->units_taken - was->units_taken),
		       (unsigned long long)(now->units_broken - was->units_broken),
		       (unsigned long long)(now->staged_reads - was->staged_reads),
		       (unsigned long long)(now->skips - was->skips),
		       (unsigned long long)(now->drops - was->drops));
}

/* All phases; the number of requests. */
static uint64_t run_all(struct bench *b, const struct options *o)
{
	size_t fixed = sizeof(FIXED) / sizeof(*FIXED);
	uint64_t requests = 0;

	for (uint64_t i = 0; i < fixed + o->random && b->differences == 0; i++) {
		struct phase p = i < fixed ? FIXED[i] : random_phase(b);
		struct device_counters was = *device_counters(b->model);
		uint64_t begin = b->cycle;

		if (o->only && strcmp(o->only, p.name))
			continue;
		run_phase(b, &p);
		check_rate(b, b->cycle - begin);
		phase_line(b, p.name, b->cycle - begin, &was);
		requests += b->answered;
		if (p.errors || p.doubles || p.losts)
			b->beside_faults += b->answered;
		if (b->differences == 0)
			lockstep_end(b);
	}
	return requests;
}

static int usage(const char *name)
{
	fprintf(stderr, "usage: %s [--seed N] [--random PHASES] [--only NAME] [--wave FILE] "
		"[--bug N] [--quiet] [--cover]\n"
		"       [--experiment cliff|cleaned|clean|windows:SIZE] [--serve RING]\n", name);
	return 2;
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option LONG[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "random", required_argument, NULL, 'r' },
		{ "only", required_argument, NULL, 'o' },
		{ "wave", required_argument, NULL, 'w' },
		{ "bug", required_argument, NULL, 'b' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "experiment", required_argument, NULL, 'e' },
		{ "cover", no_argument, NULL, 'c' },
		{ "serve", required_argument, NULL, 'v' },
		{ 0 },
	};
	int c;

	*o = (struct options){ .seed = 1, .random = 12 };
	while ((c = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
		switch (c) {
		case 's': o->seed = strtoull(optarg, NULL, 0); break;
		case 'r': o->random = strtoull(optarg, NULL, 0); break;
		case 'o': o->only = optarg; break;
		case 'w': o->wave = optarg; break;
		case 'b': o->bug = (uint8_t)strtoul(optarg, NULL, 0); break;
		case 'q': o->quiet = true; break;
		case 'c': o->cover = true; break;
		case 'v': o->serve = optarg; break;
		case 'e': o->experiment = optarg; break;
		default: return usage(argv[0]);
		}
	}
	return optind < argc ? usage(argv[0]) : 0;
}

static void print_device(const struct bench *b)
{
	uint32_t kib = (DEVICE_FLIT << b->shape.line_log) >> 10;

	printf("fpga: %u sets x %u ways x %u KiB (%u MiB of DRAM, %llu MiB of flash), %u miss "
	       "registers, %u slots;\nfpga: GB/s at %.0f MHz, which is stated, not placed\n",
	       1u << b->shape.sets_log, DEVICE_WAYS, kib,
	       (kib * DEVICE_WAYS << b->shape.sets_log) >> 10,
	       (unsigned long long)(device_capacity(b->model) >> 20), b->shape.mshrs, b->slots,
	       CLOCK_MHZ);
}

int main(int argc, char **argv)
{
	struct options o;
	struct bench *b = NULL;
	uint64_t requests;
	double begin = seconds();
	int rc = parse(&o, argc, argv);

	if (rc)
		return rc;
	if (!o.only && !o.experiment && !o.serve && run_sick(&o))
		return 1;
	rc = bench_open(&b, o.wave, o.bug, 0);
	if (rc) {
		fprintf(stderr, "fpga: the bench cannot start: %s%s\n", strerror(-rc),
			o.wave ? " (waves need a build with WAVE=1)" : "");
		bench_close(b);
		return 2;
	}
	b->quiet = o.quiet;
	b->rng ^= o.seed * 0xd1342543de82ef95u;
	if (!o.quiet)
		print_device(b);
	if (o.experiment || o.serve) {
		rc = o.serve ? serve_run(b, o.serve) : experiment_run(b, o.experiment);
		bench_close(b);
		return rc;
	}
	requests = run_all(b, &o);
	begin = seconds() - begin;
	printf("fpga: seed %llu: %llu transactions, %llu cycles, %.2f GB/s at %.0f MHz, %.0f "
	       "transactions a wall second, %u mismatches\n", (unsigned long long)o.seed,
	       (unsigned long long)requests, (unsigned long long)b->cycle,
	       (double)requests * 64 / (double)b->cycle * CLOCK_MHZ / 1e3, CLOCK_MHZ,
	       (double)requests / begin, b->differences);
	printf("fpga: seed %llu: %llu misses, %llu dirty evictions, %llu units, %llu transactions "
	       "beside faults\n",
	       (unsigned long long)o.seed,
	       (unsigned long long)device_counters(b->model)->misses,
	       (unsigned long long)device_counters(b->model)->dirty_evictions,
	       (unsigned long long)device_counters(b->model)->units_taken,
	       (unsigned long long)b->beside_faults);
	if (o.cover)
		cover_print(b);
	rc = b->differences > 0;
	bench_close(b);
	return rc;
}
