/* SPDX-License-Identifier: Apache-2.0 */
/* A table of what left; see ghosts.h. */
#include "tierd/policy/ghosts.h"

#include <assert.h>
#include <string.h>

#define LINES_MIN 64u /* a page of memory: few lines would fill unevenly */
#define LINES_MAX (1u << 28)

_Static_assert(sizeof(struct ghost) * GHOSTS_LINE == GHOSTS_ALIGN, "a line is a cache line");
_Static_assert(sizeof(struct ghosts) == GHOSTS_ALIGN, "lines begin aligned");

static uint32_t lines_for(uint64_t count)
{
	uint64_t lines = (count + GHOSTS_LINE - 1) / GHOSTS_LINE;

	return lines < LINES_MIN ? LINES_MIN : lines > LINES_MAX ? LINES_MAX : (uint32_t)lines;
}

size_t ghosts_bytes(uint64_t count)
{
	return sizeof(struct ghosts) + (size_t)lines_for(count) * sizeof(struct ghost[GHOSTS_LINE]);
}

void ghosts_init(struct ghosts *g, uint64_t count)
{
	g->lines = lines_for(count);
}

static struct ghost *line_of(struct ghosts *g, uint32_t tag)
{
	return g->place[ghosts_line(g, tag)];
}

struct ghost *ghosts_find(struct ghosts *g, uint32_t tag)
{
	struct ghost *line = line_of(g, tag);

	for (uint32_t i = 0; i < GHOSTS_LINE && line[i].tag; i++)
		if (line[i].tag == tag)
			return &line[i];
	return NULL;
}

void ghosts_drop(struct ghosts *g, struct ghost *ghost)
{
	struct ghost *line = line_of(g, ghost->tag);
	size_t i = (size_t)(ghost - line);

	assert(ghost->tag && i < GHOSTS_LINE);
	memmove(ghost, ghost + 1, (GHOSTS_LINE - 1 - i) * sizeof(*ghost));
	line[GHOSTS_LINE - 1] = (struct ghost){ .tag = 0 };
}

void ghosts_add(struct ghosts *g, const struct ghost *ghost, struct ghost *forgotten)
{
	struct ghost *line = line_of(g, ghost->tag);
	uint32_t i = 0;

	assert(ghost->tag);
	while (i < GHOSTS_LINE - 1 && line[i].tag && line[i].tag != ghost->tag)
		i++;
	*forgotten = line[i];
	memmove(line + 1, line, i * sizeof(*line));
	line[0].tag = ghost->tag; /* each as it was made: one load of both would wait for them */
	line[0].note = ghost->note;
	g->added++;
}
