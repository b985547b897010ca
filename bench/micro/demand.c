/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What background costs demand, and demand background (P6): single 64 KiB reads with gaps, alone
 * and beside two streams that run without a pause: prefetch of blocks in order, and puts that are
 * written back. Gaps are 2 ms each; or 2 ms on average, exponentially distributed; or there are
 * none between eight reads, and then 16 ms. Alone and beside are taken in turns in one run, as is
 * the background alone.
 *
 * Between its reads the demand client keeps the daemon awake, in every phase: else what is measured
 * would be how fast a sleeping daemon wakes, which is slower alone. Each demand page comes from the
 * device: pages are read in a shuffled order, and CXL holds a quarter of all.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/pool.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"

#define PAGE_BYTES 65536u
#define PAGES_PER_BLOCK 16u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * PAGES_PER_BLOCK)
#define GAP_NS (2 * NS_PER_MS)
#define BURST 8u
#define PING_NS (400 * NS_PER_US)
#define STAGE_BLOCKS 8u /* of one prefetch, */
#define STAGE_AHEAD 4u  /* and prefetches under way */
#define PUT_BLOCKS 4u
#define PUT_RATE (300u << 20) /* bytes a second */
#define PUT_KEYS (1u << 24)   /* from here on: other keys than the pool's */
#define WRITES_MAX 8192u      /* blocks of the context that is written */
#define WAIT_NS (30 * NS_PER_S)
#define READS_MAX 4096u

/* One round's phases. */
#define PHASE_MS 1000u
#define WARM_MS 100u

enum gaps { GAPS_REGULAR, GAPS_RANDOM, GAPS_BURSTS, GAPS };

struct demand {
	struct bench *bench;
	struct pool *p;
	struct pool stage, put; /* their own connections */
	tier_context *written;
	atomic_bool run, end;
	atomic_int error;
	atomic_uint busy;  /* background threads that have something under way */
	uint32_t *order;   /* demand pages, shuffled */
	uint32_t pages, at;
	uint64_t random;
	uint64_t puts;     /* so far: their keys */
	double ns[READS_MAX];
};

/* What one phase came to. */
struct phase {
	double p50, p99;         /* us */
	double staged, written;  /* bytes a second */
};

