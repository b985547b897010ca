/*
 * The inside of a put, for put.c, put_copy.c and connection.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_PUT_H
#define TIER_SRC_PUT_H

#include "libtier/src/connection.h"

/* Of the arena, beside a put's bytes: what asking for so many blocks takes while it is asked. */
#define PUT_ASK_BYTES(blocks)                                                                      \
	(sizeof(struct abi_put_args) + (uint64_t)(blocks) * ABI_KEY_BYTES + ABI_UNIT)

/* Where a part lies in the put's image of a block. */
struct put_part {
	uint64_t offset;
	uint32_t layers;
	uint32_t first;  /* first group of the shard */
	uint32_t groups; /* of the shard; 0 = the put does not carry the part */
	uint32_t stride;
	uint32_t before; /* pages of a block that the put carries before the part's */
};

/* What follows from geometry and options before anything is reserved. */
struct put_plan {
	struct abi_put_args args;
	struct put_part part[ABI_PARTS_MAX];
	uint32_t part_count;
	uint64_t block_bytes; /* carried of a block */
	uint64_t deadline_ns;
	uint64_t reservation; /* 0 = none */
	uint16_t flags;       /* ABI_SQE_* */
};

/* Most pages of a put that are written where they stay; put_place.c. */
#define PUT_PLACES_MAX 32u
struct put_place {
	void *at;
	uint32_t block, page;
	uint32_t bytes;
	int watch; /* taken.h */
};

struct tier_put {
	struct tier *t;
	struct attachment *a; /* whose staging arena; counted in a->puts */
	struct list link;     /* tier.puts */
	tier_context *c; /* NULL: it was closed */
	tier_key *keys;  /* a daemon that hands over leaves the next one to be asked again */
	uint64_t number; /* of the attachment whose daemon knows the handle */
	uint64_t handle;
	uint64_t exists; /* bit i: block i was there, first 64 */
	struct request_piece data;
	uint32_t count;
	struct put_plan plan;
	/* tier.wire */
	struct put_place place[PUT_PLACES_MAX];
	uint32_t places;
	bool unplaced; /* one was refused: all others are written to staging */
	bool placed;   /* committed with places: staging has not all */
	bool broken;   /* ... but the daemon takes it for written in place: no commit */
};

/* Errors: -EINVAL. */
int put_plan(struct put_plan *plan, const tier_context *c, const struct tier_put_options *options);

/* Errors: -EINVAL the put would replace one of its own blocks. */
int put_check_keys(const struct put_plan *plan, const tier_key *keys, uint32_t count);

/* tier_put_begin with the plan made. */
int put_begin(tier_context *c, const tier_key *keys, uint32_t count, const struct put_plan *plan,
	      struct tier_put **out);

/*
 * Hand over; owner and user_data say who learns of the end. 0: the handle is gone, *rq is its
 * request. -ENOTCONN: the daemon that knew it is gone; the handle stays. -EAGAIN: try again.
 */
int put_submit(struct tier *t, struct tier_put *p, enum request_owner owner, uint64_t user_data,
	       struct request **rq) REQUIRES(t->lock);

/* Can pages of this size be written where they stay at all? */
static inline bool put_may_place(const struct tier_put *p, uint32_t bytes)
{
	return p->a->places && bytes && bytes % ABI_HUGE == 0;
}

/*
 * put_place.c: where the page of the shard is to be written, if that is not in staging; else NULL.
 * May ask the daemon.
 */
void *put_place(struct tier_put *p, uint32_t block, uint32_t page, uint32_t bytes);
/* Nobody writes there any more. */
void put_unplace(struct tier_put *p);

/* NULL is fine. Nothing else holds it. */
void put_free(struct tier_put *p);

/* Forget the put without a word to the daemon; its staging memory is free. */
void put_drop(struct tier_put *p);

#endif
