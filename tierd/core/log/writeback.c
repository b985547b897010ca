/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-back: dirty blocks become runs on NVMe (abi/disk.h); flushes (flush.c) turn what was
 * written into what is durable.
 *
 *   dirty list -> run: up to 32 blocks, each the child of the one before; none before its parent
 *   HEADER, flushed (new segment only) -> DATA (8 writes of up to 1 MiB under way) -> RECORD
 *   -> clean
 *   someone waits for durability -> SYNC; the flush covers every record written before it began
 *
 * Runs of the durable log go side by side, so that who puts together shares a flush; whatever of
 * them a crash leaves out is a hole, behind which recovery goes on. Of the cache log one goes at a
 * time: nobody waits for it. Tombstones travel as a run without data, one at a time.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define RETRY_NS (1000 * MS)
#define FULL_NS (200 * MS)
#define FULL_RETRY_NS (10 * MS)
#define TOMBS_LOOK_NS (10 * MS) /* between looks for room, while tombstones wait for some */

static struct run *nth_run(struct drive *dv, uint32_t i)
{
	return i < CORE_RUNS_MAX ? &dv->run[i] : &dv->cleaner.run[0];
}

/* Buffers for the largest record that blocks of this geometry can need. */
static int log_reserve(struct drive *dv, const struct abi_geometry *g)
{
	size_t need = sizeof(struct disk_record) +
		      DISK_RUN_BLOCKS_MAX * (sizeof(struct disk_block) + 4ull * g->pages_per_block);
	size_t tombs = sizeof(struct disk_record) + TOMBS_RECORD * sizeof(struct disk_block);

	need = (need > tombs ? need : tombs) + DISK_SECTOR;
	need &= ~(size_t)(DISK_SECTOR - 1);
	for (uint32_t i = 0; i <= CORE_RUNS_MAX; i++) {
		struct run *run = nth_run(dv, i);
		uint8_t *buf;

		if (run->buf_bytes >= need)
			continue;
		buf = aligned_alloc(DISK_SECTOR, need);
		if (!buf)
			return -ENOMEM;
		free(run->next_buf);
		run->next_buf = buf;
		run->buf_bytes = need;
	}
	return 0;
}

/* The run's buffer, of which nothing is being written now: the larger one, if there is one. */
uint8_t *run_buffer(struct run *run)
{
	if (run->next_buf) {
		free(run->buf);
		run->buf = run->next_buf;
		run->next_buf = NULL;
	}
	return run->buf;
}

int writeback_reserve(struct core *c, const struct abi_geometry *g)
{
	int err = 0;

	for (uint32_t i = 0; i < c->drives && !err; i++)
		err = log_reserve(c->drive[i], g);
	return err;
}

/* ---- the next run ------------------------------------------------------------------------- */

/* The record's head, of run->ctx, slot[] and blocks: from now on it may be in the store. */
void run_head(struct core *c, struct run *run)
{
	const struct context *x = run->ctx;
	const struct abi_block *b = index_block(&x->ix, run->slot[0]);
	uint32_t parent = block_parent(x, run->slot[0]);

	memset(&run->head, 0, sizeof(run->head));
	run->head.type = DISK_RECORD_RUN;
	run->head.context_uid = x->spec.uid;
	run->head.epoch = b->epoch;
	run->head.block_count = run->place.named;
	if (run->absent) /* up to the last that is there, or had room */
		run->head.absent = run->absent & (uint32_t)((1ull << run->place.named) - 1);
	run->head.parts = b->parts;
	run->head.depth = b->depth;
	run->head.pages_per_block = store_block_pages(&x->spec.geometry, b->parts);
	if (parent != ABI_SLOT_NONE)
		memcpy(run->head.parent, index_block(&x->ix, parent)->key, ABI_KEY_BYTES);
	for (uint32_t i = 0; i < run->blocks; i++)
		recorded_add(c, x, index_block(&x->ix, run->slot[i])->key, run->place.lsn);
}

