/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a ring operation is, the life of a request, and what operations need of each other.
 * A last part of state.h, which includes it.
 */
#ifndef TIERD_CORE_OP_OP_H
#define TIERD_CORE_OP_OP_H

/* One ring operation: a row in its file, named once, in tierd/core/ops.c. */
struct op_ops {
	const char *name; /* as operators see it */
	/* Judged before it begins, in this order; then its arguments are copied. */
	bool generation; /* the entry may name one */
	uint32_t tiers;  /* targets: tiers below this one; 0 = it has none, whatever is there */
	uint16_t flags;  /* ABI_SQE_* beside those that all may have */
	bool (*fits)(const struct abi_sqe *q); /* mode, flags, counts; NULL = all do */
	bool context; /* it names one that its client has attached, */
	bool writes;  /* ... to write: it changes what is there, or others lose pages by it */
	uint64_t (*arg_bytes)(const struct abi_sqe *q); /* NULL = none */
	/* Each of these may end the request, at once or later. */
	void (*begin)(struct core *c, struct request *r); /* NULL = there is nothing to do */
	void (*step)(struct core *c, struct request *r);  /* when woken; NULL = ended by aborts */
	/* A fetch has counted what came (lost: some could not be read) and answers next. False: not
	 * yet, it asks again. */
	bool (*came)(struct core *c, struct request *r, bool lost);
	/* Answered, and nothing moves for it: r->held, r->stream go. False: not all yet. NULL = it
	 * has none. */
	bool (*release)(struct core *c, struct request *r);
	/* A flush of a device failed: it looks anew at what it saw written. True: that goes to
	 * another device, while there is one. NULL = false. */
	bool (*flush_failed)(struct request *r);
	uint32_t (*lacks)(const struct request *r); /* the tier that had no room; NULL = CXL */
	/* What it left that outlives requests ends, or begins to; requests are seen to. */
	void (*client_gone)(struct core *c, uint32_t client);
	void (*context_gone)(struct core *c, struct context *x);
	/* Does what it left keep the context? holds: only what holds blocks, and will let go. */
	bool (*keeps)(const struct core *c, const struct context *x, bool holds);
	/* For operators: what is not as for all (count, done). NULL = nothing. */
	void (*view)(const struct core *c, const struct request *r, struct core_request_view *out);
};

extern const struct op_ops *const core_ops[ABI_OP_COUNT]; /* ops.c; NULL = not known */

/* Arguments that are blocks, by reference or key. */
static inline uint64_t op_blocks_bytes(const struct abi_sqe *q)
{
	uint64_t item = q->flags & ABI_SQE_KEYS ? ABI_KEY_BYTES : sizeof(struct abi_block_ref);

	return q->count * item;
}

/* request.c */
void request_take(struct core *c, uint32_t client, const struct abi_sqe *sqe);
struct request *request_own(struct core *c, struct context *x);
void request_answer(struct core *c, struct request *r, int res, uint64_t value, uint64_t aux);
void request_end(struct core *c, struct request *r, int res, uint64_t value, uint64_t aux);
void request_landed(struct core *c, struct request *r);
void request_abort(struct core *c, struct request *r, int error);
void request_run(struct core *c);
void request_walk(struct core *c);
void request_tick(struct core *c);
void request_flush_failed(struct core *c, const struct drive *dv);
void request_sync_from(struct core *c, struct request *r, uint32_t devices);
bool request_synced(const struct core *c, const struct request *r);
void request_sync_want(struct core *c, const struct request *r);
bool request_of_context(const struct core *c, const struct context *x);
bool request_holds(const struct core *c, const struct context *x);
void request_client_open(struct core *c, uint32_t client);
void request_client_gone(struct core *c, uint32_t client);
void request_context_gone(struct core *c, const struct context *x);
void request_owner_gone(struct core *c, const void *owner);
uint64_t request_next_deadline(const struct core *c);

/* fetch.c */
void fetch_begin(struct core *c, struct request *r);
void fetch_step(struct core *c, struct request *r);
bool fetch_release(struct core *c, struct request *r);
bool fetch_release_each(struct core *c, struct request *r,
			void (*then)(struct core *c, struct request *r, uint32_t slot));
void fetch_resolve(struct core *c, struct request *r);
uint64_t fetch_range_bytes(const struct request *r);
uint32_t fetch_range_pages(const struct request *r);
bool fetch_block_there(const struct context *x, struct abi_block_ref ref);
bool fetch_outranks(const struct core *c, const struct request *r);

#endif
