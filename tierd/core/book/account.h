/* SPDX-License-Identifier: Apache-2.0 */
/* Clients, and the accounts of their users: what each has of tables that all share (account.c). */
#ifndef TIERD_CORE_BOOK_ACCOUNT_H
#define TIERD_CORE_BOOK_ACCOUNT_H

#include "tierd/core/core.h"
#include "tierd/core/unit/meter.h"

/* Tables that all share (account.c). */
enum account_kind {
	ACCOUNT_REQUESTS = 0,
	ACCOUNT_PUTS,
	ACCOUNT_PINS, ACCOUNT_PIN_CHUNKS,
	ACCOUNT_PLANS, ACCOUNT_RESERVATIONS,
	ACCOUNT_STREAMS,
	ACCOUNT_PARKED,  /* parked: also those that the core parks for a user's conversations */
	ACCOUNT_CONVERSATIONS, /* never refused for a user's sake: who has most forgets one */
	ACCOUNT_REFS,    /* ... likewise: chunks of what conversations will read */
	ACCOUNT_LENDS,   /* slabs that devices have */
	ACCOUNT_KINDS,
};

/* Room for all connections' users, and those of requests, puts and streams that outlive theirs. */
#define CORE_ACCOUNTS_MAX (CORE_CLIENTS_MAX + 2u * CORE_REQUESTS_MAX + CORE_STREAMS_MAX + 1u)

struct account {
	uint32_t uid;
	uint32_t connections; /* open, or gone and not dead */
	uint32_t used[ACCOUNT_KINDS];
	uint64_t held[ABI_MEM_TIERS]; /* bytes its leases keep in quarantine, at the last look */
	uint64_t windows[ABI_MEM_TIERS]; /* bytes of the stream pool that it has */
	uint64_t lent[ABI_MEM_TIERS]; /* bytes of slabs of others that its devices have */
};

struct accounts {
	struct account table[CORE_ACCOUNTS_MAX];
	uint32_t high, users; /* users: those with connections */
};

/* Written here, and by who opens and ends it: what another folder knows of it, that one keeps. */
struct client {
	uint8_t state; /* 0 free, 1 open, 2 gone (waits for DEAD), 3 dead, and it still leaves */
	bool leaving;  /* gone, and not all that it had has ended */
	struct meter_pass conversations_leave, pins_leave;
	bool over;     /* its connection is being ended for what its leases keep */
	uint32_t account;
	uint32_t used[ACCOUNT_KINDS];
	uint64_t held[ABI_MEM_TIERS];      /* seen by scans since the last look */
	uint64_t held_last[ABI_MEM_TIERS]; /* ... between the two looks before */
	struct core_client_open open;
	uint64_t *attached; /* bitmaps over context ids */
	uint64_t *writable;
	uint32_t connection; /* counts the clients that had this number */
	uint32_t owner;      /* in the core's ledger of what clients put */
};

#endif
