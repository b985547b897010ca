/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on the block references of the production trace, in its order: how many loads beside
 * offline Belady with the whole tier, how long the reader is kept waiting, what a wrong plan costs,
 * what planning costs. The real core on a modelled host (model.h); the cost is of this machine.
 *
 * The reader reads a block, computes, reads the next; a block that is not there it fetches and
 * waits for. It computes 1.25 times a block's transfer for each, or, the harder case, in all as
 * long as all that Belady loads takes: hits are computed as well, so each run of loads is outpaced.
 * The tier holds a tenth of the blocks that are read, where each is loaded once whoever chooses, or
 * a hundredth, where that is not so.
 *
 * Two paths: a plan to read blocks once, each in CXL and on NVMe, out of an HBM tier of an eighth
 * of them, as fast as they come. Copies at 22 GB/s (a CXL link of 8 lanes), reads at 14 (one Gen5
 * drive), both at a time, against the better link alone, kept full; said beside it: either path.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench.h"
#include "bench/micro/paths.h"
#include "bench/model/least.h"
#include "bench/model/planrun.h"
#include "bench/trace/trace.h"
#include "libtier/base/time.h"
#include "tierd/core/unit/belady.h"

#define TIER_BLOCKS_MIN 64u
#define PAGE_BYTES (512u << 10)
#define READ_GBPS 6.0
#define BLOCK_NS 87382ull /* a block at 6 GB/s */
#define COMPUTE_NS (BLOCK_NS * 5 / 4)

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

static uint64_t processor_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Deciding all of it, what plan.c asks of belady.c: its own time, whatever else runs. */
static int planning_ns(const uint32_t *seq, uint32_t count, uint32_t capacity, double *ns)
{
	void *memory = calloc(1, belady_bytes(count));
	uint64_t begin = processor_ns();
	struct belady_op op;
	struct belady b;

	if (!memory)
		return -ENOMEM;
	belady_init(&b, memory, count, capacity);
	for (uint32_t i = 0; i < count; i++)
		belady_add(&b, (struct abi_block_ref){ seq[i], 1 });
	while (b.cursor < b.count)
		belady_step(&b, &op);
	*ns = (double)(processor_ns() - begin);
	free(memory);
	return 0;
}

/* ---- the rows ----------------------------------------------------------------------------- */

struct part {
	uint32_t share; /* the tier holds one of so many blocks */
	struct plan_run run;
	struct least least;
	struct plan_outcome none, right, shuffle;
};

static struct part part_of(const uint32_t *seq, uint32_t count, uint32_t distinct, uint32_t share)
{
	uint64_t tier_bytes = (uint64_t)(distinct / share) * PAGE_BYTES;

	return (struct part){ .share = share, .run = {
		.host = { .cxl_bytes = tier_bytes,
			  .nvme_bytes = (uint64_t)distinct * PAGE_BYTES * 3 / 2 + (8ull << 30),
			  .layers = 1, .page_bytes = PAGE_BYTES, .read_gbps = READ_GBPS,
			  .write_gbps = 4, .copy_gbps = 20, .latency_ns = 80000 },
		.seq = seq, .count = count, .distinct = distinct, .tier = ABI_TIER_CXL,
		.budget = tier_bytes, .mode = PLAN_RIGHT, .compute_ns = COMPUTE_NS,
	} };
}

/* What a reader who computes for so long waits at least, and what ours waits. */
static int run_with(struct part *p, uint64_t compute_ns, enum plan_mode mode,
		    struct plan_outcome *out)
{
	const struct least_spec spec = { p->run.seq, p->run.count, p->run.distinct / p->share,
					 BLOCK_NS, compute_ns };
	int err = least_stall(&spec, &p->least);

	p->run.compute_ns = compute_ns;
	p->run.mode = mode;
	return err ? err : plan_run(&p->run, out);
}

static double transfer_ms(const struct part *p)
{
	return (double)p->least.loads * (double)BLOCK_NS / 1e6;
}

