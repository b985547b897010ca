/*
 * What the daemon had not answered when it handed over, asked again of the next one: in the order
 * in which it was asked, with arguments and bytes moved to that attachment's staging arena. What
 * was answered is not here, since a daemon's last answers are taken before (attach_fail). All
 * operations bear it:
 *
 *   fetch, prefetch, migrate, delete, pin, drain, cancel, turns of a conversation: as they are; the
 *       next daemon knows the same blocks
 *   a put: blocks that the former daemon had are handed over, and found; a commit reserves first
 *   unpin, abort, a reservation's end: what they end has ended with the former daemon
 *   pins and reservations that were given: promise.c
 *   stream: goes on at the layers that its reader has not released
 *   plan: is begun anew by its own call
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/src/attach.h"
#include "libtier/src/context.h"
#include "libtier/src/promise.h"
#include "libtier/src/put.h"
#include "libtier/src/stream.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

#define ENDED 1 /* answered at once, with 0 */

/* ---- moving ---------------------------------------------------------------------------------- */

/* A piece of the staging arena, from one attachment's to the present one's. */
static int move_piece(struct tier *t, struct attachment *from, struct request_piece *piece,
		      enum arena_end end) REQUIRES(t->lock)
{
	struct attachment *a = connection_attachment(t);
	uint64_t start;

	if (piece->bytes == 0)
		return 0;
	if (arena_alloc(&a->arena, piece->bytes, end, &start) != 0)
		return -EAGAIN;
	memcpy(a->staging + start, from->staging + piece->start, piece->bytes);
	arena_free(&from->arena, piece->start, piece->bytes);
	piece->start = start;
	return 0;
}

/* Its arguments are of no use there: what the request holds goes back to the arena it is in. */
static void drop_pieces(struct attachment *from, struct request *rq)
{
	if (rq->arg.bytes > 0)
		arena_free(&from->arena, rq->arg.start, rq->arg.bytes);
	if (rq->data.bytes > 0)
		arena_free(&from->arena, rq->data.start, rq->data.bytes);
	rq->arg.bytes = rq->data.bytes = 0;
}

static const struct map *map_before(const struct attachment *from, const struct tier_context *c)
{
	list_each(at, &from->maps) {
		const struct map *m = list_entry(at, struct map, link);

		if (context_has(c, m))
			return m;
	}
	return NULL;
}

/*
 * References to blocks, where a context's salt is another one: as if the caller had given them only
 * now, they name nothing.
 */
static void resalt(const struct attachment *a, const struct request *rq, uint32_t change)
{
	uint64_t unit = rq->sqe.op == ABI_OP_FETCH_PAGES ? sizeof(struct abi_page_ref)
							 : sizeof(struct abi_block_ref);
	uint64_t skip = rq->sqe.op == ABI_OP_CONVERSATION ? sizeof(struct abi_conversation_args)
							  : 0;
	uint8_t *at = a->staging + rq->arg.start;

	if (!change || rq->sqe.flags & ABI_SQE_KEYS || rq->sqe.op == ABI_OP_PUT_RESERVE ||
	    rq->sqe.op == ABI_OP_RESERVE)
		return;
	for (uint64_t i = skip; i + unit <= rq->arg.bytes; i += unit) {
		struct abi_block_ref ref;

		memcpy(&ref, at + i, sizeof(ref));
		ref.generation ^= change;
		memcpy(at + i, &ref, sizeof(ref));
	}
}

/* ---- one request ----------------------------------------------------------------------------- */

/* The entry as it is in this stage. */
static struct abi_sqe entry_of(const struct request *rq)
{
	struct abi_sqe e = rq->sqe;

	if (rq->reserving)
		e = (struct abi_sqe){ .op = ABI_OP_PUT_RESERVE,
				      .klass = e.klass,
				      .flags = rq->put->plan.flags,
				      .context_id = e.context_id,
				      .deadline_ns = e.deadline_ns,
				      .count = e.count };
	if (rq->reserving || rq->sqe.op != ABI_OP_PUT_COMMIT) {
		e.arg_offset = rq->arg.bytes ? rq->arg.start : 0;
		e.arg_bytes = (uint32_t)rq->arg.bytes;
	} else {
		e.arg_offset = rq->data.start;
	}
	e.user_data = rq->wire_id;
	return e;
}

/* A put whose daemon has gone: its keys first. */
static int commit_one(struct tier *t, struct attachment *from, struct request *rq)
	REQUIRES(t->lock)
{
	struct attachment *a = connection_attachment(t);
	struct tier_put *p = rq->put;
	uint64_t keys = (uint64_t)p->count * sizeof(*p->keys), bytes = sizeof(p->plan.args) + keys;
	int rc;

	if (!p->c || context_map(p->c)->lost)
		return -ENOENT;
	if (p->placed)
		return -ENOTCONN; /* bytes of it lie where the former daemon wanted them */
	rq->sqe.context_id = context_map(p->c)->context_id;
	rq->reserving = p->number != a->number;
	if (rq->reserving) {
		if (arena_alloc(&a->arena, bytes, ARENA_HIGH, &rq->arg.start) != 0)
			return -EAGAIN;
		rq->arg.bytes = bytes;
		memcpy(a->staging + rq->arg.start, &p->plan.args, sizeof(p->plan.args));
		memcpy(a->staging + rq->arg.start + sizeof(p->plan.args), p->keys, keys);
	}
	rc = move_piece(t, from, &rq->data, ARENA_LOW);
	if (rc && rq->arg.bytes)
		arena_free(&a->arena, rq->arg.start, rq->arg.bytes);
	if (rc)
		rq->arg.bytes = 0;
	return rc;
}

