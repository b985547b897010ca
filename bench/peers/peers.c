/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier beside what a user would keep KV blocks in instead: the same blocks, stored and read back in
 * the same order, each byte of each read verified. In a round every peer in turn stores a set of
 * blocks and reads it twice, in requests of 16 MiB (a prefix) or of one larger block; who begins
 * changes from round to round. All instances run for all of it, so that idle ones cost everybody
 * the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/micro/chase.h"
#include "bench/micro/pool.h"
#include "bench/peers/peer.h"
#include "bench/trace/gen.h"
#include "libtier/base/units.h"

#define SET_BYTES ((uint64_t)256 << 20)
#define SET_BYTES_QUICK ((uint64_t)128 << 20)
#define REQUEST_BYTES (16u << 20)
#define RUNS_MAX 64u
#define FINDS 64u
#define PEERS (sizeof(peers) / sizeof(peers[0]))
#define SIZES (sizeof(all_sizes) / sizeof(all_sizes[0]))

/* The first is ours. */
static const struct peer_ops *const peers[] = {
	&peer_tier, &peer_tmpfs, &peer_redis, &peer_memcached, &peer_mooncake, &peer_mooncake_tcp,
	&peer_lmcache, &peer_lmcache_server
};

static const uint32_t all_sizes[] = { 64u << 10, 1u << 20, 4u << 20, 16u << 20, 64u << 20 };

enum figure { PUT, GET, VISIT, PREFIX, KEY, CPU_PUT, CPU_GET, FIGURES };

struct figure_text {
	const char *name, *unit;
	bool less;     /* is better */
	bool smallest; /* of the smallest blocks only */
};

static const struct figure_text figures[FIGURES] = {
	[PUT] = { "put", "GB/s", false, false },
	[GET] = { "get, copied to the reader", "GB/s", false, false },
	[VISIT] = { "get and read every byte", "GB/s", false, false },
	[PREFIX] = { "look-up of a prefix of 256 blocks", "us", true, true },
	[KEY] = { "look-up of one key", "us", true, true },
	[CPU_PUT] = { "processor time of a put", "s/GiB", true, false },
	[CPU_GET] = { "processor time of a get", "s/GiB", true, false },
};

struct contest {
	struct bench *bench;
	uint64_t set_bytes;	       /* of whole requests */
	uint32_t size[SIZES], sizes;   /* of blocks, in turn */
	uint32_t block_bytes, blocks, run_blocks, runs;
	int memory_fd;
	uint8_t *memory; /* the set, then what one request reads */
	uint64_t memory_bytes;
	uint64_t random;
	uint32_t order[RUNS_MAX]; /* of runs, in this round */
	struct peer peer[PEERS];
	bool runs_it[PEERS];
	char why[PEERS][BENCH_TEXT]; /* where it does not */
	struct sample sample[PEERS][FIGURES];
	/* For the table. */
	double median[SIZES][PEERS][FIGURES], ratio[SIZES][PEERS][FIGURES];
	bool told[SIZES][PEERS][FIGURES]; /* which is better can be told */
};

void peer_key(char out[PEER_KEY_BYTES], uint32_t block)
{
	tier_key key;

	pool_key(&key, block);
	for (uint32_t i = 0; i < sizeof(key.bytes); i++)
		snprintf(out + (size_t)2 * i, 3, "%02x", key.bytes[i]);
}

/* ---- what all workloads of peers need ------------------------------------------------------- */

static int verify_page(const struct peer *p, uint32_t block, uint32_t page, const uint8_t *bytes)
{
	tier_key key;
	size_t bad;

	pool_key(&key, block);
	if (gen_verify(bytes, PEER_PAGE_BYTES, &key, page, &bad) == 0)
		return 0;
	fprintf(stderr, "tierbench: %s: block %u, page %u: byte %zu is wrong\n", p->label, block,
		page, bad);
	return -EBADMSG;
}

int peer_verify(const struct peer *p, uint32_t first, uint32_t count, const uint8_t *at)
{
	uint32_t pages = p->spec.block_bytes / PEER_PAGE_BYTES;
	int error = 0;

	for (uint32_t i = 0; i < count * pages && !error; i++)
		error = verify_page(p, first + i / pages, i % pages,
				    at + (size_t)i * PEER_PAGE_BYTES);
	return error;
}

void peer_fill(uint8_t *at, uint32_t blocks, uint32_t block_bytes)
{
	uint32_t pages = block_bytes / PEER_PAGE_BYTES;

	for (uint32_t i = 0; i < blocks * pages; i++) {
		tier_key key;

		pool_key(&key, i / pages);
		gen_page(at + (size_t)i * PEER_PAGE_BYTES, PEER_PAGE_BYTES, &key, i % pages);
	}
}

