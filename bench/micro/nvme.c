/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading from the NVMe tier by demand fetches, checksums on, beside fio on the very file of the
 * store: random 64 KiB pages, and blocks in the order in which they were put. Both run for the same
 * time, for devices and hypervisors give bursts. CXL holds a quarter of the pages and none is asked
 * for again before all others were, so with the least recently used leaving first (other policies
 * keep a part of a loop) each one comes from the device; the daemon's own count of bytes read is
 * checked, and the first word of every page that came. The rounds are spread over daemons with
 * stores and memory of their own (stream.c says why).
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/micro/fio.h"
#include "bench/micro/pool.h"
#include "bench/micro/uring.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define PAGE_BYTES 65536u
#define PAGES_PER_BLOCK 16u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * PAGES_PER_BLOCK)
#define AHEAD_MAX 16u /* requests under way, */
#define LIST_MAX 256u /* and most pages of one */
#define RANDOM_PAGES 32u
#define STREAM_BLOCKS 16u
#define ROUND_MS 1000u /* half of both where it is quick */
#define SWEEP_MS 400u
#define WAIT_NS (30 * NS_PER_S)
#define DAEMONS 3u
#define ORDERS 2u

struct job {
	struct pool *p;
	struct fio_job fio;
	struct uring_job uring;
	bool random;
	uint32_t *order; /* pages, in the order in which they are fetched */
	uint32_t pages;
	uint32_t at;		   /* in order: what is fetched next */
	uint32_t list;		   /* pages a request */
	uint32_t ahead;		   /* requests kept under way */
	uint32_t asked[AHEAD_MAX]; /* where in order a request begins, by its user_data */
	uint32_t round_ms, sweep_ms;
	uint64_t came, evicted;	   /* pages; of these, gone before they were leased */
};

static struct tier_page page_at(const struct job *j, uint32_t i)
{
	uint32_t number = j->order[i];

	return (struct tier_page){ .block = j->p->block[number / PAGES_PER_BLOCK],
				   .page = number % PAGES_PER_BLOCK };
}

/* All pages once, shuffled or in order. */
static void order_pages(struct job *j, bool random)
{
	uint64_t x = UINT64_C(0x589965cc75374cc3);

	j->random = j->fio.random = random;
	j->list = random ? RANDOM_PAGES : STREAM_BLOCKS * PAGES_PER_BLOCK;
	j->at = 0;
	for (uint32_t i = 0; i < j->pages; i++)
		j->order[i] = i;
	for (uint32_t i = j->pages - 1; random && i > 0; i--) {
		uint32_t k = bench_random_below(&x, i + 1), swap = j->order[i];

		j->order[i] = j->order[k];
		j->order[k] = swap;
	}
}

static int ask(struct job *j, uint32_t slot)
{
	const struct tier_ask what = { .size = sizeof(what), .tier = TIER_CXL, .user_data = slot };
	struct tier_page page[RANDOM_PAGES];
	int error;

	j->asked[slot] = j->at;
	if (j->random) {
		for (uint32_t i = 0; i < j->list; i++)
			page[i] = page_at(j, j->at + i);
		error = tier_fetch_pages_start(j->p->c, page, j->list, &what);
	} else {
		error = tier_fetch_start(j->p->c, &j->p->block[j->at / PAGES_PER_BLOCK],
					 STREAM_BLOCKS, &what);
	}
	if (!error)
		j->at = (j->at + j->list) % j->pages;
	return error;
}

/* The right pages came; one that has been evicted again since is only counted. */
static int check(struct job *j, uint32_t slot)
{
	struct tier_page page[LIST_MAX];
	struct tier_lease lease[LIST_MAX];
	int64_t n;
	int error = 0;

	for (uint32_t i = 0; i < j->list; i++)
		page[i] = page_at(j, j->asked[slot] + i);
	n = tier_lease_pages(j->p->r, j->p->c, page, j->list, 0, lease);
	if (n < 0)
		return (int)n;
	j->came += j->list;
	j->evicted += j->list - (uint32_t)n;
	for (uint32_t i = 0; i < j->list && !error; i++)
		if (lease[i].data &&
		    *(const uint64_t *)lease[i].data !=
			    pool_word(j->order[j->asked[slot] + i] / PAGES_PER_BLOCK, page[i].page))
			error = -EBADMSG;
	tier_release_many(j->p->r, lease, j->list);
	return error;
}