/* ENDED, or an error: it is not asked again. */
static int again_one(struct tier *t, struct attachment *from, struct request *rq)
	REQUIRES(t->lock)
{
	const struct map *before, *now;
	int rc;

	if (rq->owner == REQUEST_ORPHAN)
		return -ENOTCONN;
	switch (rq->sqe.op) {
	case ABI_OP_UNPIN:
	case ABI_OP_PUT_ABORT:
		return ENDED;
	case ABI_OP_PLAN:
		return rq->sqe.mode == ABI_PLAN_END ? ENDED : -ENOTCONN;
	case ABI_OP_STREAM:
		rc = stream_move(t, rq);
		if (rc)
			return rc;
		break;
	case ABI_OP_RESERVE:
		if (rq->sqe.handle)
			return ENDED;
		break;
	case ABI_OP_PUT_RESERVE:
		rq->sqe.handle = 0; /* the reservation is being asked again */
		break;
	case ABI_OP_PUT_COMMIT:
		return commit_one(t, from, rq);
	default:
		break;
	}
	if (!rq->named)
		return move_piece(t, from, &rq->arg, ARENA_HIGH);
	now = rq->context ? context_map(rq->context) : NULL;
	if (!now || now->lost)
		return -ENOENT;
	rq->sqe.context_id = now->context_id;
	rc = move_piece(t, from, &rq->arg, ARENA_HIGH);
	before = map_before(from, rq->context);
	if (rc == 0)
		resalt(connection_attachment(t), rq, (before ? before->salt : 0) ^ now->salt);
	return rc;
}

/* ---- all of them ----------------------------------------------------------------------------- */

void again_push(struct tier *t)
{
	struct attachment *a = connection_attachment(t);
	struct done_list *waiting = &t->requests.waiting;
	bool pushed = false;

	while (waiting->count > 0 && !a->dead) {
		struct request *rq = &t->requests.entry[waiting->first];
		struct abi_sqe e = entry_of(rq);
		int rc = ring_push(&a->ring, &e);

		if (rc == -EAGAIN)
			break;
		if (rc) {
			attach_fail(t, a);
			return;
		}
		waiting->first = rq->next;
		waiting->count--;
		pushed = true;
	}
	if (pushed)
		submit_doorbell(a);
}

struct turn_of {
	uint64_t serial;
	struct request *rq;
};

static int compare(const void *a, const void *b)
{
	const struct turn_of *x = a, *y = b;

	return x->serial < y->serial ? -1 : x->serial > y->serial;
}

void again_all(struct tier *t, struct attachment *from)
{
	struct requests *r = &t->requests;
	struct turn_of *turn = calloc(r->count, sizeof(*turn));
	uint32_t n = 0;

	r->waiting = (struct done_list){ .count = 0 };
	for (uint32_t i = 0; i < r->count; i++) {
		struct request *rq = &r->entry[i];

		if (rq->state == REQUEST_FLYING && rq->promise) {
			drop_pieces(from, rq);
			again_finish(t, rq, &(struct abi_cqe){ .res = -ENOTCONN });
		} else if (rq->state == REQUEST_FLYING && turn)
			turn[n++] = (struct turn_of){ rq->wire_id & ~REQUEST_SYNC, rq };
		else if (rq->state == REQUEST_FLYING)
			drop_pieces(from, rq);
	}
	if (!turn) {
		request_fail_all(t, -ENOTCONN);
		return;
	}
	qsort(turn, n, sizeof(*turn), compare);
	promise_ask_again(t);
	for (uint32_t i = 0; i < n; i++) {
		int rc = again_one(t, from, turn[i].rq);

		if (rc == 0) {
			again_wait(t, turn[i].rq);
			continue;
		}
		drop_pieces(from, turn[i].rq);
		turn[i].rq->reserving = false;
		rc = rc == ENDED ? 0 : rc == -EAGAIN ? -ENOTCONN : rc;
		again_finish(t, turn[i].rq, &(struct abi_cqe){ .res = rc });
	}
	free(turn);
	again_push(t);
	wait_moved(t);
}

bool again_promise(struct tier *t, struct tier_context *c, const struct abi_sqe *sqe,
		   const void *args, uint32_t bytes, struct promise *p)
{
	struct attachment *a = connection_attachment(t);
	const struct submission s = { .context = c, .entry = *sqe, .owner = REQUEST_ORPHAN,
				      .args.count = sqe->count };
	struct request_piece arg = { .bytes = bytes };
	struct request *rq;

	if (context_map(c)->lost || arena_alloc(&a->arena, bytes, ARENA_HIGH, &arg.start) != 0)
		return false;
	rq = again_take(t, &s);
	if (!rq) {
		arena_free(&a->arena, arg.start, arg.bytes);
		return false;
	}
	memcpy(a->staging + arg.start, args, bytes);
	rq->arg = arg;
	rq->promise = p;
	rq->sqe.context_id = context_map(c)->context_id;
	again_wait(t, rq);
	return true;
}

int again_commit(struct tier *t, const struct submission *s, struct attachment *from,
			 struct request **out)
{
	struct request *rq = again_take(t, s);
	int rc;

	if (!rq)
		return -EAGAIN;
	rq->data = s->data;
	rq->put = s->put;
	rc = commit_one(t, from, rq);
	if (rc) {
		rq->put = NULL;
		rq->data.bytes = 0;
		again_give(t, rq);
		return rc;
	}
	t->requests.submitted++;
	again_wait(t, rq);
	again_push(t);
	if (out)
		*out = rq;
	return 0;
}
