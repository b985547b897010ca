/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients stay attached over an upgrade: whatever they ask meanwhile is answered, by the former
 * daemon or by the next one, once, and as if there had been one daemon. No answer is lost, no byte
 * is wrong. When the next daemon is killed in the middle it ends as any crash does.
 */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/integration/kv_world.h"

#define KEYS 400u
#define UPGRADES 6u
#define BATCH 16u
#define KILLS 10u

static const char *const never_written[] = { "cxl.size=64MiB", "writeback.age=10min", NULL };
static const char *const with_objects[] = { "cxl.size=96MiB", "writeback.age=10min",
					    "object.cxl=32MiB", "object.nvme=32MiB", NULL };

/* ---- a client that never rests -------------------------------------------------------------- */

enum call { CALL_PUT, CALL_MATCH, CALL_FETCH, CALL_LEASE, CALL_START, CALL_PIN, CALL_DELETE,
	    CALL_OPEN, CALL_COUNT };
static const char *const call_name[] = { "put", "match", "fetch", "lease", "fetch_start", "pin",
					 "delete", "context_open" };

struct busy {
	struct world *w;
	tier *t;
	bool shares; /* ... which is another one's, who alone takes completions */
	tier_context *c;
	tier_reader *r;
	uint32_t first; /* its keys */
	atomic_bool stop;
	_Atomic uint32_t rounds;
	uint64_t longest_ns[CALL_COUNT];
	uint32_t wrong[CALL_COUNT]; /* answers that a daemon without an upgrade would not give */
	int64_t last[CALL_COUNT];
	uint32_t bytes; /* wrong ones */
	pthread_t thread;
};

static void judge(struct busy *b, enum call call, uint64_t from, int64_t got, int64_t want)
{
	uint64_t took = time_now_ns() - from;

	if (took > b->longest_ns[call])
		b->longest_ns[call] = took;
	if (got == want)
		return;
	b->wrong[call]++;
	b->last[call] = got;
}

static void read_one(struct busy *b, uint32_t n, tier_block block)
{
	struct tier_lease lease;
	uint64_t from = time_now_ns();
	int rc = tier_lease_page(b->r, b->c, block, n % BLOCK_PAGES, 0, &lease);

	judge(b, CALL_LEASE, from, rc, 0);
	if (rc)
		return;
	for (uint32_t i = 0; i < 4096; i += 64)
		b->bytes += ((const uint8_t *)lease.data)[i] !=
			    (uint8_t)(n * 7 + n % BLOCK_PAGES);
	tier_release(b->r, &lease);
}

/* Several at once, that somebody takes later. */
static void start_some(struct busy *b, tier_block block)
{
	struct tier_completion done[BATCH];
	const struct tier_ask ask = { .size = sizeof(ask), .tier = TIER_CXL };
	uint64_t from = time_now_ns();
	int64_t rc = 0, sum = 0;

	for (uint32_t i = 0; i < BATCH && rc == 0; i++)
		rc = tier_fetch_start(b->c, &block, 1, &ask);
	if (rc == 0)
		rc = tier_wait(b->t, done, BATCH, BATCH, LONG_NS);
	for (int64_t i = 0; i < rc; i++)
		sum += done[i].result ? done[i].result : (int64_t)done[i].value;
	judge(b, CALL_START, from, rc < 0 ? rc : sum, BATCH);
}

static void keep_one(struct busy *b, tier_block block)
{
	uint64_t from = time_now_ns(), pin = 0;
	int64_t rc = tier_pin(b->c, &block, 1, TIER_CXL, 0, &pin);

	judge(b, CALL_PIN, from, rc, 1);
	from = time_now_ns();
	if (rc >= 0)
		judge(b, CALL_PIN, from, tier_unpin(b->c, pin), 0);
}

static void open_one(struct busy *b)
{
	uint64_t from = time_now_ns();
	tier_context *c = NULL;
	int rc = tier_context_open(b->t, "kv", NULL, &c);

	judge(b, CALL_OPEN, from, rc, 0);
	tier_context_close(c);
}

