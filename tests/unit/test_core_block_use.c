/*
 * The tables beside blocks against models: entries of what is in use (every block may have one at
 * a time; places are used again and come back empty; a slot's next life begins with nothing), and
 * tenants (shared by salt and account, also where salts collide on purpose).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/core/state.h"

#define BLOCKS 300u

/* As much of a context as the accessors of state.h look at. */
static struct context *context_new(uint32_t blocks)
{
	struct context *x = calloc(1, sizeof(*x));

	assert_non_null(x);
	x->meta = calloc(blocks, sizeof(*x->meta));
	assert_non_null(x->meta);
	assert_int_equal(block_uses_open(&x->uses, blocks), 0);
	return x;
}

static void context_free(struct context *x)
{
	block_uses_close(&x->uses);
	free(x->meta);
	free(x);
}

/* All blocks at once: there is a place for each, and not one more. */
static void take_one_more(void *arg)
{
	block_uses_take(arg);
}

static void test_every_block_has_a_place(void **state)
{
	struct context *x = context_new(BLOCKS);

	(void)state;
	for (uint32_t slot = 0; slot < BLOCKS; slot++) {
		assert_true(block_use_is_nought(block_use(x, slot)));
		block_use_make(x, slot)->hold = slot + 1;
	}
	assert_int_equal(x->uses.count, BLOCKS);
	assert_true(aborts(take_one_more, &x->uses));
	for (uint32_t slot = 0; slot < BLOCKS; slot++)
		assert_int_equal(block_use(x, slot)->hold, slot + 1);
	assert_true(block_use_is_nought(&x->uses.entry[0]));
	context_free(x);
}

/* Random counters of random blocks; an entry is there exactly as long as one of them is not 0. */
static void test_places_follow_what_is_in_use(void **state)
{
	struct context *x = context_new(BLOCKS);
	uint32_t pins[BLOCKS] = { 0 }, staged[BLOCKS] = { 0 }, most = 0;
	struct rng rng = { 11 };

	(void)state;
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t slot = (uint32_t)rng_below(&rng, BLOCKS), used = 0;
		bool up = rng_below(&rng, 3) == 0;

		if (rng_below(&rng, 2)) {
			pins[slot] = up ? pins[slot] + 1 : 0;
			block_use_make(x, slot)->pins[ABI_TIER_CXL] = (uint16_t)pins[slot];
		} else {
			staged[slot] = up ? 128 : 0;
			block_use_make(x, slot)->staged[ABI_TIER_HBM] = staged[slot];
		}
		block_use_settle(x, slot);
		if (i % 64)
			continue;
		for (uint32_t k = 0; k < BLOCKS; k++) {
			assert_int_equal(block_use(x, k)->pins[ABI_TIER_CXL], pins[k]);
			assert_int_equal(block_use(x, k)->staged[ABI_TIER_HBM], staged[k]);
			assert_int_equal(x->meta[k].use != 0, pins[k] || staged[k]);
			used += pins[k] || staged[k];
		}
		assert_int_equal(x->uses.count, used);
		most = used > most ? used : most;
	}
	/* Places are used again: hardly more than were in use at a time. */
	assert_in_range(x->uses.high, most, most + 64);
	assert_int_equal(block_uses_bytes(&x->uses),
			 (x->uses.high + 1) * sizeof(struct block_use));
	context_free(x);
}

/* A block goes with pins on it: its slot's next life has none, nor has the next of the place. */
static void test_a_new_life_begins_with_nothing(void **state)
{
	struct context *x = context_new(BLOCKS);
	uint32_t place;

	(void)state;
	block_use_make(x, 5)->pins[ABI_TIER_CXL] = 3;
	block_use_make(x, 5)->planned[ABI_TIER_HBM] = 1;
	place = x->meta[5].use;
	block_use_drop(x, 5);
	assert_true(block_use_is_nought(block_use(x, 5)));
	assert_true(block_use_is_nought(block_use_make(x, 7)));
	assert_int_equal(x->meta[7].use, place);
	block_use_make(x, 7)->lead_pins[ABI_TIER_CXL] = 1;
	assert_true(block_use_is_nought(block_use(x, 5)));
	block_use_drop(x, 5); /* it has none */
	assert_int_equal(x->uses.count, 1);
	context_free(x);
}

/*
 * A list may name one block as often as it likes, and clients may have many under way: no count
 * wraps, or a block that others hold would pass for one that only streams do.
 */
