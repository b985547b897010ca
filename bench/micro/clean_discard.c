/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a store whose dead segments are discarded meanwhile, in the pauses between them: as fast
 * as of a store that discards nothing? Both are overwritten in order, so that half of what they
 * have room for is dead segments, and then read, in slices and in turns; a pause is as long as one
 * or two segments take, so every slice meets a daemon that is at it.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/micro/clean.h"
#include "bench/micro/pool.h"

#define FULL 40u /* percent */
#define BATCH 16u
#define PAUSE_NS (60 * NS_PER_MS)

static int overwrite(struct pool *p)
{
	uint32_t first[BATCH], n = 0;
	int error = 0;

	for (uint32_t i = 0; i < clean_prefixes(p) && !error; i++) {
		first[n++] = clean_prefix(i);
		if (n < BATCH && i + 1 < clean_prefixes(p))
			continue;
		error = pool_rewrite(p, first, n);
		n = 0;
	}
	return error ? error : pool_find(p);
}

/* p[0] last: it begins to discard at once. */
static int read_beside(struct pool *const p[2], uint32_t round, struct sample figure[2])
{
	uint64_t from = 0, to = 0;
	double gbps[2] = { 0 };
	int error = overwrite(p[1]);

	if (!error)
		error = overwrite(p[0]);
	if (!error)
		error = service_metric(p[0]->t, "discards", &from);
	if (!error)
		error = clean_read_both(p, round, PAUSE_NS, gbps);
	if (!error)
		error = service_metric(p[0]->t, "discards", &to);
	if (error)
		return error;
	bench_say("clean: %llu segments discarded between slices of reads",
		  (unsigned long long)(to - from));
	for (uint32_t k = 0; k < 2; k++)
		sample_add(&figure[k], gbps[k]);
	return to == from ? -EPROTO : 0;
}

/* New stores: in one that goes round, what is dead is needed for its tombstones. */
static int round_of(struct bench *b, uint32_t round, struct sample figure[2])
{
	struct pool with, without;
	struct pool *const both[2] = { &with, &without };
	int error = clean_open_store(&with, b, FULL, "nvme.discard=on");

	if (error)
		return error;
	error = clean_open_store(&without, b, FULL, "nvme.discard=off");
	if (error)
		goto close_with;
	error = read_beside(both, round, figure);
	pool_close(&without);
close_with:
	pool_close(&with);
	return error;
}

int clean_discards(struct bench *b)
{
	static const struct bench_figure figure = {
		"clean", "reads of 256 KiB prefixes, dead segments being discarded", "GB/s",
		"a store that discards nothing, in turns", { BENCH_RATIO_AT_LEAST, 0.9 }
	};
	struct sample of[2] = { 0 };
	int error = 0;

	for (uint32_t round = 0; round < b->rounds && !error; round++)
		error = round_of(b, round, of);
	return error ? bench_failed("reads beside discards", error)
		     : bench_judge(b->results, &figure, &of[0], &of[1]);
}