uint8_t *peer_memory(int *fd, uint64_t bytes)
{
	*fd = memfd_create("peers", MFD_CLOEXEC);
	return *fd < 0 || ftruncate(*fd, (off_t)bytes) ? NULL : chase_map(*fd, bytes, true);
}

int peer_open(struct peer *p)
{
	if (p->spec.bench->light && p->ops->install)
		return -ECANCELED;
	return p->ops->needs && !process_there(p->ops->needs) ? -ENOENT : p->ops->open(p);
}

void peer_why(char why[BENCH_TEXT], const struct peer_ops *ops, int error)
{
	if (error == -ENOENT || error == -ENODEV)
		snprintf(why, BENCH_TEXT, "%s is not installed (%s)", ops->name,
			 ops->install ? ops->install : "make setup-peers");
	else if (error == -ECANCELED)
		snprintf(why, BENCH_TEXT, "%s is left out by --light (FULL=1)", ops->name);
	else
		snprintf(why, BENCH_TEXT, "%s: %s", ops->name,
			 error == -EBADMSG ? "WRONG BYTES were read" : strerror(-error));
}

/* ---- one call, timed and verified ----------------------------------------------------------- */

static int verify(void *arg, uint32_t block, uint32_t page, const uint8_t *bytes)
{
	return verify_page(arg, block, page, bytes);
}

/* By its client's clock where that is another process, else since `from`. */
static uint64_t took(struct peer *p, uint64_t from)
{
	uint64_t ns = p->took_ns ? p->took_ns : time_now_ns() - from;

	p->took_ns = 0;
	return ns;
}

static uint64_t cpu_ns(const struct peer *p)
{
	uint64_t ns = process_cpu_ns(p->client ? p->client : getpid());

	for (uint32_t i = 0; i < PEER_PIDS; i++)
		ns += p->pid[i] ? process_cpu_ns(p->pid[i]) : 0;
	return ns;
}

static uint8_t *read_memory(const struct contest *c)
{
	return c->memory + (size_t)c->blocks * c->block_bytes;
}

/* Bytes of the last read must not pass for those of the next. */
static void spoil(struct contest *c)
{
	for (size_t at = 0; at < (size_t)c->run_blocks * c->block_bytes; at += 4096)
		read_memory(c)[at] ^= 0x5a;
}

/* What calls came to. */
struct cost {
	uint64_t ns, cpu_ns;
};

static int put_set(struct contest *c, struct peer *p, struct cost *cost)
{
	uint64_t used = cpu_ns(p);
	int error = 0;

	for (uint32_t r = 0; r < c->runs && !error; r++) {
		uint32_t first = r * c->run_blocks;
		uint64_t from = time_now_ns();

		error = p->ops->put(p, first, c->run_blocks,
				    c->memory + (size_t)first * c->block_bytes);
		cost->ns += took(p, from);
	}
	cost->cpu_ns = cpu_ns(p) - used;
	return error;
}

static int get_set(struct contest *c, struct peer *p, struct cost *cost)
{
	int error = 0;

	for (uint32_t r = 0; r < c->runs && !error; r++) {
		uint32_t first = c->order[r] * c->run_blocks;
		uint64_t from, used;

		spoil(c);
		used = cpu_ns(p);
		from = time_now_ns();
		error = p->ops->get(p, first, c->run_blocks, read_memory(c));
		cost->ns += took(p, from);
		cost->cpu_ns += cpu_ns(p) - used;
		if (!error)
			error = peer_verify(p, first, c->run_blocks, read_memory(c));
	}
	return error;
}

/* The clock runs until the reader has seen every byte, in place or in its copy. */
static int visit_set(struct contest *c, struct peer *p, uint64_t *ns)
{
	int error = 0;

	for (uint32_t r = 0; r < c->runs && !error; r++) {
		uint32_t first = c->order[r] * c->run_blocks;
		uint64_t from = time_now_ns();

		if (p->ops->visit) {
			error = p->ops->visit(p, first, c->run_blocks, verify, p);
			*ns += took(p, from);
			continue;
		}
		error = p->ops->get(p, first, c->run_blocks, read_memory(c));
		*ns += took(p, from);
		from = time_now_ns();
		if (!error)
			error = peer_verify(p, first, c->run_blocks, read_memory(c));
		*ns += time_now_ns() - from;
	}
	return error;
}

