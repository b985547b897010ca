/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places for pages: the memory of one context in one memory tier, cut into slabs of one size
 * class each; and the pool, which is the tier's physical capacity that all contexts draw from.
 *
 *   pool (bytes of the tier)  --slabs-->  space (address range of one context's memfd)
 *
 * Life of a slab of a space
 *   1. unused: a hole in the memfd, nothing charged.
 *   2. taken: slab_bytes are charged to the pool and the space; it serves one class.
 *   3. empty again: it stays taken as a spare, for whichever class runs out next, until it was not
 *      needed for a while (space_look) or somebody else wants it, and space_surplus hands it out to
 *      be punched; during the punch it is charged but not usable; space_punched makes it unused.
 *   4. or evacuated: nothing is placed there any more, its pages leave or move. Places that readers
 *      keep hold only the 2 MiB units they lie in: the others are parked, that is punched and given
 *      back to the pool; the last ones when the last reader has gone.
 *   A taken slab may be lent: devices of clients have it mapped or registered, and would go on
 *   reading its old memory. Until all have let go it is neither punched nor evacuated, and so stays
 *   what it is; empty it serves any class.
 *
 * A class is a page_stride. Within a class allocation prefers slabs that are fuller (address
 * order among equals), so that others empty themselves.
 */
#ifndef TIERD_CORE_SPACE_H
#define TIERD_CORE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct pool {
	uint64_t capacity;
	uint64_t used; /* charged: whole slabs of all spaces */
	uint64_t lost; /* given back by the books, and kept by others: nobody may have as much */
	uint64_t live; /* bytes of places handed out */
	uint64_t reserved; /* bytes of places promised beside them */
	uint64_t slab_bytes; /* preferred; a space of large pages may use more */
};

struct space;

/*
 * bytes: size of the address range, a multiple of 2 MiB. quota: most that may be charged.
 * stride[classes]: distinct, multiples of 512. Errors: -EINVAL, -ENOMEM.
 */
int space_open(struct space **out, struct pool *pool, uint64_t bytes, uint64_t quota,
	       const uint32_t *stride, uint32_t classes);
/* Bytes of ours that it takes then, at most; they do not grow. */
uint64_t space_own_bytes(const struct pool *pool, uint64_t bytes, uint64_t quota,
			 const uint32_t *stride, uint32_t classes);
/* A slab for each class: with less of a quota some have no place, for ever. */
uint64_t space_least(const struct pool *pool, uint64_t quota, const uint32_t *stride,
		     uint32_t classes);
void space_close(struct space *s); /* gives all charges back to the pool */

uint64_t space_slab_bytes(const struct space *s);

/*
 * A place for one page of the class. Returns its offset, or -ENOSPC: nothing free in the class,
 * and no slab can be taken (pool or quota full). *fresh: set to the slab's offset when one
 * was taken for this call, else UINT64_MAX: back it with memory before use (CORE_AC_PREPARE).
 */
int64_t space_alloc(struct space *s, uint32_t klass, uint64_t *fresh);

/*
 * This very place, as a former daemon had it. Errors: -EINVAL no such place of the class, -EEXIST
 * it is another's, -ENOSPC pool or quota full.
 */
int space_claim(struct space *s, uint32_t klass, uint64_t offset);

/*
 * A place for a page that moves: in a slab of the class that is in use already, or -ENOSPC.
 * What is promised to reservations is left alone, as it is by space_alloc.
 */
int64_t space_alloc_move(struct space *s, uint32_t klass);

/*
 * Promise places of a class, all or none. Returns 0; 1 when a slab was made ready for it (if
 * *fresh says one was taken, back it with memory): call again; or -ENOSPC. space_alloc_reserved
 * hands one of them out and cannot fail.
 */
int space_reserve(struct space *s, uint32_t klass, uint64_t places, uint64_t *fresh);
void space_unreserve(struct space *s, uint32_t klass, uint64_t places);
int64_t space_alloc_reserved(struct space *s, uint32_t klass);

/*
 * What is lost with a place of the class when its slab is evacuated and the page cannot move: at
 * first its own bytes; more where other pages are of no use without it.
 */
void space_weigh(struct space *s, uint32_t klass, uint64_t bytes);

/* Charge no more slabs than the quota allows from now on; what is charged above it stays. */
void space_limit(struct space *s, uint64_t quota);

/* Give a place back. The page's class is known from the slab. Asserts that it was taken. */
void space_free(struct space *s, uint64_t offset);

