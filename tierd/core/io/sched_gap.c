/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When demand comes, and so when background may use the device without being met; sched.h has the
 * rules. Two things are learned from the gaps between demand, in which none is there:
 *   - the shortest of late: regular steps leave its first three quarters;
 *   - how long they are, in bins of an eighth of an octave, the last GAPS_KEPT or so of them. The
 *     part of a gap is sought in which background gains most time for the demand that comes then:
 *     time and demand as shares of all, demand weighing three quarters, and at most HITS_MOST of
 *     it. Of bursts it is the pause between them, of gaps without any order any part as far as that
 *     limit. What demand is likely to meet there is half as long as what is meant to be over.
 */
#include <assert.h>

#include "tierd/core/io/sched_priv.h"

#define GAP_RISE 64u /* demands after which longer gaps are mostly believed */
#define GAP_NS 128000ull /* the first bin ends here, */
#define STEPS 8u         /* ... then there are so many an octave */
#define WEIGHT 64u       /* of a gap, which halves as others come */
#define GAPS_KEPT 128u
#define GAPS_LEAST 32u   /* before anything is believed */
#define LOOK_GAPS 16u    /* between two looks */
#define HITS_MOST 30u         /* percent of demand */
#define HITS_MOST_YIELDING 4u /* likewise, with config.yield */
#define HITS_FEW 1u           /* likewise: hardly any */
#define SURPRISES 7u     /* hits between two looks that are no accident: it has changed */
#define BURST_SHARE 4u   /* gaps in bursts are a quarter of all, at least */
#define BUSY_MOST_NS 30000000ull
#define BURST_MOST_NS 8000000ull /* of one: what goes on for longer leaves no pause to wait for */

/* Where a bin begins. */
static uint64_t edge(uint32_t bin)
{
	uint32_t i = bin - 1;

	return bin ? (GAP_NS << i / STEPS) / STEPS * (STEPS + i % STEPS) : 0;
}

static uint32_t bin_of(uint64_t ns)
{
	uint32_t octave;

	if (ns < GAP_NS)
		return 0;
	if (ns >= edge(SCHED_GAP_BINS))
		return SCHED_GAP_BINS;
	octave = 63 - (uint32_t)__builtin_clzll(ns / GAP_NS);
	return 1 + octave * STEPS + (uint32_t)(ns / ((GAP_NS << octave) / STEPS)) - STEPS;
}

/* Time that gaps spend in each bin; returns all of it. */
static uint64_t times(const struct sched_gaps *g, uint64_t ns[SCHED_GAP_BINS])
{
	uint64_t left = g->total, sum = 0;

	for (uint32_t i = 0; i < SCHED_GAP_BINS; i++) {
		ns[i] = (2 * left - g->count[i]) * (edge(i + 1) - edge(i)) / 2;
		left -= g->count[i];
		sum += ns[i];
	}
	return sum;
}

static void choose_window(const struct core *c, struct sched_gaps *g,
			  const uint64_t ns[SCHED_GAP_BINS], uint64_t all_ns)
{
	uint64_t most = (uint64_t)g->total *
			(c->config.yield ? HITS_MOST_YIELDING : HITS_MOST) / 100;
	double best = 0;

	g->to_ns = g->from_ns = g->window_percent = 0;
	for (uint32_t from = 0; from < SCHED_GAP_BINS; from++) {
		uint64_t time = 0, hits = 0;

		for (uint32_t i = from; i < SCHED_GAP_BINS; i++) {
			double gain;

			time += ns[i];
			hits += g->count[i];
			if (hits > most)
				break;
			gain = (double)time / (double)all_ns -
			       0.75 * (double)hits / (double)g->total;
			if (gain <= best || edge(i + 1) - edge(from) < SCHED_GAP_LEAST_NS)
				continue;
			best = gain;
			g->from_ns = edge(from);
			g->to_ns = edge(i + 1) - edge(i + 1) / 8;
			g->window_percent = (uint32_t)(time * 100 / all_ns);
			g->budget_ns = hits * 100 > g->total * HITS_FEW ?
					       SCHED_BUDGET_MET_NS : SCHED_BUDGET_GAP_NS;
		}
	}
}

