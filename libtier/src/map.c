/*
 * Mapping a context; see map.h. The daemon is trusted to keep its promises about layout after this
 * check, and about nothing before it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/src/error.h"
#include "libtier/src/taken.h"

/* A reservation of bytes that begins at a multiple of ABI_HUGE; MAP_FAILED. */
static void *reserve_aligned(uint64_t bytes)
{
	uint64_t room = bytes + ABI_HUGE;
	uint8_t *raw = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			    0);
	uint64_t head;

	if (raw == MAP_FAILED)
		return MAP_FAILED;
	head = -(uintptr_t)raw & (ABI_HUGE - 1);
	if (head > 0)
		munmap(raw, head);
	/* bytes is rounded up by the kernel; what is left behind starts at the next page. */
	bytes = (bytes + ABI_PAGE_ALIGN - 1) & ~(uint64_t)(ABI_PAGE_ALIGN - 1);
	if (room - head > bytes)
		munmap(raw + head + bytes, room - head - bytes);
	return raw + head;
}

int map_shared(void **out, int fd, uint64_t bytes, int protection)
{
	int flags = MAP_SHARED;
	void *want = NULL;
	void *base;

	if (bytes >= ABI_HUGE) {
		want = reserve_aligned(bytes);
		if (want == MAP_FAILED)
			return error_set(-errno, "cannot reserve %llu bytes of address space: %s",
					 (unsigned long long)bytes, strerror(errno));
		flags |= MAP_FIXED;
	}
	base = mmap(want, bytes, protection, flags, fd, 0);
	if (base == MAP_FAILED) {
		int error = -errno;

		if (want)
			munmap(want, bytes);
		return error_set(error, "cannot map %llu bytes of the daemon's memory: %s",
				 (unsigned long long)bytes, strerror(-error));
	}
	if (madvise(base, bytes, MADV_DONTFORK) != 0) {
		int error = -errno;

		munmap(base, bytes);
		return error_set(error, "cannot keep a mapping out of forked children: %s",
				 strerror(-error));
	}
	*out = base;
	return 0;
}

static int broken(const char *what)
{
	return error_set(-EPROTO, "context: %s does not fit the mapping; daemon and library are of "
				  "different versions, or the daemon is broken", what);
}

/* Is [offset, offset + count * item) inside bytes, behind the two header pages, and aligned? */
static bool inside(uint64_t offset, uint64_t count, uint64_t item, uint64_t bytes)
{
	return offset >= 2 * 4096 && offset % 64 == 0 && offset <= bytes &&
	       count <= (bytes - offset) / item;
}

static int check_header(const struct abi_index_header *h, const struct map_source *source,
			uint64_t bytes)
{
	if (h->magic != ABI_INDEX_MAGIC || h->version != ABI_VERSION)
		return error_set(-EPROTO, "context: the index has magic %llx version %u, not "
					  "version %u; update the older of library and daemon",
				 (unsigned long long)h->magic, h->version, ABI_VERSION);
	if (h->boot_token != source->boot_token)
		return broken("the boot token");
	if (h->context_id != source->info->context_id ||
	    ABI_CONTEXT_INDEX(h->context_id) >= ABI_CONTEXTS_MAX)
		return broken("the context id");
	if (h->blocks_max == 0 || h->blocks_max >= ABI_SLOT_NONE || h->pages_per_block == 0 ||
	    h->pages_per_block > ABI_PAGES_PER_BLOCK_MAX)
		return broken("the number of blocks");
	if (h->event_offset &&
	    !inside(h->event_offset, ABI_EVENTS, sizeof(struct abi_event), bytes))
		return broken("the events");
	if (h->total_bytes > bytes || h->buckets_max == 0 ||
	    !inside(h->bucket_offset, h->buckets_max, sizeof(struct abi_bucket), bytes) ||
	    !inside(h->overflow_offset, h->overflow_max, sizeof(struct abi_bucket), bytes) ||
	    !inside(h->block_offset, h->blocks_max, sizeof(struct abi_block), bytes) ||
	    !inside(h->desc_offset, h->blocks_max,
		    sizeof(struct abi_page) * (uint64_t)h->pages_per_block, bytes))
		return broken("a table of the index");
	for (uint32_t i = 0; i < ABI_MEM_TIERS; i++)
		if (h->mem_bytes[i] != source->info->mem_bytes[i])
			return broken("the size of a memory tier");
	return 0;
}

static int check_geometry(struct map *m, uint32_t pages_per_block)
{
	char why[160];
	int rc = abi_geometry_check(&m->geometry, why, sizeof(why));

	if (rc)
		return error_set(-EPROTO, "context: %s", why);
	if (m->geometry.pages_per_block != pages_per_block)
		return broken("the geometry");
	m->part_count = m->geometry.part_count;
	for (uint32_t i = 0; i < m->part_count; i++) {
		const struct abi_part *part = &m->geometry.part[i];
		bool last = part->hit_rule == ABI_HIT_LAST;

		m->part[i] = (struct map_part){
			.page_base = part->page_base,
			.page_bytes = part->page_bytes,
			.page_stride = part->page_stride,
			.hit_last = last ? part->hit_arg : 0,
		};
		if (!last)
			m->parts_every |= 1u << i;
	}
	return 0;
}

