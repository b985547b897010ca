/*
 * Geometries: the presets' numbers, what is filled in, what is refused, and the check that the
 * daemon shares.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tier.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/src/geometry.h"
#include "tests/lib/unit.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static void test_presets(void **state)
{
	static const struct {
		const char *name;
		uint32_t pages;
		uint64_t block_bytes;
		uint32_t parts;
	} want[] = {
		{ "llama-3-70b", 640, 40 * MIB, 1 },
		{ "llama-3.1-8b", 256, 16 * MIB, 1 },
		{ "qwen3-30b-a3b", 192, 12 * MIB, 1 },
		{ "msa-109b", 41 * 4 + 38, 41 * 256 * KIB + 38 * 32 * KIB, 3 },
		{ "msa-428b", 60 * 4 + 57, 60 * 256 * KIB + 57 * 32 * KIB, 3 },
		{ "tiny", 6, 24 * KIB, 2 },
	};
	tier_geometry *g;

	(void)state;
	for (uint32_t i = 0; i < COUNT(want); i++) {
		char why[160];

		assert_string_equal(tier_geometry_preset_name(i), want[i].name);
		assert_int_equal(tier_geometry_preset(&g, want[i].name), 0);
		assert_int_equal(tier_geometry_pages(g), want[i].pages);
		assert_int_equal(tier_geometry_block_bytes(g), want[i].block_bytes);
		assert_int_equal(tier_geometry_part_count(g), want[i].parts);
		assert_int_equal(tier_geometry_block_tokens(g), 128);
		assert_int_equal(abi_geometry_check(&g->abi, why, sizeof(why)), 0);
		tier_geometry_free(g);
	}
	assert_null(tier_geometry_preset_name(COUNT(want)));
	assert_int_equal(tier_geometry_preset(&g, "gpt-9"), -ENOENT);
	assert_null(g);
	assert_non_null(strstr(tier_error_text(), "gpt-9"));
	assert_int_equal(tier_geometry_preset(&g, NULL), -EINVAL);
	assert_int_equal(tier_geometry_preset(NULL, "tiny"), -EINVAL);
}

static void test_parts_and_pages_of_msa(void **state)
{
	struct tier_part part;
	tier_geometry *g;

	(void)state;
	assert_int_equal(tier_geometry_preset(&g, "msa-428b"), 0);
	assert_int_equal(tier_geometry_part(g, 0, &part), 0);
	assert_string_equal(part.name, "dense");
	assert_int_equal(part.layers, 3);
	assert_int_equal(tier_geometry_part(g, 1, &part), 0);
	assert_int_equal(part.kind, TIER_KIND_SPARSE);
	assert_int_equal(part.layers, 57);
	assert_int_equal(part.groups, 4);
	assert_int_equal(part.page_bytes, 64 * KIB);
	assert_int_equal(part.layer_first, 3);
	assert_int_equal(part.page_base, 12);
	assert_int_equal(part.shard_rule, TIER_SHARD_GROUPS);
	assert_memory_equal(part.layout.order, "KNC", 4);
	assert_int_equal(part.layout.stride[0], 32 * KIB);
	assert_int_equal(part.layout.stride[1], 256);
	assert_int_equal(tier_geometry_part(g, 2, &part), 0);
	assert_string_equal(part.name, "index");
	assert_int_equal(part.layers * part.groups, 57);
	assert_int_equal(part.page_bytes, 32 * KIB);
	assert_int_equal(part.shard_rule, TIER_SHARD_REPLICATED);
	assert_int_equal(part.preferred_tier, TIER_HBM);
	assert_int_equal(part.layer_first, 3);
	assert_int_equal(tier_geometry_part(g, 3, &part), -ENOENT);
	assert_int_equal(tier_geometry_part(g, 0, NULL), -EINVAL);
	assert_int_equal(tier_geometry_part(NULL, 0, &part), -EINVAL);
	assert_int_equal(tier_geometry_page(g, 0, 0, 0), 0);
	assert_int_equal(tier_geometry_page(g, 1, 0, 0), 12);
	assert_int_equal(tier_geometry_page(g, 1, 56, 3), 239);
	assert_int_equal(tier_geometry_page(g, 2, 56, 0), 296);
	assert_int_equal(tier_geometry_page(g, 2, 57, 0), -EINVAL);
	assert_int_equal(tier_geometry_page(g, 2, 0, 1), -EINVAL);
	assert_int_equal(tier_geometry_page(g, 3, 0, 0), -EINVAL);
	assert_int_equal(tier_geometry_page(NULL, 0, 0, 0), -EINVAL);
	assert_int_equal(geometry_part_of(&g->abi, 11), 0);
	assert_int_equal(geometry_part_of(&g->abi, 12), 1);
	assert_int_equal(geometry_part_of(&g->abi, 296), 2);
	tier_geometry_free(g);
	tier_geometry_free(NULL);
	/* The smaller one has its dense layers first, too. */
	assert_int_equal(tier_geometry_preset(&g, "msa-109b"), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(tier_geometry_part(g, i, &part), 0);
		assert_int_equal(part.layer_first, i ? 3 : 0);
	}
	tier_geometry_free(g);
}

