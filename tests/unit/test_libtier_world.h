/*
 * What most tests of libtier begin with: a daemon, a connection with a context of the smallest
 * geometry and a reader, and blocks in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_LIBTIER_WORLD_H
#define TIER_TESTS_LIBTIER_WORLD_H

#include "libtier/base/time.h"
#include "tests/unit/test_libtier_fake.h"

struct world {
	struct fake *fake;
	tier *t;
	tier_context *c;
	tier_reader *r;
	struct fake_context *x; /* the daemon's side of c */
};

static FAKE_UNUSED tier_key world_key(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

static FAKE_UNUSED tier *world_connect(const struct world *w)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->fake->path,
					  .staging_bytes = 1u << 20, .requests = 64, .readers = 4 };
	tier *t;

	assert_int_equal(tier_connect(&t, &o), 0);
	return t;
}

/* Attached to the daemon that runs now. Where the machine is taken away meanwhile, one try does not
 * do: each has a second. */
static FAKE_UNUSED int world_attach(struct world *w)
{
	int rc = tier_check(w->t);

	for (uint32_t i = 0; i < 6000 && rc != 1; i++) {
		usleep(10000);
		rc = tier_check(w->t);
	}
	return rc;
}

static FAKE_UNUSED int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	tier_geometry *g;

	w->fake = fake_new();
	w->t = world_connect(w);
	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(w->t, "ctx", g, NULL, &w->c), 0);
	tier_geometry_free(g);
	assert_int_equal(tier_reader_open(w->t, &w->r), 0);
	w->x = &w->fake->context[0];
	*state = w;
	return 0;
}

static FAKE_UNUSED int world_teardown(void **state)
{
	struct world *w = *state;

	tier_close(w->t);
	fake_free(w->fake);
	free(w);
	return 0;
}

/* Stores block n; returns it as match gives it. */
static FAKE_UNUSED tier_block world_block(struct world *w, uint32_t n)
{
	tier_key key = world_key(n);
	struct tier_found found;

	pthread_mutex_lock(&w->fake->lock);
	fake_store(w->x, &key, ABI_BLOCK_COMMITTED);
	pthread_mutex_unlock(&w->fake->lock);
	assert_int_equal(tier_match(w->c, &key, 1, &found), 1);
	return found.block;
}

#endif