static void test_counts_do_not_wrap(void **state)
{
	const uint32_t refs = ABI_ARG_BYTES_MAX / sizeof(struct abi_block_ref);
	const uint32_t keys = ABI_ARG_BYTES_MAX / ABI_KEY_BYTES;
	const uint32_t streams = CORE_STREAMS_MAX * refs, writers = CORE_REQUESTS_MAX * keys;
	const uint32_t holds = streams + CORE_REQUESTS_MAX * refs + writers;
	struct block_use use = { .streams = streams, .writers = writers };

	(void)state;
	use.hold = holds & 0xfffffffu;
	assert_int_equal(use.streams, streams);
	assert_int_equal(use.writers, writers);
	assert_int_equal(use.hold, holds);
}

/* ---- tenants ------------------------------------------------------------------------------- */

static void model_check(const struct tenants *t, const uint32_t *of, const uint64_t *salt,
			const uint32_t *account, const uint32_t *lane)
{
	uint32_t blocks[BLOCKS + 1] = { 0 };

	for (uint32_t slot = 0; slot < BLOCKS; slot++) {
		assert_true(t->entry[of[slot]].salt == salt[slot]);
		assert_int_equal(t->entry[of[slot]].account, account[slot]);
		assert_int_equal(t->entry[of[slot]].lane, lane[slot]);
		blocks[of[slot]] += of[slot] != TENANT_NONE;
	}
	for (uint32_t i = 0; i <= t->high; i++)
		assert_int_equal(t->entry[i].blocks, blocks[i]);
}

/*
 * One salt has two accounts, if its first blocks came when the ledger was full; the public one more
 * than one lane.
 */
static void random_tenants(uint64_t salts, uint64_t step)
{
	struct tenants t;
	uint32_t of[BLOCKS] = { 0 }, account[BLOCKS] = { 0 }, lane[BLOCKS] = { 0 };
	uint64_t salt[BLOCKS] = { 0 };
	struct rng rng = { salts };

	assert_int_equal(tenants_open(&t, BLOCKS), 0);
	for (uint32_t i = 0; i < 50000; i++) {
		uint32_t slot = (uint32_t)rng_below(&rng, BLOCKS);

		tenant_drop(&t, of[slot]);
		salt[slot] = rng_below(&rng, salts) * step;
		account[slot] = salt[slot] ? 1 + (uint32_t)rng_below(&rng, 2) : 0;
		lane[slot] = salt[slot] % 4 ? account[slot] : (uint32_t)rng_below(&rng, 2);
		of[slot] = tenant_take(&t, salt[slot], account[slot], lane[slot]);
		assert_int_equal(of[slot] == TENANT_NONE, !salt[slot] && !lane[slot]);
		if (i % 64 == 0)
			model_check(&t, of, salt, account, lane);
	}
	if (step == 1 && salts == 10)
		assert_true(t.high <= 4 * salts); /* shared */
	for (uint32_t slot = 0; slot < BLOCKS; slot++)
		tenant_drop(&t, of[slot]);
	for (uint32_t i = 0; i < t.chains; i++)
		assert_int_equal(t.chain[i], 0);
	assert_in_range(tenants_bytes(&t), sizeof(struct tenant),
			(BLOCKS + 1) * sizeof(struct tenant) + t.chains * sizeof(uint32_t));
	tenants_close(&t);
}

static void test_tenants_agree_with_model(void **state)
{
	(void)state;
	random_tenants(10, 1);
	random_tenants(100000, 1);
}

/* Multiples of 2^56 fall on few chains: no walk is longer than it may be, and all fit. */
static void test_tenants_that_collide(void **state)
{
	struct tenants t;
	uint32_t longest = 0;

	(void)state;
	random_tenants(256, 1ull << 56);
	assert_int_equal(tenants_open(&t, BLOCKS), 0);
	for (uint32_t i = 1; i < 256; i++)
		assert_int_equal(tenant_take(&t, (uint64_t)i << 56, 1, 1), i);
	for (uint32_t i = 0; i < t.chains; i++) {
		uint32_t n = 0;

		for (uint32_t at = t.chain[i]; at; at = t.entry[at].next)
			n++;
		longest = n > longest ? n : longest;
	}
	assert_in_range(longest, 2, TENANT_WALK);
	tenants_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_block_has_a_place),
		cmocka_unit_test(test_places_follow_what_is_in_use),
		cmocka_unit_test(test_a_new_life_begins_with_nothing),
		cmocka_unit_test(test_counts_do_not_wrap),
		cmocka_unit_test(test_tenants_agree_with_model),
		cmocka_unit_test(test_tenants_that_collide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