/* What was seen lately: where is background's part, for how long does demand count as there? */
static void look(const struct core *c, struct sched_gaps *g)
{
	uint64_t ns[SCHED_GAP_BINS], all_ns = times(g, ns);
	uint32_t brief = 0, last = 0;

	g->fresh = g->hits = 0;
	choose_window(c, g, ns, all_ns);
	for (uint32_t i = 0; i < SCHED_GAP_BINS; i++) {
		brief += edge(i + 1) <= SCHED_GAP_LEAST_NS ? g->count[i] : 0;
		last = g->count[i] ? i + 1 : last;
	}
	g->busy_ns = 2 * edge(last) < BUSY_MOST_NS ? 2 * edge(last) : BUSY_MOST_NS;
	g->bursts = brief >= g->total / BURST_SHARE && g->window_percent >= 50;
}

static void forget(struct sched_gaps *g, uint32_t part)
{
	g->total = 0;
	for (uint32_t i = 0; i <= SCHED_GAP_BINS; i++)
		g->total += g->count[i] /= part;
}

static void count(const struct core *c, struct sched_gaps *g, uint64_t ns)
{
	g->hits += ns >= g->from_ns && ns < g->to_ns;
	if (g->hits >= SURPRISES) {
		forget(g, WEIGHT);
		g->hits = g->to_ns = g->window_percent = 0;
		g->bursts = false;
	}
	g->count[bin_of(ns)] += WEIGHT;
	g->total += WEIGHT;
	if (g->total > GAPS_KEPT * WEIGHT)
		forget(g, 2);
	if (++g->fresh >= LOOK_GAPS && g->total >= GAPS_LEAST * WEIGHT)
		look(c, g);
}

/* Demand comes: for how long was there none? Of a pause the shortest says nothing. */
void gap_over(struct core *c, struct sched *s)
{
	struct sched_gaps *g = &s->gaps;
	uint64_t ns = c->now_ns - s->demand_ns;

	if (!s->demand_ns || sched_demand_there(s))
		return;
	if (ns >= SCHED_GAP_LEAST_NS)
		g->burst_ns = c->now_ns;
	count(c, g, ns);
	if (ns >= SCHED_BUSY_NS)
		return;
	if (!g->shortest_ns || ns < g->shortest_ns)
		g->shortest_ns = ns + 1;
	else
		g->shortest_ns += (ns - g->shortest_ns) / GAP_RISE;
}

bool gap_foreseen(const struct sched *s)
{
	const struct sched_gaps *g = &s->gaps;

	return g->shortest_ns >= SCHED_GAP_LEAST_NS || g->to_ns;
}

uint64_t gap_end(const struct core *c, const struct sched *s)
{
	const struct sched_gaps *g = &s->gaps;
	uint64_t end = 0, passed = c->now_ns - s->demand_ns;

	if (!s->demand_ns || sched_demand_there(s))
		return 0;
	if (g->shortest_ns >= SCHED_GAP_LEAST_NS)
		end = g->shortest_ns - g->shortest_ns / 4;
	if (passed >= g->from_ns && g->to_ns > end)
		end = g->to_ns;
	return passed < end ? s->demand_ns + end : 0;
}

uint64_t gap_budget_ns(const struct core *c, const struct sched *s)
{
	const struct sched_gaps *g = &s->gaps;
	uint64_t passed = c->now_ns - s->demand_ns;

	if (g->shortest_ns >= SCHED_GAP_LEAST_NS && passed < g->shortest_ns - g->shortest_ns / 4)
		return SCHED_BUDGET_GAP_NS;
	return g->budget_ns;
}

uint64_t gap_begins(const struct sched *s)
{
	return s->gaps.to_ns ? s->demand_ns + s->gaps.from_ns : 0;
}

bool gap_holds(const struct core *c, const struct sched *s)
{
	const struct sched_gaps *g = &s->gaps;

	if (!g->bursts || c->now_ns - g->burst_ns >= BURST_MOST_NS)
		return false;
	return sched_demand_there(s) || c->now_ns - s->demand_ns < g->from_ns;
}

uint64_t gap_busy_ns(const struct sched *s)
{
	uint64_t ns = s->gaps.busy_ns;

	return ns > SCHED_BUSY_NS ? ns : SCHED_BUSY_NS;
}

uint32_t gap_percent(const struct sched *s, uint64_t beside_ns)
{
	const struct sched_gaps *g = &s->gaps;
	uint64_t gap = g->shortest_ns, percent = 0;

	if (gap >= SCHED_GAP_LEAST_NS)
		percent = 100 * (gap - gap / 4) / (gap + beside_ns);
	return percent > g->window_percent ? (uint32_t)percent : g->window_percent;
}
