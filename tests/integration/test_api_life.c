/*
 * The public API against a live daemon: what is put is found and read back, by others too, after
 * eviction and after a restart; what must be refused is refused with the promised error.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/integration/kv_world.h"

static int setup(void **state)
{
	static const char *const settings[] = { "hbm.size=2MiB", NULL };

	*state = world_begin(settings);
	return 0;
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), SALT("life", 4)), 0);
	return key;
}

static void keys_of(tier_key *keys, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		keys[i] = key_of(first + i);
}

static uint8_t byte_of(uint32_t n, uint32_t page)
{
	return (uint8_t)(n * 7 + page * 3 + 1);
}

static void fill(uint8_t *data, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t page = 0; page < 6; page++)
			memset(data + i * BLOCK_BYTES + page * 4096, byte_of(first + i, page),
			       4096);
}

/* Puts blocks [first, first + count). */
static void put(struct world *w, uint32_t first, uint32_t count, uint32_t flags)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = flags };
	uint8_t *data = malloc(count * BLOCK_BYTES);
	tier_key *keys = calloc(count, sizeof(*keys));
	int64_t n;

	keys_of(keys, first, count);
	fill(data, first, count);
	n = tier_put_copy(w->c, keys, count, data, &o);
	if (n != count)
		fail_msg("put %lld of %u: %s", (long long)n, count, tier_error_text());
	free(keys);
	free(data);
}

/* All pages of block n, wherever they are. */
static void read_back(struct world *w, uint32_t n)
{
	tier_key key = key_of(n);
	struct tier_found found;
	struct tier_page page[6];
	struct tier_lease lease[6];

	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	for (uint32_t i = 0; i < 6; i++)
		page[i] = (struct tier_page){ found.block, i };
	assert_int_equal(tier_read_pages(w->r, w->c, page, 6, 0, lease), 6);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(lease[i].bytes, 4096);
		assert_int_equal(((const uint8_t *)lease[i].data)[0], byte_of(n, i));
		assert_int_equal(((const uint8_t *)lease[i].data)[4095], byte_of(n, i));
	}
	tier_release_many(w->r, lease, 6);
}

/* ---- put and read ---------------------------------------------------------------------------- */

static void test_put_is_found_and_read(void **state)
{
	struct world *w = *state;
	tier_key keys[40];
	struct tier_found found[41];

	keys_of(keys, 0, 40);
	assert_int_equal(tier_match(w->c, keys, 40, found), 0);
	put(w, 0, 39, 0);
	assert_int_equal(tier_match(w->c, keys, 40, found), 39);
	assert_int_equal(found[38].state, TIER_HIT);
	assert_int_equal(found[39].state, TIER_MISS);
	for (uint32_t i = 0; i < 39; i++)
		read_back(w, i);
	put(w, 0, 39, 0); /* again: nothing to do */
	assert_int_equal(tier_match(w->c, keys, 40, NULL), 39);
}

static void test_put_in_place_and_abort(void **state)
{
	struct world *w = *state;
	tier_key keys[2];
	struct tier_completion c;
	struct tier_found found[2];
	tier_put *p;

	keys_of(keys, 100, 2);
	assert_int_equal(tier_put_begin(w->c, keys, 2, NULL, &p), 0);
	assert_int_equal(tier_match(w->c, keys, 2, found), 0);
	assert_int_equal(found[0].state, TIER_PENDING);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t page = 0; page < 6; page++)
			memset(page < 4 ? tier_put_data(p, i, 0, page / 2, page % 2) :
					  tier_put_data(p, i, 1, page - 4, 0),
			       byte_of(100 + i, page), 4096);
	assert_int_equal(tier_put_commit(p, 42), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	assert_int_equal(c.user_data, 42);
	assert_int_equal(c.result, 0);
	assert_int_equal(c.status, TIER_READY);
	assert_int_equal(c.value, 2);
	read_back(w, 100);
	read_back(w, 101);
	keys_of(keys, 200, 2);
	assert_int_equal(tier_put_begin(w->c, keys, 2, NULL, &p), 0);
	tier_put_abort(p);
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(tier_match(w->c, keys, 2, found), 0);
	assert_int_equal(found[0].state, TIER_MISS);
	assert_int_equal(tier_put_begin(w->c, keys, 1, NULL, &p), 0);
	assert_int_equal(tier_put_exists(p, 0), 0);
	tier_put_abort(p);
}

