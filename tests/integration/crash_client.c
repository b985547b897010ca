/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker does: puts of its own keys, reads of everybody's, deletes, pins, epochs, in random
 * order, over any number of the daemon's deaths. It connects once: that the library re-attaches by
 * itself is part of what is tested. Errors that the API promises are counted, all others fail.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tests/integration/crash.h"

#define STAGING_BYTES (2ull << 20)
#define LATE_NS (500 * NS_PER_MS)
#define AWAY_US 3000 /* a nap while there is no daemon */
#define ASK_AWAY 64u /* one look in so many that finds none is followed by asking all the same */

enum op { OP_IDLE, OP_CHECK, OP_PUT, OP_DURABLE, OP_ABORT, OP_READ, OP_FETCH, OP_DELETE, OP_PIN,
	  OP_EPOCH, OP_DRAIN, OP_COUNT };

const char *crash_op_name(uint64_t op)
{
	static const char *const names[OP_COUNT] = { "idle", "check", "put", "durable put",
						     "abort", "read", "fetch", "delete", "pin",
						     "epoch", "drain" };

	return op < OP_COUNT ? names[op] : "?";
}

/* ---- accounts ------------------------------------------------------------------------------ */

static void begin(struct crash_client *c, enum op op)
{
	atomic_store_relaxed_u64(&c->own->op, op);
	atomic_store_release_u64(&c->own->since_ns, time_now_ns());
}

static void end(struct crash_client *c)
{
	uint64_t took = time_now_ns() - c->own->since_ns;

	if (took > c->own->longest_ns) {
		c->own->longest_ns = took;
		c->own->longest_op = c->own->op;
	}
	atomic_store_release_u64(&c->own->since_ns, 0);
}

/* Count an answer. True: it succeeded; false: it was refused as promised. */
static bool judge(struct crash_client *c, int64_t rc)
{
	if (rc >= 0) {
		atomic_store_relaxed_u64(&c->own->done, c->own->done + 1);
		return true;
	}
	if (rc != -ENOTCONN && rc != -EAGAIN && rc != -ENOSPC && rc != -ETIMEDOUT &&
	    rc != -ENOBUFS)
		crash_fail("worker %u: %s answered %lld (%s)", c->number,
			   crash_op_name(c->own->op), (long long)rc, tier_strerror((int)rc));
	if (rc == -ENOTCONN)
		c->own->refused_away++;
	else
		c->own->refused++;
	return false;
}

void crash_connect(struct crash_client *c, struct crash_board *b, uint32_t number, uint64_t seed)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = b->socket, .name = "crash",
					  .staging_bytes = STAGING_BYTES, .readers = 4 };
	char name[32];

	*c = (struct crash_client){ .board = b, .number = number, .random = seed | 1 };
	if (tier_geometry_preset(&c->g, "tiny") || tier_connect(&c->t, &o) ||
	    tier_reader_open(c->t, &c->r))
		crash_fail("connect");
	for (uint32_t i = 0; i < CRASH_WORKERS; i++) {
		snprintf(name, sizeof(name), "worker-%u", i);
		if (tier_context_create(c->t, name, c->g, NULL, &c->c[i]))
			crash_fail("create %s", name);
	}
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The version that was read must fit what the writer said before and after (crash.h). */
static void judge_version(struct crash_client *c, uint32_t worker, uint32_t key, uint64_t before,
			  uint64_t version)
{
	uint64_t after = crash_look(c->board, worker, key);
	bool fits = version >= crash_version_of(before) && version <= crash_version_of(after);

	if (fits && !(before == after && crash_state_of(after) == CRASH_NEVER))
		return;
	crash_fail("worker %u key %u: version %llu was read; its cell was %016llx, is %016llx",
		   worker, key, (unsigned long long)version, (unsigned long long)before,
		   (unsigned long long)after);
}

/*
 * While the daemon is away reads go on over the last state: what they see is judged only if no
 * other boot began meanwhile and the library stands by its attachment.
 */
static bool same_boot(struct crash_client *c, uint64_t boots)
{
	if (atomic_load_acquire_u64(&c->board->boots) == boots && tier_check(c->t) == 0)
		return atomic_load_acquire_u64(&c->board->boots) == boots;
	if (c->own)
		c->own->stale++;
	return false;
}

static uint32_t take_pages(struct crash_client *c, uint32_t worker, tier_block block,
			   struct tier_lease *lease)
{
	struct tier_page page[CRASH_PAGES];
	int n;

	for (uint32_t i = 0; i < CRASH_PAGES; i++)
		page[i] = (struct tier_page){ block, i };
	if (crash_below(&c->random, 3) == 0)
		n = tier_lease_pages(c->r, c->c[worker], page, CRASH_PAGES, 0, lease);
	else
		n = tier_read_pages(c->r, c->c[worker], page, CRASH_PAGES,
				    time_now_ns() + LATE_NS, lease);
	if (n < 0 && n != -ENOTCONN)
		crash_fail("read: %d", n);
	return n < 0 ? 0 : (uint32_t)n;
}

