/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning: empties one segment of a log by writing what is worth keeping again, elsewhere.
 *
 *   durable log   every live block; the segment with most dead for longest (store_victim)
 *   cache log     blocks that were asked for since they were written, half of them at most (of
 *                 segments in a row: they may hold one each); the rest leaves the service. The
 *                 oldest segment
 *
 *   needed tombstones are queued again -> runs: HEADER, flushed -> DATA -> flush -> RECORD
 *   -> flush -> the blocks' words name the new place -> segment dead
 *
 * Nothing is given up before its successor is safe: until the flush behind the record the blocks
 * live in the old segment, which cannot be opened anew. The data is flushed before the record is
 * written, so that at recovery a record of the cleaner never hides the good old copy (its flag says
 * DISK_RECORD_SETTLED). For the cache log, where nothing was promised, no flush is waited for.
 *
 * Blocks of one prefix that lie in several runs of the segment become one. Pages that are in CXL
 * are written from there; the others are read into CLEAN_CHUNKS buffers, and verified: a page that
 * does not verify voids its block. A run that fails for any reason is given up, and gathered anew.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/log/clean_priv.h"

#define CLEAN_RETRY_NS (100 * MS)
#define CLEAN_NEXT_NS (20 * MS) /* after a segment, the next one is not left to the tick */
#define CLEAN_FAILURES 3u /* of one segment, then another one is tried */
#define DEAD_WORTH 250u   /* permille: cleaned rather than dropping a segment of the cache log */
#define DEAD_LEAST 30u    /* permille: less is not worth its writes */
#define CLEAN_BATCH_BYTES (16u << 20)
#define GAIN_VICTIMS 32u  /* segments cleaned, at the end of which one must be gained */

/* ---- life --------------------------------------------------------------------------------- */

int clean_open(struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	k->spare = true;
	k->window = calloc(CLEAN_WINDOW, sizeof(*k->window));
	k->by_parent = calloc(2 * (size_t)CLEAN_WINDOW, sizeof(*k->by_parent));
	if (!k->window || !k->by_parent)
		return -ENOMEM;
	for (uint32_t i = 0; i < CLEAN_CHUNKS; i++) {
		k->chunk[i].data = aligned_alloc(DISK_SECTOR, CORE_IO_BYTES_MAX);
		if (!k->chunk[i].data)
			return -ENOMEM;
		k->chunk[i].cleaner = k;
	}
	k->to = dv;
	return 0;
}

void clean_close(struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	for (uint32_t i = 0; i < CLEAN_CHUNKS; i++)
		free(k->chunk[i].data);
	free(k->by_parent);
	free(k->window);
	free(k->run[0].buf);
	free(k->run[0].next_buf);
}

bool clean_busy(const struct drive *dv)
{
	return dv->cleaner.phase != CLEAN_IDLE;
}

/*
 * Does it wait for tombstones that have no room, and is nothing free? Crashes of a full store could
 * do that: what each of them tears is dead until it is cleaned.
 */
bool clean_stuck(const struct core *c, const struct drive *dv)
{
	struct store_stats st;

	if (dv->cleaner.phase != CLEAN_STOP || !c->tombs[TOMBS_CARRIED].full_since_ns)
		return false;
	store_stats(dv->store, &st);
	return !st.segments_free;
}

/* Are blocks of the context in the batch? */
bool clean_moves(const struct drive *dv, const struct context *x)
{
	const struct cleaner *k = &dv->cleaner;

	for (uint32_t i = 0; i < k->runs; i++)
		if (k->run[i].ctx == x)
			return true;
	return false;
}

static void begin(struct drive *dv, uint32_t segment, bool hot)
{
	struct cleaner *k = &dv->cleaner;

	assert(!clean_busy(dv));
	k->to = dv;
	k->segment = segment;
	k->hot = hot;
	k->all = false;
	k->budget = dv->segment_blocks[segment].count + k->spare;
	k->failures = 0;
	k->summary_next = DISK_SECTOR;
	k->part_bytes = k->part_cursor = 0;
	k->tombs = 0;
	k->runs = k->passed = 0;
	k->by_record = false;
	k->phase = hot ? CLEAN_GATHER : CLEAN_TOMBS;
	store_read_begin(dv->store, segment); /* it is not opened anew while we look at it */
}

