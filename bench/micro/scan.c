/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scan resistance: a hot set of sparse pages that nobody pinned, half of the CXL tier, read at
 * random and fetched when a page is missing; and streams over ten times the tier's size, from NVMe,
 * through it. Each round runs the streams alone, the hot set alone and both together: the hot set's
 * hit ratio must not notice, and the streams must hardly be slower. The hot set's reader has its
 * own connection and keeps a pace, so that it takes the same looks in each part.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "bench/micro/pool.h"
#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define PAGE_BYTES 65536u
#define LAYERS 8u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * LAYERS)
#define STREAM_BLOCKS 64u /* of one stream */
#define TIMES 10u	  /* the tier's size */
#define LOOK_PAGES 32u	  /* hot pages a look, */
#define LOOK_NS 500000ull /* one look each */
#define DEADLINE_NS (20 * NS_PER_S)
#define ALONE_NS (1 * NS_PER_S)

struct hot {
	struct pool p;	 /* its own connection */
	uint32_t blocks; /* the first ones of the context */
	uint32_t stop;	 /* atomic */
	uint64_t random;
	uint64_t looks, hits;
	int error;
	pthread_t thread;
};

struct job {
	struct bench *bench;
	struct pool *p;
	struct hot hot;
	struct tier_lease lease[STREAM_BLOCKS];
};

/* ---- the hot set --------------------------------------------------------------------------- */

static int look(struct hot *h)
{
	static const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	struct tier_page page[LOOK_PAGES], missing[LOOK_PAGES];
	struct tier_lease lease[LOOK_PAGES];
	uint32_t count = 0;
	int n;

	for (uint32_t i = 0; i < LOOK_PAGES; i++)
		page[i] = (struct tier_page){
			.block = h->p.block[bench_random_below(&h->random, h->blocks)],
			.page = bench_random_below(&h->random, LAYERS),
		};
	n = tier_lease_pages(h->p.r, h->p.c, page, LOOK_PAGES, 0, lease);
	if (n < 0)
		return n;
	for (uint32_t i = 0; i < LOOK_PAGES; i++)
		if (!lease[i].data)
			missing[count++] = page[i];
	tier_release_many(h->p.r, lease, LOOK_PAGES);
	h->looks += LOOK_PAGES;
	h->hits += LOOK_PAGES - count;
	if (!count)
		return 0;
	n = (int)tier_fetch_pages(h->p.c, missing, count, &ask);
	return n < 0 ? n : 0;
}

static void *look_on(void *arg)
{
	struct hot *h = arg;
	uint64_t next = time_now_ns();

	while (!atomic_load_acquire_u32(&h->stop) && !h->error) {
		const struct timespec pause = { 0, 100000 };

		h->error = look(h);
		for (next += LOOK_NS; time_now_ns() < next;)
			nanosleep(&pause, NULL);
	}
	return NULL;
}

static int hot_start(struct hot *h)
{
	h->looks = h->hits = 0;
	h->stop = 0;
	h->error = 0;
	return -pthread_create(&h->thread, NULL, look_on, h);
}

/* The hit ratio in percent. */
static int hot_stop(struct hot *h, double *percent)
{
	atomic_store_release_u32(&h->stop, 1);
	pthread_join(h->thread, NULL);
	*percent = h->looks ? 100.0 * (double)h->hits / (double)h->looks : 0;
	return h->error ? bench_failed("hot set", h->error) : 0;
}

/* Every hot page once, in order: what is not there is fetched. */
static int warm(struct hot *h)
{
	static const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };

	for (uint32_t at = 0; at < h->blocks; at += STREAM_BLOCKS) {
		uint32_t n = h->blocks - at < STREAM_BLOCKS ? h->blocks - at : STREAM_BLOCKS;
		int64_t got = tier_fetch(h->p.c, &h->p.block[at], n, &ask);

		if (got < 0)
			return bench_failed("warming the hot set", (int)got);
	}
	return 0;
}

/* ---- the scan ------------------------------------------------------------------------------ */

static int read_layer(struct job *j, uint32_t first, uint32_t layer)
{
	const struct tier_selection all = { .blocks = &j->p->block[first], .count = STREAM_BLOCKS,
					    .page = layer };
	int n = tier_lease_blocks(j->p->r, j->p->c, &all, j->lease), error = 0;

	for (uint32_t i = 0; i < STREAM_BLOCKS && n == (int)STREAM_BLOCKS; i++)
		if (*(const uint64_t *)j->lease[i].data != pool_word(first + i, layer))
			error = -EBADMSG;
	tier_release_many(j->p->r, j->lease, STREAM_BLOCKS);
	return n == (int)STREAM_BLOCKS ? error : n < 0 ? n : -ENODATA;
}

static int stream_from(struct job *j, uint32_t first, tier_stream **out)
{
	const struct tier_stream_options o = {
		.size = sizeof(o),
		.tier = TIER_CXL,
		.klass = TIER_CLASS_DEADLINE,
		.deadline_ns = time_now_ns() + DEADLINE_NS,
	};

	return tier_stream_open(j->p->c, &j->p->block[first], STREAM_BLOCKS, &o, out);
}

