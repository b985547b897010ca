/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory tiers in memfds; see mem_common.h. Prepare, punch and copy run on any worker thread; none
 * of them allocates, locks or logs. Prepare may wait, for less than a millisecond each ABI_HUGE.
 */
#include "tierd/backend/mem_common.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/crc32c.h"
#include "tierd/backend/mem_limit.h"

/* Values of the kernel's ABI that older C library headers lack. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/*
 * Collapsing fails while somebody holds one of the pages for a moment: a client in a fault, another
 * processor that has not put it on the kernel's lists yet. Asked again at once it fails again: up
 * to a tenth of an index, whose pages are there before, was left in small pages for good.
 */
#define COLLAPSE_TRIES 5
#define COLLAPSE_WAIT_NS 200000

/*
 * A piece that is copied and then summed while it is in the first-level cache. Measured on a Zen 4
 * (64 KiB pages out of memory): 4 KiB 14 GB/s, 8 KiB 13, 16 KiB 11, the copy alone 15.5. Streaming
 * stores copy at 20, but the sum must be over what is stored, and bounced through a buffer in the
 * cache they come to 11.
 */
#define COPY_CHUNK ((size_t)4096)

#define TURN_BYTES (128u << 10) /* copied at a time, then others may go */

/* ---- regions ------------------------------------------------------------------------------- */

/* The kernel does that by itself only where shmem's huge pages are enabled for everybody. */
void *mem_map_aligned(int fd, uint64_t size, int protection)
{
	uint64_t bytes = (size + ABI_PAGE_ALIGN - 1) & ~(uint64_t)(ABI_PAGE_ALIGN - 1);
	uint64_t room = bytes + ABI_HUGE;
	uint8_t *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			    0);
	uint8_t *at;
	uint64_t before;

	if (all == MAP_FAILED)
		return MAP_FAILED;
	before = (ABI_HUGE - (uintptr_t)all % ABI_HUGE) % ABI_HUGE;
	at = mmap(all + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	if (at == MAP_FAILED) {
		int saved = errno;

		munmap(all, room);
		errno = saved;
		return MAP_FAILED;
	}
	if (before)
		munmap(all, before);
	if (room - before - bytes)
		munmap(at + bytes, room - before - bytes);
	return at;
}

int mem_map(struct mem_region *region, int fd, uint64_t bytes)
{
	void *addr = mem_map_aligned(fd, bytes, PROT_READ | PROT_WRITE);

	if (addr == MAP_FAILED)
		return -errno;
	madvise(addr, bytes, MADV_DONTDUMP); /* clients' data has no place in a core dump */
	*region = (struct mem_region){ .fd = fd, .addr = addr, .bytes = bytes };
	return 0;
}

int mem_create(struct mem_region *region, const char *label, uint64_t bytes)
{
	int fd CLEANUP_CLOSE = -1, rc;

	if (bytes == 0 || bytes % ABI_PAGE_ALIGN || bytes > INT64_MAX - ABI_HUGE)
		return -EINVAL;
	fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* 0600 first: another uid must not re-open it for writing. */
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes))
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	rc = mem_map(region, fd, bytes);
	if (rc)
		return rc;
	take_fd(&fd);
	madvise(region->addr, bytes, MADV_HUGEPAGE); /* counts where shmem_enabled says advise */
	return 0;
}

int mem_open(const struct mem_ops **self, const struct backend_info *info, uint64_t bytes)
{
	(void)self;
	(void)info;
	(void)bytes;
	return 0;
}

void mem_close(const struct mem_ops *self)
{
	(void)self;
}

int mem_create_plain(const struct mem_ops *self, struct mem_region *region, const char *label,
		     uint64_t bytes)
{
	int rc = mem_create(region, label, bytes);

	(void)self;
	if (rc)
		return rc;
	rc = mem_policy_first(region);
	if (rc)
		mem_destroy(region);
	return rc;
}

void mem_leave(struct mem_region *region)
{
	if (!region->bytes)
		return;
	munmap(region->addr, region->bytes);
	close(region->fd);
	*region = (struct mem_region){ .fd = -1 };
}