void clean_from(struct drive *dv, struct drive *to, uint32_t segment, bool all)
{
	struct cleaner *k = &dv->cleaner;

	assert(to != dv && dv->leaving && !to->leaving);
	begin(dv, segment, store_segment_log(dv->store, segment) == DISK_LOG_CACHE);
	k->to = to;
	k->all = k->hot && all;
	if (k->all)
		k->budget = 2 * dv->segment_blocks[segment].count;
	k->lives = false; /* it is not for room */
}

/* Does someone wait for room? */
static bool awaited(const struct core *c)
{
	for (uint32_t i = 0; i < c->contexts_high * CORE_LOGS; i++) {
		const struct context *x = c->context[i / CORE_LOGS];
		const struct dirty *d = x ? &x->dirty[i % CORE_LOGS] : NULL;

		if (d && d->full_since_ns && d->list.count)
			return true;
	}
	return c->tombs[TOMBS_NEW].full_since_ns || c->tombs[TOMBS_CARRIED].full_since_ns;
}

/* Then it is as urgent as write-back, else it comes after all else. */
uint32_t clean_class(const struct core *c)
{
	return awaited(c) ? ABI_CLASS_WRITEBACK : ABI_CLASS_CLEANUP;
}

static int64_t victim(const struct core *c, const struct drive *dv, uint32_t permille)
{
	return store_victim(dv->store, permille, dv->cleaner.dead_least, awaited(c));
}

/*
 * A context has many tombstones, which what is as old as they are keeps needed: that moves. What is
 * only cached stays until one was refused.
 */
static int64_t shows_oldest(const struct core *c, const struct drive *dv, bool *hot)
{
	int64_t segment = store_oldest_shown(dv->store, DISK_LOG_DURABLE, c->tombs_bound);

	*hot = segment < 0 && c->tombs_refused;
	if (*hot)
		segment = store_oldest_shown(dv->store, DISK_LOG_CACHE, c->tombs_bound);
	return dv->super.segment_count < STORE_RESERVED_FROM ? -ENOENT : segment;
}

static void begin_oldest(struct core *c, struct drive *dv)
{
	bool hot, other;
	int64_t segment = shows_oldest(c, dv, &hot);

	if (segment >= 0) {
		begin(dv, (uint32_t)segment, hot);
		dv->cleaner.lives = false; /* it is not for room */
		return;
	}
	for (uint32_t i = 0; i < c->drives; i++)
		if (shows_oldest(c, c->drive[i], &other) >= 0)
			return;
	c->tombs_bound = 0;
	c->tombs_refused = false;
}

/*
 * Choose a segment whose cleaning makes room. A segment of the cache log costs what hits in it
 * save; one of the durable log the writing of what lives in it. False: nothing would be gained.
 */
bool clean_begin(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	int64_t segment;
	bool hot = false;

	if (clean_busy(dv) || dv->leaving || dv->super.segment_count < STORE_RESERVED_FROM)
		return false;
	segment = victim(c, dv, DEAD_WORTH);
	if (segment < 0) {
		segment = evict_oldest(c, dv);
		hot = segment >= 0;
	}
	if (segment < 0)
		segment = victim(c, dv, DEAD_LEAST);
	if (segment < 0)
		return false;
	begin(dv, (uint32_t)segment, hot);
	k->dead = store_dead_permille(dv->store, (uint32_t)segment);
	k->lives = store_segment_live(dv->store, (uint32_t)segment) > 0;
	return true;
}

/*
 * Room won by many segments must be more than was used for what was moved. If it is not, segments
 * with as much dead as these had are left alone: copying them again would gain as little, until
 * more has died in one. No time ends that: where nothing changes nothing is won.
 */
static void account_gain(struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	if (!k->victims++) {
		k->opened = store_opened_cleaned(dv->store);
		k->dead_sum = 0;
		return;
	}
	k->dead_sum += k->dead;
	if (k->victims <= GAIN_VICTIMS)
		return;
	k->dead_least = 0;
	if (store_opened_cleaned(dv->store) - k->opened >= GAIN_VICTIMS)
		k->dead_least = (uint32_t)(k->dead_sum / GAIN_VICTIMS) + DEAD_LEAST;
	if (k->dead_least > 1000)
		k->dead_least = 1000; /* all of it: then there is nothing to copy */
	k->victims = 0;
}

