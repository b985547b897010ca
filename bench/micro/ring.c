/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to ask: the round trip of a request that needs no work (a fetch of a page that is
 * there) with the daemon awake, beside two processes that pass a word to and fro; what a trace
 * adds to it; the same with both asleep, beside two that wake each other by a futex; and what an
 * idle daemon costs.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "libtier/base/atomic.h"
#include "libtier/base/hist.h"

#define TRIPS 20000u
#define TRIP_NS_MAX (5 * NS_PER_S)
#define IDLE_NS (500 * NS_PER_MS)
#define WAKES 200u
#define ASLEEP_NS (4 * NS_PER_MS) /* after so long without work both sides sleep */

/* The median round trip of so many, in ns; < 0 = errno. */
static double ring_trips(struct bench *b, struct pool *p, struct hist *h)
{
	const struct tier_page page = { .block = p->block[0], .page = 0 };
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = 1 };

	hist_init(h);
	for (uint32_t i = 0; i < TRIPS; i++) {
		struct tier_completion got;
		uint64_t from = tick_now(), give_up = time_now_ns() + TRIP_NS_MAX;
		int n = tier_fetch_pages_start(p->c, &page, 1, &ask);

		if (n)
			return n;
		while ((n = tier_poll(p->t, &got, 1)) == 0)
			if (time_now_ns() > give_up)
				return -ETIMEDOUT;
		if (n < 0 || got.result || got.value != 1)
			return n < 0 ? n : -EBADMSG;
		/* In tenths, for the histogram is of whole numbers. */
		hist_record(h, (uint64_t)(10 * tick_ns(&b->tick, from, tick_now())));
	}
	return (double)hist_quantile(h, 0.5) / 10;
}

/* ---- the peer ------------------------------------------------------------------------------ */

struct word {
	uint64_t value;
	uint64_t room[7];
};

/* Answers odd with even until it is told to end. */
static int word_echo(void *page)
{
	struct word *w = page;

	for (;;) {
		uint64_t value = atomic_load_acquire_u64(&w->value);

		if (value == UINT64_MAX)
			return 0;
		if (value & 1)
			atomic_store_release_u64(&w->value, value + 1);
		else
			cpu_relax();
	}
}

static double word_trips(struct bench *b, struct word *w, struct hist *h)
{
	uint64_t value = 0;

	hist_init(h);
	for (uint32_t i = 0; i < TRIPS; i++) {
		uint64_t from = tick_now();

		atomic_store_release_u64(&w->value, value + 1);
		value += 2;
		while (atomic_load_acquire_u64(&w->value) != value)
			cpu_relax();
		hist_record(h, (uint64_t)(10 * tick_ns(&b->tick, from, tick_now())));
	}
	atomic_store_release_u64(&w->value, 0);
	return (double)hist_quantile(h, 0.5) / 10;
}

/* A page that a child shares, which runs `echo` on it and ends with us. NULL: there is none. */
static void *echo_start(int (*echo)(void *), pid_t *pid)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return NULL;
	fflush(NULL);
	*pid = fork();
	if (*pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(echo(page));
	}
	if (*pid > 0)
		return page;
	munmap(page, 4096);
	return NULL;
}

/* It has been told to end. */
static void echo_end(void *page, pid_t pid)
{
	waitpid(pid, NULL, 0);
	munmap(page, 4096);
}

/* One round of the peer, in a child that ends with it: the daemon needs the other core. */
static double word_round(struct bench *b, struct hist *h)
{
	pid_t pid;
	struct word *w = echo_start(word_echo, &pid);
	double out;

	if (!w)
		return -ENOMEM;
	out = word_trips(b, w, h);
	atomic_store_release_u64(&w->value, UINT64_MAX);
	echo_end(w, pid);
	return out;
}

/* ---- asleep -------------------------------------------------------------------------------- */

/* word[0]: what is asked, word[1]: the answer; 0 ends it. */
static int futex_echo(void *page)
{
	uint32_t *word = page, last = 0;

	while ((last = process_wait(&word[0], last)))
		process_set(&word[1], last);
	return 0;
}

static void futex_wakes(uint32_t *word, struct hist *h)
{
	const struct timespec pause = time_to_timespec(ASLEEP_NS);

	for (uint32_t i = 1; i <= WAKES; i++) {
		uint64_t from;

		nanosleep(&pause, NULL);
		from = time_now_ns();
		process_set(&word[0], i);
		process_wait(&word[1], i - 1);
		hist_record(h, time_now_ns() - from);
	}
}

static int futex_round(struct hist *h)
{
	pid_t pid;
	uint32_t *word = echo_start(futex_echo, &pid);

	if (!word)
		return -ENOMEM;
	futex_wakes(word, h);
	process_set(&word[0], 0);
	echo_end(word, pid);
	return 0;
}

static int ring_wakes(struct pool *p, struct hist *h)
{
	const struct tier_page page = { .block = p->block[0], .page = 0 };
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .user_data = 1 };
	const struct timespec pause = time_to_timespec(ASLEEP_NS);

	for (uint32_t i = 0; i < WAKES; i++) {
		struct tier_completion got;
		uint64_t from;
		int n;

		nanosleep(&pause, NULL);
		from = time_now_ns();
		n = tier_fetch_pages_start(p->c, &page, 1, &ask);
		if (!n)
			n = tier_wait(p->t, &got, 1, 1, TRIP_NS_MAX);
		hist_record(h, time_now_ns() - from);
		if (n != 1 || got.result || got.value != 1)
			return n < 0 ? n : -EBADMSG;
	}
	return 0;
}

