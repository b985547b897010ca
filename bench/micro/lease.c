/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot read: lease, read of the page's first line, release; one page at a time, in lists, all
 * cached, and by two processes at once. Each access depends on the last one's bytes, so that the
 * processor cannot run ahead: the peer, a pointer chase, cannot either.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/micro/chase.h"
#include "bench/micro/pool.h"
#include "libtier/base/atomic.h"

#define PAGES_PER_BLOCK 64u
#define PAGE_BYTES 1024u
#define SLICE 4096u /* accesses of one kind before the next kind has its turn */
#define SLICES 16u
#define ACCESSES (3 * SLICES * SLICE)
#define CACHED_PAGES 16u
#define LIST_MAX 64u
#define CLIENTS 2u
#define THROUGHPUT_NS (300 * NS_PER_MS)

/* The pages of one round, chosen beforehand, and what must be in them. */
struct picks {
	struct tier_page *page;
	uint64_t *word;
	uint64_t random;
	uint64_t zero; /* 0, but the compiler does not know */
	uint64_t bad, failed;
};

static int picks_init(struct picks *k)
{
	*k = (struct picks){ .random = UINT64_C(0xa0761d6478bd642f) };
	k->page = calloc(ACCESSES, sizeof(*k->page));
	k->word = calloc(ACCESSES, sizeof(*k->word));
	__asm__ volatile("" : "+r"(k->zero));
	return k->page && k->word ? 0 : -ENOMEM;
}

static void picks_fini(struct picks *k)
{
	free(k->page);
	free(k->word);
}

/* Choose among the first `among` blocks. */
static void pick(struct picks *k, const struct pool *p, uint32_t among)
{
	for (uint32_t i = 0; i < ACCESSES; i++) {
		uint32_t block = bench_random_below(&k->random, among);
		uint32_t page = bench_random_below(&k->random, p->spec.pages_per_block);

		k->page[i] = (struct tier_page){ .block = p->block[block], .page = page };
		k->word[i] = pool_word(block, page);
	}
}

/* Nanoseconds for `count` accesses from `first` on: one page after the other. */
static double run_single(struct pool *p, struct picks *k, uint32_t first, uint32_t count)
{
	uint64_t from = time_now_ns(), value = 0, bad = 0;

	for (uint32_t i = first; i < first + count; i++) {
		const struct tier_page *at = &k->page[i + (value & k->zero)];
		struct tier_lease lease;

		if (tier_lease_page(p->r, p->c, at->block, at->page, 0, &lease)) {
			k->failed++;
			continue;
		}
		value = *(const uint64_t *)lease.data;
		bad |= value ^ k->word[i];
		tier_release(p->r, &lease);
	}
	k->bad += bad != 0;
	return (double)(time_now_ns() - from);
}

/* The same in lists of `list`. */
static double run_lists(struct pool *p, struct picks *k, uint32_t first, uint32_t list)
{
	uint64_t from = time_now_ns(), value = 0, bad = 0;
	struct tier_lease lease[LIST_MAX];

	for (uint32_t i = first; i < first + SLICE; i += list) {
		int64_t n = tier_lease_pages(p->r, p->c, &k->page[i + (value & k->zero)], list, 0,
					     lease);

		if (n != list) {
			k->failed += list;
			if (n > 0)
				tier_release_many(p->r, lease, list);
			continue;
		}
		for (uint32_t l = 0; l < list; l++) {
			value = *(const uint64_t *)lease[l].data;
			bad |= value ^ k->word[i + l];
		}
		tier_release_many(p->r, lease, list);
	}
	k->bad += bad != 0;
	return (double)(time_now_ns() - from);
}

/* ---- against the chase --------------------------------------------------------------------- */

struct latencies {
	struct sample single, list16, list64, cached, chase, chase_cached;
};

/*
 * One round: slices of each kind in turn, so that whatever else goes on in the machine meets all of
 * them. Each slice has pages of its own.
 */
