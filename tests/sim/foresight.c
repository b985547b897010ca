/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be true of foresight: bytes are committed for a prefetch only once it is near enough to
 * its deadline (P2), by an estimate made here from all that is outstanding, with room to spare; and
 * a prefetch that says READY has brought what it was asked for.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world_priv.h"
#include "tierd/core/unit/page.h"
#include "tierd/core/io/sched.h"

#define SPARE_NS (120 * MSEC) /* the core's own margins are below this */
#define ASK_BYTES (WORLD_RUN * 7ull * PAGE)

/* ---- conversations ------------------------------------------------------------------------ */

void foresight_conversation(struct world *w, uint32_t client, struct ask *a, struct abi_sqe *sqe)
{
	struct world_conversation *s = &w->conversation[sqe->handle];
	const struct abi_conversation_args *args =
		(const struct abi_conversation_args *)(w->client[client].staging + sqe->arg_offset);
	bool end = sqe->mode == ABI_CONVERSATION_TURN_END;

	a->shard = sqe->mode == ABI_CONVERSATION_RETURN ? 1 + (uint32_t)sqe->handle : 0;
	w->conversation_was = *s;
	if (!s->away && !end)
		return; /* not known */
	if (sqe->mode == ABI_CONVERSATION_RETURN)
		s->rest_ns = w->now_ns + 21000 * MSEC;
	s->away = sqe->mode != ABI_CONVERSATION_CLOSE;
	s->client = client;
	if (!end)
		return;
	s->context = a->context;
	s->count = a->count;
	memcpy(s->ref, args + 1, a->count * sizeof(s->ref[0]));
	s->use_ns = args->return_ns;
	s->patience_ns = w->now_ns + 3 * (args->return_ns - w->now_ns) + 1100 * MSEC;
}

/* It is another's: nothing has changed. READY: so many layers are there, of every block. */
void foresight_conversation_answered(struct world *w, const struct ask *a,
				     const struct abi_cqe *cqe)
{
	const struct world_conversation *s = a->shard ? &w->conversation[a->shard - 1] : NULL;

	if (cqe->res == -EBUSY)
		w->conversation[a->handle] = w->conversation_was;
	if (!s || cqe->res || cqe->status != ABI_STATUS_READY || !cqe->aux)
		return;
	for (uint32_t n = 0; n < s->count; n++)
		for (uint32_t page = 0; page < 4 && page / 2 < cqe->aux; page++)
			if (page_state(model_desc(w, s->context, s->ref[n].slot, page),
				       ABI_TIER_CXL) != ABI_PAGE_READY)
				world_fail(w, "conversation: READY without block %u page %u", n,
					   page);
}

/* Its conversations end; what is moving for them lands within moments. */
void foresight_died(struct world *w, uint32_t client)
{
	for (uint32_t i = 0; i < WORLD_CONVERSATIONS; i++) {
		if (w->conversation[i].client == client)
			w->conversation[i].away = false;
		if (w->conversation[i].holder == client)
			w->conversation[i].known_ns = 0;
	}
	memset(w->client[client].plan, 0, sizeof(w->client[client].plan));
}

static bool conversation_may(const struct world *w, const struct world_conversation *s)
{
	if (w->now_ns < s->rest_ns)
		return true;
	return s->away && s->use_ns <= w->now_ns + w->lead_ns && s->patience_ns > w->now_ns;
}

/* ---- plans -------------------------------------------------------------------------------- */

void foresight_plan(struct world *w, uint32_t client, const struct ask *a,
		    const struct abi_cqe *cqe)
{
	uint64_t *plan = &w->client[client].plan[a->shard];

	if (a->first == ABI_PLAN_BEGIN && !cqe->res) {
		*plan = cqe->value;
		w->client[client].plan_context[a->shard] = a->context;
	}
	if (a->first == ABI_PLAN_END || cqe->res == -ENOENT)
		*plan = 0;
	if (a->first == ABI_PLAN_END && !cqe->res && cqe->value > 100 * WORLD_ACCESSES)
		world_fail(w, "plan: it ended at access %llu", (unsigned long long)cqe->value);
}

static bool plans_may(const struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_PLANS; i++)
			if (w->client[c].plan[i])
				return true;
	return false;
}

/* Nobody protects anything beyond its time. */
static void pin_tell(struct world *w)
{
	struct core_pin_view p;

	for (uint32_t i = 0; core_pin_view(w->core, i, &p) == 0; i++)
		if (p.deadline_ns + 200 * MSEC + w->patience_ns < w->now_ns)
			world_fail(w, "P7: a pin outlives its deadline by %llu ms",
				   (unsigned long long)((w->now_ns - p.deadline_ns) / MSEC));
}

