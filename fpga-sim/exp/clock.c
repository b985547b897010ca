/* SPDX-License-Identifier: Apache-2.0 */
/* The golden model with a clock (clock.h). */
#include "clock.h"

#include <errno.h>
#include <stdlib.h>

#include "chain.h"

/* Cycles of the RTL's pipeline, counted there. */
#define ANSWER_CYCLES 5u  /* from a decision to its answer, beside DRAM's latency */
#define COMMAND_CYCLES 5u /* from a miss to its command, beside DRAM's latency */
#define END_CYCLES 2u     /* from a completion to the end of the miss */
#define CLEAN_CYCLES 4u   /* between two looks */

struct request {
	struct exp_request asked;
	uint64_t at;
};

/* What is due, in order of time. */
struct due {
	uint64_t at;
	uint32_t what;
};

struct queue {
	struct due *due;
	uint32_t head, count, room;
};

struct clock {
	struct exp_setting set;
	struct device *d;
	struct readers readers;
	struct clock_host host; /* the readers, or somebody else */
	struct exp_drive drive;
	uint64_t now, random, random_hits;
	uint32_t slots, slots_free, ahead_most;
	struct request *request;
	uint32_t *next; /* of each request */
	uint32_t spare; /* requests that are free */
	struct chain waits[DEVICE_IDS_MAX], came, again;
	bool may_again;
	uint64_t clean_at, clean_since; /* the next look; over the limit, or the last that began */
	struct queue answers, fences, commands, ends;
};

static void put(struct queue *q, uint64_t at, uint32_t what)
{
	q->due[(q->head + q->count++) % q->room] = (struct due){ at, what };
}

static bool get(struct queue *q, uint64_t now, uint32_t *what)
{
	if (q->count == 0 || q->due[q->head].at > now)
		return false;
	*what = q->due[q->head].what;
	q->head = (q->head + 1) % q->room;
	q->count--;
	return true;
}

static uint64_t first_at(const struct queue *q)
{
	return q->count ? q->due[q->head].at : UINT64_MAX;
}

static int take_memory(struct clock *c)
{
	struct queue *all[] = { &c->answers, &c->fences, &c->commands, &c->ends };

	c->request = calloc(c->slots, sizeof(*c->request));
	c->next = calloc(c->slots, sizeof(*c->next));
	if (!c->request || !c->next)
		return -ENOMEM;
	for (uint32_t i = 0; i < 4; i++) {
		all[i]->room = c->slots + DEVICE_IDS_MAX;
		all[i]->due = calloc(all[i]->room, sizeof(*all[i]->due));
		if (!all[i]->due)
			return -ENOMEM;
	}
	return 0;
}

static bool readers_host_next(void *arg, uint64_t now, struct exp_request *q)
{
	return readers_next(arg, now, q);
}

static uint64_t readers_host_when(void *arg)
{
	return readers_when(arg);
}

static void readers_host_answer(void *arg, uint64_t now, uint16_t reader)
{
	(void)now;
	readers_answer(arg, reader);
}

int clock_open(struct clock **out, const struct exp_setting *set, uint32_t mshrs, uint32_t slots)
{
	struct device_shape shape = { .sets_log = set->sets_log, .tag_bits = set->tag_bits,
				      .line_log = set->line_log, .mshrs = mshrs,
				      .units = set->units, .unit_log = set->unit_log,
				      .cleans = set->cleans };
	struct clock *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->set = *set;
	c->slots = c->slots_free = slots;
	c->host = (struct clock_host){ readers_host_next, readers_host_when, readers_host_answer,
				       &c->readers };
	c->ahead_most = mshrs - mshrs / 4; /* the others are for what is wanted now */
	rc = take_memory(c);
	if (!rc)
		rc = device_open(&c->d, &shape, NULL);
	if (rc) {
		clock_close(c);
		return rc;
	}
	if (set->dirty_most)
		device_settings(c->d)->dirty_most = set->dirty_most;
	if (set->stage_most)
		device_settings(c->d)->stage_most = 0x01010101ull * set->stage_most;
	for (uint32_t i = 0; i < slots; i++)
		c->next[i] = i + 1 < slots ? i + 1 : CHAIN_NONE;
	for (uint32_t i = 0; i < DEVICE_IDS_MAX; i++)
		c->waits[i].head = CHAIN_NONE;
	c->came.head = c->again.head = CHAIN_NONE;
	*out = c;
	return 0;
}

void clock_close(struct clock *c)
{
	if (!c)
		return;
	device_close(c->d);
	free(c->request);
	free(c->next);
	free(c->answers.due);
	free(c->fences.due);
	free(c->commands.due);
	free(c->ends.due);
	free(c);
}

struct device *clock_device(struct clock *c)
{
	return c->d;
}

/* --- flash */

