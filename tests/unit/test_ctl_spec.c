/* SPDX-License-Identifier: Apache-2.0 */
/* What `tierctl context create` takes and refuses, and the geometry that comes of it. */
#include "tierd/ctl/context_spec.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>

static void test_parts(void **state)
{
	struct context_spec spec;
	struct tier_part part;
	tier_geometry *g;

	(void)state;
	context_spec_init(&spec);
	assert_int_equal(context_spec_set(&spec, "part", "kv:sparse:57:4:64KiB"), 0);
	assert_int_equal(context_spec_set(&spec, "part", "index:index:57:1:32KiB"), 0);
	assert_int_equal(context_spec_set(&spec, "block-tokens", "256"), 0);
	assert_int_equal(context_spec_check(&spec), 0);
	assert_int_equal(context_spec_geometry(&spec, &g), 0);
	assert_int_equal(tier_geometry_block_tokens(g), 256);
	assert_int_equal(tier_geometry_part_count(g), 2);
	assert_int_equal(tier_geometry_part(g, 1, &part), 0);
	assert_string_equal(part.name, "index");
	assert_int_equal(part.kind, TIER_KIND_INDEX);
	assert_int_equal(part.preferred_tier, TIER_HBM);
	assert_int_equal(part.page_bytes, 32768);
	tier_geometry_free(g);
}

static void test_parts_of_kinds_that_need_a_number(void **state)
{
	struct context_spec spec;
	struct tier_part part;
	tier_geometry *g;

	(void)state;
	context_spec_init(&spec);
	assert_int_equal(context_spec_set(&spec, "part", "swa:window:24:8:64KiB:1024"), 0);
	assert_int_equal(context_spec_set(&spec, "part", "tail:follows:4:8:64KiB:23"), 0);
	assert_int_equal(context_spec_geometry(&spec, &g), 0);
	assert_int_equal(tier_geometry_part(g, 0, &part), 0);
	assert_int_equal(part.kind, TIER_KIND_WINDOW);
	assert_int_equal(part.kind_arg, 1024);
	assert_int_equal(tier_geometry_part(g, 1, &part), 0);
	assert_int_equal(part.kind_arg, 23);
	tier_geometry_free(g);
}

/* Which blocks need a part, what shards write of it, and where it stands in the model. */
static void test_options_of_parts(void **state)
{
	struct context_spec spec;
	struct tier_part part;
	tier_geometry *g;

	(void)state;
	context_spec_init(&spec);
	assert_int_equal(context_spec_set(&spec, "part", "kv:dense:3:8:64KiB"), 0);
	assert_int_equal(context_spec_set(&spec, "part",
					  "s:state:1:1:1MiB,layer=3,replicated,last=1"), 0);
	assert_int_equal(context_spec_set(&spec, "part", "w:window:4:8:64KiB:1024,last=9"), 0);
	assert_int_equal(context_spec_check(&spec), 0);
	assert_int_equal(context_spec_geometry(&spec, &g), 0);
	assert_int_equal(tier_geometry_part(g, 0, &part), 0);
	assert_int_equal(part.hit_rule, TIER_HIT_EVERY);
	assert_int_equal(part.shard_rule, TIER_SHARD_GROUPS);
	assert_int_equal(part.layer_first, 0);
	assert_int_equal(tier_geometry_part(g, 1, &part), 0);
	assert_int_equal(part.hit_rule, TIER_HIT_LAST);
	assert_int_equal(part.hit_arg, 1);
	assert_int_equal(part.shard_rule, TIER_SHARD_REPLICATED);
	assert_int_equal(part.layer_first, 3);
	assert_int_equal(tier_geometry_part(g, 2, &part), 0);
	assert_int_equal(part.kind_arg, 1024);
	assert_int_equal(part.hit_rule, TIER_HIT_LAST);
	assert_int_equal(part.hit_arg, 9);
	assert_int_equal(part.shard_rule, TIER_SHARD_GROUPS);
	tier_geometry_free(g);
}

static void test_options(void **state)
{
	static const char hex[] = "00112233445566778899aabbccddeeff"
				  "00112233445566778899AABBCCDDEEFF";
	struct context_spec spec;

	(void)state;
	context_spec_init(&spec);
	assert_int_equal(context_spec_set(&spec, "preset", "tiny"), 0);
	assert_int_equal(context_spec_set(&spec, "mode", "0640"), 0);
	assert_int_equal(context_spec_set(&spec, "hbm", "none"), 0);
	assert_int_equal(context_spec_set(&spec, "cxl", "1.5GiB"), 0);
	assert_int_equal(context_spec_set(&spec, "blocks-max", "1000"), 0);
	assert_int_equal(context_spec_set(&spec, "policy", "lru"), 0);
	assert_int_equal(context_spec_set(&spec, "fingerprint", hex), 0);
	assert_int_equal(context_spec_check(&spec), 0);
	assert_int_equal(spec.options.mode, 0640);
	assert_true(spec.options.quota[TIER_HBM] == TIER_QUOTA_NONE);
	assert_true(spec.options.quota[TIER_CXL] == UINT64_C(3) << 29);
	assert_int_equal(spec.options.quota[TIER_NVME], 0);
	assert_int_equal(spec.options.blocks_max, 1000);
	assert_int_equal(spec.options.flags, TIER_CREATE_EXCLUSIVE);
	assert_string_equal(spec.options.policy, "lru");
	assert_int_equal(spec.options.fingerprint[31], 0xff);
}

