/*
 * Requests: the table, the entry that travels, and what happens when its completion comes. See
 * request.h for the life of one. It publishes through ring.c; who sleeps and who wakes is wait.c's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/request.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/promise.h"
#include "libtier/src/put.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

#define INDEX_BITS 16u
#define RETRY_NS (1 * NS_PER_MS) /* how often to look for room in the submission ring */

/* ---- the table ------------------------------------------------------------------------------- */

int requests_init(struct requests *r, uint32_t count)
{
	assert(count < 1u << INDEX_BITS);
	r->entry = calloc(count, sizeof(*r->entry));
	if (!r->entry)
		return -ENOMEM;
	r->count = count;
	r->free = REQUEST_NONE;
	for (uint32_t i = count; i-- > 0;) {
		r->entry[i].next = r->free;
		r->free = i;
	}
	r->free_count = count;
	return 0;
}

void requests_fini(struct requests *r)
{
	free(r->entry);
}

static struct request *entry_take(struct requests *r, enum request_owner owner)
{
	struct request *rq;
	uint32_t i = r->free;

	if (i == REQUEST_NONE || (owner == REQUEST_CALLER && r->free_count <= REQUEST_SYNC_RESERVE))
		return NULL;
	rq = &r->entry[i];
	r->free = rq->next;
	r->free_count--;
	*rq = (struct request){
		.state = REQUEST_FLYING,
		.owner = (uint8_t)owner,
		.next = REQUEST_NONE,
		.wire_id = (++r->serial << INDEX_BITS | i) & ~REQUEST_SYNC,
	};
	if (owner != REQUEST_CALLER)
		rq->wire_id |= REQUEST_SYNC;
	return rq;
}

static void entry_free(struct requests *r, struct request *rq)
{
	assert(rq->state != REQUEST_FREE);
	rq->state = REQUEST_FREE;
	rq->next = r->free;
	r->free = (uint32_t)(rq - r->entry);
	r->free_count++;
}

static void list_append(struct requests *r, struct done_list *list, uint32_t i)
{
	r->entry[i].next = REQUEST_NONE;
	if (list->count == 0)
		list->first = i;
	else
		r->entry[list->last].next = i;
	list->last = i;
	list->count++;
}

static uint32_t list_take(struct requests *r, struct done_list *list)
{
	uint32_t i = list->first;

	list->first = r->entry[i].next;
	list->count--;
	return i;
}

static void done_push(struct tier *t, struct request *rq) REQUIRES(t->lock)
{
	rq->state = REQUEST_DONE;
	list_append(&t->requests, &queue_of(t, rq->user_data)->done,
		    (uint32_t)(rq - t->requests.entry));
}

void submit_hand_on(struct tier *t, struct done_list *from)
{
	while (from->count > 0) {
		uint32_t i = list_take(&t->requests, from);

		list_append(&t->requests,
			    &queue_of(t, t->requests.entry[i].user_data)->done, i);
	}
}

void submit_take_done(struct tier *t, struct tier_queue *q, struct taken *taken)
{
	struct requests *r = &t->requests;

	for (; taken->count < taken->max && q->done.count > 0; taken->count++) {
		uint32_t i = list_take(r, &q->done);
		struct request *rq = &r->entry[i];

		taken->out[taken->count] = rq->completion;
		if (!rq->pieces) {
			entry_free(r, rq);
			continue;
		}
		rq->state = REQUEST_COPYING;
		rq->at = taken->count;
		list_append(r, &taken->loads, i);
	}
}