/*
 * A slab more for a class that has no empty one, so that its memory is there before it is
 * needed: as long as an eighth of the pool and of the quota stays free. Its offset, UINT64_MAX =
 * none.
 */
uint64_t space_ahead(struct space *s, uint32_t klass);

/*
 * An empty slab that is not needed (by the last two looks, and one a class stays; with `all`
 * any): its offset, to be punched, or -ENOENT. Then space_punched. What allocation empties and
 * fills in turns stays: to punch it and back it anew costs more than to read into it.
 */
int64_t space_surplus(struct space *s, bool all);
void space_punched(struct space *s, uint64_t offset);

/* Now and then: what was empty all the time since the last look is not needed. */
void space_look(struct space *s);

/* Could it take a slab if the pool had one? */
bool space_may_take(const struct space *s);

/*
 * The slab whose evacuation costs least, full or not but not empty, of any class but `except`
 * (no class's number = none): by the weights of the live places for which other slabs of the
 * class have no room, and by the bytes of those that move. Returns its offset and live pages, or
 * -ENOENT. Allocation avoids it until space_evacuate_end.
 */
int64_t space_evacuate_begin(struct space *s, uint32_t except, uint32_t *live);
/* Places of a class that the pages of slabs which are being emptied find no room for. */
uint32_t space_lacks(const struct space *s, uint32_t klass, const uint64_t *slab,
		     uint32_t count);
void space_evacuate_end(struct space *s, uint64_t slab);

/*
 * Of one that is evacuated: readers keep a place in each of its units, so nothing could be given
 * back. Until one of its places is free it is not compacted, and evacuated only where all others
 * that could be are shunned, too: readers let go soon.
 */
void space_shun(struct space *s, uint64_t slab);

/*
 * The same for a slab whose pages all find room in other slabs of their class, when no
 * slab can be taken and free room is unevenly spread over the classes: -ENOENT otherwise.
 */
int64_t space_compact_begin(struct space *s, uint32_t *live);

/* Does the offset lie in a slab that is evacuated? Past the last slab: no. */
bool space_is_evacuated(const struct space *s, uint64_t offset);

/*
 * Lend the slab of that byte once more. Returns its offset; -EAGAIN: it has no memory, is on its
 * way out, or is wanted back.
 */
int64_t space_lend(struct space *s, uint64_t offset);
void space_lend_end(struct space *s, uint64_t slab);
/*
 * A lent slab, the emptiest of the next few, is wanted back from now on: its offset, -ENOENT = none
 * of these that was not.
 */
int64_t space_recall(struct space *s);
bool space_is_recalled(const struct space *s, uint64_t slab);

/* Places handed out in a slab. */
uint32_t space_slab_live(const struct space *s, uint64_t slab);

/*
 * Units of an evacuated slab that nobody needs: a run of them, to be punched, -ENOENT = none
 * (now). Then space_park_punched. From the first one on the slab cannot be used again before it
 * is unused; space_parked walks such slabs (UINT64_MAX = first, and after the last).
 */
int64_t space_park(struct space *s, uint64_t slab, uint64_t *bytes);
void space_park_punched(struct space *s, uint64_t offset, uint64_t bytes);
uint64_t space_parked(const struct space *s, uint64_t after);

struct space_stats {
	uint64_t charged;   /* bytes of taken slabs (and of those being punched) */
	uint64_t live;      /* bytes of places handed out */
	uint64_t free;      /* bytes of places free in taken slabs */
	uint64_t reserved;  /* of these, promised */
	uint64_t available; /* bytes that space_alloc could still hand out */
	uint64_t punching;  /* bytes that it can hand out again when empty slabs are punched */
};
void space_stats(const struct space *s, struct space_stats *out);

/* Bytes charged, less those of slabs that are being punched. */
uint64_t space_held(const struct space *s);

/* Bytes of taken slabs that are not charged: of parked units. */
uint64_t space_returned(const struct space *s);

/* The first unused slab at `from` or behind it; the range behind all slabs counts as such. */
uint64_t space_hole(const struct space *s, uint64_t from);
/*
 * How many objects fit that need so many places of each class, without anything leaving, when so
 * many further slabs could be taken?
 */
uint64_t space_fit(const struct space *s, const uint32_t *need, uint64_t pool_slabs);
/* How many more slabs the pool allows, and range and quota. */
uint64_t space_slabs_left(const struct space *s);

/* For the audit: is this place handed out? */
bool space_is_live(const struct space *s, uint64_t offset);

#endif