static void test_ranks_put_their_shards(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o), .shards = 2 };
	tier *t2 = world_connect(&w->d);
	tier_context *c2;
	tier_put *p[2];
	struct tier_completion c;
	tier_key key = key_of(300);

	assert_int_equal(tier_context_open(t2, "kv", NULL, &c2), 0);
	for (o.shard = 0; o.shard < 2; o.shard++)
		assert_int_equal(tier_put_begin(o.shard ? c2 : w->c, &key, 1, &o, &p[o.shard]), 0);
	for (uint32_t rank = 0; rank < 2; rank++) {
		for (uint32_t layer = 0; layer < 2; layer++) {
			memset(tier_put_data(p[rank], 0, 0, layer, rank),
			       byte_of(300, layer * 2 + rank), 4096);
			memset(tier_put_data(p[rank], 0, 1, layer, 0), byte_of(300, 4 + layer),
			       4096);
		}
		assert_int_equal(tier_put_commit(p[rank], rank), 0);
		assert_int_equal(tier_wait(rank ? t2 : w->t, &c, 1, 1, LONG_NS), 1);
		assert_int_equal(c.result, 0);
		assert_int_equal(c.value, rank); /* whole with the second */
		assert_int_equal(tier_match(w->c, &key, 1, NULL), rank);
	}
	read_back(w, 300);
	tier_close(t2);
}

static void test_another_process_reads(void **state)
{
	struct world *w = *state;
	tier_key key = key_of(5);
	struct tier_found found;
	int status, pipes[2];
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		/* A block found by the parent is as good here, in a connection of our own. */
		struct world own = { .d = w->d, .g = w->g };
		struct tier_lease lease;

		if (read(pipes[0], &found, sizeof(found)) != sizeof(found))
			_exit(1);
		world_open(&own);
		if (tier_lease_page(own.r, own.c, found.block, 4, 0, &lease) != 0)
			_exit(2);
		status = ((const uint8_t *)lease.data)[7] != byte_of(5, 4);
		tier_close(own.t);
		_exit(status ? 3 : 0);
	}
	put(w, 5, 1, 0);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	assert_int_equal(write(pipes[1], &found, sizeof(found)), sizeof(found));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- ask ------------------------------------------------------------------------------------- */

static void evict_all(struct world *w)
{
	char *reply;

	assert_int_equal(tier_admin(w->t, "drain", NULL, &reply), 0);
	free(reply);
	assert_int_equal(tier_admin(w->t, "evict", "{\"context\":\"kv\",\"tier\":\"cxl\"}", &reply),
			 0);
	free(reply);
}

