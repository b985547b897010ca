/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between hosts: pulls, looks and grants, in the real messages. What the shells of tierd-net do
 * around the protocol is done here by the same steps: see pull.c and holder.c there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hosts/traffic.h"

/* ---- the network ---------------------------------------------------------------------------- */

static void carry(struct fleet *f, struct link *l, const struct packet *p)
{
	struct packet *copy = malloc(sizeof(*copy));
	uint64_t at = f->now_ns + (100 + fleet_below(f, 10000)) * US;
	struct event *e;

	if (!copy)
		abort();
	*copy = *p;
	if (!f->quiet && fleet_chance(f, f->faults.slow_ppm))
		at += fleet_below(f, 3000) * MS;
	if (f->quiet || !fleet_chance(f, f->faults.order_ppm)) {
		at = at > l->last_ns[p->back] ? at : l->last_ns[p->back] + 1;
		l->last_ns[p->back] = at;
	}
	e = fleet_after(f, at - f->now_ns, EV_MESSAGE, NULL);
	e->host = p->back ? l->from : l->to;
	e->link = l;
	e->data = copy;
}

void traffic_transmit(struct fleet *f, struct link *l, struct packet *p)
{
	uint32_t from = p->back ? l->to : l->from, to = p->back ? l->from : l->to;

	if (!f->quiet && (f->host[from].cut_ns[to] > f->now_ns ||
			  fleet_chance(f, f->faults.lost_ppm)))
		return;
	carry(f, l, p);
	if (!f->quiet && fleet_chance(f, f->faults.twice_ppm))
		carry(f, l, p);
}

void traffic_word(struct fleet *f, struct link *l, const void *m, uint32_t bytes, bool back)
{
	struct packet p = { .back = back, .bytes = bytes };

	memcpy(p.m.byte, m, bytes);
	traffic_transmit(f, l, &p);
}

static void say_hello(struct fleet *f, struct link *l, const struct host *h, bool back)
{
	struct net_hello m = { .incarnation = h->life, .pool = h->pool_told };

	m.header = (struct net_header){ .magic = NET_MAGIC, .version = NET_VERSION,
					.type = NET_HELLO, .length = sizeof(m) };
	snprintf(m.name, sizeof(m.name), "%u", h->place);
	traffic_word(f, l, &m, sizeof(m), back);
}

/* ---- the requester -------------------------------------------------------------------------- */

static struct peer *peer_of(struct host *h, uint32_t place)
{
	char name[12];

	snprintf(name, sizeof(name), "%u", place);
	return peers_find(&h->peers, name);
}

void traffic_job(struct fleet *f, struct host *h, struct job *j, uint32_t to, uint64_t wait)
{
	struct link *l = calloc(1, sizeof(*l));
	struct event *e;

	if (!l)
		abort();
	*l = (struct link){ .next = f->links, .from = h->place, .to = to, .from_life = h->life };
	f->links = l;
	j->busy = true;
	j->link = l;
	j->id = ++f->calls;
	j->deadline_ns = fleet_clock(f, h) + wait;
	e = fleet_after(f, (uint64_t)((double)wait / h->rate) + 1, EV_LATE, h);
	e->call = j->id;
	e->job = j;
	say_hello(f, l, h, false);
}

void traffic_job_end(struct fleet *f, struct host *h, struct job *j, int error)
{
	struct peer *p = peer_of(h, j->link->to);

	TRACE(f, "%u %s at %u: %d", h->place, j->look ? "looks" : "pulls", j->link->to, error);
	if (error && p) {
		peer_failed(p, fleet_clock(f, h), "failed");
		h->failed[j->link->to] = true;
	}
	h->view.lost += error && j->says_bytes;
	j->link->closed = true;
	j->busy = false;
}

static struct job *job_free(struct host *h, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		if (!h->job[i].busy)
			return &h->job[i];
	return NULL;
}

