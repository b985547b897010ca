/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans on the block references of the production trace, in its order: how many loads beside
 * offline Belady with the whole tier, how long the reader is kept waiting, what a wrong plan costs,
 * what planning costs. The real core on a modelled host (model.h); the last figure is real time.
 *
 * The reader reads a block, computes for 1.25 times a block's transfer, reads the next; a block
 * that is not there it fetches and waits for. The tier holds a tenth of the blocks that are read.
 *
 * Two paths: a plan to read blocks once, each in CXL and on NVMe, out of an HBM tier of an eighth
 * of them, as fast as they come. Copies at 22 GB/s (a CXL link of 8 lanes), reads at 14 (one Gen5
 * drive), both at a time, against the better link alone, kept full; said beside it: either path.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/micro/paths.h"
#include "bench/model/planrun.h"
#include "bench/trace/trace.h"
#include "libtier/base/time.h"
#include "tierd/core/belady.h"

#define PAGE_BYTES (512u << 10)
#define READ_GBPS 6.0
#define BLOCK_NS 87382ull /* a block at 6 GB/s */
#define COMPUTE_NS (BLOCK_NS * 5 / 4)
#define SHARE 10u

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
	uint64_t tier_bytes = (uint64_t)(distinct / SHARE) * PAGE_BYTES;
	struct plan_run run = {
		.host = { .cxl_bytes = tier_bytes,
			  .nvme_bytes = (uint64_t)distinct * PAGE_BYTES * 3 / 2 + (8ull << 30),
			  .layers = 1, .page_bytes = PAGE_BYTES, .read_gbps = READ_GBPS,
			  .write_gbps = 4, .copy_gbps = 20, .latency_ns = 80000 },
		.seq = seq, .count = count, .distinct = distinct, .tier = ABI_TIER_CXL,
		.budget = tier_bytes, .mode = PLAN_RIGHT, .compute_ns = COMPUTE_NS,
	};
	double ns = 0, each = 1e5 / count;
	uint32_t misses = belady_misses(seq, count, distinct / SHARE, &ns);
	struct plan_outcome none, right, shuffle;
	int err = plan_run(&run, &right);

	run.mode = PLAN_NONE;
	if (!err)
		err = plan_run(&run, &none);
	run.mode = PLAN_SHUFFLED;
	if (!err)
		err = plan_run(&run, &shuffle);
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
	if (!err)
		err = paths(b);
	return err ? err : paths_real(b);
}
