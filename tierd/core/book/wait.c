/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits: the queue of requests that take a step when the event is over, and that of those who
 * wait for room. Waking is all that is done here; the steps are request.c's.
 */
#include <assert.h>

#include "tierd/core/state.h"

void request_wake(struct core *c, struct request *r)
{
	if (r->queued || r->phase == REQUEST_FREE)
		return;
	r->phase = REQUEST_RUN;
	r->queued = true;
	r->next = NULL;
	if (c->queues.run_tail)
		c->queues.run_tail->next = r;
	else
		c->queues.run_head = r;
	c->queues.run_tail = r;
}

/* It has more to look at than one event does: the rest when all others had their steps. */
void request_go_on(struct core *c, struct request *r)
{
	if (r->queued || r->phase == REQUEST_FREE)
		return;
	r->phase = REQUEST_RUN;
	r->queued = true;
	r->next = NULL;
	if (c->queues.walk_tail)
		c->queues.walk_tail->next = r;
	else
		c->queues.walk_head = r;
	c->queues.walk_tail = r;
}

void request_wait_space(struct core *c, struct request *r)
{
	assert(!r->queued);
	r->phase = REQUEST_SPACE;
	r->queued = true;
	r->next = NULL;
	if (c->queues.space_tail)
		c->queues.space_tail->next = r;
	else
		c->queues.space_head = r;
	c->queues.space_tail = r;
}

/* Room may be there: everyone who waits looks again, in order. */
void request_wake_space(struct core *c)
{
	struct request *r = c->queues.space_head;

	c->queues.space_head = c->queues.space_tail = NULL;
	while (r) {
		struct request *next = r->next;

		r->queued = false;
		request_wake(c, r);
		r = next;
	}
}

/* Pages came, or operations are free: that makes no room, and nobody looks who waits for that. */
void request_wake_joiners(struct core *c)
{
	struct request *r = c->queues.space_head;

	c->queues.space_head = c->queues.space_tail = NULL;
	while (r) {
		struct request *next = r->next;

		r->queued = false;
		if (r->room)
			request_wait_space(c, r);
		else
			request_wake(c, r);
		r = next;
	}
}

/* It does not wait for room any more. */
void request_unqueue(struct core *c, struct request *r)
{
	struct request **link = &c->queues.space_head, *tail = NULL;

	for (; *link && *link != r; link = &(*link)->next)
		tail = *link;
	assert(*link == r);
	*link = r->next;
	if (c->queues.space_tail == r)
		c->queues.space_tail = tail;
	r->queued = false;
}

void request_wake_phase(struct core *c, enum request_phase phase)
{
	for (uint32_t i = 0; c->requests.count && i < c->requests.high; i++)
		if (c->requests.table[i].phase == phase)
			request_wake(c, &c->requests.table[i]);
}
