/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on the block references of the production trace, in its order: how many loads beside
 * offline Belady with the whole tier, how long the reader is kept waiting, what a wrong plan costs,
 * what planning costs. The real core on a modelled host (model.h); the last figure is real time.
 *
 * The reader reads a block, computes for 1.25 times a block's transfer, reads the next; a block
 * that is not there it fetches and waits for. The tier holds a tenth of the blocks that are read.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/model/model.h"
#include "bench/trace/trace.h"
#include "libtier/base/time.h"
#include "tierd/core/belady.h"

#define PAGE_BYTES (512u << 10)
#define READ_GBPS 6.0
#define BLOCK_NS 87382ull /* a block at 6 GB/s */
#define COMPUTE_NS (BLOCK_NS * 5 / 4)
#define POLL_NS 10000u
#define SHARE 10u
#define ACCESSES_PIECE 4000u
#define FOREVER_NS 3600000000000ull

enum plan_mode { PLAN_NONE, PLAN_RIGHT, PLAN_SHUFFLED };

struct reader {
	struct model *m;
	const uint32_t *seq; /* numbers of blocks */
	uint32_t count, at;
	uint64_t compute_ns, stall_ns, begin_ns, asked_ns;
	struct abi_block_ref *ref; /* by number */
	bool fetching, over;
};

struct outcome {
	double seconds, stall_s;
	uint64_t loads; /* blocks that the device read */
};

/* ---- the sequence ------------------------------------------------------------------------- */

/* Ids of the trace become numbers in order of first use. Returns how many are distinct. */
static uint32_t number(uint32_t *seq, const struct trace *t, uint32_t count)
{
	uint32_t slots = 1u << 20, distinct = 0;
	uint64_t *id = calloc(slots, sizeof(*id));
	uint32_t *of = calloc(slots, sizeof(*of));

	for (uint32_t i = 0; id && of && i < count; i++) {
		uint64_t key = t->id[i] + 1;
		uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 44);

		while (id[at] && id[at] != key)
			at = (at + 1) % slots;
		if (!id[at]) {
			id[at] = key;
			of[at] = distinct++;
		}
		seq[i] = of[at];
	}
	free(id);
	free(of);
	return distinct;
}

static uint32_t belady_misses(const uint32_t *seq, uint32_t count, uint32_t capacity, double *ns)
{
	void *memory = malloc(belady_bytes(count));
	uint64_t begin = time_now_ns();
	struct belady_op op;
	uint32_t misses = 0;
	struct belady b;

	if (!memory)
		return 0;
	belady_init(&b, memory, count, capacity);
	for (uint32_t i = 0; i < count; i++)
		belady_add(&b, (struct abi_block_ref){ seq[i], 1 });
	while (b.cursor < b.count)
		misses += belady_step(&b, &op);
	*ns = (double)(time_now_ns() - begin);
	free(memory);
	return misses;
}

/* ---- the reader --------------------------------------------------------------------------- */

static void read_next(struct model *m, void *arg, const struct abi_cqe *cqe);

static void fetched(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct reader *r = arg;

	(void)m;
	(void)cqe;
	r->fetching = false;
}

static void read_next(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct reader *r = arg;
	struct abi_block_ref ref = r->ref[r->seq[r->at]];
	struct abi_sqe sqe = { .op = ABI_OP_FETCH,
			       .tier = ABI_TIER_CXL,
			       .count = 1,
			       .arg_bytes = sizeof(ref),
			       .deadline_ns = m->now_ns + FOREVER_NS };

	(void)cqe;
	if (!r->asked_ns)
		r->asked_ns = m->now_ns;
	if (!model_there(m, ref, 0, ABI_TIER_CXL)) {
		if (!r->fetching) {
			r->fetching = true;
			model_ask(m, &sqe, &ref, fetched, r);
		}
		model_at(m, m->now_ns + POLL_NS, read_next, r);
		return;
	}
	r->stall_ns += m->now_ns - r->asked_ns;
	r->asked_ns = 0;
	model_read(m, ref, 1);
	*(uint64_t *)(void *)(m->staging + MODEL_POSITION) = ++r->at;
	if (r->at < r->count)
		model_at(m, m->now_ns + r->compute_ns, read_next, r);
	else
		r->over = true;
}