static void test_fetch_brings_back_what_left(void **state)
{
	struct world *w = *state;
	tier_key keys[10];
	struct tier_found found[10];
	tier_block blocks[10];
	struct tier_lease lease;
	struct tier_completion c;
	struct tier_range range = { .part_first = 1, .part_count = 1 };

	keys_of(keys, 400, 10);
	put(w, 400, 10, 0);
	evict_all(w);
	assert_int_equal(tier_match(w->c, keys, 10, found), 10);
	assert_int_equal(found[0].tier, TIER_NVME);
	for (uint32_t i = 0; i < 10; i++)
		blocks[i] = found[i].block;
	assert_int_equal(tier_lease_page(w->r, w->c, blocks[3], 0, 0, &lease), -ENODATA);
	assert_int_equal(tier_fetch(w->c, blocks, 10, ASK(TIER_CXL, .range = &range)), 10);
	assert_int_equal(tier_lease_page(w->r, w->c, blocks[3], 0, 0, &lease), -ENODATA);
	assert_int_equal(tier_lease_page(w->r, w->c, blocks[3], 4, 0, &lease), 0);
	tier_release(w->r, &lease);
	assert_int_equal(tier_fetch_start(w->c, blocks, 10, ASK(TIER_CXL, .user_data = 7)), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	assert_int_equal(c.user_data, 7);
	assert_int_equal(c.status, TIER_READY);
	assert_int_equal(c.value, 10);
	for (uint32_t i = 0; i < 10; i++)
		read_back(w, 400 + i);
	assert_int_equal(tier_fetch(w->c, blocks, 2, ASK(TIER_HBM)), 2);
	assert_int_equal(tier_lease_page(w->r, w->c, blocks[0], 0, 0, &lease), 0);
	assert_int_equal(lease.tier, TIER_HBM);
	assert_int_equal(((const uint8_t *)lease.data)[100], byte_of(400, 0));
	tier_release(w->r, &lease);
	evict_all(w);
	read_back(w, 404); /* read_pages fetches by itself */
}

static void test_a_lease_outlives_eviction(void **state)
{
	struct world *w = *state;
	tier_key key = key_of(500);
	struct tier_found found;
	struct tier_lease lease;

	put(w, 500, 1, 0);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	assert_int_equal(tier_lease_page(w->r, w->c, found.block, 2, 0, &lease), 0);
	evict_all(w);
	assert_int_equal(tier_delete(w->c, &key, 1), 1);
	assert_int_equal(tier_match(w->c, &key, 1, NULL), 0);
	for (uint32_t i = 600; i < 900; i += 50)
		put(w, i, 50, 0);
	assert_int_equal(((const uint8_t *)lease.data)[1000], byte_of(500, 2));
	tier_release(w->r, &lease);
	assert_int_equal(tier_lease_page(w->r, w->c, found.block, 2, 0, &lease), -ESTALE);
	assert_int_equal(tier_delete(w->c, &key, 1), 0);
}

static void test_pins(void **state)
{
	struct world *w = *state;
	tier_key keys[4];
	struct tier_found found[4];
	tier_block blocks[4];
	uint64_t pin;
	tier *t2 = world_connect(&w->d);
	tier_context *c2;

	keys_of(keys, 1000, 4);
	put(w, 1000, 4, 0);
	assert_int_equal(tier_match(w->c, keys, 4, found), 4);
	for (uint32_t i = 0; i < 4; i++)
		blocks[i] = found[i].block;
	assert_int_equal(tier_pin(w->c, blocks, 4, TIER_CXL, 0, &pin), 4);
	evict_all(w);
	for (uint32_t i = 0; i < 4; i++)
		read_back(w, 1000 + i);
	assert_int_equal(tier_match(w->c, keys, 4, found), 4);
	assert_int_not_equal(found[0].tier, TIER_NVME);
	/* Its id is good in another process that has the context open. */
	assert_int_equal(tier_context_open(t2, "kv", NULL, &c2), 0);
	assert_int_equal(tier_unpin(c2, pin), 0);
	assert_int_equal(tier_unpin(w->c, pin), -ENOENT);
	tier_close(t2);
	assert_int_equal(tier_delete(w->c, keys, 4), 4);
	assert_int_equal(tier_pin(w->c, blocks, 4, TIER_CXL, 0, &pin), -ESTALE);
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* Mappings of the service's memory in this process. */
static uint32_t count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	uint32_t count = 0;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		count += strstr(line, "memfd:tier-") != NULL;
	fclose(f);
	return count;
}

/* What is mapped is not mapped again, and stays until the last handle of it is closed. */
static void test_a_context_is_mapped_once(void **state)
{
	struct world *w = *state;
	tier_context *c1, *c2;
	uint32_t none = count_maps(), one;
	struct tier_found found[2];
	tier_key keys[2];

	assert_int_equal(tier_context_create(w->t, "once", w->g, NULL, &c1), 0);
	one = count_maps();
	assert_true(one > none);
	assert_int_equal(tier_context_open(w->t, "once", NULL, &c2), 0);
	assert_int_equal(count_maps(), one);
	tier_context_close(c1);
	assert_int_equal(count_maps(), one);
	keys_of(keys, 0, 2);
	assert_int_equal(tier_match(c2, keys, 2, found), 0);
	tier_context_close(c2);
	assert_int_equal(count_maps(), none);
	/* Another one of the name is another one. */
	assert_int_equal(tier_context_open(w->t, "once", NULL, &c1), 0);
	assert_int_equal(tier_context_remove(w->t, "once"), 0);
	assert_int_equal(tier_context_create(w->t, "once", w->g, NULL, &c2), 0);
	assert_int_equal(count_maps(), none + 2 * (one - none));
	tier_context_close(c1);
	tier_context_close(c2);
	assert_int_equal(count_maps(), none);
	assert_int_equal(tier_context_remove(w->t, "once"), 0);
}

static void test_contexts_agree_or_are_refused(void **state)
{
	struct world *w = *state;
	struct tier_context_options o = { .size = sizeof(o), .flags = TIER_CREATE_EXCLUSIVE };
	struct tier_fingerprint f = { .size = sizeof(f), .model = "m", .block_tokens = 128 };
	uint8_t other[32];
	tier_geometry *g;
	tier_context *c;

	assert_int_equal(tier_context_create(w->t, "kv", w->g, &o, &c), -EEXIST);
	assert_int_equal(tier_context_create(w->t, "kv", w->g, NULL, &c), 0);
	tier_context_close(c);
	assert_int_equal(tier_geometry_preset(&g, "llama-3.1-8b"), 0);
	assert_int_equal(tier_context_create(w->t, "kv", g, NULL, &c), -ESTALE);
	tier_geometry_free(g);
	assert_int_equal(tier_fingerprint_digest(o.fingerprint, &f), 0);
	o.flags = 0;
	assert_int_equal(tier_context_create(w->t, "kv", w->g, &o, &c), -ESTALE);
	assert_int_equal(tier_context_create(w->t, "fp", w->g, &o, &c), 0);
	tier_context_close(c);
	assert_int_equal(tier_context_open(w->t, "fp", o.fingerprint, &c), 0);
	tier_context_close(c);
	assert_int_equal(tier_context_open(w->t, "fp", NULL, &c), 0);
	f.model = "n";
	assert_int_equal(tier_fingerprint_digest(other, &f), 0);
	assert_int_equal(tier_context_open(w->t, "fp", other, &c), -ESTALE);
	assert_int_equal(tier_context_open(w->t, "none", NULL, &c), -ENOENT);
	assert_int_equal(tier_context_remove(w->t, "fp"), 0);
	assert_int_equal(tier_context_remove(w->t, "fp"), -ENOENT);
	assert_int_equal(tier_context_open(w->t, "fp", NULL, &c), -ENOENT);
}

static void test_a_raised_epoch(void **state)
{
	struct world *w = *state;
	tier_key keys[3];
	struct tier_completion c;
	uint64_t epoch = 0, before = tier_context_epoch(w->c);
	tier_put *p;

	keys_of(keys, 1100, 3);
	put(w, 1100, 2, 0);
	assert_int_equal(tier_put_begin(w->c, &keys[2], 1, NULL, &p), 0);
	assert_int_equal(tier_context_raise_epoch(w->t, "kv", &epoch), 0);
	assert_int_equal(epoch, before + 1);
	assert_int_equal(tier_context_epoch(w->c), epoch);
	assert_int_equal(tier_match(w->c, keys, 2, NULL), 0);
	assert_int_equal(tier_put_commit(p, 1), 0);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), 1);
	assert_int_equal(c.result, -ESTALE);
	epoch = before;
	assert_int_equal(tier_context_raise_epoch(w->t, "kv", &epoch), -EINVAL);
	assert_int_equal(tier_context_raise_epoch(w->t, "none", NULL), -ENOENT);
	put(w, 1100, 2, 0);
	read_back(w, 1101);
}

