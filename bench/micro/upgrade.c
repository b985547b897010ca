/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's program is started anew under a client that puts and reads: the longest time that it
 * waits for an answer, with 10^6 pages in memory of which about half were never written, how many
 * of its puts fail, and how many of the pages are there afterwards.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/pool.h"
#include "libtier/base/time.h"

#define PAGES_PER_BLOCK 16u
#define PAGE_BYTES 4096u
#define LIMIT_NS (60 * NS_PER_S)
#define AFTER_NS (300 * NS_PER_MS)
#define BURST 32u /* blocks of a put that nobody times */
#define ROOM (2ull << 30) /* for what is put meanwhile: none of the pool's blocks may leave */

struct upgrading {
	struct pool *p;
	tier *other; /* who asks for it */
	uint32_t next; /* block that is put next */
	uint8_t *data;
	struct sample longest, before;
	double pages, dirty, kept, had, failed;
};

/* Until it is taken: a failure is counted and tried again. */
static int put_one(struct upgrading *u)
{
	uint64_t end = time_now_ns() + LIMIT_NS;
	tier_key key;

	pool_key(&key, u->next++);
	while (tier_put_copy(u->p->c, &key, 1, u->data, NULL) < 0) {
		u->failed++;
		if (time_now_ns() > end)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Puts one after the other until `until`; the longest of them. */
static int put_some(struct upgrading *u, uint64_t until, uint64_t *longest)
{
	int error = 0;

	for (*longest = 0; !error && time_now_ns() < until;) {
		uint64_t from = time_now_ns(), took;

		error = put_one(u);
		took = time_now_ns() - from;
		*longest = took > *longest ? took : *longest;
	}
	return error;
}

/* As many blocks as the pool has, faster than they are written. */
static int put_burst(struct upgrading *u)
{
	uint32_t end = u->next + u->p->spec.blocks;
	tier_key key[BURST];
	int64_t n = 0;

	while (u->next < end && n >= 0) {
		for (uint32_t i = 0; i < BURST; i++)
			pool_key(&key[i], u->next + i);
		n = tier_put_copy(u->p->c, key, BURST, u->data, NULL);
		u->next += BURST;
	}
	return n < 0 ? (int)n : 0;
}

/* What a round put goes: the next one finds the tier as this one did. */
static int delete_from(struct upgrading *u, uint32_t first)
{
	tier_key key[BURST];
	int64_t n = 0;

	for (; first < u->next && n >= 0; first += BURST) {
		uint32_t count = u->next - first < BURST ? u->next - first : BURST;

		for (uint32_t i = 0; i < count; i++)
			pool_key(&key[i], first + i);
		n = tier_delete(u->p->c, key, count);
	}
	return n < 0 ? (int)n : 0;
}

/* Pages of the pool's blocks that lie in memory, and are what was put. */
static uint32_t count_kept(const struct pool *p)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < p->spec.blocks; i++) {
		tier_key key;

		pool_key(&key, i);
		for (uint32_t page = 0; page < PAGES_PER_BLOCK; page++) {
			struct tier_lease lease;

			if (tier_lease_key(p->r, p->c, &key, page, 0, &lease))
				continue;
			kept += *(const uint64_t *)lease.data == pool_word(i, page);
			tier_release(p->r, &lease);
		}
	}
	return kept;
}

static int one_round(struct upgrading *u)
{
	uint64_t before = 0, longest = 0;
	uint32_t first = u->next;
	double blocks = 0, dirty = 0;
	char *text;
	int error = put_some(u, time_now_ns() + 4 * AFTER_NS, &before);

	if (!error)
		error = put_burst(u);
	if (!error)
		u->had += count_kept(u->p);
	if (!error)
		error = tier_admin(u->other, "upgrade", NULL, &text);
	if (error)
		return error;
	free(text);
	error = put_some(u, time_now_ns() + 4 * AFTER_NS, &longest);
	if (!error)
		error = service_number(u->p->t, "status", "handover.blocks", &blocks);
	if (!error)
		error = service_number(u->p->t, "status", "handover.dirty", &dirty);
	if (error)
		return error;
	u->kept += count_kept(u->p);
	u->pages = blocks * PAGES_PER_BLOCK;
	u->dirty = dirty * PAGES_PER_BLOCK;
	sample_add(&u->longest, (double)longest / 1e6);
	sample_add(&u->before, (double)before / 1e6);
	error = delete_from(u, first);
	bench_say("upgrade: %.0f pages taken, %.0f of them dirty; longest answer %.1f ms, "
		  "%.1f without", u->pages, u->dirty, (double)longest / 1e6, (double)before / 1e6);
	return error;
}

static int tell(struct upgrading *u, struct bench_results *results)
{
	const struct bench_figure longest = { "upgrade", "longest answer while it upgrades", "ms",
					      "the longest of as long without",
					      { BENCH_VALUE_AT_MOST, 200 } };
	const struct bench_figure failed = { "upgrade", "puts that failed", "puts", "none",
					     { BENCH_VALUE_AT_MOST, 0 } };
	const struct bench_figure kept = { "upgrade", "pages that are there afterwards", "pages",
					   "those that were there before",
					   { BENCH_RATIO_AT_LEAST, 1 } };
	int error = bench_judge(results, &longest, &u->longest, &u->before);

	if (!error)
		error = bench_judge_exact(results, &failed, u->failed, 0);
	if (!error)
		error = bench_judge_exact(results, &kept, u->kept, u->had);
	return error;
}

static int measure(struct bench *b, struct upgrading *u)
{
	const struct tier_connect_options options = { .size = sizeof(options),
						      .socket = u->p->service.socket,
						      .name = "operator",
						      .staging_bytes = 1 << 20 };
	int error = 0;

	u->next = u->p->spec.blocks;
	u->data = calloc(BURST * PAGES_PER_BLOCK, PAGE_BYTES);
	if (!u->data)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->rounds && !error; i++) {
		error = tier_connect(&u->other, &options);
		if (error)
			break;
		error = one_round(u);
		tier_close(u->other);
	}
	free(u->data);
	return error ? bench_failed("upgrade", error) : tell(u, b->results);
}

int bench_upgrade(struct bench *b)
{
	/* Written as slowly as may be: what is put faster stays dirty. */
	static const char *const set[] = { "writeback.percent=1", "writeback.age=10min", NULL };
	const uint32_t blocks = b->quick ? 3125 : 31250;
	const struct pool_spec spec = {
		.name = "upgrade",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.blocks = blocks,
		.blocks_max = 64 * blocks, /* of all rounds */
		.cxl_bytes = 4ull * blocks * PAGES_PER_BLOCK * PAGE_BYTES + ROOM,
		.nvme_bytes = 3ull * blocks * PAGES_PER_BLOCK * PAGE_BYTES + ROOM,
		.set = set,
	};
	struct pool p;
	struct upgrading u = { .p = &p };
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = measure(b, &u);
	pool_close(&p);
	return error;
}
