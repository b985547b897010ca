/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated device: 4 KiB sectors, a volatile write cache, faults. At a crash each sector
 * written since the last flush is kept or lost by itself, which contains reordering and tearing at
 * sector grain.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"

void device_open(struct world *w)
{
	uint64_t bytes = w->options->nvme_bytes;

	if (store_super_plan(&w->super, bytes, 2u << 20, 0x1234))
		assert(!"the plan of the store fits");
	disk_super_seal(&w->super);
	w->disk = calloc(1, bytes);
	w->stable = calloc(1, bytes);
	w->unstable = calloc(1, bytes / DISK_SECTOR);
	assert(w->disk && w->stable && w->unstable);
}

void device_close(struct world *w)
{
	free(w->disk);
	free(w->stable);
	free(w->unstable);
}

static void write_pieces(struct world *w, struct core_io *io)
{
	uint64_t at = io->offset;

	for (uint32_t i = 0; i < io->piece_count; i++) {
		memcpy(w->disk + at, io->piece[i].addr, io->piece[i].bytes);
		at += io->piece[i].bytes;
	}
	for (uint64_t s = io->offset / DISK_SECTOR; s < at / DISK_SECTOR; s++)
		w->unstable[s] = 1;
	io->res = (int32_t)io->bytes;
}

/* The core buries a block whose bytes do not verify: it is no longer owed to anyone. */
static void forgive(struct world *w, const struct core_io *io, uint32_t i)
{
	const struct abi_block *b =
		(const struct abi_block *)(w->index + w->index_header->block_offset) +
		io->priv.slot[i];
	uint8_t key[ABI_KEY_BYTES];

	for (uint32_t n = 0; n < WORLD_KEYS; n++) {
		world_key(n, key);
		if (!memcmp(key, b->key, sizeof(key)))
			w->durable[n] = false;
	}
}

static void read_pieces(struct world *w, struct core_io *io)
{
	uint64_t at = io->offset;
	uint32_t fault = world_below(w, 1000000), kind = world_below(w, 3);
	bool faulty = fault < w->options->read_bad_ppm;

	io->bad_mask = 0;
	io->res = (int32_t)io->bytes;
	for (uint32_t i = 0; i < io->piece_count; i++) {
		struct core_io_piece *p = &io->piece[i];

		memcpy(p->addr, w->disk + at, p->bytes);
		if (faulty && kind == 0)
			((uint8_t *)p->addr)[world_below(w, p->bytes)] ^= 1;
		if (io->verify && crc32c(p->seed, p->addr, p->bytes) != p->crc)
			io->bad_mask |= 1ull << i;
		if (io->bad_mask >> i & 1)
			forgive(w, io, i);
		at += p->bytes;
	}
	w->result->bad_reads += io->bad_mask != 0;
	if (faulty && kind == 1)
		io->res = -EIO;
	if (faulty && kind == 2)
		io->res -= 512;
}

void device_io(struct world *w, struct core_io *io)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < io->piece_count; i++)
		bytes += io->piece[i].bytes;
	if (bytes != io->bytes || io->offset % DISK_SECTOR || bytes % DISK_SECTOR ||
	    io->offset + bytes > w->options->nvme_bytes) {
		world_fail(w, "an operation outside the device or not of whole sectors");
		io->res = -EINVAL;
		return;
	}
	if (!io->write)
		read_pieces(w, io);
	else if (world_below(w, 1000000) < w->options->write_bad_ppm)
		io->res = -EIO;
	else
		write_pieces(w, io);
}

void device_flush(struct world *w)
{
	for (uint64_t s = 0; s < w->options->nvme_bytes / DISK_SECTOR; s++) {
		if (!w->unstable[s])
			continue;
		memcpy(w->stable + s * DISK_SECTOR, w->disk + s * DISK_SECTOR, DISK_SECTOR);
		w->unstable[s] = 0;
	}
}

void device_crash(struct world *w)
{
	for (uint64_t s = 0; s < w->options->nvme_bytes / DISK_SECTOR; s++) {
		if (!w->unstable[s])
			continue;
		if (world_below(w, 2)) /* lost */
			memcpy(w->disk + s * DISK_SECTOR, w->stable + s * DISK_SECTOR, DISK_SECTOR);
		else
			memcpy(w->stable + s * DISK_SECTOR, w->disk + s * DISK_SECTOR, DISK_SECTOR);
		w->unstable[s] = 0;
	}
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

		if (disk_catalog_open(slot, w->super.catalog_bytes, w->super.store_id, &h, &l))
			continue;
		if (h->sequence < best)
			continue;
		best = h->sequence;
		*head = h;
		*list = l;
	}
	return best != 0;
}

void device_recover(struct world *w)
{
	struct core_recovery r;

	for (uint32_t i = 0; i < w->super.segment_count; i++)
		core_recover_segment(w->core, i,
				     w->disk + w->super.segment_offset + i * w->super.segment_bytes,
				     w->super.summary_bytes);
	core_recover_finish(w->core, &r);
}
