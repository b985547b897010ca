/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has most of a prefix. All live hosts, or in a large fleet those that homes name (find.c), are
 * asked at once for the anchors, then those that have the most for the keys between their last
 * anchor and the next, at most 31. What they say is a hint (R2). A host that does not answer in a
 * quarter of the time goes on probation (R4).
 */
#include <errno.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define ASK_LEAST_NS (2 * NS_PER_MS)
#define ASK_MOST_NS (200 * NS_PER_MS)

/* One host's part in a round. */
struct asked {
	struct conn *c; /* NULL = not asked in this round */
	uint64_t sent_ns;
	uint32_t found, cold;
	uint32_t usable; /* blocks, from the first, that it is known to have */
	uint64_t stage_bytes_per_s;
};

struct round {
	struct node *n;
	const struct wanted *w;
	uint64_t deadline_ns;
	struct asked asked[PEERS_MAX];
	union {
		struct net_probe m;
		uint8_t bytes[sizeof(struct net_probe) + NET_ANCHORS_MAX * NET_KEY_BYTES];
	};
};

uint64_t answer_until(uint64_t until)
{
	uint64_t now = time_now_ns();
	uint64_t part = until > now ? (until - now) / 4 : 0;

	part = part < ASK_LEAST_NS ? ASK_LEAST_NS : part > ASK_MOST_NS ? ASK_MOST_NS : part;
	return now + part < until ? now + part : until;
}

static void fill(struct round *r, const uint32_t *depth, uint32_t count, uint64_t id)
{
	r->m = (struct net_probe){
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_PROBE },
		.id = id, .epoch = r->w->epoch, .count = count,
	};
	r->m.header.length = (uint32_t)(sizeof(r->m) + count * NET_KEY_BYTES);
	memcpy(r->m.context, r->w->share->agreed.digest, sizeof(r->m.context));
	for (uint32_t i = 0; i < count; i++)
		memcpy(r->bytes + sizeof(r->m) + i * NET_KEY_BYTES, &r->w->keys[depth[i]],
		       NET_KEY_BYTES);
}

static void failed(struct round *r, uint32_t i, int error)
{
	conn_close(r->asked[i].c);
	r->asked[i].c = NULL;
	r->asked[i].usable = 0;
	members_failed(r->n, i, error);
}

static void send_to(struct round *r, uint32_t i)
{
	struct asked *a = &r->asked[i];
	int rc = members_conn(r->n, i, r->deadline_ns, &a->c);

	if (rc == 0) {
		a->sent_ns = time_now_ns();
		rc = conn_send_message(a->c, &r->m.header, r->deadline_ns);
	}
	if (rc)
		failed(r, i, rc);
}

/* Its answer; the connection goes back to the pool. */
static bool receive(struct round *r, uint32_t i, uint32_t count)
{
	struct asked *a = &r->asked[i];
	const struct net_found *m = (const void *)a->c->message;
	int rc = conn_expect(a->c, NET_FOUND, r->deadline_ns);

	if (rc == 0 && (m->id != r->m.id || m->found > count || m->cold > m->found))
		rc = -EPROTO;
	if (rc) {
		failed(r, i, rc);
		return false;
	}
	a->found = m->error ? 0 : m->found;
	a->cold = m->cold;
	a->stage_bytes_per_s = m->stage_bytes_per_s;
	{
		LOCK_SCOPE(&r->n->peers_lock);
		peer_answered(&r->n->peers.peer[i], time_now_ns() - a->sent_ns);
		r->n->peers.peer[i].stage_bytes_per_s = m->stage_bytes_per_s;
	}
	members_give(r->n, i, a->c);
	a->c = NULL;
	return true;
}

/* Keys go to nobody that the context is not shared with. */
static bool may_ask(const struct share *s, const struct peer *p)
{
	return peer_asked(p) && share_with(s, p->name);
}

static bool live(struct node *n, const struct share *s, uint32_t i)
{
	LOCK_SCOPE(&n->peers_lock);
	return may_ask(s, &n->peers.peer[i]);
}

/* Who may have some of it: how many, and their places. */
static uint32_t candidates(struct round *r, const uint32_t *depth, uint32_t count,
			   uint32_t place[PEERS_MAX])
{
	uint32_t n = 0;

	if (homes_used(r->n) && !r->w->share->names)
		return find_holders(r->n, r->w, depth, count, r->deadline_ns, place);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (live(r->n, r->w->share, i))
			place[n++] = i;
	return n;
}

