/*
 * Requests under way: who asked, what they hold, how they ended. An entry of the table stands for
 * one submission entry; its number and a serial make the user_data that travels, so that equal
 * user_data of the caller cannot be confused, and each completion frees what its own request held.
 *
 * Life: free -> flying (submitted) -> done (completion read) -> free (the caller took it). One that
 * its waiter gave up flies on as *orphan* and is freed when its completion comes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_REQUEST_H
#define TIER_SRC_REQUEST_H

#include <stdbool.h>
#include <tier.h>

#include "libtier/abi/ring.h"

#define REQUEST_SYNC_RESERVE 64u /* entries that only waiting calls may take */
#define REQUEST_SYNC (1ull << 63) /* user_data of a waiting call; the caller's has this bit 0 */
#define REQUEST_NONE UINT32_MAX

enum request_state {
	REQUEST_FREE,
	REQUEST_FLYING,
	REQUEST_DONE,
	REQUEST_COPYING, /* a load: taken, its pieces are being copied */
};

enum request_owner {
	REQUEST_CALLER, /* its completion goes to tier_poll and tier_wait */
	REQUEST_WAITER, /* a call waits for it */
	REQUEST_ORPHAN, /* nobody does */
};

struct promise;
struct tier_put;

/* A piece of the staging arena of the present attachment. */
struct request_piece {
	uint64_t start;
	uint64_t bytes; /* 0 = none */
};

struct request {
	uint64_t wire_id; /* user_data that travels */
	uint64_t user_data;
	uint8_t state;
	uint8_t owner;
	bool named;     /* it is of a context */
	bool reserving; /* a commit, of a put that is asked of the next daemon first (again.c) */
	uint8_t reserved[4];
	struct abi_sqe sqe; /* as it was asked */
	struct tier_put *put; /* of a commit; the request's own */
	struct promise *promise; /* that is asked for again */
	uint64_t number;      /* of the attachment that brought its completion */
	struct request_piece arg;
	struct request_piece data; /* the bytes of a put's commit */
	struct tier_completion completion;
	uint32_t next; /* of the free, a done or a list of loads */
	uint32_t at;   /* load: of its completion in what is being taken */
	uint32_t count;
	struct tier_context *context;    /* NULL: none, or it was closed meanwhile */
	const struct tier_piece *pieces; /* load: count of them; NULL: nothing is to be copied */
	int32_t *error;
};

/* Completions of the caller's that nobody has taken. */
struct done_list {
	uint32_t first;
	uint32_t last;
	uint32_t count;
};

struct requests {
	struct request *entry;
	uint32_t count;
	uint32_t free;
	uint32_t free_count;
	struct done_list waiting; /* flying, but not in the ring yet: to be asked again */
	uint64_t serial;
	uint64_t submitted;
	uint64_t completed;
};

/* The arguments that go to the arena, and how they are written there. */
struct request_args {
	const tier_block *blocks; /* one of these */
	const struct tier_page *pages;
	const struct tier_piece *pieces;
	const tier_key *keys;
	const struct abi_put_args *put; /* with keys */
	const struct abi_conversation_args *conversation; /* with blocks */
	const struct abi_plan_args *plan;                 /* with accesses */
	const struct tier_access *accesses;
	const struct abi_reserve_args *reserve;
	uint32_t count;
};

/* A request to be made. */
struct submission {
	struct tier_context *context; /* NULL: none */
	struct abi_sqe entry;         /* op, klass, flags, deadline, range, handle, tier */
	struct request_args args;
	struct request_piece data; /* goes over to the request when it was submitted, */
	struct tier_put *put;      /* ... as this does */
	enum request_owner owner;
	uint64_t user_data;
	int32_t *error; /* of pieces */
};

struct tier;

/* Take the table of count entries. Errors: -ENOMEM. */
int requests_init(struct requests *r, uint32_t count);
void requests_fini(struct requests *r);

#endif
