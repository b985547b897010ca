/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many clients, each a process with a connection of its own, that ask as fast as they are answered:
 * of ten requests nine fetch pages that are there and one puts a block, with a leased selection
 * before each. On few cores clients wait for a processor, so beside what they see stands what the
 * daemon needs for a request: its processor time.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "libtier/base/atomic.h"
#include "libtier/base/hist.h"
#include "libtier/base/time.h"
#include "libtier/base/units.h"

#define CLIENTS_MAX 255u
#define BLOCKS 1000u
#define PAGES_PER_BLOCK 4u /* small blocks: 1 */
#define PAGE_BYTES 16384u
#define SMALL_BYTES 512u /* of a page, where there are many */
#define SMALL_CLIENTS 4u
#define SMALL_MORE 200000u /* blocks that clients put */
#define FETCH_PAGES 4u
#define LEASE_PAGES 16u
#define PUT_EVERY 10u
#define PUT_KEYS (1u << 24) /* keys of what clients put begin here */
#define RUN_NS (500 * NS_PER_MS)
#define ATTACH_NS (60 * NS_PER_S)

enum op { OP_LEASE, OP_FETCH, OP_PUT, OPS };
static const char *const op_name[OPS] = { "lease of 16", "fetch", "put" };

struct shared {
	uint32_t ready, stop; /* atomic */
	int attach[2], go[2]; /* pipes: a byte for the next who may attach, for each who may ask */
	uint64_t requests[CLIENTS_MAX];
	int error[CLIENTS_MAX];
	pid_t pid[CLIENTS_MAX];
	struct hist hist[CLIENTS_MAX][OPS];
};

struct outcome {
	double rate;	   /* requests a second */
	double service_us; /* of the daemon's processor time, a request */
	struct hist hist[OPS];
};

/* ---- a client ------------------------------------------------------------------------------ */

static int lease_some(struct pool *p, uint64_t *random)
{
	struct tier_page page[LEASE_PAGES];
	struct tier_lease lease[LEASE_PAGES];
	int n;

	for (uint32_t i = 0; i < LEASE_PAGES; i++)
		page[i] = (struct tier_page){
			.block = p->block[bench_random_below(random, p->spec.blocks)],
			.page = bench_random_below(random, p->spec.pages_per_block),
		};
	n = tier_lease_pages(p->r, p->c, page, LEASE_PAGES, 0, lease);
	if (n >= 0)
		tier_release_many(p->r, lease, LEASE_PAGES);
	return n < 0 ? n : 0;
}

static int fetch_some(struct pool *p, uint64_t *random)
{
	static const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	struct tier_page page[FETCH_PAGES];
	int64_t n;

	for (uint32_t i = 0; i < FETCH_PAGES; i++)
		page[i] = (struct tier_page){
			.block = p->block[bench_random_below(random, p->spec.blocks)],
			.page = bench_random_below(random, p->spec.pages_per_block),
		};
	n = tier_fetch_pages(p->c, page, FETCH_PAGES, &ask);
	return n < 0 ? (int)n : n == FETCH_PAGES ? 0 : -ENODATA;
}

/* A block that nobody has put before: it makes an older one of these leave. */
static int put_one(struct pool *p, uint32_t number, uint64_t *random)
{
	uint8_t bytes[PAGES_PER_BLOCK * PAGE_BYTES] = { 0 };
	const struct tier_put_options options = { .size = sizeof(options),
						  .priority = TIER_PRIORITY_LOW };
	tier_key key;
	int64_t n;

	memcpy(bytes, random, sizeof(*random));
	pool_key(&key, PUT_KEYS + number);
	n = tier_put_copy(p->c, &key, 1, bytes, &options);
	return n < 0 ? (int)n : 0;
}

static int ask(struct pool *p, struct shared *s, uint32_t i)
{
	uint64_t random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
	int error = 0;

	for (uint32_t n = 0; !error && !atomic_load_acquire_u32(&s->stop); n++) {
		enum op op = n % PUT_EVERY ? OP_FETCH : OP_PUT;
		uint64_t from = time_now_ns(), then;

		error = lease_some(p, &random);
		then = time_now_ns();
		hist_record(&s->hist[i][OP_LEASE], then - from);
		if (!error)
			error = op == OP_FETCH ? fetch_some(p, &random)
					       : put_one(p, i << 16 | n / PUT_EVERY, &random);
		hist_record(&s->hist[i][op], time_now_ns() - then);
		s->requests[i]++;
	}
	return error;
}

