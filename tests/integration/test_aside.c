/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context of the catalog that cannot be made at a start: it is set aside and told, the others
 * serve, and what it stored and was promised is there again with a start at which it can be made,
 * whatever the others did meanwhile. `tierctl check --remove` ends one, offline.
 */
#include "tests/integration/child.h"
#include "tests/integration/tierctl_json.h"

#define PARTS_BYTES (5u * 262144u) /* of a block of the wide one: two of them want 6.5 MiB of CXL */
#define BLOCKS 6u
#define OTHERS 600u /* blocks of the other one: several times the store's room beside these */

static const char *const large[] = { "cxl.size=32MiB", "nvme.size=64MiB", NULL };
static const char *const small[] = { "cxl.size=6MiB", "nvme.size=64MiB", NULL };

static tier_key key_of(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

static tier *connected(const struct daemon *d)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = 8u << 20 };
	tier *t;

	if (tier_connect(&t, &o))
		fail_msg("%s", tier_error_text());
	return t;
}

static int create_wide(tier *t, tier_context **out)
{
	const struct tier_part part = { .name = "kv", .kind = TIER_KIND_DENSE, .layers = 5,
					.groups = 1, .page_bytes = PARTS_BYTES / 5 };
	const struct tier_geometry_options g = { .size = sizeof(g), .part_count = 1,
						 .part = &part };
	tier_geometry *geometry;
	int rc;

	assert_int_equal(tier_geometry_new(&geometry, &g), 0);
	rc = tier_context_create(t, "wide", geometry, NULL, out);
	tier_geometry_free(geometry);
	return rc;
}

static void fill_wide(tier *t)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	static uint8_t bytes[PARTS_BYTES];
	tier_context *c;

	assert_int_equal(create_wide(t, &c), 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);

		memset(bytes, (int)(0x40 + i), sizeof(bytes));
		assert_int_equal(tier_put_copy(c, &key, 1, bytes, &o), 1);
	}
}

/* Every byte of every block, but of those below `deleted`. */
static void read_wide(tier *t, uint32_t deleted)
{
	tier_context *c;
	tier_reader *r;

	assert_int_equal(tier_context_open(t, "wide", NULL, &c), 0);
	assert_int_equal(tier_reader_open(t, &r), 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);
		struct tier_found found;
		struct tier_lease lease;

		assert_int_equal(tier_match(c, &key, 1, &found), i >= deleted);
		for (uint32_t page = 0; page < 5 && i >= deleted; page++) {
			struct tier_page at = { found.block, page };

			assert_int_equal(tier_read_pages(r, c, &at, 1, 0, &lease), 1);
			for (uint32_t b = 0; b < lease.bytes; b++)
				assert_int_equal(((const uint8_t *)lease.data)[b], 0x40 + i);
			tier_release(r, &lease);
		}
	}
}

/* Another one puts, durably and not, more than the store has room for. */
static void others_put(tier *t)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	static uint8_t bytes[8 * 6 * 4096];
	tier_geometry *g;
	tier_context *c;
	uint64_t done = 0;

	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(t, "tiny", g, NULL, &c), 0);
	tier_geometry_free(g);
	for (uint32_t i = 0; i < OTHERS; i++) {
		tier_key keys[8];
		int64_t put;

		for (uint32_t k = 0; k < 8; k++)
			keys[k] = key_of(1000 + i * 8 + k);
		put = tier_put_copy(c, keys, 8, bytes, i % 8 ? NULL : &o);
		assert_true(put >= 0 || put == -ENOSPC || put == -ETIMEDOUT);
		done += put == 8;
		if (i % 8 == 0 && put == 8)
			assert_int_equal(tier_delete(c, keys, 8), 8);
	}
	assert_true(done > OTHERS / 2);
}

