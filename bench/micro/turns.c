/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ITME's turn sweep (bench/model/itme.h) with real bytes: a daemon, a store on this machine's
 * device, one engine whose computing is simulated by waiting, while every byte that it restores is
 * read and compared. Recomputation and copies take ITME's multiples of what the device needs for a
 * block here, measured first; with the device "half as fast" they take half of that.
 *
 * Three ways, with the same fast memory, through the same calls:
 *   offload  memory alone, LRU: what has gone is recomputed, and put again (ITME's baseline)
 *   demand   the same memory and NVMe, no foresight: a turn begins by fetching its whole prefix
 *   tier     ... the engine prefetches the next conversation's prefix by its time, and recomputes
 *            a block that is late
 * Blocks are written to staging while they are "computed". The ways take each turn one after the
 * other, so that what else the machine does meets all of them; a round is a sweep of all turns by
 * daemons of its own. A turn takes milliseconds, and on a busy machine waiting for the clock is off
 * by as much: so single turns are judged by their median over the rounds, by what became of their
 * blocks, restored or recomputed at the stated times, and by the clock. In the first ones all fits
 * in memory and both do the same, so the clock is asked of those behind.
 */
#include "bench/micro/turns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "bench/micro/pool.h"
#include "bench/model/itme.h"
#include "libtier/base/cleanup.h"

#define PAGE_BYTES 65536u
#define PAGES 4u
#define BLOCK_BYTES ((uint64_t)PAGE_BYTES * PAGES)
#define WORDS (PAGE_BYTES / 8)
#define DEADLINE_NS (20 * NS_PER_S)
#define PROBE_BLOCKS 256u /* read to see how fast the device is, */
#define PROBE_PIECE 64u   /* so many at a time */

enum way { WAY_OFFLOAD, WAY_DEMAND, WAY_TIER, WAYS };

/* The last one is left out at other speeds, and of the quick form. */
static const enum way way_order[WAYS] = { WAY_OFFLOAD, WAY_TIER, WAY_DEMAND };
static const char *const way_name[WAYS] = { "offload", "demand", "tier" };

struct sweep {
	struct pool p;
	enum way way;
	double recompute_ns;
	uint64_t until_ns; /* the engine is busy */
	uint32_t turn; /* it is at */
	uint32_t restored[ITME_TURNS + 1]; /* blocks, by turn */
	uint32_t recomputed[ITME_TURNS + 1];
	double seconds[ITME_TURNS + 1];
};

static uint32_t number(uint32_t talk, uint32_t block)
{
	return talk * ITME_BLOCKS + block;
}

/* ---- the engine ---------------------------------------------------------------------------- */

/* It is busy for so long from when it was free; what it did meanwhile cost nothing more. */
static void compute(struct sweep *s, double ns)
{
	uint64_t now = time_now_ns();
	struct timespec until;

	s->until_ns += (uint64_t)ns;
	if (now >= s->until_ns) {
		s->until_ns = now;
		return;
	}
	until = (struct timespec){ (time_t)(s->until_ns / NS_PER_S),
				   (long)(s->until_ns % NS_PER_S) };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static int take_answers(struct sweep *s)
{
	struct tier_completion got[32];
	int n;

	while ((n = tier_poll(s->p.t, got, 32)) > 0)
		for (int i = 0; i < n; i++)
			if (got[i].result)
				return bench_failed("a request", got[i].result);
	return n < 0 ? bench_failed("tier_poll", n) : 0;
}

static int put(struct sweep *s, uint32_t first, uint32_t count, uint32_t depth)
{
	tier_key key[ITME_NEW_BLOCKS], parent;
	const struct tier_put_options options = { .size = sizeof(options), .depth = depth,
						  .parent = depth ? &parent : NULL };
	tier_put *put;
	int error;

	for (uint32_t i = 0; i < count; i++)
		pool_key(&key[i], first + i);
	pool_key(&parent, first - 1);
	/* -EDQUOT: as many are under way as a client may have. */
	while ((error = tier_put_begin(s->p.c, key, count, &options, &put)) == -EAGAIN ||
	       error == -ENOBUFS || error == -EDQUOT)
		if ((error = take_answers(s)))
			return error;
	if (error)
		return bench_failed("tier_put_begin", error);
	for (uint32_t i = 0; i < count * PAGES; i++) {
		uint64_t *page = tier_put_data(put, i / PAGES, 0, i % PAGES, 0);

		for (uint32_t w = 0; w < WORDS; w++)
			page[w] = pool_word(first + i / PAGES, i % PAGES) + w;
	}
	while ((error = tier_put_commit(put, 1)) == -EAGAIN)
		if ((error = take_answers(s)))
			return error;
	return error ? bench_failed("tier_put_commit", error) : 0;
}

/* Read every byte of a block, as a copy to the GPU would. 1 there, 0 not, negative errno. */
static int restore(struct sweep *s, uint32_t n)
{
	struct tier_page page[PAGES];
	struct tier_lease lease[PAGES];
	struct tier_found found;
	tier_key key;
	int got, wrong = 0;

	pool_key(&key, n);
	if (tier_match(s->p.c, &key, 1, &found) != 1)
		return 0;
	for (uint32_t i = 0; i < PAGES; i++)
		page[i] = (struct tier_page){ .block = found.block, .page = i };
	got = tier_lease_pages(s->p.r, s->p.c, page, PAGES, 0, lease);
	for (uint32_t i = 0; i < PAGES && got == (int)PAGES; i++) {
		const uint64_t *from = lease[i].data;
		uint64_t differ = 0;

		for (uint32_t w = 0; w < WORDS; w++)
			differ |= from[w] ^ (pool_word(n, i) + w);
		wrong |= differ != 0;
	}
	if (got > 0)
		tier_release_many(s->p.r, lease, PAGES);
	if (wrong)
		return bench_failed("a block with wrong bytes", -EBADMSG);
	return got == (int)PAGES;
}

/* ---- a turn -------------------------------------------------------------------------------- */

static uint32_t refs_of(struct sweep *s, uint32_t talk, uint32_t count, tier_block *block)
{
	tier_key key[ITME_BLOCKS];
	struct tier_found found[ITME_BLOCKS];
	int64_t n;

	for (uint32_t i = 0; i < count; i++)
		pool_key(&key[i], number(talk, i));
	n = count ? tier_match(s->p.c, key, count, found) : 0;
	for (int64_t i = 0; i < n; i++)
		block[i] = found[i].block;
	return n > 0 ? (uint32_t)n : 0;
}

static int prefetch_next(struct sweep *s, uint32_t talk, uint32_t turn)
{
	uint32_t next = (talk + 1) % ITME_TALKS, its = turn + !next;
	double turn_ns = s->recompute_ns *
			 ((turn - 1) * ITME_NEW_BLOCKS * ITME_COPY + ITME_WORK);
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL,
				      .deadline_ns = time_now_ns() + (uint64_t)turn_ns };
	tier_block block[ITME_BLOCKS];
	uint32_t count = its > ITME_TURNS ? 0 :
					  refs_of(s, next, (its - 1) * ITME_NEW_BLOCKS, block);
	int error = count ? tier_prefetch(s->p.c, block, count, &ask) : 0;

	return error ? bench_failed("tier_prefetch", error) : 0;
}

static int fetch_all(struct sweep *s, uint32_t talk, uint32_t count)
{
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL,
				      .deadline_ns = time_now_ns() + DEADLINE_NS };
	tier_block block[ITME_BLOCKS];
	int64_t n = refs_of(s, talk, count, block);

	if (n)
		n = tier_fetch(s->p.c, block, (uint32_t)n, &ask);
	s->until_ns = time_now_ns(); /* the engine waited */
	return n < 0 ? bench_failed("tier_fetch", (int)n) : 0;
}

