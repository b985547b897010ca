/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts as the rest of the core calls them, and their inside, for put.c, put_copy.c, put_shard.c and
 * put_end.c. A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_PUT_H
#define TIERD_CORE_PUT_H

/* put.c */
void put_tick(struct core *c);
/*
 * It waits for room, as others may that hold as much: what is promised to the durable log by now
 * stays by that alone until it is written, and then makes room for the rest.
 */
void put_let_go(struct core *c, struct put *p);


/* put_end.c */
void put_end(struct core *c, struct request *r, int res);
void put_let_free(struct core *c, struct put *p);
void put_abort(struct core *c, struct put *p);
void put_work(struct core *c);
/* A block of it is committed: what it says of its retention. */
void put_retain_block(struct core *c, const struct put *p, uint32_t slot);

/* Does block i count the put as a writer? Others were there before, or are somebody else's. */
static inline bool put_mine(const struct put *p, uint32_t i)
{
	return bit_get(p->mine, i);
}

/* put_copy.c: start what copies can start. False: it waits for room, or failed for want of it. */
bool put_copy(struct core *c, struct request *r);

/* put_shard.c */
struct shard_page {
	uint32_t page;
	uint32_t block;  /* of the put; put_copy.c has it here, dividing takes long */
	uint64_t offset; /* in the put's block */
};
void shard_measure(const struct context *x, struct put *p);
struct shard_page shard_page(const struct context *x, const struct put *p, uint32_t k);
int shard_gap(struct core *c, struct request *r, uint32_t *state);

#endif
