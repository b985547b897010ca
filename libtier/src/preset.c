/*
 * Well-known geometries, as a table: adding a model is adding a row.
 *
 * A K/V page of T tokens is 2*T*D*2 bytes in bf16: 64 KiB for T = 128, D = 128. MSA keeps one
 * 128-dimensional bf16 index key a token and sparse layer: 32 KiB a page, the same for every rank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "libtier/src/error.h"
#include "libtier/src/geometry.h"

#define PRESET_PARTS_MAX 3u
#define KV_PAGE (64u << 10)
#define INDEX_PAGE (32u << 10)

struct preset_part {
	const char *name;
	uint32_t kind;
	uint32_t layers;
	uint32_t groups;
	uint32_t page_bytes;
	uint32_t layer_first;
};

static const struct preset {
	const char *name;
	struct preset_part part[PRESET_PARTS_MAX];
} presets[] = {
	{ "llama-3-70b", { { "kv", TIER_KIND_DENSE, 80, 8, KV_PAGE, 0 } } },
	{ "llama-3.1-8b", { { "kv", TIER_KIND_DENSE, 32, 8, KV_PAGE, 0 } } },
	{ "qwen3-30b-a3b", { { "kv", TIER_KIND_DENSE, 48, 4, KV_PAGE, 0 } } },
	{ "msa-109b",
	  { { "dense", TIER_KIND_DENSE, 3, 4, KV_PAGE, 0 },
	    { "sparse", TIER_KIND_SPARSE, 38, 4, KV_PAGE, 3 },
	    { "index", TIER_KIND_INDEX, 38, 1, INDEX_PAGE, 3 } } },
	{ "msa-428b",
	  { { "dense", TIER_KIND_DENSE, 3, 4, KV_PAGE, 0 },
	    { "sparse", TIER_KIND_SPARSE, 57, 4, KV_PAGE, 3 },
	    { "index", TIER_KIND_INDEX, 57, 1, INDEX_PAGE, 3 } } },
	{ "tiny",
	  { { "kv", TIER_KIND_DENSE, 2, 2, 4096, 0 },
	    { "index", TIER_KIND_INDEX, 2, 1, 4096, 0 } } },
};

#define PRESET_COUNT (sizeof(presets) / sizeof(presets[0]))

/* Page layout: K or V, then token, then channel; 16-bit elements. An index page has no K/V pair. */
static void describe_layout(struct tier_layout *layout, const struct preset_part *part)
{
	const uint64_t tokens = 128;

	layout->element_bits = 16;
	if (part->kind == TIER_KIND_INDEX) {
		memcpy(layout->order, "NC", 2);
		layout->stride[0] = part->page_bytes / tokens;
		layout->stride[1] = 2;
	} else {
		memcpy(layout->order, "KNC", 3);
		layout->stride[0] = part->page_bytes / 2;
		layout->stride[1] = part->page_bytes / 2 / tokens;
		layout->stride[2] = 2;
	}
}

int tier_geometry_preset(tier_geometry **out, const char *name)
{
	struct tier_part parts[PRESET_PARTS_MAX] = { { 0 } };
	struct tier_geometry_options options = { .size = sizeof(options), .part = parts };
	const struct preset *preset = NULL;

	if (!out || !name)
		return error_note(-EINVAL, "tier_geometry_preset: out and name must not be NULL");
	*out = NULL;
	for (size_t i = 0; i < PRESET_COUNT; i++)
		if (strcmp(presets[i].name, name) == 0)
			preset = &presets[i];
	if (!preset)
		return error_set(-ENOENT, "geometry: there is no preset \"%.64s\"; "
					  "tier_geometry_preset_name lists them", name);
	for (uint32_t i = 0; i < PRESET_PARTS_MAX && preset->part[i].name; i++) {
		const struct preset_part *from = &preset->part[i];
		bool sidecar = from->kind == TIER_KIND_INDEX;

		parts[i] = (struct tier_part){
			.name = from->name,
			.kind = from->kind,
			.shard_rule = sidecar ? TIER_SHARD_REPLICATED : TIER_SHARD_GROUPS,
			.preferred_tier = sidecar ? TIER_HBM : TIER_CXL,
			.layers = from->layers,
			.groups = from->groups,
			.page_bytes = from->page_bytes,
			.layer_first = from->layer_first,
		};
		describe_layout(&parts[i].layout, from);
		options.part_count = i + 1;
	}
	return tier_geometry_new(out, &options);
}

const char *tier_geometry_preset_name(uint32_t i)
{
	return i < PRESET_COUNT ? presets[i].name : NULL;
}
