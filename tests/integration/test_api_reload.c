/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP under a client: what waits for write-back by the old age is written by the new one, and
 * the client's connection and blocks stay. (reload.sh: which keys are taken, and what is told.)
 */
#include "tests/integration/kv_world.h"

static uint64_t blocks_written(struct world *w)
{
	char *reply, *at;
	uint64_t value;

	assert_int_equal(tier_admin(w->t, "stat", NULL, &reply), 0);
	at = strstr(reply, "\"blocks_written\"");
	assert_non_null(at);
	at = strstr(at, "\"value\":");
	assert_non_null(at);
	value = strtoull(at + strlen("\"value\":"), NULL, 10);
	free(reply);
	return value;
}

static void configure(const char *file, const char *line)
{
	FILE *f = fopen(file, "we");

	assert_non_null(f);
	assert_true(fprintf(f, "%s\n", line) > 0);
	assert_int_equal(fclose(f), 0);
}

static void test_a_new_age_is_in_force(void **state)
{
	static uint8_t data[BLOCK_BYTES];
	const char *tmp = getenv("TMPDIR");
	char file[160], option[200];
	const char *settings[] = { option, NULL };
	uint64_t give_up;
	struct tier_found found;
	struct world *w;
	tier_key key;

	snprintf(file, sizeof(file), "%.90s/reload-%d.conf", tmp ? tmp : "/tmp", getpid());
	snprintf(option, sizeof(option), "--config=%s", file);
	configure(file, "writeback.age = 600s");
	*state = w = world_begin(settings);
	assert_int_equal(tier_key_opaque(&key, "one", 3, NULL), 0);
	assert_int_equal(tier_put_copy(w->c, &key, 1, data, NULL), 1);
	usleep(700000); /* the default age and much more */
	assert_int_equal(blocks_written(w), 0);
	configure(file, "writeback.age = 1ms");
	assert_int_equal(kill(w->d.pid, SIGHUP), 0);
	give_up = time_now_ns() + PATIENCE_MS * NS_PER_MS;
	while (blocks_written(w) == 0) {
		assert_true(time_now_ns() < give_up);
		usleep(5000);
	}
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	assert_int_equal(unlink(file), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_a_new_age_is_in_force, world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
