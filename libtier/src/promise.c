/*
 * Pins and reservations are promises of a daemon to a client. They are kept here, as they were
 * asked for, until they end: of a daemon that takes over they are asked again before anything else,
 * and the number that the caller knows stands for the one that this daemon gave.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/promise.h"

#include <stdlib.h>
#include <string.h>

#include "libtier/src/submit.h"

struct promise {
	struct list link; /* tier.promises */
	struct tier_context *c;
	struct abi_sqe sqe; /* its question */
	uint32_t salt;      /* of the context: another one, and its blocks are others */
	uint64_t id;        /* that the caller knows */
	uint64_t now;       /* that the present daemon knows; 0 = it gave none */
	bool asking;        /* the present daemon has not answered */
	bool ended;         /* ... and the caller has no use for it any more */
	uint32_t bytes;
	uint8_t args[];
};

static void promise_drop(struct promise *p)
{
	list_remove(&p->link);
	free(p);
}

static bool has_passed(const struct promise *p)
{
	return p->sqe.deadline_ns && p->sqe.deadline_ns <= time_now_ns();
}

static void drop_passed(struct tier *t) REQUIRES(t->lock)
{
	list_each(at, &t->promises) {
		struct promise *p = list_entry(at, struct promise, link);

		if (has_passed(p) && !p->asking)
			promise_drop(p);
	}
}

void promise_keep(struct tier *t, const struct request *rq, const void *args, uint64_t id)
{
	bool kept = rq->sqe.op == ABI_OP_PIN || (rq->sqe.op == ABI_OP_RESERVE && !rq->sqe.handle);
	struct promise *p;

	if (!kept || !rq->context)
		return;
	drop_passed(t);
	p = malloc(sizeof(*p) + rq->arg.bytes);
	if (!p)
		return; /* it ends with this daemon, then */
	*p = (struct promise){ .c = rq->context, .sqe = rq->sqe, .id = id, .now = id,
			       .salt = context_map(rq->context)->salt,
			       .bytes = (uint32_t)rq->arg.bytes };
	memcpy(p->args, args, rq->arg.bytes);
	list_push_back(&t->promises, &p->link);
}

/* The present daemon is told that nobody needs it. */
static void end(struct tier *t, const struct promise *p) REQUIRES(t->lock)
{
	const struct submission s = {
		.context = p->c,
		.entry = { .op = p->sqe.op == ABI_OP_PIN ? ABI_OP_UNPIN : ABI_OP_RESERVE,
			   .klass = ABI_CLASS_DEMAND,
			   .handle = p->now },
		.owner = REQUEST_ORPHAN,
	};

	/* Without room for it the daemon keeps it until its deadline, or the connection's end. */
	(void)submit_entry(t, &s, NULL);
}

void promise_answered(struct tier *t, struct promise *p, const struct abi_cqe *c)
{
	p->asking = false;
	p->now = c->res == 0 ? c->value : 0;
	if (!p->ended)
		return;
	if (p->now)
		end(t, p);
	promise_drop(p);
}

static struct promise *find(struct tier *t, uint8_t op, uint64_t id) REQUIRES(t->lock)
{
	list_each(at, &t->promises) {
		struct promise *p = list_entry(at, struct promise, link);

		if (p->sqe.op == op && p->id == id && !p->ended)
			return p;
	}
	return NULL;
}

uint64_t promise_now(struct tier *t, uint8_t op, uint64_t id)
{
	const struct promise *p = id ? find(t, op, id) : NULL;

	return !p ? id : p->asking ? 0 : p->now;
}

uint64_t promise_end(struct tier *t, uint8_t op, uint64_t id)
{
	struct promise *p;
	uint64_t now = id;

	LOCK_SCOPE(&t->lock);
	p = find(t, op, id);
	if (!p)
		return id;
	if (p->asking) {
		p->ended = true;
		return 0;
	}
	now = p->now;
	promise_drop(p);
	return now;
}

void promise_ask_again(struct tier *t)
{
	drop_passed(t);
	list_each(at, &t->promises) {
		struct promise *p = list_entry(at, struct promise, link);

		p->now = 0;
		p->asking = p->salt == context_map(p->c)->salt &&
			    again_promise(t, p->c, &p->sqe, p->args, p->bytes, p);
	}
}

void promise_forget(struct tier *t, const struct tier_context *c)
{
	for (uint32_t i = 0; i < t->requests.count; i++)
		if (t->requests.entry[i].promise && t->requests.entry[i].context == c)
			t->requests.entry[i].promise = NULL;
	list_each(at, &t->promises) {
		struct promise *p = list_entry(at, struct promise, link);

		if (!c || p->c == c)
			promise_drop(p);
	}
}