static void one_round(struct busy *b, uint32_t n, uint8_t *data)
{
	tier_key key = world_key(n);
	struct tier_found found;
	tier_block block = { 0 };
	uint64_t from = time_now_ns();

	world_fill(data, n);
	judge(b, CALL_PUT, from, tier_put_copy(b->c, &key, 1, data, NULL), 1);
	memset(&found, 0, sizeof(found));
	from = time_now_ns();
	judge(b, CALL_MATCH, from, tier_match(b->c, &key, 1, &found), 1);
	block = found.block;
	from = time_now_ns();
	judge(b, CALL_FETCH, from, tier_fetch(b->c, &block, 1, NULL), 1);
	read_one(b, n, block);
	if (!b->shares)
		start_some(b, block);
	keep_one(b, block);
	if (n % 16 == 0)
		open_one(b);
	if (n % 7 == 0) {
		from = time_now_ns();
		judge(b, CALL_DELETE, from, tier_delete(b->c, &key, 1), 1);
	}
}

static void *busy_run(void *arg)
{
	struct busy *b = arg;
	uint8_t *data = malloc(BLOCK_BYTES);

	for (uint32_t i = 0; !atomic_load(&b->stop); i++) {
		one_round(b, b->first + i % KEYS, data);
		atomic_fetch_add(&b->rounds, 1);
	}
	free(data);
	return NULL;
}

/* t: NULL = a connection of its own. */
static void busy_begin(struct busy *b, struct world *w, uint32_t first, tier *t)
{
	*b = (struct busy){ .w = w, .first = first, .shares = t,
			    .t = t ? t : world_connect(&w->d) };
	assert_int_equal(tier_context_open(b->t, "kv", NULL, &b->c), 0);
	assert_int_equal(tier_reader_open(b->t, &b->r), 0);
	assert_int_equal(pthread_create(&b->thread, NULL, busy_run, b), 0);
}

/* Until it has gone through all calls again. */
static void busy_await(struct busy *b)
{
	uint32_t want = atomic_load(&b->rounds) + 3;
	uint64_t end = time_now_ns() + LONG_NS;

	while (atomic_load(&b->rounds) < want) {
		assert_true(time_now_ns() < end);
		usleep(500);
	}
}

static void busy_end(struct busy *b)
{
	atomic_store(&b->stop, true);
	pthread_join(b->thread, NULL);
	for (uint32_t i = 0; i < CALL_COUNT; i++)
		print_message("  %-12s longest %.1f ms, wrong %u (%lld)\n", call_name[i],
			      (double)b->longest_ns[i] / 1e6, b->wrong[i], (long long)b->last[i]);
	assert_int_equal(b->bytes, 0);
	for (uint32_t i = 0; i < CALL_COUNT; i++)
		assert_int_equal(b->wrong[i], 0);
	if (!b->shares)
		tier_close(b->t);
}

/* ---- the operator --------------------------------------------------------------------------- */

static void upgrade(struct world *w)
{
	char *text;

	tier_check(w->t);
	if (tier_admin(w->t, "upgrade", NULL, &text))
		fail_msg("upgrade: %s", tier_error_text());
	free(text);
}

static uint64_t handed_over(struct world *w)
{
	uint64_t blocks, end = time_now_ns() + LONG_NS;
	json_t *status;
	char *text;

	while (tier_check(w->t) != 1) /* attached to the next daemon */
		assert_true(time_now_ns() < end);
	if (tier_admin(w->t, "status", NULL, &text))
		fail_msg("status: %s", tier_error_text());
	status = json_loads(text, 0, NULL);
	free(text);
	blocks = (uint64_t)json_integer_value(
		json_object_get(json_object_get(status, "handover"), "blocks"));
	json_decref(status);
	return blocks;
}