static int client(const struct pool *from, struct shared *s, uint32_t i)
{
	struct pool p;
	char token;
	int error;

	if (read(s->attach[0], &token, 1) != 1)
		return 1;
	error = pool_join(&p, from);
	__atomic_fetch_add(&s->ready, 1, __ATOMIC_ACQ_REL);
	if (!error && read(s->go[0], &token, 1) == 1)
		error = ask(&p, s, i);
	s->error[i] = error;
	return error != 0;
}

/* ---- a run --------------------------------------------------------------------------------- */

/* One attaches after the other. */
static int attach_all(struct shared *s, uint32_t clients)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint64_t until = time_now_ns() + ATTACH_NS;

	for (uint32_t i = 0; i < clients; i++) {
		if (write(s->attach[1], "", 1) != 1)
			return -EIO;
		while (atomic_load_acquire_u32(&s->ready) <= i)
			if (time_now_ns() > until)
				return -ETIMEDOUT;
			else
				nanosleep(&pause, NULL);
	}
	return 0;
}

static void sum_up(const struct shared *s, uint32_t clients, uint64_t ns, uint64_t cpu_ns,
		   struct outcome *o)
{
	uint64_t requests = 0;

	for (uint32_t op = 0; op < OPS; op++)
		hist_init(&o->hist[op]);
	for (uint32_t i = 0; i < clients; i++) {
		requests += s->requests[i];
		for (uint32_t op = 0; op < OPS; op++)
			hist_merge(&o->hist[op], &s->hist[i][op]);
	}
	o->rate = (double)requests / ((double)ns / 1e9);
	o->service_us = requests ? (double)cpu_ns / (double)requests / 1e3 : 0;
}

static int run_timed(struct pool *p, struct shared *s, uint32_t clients, struct outcome *o)
{
	const struct timespec run = time_to_timespec(RUN_NS);
	static const char tokens[CLIENTS_MAX];
	int error = attach_all(s, clients);
	uint64_t from = time_now_ns(), cpu = service_cpu_ns(&p->service);

	if (write(s->go[1], tokens, clients) != (ssize_t)clients)
		error = error ? error : -EIO;
	if (!error)
		nanosleep(&run, NULL);
	cpu = service_cpu_ns(&p->service) - cpu;
	from = time_now_ns() - from;
	atomic_store_release_u32(&s->stop, 1);
	for (uint32_t i = 0; i < clients; i++) {
		waitpid(s->pid[i], NULL, 0);
		s->pid[i] = 0;
	}
	for (uint32_t i = 0; i < clients && !error; i++)
		error = s->error[i];
	sum_up(s, clients, from, cpu, o);
	return error ? bench_failed("scale: a client", error) : 0;
}

static int run(struct pool *p, uint32_t clients, struct outcome *o)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int error = 0;

	if (s == MAP_FAILED)
		return -ENOMEM;
	if (pipe(s->attach) || pipe(s->go))
		return -errno;
	for (uint32_t i = 0; i < clients; i++)
		for (uint32_t op = 0; op < OPS; op++)
			hist_init(&s->hist[i][op]);
	fflush(NULL);
	for (uint32_t i = 0; i < clients && !error; i++) {
		s->pid[i] = fork();
		if (s->pid[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(client(p, s, i));
		}
		if (s->pid[i] < 0)
			error = -errno;
	}
	if (!error)
		error = run_timed(p, s, clients, o);
	else
		bench_failed("scale: fork", error);
	for (uint32_t i = 0; i < clients && error; i++)
		if (s->pid[i] > 0 && kill(s->pid[i], SIGKILL) == 0)
			waitpid(s->pid[i], NULL, 0);
	for (uint32_t i = 0; i < 2; i++) {
		close(s->attach[i]);
		close(s->go[i]);
	}
	munmap(s, sizeof(*s));
	return error;
}

/* ---- what is told -------------------------------------------------------------------------- */

struct axis {
	const char *name; /* what there are so many of */
	double x;
	const char *text;
};

static int points(struct bench *b, const struct axis *a, const struct outcome *o)
{
	const struct bench_plot rate = { "scale", a->name, "K requests/s" },
				cpu = { "scale", a->name, "daemon, us a request" },
				took = { "scale", a->name, "us" };
	int error = bench_point(b->results, &rate, "all", a->x, o->rate / 1e3);

	if (!error)
		error = bench_point(b->results, &cpu, "processor time", a->x, o->service_us);
	for (uint32_t op = 0; op < OPS && !error; op++)
		error = bench_points_of(b->results, &took, op_name[op], a->x, &o->hist[op], 1e3);
	return error;
}