/* One of those that may be asked; -1: there is none. */
int traffic_whom(struct fleet *f, struct host *h)
{
	uint32_t first = fleet_below(f, f->hosts);

	for (uint32_t i = 0; i < f->hosts; i++) {
		uint32_t place = (first + i) % f->hosts;
		const struct peer *p = place == h->place ? NULL : peer_of(h, place);

		if (!p || !peer_asked(p) || (f->quiet && place && h->place))
			continue;
		if (h->failed[place])
			FAIL(f, "R4: host %u asks host %u, which it has not met since it failed",
			     h->place, place);
		return (int)place;
	}
	return -1;
}

/* Mostly of what that host has more than we have, as locate.c would say. */
void traffic_what(struct fleet *f, const struct host *h, const struct host *of, uint32_t *c,
		 uint32_t *prefix)
{
	*c = *prefix = 0;
	for (int i = 0; i < 8 && !f->quiet; i++) {
		*c = fleet_below(f, CONTEXTS);
		*prefix = fleet_below(f, PREFIXES);
		if (fleet_match(of, *c, *prefix, 0) > fleet_match(h, *c, *prefix, 0))
			break;
	}
}

void traffic_pull(struct fleet *f, struct host *h)
{
	uint32_t c, prefix;
	int to = traffic_whom(f, h);

	if (to < 0)
		return;
	traffic_what(f, h, &f->host[to], &c, &prefix);
	traffic_pull_from(f, h, (uint32_t)to, c, prefix);
}

void traffic_say(struct fleet *f, struct host *h, struct job *j, uint32_t to, const void *m,
		 uint32_t bytes)
{
	*j = (struct job){ .says_bytes = bytes };
	memcpy(j->says, m, bytes);
	traffic_job(f, h, j, to, SECOND);
}

void traffic_pull_from(struct fleet *f, struct host *h, uint32_t to, uint32_t c, uint32_t prefix)
{
	struct job *j = job_free(h, 0, JOBS);
	uint32_t local = fleet_match(h, c, prefix, 0), most;

	if (!j || local == LENGTH ||
	    !agreed_stands(&h->agree, &h->agreed[c], fleet_clock(f, h)))
		return;
	*j = (struct job){ .context = c, .prefix = prefix, .next = local, .end = LENGTH,
			   .epoch = h->store.epoch[c], .deleted = h->agreed[c].deleted,
			   .era = h->era[c] };
	f->result->pulls++;
	most = fleet_chance(f, 200000) ? 5000 : 900;
	traffic_job(f, h, j, to, ((f->quiet ? 1000 : 50) + fleet_below(f, most)) * MS);
}

void traffic_looks(struct fleet *f, struct host *h)
{
	for (uint32_t i = 0; i < f->hosts; i++) {
		struct peer *p = peer_of(h, i);
		struct job *j = &h->job[JOBS + i];

		if (!p || j->busy || !peer_due(p, fleet_clock(f, h)))
			continue;
		*j = (struct job){ .look = true };
		h->failed[i] = true; /* until it is met */
		traffic_job(f, h, j, i, SECOND);
	}
}

void traffic_late(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];

	if (e->job->busy && e->job->id == e->call)
		traffic_job_end(f, h, e->job, keep_idle(h, e->job) ? 0 : -ETIMEDOUT);
}

static void ask(struct fleet *f, struct host *h, struct job *j, struct part *part)
{
	struct packet p = { .bytes = sizeof(struct net_ask) };
	uint32_t asked = j->end - j->next < 2 ? j->end - j->next : 2;

	*part = (struct part){ .first = j->next, .pull = {
		.id = ++f->calls, .epoch = j->epoch, .deadline_ns = j->deadline_ns,
		.asked = asked } };
	j->next += asked;
	fleet_digest(j->context, p.m.ask.context);
	p.m.ask.deleted = j->deleted;
	pull_ask(&part->pull, &fleet_shape, &p.m.ask, fleet_clock(f, h));
	for (uint32_t i = 0; i < asked; i++)
		fleet_key(j->context, j->prefix * LENGTH + part->first + i,
			  p.m.byte + p.bytes + i * NET_KEY_BYTES);
	p.bytes += asked * NET_KEY_BYTES;
	traffic_transmit(f, j->link, &p);
}

