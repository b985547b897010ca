/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Homes of anchors, as tierd/net/tell.c and find.c have them around the real homes.h: what became
 * of the blocks of a host's tierd is told each 250 ms, and all of it to members that are others
 * than they were. A tierd's events are here the difference to what was told.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/fleet.h"

static uint64_t tag_of(uint32_t c, uint64_t epoch, uint32_t key)
{
	uint8_t digest[32], bytes[NET_KEY_BYTES];

	fleet_digest(c, digest);
	fleet_key(c, key, bytes);
	return homes_tag(digest, epoch, bytes);
}

static const char *name_of(char name[12], uint32_t place)
{
	snprintf(name, 12, "%u", place);
	return name;
}

/* Which host of the fleet has that name's digest; hosts: none. */
static uint32_t host_of(const struct fleet *f, uint32_t id)
{
	char name[12];
	uint32_t i = 0;

	while (i < f->hosts && homes_host(name_of(name, i)) != id)
		i++;
	return i;
}

static uint32_t home_of(const struct fleet *f, const struct homes_view *v, uint64_t tag)
{
	return host_of(f, v->host[homes_of(v->host, v->count, tag)]);
}

void homes_start(struct host *h)
{
	memset(h->slot, 0, sizeof(h->slot));
	h->homes = (struct homes){ .slot = h->slot, .room = HOME_ROOM };
	h->view = (struct homes_view){ .count = 0 };
	memset(h->tells, 0, sizeof(h->tells));
	memset(&h->finds, 0, sizeof(h->finds));
	h->forgot = false;
}

static uint32_t now_s(const struct fleet *f, const struct host *h)
{
	return (uint32_t)(fleet_clock(f, h) / SECOND);
}

/* What is told to a home, one by one: does its table forget somebody for it (K3)? */
static void take(struct fleet *f, struct host *h, const struct net_hold *m, uint32_t from)
{
	const struct net_holding *one = (const void *)(m + 1);
	char name[12];

	for (uint32_t i = 0; i < m->count; i++) {
		const struct {
			struct net_hold m;
			struct net_holding one;
		} word = { .m = { .count = 1 }, .one = one[i] };
		const struct homes_slot *w = &h->slot[one[i].tag & (HOME_ROOM - 1)];
		uint32_t used = 0;

		while (used < HOMES_WINDOW && w[used].tag)
			used++;
		h->forgot |= used == HOMES_WINDOW && !one[i].gone;
		homes_take(&h->homes, &word.m, homes_host(name_of(name, from)), now_s(f, h));
	}
}

/* ---- telling -------------------------------------------------------------------------------- */

static bool there(const struct host *h, uint32_t c, uint32_t key)
{
	const struct block *b = &h->store.block[c][key];

	return h->agreed[c].shared && b->there && b->epoch == h->store.epoch[c];
}

static bool is_told_of(const struct host *h, uint32_t c, uint32_t key)
{
	return anchor(key % LENGTH) || !there(h, c, key - 1);
}

struct word {
	struct net_hold m;
	struct net_holding one[CONTEXTS * KEYS];
};

static void gather(struct fleet *f, struct host *h, uint32_t to, struct word *w)
{
	for (uint32_t c = 0; c < CONTEXTS; c++)
		for (uint32_t k = 0; k < KEYS; k++) {
			uint64_t tag = tag_of(c, h->store.epoch[c], k);
			bool is = there(h, c, k);

			if (is == h->told[c][k] || (is && !is_told_of(h, c, k)) ||
			    home_of(f, &h->view, tag) != to)
				continue;
			w->one[w->m.count++] =
				(struct net_holding){ .tag = tag, .gone = h->told[c][k] };
			h->told[c][k] = is;
		}
}

static void look_round(struct host *h)
{
	struct homes_view was = h->view;
	char name[12];

	homes_view(&h->view, &h->peers, name_of(name, h->place));
	if (homes_changed(&was, &h->view))
		memset(h->told, 0, sizeof(h->told));
	for (uint32_t c = 0; c < CONTEXTS; c++) {
		if (h->told_epoch[c] != h->store.epoch[c])
			memset(h->told[c], 0, sizeof(h->told[c]));
		h->told_epoch[c] = h->store.epoch[c];
	}
}

