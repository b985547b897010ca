/*
 * Telling the daemon what will be read: prefetch with a deadline, conversations, migration. All are
 * submissions whose completions the caller takes; nothing here waits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>

#include "libtier/src/ask.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/submit.h"

static int class_of(const struct tier_ask *ask, uint8_t *klass)
{
	*klass = ask->deadline_ns ? ABI_CLASS_DEADLINE : ABI_CLASS_SPECULATIVE;
	if (ask->klass)
		*klass = (uint8_t)ask->klass;
	if (ask->klass <= TIER_CLASS_SPECULATIVE && !ask->reserved)
		return 0;
	return error_set(-EINVAL, "ask: klass %u is not a TIER_CLASS, or reserved is not 0",
			 ask->klass);
}

/* What is moved out of a tier leaves it whole. */
static int check_leaves(const struct abi_sqe *e)
{
	if (e->tier == ABI_TIER_HBM || (!e->part_count && !e->layer_count))
		return 0;
	return error_note(-EINVAL, "migrate: blocks leave a tier whole, so a range is for TIER_HBM "
				   "only; tier_prefetch brings parts and layers");
}

/* A list of blocks with an ask, in one submission. */
static int foresee(tier_context *c, uint8_t op, const struct request_args *args,
		   const struct tier_ask *ask)
{
	const char *what = op == ABI_OP_MIGRATE ? "migrate" : "prefetch";
	uint32_t tiers = op == ABI_OP_MIGRATE ? ABI_TIER_NVME + 1 : ABI_MEM_TIERS;
	struct submission s = { .context = c, .entry.op = op, .owner = REQUEST_CALLER };
	struct tier_ask own;
	int rc = context_check(c);

	if (rc == 0)
		rc = ask_check_list(what, args->blocks, args->count, ASK_BLOCKS_MAX);
	if (rc == 0)
		rc = options_read(&own, sizeof(own), ask);
	if (rc)
		return rc;
	if (!ask)
		own.tier = TIER_CXL;
	if (own.tier >= tiers)
		return error_set(-EINVAL, "%s: tier %u is not one that blocks can go to", what,
				 own.tier);
	s.args = *args;
	s.user_data = own.user_data;
	s.entry.tier = (uint8_t)own.tier;
	s.entry.deadline_ns = own.deadline_ns;
	rc = class_of(&own, &s.entry.klass);
	if (rc == 0)
		rc = ask_range(&s.entry, c, own.range);
	if (rc == 0 && op == ABI_OP_MIGRATE)
		rc = check_leaves(&s.entry);
	if (rc == 0)
		rc = submit_check_user_data(s.user_data);
	return rc ? rc : submit_start(c->t, &s);
}

int tier_prefetch(tier_context *c, const tier_block *blocks, uint32_t count,
		  const struct tier_ask *ask)
{
	const struct request_args args = { .blocks = blocks, .count = count };

	return foresee(c, ABI_OP_PREFETCH, &args, ask);
}

int tier_migrate(tier_context *c, const tier_block *blocks, uint32_t count,
		 const struct tier_ask *ask)
{
	const struct request_args args = { .blocks = blocks, .count = count };

	return foresee(c, ABI_OP_MIGRATE, &args, ask);
}

/* ---- conversations --------------------------------------------------------------------------- */

#define CONVERSATION_BLOCKS_MAX \
	((ABI_ARG_BYTES_MAX - (uint32_t)sizeof(struct abi_conversation_args)) / \
	 (uint32_t)sizeof(struct abi_block_ref))

static int turn_end(struct submission *s, tier_context *c, struct abi_conversation_args *args,
		    const struct tier_conversation_options *o)
{
	int rc = ask_check_list("conversation", o->blocks, o->count, UINT32_MAX);

	if (rc)
		return rc;
	if (o->range && o->range->layer_count)
		return error_note(-EINVAL,
				  "conversation: the range has layers; the daemon chooses them");
	args->salt = o->salt;
	args->return_ns = o->return_ns;
	args->layer_ns = o->layer_ns;
	s->args = (struct request_args){ .blocks = o->blocks, .conversation = args };
	s->args.count = o->count < CONVERSATION_BLOCKS_MAX ? o->count : CONVERSATION_BLOCKS_MAX;
	return ask_range(&s->entry, c, o->range);
}

int tier_conversation(tier_context *c, uint64_t id, uint32_t event,
		      const struct tier_conversation_options *options)
{
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_CONVERSATION,
			   .klass = ABI_CLASS_SPECULATIVE,
			   .mode = (uint8_t)event,
			   .handle = id },
		.owner = REQUEST_CALLER,
	};
	struct abi_conversation_args args = { .salt = 0 };
	struct tier_conversation_options own;
	int rc = context_check(c);

	if (rc == 0)
		rc = options_read(&own, sizeof(own), options);
	if (rc)
		return rc;
	if (event < TIER_CONVERSATION_TURN_END || event > TIER_CONVERSATION_CLOSE)
		return error_set(-EINVAL, "conversation: %u is not a TIER_CONVERSATION event",
				 event);
	if (own.tier >= ABI_MEM_TIERS)
		return error_set(-EINVAL, "conversation: tier %u is not TIER_HBM or TIER_CXL",
				 own.tier);
	s.entry.tier = (uint8_t)own.tier;
	s.user_data = own.user_data;
	if (event == TIER_CONVERSATION_TURN_END)
		rc = turn_end(&s, c, &args, &own);
	if (rc == 0)
		rc = submit_check_user_data(s.user_data);
	return rc ? rc : submit_start(c->t, &s);
}
