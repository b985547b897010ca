/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discarding: the device is told which data is not needed any more, so that it need not keep it
 * (inside a drive free room is what makes writing cheap; of a file it goes back to the file
 * system). One dead segment at a time, in steps, and while nothing else is under way or was a
 * moment ago: whoever comes meanwhile waits for one piece at most. Where that is never so, a step
 * is taken all the same when the last one was long ago. Called by core_event's steps.
 *
 *   HEADER  of a new life without records (abi/disk.h D2): nothing of before is found from then on
 *   SYNC    a flush: else a crash could bring the records back, and not their data
 *   DATA    all behind the summary, which is left as it is: it has the numbers that are used up
 *
 * The segments that are opened next are spared: writing them again tells the device as much. All
 * others are opened behind these, those discarded last of all, so that the device keeps what it was
 * given. A device may forget a discard, tear it, or return anything where it was done.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

#define DISCARD_BYTES (16u << 20) /* at a time */
#define DISCARD_SPARED 4u         /* as many as evict_ahead keeps free */
#define DISCARD_LOOKS 16u         /* dead segments made free at a time */
#define DISCARD_RETRY_NS (1000 * MS)

int discard_open(struct drive *dv)
{
	dv->discarder.buf = aligned_alloc(DISK_SECTOR, DISK_SECTOR);
	return dv->discarder.buf ? 0 : -ENOMEM;
}

void discard_close(struct drive *dv)
{
	free(dv->discarder.buf);
}

bool discard_busy(const struct drive *dv)
{
	return dv->discarder.phase != DISCARD_IDLE;
}

/* ---- when --------------------------------------------------------------------------------- */

static bool context_moves(const struct context *x)
{
	return x->dirty[DISK_LOG_DURABLE].list.count || x->dirty[DISK_LOG_CACHE].list.count ||
	       x->closing || x->sweeping;
}

/* Of the drive's own work; a discard is its own, too. */
static bool works(const struct drive *dv)
{
	const struct prover *p = &dv->prover;

	return dv->sync_wanted || dv->sync_running || p->next != p->count || clean_busy(dv) ||
	       drive_busy(dv);
}

/* Is anything under way, waiting, or coming soon, that needs a device or tells what is dead? */
static bool in_use(const struct core *c, const struct drive *dv)
{
	if (c->actions.ios || c->actions.copies || c->queues.space_head || c->writeback.draining ||
	    c->catalog.dirty || c->catalog.running || c->dropped.parents_leaving.count ||
	    tombs_wait(c) || sched_demand(c, c->config.discard_quiet_ns))
		return true;
	for (uint32_t i = 0; i < c->drives; i++)
		if (works(c->drive[i]) || (c->drive[i] != dv && c->drive[i]->discarder.busy))
			return true;
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && context_moves(c->context[i]))
			return true;
	return false;
}

/* A drive that is drained: who takes it out need not wait for that. */
static bool is_left(const struct drive *dv)
{
	return dv->leaving && dv->discarder.phase == DISCARD_IDLE;
}

/* When the next step may be taken. */
static uint64_t step_from_ns(const struct core *c, const struct drive *dv)
{
	const struct discarder *d = &dv->discarder;
	uint64_t quiet = d->used_ns + c->config.discard_quiet_ns;
	uint64_t late = d->held_ns + c->config.discard_late_ns;
	uint64_t from = quiet < late ? quiet : late;

	return from > d->retry_ns ? from : d->retry_ns;
}

static void look_around(struct core *c, struct drive *dv)
{
	struct discarder *d = &dv->discarder;

	if (!in_use(c, dv))
		return;
	if (c->now_ns >= d->used_ns + c->config.discard_quiet_ns)
		d->held_ns = c->now_ns; /* it was quiet until now */
	d->used_ns = c->now_ns;
	d->looked = false;
}

uint64_t discard_next_tick(const struct core *c, const struct drive *dv)
{
	const struct discarder *d = &dv->discarder;
	uint64_t at = step_from_ns(c, dv);

	if (!dv->store || !c->config.discard || d->off || is_left(dv) || d->busy ||
	    d->phase == DISCARD_SYNC ||
	    (d->phase == DISCARD_IDLE && d->looked))
		return UINT64_MAX;
	return at > c->now_ns ? at : c->now_ns;
}

/* ---- one segment -------------------------------------------------------------------------- */

static void end(struct drive *dv, bool stale)
{
	struct discarder *d = &dv->discarder;

	assert(d->phase != DISCARD_IDLE && !d->busy);
	store_discard_end(dv->store, d->place.segment, stale);
	d->phase = DISCARD_IDLE;
	d->failed = d->wanted = false;
}

static void failed(struct core *c, struct drive *dv)
{
	c->metrics.discards_failed++;
	dv->discarder.retry_ns = c->now_ns + DISCARD_RETRY_NS;
}

