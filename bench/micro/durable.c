/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a durable put takes, beside what others do: best-effort puts before it in its context and in
 * another one, staging, seven more who put durably. The peer is the least that any store can do:
 * the same bytes written to a file beside the store, and as many flushes as our order of writes
 * needs, by as many threads. Ours and the peer's are taken in turns, beside the same: the daemon
 * has taken as many best-effort puts before the peer writes, or stages as much.
 *
 * A put is timed from the bytes in the caller's memory to its durable completion. p99 is over all
 * rounds, for one has too few.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/micro/pool.h"
#include "bench/trace/gen.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define PAGE_BYTES (64u << 10)
#define PAGES 4u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * PAGES)
#define RECORD_BYTES 4096u /* what the store writes beside the block */
#define FLUSHES 1u /* data and its record share one: a record proves no data by itself (D9) */
#define SAMPLES 16u /* of a round */
#define CLIENTS 8u
#define CACHED_MAX 100u
#define STAGED 128u /* blocks of the pool */
#define FILE_BYTES (64ull << 20)
#define KEYS (1u << 20) /* the first key of puts: the pool's are below */
#define WAIT_NS (60 * NS_PER_S)

enum beside { ALONE, CACHED, ELSEWHERE, STAGING, OTHERS };

struct setting {
	const char *what;
	enum beside beside;
	uint32_t puts; /* best-effort ones before it */
};

static const struct setting settings[] = {
	{ "alone", ALONE, 0 },
	{ "1 cached put", CACHED, 1 },
	{ "8 cached puts", CACHED, 8 },
	{ "31 cached puts", CACHED, 31 },
	{ "100 cached puts", CACHED, CACHED_MAX },
	{ "31 cached puts elsewhere", ELSEWHERE, 31 },
	{ "staging", STAGING, 0 },
	{ "7 more clients", OTHERS, 0 },
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

struct durable {
	struct pool *p;
	tier_context *elsewhere;
	uint32_t key; /* the next one */
	int file;
	uint8_t *data; /* a block and a record */
	uint64_t at;   /* in the file */
	double *us, *peer_us; /* SAMPLES * CLIENTS of a round */
};

/* ---- one of each --------------------------------------------------------------------------- */

static int put_durable(tier_context *c, uint32_t number, const void *data, double *us)
{
	const struct tier_put_options options = { .size = sizeof(options),
						  .flags = TIER_PUT_DURABLE };
	uint64_t from = time_now_ns();
	tier_key key;
	int64_t n;

	pool_key(&key, KEYS + number);
	n = tier_put_copy(c, &key, 1, data, &options);
	*us = (double)(time_now_ns() - from) / NS_PER_US;
	return n == 1 ? 0 : n < 0 ? (int)n : -ENODATA;
}

static int write_and_flush(int file, const void *data, uint64_t at, double *us)
{
	uint64_t from = time_now_ns();

	if (pwrite(file, data, BLOCK_BYTES + RECORD_BYTES, (off_t)at) !=
	    (ssize_t)(BLOCK_BYTES + RECORD_BYTES))
		return -EIO;
	for (uint32_t i = 0; i < FLUSHES; i++)
		if (fdatasync(file))
			return -errno;
	*us = (double)(time_now_ns() - from) / NS_PER_US;
	return 0;
}

static uint64_t next_place(struct durable *d)
{
	d->at += BLOCK_BYTES + RECORD_BYTES;
	if (d->at + BLOCK_BYTES + RECORD_BYTES > FILE_BYTES)
		d->at = 0;
	return d->at;
}

static int quiet(struct durable *d)
{
	char *reply CLEANUP_FREE = NULL;
	int error = tier_admin(d->p->t, "drain", "{}", &reply);

	return error ? bench_failed("drain", error) : 0;
}

/* ---- what goes on beside ------------------------------------------------------------------- */

static int cached_puts(struct durable *d, tier_context *c, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		tier_key key;
		int64_t n;

		pool_key(&key, KEYS + d->key++);
		n = tier_put_copy(c, &key, 1, d->data, NULL);
		if (n < 0)
			return bench_failed("best-effort put", (int)n);
	}
	return 0;
}

static int staging_begin(struct durable *d)
{
	const struct tier_ask ask = { .size = sizeof(ask),
				      .tier = TIER_CXL,
				      .deadline_ns = time_now_ns() + WAIT_NS,
				      .user_data = 1,
				      .klass = TIER_CLASS_DEADLINE };
	char *reply CLEANUP_FREE = NULL;
	int error = tier_admin(d->p->t, "evict", "{\"context\":\"durable\",\"tier\":\"cxl\"}",
			       &reply);

	if (!error)
		error = tier_fetch_start(d->p->c, d->p->block, STAGED, &ask);
	return error ? bench_failed("staging", error) : 0;
}

static int staging_end(struct durable *d)
{
	struct tier_completion got;
	int n = tier_wait(d->p->t, &got, 1, 1, WAIT_NS);

	if (n != 1 || got.result)
		return bench_failed("staging", n < 0 ? n : n ? got.result : -ETIMEDOUT);
	return 0;
}