static uint64_t pinned(struct world *w)
{
	json_t *status;
	uint64_t pins;
	char *text;

	assert_int_equal(tier_admin(w->t, "status", NULL, &text), 0);
	status = json_loads(text, 0, NULL);
	free(text);
	assert_non_null(json_object_get(status, "pins"));
	pins = (uint64_t)json_integer_value(json_object_get(status, "pins"));
	json_decref(status);
	return pins;
}

static void test_no_request_fails(void **state)
{
	struct world *w = world_begin(never_written);
	struct busy busy[3];

	*state = w;
	busy_begin(&busy[0], w, 0, NULL);
	busy_begin(&busy[1], w, KEYS, NULL);
	busy_begin(&busy[2], w, 2 * KEYS, busy[1].t);
	for (uint32_t i = 0; i < UPGRADES; i++) {
		for (uint32_t k = 0; k < 3; k++)
			busy_await(&busy[k]);
		upgrade(w);
		assert_true(handed_over(w) > 0);
	}
	for (uint32_t k = 0; k < 3; k++)
		busy_await(&busy[k]);
	for (uint32_t k = 3; k-- > 0;)
		busy_end(&busy[k]);
	daemon_check(&w->d);
}

static void write_at(const tier_object *o, off_t at, const char *text)
{
	assert_int_equal(pwrite(tier_object_fd(o), text, strlen(text), at), strlen(text));
}

static void objects_begin(tier *t, tier_object **object)
{
	assert_int_equal(tier_object_context(t, "files", NULL), 0);
	assert_int_equal(tier_object_create(t, "files", "begun", NULL, &object[0]), 0);
	assert_int_equal(tier_object_create(t, "files", "not", NULL, &object[1]), 0);
	write_at(object[0], 1 << 20, "before"); /* behind a hole */
}

static void objects_end(tier *t, tier_object **object)
{
	char text[6];
	int fd;

	write_at(object[0], 5 << 20, "behind");
	assert_int_equal(tier_object_commit(object[0]), 0);
	tier_object_abort(object[1]);
	fd = tier_object_open(t, "files", "begun", LONG_NS);
	assert_true(fd >= 0);
	assert_int_equal(lseek(fd, 0, SEEK_END), (5 << 20) + sizeof(text));
	assert_int_equal(pread(fd, text, sizeof(text), 1 << 20), sizeof(text));
	assert_memory_equal(text, "before", sizeof(text));
	assert_int_equal(pread(fd, text, sizeof(text), 5 << 20), sizeof(text));
	assert_memory_equal(text, "behind", sizeof(text));
	close(fd);
	assert_int_equal(tier_object_open(t, "files", "not", LONG_NS), -ENOENT);
}

