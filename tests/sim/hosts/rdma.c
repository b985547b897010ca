/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages by RDMA in the fleet (W1, N5): a holder's memory for frames, its registration, and a device
 * that reads there for whoever has the key, also while the host stands still, and for as long as
 * its queue pair lives. Memory that is given back under a registration keeps its bytes and can be
 * read, as was measured. A READ takes time, is late or never comes; devices read again whenever
 * they like. A queue pair begins with its connection: PATH is not a message here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/traffic.h"

#define NOTICE_NS (50 * MS) /* until a holder sees that a connection has ended */

struct lent {
	bool path, path_lost; /* the holder's queue pair; the requester's is over */
	bool mapped, registered, ending;
	uint32_t rkey;
	struct window window;
	struct packet placed[NET_PLACES_MAX];
	uint8_t memory[NET_PLACES_MAX][BLOCK_BYTES];
};

/* An event of a link's memory at its holder, or of a READ at who reads. */
struct rdma_event {
	bool reads, late;
	enum lent_step step; /* LENT_END: has the connection ended? */
	struct packet p;
};

/* ---- the device ------------------------------------------------------------------------------ */

/* NULL: refused, or nobody answers. */
static const uint8_t *device_reads(struct fleet *f, const struct link *l, uint32_t rkey,
				   uint64_t place)
{
	const struct host *h = &f->host[l->to];
	const struct lent *m = l->lent;

	if (!h->up || h->life != l->to_life || !m->path || !m->registered || m->rkey != rkey)
		return NULL;
	if (!m->mapped)
		FAIL(f, "W1: host %u reads memory that host %u has given back", l->from, l->to);
	return m->memory[place];
}

/* Reads of those who were told of a frame some time ago. */
static void read_again(struct fleet *f)
{
	for (int k = 0; k < 4; k++) {
		const struct link *l = f->lent[fleet_below(f, LENT_TOLD)];

		if (l)
			device_reads(f, l, l->lent->rkey, fleet_below(f, NET_PLACES_MAX));
	}
}

/* ---- the holder ------------------------------------------------------------------------------ */

static struct event *after(struct fleet *f, struct host *h, struct link *l, uint64_t wait_ns,
			   const struct rdma_event *what)
{
	struct event *e = fleet_after(f, wait_ns, EV_RDMA, h);

	e->link = l;
	e->data = malloc(sizeof(*what));
	if (!e->data)
		abort();
	memcpy(e->data, what, sizeof(*what));
	return e;
}

/* As verbs_unlend(), a step an event. */
static void give_back(struct fleet *f, struct host *h, struct link *l, enum lent_step done)
{
	struct rdma_event next = { .step = lent_ends(done) };

	l->lent->ending = next.step != LENT_END;
	if (l->lent->ending)
		after(f, h, l, fleet_below(f, 1000) * US, &next);
}

static void lend(struct fleet *f, struct host *h, struct link *l)
{
	struct rdma_event watch = { .step = LENT_END };

	if (!l->lent) {
		l->lent = calloc(1, sizeof(*l->lent));
		if (!l->lent)
			abort();
		l->lent->path = true;
		f->lent[l->from * HOSTS_MAX + l->to] = l;
		after(f, h, l, NOTICE_NS, &watch);
	}
	if (l->lent->mapped)
		return;
	l->lent->mapped = l->lent->registered = true;
	l->lent->rkey = (uint32_t)++f->calls;
}

bool rdma_waits(const struct link *l)
{
	return l->lent && (l->lent->ending || (l->lent->path && window_full(&l->lent->window)));
}

bool rdma_lies(const struct link *l, uint64_t id)
{
	return l->lent && window_has(&l->lent->window, id);
}

bool rdma_frame_begins(struct fleet *f, struct host *h, struct link *l, uint32_t serving,
		       const struct packet *p)
{
	uint32_t crcs = p->m.pages.count * sizeof(uint32_t), bytes = p->bytes - p->m.header.length;
	struct packet out = *p;
	uint32_t place;

	if (!f->faults.rdma || (l->lent && !l->lent->path))
		return false;
	read_again(f);
	lend(f, h, l);
	place = window_add(&l->lent->window, l->serving[serving].serve.id);
	memcpy(&l->lent->placed[place], p, sizeof(*p));
	memcpy(l->lent->memory[place], p->m.byte + p->m.header.length, bytes);
	out.m.header.type = NET_PLACES;
	out.m.header.length = (uint32_t)sizeof(out.m.places) + crcs;
	out.m.places.address = place;
	out.m.places.rkey = l->lent->rkey;
	out.m.places.number = l->lent->window.told;
	memcpy(out.m.byte + sizeof(out.m.places), p->m.byte + sizeof(p->m.pages), crcs);
	/* What lies there, for the judge alone. */
	memcpy(out.m.byte + out.m.header.length, p->m.byte + p->m.header.length, bytes);
	out.bytes = out.m.header.length + bytes;
	TRACE(f, "%u has frame %u lie for %u at %u", h->place, out.m.places.number, l->from, place);
	traffic_transmit(f, l, &out);
	traffic_sent(f, h, l, serving);
	return true;
}

