/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unrelated blocks in one put, through the API and against a live daemon: each is found, leaves and
 * comes back after a restart for itself, also when the put went in several pieces.
 */
#include "tests/integration/kv_world.h"

#define BLOCKS 100u /* two pieces of 64 at most */

static const char *const settings[] = { "hbm.size=0", NULL };

static int setup(void **state)
{
	*state = world_begin(settings);
	return 0;
}

static void name_keys(tier_key key[BLOCKS])
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(tier_key_opaque(&key[i], &i, sizeof(i), NULL), 0);
}

static int64_t put(struct world *w, const tier_key key[BLOCKS], uint32_t flags)
{
	const struct tier_put_options o = { .size = sizeof(o), .flags = flags };
	uint8_t *data = malloc(BLOCKS * BLOCK_BYTES);
	int64_t whole;

	assert_non_null(data);
	for (uint32_t i = 0; i < BLOCKS; i++)
		memset(data + i * BLOCK_BYTES, (int)i, BLOCK_BYTES);
	whole = tier_put_copy(w->c, key, BLOCKS, data, &o);
	free(data);
	return whole;
}

/* How many blocks are there, each with its own bytes? */
static uint32_t there(struct world *w, const tier_key key[BLOCKS])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		struct tier_lease lease;
		struct tier_found found;
		struct tier_page page;

		if (tier_match(w->c, &key[i], 1, &found) != 1)
			continue;
		page = (struct tier_page){ found.block, i % BLOCK_PAGES };
		if (tier_read_pages(w->r, w->c, &page, 1, 0, &lease) != 1) {
			assert_int_equal(tier_match(w->c, &key[i], 1, NULL), 0); /* it left */
			continue;
		}
		assert_int_equal(((const uint8_t *)lease.data)[lease.bytes - 1], i);
		tier_release(w->r, &lease);
		count++;
	}
	return count;
}

static void wait_for(struct world *w, const tier_key key[BLOCKS], uint32_t count)
{
	uint64_t end = time_now_ns() + LONG_NS;

	while (there(w, key) != count && time_now_ns() < end)
		usleep(10000);
	assert_int_equal(there(w, key), count);
}

static void test_each_for_itself(void **state)
{
	struct world *w = *state;
	tier_key key[BLOCKS];

	name_keys(key);
	assert_int_equal(put(w, key, TIER_PUT_APART | TIER_PUT_DURABLE), BLOCKS);
	assert_int_equal(there(w, key), BLOCKS);
	assert_int_equal(tier_delete(w->c, key, 1), 1);
	assert_int_equal(tier_delete(w->c, key + 50, 1), 1);
	wait_for(w, key, BLOCKS - 2);
	usleep(100000); /* what leaves with them would have by now */
	assert_int_equal(there(w, key), BLOCKS - 2);
	kill(w->d.pid, SIGKILL);
	daemon_wait(&w->d);
	daemon_start(&w->d, settings);
	for (uint32_t i = 0; tier_check(w->t) != 1 && i < 500; i++)
		usleep(20000);
	assert_int_equal(there(w, key), BLOCKS - 2);
	assert_int_equal(tier_delete(w->c, key + 1, 1), 1);
	wait_for(w, key, BLOCKS - 3);
	/* A prefix, for comparison: with its first block the others leave. */
	assert_int_equal(tier_delete(w->c, key, BLOCKS), BLOCKS - 3);
	wait_for(w, key, 0);
	assert_int_equal(put(w, key, 0), BLOCKS);
	assert_int_equal(tier_delete(w->c, key, 1), 1);
	wait_for(w, key, 0);
}

static void test_apart_has_no_prefix(void **state)
{
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_APART, .depth = 1 };
	tier_key key[2] = { { { 1 } }, { { 2 } } };
	tier_put *p;

	o.parent = &key[1];
	assert_int_equal(tier_put_begin(w->c, key, 1, &o, &p), -EINVAL);
	o.depth = 0;
	assert_int_equal(tier_put_begin(w->c, key, 1, &o, &p), -EINVAL);
	o.parent = NULL;
	o.replaces = &key[1];
	assert_int_equal(tier_put_begin(w->c, key, 1, &o, &p), -EINVAL);
	o.replaces = NULL;
	assert_int_equal(tier_put_begin(w->c, key, 2, &o, &p), 0);
	tier_put_abort(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_for_itself),
		cmocka_unit_test(test_apart_has_no_prefix),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
