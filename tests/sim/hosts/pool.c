/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CXL pool in the fleet (X1 to X5): memory, a cache a host that nothing keeps coherent, and what
 * pool.c of tierd-net does around the protocol, a step an event. A cache writes stored lines back
 * and loads lines whenever it likes; who dies loses what it has not written back. Who stands still
 * between its store and its flush may write back over another owner's bytes when it goes on: such
 * lines are `late`, and cost a miss.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/traffic.h"

#define GRANT_NS SECOND
#define LINES_OF(offset) (((offset) - POOL_FIRST) / POOL_LINE)

/* A frame on its way through the pool: its packet and what its next step is. */
struct pool_step_event {
	struct packet p; /* as PAGES, with its pages */
	enum pool_step next;
	uint32_t serving, loads; /* loads: of how many bytes */
	uint64_t id, offset;
};

/* ---- caches ---------------------------------------------------------------------------------- */

static bool owner_by_etcd(const struct fleet *f, const struct host *h, uint32_t line)
{
	const struct pool_record *r =
		&f->pool.record[line * POOL_LINE / POOL_EXTENT_BYTES];

	return r->mod && r->incarnation == h->life;
}

static void line_out(struct fleet *f, struct host *h, uint32_t i)
{
	struct cached_line *c = &h->cache[i];

	if (c->stored) {
		memcpy(f->pool.line[i].bytes, c->bytes, POOL_LINE);
		f->pool.line[i].late = !owner_by_etcd(f, h, i);
	}
	*c = (struct cached_line){ 0 };
}

static struct cached_line *line_in(struct fleet *f, struct host *h, uint32_t i)
{
	struct cached_line *c = &h->cache[i];

	if (!c->there) {
		c->there = true;
		c->late = f->pool.line[i].late;
		memcpy(c->bytes, f->pool.line[i].bytes, POOL_LINE);
	}
	return c;
}

/* What caches do by themselves. */
static void by_itself(struct fleet *f)
{
	for (int k = 0; k < 6; k++) {
		struct host *h = &f->host[fleet_below(f, f->hosts)];
		uint32_t i = fleet_below(f, POOL_LINES);

		if (!h->up)
			continue;
		if (h->cache[i].there)
			line_out(f, h, i);
		else
			line_in(f, h, i);
	}
}

static void lines_out(struct fleet *f, struct host *h, uint64_t offset, uint32_t bytes)
{
	for (uint64_t i = LINES_OF(offset); i <= LINES_OF(offset + bytes - 1); i++)
		line_out(f, h, (uint32_t)i);
}

static void store(struct fleet *f, struct host *h, uint64_t offset, const uint8_t *from,
		  uint32_t bytes)
{
	for (uint32_t k = 0; k < bytes; k++) {
		struct cached_line *c = line_in(f, h, (uint32_t)LINES_OF(offset + k));

		c->bytes[(offset + k) % POOL_LINE] = from[k];
		c->stored = true;
		c->late = false;
	}
}

/* True: all of it is what somebody stored in time. */
static bool load(struct fleet *f, struct host *h, uint64_t offset, uint8_t *to, uint32_t bytes)
{
	bool good = true;

	for (uint32_t k = 0; k < bytes; k++) {
		struct cached_line *c = line_in(f, h, (uint32_t)LINES_OF(offset + k));

		to[k] = c->bytes[(offset + k) % POOL_LINE];
		good &= !c->late;
	}
	return good;
}

/* ---- a host's life, and etcd ----------------------------------------------------------------- */

void pool_start(struct fleet *f, struct host *h)
{
	if (!f->faults.pool)
		return;
	memset(h->cache, 0, sizeof(h->cache));
	memset(h->extent, 0, sizeof(h->extent));
	h->pool_told = false;
	h->pool = (struct pool){ .incarnation = h->life, .grant_ns = GRANT_NS,
				 .rest_ns = GRANT_NS + LEASE_NS, .extent = h->extent,
				 .first = h->place * 5 % POOL_EXTENTS };
	pool_format(&h->pool.header, 1, POOL_FIRST + POOL_EXTENTS * POOL_EXTENT_BYTES,
		    POOL_EXTENT_BYTES, POOL_PLACE_BYTES);
	h->agree.pool = &h->pool;
}

void pool_execute(struct fleet *f, const struct host *h, const struct agree_call *c,
		  struct reply *out)
{
	struct pool_record *r = &f->pool.record[c->first % POOL_EXTENTS];

	if (c->what == AGREE_POOL_CLAIM) {
		if (r->mod != c->mod) {
			out->answer.error = -ESTALE;
			return;
		}
		*r = (struct pool_record){ .extent = (uint32_t)c->first, .incarnation = h->life,
					   .entered = (int64_t)c->epoch, .rest_ns = c->last,
					   .mod = ++f->etcd.revision };
		out->answer.mod = r->mod;
		return;
	}
	for (uint32_t i = 0; i < POOL_EXTENTS; i++)
		if (f->pool.record[i].mod)
			out->pool_record[out->seen.records++] = f->pool.record[i];
	for (uint32_t i = 0; i < f->hosts; i++)
		if (f->etcd.member[i].there)
			out->pool_member[out->seen.members++] = (struct pool_member){
				.incarnation = f->etcd.member[i].life,
				.mod = f->etcd.member[i].mod };
}