/* It could not be read: that frame and those behind it by the connection. */
static void by_connection(struct fleet *f, struct host *h, struct link *l, uint32_t place)
{
	for (;; place = window_take(&l->lent->window)) {
		traffic_transmit(f, l, &l->lent->placed[place]);
		if (!l->lent->window.count)
			break;
	}
	l->lent->path = false;
	give_back(f, h, l, LENT_BEGIN);
}

void rdma_read(struct fleet *f, struct host *h, struct link *l, const struct net_word *m)
{
	uint32_t place;

	l->gone = !l->lent || window_read(&l->lent->window, m);
	if (l->gone)
		return;
	place = window_take(&l->lent->window);
	if (m->error)
		by_connection(f, h, l, place);
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		traffic_last_word(f, h, l, &l->serving[i]);
}

void rdma_grant_over(struct fleet *f, struct host *h, struct link *l)
{
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		if (l->serving[i].serve.state != SERVE_FREE)
			return;
	if (l->lent && l->lent->mapped && !l->lent->ending)
		give_back(f, h, l, LENT_BEGIN);
}

static void holder_event(struct fleet *f, struct host *h, struct link *l,
			 const struct rdma_event *at)
{
	struct lent *m = l->lent;

	if (at->step == LENT_DEREGISTER)
		m->registered = false;
	else if (at->step == LENT_GIVE_BACK)
		m->mapped = false;
	if (at->step != LENT_END) {
		give_back(f, h, l, at->step);
		return;
	}
	if (!l->gone && !l->closed) {
		after(f, h, l, NOTICE_NS, at);
		return;
	}
	m->path = false; /* as verbs_close(): the queue pair first */
	if (m->mapped && !m->ending)
		give_back(f, h, l, LENT_BEGIN);
}

/* ---- who reads ------------------------------------------------------------------------------- */

int rdma_told_of(struct fleet *f, struct host *h, struct link *l, const struct job *j,
		 const struct pull *pull, const struct packet *p)
{
	struct rdma_event at = { .reads = true, .p = *p };
	uint64_t now = fleet_clock(f, h), wait = (10 + fleet_below(f, 5000)) * US, most;
	struct pull next = *pull;
	struct cursor where;
	int rc;

	if (!l->lent || l->lent->path_lost)
		return 0;
	rc = pull_pages(&next, &p->m.pages, &where);
	if (rc)
		return rc;
	if (!f->quiet && fleet_chance(f, f->faults.slow_ppm))
		wait += fleet_below(f, 3000) * MS;
	most = now < j->deadline_ns ? (j->deadline_ns - now) / 4 : 0;
	at.late = wait > most || (!f->quiet && (f->host[l->to].cut_ns[l->from] > f->now_ns ||
						fleet_chance(f, f->faults.lost_ppm)));
	l->reading = true;
	after(f, h, l, at.late ? most : wait, &at);
	return 0;
}

/* Does the holder owe it what it was told of? */
static bool owed(const struct fleet *f, const struct link *l)
{
	return f->host[l->to].up && f->host[l->to].life == l->to_life && l->lent->path && !l->gone;
}

static void reader_event(struct fleet *f, struct host *h, struct link *l, struct rdma_event *at)
{
	const struct net_places *m = &at->p.m.places;
	struct net_word word = { .header = { NET_MAGIC, NET_VERSION, NET_READ, sizeof(word), 0 },
				 .id = m->number };
	const uint8_t *bytes;

	if (l->closed)
		return;
	bytes = at->late ? NULL : device_reads(f, l, m->rkey, m->address);
	if (!bytes && !at->late && owed(f, l))
		FAIL(f, "N5: frame %u does not lie there for host %u", m->number, l->from);
	if (bytes && owed(f, l) &&
	    memcmp(bytes, at->p.m.byte + at->p.m.header.length, m->pages.bytes) != 0)
		FAIL(f, "N5: host %u reads another frame than %u", l->from, m->number);
	TRACE(f, "%u has read frame %u of %u: %d", h->place, m->number, l->to, bytes != NULL);
	word.error = bytes ? 0 : at->late ? -ETIMEDOUT : -EIO;
	l->lent->path_lost = !bytes;
	f->result->read += bytes != NULL;
	if (bytes)
		packet_as_pages(&at->p, sizeof(*m), bytes, m->pages.bytes);
	traffic_read(f, h, l, &word, bytes ? &at->p : NULL);
}

void rdma_event(struct fleet *f, struct event *e)
{
	struct rdma_event *at = e->data;
	struct host *h = &f->host[e->host];

	read_again(f);
	if (at->reads)
		reader_event(f, h, e->link, at);
	else
		holder_event(f, h, e->link, at);
}