static int note_curve(struct bench *b, const struct axis *a, const struct outcome *o)
{
	char text[256];
	size_t at = 0;
	int error;

	for (uint32_t op = 0; op < OPS; op++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %.3g, %.3g, %.3g",
				       op ? "; " : "", op_name[op],
				       (double)hist_quantile(&o->hist[op], 0.5) / 1e3,
				       (double)hist_quantile(&o->hist[op], 0.99) / 1e3,
				       (double)hist_quantile(&o->hist[op], 0.999) / 1e3);
	error = bench_note(b->results, "scale",
			   "%4s %s: %.1f K requests/s, the daemon %.2f us a request; us at "
			   "p50, p99, p99.9: %s",
			   a->text, a->name, o->rate / 1e3, o->service_us, text);
	return error ? error : points(b, a, o);
}

static int curve(struct bench *b, struct pool *p)
{
	static const uint32_t all[] = { 1, 2, 4, 8, 16, 32, 64, 128, CLIENTS_MAX };
	double least_us = 0;
	int error = 0;

	for (uint32_t i = 0; i < sizeof(all) / sizeof(*all) && !error; i++) {
		char text[UNITS_TEXT_BYTES];
		const struct axis a = { "clients", all[i], text };
		struct outcome o;

		if (b->quick && i % 2)
			continue;
		snprintf(text, sizeof(text), "%u", all[i]);
		error = run(p, all[i], &o);
		if (!error)
			error = note_curve(b, &a, &o);
		if (!error && (!least_us || o.service_us < least_us))
			least_us = o.service_us;
	}
	return error ? error
		     : bench_note(b->results, "scale",
				  "the core is one thread: it answers %.0f K requests/s of this "
				  "mix at most; leases never reach it",
				  1e3 / least_us);
}

static int judge(struct bench *b, struct pool *p)
{
	static const struct bench_figure service = { "scale",
						     "daemon's time a request, 255 clients",
						     "us",
						     "16 clients",
						     { BENCH_RATIO_AT_MOST, 1.25 } };
	static const struct bench_figure rate = { "scale",
						  "requests, 255 clients",
						  "K/s",
						  "16 clients",
						  { BENCH_RATIO_AT_LEAST, 0.8 } };
	struct sample service_few = { 0 }, service_many = { 0 }, few = { 0 }, many = { 0 };
	int error = 0;

	for (uint32_t round = 0; round < b->rounds && !error; round++) {
		struct outcome o;

		error = run(p, 16, &o);
		sample_add(&service_few, o.service_us);
		sample_add(&few, o.rate / 1e3);
		if (!error)
			error = run(p, CLIENTS_MAX, &o);
		sample_add(&service_many, o.service_us);
		sample_add(&many, o.rate / 1e3);
	}
	if (!error)
		error = bench_judge(b->results, &service, &service_many, &service_few);
	return error ? error : bench_judge(b->results, &rate, &many, &few);
}

/* The same by how many blocks there are: small ones, or there were no room for them. */
static int by_blocks(struct bench *b)
{
	static const char *const size[] = { "10^4", "10^5", "10^6", "10^7" };
	static const char *const set[] = { "index.size=6GiB", NULL };
	uint32_t blocks = 10000;
	int error = 0;

	for (uint32_t i = 0; i < (b->quick ? 3 : 4) && !error; i++, blocks *= 10) {
		const struct axis a = { "blocks", blocks, size[i] };
		const struct pool_spec spec = { .name = "scale",
						.pages_per_block = 1,
						.page_bytes = SMALL_BYTES,
						.page_align = SMALL_BYTES,
						.blocks = blocks,
						.blocks_max = blocks + SMALL_MORE,
						.set = set };
		struct outcome o;
		struct pool p;

		if (bench_memory_available() < (uint64_t)blocks * 1000)
			return bench_note(b->results, "scale",
					  "%s blocks: not run, for want of memory", size[i]);
		error = pool_open(&p, b, &spec);
		if (error)
			return error;
		error = run(&p, SMALL_CLIENTS, &o);
		if (!error)
			error = note_curve(b, &a, &o);
		pool_close(&p);
	}
	return error;
}

int bench_scale(struct bench *b)
{
	const struct pool_spec spec = { .name = "scale",
					.pages_per_block = PAGES_PER_BLOCK,
					.page_bytes = PAGE_BYTES,
					.blocks = BLOCKS,
					.blocks_max = 4 * BLOCKS,
					.cxl_bytes = 192u << 20 };
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = curve(b, &p);
	if (!error)
		error = judge(b, &p);
	pool_close(&p);
	return error ? error : by_blocks(b);
}
