/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects as clients see them: put, open, replace, list, rename, remove, limits; what another user
 * may do; what is there after the daemon was killed in the middle of commits.
 */
#include "tests/integration/object_world.h"
#include "tests/lib/users.h"

#define UID_DAEMON 4300u
#define UID_OWNER 4301u
#define UID_OTHER 4302u

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

/* To a program without a standard input 0 is a descriptor as any other. */
static void test_descriptor_0_is_one(void **state)
{
	struct world *w = *state;
	tier_object *o;

	close(STDIN_FILENO);
	assert_int_equal(tier_object_create(w->t, "files", "x", NULL, &o), 0);
	assert_int_equal(tier_object_fd(o), STDIN_FILENO);
	assert_int_equal(write_all(STDIN_FILENO, (const uint8_t *)"half", 4), 0);
	tier_object_abort(o);
	assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO);
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
	struct tier_object_info info;
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
	assert_int_equal(tier_object_stat(w->t, "files", "dir/49", &info), 0);
	assert_true(info.mtime_ns && list[29].mtime_ns == info.mtime_ns);
	assert_int_equal(list[29].flags, TIER_OBJECT_RESIDENT);
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
	int rc, fd;

	assert_int_equal(tier_object_context(w->t, "small", &quota), 0);
	assert_int_equal(put(w->t, "small", "a", 5 * MIB, 1), 0);
	assert_int_equal(put(w->t, "small", "b", 2 * MIB, 2), -EDQUOT);
	assert_int_equal(is(w->t, "small", "b", 0, 0), -ENOENT);
	assert_int_equal(put(w->t, "files", "huge", 9 * MIB, 3), -EFBIG);
	/* Also when a part of it is charged already, beside the five of small. */
	fd = tier_object_open(w->t, "small", "a", 0); /* or they might leave for it */
	assert_true(fd >= 0);
	assert_int_equal(tier_object_create(w->t, "files", "grown", NULL, &o), 0);
	assert_int_equal(posix_fallocate(tier_object_fd(o), 0, 2 * MIB), 0);
	for (int i = 0; i < 2000 && status(w, "cxl_used") < 7 * MIB; i++)
		usleep(2000);
	assert_true(status(w, "cxl_used") >= 7 * MIB);
	assert_int_equal(ftruncate(tier_object_fd(o), 9 * MIB), 0);
	assert_int_equal(tier_object_commit(o), -EFBIG);
	close(fd);
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

/* ---- rot and restarts ---------------------------------------------------------------------- */

static void kill_daemon(struct world *w)
{
	kill(w->d.pid, SIGKILL);
	daemon_wait(&w->d);
	daemon_start(&w->d, settings);
	for (int i = 0; i < 1000 && tier_check(w->t) < 0; i++)
		usleep(2000);
}

/* Bytes that are not those that were written are not given to anybody. */
static void test_rot_is_found(void **state)
{
	struct world *w = *state;
	struct tier_object_info info;
	char path[256];
	int fd;

	assert_int_equal(put(w->t, "files", "good", 100000, 1), 0);
	assert_int_equal(put(w->t, "files", "bad", 100000, 2), 0);
	assert_int_equal(tier_object_stat(w->t, "files", "bad", &info), 0);
	kill_daemon(w);
	snprintf(path, sizeof(path), "%s.objects/%016llx", w->d.store,
		 (unsigned long long)info.version);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	CHECK(pwrite(fd, "rot", 3, 65000) == 3);
	close(fd);
	assert_int_equal(is(w->t, "files", "good", 100000, 1), 1);
	assert_int_equal(is(w->t, "files", "bad", 100000, 2), -ENOENT);
	for (int i = 0; i < 2000 && status(w, "count") != 1; i++)
		usleep(2000);
	assert_int_equal(status(w, "count"), 1);
}

#define CRASH_NAMES 12u
#define KILLS 12u

/* What the writers know, in memory that outlives them: the last seed of each name that was
 * acknowledged, and the one that was under way. */
struct board {
	uint64_t acked[CRASH_NAMES], trying[CRASH_NAMES];
	uint64_t commits;
};

static size_t crash_bytes(uint64_t seed)
{
	return seed * 7919 % 40000;
}

static void __attribute__((noreturn)) write_for_ever(const struct daemon *d, struct board *b,
						     uint32_t first)
{
	struct rng rng = { first + 1 + b->commits };
	char name[16];
	tier *t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	t = connect_to(d);
	for (;;) {
		uint32_t n = first + (uint32_t)rng_below(&rng, CRASH_NAMES / 2) * 2;
		uint64_t seed = b->trying[n] + 1;
		int rc;

		snprintf(name, sizeof(name), "c%u", n);
		atomic_store_release_u64(&b->trying[n], seed);
		rc = put(t, "files", name, crash_bytes(seed), seed << 8 | n);
		if (rc)
			pause(); /* the daemon is dead, and so are we, soon */
		atomic_store_release_u64(&b->acked[n], seed);
		__atomic_fetch_add(&b->commits, 1, __ATOMIC_RELAXED);
	}
}