static void run_take(struct core *c, struct run *run, const uint32_t *chain)
{
	struct context *x = run->ctx;
	struct dirty *d = &x->dirty[run->place.log];

	if (c->now_ns >= d->since_ns + c->config.writeback_age_ns)
		d->due = d->list.count; /* all that is there, not just its first run */
	if (!d->due || d->due == d->list.count)
		d->since_ns = c->now_ns;
	run->blocks = run->place.blocks;
	run->absent = run->tombs = 0;
	for (uint32_t i = 0; i < run->blocks; i++) {
		uint32_t slot = chain[i];

		writeback_unqueue(c, x, slot);
		x->dirty_bytes += block_bytes(x, slot); /* until it is written */
		x->meta[slot].persist = PERSIST_WRITING;
		quota_add(c, x, slot, ABI_TIER_NVME, block_bytes(x, slot)); /* not at its end */
		block_hold(x, slot);
		run->slot[i] = slot;
		run->generation[i] = index_block(&x->ix, slot)->generation;
	}
	d->grow_until_ns = d->grow_look_ns = 0;
	run->written = run->cursor = run->outstanding = 0;
	run->failed = run->suspect = run->lost = false;
	run_head(c, run);
	run->voids = c->catalog.voids;
	run->phase = run->place.header_offset ? RUN_HEADER : RUN_DATA;
}

/* What so many blocks will hold of the log, in one record. */
static uint64_t room_of(const struct core *c, const struct context *x, uint32_t slot, uint32_t log,
			uint32_t blocks)
{
	uint64_t bytes = blocks * block_bytes(x, slot);

	return log == DISK_LOG_DURABLE ? bytes + records_beyond(c, x, slot, blocks) : bytes;
}

/* What runs under way are writing of the context. */
static uint64_t run_bytes(const struct core *c, const struct context *x)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < c->drives * CORE_RUNS_MAX; i++) {
		const struct run *run = drive_run(c, i);

		if (run->phase != RUN_FREE && run->ctx == x && run->blocks)
			bytes += room_of(c, x, run->slot[0], run->place.log, run->blocks);
	}
	return bytes;
}

static bool quota_allows(const struct core *c, const struct context *x, uint64_t bytes)
{
	return x->nvme_bytes + x->record_bytes + run_bytes(c, x) + bytes <=
	       x->plan.quota[ABI_TIER_NVME];
}

/*
 * Place for a run of the first `n` blocks of the chain, on the device where it is written first;
 * the next one takes it where that one has no room. Errors: -ENOSPC, -EAGAIN there is room now,
 * -EBUSY it waits for a device that is writing.
 */
static int run_somewhere(struct core *c, struct context *x, uint32_t log, const uint32_t *chain,
			 uint32_t n)
{
	uint64_t bytes = block_bytes(x, chain[0]);
	struct drive *by[CORE_DRIVES_MAX];
	uint32_t count = drives_by_room(c, log, by);
	int err = -EBUSY;

	for (uint32_t i = 0; i < count; i++) {
		struct run *run = drive_run_free(by[i], log);

		if (log == DISK_LOG_DURABLE && !unflushed_room(by[i], n))
			continue; /* a flush is wanted already */
		err = store_append(by[i]->store, log, n, bytes, block_pages(x, chain[0]),
				   &run->place);
		if (!err) {
			run->ctx = x;
			run_take(c, run, chain);
		}
		if (err == -EFBIG)
			err = -ENOSPC; /* its segments are smaller than the home's */
		if (err != -ENOSPC)
			return err;
	}
	if (err != -ENOSPC || drives_room_soon(c, log))
		return -EBUSY;
	for (uint32_t i = 0; i < count; i++)
		if (evict_store_for(c, by[i], log))
			return -EAGAIN; /* what that put back may have to go first */
	return meter_else(&c->meter, -ENOSPC);
}

/*
 * Place for the context's next run in one of the logs of a kind. Errors: -ENOENT nothing is worth
 * one, -ENOSPC, -EAGAIN there is room now, -EBUSY it waits for one of the other kind, for a
 * device, for the next event, or grows yet, -EDQUOT its first block was dropped, or refused.
 */