static int one_block(struct sweep *s, uint32_t talk, uint32_t block)
{
	int there = restore(s, number(talk, block)), error = 0;

	if (there < 0)
		return there;
	s->restored[s->turn] += there;
	s->recomputed[s->turn] += !there;
	if (!there && s->way == WAY_OFFLOAD)
		error = put(s, number(talk, block), 1, block);
	compute(s, s->recompute_ns * (there ? ITME_COPY : 1));
	return error ? error : take_answers(s);
}

static int one_turn(struct sweep *s, uint32_t talk, uint32_t turn)
{
	uint32_t prefix = (turn - 1) * ITME_NEW_BLOCKS;
	uint64_t from = time_now_ns();
	int error = 0;

	s->turn = turn;
	s->until_ns = from;
	if (s->way == WAY_TIER)
		error = prefetch_next(s, talk, turn);
	if (s->way == WAY_DEMAND)
		error = fetch_all(s, talk, prefix);
	for (uint32_t i = 0; i < prefix && !error; i++)
		error = one_block(s, talk, i);
	if (!error)
		error = put(s, number(talk, prefix), ITME_NEW_BLOCKS, prefix);
	compute(s, s->recompute_ns * ITME_WORK);
	s->seconds[turn] += (double)(time_now_ns() - from) / 1e9;
	return error ? error : take_answers(s);
}

