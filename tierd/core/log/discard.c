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

int discard_open(struct core *c)
{
	c->discarder.buf = aligned_alloc(DISK_SECTOR, DISK_SECTOR);
	return c->discarder.buf ? 0 : -ENOMEM;
}

void discard_close(struct core *c)
{
	free(c->discarder.buf);
}

bool discard_busy(const struct core *c)
{
	return c->discarder.phase != DISCARD_IDLE;
}

/* ---- when --------------------------------------------------------------------------------- */

static bool context_moves(const struct context *x)
{
	return x->dirty[DISK_LOG_DURABLE].list.count || x->dirty[DISK_LOG_CACHE].list.count ||
	       x->closing || x->sweeping;
}

/* Is anything under way, waiting, or coming soon, that needs the device or tells what is dead? */
static bool in_use(const struct core *c)
{
	const struct prover *p = &c->prover;

	if (c->ios || c->copies || c->space_head || c->draining || c->sync_wanted ||
	    c->sync_running || c->catalog_dirty || c->catalog_running || c->parents_leaving.count ||
	    p->next != p->count || clean_busy(c) || tombs_wait(c) ||
	    sched_demand(c, c->config.discard_quiet_ns))
		return true;
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (c->run[i].phase != RUN_FREE)
			return true;
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && context_moves(c->context[i]))
			return true;
	return false;
}

/* When the next step may be taken. */
static uint64_t step_from_ns(const struct core *c)
{
	const struct discarder *d = &c->discarder;
	uint64_t quiet = d->used_ns + c->config.discard_quiet_ns;
	uint64_t late = d->held_ns + c->config.discard_late_ns;
	uint64_t from = quiet < late ? quiet : late;

	return from > d->retry_ns ? from : d->retry_ns;
}

static void look_around(struct core *c)
{
	struct discarder *d = &c->discarder;

	if (!in_use(c))
		return;
	if (c->now_ns >= d->used_ns + c->config.discard_quiet_ns)
		d->held_ns = c->now_ns; /* it was quiet until now */
	d->used_ns = c->now_ns;
	d->looked = false;
}

uint64_t discard_next_tick(const struct core *c)
{
	const struct discarder *d = &c->discarder;
	uint64_t at = step_from_ns(c);

	if (!c->store || !c->config.discard || d->off || d->busy || d->phase == DISCARD_SYNC ||
	    (d->phase == DISCARD_IDLE && d->looked))
		return UINT64_MAX;
	return at > c->now_ns ? at : c->now_ns;
}

/* ---- one segment -------------------------------------------------------------------------- */

static void end(struct core *c, bool stale)
{
	struct discarder *d = &c->discarder;

	assert(d->phase != DISCARD_IDLE && !d->busy);
	store_discard_end(c->store, d->place.segment, stale);
	d->phase = DISCARD_IDLE;
	d->failed = d->wanted = false;
}

static void failed(struct core *c)
{
	c->metrics.discards_failed++;
	c->discarder.retry_ns = c->now_ns + DISCARD_RETRY_NS;
}

static void header_written(struct core *c, struct core_io *io)
{
	struct discarder *d = &c->discarder;
	bool ok = io->res >= 0 && (uint64_t)io->res == io->bytes;

	assert(d->phase == DISCARD_HEADER && d->busy);
	d->busy = false;
	core_io_put(c, io);
	if (!ok)
		failed(c);
	if (!ok || d->failed || d->wanted) {
		end(c, true);
		return;
	}
	d->phase = DISCARD_SYNC;
	d->need = ++c->write_seq;
	sync_want(c);
}

static void header_write(struct core *c)
{
	struct discarder *d = &c->discarder;
	struct core_io *io = core_io_get(c, ABI_CLASS_CLEANUP, SCHED_DAEMON);

	if (!io)
		return;
	store_header(c->store, &d->place, d->buf);
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
static bool free_some(struct core *c)
{
	for (uint32_t i = 0; i < DISCARD_LOOKS; i++) {
		int64_t segment = store_dead(c->store);

		if (segment < 0)
			return false;
		store_segment_free(c->store, (uint32_t)segment);
	}
	return true;
}

static void begin(struct core *c)
{
	struct discarder *d = &c->discarder;
	int64_t segment;

	if (d->looked || !catalog_voids(c, c->voids))
		return;
	d->looked = !free_some(c);
	segment = store_stale(c->store, DISCARD_SPARED);
	if (segment < 0)
		return;
	d->looked = false;
	store_discard_begin(c->store, (uint32_t)segment, &d->place);
	d->phase = DISCARD_HEADER;
	header_write(c);
}

static void data_discard(struct core *c)
{
	const struct disk_super *s = &c->config.super;
	struct discarder *d = &c->discarder;
	uint64_t left = s->segment_bytes - d->next;

	assert(d->next >= s->summary_bytes && left > 0);
	d->bytes = left < DISCARD_BYTES ? left : DISCARD_BYTES;
	d->busy = true;
	core_push(c, CORE_AC_DISCARD)->range =
		(struct core_range){ .tier = ABI_TIER_NVME,
				     .offset = d->place.header_offset + d->next,
				     .bytes = d->bytes };
}

void discard_done(struct core *c, int res)
{
	struct discarder *d = &c->discarder;

	assert(d->phase == DISCARD_DATA && d->busy);
	d->busy = false;
	if (res) {
		d->off = res == -EOPNOTSUPP;
		failed(c);
		end(c, false); /* nor is it tried again before its next life */
		return;
	}
	c->metrics.discarded_bytes += d->bytes;
	d->next += d->bytes;
	if (d->next == c->config.super.segment_bytes) {
		c->metrics.discards++;
		end(c, false);
	} else if (d->wanted) {
		end(c, true);
	}
}

/*
 * Somebody found no room: it is his, unless something is under way that would hit his life, too. A
 * header that is on its way could come down behind that of his.
 */
bool discard_release(struct core *c)
{
	struct discarder *d = &c->discarder;

	if (!discard_busy(c))
		return false;
	if (d->busy) {
		d->wanted = true;
		return false;
	}
	end(c, true);
	return true;
}

/* The header may be gone. */
void discard_flush_failed(struct core *c)
{
	struct discarder *d = &c->discarder;

	if (d->phase == DISCARD_HEADER)
		d->failed = d->busy;
	else if (d->phase == DISCARD_SYNC)
		end(c, true);
}

void discard_step(struct core *c)
{
	struct discarder *d = &c->discarder;

	if (!c->config.discard || d->off)
		return;
	look_around(c);
	assert(d->held_ns <= c->now_ns && d->used_ns <= c->now_ns);
	if (d->phase == DISCARD_SYNC && c->sync_seq >= d->need) {
		store_discard_void(c->store, d->place.segment);
		d->phase = DISCARD_DATA;
		d->next = c->config.super.summary_bytes;
	}
	if (d->busy || d->phase == DISCARD_SYNC || c->now_ns < step_from_ns(c))
		return;
	d->held_ns = c->now_ns;
	if (d->phase == DISCARD_IDLE)
		begin(c);
	else if (d->phase == DISCARD_HEADER)
		header_write(c);
	else
		data_discard(c);
}
