/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Last blocks with fewer tokens, through the API and against a live daemon: the longest that is
 * stored is found, with the bytes that were put, and it leaves for a longer one, for good.
 */
#include "tests/integration/kv_world.h"

#define TOKENS 300u /* two blocks of 128 and 44 more */
#define WHOLE 2u
#define SETTLE_NS (20 * NS_PER_S)

static const char *const settings[] = { "hbm.size=0", NULL };

static int setup(void **state)
{
	*state = world_begin(settings);
	return 0;
}

struct text {
	uint32_t token[TOKENS];
	tier_key key[WHOLE];
};

static void text_make(struct text *x, uint32_t seed)
{
	for (uint32_t i = 0; i < TOKENS; i++)
		x->token[i] = seed * 1000 + i;
	assert_int_equal(tier_key_chain(x->key, NULL, NULL, x->token, TOKENS, 128), 0);
}

/* The key of the first `tokens` tokens: of a whole block, or of a tail. */
static tier_key key_of(const struct text *x, uint32_t tokens)
{
	uint32_t before = (tokens - 1) / 128, rest = tokens - before * 128;
	tier_key key;

	assert_int_equal(tier_key_chain(&key, before ? &x->key[before - 1] : NULL, NULL,
					x->token + before * 128, rest, rest), 0);
	return key;
}

/* Puts the block that ends after so many tokens; `instead` = tokens of the tail it replaces. */
static int64_t put(struct world *w, const struct text *x, uint32_t tokens, uint32_t instead)
{
	static uint8_t data[BLOCK_BYTES];
	tier_key key = key_of(x, tokens), old = instead ? key_of(x, instead) : key;
	struct tier_put_options o = { .size = sizeof(o), .depth = (tokens - 1) / 128 };

	o.parent = o.depth ? &x->key[o.depth - 1] : NULL;
	o.replaces = instead ? &old : NULL;
	memset(data, (int)tokens, sizeof(data));
	return tier_put_copy(w->c, &key, 1, data, &o);
}

/* How many of the first `tokens` tokens are stored, by whole blocks and then a tail. */
static uint32_t stored(struct world *w, const struct text *x, uint32_t tokens, tier_block *last)
{
	int64_t whole = tier_match(w->c, x->key, tokens / 128, NULL), more;
	struct tier_tail tail = {
		.parent = whole > 0 ? &x->key[whole - 1] : NULL,
		.tokens = x->token + whole * 128,
		.count = tokens - (uint32_t)whole * 128,
	};
	struct tier_found found = { .state = TIER_MISS };
	tier_key key;

	more = tier_match_tail(w->c, &tail, &key, &found);
	assert_true(more >= 0 && more < 128);
	assert_int_equal(found.state, more ? TIER_HIT : TIER_MISS);
	if (more) {
		tier_key expected = key_of(x, (uint32_t)(whole * 128 + more));

		assert_memory_equal(&key, &expected, sizeof(key));
	}
	if (last)
		*last = found.block;
	return (uint32_t)(whole * 128 + more);
}

static void test_the_longest_tail_is_found(void **state)
{
	struct world *w = *state;
	struct text a, b;
	uint8_t byte;

	text_make(&a, 1);
	text_make(&b, 2);
	assert_int_equal(put(w, &a, 5, 0), 1);
	assert_int_equal(put(w, &a, 40, 0), 1);
	assert_int_equal(put(w, &a, 127, 0), 1);
	assert_int_equal(stored(w, &a, 4, NULL), 0);
	assert_int_equal(stored(w, &a, 5, NULL), 5);
	assert_int_equal(stored(w, &a, 39, NULL), 5);
	assert_int_equal(stored(w, &a, 126, NULL), 40);
	assert_int_equal(stored(w, &a, TOKENS, NULL), 127); /* more than a block: no more to find */
	assert_int_equal(stored(w, &b, TOKENS, NULL), 0);
	for (uint32_t tokens = 40; tokens < 128; tokens += 87) {
		struct tier_page page = { .page = 3 };
		const struct tier_into into = { .dst = (uint8_t[4096]){ 0 } };

		assert_int_equal(stored(w, &a, tokens, &page.block), tokens);
		assert_int_equal(tier_gather(w->r, w->c, &page, 1, &into), 1);
		byte = ((uint8_t *)into.dst)[4095];
		assert_int_equal(byte, tokens);
	}
}

