/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleaning of the durable log of a daemon: what it writes for each byte that is put into a store
 * which is 70, 85 and 95% full, prefixes being deleted and put again at random; and whether a store
 * that was overwritten ten times reads as fast as one that was written once, both asked in turns.
 * The trace, and the cache log, are in clean_trace.c; reads beside discards in clean_discard.c.
 *
 * Uniform overwriting is the worst case for a log: nothing is colder than anything else. The peer
 * is what oldest-first cleaning of such a log writes, by calculation (Menon 1995): with a share u
 * of the log live, a segment has the share v left when its turn comes, u = (v - 1) / ln v, and each
 * byte costs 1 / (1 - v). The segments that are kept free or open count as part of the log.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "bench/micro/clean.h"
#include "bench/micro/pool.h"
#include "libtier/base/cleanup.h"

#define MIB (1ull << 20)
#define PAGE_BYTES CLEAN_PAGE_BYTES
#define PREFIX_BLOCKS 4u /* blocks of one page: 256 KiB are put, deleted and fetched at a time */
#define PREFIX_BYTES ((uint64_t)PREFIX_BLOCKS * PAGE_BYTES)
#define SEGMENT_PREFIXES (CLEAN_SEGMENT_BLOCKS / PREFIX_BLOCKS)
#define BATCH 16u	 /* prefixes deleted and put again at a time */
#define AHEAD 8u
#define SLICE 64u /* prefixes read of one store at a time: 16 MiB */
#define ROUNDS 3u /* of reading, for each that was asked for: they are short */
#define WAIT_NS (30 * NS_PER_S)

const uint32_t clean_full[CLEAN_FILLS] = { 70, 85, 95 };

static uint64_t store_bytes(const struct bench *b)
{
	return (b->quick ? 256 : 768) * MIB;
}

static uint32_t segments(const struct bench *b)
{
	return (uint32_t)((store_bytes(b) - CLEAN_OVERHEAD_BYTES) / CLEAN_SEGMENT_BYTES);
}

static uint32_t prefixes_of(const struct bench *b, uint32_t percent)
{
	return segments(b) * SEGMENT_PREFIXES * percent / 100;
}

int clean_open_store(struct pool *p, struct bench *b, uint32_t percent, const char *discard)
{
	const char *const set[] = { "nvme.segment=2MiB", discard, NULL };
	const struct pool_spec spec = {
		.name = "clean",
		.pages_per_block = 1,
		.page_bytes = PAGE_BYTES,
		.blocks = prefixes_of(b, percent) * PREFIX_BLOCKS,
		.put_blocks = PREFIX_BLOCKS,
		.cxl_bytes = 64 * MIB,
		.nvme_bytes = store_bytes(b),
		.set = set,
		.fill_pages = true,
	};

	return pool_open(p, b, &spec);
}

uint32_t clean_prefixes(const struct pool *p)
{
	return p->spec.blocks / PREFIX_BLOCKS;
}

uint32_t clean_prefix(uint32_t i)
{
	return i * PREFIX_BLOCKS;
}

/* ---- overwriting --------------------------------------------------------------------------- */

/* BATCH different prefixes. */
static void choose(struct pool *p, uint64_t *random, uint32_t first[BATCH])
{
	for (uint32_t n = 0; n < BATCH;) {
		uint32_t k = 0;

		first[n] = bench_random_below(random, p->spec.blocks / PREFIX_BLOCKS) *
			   PREFIX_BLOCKS;
		while (first[k] != first[n])
			k++;
		n += k == n;
	}
}

/* Put `bytes` again, at random. */
static int overwrite(struct pool *p, uint64_t bytes, uint64_t *random)
{
	uint32_t first[BATCH];
	int error = 0;

	for (uint64_t done = 0; done < bytes && !error; done += BATCH * PREFIX_BYTES) {
		choose(p, random, first);
		error = pool_rewrite(p, first, BATCH);
	}
	return error;
}

/* Bytes that clients put, that the store wrote for them, and of these the cleaner's. */
struct bytes {
	uint64_t put, data, cleaned, records;
};

