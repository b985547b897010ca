/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See talk.h. A turn is ready when no layer kept the engine waiting for more than a millisecond.
 */
#include "bench/model/talk.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"

#define POLL_NS 20000u
#define LATE_NS 1000000u
#define BLOCKS_MOST 64u
#define FOREVER_NS 3600000000000ull

struct user {
	struct talk *talk;
	uint32_t number, turn, layer;
	uint64_t random; /* its own: how long it thinks does not hang on who comes before it */
	uint64_t return_ns, layer_since_ns;
	struct user *next;
	bool late, fetching;
	struct {
		struct abi_conversation_args args;
		struct abi_block_ref ref[BLOCKS_MOST];
	} told;
};

struct talk {
	const struct talk_spec *spec;
	struct model *m;
	struct user *user;
	struct talk_result *out;
	double *response;
	uint32_t done;
	struct user *running, *queue, *queue_tail; /* one engine: in order of arrival */
};

static double uniform(uint64_t *random)
{
	return ((double)(bench_random(random) >> 11) + 1) / 9007199254740994.0;
}

uint64_t talk_random(const struct talk_spec *s, uint32_t user)
{
	return (s->seed * 77777ull + user + 1) * 0x9e3779b97f4a7c15ull | 1;
}

uint64_t talk_think_ns(const struct talk_spec *s, uint64_t *random)
{
	double seconds;

	if (s->heavy) /* median = least * 2^(1 / exponent) */
		seconds = s->think_s / pow(2, 1 / s->sigma) * pow(uniform(random), -1 / s->sigma);
	else
		seconds = s->think_s * exp(s->sigma * sqrt(-2 * log(uniform(random))) *
					   cos(6.283185307179586 * uniform(random)));
	if (seconds > s->think_most_s)
		seconds = s->think_most_s;
	return (uint64_t)(seconds * 1e9);
}

static void ask_refs(struct user *u, uint8_t op, uint8_t klass, uint8_t level, model_fn *done)
{
	struct abi_sqe sqe = { .op = op, .klass = klass, .tier = level };

	sqe.count = u->talk->spec->blocks;
	sqe.arg_bytes = sqe.count * (uint32_t)sizeof(struct abi_block_ref);
	/* A prefetch with a deadline is parked; immediate staging has none. */
	sqe.deadline_ns = op == ABI_OP_PREFETCH ? 0 : u->talk->m->now_ns + FOREVER_NS;
	model_ask(u->talk->m, &sqe, u->told.ref, done, u);
}

static void conversation(struct user *u, uint8_t mode)
{
	struct abi_sqe sqe = { .op = ABI_OP_CONVERSATION,
			       .klass = ABI_CLASS_SPECULATIVE,
			       .mode = mode,
			       .handle = u->number,
			       .tier = ABI_TIER_CXL };

	if (mode == ABI_CONVERSATION_TURN_END) {
		sqe.count = u->talk->spec->blocks;
		sqe.arg_bytes = (uint32_t)(sizeof(u->told.args) +
					   sqe.count * sizeof(struct abi_block_ref));
	}
	model_ask(u->talk->m, &sqe, &u->told, NULL, NULL);
}

/* ---- a turn ------------------------------------------------------------------------------- */

static void returned(struct model *m, void *arg, const struct abi_cqe *cqe);

/* What the engine says between turns, once the prefix has left. */
static void tell(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct user *u = arg;
	enum talk_mode mode = u->talk->spec->mode;

	(void)m;
	(void)cqe;
	if (mode == TALK_IMMEDIATE)
		ask_refs(u, ABI_OP_PREFETCH, ABI_CLASS_SPECULATIVE, ABI_TIER_CXL, NULL);
	if (mode != TALK_CONVERSATIONS && mode != TALK_HINTED)
		return;
	u->told.args.return_ns = mode == TALK_HINTED ? u->return_ns : 0;
	u->told.args.layer_ns = u->talk->spec->layer_ns;
	conversation(u, ABI_CONVERSATION_TURN_END);
}

static void think(struct user *u)
{
	struct talk *t = u->talk;

	u->return_ns = t->m->now_ns + talk_think_ns(t->spec, &u->random);
	model_at(t->m, u->return_ns, returned, u);
	if (t->spec->leave)
		ask_refs(u, ABI_OP_MIGRATE, ABI_CLASS_SPECULATIVE, ABI_TIER_NVME, tell);
	else
		tell(t->m, u, NULL);
}

static void start_next(struct talk *t);

