/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of the test's own and a client of it with one context, "kv", of the geometry "tiny".
 * Members that one test adds stand in WORLD_MORE, defined before this file is included.
 */
#ifndef TIER_TESTS_KV_WORLD_H
#define TIER_TESTS_KV_WORLD_H

#include "tests/integration/front_client.h"

#include <tier.h>

#ifndef WORLD_MORE
#define WORLD_MORE
#endif

#define BLOCK_PAGES 6u
#define BLOCK_BYTES (BLOCK_PAGES * 4096u)
#define LONG_NS (60 * NS_PER_S)

struct world {
	struct daemon d;
	tier *t;
	tier_context *c;
	tier_reader *r;
	tier_geometry *g;
	WORLD_MORE
};

HELPER tier *world_connect(const struct daemon *d)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = 4u << 20, .name = "test" };
	tier *t;

	if (tier_connect(&t, &o))
		fail_msg("%s", tier_error_text());
	return t;
}

/* Connection, context and reader; closed by tier_close. */
HELPER void world_open(struct world *w)
{
	w->t = world_connect(&w->d);
	if (tier_context_create(w->t, "kv", w->g, NULL, &w->c))
		fail_msg("%s", tier_error_text());
	assert_int_equal(tier_reader_open(w->t, &w->r), 0);
}

HELPER struct world *world_begin(const char *const *settings)
{
	struct world *w = calloc(1, sizeof(*w));

	daemon_folder(&w->d);
	daemon_start(&w->d, settings);
	assert_int_equal(tier_geometry_preset(&w->g, "tiny"), 0);
	world_open(w);
	return w;
}

/* Of one test, whose state is the world. */
HELPER int world_end(void **state)
{
	struct world *w = *state;

	tier_close(w->t);
	tier_geometry_free(w->g);
	daemon_stop(&w->d);
	daemon_remove(&w->d);
	free(w);
	return 0;
}

/* A key of number n, and the bytes of its block. */
static inline tier_key world_key(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

static inline void world_fill(uint8_t *data, uint32_t n)
{
	for (uint32_t page = 0; page < BLOCK_PAGES; page++)
		memset(data + page * 4096, (int)(n * 7 + page), 4096);
}

#endif
