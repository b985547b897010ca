/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted rather than timed: index memory a page and a block, and how many bytes go to NVMe
 * for each byte put when the trace is replayed.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/micro/pool.h"
#include "bench/trace/replay.h"

#define PAGE_ALLOWED 32.0
#define BLOCK_ALLOWED 160.0
#define MANY 1000000u
/* The trace's puts with a whole run of 32 blocks written anew for each block appended to it. */
#define WHOLE_RUN_AMPLIFICATION 16.5

/*
 * The same by the kernel's count: pages of the index, and what the daemon's private memory grew by
 * since the context was empty. With it come the maps of places, what is prepared ahead and the
 * pools of requests, so it is told for many blocks only.
 */
static int resident(struct bench *b, const struct pool *p, const char *what, double pages)
{
	char name[BENCH_TEXT];
	const struct bench_figure figure = { "index",
					     name,
					     "bytes",
					     "32 a page + 160 a block",
					     { BENCH_RATIO_AT_MOST, 1 } };
	double blocks = p->spec.blocks;
	struct pool_memory now;
	int error = pool_memory(p, &now);

	snprintf(name, sizeof(name), "resident memory of %s", what);
	if (error)
		return error;
	return bench_judge_exact(b->results, &figure,
				 (double)(now.index + now.private - p->empty.private),
				 PAGE_ALLOWED * pages + BLOCK_ALLOWED * blocks);
}

static int memory(struct bench *b, uint32_t pages_per_block, uint32_t blocks)
{
	const struct pool_spec spec = {
		.name = "index",
		.pages_per_block = pages_per_block,
		.page_bytes = 512,
		.page_align = 512,
		.blocks = blocks,
	};
	char name[2][BENCH_TEXT];
	const struct bench_figure all = {
		"index", name[0], "bytes", "32 a page + 160 a block", { BENCH_RATIO_AT_MOST, 1 }
	};
	const struct bench_figure block = {
		"index", name[1], "bytes", "160", { BENCH_RATIO_AT_MOST, 1 }
	};
	double pages = (double)pages_per_block * blocks;
	uint64_t bytes = 0;
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = pool_index_bytes(&p, &bytes);
	if (!error && blocks >= MANY)
		error = resident(b, &p, "these", pages);
	pool_close(&p);
	snprintf(name[0], BENCH_TEXT, "memory of %u blocks of %u page%s", blocks, pages_per_block,
		 pages_per_block == 1 ? "" : "s");
	snprintf(name[1], BENCH_TEXT, "a block, beside 32 bytes a page (%u page%s)",
		 pages_per_block, pages_per_block == 1 ? "" : "s");
	if (!error)
		error = bench_judge_exact(b->results, &all, (double)bytes,
					  PAGE_ALLOWED * pages + BLOCK_ALLOWED * blocks);
	if (!error)
		error = bench_judge_exact(b->results, &block,
					  ((double)bytes - PAGE_ALLOWED * pages) / blocks,
					  BLOCK_ALLOWED);
	return error;
}

/* ---- all tiers ----------------------------------------------------------------------------- */

#define TIERS_FETCH 4096u /* blocks at a time: half of HBM */

/* Every block comes to HBM once, so that each has been in every tier and in its order. */
static int fetch_all(struct pool *p)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM };

	for (uint32_t at = 0; at < p->spec.blocks; at += TIERS_FETCH) {
		uint32_t left = p->spec.blocks - at;
		uint32_t count = left < TIERS_FETCH ? left : TIERS_FETCH;
		int64_t n = tier_fetch(p->c, p->block + at, count, &ask);

		if (n < 0)
			return bench_failed("tier_fetch", (int)n);
	}
	return 0;
}