/* ---- a sweep ------------------------------------------------------------------------------- */

static struct pool_spec spec_of(enum way way)
{
	static const char *const set[] = { "nvme.segment=64MiB", NULL };
	uint64_t fast = (uint64_t)(ITME_FULL_TURNS * ITME_TALKS * ITME_NEW_BLOCKS) * BLOCK_BYTES;

	return (struct pool_spec){
		.name = "turns",
		.pages_per_block = PAGES,
		.layers = PAGES,
		.page_bytes = PAGE_BYTES,
		.blocks_max = ITME_TALKS * ITME_BLOCKS,
		.policy = way == WAY_OFFLOAD ? "lru" : NULL,
		.cxl_bytes = fast,
		.nvme_bytes = way == WAY_OFFLOAD ? 0 :
						   2 * ITME_TALKS * ITME_BLOCKS * BLOCK_BYTES,
		.set = set,
	};
}

static int turn_of_all(struct sweep *s, uint32_t turn)
{
	int error = 0;

	for (uint32_t talk = 0; talk < ITME_TALKS && !error; talk++)
		error = one_turn(s, talk, turn);
	return error;
}

static void tell(const struct sweep *s)
{
	uint32_t restored = 0, recomputed = 0;

	for (uint32_t turn = 1; turn <= ITME_TURNS; turn++) {
		restored += s->restored[turn];
		recomputed += s->recomputed[turn];
	}
	bench_say("turns: %s: %u blocks restored and right, %u recomputed", way_name[s->way],
		  restored, recomputed);
}

/* All turns, in `ways` ways. */
static int sweep(struct bench *b, struct sweep *s, double recompute_ns, uint32_t ways)
{
	uint32_t open = 0;
	int error = 0;

	for (; open < ways && !error; open += !error) {
		const struct pool_spec spec = spec_of(way_order[open]);

		s[way_order[open]].way = way_order[open];
		s[way_order[open]].recompute_ns = recompute_ns;
		error = pool_open(&s[way_order[open]].p, b, &spec);
	}
	for (uint32_t turn = 1; turn <= ITME_TURNS && !error; turn++)
		for (uint32_t i = 0; i < ways && !error; i++)
			error = turn_of_all(&s[way_order[(i + turn) % ways]], turn);
	for (uint32_t i = 0; i < open; i++)
		pool_close(&s[way_order[i]].p);
	return error;
}