static void test_a_removed_context(void **state)
{
	struct world *w = *state;
	static uint8_t data[BLOCK_BYTES];
	tier_key key = key_of(1);
	struct tier_found found;
	struct tier_lease lease;
	tier_context *c;
	tier_put *p;

	assert_int_equal(tier_context_create(w->t, "gone", w->g, NULL, &c), 0);
	assert_int_equal(tier_put_copy(c, &key, 1, data, NULL), 1);
	assert_int_equal(tier_match(c, &key, 1, &found), 1);
	assert_int_equal(tier_context_remove(w->t, "gone"), 0);
	assert_int_equal(tier_match(c, &key, 1, NULL), 0);
	assert_int_equal(tier_lease_page(w->r, c, found.block, 0, 0, &lease), -ESTALE);
	assert_true(tier_put_begin(c, &key, 1, NULL, &p) < 0);
	assert_true(tier_fetch(c, &found.block, 1, NULL) <= 0);
	tier_context_close(c);
}

static void test_admin_and_counters(void **state)
{
	static const char *const verbs[] = { "status", "stat", "contexts", "pins", "requests",
					     "check" };
	struct world *w = *state;
	struct tier_counters n = { .size = sizeof(n) };
	char *reply;

	for (uint32_t i = 0; i < COUNT(verbs); i++) {
		if (tier_admin(w->t, verbs[i], NULL, &reply))
			fail_msg("%s: %s", verbs[i], tier_error_text());
		assert_true(reply[0] == '{' || reply[0] == '[');
		free(reply);
	}
	assert_int_equal(tier_admin(w->t, "dance", NULL, &reply), -ENOENT);
	assert_int_equal(tier_admin(w->t, "context", "{\"name\":", &reply), -EINVAL);
	assert_int_equal(tier_counters(w->t, &n), 0);
	assert_true(n.leases > 0 && n.requests > 0 && n.completions == n.requests);
}