/* What a daemon promised, the next one keeps; and what a client had begun it ends. */
static void test_what_was_begun_goes_on(void **state)
{
	struct world *w = world_begin(with_objects);
	struct tier_reserve_options want = { .size = sizeof(want), .expected = 8 };
	tier_key key[3] = { world_key(1), world_key(2), world_key(3) };
	struct tier_completion done;
	struct tier_reserved room;
	struct tier_found found;
	uint8_t *data = malloc(BLOCK_BYTES);
	tier_object *object[2];
	tier_put *put[2];
	uint64_t pin;

	*state = w;
	objects_begin(w->t, object);
	world_fill(data, 1);
	assert_int_equal(tier_put_copy(w->c, key, 1, data, NULL), 1);
	assert_int_equal(tier_match(w->c, key, 1, &found), 1);
	assert_int_equal(tier_pin(w->c, &found.block, 1, TIER_CXL, 0, &pin), 1);
	assert_int_equal(tier_reserve(w->c, &want, &room), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct tier_put_options o = { .size = sizeof(o), .reservation = room.id };

		world_fill(data, i + 2);
		assert_int_equal(tier_put_begin(w->c, &key[i + 1], 1, &o, &put[i]), 0);
		for (uint32_t page = 0; page < BLOCK_PAGES; page++)
			memcpy(page < 4 ? tier_put_data(put[i], 0, 0, page / 2, page % 2) :
					  tier_put_data(put[i], 0, 1, page - 4, 0),
			       data + page * 4096, 4096);
	}
	for (uint32_t i = 0; i < 2; i++) {
		upgrade(w);
		assert_int_equal(handed_over(w), i + 1);
		assert_int_equal(tier_put_commit(put[i], i), 0);
		assert_int_equal(tier_wait(w->t, &done, 1, 1, LONG_NS), 1);
		assert_int_equal(done.result, 0);
		assert_int_equal(done.value, 1);
		assert_int_equal(done.user_data, i);
	}
	objects_end(w->t, object);
	assert_int_equal(tier_match(w->c, key, 3, NULL), 3);
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t page = 0; page < BLOCK_PAGES; page++) {
			struct tier_lease lease;

			world_fill(data, i + 1);
			assert_int_equal(tier_lease_key(w->r, w->c, &key[i], page, 0, &lease), 0);
			assert_memory_equal(lease.data, data + page * 4096, 4096);
			tier_release(w->r, &lease);
		}
	daemon_check(&w->d);
	assert_int_equal(pinned(w), 1);
	assert_int_equal(tier_unpin(w->c, pin), 0);
	assert_int_equal(pinned(w), 0);
	assert_int_equal(tier_unpin(w->c, pin), -ENOENT);
	assert_true(tier_reserve_end(w->c, room.id) >= 0);
	assert_int_equal(tier_reserve_end(w->c, room.id), -ENOENT);
	free(data);
}

#define LAYERS 8u
#define LAYER 16384u
#define BLOCKS 24u

