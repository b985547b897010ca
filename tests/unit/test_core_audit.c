/*
 * The audit finds every deliberate error: a core with blocks in all tiers, salts, pins, leases and
 * dirty bytes; then each counter is made wrong by one, and core_audit must name it, and nothing
 * but what depends on it. A counter that is added to the core and not to this list is an omission.
 *
 * Not in it is what has nothing to be recounted from: counters of events (metrics.def, but for the
 * sums of foresight), sequence numbers, clocks, marks of how far a table was ever used, and what
 * policies and estimates remember, which is advice.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/host.h"
#include "tests/lib/unit.h"
#include "tierd/core/io/sched_priv.h"
#include "tierd/core/unit/space_priv.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

#define MEGA (1u << 20)

static struct host host;

/* ---- a core with something of everything -------------------------------------------------- */

static void key_of(uint32_t n, uint8_t key[ABI_KEY_BYTES])
{
	memset(key, 0, ABI_KEY_BYTES);
	memcpy(key, &n, sizeof(n));
	key[9] = (uint8_t)(n * 7);
}

/* One block a put: its bytes are whatever lies in staging. */
static void put(uint32_t client, uint32_t context, uint32_t n, uint64_t salt, uint8_t priority)
{
	struct abi_put_args *args = (struct abi_put_args *)host.client[client].staging;
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .count = 1 };

	memset(args, 0, sizeof(*args));
	args->count = 1;
	args->salt = salt;
	args->priority = priority;
	key_of(n, (uint8_t *)(args + 1));
	sqe.context_id = host.context[context].id;
	sqe.arg_bytes = sizeof(*args) + ABI_KEY_BYTES;
	assert_true(host_request(&host, client, &sqe));
	sqe = (struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .arg_offset = 4096,
				.handle = host.answer.res ? 0 : host.answer.value };
	assert_true(host_request(&host, client, &sqe));
}

/* An operation of block n. */
static void ask(uint32_t client, uint32_t context, uint32_t n, uint8_t op, uint8_t tier)
{
	struct abi_sqe sqe = { .op = op, .flags = ABI_SQE_KEYS, .count = 1, .tier = tier,
			       .arg_bytes = ABI_KEY_BYTES };

	key_of(n, host.client[client].staging);
	sqe.context_id = host.context[context].id;
	assert_true(host_request(&host, client, &sqe));
}

static void pin(uint32_t client, uint32_t context, uint32_t n)
{
	ask(client, context, n, ABI_OP_PIN, ABI_TIER_CXL);
}

/* A copy of its own from CXL to HBM, of a block that is in CXL. */
static void fetch(uint32_t client, uint32_t context, uint32_t n)
{
	ask(client, context, n, ABI_OP_FETCH, ABI_TIER_HBM);
}

/* A reader keeps page 0 of the block; then all of its pages are made to leave. */
static void lease_and_evict(uint32_t context, uint32_t n)
{
	struct context *x = core_context(host.core, host.context[context].id);
	struct abi_reader *r = host.client[0].readers;
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot;

	key_of(n, key);
	slot = index_find(&x->ix, key);
	assert_int_not_equal(slot, ABI_SLOT_NONE);
	r->high_water = 1;
	r->slot[0] = abi_place(x->id, ABI_TIER_CXL,
			       index_page(&x->ix, slot, 0)->word[ABI_TIER_CXL]);
	core_evict(host.core, x->id, ABI_TIER_CXL, MEGA, 0);
	host_look(&host);
}

