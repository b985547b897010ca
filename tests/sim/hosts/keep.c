/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standing grants: an engine of a host reads single pages of what another one has, some at a time,
 * as tierd/net/pick.c and keep.c have it. Each page that it is given is judged (R8, R5, R6).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/traffic.h"

#define PAGES_MOST 6u

static const uint32_t offset[] = { 0, 24, 40 }; /* of the pages in a block */

/* ---- who reads ------------------------------------------------------------------------------- */

void keep_some(struct fleet *f, struct host *h)
{
	struct picking *p = &h->picking;
	uint32_t c, prefix;
	int to;

	if (p->job.busy)
		return;
	to = traffic_whom(f, h);
	if (to < 0)
		return;
	traffic_what(f, h, &f->host[to], &c, &prefix);
	if (fleet_match(h, c, prefix, 0) == LENGTH ||
	    !agreed_stands(&h->agree, &h->agreed[c], fleet_clock(f, h)))
		return;
	*p = (struct picking){ .job = { .context = c, .prefix = prefix, .era = h->era[c] },
			       .left = 1 + fleet_below(f, 20) };
	p->job.next = fleet_match(h, c, prefix, 0);
	p->keep.epoch = h->store.epoch[c];
	traffic_job(f, h, &p->job, (uint32_t)to, (300 + fleet_below(f, 4000)) * MS);
}

bool keep_idle(const struct host *h, const struct job *j)
{
	return j == &h->picking.job && j->link->welcome && h->picking.keep.state < KEEP_PICKED &&
	       h->picking.keep.state != KEEP_ASKED;
}

static void ask(struct fleet *f, struct host *h)
{
	struct picking *p = &h->picking;
	struct job *j = &p->job;
	struct packet m = { .bytes = sizeof(struct net_ask) };
	uint64_t wait = (20 + fleet_below(f, 1500)) * MS;

	p->keep.deleted = h->agreed[j->context].deleted;
	p->keep.asked = LENGTH - j->next;
	fleet_digest(j->context, m.m.ask.context);
	keep_ask(&p->keep, &fleet_shape, wait, &m.m.ask, fleet_clock(f, h));
	p->until_ns = fleet_clock(f, h) + wait;
	for (uint32_t i = 0; i < p->keep.asked; i++, m.bytes += NET_KEY_BYTES)
		fleet_key(j->context, j->prefix * LENGTH + j->next + i, m.m.byte + m.bytes);
	traffic_transmit(f, j->link, &m);
}

void keep_greeted(struct fleet *f, struct host *h)
{
	ask(f, h);
}

static void next(struct fleet *f, struct host *h)
{
	struct picking *p = &h->picking;
	struct event *e;

	if (!p->left--) {
		traffic_job_end(f, h, &p->job, 0);
		return;
	}
	e = fleet_after(f, fleet_below(f, 150) * MS, EV_PICK, h);
	e->job = &p->job;
	e->call = p->job.id;
}

/* The engine reads: under the grant that there is, or a new one. */
void keep_pick_event(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	struct picking *p = &h->picking;
	struct job *j = &p->job;
	struct agreed *s = &h->agreed[j->context];
	uint64_t now = fleet_clock(f, h);
	struct packet m = { .bytes = sizeof(struct net_pick) };

	if (!j->busy || j->id != e->call)
		return;
	if (!agreed_stands(&h->agree, s, now) || h->store.epoch[j->context] != p->keep.epoch ||
	    j->era != h->era[j->context]) {
		traffic_job_end(f, h, j, 0);
		return;
	}
	if (!keep_lasts(&p->keep, now) || p->keep.deleted != s->deleted) {
		ask(f, h);
		return;
	}
	p->keep.count = 1 + fleet_below(f, PAGES_MOST);
	for (uint32_t i = 0; i < p->keep.count; i++)
		p->keep.page[i] = (struct net_pick_page){ fleet_below(f, p->keep.blocks),
							  fleet_below(f, BLOCK_PAGES) };
	keep_pick(&p->keep, &m.m.pick);
	m.m.pick.wait_ns = SECOND;
	memcpy(m.m.byte + m.bytes, p->keep.page, p->keep.count * sizeof(p->keep.page[0]));
	m.bytes = m.m.header.length;
	traffic_transmit(f, j->link, &m);
}

