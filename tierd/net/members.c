/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other hosts: their connections, and a thread that looks at new ones and at those on
 * probation, so that no request has to (R4), and that turns etcd's clock.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "libtier/base/json_at.h"
#include "libtier/base/time.h"
#include "tierd/net/etcd.h"

#define TURN_NS (250 * NS_PER_MS)
#define LOOK_NS (1 * NS_PER_S)

/* ---- connections --------------------------------------------------------------------------- */

static struct conn *from_pool(struct node *n, uint32_t i)
{
	LOCK_SCOPE(&n->pool);
	for (uint32_t k = 0; k < NODE_POOLED_MAX; k++) {
		struct conn *c = n->idle[i][k];

		n->idle[i][k] = NULL;
		if (c)
			return c;
	}
	return NULL;
}

static struct peer copy_of(struct node *n, uint32_t i)
{
	LOCK_SCOPE(&n->peers_lock);
	return n->peers.peer[i];
}

/* Is the connection still to the peer's present life, and of our present certificates? */
static bool current(struct node *n, uint32_t i, const struct conn *c)
{
	struct peer p = copy_of(n, i);

	return p.state != PEER_FREE && conn_newest(c) &&
	       c->own_pool == atomic_load_relaxed_u64(&n->self.pool) &&
	       strcmp(p.name, c->peer) == 0 &&
	       (!p.incarnation || p.incarnation == c->incarnation);
}

static void met(struct node *n, const struct conn *c, uint32_t i, int *rc)
{
	struct peer *p = &n->peers.peer[i];

	LOCK_SCOPE(&n->peers_lock);
	*rc = strcmp(p->name, c->peer) == 0 ? peer_met(p, c->incarnation) : -ESTALE;
}

struct conn *members_idle(struct node *n, uint32_t i)
{
	struct conn *c;

	while ((c = from_pool(n, i))) {
		if (!conn_readable(c) && current(n, i, c))
			return c;
		conn_close(c);
	}
	return NULL;
}

int members_conn(struct node *n, uint32_t i, uint64_t deadline_ns, struct conn **out)
{
	struct peer p = copy_of(n, i);
	struct conn *c = members_idle(n, i);
	int rc;

	if (c) {
		*out = c;
		return 0;
	}
	rc = conn_open(&c, &n->self, p.address, p.name, deadline_ns);
	if (rc)
		return rc;
	met(n, c, i, &rc);
	if (rc)
		conn_close(c);
	else
		*out = c;
	return rc;
}

bool members_current(struct node *n, uint32_t i, const struct conn *c)
{
	struct peer p = copy_of(n, i);

	return current(n, i, c) && peer_asked(&p);
}

void members_give(struct node *n, uint32_t i, struct conn *c)
{
	if (current(n, i, c)) {
		LOCK_SCOPE(&n->pool);
		for (uint32_t k = 0; k < NODE_POOLED_MAX; k++)
			if (!n->idle[i][k]) {
				n->idle[i][k] = c;
				return;
			}
	}
	conn_close(c);
}

static const char *reason(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return "did not answer in time";
	case -ENOTCONN:
		return "hung up";
	case -ECONNREFUSED:
		return "nobody listens there";
	case -EACCES:
		return "its certificate is not good for its name";
	case -EPROTO:
		return "broke the protocol";
	case -EBADMSG:
		return "sent bytes that do not verify";
	case -ESTALE:
		return "is a life that was replaced";
	default:
		return strerror(-error);
	}
}

static void drain_pool(struct node *n, uint32_t i)
{
	struct conn *c;

	while ((c = from_pool(n, i)))
		conn_close(c);
}

void members_failed(struct node *n, uint32_t i, int error)
{
	char name[NET_NAME_BYTES];

	{
		LOCK_SCOPE(&n->peers_lock);
		memcpy(name, n->peers.peer[i].name, sizeof(name));
		if (n->peers.peer[i].state != PEER_FREE)
			peer_failed(&n->peers.peer[i], time_now_ns(), reason(error));
	}
	drain_pool(n, i);
	log_warn(&n->log, "a peer is on probation", name, "it is looked at again by itself",
		 "why=\"%s\"", reason(error));
}

void members_done(struct node *n, uint32_t i, struct conn *c, int error)
{
	if (error == 0)
		members_give(n, i, c);
	else
		conn_close(c);
	if (error && error != -ECANCELED)
		members_failed(n, i, error);
}

int members_place(struct node *n, const char *name)
{
	struct peer *p;

	LOCK_SCOPE(&n->peers_lock);
	p = peers_find(&n->peers, name);
	return p ? (int)(p - n->peers.peer) : -ENOENT;
}

/* ---- etcd ---------------------------------------------------------------------------------- */