static void run_round(struct pool *p, struct picks *k, struct chase *c, struct latencies *to)
{
	double single = 0, list16 = 0, list64 = 0, chase = 0;

	pick(k, p, p->spec.blocks);
	for (uint32_t i = 0; i < SLICES; i++) {
		chase += chase_run(c, SLICE) * SLICE;
		single += run_single(p, k, (3 * i) * SLICE, SLICE);
		list16 += run_lists(p, k, (3 * i + 1) * SLICE, 16);
		list64 += run_lists(p, k, (3 * i + 2) * SLICE, 64);
	}
	sample_add(&to->chase, chase / (SLICES * SLICE));
	sample_add(&to->single, single / (SLICES * SLICE));
	sample_add(&to->list16, list16 / (SLICES * SLICE));
	sample_add(&to->list64, list64 / (SLICES * SLICE));
}

/* The same few pages over and over. */
static void run_cached(struct pool *p, struct picks *k, struct chase *small, struct latencies *to)
{
	double cached = 0, chase = 0;

	for (uint32_t i = CACHED_PAGES; i < ACCESSES; i++) {
		k->page[i] = k->page[i % CACHED_PAGES];
		k->word[i] = k->word[i % CACHED_PAGES];
	}
	for (uint32_t i = 0; i < SLICES; i++) {
		cached += run_single(p, k, i * SLICE, SLICE);
		chase += chase_run(small, SLICE) * SLICE;
	}
	sample_add(&to->cached, cached / (SLICES * SLICE));
	sample_add(&to->chase_cached, chase / (SLICES * SLICE));
}

static int measure_latencies(struct bench *b, struct pool *p, struct chase *c,
			     struct latencies *out)
{
	struct chase small;
	struct picks k;
	int error = picks_init(&k);

	if (!error)
		error = chase_open(&small, 1 << 20, CACHED_PAGES * 2 + 1, false);
	for (uint32_t round = 0; round < b->rounds + 1 && !error; round++) {
		struct latencies scratch = { 0 }, *to = round ? out : &scratch; /* warm up */

		run_round(p, &k, c, to);
		run_cached(p, &k, &small, to);
	}
	if (!error)
		chase_close(&small);
	if (!error && (k.bad || k.failed)) {
		fprintf(stderr, "lease: %llu rounds with wrong words, %llu leases failed\n",
			(unsigned long long)k.bad, (unsigned long long)k.failed);
		error = -EBADMSG;
	}
	picks_fini(&k);
	return error;
}