static int run_begin(struct core *c, struct context *x, uint32_t log)
{
	uint32_t chain[DISK_RUN_BLOCKS_MAX], slot = admit_first(c, x, log), n;
	uint64_t bytes;

	if (slot == ABI_SLOT_NONE)
		return -ENOENT;
	if (dirty_log(x, slot) != log)
		return -EBUSY;
	bytes = block_bytes(x, slot);
	n = dirty_chain(x, slot, chain);
	if (dirty_grows(c, x, &x->dirty[log], chain, n))
		return -EBUSY;
	n = admit_run(c, x, chain, n);
	if (log == DISK_LOG_DURABLE && !drives_unflushed_room(c, n))
		return -EBUSY; /* a flush is wanted already */
	while (n > 1 && (!quota_allows(c, x, room_of(c, x, slot, log, n)) ||
			 quota_left_of(c, x, chain, n, ABI_TIER_NVME) < n * bytes))
		n--;
	if (!evict_nvme_account(c, x, slot, bytes))
		return meter_spent(&c->meter) ? -EBUSY : admit_over_quota(c, x, slot);
	if (!quota_allows(c, x, room_of(c, x, slot, log, 1)) &&
	    !evict_nvme(c, x, room_of(c, x, slot, log, n)))
		return meter_else(&c->meter, -ENOSPC);
	if (!quota_allows(c, x, room_of(c, x, slot, log, 1)))
		return -EAGAIN; /* what went was smaller */
	return run_somewhere(c, x, log, chain, n);
}

/* ---- writing ------------------------------------------------------------------------------ */

static void run_written(struct core *c, struct core_io *io);

static struct core_io *run_io(struct core *c, struct run *run, uint64_t offset)
{
	struct core_io *io = drive_io_get(c, run->log, ABI_CLASS_WRITEBACK);

	if (!io)
		return NULL;
	io->write = 1;
	io->offset = offset;
	io->priv.node.waited = run->place.log == DISK_LOG_DURABLE;
	io->priv.node.order = !io->priv.node.waited;
	io->priv.done = run_written;
	io->priv.owner = run;
	return io;
}

static void run_submit(struct core *c, struct run *run, struct core_io *io)
{
	if (!io)
		return;
	run->outstanding++;
	sched_io(c, io);
}

/* Item `cursor` of the run's data, D7: part, layer, block, group. */
void run_item(const struct run *run, uint32_t i, uint32_t *block, uint32_t *page)
{
	const struct abi_geometry *g = context_geometry(run->ctx);

	for (uint32_t k = 0; k < g->part_count; k++) {
		const struct abi_part *part = &g->part[k];
		uint32_t per_layer = run->blocks * part->groups;

		if (!(run->head.parts >> k & 1))
			continue;
		if (i >= part->layers * per_layer) {
			i -= part->layers * per_layer;
			continue;
		}
		*block = i % per_layer / part->groups;
		*page = part->page_base + i / per_layer * part->groups + i % part->groups;
		return;
	}
	assert(!"i is an item of the run");
}

static void data_io(struct core *c, struct run *run)
{
	struct context *x = run->ctx;
	uint32_t total = run->blocks * run->head.pages_per_block;
	struct core_io *io = run_io(c, run, run->place.offset + run->written);

	if (!io)
		return;
	while (run->cursor < total && io->piece_count < CORE_SEGMENTS_IO) {
		uint32_t block = 0, page = 0, bytes;
		const struct abi_page *d;

		run_item(run, run->cursor, &block, &page);
		bytes = page_stride(x, page);
		if (io->bytes && io->bytes + bytes > CORE_IO_BYTES_MAX)
			break;
		d = index_page(&x->ix, run->slot[block], page);
		io->priv.slot[io->piece_count] = run->slot[block];
		io->piece[io->piece_count++] = (struct core_io_piece){
			.addr = (uint8_t *)x->memory.mem[ABI_TIER_CXL] + page_addr(d, ABI_TIER_CXL),
			.bytes = bytes,
		};
		io->bytes += bytes;
		run->cursor++;
	}
	run->written += io->bytes;
	run_submit(c, run, io);
}

