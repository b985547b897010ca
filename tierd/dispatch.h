/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Actions of the core, carried out: device operations through the ring, copies by the workers,
 * fences at once, answers to clients by the front. Every completion is fed back in the same or a
 * later turn. Called by the loop.
 */
#ifndef TIERD_DISPATCH_H
#define TIERD_DISPATCH_H

#include "libtier/base/hist.h"
#include "tierd/core/core.h"
#include "tierd/prepare.h"

struct shell;

#define DISPATCH_DEFERRED_MAX 1024u /* > CORE_IO_MAX operations and the flushes */
#define DISPATCH_LANDED_MAX 64u
#define DISPATCH_VERIFY_BYTES (256u << 10) /* of reads the loop verifies itself in one turn */

/* A device operation that found the ring full. */
struct deferred {
	struct core_io *io; /* NULL: a flush, of this device */
	uint32_t device;
	uint64_t token;
};

/* One operation of a kind is timed at a time. */
struct stopwatch {
	const struct core_io *io;
	uint64_t since_ns;
};

struct dispatch {
	struct deferred deferred[DISPATCH_DEFERRED_MAX];
	uint32_t deferred_head, deferred_tail;
	uint32_t ios;          /* on the device, deferred or held; flushes included */
	uint32_t verify_bytes; /* verified in this turn */
	struct prepare prepare;
	struct core_io *landed[DISPATCH_LANDED_MAX]; /* reads of this turn, to be verified */
	uint32_t landed_count;
	struct stopwatch reading[ABI_CLASS_COUNT], writing;
	uint64_t sync_since_ns[CORE_DRIVES_MAX];
	uint32_t flush_failed; /* bits by drive: the last one: told once */
	bool discard_failed; /* likewise */
	struct bounces *bounces; /* where CXL is memory that no processor touches; else NULL */
	struct hist read[ABI_CLASS_COUNT], write, sync, copy[ABI_CLASS_COUNT], fence;
};

/* Name the latencies for the operator. */
void dispatch_describe(struct shell *s);

/* Everything that the core wants done now. Returns the number of actions. */
uint32_t dispatch_actions(struct shell *s);

/* A completion of the ring that is the block device's. */
void dispatch_completion(struct shell *s, uint64_t data, int res);

/*
 * After the completions of a turn: the device gets its next operations first, then what it brought
 * is verified. Returns the number of reads.
 */
uint32_t dispatch_landed(struct shell *s);

/* Jobs that workers have finished. Returns their number. */
uint32_t dispatch_jobs(struct shell *s);

/* Nothing under way on the device or with the workers. */
bool dispatch_idle(const struct shell *s);

#endif
