/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of objects: a daemon that keeps some, a client, a context, bytes by their seed. */
#ifndef TESTS_INTEGRATION_OBJECT_WORLD_H
#define TESTS_INTEGRATION_OBJECT_WORLD_H

#include "tests/integration/child.h"
#include "tests/integration/front_client.h"
#include "tests/lib/property.h"

#include <ftw.h>
#include <sys/prctl.h>

#include <tier.h>

#define MIB (1u << 20)

static const char *const settings[] = { "hbm.size=0", "object.cxl=8MiB", "object.nvme=24MiB",
					NULL };

struct world {
	struct daemon d;
	tier *t;
};

HELPER tier *connect_to(const struct daemon *d)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = MIB, .requests = 8, .readers = 1 };
	tier *t;

	CHECK(tier_connect(&t, &o) == 0);
	return t;
}

HELPER int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	daemon_folder(&w->d);
	daemon_start(&w->d, settings);
	w->t = connect_to(&w->d);
	assert_int_equal(tier_object_context(w->t, "files", NULL), 0);
	*state = w;
	return 0;
}

HELPER int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

HELPER int teardown(void **state)
{
	struct world *w = *state;

	tier_close(w->t);
	daemon_stop(&w->d);
	nftw(w->d.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(w);
	return 0;
}

/* ---- bytes --------------------------------------------------------------------------------- */

HELPER void fill(uint8_t *out, size_t bytes, uint64_t seed)
{
	struct rng rng = { seed };

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = rng_next(&rng);

		memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

HELPER int write_all(int fd, const uint8_t *data, size_t bytes)
{
	return write(fd, data, bytes) == (ssize_t)bytes ? 0 : -EIO;
}

HELPER int put(tier *t, const char *context, const char *name, size_t bytes, uint64_t seed)
{
	uint8_t *data = malloc(bytes + 8);
	tier_object *o;
	int rc = tier_object_create(t, context, name, NULL, &o);

	fill(data, bytes, seed);
	if (rc == 0) {
		CHECK(write_all(tier_object_fd(o), data, bytes) == 0);
		rc = tier_object_commit(o);
	}
	free(data);
	return rc;
}

/* 1 = exactly these bytes, 0 = others, or the error. */
HELPER int is(tier *t, const char *context, const char *name, size_t bytes, uint64_t seed)
{
	int fd = tier_object_open(t, context, name, time_now_ns() + 60 * NS_PER_S), same;
	uint8_t *want = malloc(bytes + 8), *got = malloc(bytes + 8);

	fill(want, bytes, seed);
	same = fd < 0 ? fd :
			read(fd, got, bytes + 1) == (ssize_t)bytes && !memcmp(want, got, bytes);
	if (fd >= 0)
		close(fd);
	free(want);
	free(got);
	return same;
}

HELPER int64_t status(const struct world *w, const char *member)
{
	char *json, *at, want[64];
	int64_t value;

	assert_int_equal(tier_admin(w->t, "status", NULL, &json), 0);
	snprintf(want, sizeof(want), "\"%s\":", member);
	at = strstr(json, "\"objects\":");
	at = at ? strstr(at, want) : NULL;
	assert_non_null(at);
	value = atoll(at + strlen(want));
	free(json);
	return value;
}

#endif