int mem_share(const struct mem_region *region, uint64_t client)
{
	char path[40];
	int fd;

	(void)client;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", region->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int mem_bind(const struct mem_ops *self, void *addr, uint64_t bytes)
{
	(void)self;
	(void)addr;
	(void)bytes;
	return 0;
}

int mem_bind_none(const struct mem_ops *self, void *addr, uint64_t bytes)
{
	(void)self;
	(void)addr;
	(void)bytes;
	return -EOPNOTSUPP;
}

int mem_hint_none(const struct mem_ops *self, const struct core_copy *copy)
{
	(void)self;
	(void)copy;
	return -ENOSYS;
}

int mem_revoke(const struct mem_region *region, uint64_t client)
{
	(void)region;
	(void)client;
	return -EOPNOTSUPP;
}

int mem_grant(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	(void)region;
	(void)offset;
	(void)bytes;
	return -EOPNOTSUPP;
}

int mem_lend(const struct mem_region *region, uint64_t offset, uint64_t bytes, int *fd,
	     uint32_t *count)
{
	(void)fd;
	*count = 0;
	return mem_range_is_sane(region, offset, bytes) ? 0 : -EINVAL;
}

void mem_destroy(struct mem_region *region)
{
	if (!region->bytes)
		return;
	/* A client may keep its mapping; what was in it goes all the same. */
	fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)region->bytes);
	mem_leave(region);
}

bool mem_range_is_sane(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	return offset % ABI_HUGE == 0 && offset <= region->bytes &&
	       bytes <= region->bytes - offset &&
	       (bytes % ABI_HUGE == 0 || offset + bytes == region->bytes);
}

/* ---- NUMA policy --------------------------------------------------------------------------- */

/* By its number: not every C library declares it, and libnuma is optional. */
static int policy_set(void *at, uint64_t bytes, int mode, uint64_t nodes, unsigned flags)
{
	/* The kernel takes one bit less than it is told. */
	return syscall(SYS_mbind, at, bytes, mode, nodes ? &nodes : NULL,
		       nodes ? 8 * sizeof(nodes) + 1 : 0ul, flags) ? -errno : 0;
}

int mem_policy_bind(void *at, uint64_t bytes, uint64_t nodes, unsigned flags)
{
	/* STATIC_NODES: a later cpuset change must not move the tier to other nodes. */
	return policy_set(at, bytes, MPOL_BIND | MPOL_F_STATIC_NODES, nodes, flags);
}

static int policy_own(const struct mem_region *region, void *at, uint64_t bytes, unsigned flags)
{
	return region->nodes ? mem_policy_bind(at, bytes, region->nodes, flags) :
			       policy_set(at, bytes, MPOL_LOCAL, 0, flags);
}

/* The node whose turn it is: of several each piece of ABI_HUGE has the next one. */
static uint64_t node_of(const struct mem_region *region, const void *at)
{
	uint64_t left = region->nodes ? region->nodes : 1;
	uint64_t turn = (uintptr_t)at / ABI_HUGE % (uint32_t)__builtin_popcountll(left);

	while (turn--)
		left &= left - 1;
	return left & -left;
}

int mem_policy_first(const struct mem_region *region)
{
	int rc = policy_own(region, region->addr, region->bytes, 0);

	return region->nodes ? rc : 0; /* else a kernel without, or one that forbids it, will do */
}

/* Does it come from, or lie on, another node than it should? */
static bool lies_elsewhere(const struct mem_region *region, uint8_t *at, uint64_t bytes)
{
	void *page[ABI_HUGE / ABI_PAGE_ALIGN];
	int status[ABI_HUGE / ABI_PAGE_ALIGN];
	unsigned long count = bytes / ABI_PAGE_ALIGN;

	for (unsigned long i = 0; i < count; i++)
		page[i] = at + i * ABI_PAGE_ALIGN;
	if (!region->nodes || syscall(SYS_move_pages, 0, count, page, NULL, status, 0))
		return false;
	for (unsigned long i = 0; i < count; i++)
		if (status[i] >= 0 && (status[i] > 63 || !(region->nodes >> status[i] & 1)))
			return true;
	return false;
}

/*
 * The kernel passes over a mapping that has this policy already, though its file has another now:
 * so another one first. Of several nodes that one brings the first page, where the node has room,
 * and the huge page comes from where that lies; bound to all of them the nearest would be filled
 * first. MPOL_INTERLEAVE spills into DRAM, and takes the first pages of all pieces from the same
 * one of two nodes. What lies elsewhere is moved.
 */
bool mem_policy_again(const struct mem_region *region, void *at, uint64_t bytes)
{
	int mode = -1, own = region->nodes ? MPOL_BIND | MPOL_F_STATIC_NODES : MPOL_LOCAL;
	bool foreign = !syscall(SYS_get_mempolicy, &mode, NULL, 0ul, at, MPOL_F_ADDR) &&
		       mode != own && mode != MPOL_DEFAULT;

	policy_set(at, bytes, MPOL_PREFERRED, node_of(region, at), 0);
	if (region->nodes & (region->nodes - 1))
		madvise(at, ABI_PAGE_ALIGN, MADV_POPULATE_WRITE); /* if it cannot, mem_back tells */
	policy_own(region, at, bytes, region->nodes ? MPOL_MF_MOVE : 0);
	return foreign;
}

