/*
 * Option structs that carry their size first: how an old caller meets a new library, and the
 * reverse.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_OPTIONS_H
#define TIER_SRC_OPTIONS_H

#include <stddef.h>

/*
 * Fill own (own_bytes, its first member a size_t) from the caller's struct; NULL = all defaults.
 * What the caller's older struct lacks is zero; what a newer one has beyond ours must be zero.
 * Errors: -EINVAL the size is not set, -E2BIG a member that we do not know is used.
 */
int options_read(void *own, size_t own_bytes, const void *from);

#endif
