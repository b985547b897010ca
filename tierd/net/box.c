/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory box (box.h): what is stored here is offered to it, by the thread that follows events
 * (tell.c); and where this host is the box, a thread asks for what it was offered. What a box holds
 * is found like any host's blocks, and comes back by a pull.
 */
#include <errno.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define OFFER_NS (1 * NS_PER_S)
#define PULL_NS (10 * NS_PER_S)
#define TURN_NS (20 * NS_PER_MS)

/* ---- offering ------------------------------------------------------------------------------- */

bool box_used(const struct node *n)
{
	return n->config.box[0] && strcmp(n->config.box, n->config.name) != 0;
}

/* The box's place and which life of it is up; negative: none is. */
static int box_place(struct node *n, uint64_t *life)
{
	int place = members_place(n, n->config.box);

	if (place < 0)
		return place;
	LOCK_SCOPE(&n->peers_lock);
	*life = n->peers.peer[place].incarnation;
	return peer_asked(&n->peers.peer[place]) ? place : -ENOENT;
}

bool box_is_another(struct node *n, uint64_t *life)
{
	uint64_t now = 0;

	if (box_place(n, &now) < 0 || now == *life)
		return false;
	*life = now;
	return true;
}

static int exchange(struct conn *c, const struct offer *o, uint64_t until_ns)
{
	const struct net_word *m = (const void *)c->message;
	int rc = conn_send_message(c, &o->m.header, until_ns);

	if (rc == 0)
		rc = conn_expect(c, NET_TAKEN, until_ns);
	return rc || m->id == o->m.id ? rc : -EPROTO;
}

/* What it answers is its own affair (B2). */
void box_offer(struct node *n, struct offer *o)
{
	uint64_t until_ns = time_now_ns() + OFFER_NS, life;
	int place = o->m.count ? box_place(n, &life) : -ENODATA, rc;
	struct conn *c = NULL;

	if (place >= 0) {
		o->m.id++;
		rc = members_conn(n, (uint32_t)place, until_ns, &c);
		if (rc == 0)
			rc = exchange(c, o, until_ns);
		members_done(n, (uint32_t)place, c, rc);
	}
	o->m.count = 0;
}

void box_event(struct node *n, struct offer *o, const struct share *s, const struct tier_event *e)
{
	struct net_offer of = { .epoch = e->epoch, .depth = e->depth };

	if (!share_with(s, n->config.box))
		return;
	if (e->kind != TIER_EVENT_STORED || e->depth > NET_LOCAL_KEYS_MAX - NET_OFFER_KEYS)
		return;
	memcpy(of.context, s->agreed.digest, sizeof(of.context));
	if (!offer_fits(o, &of, e->parent.bytes))
		box_offer(n, o);
	offer_add(o, &of, e->parent.bytes, e->key.bytes);
}

/* ---- the box -------------------------------------------------------------------------------- */

int box_taken(struct node *n, const struct net_offer *m, const char *from)
{
	if (strcmp(n->config.box, n->config.name) != 0)
		return -EACCES;
	LOCK_SCOPE(&n->box_lock);
	return box_take(&n->box, m, homes_host(from));
}

/* The peer that an offer came from, or negative. */
static int place_of(struct node *n, uint32_t from)
{
	LOCK_SCOPE(&n->peers_lock);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (peer_asked(&n->peers.peer[i]) &&
		    homes_host(n->peers.peer[i].name) == from)
			return (int)i;
	return -ENOENT;
}

/* As if an engine wanted the prefix, of which all before the offer is here. */
static void ask_for(struct node *n, struct share *s, const struct box_taken *t, int place)
{
	uint32_t depth = t->offer.m.depth, count = t->offer.m.count;
	tier_key *key CLEANUP_FREE = calloc(depth + count, sizeof(*key));
	struct net_want want = { .klass = TIER_CLASS_DEADLINE, .count = depth + count };
	struct wanted w = { .share = s, .want = &want, .keys = key, .begun_ns = time_now_ns() };
	struct placed p = { .peer = place, .usable = depth + count };
	struct net_placed out = { .status = TIER_MISSED };
	int64_t here;

	if (!key)
		return;
	want.deadline_ns = w.begun_ns + PULL_NS;
	if (depth)
		memcpy(&key[depth - 1], t->offer.m.parent, sizeof(*key));
	memcpy(&key[depth], t->offer.key, count * sizeof(*key));
	here = tier_match(s->c, &key[depth], count, NULL);
	w.local = depth + (here > 0 ? (uint32_t)here : 0);
	w.epoch = t->offer.m.epoch;
	w.deleted = share_deleted(n, s);
	p.bytes = (p.usable - w.local) * s->shape.block_bytes;
	if (w.local < p.usable && share_grants(n, s, w.epoch, w.deleted) == 0)
		pull_from(n, &w, &p, &out);
}

static bool next(struct node *n, struct box_taken *t)
{
	LOCK_SCOPE(&n->box_lock);
	return box_next(&n->box, t);
}

void *box_run(void *arg)
{
	struct node *n = arg;
	struct box_taken *t = calloc(1, sizeof(*t));

	while (t && !node_stopped(n, TURN_NS))
		while (!node_stopped(n, 0) && next(n, t)) {
			struct share *s = share_digest(n, t->offer.m.context, NULL);
			int place = s ? place_of(n, t->from) : -ENOENT;

			if (place >= 0)
				ask_for(n, s, t, place);
			if (s)
				share_put(n, s);
		}
	free(t);
	return NULL;
}
