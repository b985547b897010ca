/*
 * Every transition of a page, allowed or not, in both tiers: what is in the table changes exactly
 * state, place or version; what is not ends in an assertion and never in a wrong word.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/page.h"
#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#define ADDR 0x12345600ull
#define VERSION 7u

/* The states by name, for the table of page.h written once more, by hand. */
enum { A = ABI_PAGE_ABSENT, R = ABI_PAGE_RESERVED, F = ABI_PAGE_FILLING, P = ABI_PAGE_READY };
enum { U = ABI_PAGE_RETIRING };

static const bool allowed[ABI_PAGE_STATES][ABI_PAGE_STATES] = {
	[A] = { [R] = true },
	[R] = { [A] = true, [F] = true },
	[F] = { [A] = true, [P] = true },
	[P] = { [P] = true, [U] = true }, /* P to P: it moves */
	[U] = { [A] = true },
};

struct attempt {
	struct abi_page page;
	uint32_t tier;
	uint32_t to;
	uint64_t addr;
};

static void attempt_run(void *arg)
{
	struct attempt *a = arg;

	switch (a->to) {
	case A:
		page_free(&a->page, a->tier);
		break;
	case R:
		page_reserve(&a->page, a->tier, a->addr);
		break;
	case F:
		page_fill(&a->page, a->tier);
		break;
	case P:
		if (page_state(&a->page, a->tier) == P)
			page_move(&a->page, a->tier, a->addr);
		else
			page_publish(&a->page, a->tier);
		break;
	default:
		page_retire(&a->page, a->tier);
		break;
	}
}

static struct attempt attempt_of(uint32_t tier, uint32_t from, uint32_t to, uint32_t version)
{
	struct attempt a = { .tier = tier, .to = to, .addr = ADDR };

	a.page.word[tier] = abi_word(from == A ? 0 : ADDR, from, version);
	a.page.word[!tier] = 0x5555;
	a.page.nvme = 0x6666;
	return a;
}

static void check_step(uint32_t tier, uint32_t from, uint32_t to)
{
	struct attempt a = attempt_of(tier, from, to, VERSION);

	assert_int_equal(page_may(from, to), allowed[from][to]);
	if (!allowed[from][to]) {
		assert_true(aborts(attempt_run, &a));
		return;
	}
	attempt_run(&a);
	assert_int_equal(page_state(&a.page, tier), to);
	assert_int_equal(page_addr(&a.page, tier), to == A ? 0 : ADDR);
	assert_int_equal(abi_word_version(a.page.word[tier]), VERSION + (from == P));
	assert_int_equal(a.page.word[!tier], 0x5555);
	assert_int_equal(a.page.nvme, 0x6666);
}

static void test_every_transition(void **state)
{
	(void)state;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		for (uint32_t from = 0; from < ABI_PAGE_STATES; from++)
			for (uint32_t to = 0; to < ABI_PAGE_STATES; to++)
				check_step(tier, from, to);
	/* Words hold four bits of state; what is no state may go nowhere. */
	for (uint32_t s = 0; s < 1u << ABI_STATE_BITS; s++) {
		assert_false(page_may(s, ABI_PAGE_STATES));
		assert_false(page_may(ABI_PAGE_STATES, s));
	}
}

static void test_last_version_is_never_filled(void **state)
{
	struct attempt last = attempt_of(0, P, U, ABI_VERSION_MAX - 1);
	struct attempt over;

	(void)state;
	assert_true(page_usable(&last.page, 0));
	page_retire(&last.page, 0);
	assert_int_equal(abi_word_version(last.page.word[0]), ABI_VERSION_MAX);
	assert_false(page_usable(&last.page, 0));
	page_free(&last.page, 0);
	assert_false(page_usable(&last.page, 0));
	assert_int_equal(abi_word_version(last.page.word[0]), ABI_VERSION_MAX);
	last.to = R;
	assert_true(aborts(attempt_run, &last));
	over = attempt_of(0, F, P, ABI_VERSION_MAX);
	assert_true(aborts(attempt_run, &over));
	over = attempt_of(0, P, U, ABI_VERSION_MAX);
	assert_true(aborts(attempt_run, &over));
}

static void test_places(void **state)
{
	const uint64_t last = ABI_ADDR_MASK << ABI_UNIT_SHIFT;
	struct attempt a = attempt_of(1, A, R, 0);

	(void)state;
	a.addr = ADDR + 8;
	assert_true(aborts(attempt_run, &a));
	a.addr = last + ABI_UNIT;
	assert_true(aborts(attempt_run, &a));
	a.addr = last;
	attempt_run(&a);
	assert_int_equal(page_addr(&a.page, 1), last);
	a = attempt_of(1, A, R, 0);
	a.tier = ABI_MEM_TIERS;
	assert_true(aborts(attempt_run, &a));
}

/* Whatever happens to a page, no two publications of it have the same word. */
static void test_words_never_repeat(void **state)
{
	struct abi_page page = { 0 };
	struct rng rng = { 1 };
	uint32_t published = 0;

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		struct attempt a = { .page = page, .addr = ADDR };
		uint32_t from = page_state(&page, 0);

		do
			a.to = (uint32_t)rng_below(&rng, ABI_PAGE_STATES);
		while (!page_may(from, a.to));
		attempt_run(&a);
		page = a.page;
		if (a.to == P)
			assert_int_equal(abi_word_version(page.word[0]), published++);
	}
	assert_in_range(published, 1000, 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_transition),
		cmocka_unit_test(test_last_version_is_never_filled),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_words_never_repeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
