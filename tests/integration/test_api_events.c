/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following a context's events, against a live daemon that evicts, drops, deletes and restarts: who
 * reads all of them, who comes late, and who loses some know what tier_match finds.
 */
#include <pthread.h>

#include "tests/integration/kv_world.h"

#define KEYS 4000u
#define EVENTS 256u
#define SETTLE_NS (30 * NS_PER_S)

/* What one follower knows. */
struct known {
	tier_events *events;
	bool there[KEYS];
	uint32_t stored, moved, removed, cleared, lost;
};

/* Smaller than what is put: CXL evicts, and the cache's log is dropped. */
static const char *const settings[] = { "hbm.size=0", "cxl.size=8MiB", "nvme.size=48MiB",
					"nvme.buffered=yes", NULL };

static tier_key key_of(uint32_t number)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &number, sizeof(number), NULL), 0);
	return key;
}

/* By the first two bytes of a key, in a table with open places. */
static uint32_t number_of(const tier_key *key)
{
	static tier_key all[KEYS];
	static uint16_t place[65536 + KEYS];
	static bool made;
	uint16_t at;

	for (uint32_t i = 0; !made && i < KEYS; i++) {
		uint32_t free;

		all[i] = key_of(i);
		memcpy(&at, all[i].bytes, sizeof(at));
		for (free = at; place[free]; free++)
			;
		place[free] = (uint16_t)(i + 1);
	}
	made = true;
	memcpy(&at, key->bytes, sizeof(at));
	for (uint32_t i = at; place[i]; i++)
		if (memcmp(&all[place[i] - 1], key, sizeof(*key)) == 0)
			return place[i] - 1u;
	fail_msg("an event of a key that was never put");
	return 0;
}

static void apply(struct known *k, const struct tier_event *e)
{
	k->stored += e->kind == TIER_EVENT_STORED;
	k->moved += e->kind == TIER_EVENT_MOVED;
	k->removed += e->kind == TIER_EVENT_REMOVED;
	k->cleared += e->kind == TIER_EVENT_CLEARED;
	if (e->kind == TIER_EVENT_CLEARED)
		memset(k->there, 0, sizeof(k->there));
	else if (e->kind != TIER_EVENT_MOVED)
		k->there[number_of(&e->key)] = e->kind == TIER_EVENT_STORED;
}

static void snapshot(struct known *k)
{
	struct tier_event e[EVENTS];
	int64_t n;

	memset(k->there, 0, sizeof(k->there));
	while ((n = tier_events_snapshot(k->events, e, EVENTS)) > 0)
		for (int64_t i = 0; i < n; i++)
			apply(k, &e[i]);
	if (n)
		fail_msg("%s", tier_error_text());
}

/* All that is there to read now. */
static void follow(struct known *k, uint64_t timeout_ns)
{
	struct tier_event e[EVENTS];
	int64_t n;

	while ((n = tier_events_read(k->events, e, EVENTS, timeout_ns)) != 0) {
		if (n == -EOVERFLOW) {
			k->lost++;
			snapshot(k);
			continue;
		}
		if (n < 0)
			fail_msg("%s", tier_error_text());
		for (int64_t i = 0; i < n; i++)
			apply(k, &e[i]);
	}
}

/* How many keys a follower is wrong about. */
static uint32_t wrong(struct world *w, const struct known *k)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < KEYS; i++) {
		struct tier_found found;
		tier_key key = key_of(i);

		assert_true(tier_match(w->c, &key, 1, &found) >= 0);
		n += (found.state == TIER_HIT) != k->there[i];
	}
	return n;
}

/* The daemon may be evicting still: what counts is that a follower knows in the end. */
static void assert_knows(struct world *w, struct known *k)
{
	uint64_t end = time_now_ns() + SETTLE_NS;
	uint32_t n;

	do {
		follow(k, 20 * NS_PER_MS);
		n = wrong(w, k);
	} while (n && time_now_ns() < end);
	assert_int_equal(n, 0);
}

static void put(tier_context *c, uint32_t number, uint32_t count)
{
	static uint8_t data[8 * BLOCK_BYTES];
	struct tier_put_options o = { .size = sizeof(o) };
	tier_key key[8];

	for (uint32_t i = 0; i < count; i++)
		key[i] = key_of((number + i) % KEYS);
	tier_put_copy(c, key, count, data, &o);
}

static int setup(void **state)
{
	*state = world_begin(settings);
	return 0;
}

static struct known *known_new(struct world *w)
{
	struct known *k = calloc(1, sizeof(*k));

	assert_non_null(k);
	if (tier_events_open(w->c, &k->events))
		fail_msg("%s", tier_error_text());
	return k;
}

static void known_end(struct known *k)
{
	tier_events_close(k->events);
	free(k);
}

static void test_followers_know_what_match_finds(void **state)
{
	struct world *w = *state;
	struct known *all = known_new(w), *idle = known_new(w), *late;
	uint64_t random = 1, epoch = 0;

	for (uint32_t i = 0; i < 1500; i++) {
		uint32_t number = (uint32_t)(random >> 33) % KEYS;
		tier_key key = key_of(number);

		random = random * 6364136223846793005ull + 1442695040888963407ull;
		if (i == 750)
			assert_int_equal(tier_context_raise_epoch(w->t, "kv", &epoch), 0);
		if (i % 5 == 4)
			tier_delete(w->c, &key, 1);
		else
			put(w->c, number, 1 + number % 8);
		follow(all, 0);
	}
	late = known_new(w);
	snapshot(late);
	assert_knows(w, all);
	assert_knows(w, idle);
	assert_knows(w, late);
	assert_true(all->stored > 1000 && all->removed > 100 && all->moved > 100);
	assert_true(all->cleared == 1 || all->lost);
	assert_true(idle->lost == 1); /* it never read: told so, once */
	assert_int_equal(late->lost, 0);
	print_message("# %u stored, %u moved, %u removed, %u times lost\n", all->stored, all->moved,
		      all->removed, all->lost);
	known_end(all);
	known_end(idle);
	known_end(late);
}