static void ask_more(struct fleet *f, struct host *h, struct job *j)
{
	bool under_way = false;

	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++) {
		if (j->part[i].pull.state == PULL_FREE && j->next < j->end)
			ask(f, h, j, &j->part[i]);
		under_way |= j->part[i].pull.state != PULL_FREE;
	}
	if (!under_way)
		traffic_job_end(f, h, j, 0);
}

static void end_at(struct job *j, struct part *part, uint32_t block)
{
	j->end = block < j->end ? block : j->end;
	j->next = j->next < j->end ? j->next : j->end;
	if (block == part->first)
		part->pull.state = PULL_FREE;
}

static int take_pages(struct host *h, struct job *j, struct part *part, const struct packet *p)
{
	static const uint32_t offset[] = { 0, 24, 40 };
	const uint8_t *at_byte = p->m.byte + p->m.header.length;
	struct cursor at;
	uint8_t key[NET_KEY_BYTES];
	uint32_t block, crc;
	int rc = pull_pages(&part->pull, &p->m.pages, &at);

	if (!part->begun)
		part->put_epoch = h->store.epoch[j->context];
	part->begun = true;
	for (uint32_t i = 0; i < p->m.pages.count && rc == 0; i++) {
		const struct shape_page *page = shape_at(&fleet_shape, at.layer, at.at + i, &block);

		fleet_key(j->context, j->prefix * LENGTH + part->first + block, key);
		memcpy(&crc, p->m.byte + sizeof(p->m.pages) + i * sizeof(crc), sizeof(crc));
		if (page_crc(key, j->epoch, page, at_byte) != crc)
			rc = -EBADMSG;
		memcpy(&part->bytes[block][offset[page->page]], at_byte, page->bytes);
		part->made[block] = p->made[i];
		at_byte += page->bytes;
	}
	part->came += rc ? 0 : p->m.pages.count;
	return rc;
}

/* What an engine reads while the rest comes, as far.c announces it (R7). */
static void announce(struct fleet *f, const struct host *h, const struct job *j, struct part *part)
{
	const struct agreed *s = &h->agreed[j->context];
	uint64_t now = fleet_clock(f, h);
	uint32_t layers = pull_layers(&part->pull,
				      agreed_publishes(&h->agree, s, j->epoch, j->deleted, now),
				      now);

	if (layers <= part->layers)
		return;
	part->layers = layers;
	memcpy(part->read, part->bytes, sizeof(part->read));
	f->result->layers++;
	if (part->came < fleet_shape.first[layers] * part->pull.blocks)
		FAIL(f, "R7: host %u announces %u layers, of which %u pages came", h->place, layers,
		     part->came);
	if (s->epoch != j->epoch || s->deleted != j->deleted)
		FAIL(f, "R7: host %u announces a layer of an epoch or before a deletion that is "
			"over", h->place);
	if (now >= part->pull.ends_ns || (s->strict && now >= h->agree.until_ns))
		FAIL(f, "R7: host %u announces a layer behind its grant, or its lease", h->place);
}

/* As pull.c: only whole, and only while it may be (R1, R6, G5). */
static int take_whole(struct fleet *f, struct host *h, struct job *j, struct part *part,
		      const struct net_word *m)
{
	struct agreed *s = &h->agreed[j->context];
	uint64_t now = fleet_clock(f, h);
	int rc = pull_whole(&part->pull, m, now);
	struct event *e;

	if (rc)
		return rc;
	if (part->pull.state != PULL_WHOLE || part->first >= j->end ||
	    j->era != h->era[j->context] ||
	    !agreed_publishes(&h->agree, s, j->epoch, j->deleted, now)) {
		end_at(j, part, part->first);
		return 0;
	}
	if (now >= j->deadline_ns)
		FAIL(f, "R4: host %u publishes after the deadline", h->place);
	if (s->strict && now >= h->agree.until_ns)
		FAIL(f, "R6: host %u publishes for a strict context without a lease", h->place);
	for (uint32_t i = 0; i < part->pull.blocks; i++)
		if (memcmp(part->read[i], part->bytes[i], part->layers == 2 ? BLOCK_BYTES :
							  part->layers ? 40 : 0))
			FAIL(f, "R7: host %u publishes other bytes than were read", h->place);
	h->publishing[j->context]++;
	e = fleet_after(f, fleet_below(f, 2 * f->faults.work_us) * US, EV_COMMIT, h);
	e->data = malloc(sizeof(*j));
	if (!e->data)
		abort();
	memcpy(e->data, j, sizeof(*j));
	e->call = (uint64_t)(part - j->part);
	part->pull.state = PULL_FREE;
	return 0;
}

