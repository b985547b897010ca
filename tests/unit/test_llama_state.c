/*
 * The state of a sequence of llama.cpp: shapes of both versions are learnt, what is written again
 * is the same, and all that is not understood is refused with its reason.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/connect/llama/state.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 5u
#define LAYERS 3u
#define KEY_ROW 48u
#define VALUE_ROW 20u

/* As llama.cpp writes it, with so many words more before the layers. Returns its bytes. */
static size_t example(uint8_t *state, uint32_t words_more)
{
	uint32_t *at = (uint32_t *)state;

	*at++ = 0xfeedbeef;
	*at++ = 7;
	*at++ = 1;
	*at++ = CELLS;
	for (uint32_t i = 0; i < CELLS; i++) {
		*at++ = i;
		*at++ = 1;
		*at++ = 7;
	}
	*at++ = 0;
	*at++ = LAYERS;
	for (uint32_t i = 0; i < words_more; i++)
		*at++ = 64 + i;
	for (uint32_t l = 0; l < 2 * LAYERS; l++) {
		uint32_t row = l < LAYERS ? KEY_ROW : VALUE_ROW;

		*at++ = l < LAYERS ? 1 : 8;
		*at++ = row;
		*at++ = 0;
		memset(at, (int)l + 1, row * CELLS);
		at += row / 4 * CELLS;
	}
	return (size_t)((uint8_t *)at - state);
}

static void test_what_is_learnt_is_written_again(void **unused)
{
	static uint32_t state[1024], again[1024];
	uint8_t *to = (uint8_t *)again;

	(void)unused;
	for (uint32_t more = 0; more <= 16; more++) {
		size_t bytes = example((uint8_t *)state, more);
		struct state_shape s;
		const char *why;

		assert_int_equal(state_learn(&s, (uint8_t *)state, bytes, &why), CELLS);
		assert_int_equal(s.layers, LAYERS);
		assert_int_equal(s.extra_bytes, more * 4);
		assert_int_equal(s.part[0].bytes, KEY_ROW);
		assert_int_equal(s.part[1].bytes, VALUE_ROW);
		assert_int_equal(s.part[1].type, 8);
		assert_int_equal(state_bytes(&s, CELLS), bytes);
		memset(again, 0, sizeof(again));
		state_write_frame(&s, to, CELLS, 7);
		for (uint32_t l = 0; l < 2 * LAYERS; l++) {
			size_t rows = state_rows_at(&s, CELLS, l / LAYERS, l % LAYERS);

			memset(to + rows, (int)l + 1, s.part[l / LAYERS].bytes * CELLS);
		}
		assert_memory_equal(again, state, bytes);
	}
}

/* A word of the example is changed; what is said of it then. */
static void refused(uint32_t word, uint32_t value, const char *reason)
{
	static uint32_t state[1024];
	size_t bytes = example((uint8_t *)state, 2);
	struct state_shape s;
	const char *why = "";

	state[word] = value;
	assert_int_equal(state_learn(&s, (uint8_t *)state, bytes, &why), -ENOTSUP);
	if (!strstr(why, reason))
		fail_msg("word %u as %u: said \"%s\", not of \"%s\"", word, value, why, reason);
}

static void test_what_is_not_understood_is_refused(void **unused)
{
	const uint32_t frame = 4 + 3 * CELLS, layer = frame + 4;

	(void)unused;
	refused(2, 2, "more than one stream");
	refused(3, 0, "empty");
	refused(3, UINT32_MAX, "empty");
	refused(3, CELLS - 1, "layers"); /* its frame is looked for too early */
	refused(7, 2, "positions");      /* the second token's position */
	refused(8, 2, "positions");      /* ... is of two sequences */
	refused(frame, 1, "flash attention");
	refused(frame, 2, "layers");
	refused(frame + 1, 0, "layers");
	refused(frame + 1, LAYERS + 1, "layers");
	refused(frame + 1, UINT32_MAX, "layers");
	refused(layer + 1, KEY_ROW + 4, "layers");
	refused(layer + 1, 0, "layers");
	refused(layer + 2, 1, "layers");
	/* The second layer's type: layers of different types are no single part. */
	refused(layer + 3 + KEY_ROW / 4 * CELLS, 2, "layers");
}

static void test_no_length_but_its_own_is_taken(void **unused)
{
	static uint32_t state[1024];
	size_t bytes = example((uint8_t *)state, 2);
	struct state_shape s;
	const char *why;

	(void)unused;
	for (size_t other = 0; other < sizeof(state); other++) {
		uint8_t *exact = malloc(other ? other : 1); /* so that a read beyond it is found */

		memcpy(exact, state, other);
		assert_int_equal(state_learn(&s, exact, other, &why),
				 other == bytes ? (int)CELLS : -ENOTSUP);
		free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_learnt_is_written_again),
		cmocka_unit_test(test_what_is_not_understood_is_refused),
		cmocka_unit_test(test_no_length_but_its_own_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
