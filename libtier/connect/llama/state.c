/*
 * Reads and writes the frame of a sequence's state: everything of it but the rows; see state.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/connect/llama/state.h"

#include <errno.h>
#include <string.h>

#define HEAD_BYTES 16u
#define CELL_BYTES 12u
#define LAYER_BYTES 12u /* before a layer's rows */
#define LAYERS_MAX 4096u
#define ROW_BYTES_MAX (1u << 24)

static uint32_t word(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static size_t layers_at(const struct state_shape *s, uint32_t cells)
{
	return HEAD_BYTES + (size_t)CELL_BYTES * cells + 8 + s->extra_bytes;
}

static size_t layer_bytes(const struct state_shape *s, uint32_t cells, uint32_t p)
{
	return LAYER_BYTES + s->part[p].bytes * cells;
}

size_t state_rows_at(const struct state_shape *s, uint32_t cells, uint32_t p, uint32_t l)
{
	return layers_at(s, cells) + (p ? s->layers * layer_bytes(s, cells, 0) : 0) +
	       l * layer_bytes(s, cells, p) + LAYER_BYTES;
}

size_t state_bytes(const struct state_shape *s, uint32_t cells)
{
	return state_rows_at(s, cells, 1, s->layers) - LAYER_BYTES;
}

/* Whether the layers lie as they must with s->extra_bytes of further words; sets part. */
static int layers_fit(struct state_shape *s, const uint8_t *state, size_t bytes, uint32_t cells)
{
	size_t at = layers_at(s, cells);

	for (uint32_t i = 0; i < 2 * s->layers; i++) {
		struct state_rows rows, *part = &s->part[i / s->layers];

		if (at + LAYER_BYTES > bytes)
			return 0;
		memcpy(&rows.type, state + at, sizeof(rows.type));
		memcpy(&rows.bytes, state + at + 4, sizeof(rows.bytes));
		if (rows.bytes == 0 || rows.bytes > ROW_BYTES_MAX)
			return 0;
		if (i % s->layers == 0)
			*part = rows;
		else if (rows.type != part->type || rows.bytes != part->bytes)
			return 0;
		at += layer_bytes(s, cells, i / s->layers);
	}
	return at == bytes;
}

int64_t state_learn(struct state_shape *s, const uint8_t *state, size_t bytes, const char **why)
{
	uint32_t cells = bytes < HEAD_BYTES + 8 ? 0 : word(state + 12);
	const uint8_t *at = state + HEAD_BYTES;

	memset(s, 0, sizeof(*s));
	*why = "it is empty, or in more than one stream";
	if (cells == 0 || word(state + 8) != 1 || cells > (bytes - HEAD_BYTES - 8) / CELL_BYTES)
		return -ENOTSUP;
	*why = "its tokens are not at positions 0, 1, 2 ... of one sequence, in order";
	for (uint32_t i = 0; i < cells; i++, at += CELL_BYTES) {
		if (word(at) != i || word(at + 4) != 1)
			return -ENOTSUP;
	}
	*why = "values are transposed: turn on flash attention";
	if (word(at) == 1)
		return -ENOTSUP;
	*why = "its layers do not lie as in any version that is known";
	s->magic = word(state);
	s->layers = word(at + 4);
	if (word(at) != 0 || s->layers == 0 || s->layers > LAYERS_MAX)
		return -ENOTSUP;
	for (; s->extra_bytes <= STATE_EXTRA_BYTES; s->extra_bytes += 4) {
		if (layers_fit(s, state, bytes, cells)) {
			memcpy(s->extra, at + 8, s->extra_bytes);
			return cells;
		}
	}
	return -ENOTSUP;
}

void state_write_frame(const struct state_shape *s, uint8_t *state, uint32_t cells,
		       int32_t sequence)
{
	uint32_t *at = (uint32_t *)state;

	*at++ = s->magic;
	*at++ = (uint32_t)sequence;
	*at++ = 1;
	*at++ = cells;
	for (uint32_t i = 0; i < cells; i++) {
		*at++ = i;
		*at++ = 1;
		*at++ = (uint32_t)sequence;
	}
	*at++ = 0;
	*at++ = s->layers;
	memcpy(at, s->extra, s->extra_bytes);
	for (uint32_t i = 0; i < 2 * s->layers; i++) {
		const struct state_rows *part = &s->part[i / s->layers];
		uint8_t *rows = state + state_rows_at(s, cells, i / s->layers, i % s->layers);

		memcpy(rows - LAYER_BYTES, &part->type, sizeof(part->type));
		memcpy(rows - LAYER_BYTES + 4, &part->bytes, sizeof(part->bytes));
	}
}
