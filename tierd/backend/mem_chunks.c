/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of a device's chunks; see mem_chunks.h. */
#include "tierd/backend/mem_chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- the pool ------------------------------------------------------------------------------ */

int mem_chunks_begin(struct mem_chunks *m, const struct mem_ops *ops)
{
	*m = (struct mem_chunks){ .ops = *ops };
	list_init(&m->regions);
	return lock_init(&m->lock);
}

int mem_chunks_fill(struct mem_chunks *m, uint32_t count)
{
	m->unused = calloc(count, sizeof(*m->unused));
	if (!m->unused)
		return -ENOMEM;
	while (count) /* the lowest is used first */
		m->unused[m->unused_count++] = --count;
	return 0;
}

void mem_chunks_end(struct mem_chunks *m)
{
	lock_fini(&m->lock);
	free(m->unused);
}

/* ---- regions ------------------------------------------------------------------------------- */

static struct mem_chunks *chunks_of(const struct mem_ops *self)
{
	return (struct mem_chunks *)(uintptr_t)self;
}

int mem_chunks_create(const struct mem_ops *self, struct mem_region *region, const char *label,
		      uint64_t bytes)
{
	struct mem_chunks *m = chunks_of(self);
	uint64_t areas = (bytes + ABI_HUGE - 1) / ABI_HUGE;
	struct mem_private *own;
	uint8_t *addr;

	(void)label; /* of memory of ours */
	if (bytes == 0 || bytes % ABI_PAGE_ALIGN || bytes > INT64_MAX || areas >= MEM_NO_CHUNK)
		return -EINVAL;
	own = malloc(sizeof(*own) + areas * sizeof(own->chunk[0]));
	if (!own)
		return -ENOMEM;
	/* One area more: the first one's address is a multiple of its size. */
	addr = mmap(NULL, (areas + 1) * ABI_HUGE, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED) {
		int rc = -errno;

		free(own);
		return rc;
	}
	*own = (struct mem_private){ .chunks = m, .reserved = addr, .addr = addr, .bytes = bytes };
	own->addr += (ABI_HUGE - (uintptr_t)addr % ABI_HUGE) % ABI_HUGE;
	for (uint64_t i = 0; i < areas; i++)
		own->chunk[i] = MEM_NO_CHUNK;
	*region = (struct mem_region){ .fd = -1, .addr = own->addr, .bytes = bytes, .own = own };
	LOCK_SCOPE(&m->lock);
	list_push_back(&m->regions, &own->link);
	return 0;
}

int mem_chunks_share(const struct mem_region *region, uint64_t client)
{
	(void)client;
	(void)region;
	return -EOPNOTSUPP;
}

static void give_chunk_back(struct mem_private *own, uint64_t area) REQUIRES(own->chunks->lock)
{
	if (own->chunk[area] == MEM_NO_CHUNK)
		return;
	own->chunks->unused[own->chunks->unused_count++] = own->chunk[area];
	own->chunk[area] = MEM_NO_CHUNK;
	own->backed--;
}

void mem_chunks_destroy(struct mem_region *region)
{
	struct mem_private *own = region->own;
	uint64_t areas = (region->bytes + ABI_HUGE - 1) / ABI_HUGE;

	if (!region->bytes)
		return;
	lock_acquire(&own->chunks->lock);
	for (uint64_t i = 0; i < areas; i++)
		give_chunk_back(own, i);
	list_remove(&own->link);
	lock_release(&own->chunks->lock);
	munmap(own->reserved, (areas + 1) * ABI_HUGE);
	free(own);
	*region = (struct mem_region){ .fd = -1 };
}

static uint32_t take_chunk(struct mem_chunks *m, uint32_t owner) REQUIRES(m->lock)
{
	uint32_t at = m->choose(m, owner), chunk = m->unused[at];

	m->unused[at] = m->unused[--m->unused_count];
	return chunk;
}

/* Below all others: the last one to be tried again. */
static void put_chunk_last(struct mem_chunks *m, uint32_t chunk) REQUIRES(m->lock)
{
	m->unused[m->unused_count++] = m->unused[0];
	m->unused[0] = chunk;
}

int mem_chunks_back(struct mem_private *own, uint64_t area, uint32_t owner)
{
	struct mem_chunks *m = own->chunks;
	uint32_t chunk;
	int rc;

	{
		LOCK_SCOPE(&m->lock);
		if (own->chunk[area] != MEM_NO_CHUNK)
			return 0;
		if (!m->unused_count)
			return -ENOMEM;
		chunk = take_chunk(m, owner);
	}
	rc = m->empty(m, chunk, owner);
	LOCK_SCOPE(&m->lock);
	if (rc || own->chunk[area] != MEM_NO_CHUNK) { /* somebody else was faster */
		put_chunk_last(m, chunk);
		return rc;
	}
	own->chunk[area] = chunk;
	own->backed++;
	return 0;
}

int mem_chunks_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	for (uint64_t i = offset / ABI_HUGE; i * ABI_HUGE < offset + bytes; i++) {
		int rc = mem_chunks_back(region->own, i, region->owner);

		if (rc)
			return rc;
	}
	return 0;
}

int mem_chunks_punch(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	struct mem_private *own = region->own;

	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	LOCK_SCOPE(&own->chunks->lock);
	for (uint64_t i = offset / ABI_HUGE; i * ABI_HUGE < offset + bytes; i++)
		give_chunk_back(own, i);
	return 0;
}

int64_t mem_chunks_resident(const struct mem_region *region)
{
	struct mem_private *own = region->own;

	LOCK_SCOPE(&own->chunks->lock);
	return (int64_t)own->backed * (int64_t)ABI_HUGE;
}

struct mem_private *mem_chunks_at(struct mem_chunks *m, const void *addr)
{
	list_each(link, &m->regions) {
		struct mem_private *own = list_entry(link, struct mem_private, link);

		if ((const uint8_t *)addr >= own->addr &&
		    (const uint8_t *)addr < own->addr + own->bytes)
			return own;
	}
	return NULL;
}