void foresight_quiet(struct world *w)
{
	pin_tell(w);
}

/* On a host at rest what a return asked for comes within moments. */
void foresight_rest(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_CONVERSATIONS; i++)
		if (w->conversation[i].rest_ns > w->now_ns + 1000 * MSEC)
			w->conversation[i].rest_ns = w->now_ns + 1000 * MSEC;
}

static void plan_end(struct world *w, uint32_t client, uint32_t which)
{
	struct world_client *k = &w->client[client];
	struct core_event e = { .kind = CORE_EV_REQUEST };
	uint32_t i = 0;

	while (i < WORLD_ASKS && k->ask[i].kind != ASK_NONE)
		i++;
	if (i == WORLD_ASKS)
		return;
	k->ask[i] = (struct ask){ .kind = ASK_OTHER, .op = ABI_OP_PLAN, .first = ABI_PLAN_END,
				  .shard = which, .deadline_ns = UINT64_MAX };
	e.request.client = client;
	e.request.sqe = (struct abi_sqe){ .op = ABI_OP_PLAN, .user_data = i, .mode = ABI_PLAN_END,
					  .handle = k->plan[which], .tier = ABI_TIER_CXL };
	e.request.sqe.context_id = w->context[k->plan_context[which]].id;
	world_event(w, &e);
}

/* Everyone has rested for long: what was answered moves nothing any more, and plans end. */
void foresight_settle(struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++) {
		for (uint32_t i = 0; i < WORLD_ASKS; i++)
			w->client[c].ask[i].may_begin &= w->client[c].ask[i].kind != ASK_NONE;
		for (uint32_t i = 0; w->client[c].state == 1 && i < WORLD_PLANS; i++)
			if (w->client[c].plan[i])
				plan_end(w, c, i);
	}
}

/* ---- parked prefetches -------------------------------------------------------------------- */

/* From when on may any of the outstanding parked prefetches begin? What once may, may for ever. */
void foresight_look(struct world *w)
{
	uint64_t bytes = 0, read, copy;

	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_ASKS; i++)
			if (w->client[c].ask[i].op == ABI_OP_PREFETCH)
				bytes += ASK_BYTES;
	bytes += WORLD_CONVERSATIONS * ASK_BYTES;
	read = sched_ready_ns(w->core, SCHED_READ, 2 * bytes, ABI_CLASS_DEADLINE, 0);
	copy = sched_ready_ns(w->core, SCHED_TO_HBM, 2 * bytes, ABI_CLASS_DEADLINE, 0);
	w->lead_ns = read + copy + SPARE_NS;
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_ASKS; i++) {
			struct ask *a = &w->client[c].ask[i];

			if (a->kind == ASK_OTHER && a->op == ABI_OP_PREFETCH &&
			    a->deadline_ns <= w->now_ns + w->lead_ns)
				a->may_begin = true;
		}
}

void foresight_check(struct world *w)
{
	uint64_t seen = core_metrics(w->core)->prefetch_bytes;

	if (seen == w->foreseen)
		return;
	w->foreseen = seen;
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_ASKS; i++)
			if (w->client[c].ask[i].may_begin)
				return;
	for (uint32_t i = 0; i < WORLD_CONVERSATIONS; i++)
		if (conversation_may(w, &w->conversation[i]))
			return;
	if (plans_may(w))
		return;
	world_fail(w, "P2: bytes were committed when no parked prefetch was due");
}

/*
 * READY: it is all there. What the answer says is protected stays so; the rest is protected by
 * nobody once it is answered (P7), and an eviction of the same event may have taken it. left: pages
 * have left memory in this event.
 */
void foresight_ready(struct world *w, const struct ask *a, const struct abi_cqe *cqe, bool left)
{
	uint64_t protected = a->op == ABI_OP_PREFETCH ? cqe->aux : 0;

	if (a->unhurried && a->deadline_ns && cqe->status == ABI_STATUS_LATE &&
	    !model_clogged(w) && !inside_no_room(w, a, a->shard))
		world_fail(w, "P2: a prefetch is late on a host at rest");
	if (cqe->res || cqe->status != ABI_STATUS_READY || cqe->value != a->count)
		return;
	for (uint32_t n = 0; n < (left ? protected : a->count); n++) {
		uint32_t slot;
		const struct abi_block *b = model_find(w, a->context, a->first + n, &slot);

		for (uint32_t page = 0; b && page < 4; page++)
			if ((a->pages ? a->pages : ~0ull) >> page & 1 &&
			    abi_word_state(model_desc(w, a->context, slot, page)->word[a->shard]) !=
				    ABI_PAGE_READY)
				world_fail(w, "prefetch: READY without key %u page %u",
					   a->first + n, page);
	}
}