void homes_tell(struct fleet *f, struct host *h)
{
	look_round(h);
	for (uint32_t i = 0; i < h->view.count; i++) {
		uint32_t to = host_of(f, h->view.host[i]);
		struct word w = { .m = { .header = { NET_MAGIC, NET_VERSION, NET_HOLD, 0, 0 } } };

		if (to != h->place && h->tells[to].busy)
			continue;
		gather(f, h, to, &w);
		w.m.header.length =
			(uint32_t)(sizeof(w.m) + w.m.count * sizeof(struct net_holding));
		if (to == h->place)
			take(f, h, &w.m, h->place);
		else if (w.m.count || fleet_chance(f, 100000))
			traffic_say(f, h, &h->tells[to], to, &w, w.m.header.length);
	}
}

/* ---- finding -------------------------------------------------------------------------------- */

/* The block that is lacked first, or an anchor behind it, at its home alone. */
void homes_find_some(struct fleet *f, struct host *h)
{
	uint32_t c = fleet_below(f, CONTEXTS), prefix = fleet_below(f, PREFIXES);
	uint32_t depth[NET_ANCHORS_MAX], n, home;
	struct {
		struct net_find m;
		uint64_t tag;
	} find = { .m = { .header = { NET_MAGIC, NET_VERSION, NET_FIND, sizeof(find), 0 },
			  .id = c << 8 | prefix, .count = 1 } };
	struct {
		struct net_held m;
		struct net_holders of;
	} held;

	n = anchors(fleet_match(h, c, prefix, 0), LENGTH, depth);
	if (!n || h->finds.busy || !h->view.count)
		return;
	find.tag = tag_of(c, h->store.epoch[c], prefix * LENGTH + depth[fleet_below(f, n)]);
	home = home_of(f, &h->view, find.tag);
	if (home == h->place) {
		homes_answer(&h->homes, &find.m, &held.m);
		homes_replied(f, h, NULL, &held.m);
	} else if (!h->failed[home]) {
		traffic_say(f, h, &h->finds, home, &find, sizeof(find));
	}
}

uint32_t homes_reply(struct fleet *f, struct host *h, uint32_t from, const void *m, void *out)
{
	const struct net_header *header = m;
	struct net_held *held = out;
	struct net_holders *of = (void *)(held + 1);
	char name[12];

	if (header->type == NET_FIND) {
		homes_answer(&h->homes, m, held);
		if (!f->quiet && fleet_chance(f, 50000)) /* it lies */
			of->host[0] = homes_host(name_of(name, fleet_below(f, f->hosts + 1)));
		return held->header.length;
	}
	take(f, h, m, from);
	*held = (struct net_held){
		.header = { NET_MAGIC, NET_VERSION, NET_HELD, sizeof(*held), 0 },
		.id = ((const struct net_hold *)m)->id,
	};
	return held->header.length;
}

void homes_replied(struct fleet *f, struct host *h, const struct job *j, const struct net_held *m)
{
	uint32_t place[HOMES_ASKED_MAX], to;

	if ((j && j != &h->finds) || m->count != 1 ||
	    !homes_whom(&h->view, (const void *)(m + 1), 1, place))
		return;
	to = (uint32_t)strtoul(h->peers.peer[place[0]].name, NULL, 10);
	if (peer_asked(&h->peers.peer[place[0]]) && !h->failed[to])
		traffic_pull_from(f, h, to, (uint32_t)m->id >> 8, (uint32_t)m->id & 0xff);
}

/* ---- the end -------------------------------------------------------------------------------- */

void homes_judge(struct fleet *f)
{
	for (uint32_t i = 0; i < f->hosts; i++)
		for (uint32_t n = 0; n < CONTEXTS * KEYS; n++) {
			const struct host *h = &f->host[i];
			uint32_t c = n / KEYS, key = n % KEYS, asks = (i + 1) % f->hosts, home;
			uint32_t named[HOMES_HOLDERS], names, k = 0;
			uint64_t tag = tag_of(c, h->store.epoch[c], key);

			if (!there(h, c, key) || !is_told_of(h, c, key))
				continue;
			home = home_of(f, &f->host[asks].view, tag);
			names = homes_find(&f->host[home].homes, tag, named);
			while (k < HOMES_HOLDERS && host_of(f, named[k]) != i)
				k++;
			if (k == HOMES_HOLDERS && (names < 2 || !f->host[home].forgot))
				FAIL(f, "K1: at last host %u has block %u of context %u, and its "
				     "home, host %u, does not name it", i, key, c, home);
		}
}
