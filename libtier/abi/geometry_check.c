/*
 * Checks of a geometry; see geometry_check.h. Nothing here may trust a member before it was judged:
 * the bytes can be hostile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/abi/geometry_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Where the verdict is written, and which part is being judged. */
struct verdict {
	char *why;
	size_t why_bytes;
	const struct abi_part *part; /* NULL: the geometry as a whole */
	uint32_t number;
};

static int refuse(const struct verdict *v, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(const struct verdict *v, const char *format, ...)
{
	char text[128];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!v->part)
		snprintf(v->why, v->why_bytes, "geometry: %s", text);
	else if (memchr(v->part->name, '\0', sizeof(v->part->name)))
		snprintf(v->why, v->why_bytes, "part %u (%s): %s", v->number, v->part->name, text);
	else
		snprintf(v->why, v->why_bytes, "part %u: %s", v->number, text);
	return -EINVAL;
}

static bool all_zero(const void *bytes, size_t count)
{
	const uint8_t *at = bytes;

	while (count > 0 && *at == 0) {
		at++;
		count--;
	}
	return count == 0;
}

static int check_name(struct verdict *v, const struct abi_geometry *g)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	const struct abi_part *part = v->part;
	size_t length = strnlen(part->name, sizeof(part->name));

	if (length == sizeof(part->name) || length == 0 || strspn(part->name, allowed) != length) {
		v->part = NULL; /* the name is no text to print */
		return refuse(v, "the name of part %u is not [a-z0-9._-]{1,%u}", v->number,
			      ABI_PART_NAME_BYTES - 1);
	}
	if (!all_zero(part->name + length, sizeof(part->name) - length))
		return refuse(v, "bytes behind the name are not zero");
	for (uint32_t i = 0; i < v->number; i++)
		if (strcmp(g->part[i].name, part->name) == 0)
			return refuse(v, "the name is used twice");
	return 0;
}

static int check_layout(const struct verdict *v, const struct abi_layout *layout)
{
	const size_t strides = sizeof(layout->stride) / sizeof(layout->stride[0]);
	const char *order = (const char *)layout->order;
	size_t letters = strnlen(order, sizeof(layout->order));

	if (layout->form == ABI_LAYOUT_OPAQUE)
		return all_zero(layout, sizeof(*layout)) ?
			       0 :
			       refuse(v, "an opaque layout has members that are not zero");
	if (layout->form != ABI_LAYOUT_STRIDED)
		return refuse(v, "layout form %u is unknown", layout->form);
	if (layout->element == 0 || layout->element > 64)
		return refuse(v, "layout element bits %u are not 1 to 64", layout->element);
	if (letters == 0 || letters > strides)
		return refuse(v, "layout order has %zu letters, not 1 to %zu", letters, strides);
	for (size_t i = 0; i < letters; i++) {
		if (!strchr("LBHNCK", order[i]) || memchr(order, order[i], i))
			return refuse(v, "layout order is not made of L B H N C K, each once");
		if (layout->stride[i] == 0 || layout->stride[i] > ABI_PAGE_BYTES_MAX)
			return refuse(v, "layout stride %zu is out of range", i);
	}
	if (!all_zero(order + letters, sizeof(layout->order) - letters) || layout->reserved != 0 ||
	    !all_zero(layout->stride + letters, (strides - letters) * sizeof(layout->stride[0])))
		return refuse(v, "unused bytes of the layout are not zero");
	return 0;
}

static int check_rules(const struct verdict *v)
{
	const struct abi_part *part = v->part;

	if (part->kind < ABI_KIND_DENSE || part->kind > ABI_KIND_INDEX)
		return refuse(v, "kind %u is unknown", part->kind);
	if (part->kind == ABI_KIND_WINDOW && part->kind_arg == 0)
		return refuse(v, "a window needs its tokens in kind_arg");
	if (part->hit_rule != ABI_HIT_EVERY && part->hit_rule != ABI_HIT_LAST)
		return refuse(v, "hit rule %u is unknown", part->hit_rule);
	if ((part->hit_rule == ABI_HIT_LAST) != (part->hit_arg != 0))
		return refuse(v, "hit_arg %u does not go with hit rule %u", part->hit_arg,
			      part->hit_rule);
	if (part->shard_rule != ABI_SHARD_GROUPS && part->shard_rule != ABI_SHARD_REPLICATED)
		return refuse(v, "shard rule %u is unknown", part->shard_rule);
	if (part->preferred_tier >= ABI_TIER_COUNT)
		return refuse(v, "preferred tier %u is unknown", part->preferred_tier);
	return 0;
}