static void buffer_io(struct core *c, struct run *run, uint64_t offset, uint32_t bytes)
{
	struct core_io *io = run_io(c, run, offset);

	if (!io)
		return; /* the next step tries again */
	io->piece[io->piece_count++] = (struct core_io_piece){ .addr = run->buf, .bytes = bytes };
	io->bytes = bytes;
	c->metrics.record_bytes += bytes;
	run_submit(c, run, io);
}

/* The CRCs of the pages that the block has, behind the first k. */
static uint32_t record_crcs(const struct context *x, uint32_t slot, uint64_t parts, uint32_t *crc,
			    uint32_t k)
{
	for (; parts; parts &= parts - 1) {
		const struct abi_part *part = &x->spec.geometry.part[__builtin_ctzll(parts)];

		for (uint32_t n = 0; n < part->layers * part->groups; n++)
			crc[k++] = index_page(&x->ix, slot, part->page_base + n)->crc;
	}
	return k;
}

/* Its record, encoded into run->buf. */
void run_record(struct core *c, struct run *run)
{
	const struct context *x = run->ctx;
	struct disk_block block[DISK_RUN_BLOCKS_MAX];
	uint32_t pages = run->head.pages_per_block, k = 0, i = 0;
	uint32_t *crc = c->writeback.crc;

	memset(block, 0, sizeof(block));
	for (uint32_t n = 0; n < run->head.block_count; n++) {
		uint32_t slot = run->slot[i];

		if (!disk_there(&run->head, n)) {
			memcpy(block[n].key, run->named[n], ABI_KEY_BYTES);
			continue;
		}
		memcpy(block[n].key, index_block(&x->ix, slot)->key, ABI_KEY_BYTES);
		block[n].salt = block_salt(x, slot);
		block[n].keep = retain_word(c, x, slot);
		k = record_crcs(x, slot, run->head.parts, crc, k);
		i++;
	}
	assert(i == run->blocks && k == run->blocks * pages);
	run->head.written_ms = retain_now_ms(c);
	store_record(run->log->store, &run->place, &run->head, block, crc, run_buffer(run));
}

static void tomb_record(struct core *c, struct run *run)
{
	const struct tombs *t = &c->tombs[run->tomb_kind];
	struct disk_block *block = c->writeback.tombs;

	for (uint32_t i = 0; i < run->tombs; i++)
		block[i] = t->tomb[(t->written + i) % TOMBS_MAX].block;
	run->head.written_ms = retain_now_ms(c);
	store_record(run->log->store, &run->place, &run->head, block, NULL, run_buffer(run));
}

/* ---- the end of a run --------------------------------------------------------------------- */

/* The i-th block lies in the run's place from now on. */
void run_place(struct core *c, struct run *run, uint32_t i)
{
	struct context *x = run->ctx;
	uint32_t slot = run->slot[i];
	const struct disk_super *s = &run->log->super;
	uint64_t record = (run->place.record_offset - s->segment_offset) % s->segment_bytes;
	uint64_t word = ABI_NVME_PRESENT | record / DISK_SECTOR << ABI_NVME_RECORD_SHIFT;

	if (run->place.log == DISK_LOG_DURABLE)
		word |= ABI_NVME_DURABLE;
	meter_charge_words(&c->meter, run->head.pages_per_block);
	for (uint64_t parts = run->head.parts; parts; parts &= parts - 1) {
		const struct abi_part *part = &x->spec.geometry.part[__builtin_ctzll(parts)];

		for (uint32_t n = 0; n < part->layers * part->groups; n++) {
			uint32_t page = part->page_base + n;
			int64_t at = store_run_page(&x->spec.geometry, run->head.parts,
						    run->blocks, i, page);

			assert(at >= 0);
			index_page(&x->ix, slot, page)->nvme =
				word | abi_nvme_place(run->log->device,
						      run->place.offset + (uint64_t)at);
		}
	}
	x->meta[slot].persist = PERSIST_CLEAN;
	x->meta[slot].settle = SETTLE_NONE;
	x->nvme_bytes += block_bytes(x, slot);
	x->record_bytes += records_join(c, x, slot, c->record_live);
	quota_add(c, x, slot, ABI_TIER_NVME, block_bytes(x, slot));
	store_live(run->log->store, run->place.segment, (int64_t)block_bytes(x, slot));
	block_link(c, &run->log->segment_blocks[run->place.segment], x, slot);
}

