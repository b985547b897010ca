/*
 * Geometries as the caller sees them, to and from the form in libtier/abi/geometry.h. The judgement
 * of numbers is abi_geometry_check's; this file only fills in what follows from others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/geometry.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"

/* The public constants are the format's: nothing translates between them. */
_Static_assert(TIER_KIND_DENSE == ABI_KIND_DENSE && TIER_KIND_INDEX == ABI_KIND_INDEX, "kinds");
_Static_assert(TIER_HIT_EVERY == ABI_HIT_EVERY && TIER_HIT_LAST == ABI_HIT_LAST, "hit rules");
_Static_assert(TIER_SHARD_GROUPS == ABI_SHARD_GROUPS, "shard rules");
_Static_assert(TIER_SHARD_REPLICATED == ABI_SHARD_REPLICATED, "shard rules");
_Static_assert(TIER_HBM == ABI_TIER_HBM && TIER_CXL == ABI_TIER_CXL, "tiers");
_Static_assert(TIER_NVME == ABI_TIER_NVME && TIER_COUNT == ABI_TIER_COUNT, "tiers");

static bool fits_u16(uint32_t value)
{
	return value <= UINT16_MAX;
}

static void fill_layout(struct abi_layout *to, const struct tier_layout *from)
{
	static const struct tier_layout opaque;

	if (memcmp(from, &opaque, sizeof(opaque)) == 0)
		return;
	to->form = ABI_LAYOUT_STRIDED;
	to->element = fits_u16(from->element_bits) ? (uint16_t)from->element_bits : UINT16_MAX;
	memcpy(to->order, from->order, sizeof(to->order));
	memcpy(to->stride, from->stride, sizeof(to->stride));
}

static int fill_part(struct abi_part *to, const struct tier_part *from, uint32_t number,
		     uint32_t page_align)
{
	size_t length = from->name ? strnlen(from->name, sizeof(to->name)) : 0;

	if (length == 0 || length == sizeof(to->name))
		return error_set(-EINVAL, "part %u: its name has not 1 to %zu characters", number,
				 sizeof(to->name) - 1);
	if (!fits_u16(from->kind) || !fits_u16(from->hit_rule) || !fits_u16(from->shard_rule) ||
	    !fits_u16(from->preferred_tier))
		return error_set(-EINVAL, "part %u (%s): kind, rule or tier is out of range",
				 number, from->name);
	if (from->page_bytes > ABI_PAGE_BYTES_MAX)
		return error_set(-EINVAL, "part %u (%s): page_bytes %u is more than %u", number,
				 from->name, from->page_bytes, ABI_PAGE_BYTES_MAX);
	memcpy(to->name, from->name, length);
	to->kind = (uint16_t)from->kind;
	to->hit_rule = from->hit_rule ? (uint16_t)from->hit_rule : ABI_HIT_EVERY;
	to->shard_rule = from->shard_rule ? (uint16_t)from->shard_rule : ABI_SHARD_GROUPS;
	to->preferred_tier = (uint16_t)from->preferred_tier;
	to->kind_arg = from->kind_arg;
	to->hit_arg = from->hit_arg;
	to->layers = from->layers;
	to->groups = from->groups;
	to->page_bytes = from->page_bytes;
	to->page_stride = (from->page_bytes + page_align - 1) & ~(page_align - 1);
	to->layer_first = from->layer_first;
	fill_layout(&to->layout, &from->layout);
	return 0;
}

/* Sums may wrap here for hostile numbers; the check that follows computes them anew, wider. */
static void fill_sums(struct abi_geometry *g)
{
	for (uint32_t i = 0; i < g->part_count; i++) {
		struct abi_part *part = &g->part[i];
		uint64_t pages = (uint64_t)part->layers * part->groups;

		part->page_base = g->pages_per_block;
		g->pages_per_block += (uint32_t)pages;
		g->block_bytes += pages * part->page_stride;
	}
}

