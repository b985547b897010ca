/*
 * Reuse, recounted from its nodes and ghosts after each piece of a random life; what it learns
 * against a search over all stopping times; how blocks are told apart; the limit beside an exact
 * LRU; and ghosts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/policy/reuse.h"
#include "tests/unit/policy_cache.h"

#include <math.h>

static struct cache *reuse_new(uint64_t seed)
{
	return cache_new(policy_find("reuse"), seed);
}

static const struct node *node_at(const struct cache *c, uint32_t slot)
{
	const struct reuse *r = c->policy;

	return &r->node[r->map ? r->map[slot] : slot + 1];
}

static uint32_t age_at(const struct cache *c, uint32_t slot)
{
	uint32_t age = ((const struct reuse *)c->policy)->epoch - node_at(c, slot)->epoch;

	return age < EPOCHS ? age : EPOCHS;
}

static double worth_at(const struct cache *c, uint32_t slot)
{
	const struct reuse *r = c->policy;
	const struct node *n = node_at(c, slot);
	uint32_t range = reuse_range(age_at(c, slot));

	return r->l.rate[range][n->row / DEPTHS] * reuse_depth_worth[n->row % DEPTHS] *
	       (range ? 1 : 1000);
}

/* ---- recounts ------------------------------------------------------------------------------ */

/* Who is known by class and epoch, from the nodes and the ghosts. */
static void recount_known(const struct cache *c)
{
	const struct reuse *r = c->policy;
	uint32_t known[EPOCHS][CLASSES] = { { 0 } }, here[EPOCHS] = { 0 };

	for (uint32_t i = 0; i < c->slots; i++) {
		const struct node *n = node_at(c, i);

		assert_int_equal(n->in, c->key_of[i] != KEYS);
		if (c->key_of[i] == KEYS || age_at(c, i) == EPOCHS)
			continue;
		known[n->epoch % EPOCHS][n->row / DEPTHS]++;
		here[n->epoch % EPOCHS]++;
	}
	for (uint32_t i = 0; i < r->ghosts->lines * GHOSTS_LINE; i++) {
		const struct ghost *g = &r->ghosts->place[i / GHOSTS_LINE][i % GHOSTS_LINE];
		uint32_t age = (r->epoch - g->note) % 65536;

		if (g->tag && age < EPOCHS)
			known[(r->epoch - age) % EPOCHS][(g->note >> 16) % 1024 / DEPTHS]++;
	}
	assert_memory_equal(known, r->known, sizeof(known));
	assert_memory_equal(here, r->here, sizeof(here));
}

/* Each leaf is in the ring of its row and epoch, all others in one. */
static void recount_rings(const struct cache *c)
{
	const struct reuse *r = c->policy;
	uint32_t leaves[EPOCHS + 1] = { 0 }, all = 0;
	uint64_t leafy[ROWS][EPOCHS / 64] = { { 0 } };

	for (uint32_t ring = 0; ring < RINGS; ring++)
		for (uint32_t at = r->head[ring].next; !(at & HEAD); at = r->node[at].link.next) {
			const struct node *n = &r->node[at];
			uint32_t age = r->epoch - n->epoch, row = n->row;
			uint32_t place = age < EPOCHS ? n->epoch % EPOCHS : EPOCHS;

			assert_true(n->in);
			assert_int_equal(ring, n->children ? RINGS - 1 : place * ROWS + row);
			leaves[place] += !n->children;
			if (!n->children && place < EPOCHS)
				leafy[row][place / 64] |= 1ull << place % 64;
			all++;
		}
	assert_int_equal(all, c->count);
	assert_memory_equal(leaves, r->leaves, sizeof(leaves));
	assert_memory_equal(leafy, r->leafy, sizeof(leafy));
}

/* A walk's first out of turn: the oldest, or one that LRU would not have. */
static void recount_began(const struct cache *c, uint32_t first)
{
	const struct reuse *r = c->policy;

	for (uint32_t i = 0; i < c->slots; i++)
		if (c->key_of[i] != KEYS && !node_at(c, i)->children)
			assert_true(age_at(c, first) > r->edge || age_at(c, i) <= age_at(c, first));
}

