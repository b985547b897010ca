/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometries and layout descriptors: a preset of the library, or nothing, patched by the input and
 * judged by abi_geometry_check; options as an engine would fill them, through tier_geometry_new;
 * and the words of `tierctl context create`.
 *
 * Must hold: a refusal says why; what is accepted adds up (in 128 bits), and each page of it has a
 * place of its own in a run.
 */
#include <errno.h>
#include <tier.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/src/geometry.h"
#include "tests/fuzz/fuzz.h"
#include "tierd/core/unit/store.h"
#include "tierd/ctl/context_spec.h"

#define BASES 7u /* presets, then nothing */
#define PLACES 4096u

static struct abi_geometry base[BASES];

void fuzz_open(void)
{
	const char *name;

	for (uint32_t i = 0; i + 1 < BASES && (name = tier_geometry_preset_name(i)); i++) {
		tier_geometry *g;

		FUZZ_CHECK(tier_geometry_preset(&g, name) == 0);
		base[i] = g->abi;
		tier_geometry_free(g);
	}
}

/* ---- what must be true ---------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

/* Pages of a run lie apart, inside it. A sample of them, when there are many. */
static void check_places(const struct abi_geometry *g, uint32_t blocks)
{
	static int64_t at[PLACES];
	uint64_t all = (uint64_t)g->pages_per_block * blocks, parts = (1ull << g->part_count) - 1;
	uint64_t step = 1 + all / PLACES, count = 0;
	uint64_t bytes = store_block_bytes(g, parts) * blocks;

	FUZZ_CHECK(store_block_pages(g, parts) == g->pages_per_block);
	FUZZ_CHECK(store_block_bytes(g, parts) == g->block_bytes);
	for (uint64_t i = 0; i < all && count < PLACES; i += step) {
		at[count] = store_run_page(g, parts, blocks, (uint32_t)(i % blocks),
					   (uint32_t)(i / blocks));
		FUZZ_CHECK(at[count] >= 0 && (uint64_t)at[count] < bytes);
		FUZZ_CHECK(at[count] % g->page_align == 0);
		count++;
	}
	qsort(at, count, sizeof(at[0]), by_value);
	for (uint64_t i = 1; i < count; i++)
		FUZZ_CHECK(at[i] - at[i - 1] >= g->page_align);
}

static void check_sums(const struct abi_geometry *g)
{
	unsigned __int128 pages = 0, bytes = 0;

	FUZZ_CHECK(g->part_count > 0 && g->part_count <= ABI_PARTS_MAX && g->block_tokens > 0);
	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *p = &g->part[i];

		FUZZ_CHECK(p->page_base == pages && memchr(p->name, 0, sizeof(p->name)));
		FUZZ_CHECK(p->page_bytes <= p->page_stride && p->page_stride <= ABI_PAGE_BYTES_MAX);
		pages += (unsigned __int128)p->layers * p->groups;
		bytes += (unsigned __int128)p->layers * p->groups * p->page_stride;
	}
	FUZZ_CHECK(pages == g->pages_per_block && pages <= ABI_PAGES_PER_BLOCK_MAX);
	FUZZ_CHECK(bytes == g->block_bytes);
}

static bool judge(const struct abi_geometry *g)
{
	char why[160] = "";
	int rc = abi_geometry_check(g, why, sizeof(why));

	FUZZ_CHECK(rc == 0 || rc == -EINVAL || rc == -E2BIG);
	FUZZ_CHECK(rc == 0 || (why[0] && memchr(why, 0, sizeof(why))));
	for (const char *c = why; *c; c++)
		FUZZ_CHECK(*c >= 0x20 && *c < 0x7f);
	if (rc)
		return false;
	check_sums(g);
	check_places(g, 1);
	check_places(g, 7);
	return true;
}

