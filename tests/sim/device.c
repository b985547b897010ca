/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated device: 4 KiB sectors, a volatile write cache, faults and moods. At a crash each
 * sector written since the last flush is kept or lost by itself, which contains reordering and
 * tearing at sector grain. A flush that fails loses some of what it should have kept, at once or at
 * the next crash, whatever later flushes say.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"

enum mood { MOOD_WELL, MOOD_SILENT, MOOD_FAILING, MOOD_FULL };

/* world.unstable, by sector: 0 = as in stable */
enum unstable {
	WRITTEN = 1, /* since the last flush */
	COVERED,     /* by the flush under way */
	FORGOTTEN,   /* by a flush that failed: lost at the next crash, unless written again */
};

void device_open(struct world *w)
{
	uint64_t bytes = w->faults->small_store ? NVME_SMALL_BYTES : NVME_BYTES;
	uint64_t segment = w->faults->small_store ? SEGMENT_SMALL_BYTES : 1u << 20;

	if (store_super_plan(&w->super, bytes, segment, 0x1234))
		assert(!"the plan of the store fits");
	disk_super_seal(&w->super);
	w->drives = w->disks = w->faults->drives ? w->faults->drives : 1;
	assert(w->disks <= WORLD_DRIVES);
	w->disk = calloc(w->disks, NVME_BYTES);
	w->stable = calloc(w->disks, NVME_BYTES);
	w->unstable = calloc(w->disks, NVME_BYTES / DISK_SECTOR);
	w->lost = calloc(w->disks, NVME_BYTES / DISK_SECTOR);
	assert(w->disk && w->stable && w->unstable && w->lost);
}

enum device_fate device_fate(const struct world *w, uint64_t sector)
{
	if (!w->unstable[sector])
		return DEVICE_SAFE;
	return w->unstable[sector] == FORGOTTEN ? DEVICE_LOSES : DEVICE_UNSURE;
}

uint64_t device_capacity(const struct world *w)
{
	return w->drives * w->super.segment_count *
	       (w->super.segment_bytes - w->super.summary_bytes);
}

void device_close(struct world *w)
{
	free(w->disk);
	free(w->stable);
	free(w->unstable);
	free(w->lost);
}

static uint32_t mood_of(const struct world *w, uint32_t drive)
{
	if (w->dead && drive)
		return MOOD_FAILING;
	return w->mood_drive == drive || w->mood_drive == w->disks ? w->mood : MOOD_WELL;
}

bool device_answers(const struct world *w, uint32_t drive)
{
	return mood_of(w, drive) != MOOD_SILENT;
}

/* What a flush under way covers it keeps, too, where the same bytes are written over it. */
static void write_pieces(struct world *w, struct core_io *io, uint64_t limit)
{
	uint64_t at = device_flat(io), left = limit;
	bool same = true;

	for (uint32_t i = 0; i < io->piece_count && left; i++) {
		uint64_t n = io->piece[i].bytes < left ? io->piece[i].bytes : left;

		same &= !memcmp(w->disk + at, io->piece[i].addr, n);
		memcpy(w->disk + at, io->piece[i].addr, n);
		at += n;
		left -= n;
	}
	for (uint64_t s =
	     device_flat(io) / DISK_SECTOR; s < (at + DISK_SECTOR - 1) / DISK_SECTOR; s++) {
		if (!same || w->unstable[s] != COVERED)
			w->unstable[s] = WRITTEN;
		w->lost[s] = 0;
	}
}

/* Has the device lost something there that it had taken, and that was not written again since? */
bool device_lost(const struct world *w, uint64_t offset, uint64_t bytes)
{
	for (uint64_t s = offset / DISK_SECTOR; s < (offset + bytes) / DISK_SECTOR; s++)
		if (w->lost[s])
			return true;
	return false;
}

static bool is_header(const struct world *w, uint64_t offset)
{
	return offset >= w->super.segment_offset &&
	       (offset - w->super.segment_offset) % w->super.segment_bytes == 0;
}

/* Where the cleaner of one drive writes beside another's runs, headers are late: much that must not
 * go on without them could, meanwhile. */
bool device_is_late(struct world *w, const struct core_io *io)
{
	return w->disks > 1 && !w->fair && is_header(w, io->offset) && world_chance(w, 800000);
}