/* Leaves first, each part in the order of worth. */
static void recount_walk(struct cache *c)
{
	const struct reuse *r = c->policy;
	uint32_t at = ABI_SLOT_NONE;
	bool inner = false;
	double before = 0;

	for (uint32_t i = 0; i < c->count; i++) {
		at = c->ops.victim(c->policy, at);
		if (i == 0 && r->began) {
			recount_began(c, at);
			continue;
		}
		inner |= node_at(c, at)->children > 0;
		assert_int_equal(node_at(c, at)->children > 0, inner);
		assert_true(inner || worth_at(c, at) * (1 + 1e-9) >= before);
		before = worth_at(c, at);
	}
}

static void recount(struct cache *c)
{
	recount_known(c);
	recount_rings(c);
	recount_walk(c);
}

static void test_random_lives(void **state)
{
	const struct policy_size few = { KEYS, BLOCKS / 2, BLOCKS, false };
	const struct policy_size sparse = { BLOCKS, BLOCKS, BLOCKS, true };

	(void)state;
	random_life(reuse_new(1), recount);
	random_life(cache_sized(policy_find("reuse"), 2, &few), recount);
	random_life(cache_sized(policy_find("reuse"), 3, &sparse), recount);
}

/* ---- learning ------------------------------------------------------------------------------ */

/* The best ratio of uses to waiting over every age at which one could give up. */
static double best_ratio(const double hazard[AGES], uint32_t from)
{
	double use = 0, time = 0, through = 1, best = 0;

	for (uint32_t a = from; a < AGES; a++) {
		double width = reuse_first[a + 1] - reuse_first[a];
		double pass = a == AGES - 1 ? 0 : 1 / (1 + hazard[a] * width);

		use += through * (1 - pass);
		time += through * (a == AGES - 1 ? 1 / hazard[a] : width * pass);
		through *= pass;
		if (use / time > best)
			best = use / time;
	}
	return best;
}

/* With counts far above the weights, a class's rates are the best ratios of what was counted. */
static void test_learns_what_it_counts(void **state)
{
	struct reuse_learnt *l = calloc(1, sizeof(*l));
	struct rng rng = { 5 };

	(void)state;
	for (uint32_t round = 0; round < 50; round++) {
		double hazard[CLASSES][AGES];

		for (uint32_t k = 0; k < CLASSES; k++)
			for (uint32_t g = 0; g < AGES; g++) {
				hazard[k][g] = 0.001 + (double)rng_below(&rng, 1000) / 10000;
				l->time[g][k] = 1e12;
				l->uses[g][k] = 1e12 * hazard[k][g];
			}
		reuse_learn(l);
		for (uint32_t k = 0; k < CLASSES; k++)
			for (uint32_t g = 0; g < AGES; g++)
				assert_true(fabs(l->rate[g][k] / best_ratio(hazard[k], g) - 1) <
					    1e-3);
	}
	free(l);
}

/* Without counts all classes are alike, and the longer unused the less they are worth: LRU. */
static void test_knows_nothing_at_first(void **state)
{
	struct reuse_learnt *l = calloc(1, sizeof(*l));

	(void)state;
	reuse_learn(l);
	for (uint32_t k = 0; k < CLASSES; k++)
		for (uint32_t g = 0; g < AGES; g++) {
			assert_true(fabs(l->rate[g][k] / l->rate[g][0] - 1) < 1e-9);
			assert_true(!g || l->rate[g][k] < l->rate[g - 1][k]);
		}
	free(l);
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
	c->ops.insert(c->policy, slot, &hint);
	c->key_of[slot] = slot;
	c->slot_of[slot] = slot;
	c->count++;
}

/* The epoch ends with the next block that comes; it goes again. */
static void epoch_pass(struct cache *c)
{
	struct reuse *r = c->policy;

	r->clock = r->epoch_end;
	chain(c, BLOCKS - 1, ABI_SLOT_NONE, 0);
	cache_remove(c, BLOCKS - 1);
}

