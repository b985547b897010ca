/*
 * Asking the daemon: fetch, pin, delete, cancel, drain. Each is a submission; the waiting forms cut
 * lists that are longer than one request's arguments.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/ask.h"

#include <errno.h>

#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/promise.h"
#include "libtier/src/submit.h"

#define KEYS_MAX (ABI_ARG_BYTES_MAX / (uint32_t)sizeof(tier_key))

/* ---- fetch ----------------------------------------------------------------------------------- */

int ask_check_list(const char *what, const void *list, uint32_t count, uint32_t count_max)
{
	if (!list || count == 0)
		return error_set(-EINVAL, "%s: the list is NULL or empty", what);
	if (count > count_max)
		return error_set(-EINVAL, "%s: %u entries are more than the %u of one request; cut "
					  "the list", what, count, count_max);
	return 0;
}

static int check_tier(const char *what, uint32_t level)
{
	if (level < ABI_MEM_TIERS)
		return 0;
	return error_set(-EINVAL, "%s: tier %u is not TIER_HBM or TIER_CXL", what, level);
}

/* Does a part of the range have one of its layers? */
static bool has_pages(const struct abi_geometry *g, const struct tier_range *range)
{
	uint32_t first = range->part_count ? range->part_first : 0;
	uint32_t count = range->part_count ? range->part_count : g->part_count;

	for (uint32_t i = first; i < first + count; i++)
		if (g->part[i].layers > range->layer_first)
			return true;
	return false;
}

int ask_range(struct abi_sqe *e, const tier_context *c, const struct tier_range *range)
{
	uint32_t parts = c->geometry.abi.part_count;

	if (!range)
		return 0;
	if (e->op == ABI_OP_FETCH_PAGES)
		return error_note(-EINVAL, "fetch: a range is of blocks; a list of pages has none");
	if (range->part_first >= parts || range->part_count > parts - range->part_first ||
	    (range->part_count == 0 && range->part_first != 0) ||
	    (range->layer_count == 0 && range->layer_first != 0))
		return error_set(-EINVAL, "fetch: parts %u + %u are not within the %u of the "
					  "context, or a first without a count",
				 range->part_first, range->part_count, parts);
	if (!has_pages(&c->geometry.abi, range))
		return error_set(-EINVAL, "fetch: no part of the range has a layer %u; layers are "
					  "counted within each part", range->layer_first);
	e->part_first = range->part_first;
	e->part_count = range->part_count;
	e->layer_first = range->layer_first;
	e->layer_count = range->layer_count;
	return 0;
}

static struct submission fetch_of(tier_context *c, uint8_t op, uint32_t level,
				  uint64_t deadline_ns)
{
	return (struct submission){
		.context = c,
		.entry = { .op = op,
			   .klass = ABI_CLASS_DEMAND,
			   .tier = (uint8_t)level,
			   .deadline_ns = deadline_ns },
		.owner = REQUEST_CALLER,
	};
}

/* A fetch as it is asked for, but for its list. */
static int read_ask(struct submission *s, tier_context *c, uint8_t op, const struct tier_ask *ask)
{
	struct tier_ask own;
	int rc = options_read(&own, sizeof(own), ask);

	/* All zero would be TIER_HBM. */
	if (!ask)
		own.tier = TIER_CXL;
	if (rc == 0)
		rc = check_tier("fetch", own.tier);
	if (rc == 0 && own.klass > TIER_CLASS_SPECULATIVE)
		rc = error_set(-EINVAL, "fetch: %u is no class; write TIER_CLASS_DEMAND, _DEADLINE "
					"or _SPECULATIVE", own.klass);
	if (rc == 0 && own.reserved)
		rc = error_note(-EINVAL, "fetch: reserved is not 0");
	if (rc)
		return rc;
	*s = fetch_of(c, op, own.tier, own.deadline_ns);
	s->entry.klass = (uint8_t)own.klass;
	s->user_data = own.user_data;
	return ask_range(&s->entry, c, own.range);
}

int tier_fetch_start(tier_context *c, const tier_block *blocks, uint32_t count,
		     const struct tier_ask *ask)
{
	struct submission s;
	int rc = context_check(c);

	if (rc == 0)
		rc = ask_check_list("fetch", blocks, count, ASK_BLOCKS_MAX);
	if (rc == 0)
		rc = read_ask(&s, c, ABI_OP_FETCH, ask);
	if (rc == 0)
		rc = submit_check_user_data(s.user_data);
	if (rc)
		return rc;
	s.args = (struct request_args){ .blocks = blocks, .count = count };
	return submit_start(c->t, &s);
}

