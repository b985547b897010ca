/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Homes of anchors; see homes.h. A tag may lie in HOMES_WINDOW slots from where its hash says, one
 * slot a holder: all of them are looked at, so nothing is left behind by what is taken away, and a
 * table that is too small forgets holders of what has most, and then what was told longest ago.
 */
#include <string.h>

#include "tierd/net/homes.h"

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

uint32_t homes_host(const char *name)
{
	uint64_t x = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		x = (x ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
	x = mix(x) >> 32;
	return x ? (uint32_t)x : 1;
}

uint64_t homes_tag(const uint8_t context[32], uint64_t epoch, const uint8_t key[NET_KEY_BYTES])
{
	uint64_t a, b;

	memcpy(&a, context, sizeof(a));
	memcpy(&b, key, sizeof(b));
	a = mix(mix(a + epoch) ^ b);
	return a ? a : 1;
}

uint32_t homes_of(const uint32_t *member, uint32_t count, uint64_t tag)
{
	uint64_t most = 0;
	uint32_t home = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t weight = mix(tag ^ (uint64_t)member[i] << 32 ^ member[i]);

		/* Two that weigh the same: the order of the list must not tell. */
		if (i && (weight < most || (weight == most && member[i] < member[home])))
			continue;
		most = weight;
		home = i;
	}
	return home;
}

static struct homes_slot *window(const struct homes *h, uint64_t tag)
{
	return &h->slot[tag & (h->room - 1)];
}

static uint32_t holders_of(const struct homes_slot *w, uint64_t tag)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < HOMES_WINDOW; i++)
		n += w[i].tag == tag;
	return n;
}

/*
 * Whose slot goes where all are taken: of the tag with the most holders, the one told longest ago.
 * A tag that many hosts hold does not take the only holder of another one away.
 */
static struct homes_slot *spare(struct homes_slot *w, uint64_t tag)
{
	struct homes_slot *out = NULL;
	uint32_t most = 0;

	for (uint32_t i = 0; i < HOMES_WINDOW; i++) {
		/* With the one that comes. */
		uint32_t n = holders_of(w, w[i].tag) + (w[i].tag == tag);

		if (n < most || (n == most && w[i].told_s >= out->told_s))
			continue;
		most = n;
		out = &w[i];
	}
	return out;
}

/* The one of a tag that was told longest ago. */
static struct homes_slot *oldest(struct homes_slot *w, uint64_t tag)
{
	struct homes_slot *old = NULL;

	for (uint32_t i = 0; i < HOMES_WINDOW; i++)
		if (w[i].tag == tag && (!old || w[i].told_s < old->told_s))
			old = &w[i];
	return old;
}

void homes_hold(struct homes *h, uint64_t tag, uint32_t host, uint32_t now_s)
{
	struct homes_slot *w = window(h, tag), *take = NULL;
	uint32_t holders = 0;

	for (uint32_t i = 0; i < HOMES_WINDOW; i++) {
		if (w[i].tag == tag && w[i].host == host) {
			w[i].told_s = now_s;
			return;
		}
		holders += w[i].tag == tag;
		if (!w[i].tag && !take)
			take = &w[i];
	}
	if (holders >= HOMES_HOLDERS)
		take = oldest(w, tag);
	else if (!take)
		take = spare(w, tag);
	*take = (struct homes_slot){ .tag = tag, .host = host, .told_s = now_s };
}

void homes_drop(struct homes *h, uint64_t tag, uint32_t host)
{
	struct homes_slot *w = window(h, tag);

	for (uint32_t i = 0; i < HOMES_WINDOW; i++)
		if (w[i].tag == tag && w[i].host == host)
			w[i] = (struct homes_slot){ 0 };
}

uint32_t homes_find(const struct homes *h, uint64_t tag, uint32_t host[HOMES_HOLDERS])
{
	const struct homes_slot *w = window(h, tag);
	uint32_t told_s[HOMES_HOLDERS], n = 0;

	memset(host, 0, HOMES_HOLDERS * sizeof(*host));
	for (uint32_t i = 0; i < HOMES_WINDOW && n < HOMES_HOLDERS; i++) {
		uint32_t k = n;

		if (w[i].tag != tag)
			continue;
		for (; k && told_s[k - 1] < w[i].told_s; k--) {
			told_s[k] = told_s[k - 1];
			host[k] = host[k - 1];
		}
		told_s[k] = w[i].told_s;
		host[k] = w[i].host;
		n++;
	}
	return n;
}

uint32_t homes_forget(struct homes *h, uint32_t before_s)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < h->room + HOMES_WINDOW; i++) {
		if (h->slot[i].tag && h->slot[i].told_s < before_s)
			h->slot[i] = (struct homes_slot){ 0 };
		left += h->slot[i].tag != 0;
	}
	return left;
}

void homes_take(struct homes *h, const struct net_hold *m, uint32_t from, uint32_t now_s)
{
	const uint8_t *at = (const uint8_t *)(m + 1);

	for (uint32_t i = 0; i < m->count; i++, at += sizeof(struct net_holding)) {
		struct net_holding one;

		memcpy(&one, at, sizeof(one));
		if (one.gone)
			homes_drop(h, one.tag, from);
		else if (one.tag)
			homes_hold(h, one.tag, from, now_s);
	}
}

void homes_answer(const struct homes *h, const struct net_find *m, struct net_held *out)
{
	const uint8_t *at = (const uint8_t *)(m + 1);
	uint8_t *to = (uint8_t *)(out + 1);

	*out = (struct net_held){
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_HELD },
		.id = m->id, .count = m->count,
	};
	out->header.length = (uint32_t)(sizeof(*out) + m->count * sizeof(struct net_holders));
	for (uint32_t i = 0; i < m->count; i++) {
		struct net_holders one;
		uint64_t tag;

		memcpy(&tag, at + i * sizeof(tag), sizeof(tag));
		homes_find(h, tag, one.host);
		memcpy(to + i * sizeof(one), &one, sizeof(one));
	}
}

/* ---- members --------------------------------------------------------------------------------- */

void homes_view(struct homes_view *v, const struct peers *p, const char *self)
{
	*v = (struct homes_view){ .count = 1, .host = { homes_host(self) },
				  .place = { HOMES_OURSELVES } };
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		if (!peer_asked(&p->peer[i]))
			continue;
		v->host[v->count] = homes_host(p->peer[i].name);
		v->life[v->count] = p->peer[i].incarnation;
		v->place[v->count++] = i;
	}
}

uint32_t homes_place(const struct homes_view *v, uint64_t tag)
{
	return v->place[homes_of(v->host, v->count, tag)];
}

bool homes_changed(const struct homes_view *was, const struct homes_view *is)
{
	return memcmp(was, is, sizeof(*was)) != 0;
}

uint32_t homes_whom(const struct homes_view *v, const struct net_holders *named, uint32_t count,
		    uint32_t place[HOMES_ASKED_MAX])
{
	bool asked[PEERS_MAX + 1] = { true }; /* ourselves: the first of a view */
	uint32_t n = 0;

	while (count--)
		for (uint32_t k = 0; k < HOMES_HOLDERS && n < HOMES_ASKED_MAX; k++)
			for (uint32_t i = 1; i < v->count; i++)
				if (v->host[i] == named[count].host[k] && !asked[i] &&
				    n < HOMES_ASKED_MAX) {
					asked[i] = true;
					place[n++] = v->place[i];
				}
	return n;
}