static int beside_begin(struct durable *d, const struct setting *s)
{
	int error = quiet(d);

	if (!error)
		error = cached_puts(d, s->beside == ELSEWHERE ? d->elsewhere : d->p->c, s->puts);
	return error || s->beside != STAGING ? error : staging_begin(d);
}

static int sample_one(struct durable *d, const struct setting *s, double *us, double *peer_us)
{
	int error = beside_begin(d, s);

	if (error)
		return error;
	error = put_durable(d->p->c, d->key++, d->data, us);
	if (error)
		return bench_failed("durable put", error);
	if (s->beside == STAGING)
		error = staging_end(d);
	if (!error)
		error = beside_begin(d, s);
	if (error)
		return error;
	error = write_and_flush(d->file, d->data, next_place(d), peer_us);
	if (error)
		return bench_failed("write and flush", error);
	return s->beside == STAGING ? staging_end(d) : 0;
}

/* ---- several clients ----------------------------------------------------------------------- */

struct client {
	struct pool pool;
	pthread_barrier_t *start;
	const uint8_t *data;
	uint32_t first; /* key, place */
	int file;
	double us[SAMPLES];
	bool peer;
	int error;
};

static void *client_run(void *arg)
{
	struct client *k = arg;
	uint64_t bytes = BLOCK_BYTES + RECORD_BYTES;

	pthread_barrier_wait(k->start);
	for (uint32_t i = 0; i < SAMPLES && !k->error; i++)
		k->error = k->peer ? write_and_flush(k->file, k->data,
						     (k->first + i) % (FILE_BYTES / bytes) * bytes,
						     &k->us[i])
				   : put_durable(k->pool.c, k->first + i, k->data, &k->us[i]);
	return NULL;
}

static int together(struct durable *d, struct client *k, bool peer, double *us)
{
	pthread_barrier_t start;
	pthread_t thread[CLIENTS];
	uint32_t begun = 0;
	int error = quiet(d);

	pthread_barrier_init(&start, NULL, CLIENTS);
	for (; begun < CLIENTS && !error; begun++) {
		k[begun].start = &start;
		k[begun].peer = peer;
		k[begun].first = d->key;
		d->key += SAMPLES;
		if (pthread_create(&thread[begun], NULL, client_run, &k[begun]))
			abort(); /* the others wait at the barrier */
	}
	for (uint32_t i = 0; i < begun; i++) {
		pthread_join(thread[i], NULL);
		error = error ? error : k[i].error;
		memcpy(us + (size_t)i * SAMPLES, k[i].us, sizeof(k[i].us));
	}
	pthread_barrier_destroy(&start);
	return error ? bench_failed(peer ? "write and flush" : "durable put", error) : 0;
}

static int clients_round(struct durable *d)
{
	struct client *k CLEANUP_FREE = calloc(CLIENTS, sizeof(*k));
	uint32_t attached = 0;
	int error = k ? 0 : -ENOMEM;

	for (; attached < CLIENTS && !error; attached++) {
		error = pool_attach(&k[attached].pool, d->p);
		k[attached].data = d->data;
		k[attached].file = d->file;
	}
	if (!error)
		error = together(d, k, false, d->us);
	if (!error)
		error = together(d, k, true, d->peer_us);
	for (uint32_t i = 0; i < attached; i++)
		pool_detach(&k[i].pool);
	return error;
}

/* ---- rounds -------------------------------------------------------------------------------- */

struct series {
	struct sample p50, peer50;
	double *us, *peer_us; /* of all rounds */
	uint32_t count;
};

static int round_of(struct durable *d, const struct setting *s, struct series *out)
{
	uint32_t n = s->beside == OTHERS ? SAMPLES * CLIENTS : SAMPLES;
	int error = 0;

	if (s->beside == OTHERS)
		error = clients_round(d);
	for (uint32_t i = 0; i < SAMPLES && s->beside != OTHERS && !error; i++)
		error = sample_one(d, s, &d->us[i], &d->peer_us[i]);
	if (error)
		return error;
	memcpy(out->us + out->count, d->us, n * sizeof(*d->us));
	memcpy(out->peer_us + out->count, d->peer_us, n * sizeof(*d->us));
	out->count += n;
	sample_add(&out->p50, sample_quantile(d->us, n, 0.5));
	sample_add(&out->peer50, sample_quantile(d->peer_us, n, 0.5));
	return 0;
}

/* What was put in a round goes: the log is never full, and the next keys are new. */
static int forget(struct durable *d, tier_context *c, uint32_t first)
{
	tier_key key[256];

	for (; first < d->key; first += 256) {
		uint32_t n = d->key - first < 256 ? d->key - first : 256;
		int64_t gone;

		for (uint32_t i = 0; i < n; i++)
			pool_key(&key[i], KEYS + first + i);
		gone = tier_delete(c, key, n);
		if (gone < 0)
			return bench_failed("tier_delete", (int)gone);
	}
	return 0;
}