/* ---- backing ------------------------------------------------------------------------------- */

bool mem_collapse(void *at, uint64_t bytes)
{
	const struct timespec wait = { .tv_nsec = COLLAPSE_WAIT_NS };

	for (int i = 0; i < COLLAPSE_TRIES; i++) {
		if (i)
			nanosleep(&wait, NULL);
		if (!madvise(at, bytes, MADV_COLLAPSE))
			return true;
		if (errno != EAGAIN && errno != EBUSY)
			break;
	}
	return false;
}

/*
 * One page is touched, then the range is collapsed: the kernel takes one huge page, clears it and
 * maps it. Measured: 0.11 ms for 2 MiB, against 3.4 ms for populating all 512 pages first, which
 * clears everything twice, copies it once and frees it; that is more than all waiting comes to. A
 * range without any page cannot be collapsed. Pages that are there already keep their contents.
 */
int mem_back(void *at, uint64_t bytes)
{
	if (madvise(at, ABI_PAGE_ALIGN, MADV_POPULATE_WRITE))
		return -errno;
	if (bytes == ABI_HUGE && mem_collapse(at, bytes))
		return 0;
	/* Ordinary pages do. */
	return madvise(at, bytes, MADV_POPULATE_WRITE) ? -errno : 0;
}

int mem_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	uint8_t *base = region->addr;
	int found = 0;

	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	while (bytes) {
		uint64_t n = bytes < ABI_HUGE ? bytes : ABI_HUGE;
		bool foreign = mem_policy_again(region, base + offset, n);
		int rc = mem_back(base + offset, n);

		if (rc)
			return rc;
		if (lies_elsewhere(region, base + offset, n)) {
			mem_policy_again(region, base + offset, n);
			foreign = true;
		}
		found += foreign;
		offset += n;
		bytes -= n;
	}
	return found;
}

int mem_punch(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	if (!mem_range_is_sane(region, offset, bytes))
		return -EINVAL;
	if (!bytes)
		return 0;
	return fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)bytes) ? -errno : 0;
}

int64_t mem_resident(const struct mem_region *region)
{
	struct stat st;

	if (fstat(region->fd, &st))
		return -errno;
	return (int64_t)st.st_blocks * 512;
}

/* ---- copies -------------------------------------------------------------------------------- */

/* The source may be staging that its client still writes: each byte of it is read once, and the
 * sum is over what lies at dst, which nobody else writes. */
static uint32_t copy_and_sum(uint8_t *dst, const uint8_t *src, size_t bytes, uint32_t crc)
{
	while (bytes) {
		size_t n = bytes < COPY_CHUNK ? bytes : COPY_CHUNK;

		memcpy(dst, src, n);
		crc = crc32c(crc, dst, n);
		dst += n;
		src += n;
		bytes -= n;
	}
	return crc;
}

/* Its padding is no part of what a client wrote: what its staging has there is not for others. */
static void copy_item(const struct core_copy *copy, struct core_copy_item *item)
{
	uint32_t bytes = item->bytes - item->pad;
	uint8_t *pad = (uint8_t *)item->dst + bytes;

	assert(item->pad <= item->bytes);
	if (copy->checksum)
		item->crc = copy_and_sum(item->dst, item->src, bytes, item->seed);
	else
		memcpy(item->dst, item->src, bytes);
	if (!item->pad)
		return;
	memset(pad, 0, item->pad);
	if (copy->checksum)
		item->crc = crc32c(item->crc, pad, item->pad);
}

void mem_copy(const struct mem_ops *self, struct core_copy *copy)
{
	uint32_t since = 0;

	(void)self;
	for (uint32_t i = 0; i < copy->count; i++) {
		struct core_copy_item *item = &copy->item[i];

		copy_item(copy, item);
		since += item->bytes;
		if (since < TURN_BYTES)
			continue;
		since = 0;
		sched_yield(); /* whoever woke up here meanwhile (worker.h) */
	}
	copy->res = 0;
}

/* ---- the host ------------------------------------------------------------------------------ */

uint64_t mem_host_share(uint32_t percent)
{
	FILE *f CLEANUP_FCLOSE = fopen("/proc/meminfo", "re");
	struct mem_limit limit;
	char line[128];
	uint64_t kib = 0, room;

	mem_limit_read(&limit, UINT64_MAX, MEM_LIMIT_GROUP, MEM_LIMIT_ROOT);
	room = limit.room;
	while (f && !kib && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1)
			kib = 0;
	kib = (kib < room / 1024 ? kib : room / 1024) / 100 * percent;
	return kib * 1024 / ABI_HUGE * ABI_HUGE;
}
