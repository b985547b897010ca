/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a page, made from its block's key and its page number, so that whoever reads a page
 * can tell what must be in it without having kept it. Fast enough that verification does not hide
 * what the service does: 5 GB/s on one core at the least, and the demo prints what it is here. Not
 * a digest: it finds misplaced, stale and torn pages, not an adversary's.
 */
#ifndef TIER_BENCH_TRACE_GEN_H
#define TIER_BENCH_TRACE_GEN_H

#include <stddef.h>
#include <stdint.h>

#include "tier.h"

/* Write the page's bytes to dst, any length and alignment. */
void gen_page(void *dst, size_t bytes, const tier_key *key, uint32_t page);

/*
 * Compare the bytes at src with what the page must hold, reading each once.
 * Returns 0, or -EBADMSG with the offset of the first wrong byte in *bad_at (may be NULL).
 */
int gen_verify(const void *src, size_t bytes, const tier_key *key, uint32_t page, size_t *bad_at);

#endif
