/*
 * Fetching pages as a waiting call with its whole answer, for gather.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_ASK_H
#define TIER_SRC_ASK_H

#include "libtier/src/connection.h"

/* tier_fetch_pages for a count that fits one request, with status. Errors: those of submit_call. */
int ask_fetch_pages(tier_context *c, const struct tier_page *pages, uint32_t count,
		    uint64_t deadline_ns, struct tier_completion *out);

#define ASK_BLOCKS_MAX (ABI_ARG_BYTES_MAX / (uint32_t)sizeof(struct abi_block_ref))

/* The part and layer range of an entry. Errors: -EINVAL. */
int ask_range(struct abi_sqe *e, const tier_context *c, const struct tier_range *range);

/* Is the list there and short enough for one request? -EINVAL, with a text. */
int ask_check_list(const char *what, const void *list, uint32_t count, uint32_t count_max);

#define ASK_PAGES_MAX (ABI_ARG_BYTES_MAX / (uint32_t)sizeof(struct abi_page_ref))

#endif
