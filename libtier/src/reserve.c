/*
 * Reservations: room for what is going to be put. One request each; the daemon keeps the sums.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/promise.h"
#include "libtier/src/submit.h"

static int check_options(const struct tier_reserve_options *o)
{
	if (o->expected > ABI_RESERVE_BLOCKS_MAX || o->p95 > ABI_RESERVE_BLOCKS_MAX ||
	    o->step > ABI_RESERVE_BLOCKS_MAX)
		return error_set(-EINVAL, "reserve: more than %u blocks", ABI_RESERVE_BLOCKS_MAX);
	if (o->p95 && o->p95 < o->expected)
		return error_set(-EINVAL, "reserve: p95 %u is less than the %u expected", o->p95,
				 o->expected);
	if (o->p95 && !o->expected)
		return error_note(-EINVAL, "reserve: p95 without expected; give both or none");
	if (o->deadline_ns && o->deadline_ns <= time_now_ns())
		return error_note(-ETIMEDOUT, "reserve: the deadline has passed");
	return 0;
}

int tier_reserve(tier_context *c, const struct tier_reserve_options *options,
		 struct tier_reserved *out)
{
	struct tier_reserve_options o;
	struct abi_reserve_args args;
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_RESERVE, .klass = ABI_CLASS_DEMAND },
		.args = { .reserve = &args, .count = 1 },
	};
	struct tier_completion completion;
	int rc = context_check(c);

	if (rc == 0 && !out)
		rc = error_note(-EINVAL, "reserve: out is NULL");
	if (rc == 0)
		rc = options_read(&o, sizeof(o), options);
	if (rc == 0)
		rc = check_options(&o);
	if (rc)
		return rc;
	args = (struct abi_reserve_args){ .salt = o.salt,
					  .expected = o.expected,
					  .p95 = o.p95,
					  .step = o.step,
					  .role = o.role,
					  .prompt_tokens = o.prompt_tokens };
	/* The deadline is the reservation's, not the answer's. */
	s.entry.deadline_ns = o.deadline_ns;
	rc = submit_call(c->t, &s, submit_until(0, SUBMIT_DEFAULT_NS), &completion);
	if (rc == 0)
		rc = submit_explain("reserve", &completion);
	if (rc)
		return rc;
	*out = (struct tier_reserved){ completion.value, (uint32_t)completion.aux,
				       (uint32_t)(completion.aux >> 32) };
	return 0;
}

int64_t tier_reserve_end(tier_context *c, uint64_t reservation)
{
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_RESERVE, .klass = ABI_CLASS_DEMAND },
	};
	struct tier_completion completion;
	int rc = context_check(c);

	if (rc == 0 && !reservation)
		rc = error_note(-EINVAL, "reserve: 0 is no reservation");
	if (rc)
		return rc;
	s.entry.handle = promise_end(c->t, ABI_OP_RESERVE, reservation);
	if (!s.entry.handle)
		return 0; /* the daemon that gave it has gone, and what was drawn is not known */
	rc = submit_call(c->t, &s, submit_until(0, SUBMIT_DEFAULT_NS), &completion);
	if (rc == 0)
		rc = submit_explain("reserve_end", &completion);
	return rc ? rc : (int64_t)completion.value;
}
