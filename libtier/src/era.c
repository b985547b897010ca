/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eras: how a stream of kernels says that it reads, by two words of its reader's area
 * (libtier/abi/hazard.h H4). The words stay those of the attachment in which the era was opened,
 * since graphs have the address of one of them.
 */
#include <assert.h>
#include <errno.h>
#include <tier_kernel.h>

#include "libtier/src/error.h"
#include "libtier/src/reader.h"

static int check(const tier_reader *r, bool open)
{
	if (!r)
		return error_note(-EINVAL, "era: reader is NULL");
	if (connection_orphaned(r->alive))
		return error_note(-EOWNERDEAD, "the reader belongs to the parent process; connect "
					       "anew after fork");
	if (open && !r->era_area)
		return error_note(-EINVAL, "era: the reader has none; tier_era_open comes first");
	return 0;
}

int tier_era_open(tier_reader *r, uint64_t **done)
{
	const struct attachment *a;
	struct abi_reader *area;
	int rc = check(r, false);

	if (rc)
		return rc;
	if (!done)
		return error_note(-EINVAL, "tier_era_open: done is NULL");
	*done = NULL;
	if (r->era_area)
		return error_note(-EBUSY, "era: the reader has one; close it, or open another "
					  "reader for another stream");
	LOCK_SCOPE(&r->t->lock);
	a = connection_attachment(r->t);
	if (r->index >= a->readers_max)
		return error_note(-EAGAIN, "the daemon was replaced: open the reader anew");
	area = &a->readers[r->index];
	if (atomic_load_acquire_u64(&area->era_done) < atomic_load_relaxed_u64(&area->era_begin))
		return error_note(-EAGAIN, "era: launches of an earlier era have not ended");
	atomic_store_release_u32(&area->owned, 1);
	r->era_area = area;
	/* What a closed era left: both words have the same value, and none is ever lowered. */
	r->era_begin = atomic_load_acquire_u64(&area->era_done);
	atomic_store_release_u64(&area->era_begin, r->era_begin);
	r->era_owed = false;
	atomic_store_release_u64(&r->era_number, a->number);
	*done = &area->era_done;
	return 0;
}

int tier_era_begin(tier_reader *r)
{
	int rc = check(r, true);

	if (rc)
		return rc;
	if (connection_attachment(r->t)->number != r->era_number)
		return error_note(-ESTALE, "era: the daemon was replaced; end the stream, close "
					   "the era and open it anew");
	if (!r->era_owed)
		atomic_store_release_u64(&r->era_area->era_begin, ++r->era_begin);
	r->era_owed = false;
	/* Announced before the launch: a device sees it, whatever the daemon's fence does. */
	full_fence();
	return 0;
}

int tier_era_failed(tier_reader *r)
{
	int rc = check(r, true);

	if (rc)
		return rc;
	if (r->era_owed || r->era_begin == 0)
		return error_note(-EINVAL, "era: no launch was announced since the last failure");
	r->era_owed = true;
	return 0;
}

void era_close(struct tier_reader *r)
{
	if (!r->era_area)
		return;
	/* Nothing runs: if it was not counted, it never will be. */
	atomic_store_release_u64(&r->era_area->era_done, r->era_begin);
	r->era_area = NULL;
	atomic_store_release_u64(&r->era_number, 0);
}

void tier_era_close(tier_reader *r)
{
	if (!r || connection_orphaned(r->alive))
		return;
	era_close(r);
}