/* Each name has what was acknowledged last, or what was under way then: whole. */
static void look_at_all(struct world *w, struct board *b)
{
	for (uint32_t n = 0; n < CRASH_NAMES; n++) {
		uint64_t seed = b->trying[n];
		char name[16];
		int rc = 0;

		snprintf(name, sizeof(name), "c%u", n);
		for (; rc != 1 && seed >= b->acked[n] && seed; seed--)
			rc = is(w->t, "files", name, crash_bytes(seed), seed << 8 | n);
		if (rc != 1 && b->acked[n])
			fail_msg("%s: %llu was acknowledged, %llu tried: %d", name,
				 (unsigned long long)b->acked[n],
				 (unsigned long long)b->trying[n], rc);
		b->acked[n] = rc == 1 ? seed + 1 : 0;
	}
}

static void test_kills_lose_nothing_that_was_committed(void **state)
{
	struct world *w = *state;
	struct board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct rng rng = { 3 };
	pid_t writer[2];

	for (uint32_t i = 0; i < KILLS; i++) {
		uint64_t until = b->commits + 1 + rng_below(&rng, 8);

		for (uint32_t k = 0; k < 2; k++) {
			writer[k] = fork();
			assert_true(writer[k] >= 0);
			if (writer[k] == 0)
				write_for_ever(&w->d, b, k);
		}
		while (atomic_load_acquire_u64(&b->commits) < until)
			usleep(1000);
		usleep((useconds_t)rng_below(&rng, 10000));
		kill(w->d.pid, SIGKILL);
		for (uint32_t k = 0; k < 2; k++) {
			kill(writer[k], SIGKILL);
			waitpid(writer[k], NULL, 0);
		}
		kill_daemon(w);
		look_at_all(w, b);
	}
	print_message("# %llu commits over %u kills\n", (unsigned long long)b->commits, KILLS);
	munmap(b, sizeof(*b));
}

/* ---- the catalog --------------------------------------------------------------------------- */

#define RENAMES 9000u
#define KEPT 40u

/* Long: records of 256 bytes. */
static void rename_name(char out[100], uint32_t who, uint32_t k)
{
	snprintf(out, 100, "r%u-%u-%060u", who, k, 0);
}

/* Until the daemon is gone, or for so many times. */
static void __attribute__((noreturn)) rename_for_long(const struct daemon *d, uint32_t who)
{
	char name[2][100];
	tier *t;
	int rc = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	t = connect_to(d);
	rename_name(name[0], who, 0);
	rename_name(name[1], who, 1);
	if (tier_object_rename(t, "files", name[1], name[0], 0) == -ENOENT &&
	    is(t, "files", name[0], 100, who) != 1)
		CHECK(put(t, "files", name[0], 100, who) == 0);
	for (uint32_t i = 0; i < RENAMES / 4 && rc == 0; i++)
		rc = tier_object_rename(t, "files", name[i & 1], name[!(i & 1)], 0);
	_exit(rc ? 1 : 0);
}

/* Whenever it is cut off: each has one of its two names, and what nobody touched is as it was. */
static void look_at_names(struct world *w)
{
	char name[100];

	for (uint32_t i = 0; i < KEPT; i++) {
		snprintf(name, sizeof(name), "kept%u", i);
		assert_int_equal(is(w->t, "files", name, 1000 + i, i), 1);
	}
	for (uint32_t who = 0; who < 4; who++) {
		int found = 0;

		for (uint32_t k = 0; k < 2; k++) {
			rename_name(name, who, k);
			found += is(w->t, "files", name, 100, who) == 1;
		}
		assert_int_equal(found, 1);
	}
	assert_int_equal(status(w, "count"), KEPT + 4);
}

/* It does not grow for ever, and what it says is the same whenever it is written anew. */
static void test_the_catalog_is_written_anew(void **state)
{
	struct world *w = *state;
	uint64_t largest = 0;
	struct stat st;
	char path[256], name[32];
	pid_t pid[4];
	int code;

	snprintf(path, sizeof(path), "%s.objects/catalog", w->d.store);
	for (uint32_t i = 0; i < KEPT; i++) {
		snprintf(name, sizeof(name), "kept%u", i);
		assert_int_equal(put(w->t, "files", name, 1000 + i, i), 0);
	}
	for (uint32_t k = 0; k < 4; k++) {
		pid[k] = fork();
		if (pid[k] == 0)
			rename_for_long(&w->d, k);
	}
	for (uint32_t k = 0; k < 4; k++) {
		while (waitpid(pid[k], &code, WNOHANG) == 0) {
			assert_int_equal(stat(path, &st), 0);
			largest = (uint64_t)st.st_size > largest ? (uint64_t)st.st_size : largest;
			usleep(1000);
		}
		assert_int_equal(code, 0);
	}
	assert_int_equal(stat(path, &st), 0);
	print_message("# %u records: %llu bytes at most, %llu at the end\n", RENAMES,
		      (unsigned long long)largest, (unsigned long long)st.st_size);
	assert_true((uint64_t)st.st_size < RENAMES * 256 / 2);
	kill_daemon(w);
	look_at_names(w);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t k = 0; k < 4; k++) {
			pid[k] = fork();
			if (pid[k] == 0)
				rename_for_long(&w->d, k);
		}
		usleep(300000 + round * 77777);
		kill(w->d.pid, SIGKILL);
		for (uint32_t k = 0; k < 4; k++)
			waitpid(pid[k], NULL, 0);
		kill_daemon(w);
		look_at_names(w);
	}
}