static void turn_over(struct user *u)
{
	struct talk *t = u->talk;

	t->running = NULL;
	start_next(t);
	t->response[t->out->turns++] = (double)(t->m->now_ns - u->return_ns);
	t->out->ready += !u->late;
	if (++u->turn == t->spec->turns) {
		t->done++;
		if (t->spec->mode >= TALK_CONVERSATIONS)
			conversation(u, ABI_CONVERSATION_CLOSE);
		return;
	}
	think(u);
}

static bool layer_there(const struct user *u)
{
	for (uint32_t i = 0; i < u->talk->spec->blocks; i++)
		if (!model_there(u->talk->m, u->told.ref[i], u->layer, ABI_TIER_CXL))
			return false;
	return true;
}

static void fetched(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct user *u = arg;

	(void)m;
	(void)cqe;
	u->fetching = false;
}

static void layer(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct user *u = arg;

	(void)cqe;
	if (!layer_there(u)) {
		if (!u->fetching) { /* it left before it was read */
			u->fetching = true;
			ask_refs(u, ABI_OP_FETCH, ABI_CLASS_DEMAND, ABI_TIER_CXL, fetched);
		}
		model_at(m, m->now_ns + POLL_NS, layer, u);
		return;
	}
	u->late |= m->now_ns - u->layer_since_ns > LATE_NS;
	for (uint32_t i = 0; i < u->talk->spec->blocks; i++)
		model_read(m, u->told.ref[i], 1);
	u->layer_since_ns = m->now_ns + u->talk->spec->layer_ns;
	if (++u->layer < m->spec.layers)
		model_at(m, u->layer_since_ns, layer, u);
	else
		turn_over(u);
}

static void start_next(struct talk *t)
{
	struct user *u = t->queue;

	if (t->running || !u)
		return;
	t->running = u;
	t->queue = u->next;
	u->layer = 0;
	u->late = false;
	u->layer_since_ns = t->m->now_ns;
	u->fetching = true;
	ask_refs(u, ABI_OP_FETCH, ABI_CLASS_DEMAND, ABI_TIER_CXL, fetched);
	layer(t->m, u, NULL);
}

/* Back: the turn waits for the engine, and what it needs is asked for meanwhile. */
static void returned(struct model *m, void *arg, const struct abi_cqe *cqe)
{
	struct user *u = arg;
	struct talk *t = u->talk;

	(void)m;
	(void)cqe;
	if (t->spec->mode >= TALK_CONVERSATIONS)
		conversation(u, ABI_CONVERSATION_RETURN);
	else
		ask_refs(u, ABI_OP_FETCH, ABI_CLASS_DEADLINE, ABI_TIER_CXL, NULL);
	u->next = NULL;
	if (t->queue)
		t->queue_tail->next = u;
	else
		t->queue = u;
	t->queue_tail = u;
	start_next(t);
}

/* ---- a run -------------------------------------------------------------------------------- */

static int users_make(struct talk *t)
{
	const struct talk_spec *s = t->spec;
	int err = model_store(t->m, 0, s->users * s->blocks);

	t->user = calloc(s->users, sizeof(*t->user));
	t->response = calloc((size_t)s->users * s->turns, sizeof(*t->response));
	if (!t->user || !t->response)
		return -ENOMEM;
	for (uint32_t n = 0; !err && n < s->users; n++) {
		struct user *u = &t->user[n];

		u->talk = t;
		u->number = n;
		u->random = talk_random(s, n);
		for (uint32_t i = 0; i < s->blocks; i++)
			if (!model_block(t->m, n * s->blocks + i, &u->told.ref[i]))
				return -EIO;
		think(u);
	}
	return err;
}

int talk_run(const struct talk_spec *spec, struct talk_result *out)
{
	struct talk t = { .spec = spec, .out = out };
	uint64_t begin, moved;
	int err = spec->blocks > BLOCKS_MOST ? -EINVAL : model_open(&t.m, &spec->host);

	*out = (struct talk_result){ .turns = 0 };
	if (!err)
		err = users_make(&t);
	if (!err) {
		begin = t.m->now_ns;
		moved = t.m->moved_bytes;
		while (t.done < spec->users && !t.m->failed &&
		       t.m->now_ns < begin + 100 * FOREVER_NS)
			model_run(t.m, t.m->now_ns + 1000000000);
		err = t.m->failed || t.done < spec->users ? -EIO : 0;
		out->byte_seconds = (double)core_metrics(t.m->core)->protected_byte_seconds;
		out->p50_ns = sample_quantile(t.response, out->turns, 0.5);
		out->p95_ns = sample_quantile(t.response, out->turns, 0.95);
		out->device_share = (double)(t.m->moved_bytes - moved) / spec->host.read_gbps /
				    (double)(t.m->now_ns - begin);
	}
	free(t.user);
	free(t.response);
	model_close(t.m);
	return err;
}
