/* SPDX-License-Identifier: Apache-2.0 */
/* Ring of what left; see ghosts.h. */
#include "tierd/policy/ghosts.h"

#include <assert.h>
#include <string.h>

#define COUNT_MAX (1u << 30)

static uint32_t count_for(uint64_t count)
{
	return count > COUNT_MAX ? COUNT_MAX : count < 1 ? 1 : (uint32_t)count;
}

static uint32_t buckets_for(uint32_t count)
{
	uint32_t buckets = 1;

	while (buckets < count)
		buckets *= 2;
	return buckets;
}

size_t ghosts_bytes(uint64_t count)
{
	uint32_t n = count_for(count);

	return sizeof(struct ghosts) + (size_t)n * sizeof(struct ghost) +
	       (size_t)buckets_for(n) * sizeof(uint32_t);
}

void ghosts_init(struct ghosts *g, uint64_t count)
{
	g->count = count_for(count);
	g->mask = buckets_for(g->count) - 1;
}

uint32_t ghosts_tag(const uint8_t *key)
{
	uint32_t tag;

	memcpy(&tag, key, sizeof(tag));
	return tag ? tag : 1;
}

static uint32_t *bucket_of(struct ghosts *g, uint32_t tag)
{
	uint32_t *bucket = (uint32_t *)&g->ring[g->count];

	return &bucket[tag * UINT64_C(0x9e3779b97f4a7c15) >> 33 & g->mask];
}

struct ghost *ghosts_find(struct ghosts *g, uint32_t tag)
{
	uint32_t place = *bucket_of(g, tag);

	while (place && g->ring[place - 1].tag != tag)
		place = g->ring[place - 1].next;
	return place ? &g->ring[place - 1] : NULL;
}

uint32_t ghosts_age(const struct ghosts *g, const struct ghost *ghost)
{
	uint32_t place = (uint32_t)(ghost - g->ring);

	return g->at > place ? g->at - place : g->at + g->count - place;
}

void ghosts_drop(struct ghosts *g, struct ghost *ghost)
{
	uint32_t *link = bucket_of(g, ghost->tag);

	while (*link != ghost - g->ring + 1) {
		assert(*link);
		link = &g->ring[*link - 1].next;
	}
	*link = ghost->next;
	*ghost = (struct ghost){ .tag = 0 };
}

void ghosts_add(struct ghosts *g, const struct ghost *ghost, struct ghost *forgotten)
{
	struct ghost *place = &g->ring[g->at];
	uint32_t *bucket = bucket_of(g, ghost->tag);

	assert(ghost->tag);
	*forgotten = *place;
	if (place->tag)
		ghosts_drop(g, place);
	*place = *ghost;
	place->next = *bucket;
	*bucket = g->at + 1;
	g->at = g->at + 1 == g->count ? 0 : g->at + 1;
}