/* Different for each life of an index and each context ever, and the same in every process. */
static uint32_t salt_of(uint64_t life, uint64_t uid)
{
	uint64_t x = life ^ uid * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	return (uint32_t)(x >> 32);
}

static void take_header(struct map *m, const struct abi_index_header *h)
{
	const uint8_t *base = m->index_base;

	m->header = m->index_base;
	m->event = h->event_offset ? (const void *)(base + h->event_offset) : NULL;
	m->bucket = (const void *)(base + h->bucket_offset);
	m->overflow = (const void *)(base + h->overflow_offset);
	m->block = (const void *)(base + h->block_offset);
	m->page = (const void *)(base + h->desc_offset);
	m->buckets_max = h->buckets_max;
	m->overflow_max = h->overflow_max;
	m->blocks_max = (uint32_t)h->blocks_max;
	m->pages_per_block = h->pages_per_block;
	m->context_id = h->context_id;
	memcpy(m->fingerprint, h->fingerprint, sizeof(m->fingerprint));
}

static int map_index(struct map *m, const struct map_source *source)
{
	struct abi_index_header header;
	struct stat st;
	int rc;

	if (fstat(source->fd[0], &st) != 0)
		return error_set(-errno, "context: fstat of the index: %s", strerror(errno));
	if (source->info->index_bytes < 2 * 4096 ||
	    (uint64_t)st.st_size < source->info->index_bytes)
		return broken("the index");
	rc = map_shared(&m->index_base, source->fd[0], source->info->index_bytes, PROT_READ);
	if (rc)
		return rc;
	m->index_bytes = source->info->index_bytes;
	/* Copied once, then judged: nothing can change between check and use. */
	memcpy(&header, m->index_base, sizeof(header));
	memcpy(&m->geometry, (const uint8_t *)m->index_base + 4096, sizeof(m->geometry));
	rc = check_header(&header, source, m->index_bytes);
	if (rc)
		return rc;
	take_header(m, &header);
	m->salt = salt_of(header.life ? header.life : source->boot_token, source->info->uid);
	return check_geometry(m, header.pages_per_block);
}

static int map_memory(struct map *m, const struct map_source *source, uint32_t level)
{
	uint64_t bytes = source->info->mem_bytes[level];
	struct stat st;
	void *base;
	int rc;

	m->tier_bytes[level] = bytes;
	if (bytes == 0)
		return 0;
	if (bytes > ABI_ADDR_MASK << ABI_UNIT_SHIFT || fstat(source->fd[1 + level], &st) != 0)
		return broken("a memory tier");
	/* W4: of a device, which no processor can read. Without bytes its words are of no use. */
	if (S_ISCHR(st.st_mode))
		return 0;
	if ((uint64_t)st.st_size < bytes)
		return broken("a memory tier");
	rc = map_shared(&base, source->fd[1 + level], bytes, PROT_READ);
	if (rc)
		return rc;
	m->mem[level] = base;
	m->mem_bytes[level] = m->mapped[level] = bytes;
	m->taken[level] = taken_watch(base, bytes, &m->mem_bytes[level]);
	return m->taken[level] < 0 ? m->taken[level] : 0;
}

int map_open(struct map **out, const struct map_source *source)
{
	struct map *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return error_note(-ENOMEM, "context: out of memory");
	list_init(&m->link);
	m->number = source->number;
	m->uid = source->info->uid;
	m->uses = 1;
	m->writable = source->info->writable != 0;
	rc = map_index(m, source);
	for (uint32_t level = 0; level < ABI_MEM_TIERS && rc == 0; level++)
		rc = map_memory(m, source, level);
	if (rc) {
		map_close(m);
		return rc;
	}
	*out = m;
	return 0;
}

int map_open_lost(struct map **out, const struct map *before, uint64_t number)
{
	struct map *m = calloc(1, sizeof(*m));
	struct abi_index_header *header = calloc(1, sizeof(*header));

	if (!m || !header) {
		free(m);
		free(header);
		return error_note(-ENOMEM, "context: out of memory");
	}
	list_init(&m->link);
	header->closed = 1;
	header->epoch = atomic_load_relaxed_u64(&before->header->epoch);
	m->number = number;
	m->uses = 1;
	m->header = header;
	m->geometry = before->geometry;
	m->pages_per_block = before->pages_per_block;
	m->part_count = before->part_count;
	memcpy(m->part, before->part, sizeof(m->part));
	memcpy(m->fingerprint, before->fingerprint, sizeof(m->fingerprint));
	m->lost = true;
	*out = m;
	return 0;
}

bool map_is_left(const struct map *m, uint32_t level, uint64_t offset, uint32_t bytes)
{
	return m->mem[level] && offset + bytes <= m->mapped[level] &&
	       taken_intact(m->taken[level], offset, bytes);
}

void map_close(struct map *m)
{
	if (!m)
		return;
	list_remove(&m->link);
	for (uint32_t i = 0; i < ABI_MEM_TIERS; i++) {
		if (!m->mem[i])
			continue;
		taken_forget(m->taken[i]);
		munmap((void *)(uintptr_t)m->mem[i], m->mapped[i]);
	}
	if (m->index_base)
		munmap(m->index_base, m->index_bytes);
	else if (m->lost)
		free((void *)(uintptr_t)m->header);
	free(m);
}
