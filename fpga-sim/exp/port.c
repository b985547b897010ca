/* SPDX-License-Identifier: Apache-2.0 */
/* The device behind the service's core (port.h). */
#include "port.h"

#include <errno.h>
#include <stdlib.h>

#include "chain.h"

#define REQUESTS 512u /* lines under way: as many as the readers of the other experiments */
#define RUN_UNITS 256u /* of a window, at most: 32 MiB */

struct op {
	struct core_io *io;
	uint64_t at, end;  /* flits: the next to ask for, behind the last */
	uint64_t left;     /* without an answer */
	uint64_t since;    /* cycle */
};

struct line {
	uint16_t op, flits;
	uint8_t window; /* DEVICE_WINDOWS: none */
	bool answered;
	uint64_t end;   /* flit behind it */
};

struct run {
	struct chain ops;
	bool open;
	uint64_t first, allowed, done; /* flits: where it begins, may be read to, was read to */
	uint64_t end;
	uint32_t units;
	uint16_t ring[REQUESTS];
	uint32_t head, count;
};

struct port {
	struct clock *c;
	struct exp_setting set;
	double cycles_a_ns, link_at;
	uint64_t now, poll;
	struct op op[CORE_IO_MAX];
	uint32_t next[CORE_IO_MAX]; /* of each op */
	struct line line[REQUESTS];
	uint16_t free_op[CORE_IO_MAX], free_line[REQUESTS];
	uint32_t ops_free, lines_free;
	struct chain reads, writes, done; /* reads: without a window */
	struct run run[DEVICE_WINDOWS];
	uint32_t turn; /* whose line goes next */
	uint32_t open[2];
	struct port_traffic traffic[2];
};

/* --- the host of the device: lines of what may be asked for */

/* A list leaves an operation out once all of it was asked for. */
static struct chain *list_of(struct port *p, uint32_t source)
{
	if (source < DEVICE_WINDOWS)
		return &p->run[source].ops;
	return source == DEVICE_WINDOWS || p->set.windows ? &p->writes : &p->reads;
}

static uint32_t next_of(struct port *p, uint32_t source)
{
	uint32_t i = list_of(p, source)->head;

	if (i == CHAIN_NONE || source >= DEVICE_WINDOWS)
		return i;
	return p->op[i].at < p->run[source].allowed ? i : CHAIN_NONE;
}

