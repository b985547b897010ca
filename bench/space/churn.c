/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space over simulated days: four contexts with pages of two sizes each, whose loads rise and fall
 * against each other; some blocks without their second part, some with a priority or a TTL, leases
 * held for seconds. Blocks are made up, or the prompts of a trace, spread over a day. Counted: how
 * much of CXL holds pages or could take whole blocks as it is; how long it takes until an idle
 * context has its share back while readers hold pages all over the memory of another, and how much
 * these readers keep. The core alone, in simulated time; a copy takes as long as it would at a
 * stated bandwidth, one after another.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/space/corehost.h"
#include "bench/space/prompt.h"
#include "bench/trace/trace.h"

#define CXL (1024u << 20)
#define SLAB (8u << 20)
#define CONTEXTS 4u
#define PAGES 4u
#define MINUTE (60000 * COREHOST_MS)
#define PUTS_A_MINUTE 400u
#define LEASES 64u
#define GB_S 8u /* of copies, client to CXL and within it: less than one copy thread does */
#define EMPTIED_MS 32u /* emptying a slab takes no longer: design.md, Eviction and leases */
#define DAYS 4u /* each with a seed of its own: one alone may be lucky */

struct lease {
	int at; /* negative = none */
	uint64_t until_ns;
};

struct day {
	struct corehost h;
	uint64_t random, put[CONTEXTS];
	const struct trace *trace; /* NULL = made up */
	size_t prompts; /* of it, served so far */
	struct lease lease[LEASES];
	double least; /* usable space in percent, at the looks of each simulated minute */
	uint32_t looks;
	uint64_t refused;
};

/* ---- usable space ------------------------------------------------------------------------- */

static double usable(const struct corehost *h, uint32_t contexts)
{
	struct core_stats all;
	double bytes;

	core_stats(h->core, &all);
	bytes = (double)(all.tier[ABI_TIER_CXL].capacity - all.tier[ABI_TIER_CXL].used);
	for (uint32_t i = 0; i < contexts; i++) {
		struct core_context_stats st;

		core_context_stats(h->core, h->context[i].id, &st);
		bytes += (double)st.tier[ABI_TIER_CXL].live +
			 (double)(st.fit * st.spec.geometry.block_bytes);
	}
	return 100 * bytes / (double)all.tier[ABI_TIER_CXL].capacity;
}

/* ---- a day -------------------------------------------------------------------------------- */

/* Loads turn round in six hours: at times one context has it all. */
static uint32_t whose_turn(struct day *d, uint32_t minute)
{
	uint32_t main = minute / 90 % CONTEXTS, dice = bench_random_below(&d->random, 100);

	return dice < 70 ? main : bench_random_below(&d->random, CONTEXTS);
}

static void leases_turn(struct day *d, const struct corehost_block *b)
{
	struct lease *l = &d->lease[bench_random_below(&d->random, LEASES)];

	if (l->at >= 0 && d->h.now_ns > l->until_ns) {
		corehost_release(&d->h, l->at);
		l->at = -1;
	}
	if (l->at < 0) {
		l->at = corehost_lease(&d->h, b);
		l->until_ns = d->h.now_ns + (1 + bench_random_below(&d->random, 30000)) *
						    COREHOST_MS;
	}
}

/* Whose, and how eagerly kept. */
static struct corehost_block day_block(struct day *d, uint32_t minute)
{
	struct corehost_block b = { .context = whose_turn(d, minute) };
	uint32_t dice = bench_random_below(&d->random, 100);

	b.salt = bench_random_below(&d->random, 3);
	b.priority = dice < 5 ? ABI_PRIORITY_HIGH : dice < 15 ? ABI_PRIORITY_LOW : 0;
	b.ttl_ms = dice < 30 ? 1 + bench_random_below(&d->random, 3600000) : 0;
	return b;
}

static void day_put(struct day *d, uint32_t minute)
{
	struct corehost_block b = day_block(d, minute);

	b.key = d->put[b.context]++;
	b.parts = (b.key / 512 + minute / 45) % 3 ? 0 : 1; /* long stretches without part 1 */
	if (corehost_put(&d->h, &b) != 1)
		d->refused++;
	b.key -= bench_random_below(&d->random, b.key < 600 ? (uint32_t)b.key + 1 : 600);
	if (corehost_get(&d->h, &b))
		leases_turn(d, &b);
}

