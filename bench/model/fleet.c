/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hosts find together: the trace, sent to hosts by turns (no routing at all), each with an LRU
 * memory of its part of the whole, against one host that has all of it. A host looks at home first;
 * for what is beyond it asks the homes of the anchors (tierd/net/homes.h, the real code) and then
 * the holders they name, as tierd-net does. A model of caches, not of time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/trace/trace.h"
#include "tierd/net/homes.h"
#include "tierd/net/proto.h"

#define HOSTS_MAX 16u
#define ASKED_MAX 8u   /* holders, for one look */
#define BROUGHT_MAX 3u /* of these one after another bring a part, as PULL_HOSTS */
#define NONE UINT32_MAX

/* As tierd-net does it; and what comes from afar kept from its second read on. */
enum keep { KEEP_ALL, KEEP_SECOND };

/* LRU of blocks by id; a prefix is used from its end, so its first blocks leave last. */
struct cache {
	uint32_t *next, *prev; /* NONE: not in it; a ring through `ids`, which is its head */
	uint8_t *came;         /* it was brought from afar once */
	uint32_t count, room;
};

struct fleet {
	const struct trace *t;
	uint32_t ids, hosts;
	enum keep keep;
	uint32_t *depth; /* by id */
	struct cache cache[HOSTS_MAX];
	struct homes home[HOSTS_MAX];
	uint32_t member[HOSTS_MAX];
	uint64_t local, remote, probes, stale;
};

/* ---- a host's memory ------------------------------------------------------------------------- */

static int cache_new(struct cache *c, uint32_t ids, uint32_t room)
{
	*c = (struct cache){ .room = room ? room : 1 };
	c->next = malloc((ids + 1) * sizeof(*c->next));
	c->prev = malloc((ids + 1) * sizeof(*c->prev));
	c->came = calloc(ids, 1);
	if (!c->next || !c->prev || !c->came)
		return -ENOMEM;
	for (uint32_t i = 0; i < ids; i++)
		c->next[i] = NONE;
	c->next[ids] = c->prev[ids] = ids;
	return 0;
}

static bool there(const struct cache *c, uint32_t id)
{
	return c->next[id] != NONE;
}

static void leave(struct cache *c, uint32_t id)
{
	c->next[c->prev[id]] = c->next[id];
	c->prev[c->next[id]] = c->prev[id];
	c->next[id] = NONE;
	c->count--;
}

static void enter(struct cache *c, uint32_t id, uint32_t head)
{
	c->next[id] = c->next[head];
	c->prev[id] = head;
	c->prev[c->next[head]] = id;
	c->next[head] = id;
	c->count++;
}

/* ---- homes ----------------------------------------------------------------------------------- */

static uint64_t tag_of(uint32_t id)
{
	const uint8_t context[32] = { 1 };
	uint8_t key[NET_KEY_BYTES] = { 0 };
	uint64_t x = id * UINT64_C(0x9e3779b97f4a7c15) + 1;

	x = bench_random(&x);
	memcpy(key, &x, sizeof(x));
	return homes_tag(context, 1, key);
}

static struct homes *home_of(struct fleet *f, uint64_t tag)
{
	return &f->home[homes_of(f->member, f->hosts, tag)];
}

static void tell(struct fleet *f, uint32_t host, uint32_t id, bool gone, uint32_t now_s)
{
	uint64_t tag;

	if (f->hosts < 2)
		return;
	tag = tag_of(id);
	if (gone)
		homes_drop(home_of(f, tag), tag, f->member[host]);
	else
		homes_hold(home_of(f, tag), tag, f->member[host], now_s);
}

/* ---- a request ------------------------------------------------------------------------------- */

static void use(struct fleet *f, uint32_t host, uint32_t id, uint32_t now_s)
{
	struct cache *c = &f->cache[host];

	if (there(c, id)) {
		leave(c, id);
	} else if (c->count == c->room) {
		uint32_t old = c->prev[f->ids];

		leave(c, old);
		tell(f, host, old, true, now_s);
	}
	enter(c, id, f->ids);
}

/* What is new here: anchors, and where a run begins whose first blocks lie elsewhere. */
static void tell_new(struct fleet *f, uint32_t host, const uint32_t *id, uint32_t from,
		     uint32_t count, uint32_t now_s)
{
	const struct cache *c = &f->cache[host];

	for (uint32_t i = from; i < count; i++)
		if (there(c, id[i]) &&
		    (anchor(f->depth[id[i]]) || (i && !there(c, id[i - 1]))))
			tell(f, host, id[i], false, now_s);
}

static uint32_t match(const struct cache *c, const uint32_t *id, uint32_t from, uint32_t count)
{
	while (from < count && there(c, id[from]))
		from++;
	return from;
}

static uint32_t place_of(const struct fleet *f, uint32_t member)
{
	uint32_t i = 0;

	while (f->member[i] != member)
		i++;
	return i;
}

/* Blocks that one host has beyond `local`, the most that the anchors' homes tell of. */
static uint32_t look(struct fleet *f, uint32_t host, const uint32_t *id, uint32_t local,
		     uint32_t count)
{
	uint32_t depth[NET_ANCHORS_MAX], n = anchors(local, count, depth), most = local, asked = 0;
	bool done[HOSTS_MAX] = { false };

	while (n-- && depth[n] >= most && asked < ASKED_MAX) {
		uint64_t tag = tag_of(id[depth[n]]);
		uint32_t named[HOMES_HOLDERS];
		uint32_t names = homes_find(home_of(f, tag), tag, named);

		for (uint32_t i = 0; i < names && asked < ASKED_MAX; i++) {
			uint32_t at = place_of(f, named[i]), has;

			if (at == host || done[at])
				continue;
			done[at] = true;
			asked++;
			has = match(&f->cache[at], id, local, count);
			f->stale += has <= depth[n];
			most = has > most ? has : most;
		}
	}
	f->probes += asked;
	return most;
}

