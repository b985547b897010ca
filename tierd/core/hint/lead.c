/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leads of conversations: the first layers of a prefix, so many that the others stream in while
 * these are computed. While a user thinks, the rest of what was read need not stay: it leaves in
 * the policy's order, and the lead behind all blocks that nobody expects (evict.c). A preference:
 * it stalls nobody, and what has marks here is in no budget of pins.
 *
 * The lead: with t = transfer of a layer, c = its computation, q = what is queued in front, layer l
 * is in time when q + (l - k + 1) t <= l c for all l >= k; so k is the larger of (q + t) / c and
 * L - ((L - 1) c - q) / t, and one more. Without c all L layers are the lead. Of q only the latency
 * is known ahead.
 *
 * All leads of a context together keep to a share of its room, the one that promises have in a tier
 * (I7), so a fifth is always the policy's. If they come to more, users (uids) have equal parts of
 * it, and each lead as many layers as go with the odds that its user is back soon: each layer that
 * is there saves its transfer, the first as much as the last. Called by conversation.c and, when
 * room is needed, by evict.c: nothing is decided before.
 */
#include <assert.h>
#include <float.h>

#include "tierd/core/state.h"

#define LOOK_NS (100 * MS)             /* between looks at who keeps how much, */
/* and so much for each conversation: 1 % of a processor at most */
#define LOOK_CONVERSATION_NS (MS / 10)
#define LATE_NS (1000 * MS)            /* without a look: there is room */
#define LOOK_REFS 16384u               /* marked anew in one look; the others' turn comes */
#define KEPT_MAX 4095u                 /* layers: block_use.leads */
#define FILLS 8u                       /* rounds of sharing what those leave that need less */

_Static_assert(CONVERSATION_CHUNKS *CONVERSATION_CHUNK_REFS < 1u << 20,
	       "fits block_use.leads.count");

/*
 * How many layers must be there at the return, see above. What the device has before it now says
 * nothing of then.
 */
uint16_t lead_need(const struct core *c, const struct conversation *s)
{
	uint32_t layers = lead_layers(s);
	struct sched_channel_stats st;
	double queue, t, first, last, lead;

	sched_channel_stats(c, SCHED_READ, &st);
	if (!s->layer_ns || !st.bandwidth)
		return (uint16_t)layers;
	queue = (double)st.latency_ns;
	t = (double)lead_bytes(s, layers) / layers * 1e9 / (double)st.bandwidth;
	first = (queue + t) / (double)s->layer_ns;
	last = t > 0 ? layers - ((layers - 1) * (double)s->layer_ns - queue) / t : 1;
	lead = (first > last ? first : last) + 1.999;
	return (uint16_t)(lead > layers ? layers : lead);
}

/*
 * How many of these may be staged: what it keeps, since more would push out what others keep. All,
 * if nobody has needed room of late, or the user said when: that is for a moment.
 */
uint32_t lead_may(const struct core *c, const struct conversation *s)
{
	if (!s->blocks)
		return 0;
	if (s->told || c->now_ns >= s->ctx->lead_ns[s->tier] + LATE_NS)
		return s->lead;
	return s->kept;
}

/* ---- marks -------------------------------------------------------------------------------- */

/* So many layers of the conversation's blocks are to be kept; 0 = none. */
void lead_keep(struct core *c, struct conversation *s, uint32_t layers)
{
	assert(s->tier < ABI_MEM_TIERS && layers <= lead_layers(s));
	if (layers > KEPT_MAX)
		layers = KEPT_MAX;
	if (s->kept == layers)
		return;
	s->kept = (uint16_t)layers;
	conversation_settle(c, s);
}

/* ---- shares ------------------------------------------------------------------------------- */

static bool is_away(const struct conversation *s, const struct context *x, uint32_t tier)
{
	return (s->state == CONVERSATION_AWAY || s->state == CONVERSATION_STAGING ||
		s->state == CONVERSATION_STAGED) && s->ctx == x && s->tier == tier && s->blocks;
}