/* What sleepers cost each other, the daemon's work included. */
static int wakes(struct bench *b, struct pool *p, struct hist *h)
{
	static const struct {
		double quantile;
		struct bench_figure figure;
	} rows[] = {
#define ROW(q, text) \
	{ q, { "ring", "round trip, both asleep, " text, "us", \
	       "two processes that wake each other by a futex", { BENCH_RATIO_AT_MOST, 1.2 } } }
		ROW(0.5, "p50"),
		ROW(0.99, "p99"),
#undef ROW
	};
	struct sample ours[2] = { 0 }, theirs[2] = { 0 };
	int error = 0;

	for (uint32_t round = 0; round < b->rounds && !error; round++) {
		hist_init(h);
		error = ring_wakes(p, h);
		for (uint32_t i = 0; i < 2; i++)
			sample_add(&ours[i], (double)hist_quantile(h, rows[i].quantile) / 1e3);
		hist_init(h);
		if (!error)
			error = futex_round(h);
		for (uint32_t i = 0; i < 2; i++)
			sample_add(&theirs[i], (double)hist_quantile(h, rows[i].quantile) / 1e3);
	}
	if (error)
		return bench_failed("ring: asleep", error);
	for (uint32_t i = 0; i < 2 && !error; i++)
		error = bench_judge(b->results, &rows[i].figure, &ours[i], &theirs[i]);
	return error;
}

/* ---- idle ---------------------------------------------------------------------------------- */

static int idle(struct bench *b, struct pool *p)
{
	static const struct bench_figure figure = { "ring",
						    "idle daemon, a client connected",
						    "% core",
						    "a core",
						    { BENCH_VALUE_AT_MOST, 1 } };
	const struct timespec pause = time_to_timespec(IDLE_NS);
	struct sample used = { 0 }, core = { 0 };

	nanosleep(&pause, NULL);
	for (uint32_t round = 0; round < b->rounds; round++) {
		uint64_t cpu = service_cpu_ns(&p->service), from = time_now_ns();

		nanosleep(&pause, NULL);
		cpu = service_cpu_ns(&p->service) - cpu;
		sample_add(&used, 100.0 * (double)cpu / (double)(time_now_ns() - from));
		sample_add(&core, 100);
	}
	return bench_judge(b->results, &figure, &used, &core);
}

/* A client that waits for what does not come: its processor time, all of which is polling. */
static int idle_waiter(struct bench *b, struct pool *p)
{
	static const struct bench_figure figure = { "ring",
						    "a client that waits for nothing",
						    "% core",
						    "spinning",
						    { BENCH_RATIO_AT_MOST, 0.1 } };
	struct sample used = { 0 }, core = { 0 };
	struct tier_completion got;

	for (uint32_t round = 0; round < b->rounds; round++) {
		uint64_t cpu = process_cpu_ns(getpid()), from = time_now_ns();
		int n = tier_wait(p->t, &got, 1, 1, IDLE_NS);

		if (n)
			return bench_failed("ring: tier_wait", n < 0 ? n : -EBADMSG);
		cpu = process_cpu_ns(getpid()) - cpu;
		sample_add(&used, 100.0 * (double)cpu / (double)(time_now_ns() - from));
		sample_add(&core, 100);
	}
	return bench_judge(b->results, &figure, &used, &core);
}

static int trips(struct bench *b, struct pool *p, struct hist *h)
{
	static const struct bench_figure figure = { "ring",
						    "round trip, daemon awake, p50",
						    "ns",
						    "a word to and fro between two processes",
						    { BENCH_VALUE_AT_MOST, 2000 } };
	struct sample ring = { 0 }, word = { 0 };

	for (uint32_t round = 0; round < b->rounds + 1; round++) {
		double ours = ring_trips(b, p, h), peer = ours < 0 ? 0 : word_round(b, h);

		if (ours < 0 || peer < 0)
			return bench_failed("ring", (int)(ours < 0 ? ours : peer));
		if (!round)
			continue; /* warm up */
		sample_add(&ring, ours);
		sample_add(&word, peer);
	}
	return bench_judge(b->results, &figure, &ring, &word);
}

static int trace(struct pool *p, const char *args)
{
	char *reply = NULL;
	int error = tier_admin(p->t, "trace", args, &reply);

	free(reply);
	return error;
}

/* Both by turns, so that what else the machine does meets both. */
static int traced(struct bench *b, struct pool *p, struct hist *h)
{
	static const struct bench_figure figure = { "ring",
						    "round trip while a trace is taken, p50",
						    "ns",
						    "without",
						    { BENCH_RATIO_AT_MOST, 1.03 } };
	struct sample on = { 0 }, off = { 0 };

	for (uint32_t round = 0; round < b->rounds; round++) {
		double without = ring_trips(b, p, h), with;
		int error = without < 0 ? (int)without : trace(p, "{\"seconds\":60}");

		if (error)
			return bench_failed("ring", error);
		with = ring_trips(b, p, h);
		error = with < 0 ? (int)with : trace(p, "{\"end\":true}");
		if (error)
			return bench_failed("ring", error);
		sample_add(&on, with);
		sample_add(&off, without);
	}
	return bench_judge(b->results, &figure, &on, &off);
}

int bench_ring(struct bench *b)
{
	static const struct pool_spec spec = {
		.name = "ring",
		.pages_per_block = 1,
		.page_bytes = 4096,
		.blocks = 16,
	};
	struct hist *h = malloc(sizeof(*h));
	struct pool p;
	int error = h ? pool_open(&p, b, &spec) : -ENOMEM;

	if (!error) {
		error = trips(b, &p, h);
		if (!error)
			error = traced(b, &p, h);
		if (!error)
			error = wakes(b, &p, h);
		if (!error)
			error = idle(b, &p);
		if (!error)
			error = idle_waiter(b, &p);
		pool_close(&p);
	}
	free(h);
	return error;
}