static int read_bytes(struct pool *p, struct bytes *out)
{
	int error = service_metric(p->t, "put_bytes", &out->put);

	if (!error)
		error = service_metric(p->t, "written_bytes", &out->data);
	if (!error)
		error = service_metric(p->t, "cleaned_bytes", &out->cleaned);
	return error ? error : service_metric(p->t, "record_bytes", &out->records);
}

double clean_oldest_first(double u)
{
	double v = u;

	for (uint32_t i = 0; i < 200; i++) /* v = 1 + u ln v, by iteration from below */
		v = exp((v - 1) / u);
	return 1 / (1 - v);
}

static int amplification(struct bench *b, struct pool *p, uint32_t percent)
{
	uint64_t live = (uint64_t)p->spec.blocks * PAGE_BYTES;
	uint64_t random = UINT64_C(0x2545f4914f6cdd1d) + percent;
	char name[BENCH_TEXT];
	struct bytes from = { 0 }, to = { 0 };
	const struct bench_figure figure = {
		"clean", name, "B/B", "oldest-first cleaning, by calculation",
		{ BENCH_RATIO_AT_MOST, 1.1 }
	};
	int error = overwrite(p, live + live / 2, &random); /* until it is as it stays */

	if (!error)
		error = read_bytes(p, &from);
	if (!error)
		error = overwrite(p, live, &random);
	if (!error)
		error = read_bytes(p, &to);
	if (error)
		return bench_failed("overwriting", error);
	snprintf(name, sizeof(name), "bytes written a byte put, %u%% full, durable log, at random",
		 percent);
	bench_say("clean: %u%% full: data %.2f, of it the cleaner %.2f, records %.2f a byte put",
		  percent, (double)(to.data - from.data + to.cleaned - from.cleaned) /
				   (double)(to.put - from.put),
		  (double)(to.cleaned - from.cleaned) / (double)(to.put - from.put),
		  (double)(to.records - from.records) / (double)(to.put - from.put));
	return bench_judge_exact(b->results, &figure,
				 (double)(to.data - from.data + to.cleaned - from.cleaned +
					  to.records - from.records) /
					 (double)(to.put - from.put),
				 clean_oldest_first(percent / 100.0));
}

/* ---- reading ------------------------------------------------------------------------------- */

static int ask(struct pool *p, uint32_t prefix)
{
	const struct tier_ask what = { .size = sizeof(what), .tier = TIER_CXL, .user_data = 1 };

	return tier_fetch_start(p->c, &p->block[prefix * PREFIX_BLOCKS], PREFIX_BLOCKS, &what);
}

static int take(struct pool *p)
{
	struct tier_completion got;
	int n = tier_wait(p->t, &got, 1, 1, WAIT_NS);

	if (n < 1)
		return n < 0 ? n : -ETIMEDOUT;
	if (got.result)
		return got.result;
	return got.value == PREFIX_BLOCKS ? 0 : -ENODATA;
}

/* n prefixes, some ahead of the answers. */
static int read_slice(struct pool *p, const uint32_t *prefix, uint32_t n, uint64_t *ns)
{
	uint64_t from = time_now_ns();
	uint32_t ahead = 0;
	int error = 0;

	for (uint32_t i = 0; i < n && !error; i++) {
		error = ahead == AHEAD ? take(p) : 0;
		ahead -= ahead == AHEAD;
		if (!error)
			error = ask(p, prefix[i]);
		ahead++;
	}
	for (; ahead && !error; ahead--)
		error = take(p);
	*ns += time_now_ns() - from;
	return error;
}

/* From here on its blocks are on the device alone. */
static int reads_begin(struct pool *p, uint64_t *read_bytes)
{
	char *reply CLEANUP_FREE = NULL;
	int error = tier_admin(p->t, "evict", "{\"context\":\"clean\",\"tier\":\"cxl\"}", &reply);

	return error ? error : service_metric(p->t, "read_bytes", read_bytes);
}

