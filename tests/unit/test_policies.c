/*
 * s3fifo and arc against references that keep plain arrays; every policy in walks as the core does
 * them; reuse recounted from its nodes and ghosts, and its statistics against a search over all
 * stopping times.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/policy/reuse.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tests/unit/policy_key.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 60u
#define KEYS 200u
#define STEPS 60000u

/* A small cache over numbered keys: which slot has which. Slot = any free one. */
struct cache {
	const struct policy_ops *ops;
	void *policy;
	uint32_t slot_of[KEYS]; /* ABI_SLOT_NONE = not there */
	uint32_t key_of[KEYS]; /* by slot */
	uint32_t count, slots;
	struct rng rng;
};

static struct cache *cache_sized(const char *policy, uint64_t seed, const struct policy_size *size)
{
	struct cache *c = calloc(1, sizeof(*c));

	c->ops = policy_find(policy);
	assert_non_null(c->ops);
	c->policy = calloc(1, c->ops->state_bytes(size));
	c->ops->init(c->policy, size);
	c->rng = (struct rng){ seed };
	for (uint32_t i = 0; i < KEYS; i++)
		c->slot_of[i] = ABI_SLOT_NONE;
	c->slots = (uint32_t)size->blocks_max;
	for (uint32_t i = 0; i < KEYS; i++)
		c->key_of[i] = KEYS;
	return c;
}

static struct cache *cache_new(const char *policy, uint64_t seed)
{
	return cache_sized(policy, seed, &(struct policy_size){ BLOCKS, BLOCKS, BLOCKS, false });
}

static void cache_free(struct cache *c)
{
	free(c->policy);
	free(c);
}

/* Keys form a tree: the parent of k is (k - 1) / 3, so paths share their beginnings. */
static void cache_insert(struct cache *c, uint32_t key)
{
	uint8_t bytes[ABI_KEY_BYTES];
	struct policy_hint hint = {
		.parent = key ? c->slot_of[(key - 1) / 3] : ABI_SLOT_NONE,
		.key = bytes,
		.joined = rng_below(&c->rng, 4) == 0,
		.brought = 1 + (uint32_t)rng_below(&c->rng, 40),
		.last = rng_below(&c->rng, 4) == 0,
		.position = rng_below(&c->rng, 100000),
	};
	uint32_t slot = (uint32_t)rng_below(&c->rng, c->slots);

	while (c->key_of[slot] != KEYS)
		slot = (slot + 1) % c->slots;
	key_bytes(bytes, key);
	c->ops->insert(c->policy, slot, &hint);
	c->key_of[slot] = key;
	c->slot_of[key] = slot;
	c->count++;
}

static void cache_remove(struct cache *c, uint32_t slot)
{
	uint8_t bytes[ABI_KEY_BYTES];

	key_bytes(bytes, c->key_of[slot]);
	c->ops->remove(c->policy, slot, bytes);
	c->slot_of[c->key_of[slot]] = ABI_SLOT_NONE;
	c->key_of[slot] = KEYS;
	c->count--;
}

/* ---- references ---------------------------------------------------------------------------- */

/* Ordered lists of keys, oldest first. */
struct list {
	uint32_t key[STEPS];
	uint32_t count;
};

static uint32_t list_find(const struct list *l, uint32_t key)
{
	for (uint32_t i = l->count; i-- > 0;)
		if (l->key[i] == key)
			return i;
	return UINT32_MAX;
}

static void list_take(struct list *l, uint32_t key)
{
	uint32_t i = list_find(l, key);

	assert_int_not_equal(i, UINT32_MAX);
	l->count--;
	memmove(&l->key[i], &l->key[i + 1], (l->count - i) * sizeof(l->key[0]));
}

static void list_add(struct list *l, uint32_t key)
{
	l->key[l->count++] = key;
}

/* Was the key among the last `most` that were added to this list? Then it is struck. */
static bool list_strike(struct list *l, uint32_t key, uint32_t most)
{
	uint32_t i = list_find(l, key);
	bool recent = i != UINT32_MAX && l->count - i <= most;

	if (recent)
		l->key[i] = UINT32_MAX;
	return recent;
}