/* Every page of the block, twice when time was given to change it under the lease. */
static void verify(struct crash_client *c, uint32_t worker, uint32_t key,
		   struct tier_lease *lease, uint64_t *version)
{
	bool hold = crash_below(&c->random, 8) == 0;
	bool any = false;

	for (uint32_t pass = 0; pass < 1u + hold; pass++) {
		if (pass)
			usleep(crash_below(&c->random, 3000));
		for (uint32_t i = 0; i < CRASH_PAGES; i++) {
			uint64_t v;

			if (!lease[i].data)
				continue;
			v = crash_verify(lease[i].data, worker, key, i);
			if (any && v != *version)
				crash_fail("worker %u key %u: versions %llu and %llu in a block",
					   worker, key, (unsigned long long)v,
					   (unsigned long long)*version);
			*version = v;
			any = true;
		}
	}
}

int crash_read(struct crash_client *c, uint32_t worker, uint32_t key)
{
	uint64_t boots = atomic_load_acquire_u64(&c->board->boots), version = 0, before;
	struct tier_lease lease[CRASH_PAGES] = { { 0 } };
	tier_key name = crash_key(worker, key);
	struct tier_found found;
	uint32_t n = 0;

	tier_check(c->t);
	before = crash_look(c->board, worker, key);
	if (tier_match(c->c[worker], &name, 1, &found) == 1)
		n = take_pages(c, worker, found.block, lease);
	if (n) {
		verify(c, worker, key, lease, &version);
		if (same_boot(c, boots))
			judge_version(c, worker, key, before, version);
		if (c->own)
			c->own->pages += n;
	}
	for (uint32_t i = 0; i < CRASH_PAGES; i++)
		tier_release(c->r, &lease[i]);
	return n == CRASH_PAGES;
}

static void read_some(struct crash_client *c)
{
	begin(c, OP_READ);
	for (uint32_t i = 0; i < 8; i++)
		crash_read(c, crash_below(&c->random, CRASH_WORKERS),
			   crash_below(&c->random, CRASH_KEYS));
	end(c);
}

/*
 * With no daemon there all that is asked is refused. One that finds it so asks again at once now
 * and then; mostly it reads what it still has, until there is a daemon.
 */
static void outlast(struct crash_client *c)
{
	bool away;

	do {
		begin(c, OP_CHECK);
		away = tier_check(c->t) == -ENOTCONN;
		end(c);
		if (!away || crash_below(&c->random, ASK_AWAY) == 0)
			return;
		read_some(c);
		usleep(AWAY_US);
	} while (!atomic_load_acquire_u64(&c->board->stop));
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Where a run may begin and how long it is: keys whose delete is in the air are left alone. */
static uint32_t choose_run(struct crash_client *c, uint32_t *first)
{
	uint32_t most = 1 + crash_below(&c->random, CRASH_RUN), n = 0;

	*first = crash_below(&c->random, CRASH_KEYS - CRASH_RUN);
	while (n < most && crash_state_of(crash_look(c->board, c->number, *first + n)) !=
				   CRASH_GOING)
		n++;
	return n;
}

static void fill_run(struct crash_client *c, uint32_t first, uint32_t n, uint8_t *data,
		     tier_key *keys)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t cell = crash_look(c->board, c->number, first + i);
		uint64_t version = crash_version_of(cell);

		keys[i] = crash_key(c->number, first + i);
		if (crash_state_of(cell) == CRASH_NEVER)
			crash_set(c->own, first + i, CRASH_MAYBE, version);
		for (uint32_t page = 0; page < CRASH_PAGES; page++)
			crash_fill(data + (i * CRASH_PAGES + page) * CRASH_PAGE_BYTES, c->number,
				   first + i, page, version);
	}
}

static int raise_epoch(struct crash_client *c);

static void put(struct crash_client *c, bool durable)
{
	static uint8_t data[CRASH_RUN * CRASH_BLOCK_BYTES];
	struct tier_put_options o = { .size = sizeof(o), .flags = durable ? TIER_PUT_DURABLE : 0 };
	tier_key keys[CRASH_RUN];
	uint32_t first, n = choose_run(c, &first);
	int64_t rc;

	if (!n)
		return;
	fill_run(c, first, n, data, keys);
	begin(c, durable ? OP_DURABLE : OP_PUT);
	rc = tier_put_copy(c->c[c->number], keys, n, data, &o);
	end(c);
	if (judge(c, rc) && durable && rc == (int64_t)n) {
		for (uint32_t i = 0; i < n; i++)
			crash_set(c->own, first + i, CRASH_DURABLE,
				  crash_version_of(crash_look(c->board, c->number, first + i)));
		c->own->durable_acks += n;
	}
	if (rc == -ENOSPC)
		raise_epoch(c); /* the log is full of what was put over and over */
}