int ask_pages(struct submission *s, tier_context *c, const struct tier_ask *ask)
{
	int rc = read_ask(s, c, ABI_OP_FETCH_PAGES, ask);

	return rc ? rc : submit_check_user_data(s->user_data);
}

int tier_fetch_pages_start(tier_context *c, const struct tier_page *pages, uint32_t count,
			   const struct tier_ask *ask)
{
	struct submission s;
	int rc = context_check(c);

	if (rc == 0)
		rc = ask_check_list("fetch", pages, count, ASK_PAGES_MAX);
	if (rc == 0)
		rc = ask_pages(&s, c, ask);
	if (rc)
		return rc;
	s.args = (struct request_args){ .pages = pages, .count = count };
	return submit_start(c->t, &s);
}

/* A waiting call; returns the answer's value or error. */
static int64_t call(struct tier *t, const char *what, const struct submission *s,
		    uint64_t until_ns)
{
	struct tier_completion completion;
	int rc = submit_call(t, s, until_ns, &completion);

	if (rc == 0)
		rc = submit_explain(what, &completion);
	return rc ? rc : (int64_t)completion.value;
}

static int64_t call_fetch(struct tier *t, const struct submission *s)
{
	return call(t, "fetch", s, submit_until(s->entry.deadline_ns, SUBMIT_DEFAULT_NS));
}

int64_t tier_fetch(tier_context *c, const tier_block *blocks, uint32_t count,
		   const struct tier_ask *ask)
{
	struct submission s;
	int64_t usable = 0;
	int rc = context_check(c);

	if (rc)
		return rc;
	if (count == 0)
		return 0;
	rc = ask_check_list("fetch", blocks, count, count);
	if (rc == 0)
		rc = read_ask(&s, c, ABI_OP_FETCH, ask);
	if (rc)
		return rc;
	for (uint32_t at = 0; at < count; at += ASK_BLOCKS_MAX) {
		uint32_t n = count - at < ASK_BLOCKS_MAX ? count - at : ASK_BLOCKS_MAX;
		int64_t value;

		s.args = (struct request_args){ .blocks = blocks + at, .count = n };
		value = call_fetch(c->t, &s);
		if (value < 0)
			return usable > 0 ? usable : value;
		usable += value;
		if (value < n)
			break;
	}
	return usable;
}

int ask_fetch_pages(tier_context *c, const struct tier_page *pages, uint32_t count,
		    uint64_t deadline_ns, struct tier_completion *out)
{
	struct submission s = fetch_of(c, ABI_OP_FETCH_PAGES, TIER_CXL, deadline_ns);

	s.args = (struct request_args){ .pages = pages, .count = count };
	return submit_call(c->t, &s, submit_until(deadline_ns, SUBMIT_DEFAULT_NS), out);
}

int64_t tier_fetch_pages(tier_context *c, const struct tier_page *pages, uint32_t count,
			 const struct tier_ask *ask)
{
	struct submission s;
	int64_t there = 0;
	int rc = context_check(c);

	if (rc)
		return rc;
	if (count == 0)
		return 0;
	rc = ask_check_list("fetch", pages, count, count);
	if (rc == 0)
		rc = read_ask(&s, c, ABI_OP_FETCH_PAGES, ask);
	if (rc)
		return rc;
	for (uint32_t at = 0; at < count; at += ASK_PAGES_MAX) {
		uint32_t n = count - at < ASK_PAGES_MAX ? count - at : ASK_PAGES_MAX;
		int64_t value;

		s.args = (struct request_args){ .pages = pages + at, .count = n };
		value = call_fetch(c->t, &s);
		if (value < 0)
			return there > 0 ? there : value;
		there += value;
	}
	return there;
}

/* ---- pin, delete ----------------------------------------------------------------------------- */