static void test_shards(void **state)
{
	struct abi_part part = { .groups = 8, .shard_rule = ABI_SHARD_GROUPS };
	uint32_t first, count, sum = 0;

	(void)state;
	geometry_shard(&part, 0, 0, &first, &count);
	assert_int_equal(first, 0);
	assert_int_equal(count, 8);
	geometry_shard(&part, 3, 4, &first, &count);
	assert_int_equal(first, 6);
	assert_int_equal(count, 2);
	for (uint32_t i = 0; i < 3; i++) {
		geometry_shard(&part, i, 3, &first, &count);
		assert_int_equal(first, sum);
		sum += count;
	}
	assert_int_equal(sum, 8);
	part.shard_rule = ABI_SHARD_REPLICATED;
	geometry_shard(&part, 3, 4, &first, &count);
	assert_int_equal(first, 0);
	assert_int_equal(count, 8);
}

/* A good part, of which each case below spoils one member. */
static struct tier_part good_part(void)
{
	return (struct tier_part){ .name = "kv", .kind = TIER_KIND_DENSE, .layers = 4, .groups = 2,
				   .page_bytes = 5000 };
}

static int make(const struct tier_part *part, uint32_t count, uint32_t align)
{
	const struct tier_geometry_options o = { .size = sizeof(o), .part_count = count,
						 .part = part, .page_align = align };
	tier_geometry *g = NULL;
	int rc = tier_geometry_new(&g, &o);

	assert_int_equal(rc == 0, g != NULL);
	tier_geometry_free(g);
	return rc;
}

static void test_defaults_are_filled_in(void **state)
{
	struct tier_part part = good_part();
	struct tier_geometry_options o = { .size = sizeof(o), .part_count = 1, .part = &part };
	tier_geometry *g;

	(void)state;
	assert_int_equal(tier_geometry_new(&g, &o), 0);
	assert_int_equal(tier_geometry_part(g, 0, &part), 0);
	assert_int_equal(part.page_stride, 8192);
	assert_int_equal(part.hit_rule, TIER_HIT_EVERY);
	assert_int_equal(part.shard_rule, TIER_SHARD_GROUPS);
	assert_int_equal(tier_geometry_block_bytes(g), 8 * 8192);
	assert_int_equal(tier_geometry_block_tokens(g), 128);
	tier_geometry_free(g);
	part = good_part();
	o.page_align = 512;
	assert_int_equal(tier_geometry_new(&g, &o), 0);
	assert_int_equal(tier_geometry_part(g, 0, &part), 0);
	assert_int_equal(part.page_stride, 5120);
	tier_geometry_free(g);
}

