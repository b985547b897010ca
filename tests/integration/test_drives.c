/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of two drives: blocks come back from both after a kill; one that is missing at a start
 * costs its own blocks only, and they are back with it, but for those that were deleted meanwhile;
 * a store of one drive becomes the first of two.
 */
#include "tests/integration/kv_world.h"
#include "tests/integration/tierctl_json.h"

#define BLOCKS 256u /* durable, each by a put of its own: runs of one block, on either drive */

struct pair {
	char two[512], second[256], away[300];
	const char *settings[5];
};

static void pair_of(const struct daemon *d, struct pair *p)
{
	snprintf(p->second, sizeof(p->second), "%s/second", d->folder);
	snprintf(p->away, sizeof(p->away), "%s.away", p->second);
	snprintf(p->two, sizeof(p->two), "store.path=%s, %s", d->store, p->second);
	p->settings[0] = p->two;
	p->settings[1] = "cxl.size=32MiB";
	p->settings[2] = "nvme.size=64MiB";
	p->settings[3] = NULL;
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), NULL), 0);
	return key;
}

static void fill(const struct world *w, uint32_t from, uint32_t to)
{
	const struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_DURABLE };
	uint8_t bytes[BLOCK_BYTES];

	for (uint32_t i = from; i < to; i++) {
		tier_key key = key_of(i);

		memset(bytes, (int)(1 + i % 200), sizeof(bytes));
		assert_int_equal(tier_put_copy(w->c, &key, 1, bytes, &o), 1);
	}
}

/* How many are there; every byte of these. there: bit by key, or NULL. */
static uint32_t count(const struct world *w, bool *there)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);
		struct tier_found found;
		bool is = tier_match(w->c, &key, 1, &found) == 1;

		for (uint32_t page = 0; is && page < BLOCK_PAGES; page++) {
			struct tier_page at = { found.block, page };
			struct tier_lease lease;

			assert_int_equal(tier_read_pages(w->r, w->c, &at, 1,
							 time_now_ns() + LONG_NS, &lease), 1);
			for (uint32_t b = 0; b < lease.bytes; b++)
				assert_int_equal(((const uint8_t *)lease.data)[b], 1 + i % 200);
			tier_release(w->r, &lease);
		}
		n += is;
		if (there)
			there[i] = is;
	}
	return n;
}

static void killed(struct world *w)
{
	tier_close(w->t);
	assert_int_equal(kill(w->d.pid, SIGKILL), 0);
	daemon_wait(&w->d);
}

static uint64_t live_of(const struct world *w, uint32_t drive, const char *state)
{
	json_t *status = tierctl_json(&w->d, "status");
	const json_t *one = json_array_get(json_at(status, "store.drives"), drive);
	uint64_t live = (uint64_t)json_integer_value(json_at(one, "live"));

	assert_string_equal(json_string_value(json_at(one, "state")), state);
	json_decref(status);
	return live;
}

static void begin(struct world *w, const struct pair *p)
{
	daemon_start(&w->d, p->settings);
	world_open(w);
}

static struct world *made(struct pair *p)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	daemon_folder(&w->d);
	pair_of(&w->d, p);
	assert_int_equal(tier_geometry_preset(&w->g, "tiny"), 0);
	begin(w, p);
	return w;
}

static void test_both_come_back(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	void *end = w;

	(void)state;
	fill(w, 0, BLOCKS);
	/* By room, then by queue: neither has less than a third. */
	assert_true(live_of(w, 0, "ok") > BLOCKS * BLOCK_BYTES / 3);
	assert_true(live_of(w, 1, "ok") > BLOCKS * BLOCK_BYTES / 3);
	killed(w);
	begin(w, &p);
	assert_int_equal(count(w, NULL), BLOCKS);
	world_end(&end);
}

static void test_missing_and_back(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	bool there[BLOCKS];
	uint32_t left, deleted = 0;
	void *end = w;

	(void)state;
	fill(w, 0, BLOCKS);
	killed(w);
	assert_int_equal(rename(p.second, p.away), 0);
	begin(w, &p);
	assert_true(daemon_logged(&w->d, "a drive of the store is missing"));
	assert_int_not_equal(access(p.second, F_OK), 0); /* none is made in its place */
	live_of(w, 1, "MISSING");
	left = count(w, there);
	assert_true(left > BLOCKS / 3 && left < BLOCKS - BLOCKS / 3);
	/* Deleted where they cannot be seen, and put anew. */
	for (uint32_t i = 0; i < BLOCKS; i += 4) {
		tier_key key = key_of(i);

		assert_int_equal(tier_delete(w->c, &key, 1), there[i]);
		deleted++;
	}
	fill(w, 0, 1);
	killed(w);
	begin(w, &p); /* missing once more: what was deleted is still known */
	assert_true(daemon_logged(&w->d, "a drive of the store is missing"));
	killed(w);
	assert_int_equal(rename(p.away, p.second), 0);
	begin(w, &p);
	live_of(w, 1, "ok");
	assert_int_equal(count(w, there), BLOCKS - deleted + 1);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(there[i], i % 4 != 0 || i == 0);
	world_end(&end);
}

static void test_one_becomes_two(void **state)
{
	static const char *const alone[] = { "cxl.size=32MiB", "nvme.size=64MiB", NULL };
	struct world *w = world_begin(alone);
	struct pair p;
	void *end = w;

	(void)state;
	fill(w, 0, BLOCKS / 2);
	tier_close(w->t);
	daemon_stop(&w->d);
	pair_of(&w->d, &p);
	begin(w, &p);
	assert_int_equal(count(w, NULL), BLOCKS / 2);
	fill(w, BLOCKS / 2, BLOCKS);
	assert_true(live_of(w, 1, "ok") > BLOCKS / 4 * BLOCK_BYTES); /* it has more room */
	killed(w);
	daemon_start(&w->d, alone); /* the second is not named: missing, not forgotten */
	assert_true(daemon_logged(&w->d, "a drive of the store is missing"));
	daemon_stop(&w->d);
	begin(w, &p);
	assert_int_equal(count(w, NULL), BLOCKS);
	world_end(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_come_back),
		cmocka_unit_test(test_missing_and_back),
		cmocka_unit_test(test_one_becomes_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
