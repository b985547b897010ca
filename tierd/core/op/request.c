/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a ring request: take (copy the arguments once, judge the copy), run in steps when woken,
 * answer once, finish when its last byte has stopped moving.
 *
 *   take -> RUN <-> SPACE (room in a memory tier)         answered: the completion was sent
 *             |---> WRITTEN -> SYNC (durable puts)        finished: nothing moves for it any more
 *             |---> PARKED (a prefetch that is not due)
 *             |---> ORDER (drain, cancel)
 *
 * A late fetch is answered at its deadline while its reads still land in our own memory; a put is
 * answered only when its staging is no longer read.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define REQUESTS_SPARED 256u /* for clients, when the core wants some of its own */

/* ---- end ---------------------------------------------------------------------------------- */

static void order_check(struct core *c, uint32_t client);

static void request_free(struct core *c, struct request *r)
{
	uint32_t client = r->client;

	assert(r->answered && !r->outstanding);
	if (r->queued && r->phase == REQUEST_SPACE)
		request_unqueue(c, r);
	if ((r->held || r->stream) && !core_ops[r->sqe.op]->release(c, r)) {
		request_go_on(c, r); /* its step comes back here */
		return;
	}
	if (r->queued)
		return; /* in the run queue: request_run frees it */
	r->phase = REQUEST_FREE;
	r->next = c->requests.free;
	c->requests.free = r;
	assert(c->requests.count > 0);
	if (!--c->requests.count)
		c->requests.high = 0;
	if (client == SCHED_DAEMON) { /* one of our own */
		if (r->charged)
			account_give(c, r->account, NULL, ACCOUNT_REQUESTS);
		return;
	}
	if (c->client[client].connection != r->connection) {
		account_give(c, r->account, NULL, ACCOUNT_REQUESTS);
		return;
	}
	account_give(c, r->account, &c->client[client], ACCOUNT_REQUESTS);
	order_check(c, client);
}

/* Where room was lacking. */
static uint32_t short_of(const struct request *r)
{
	const struct op_ops *op = core_ops[r->sqe.op];

	return op->lacks ? op->lacks(r) : ABI_TIER_CXL;
}

/* Send the completion, once. The request lives on until nothing moves for it. */
void request_answer(struct core *c, struct request *r, int res, uint64_t value, uint64_t aux)
{
	struct core_action *a;

	if (r->answered)
		return;
	r->answered = true;
	if (r->ended)
		r->ended(c, r, value);
	if (res < 0)
		c->metrics.requests_failed++;
	if (c->client[r->client].state != 1 || c->client[r->client].connection != r->connection)
		return;
	a = core_push(c, CORE_AC_COMPLETE);
	a->complete.client = r->client;
	a->complete.cqe.user_data = r->sqe.user_data;
	a->complete.cqe.res = res;
	a->complete.cqe.status = r->status;
	a->complete.cqe.value = value;
	a->complete.cqe.aux = aux;
	if (res == -ENOSPC && r->ctx && aux >> 8 * ABI_HELD_TIER <= ABI_HELD_TABLES)
		a->complete.cqe.aux = quota_holders(c, r->ctx, short_of(r));
}

void request_end(struct core *c, struct request *r, int res, uint64_t value, uint64_t aux)
{
	request_answer(c, r, res, value, aux);
	if (!r->outstanding)
		request_free(c, r);
}

/* An io or a copy of the request is over. */
void request_landed(struct core *c, struct request *r)
{
	assert(r->outstanding > 0);
	r->outstanding--;
	if (r->answered && !r->outstanding)
		request_free(c, r);
	else if (!r->answered && r->phase == REQUEST_RUN)
		request_wake(c, r);
}

/* ---- drain, cancel ------------------------------------------------------------------------ */

static bool concerns(const struct request *order, const struct request *r)
{
	if (r->phase == REQUEST_FREE || r->client != order->client ||
	    r->connection != order->connection || r->seq >= order->seq)
		return false;
	if (r->phase == REQUEST_ORDER)
		return false;
	if (order->sqe.op == ABI_OP_DRAIN)
		return !r->parked; /* a parked one moves nothing yet, and may not for minutes */
	return r->sqe.user_data == order->sqe.handle;
}

static bool order_done(const struct core *c, const struct request *order)
{
	for (uint32_t i = 0; i < c->requests.high; i++)
		if (concerns(order, &c->requests.table[i]))
			return false;
	return true;
}

static void order_check(struct core *c, uint32_t client)
{
	if (!c->requests.orders[client])
		return;
	for (uint32_t i = 0; i < c->requests.high; i++) {
		struct request *r = &c->requests.table[i];

		if (r->phase != REQUEST_ORDER || r->client != client ||
		    r->connection != c->client[client].connection || !order_done(c, r))
			continue;
		c->requests.orders[client]--;
		request_end(c, r, 0, r->total, 0);
		return; /* request_free comes back here for the next one */
	}
}

