/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two files of the audit share: where disagreements are told, and the second file's half
 * of the work. Included by audit.c and audit_held.c only.
 */
#ifndef TIERD_CORE_AUDIT_PRIV_H
#define TIERD_CORE_AUDIT_PRIV_H

#include "tierd/core/state.h"

struct audit {
	const struct core *c;
	void (*tell)(void *arg, const char *what);
	void *arg;
	uint64_t wrong;
	uint64_t *segment; /* recounted live bytes by segment of the store */
};

void audit_tell(struct audit *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_compare(struct audit *a, const char *context, const char *what, uint64_t counted,
		   uint64_t kept);

/* Lists of blocks, pins, quarantine, and what clients and users are charged for. */
void audit_held(struct audit *a);

#endif