struct reference {
	struct list queue[2], ghost[2];
	uint32_t touches[KEYS];
	uint32_t target;
};

static uint32_t queue_of(const struct reference *r, uint32_t key)
{
	return list_find(&r->queue[0], key) != UINT32_MAX ? 0 : 1;
}

static void s3_insert(struct reference *r, uint32_t key)
{
	uint32_t i = list_find(&r->ghost[0], key);
	bool back = list_strike(&r->ghost[0], key, r->queue[1].count);

	if (!back && i != UINT32_MAX)
		r->ghost[0].key[i] = UINT32_MAX;
	r->touches[key] = 0;
	list_add(&r->queue[back], key);
}

static void s3_touch(struct reference *r, uint32_t key)
{
	if (r->touches[key] < 3)
		r->touches[key]++;
}

static uint32_t s3_victim(struct reference *r)
{
	for (;;) {
		uint32_t all = r->queue[0].count + r->queue[1].count;
		uint32_t q = r->queue[0].count * 10 > all || !r->queue[1].count ? 0 : 1;
		uint32_t key = r->queue[q].key[0];

		if (r->touches[key] < (q ? 1 : 2))
			return key;
		list_take(&r->queue[q], key);
		r->touches[key] = q ? r->touches[key] - 1 : 0;
		list_add(&r->queue[1], key);
	}
}

static void s3_remove(struct reference *r, uint32_t key)
{
	uint32_t q = queue_of(r, key);

	list_take(&r->queue[q], key);
	if (q == 0)
		list_add(&r->ghost[0], key);
}

static void arc_insert(struct reference *r, uint32_t key)
{
	uint32_t one = r->queue[0].count, two = r->queue[1].count, to = 0;

	if (list_strike(&r->ghost[0], key, two)) {
		uint32_t step = one && two > one ? two / one : two > 1 && !one ? two : 1;

		r->target = r->target + step < one + two ? r->target + step : one + two;
		to = 1;
	} else if (list_strike(&r->ghost[1], key, one + two)) {
		uint32_t step = two && one > two ? one / two : one > 1 && !two ? one : 1;

		r->target = r->target > step ? r->target - step : 0;
		to = 1;
	}
	list_add(&r->queue[to], key);
}

static void arc_touch(struct reference *r, uint32_t key)
{
	list_take(&r->queue[queue_of(r, key)], key);
	list_add(&r->queue[1], key);
}

static uint32_t arc_victim(struct reference *r)
{
	bool once = r->queue[0].count && (r->queue[0].count > r->target || !r->queue[1].count);

	return r->queue[!once].key[0];
}

static void arc_remove(struct reference *r, uint32_t key)
{
	uint32_t q = queue_of(r, key);

	list_take(&r->queue[q], key);
	list_add(&r->ghost[q], key);
}

struct reference_ops {
	const char *name;
	void (*insert)(struct reference *r, uint32_t key);
	void (*touch)(struct reference *r, uint32_t key);
	uint32_t (*victim)(struct reference *r);
	void (*remove)(struct reference *r, uint32_t key);
};

static void compare(const struct reference_ops *ref, uint64_t seed)
{
	struct cache *c = cache_new(ref->name, seed);
	struct reference *r = calloc(1, sizeof(*r));

	for (uint32_t i = 0; i < STEPS; i++) {
		uint64_t low = rng_below(&c->rng, KEYS); /* low keys more often */
		uint32_t key = (uint32_t)(low * rng_below(&c->rng, KEYS) / KEYS);

		if (c->slot_of[key] != ABI_SLOT_NONE) {
			c->ops->touch(c->policy, c->slot_of[key], 1, 0);
			ref->touch(r, key);
			continue;
		}
		if (c->count == BLOCKS) {
			uint32_t slot = c->ops->victim(c->policy, ABI_SLOT_NONE);

			assert_int_equal(c->key_of[slot], ref->victim(r));
			ref->remove(r, c->key_of[slot]);
			cache_remove(c, slot);
		}
		cache_insert(c, key);
		ref->insert(r, key);
	}
	free(r);
	cache_free(c);
}