static int loads_row(struct bench *b, const struct part *p)
{
	char name[BENCH_TEXT];
	const struct bench_figure f = { "plan", name, "blocks",
					"offline Belady with the whole tier",
					{ BENCH_RATIO_AT_MOST, 1.02 } };

	snprintf(name, sizeof(name), "model: blocks loaded, trace's references, tier 1/%u",
		 p->share);
	bench_say("plan: tier 1/%u: without a plan %.2f s and %llu loads, with %.2f s", p->share,
		  p->none.seconds, (unsigned long long)p->none.loads, p->right.seconds);
	return bench_judge_exact(b->results, &f, (double)p->right.loads, p->least.loads);
}

static int stall_row(struct bench *b, const struct part *p, const struct plan_outcome *o)
{
	double compute_ms = (double)p->run.count * (double)p->run.compute_ns / 1e6;
	char name[BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure f = { "plan", name, "ms", against,
					{ BENCH_RATIO_AT_MOST, 0.1 } };

	snprintf(name, sizeof(name),
		 "model: reader kept waiting, computes %.2f x all transfers, tier 1/%u",
		 compute_ms / transfer_ms(p), p->share);
	snprintf(against, sizeof(against),
		 "serial transfer of what Belady loads (the least for these loads: %.3f of it)",
		 p->least.stall_ns / 1e6 / transfer_ms(p));
	return bench_judge_exact(b->results, &f, 1e3 * o->stall_s, transfer_ms(p));
}

static int wrong_row(struct bench *b, const struct part *p)
{
	char name[BENCH_TEXT];
	const struct bench_figure f = { "plan", name, "s", "no plan at all",
					{ BENCH_RATIO_AT_MOST, 1.05 } };

	snprintf(name, sizeof(name), "model: time of the run with a shuffled plan, tier 1/%u",
		 p->share);
	return bench_judge_exact(b->results, &f, p->shuffle.seconds, p->none.seconds);
}

static int cost_row(struct bench *b, const struct part *p)
{
	char name[BENCH_TEXT];
	const struct bench_figure f = { "plan", name, "ms", "1 % of their step in the model",
					{ BENCH_RATIO_AT_MOST, 1 } };
	double ns = 0, each = 1e5 / p->run.count;
	struct sample ours = { 0 }, step = { 0 };
	int err = 0;

	snprintf(name, sizeof(name), "planning 10^5 accesses, processor time here, tier 1/%u",
		 p->share);
	for (uint32_t round = 0; round < b->rounds && !err; round++) {
		err = planning_ns(p->run.seq, p->run.count, p->run.distinct / p->share, &ns);
		sample_add(&ours, ns * each / 1e6);
		sample_add(&step, p->right.seconds * each * 10);
	}
	return err ? err : bench_judge(b->results, &f, &ours, &step);
}

/* The reader computes 1.25 transfers a block; then, in all, as long as all transfers take. */
static int rows(struct bench *b, struct part *p)
{
	struct plan_outcome equal;
	int err = run_with(p, COMPUTE_NS, PLAN_NONE, &p->none);

	if (!err)
		err = run_with(p, COMPUTE_NS, PLAN_SHUFFLED, &p->shuffle);
	if (!err)
		err = run_with(p, COMPUTE_NS, PLAN_RIGHT, &p->right);
	if (!err)
		err = loads_row(b, p);
	if (!err)
		err = stall_row(b, p, &p->right);
	if (!err)
		err = run_with(p, p->least.loads * BLOCK_NS / p->run.count + 1, PLAN_RIGHT, &equal);
	if (!err)
		err = stall_row(b, p, &equal);
	if (!err)
		err = wrong_row(b, p);
	return err ? err : cost_row(b, p);
}

/* ---- two paths ---------------------------------------------------------------------------- */

#define PATHS_READ_GBPS 14.0
#define PATHS_COPY_GBPS 22.0

static int paths_rows(struct bench *b, const struct plan_outcome *both)
{
	struct bench_figure speed = { "plan", "model: HBM by two paths, 14 and 22 GB/s", "GB/s",
				      "the better link, full", { BENCH_RATIO_AT_LEAST, 1.5 } };
	struct bench_figure apart = { "plan", "model: between the ends of the two paths", "ms",
				      "the whole transfer", { BENCH_RATIO_AT_MOST, 0.05 } };
	double bytes = (double)(both->direct_bytes + both->copied_bytes);
	int err = bench_judge_exact(b->results, &speed, bytes / both->seconds / 1e9,
				    PATHS_COPY_GBPS);

	bench_say("plan: %.1f %% of the bytes straight from NVMe; in proportion to bandwidth it "
		  "would be %.1f %%", 100 * (double)both->direct_bytes / bytes,
		  100 * PATHS_READ_GBPS / (PATHS_READ_GBPS + PATHS_COPY_GBPS));
	return err ? err : bench_judge_exact(b->results, &apart, 1e3 * both->apart_s,
					     1e3 * both->seconds);
}

static int paths(struct bench *b)
{
	uint32_t count = b->quick ? 8192 : 32768;
	uint64_t bytes = (uint64_t)count * PAGE_BYTES;
	uint32_t *seq = malloc(count * sizeof(*seq));
	struct plan_run run = {
		.host = { .hbm_bytes = bytes / 8, .cxl_bytes = bytes * 5 / 4,
			  .nvme_bytes = bytes * 2, .layers = 1, .page_bytes = PAGE_BYTES,
			  .read_gbps = PATHS_READ_GBPS, .write_gbps = 10,
			  .copy_gbps = PATHS_COPY_GBPS, .latency_ns = 80000, .direct = true },
		.seq = seq, .count = count, .distinct = count, .tier = ABI_TIER_HBM,
		.budget = bytes / 8, .mode = PLAN_RIGHT, .in_cxl = true,
	};
	struct plan_outcome both, copies, reads;
	int err = seq ? 0 : -ENOMEM;

	for (uint32_t i = 0; !err && i < count; i++)
		seq[i] = i;
	if (!err)
		err = plan_run(&run, &both);
	run.host.direct = false;
	if (!err)
		err = plan_run(&run, &copies);
	run.host.direct = true;
	run.in_cxl = false;
	if (!err)
		err = plan_run(&run, &reads);
	free(seq);
	if (err)
		return err;
	bench_say("plan: %u blocks into HBM: by both paths %.3f s, by copies %.3f, by reads %.3f",
		  count, both.seconds, copies.seconds, reads.seconds);
	return paths_rows(b, &both);
}

int bench_plan(struct bench *b)
{
	static const uint32_t shares[] = { 10, 100 };
	uint32_t count = b->quick ? 20000 : 100000, distinct;
	uint32_t *seq = calloc(count, sizeof(*seq));
	struct trace *t = NULL;
	int err = bench_trace(&t, b, 0);

	if (err || !seq) {
		free(seq);
		trace_close(t);
		return err ? err : bench_failed("plan", -ENOMEM);
	}
	if (count > t->id_count)
		count = (uint32_t)t->id_count;
	distinct = number(seq, t, count);
	trace_close(t);
	bench_say("plan: the first %u references of the trace, %u blocks", count, distinct);
	for (uint32_t i = 0; i < sizeof(shares) / sizeof(shares[0]) && !err; i++) {
		struct part p = part_of(seq, count, distinct, shares[i]);

		err = distinct / shares[i] >= TIER_BLOCKS_MIN
			      ? rows(b, &p)
			      : bench_note(b->results, "plan", "tier 1/%u: not run, %u blocks are "
					   "too few", shares[i], distinct / shares[i]);
	}
	free(seq);
	if (!err)
		err = paths(b);
	return err ? err : paths_real(b);
}