static void device_write(struct world *w, struct core_io *io)
{
	bool catalog = io->offset < w->super.segment_offset, small = io->bytes <= 2 * DISK_SECTOR;
	uint32_t often = small || io->bytes > SCHED_UNIT_BUSY / 2 ? 3 : 1; /* there are few */
	bool faulty = !w->fair && world_chance(w, catalog ? w->faults->catalog_ppm
							 : often * w->faults->write_ppm);
	/* Most of a small write is zeros: torn among what is not, or not at all. */
	uint64_t torn = world_random(w) % (small && world_chance(w, 500000) ? 1024 : io->bytes);

	io->res = (int32_t)io->bytes;
	if (mood_of(w, io->device) == MOOD_FULL)
		io->res = -ENOSPC;
	else if (mood_of(w, io->device) == MOOD_FAILING)
		io->res = -EIO;
	else if (faulty)
		io->res = world_chance(w, 500000) ? -EIO : (int32_t)torn;
	/* A segment's new life voids the old one: a moment that is worth many crashes. */
	if (catalog && w->faults->crash_ppm && !w->fair && world_chance(w, 100000))
		w->crash_due = true; /* so is a new catalog */
	if (w->faults->small_store && io->bytes == DISK_SECTOR && is_header(w, io->offset) &&
	    w->faults->crash_ppm && !w->fair && world_chance(w, 100000))
		w->crash_due = true;
	/* A failed or short write may have reached the medium in part: that is a torn write. */
	write_pieces(w, io, io->res < 0 ? torn : (uint64_t)io->res);
}

static void device_read(struct world *w, struct core_io *io)
{
	bool direct = path_is_direct(w, io, 0);
	bool cleans = io->klass > ABI_CLASS_SPECULATIVE; /* such reads are few */
	bool ahead = io->klass == ABI_CLASS_DEADLINE || io->klass == ABI_CLASS_SPECULATIVE;
	uint32_t often = cleans ? 12 : ahead ? 4 : 1;
	uint32_t ppm = direct ? w->faults->direct_ppm : often * w->faults->read_ppm;
	bool faulty = !w->fair && world_chance(w, ppm);
	uint32_t kind = cleans && world_chance(w, 500000) ? 0 : world_below(w, 3);
	uint64_t at = device_flat(io), garbled = 0;

	io->bad_mask = 0;
	io->res = (int32_t)io->bytes;
	for (uint32_t i = 0; i < io->piece_count; i++) {
		struct core_io_piece *p = &io->piece[i];

		memcpy(p->addr, w->disk + at, p->bytes);
		if (faulty && kind == 0) {
			((uint8_t *)p->addr)[world_below(w, p->bytes)] ^= 1;
			garbled |= 1ull << i;
		}
		if (io->verify && crc32c(p->seed, p->addr, p->bytes) != p->crc)
			io->bad_mask |= 1ull << i;
		if (io->bad_mask & ~garbled & 1ull << i && !device_lost(w, at, p->bytes))
			world_fail(w, "what was read does not verify, and the device has it");
		at += p->bytes;
	}
	if (mood_of(w, io->device) == MOOD_FAILING || (faulty && kind == 1))
		io->res = -EIO;
	else if (faulty && kind == 2)
		io->res -= 512;
	for (uint32_t i = 0; io->res == (int32_t)io->bytes && i < io->piece_count; i++)
		if (io->bad_mask & garbled & 1ull << i) {
			model_forgive(w, io, i);
			inside_misread(w, io, i);
		}
	/* What a failed read left behind is anything. */
	if (io->res != (int32_t)io->bytes)
		memset(io->piece[io->piece_count - 1].addr, 0xee, 512);
}

void device_io(struct world *w, struct core_io *io)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < io->piece_count; i++)
		bytes += io->piece[i].bytes;
	if (bytes != io->bytes || io->offset % DISK_SECTOR || bytes % DISK_SECTOR ||
	    io->device >= w->drives || io->offset + bytes > NVME_BYTES) {
		world_fail(w, "an operation outside the device or not of whole sectors");
		io->res = -EINVAL;
		return;
	}
	inside_reads_or_writes(w, io);
	if (io->write)
		device_write(w, io);
	else
		device_read(w, io);
}

/*
 * Told that nobody needs a range, a device forgets all, some or nothing of it, and shows what it
 * likes there from then on, if a crash does not bring the old back.
 */
int device_discard(struct world *w, const struct core_range *range)
{
	bool faulty = mood_of(w, range->device) || (!w->fair && world_chance(w,
									12 * w->faults->write_ppm));
	uint64_t first = (range->device * (uint64_t)NVME_BYTES + range->offset) / DISK_SECTOR;
	uint64_t kind = world_random(w);

	for (uint64_t s = first; s < first + range->bytes / DISK_SECTOR; s++) {
		if (kind % 4 == 0 || (kind % 4 == 1 && world_chance(w, 500000)))
			continue;
		memset(w->disk + s * DISK_SECTOR, kind % 3 ? 0 : 0x5a, DISK_SECTOR);
		w->unstable[s] = WRITTEN;
		w->lost[s] = 0;
	}
	if (w->faults->crash_ppm && !w->fair && world_chance(w, 200000))
		w->crash_due = true;
	if (!faulty)
		return 0;
	return world_chance(w, 200000) ? -EOPNOTSUPP : -EIO;
}

/* A write is done; true: and its issuer may know. A flush may fail between the two. */
bool device_wrote(struct world *w, struct core_io *io)
{
	for (uint32_t i = 0; i < w->landed_count; i++)
		if (w->landed[i] == io) {
			w->landed[i] = w->landed[--w->landed_count];
			return true;
		}
	device_io(w, io);
	if (w->landed_count == WORLD_DEPTH || !world_chance(w, 300000))
		return true;
	w->landed[w->landed_count++] = io;
	return false;
}