static void test_s3fifo_agrees_with_reference(void **state)
{
	static const struct reference_ops ref = { "s3fifo", s3_insert, s3_touch, s3_victim,
						  s3_remove };

	(void)state;
	compare(&ref, 1);
	compare(&ref, 2);
}

static void test_arc_agrees_with_reference(void **state)
{
	static const struct reference_ops ref = { "arc", arc_insert, arc_touch, arc_victim,
						  arc_remove };

	(void)state;
	compare(&ref, 3);
	compare(&ref, 4);
}

/* ---- walks --------------------------------------------------------------------------------- */

/* Nothing removed: every block once. */
static void walk_all(struct cache *c)
{
	bool seen[KEYS] = { false };
	uint32_t at = ABI_SLOT_NONE;

	for (uint32_t i = 0; i < c->count; i++) {
		at = c->ops->victim(c->policy, at);
		assert_in_range(at, 0, c->slots - 1);
		assert_int_not_equal(c->key_of[at], KEYS);
		assert_false(seen[at]);
		seen[at] = true;
	}
	assert_int_equal(c->ops->victim(c->policy, at), ABI_SLOT_NONE);
}

/* As the core evicts: some are passed over, the others removed. */
static void walk_remove(struct cache *c)
{
	uint32_t stays = ABI_SLOT_NONE, want = c->count / 2, gone = 0, steps = 0;

	while (gone < want) {
		uint32_t slot = c->ops->victim(c->policy, stays);

		if (slot == ABI_SLOT_NONE)
			break;
		assert_in_range(++steps, 1, 2 * BLOCKS);
		if (rng_below(&c->rng, 3) == 0) {
			stays = slot;
			continue;
		}
		cache_remove(c, slot);
		gone++;
	}
}

static void recount(struct cache *c);

static void random_walks(struct cache *c)
{
	const struct policy_ops *ops = c->ops;

	for (uint32_t i = 0; i < STEPS; i++) {
		uint32_t key = (uint32_t)rng_below(&c->rng, KEYS);

		if (c->slot_of[key] != ABI_SLOT_NONE && rng_below(&c->rng, 8) == 0)
			cache_remove(c, c->slot_of[key]);
		else if (c->slot_of[key] != ABI_SLOT_NONE)
			ops->touch(c->policy, c->slot_of[key], (uint32_t)rng_below(&c->rng, 3), i);
		else if (c->count < BLOCKS)
			cache_insert(c, key);
		if (c->count == BLOCKS)
			walk_remove(c);
		if (i % 32 == 0)
			walk_all(c);
		if (i % 32 == 0 && strncmp(ops->name, "reuse", 5) == 0)
			recount(c);
	}
	cache_free(c);
}

static void test_all_walks(void **state)
{
	const struct policy_ops *ops;

	(void)state;
	for (uint32_t p = 0; (ops = policy_at(p)) != NULL; p++)
		random_walks(cache_new(ops->name, 10 + p));
}

/* With more slots than blocks that fit: nodes are handed out and used again. */
static void test_all_walks_of_few_among_many(void **state)
{
	const struct policy_size size = { KEYS, BLOCKS / 2, BLOCKS, false };
	const struct policy_size sparse = { BLOCKS, BLOCKS, BLOCKS, true };
	const struct policy_ops *ops;

	(void)state;
	for (uint32_t p = 0; (ops = policy_at(p)) != NULL; p++)
		random_walks(cache_sized(ops->name, 50 + p, &size));
	for (uint32_t p = 0; (ops = policy_at(p)) != NULL; p++)
		random_walks(cache_sized(ops->name, 70 + p, &sparse));
}

/* ---- reuse --------------------------------------------------------------------------------- */

static const struct reuse_node *node_at(const struct cache *c, uint32_t slot)
{
	const struct reuse *r = c->policy;

	return &r->node[reuse_node_of(r, slot)];
}

static uint32_t children_of(const struct cache *c, uint32_t slot)
{
	const struct reuse *r = c->policy;
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->slots; i++)
		n += c->key_of[i] != KEYS && node_at(c, i)->parent == reuse_node_of(r, slot) &&
		     node_at(c, i)->parent_life == node_at(c, slot)->life;
	return n;
}