static int setup(void **state)
{
	struct disk_context spec;

	(void)state;
	host_init(&host);
	host_boot(&host, NULL);
	for (uint32_t i = 0; i < 2; i++) {
		host_spec(&spec, i ? HOST_KIND_MEMORY : HOST_KIND_STORE, i);
		assert_int_equal(host_context_make(&host, i, &spec), 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		host_client_open(&host, i);
		host_client_attach(&host, i);
	}
	for (uint32_t n = 0; n < 12; n++)
		put(n % 2, 0, n, n % 3, n == 5);
	host_settle(&host, 40);
	pin(0, 0, 3);
	lease_and_evict(0, 4);
	assert_int_equal(host.core->metrics.quarantined, 1);
	host_tick(&host, 5000000);
	host.held = true; /* what follows stays under way: copies, writes, retired batches */
	for (uint32_t n = 0; n < 9; n++)
		put(1, n % 2, 20 + n, 2, 0);
	for (uint32_t n = 0; n < 2; n++)
		fetch(0, 0, n);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	host.client[0].readers[0].slot[0] = 0;
	host_empty(&host);
	host_halt(&host);
	return 0;
}

/* ---- one wrong counter at a time ---------------------------------------------------------- */

static char told[8192];

static void take(void *arg, const char *what)
{
	(void)arg;
	if (strlen(told) + strlen(what) + 2 < sizeof(told)) {
		strcat(told, what);
		strcat(told, "\n");
	}
}

static uint64_t look(void)
{
	told[0] = '\0';
	return core_audit(host.core, take, NULL);
}

static void add(void *counter, size_t bytes, int more)
{
	uint64_t value = 0;

	memcpy(&value, counter, bytes);
	value += (uint64_t)more;
	memcpy(counter, &value, bytes);
}

static void wrong_by_one(void *counter, size_t bytes, const char *expected)
{
	add(counter, bytes, 1);
	if (!look())
		fail_msg("nobody noticed: %s", expected);
	if (!strstr(told, expected))
		fail_msg("\"%s\" is not named in:\n%s", expected, told);
	add(counter, bytes, -1);
	if (look())
		fail_msg("still wrong after %s: %s", expected, told);
}

#define WRONG(counter, expected) wrong_by_one(&(counter), sizeof(counter), expected)

static void test_all_is_well_before(void **state)
{
	uint32_t copies = 0;

	(void)state;
	for (uint32_t i = 0; i < CORE_COPIES_MAX; i++)
		copies += host.core->actions.copy[i].priv.node.state == SCHED_FLYING;
	assert_true(copies > 1); /* to HBM, counted one by one */
	if (look())
		fail_msg("%s", told);
	assert_true(host.core->reclaim.quarantined[ABI_TIER_CXL] > 0);
	assert_true(host.core->pins.bytes[ABI_TIER_CXL] > 0);
}

static void test_counters_of_a_context(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);

	(void)state;
	WRONG(x->blocks, "blocks:");
	WRONG(x->blocks_pending, "pending blocks");
	WRONG(x->pending.count, "pending list");
	WRONG(x->dirty[DISK_LOG_CACHE].list.count, "cached dirty list");
	WRONG(x->dirty[DISK_LOG_DURABLE].list.count, "durable dirty list");
	WRONG(x->slots_live, "block slots in use");
	WRONG(x->dirty_bytes, "dirty bytes");
	WRONG(x->nvme_bytes, "NVMe bytes");
	WRONG(x->kept_blocks, "blocks with a priority");
	WRONG(x->refused, "blocks refused for NVMe");
	WRONG(x->detached, "places that no page names");
	WRONG(x->attached, "clients attached");
	WRONG(x->punching, "ranges being punched");
	WRONG(x->put_copies, "copies of puts");
	WRONG(x->reserved_most_blocks, "blocks that reservations may come to");
	WRONG(x->ix.entries, "entries of the index");
	WRONG(x->ix.overflow_used, "overflow lines of the index");
	WRONG(x->ix.slots_free, "free slots of the index");
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		WRONG(x->pages_resident[t], "resident pages");
		WRONG(x->retiring[t], "retiring bytes");
		WRONG(x->moving[t], "moving bytes");
		WRONG(x->pinned[t], "pinned bytes");
		WRONG(x->windows[t], "windows of streams");
	}
	WRONG(x->uses.entry[0].moving, "held words");
	WRONG(x->uses.count, "blocks in use");
	WRONG(x->uses.high, "places for what is in use");
	WRONG(x->tenants.entry[0].blocks, "the public salt");
	WRONG(x->siblings.count, "blocks with siblings");
	WRONG(x->siblings.high, "places of siblings");
	assert_true(x->tenants.high > 0 && x->tenants.entry[1].blocks > 0);
	WRONG(x->tenants.entry[1].blocks, "blocks of a salt");
	WRONG(x->tenants.entry[1].lane, "another salt's");
}

/* The same for what has no address. */
#define WRONG_BITS(counter, expected)                                                              \
	do {                                                                                       \
		(counter)++;                                                                       \
		assert_true(look() && strstr(told, expected));                                     \
		(counter)--;                                                                       \
		assert_false(look());                                                              \
	} while (0)

