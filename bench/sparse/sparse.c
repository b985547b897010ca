/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse attention over tiers: a context of which CXL has room for 15 %, the rest on NVMe. Rows:
 * what a hot buffer misses; how often a page is not there when it is needed, and what that costs,
 * where a layer computes as long as an accelerator's (10 ms a token, 57 layers) would with a drive
 * as much slower as this one is than 14 GB/s; bytes read a token, beside the whole context's, and
 * of 16 readers, beside a buffer for each; and that every output is the same, bit for bit.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sparse/cache.h"
#include "bench/sparse/decode.h"
#include "bench/sparse/sparse.h"
#include "bench/sparse/whole.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"

#define WORKLOAD "sparse"
#define BLOCKS 1024u      /* 128 Ki tokens */
#define BLOCKS_FULL 8192u /* 1 Mi */
#define DRIVE 14.0 /* bytes a nanosecond, of the accelerator's host */
#define LAYER_NS (10e6 / 57)
#define ROUND_STEPS 24u
#define WARM_STEPS 200u /* not waited for */
#define CHECK_STEPS 20u
#define READERS 16u
#define READER_STEPS 60u
#define SHARED 0.9
#define SEED 20261124u
#define PROBE_PAGES 1024u
#define WAIT_NS (20 * NS_PER_S)

struct job {
	struct bench *bench;
	struct pool pool;
	struct decode *decode;
	uint64_t layer_ns;
	double whole_bytes; /* read a token, if the whole context comes back for each */
	uint32_t step; /* of the trace, next: none is seen twice */
};

/* ---- what a buffer of twice the chosen misses: no bytes ------------------------------------- */

static int misses_of(const struct selection_trace *t, uint32_t capacity, uint32_t ahead,
		     double *percent)
{
	uint64_t misses = 0, looks = 0;

	for (uint32_t layer = 0; layer < t->spec.layers; layer++)
		for (uint32_t group = 0; group < t->spec.groups; group++) {
			const struct cache_stream s = { t, 0, layer, group };
			int error = cache_misses(&s, capacity, ahead, &misses, &looks);

			if (error)
				return error;
		}
	*percent = 100.0 * (double)misses / (double)looks;
	return 0;
}

static int judge_buffer(struct bench *b, const struct selection_trace *t, uint32_t ahead)
{
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "%", "LRU",
					  { BENCH_VALUE_AT_MOST, 10.5 } };
	double known, lru;
	int error = misses_of(t, 2 * SELECT_TOP, ahead, &known);

	if (!error)
		error = misses_of(t, 2 * SELECT_TOP, 0, &lru);
	snprintf(figure, sizeof(figure), "%s%s: buffer of 2 x 16, %u steps known: misses",
		 select_name(t->spec.kind), t->spec.seed == SEED ? "" : ", new seed", ahead);
	return error ? error : bench_judge_exact(b->results, &row, known, lru);
}

static int measure_buffers(struct bench *b, enum select_kind kind, uint64_t seed)
{
	const struct select_spec spec = { .kind = kind, .blocks = BLOCKS, .layers = DECODE_LAYERS,
					  .groups = DECODE_GROUPS, .readers = 1, .steps = 1000,
					  .seed = seed };
	double lru[3], belady;
	struct selection_trace t;
	int error = select_make(&t, &spec);

	if (error)
		return error;
	for (uint32_t i = 0; i < 3 && !error; i++)
		error = misses_of(&t, SELECT_TOP << i, 0, &lru[i]);
	if (!error)
		error = misses_of(&t, 2 * SELECT_TOP, CACHE_BELADY, &belady);
	if (!error)
		error = bench_note(b->results, WORKLOAD,
				   "%s, seed %llu: LRU of 1, 2, 4 x 16 misses %.1f, %.1f, %.1f %%, "
				   "Belady's of 2 x 16 %.1f %% (published: 30, 13.4, 6.7, 8.2)",
				   select_name(kind), (unsigned long long)seed, lru[0], lru[1],
				   lru[2], belady);
	for (uint32_t ahead = 1; ahead <= 4 && !error; ahead += 3)
		error = judge_buffer(b, &t, ahead);
	select_free(&t);
	return error;
}

/* ---- with a clock ---------------------------------------------------------------------------- */

