/* SPDX-License-Identifier: Apache-2.0 */
/* ITME's turn sweep on a modelled host (sweep.h). */
#include "bench/model/sweep.h"

#include <errno.h>

#define LAYERS 4u /* pages of a block; it is there when all are */

static uint64_t copy_ns(const struct sweep *s)
{
	return (uint64_t)((double)s->spec.recompute_ns * ITME_COPY);
}

static uint64_t work_ns(const struct sweep *s)
{
	return (uint64_t)((double)s->spec.recompute_ns * ITME_WORK);
}

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

/* ---- the box ------------------------------------------------------------------------------- */

static void pull(struct sweep *s);

static void arrived(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct sweep *s = arg;

	(void)cqe;
	s->link.busy = false;
	model_put(m, s->link.carried, 1);
	pull(s);
}

static uint64_t link_ns(const struct sweep *s)
{
	return (uint64_t)((double)s->spec.recompute_ns * ITME_BOX / s->spec.speed);
}

/*
 * The first block that is worth asking for: of who reads already one that is here before it is
 * read; what computing does faster is not fetched.
 */
static uint32_t first_worth(const struct sweep *s)
{
	if (s->link.talk != s->talk)
		return 0;
	if (link_ns(s) >= s->spec.recompute_ns)
		return s->link.end;
	return s->block + 1 + (uint32_t)(link_ns(s) / copy_ns(s));
}

/* The next block that is missing, if any is: of who reads, then of who is next. */
static void pull(struct sweep *s)
{
	struct abi_block_ref ref;

	while (!s->link.busy && (s->link.block < s->link.end || s->link.next_end)) {
		uint32_t from = first_worth(s), n;

		s->link.block = s->link.block < from ? from : s->link.block;
		if (s->link.block >= s->link.end) {
			s->link.talk = (s->talk + 1) % ITME_TALKS;
			s->link.block = 0;
			s->link.end = s->link.next_end;
			s->link.next_end = 0;
			continue;
		}
		n = number(s->link.talk, s->link.block++);
		if (model_block(s->m, n, &ref) && there(s, ref))
			continue;
		s->link.carried = n;
		s->link.busy = true;
		model_at(s->m, s->m->now_ns + link_ns(s), arrived, s);
	}
}

/* What left since it was asked for the last time is asked for again. */
static void pull_talks(struct sweep *s, uint32_t next_turn)
{
	s->link.talk = s->talk;
	s->link.block = 0;
	s->link.end = (s->turn - 1) * ITME_NEW_BLOCKS;
	s->link.next_end = (next_turn - 1) * ITME_NEW_BLOCKS;
	pull(s);
}

/* ---- a turn -------------------------------------------------------------------------------- */

static void restore(struct model *m, void *arg, const struct abi_cqe *cqe);

static void begin(struct sweep *s)
{
	uint32_t next = (s->talk + 1) % ITME_TALKS, turn = s->turn + (next == 0);
	uint64_t prefix = (uint64_t)(s->turn - 1) * ITME_NEW_BLOCKS;

	s->block = 0;
	s->turn_ns = s->m->now_ns;
	if (s->spec.tiered && turn <= ITME_TURNS)
		prefetch(s, next, turn, s->m->now_ns + prefix * copy_ns(s) + work_ns(s));
	if (s->spec.box && turn <= ITME_TURNS)
		pull_talks(s, turn);
	restore(s->m, s, NULL);
}

/* The turn's own work is done: its blocks are stored, the next conversation begins. */
static void finish(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct sweep *s = arg;
	uint32_t from = s->spec.tiered ? (s->turn - 1) * ITME_NEW_BLOCKS : 0;

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
	uint64_t ns = s->spec.recompute_ns;

	(void)cqe;
	if (s->block == (s->turn - 1) * ITME_NEW_BLOCKS) {
		model_at(m, m->now_ns + work_ns(s), finish, s);
		return;
	}
	if (model_block(m, number(s->talk, s->block), &ref) && there(s, ref)) {
		model_read(m, ref, LAYERS);
		ns = copy_ns(s);
	}
	s->block++;
	model_at(m, m->now_ns + ns, restore, s);
}

int sweep_run(struct sweep *s, const struct sweep_spec *sweep)
{
	double device_ns = ITME_DEVICE * (double)sweep->recompute_ns;
	const struct model_spec spec = {
		.cxl_bytes = (uint64_t)(ITME_FULL_TURNS * ITME_TALKS * ITME_NEW_BLOCKS) *
			     SWEEP_BLOCK_BYTES,
		.nvme_bytes = sweep->tiered ?
				      2ull * ITME_TALKS * ITME_BLOCKS * SWEEP_BLOCK_BYTES : 0,
		.layers = LAYERS,
		.page_bytes = SWEEP_BLOCK_BYTES / LAYERS,
		.read_gbps = SWEEP_BLOCK_BYTES / device_ns * sweep->speed,
		.write_gbps = SWEEP_BLOCK_BYTES / device_ns * sweep->speed * 12 / 18,
		.copy_gbps = 22,
		.latency_ns = 70000,
		.policy = sweep->tiered || sweep->ours ? NULL : "lru",
		.drive = sweep->drive,
	};
	int err = model_open(&s->m, &spec);

	s->spec = *sweep;
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