void traffic_commit(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	struct job *j = e->data;
	const struct part *part = &j->part[e->call];

	h->publishing[j->context]--;
	if (part->put_epoch != h->store.epoch[j->context])
		return; /* tierd refuses it */
	for (uint32_t i = 0; i < part->pull.blocks; i++) {
		uint32_t key = j->prefix * LENGTH + part->first + i;
		struct block *b = &h->store.block[j->context][key];

		if (b->there && b->epoch == part->put_epoch)
			continue;
		*b = (struct block){ .there = true, .epoch = part->put_epoch,
				     .made = part->made[i], .slot = ++f->slots };
		memcpy(b->bytes, part->bytes[i], BLOCK_BYTES);
		judge_bytes(f, h, j->context, key, b);
		f->result->blocks++;
	}
}

static int greeted(struct fleet *f, struct host *h, struct job *j, const struct net_hello *m)
{
	struct peer *p = peer_of(h, j->link->to);
	uint64_t known = p ? p->incarnation : 0;
	int rc = p ? peer_met(p, m->incarnation) : -ENOENT;

	if (rc)
		return rc;
	if (known && known != m->incarnation)
		FAIL(f, "R4: host %u takes from life %llu of host %u; etcd says %llu", h->place,
		     (unsigned long long)m->incarnation, j->link->to, (unsigned long long)known);
	h->failed[j->link->to] = false;
	if (j->look)
		traffic_job_end(f, h, j, 0);
	else if (j == &h->picking.job)
		keep_greeted(f, h);
	else if (j->says_bytes)
		traffic_word(f, j->link, j->says, j->says_bytes, false);
	else
		ask_more(f, h, j);
	return 0;
}

static int take(struct fleet *f, struct host *h, struct job *j, const struct packet *p)
{
	uint16_t type = p->m.header.type;
	struct part *part = NULL;
	int rc = -EPROTO;

	if (type == NET_HELLO)
		return j->link->welcome ? -EPROTO : greeted(f, h, j, &p->m.hello);
	if (j == &h->picking.job)
		return keep_take(f, h, p);
	if (j->says_bytes) {
		if (type != NET_HELD && type != NET_TAKEN)
			return -EPROTO;
		traffic_job_end(f, h, j, 0);
		if (type == NET_HELD)
			homes_replied(f, h, j, (const void *)p->m.byte);
		return 0;
	}
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++)
		if (j->part[i].pull.state != PULL_FREE && j->part[i].pull.id == p->m.word.id)
			part = &j->part[i];
	if (!part)
		return rc;
	if (type == NET_GRANT) {
		rc = pull_granted(&part->pull, &p->m.grant);
		if (rc == 0 && part->pull.state == PULL_OVER)
			end_at(j, part, part->first);
		else if (rc == 0 && part->pull.blocks < part->pull.asked)
			end_at(j, part, part->first + part->pull.blocks);
	} else if (type == NET_PAGES) {
		rc = take_pages(h, j, part, p);
		if (rc == 0)
			announce(f, h, j, part);
	} else if (type == NET_AT) {
		rc = pool_told_of(f, h, j->link, &part->pull, p);
		if (rc == -ESTALE) { /* by what we know it is not the peer's place */
			traffic_job_end(f, h, j, 0);
			return 0;
		}
		if (rc == 0)
			return 0;
	} else if (type == NET_PLACES) {
		rc = rdma_told_of(f, h, j->link, j, &part->pull, p);
		if (rc == 0)
			return 0;
	} else if (type == NET_WHOLE) {
		rc = take_whole(f, h, j, part, &p->m.word);
	} else {
		rc = pull_ended(&part->pull, &p->m.word);
		end_at(j, part, part->first);
	}
	if (rc == 0)
		ask_more(f, h, j);
	return rc;
}