static int find_some(struct contest *c, struct peer *p, uint32_t count, double *us)
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < FINDS; i++) {
		uint32_t first = bench_random_below(&c->random, c->runs) * c->run_blocks;
		uint64_t from = time_now_ns();
		int n = p->ops->find(p, first, count);

		ns += took(p, from);
		if (n < 0)
			return n;
		if ((uint32_t)n != count)
			return -ENODATA;
	}
	*us = (double)ns / FINDS / 1e3;
	return 0;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static int round_of(struct contest *c, uint32_t i)
{
	struct peer *p = &c->peer[i];
	struct sample *s = c->sample[i];
	double bytes = (double)c->set_bytes, per_gib = bytes / (1 << 30) * 1e9, us = 0;
	struct cost put = { 0 }, get = { 0 };
	uint64_t visit = 0;
	int error = put_set(c, p, &put);

	if (!error)
		error = get_set(c, p, &get);
	if (!error)
		error = visit_set(c, p, &visit);
	if (error)
		return error;
	sample_add(&s[PUT], bytes / (double)put.ns);
	sample_add(&s[GET], bytes / (double)get.ns);
	sample_add(&s[VISIT], bytes / (double)visit);
	sample_add(&s[CPU_PUT], (double)put.cpu_ns / per_gib);
	sample_add(&s[CPU_GET], (double)get.cpu_ns / per_gib);
	if (c->run_blocks == 256) {
		error = find_some(c, p, 256, &us);
		sample_add(&s[PREFIX], us);
		if (!error)
			error = find_some(c, p, 1, &us);
		sample_add(&s[KEY], us);
	}
	return error ? error : p->ops->remove(p, 0, c->blocks);
}

static void give_up(struct contest *c, uint32_t i, int error)
{
	c->runs_it[i] = false;
	peer_why(c->why[i], c->peer[i].ops, error);
	bench_say("peers: not measured: %s", c->why[i]);
	c->peer[i].ops->close(&c->peer[i]);
}

/* Ours must not fail; a peer that does is left out, and that is said. */
static int rounds(struct contest *c)
{
	for (uint32_t round = 0; round < c->bench->rounds; round++) {
		for (uint32_t r = 0; r < c->runs; r++) {
			uint32_t k = bench_random_below(&c->random, r + 1);

			c->order[r] = c->order[k];
			c->order[k] = r;
		}
		for (uint32_t k = 0; k < PEERS; k++) {
			uint32_t i = (k + round) % PEERS;
			int error = c->runs_it[i] ? round_of(c, i) : 0;

			if (error && i == 0)
				return bench_failed("peers", error);
			if (error)
				give_up(c, i, error);
		}
	}
	return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int open_peer(struct contest *c, uint32_t i, char *dir, char *shm)
{
	struct peer *p = &c->peer[i];

	*p = (struct peer){
		.ops = peers[i],
		.spec = { .bench = c->bench,
			  .dir = dir,
			  .shm = shm,
			  .block_bytes = c->block_bytes,
			  .blocks = c->blocks,
			  .memory_bytes = 2 * c->set_bytes + (64 << 20),
			  .memory_fd = c->memory_fd,
			  .memory = c->memory,
			  .memory_at_most = c->memory_bytes },
	};
	return peer_open(p);
}

static int open_all(struct contest *c, char *dir[PEERS], char *shm)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		int error = service_dir_make(&dir[i], c->bench->dir);

		c->runs_it[i] = true;
		if (!error)
			error = open_peer(c, i, dir[i], shm);
		if (error && i == 0)
			return bench_failed("peers", error);
		if (error)
			give_up(c, i, error);
	}
	return 0;
}

static void close_all(struct contest *c, char *dir[PEERS], char *shm)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		if (c->peer[i].ops)
			c->peer[i].ops->close(&c->peer[i]);
		service_dir_remove(dir[i]);
	}
	service_dir_remove(shm);
}

static uint64_t set_most(const struct contest *c)
{
	return c->bench->quick ? SET_BYTES_QUICK : SET_BYTES;
}

static int memory_open(struct contest *c)
{
	c->memory_bytes = set_most(c) + (64u << 20);
	c->memory = peer_memory(&c->memory_fd, c->memory_bytes);
	return c->memory ? 0 : -ENOMEM;
}

static void memory_close(struct contest *c)
{
	if (c->memory)
		munmap(c->memory, c->memory_bytes);
	if (c->memory_fd >= 0)
		close(c->memory_fd);
}

/* ---- telling -------------------------------------------------------------------------------- */

