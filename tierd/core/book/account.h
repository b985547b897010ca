/* SPDX-License-Identifier: Apache-2.0 */
/* Clients, and the accounts of their users: what each has of tables that all share (account.c). */
#ifndef TIERD_CORE_BOOK_ACCOUNT_H
#define TIERD_CORE_BOOK_ACCOUNT_H

#include "tierd/core/core.h"
#include "tierd/core/unit/meter.h"

struct put;

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

/* The prompt that a client puts, perhaps in several puts each of which goes on where one ended. */
struct prompt {
	uint32_t context_id;
	uint32_t tail; /* slot of its last block so far */
	uint32_t brought; /* new blocks so far */
	bool joined;      /* its last one was new, too */
};

/*
 * What a client's stream of kernels may still read (abi/hazard.h H4): nothing that was unpublished
 * up to fence `clear`. At any time one snapshot of its era_begin is waited for: it was taken behind
 * fence `fence`, and later ones ask for another.
 */
struct era {
	uint64_t clear;
	uint64_t fence; /* 0: none is waited for */
	uint64_t begin;
};

struct client {
	uint8_t state; /* 0 free, 1 open, 2 gone (waits for DEAD), 3 dead, and it still leaves */
	bool leaving;  /* gone, and not all that it had has ended */
	struct meter_pass conversations_leave, pins_leave;
	uint32_t revoked; /* gone, and reads nothing in these tiers any more: a bit each */
	bool over;     /* its connection is being ended for what its leases keep */
	uint32_t account;
	uint32_t used[ACCOUNT_KINDS];
	uint64_t held[ABI_MEM_TIERS];      /* seen by scans since the last look */
	uint64_t held_last[ABI_MEM_TIERS]; /* ... between the two looks before */
	struct core_client_open open;
	uint64_t *attached; /* bitmaps over context ids */
	uint64_t *writable;
	uint64_t access_seen[ABI_READERS_MAX];
	struct era era[ABI_READERS_MAX];
	uint32_t readers_used; /* readers below have ever logged something */
	uint32_t drain_reader; /* whose log is heard first next time */
	struct prompt prompt;
	uint32_t connection; /* counts the clients that had this number */
	uint32_t orders;     /* requests in REQUEST_ORDER */
	uint32_t owner;      /* in the core's ledger of what clients put */
	struct put *puts;
	uint32_t lend_first; /* of the slabs that its devices have: 1 + its number */
	uint64_t recalls;           /* times that some of them were wanted back */
};

#endif
