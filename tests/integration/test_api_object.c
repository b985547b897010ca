/* SPDX-License-Identifier: Apache-2.0 */
/* Objects as clients see them: put, open, replace, list, rename, remove, limits; any message. */
#include "tests/integration/object_world.h"

/* ---- what there is ------------------------------------------------------------------------- */

static void test_an_object_is_what_was_put(void **state)
{
	static const size_t sizes[] = { 0, 1, 4095, 4096, 4097, MIB - 1, MIB + 4097, 5 * MIB + 1 };
	struct world *w = *state;

	for (uint32_t i = 0; i < COUNT(sizes); i++) {
		struct tier_object_info info;

		assert_int_equal(put(w->t, "files", "one", sizes[i], i), 0);
		assert_int_equal(is(w->t, "files", "one", sizes[i], i), 1);
		assert_int_equal(tier_object_stat(w->t, "files", "one", &info), 0);
		assert_int_equal(info.size, sizes[i]);
		assert_int_equal(info.mode, 0644);
		assert_true(info.flags & TIER_OBJECT_RESIDENT);
	}
	assert_int_equal(status(w, "count"), 1);
	assert_int_equal(tier_object_remove(w->t, "files", "one"), 0);
	assert_int_equal(tier_object_remove(w->t, "files", "one"), -ENOENT);
	assert_int_equal(is(w->t, "files", "one", 0, 0), -ENOENT);
}

static void test_nothing_is_seen_before_its_commit(void **state)
{
	struct world *w = *state;
	struct tier_object_info info;
	tier_object *o, *p;
	tier *other = connect_to(&w->d);

	assert_int_equal(put(w->t, "files", "x", 10, 1), 0);
	assert_int_equal(tier_object_create(w->t, "files", "x", NULL, &o), 0);
	assert_int_equal(write_all(tier_object_fd(o), (const uint8_t *)"half", 4), 0);
	assert_int_equal(is(w->t, "files", "x", 10, 1), 1);
	tier_object_abort(o);
	assert_int_equal(is(w->t, "files", "x", 10, 1), 1);
	/* Pending to who writes it, absent to all others; gone with its connection. */
	assert_int_equal(tier_object_create(other, "files", "y", NULL, &o), 0);
	assert_int_equal(write_all(tier_object_fd(o), (const uint8_t *)"half", 4), 0);
	assert_int_equal(tier_object_stat(other, "files", "y", &info), 0);
	assert_int_equal(info.flags, TIER_OBJECT_PENDING);
	assert_int_equal(info.size, 4);
	assert_int_equal(tier_object_stat(w->t, "files", "y", &info), -ENOENT);
	tier_close(other);
	for (int i = 0; i < 1000 && status(w, "uploads"); i++)
		usleep(2000);
	assert_int_equal(status(w, "uploads"), 0);
	assert_int_equal(tier_object_stat(w->t, "files", "y", &info), -ENOENT);
	/* Of two who make it exclusively one does. */
	assert_int_equal(tier_object_create(w->t, "files", "z",
					    &(struct tier_object_options){
						    .size = sizeof(struct tier_object_options),
						    .flags = TIER_OBJECT_EXCLUSIVE }, &o), 0);
	assert_int_equal(tier_object_create(w->t, "files", "z",
					    &(struct tier_object_options){
						    .size = sizeof(struct tier_object_options),
						    .flags = TIER_OBJECT_EXCLUSIVE }, &p), 0);
	assert_int_equal(tier_object_commit(p), 0);
	assert_int_equal(tier_object_commit(o), -EEXIST);
}

