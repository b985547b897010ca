/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay's shell: what a store keeps follows from what was asked of it, not from how long
 * prompts were apart. So a daemon, whose clock is another one, keeps the same.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/policy/policy.h"
#include "bench/replay/replay.h"
#include "bench/replay/shell.h"
#include "bench/replay/synth.h"
#include "libtier/base/time.h"
#include "tests/lib/unit.h"

#define REFERENCES 200000u
#define BLOCKS_MAX 1024u /* of a prompt */
#define SLAB_BLOCKS ((2u << 20) / REPLAY_PAGE_BYTES)

/* More than 64: one of them is less than what is kept free ahead. */
static const uint32_t slabs[] = { 80, 200 };

static struct trace *trace;
static struct prepared prepared;

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(synth_make(&trace, "shift", 1, REFERENCES), 0);
	assert_int_equal(prepare(&prepared, trace), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	prepared_free(&prepared);
	trace_close(trace);
	return 0;
}

/* One prompt; returns how many of its blocks were there. */
static uint32_t ask(struct shell *s, const struct trace_request *r)
{
	static uint8_t key[BLOCKS_MAX][ABI_KEY_BYTES];
	uint32_t hit;

	assert_true(r->id_count <= BLOCKS_MAX);
	for (uint32_t i = 0; i < r->id_count; i++)
		memcpy(key[i], prepared.key[prepared.number[r->id_first + i]].bytes, sizeof(*key));
	hit = shell_read(s, key, r->id_count);
	for (uint32_t at = hit; at < r->id_count; at += REPLAY_PUT_BLOCKS) {
		uint32_t left = r->id_count - at;
		uint32_t n = left < REPLAY_PUT_BLOCKS ? left : REPLAY_PUT_BLOCKS;

		assert_int_equal(shell_put(s, key, at, n), 0);
	}
	return hit;
}

/* The hits of each prompt, and how many blocks left. */
static uint64_t replay_at(const char *policy, uint32_t size, uint64_t pace_ns, uint32_t *hit)
{
	const struct shell_options options = {
		.policy = policy,
		.page_bytes = REPLAY_PAGE_BYTES,
		.block_tokens = trace->block_tokens,
		.bytes = (uint64_t)size * SLAB_BLOCKS * REPLAY_PAGE_BYTES,
		.put_blocks = REPLAY_PUT_BLOCKS,
		.pace_ns = pace_ns,
	};
	struct shell_counts counts;
	struct shell *s;

	assert_int_equal(shell_open(&s, &options), 0);
	for (size_t q = 0; q < trace->request_count; q++)
		hit[q] = ask(s, &trace->request[q]);
	shell_counts(s, &counts);
	assert_true(counts.dropped_blocks > size * SLAB_BLOCKS); /* it was full, and more */
	shell_close(s);
	return counts.dropped_blocks;
}

static void test_the_pace_of_prompts_changes_nobody(void **state)
{
	size_t bytes = trace->request_count * sizeof(uint32_t);
	uint32_t *fast = test_calloc(1, bytes), *slow = test_calloc(1, bytes);
	struct policy_ops ops;

	(void)state;
	for (uint32_t i = 0; bench_policy_at(i / 2, &ops); i++) {
		uint64_t left = replay_at(ops.name, slabs[i % 2], 0, fast);

		assert_int_equal(replay_at(ops.name, slabs[i % 2], 700 * NS_PER_MS, slow),
				 left);
		assert_memory_equal(fast, slow, bytes);
	}
	test_free(fast);
	test_free(slow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_pace_of_prompts_changes_nobody),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