int64_t tier_pin(tier_context *c, const tier_block *blocks, uint32_t count, uint32_t tier_wanted,
		 uint64_t deadline_ns, uint64_t *pin)
{
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_PIN,
			   .klass = ABI_CLASS_DEMAND,
			   .tier = (uint8_t)tier_wanted,
			   .deadline_ns = deadline_ns },
		.args = { .blocks = blocks, .count = count },
	};
	struct tier_completion completion;
	int rc = context_check(c);

	if (rc == 0 && !pin)
		rc = error_note(-EINVAL, "tier_pin: pin is NULL");
	if (rc == 0)
		rc = ask_check_list("pin", blocks, count, ASK_BLOCKS_MAX);
	if (rc == 0)
		rc = check_tier("pin", tier_wanted);
	if (rc == 0 && deadline_ns && deadline_ns <= time_now_ns())
		rc = error_note(-ETIMEDOUT, "pin: the deadline has passed");
	/* The deadline is the prefetch's, not the answer's. */
	if (rc == 0)
		rc = submit_call(c->t, &s, submit_until(0, SUBMIT_DEFAULT_NS), &completion);
	if (rc == 0)
		rc = submit_explain("pin", &completion);
	if (rc)
		return rc;
	*pin = completion.value;
	return (int64_t)completion.aux;
}

int tier_unpin(tier_context *c, uint64_t pin)
{
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_UNPIN, .klass = ABI_CLASS_DEMAND },
	};
	int64_t value;
	int rc = context_check(c);

	if (rc)
		return rc;
	s.entry.handle = promise_end(c->t, ABI_OP_PIN, pin);
	if (!s.entry.handle && pin)
		return 0; /* the daemon that gave it has gone */
	value = call(c->t, "unpin", &s, submit_until(0, SUBMIT_DEFAULT_NS));
	return value < 0 ? (int)value : 0;
}

int64_t tier_delete(tier_context *c, const tier_key *keys, uint32_t count)
{
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_DELETE,
			   .klass = ABI_CLASS_DEMAND,
			   .flags = ABI_SQE_DURABLE | ABI_SQE_KEYS },
	};
	int64_t deleted = 0;
	int rc = context_check(c);

	if (rc)
		return rc;
	if (count == 0)
		return 0;
	rc = ask_check_list("delete", keys, count, count);
	if (rc)
		return rc;
	/* The last first: of a prefix' first blocks the others leave by themselves, uncounted. */
	while (count) {
		uint32_t n = count < KEYS_MAX ? count : KEYS_MAX;
		int64_t value;

		count -= n;
		s.args = (struct request_args){ .keys = keys + count, .count = n };
		value = call(c->t, "delete", &s, submit_until(0, SUBMIT_LONG_NS));
		if (value < 0)
			return value;
		deleted += value;
	}
	return deleted;
}

/* ---- cancel, drain --------------------------------------------------------------------------- */

/* The caller's next request with this user_data at or behind *from, as it travels; 0: none. */
static uint64_t find_flying(struct tier *t, uint64_t user_data, uint32_t *from)
{
	LOCK_SCOPE(&t->lock);
	submit_collect(t);
	for (; *from < t->requests.count; ++*from) {
		const struct request *rq = &t->requests.entry[*from];

		if (rq->state == REQUEST_FLYING && rq->owner == REQUEST_CALLER &&
		    rq->user_data == user_data)
			return t->requests.entry[(*from)++].wire_id;
	}
	return 0;
}

int tier_cancel(tier *t, uint64_t user_data)
{
	struct submission s = { .entry = { .op = ABI_OP_CANCEL, .klass = ABI_CLASS_DEMAND } };
	uint32_t from = 0;
	bool found = false;
	int rc = connection_check(t);

	if (rc == 0)
		rc = submit_check_user_data(user_data);
	if (rc)
		return rc;
	while ((s.entry.handle = find_flying(t, user_data, &from)) != 0) {
		int64_t value = call(t, "cancel", &s, submit_until(0, SUBMIT_LONG_NS));

		/* -ENOENT: it completed meanwhile. */
		if (value < 0 && value != -ENOENT)
			return (int)value;
		found = found || value >= 0;
	}
	if (found)
		return 0;
	return error_note(-ENOENT, "cancel: no request with this user_data is under way");
}

int tier_drain(tier *t)
{
	const struct submission s = { .entry = { .op = ABI_OP_DRAIN, .klass = ABI_CLASS_DEMAND } };
	int64_t value;
	int rc = connection_check(t);

	if (rc)
		return rc;
	value = call(t, "drain", &s, submit_until(0, SUBMIT_LONG_NS));
	return value < 0 ? (int)value : 0;
}