/* How fast pages come that nobody asked for before: it stands for the drive. */
static int measure_drive(struct job *j)
{
	static const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	struct tier_page *page CLEANUP_FREE = calloc(PROBE_PAGES, sizeof(*page));
	uint64_t random = SEED, from, ns;
	int64_t n;

	if (!page)
		return -ENOMEM;
	for (uint32_t i = 0; i < PROBE_PAGES; i++)
		page[i] = (struct tier_page){
			.block = j->pool.block[bench_random_below(&random, j->pool.spec.blocks)],
			.page = bench_random_below(&random, DECODE_PAGES),
		};
	from = time_now_ns();
	n = tier_fetch_pages(j->pool.c, page, PROBE_PAGES, &ask);
	ns = time_now_ns() - from;
	if (n != PROBE_PAGES)
		return bench_failed("sparse: fetch", n < 0 ? (int)n : -ENODATA);
	j->layer_ns = (uint64_t)(LAYER_NS * DRIVE * (double)ns /
				 ((double)PROBE_PAGES * DECODE_PAGE_BYTES));
	return bench_note(j->bench->results, WORKLOAD,
			  "%u blocks, %.0f MiB, CXL for %u %%; random pages come at %.2f GB/s, so "
			  "a layer computes for %.2f ms",
			  j->pool.spec.blocks,
			  (double)j->pool.spec.blocks * DECODE_PAGES * DECODE_PAGE_BYTES / 1048576,
			  SPARSE_CXL_PERCENT, (double)PROBE_PAGES * DECODE_PAGE_BYTES / (double)ns,
			  (double)j->layer_ns / 1e6);
}

static int decode_on(struct job *j, uint32_t steps)
{
	j->step += steps;
	return decode_steps(j->decode, j->step - steps, j->step);
}

/* Rounds of steps on the clock: what came late, and what each step took beside its computing. */
static int run_clock(struct job *j, double times)
{
	struct decode *d = j->decode;
	char late[BENCH_TEXT], slow[BENCH_TEXT];
	const char *kind = select_name(d->trace->spec.kind), *look = decode_look_name[d->look];
	const struct bench_figure late_row = { WORKLOAD, late, "%", "pages chosen",
					       { BENCH_VALUE_AT_MOST, 0.5 } };
	const struct bench_figure slow_row = { WORKLOAD, slow, "ms/token", "all in memory",
					       { BENCH_RATIO_AT_MOST, 1.15 } };
	struct sample ns = { 0 }, alone = { 0 };
	uint64_t looks = 0, surprises = 0;
	int error = 0;

	d->layer_ns = (uint64_t)((double)j->layer_ns * times);
	for (uint32_t round = 0; round < j->bench->rounds && !error; round++) {
		error = decode_on(j, ROUND_STEPS);
		looks += d->looks;
		surprises += d->surprises;
		sample_add(&ns, (double)d->ns / ROUND_STEPS / 1e6);
		sample_add(&alone, (double)d->layer_ns * DECODE_LAYERS / 1e6);
	}
	snprintf(late, sizeof(late), "%s, %s: not in memory when needed", kind, look);
	snprintf(slow, sizeof(slow), "%s, %s: a token, computing x %g", kind, look, times);
	if (!error && times == 1)
		error = bench_judge_exact(j->bench->results, &late_row,
					  100.0 * (double)surprises / (double)looks, 100);
	return error ? error : bench_judge(j->bench->results, &slow_row, &ns, &alone);
}

static int warm(struct job *j)
{
	j->decode->layer_ns = 0;
	j->step = 0;
	return decode_on(j, WARM_STEPS);
}

/* ---- bytes and bits -------------------------------------------------------------------------- */

/* Bytes read from NVMe a token, of the last steps, beside the whole context for each. */
static int run_bytes(struct job *j)
{
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "MiB/token", "whole context, layerwise",
					  { BENCH_RATIO_AT_MOST, 1.0 / 3 } };
	uint64_t before, after;
	int error = service_metric(j->pool.t, "read_bytes", &before);

	if (!error)
		error = decode_on(j, 2 * ROUND_STEPS);
	if (!error)
		error = service_metric(j->pool.t, "read_bytes", &after);
	snprintf(figure, sizeof(figure), "%s, %s: read from NVMe",
		 select_name(j->decode->trace->spec.kind), decode_look_name[j->decode->look]);
	return error ? error
		     : bench_judge_exact(j->bench->results, &row,
					 (double)(after - before) / (2 * ROUND_STEPS) / 1048576,
					 j->whole_bytes / 1048576);
}