static double rate_of(const struct cache *c, uint32_t slot)
{
	const struct reuse *r = c->policy;
	static const double worth[REUSE_DEPTHS] = { 1.0, 1.2, 1.4, 1.8 };
	const struct reuse_node *n = node_at(c, slot);
	uint32_t age = reuse_age_of(r, n);

	age = reuse_age(age > 127 ? 127 : age);

	return r->rate[n->kind][age] * worth[n->depth] * (age ? 1 : 1000);
}

/* What is known by epoch alone; where the edge of LRU stands; the bit maps of leaves. */
static void recount_sums(const struct reuse *r)
{
	const struct reuse_regret *g = &r->regret;
	uint64_t newer = 0, newer_here = 0;

	for (uint32_t at = 0; at < REUSE_EPOCHS; at++) {
		uint32_t sum = 0, leafy = 0;
		bool before = (r->epoch - at) % REUSE_EPOCHS < g->edge;

		for (uint32_t k = 0; k < REUSE_KINDS; k++)
			sum += r->known[at][k];
		assert_int_equal(g->known[at], sum);
		newer += before ? sum : 0;
		newer_here += before ? g->here[at] : 0;
		for (uint32_t row = 0; row < REUSE_ROWS; row++) {
			bool leaf = r->cell[at][row].leaf != 0;

			assert_int_equal(r->rows[at][row / 64] >> row % 64 & 1, leaf);
			assert_int_equal(r->leaves[row][at / 64] >> at % 64 & 1, leaf);
			leafy += leaf;
		}
		assert_int_equal(r->columns[at / 64] >> at % 64 & 1, leafy > 0);
	}
	for (uint32_t row = 0; row < REUSE_ROWS; row++)
		assert_int_equal(r->rows[REUSE_EPOCHS][row / 64] >> row % 64 & 1,
				 r->cell[REUSE_EPOCHS][row].leaf != 0);
	assert_true(g->newer == newer && g->newer_here == newer_here);
}

/* A walk's first out of turn: the oldest, worth little more than one; at the limit beyond LRU. */
static void recount_oldest(const struct cache *c, uint32_t first)
{
	struct reuse *r = c->policy;
	uint32_t age = reuse_age_of(r, node_at(c, first));
	bool limit = !reuse_regret_allows(r, 0);
	double least = 1e300;

	for (uint32_t i = 0; i < c->slots; i++)
		if (c->key_of[i] != KEYS && !node_at(c, i)->children) {
			assert_true(age >= REUSE_EPOCHS || (limit && age > r->regret.edge) ||
				    reuse_age_of(r, node_at(c, i)) <= age);
			least = fmin(least, rate_of(c, i));
		}
	assert_true(limit || rate_of(c, first) < least * r->regret.caution * 1.0001);
}

/* Who is known by kind and epoch, from the nodes and the ghosts; children; the order of a walk. */
static void recount(struct cache *c)
{
	const struct reuse *r = c->policy;
	uint32_t known[REUSE_EPOCHS][REUSE_KINDS] = { { 0 } };
	uint32_t here[REUSE_EPOCHS] = { 0 }, at = ABI_SLOT_NONE;
	bool inner = false;
	double before = 0;

	for (uint32_t i = 0; i < c->slots; i++) {
		const struct reuse_node *n = node_at(c, i);

		assert_int_equal(n->in, c->key_of[i] != KEYS);
		if (c->key_of[i] == KEYS)
			continue;
		assert_int_equal(reuse_slot_of(r, reuse_node_of(r, i)), i);
		assert_int_equal(n->children, children_of(c, i));
		known[n->epoch % REUSE_EPOCHS][n->kind] += reuse_age_of(r, n) < REUSE_EPOCHS;
		here[n->epoch % REUSE_EPOCHS] += reuse_age_of(r, n) < REUSE_EPOCHS;
	}
	for (uint32_t i = 0; i < r->ghosts->lines * GHOSTS_LINE; i++) {
		const struct ghost *g = &r->ghosts->place[i / GHOSTS_LINE][i % GHOSTS_LINE];
		struct reuse_note note;
		uint32_t age;

		memcpy(&note, &g->note, sizeof(note));
		age = (uint16_t)(r->epoch - note.epoch);
		if (g->tag && age < REUSE_EPOCHS)
			known[(r->epoch - age) % REUSE_EPOCHS][note.kind]++;
	}
	assert_memory_equal(known, r->known, sizeof(known));
	assert_memory_equal(here, r->regret.here, sizeof(here));
	recount_sums(r);
	for (uint32_t i = 0; i < c->count; i++) {
		at = c->ops->victim(c->policy, at);
		if (i == 0 && r->oldest) {
			recount_oldest(c, at);
			continue;
		}
		if (!inner && node_at(c, at)->children) {
			inner = true; /* leaves first, each part in the order of worth */
			before = 0;
		}
		assert_int_equal(node_at(c, at)->children > 0, inner);
		assert_true(rate_of(c, at) * (1 + 1 / 16384.0) >= before); /* ranks are no finer */
		before = rate_of(c, at);
	}
}

