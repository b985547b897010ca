/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two hosts that pull cost local demand, in device time: the real core, a modelled drive, an
 * engine that reads single pages from it, and two streams as tierd-net's holder opens them, whose
 * layers leave by a wire of 1 Gbit/s each. Processors take no time here; bench/hosts/beside has
 * those.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/model/model.h"

#define LAYERS 32u
#define PAGE 65536u
#define OWN 1024u    /* blocks of which single pages are read: 2 GiB, twice the memory */
#define PULLED 32u   /* blocks of a pull */
#define READS 4000u
#define REST_NS 200000u /* between two reads */
#define WIRE_GBPS 0.125

struct beside {
	struct model *m;
	uint64_t random, asked_ns;
	double took[READS];
	uint32_t reads, pulls;
	bool over;
	struct wire {
		struct beside *of;
		uint32_t number, generation, gone; /* layers that have left */
		bool answered;
		struct abi_block_ref ref[PULLED];
	} wire[MODEL_STREAMS];
};

/* ---- the engine ---------------------------------------------------------------------------- */

static void read_one(struct model *m, void *arg, const struct abi_cqe *cqe);

static void came(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct beside *b = arg;

	if (cqe->res)
		m->failed = true;
	b->took[b->reads++] = (double)(m->now_ns - b->asked_ns);
	b->over = b->reads == READS;
	if (!b->over)
		model_at(m, m->now_ns + REST_NS, read_one, b);
}

/* A page that is not in memory. */
static void read_one(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct beside *b = arg;
	struct abi_sqe sqe = { .op = ABI_OP_FETCH_PAGES, .klass = ABI_CLASS_DEMAND,
			       .tier = ABI_TIER_CXL, .count = 1,
			       .arg_bytes = sizeof(struct abi_page_ref),
			       .deadline_ns = m->now_ns + NS_PER_S };
	struct abi_page_ref page = { .page = 0 };
	struct abi_block_ref block;

	(void)cqe;
	do {
		if (!model_block(m, (uint32_t)((bench_random(&b->random) >> 33) % OWN), &block)) {
			m->failed = true;
			return;
		}
		page.page = (uint32_t)(bench_random(&b->random) >> 33) % LAYERS;
	} while (model_there(m, block, page.page, ABI_TIER_CXL));
	page.slot = block.slot;
	page.generation = block.generation;
	b->asked_ns = m->now_ns;
	model_ask(m, &sqe, &page, came, b);
}

/* ---- who pulls ----------------------------------------------------------------------------- */

static void pull(struct wire *w);

static void pulled(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct wire *w = arg;

	if (cqe->res || cqe->value != PULLED)
		m->failed = true;
	w->answered = true;
}

/* A layer has left by the wire, or is not there yet. */
static void layer(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct wire *w = arg;
	struct abi_stream *line = &m->stream[w->number];
	uint64_t wait = 20000;

	(void)cqe;
	if (line->generation == w->generation && line->ready > w->gone) {
		w->gone++;
		line->released = abi_stream_released(w->generation, w->gone);
		wait = (uint64_t)(PULLED * PAGE / WIRE_GBPS);
	}
	if (w->gone < LAYERS || !w->answered)
		model_at(m, m->now_ns + wait, layer, w);
	else if (!w->of->over)
		pull(w);
}

static void pull(struct wire *w)
{
	struct model *m = w->of->m;
	struct abi_sqe sqe = { .op = ABI_OP_STREAM, .klass = ABI_CLASS_DEADLINE,
			       .tier = ABI_TIER_CXL, .mode = ABI_MODE_STREAM, .count = PULLED,
			       .arg_bytes = sizeof(w->ref), .stream = (uint16_t)w->number,
			       .generation = ++w->generation,
			       .deadline_ns = m->now_ns + 60 * NS_PER_S };

	w->of->pulls++;
	w->gone = 0;
	w->answered = false;
	m->stream[w->number].released = abi_stream_released(w->generation, 0);
	model_ask(m, &sqe, w->ref, pulled, w);
	layer(m, w, NULL);
}

/* ---- a run --------------------------------------------------------------------------------- */

static int begin(struct beside *b, uint32_t wires)
{
	uint32_t n = OWN;

	for (uint32_t i = 0; i < wires; i++) {
		b->wire[i].of = b;
		b->wire[i].number = i;
		for (uint32_t k = 0; k < PULLED; k++)
			if (!model_block(b->m, n++, &b->wire[i].ref[k]))
				return -EIO;
		pull(&b->wire[i]);
	}
	read_one(b->m, b, NULL);
	return 0;
}

static int run(double gbps, uint32_t wires, double q[2], uint32_t *pulls)
{
	struct model_spec spec = { .cxl_bytes = 1ull << 30, .nvme_bytes = 64ull << 30,
				   .layers = LAYERS, .page_bytes = PAGE, .read_gbps = gbps,
				   .write_gbps = gbps / 2, .copy_gbps = 20, .latency_ns = 80000 };
	struct beside *b = calloc(1, sizeof(*b));
	int err = b ? model_open(&b->m, &spec) : -ENOMEM;

	/* What is pulled first, so that it has left memory. */
	if (!err)
		err = model_store(b->m, OWN, MODEL_STREAMS * PULLED);
	if (!err)
		err = model_store(b->m, 0, OWN);
	if (!err) {
		b->random = 7;
		err = begin(b, wires);
	}
	while (!err && !b->over && !b->m->failed)
		model_run(b->m, b->m->now_ns + NS_PER_S);
	if (!err && b->m->failed)
		err = -EIO;
	if (!err) {
		q[0] = sample_quantile(b->took, READS, 0.5);
		q[1] = sample_quantile(b->took, READS, 0.99);
		*pulls = b->pulls;
	}
	if (b)
		model_close(b->m);
	free(b);
	return err;
}

int bench_beside(struct bench *b)
{
	static const double gbps[] = { 7, 3 };
	int err = 0;

	for (uint32_t i = 0; i < 2 && !err; i++) {
		char p50[BENCH_TEXT], p99[BENCH_TEXT];
		struct bench_figure middle = { "beside", p50, "ns", "nobody pulling",
					       { BENCH_RATIO_AT_MOST, 1.4 } };
		struct bench_figure late = { "beside", p99, "ns", "nobody pulling",
					     { BENCH_RATIO_AT_MOST, 2 } };
		double alone[2], beside[2];
		uint32_t pulls;

		snprintf(p50, sizeof(p50), "model: single pages, two hosts pulling by 1 Gbit/s "
			 "each, p50, drive of %.0f GB/s", gbps[i]);
		snprintf(p99, sizeof(p99), "model: the same, p99, drive of %.0f GB/s", gbps[i]);
		err = run(gbps[i], 0, alone, &pulls);
		if (!err)
			err = run(gbps[i], MODEL_STREAMS, beside, &pulls);
		if (!err)
			err = bench_judge_exact(b->results, &middle, beside[0], alone[0]);
		if (!err)
			err = bench_judge_exact(b->results, &late, beside[1], alone[1]);
		if (!err)
			err = bench_note(b->results, "beside", "%u pulls of %u MiB meanwhile",
					 pulls, PULLED * LAYERS * PAGE >> 20);
	}
	return err;
}