/* By turns: windows, writes, reads through the cache. */
static uint32_t pick(struct port *p, uint32_t *source)
{
	for (uint32_t k = 0; k < DEVICE_WINDOWS + 2; k++) {
		uint32_t i;

		*source = (p->turn + k) % (DEVICE_WINDOWS + 2);
		i = next_of(p, *source);
		if (i != CHAIN_NONE)
			return i;
	}
	return CHAIN_NONE;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool port_next(void *arg, uint64_t now, struct exp_request *q)
{
	struct port *p = arg;
	uint32_t source;
	uint32_t i;
	uint16_t k;
	struct op *op;
	uint64_t end;

	if ((double)now < p->link_at || p->lines_free == 0)
		return false;
	i = pick(p, &source);
	if (i == CHAIN_NONE)
		return false;
	p->turn = source + 1;
	op = &p->op[i];
	end = least(op->end, ((op->at >> p->set.line_log) + 1) << p->set.line_log);
	k = p->free_line[--p->lines_free];
	p->line[k] = (struct line){ .op = i, .flits = (uint16_t)(end - op->at), .end = end,
				    .window = (uint8_t)least(source, DEVICE_WINDOWS) };
	*q = (struct exp_request){ .flit = op->at, .write = op->io->write, .reader = k,
				   .flits = p->line[k].flits };
	if (source < DEVICE_WINDOWS) {
		struct run *r = &p->run[source];

		r->ring[(r->head + r->count++) % REQUESTS] = k;
	}
	op->at = end;
	if (op->at == op->end)
		chain_take(p->next, list_of(p, source));
	p->link_at = ((double)now - p->link_at > 1 ? (double)now : p->link_at) +
		     p->set.link_cycles * q->flits;
	return true;
}

static uint64_t port_when(void *arg)
{
	struct port *p = arg;
	uint32_t source;

	if (p->lines_free == 0 || pick(p, &source) == CHAIN_NONE)
		return UINT64_MAX;
	return (uint64_t)p->link_at + ((double)(uint64_t)p->link_at < p->link_at);
}

static void end_op(struct port *p, uint16_t i, uint64_t now)
{
	struct port_traffic *t = &p->traffic[p->op[i].io->write];

	t->count++;
	t->bytes += p->op[i].io->bytes;
	t->waited += now - p->op[i].since;
	p->open[p->op[i].io->write]--;
	chain_append(p->next, &p->done, i);
}

static void port_answer(void *arg, uint64_t now, uint16_t k)
{
	struct port *p = arg;
	struct line *l = &p->line[k];
	struct run *r;

	p->op[l->op].left -= l->flits;
	if (p->op[l->op].left == 0)
		end_op(p, l->op, now);
	l->answered = true;
	if (l->window == DEVICE_WINDOWS) {
		p->free_line[p->lines_free++] = k;
		return;
	}
	r = &p->run[l->window];
	while (r->count && p->line[r->ring[r->head]].answered) {
		r->done = p->line[r->ring[r->head]].end;
		p->free_line[p->lines_free++] = r->ring[r->head];
		r->head = (r->head + 1) % REQUESTS;
		r->count--;
	}
}

/* --- windows */

static void open_run(struct port *p, uint32_t w)
{
	struct run *r = &p->run[w];
	uint32_t log = p->set.unit_log + p->set.line_log;
	struct device_prefetch ask = { .deadline = UINT64_MAX, .lead = UINT64_MAX,
				       .limit = p->set.units };
	uint32_t i = chain_take(p->next, &p->reads);
	uint32_t klass = p->op[i].io->klass;

	r->ops.head = CHAIN_NONE;
	r->first = p->op[i].at >> log << log;
	r->end = p->op[i].end;
	chain_append(p->next, &r->ops, i);
	while (p->reads.head != CHAIN_NONE && p->op[p->reads.head].at == r->end &&
	       (p->op[p->reads.head].end - r->first) >> log < RUN_UNITS) {
		i = chain_take(p->next, &p->reads);
		r->end = p->op[i].end;
		chain_append(p->next, &r->ops, i);
	}
	r->units = (uint32_t)((r->end - r->first + (1ull << log) - 1) >> log);
	r->allowed = r->done = r->first;
	r->open = true;
	ask.address = r->first * DEVICE_FLIT;
	ask.length = r->units;
	ask.class = klass < DEVICE_CLASSES ? klass : DEVICE_CLASSES - 1;
	device_prefetch(clock_device(p->c), w, &ask);
}

/* The host's look at the watermarks, and what it gives back. */
static void look(struct port *p)
{
	struct device *d = clock_device(p->c);
	uint32_t log = p->set.unit_log + p->set.line_log;

	for (uint32_t w = 0; w < DEVICE_WINDOWS; w++) {
		struct run *r = &p->run[w];

		if (r->open) {
			r->allowed = r->first + ((uint64_t)device_mark(d, w) << log);
			device_release(d, w, r->done == r->end ? r->units :
					     (uint32_t)((r->done - r->first) >> log));
			r->open = device_state(d, w, p->now) & DEVICE_OPEN;
		}
		if (!r->open && p->reads.head != CHAIN_NONE)
			open_run(p, w);
	}
}

static bool any_run(const struct port *p)
{
	for (uint32_t w = 0; w < DEVICE_WINDOWS; w++) {
		if (p->run[w].open)
			return true;
	}
	return p->reads.head != CHAIN_NONE;
}

/* --- the drive of the host's model */

static void port_submit(void *arg, uint64_t now_ns, struct core_io *io)
{
	struct port *p = arg;
	uint64_t now = (uint64_t)((double)now_ns * p->cycles_a_ns);
	uint16_t i = p->free_op[--p->ops_free]; /* the core has no more than CORE_IO_MAX */

	while (p->now < now)
		p->now = clock_step(p->c, UINT64_MAX, now);
	p->op[i] = (struct op){ .io = io, .at = io->offset / DEVICE_FLIT,
				.end = (io->offset + io->bytes) / DEVICE_FLIT, .since = now };
	p->op[i].left = p->op[i].end - p->op[i].at;
	p->open[io->write]++;
	chain_append(p->next, io->write ? &p->writes : &p->reads, i);
}

static struct core_io *port_run(void *arg, uint64_t until_ns, uint64_t *at_ns)
{
	struct port *p = arg;
	bool idle = p->open[0] + p->open[1] == 0;
	uint64_t until = until_ns == UINT64_MAX ? UINT64_MAX :
						  (uint64_t)((double)until_ns * p->cycles_a_ns);
	struct core_io *io;
	uint32_t i;

	if (idle && until == UINT64_MAX && p->done.head == CHAIN_NONE)
		return NULL;
	while (p->done.head == CHAIN_NONE && p->now < until) {
		bool runs = p->set.windows && any_run(p);
		uint64_t was = p->now;

		if (runs && p->now >= p->poll) {
			look(p);
			p->poll = p->now + p->set.poll_cycles;
		}
		p->now = clock_step(p->c, runs ? p->poll : UINT64_MAX, until);
		for (uint32_t k = 0; k < 2; k++)
			p->traffic[k].busy += p->open[k] ? p->now - was : 0;
	}
	i = chain_take(p->next, &p->done);
	if (i == CHAIN_NONE)
		return NULL;
	io = p->op[i].io;
	p->free_op[p->ops_free++] = i;
	*at_ns = (uint64_t)((double)p->now / p->cycles_a_ns);
	return io;
}

struct model_drive port_drive(struct port *p)
{
	return (struct model_drive){ port_submit, port_run, p };
}

const struct port_traffic *port_traffic(const struct port *p, bool write)
{
	return &p->traffic[write];
}

struct device *port_device(struct port *p)
{
	return clock_device(p->c);
}

int port_open(struct port **out, const struct point *point, const struct point_rates *r,
	      uint32_t sets_log)
{
	struct port *p = calloc(1, sizeof(*p));
	struct clock_host host = { port_next, port_when, port_answer, p };
	int rc;

	if (!p)
		return -ENOMEM;
	p->set = point_setting(point, r, sets_log);
	p->cycles_a_ns = r->clock_mhz / 1e3;
	p->reads.head = p->writes.head = p->done.head = CHAIN_NONE;
	for (uint32_t w = 0; w < DEVICE_WINDOWS; w++)
		p->run[w].ops.head = CHAIN_NONE;
	for (uint32_t i = 0; i < CORE_IO_MAX; i++)
		p->free_op[p->ops_free++] = (uint16_t)i;
	for (uint32_t i = 0; i < REQUESTS; i++)
		p->free_line[p->lines_free++] = (uint16_t)i;
	rc = clock_open(&p->c, &p->set, point->mshrs, REQUESTS);
	if (rc) {
		free(p);
		return rc;
	}
	clock_serve(p->c, &host);
	*out = p;
	return 0;
}

void port_close(struct port *p)
{
	clock_close(p->c);
	free(p);
}
