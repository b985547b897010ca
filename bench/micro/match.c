/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking keys up: a batch of 8,192 random keys, and one key at a time, in contexts of 10^4 to 10^7
 * blocks, measured in steps of a pointer chase over as much memory as the index takes. Look-up is
 * flat when its price in such steps does not grow with the number of blocks.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/micro/chase.h"
#include "bench/micro/pool.h"
#include "libtier/base/cleanup.h"

#define BATCH 8192u
#define BATCHES 8u
/* Not counted: the smallest index, which all others are held against, is in no cache before. */
#define WARM_ROUNDS 8u

struct keys {
	tier_key *key;
	struct tier_found *found;
	uint64_t random;
	uint64_t zero;
};

static void choose(struct keys *k, uint32_t count, uint32_t among)
{
	for (uint32_t i = 0; i < count; i++)
		pool_key(&k->key[i], bench_random_below(&k->random, among));
}

/* Nanoseconds for a batch of random keys; < 0 = one was not there. */
static double run_batch(struct pool *p, struct keys *k)
{
	uint64_t from;
	int64_t n;

	choose(k, BATCH, p->spec.blocks);
	from = time_now_ns();
	n = tier_match(p->c, k->key, BATCH, k->found);
	from = time_now_ns() - from;
	return n == BATCH ? (double)from : -1;
}

/* The same one by one, each after the last one's answer. */
static double run_singles(struct pool *p, struct keys *k)
{
	uint64_t from, value = 0, misses = 0;

	choose(k, BATCH, p->spec.blocks);
	from = time_now_ns();
	for (uint32_t i = 0; i < BATCH; i++) {
		misses += tier_match(p->c, &k->key[i + (value & k->zero)], 1, k->found) != 1;
		value = k->found[0].block.slot;
	}
	from = time_now_ns() - from;
	return misses ? -1 : (double)from;
}

struct outcome {
	struct sample batch, single, chase;
	char against[BENCH_TEXT];
};

/* All three in turn, so that whatever else goes on in the machine meets all of them. */
static int run_round(struct pool *p, struct keys *k, struct chase *c, struct outcome *to)
{
	double batch = 0, single = 0, chase = 0;

	for (uint32_t i = 0; i < BATCHES; i++) {
		double one = run_batch(p, k), other = run_singles(p, k);

		if (one < 0 || other < 0)
			return -ENODATA;
		batch += one;
		single += other;
		chase += chase_run(c, BATCH) * BATCH;
	}
	sample_add(&to->batch, batch / (BATCH * BATCHES));
	sample_add(&to->single, single / (BATCH * BATCHES));
	sample_add(&to->chase, chase / (BATCH * BATCHES));
	return 0;
}

static int measure(struct bench *b, struct pool *p, struct keys *k, struct outcome *out)
{
	uint64_t index = 0;
	struct chase c;
	int error = pool_index_bytes(p, &index);

	/* A look-up touches a block's line and its share of the buckets'. */
	if (!error)
		error = chase_open(&c, index, p->spec.blocks + p->spec.blocks / 5,
				   huge_share("/memfd:tier-index-") > 0.5);
	if (error)
		return error;
	chase_describe(&c, out->against, sizeof(out->against));
	for (uint32_t round = 0; round < WARM_ROUNDS + b->rounds && !error; round++) {
		struct outcome scratch = { .batch.count = 0 };

		error = run_round(p, k, &c, round < WARM_ROUNDS ? &scratch : out);
	}
	chase_close(&c);
	return error;
}

static int measure_size(struct bench *b, uint32_t blocks, struct outcome *out)
{
	const struct pool_spec spec = {
		.name = "match",
		.pages_per_block = 1,
		.page_bytes = 512,
		.page_align = 512,
		.blocks = blocks,
	};
	tier_key *key CLEANUP_FREE = calloc(BATCH, sizeof(*key));
	struct tier_found *found CLEANUP_FREE = calloc(BATCH, sizeof(*found));
	struct keys k = { .key = key, .found = found, .random = UINT64_C(0xe7037ed1a0b428db) };
	struct pool p;
	int error = key && found ? pool_open(&p, b, &spec) : -ENOMEM;

	__asm__ volatile("" : "+r"(k.zero));
	if (error)
		return error;
	error = measure(b, &p, &k, out);
	pool_close(&p);
	return error ? bench_failed("match", error) : 0;
}

static int points(struct bench *b, uint32_t blocks, const struct outcome *at)
{
	static const struct bench_plot plot = { "match", "blocks", "ns a key" };
	int error = bench_point(b->results, &plot, "one of 8,192", blocks,
				sample_summarise(&at->batch).median);

	if (!error)
		error = bench_point(b->results, &plot, "one key", blocks,
				    sample_summarise(&at->single).median);
	return error ? error : bench_point(b->results, &plot, "a step of the chase", blocks,
					   sample_summarise(&at->chase).median);
}

static int judge_size(struct bench *b, const char *size, const struct outcome *small,
		      const struct outcome *at)
{
	char figure[2][BENCH_TEXT];
	const struct bench_figure batch = {
		"match", figure[0], "ns/key", at->against, { BENCH_RATIO_AT_MOST, 0.3 }
	};
	const struct bench_figure flat = {
		"match", figure[1], "chases", "the same of 10^4", { BENCH_RATIO_AT_MOST, 1.25 }
	};
	struct sample in_chases = sample_ratio(&at->single, &at->chase);
	struct sample in_chases_small = sample_ratio(&small->single, &small->chase);
	int error;

	snprintf(figure[0], BENCH_TEXT, "8,192 keys of %s", size);
	snprintf(figure[1], BENCH_TEXT, "look-up of one key of %s", size);
	error = bench_judge(b->results, &batch, &at->batch, &at->chase);
	if (!error)
		error = bench_judge(b->results, &flat, &in_chases, &in_chases_small);
	return error;
}

int bench_match(struct bench *b)
{
	static const struct {
		uint32_t blocks;
		const char *text;
	} sizes[] = {
		{ 10000, "10^4" }, { 100000, "10^5" }, { 1000000, "10^6" }, { 10000000, "10^7" }
	};
	static const struct bench_figure large = { "match",
						   "look-up of one key of 10^7",
						   "chases",
						   "the same of 10^4",
						   { BENCH_RATIO_AT_MOST, 1.25 } };
	struct outcome small = { .batch.count = 0 };
	int error;

	bench_say("match: %u rounds of each size come first and do not count", WARM_ROUNDS);
	error = measure_size(b, sizes[0].blocks, &small);
	if (!error)
		error = points(b, sizes[0].blocks, &small);
	for (uint32_t i = 1; i < (b->quick ? 3u : 4u) && !error; i++) {
		struct outcome out = { .batch.count = 0 };

		/* 512 bytes a page, index, peer, and the daemon's own. */
		if (bench_memory_available() < (uint64_t)sizes[i].blocks * 1000)
			return bench_judge_missing(b->results, &large, "needs 10 GB of memory");
		error = measure_size(b, sizes[i].blocks, &out);
		if (!error)
			error = judge_size(b, sizes[i].text, &small, &out);
		if (!error)
			error = points(b, sizes[i].blocks, &out);
	}
	return error;
}