static int judge_latencies(struct bench *b, const struct latencies *l, const struct chase *c,
			   const char *size)
{
	char figure[4][BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure rows[] = {
		{ "lease", figure[0], "ns", against, { BENCH_RATIO_AT_MOST, 3.5 } },
		{ "lease", figure[1], "ns/page", against, { BENCH_RATIO_AT_MOST, 0.8 } },
		{ "lease", figure[2], "ns/page", against, { BENCH_RATIO_AT_MOST, 0.8 } },
		{ "lease",
		  figure[3],
		  "ns",
		  "pointer chase, all cached",
		  { BENCH_VALUE_AT_MOST, 40 } },
	};
	const struct sample *values[] = { &l->single, &l->list16, &l->list64, &l->cached };
	int error = 0;

	chase_describe(c, against, sizeof(against));
	snprintf(figure[0], BENCH_TEXT, "one page among %s", size);
	snprintf(figure[1], BENCH_TEXT, "list of 16 among %s", size);
	snprintf(figure[2], BENCH_TEXT, "list of 64 among %s", size);
	snprintf(figure[3], BENCH_TEXT, "one page, all cached, of %s", size);
	for (uint32_t i = 0; i < 4 && !error; i++)
		error = bench_judge(b->results, &rows[i], values[i],
				    i == 3 ? &l->chase_cached : &l->chase);
	return error;
}

/* ---- several clients ----------------------------------------------------------------------- */

struct turn {
	uint64_t round;	  /* the parent's: which round the clients shall run */
	uint64_t clients; /* in this round: clients below this number */
	uint64_t ready[CLIENTS];
	uint64_t done[CLIENTS]; /* last round that the client has run */
	uint64_t accesses[CLIENTS];
};

static void nap(void)
{
	const struct timespec t = { .tv_nsec = 500000 };

	nanosleep(&t, NULL);
}

static uint64_t run_for(struct pool *p, struct picks *k, uint64_t ns)
{
	uint64_t from = time_now_ns(), count = 0;

	while (time_now_ns() - from < ns)
		for (uint32_t i = 0; i < 1024; i++, count++) {
			const struct tier_page *at = &k->page[count % ACCESSES];
			struct tier_lease lease;

			if (tier_lease_page(p->r, p->c, at->block, at->page, 0, &lease))
				return 0;
			k->bad |= *(const uint64_t *)lease.data ^ k->word[count % ACCESSES];
			tier_release(p->r, &lease);
		}
	return count;
}

static int client(const struct pool *parent, struct turn *turn, uint32_t number)
{
	struct pool p;
	struct picks k;

	if (picks_init(&k) || pool_attach(&p, parent))
		return 1;
	k.random += number;
	pick(&k, &p, p.spec.blocks);
	atomic_store_release_u64(&turn->ready[number], 1);
	for (uint64_t seen = 0;;) {
		uint64_t round = atomic_load_acquire_u64(&turn->round);

		if (round == UINT64_MAX)
			break;
		if (round == seen) {
			nap();
			continue;
		}
		seen = round;
		if (number < atomic_load_relaxed_u64(&turn->clients))
			turn->accesses[number] = run_for(&p, &k, THROUGHPUT_NS);
		atomic_store_release_u64(&turn->done[number], round);
	}
	pool_detach(&p);
	return k.bad != 0;
}

/* One round with so many clients; accesses a second of all, and the daemon's share of a core. */
static int turn_run(struct pool *p, struct turn *turn, uint32_t clients, struct sample *rate,
		    struct sample *cpu)
{
	uint64_t round = turn->round + 1, used = service_cpu_ns(&p->service), sum = 0;

	atomic_store_relaxed_u64(&turn->clients, clients);
	atomic_store_release_u64(&turn->round, round);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		while (atomic_load_acquire_u64(&turn->done[i]) != round)
			nap();
		if (i < clients && !turn->accesses[i])
			return -EIO;
		sum += i < clients ? turn->accesses[i] : 0;
	}
	used = service_cpu_ns(&p->service) - used;
	sample_add(rate, (double)sum / ((double)THROUGHPUT_NS / 1e9) / 1e6);
	sample_add(cpu, 100.0 * (double)used / (double)THROUGHPUT_NS);
	return 0;
}

static int turns(struct bench *b, struct pool *p, struct turn *turn)
{
	struct sample one = { 0 }, two = { 0 }, cpu_one = { 0 }, cpu = { 0 }, core = { 0 };
	static const struct bench_figure rate = { "lease",
						  "leases by 2 client processes",
						  "M/s",
						  "1 client process",
						  { BENCH_RATIO_AT_LEAST, 1.5 } };
	static const struct bench_figure used = { "lease",
						  "daemon's CPU at 100% hits, 2 clients",
						  "% core",
						  "a core",
						  { BENCH_VALUE_AT_MOST, 1 } };
	int error = 0;

	for (uint32_t i = 0; i < CLIENTS; i++)
		while (!atomic_load_acquire_u64(&turn->ready[i])) {
			if (waitpid(-1, NULL, WNOHANG) > 0)
				return -ECHILD;
			nap();
		}
	for (uint32_t round = 0; round < b->rounds && !error; round++) {
		error = turn_run(p, turn, 1, &one, &cpu_one);
		if (!error)
			error = turn_run(p, turn, CLIENTS, &two, &cpu);
		sample_add(&core, 100);
	}
	if (!error)
		error = bench_judge(b->results, &rate, &two, &one);
	if (!error)
		error = bench_judge(b->results, &used, &cpu, &core);
	return error;
}

