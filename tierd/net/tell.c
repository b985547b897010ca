/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Homes (homes.h) and a box (box.h): what is held here is told to the homes of its anchors, and
 * offered to the box, by a thread that follows the events of each shared context (tier_events.h);
 * and this host is a home itself. In a fleet that is small enough to ask everybody, homes are not
 * told.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define TURN_NS (100 * NS_PER_MS)
#define ALIVE_NS (2 * NS_PER_S) /* so often a home hears from us: thus who is gone shows */
#define TELL_NS (4 * NS_PER_S)
#define PASS_LEAST_NS (1 * NS_PER_S)
#define FORGET_NS (60 * NS_PER_S)
#define NICE 10
#define BATCH 1024u
#define EVENTS 256u
#define CALLS 128u /* of EVENTS each, in a turn */

struct batch {
	struct net_hold m;
	struct net_holding one[BATCH];
};

/* A context whose events are followed; a pass tells of all that is there. */
struct follow {
	struct share *share;
	tier_events *events;
	bool pass, wanted;
	bool to_box; /* a pass tells the box, too (B2) */
	uint64_t begun_ns; /* the last pass */
};

struct teller {
	struct node *n;
	struct homes_view view;
	struct follow follow[NODE_SHARES_MAX];
	struct batch batch[PEERS_MAX];
	uint64_t said_ns[PEERS_MAX], again_ns, forget_ns;
	/* of those that are told at this moment; failed is 0 else */
	struct conn *conn[PEERS_MAX];
	int failed[PEERS_MAX];
	uint64_t until_ns;
	bool homes;          /* are they told? */
	struct offer *offer; /* NULL = there is no box */
	uint64_t box_life;
	struct tier_event event[EVENTS];
};

static uint32_t now_s(void)
{
	return (uint32_t)(time_now_ns() / NS_PER_S);
}

bool homes_used(struct node *n)
{
	uint32_t known = 0;

	LOCK_SCOPE(&n->peers_lock);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		known += n->peers.peer[i].state != PEER_FREE;
	return known > n->config.ask_all;
}

/* ---- a home ---------------------------------------------------------------------------------- */

void home_take(struct node *n, const struct net_hold *m, const char *from)
{
	LOCK_SCOPE(&n->homes_lock);
	homes_take(&n->homes, m, homes_host(from), now_s());
}

static void count_probes(struct node *n, uint32_t count) REQUIRES(n->homes_lock)
{
	uint32_t now = now_s();

	if (now != n->probes_s) {
		n->probes_last = now == n->probes_s + 1 ? n->probes_now : 0;
		n->probes_now = 0;
		n->probes_s = now;
	}
	n->probes_now += count;
	n->probes += count;
}

struct net_held *home_answer(struct node *n, const struct net_find *m)
{
	struct net_held *out = malloc(sizeof(*out) + m->count * sizeof(struct net_holders));

	LOCK_SCOPE(&n->homes_lock);
	if (out)
		homes_answer(&n->homes, m, out);
	count_probes(n, m->count);
	return out;
}

json_t *home_list(struct node *n)
{
	bool used = homes_used(n);

	LOCK_SCOPE(&n->homes_lock);
	count_probes(n, 0);
	return json_pack("{s:b, s:I, s:I, s:I}", "used", used, "entries",
			 (json_int_t)homes_forget(&n->homes, 0), "probes", (json_int_t)n->probes,
			 "probes_per_s", (json_int_t)n->probes_last);
}

/* ---- telling --------------------------------------------------------------------------------- */

/* One that lies idle, or a new one, which may take its time. */
static void open_to(struct node *n, uint32_t place, void *teller)
{
	struct teller *t = teller;

	t->failed[place] = members_conn(n, place, t->until_ns, &t->conn[place]);
}

static int say(struct teller *t, uint32_t place)
{
	struct net_hold *m = &t->batch[place].m;

	m->header = (struct net_header){ .magic = NET_MAGIC, .version = NET_VERSION,
					 .type = NET_HOLD };
	m->header.length = (uint32_t)(sizeof(*m) + m->count * sizeof(struct net_holding));
	m->id++;
	return conn_send_message(t->conn[place], &m->header, t->until_ns);
}

