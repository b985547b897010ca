/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Would LRU have done better? It would have a block as long as fewer others were used since than
 * fit the tier (Mattson 1970), and `reuse` knows, by epochs, when all that is in the tier and most
 * of what left lately was used last. So each use says who had the block, at no cost in memory. From
 * the sum of what was won and lost follows how careful the policy is: how much more than the block
 * that is worth least the oldest must be worth, for that one to leave in its place.
 *
 * And there is a limit. Of what LRU would have and this policy let go nobody knows yet whether it
 * will be missed. That is at most a credit plus what was won so far, as far as epochs tell
 * (docs/policies.md, Credit).
 */
#include "tierd/policy/reuse.h"

#include <assert.h>

#define CAUTION_LEAST 1.25	 /* always: rates are not known better than that */
#define CAUTION_MOST 16.0	 /* all but LRU: */
#define CAUTION_FIRST 1000.0	 /* at first LRU, for rates then are of blocks with little past: */
#define FIRST_EPOCHS REUSE_EPOCHS_TIER /* until what left first has aged as LRU has it age */
#define CAUTION_STEP 1.5	 /* an epoch */
#define LOSS 256u		 /* one in so many blocks of the tier: more care; half: less */
#define FORGET (1 - 1 / 256.0) /* of the account, an epoch */
#define CREDIT 0.25		 /* of the blocks in the tier, */
#define CREDIT_FIRST 0.125	 /* while what was let go can hardly have been missed yet, */
#define CREDIT_STEP (1 / 128.0)	 /* and so much more an epoch */

static uint32_t *known_at(struct reuse *r, uint32_t age)
{
	return &r->regret.known[(r->epoch - age) % REUSE_EPOCHS];
}

/* Each step is paid for by a block or an epoch that came. */
static void edge_seek(struct reuse *r)
{
	struct reuse_regret *g = &r->regret;

	while (g->edge && g->newer >= g->full) {
		g->edge--;
		g->newer -= *known_at(r, g->edge);
		g->newer_here -= *reuse_regret_here(r, g->edge);
	}
	while (g->edge < REUSE_EPOCHS - 1 && g->newer + *known_at(r, g->edge) < g->full) {
		g->newer += *known_at(r, g->edge);
		g->newer_here += *reuse_regret_here(r, g->edge);
		g->edge++;
	}
}

void reuse_regret_init(struct reuse *r)
{
	r->regret.caution = CAUTION_FIRST;
	r->regret.first = FIRST_EPOCHS;
	r->regret.credit = CREDIT_FIRST;
}

void reuse_regret_add(struct reuse *r)
{
	struct reuse_regret *g = &r->regret;

	(*known_at(r, 0))++;
	g->newer += g->edge > 0;
	if (g->full < r->resident)
		g->full = r->resident;
	edge_seek(r);
}

void reuse_regret_drop(struct reuse *r, uint32_t age)
{
	struct reuse_regret *g = &r->regret;
	uint32_t *known = known_at(r, age);

	assert(age < REUSE_EPOCHS && *known > 0);
	(*known)--;
	g->newer -= age < g->edge;
	edge_seek(r);
}

/* The chance that LRU would have it; an epoch's blocks are alike. */
static double lru_has(struct reuse *r, uint32_t age)
{
	const struct reuse_regret *g = &r->regret;
	double room = (double)g->full - (double)g->newer, there = *known_at(r, g->edge);

	if (age < g->edge)
		return 1;
	if (age > g->edge)
		return g->edge == REUSE_EPOCHS - 1 && room > there;
	return room < there ? room / there : 1;
}

bool reuse_regret_allows(struct reuse *r, uint32_t age)
{
	const struct reuse_regret *g = &r->regret;
	double most = g->credit * (double)g->full + g->balance;
	double gone = (double)(g->newer - g->newer_here);
	double at_edge = *known_at(r, g->edge) - *reuse_regret_here(r, g->edge);

	if (age > g->edge || gone + at_edge + 1 <= most)
		return true; /* mostly, and dividing takes long */
	return gone + at_edge * lru_has(r, g->edge) + lru_has(r, age) <= most;
}

void reuse_regret_use(struct reuse *r, uint32_t age, bool here)
{
	struct reuse_regret *g = &r->regret;
	double won = (here ? 1 : 0) - lru_has(r, age), most = (double)g->full;

	g->account += won;
	g->balance += won;
	g->balance = g->balance > most ? most : g->balance; /* more could never be at stake */
}

static void credit_grow(struct reuse_regret *g)
{
	g->credit += CREDIT_STEP;
	g->credit = g->credit > CREDIT ? CREDIT : g->credit;
}

static void caution_learn(struct reuse_regret *g)
{
	double loss = (double)g->full / LOSS;

	if (g->account < -loss)
		g->caution *= CAUTION_STEP;
	else if (g->account > -loss / 2)
		g->caution /= CAUTION_STEP;
	g->caution = g->caution < CAUTION_LEAST ? CAUTION_LEAST : g->caution;
	g->caution = g->caution > CAUTION_MOST ? CAUTION_MOST : g->caution;
}

void reuse_regret_turn(struct reuse *r, bool full)
{
	struct reuse_regret *g = &r->regret;

	if (g->edge < REUSE_EPOCHS - 1) {
		g->edge++;
	} else {
		g->newer -= *known_at(r, REUSE_EPOCHS - 2);
		g->newer_here -= *reuse_regret_here(r, REUSE_EPOCHS - 2);
	}
	*known_at(r, REUSE_EPOCHS - 1) = 0; /* the next epoch's */
	*reuse_regret_here(r, REUSE_EPOCHS - 1) = 0;
	g->full = r->resident;
	g->account *= FORGET;
	if (g->first) {
		g->first -= full;
		return;
	}
	caution_learn(g);
	credit_grow(g);
}