static void request_order(struct core *c, struct request *r)
{
	bool cancel = r->sqe.op == ABI_OP_CANCEL;

	r->phase = REQUEST_RUN;
	for (uint32_t i = 0; i < c->requests.high; i++) {
		if (!concerns(r, &c->requests.table[i]))
			continue;
		r->total++;
		if (cancel)
			c->requests.table[i].cancelled = true;
	}
	if (cancel && !r->total) {
		request_end(c, r, -ENOENT, 0, 0);
		return;
	}
	r->phase = REQUEST_ORDER;
	c->requests.orders[r->client]++;
	for (uint32_t i = 0; cancel && i < c->requests.high; i++)
		if (concerns(r, &c->requests.table[i]))
			request_abort(c, &c->requests.table[i], -ECANCELED);
	order_check(c, r->client);
}

/* End a request early; puts only once their copies are done. */
void request_abort(struct core *c, struct request *r, int error)
{
	uint32_t client = r->client;

	if (!r->answered) {
		if (!r->error)
			r->error = error;
		r->cancelled = true;
		if (r->phase == REQUEST_SPACE)
			request_unqueue(c, r);
		request_wake(c, r);
	}
	if (r->outstanding)
		sched_withdraw(c, client, r); /* may end it */
}

/* ---- take --------------------------------------------------------------------------------- */

static int context_check(struct core *c, struct request *r)
{
	const struct client *k = &c->client[r->client];
	const struct abi_sqe *q = &r->sqe;

	if (!core_ops[q->op]->context)
		return 0;
	r->ctx = core_context(c, q->context_id);
	if (!r->ctx || r->ctx->closing || !bit_get(k->attached, r->ctx->index))
		return -ENOENT;
	if (core_ops[q->op]->writes && !bit_get(k->writable, r->ctx->index))
		return -EACCES;
	return 0;
}

/* Copy what the entry names, once; from here on only the copy is looked at (I3). */
static int arg_copy(struct core *c, struct request *r)
{
	const struct client *k = &c->client[r->client];
	const struct abi_sqe *q = &r->sqe;
	uint64_t need = core_ops[q->op]->arg_bytes ? core_ops[q->op]->arg_bytes(q) : 0;

	if (!need)
		return 0;
	if (!q->count || q->arg_bytes != need)
		return -EINVAL;
	if (need > ABI_ARG_BYTES_MAX)
		return -E2BIG;
	if (q->arg_offset > k->open.staging_bytes || need > k->open.staging_bytes - q->arg_offset)
		return -EFAULT;
	memcpy(r->arg, k->open.staging + q->arg_offset, need);
	return 0;
}

static int request_check(struct core *c, struct request *r)
{
	const struct abi_sqe *q = &r->sqe;
	const struct op_ops *op = q->op < ABI_OP_COUNT ? core_ops[q->op] : NULL;
	int err;

	if (q->op >= ABI_OP_COUNT || q->klass > ABI_CLASS_SPECULATIVE ||
	    (q->generation && !(op && op->generation)))
		return -EINVAL; /* write-back and clean-up are the daemon's own classes */
	if (!op)
		return -ENOSYS;
	if (q->flags & ~(ABI_SQE_KEYS | ABI_SQE_DURABLE | op->flags))
		return -EINVAL;
	if ((op->tiers && q->tier >= op->tiers) || (op->fits && !op->fits(q)))
		return -EINVAL;
	err = context_check(c, r);
	return err ? err : arg_copy(c, r);
}

static void request_start(struct core *c, struct request *r)
{
	const struct op_ops *op = core_ops[r->sqe.op];

	if (op->begin)
		op->begin(c, r);
	else
		request_end(c, r, 0, 0, 0);
}

static void refuse(struct core *c, uint32_t client, const struct abi_sqe *sqe, int err)
{
	struct core_action *a = core_push(c, CORE_AC_COMPLETE);

	a->complete.client = client;
	memset(&a->complete.cqe, 0, sizeof(a->complete.cqe));
	a->complete.cqe.user_data = sqe->user_data;
	a->complete.cqe.res = err;
	c->metrics.requests_failed++;
}

/* A request of the core's own; the caller fills sqe, arg and what it wants to hear. NULL = none. */
struct request *request_own(struct core *c, struct context *x)
{
	struct request *r = c->requests.free;

	if (c->requests.count >= CORE_REQUESTS_MAX - REQUESTS_SPARED)
		return NULL;
	assert(r);
	c->requests.free = r->next;
	if (c->requests.high <= r - c->requests.table)
		c->requests.high = (uint32_t)(r - c->requests.table) + 1;
	*r = (struct request){
		.arg = r->arg,
		.phase = REQUEST_RUN,
		.client = CORE_CLIENTS_MAX,
		.ctx = x,
		.seq = ++c->requests.seq,
		.since_ns = c->now_ns,
	};
	c->requests.count++;
	return r;
}