static void chain(struct cache *c, uint32_t slot, uint32_t parent, uint32_t depth);

/* Uses of blocks that left are learnt from their ghosts, and what is never used is not admitted. */
static void test_reuse_admits_what_is_used(void **state)
{
	struct cache *c = cache_new("reuse", 3);
	struct reuse *r = c->policy;
	uint32_t used = 0;

	(void)state;
	for (uint32_t k = 0; k < REUSE_KINDS; k++)
		for (uint32_t a = 0; a < REUSE_AGES; a++) {
			r->seen[a].time[k] = 1e12;
			r->seen[a].uses[k] = k >= REUSE_KINDS - REUSE_ORIGINS ? 1e10 : 1e8;
		}
	reuse_learn(r);
	chain(c, 0, ABI_SLOT_NONE, 0);
	assert_false(c->ops->admit(r, 0, 1000));
	assert_true(c->ops->admit(r, 0, 1u << 30)); /* there it would wait for very long */
	while (used++ < 10) {
		r->clock = r->epoch_end; /* uses within an epoch are one */
		chain(c, used, ABI_SLOT_NONE, 0);
		c->ops->touch(r, 0, 1, 0);
	}
	assert_true(c->ops->admit(r, 0, 1000));
	cache_free(c);
}

/* A use from another tier is one of the ghost, once an epoch. */
static void test_reuse_learns_from_elsewhere(void **state)
{
	struct cache *c = cache_new("reuse", 4);
	struct reuse *r = c->policy;
	uint8_t key[ABI_KEY_BYTES];
	double before = 0, after = 0;

	(void)state;
	chain(c, 0, ABI_SLOT_NONE, 0);
	c->ops->remove(r, 0, (key_bytes(key, 0), key));
	c->slot_of[0] = ABI_SLOT_NONE;
	c->key_of[0] = KEYS;
	c->count--;
	c->ops->elsewhere(r, key); /* it left in this epoch */
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t slot = 1 + i % 8;

		chain(c, slot, ABI_SLOT_NONE, 0);
		cache_remove(c, slot);
	}
	assert_true(r->epoch >= 2);
	for (uint32_t k = 0; k < REUSE_KINDS; k++)
		for (uint32_t a = 0; a < REUSE_AGES; a++)
			before += r->seen[a].uses[k];
	c->ops->elsewhere(r, key);
	c->ops->elsewhere(r, key);
	for (uint32_t k = 0; k < REUSE_KINDS; k++)
		for (uint32_t a = 0; a < REUSE_AGES; a++)
			after += r->seen[a].uses[k];
	assert_true(fabs(after - before - 1) < 0.01);
	recount(c);
	cache_free(c);
}

/* The best ratio of uses to waiting over every age at which one could give up. */
static double best_ratio(const double hazard[REUSE_AGES], uint32_t from)
{
	double use = 0, time = 0, through = 1, best = 0;

	for (uint32_t a = from; a < REUSE_AGES; a++) {
		double width = reuse_age_first[a + 1] - reuse_age_first[a];
		double pass = a == REUSE_AGES - 1 ? 0 : 1 / (1 + hazard[a] * width);

		use += through * (1 - pass);
		time += through * (a == REUSE_AGES - 1 ? 1 / hazard[a] : width * pass);
		through *= pass;
		if (use / time > best)
			best = use / time;
	}
	return best;
}

