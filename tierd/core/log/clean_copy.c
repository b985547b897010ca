/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cleaner's data: runs of a batch are written in chunks of up to 1 MiB. Pages that are in CXL
 * are written from there (their blocks are held); the others are read from the old place into the
 * chunk's buffer first, and verified.
 */
#include <assert.h>

#include "tierd/core/log/clean_priv.h"

static bool in_buffer(const struct clean_chunk *h, const void *addr)
{
	const uint8_t *at = addr;

	return at >= h->data && at < h->data + CORE_IO_BYTES_MAX;
}

static void page_rotten(struct core *c, struct drive *dv, struct context *x, uint32_t slot)
{
	drive_read_bad(c, 1);
	if (!(x->meta[slot].flags & BLOCK_DROPPED) &&
	    tombstone(c, x, index_block(&x->ix, slot)->key, store_lsn(dv->store)))
		block_drop(c, x, slot);
}

static void chunk_read(struct core *c, struct core_io *io)
{
	struct drive *dv = c->drive[io->device];
	struct clean_chunk *h = io->priv.owner;

	assert(h->reads > 0);
	h->reads--;
	if (io->res < 0 || (uint64_t)io->res != io->bytes || io->bad_mask)
		dv->cleaner.failed = true;
	for (uint32_t i = 0; io->res >= 0 && (uint64_t)io->res == io->bytes && i < io->piece_count;
	     i++)
		if (io->bad_mask >> i & 1)
			page_rotten(c, dv, h->run->ctx, io->priv.slot[i]);
	c->metrics.cleaned_read_bytes += io->bytes;
	drive_read_end(c, io);
	core_io_put(c, io);
}

static void chunk_written(struct core *c, struct core_io *io)
{
	struct clean_chunk *h = io->priv.owner;

	if (io->res < 0 || (uint64_t)io->res != io->bytes)
		h->cleaner->failed = true;
	core_io_put(c, io);
	h->io = NULL;
}

/* The next pages of the run, as one write; those in CXL from there. */
static void chunk_begin(struct core *c, struct drive *dv, struct clean_chunk *h)
{
	struct run *run = &dv->cleaner.run[dv->cleaner.at];
	const struct context *x = run->ctx;
	uint32_t total = run->blocks * run->head.pages_per_block;
	struct core_io *io = drive_io_get(c, dv->cleaner.to, clean_class(c));

	if (!io)
		return;
	while (run->cursor < total && io->piece_count < CORE_SEGMENTS_IO) {
		uint32_t block = 0, page = 0, n = io->piece_count, bytes;
		const struct abi_page *d;

		run_item(run, run->cursor, &block, &page);
		bytes = page_stride(x, page);
		if (io->bytes && io->bytes + bytes > CORE_IO_BYTES_MAX)
			break;
		d = index_page(&x->ix, run->slot[block], page);
		io->piece[n].addr = h->data + io->bytes;
		if (page_state(d, ABI_TIER_CXL) == ABI_PAGE_READY)
			io->piece[n].addr = (uint8_t *)x->memory.mem[ABI_TIER_CXL] +
					    page_addr(d, ABI_TIER_CXL);
		io->piece[n].bytes = bytes;
		io->priv.slot[n] = run->slot[block];
		io->priv.page[n] = page;
		io->piece_count++;
		io->bytes += bytes;
		run->cursor++;
	}
	io->write = 1;
	io->offset = run->place.offset + run->written;
	io->priv.done = chunk_written;
	io->priv.owner = h;
	run->written += io->bytes;
	dv->cleaner.at += run->cursor == total;
	h->io = io;
	h->run = run;
	h->next = h->reads = 0;
	h->writing = false;
}

bool clean_there(const struct core *c, const struct drive *dv, const struct context *x,
		 uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	return m->persist == PERSIST_CLEAN && !(m->flags & BLOCK_DROPPED) &&
	       block_lies(c, x, slot, dv, dv->cleaner.segment);
}

/* One read: pieces from h->next on that lie side by side in the store. */
static void chunk_ask(struct core *c, struct drive *dv, struct clean_chunk *h, struct core_io *io)
{
	const struct context *x = h->run->ctx;

	for (; h->next < h->io->piece_count; h->next++) {
		const struct core_io_piece *to = &h->io->piece[h->next];
		uint32_t slot = h->io->priv.slot[h->next], page = h->io->priv.page[h->next];
		uint32_t n = io->piece_count;
		const struct abi_page *d = index_page(&x->ix, slot, page);

		if (!clean_there(c, dv, x, slot))
			dv->cleaner.failed = true;
		if (dv->cleaner.failed || !in_buffer(h, to->addr) ||
		    (n && abi_nvme_offset(d->nvme) != io->offset + io->bytes))
			break;
		if (!n)
			io->offset = abi_nvme_offset(d->nvme);
		io->piece[n] = (struct core_io_piece){
			.addr = to->addr,
			.bytes = to->bytes,
			.seed = store_page_seed(index_block(&x->ix, slot)->key, block_salt(x, slot),
						page),
			.crc = d->crc,
		};
		io->priv.slot[n] = slot;
		io->priv.page[n] = page;
		io->piece_count++;
		io->bytes += to->bytes;
	}
}

static void chunk_fill(struct core *c, struct drive *dv, struct clean_chunk *h)
{
	while (h->next < h->io->piece_count && !dv->cleaner.failed) {
		struct core_io *io;

		if (!in_buffer(h, h->io->piece[h->next].addr)) {
			h->next++;
			continue;
		}
		io = drive_io_get(c, dv, clean_class(c));
		if (!io)
			return;
		chunk_ask(c, dv, h, io);
		if (!io->piece_count) {
			core_io_put(c, io);
			return;
		}
		io->verify = 1;
		io->priv.done = chunk_read;
		io->priv.owner = h;
		h->reads++;
		drive_read_begin(c, io);
		sched_io(c, io);
	}
}

static void chunk_step(struct core *c, struct drive *dv, struct clean_chunk *h)
{
	const struct cleaner *k = &dv->cleaner;

	if (!h->io && !k->failed && k->at < k->runs)
		chunk_begin(c, dv, h);
	if (!h->io || h->writing)
		return;
	chunk_fill(c, dv, h);
	if (h->reads)
		return;
	if (k->failed) {
		core_io_put(c, h->io);
		h->io = NULL;
	} else if (h->next == h->io->piece_count) {
		h->writing = true;
		sched_io(c, h->io);
	}
}

/* One step for all chunks. True: something is still under way. */
bool clean_copy(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	bool busy = false;

	for (uint32_t i = 0; i < CLEAN_CHUNKS; i++) {
		chunk_step(c, dv, &k->chunk[i]);
		busy |= k->chunk[i].io != NULL;
	}
	return busy;
}
