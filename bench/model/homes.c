/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Homes of anchors (tierd/net/homes.h) in a fleet of 1,000 modelled hosts; the code is the real
 * one, the network and etcd are not there. One home at full size: what it weighs and forgets, and
 * what looking up costs with decoding the question and making the answer, without the socket. All
 * of them, smaller: a tenth of the hosts dies at once, and what the others hold is looked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "libtier/base/time.h"
#include "tierd/net/homes.h"
#include "tierd/net/proto.h"

#define HOSTS 1000u
#define GONE 100u
#define BLOCKS 900000u /* a host's */
#define PROBES 200000u
#define PROBES_S 38000.0 /* a core: ten times what 100 prompts/s a host come to */
#define SAMPLES 4000u

/* The model of etcd: leases and looks, as tierd-net has them by default. */
#define LEASE_MS 5000u
#define LOOK_MS (LEASE_MS / 5)
#define TELL_MS 250u

/* How many anchors a host has of so many blocks, in prompts of so many. */
static uint32_t anchors_of(uint32_t blocks, uint32_t prompt)
{
	uint32_t depth[NET_ANCHORS_MAX];

	return blocks / prompt * anchors(0, prompt, depth);
}

/* ---- one home ------------------------------------------------------------------------------- */

static int home_new(struct homes *h, uint32_t room)
{
	h->slot = calloc(room + HOMES_WINDOW, sizeof(*h->slot));
	h->room = room;
	return h->slot ? 0 : -ENOMEM;
}

static uint64_t tag_of(uint64_t number)
{
	uint8_t context[32] = { 1 }, key[NET_KEY_BYTES] = { 0 };
	uint64_t x = number * UINT64_C(0x9e3779b97f4a7c15) + 1;

	x = bench_random(&x);
	memcpy(key, &x, sizeof(x));
	return homes_tag(context, 1, key);
}

static int forgotten(struct bench *b, struct homes *h, uint32_t prompt)
{
	char name[BENCH_TEXT];
	const struct bench_figure figure = {
		"homes", name, "found", "told", { BENCH_RATIO_AT_LEAST, 0.99 }
	};
	uint32_t n = anchors_of(BLOCKS, prompt), found = 0, host[HOMES_HOLDERS];

	memset(h->slot, 0, (h->room + HOMES_WINDOW) * sizeof(*h->slot));
	for (uint32_t i = 0; i < n; i++)
		homes_hold(h, tag_of(i), 1 + i % HOSTS, i / 1000);
	for (uint32_t i = 0; i < n; i++)
		found += homes_find(h, tag_of(i), host) > 0;
	snprintf(name, sizeof(name), "%u blocks a host, prompts of %u: anchors a home knows",
		 BLOCKS, prompt);
	return bench_judge_exact(b->results, &figure, found, n);
}

/* ns for one FIND of one tag, from its bytes to the answer's. */
static double probe_ns(const struct homes *h, uint32_t told)
{
	struct {
		struct net_find m;
		uint64_t tag;
	} find = { .m = { .header = { NET_MAGIC, NET_VERSION, NET_FIND, sizeof(find), 0 },
			  .count = 1 } };
	struct {
		struct net_held m;
		struct net_holders of;
	} held;
	uint64_t begun = time_now_ns(), wrong = 0, x = 1;

	for (uint32_t i = 0; i < PROBES; i++) {
		find.tag = tag_of(bench_random_below(&x, told));
		if (net_check(&find, sizeof(find)) != (int64_t)sizeof(find))
			return -1;
		homes_answer(h, &find.m, &held.m);
		wrong += !held.of.host[0];
	}
	return wrong > PROBES / 100 ? -1 : (double)(time_now_ns() - begun) / PROBES;
}

static int one_home(struct bench *b)
{
	static const struct bench_figure
		memory = { "homes", "memory of a home, 900,000 blocks a host", "MiB", "",
			   { BENCH_VALUE_AT_MOST, 4 } },
		probe = { "homes", "a probe at its home, without the socket", "ns", "",
			  { BENCH_VALUE_AT_MOST, 1e9 / PROBES_S } };
	static const struct sample none;
	struct sample size = { 0 }, ns = { 0 };
	struct homes h;
	int error = home_new(&h, HOMES_ROOM);

	for (uint32_t i = 0; i < b->rounds && !error; i++)
		sample_add(&size, (double)(h.room + HOMES_WINDOW) * sizeof(*h.slot) / (1 << 20));
	if (!error)
		error = bench_judge(b->results, &memory, &size, &none);
	if (!error)
		error = forgotten(b, &h, 128);
	if (!error)
		error = forgotten(b, &h, 1024);
	for (uint32_t i = 0; i < b->rounds && !error; i++) {
		double one = probe_ns(&h, anchors_of(BLOCKS, 1024));

		sample_add(&ns, one);
		error = one < 0 ? -EBADMSG : 0;
	}
	free(h.slot);
	return error ? error : bench_judge(b->results, &probe, &ns, &none);
}

