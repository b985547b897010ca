/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes: which writes are on the medium for sure, and what happens when the device cannot say so.
 *
 *   a flush covers every write that was complete before it began (write_seq -> sync_seq)
 *   success  waiters are answered; flushed_lsn moves on (D9); tombstones and blocks are settled
 *   failure  all that was written since the last success is suspect, for ever: after a failed
 *            fdatasync Linux and devices may have forgotten what they still had to write, and the
 *            next flush succeeds without it. So everything is written again: blocks of the durable
 *            log (kept in CXL until here), tombstones, headers, the catalog.
 *
 * Blocks of the cache log are not written again: they were promised to nobody, and one that was
 * lost does not verify when it is read.
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define FLUSH_RETRY_NS (10 * MS) /* after the first failure; four times as long after each more */
#define FLUSH_RETRY_MAX_NS (1000 * MS)
#define FLUSH_GATHER_NS (4 * MS) /* that one waits for runs under way, at most */

bool drive_failing(const struct drive *dv)
{
	return dv->flush_failures >= CORE_FAILURES_MAX || dv->write_failures >= CORE_FAILURES_MAX;
}

/* ---- blocks that wait for their flush ----------------------------------------------------- */

/* ... beside those that runs under way bring. */
bool unflushed_room(const struct drive *dv, uint32_t blocks)
{
	for (uint32_t i = CORE_RUN_FIRST(DISK_LOG_DURABLE); i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE)
			blocks += dv->run[i].blocks;
	return dv->unflushed_tail - dv->unflushed_head + blocks <= UNFLUSHED_MAX;
}

/* A block of the durable log was written: it stays in CXL until a flush has covered that. */
void unflushed_add(struct drive *dv, struct context *x, uint32_t slot, uint64_t suspected)
{
	struct unflushed *u = &dv->unflushed[dv->unflushed_tail++ % UNFLUSHED_MAX];

	assert(dv->unflushed_tail - dv->unflushed_head <= UNFLUSHED_MAX);
	assert(x->meta[slot].persist == PERSIST_CLEAN);
	assert(x->meta[slot].settle == SETTLE_NONE);
	x->meta[slot].settle = SETTLE_WRITTEN;
	u->context_id = x->id;
	u->ref = (struct abi_block_ref){ slot, index_block(&x->ix, slot)->generation };
	u->seq = dv->write_seq;
	u->suspected = suspected;
}

/* Its block, if it still waits. */
static struct context *unflushed_block(struct core *c, const struct unflushed *u)
{
	struct context *x = core_context(c, u->context_id);

	if (!x || index_block(&x->ix, u->ref.slot)->generation != u->ref.generation ||
	    x->meta[u->ref.slot].flags & BLOCK_DROPPED ||
	    x->meta[u->ref.slot].settle != SETTLE_WRITTEN)
		return NULL;
	return x;
}

/*
 * flushed_lsn will be beyond records of the block that may be without data, and the new one hides
 * them only as long as it is there. A tombstone ends them for good: not before the new one is on
 * the medium, and flushed_lsn waits for it. Where no more of them can wait the suspect stays.
 */
static void unsuspect(struct core *c, struct context *x, uint32_t slot, uint64_t up_to_lsn)
{
	assert(c->suspects > 0);
	if (tombstone(c, x, index_block(&x->ix, slot)->key, up_to_lsn))
		c->suspects--;
}

static void unflushed_settle(struct core *c, struct drive *dv)
{
	while (dv->unflushed_head != dv->unflushed_tail) {
		const struct unflushed *u = &dv->unflushed[dv->unflushed_head % UNFLUSHED_MAX];
		struct context *x = unflushed_block(c, u);

		if (u->seq > dv->sync_seq)
			break;
		if (x)
			x->meta[u->ref.slot].settle = SETTLE_NONE;
		if (x && u->suspected)
			unsuspect(c, x, u->ref.slot, u->suspected);
		dv->unflushed_head++;
	}
}