static int hear(struct teller *t, uint32_t place)
{
	const struct net_held *held = (const void *)t->conn[place]->message;
	int rc = conn_expect(t->conn[place], NET_HELD, t->until_ns);

	return rc || (held->id == t->batch[place].m.id && !held->count) ? rc : -EPROTO;
}

static void said(struct teller *t, uint32_t place)
{
	members_done(t->n, place, t->conn[place], t->failed[place]);
	t->view.lost += t->failed[place] && t->batch[place].m.count;
	t->conn[place] = NULL;
	t->batch[place].m.count = 0;
	t->said_ns[place] = time_now_ns();
}

/*
 * All are told before one is heard, and what must be connected is so side by side: those that stand
 * still take TELL_NS together.
 */
static void send_batches(struct teller *t, const uint32_t *place, uint32_t count)
{
	uint32_t away[PEERS_MAX], n = 0;

	t->until_ns = time_now_ns() + TELL_NS;
	for (uint32_t i = 0; i < count; i++) {
		t->conn[place[i]] = members_idle(t->n, place[i]);
		t->failed[place[i]] = 0;
		if (!t->conn[place[i]])
			away[n++] = place[i];
	}
	members_side_by_side(t->n, away, n, open_to, t);
	if (n) /* the others have their time, whatever that took */
		t->until_ns = time_now_ns() + TELL_NS;
	for (uint32_t i = 0; i < count; i++)
		if (!t->failed[place[i]])
			t->failed[place[i]] = say(t, place[i]);
	for (uint32_t i = 0; i < count; i++) {
		if (!t->failed[place[i]])
			t->failed[place[i]] = hear(t, place[i]);
		said(t, place[i]);
	}
}

static bool told(struct teller *t, uint32_t place)
{
	LOCK_SCOPE(&t->n->peers_lock);
	return peer_asked(&t->n->peers.peer[place]);
}

static void tell_home(struct teller *t, uint64_t tag, bool gone)
{
	uint32_t place = homes_place(&t->view, tag);
	struct batch *b;

	if (place == HOMES_OURSELVES) {
		LOCK_SCOPE(&t->n->homes_lock);
		if (gone)
			homes_drop(&t->n->homes, tag, t->view.host[0]);
		else
			homes_hold(&t->n->homes, tag, t->view.host[0], now_s());
		return;
	}
	b = &t->batch[place];
	b->one[b->m.count++] = (struct net_holding){ .tag = tag, .gone = gone };
	if (b->m.count < BATCH)
		return;
	if (told(t, place)) {
		send_batches(t, &place, 1);
		return;
	}
	b->m.count = 0; /* it stands still: its successor is told all, or itself again */
	t->view.lost++;
}

/* Does a run begin with it: is what comes before it not here? */
static bool begins(const struct follow *f, const struct tier_event *e)
{
	static const tier_key none;

	return memcmp(&e->parent, &none, sizeof(none)) == 0 ||
	       tier_match(f->share->c, &e->parent, 1, NULL) < 1;
}

static void tell(struct teller *t, const struct follow *f, const struct tier_event *e)
{
	bool gone = e->kind == TIER_EVENT_REMOVED;

	if (t->offer && (!f->pass || f->to_box))
		box_event(t->n, t->offer, f->share, e);
	if (!t->homes || f->share->names)
		return; /* a home that is not named would learn when blocks come and go */
	if (e->kind != TIER_EVENT_STORED && !gone)
		return; /* with its epoch an anchor's tag is another one (K4) */
	if (!anchor(e->depth) && (gone || !begins(f, e)))
		return;
	tell_home(t, homes_tag(f->share->agreed.digest, e->epoch, e->key.bytes), gone);
}

/* ---- following ------------------------------------------------------------------------------- */

