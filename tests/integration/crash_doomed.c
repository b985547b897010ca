/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that end badly, or whose contexts do: a client that holds all that can be held when it
 * is killed, and one that makes contexts only to remove them under their readers.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tests/integration/crash.h"

#define CHURN_KEYS 96u
#define CHURN_HELD 24u /* leases that are held while others come */

/* ---- doomed -------------------------------------------------------------------------------- */

/* Leases and pins of whatever is there. */
static void hold(struct crash_client *c)
{
	struct tier_lease lease;
	uint64_t pin;

	for (uint32_t i = 0; i < 64; i++) {
		uint32_t worker = crash_below(&c->random, CRASH_WORKERS);
		tier_key key = crash_key(worker, crash_below(&c->random, CRASH_KEYS));
		struct tier_found found;

		if (tier_match(c->c[worker], &key, 1, &found) != 1)
			continue;
		tier_lease_page(c->r, c->c[worker], found.block, i % CRASH_PAGES, 0, &lease);
		if (i % 8 == 0)
			tier_pin(c->c[worker], &found.block, 1, TIER_CXL, 0, &pin);
	}
}

/* Puts that are half written, and one that is handed over half written. */
static void put_half(struct crash_client *c)
{
	tier_key key[3];
	tier_put *p;

	for (uint32_t i = 0; i < 3; i++) {
		key[i] = crash_key(CRASH_SCRAP, 100 + crash_below(&c->random, 50));
		if (tier_put_begin(c->c[0], &key[i], 1, NULL, &p))
			continue;
		memset(tier_put_data(p, 0, 0, 0, 0), 0x5a, 100);
		if (i == 2 && tier_put_commit(p, 1) == -EAGAIN)
			tier_put_abort(p);
	}
}

/* As many fetches as the ring takes, and nobody who reads their ends. */
static void fill_ring(struct crash_client *c)
{
	struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_HBM };

	for (uint32_t i = 0; i < 4096; i++) {
		tier_key key = crash_key(i % CRASH_WORKERS, crash_below(&c->random, CRASH_KEYS));
		struct tier_found found;

		if (tier_match(c->c[i % CRASH_WORKERS], &key, 1, &found) != 1)
			continue;
		if (tier_fetch_start(c->c[i % CRASH_WORKERS], &found.block, 1, &ask))
			return;
	}
}

void crash_doomed(struct crash_board *b, uint64_t seed)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = b->socket };
	struct crash_client c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A daemon that is just away is nobody's fault here. */
	if (tier_connect(&c.t, &o))
		_exit(0);
	tier_close(c.t);
	crash_connect(&c, b, CRASH_SCRAP, seed);
	hold(&c);
	put_half(&c);
	/* A child that outlives us for a while, with our socket: our leases end with us. */
	if (fork() == 0) {
		uint64_t found = 0;

		if (tier_fetch(c.c[0], &(tier_block){ 0, 0 }, 1, NULL) != -EOWNERDEAD ||
		    tier_match(c.c[0], &(tier_key){ { 0 } }, 1, NULL) != -EOWNERDEAD ||
		    tier_pin(c.c[0], &(tier_block){ 0, 0 }, 1, 0, 0, &found) != -EOWNERDEAD)
			atomic_store_release_u64(&b->failed, 1);
		usleep(300000);
		_exit(0);
	}
	fill_ring(&c);
	for (;;)
		pause();
}

/* ---- churn --------------------------------------------------------------------------------- */

struct held {
	uint32_t key, page;
	uint64_t version;
};

static void put_all(tier_context *x, uint64_t version)
{
	static uint8_t data[CRASH_RUN * CRASH_BLOCK_BYTES];
	tier_key keys[CRASH_RUN];

	for (uint32_t first = 0; first < CHURN_KEYS; first += CRASH_RUN) {
		for (uint32_t i = 0; i < CRASH_RUN; i++) {
			keys[i] = crash_key(CRASH_CHURN, first + i);
			for (uint32_t page = 0; page < CRASH_PAGES; page++)
				crash_fill(data + (i * CRASH_PAGES + page) * CRASH_PAGE_BYTES,
					   CRASH_CHURN, first + i, page, version);
		}
		tier_put_copy(x, keys, CRASH_RUN, data, NULL);
	}
}