/* Sums of its own parts: the input then needs to get only the parts right. */
static void add_up(struct abi_geometry *g)
{
	g->pages_per_block = 0;
	g->block_bytes = 0;
	for (uint32_t i = 0; i < g->part_count && i < ABI_PARTS_MAX; i++) {
		struct abi_part *p = &g->part[i];

		p->page_base = g->pages_per_block;
		g->pages_per_block += p->layers * p->groups;
		g->block_bytes += (uint64_t)p->layers * p->groups * p->page_stride;
	}
}

/* ---- options -------------------------------------------------------------------------------- */

static void take_part(struct fuzz_input *in, struct tier_part *part, char name[28])
{
	fuzz_take(in, name, 1 + fuzz_u8(in) % 26);
	*part = (struct tier_part){
		.name = name,
		.kind = fuzz_u8(in),
		.kind_arg = fuzz_u8(in),
		.hit_rule = fuzz_u8(in) & 3,
		.hit_arg = fuzz_u8(in),
		.shard_rule = fuzz_u8(in) & 3,
		.preferred_tier = fuzz_u8(in) & 7,
		.layers = fuzz_u16(in) * 7u,
		.groups = fuzz_u16(in) * 13u,
		.page_bytes = (uint32_t)fuzz_u16(in) << (fuzz_u8(in) & 15),
		.layer_first = fuzz_u8(in),
	};
	part->layout.element_bits = fuzz_u8(in);
	if (part->layout.element_bits)
		fuzz_take(in, &part->layout.order, sizeof(part->layout.order));
	for (uint32_t i = 0; i < 6 && part->layout.element_bits; i++)
		part->layout.stride[i] = fuzz_u16(in);
}

static void try_options(struct fuzz_input *in)
{
	struct tier_part part[ABI_PARTS_MAX + 1];
	char name[ABI_PARTS_MAX + 1][28] = { { 0 } };
	struct tier_geometry_options o = { .size = sizeof(o), .part = part };
	tier_geometry *g = NULL;
	int rc;

	o.part_count = fuzz_u8(in) % (ABI_PARTS_MAX + 2);
	o.block_tokens = fuzz_u16(in);
	o.page_align = fuzz_u16(in);
	for (uint32_t i = 0; i < o.part_count; i++)
		take_part(in, &part[i], name[i]);
	rc = tier_geometry_new(&g, &o);
	FUZZ_CHECK(rc == 0 || rc == -EINVAL || rc == -E2BIG);
	if (rc) {
		FUZZ_CHECK(tier_error_text()[0]);
		return;
	}
	FUZZ_CHECK(judge(&g->abi));
	FUZZ_CHECK(tier_geometry_part_count(g) == o.part_count);
	for (uint32_t i = 0; i < o.part_count; i++) {
		struct tier_part out;

		FUZZ_CHECK(tier_geometry_part(g, i, &out) == 0 && out.layers == part[i].layers);
		FUZZ_CHECK(tier_geometry_page(g, i, out.layers - 1, out.groups - 1) ==
			   (int64_t)out.page_base + (int64_t)out.layers * out.groups - 1);
		FUZZ_CHECK(tier_geometry_page(g, i, out.layers, 0) < 0);
	}
	tier_geometry_free(g);
}

/* ---- words ---------------------------------------------------------------------------------- */

/* What was typed says how each part is needed and shared; nothing else does. */
static void check_parts(const struct context_spec *spec, const struct abi_geometry *g)
{
	FUZZ_CHECK(g->part_count == spec->part_count);
	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct tier_part *said = &spec->part[i];
		const struct abi_part *p = &g->part[i];

		FUZZ_CHECK(p->layers == said->layers && p->layer_first == said->layer_first);
		FUZZ_CHECK((p->hit_rule == ABI_HIT_LAST) == (said->hit_arg != 0));
		FUZZ_CHECK(p->hit_arg == said->hit_arg);
		FUZZ_CHECK((p->shard_rule == ABI_SHARD_REPLICATED) == (said->shard_rule != 0));
	}
}

