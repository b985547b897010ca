/*
 * Opening, closing and moving readers; see reader.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/reader.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/wait.h"

#define FOLLOW_TRIES 1024
#define HELD_WORDS BITMAP_WORDS(ABI_HAZARD_SLOTS)

static uint32_t slots_held(const struct tier_reader *r)
{
	return ABI_HAZARD_SLOTS - atomic_load_acquire_u32(&r->free_count);
}

bool reader_uses(const struct tier_reader *r, uint64_t number)
{
	uint32_t active = atomic_load_acquire_u32(&r->active);
	uint64_t mine = atomic_load_acquire_u64(&r->number);

	/* A reader of an older attachment that is inside may be about to follow to this one. */
	if (active && mine <= number)
		return true;
	if (mine == number && slots_held(r) > 0)
		return true;
	for (uint32_t i = 0; i < READER_OLD_MAX; i++)
		if (atomic_load_acquire_u64(&r->old[i].number) == number)
			return true;
	return atomic_load_acquire_u64(&r->era_number) == number;
}

void reader_count(const struct tier_reader *r, struct tier_counters *sum)
{
	sum->leases += atomic_load_relaxed_u64(&r->counts.leases);
	sum->lease_not_ready += atomic_load_relaxed_u64(&r->counts.not_ready);
	sum->lease_stale += atomic_load_relaxed_u64(&r->counts.stale);
	sum->lease_retries += atomic_load_relaxed_u64(&r->counts.retries);
}

/* ---- following a re-attach ------------------------------------------------------------------- */

/* Remember which slots are held where, before the area changes. */
static bool keep_old(struct tier_reader *r)
{
	struct reader_old *old = NULL;

	for (uint32_t i = 0; i < READER_OLD_MAX && !old; i++)
		if (r->old[i].number == 0)
			old = &r->old[i];
	if (!old)
		return false;
	/* Held: not on the free stack, and not held in an older area. */
	memset(old->held, 0xff, sizeof(old->held));
	for (uint32_t i = 0; i < r->free_count; i++)
		bitmap_clear(old->held, r->free[i]);
	for (uint32_t i = 0; i < READER_OLD_MAX; i++)
		for (uint32_t w = 0; r->old[i].number != 0 && w < HELD_WORDS; w++)
			old->held[w] &= ~r->old[i].held[w];
	old->count = (uint32_t)bitmap_count(old->held, ABI_HAZARD_SLOTS);
	if (old->count == 0)
		return true;
	old->area = r->area;
	r->old_count++;
	atomic_store_release_u64(&old->number, r->number);
	return true;
}

static bool move_to(struct tier_reader *r, const struct attachment *a)
{
	struct abi_reader *area;

	if (r->index >= a->readers_max || (slots_held(r) > 0 && !keep_old(r)))
		return false;
	area = &a->readers[r->index];
	atomic_store_release_u32(&area->owned, 1);
	atomic_store_release_u32(&area->high_water, r->high_water);
	r->area = area;
	r->access_tail = atomic_load_relaxed_u64(&area->access_tail);
	atomic_store_release_u64(&r->number, a->number);
	return true;
}

const struct map *reader_follow(struct tier_reader *r, struct tier_context *c)
{
	/* The words are replaced one after another: wait for the pair, but not for long. */
	for (int i = 0; i < FOLLOW_TRIES; i++) {
		const struct attachment *a = connection_attachment(r->t);
		const struct map *m = context_map(c);

		if (m->number == a->number) {
			if (r->number != a->number && !move_to(r, a))
				return NULL;
			return m;
		}
		cpu_relax();
	}
	return NULL;
}

bool reader_next(struct tier_reader *r)
{
	struct tier *t = r->t;
	struct attachment *a;

	LOCK_SCOPE(&t->lock);
	a = connection_attachment(t);
	if (!a->dead && ring_closed(&a->ring))
		attach_fail(t, a);
	wait_handover(t);
	a = connection_attachment(t);
	return !a->dead && a->number != r->number && r->number >= t->unbroken;
}

const struct map *reader_enter_cold(struct tier_reader *r, struct tier_context *c, int *error)
{
	const struct map *m;

	if (!r || !c || r->t != c->t) {
		*error = error_note(-EINVAL, "reader or context is NULL, or they are not of the "
					     "same connection");
		return NULL;
	}
	if (connection_orphaned(r->alive)) {
		*error = error_note(-EOWNERDEAD, "the reader belongs to the parent process; "
						 "connect anew after fork");
		return NULL;
	}
	m = reader_follow(r, c);
	if (!m) {
		reader_leave(r);
		*error = error_note(-EAGAIN, "the daemon was replaced: release older leases, or "
					     "open the reader anew");
	}
	return m;
}

