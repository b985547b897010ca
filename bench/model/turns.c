/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ITME's turn sweep as a model: many conversations, turn after turn, on one engine; equal fast
 * memory for a conventional offload (host memory alone, LRU, what has gone is recomputed) and for
 * tier (the same memory as its CXL tier, NVMe behind it). Both are the real core on a modelled
 * host. The ratios of recomputation, copy and device are ITME's (itme.h).
 *
 * A turn of one conversation: restore the prefix block by block (a block that is there is copied;
 * one that is not is recomputed: a late block is an answer), do the turn's own work, put its new
 * blocks. tier knows who comes next: the engine prefetches the next conversation's prefix, with the
 * time of its turn as deadline.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/micro/turns.h"
#include "bench/model/itme.h"
#include "bench/model/model.h"

#define BLOCK_BYTES (16u << 20)
#define LAYERS 4u /* pages of a block; it is there when all are */
#define RECOMPUTE_NS 10000000ull /* a block; the unit of all others */
#define COPY_NS ((uint64_t)(RECOMPUTE_NS * ITME_COPY))
#define WORK_NS ((uint64_t)(RECOMPUTE_NS * ITME_WORK))

struct sweep {
	struct model *m;
	bool tiered; /* NVMe behind the fast memory */
	uint32_t talk, turn, block;
	uint64_t turn_ns;
	bool over;
	double seconds[ITME_TURNS + 1];
};

static uint32_t number(uint32_t talk, uint32_t block)
{
	return talk * ITME_TURNS * ITME_NEW_BLOCKS + block;
}

static uint32_t refs_of(struct sweep *s, uint32_t talk, uint32_t blocks, struct abi_block_ref *ref)
{
	uint32_t n = 0;

	while (n < blocks && model_block(s->m, number(talk, n), &ref[n]))
		n++;
	return n;
}

static void prefetch(struct sweep *s, uint32_t talk, uint32_t turn, uint64_t deadline_ns)
{
	struct abi_block_ref ref[ITME_TURNS * ITME_NEW_BLOCKS];
	struct abi_sqe sqe = { .op = ABI_OP_PREFETCH,
			       .klass = ABI_CLASS_DEADLINE,
			       .tier = ABI_TIER_CXL,
			       .deadline_ns = deadline_ns };

	sqe.count = refs_of(s, talk, (turn - 1) * ITME_NEW_BLOCKS, ref);
	sqe.arg_bytes = sqe.count * (uint32_t)sizeof(ref[0]);
	if (sqe.count)
		model_ask(s->m, &sqe, ref, NULL, NULL);
}

static bool there(struct sweep *s, struct abi_block_ref ref)
{
	uint32_t layer = 0;

	while (layer < LAYERS && model_there(s->m, ref, layer, ABI_TIER_CXL))
		layer++;
	return layer == LAYERS;
}

static void restore(struct model *m, void *arg, const struct abi_cqe *cqe);

static void begin(struct sweep *s)
{
	uint32_t next = (s->talk + 1) % ITME_TALKS, turn = s->turn + (next == 0);
	uint64_t prefix = (uint64_t)(s->turn - 1) * ITME_NEW_BLOCKS;

	s->block = 0;
	s->turn_ns = s->m->now_ns;
	if (s->tiered) {
		if (turn <= ITME_TURNS)
			prefetch(s, next, turn, s->m->now_ns + prefix * COPY_NS + WORK_NS);
	}
	restore(s->m, s, NULL);
}

/* The turn's own work is done: its blocks are stored, the next conversation begins. */
static void finish(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct sweep *s = arg;
	uint32_t from = s->tiered ? (s->turn - 1) * ITME_NEW_BLOCKS : 0;

	(void)cqe;
	/* What was recomputed is put again: those that are there are known to be. */
	model_put(m, number(s->talk, from), s->turn * ITME_NEW_BLOCKS - from);
	s->seconds[s->turn] += (double)(m->now_ns - s->turn_ns) / 1e9;
	if (++s->talk == ITME_TALKS) {
		s->talk = 0;
		s->turn++;
	}
	if (s->turn > ITME_TURNS)
		s->over = true;
	else
		begin(s);
}