/* The odds that its user is back soon: by what is known of users, or by when it said. */
static double odds(struct core *c, const struct conversation *s)
{
	uint64_t soon = think_soon_ns(c, s->ctx, s->salt), away;

	if (!s->told)
		return think_odds(c, s->ctx, s->salt, c->now_ns - s->turn_end_ns, soon);
	away = s->use_ns > c->now_ns ? s->use_ns - c->now_ns : c->now_ns - s->use_ns;
	return (double)soon / (double)(away + MS);
}

/*
 * Each conversation's weight, in layers; those of a user come to the same together, whoever it is.
 */
static void weigh(struct core *c, const struct context *x, uint32_t tier)
{
	for (uint32_t i = 0; i < c->conversations.high; i++) {
		struct conversation *s = &c->conversations.table[i];
		uint32_t account = c->client[s->client].account;

		if (!is_away(s, x, tier))
			continue;
		assert(c->account[account].used[ACCOUNT_REFS] > 0);
		s->weight = odds(c, s) * lead_layers(s) /
			    c->account[account].used[ACCOUNT_REFS];
	}
}

/* Layers a weight, so that all leads come to so many bytes. */
static double scale_of(const struct core *c, const struct context *x, uint32_t tier, double bytes)
{
	double scale = 0;

	for (uint32_t n = 0; n < FILLS; n++) {
		double left = bytes, sum = 0;

		for (uint32_t i = 0; i < c->conversations.high; i++) {
			const struct conversation *s = &c->conversations.table[i];
			double lead;

			if (!is_away(s, x, tier))
				continue;
			lead = (double)lead_bytes(s, s->lead);
			if (scale * s->weight >= s->lead)
				left -= lead;
			else
				sum += lead / s->lead * s->weight;
		}
		if (sum <= 0)
			return DBL_MAX; /* there is room for all */
		scale = left > 0 ? left / sum : 0;
	}
	return scale;
}

/* Bytes that leads may keep of what the context has: their part, less what others have pinned. */
static uint64_t room_of(const struct core *c, const struct context *x, uint32_t tier)
{
	uint64_t pinned = x->pinned[tier], room;
	struct space_stats st;

	space_stats(x->space[tier], &st);
	room = (st.live + st.available + st.punching) / 100 * QUOTA_PROMISES_PERCENT;
	for (uint32_t i = 0; i < c->conversations.high; i++) {
		const struct conversation *s = &c->conversations.table[i];
		const struct pin *p = &c->pin[s->pin % CORE_PINS_MAX];

		if (is_away(s, x, tier) && s->pin && p->used && p->id == s->pin)
			pinned -= p->bytes < pinned ? p->bytes : pinned;
	}
	return room > pinned ? room - pinned : 0;
}

/* Room is needed: who keeps how much of it? */
void lead_look(struct core *c, struct context *x, uint32_t tier)
{
	struct conversations *t = &c->conversations;
	uint32_t refs = 0;
	double scale, layers = 0; /* part of one is left to the next conversation */

	if (!t->count || c->now_ns < x->lead_ns[tier])
		return;
	assert(x->space[tier]);
	x->lead_ns[tier] = c->now_ns + LOOK_NS + t->count * LOOK_CONVERSATION_NS;
	weigh(c, x, tier);
	scale = scale_of(c, x, tier, (double)room_of(c, x, tier));
	for (uint32_t n = 0; n < t->high && refs < LOOK_REFS && !meter_spent(&c->meter); n++) {
		struct conversation *s = &t->table[t->looked++ % t->high];

		if (!is_away(s, x, tier))
			continue;
		refs += s->blocks;
		layers += scale * s->weight < s->lead ? scale * s->weight : s->lead;
		lead_keep(c, s, layers < s->lead ? (uint32_t)layers : s->lead);
		layers -= s->kept;
		conversation_kept(c, s);
	}
}
