/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory backends: what their regions refuse to whom, that prepared memory lies in huge pages,
 * that punched memory is given back, and that copies sum what they store. A GPU's backend runs on
 * the stand-in for its driver, that of the kernel module where it is loaded (tests/vm); bytes of a
 * region are looked at by copies, which all backends have.
 */
#include <errno.h>
#include <fcntl.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/crc32c.h"
#include "tests/lib/standin.h"
#include "tests/lib/unit.h"
#include "tests/lib/users.h"
#include "tierd/backend/mem_common.h"

#define BYTES (16ull * ABI_HUGE)
#define OTHER_UID 12345u

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const struct mem_ops *const all[] = { &mem_host, &mem_cxl_memfd, &mem_cxl_numa, &mem_cuda,
					   &mem_cxl_module, &mem_cxl_sim };

/* A backend that is open, with a region. */
struct one {
	const struct mem_ops *ops;
	struct mem_region region;
	bool device;
	bool memfd;
	uint8_t tier;
};

/* Of each backend that this host has, in turn. */
static bool begin(uint32_t i, struct one *one)
{
	struct backend_info info;

	if (all[i]->probe(0, &info))
		return false;
	*one = (struct one){ .ops = all[i], .device = info.device };
	one->memfd = !info.device && all[i] != &mem_cxl_module;
	one->tier = all[i] == &mem_host || all[i] == &mem_cuda ? ABI_TIER_HBM : ABI_TIER_CXL;
	assert_int_equal(one->ops->open(&one->ops, &info, BYTES), 0);
	assert_int_equal(one->ops->create(one->ops, &one->region, "tier-test", BYTES), 0);
	return true;
}

static void end(struct one *one)
{
	one->ops->destroy(&one->region);
	assert_int_equal(one->region.fd, -1);
	one->ops->destroy(&one->region); /* harmless */
	one->ops->close(one->ops);
}

static int copy_bytes(const struct one *one, uint64_t offset, void *bytes, uint32_t count, bool in)
{
	uint8_t *at = (uint8_t *)one->region.addr + offset;
	struct core_copy copy = { .count = 1, .res = 1, .dst_tier = ABI_TIER_CXL,
				  .src_tier = ABI_TIER_CXL };

	copy.item[0] = (struct core_copy_item){ .dst = in ? at : bytes, .src = in ? bytes : at,
						.bytes = count };
	*(in ? &copy.dst_tier : &copy.src_tier) = one->tier;
	one->ops->copy(one->ops, &copy);
	return copy.res;
}

static void set(const struct one *one, uint64_t offset, uint8_t value, uint32_t count)
{
	uint8_t *bytes = malloc(count);

	assert_non_null(bytes);
	memset(bytes, value, count);
	assert_int_equal(copy_bytes(one, offset, bytes, count, true), 0);
	free(bytes);
}

static uint8_t get(const struct one *one, uint64_t offset)
{
	uint8_t byte = 0xaa;

	assert_int_equal(copy_bytes(one, offset, &byte, 1, false), 0);
	return byte;
}

/* A region in a memfd, of the first such backend. */
static void make(struct mem_region *region)
{
	assert_int_equal(mem_create(region, "tier-test", BYTES), 0);
}

static void check_file(const struct one *one)
{
	int fd = one->region.fd;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, BYTES);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	if (!one->memfd) {
		assert_int_equal(ftruncate(fd, 0) | ftruncate(fd, BYTES * 2), -1);
		return;
	}
	assert_int_equal(fcntl(fd, F_GET_SEALS) & 0x1f,
			 F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(ftruncate(fd, BYTES / 2), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, BYTES * 2), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(errno, EPERM);
}

static void test_region(void **state)
{
	struct mem_region region;
	struct one one;
	int fd;

	(void)state;
	for (uint32_t i = 0; i < COUNT(all); i++) {
		if (!begin(i, &one))
			continue;
		assert_int_equal(one.region.bytes, BYTES);
		assert_int_equal((uintptr_t)one.region.addr % ABI_HUGE, 0);
		assert_int_equal(one.ops->resident(&one.region), 0); /* sparse */
		fd = one.ops->share(&one.region, 0);
		if (one.device) {
			assert_int_equal(one.region.fd, -1);
			assert_int_equal(fd, -EOPNOTSUPP);
		} else {
			assert_true(fd >= 0);
			close(fd);
			check_file(&one);
		}
		end(&one);
	}
	assert_int_equal(mem_create(&region, "x", 0), -EINVAL);
	assert_int_equal(mem_create(&region, "x", 4097), -EINVAL);
	assert_int_equal(mem_create(&region, "x", UINT64_MAX & ~4095ull), -EINVAL);
}