/* ---- a run -------------------------------------------------------------------------------- */

static void planned(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	uint64_t *handle = arg;

	m->failed |= cqe->res != 0;
	*handle = cqe->value;
}

static void submit(struct reader *r, const uint32_t *order, uint64_t budget)
{
	struct {
		struct abi_plan_args args;
		struct abi_access access[ACCESSES_PIECE];
	} *piece = calloc(1, sizeof(*piece));
	uint64_t handle = 0;

	for (uint32_t at = 0; piece && at < r->count; at += ACCESSES_PIECE) {
		uint32_t n = r->count - at < ACCESSES_PIECE ? r->count - at : ACCESSES_PIECE;
		struct abi_sqe sqe = { .op = ABI_OP_PLAN,
				       .mode = at ? ABI_PLAN_APPEND : ABI_PLAN_BEGIN,
				       .handle = handle,
				       .tier = ABI_TIER_CXL,
				       .count = n };

		piece->args = (struct abi_plan_args){ .position_offset = MODEL_POSITION,
						      .access_ns = r->compute_ns,
						      .budget_bytes = budget };
		for (uint32_t i = 0; i < n; i++)
			piece->access[i].block = r->ref[order[at + i]];
		sqe.arg_bytes = n * (uint32_t)sizeof(struct abi_access);
		if (!at)
			sqe.arg_bytes += (uint32_t)sizeof(piece->args);
		model_ask(r->m, &sqe, at ? (void *)piece->access : piece, planned, &handle);
	}
	free(piece);
}

static uint32_t *shuffled(const uint32_t *seq, uint32_t count)
{
	uint32_t *order = malloc(count * sizeof(*order));
	uint64_t random = 99;

	for (uint32_t i = 0; order && i < count; i++)
		order[i] = seq[i];
	for (uint32_t i = count; order && i-- > 1;) {
		uint32_t k = bench_random_below(&random, i + 1), was = order[i];

		order[i] = order[k];
		order[k] = was;
	}
	return order;
}

static int blocks_make(struct reader *r, uint32_t distinct)
{
	struct abi_sqe sqe = { .op = ABI_OP_MIGRATE, .tier = ABI_TIER_NVME };
	int err = model_store(r->m, 0, distinct);

	for (uint32_t n = 0; !err && n < distinct; n++)
		if (!model_block(r->m, n, &r->ref[n]))
			return -EIO;
	for (uint32_t n = 0; !err && n < distinct; n += 8000) { /* begin with an empty tier */
		sqe.count = distinct - n < 8000 ? distinct - n : 8000;
		sqe.arg_bytes = sqe.count * (uint32_t)sizeof(*r->ref);
		sqe.deadline_ns = r->m->now_ns + FOREVER_NS;
		model_ask(r->m, &sqe, r->ref + n, NULL, NULL);
	}
	model_run(r->m, r->m->now_ns + 5000000000);
	return err;
}

static int one_run(const uint32_t *seq, uint32_t count, uint32_t distinct, enum plan_mode mode,
		   struct outcome *out)
{
	uint64_t tier_bytes = (uint64_t)(distinct / SHARE) * PAGE_BYTES, before;
	const struct model_spec spec = {
		.cxl_bytes = tier_bytes,
		.nvme_bytes = (uint64_t)distinct * PAGE_BYTES * 3 / 2 + (8ull << 30),
		.layers = 1,
		.page_bytes = PAGE_BYTES,
		.read_gbps = READ_GBPS,
		.write_gbps = 4,
		.copy_gbps = 20,
		.latency_ns = 80000,
	};
	struct reader r = { .seq = seq, .count = count, .compute_ns = COMPUTE_NS };
	uint32_t *wrong = mode == PLAN_SHUFFLED ? shuffled(seq, count) : NULL;
	int err = model_open(&r.m, &spec);

