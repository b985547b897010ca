/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of sequences as the door of llama.cpp reads them from an engine.
 *
 * Must hold: a refusal says why; of what is understood every row lies inside, behind the one
 * before, and the frame that the door writes for as many tokens is the engine's own.
 */
#include <errno.h>

#include "libtier/connect/llama/state.h"
#include "tests/fuzz/fuzz.h"

#define STATE_BYTES_MAX 65536u

void fuzz_open(void)
{
}

/* The frame of the state, written anew over its rows. */
static void check_frame(const struct state_shape *s, const uint8_t *state, size_t bytes,
			uint32_t cells)
{
	uint8_t *again = malloc(bytes);
	size_t end = 0;
	int32_t sequence;

	FUZZ_CHECK(again && state_bytes(s, cells) == bytes);
	memset(again, 0xee, bytes);
	memcpy(&sequence, state + 4, sizeof(sequence));
	state_write_frame(s, again, cells, sequence);
	for (uint32_t p = 0; p < 2; p++) {
		for (uint32_t l = 0; l < s->layers; l++) {
			size_t at = state_rows_at(s, cells, p, l);

			FUZZ_CHECK(at >= end + sizeof(struct state_rows));
			end = at + s->part[p].bytes * cells;
			FUZZ_CHECK(end <= bytes);
			memcpy(again + at, state + at, end - at);
		}
	}
	for (uint32_t i = 0; i < cells; i++) /* which sequence a token is of is not looked at */
		memcpy(again + 16 + 12 * i + 8, state + 16 + 12 * i + 8, 4);
	FUZZ_CHECK(end == bytes && memcmp(again, state, bytes) == 0);
	free(again);
}

void fuzz_one(struct fuzz_input *in)
{
	size_t bytes = in->left < STATE_BYTES_MAX ? in->left : STATE_BYTES_MAX;
	uint8_t *state = malloc(bytes ? bytes : 1); /* reads beyond it are found */
	struct state_shape s;
	const char *why = NULL;
	int64_t cells;

	FUZZ_CHECK(state);
	fuzz_take(in, state, bytes);
	cells = state_learn(&s, state, bytes, &why);
	FUZZ_CHECK(cells > 0 || (cells == -ENOTSUP && why && why[0]));
	if (cells > 0)
		check_frame(&s, state, bytes, (uint32_t)cells);
	free(state);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_word(struct fuzz_seed *s, uint32_t value)
{
	fuzz_put(s, &value, sizeof(value));
}

void fuzz_seeds(void)
{
	static struct fuzz_seed s;

	for (uint32_t more = 0; more <= 2; more += 2) {
		static const uint8_t rows[8];
		char name[16];

		for (uint32_t i = 0; i < 4; i++)
			put_word(&s, (uint32_t[]){ 0xfeedbeef, 0, 1, 2 }[i]);
		for (uint32_t i = 0; i < 6; i++)
			put_word(&s, (uint32_t[]){ 0, 1, 0, 1, 1, 0 }[i]);
		put_word(&s, 0);
		put_word(&s, 2);
		for (uint32_t i = 0; i < more; i++)
			put_word(&s, 8);
		for (uint32_t l = 0; l < 4; l++) {
			put_word(&s, 1);
			put_word(&s, 4);
			put_word(&s, 0);
			fuzz_put(&s, rows, sizeof(rows));
		}
		snprintf(name, sizeof(name), "version-%u", 3 + more / 2);
		fuzz_seed_end(&s, name);
	}
}