/* Did what was read come from there? */
static int reads_end(struct pool *p, uint64_t read_bytes)
{
	uint64_t now = 0;
	int error = service_metric(p->t, "read_bytes", &now);

	if (error)
		return error;
	return now - read_bytes < (uint64_t)p->spec.blocks * PAGE_BYTES / 10 * 9 ? -EPROTO : 0;
}

static uint32_t *shuffled(uint32_t count, uint64_t seed)
{
	uint32_t *order = calloc(count, sizeof(*order));

	for (uint32_t i = 0; i < count && order; i++) {
		uint32_t k = bench_random_below(&seed, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	return order;
}

/*
 * All prefixes of two stores once, shuffled, from the device: slices of the one and of the other,
 * so that what the device does meanwhile meets both, and a pause before each. GB/s of each.
 */
int clean_read_both(struct pool *const p[2], uint32_t round, uint64_t pause_ns, double gbps[2])
{
	const struct timespec pause = { .tv_nsec = (long)pause_ns };
	uint32_t prefixes = p[0]->spec.blocks / PREFIX_BLOCKS;
	uint32_t *order CLEANUP_FREE = shuffled(prefixes, UINT64_C(0x589965cc75374cc3) + round);
	uint64_t before[2] = { 0 }, ns[2] = { 0 };
	int error = order ? reads_begin(p[0], &before[0]) : -ENOMEM;

	if (!error)
		error = reads_begin(p[1], &before[1]);
	for (uint32_t at = 0, turn = round; at < prefixes && !error; at += SLICE, turn++) {
		uint32_t n = prefixes - at < SLICE ? prefixes - at : SLICE;

		for (uint32_t k = 0; k < 2 && !error; k++) {
			uint32_t which = (turn + k) % 2;

			if (pause_ns)
				nanosleep(&pause, NULL);
			error = read_slice(p[which], order + at, n, &ns[which]);
		}
	}
	for (uint32_t k = 0; k < 2 && !error; k++) {
		error = reads_end(p[k], before[k]);
		gbps[k] = (double)prefixes * PREFIX_BYTES / (double)ns[k];
	}
	return error;
}

static int reads(struct bench *b, struct pool *old)
{
	static const struct bench_figure figure = {
		"clean", "reads of 256 KiB prefixes, ten times overwritten", "GB/s",
		"a store written once, in turns", { BENCH_RATIO_AT_LEAST, 0.9 }
	};
	struct sample value = { 0 }, peer = { 0 };
	struct pool fresh;
	struct pool *const both[2] = { old, &fresh };
	int error = clean_open_store(&fresh, b, 70, NULL);

	if (error)
		return error;
	for (uint32_t round = 0; round < ROUNDS * b->rounds && !error; round++) {
		double gbps[2] = { 0 };

		error = clean_read_both(both, round, 0, gbps);
		sample_add(&value, gbps[0]);
		sample_add(&peer, gbps[1]);
	}
	pool_close(&fresh);
	return error ? bench_failed("reads of an overwritten store", error)
		     : bench_judge(b->results, &figure, &value, &peer);
}

/* What was overwritten 2.5 times to see what that costs is overwritten on, to ten times. */
static int reads_after(struct bench *b, struct pool *p)
{
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
	int error = overwrite(p, (uint64_t)p->spec.blocks * PAGE_BYTES * 15 / 2, &random);

	if (!error)
		error = pool_find(p);
	return error ? bench_failed("overwriting ten times", error) : reads(b, p);
}

int bench_clean(struct bench *b)
{
	int error = clean_discards(b);

	if (!error)
		error = clean_trace(b);
	for (uint32_t i = 0; i < CLEAN_FILLS && !error; i++) {
		struct pool p;

		error = clean_open_store(&p, b, clean_full[i], NULL);
		if (error)
			return error;
		error = amplification(b, &p, clean_full[i]);
		if (error)
			service_tell_log(&p.service);
		if (!error && i == 0)
			error = reads_after(b, &p);
		pool_close(&p);
	}
	return error;
}