static void finish(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	k->phase = CLEAN_IDLE;
	k->ended_ns = c->now_ns;
	c->tombs[TOMBS_NEW].full_since_ns = 0; /* until they have tried what it gained */
	store_read_end(dv->store, k->segment);
	if (k->hot) {
		k->spare = k->budget > 0;
	} else {
		c->metrics.cleaned_segments++;
		if (k->lives) /* of tombstones alone it is known before that records are won */
			account_gain(dv);
	}
	/* What could not be moved (its context goes, its epoch is old) leaves by itself. */
	if (store_segment_live(dv->store, k->segment))
		store_shun(dv->store, k->segment);
	request_wake_space(c);
}

/* It cannot be cleaned now; another one first. */
static void give_up(struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	store_shun(dv->store, k->segment);
	store_read_end(dv->store, k->segment);
	k->phase = CLEAN_IDLE;
}

/* Nothing can be moved out of it just now: room may come, or another drive has some. */
static void no_room(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	if (k->to != dv) {
		dv->no_room = true;
		k->retry_ns = c->now_ns + CLEAN_RETRY_NS;
		evict_store_for(c, k->to, STORE_DURABLE);
	}
	give_up(dv);
}

static void failed(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	k->retry_ns = c->now_ns + CLEAN_RETRY_NS;
	if (++k->failures < CLEAN_FAILURES)
		return;
	give_up(dv);
	drain_gave_up(c, dv, k->segment);
}

/* ---- tombstones (D8) ---------------------------------------------------------------------- */

static void summary_read(struct core *c, struct core_io *io)
{
	struct drive *dv = c->drive[io->device];
	struct cleaner *k = &dv->cleaner;
	bool ok = io->res >= 0 && (uint64_t)io->res == io->bytes;

	k->busy = false;
	if (ok) {
		k->part_bytes = io->bytes;
		k->summary_next += io->bytes;
		store_mend(dv->store, k->chunk[0].data, io->bytes, false);
	}
	core_io_put(c, io);
	if (!ok)
		failed(c, dv);
}

static void summary_ask(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	const struct disk_super *s = &dv->super;
	uint64_t bytes = s->summary_bytes - k->summary_next;
	struct core_io *io = drive_io_get(c, dv, clean_class(c));

	if (!io)
		return;
	if (bytes > CORE_IO_BYTES_MAX)
		bytes = CORE_IO_BYTES_MAX;
	io->offset = s->segment_offset + k->segment * s->segment_bytes + k->summary_next;
	io->piece[0] = (struct core_io_piece){ .addr = k->chunk[0].data, .bytes = (uint32_t)bytes };
	io->piece_count = 1;
	io->bytes = bytes;
	io->priv.done = summary_read;
	io->priv.owner = k;
	k->busy = true;
	sched_io(c, io);
}

/* A context that no catalog names any more comes back with none of its records. */
static bool is_removed(const struct core *c, uint64_t uid)
{
	return !core_context_by_uid(c, uid) && !aside_is(c, uid) && !c->catalog.dirty &&
	       !c->catalog.running;
}

/* Queue what is still needed of one record. */
static void carry(struct core *c, struct drive *dv, const struct disk_record *r, uint64_t oldest)
{
	const struct disk_block *b = (const struct disk_block *)(r + 1);
	struct tombs *t = &c->tombs[TOMBS_CARRIED];

	if (is_removed(c, r->context_uid))
		return;
	for (uint32_t i = 0; i < r->block_count; i++) {
		if (b[i].salt < oldest)
			continue;
		tomb_push(t, r->context_uid, b[i].key, b[i].salt);
		c->metrics.tombstones_carried++;
	}
	dv->cleaner.tombs = t->queued;
}

static void records_begin(struct cleaner *k)
{
	k->by_record = true;
	k->summary_next = DISK_SECTOR;
	k->part_bytes = k->part_cursor = 0;
}

static void gather_begin(struct core *c, struct drive *dv)
{
	dv->cleaner.phase = CLEAN_GATHER;
	if (store_may_name_absent(dv->store) && store_may_name_absent(dv->cleaner.to->store) &&
	    !dv->cleaner.hot && clean_is_torn(c, dv))
		records_begin(&dv->cleaner);
}

