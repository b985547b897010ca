/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aging-churn: a day's work for a daemon, at a steady rate. Each operation is a prompt of eight
 * blocks, some much more often asked than others: what is found is fetched and read under leases,
 * what is missing is put. Now and then a prompt is deleted, a second connection comes and goes, a
 * context is made and removed. All prompts together are 750 MiB.
 *
 *   aging-churn --socket PATH --seconds N --rate OPERATIONS_A_SECOND
 *
 * Writes a line of JSON a second: operations so far, those that failed, p99 of a lease and of a
 * fetch in that second. Exit status 1: it could not begin, or nothing went well for a minute.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "libtier/base/hist.h"
#include "libtier/base/time.h"
#include "tier.h"

#define PROMPTS 6000u
#define BLOCKS 8u /* of a prompt */
#define PAGES 4u  /* of a block */
#define PAGE_BYTES 4096u
#define PATIENCE_S 60u
#define CONNECTIONS 1100u /* at first: a daemon keeps 7 KiB for each of 1,024 that it has seen */

struct churn {
	const char *socket;
	tier *t;
	tier_context *c;
	tier_reader *r;
	tier_geometry *g;
	uint64_t random, operations, failed;
	struct hist lease, fetch;
	uint8_t bytes[BLOCKS * PAGES * PAGE_BYTES];
};

/* Prompts by rank: the n-th is asked for about 1 / n as often as the first. */
static uint32_t choose(struct churn *w)
{
	double u = (double)(bench_random(&w->random) >> 11) * 0x1p-53;

	return (uint32_t)pow(PROMPTS, u) - 1;
}

static int keys_of(uint32_t prompt, tier_key key[BLOCKS])
{
	int error = 0;

	for (uint32_t i = 0; i < BLOCKS && !error; i++) {
		uint32_t name[2] = { prompt, i };

		error = tier_key_opaque(&key[i], name, sizeof(name), NULL);
	}
	return error;
}

/* ---- one prompt ---------------------------------------------------------------------------- */

static int put(struct churn *w, const tier_key *key, uint32_t from)
{
	const struct tier_put_options options = { .size = sizeof(options), .depth = from,
						  .parent = from ? &key[from - 1] : NULL };
	int64_t n;

	for (uint32_t i = 0; i < sizeof(w->bytes); i += PAGE_BYTES)
		memcpy(w->bytes + i, &key[i / (PAGES * PAGE_BYTES)], sizeof(*key));
	n = tier_put_copy(w->c, key + from, BLOCKS - from,
			  w->bytes + (size_t)from * PAGES * PAGE_BYTES, &options);
	return n < 0 ? (int)n : 0;
}

/* Every page says whose it is. */
static int read_blocks(struct churn *w, const tier_key *key, const struct tier_found *found,
		       uint32_t count)
{
	for (uint32_t i = 0; i < count * PAGES; i++) {
		uint64_t from = time_now_ns();
		struct tier_lease lease;
		int error = tier_lease_page(w->r, w->c, found[i / PAGES].block, i % PAGES, 0,
					    &lease);

		if (error == -ENODATA || error == -ESTALE)
			continue; /* it has left meanwhile */
		if (error)
			return error;
		hist_record(&w->lease, time_now_ns() - from);
		error = memcmp(lease.data, &key[i / PAGES], sizeof(*key)) ? -EILSEQ : 0;
		tier_release(w->r, &lease);
		if (error)
			return error;
	}
	return 0;
}

static int ask_prompt(struct churn *w, uint32_t prompt)
{
	struct tier_found found[BLOCKS];
	tier_block block[BLOCKS];
	tier_key key[BLOCKS];
	uint64_t from;
	int64_t n;
	int error = keys_of(prompt, key);

	if (error)
		return error;
	n = tier_match(w->c, key, BLOCKS, found);
	for (int64_t i = 0; i < n; i++)
		block[i] = found[i].block;
	from = time_now_ns();
	if (n > 0) {
		int64_t got = tier_fetch(w->c, block, (uint32_t)n, NULL);

		hist_record(&w->fetch, time_now_ns() - from);
		if (got < 0)
			return (int)got;
		error = read_blocks(w, key, found, (uint32_t)n);
	}
	if (n < 0 || error)
		return n < 0 ? (int)n : error;
	return n < BLOCKS ? put(w, key, (uint32_t)n) : 0;
}

/* ---- what happens now and then ------------------------------------------------------------- */

static int delete_prompt(struct churn *w)
{
	tier_key key[BLOCKS];
	int error = keys_of(choose(w), key);
	int64_t n = error ? error : tier_delete(w->c, key, BLOCKS);

	return n < 0 ? (int)n : 0;
}