/* Does the kernel say that the mapping at addr has the flag (of two letters)? */
static bool has_flag(const void *addr, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512], begin[32];
	bool ours = false, found = false;

	assert_non_null(f);
	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)addr);
	while (!found && fgets(line, sizeof(line), f)) {
		ours |= strncmp(line, begin, strlen(begin)) == 0;
		found = ours && strncmp(line, "VmFlags:", 8) == 0;
	}
	fclose(f);
	assert_true(found);
	return strstr(line, flag) != NULL;
}

static uint64_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return (uint64_t)pages * 4096;
}

/* Of a size that the kernel aligns to nothing: at a multiple of 2 MiB all the same, with no address
 * or descriptor left over, and nothing of it in a core dump. */
static void test_regions_of_odd_sizes(void **state)
{
	uint64_t before = 0;
	int fd = 0;

	(void)state;
	for (uint32_t i = 0; i < 200; i++) {
		struct mem_region region;

		assert_int_equal(mem_create(&region, "odd", ABI_HUGE + 4096 * (1 + i % 7)), 0);
		assert_int_equal((uintptr_t)region.addr % ABI_HUGE, 0);
		if (i == 0) {
			assert_true(has_flag(region.addr, " dd"));
			fd = region.fd;
		}
		assert_int_equal(region.fd, fd);
		mem_destroy(&region);
		before = i ? before : address_space();
	}
	assert_true(address_space() < before + 50 * ABI_HUGE);
}

/* What a client of another uid can do with the descriptor that it is given: read. */
static int client(int fd)
{
	char path[64];
	char *map;
	int again;

	if (setresgid(OTHER_UID, OTHER_UID, OTHER_UID) ||
	    setresuid(OTHER_UID, OTHER_UID, OTHER_UID))
		return 1;
	map = mmap(NULL, ABI_HUGE, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || map[5] != 42)
		return 2;
	if (mprotect(map, ABI_HUGE, PROT_READ | PROT_WRITE) == 0)
		return 3;
	if (mmap(NULL, ABI_HUGE, PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
		return 4;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	if (again >= 0 || errno != EACCES)
		return 5;
	again = open(path, O_RDONLY); /* 0600: not even that */
	if (again >= 0)
		return 6;
	if (ftruncate(fd, 0) == 0 || fchmod(fd, 0666) == 0)
		return 7;
	if (madvise(map, ABI_HUGE, MADV_REMOVE) == 0)
		return 8;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, ABI_HUGE) == 0 ? 9 : 0;
}

static void test_other_uid_only_reads(void **state)
{
	struct mem_region region;
	char path[64];
	int fd, status;
	pid_t pid;

	(void)state;
	if (!users_can_be_others())
		skip();
	make(&region);
	((char *)region.addr)[5] = 42;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", region.fd);
	fd = open(path, O_RDONLY | O_CLOEXEC); /* as the front does */
	assert_true(fd >= 0);
	pid = fork();
	if (pid == 0)
		_exit(client(fd));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(fd);
	mem_destroy(&region);
}

/* ---- huge pages ----------------------------------------------------------------------------- */

/* ShmemPmdMapped or FilePmdMapped of the mapping that begins at addr, in bytes. */
static uint64_t pmd_mapped(const void *addr)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long begin, end, kib = 0;
	bool inside = false;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = begin == (uintptr_t)addr;
		if (inside && (sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1 ||
			       sscanf(line, "FilePmdMapped: %lu kB", &kib) == 1) && kib)
			break;
	}
	fclose(f);
	return kib * 1024;
}

static bool kernel_collapses(void)
{
	struct mem_region region;
	bool can;

	assert_int_equal(mem_create(&region, "tier-test-can", ABI_HUGE), 0);
	memset(region.addr, 1, ABI_HUGE);
	can = madvise(region.addr, ABI_HUGE, MADV_COLLAPSE) == 0 &&
	      pmd_mapped(region.addr) == ABI_HUGE;
	mem_destroy(&region);
	return can;
}

static int policy_of(void *at)
{
	int mode = -1;

	assert_int_equal(get_mempolicy(&mode, NULL, 0, at, MPOL_F_ADDR), 0);
	return mode;
}

