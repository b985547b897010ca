/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fairness: what a tenant with a steady working set loses when another one scans beside it. The
 * core alone in simulated time, memory only; what is counted are hits. Tenants are salts, contexts
 * or clients. Beside it the same load without tenants (both use the public salt): what sharing
 * costs when nobody keeps accounts.
 */
#include <errno.h>

#include "bench/bench.h"
#include "bench/space/corehost.h"

#define CXL (256u << 20)
#define SEGMENT (2u << 20)
#define PAGES 3u /* of 64 KiB, and one of 16: 208 KiB a block */
#define BLOCK_BYTES (PAGES * 65536u + 16384u)
#define BLOCKS (CXL / BLOCK_BYTES)
#define SCAN_FIRST (1ull << 32)
#define AGAIN_EVERY (BLOCKS / 4)

struct load {
	const char *name;
	bool tenants;     /* each has a salt of its own */
	bool contexts;    /* or a context of its own */
	bool clients;     /* or is a client with half of the tier for its share */
	uint32_t working; /* steady blocks, percent of the tier */
	uint32_t scans;   /* blocks scanned for each reference of the steady tenant */
	uint32_t room;    /* percent of the tier that the steady tenant runs in */
};

/* The scan comes back once to what it put lately, so that no policy can tell it by its uses. */
static void use_again(struct corehost *h, const struct corehost_block *scan)
{
	struct corehost_block past = *scan;

	for (uint32_t i = 1; i <= AGAIN_EVERY; i++) {
		past.key = scan->key - i;
		corehost_get(h, &past);
	}
}

/* The steady tenant's hit ratio in percent, once warm. */
static int run(const struct bench *b, const struct load *l, double *ratio)
{
	uint32_t working = BLOCKS * l->working / 100, rounds = b->quick ? 12 : 40;
	uint64_t random = 88172645463325252ull, hits = 0, asked = 0, scanned = 0;
	struct corehost_block steady = { .salt = l->tenants };
	struct corehost_block scan = { .context = l->contexts, .salt = l->tenants ? 2 : 0,
				       .client = l->clients };
	struct corehost h;
	int error = corehost_open(&h, (uint64_t)CXL * l->room / 100, SEGMENT);

	if (!error && l->clients)
		error = corehost_client(&h, 1);
	for (uint32_t i = 0; i < COREHOST_CLIENTS && l->clients && !error; i++)
		error = corehost_share(&h, i, CXL / 2);
	for (uint32_t i = 0; i < 1 + (uint32_t)l->contexts && !error; i++)
		error = corehost_context(&h, i, PAGES, 16384);
	for (uint64_t n = 0; n < (uint64_t)working * rounds && !error; n++) {
		int64_t rc = 1;

		steady.key = bench_random_below(&random, working);
		if (n > (uint64_t)working * rounds / 2) {
			asked++;
			hits += corehost_get(&h, &steady);
		} else {
			corehost_get(&h, &steady);
		}
		rc = corehost_put(&h, &steady);
		for (uint32_t k = 0; k < l->scans && rc >= 0; k++) {
			scan.key = SCAN_FIRST + scanned++;
			rc = corehost_put(&h, &scan);
			if (scanned % AGAIN_EVERY == 0)
				use_again(&h, &scan);
		}
		error = rc < 0 ? (int)rc : 0;
		corehost_advance(&h, COREHOST_MS);
	}
	if (!error && corehost_audit(&h))
		error = -EBADMSG;
	corehost_close(&h);
	*ratio = asked ? 100.0 * (double)hits / (double)asked : 0;
	return error;
}

static int compare(struct bench *b, const struct load *alone, const struct load *beside,
		   const struct load *without)
{
	double a = 0, with = 0, none = 0;
	char name[BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure figure = { "quota", name, "points", against,
					     { BENCH_VALUE_AT_MOST, 2 } };
	int error = run(b, alone, &a);

	if (!error)
		error = run(b, beside, &with);
	if (!error)
		error = run(b, without, &none);
	if (error)
		return bench_failed("quota", error);
	snprintf(name, sizeof(name), "hit ratio lost: %s (alone %.1f %%)", beside->name, a);
	snprintf(against, sizeof(against), "lost without accounts: %.1f %% left", none);
	return bench_judge_exact(b->results, &figure, a > with ? a - with : 0,
				 a > none ? a - none : 0);
}

int bench_quota(struct bench *b)
{
	static const struct load salts[3] = {
		{ "alone", true, false, false, 40, 0, 100 },
		{ "a salt beside a scan, set 40 % of CXL", true, false, false, 40, 4, 100 },
		{ "no salts", false, false, false, 40, 4, 100 },
	};
	static const struct load large[3] = {
		{ "alone in half of the tier", true, false, false, 80, 0, 50 },
		{ "a salt beside a scan, set 80 %, from its half", true, false, false, 80, 4, 100 },
		{ "no salts", false, false, false, 80, 4, 100 },
	};
	static const struct load contexts[3] = {
		{ "alone", false, false, false, 40, 0, 100 },
		{ "a context beside a scan, set 40 %", false, true, false, 40, 4, 100 },
		{ "one context", false, false, false, 40, 4, 100 },
	};
	static const struct load clients[3] = {
		{ "alone", false, false, false, 40, 0, 100 },
		{ "a client beside a scan, set 40 %", false, false, true, 40, 4, 100 },
		{ "no shares", false, false, false, 40, 4, 100 },
	};
	static const struct load half = {
		"a client beside a scan, set 80 %, from its half", false, false, true, 80, 4, 100
	};
	int error = compare(b, &salts[0], &salts[1], &salts[2]);

	/* More than its fair share, half of the tier: compared with itself in such a half. */
	if (!error)
		error = compare(b, &large[0], &large[1], &large[2]);
	if (!error)
		error = compare(b, &contexts[0], &contexts[1], &contexts[2]);
	if (!error)
		error = compare(b, &clients[0], &clients[1], &clients[2]);
	return error ? error : compare(b, &large[0], &half, &large[2]);
}
