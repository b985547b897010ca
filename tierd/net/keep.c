/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standing grants that this host gives (keep.h): single pages, under leases that last for an
 * answer. A page that is not in memory is fetched like any sparse reader's, and each is a use here:
 * who reads it keeps no block of it, so what is read often stays.
 */
#include <errno.h>
#include <string.h>

#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define ANSWER_NS (5 * NS_PER_S)

/* One of a connection. */
struct standing {
	struct node *n;
	struct conn *c;
	uint32_t place; /* the peer's */
	struct kept kept;
	struct share *share;
	tier_reader *reader;
	tier_block *block;
	tier_key *key;
	uint64_t reattached;
	uint32_t klass;
	struct {
		struct net_picked m;
		struct net_picked_page page[NET_FRAME_PAGES_MAX];
	} out;
	struct tier_page page[NET_FRAME_PAGES_MAX], missing[NET_FRAME_PAGES_MAX];
	struct tier_lease lease[NET_FRAME_PAGES_MAX], late[NET_FRAME_PAGES_MAX];
	struct iovec iov[NET_FRAME_PAGES_MAX + 1];
};

static bool enter(struct node *n)
{
	LOCK_SCOPE(&n->peers_lock);
	if (n->standing >= NODE_STANDING_MAX)
		return false;
	n->standing++;
	return true;
}

void keep_end(struct standing *s)
{
	if (!s)
		return;
	tier_reader_close(s->reader);
	if (s->share)
		share_put(s->n, s->share);
	free(s->block);
	free(s->key);
	LOCK_SCOPE(&s->n->peers_lock);
	s->n->standing--;
	free(s);
}

uint64_t keep_until(const struct standing *s)
{
	return s ? s->kept.ends_ns : 0;
}

/* The keys' blocks: how many there are, or why none. */
static int64_t match(struct standing *s, const struct net_ask *m)
{
	struct tier_found *found = calloc(m->count, sizeof(*found));
	int64_t blocks = -ENOMEM;

	s->block = calloc(m->count, sizeof(*s->block));
	s->key = calloc(m->count, sizeof(*s->key));
	if (found && s->block && s->key) {
		memcpy(s->key, m + 1, m->count * sizeof(*s->key));
		blocks = tier_match(s->share->c, s->key, m->count, found);
	}
	for (int64_t i = 0; i < blocks; i++)
		s->block[i] = found[i].block;
	free(found);
	return blocks ? blocks : -ENODATA;
}

static int64_t begin(struct standing *s, const struct net_ask *m)
{
	int rc = share_asked(s->n, s->c->peer, m->context, m->epoch, m->deleted, &s->share);

	if (rc)
		return rc;
	rc = tier_reader_open(s->n->t, &s->reader);
	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc;
	s->klass = class_of_hosts(m->klass);
	s->reattached = node_reattached(s->n);
	return match(s, m);
}

int keep_begin(struct node *n, struct conn *c, uint32_t place, struct standing **out)
{
	const struct net_ask *m = (const void *)c->message;
	struct net_grant grant = { .error = -EBUSY };
	struct standing *s = NULL;
	struct kept refused;
	int64_t blocks = -EBUSY;

	keep_end(*out);
	*out = NULL;
	if (enter(n)) {
		s = calloc(1, sizeof(*s));
		if (!s) {
			LOCK_SCOPE(&n->peers_lock);
			n->standing--;
		}
	}
	if (s) {
		*s = (struct standing){ .n = n, .c = c, .place = place };
		blocks = begin(s, m);
	}
	grant.error = blocks < 0 ? (int32_t)blocks : 0;
	kept_grant(s ? &s->kept : &refused, m, s && s->share ? &s->share->shape : NULL,
		   blocks < 0 ? 0 : (uint32_t)blocks, &grant, time_now_ns());
	if (grant.error)
		keep_end(s);
	else
		*out = s;
	return conn_send_message(c, &grant.header, time_now_ns() + ANSWER_NS);
}

static bool intact(struct standing *s)
{
	return share_intact(s->n, s->share, s->kept.epoch, s->reattached);
}