/* A line an option, its name before the first blank. */
static void try_words(struct fuzz_input *in)
{
	struct context_spec spec;
	tier_geometry *g = NULL;

	context_spec_init(&spec);
	while (in->left) {
		const uint8_t *end = memchr(in->at, '\n', in->left);
		size_t bytes = end ? (size_t)(end - in->at) : in->left;
		char *line = malloc(bytes + 1), *value = line;

		FUZZ_CHECK(line);
		memcpy(line, in->at, bytes);
		line[bytes] = '\0';
		strsep(&value, " ");
		spec.why[0] = '\0';
		if (value && context_spec_set(&spec, line, value))
			FUZZ_CHECK(spec.why[0] && memchr(spec.why, 0, sizeof(spec.why)));
		free(line);
		bytes += end != NULL;
		in->at += bytes;
		in->left -= bytes;
	}
	FUZZ_CHECK(spec.part_count <= CONTEXT_SPEC_PARTS);
	if (context_spec_check(&spec) || context_spec_geometry(&spec, &g))
		return;
	FUZZ_CHECK(judge(&g->abi));
	if (!spec.preset[0])
		check_parts(&spec, &g->abi);
	tier_geometry_free(g);
}

void fuzz_one(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in);
	struct abi_geometry *g;

	if ((how & 160) == 160) {
		try_words(in);
		return;
	}
	if (how & 128) {
		try_options(in);
		return;
	}
	g = malloc(sizeof(*g));
	FUZZ_CHECK(g);
	*g = base[how % BASES];
	fuzz_patch(in, g, sizeof(*g), 1);
	if (how & 64)
		add_up(g);
	judge(g);
	free(g);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_options(struct fuzz_seed *s, uint8_t parts)
{
	fuzz_put_u8(s, 128);
	fuzz_put_u8(s, parts);
	fuzz_put_u16(s, 128);
	fuzz_put_u16(s, 0);
	for (uint8_t i = 0; i < parts; i++) {
		static const uint8_t rest[] = { 2, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 4, 2, 0 };

		fuzz_put_u8(s, 0);
		fuzz_put_u8(s, (uint8_t)('a' + i));
		fuzz_put(s, rest, sizeof(rest));
		fuzz_put(s, "\x10HNC", 4);
		fuzz_put(s, "\0\0\0\0\0\1\0\1\0\1\0\0\0\0\0\0", 17);
	}
}

void fuzz_seeds(void)
{
	static const char words[] = "part kv:dense:2:4:4KiB\n"
				    "part s:state:1:1:1MiB,last=1,replicated,layer=2\n"
				    "part w:window:4:8:64KiB:1024,last=9\nblock-tokens 256\n"
				    "page-align 512\nblocks-max 100\npolicy lru";
	static struct fuzz_seed s;
	struct abi_layout layout = { .form = ABI_LAYOUT_STRIDED, .element = 16, .order = "HNC",
				     .stride = { 32768, 256, 2 } };

	for (uint8_t i = 0; i < BASES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "base-%u", i);
		fuzz_put_u8(&s, i);
		fuzz_seed_end(&s, name);
	}
	fuzz_put_u8(&s, 64);
	fuzz_put_patch(&s, offsetof(struct abi_geometry, part[0].layout), &layout, sizeof(layout));
	fuzz_put_patch(&s, offsetof(struct abi_geometry, part[1]), &base[0].part[0], 56);
	fuzz_put_patch(&s, offsetof(struct abi_geometry, part_count), "\2", 1);
	fuzz_put_patch(&s, offsetof(struct abi_geometry, part[1].name), "other", 6);
	fuzz_seed_end(&s, "layout");
	put_options(&s, 1);
	fuzz_seed_end(&s, "options-1");
	put_options(&s, 16);
	fuzz_seed_end(&s, "options-16");
	fuzz_put_u8(&s, 160);
	fuzz_put(&s, words, sizeof(words) - 1);
	fuzz_seed_end(&s, "words");
	fuzz_put_u8(&s, 160);
	fuzz_put(&s, "preset tiny\nmode 0640\ncxl none\nnvme 8GiB", 40);
	fuzz_seed_end(&s, "words-preset");
}
