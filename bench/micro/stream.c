/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefix that lies on NVMe, streamed to CXL layer by layer, checksums on: how soon its first
 * layer is there, how long the whole takes while a reader waits for each layer, looks at it and
 * releases it, and what asking costs. Beside it, in the same rounds, fio on the very file of the
 * store: reads as large as the first layer's one extent, one at a time; and sequential ones at the
 * size and depth at which they are fastest, also by plain io_uring into as much memory as streams
 * have. The daemon's own count of bytes read is checked, and the first word of every page.
 *
 * The rounds are spread over daemons with stores and memory of their own: on a virtual machine
 * which memory the host gave decides by more than what differs from round to round.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bench/micro/fio.h"
#include "bench/micro/pool.h"
#include "bench/micro/uring.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "libtier/base/units.h"

#define PAGE_BYTES 65536u
#define LAYERS 16u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * LAYERS)
#define RUN_BLOCKS 32u
#define EXTENT_BYTES (RUN_BLOCKS * PAGE_BYTES)
#define FIO_MS 500u
#define DEADLINE_NS (20 * NS_PER_S)
#define LEASES 512u
#define DAEMONS 3u
#define PROMPTS 4u
#define COMPUTING 1.25 /* of a layer, times its reading: as in the model of byteseconds */

struct job {
	struct pool *p;
	struct fio_job extent, whole;
	struct uring_job plain;
	uint32_t blocks;
	struct tier_lease lease[LEASES];
};

static int open_window(struct job *j, uint32_t first, uint32_t count, uint64_t window,
		       tier_stream **out)
{
	const struct tier_stream_options o = {
		.size = sizeof(o),
		.tier = TIER_CXL,
		.deadline_ns = time_now_ns() + DEADLINE_NS,
		.window_bytes = window,
	};

	return tier_stream_open(j->p->c, &j->p->block[first], count, &o, out);
}

static int open_stream(struct job *j, uint32_t first, uint32_t count, tier_stream **out)
{
	return open_window(j, first, count, 0, out);
}

/* The first word of each page of the layer. */
static int check_layer(struct job *j, uint32_t first, uint32_t count, uint32_t layer)
{
	for (uint32_t at = 0; at < count; at += LEASES) {
		uint32_t n = count - at < LEASES ? count - at : LEASES;
		const struct tier_selection s = { .blocks = &j->p->block[first + at], .count = n,
						  .page = layer };
		int got = tier_lease_blocks(j->p->r, j->p->c, &s, j->lease), error = 0;

		for (uint32_t i = 0; i < n && got == (int)n; i++)
			if (*(const uint64_t *)j->lease[i].data != pool_word(first + at + i, layer))
				error = -EBADMSG;
		tier_release_many(j->p->r, j->lease, n);
		if (got != (int)n)
			return got < 0 ? got : -ENODATA;
		if (error)
			return error;
	}
	return 0;
}

/* One prefix from begin to end. */
static int stream_whole(struct job *j, double *ms)
{
	uint64_t from = time_now_ns();
	tier_stream *s;
	int64_t n = 0;
	int error = open_stream(j, 0, j->blocks, &s);

	for (uint32_t layer = 0; layer < LAYERS && !error; layer++) {
		n = tier_stream_wait(s, layer, 0);
		error = n < 0 ? (int)n : n == j->blocks ? 0 : -ENODATA;
		if (!error)
			error = check_layer(j, 0, j->blocks, layer);
		if (!error)
			tier_stream_release(s, layer + 1);
	}
	*ms = (double)(time_now_ns() - from) / 1e6;
	if (error)
		bench_failed("stream", error);
	tier_stream_close(s);
	return error;
}

/* Prefixes of one run each: the median time until the first layer, one extent, is there. */
static int first_layers(struct job *j, double *us)
{
	double took[64];
	uint32_t count = j->blocks / RUN_BLOCKS;
	int error = 0;

	for (uint32_t i = 0; i < count && !error; i++) {
		uint64_t from = time_now_ns();
		tier_stream *s;
		int64_t n;

		error = open_stream(j, i * RUN_BLOCKS, RUN_BLOCKS, &s);
		if (error)
			break;
		n = tier_stream_wait(s, 0, 0);
		took[i] = (double)(time_now_ns() - from) / 1e3;
		error = n == RUN_BLOCKS ? check_layer(j, i * RUN_BLOCKS, RUN_BLOCKS, 0)
					: n < 0 ? (int)n : -ENODATA;
		tier_stream_close(s);
	}
	if (error)
		return bench_failed("first layer", error);
	*us = sample_quantile(took, count, 0.5);
	return 0;
}

