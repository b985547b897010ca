/*
 * The one judge of a geometry that came from somewhere else: an engine's options, a peer's message,
 * a stored catalog. Both sides call it before they believe a number in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_ABI_GEOMETRY_CHECK_H
#define TIER_ABI_GEOMETRY_CHECK_H

#include <stddef.h>

#include "libtier/abi/geometry.h"

/*
 * Check G1 to G4, every range, and that reserved bytes and unused parts are zero.
 * Returns 0, -E2BIG (more than ABI_PAGES_PER_BLOCK_MAX pages a block) or -EINVAL; then why, of
 * why_bytes (> 0), says in words which member of which part is wrong.
 */
int abi_geometry_check(const struct abi_geometry *g, char *why, size_t why_bytes);

#endif