/* Wait for a request; its slot. */
static int take(struct job *j)
{
	struct tier_completion got;
	int n = tier_wait(j->p->t, &got, 1, 1, WAIT_NS), error;

	if (n < 0)
		return n;
	if (!n)
		return -ETIMEDOUT;
	if (got.result)
		return got.result;
	if (got.value != j->list && !j->random)
		got.value *= PAGES_PER_BLOCK;
	if (got.value != j->list)
		return -ENODATA;
	error = check(j, (uint32_t)got.user_data);
	return error ? error : (int)got.user_data;
}

/* Keep requests under way for the time of a round; GB/s until the last has come. */
static int run(struct job *j, uint32_t ms, double *gbps)
{
	uint64_t from = time_now_ns(), before = 0, after = 0, bytes;
	uint32_t ahead = 0, done = 0;
	int slot = 0, error = service_metric(j->p->t, "read_bytes", &before);

	for (uint32_t i = 0; i < j->ahead && !error; i++, ahead++)
		error = ask(j, i);
	while (ahead && !error) {
		slot = take(j);
		if (slot < 0)
			return slot;
		ahead--;
		done++;
		if (time_now_ns() - from >= ms * NS_PER_MS)
			continue;
		error = ask(j, (uint32_t)slot);
		ahead++;
	}
	bytes = (uint64_t)done * j->list * PAGE_BYTES;
	*gbps = (double)bytes / (double)(time_now_ns() - from);
	if (!error)
		error = service_metric(j->p->t, "read_bytes", &after);
	if (!error && after - before < bytes - bytes / 10) {
		bench_say("nvme: %llu bytes came and only %llu from the device",
			  (unsigned long long)bytes, (unsigned long long)(after - before));
		error = -EPROTO;
	}
	return error;
}

struct series {
	struct sample value, fio, uring;
};

/* An order of reads: what all daemons came to, and where ours and the peers are fastest. */
struct order {
	const char *name;
	bool random;
	uint32_t ahead; /* 0: not known yet */
	uint32_t fio_block_bytes, fio_depth, uring_block_bytes, uring_depth;
	struct series series;
};

static int peers(struct job *j, double *fio, double *uring)
{
	int error = fio_run(&j->fio, fio);

	return error ? error : uring_run(&j->uring, uring);
}

static int round_of(struct job *j, bool peers_first, struct series *s)
{
	double ours = 0, fio = 0, uring = 0;
	int error = peers_first ? peers(j, &fio, &uring) : 0;

	if (!error)
		error = run(j, j->round_ms, &ours);
	if (!error && !peers_first)
		error = peers(j, &fio, &uring);
	sample_add(&s->value, ours);
	sample_add(&s->fio, fio);
	sample_add(&s->uring, uring);
	return error;
}

/* fio has the depth at which it is fastest; so have we. */
static int find_ahead(struct job *j)
{
	double most = 0, rate = 0;
	uint32_t best = 1;
	int error = 0;

	for (j->ahead = 1; j->ahead <= AHEAD_MAX && !error; j->ahead *= 2) {
		error = run(j, j->sweep_ms, &rate);
		if (rate <= most)
			continue;
		most = rate;
		best = j->ahead;
	}
	j->ahead = best;
	return error;
}

/* The peers at their best. */
static int find_peers(struct job *j)
{
	static const uint32_t stream_blocks[] = { 131072, 524288, 1048576 };
	static const uint32_t random_blocks[] = { PAGE_BYTES };
	double best;
	int error;

	j->fio.ms = j->uring.ms = j->sweep_ms;
	j->uring.random = j->random;
	j->uring.block_bytes = j->random ? PAGE_BYTES : stream_blocks[2];
	error = fio_best(&j->fio, j->random ? random_blocks : stream_blocks, j->random ? 1 : 3,
			 &best);
	if (error)
		return bench_failed("fio", error);
	error = uring_best(&j->uring);
	j->fio.ms = j->uring.ms = j->round_ms;
	return error ? bench_failed("io_uring", error) : 0;
}

static int judge(struct bench *b, const struct job *j, const struct order *o)
{
	char against[BENCH_TEXT], text[UNITS_TEXT_BYTES], memory[UNITS_TEXT_BYTES];
	const struct bench_figure figure = {
		"nvme", o->name, "GB/s", against, { BENCH_RATIO_AT_LEAST, 0.9 }
	};
	int error;

	snprintf(against, sizeof(against), "fio io_uring, blocks of %s, depth %u, huge pages",
		 units_print_bytes(text, o->fio_block_bytes), o->fio_depth);
	error = bench_judge(b->results, &figure, &o->series.value, &o->series.fio);
	if (error)
		return error;
	snprintf(against, sizeof(against), "io_uring alone into %s, blocks of %s, depth %u",
		 units_print_bytes(memory, j->uring.memory_bytes),
		 units_print_bytes(text, o->uring_block_bytes), o->uring_depth);
	return bench_judge(b->results, &figure, &o->series.value, &o->series.uring);
}