static int judge_one(struct contest *c, uint32_t size, uint32_t i, enum figure f)
{
	const struct figure_text *t = &figures[f];
	struct bench_results *all = c->bench->results;
	char block[UNITS_TEXT_BYTES], name[BENCH_TEXT];
	const struct bench_figure figure = { "peers",
					     name,
					     t->unit,
					     c->peer[i].label,
					     { t->less ? BENCH_RATIO_AT_MOST : BENCH_RATIO_AT_LEAST,
					       1 } };
	int error;

	c->median[size][i][f] = sample_summarise(&c->sample[i][f]).median;
	if (i == 0 || !c->runs_it[i] || (t->smallest && c->run_blocks != 256))
		return 0;
	snprintf(name, sizeof(name), "%s, %s", units_print_bytes(block, c->block_bytes), t->name);
	error = bench_judge(all, &figure, &c->sample[0][f], &c->sample[i][f]);
	if (!error) {
		c->ratio[size][i][f] = all->row[all->count - 1].ratio;
		c->told[size][i][f] = all->row[all->count - 1].verdict != BENCH_CANNOT_TELL;
	}
	return error;
}

static int judge(struct contest *c, uint32_t size)
{
	int error = 0;

	for (enum figure f = 0; f < FIGURES; f++)
		for (uint32_t i = 0; i < PEERS && !error; i++)
			error = judge_one(c, size, i, f);
	return error;
}

/* Once for each peer that some size could not be measured with. */
static int judge_missing(struct contest *c)
{
	int error = 0;

	for (uint32_t i = 1; i < PEERS && !error; i++) {
		const struct bench_figure figure = {
			"peers", peers[i]->name, "", "", { BENCH_RATIO_AT_LEAST, 1 }
		};

		if (*c->why[i])
			error = bench_judge_missing(c->bench->results, &figure, c->why[i]);
	}
	return error;
}

static void print_line(const struct contest *c, uint32_t s, enum figure f)
{
	char text[UNITS_TEXT_BYTES];

	printf("\n%-9s %8.3g", units_print_bytes(text, c->size[s]), c->median[s][0][f]);
	for (uint32_t i = 1; i < PEERS; i++) {
		double ratio = c->ratio[s][i][f];

		if (ratio == 0)
			printf(" %21s", "-");
		else
			printf(" %10.3g (%c%7.3g)", c->median[s][i][f],
			       c->told[s][i][f] ? 'x' : '~', figures[f].less ? 1 / ratio : ratio);
	}
}

/* What a reader looks for: one line a size, one column a peer, how many times better we are. */
static void print_table(const struct contest *c)
{
	printf("\nIn brackets: how many times better tier is, the median of rounds; ~ where better "
	       "or worse\ncannot be told (95 %%). Intervals and rounds: --json.\n");
	for (enum figure f = 0; f < FIGURES; f++) {
		printf("\n%s, %s\n%-9s %8s", figures[f].name, figures[f].unit, "block", "tier");
		for (uint32_t i = 1; i < PEERS; i++)
			printf(" %21s", peers[i]->name);
		for (uint32_t s = 0; s < c->sizes; s++)
			if (c->median[s][0][f] != 0)
				print_line(c, s, f);
		putchar('\n');
	}
	putchar('\n');
	fflush(stdout);
}

static int one_size(struct contest *c, uint32_t size)
{
	char *dir[PEERS] = { NULL }, *shm = NULL;
	int error;

	c->block_bytes = c->size[size];
	c->run_blocks = c->block_bytes < REQUEST_BYTES ? REQUEST_BYTES / c->block_bytes : 1;
	c->runs = (uint32_t)(set_most(c) / ((uint64_t)c->run_blocks * c->block_bytes));
	c->blocks = c->runs * c->run_blocks;
	c->set_bytes = (uint64_t)c->blocks * c->block_bytes;
	memset(c->sample, 0, sizeof(c->sample));
	memset(c->peer, 0, sizeof(c->peer));
	peer_fill(c->memory, c->blocks, c->block_bytes);
	if (c->bench->shm)
		service_dir_make(&shm, c->bench->shm);
	error = open_all(c, dir, shm);
	for (uint32_t i = 0; i < PEERS && size == 0 && !error; i++)
		if (c->runs_it[i])
			bench_note(c->bench->results, "peers", "%s: %s", c->peer[i].label,
				   c->peer[i].settings);
	if (!error)
		error = rounds(c);
	if (!error)
		error = judge(c, size);
	close_all(c, dir, shm);
	return error;
}

int bench_peers(struct bench *b)
{
	struct contest *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	c->bench = b;
	memcpy(c->size, all_sizes, sizeof(all_sizes));
	c->sizes = b->block_bytes ? 1 : SIZES;
	if (b->block_bytes)
		c->size[0] = b->block_bytes;
	c->memory_fd = -1;
	c->random = UINT64_C(0x9e3779b97f4a7c15);
	error = memory_open(c);
	b->results->quiet = true;
	for (uint32_t s = 0; s < c->sizes && !error; s++)
		error = one_size(c, s);
	if (!error)
		print_table(c);
	b->results->quiet = false;
	if (!error)
		error = judge_missing(c);
	memory_close(c);
	free(c);
	return error;
}
