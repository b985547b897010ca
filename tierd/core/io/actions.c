/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core asks of the shell: the queue of actions, answers to control calls, and the pools of
 * device operations and copy jobs. Which of these may begin is the scheduler's (sched.c).
 */
#include <assert.h>

#include "tierd/core/state.h"

struct core_action *core_push(struct core *c, enum core_action_kind kind)
{
	struct core_action *a = &c->action[c->action_tail++ % CORE_ACTIONS_MAX];

	/* Every producer is bounded by a pool smaller than the queue, which the shell empties. */
	assert(c->action_tail - c->action_head <= CORE_ACTIONS_MAX);
	a->kind = kind;
	return a;
}

bool core_action_next(struct core *c, struct core_action *out)
{
	if (c->action_head == c->action_tail)
		return false;
	*out = c->action[c->action_head++ % CORE_ACTIONS_MAX];
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
	struct core_io *io = c->io_free;

	if (!io || !sched_admits_io(c, klass, client))
		return NULL;
	c->io_free = io->priv.next;
	c->ios++;
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
	assert(c->ios > 0);
	assert(io >= c->io && io < c->io + CORE_IO_MAX);
	c->ios--;
	sched_io_left(c, io);
	io->priv.next = c->io_free;
	c->io_free = io;
}

struct core_copy *core_copy_get(struct core *c, uint32_t klass, uint32_t client)
{
	struct core_copy *copy = c->copy_free;

	if (!copy || !sched_admits_copy(c, client))
		return NULL;
	c->copy_free = copy->priv.next;
	c->copies++;
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
	assert(c->copies > 0);
	assert(copy >= c->copy && copy < c->copy + CORE_COPIES_MAX);
	c->copies--;
	sched_copy_left(c, copy);
	copy->count = 0; /* the audit looks at all of them */
	copy->priv.next = c->copy_free;
	c->copy_free = copy;
}
