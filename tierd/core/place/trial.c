/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial: what another eviction policy would have kept of a context's CXL tier. It is told of
 * every block that comes and is used, as the real one is, and keeps as many as the context has
 * there at that moment. It decides nothing. One runs at a time, in memory of its own.
 *
 * It begins with the blocks that are there, in the order of their slots: it knows no more of them.
 * It has one order for all lanes, and lets go what the core would not (pins, dirty blocks).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define CXL ABI_TIER_CXL
#define SHARE 256u /* blocks of a tick that the trial begins with */

/* Blocks by slots of the trial's own: a block that left the service may still be in it. */
struct trial {
	struct context *x;
	const struct policy_ops *policy;
	void *state;
	uint8_t (*key)[ABI_KEY_BYTES]; /* by slot */
	uint32_t *head, *next; /* 1 + slot: by hash; behind it in its chain, or in the free list */
	uint32_t mask, free;
	uint32_t slots, fresh; /* in all; from here on none was ever used */
	uint32_t kept, there;  /* blocks: in the trial; of the context in CXL */
	uint32_t told;         /* of the context's blocks below this slot; it begins at 0 */
};

static uint32_t *chain_of(const struct trial *t, const uint8_t *key)
{
	return &t->head[abi_key_hash(key) & t->mask];
}

/* ABI_SLOT_NONE: the trial has let it go. */
static uint32_t find(const struct trial *t, const uint8_t *key)
{
	for (uint32_t at = *chain_of(t, key); at; at = t->next[at - 1])
		if (memcmp(t->key[at - 1], key, ABI_KEY_BYTES) == 0)
			return at - 1;
	return ABI_SLOT_NONE;
}

static void forget(struct trial *t, uint32_t slot)
{
	uint32_t *at = chain_of(t, t->key[slot]);

	assert(t->kept > 0);
	t->policy->remove(t->state, slot, t->key[slot]);
	while (*at != slot + 1)
		at = &t->next[*at - 1];
	*at = t->next[slot];
	t->next[slot] = t->free;
	t->free = slot + 1;
	t->kept--;
}

/* As many as there are in truth. */
static void shrink(struct core *c, struct trial *t)
{
	while (t->kept > t->there) {
		uint32_t slot = t->policy->victim(t->state, ABI_SLOT_NONE);

		if (slot == ABI_SLOT_NONE)
			return;
		meter_charge(&c->meter, 1);
		forget(t, slot);
	}
}

static void keep(struct core *c, struct trial *t, uint32_t slot)
{
	struct policy_hint hint = block_hint(c, t->x, slot);
	uint32_t own = t->free ? t->free - 1 : t->fresh, *head = chain_of(t, hint.key);

	if (own == t->slots)
		return;
	meter_charge(&c->meter, 1);
	if (t->free)
		t->free = t->next[own];
	else
		t->fresh++;
	assert(t->fresh <= t->slots);
	memcpy(t->key[own], hint.key, ABI_KEY_BYTES);
	t->next[own] = *head;
	*head = own + 1;
	if (hint.parent != ABI_SLOT_NONE)
		hint.parent = find(t, index_block(&t->x->ix, hint.parent)->key);
	hint.key = t->key[own];
	t->policy->insert(t->state, own, &hint);
	t->kept++;
	shrink(c, t);
}

static struct trial *trial_of(const struct core *c, const struct context *x)
{
	struct trial *t = c->evict.trial;

	return t && t->x == x ? t : NULL;
}

void trial_came(struct core *c, struct context *x, uint32_t slot)
{
	struct trial *t = trial_of(c, x);

	bool back = x->meta[slot].persist == PERSIST_CLEAN, has;

	if (!t || slot >= t->told)
		return;
	t->there++;
	has = find(t, index_block(&x->ix, slot)->key) != ABI_SLOT_NONE;
	c->evict.tried.reads += back;
	c->evict.tried.would_read += back && !has;
	if (!has)
		keep(c, t, slot);
}

void trial_left(struct core *c, struct context *x, uint32_t slot)
{
	struct trial *t = trial_of(c, x);

	if (!t || slot >= t->told)
		return;
	assert(t->there > 0);
	t->there--;
	shrink(c, t);
}

