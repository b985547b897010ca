/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletion that outlives a restart: blocks leave the index at once, and a tombstone for each key
 * that may have a record goes through the durable log (log/tombs.c).
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

/*
 * Drop keys, the last first: wherever that ends, what is left of a prefix begins where it did, and
 * what would follow a block that leaves was counted before. False: the tombstone queue is full.
 */
static bool delete_keys(struct core *c, struct request *r)
{
	struct context *x = r->ctx;
	uint64_t oldest = c->drives ? drives_oldest_lsn(c) : 0;

	assert(r->cursor <= r->sqe.count);
	for (; r->cursor < r->sqe.count && !meter_spent(&c->meter); r->cursor++) {
		size_t left = r->sqe.count - r->cursor;
		const uint8_t *key = r->arg + (left - 1) * ABI_KEY_BYTES;
		uint32_t slot = index_find(&x->ix, key);
		bool recorded = c->drives && recorded_may(c, x, key, oldest);

		meter_charge(&c->meter, 1);
		if (recorded && !tombs_may(c, x, oldest)) {
			r->error = -EDQUOT;
			break;
		}
		if (recorded && !tombstone(c, x, key, core_lsn(c)))
			return false;
		if (slot == ABI_SLOT_NONE)
			continue;
		r->total += index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED;
		trial_deleted(c, x, slot);
		block_drop(c, x, slot);
	}
	return true;
}

static void delete_step(struct core *c, struct request *r)
{
	r->phase = REQUEST_RUN;
	if (!r->tomb_seq && !r->error && !r->late) {
		if (!delete_keys(c, r)) {
			request_wait_space(c, r);
			return;
		}
		if (r->cursor < r->sqe.count && !r->error) {
			request_go_on(c, r);
			return;
		}
		r->tomb_seq = c->tombs[TOMBS_NEW].queued + 1;
	}
	if (r->error || r->late) {
		request_end(c, r, r->error ? r->error : -ETIMEDOUT, r->total, 0);
		return;
	}
	if (c->tombs[TOMBS_NEW].written + 1 < r->tomb_seq) {
		r->phase = REQUEST_WRITTEN;
		return;
	}
	if (!r->syncing)
		request_sync_from(c, r, 1); /* tombstones are the home's */
	if (!context_has_nvme(c, r->ctx) || request_synced(c, r)) {
		request_end(c, r, 0, r->total, 0);
		return;
	}
	r->phase = REQUEST_SYNC;
	request_sync_want(c, r);
}

static uint64_t keys_bytes(const struct abi_sqe *q)
{
	return (uint64_t)q->count * ABI_KEY_BYTES;
}

bool core_deleting(const struct core *c)
{
	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];

		if (r->phase != REQUEST_FREE && r->sqe.op == ABI_OP_DELETE && r->total)
			return true;
	}
	return false;
}

static uint32_t delete_lacks(const struct request *r)
{
	(void)r;
	return ABI_TIER_NVME;
}

/* The total counts what became of the keys. */
static void delete_view(const struct core *c, const struct request *r,
			struct core_request_view *out)
{
	(void)c;
	out->count = r->sqe.count;
}

const struct op_ops op_delete = {
	.name = "delete",
	.context = true,
	.writes = true,
	.arg_bytes = keys_bytes,
	.begin = delete_step,
	.step = delete_step,
	.lacks = delete_lacks,
	.view = delete_view,
};