static int day_prompt(struct day *d, uint32_t minute)
{
	const struct trace_request *r = &d->trace->request[d->prompts++];
	struct corehost_block b = day_block(d, minute);
	struct prompt_served served;
	int error;

	b.salt = 0; /* prefixes are shared */
	b.parts = (d->prompts / 64 + minute / 45) % 3 ? 0 : 1;
	error = prompt_serve(&d->h, &b, d->trace, r, &served);
	d->refused += served.refused;
	if (!r->id_count)
		return error;
	b.key = d->trace->id[r->id_first + bench_random_below(&d->random, r->id_count)];
	if (corehost_get(&d->h, &b))
		leases_turn(d, &b);
	return error;
}

static int day_minute(struct day *d, uint32_t minute, uint32_t minutes)
{
	uint64_t puts = PUTS_A_MINUTE;
	int error = 0;

	if (d->trace)
		puts = d->trace->request_count * (minute + 1ull) / minutes - d->prompts;
	if (!puts)
		corehost_advance(&d->h, MINUTE);
	for (uint64_t n = 0; n < puts && !error; n++) {
		if (d->trace)
			error = day_prompt(d, minute);
		else
			day_put(d, minute);
		corehost_advance(&d->h, MINUTE / puts);
	}
	return error;
}

static void look_at(struct day *d)
{
	double now = usable(&d->h, CONTEXTS);

	d->least = now < d->least ? now : d->least;
	d->looks++;
}

static int day_run(struct day *d, uint32_t minutes)
{
	int error = corehost_open(&d->h, CXL, SLAB);

	corehost_bandwidth(&d->h, GB_S * 1000000000ull);
	for (uint32_t i = 0; i < CONTEXTS && !error; i++)
		error = corehost_context(&d->h, i, PAGES, 8192u << i);
	for (uint32_t m = 0; m < minutes && !error; m++) {
		error = day_minute(d, m, minutes);
		if (error || m < 60)
			continue;
		look_at(d);
		if (m % 15 == 0 && corehost_audit(&d->h))
			error = -EBADMSG;
	}
	return error;
}