static int measure_clients(struct bench *b, struct pool *p)
{
	struct turn *turn = mmap(NULL, sizeof(*turn), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[CLIENTS] = { 0 };
	int error = 0, status;

	if (turn == MAP_FAILED)
		return -ENOMEM;
	fflush(NULL);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(client(p, turn, i));
		}
		if (pid[i] < 0)
			error = -errno;
	}
	if (!error)
		error = turns(b, p, turn);
	atomic_store_release_u64(&turn->round, UINT64_MAX);
	for (uint32_t i = 0; i < CLIENTS; i++)
		if (pid[i] > 0 && waitpid(pid[i], &status, 0) == pid[i] && status && !error)
			error = -EBADMSG;
	munmap(turn, sizeof(*turn));
	return error ? bench_failed("lease: clients", error) : 0;
}

/* ---- a size -------------------------------------------------------------------------------- */

/* Lines that random leases touch: a page's first, descriptors (two a line), blocks. */
static uint64_t lines_touched(uint64_t pages)
{
	return pages + pages / 2 + pages / PAGES_PER_BLOCK;
}

/* Every page once: what the kernel maps is mapped before it is looked at, and before the clock. */
static int touch_all(struct pool *p)
{
	for (uint32_t i = 0; i < p->spec.blocks; i++) {
		struct tier_page page[PAGES_PER_BLOCK];
		struct tier_lease lease[PAGES_PER_BLOCK];

		for (uint32_t k = 0; k < PAGES_PER_BLOCK; k++)
			page[k] = (struct tier_page){ .block = p->block[i], .page = k };
		if (tier_lease_pages(p->r, p->c, page, PAGES_PER_BLOCK, 0, lease) !=
		    PAGES_PER_BLOCK)
			return bench_failed("lease: a page is not there", -ENODATA);
		for (uint32_t k = 0; k < PAGES_PER_BLOCK; k++)
			if (*(const uint64_t *)lease[k].data != pool_word(i, k))
				return bench_failed("lease: a page is not the right one", -EBADMSG);
		tier_release_many(p->r, lease, PAGES_PER_BLOCK);
	}
	return 0;
}

static int bench_size(struct bench *b, uint32_t pages, const char *size, bool clients)
{
	const struct pool_spec spec = {
		.name = "lease",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.page_align = PAGE_BYTES,
		.blocks = pages / PAGES_PER_BLOCK,
	};
	struct latencies l = { 0 };
	struct chase c = { 0 };
	struct pool p;
	uint64_t index = 0;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = touch_all(&p);
	if (!error)
		error = pool_index_bytes(&p, &index);
	if (!error)
		error = chase_open(&c, (uint64_t)pages * PAGE_BYTES + index, lines_touched(pages),
				   huge_share("/memfd:tier-cxl-") > 0.5);
	if (!error) {
		bench_say("lease: %u pages of %u bytes, 64 a block; mapped by huge pages: %.0f%% "
			  "of the pages' memory, %.0f%% of the index, %.0f%% of the chase's",
			  pages, PAGE_BYTES, 100 * huge_share("/memfd:tier-cxl-"),
			  100 * huge_share("/memfd:tier-index-"), 100 * c.huge);
		error = measure_latencies(b, &p, &c, &l);
	}
	if (!error)
		error = judge_latencies(b, &l, &c, size);
	chase_close(&c);
	if (!error && clients)
		error = measure_clients(b, &p);
	pool_close(&p);
	return error;
}

int bench_lease(struct bench *b)
{
	static const struct bench_figure large = {
		"lease", "one page among 10^7", "ns", "pointer chase", { BENCH_RATIO_AT_MOST, 3.5 }
	};
	/* Pages and peer lie in memory together; some must be left. */
	const uint64_t need = UINT64_C(2) * 10000000 * (PAGE_BYTES + 32) + (UINT64_C(3) << 29);
	int error = bench_size(b, 1000000, "10^6", true);

	if (error || b->quick)
		return error;
	if (bench_memory_available() < need)
		return bench_judge_missing(b->results, &large, "needs 21 GiB of free memory");
	return bench_size(b, 10000000, "10^7", false);
}
