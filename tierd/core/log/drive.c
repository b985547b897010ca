/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drives of the store: the life of each, and which of them takes the next run. Write-back, the
 * cleaner, flushes, proofs and discards are each one's own. What is of the store as a whole is on
 * the first, its home: the catalog, and tombstones, whose bound is an lsn and reaches all drives.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

/* ---- life --------------------------------------------------------------------------------- */

static void drive_close(struct drive *dv)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++) {
		free(dv->run[i].buf);
		free(dv->run[i].next_buf);
	}
	prove_end(dv);
	clean_close(dv);
	discard_close(dv);
	free(dv->unflushed);
	free(dv->segment_blocks);
	if (dv->store)
		store_close(dv->store);
	free(dv);
}

static int drive_open(struct drive *dv, const struct disk_super *super)
{
	uint32_t segments = (uint32_t)super->segment_count;
	int err = store_open(&dv->store, super);

	dv->super = *super;
	dv->unflushed = calloc(UNFLUSHED_MAX, sizeof(*dv->unflushed));
	dv->segment_blocks = calloc(segments + 1, sizeof(*dv->segment_blocks));
	if (!err && (!dv->unflushed || !dv->segment_blocks))
		err = -ENOMEM;
	for (uint32_t i = 0; dv->segment_blocks && i < segments; i++)
		block_list_init(&dv->segment_blocks[i]);
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		dv->run[i].log = dv;
	if (!err)
		err = clean_open(dv);
	if (!err)
		err = discard_open(dv);
	return err;
}

int drives_open(struct core *c)
{
	uint32_t drives = c->config.drives ? c->config.drives : 1, segments = 0;
	uint64_t records = 0;
	int err = 0;

	if (drives > CORE_DRIVES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < drives && !err; i++) {
		struct drive *dv = calloc(1, sizeof(*dv));

		if (!dv)
			return -ENOMEM;
		dv->device = i;
		dv->kept = -ENOENT;
		dv->first = segments;
		dv->first_record = records;
		c->drive[c->drives++] = dv;
		err = drive_open(dv, i ? &c->config.more[i - 1] : &c->config.super);
		if (!err && i)
			store_join(dv->store, core_home(c)->store);
		dv->discarder.off = c->config.discard_none >> i & 1;
		segments += (uint32_t)dv->super.segment_count;
		records += dv->super.segment_count * records_sectors(&dv->super);
	}
	if (!err && drives_missing(c))
		store_missing(core_home(c)->store, true);
	return err;
}

/* The home last: the others number their records by it. */
void drives_close(struct core *c)
{
	while (c->drives)
		drive_close(c->drive[--c->drives]);
}

/* ---- operations --------------------------------------------------------------------------- */

/* The daemon's own, on this device; NULL = not now. */
struct core_io *drive_io_get(struct core *c, const struct drive *dv, uint32_t klass)
{
	struct core_io *io = core_io_get(c, klass, SCHED_DAEMON);

	if (io)
		io->device = dv->device;
	return io;
}

/* A segment that is read is not opened anew. */
void drive_read_begin(struct core *c, const struct core_io *io)
{
	struct store *s = c->drive[io->device]->store;

	store_read_begin(s, store_segment_of(s, io->offset));
}

/* Of a read that failed: did the device? Else it was never asked, or our memory is gone. */
bool drive_misread(const struct core_io *io)
{
	return io->res != -ETIME && io->res != -ECANCELED && io->res != -EFAULT;
}

void drive_read_end(struct core *c, const struct core_io *io)
{
	struct drive *dv = c->drive[io->device];
	bool failed = io->res < 0 || (uint64_t)io->res != io->bytes;

	store_read_end(dv->store, store_segment_of(dv->store, io->offset));
	if (!failed)
		dv->read_failures = 0;
	else if (drive_misread(io))
		dv->read_failures++;
}

/* Pages that did not verify, or could not be read. */
void drive_read_bad(struct core *c, uint32_t pages)
{
	c->metrics.read_bad += pages;
}

/* ---- all of them -------------------------------------------------------------------------- */

/* The i-th run of all devices, each of which has CORE_RUNS_MAX. */
const struct run *drive_run(const struct core *c, uint32_t i)
{
	return &c->drive[i / CORE_RUNS_MAX]->run[i % CORE_RUNS_MAX];
}

/* The i-th that the catalog names and that is not there; NULL = no more. */
static const struct disk_drive *missing_at(const struct core *c, uint32_t i)
{
	for (uint32_t k = 0; k < c->config.listed_count; k++) {
		bool there = false;

		for (uint32_t n = 1; n < c->drives; n++)
			there |= c->drive[n]->super.store_id == c->config.listed[k].store_id;
		if (!there && !i--)
			return &c->config.listed[k];
	}
	return NULL;
}

bool drives_missing(const struct core *c)
{
	return missing_at(c, 0) != NULL;
}

int core_drive_missing(const struct core *c, uint32_t i, struct disk_drive *out)
{
	const struct disk_drive *d = missing_at(c, i);

	if (!d)
		return -ENOENT;
	*out = (struct disk_drive){ d->store_id, d->capacity & ~DISK_DRIVE_LEAVES };
	return 0;
}

/* Is it failing, for those who look? Then it gets no new data, but where there is no other. */
bool drive_is_bad(const struct core *c, const struct drive *dv)
{
	return !drive_drained(c, dv) &&
	       (drive_failing(dv) || dv->read_failures >= CORE_FAILURES_MAX);
}