static int read_stream(struct job *j, uint32_t first, tier_stream *s)
{
	int error = 0;

	for (uint32_t layer = 0; layer < LAYERS && !error; layer++) {
		int64_t n = tier_stream_wait(s, layer, 0);

		error = n < 0 ? (int)n : read_layer(j, first, layer);
		tier_stream_release(s, layer + 1);
	}
	return error;
}

/* Stream after stream, the next one always asked for, over all that is not hot. GB/s. */
static int scan(struct job *j, double *gbps)
{
	uint32_t first = j->hot.blocks, end = j->p->spec.blocks;
	uint64_t from = time_now_ns();
	tier_stream *now, *next;
	int error = stream_from(j, first, &now);

	for (uint32_t at = first; at < end && !error; at += STREAM_BLOCKS) {
		next = NULL;
		if (at + STREAM_BLOCKS < end)
			error = stream_from(j, at + STREAM_BLOCKS, &next);
		if (!error)
			error = read_stream(j, at, now);
		tier_stream_close(now);
		now = next;
	}
	if (error && now)
		tier_stream_close(now);
	*gbps = (double)((end - first) * BLOCK_BYTES) / (double)(time_now_ns() - from);
	return error ? bench_failed("scan", error) : 0;
}

/* ---- rounds -------------------------------------------------------------------------------- */

struct figures {
	struct sample alone_gbps, both_gbps, alone_percent, both_percent, lost;
};

static int round_of(struct job *j, struct figures *f)
{
	const struct timespec alone = { ALONE_NS / NS_PER_S, 0 };
	double gbps = 0, with = 0, hits = 0, beside = 0;
	int error = scan(j, &gbps);

	if (!error)
		error = warm(&j->hot);
	if (!error)
		error = hot_start(&j->hot);
	if (!error) {
		nanosleep(&alone, NULL);
		error = hot_stop(&j->hot, &hits);
	}
	if (!error)
		error = hot_start(&j->hot);
	if (!error) {
		error = scan(j, &with);
		if (hot_stop(&j->hot, &beside) && !error)
			error = j->hot.error;
	}
	sample_add(&f->alone_gbps, gbps);
	sample_add(&f->both_gbps, with);
	sample_add(&f->alone_percent, hits);
	sample_add(&f->both_percent, beside);
	sample_add(&f->lost, hits > beside ? hits - beside : beside - hits);
	return error;
}

static int judge(struct bench *b, const struct figures *f, uint64_t bytes)
{
	static const struct bench_figure points = {
		"scan", "hot set's hit ratio beside the scan: points off", "points",
		"the same alone", { BENCH_VALUE_AT_MOST, 1.0 }
	};
	char name[BENCH_TEXT], text[UNITS_TEXT_BYTES];
	const struct bench_figure speed = {
		"scan", name, "GB/s", "the same alone", { BENCH_RATIO_AT_LEAST, 0.9 }
	};
	int error;

	snprintf(name, sizeof(name), "streams over %s, a hot set beside them",
		 units_print_bytes(text, bytes));
	bench_say("scan: hit ratio %.2f %% alone, %.2f %% beside the scan",
		  sample_summarise(&f->alone_percent).median,
		  sample_summarise(&f->both_percent).median);
	error = bench_judge(b->results, &points, &f->lost, &f->alone_percent);
	return error ? error : bench_judge(b->results, &speed, &f->both_gbps, &f->alone_gbps);
}

static int measure(struct bench *b, struct pool *p, uint32_t hot_blocks)
{
	struct job *j CLEANUP_FREE = calloc(1, sizeof(*j));
	struct figures f = { 0 };
	int error;

	if (!j)
		return -ENOMEM;
	j->bench = b;
	j->p = p;
	j->hot.blocks = hot_blocks;
	j->hot.random = UINT64_C(0x853c49e6748fea9b);
	error = pool_attach(&j->hot.p, p);
	if (error)
		return error;
	for (uint32_t round = 0; round < b->rounds && !error; round++)
		error = round_of(j, &f);
	pool_detach(&j->hot.p);
	if (error)
		return error;
	return judge(b, &f, (p->spec.blocks - hot_blocks) * BLOCK_BYTES);
}

int bench_scan(struct bench *b)
{
	static const char *const set[] = { "nvme.segment=64MiB", NULL };
	const uint64_t cxl = (b->quick ? 256ull : 512ull) << 20;
	const uint32_t hot = (uint32_t)(cxl / 2 / BLOCK_BYTES);
	const struct pool_spec spec = {
		.name = "scan",
		.pages_per_block = LAYERS,
		.layers = LAYERS,
		.page_bytes = PAGE_BYTES,
		.blocks = hot + (uint32_t)(TIMES * cxl / BLOCK_BYTES),
		.cxl_bytes = cxl,
		.nvme_bytes = (TIMES + 2) * cxl,
		.set = set,
		.put_blocks = 32,
		.fill_pages = true,
	};
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = measure(b, &p, hot);
	pool_close(&p);
	return error;
}
