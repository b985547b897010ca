/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls a fleet: each move is its seed, so that leaving one out changes no other one. */
#include <string.h>

#include "tests/sim/hosts/fleet.h"
#include "tests/sim/world.h"

static uint32_t draw(uint64_t *state, uint32_t n)
{
	return (uint32_t)(random_next(state) % n);
}

static void put_some(struct fleet *f, struct host *h, uint64_t *s)
{
	uint32_t c = draw(s, CONTEXTS), first = draw(s, PREFIXES) * LENGTH, count = draw(s, LENGTH);

	for (uint32_t i = 0; i <= count && h->up; i++)
		fleet_put(f, h, c, first + i);
}

static void evict_some(struct host *h, uint64_t *s)
{
	uint32_t c = draw(s, CONTEXTS), prefix = draw(s, PREFIXES);

	for (uint32_t i = draw(s, LENGTH); i < LENGTH; i++)
		h->store.block[c][prefix * LENGTH + i].there = false;
}

/* It dies, and comes back at once or later; with its store, an old one or none. */
static void die(struct fleet *f, struct host *h, uint64_t *s)
{
	uint32_t how = draw(s, 8);

	TRACE(f, "%u dies", h->place);
	h->up = false;
	h->stopped_ns = 0;
	h->raise_until_ns = 0;
	if (how == 0 || how == 1)
		h->store = h->copy;
	if (how == 2)
		h->store = (struct store){ .epoch = { 1, 1 } };
	if (how & 1)
		member_start(f, h);
}

static void share_or_not(struct fleet *f, struct host *h, uint64_t *s)
{
	uint32_t c = draw(s, CONTEXTS);

	h->shares[c] = draw(s, 4) > 0;
	if (h->agreed[c].shared == h->shares[c] || h->turn.busy)
		return;
	h->era[c]++;
	h->agreed[c] = (struct agreed){ .shared = h->shares[c], .strict = c == 1 };
	fleet_digest(c, h->agreed[c].digest);
	member_refresh(h);
	TRACE(f, "%u shares %u: %d", h->place, c, h->shares[c]);
}

static void cut(struct fleet *f, struct host *h, uint64_t *s)
{
	uint32_t to = draw(s, f->hosts + 1);
	uint64_t until_ns = f->now_ns + draw(s, 4000) * MS;

	if (to == f->hosts)
		h->cut_etcd_ns = until_ns;
	else
		h->cut_ns[to] = until_ns;
}

/* Mostly for a moment, at times for longer than a lease. */
static void stand_still(struct fleet *f, struct host *h, uint64_t *s)
{
	uint64_t wait_ms = draw(s, draw(s, 4) ? 300 : 5000);

	h->stopped_ns = f->now_ns + wait_ms * MS;
	TRACE(f, "%u stands still until %.3f", h->place, (double)h->stopped_ns / 1e6);
}

/* A client of this host alone: tierctl context epoch. One number is one model: no two are equal. */
static void raise_here(struct fleet *f, struct host *h, uint64_t *s)
{
	h->store.epoch[draw(s, CONTEXTS)] = ++f->raised << 16;
}

/* It loses etcd, and just then somebody raises: who waits for whom, and how long? */
static void alone(struct fleet *f, struct host *h, uint64_t *s)
{
	h->cut_etcd_ns = f->now_ns + LEASE_NS + draw(s, 1000) * MS;
	member_raise(f, &f->host[(h->place + 1) % f->hosts], draw(s, CONTEXTS), draw(s, 2));
}

static void fault(struct fleet *f, struct host *h, uint64_t *s)
{
	if (!h->up) {
		member_start(f, h);
		return;
	}
	switch (draw(s, 16)) {
	case 0:
		die(f, h, s);
		break;
	case 1:
	case 2:
		stand_still(f, h, s);
		break;
	case 3:
		f->etcd.down_ns = f->now_ns + draw(s, 3000) * MS;
		break;
	case 4:
		share_or_not(f, h, s);
		break;
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
		h->tierd++;
		break;
	default:
		cut(f, h, s);
	}
}

void moves_do(struct fleet *f, uint64_t seed)
{
	uint64_t s = seed;
	struct host *h;
	uint32_t kind;

	(void)random_next(&s); /* when it comes */
	h = &f->host[draw(&s, f->hosts)];
	kind = draw(&s, 100);
	if (kind < 50)
		put_some(f, h, &s);
	else if (kind < 58)
		evict_some(h, &s);
	else if (kind < 76)
		member_raise(f, h, draw(&s, CONTEXTS), true);
	else if (kind < 81)
		member_raise(f, h, draw(&s, CONTEXTS), false);
	else if (kind < 83)
		raise_here(f, h, &s);
	else if (kind < 87)
		h->copy = h->store;
	else if (kind < 89)
		alone(f, h, &s);
	else
		fault(f, h, &s);
	member_refresh(h);
}

/* Everything runs and is joined; then host 0 raises an epoch, and later puts a prefix. */
void moves_heal(struct fleet *f)
{
	f->quiet = true;
	f->faults.work_us = 5000;
	for (uint32_t i = 0; i < f->hosts; i++) {
		struct host *h = &f->host[i];

		h->stopped_ns = 0;
		for (uint32_t c = 0; c < CONTEXTS; c++) {
			h->shares[c] = true;
			h->agreed[c].shared = true;
		}
		if (!h->up)
			member_start(f, h);
	}
	fleet_after(f, 16 * LEASE_NS, EV_END, NULL)->call = 1;
	fleet_after(f, 20 * LEASE_NS, EV_END, NULL)->call = 2;
}

void moves_last(struct fleet *f, uint64_t which)
{
	if (which == 1)
		member_raise(f, &f->host[0], 0, false);
	/* As if the box had begun a life (B2). */
	for (uint32_t i = 0; which == 1 && i < f->hosts; i++)
		memset(f->host[i].offered, 0, sizeof(f->host[i].offered));
	for (uint32_t k = 0; which == 2 && k < LENGTH; k++)
		fleet_put(f, &f->host[0], 0, k);
}