static void test_bad_parts_are_refused(void **state)
{
	struct tier_part p = good_part();

	(void)state;
#define REFUSED(member, value, error)                                                              \
	do {                                                                                       \
		p = good_part();                                                                   \
		p.member = (value);                                                                \
		assert_int_equal(make(&p, 1, 0), error);                                           \
	} while (0)
	assert_int_equal(make(&p, 1, 0), 0);
	REFUSED(name, NULL, -EINVAL);
	REFUSED(kind, 0x10000 + TIER_KIND_DENSE, -EINVAL); /* what 16 bits would take for one */
	REFUSED(hit_rule, 0x10000 + TIER_HIT_EVERY, -EINVAL);
	REFUSED(preferred_tier, 0x10000, -EINVAL);
	REFUSED(name, "", -EINVAL);
	REFUSED(name, "Upper", -EINVAL);
	REFUSED(name, "with space", -EINVAL);
	REFUSED(name, "a-name-of-twenty-four-ch", -EINVAL);
	REFUSED(kind, 0, -EINVAL);
	REFUSED(kind, 7, -EINVAL);
	REFUSED(kind, UINT32_MAX, -EINVAL);
	REFUSED(kind, TIER_KIND_WINDOW, -EINVAL);
	REFUSED(hit_rule, 3, -EINVAL);
	REFUSED(hit_rule, TIER_HIT_LAST, -EINVAL);
	REFUSED(hit_rule, 0x10001, -EINVAL);
	REFUSED(hit_arg, 1, -EINVAL);
	REFUSED(shard_rule, 3, -EINVAL);
	REFUSED(preferred_tier, TIER_COUNT, -EINVAL);
	REFUSED(layers, 0, -EINVAL);
	REFUSED(groups, 0, -EINVAL);
	REFUSED(layers, 32769, -E2BIG);
	REFUSED(layers, UINT32_MAX, -E2BIG);
	REFUSED(layer_first, 65536, -EINVAL);
	REFUSED(layer_first, UINT32_MAX, -EINVAL);
	REFUSED(page_bytes, 0, -EINVAL);
	REFUSED(page_bytes, (16u << 20) + 1, -EINVAL);
	REFUSED(page_bytes, UINT32_MAX, -EINVAL);
	REFUSED(layout.element_bits, 16, -EINVAL);
	REFUSED(layout.order[0], 'N', -EINVAL);
	REFUSED(layout.stride[5], 1, -EINVAL);
#undef REFUSED
	p = good_part();
	p.layers = UINT32_MAX;
	p.groups = UINT32_MAX;
	assert_int_equal(make(&p, 1, 0), -E2BIG);
	p = good_part();
	assert_int_equal(make(&p, 0, 0), -EINVAL);
	assert_int_equal(make(&p, 17, 0), -EINVAL);
	assert_int_equal(make(NULL, 1, 0), -EINVAL);
	assert_int_equal(make(&p, 1, 3), -EINVAL);
	assert_int_equal(make(&p, 1, 256), -EINVAL);
	assert_int_equal(make(&p, 1, 1u << 31), -EINVAL);
}

static void test_layouts(void **state)
{
	struct tier_part p = good_part();

	(void)state;
	p.layout = (struct tier_layout){ .element_bits = 16, .order = "KNC",
					 .stride = { 2500, 20, 2 } };
	assert_int_equal(make(&p, 1, 0), 0);
	p.layout.order[1] = 'K';
	assert_int_equal(make(&p, 1, 0), -EINVAL);
	p.layout.order[1] = 'X';
	assert_int_equal(make(&p, 1, 0), -EINVAL);
	p.layout.order[1] = 'N';
	p.layout.stride[2] = 0;
	assert_int_equal(make(&p, 1, 0), -EINVAL);
	p.layout.stride[2] = 2;
	p.layout.element_bits = 65536 + 16;
	assert_int_equal(make(&p, 1, 0), -EINVAL);
	p.layout.element_bits = 8;
	memcpy(p.layout.order, "LBHNCKLB", 8);
	assert_int_equal(make(&p, 1, 0), -EINVAL);
}

static void test_names_are_unique(void **state)
{
	struct tier_part p[2] = { good_part(), good_part() };

	(void)state;
	assert_int_equal(make(p, 2, 0), -EINVAL);
	assert_non_null(strstr(tier_error_text(), "twice"));
	p[1].name = "k";
	assert_int_equal(make(p, 2, 0), 0);
}