static void nap(uint64_t ns)
{
	const struct timespec t = { .tv_sec = (time_t)(ns / NS_PER_S),
				    .tv_nsec = (long)(ns % NS_PER_S) };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* ---- background ---------------------------------------------------------------------------- */

static int wait_one(tier *t)
{
	struct tier_completion got;
	int n = tier_wait(t, &got, 1, 1, WAIT_NS);

	if (n <= 0)
		return n ? n : -ETIMEDOUT;
	return got.result;
}

/* Prefetch the first half of the blocks in order, again and again. */
static int stage_while(struct demand *d, uint32_t *at)
{
	uint32_t ahead = 0, half = d->stage.spec.blocks / 2;
	int error = 0;

	while (!error && (atomic_load(&d->run) || ahead)) {
		const struct tier_ask ask = { .size = sizeof(ask),
					      .tier = TIER_CXL,
					      .deadline_ns = time_now_ns() + 60 * NS_PER_S,
					      .user_data = 1,
					      .klass = TIER_CLASS_DEADLINE };

		if (!atomic_load(&d->run) && ahead)
			tier_cancel(d->stage.t, 1);
		if (!atomic_load(&d->run) || ahead == STAGE_AHEAD) {
			error = wait_one(d->stage.t);
			error = error == -ECANCELED ? 0 : error;
			ahead--;
			continue;
		}
		error = tier_fetch_start(d->stage.c, &d->stage.block[*at], STAGE_BLOCKS, &ask);
		*at = (*at + STAGE_BLOCKS) % half;
		ahead++;
	}
	return error;
}

static int put_one(struct demand *d)
{
	tier_key key[PUT_BLOCKS];
	tier_put *put;
	int error;

	for (uint32_t i = 0; i < PUT_BLOCKS; i++)
		pool_key(&key[i], PUT_KEYS + (uint32_t)(d->puts + i));
	error = tier_put_begin(d->written, key, PUT_BLOCKS, NULL, &put);
	if (error)
		return error;
	for (uint32_t i = 0; i < PUT_BLOCKS * PAGES_PER_BLOCK; i++) {
		uint64_t word = d->puts << 20 | i;

		memcpy(tier_put_data(put, i / PAGES_PER_BLOCK, 0, 0, i % PAGES_PER_BLOCK), &word,
		       sizeof(word));
	}
	error = tier_put_commit(put, 1);
	if (error) {
		tier_put_abort(put);
		return error;
	}
	d->puts += PUT_BLOCKS;
	return wait_one(d->put.t);
}

/* Puts at a steady rate; best-effort ones that are dropped do not count as written. */
static int put_while(struct demand *d)
{
	uint64_t next = time_now_ns();
	int error = 0;

	while (!error && atomic_load(&d->run)) {
		uint64_t now = time_now_ns();

		if (now < next) {
			nap(next - now);
			continue;
		}
		next = now - next > 100 * NS_PER_MS ? now : next;
		next += PUT_BLOCKS * BLOCK_BYTES * NS_PER_S / PUT_RATE;
		error = put_one(d);
	}
	return error;
}

static void background(struct demand *d, bool stages)
{
	uint32_t at = 0;

	while (!atomic_load(&d->end)) {
		int error = 0;

		if (atomic_load(&d->run)) {
			atomic_fetch_add(&d->busy, 1);
			error = stages ? stage_while(d, &at) : put_while(d);
			atomic_fetch_sub(&d->busy, 1);
		}
		if (error) {
			atomic_store(&d->error, error);
			return;
		}
		nap(NS_PER_MS);
	}
}

static void *stage_thread(void *arg)
{
	background(arg, true);
	return NULL;
}

static void *put_thread(void *arg)
{
	background(arg, false);
	return NULL;
}

/* ---- demand -------------------------------------------------------------------------------- */

static int read_page(struct demand *d, double *us)
{
	uint32_t number = d->order[d->at++ % d->pages];
	const struct tier_page page = { .block = d->p->block[number / PAGES_PER_BLOCK],
					.page = number % PAGES_PER_BLOCK };
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	uint64_t from = time_now_ns();
	int64_t n = tier_fetch_pages(d->p->c, &page, 1, &ask);

	*us = (double)(time_now_ns() - from) / NS_PER_US;
	return n == 1 ? 0 : n < 0 ? (int)n : -ENODATA;
}

static uint64_t gap_ns(struct demand *d, enum gaps gaps, uint32_t reads)
{
	if (gaps == GAPS_BURSTS)
		return reads % BURST ? 0 : BURST * GAP_NS;
	if (gaps == GAPS_REGULAR)
		return GAP_NS;
	return (uint64_t)(-log((double)(bench_random(&d->random) >> 11) * 0x1p-53 + 0x1p-54) *
			  (double)GAP_NS);
}

/* After so many reads of the phase. */
static int gap(struct demand *d, enum gaps gaps, uint32_t reads)
{
	uint64_t until = time_now_ns() + gap_ns(d, gaps, reads), now;
	int error = 0;

	while (!error && (now = time_now_ns()) < until) {
		nap(until - now < PING_NS ? until - now : PING_NS);
		error = tier_drain(d->p->t);
	}
	return error;
}

/* ---- phases -------------------------------------------------------------------------------- */

/* All bytes read, and what background has read and written. */
static int counters(struct demand *d, uint64_t *read, uint64_t *background)
{
	int error = service_metric(d->p->t, "read_bytes", read);

	return error ? error : service_metric(d->p->t, "background_bytes", background);
}

static int quiet(struct demand *d)
{
	char *reply CLEANUP_FREE = NULL;

	atomic_store(&d->run, false);
	while (atomic_load(&d->busy))
		nap(NS_PER_MS);
	return tier_admin(d->p->t, "drain", "{}", &reply);
}

/* With demand (GAPS = without: half as long does), background as it is. */
static int measure(struct demand *d, enum gaps gaps, struct phase *out)
{
	uint64_t from = time_now_ns(), r0, r1, b0, b1, staged;
	uint64_t ms = d->bench->quick ? PHASE_MS / 2 : PHASE_MS;
	uint64_t until = from + (gaps == GAPS ? ms / 2 : ms) * NS_PER_MS;
	double seconds;
	uint32_t n = 0;
	int error = counters(d, &r0, &b0);

	while (!error && time_now_ns() < until && n < READS_MAX) {
		if (gaps == GAPS) {
			nap(10 * NS_PER_MS);
			continue;
		}
		error = read_page(d, &d->ns[n]);
		n++;
		if (!error)
			error = gap(d, gaps, n);
	}
	seconds = (double)(time_now_ns() - from) / 1e9;
	if (!error)
		error = counters(d, &r1, &b1);
	if (!error)
		error = atomic_load(&d->error);
	if (error)
		return error;
	out->p50 = sample_quantile(d->ns, n, 0.5);
	out->p99 = sample_quantile(d->ns, n, 0.99);
	staged = r1 - r0 - (uint64_t)n * PAGE_BYTES;
	out->staged = (double)staged / seconds;
	out->written = b1 - b0 > staged ? (double)(b1 - b0 - staged) / seconds : 0;
	return 0;
}

/* The daemon's counter counts a page of demand once it is there, and nothing else reads. */
static int beside(struct demand *d, enum gaps gaps, struct phase *out)
{
	int error = 0;

	atomic_store(&d->run, true);
	nap(WARM_MS * NS_PER_MS);
	error = measure(d, gaps, out);
	return error ? error : quiet(d);
}

struct series {
	struct sample idle50, idle99, load50, load99;
	struct sample staged, staged_alone, written, written_alone;
};

static int round_of(struct demand *d, enum gaps gaps, bool idle_first, struct series *s)
{
	struct phase idle, loaded, alone;
	int error = idle_first ? measure(d, gaps, &idle) : 0;

	if (!error)
		error = beside(d, gaps, &loaded);
	if (!error && !idle_first)
		error = measure(d, gaps, &idle);
	if (!error)
		error = beside(d, GAPS, &alone);
	if (error)
		return error;
	sample_add(&s->idle50, idle.p50);
	sample_add(&s->idle99, idle.p99);
	sample_add(&s->load50, loaded.p50);
	sample_add(&s->load99, loaded.p99);
	sample_add(&s->staged, loaded.staged / 1e6);
	sample_add(&s->staged_alone, alone.staged / 1e6);
	sample_add(&s->written, loaded.written / 1e6);
	sample_add(&s->written_alone, alone.written / 1e6);
	return 0;
}

/* One kind of gaps after the other: in one round after the other nothing could be foreseen. */
static int round_all(struct demand *d, struct series s[GAPS], enum gaps kinds)
{
	int error = 0;

	for (enum gaps g = 0; g < kinds; g++)
		for (uint32_t i = 0; i < d->bench->rounds && !error; i++)
			error = round_of(d, g, i & 1, &s[g]);
	return error;
}

static int judge(struct demand *d, const struct series *s, enum gaps gaps, bool yield)
{
	static const char *const what[] = { "p50", "p99", "staging", "write-back" };
	static const char *const how[] = { "beside background", "background yields",
					   "beside demand", "that yields" };
	static const char *const when[GAPS] = { "", ", random gaps", ", bursts" };
	const struct sample *const value[] = { &s->load50, &s->load99, &s->staged, &s->written };
	const struct sample *const peer[] = { &s->idle50, &s->idle99, &s->staged_alone,
					      &s->written_alone };
	const double goal[] = { yield ? 1.1 : 1.4, 2.0, yield ? 0.001 : 0.5, yield ? 0.001 : 0.5 };
	int error = 0;

	for (uint32_t i = 0; i < 4 && !error; i++) {
		bool speed = i >= 2;
		char name[64];
		const struct bench_figure figure = {
			"demand", name, speed ? "MB/s" : "us",
			speed ? "staging and write-back without demand" :
				"the same read on an idle device",
			{ speed ? BENCH_RATIO_AT_LEAST : BENCH_RATIO_AT_MOST, goal[i] }
		};

		snprintf(name, sizeof(name), "%s%s%s%s", what[i], yield && !speed ? ", " : " ",
			 how[2 * speed + yield], when[gaps]);
		error = bench_judge(d->bench->results, &figure, value[i], peer[i]);
	}
	return error;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int order_pages(struct demand *d)
{
	uint64_t x = UINT64_C(0x2545f4914f6cdd1d);
	uint32_t first = d->p->spec.blocks / 2 * PAGES_PER_BLOCK;

	d->pages = first;
	d->order = calloc(d->pages, sizeof(*d->order));
	if (!d->order)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->pages; i++) {
		uint32_t k = bench_random_below(&x, i + 1);

		d->order[i] = d->order[k];
		d->order[k] = first + i;
	}
	return 0;
}

/* The context that is written: its blocks come and go, the pool's stay. */
static int written_open(struct demand *d)
{
	const struct tier_part part = { .name = "pages",
					.kind = TIER_KIND_SPARSE,
					.preferred_tier = TIER_CXL,
					.layers = 1,
					.groups = PAGES_PER_BLOCK,
					.page_bytes = PAGE_BYTES };
	const struct tier_geometry_options shape = { .size = sizeof(shape),
						     .part_count = 1,
						     .part = &part };
	struct tier_context_options options = { .size = sizeof(options),
						.blocks_max = WRITES_MAX };
	tier_geometry *g;
	int error = tier_geometry_new(&g, &shape);

	if (error)
		return bench_failed("tier_geometry_new", error);
	options.quota[TIER_HBM] = TIER_QUOTA_NONE;
	error = tier_context_create(d->put.t, "written", g, &options, &d->written);
	tier_geometry_free(g);
	return error ? bench_failed("tier_context_create", error) : 0;
}

static int rounds(struct demand *d, bool yield)
{
	/* Where background yields, the quick form has the first kind alone. */
	enum gaps kinds = yield && d->bench->quick ? GAPS_REGULAR + 1 : GAPS;
	struct series s[GAPS] = { 0 };
	pthread_t stage, put;
	int error = pthread_create(&stage, NULL, stage_thread, d);

	if (error)
		return -error;
	error = pthread_create(&put, NULL, put_thread, d);
	if (!error) {
		error = round_all(d, s, kinds);
		atomic_store(&d->run, false);
		atomic_store(&d->end, true);
		pthread_join(put, NULL);
	} else {
		error = -error;
		atomic_store(&d->end, true);
	}
	pthread_join(stage, NULL);
	if (error)
		return bench_failed("demand", error);
	for (enum gaps g = 0; g < kinds && !error; g++)
		error = judge(d, &s[g], g, yield);
	return error;
}

static int measure_all(struct bench *b, struct pool *p, bool yield)
{
	struct demand *d CLEANUP_FREE = calloc(1, sizeof(*d));
	char *reply CLEANUP_FREE = NULL;
	int error;

	if (!d)
		return -ENOMEM;
	d->bench = b;
	d->p = p;
	d->random = UINT64_C(0x9e3779b97f4a7c15);
	error = order_pages(d);
	if (!error)
		error = tier_admin(p->t, "evict", "{\"context\":\"demand\",\"tier\":\"cxl\"}",
				   &reply);
	if (!error)
		error = pool_attach(&d->stage, p);
	if (!error)
		error = pool_attach(&d->put, p);
	if (!error)
		error = written_open(d);
	if (!error)
		error = rounds(d, yield);
	tier_context_close(d->written);
	pool_detach(&d->put);
	pool_detach(&d->stage);
	free(d->order);
	return error;
}

int bench_demand(struct bench *b)
{
	static const char *const plain[] = { "nvme.segment=64MiB", NULL };
	static const char *const yielding[] = { "nvme.segment=64MiB", "background.yield=yes",
						NULL };
	struct pool_spec spec = {
		.name = "demand",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.blocks = b->quick ? 1024 : 2048,
		.cxl_bytes = (b->quick ? 1024 : 2048) * BLOCK_BYTES / 4,
		.nvme_bytes = (b->quick ? 1024 : 2048) * BLOCK_BYTES * 2,
		.fill_pages = true,
	};
	int error = 0;

	for (uint32_t yield = 0; yield < 2 && !error; yield++) {
		struct pool p;

		spec.set = yield ? yielding : plain;
		error = pool_open(&p, b, &spec);
		if (error)
			return error;
		error = measure_all(b, &p, yield);
		pool_close(&p);
	}
	return error;
}