static void test_admits_what_is_used(void **state)
{
	struct cache *c = reuse_new(3);
	struct reuse *r = c->policy;

	(void)state;
	chain(c, 0, ABI_SLOT_NONE, 0);
	for (uint32_t k = 0; k < CLASSES; k++)
		for (uint32_t g = 0; g < AGES; g++) {
			r->l.time[g][k] = 1e12;
			r->l.uses[g][k] = k >= CLASSES_NEW ? 1e10 : 1e8;
		}
	reuse_learn(&r->l);
	assert_false(c->ops.admit(r, 0, 1000));
	assert_true(c->ops.admit(r, 0, 1u << 30)); /* there it would wait for very long */
	epoch_pass(c);
	c->ops.touch(r, 0, 1, 0);
	assert_true(c->ops.admit(r, 0, 1000));
	cache_free(c);
}

static double uses_seen(const struct cache *c)
{
	const struct reuse *r = c->policy;
	double sum = 0;

	for (uint32_t k = 0; k < CLASSES; k++)
		for (uint32_t g = 0; g < AGES; g++)
			sum += r->l.uses[g][k];
	return sum;
}

/* A use from another tier is one of the ghost, once an epoch. */
static void test_learns_from_elsewhere(void **state)
{
	struct cache *c = reuse_new(4);
	uint8_t key[ABI_KEY_BYTES];
	double before;

	(void)state;
	chain(c, 0, ABI_SLOT_NONE, 0);
	cache_remove(c, 0);
	key_bytes(key, 0);
	c->ops.elsewhere(c->policy, key); /* it left in this epoch */
	assert_true(uses_seen(c) < 0.01);
	epoch_pass(c);
	epoch_pass(c);
	before = uses_seen(c);
	c->ops.elsewhere(c->policy, key);
	c->ops.elsewhere(c->policy, key);
	assert_true(fabs(uses_seen(c) - before - 1) < 0.01);
	recount(c);
	cache_free(c);
}

/* ---- order --------------------------------------------------------------------------------- */

/* A prefix leaves from its end. */
static void test_takes_children_first(void **state)
{
	struct cache *c = reuse_new(1);

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		chain(c, i, i ? i - 1 : ABI_SLOT_NONE, i);
	for (uint32_t i = 8; i-- > 0;) {
		assert_int_equal(c->ops.victim(c->policy, ABI_SLOT_NONE), i);
		cache_remove(c, i);
	}
	cache_free(c);
}

/* What costs much to compute again stays. */
static void test_what_is_deep_stays(void **state)
{
	struct cache *c = reuse_new(1);

	(void)state;
	chain(c, 0, ABI_SLOT_NONE, 0);
	chain(c, 1, ABI_SLOT_NONE, 200);
	assert_int_equal(c->ops.victim(c->policy, ABI_SLOT_NONE), 0);
	cache_free(c);
}

static uint32_t class_at(const struct cache *c, uint32_t slot)
{
	return node_at(c, slot)->row / DEPTHS;
}

static void put(struct cache *c, uint32_t slot, struct policy_hint hint)
{
	uint8_t key[ABI_KEY_BYTES];

	key_bytes(key, slot);
	hint.key = key;
	c->ops.insert(c->policy, slot, &hint);
	c->key_of[slot] = c->slot_of[slot] = slot;
	c->count++;
}

/* New: blocks brought, a turn, the last. Used: how often, also where they left and came back. */
static void test_classes(void **state)
{
	struct cache *c = reuse_new(1);
	struct policy_hint hint = { .parent = ABI_SLOT_NONE, .brought = 1 };

	(void)state;
	put(c, 0, hint);
	assert_int_equal(class_at(c, 0), 0);
	epoch_pass(c);
	c->ops.touch(c->policy, 0, 1, 0);
	assert_int_equal(class_at(c, 0), CLASSES_NEW);
	hint = (struct policy_hint){ .parent = 0, .brought = 64, .last = true };
	put(c, 1, hint);
	assert_int_equal(class_at(c, 1), CLASSES_NEW - 1); /* the last of a long turn */
	hint = (struct policy_hint){ .parent = 1, .brought = 1, .joined = true };
	put(c, 2, hint); /* the prompt goes on */
	assert_int_equal(class_at(c, 1), CLASSES_NEW - 2);
	assert_int_equal(class_at(c, 2), RUNS * 2);
	for (uint32_t uses = 3; uses <= 6; uses++) {
		epoch_pass(c);
		c->ops.touch(c->policy, 0, 1, 0);
		c->ops.touch(c->policy, 0, 1, 0); /* in one epoch: once */
		assert_int_equal(class_at(c, 0), CLASSES_NEW + (uses > 4));
	}
	cache_remove(c, 0);
	put(c, 0, hint);
	assert_int_equal(class_at(c, 0), CLASSES_NEW + 1);
	recount(c);
	cache_free(c);
}

