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

bool store_failing(const struct core *c)
{
	return c->flush_failures >= CORE_FAILURES_MAX || c->write_failures >= CORE_FAILURES_MAX;
}

/* ---- blocks that wait for their flush ----------------------------------------------------- */

bool unflushed_room(const struct core *c, uint32_t blocks)
{
	return c->unflushed_tail - c->unflushed_head + blocks <= UNFLUSHED_MAX;
}

/* A block of the durable log was written: it stays in CXL until a flush has covered that. */
void unflushed_add(struct core *c, struct context *x, uint32_t slot, uint64_t suspected)
{
	struct unflushed *u = &c->unflushed[c->unflushed_tail++ % UNFLUSHED_MAX];

	assert(c->unflushed_tail - c->unflushed_head <= UNFLUSHED_MAX);
	assert(x->meta[slot].persist == PERSIST_CLEAN);
	assert(x->meta[slot].settle == SETTLE_NONE);
	x->meta[slot].settle = SETTLE_WRITTEN;
	u->context_id = x->id;
	u->ref = (struct abi_block_ref){ slot, index_block(&x->ix, slot)->generation };
	u->seq = c->write_seq;
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
	assert(c->suspects > 0 && c->flushed_frozen);
	if (tombstone(c, x, index_block(&x->ix, slot)->key, up_to_lsn))
		c->suspects--;
}

static void unflushed_settle(struct core *c)
{
	while (c->unflushed_head != c->unflushed_tail) {
		const struct unflushed *u = &c->unflushed[c->unflushed_head % UNFLUSHED_MAX];
		struct context *x = unflushed_block(c, u);

		if (u->seq > c->sync_seq)
			break;
		if (x)
			x->meta[u->ref.slot].settle = SETTLE_NONE;
		if (x && u->suspected)
			unsuspect(c, x, u->ref.slot, u->suspected);
		c->unflushed_head++;
	}
}

static void unflushed_again(struct core *c)
{
	for (; c->unflushed_head != c->unflushed_tail; c->unflushed_head++) {
		const struct unflushed *u = &c->unflushed[c->unflushed_head % UNFLUSHED_MAX];
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
static uint64_t lsn_complete(const struct core *c)
{
	uint64_t lsn = store_lsn(c->store);

	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (c->run[i].phase != RUN_FREE && c->run[i].place.lsn <= lsn)
			lsn = c->run[i].place.lsn - 1;
	if (c->cleaner.phase >= CLEAN_HEADER && c->cleaner.phase < CLEAN_STOP &&
	    c->cleaner.run[0].place.lsn <= lsn)
		lsn = c->cleaner.run[0].place.lsn - 1; /* the first of its batch */
	return lsn;
}

/*
 * May flushed_lsn not move on? Not while there may be a record below it without its data that no
 * tombstone voids: of blocks that recovery found and nobody has read, or that are written again.
 * What removed or voids such a block must be on the disk as well. A block that left before it was
 * written again and flushed keeps its count: then nothing moves until the next start, which reads
 * what came since.
 */
static bool flushed_frozen(struct core *c)
{
	const struct tombs *t = &c->tombs[TOMBS_NEW];

	if (!c->flushed_frozen)
		return false;
	if (c->suspects || c->prover.left) {
		c->unfreeze_tombs = 0;
		return true;
	}
	if (!c->unfreeze_tombs)
		c->unfreeze_tombs = t->queued + 1;
	if (t->written + 1 < c->unfreeze_tombs || c->catalog_dirty || c->catalog_running)
		return true;
	c->flushed_frozen = false;
	return false;
}

void flushed_freeze(struct core *c)
{
	c->flushed_frozen = true;
	c->unfreeze_tombs = 0;
}

/* There is one record more that may be without its data. */
void flushed_suspects(struct core *c)
{
	flushed_freeze(c);
	c->suspects++;
}

/* ---- flushes ------------------------------------------------------------------------------ */

void flush_step(struct core *c)
{
	if (c->unflushed_tail - c->unflushed_head > UNFLUSHED_MAX / 2)
		sync_want(c);
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		if (c->tombs[i].written - c->tombs[i].flushed > TOMBS_MAX / 2)
			sync_want(c);
	if (!c->sync_wanted || c->sync_running || c->now_ns < c->flush_retry_ns)
		return;
	c->sync_wanted = false;
	c->sync_running = true;
	c->sync_started = c->write_seq;
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		c->tombs[i].sync = c->tombs[i].written;
	c->sync_lsn = flushed_frozen(c) ? 0 : lsn_complete(c);
	c->metrics.syncs++;
	core_push(c, CORE_AC_SYNC)->sync_token = c->write_seq + 1;
}

static void runs_again(struct core *c)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++) {
		struct run *run = &c->run[i];

		if (run->phase == RUN_HEADER_SYNC)
			run->phase = RUN_HEADER;
		else if (run->phase == RUN_HEADER)
			run->suspect = run->outstanding != 0;
		else if (run->phase == RUN_DATA || run->phase == RUN_RECORD)
			run->failed = run->suspect = true;
	}
	clean_flush_failed(c);
	discard_flush_failed(c);
}

static void flush_failed(struct core *c)
{
	uint64_t wait = FLUSH_RETRY_NS;

	for (uint32_t i = 0; i < c->flush_failures && wait < FLUSH_RETRY_MAX_NS; i++)
		wait *= 4;
	c->flush_retry_ns = c->now_ns + (wait < FLUSH_RETRY_MAX_NS ? wait : FLUSH_RETRY_MAX_NS);
	c->flush_failures++;
	c->metrics.flush_failures++;
	c->write_seq++; /* no answer without a flush that succeeds */
	sync_want(c);
	flushed_freeze(c);
	runs_again(c);
	unflushed_again(c);
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		c->tombs[i].written = c->tombs[i].flushed;
	catalog_again(c);
	core_signals.flush_failed(c, store_failing(c) ? -EIO : 0);
}

void flush_done(struct core *c, int res)
{
	assert(c->sync_running);
	c->sync_running = false;
	if (res) {
		flush_failed(c);
		return;
	}
	c->flush_failures = 0;
	c->sync_seq = c->sync_started;
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		c->tombs[i].flushed = c->tombs[i].sync;
	if (c->sync_lsn)
		store_flushed(c->store, c->sync_lsn);
	unflushed_settle(c);
	catalog_synced(c);
	request_wake_phase(c, REQUEST_SYNC);
	request_wake_space(c); /* room for tombstones, and pages that may leave now */
}

/* When flush_step has something to do by itself; UINT64_MAX = not by time. */
uint64_t flush_next_tick(const struct core *c)
{
	if (c->sync_wanted && !c->sync_running)
		return c->flush_retry_ns > c->now_ns ? c->flush_retry_ns : c->now_ns;
	return UINT64_MAX;
}
