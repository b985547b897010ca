/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients of the world ask for: puts (whole, sharded, with parts left out, durable or not,
 * abandoned), fetches, pins, deletions, cancels, drains, and entries that are stale or make no
 * sense. What owners do is in owner.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"

void client_attach(struct world *w, uint32_t client)
{
	struct core_context_view view;

	for (uint32_t i = 0; i < WORLD_CONTEXTS; i++) {
		if (!w->context[i].made || w->context[i].removing ||
		    (w->client[client].barred && i == WORLD_BARRED))
			continue;
		if (core_context_find(w->core, i ? "memory" : "store", 0, 0, &view))
			continue;
		view.writable &= !w->client[client].reads_only[i];
		core_context_attach(w->core, client, &view);
	}
}

/* As the front does it: not while walks of the last one go on; nor whose leases keep too much. */
void client_open(struct world *w, uint32_t client)
{
	struct world_client *k = &w->client[client];
	struct core_event e = { .kind = CORE_EV_CLIENT_OPEN };
	char why[256];

	k->state = 0;
	if (!core_client_over(w->core, client) ||
	    core_user_may_connect(w->core, client % 2, why, sizeof(why)))
		return;
	memset(k->ask, 0, sizeof(k->ask));
	memset(k->plan, 0, sizeof(k->plan));
	memset(k->reader, 0, WORLD_READERS * sizeof(*k->reader));
	theirs_lines_anew(w, client);
	e.open = (struct core_client_open){
		.client = client,
		.uid = client % 2,
		.staging = k->staging,
		.staging_bytes = STAGING_BYTES,
		.readers = k->reader,
		.readers_max = WORLD_READERS,
		.streams = k->line,
		.streams_max = WORLD_LINES,
	};
	k->state = 1;
	k->barred = client && world_chance(w, 100000);
	for (uint32_t i = 0; w->faults->wide && i < WORLD_CONTEXTS; i++)
		k->reads_only[i] = client && world_chance(w, 100000);
	world_event(w, &e);
	client_attach(w, client);
}

/* ---- asking ------------------------------------------------------------------------------- */

/* Is a commit of the key under way, or may one come? */
bool client_commits(const struct world *w, uint32_t context, uint32_t n)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_ASKS; i++) {
			const struct ask *a = &w->client[c].ask[i];

			if (a->kind == ASK_COMMIT && a->context == context && n >= a->first &&
			    n < a->first + a->count)
				return true;
		}
	return false;
}

void client_submit(struct world *w, uint32_t client, struct abi_sqe *sqe)
{
	struct core_event e = { .kind = CORE_EV_REQUEST };
	struct ask *a = &w->client[client].ask[sqe->user_data];

	a->submitted = ++w->sequence;
	if (w->client[client].barred && a->op != ABI_OP_COUNT && a->op != ABI_OP_CANCEL &&
	    a->op != ABI_OP_DRAIN && sqe->context_id == w->context[WORLD_BARRED].id)
		a->wild = true;
	if ((a->op == ABI_OP_PUT_RESERVE || a->op == ABI_OP_DELETE || a->op == ABI_OP_RESERVE) &&
	    w->client[client].reads_only[a->context])
		a->wild = true;
	if (w->trace)
		printf("       client %u ask %llu: op %u context %u keys %u+%u flags %x tier %u\n",
		       client, (unsigned long long)sqe->user_data, sqe->op, a->context, a->first,
		       a->count, sqe->flags, sqe->tier);
	e.request.client = client;
	e.request.sqe = *sqe;
	world_event(w, &e);
}

static struct ask *ask_free(struct world *w, uint32_t client, uint32_t *i)
{
	struct world_client *k = &w->client[client];

	for (*i = 0; *i < WORLD_ASKS; (*i)++)
		if (k->ask[*i].kind == ASK_NONE) {
			memset(&k->ask[*i], 0, sizeof(k->ask[*i]));
			k->ask[*i].staging = (uint64_t)*i * ARENA_PIECE;
			k->ask[*i].sequence = ++w->sequence;
			return &k->ask[*i];
		}
	return NULL;
}