/* Tokens for which the whole context comes back: the first one finds what was put last. */
static int run_way(struct job *j, enum whole_way way, uint32_t step)
{
	static const char *const name[WHOLE_WAYS] = { "whole context before a step",
						      "whole context, layer by layer" };
	struct decode *d = j->decode;
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "outputs", "computed",
					  { BENCH_RATIO_AT_LEAST, 1 } };
	uint64_t before, after, from = time_now_ns();
	int error = service_metric(j->pool.t, "read_bytes", &before);

	d->outputs = d->wrong = 0;
	if (!error)
		error = whole_step(d, step, way);
	if (!error)
		error = service_metric(j->pool.t, "read_bytes", &after);
	if (error)
		return error;
	j->whole_bytes = (double)(after - before);
	bench_note(j->bench->results, WORKLOAD, "%s: %.0f MiB a token from NVMe, %.0f ms",
		   name[way], j->whole_bytes / 1048576, (double)(time_now_ns() - from) / 1e6);
	snprintf(figure, sizeof(figure), "%s: equal bit for bit", name[way]);
	return bench_judge_exact(j->bench->results, &row, (double)(d->outputs - d->wrong),
				 (double)d->outputs);
}

static int run_whole(struct job *j)
{
	const struct select_spec spec = { .kind = SELECT_RETURNING, .blocks = j->pool.spec.blocks,
					  .layers = DECODE_LAYERS, .groups = DECODE_GROUPS,
					  .readers = 1, .seed = SEED, .steps = 1 + WHOLE_WAYS };
	struct selection_trace t;
	int error = select_make(&t, &spec);

	if (error)
		return error;
	j->decode->trace = &t;
	error = whole_step(j->decode, WHOLE_WAYS, WHOLE_LAYERWISE);
	for (uint32_t way = 0; way < WHOLE_WAYS && !error; way++)
		error = run_way(j, way, way);
	select_free(&t);
	return error;
}

static int run_bits(struct job *j)
{
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "outputs", "computed",
					  { BENCH_RATIO_AT_LEAST, 1 } };
	struct decode *d = j->decode;
	int error;

	d->compute = true;
	d->layer_ns = 0;
	error = decode_on(j, CHECK_STEPS);
	d->compute = false;
	snprintf(figure, sizeof(figure), "%s, %s: equal bit for bit",
		 select_name(d->trace->spec.kind), decode_look_name[d->look]);
	return error ? error
		     : bench_judge_exact(j->bench->results, &row, (double)(d->outputs - d->wrong),
					 (double)d->outputs);
}

/* ---- many readers ---------------------------------------------------------------------------- */

/* What a buffer for each reader, of an equal part of the memory, would read a token. */
static int private_bytes(const struct selection_trace *t, uint32_t pages, double *bytes)
{
	uint64_t misses = 0, looks = 0;
	int error = 0;

	for (uint32_t r = 0; r < READERS && !error; r++)
		for (uint32_t i = 0; i < DECODE_PAGES && !error; i++) {
			const struct cache_stream s = { t, r, i / DECODE_GROUPS,
							i % DECODE_GROUPS };

			error = cache_misses(&s, pages / READERS / DECODE_PAGES, 0, &misses,
					     &looks);
		}
	*bytes = (double)misses / (double)looks * DECODE_LAYERS * DECODE_LAYER_PAGES *
		 DECODE_PAGE_BYTES;
	return error;
}

static int decode_all(struct decode *d, struct pool *readers, uint32_t from, uint32_t to)
{
	int error = 0;

	for (uint32_t step = from; step < to && !error; step++)
		for (uint32_t r = 0; r < READERS && !error; r++) {
			d->pool = &readers[r];
			d->reader = r;
			error = decode_steps(d, step, step + 1);
		}
	return error;
}

/* Choices of a step that another reader has made, too. */
static double overlap_of(const struct selection_trace *t)
{
	const uint16_t *a = select_at(t, READER_STEPS / 2, 0, 0, 0);
	const uint16_t *b = select_at(t, READER_STEPS / 2, 1, 0, 0);
	uint32_t n = 0;

	for (uint32_t i = 0; i < SELECT_TOP; i++)
		for (uint32_t k = 0; k < SELECT_TOP; k++)
			n += a[i] == b[k];
	return (double)n / SELECT_TOP;
}

static int judge_readers(struct job *j, const struct selection_trace *t, double bytes)
{
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "MiB/token", "a buffer for each",
					  { BENCH_RATIO_AT_MOST, 0.25 } };
	uint64_t pages = (uint64_t)j->pool.spec.blocks * DECODE_PAGES * SPARSE_CXL_PERCENT / 100;
	double alone;
	int error = private_bytes(t, (uint32_t)pages, &alone);

	if (!error && !t->spec.shared)
		return bench_note(j->bench->results, WORKLOAD,
				  "16 readers with nothing in common read %.2f MiB a token, with a "
				  "buffer for each %.2f",
				  bytes / 1048576, alone / 1048576);
	snprintf(figure, sizeof(figure), "%s, 16 readers, %.0f %% in common: read from NVMe",
		 select_name(t->spec.kind), 100 * overlap_of(t));
	return error ? error
		     : bench_judge_exact(j->bench->results, &row, bytes / 1048576, alone / 1048576);
}