static void header_written(struct core *c, struct core_io *io)
{
	struct drive *dv = c->drive[io->device];
	struct discarder *d = &dv->discarder;
	bool ok = io->res >= 0 && (uint64_t)io->res == io->bytes;

	assert(d->phase == DISCARD_HEADER && d->busy);
	d->busy = false;
	core_io_put(c, io);
	if (!ok)
		failed(c, dv);
	if (!ok || d->failed || d->wanted) {
		end(dv, true);
		return;
	}
	d->phase = DISCARD_SYNC;
	d->need = ++dv->write_seq;
	sync_want(dv);
}

static void header_write(struct core *c, struct drive *dv)
{
	struct discarder *d = &dv->discarder;
	struct core_io *io = drive_io_get(c, dv, ABI_CLASS_CLEANUP);

	if (!io)
		return;
	store_header(dv->store, &d->place, d->buf);
	io->write = 1;
	io->offset = d->place.header_offset;
	io->piece[0] = (struct core_io_piece){ .addr = d->buf, .bytes = DISK_SECTOR };
	io->piece_count = 1;
	io->bytes = DISK_SECTOR;
	io->priv.done = header_written;
	io->priv.owner = d;
	c->metrics.record_bytes += DISK_SECTOR;
	d->busy = true;
	sched_io(c, io);
}

/* Dead segments become free when somebody wants one, or here. False: none is left. */
static bool free_some(struct drive *dv)
{
	for (uint32_t i = 0; i < DISCARD_LOOKS; i++) {
		int64_t segment = store_dead(dv->store);

		if (segment < 0)
			return false;
		store_segment_free(dv->store, (uint32_t)segment);
	}
	return true;
}

static void begin(struct core *c, struct drive *dv)
{
	struct discarder *d = &dv->discarder;
	int64_t segment;

	if (d->looked || !catalog_voids(c, c->catalog.voids))
		return;
	d->looked = !free_some(dv);
	segment = store_stale(dv->store, DISCARD_SPARED);
	if (segment < 0)
		return;
	d->looked = false;
	store_discard_begin(dv->store, (uint32_t)segment, &d->place);
	d->phase = DISCARD_HEADER;
	header_write(c, dv);
}

static void data_discard(struct core *c, struct drive *dv)
{
	const struct disk_super *s = &dv->super;
	struct discarder *d = &dv->discarder;
	uint64_t left = s->segment_bytes - d->next;

	assert(d->next >= s->summary_bytes && left > 0);
	d->bytes = left < DISCARD_BYTES ? left : DISCARD_BYTES;
	d->busy = true;
	core_push(c, CORE_AC_DISCARD)->range =
		(struct core_range){ .device = dv->device,
				     .tier = ABI_TIER_NVME,
				     .offset = d->place.header_offset + d->next,
				     .bytes = d->bytes };
}

void discard_done(struct core *c, struct drive *dv, int res)
{
	struct discarder *d = &dv->discarder;

	assert(d->phase == DISCARD_DATA && d->busy);
	d->busy = false;
	if (res) {
		d->off = res == -EOPNOTSUPP;
		failed(c, dv);
		end(dv, false); /* nor is it tried again before its next life */
		return;
	}
	c->metrics.discarded_bytes += d->bytes;
	d->next += d->bytes;
	if (d->next == dv->super.segment_bytes) {
		c->metrics.discards++;
		end(dv, false);
	} else if (d->wanted) {
		end(dv, true);
	}
}

/*
 * Somebody found no room: it is his, unless something is under way that would hit his life, too. A
 * header that is on its way could come down behind that of his.
 */
bool discard_release(struct drive *dv)
{
	struct discarder *d = &dv->discarder;

	if (!discard_busy(dv))
		return false;
	if (d->busy) {
		d->wanted = true;
		return false;
	}
	end(dv, true);
	return true;
}

/* The header may be gone. */
void discard_flush_failed(struct drive *dv)
{
	struct discarder *d = &dv->discarder;

	if (d->phase == DISCARD_HEADER)
		d->failed = d->busy;
	else if (d->phase == DISCARD_SYNC)
		end(dv, true);
}

void discard_step(struct core *c, struct drive *dv)
{
	struct discarder *d = &dv->discarder;

	if (!c->config.discard || d->off || is_left(dv))
		return;
	look_around(c, dv);
	assert(d->held_ns <= c->now_ns && d->used_ns <= c->now_ns);
	if (d->phase == DISCARD_SYNC && dv->sync_seq >= d->need) {
		store_discard_void(dv->store, d->place.segment);
		d->phase = DISCARD_DATA;
		d->next = dv->super.summary_bytes;
	}
	if (d->busy || d->phase == DISCARD_SYNC || c->now_ns < step_from_ns(c, dv))
		return;
	d->held_ns = c->now_ns;
	if (d->phase == DISCARD_IDLE)
		begin(c, dv);
	else if (d->phase == DISCARD_HEADER)
		header_write(c, dv);
	else
		data_discard(c, dv);
}
