/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations of room for outputs (reserve.c); its calls are in book/room.h. */
#ifndef TIERD_CORE_OP_RESERVE_H
#define TIERD_CORE_OP_RESERVE_H

#include "tierd/core/core.h"
#include "tierd/core/unit/predict.h"

struct context;

struct reservation {
	bool used;
	bool growing; /* low: wants another step */
	uint32_t client;
	struct context *ctx;
	uint64_t id, deadline_ns, retry_ns;
	struct predict_key key;
	uint32_t upper; /* as predicted; 0 = it was not */
	uint32_t expected, p95, step, granted; /* blocks */
	uint32_t most; /* of ctx->reserved_most_blocks */
	uint64_t drawn;   /* pages */
	uint64_t beside;  /* pages put under it that had to find their place elsewhere */
	uint32_t left[ABI_PARTS_MAX]; /* places promised, by class */
	uint32_t next_free;
};

struct reservations {
	struct reservation *table;
	uint32_t free, count, high;
	uint64_t seq;
	uint64_t most_bytes; /* of CXL: what they may come to and did not draw yet */
	bool growing; /* some reservation is */
	struct predict predict;
};

#endif
