/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host: its lives, its turns, and a client of it that raises epochs and deletes on all hosts.
 * What is done here at its own tierd takes some time, and may fail.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/hosts/fleet.h"

#define LOOK_NS (50 * MS)

void member_refresh(struct host *h)
{
	for (uint32_t c = 0; c < CONTEXTS; c++) {
		h->agreed[c].epoch = h->store.epoch[c];
		h->agreed[c].publishing = h->publishing[c];
	}
}

/* tierd-net starts: what it had in memory is gone, what tierd has is not. */
void member_start(struct fleet *f, struct host *h)
{
	h->up = true;
	h->life = ++f->lives;
	h->stopped_ns = 0;
	h->lease = 0;
	h->agree = (struct agree){ .lease_ns = LEASE_NS };
	pool_start(f, h);
	h->peers = (struct peers){ 0 };
	h->turn = h->client = (struct caller){ 0 };
	memset(h->job, 0, sizeof(h->job));
	h->picking.job = (struct job){ 0 };
	homes_start(h);
	h->box.count = 0;
	memset(&h->offers, 0, sizeof(h->offers));
	memset(h->offered, 0, sizeof(h->offered));
	memset(h->failed, 0, sizeof(h->failed));
	memset(h->publishing, 0, sizeof(h->publishing)); /* tierd ends what its client asked */
	for (uint32_t c = 0; c < CONTEXTS; c++) {
		h->agreed[c] = (struct agreed){ .shared = h->shares[c], .strict = c == 1 };
		fleet_digest(c, h->agreed[c].digest);
	}
	member_refresh(h);
	TRACE(f, "%u starts, life %llu", h->place, (unsigned long long)h->life);
	fleet_after(f, fleet_below(f, 100) * MS, EV_TURN, h);
	fleet_after(f, fleet_below(f, 100) * MS, EV_LOOKS, h);
	fleet_after(f, fleet_below(f, 100) * MS, EV_PULL, h);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void call_local(struct fleet *f, struct host *h)
{
	uint64_t wait = !f->quiet && fleet_chance(f, 50000) ? fleet_below(f, 3000) * MS :
							      fleet_below(f, 20) * MS;

	fleet_after(f, wait, EV_LOCAL, h);
}

static void call(struct fleet *f, struct host *h, struct caller *c)
{
	if (c->what.what == AGREE_RAISE || c->what.what == AGREE_DELETE) {
		c->busy = true;
		c->call = ++f->calls; /* what is answered twice, is not answered to this */
		call_local(f, h);
	} else {
		registry_ask(f, h, c);
	}
}

void member_turn(struct fleet *f, struct host *h)
{
	struct agreed *share[CONTEXTS];
	uint32_t count = 0;

	if (h->turn.busy)
		return;
	for (uint32_t c = 0; c < CONTEXTS; c++) {
		if (h->agreed[c].shared)
			share[count++] = &h->agreed[c];
	}
	f->result->turns++;
	agree_begin(&h->agree, share, count, fleet_clock(f, h));
	member_go_on(f, h, &h->turn);
}

static void delete_here(struct fleet *f, struct host *h, uint32_t c)
{
	for (uint32_t i = 0; i < h->logged; i++) {
		const struct deletion *d = &f->etcd.deletion[c][h->log[i]];

		for (uint32_t k = d->from; k < LENGTH; k++)
			h->store.block[c][d->prefix * LENGTH + k].there = false;
	}
}

void member_local(struct fleet *f, struct host *h)
{
	const struct agree_call *what = &h->turn.what;
	uint32_t c = fleet_context(what->digest);
	struct agree_answer a = { 0 };

	h->turn.busy = false;
	if (!f->quiet && fleet_chance(f, 20000))
		a.error = -EIO;
	else if (what->what == AGREE_DELETE)
		delete_here(f, h, c);
	else if (h->store.epoch[c] < what->epoch)
		h->store.epoch[c] = what->epoch;
	TRACE(f, "%u applies epoch %llu, deletions to %llu of %u: %d", h->place,
	      (unsigned long long)what->epoch, (unsigned long long)what->last, c, a.error);
	member_answered(f, h, &h->turn, &a);
}

/* ---- raises --------------------------------------------------------------------------------- */

void member_raise(struct fleet *f, struct host *h, uint32_t context, bool deletion)
{
	if (!h->up || h->client.busy || h->raise_until_ns || !h->agreed[context].known ||
	    (deletion && f->etcd.context[context].deleted > DELETIONS_MAX - 8))
		return;
	h->raise = (struct agree_raise){ .deletion = deletion, .ours = h->store.epoch[context] };
	fleet_digest(context, h->raise.digest);
	h->raise_context = context;
	h->raise_prefix = fleet_below(f, PREFIXES);
	h->raise_from = fleet_below(f, LENGTH);
	h->raise_made = f->made;
	h->raise_until_ns = fleet_clock(f, h) + 3 * LEASE_NS;
	member_go_on(f, h, &h->client);
}

static void acknowledge(struct fleet *f, struct host *h)
{
	const struct agree_raise *r = &h->raise;
	uint32_t c = h->raise_context;

	TRACE(f, "%u: %s %llu of %u is acknowledged", h->place, r->deletion ? "deletion" : "epoch",
	      (unsigned long long)(r->deletion ? r->number : r->epoch), c);
	if (r->deletion) {
		f->etcd.deletion[c][r->number].acknowledged = true;
		f->result->deletions++;
	} else {
		f->result->raises++;
		if (r->epoch > f->acknowledged[c])
			f->acknowledged[c] = r->epoch;
	}
}

static void raise_go_on(struct fleet *f, struct host *h, struct caller *c)
{
	enum agree_do what = agree_raise_next(&h->raise, &c->what);

	if (what != AGREE_DONE && what != AGREE_AWAY && fleet_clock(f, h) < h->raise_until_ns) {
		call(f, h, c);
		return;
	}
	if (what == AGREE_DONE)
		acknowledge(f, h);
	h->raise_until_ns = 0;
}

/* ---- both ----------------------------------------------------------------------------------- */

void member_go_on(struct fleet *f, struct host *h, struct caller *c)
{
	enum agree_do what;

	if (c == &h->client) {
		raise_go_on(f, h, c);
		return;
	}
	what = agree_next(&h->agree, &c->what);
	h->pool_told = what == AGREE_DONE || (h->pool_told && what != AGREE_AWAY);
	if (what != AGREE_DONE && what != AGREE_AWAY)
		call(f, h, c);
}

void member_answered(struct fleet *f, struct host *h, struct caller *c,
		     const struct agree_answer *a)
{
	if (c == &h->client) {
		agree_raise_answered(&h->raise, &c->what, a);
		if (c->what.what == AGREE_APPLIED && !h->raise.done) {
			fleet_after(f, LOOK_NS, EV_AGAIN, h)->caller = c;
			return;
		}
	} else {
		agree_answered(&h->agree, &c->what, a);
		member_refresh(h);
	}
	member_go_on(f, h, c);
}
