/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the audit share: where disagreements are told, what was recounted so far, and
 * the other files' part of the work. Included by audit*.c only.
 */
#ifndef TIERD_CORE_AUDIT_PRIV_H
#define TIERD_CORE_AUDIT_PRIV_H

#include "tierd/core/state.h"

struct audit {
	const struct core *c;
	void (*tell)(void *arg, const char *what);
	void *arg;
	uint64_t wrong;
	char whose[16 + ABI_NAME_BYTES]; /* audit_whose's answer */
	uint64_t *segment;    /* recounted live bytes by segment of the store */
	uint8_t *record;      /* ... and live blocks by record */
	struct ledger owners; /* recounted */
	struct ledger salts;  /* recounted, of the context at hand */
	/* of all contexts together: */
	uint64_t quarantined[ABI_MEM_TIERS], charged[ABI_MEM_TIERS];
	uint64_t places[ABI_MEM_TIERS];   /* bytes of those handed out */
	uint64_t promised[ABI_MEM_TIERS]; /* bytes of those that reservations hold */
	uint64_t reserved_most; /* bytes of CXL that reservations may come to */
	uint64_t streamed[ABI_MEM_TIERS];      /* bytes of places of the stream pool */
	uint64_t stream_counts[ABI_MEM_TIERS]; /* of streams on pages */
	uint64_t stream_holds;                 /* ... on blocks */
	uint64_t live;                         /* on NVMe */
	uint64_t staged;                       /* brought ahead and not used so far */
	uint64_t lent;                         /* slabs in devices, by client, and of places */
	uint64_t puts_lent;                    /* ... the latter */
};

void audit_tell(struct audit *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_compare(struct audit *a, const char *whose, const char *what, uint64_t counted,
		   uint64_t kept);
/* "context <name>", until the next call. */
const char *audit_whose(struct audit *a, const struct context *x);

/* audit.c: bytes of a block that pins keep in a tier. */
uint64_t audit_pinned_bytes(const struct context *x, uint32_t slot, uint32_t tier);

/* audit_space.c. reserved: places that reservations hold, by class; NULL = this tier has none. */
void audit_space(struct audit *a, const char *whose, const struct space *s,
		 const uint64_t *reserved);
void audit_ledger(struct audit *a, const char *whose, const struct ledger *kept,
		  const struct ledger *counted);

/* audit_tables.c: what stands beside a context's blocks. */
void audit_tables(struct audit *a, const struct context *x);

/* audit_work.c: who needs which block of a context; what is under way. */
void audit_needs(struct audit *a, const struct context *x);
void audit_work(struct audit *a);

/* Lists of blocks, pins, and what clients and users are charged for. */
void audit_held(struct audit *a);

/* audit_limits.c: what each may have of what all share. */
void audit_limits(struct audit *a);

#endif
