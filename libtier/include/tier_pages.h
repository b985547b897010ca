/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages, and bytes of pages, into a list of places of the caller's: for engines whose blocks do not
 * lie one behind the other. Part of tier.h, which includes it.
 */
#ifndef TIER_PAGES_H
#define TIER_PAGES_H

/* A page, or bytes of one, and where they go. */
struct tier_piece {
	void *to;
	struct tier_page page;
	uint32_t offset; /* of the first byte in the page */
	uint32_t bytes;  /* 0 = to the end of the page */
	uint32_t reserved;
};

/*
 * Copy pieces under leases of its own; one that is not copied leaves its place as it was. error: an
 * entry a piece, 0 or why it was not copied (-EINVAL the page has no such bytes), may be NULL.
 * Returns how many were copied. Does not wait: fetch first. Errors as a whole: as tier_gather.
 */
int tier_scatter(tier_reader *r, tier_context *c, const struct tier_piece *pieces, uint32_t count,
		 int32_t *error);

/*
 * Fetch the pages of pieces (4,096 at most) and copy these, as one request. The copying is done by
 * the thread that takes the completion, before it gets it: value = pieces copied, status READY when
 * that is all of them; error as above, not NULL. Pieces, places, error and the context stay until
 * then. ask as for tier_fetch_pages_start. Errors: also -EAGAIN all readers of the connection are
 * in use (it needs one), -ENOMEM. Any thread.
 */
int tier_load_start(tier_context *c, const struct tier_piece *pieces, uint32_t count,
		    const struct tier_ask *ask, int32_t *error);

#endif
