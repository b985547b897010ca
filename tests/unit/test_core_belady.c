/*
 * Belady's placement against a plain one that looks through the whole rest of the sequence at each
 * miss; appending in pieces; and how long a plan of 10^5 accesses takes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tierd/core/unit/belady.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/lib/property.h"
#include "tests/lib/unit.h"

#define LENGTH 600u
#define BLOCKS 60u

struct plain {
	uint32_t seq[LENGTH];
	bool in[BLOCKS];
	uint32_t count, misses;
};

static uint32_t next_use(const struct plain *p, uint32_t block, uint32_t from)
{
	while (from < LENGTH && p->seq[from] != block)
		from++;
	return from;
}

static void plain_run(struct plain *p, uint32_t capacity)
{
	for (uint32_t i = 0; i < LENGTH; i++) {
		uint32_t worst = BLOCKS;

		if (p->in[p->seq[i]])
			continue;
		p->misses++;
		for (uint32_t b = 0; p->count == capacity && b < BLOCKS; b++)
			if (p->in[b] && (worst == BLOCKS ||
					 next_use(p, b, i) > next_use(p, worst, i)))
				worst = b;
		if (worst < BLOCKS)
			p->in[worst] = false;
		else
			p->count++;
		p->in[p->seq[i]] = true;
	}
}

static void fill(struct plain *p, struct rng *rng)
{
	memset(p, 0, sizeof(*p));
	for (uint32_t i = 0; i < LENGTH; i++)
		p->seq[i] = (uint32_t)(rng_below(rng, BLOCKS) * rng_below(rng, BLOCKS) / BLOCKS);
}

/* A scan: each block once. What leaves is what was read longest ago, not what is still to come. */
static void of_those_not_used_again_the_oldest_leaves(void **state)
{
	void *memory = malloc(belady_bytes(LENGTH));
	struct belady_op op;
	struct belady b;

	(void)state;
	belady_init(&b, memory, LENGTH, 16);
	for (uint32_t i = 0; i < LENGTH; i++)
		assert_int_equal(belady_add(&b, (struct abi_block_ref){ i, 1 }), 0);
	for (uint32_t i = 0; i < LENGTH; i++) {
		assert_true(belady_step(&b, &op));
		if (i < 16) {
			assert_int_equal(op.victim, BELADY_NONE);
			continue;
		}
		assert_int_equal(op.victim, i - 16);
		assert_int_equal(op.after, i - 16);
	}
	free(memory);
}

static void misses_are_beladys(void **state)
{
	void *memory = malloc(belady_bytes(LENGTH));
	struct rng rng = { 7 };

	(void)state;
	for (uint32_t round = 0; round < 60; round++) {
		uint32_t capacity = 1 + (uint32_t)rng_below(&rng, BLOCKS), misses = 0;
		struct plain p;
		struct belady b;
		struct belady_op op;

		fill(&p, &rng);
		plain_run(&p, capacity);
		belady_init(&b, memory, LENGTH, capacity);
		for (uint32_t i = 0; i < LENGTH; i++)
			assert_int_equal(belady_add(&b, (struct abi_block_ref){ p.seq[i], 1 }), 0);
		assert_true(belady_add(&b, (struct abi_block_ref){ 1, 1 }) < 0);
		while (b.cursor < b.count) {
			if (!belady_step(&b, &op))
				continue;
			misses++;
			if (op.victim != BELADY_NONE) {
				assert_true(op.after < op.access);
				assert_true(op.victim != op.node);
			}
		}
		assert_int_equal(misses, p.misses);
		assert_true(b.cached <= capacity);
	}
	free(memory);
}

/* The cursor may wait for accesses that come later: what it has decided then stands. */
static void pieces_are_taken(void **state)
{
	void *memory = malloc(belady_bytes(LENGTH));
	struct rng rng = { 11 };
	struct belady b;
	struct belady_op op;
	struct plain p;
	uint32_t misses = 0;

	(void)state;
	fill(&p, &rng);
	plain_run(&p, 12);
	belady_init(&b, memory, LENGTH, 12);
	for (uint32_t i = 0; i < LENGTH; i++) {
		belady_add(&b, (struct abi_block_ref){ p.seq[i], 1 });
		if (i % 150 == 149)
			while (b.cursor < b.count)
				misses += belady_step(&b, &op);
	}
	assert_true(misses >= p.misses);
	assert_true(misses <= LENGTH);
	free(memory);
}

static void a_long_plan_is_quick(void **state)
{
	const uint32_t n = 100000;
	void *memory = malloc(belady_bytes(n));
	struct rng rng = { 5 };
	struct belady_op op;
	struct belady b;
	clock_t begin; /* processor time: others may have the machine meanwhile */

	(void)state;
	memset(memory, 1, belady_bytes(n));
	begin = clock();
	belady_init(&b, memory, n, 4096);
	for (uint32_t i = 0; i < n; i++)
		belady_add(&b, (struct abi_block_ref){ (uint32_t)rng_below(&rng, 40000), 3 });
	while (b.cursor < b.count)
		belady_step(&b, &op);
	print_message("# %u accesses planned in %.2f ms\n", n,
		      1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC);
	assert_true(clock() - begin < 5 * CLOCKS_PER_SEC);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(misses_are_beladys),
		cmocka_unit_test(of_those_not_used_again_the_oldest_leaves),
		cmocka_unit_test(pieces_are_taken),
		cmocka_unit_test(a_long_plan_is_quick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
