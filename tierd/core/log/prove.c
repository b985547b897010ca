/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proving what recovery found: it reads records, not data, and the last records before a crash may
 * have survived without their data. Records up to the store's flushed_lsn, and those that say so
 * themselves, are proven (D9); the blocks of the others in the durable log are read here, one
 * piece at a time in the background, bounded by what was written between the last two flushes.
 *
 * A block that verifies is as durable as any: the shell flushed the device before it read the
 * records. One that does not verify is voided. Until then a durable put of it waits. Blocks of the
 * cache log are not read: a durable put writes them again anyway.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

#define PROVE_RETRY_NS (100 * MS)
#define PROVE_TRIES 3u

static bool is_its(const struct core *c, const struct drive *dv, const struct context *x,
		   uint32_t slot)
{
	return x->meta[slot].settle == SETTLE_RECOVERED && block_drive(c, x, slot) == dv;
}

static uint32_t unproven_count(const struct core *c, const struct drive *dv,
			       const struct context *x)
{
	uint32_t count = 0;

	for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++)
		count += is_its(c, dv, x, slot);
	return count;
}

/* Whatever its size, a page is read as a whole. Strides of what is on NVMe are whole sectors. */
static uint32_t buffer_bytes(const struct core *c)
{
	uint32_t bytes = CORE_IO_BYTES_MAX;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];

		for (uint32_t part = 0; x && context_has_nvme(c, x) &&
					part < x->spec.geometry.part_count; part++)
			if (x->spec.geometry.part[part].page_stride > bytes)
				bytes = x->spec.geometry.part[part].page_stride;
	}
	return bytes;
}

/* Take the blocks that recovery left unproven. */
int prove_begin(struct core *c, struct drive *dv)
{
	struct prover *p = &dv->prover;
	uint32_t count = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++)
		count += unproven_count(c, dv, c->context[i]);
	if (!count)
		return 0;
	p->buf_bytes = buffer_bytes(c);
	p->ref = calloc(count, sizeof(*p->ref));
	p->buf = aligned_alloc(DISK_SECTOR, p->buf_bytes);
	if (!p->ref || !p->buf)
		return -ENOMEM; /* core_close frees what there is */
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		struct context *x = c->context[i];

		for (uint32_t slot = 0; x && slot < x->ix.slots_used; slot++)
			if (is_its(c, dv, x, slot))
				p->ref[p->count++] = (struct prove_ref){
					x->id, { slot, index_block(&x->ix, slot)->generation }
				};
	}
	assert(p->count == count);
	p->left = count;
	flushed_freeze(dv);
	return 0;
}

void prove_end(struct drive *dv)
{
	free(dv->prover.ref);
	free(dv->prover.buf);
}

static struct context *unproven(struct core *c, const struct prove_ref *r)
{
	struct context *x = core_context(c, r->context_id);

	if (!x || !block_alive(x, r->ref) || x->meta[r->ref.slot].settle != SETTLE_RECOVERED)
		return NULL;
	assert(x->meta[r->ref.slot].persist == PERSIST_CLEAN);
	return x;
}

static void next_block(struct prover *p)
{
	p->next++;
	p->page = 0;
	p->tries = 0;
}

static void proven(struct core *c, struct drive *dv, struct context *x, uint32_t slot)
{
	x->meta[slot].settle = SETTLE_NONE;
	c->metrics.proved_blocks++;
	dv->prover.left--;
	next_block(&dv->prover);
	request_wake_phase(c, REQUEST_WRITTEN);
}

/* It could not be read, or did not verify: a few times before that is believed. */
static bool try_again(struct core *c, struct drive *dv)
{
	drive_read_bad(c, 1);
	return ++dv->prover.tries < PROVE_TRIES;
}

static void unreadable(struct core *c, struct drive *dv, struct context *x, uint32_t slot)
{
	dv->prover.retry_ns = c->now_ns + PROVE_RETRY_NS;
	request_wake_phase(c, REQUEST_WRITTEN);
	if (try_again(c, dv))
		return;
	x->meta[slot].settle = SETTLE_UNKNOWN; /* the next start tries again */
	next_block(&dv->prover);
}

/* Is there no telling whether it is durable: could it not be read, or does its drive not answer? */
bool prove_fails(const struct core *c, const struct context *x, uint32_t slot)
{
	uint32_t settle = x->meta[slot].settle;

	return settle == SETTLE_UNKNOWN ||
	       (settle == SETTLE_RECOVERED &&
		block_drive(c, x, slot)->read_failures >= CORE_FAILURES_MAX);
}

