/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam to policies (I10): who leaves a tier first. A policy is data plus pure functions; there
 * is one instance a (context, memory tier, lane: lane.h). It names candidates; the core checks each
 * (pinned, dirty, in flight) and may ask for the next. It cannot break anything.
 */
#ifndef TIERD_CORE_POLICY_OPS_H
#define TIERD_CORE_POLICY_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libtier/abi/common.h"

struct policy_hint {
	uint64_t now_ns;
	uint32_t depth;  /* blocks before it in its prefix */
	uint32_t parent; /* slot; ABI_SLOT_NONE = none known */
	uint64_t bytes;  /* of the block */
	uint64_t salt;
	const uint8_t *key;
	uint64_t position; /* tokens before it in its prefix */
	uint32_t brought;  /* new blocks that its prompt had brought so far with its put, >= 1,
			    * rounded down to a power of two */
	bool joined;       /* its parent was brought by the same prompt, or both were recovered */
	bool last;         /* the last of its put */
};

/* What a state is made for. */
struct policy_size {
	uint64_t blocks_max; /* slots are below it */
	uint64_t resident;   /* blocks that fill the tier, whole ones */
	uint64_t most;       /* that can be inserted at a time, though each had one page there */
	bool sparse;         /* many slots are never inserted: they are another instance's */
};

struct policy_ops {
	size_t size; /* of this struct: grows at the end */
	uint32_t version;
	const char *name;
	const char *help; /* one line for the manual and tierctl */
	/*
	 * Bytes of state; the memory is zero-filled, touched lazily. More for larger numbers; made
	 * sparse, for so many slots as were ever used, no less than state_used says then.
	 */
	size_t (*state_bytes)(const struct policy_size *size);
	void (*init)(void *state, const struct policy_size *size);
	/* Of these, touched so far, at most; all slots that were ever used are below `slots`. */
	size_t (*state_used)(const void *state, uint64_t slots);
	/* The block has a copy in the tier now. Not called twice without remove. */
	void (*insert)(void *state, uint32_t slot, const struct policy_hint *hint);
	/* A reader leased it, weight times. Only for inserted slots. */
	void (*touch)(void *state, uint32_t slot, uint32_t weight, uint64_t now_ns);
	/* It has none any more. key: as it was inserted with. */
	void (*remove)(void *state, uint32_t slot, const uint8_t *key);
	/*
	 * The best victim after `after` (ABI_SLOT_NONE = the first); ABI_SLOT_NONE = no more. A
	 * walk passes over what the core cannot let go: `after` is the last of those. Between calls
	 * of a walk any block but `after` may be removed. A call with ABI_SLOT_NONE begins a walk
	 * and may put the state in order.
	 */
	uint32_t (*victim)(void *state, uint32_t after);
	/*
	 * Is the block worth a write to NVMe, which holds `reach` blocks, that it may be used from
	 * there when it has left this tier? Only for inserted slots. One that is not is asked about
	 * again when it was used.
	 */
	bool (*admit)(void *state, uint32_t slot, uint64_t reach);
	/* A block that is not in the tier was used, from another one. */
	void (*elsewhere)(void *state, const uint8_t *key);
	/*
	 * A hint, which changes nothing: a block (slot ABI_SLOT_NONE: not inserted yet; key NULL:
	 * not at hand) will soon be inserted, touched or removed, and what that takes may be
	 * brought into the processor's cache. Returns who may be the next victim when it has left;
	 * ABI_SLOT_NONE = cannot tell. Only for inserted slots.
	 */
	uint32_t (*expect)(const void *state, uint32_t slot, const uint8_t *key);
};

/* For policies that admit all, do not care what happens elsewhere, and bring nothing ahead. */
bool policy_admit_all(void *state, uint32_t slot, uint64_t reach);
void policy_elsewhere(void *state, const uint8_t *key);
uint32_t policy_expect(const void *state, uint32_t slot, const uint8_t *key);

/* What a context gets that names none. */
#define POLICY_DEFAULT "reuse"

/* By name; NULL = no such policy. i-th of the registry; NULL after the last. */
const struct policy_ops *policy_find(const char *name);
/* A name that older builds had: who asks for it gets the default, and is told. */
bool policy_retired(const char *name);
const struct policy_ops *policy_at(uint32_t i);

#endif
