/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client that has gone and a context that is removed had: conversations and pins may be so
 * many that they end in walks, a share of them in each turn. Until then all of it is charged to the
 * client, whose number is not given to another one (core_client_over), and keeps the context. Its
 * blocks leave the same way, as those of an epoch that is over do.
 */
#include <assert.h>

#include "tierd/core/state.h"

static bool client_left(struct core *c, uint32_t id)
{
	struct client *k = &c->client[id];

	return conversation_leave(c, id, NULL, &k->conversations_leave) &&
	       pin_leave(c, id, NULL, &k->pins_leave);
}

static bool context_left(struct core *c, struct context *x)
{
	return conversation_leave(c, CORE_CLIENTS_MAX, x, &x->conversations_leave) &&
	       pin_leave(c, CORE_CLIENTS_MAX, x, &x->pins_leave);
}

void leave_client(struct core *c, uint32_t id)
{
	struct client *k = &c->client[id];

	assert(k->state == 2 && !k->leaving);
	k->conversations_leave = k->pins_leave = (struct meter_pass){ 0 };
	k->leaving = !client_left(c, id);
	c->leaving += k->leaving;
}

void leave_context(struct core *c, struct context *x)
{
	assert(x->closing && !x->leaving);
	x->leaving = !context_left(c, x);
	c->leaving += x->leaving;
}

/* Its blocks of old epochs leave, or all of them when it is removed. */
void context_sweep(struct core *c, struct context *x)
{
	c->leaving += !x->sweeping;
	x->sweeping = true;
	x->sweep_slot = 0;
}

static void sweep(struct core *c, struct context *x)
{
	for (; x->sweep_slot < x->ix.slots_used && !meter_spent(&c->meter); x->sweep_slot++) {
		const struct abi_block *b = index_block(&x->ix, x->sweep_slot);

		meter_charge_table(&c->meter, x->sweep_slot % 8 == 0);
		if (b->state == ABI_BLOCK_FREE ||
		    (!x->closing && b->epoch == (uint32_t)x->spec.epoch))
			continue;
		meter_charge(&c->meter, 1);
		trial_deleted(c, x, x->sweep_slot);
		block_drop(c, x, x->sweep_slot);
	}
	if (x->sweep_slot < x->ix.slots_used)
		return;
	x->sweeping = false;
	c->leaving--;
}

/* Both are over with it now. */
static bool context_ends(struct core *c, struct context *x)
{
	if (x->sweeping)
		sweep(c, x);
	if (x->leaving && context_left(c, x)) {
		x->leaving = false;
		c->leaving--;
	}
	return !x->sweeping && !x->leaving;
}

void leave_work(struct core *c)
{
	for (uint32_t i = 0; c->leaving && i < c->clients_high && !meter_spent(&c->meter); i++) {
		if (!c->client[i].leaving || !client_left(c, i))
			continue;
		c->client[i].leaving = false;
		c->leaving--;
		core_client_end(c, i);
	}
	for (uint32_t i = 0; c->leaving && i < c->contexts_high && !meter_spent(&c->meter); i++) {
		struct context *x = c->context[i];

		if (x && (x->sweeping || x->leaving) && context_ends(c, x))
			context_maybe_gone(c, x);
	}
}
