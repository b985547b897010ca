/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts as the rest of the core calls them, and their inside, for put.c, put_commit.c and
 * put_place.c. A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_PUT_H
#define TIERD_CORE_PUT_H

#define PUT_BLOCKS_MAX (ABI_ARG_BYTES_MAX / ABI_KEY_BYTES)

/* Most pages of a put that its client writes where they stay. */
#define PUT_PLACES_MAX 32u
struct put_place {
	uint64_t offset;
	uint32_t cursor; /* of the put: block * pages + page */
};

struct put {
	bool used, committing;
	bool expired; /* not used any more, since nobody committed it by its deadline */
	uint32_t client, account;
	uint64_t handle;
	struct context *ctx;
	uint64_t epoch;
	struct abi_put_args args;
	uint64_t reservation; /* 0 = none */
	bool durable;
	bool apart;                /* no block of it stands behind another */
	uint64_t deadline_ns;
	uint32_t needs, whole;     /* parts that a block must have to be whole; their pages */
	uint32_t pages;            /* of a block in this shard */
	uint64_t block_bytes;      /* likewise */
	uint8_t tables_limit;      /* while reserving: whose limit tables have met (ABI_LIMIT_*), */
	bool collides;             /* ... or that its chain in the index is full */
	const uint8_t *keys;       /* while reserving: in the request's arguments */
	struct abi_block_ref *ref; /* args.count of them */
	uint64_t mine[PUT_BLOCKS_MAX / 64]; /* bit i: block i counts us as a writer */
	uint64_t kept[PUT_BLOCKS_MAX / 64]; /* bit i: block i is held until it is durable */
	uint32_t done;             /* references made */
	uint32_t brought, before;  /* new blocks of the prompt with these; slot before the next */
	bool brings;               /* ... which has one at least */
	bool joined;               /* the prompt brought the block before the next one, too */
	uint32_t written;          /* durable: blocks known to be in the durable log, */
	uint32_t drives;           /* ... on these, by bits */
	/* Walks that go on where they were in the event before: */
	uint32_t prepared;         /* committing: blocks that are ready to be copied to, */
	uint32_t look;             /* ... page of the next one's part, or of the gap's block */
	uint32_t begun;            /* ... of that block: parts that somebody brings */
	uint32_t gap;              /* ... blocks that were looked at for gaps */
	bool ending, freeing;      /* over: what came is counted and kept, then it lets go */
	bool replaced;             /* ... what it replaces has left */
	bool shared;               /* ... of a block that others still write */
	int32_t res;               /* ... its answer, */
	uint32_t counted, visible; /* ... blocks counted, of these whole, */
	uint32_t kept_on, freed;   /* ... retained, let go */
	struct put *next_freeing;  /* ... nobody else comes back to it */
	struct put *next;          /* free list, or its client's */
	uint32_t places;
	struct put_place place[PUT_PLACES_MAX];
};

/* put.c */
void put_tick(struct core *c);
void put_work(struct core *c);
/* The client's put of that handle while it may still change; else NULL. */
struct put *put_open(struct core *c, uint32_t client, uint64_t handle);
/* It is over, and told so once what came was counted. */
void put_end(struct core *c, struct request *r, int res);
/* A block of it is committed: what it says of its retention. */
void put_retain_block(struct core *c, const struct put *p, uint32_t slot);

/* Does block i count the put as a writer? Others were there before, or are somebody else's. */
static inline bool put_mine(const struct put *p, uint32_t i)
{
	return bit_get(p->mine, i);
}

/*
 * put_place.c: places that the client may write. Until they are settled, by the end of a copy job
 * in place, their slabs are lent.
 */
struct put_place *put_place_of(struct put *p, uint32_t cursor); /* NULL: it has none there */
void put_place_forget(struct put *p, struct put_place *at);
void put_places_settled(struct core *c, struct context *x, const struct core_copy *copy);
/* What it has left goes. False: there are no copy jobs for that now. */
bool put_places_drop(struct core *c, struct put *p);

static inline void put_copy_in_place(struct core_copy *copy, const struct context *x)
{
	copy->in_place = 1;
	copy->context_id = x->id;
	copy->src_tier = ABI_TIER_COUNT;
	copy->dst_tier = ABI_TIER_CXL;
}

/*
 * put_commit.c. A shard: which pages of a block one writer of several brings (abi/ring.h), and
 * where they lie in what it hands over.
 */
struct shard_page {
	uint32_t page;
	uint32_t block;  /* of the put; the copies have it here, dividing takes long */
	uint64_t offset; /* in the put's block */
};
void shard_measure(const struct context *x, struct put *p);
struct shard_page shard_page(const struct context *x, const struct put *p, uint32_t k);
/* From its put's reservation, or anybody's room. Negative: there is none. */
int64_t put_alloc(struct core *c, struct put *p, uint32_t slot, uint32_t page);

#endif
