/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator does to a context of 10^6 pages in use, as its clients see it: another eviction
 * policy, swapped while a client puts and reads; one more client that attaches, in a process of one
 * thread and, apart, in one of two (membarrier's registration waits for the other's processor
 * there); and the context opened again by who has it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "libtier/base/time.h"

#define PAGES_PER_BLOCK 16u
#define PAGE_BYTES 4096u
#define WINDOW_NS (400 * NS_PER_MS)
#define ATTACHES 100u /* of a round */

struct live {
	struct pool *p;
	tier *operator;
	uint32_t round, next; /* block that is put next */
	uint64_t bad;         /* answers that were an error or the wrong bytes */
	uint8_t *data;
	struct sample swap, without, alone, beside, again;
};

/* Puts a block and reads one; the longest of both, until `until`. */
static uint64_t ask_some(struct live *l, uint64_t until)
{
	uint64_t longest = 0;

	while (time_now_ns() < until) {
		uint32_t i = l->next++, old = i * 2654435761u % l->p->spec.blocks;
		uint64_t from = time_now_ns(), took;
		struct tier_lease lease;
		tier_key key;

		pool_key(&key, l->p->spec.blocks + i % l->p->spec.blocks);
		l->bad += tier_put_copy(l->p->c, &key, 1, l->data, NULL) < 0;
		pool_key(&key, old);
		if (!tier_lease_key(l->p->r, l->p->c, &key, 0, 0, &lease)) { /* else it has left */
			l->bad += *(const uint64_t *)lease.data != pool_word(old, 0);
			tier_release(l->p->r, &lease);
		}
		took = time_now_ns() - from;
		longest = took > longest ? took : longest;
	}
	return longest;
}

static void *swap(void *arg)
{
	const struct timespec middle = { 0, WINDOW_NS / 4 };
	struct live *l = arg;
	char *text = NULL;
	int error;

	nanosleep(&middle, NULL);
	error = tier_admin(l->operator, "policy-set",
			   l->round % 2 ? "{\"context\":\"live\",\"policy\":\"reuse\"}"
					: "{\"context\":\"live\",\"policy\":\"lru\"}", &text);
	free(text);
	return error ? l : NULL;
}

static int swap_round(struct live *l)
{
	uint64_t without = ask_some(l, time_now_ns() + WINDOW_NS), with;
	void *failed;
	pthread_t t;

	if (pthread_create(&t, NULL, swap, l))
		return -EAGAIN;
	with = ask_some(l, time_now_ns() + WINDOW_NS);
	pthread_join(t, &failed);
	sample_add(&l->swap, (double)with / 1e6);
	sample_add(&l->without, (double)without / 1e6);
	return failed ? -EIO : 0;
}

/* ---- attaching ------------------------------------------------------------------------------ */

static void *idle(void *arg)
{
	pause();
	return arg;
}

/* In a child: ns from connect to the first lease, of what was put last; < 0 = an error. */
static int64_t first_lease(const struct live *l)
{
	uint64_t begin = time_now_ns();
	struct tier_lease lease;
	struct pool p;
	tier_key key;
	int error = pool_join(&p, l->p);

	pool_key(&key, p.spec.blocks + (l->next - 1) % p.spec.blocks);
	if (!error)
		error = tier_lease_key(p.r, p.c, &key, 0, 0, &lease);
	if (error)
		return error;
	begin = time_now_ns() - begin;
	tier_release(p.r, &lease);
	return (int64_t)begin;
}

static void child(const struct live *l, bool two, int out)
{
	int64_t ns = -EAGAIN;
	pthread_t t;

	if (!two || !pthread_create(&t, NULL, idle, NULL))
		ns = first_lease(l);
	_exit(write(out, &ns, sizeof(ns)) != sizeof(ns));
}

/* One process after the other; their p99 in us. */
static int attach_round(struct live *l, bool two, struct sample *to)
{
	double us[ATTACHES];
	int64_t ns = 0;
	int end[2];

	if (pipe(end))
		return -errno;
	for (uint32_t i = 0; i < ATTACHES && ns >= 0; i++) {
		pid_t pid = fork();

		if (!pid)
			child(l, two, end[1]);
		if (pid < 0 || waitpid(pid, NULL, 0) < 0 ||
		    read(end[0], &ns, sizeof(ns)) != sizeof(ns))
			ns = -ECHILD;
		us[i] = (double)ns / 1e3;
	}
	close(end[0]);
	close(end[1]);
	if (ns >= 0)
		sample_add(to, sample_quantile(us, ATTACHES, 0.99));
	return ns < 0 ? (int)ns : 0;
}

static int again_round(struct live *l)
{
	double us[ATTACHES];
	int error = 0;

	for (uint32_t i = 0; i < ATTACHES && !error; i++) {
		uint64_t from = time_now_ns();
		tier_context *c;

		error = tier_context_open(l->p->t, l->p->spec.name, NULL, &c);
		us[i] = (double)(time_now_ns() - from) / 1e3;
		if (!error)
			tier_context_close(c);
	}
	if (!error)
		sample_add(&l->again, sample_quantile(us, ATTACHES, 0.99));
	return error;
}

static int tell(struct live *l, struct bench_results *results)
{
	const struct bench_figure swap = { "live", "longest answer around a swap of policies",
					   "ms", "as long without", { BENCH_RATIO_AT_MOST, 2 } };
	const struct bench_figure bad = { "live", "answers lost or wrong around swaps", "answers",
					  "none", { BENCH_VALUE_AT_MOST, 0 } };
	const struct bench_figure alone = { "live", "connect to first lease, one thread, p99",
					    "us", "beside another thread",
					    { BENCH_VALUE_AT_MOST, 1000 } };
	const struct bench_figure again = { "live", "open again what is mapped, p99", "us",
					    "connect to first lease",
					    { BENCH_VALUE_AT_MOST, 100 } };
	int error = bench_judge(results, &swap, &l->swap, &l->without);

	if (!error)
		error = bench_judge_exact(results, &bad, (double)l->bad, 0);
	if (!error)
		error = bench_judge(results, &alone, &l->alone, &l->beside);
	return error ? error : bench_judge(results, &again, &l->again, &l->alone);
}

static int measure(struct bench *b, struct live *l)
{
	const struct tier_connect_options options = { .size = sizeof(options),
						      .socket = l->p->service.socket,
						      .name = "operator",
						      .staging_bytes = 1 << 20 };
	int error = tier_connect(&l->operator, &options);

	l->data = calloc(PAGES_PER_BLOCK, PAGE_BYTES);
	if (!error && !l->data)
		error = -ENOMEM;
	for (; l->round < b->rounds && !error; l->round++) {
		error = swap_round(l);
		if (!error)
			error = attach_round(l, false, &l->alone);
		if (!error)
			error = attach_round(l, true, &l->beside);
		if (!error)
			error = again_round(l);
	}
	tier_close(l->operator);
	free(l->data);
	return error ? bench_failed("live", error) : tell(l, b->results);
}

int bench_live(struct bench *b)
{
	const uint32_t blocks = b->quick ? 6250 : 62500;
	const struct pool_spec spec = {
		.name = "live",
		.pages_per_block = PAGES_PER_BLOCK,
		.page_bytes = PAGE_BYTES,
		.blocks = blocks,
		.blocks_max = 4ull * blocks,
	};
	struct pool p;
	struct live l = { .p = &p };
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = measure(b, &l);
	pool_close(&p);
	return error;
}