void request_take(struct core *c, uint32_t client, const struct abi_sqe *sqe)
{
	struct client *k = &c->client[client];
	struct request *r = c->requests.free;
	int err;

	assert(client < CORE_CLIENTS_MAX);
	if (k->state != 1)
		return;
	c->metrics.requests++;
	if (!r) {
		refuse(c, client, sqe, -EAGAIN);
		return;
	}
	c->requests.free = r->next;
	if (c->requests.high <= r - c->requests.table)
		c->requests.high = (uint32_t)(r - c->requests.table) + 1;
	*r = (struct request){ .arg = r->arg, .phase = REQUEST_RUN, .client = client, .sqe = *sqe };
	r->connection = k->connection;
	r->seq = ++c->requests.seq;
	r->since_ns = c->now_ns;
	r->deadline_ns =
		sqe->deadline_ns ? sqe->deadline_ns : c->now_ns + c->config.request_deadline_ns;
	c->requests.count++;
	r->account = k->account;
	account_take(c, k, ACCOUNT_REQUESTS);
	err = request_check(c, r);
	if (err)
		request_end(c, r, err, 0, 0);
	else
		request_start(c, r);
}

/* ---- run ---------------------------------------------------------------------------------- */

static void request_step(struct core *c, struct request *r)
{
	if (r->answered) {
		if (!r->outstanding)
			request_free(c, r);
		return;
	}
	assert(!r->ctx || !r->ctx->closing || r->error); /* request_context_gone */
	if (core_ops[r->sqe.op]->step) {
		core_ops[r->sqe.op]->step(c, r);
		return;
	}
	assert(r->cancelled);
	request_end(c, r, r->error, 0, 0);
}

/* The first of a queue takes its step. Returns it; it may be another's by now. */
static const struct request *run_first(struct core *c, struct request **head, struct request **tail)
{
	struct request *r = *head;

	*head = r->next;
	if (!*head)
		*tail = NULL;
	r->queued = false;
	request_step(c, r);
	return r;
}

/*
 * Everyone in the queue now takes one step; who wakes meanwhile comes next time, and so do those
 * for whom the event has no time any more.
 */
void request_run(struct core *c)
{
	const struct request *last = c->queues.run_tail, *r = NULL;

	while (c->queues.run_head && r != last) {
		if (r && meter_spent(&c->meter))
			return;
		r = run_first(c, &c->queues.run_head, &c->queues.run_tail);
	}
}

/* Then walks go on, each for what the event has left: once a turn, that of the tick. */
void request_walk(struct core *c)
{
	const struct request *last = c->queues.walk_tail, *r = NULL;

	while (c->queues.walk_head && r != last) {
		if (r && meter_spent(&c->meter))
			return;
		r = run_first(c, &c->queues.walk_head, &c->queues.walk_tail);
	}
}

/*
 * A flush has failed: what anyone has seen written may be dirty again. Who waited for the flush
 * waits for writes that are made again, or, with an error (the store is failing), is told so.
 */
void request_flush_failed(struct core *c, const struct drive *dv)
{
	bool failing = drive_failing(dv), all = failing && drives_failing(c);

	for (uint32_t i = 0; c->requests.count && i < c->requests.high; i++) {
		struct request *r = &c->requests.table[i];
		const struct op_ops *op;
		bool elsewhere;

		if (r->phase == REQUEST_FREE || r->answered)
			continue;
		op = core_ops[r->sqe.op];
		r->syncing = false;
		elsewhere = op->flush_failed && op->flush_failed(r);
		if (r->phase != REQUEST_SYNC)
			continue;
		if ((elsewhere ? all : failing) && !r->error)
			r->error = -EIO;
		request_wake(c, r);
	}
}

/* It needs what these devices, by bits, have been given until now. */
void request_sync_from(struct core *c, struct request *r, uint32_t devices)
{
	r->syncing = true;
	for (uint32_t i = 0; i < CORE_DRIVES_MAX; i++)
		r->sync_seq[i] = i < c->drives && devices >> i & 1 ? c->drive[i]->write_seq : 0;
}

bool request_synced(const struct core *c, const struct request *r)
{
	assert(r->syncing);
	for (uint32_t i = 0; i < c->drives; i++)
		if (c->drive[i]->sync_seq < r->sync_seq[i])
			return false;
	return true;
}

void request_sync_want(struct core *c, const struct request *r)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (c->drive[i]->sync_seq < r->sync_seq[i])
			sync_want(c->drive[i]);
}

/* ---- time and death ----------------------------------------------------------------------- */

