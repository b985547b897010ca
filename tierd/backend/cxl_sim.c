/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cxl tier behind the simulated CXL-hybrid device (fpga-sim/, docs/fpga.md): every byte passes
 * the device's look-ups, DRAM and flash. By default the golden model in this process; where
 * TIER_SIM_RING names a ring, the RTL that serves it. A simulation, never found by `auto`.
 *
 * Regions are those of mem_chunks.h: who passes the device by gets SIGSEGV. A chunk is written full
 * of zeros, through the device, before an area gets it: what was punched is not seen again.
 *
 * The device is one, and the lock is around each line that passes it, so copies may wait for one
 * another. Never is memory of others touched under it, for that may fault (tierd/fault.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/crc32c.h"
#include "libtier/base/time.h"
#include "tierd/backend/mem_chunks.h"

#define RING "TIER_SIM_RING" /* in the environment: a ring's file (fpga-sim/port/ring.h) */
#define SIZE_AUTO (64ull << 20)
#define SHARE_PERCENT 25 /* of the host's memory: what a simulated flash may take of it */
#define HINTS 32u /* ranges that are going to be read; more are dropped */

struct sim_hint {
	const struct core_copy *copy; /* that reads it */
	uint64_t address, bytes, deadline_ns;
	uint32_t class;
	bool staged;
};

struct sim {
	struct mem_chunks common; /* first: what the slots get is this */
	struct sim_port *port;
	uint64_t stride; /* from one chunk to the next: they are spread over flash */
	struct sim_hint hint[HINTS] GUARDED_BY(common.lock);
	uint32_t hints GUARDED_BY(common.lock);
};

static struct sim *sim_of(const struct mem_ops *self)
{
	return (struct sim *)(uintptr_t)self;
}

/* ---- the device ---------------------------------------------------------------------------- */

static int sim_probe(uint64_t nodes, struct backend_info *info)
{
	const char *ring = getenv(RING);

	(void)nodes;
	*info = (struct backend_info){
		.name = "sim",
		.emulated = true,
		.device = true,
		.capacity_auto = SIZE_AUTO,
		.capacity_most = mem_host_share(SHARE_PERCENT),
	};
	snprintf(info->detail, sizeof(info->detail), "SIMULATED CXL-hybrid device: %s%s",
		 ring ? "RTL behind " : "golden model in process", ring ? ring : "");
	return 0;
}

static void sim_close(const struct mem_ops *self)
{
	struct sim *sim = sim_of(self);

	if (sim->port)
		sim->port->close(sim->port);
	mem_chunks_end(&sim->common);
	free(sim);
}

/* Twice as many chunks as bytes: what is punched comes back a moment later. */
static int begin_chunks(struct sim *sim, uint64_t bytes)
{
	const char *ring = getenv(RING);
	uint64_t chunks = 2 * (bytes / ABI_HUGE);
	int rc = ring ? sim_ring_open(&sim->port, ring) :
			sim_model_open(&sim->port, chunks * ABI_HUGE);

	if (rc)
		return rc;
	sim->stride = sim->port->capacity / chunks / ABI_HUGE * ABI_HUGE;
	return sim->stride ? mem_chunks_fill(&sim->common, (uint32_t)chunks) : -ENOSPC;
}

/* All are as good as one another: the one that was given back last. */
static uint32_t choose_chunk(const struct mem_chunks *m, uint32_t owner)
{
	(void)owner;
	return m->unused_count - 1;
}

static int empty_chunk(struct mem_chunks *m, uint32_t chunk, uint32_t owner)
{
	struct sim *sim = (struct sim *)m;
	uint8_t zeros[SIM_LINE] = { 0 };

	(void)owner; /* whosever it was */
	for (uint64_t at = 0; at < ABI_HUGE; at += SIM_LINE) {
		int rc;

		LOCK_SCOPE(&sim->common.lock);
		rc = sim->port->move(sim->port, true, chunk * sim->stride + at, zeros, SIM_LINE);
		if (rc)
			return rc;
	}
	return 0;
}

static int sim_open(const struct mem_ops **self, const struct backend_info *info, uint64_t bytes)
{
	struct sim *sim;
	int rc;

	(void)info;
	if (bytes == 0 || bytes % ABI_HUGE || bytes / ABI_HUGE >= MEM_NO_CHUNK / 2)
		return -EINVAL;
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return -ENOMEM;
	rc = mem_chunks_begin(&sim->common, &mem_cxl_sim);
	if (rc) {
		free(sim);
		return rc;
	}
	sim->common.choose = choose_chunk;
	sim->common.empty = empty_chunk;
	rc = begin_chunks(sim, bytes);
	if (rc) {
		sim_close(&sim->common.ops);
		return rc;
	}
	*self = &sim->common.ops;
	return 0;
}

/* Of the tier no client's device can have anything. */
static int sim_lend(const struct mem_region *region, uint64_t offset, uint64_t bytes, int *fd,
		    uint32_t *count)
{
	(void)region;
	(void)offset;
	(void)bytes;
	(void)fd;
	(void)count;
	return -EOPNOTSUPP;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static struct mem_private *find(struct sim *sim, const void *addr)
{
	LOCK_SCOPE(&sim->common.lock);
	return mem_chunks_at(&sim->common, addr);
}

/* Bytes of one line, not always whole flits: before such a write the host reads them. */
static int pass(struct sim *sim, struct mem_private *own, bool write, const void *addr,
		uint8_t *data, uint32_t bytes)
{
	uint64_t offset = (uint64_t)((const uint8_t *)addr - own->addr), area = offset / ABI_HUGE;
	uint32_t before = offset % SIM_FLIT, all = (before + bytes + SIM_FLIT - 1) & -SIM_FLIT;
	struct sim_port *port = sim->port;
	uint8_t line[SIM_LINE];
	uint64_t at;
	int rc = 0;

	LOCK_SCOPE(&sim->common.lock);
	if (own->chunk[area] == MEM_NO_CHUNK) {
		if (write)
			return -ENOMEM;
		memset(data, 0, bytes); /* a hole */
		return 0;
	}
	at = own->chunk[area] * sim->stride + offset % ABI_HUGE - before;
	if (!write || all != bytes)
		rc = port->move(port, false, at, line, all);
	if (rc || !write) {
		memcpy(data, line + before, bytes);
		return rc;
	}
	memcpy(line + before, data, bytes);
	return port->move(port, true, at, line, all);
}

/* What a line has left from this address on. */
static uint32_t left_in_line(const void *addr, uint32_t most)
{
	uint32_t left = SIM_LINE - (uintptr_t)addr % SIM_LINE;

	return left < most ? left : most;
}

static int write_bytes(struct sim *sim, struct mem_private *own, uint8_t *dst, uint8_t *bytes,
		       uint32_t count)
{
	int rc = mem_chunks_back(own, (uint64_t)(dst - own->addr) / ABI_HUGE, 0);

	return rc ? rc : pass(sim, own, true, dst, bytes, count);
}

static int copy_item(struct sim *sim, const struct core_copy *copy, struct core_copy_item *item)
{
	struct mem_private *from = find(sim, item->src), *to = find(sim, item->dst);
	uint32_t whole = item->bytes - item->pad, crc = item->seed, n;
	uint8_t line[SIM_LINE];
	int rc = 0;

	for (uint32_t done = 0; done < item->bytes && rc == 0; done += n) {
		const uint8_t *src = (const uint8_t *)item->src + done;
		uint8_t *dst = (uint8_t *)item->dst + done;

		n = left_in_line(dst, item->bytes - done);
		if (done < whole) {
			n = left_in_line(src, n < whole - done ? n : whole - done);
			if (from)
				rc = pass(sim, from, false, src, line, n);
			else
				memcpy(line, src, n);
		} else {
			memset(line, 0, n);
		}
		if (copy->checksum)
			crc = crc32c(crc, line, n);
		if (rc == 0 && to)
			rc = write_bytes(sim, to, dst, line, n);
		else if (rc == 0)
			memcpy(dst, line, n);
	}
	if (copy->checksum)
		item->crc = crc;
	return rc;
}

/* ---- hints --------------------------------------------------------------------------------- */

/* A range of the device around these bytes, in whole units, if one chunk has all of it. */
static bool hint_of(struct sim *sim, const struct core_copy_item *item, struct sim_hint *h)
	REQUIRES(sim->common.lock)
{
	struct mem_private *own = mem_chunks_at(&sim->common, item->src);
	uint64_t unit = sim->port->unit_bytes, offset, end;

	if (!own)
		return false;
	offset = (uint64_t)((const uint8_t *)item->src - own->addr);
	end = (offset % ABI_HUGE + item->bytes + unit - 1) / unit * unit;
	if (own->chunk[offset / ABI_HUGE] == MEM_NO_CHUNK || end > ABI_HUGE)
		return false;
	h->address = own->chunk[offset / ABI_HUGE] * sim->stride + offset % ABI_HUGE / unit * unit;
	h->bytes = own->chunk[offset / ABI_HUGE] * sim->stride + end - h->address;
	return true;
}

/* They wait for the next copy: a line passes the device when somebody has its lock. */
static int sim_hint(const struct mem_ops *self, const struct core_copy *copy)
{
	struct sim *sim = sim_of(self);

	LOCK_SCOPE(&sim->common.lock);
	for (uint32_t i = 0; i < copy->count && sim->hints < HINTS; i++) {
		struct sim_hint h = { .copy = copy, .deadline_ns = copy->deadline_ns,
				      .class = copy->klass < 3 ? copy->klass : 3 };

		if (hint_of(sim, &copy->item[i], &h))
			sim->hint[sim->hints++] = h;
	}
	return 0;
}

/* By the device's clock, which knows no wall: as far from now as the deadline is. */
static uint64_t cycles_until(uint64_t deadline_ns)
{
	uint64_t now = time_now_ns();

	if (!deadline_ns)
		return UINT64_MAX / 2;
	return deadline_ns < now ? 0 : (uint64_t)((double)(deadline_ns - now) * SIM_GHZ);
}

/* As many as there are windows and units for; the others stay, for later. */
static void stage_hints(struct sim *sim)
{
	int rc = 0;

	LOCK_SCOPE(&sim->common.lock);
	for (uint32_t i = 0; i < sim->hints && rc == 0; i++) {
		struct sim_hint *h = &sim->hint[i];

		if (h->staged)
			continue;
		rc = sim->port->stage(sim->port, &(struct sim_stage){
			.address = h->address, .bytes = h->bytes, .class = h->class,
			.cycles = cycles_until(h->deadline_ns) });
		h->staged = rc == 0;
	}
}

/* It was read. */
static void drop_hints(struct sim *sim, const struct core_copy *copy)
{
	uint32_t kept = 0;

	LOCK_SCOPE(&sim->common.lock);
	for (uint32_t i = 0; i < sim->hints; i++) {
		if (sim->hint[i].copy != copy)
			sim->hint[kept++] = sim->hint[i];
		else if (sim->hint[i].staged)
			sim->port->release(sim->port, sim->hint[i].address);
	}
	sim->hints = kept;
}

struct sim_flash cxl_sim_flash(const struct mem_ops *self)
{
	struct sim *sim = sim_of(self);

	LOCK_SCOPE(&sim->common.lock);
	return sim->port->flash(sim->port);
}

static void sim_copy(const struct mem_ops *self, struct core_copy *copy)
{
	struct sim *sim = sim_of(self);

	stage_hints(sim);
	copy->res = 0;
	for (uint32_t i = 0; i < copy->count && copy->res == 0; i++)
		copy->res = copy_item(sim, copy, &copy->item[i]);
	drop_hints(sim, copy);
}

const struct mem_ops mem_cxl_sim = {
	.name = "sim",
	.probe = sim_probe,
	.open = sim_open,
	.close = sim_close,
	.create = mem_chunks_create,
	.share = mem_chunks_share,
	.revoke = mem_revoke,
	.lend = sim_lend,
	.grant = mem_grant,
	.commit = mem_grant,
	.destroy = mem_chunks_destroy,
	.leave = mem_chunks_destroy,
	.prepare = mem_chunks_prepare,
	.punch = mem_chunks_punch,
	.resident = mem_chunks_resident,
	.bind = mem_bind_none,
	.hint = sim_hint,
	.copy = sim_copy,
};