static void keep(struct link *l, const struct packet *p)
{
	if (l->waiting == LINK_WAITS)
		return;
	l->waits[l->waiting] = malloc(sizeof(*p));
	if (!l->waits[l->waiting])
		abort();
	memcpy(l->waits[l->waiting++], p, sizeof(*p));
}

static void to_requester(struct fleet *f, struct host *h, struct link *l, const struct packet *p)
{
	if (l->reading) {
		keep(l, p);
		return;
	}
	for (uint32_t i = 0; i < JOBS + 2 * HOSTS_MAX + 3; i++) {
		struct job *j = i < JOBS + HOSTS_MAX	 ? &h->job[i] :
				i < JOBS + 2 * HOSTS_MAX ? &h->tells[i - JOBS - HOSTS_MAX] :
				i == JOBS + 2 * HOSTS_MAX ? &h->finds :
				i == JOBS + 2 * HOSTS_MAX + 1 ? &h->offers :
								&h->picking.job;
		bool hello = p->m.header.type == NET_HELLO;
		int rc;

		if (!j->busy || j->link != l)
			continue;
		rc = take(f, h, j, p);
		l->welcome |= hello;
		if (rc)
			traffic_job_end(f, h, j, rc);
		return;
	}
}

/* What came meanwhile, behind what was read. */
static void go_on(struct fleet *f, struct host *h, struct link *l, const struct packet *p)
{
	l->reading = false;
	if (p)
		to_requester(f, h, l, p);
	while (l->waiting && !l->reading && !l->closed) {
		struct packet *next = l->waits[0];

		memmove(l->waits, l->waits + 1, --l->waiting * sizeof(*l->waits));
		to_requester(f, h, l, next);
		free(next);
	}
}

void traffic_read(struct fleet *f, struct host *h, struct link *l, const struct net_word *said,
		  const struct packet *p)
{
	traffic_word(f, l, said, sizeof(*said), false);
	go_on(f, h, l, p);
}

void packet_as_pages(struct packet *p, size_t crcs, const uint8_t *bytes, uint32_t count)
{
	struct packet was = *p;
	uint32_t length = p->m.pages.count * (uint32_t)sizeof(uint32_t);

	p->m.header.type = NET_PAGES;
	p->m.header.length = (uint32_t)sizeof(p->m.pages) + length;
	memcpy(p->m.byte + sizeof(p->m.pages), was.m.byte + crcs, length);
	memcpy(p->m.byte + p->m.header.length, bytes, count);
	p->bytes = p->m.header.length + count;
}

void traffic_loaded(struct fleet *f, struct host *h, struct link *l, const struct packet *p)
{
	struct net_word copied;

	for (uint32_t i = 0; i < JOBS * NET_GRANTS_MAX; i++) {
		struct job *j = &h->job[i / NET_GRANTS_MAX];
		struct pull *pull = &j->part[i % NET_GRANTS_MAX].pull;

		if (!j->busy || j->link != l || pull->state == PULL_FREE ||
		    pull->id != p->m.pages.id)
			continue;
		pull_copied(pull, &copied);
		traffic_word(f, l, &copied, sizeof(copied), false);
	}
	go_on(f, h, l, p);
}

/* ---- the holder ----------------------------------------------------------------------------- */

static void grant(struct fleet *f, struct host *h, struct link *l, const struct packet *p)
{
	const struct net_ask *m = &p->m.ask;
	uint32_t c = fleet_context(m->context), first = p->m.byte[sizeof(*m) + 1];
	struct net_grant out = { .error = 0 };
	struct serving *s = NULL;
	struct event *e;

	for (uint32_t i = 0; i < NET_GRANTS_MAX && !s; i++)
		if (l->serving[i].serve.state == SERVE_FREE)
			s = &l->serving[i];
	if (!s || c == CONTEXTS) {
		l->gone = true;
		return;
	}
	s->context = c;
	s->tierd = h->tierd;
	s->in_pool = 0;
	s->failed = false;
	out.error = agreed_grants(&h->agree, &h->agreed[c], m->epoch, m->deleted,
				  fleet_clock(f, h));
	s->serve.blocks = out.error ? 0 : fleet_match(h, c, first / LENGTH, first % LENGTH);
	if (s->serve.blocks > m->count)
		s->serve.blocks = m->count;
	for (uint32_t i = 0; i < s->serve.blocks; i++) {
		s->key[i] = first + i;
		s->slot[i] = h->store.block[c][first + i].slot;
	}
	serve_grant(&s->serve, m, &fleet_shape, &out, fleet_clock(f, h));
	traffic_word(f, l, &out, sizeof(out), true);
	if (s->serve.state == SERVE_FREE)
		return;
	e = fleet_after(f, fleet_below(f, f->faults.work_us) * US, EV_SEND, h);
	e->link = l;
	e->call = (uint64_t)(s - l->serving);
}