/* With counts far above the weights, a kind's rates are the best ratios of what was counted. */
static void test_reuse_learns_what_it_counts(void **state)
{
	struct reuse *r = calloc(1, sizeof(*r));
	struct rng rng = { 5 };

	(void)state;
	for (uint32_t round = 0; round < 50; round++) {
		double hazard[REUSE_KINDS][REUSE_AGES];

		for (uint32_t k = 0; k < REUSE_KINDS; k++) {
			for (uint32_t a = 0; a < REUSE_AGES; a++) {
				hazard[k][a] = 0.001 + (double)rng_below(&rng, 1000) / 10000;
				r->seen[a].time[k] = 1e12;
				r->seen[a].uses[k] = 1e12 * hazard[k][a];
			}
		}
		reuse_learn(r);
		for (uint32_t k = 0; k < REUSE_KINDS; k++)
			for (uint32_t a = 0; a < REUSE_AGES; a++)
				assert_true(fabs(r->rate[k][a] / best_ratio(hazard[k], a) - 1) <
					    1e-3);
	}
	free(r);
}

/* Without counts all kinds are alike, and the longer unused the less they are worth: LRU. */
static void test_reuse_knows_nothing_at_first(void **state)
{
	struct reuse *r = calloc(1, sizeof(*r));

	(void)state;
	reuse_learn(r);
	for (uint32_t k = 0; k < REUSE_KINDS; k++) {
		for (uint32_t a = 0; a < REUSE_AGES; a++) {
			assert_true(fabs(r->rate[k][a] / r->rate[0][a] - 1) < 1e-9);
			assert_true(!a || r->rate[k][a] < r->rate[k][a - 1]);
		}
	}
	free(r);
}

static void chain(struct cache *c, uint32_t slot, uint32_t parent, uint32_t depth)
{
	uint8_t bytes[ABI_KEY_BYTES];
	struct policy_hint hint = { .parent = parent,
				    .depth = depth,
				    .key = bytes,
				    .joined = parent != ABI_SLOT_NONE,
				    .brought = 8,
				    .position = depth * 512ull };

	key_bytes(bytes, slot);
	c->ops->insert(c->policy, slot, &hint);
	c->key_of[slot] = slot;
	c->slot_of[slot] = slot;
	c->count++;
}

/* Of two leaves, the older worth `times` the younger: who leaves first; then all do, once each. */
static uint32_t first_of_two(double times)
{
	struct cache *c = cache_new("reuse", 6);
	struct reuse *r = c->policy;
	uint32_t first, kind;

	chain(c, 0, ABI_SLOT_NONE, 0);
	r->clock = r->epoch_end;
	chain(c, 1, ABI_SLOT_NONE, 0);
	c->ops->touch(r, 0, 1, 0); /* another kind from now on */
	for (uint32_t i = 0; i < 4; i++) {
		r->clock = r->epoch_end;
		chain(c, 2 + 2 * i, ABI_SLOT_NONE, 0);
		cache_remove(c, 2 + 2 * i);
	}
	r->clock = r->epoch_end;
	c->ops->touch(r, 1, 1, 0);
	c->ops->touch(r, 1, 1, 0);
	kind = node_at(c, 0)->kind;
	r->clock = r->epoch_end;
	chain(c, 2, ABI_SLOT_NONE, 0);
	cache_remove(c, 2);
	assert_true(reuse_age_of(r, node_at(c, 0)) > reuse_age_of(r, node_at(c, 1)));
	for (uint32_t k = 0; k < REUSE_KINDS; k++)
		for (uint32_t a = 0; a < REUSE_AGES; a++)
			r->rate[k][a] = k == kind && a > 1 ? times : 1;
	reuse_rank(r);
	reuse_groups_mark(r);
	r->regret.caution = 1.25;
	r->regret.balance = c->slots; /* no limit */
	first = c->ops->victim(r, ABI_SLOT_NONE);
	walk_all(c);
	recount(c);
	cache_free(c);
	return first;
}