static int first_pair(struct job *j, bool fio_first, struct sample *value, struct sample *peer)
{
	double us = 0, gbps = 0;
	int error = fio_first ? fio_run(&j->extent, &gbps) : 0;

	if (!error)
		error = first_layers(j, &us);
	if (!error && !fio_first)
		error = fio_run(&j->extent, &gbps);
	sample_add(value, us);
	sample_add(peer, gbps > 0 ? EXTENT_BYTES / gbps / 1e3 : 0);
	return error;
}

/*
 * The first token after a prefix: a layer is computed once its pages are there, as long as reading
 * a layer takes. In memory, or by a stream from NVMe.
 */
static int compute(struct job *j, tier_stream *s, uint32_t first, uint32_t blocks,
		   uint64_t layer_ns)
{
	const struct timespec computing = time_to_timespec(layer_ns);
	int error = 0;

	for (uint32_t layer = 0; layer < LAYERS && !error; layer++) {
		int64_t n = s ? tier_stream_wait(s, layer, 0) : blocks;

		error = n < 0	      ? (int)n
			: n == blocks ? check_layer(j, first, blocks, layer)
				      : -ENODATA;
		nanosleep(&computing, NULL);
		if (!error && s)
			tier_stream_release(s, layer + 1);
	}
	return error;
}

static int first_token(struct job *j, uint32_t blocks, uint64_t layer_ns, bool stream, double *ms)
{
	uint64_t from = time_now_ns();
	tier_stream *s = NULL;
	int error = stream ? open_stream(j, 0, blocks, &s) : 0;

	if (!error)
		error = compute(j, s, 0, blocks, layer_ns);
	*ms = (double)(time_now_ns() - from) / 1e6;
	if (s)
		tier_stream_close(s);
	return error;
}

/*
 * Prompts one after the other, each with a prefix of its own. The next one's stream begins with
 * this one's computing: two windows are an eighth of what is stored.
 */
static int prompts(struct job *j, uint32_t blocks, uint64_t layer_ns, bool stream, double *ms)
{
	uint32_t each = blocks / PROMPTS;
	uint64_t from = time_now_ns(), window = blocks * BLOCK_BYTES / 16;
	tier_stream *s = NULL, *next = NULL;
	int error = stream ? open_window(j, 0, each, window, &s) : 0;

	for (uint32_t n = 0; n < PROMPTS && !error; n++) {
		if (stream && n + 1 < PROMPTS)
			error = open_window(j, (n + 1) * each, each, window, &next);
		if (!error)
			error = compute(j, s, n * each, each, layer_ns);
		tier_stream_close(s);
		s = next;
		next = NULL;
	}
	*ms = (double)(time_now_ns() - from) / 1e6;
	tier_stream_close(s);
	return error;
}

/* Milliseconds for the whole prefix. */
struct series {
	struct sample value, fio, plain;
};

/* What is measured, of all daemons. */
struct figures {
	struct series whole;
	struct sample first, extent; /* us */
	struct sample issue, none;   /* us; 1 */
	struct sample token, token_memory; /* ms */
	struct sample prompts, prompts_memory;
};

static int peers(struct job *j, double bytes, double *fio_ms, double *plain_ms)
{
	double fio = 0, plain = 0;
	int error = fio_run(&j->whole, &fio);

	if (!error)
		error = uring_run(&j->plain, &plain);
	*fio_ms = fio > 0 ? bytes / fio / 1e6 : 0;
	*plain_ms = plain > 0 ? bytes / plain / 1e6 : 0;
	return error;
}

static int whole_round(struct job *j, bool peers_first, struct series *s)
{
	uint64_t before = 0, after = 0, bytes = j->blocks * BLOCK_BYTES;
	double ms = 0, fio = 0, plain = 0;
	int error = peers_first ? peers(j, (double)bytes, &fio, &plain) : 0;

	if (!error)
		error = service_metric(j->p->t, "read_bytes", &before);
	if (!error)
		error = stream_whole(j, &ms);
	if (!error)
		error = service_metric(j->p->t, "read_bytes", &after);
	if (!error && !peers_first)
		error = peers(j, (double)bytes, &fio, &plain);
	if (!error && after - before != bytes) {
		bench_say("stream: %llu bytes came and %llu from the device",
			  (unsigned long long)bytes, (unsigned long long)(after - before));
		return -EPROTO;
	}
	sample_add(&s->value, ms);
	sample_add(&s->fio, fio);
	sample_add(&s->plain, plain);
	return error;
}

static int judge_first(struct bench *b, const struct figures *f)
{
	static const struct bench_figure figure = {
		"stream", "first layer of 32 blocks ready (2 MiB, one extent)", "us",
		"fio io_uring, blocks of 2 MiB, depth 1", { BENCH_RATIO_AT_MOST, 2.0 }
	};

	return bench_judge(b->results, &figure, &f->first, &f->extent);
}