static void unflushed_again(struct core *c, struct drive *dv)
{
	for (; dv->unflushed_head != dv->unflushed_tail; dv->unflushed_head++) {
		const struct unflushed *u = &dv->unflushed[dv->unflushed_head % UNFLUSHED_MAX];
		struct context *x = unflushed_block(c, u);
		uint32_t slot = u->ref.slot;

		if (!x)
			continue;
		assert(x->meta[slot].there[ABI_TIER_CXL].pages == block_pages(x, slot));
		block_unwritten(c, x, slot);
		c->suspects -= u->suspected != 0; /* it is suspect again */
		flush_suspect(c, x, slot);
		writeback_enqueue(c, x, slot);
	}
}

/*
 * A record of the block may be on the disk without its data: until it is written again. The run may
 * have ended long after the flush that failed, when flushed_lsn moves on.
 */
void flush_suspect(struct core *c, struct context *x, uint32_t slot)
{
	if (x->meta[slot].settle == SETTLE_SUSPECT)
		return;
	flushed_suspects(c);
	x->meta[slot].settle = SETTLE_SUSPECT;
	c->metrics.blocks_rewritten++;
}

/* ---- flushed_lsn -------------------------------------------------------------------------- */

/* Records up to here have their data written when a flush begins now. */
static uint64_t lsn_complete(const struct core *c, const struct drive *dv)
{
	uint64_t lsn = store_lsn(dv->store);

	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE && dv->run[i].place.lsn <= lsn)
			lsn = dv->run[i].place.lsn - 1;
	for (uint32_t i = 0; i < c->drives; i++) {
		const struct cleaner *k = &c->drive[i]->cleaner;

		if (k->to == dv && k->phase >= CLEAN_HEADER && k->phase < CLEAN_STOP &&
		    k->run[0].place.lsn <= lsn)
			lsn = k->run[0].place.lsn - 1; /* the first of its batch */
	}
	return lsn;
}

/*
 * May flushed_lsn not move on? Not while there may be a record below it without its data that no
 * tombstone voids: of blocks that recovery found and nobody has read, or that are written again.
 * What removed or voids such a block must be on the disk as well. A block that left before it was
 * written again and flushed keeps its count: then nothing moves until the next start, which reads
 * what came since.
 */
static bool flushed_frozen(struct core *c, struct drive *dv)
{
	const struct tombs *t = &c->tombs[TOMBS_NEW];

	if (!dv->flushed_frozen)
		return false;
	if (c->suspects || dv->prover.left) {
		dv->unfreeze_tombs = 0;
		return true;
	}
	if (!dv->unfreeze_tombs)
		dv->unfreeze_tombs = t->queued + 1;
	/* This flush will cover what the same device has; what another has is flushed before. */
	if ((dv == core_home(c) ? t->written : t->flushed) + 1 < dv->unfreeze_tombs ||
	    c->catalog.dirty || c->catalog.running)
		return true;
	dv->flushed_frozen = false;
	return false;
}

void flushed_freeze(struct drive *dv)
{
	dv->flushed_frozen = true;
	dv->unfreeze_tombs = 0;
}

/* There is one record more that may be without its data. */
void flushed_suspects(struct core *c)
{
	for (uint32_t i = 0; i < c->drives; i++)
		flushed_freeze(c->drive[i]);
	c->suspects++;
}

/* Nothing on it is waited for, and it cannot be had any more. */
static bool is_over(const struct drive *dv)
{
	return dv->unlisted && drive_failing(dv);
}

/* ---- flushes ------------------------------------------------------------------------------ */

/*
 * Until when a flush that is wanted waits for durable runs, which end without it: one serves all.
 * Else each run gets a flush of its own, for while a device flushes it hardly writes. No longer
 * than the last one took, so nobody waits for others longer than for himself.
 */
static uint64_t gather_until(const struct drive *dv)
{
	uint64_t ns = dv->sync_ns < FLUSH_GATHER_NS ? dv->sync_ns : FLUSH_GATHER_NS;

	for (uint32_t i = CORE_RUN_FIRST(DISK_LOG_DURABLE); i < CORE_RUNS_MAX; i++) {
		const struct run *run = &dv->run[i];

		if (run->blocks && (run->phase == RUN_DATA || run->phase == RUN_RECORD))
			return dv->sync_since_ns + ns;
	}
	return 0;
}