void submit_copied(struct tier *t, struct done_list *loads)
{
	while (loads->count > 0)
		entry_free(&t->requests, &t->requests.entry[list_take(&t->requests, loads)]);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static uint64_t args_bytes(const struct request_args *args)
{
	uint64_t bytes = args->put ? sizeof(*args->put) : 0;

	if (args->conversation)
		bytes += sizeof(*args->conversation);
	if (args->plan)
		bytes += sizeof(*args->plan);
	if (args->accesses)
		bytes += (uint64_t)args->count * sizeof(struct abi_access);
	if (args->reserve)
		bytes = sizeof(*args->reserve);
	if (args->keys)
		bytes += (uint64_t)args->count * sizeof(*args->keys);
	if (args->blocks)
		bytes += (uint64_t)args->count * sizeof(struct abi_block_ref);
	if (args->pages || args->pieces)
		bytes += (uint64_t)args->count * sizeof(struct abi_page_ref);
	return bytes;
}

static void accesses_write(uint8_t *to, const struct request_args *args, uint32_t salt)
{
	if (args->plan) {
		memcpy(to, args->plan, sizeof(*args->plan));
		to += sizeof(*args->plan);
	}
	for (uint32_t i = 0; i < args->count; i++) {
		struct abi_access a = { .block.slot = args->accesses[i].block.slot,
					.block.generation =
						args->accesses[i].block.generation ^ salt,
					.time_us = args->accesses[i].time_us };

		memcpy(to + i * sizeof(a), &a, sizeof(a));
	}
}

static void args_write(uint8_t *to, const struct request_args *args, uint32_t salt)
{
	if (args->accesses)
		accesses_write(to, args, salt);
	if (args->reserve)
		memcpy(to, args->reserve, sizeof(*args->reserve));
	if (args->put) {
		memcpy(to, args->put, sizeof(*args->put));
		to += sizeof(*args->put);
	}
	if (args->conversation) {
		memcpy(to, args->conversation, sizeof(*args->conversation));
		to += sizeof(*args->conversation);
	}
	if (args->keys)
		memcpy(to, args->keys, args->count * sizeof(*args->keys));
	for (uint32_t i = 0; args->blocks && i < args->count; i++) {
		struct abi_block_ref ref = { args->blocks[i].slot,
					     args->blocks[i].generation ^ salt };

		memcpy(to + i * sizeof(ref), &ref, sizeof(ref));
	}
	for (uint32_t i = 0; (args->pages || args->pieces) && i < args->count; i++) {
		const struct tier_page *page = args->pages ? &args->pages[i] :
							     &args->pieces[i].page;
		struct abi_page_ref ref = { .slot = page->block.slot,
					    .generation = page->block.generation ^ salt,
					    .page = page->page };

		memcpy(to + i * sizeof(ref), &ref, sizeof(ref));
	}
}

struct request *again_take(struct tier *t, const struct submission *s)
{
	struct request *rq = entry_take(&t->requests, s->owner);

	if (!rq)
		return NULL;
	rq->user_data = s->user_data;
	rq->sqe = s->entry;
	rq->sqe.count = s->args.count;
	rq->named = s->context;
	rq->context = s->context;
	rq->pieces = s->args.pieces;
	rq->count = s->args.count;
	rq->error = s->error;
	return rq;
}

void again_give(struct tier *t, struct request *rq)
{
	entry_free(&t->requests, rq);
}

void again_wait(struct tier *t, struct request *rq)
{
	list_append(&t->requests, &t->requests.waiting, (uint32_t)(rq - t->requests.entry));
}

void again_forget_context(struct tier *t, const struct tier_context *c)
{
	promise_forget(t, c);
	for (uint32_t i = 0; i < t->requests.count; i++) {
		struct request *rq = &t->requests.entry[i];

		if (rq->context == c)
			rq->context = NULL;
		if (rq->put && rq->put->c == c)
			rq->put->c = NULL;
	}
	list_each(at, &t->puts) {
		struct tier_put *p = list_entry(at, struct tier_put, link);

		if (p->c == c)
			p->c = NULL;
	}
}

/* ---- submitting ------------------------------------------------------------------------------ */

uint64_t submit_until(uint64_t deadline_ns, uint64_t default_ns)
{
	uint64_t now = time_now_ns();

	if (deadline_ns == 0)
		return now + default_ns;
	/* Even a deadline in the past is the daemon's to judge: what is there is there. */
	if (deadline_ns < now)
		deadline_ns = now;
	return deadline_ns > UINT64_MAX - SUBMIT_GRACE_NS ? UINT64_MAX :
							     deadline_ns + SUBMIT_GRACE_NS;
}

int submit_check_user_data(uint64_t user_data)
{
	if (user_data & REQUEST_SYNC)
		return error_note(-EINVAL, "request: the top bit of user_data must be 0");
	return 0;
}

void submit_doorbell(struct attachment *a)
{
	const uint64_t one = 1;

	if (!ring_must_ring(&a->ring))
		return;
	/* An eventfd that is full has been rung. */
	if (write(a->doorbell, &one, sizeof(one)) != sizeof(one))
		return;
}

/* The arguments' room in the arena, written. */
static int place_args(struct attachment *a, const struct submission *s, struct request *rq,
		      uint32_t salt)
{
	uint64_t bytes = args_bytes(&s->args);

	if (bytes == 0)
		return 0;
	if (arena_alloc(&a->arena, bytes, ARENA_HIGH, &rq->arg.start) != 0)
		return error_note(-EAGAIN, "request: the staging arena has no room for arguments; "
					   "wait for completions");
	rq->arg.bytes = bytes;
	args_write(a->staging + rq->arg.start, &s->args, salt);
	return 0;
}

static int publish(struct attachment *a, const struct submission *s, struct request *rq)
{
	const struct map *m = s->context ? context_map(s->context) : NULL;
	struct abi_sqe e = s->entry;
	int rc = place_args(a, s, rq, m ? m->salt : 0);

	if (rc)
		return rc;
	e.user_data = rq->wire_id;
	e.context_id = m ? m->context_id : e.context_id;
	e.count = s->args.count;
	rq->sqe = e;
	if (rq->arg.bytes > 0) {
		e.arg_offset = rq->arg.start;
		e.arg_bytes = (uint32_t)rq->arg.bytes;
	}
	rc = ring_push(&a->ring, &e);
	if (rc == 0) {
		submit_doorbell(a);
		return 0;
	}
	if (rq->arg.bytes > 0)
		arena_free(&a->arena, rq->arg.start, rq->arg.bytes);
	if (rc == -EAGAIN)
		return error_note(rc, "request: the ring is full; take completions, or connect "
				      "with more requests");
	/* Our own entry goes with attach_fail, for it is flying. */
	return -EPROTO;
}

int submit_entry(struct tier *t, const struct submission *s, struct request **out)
{
	struct attachment *a = connection_attachment(t);
	struct request *rq;
	int rc;

	if (a->dead)
		return error_note(-ENOTCONN, "the daemon is away");
	if (s->context && context_map(s->context)->lost)
		return error_set(-ENOENT, "context %s is not there since the daemon was restarted",
				 s->context->name);
	again_push(t);
	if (t->requests.waiting.count > 0)
		return error_note(-EAGAIN, "request: earlier ones are being asked again; take "
					   "completions");
	rq = again_take(t, s);
	if (!rq)
		return error_note(-EAGAIN, "request: too many are under way or not yet taken; "
					   "take completions");
	rc = publish(a, s, rq);
	if (rc) {
		entry_free(&t->requests, rq);
		if (rc != -EPROTO)
			return rc;
		attach_fail(t, a);
		return error_note(-ENOTCONN, "the daemon broke the ring's protocol; re-attaching");
	}
	rq->data = s->data;
	rq->put = s->put;
	t->requests.submitted++;
	if (out)
		*out = rq;
	return 0;
}

int submit_start(struct tier *t, const struct submission *s)
{
	int rc = attach_ensure(t);

	if (rc)
		return rc;
	LOCK_SCOPE(&t->lock);
	submit_collect(t);
	wait_handover(t);
	return submit_entry(t, s, NULL);
}

int submit_wait(struct tier *t, struct request *rq, uint64_t until_ns, struct tier_completion *out)
{
	uint64_t number = connection_attachment(t)->number, now;

	for (;;) {
		submit_collect(t);
		wait_handover(t);
		if (rq->state == REQUEST_DONE)
			break;
		/* Asked again, it may be late, and is answered all the same. */
		if (connection_attachment(t)->number != number)
			until_ns = submit_until(until_ns, 0);
		number = connection_attachment(t)->number;
		now = time_now_ns();
		if (now >= until_ns) {
			rq->owner = REQUEST_ORPHAN;
			return error_note(-ETIMEDOUT, "the daemon did not answer in time; is it "
						      "stopped?");
		}
		wait_step(t, t->requests.waiting.count > 0 && now + RETRY_NS < until_ns ?
				     now + RETRY_NS : until_ns);
	}
	*out = rq->completion;
	entry_free(&t->requests, rq);
	return 0;
}

void submit_forget(struct tier *t, struct request *rq)
{
	if (rq->state == REQUEST_DONE)
		entry_free(&t->requests, rq);
	else
		rq->owner = REQUEST_ORPHAN;
}

int submit_call(struct tier *t, const struct submission *s, uint64_t until_ns,
		struct tier_completion *out)
{
	struct submission own = *s;
	struct request *rq;
	int rc = attach_ensure(t);

	if (rc)
		return rc;
	own.owner = REQUEST_WAITER;
	LOCK_SCOPE(&t->lock);
	submit_collect(t);
	wait_handover(t);
	while ((rc = submit_entry(t, &own, &rq)) == -EAGAIN) {
		uint64_t now = time_now_ns();

		if (now >= until_ns)
			return rc;
		/* Room in the submission ring comes without a wake-up. */
		wait_step(t, now + RETRY_NS < until_ns ? now + RETRY_NS : until_ns);
		submit_collect(t);
		wait_handover(t);
	}
	return rc ? rc : submit_wait(t, rq, until_ns, out);
}

/* ---- completing ------------------------------------------------------------------------------ */

/* Nobody waits for the handle of this put any more: the daemon may forget it. */
static void abandon_put(struct tier *t, uint64_t handle) REQUIRES(t->lock)
{
	const struct submission s = {
		.entry = { .op = ABI_OP_PUT_ABORT, .klass = ABI_CLASS_DEMAND, .handle = handle },
		.owner = REQUEST_ORPHAN,
	};

	/* Without room for it the put ends at its deadline. */
	(void)submit_entry(t, &s, NULL);
}

/* The next daemon has made room for a put that was committed before: now its bytes. */
static void commit_reserved(struct tier *t, struct request *rq, uint64_t handle)
	REQUIRES(t->lock)
{
	arena_free(&connection_attachment(t)->arena, rq->arg.start, rq->arg.bytes);
	rq->arg.bytes = 0;
	rq->reserving = false;
	rq->sqe.handle = handle;
	again_wait(t, rq);
}

static void finish(struct tier *t, struct request *rq, const struct abi_cqe *c) REQUIRES(t->lock)
{
	struct attachment *a = connection_attachment(t);
	bool orphan = rq->owner == REQUEST_ORPHAN;

	if (rq->reserving && c->res == 0) {
		commit_reserved(t, rq, c->value);
		return;
	}
	rq->number = a->number;
	if (rq->promise)
		promise_answered(t, rq->promise, c);
	else if (c->res == 0 && !orphan)
		promise_keep(t, rq, a->staging + rq->arg.start, c->value);
	rq->promise = NULL;
	put_free(rq->put);
	rq->put = NULL;
	if (rq->arg.bytes > 0)
		arena_free(&a->arena, rq->arg.start, rq->arg.bytes);
	if (rq->data.bytes > 0)
		arena_free(&a->arena, rq->data.start, rq->data.bytes);
	rq->completion = (struct tier_completion){
		.user_data = rq->user_data,
		.result = c->res > 0 ? 0 : c->res,
		.status = c->status,
		.value = c->value,
		.aux = c->aux,
	};
	t->requests.completed++;
	if (rq->owner == REQUEST_CALLER)
		done_push(t, rq);
	else
		rq->state = REQUEST_DONE;
	if (orphan)
		entry_free(&t->requests, rq);
	if (orphan && rq->sqe.op == ABI_OP_PUT_RESERVE && c->res == 0)
		abandon_put(t, c->value);
}

void again_finish(struct tier *t, struct request *rq, const struct abi_cqe *c)
{
	finish(t, rq, c);
}

static int pop_all(struct tier *t, struct attachment *a) REQUIRES(t->lock)
{
	struct abi_cqe c;
	bool moved = false;
	int rc = 0;

	while (!a->dead && (rc = ring_pop(&a->ring, &c)) == 1) {
		uint32_t i = (uint32_t)(c.user_data & ((1u << INDEX_BITS) - 1));
		struct request *rq = i < t->requests.count ? &t->requests.entry[i] : NULL;

		/* What answers nothing of ours is passed over. */
		if (!rq || rq->state != REQUEST_FLYING || rq->wire_id != c.user_data)
			continue;
		finish(t, rq, &c);
		moved = true;
	}
	if (moved)
		wait_moved(t);
	return rc;
}

void submit_answers(struct tier *t, struct attachment *a)
{
	pop_all(t, a);
}

void submit_collect(struct tier *t)
{
	struct attachment *a = connection_attachment(t);

	if (pop_all(t, a) < 0 || (!a->dead && ring_closed(&a->ring)))
		attach_fail(t, a);
	again_push(t);
}

void request_fail_all(struct tier *t, int error)
{
	const struct abi_cqe c = { .res = error };

	t->requests.waiting = (struct done_list){ .count = 0 };
	for (uint32_t i = 0; i < t->requests.count; i++)
		if (t->requests.entry[i].state == REQUEST_FLYING)
			finish(t, &t->requests.entry[i], &c);
	wait_moved(t);
}

int submit_complete(struct tier *t, const struct tier_completion *completion)
{
	struct request *rq = entry_take(&t->requests, REQUEST_CALLER);

	if (!rq)
		return error_note(-EAGAIN, "request: too many completions are not yet taken");
	rq->completion = *completion;
	rq->user_data = completion->user_data;
	done_push(t, rq);
	wait_moved(t);
	return 0;
}

/* Of what is leased: that by readers of contexts which nobody can name any more. */
static const char *removed_share(char text[48], uint8_t percent)
{
	text[0] = '\0';
	if (percent)
		snprintf(text, 48, " (%u %% of contexts that were removed)", percent);
	return text;
}

/* No room: what holds it, as the daemon has counted (abi/ring.h, ABI_HELD_*). */
static int explain_space(const char *what, uint64_t held)
{
	static const char *const names[] = { "HBM", "CXL" };
	const char *whole = "the context's quota";
	uint8_t share[8];
	char removed[48];

	memcpy(share, &held, sizeof(share));
	if (share[ABI_HELD_LIMIT] == ABI_LIMIT_HOST)
		whole = "the whole tier, by all contexts,";
	if (share[ABI_HELD_TIER] == 1 + ABI_TIER_NVME)
		return error_set(-ENOSPC, "%s: no room in the store: %u %% of the context's quota "
				 "is taken; tierctl status shows what its logs hold", what,
				 share[ABI_HELD_USED]);
	if (share[ABI_HELD_TIER] == 1 + ABI_HELD_TABLES)
		return error_set(-ENOSPC, "%s: no memory for more blocks: the tables of %s have "
				 "all that they may (index.size); delete blocks or contexts", what,
				 share[ABI_HELD_LIMIT] == ABI_LIMIT_SALT ?
					 "this salt (three quarters of its context's)" :
				 share[ABI_HELD_LIMIT] == ABI_LIMIT_USER ?
					 "this context's owner" : "all contexts");
	if (share[ABI_HELD_TIER] == 1 + ABI_HELD_CHAIN)
		return error_set(-ENOSPC, "%s: the index holds no more keys that begin with the "
				 "same 16 bytes; make keys with tier_key_chain or "
				 "tier_key_opaque", what);
	if (!share[ABI_HELD_TIER] || share[ABI_HELD_TIER] > ABI_MEM_TIERS)
		return error_set(-ENOSPC, "%s: the daemon answers: %s", what,
				 tier_strerror(-ENOSPC));
	return error_set(-ENOSPC, "%s: no room in %s: %u %% of %s is taken: %u %% pinned, %u %% "
			 "leased%s, %u %% dirty, %u %% reserved; a salt or client may be at its "
			 "own limit; tierctl quota show names the holders, clients who leases",
			 what, names[share[ABI_HELD_TIER] - 1], share[ABI_HELD_USED], whole,
			 share[ABI_HELD_PINNED], share[ABI_HELD_LEASED],
			 removed_share(removed, share[ABI_HELD_REMOVED]), share[ABI_HELD_DIRTY],
			 share[ABI_HELD_RESERVED]);
}

/* No pin: whose limit was met, and what is pinned. */
static int explain_pins(const char *what, uint64_t held)
{
	static const char *const names[] = { "HBM", "CXL" };
	static const char *const whose[ABI_LIMITS] = {
		"somebody", "all contexts (with what is reserved and leased)", "the context",
		"their salt", "this client", "this user"
	};
	uint8_t share[8];

	memcpy(share, &held, sizeof(share));
	if (!share[ABI_HELD_TIER] || share[ABI_HELD_TIER] > ABI_MEM_TIERS ||
	    share[ABI_HELD_LIMIT] >= ABI_LIMITS)
		return error_set(-EDQUOT, "%s: the daemon answers: %s", what,
				 tier_strerror(-EDQUOT));
	return error_set(-EDQUOT, "%s: pins of %s may claim no more of %s; %u %% of the context's "
			 "quota is pinned; tierctl quota show names the holders, pin list the pins",
			 what, whose[share[ABI_HELD_LIMIT]], names[share[ABI_HELD_TIER] - 1],
			 share[ABI_HELD_PINNED]);
}

/* A table is full: who has how many of its entries, and who is to give some back. */
static int explain_table(const char *what, const struct tier_completion *completion)
{
	uint32_t limit = completion->aux >> 8 * ABI_HELD_LIMIT & UINT8_MAX;
	uint32_t used = completion->aux >> ABI_FULL_USED & UINT16_MAX;
	uint32_t most = completion->aux >> ABI_FULL_MOST & UINT16_MAX;

	if (limit == ABI_LIMIT_CLIENT)
		return error_set(completion->result, "%s: this connection has %u, and may have no "
				 "more; end one", what, used);
	if (limit == ABI_LIMIT_USER)
		return error_set(completion->result, "%s: this user has %u of the %u on the host, "
				 "and may have no more; end one of them", what, used, most);
	return error_set(completion->result, "%s: all %u on the host are in use; ask again later",
			 what, most);
}

/* What a plain errno of the daemon's means for what was asked; NULL: no more than its text. */
static const char *meaning(const char *what, int error)
{
	static const struct {
		const char *what; /* NULL: all that are not named before */
		int error;
		const char *text;
	} known[] = {
		{ "unpin", -ENOENT, "no such pin: it has ended, or is not this user's" },
		{ "put", -ENOENT,
		  "its context was removed, or its reservation has ended or is not ours" },
		{ "reserve_end", -ENOENT, "no such reservation: it has ended" },
		{ "reserve", -EDQUOT,
		  "pins and what all reservations may come to would be more than may be promised "
		  "of CXL; ask for less, or again when some have ended" },
		{ "delete", -EDQUOT,
		  "what the context deleted takes as much of the store as it may, until older "
		  "records are moved; again later, or with a larger quota of NVMe" },
		{ "plan", -EINVAL,
		  "the budget is above the context's quota of the tier, or below two blocks" },
		{ "plan", -ENOBUFS,
		  "a plan holds 131,072 accesses and no more; end it, and begin another" },
		{ NULL, -ENOENT,
		  "it is not there any more: its time was over, or its context was removed" },
		{ NULL, -ENOTCONN, "the daemon went away before it answered; ask again" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].error == error && (!known[i].what || !strcmp(known[i].what, what)))
			return known[i].text;
	return NULL;
}

int submit_explain(const char *what, const struct tier_completion *completion)
{
	if (completion->result == -ENOSPC)
		return explain_space(what, completion->aux);
	if (completion->result == -EDQUOT && completion->aux)
		return explain_pins(what, completion->aux);
	if (completion->aux &&
	    (completion->result == -ENOBUFS || completion->result == -EAGAIN))
		return explain_table(what, completion);
	if (completion->result < 0) {
		const char *text = meaning(what, completion->result);

		error_set(completion->result, "%s: %s%s", what, text ? "" : "the daemon answers: ",
			  text ? text : tier_strerror(completion->result));
	}
	return completion->result;
}
