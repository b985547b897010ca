/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd: records with revisions and leases, and the way there and back. A call is done when it
 * arrives, once or twice, and perhaps long after who made it has stopped to wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/fleet.h"

struct question {
	struct agree_call what;
	uint64_t lease, deletion_made;
	uint32_t prefix, from;
};

/* ---- leases --------------------------------------------------------------------------------- */

static uint64_t now_of(const struct fleet *f)
{
	return (uint64_t)((double)f->now_ns * f->etcd.rate);
}

static bool alive(const struct fleet *f, uint64_t lease)
{
	return lease && now_of(f) < f->etcd.until_ns[lease % 4096];
}

static void expire(struct fleet *f, struct etcd_record *r)
{
	if (r->there && r->lease && !alive(f, r->lease))
		*r = (struct etcd_record){ 0 };
}

static void expire_all(struct fleet *f)
{
	for (uint32_t i = 0; i < f->hosts; i++) {
		expire(f, &f->etcd.member[i]);
		for (uint32_t c = 0; c < CONTEXTS; c++)
			expire(f, &f->etcd.applied[c][i]);
	}
}

static void take_lease(struct fleet *f, const struct question *q, struct agree_answer *a)
{
	uint64_t lease = q->what.what == AGREE_KEEP ? q->lease : ++f->etcd.leases;

	if (q->what.what == AGREE_KEEP && !alive(f, lease)) {
		a->error = -ESTALE;
		return;
	}
	f->etcd.until_ns[lease % 4096] = now_of(f) + LEASE_NS;
	a->mod = (int64_t)lease;
}

/* ---- records -------------------------------------------------------------------------------- */

static void write_record(struct fleet *f, struct etcd_record *r, const struct agree_call *c,
			 uint64_t lease, struct agree_answer *a)
{
	if ((r->there ? r->mod : 0) != c->mod) {
		a->error = -ESTALE;
		return;
	}
	if (lease && !alive(f, lease)) {
		a->error = -EAGAIN;
		return;
	}
	*r = (struct etcd_record){ .there = true, .epoch = c->epoch, .deleted = c->deleted,
				   .first = c->first, .lease = lease,
				   .mod = ++f->etcd.revision };
	a->mod = r->mod;
}

static void show(const struct etcd_record *r, uint32_t context, struct reply *out)
{
	struct agree_record *to = &out->record[out->answer.count];

	if (!r->there)
		return;
	*to = (struct agree_record){ .epoch = r->epoch, .deleted = r->deleted,
				     .first = r->first, .mod = r->mod };
	fleet_digest(context, to->digest);
	out->answer.count++;
}

static void put(struct fleet *f, const struct question *q, uint32_t c, struct agree_answer *a)
{
	struct etcd_record *r = &f->etcd.context[c];
	struct deletion *log = f->etcd.deletion[c];

	write_record(f, r, &q->what, 0, a);
	if (a->error)
		return;
	for (uint32_t i = 0; i < r->first && i < DELETIONS_MAX; i++)
		log[i].there = false;
	if (q->what.what != AGREE_ADD)
		return;
	log[r->deleted % DELETIONS_MAX] = (struct deletion){
		.there = true, .prefix = q->prefix, .from = q->from, .made = q->deletion_made };
	if (f->etcd.deletions[c] < r->deleted)
		f->etcd.deletions[c] = r->deleted;
}

static void read_log(struct fleet *f, const struct question *q, uint32_t c, struct reply *out)
{
	for (uint64_t n = q->what.first; n <= q->what.last && n < DELETIONS_MAX; n++)
		if (f->etcd.deletion[c][n].there)
			out->log[out->answer.count++] = (uint32_t)n;
}

static void show_members(struct fleet *f, const struct host *h, const struct question *q,
			 struct reply *out)
{
	const struct etcd_record *own = &f->etcd.member[h->place];

	out->answer.mod = own->there ? own->mod : 0;
	out->answer.right = own->there && own->life == h->life && own->lease == q->lease;
	for (uint32_t i = 0; i < f->hosts; i++) {
		struct peer *p = &out->member[out->members];

		if (!f->etcd.member[i].there || i == h->place)
			continue;
		p->incarnation = f->etcd.member[i].life;
		snprintf(p->name, sizeof(p->name), "%u", i);
		snprintf(p->address, sizeof(p->address), "%u", i);
		out->members++;
	}
}

static void remove_record(struct etcd_record *r, const struct agree_call *c,
			  struct agree_answer *a)
{
	if ((r->there ? r->mod : 0) != c->mod)
		a->error = -ESTALE;
	else
		*r = (struct etcd_record){ 0 };
}

/* Those that are about one context. */
static void about(struct fleet *f, const struct host *h, const struct question *q,
		  struct reply *out)
{
	uint32_t c = fleet_context(q->what.digest);
	struct etcd_record *own = &f->etcd.applied[c][h->place];

	switch (q->what.what) {
	case AGREE_MINE:
		out->answer.mod = own->there ? own->mod : 0;
		break;
	case AGREE_SAY:
		write_record(f, own, &q->what, q->lease, &out->answer);
		break;
	case AGREE_LEAVE:
		remove_record(own, &q->what, &out->answer);
		break;
	case AGREE_PUT:
	case AGREE_ADD:
		put(f, q, c, &out->answer);
		break;
	case AGREE_LOG:
		read_log(f, q, c, out);
		break;
	default:
		for (uint32_t i = 0; i < f->hosts; i++)
			show(&f->etcd.applied[c][i], c, out);
	}
}