/* ---- judged ---------------------------------------------------------------------------------- */

/* The requester's grant about what was told: is it over for it, by its clock? */
static bool reader_done(struct fleet *f, const struct pool_told *t)
{
	const struct host *h = &f->host[t->reader];

	return t->copied || !h->up || h->life != t->life || t->link->closed ||
	       fleet_clock(f, h) >= t->ends_ns;
}

static void judge_store(struct fleet *f, const struct host *h, uint64_t offset)
{
	if (!owner_by_etcd(f, h, (uint32_t)LINES_OF(offset)))
		FAIL(f, "X1: host %u stores into an extent that is not its", h->place);
}

/* Whoever may store there now: a grant about it is not over. */
static void judge_told(struct fleet *f, const struct pool_told *t)
{
	for (uint32_t i = 0; i < f->hosts; i++) {
		const struct host *h = &f->host[i];
		uint64_t now = fleet_clock(f, h);
		bool keeps = false;

		for (uint32_t k = 0; k < POOL_PLACES_MAX && h->life == t->holder_life; k++)
			keeps |= h->pool.place[k].offset == t->offset &&
				 now < h->pool.place[k].until_ns;
		if (h->up && !keeps && pool_ours(&h->pool, t->offset, now, h->agree.until_ns))
			FAIL(f, "%s: host %u may store where host %u has a grant of host %u",
			     h->life == t->holder_life ? "X4" : "X2", i, t->reader, t->holder);
	}
}

void pool_judge_all(struct fleet *f)
{
	for (uint32_t i = 0; i < f->pool.tolds; i++)
		if (!reader_done(f, &f->pool.told[i]))
			judge_told(f, &f->pool.told[i]);
}

static void note_told(struct fleet *f, const struct host *h, struct link *l,
		      const struct serving *s, uint64_t offset, uint64_t sent_ns)
{
	for (uint32_t i = 0; i < POOL_TOLD; i++) {
		struct pool_told *t = &f->pool.told[i];

		if (i < f->pool.tolds && !reader_done(f, t))
			continue;
		f->pool.tolds += i == f->pool.tolds;
		*t = (struct pool_told){ .link = l, .reader = l->from, .life = l->from_life,
					 .holder = h->place, .holder_life = h->life,
					 .id = s->serve.id, .offset = offset,
					 .ends_ns = sent_ns + s->serve.ends_ns -
						    s->serve.began_ns };
		return;
	}
	abort();
}

static void note_copied(struct fleet *f, const struct link *l, uint64_t id, uint64_t offset)
{
	for (uint32_t i = 0; i < f->pool.tolds; i++) {
		struct pool_told *t = &f->pool.told[i];

		t->copied |= t->link == l && t->id == id && t->offset == offset;
	}
}

/* ---- the holder ------------------------------------------------------------------------------ */

static void next_step(struct fleet *f, struct host *h, struct link *l, struct pool_step_event *at)
{
	struct event *e = fleet_after(f, fleet_below(f, f->faults.work_us / 2 + 1) * US, EV_POOL,
				      h);

	e->link = l;
	e->data = malloc(sizeof(*at));
	if (!e->data)
		abort();
	memcpy(e->data, at, sizeof(*at));
}

bool pool_frame_begins(struct fleet *f, struct host *h, struct link *l, uint32_t serving,
		       const struct packet *p)
{
	struct serving *s = &l->serving[serving];
	struct pool_step_event at = { .p = *p, .serving = serving, .id = s->serve.id };
	uint32_t bytes = p->bytes - p->m.header.length;

	if (!f->faults.pool || !l->pool)
		return false;
	by_itself(f);
	s->in_pool = s->in_pool ? s->in_pool : ++h->pool.orders;
	at.offset = pool_take(&h->pool, &s->serve, s->in_pool, bytes, fleet_clock(f, h),
			      h->agree.until_ns);
	if (!at.offset)
		return false;
	at.next = pool_holder(POOL_BEGIN);
	next_step(f, h, l, &at);
	return true;
}

static uint64_t asked_ns(const struct fleet *f, const struct link *l, uint64_t id)
{
	const struct host *h = &f->host[l->from];

	for (uint32_t i = 0; i < JOBS; i++)
		for (uint32_t k = 0; k < NET_GRANTS_MAX && h->job[i].link == l; k++)
			if (h->job[i].part[k].pull.id == id)
				return h->job[i].part[k].pull.sent_ns;
	return 0; /* nobody reads it */
}