static void choose_keys(struct world *w, struct ask *a)
{
	a->context = world_below(w, WORLD_CONTEXTS);
	a->count = w->faults->tight ? WORLD_RUN : 1 + world_below(w, WORLD_RUN);
	a->first = world_below(w, WORLD_KEYS / WORLD_RUN - 1) * WORLD_RUN;
	if (world_chance(w, 300000))
		a->first += world_below(w, WORLD_RUN);
	if (world_chance(w, 400000)) { /* where somebody was just now */
		a->context = w->last_context;
		a->first = w->last_first;
	}
	if (w->context[a->context].removing && world_chance(w, 800000))
		a->context = !a->context;
}

void client_keys(struct world *w, struct ask *a)
{
	if (!a->chosen)
		choose_keys(w, a);
	w->last_context = a->context;
	w->last_first = a->first;
	a->deadline_ns = w->now_ns + 100 * MSEC + world_below(w, 1000) * MSEC;
	if (world_chance(w, 150000)) /* it passes while something of it moves */
		a->deadline_ns = w->now_ns + world_below(w, 4 * MSEC);
}

/*
 * A durable put of what is stored and was promised to nobody: the answer comes soon. Best of all of
 * what lies in the durable log without an answer: a crash may have kept its record alone.
 */
static void ask_unpromised(struct world *w, struct ask *a)
{
	uint32_t n = world_below(w, WORLD_KEYS - WORLD_RUN);
	bool found = false;

	for (uint32_t i = 0; i < 96; i++, n = (n + 1) % (WORLD_KEYS - WORLD_RUN)) {
		struct core_location at;
		uint8_t key[ABI_KEY_BYTES];

		model_key(n, key);
		if (!w->context[0].made || w->context[0].now.key[n].durable ||
		    core_locate(w->core, w->context[0].id, key, &at) || (found && !at.durable))
			continue;
		found = true;
		a->context = 0;
		a->first = n;
		a->durable = true;
		if (at.durable)
			return;
	}
}

static void reserve(struct world *w, uint32_t client, uint32_t i, struct ask *a)
{
	uint8_t *at = w->client[client].staging + a->staging + ARENA_ARGS;
	struct abi_put_args *args = (struct abi_put_args *)at;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .user_data = i };
	uint8_t said;

	a->kind = ASK_RESERVE;
	a->op = ABI_OP_PUT_RESERVE;
	memset(args, 0, sizeof(*args));
	args->count = a->count;
	args->parts = a->parts;
	args->shards = a->shards;
	args->shard = a->shard;
	args->salt = world_salt(a->first);
	said = model_said(w, a, args);
	model_put_anew(w, a);
	model_behind(a->first, args);
	for (uint32_t n = 0; n < a->count; n++) {
		w->context[a->context].now.key[a->first + n].said[args->salt] |= said;
		model_key(a->first + n, (uint8_t *)(args + 1) + n * ABI_KEY_BYTES);
	}
	sqe.context_id = w->context[a->context].id;
	sqe.arg_offset = a->staging + ARENA_ARGS;
	sqe.count = a->count;
	sqe.arg_bytes = (uint32_t)sizeof(*args) + a->count * ABI_KEY_BYTES;
	sqe.flags = a->durable ? ABI_SQE_DURABLE : 0;
	sqe.deadline_ns = a->deadline_ns;
	if (w->client[client].room.id && w->client[client].room.context == a->context &&
	    w->client[client].room.deadline_ns > w->now_ns + MSEC && world_chance(w, 600000))
		sqe.handle = w->client[client].room.id;
	a->epoch = w->context[a->context].epoch;
	client_submit(w, client, &sqe);
}

static void ask_reserve(struct world *w, uint32_t client, uint32_t i, struct ask *a)
{
	client_keys(w, a);
	a->durable = !a->context && (a->chosen || world_chance(w, 300000));
	if (!a->chosen && world_chance(w, 200000))
		ask_unpromised(w, a);
	a->parts = world_chance(w, 300000) ? 3 : 0; /* without the state part */
	if (world_chance(w, 200000)) {
		a->shards = 2;
		a->shard = world_below(w, 2);
	}
	reserve(w, client, i, a);
}