/* Who maps it read-only sets the policy of the daemon's memory: it is found, and put right. */
static void test_a_policy_of_others_is_put_right(void **state)
{
	struct bitmask *nodes;
	struct one one;

	(void)state;
	if (numa_available() < 0)
		skip();
	nodes = numa_allocate_nodemask();
	assert_non_null(nodes);
	numa_bitmask_setbit(nodes, (unsigned)numa_node_of_cpu(0));
	for (uint32_t i = 0; i < COUNT(all); i++) {
		uint8_t *read_only, *own;
		int fd, before;

		if (!begin(i, &one))
			continue;
		fd = one.device ? -1 : one.ops->share(&one.region, 1);
		if (fd < 0) {
			end(&one);
			continue;
		}
		own = one.region.addr;
		before = policy_of(own);
		read_only = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
		assert_true(read_only != MAP_FAILED);
		if (!mbind(read_only, 4 * ABI_HUGE, MPOL_INTERLEAVE, nodes->maskp,
			   nodes->size + 1, 0)) {
			if (one.memfd) { /* the module's pages know no policy of others */
				assert_int_equal(policy_of(own + ABI_HUGE), MPOL_INTERLEAVE);
				assert_in_range(one.ops->prepare(&one.region, ABI_HUGE,
								 2 * ABI_HUGE), 1, 2);
			}
			assert_int_equal(policy_of(own + ABI_HUGE), before);
			assert_int_equal(policy_of(own + 3 * ABI_HUGE - 4096), before);
			assert_int_equal(one.ops->prepare(&one.region, ABI_HUGE, 2 * ABI_HUGE), 0);
		}
		munmap(read_only, BYTES);
		close(fd);
		end(&one);
	}
	numa_free_nodemask(nodes);
}

/* Where memory is in pieces the kernel has none at times, and ordinary pages do: tried again. */
#define HUGE_TRIES 50

static void test_prepare_maps_huge_pages(void **state)
{
	struct one one;

	(void)state;
	if (!kernel_collapses())
		skip();
	for (uint32_t i = 0, tries = 0; i < COUNT(all); i++) {
		if (!begin(i, &one))
			continue;
		if (!one.device) /* was touched before */
			set(&one, 3 * ABI_HUGE + 9, 7, 1);
		assert_int_equal(one.ops->prepare(&one.region, 2 * ABI_HUGE, 3 * ABI_HUGE), 0);
		if (one.device)
			set(&one, 3 * ABI_HUGE + 9, 7, 1);
		for (uint64_t n = 2; !one.device && n < 5; n++)
			get(&one, n * ABI_HUGE); /* what is there is not mapped everywhere */
		if (!one.device && pmd_mapped(one.region.addr) != 3 * ABI_HUGE &&
		    tries++ < HUGE_TRIES) {
			end(&one);
			i--;
			continue;
		}
		assert_int_equal(one.device ? 3 * ABI_HUGE : pmd_mapped(one.region.addr),
				 3 * ABI_HUGE);
		assert_int_equal(one.ops->resident(&one.region), 3 * ABI_HUGE);
		assert_int_equal(get(&one, 3 * ABI_HUGE + 9), 7);
		set(&one, 2 * ABI_HUGE, 5, 3 * ABI_HUGE);
		assert_int_equal(one.ops->prepare(&one.region, 2 * ABI_HUGE, 3 * ABI_HUGE), 0);
		assert_int_equal(one.ops->resident(&one.region), 3 * ABI_HUGE);
		assert_int_equal(get(&one, 3 * ABI_HUGE + 9), 5);
		end(&one);
	}
}

