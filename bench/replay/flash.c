/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierbench replay, its part with flash: what admission (core/log/dirty.c) saves in writes and
 * costs in hits. The default policy with memory alone, with an NVMe tier to which everything is
 * written, and with one to which the policy admits; bytes are all that went to the device,
 * records and cleaning included, for each block that hits and would not with memory alone.
 */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/replay/replay.h"
#include "tierd/core/unit/policy_ops.h"

#define BLOCK_BYTES ((double)REPLAY_PAGE_BYTES)

static const uint32_t sizes[][2] = { { 1, 10 }, { 5, 25 }, { 10, 50 } }; /* percent: memory, NVMe */
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct flash {
	struct outcome memory, all, admitted;
	char size[2 * REPLAY_SIZE_TEXT + 4]; /* of both tiers, as rows say it */
};

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* Blocks' worth of bytes written for each hit gained. */
static double written(const struct flash *f, const struct outcome *o)
{
	double gained = (double)o->blocks_hit - (double)f->memory.blocks_hit;

	return gained > 0 ? (double)o->device_bytes / BLOCK_BYTES / gained : 0;
}

static void row(const struct flash *f, const char *name, const struct outcome *o)
{
	printf("  %-12s %8.4f %9.4f %12llu %12.0f %12.2f\n", name,
	       percent(o->blocks_hit, o->blocks) / 100, o->flops > 0 ? o->flops_hit / o->flops : 0,
	       (unsigned long long)o->fetched_blocks, (double)o->device_bytes / BLOCK_BYTES,
	       written(f, o));
	fflush(stdout);
}

static int judge(struct bench *b, const struct flash *f)
{
	char bytes[BENCH_TEXT], hits[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "replay", bytes, "blocks", "admit all", { BENCH_RATIO_AT_MOST, 0.9 } },
		{ "replay", hits, "points", "0.5", { BENCH_VALUE_AT_MOST, 0.5 } },
	};
	double lost = percent(f->all.blocks_hit, f->all.blocks) -
		      percent(f->admitted.blocks_hit, f->admitted.blocks);
	int error;

	if (written(f, &f->all) <= 0)
		return 0; /* nothing hits that would not with memory alone: nothing to lose */
	snprintf(bytes, sizeof(bytes), "written to NVMe a hit gained, %.90s", f->size);
	snprintf(hits, sizeof(hits), "hits lost by admission, %s", f->size);
	if (written(f, &f->admitted) > 0)
		error = bench_judge_exact(b->results, &figures[0], written(f, &f->admitted),
					  written(f, &f->all));
	else
		error = bench_judge_missing(b->results, &figures[0], "no hit was gained");
	if (!error)
		error = bench_judge_exact(b->results, &figures[1], lost > 0 ? lost : 0, 0);
	return error;
}

static int run(struct flash *f, const struct prepared *p, const uint32_t size[2])
{
	const uint64_t capacity[2] = { replay_capacity(p->trace->distinct * size[0] / 100),
				       replay_store(p->trace->distinct * size[1] / 100) };
	char of[2][REPLAY_SIZE_TEXT];
	int error = replay_core(&f->memory, p, POLICY_DEFAULT, capacity[0]);

	for (uint32_t i = 0; i < 2; i++)
		replay_size_text(of[i], size[i], capacity[i], p->trace->distinct);
	snprintf(f->size, sizeof(f->size), "%s + %s", of[0], of[1]);
	printf("\n%u %% in memory, %u %% on NVMe: %llu and %llu blocks, %s\n", size[0], size[1],
	       (unsigned long long)capacity[0], (unsigned long long)capacity[1], POLICY_DEFAULT);
	printf("  %-12s %8s %9s %12s %12s %12s\n", "written", "blocks", "compute", "fetched",
	       "blocks out", "a hit gained");
	if (!error) {
		row(f, "no NVMe", &f->memory);
		error = replay_flash(&f->all, p, POLICY_DEFAULT, capacity, true);
	}
	if (!error) {
		row(f, "all", &f->all);
		error = replay_flash(&f->admitted, p, POLICY_DEFAULT, capacity, false);
	}
	if (!error)
		row(f, "admitted", &f->admitted);
	return error;
}

int bench_replay_flash(struct bench *b, const struct prepared *p)
{
	struct flash at[SIZES] = { 0 };
	int error = 0;

	for (uint32_t i = 0; i < SIZES && !error; i++)
		error = run(&at[i], p, sizes[i]);
	if (error)
		return bench_failed("replay", error);
	printf("\n");
	for (uint32_t i = 0; i < SIZES && !error; i++)
		error = judge(b, &at[i]);
	return error;
}