static void give(struct clock *c, uint32_t id)
{
	struct device_command command;

	if (!device_next(c->d, id, &command))
		return;
	device_give(c->d, id);
	put(&c->commands, drive_due(&c->drive, &c->set, c->now, command.lines), command.cid);
}

static void complete(struct clock *c, uint32_t cid)
{
	uint32_t bits = 1, ids = 0, id;

	ids = device_ids(c->d);
	while (1u << bits < ids)
		bits++;
	id = cid & ((1u << bits) - 1);
	if (device_answer(c->d, cid, false) == DEVICE_GOES_ON)
		give(c, id);
	else
		put(&c->ends, c->now + END_CYCLES, id);
}

static void flash(struct clock *c)
{
	uint32_t what;

	while (get(&c->fences, c->now, &what))
		give(c, what);
	while (get(&c->commands, c->now, &what))
		complete(c, what);
}

/* --- decisions */

static void decide(struct clock *c, uint32_t one, bool first)
{
	const struct exp_request *q = &c->request[one].asked;
	struct device_request r = { .address = q->flit * DEVICE_FLIT, .write = q->write };
	struct device_verdict v;

	device_request(c->d, &r, &v);
	c->now += q->flits - 1;
	if (first && q->reader == READER_RANDOM) {
		c->random++;
		c->random_hits += v.what == DEVICE_HIT;
	}
	if (v.what == DEVICE_RETRY) {
		chain_append(c->next, &c->again, one);
		c->may_again = false;
	} else if (v.what == DEVICE_MISS || v.what == DEVICE_JOIN) {
		chain_append(c->next, &c->waits[v.id], one);
		if (v.what == DEVICE_MISS)
			put(&c->fences, c->now + c->set.dram_latency + COMMAND_CYCLES, v.id);
	} else {
		put(&c->answers, c->now + c->set.dram_latency + ANSWER_CYCLES, one);
	}
}

static void end(struct clock *c, uint32_t id)
{
	struct device_verdict v;
	uint32_t one;

	device_fill(c->d, id, &v);
	c->may_again = true;
	while ((one = chain_take(c->next, &c->waits[id])) != CHAIN_NONE)
		chain_append(c->next, &c->came, one);
}

static void for_window(struct clock *c, uint32_t window, int what)
{
	struct device_command command;
	struct device_verdict v;

	if (what == DEVICE_FREED) {
		device_free(c->d, window, &v);
		return;
	}
	device_probe(c->d, window, &v);
	if (device_next(c->d, v.id, &command)) /* that was its last line */
		put(&c->fences, c->now + c->set.dram_latency + COMMAND_CYCLES, v.id);
}

/* The next set is looked at, if it is time. */
static bool clean_one(struct clock *c, bool waited)
{
	struct device_verdict v;

	if (!c->set.dirty_most)
		return false;
	if (!device_over(c->d))
		c->clean_since = c->now;
	if (!device_can_clean(c->d) || c->now < c->clean_at ||
	    (waited ? c->now - c->clean_since < c->set.clean_wait : device_reads(c->d)))
		return false;
	device_clean(c->d, waited, &v);
	c->clean_at = c->now + CLEAN_CYCLES;
	if (v.what == DEVICE_CLEANS) {
		c->clean_since = c->now;
		put(&c->fences, c->now + c->set.dram_latency + COMMAND_CYCLES, v.id);
	}
	return true;
}

/* One decision, if there is any: as docs/fpga.md says. */
static bool decide_one(struct clock *c)
{
	uint32_t what, window;
	int choice;

	if (get(&c->ends, c->now, &what)) {
		end(c, what);
		return true;
	}
	what = chain_take(c->next, &c->came);
	if (what != CHAIN_NONE) {
		decide(c, what, false);
		return true;
	}
	choice = c->set.windows ? device_choose(c->d, &window, c->now) : -ENOENT;
	if (choice >= 0) {
		for_window(c, window, choice);
		return true;
	}
	if (c->again.head != CHAIN_NONE && c->may_again) {
		decide(c, chain_take(c->next, &c->again), false);
		return true;
	}
	if (clean_one(c, true))
		return true;
	if (c->again.head != CHAIN_NONE || c->slots_free == 0 ||
	    !c->host.next(c->host.arg, c->now, &c->request[c->spare].asked))
		return clean_one(c, false);
	what = c->spare;
	c->spare = c->next[what];
	c->slots_free--;
	c->request[what].at = c->now;
	decide(c, what, true);
	return true;
}