/* A client's own mapping gets the huge pages too, if it is aligned. */
static void test_readers_get_huge_pages(void **state)
{
	struct mem_region region;
	uint8_t *room, *map;

	(void)state;
	if (!kernel_collapses())
		skip();
	for (uint32_t tries = 0; tries < HUGE_TRIES; tries++) {
		if (tries)
			mem_destroy(&region);
		make(&region);
		assert_int_equal(mem_prepare(&region, 0, 4 * ABI_HUGE), 0);
		if (pmd_mapped(region.addr) == 4 * ABI_HUGE)
			break;
	}
	room = mmap(NULL, 5 * ABI_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(room != MAP_FAILED);
	map = room + (ABI_HUGE - (uintptr_t)room % ABI_HUGE) % ABI_HUGE;
	assert_ptr_equal(mmap(map, 4 * ABI_HUGE, PROT_READ, MAP_SHARED | MAP_FIXED, region.fd, 0),
			 map);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(*(volatile uint8_t *)(map + i * ABI_HUGE), 0);
	assert_int_equal(pmd_mapped(map), 4 * ABI_HUGE);
	munmap(room, 5 * ABI_HUGE);
	mem_destroy(&region);
}

static void test_punch_gives_back(void **state)
{
	struct one one;

	(void)state;
	for (uint32_t i = 0; i < COUNT(all); i++) {
		if (!begin(i, &one))
			continue;
		assert_int_equal(one.ops->prepare(&one.region, 0, 4 * ABI_HUGE), 0);
		set(&one, 0, 9, 4 * ABI_HUGE);
		assert_int_equal(one.ops->resident(&one.region), 4 * ABI_HUGE);
		assert_int_equal(one.ops->punch(&one.region, ABI_HUGE, 2 * ABI_HUGE), 0);
		assert_int_equal(one.ops->resident(&one.region), 2 * ABI_HUGE);
		assert_int_equal(get(&one, ABI_HUGE - 1), 9);
		assert_int_equal(get(&one, 3 * ABI_HUGE), 9);
		if (!one.device) { /* a reader's touch of a hole shows */
			assert_int_equal(get(&one, ABI_HUGE), 0);
			assert_true(one.ops->resident(&one.region) > (int64_t)(2 * ABI_HUGE));
		}
		assert_int_equal(one.ops->prepare(&one.region, ABI_HUGE, ABI_HUGE), 0);
		if (!one.device)
			assert_int_equal(get(&one, ABI_HUGE), 0);
		assert_int_equal(one.ops->punch(&one.region, 0, BYTES), 0);
		assert_int_equal(one.ops->resident(&one.region), 0);
		end(&one);
	}
}

static void test_ranges_are_checked(void **state)
{
	static const uint64_t bad[][2] = { { 1, ABI_HUGE }, { 4096, ABI_HUGE }, { 0, 4096 },
		{ BYTES, ABI_HUGE }, { BYTES + ABI_HUGE, ABI_HUGE }, { ABI_HUGE, BYTES },
		{ UINT64_MAX - ABI_HUGE + 1, ABI_HUGE }, { ABI_HUGE, UINT64_MAX - ABI_HUGE + 1 } };
	struct mem_region region;
	struct one one;

	(void)state;
	for (uint32_t n = 0; n < COUNT(all); n++) {
		if (!begin(n, &one))
			continue;
		for (uint32_t i = 0; i < COUNT(bad); i++) {
			assert_int_equal(one.ops->prepare(&one.region, bad[i][0], bad[i][1]),
					 -EINVAL);
			assert_int_equal(one.ops->punch(&one.region, bad[i][0], bad[i][1]),
					 -EINVAL);
		}
		assert_int_equal(one.ops->prepare(&one.region, 0, 0), 0);
		assert_int_equal(one.ops->punch(&one.region, BYTES, 0), 0);
		assert_int_equal(one.ops->resident(&one.region), 0);
		end(&one);
	}
	/* A region that ends within a huge page: its last range is short. */
	assert_int_equal(mem_create(&region, "tier-test", ABI_HUGE + 4 * ABI_PAGE_ALIGN), 0);
	assert_int_equal(mem_prepare(&region, ABI_HUGE, 4 * ABI_PAGE_ALIGN), 0);
	assert_int_equal(mem_resident(&region), 4 * ABI_PAGE_ALIGN);
	assert_int_equal(mem_punch(&region, ABI_HUGE, 4 * ABI_PAGE_ALIGN), 0);
	assert_int_equal(mem_resident(&region), 0);
	mem_destroy(&region);
}

/* ---- copies --------------------------------------------------------------------------------- */

static void test_copy(void **state)
{
	static const uint32_t size[] = { 1, 63, 4095, 4096, 4097, 65536, 200001 };
	static struct core_copy copy;
	uint8_t *src = malloc(300000), *dst = malloc(300000 * COUNT(size));

	(void)state;
	assert_true(src && dst);
	for (uint32_t i = 0; i < 300000; i++)
		src[i] = (uint8_t)(i * 2654435761u >> 13);
	for (int checksum = 0; checksum < 2; checksum++) {
		memset(dst, 0xee, 300000 * COUNT(size));
		copy.count = COUNT(size);
		copy.checksum = (uint8_t)checksum;
		copy.res = -1;
		for (uint32_t i = 0; i < COUNT(size); i++)
			copy.item[i] = (struct core_copy_item){
				.dst = dst + i * 300000 + i, .src = src + 3 * i,
				.bytes = size[i], .seed = i * 77, .crc = 0xdead };
		mem_host.copy(&mem_host, &copy);
		assert_int_equal(copy.res, 0);
		for (uint32_t i = 0; i < COUNT(size); i++) {
			const uint8_t *at = copy.item[i].dst;

			assert_memory_equal(at, src + 3 * i, size[i]);
			assert_int_equal(at[size[i]], 0xee);
			assert_int_equal(copy.item[i].crc,
					 checksum ? crc32c(i * 77, src + 3 * i, size[i]) : 0xdead);
		}
	}
	free(src);
	free(dst);
}

/* Padding is zeros, and summed as such, whatever lies behind the source. */
static void test_padding_is_not_copied(void **state)
{
	uint8_t src[4096], dst[4096 + 1], want[4096] = { 0 };
	struct core_copy copy = { .count = 1, .checksum = 1 };

	(void)state;
	memset(src, 0x77, sizeof(src));
	memset(want, 0x77, 512);
	for (int checksum = 0; checksum < 2; checksum++) {
		memset(dst, 0xee, sizeof(dst));
		copy.checksum = (uint8_t)checksum;
		copy.item[0] = (struct core_copy_item){ .dst = dst, .src = src, .seed = 5,
							.bytes = sizeof(src),
							.pad = sizeof(src) - 512 };
		mem_host.copy(&mem_host, &copy);
		assert_memory_equal(dst, want, sizeof(want));
		assert_int_equal(dst[sizeof(want)], 0xee);
		if (checksum)
			assert_int_equal(copy.item[0].crc, crc32c(5, want, sizeof(want)));
	}
}

static uint32_t flipping; /* atomic */

/* A client that writes into its staging while it is copied. */
static void *flip(void *arg)
{
	uint8_t *src = arg;

	for (uint8_t byte = 0; atomic_load_relaxed_u32(&flipping); byte++)
		for (uint32_t i = 0; i < 65536; i += 64)
			*(volatile uint8_t *)(src + i) = byte;
	return NULL;
}

/* The sum is that of what was stored, whatever the source did meanwhile. */
static void test_copy_of_what_changes(void **state)
{
	static uint8_t src[65536], dst[65536];
	pthread_t thread;

	(void)state;
	atomic_store_relaxed_u32(&flipping, 1);
	assert_int_equal(pthread_create(&thread, NULL, flip, src), 0);
	for (uint32_t i = 0; i < 2000; i++) {
		struct core_copy copy = { .count = 1, .checksum = true };

		copy.item[0] = (struct core_copy_item){ .dst = dst, .src = src,
							.bytes = sizeof(src), .seed = i };
		mem_copy(NULL, &copy);
		assert_int_equal(copy.item[0].crc, crc32c(i, dst, sizeof(dst)));
	}
	atomic_store_relaxed_u32(&flipping, 0);
	pthread_join(thread, NULL);
}

/* A client may keep its mapping of what was removed: nothing of it is there any more. */
static void test_destroyed_memory_is_empty(void **state)
{
	struct mem_region region;
	const uint8_t *kept;
	int fd;

	(void)state;
	assert_int_equal(mem_create(&region, "tier-test", BYTES), 0);
	memset(region.addr, 7, ABI_HUGE);
	fd = dup(region.fd);
	kept = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(kept != MAP_FAILED);
	assert_int_equal(kept[4096], 7);
	mem_destroy(&region);
	assert_int_equal(kept[4096], 0);
	munmap((void *)(uintptr_t)kept, BYTES);
	close(fd);
}

/* ---- choice --------------------------------------------------------------------------------- */

static void test_registry(void **state)
{
	struct backend_info info;
	const struct mem_ops *ops = mem_backend(ABI_TIER_HBM, NULL, 0, &info);

	(void)state;
	assert_ptr_equal(ops, &mem_cuda); /* the stand-in's */
	assert_true(info.device && !info.emulated && !info.direct && info.detail[0]);
	ops = mem_backend(ABI_TIER_HBM, "host", 0, &info);
	assert_ptr_equal(ops, &mem_host);
	assert_string_equal(info.name, "host");
	assert_true(info.emulated && !info.device && info.detail[0]);
	assert_true(info.capacity_auto > 0 && info.capacity_auto % ABI_HUGE == 0);
	ops = mem_backend(ABI_TIER_CXL, "auto", 0, &info);
	assert_non_null(ops);
	assert_string_equal(info.name, ops->name);
	if (ops != &mem_cxl_module) /* it may have ordinary memory, for tests */
		assert_int_equal(info.emulated, ops == &mem_cxl_memfd);
	assert_ptr_equal(mem_backend(ABI_TIER_CXL, "memfd", 0, &info), &mem_cxl_memfd);
	assert_string_equal(info.detail, "plain host DRAM");
	assert_true(info.emulated);
	assert_ptr_equal(mem_backend(ABI_TIER_CXL, "memfd", 0, NULL), &mem_cxl_memfd);
	assert_null(mem_backend(ABI_TIER_CXL, "host", 0, &info));
	assert_ptr_equal(mem_backend(ABI_TIER_HBM, "cuda", 0, &info), &mem_cuda);
	assert_null(mem_backend(ABI_TIER_NVME, NULL, 0, &info));
	assert_non_null(drive_backend("auto"));
	assert_ptr_equal(drive_backend("file"), drive_backend(NULL));
	assert_null(drive_backend("tape"));
}

/* ---- what the host refuses ------------------------------------------------------------------ */

static void limit(int resource, uint64_t value, struct rlimit *old)
{
	struct rlimit now;

	assert_int_equal(getrlimit(resource, old), 0);
	now = *old;
	now.rlim_cur = value;
	assert_int_equal(setrlimit(resource, &now), 0);
}

static void test_create_refused(void **state)
{
	char label[300];
	struct mem_region region;
	struct rlimit old;
	int rc;

	(void)state;
	memset(label, 'x', sizeof(label));
	label[sizeof(label) - 1] = 0;
	assert_int_equal(mem_create(&region, label, BYTES), -EINVAL);
	limit(RLIMIT_NOFILE, 0, &old);
	rc = mem_create(&region, "tier-test", BYTES);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(rc, -EMFILE);
	signal(SIGXFSZ, SIG_IGN);
	limit(RLIMIT_FSIZE, BYTES / 2, &old);
	rc = mem_create(&region, "tier-test", BYTES);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(rc, -EFBIG);
	/* More address space than a process has. */
	assert_int_equal(mem_create(&region, "tier-test", 1ull << 60), -ENOMEM);
}

static void test_prepare_refused(void **state)
{
	struct mem_region region, other;

	(void)state;
	make(&region);
	other = region;
	assert_int_equal(mprotect(region.addr, BYTES, PROT_READ), 0);
	assert_true(mem_prepare(&region, 0, ABI_HUGE) < 0);
	other.fd = -1;
	assert_int_equal(mem_resident(&other), -EBADF);
	assert_int_equal(mem_punch(&other, 0, ABI_HUGE), -EBADF);
	mem_destroy(&region);
}

/* Where huge pages are not to be had, ordinary ones do. */
static int without_huge_pages(void)
{
	struct mem_region region;

	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		return 77;
	if (mem_create(&region, "tier-test", BYTES) || mem_prepare(&region, 0, 2 * ABI_HUGE))
		return 1;
	if (pmd_mapped(region.addr) != 0)
		return 2;
	return mem_resident(&region) == 2 * ABI_HUGE ? 0 : 3;
}

static void test_prepare_without_huge_pages(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		_exit(without_huge_pages());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_region),
		cmocka_unit_test(test_regions_of_odd_sizes),
		cmocka_unit_test(test_other_uid_only_reads),
		cmocka_unit_test(test_prepare_maps_huge_pages),
		cmocka_unit_test(test_readers_get_huge_pages),
		cmocka_unit_test(test_punch_gives_back),
		cmocka_unit_test(test_ranges_are_checked),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_padding_is_not_copied),
		cmocka_unit_test(test_copy_of_what_changes),
		cmocka_unit_test(test_destroyed_memory_is_empty),
		cmocka_unit_test(test_registry),
		cmocka_unit_test(test_a_policy_of_others_is_put_right),
		cmocka_unit_test(test_create_refused),
		cmocka_unit_test(test_prepare_refused),
		cmocka_unit_test(test_prepare_without_huge_pages),
	};

	standin_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
