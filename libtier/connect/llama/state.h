/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the state of one sequence lies in the bytes that llama.cpp gives and takes: learnt from a
 * state of a few tokens, so that no version number and no header of llama.cpp is needed.
 *
 *	u32 magic · i32 sequence · u32 streams · u32 cells
 *	cells x (i32 position · u32 count of sequences, 1 · i32 sequence)
 *	u32 values transposed · u32 layers · further words, which depend on the version
 *	layers x (i32 type · u64 bytes a row · cells x row), of keys, then of values
 */
#ifndef TIER_LLAMA_STATE_H
#define TIER_LLAMA_STATE_H

#include <stddef.h>
#include <stdint.h>

#define STATE_EXTRA_BYTES 64u /* most that further words may take */

struct state_rows { /* as they stand before a layer's rows */
	int32_t type;
	uint64_t bytes; /* a token's row in one layer */
} __attribute__((packed));

struct state_shape {
	uint32_t magic;
	uint32_t layers;
	struct state_rows part[2]; /* keys, values */
	uint32_t extra_bytes;
	uint8_t extra[STATE_EXTRA_BYTES];
};

/*
 * Learn the shape from a state, aligned to 4: from one of two tokens or more, there is no other
 * that fits it by chance. Returns how many tokens it holds, from position 0 on, or -ENOTSUP and
 * *why says what is not understood.
 */
int64_t state_learn(struct state_shape *s, const uint8_t *state, size_t bytes, const char **why);

/* Bytes of a state of so many tokens; where in it the rows of layer l of part p begin. */
size_t state_bytes(const struct state_shape *s, uint32_t cells);
size_t state_rows_at(const struct state_shape *s, uint32_t cells, uint32_t p, uint32_t l);

/* Write all of a state but the rows; it is aligned to 4. */
void state_write_frame(const struct state_shape *s, uint8_t *state, uint32_t cells,
		       int32_t sequence);

#endif