static int judge_whole(struct bench *b, const struct job *j, const struct series *s)
{
	char name[BENCH_TEXT], against[BENCH_TEXT], text[UNITS_TEXT_BYTES],
		memory[UNITS_TEXT_BYTES];
	const struct bench_figure figure = {
		"stream", name, "ms", against, { BENCH_RATIO_AT_MOST, 1.1 }
	};
	int error;

	snprintf(name, sizeof(name), "prefix of %u blocks, %u layers, %s, read layer by layer",
		 j->blocks, LAYERS, units_print_bytes(text, j->blocks * BLOCK_BYTES));
	snprintf(against, sizeof(against), "its bytes by fio, blocks of %s, depth %u",
		 units_print_bytes(text, j->whole.block_bytes), j->whole.depth);
	error = bench_judge(b->results, &figure, &s->value, &s->fio);
	if (error)
		return error;
	snprintf(against, sizeof(against), "its bytes by io_uring alone into %s, blocks of %s, "
		 "depth %u", units_print_bytes(memory, j->plain.memory_bytes),
		 units_print_bytes(text, j->plain.block_bytes), j->plain.depth);
	return bench_judge(b->results, &figure, &s->value, &s->plain);
}

/* The peers at their best: found once, for all daemons. */
static int find_peers(struct job *j)
{
	static const uint32_t sizes[] = { 131072, 524288, 1048576 };
	double best;
	int error = fio_best(&j->whole, sizes, 3, &best);

	if (error)
		return bench_failed("fio", error);
	j->plain.ms = FIO_MS;
	j->plain.block_bytes = sizes[2];
	error = uring_best(&j->plain);
	return error ? bench_failed("io_uring", error) : 0;
}

/* The call alone; the daemon has just answered something. */
static int issue_round(struct bench *b, struct job *j, struct figures *f)
{
	double took[32];
	tier_stream *s;

	for (uint32_t i = 0; i < 32; i++) {
		uint64_t from, to;
		int error = tier_drain(j->p->t); /* awake: no doorbell */

		from = tick_now();
		if (!error)
			error = open_stream(j, 0, j->blocks, &s);
		to = tick_now();
		if (error)
			return bench_failed("stream", error);
		took[i] = tick_ns(&b->tick, from, to) / 1e3 / (j->blocks / RUN_BLOCKS);
		tier_stream_close(s);
	}
	sample_add(&f->issue, sample_quantile(took, 32, 0.5));
	sample_add(&f->none, 1);
	return 0;
}

static int judge_issue(struct bench *b, const struct figures *f)
{
	static const struct bench_figure figure = {
		"stream", "asking, a run of 32 blocks", "us", "", { BENCH_VALUE_AT_MOST, 0.3 }
	};

	return bench_judge(b->results, &figure, &f->issue, &f->none);
}

static int leave_memory(struct job *j)
{
	char *reply CLEANUP_FREE = NULL;

	return tier_admin(j->p->t, "evict", "{\"context\":\"stream\",\"tier\":\"cxl\"}",
			  &reply);
}

/* Half of the prefix: with the windows of streams it fits in memory. */
static int token_round(struct job *j, struct figures *f)
{
	static const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	uint32_t blocks = j->blocks / 2;
	double read_ms = f->whole.plain.value[f->token.count] / 2, stream = 0, memory = 0;
	double few = 0, all = 0;
	uint64_t layer_ns = (uint64_t)(read_ms * 1e6 / LAYERS);
	uint64_t prompt_ns = (uint64_t)((double)layer_ns / PROMPTS * COMPUTING);
	int error = first_token(j, blocks, layer_ns, true, &stream);

	if (!error) {
		int64_t n = tier_fetch(j->p->c, j->p->block, blocks, &ask);

		error = n < 0 ? (int)n : n == blocks ? 0 : -ENODATA;
	}
	if (!error)
		error = first_token(j, blocks, layer_ns, false, &memory);
	if (!error)
		error = prompts(j, blocks, prompt_ns, false, &all);
	if (!error)
		error = leave_memory(j);
	if (!error)
		error = prompts(j, blocks, prompt_ns, true, &few);
	if (!error)
		error = leave_memory(j);
	sample_add(&f->token, stream);
	sample_add(&f->token_memory, memory);
	sample_add(&f->prompts, few);
	sample_add(&f->prompts_memory, all);
	return error ? bench_failed("first token", error) : 0;
}