void request_tick(struct core *c)
{
	if (!c->requests.count || c->now_ns < c->requests.next_deadline_ns)
		return;
	c->requests.next_deadline_ns = c->now_ns + MS;
	request_wake_space(c); /* what others left may have changed without a word */
	for (uint32_t i = 0; i < c->requests.high; i++) {
		struct request *r = &c->requests.table[i];

		/* Puts see themselves that write-back has given their blocks up. */
		if (r->phase == REQUEST_WRITTEN && r->tomb_seq && tombs_full(c))
			request_abort(c, r, -ENOSPC);
		if (r->phase == REQUEST_FREE || r->answered || r->deadline_ns > c->now_ns)
			continue;
		if (r->phase == REQUEST_ORDER)
			continue; /* bounded by what it waits for */
		r->late = true;
		if (r->phase == REQUEST_SPACE)
			request_unqueue(c, r);
		request_wake(c, r);
	}
}

uint64_t request_next_deadline(const struct core *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; c->requests.count && i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];

		if (r->phase != REQUEST_FREE && !r->answered && r->phase != REQUEST_ORDER &&
		    r->deadline_ns < next)
			next = r->deadline_ns;
	}
	/* Room can come by eviction that only a later look starts. */
	if (c->queues.space_head && next > c->now_ns + MS)
		next = c->now_ns + MS;
	return next;
}

void request_client_open(struct core *c, uint32_t client)
{
	c->requests.orders[client] = 0;
	c->puts.of[client] = (struct client_puts){ .prompt.tail = ABI_SLOT_NONE };
}

void request_client_gone(struct core *c, uint32_t client)
{
	for (uint32_t i = 0; i < c->requests.high; i++) {
		struct request *r = &c->requests.table[i];

		if (r->phase == REQUEST_FREE || r->client != client ||
		    r->connection != c->client[client].connection)
			continue;
		if (r->phase == REQUEST_ORDER) {
			c->requests.orders[client]--;
			r->phase = REQUEST_RUN;
		}
		request_abort(c, r, -ECONNRESET);
	}
}

void request_context_gone(struct core *c, const struct context *x)
{
	for (uint32_t i = 0; i < c->requests.high; i++)
		if (c->requests.table[i].phase != REQUEST_FREE && c->requests.table[i].ctx == x)
			request_abort(c, &c->requests.table[i], -ENOENT);
}

/* What a plan or a conversation asked for. */
void request_owner_gone(struct core *c, const void *owner)
{
	for (uint32_t i = 0; i < c->requests.high; i++) {
		struct request *r = &c->requests.table[i];

		if (r->phase == REQUEST_FREE || r->owner != owner)
			continue;
		r->owner = NULL;
		request_abort(c, r, -ECANCELED);
	}
}

/*
 * A request of the context, or of these one that holds blocks until it ends; or what an operation
 * has left.
 */
static bool any_of(const struct core *c, const struct context *x, bool holds)
{
	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];

		if (r->phase != REQUEST_FREE && r->ctx == x && (!holds || (r->held && !r->parked)))
			return true;
	}
	for (uint32_t op = 0; op < ABI_OP_COUNT; op++)
		if (core_ops[op] && core_ops[op]->keeps && core_ops[op]->keeps(c, x, holds))
			return true;
	return false;
}

bool request_of_context(const struct core *c, const struct context *x)
{
	return any_of(c, x, false);
}

/* Does a request or a stream that will end hold blocks of the context? */
bool request_holds(const struct core *c, const struct context *x)
{
	return any_of(c, x, true);
}

int core_request_view(const struct core *c, uint32_t i, struct core_request_view *out)
{
	for (uint32_t k = 0; k < c->requests.high; k++) {
		const struct request *r = &c->requests.table[k];

		if (r->phase == REQUEST_FREE || i--)
			continue;
		*out = (struct core_request_view){
			.client = r->client,
			.op = r->sqe.op,
			.name = core_ops[r->sqe.op]->name,
			.klass = r->sqe.klass,
			.context_id = r->sqe.context_id,
			.count = r->total ? r->total : r->sqe.count,
			.done = r->cursor,
			.deadline_ns = r->deadline_ns,
			.since_ns = r->since_ns,
		};
		if (core_ops[r->sqe.op]->view)
			core_ops[r->sqe.op]->view(c, r, out);
		return 0;
	}
	return -ENOENT;
}

const char *core_op_name(uint32_t op)
{
	return op < ABI_OP_COUNT && core_ops[op] ? core_ops[op]->name : "?";
}

/* ---- operations ------------------------------------------------------------------------------ */

const struct op_ops op_nop = { .name = "nop" };

const struct op_ops op_cancel = {
	.name = "cancel",
	.begin = request_order,
};

const struct op_ops op_drain = {
	.name = "drain",
	.begin = request_order,
};