static void block_written(struct core *c, struct run *run, uint32_t i)
{
	struct context *x = run->ctx;
	uint32_t slot = run->slot[i];
	struct block_meta *m = &x->meta[slot];
	bool durable = run->place.log == DISK_LOG_DURABLE, suspect = m->settle == SETTLE_SUSPECT;

	x->dirty_bytes -= block_bytes(x, slot);
	quota_sub(c, x, slot, ABI_TIER_NVME, block_bytes(x, slot)); /* of run_take */
	m->persist = PERSIST_NONE;
	if (m->flags & BLOCK_DROPPED || index_block(&x->ix, slot)->state == ABI_BLOCK_FREE)
		return;
	if (run->failed) {
		/* A record whose write failed may be there, and no flush covers its data. */
		if (durable && (run->suspect || run->phase == RUN_RECORD))
			flush_suspect(c, x, slot);
		writeback_enqueue(c, x, slot);
		return;
	}
	assert(durable || !suspect);
	m->heat = 0;
	run_place(c, run, i);
	c->metrics.blocks_written++;
	if (durable)
		unflushed_add(run->log, x, slot, suspect ? run->place.lsn - 1 : 0);
}

/* A block that was dropped while its run was written must not come back at recovery. */
void run_void(struct core *c, struct run *run, uint32_t i)
{
	struct context *x = run->ctx;
	uint32_t slot = run->slot[i];

	if (!run->failed && x->meta[slot].flags & BLOCK_DROPPED)
		tombstone(c, x, index_block(&x->ix, slot)->key, run->place.lsn);
}

static void run_end(struct core *c, struct run *run)
{
	struct tombs *t = &c->tombs[run->tomb_kind];
	struct context *x = run->ctx;
	struct drive *dv = run->log;

	assert(!run->outstanding);
	dv->write_seq += !run->failed;
	for (uint32_t i = 0; i < run->blocks; i++)
		run_void(c, run, i);
	for (uint32_t i = 0; i < run->blocks; i++) {
		block_written(c, run, i);
		block_unhold(c, x, run->slot[i]);
	}
	store_append_done(dv->store, &run->place, !run->failed);
	if (!run->failed) {
		dv->write_failures = 0;
		c->metrics.runs_written += run->blocks > 0;
		if (run->place.log == DISK_LOG_DURABLE)
			c->metrics.durable_bytes += run->written;
		c->metrics.written_bytes += run->written;
		/* Not if a failed flush has put back those before. */
		if (t->written == run->tomb_first)
			t->written += run->tombs;
	} else if (!run->suspect && !run->lost && c->now_ns >= dv->write_retry_ns) {
		dv->write_failures++; /* once for all that were under way */
		dv->write_retry_ns = c->now_ns + RETRY_NS;
	}
	run->phase = RUN_FREE;
	request_wake_phase(c, REQUEST_WRITTEN);
	request_wake_space(c);
	if (x)
		core_signals.context_idle(c, x);
}

/* Its header is to be written, as soon as time has come. */
static bool header_due(const struct core *c, const struct run *run)
{
	return run->phase == RUN_HEADER && !run->outstanding && catalog_voids(c, run->voids);
}