/* How long the device takes for a block of those that turns put, read as they are read. */
static int probe(struct bench *b, double *block_ns)
{
	struct pool_spec spec = spec_of(WAY_DEMAND);
	struct sample took = { 0 };
	struct pool p;
	int error;

	spec.blocks = PROBE_BLOCKS;
	spec.put_blocks = ITME_NEW_BLOCKS;
	spec.cxl_bytes = 2 * PROBE_BLOCKS * BLOCK_BYTES;
	spec.fill_pages = true;
	error = pool_open(&p, b, &spec);
	if (error)
		return error;
	for (uint32_t round = 0; round < 5 && !error; round++) {
		char *reply CLEANUP_FREE = NULL;
		uint64_t from;

		error = tier_admin(p.t, "evict", "{\"context\":\"turns\",\"tier\":\"cxl\"}",
				   &reply);
		from = time_now_ns();
		for (uint32_t at = 0; at < PROBE_BLOCKS && !error; at += PROBE_PIECE)
			error = tier_fetch(p.c, &p.block[at], PROBE_PIECE, NULL) == PROBE_PIECE ?
					0 : -EIO;
		sample_add(&took, (double)(time_now_ns() - from) / PROBE_BLOCKS);
	}
	if (!error)
		*block_ns = sample_quantile(took.value, took.count, 0.5);
	else
		bench_failed("reading from NVMe", error);
	pool_close(&p);
	return error;
}

/* ---- the rows ------------------------------------------------------------------------------ */

/* Times the offload's speed, by turn: by what became of its blocks, or by the clock. */
struct single {
	struct sample turn[ITME_TURNS + 1];
};

struct figures {
	struct single blocks, clock;
	struct sample late[WAYS], all[WAYS]; /* turns a second, of many turns */
};

/* What a turn of all conversations comes to, in recomputations of a block. */
static double cost(const struct sweep *s, uint32_t turn)
{
	return s->restored[turn] * ITME_COPY + s->recomputed[turn] + ITME_TALKS * ITME_WORK;
}

static double by_blocks(const struct sweep *s, uint32_t turn)
{
	return cost(&s[WAY_OFFLOAD], turn) / cost(&s[WAY_TIER], turn);
}

static double by_clock(const struct sweep *s, uint32_t turn)
{
	return s[WAY_OFFLOAD].seconds[turn] / s[WAY_TIER].seconds[turn];
}

static double speed_from(const struct sweep *s, uint32_t from)
{
	double seconds = 0;

	for (uint32_t k = from; k <= ITME_TURNS; k++)
		seconds += s->seconds[k];
	return ITME_TALKS * (ITME_TURNS + 1 - from) / seconds;
}

static void note(struct figures *f, const struct sweep *s, uint32_t ways)
{
	for (uint32_t k = 1; k <= ITME_TURNS; k++) {
		sample_add(&f->blocks.turn[k], by_blocks(s, k));
		sample_add(&f->clock.turn[k], by_clock(s, k));
	}
	for (uint32_t i = 0; i < ways; i++) {
		enum way way = way_order[i];

		sample_add(&f->late[way], speed_from(&s[way], ITME_LATE_TURN));
		sample_add(&f->all[way], speed_from(&s[way], 1));
	}
}

/* A turn in one round: that may be the machine's doing, so it is told and not judged. */
static void tell_worst_once(const struct single *s, uint32_t from, const char *how)
{
	uint32_t turn = from, round = 0;

	for (uint32_t k = from; k <= ITME_TURNS; k++)
		for (uint32_t i = 0; i < s->turn[k].count; i++)
			if (s->turn[k].value[i] < s->turn[turn].value[round]) {
				turn = k;
				round = i;
			}
	bench_say("turns: real bytes: the worst that one of turns %u-%u was in one round: %.3f %s "
		  "(turn %u, round %u)", from, ITME_TURNS, s->turn[turn].value[round], how, turn,
		  round + 1);
}

/* Of single turns, each by the median of its rounds, the worst. */
struct worst {
	const struct single *of;
	const char *how;
	uint32_t from;
	double least;
};

