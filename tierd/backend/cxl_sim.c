/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cxl tier behind the simulated CXL-hybrid device (fpga-sim/, docs/fpga.md): every byte passes
 * the device's look-ups, DRAM and flash. By default the golden model in this process; where
 * TIER_SIM_RING names a ring, the RTL that serves it. A simulation, never found by `auto`.
 *
 * As of a GPU (cuda.c), a region is addresses that no processor can touch, and a table from its
 * areas to chunks of the device: who passes the device by gets SIGSEGV. A chunk is written full of
 * zeros, through the device, before an area gets it: what was punched is not seen again.
 *
 * The device is one, and the lock is around each line that passes it, so copies may wait for one
 * another. Never is memory of others touched under it, for that may fault (tierd/fault.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libtier/base/crc32c.h"
#include "libtier/base/list.h"
#include "libtier/base/lock.h"
#include "libtier/base/time.h"
#include "tierd/backend/mem_common.h"

#define RING "TIER_SIM_RING" /* in the environment: a ring's file (fpga-sim/port/ring.h) */
#define SIZE_AUTO (64ull << 20)
#define SHARE_PERCENT 25 /* of the host's memory: what a simulated flash may take of it */
#define NO_CHUNK UINT32_MAX
#define HINTS 32u /* ranges that are going to be read; more are dropped */

struct sim_hint {
	const struct core_copy *copy; /* that reads it */
	uint64_t address, bytes, deadline_ns;
	uint32_t class;
	bool staged;
};

struct sim {
	struct mem_ops ops; /* first: what the slots get is this */
	struct sim_port *port;
	uint64_t stride; /* from one chunk to the next: they are spread over flash */
	struct lock lock;
	struct list regions GUARDED_BY(lock);
	uint32_t *unused GUARDED_BY(lock); /* chunks, a stack */
	uint32_t unused_count GUARDED_BY(lock);
	struct sim_hint hint[HINTS] GUARDED_BY(lock);
	uint32_t hints GUARDED_BY(lock);
};

/* Of a region; guarded by the lock. */
struct mem_private {
	struct sim *sim;
	struct list link;
	void *reserved; /* addresses, around addr */
	uint8_t *addr;
	uint64_t bytes;
	uint32_t backed;  /* areas that have a chunk */
	uint32_t chunk[]; /* by area of ABI_HUGE */
};

static struct sim *sim_of(const struct mem_ops *self)
{
	return (struct sim *)(uintptr_t)self;
}

/* ---- the device ---------------------------------------------------------------------------- */

static int sim_probe(struct backend_info *info)
{
	const char *ring = getenv(RING);

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
	lock_fini(&sim->lock);
	free(sim->unused);
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
	sim->unused = calloc(chunks, sizeof(*sim->unused));
	if (!sim->unused)
		return -ENOMEM;
	if (!sim->stride)
		return -ENOSPC;
	while (chunks--) /* the lowest is used first */
		sim->unused[sim->unused_count++] = (uint32_t)chunks;
	return 0;
}

static int sim_open(const struct mem_ops **self, uint64_t bytes)
{
	struct sim *sim;
	int rc;

	if (bytes == 0 || bytes % ABI_HUGE || bytes / ABI_HUGE >= NO_CHUNK / 2)
		return -EINVAL;
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return -ENOMEM;
	rc = lock_init(&sim->lock);
	if (rc) {
		free(sim);
		return rc;
	}
	sim->ops = mem_cxl_sim;
	list_init(&sim->regions);
	rc = begin_chunks(sim, bytes);
	if (rc) {
		sim_close(&sim->ops);
		return rc;
	}
	*self = &sim->ops;
	return 0;
}

/* ---- regions ------------------------------------------------------------------------------- */

static int sim_create(const struct mem_ops *self, struct mem_region *region, const char *label,
		      uint64_t bytes)
{
	uint64_t areas = (bytes + ABI_HUGE - 1) / ABI_HUGE;
	struct sim *sim = sim_of(self);
	struct mem_private *own;
	void *reserved;

	(void)label; /* of memory of ours */
	if (bytes == 0 || bytes % ABI_PAGE_ALIGN || bytes > INT64_MAX || areas >= NO_CHUNK)
		return -EINVAL;
	own = malloc(sizeof(*own) + areas * sizeof(own->chunk[0]));
	if (!own)
		return -ENOMEM;
	reserved = mmap(NULL, (areas + 1) * ABI_HUGE, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED) {
		int rc = -errno;

		free(own);
		return rc;
	}
	*own = (struct mem_private){ .sim = sim, .reserved = reserved, .addr = reserved,
				     .bytes = bytes };
	own->addr += (ABI_HUGE - (uintptr_t)reserved % ABI_HUGE) % ABI_HUGE;
	memset(own->chunk, 0xff, areas * sizeof(own->chunk[0]));
	*region = (struct mem_region){ .fd = -1, .addr = own->addr, .bytes = bytes, .own = own };
	LOCK_SCOPE(&sim->lock);
	list_push_back(&sim->regions, &own->link);
	return 0;
}

static int sim_share(const struct mem_region *region, uint64_t client)
{
	(void)client;
	(void)region;
	return -EOPNOTSUPP;
}

static void give_back(struct mem_private *own, uint64_t area) REQUIRES(own->sim->lock)
{
	if (own->chunk[area] == NO_CHUNK)
		return;
	own->sim->unused[own->sim->unused_count++] = own->chunk[area];
	own->chunk[area] = NO_CHUNK;
	own->backed--;
}

static void sim_destroy(struct mem_region *region)
{
	struct mem_private *own = region->own;
	uint64_t areas = (region->bytes + ABI_HUGE - 1) / ABI_HUGE;

	if (!region->bytes)
		return;
	lock_acquire(&own->sim->lock);
	for (uint64_t i = 0; i < areas; i++)
		give_back(own, i);
	list_remove(&own->link);
	lock_release(&own->sim->lock);
	munmap(own->reserved, (areas + 1) * ABI_HUGE);
	free(own);
	*region = (struct mem_region){ .fd = -1 };
}

static int empty_chunk(struct sim *sim, uint32_t chunk)
{
	uint8_t zeros[SIM_LINE] = { 0 };

	for (uint64_t at = 0; at < ABI_HUGE; at += SIM_LINE) {
		int rc;

		LOCK_SCOPE(&sim->lock);
		rc = sim->port->move(sim->port, true, chunk * sim->stride + at, zeros, SIM_LINE);
		if (rc)
			return rc;
	}
	return 0;
}

/* Give the area a chunk if it has none. */
static int back(struct mem_private *own, uint64_t area)
{
	struct sim *sim = own->sim;
	uint32_t chunk;
	int rc;

	{
		LOCK_SCOPE(&sim->lock);
		if (own->chunk[area] != NO_CHUNK)
			return 0;
		if (!sim->unused_count)
			return -ENOMEM;
		chunk = sim->unused[--sim->unused_count];
	}
	rc = empty_chunk(sim, chunk);
	LOCK_SCOPE(&sim->lock);
	if (rc || own->chunk[area] != NO_CHUNK) { /* somebody else was faster */
		sim->unused[sim->unused_count++] = chunk;
		return rc;
	}
	own->chunk[area] = chunk;
	own->backed++;
	return 0;
}

static int sim_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	for (uint64_t i = offset / ABI_HUGE; i * ABI_HUGE < offset + bytes; i++) {
		int rc = back(region->own, i);

		if (rc)
			return rc;
	}
	return 0;
}