static void restore(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct sweep *s = arg;
	struct abi_block_ref ref;
	uint64_t ns = RECOMPUTE_NS;

	(void)cqe;
	if (s->block == (s->turn - 1) * ITME_NEW_BLOCKS) {
		model_at(m, m->now_ns + WORK_NS, finish, s);
		return;
	}
	if (model_block(m, number(s->talk, s->block), &ref) && there(s, ref)) {
		model_read(m, ref, LAYERS);
		ns = COPY_NS;
	}
	s->block++;
	model_at(m, m->now_ns + ns, restore, s);
}

static int one(struct sweep *s, bool tiered, double speed)
{
	const struct model_spec spec = {
		.cxl_bytes = (uint64_t)(ITME_FULL_TURNS * ITME_TALKS * ITME_NEW_BLOCKS) *
			     BLOCK_BYTES,
		.nvme_bytes = tiered ? 2ull * ITME_TALKS * ITME_BLOCKS * BLOCK_BYTES : 0,
		.layers = LAYERS,
		.page_bytes = BLOCK_BYTES / LAYERS,
		.read_gbps = BLOCK_BYTES / (ITME_DEVICE * RECOMPUTE_NS) * speed,
		.write_gbps = BLOCK_BYTES / (ITME_DEVICE * RECOMPUTE_NS) * speed * 12 / 18,
		.copy_gbps = 22,
		.latency_ns = 70000,
		.policy = tiered ? NULL : "lru",
	};
	int err = model_open(&s->m, &spec);

	s->tiered = tiered;
	s->turn = 1;
	if (!err) {
		begin(s);
		while (!s->over && !s->m->failed)
			model_run(s->m, s->m->now_ns + 1000000000);
		err = s->m->failed ? -EIO : 0;
	}
	model_close(s->m);
	return err;
}

static int sweep_rows(struct bench *b, double speed)
{
	char least[BENCH_TEXT], late[BENCH_TEXT];
	struct bench_figure never = { "turns", least, "x", "conventional offload, same fast memory",
				      { BENCH_RATIO_AT_LEAST, 1 } };
	struct bench_figure gain = { "turns", late, "x", "conventional offload, same fast memory",
				     { BENCH_RATIO_AT_LEAST, ITME_GAIN } };
	struct sweep *s = calloc(2, sizeof(*s));
	double worst = 1e9, worst_late = 1e9;
	uint32_t worst_at = 0;
	int err = s ? one(&s[0], false, speed) : -ENOMEM;

	if (!err)
		err = one(&s[1], true, speed);
	for (uint32_t k = 1; !err && k <= ITME_TURNS; k++) {
		double ratio = s[0].seconds[k] / s[1].seconds[k];

		if (ratio < worst) {
			worst = ratio;
			worst_at = k;
		}
		if (k >= ITME_LATE_TURN && ratio < worst_late)
			worst_late = ratio;
		if (k % 5 == 0 || k == 9 || k == 11)
			bench_say("turns: device x %.1f, turn %u: %.3f times the offload's speed",
				  speed, k, ratio);
	}
	free(s);
	if (err)
		return err;
	snprintf(least, sizeof(least),
		 "model: ITME's sweep, worst of turns 1-35 (turn %u), device x %.1f",
		 worst_at, speed);
	snprintf(late, sizeof(late), "model: ITME's sweep, worst of turns %u-35, device x %.1f",
		 ITME_LATE_TURN, speed);
	err = bench_judge_exact(b->results, &never, worst, 1);
	return err ? err : bench_judge_exact(b->results, &gain, worst_late, 1);
}

int bench_turns(struct bench *b)
{
	static const double speeds[] = { 1, 0.5, 2 };
	int err = 0;

	bench_say("turns: recompute 1 : copy 0.331 : device 0.405, %u conversations, memory full "
		  "in turn 10", ITME_TALKS);
	for (uint32_t i = 0; !err && i < 3; i++)
		err = sweep_rows(b, speeds[i]);
	return err ? err : turns_real(b);
}
