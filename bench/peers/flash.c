/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on flash, beside those who keep blocks there. Bytes of each get are verified. What a peer
 * has lost is no error: its share is told.
 *
 * peers-flash: twice as many blocks as memory holds. Each in turn stores the set, reads it in the
 * order in which it was stored (to any LRU the worst), then serves a mix of 70 % gets and 30 %
 * blocks deleted and stored anew.
 * peers-restart: memory for all. Each stores the set, ends as its manual says, begins again over
 * what it left, and is read: one request, then all others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/peers/peer.h"

#define BLOCK_BYTES (1u << 20)
#define BLOCKS 256u
#define BLOCKS_QUICK 128u
#define RUN_BLOCKS 8u
#define MIX 48u /* requests, of 32 runs: in the quick form half of both */
#define PEERS 4u

enum figure { PUT, GET, MIXED, CPU, MEMORY, FIGURES };
enum { FIRST, ALL, RESTART_FIGURES };

struct contest;

struct figure_of {
	const char *name, *unit;
	enum bench_goal_kind goal;
};

struct kind {
	const char *workload;
	const struct peer_ops *peers[PEERS]; /* the first is ours */
	const struct figure_of *figures;
	uint32_t figure_count;
	uint32_t memory_percent; /* of the set */
	int (*measure)(struct contest *c, struct peer *p, struct sample *s);
	const char *empty; /* why a figure of a peer may have no sample */
};

static const struct figure_of restart_figures[RESTART_FIGURES] = {
	[FIRST] = { "first 8 MiB read after a restart", "ms", BENCH_RATIO_AT_MOST },
	[ALL] = { "read after a restart", "ms", BENCH_RATIO_AT_MOST }, /* of so many MiB */
};

static const struct figure_of flash_figures[FIGURES] = {
	[PUT] = { "put, ours durable", "GB/s", BENCH_RATIO_AT_LEAST },
	[GET] = { "get in order", "GB/s", BENCH_RATIO_AT_LEAST },
	[MIXED] = { "70 % gets, 30 % puts, ours durable", "GB/s", BENCH_RATIO_AT_LEAST },
	[CPU] = { "processor time", "s/GiB", BENCH_RATIO_AT_MOST },
	[MEMORY] = { "memory a stored byte", "bytes", BENCH_RATIO_AT_MOST },
};

struct contest {
	struct bench *bench;
	const struct kind *kind;
	uint32_t blocks, runs;
	uint64_t bytes; /* the set's */
	int memory_fd;
	uint8_t *memory; /* the set, then what one request reads */
	uint64_t random, gets, misses, moved;
	struct sample sample[PEERS][FIGURES];
	uint64_t lost[PEERS], asked[PEERS];
	char label[PEERS][BENCH_TEXT], why[PEERS][BENCH_TEXT];
};

static uint64_t cpu_ns(const struct peer *p)
{
	uint64_t ns = process_cpu_ns(p->client ? p->client : getpid());

	for (uint32_t i = 0; i < PEER_PIDS; i++)
		ns += p->pid[i] ? process_cpu_ns(p->pid[i]) : 0;
	return ns;
}

/* Of servers and client together, each mapping counted once. */
static uint64_t memory_of(const struct peer *p)
{
	uint64_t bytes = process_memory(p->client ? p->client : getpid());

	for (uint32_t i = 0; i < PEER_PIDS; i++)
		bytes += p->pid[i] ? process_memory(p->pid[i]) : 0;
	return bytes;
}

/* ---- requests ---------------------------------------------------------------------------- */

/* The clock is of the call alone. A run of which a block is lost moves nothing. */
static int get(struct contest *c, struct peer *p, uint32_t run, uint64_t *ns)
{
	uint8_t *to = c->memory + c->bytes;
	uint64_t from;
	int error;

	memset(to, 0x5a, (size_t)RUN_BLOCKS * BLOCK_BYTES);
	from = time_now_ns();
	error = p->ops->get(p, run * RUN_BLOCKS, RUN_BLOCKS, to);
	*ns += time_now_ns() - from;
	c->gets++;
	if (error == -ENODATA) {
		c->misses++;
		return 0;
	}
	c->moved += (uint64_t)RUN_BLOCKS * BLOCK_BYTES;
	return error ? error : peer_verify(p, run * RUN_BLOCKS, RUN_BLOCKS, to);
}