static void ask_commit(struct world *w, uint32_t client, uint32_t i, struct ask *a)
{
	struct abi_sqe sqe = { .op = ABI_OP_PUT_COMMIT, .user_data = i, .handle = a->handle };
	uint64_t bytes;

	if (world_chance(w, 80000)) {
		w->client[client].old_handle = a->handle;
		sqe.op = ABI_OP_PUT_ABORT;
		a->kind = ASK_OTHER;
		a->op = ABI_OP_PUT_ABORT;
		client_submit(w, client, &sqe);
		return;
	}
	bytes = client_put_bytes(w, client, a);
	a->kind = ASK_COMMIT;
	a->op = ABI_OP_PUT_COMMIT;
	a->deadline_ns = w->now_ns + 100 * MSEC + world_below(w, 2000) * MSEC;
	for (uint32_t n = 0; n < a->count; n++) {
		struct world_key *key = &w->context[a->context].now.key[a->first + n];

		key->put_epochs |= 1ull << a->epoch % 64;
		key->put_sequence = ++w->sequence;
		key->deleted = key->voided = false;
	}
	sqe.arg_offset = a->staging;
	sqe.deadline_ns = a->deadline_ns;
	a->wild = world_chance(w, 10000);
	if (a->wild)
		sqe.arg_offset = STAGING_BYTES - world_below(w, 8) % (bytes / ABI_UNIT) * ABI_UNIT;
	else /* refused, the put goes on */
		w->client[client].old_handle = a->handle;
	client_submit(w, client, &sqe);
}

/* Whole puts, one after the other, each to its end. */
void client_fill(struct world *w, uint32_t client, uint32_t which, uint32_t keys)
{
	for (uint32_t first = 0; first + WORLD_RUN <= keys; first += WORLD_RUN) {
		uint32_t i;
		struct ask *a = ask_free(w, client, &i);

		if (!a || !core_accepts(w->core, client))
			return;
		a->context = which;
		a->first = first;
		a->count = WORLD_RUN;
		a->deadline_ns = w->now_ns + 1000 * MSEC;
		reserve(w, client, i, a);
		if (a->kind == ASK_RESERVED)
			ask_commit(w, client, i, a);
		world_settle(w);
	}
}

/* After a restart: a client puts again at once what it had no answer for. */
void client_again(struct world *w)
{
	uint32_t i, client = world_below(w, WORLD_CLIENTS);
	struct ask *a = ask_free(w, client, &i);

	ask_unpromised(w, a);
	if (!a->durable)
		return;
	a->count = 1 + world_below(w, WORLD_RUN);
	a->deadline_ns = w->now_ns + 1000 * MSEC;
	reserve(w, client, i, a);
	if (a->kind == ASK_RESERVED)
		ask_commit(w, client, i, a);
}

/* Foresight looks further ahead than other requests, or says no time at all. */
static void foresee(struct world *w, struct ask *a, struct abi_sqe *sqe)
{
	sqe->klass = ABI_CLASS_DEADLINE;
	a->deadline_ns = w->now_ns + world_below(w, 6000) * MSEC;
	if (world_chance(w, 150000)) {
		sqe->klass = ABI_CLASS_SPECULATIVE;
		a->deadline_ns = 0;
	}
	a->may_begin = !a->deadline_ns || sqe->op == ABI_OP_MIGRATE;
	if (sqe->op == ABI_OP_MIGRATE && world_chance(w, 500000))
		sqe->tier = ABI_TIER_NVME;
	sqe->deadline_ns = a->deadline_ns;
}

