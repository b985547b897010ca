/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other hosts: their connections, and a thread that looks at new ones and at those on
 * probation, so that no request has to (R4), and that turns etcd's clock.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"

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

/* Is the connection still to the peer's present life? */
static bool current(struct node *n, uint32_t i, const struct conn *c)
{
	struct peer p = copy_of(n, i);

	return p.state != PEER_FREE && strcmp(p.name, c->peer) == 0 &&
	       (!p.incarnation || p.incarnation == c->incarnation);
}

static void met(struct node *n, const struct conn *c, uint32_t i, int *rc)
{
	struct peer *p = &n->peers.peer[i];

	LOCK_SCOPE(&n->peers_lock);
	*rc = strcmp(p->name, c->peer) == 0 ? peer_met(p, c->incarnation) : -ESTALE;
}

int members_conn(struct node *n, uint32_t i, uint64_t deadline_ns, struct conn **out)
{
	struct peer p = copy_of(n, i);
	struct conn *c;
	int rc;

	while ((c = from_pool(n, i))) {
		if (!conn_stale(c) && current(n, i, c)) {
			*out = c;
			return 0;
		}
		conn_close(c);
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

void members_failed(struct node *n, uint32_t i, int error)
{
	struct conn *c;
	char name[NET_NAME_BYTES];

	{
		LOCK_SCOPE(&n->peers_lock);
		memcpy(name, n->peers.peer[i].name, sizeof(name));
		if (n->peers.peer[i].state != PEER_FREE)
			peer_failed(&n->peers.peer[i], time_now_ns(), reason(error));
	}
	while ((c = from_pool(n, i)))
		conn_close(c);
	log_warn(&n->log, "a peer is on probation", name, "it is looked at again by itself",
		 "why=\"%s\"", reason(error));
}

int members_place(struct node *n, const char *name)
{
	struct peer *p;

	LOCK_SCOPE(&n->peers_lock);
	p = peers_find(&n->peers, name);
	return p ? (int)(p - n->peers.peer) : -ENOENT;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void look(struct node *n, uint32_t i)
{
	struct conn *c;
	int rc = members_conn(n, i, time_now_ns() + LOOK_NS, &c);

	if (rc == 0) {
		members_give(n, i, c);
		return;
	}
	LOCK_SCOPE(&n->peers_lock);
	if (n->peers.peer[i].state != PEER_FREE)
		peer_failed(&n->peers.peer[i], time_now_ns(), reason(rc));
}

static void look_at_due(struct node *n)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer p = copy_of(n, i);

		if (peer_due(&p, time_now_ns()) && !node_stopped(n, 0))
			look(n, i);
	}
}

bool node_stopped(const struct node *n, uint64_t wait_ns)
{
	struct pollfd p = { .fd = n->stop, .events = POLLIN };
	struct timespec wait = time_to_timespec(wait_ns);

	return ppoll(&p, 1, &wait, NULL) > 0;
}

void *members_run(void *arg)
{
	struct node *n = arg;
	struct etcd *e = NULL;
	uint64_t turn_ns = 0;
	int rc = 0;

	if (n->config.etcd[0])
		rc = etcd_open(&e, n);
	if (rc)
		log_error(&n->log, "etcd cannot be asked", n->config.etcd, "look at --etcd",
			  "errno=%d", -rc);
	while (!node_stopped(n, TURN_NS)) {
		uint64_t now = time_now_ns();

		if (e && now >= turn_ns) {
			etcd_turn(e);
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

static json_t *describe(const struct node *n, const struct peer *p, uint64_t now)
{
	json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", p->name, "address", p->address,
				"transport", n->self.tls ? "tls" : "tcp", "state",
				state_name(p->state), "why", p->why);
	bool waits = p->state == PEER_PROBATION && p->retry_ns > now;
	const struct {
		const char *name;
		uint64_t value;
	} number[] = {
		{ "bytes_in", p->bytes_in }, { "bytes_out", p->bytes_out }, { "pulls", p->pulls },
		{ "misses", p->misses }, { "failed", p->failed }, { "answer_ns", p->answer_ns },
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