static int check_sizes(const struct verdict *v, uint32_t page_align, uint64_t page_base)
{
	const struct abi_part *part = v->part;

	if (part->layers == 0 || part->groups == 0)
		return refuse(v, "layers and groups must not be 0");
	if (part->page_bytes == 0 || part->page_bytes > ABI_PAGE_BYTES_MAX)
		return refuse(v, "page_bytes %u is not 1 to %u", part->page_bytes,
			      ABI_PAGE_BYTES_MAX);
	if (part->page_stride < part->page_bytes || part->page_stride % page_align != 0 ||
	    part->page_stride > ABI_PAGE_BYTES_MAX)
		return refuse(v, "page_stride %u is not page_bytes padded to %u (G2)",
			      part->page_stride, page_align);
	if (part->page_base != page_base)
		return refuse(v, "page_base %u is not the sum before it (G1)", part->page_base);
	if (!all_zero(part->reserved, sizeof(part->reserved)))
		return refuse(v, "reserved bytes are not zero");
	return 0;
}

static int check_part(struct verdict *v, const struct abi_geometry *g, uint64_t page_base)
{
	int rc = check_name(v, g);

	if (rc == 0)
		rc = check_rules(v);
	if (rc == 0)
		rc = check_sizes(v, g->page_align, page_base);
	return rc ? rc : check_layout(v, &v->part->layout);
}

static int check_head(const struct verdict *v, const struct abi_geometry *g)
{
	if (g->part_count == 0 || g->part_count > ABI_PARTS_MAX)
		return refuse(v, "part_count %u is not 1 to %u", g->part_count, ABI_PARTS_MAX);
	if (g->block_tokens == 0 || g->block_tokens > 1u << 20)
		return refuse(v, "block_tokens %u is not 1 to %u", g->block_tokens, 1u << 20);
	if (g->page_align != 512 && g->page_align != 1024 && g->page_align != 2048 &&
	    g->page_align != ABI_PAGE_ALIGN)
		return refuse(v, "page_align %u is not 512, 1024, 2048 or %u", g->page_align,
			      ABI_PAGE_ALIGN);
	if (!all_zero(g->reserved, sizeof(g->reserved)) ||
	    !all_zero(&g->part[g->part_count],
		      (ABI_PARTS_MAX - g->part_count) * sizeof(g->part[0])))
		return refuse(v, "reserved bytes or unused parts are not zero");
	return 0;
}

int abi_geometry_check(const struct abi_geometry *g, char *why, size_t why_bytes)
{
	struct verdict v = { .why = why, .why_bytes = why_bytes };
	uint64_t pages = 0;
	uint64_t bytes = 0;
	int rc = check_head(&v, g);

	for (uint32_t i = 0; i < g->part_count && rc == 0; i++) {
		const struct abi_part *part = &g->part[i];
		uint64_t part_pages = (uint64_t)part->layers * part->groups;

		v.part = part;
		v.number = i;
		rc = check_part(&v, g, pages);
		if (rc)
			break;
		pages += part_pages > ABI_PAGES_PER_BLOCK_MAX ? ABI_PAGES_PER_BLOCK_MAX + 1 :
								 part_pages;
		if (pages > ABI_PAGES_PER_BLOCK_MAX) {
			refuse(&v, "more than %u pages a block", ABI_PAGES_PER_BLOCK_MAX);
			return -E2BIG;
		}
		if (part->layer_first > ABI_LAYERS_MAX - part->layers)
			return refuse(&v, "layer_first %u + layers is more than %u (G5)",
				      part->layer_first, ABI_LAYERS_MAX);
		bytes += part_pages * part->page_stride;
	}
	if (rc)
		return rc;
	v.part = NULL;
	if (g->pages_per_block != pages)
		return refuse(&v, "pages_per_block %u is not the sum of the parts (G1)",
			      g->pages_per_block);
	if (g->block_bytes != bytes)
		return refuse(&v, "block_bytes is not the sum of the parts (G3)");
	return 0;
}
