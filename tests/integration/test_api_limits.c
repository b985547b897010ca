/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of clients and users: what is over one is refused with an error that names it, costs only
 * the one who asked, and is given back when that one lets go. The clients are real other users,
 * because root and the daemon's own user are not counted.
 */
#include "tests/integration/child.h"
#include "tests/integration/front_client.h"
#include "tests/lib/users.h"

#include <tier.h>

#define USER 4321u
#define OTHER 4322u
#define BLOCK_BYTES (6 * 4096u)
#define MANY 64u /* blocks: 384 pages */

static int needs_root(void)
{
	if (users_can_be_others())
		return 0;
	print_message("we cannot become other users\n");
	skip();
	return 1;
}

static int connect_now(tier **t)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = the_daemon.socket,
					  .staging_bytes = 4u << 20, .readers = 2 };

	return tier_connect(t, &o);
}

static tier_context *create(tier *t, const char *name)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = 0644 };
	tier_geometry *g;
	tier_context *c;

	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	CHECK(tier_context_create(t, name, g, &o, &c) == 0);
	tier_geometry_free(g);
	return c;
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	CHECK(tier_key_opaque(&key, &n, sizeof(n), NULL) == 0);
	return key;
}

static void put_many(tier_context *c, uint32_t first, uint32_t count)
{
	uint8_t *data = malloc(count * BLOCK_BYTES);
	tier_key keys[MANY];

	CHECK(count <= MANY && data);
	for (uint32_t i = 0; i < count; i++)
		keys[i] = key_of(first + i);
	for (uint32_t i = 0; i < count * 6; i++)
		memset(data + i * 4096, (int)(first + i / 6), 4096);
	CHECK(tier_put_copy(c, keys, count, data, NULL) == count);
	free(data);
}

/* ---- other users ----------------------------------------------------------------------------- */

static int up[2], down[2]; /* a byte from the child, a byte to it */

static void say(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

static void hear(int fd)
{
	char byte;

	CHECK(read(fd, &byte, 1) == 1);
}

/* In the child: the parent does something now. */
static void your_turn(void)
{
	say(up[1]);
	hear(down[0]);
}

/* Run body as another user; it may call your_turn. The caller waits with must_end. */
static pid_t spawn(uint32_t uid, void (*body)(void))
{
	pid_t pid;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid) {
		close(up[1]); /* a child that fails is heard */
		return pid;
	}
	if (setgid(uid) || setuid(uid))
		_exit(2);
	body();
	_exit(0);
}

static void must_end(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(up[0]);
	close(down[0]);
	close(down[1]);
	assert_int_equal(status, 0);
}

/* The child has come to its your_turn. */
static void wait_turn(void)
{
	char byte;

	assert_int_equal(read(up[0], &byte, 1), 1);
}

static void go_on(void)
{
	assert_int_equal(write(down[1], "x", 1), 1);
}

static int connect_as(uint32_t uid)
{
	int rc = -1;
	tier *t;

	assert_int_equal(seteuid(uid), 0);
	rc = connect_now(&t);
	assert_int_equal(seteuid(0), 0);
	if (rc == 0)
		tier_close(t);
	return rc;
}

/* ---- connections and contexts ---------------------------------------------------------------- */

static void four_connections(void)
{
	tier *t[4];
	int rc = -EUSERS;

	for (uint32_t i = 0; i < 3; i++)
		CHECK(connect_now(&t[i]) == 0);
	CHECK(connect_now(&t[3]) == -EUSERS);
	CHECK(strstr(tier_error_text(), "user.connections"));
	your_turn();
	tier_close(t[2]);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && rc == -EUSERS; i++) {
		rc = connect_now(&t[3]);
		usleep(10000);
	}
	CHECK(rc == 0);
}

static void test_connections_of_a_user(void **state)
{
	pid_t pid;
	tier *t[5];

	(void)state;
	if (needs_root())
		return;
	pid = spawn(USER, four_connections);
	wait_turn();
	assert_int_equal(connect_as(USER), -EUSERS);
	assert_int_equal(connect_as(OTHER), 0);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(connect_now(&t[i]), 0);
	for (uint32_t i = 0; i < 5; i++)
		tier_close(t[i]);
	go_on();
	must_end(pid);
}

static void three_contexts(void)
{
	tier_geometry *g;
	tier_context *c;
	tier *t;

	CHECK(connect_now(&t) == 0);
	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	create(t, "first");
	create(t, "second");
	CHECK(tier_context_create(t, "third", g, NULL, &c) == -EDQUOT);
	CHECK(strstr(tier_error_text(), "user.contexts"));
	CHECK(tier_context_create(t, "second", g, NULL, &c) == 0); /* that is none more */
	CHECK(tier_context_remove(t, "first") == 0);
	create(t, "third");
	CHECK(tier_context_remove(t, "second") == 0);
	CHECK(tier_context_remove(t, "third") == 0);
}

static void test_contexts_of_a_user(void **state)
{
	(void)state;
	if (!needs_root())
		must_end(spawn(USER, three_contexts));
}

/* ---- pins, puts, requests -------------------------------------------------------------------- */