static int sim_punch(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	struct mem_private *own = region->own;

	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	LOCK_SCOPE(&own->sim->lock);
	for (uint64_t i = offset / ABI_HUGE; i * ABI_HUGE < offset + bytes; i++)
		give_back(own, i);
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

static int64_t sim_resident(const struct mem_region *region)
{
	LOCK_SCOPE(&region->own->sim->lock);
	return (int64_t)region->own->backed * (int64_t)ABI_HUGE;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static struct mem_private *region_at(struct sim *sim, const void *addr) REQUIRES(sim->lock)
{
	list_each(link, &sim->regions) {
		struct mem_private *own = list_entry(link, struct mem_private, link);

		if ((const uint8_t *)addr >= own->addr &&
		    (const uint8_t *)addr < own->addr + own->bytes)
			return own;
	}
	return NULL;
}

static struct mem_private *find(struct sim *sim, const void *addr)
{
	LOCK_SCOPE(&sim->lock);
	return region_at(sim, addr);
}

/* Bytes of one line, not always whole flits: before such a write the host reads them. */
static int pass(struct mem_private *own, bool write, const void *addr, uint8_t *data,
		uint32_t bytes)
{
	uint64_t offset = (uint64_t)((const uint8_t *)addr - own->addr), area = offset / ABI_HUGE;
	uint32_t before = offset % SIM_FLIT, all = (before + bytes + SIM_FLIT - 1) & -SIM_FLIT;
	struct sim_port *port = own->sim->port;
	uint8_t line[SIM_LINE];
	uint64_t at;
	int rc = 0;

	LOCK_SCOPE(&own->sim->lock);
	if (own->chunk[area] == NO_CHUNK) {
		if (write)
			return -ENOMEM;
		memset(data, 0, bytes); /* a hole */
		return 0;
	}
	at = own->chunk[area] * own->sim->stride + offset % ABI_HUGE - before;
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

static int write_bytes(struct mem_private *own, uint8_t *dst, uint8_t *bytes, uint32_t count)
{
	int rc = back(own, (uint64_t)(dst - own->addr) / ABI_HUGE);

	return rc ? rc : pass(own, true, dst, bytes, count);
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
				rc = pass(from, false, src, line, n);
			else
				memcpy(line, src, n);
		} else {
			memset(line, 0, n);
		}
		if (copy->checksum)
			crc = crc32c(crc, line, n);
		if (rc == 0 && to)
			rc = write_bytes(to, dst, line, n);
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
	REQUIRES(sim->lock)
{
	struct mem_private *own = region_at(sim, item->src);
	uint64_t unit = sim->port->unit_bytes, offset, end;

	if (!own)
		return false;
	offset = (uint64_t)((const uint8_t *)item->src - own->addr);
	end = (offset % ABI_HUGE + item->bytes + unit - 1) / unit * unit;
	if (own->chunk[offset / ABI_HUGE] == NO_CHUNK || end > ABI_HUGE)
		return false;
	h->address = own->chunk[offset / ABI_HUGE] * sim->stride + offset % ABI_HUGE / unit * unit;
	h->bytes = own->chunk[offset / ABI_HUGE] * sim->stride + end - h->address;
	return true;
}

/* They wait for the next copy: a line passes the device when somebody has its lock. */
static int sim_hint(const struct mem_ops *self, const struct core_copy *copy)
{
	struct sim *sim = sim_of(self);

	LOCK_SCOPE(&sim->lock);
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

	LOCK_SCOPE(&sim->lock);
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

	LOCK_SCOPE(&sim->lock);
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

	LOCK_SCOPE(&sim->lock);
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
	.create = sim_create,
	.share = sim_share,
	.revoke = mem_revoke,
	.lend = sim_lend,
	.destroy = sim_destroy,
	.leave = sim_destroy,
	.prepare = sim_prepare,
	.punch = sim_punch,
	.resident = sim_resident,
	.bind = mem_bind_none,
	.hint = sim_hint,
	.copy = sim_copy,
};