static int connect_as(const struct churn *w, tier **t)
{
	const struct tier_connect_options options = { .size = sizeof(options),
						      .socket = w->socket,
						      .name = "churn" };

	return tier_connect(t, &options);
}

static int come_and_go(struct churn *w)
{
	tier_context *c = NULL;
	tier *t;
	int error = connect_as(w, &t);

	if (error)
		return error;
	error = tier_context_open(t, "aging", NULL, &c);
	tier_context_close(c);
	tier_close(t);
	return error;
}

static int make_and_remove(struct churn *w)
{
	const struct tier_context_options options = {
		.size = sizeof(options), .quota = { TIER_QUOTA_NONE, 8u << 20, TIER_QUOTA_NONE },
	};
	tier_context *c = NULL;
	int error = tier_context_create(w->t, "aging-scratch", w->g, &options, &c);

	tier_context_close(c);
	return error ? error : tier_context_remove(w->t, "aging-scratch");
}

static int operate(struct churn *w)
{
	uint64_t n = w->operations;

	if (n % 100 == 99)
		return delete_prompt(w);
	if (n % 5000 == 2500) /* before the next: that has this number, too */
		return make_and_remove(w);
	if (n % 1000 == 500)
		return come_and_go(w);
	return ask_prompt(w, choose(w));
}

/* ---- a second after the other -------------------------------------------------------------- */

static void sleep_until(uint64_t ns)
{
	const struct timespec at = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void tell(struct churn *w, uint32_t second)
{
	printf("{\"second\": %u, \"operations\": %llu, \"failed\": %llu, \"lease_p99_ns\": %llu, "
	       "\"fetch_p99_ns\": %llu}\n", second, (unsigned long long)w->operations,
	       (unsigned long long)w->failed, (unsigned long long)hist_quantile(&w->lease, .99),
	       (unsigned long long)hist_quantile(&w->fetch, .99));
	fflush(stdout);
	hist_init(&w->lease);
	hist_init(&w->fetch);
}

static int run(struct churn *w, uint32_t seconds, uint32_t rate)
{
	uint64_t from = time_now_ns();
	uint32_t bad_seconds = 0;
	int last = 0;

	for (uint32_t s = 0; s < seconds && bad_seconds < PATIENCE_S; s++) {
		uint64_t failed = w->failed, begun = w->operations;

		for (uint32_t i = 0; i < rate; i++) {
			int error = operate(w);

			w->operations++;
			w->failed += error != 0;
			last = error ? error : last;
			sleep_until(from + s * NS_PER_S + (i + 1) * NS_PER_S / rate);
		}
		bad_seconds = w->failed - failed == w->operations - begun ? bad_seconds + 1 : 0;
		tell(w, s);
	}
	if (w->failed)
		fprintf(stderr, "aging-churn: %llu of %llu operations failed; the last: %s\n",
			(unsigned long long)w->failed, (unsigned long long)w->operations,
			tier_strerror(last));
	return bad_seconds < PATIENCE_S ? 0 : 1;
}

static int begin(struct churn *w)
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = PAGES,
					.groups = 1, .page_bytes = PAGE_BYTES };
	const struct tier_geometry_options options = { .size = sizeof(options), .part = &part,
						       .part_count = 1, .block_tokens = 128 };
	int error = connect_as(w, &w->t);

	if (!error)
		error = tier_geometry_new(&w->g, &options);
	if (!error)
		error = tier_context_create(w->t, "aging", w->g, NULL, &w->c);
	if (!error)
		error = tier_reader_open(w->t, &w->r);
	for (uint32_t i = 0; i < CONNECTIONS && !error; i++)
		error = come_and_go(w);
	if (error)
		fprintf(stderr, "aging-churn: %s: %s\n", w->socket, tier_strerror(error));
	return error;
}

int main(int argc, char **argv)
{
	static const struct option table[] = { { "socket", 1, NULL, 's' },
					       { "seconds", 1, NULL, 'n' },
					       { "rate", 1, NULL, 'r' }, { 0 } };
	struct churn *w = calloc(1, sizeof(*w));
	uint32_t seconds = 60, rate = 1000;
	bool known = w != NULL;
	int c;

	while (known && (c = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (c == 's')
			w->socket = optarg;
		else if (c == 'n')
			seconds = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'r')
			rate = (uint32_t)strtoul(optarg, NULL, 10);
		else
			known = false;
	}
	if (!known || !w->socket || !rate || optind < argc) {
		fprintf(stderr, "usage: aging-churn --socket PATH --seconds N --rate N\n");
		free(w);
		return 2;
	}
	w->random = UINT64_C(0x9e3779b97f4a7c15);
	c = begin(w) ? 1 : run(w, seconds, rate);
	tier_reader_close(w->r);
	tier_context_close(w->c);
	tier_geometry_free(w->g);
	tier_close(w->t);
	free(w);
	return c;
}
