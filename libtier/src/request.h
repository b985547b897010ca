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
};

enum request_owner {
	REQUEST_CALLER, /* its completion goes to tier_poll and tier_wait */
	REQUEST_WAITER, /* a call waits for it */
	REQUEST_ORPHAN, /* nobody does */
};

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
	uint8_t op;
	uint8_t reserved[5];
	struct request_piece arg;
	struct request_piece data; /* the bytes of a put's commit */
	struct tier_completion completion;
	uint32_t next; /* of the free or the done list */
};

struct requests {
	struct request *entry;
	uint32_t count;
	uint32_t free;
	uint32_t free_count;
	uint32_t done_first;
	uint32_t done_last;
	uint32_t done_count;
	uint64_t serial;
	uint64_t submitted;
	uint64_t completed;
};

/* The arguments that go to the arena, and how they are written there. */
struct request_args {
	const tier_block *blocks; /* one of these */
	const struct tier_page *pages;
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
	struct request_piece data; /* goes over to the request when it was submitted */
	enum request_owner owner;
	uint64_t user_data;
};

struct tier;

/* Take the table of count entries. Errors: -ENOMEM. */
int requests_init(struct requests *r, uint32_t count);
void requests_fini(struct requests *r);

#endif