static int judge_token(struct bench *b, const struct figures *f)
{
	static const struct bench_figure figure = {
		"stream", "first token, a layer computes as long as it is read", "ms",
		"the prefix in memory", { BENCH_RATIO_AT_MOST, 1.5 }
	};

	static const struct bench_figure few = {
		"stream", "4 prompts, computing 1.25 of reading, memory 1/8 of what is stored",
		"ms", "all of it in memory", { BENCH_RATIO_AT_MOST, 1.05 }
	};
	int error = bench_judge(b->results, &figure, &f->token, &f->token_memory);

	return error ? error
		     : bench_judge(b->results, &few, &f->prompts, &f->prompts_memory);
}

/* A layer of a run is an extent: how long they are says how many reads a layer needs. */
static int tell_runs(struct pool *p)
{
	uint64_t runs = 0, blocks = 0;
	int error = service_metric(p->t, "runs_written", &runs);

	if (!error)
		error = service_metric(p->t, "blocks_written", &blocks);
	if (!error)
		bench_say("stream: %.1f blocks a run", runs ? (double)blocks / (double)runs : 0);
	return error;
}

static int measure_rounds(struct bench *b, struct job *j, struct figures *f, uint32_t rounds)
{
	int error = tell_runs(j->p);

	if (!error)
		error = leave_memory(j);
	if (error)
		return bench_failed("evict", error);
	for (uint32_t i = 0; i < rounds && !error; i++)
		error = first_pair(j, i & 1, &f->first, &f->extent);
	for (uint32_t i = 0; i < rounds && !error; i++)
		error = whole_round(j, i & 1, &f->whole);
	for (uint32_t i = 0; i < rounds && !error; i++)
		error = token_round(j, f);
	for (uint32_t i = 0; i < rounds && !error; i++)
		error = issue_round(b, j, f);
	return error;
}

/* So many rounds with this daemon. Where the peers are best is looked for if j does not say. */
static int measure(struct bench *b, struct job *j, struct figures *f, uint32_t rounds)
{
	const char *file = j->p->service.store;
	uint32_t block_bytes = j->plain.block_bytes, depth = j->plain.depth;
	int memory = fio_memory(), error;

	if (memory < 0)
		return bench_failed("memory for fio", memory);
	error = uring_open(&j->plain, file, j->p->spec.cxl_bytes / 8);
	if (error) {
		close(memory);
		return bench_failed("io_uring", error);
	}
	j->extent = (struct fio_job){ .file = file, .memory = memory, .random = true,
				      .block_bytes = EXTENT_BYTES, .depth = 1, .ms = FIO_MS };
	j->whole.file = file;
	j->whole.memory = memory;
	j->whole.ms = j->plain.ms = FIO_MS;
	j->plain.block_bytes = block_bytes;
	j->plain.depth = depth;
	error = depth ? 0 : find_peers(j);
	if (!error)
		error = measure_rounds(b, j, f, rounds);
	uring_close(&j->plain);
	close(memory);
	return error;
}

static int one_daemon(struct bench *b, struct job *j, struct figures *f, uint32_t rounds)
{
	/* The same prefix over and over: it shall come from NVMe each time. */
	static const char *const set[] = { "nvme.segment=64MiB", "stream.again=1ms", NULL };
	const struct pool_spec spec = {
		.name = "stream",
		.pages_per_block = LAYERS,
		.layers = LAYERS,
		.page_bytes = PAGE_BYTES,
		.blocks = b->quick ? 256 : 1024,
		.cxl_bytes = 1024ull << 20,
		.nvme_bytes = (b->quick ? 256 : 1024) * BLOCK_BYTES * 2,
		.set = set,
		.put_blocks = RUN_BLOCKS,
		.fill_pages = true,
	};
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	j->p = &p;
	j->blocks = spec.blocks;
	error = measure(b, j, f, rounds);
	pool_close(&p);
	return error;
}

int bench_stream(struct bench *b)
{
	static const struct bench_figure missing = {
		"stream", "a prefix from NVMe", "ms", "fio", { BENCH_RATIO_AT_MOST, 1.1 }
	};
	struct figures *f CLEANUP_FREE = calloc(1, sizeof(*f));
	struct job *j CLEANUP_FREE = calloc(1, sizeof(*j));
	uint32_t left = b->rounds;
	int error = 0;

	if (!f || !j)
		return -ENOMEM;
	if (!fio_there())
		return bench_judge_missing(b->results, &missing, "fio is not installed");
	for (uint32_t daemons = DAEMONS; daemons && left && !error; daemons--) {
		uint32_t rounds = (left + daemons - 1) / daemons;

		error = one_daemon(b, j, f, rounds);
		left -= rounds;
	}
	if (!error)
		error = judge_first(b, f);
	if (!error)
		error = judge_whole(b, j, &f->whole);
	if (!error)
		error = judge_token(b, f);
	return error ? error : judge_issue(b, f);
}