/* By message; what the pool lost meanwhile goes by the socket. */
static void tell(struct fleet *f, struct host *h, struct link *l, const struct pool_step_event *at)
{
	struct serving *s = &l->serving[at->serving];
	uint32_t crcs = at->p.m.pages.count * sizeof(uint32_t);
	struct packet p = at->p;

	if (pool_ours(&h->pool, at->offset, fleet_clock(f, h), h->agree.until_ns)) {
		serve_at(&s->serve, &at->p.m.pages, at->offset, &p.m.at);
		memcpy(p.m.byte + sizeof(p.m.at), at->p.m.byte + sizeof(at->p.m.pages), crcs);
		/* What was stored, for the judge alone. */
		memcpy(p.m.byte + p.m.header.length, at->p.m.byte + at->p.m.header.length,
		       at->p.bytes - at->p.m.header.length);
		p.bytes += sizeof(p.m.at) - sizeof(p.m.pages);
		TRACE(f, "%u tells of a frame of grant %llu at %llu", h->place,
		      (unsigned long long)at->id, (unsigned long long)at->offset);
		note_told(f, h, l, s, at->offset, asked_ns(f, l, at->id));
	} else {
		pool_undo(&h->pool, at->offset);
	}
	traffic_transmit(f, l, &p);
	traffic_sent(f, h, l, at->serving);
}

static void holder_step(struct fleet *f, struct host *h, struct link *l,
			struct pool_step_event *at)
{
	struct serving *s = &l->serving[at->serving];
	uint32_t bytes = at->p.bytes - at->p.m.header.length;

	/* Its connection has ended: nothing is told any more, but what was stored is flushed. */
	if ((l->gone || l->closed || s->serve.id != at->id) && at->next != POOL_FLUSH)
		return;
	if (at->next == POOL_STORE) {
		/* It was taken a moment ago: a shell looks just before it stores. */
		if (!pool_ours(&h->pool, at->offset, fleet_clock(f, h), h->agree.until_ns)) {
			at->next = POOL_TELL;
			tell(f, h, l, at);
			return;
		}
		TRACE(f, "%u stores a frame of grant %llu for %u at %llu", h->place,
		      (unsigned long long)at->id, l->from, (unsigned long long)at->offset);
		judge_store(f, h, at->offset);
		store(f, h, at->offset, at->p.m.byte + at->p.m.header.length, bytes);
	} else if (at->next == POOL_FLUSH) {
		lines_out(f, h, at->offset, bytes);
	} else {
		tell(f, h, l, at);
	}
	at->next = pool_holder(at->next);
	if (at->next != POOL_END)
		next_step(f, h, l, at);
}

/* ---- the reader ------------------------------------------------------------------------------ */

int pool_told_of(struct fleet *f, struct host *h, struct link *l, const struct pull *pull,
		 const struct packet *p)
{
	const struct net_at *m = &p->m.at;
	struct pool_step_event at = { .next = pool_reader(POOL_BEGIN), .id = m->pages.id,
				      .offset = m->offset, .loads = m->pages.bytes };
	struct pull next = *pull;
	struct cursor where;
	int rc = pull_at(&next, m, fleet_clock(f, h), &where);

	if (rc == 0)
		rc = pool_within(&h->pool, l->to_life, m->offset, m->pages.bytes);
	if (rc)
		return rc;
	by_itself(f);
	at.p = *p;
	l->reading = true;
	next_step(f, h, l, &at);
	return 0;
}

static void loaded(struct fleet *f, struct host *h, struct link *l, struct pool_step_event *at)
{
	uint8_t bytes[POOL_PLACE_BYTES];
	bool good = load(f, h, at->offset, bytes, at->loads), over = true;

	for (uint32_t i = 0; i < f->pool.tolds; i++) {
		const struct pool_told *t = &f->pool.told[i];

		if (t->link == l && t->id == at->id && t->offset == at->offset)
			over &= fleet_clock(f, h) >= t->ends_ns;
	}
	if (good && !over && memcmp(bytes, at->p.m.byte + at->p.m.header.length, at->loads) != 0)
		FAIL(f, "X3: host %u loads what host %u did not store", h->place, l->to);
	note_copied(f, l, at->id, at->offset);
	TRACE(f, "%u copied a frame of grant %llu of %u from %llu", h->place,
	      (unsigned long long)at->id, l->to, (unsigned long long)at->offset);
	f->result->pooled++;
	packet_as_pages(&at->p, sizeof(at->p.m.at), bytes, at->loads);
	traffic_loaded(f, h, l, &at->p);
}

void pool_event(struct fleet *f, struct event *e)
{
	struct pool_step_event *at = e->data;
	struct host *h = &f->host[e->host];
	struct link *l = e->link;

	by_itself(f);
	if (at->p.m.header.type == NET_PAGES) {
		holder_step(f, h, l, at);
		return;
	}
	if (l->closed)
		return;
	if (at->next == POOL_DROP)
		lines_out(f, h, at->offset, at->loads);
	else
		loaded(f, h, l, at);
	at->next = pool_reader(at->next);
	if (at->next != POOL_END)
		next_step(f, h, l, at);
}