static int judge(struct bench *b, const struct setting *s, struct series *r)
{
	char name[BENCH_TEXT];
	struct bench_figure figure = { "durable", name, "us", "the same bytes written, one flush",
				       { BENCH_RATIO_AT_MOST, 2.0 } };
	int error;

	snprintf(name, sizeof(name), "durable put, %s: p50", s->what);
	error = bench_judge(b->results, &figure, &r->p50, &r->peer50);
	if (error)
		return error;
	snprintf(name, sizeof(name), "durable put, %s: p99", s->what);
	figure.goal.limit = 4.0;
	return bench_judge_exact(b->results, &figure, sample_quantile(r->us, r->count, 0.99),
				 sample_quantile(r->peer_us, r->count, 0.99));
}

static int measure(struct durable *d, struct bench *b)
{
	struct series series[SETTINGS] = { 0 };
	size_t most = (size_t)b->rounds * SAMPLES * CLIENTS;
	int error = 0;

	for (uint32_t i = 0; i < SETTINGS; i++) {
		series[i].us = calloc(most, sizeof(double));
		series[i].peer_us = calloc(most, sizeof(double));
		if (!series[i].us || !series[i].peer_us)
			error = -ENOMEM;
	}
	for (uint32_t round = 0; round < b->rounds && !error; round++)
		for (uint32_t i = 0; i < SETTINGS && !error; i++) {
			uint32_t first = d->key;

			error = round_of(d, &settings[i], &series[i]);
			if (!error)
				error = forget(d, d->p->c, first);
			if (!error && settings[i].beside == ELSEWHERE)
				error = forget(d, d->elsewhere, first);
		}
	for (uint32_t i = 0; i < SETTINGS && !error; i++)
		error = judge(b, &settings[i], &series[i]);
	for (uint32_t i = 0; i < SETTINGS; i++) {
		free(series[i].us);
		free(series[i].peer_us);
	}
	return error;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Beside the store, preallocated and written as that is. */
static int file_open(struct durable *d)
{
	char *name CLEANUP_FREE = NULL;
	int error = 0;

	if (asprintf(&name, "%s/peer", d->p->dir) < 0)
		return -ENOMEM;
	d->file = open(name, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (d->file < 0)
		return -errno;
	for (uint64_t at = 0; at < FILE_BYTES && !error; at += BLOCK_BYTES)
		if (pwrite(d->file, d->data, BLOCK_BYTES, (off_t)at) != (ssize_t)BLOCK_BYTES)
			error = -EIO;
	if (!error && fsync(d->file))
		error = -errno;
	return error;
}

static int elsewhere_open(struct durable *d)
{
	const struct tier_part part = { .name = "pages", .kind = TIER_KIND_SPARSE,
					.preferred_tier = TIER_CXL, .layers = 1,
					.groups = PAGES, .page_bytes = PAGE_BYTES };
	const struct tier_geometry_options shape = { .size = sizeof(shape), .part_count = 1,
						     .part = &part };
	struct tier_context_options options = { .size = sizeof(options), .blocks_max = 4096 };
	tier_geometry *g;
	int error = tier_geometry_new(&g, &shape);

	if (error)
		return error;
	options.quota[TIER_HBM] = TIER_QUOTA_NONE;
	error = tier_context_create(d->p->t, "elsewhere", g, &options, &d->elsewhere);
	tier_geometry_free(g);
	return error;
}

int bench_durable(struct bench *b)
{
	static const char *const set[] = { "nvme.admit_all=yes", NULL };
	const struct pool_spec spec = {
		.name = "durable",
		.pages_per_block = PAGES,
		.page_bytes = PAGE_BYTES,
		.blocks = STAGED,
		.blocks_max = 8192,
		.cxl_bytes = 1024u << 20,
		.nvme_bytes = 2048ull << 20,
		.fill_pages = true,
		.set = set,
	};
	struct durable d = { .file = -1 };
	struct pool p;
	tier_key key;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	d.p = &p;
	d.data = aligned_alloc(4096, BLOCK_BYTES + RECORD_BYTES);
	d.us = calloc((size_t)SAMPLES * CLIENTS, sizeof(double));
	d.peer_us = calloc((size_t)SAMPLES * CLIENTS, sizeof(double));
	if (!d.data || !d.us || !d.peer_us)
		error = -ENOMEM;
	if (!error) {
		pool_key(&key, 0);
		gen_page(d.data, BLOCK_BYTES + RECORD_BYTES, &key, 0);
		error = file_open(&d);
	}
	if (!error)
		error = elsewhere_open(&d);
	if (!error)
		error = measure(&d, b);
	else
		bench_failed("durable", error);
	tier_context_close(d.elsewhere);
	if (d.file >= 0)
		close(d.file);
	free(d.data);
	free(d.us);
	free(d.peer_us);
	pool_close(&p);
	return error;
}