static void told(const struct daemon *d, const char *name, const char *why)
{
	json_t *status = tierctl_json(d, "status");
	const json_t *one = json_array_get(json_at(status, "aside"), 0);

	assert_int_equal(json_array_size(json_at(status, "aside")), 1);
	assert_string_equal(json_string_value(json_at(one, "name")), name);
	if (!strstr(json_string_value(json_at(one, "why")), why))
		fail_msg("%s", json_string_value(json_at(one, "why")));
	json_decref(status);
}

/* tierctl check with these words and the store; its exit status. */
static int check(const struct daemon *d, const char *words, const char *wanted)
{
	const char *build = getenv("BUILD");
	char command[512], said[8192];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), "%s/tierctl check %s %s 2>&1",
		 build ? build : "build/plain", words, d->store);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(said, 1, sizeof(said) - 1, f);
	said[n] = '\0';
	if (!strstr(said, wanted))
		fail_msg("%s: %s", words, said);
	return WEXITSTATUS(pclose(f));
}

static void test_set_aside_and_back(void **state)
{
	struct daemon d;
	tier_context *c;
	tier_key key = key_of(0);
	tier *t;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, large);
	t = connected(&d);
	fill_wide(t);
	assert_int_equal(tier_context_open(t, "wide", NULL, &c), 0);
	assert_int_equal(tier_delete(c, &key, 1), 1); /* a tombstone is to stay, too */
	tier_close(t);
	daemon_stop(&d);

	for (uint32_t round = 0; round < 2; round++) {
		daemon_start(&d, small);
		assert_true(daemon_logged(&d, "it is set aside"));
		told(&d, "wide", "CXL quota");
		t = connected(&d);
		assert_int_equal(tier_context_open(t, "wide", NULL, &c), -ENOENT);
		assert_non_null(strstr(tier_error_text(), "set aside"));
		assert_int_equal(create_wide(t, &c), -EEXIST);
		assert_non_null(strstr(tier_error_text(), "set aside"));
		others_put(t);
		tier_close(t);
		if (round) /* once it is killed, not stopped */
			daemon_stop(&d);
		else {
			assert_int_equal(kill(d.pid, SIGKILL), 0);
			daemon_wait(&d);
		}
		assert_int_equal(check(&d, "--data", "nothing is wrong with it"), 0);
	}

	daemon_start(&d, large);
	t = connected(&d);
	read_wide(t, 1);
	assert_int_equal(tier_context_open(t, "tiny", NULL, &c), 0);
	tier_close(t);
	daemon_stop(&d);
	daemon_remove(&d);
}

static void test_removed_offline(void **state)
{
	struct daemon d;
	tier_context *c;
	json_t *status;
	tier *t;

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, large);
	t = connected(&d);
	fill_wide(t);
	assert_int_not_equal(check(&d, "--remove wide", "a daemon has it"), 0);
	tier_close(t);
	daemon_stop(&d);

	daemon_start(&d, small);
	told(&d, "wide", "CXL quota");
	daemon_stop(&d);
	/* Repairing leaves it; and so does a name that is nobody's. */
	assert_int_equal(check(&d, "--repair", "nothing is wrong with it"), 0);
	assert_int_not_equal(check(&d, "--remove nobody", "names no context nobody"), 0);
	daemon_start(&d, small);
	told(&d, "wide", "CXL quota");
	daemon_stop(&d);

	assert_int_equal(check(&d, "--remove wide", "context wide of user"), 0);
	assert_int_not_equal(check(&d, "--remove wide", "names no context wide"), 0);
	daemon_start(&d, small);
	status = tierctl_json(&d, "status");
	assert_int_equal(json_array_size(json_at(status, "aside")), 0);
	json_decref(status);
	t = connected(&d);
	others_put(t);
	tier_close(t);
	daemon_stop(&d);
	daemon_start(&d, large);
	t = connected(&d);
	assert_int_equal(create_wide(t, &c), 0); /* a new one: it has none of those blocks */
	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);
		struct tier_found found;

		assert_int_equal(tier_match(c, &key, 1, &found), 0);
	}
	tier_close(t);
	daemon_stop(&d);
	daemon_remove(&d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set_aside_and_back),
		cmocka_unit_test(test_removed_offline),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