static int put(struct contest *c, struct peer *p, uint32_t run, uint64_t *ns)
{
	uint64_t from = time_now_ns();
	int error = p->ops->put(p, run * RUN_BLOCKS, RUN_BLOCKS,
				c->memory + (size_t)run * RUN_BLOCKS * BLOCK_BYTES);

	*ns += time_now_ns() - from;
	c->moved += (uint64_t)RUN_BLOCKS * BLOCK_BYTES;
	return error;
}

static int mix(struct contest *c, struct peer *p, uint64_t *ns)
{
	int error = 0;

	for (uint32_t i = 0; i < MIX * c->blocks / BLOCKS && !error; i++) {
		uint32_t run = bench_random_below(&c->random, c->runs);

		if (bench_random_below(&c->random, 10) < 7) {
			error = get(c, p, run, ns);
			continue;
		}
		error = p->ops->remove(p, run * RUN_BLOCKS, RUN_BLOCKS);
		if (!error)
			error = put(c, p, run, ns);
	}
	return error;
}

/* ---- a round ------------------------------------------------------------------------------ */

static void took(struct contest *c, struct sample *s, uint64_t ns)
{
	sample_add(s, ns ? (double)c->moved / (double)ns : 0);
	c->moved = 0;
}

static int measure(struct contest *c, struct peer *p, struct sample *s)
{
	uint64_t empty = memory_of(p), put_ns = 0, get_ns = 0, mix_ns = 0, cpu = 0, bytes;
	int error = 0;

	for (uint32_t run = 0; run < c->runs && !error; run++)
		error = put(c, p, run, &put_ns);
	took(c, &s[PUT], put_ns);
	sample_add(&s[MEMORY], ((double)memory_of(p) - (double)empty) / (double)c->bytes);
	for (uint32_t run = 0; run < c->runs && !error; run++)
		error = get(c, p, run, &get_ns);
	took(c, &s[GET], get_ns);
	cpu = cpu_ns(p);
	if (!error)
		error = mix(c, p, &mix_ns);
	bytes = c->moved;
	took(c, &s[MIXED], mix_ns);
	/* Verifying is in it, for all alike. */
	sample_add(&s[CPU], (double)(cpu_ns(p) - cpu) / 1e9 / ((double)bytes / (1u << 30)));
	return error;
}

static int restart(struct peer *p, uint64_t *began_ns)
{
	if (p->ops->restart)
		return p->ops->restart(p, began_ns);
	p->ops->close(p);
	*began_ns = time_now_ns();
	return p->ops->open(p);
}

/* Who comes back without a block has no figure. */
static int measure_restart(struct contest *c, struct peer *p, struct sample *s)
{
	uint32_t first = bench_random_below(&c->random, c->runs);
	uint64_t began = 0, unused = 0;
	int error = 0;

	for (uint32_t run = 0; run < c->runs && !error; run++)
		error = put(c, p, run, &unused);
	if (!error)
		error = restart(p, &began);
	if (!error)
		error = get(c, p, first, &unused);
	if (!error && !c->misses)
		sample_add(&s[FIRST], (double)(time_now_ns() - began) / NS_PER_MS);
	for (uint32_t run = 0; run < c->runs && !error; run++)
		if (run != first)
			error = get(c, p, run, &unused);
	if (!error && !c->misses)
		sample_add(&s[ALL], (double)(time_now_ns() - began) / NS_PER_MS);
	return error;
}

static const struct kind flash = {
	.workload = "peers-flash",
	.peers = { &peer_tier, &peer_memcached, &peer_direct, &peer_lmcache_disk },
	.figures = flash_figures,
	.figure_count = FIGURES,
	.memory_percent = 50,
	.measure = measure,
};

static const struct kind restarts = {
	.workload = "peers-restart",
	.peers = { &peer_tier, &peer_redis, &peer_memcached, &peer_lmcache_disk },
	.figures = restart_figures,
	.figure_count = RESTART_FIGURES,
	.memory_percent = 200,
	.measure = measure_restart,
	.empty = "it comes back empty",
};

