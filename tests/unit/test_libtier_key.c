/*
 * Keys and fingerprints through the public API: what must agree agrees, what must differ differs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>
#include <tier.h>

#include "tests/lib/unit.h"

static void test_chain_is_the_same_in_any_cut(void **state)
{
	uint32_t tokens[40];
	tier_key all[5], part[5];

	(void)state;
	for (uint32_t i = 0; i < 40; i++)
		tokens[i] = i * 7919;
	assert_int_equal(tier_key_chain(all, NULL, SALT("s", 1), tokens, 40, 8), 0);
	assert_int_equal(tier_key_chain(part, NULL, SALT("s", 1), tokens, 17, 8), 0);
	assert_memory_equal(all, part, 2 * sizeof(tier_key));
	assert_int_equal(tier_key_chain(part, &all[1], SALT("s", 1), tokens + 16, 24, 8), 0);
	assert_memory_equal(all + 2, part, 3 * sizeof(tier_key));
	assert_int_equal(tier_key_chain(part, NULL, SALT("t", 1), tokens, 8, 8), 0);
	assert_memory_not_equal(all, part, sizeof(tier_key));
	assert_int_equal(tier_key_chain(part, NULL, NULL, tokens, 7, 8), 0);
}

static void test_keys_refuse_nonsense(void **state)
{
	uint32_t token = 1;
	tier_key key;

	(void)state;
	assert_int_equal(tier_key_chain(&key, NULL, NULL, &token, 1, 0), -EINVAL);
	assert_int_equal(tier_key_chain(&key, NULL, SALT(NULL, 1), &token, 1, 1), -EINVAL);
	assert_int_equal(tier_key_chain(NULL, NULL, NULL, &token, 1, 1), -EINVAL);
	assert_int_equal(tier_key_chain(&key, NULL, NULL, NULL, 1, 1), -EINVAL);
	assert_int_equal(tier_key_opaque(NULL, "a", 1, NULL), -EINVAL);
	assert_int_equal(tier_key_opaque(&key, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tier_key_opaque(&key, "a", 1, SALT(NULL, 1)), -EINVAL);
	assert_int_equal(tier_key_opaque(&key, NULL, 0, NULL), 0);
}

static void test_names_are_their_own_keys(void **state)
{
	const struct tier_name names[] = { { "a", 1 }, { NULL, 0 }, { "a longer one", 12 } };
	tier_key all[3], one;

	(void)state;
	for (uint32_t salted = 0; salted < 2; salted++) {
		assert_int_equal(tier_key_names(all, names, 3, salted ? SALT("t", 1) : NULL), 0);
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(tier_key_opaque(&one, names[i].bytes, names[i].count,
							 salted ? SALT("t", 1) : NULL), 0);
			assert_memory_equal(&one, &all[i], sizeof(one));
		}
	}
	assert_int_equal(tier_key_names(NULL, NULL, 0, NULL), 0);
	assert_int_equal(tier_key_names(NULL, names, 1, NULL), -EINVAL);
	assert_int_equal(tier_key_names(all, NULL, 1, NULL), -EINVAL);
	assert_int_equal(tier_key_names(all, names, 1, SALT(NULL, 1)), -EINVAL);
	assert_int_equal(tier_key_names(all, &(struct tier_name){ NULL, 1 }, 1, NULL), -EINVAL);
}

static void test_fingerprint_frames_its_members(void **state)
{
	struct tier_fingerprint f[] = {
		{ .size = sizeof(f[0]) },
		{ .size = sizeof(f[0]), .model = "" },
		{ .size = sizeof(f[0]), .model = "ab" },
		{ .size = sizeof(f[0]), .model = "a", .adapter = "b" },
		{ .size = sizeof(f[0]), .adapter = "ab" },
		{ .size = sizeof(f[0]), .elements = "ab" },
		{ .size = sizeof(f[0]), .layout = "ab" },
		{ .size = sizeof(f[0]), .hash = "ab" },
		{ .size = sizeof(f[0]), .block_tokens = 1 },
		{ .size = sizeof(f[0]), .probe = "ab", .probe_bytes = 2 },
		{ .size = sizeof(f[0]), .probe = "ab", .probe_bytes = 1 },
	};
	uint8_t digest[COUNT(f)][32], again[32];

	(void)state;
	for (uint32_t i = 0; i < COUNT(f); i++) {
		assert_int_equal(tier_fingerprint_digest(digest[i], &f[i]), 0);
		assert_int_equal(tier_fingerprint_digest(again, &f[i]), 0);
		assert_memory_equal(digest[i], again, 32);
		for (uint32_t k = 0; k < i; k++)
			assert_memory_not_equal(digest[i], digest[k], 32);
	}
	assert_int_equal(tier_fingerprint_digest(NULL, &f[0]), -EINVAL);
	assert_int_equal(tier_fingerprint_digest(again, NULL), -EINVAL);
	f[0].reserved = 1;
	assert_int_equal(tier_fingerprint_digest(again, &f[0]), -EINVAL);
	f[0] = (struct tier_fingerprint){ .size = sizeof(f[0]), .probe_bytes = 1 };
	assert_int_equal(tier_fingerprint_digest(again, &f[0]), -EINVAL);
	f[0] = (struct tier_fingerprint){ 0 };
	assert_int_equal(tier_fingerprint_digest(again, &f[0]), -EINVAL);
}

static void test_texts(void **state)
{
	(void)state;
	assert_non_null(tier_error_text());
	assert_string_equal(tier_strerror(-ENODATA), tier_strerror(ENODATA));
	assert_string_equal(tier_strerror(0), "success");
	assert_non_null(tier_strerror(INT32_MIN));
	assert_non_null(tier_strerror(INT32_MAX));
	assert_true(tier_version()[0] >= '0' && tier_version()[0] <= '9');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain_is_the_same_in_any_cut),
		cmocka_unit_test(test_keys_refuse_nonsense),
		cmocka_unit_test(test_names_are_their_own_keys),
		cmocka_unit_test(test_fingerprint_frames_its_members),
		cmocka_unit_test(test_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
