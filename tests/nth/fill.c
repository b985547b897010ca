/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that uses every kind of request once: what tests/nth/startup runs against a daemon whose
 * allocations fail. Prints the first error; it is no failure of the test, as long as the daemon
 * stays. Two connections make the context at the same time, so that one must wait for the other.
 * usage: fill SOCKET [strict]; with strict, an error is an exit status of 1.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tier.h>

#define BLOCKS 8u
#define BLOCK_BYTES (6 * 4096u) /* of the preset "tiny" */

static int fill(tier *t, tier_context *c)
{
	struct tier_put_options durable = { .size = sizeof(durable), .flags = TIER_PUT_DURABLE };
	struct tier_found found[BLOCKS];
	tier_block block[BLOCKS];
	tier_key key[BLOCKS];
	uint64_t pin = 0;
	int64_t n = 0;
	void *data = calloc(BLOCKS, BLOCK_BYTES);

	for (uint32_t i = 0; i < BLOCKS && n == 0; i++)
		n = tier_key_opaque(&key[i], &i, sizeof(i), NULL);
	if (n == 0 && data)
		n = tier_put_copy(c, key, BLOCKS, data, &durable);
	free(data);
	if (n >= 0)
		n = tier_match(c, key, BLOCKS, found);
	for (int64_t i = 0; i < n; i++)
		block[i] = found[i].block;
	if (n > 0)
		n = tier_pin(c, block, (uint32_t)n, TIER_CXL, 0, &pin);
	if (n > 0)
		n = tier_fetch(c, block, 1, NULL);
	if (n > 0)
		n = tier_unpin(c, pin);
	if (n >= 0)
		n = tier_delete(c, key, 2);
	return n < 0 ? (int)n : tier_drain(t);
}

struct other {
	tier *t;
	const tier_geometry *g;
	int rc;
};

static void *create(void *arg)
{
	struct other *o = arg;
	tier_context *c = NULL;

	o->rc = tier_context_create(o->t, "nth", o->g, NULL, &c);
	tier_context_close(c);
	return NULL;
}

/* While another connection does the same. */
static int create_twice(const struct tier_connect_options *options, tier *t, const tier_geometry *g,
			tier_context **c)
{
	struct other other = { .g = g };
	pthread_t thread;
	int rc = tier_connect(&other.t, options);

	if (rc)
		return rc;
	rc = -pthread_create(&thread, NULL, create, &other);
	if (rc == 0) {
		rc = tier_context_create(t, "nth", g, NULL, c);
		pthread_join(thread, NULL);
	}
	tier_close(other.t);
	return rc ? rc : other.rc;
}

int main(int argc, char **argv)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = argc > 1 ? argv[1] : NULL,
					  .staging_bytes = 1u << 20 };
	tier_geometry *g = NULL;
	tier_context *c = NULL;
	char *reply = NULL;
	tier *t = NULL;
	int rc = tier_geometry_preset(&g, "tiny");

	if (rc == 0)
		rc = tier_connect(&t, &o);
	if (rc == 0)
		rc = create_twice(&o, t, g, &c);
	if (rc == 0)
		rc = fill(t, c);
	if (rc == 0)
		rc = tier_context_raise_epoch(t, "nth", NULL);
	if (rc == 0)
		rc = tier_admin(t, "drain", NULL, &reply);
	if (rc)
		fprintf(stderr, "fill: %s\n", tier_error_text());
	free(reply);
	tier_close(t);
	tier_geometry_free(g);
	return rc && argc > 2 && strcmp(argv[2], "strict") == 0;
}