/* ---- the limit ----------------------------------------------------------------------------- */

#define TIER 1024u
#define IDS 4096u
#define LOOP 1500u

/* A tier of blocks without prefixes. */
struct tier {
	const struct policy_ops *ops;
	void *state;
	uint32_t slot_of[IDS], id_of[TIER], count, hits;
};

static void tier_make(struct tier *t, const char *policy)
{
	const struct policy_size size = { TIER, TIER, TIER, false };

	t->ops = policy_find(policy);
	t->state = calloc(1, t->ops->state_bytes(&size));
	t->ops->init(t->state, &size);
	memset(t->slot_of, 0xff, sizeof(t->slot_of));
}

static uint32_t tier_room(struct tier *t)
{
	uint8_t key[ABI_KEY_BYTES];
	uint32_t slot;

	if (t->count < TIER)
		return t->count++;
	slot = t->ops->victim(t->state, ABI_SLOT_NONE);
	key_bytes(key, t->id_of[slot]);
	t->ops->remove(t->state, slot, key);
	t->slot_of[t->id_of[slot]] = ABI_SLOT_NONE;
	return slot;
}

static void tier_ask(struct tier *t, uint32_t id)
{
	uint8_t key[ABI_KEY_BYTES];
	const struct policy_hint hint = { .parent = ABI_SLOT_NONE, .key = key, .brought = 1 };

	if (t->slot_of[id] != ABI_SLOT_NONE) {
		t->hits++;
		t->ops->touch(t->state, t->slot_of[id], 1, 0);
		return;
	}
	t->slot_of[id] = tier_room(t);
	t->id_of[t->slot_of[id]] = id;
	key_bytes(key, id);
	t->ops->insert(t->state, t->slot_of[id], &hint);
}

/* All that LRU has and the other has let go are asked for, once each. */
static void strike(struct tier *lru, struct tier *other)
{
	uint32_t id[TIER], count = 0;

	for (uint32_t i = 0; i < TIER; i++)
		if (other->slot_of[lru->id_of[i]] == ABI_SLOT_NONE)
			id[count++] = lru->id_of[i];
	for (uint32_t i = 0; i < count; i++) {
		tier_ask(lru, id[i]);
		tier_ask(other, id[i]);
	}
}

/*
 * An enemy that sees both: a loop larger than the tier beside what comes once, until much has been
 * let go for it; then all that LRU alone has. LRU gets ahead by a quarter of the tier at most, and
 * what epochs blur.
 */
static void test_the_limit(void **state)
{
	struct tier *lru = calloc(1, sizeof(*lru)), *mine = calloc(1, sizeof(*mine));
	int32_t ahead, worst = 0;

	(void)state;
	tier_make(lru, "lru");
	tier_make(mine, "reuse");
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t id = i % 2 ? i / 2 % LOOP : LOOP + i / 2 % (IDS - LOOP);

		tier_ask(lru, id);
		tier_ask(mine, id);
		if (i % 2048 == 0)
			strike(lru, mine);
		ahead = (int32_t)(lru->hits - mine->hits);
		worst = ahead > worst ? ahead : worst;
	}
	print_message("hits %u, of lru %u, which was ahead by %d at most\n", mine->hits, lru->hits,
		      worst);
	assert_in_range(worst, TIER / 16, TIER / 4 + TIER / 16);
	free(lru->state);
	free(mine->state);
	free(lru);
	free(mine);
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
		cmocka_unit_test(test_random_lives),
		cmocka_unit_test(test_learns_what_it_counts),
		cmocka_unit_test(test_knows_nothing_at_first),
		cmocka_unit_test(test_admits_what_is_used),
		cmocka_unit_test(test_learns_from_elsewhere),
		cmocka_unit_test(test_takes_children_first),
		cmocka_unit_test(test_what_is_deep_stays),
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_the_limit),
		cmocka_unit_test(test_ghosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