static void tombs_step(struct core *c, struct drive *dv)
{
	const struct tombs *t = &c->tombs[TOMBS_CARRIED];
	struct cleaner *k = &dv->cleaner;
	uint64_t oldest;

	if (!store_tombs_needed(dv->store, k->segment, &oldest)) {
		gather_begin(c, dv);
		return;
	}
	while (tombs_room(t, STORE_TOMBSTONE_KEYS_MAX)) {
		const struct disk_record *r = store_next_tombstone(
			dv->store, k->segment, k->chunk[0].data, k->part_bytes, &k->part_cursor);

		if (r) {
			carry(c, dv, r, oldest);
			continue;
		}
		k->part_cursor -= k->part_bytes; /* where the next part begins */
		k->part_bytes = 0;
		if (k->summary_next < dv->super.summary_bytes)
			summary_ask(c, dv);
		else
			gather_begin(c, dv);
		return;
	}
	if (t->written > t->flushed)
		sync_want(dv); /* room in the queue comes by a flush */
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Of its summary: what is behind the last record that was gathered. */
static uint64_t summary_left(const struct drive *dv)
{
	const struct cleaner *k = &dv->cleaner;
	uint64_t next = k->summary_next + k->part_cursor - k->part_bytes;
	uint64_t end = dv->super.summary_bytes;

	return k->by_record && next < end ? end - next : 0;
}

/* Read it again: the buffer is used for other things, or all of that part was gathered. */
static void summary_back(struct cleaner *k)
{
	k->summary_next += k->part_cursor - k->part_bytes;
	k->part_bytes = k->part_cursor = 0;
}

/* The batch's next run. -EAGAIN: when more of the summary was read. */
static int gather_next(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	struct run *run = &k->run[k->runs];
	int err;

	if (!summary_left(dv))
		return clean_gather(c, dv, run); /* or what no record was found of */
	err = k->part_bytes ? clean_gather_run(c, dv, run) : -ENOENT;
	if (err != -ENOENT)
		return err;
	return summary_left(dv) ? -EAGAIN : clean_gather(c, dv, run);
}

/*
 * The last free segment is opened only for runs as they are: these fit it, whatever has died in
 * them. Others than those that were torn become longer ones while there is more room.
 */
static void gather(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	uint64_t bytes = 0, opened = store_opened_cleaned(dv->store);
	uint32_t free = store_free(dv->store);
	bool may = !k->hot && k->to == dv && store_may_name_absent(dv->store);
	int err = 0;

	if (k->to->leaving) { /* since it began */
		give_up(dv);
		return;
	}
	if (store_opening(k->to->store, clean_stream(dv)))
		return; /* in a later event */
	k->runs = k->at = 0;
	k->voids = c->catalog.voids;
	k->failed = k->recorded = false;
	while (k->runs < CLEAN_RUNS && bytes < CLEAN_BATCH_BYTES && !err &&
	       !(k->runs && meter_spent(&c->meter))) {
		if (may && !k->by_record &&
		    free <= 1 + store_opened_cleaned(dv->store) - opened)
			records_begin(k);
		err = gather_next(c, dv);
		if (!err)
			bytes += k->run[k->runs++].place.data_bytes;
	}
	if (k->by_record)
		summary_back(k);
	if (k->runs)
		k->phase = CLEAN_HEADER;
	else if (err == -EAGAIN)
		summary_ask(c, dv);
	else if (err == -EBUSY)
		return; /* it looks on in a later event */
	else if (err == -ENOENT || k->hot) /* hot, and no room to keep anything: dropped */
		k->phase = CLEAN_STOP;
	else
		no_room(c, dv);
}

/* ---- the end of a run --------------------------------------------------------------------- */

static void run_over(struct core *c, struct drive *dv, struct run *run, bool ok)
{
	struct context *x = run->ctx;

	for (uint32_t i = 0; i < run->blocks; i++) {
		uint32_t slot = run->slot[i];

		x->meta[slot].flags &= (uint8_t)~BLOCK_MOVING;
		if (ok)
			run_void(c, run, i);
		if (ok && clean_there(c, dv, x, slot)) {
			block_unwritten(c, x, slot);
			run_place(c, run, i);
			x->meta[slot].heat /= 2;
		}
		block_unhold(c, x, slot);
	}
	if (ok || dv->cleaner.recorded)
		store_append_done(run->log->store, &run->place, ok);
	run->ctx = NULL;
	core_signals.context_idle(c, x);
}

static void batch_over(struct core *c, struct drive *dv, bool ok)
{
	struct cleaner *k = &dv->cleaner;

	for (uint32_t i = k->runs; !ok && !k->recorded && i-- > 0;)
		store_append_undo(k->run[i].log->store, &k->run[i].place);
	for (uint32_t i = 0; i < k->runs; i++) {
		if (ok && k->hot) {
			c->metrics.reinserted_bytes += k->run[i].written;
		} else if (ok) {
			c->metrics.cleaned_bytes += k->run[i].written;
			c->metrics.cleaned_blocks += k->run[i].blocks;
			c->metrics.cleaned_runs++;
		}
		run_over(c, dv, &k->run[i], ok);
	}
	k->runs = k->passed = 0;
	k->phase = CLEAN_GATHER;
	dv->no_room &= !ok;
	if (ok)
		return;
	if (k->by_record)
		records_begin(k); /* from the first one again */
	failed(c, dv);
}

/* Wait for a flush that begins after now. */
static void flush_then(struct drive *dv, enum clean_phase phase)
{
	dv->cleaner.need = ++dv->cleaner.to->write_seq;
	dv->cleaner.phase = phase;
	dv->cleaner.at = 0;
	sync_want(dv->cleaner.to);
}

/* The next phase, after a flush or at once. */
static void flush_or(struct drive *dv, bool flush, enum clean_phase sync, enum clean_phase next)
{
	if (flush) {
		flush_then(dv, sync);
		return;
	}
	dv->cleaner.phase = next;
	dv->cleaner.at = 0;
}

static void buffer_written(struct core *c, struct core_io *io)
{
	struct cleaner *k = io->priv.owner;

	k->busy = false;
	k->at = k->next;
	if (io->res < 0 || (uint64_t)io->res != io->bytes)
		k->failed = true;
	core_io_put(c, io);
}

static void buffer_write(struct core *c, struct drive *dv, void *buf, uint64_t offset,
			 uint32_t bytes)
{
	bool header = dv->cleaner.phase == CLEAN_HEADER; /* others may wait for it */
	struct core_io *io = drive_io_get(c, dv->cleaner.to,
					  header ? ABI_CLASS_WRITEBACK : clean_class(c));

	if (!io)
		return;
	io->write = 1;
	io->offset = offset;
	io->piece[0] = (struct core_io_piece){ .addr = buf, .bytes = bytes };
	io->piece_count = 1;
	io->bytes = bytes;
	io->priv.done = buffer_written;
	io->priv.owner = &dv->cleaner;
	c->metrics.record_bytes += bytes;
	dv->cleaner.busy = true;
	sched_io(c, io);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Does the batch's i-th run open its segment? It is then the first of those there. */
static bool opens(const struct cleaner *k, uint32_t i)
{
	const struct store_run *place = &k->run[i].place;

	return place->header_offset && (!i || k->run[i - 1].place.segment != place->segment);
}

/* Headers of segments that the batch opens, each once, then a flush. */
static void header_step(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	bool any = false;

	while (k->at < k->runs && !opens(k, k->at))
		k->at++;
	if (k->failed) {
		batch_over(c, dv, false);
	} else if (k->at < k->runs && !catalog_voids(c, k->voids)) {
		return;
	} else if (k->at < k->runs) {
		const struct store_run *place = &k->run[k->at].place;
		uint8_t *buf = run_buffer(&k->run[0]);

		store_header(k->to->store, place, buf);
		k->next = k->at + 1;
		buffer_write(c, dv, buf, place->header_offset, DISK_SECTOR);
	} else {
		for (uint32_t i = 0; i < k->runs; i++)
			any |= opens(k, i);
		flush_or(dv, any, CLEAN_HEADER_SYNC, CLEAN_DATA);
	}
}

static void data_step(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	if (clean_copy(c, dv))
		return;
	if (k->failed)
		batch_over(c, dv, false);
	else if (k->at == k->runs) /* else no operation was to be had */
		flush_or(dv, !k->hot, CLEAN_DATA_SYNC, CLEAN_RECORD);
}

/* Records from k->at on that lie side by side, as far as a buffer holds them, by one write. */
static void records_write(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	uint64_t offset = k->run[k->at].place.record_offset;
	uint8_t *buf = k->chunk[0].data;
	uint32_t bytes = 0;

	for (k->next = k->at; k->next < k->runs; k->next++) {
		struct run *run = &k->run[k->next];

		if (bytes && (run->place.record_offset != offset + bytes ||
			      run->place.record_bytes > CORE_IO_BYTES_MAX - bytes))
			break;
		run->buf = run_buffer(&k->run[0]); /* for the largest record that there may be */
		run_record(c, run);
		if (run->place.record_bytes > CORE_IO_BYTES_MAX)
			buf = run->buf;
		else
			memcpy(buf + bytes, run->buf, run->place.record_bytes);
		bytes += run->place.record_bytes;
	}
	k->recorded = true;
	buffer_write(c, dv, buf, offset, bytes);
}

static void record_step(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	if (k->failed) {
		batch_over(c, dv, false);
	} else if (k->at < k->runs) {
		records_write(c, dv);
	} else if (k->hot) {
		k->to->write_seq++;
		batch_over(c, dv, true);
	} else {
		flush_then(dv, CLEAN_RECORD_SYNC);
	}
}

static void headers_flushed(struct cleaner *k)
{
	for (uint32_t i = 0; i < k->runs; i++)
		if (opens(k, i))
			store_header_flushed(k->to->store, &k->run[i].place);
	k->phase = CLEAN_DATA;
}

static void synced_step(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;

	if (k->failed)
		batch_over(c, dv, false);
	else if (k->to->sync_seq < k->need)
		return;
	else if (k->phase == CLEAN_RECORD_SYNC)
		batch_over(c, dv, true);
	else if (k->phase == CLEAN_HEADER_SYNC)
		headers_flushed(k);
	else
		k->phase = CLEAN_RECORD;
}

static void stop_step(struct core *c, struct drive *dv)
{
	const struct tombs *t = &c->tombs[TOMBS_CARRIED];
	struct cleaner *k = &dv->cleaner;

	if (t->flushed < k->tombs) {
		if (t->written >= k->tombs)
			sync_want(dv);
		return;
	}
	if (k->hot && !evict_segment(c, dv, k->segment))
		return; /* the rest of it in a later event */
	if (!k->hot)
		store_tombs_carried(dv->store, k->segment);
	finish(c, dv);
}

void clean_step(struct core *c, struct drive *dv)
{
	static void (*const step[])(struct core *c, struct drive *dv) = {
		[CLEAN_TOMBS] = tombs_step,	    [CLEAN_GATHER] = gather,
		[CLEAN_HEADER] = header_step,	    [CLEAN_HEADER_SYNC] = synced_step,
		[CLEAN_DATA] = data_step,	    [CLEAN_DATA_SYNC] = synced_step,
		[CLEAN_RECORD] = record_step,	    [CLEAN_RECORD_SYNC] = synced_step,
		[CLEAN_STOP] = stop_step,
	};
	const struct cleaner *k = &dv->cleaner;
	enum clean_phase before = CLEAN_IDLE;

	/* Once an event: what was cleaned may have gained nothing. */
	if (!clean_busy(dv) && awaited(c) && c->now_ns - k->ended_ns < CLEAN_NEXT_NS)
		evict_ahead(c, dv);
	if (!clean_busy(dv) && c->tombs_bound && !awaited(c) && !dv->leaving)
		begin_oldest(c, dv);
	if (!clean_busy(dv) && dv->leaving)
		drain_move(c, dv);
	while (k->phase != before && k->phase != CLEAN_IDLE && !k->busy &&
	       c->now_ns >= k->retry_ns) {
		before = k->phase;
		step[before](c, dv);
	}
}

/* A flush has failed: what was written of the run may be gone. The blocks are where they were. */
void clean_flush_failed(struct core *c, struct drive *to)
{
	for (uint32_t i = 0; i < c->drives; i++) {
		struct cleaner *k = &c->drive[i]->cleaner;

		if (k->to == to && k->phase >= CLEAN_HEADER && k->phase < CLEAN_STOP)
			k->failed = true;
	}
}

uint64_t clean_next_tick(const struct core *c, const struct drive *dv)
{
	const struct cleaner *k = &dv->cleaner;
	uint64_t soon = c->now_ns + 10 * MS;

	if (!clean_busy(dv) && (!dv->leaving || dv->unlisted))
		return UINT64_MAX;
	return k->retry_ns > soon ? k->retry_ns : soon;
}