/* Blocks by reference instead of key; now and then one that is not there any more. */
static void name_by_refs(struct world *w, struct ask *a, struct abi_sqe *sqe,
			 struct abi_block_ref *ref)
{
	sqe->flags = 0;
	sqe->arg_bytes = a->count * sizeof(*ref);
	for (uint32_t n = 0; n < a->count; n++) {
		uint32_t slot = 0;
		const struct abi_block *b = model_find(w, a->context, a->first + n, &slot);

		ref[n] = (struct abi_block_ref){ slot, b ? b->generation : 0 };
		if (b && world_chance(w, 50000))
			ref[n].generation--;
		a->stale |= !b || ref[n].generation != b->generation;
	}
}

static void ask_by_keys(struct world *w, uint32_t client, uint32_t i, uint8_t op)
{
	struct ask *a = &w->client[client].ask[i];
	uint8_t *at = w->client[client].staging + a->staging + ARENA_ARGS;
	struct abi_sqe sqe = { .op = op, .user_data = i, .flags = ABI_SQE_KEYS };

	if (op == ABI_OP_DELETE && !a->chosen && world_chance(w, 300000))
		habit_gone(w, a);
	client_keys(w, a);
	a->kind = ASK_OTHER;
	a->op = op;
	for (uint32_t n = 0; n < a->count; n++) {
		struct world_key *key = &w->context[a->context].now.key[a->first + n];

		model_key(a->first + n, at + n * ABI_KEY_BYTES);
		if (op != ABI_OP_DELETE)
			continue;
		key->durable = false;
		key->doomed = true;
		if (!key->ghost && !client_commits(w, a->context, a->first + n))
			a->undisputed |= 1u << n;
	}
	sqe.context_id = w->context[a->context].id;
	sqe.arg_offset = a->staging + ARENA_ARGS;
	sqe.count = a->count;
	sqe.arg_bytes = a->count * ABI_KEY_BYTES;
	sqe.tier = a->chosen || world_chance(w, 450000) ? ABI_TIER_HBM : ABI_TIER_CXL;
	sqe.deadline_ns = a->deadline_ns;
	if (op == ABI_OP_FETCH && world_chance(w, 300000))
		sqe.part_count = 1;
	if (op == ABI_OP_FETCH && world_chance(w, 500000))
		sqe.klass = world_chance(w, 500000) ? ABI_CLASS_DEADLINE : ABI_CLASS_SPECULATIVE;
	if (op == ABI_OP_PREFETCH || op == ABI_OP_MIGRATE)
		foresee(w, a, &sqe);
	if (op != ABI_OP_DELETE && world_chance(w, 300000))
		name_by_refs(w, a, &sqe, (struct abi_block_ref *)at);
	if (w->faults->wide)
		wide_range(w, a, &sqe);
	a->wild = op != ABI_OP_DELETE && world_chance(w, 5000);
	if (a->wild)
		sqe.arg_offset = STAGING_BYTES - world_below(w, 8);
	a->shard = sqe.tier;
	path_asked(w, a, &sqe);
	if (op == ABI_OP_STREAM && !streams_ask(w, client, i, &sqe)) {
		a->kind = ASK_NONE; /* all its lines are in use */
		return;
	}
	client_submit(w, client, &sqe);
}

/* Drains and cancels are not cancelled; a reservation that was answered is no request any more. */
static uint64_t cancel_target(const struct ask *a)
{
	bool order = a->op == ABI_OP_CANCEL || a->op == ABI_OP_DRAIN;

	return order || a->kind == ASK_RESERVED ? 0 : a->sequence;
}

static void ask_simple(struct world *w, uint32_t client, uint32_t i, uint8_t op, uint64_t handle)
{
	struct ask *a = &w->client[client].ask[i];
	struct abi_sqe sqe = { .op = op, .user_data = i, .handle = handle };

	a->kind = ASK_OTHER;
	a->op = op;
	a->deadline_ns = UINT64_MAX;
	if (op == ABI_OP_CANCEL)
		a->target = cancel_target(&w->client[client].ask[handle]);
	sqe.context_id = w->context[world_below(w, WORLD_CONTEXTS)].id;
	client_submit(w, client, &sqe);
}

