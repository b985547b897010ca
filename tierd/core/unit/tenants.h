/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a context's blocks are: each names an entry here instead of carrying its salt, the account
 * of it, and its lane. Blocks of one salt, account and lane share one, so the table is as large as
 * there are tenants; there are as many places as blocks, so that also as many tenants fit.
 *
 * Salts are clients' words: who makes many that collide gets entries of their own for his blocks
 * behind the first few, and no walk is longer.
 */
#ifndef TIERD_CORE_TENANTS_H
#define TIERD_CORE_TENANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENANT_NONE 0u /* the public salt, account LEDGER_NONE, the first lane */
#define TENANT_WALK 16u /* entries of one chain */

struct tenant {
	uint64_t salt;
	uint32_t blocks; /* that name it; 0 = free */
	uint32_t next;   /* in its chain, or of the free ones; 0 = last */
	uint16_t account; /* in the context's ledger */
	uint8_t lane;    /* lane.h */
	bool chained;    /* others can find it */
};

struct tenants {
	struct tenant *entry; /* [0] = TENANT_NONE */
	uint32_t *chain;      /* by hash of the salt: first entry, 0 = none */
	uint32_t chains;      /* a power of two */
	uint32_t high;        /* entries [1, high] were ever in use */
	uint32_t free;        /* of these, the first free one; 0 = none */
	uint32_t most;
};

/* Errors: -ENOMEM. */
int tenants_open(struct tenants *t, uint32_t blocks_max);
void tenants_close(struct tenants *t);

/* The entry that says so, with one block more. No more than blocks_max at a time. */
uint32_t tenant_take(struct tenants *t, uint64_t salt, uint32_t account, uint32_t lane);
void tenant_drop(struct tenants *t, uint32_t i);

/* Touched so far, at most. */
size_t tenants_bytes(const struct tenants *t);

#endif