void flush_step(struct core *c, struct drive *dv)
{
	if (dv->unflushed_tail - dv->unflushed_head > UNFLUSHED_MAX / 2)
		sync_want(dv);
	for (uint32_t i = 0; dv == core_home(c) && i < TOMBS_KINDS; i++)
		if (c->tombs[i].written - c->tombs[i].flushed > TOMBS_MAX / 2)
			sync_want(dv);
	if (!dv->sync_wanted || dv->sync_running || c->now_ns < dv->flush_retry_ns || is_over(dv))
		return;
	if (!dv->sync_since_ns)
		dv->sync_since_ns = c->now_ns;
	if (c->now_ns < gather_until(dv))
		return;
	dv->sync_wanted = false;
	dv->sync_running = true;
	dv->sync_since_ns = c->now_ns;
	dv->sync_started = dv->write_seq;
	for (uint32_t i = 0; dv == core_home(c) && i < TOMBS_KINDS; i++)
		c->tombs[i].sync = c->tombs[i].written;
	dv->sync_lsn = flushed_frozen(c, dv) ? 0 : lsn_complete(c, dv);
	c->metrics.syncs++;
	core_push(c, CORE_AC_SYNC)->sync = (struct core_sync){ dv->device, dv->write_seq + 1 };
}

static void runs_again(struct core *c, struct drive *dv)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++) {
		struct run *run = &dv->run[i];

		if (run->phase == RUN_HEADER_SYNC)
			run->phase = RUN_HEADER;
		else if (run->phase == RUN_HEADER)
			run->suspect = run->outstanding != 0;
		else if (run->phase == RUN_DATA || run->phase == RUN_RECORD)
			run->failed = run->suspect = true;
		/* Nothing of it is there yet: where another drive is well its blocks go there. */
		if (run->phase == RUN_HEADER && run->blocks && drive_failing(dv) &&
		    !drive_usable(c, dv)) {
			run->phase = RUN_DATA;
			run->failed = true;
			run->suspect = false;
		}
	}
	clean_flush_failed(c, dv);
	discard_flush_failed(dv);
}

static void flush_failed(struct core *c, struct drive *dv)
{
	uint64_t wait = FLUSH_RETRY_NS;

	for (uint32_t i = 0; i < dv->flush_failures && wait < FLUSH_RETRY_MAX_NS; i++)
		wait *= 4;
	dv->flush_retry_ns = c->now_ns + (wait < FLUSH_RETRY_MAX_NS ? wait : FLUSH_RETRY_MAX_NS);
	dv->flush_failures++;
	c->metrics.flush_failures++;
	dv->write_seq++; /* no answer without a flush that succeeds */
	sync_want(dv);
	flushed_freeze(dv);
	runs_again(c, dv);
	unflushed_again(c, dv);
	for (uint32_t i = 0; dv == core_home(c) && i < TOMBS_KINDS; i++)
		c->tombs[i].written = c->tombs[i].flushed;
	if (dv == core_home(c))
		catalog_again(c);
	core_signals.flush_failed(c, dv);
}

void flush_done(struct core *c, struct drive *dv, int res)
{
	assert(dv->sync_running);
	dv->sync_running = false;
	dv->sync_ns = c->now_ns - dv->sync_since_ns;
	dv->sync_since_ns = 0;
	if (res) {
		flush_failed(c, dv);
		return;
	}
	dv->flush_failures = 0;
	dv->sync_seq = dv->sync_started;
	for (uint32_t i = 0; dv == core_home(c) && i < TOMBS_KINDS; i++)
		c->tombs[i].flushed = c->tombs[i].sync;
	if (dv->sync_lsn)
		store_flushed(dv->store, dv->sync_lsn);
	unflushed_settle(c, dv);
	if (dv == core_home(c))
		catalog_synced(c);
	request_wake_phase(c, REQUEST_SYNC);
	request_wake_space(c); /* room for tombstones, and pages that may leave now */
}

/* When flush_step has something to do by itself; UINT64_MAX = not by time. */
uint64_t flush_next_tick(const struct core *c, const struct drive *dv)
{
	uint64_t at = gather_until(dv);

	if (!dv->sync_wanted || dv->sync_running || is_over(dv))
		return UINT64_MAX;
	at = dv->flush_retry_ns > at ? dv->flush_retry_ns : at;
	return at > c->now_ns ? at : c->now_ns;
}
