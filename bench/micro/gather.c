/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering random 64 KiB pages from CXL into a buffer, beside a memcpy of the same pages from the
 * same memory, whose leases were taken before the clock ran. Both go over more than the caches
 * hold, in turn first and second.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/pool.h"
#include "libtier/base/cleanup.h"

#define PAGE_BYTES 65536u
#define PAGES_PER_BLOCK 16u
#define BATCH 64u
#define PAGES 960u /* a round; a reader has 1,024 leases */

struct job {
	struct pool *p;
	struct tier_page page[PAGES];
	uint64_t word[PAGES];
	struct tier_lease lease[PAGES];
	uint8_t *buffer; /* BATCH pages */
	uint64_t random;
};

static void choose(struct job *j)
{
	for (uint32_t i = 0; i < PAGES; i++) {
		uint32_t block = bench_random_below(&j->random, j->p->spec.blocks);
		uint32_t page = bench_random_below(&j->random, PAGES_PER_BLOCK);

		j->page[i] = (struct tier_page){ .block = j->p->block[block], .page = page };
		j->word[i] = pool_word(block, page);
	}
}

static double gbps(uint64_t ns)
{
	return (double)PAGES * PAGE_BYTES / (double)ns;
}

/* Is the last batch in the buffer the right one? */
static int check(const struct job *j)
{
	for (uint32_t i = 0; i < BATCH; i++)
		if (memcmp(j->buffer + (size_t)i * PAGE_BYTES, &j->word[PAGES - BATCH + i], 8) != 0)
			return -EBADMSG;
	return 0;
}

static int run_gather(struct job *j, struct sample *out)
{
	const struct tier_into into = { .dst = j->buffer };
	uint64_t from = time_now_ns();

	for (uint32_t i = 0; i < PAGES; i += BATCH)
		if (tier_gather(j->p->r, j->p->c, &j->page[i], BATCH, &into) != BATCH)
			return -ENODATA;
	sample_add(out, gbps(time_now_ns() - from));
	return check(j);
}

static int run_memcpy(struct job *j, struct sample *out)
{
	int64_t n = tier_lease_pages(j->p->r, j->p->c, j->page, PAGES, 0, j->lease);
	uint64_t from = time_now_ns();

	if (n != PAGES)
		return -ENODATA;
	for (uint32_t i = 0; i < PAGES; i++)
		memcpy(j->buffer + (size_t)(i % BATCH) * PAGE_BYTES, j->lease[i].data, PAGE_BYTES);
	sample_add(out, gbps(time_now_ns() - from));
	tier_release_many(j->p->r, j->lease, PAGES);
	return check(j);
}

static int measure(struct bench *b, struct job *j)
{
	static const struct bench_figure figure = { "gather",
						    "random 64 KiB pages from CXL",
						    "GB/s",
						    "memcpy of the same pages",
						    { BENCH_RATIO_AT_LEAST, 0.9 } };
	struct sample ours = { 0 }, peer = { 0 }, warm = { 0 };
	int error;

	choose(j);
	error = run_gather(j, &warm);
	for (uint32_t round = 0; round < b->rounds && !error; round++) {
		choose(j);
		if (round & 1)
			error = run_memcpy(j, &peer);
		if (!error)
			error = run_gather(j, &ours);
		if (!error && !(round & 1))
			error = run_memcpy(j, &peer);
	}
	return error ? bench_failed("gather", error)
		     : bench_judge(b->results, &figure, &ours, &peer);
}

int bench_gather(struct bench *b)
{
	const struct pool_spec spec = {
		.name = "gather",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.blocks = b->quick ? 256 : 1024,
		.fill_pages = true,
	};
	struct job *j CLEANUP_FREE = calloc(1, sizeof(*j));
	uint8_t *buffer CLEANUP_FREE = aligned_alloc(4096, (size_t)BATCH * PAGE_BYTES);
	struct pool p;
	int error = j && buffer ? pool_open(&p, b, &spec) : -ENOMEM;

	if (error)
		return error;
	j->p = &p;
	j->buffer = buffer;
	j->random = UINT64_C(0x8ebc6af09c88c6e3);
	memset(buffer, 0, (size_t)BATCH * PAGE_BYTES);
	error = measure(b, j);
	pool_close(&p);
	return error;
}