static void test_an_open_version_stays_and_is_held(void **state)
{
	struct world *w = *state;
	uint8_t want[10000], *map, got[10000];
	int fd;

	fill(want, sizeof(want), 5);
	assert_int_equal(put(w->t, "files", "v", sizeof(want), 5), 0);
	fd = tier_object_open(w->t, "files", "v", 0);
	assert_true(fd >= 0);
	map = mmap(NULL, sizeof(want), PROT_READ, MAP_SHARED, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd); /* the mapping alone keeps it */
	for (uint64_t i = 6; i < 10; i++)
		assert_int_equal(put(w->t, "files", "v", 100, i), 0);
	assert_int_equal(is(w->t, "files", "v", 100, 9), 1);
	assert_memory_equal(map, want, sizeof(want));
	assert_int_equal(status(w, "cxl_held"), 3 * 4096 + 8192);
	memcpy(got, map, sizeof(got));
	munmap(map, sizeof(want));
	for (int i = 0; i < 1000 && status(w, "cxl_held"); i++)
		usleep(2000);
	assert_int_equal(status(w, "cxl_held"), 0);
}

static void test_names_are_listed_renamed_and_lapse(void **state)
{
	struct world *w = *state;
	struct tier_object_options ttl = { .size = sizeof(ttl), .ttl_ns = 300 * NS_PER_MS };
	static struct tier_object_entry list[100];
	char name[256], odd[256];
	tier_object *o;

	for (uint32_t i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "dir/%02u", i);
		assert_int_equal(put(w->t, "files", name, i, i), 0);
	}
	for (int i = 1; i < 256; i++)
		odd[i - 1] = (char)i;
	odd[255] = '\0';
	assert_int_equal(put(w->t, "files", odd, 3, 3), 0);
	assert_int_equal(tier_object_list(w->t, "files", "dir/", NULL, list, 20), 20);
	assert_string_equal(list[19].name, "dir/19");
	assert_int_equal(tier_object_list(w->t, "files", "dir/", "dir/19", list, 100), 30);
	assert_string_equal(list[0].name, "dir/20");
	assert_int_equal(list[29].size, 49);
	assert_int_equal(tier_object_list(w->t, "files", NULL, NULL, list, 100), 51);
	assert_string_equal(list[0].name, odd);
	assert_int_equal(tier_object_rename(w->t, "files", "dir/07", "dir/08",
					    TIER_RENAME_EXCLUSIVE), -EEXIST);
	assert_int_equal(tier_object_rename(w->t, "files", "dir/07", "dir/08", 0), 0);
	assert_int_equal(is(w->t, "files", "dir/08", 7, 7), 1);
	assert_int_equal(is(w->t, "files", "dir/07", 7, 7), -ENOENT);
	assert_int_equal(tier_object_rename(w->t, "files", "none", "x", 0), -ENOENT);
	assert_int_equal(tier_object_create(w->t, "files", "short", &ttl, &o), 0);
	assert_int_equal(tier_object_commit(o), 0);
	assert_int_equal(is(w->t, "files", "short", 0, 0), 1);
	usleep(400000);
	assert_int_equal(is(w->t, "files", "short", 0, 0), -ENOENT);
	for (int i = 0; i < 2000 && status(w, "count") != 50; i++)
		usleep(2000);
	assert_int_equal(status(w, "count"), 50);
	/* A new epoch, and all are gone. */
	assert_int_equal(tier_context_raise_epoch(w->t, "files", NULL), 0);
	assert_int_equal(tier_object_list(w->t, "files", NULL, NULL, list, 100), 0);
	for (int i = 0; i < 2000 && status(w, "count"); i++)
		usleep(2000);
	assert_int_equal(status(w, "count"), 0);
	assert_int_equal(status(w, "nvme_used"), 0);
}