/* Ask them for the anchors. */
static void first_round(struct round *r, const uint32_t *depth, uint32_t count, struct placed *out)
{
	uint32_t place[PEERS_MAX];

	out->hosts = candidates(r, depth, count, place);
	fill(r, depth, count, 1);
	for (uint32_t i = 0; i < out->hosts; i++)
		send_to(r, place[i]);
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct asked *a = &r->asked[i];

		if (!a->c || !receive(r, i, count))
			continue;
		out->answered++;
		a->usable = a->found ? depth[a->found - 1] + 1 : 0;
	}
}

/* Ask those that have the most for what is between that and the next anchor. */
static void second_round(struct round *r, uint32_t most, uint32_t next)
{
	uint32_t depth[NET_ANCHORS_MAX], count = 0;

	for (uint32_t d = most; d < next && count < NET_ANCHORS_MAX; d++)
		depth[count++] = d;
	if (!count)
		return;
	fill(r, depth, count, 2);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (r->asked[i].usable == most)
			send_to(r, i);
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct asked *a = &r->asked[i];
		uint32_t cold = a->cold, found = a->found;

		if (!a->c || !receive(r, i, count))
			continue;
		a->usable += a->found;
		/* Of all together, as of those that were looked at. */
		a->cold += cold;
		a->found += found;
	}
}

static void choose(struct round *r, struct placed *out)
{
	const struct shape *s = &r->w->share->shape;

	LOCK_SCOPE(&r->n->peers_lock);
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		const struct asked *a = &r->asked[i];
		const struct peer *p = &r->n->peers.peer[i];
		uint64_t bytes, cold, all_ns;

		if (a->usable <= r->w->local || a->usable < out->usable)
			continue;
		bytes = (a->usable - r->w->local) * s->block_bytes;
		cold = a->found ? bytes / a->found * a->cold : 0;
		all_ns = peer_estimate(p, bytes, cold);
		if (a->usable == out->usable && all_ns >= out->all_ns)
			continue;
		out->peer = (int)i;
		out->usable = a->usable;
		out->cold = a->cold;
		out->bytes = bytes;
		out->all_ns = all_ns;
		out->first_ns = peer_estimate(p, bytes / s->layers, cold / s->layers);
		memcpy(out->name, p->name, sizeof(out->name));
	}
}

/* The only host that there is to ask, or negative. */
static int only_one(struct node *n, const struct share *s)
{
	int one = -ENOENT;

	LOCK_SCOPE(&n->peers_lock);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (may_ask(s, &n->peers.peer[i])) {
			if (one >= 0)
				return -EBUSY;
			one = (int)i;
		}
	return one;
}

/* Who pulls from it need not ask first what it has: the grant says so. */
static void hope(struct node *n, const struct wanted *w, int i, struct placed *out)
{
	const struct shape *s = &w->share->shape;
	const struct peer *p = &n->peers.peer[i];

	out->peer = i;
	out->only = true;
	out->hosts = out->answered = 1;
	out->usable = w->want->count;
	out->bytes = (w->want->count - w->local) * s->block_bytes;
	LOCK_SCOPE(&n->peers_lock);
	out->all_ns = peer_estimate(p, out->bytes, 0);
	out->first_ns = peer_estimate(p, out->bytes / s->layers, 0);
	memcpy(out->name, p->name, sizeof(out->name));
}

void locate(struct node *n, const struct wanted *w, struct placed *out)
{
	uint32_t depth[NET_ANCHORS_MAX];
	uint32_t count = anchors(w->local, w->want->count, depth), most = 0, next = 0;
	bool told = w->want->header.type == NET_PULL || w->want->header.type == NET_OPEN;
	int one = told ? only_one(n, w->share) : -EBUSY; /* its grant says what it has */
	struct round *r = NULL;

	*out = (struct placed){ .peer = -ENOENT };
	if (one >= 0) {
		hope(n, w, one, out);
		return;
	}
	r = calloc(1, sizeof(*r));
	if (!r || !count) {
		free(r);
		return;
	}
	r->n = n;
	r->w = w;
	r->deadline_ns = answer_until(w->want->deadline_ns);
	first_round(r, depth, count, out);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (r->asked[i].usable > most) {
			most = r->asked[i].usable;
			next = r->asked[i].found < count ? depth[r->asked[i].found] : most;
		}
	if (most && most < w->want->count)
		second_round(r, most, next);
	choose(r, out);
	free(r);
}