int tier_geometry_new(tier_geometry **out, const struct tier_geometry_options *options)
{
	struct tier_geometry_options o;
	struct tier_geometry *g;
	char why[160];
	int rc;

	if (!out || !options)
		return error_note(-EINVAL, "tier_geometry_new: out and options must not be NULL");
	*out = NULL;
	rc = options_read(&o, sizeof(o), options);
	if (rc)
		return rc;
	if (!o.part || o.part_count == 0 || o.part_count > ABI_PARTS_MAX)
		return error_set(-EINVAL, "geometry: part_count %u is not 1 to %u", o.part_count,
				 ABI_PARTS_MAX);
	g = calloc(1, sizeof(*g));
	if (!g)
		return error_note(-ENOMEM, "geometry: out of memory");
	g->abi.part_count = o.part_count;
	g->abi.block_tokens = o.block_tokens ? o.block_tokens : 128;
	g->abi.page_align = o.page_align ? o.page_align : ABI_PAGE_ALIGN;
	if (g->abi.page_align > ABI_PAGE_ALIGN || (g->abi.page_align & (g->abi.page_align - 1)))
		rc = error_set(-EINVAL, "geometry: page_align %u is not 512, 1024, 2048 or 4096",
			       g->abi.page_align);
	for (uint32_t i = 0; i < o.part_count && rc == 0; i++)
		rc = fill_part(&g->abi.part[i], &o.part[i], i, g->abi.page_align);
	if (rc == 0) {
		fill_sums(&g->abi);
		rc = abi_geometry_check(&g->abi, why, sizeof(why));
		if (rc)
			error_set(rc, "%s", why);
	}
	if (rc) {
		tier_geometry_free(g);
		return rc;
	}
	*out = g;
	return 0;
}

void tier_geometry_free(tier_geometry *g)
{
	free(g);
}

uint32_t tier_geometry_block_tokens(const tier_geometry *g)
{
	return g ? g->abi.block_tokens : 0;
}

uint32_t tier_geometry_pages(const tier_geometry *g)
{
	return g ? g->abi.pages_per_block : 0;
}

uint64_t tier_geometry_block_bytes(const tier_geometry *g)
{
	return g ? g->abi.block_bytes : 0;
}

uint32_t tier_geometry_part_count(const tier_geometry *g)
{
	return g ? g->abi.part_count : 0;
}

int tier_geometry_part(const tier_geometry *g, uint32_t i, struct tier_part *out)
{
	const struct abi_part *part;

	if (!g || !out)
		return error_note(-EINVAL, "tier_geometry_part: a pointer is NULL");
	if (i >= g->abi.part_count)
		return error_set(-ENOENT, "geometry: there is no part %u, only %u", i,
				 g->abi.part_count);
	part = &g->abi.part[i];
	*out = (struct tier_part){
		.name = part->name,
		.kind = part->kind,
		.kind_arg = part->kind_arg,
		.hit_rule = part->hit_rule,
		.hit_arg = part->hit_arg,
		.shard_rule = part->shard_rule,
		.preferred_tier = part->preferred_tier,
		.layers = part->layers,
		.groups = part->groups,
		.page_bytes = part->page_bytes,
		.page_stride = part->page_stride,
		.page_base = part->page_base,
		.layer_first = part->layer_first,
		.layout.element_bits = part->layout.element,
	};
	memcpy(out->layout.order, part->layout.order, sizeof(out->layout.order));
	memcpy(out->layout.stride, part->layout.stride, sizeof(out->layout.stride));
	return 0;
}

int64_t tier_geometry_page(const tier_geometry *g, uint32_t part, uint32_t layer, uint32_t group)
{
	const struct abi_part *p;

	if (!g || part >= g->abi.part_count)
		return error_set(-EINVAL, "geometry: there is no part %u", part);
	p = &g->abi.part[part];
	if (layer >= p->layers || group >= p->groups)
		return error_set(-EINVAL, "part %u (%s): layer %u, group %u is outside %u x %u",
				 part, p->name, layer, group, p->layers, p->groups);
	return p->page_base + (int64_t)layer * p->groups + group;
}

uint32_t geometry_part_of(const struct abi_geometry *g, uint32_t page)
{
	uint32_t part = 0;

	while (part + 1 < g->part_count && page >= g->part[part + 1].page_base)
		part++;
	return part;
}

void geometry_shard(const struct abi_part *part, uint32_t shard, uint32_t shards, uint32_t *first,
		    uint32_t *count)
{
	*first = 0;
	*count = part->groups;
	if (shards == 0 || part->shard_rule == ABI_SHARD_REPLICATED)
		return;
	*first = (uint32_t)((uint64_t)shard * part->groups / shards);
	*count = (uint32_t)((uint64_t)(shard + 1) * part->groups / shards) - *first;
}