/* Blocks of a context with so many layers, in the store and not in memory. */
static tier_context *store_layers(struct world *w, tier_block block[BLOCKS])
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = LAYERS,
					.groups = 1, .page_bytes = LAYER };
	const struct tier_geometry_options o = { .size = sizeof(o), .part_count = 1,
						 .part = &part };
	const struct tier_put_options durable = { .size = sizeof(durable),
						  .flags = TIER_PUT_DURABLE };
	uint8_t *data = malloc(BLOCKS * LAYERS * LAYER);
	struct tier_found found[BLOCKS];
	tier_key key[BLOCKS];
	tier_geometry *g;
	tier_context *c;
	char *text;

	assert_int_equal(tier_geometry_new(&g, &o), 0);
	assert_int_equal(tier_context_create(w->t, "long", g, NULL, &c), 0);
	tier_geometry_free(g);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		key[i] = world_key(i);
		for (uint32_t k = 0; k < LAYERS; k++)
			memset(data + (i * LAYERS + k) * LAYER, (int)(i * 31 + k), LAYER);
	}
	assert_int_equal(tier_put_copy(c, key, BLOCKS, data, &durable), BLOCKS);
	free(data);
	assert_int_equal(tier_match(c, key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		block[i] = found[i].block;
	assert_int_equal(tier_admin(w->t, "evict", "{\"context\":\"long\",\"tier\":\"cxl\"}",
				    &text), 0);
	free(text);
	return c;
}

static void read_layer(struct world *w, tier_context *c, const tier_block *block, uint32_t layer)
{
	const struct tier_selection all = { .blocks = block, .count = BLOCKS, .page = layer };
	struct tier_lease lease[BLOCKS];

	assert_int_equal(tier_lease_blocks(w->r, c, &all, lease), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		for (uint32_t k = 0; k < LAYER; k += 509)
			assert_int_equal(((const uint8_t *)lease[i].data)[k],
					 (uint8_t)(i * 31 + layer));
	tier_release_many(w->r, lease, BLOCKS);
}

/* With two layers of room, so that it is under way each time. */
static void test_a_stream_goes_on(void **state)
{
	struct world *w = world_begin(never_written);
	const struct tier_stream_options o = { .size = sizeof(o), .tier = TIER_CXL,
					       .window_bytes = 2 * BLOCKS * LAYER };
	struct tier_stream_progress p = { .size = sizeof(p) };
	tier_block block[BLOCKS];
	tier_context *c;
	tier_stream *s;

	*state = w;
	c = store_layers(w, block);
	assert_int_equal(tier_stream_open(c, block, BLOCKS, &o, &s), 0);
	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		assert_int_equal(tier_stream_wait(s, layer, 0), BLOCKS);
		read_layer(w, c, block, layer);
		tier_stream_release(s, layer + 1);
		if (layer % 3 != 1)
			continue;
		if (layer == 1) {
			assert_int_equal(tier_stream_look(s, &p), 0);
			assert_int_equal(p.ended, 0);
		}
		upgrade(w);
		(void)handed_over(w); /* few blocks, or none: what was released has gone */
	}
	for (uint64_t end = time_now_ns() + LONG_NS; !p.ended; usleep(1000)) {
		assert_int_equal(tier_stream_look(s, &p), 0);
		assert_true(time_now_ns() < end);
	}
	assert_int_equal(p.result, 0);
	assert_int_equal(p.status, TIER_READY);
	assert_int_equal(p.ready, LAYERS);
	assert_int_equal(p.whole, BLOCKS);
	tier_stream_close(s);
	daemon_check(&w->d);
}

#define MANY 3000u /* more than one event looks at */

/* Recovery drops more blocks, with what is bound to them, than one event would. */
static void test_many_deletions_come_back(void **state)
{
	static const char *const large[] = { "cxl.size=192MiB", "nvme.size=256MiB", NULL };
	struct world *w = world_begin(large);
	tier_key *key = calloc(MANY, sizeof(*key));
	uint8_t *data = calloc(MANY, BLOCK_BYTES);

	*state = w;
	for (uint32_t i = 0; i < MANY; i++)
		key[i] = world_key(i);
	assert_int_equal(tier_put_copy(w->c, key, MANY, data, NULL), MANY);
	free(data);
	assert_int_equal(tier_drain(w->t), 0);
	assert_int_equal(tier_delete(w->c, key, MANY), MANY);
	upgrade(w);
	assert_int_equal(handed_over(w), 0);
	assert_int_equal(tier_match(w->c, key, MANY, NULL), 0);
	free(key);
	daemon_check(&w->d);
}

/* It ends as any crash: calls fail, nothing hangs, what is durable is there. */
static void test_killed_in_the_middle(void **state)
{
	struct world *w = world_begin(never_written);
	const struct tier_put_options durable = { .size = sizeof(durable),
						  .flags = TIER_PUT_DURABLE };
	uint8_t *data = malloc(BLOCK_BYTES);

	*state = w;
	for (uint32_t i = 0; i < KILLS; i++) {
		tier_key key = world_key(i), other = world_key(1000 + i);
		uint64_t end = time_now_ns() + LONG_NS;
		int64_t rc;

		world_fill(data, i);
		assert_int_equal(tier_put_copy(w->c, &key, 1, data, &durable), 1);
		upgrade(w);
		usleep(i * 5000);
		assert_int_equal(kill(w->d.pid, SIGKILL), 0);
		daemon_wait(&w->d);
		rc = tier_put_copy(w->c, &other, 1, data, NULL);
		assert_int_equal(rc, -ENOTCONN);
		daemon_start(&w->d, never_written);
		while (tier_check(w->t) < 0) {
			assert_true(time_now_ns() < end);
			usleep(1000);
		}
		assert_int_equal(tier_put_copy(w->c, &other, 1, data, NULL), 1);
		for (uint32_t k = 0; k <= i; k++) {
			key = world_key(k);
			assert_int_equal(tier_match(w->c, &key, 1, NULL), 1);
		}
		daemon_check(&w->d);
	}
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_no_request_fails, world_end),
		cmocka_unit_test_teardown(test_what_was_begun_goes_on, world_end),
		cmocka_unit_test_teardown(test_a_stream_goes_on, world_end),
		cmocka_unit_test_teardown(test_many_deletions_come_back, world_end),
		cmocka_unit_test_teardown(test_killed_in_the_middle, world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
