/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be true of the two paths into HBM: a fetch of blocks that are whole in CXL gets them,
 * whatever the device does, as long as copies work; and a block whose page CXL has survives that
 * its bytes on NVMe are rotten. (That what comes is right, and comes once, is model.c's.)
 */
#include "tests/sim/world_priv.h"

static bool whole_in_cxl(struct world *w, const struct abi_block *b, uint32_t context,
			 uint32_t slot)
{
	for (uint32_t page = 0; page < w->context[context].geometry.pages_per_block; page++) {
		uint64_t word = model_desc(w, context, slot, page)->word[ABI_TIER_CXL];

		if (b->parts >> model_page_part(page) & 1 && abi_word_state(word) != ABI_PAGE_READY)
			return false;
	}
	return true;
}

/* By keys: references may be stale, and arguments elsewhere. */
void path_asked(struct world *w, struct ask *a, const struct abi_sqe *sqe)
{
	a->sound = sqe->op == ABI_OP_FETCH && sqe->tier == ABI_TIER_HBM &&
		   sqe->flags & ABI_SQE_KEYS && !a->wild;
	a->copies_failed = w->copies_failed;
	for (uint32_t n = 0; n < a->count && a->sound; n++) {
		uint32_t slot = 0;
		const struct abi_block *b = model_find(w, a->context, a->first + n, &slot);

		a->sound = b && whole_in_cxl(w, b, a->context, slot);
		if (a->sound)
			a->in_cxl[n] = (struct abi_block_ref){ slot, b->generation };
	}
}

void path_answered(struct world *w, const struct ask *a, const struct abi_cqe *cqe)
{
	if (!a->sound || cqe->res || cqe->status != ABI_STATUS_MISS ||
	    a->copies_failed != w->copies_failed)
		return;
	for (uint32_t n = 0; n < a->count; n++) {
		uint32_t slot = 0;
		const struct abi_block *b = model_find(w, a->context, a->first + n, &slot);

		if (!b || slot != a->in_cxl[n].slot || b->generation != a->in_cxl[n].generation ||
		    !whole_in_cxl(w, b, a->context, slot))
			return; /* it was deleted, or written anew */
	}
	world_fail(w, "paths: a fetch of what CXL has is a MISS");
}

/* Does the piece go straight into its page's place in HBM? */
bool path_is_direct(const struct world *w, const struct core_io *io, uint32_t piece)
{
	const struct world_context *x = &w->context[0];
	const uint8_t *at = io->piece[piece].addr;

	return x->made && at >= x->mem[ABI_TIER_HBM] && at < x->mem[ABI_TIER_HBM] + x->hbm_bytes;
}

/* A read straight into HBM, of a page that CXL has: its bytes need not be on NVMe. */
bool path_spares(struct world *w, const struct core_io *io, uint32_t piece)
{
	uint64_t word = model_desc(w, 0, io->priv.slot[piece], io->priv.page[piece])
				->word[ABI_TIER_CXL];

	return path_is_direct(w, io, piece) && abi_word_state(word) == ABI_PAGE_READY;
}
