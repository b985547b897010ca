/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long users think (conversation.c): histograms of the time from the end of a turn to the next
 * one, by tenant (context and salt), kept online in fixed memory. Buckets are quarters of an octave
 * from 4 ms on, so a quantile is known to 19 %; counts are halved when many, so old habits fade.
 *
 * A tenant with few returns is judged by its context, a context with few by everyone, nobody by a
 * stated prior. Pure look-ups; called by conversation.c only.
 */
#include <assert.h>
#include <string.h>

#include "tierd/core/state.h"

#define FIRST_OCTAVE 22u /* 2^22 ns */
#define FADE_AT 1024u
#define ENOUGH 12u /* returns, before a histogram is believed */
#define SOON_SHARE 4u /* of the median */
#define PRIOR_LOW_NS (500 * MS)
#define PRIOR_HIGH_NS (120000 * MS)

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t octave, bucket;

	if (ns < 1ull << FIRST_OCTAVE)
		return 0;
	octave = 63u - (uint32_t)__builtin_clzll(ns);
	bucket = (octave - FIRST_OCTAVE) * 4 + (uint32_t)(ns >> (octave - 2) & 3);
	return bucket < THINK_BUCKETS ? bucket : THINK_BUCKETS - 1;
}

static uint64_t bucket_ns(uint32_t bucket)
{
	return (4ull + bucket % 4) << (bucket / 4 + FIRST_OCTAVE - 2);
}

static void add(struct think *t, uint64_t ns)
{
	uint16_t *count = &t->bucket[bucket_of(ns)];

	assert(t->count < FADE_AT);
	(*count)++;
	if (++t->count < FADE_AT)
		return;
	t->count = 0;
	for (uint32_t i = 0; i < THINK_BUCKETS; i++)
		t->count += t->bucket[i] /= 2;
}

/* The tenant's histogram: its own place, or that of the one unheard of for the longest time. */
static struct think *tenant(struct core *c, const struct context *x, uint64_t salt, bool make)
{
	uint64_t hash = (salt ^ x->id) * 0x9e3779b97f4a7c15ull;
	struct think *set = &c->conversations.tenant[(hash >> 40) % (THINK_TENANTS / THINK_WAYS) *
						     THINK_WAYS];
	struct think *oldest = set;

	for (uint32_t i = 0; i < THINK_WAYS; i++) {
		if (set[i].count && set[i].context_id == x->id && set[i].salt == salt)
			return &set[i];
		if (set[i].used_ns < oldest->used_ns)
			oldest = &set[i];
	}
	if (!make)
		return NULL;
	memset(oldest, 0, sizeof(*oldest));
	oldest->context_id = x->id;
	oldest->salt = salt;
	return oldest;
}

void think_learn(struct core *c, struct context *x, uint64_t salt, uint64_t ns)
{
	struct think *t = tenant(c, x, salt, true);

	t->used_ns = c->now_ns;
	add(t, ns);
	add(&x->think, ns);
	add(&c->conversations.everyone, ns);
}

static uint64_t quantile(const struct think *t, double q, bool upper)
{
	double rank = q * t->count;
	uint32_t below = 0;

	for (uint32_t i = 0; i < THINK_BUCKETS; i++) {
		below += t->bucket[i];
		if ((double)below > rank || below == t->count)
			return bucket_ns(i + upper);
	}
	return bucket_ns(THINK_BUCKETS - 1);
}

/* Whose returns tell most of a tenant: its own, if they are enough. */
static const struct think *known(struct core *c, struct context *x, uint64_t salt)
{
	const struct think *t = tenant(c, x, salt, false);

	if (!t || t->count < ENOUGH)
		t = &x->think;
	return t->count < ENOUGH ? &c->conversations.everyone : t;
}

/*
 * When the user may be back at the earliest, and until when it is worth waiting. Bounds of buckets
 * are taken outwards. Heavy tails: the upper bound says little, so waiting ends at THINK_PATIENCE
 * times the median at the latest.
 */
void think_window(struct core *c, struct context *x, uint64_t salt, uint64_t *low, uint64_t *high)
{
	const struct think *t = known(c, x, salt);
	uint64_t most;

	*low = PRIOR_LOW_NS;
	*high = PRIOR_HIGH_NS;
	if (t->count < ENOUGH)
		return;
	*low = quantile(t, 0.01, false);
	*high = 2 * quantile(t, 0.995, true); /* the longest is yet to come */
	most = THINK_PATIENCE * quantile(t, 0.5, true);
	if (*high > most)
		*high = most;
}

/* What is soon, beside how long its users think. */
uint64_t think_soon_ns(struct core *c, struct context *x, uint64_t salt)
{
	const struct think *t = known(c, x, salt);

	return t->count < ENOUGH ? PRIOR_LOW_NS : quantile(t, 0.5, false) / SOON_SHARE;
}

/* Returns within so long; those of its bucket by the part of that which has passed. */
static double within(const struct think *t, uint64_t ns)
{
	uint32_t last = bucket_of(ns);
	uint64_t from = bucket_ns(last), to = bucket_ns(last + 1);
	double returns = 0;

	for (uint32_t i = 0; i < last; i++)
		returns += t->bucket[i];
	if (ns <= from)
		return returns;
	return returns + (ns < to ? t->bucket[last] * (double)(ns - from) / (double)(to - from)
				  : t->bucket[last]);
}

/*
 * The odds that who has been away for so long is back soon: of those who were away as long, how
 * many were. One is added who is as likely to be away twice as long as not, so that a few returns
 * prove nothing.
 */
double think_odds(struct core *c, struct context *x, uint64_t salt, uint64_t away_ns,
		  uint64_t soon_ns)
{
	const struct think *t = known(c, x, salt);
	double before = within(t, away_ns), soon = within(t, away_ns + soon_ns) - before;
	double unknown = (double)soon_ns / (double)(soon_ns + away_ns);

	assert(soon >= 0 && t->count >= before);
	return (soon + unknown) / (t->count - before + 1);
}
