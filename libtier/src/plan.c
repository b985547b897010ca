/*
 * Plans: the accesses to come, handed over in pieces, and the reader's position, which is one word
 * in the staging arena that the daemon looks at: advancing is a store.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "libtier/src/ask.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

struct tier_plan {
	struct tier_context *c;
	const uint32_t *alive;
	struct attachment *a; /* whose staging arena; counted in a->puts */
	uint64_t start;       /* of the word in it */
	uint64_t *word;
	uint64_t handle;
	uint32_t count;
};

static uint32_t first_max(void)
{
	return (ABI_ARG_BYTES_MAX - sizeof(struct abi_plan_args)) / sizeof(struct abi_access);
}

static int take_word(struct tier *t, struct tier_plan *p) REQUIRES(t->lock)
{
	struct attachment *a = connection_attachment(t);

	if (a->dead)
		return error_note(-ENOTCONN, "the daemon is away");
	if (arena_alloc(&a->arena, sizeof(uint64_t), ARENA_HIGH, &p->start) != 0)
		return error_note(-ENOBUFS, "plan: the staging arena is full; commit or abort "
					    "puts, or connect with more staging_bytes");
	p->a = a;
	a->puts++; /* it stays mapped as long as we have it */
	p->word = (uint64_t *)(void *)(a->staging + p->start);
	atomic_store_release_u64(p->word, 0);
	return 0;
}

static void give_word(struct tier *t, struct tier_plan *p)
{
	LOCK_SCOPE(&t->lock);
	if (!p->a)
		return;
	arena_free(&p->a->arena, p->start, sizeof(uint64_t));
	p->a->puts--;
	p->a = NULL;
	pthread_cond_broadcast(&t->moved);
}

static int send_piece(struct tier_plan *p, struct submission *s, uint32_t mode)
{
	struct tier_completion completion;
	int rc;

	s->entry.mode = (uint8_t)mode;
	s->entry.handle = p->handle;
	rc = submit_call(p->c->t, s, submit_until(0, SUBMIT_DEFAULT_NS), &completion);
	if (rc == 0)
		rc = submit_explain("plan", &completion);
	if (rc == 0)
		p->handle = completion.value;
	return rc;
}

static int send_all(struct tier_plan *p, struct submission *s, const struct tier_access *accesses,
		    const struct abi_plan_args *args)
{
	uint32_t at = 0;
	int rc = 0;

	while (rc == 0 && at < p->count) {
		uint32_t most = at ? ABI_ARG_BYTES_MAX / sizeof(struct abi_access) : first_max();
		uint32_t n = p->count - at < most ? p->count - at : most;

		s->args = (struct request_args){ .plan = at ? NULL : args,
						 .accesses = accesses + at,
						 .count = n };
		rc = send_piece(p, s, at ? ABI_PLAN_APPEND : ABI_PLAN_BEGIN);
		at += n;
	}
	return rc;
}

static int plan_of(struct tier_plan *p, struct submission *s, const struct tier_access *accesses,
		   const struct tier_plan_options *o)
{
	struct abi_plan_args args = { .start_ns = o->start_ns,
				      .access_ns = o->access_ns,
				      .budget_bytes = o->budget_bytes };
	struct tier *t = p->c->t;
	int rc = ask_range(&s->entry, p->c, o->range);

	if (rc == 0)
		rc = attach_ensure(t);
	if (rc)
		return rc;
	{
		LOCK_SCOPE(&t->lock);
		submit_collect(t);
		wait_handover(t);
		rc = take_word(t, p);
	}
	args.position_offset = p->start;
	return rc ? rc : send_all(p, s, accesses, &args);
}

/* Has the daemon handed over meanwhile? The next one knows nothing of the plan. */
static bool is_of_former(struct tier_plan *p)
{
	struct tier *t = p->c->t;

	LOCK_SCOPE(&t->lock);
	return p->a && p->a != connection_attachment(t) && p->a->number >= t->unbroken;
}

static int check_accesses(const struct tier_access *accesses, uint32_t count, bool timed)
{
	for (uint32_t i = 0; i < count; i++) {
		if (accesses[i].reserved)
			return error_set(-EINVAL, "plan: reserved of access %u is not 0", i);
		if (timed && i && accesses[i].time_us < accesses[i - 1].time_us)
			return error_set(-EINVAL, "plan: access %u is earlier than the one before "
						  "it", i);
	}
	return 0;
}

int tier_plan_begin(tier_context *c, const struct tier_access *accesses, uint32_t count,
		    const struct tier_plan_options *options, tier_plan **out)
{
	struct submission s = {
		.context = c,
		.entry = { .op = ABI_OP_PLAN, .klass = ABI_CLASS_DEADLINE },
	};
	struct tier_plan_options own;
	struct tier_plan *p;
	int rc = context_check(c);

	if (rc == 0 && !out)
		rc = error_note(-EINVAL, "tier_plan_begin: out is NULL");
	if (rc == 0)
		rc = ask_check_list("plan", accesses, count, TIER_PLAN_ACCESSES_MAX);
	if (rc == 0)
		rc = options_read(&own, sizeof(own), options);
	if (rc)
		return rc;
	if (!options)
		own.tier = TIER_CXL;
	if (own.tier >= ABI_MEM_TIERS || own.reserved)
		return error_set(-EINVAL, "plan: tier %u is not TIER_HBM or TIER_CXL, or reserved "
					  "is not 0", own.tier);
	rc = check_accesses(accesses, count, own.start_ns != 0);
	if (rc)
		return rc;
	s.entry.tier = (uint8_t)own.tier;
	p = calloc(1, sizeof(*p));
	if (!p)
		return error_note(-ENOMEM, "plan: out of memory");
	p->c = c;
	p->alive = c->alive;
	p->count = count;
	rc = plan_of(p, &s, accesses, &own);
	if (rc && is_of_former(p)) {
		give_word(p->c->t, p);
		p->handle = 0;
		rc = plan_of(p, &s, accesses, &own);
	}
	if (rc) {
		tier_plan_end(p);
		return rc;
	}
	*out = p;
	return 0;
}

void tier_plan_advance(tier_plan *p, uint32_t position)
{
	if (likely(p && !connection_orphaned(p->alive)))
		atomic_store_release_u64(p->word, position);
}

void tier_plan_end(tier_plan *p)
{
	struct submission s;
	struct tier_completion completion;

	if (!p || connection_orphaned(p->alive))
		return;
	s = (struct submission){
		.context = p->c,
		.entry = { .op = ABI_OP_PLAN,
			   .klass = ABI_CLASS_DEADLINE,
			   .mode = ABI_PLAN_END,
			   .handle = p->handle },
	};
	/* A daemon that has gone, or a restarted one, knows nothing of it: that is well. */
	if (p->handle && p->a == connection_attachment(p->c->t))
		(void)submit_call(p->c->t, &s, submit_until(0, SUBMIT_DEFAULT_NS), &completion);
	give_word(p->c->t, p);
	free(p);
}