/* Worth a little more the oldest leaves all the same; worth much more it stays. */
static void test_reuse_prefers_the_oldest_in_doubt(void **state)
{
	(void)state;
	assert_int_equal(first_of_two(0.5), 0);
	assert_int_equal(first_of_two(1.2), 0);
	assert_int_equal(first_of_two(1.3), 1);
}

/* A prefix leaves from its end. */
static void test_reuse_takes_children_first(void **state)
{
	struct cache *c = cache_new("reuse", 1);

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		chain(c, i, i ? i - 1 : ABI_SLOT_NONE, i);
	for (uint32_t i = 8; i-- > 0;) {
		assert_int_equal(c->ops->victim(c->policy, ABI_SLOT_NONE), i);
		cache_remove(c, i);
	}
	cache_free(c);
}

/* A block that nobody uses for very many epochs stays the oldest, though its epoch has few bits. */
static void test_reuse_keeps_the_old_old(void **state)
{
	struct cache *c = cache_new("reuse", 3);
	const struct reuse *r = c->policy;

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		chain(c, i, ABI_SLOT_NONE, 0);
	while (r->epoch < 3 * REUSE_EPOCH_SPAN) {
		for (uint32_t i = 4; i < 8; i++)
			c->ops->touch(c->policy, i, 1, 0);
		for (uint32_t i = 8; i < 32; i++)
			chain(c, i, ABI_SLOT_NONE, 0);
		for (uint32_t i = 8; i < 32; i++)
			cache_remove(c, i);
		for (uint32_t i = 0; i < 4; i++)
			assert_true(reuse_age_of(r, node_at(c, i)) >=
				    (r->epoch < REUSE_EPOCHS ? r->epoch : REUSE_EPOCHS));
	}
	recount(c);
	cache_free(c);
}

/* One ghost a tag; of the last that were added most are found; none is another's. */
static void test_ghosts(void **state)
{
	struct ghosts *g = aligned_alloc(GHOSTS_ALIGN, ghosts_bytes(1024));
	struct ghost old;
	uint32_t found = 0;

	(void)state;
	assert_non_null(g);
	memset(g, 0, ghosts_bytes(1024));
	ghosts_init(g, 1024);
	assert_int_equal((uintptr_t)g->place % GHOSTS_ALIGN, 0);
	assert_null(ghosts_find(g, 7));
	ghosts_add(g, &(struct ghost){ .tag = 7, .note = 1 }, &old);
	assert_int_equal(old.tag, 0);
	ghosts_add(g, &(struct ghost){ .tag = 7, .note = 2 }, &old);
	assert_int_equal(old.tag, 7);
	assert_int_equal(old.note, 1);
	assert_int_equal(ghosts_find(g, 7)->note, 2);
	ghosts_drop(g, ghosts_find(g, 7));
	assert_null(ghosts_find(g, 7));
	for (uint32_t i = 1; i <= 5000; i++)
		ghosts_add(g, &(struct ghost){ .tag = i * 2654435761u, .note = i }, &old);
	for (uint32_t i = 1; i <= 5000; i++) {
		const struct ghost *at = ghosts_find(g, i * 2654435761u);

		assert_true(!at || at->note == i);
		found += at && i > 5000 - 512;
	}
	assert_true(found > 512 * 85 / 100); /* half of the places: lines fill unevenly */
	assert_int_equal(g->added, 5000 + 2);
	free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_s3fifo_agrees_with_reference),
		cmocka_unit_test(test_arc_agrees_with_reference),
		cmocka_unit_test(test_all_walks),
		cmocka_unit_test(test_all_walks_of_few_among_many),
		cmocka_unit_test(test_reuse_keeps_the_old_old),
		cmocka_unit_test(test_ghosts),
		cmocka_unit_test(test_reuse_learns_what_it_counts),
		cmocka_unit_test(test_reuse_admits_what_is_used),
		cmocka_unit_test(test_reuse_learns_from_elsewhere),
		cmocka_unit_test(test_reuse_knows_nothing_at_first),
		cmocka_unit_test(test_reuse_takes_children_first),
		cmocka_unit_test(test_reuse_prefers_the_oldest_in_doubt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
