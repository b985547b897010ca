/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client that has gone and a context that is removed had: conversations and pins may be so
 * many that they end in walks, a share of them in each turn. Until then all of it is charged to the
 * client, whose number is not given to another one (core_client_over), and keeps the context.
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

		if (!x || !x->leaving || !context_left(c, x))
			continue;
		x->leaving = false;
		c->leaving--;
		context_maybe_gone(c, x);
	}
}
