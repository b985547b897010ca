/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletion that outlives a restart: blocks leave the index at once, and a tombstone for each that
 * is in the store goes through the durable log (writeback.c writes the queue this file fills).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

/* Queue a tombstone for the block. False: the queue is full, try again later. */
bool tombstone(struct core *c, struct context *x, uint32_t slot)
{
	struct tomb *t;

	if (!c->store || x->meta[slot].persist == PERSIST_NONE)
		return true;
	if (c->tomb_queued - c->tomb_written >= TOMBS_MAX)
		return false;
	t = &c->tomb_queue[c->tomb_queued++ % TOMBS_MAX];
	memset(t, 0, sizeof(*t));
	t->context_uid = x->spec.uid;
	memcpy(t->block.key, index_block(&x->ix, slot)->key, ABI_KEY_BYTES);
	t->block.salt = x->meta[slot].salt;
	return true;
}

/* Drop keys from the cursor on. False: the tombstone queue is full. */
static bool delete_keys(struct core *c, struct request *r)
{
	struct context *x = r->ctx;

	for (; r->cursor < r->sqe.count; r->cursor++) {
		uint32_t slot = index_find(&x->ix, r->arg + (size_t)r->cursor * ABI_KEY_BYTES);

		if (slot == ABI_SLOT_NONE)
			continue;
		if (index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED) {
			if (!tombstone(c, x, slot))
				return false;
			r->total++;
		}
		block_drop(c, x, slot);
	}
	return true;
}

void delete_step(struct core *c, struct request *r)
{
	r->phase = REQUEST_RUN;
	if (!r->tomb_seq && !r->error) {
		if (!delete_keys(c, r)) {
			request_wait_space(c, r);
			return;
		}
		r->tomb_seq = c->tomb_queued + 1;
	}
	if (r->error || r->late) {
		request_end(c, r, r->error ? r->error : -ETIMEDOUT, r->total, 0);
		return;
	}
	if (c->tomb_written + 1 < r->tomb_seq) {
		r->phase = REQUEST_WRITTEN;
		return;
	}
	if (!r->sync_seq)
		r->sync_seq = c->write_seq + 1;
	if (!c->store || !r->total || c->sync_seq + 1 >= r->sync_seq) {
		request_end(c, r, 0, r->total, 0);
		return;
	}
	r->phase = REQUEST_SYNC;
	sync_want(c);
}

void delete_begin(struct core *c, struct request *r)
{
	delete_step(c, r);
}