static void run_step(struct core *c, struct run *run)
{
	uint32_t total = run->blocks * run->head.pages_per_block;

	if (header_due(c, run) && c->now_ns >= run->log->flush_retry_ns) {
		store_header(run->log->store, &run->place, run_buffer(run));
		buffer_io(c, run, run->place.header_offset, DISK_SECTOR);
		return;
	}
	if (run->phase == RUN_HEADER_SYNC && run->log->sync_seq >= run->header_sync) {
		store_header_flushed(run->log->store, &run->place);
		run->phase = RUN_DATA;
	}
	while (run->phase == RUN_DATA && !run->failed && run->cursor < total &&
	       run->outstanding < CORE_RUN_IOS && c->actions.io_free)
		data_io(c, run);
	if (run->phase != RUN_DATA || run->outstanding)
		return;
	if (run->failed) {
		run_end(c, run);
	} else if (run->cursor == total && c->actions.io_free) {
		run->phase = RUN_RECORD;
		if (run->blocks)
			run_record(c, run);
		else
			tomb_record(c, run);
		buffer_io(c, run, run->place.record_offset, run->place.record_bytes);
	}
}

/*
 * The header voids the segment's former life, and with it tombstones elsewhere may be forgotten
 * (D8): it must be durable before that shows.
 */
static void header_written(struct run *run)
{
	bool again = run->suspect;

	run->suspect = false;
	if (run->failed) {
		run->phase = RUN_DATA; /* where a failed run ends */
		return;
	}
	if (again)
		return; /* run_step writes it again */
	run->phase = RUN_HEADER_SYNC;
	run->header_sync = ++run->log->write_seq;
	sync_want(run->log);
}

static void run_written(struct core *c, struct core_io *io)
{
	struct run *run = io->priv.owner;

	assert(run->outstanding > 0);
	run->outstanding--;
	run->lost |= drop_lost(c, run, io);
	if (io->res < 0 || (uint64_t)io->res != io->bytes)
		run->failed = true;
	core_io_put(c, io);
	if (run->phase == RUN_HEADER)
		header_written(run);
	else if (run->phase == RUN_RECORD)
		run_end(c, run);
	/* RUN_DATA: writeback_step goes on */
}

/* ---- drain -------------------------------------------------------------------------------- */

int core_drain(struct core *c, uint64_t token)
{
	if (c->writeback.tokens == CORE_TOKENS_MAX)
		return -EAGAIN;
	c->writeback.token[c->writeback.tokens++].token = token;
	c->writeback.draining = true;
	return 0;
}

static bool full_for(const struct core *c, uint64_t since_ns)
{
	/* The cleaner stops when it gains nothing; until then, who waits has his deadline. */
	for (uint32_t i = 0; i < c->drives; i++) {
		const struct drive *dv = c->drive[i];

		if (dv->leaving)
			continue; /* it makes no room for anyone */
		if (discard_busy(dv) || (clean_busy(dv) && !clean_stuck(c, dv)) ||
		    c->now_ns - dv->cleaner.ended_ns <= FULL_NS)
			return false;
	}
	return since_ns && c->now_ns - since_ns > FULL_NS;
}

/*
 * No room on NVMe for a while, for anything that waits for some, with nothing under way that could
 * make it: it will not come.
 */
bool writeback_full(const struct core *c, const struct context *x)
{
	bool full = false;

	for (uint32_t log = 0; log < CORE_LOGS; log++) {
		const struct dirty *d = &x->dirty[log];

		if (d->list.count && !full_for(c, d->full_since_ns))
			return false;
		full |= d->list.count > 0;
	}
	return full;
}

bool tombs_full(const struct core *c)
{
	return full_for(c, c->tombs[TOMBS_NEW].full_since_ns);
}

/* Have some no record yet? */
bool tombs_wait(const struct core *c)
{
	return c->tombs[TOMBS_NEW].written < c->tombs[TOMBS_NEW].queued ||
	       c->tombs[TOMBS_CARRIED].written < c->tombs[TOMBS_CARRIED].queued;
}