/* A block that is on NVMe, a sixth of them in CXL and some in HBM, all with ghosts. */
static int tiers(struct bench *b, uint32_t blocks)
{
	const struct pool_spec spec = {
		.name = "tiers",
		.pages_per_block = 1,
		.page_bytes = 4096,
		.blocks = blocks,
		.hbm_bytes = 32u << 20,
		.cxl_bytes = blocks / 6 * 4096ull,
		.nvme_bytes = blocks * 4096ull + (512u << 20),
	};
	char name[BENCH_TEXT];
	const struct bench_figure figure = {
		"index", name, "bytes", "160", { BENCH_RATIO_AT_MOST, 1 }
	};
	uint64_t bytes = 0;
	struct pool p;
	int error = pool_open(&p, b, &spec);

	if (error)
		return error;
	error = fetch_all(&p);
	if (!error)
		error = pool_index_bytes(&p, &bytes);
	snprintf(name, sizeof(name), "a block in HBM, CXL, NVMe, beside 32 bytes a page");
	if (!error)
		error = bench_judge_exact(b->results, &figure,
					  ((double)bytes - PAGE_ALLOWED * blocks) / blocks,
					  BLOCK_ALLOWED);
	if (!error)
		error = resident(b, &p, "a block in HBM, CXL, NVMe", blocks);
	pool_close(&p);
	return error;
}

/* ---- write amplification ------------------------------------------------------------------- */

static int read_amplification(struct service *s, double *out)
{
	const struct tier_connect_options options = {
		.size = sizeof(options),
		.socket = s->socket,
		.name = "tierbench",
		.staging_bytes = 1 << 20,
	};
	uint64_t put = 0, data = 0, records = 0;
	char *reply = NULL;
	tier *t;
	int error = tier_connect(&t, &options);

	if (error)
		return error;
	/* Everything dirty is written first. */
	error = tier_admin(t, "drain", NULL, &reply);
	free(reply);
	if (!error)
		error = service_metric(t, "put_bytes", &put);
	if (!error)
		error = service_metric(t, "written_bytes", &data);
	if (!error)
		error = service_metric(t, "record_bytes", &records);
	tier_close(t);
	if (!error && !put)
		error = -ENODATA;
	*out = put ? (double)(data + records) / (double)put : 0;
	return error;
}

static int replay(struct bench *b, struct service *s, const struct trace *trace)
{
	struct replay r = {
		.trace = trace,
		.engines = 2,
		.set = {
			.socket = s->socket,
			.context = "replay",
			.layers = 3,
			.groups = 2,
			.page_bytes = 8192,
			.sidecar_bytes = 4096,
			.decode_steps = 1,
			.top = 16,
			.repeat_percent = 75,
			.staging_bytes = 64 << 20,
			.tick = b->tick,
		},
	};
	static const struct bench_figure figure = { "index",
						    "write amplification on the trace",
						    "B/B",
						    "whole runs written anew",
						    { BENCH_RATIO_AT_MOST, 1 } };
	double amplification = 0;
	int error = replay_run(&r);

	if (error)
		fprintf(stderr, "replay: %s\n", r.error_text);
	else if (r.total.bad_pages)
		error = -EBADMSG;
	replay_free(&r);
	if (!error)
		error = read_amplification(s, &amplification);
	return error ? bench_failed("write amplification", error)
		     : bench_judge_exact(b->results, &figure, amplification,
					 WHOLE_RUN_AMPLIFICATION);
}

static int amplification(struct bench *b)
{
	struct service_options options = {
		.tierd = b->tierd,
		.hbm_bytes = 64 << 20,
		.cxl_bytes = 512 << 20,
		.nvme_bytes = (uint64_t)(b->quick ? 1024 : 3072) << 20,
	};
	struct service s;
	struct trace *trace = NULL;
	char *dir = NULL;
	int error = bench_trace(&trace, b, b->quick ? 600 : 2000);

	if (error)
		return error;
	error = service_dir_make(&dir, b->dir);
	options.dir = dir;
	if (!error)
		error = service_start(&s, &options, NULL);
	if (!error) {
		error = replay(b, &s, trace);
		service_stop(&s);
	}
	service_dir_remove(dir);
	trace_close(trace);
	return error;
}

int bench_index(struct bench *b)
{
	int error = memory(b, 64, 15625);

	if (!error)
		error = memory(b, 1, MANY);
	if (!error)
		error = tiers(b, b->quick ? 200000 : 400000);
	return error ? error : amplification(b);
}
