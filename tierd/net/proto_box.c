/* SPDX-License-Identifier: Apache-2.0 */
/* Offers, and what a box has taken of them; see box.h. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/net/box.h"

bool offer_fits(const struct offer *o, const struct net_offer *of, const uint8_t *parent)
{
	uint32_t n = o->m.count;

	if (n == 0)
		return true;
	return n < NET_OFFER_KEYS && o->m.epoch == of->epoch && of->depth == o->m.depth + n &&
	       memcmp(o->m.context, of->context, sizeof(of->context)) == 0 &&
	       memcmp(o->key[n - 1], parent, NET_KEY_BYTES) == 0;
}

void offer_add(struct offer *o, const struct net_offer *of, const uint8_t *parent,
	       const uint8_t *key)
{
	assert(offer_fits(o, of, parent));
	if (o->m.count == 0) {
		o->m = *of;
		o->m.header = (struct net_header){ .magic = NET_MAGIC, .version = NET_VERSION,
						   .type = NET_OFFER };
		o->m.count = 0;
		memcpy(o->m.parent, parent, NET_KEY_BYTES);
	}
	memcpy(o->key[o->m.count++], key, NET_KEY_BYTES);
	o->m.header.length = (uint32_t)(sizeof(o->m) + o->m.count * NET_KEY_BYTES);
}

static bool same(const struct net_offer *a, const struct net_offer *b)
{
	return a->epoch == b->epoch && a->count == b->count && a->depth == b->depth &&
	       memcmp(a->context, b->context, sizeof(a->context)) == 0 &&
	       memcmp(a + 1, b + 1, a->count * NET_KEY_BYTES) == 0;
}

int box_take(struct box *b, const struct net_offer *m, uint32_t from)
{
	uint32_t each = 0;
	struct box_taken *to;

	assert(m->count > 0 && m->count <= NET_OFFER_KEYS); /* net_check */
	for (uint32_t i = 0; i < b->count; i++) {
		const struct box_taken *t = &b->taken[(b->first + i) % BOX_OFFERS];

		if (t->from != from)
			continue;
		if (same(&t->offer.m, m))
			return 0;
		each++;
	}
	if (b->count == BOX_OFFERS || each == BOX_OFFERS_EACH)
		return -EBUSY;
	to = &b->taken[(b->first + b->count++) % BOX_OFFERS];
	to->from = from;
	memcpy(&to->offer, m, sizeof(*m) + m->count * NET_KEY_BYTES);
	return 0;
}

bool box_next(struct box *b, struct box_taken *out)
{
	if (!b->count)
		return false;
	*out = b->taken[b->first];
	b->first = (b->first + 1) % BOX_OFFERS;
	b->count--;
	return true;
}