static void drain_step(struct core *c)
{
	struct drive *home = core_home(c);
	int res = home && drives_failing(c) ? -EIO : 0;

	if (!c->writeback.draining)
		return;
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];

		if (!x || !x->dirty_bytes)
			continue;
		if (!res && !writeback_full(c, x))
			return;
		res = res ? res : -ENOSPC; /* it will not be written: told, not waited for */
	}
	if (c->tombs[TOMBS_NEW].written < c->tombs[TOMBS_NEW].queued) {
		if (!res && !tombs_full(c) && !drive_failing(home))
			return;
		res = res ? res : drive_failing(home) ? -EIO : -ENOSPC;
	}
	for (uint32_t i = 0; i < c->drives; i++) {
		struct drive *dv = c->drive[i];

		if (dv->sync_seq == dv->write_seq || dv->unlisted)
			continue;
		if (!drive_failing(dv)) {
			sync_want(dv);
			return;
		}
		res = -EIO; /* what it was to keep */
	}
	for (uint32_t i = 0; i < c->writeback.tokens; i++)
		core_reply(c, c->writeback.token[i].token, res, 0);
	c->writeback.tokens = 0;
	c->writeback.draining = false;
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Does the context's next run begin? If there is no room for it, that is its own trouble. */
static bool context_begins(struct core *c, struct context *x, uint32_t log)
{
	struct dirty *d = &x->dirty[log];
	int err = run_begin(c, x, log);

	if (err == -EAGAIN)
		err = run_begin(c, x, log);
	if (err == -ENOSPC) {
		d->full_retry_ns = c->now_ns + FULL_RETRY_NS;
		d->full_since_ns = d->full_since_ns ? d->full_since_ns : c->now_ns;
		if (full_for(c, d->full_since_ns))
			admit_give_up(c, x, log);
	} else if (!err) {
		d->full_since_ns = 0;
	}
	return !err;
}

/*
 * Round robin over contexts, one look each, behind the last that wrote: fair, bounded. False: no
 * run of this kind begins.
 */
static bool kind_begins(struct core *c, uint32_t log)
{
	uint32_t first = c->writeback.context[log];

	for (uint32_t n = 0; n < c->contexts_high; n++) {
		uint32_t i = (first + n) % c->contexts_high;
		struct context *x = c->context[i];

		if (!x || x->closing || !dirty_due(c, x, &x->dirty[log]) ||
		    !context_begins(c, x, log))
			continue;
		c->writeback.context[log] = i + 1;
		return true;
	}
	return false;
}

/* Of one device: what was begun goes on. */
static void log_step(struct core *c, struct drive *dv)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE)
			run_step(c, &dv->run[i]);
	prove_step(c, dv);
	clean_step(c, dv);
	discard_step(c, dv);
}

void writeback_step(struct core *c)
{
	struct drive *home = core_home(c);

	if (!home) {
		drain_step(c);
		return;
	}
	tombs_write(c);
	for (uint32_t log = 0; log < CORE_LOGS; log++)
		while (drives_idle(c, log) && kind_begins(c, log))
			;
	for (uint32_t i = 0; i < c->drives; i++)
		log_step(c, c->drive[i]);
	drain_step(c);
	catalog_step(c);
	for (uint32_t i = 0; i < c->drives; i++)
		flush_step(c, c->drive[i]);
}

uint64_t writeback_next_tick(const struct core *c)
{
	uint64_t next = UINT64_MAX, at;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		at = c->context[i] ? dirty_next_tick(c, c->context[i]) : UINT64_MAX;
		next = at < next ? at : next;
	}
	for (uint32_t i = 0; i < c->drives * CORE_RUNS_MAX; i++) {
		const struct drive *dv = c->drive[i / CORE_RUNS_MAX];

		if (header_due(c, &dv->run[i % CORE_RUNS_MAX]) && dv->flush_retry_ns < next)
			next = dv->flush_retry_ns;
	}
	if (!c->drives)
		return next;
	at = core_home(c)->write_retry_ns;
	if (c->catalog.dirty && at > c->now_ns && at < next)
		next = at; /* runs on any drive may wait for it */
	if (!tombs_wait(c))
		return next;
	at = at > c->now_ns ? at : c->now_ns + TOMBS_LOOK_NS;
	return at < next ? at : next;
}