/* Full is said, half of it is nothing, and room comes back. */
static void test_limits_are_kept(void **state)
{
	struct world *w = *state;
	struct tier_context_options quota = { .size = sizeof(quota),
					      .quota = { 0, 0, 6 * MIB, 0 } };
	uint32_t n = 0;
	char name[32];
	tier_object *o;
	int rc;

	assert_int_equal(tier_object_context(w->t, "small", &quota), 0);
	assert_int_equal(put(w->t, "small", "a", 5 * MIB, 1), 0);
	assert_int_equal(put(w->t, "small", "b", 2 * MIB, 2), -EDQUOT);
	assert_int_equal(is(w->t, "small", "b", 0, 0), -ENOENT);
	assert_int_equal(put(w->t, "files", "huge", 9 * MIB, 3), -EFBIG);
	do {
		snprintf(name, sizeof(name), "n%u", n++);
		rc = put(w->t, "files", name, 2 * MIB, n);
	} while (rc == 0);
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(n, 10); /* 24 MiB hold nine of them and the five of small */
	/* More than memory has: each is brought again, and is right. */
	for (uint32_t i = 0; i + 1 < n; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(is(w->t, "files", name, 2 * MIB, i + 1), 1);
	}
	assert_int_equal(tier_object_remove(w->t, "files", "n0"), 0);
	assert_int_equal(put(w->t, "files", "more", 2 * MIB, 77), 0);
	assert_int_equal(tier_context_remove(w->t, "small"), 0);
	for (int i = 0; i < 2000 && status(w, "count") != 9; i++)
		usleep(2000);
	assert_int_equal(status(w, "count"), 9);
	assert_int_equal(put(w->t, "files", "more2", 4 * MIB, 78), 0);
	/* What is written and not committed is charged as it comes, and dropped when all is full */
	assert_int_equal(tier_object_create(w->t, "files", "flood", NULL, &o), 0);
	for (uint32_t i = 0; i < 12; i++)
		CHECK(ftruncate(tier_object_fd(o), (i + 1) * MIB) == 0 &&
		      posix_fallocate(tier_object_fd(o), i * MIB, MIB) == 0);
	for (int i = 0; i < 2000 && status(w, "uploads"); i++)
		usleep(2000);
	assert_int_equal(status(w, "uploads"), 0);
	assert_int_equal(tier_object_commit(o), -EFBIG);
}

static void test_what_is_wrong_is_said(void **state)
{
	struct world *w = *state;
	struct tier_object_info info;
	tier_geometry *g;
	tier_context *c;
	char name[300];
	tier_object *o;

	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	assert_int_equal(tier_object_stat(w->t, "files", name, &info), -EINVAL);
	assert_int_equal(tier_object_stat(w->t, "files", "", &info), -EINVAL);
	assert_int_equal(tier_object_stat(w->t, "nope", "x", &info), -ENOENT);
	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(w->t, "blocks", g, NULL, &c), 0);
	assert_int_equal(tier_object_stat(w->t, "blocks", "x", &info), -EINVAL);
	assert_int_equal(tier_object_context(w->t, "blocks", NULL), -ESTALE);
	assert_int_equal(tier_context_create(w->t, "files", g, NULL, &c), -ESTALE);
	assert_int_equal(tier_context_open(w->t, "files", NULL, &c), -EINVAL);
	/* Who seals his upload spoils his own. */
	assert_int_equal(tier_object_create(w->t, "files", "sealed", NULL, &o), 0);
	assert_int_equal(fcntl(tier_object_fd(o), F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_int_equal(tier_object_commit(o), -EPERM);
	/* A writable mapping that stays open: what it holds at the commit counts. */
	assert_int_equal(tier_object_create(w->t, "files", "mapped", NULL, &o), 0);
	CHECK(ftruncate(tier_object_fd(o), 10000) == 0);
	{
		uint8_t *map = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED,
				    tier_object_fd(o), 0);

		fill(map, 10000, 4);
		assert_int_equal(tier_object_commit(o), 0);
		memset(map, 0, 10000);
		assert_int_equal(is(w->t, "files", "mapped", 10000, 4), 1);
		munmap(map, 10000);
	}
	tier_geometry_free(g);
}

/* ---- any message --------------------------------------------------------------------------- */

#define HOSTILE_STEPS 4000u