/* A flush takes time: it covers what was written before it began. False: one is under way. */
bool device_flush_begin(struct world *w, uint32_t drive)
{
	uint64_t sectors = NVME_BYTES / DISK_SECTOR;

	if (w->flushing[drive])
		return false;
	w->flushing[drive] = true;
	for (uint64_t s = drive * sectors; s < (drive + 1) * sectors; s++)
		if (w->unstable[s] == WRITTEN)
			w->unstable[s] = COVERED;
	return true;
}

/*
 * A flush failed: what was not flushed is gone, now or at the next crash, sector by sector; some of
 * it may have come through. The next flush knows nothing of it and succeeds.
 */
static void flush_lose(struct world *w, uint32_t drive)
{
	uint64_t sectors = NVME_BYTES / DISK_SECTOR;

	for (uint64_t s = drive * sectors; s < (drive + 1) * sectors; s++) {
		bool unsure = w->unstable[s] == WRITTEN || w->unstable[s] == COVERED;
		uint32_t fate = unsure ? world_below(w, 4) : 3;

		if (fate == 0) { /* reads show it until a crash */
			w->unstable[s] = FORGOTTEN;
		} else if (fate == 1) {
			memcpy(w->disk + s * DISK_SECTOR, w->stable + s * DISK_SECTOR, DISK_SECTOR);
			w->unstable[s] = 0;
			w->lost[s] = 1;
		} else if (fate == 2) {
			memcpy(w->stable + s * DISK_SECTOR, w->disk + s * DISK_SECTOR, DISK_SECTOR);
			w->unstable[s] = 0;
		}
	}
	w->result->flushes_failed++;
}

int device_flush_end(struct world *w, uint32_t drive)
{
	uint64_t sectors = NVME_BYTES / DISK_SECTOR;

	w->flushing[drive] = false;
	if (mood_of(w, drive) == MOOD_FAILING ||
	    (!w->fair && world_chance(w, w->faults->flush_ppm))) {
		flush_lose(w, drive);
		return -EIO;
	}
	for (uint64_t s = drive * sectors; s < (drive + 1) * sectors; s++) {
		if (w->unstable[s] != COVERED)
			continue;
		memcpy(w->stable + s * DISK_SECTOR, w->disk + s * DISK_SECTOR, DISK_SECTOR);
		w->unstable[s] = 0;
	}
	return 0;
}

void device_crash(struct world *w)
{
	for (uint64_t s = 0; s < w->disks * (NVME_BYTES / DISK_SECTOR); s++) {
		uint8_t *to = w->stable, *from = w->disk;

		if (!w->unstable[s])
			continue;
		if (w->unstable[s] == FORGOTTEN || world_chance(w, 500000)) { /* lost */
			to = w->disk;
			from = w->stable;
			w->lost[s] = 1;
		}
		memcpy(to + s * DISK_SECTOR, from + s * DISK_SECTOR, DISK_SECTOR);
		w->unstable[s] = 0;
	}
	w->mood = MOOD_WELL;
	w->dead = false;
	memset(w->flushing, 0, sizeof(w->flushing));
}

bool device_catalog(struct world *w, const struct disk_catalog **head,
		    const struct disk_context **list)
{
	uint64_t best = 0;

	for (uint32_t i = 0; i < 2; i++) {
		const struct disk_catalog *h;
		const struct disk_context *l;
		const uint8_t *slot =
			w->disk + w->super.catalog_offset + i * w->super.catalog_bytes;

		if (disk_catalog_open(slot, w->super.catalog_bytes, w->super.store_id, &h, &l) ||
		    h->sequence < best)
			continue;
		best = h->sequence;
		*head = h;
		*list = l;
	}
	return best != 0;
}

/* As the shell does at start: a catalog that did not come through whole is voided, for good. */
void device_void_torn(struct world *w, uint64_t sequence)
{
	uint64_t at = w->super.catalog_offset + (sequence & 1 ? 0 : w->super.catalog_bytes);
	const struct disk_catalog *h;
	const struct disk_context *l;

	if (!disk_catalog_open(w->disk + at, w->super.catalog_bytes, w->super.store_id, &h, &l))
		return;
	memset(w->disk + at, 0, DISK_SECTOR);
	memset(w->stable + at, 0, DISK_SECTOR);
}

void device_recover(struct world *w)
{
	struct core_recovery r;

	for (uint32_t i = 0; i < w->drives * w->super.segment_count; i++) {
		uint32_t drive = i / (uint32_t)w->super.segment_count;
		uint32_t segment = i % (uint32_t)w->super.segment_count;
		uint8_t *disk = w->disk + (uint64_t)drive * NVME_BYTES;

		core_recover_segment(
			w->core, drive, segment,
			disk + w->super.segment_offset + segment * w->super.segment_bytes,
			w->super.summary_bytes);
	}
	core_recover_finish(w->core, &r);
}