void trial_deleted(struct core *c, struct context *x, uint32_t slot)
{
	struct trial *t = trial_of(c, x);
	uint32_t own = t ? find(t, index_block(&x->ix, slot)->key) : ABI_SLOT_NONE;

	if (own != ABI_SLOT_NONE)
		forget(t, own);
}

void trial_used(struct core *c, struct context *x, uint32_t slot, uint32_t weight)
{
	struct trial *t = trial_of(c, x);
	bool there = x->meta[slot].there[CXL].ordered;
	uint32_t own;

	if (!t || slot >= t->told)
		return;
	own = find(t, index_block(&x->ix, slot)->key);
	meter_charge(&c->meter, 1);
	c->evict.tried.uses += there;
	if (own != ABI_SLOT_NONE) {
		t->policy->touch(t->state, own, weight, c->now_ns);
	} else if (there) { /* it would have had to come back for this use */
		c->evict.tried.would_read++;
		keep(c, t, slot);
	} else {
		t->policy->elsewhere(t->state, index_block(&x->ix, slot)->key);
	}
}

/* ---- its life ------------------------------------------------------------------------------ */

static void trial_free(struct trial *t)
{
	if (!t)
		return;
	free(t->state);
	free(t->key);
	free(t->head);
	free(t->next);
	free(t);
}

void trial_end(struct core *c, const struct context *x)
{
	if (!trial_of(c, x))
		return;
	trial_free(c->evict.trial);
	c->evict.trial = NULL;
	c->evict.tried.on = false;
}

/* Errors: -ENOMEM. trial_free it in any case. */
static int trial_make(struct trial **out, struct context *x, const struct policy_ops *policy)
{
	struct policy_size size = x->lanes.size[CXL];
	struct trial *t = calloc(1, sizeof(*t));
	uint64_t heads = 1;

	*out = t;
	if (!t)
		return -ENOMEM;
	while (heads < size.blocks_max)
		heads *= 2;
	size.sparse = false;
	t->x = x;
	t->policy = policy;
	t->slots = (uint32_t)size.blocks_max;
	t->mask = (uint32_t)(heads - 1);
	t->state = calloc(1, policy->state_bytes(&size));
	t->key = calloc(t->slots, sizeof(*t->key));
	t->next = calloc(t->slots, sizeof(*t->next));
	t->head = calloc(heads, sizeof(*t->head));
	if (!t->state || !t->key || !t->next || !t->head)
		return -ENOMEM;
	policy->init(t->state, &size);
	return 0;
}

int core_policy_try(struct core *c, uint32_t id, const char *name, uint64_t ns)
{
	const struct policy_ops *policy = policy_find(name);
	struct context *x = core_context(c, id);
	struct trial *t;
	int err;

	if (!x || x->closing)
		return -ENOENT;
	if (!policy || !x->lanes.size[CXL].blocks_max)
		return -EINVAL;
	if (x->former)
		return -EBUSY;
	if (c->evict.trial)
		trial_end(c, c->evict.trial->x);
	err = trial_make(&t, x, policy);
	if (err) {
		trial_free(t);
		return err;
	}
	c->evict.trial = t;
	c->evict.tried = (struct core_trial){ .on = true, .context = id, .policy = policy->name,
					      .until_ns = c->now_ns + ns };
	return 0;
}

const struct core_trial *core_policy_tried(const struct core *c)
{
	return &c->evict.tried;
}

/* Blocks that are there, a share in each tick, and then what comes. */
static void tell_all(struct core *c, struct trial *t)
{
	struct context *x = t->x;

	for (uint32_t n = 0; n < SHARE && t->told < x->ix.slots_used; n++) {
		uint32_t slot = t->told++;

		meter_charge(&c->meter, 1);
		if (x->meta[slot].there[CXL].ordered) {
			t->there++;
			keep(c, t, slot);
		}
	}
	if (t->told < x->ix.slots_used)
		return;
	t->told = ABI_SLOT_NONE;
	c->evict.tried.begun = true;
	c->evict.tried.from_ns = c->now_ns;
	c->evict.tried.uses = c->evict.tried.reads = c->evict.tried.would_read = 0;
}

void trial_tick(struct core *c)
{
	struct trial *t = c->evict.trial;

	if (!t)
		return;
	if (c->now_ns >= c->evict.tried.until_ns) {
		trial_end(c, t->x);
		return;
	}
	if (t->told != ABI_SLOT_NONE)
		tell_all(c, t);
	c->evict.tried.blocks = t->there;
}