/* Could it, or all of its drive, not be read, and is not all of it in CXL? */
bool block_unreadable(const struct core *c, const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	return m->persist == PERSIST_CLEAN &&
	       (m->settle == SETTLE_MISREAD ||
		block_drive(c, x, slot)->read_failures >= CORE_FAILURES_MAX) &&
	       m->there[ABI_TIER_CXL].pages < block_pages(x, slot);
}

/* Does none work any more? */
bool drives_failing(const struct core *c)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (!c->drive[i]->leaving && !drive_failing(c->drive[i]))
			return false;
	return true;
}

/* Does it show what it is told, and keep it? */
static bool keeps(const struct drive *dv)
{
	return dv->flush_failures < CORE_FAILURES_MAX && dv->read_failures < CORE_FAILURES_MAX;
}

/*
 * One that does not keep what it is told is given nothing, unless none is well. One whose writes
 * fail is tried again, a run a second: nothing else tells that it is back.
 */
bool drive_usable(const struct core *c, const struct drive *dv)
{
	for (uint32_t i = 0; i < c->drives && !keeps(dv); i++) {
		const struct drive *other = c->drive[i];

		if (!other->leaving && keeps(other) && !drive_failing(other))
			return false;
	}
	return !dv->leaving && c->now_ns >= dv->write_retry_ns;
}

/* No device may be written to before; it may be past. */
uint64_t drives_retry_ns(const struct core *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < c->drives; i++)
		if (!c->drive[i]->leaving && c->drive[i]->write_retry_ns < next)
			next = c->drive[i]->write_retry_ns;
	return next;
}

/*
 * One that can begin there; NULL = not now. None begins beside one that opens the segment; and
 * while writes fail one at a time shows whether they do yet.
 */
struct run *drive_run_free(struct drive *dv, uint32_t kind)
{
	if (store_opening(dv->store, kind) || (dv->write_failures && drive_writes(dv, kind)))
		return NULL;
	for (uint32_t i = CORE_RUN_FIRST(kind); i < CORE_RUN_END(kind); i++)
		if (dv->run[i].phase == RUN_FREE)
			return &dv->run[i];
	return NULL;
}

/* Can a run of this kind begin on some device? */
bool drives_idle(const struct core *c, uint32_t kind)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (!c->drive[i]->leaving && drive_run_free(c->drive[i], kind))
			return true;
	return false;
}

/* Is there one with room, that only writes another run just now? Then nothing makes way for it. */
bool drives_room_soon(const struct core *c, uint32_t kind)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (!drive_run_free(c->drive[i], kind) && drive_usable(c, c->drive[i]) &&
		    store_free(c->drive[i]->store) > STORE_RESERVE)
			return true;
	return false;
}

bool drives_unflushed_room(const struct core *c, uint32_t blocks)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (!c->drive[i]->leaving && drive_run_free(c->drive[i], DISK_LOG_DURABLE) &&
		    unflushed_room(c->drive[i], blocks))
			return true;
	return false;
}

/* ---- placement ---------------------------------------------------------------------------- */

#define ROOM_ALIKE 64u /* permille of the data: room that is no reason to prefer one */

static uint32_t full_permille(const struct drive *dv)
{
	struct store_stats st;

	store_stats(dv->store, &st);
	return (uint32_t)(st.live * 1000 / (st.capacity ? st.capacity : 1));
}

/*
 * Those that may begin a run of this kind, best first: by room; of those that have about as much
 * the one that is done first with what it has to do. Returns their number.
 */
uint32_t drives_by_room(const struct core *c, uint32_t kind, struct drive *by[CORE_DRIVES_MAX])
{
	uint64_t cost[CORE_DRIVES_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->drives; i++) {
		struct drive *dv = c->drive[i];
		uint64_t ns;
		uint32_t at = n;

		if (!drive_run_free(dv, kind) || !drive_usable(c, dv))
			continue;
		ns = c->drives > 1 ? sched_queue_ns(c, i) : 0;
		ns += c->drives > 1 ? (uint64_t)(full_permille(dv) / ROOM_ALIKE) << 40 : 0;
		for (; at && cost[at - 1] > ns; at--) {
			cost[at] = cost[at - 1];
			by[at] = by[at - 1];
		}
		cost[at] = ns;
		by[at] = dv;
		n++;
	}
	return n;
}

/*
 * Where what lies on a drive that is drained goes: the emptiest of those into whose segments all
 * of it fits; NULL = none can take it now.
 */
struct drive *drives_target(const struct core *c, const struct drive *from)
{
	struct drive *best = NULL;

	for (uint32_t i = 0; i < c->drives; i++)
		if (c->drive[i] != from && drive_usable(c, c->drive[i]) &&
		    (!i || c->drive[i]->super.segment_bytes >= from->super.segment_bytes) &&
		    (!best || full_permille(c->drive[i]) < full_permille(best)))
			best = c->drive[i];
	return best;
}

/* ---- time --------------------------------------------------------------------------------- */

/* Of all records that any device may show, the lowest lsn; see store_oldest_lsn. */
uint64_t drives_oldest_lsn(const struct core *c)
{
	return store_oldest_lsn(core_home(c)->store);
}

uint64_t drives_next_tick(const struct core *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < c->drives; i++) {
		const struct drive *dv = c->drive[i];
		const uint64_t at[] = { flush_next_tick(c, dv), prove_next_tick(c, dv),
					clean_next_tick(c, dv), discard_next_tick(c, dv) };

		for (uint32_t k = 0; k < sizeof(at) / sizeof(at[0]); k++)
			next = at[k] < next ? at[k] : next;
	}
	return next;
}
