/*
 * Accounts against a model: random keys, bytes and limits in a table that is too small for all of
 * them. Sums, shares and rooms are those of the model, and nothing is left when all is given back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"
#include "tierd/core/unit/ledger.h"

#define ACCOUNTS 16u
#define KEYS 40u
#define GRANTS 200u

/* What a block would be: an account and bytes in one tier. */
struct grant {
	uint32_t account, tier;
	uint64_t key, bytes;
};

static void check(const struct ledger *l, const struct grant *grants, uint32_t count)
{
	uint64_t used[ACCOUNTS][ABI_TIER_COUNT] = { { 0 } };
	uint32_t uses[ACCOUNTS] = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		used[grants[i].account][grants[i].tier] += grants[i].bytes;
		uses[grants[i].account]++;
		if (grants[i].account >= LEDGER_FIRST)
			assert_int_equal(l->account[grants[i].account].key, grants[i].key);
	}
	for (uint32_t i = 0; i < ACCOUNTS; i++) {
		assert_int_equal(l->account[i].uses, uses[i]);
		assert_memory_equal(l->account[i].used, used[i], sizeof(used[i]));
	}
}

static void test_sums_follow_a_model(void **state)
{
	struct grant grants[GRANTS];
	struct rng rng = { 7 };
	struct ledger l;
	uint32_t count = 0, others = 0;

	(void)state;
	assert_int_equal(ledger_open(&l, ACCOUNTS), 0);
	for (uint32_t step = 0; step < 20000; step++) {
		struct grant *g = &grants[rng_below(&rng, GRANTS)];

		if (count < GRANTS && rng_below(&rng, GRANTS) >= count) {
			g = &grants[count++];
			g->key = 1 + rng_below(&rng, KEYS);
			g->tier = (uint32_t)rng_below(&rng, ABI_TIER_COUNT);
			g->bytes = 1 + rng_below(&rng, 1000);
			g->account = ledger_take(&l, g->key);
			others += g->account == LEDGER_OTHER;
			ledger_add(&l, g->account, g->tier, g->bytes);
		} else if (count) {
			g = &grants[rng_below(&rng, count)];
			ledger_sub(&l, g->account, g->tier, g->bytes);
			ledger_drop(&l, g->account);
			*g = grants[--count];
		}
		check(&l, grants, count);
	}
	assert_true(others > 0); /* the table was full at times */
	assert_int_equal(l.overflowed, others);
	while (count--) {
		ledger_sub(&l, grants[count].account, grants[count].tier, grants[count].bytes);
		ledger_drop(&l, grants[count].account);
	}
	assert_int_equal(l.open, 0);
	for (uint64_t key = 1; key <= ACCOUNTS - LEDGER_FIRST; key++)
		assert_true(ledger_take(&l, key) >= LEDGER_FIRST); /* all of them were free */
	ledger_close(&l);
}

static void test_shares_are_equal_parts_of_what_is_left(void **state)
{
	struct ledger l;
	uint32_t a, b;

	(void)state;
	assert_int_equal(ledger_open(&l, ACCOUNTS), 0);
	a = ledger_take(&l, 11);
	b = ledger_take(&l, 12);
	ledger_add(&l, a, 1, 500);
	assert_int_equal(ledger_share(&l, a, 1, 0, 1000), 1000); /* alone: all of it */
	ledger_add(&l, b, 1, 10);
	assert_int_equal(ledger_share(&l, a, 1, 0, 1000), 500);
	assert_int_equal(ledger_share(&l, a, 1, 300, 1000), 300); /* a default for each */
	assert_int_equal(ledger_limit(&l, 12, 1, (struct ledger_limit){ 200, 400 }), 0);
	assert_int_equal(ledger_share(&l, b, 1, 300, 1000), 200);
	assert_int_equal(ledger_share(&l, a, 1, 0, 1000), 800);
	assert_int_equal(ledger_share(&l, a, 0, 0, 1000), 1000); /* another tier */
	assert_int_equal(ledger_room(&l, b, 1, 0), 390);
	assert_int_equal(ledger_room(&l, a, 1, 0), UINT64_MAX);
	assert_int_equal(ledger_room(&l, a, 1, 400), 0);
	assert_int_equal(ledger_limit(&l, 12, 1, (struct ledger_limit){ 0, 0 }), 0);
	assert_int_equal(ledger_share(&l, a, 1, 0, 1000), 500);
	ledger_close(&l);
}

static void test_a_limit_keeps_its_account(void **state)
{
	struct ledger l;

	(void)state;
	assert_int_equal(ledger_open(&l, 4), 0);
	assert_int_equal(ledger_limit(&l, 5, 0, (struct ledger_limit){ 1, 2 }), 0);
	ledger_drop(&l, ledger_take(&l, 5));
	assert_true(ledger_find(&l, 5) >= LEDGER_FIRST);
	assert_int_equal(ledger_limit(&l, 6, 0, (struct ledger_limit){ 1, 2 }), 0);
	assert_int_equal(ledger_limit(&l, 7, 0, (struct ledger_limit){ 1, 2 }), -ENOSPC);
	assert_int_equal(ledger_limit(&l, 7, 0, (struct ledger_limit){ 0, 0 }), 0);
	assert_int_equal(ledger_limit(&l, 5, 0, (struct ledger_limit){ 0, 0 }), 0);
	assert_int_equal(ledger_find(&l, 5), LEDGER_NONE);
	assert_int_equal(ledger_limit(&l, 7, 0, (struct ledger_limit){ 1, 2 }), 0);
	ledger_close(&l);
}

/* As many keys as there are accounts: whatever share a chain, each is found by its own. */
static void test_keys_are_told_apart(void **state)
{
	struct ledger l;
	uint32_t account[256];

	(void)state;
	assert_int_equal(ledger_open(&l, 256), 0);
	for (uint64_t key = LEDGER_FIRST; key < 256; key++)
		account[key] = ledger_take(&l, key * 977);
	assert_int_equal(l.overflowed, 0);
	for (uint64_t key = LEDGER_FIRST; key < 256; key++) {
		assert_int_equal(ledger_find(&l, key * 977), account[key]);
		assert_int_equal(l.account[account[key]].key, key * 977);
	}
	ledger_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_are_told_apart),
		cmocka_unit_test(test_sums_follow_a_model),
		cmocka_unit_test(test_shares_are_equal_parts_of_what_is_left),
		cmocka_unit_test(test_a_limit_keeps_its_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
