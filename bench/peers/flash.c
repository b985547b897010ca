/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Twice as many blocks as memory holds, the rest on flash: tier, memcached with extstore, and files
 * read with O_DIRECT. Each in turn stores the set, reads it in the order in which it was stored (to
 * any LRU the worst), then serves a mix of 70 % gets and 30 % blocks deleted and stored anew. Bytes
 * of each get are verified. What a peer has lost is no error: its share is told.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/micro/chase.h"
#include "bench/micro/pool.h"
#include "bench/peers/peer.h"
#include "bench/trace/gen.h"

#define WORKLOAD "peers-flash"
#define SET_BYTES (256u << 20)
#define BLOCK_BYTES (1u << 20)
#define BLOCKS (SET_BYTES / BLOCK_BYTES)
#define RUN_BLOCKS 8u
#define RUNS (BLOCKS / RUN_BLOCKS)
#define MIX 48u /* requests */
#define PEERS (sizeof(peers) / sizeof(peers[0]))

static const struct peer_ops *const peers[] = { &peer_tier, &peer_memcached, &peer_direct,
					      &peer_lmcache_disk };

enum figure { PUT, GET, MIXED, CPU, MEMORY, FIGURES };

static const struct {
	const char *name, *unit;
	enum bench_goal_kind goal;
} figures[FIGURES] = {
	[PUT] = { "put, ours durable", "GB/s", BENCH_RATIO_AT_LEAST },
	[GET] = { "get in order", "GB/s", BENCH_RATIO_AT_LEAST },
	[MIXED] = { "70 % gets, 30 % puts, ours durable", "GB/s", BENCH_RATIO_AT_LEAST },
	[CPU] = { "processor time", "s/GiB", BENCH_RATIO_AT_MOST },
	[MEMORY] = { "memory a stored byte", "bytes", BENCH_RATIO_AT_MOST },
};

struct contest {
	struct bench *bench;
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

static int verify(const struct peer *p, uint32_t first, const uint8_t *at)
{
	uint32_t pages = BLOCK_BYTES / PEER_PAGE_BYTES;

	for (uint32_t i = 0; i < RUN_BLOCKS * pages; i++) {
		tier_key key;
		size_t bad;

		pool_key(&key, first + i / pages);
		if (gen_verify(at + (size_t)i * PEER_PAGE_BYTES, PEER_PAGE_BYTES, &key, i % pages,
			       &bad) == 0)
			continue;
		fprintf(stderr, "tierbench: %s: block %u, page %u: byte %zu is wrong\n", p->label,
			first + i / pages, i % pages, bad);
		return -EBADMSG;
	}
	return 0;
}

/* The clock is of the call alone. A run of which a block is lost moves nothing. */
static int get(struct contest *c, struct peer *p, uint32_t run, uint64_t *ns)
{
	uint8_t *to = c->memory + SET_BYTES;
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
	return error ? error : verify(p, run * RUN_BLOCKS, to);
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

	for (uint32_t i = 0; i < MIX && !error; i++) {
		uint32_t run = bench_random_below(&c->random, RUNS);

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

	for (uint32_t run = 0; run < RUNS && !error; run++)
		error = put(c, p, run, &put_ns);
	took(c, &s[PUT], put_ns);
	sample_add(&s[MEMORY], ((double)memory_of(p) - (double)empty) / SET_BYTES);
	for (uint32_t run = 0; run < RUNS && !error; run++)
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

/* A server of its own each round: none begins with what it kept. */
static int round_of(struct contest *c, uint32_t i)
{
	struct peer p = { .ops = peers[i],
			  .spec = { .bench = c->bench, .block_bytes = BLOCK_BYTES,
				    .blocks = BLOCKS, .memory_bytes = SET_BYTES / 2,
				    .flash_bytes = 4ull * SET_BYTES, .memory_fd = c->memory_fd,
				    .memory = c->memory,
				    .memory_at_most = SET_BYTES + RUN_BLOCKS * BLOCK_BYTES } };
	char *dir;
	int error;

	if (p.ops->needs && !process_there(p.ops->needs)) {
		snprintf(c->why[i], BENCH_TEXT, "not installed (make setup-peers)");
		return 0;
	}
	error = service_dir_make(&dir, c->bench->dir);
	if (error)
		return error;
	p.spec.dir = dir;
	error = p.ops->open(&p);
	if (!error && !*c->label[i]) {
		snprintf(c->label[i], BENCH_TEXT, "%s", p.label);
		bench_note(c->bench->results, WORKLOAD, "%s: %s", p.label, p.settings);
	}
	c->gets = c->misses = c->moved = 0;
	if (!error)
		error = measure(c, &p, c->sample[i]);
	c->lost[i] += c->misses;
	c->asked[i] += c->gets;
	p.ops->close(&p);
	service_dir_remove(dir);
	return error ? bench_failed(p.ops->name, error) : 0;
}

static int judge(struct contest *c)
{
	int error = 0;

	for (uint32_t i = 0; i < PEERS && !error; i++) {
		if (c->lost[i])
			bench_note(c->bench->results, WORKLOAD,
				   "%s: of %llu gets %llu missed a block", c->label[i],
				   (unsigned long long)c->asked[i],
				   (unsigned long long)c->lost[i]);
		for (enum figure f = 0; f < FIGURES && i && !error; f++) {
			if (f == MEMORY && peers[i] == &peer_direct)
				continue; /* it holds none */
			const struct bench_figure row = { WORKLOAD, figures[f].name,
							  figures[f].unit,
							  *c->why[i] ? peers[i]->name
								     : c->label[i],
							  { figures[f].goal, 1 } };

			error = *c->why[i] ? bench_judge_missing(c->bench->results, &row,
								 c->why[i])
					   : bench_judge(c->bench->results, &row, &c->sample[0][f],
							 &c->sample[i][f]);
		}
	}
	return error;
}

static int run(struct contest *c)
{
	int error = 0;

	for (uint32_t i = 0; i < SET_BYTES / PEER_PAGE_BYTES; i++) {
		uint32_t pages = BLOCK_BYTES / PEER_PAGE_BYTES;
		tier_key key;

		pool_key(&key, i / pages);
		gen_page(c->memory + (size_t)i * PEER_PAGE_BYTES, PEER_PAGE_BYTES, &key, i % pages);
	}
	for (uint32_t round = 0; round < c->bench->rounds && !error; round++)
		for (uint32_t k = 0; k < PEERS && !error; k++)
			error = round_of(c, (k + round) % PEERS);
	return error ? error : judge(c);
}

int bench_peers_flash(struct bench *b)
{
	size_t bytes = SET_BYTES + RUN_BLOCKS * BLOCK_BYTES;
	struct contest *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	c->bench = b;
	c->random = UINT64_C(0x9e3779b97f4a7c15);
	c->memory_fd = memfd_create("peers", MFD_CLOEXEC);
	if (c->memory_fd < 0 || ftruncate(c->memory_fd, (off_t)bytes))
		error = -errno;
	else
		error = (c->memory = chase_map(c->memory_fd, bytes, true)) ? run(c) : -ENOMEM;
	if (c->memory)
		munmap(c->memory, bytes);
	if (c->memory_fd >= 0)
		close(c->memory_fd);
	free(c);
	return error;
}