static int take_pages(struct host *h, const struct packet *m)
{
	struct picking *p = &h->picking;
	const uint8_t *at = m->m.byte + m->m.header.length;
	uint8_t key[NET_KEY_BYTES];

	memcpy(p->got, m->m.byte + sizeof(m->m.picked), p->keep.count * sizeof(p->got[0]));
	memcpy(p->made, m->made, p->keep.count * sizeof(p->made[0]));
	for (uint32_t i = 0; i < p->keep.count; i++) {
		const struct net_pick_page *page = &p->keep.page[i];
		const struct shape_page *s = keep_page(&fleet_shape, p->keep.blocks, page);

		if (p->got[i].error)
			continue;
		fleet_key(p->job.context, p->job.prefix * LENGTH + p->job.next + page->block, key);
		if (page_crc(key, p->keep.epoch, s, at) != p->got[i].crc)
			return -EBADMSG;
		memcpy(p->bytes[i], at, s->bytes);
		at += s->bytes;
	}
	return 0;
}

/* A page that an engine is given now. */
static void judge(struct fleet *f, const struct host *h, uint32_t i)
{
	const struct picking *p = &h->picking;
	const struct net_pick_page *page = &p->keep.page[i];
	uint32_t c = p->job.context, k = p->job.next + page->block;
	const struct agreed *s = &h->agreed[c];
	uint64_t now = fleet_clock(f, h);
	bool leased = now < h->agree.until_ns;
	uint8_t right[BLOCK_BYTES];

	f->result->picked++;
	fleet_bytes(c, p->job.prefix * LENGTH + k, p->keep.epoch, right);
	if (memcmp(right + offset[page->page], p->bytes[i], fleet_shape.page[page->page].bytes))
		FAIL(f, "R8: host %u reads bytes that are not block %u's", h->place, k);
	if (now >= p->until_ns)
		FAIL(f, "R8: host %u reads a page when its grant is over", h->place);
	if (h->store.epoch[c] != p->keep.epoch || (leased && f->acknowledged[c] > p->keep.epoch))
		FAIL(f, "R8: host %u reads a page of an epoch that is over", h->place);
	if (s->strict && !leased)
		FAIL(f, "R6: host %u reads a page of a strict context without a lease", h->place);
	for (uint32_t n = 1; n < DELETIONS_MAX && n <= f->etcd.deletions[c]; n++) {
		const struct deletion *d = &f->etcd.deletion[c][n];

		if (d->prefix == p->job.prefix && k >= d->from && p->made[i] <= d->made &&
		    ((d->acknowledged && leased) || (d->there && n <= s->deleted)))
			FAIL(f, "R8: host %u reads a page that deletion %u took", h->place, n);
	}
}

static int take_word(struct fleet *f, struct host *h, const struct net_word *m)
{
	struct picking *p = &h->picking;
	uint64_t now = fleet_clock(f, h);
	bool publishes = p->job.era == h->era[p->job.context] &&
			 agreed_publishes(&h->agree, &h->agreed[p->job.context], p->keep.epoch,
					  p->keep.deleted, now);
	int rc = keep_whole(&p->keep, m, publishes, now);

	for (uint32_t i = 0; i < p->keep.count && rc == 0; i++)
		if (!p->got[i].error)
			judge(f, h, i);
	return rc;
}

int keep_take(struct fleet *f, struct host *h, const struct packet *m)
{
	struct picking *p = &h->picking;
	int rc = -EPROTO;

	if (m->m.header.type == NET_GRANT)
		rc = keep_granted(&p->keep, &m->m.grant);
	else if (m->m.header.type == NET_PICKED)
		rc = keep_picked(&p->keep, &m->m.picked);
	else if (m->m.header.type == NET_WHOLE)
		rc = take_word(f, h, &m->m.word);
	if (rc == -EPROTO)
		return rc;
	if (rc == 0 && m->m.header.type == NET_PICKED)
		return take_pages(h, m);
	next(f, h); /* it may be over: then it is asked for once more */
	return 0;
}

/* ---- the holder ------------------------------------------------------------------------------ */

static bool intact(struct fleet *f, const struct host *h, const struct link *l)
{
	return agreed_stands(&h->agree, &h->agreed[l->kept_context], fleet_clock(f, h)) &&
	       h->store.epoch[l->kept_context] == l->kept.epoch && l->kept_tierd == h->tierd;
}