static bool read_member(const json_t *d, struct peer *p)
{
	const char *name = json_string_value(json_at(d, "name"));
	const char *address = json_string_value(json_at(d, "address"));
	const char *incarnation = json_string_value(json_at(d, "incarnation"));

	if (!name || !address || !incarnation || strlen(name) >= sizeof(p->name) ||
	    strlen(address) >= sizeof(p->address))
		return false;
	*p = (struct peer){ .incarnation = strtoull(incarnation, NULL, 16) };
	memcpy(p->name, name, strlen(name));
	memcpy(p->address, address, strlen(address));
	return true;
}

/* Who is not in etcd any more has left, or its lease is over. */
static void forget_absent(struct node *n, const json_t *names) REQUIRES(n->peers_lock)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer *p = &n->peers.peer[i];

		if (p->state != PEER_FREE && !p->fixed && !json_object_get(names, p->name))
			peers_forget(&n->peers, p->name);
	}
}

/* Our own record, as etcd has it. */
static void judge_own(const struct node *n, const json_t *one, const struct peer *p,
		      struct agree_answer *out)
{
	out->mod = json_integer_value(json_at(one, "mod"));
	out->right = json_is_true(json_at(one, "lease")) && p->incarnation == n->self.incarnation &&
		     strcmp(p->address, n->config.advertise) == 0;
}

/*
 * Each host knows PEERS_MAX others, so all of so many and itself know each other. One more would be
 * known to some: it stays outside, and knows nobody.
 */
static int know_members(struct node *n, const json_t *list, const json_t *names, bool within)
{
	uint32_t count = (uint32_t)json_object_size(names);
	bool full = count > PEERS_MAX;

	LOCK_SCOPE(&n->peers_lock);
	if (full && count != n->members)
		log_error(&n->log, within ? "hosts of the fleet do not know each other" :
					    "the fleet has no room for this host", n->config.fleet,
			  "a fleet is 65 hosts; give others another --fleet", "others=%u", count);
	n->etcd_seen_ns = time_now_ns();
	n->members = count;
	n->full = full && !within;
	if (n->full)
		return -EAGAIN;
	forget_absent(n, names);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct peer p;

		if (read_member(json_at(json_array_get(list, i), "value"), &p) &&
		    json_object_get(names, p.name))
			peers_member(&n->peers, &p, time_now_ns());
	}
	return 0;
}

int etcd_members(struct etcd *e, struct node *n, struct agree_answer *out)
{
	json_t *list = etcd_range(e, "member/"), *names = json_object();
	int rc = -EAGAIN;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *one = json_array_get(list, i);
		struct peer p;

		if (!read_member(json_at(one, "value"), &p))
			continue;
		if (strcmp(p.name, n->config.name) == 0)
			judge_own(n, one, &p, out);
		else
			json_object_set_new(names, p.name, json_true());
	}
	if (list)
		rc = know_members(n, list, names, out->mod != 0);
	json_decref(names);
	json_decref(list);
	return rc;
}

int etcd_enter(struct etcd *e, const struct node *n, int64_t *mod)
{
	char key[NET_NAME_BYTES + 8];
	json_t *record = json_pack("{s:s, s:s, s:o}", "name", n->config.name, "address",
				   n->config.advertise, "incarnation",
				   json_sprintf("%016llx",
						(unsigned long long)n->self.incarnation));

	snprintf(key, sizeof(key), "member/%s", n->config.name);
	return etcd_change(e, key, mod, json_pack("[o]", etcd_to_put(e, key, record, true)));
}

/* ---- side by side -------------------------------------------------------------------------- */

struct side {
	pthread_t thread;
	struct node *n;
	uint32_t place;
	members_body *body;
	void *arg;
	bool apart;
};

static void *side_run(void *arg)
{
	const struct side *s = arg;

	s->body(s->n, s->place, s->arg);
	return NULL;
}