/* Of a put of its own that has ended, or of one that is another client's. */
static uint64_t handle_of_others(struct world *w, uint32_t client)
{
	const struct world_client *k = &w->client[world_below(w, WORLD_CLIENTS)];
	const struct ask *a = &k->ask[world_below(w, WORLD_ASKS)];

	if (k != &w->client[client] && a->kind == ASK_RESERVED)
		return a->handle;
	return w->client[client].old_handle;
}

/* The end of a plan that is another client's, if there is one. */
static void plan_of_others(const struct world *w, uint32_t client, struct abi_sqe *sqe)
{
	const struct world_client *k = &w->client[(client + 1) % WORLD_CLIENTS];

	if (k->state != 1 || !k->plan[0])
		return;
	sqe->op = ABI_OP_PLAN;
	sqe->mode = ABI_PLAN_END;
	sqe->tier = ABI_TIER_CXL;
	sqe->handle = k->plan[0];
	sqe->context_id = w->context[k->plan_context[0]].id;
}

/* An entry that is stale, duplicate, or noise: it gets an answer, and nothing else happens. */
static void ask_nonsense(struct world *w, uint32_t client, uint32_t i)
{
	struct ask *a = &w->client[client].ask[i];
	struct abi_sqe sqe;
	uint64_t *words = (uint64_t *)&sqe;

	for (uint32_t n = 0; n < sizeof(sqe) / 8; n++)
		words[n] = world_random(w);
	sqe.user_data = i;
	if (world_chance(w, 500000)) {
		memset(&sqe, 0, sizeof(sqe));
		sqe.op = world_chance(w, 500000) ? ABI_OP_PUT_COMMIT : ABI_OP_PUT_ABORT;
		sqe.handle = handle_of_others(w, client);
		if (world_chance(w, 200000)) {
			plan_of_others(w, client, &sqe);
		} else if (world_chance(w, 300000)) {
			sqe.op = ABI_OP_UNPIN;
			sqe.handle = w->client[client].old_pin;
			sqe.context_id = w->context[0].id;
		}
		sqe.user_data = i;
		a->wild = true;
	}
	if (sqe.op == ABI_OP_CANCEL)
		sqe.handle |= 1ull << 40;
	if (sqe.op == ABI_OP_DELETE)
		sqe.arg_bytes = 0;
	a->kind = ASK_OTHER;
	a->op = ABI_OP_COUNT;
	a->deadline_ns = UINT64_MAX;
	client_submit(w, client, &sqe);
}

/* Reserve room; hand it back; or hand back what was handed back before. */
static void ask_room(struct world *w, uint32_t client, uint32_t i)
{
	struct world_client *k = &w->client[client];
	struct ask *a = &k->ask[i];
	struct abi_reserve_args *args = (struct abi_reserve_args *)(k->staging + a->staging +
								    ARENA_ARGS);
	struct abi_sqe sqe = { .op = ABI_OP_RESERVE, .user_data = i };

	a->kind = ASK_OTHER;
	a->op = ABI_OP_RESERVE;
	a->context = k->room.id ? k->room.context : world_below(w, WORLD_CONTEXTS);
	a->handle = k->room.id ? k->room.id : world_chance(w, 200000) ? k->old_room : 0;
	a->deadline_ns = w->now_ns + 50 * MSEC + world_below(w, 900) * MSEC;
	if (a->handle) {
		k->old_room = a->handle;
		k->room.id = 0;
	}
	memset(args, 0, sizeof(*args));
	args->expected = world_below(w, 8);
	args->p95 = args->expected ? args->expected + world_below(w, 8) : 0;
	args->step = world_below(w, 3);
	if (args->p95 == 13) /* that is no reason to grow by so much */
		args->step = 1000;
	args->role = world_below(w, 2);
	args->prompt_tokens = world_below(w, 4000);
	sqe.context_id = w->context[a->context].id;
	sqe.arg_offset = a->staging + ARENA_ARGS;
	sqe.arg_bytes = sizeof(*args);
	sqe.count = 1;
	sqe.handle = a->handle;
	sqe.deadline_ns = a->deadline_ns;
	client_submit(w, client, &sqe);
}

