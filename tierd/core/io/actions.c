/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core asks of the shell: the queue of actions, answers to control calls, and the pools of
 * device operations and copy jobs. Which of these may begin is the scheduler's (sched.c).
 */
#include <assert.h>

#include "tierd/core/state.h"

struct core_action *core_push(struct core *c, enum core_action_kind kind)
{
	struct core_action *a = &c->actions.ring[c->actions.tail++ % CORE_ACTIONS_MAX];

	/* Every producer is bounded by a pool smaller than the queue, which the shell empties. */
	assert(c->actions.tail - c->actions.head <= CORE_ACTIONS_MAX);
	a->kind = kind;
	return a;
}

bool core_action_next(struct core *c, struct core_action *out)
{
	if (c->actions.head == c->actions.tail)
		return false;
	*out = c->actions.ring[c->actions.head++ % CORE_ACTIONS_MAX];
	return true;
}

void core_reply(struct core *c, uint64_t token, int res, uint64_t value)
{
	struct core_action *a;

	if (!token)
		return;
	a = core_push(c, CORE_AC_REPLY);
	a->reply.token = token;
	a->reply.res = res;
	a->reply.value = value;
}

/* For an operation of this class and client (SCHED_DAEMON: our own); NULL = not now (sched.h). */
struct core_io *core_io_get(struct core *c, uint32_t klass, uint32_t client)
{
	struct core_io *io = c->actions.io_free;

	if (!io || !sched_admits_io(c, klass, client))
		return NULL;
	c->actions.io_free = io->priv.next;
	c->actions.ios++;
	io->piece_count = 0;
	io->write = io->verify = io->direct = 0;
	io->klass = (uint8_t)klass;
	io->device = 0;
	io->offset = io->bytes = io->deadline_ns = io->bad_mask = 0;
	io->res = 0;
	io->priv.next = NULL;
	io->priv.owner = NULL; /* not everyone sets one: what is withdrawn is named by it */
	sched_io_taken(c, io, client);
	return io;
}

void core_io_put(struct core *c, struct core_io *io)
{
	assert(c->actions.ios > 0);
	assert(io >= c->actions.io && io < c->actions.io + CORE_IO_MAX);
	c->actions.ios--;
	sched_io_left(c, io);
	io->priv.next = c->actions.io_free;
	c->actions.io_free = io;
}

struct core_copy *core_copy_get(struct core *c, uint32_t klass, uint32_t client)
{
	struct core_copy *copy = c->actions.copy_free;

	if (!copy || !sched_admits_copy(c, client))
		return NULL;
	c->actions.copy_free = copy->priv.next;
	c->actions.copies++;
	copy->count = 0;
	copy->klass = (uint8_t)klass;
	copy->checksum = copy->in_place = 0;
	copy->res = 0;
	copy->order = 0;
	copy->deadline_ns = 0;
	copy->priv.next = NULL;
	copy->priv.owner = NULL;
	sched_copy_taken(c, copy, client);
	return copy;
}

void core_copy_put(struct core *c, struct core_copy *copy)
{
	assert(c->actions.copies > 0);
	assert(copy >= c->actions.copy && copy < c->actions.copy + CORE_COPIES_MAX);
	c->actions.copies--;
	sched_copy_left(c, copy);
	copy->count = 0; /* the audit looks at all of them */
	copy->priv.next = c->actions.copy_free;
	c->actions.copy_free = copy;
}
