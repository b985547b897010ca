/*
 * Fetching pages as a waiting call with its whole answer, for gather.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_ASK_H
#define TIER_SRC_ASK_H

#include "libtier/src/session.h"

/* tier_fetch_pages for a count that fits one request, with status. Errors: those of submit_call. */
int ask_fetch_pages(tier_context *c, const struct tier_page *pages, uint32_t count,
		    uint64_t deadline_ns, struct tier_completion *out);

#define ASK_PAGES_MAX (ABI_ARG_BYTES_MAX / (uint32_t)sizeof(struct abi_page_ref))

#endif
