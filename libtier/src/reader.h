/*
 * A reader: one thread's hazard slots in the client region (libtier/abi/hazard.h) and the books
 * about them, which are private: a free stack, so that taking and giving back a slot is a push and
 * a pop, and what is held in areas of earlier attachments. Called by lease.c, the hot path, and by
 * attach.c, which asks from other threads what a reader still needs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_READER_H
#define TIER_SRC_READER_H

#include "libtier/base/bitmap.h"
#include "libtier/src/connection.h"

#define READER_OLD_MAX 4u /* attachments before the present one in which leases are still held */

/* Leases that were taken before a re-attach; their slots are not used anew until released. */
struct reader_old {
	uint64_t number; /* atomic; 0 = unused */
	uint32_t count;
	struct abi_reader *area;
	uint64_t held[BITMAP_WORDS(ABI_HAZARD_SLOTS)];
};

struct tier_reader {
	/* hot: its thread's; atomic where attach_reclaim looks */
	struct tier *t;
	const uint32_t *alive;
	struct abi_reader *area;
	uint64_t number;     /* atomic: of the attachment that area belongs to */
	uint32_t active;     /* atomic: 1 inside a call that looks at maps */
	uint32_t free_count; /* atomic: of the stack; 1,024 less it are held */
	uint32_t high_water;
	uint32_t old_count; /* entries of old in use */
	uint64_t access_tail;
	struct reader_counts counts; /* atomic, relaxed */
	uint16_t free[ABI_HAZARD_SLOTS];
	/* cold */
	uint32_t index; /* of its area in the region */
	/* An era of kernels (era.c): its area, which may be an earlier attachment's; NULL: none */
	struct abi_reader *era_area;
	uint64_t era_number; /* atomic: of that attachment, which it needs; 0 */
	uint64_t era_begin;  /* launches announced */
	bool era_owed;       /* the last one failed */
	struct list link;
	struct reader_old old[READER_OLD_MAX];
};

/* Does the reader, at this moment or by a lease it holds, need the attachment? Any thread. */
bool reader_uses(const struct tier_reader *r, uint64_t number);

/* Adds its counts. Any thread. */
void reader_count(const struct tier_reader *r, struct tier_counters *sum);

/*
 * Its thread: move to the present attachment, with an entry in old if leases are held. Returns the
 * context's map there, or NULL when that cannot be now.
 */
const struct map *reader_follow(struct tier_reader *r, struct tier_context *c);

/* Its thread, when old_count > 0: the area in which the slot is held; NULL when it is held in none
 * that is mapped for sure. */
struct abi_reader *reader_area_of(struct tier_reader *r, uint32_t slot);

/* Its thread, when old_count > 0: the slot has been cleared. */
void reader_forget(struct tier_reader *r, uint32_t slot);

/* Its thread: end its era, if it has one; nothing of the stream runs any more. */
void era_close(struct tier_reader *r);

static inline void reader_leave(struct tier_reader *r)
{
	atomic_store_release_u32(&r->active, 0);
}

/* The cold half of reader_enter: tells what is wrong, or follows a re-attach. */
const struct map *reader_enter_cold(struct tier_reader *r, struct tier_context *c, int *error);

/*
 * The begin and (reader_leave) the end of each call that looks at maps. Between them nothing that
 * the returned map names is unmapped. NULL: *error says why, and the end is not called.
 */
static inline const struct map *reader_enter(struct tier_reader *r, struct tier_context *c,
					     int *error)
{
	const struct map *m;

	if (unlikely(!r || !c || r->t != c->t) || connection_orphaned(r->alive))
		return reader_enter_cold(r, c, error);
	atomic_store_relaxed_u32(&r->active, 1);
	/* active before our look at the map; attach_reclaim does the reverse, and pays for both. */
	asymmetric_light_fence();
	m = context_map(c);
	if (unlikely(m->number != r->number))
		return reader_enter_cold(r, c, error);
	return m;
}

/* Between the two: has the attachment that we are in been handed over? A miss says nothing then. */
static inline bool reader_is_over(const struct tier_reader *r)
{
	const struct attachment *a = connection_attachment(r->t);

	return a->number != r->number || (a->ring.shared && ring_handed_over(&a->ring));
}

/* After the end: follow to the next daemon. False: there is none, and what was said stands. */
bool reader_next(struct tier_reader *r);

static inline uint32_t reader_free_slots(const struct tier_reader *r)
{
	return r->free_count;
}

#endif