static void request(struct fleet *f, uint32_t host, const uint32_t *id, uint32_t count,
		    uint32_t now_s)
{
	struct cache *c = &f->cache[host];
	uint32_t local = match(c, id, 0, count), most = local;

	/* Where it lies, that it is brought from there is no use of it: holder.c. */
	for (uint32_t i = 0; i < BROUGHT_MAX && f->hosts > 1 && most < count; i++) {
		uint32_t had = most;

		most = look(f, host, id, had, count);
	}
	f->local += local;
	f->remote += most - local;
	for (uint32_t i = count; i-- > 0;) {
		bool afar = i >= local && i < most, again = c->came[id[i]];

		c->came[id[i]] |= afar;
		if (!afar || f->keep == KEEP_ALL || again)
			use(f, host, id[i], now_s);
	}
	tell_new(f, host, id, local, count, now_s);
}

/* ---- a fleet -------------------------------------------------------------------------------- */

static int fleet_new(struct fleet *f, double part)
{
	uint32_t room = (uint32_t)(part * f->ids / f->hosts);
	int error = 0;

	for (uint32_t i = 0; i < f->hosts && !error; i++) {
		f->member[i] = 1000 + i;
		error = cache_new(&f->cache[i], f->ids, room);
		f->home[i].room = 16384;
		f->home[i].slot = calloc(f->home[i].room + HOMES_WINDOW, sizeof(struct homes_slot));
		error = error || !f->home[i].slot ? -ENOMEM : 0;
	}
	return error;
}

static void fleet_free(struct fleet *f)
{
	for (uint32_t i = 0; i < f->hosts; i++) {
		free(f->cache[i].next);
		free(f->cache[i].prev);
		free(f->cache[i].came);
		free(f->home[i].slot);
	}
}

/* id: the trace's, numbered from 0 in the order in which they come. */
static int run(struct fleet *f, const uint32_t *id, double part)
{
	int error = fleet_new(f, part);

	for (size_t i = 0; i < f->t->request_count && !error; i++) {
		const struct trace_request *r = &f->t->request[i];

		request(f, (uint32_t)(i % f->hosts), id + r->id_first, r->id_count,
			(uint32_t)(r->timestamp_ms / 1000));
	}
	fleet_free(f);
	return error;
}

static int compare(struct bench *b, const struct fleet *made, const uint32_t *id, double part)
{
	static const char *const how[] = { "kept", "kept when read again" };
	struct fleet alone = *made;
	int error;

	alone.hosts = 1;
	error = run(&alone, id, part);
	for (uint32_t hosts = 4; hosts <= HOSTS_MAX && !error; hosts *= 2)
		for (enum keep keep = KEEP_ALL; keep <= KEEP_SECOND && !error; keep++) {
			char name[BENCH_TEXT];
			const struct bench_figure figure = {
				"fleet", name, "found", "one host of the same memory",
				{ BENCH_RATIO_AT_LEAST, 0.96 }
			};
			struct fleet f = *made;

			f.hosts = hosts;
			f.keep = keep;
			error = run(&f, id, part);
			snprintf(name, sizeof(name), "%u hosts by turns, memory %.0f%%: what came "
				 "is %s", hosts, part * 100, how[keep]);
			if (!error)
				error = bench_judge_exact(b->results, &figure,
							  (double)(f.local + f.remote),
							  (double)alone.local);
			if (!error)
				error = bench_note(b->results, "fleet", "%s: %.3f of what is found "
						   "lies at home; %.2f holders asked a prompt, "
						   "%.3f in vain", name, (double)f.local /
						   (double)(f.local + f.remote),
						   (double)f.probes / (double)f.t->request_count,
						   (double)f.stale / (double)(f.probes + 1));
		}
	return error;
}

/* Ids are numbered as they come, and get their depths. */
static int number(struct fleet *f, uint32_t *id)
{
	uint64_t top = 0;
	uint32_t *of;

	for (size_t i = 0; i < f->t->id_count; i++)
		top = f->t->id[i] > top ? f->t->id[i] : top;
	of = top < TRACE_IDS_MAX ? malloc((top + 1) * sizeof(*of)) : NULL;
	f->depth = malloc((top + 1) * sizeof(*f->depth));
	if (!of || !f->depth) {
		free(of);
		return -ENOMEM;
	}
	memset(of, 0xff, (top + 1) * sizeof(*of));
	for (size_t i = 0; i < f->t->request_count; i++) {
		const struct trace_request *r = &f->t->request[i];

		for (uint32_t k = 0; k < r->id_count; k++) {
			uint32_t *n = &of[f->t->id[r->id_first + k]];

			if (*n == NONE) {
				*n = f->ids++;
				f->depth[*n] = k;
			}
			id[r->id_first + k] = *n;
		}
	}
	free(of);
	return 0;
}

int bench_fleet(struct bench *b)
{
	static const double part[] = { 0.02, 0.10, 0.25 };
	struct trace *t = NULL;
	struct fleet f = { .hosts = 0 };
	uint32_t *id = NULL;
	int error = bench_trace(&t, b, b->quick ? 3000 : 0);

	f.t = t;
	if (!error) {
		id = malloc(t->id_count * sizeof(*id));
		error = id ? number(&f, id) : -ENOMEM;
	}
	for (uint32_t i = 0; i < sizeof(part) / sizeof(part[0]) && !error; i++)
		error = compare(b, &f, id, part[i]);
	free(f.depth);
	free(id);
	trace_close(t);
	return error;
}
