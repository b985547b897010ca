/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floors of the core, from the ground up, and the only calls that run upward.
 *
 *   unit    what needs no core: indexes, pages, slabs, the store's bytes, orders, tables
 *   (state.h: the core's data, for all floors above)
 *   io      which device operation or copy goes when; the actions and their pools
 *   book    what each byte is charged to; lists of blocks, marks on them, who waits
 *   place   who leaves a tier, what becomes of its place
 *   log     the store: write-back, cleaning, flushes, discards, tombstones, catalog, recovery
 *   move    how a page comes
 *   op      what clients and operators ask for, and the life of a request
 *   hint    what is known of the time to come: conversations, plans
 *   audit   recounts and views
 *   core.c, context.c   events in, actions out; contexts
 *
 * A floor calls those below it and itself; tests/tidy checks each function. What a lower floor has
 * to tell a higher one it says through core_signals, at once and in the same event. core.c wires
 * them, once. None may feed an event, and none may assume that it is told from one place alone.
 */
#ifndef TIERD_CORE_SIGNAL_H
#define TIERD_CORE_SIGNAL_H

#include <stdint.h>

struct context;
struct core;
struct request;

struct core_signals {
	/*
	 * A block that was refused a place on NVMe has been used (place -> log). May queue it for
	 * write-back; may not drop it, nor any other: the caller walks.
	 */
	void (*block_wanted)(struct core *c, struct context *x, uint32_t slot);
	/*
	 * A block leaves the service; its slot and generation still stand (place -> op). Ends what
	 * pins keep of it; may not retire its pages nor free its slot: the caller does.
	 */
	void (*block_gone)(struct core *c, struct context *x, uint32_t slot);
	/*
	 * Blocks of a tier are about to be evicted (place -> hint). May change the marks of leads;
	 * may not make or drop blocks or pages: the caller's orders are set up after it, from what
	 * is there.
	 */
	void (*room_short)(struct core *c, struct context *x, uint32_t tier);
	/*
	 * A page for a stream could not be read (move -> op). May shorten the stream; may not end
	 * its request, which the caller still holds and lands itself.
	 */
	void (*page_lost)(struct request *r, uint32_t slot);
	/*
	 * An operation or a copy for a request is over (move -> op). May end and free the request:
	 * the caller does not look at it afterwards. May not begin a move: that is for its step.
	 */
	void (*landed)(struct core *c, struct request *r);
	/*
	 * A flush failed; error is 0 while it will be tried again (log -> op). Wakes who waited for
	 * it; may not answer anyone in the caller's time: their steps do.
	 */
	void (*flush_failed)(struct core *c, int error);
	/*
	 * Something that kept a context has ended (place, log, op -> core). Frees the context if it
	 * is being removed and that was the last: the caller does not look at it afterwards.
	 */
	void (*context_idle)(struct core *c, struct context *x);
};

extern const struct core_signals core_signals; /* core.c */

/* What a ring operation does, by ABI_OP_*. Each may end the request, at once or later. */
struct op_ops {
	void (*begin)(struct core *c, struct request *r); /* it was judged; NULL = nothing to do */
	void (*step)(struct core *c, struct request *r);  /* when woken; NULL = ended by aborts */
};

extern const struct op_ops core_ops[]; /* core.c */

#endif