/* ---- a tenth of the hosts is gone ------------------------------------------------------------ */

/*
 * Who is gone stands last in `member`, in the order in which their leases end: those that etcd has
 * are the first ones, and one number tells what a host knows of them.
 */
struct fleet {
	uint32_t member[HOSTS];
	uint32_t ends_ms[HOSTS]; /* of the lease; who lives: never */
	uint32_t looks_ms[HOSTS], knows[HOSTS], told[HOSTS];
	struct homes home[HOSTS];
	uint32_t anchors; /* a host's */
};

static int fleet_new(struct fleet *f, uint32_t anchors)
{
	uint64_t x = 7;
	int error = 0;

	f->anchors = anchors;
	for (uint32_t i = 0; i < HOSTS && !error; i++) {
		uint32_t dead = i < HOSTS - GONE ? 0 : HOSTS - i;

		f->member[i] = 1 + (uint32_t)(bench_random(&x) >> 33);
		f->ends_ms[i] = dead ? LEASE_MS - LOOK_MS + dead * LOOK_MS / GONE : UINT32_MAX;
		f->looks_ms[i] = bench_random_below(&x, LOOK_MS);
		f->knows[i] = f->told[i] = HOSTS;
		error = home_new(&f->home[i], 4096);
	}
	for (uint32_t i = 0; i < HOSTS && !error; i++)
		for (uint32_t k = 0; k < anchors; k++) {
			uint64_t tag = tag_of(i * anchors + k);

			homes_hold(&f->home[homes_of(f->member, HOSTS, tag)], tag, f->member[i], 0);
		}
	return error;
}

/* What it knows is not what it told by: the anchors whose home is another one are told again. */
static void tell(struct fleet *f, uint32_t i, uint32_t now_ms)
{
	for (uint32_t k = 0; k < f->anchors; k++) {
		uint64_t tag = tag_of(i * f->anchors + k);
		uint32_t home = homes_of(f->member, f->knows[i], tag);

		if (home != homes_of(f->member, f->told[i], tag) && home < HOSTS - GONE)
			homes_hold(&f->home[home], tag, f->member[i], now_ms / 1000);
	}
	f->told[i] = f->knows[i];
}

static void turn(struct fleet *f, uint32_t now_ms)
{
	for (uint32_t i = 0; i < HOSTS - GONE; i++) {
		if (f->knows[i] != f->told[i])
			tell(f, i, now_ms); /* seen at the turn before */
		if ((now_ms + f->looks_ms[i]) % LOOK_MS >= TELL_MS)
			continue;
		while (f->knows[i] > HOSTS - GONE && f->ends_ms[f->knows[i] - 1] <= now_ms)
			f->knows[i]--;
	}
}

/* Of what living hosts hold, how much does one of them find? */
static double found(const struct fleet *f, uint64_t *x)
{
	uint32_t hits = 0;

	for (uint32_t i = 0; i < SAMPLES; i++) {
		uint32_t asks = bench_random_below(x, HOSTS - GONE), host[HOMES_HOLDERS], home, n;
		uint32_t holder = bench_random_below(x, HOSTS - GONE);
		uint64_t tag = tag_of(holder * f->anchors + bench_random_below(x, f->anchors));

		home = homes_of(f->member, f->knows[asks], tag);
		n = home < HOSTS - GONE ? homes_find(&f->home[home], tag, host) : 0;
		while (n && host[n - 1] != f->member[holder])
			n--;
		hits += n > 0;
	}
	return (double)hits / SAMPLES;
}

static int loss(struct bench *b)
{
	static const struct bench_figure figure = {
		"homes", "1,000 hosts, a tenth gone: found of the rest after 10 s", "", "all",
		{ BENCH_RATIO_AT_LEAST, 0.99 }
	};
	struct fleet *f = calloc(1, sizeof(*f));
	double first = 0, last = 0;
	uint32_t again_ms = 0;
	uint64_t x = 3;
	int error = f ? fleet_new(f, b->quick ? 40 : 333) : -ENOMEM;

	for (uint32_t ms = 0; ms <= 10000 && !error; ms += TELL_MS) {
		turn(f, ms);
		last = found(f, &x);
		first = ms ? first : last;
		again_ms = last < 0.99 ? ms + TELL_MS : again_ms;
	}
	for (uint32_t i = 0; f && i < HOSTS; i++)
		free(f->home[i].slot);
	free(f);
	if (!error)
		error = bench_note(b->results, "homes", "a tenth of 1,000 hosts gone: %.3f of what "
				   "the rest holds is found at once, 0.99 again after %.2f s",
				   first, again_ms / 1000.0);
	return error ? error : bench_judge_exact(b->results, &figure, last, 1);
}

int bench_homes(struct bench *b)
{
	int error = one_home(b);

	return error ? error : loss(b);
}
