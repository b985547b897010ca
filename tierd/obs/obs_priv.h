/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside obs: what the files that make documents share.
 */
#ifndef TIERD_OBS_OBS_PRIV_H
#define TIERD_OBS_OBS_PRIV_H

#include <jansson.h>

#include "tierd/obs/obs.h"

/* A verb's arguments, judged. */
struct obs_args {
	const struct obs *o;
	const struct obs_question *question;
	uint32_t context_id; /* of "context" */
	const char *context;
	uint32_t tier;
	uint64_t bytes;
	uint8_t key[ABI_KEY_BYTES];
	struct core_quota quota;
	const struct policy_ops *policy;
	uint64_t store_id;
	enum core_drive_deed drive;
	enum { OBS_TRACE_READ, OBS_TRACE_BEGIN, OBS_TRACE_END } trace;
	uint32_t trace_from; /* READ: the first record */
};

/* Arguments of quota-set. Returns 0, or an errno with why (OBS_WHY_BYTES). */
int obs_take_quota(struct obs_args *a, const json_t *given, char *why);
/* Arguments of trace; begins one. Likewise, but *why is a constant. */
int obs_take_trace(struct obs_args *a, const json_t *given, const char **why);

/*
 * The next context behind id that who asks may know of, with its stats; OBS_FIRST first, negative
 * after the last. Operators see all, others what is theirs; a context of somebody else is as one
 * that is not there (I4). Whatever tells of contexts walks them with this.
 */
#define OBS_FIRST ((int64_t)UINT32_MAX)
int64_t obs_next(const struct core *core, const struct obs_question *q, int64_t id,
		 struct core_context_stats *stats);
/* Whose contexts that are: "all" or "own". */
const char *obs_seen(const struct obs_question *q);

/* A number; JSON has no larger ones than 2^63 - 1, those become null. */
json_t *obs_number(uint64_t value);
/* "0x…" */
json_t *obs_hex64(uint64_t value);
/* Bytes from outside as text that JSON can carry. */
json_t *obs_text(const char *text);
json_t *obs_tier_numbers(const struct core_tier_stats *stats);

/* One a verb: the document, or NULL out of memory. */
json_t *obs_status(const struct obs_args *a);
json_t *obs_stat(const struct obs_args *a);
json_t *obs_contexts(const struct obs_args *a);
json_t *obs_context(const struct obs_args *a);
json_t *obs_locate(const struct obs_args *a, int *error);
json_t *obs_check(const struct obs_args *a);
json_t *obs_pins(const struct obs_args *a);
json_t *obs_requests(const struct obs_args *a);
json_t *obs_clients(const struct obs_args *a);
json_t *obs_quota(const struct obs_args *a);
json_t *obs_trace(const struct obs_args *a);
json_t *obs_policy_tried(const struct obs_args *a);

#endif