/* A page goes wrong: a bit of it, or it is another page, with that one's CRC. */
static void damage(struct fleet *f, const struct serving *s, const struct shape_page *page,
		   uint32_t block, uint8_t *bytes, uint32_t *crc)
{
	uint8_t other[BLOCK_BYTES], key[NET_KEY_BYTES];
	uint32_t k = s->key[block], how = fleet_below(f, 4);
	uint64_t epoch = s->serve.epoch;
	struct shape_page as = *page;

	if (how == 0) {
		bytes[fleet_below(f, page->bytes)] ^= (uint8_t)(1u << fleet_below(f, 8));
		return;
	}
	k = how == 1 ? (k + 1 + fleet_below(f, KEYS - 1)) % KEYS : k;
	epoch -= how == 2;
	as.page = how == 3 ? (page->page + 1) % BLOCK_PAGES : page->page;
	fleet_bytes(s->context, k, epoch, other);
	memcpy(bytes, other + (how == 3 ? 24 : page->page == 0 ? 0 : page->page == 1 ? 24 : 40),
	       page->bytes);
	fleet_key(s->context, k, key);
	*crc = page_crc(key, epoch, &as, bytes);
}

/* The frame's pages from where they lie, or that one is not there any more. */
static int lay_pages(struct fleet *f, const struct host *h, const struct serving *s,
		     const struct cursor *at, struct packet *p)
{
	static const uint32_t offset[] = { 0, 24, 40 };
	uint8_t key[NET_KEY_BYTES];
	uint32_t block, crc;

	p->bytes = p->m.header.length;
	for (uint32_t i = 0; i < p->m.pages.count; i++) {
		const struct shape_page *page = shape_at(&fleet_shape, at->layer, at->at + i,
							 &block);
		const struct block *b = &h->store.block[s->context][s->key[block]];

		if (!b->there || b->slot != s->slot[block])
			return -ENODATA;
		memcpy(p->m.byte + p->bytes, b->bytes + offset[page->page], page->bytes);
		p->m.byte[p->bytes] ^= s->tierd != h->tierd;
		fleet_key(s->context, s->key[block], key);
		crc = page_crc(key, s->serve.epoch, page, p->m.byte + p->bytes);
		if (!f->quiet && fleet_chance(f, f->faults.damaged_ppm))
			damage(f, s, page, block, p->m.byte + p->bytes, &crc);
		memcpy(p->m.byte + sizeof(p->m.pages) + i * sizeof(crc), &crc, sizeof(crc));
		p->made[i] = b->made;
		p->bytes += page->bytes;
	}
	return 0;
}

static void send_later(struct fleet *f, struct host *h, struct link *l, uint32_t serving)
{
	struct event *next = fleet_after(f, fleet_below(f, f->faults.work_us) * US, EV_SEND, h);

	next->link = l;
	next->call = serving;
}

void traffic_send(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	struct serving *s = &e->link->serving[e->call];
	struct packet p = { .back = true };
	struct cursor at;

	if (e->link->gone || e->link->closed || s->serve.state != SERVE_PAGES)
		return;
	if (rdma_waits(e->link)) {
		send_later(f, h, e->link, (uint32_t)e->call);
		return;
	}
	serve_frame(&s->serve, &p.m.pages, &at);
	if (lay_pages(f, h, s, &at, &p)) {
		s->failed = true;
		traffic_last_word(f, h, e->link, s);
		return;
	}
	if (rdma_frame_begins(f, h, e->link, (uint32_t)e->call, &p) ||
	    pool_frame_begins(f, h, e->link, (uint32_t)e->call, &p))
		return;
	traffic_transmit(f, e->link, &p);
	traffic_sent(f, h, e->link, (uint32_t)e->call);
}