/* ---- restart --------------------------------------------------------------------------------- */

static int check_until(tier *t, int wanted)
{
	int rc = -EINVAL;

	for (uint32_t i = 0; i < PATIENCE_MS / 10; i++) {
		rc = tier_check(t);
		if (rc == wanted)
			break;
		usleep(10000);
	}
	return rc;
}

/* The kernel may hold the dead daemon's lock on the store for a moment (its ring winds down). */
static void start_again(struct daemon *d)
{
	for (uint32_t i = 0; i < PATIENCE_MS / 20; i++) {
		char line[256] = "";
		int out;
		ssize_t n;

		d->pid = daemon_spawn(d, NULL, &out);
		n = read(out, line, sizeof(line) - 1);
		close(out);
		if (n > 0 && strstr(line, "ready on"))
			return;
		daemon_wait(d);
		usleep(20000);
	}
	fail_msg("tierd did not start again; see %s", d->log);
}

static void test_durable_blocks_outlive_a_crash(void **state)
{
	struct world *w = *state;
	tier_key keys[8];
	struct tier_found before[8];
	struct tier_lease lease;
	struct tier_completion c;

	keys_of(keys, 2000, 8);
	put(w, 2000, 8, TIER_PUT_DURABLE);
	assert_int_equal(tier_match(w->c, keys, 8, before), 8);
	assert_int_equal(tier_lease_page(w->r, w->c, before[0].block, 1, 0, &lease), 0);
	assert_int_equal(kill(w->d.pid, SIGKILL), 0);
	daemon_wait(&w->d);
	/* Away: the last state is still readable, nothing hangs. */
	assert_int_equal(tier_match(w->c, keys, 8, NULL), 8);
	assert_int_equal(tier_check(w->t), -ENOTCONN);
	assert_int_equal(tier_fetch(w->c, &before[0].block, 1, NULL), -ENOTCONN);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, LONG_NS), -ENOTCONN);
	start_again(&w->d);
	assert_int_equal(check_until(w->t, 1), 1);
	assert_int_equal(((const uint8_t *)lease.data)[5], byte_of(2000, 1));
	tier_release(w->r, &lease);
	assert_int_equal(tier_lease_page(w->r, w->c, before[1].block, 1, 0, &lease), -ESTALE);
	assert_int_equal(tier_match(w->c, keys, 8, NULL), 8);
	for (uint32_t i = 0; i < 8; i++)
		read_back(w, 2000 + i);
	put(w, 3000, 3, 0);
	read_back(w, 3002);
	assert_int_equal(tier_check(w->t), 0);
}