static void ask_unpin(struct world *w, uint32_t client, uint32_t i)
{
	struct world_pin *p = &w->pin[world_below(w, WORLD_LEASES)];
	struct ask *a = &w->client[client].ask[i];
	struct abi_sqe sqe = { .op = ABI_OP_UNPIN, .user_data = i, .handle = p->id };

	if (!p->id)
		return;
	a->kind = ASK_OTHER;
	a->op = ABI_OP_UNPIN;
	a->deadline_ns = UINT64_MAX;
	sqe.context_id = w->context[p->context].id;
	if (!p->context)
		w->client[client].old_pin = p->id;
	p->id = 0;
	client_submit(w, client, &sqe);
}

/* Where room is to be short: much is put, and reserved, or streamed. */
static uint32_t much_asked(struct world *w, uint32_t dice)
{
	if (w->faults->tight && world_chance(w, 500000))
		dice = world_chance(w, 100000) ? 24 : 0;
	if (wide_spends(w) && world_chance(w, 700000))
		dice = world_chance(w, 500000) ? 8 : 0;
	return dice;
}

static void ask_new(struct world *w, uint32_t client, uint32_t i, struct ask *a)
{
	uint32_t dice = world_below(w, 25);
	uint8_t op = habit_next(w, client, a);

	if (op) {
		if (op == ABI_OP_PUT_RESERVE)
			ask_reserve(w, client, i, a);
		else
			ask_by_keys(w, client, i, op);
		return;
	}
	switch (much_asked(w, dice)) {
	case 24:
		ask_room(w, client, i);
		break;
	case 0 ... 4:
		ask_reserve(w, client, i, a);
		break;
	case 5 ... 7:
		ask_by_keys(w, client, i, ABI_OP_FETCH);
		break;
	case 8 ... 9:
		ask_by_keys(w, client, i, ABI_OP_STREAM);
		break;
	case 10:
		ask_by_keys(w, client, i, ABI_OP_PIN);
		break;
	case 11:
		ask_unpin(w, client, i);
		break;
	case 12:
		if (w->faults->small_store || world_chance(w, 500000))
			ask_by_keys(w, client, i, ABI_OP_DELETE);
		break;
	case 13:
		ask_simple(w, client, i, ABI_OP_CANCEL, world_below(w, WORLD_ASKS));
		break;
	case 14:
		ask_simple(w, client, i, ABI_OP_DRAIN, 0);
		break;
	case 15 ... 17:
		ask_by_keys(w, client, i, ABI_OP_PREFETCH);
		break;
	case 18:
		ask_by_keys(w, client, i, ABI_OP_MIGRATE);
		break;
	case 19 ... 20:
		ahead_conversation(w, client, i);
		break;
	case 21 ... 22:
		ahead_plan(w, client, i);
		break;
	default:
		ask_nonsense(w, client, i);
	}
}

void client_step(struct world *w)
{
	uint32_t i, client = world_below(w, WORLD_CLIENTS);
	struct world_client *k = &w->client[client];
	struct ask *a;

	if (k->state != 1 || !core_accepts(w->core, client))
		return;
	ahead_advance(w, client);
	if (w->faults->tight && world_chance(w, 20000)) {
		client_fill(w, client, world_below(w, WORLD_CONTEXTS), world_below(w, WORLD_KEYS));
		return;
	}
	if (world_chance(w, 20000))
		client_attach(w, client); /* contexts that it has not, if they can be found */
	for (i = 0; i < WORLD_ASKS; i++)
		if (k->ask[i].kind == ASK_RESERVED && world_chance(w, 400000)) {
			ask_commit(w, client, i, &k->ask[i]);
			return;
		}
	a = ask_free(w, client, &i);
	if (a && !wide_ask(w, client, i))
		ask_new(w, client, i, a);
}

/* ---- answers ------------------------------------------------------------------------------ */