/* Half a put that is given up, or left for the daemon to drop at its deadline. */
static void abandon(struct crash_client *c)
{
	struct tier_put_options o = { .size = sizeof(o),
				      .deadline_ns = time_now_ns() + 200 * NS_PER_MS };
	tier_key key = crash_key(CRASH_SCRAP, crash_below(&c->random, 64));
	tier_put *p;
	void *at;
	int rc;

	begin(c, OP_ABORT);
	rc = tier_put_begin(c->c[c->number], &key, 1, &o, &p);
	if (judge(c, rc)) {
		at = tier_put_data(p, 0, 0, 0, 0);
		if (at)
			crash_fill(at, CRASH_SCRAP, 0, 0, 0);
		tier_put_abort(p);
	}
	end(c);
}

/* Deletes that a crash left open are asked again until they are answered. */
static void delete_some(struct crash_client *c)
{
	uint32_t first = crash_below(&c->random, CRASH_KEYS), n = 0, at[CRASH_RUN];
	tier_key keys[CRASH_RUN];
	int64_t rc;

	for (uint32_t i = first; i < CRASH_KEYS && n < 4; i++) {
		uint64_t cell = crash_look(c->board, c->number, i);

		if (crash_state_of(cell) == CRASH_NEVER)
			continue;
		crash_set(c->own, i, CRASH_GOING, crash_version_of(cell));
		keys[n] = crash_key(c->number, i);
		at[n++] = i;
	}
	if (!n)
		return;
	begin(c, OP_DELETE);
	rc = tier_delete(c->c[c->number], keys, n);
	end(c);
	if (!judge(c, rc))
		return;
	for (uint32_t i = 0; i < n; i++)
		crash_set(c->own, at[i], CRASH_NEVER,
			  crash_version_of(crash_look(c->board, c->number, at[i])) + 1);
	c->own->deletes += n;
}

static int raise_epoch(struct crash_client *c)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "worker-%u", c->number);
	for (uint32_t i = 0; i < CRASH_KEYS; i++) {
		uint64_t cell = crash_look(c->board, c->number, i);

		if (crash_state_of(cell) != CRASH_NEVER)
			crash_set(c->own, i, CRASH_GOING, crash_version_of(cell));
	}
	for (;;) {
		begin(c, OP_EPOCH);
		rc = tier_context_raise_epoch(c->t, name, NULL);
		end(c);
		if (judge(c, rc) || atomic_load_acquire_u64(&c->board->stop))
			break;
		outlast(c);
	}
	if (rc)
		return rc;
	for (uint32_t i = 0; i < CRASH_KEYS; i++) {
		uint64_t cell = crash_look(c->board, c->number, i);

		if (crash_state_of(cell) == CRASH_GOING)
			crash_set(c->own, i, CRASH_NEVER, crash_version_of(cell) + 1);
	}
	c->own->epochs++;
	return 0;
}

/* ---- asking -------------------------------------------------------------------------------- */

static void fetch_some(struct crash_client *c, bool pin)
{
	uint32_t worker = crash_below(&c->random, CRASH_WORKERS);
	tier_key key = crash_key(worker, crash_below(&c->random, CRASH_KEYS));
	struct tier_ask ask = { .size = sizeof(ask), .tier = crash_below(&c->random, 2),
				.deadline_ns = time_now_ns() + LATE_NS };
	struct tier_found found;
	uint64_t id = 0;
	int64_t rc;

	if (tier_match(c->c[worker], &key, 1, &found) != 1)
		return;
	begin(c, pin ? OP_PIN : OP_FETCH);
	if (pin)
		rc = tier_pin(c->c[worker], &found.block, 1, TIER_CXL,
			      time_now_ns() + LATE_NS, &id);
	else
		rc = tier_fetch(c->c[worker], &found.block, 1, &ask);
	/* It may have gone, or the budget is spent: both are answers. */
	if (rc != -ESTALE && rc != -EDQUOT && judge(c, rc) && pin) {
		usleep(crash_below(&c->random, 1000));
		rc = tier_unpin(c->c[worker], id);
		if (rc != -ENOENT)
			judge(c, rc);
	}
	end(c);
}

static void drain(struct crash_client *c)
{
	begin(c, OP_DRAIN);
	judge(c, tier_drain(c->t));
	end(c);
}

static void one(struct crash_client *c)
{
	uint32_t dice = crash_below(&c->random, 1000);
	struct tier_completion done[16];

	if (dice < 150)
		put(c, true);
	else if (dice < 320)
		put(c, false);
	else if (dice < 340)
		abandon(c);
	else if (dice < 380)
		delete_some(c);
	else if (dice < 480)
		fetch_some(c, false);
	else if (dice < 540)
		fetch_some(c, true);
	else if (dice < 542)
		raise_epoch(c);
	else if (dice < 550)
		drain(c);
	else
		read_some(c);
	tier_poll(c->t, done, 16);
	outlast(c);
}

void crash_work(struct crash_board *b, uint32_t number, uint64_t seed)
{
	struct tier_counters n = { .size = sizeof(n) };
	struct crash_client c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crash_connect(&c, b, number, seed);
	c.own = &b->worker[number];
	while (!atomic_load_acquire_u64(&b->stop)) {
		one(&c);
		if (tier_counters(c.t, &n) == 0)
			c.own->reattached = n.reattached;
	}
	tier_close(c.t);
	tier_geometry_free(c.g);
	_exit(0);
}
