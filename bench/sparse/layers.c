/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All 57 sparse layers of a context. A memory tier gives up blocks, not pages, so how many layers
 * one block holds says how finely it can choose: here the same choices are read from blocks of all
 * 57 layers, and of 3, each of which has a key of its own. Beside them the whole context comes,
 * layer by layer. Pages are of 4 KiB, a sixteenth of the model's. No clock: what was asked for
 * ahead is there when the next step begins, so these rows are of who leaves, not of how fast this
 * machine reads.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/sparse/decode.h"
#include "bench/sparse/sparse.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"

#define WORKLOAD "sparse"
#define LAYERS 57u
#define BLOCKS 1024u
#define PAGE_BYTES 4096u
#define WARM_STEPS 150u
#define STEPS 50u
#define WHOLE_STEPS 3u
#define WHOLE_NS (120 * NS_PER_S)
#define KINDS_OF_BLOCK (sizeof(block_layers) / sizeof(block_layers[0]))

static const uint32_t block_layers[] = { LAYERS, 3 };

struct outcome {
	double late; /* per cent of the pages chosen */
	double read; /* MiB a token */
};

/* The whole context comes back for each token, layer by layer: MiB and ms a token. */
static int stream_context(struct pool *p, double *mib, double *ms)
{
	const struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL,
					       .deadline_ns = time_now_ns() + WHOLE_NS };
	uint64_t before, after, from = time_now_ns();
	int error = service_metric(p->t, "read_bytes", &before);

	for (uint32_t step = 0; step < WHOLE_STEPS && !error; step++) {
		tier_stream *s;

		error = tier_stream_open(p->c, p->block, BLOCKS, &o, &s);
		for (uint32_t layer = 0; layer < LAYERS && !error; layer++) {
			int64_t n = tier_stream_wait(s, layer, 0);

			error = n < 0 ? (int)n : n == BLOCKS ? 0 : -ENODATA;
			if (!error)
				tier_stream_release(s, layer + 1);
		}
		tier_stream_close(s);
	}
	if (!error)
		error = service_metric(p->t, "read_bytes", &after);
	if (error)
		return bench_failed("sparse: the whole context", error);
	*mib = (double)(after - before) / WHOLE_STEPS / 1048576;
	*ms = (double)(time_now_ns() - from) / WHOLE_STEPS / 1e6;
	return 0;
}

static int decode_from(struct pool *p, struct decode *d, struct outcome *out)
{
	uint64_t before, after;
	int error;

	d->pool = p;
	d->asked = 0;
	error = decode_steps(d, 0, WARM_STEPS);
	if (!error)
		error = service_metric(p->t, "read_bytes", &before);
	if (!error)
		error = decode_steps(d, WARM_STEPS, WARM_STEPS + STEPS);
	if (!error)
		error = service_metric(p->t, "read_bytes", &after);
	if (error)
		return error;
	out->late = 100.0 * (double)d->surprises / (double)d->looks;
	out->read = (double)(after - before) / STEPS / 1048576;
	return 0;
}

/* A daemon of its own for each: none begins with what another has left in memory. */
static int open_pool(struct pool *p, struct bench *b, uint32_t layers)
{
	uint64_t bytes = (uint64_t)BLOCKS * LAYERS * DECODE_GROUPS * PAGE_BYTES;
	const struct pool_spec spec = { .name = WORKLOAD,
					.pages_per_block = layers * DECODE_GROUPS,
					.layers = layers,
					.page_bytes = PAGE_BYTES,
					.blocks = BLOCKS * (LAYERS / layers),
					.cxl_bytes = bytes / 100 * SPARSE_CXL_PERCENT >> 21 << 21,
					.nvme_bytes = bytes + bytes / 2 + (256u << 20) };

	return pool_open(p, b, &spec);
}

static int measure(struct bench *b, struct decode *d, struct outcome *out)
{
	struct pool p;
	int error = open_pool(&p, b, d->block_layers);

	if (error)
		return error;
	error = decode_from(&p, d, out);
	pool_close(&p);
	return error;
}

static int measure_whole(struct bench *b, double *mib)
{
	struct pool p;
	double ms = 0;
	int error = open_pool(&p, b, LAYERS);

	if (error)
		return error;
	error = stream_context(&p, mib, &ms);
	pool_close(&p);
	return error ? error
		     : bench_note(b->results, WORKLOAD,
				  "%u blocks of 57 layers, whole and layer by layer: %.0f MiB "
				  "and %.0f ms a token; at once before a step it is the same bytes",
				  BLOCKS, *mib, ms);
}

static int tell(struct bench *b, const struct decode *d, const struct outcome *o,
		const struct outcome *blocks_of_57, double whole_mib)
{
	char how[BENCH_TEXT - 40], late[BENCH_TEXT], read[BENCH_TEXT];
	const struct bench_figure late_row = { WORKLOAD, late, "%", "blocks of 57 layers",
					       { BENCH_VALUE_AT_MOST, 0.5 } };
	const struct bench_figure read_row = { WORKLOAD, read, "MiB/token",
					       "the whole context, layer by layer",
					       { BENCH_RATIO_AT_MOST, 1.0 / 3 } };
	int error;

	snprintf(how, sizeof(how), "%s, %s, blocks of %u layers",
		 select_name(d->trace->spec.kind), decode_look_name[d->look], d->block_layers);
	snprintf(late, sizeof(late), "%s: not in memory when needed", how);
	snprintf(read, sizeof(read), "%s: read from NVMe", how);
	error = bench_judge_exact(b->results, &late_row, o->late, blocks_of_57->late);
	return error ? error : bench_judge_exact(b->results, &read_row, o->read, whole_mib);
}

static int run_kind(struct bench *b, struct decode *d, double whole_mib)
{
	struct outcome all[KINDS_OF_BLOCK];
	int error = 0;

	for (uint32_t look = DECODE_ON_DEMAND; look <= DECODE_DRAFT && !error; look++)
		for (uint32_t i = 0; i < KINDS_OF_BLOCK && !error; i++) {
			d->look = look;
			d->block_layers = block_layers[i];
			error = measure(b, d, &all[i]);
			if (!error)
				error = tell(b, d, &all[i], &all[0], whole_mib);
		}
	return error;
}

int sparse_layers(struct bench *b, uint64_t seed)
{
	struct decode *d CLEANUP_FREE = calloc(1, sizeof(*d));
	double whole_mib = 0;
	int error = d ? measure_whole(b, &whole_mib) : -ENOMEM;

	if (d)
		d->settle = true;
	for (uint32_t kind = 0; kind < SELECT_KINDS && !error; kind++) {
		const struct select_spec spec = { .kind = kind, .blocks = BLOCKS, .layers = LAYERS,
						  .groups = DECODE_GROUPS, .readers = 1,
						  .steps = WARM_STEPS + STEPS + 1, .seed = seed };
		struct selection_trace t;

		error = select_make(&t, &spec);
		if (error)
			return error;
		d->trace = &t;
		error = run_kind(b, d, whole_mib);
		select_free(&t);
	}
	return error;
}