void client_crash_soon(struct world *w)
{
	w->owed = true;
	if (w->faults->crash_ppm && !w->fair && world_chance(w, 60000))
		w->crash_due = true;
}

/* A cancel is answered after its target: then nothing of it moves any more. */
static void cancelled(struct world *w, uint32_t client, uint64_t target)
{
	for (uint32_t i = 0; i < WORLD_ASKS; i++) {
		const struct ask *a = &w->client[client].ask[i];

		if (target && a->sequence == target && a->kind != ASK_NONE &&
		    a->kind != ASK_RESERVED)
			world_fail(w, "client %u: cancel was answered before its target", client);
	}
}

/* And a drain after what was begun before it; prefetches may be parked still. */
static void drained(struct world *w, uint32_t client, uint64_t submitted)
{
	for (uint32_t i = 0; i < WORLD_ASKS; i++) {
		const struct ask *a = &w->client[client].ask[i];
		bool waits = a->op == ABI_OP_CANCEL || a->op == ABI_OP_DRAIN ||
			     (a->op == ABI_OP_PREFETCH && a->deadline_ns);

		if (a->kind != ASK_NONE && a->kind != ASK_RESERVED && !waits &&
		    a->submitted < submitted)
			world_fail(w, "client %u: drain was answered before op %u", client, a->op);
	}
}

static void ordered(struct world *w, uint32_t client, const struct ask *order, int32_t res)
{
	if (order->op == ABI_OP_DRAIN)
		drained(w, client, order->submitted);
	else if (!res)
		cancelled(w, client, order->target);
}

static void committed(struct world *w, const struct ask *a, const struct abi_cqe *cqe)
{
	struct world_context *x = &w->context[a->context];

	if (a->unhurried && !a->shards && cqe->res == -ETIMEDOUT && !model_clogged(w) &&
	    !(a->durable && model_full(w))) /* the cleaner had not yet given up */
		world_fail(w, "I8: a put is late on a host at rest");
	if ((cqe->res == -ECANCELED || cqe->res == -ETIMEDOUT) && !a->durable && !a->shards &&
	    cqe->value == a->count && a->epoch == x->epoch && !x->removing)
		world_fail(w, "a put of which all is there was answered with %d", cqe->res);
	if (cqe->res || cqe->status != ABI_STATUS_READY)
		return;
	if (a->epoch != x->epoch)
		world_fail(w, "a put of epoch %llu was acknowledged in epoch %llu",
			   (unsigned long long)a->epoch, (unsigned long long)x->epoch);
	w->result->commits++;
	if (a->shards || cqe->value != a->count || a->epoch != x->epoch || !a->durable)
		return;
	client_crash_soon(w);
	habit_committed(w, x);
	for (uint32_t n = 0; n < a->count; n++)
		if (!x->now.key[a->first + n].deleted)
			x->now.key[a->first + n].durable = true;
}

static void deleted(struct world *w, const struct ask *a, const struct abi_cqe *cqe)
{
	struct world_context *x = &w->context[a->context];

	w->result->deletes++;
	if (!cqe->res)
		client_crash_soon(w);
	if (!cqe->res)
		habit_deleted(w, a);
	for (uint32_t n = 0; !cqe->res && n < a->count; n++) {
		struct world_key *key = &x->now.key[a->first + n];

		key->durable = false;
		if (a->undisputed >> n & 1 && key->put_sequence < a->sequence)
			key->deleted = true;
	}
}

/* Pages and blocks that have left memory: then one that came in the same event may be gone. */
static uint64_t left_by_now(const struct world *w)
{
	const struct core_metrics *m = core_metrics(w->core);

	return m->retired + m->dropped_blocks;
}

void client_event(struct world *w)
{
	w->left = left_by_now(w);
}

bool client_left(const struct world *w)
{
	return w->left != left_by_now(w);
}

