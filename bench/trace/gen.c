/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page generator; see gen.h. Eight xorshift128+ generators (Vigna, "Further scramblings of
 * Marsaglia's xorshift generators", 2014; shifts 23, 17, 26) run side by side in vectors of two:
 * shifts, xors and adds of 64-bit lanes are all that the baseline x86-64 has for every processor,
 * and one step yields a cache line. Lane i is seeded by splitmix64 from key, page number and i.
 */
#include "bench/trace/gen.h"

#include <errno.h>
#include <string.h>

#define LANES 8
#define VECTORS 4
#define LINE_BYTES ((size_t)64)

typedef uint64_t pair __attribute__((vector_size(16)));
/* The same at any address. */
typedef uint64_t pair_unaligned __attribute__((vector_size(16), aligned(1), may_alias));

struct state {
	pair a[VECTORS], b[VECTORS];
};

static uint64_t splitmix(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void seed(struct state *s, const tier_key *key, uint32_t page)
{
	uint64_t x = (uint64_t)page * UINT64_C(0xd6e8feb86659fd93), word[4];

	memcpy(word, key->bytes, sizeof(word));
	for (int i = 0; i < 4; i++) {
		x ^= word[i];
		x = splitmix(&x);
	}
	for (int v = 0; v < VECTORS; v++) {
		s->a[v] = (pair){ splitmix(&x), splitmix(&x) };
		s->b[v] = (pair){ splitmix(&x), splitmix(&x) };
	}
}

static inline pair step(pair *a, pair *b)
{
	pair x = *a, y = *b;

	*a = y;
	x ^= x << 23;
	*b = x ^ y ^ x >> 17 ^ y >> 26;
	return *b + y;
}

void gen_page(void *dst, size_t bytes, const tier_key *key, uint32_t page)
{
	struct state s;
	uint8_t *p = dst, *end = p + bytes / LINE_BYTES * LINE_BYTES;
	pair line[VECTORS];

	seed(&s, key, page);
	for (; p < end; p += LINE_BYTES)
		for (int v = 0; v < VECTORS; v++)
			((pair_unaligned *)p)[v] = step(&s.a[v], &s.b[v]);
	if (bytes % LINE_BYTES) {
		for (int v = 0; v < VECTORS; v++)
			line[v] = step(&s.a[v], &s.b[v]);
		memcpy(p, line, bytes % LINE_BYTES);
	}
}

/* Where the first difference is; only after one was found. */
static int locate(const uint8_t *src, size_t bytes, const tier_key *key, uint32_t page,
		  size_t *bad_at)
{
	struct state s;
	pair line[VECTORS];

	seed(&s, key, page);
	for (size_t at = 0; at < bytes; at++) {
		if (at % LINE_BYTES == 0)
			for (int v = 0; v < VECTORS; v++)
				line[v] = step(&s.a[v], &s.b[v]);
		if (src[at] == ((const uint8_t *)line)[at % LINE_BYTES])
			continue;
		if (bad_at)
			*bad_at = at;
		return -EBADMSG;
	}
	/* Wrong before, right now: it changed under us. That is as bad. */
	if (bad_at)
		*bad_at = bytes;
	return -EBADMSG;
}

int gen_verify(const void *src, size_t bytes, const tier_key *key, uint32_t page, size_t *bad_at)
{
	struct state s;
	const uint8_t *p = src, *end = p + bytes / LINE_BYTES * LINE_BYTES;
	pair line[VECTORS], wrong = { 0, 0 };
	int tail = 0;

	seed(&s, key, page);
	for (; p < end; p += LINE_BYTES)
		for (int v = 0; v < VECTORS; v++)
			wrong |= step(&s.a[v], &s.b[v]) ^ ((const pair_unaligned *)p)[v];
	if (bytes % LINE_BYTES) {
		for (int v = 0; v < VECTORS; v++)
			line[v] = step(&s.a[v], &s.b[v]);
		tail = memcmp(p, line, bytes % LINE_BYTES);
	}
	if (!(wrong[0] | wrong[1]) && !tail)
		return 0;
	return locate(src, bytes, key, page, bad_at);
}
