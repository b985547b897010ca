/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tierctl context create` was asked for: parsed option by option, checked as a whole, then
 * turned into a geometry. Separate from the command so that tests can feed it.
 */
#ifndef TIERD_CTL_CONTEXT_SPEC_H
#define TIERD_CTL_CONTEXT_SPEC_H

#include "tier.h"

#define CONTEXT_SPEC_PARTS 16u
#define CONTEXT_SPEC_WHY 200u

struct context_spec {
	char preset[32]; /* empty = parts */
	struct tier_part part[CONTEXT_SPEC_PARTS];
	char part_name[CONTEXT_SPEC_PARTS][24];
	uint32_t part_count;
	uint32_t block_tokens;
	uint32_t page_align;
	char policy[32];
	struct tier_context_options options;
	char why[CONTEXT_SPEC_WHY]; /* of the last -EINVAL */
};

void context_spec_init(struct context_spec *spec);

/*
 * One option: preset, part ("name:kind:layers:groups:bytes[:tokens or layer]", then any of
 * ",last=BLOCKS", ",replicated", ",layer=NUMBER"), block-tokens, page-align, mode, hbm, cxl, nvme
 * ("8GiB" or "none"), blocks-max, fingerprint (64 hex digits), policy. Errors: -EINVAL.
 */
int context_spec_set(struct context_spec *spec, const char *option, const char *value);

/* Does it fit together? Errors: -EINVAL. */
int context_spec_check(struct context_spec *spec);

/* Errors: as tier_geometry_new and tier_geometry_preset. */
int context_spec_geometry(const struct context_spec *spec, tier_geometry **out);

#endif