/* t: of its prompts; NULL = made up. */
static int the_day(struct bench *b, uint32_t which, const struct trace *t)
{
	struct day d = { .random = (which + 1) * 0x9e3779b97f4a7c15ull, .least = 100, .trace = t };
	char name[BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure figure = { "churn", name, "% of CXL", against,
					     { BENCH_RATIO_AT_LEAST, 0.95 } };
	const struct core_metrics *m;
	int error;

	for (uint32_t i = 0; i < LEASES; i++)
		d.lease[i].at = -1;
	error = day_run(&d, b->quick ? 240 : 1440);
	if (error) {
		corehost_close(&d.h);
		return bench_failed("churn", error);
	}
	m = core_metrics(d.h.core);
	snprintf(name, BENCH_TEXT, "usable space, least of %u looks at day %u%s (%llu refused)",
		 d.looks, which + 1, t ? ", the trace's prompts" : "",
		 (unsigned long long)d.refused);
	snprintf(against, BENCH_TEXT, "all of it; %llu pages moved, %llu put",
		 (unsigned long long)m->moved_pages,
		 (unsigned long long)(m->put_bytes / 65536));
	corehost_close(&d.h);
	return bench_judge_exact(b->results, &figure, d.least, 100);
}

/* ---- memory handed on under leases -------------------------------------------------------- */

struct hand_on {
	double ms;     /* until the other context has its share, but for what readers keep */
	double put_ms; /* what its bytes take at the bandwidth, */
	double moved_ms; /* and those of the first context that were copied meanwhile */
	double wait_ms;  /* the longest that one put took */
	double kept;     /* bytes a leased page keeps from it */
};

/* Context 0 fills all of CXL; a page in every slab is leased; then context 1 wants its share. */
static int hand_on(struct hand_on *out, uint32_t *leased)
{
	struct corehost_block b = { .context = 0 };
	struct core_context_stats one, other;
	uint32_t pages = CXL / 65536, every = SLAB / 65536 / PAGES;
	struct core_quota little = { .tier = ABI_TIER_CXL, .limit.hard = 2 * SLAB };
	struct corehost h;
	uint64_t begin, moved, put;
	int error = corehost_open(&h, CXL, SLAB);

	for (uint32_t i = 0; i < 2 && !error; i++)
		error = corehost_context(&h, i, PAGES, 8192);
	for (uint32_t n = 0; n < pages / PAGES + 100 && !error; n++, b.key++)
		corehost_put(&h, &b);
	for (uint64_t key = b.key; !error && key-- > 0 && *leased < LEASES;) {
		struct corehost_block at = { .context = 0, .key = key };

		*leased += key % every == 0 && corehost_lease(&h, &at) >= 0;
	}
	begin = h.now_ns;
	moved = h.copied;
	put = core_metrics(h.core)->put_bytes;
	corehost_bandwidth(&h, GB_S * 1000000000ull);
	for (b.context = 1; !error; b.key++) {
		uint64_t asked = h.now_ns;

		if (corehost_put(&h, &b) != 1)
			corehost_advance(&h, COREHOST_MS);
		out->wait_ms = fmax(out->wait_ms, (double)(h.now_ns - asked) / 1e6);
		core_context_stats(h.core, h.context[1].id, &one);
		if (one.tier[ABI_TIER_CXL].used + 2 * SLAB > one.tier[ABI_TIER_CXL].soft)
			break;
		if (h.now_ns - begin > 60000 * COREHOST_MS)
			error = -ETIME;
	}
	out->ms = (double)(h.now_ns - begin) / 1e6;
	out->put_ms = (double)(core_metrics(h.core)->put_bytes - put) / GB_S / 1e6;
	out->moved_ms = (double)(h.copied - moved) / GB_S / 1e6;
	/* It must give nearly all: what stays is what the readers keep. */
	little.context_id = h.context[0].id;
	if (!error)
		error = core_quota_set(h.core, &little, 0);
	corehost_advance(&h, 5000 * COREHOST_MS);
	core_context_stats(h.core, h.context[0].id, &other);
	out->kept = (double)other.tier[ABI_TIER_CXL].used;
	if (!error && corehost_audit(&h))
		error = -EBADMSG;
	corehost_close(&h);
	return error;
}

static int handing_on(struct bench *b)
{
	struct hand_on h = { 0 };
	uint32_t leased = 0, slabs = CXL / 2 / SLAB;
	char name[2][BENCH_TEXT], against[BENCH_TEXT];
	const struct bench_figure figures[] = {
		{ "churn", name[0], "ms", against, { BENCH_RATIO_AT_MOST, 1 } },
		{ "churn", "the longest wait of a put meanwhile", "ms",
		  "32 ms to empty a slab", { BENCH_RATIO_AT_MOST, 1 } },
		{ "churn", name[1], "bytes", "2 MiB for each, 16 MiB left it",
		  { BENCH_RATIO_AT_MOST, 1 } },
	};
	int error = hand_on(&h, &leased);
	const double value[] = { h.ms, h.wait_ms, h.kept };
	const double peer[] = { h.put_ms + h.moved_ms + slabs * EMPTIED_MS, EMPTIED_MS,
				(double)leased * (double)ABI_HUGE + 2.0 * SLAB };

	if (error)
		return bench_failed("churn", error);
	snprintf(name[0], BENCH_TEXT,
		 "half of CXL handed on under leases (%u GB/s: puts %.0f ms, moves %.0f)", GB_S,
		 h.put_ms, h.moved_ms);
	snprintf(against, BENCH_TEXT, "simulated; puts, moves, %u ms for each of %u slabs",
		 EMPTIED_MS, slabs);
	snprintf(name[1], BENCH_TEXT, "kept by %u leased pages in slabs of %u MiB", leased,
		 SLAB >> 20);
	for (uint32_t i = 0; i < sizeof(figures) / sizeof(figures[0]) && !error; i++)
		error = bench_judge_exact(b->results, &figures[i], value[i], peer[i]);
	return error;
}

int bench_churn(struct bench *b)
{
	struct trace *t = NULL;
	int error = bench_trace(&t, b, 0);

	for (uint32_t which = 0; which < DAYS && !error; which++)
		error = the_day(b, which, NULL);
	if (!error)
		error = the_day(b, DAYS, t);
	trace_close(t);
	return error ? error : handing_on(b);
}