struct abi_reader *reader_area_of(struct tier_reader *r, uint32_t slot)
{
	uint32_t held = slots_held(r);

	for (uint32_t i = 0; i < READER_OLD_MAX; i++) {
		struct reader_old *old = &r->old[i];

		if (old->number == 0)
			continue;
		if (bitmap_test(old->held, slot))
			return old->area;
		held -= old->count;
	}
	/* Without a lease in it, the present area may have been let go. */
	return held > 0 ? r->area : NULL;
}

void reader_forget(struct tier_reader *r, uint32_t slot)
{
	for (uint32_t i = 0; i < READER_OLD_MAX; i++) {
		struct reader_old *old = &r->old[i];

		if (old->number == 0 || !bitmap_test(old->held, slot))
			continue;
		bitmap_clear(old->held, slot);
		if (--old->count == 0) {
			r->old_count--;
			atomic_store_release_u64(&old->number, 0);
		}
		return;
	}
}

/* ---- open, close ----------------------------------------------------------------------------- */

static void take_area(struct tier_reader *r, const struct attachment *a)
{
	r->area = &a->readers[r->index];
	r->number = a->number;
	/* Never lowered (H2): a reader before us may have used more. */
	r->high_water = atomic_load_relaxed_u32(&r->area->high_water);
	if (r->high_water > ABI_HAZARD_SLOTS)
		r->high_water = ABI_HAZARD_SLOTS;
	r->access_tail = atomic_load_relaxed_u64(&r->area->access_tail);
	atomic_store_release_u32(&r->area->owned, 1);
}

int tier_reader_open(tier *t, tier_reader **out)
{
	struct tier_reader *r;
	struct attachment *a;
	int rc = connection_check(t);

	if (rc)
		return rc;
	if (!out)
		return error_note(-EINVAL, "tier_reader_open: out is NULL");
	*out = NULL;
	if (posix_memalign((void **)&r, 64, sizeof(*r)) != 0)
		return error_note(-ENOMEM, "reader: out of memory");
	memset(r, 0, sizeof(*r));
	r->t = t;
	r->alive = t->alive;
	r->free_count = ABI_HAZARD_SLOTS;
	/* Slot 0 on top: few leases touch few lines and keep high_water low. */
	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		r->free[i] = (uint16_t)(ABI_HAZARD_SLOTS - 1 - i);
	LOCK_SCOPE(&t->lock);
	a = connection_attachment(t);
	r->index = (uint32_t)bitmap_find_clear(&t->readers_used, a->readers_max, 0);
	if (r->index >= a->readers_max) {
		free(r);
		return error_set(-EAGAIN, "reader: all %u of the connection are open; close one, "
					  "or connect with more", a->readers_max);
	}
	bitmap_set(&t->readers_used, r->index);
	take_area(r, a);
	list_push_back(&t->readers, &r->link);
	*out = r;
	return 0;
}

/* Is the area's memory still mapped? An idle reader's can go while it sleeps. */
static bool is_mapped(struct tier *t, uint64_t number) REQUIRES(t->lock)
{
	if (connection_attachment(t) && connection_attachment(t)->number == number)
		return true;
	list_each(at, &t->old)
		if (list_entry(at, struct attachment, link)->number == number)
			return true;
	return false;
}

static void clear_area(struct abi_reader *area)
{
	for (uint32_t i = 0; i < ABI_HAZARD_SLOTS; i++)
		if (atomic_load_relaxed_u64(&area->slot[i]) != 0)
			atomic_store_release_u64(&area->slot[i], 0);
	atomic_store_release_u32(&area->owned, 0);
}

void tier_reader_close(tier_reader *r)
{
	struct tier *t;

	if (!r || connection_orphaned(r->alive))
		return;
	t = r->t;
	{
		LOCK_SCOPE(&t->lock);
		era_close(r);
		if (is_mapped(t, r->number))
			clear_area(r->area);
		for (uint32_t i = 0; i < READER_OLD_MAX; i++)
			if (r->old[i].number != 0)
				clear_area(r->old[i].area);
		t->reader_counts.leases += r->counts.leases;
		t->reader_counts.not_ready += r->counts.not_ready;
		t->reader_counts.stale += r->counts.stale;
		t->reader_counts.retries += r->counts.retries;
		bitmap_clear(&t->readers_used, r->index);
		list_remove(&r->link);
		attach_reclaim(t);
	}
	free(r);
}
