/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of two drives: blocks come back from both after a kill; one that is missing at a start
 * costs its own blocks only, and they are back with it, but for those that were deleted meanwhile;
 * a store of one drive becomes the first of two. One that fails while it serves costs its own
 * blocks only, too; one is drained, over kills, kept after all, or forgotten; nothing starts
 * without the first.
 */
#include <sys/mman.h>
#include <sys/sendfile.h>

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
	p->settings[2] = "nvme.size=32MiB";
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
static uint32_t count_of(const struct world *w, bool *there, bool lossy)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		tier_key key = key_of(i);
		struct tier_found found;
		bool is = tier_match(w->c, &key, 1, &found) == 1;

		for (uint32_t page = 0; is && page < BLOCK_PAGES; page++) {
			struct tier_page at = { found.block, page };
			struct tier_lease lease;
			int n1 = tier_read_pages(w->r, w->c, &at, 1, time_now_ns() + LONG_NS,
						 &lease);

			is = n1 == 1;
			assert_true(is || lossy);
			if (!is)
				break;
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

static uint32_t count(const struct world *w, bool *there)
{
	return count_of(w, there, false);
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

/* ---- one that fails ------------------------------------------------------------------------- */

/* The second drive's bytes where the test can take them away: *fd, and its path in the settings. */
static void second_in_memory(const struct world *w, struct pair *p, int *fd)
{
	int from = open(p->second, O_RDONLY | O_CLOEXEC);
	struct stat st;

	*fd = memfd_create("second", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(*fd >= 0 && from >= 0);
	assert_int_equal(fstat(from, &st), 0);
	assert_int_equal(sendfile(*fd, from, NULL, (size_t)st.st_size), st.st_size);
	close(from);
	assert_int_equal(fchmod(*fd, 0600), 0);
	snprintf(p->two, sizeof(p->two), "store.path=%s, /proc/%d/fd/%d", w->d.store, getpid(),
		 *fd);
}

/* From now on each of its reads, and of its writes, fails. */
static void second_fails(int fd)
{
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
}

static void test_fails_while_serving(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	uint32_t before, after;
	void *end = w;
	int fd;

	(void)state;
	fill(w, 0, BLOCKS / 2);
	killed(w);
	second_in_memory(w, &p, &fd);
	begin(w, &p);
	before = count_of(w, NULL, false);
	assert_int_equal(before, BLOCKS / 2);
	killed(w);
	begin(w, &p); /* nothing is in memory: the second's blocks are misses from here on */
	second_fails(fd);
	before = count_of(w, NULL, true);
	assert_true(before > BLOCKS / 8 && before < BLOCKS / 2);
	live_of(w, 0, "ok");
	live_of(w, 1, "FAILING");
	fill(w, BLOCKS / 2, BLOCKS); /* every one is acknowledged, and of none is it not true */
	live_of(w, 1, "FAILING");
	assert_int_equal(count_of(w, NULL, true), before + BLOCKS / 2);
	killed(w);
	begin(w, &p); /* without it: there is no store any more where it was */
	after = count(w, NULL);
	assert_int_equal(after, before + BLOCKS / 2);
	killed(w);
	pair_of(&w->d, &p);
	begin(w, &p); /* back, as it was before it failed, and at another path */
	live_of(w, 1, "ok");
	assert_int_equal(count(w, NULL), BLOCKS);
	close(fd);
	world_end(&end);
}

static bool failing(const struct world *w)
{
	json_t *status = tierctl_json(&w->d, "status");
	const json_t *one = json_array_get(json_at(status, "store.drives"), 1);
	bool is = strcmp(json_string_value(json_at(one, "state")), "FAILING") == 0;

	json_decref(status);
	return is;
}

/* Writes alone fail: what lies there is served, and what is promised is kept elsewhere. */
static void test_writes_fail(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	uint64_t live;
	void *end = w;
	int fd;

	(void)state;
	fill(w, 0, BLOCKS / 2);
	killed(w);
	second_in_memory(w, &p, &fd);
	begin(w, &p);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	live = live_of(w, 1, "ok");
	fill(w, BLOCKS / 2, BLOCKS);
	/* It is tried again once a second. */
	for (uint32_t i = BLOCKS; i < 2 * BLOCKS && !failing(w); i++) {
		fill(w, i, i + 1);
		usleep(50000);
	}
	assert_int_equal(live_of(w, 1, "FAILING"), live);
	assert_int_equal(count(w, NULL), BLOCKS);
	killed(w);
	begin(w, &p);
	assert_int_equal(count(w, NULL), BLOCKS);
	close(fd);
	world_end(&end);
}

/* ---- one that leaves ------------------------------------------------------------------------ */

static int drive_do(const struct world *w, const char *drive, const char *deed)
{
	char args[400], *reply = NULL;
	int rc;

	snprintf(args, sizeof(args), "{\"drive\":\"%s\",\"do\":\"%s\"}", drive, deed);
	rc = tier_admin(w->t, "drive", args, &reply);
	free(reply);
	return rc;
}

static bool is_drained(const struct world *w)
{
	json_t *status = tierctl_json(&w->d, "status");
	const json_t *one = json_array_get(json_at(status, "store.drives"), 1);
	const char *state = json_string_value(json_at(one, "state"));
	bool drained = !state || strcmp(state, "drained") == 0;

	json_decref(status);
	return drained;
}

static void test_drained(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	char words[280];
	void *end = w;

	(void)state;
	fill(w, 0, BLOCKS);
	assert_int_equal(drive_do(w, w->d.store, "drain"), -EINVAL); /* it has the catalog */
	assert_int_equal(drive_do(w, "/nowhere", "drain"), -ENOENT);
	assert_int_equal(drive_do(w, p.second, "away"), -EINVAL);
	assert_int_equal(drive_do(w, p.second, "drain"), 0);
	for (uint32_t ms = 1; !is_drained(w); ms *= 2) { /* killed in the middle, it goes on */
		usleep(ms * 1000);
		killed(w);
		begin(w, &p);
	}
	assert_int_equal(count(w, NULL), BLOCKS);
	killed(w);
	begin(w, &p); /* it is still named: passed over, and said so */
	assert_int_equal(count(w, NULL), BLOCKS);
	assert_true(daemon_logged(&w->d, "a drive that was taken out of the store is not used"));
	killed(w);
	assert_int_equal(unlink(p.second), 0);
	snprintf(p.two, sizeof(p.two), "store.path=%s", w->d.store);
	begin(w, &p);
	assert_false(daemon_logged(&w->d, "a drive of the store is missing"));
	assert_int_equal(count(w, NULL), BLOCKS);
	killed(w);
	pair_of(&w->d, &p); /* and another one comes in its place */
	begin(w, &p);
	live_of(w, 1, "ok");
	fill(w, 0, BLOCKS);
	snprintf(words, sizeof(words), "drive drain %s", p.second);
	json_decref(tierctl_json(&w->d, words)); /* waits until it is drained */
	assert_int_equal(live_of(w, 1, "drained"), 0);
	assert_int_equal(drive_do(w, p.second, "keep"), -ENOENT);
	assert_int_equal(count(w, NULL), BLOCKS);
	world_end(&end);
}

static void test_kept_after_all(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	void *end = w;
	int rc;

	(void)state;
	fill(w, 0, BLOCKS);
	assert_int_equal(drive_do(w, p.second, "drain"), 0);
	rc = drive_do(w, p.second, "keep");
	assert_true(rc == 0 || rc == -ENOENT); /* it was drained already */
	killed(w);
	begin(w, &p);
	if (rc == 0)
		live_of(w, 1, "ok");
	assert_int_equal(count(w, NULL), BLOCKS);
	world_end(&end);
}

static void test_forgotten(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	char id[32];
	json_t *status;
	uint32_t left;
	void *end = w;
	int fd;

	(void)state;
	fill(w, 0, BLOCKS);
	killed(w);
	assert_int_equal(rename(p.second, p.away), 0);
	begin(w, &p);
	left = count(w, NULL);
	status = tierctl_json(&w->d, "status");
	snprintf(id, sizeof(id), "%s",
		 json_string_value(json_at(json_array_get(json_at(status, "store.drives"), 1),
					   "store_id")));
	json_decref(status);
	assert_int_equal(drive_do(w, id, "drain"), -ENODEV);
	assert_int_equal(drive_do(w, id, "forget"), 0);
	killed(w);
	assert_int_equal(rename(p.away, p.second), 0);
	begin(w, &p); /* too late */
	assert_true(daemon_logged(&w->d, "a drive that was taken out of the store is not used"));
	assert_int_equal(count(w, NULL), left);
	killed(w);
	assert_int_equal(unlink(p.second), 0);
	begin(w, &p); /* one that dies while it serves is forgotten, too */
	fill(w, 0, BLOCKS);
	killed(w);
	second_in_memory(w, &p, &fd);
	begin(w, &p);
	second_fails(fd);
	left = count_of(w, NULL, true);
	snprintf(id, sizeof(id), "%s", strrchr(p.two, ' ') + 1);
	assert_int_equal(drive_do(w, id, "forget"), 0);
	for (uint32_t i = 0; i < 1000 && !is_drained(w); i++)
		usleep(20000);
	live_of(w, 1, "drained");
	assert_int_equal(count(w, NULL), left);
	close(fd);
	world_end(&end);
}

static void test_nothing_without_the_first(void **state)
{
	struct pair p;
	struct world *w = made(&p);
	void *end = w;
	int out;

	(void)state;
	fill(w, 0, BLOCKS);
	killed(w);
	assert_int_equal(rename(w->d.store, p.away), 0);
	w->d.pid = daemon_spawn(&w->d, p.settings, &out);
	assert_int_not_equal(daemon_wait(&w->d), 0);
	close(out);
	assert_true(daemon_logged(&w->d, "the store's first drive, which has its catalog, is not"));
	assert_int_not_equal(access(w->d.store, F_OK), 0); /* none is made in its place */
	assert_int_equal(rename(p.away, w->d.store), 0);
	begin(w, &p);
	assert_int_equal(count(w, NULL), BLOCKS);
	world_end(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fails_while_serving),
		cmocka_unit_test(test_writes_fail),
		cmocka_unit_test(test_drained),
		cmocka_unit_test(test_kept_after_all),
		cmocka_unit_test(test_forgotten),
		cmocka_unit_test(test_nothing_without_the_first),
		cmocka_unit_test(test_both_come_back),
		cmocka_unit_test(test_missing_and_back),
		cmocka_unit_test(test_one_becomes_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
