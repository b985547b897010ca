/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of what contexts' tables take (tables.c). */
#ifndef TIERD_CORE_PLACE_TABLES_H
#define TIERD_CORE_PLACE_TABLES_H

#include "tierd/core/core.h"

/* What the tables of contexts take (tables.c), by who owns the contexts. */
struct tables_user {
	uint32_t uid;
	uint32_t contexts; /* 0 = free */
	uint64_t bytes;    /* of memory */
	uint64_t brought;  /* ... that a start brought back, whatever the limit was by then */
	uint64_t addresses;
};
struct tables {
	struct tables_user *user; /* [ABI_CONTEXTS_MAX] */
	uint32_t users_high;
	uint64_t bytes, brought, addresses; /* of all */
};

#endif