static void test_a_stopped_daemon_hangs_nobody(void **state)
{
	struct world *w = *state;
	tier_key keys[2];
	struct tier_found found[2];
	struct tier_completion c;
	uint64_t begin;

	keys_of(keys, 4000, 2);
	put(w, 4000, 2, 0);
	assert_int_equal(tier_match(w->c, keys, 2, found), 2);
	assert_int_equal(kill(w->d.pid, SIGSTOP), 0);
	begin = time_now_ns();
	assert_int_equal(tier_fetch(w->c, &found[0].block, 1,
				    ASK(TIER_CXL, .deadline_ns = begin + 50 * NS_PER_MS)),
			 -ETIMEDOUT);
	assert_int_equal(tier_wait(w->t, &c, 1, 1, 50 * NS_PER_MS), 0);
	assert_int_equal(tier_match(w->c, keys, 2, NULL), 2);
	assert_int_equal(tier_check(w->t), 0);
	assert_true(time_now_ns() - begin < 9 * NS_PER_S); /* its default is 10 s */
	assert_int_equal(kill(w->d.pid, SIGCONT), 0);
	assert_int_equal(tier_fetch(w->c, &found[0].block, 1, NULL), 1);
}

/* Unproven blocks whose pages are larger than a device operation usually is (D9). */
static void test_large_pages_are_proven_after_a_crash(void **state)
{
	struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 1, .groups = 1,
				  .page_bytes = 3u << 20 };
	struct tier_geometry_options o = { .size = sizeof(o), .part_count = 1, .part = &part,
					   .block_tokens = 128 };
	struct tier_put_options durable = { .size = sizeof(durable), .flags = TIER_PUT_DURABLE };
	struct tier_connect_options at = { .size = sizeof(at), .staging_bytes = 8u << 20 };
	static const char *const extra[] = { "nvme.segment=16MiB", NULL };
	uint8_t *data = malloc(part.page_bytes);
	tier_geometry *g = NULL;
	tier_context *c = NULL;
	struct daemon d;
	tier_key key;
	tier *t = NULL;

	(void)state;
	assert_non_null(data);
	memset(data, 0x5a, part.page_bytes);
	daemon_folder(&d);
	daemon_start(&d, extra);
	at.socket = d.socket;
	keys_of(&key, 1, 1);
	assert_int_equal(tier_geometry_new(&g, &o), 0);
	assert_int_equal(tier_connect(&t, &at), 0);
	assert_int_equal(tier_context_create(t, "large", g, NULL, &c), 0);
	assert_int_equal(tier_put_copy(c, &key, 1, data, &durable), 1);
	assert_int_equal(kill(d.pid, SIGKILL), 0);
	daemon_wait(&d);
	daemon_start(&d, extra);
	assert_int_equal(check_until(t, 1), 1);
	/* The same put waits until its block is proven. */
	assert_int_equal(tier_put_copy(c, &key, 1, data, &durable), 1);
	tier_close(t);
	tier_geometry_free(g);
	daemon_stop(&d);
	daemon_remove(&d);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_is_found_and_read),
		cmocka_unit_test(test_put_in_place_and_abort),
		cmocka_unit_test(test_ranks_put_their_shards),
		cmocka_unit_test(test_another_process_reads),
		cmocka_unit_test(test_fetch_brings_back_what_left),
		cmocka_unit_test(test_a_lease_outlives_eviction),
		cmocka_unit_test(test_pins),
		cmocka_unit_test(test_contexts_agree_or_are_refused),
		cmocka_unit_test(test_a_context_is_mapped_once),
		cmocka_unit_test(test_a_raised_epoch),
		cmocka_unit_test(test_a_removed_context),
		cmocka_unit_test(test_admin_and_counters),
		cmocka_unit_test(test_durable_blocks_outlive_a_crash),
		cmocka_unit_test(test_a_stopped_daemon_hangs_nobody),
		cmocka_unit_test(test_large_pages_are_proven_after_a_crash),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
