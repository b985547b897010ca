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
#define LAYER_BYTES sizeof(struct state_rows)
#define LAYERS_MAX 4096u
#define ROW_BYTES_MAX (1u << 24)

size_t state_rows_at(const struct state_shape *s, uint32_t cells, uint32_t p, uint32_t l)
{
	size_t at = HEAD_BYTES + (size_t)CELL_BYTES * cells + 8 + s->extra_bytes;

	at += p ? s->layers * (LAYER_BYTES + s->part[0].bytes * cells) : 0;
	return at + l * (LAYER_BYTES + s->part[p].bytes * cells) + LAYER_BYTES;
}

size_t state_bytes(const struct state_shape *s, uint32_t cells)
{
	return state_rows_at(s, cells, 1, s->layers) - LAYER_BYTES;
}

/* Whether the layers lie as they must with s->extra_bytes of further words; sets part. */
static int layers_fit(struct state_shape *s, const uint8_t *state, size_t bytes, uint32_t cells)
{
	for (uint32_t i = 0; i < 2 * s->layers; i++) {
		size_t at = state_rows_at(s, cells, i / s->layers, i % s->layers);
		struct state_rows *part = &s->part[i / s->layers];

		if (at > bytes)
			return 0;
		if (i % s->layers == 0)
			memcpy(part, state + at - LAYER_BYTES, LAYER_BYTES);
		if (part->bytes == 0 || part->bytes > ROW_BYTES_MAX ||
		    memcmp(part, state + at - LAYER_BYTES, LAYER_BYTES) != 0)
			return 0;
	}
	return state_bytes(s, cells) == bytes;
}

int64_t state_learn(struct state_shape *s, const uint8_t *state, size_t bytes, const char **why)
{
	const uint32_t *at = (const uint32_t *)state;
	uint32_t cells = bytes < HEAD_BYTES + 8 ? 0 : at[3];

	memset(s, 0, sizeof(*s));
	*why = "it is empty, or in more than one stream";
	if (cells == 0 || at[2] != 1 || cells > (bytes - HEAD_BYTES - 8) / CELL_BYTES)
		return -ENOTSUP;
	s->magic = at[0];
	at += HEAD_BYTES / 4;
	*why = "its tokens are not at positions 0, 1, 2 ... of one sequence, in order";
	for (uint32_t i = 0; i < cells; i++, at += CELL_BYTES / 4) {
		if (at[0] != i || at[1] != 1)
			return -ENOTSUP;
	}
	*why = "values are transposed: turn on flash attention";
	if (at[0] == 1)
		return -ENOTSUP;
	*why = "its layers do not lie as in any version that is known";
	s->layers = at[1];
	if (at[0] != 0 || s->layers == 0 || s->layers > LAYERS_MAX)
		return -ENOTSUP;
	for (; s->extra_bytes <= STATE_EXTRA_BYTES; s->extra_bytes += 4) {
		if (layers_fit(s, state, bytes, cells)) {
			memcpy(s->extra, at + 2, s->extra_bytes);
			return cells;
		}
	}
	return -ENOTSUP;
}

void state_write_frame(const struct state_shape *s, uint8_t *state, uint32_t cells,
		       int32_t sequence)
{
	const uint32_t head[] = { s->magic, (uint32_t)sequence, 1, cells };
	uint32_t *at = memcpy(state, head, HEAD_BYTES);

	at += HEAD_BYTES / 4;
	for (uint32_t i = 0; i < cells; i++, at += CELL_BYTES / 4)
		memcpy(at, (uint32_t[]){ i, 1, (uint32_t)sequence }, CELL_BYTES);
	at[0] = 0;
	at[1] = s->layers;
	memcpy(at + 2, s->extra, s->extra_bytes);
	for (uint32_t i = 0; i < 2 * s->layers; i++)
		memcpy(state + state_rows_at(s, cells, i / s->layers, i % s->layers) - LAYER_BYTES,
		       &s->part[i / s->layers], LAYER_BYTES);
}