static void test_options_by_size(void **state)
{
	struct tier_part part = good_part();
	struct {
		struct tier_geometry_options o;
		uint64_t newer;
	} big = { .o = { .size = sizeof(big), .part_count = 1, .part = &part } };
	tier_geometry *g;

	(void)state;
	assert_int_equal(tier_geometry_new(&g, &big.o), 0);
	tier_geometry_free(g);
	big.newer = 1;
	assert_int_equal(tier_geometry_new(&g, &big.o), -E2BIG);
	big.o.size = 0;
	assert_int_equal(tier_geometry_new(&g, &big.o), -EINVAL);
	big.o.size = SIZE_MAX;
	assert_int_equal(tier_geometry_new(&g, &big.o), -EINVAL);
	assert_int_equal(tier_geometry_new(NULL, &big.o), -EINVAL);
	assert_int_equal(tier_geometry_new(&g, NULL), -EINVAL);
	assert_int_equal(tier_geometry_pages(NULL), 0);
	assert_int_equal(tier_geometry_block_tokens(NULL), 0);
	assert_int_equal(tier_geometry_block_bytes(NULL), 0);
	assert_int_equal(tier_geometry_part_count(NULL), 0);
}

/* Every single byte of a good geometry, changed: refused, or one of the free numbers. */
static void test_check_of_spoilt_bytes(void **state)
{
	struct abi_geometry g;
	tier_geometry *good;
	char why[32];

	(void)state;
	assert_int_equal(tier_geometry_preset(&good, "msa-428b"), 0);
	g = good->abi;
	for (size_t i = 0; i < sizeof(g); i++) {
		uint8_t *byte = (uint8_t *)&g + i;
		uint8_t was = *byte;

		for (uint32_t bit = 0; bit < 8; bit++) {
			*byte = was ^ (uint8_t)(1u << bit);
			why[0] = '\0';
			if (abi_geometry_check(&g, why, sizeof(why)) != 0)
				assert_true(strlen(why) > 0 && strlen(why) < sizeof(why));
			else
				assert_true(i >= 4 && i < 64 + 3 * 192);
			*byte = was;
		}
	}
	assert_int_equal(abi_geometry_check(&g, why, sizeof(why)), 0);
	g.part[2].reserved[63] = 1;
	assert_int_equal(abi_geometry_check(&g, why, sizeof(why)), -EINVAL);
	g = good->abi;
	g.part[0].page_stride += 512;
	g.block_bytes += 512ull * g.part[0].layers * g.part[0].groups;
	assert_int_equal(abi_geometry_check(&g, why, sizeof(why)), -EINVAL);
	g = good->abi;
	g.part[1].page_base++;
	assert_int_equal(abi_geometry_check(&g, why, sizeof(why)), -EINVAL);
	g = good->abi;
	g.block_bytes++;
	assert_int_equal(abi_geometry_check(&g, why, sizeof(why)), -EINVAL);
	tier_geometry_free(good);
}

static void test_check_of_random_bytes(void **state)
{
	struct abi_geometry g;
	uint32_t seed = 12345;
	char why[160];

	(void)state;
	for (uint32_t round = 0; round < 20000; round++) {
		for (size_t i = 0; i < sizeof(g); i++)
			((uint8_t *)&g)[i] = (uint8_t)(seed = seed * 1664525 + 1013904223) >> 3;
		g.part_count = round % 20;
		g.page_align = 4096;
		assert_true(abi_geometry_check(&g, why, sizeof(why)) < 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_presets),
		cmocka_unit_test(test_parts_and_pages_of_msa),
		cmocka_unit_test(test_shards),
		cmocka_unit_test(test_defaults_are_filled_in),
		cmocka_unit_test(test_bad_parts_are_refused),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_names_are_unique),
		cmocka_unit_test(test_options_by_size),
		cmocka_unit_test(test_check_of_spoilt_bytes),
		cmocka_unit_test(test_check_of_random_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