/* Is it about the time to come? Then it is judged. */
static bool foreseen(struct world *w, uint32_t client, const struct ask *a,
		     const struct abi_cqe *cqe)
{
	if (a->op == ABI_OP_PREFETCH) {
		foresight_ready(w, a, cqe, client_left(w));
	} else if (a->op == ABI_OP_PLAN) {
		foresight_plan(w, client, a, cqe);
	} else if (a->op == ABI_OP_CONVERSATION) {
		foresight_conversation_answered(w, a, cqe);
		theirs_conversation_answered(w, client, a, cqe);
	} else {
		return false;
	}
	return true;
}

void client_completed(struct world *w, uint32_t client, const struct abi_cqe *cqe)
{
	struct ask *a, was;

	if (cqe->user_data >= WORLD_ASKS || w->client[client].state != 1) {
		world_fail(w, "a completion that nobody asked for");
		return;
	}
	a = &w->client[client].ask[cqe->user_data];
	if (a->kind == ASK_NONE || a->kind == ASK_RESERVED) {
		world_fail(w, "client %u: a second completion for one request", client);
		return;
	}
	was = *a;
	if (w->trace)
		printf("       client %u ask %llu: answer %d status %u value %llu\n", client,
		       (unsigned long long)cqe->user_data, cqe->res, cqe->status,
		       (unsigned long long)cqe->value);
	a->kind = ASK_NONE;
	if (cqe->res == -ENOSPC && cqe->aux >> 8 * ABI_HELD_TIER != 1 + ABI_HELD_TABLES)
		inside_refused(w, &was);
	if (was.wild && !cqe->res && cqe->status != ABI_STATUS_DROPPED)
		world_fail(w, "I3: op %u was done and should have been refused", was.op);
	if (was.stale && !cqe->res && cqe->value == was.count &&
	    (was.op == ABI_OP_FETCH || was.op == ABI_OP_PREFETCH))
		world_fail(w, "a stale reference was served");
	if (was.kind == ASK_RESERVE && !cqe->res) {
		*a = was;
		a->kind = ASK_RESERVED;
		a->handle = cqe->value;
	} else if (was.kind == ASK_COMMIT) {
		committed(w, &was, cqe);
	} else if (was.op == ABI_OP_STREAM) {
		streams_answered(w, client, (uint32_t)cqe->user_data, &was, cqe);
	} else if (was.op == ABI_OP_FETCH) {
		w->result->fetches++;
		if (was.unhurried && cqe->status == ABI_STATUS_LATE && !model_clogged(w))
			world_fail(w, "I8: a fetch is late on a host at rest");
		foresight_ready(w, &was, cqe, client_left(w));
		path_answered(w, &was, cqe);
		habit_fetched(w, client, &was, cqe);
	} else if (was.op == ABI_OP_FETCH_PAGES) {
		wide_pages(w, client, &was, cqe);
	} else if (foreseen(w, client, &was, cqe)) {
		return;
	} else if (was.op == ABI_OP_CANCEL || was.op == ABI_OP_DRAIN) {
		ordered(w, client, &was, cqe->res);
	} else if (was.op == ABI_OP_RESERVE && !was.handle && !cqe->res &&
		   !w->client[client].room.id) {
		w->client[client].room =
			(struct world_room){ cqe->value, was.context, was.deadline_ns };
	} else if (was.op == ABI_OP_PIN && !cqe->res && cqe->status == ABI_STATUS_READY) {
		model_pinned(w, client, &was, cqe->value);
	} else if (was.op == ABI_OP_DELETE) {
		deleted(w, &was, cqe);
	}
}

/*
 * Everyone rests: readers and pins let go, so that room can always be made; whoever asked for
 * something with time left must get it.
 */
void client_rest(struct world *w)
{
	reader_rest(w);
	for (uint32_t p = 0; p < WORLD_LEASES; p++)
		w->pin[p].id = 0;
	streams_rest(w);
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t i = 0; i < WORLD_ASKS; i++) {
			struct ask *a = &w->client[c].ask[i];

			a->unhurried = a->kind != ASK_NONE && a->kind != ASK_RESERVED &&
				       a->deadline_ns > w->now_ns + 1200 * MSEC;
		}
}
