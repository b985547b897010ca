/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads request traces in Mooncake's format (JSON lines, compressed or not: bench/data/README.md)
 * into memory. The file is not trusted: every length has a limit, and a line that is not what it
 * should be is an error that names the line. Used by the demo and by tierbench.
 */
#ifndef TIER_BENCH_TRACE_TRACE_H
#define TIER_BENCH_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "tier.h"

/* Tokens of a prompt that one id stands for, in Mooncake's traces; of others see trace_open. */
#define TRACE_BLOCK_TOKENS 512u
#define TRACE_BLOCK_TOKENS_MAX 8192u

#define TRACE_LINE_BYTES_MAX (16u << 20)
#define TRACE_REQUESTS_MAX (10u << 20)
#define TRACE_REQUEST_IDS_MAX (1u << 20) /* half a billion tokens */
#define TRACE_IDS_MAX (256u << 20)

struct trace_request {
	uint64_t timestamp_ms;
	uint32_t input_tokens;
	uint32_t output_tokens;
	uint64_t id_first; /* its ids are trace.id[id_first] ... */
	uint32_t id_count;
};

struct trace {
	struct trace_request *request;
	size_t request_count;
	uint64_t *id;
	size_t id_count;
	uint32_t block_tokens; /* that one id stands for */
	/* Of the requests above, in their order, if nothing were ever evicted: */
	uint64_t distinct; /* different ids */
	uint64_t reusable; /* references whose prefix an earlier request has brought */
};

/*
 * Read the first requests_max requests (0 = all). A pipe is read, too, if its bytes begin to come
 * within seconds. A block has TRACE_BLOCK_TOKENS tokens, or the power of two that explains more of
 * the prompts' lengths, and three in four of them at least: others write blocks of 16 or 64. On
 * error why (may be NULL) says what is wrong and in which line. Errors: -ENOENT and the like from
 * open, -EBADMSG not such a trace, one without a block, or a damaged file, -E2BIG a limit above,
 * -ETIMEDOUT an idle pipe, -ENOMEM. Close with trace_close, which takes NULL.
 */
int trace_open(struct trace **out, const char *path, size_t requests_max, char *why,
	       size_t why_bytes);
void trace_close(struct trace *t);

/* Fill distinct and reusable of a trace that was made, not read. Errors: -ENOMEM. */
int trace_count(struct trace *t);

/* Tokens of the first so many blocks of request r. */
uint64_t trace_tokens(const struct trace *t, const struct trace_request *r, uint64_t blocks);

/* The key of the block that an id names: as an engine's own block name, salted with the format. */
int trace_key(tier_key *out, uint64_t id);

/* Keys of all blocks of request r, in prefix order; out has room for its id_count. */
int trace_keys(tier_key *out, const struct trace *t, const struct trace_request *r);

#endif