/* ---- another user -------------------------------------------------------------------------- */

static void become(uint32_t uid)
{
	CHECK(setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0);
	prctl(PR_SET_DUMPABLE, 1);
}

static void own(const struct daemon *d, int ready)
{
	struct tier_context_options open_to_all = { .size = sizeof(open_to_all), .mode = 0644 };
	tier_object *o;
	tier *t;

	become(UID_OWNER);
	t = connect_to(d);
	CHECK(tier_object_context(t, "mine", NULL) == 0);
	CHECK(tier_object_context(t, "shown", &open_to_all) == 0);
	CHECK(put(t, "mine", "secret", 5000, 1) == 0 && put(t, "shown", "text", 5000, 2) == 0);
	CHECK(tier_object_create(t, "shown", "begun", NULL, &o) == 0);
	CHECK(write(ready, "x", 1) == 1);
	pause();
	_exit(0);
}

/* A descriptor of an object: nothing of it can be changed, by whatever way. */
static void attack_descriptor(int fd)
{
	char path[40];

	CHECK(write(fd, "x", 1) < 0 && pwrite(fd, "x", 1, 0) < 0);
	CHECK(ftruncate(fd, 0) < 0 && fchmod(fd, 0777) < 0);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(open(path, O_RDWR) < 0 && open(path, O_WRONLY | O_TRUNC) < 0);
	CHECK(truncate(path, 0) < 0);
}

static void attack(const struct daemon *d)
{
	struct tier_object_entry list[8];
	struct tier_object_info info;
	struct wire_object guess = { .context = "shown" };
	struct client c;
	union answer a;
	tier_object *o;
	tier *t;
	int fd;

	become(UID_OTHER);
	t = connect_to(d);
	CHECK(tier_object_stat(t, "mine", "secret", &info) == -ENOENT);
	CHECK(tier_object_open(t, "mine", "secret", 0) == -ENOENT);
	CHECK(tier_object_list(t, "mine", NULL, NULL, list, 8) == -ENOENT);
	CHECK(tier_object_context(t, "mine", NULL) == -EACCES);
	CHECK(tier_object_create(t, "shown", "x", NULL, &o) == -EACCES);
	CHECK(tier_object_remove(t, "shown", "text") == -EACCES);
	CHECK(tier_object_rename(t, "shown", "text", "taxt", 0) == -EACCES);
	CHECK(tier_object_stat(t, "shown", "begun", &info) == -ENOENT);
	CHECK(tier_object_list(t, "shown", NULL, NULL, list, 8) == 1);
	CHECK(is(t, "shown", "text", 5000, 2) == 1);
	fd = tier_object_open(t, "shown", "text", 0);
	CHECK(fd >= 0);
	attack_descriptor(fd);
	CHECK(is(t, "shown", "text", 5000, 2) == 1);
	/* Uploads of others, by their numbers. */
	CHECK(client_open(&c, d) == 0);
	for (guess.upload = 0; guess.upload < 20; guess.upload++) {
		client_ask(&c, &guess, WIRE_OBJ_COMMIT, sizeof(guess), &a);
		CHECK(a.header.type == WIRE_ERROR && a.error.error == -EACCES);
	}
	CHECK(access(d->store, F_OK) == 0 && open(d->store, O_RDONLY) < 0);
	_exit(0);
}

static void test_others_see_and_change_nothing(void **state)
{
	struct world w = { .t = NULL };
	int pipes[2], code = 0;
	pid_t owner, other;
	char byte;

	(void)state;
	if (!users_can_be_others())
		skip();
	daemon_folder(&w.d);
	w.d.uid = UID_DAEMON;
	assert_int_equal(chown(w.d.folder, UID_DAEMON, UID_DAEMON), 0);
	daemon_start(&w.d, settings);
	assert_int_equal(pipe(pipes), 0);
	owner = fork();
	if (owner == 0)
		own(&w.d, pipes[1]);
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	other = fork();
	if (other == 0)
		attack(&w.d);
	assert_int_equal(waitpid(other, &code, 0), other);
	assert_int_equal(code, 0);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	daemon_stop(&w.d);
	nftw(w.d.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_an_object_is_what_was_put, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptor_0_is_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_is_seen_before_its_commit, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_an_open_version_stays_and_is_held, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_names_are_listed_renamed_and_lapse, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_limits_are_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_wrong_is_said, setup, teardown),
		cmocka_unit_test_setup_teardown(test_any_message_is_answered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rot_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kills_lose_nothing_that_was_committed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_the_catalog_is_written_anew, setup, teardown),
		cmocka_unit_test(test_others_see_and_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
