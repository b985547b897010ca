/* SPDX-License-Identifier: Apache-2.0 */
/* A memory box in the fleet (B1, B2): host 0 is one, and the others offer it what they store. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/fleet.h"

static bool there(const struct host *h, uint32_t c, uint32_t key)
{
	const struct block *b = &h->store.block[c][key];

	return h->agreed[c].shared && b->there && b->epoch == h->store.epoch[c];
}

/* A run of what was not offered since it was put. */
static void gather(struct host *h, struct offer *o)
{
	for (uint32_t c = 0; c < CONTEXTS; c++)
		for (uint32_t k = 0; k < KEYS; k++) {
			struct net_offer of = { .epoch = h->store.epoch[c], .depth = k % LENGTH };
			uint8_t key[NET_KEY_BYTES], parent[NET_KEY_BYTES] = { 0 };

			if (!there(h, c, k)) {
				h->offered[c][k] = false;
				continue;
			}
			fleet_digest(c, of.context);
			fleet_key(c, k, key);
			if (k % LENGTH)
				fleet_key(c, k - 1, parent);
			if (h->offered[c][k] || !offer_fits(o, &of, parent))
				continue;
			offer_add(o, &of, parent, key);
			h->offered[c][k] = true;
		}
}

void box_offers(struct fleet *f, struct host *h)
{
	struct offer o = { .m = { .count = 0 } };
	const struct peer *box = peers_find(&h->peers, "0");

	if (!h->place || h->offers.busy || !box || !peer_asked(box))
		return;
	gather(h, &o);
	if (o.m.count)
		traffic_say(f, h, &h->offers, 0, &o, o.m.header.length);
}

uint32_t box_reply(struct fleet *f, struct host *h, uint32_t from, const void *m, void *out)
{
	const struct net_offer *offer = m;
	uint32_t c = fleet_context(offer->context);
	struct net_word word = { .header = { NET_MAGIC, NET_VERSION, NET_TAKEN, sizeof(word), 0 },
				 .id = offer->id };

	if (c == CONTEXTS)
		FAIL(f, "B1: host %u is offered what is in no context", h->place);
	else
		word.error = agreed_grants(&h->agree, &h->agreed[c], offer->epoch, 0,
					   fleet_clock(f, h));
	if (!word.error)
		word.error = box_take(&h->box, offer, from + 1);
	memcpy(out, &word, sizeof(word));
	return sizeof(word);
}

void box_turn(struct fleet *f, struct host *h)
{
	struct box_taken *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	while (!h->place && !(h->job[0].busy && h->job[1].busy) && box_next(&h->box, t)) {
		uint32_t c = fleet_context(t->offer.m.context);
		char name[12];
		const struct peer *p;

		snprintf(name, sizeof(name), "%u", t->from - 1);
		p = peers_find(&h->peers, name);
		if (p && peer_asked(p))
			traffic_pull_from(f, h, t->from - 1, c, t->offer.key[0][1] / LENGTH);
	}
	free(t);
}

/* At last: what the others have of a prefix, the box has. */
void box_judge(struct fleet *f)
{
	for (uint32_t i = 1; i < f->hosts; i++)
		for (uint32_t n = 0; n < CONTEXTS * PREFIXES; n++) {
			uint32_t c = n / PREFIXES, prefix = n % PREFIXES;
			uint32_t has = fleet_match(&f->host[i], c, prefix, 0);

			if (fleet_match(&f->host[0], c, prefix, 0) < has)
				FAIL(f, "B1: at last host %u has %u blocks of prefix %u of context "
				     "%u, and the box was offered them and has fewer", i, has,
				     prefix, c);
		}
}