	r.ref = calloc(distinct, sizeof(*r.ref));
	if (!r.ref || (mode == PLAN_SHUFFLED && !wrong))
		err = -ENOMEM;
	if (!err)
		err = blocks_make(&r, distinct);
	if (!err) {
		before = core_metrics(r.m->core)->read_pages;
		*(uint64_t *)(void *)(r.m->staging + MODEL_POSITION) = 0;
		r.begin_ns = r.m->now_ns;
		if (mode != PLAN_NONE)
			submit(&r, mode == PLAN_RIGHT ? seq : wrong, tier_bytes);
		model_at(r.m, r.m->now_ns, read_next, &r);
		while (!r.over && !r.m->failed)
			model_run(r.m, r.m->now_ns + 100000000);
		err = r.m->failed ? -EIO : 0;
		out->seconds = (double)(r.m->now_ns - r.begin_ns) / 1e9;
		out->stall_s = (double)r.stall_ns / 1e9;
		out->loads = core_metrics(r.m->core)->read_pages - before;
	}
	free(wrong);
	free(r.ref);
	model_close(r.m);
	return err;
}

/* ---- the rows ----------------------------------------------------------------------------- */

static int rows(struct bench *b, const uint32_t *seq, uint32_t count, uint32_t distinct)
{
	struct bench_figure loads = { "plan", "model: blocks loaded, trace's references, tier 1/10",
				      "blocks", "offline Belady with the whole tier",
				      { BENCH_RATIO_AT_MOST, 1.02 } };
	struct bench_figure stall = { "plan",
				      "model: reader kept waiting (computes 1.25 transfers)",
				      "ms", "serial transfer of what Belady loads",
				      { BENCH_RATIO_AT_MOST, 0.1 } };
	struct bench_figure wrong = { "plan", "model: the same with a shuffled plan", "s",
				      "no plan at all", { BENCH_RATIO_AT_MOST, 1.05 } };
	struct bench_figure cost = { "plan", "planning 10^5 accesses (real time)", "ms",
				     "1 % of their step in the model",
				     { BENCH_RATIO_AT_MOST, 1 } };
	double ns = 0, each = 1e5 / count;
	uint32_t misses = belady_misses(seq, count, distinct / SHARE, &ns);
	struct outcome none, right, shuffle;
	int err = one_run(seq, count, distinct, PLAN_RIGHT, &right);

	if (!err)
		err = one_run(seq, count, distinct, PLAN_NONE, &none);
	if (!err)
		err = one_run(seq, count, distinct, PLAN_SHUFFLED, &shuffle);
	if (err)
		return err;
	bench_say("plan: %u accesses, %u blocks; without a plan %.2f s and %llu loads, with %.2f s",
		  count, distinct, none.seconds, (unsigned long long)none.loads, right.seconds);
	err = bench_judge_exact(b->results, &loads, (double)right.loads, misses);
	if (!err)
		err = bench_judge_exact(b->results, &stall, 1e3 * right.stall_s,
					(double)misses * (double)BLOCK_NS / 1e6);
	if (!err)
		err = bench_judge_exact(b->results, &wrong, shuffle.seconds, none.seconds);
	return err ? err
		   : bench_judge_exact(b->results, &cost, ns * each / 1e6,
				       right.seconds * each * 10);
}

int bench_plan(struct bench *b)
{
	uint32_t count = b->quick ? 20000 : 100000, distinct;
	uint32_t *seq = calloc(count, sizeof(*seq));
	struct trace *t = NULL;
	char why[256] = "";
	int err = trace_open(&t, b->trace, 0, why, sizeof(why));

	if (err || !seq) {
		fprintf(stderr, "tierbench: %s: %s\n", b->trace, why);
		free(seq);
		return err ? err : -ENOMEM;
	}
	if (count > t->id_count)
		count = (uint32_t)t->id_count;
	distinct = number(seq, t, count);
	trace_close(t);
	bench_say("plan: the first %u references of the trace, %u blocks", count, distinct);
	err = rows(b, seq, count, distinct);
	free(seq);
	return err;
}