static void test_refused_options_of_parts(void **state)
{
	static const char *const cases[] = {
		"kv:window:1:1:4KiB,last=1",
		"kv:dense:1:1:4KiB,",
		"kv:dense:1:1:4KiB,last",
		"kv:dense:1:1:4KiB,last=",
		"kv:dense:1:1:4KiB,last=0",
		"kv:dense:1:1:4KiB,last=-1",
		"kv:dense:1:1:4KiB,last=4294967296",
		"kv:dense:1:1:4KiB,last=1,last=2",
		"kv:dense:1:1:4KiB,replicated,replicated",
		"kv:dense:1:1:4KiB,replicated=2",
		"kv:dense:1:1:4KiB,layer=65536",
		"kv:dense:1:1:4KiB,last=1:7",
		"kv:dense:1:1,last=1:4KiB",
		"kv:dense:1:1:4KiB,layer=0000000000000000000000000000000000000000000000000"
		"0000000000000000000000000000000000000000000000000000000000000000000000000000000000"
		"00000000000000000000000000000001",
	};
	struct context_spec spec;

	(void)state;
	context_spec_init(&spec);
	for (size_t i = 0; i < COUNT(cases); i++) {
		spec.why[0] = '\0';
		assert_int_equal(context_spec_set(&spec, "part", cases[i]), -EINVAL);
		assert_int_not_equal(strlen(spec.why), 0);
	}
	assert_int_equal(spec.part_count, 0);
}

static void test_refused(void **state)
{
	static const char *const cases[][2] = {
		{ "part", "" },
		{ "part", "kv" },
		{ "part", "kv:sparse:1:1" },
		{ "part", "kv:sparse:1:1:" },
		{ "part", "kv:soft:1:1:4KiB" },
		{ "part", "kv:sparse:-1:1:4KiB" },
		{ "part", "kv:sparse:1:1:0" },
		{ "part", "kv:sparse:1:1:8GiB" },
		{ "part", "kv:sparse:1:1:4KiB:more" },
		{ "part", "kv:sparse:1:1:4KiB:7" },
		{ "part", "kv:window:1:1:4KiB" },
		{ "part", "kv:window:1:1:4KiB:" },
		{ "part", "kv:window:1:1:4KiB:many" },
		{ "part", "a-name-that-is-much-longer-than-any:sparse:1:1:4KiB" },
		{ "mode", "0" },
		{ "mode", "640x" },
		{ "mode", "1777" },
		{ "mode", "999" },
		{ "cxl", "0" },
		{ "cxl", "10%" },
		{ "cxl", "lots" },
		{ "block-tokens", "4294967296" },
		{ "block-tokens", "-1" },
		{ "page-align", "4K" },
		{ "blocks-max", "1e6" },
		{ "fingerprint", "00" },
		{ "policy", "" },
		{ "policy", "a-policy-whose-name-is-of-32-too" },
		{ "preset", "a-name-that-is-much-longer-than-any-preset-is" },
		{ "no-such-option", "1" },
	};
	struct context_spec spec;

	(void)state;
	context_spec_init(&spec);
	for (size_t i = 0; i < COUNT(cases); i++) {
		spec.why[0] = '\0';
		assert_int_equal(context_spec_set(&spec, cases[i][0], cases[i][1]), -EINVAL);
		assert_int_not_equal(strlen(spec.why), 0);
	}
	assert_int_equal(spec.part_count, 0);
	assert_int_equal(context_spec_set(&spec, "policy", "a-policy-whose-name-is-of-31-so"), 0);
	assert_int_equal(context_spec_check(&spec), -EINVAL);
	for (uint32_t i = 0; i < CONTEXT_SPEC_PARTS; i++)
		assert_int_equal(context_spec_set(&spec, "part", "p:dense:1:1:4KiB"), 0);
	assert_int_equal(context_spec_set(&spec, "part", "p:dense:1:1:4KiB"), -EINVAL);
	assert_int_equal(context_spec_set(&spec, "preset", "tiny"), 0);
	assert_int_equal(context_spec_check(&spec), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_parts_of_kinds_that_need_a_number),
		cmocka_unit_test(test_options_of_parts),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_refused_options_of_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
