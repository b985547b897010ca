/* SPDX-License-Identifier: Apache-2.0 */
/* A reader with a plan, or without, on a modelled host: what it sees and how long; planrun.h. */
#include "bench/model/planrun.h"

#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"

#define POLL_NS 10000u
#define ACCESSES_PIECE 4000u
#define FOREVER_NS 3600000000000ull

struct reader {
	struct model *m;
	const struct plan_run *run;
	uint32_t at;
	uint64_t stall_ns, begin_ns, asked_ns;
	uint64_t end_ns; /* 0 = not yet */
	struct abi_block_ref *ref; /* by number */
	bool fetching;
};

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
	struct abi_block_ref ref = r->ref[r->run->seq[r->at]];
	struct abi_sqe sqe = { .op = ABI_OP_FETCH,
			       .tier = (uint8_t)r->run->tier,
			       .count = 1,
			       .arg_bytes = sizeof(ref),
			       .deadline_ns = m->now_ns + FOREVER_NS };

	(void)cqe;
	if (!r->asked_ns)
		r->asked_ns = m->now_ns;
	if (!model_there(m, ref, 0, r->run->tier)) {
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
	if (r->at < r->run->count)
		model_at(m, m->now_ns + r->run->compute_ns, read_next, r);
	else
		r->end_ns = m->now_ns;
}

/* ---- a run -------------------------------------------------------------------------------- */

static void planned(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	uint64_t *handle = arg;

	m->failed |= cqe->res != 0;
	*handle = cqe->value;
}

static void submit(struct reader *r, const uint32_t *order)
{
	struct {
		struct abi_plan_args args;
		struct abi_access access[ACCESSES_PIECE];
	} *piece = calloc(1, sizeof(*piece));
	uint64_t handle = 0;

	for (uint32_t at = 0; piece && at < r->run->count; at += ACCESSES_PIECE) {
		uint32_t left = r->run->count - at;
		uint32_t n = left < ACCESSES_PIECE ? left : ACCESSES_PIECE;
		struct abi_sqe sqe = { .op = ABI_OP_PLAN,
				       .mode = at ? ABI_PLAN_APPEND : ABI_PLAN_BEGIN,
				       .handle = handle,
				       .tier = (uint8_t)r->run->tier,
				       .count = n };

		piece->args = (struct abi_plan_args){ .position_offset = MODEL_POSITION,
						      .access_ns = r->run->compute_ns,
						      .budget_bytes = r->run->budget };
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

static int blocks_make(struct reader *r)
{
	struct abi_sqe sqe = { .op = ABI_OP_MIGRATE, .tier = ABI_TIER_NVME };
	uint32_t distinct = r->run->distinct;
	int err = model_store(r->m, 0, distinct);

	for (uint32_t n = 0; !err && n < distinct; n++)
		if (!model_block(r->m, n, &r->ref[n]))
			return -EIO;
	for (uint32_t n = 0; !err && !r->run->in_cxl && n < distinct; n += 8000) {
		sqe.count = distinct - n < 8000 ? distinct - n : 8000;
		sqe.arg_bytes = sqe.count * (uint32_t)sizeof(*r->ref);
		sqe.deadline_ns = r->m->now_ns + FOREVER_NS;
		model_ask(r->m, &sqe, r->ref + n, NULL, NULL);
	}
	model_run(r->m, r->m->now_ns + 5000000000);
	return err;
}

static void outcome(const struct reader *r, const struct core_metrics *before,
		    struct plan_outcome *out)
{
	const struct core_metrics *m = core_metrics(r->m->core);
	uint64_t read = r->m->read_end_ns, copy = r->m->copy_end_ns;

	*out = (struct plan_outcome){
		.seconds = (double)(r->end_ns - r->begin_ns) / 1e9,
		.stall_s = (double)r->stall_ns / 1e9,
		.loads = m->read_pages - before->read_pages,
		.direct_bytes = m->direct_bytes - before->direct_bytes,
		.copied_bytes = m->promoted_bytes - before->promoted_bytes,
		.apart_s = (double)(read > copy ? read - copy : copy - read) / 1e9,
	};
}

static int read_all(struct reader *r, const uint32_t *order, struct plan_outcome *out)
{
	struct core_metrics before = *core_metrics(r->m->core);

	*(uint64_t *)(void *)(r->m->staging + MODEL_POSITION) = 0;
	r->begin_ns = r->m->now_ns;
	if (order)
		submit(r, order);
	model_at(r->m, r->m->now_ns, read_next, r);
	while (!r->end_ns && !r->m->failed)
		model_run(r->m, r->m->now_ns + 10000000);
	outcome(r, &before, out);
	return r->m->failed ? -EIO : 0;
}

int plan_run(const struct plan_run *run, struct plan_outcome *out)
{
	struct reader r = { .run = run };
	uint32_t *wrong = run->mode == PLAN_SHUFFLED ? shuffled(run->seq, run->count) : NULL;
	int err = model_open(&r.m, &run->host);

	r.ref = calloc(run->distinct, sizeof(*r.ref));
	if (!r.ref || (run->mode == PLAN_SHUFFLED && !wrong))
		err = -ENOMEM;
	if (!err)
		err = blocks_make(&r);
	if (!err)
		err = read_all(&r, run->mode == PLAN_NONE ? NULL : wrong ? wrong : run->seq, out);
	free(wrong);
	free(r.ref);
	model_close(r.m);
	return err;
}