/* Fields that may mean something, and some that cannot. */
static void make_message(struct rng *rng, struct wire_object *m, uint64_t upload)
{
	static const char *const contexts[] = { "files", "files", "files", "files", "files",
						"files", "files", "nope", "" };
	static const char *const names[] = { "a", "b", "c/d", "a", "b", "" };

	memset(m, 0, sizeof(*m));
	strcpy(m->context, contexts[rng_below(rng, COUNT(contexts))]);
	strcpy(m->name, names[rng_below(rng, COUNT(names))]);
	strcpy(m->other, names[rng_below(rng, COUNT(names))]);
	m->flags = rng_below(rng, 9) ? (uint32_t)(rng_below(rng, 256) & rng_below(rng, 256)) :
				       (uint32_t)rng_next(rng);
	m->upload = rng_below(rng, 3) ? upload : rng_next(rng);
	m->wait_ns = rng_below(rng, 2) ? 0 : rng_next(rng) >> rng_below(rng, 64);
	m->ttl_ms = rng_below(rng, 8) ? 0 : rng_next(rng) >> rng_below(rng, 64);
	m->mode = (uint32_t)rng_below(rng, rng_below(rng, 9) ? 01000 : 02000);
	m->priority = (uint32_t)rng_below(rng, rng_below(rng, 9) ? 4 : 6);
	m->count = (uint32_t)rng_below(rng, 3);
	m->mtime_ns = rng_next(rng);
	if (!rng_below(rng, 50)) /* a byte anywhere behind the header */
		((uint8_t *)m)[16 + rng_below(rng, sizeof(*m) - 16)] = (uint8_t)rng_next(rng);
}

/* What came with an answer: written to, held for a while, closed. */
static void use_descriptors(struct rng *rng, struct client *c, int *held, uint32_t room)
{
	for (int i = 0; i < c->fds; i++) {
		uint32_t k = (uint32_t)rng_below(rng, room);

		if (held[k] >= 0)
			close(held[k]);
		held[k] = c->fd[i];
		if (rng_below(rng, 2) && write(held[k], "some bytes", 10) < 0)
			continue; /* one for reading */
		if (!rng_below(rng, 20))
			fcntl(held[k], F_ADD_SEALS, (int)rng_below(rng, 32));
	}
}

/* Three clients that send whatever comes to mind; the accounts agree whenever one looks. */
static void test_any_message_is_answered(void **state)
{
	struct world *w = *state;
	struct client c[3];
	struct rng rng = { 20 };
	static union answer a;
	uint64_t upload = 0, answered = 0;
	int held[8];

	memset(held, 0xff, sizeof(held));
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(client_open(&c[i], &w->d), 0);
	for (uint32_t i = 0; i < HOSTILE_STEPS; i++) {
		struct client *k = &c[rng_below(&rng, 3)];
		uint16_t type = (uint16_t)(WIRE_OBJ_OPEN + rng_below(&rng, 10));
		struct wire_object m;
		ssize_t n;

		make_message(&rng, &m, upload);
		n = client_ask(k, &m, type, sizeof(m), &a);
		answered += n > 0 && a.header.type != WIRE_ERROR;
		if (n > 0 && a.header.type == WIRE_OBJ_INFO) {
			upload = ((struct wire_object_info *)&a)->upload;
		}
		assert_true(n != -ETIMEDOUT);
		use_descriptors(&rng, k, held, COUNT(held));
		if (n > 0 && rng_below(&rng, 200))
			continue;
		client_close(k); /* it was sent away, or goes */
		assert_int_equal(client_open(k, &w->d), 0);
		daemon_check(&w->d);
	}
	for (uint32_t i = 0; i < 3; i++)
		client_close(&c[i]);
	for (uint32_t i = 0; i < COUNT(held); i++)
		if (held[i] >= 0)
			close(held[i]);
	for (int i = 0; i < 3000 && (status(w, "uploads") || status(w, "cxl_held")); i++)
		usleep(2000);
	assert_int_equal(status(w, "uploads"), 0);
	assert_int_equal(status(w, "cxl_held"), 0);
	print_message("# %llu of %u messages did something\n", (unsigned long long)answered,
		      HOSTILE_STEPS);
	assert_true(answered > HOSTILE_STEPS / 20);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_an_object_is_what_was_put),
		T(test_nothing_is_seen_before_its_commit),
		T(test_an_open_version_stays_and_is_held),
		T(test_names_are_listed_renamed_and_lapse),
		T(test_limits_are_kept),
		T(test_what_is_wrong_is_said),
		T(test_any_message_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