/* Once, with the first daemon. */
static int find_best(struct job *j, struct order *o)
{
	int error = find_peers(j);

	if (!error)
		error = find_ahead(j);
	o->ahead = j->ahead;
	o->fio_block_bytes = j->fio.block_bytes;
	o->fio_depth = j->fio.depth;
	o->uring_block_bytes = j->uring.block_bytes;
	o->uring_depth = j->uring.depth;
	if (!error)
		bench_say("nvme: %s: %u requests of %u pages kept under way", o->name, o->ahead,
			  j->list);
	return error;
}

static int measure(struct job *j, struct order *o, uint32_t rounds)
{
	char *reply CLEANUP_FREE = NULL;
	int error;

	order_pages(j, o->random);
	/* What puts or the other order left in CXL would be found there. */
	error = tier_admin(j->p->t, "evict", "{\"context\":\"nvme\",\"tier\":\"cxl\"}", &reply);
	if (error)
		return bench_failed("evict", error);
	error = o->ahead ? 0 : find_best(j, o);
	j->ahead = o->ahead;
	j->fio.block_bytes = o->fio_block_bytes;
	j->fio.depth = o->fio_depth;
	j->uring.block_bytes = o->uring_block_bytes;
	j->uring.depth = o->uring_depth;
	j->uring.random = o->random;
	j->fio.ms = j->uring.ms = j->round_ms;
	for (uint32_t round = 0; round < rounds && !error; round++)
		error = round_of(j, round & 1, &o->series);
	if (j->evicted)
		bench_say("nvme: %.2f%% of the pages had been evicted again when they were looked "
			  "at",
			  100.0 * (double)j->evicted / (double)j->came);
	j->came = j->evicted = 0;
	return error ? bench_failed(o->name, error) : 0;
}

static int measure_orders(struct job *j, struct order *o, uint32_t rounds)
{
	int error;

	j->fio = (struct fio_job){ .file = j->p->service.store, .memory = fio_memory() };
	if (j->fio.memory < 0)
		return bench_failed("memory for fio", j->fio.memory);
	error = uring_open(&j->uring, j->fio.file, j->p->spec.cxl_bytes);
	if (error) {
		close(j->fio.memory);
		return bench_failed("io_uring", error);
	}
	j->pages = j->p->spec.blocks * PAGES_PER_BLOCK;
	j->order = calloc(j->pages, sizeof(*j->order));
	error = j->order ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < ORDERS && !error; i++)
		error = measure(j, &o[i], rounds);
	free(j->order);
	uring_close(&j->uring);
	close(j->fio.memory);
	return error;
}

static int one_daemon(struct bench *b, struct job *j, struct order *o, uint32_t rounds)
{
	/* A run of 32 blocks is 32 MiB; the store is to hold whole ones. */
	static const char *const set[] = { "nvme.segment=64MiB", NULL };
	const struct pool_spec spec = {
		.name = "nvme",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.blocks = b->quick ? 1024 : 2048,
		.cxl_bytes = (b->quick ? 1024 : 2048) * BLOCK_BYTES / 4,
		.nvme_bytes = (b->quick ? 1024 : 2048) * BLOCK_BYTES * 5 / 4,
		.set = set,
		.policy = "lru",
		.fill_pages = true,
	};
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	j->p = &p;
	error = measure_orders(j, o, rounds);
	pool_close(&p);
	return error;
}

int bench_nvme(struct bench *b)
{
	static const struct bench_figure missing = {
		"nvme", "64 KiB page reads", "GB/s", "fio", { BENCH_RATIO_AT_LEAST, 0.9 }
	};
	struct order order[ORDERS] = { { .name = "random 64 KiB pages", .random = true },
				       { .name = "streaming, blocks in order" } };
	struct job j = { .round_ms = b->quick ? ROUND_MS / 2 : ROUND_MS,
			 .sweep_ms = b->quick ? SWEEP_MS / 2 : SWEEP_MS };
	uint32_t left = b->rounds;
	int error = 0;

	if (!fio_there())
		return bench_judge_missing(b->results, &missing, "fio is not installed");
	for (uint32_t daemons = DAEMONS; daemons && left && !error; daemons--) {
		uint32_t rounds = (left + daemons - 1) / daemons;

		error = one_daemon(b, &j, order, rounds);
		left -= rounds;
	}
	for (uint32_t i = 0; i < ORDERS && !error; i++)
		error = judge(b, &j, &order[i]);
	return error;
}