static void test_a_tail_stands_behind_its_block(void **state)
{
	struct world *w = *state;
	struct text x;

	text_make(&x, 3);
	assert_int_equal(put(w, &x, 128, 0), 1);
	assert_int_equal(put(w, &x, 256, 0), 1);
	assert_int_equal(put(w, &x, 290, 0), 1);
	assert_int_equal(stored(w, &x, TOKENS, NULL), 290);
	assert_int_equal(tier_delete(w->c, &x.key[1], 1), 1);
	for (uint64_t end = time_now_ns() + SETTLE_NS; time_now_ns() < end; usleep(1000)) {
		struct tier_found found;
		tier_key key = key_of(&x, 290);

		if (tier_match(w->c, &key, 1, &found) == 0)
			break;
	}
	assert_int_equal(stored(w, &x, TOKENS, NULL), 128);
	assert_int_equal(put(w, &x, 256, 0), 1); /* and does not come back with it */
	assert_int_equal(stored(w, &x, TOKENS, NULL), 256);
}

static void test_it_leaves_for_a_longer_one_for_good(void **state)
{
	struct world *w = *state;
	struct text x, y;

	text_make(&x, 4);
	text_make(&y, 5);
	assert_int_equal(put(w, &x, 20, 0), 1);
	assert_int_equal(put(w, &x, 60, 20), 1);
	assert_int_equal(stored(w, &x, 59, NULL), 0);
	assert_int_equal(stored(w, &x, 60, NULL), 60);
	assert_int_equal(put(w, &x, 128, 60), 1);
	assert_int_equal(stored(w, &x, 127, NULL), 0);
	assert_int_equal(stored(w, &x, TOKENS, NULL), 128);
	assert_int_equal(put(w, &y, 20, 0), 1);
	tier_close(w->t);
	daemon_stop(&w->d);
	daemon_start(&w->d, settings);
	world_open(w);
	assert_int_equal(stored(w, &x, 127, NULL), 0);
	assert_int_equal(stored(w, &x, TOKENS, NULL), 128);
	assert_int_equal(stored(w, &y, TOKENS, NULL), 20);
}

/* In pieces, too, and not before the last of them is whole. */
static void test_a_long_put_replaces_at_its_end(void **state)
{
	enum { MANY = 300 };
	struct world *w = *state;
	struct tier_put_options o = { .size = sizeof(o) };
	uint8_t *data = calloc(MANY, BLOCK_BYTES);
	tier_key key[MANY], tail;
	struct text x;

	text_make(&x, 6);
	tail = key_of(&x, 9);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(tier_key_opaque(&key[i], &i, sizeof(i), NULL), 0);
	assert_int_equal(put(w, &x, 9, 0), 1);
	o.replaces = &key[MANY - 1];
	assert_int_equal(tier_put_copy(w->c, key, MANY, data, &o), -EINVAL);
	o.replaces = &tail;
	assert_int_equal(tier_put_copy(w->c, key, MANY, data, &o), MANY);
	assert_int_equal(stored(w, &x, 9, NULL), 0);
	free(data);
}

static void test_nonsense_is_refused(void **state)
{
	struct world *w = *state;
	const struct tier_salt none = { .count = 1 }, empty = { .count = 0 };
	const uint32_t token = 1;

	assert_int_equal(tier_match_tail(w->c, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(tier_match_tail(w->c, &(struct tier_tail){ .count = 1 }, NULL, NULL),
			 -EINVAL);
	assert_int_equal(tier_match_tail(w->c, &(struct tier_tail){ .salt = &none,
								    .tokens = &token, .count = 1 },
					 NULL, NULL), -EINVAL);
	assert_int_equal(tier_match_tail(w->c, &(struct tier_tail){ .count = 0 }, NULL, NULL), 0);
	/* A salt of no bytes is none. */
	assert_int_equal(tier_match_tail(w->c, &(struct tier_tail){ .salt = &empty,
								    .tokens = &token, .count = 1 },
					 NULL, NULL), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, world_end)
	const struct CMUnitTest tests[] = {
		T(test_the_longest_tail_is_found),
		T(test_a_tail_stands_behind_its_block),
		T(test_it_leaves_for_a_longer_one_for_good),
		T(test_a_long_put_replaces_at_its_end),
		T(test_nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