static void execute(struct fleet *f, const struct host *h, const struct question *q,
		    struct reply *out)
{
	expire_all(f);
	switch (q->what.what) {
	case AGREE_KEEP:
	case AGREE_LEASE:
		take_lease(f, q, &out->answer);
		break;
	case AGREE_READ:
		for (uint32_t c = 0; c < CONTEXTS; c++)
			show(&f->etcd.context[c], c, out);
		break;
	case AGREE_MEMBERS:
		show_members(f, h, q, out);
		break;
	case AGREE_ENTER:
		write_record(f, &f->etcd.member[h->place], &q->what, q->lease, &out->answer);
		if (!out->answer.error)
			f->etcd.member[h->place].life = h->life;
		break;
	case AGREE_POOL_READ:
	case AGREE_POOL_CLAIM:
		pool_execute(f, h, &q->what, out);
		break;
	default:
		about(f, h, q, out);
	}
}

static void trace(const struct fleet *f, const struct host *h, const struct question *q,
		  const struct reply *r)
{
	static const char *const name[] = {
		[AGREE_KEEP] = "keep",	     [AGREE_LEASE] = "lease",	 [AGREE_MINE] = "mine",
		[AGREE_SAY] = "say",	     [AGREE_LEAVE] = "leave",	 [AGREE_READ] = "read",
		[AGREE_PUT] = "put",	     [AGREE_ADD] = "add",	 [AGREE_LOG] = "log",
		[AGREE_APPLIED] = "applied", [AGREE_MEMBERS] = "members", [AGREE_ENTER] = "enter",
		[AGREE_POOL_READ] = "pool",  [AGREE_POOL_CLAIM] = "claim",
	};

	TRACE(f, "%u: etcd: %s of %u: epoch %llu, deleted %llu, %llu to %llu, if %lld, lease %llu: "
	      "%d, mod %lld, %u records", h->place, name[q->what.what],
	      fleet_context(q->what.digest), (unsigned long long)q->what.epoch,
	      (unsigned long long)q->what.deleted, (unsigned long long)q->what.first,
	      (unsigned long long)q->what.last, (long long)q->what.mod,
	      (unsigned long long)q->lease, r->answer.error, (long long)r->answer.mod,
	      r->answer.count);
}

/* ---- the way there and back ------------------------------------------------------------------ */

static uint64_t delay(struct fleet *f)
{
	if (!f->quiet && fleet_chance(f, f->faults.slow_ppm))
		return fleet_below(f, 5000) * MS;
	return (1 + fleet_below(f, 8)) * MS;
}

static bool lost(struct fleet *f, const struct host *h)
{
	return !f->quiet && (h->cut_etcd_ns > f->now_ns || fleet_chance(f, f->faults.lost_ppm));
}

void registry_ask(struct fleet *f, struct host *h, struct caller *c)
{
	bool twice = !f->quiet && fleet_chance(f, f->faults.twice_ppm);
	struct event *e;

	c->busy = true;
	c->call = ++f->calls;
	for (int i = 0; i <= twice && !lost(f, h); i++) {
		struct question *q = calloc(1, sizeof(*q));

		if (!q)
			abort();
		*q = (struct question){ .what = c->what, .lease = h->lease,
					.prefix = h->raise_prefix, .from = h->raise_from,
					.deletion_made = h->raise_made };
		e = fleet_after(f, delay(f), EV_ETCD, h);
		e->call = c->call;
		e->caller = c;
		e->data = q;
	}
	e = fleet_after(f, (uint64_t)((double)CALL_NS / h->rate), EV_UNANSWERED, h);
	e->call = c->call;
	e->caller = c;
}

void registry_take(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	struct host then = { .place = h->place, .life = e->life, .cut_etcd_ns = h->cut_etcd_ns };
	struct reply *r;
	struct event *back;

	if (f->etcd.down_ns > f->now_ns && !f->quiet)
		return;
	r = calloc(1, sizeof(*r));
	if (!r)
		abort();
	execute(f, &then, e->data, r);
	trace(f, h, e->data, r);
	if (lost(f, h)) {
		free(r);
		return;
	}
	back = fleet_after(f, delay(f), EV_ANSWER, &then);
	back->call = e->call;
	back->caller = e->caller;
	back->data = r;
}

/* Who is not in etcd any more has left, or its lease is over. */
static void know_members(struct fleet *f, struct host *h, const struct reply *r)
{
	for (uint32_t i = 0; i < PEERS_MAX; i++) {
		struct peer *p = &h->peers.peer[i];
		bool there = false;

		for (uint32_t k = 0; k < r->members; k++)
			there |= strcmp(r->member[k].name, p->name) == 0;
		if (p->state != PEER_FREE && !there)
			peers_forget(&h->peers, p->name);
	}
	for (uint32_t k = 0; k < r->members; k++)
		peers_member(&h->peers, &r->member[k], fleet_clock(f, h));
}

void registry_answer(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	const struct agree_answer none = { .error = -EAGAIN };
	struct reply *r = e->data;

	if (!e->caller->busy || e->caller->call != e->call)
		return; /* nobody waits for it any more */
	e->caller->busy = false;
	if (r) {
		r->answer.record = r->record;
		r->seen.record = r->pool_record;
		r->seen.member = r->pool_member;
		r->seen.now_ns = fleet_clock(f, h);
		r->answer.pool = &r->seen;
		if (e->caller->what.what == AGREE_MEMBERS)
			know_members(f, h, r);
		if (e->caller->what.what == AGREE_LOG) {
			memcpy(h->log, r->log, sizeof(h->log));
			h->logged = r->answer.count;
		}
		if ((e->caller->what.what == AGREE_KEEP || e->caller->what.what == AGREE_LEASE) &&
		    !r->answer.error)
			h->lease = (uint64_t)r->answer.mod;
	}
	member_answered(f, h, e->caller, r ? &r->answer : &none);
}