/* Lease what is in memory: how many are not. */
static uint32_t lease(struct standing *s, const struct net_pick *m)
{
	const struct net_pick_page *page = (const void *)(m + 1);
	uint32_t missing = 0;
	int got;

	for (uint32_t i = 0; i < m->count; i++)
		s->page[i] = (struct tier_page){ s->block[page[i].block], page[i].page };
	got = tier_lease_pages(s->reader, s->share->c, s->page, m->count, TIER_LEASE_CXL,
			       s->lease);
	for (uint32_t i = 0; i < m->count; i++) {
		if (got < 0)
			s->lease[i] = (struct tier_lease){ .error = got };
		s->out.page[i].error = s->lease[i].error;
		if (s->lease[i].error == -ENODATA)
			s->missing[missing++] = s->page[i];
	}
	return missing;
}

/* Bring the rest from NVMe, and lease that. Half of the time is for it: the way back takes some. */
static void fetch(struct standing *s, const struct net_pick *m, uint32_t missing)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL, .klass = s->klass };
	uint64_t wait_ns = m->wait_ns < SERVE_WAIT_MAX_NS ? m->wait_ns : SERVE_WAIT_MAX_NS;
	uint32_t k = 0;
	int got;

	ask.deadline_ns = time_now_ns() + wait_ns / 2;
	tier_fetch_pages(s->share->c, s->missing, missing, &ask);
	got = tier_lease_pages(s->reader, s->share->c, s->missing, missing, TIER_LEASE_CXL,
			       s->late);
	for (uint32_t i = 0; i < m->count; i++) {
		if (s->lease[i].error != -ENODATA)
			continue;
		s->lease[i] = s->late[k++];
		if (got < 0)
			s->lease[i] = (struct tier_lease){ .error = got };
		s->out.page[i].error = s->lease[i].error;
		if (s->lease[i].error == -ENODATA && time_now_ns() >= ask.deadline_ns)
			s->out.page[i].error = -ETIMEDOUT;
	}
}

/* CRCs of what is leased, and where it lies. Returns the pages to be sent. */
static uint32_t lay_out(struct standing *s, const struct net_pick *m)
{
	const struct net_pick_page *page = (const void *)(m + 1);
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->count; i++) {
		const struct shape_page *p = keep_page(s->kept.shape, s->kept.blocks, &page[i]);
		struct net_picked_page *out = &s->out.page[i];

		out->crc = 0;
		if (out->error && out->error != -ETIMEDOUT)
			out->error = -ENODATA; /* the block has gone, say */
		if (out->error)
			continue;
		out->crc = page_crc(s->key[page[i].block].bytes, s->kept.epoch, p,
				    s->lease[i].data);
		out->error = tier_lease_check(&s->lease[i]) ? -ENODATA : 0;
		if (!out->error)
			s->iov[1 + n++] = (struct iovec){ (void *)(uintptr_t)s->lease[i].data,
							  p->bytes };
	}
	return n;
}

static int send_pages(struct standing *s, uint32_t pages, uint64_t until_ns)
{
	struct net_word word;
	int rc;

	s->iov[0] = (struct iovec){ &s->out, s->out.m.header.length };
	rc = conn_send(s->c, s->iov, pages + 1, until_ns);
	tier_release_many(s->reader, s->lease, s->out.m.count);
	if (rc || s->out.m.error)
		return rc;
	kept_whole(&s->kept, intact(s), &word, time_now_ns());
	{
		LOCK_SCOPE(&s->n->peers_lock);
		s->n->peers.peer[s->place].bytes_out += s->out.m.bytes;
	}
	return conn_send_message(s->c, &word.header, until_ns);
}

int keep_pages(struct standing *s)
{
	const struct net_pick *m = s ? (const void *)s->c->message : NULL;
	uint32_t missing, pages = 0;
	int rc = s ? kept_pick(&s->kept, m, intact(s), time_now_ns()) : -EPROTO;

	if (rc == -EPROTO)
		return rc;
	if (rc == 0) {
		missing = lease(s, m);
		if (missing)
			fetch(s, m, missing);
		pages = lay_out(s, m);
	}
	kept_picked(&s->kept, m, rc, &s->out.m);
	return send_pages(s, pages, time_now_ns() + ANSWER_NS);
}
