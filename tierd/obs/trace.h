/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon does, record by record, for as long as an operator asked: requests, operations
 * of the device, jobs of the workers, fences, evictions. The loop's thread notes; `tierctl trace`
 * reads the records when the time is over, and makes of each pair of BEGIN and END a span.
 *
 * While none is taken a note is a look at one flag. While one is, it is 32 bytes and a look at the
 * clock, which requests take from the core's last event. The memory is there for that time only;
 * what finds it full is counted.
 */
#ifndef TIERD_OBS_TRACE_H
#define TIERD_OBS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "tierd/core/core.h"

#define TRACE_RECORDS_MAX (1u << 20)
#define TRACE_SECONDS_MAX 600u
#define TRACE_READ_MAX 512u /* records of one answer */

enum trace_kind {
	TRACE_REQUEST, /* taken from a client's ring -> answered */
	TRACE_READ,    /* by the device; likewise */
	TRACE_WRITE,
	TRACE_FLUSH,
	TRACE_COPY,    /* handed to the workers -> done; likewise */
	TRACE_VERIFY,
	TRACE_PREPARE,
	TRACE_PUNCH,
	TRACE_DISCARD,
	TRACE_FENCE,
	TRACE_EVICT,   /* a mark: pages that a turn began to evict */
	TRACE_KINDS
};

enum trace_phase { TRACE_BEGIN, TRACE_END, TRACE_MARK };

struct trace_record {
	uint64_t now_ns;
	uint64_t id;    /* of a span: both of its records have it, with kind and who */
	uint64_t bytes; /* FENCE: pages; END of a request: its value; EVICT: pages from CXL, */
			/* ... and as id pages from HBM */
	int16_t res;    /* END: 0 or negative errno, as far as known */
	uint16_t who;   /* client, or drive */
	uint8_t kind, phase;
	uint8_t klass;
	uint8_t op; /* of a request */
};
_Static_assert(sizeof(struct trace_record) == 32, "as tierctl reads it");

struct trace {
	bool on;
	struct trace_record *record; /* NULL = there is none */
	uint32_t count;
	uint64_t lost, until_ns, last_ns;
	uint64_t hbm, cxl; /* pages evicted so far */
};

/* One is begun for so long; a former one is over. Errors: -EBUSY one is being taken, -ENOMEM. */
int trace_begin(struct trace *t, const struct core *core, uint32_t seconds, uint64_t now_ns);
/* Its memory goes; nothing if there is none. */
void trace_drop(struct trace *t);
/* Each turn: what has been evicted; the end of the time; nobody reads it. */
void trace_turn(struct trace *t, const struct core *core, uint64_t now_ns);

void trace_add(struct trace *t, struct trace_record r);
/* now_ns 0 = to be looked at, which is most of what a record costs. t may be NULL. */
static inline void trace_note(struct trace *t, struct trace_record r)
{
	if (t && __builtin_expect(t->on, false))
		trace_add(t, r);
}

#endif