static int run_readers(struct job *j, double shared)
{
	const struct select_spec spec = { .kind = SELECT_RETURNING, .blocks = j->pool.spec.blocks,
					  .layers = DECODE_LAYERS, .groups = DECODE_GROUPS,
					  .readers = READERS, .steps = READER_STEPS,
					  .shared = shared, .seed = SEED };
	struct pool reader[READERS] = { 0 };
	uint32_t attached = 0, warm_to = READER_STEPS / 4;
	uint64_t before, after;
	struct selection_trace t;
	int error = select_make(&t, &spec);

	j->decode->trace = &t;
	j->decode->look = DECODE_ON_DEMAND;
	j->decode->layer_ns = 0;
	for (; attached < READERS && !error; attached += !error)
		error = pool_attach(&reader[attached], &j->pool);
	if (!error)
		error = decode_all(j->decode, reader, 0, warm_to);
	if (!error)
		error = service_metric(j->pool.t, "read_bytes", &before);
	if (!error)
		error = decode_all(j->decode, reader, warm_to, READER_STEPS);
	if (!error)
		error = service_metric(j->pool.t, "read_bytes", &after);
	if (!error)
		error = judge_readers(j, &t, (double)(after - before) /
						     ((READER_STEPS - warm_to) * READERS));
	while (attached)
		pool_detach(&reader[--attached]);
	select_free(&t);
	return error;
}

/* ---- all --------------------------------------------------------------------------------- */

static int run_look(struct job *j, enum select_kind kind, enum decode_look look)
{
	static const double times[] = { 1, 0.5, 2 };
	uint32_t steps = WARM_STEPS + (3 * j->bench->rounds + 2) * ROUND_STEPS + CHECK_STEPS;
	const struct select_spec spec = { .kind = kind, .blocks = j->pool.spec.blocks,
					  .layers = DECODE_LAYERS, .groups = DECODE_GROUPS,
					  .readers = 1, .follow = look == DECODE_FOLLOW,
					  .seed = SEED + 1, .steps = steps };
	struct selection_trace t;
	int error = select_make(&t, &spec);

	if (error)
		return error;
	bench_say("sparse: %s, %s", select_name(kind), decode_look_name[look]);
	j->decode->trace = &t;
	j->decode->look = look;
	error = warm(j);
	for (uint32_t i = 0; i < (look == DECODE_ON_DEMAND ? 1 : 3) && !error; i++)
		error = run_clock(j, times[i]);
	if (!error)
		error = run_bytes(j);
	if (!error)
		error = run_bits(j);
	select_free(&t);
	return error;
}

static int run_kind(struct job *j, enum select_kind kind)
{
	int error = 0;

	for (uint32_t look = 0; look < DECODE_LOOKS && !error; look++)
		error = run_look(j, kind, look);
	return error;
}

int bench_sparse(struct bench *b)
{
	uint32_t blocks = b->quick ? BLOCKS : BLOCKS_FULL;
	uint64_t bytes = (uint64_t)blocks * DECODE_PAGES * DECODE_PAGE_BYTES;
	const struct pool_spec spec = { .name = WORKLOAD,
					.pages_per_block = DECODE_PAGES,
					.layers = DECODE_LAYERS,
					.page_bytes = DECODE_PAGE_BYTES,
					.blocks = blocks,
					.cxl_bytes = bytes / 100 * SPARSE_CXL_PERCENT >> 21 << 21,
					.nvme_bytes = bytes + bytes / 4 + (256u << 20),
					.fill = decode_fill_page };
	struct decode *d CLEANUP_FREE = calloc(1, sizeof(*d));
	struct job j = { .bench = b, .decode = d };
	int error = d ? 0 : -ENOMEM;

	/* One seed is always the same; the other one never was seen before. */
	for (uint32_t kind = 0; kind < SELECT_KINDS && !error; kind++)
		error = measure_buffers(b, kind, SEED);
	for (uint32_t kind = 0; kind < SELECT_KINDS && !error; kind++)
		error = measure_buffers(b, kind, time_now_ns());
	if (!error)
		error = sparse_wire(b, SEED);
	if (!error)
		error = pool_open(&j.pool, b, &spec);
	if (error)
		return error;
	d->pool = &j.pool;
	d->block_layers = DECODE_LAYERS;
	error = measure_drive(&j);
	if (!error)
		error = run_whole(&j);
	for (uint32_t kind = 0; kind < SELECT_KINDS && !error; kind++)
		error = run_kind(&j, kind);
	if (!error)
		error = run_readers(&j, SHARED);
	if (!error)
		error = run_readers(&j, 0);
	pool_close(&j.pool);
	return error ? error : sparse_layers(b, SEED + 2);
}
