/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A modelled host around the daemon's real core: a device and copy channels that take the time
 * their bandwidth and latency say, a clock that jumps from event to event, one client. No byte is
 * moved (memory is addresses only), so tiers can be of any size; every decision is the core's own.
 * What is measured here is policy, not this machine: the figures say "model".
 */
#ifndef TIER_BENCH_MODEL_MODEL_H
#define TIER_BENCH_MODEL_MODEL_H

#include <stdbool.h>

#include "tierd/core/core.h"

#define MODEL_STAGING (1ull << 40) /* addresses; only the first pages are touched */
#define MODEL_POSITION (48ull << 20) /* in it: a word for a plan's position */
#define MODEL_ASKS 256u
#define MODEL_STREAMS 2u

/* A drive with a model of its own, in place of constant rates and latency. */
struct model_drive {
	void (*submit)(void *arg, uint64_t now_ns, struct core_io *io);
	/* Time goes on until then; earlier, when an operation is done: that one, and when. */
	struct core_io *(*run)(void *arg, uint64_t until_ns, uint64_t *at_ns);
	void *arg;
};

struct model_spec {
	uint64_t cxl_bytes, hbm_bytes, nvme_bytes;
	uint32_t layers, page_bytes; /* a block: so many pages of one group */
	double read_gbps, write_gbps, copy_gbps; /* 10^9 bytes a second */
	uint64_t latency_ns;         /* of a device operation */
	const char *policy;          /* eviction; NULL = the default */
	bool direct;                 /* the device can write into HBM */
	const struct model_drive *drive; /* NULL: the rates and the latency above */
};

struct model;

typedef void model_fn(struct model *m, void *arg, const struct abi_cqe *cqe);

struct model_ask {
	model_fn *done;
	void *arg;
	uint32_t piece; /* of the arguments */
};

struct model_event {
	uint64_t at_ns, seq;
	struct core_action action; /* kind 0: a call */
	model_fn *call;
	void *arg;
};

struct model {
	struct model_spec spec;
	struct core *core;
	uint64_t now_ns, seq;
	uint64_t device_free_ns, channel_free_ns;
	struct model_event *heap;
	uint32_t events, room;
	struct model_ask ask[MODEL_ASKS];
	uint8_t *staging;
	struct abi_reader *reader;
	struct abi_stream *stream; /* MODEL_STREAMS of them */
	uint8_t *index;
	uint64_t index_bytes;
	uint32_t context_id;
	uint64_t moved_bytes; /* by the device, both ways */
	uint64_t copy_most;   /* bytes of the largest copy job */
	uint64_t read_end_ns, copy_end_ns; /* when the last one was over */
	bool failed;
};

/* Errors: -ENOMEM, or the core's. */
int model_open(struct model **out, const struct model_spec *spec);
void model_close(struct model *m);

/* Call back then; cqe is NULL. */
void model_at(struct model *m, uint64_t at_ns, model_fn *call, void *arg);

/* Submit an entry with its arguments; done is called with the completion (may be NULL). */
void model_ask(struct model *m, const struct abi_sqe *sqe, const void *args, model_fn *done,
	       void *arg);

/* Let time go on until then, or until nothing happens any more. */
void model_run(struct model *m, uint64_t until_ns);

/* Blocks [first, first + count) with keys of their numbers are stored and written to NVMe. */
int model_store(struct model *m, uint32_t first, uint32_t count);
/* Put them without waiting for anything. */
void model_put(struct model *m, uint32_t first, uint32_t count);

/* The block of a number; false = it is not there. */
bool model_block(struct model *m, uint32_t n, struct abi_block_ref *ref);

/* Is the layer of the block in the tier? */
bool model_there(struct model *m, struct abi_block_ref ref, uint32_t layer, uint32_t tier);

/* A reader leased it: a line in its access log. */
void model_read(struct model *m, struct abi_block_ref ref, uint32_t pages);

uint64_t model_block_bytes(const struct model *m);

#endif