/* A server of its own each round: none begins with what it kept. */
static int round_of(struct contest *c, uint32_t i)
{
	struct peer p = { .ops = c->kind->peers[i],
			  .spec = { .bench = c->bench, .block_bytes = BLOCK_BYTES,
				    .blocks = c->blocks,
				    .memory_bytes = c->bytes * c->kind->memory_percent / 100,
				    .flash_bytes = 4 * c->bytes, .memory_fd = c->memory_fd,
				    .memory = c->memory,
				    .memory_at_most = c->bytes + RUN_BLOCKS * BLOCK_BYTES } };
	char *dir;
	int error;

	error = service_dir_make(&dir, c->bench->dir);
	if (error)
		return error;
	p.spec.dir = dir;
	error = peer_open(&p);
	if (!error && !*c->label[i]) {
		snprintf(c->label[i], BENCH_TEXT, "%s", p.label);
		bench_note(c->bench->results, c->kind->workload, "%s: %s", p.label, p.settings);
	}
	c->gets = c->misses = c->moved = 0;
	if (!error)
		error = c->kind->measure(c, &p, c->sample[i]);
	c->lost[i] += c->misses;
	c->asked[i] += c->gets;
	p.ops->close(&p);
	service_dir_remove(dir);
	if ((error == -ENOENT || error == -ECANCELED) && i) {
		peer_why(c->why[i], p.ops, error);
		return 0;
	}
	return error ? bench_failed(p.ops->name, error) : 0;
}

static int judge_one(struct contest *c, uint32_t i, uint32_t f)
{
	const struct kind *k = c->kind;
	const char *why = *c->why[i] ? c->why[i] : k->empty;
	char name[BENCH_TEXT];
	const struct bench_figure row = { k->workload, name, k->figures[f].unit,
					  *c->label[i] ? c->label[i] : k->peers[i]->name,
					  { k->figures[f].goal, 1 } };

	if (k == &restarts && f == ALL)
		snprintf(name, sizeof(name), "%u MiB %s", c->blocks, k->figures[f].name);
	else
		snprintf(name, sizeof(name), "%s", k->figures[f].name);
	if (k == &flash && f == MEMORY && k->peers[i] == &peer_direct)
		return 0; /* it holds none */
	if (!c->sample[i][f].count)
		return bench_judge_missing(c->bench->results, &row, why);
	return bench_judge(c->bench->results, &row, &c->sample[0][f], &c->sample[i][f]);
}

static int judge(struct contest *c)
{
	int error = 0;

	for (uint32_t i = 0; i < PEERS && !error; i++) {
		if (c->lost[i])
			bench_note(c->bench->results, c->kind->workload,
				   "%s: of %llu gets %llu missed a block", c->label[i],
				   (unsigned long long)c->asked[i],
				   (unsigned long long)c->lost[i]);
		for (uint32_t f = 0; f < c->kind->figure_count && i && !error; f++)
			error = judge_one(c, i, f);
	}
	return error;
}

static int run(struct contest *c)
{
	int error = 0;

	peer_fill(c->memory, c->blocks, BLOCK_BYTES);
	for (uint32_t round = 0; round < c->bench->rounds && !error; round++)
		for (uint32_t k = 0; k < PEERS && !error; k++)
			error = round_of(c, (k + round) % PEERS);
	return error ? error : judge(c);
}

static int contest(struct bench *b, const struct kind *kind)
{
	uint32_t blocks = b->quick ? BLOCKS_QUICK : BLOCKS;
	size_t bytes = (size_t)(blocks + RUN_BLOCKS) * BLOCK_BYTES;
	struct contest *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	c->bench = b;
	c->kind = kind;
	c->blocks = blocks;
	c->runs = blocks / RUN_BLOCKS;
	c->bytes = (uint64_t)blocks * BLOCK_BYTES;
	c->random = UINT64_C(0x9e3779b97f4a7c15);
	c->memory = peer_memory(&c->memory_fd, bytes);
	error = c->memory ? run(c) : -ENOMEM;
	if (c->memory)
		munmap(c->memory, bytes);
	if (c->memory_fd >= 0)
		close(c->memory_fd);
	free(c);
	return error;
}

int bench_peers_flash(struct bench *b)
{
	return contest(b, &flash);
}

int bench_peers_restart(struct bench *b)
{
	return contest(b, &restarts);
}