static void pins_and_puts(void)
{
	struct tier_found found;
	tier_key key[4];
	uint64_t pin[3], one_more;
	tier_context *c;
	tier_put *p[3];
	tier *t;

	CHECK(connect_now(&t) == 0);
	c = create(t, "mine");
	put_many(c, 0, 1);
	for (uint32_t i = 0; i < 4; i++)
		key[i] = key_of(i);
	CHECK(tier_match(c, key, 1, &found) == 1);
	for (uint32_t i = 0; i < 3; i++)
		CHECK(tier_pin(c, &found.block, 1, TIER_CXL, 0, &pin[i]) == 1);
	CHECK(tier_pin(c, &found.block, 1, TIER_CXL, 0, &one_more) == -EDQUOT);
	CHECK(strstr(tier_error_text(), "client.pins"));
	CHECK(tier_unpin(c, pin[1]) == 0);
	CHECK(tier_pin(c, &found.block, 1, TIER_CXL, 0, &one_more) == 1);
	for (uint32_t i = 0; i < 2; i++)
		CHECK(tier_put_begin(c, &key[i + 1], 1, NULL, &p[i]) == 0);
	CHECK(tier_put_begin(c, &key[3], 1, NULL, &p[2]) == -EDQUOT);
	CHECK(strstr(tier_error_text(), "client.puts"));
	tier_put_abort(p[0]);
	CHECK(tier_put_begin(c, &key[3], 1, NULL, &p[2]) == 0);
	tier_put_abort(p[1]);
	tier_put_abort(p[2]);
	CHECK(tier_context_remove(t, "mine") == 0);
}

static void test_pins_and_puts_of_a_client(void **state)
{
	(void)state;
	if (!needs_root())
		must_end(spawn(USER, pins_and_puts));
}

/* More than the limit wait in the ring, and all are answered. */
static void many_requests(void)
{
	struct tier_completion done[64];
	struct tier_found found;
	tier_key key = key_of(0);
	tier_context *c;
	uint32_t got = 0;
	tier *t;

	CHECK(connect_now(&t) == 0);
	c = create(t, "mine");
	put_many(c, 0, 1);
	CHECK(tier_match(c, &key, 1, &found) == 1);
	for (uint32_t i = 0; i < 500; i++)
		CHECK(tier_fetch_start(c, &found.block, 1, ASK(TIER_HBM, .user_data = i)) == 0);
	while (got < 500) {
		int n = tier_wait(t, done, 1, 64, PATIENCE_MS * NS_PER_MS);

		CHECK(n > 0);
		got += (uint32_t)n;
	}
	CHECK(tier_context_remove(t, "mine") == 0);
}

static void test_requests_of_a_client(void **state)
{
	(void)state;
	if (!needs_root())
		must_end(spawn(USER, many_requests));
}

/* ---- leases that are never given back -------------------------------------------------------- */

/* Lease every page of the owner's blocks; returns how many. */
static uint32_t lease_all(tier *t, tier_context *c, uint32_t first, struct tier_lease *lease)
{
	tier_reader *r;
	uint32_t n = 0;

	CHECK(tier_reader_open(t, &r) == 0);
	for (uint32_t i = 0; i < MANY; i++) {
		tier_key key = key_of(first + i);

		for (uint32_t page = 0; page < 6; page++)
			n += tier_lease_key(r, c, &key, page, 0, &lease[n]) == 0;
	}
	return n;
}

/* Two connections lease 1.5 MiB each of 64 MiB; 1 % is the limit of one, 4 % that of the user. */
static void hoarder(void)
{
	static struct tier_lease lease[2][MANY * 6];
	uint32_t n[2];
	tier_context *c;
	tier *t;

	for (uint32_t k = 0; k < 2; k++) {
		CHECK(connect_now(&t) == 0);
		CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
		n[k] = lease_all(t, c, k * MANY, lease[k]);
		CHECK(n[k] == MANY * 6);
	}
	your_turn(); /* the owner deletes them */
	for (uint32_t k = 0; k < 2; k++)
		for (uint32_t i = 0; i < n[k]; i++)
			CHECK(*(const uint8_t *)lease[k][i].data == k * MANY + i / 6);
	your_turn();
	for (;;)
		pause();
}

static int64_t quarantined(tier *t)
{
	char *text, *at;
	int64_t bytes = 0;

	CHECK(tier_admin(t, "status", NULL, &text) == 0);
	for (at = text; (at = strstr(at, "\"quarantined\":")); at++)
		bytes += atoll(at + strlen("\"quarantined\":"));
	free(text);
	return bytes;
}

static void delete_all(tier_context *c)
{
	tier_key keys[2 * MANY];

	for (uint32_t i = 0; i < 2 * MANY; i++)
		keys[i] = key_of(i);
	assert_int_equal(tier_delete(c, keys, 2 * MANY), 2 * MANY);
}