/* One random page; held ones are looked at again when their context has been removed. */
static bool lease_one(struct crash_client *c, tier_context *x, struct tier_lease *lease,
		      struct held *held)
{
	uint32_t key = crash_below(&c->random, CHURN_KEYS);
	tier_key name = crash_key(CRASH_CHURN, key);
	struct tier_found found;
	struct tier_page page = { .page = crash_below(&c->random, CRASH_PAGES) };

	lease->data = NULL;
	if (tier_match(x, &name, 1, &found) != 1)
		return false;
	page.block = found.block;
	if (tier_read_pages(c->r, x, &page, 1, time_now_ns() + 100 * NS_PER_MS, lease) != 1)
		return false;
	held->key = key;
	held->page = page.page;
	held->version = crash_verify(lease->data, CRASH_CHURN, key, page.page);
	return true;
}

/* Reads a passing context until it has been removed, holding leases over that. */
static void read_passing(struct crash_client *c, const char *name)
{
	struct tier_lease lease[CHURN_HELD] = { { 0 } };
	struct held held[CHURN_HELD];
	uint64_t pages = 0;
	tier_context *x;

	if (tier_context_open(c->t, name, NULL, &x)) {
		usleep(500);
		return;
	}
	for (uint32_t i = 0; i < CHURN_HELD; i++)
		pages += lease_one(c, x, &lease[i], &held[i]);
	usleep(crash_below(&c->random, 8000));
	for (uint32_t i = 0; i < CHURN_HELD; i++)
		if (lease[i].data && crash_verify(lease[i].data, CRASH_CHURN, held[i].key,
						  held[i].page) != held[i].version)
			crash_fail("a removed context's page changed under its lease");
	tier_release_many(c->r, lease, CHURN_HELD);
	tier_context_close(x);
	atomic_add_relaxed_u64(&c->board->churn_pages, pages);
}

static void __attribute__((noreturn)) passing_reader(struct crash_board *b, const char *name,
						     uint64_t seed)
{
	struct crash_client c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crash_connect(&c, b, CRASH_CHURN, seed);
	while (!atomic_load_acquire_u64(&b->stop))
		read_passing(&c, name);
	tier_close(c.t);
	_exit(0);
}

/* Fill, leave it for a moment, remove it under its reader. */
static void pass(struct crash_client *c, const char *name, uint64_t version)
{
	struct tier_context_options o = { .size = sizeof(o) };
	tier_context *x;
	int rc;

	if (crash_below(&c->random, 2)) /* half of them may not spread over the tier */
		o.quota[TIER_CXL] = 6u << 20;
	rc = tier_context_create(c->t, name, c->g, &o, &x);
	if (rc)
		crash_fail("create %s: %d", name, rc);
	put_all(x, version);
	usleep(crash_below(&c->random, 10000));
	tier_context_close(x);
	rc = tier_context_remove(c->t, name);
	if (rc)
		crash_fail("remove %s: %d", name, rc);
	atomic_add_relaxed_u64(&c->board->churned, 1);
}

void crash_churn(struct crash_board *b, uint64_t seed)
{
	struct crash_client c;
	char name[32];
	int status = 0;
	pid_t reader;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(name, sizeof(name), "churn-%d", getpid());
	reader = fork();
	if (reader == 0)
		passing_reader(b, name, seed + 77);
	crash_connect(&c, b, CRASH_CHURN, seed);
	for (uint64_t version = 1; !atomic_load_acquire_u64(&b->stop); version++)
		pass(&c, name, version);
	tier_close(c.t);
	waitpid(reader, &status, 0);
	_exit(status ? 1 : 0);
}