static void grant(struct fleet *f, struct host *h, struct link *l, const struct net_ask *m)
{
	const uint8_t *key = (const uint8_t *)(m + 1);
	uint32_t c = fleet_context(m->context), first = key[1], blocks = 0;
	struct net_grant out = { .error = 0 };

	if (c == CONTEXTS) {
		l->gone = true;
		return;
	}
	l->kept_context = c;
	l->kept_tierd = h->tierd;
	l->kept_until_ns = fleet_clock(f, h) + m->wait_ns;
	out.error = agreed_grants(&h->agree, &h->agreed[c], m->epoch, m->deleted,
				  fleet_clock(f, h));
	if (!out.error)
		blocks = fleet_match(h, c, first / LENGTH, first % LENGTH);
	blocks = blocks < m->count ? blocks : m->count;
	for (uint32_t i = 0; i < blocks; i++) {
		l->kept_key[i] = first + i;
		l->kept_slot[i] = h->store.block[c][first + i].slot;
	}
	kept_grant(&l->kept, m, &fleet_shape, blocks, &out, fleet_clock(f, h));
	traffic_word(f, l, &out, sizeof(out), true);
}

/* Pages on NVMe take some time. */
void keep_asked(struct fleet *f, struct host *h, struct link *l, const struct packet *p)
{
	struct event *e;
	int rc;

	if (p->m.header.type == NET_KEEP) {
		grant(f, h, l, &p->m.ask);
		return;
	}
	rc = kept_pick(&l->kept, &p->m.pick, intact(f, h, l), fleet_clock(f, h));
	if (rc == -EPROTO) {
		l->gone = true;
		return;
	}
	e = fleet_after(f, fleet_below(f, f->faults.work_us) * US, EV_PICKED, h);
	e->link = l;
	e->call = (uint64_t)-rc;
	e->data = malloc(sizeof(*p));
	if (!e->data)
		abort();
	memcpy(e->data, p, sizeof(*p));
}

/* One page as it lies there; a bit of it may go wrong, or it is another one with that one's CRC. */
static void lay_page(struct fleet *f, const struct host *h, const struct link *l,
		     const struct net_pick_page *page, struct packet *out, uint32_t i)
{
	const struct block *b = &h->store.block[l->kept_context][l->kept_key[page->block]];
	struct net_picked_page *got = (void *)(out->m.byte + sizeof(out->m.picked));
	const struct shape_page *s = &fleet_shape.page[page->page];
	uint8_t *to = out->m.byte + out->bytes, key[NET_KEY_BYTES], other[BLOCK_BYTES];
	uint32_t how = !f->quiet && fleet_chance(f, f->faults.damaged_ppm) ? fleet_below(f, 2) : 2;
	uint32_t k = l->kept_key[page->block];

	got[i] = (struct net_picked_page){ .error = -ENODATA };
	if (!b->there || b->slot != l->kept_slot[page->block])
		return;
	memcpy(to, b->bytes + offset[page->page], s->bytes);
	to[0] ^= l->kept_tierd != h->tierd;
	if (how == 0) {
		k = (k + 1) % KEYS;
		fleet_bytes(l->kept_context, k, l->kept.epoch, other);
		memcpy(to, other + offset[page->page], s->bytes);
	}
	fleet_key(l->kept_context, k, key);
	got[i] = (struct net_picked_page){ .crc = page_crc(key, l->kept.epoch, s, to) };
	to[0] ^= how == 1;
	out->made[i] = b->made;
	out->bytes += s->bytes;
}

void keep_picked_event(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	struct link *l = e->link;
	const struct packet *p = e->data;
	const struct net_pick *m = &p->m.pick;
	struct packet out = { .back = true };
	struct net_word word;
	int rc = -(int)e->call;

	if (l->gone || l->closed)
		return;
	out.bytes = (uint32_t)(sizeof(out.m.picked) +
			       (rc ? 0 : m->count) * sizeof(struct net_picked_page));
	for (uint32_t i = 0; i < m->count && !rc; i++)
		lay_page(f, h, l, (const struct net_pick_page *)(m + 1) + i, &out, i);
	kept_picked(&l->kept, m, rc, &out.m.picked);
	traffic_transmit(f, l, &out);
	if (rc)
		return;
	kept_whole(&l->kept, intact(f, h, l), &word, fleet_clock(f, h));
	if (!word.error && fleet_clock(f, h) >= l->kept_until_ns)
		FAIL(f, "R8: host %u serves under a grant that is over", h->place);
	traffic_word(f, l, &word, sizeof(word), true);
}