static int row_worst(struct bench *b, const struct worst *w, double device)
{
	uint32_t at = w->from + sample_lowest(&w->of->turn[w->from], ITME_TURNS + 1 - w->from);
	struct sample offload = { .count = w->of->turn[at].count };
	char name[BENCH_TEXT];
	const struct bench_figure figure = { "turns", name, "x",
					     "conventional offload, same fast memory",
					     { BENCH_RATIO_AT_LEAST, w->least } };

	for (uint32_t round = 0; round < offload.count; round++)
		offload.value[round] = 1;
	snprintf(name, sizeof(name), "real bytes: worst of turns %u-%u (turn %u) %s, device x %.1f",
		 w->from, ITME_TURNS, at, w->how, device);
	tell_worst_once(w->of, w->from, w->how);
	return bench_judge(b->results, &figure, &w->of->turn[at], &offload);
}

static int rows(struct bench *b, const struct figures *f, double device)
{
	const struct worst worst[] = {
		{ &f->blocks, "by blocks", 1, 1 },
		{ &f->blocks, "by blocks", ITME_LATE_TURN, ITME_GAIN },
		{ &f->clock, "by the clock", ITME_FITS + 1, 1 },
	};
	char name[BENCH_TEXT];
	const struct bench_figure late = { "turns", name, "turns/s",
					   "conventional offload, same fast memory",
					   { BENCH_RATIO_AT_LEAST, ITME_GAIN } };
	const struct bench_figure demand = { "turns", "real bytes: turns 1-35 by the clock",
					     "turns/s", "the prefix fetched at the turn's start",
					     { BENCH_RATIO_AT_LEAST, 1 } };
	int error = 0;

	for (uint32_t n = 0; n < sizeof(worst) / sizeof(worst[0]) && !error; n++)
		error = row_worst(b, &worst[n], device);
	snprintf(name, sizeof(name), "real bytes: turns %u-%u by the clock, device x %.1f",
		 ITME_LATE_TURN, ITME_TURNS, device);
	if (!error)
		error = bench_judge(b->results, &late, &f->late[WAY_TIER], &f->late[WAY_OFFLOAD]);
	if (error || !f->all[WAY_DEMAND].count)
		return error;
	return bench_judge(b->results, &demand, &f->all[WAY_TIER], &f->all[WAY_DEMAND]);
}

static void tell_round(const struct sweep *s, uint32_t ways, double device)
{
	for (uint32_t i = 0; i < ways; i++)
		tell(&s[way_order[i]]);
	for (uint32_t k = 5; k <= ITME_TURNS; k += 5)
		bench_say("turns: real bytes, device x %.1f, turn %u: %.3f times the offload's "
			  "speed by blocks, %.3f by the clock; %u of %u were late", device, k,
			  by_blocks(s, k), by_clock(s, k), s[WAY_TIER].recomputed[k],
			  (k - 1) * ITME_NEW_BLOCKS * ITME_TALKS);
}

static int at_speed(struct bench *b, double device, double recompute_ns)
{
	struct figures *f CLEANUP_FREE = calloc(1, sizeof(*f));
	bool once = device > 0.99 && device < 1.01;
	uint32_t ways = once && !b->quick ? WAYS : WAYS - 1;
	int error = f ? 0 : -ENOMEM;

	for (uint32_t round = 0; round < b->rounds && !error; round++) {
		struct sweep *s CLEANUP_FREE = calloc(WAYS, sizeof(*s));

		error = s ? sweep(b, s, recompute_ns, ways) : -ENOMEM;
		if (!error && !round)
			tell_round(s, ways, device);
		if (!error)
			note(f, s, ways);
	}
	return error ? error : rows(b, f, device);
}

int turns_real(struct bench *b)
{
	static const double devices[] = { 1, 0.5, 2 };
	double block_ns = 0;
	int error;

	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	error = probe(b, &block_ns);
	if (!error)
		bench_say("turns: real bytes: the device takes %.0f us for a block of %llu KiB",
			  block_ns / 1e3, (unsigned long long)BLOCK_BYTES >> 10);
	for (uint32_t i = 0; i < (b->quick ? 1 : 3) && !error; i++)
		error = at_speed(b, devices[i], devices[i] * block_ns / ITME_DEVICE);
	return error;
}