static void unfollow(struct teller *t, struct follow *f)
{
	tier_events_close(f->events);
	if (f->share)
		share_put(t->n, f->share);
	*f = (struct follow){ 0 };
}

/* The context that is shared in place i is the one that is followed there. */
static void adopt(struct teller *t, uint32_t i)
{
	struct follow *f = &t->follow[i];
	struct share *s = share_at(t->n, i);

	if (f->share && f->share != s)
		unfollow(t, f);
	if (s && !f->share && tier_events_open(s->c, &f->events) == 0) {
		f->share = s; /* held from now on */
		f->wanted = f->to_box = true;
	} else if (s) {
		share_put(t->n, s);
	}
}

static void follow(struct teller *t, struct follow *f)
{
	int64_t n = EVENTS;

	if (!f->pass && f->wanted && time_now_ns() - f->begun_ns > PASS_LEAST_NS) {
		f->pass = true;
		f->wanted = false;
		f->begun_ns = time_now_ns();
	}
	for (uint32_t i = 0; i < CALLS && n > 0; i++) {
		n = f->pass ? tier_events_snapshot(f->events, t->event, EVENTS) :
			      tier_events_read(f->events, t->event, EVENTS, 0);
		for (int64_t k = 0; k < n; k++)
			tell(t, f, &t->event[k]);
	}
	f->wanted |= n < 0;
	if (n == 0 && f->pass)
		f->to_box = false;
	if (n <= 0)
		f->pass = false;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Who the members are. All is told again to others than there were, and now and then (K1). */
static void look_round(struct teller *t)
{
	struct homes_view was = t->view;
	uint64_t now = time_now_ns();

	{
		LOCK_SCOPE(&t->n->peers_lock);
		homes_view(&t->view, &t->n->peers, t->n->config.name);
	}
	if (t->offer && box_is_another(t->n, &t->box_life))
		for (uint32_t i = 0; i < NODE_SHARES_MAX; i++)
			t->follow[i].wanted = t->follow[i].to_box = true;
	if (homes_changed(&was, &t->view) || now >= t->again_ns) {
		for (uint32_t i = 0; i < NODE_SHARES_MAX; i++)
			t->follow[i].wanted = true;
		t->again_ns = now + HOMES_AGAIN_S * NS_PER_S;
	}
	if (now < t->forget_ns)
		return;
	t->forget_ns = now + FORGET_NS;
	LOCK_SCOPE(&t->n->homes_lock);
	homes_forget(&t->n->homes, now_s() > HOMES_LIFE_S ? now_s() - HOMES_LIFE_S : 0);
}

static void turn(struct teller *t)
{
	uint32_t due[PEERS_MAX], count = 0;

	look_round(t);
	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++) {
		adopt(t, i);
		if (t->follow[i].share)
			follow(t, &t->follow[i]);
	}
	if (t->offer)
		box_offer(t->n, t->offer);
	if (!t->homes)
		return;
	for (uint32_t i = 1; i < t->view.count; i++) {
		uint32_t place = t->view.place[i];

		if (t->batch[place].m.count || time_now_ns() - t->said_ns[place] > ALIVE_NS)
			due[count++] = place;
	}
	send_batches(t, due, count);
}

static void rest(struct teller *t)
{
	for (uint32_t i = 0; i < NODE_SHARES_MAX; i++)
		unfollow(t, &t->follow[i]);
	t->view.count = 0;
}

void *tell_run(void *arg)
{
	struct teller *t = calloc(1, sizeof(*t));
	struct offer *offer = calloc(1, sizeof(*offer));

	if (!t || !offer) {
		free(t);
		free(offer);
		return NULL;
	}
	t->n = arg;
	t->offer = box_used(t->n) ? offer : NULL;
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread alone */
	while (!node_stopped(t->n, TURN_NS)) {
		t->homes = homes_used(t->n);
		if (t->homes || t->offer)
			turn(t);
		else
			rest(t);
	}
	rest(t);
	free(t);
	free(offer);
	return NULL;
}