/* Its data did not survive the crash (then nobody was told that it would), or has rotted. */
static void disproven(struct core *c, struct drive *dv, struct context *x, uint32_t slot)
{
	if (try_again(c, dv))
		return;
	if (!tombstone(c, x, index_block(&x->ix, slot)->key, store_lsn(dv->store))) {
		dv->prover.retry_ns = c->now_ns + PROVE_RETRY_NS;
		return;
	}
	block_drop(c, x, slot);
	request_wake_phase(c, REQUEST_WRITTEN);
}

static void prove_read(struct core *c, struct core_io *io)
{
	struct drive *dv = c->drive[io->device];
	struct prover *p = &dv->prover;
	const struct prove_ref *r = &p->ref[p->next];
	struct context *x = unproven(c, r), *held = io->priv.owner;
	uint32_t slot = r->ref.slot, last = io->priv.page[io->piece_count - 1];

	p->reading = false;
	drive_read_end(c, io);
	if (!x) {
		; /* it went meanwhile: prove_step goes on */
	} else if (io->res < 0 || (uint64_t)io->res != io->bytes) {
		unreadable(c, dv, x, slot);
	} else if (io->bad_mask) {
		disproven(c, dv, x, slot);
	} else {
		c->metrics.proved_bytes += io->bytes;
		p->page = last + 1;
		if (p->page == x->ix.pages_per_block)
			proven(c, dv, x, slot);
	}
	core_io_put(c, io);
	block_unhold(c, held, slot);
	core_signals.context_idle(c, held);
}

/* Pages from p->page on that lie side by side. False: the block has no more pages. */
static bool gather(struct prover *p, const struct context *x, uint32_t slot, struct core_io *io)
{
	const struct abi_block *b = index_block(&x->ix, slot);

	for (; p->page < x->ix.pages_per_block && io->piece_count < CORE_SEGMENTS_IO; p->page++) {
		const struct abi_page *d = index_page(&x->ix, slot, p->page);
		uint32_t bytes = page_stride(x, p->page), n = io->piece_count;

		if (!(b->parts >> x->page_part[p->page] & 1))
			continue;
		if (n && (abi_nvme_offset(d->nvme) != io->offset + io->bytes ||
			  io->bytes + bytes > CORE_IO_BYTES_MAX))
			break;
		if (!n)
			io->offset = abi_nvme_offset(d->nvme);
		assert(io->bytes + bytes <= p->buf_bytes);
		io->piece[n] = (struct core_io_piece){
			.addr = p->buf + io->bytes,
			.bytes = bytes,
			.seed = store_page_seed(b->key, block_salt(x, slot), p->page),
			.crc = d->crc,
		};
		io->priv.slot[n] = slot;
		io->priv.page[n] = p->page;
		io->piece_count++;
		io->bytes += bytes;
	}
	return io->piece_count > 0;
}

void prove_step(struct core *c, struct drive *dv)
{
	struct prover *p = &dv->prover;
	struct context *x = NULL;
	struct core_io *io;
	uint32_t slot, first, left = p->left;

	if (p->next == p->count || p->reading || c->now_ns < p->retry_ns || !c->actions.io_free)
		return;
	while (p->next < p->count && !(x = unproven(c, &p->ref[p->next]))) {
		p->left--;
		next_block(p);
	}
	if (p->left < left) /* some went, or the cleaner moved them: who waits looks again */
		request_wake_phase(c, REQUEST_WRITTEN);
	if (!x)
		return;
	slot = p->ref[p->next].ref.slot;
	io = drive_io_get(c, dv, ABI_CLASS_CLEANUP);
	first = p->page;
	if (!gather(p, x, slot, io)) {
		core_io_put(c, io); /* the last pages are of a part that it does not have */
		proven(c, dv, x, slot);
		return;
	}
	p->page = first; /* again, if it fails */
	p->reading = true;
	io->verify = 1;
	io->priv.done = prove_read;
	io->priv.owner = x;
	block_hold(x, slot);
	drive_read_begin(c, io);
	sched_io(c, io);
}

uint64_t prove_next_tick(const struct core *c, const struct drive *dv)
{
	const struct prover *p = &dv->prover;

	if (p->next == p->count || p->reading)
		return UINT64_MAX;
	return p->retry_ns > c->now_ns ? p->retry_ns : c->now_ns;
}
