/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a world draws: everything from its seed. See world.h.
 */
#include "tests/sim/world_priv.h"

/* splitmix64: small, seedable, good enough to choose */
uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t world_random(struct world *w)
{
	return random_next(&w->random);
}

uint32_t world_below(struct world *w, uint32_t n)
{
	return (uint32_t)(world_random(w) % n);
}

bool world_chance(struct world *w, uint32_t ppm)
{
	return world_below(w, 1000000) < ppm;
}

uint64_t world_shape(uint64_t seed)
{
	uint64_t state = ~seed;

	return random_next(&state) | 1;
}