struct churn {
	const struct world *w;
	uint32_t stop;
};

static void *churning(void *arg)
{
	struct churn *churn = arg;
	tier *t = world_connect(&churn->w->d);
	tier_context *c;

	assert_int_equal(tier_context_open(t, "kv", NULL, &c), 0);
	for (uint32_t i = 0; !atomic_load_acquire_u32(&churn->stop); i++) {
		tier_key key = key_of(i * 11 % KEYS);

		put(c, i * 37, 8);
		tier_delete(c, &key, 1);
	}
	tier_close(t);
	return NULL;
}

/* Snapshots are taken while the table changes and grows under them. */
static void test_a_snapshot_beside_changes_misses_nothing(void **state)
{
	struct world *w = *state;
	struct churn churn = { .w = w };
	struct known *k = known_new(w);
	uint64_t end = time_now_ns() + 2 * NS_PER_S;
	pthread_t thread;
	uint32_t taken = 0;

	assert_int_equal(pthread_create(&thread, NULL, churning, &churn), 0);
	for (; time_now_ns() < end; taken++) {
		snapshot(k);
		follow(k, 0);
	}
	atomic_store_release_u32(&churn.stop, 1);
	pthread_join(thread, NULL);
	assert_knows(w, k);
	print_message("# %u snapshots\n", taken);
	known_end(k);
}

static void test_a_restart_is_told(void **state)
{
	struct world *w = *state;
	struct known *k = known_new(w);

	snapshot(k);
	for (uint32_t i = 0; i < 64; i += 8)
		put(w->c, i, 8);
	follow(k, 0);
	assert_true(k->there[3]);
	assert_int_equal(kill(w->d.pid, SIGKILL), 0);
	daemon_wait(&w->d);
	follow(k, NS_PER_MS); /* nothing comes, and it is no error */
	assert_int_equal(k->lost, 0);
	daemon_start(&w->d, settings);
	/* Who only follows, and waits a little at a time, attaches anew by that. */
	for (uint64_t end = time_now_ns() + SETTLE_NS; !k->lost; follow(k, NS_PER_MS))
		assert_true(time_now_ns() < end);
	assert_knows(w, k);
	assert_int_equal(k->lost, 1);
	known_end(k);
}

/* Whoever leaves a snapshot half-way, and then is told that events were lost, gets a whole one. */
static void test_a_snapshot_left_halfway_begins_anew(void **state)
{
	struct world *w = *state;
	struct known *k = known_new(w);
	struct tier_event e[128];
	int64_t n;

	for (uint32_t i = 0; i < 400; i += 8)
		put(w->c, i, 8);
	assert_true(tier_events_snapshot(k->events, e, 128) > 0);
	for (uint32_t i = 0; i < 1024; i++) { /* two events each */
		tier_key key = key_of(1);

		tier_delete(w->c, &key, 1);
		put(w->c, 1, 1);
	}
	n = tier_events_read(k->events, e, 128, 0);
	assert_int_equal(n, -EOVERFLOW);
	snapshot(k);
	assert_knows(w, k);
	known_end(k);
}

static void test_a_forked_child_is_refused(void **state)
{
	struct world *w = *state;
	struct known *k = known_new(w);
	struct tier_event e[EVENTS];
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		alarm(60);
		_exit(tier_events_read(k->events, e, EVENTS, 0) != -EOWNERDEAD ||
		      tier_events_snapshot(k->events, e, EVENTS) != -EOWNERDEAD);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	known_end(k);
}

static void test_nonsense_is_refused(void **state)
{
	struct world *w = *state;
	struct known *k = known_new(w);
	struct tier_event e[EVENTS];
	int64_t n;

	assert_int_equal(tier_events_open(w->c, NULL), -EINVAL);
	assert_int_equal(tier_events_open(NULL, &k->events), -EINVAL);
	assert_int_equal(tier_events_snapshot(k->events, e, 127), -EINVAL);
	assert_int_equal(tier_events_snapshot(NULL, e, EVENTS), -EINVAL);
	assert_int_equal(tier_events_read(k->events, e, 0, 0), -EINVAL);
	assert_int_equal(tier_events_read(k->events, NULL, 1, 0), -EINVAL);
	tier_events_close(NULL);
	assert_int_equal(tier_context_remove(w->t, "kv"), 0);
	do {
		n = tier_events_read(k->events, e, EVENTS, LONG_NS);
		assert_true(n == -ENOENT || (n == 1 && e[0].kind == TIER_EVENT_CLEARED));
	} while (n == 1);
	known_end(k);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, world_end)
	const struct CMUnitTest tests[] = {
		T(test_followers_know_what_match_finds),
		T(test_a_snapshot_beside_changes_misses_nothing),
		T(test_a_restart_is_told),
		T(test_a_snapshot_left_halfway_begins_anew),
		T(test_a_forked_child_is_refused),
		T(test_nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