static void test_counters_of_a_block(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	uint32_t slot = x->pending.head;
	struct block_use *use;

	(void)state;
	assert_int_not_equal(slot, ABI_SLOT_NONE);
	use = block_use_make(x, slot);
	assert_true(use->writers > 0 && use->missing > 0);
	WRONG(use->writers, "writers");
	WRONG(use->missing, "missing pages");
	WRONG(use->moving, "held words");
	WRONG(use->streams, "blocks that streams hold");
	WRONG_BITS(use->hold, "holds");
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		WRONG(use->staged[t], "staged bytes");
		WRONG(use->planned[t], "want it in tier");
		WRONG(use->pins[t], "pins of blocks");
		WRONG(use->lead_pins[t], "pins of blocks");
		WRONG_BITS(x->meta[slot].there[t].pages, "held words");
	}
	slot = index_block(&x->ix, 0)->state == ABI_BLOCK_COMMITTED ? 0 : 1;
	use = block_use_make(x, slot);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		use->leads[t].count = 1;
		assert_true(look() && strstr(told, "leads of tier"));
		use->leads[t].count = 0;
	}
	use->streamed[ABI_TIER_CXL] = 1;
	assert_true(look() && strstr(told, "pages of streams"));
	use->streamed[ABI_TIER_CXL] = 0;
	block_use_settle(x, slot);
	assert_false(look());
}

static void test_counters_of_a_space(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);
	struct space *s = x->space[ABI_TIER_CXL];

	(void)state;
	WRONG(s->taken, "slabs taken");
	WRONG(s->punching, "slabs being punched");
	WRONG(s->parked, "slabs parked");
	WRONG(s->live, "bytes of live places");
	WRONG(s->free, "bytes of free places");
	WRONG(s->klass[0].free, "free places of a class");
	WRONG(s->klass[0].live, "live places of a class");
	WRONG(s->klass[0].going, "evacuated places of a class");
	WRONG(s->klass[0].reserved, "reserved places of a class");
	WRONG(s->slab[0].live, "places of a slab");
	s->taken_bits[0] ^= 1ull << 1;
	assert_true(look() && strstr(told, "slabs in use"));
	s->taken_bits[0] ^= 1ull << 1;
	s->place_bits[0] ^= 1ull << 40;
	assert_true(look() && strstr(told, "places of a slab"));
	s->place_bits[0] ^= 1ull << 40;
	WRONG(s->free_evacuated, "bytes of evacuated places");
	WRONG(s->returned, "bytes of parked units");
}

static void wrong_ledger(struct ledger *l, uint64_t key)
{
	struct holding *a = &l->account[ledger_find(l, key)];

	WRONG(a->uses, "uses");
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		WRONG(a->pinned[t], "bytes pinned");
	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		WRONG(a->used[t], "bytes charged");
		WRONG(l->account[LEDGER_NONE].used[t], "bytes charged");
		WRONG(l->account[LEDGER_OTHER].used[t], "bytes charged");
		WRONG(l->plain[t], "accounts without a share");
		WRONG(l->soft_sum[t], "sum of soft shares");
	}
	WRONG(l->open, "accounts");
}

static void test_counters_of_accounts(void **state)
{
	struct context *x = core_context(host.core, host.context[0].id);

	(void)state;
	assert_true(ledger_find(&x->salts, 2) >= LEDGER_FIRST);
	wrong_ledger(&x->salts, 2);
	wrong_ledger(&host.core->owners, (uint64_t)host.core->client[1].connection << 32 | 1);
}

static void test_counters_of_the_host(void **state)
{
	struct core *c = host.core;

	(void)state;
	WRONG(c->contexts, "contexts");
	WRONG(c->pins.count, "pins");
	WRONG(c->requests.count, "requests");
	WRONG(c->reserve.count, "reservations");
	WRONG(c->streams.count, "streams");
	WRONG(c->dropped.unretired.count, "unretired");
	WRONG(c->dropped.parents_leaving.count, "leaving blocks");
	WRONG(c->dropped.waiting.count, "blocks that wait to part");
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		WRONG(c->pool[t].used, "charged to the pool");
		WRONG(c->pool[t].live, "bytes of live places");
		WRONG(c->pool[t].reserved, "bytes promised");
		WRONG(c->streamed[t], "bytes of the stream pool");
		WRONG(c->streams.grants[t], "windows of streams");
		WRONG(c->reclaim.quarantined[t], "quarantined bytes");
		WRONG(c->pins.bytes[t], "pinned bytes");
		WRONG(c->evict.punching[t], "ranges being punched");
	}
}

