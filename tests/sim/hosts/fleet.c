/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet's time: a heap of events, and what each of them is; see fleet.h. An event of a host
 * that stands still waits until it goes on; one of a life that is over is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/fleet.h"
#include "tests/sim/world.h"

uint64_t fleet_random(struct fleet *f)
{
	return random_next(&f->random);
}

uint32_t fleet_below(struct fleet *f, uint32_t n)
{
	return (uint32_t)(fleet_random(f) % n);
}

bool fleet_chance(struct fleet *f, uint32_t ppm)
{
	return fleet_below(f, 1000000) < ppm;
}

uint64_t fleet_clock(const struct fleet *f, const struct host *h)
{
	return h->offset + (uint64_t)((double)f->now_ns * h->rate);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static bool before(const struct event *a, const struct event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void swap(struct event **a, struct event **b)
{
	struct event *c = *a;

	*a = *b;
	*b = c;
}

static void push(struct fleet *f, struct event *e)
{
	uint32_t i = f->events++;

	if (f->events > f->room) {
		f->room = f->room ? 2 * f->room : 256;
		f->heap = realloc(f->heap, f->room * sizeof(struct event *));
		if (!f->heap)
			abort();
	}
	for (f->heap[i] = e; i && before(f->heap[i], f->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&f->heap[i], &f->heap[(i - 1) / 2]);
}

static struct event *pop(struct fleet *f)
{
	struct event *first = f->heap[0];
	uint32_t i = 0, n = --f->events;

	f->heap[0] = f->heap[n];
	for (;;) {
		uint32_t least = i;

		for (uint32_t k = 2 * i + 1; k <= 2 * i + 2 && k < n; k++)
			if (before(f->heap[k], f->heap[least]))
				least = k;
		if (least == i)
			return first;
		swap(&f->heap[i], &f->heap[least]);
		i = least;
	}
}

struct event *fleet_after(struct fleet *f, uint64_t wait_ns, enum event_kind kind,
			  const struct host *h)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->at_ns = f->now_ns + wait_ns;
	e->order = ++f->orders;
	e->kind = kind;
	e->host = h ? h->place : 0;
	e->life = h ? h->life : 0;
	push(f, e);
	return e;
}

/* ---- events --------------------------------------------------------------------------------- */

static void happen_here(struct fleet *f, struct host *h, struct event *e)
{
	static void (*const does[])(struct fleet *f, struct event *e) = {
		[EV_ANSWER] = registry_answer,	[EV_UNANSWERED] = registry_answer,
		[EV_MESSAGE] = traffic_message, [EV_SEND] = traffic_send,
		[EV_COMMIT] = traffic_commit,	[EV_LATE] = traffic_late,
		[EV_POOL] = pool_event,		[EV_RDMA] = rdma_event,
		[EV_PICK] = keep_pick_event,	[EV_PICKED] = keep_picked_event,
	};

	switch (e->kind) {
	case EV_TURN:
		member_turn(f, h);
		fleet_after(f, LEASE_NS / 5, EV_TURN, h);
		break;
	case EV_LOOKS:
		traffic_looks(f, h);
		homes_tell(f, h);
		box_offers(f, h);
		box_turn(f, h);
		fleet_after(f, 250 * MS, EV_LOOKS, h);
		break;
	case EV_PULL:
		if (f->still)
			break;
		if (fleet_chance(f, 300000))
			homes_find_some(f, h);
		else
			traffic_pull(f, h);
		if (f->faults.keep)
			keep_some(f, h);
		fleet_after(f, (20 + fleet_below(f, 200)) * MS, EV_PULL, h);
		break;
	case EV_LOCAL:
		member_local(f, h);
		break;
	case EV_AGAIN:
		member_go_on(f, h, e->caller);
		break;
	default:
		does[e->kind](f, e);
	}
}

static void happen(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];

	if (e->kind == EV_ETCD) {
		registry_take(f, e);
	} else if (e->kind == EV_MOVE) {
		f->result->move = e->call;
		moves_do(f, f->move[e->call]);
	} else if (e->kind == EV_END) {
		moves_last(f, e->call);
	} else if (h->up && (!e->life || e->life == h->life)) {
		if (h->stopped_ns > f->now_ns) {
			e->at_ns = h->stopped_ns;
			e->order = ++f->orders;
			push(f, e);
			return;
		}
		member_refresh(h);
		happen_here(f, h, e);
	}
	judge_all(f);
	free(e->data);
	free(e);
}

static void run_until(struct fleet *f, uint64_t end_ns)
{
	while (f->events && f->heap[0]->at_ns < end_ns && !f->result->failure[0]) {
		struct event *e = pop(f);

		f->now_ns = e->at_ns > f->now_ns ? e->at_ns : f->now_ns;
		f->result->events++;
		happen(f, e);
	}
	f->now_ns = end_ns;
}

/* ---- a fleet's life ------------------------------------------------------------------------- */

static double some_rate(struct fleet *f)
{
	double most = 0.01;

	switch (fleet_below(f, 3)) {
	case 0:
		return 1 - most;
	case 1:
		return 1 + most;
	default:
		return 1 - most + 2 * most * fleet_below(f, 1001) / 1000;
	}
}

static void begin(struct fleet *f)
{
	f->etcd.rate = some_rate(f);
	f->hosts = f->faults.hosts;
	for (uint32_t i = 0; i < f->hosts; i++) {
		struct host *h = &f->host[i];

		h->place = i;
		h->rate = some_rate(f);
		h->offset = SECOND + fleet_random(f) % (1000 * SECOND);
		for (uint32_t c = 0; c < CONTEXTS; c++) {
			h->store.epoch[c] = 1;
			h->shares[c] = !fleet_chance(f, 100000);
		}
		h->copy = h->store;
		member_start(f, h);
	}
}

static void end(struct fleet *f)
{
	while (f->events) {
		struct event *e = pop(f);

		free(e->data);
		free(e);
	}
	while (f->links) {
		struct link *next = f->links->next;

		while (f->links->waiting)
			free(f->links->waits[--f->links->waiting]);
		free(f->links->lent);
		free(f->links);
		f->links = next;
	}
	free(f->heap);
	free(f);
}

/* Moves come a few tens of ms apart; then all is well, and what then must be true is looked at. */
int fleet_run(const uint64_t *moves, uint32_t n, const struct faults *faults, bool trace,
	      uint64_t seed, struct fleet_result *r)
{
	struct fleet *f = calloc(1, sizeof(*f));
	uint64_t at = 100 * MS;
	int failed;

	*r = (struct fleet_result){ 0 };
	if (!f)
		abort();
	f->faults = *faults;
	f->random = seed;
	f->trace = trace;
	f->result = r;
	f->move = moves;
	f->moves = n;
	begin(f);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t state = moves[i];

		fleet_after(f, at, EV_MOVE, NULL)->call = i;
		at += random_next(&state) % (100 * MS);
	}
	run_until(f, at + SECOND);
	judge_end(f);
	run_until(f, f->now_ns + 24 * LEASE_NS);
	f->still = true;
	run_until(f, f->now_ns + LEASE_NS);
	judge_end(f);
	failed = r->failure[0] ? -1 : 0;
	end(f);
	return failed;
}
