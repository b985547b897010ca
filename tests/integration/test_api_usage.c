/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what of a context, told without JSON: the bytes of each salt as they were put, where
 * they are, until they go; to nobody who may not read the context.
 */
#include <unistd.h>

#include "tests/integration/kv_world.h"

#define MOST 16u

static const char *const settings[] = { "hbm.size=0", NULL };

static int setup(void **state)
{
	*state = world_begin(settings);
	return 0;
}

static tier_key key_of(uint64_t salt, uint32_t i)
{
	const uint64_t name[2] = { salt, i };
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, name, sizeof(name), NULL), 0);
	return key;
}

static void put(struct world *w, uint64_t salt, uint32_t blocks)
{
	static uint8_t data[BLOCK_BYTES];

	for (uint32_t i = 0; i < blocks; i++) {
		const struct tier_put_options o = { .size = sizeof(o), .salt = salt };
		tier_key key = key_of(salt, i);

		memset(data, (int)(salt + i), sizeof(data));
		assert_int_equal(tier_put_copy(w->c, &key, 1, data, &o), 1);
	}
}

/* The account of a salt; all zero: it has none. */
static struct tier_usage usage_of(struct world *w, uint64_t salt)
{
	struct tier_usage all[MOST];
	int64_t n = tier_usage_salts(w->t, "kv", all, MOST);

	assert_true(n >= 0 && n <= MOST);
	for (int64_t i = 0; i < n; i++)
		if (all[i].salt == salt && all[i].kind == (salt ? TIER_USAGE_SALT :
								  TIER_USAGE_PUBLIC))
			return all[i];
	return (struct tier_usage){ .uses = 0 };
}

static void test_each_salt_has_its_bytes(void **state)
{
	struct world *w = *state;
	struct tier_usage u, one[1];
	struct tier_found found;
	tier_key key = key_of(7, 0);
	uint64_t pin;

	put(w, 7, 3);
	put(w, UINT64_MAX, 2);
	put(w, 0, 1);
	u = usage_of(w, 7);
	assert_int_equal(u.uses, 3);
	assert_int_equal(u.used[TIER_CXL], 3 * BLOCK_BYTES);
	assert_int_equal(u.used[TIER_HBM], 0);
	assert_int_equal(usage_of(w, UINT64_MAX).used[TIER_CXL], 2 * BLOCK_BYTES);
	assert_int_equal(usage_of(w, 0).used[TIER_CXL], BLOCK_BYTES);
	assert_int_equal(usage_of(w, 8).uses, 0);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	assert_int_equal(tier_pin(w->c, &found.block, 1, TIER_CXL, 0, &pin), 1);
	assert_int_equal(usage_of(w, 7).pinned[TIER_CXL], BLOCK_BYTES);
	assert_int_equal(tier_unpin(w->c, pin), 0);
	assert_int_equal(tier_delete(w->c, &key, 1), 1);
	for (uint64_t end = time_now_ns() + LONG_NS; time_now_ns() < end; usleep(1000))
		if (usage_of(w, 7).used[TIER_CXL] == 2 * BLOCK_BYTES)
			break;
	assert_int_equal(usage_of(w, 7).used[TIER_CXL], 2 * BLOCK_BYTES);
	assert_int_equal(tier_usage_salts(w->t, "kv", one, 1), 1);
	assert_int_equal(tier_usage_salts(w->t, "kv", NULL, 0), 0);
	assert_int_equal(tier_usage_salts(w->t, "kv", NULL, 1), -EINVAL);
	assert_int_equal(tier_usage_salts(w->t, "none", one, 1), -ENOENT);
	assert_int_equal(tier_usage_salts(w->t, "no/name", one, 1), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_salt_has_its_bytes),
	};

	return cmocka_run_group_tests(tests, setup, world_end);
}