static void test_counters_of_the_store(void **state)
{
	struct core *c = host.core;

	(void)state;
	WRONG(c->drive[0]->store->live, "store: live bytes");
	WRONG(c->drive[0]->segment_blocks[0].count, "a segment's blocks");
	for (uint32_t i = 0; i < c->drive[0]->store->segment_count; i++) {
		char name[32];

		snprintf(name, sizeof(name), "segment %u: counted", i);
		WRONG(c->drive[0]->store->segment[i].live, name);
		WRONG(c->drive[0]->store->segment[i].reads, name);
		WRONG(c->drive[0]->store->segment[i].pending, name);
	}
}

/* Something is under way: a put's copies, at least. */
static void test_counters_of_operations(void **state)
{
	struct core *c = host.core;
	struct sched *s = c->sched;
	uint32_t waiting = 0;

	(void)state;
	WRONG(c->actions.ios, "device operations of the pool");
	WRONG(c->actions.copies, "copies of the pool");
	WRONG(c->evacuation.copies, "copies within a tier");
	WRONG(s->ios[1], "client 1: counted");
	WRONG(s->copies[1], "client 1: counted");
	WRONG(s->ios[SCHED_DAEMON], "client 1024: counted");
	WRONG(s->queued, "scheduler's queues");
	WRONG(s->background_ios, "background reads of the pool");
	WRONG(s->background_ops, "background operations");
	WRONG(s->background_ns, "their device time");
	WRONG(s->direct_ops, "reads into HBM");
	for (uint32_t i = 0; i < SCHED_CHANNELS; i++) {
		WRONG(s->channel[i].ops, "operations under way");
		WRONG(s->channel[i].bytes, "bytes under way");
		WRONG(s->channel[i].queue[0].count, "scheduler's queues");
		WRONG(s->channel[i].queue[0].bytes, "scheduler's queues");
	}
	for (uint32_t i = 0; i < c->requests.high; i++) {
		waiting += c->requests.table[i].outstanding;
		if (c->requests.table[i].phase != REQUEST_FREE)
			WRONG(c->requests.table[i].outstanding, "operations for it");
	}
	assert_true(waiting > 0);
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (c->drive[0]->run[i].phase != RUN_FREE)
			WRONG(c->drive[0]->run[i].outstanding, "writes of a run");
}

static void test_counters_of_clients_and_users(void **state)
{
	struct core *c = host.core;
	struct client *k = &c->client[1];
	struct account *a = &c->accounts.table[k->account];

	(void)state;
	WRONG(c->requests.orders[1], "orders that wait");
	WRONG(a->connections, "user 7: connections");
	WRONG(c->accounts.users, "users");
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		WRONG(a->windows[t], "windows of streams");
	for (uint32_t kind = 0; kind < ACCOUNT_KINDS; kind++) {
		WRONG(k->used[kind], "client 1: entries of a shared table");
		WRONG(a->used[kind], "user 7: entries of a shared table");
	}
}

static void test_counters_of_foresight(void **state)
{
	struct core *c = host.core;

	(void)state;
	WRONG(c->staged.bytes, "staged bytes");
	WRONG(c->metrics.prefetch_bytes, "prefetched bytes");
	WRONG(c->metrics.prefetch_used, "prefetched bytes");
	WRONG(c->metrics.prefetch_wasted, "prefetched bytes");
	WRONG(c->metrics.prefetch_failed, "prefetched bytes");
	WRONG(c->parked.count, "parked prefetches");
	WRONG(c->plans.count, "plans");
	WRONG(c->conversations.count, "conversations");
	WRONG(c->conversations.awaited, "conversations whose users are back");
	WRONG(c->conversations.high, "places of conversations");
	WRONG(c->conversations.chunks_high, "places of conversations' blocks");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_well_before),
		cmocka_unit_test(test_counters_of_a_context),
		cmocka_unit_test(test_counters_of_a_block),
		cmocka_unit_test(test_counters_of_a_space),
		cmocka_unit_test(test_counters_of_accounts),
		cmocka_unit_test(test_counters_of_the_host),
		cmocka_unit_test(test_counters_of_the_store),
		cmocka_unit_test(test_counters_of_operations),
		cmocka_unit_test(test_counters_of_clients_and_users),
		cmocka_unit_test(test_counters_of_foresight),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
