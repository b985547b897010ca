/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `tierctl context create`; see context_spec.h. */
#include "tierd/ctl/context_spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/key.h"
#include "libtier/base/units.h"

static int refuse(struct context_spec *spec, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(struct context_spec *spec, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(spec->why, sizeof(spec->why), format, args);
	va_end(args);
	return -EINVAL;
}

void context_spec_init(struct context_spec *spec)
{
	memset(spec, 0, sizeof(*spec));
	spec->options.size = sizeof(spec->options);
	spec->options.flags = TIER_CREATE_EXCLUSIVE;
}

static int digits(const char *text, int base, uint64_t max, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(text, &end, base);
	return errno || *end || *out > max ? -EINVAL : 0;
}

static int take_u32(struct context_spec *spec, const char *option, const char *value, uint32_t *out)
{
	uint64_t number;

	if (digits(value, 10, UINT32_MAX, &number))
		return refuse(spec, "--%s %.32s: write a number", option, value);
	*out = (uint32_t)number;
	return 0;
}

static int kind_of(const char *text, uint32_t *kind)
{
	static const struct {
		const char *name;
		uint32_t kind;
	} kinds[] = { { "dense", TIER_KIND_DENSE },	{ "sparse", TIER_KIND_SPARSE },
		      { "follows", TIER_KIND_FOLLOWS }, { "window", TIER_KIND_WINDOW },
		      { "state", TIER_KIND_STATE },	{ "index", TIER_KIND_INDEX } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(text, kinds[i].name) == 0) {
			*kind = kinds[i].kind;
			return 0;
		}
	return -EINVAL;
}

/* What some kinds say behind the bytes: a window its tokens, what follows a layer its number. */
static int take_part_arg(struct context_spec *spec, struct tier_part *part, const char *value,
			 const char *arg)
{
	bool has_arg = part->kind == TIER_KIND_WINDOW || part->kind == TIER_KIND_FOLLOWS;
	uint64_t number;

	if (!*arg && part->kind == TIER_KIND_WINDOW)
		return refuse(spec,
			      "--part %.64s: write its tokens behind, as "
			      "swa:window:24:8:64KiB:1024",
			      value);
	if (!*arg)
		return 0;
	if (!has_arg || *arg != ':' || digits(arg + 1, 10, UINT32_MAX, &number))
		return refuse(spec,
			      "--part %.64s: a number behind the bytes is a window's tokens or "
			      "the layer that is followed",
			      value);
	part->kind_arg = (uint32_t)number;
	return 0;
}

/* Behind a comma: who needs the part, who has it, where it stands in the model. Each once. */
static int take_part_option(struct context_spec *spec, struct tier_part *part, const char *value,
			    const char *word)
{
	bool last = strncmp(word, "last=", 5) == 0, layer = strncmp(word, "layer=", 6) == 0;
	uint64_t number;

	if (strcmp(word, "replicated") == 0 && !part->shard_rule) {
		part->shard_rule = TIER_SHARD_REPLICATED;
		return 0;
	}
	if (last && !part->hit_rule && !digits(word + 5, 10, UINT32_MAX, &number) && number) {
		part->hit_rule = TIER_HIT_LAST;
		part->hit_arg = (uint32_t)number;
		return 0;
	}
	if (layer && !part->layer_first && !digits(word + 6, 10, UINT16_MAX, &number)) {
		part->layer_first = (uint32_t)number;
		return 0;
	}
	return refuse(spec,
		      "--part %.64s: \"%.24s\" cannot be; behind commas stand last=BLOCKS, "
		      "replicated and layer=NUMBER, each once",
		      value, word);
}

/* "kv:sparse:57:4:64KiB", "swa:window:24:8:64KiB:1024,last=8" */
static int take_part(struct context_spec *spec, const char *value)
{
	char name[24], kind[16], layers[16], groups[16], bytes[32], text[160], *options = text;
	struct tier_part *part = &spec->part[spec->part_count];
	uint64_t layer_count, group_count, page;
	int end = 0;

	if (spec->part_count == CONTEXT_SPEC_PARTS)
		return refuse(spec, "more than %u parts", CONTEXT_SPEC_PARTS);
	if (snprintf(text, sizeof(text), "%s", value) >= (int)sizeof(text))
		return refuse(spec, "--part %.64s...: longer than any part is", value);
	memset(part, 0, sizeof(*part));
	strsep(&options, ",");
	if (sscanf(text, "%23[^:]:%15[^:]:%15[^:]:%15[^:]:%31[^:]%n", name, kind, layers, groups,
		   bytes, &end) != 5 ||
	    digits(layers, 10, UINT32_MAX, &layer_count) ||
	    digits(groups, 10, UINT32_MAX, &group_count))
		return refuse(spec,
			      "--part %.64s: write NAME:KIND:LAYERS:GROUPS:BYTES, as "
			      "kv:sparse:32:8:64KiB",
			      value);
	if (kind_of(kind, &part->kind))
		return refuse(spec,
			      "--part %.64s: kind is dense, sparse, follows, window, state "
			      "or index",
			      value);
	if (units_parse_bytes(bytes, &page) || !page || page > UINT32_MAX)
		return refuse(spec, "--part %.64s: a page of \"%s\" cannot be", value, bytes);
	if (take_part_arg(spec, part, value, text + end))
		return -EINVAL;
	while (options)
		if (take_part_option(spec, part, value, strsep(&options, ",")))
			return -EINVAL;
	snprintf(spec->part_name[spec->part_count], sizeof(spec->part_name[0]), "%s", name);
	part->layers = (uint32_t)layer_count;
	part->groups = (uint32_t)group_count;
	part->page_bytes = (uint32_t)page;
	part->preferred_tier = part->kind == TIER_KIND_INDEX ? TIER_HBM : TIER_CXL;
	spec->part_count++;
	return 0;
}

static int take_quota(struct context_spec *spec, uint32_t number, const char *option,
		      const char *value)
{
	if (strcmp(value, "none") == 0) {
		spec->options.quota[number] = TIER_QUOTA_NONE;
		return 0;
	}
	if (units_parse_bytes(value, &spec->options.quota[number]) || !spec->options.quota[number])
		return refuse(spec, "--%s %.32s: write bytes with a unit (8GiB), or none", option,
			      value);
	return 0;
}

static int take_mode(struct context_spec *spec, const char *value)
{
	uint64_t mode;

	if (digits(value, 8, 0777, &mode) || !mode)
		return refuse(spec, "--mode %.32s: write an octal mode such as 0640", value);
	spec->options.mode = (uint32_t)mode;
	return 0;
}

static int take_word(struct context_spec *spec, const char *option, const char *value, char out[32])
{
	if (!*value || strlen(value) >= 32)
		return refuse(spec, "--%s %.32s: too long, or empty", option, value);
	strcpy(out, value);
	return 0;
}

static int take_number(struct context_spec *spec, const char *option, const char *value)
{
	if (strcmp(option, "block-tokens") == 0)
		return take_u32(spec, option, value, &spec->block_tokens);
	if (strcmp(option, "page-align") == 0)
		return take_u32(spec, option, value, &spec->page_align);
	if (strcmp(option, "blocks-max") != 0)
		return refuse(spec, "no option --%.32s", option);
	if (digits(value, 10, UINT64_MAX - 1, &spec->options.blocks_max))
		return refuse(spec, "--%s %.32s: write a number", option, value);
	return 0;
}

/* One that the library knows; else say which these are. */
static int take_preset(struct context_spec *spec, const char *value)
{
	char names[96] = "";
	const char *name;

	for (uint32_t i = 0; (name = tier_geometry_preset_name(i)) != NULL; i++) {
		size_t used = strlen(names);

		if (strcmp(name, value) == 0)
			return take_word(spec, "preset", value, spec->preset);
		snprintf(names + used, sizeof(names) - used, " %s", name);
	}
	return refuse(spec, "--preset %.32s: there is%s", value, names);
}

int context_spec_set(struct context_spec *spec, const char *option, const char *value)
{
	if (strcmp(option, "preset") == 0)
		return take_preset(spec, value);
	if (strcmp(option, "policy") == 0)
		return take_word(spec, option, value, spec->policy);
	if (strcmp(option, "part") == 0)
		return take_part(spec, value);
	if (strcmp(option, "mode") == 0)
		return take_mode(spec, value);
	if (strcmp(option, "hbm") == 0)
		return take_quota(spec, TIER_HBM, option, value);
	if (strcmp(option, "cxl") == 0)
		return take_quota(spec, TIER_CXL, option, value);
	if (strcmp(option, "nvme") == 0)
		return take_quota(spec, TIER_NVME, option, value);
	if (strcmp(option, "fingerprint") == 0) {
		if (key_parse(spec->options.fingerprint, value))
			return refuse(spec, "--fingerprint: write 64 hex digits");
		return 0;
	}
	return take_number(spec, option, value);
}

int context_spec_check(struct context_spec *spec)
{
	if (!spec->preset[0] && !spec->part_count)
		return refuse(spec, "say --preset NAME or --part ... what a block is made of");
	if (spec->preset[0] && (spec->part_count || spec->block_tokens || spec->page_align))
		return refuse(spec, "--preset says all of the geometry; leave --part, "
				    "--block-tokens and --page-align out");
	if (spec->policy[0])
		spec->options.policy = spec->policy;
	return 0;
}

int context_spec_geometry(const struct context_spec *spec, tier_geometry **out)
{
	struct tier_part part[CONTEXT_SPEC_PARTS];
	const struct tier_geometry_options options = {
		.size = sizeof(options),
		.block_tokens = spec->block_tokens,
		.page_align = spec->page_align,
		.part_count = spec->part_count,
		.part = part,
	};

	if (spec->preset[0])
		return tier_geometry_preset(out, spec->preset);
	memcpy(part, spec->part, sizeof(part));
	for (uint32_t i = 0; i < spec->part_count; i++)
		part[i].name = spec->part_name[i];
	return tier_geometry_new(out, &options);
}
