/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients of the world say of the time to come: conversations that end a turn and go on, and
 * plans with their readers' positions. What must hold of it is in foresight.c.
 */
#include <string.h>

#include "tests/sim/world_priv.h"

/* One of a few conversations ends a turn, goes on, or ends for good. */
void ahead_conversation(struct world *w, uint32_t client, uint32_t i)
{
	struct ask *a = &w->client[client].ask[i];
	struct abi_conversation_args *args =
		(struct abi_conversation_args *)(w->client[client].staging + a->staging +
						 ARENA_ARGS);
	struct abi_block_ref *ref = (struct abi_block_ref *)(args + 1);
	struct abi_sqe sqe = { .op = ABI_OP_CONVERSATION, .user_data = i };

	client_keys(w, a);
	a->kind = ASK_OTHER;
	a->op = ABI_OP_CONVERSATION;
	sqe.mode = (uint8_t)(1 + world_below(w, 8) * 3 / 8);
	sqe.handle = world_below(w, WORLD_CONVERSATIONS);
	a->context = sqe.handle % WORLD_CONTEXTS;
	sqe.context_id = w->context[a->context].id;
	sqe.tier = ABI_TIER_CXL;
	memset(args, 0, sizeof(*args));
	for (uint32_t n = 0; sqe.mode == ABI_CONVERSATION_TURN_END && n < a->count; n++) {
		uint32_t slot = 0;
		const struct abi_block *b = model_find(w, a->context, a->first + n, &slot);

		ref[n] = (struct abi_block_ref){ slot, b ? b->generation : 0 };
	}
	if (sqe.mode == ABI_CONVERSATION_TURN_END) {
		sqe.count = a->count;
		sqe.arg_offset = a->staging + ARENA_ARGS;
		sqe.arg_bytes = (uint32_t)(sizeof(*args) + a->count * sizeof(*ref));
		args->salt = world_below(w, 3);
		args->layer_ns = world_chance(w, 500000) ? 0 : 1 + world_below(w, MSEC);
		args->return_ns = w->now_ns + 1 + world_below(w, 3000) * MSEC;
	}
	foresight_conversation(w, client, a, &sqe);
	theirs_conversation_asked(w, client, a, &sqe);
	client_submit(w, client, &sqe);
}

/* A plan over blocks that are there, in an order of little meaning; or the end of one. */
void ahead_plan(struct world *w, uint32_t client, uint32_t i)
{
	struct ask *a = &w->client[client].ask[i];
	struct abi_plan_args *args =
		(struct abi_plan_args *)(w->client[client].staging + a->staging + ARENA_ARGS);
	struct abi_access *access = (struct abi_access *)(args + 1);
	struct abi_sqe sqe = { .op = ABI_OP_PLAN, .user_data = i };
	uint32_t which = world_below(w, WORLD_PLANS);

	client_keys(w, a);
	sqe.tier = world_chance(w, 500000) ? ABI_TIER_HBM : ABI_TIER_CXL;
	a->kind = ASK_OTHER;
	a->op = ABI_OP_PLAN;
	a->shard = which;
	a->count = WORLD_ACCESSES;
	if (w->client[client].plan[which])
		a->context = w->client[client].plan_context[which];
	sqe.context_id = w->context[a->context].id;
	sqe.mode = ABI_PLAN_BEGIN;
	if (w->client[client].plan[which]) {
		sqe.mode = world_chance(w, 300000) ? ABI_PLAN_APPEND : ABI_PLAN_END;
		sqe.handle = w->client[client].plan[which];
		access = (struct abi_access *)args;
	}
	memset(args, 0, sizeof(*args) + WORLD_ACCESSES * sizeof(*access));
	if (sqe.mode == ABI_PLAN_BEGIN) {
		args->position_offset = ARENA_PLANS + 8ull * which;
		args->budget_bytes = (2 + world_below(w, 12)) * 7ull * PAGE;
		args->access_ns = world_below(w, 2) * world_below(w, 5 * MSEC);
		*(uint64_t *)(w->client[client].staging + args->position_offset) = 0;
	}
	for (uint32_t n = 0; n < WORLD_ACCESSES; n++) {
		uint32_t slot = 0, key = (a->first + n * n % 23) % WORLD_KEYS;
		const struct abi_block *b = model_find(w, a->context, key, &slot);

		access[n].block = (struct abi_block_ref){ slot, b ? b->generation : 0 };
	}
	sqe.count = sqe.mode == ABI_PLAN_END ? 0 : WORLD_ACCESSES;
	sqe.arg_offset = a->staging + ARENA_ARGS;
	sqe.arg_bytes = (uint32_t)((uint8_t *)(access + sqe.count) - (uint8_t *)args);
	if (sqe.mode == ABI_PLAN_END)
		sqe.arg_bytes = 0;
	a->first = sqe.mode;
	client_submit(w, client, &sqe);
}

/* A reader goes on; now and then its word is nonsense. */
void ahead_advance(struct world *w, uint32_t client)
{
	uint8_t *at = w->client[client].staging + ARENA_PLANS + 8ull * world_below(w, WORLD_PLANS);
	uint64_t *word = (uint64_t *)at;

	*word += world_below(w, 4);
	if (world_chance(w, 20000))
		*word = world_random(w);
}