static bool answer(struct clock *c)
{
	uint32_t one;

	if (!get(&c->answers, c->now, &one))
		return false;
	if (c->request[one].asked.reader == READER_RANDOM)
		readers_delay(&c->readers, c->now - c->request[one].at);
	c->host.answer(c->host.arg, c->now, c->request[one].asked.reader);
	c->next[one] = c->spare;
	c->spare = one;
	c->slots_free++;
	return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t next_cycle(const struct clock *c, uint64_t poll)
{
	uint64_t at = least(least(first_at(&c->answers), first_at(&c->fences)),
			    least(first_at(&c->commands), first_at(&c->ends)));

	if (c->again.head == CHAIN_NONE && c->slots_free > 0)
		at = least(at, c->host.when(c->host.arg));
	if (c->set.windows)
		at = least(at, poll);
	if (c->set.dirty_most && device_can_clean(c->d))
		at = least(at, most(c->clean_at, c->clean_since + c->set.clean_wait));
	return at > c->now ? at : c->now + 1;
}

static void look_at_window(struct clock *c)
{
	readers_allow(&c->readers, (uint64_t)device_mark(c->d, 0) << c->set.unit_log);
	device_release(c->d, 0, (uint32_t)c->readers.unit_done);
}

static struct clock_outcome outcome(const struct clock *c, uint64_t begin)
{
	return (struct clock_outcome){ .cycles = c->now - begin, .flits = c->readers.done,
				       .random = c->random, .random_hits = c->random_hits,
				       .p50 = readers_within(&c->readers, 500),
				       .p99 = readers_within(&c->readers, 990) };
}

uint64_t clock_step(struct clock *c, uint64_t poll, uint64_t until)
{
	bool answered;

	flash(c);
	answered = answer(c);
	if (decide_one(c) || answered) /* the host may have something to say to that */
		c->now++;
	else
		c->now = least(next_cycle(c, poll), until > c->now ? until : c->now + 1);
	return c->now;
}

void clock_serve(struct clock *c, const struct clock_host *host)
{
	c->host = *host;
}

struct clock_outcome clock_demand(struct clock *c, uint64_t cycles)
{
	uint64_t begin = c->now, end = begin + cycles;

	c->random = c->random_hits = 0;
	readers_begin(&c->readers, &c->set, 0, 1); /* a line that it never may read */
	c->readers.allowed = 0;
	while (c->now < end)
		clock_step(c, UINT64_MAX, end);
	return outcome(c, begin);
}

struct clock_outcome clock_layer(struct clock *c, uint64_t from, uint64_t to,
				 const uint64_t *ahead, uint32_t count, uint32_t least_cycles)
{
	uint64_t begin = c->now, end = UINT64_MAX;

	readers_begin(&c->readers, &c->set, from, to);
	c->readers.link_at = (double)c->now;
	readers_ahead(&c->readers, ahead, count, c->ahead_most);
	while (c->now < end) {
		clock_step(c, UINT64_MAX, end);
		if (end == UINT64_MAX && readers_end(&c->readers))
			end = c->now + least_cycles;
	}
	return outcome(c, begin);
}

struct clock_outcome clock_run(struct clock *c, uint64_t from, uint64_t to)
{
	uint64_t begin = c->now, poll = c->now;
	struct device_prefetch p = {
		.address = from * DEVICE_FLIT << c->set.line_log, .deadline = UINT64_MAX,
		.lead = UINT64_MAX,
		.length = (uint32_t)((to - from) >> c->set.unit_log), .limit = c->set.units,
		.class = c->set.class,
	};

	c->random = c->random_hits = 0;
	readers_begin(&c->readers, &c->set, from, to);
	c->readers.link_at = (double)c->now;
	if (c->set.windows)
		device_prefetch(c->d, 0, &p);
	while (!readers_end(&c->readers) || device_state(c->d, 0, 0) & DEVICE_OPEN) {
		if (c->set.windows && c->now >= poll) {
			look_at_window(c);
			poll = c->now + c->set.poll_cycles;
		}
		clock_step(c, poll, UINT64_MAX);
	}
	return outcome(c, begin);
}

/* --- without a clock */

bool clock_touch(struct clock *c, uint64_t line, bool write)
{
	struct device_request r = { .address = line * DEVICE_FLIT << c->set.line_log,
				    .write = write };
	struct device_command command;
	struct device_verdict v, ended;

	device_request(c->d, &r, &v);
	if (v.what != DEVICE_MISS)
		return true;
	while (device_next(c->d, v.id, &command)) {
		device_give(c->d, v.id);
		device_answer(c->d, command.cid, false);
	}
	device_fill(c->d, v.id, &ended);
	device_request(c->d, &r, &v);
	return false;
}

void clock_skip(struct clock *c, uint64_t from, uint64_t to)
{
	uint64_t beside = (c->set.random << c->set.line_log) / (1000 - c->set.random);

	for (uint64_t i = from; i < to; i++) {
		clock_touch(c, readers_place(&c->set, i), readers_dirty(&c->set, i));
		clock_random(c, beside, 0);
	}
}

uint64_t clock_random(struct clock *c, uint64_t times, uint64_t count)
{
	uint64_t hits = 0;

	c->readers.set = &c->set;
	for (uint64_t i = 0; i < times; i++)
		hits += clock_touch(c, readers_random(&c->readers), false) && i + count >= times;
	return hits;
}
