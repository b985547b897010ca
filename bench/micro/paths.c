/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real bytes into HBM by two paths: blocks that are in CXL and on NVMe are fetched by a daemon that
 * may read straight into HBM, and by one that only copies, in turns. HBM is emulated in the host's
 * memory here: copies, reads and their verification share its processors and one loop, so the links
 * are not apart as a GPU's are, and speed says nothing (it is told, and is below that of copies
 * alone; hbm.direct is off by default). What the row says is that both paths carry, and every page
 * is right: its first word is looked at, and the daemon's counts of bytes by path.
 */
#include "bench/micro/paths.h"

#include <errno.h>

#include "bench/micro/pool.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define PAGE_BYTES 65536u
#define PAGES 16u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * PAGES)
#define DEADLINE_NS (60 * NS_PER_S)

struct by_path {
	uint64_t direct, copied;
};

static int count_paths(struct pool *p, struct by_path *at)
{
	int error = service_metric(p->t, "direct_bytes", &at->direct);

	return error ? error : service_metric(p->t, "promoted_bytes", &at->copied);
}

static int check(struct pool *p)
{
	for (uint32_t i = 0; i < p->spec.blocks * PAGES; i++) {
		const struct tier_selection s = { .blocks = &p->block[i / PAGES], .count = 1,
						  .page = i % PAGES };
		struct tier_lease lease;
		int got = tier_lease_blocks(p->r, p->c, &s, &lease);
		uint64_t word = got == 1 ? *(const uint64_t *)lease.data : 0;

		tier_release_many(p->r, &lease, 1);
		if (got != 1 || word != pool_word(i / PAGES, i % PAGES))
			return got < 0 ? got : -EBADMSG;
	}
	return 0;
}

/* All blocks into an empty HBM: bytes a second. */
static int fetch(struct pool *p, double *gbps, struct by_path *by)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM };
	struct by_path before, after;
	char *reply CLEANUP_FREE = NULL;
	uint64_t from;
	int64_t got = 0;
	int error = tier_admin(p->t, "evict", "{\"context\":\"paths\",\"tier\":\"hbm\"}", &reply);

	if (!error)
		error = count_paths(p, &before);
	from = time_now_ns();
	ask.deadline_ns = from + DEADLINE_NS;
	if (!error)
		got = tier_fetch(p->c, p->block, p->spec.blocks, &ask);
	*gbps = (double)(p->spec.blocks * BLOCK_BYTES) / (double)(time_now_ns() - from);
	if (!error && got != p->spec.blocks)
		error = got < 0 ? (int)got : -ENODATA;
	if (!error)
		error = count_paths(p, &after);
	if (!error)
		error = check(p);
	if (error)
		return bench_failed("fetch to HBM", error);
	by->direct = after.direct - before.direct;
	by->copied = after.copied - before.copied;
	return by->direct + by->copied == p->spec.blocks * BLOCK_BYTES ? 0 : -EPROTO;
}

static int measure(struct bench *b, struct pool *both, struct pool *copies)
{
	char name[BENCH_TEXT], text[UNITS_TEXT_BYTES];
	const struct bench_figure figure = {
		"plan", name, "MiB", "all that was fetched", { BENCH_RATIO_AT_LEAST, 1.0 }
	};
	struct sample two = { 0 }, one = { 0 };
	struct by_path by = { 0 }, none;
	double carried, all = both->spec.blocks * BLOCK_BYTES / 1048576.0;
	int error = 0;

	for (uint32_t round = 0; round <= b->rounds && !error; round++) {
		double fast = 0, slow = 0;

		error = fetch(both, &fast, &by);
		if (!error)
			error = fetch(copies, &slow, &none);
		if (!error && (!by.direct || !by.copied || none.direct))
			error = bench_failed("a path that was not used", -EPROTO);
		if (!round)
			continue; /* memory is new, bandwidths are not known */
		sample_add(&two, fast);
		sample_add(&one, slow);
	}
	if (error)
		return error;
	carried = (double)(by.direct + by.copied) / 1048576.0;
	bench_say("plan: real bytes: %.1f GB/s by both paths, %.1f by copies alone; %.1f %% of the "
		  "bytes straight from the device",
		  sample_quantile(two.value, two.count, 0.5),
		  sample_quantile(one.value, one.count, 0.5), 100.0 * (double)by.direct / 1048576 /
								      carried);
	snprintf(name, sizeof(name), "real bytes: %s to HBM by two paths, right and once",
		 units_print_bytes(text, both->spec.blocks * BLOCK_BYTES));
	return bench_judge_exact(b->results, &figure, carried, all);
}

int paths_real(struct bench *b)
{
	static const char *const two[] = { "nvme.segment=64MiB", "hbm.direct=yes", NULL };
	static const char *const one[] = { "nvme.segment=64MiB", "hbm.direct=no", NULL };
	struct pool_spec spec = {
		.name = "paths",
		.pages_per_block = PAGES,
		.layers = PAGES,
		.page_bytes = PAGE_BYTES,
		.blocks = b->quick ? 64 : 256,
		.fill_pages = true,
		.put_blocks = 32,
		.set = two,
	};
	struct pool both, copies;
	int error;

	spec.hbm_bytes = spec.blocks * BLOCK_BYTES * 5 / 4;
	spec.cxl_bytes = spec.blocks * BLOCK_BYTES * 2;
	spec.nvme_bytes = spec.blocks * BLOCK_BYTES * 3;
	error = pool_open(&both, b, &spec);
	if (error)
		return error;
	spec.set = one;
	error = pool_open(&copies, b, &spec);
	if (!error) {
		error = measure(b, &both, &copies);
		pool_close(&copies);
	}
	pool_close(&both);
	return error;
}