void members_side_by_side(struct node *n, const uint32_t *place, uint32_t count,
			  members_body *body, void *arg)
{
	struct side side[PEERS_MAX];

	/* The first one by this thread, as are those that no thread could be made for. */
	for (uint32_t i = count; i-- > 0;) {
		side[i] = (struct side){ .n = n, .place = place[i], .body = body, .arg = arg };
		side[i].apart = i && pthread_create(&side[i].thread, NULL, side_run, &side[i]) == 0;
		if (!side[i].apart)
			side_run(&side[i]);
	}
	for (uint32_t i = 0; i < count; i++)
		if (side[i].apart)
			pthread_join(side[i].thread, NULL);
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* By a new connection: that one lies idle in the pool says nothing. */
static void look(struct node *n, uint32_t i, void *none)
{
	struct conn *c;
	int rc;

	(void)none;
	drain_pool(n, i);
	rc = members_conn(n, i, time_now_ns() + LOOK_NS, &c);
	if (rc == 0) {
		members_give(n, i, c);
		return;
	}
	LOCK_SCOPE(&n->peers_lock);
	if (n->peers.peer[i].state != PEER_FREE)
		peer_failed(&n->peers.peer[i], time_now_ns(), reason(rc));
}

/* All at once: each silent one takes its time, and our own lease waits for none of them. */
static void look_at_due(struct node *n)
{
	uint32_t due[PEERS_MAX], count = 0;

	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer p = copy_of(n, i);

		if (peer_due(&p, time_now_ns()))
			due[count++] = i;
	}
	members_side_by_side(n, due, count, look, NULL);
}

uint64_t node_reattached(const struct node *n)
{
	struct tier_counters counters = { .size = sizeof(counters) };

	return tier_counters(n->t, &counters) ? 0 : counters.reattached;
}

bool node_stopped(const struct node *n, uint64_t wait_ns)
{
	struct pollfd p = { .fd = n->stop, .events = POLLIN };
	struct timespec wait = time_to_timespec(wait_ns);

	return ppoll(&p, 1, &wait, NULL) > 0;
}

/* Once in a fifth of a lease: agree.h. */
static void turn(struct etcd *e, struct node *n, bool *away)
{
	bool here = epochs_turn(e, n), full;

	atomic_store_relaxed_u64(&n->self.pool, pool_id(n, here));
	{
		LOCK_SCOPE(&n->peers_lock);
		full = n->full;
	}
	if (here == *away && !full) /* it was said why */
		log_event(&n->log, here ? LOG_LEVEL_INFO : LOG_LEVEL_WARN,
			  here ? "etcd answers again" : "etcd does not answer", n->config.etcd,
			  here ? NULL : "the members known go on", "");
	*away = !here;
}

void *members_run(void *arg)
{
	struct node *n = arg;
	struct etcd *e = NULL;
	uint64_t turn_ns = 0;
	bool away = false;
	int rc = 0;

	if (n->config.etcd[0])
		rc = etcd_open(&e, n);
	if (rc)
		log_error(&n->log, "etcd cannot be asked", n->config.etcd, "look at --etcd",
			  "errno=%d", -rc);
	while (!node_stopped(n, TURN_NS)) {
		uint64_t now = time_now_ns();

		tier_check(n->t); /* who only serves attaches to a new tierd by this alone */
		if (e && now >= turn_ns) {
			turn(e, n, &away);
			turn_ns = now + n->config.lease_ns / 5;
		}
		look_at_due(n);
	}
	etcd_close(e);
	return NULL;
}

/* ---- showing ------------------------------------------------------------------------------- */

static const char *state_name(enum peer_state state)
{
	static const char *const name[] = { "free", "new", "up", "probation" };

	return name[state];
}

/* How its pages come: by RDMA at the last pull, or by the connection. */
static const char *transport(const struct node *n, const struct peer *p)
{
	if (p->path)
		return n->config.tls[0] ? "tls+rdma" : "tcp+rdma";
	return n->config.tls[0] ? "tls" : "tcp";
}

static json_t *describe(const struct node *n, const struct peer *p, uint64_t now)
{
	json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", p->name, "address", p->address,
				"transport", transport(n, p), "state",
				state_name(p->state), "why", p->why);
	bool waits = p->state == PEER_PROBATION && p->retry_ns > now;
	const struct {
		const char *name;
		uint64_t value;
	} number[] = {
		{ "bytes_in", p->bytes_in }, { "bytes_out", p->bytes_out }, { "pulls", p->pulls },
		{ "read_in", p->read_in }, { "read_out", p->read_out },
		{ "path_failures", p->path_failures }, { "misses", p->misses },
		{ "failed", p->failed }, { "answer_ns", p->answer_ns },
		{ "bytes_per_s", p->bytes_per_s },
		{ "retry_ns", waits ? p->retry_ns - now : 0 },
	};

	for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++)
		json_object_set_new(one, number[i].name,
				    json_integer((json_int_t)number[i].value));
	json_object_set_new(one, "incarnation", json_sprintf("%016llx",
						(unsigned long long)p->incarnation));
	return one;
}

json_t *members_list(struct node *n)
{
	json_t *list = json_array();
	uint64_t now = time_now_ns();

	LOCK_SCOPE(&n->peers_lock);
	for (uint32_t i = 0; i < PEERS_MAX; i++)
		if (n->peers.peer[i].state != PEER_FREE)
			json_array_append_new(list, describe(n, &n->peers.peer[i], now));
	return list;
}
