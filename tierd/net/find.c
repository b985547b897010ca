/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom to ask for a prefix, in a fleet too large to ask everybody: the homes of its anchors say who
 * holds them. A hint (R2): who is named may have it no more, and a home that does not answer in
 * its time, half of the look's, is on probation, so that the next look asks the next home.
 */
#include <errno.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"

struct finding {
	struct node *n;
	struct homes_view view;
	uint64_t until_ns;
	uint32_t count;
	uint64_t tag[NET_ANCHORS_MAX];
	uint32_t home[NET_ANCHORS_MAX]; /* its place */
	struct net_holders named[NET_ANCHORS_MAX];
	struct conn *c[PEERS_MAX]; /* NULL = not asked */
	struct {
		struct net_find m;
		uint64_t tag[NET_ANCHORS_MAX];
	} find;
};

/* The tags whose home is there; how many. */
static uint32_t fill(struct finding *f, uint32_t place)
{
	struct net_find *m = &f->find.m;

	*m = (struct net_find){ .header = { .magic = NET_MAGIC, .version = NET_VERSION,
					    .type = NET_FIND }, .id = 1 };
	for (uint32_t i = 0; i < f->count; i++)
		if (f->home[i] == place)
			f->find.tag[m->count++] = f->tag[i];
	m->header.length = (uint32_t)(sizeof(*m) + m->count * sizeof(f->find.tag[0]));
	return m->count;
}

static void failed(struct finding *f, uint32_t place, int error)
{
	conn_close(f->c[place]);
	f->c[place] = NULL;
	members_failed(f->n, place, error);
}

static void ask(struct finding *f, uint32_t place)
{
	int rc;

	if (!fill(f, place))
		return;
	rc = members_conn(f->n, place, f->until_ns, &f->c[place]);
	if (rc == 0)
		rc = conn_send_message(f->c[place], &f->find.m.header, f->until_ns);
	if (rc)
		failed(f, place, rc);
}

/* What a home has of its tags, in their order. */
static void take(struct finding *f, uint32_t place, const struct net_held *m)
{
	const struct net_holders *of = (const void *)(m + 1);

	for (uint32_t i = 0; i < f->count; i++)
		if (f->home[i] == place)
			f->named[i] = *of++;
}

static void receive(struct finding *f, uint32_t place)
{
	const struct net_held *m;
	int rc;

	if (!f->c[place])
		return;
	m = (const void *)f->c[place]->message;
	rc = conn_expect(f->c[place], NET_HELD, f->until_ns);
	if (rc == 0 && (m->id != f->find.m.id || m->count != fill(f, place)))
		rc = -EPROTO;
	if (rc) {
		failed(f, place, rc);
		return;
	}
	take(f, place, m);
	members_give(f->n, place, f->c[place]);
}

static void ask_ourselves(struct finding *f)
{
	struct net_held *m = fill(f, HOMES_OURSELVES) ? home_answer(f->n, &f->find.m) : NULL;

	if (m)
		take(f, HOMES_OURSELVES, m);
	free(m);
}

uint32_t find_holders(struct node *n, const struct wanted *w, const uint32_t *depth,
		      uint32_t count, uint64_t until_ns, uint32_t place[HOMES_ASKED_MAX])
{
	struct finding *f = calloc(1, sizeof(*f));
	uint64_t now = time_now_ns();
	uint32_t asked;

	if (!f)
		return 0;
	f->n = n;
	f->count = count;
	f->until_ns = until_ns > now ? now + (until_ns - now) / 2 : until_ns;
	{
		LOCK_SCOPE(&n->peers_lock);
		homes_view(&f->view, &n->peers, n->config.name);
	}
	for (uint32_t i = 0; i < count; i++) {
		f->tag[i] = homes_tag(w->share->agreed.digest, w->epoch, w->keys[depth[i]].bytes);
		f->home[i] = homes_place(&f->view, f->tag[i]);
	}
	for (uint32_t i = 1; i < f->view.count; i++)
		ask(f, f->view.place[i]);
	ask_ourselves(f);
	for (uint32_t i = 1; i < f->view.count; i++)
		receive(f, f->view.place[i]);
	asked = homes_whom(&f->view, f->named, count, place);
	free(f);
	return asked;
}