void traffic_last_word(struct fleet *f, struct host *h, struct link *l, struct serving *s)
{
	struct net_word word;
	bool intact;

	if (s->serve.state == SERVE_FREE || rdma_lies(l, s->serve.id) ||
	    (!s->failed && !serve_over(&s->serve)))
		return;
	intact = agreed_stands(&h->agree, &h->agreed[s->context], fleet_clock(f, h)) &&
		 h->store.epoch[s->context] == s->serve.epoch && s->tierd == h->tierd;
	if (s->failed)
		serve_end(&s->serve, -ENODATA, &word);
	else
		serve_whole(&s->serve, intact, &word, fleet_clock(f, h));
	traffic_word(f, l, &word, sizeof(word), true);
	rdma_grant_over(f, h, l);
}

void traffic_sent(struct fleet *f, struct host *h, struct link *l, uint32_t serving)
{
	if (l->serving[serving].serve.state == SERVE_PAGES)
		send_later(f, h, l, serving);
	else
		traffic_last_word(f, h, l, &l->serving[serving]);
}

static void copied(struct fleet *f, struct host *h, struct link *l, const struct net_word *m)
{
	for (uint32_t i = 0; i < NET_GRANTS_MAX; i++) {
		struct serving *s = &l->serving[i];

		if (s->serve.state == SERVE_FREE || s->serve.id != m->id)
			continue;
		l->gone = serve_copied(&s->serve, m) != 0;
		if (l->gone)
			return;
		serve_kept(&s->serve, pool_kept(&h->pool, s->in_pool, fleet_clock(f, h),
						h->agree.until_ns));
		traffic_last_word(f, h, l, s);
		return;
	}
}

static void to_holder(struct fleet *f, struct host *h, struct link *l, const struct packet *p)
{
	/* Who is no member yet is sent away. */
	static const struct net_word away = { .header = { NET_MAGIC, NET_VERSION, NET_END,
							  sizeof(away), 0 } };

	if (p->m.header.type == NET_HELLO) {
		if (l->to_life)
			return;
		l->to_life = h->life;
		l->pool = p->m.hello.pool;
		if (peer_of(h, l->from))
			say_hello(f, l, h, true);
		else
			traffic_word(f, l, &away, sizeof(away), true);
	} else if (!peer_of(h, l->from)) {
		return;
	} else if (p->m.header.type == NET_ASK) {
		grant(f, h, l, p);
	} else if (p->m.header.type == NET_KEEP || p->m.header.type == NET_PICK) {
		keep_asked(f, h, l, p);
	} else if (p->m.header.type == NET_COPIED) {
		copied(f, h, l, &p->m.word);
	} else if (p->m.header.type == NET_READ) {
		rdma_read(f, h, l, &p->m.word);
	} else if (!l->told) { /* what comes twice is of another connection */
		struct packet out = { .back = true };

		l->told = true;
		out.bytes = p->m.header.type == NET_OFFER ?
				    box_reply(f, h, l->from, p->m.byte, out.m.byte) :
				    homes_reply(f, h, l->from, p->m.byte, out.m.byte);
		traffic_transmit(f, l, &out);
	}
}

void traffic_message(struct fleet *f, struct event *e)
{
	struct host *h = &f->host[e->host];
	const struct packet *p = e->data;
	struct link *l = e->link;
	bool first = !p->back && !l->to_life;

	if (l->closed || l->gone || (p->back ? l->from_life : first ? h->life : l->to_life) !=
	    h->life)
		return;
	if (net_check(p->m.byte, p->bytes) != p->m.header.length) {
		FAIL(f, "a message of type %u is none", p->m.header.type);
		return;
	}
	if (p->back)
		to_requester(f, h, l, p);
	else
		to_holder(f, h, l, p);
}
