/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What conversations say to the blocks that they name: a user is back (await), so many layers are a
 * lead that is kept, what was staged for nothing leaves. conversation.c and lead.c say what is to
 * be; here the marks follow, one reference after the other and as far as one event goes, the rest
 * in later ones. Old marks are withdrawn before new ones are set, so what is set is always one
 * piece of the list. References change only while nothing is set.
 */
#include <assert.h>

#include "tierd/core/state.h"

/* The i-th reference; all chunks but the last are full. */
struct abi_block_ref *conversation_ref(struct core *c, const struct conversation *s, uint32_t i)
{
	uint32_t at = s->chunks;

	assert(i < s->blocks);
	for (; i >= CONVERSATION_CHUNK_REFS; i -= CONVERSATION_CHUNK_REFS)
		at = c->conversations.chunk[at - 1].next;
	return &c->conversations.chunk[at - 1].ref[i];
}

/* ---- one reference ------------------------------------------------------------------------ */

static void lead_mark(struct conversation *s, struct abi_block_ref *ref)
{
	uint32_t layers = s->lead_layers;
	struct block_use *use;

	if (!fetch_block_there(s->ctx, *ref))
		ref->slot = ABI_SLOT_NONE; /* it is none that can be read */
	if (ref->slot == ABI_SLOT_NONE)
		return;
	use = block_use_make(s->ctx, ref->slot);
	use->leads[s->tier].count++;
	assert(use->leads[s->tier].count);
	if (use->leads[s->tier].layers < layers)
		use->leads[s->tier].layers = layers & 4095u;
}

static void lead_unmark(struct conversation *s, struct abi_block_ref *ref)
{
	struct block_use *use;

	if (ref->slot == ABI_SLOT_NONE ||
	    index_block(&s->ctx->ix, ref->slot)->generation != ref->generation)
		return; /* the block went; so did its marks */
	use = block_use_make(s->ctx, ref->slot);
	assert(use->leads[s->tier].count && use->leads[s->tier].layers);
	if (!--use->leads[s->tier].count)
		use->leads[s->tier].layers = 0;
	block_use_settle(s->ctx, ref->slot);
}

static void await_mark(struct conversation *s, struct abi_block_ref *ref)
{
	if (!block_alive(s->ctx, *ref))
		ref->slot = ABI_SLOT_NONE; /* it is no block, now or later */
	if (ref->slot != ABI_SLOT_NONE)
		plan_mark(s->ctx, *ref, s->tier, true);
}

static void await_unmark(struct conversation *s, struct abi_block_ref *ref)
{
	if (ref->slot != ABI_SLOT_NONE)
		plan_mark(s->ctx, *ref, s->tier, false);
}

/* ---- walks -------------------------------------------------------------------------------- */

/* From one reference to another, which stay. False: not all. */
static bool walk(struct core *c, struct conversation *s, uint32_t *at, uint32_t end,
		 void (*each)(struct conversation *s, struct abi_block_ref *ref))
{
	struct conversation_chunk *k = NULL;

	for (; *at < end; ++*at) {
		uint32_t in = *at % CONVERSATION_CHUNK_REFS;

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		if (!k)
			k = (struct conversation_chunk *)(conversation_ref(c, s, *at) - in);
		each(s, &k->ref[in]);
		if (in == CONVERSATION_CHUNK_REFS - 1)
			k = k->next ? &c->conversations.chunk[k->next - 1] : NULL;
	}
	return true;
}

static bool withdraw(struct core *c, struct conversation *s, struct conversation_marks *m,
		     void (*each)(struct conversation *s, struct abi_block_ref *ref))
{
	if (!walk(c, s, &m->from, m->to, each))
		return false;
	m->from = m->to = 0;
	return true;
}

static bool settle_leads(struct core *c, struct conversation *s)
{
	if (s->leads.from || s->lead_layers != s->kept) {
		if (!withdraw(c, s, &s->leads, lead_unmark))
			return false;
		s->lead_layers = s->kept;
	}
	return !s->kept || walk(c, s, &s->leads.to, s->blocks, lead_mark);
}

static bool settle_await(struct core *c, struct conversation *s)
{
	if ((s->await.from || !s->awaited) && !withdraw(c, s, &s->await, await_unmark))
		return false;
	return !s->awaited || walk(c, s, &s->await.to, s->blocks, await_mark);
}

/* What was staged for nothing leaves: an abandoned conversation costs nothing. */
static bool settle_staged(struct core *c, struct conversation *s)
{
	struct context *x = s->ctx;

	for (; s->gives && s->given < s->blocks; s->given++) {
		struct abi_block_ref ref = *conversation_ref(c, s, s->given);

		if (meter_spent(&c->meter))
			return false;
		meter_charge(&c->meter, 1);
		for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
			if (fetch_block_there(x, ref) && block_use(x, ref.slot)->staged[tier] &&
			    evict_block(c, x, ref.slot, tier) && x->left_at[tier].page &&
			    meter_spent(&c->meter))
				return false; /* it has more pages than one event looks at */
	}
	if (s->gives)
		reclaim_flush(c);
	s->gives = false;
	s->given = 0;
	return true;
}

/* As all that is said of it is to be? False: it goes on in conversation_work. */
bool conversation_settle(struct core *c, struct conversation *s)
{
	if (settle_await(c, s) && settle_leads(c, s) && settle_staged(c, s))
		return true;
	if (!s->unsettled) {
		s->unsettled = true;
		s->next_unsettled = c->conversations.unsettled;
		c->conversations.unsettled = (uint32_t)(s - c->conversations.table) + 1;
	}
	return false;
}

/*
 * Whose user is back will be read, for sure and soon: its blocks leave after all others, whatever
 * the policy makes of them (it sees blocks that were just brought and not used). A preference, as
 * for a plan's: pins have a budget, and those who wait for the engine may be more than it holds.
 */
void conversation_await(struct core *c, struct conversation *s, bool yes)
{
	if (s->awaited != yes)
		c->conversations.awaited += yes ? 1 : -1u;
	s->awaited = yes;
	conversation_settle(c, s);
}