static void test_leases_that_are_never_released(void **state)
{
	tier_context *c;
	pid_t pid;
	tier *t;

	(void)state;
	if (needs_root())
		return;
	assert_int_equal(connect_now(&t), 0);
	c = create(t, "shared");
	put_many(c, 0, MANY);
	put_many(c, MANY, MANY);
	pid = spawn(USER, hoarder);
	wait_turn();
	delete_all(c);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 &&
			     !daemon_logged(&the_daemon, "quarantine.percent"); i++)
		usleep(10000);
	assert_true(daemon_logged(&the_daemon, "more evicted memory than quarantine.percent"));
	go_on();
	wait_turn(); /* nothing changed under the leases, though the connections are over */
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && quarantined(t) != 2 * MANY * BLOCK_BYTES; i++)
		usleep(10000);
	assert_int_equal(quarantined(t), 2 * MANY * BLOCK_BYTES);
	/*
	 * Over four times the limit the user cannot come back, once a round of scans has seen all
	 * of it (the first one may have met half); others can, and have room.
	 */
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && connect_as(USER) == 0; i++)
		usleep(10000);
	assert_int_equal(connect_as(USER), -EDQUOT);
	assert_non_null(strstr(tier_error_text(), "quarantine.percent"));
	assert_int_equal(connect_as(OTHER), 0);
	put_many(c, 0, MANY);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && quarantined(t); i++)
		usleep(10000);
	assert_int_equal(quarantined(t), 0);
	assert_int_equal(connect_as(USER), 0);
	tier_close(t);
}

/* ---- told ------------------------------------------------------------------------------------ */

/* What was set is what counts, and what an operator is told. */
static void test_limits_are_told(void **state)
{
	static const char *const said[] = { "\"user_connections\":3", "\"user_contexts\":2",
					    "\"client_pins\":3", "\"client_puts\":2",
					    "\"client_requests\":4", "\"quarantine_percent\":1" };
	char *text;
	tier *t;

	(void)state;
	assert_int_equal(connect_now(&t), 0);
	assert_int_equal(tier_admin(t, "status", NULL, &text), 0);
	for (size_t i = 0; i < COUNT(said); i++)
		assert_non_null(strstr(text, said[i]));
	free(text);
	tier_close(t);
}

/* ---- what can never be ----------------------------------------------------------------------- */

/* A block as large as the arena does not fit beside its own key. */
static void test_a_block_as_large_as_the_arena(void **state)
{
	struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 4,
				  .groups = 1, .page_bytes = 1u << 20 };
	struct tier_geometry_options g = { .size = sizeof(g), .part_count = 1, .part = &part };
	struct tier_context_options o = { .size = sizeof(o) };
	static uint8_t data[4u << 20];
	tier_key key = key_of(1);
	tier_geometry *geometry;
	tier_context *c;
	tier_put *put;
	tier *t;

	(void)state;
	assert_int_equal(connect_now(&t), 0);
	assert_int_equal(tier_geometry_new(&geometry, &g), 0);
	o.quota[TIER_NVME] = TIER_QUOTA_NONE;
	assert_int_equal(tier_context_create(t, "large", geometry, &o, &c), 0);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t begun = time_now_ns();

		assert_int_equal(i ? tier_put_begin(c, &key, 1, NULL, &put) :
				     tier_put_copy(c, &key, 1, data, NULL), -ENOBUFS);
		assert_true(time_now_ns() - begun < 10 * NS_PER_S); /* it was waited for */
		assert_non_null(strstr(tier_error_text(), "staging_bytes"));
	}
	assert_int_equal(tier_context_remove(t, "large"), 0);
	tier_geometry_free(geometry);
	tier_close(t);
}

/* Keys are digests: an index holds 72 that begin alike, and says so of the next. */
static void test_keys_that_begin_alike(void **state)
{
	static uint8_t data[BLOCK_BYTES];
	tier_context *c;
	int64_t rc = 1;
	uint32_t n = 0;
	tier *t;

	(void)state;
	assert_int_equal(connect_now(&t), 0);
	c = create(t, "alike");
	for (; n < 100 && rc == 1; n++) {
		tier_key key = { { 1 } };

		key.bytes[31] = (uint8_t)n;
		rc = tier_put_copy(c, &key, 1, data, NULL);
	}
	assert_int_equal(n, 73);
	assert_int_equal(rc, -ENOSPC);
	assert_non_null(strstr(tier_error_text(), "begin with the same 16 bytes"));
	assert_int_equal(tier_context_remove(t, "alike"), 0);
	tier_close(t);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int setup(void **state)
{
	static const char *const extra[] = { "user.connections=3", "user.contexts=2",
					     "client.pins=3", "client.puts=2",
					     "client.requests=4", "quarantine.percent=1",
					     "nvme.size=64MiB", NULL };

	(void)state;
	return the_daemon_begin(extra);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connections_of_a_user),
		cmocka_unit_test(test_contexts_of_a_user),
		cmocka_unit_test(test_pins_and_puts_of_a_client),
		cmocka_unit_test(test_requests_of_a_client),
		cmocka_unit_test(test_leases_that_are_never_released),
		cmocka_unit_test(test_limits_are_told),
		cmocka_unit_test(test_a_block_as_large_as_the_arena),
		cmocka_unit_test(test_keys_that_begin_alike),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("limits", tests, setup,
					   the_daemon_teardown);
}
