/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a put could gain if the bytes stayed where its client wrote them: the daemon's copy with its
 * checksum, beside the checksum alone and the taking of the right to write. mprotect of a second
 * mapping stands in for the commit of a grant (docs/kernel-mod.md), which only the kernel module
 * has. Huge pages, out of the caches.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/crc32c.h"
#include "libtier/base/time.h"
#include "tierd/backend/mem_common.h"

#define POOL_BYTES ((size_t)128 << 20)
#define PAGE_BYTES (64u << 10)

struct job {
	struct mem_region from, to;
	uint8_t *grant; /* a client's mapping of `to` */
	size_t at;      /* where the next one lies */
	struct core_copy copy;
	uint32_t sum; /* of all, so that none is left out */
};

static int job_open(struct job *j)
{
	int rc = mem_create(&j->from, "tier-bench-from", POOL_BYTES);

	if (!rc)
		rc = mem_create(&j->to, "tier-bench-to", POOL_BYTES);
	if (!rc)
		rc = mem_prepare(&j->from, 0, POOL_BYTES);
	if (!rc)
		rc = mem_prepare(&j->to, 0, POOL_BYTES);
	if (rc)
		return rc;
	memset(j->from.addr, 0x5a, POOL_BYTES);
	memset(j->to.addr, 0x5a, POOL_BYTES);
	/* Beside the daemon's, at the same distance from a huge page's edge. */
	j->grant = mmap(NULL, POOL_BYTES + ABI_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (j->grant == MAP_FAILED)
		return -errno;
	j->grant += (ABI_HUGE - (uintptr_t)j->grant % ABI_HUGE) % ABI_HUGE;
	return mmap(j->grant, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, j->to.fd,
		    0) == MAP_FAILED ? -errno : 0;
}

static size_t next(struct job *j, size_t bytes)
{
	size_t at = j->at + bytes <= POOL_BYTES ? j->at : 0;

	j->at = at + bytes;
	return at;
}

/* Nanoseconds of the copy of `bytes` as a put's jobs carry it, page by page. */
static double copied(struct job *j, size_t bytes)
{
	size_t at = next(j, bytes);
	uint64_t from = time_now_ns();

	for (size_t i = 0; i < bytes; i += PAGE_BYTES) {
		j->copy.count = 1;
		j->copy.checksum = 1;
		j->copy.item[0] = (struct core_copy_item){
			.dst = (uint8_t *)j->to.addr + at + i,
			.src = (uint8_t *)j->from.addr + at + i, .bytes = PAGE_BYTES,
		};
		mem_copy(&mem_cxl_memfd, &j->copy);
		j->sum += j->copy.item[0].crc;
	}
	return (double)(time_now_ns() - from);
}

/* The same where they lie: the right goes, then they are summed. It is given back unseen. */
static double in_place(struct job *j, size_t bytes)
{
	size_t at = next(j, bytes);
	uint64_t from, took;

	for (size_t i = 0; i < bytes; i += 4096)
		j->grant[at + i] = 0x5a; /* as its writer does */
	from = time_now_ns();
	if (mprotect(j->grant + at, bytes, PROT_READ))
		return 0;
	for (size_t i = 0; i < bytes; i += PAGE_BYTES)
		j->sum += crc32c(0, (uint8_t *)j->to.addr + at + i, PAGE_BYTES);
	took = time_now_ns() - from;
	mprotect(j->grant + at, bytes, PROT_READ | PROT_WRITE);
	return (double)took;
}

static int measure(struct bench *b, struct job *j, size_t bytes, const char *size, double goal)
{
	char name[BENCH_TEXT];
	const struct bench_figure figure = { "commit", name, "us", "the put's copy with checksum",
					     { BENCH_RATIO_AT_MOST, goal } };
	struct sample ours = { 0 }, peer = { 0 };

	snprintf(name, sizeof(name), "checksum in place and write right gone, %s", size);
	in_place(j, bytes);
	copied(j, bytes);
	for (uint32_t round = 0; round < b->rounds; round++) {
		if (round & 1)
			sample_add(&peer, copied(j, bytes) / 1e3);
		sample_add(&ours, in_place(j, bytes) / 1e3);
		if (!(round & 1))
			sample_add(&peer, copied(j, bytes) / 1e3);
	}
	return bench_judge(b->results, &figure, &ours, &peer);
}

int bench_commit(struct bench *b)
{
	struct job *j CLEANUP_FREE = calloc(1, sizeof(*j));
	int error = j ? job_open(j) : -ENOMEM;

	if (!error)
		error = measure(b, j, 64u << 10, "64 KiB", 1.0);
	if (!error)
		error = measure(b, j, 256u << 10, "256 KiB", 1.0);
	if (!error)
		error = measure(b, j, 2u << 20, "2 MiB", 0.6);
	if (!error)
		error = measure(b, j, 32u << 20, "32 MiB", 0.6);
	if (j)
		bench_say("commit: sums came to %x", j->sum);
	if (j && j->grant)
		munmap(j->grant, POOL_BYTES);
	if (j && j->from.bytes)
		mem_destroy(&j->from);
	if (j && j->to.bytes)
		mem_destroy(&j->to);
	return error;
}
