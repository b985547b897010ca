/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All 57 sparse layers of a context. A memory tier gives up blocks, not pages, so how many layers
 * one block holds says how finely it can choose: here the same choices are read from blocks of all
 * 57 layers, and of 3, each of which has a key of its own. Pages are of 4 KiB, a sixteenth of the
 * model's. No clock: what was asked for ahead is there when the next step begins, so these rows are
 * of who leaves, not of how fast this machine reads.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/sparse/decode.h"
#include "bench/sparse/sparse.h"
#include "libtier/base/cleanup.h"

#define WORKLOAD "sparse"
#define LAYERS 57u
#define BLOCKS 1024u
#define PAGE_BYTES 4096u
#define WARM_STEPS 150u
#define STEPS 50u
#define KINDS_OF_BLOCK (sizeof(block_layers) / sizeof(block_layers[0]))

static const uint32_t block_layers[] = { LAYERS, 3 };

struct outcome {
	double late; /* per cent of the pages chosen */
	double read; /* MiB a token */
};

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
static int measure(struct bench *b, struct decode *d, struct outcome *out)
{
	uint32_t pages = d->block_layers * DECODE_GROUPS;
	uint64_t bytes = (uint64_t)BLOCKS * LAYERS * DECODE_GROUPS * PAGE_BYTES;
	const struct pool_spec spec = { .name = WORKLOAD,
					.pages_per_block = pages,
					.layers = d->block_layers,
					.page_bytes = PAGE_BYTES,
					.blocks = BLOCKS * (LAYERS / d->block_layers),
					.cxl_bytes = bytes / 100 * SPARSE_CXL_PERCENT >> 21 << 21,
					.nvme_bytes = bytes + bytes / 2 + (256u << 20) };
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = decode_from(&p, d, out);
	pool_close(&p);
	return error;
}

static int tell(struct bench *b, const struct decode *d, const struct outcome *o,
		const struct outcome *whole)
{
	char figure[BENCH_TEXT];
	const struct bench_figure row = { WORKLOAD, figure, "%", "blocks of 57 layers",
					  { BENCH_VALUE_AT_MOST, 0.5 } };

	snprintf(figure, sizeof(figure), "%s, %s, blocks of %u layers: not in memory when needed",
		 select_name(d->trace->spec.kind), decode_look_name[d->look], d->block_layers);
	bench_note(b->results, WORKLOAD, "the same: %.2f MiB a token from NVMe", o->read);
	return bench_judge_exact(b->results, &row, o->late, whole->late);
}

static int run_kind(struct bench *b, struct decode *d)
{
	struct outcome all[KINDS_OF_BLOCK];
	int error = 0;

	for (uint32_t look = DECODE_ON_DEMAND; look <= DECODE_DRAFT && !error; look++)
		for (uint32_t i = 0; i < KINDS_OF_BLOCK && !error; i++) {
			d->look = look;
			d->block_layers = block_layers[i];
			error = measure(b, d, &all[i]);
			if (!error)
				error = tell(b, d, &all[i], &all[0]);
		}
	return error;
}

int sparse_layers(struct bench *b, uint64_t seed)
{
	struct decode *d CLEANUP_FREE = calloc(1, sizeof(*d));
	int error = d ? 0 : -ENOMEM;

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
		error = run_kind(b, d);
		select_free(&t);
	}
	return error;
}
