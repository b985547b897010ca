/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects over a daemon's lives and between their users: rot, kills in the middle of commits, the
 * catalog written anew, opens that meet renames and writers that cut.
 */
#include "tests/integration/object_world.h"

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
		for (uint32_t k = 0; k < 2; k++) {
			writer[k] = fork();
			assert_true(writer[k] >= 0);
			if (writer[k] == 0)
				write_for_ever(&w->d, b, k);
		}
		usleep(20000 + (useconds_t)rng_below(&rng, 150000));
		kill(w->d.pid, SIGKILL);
		for (uint32_t k = 0; k < 2; k++) {
			kill(writer[k], SIGKILL);
			waitpid(writer[k], NULL, 0);
		}
		kill_daemon(w);
		look_at_all(w, b);
	}
	print_message("# %llu commits over %u kills\n", (unsigned long long)b->commits, KILLS);
	assert_true(b->commits > KILLS);
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
	tier_object_remove(t, "files", name[1]);
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

/* ---- what comes in between ----------------------------------------------------------------- */

static void question(struct wire_object *q, const char *name, uint32_t flags)
{
	memset(q, 0, sizeof(*q));
	snprintf(q->context, sizeof(q->context), "files");
	snprintf(q->name, sizeof(q->name), "%s", name);
	q->flags = flags;
}

static uint64_t begin_shared(struct client *c, const char *name, int *fd)
{
	static union answer a;
	struct wire_object q;

	question(&q, name, WIRE_OBJ_AT_CLOSE | WIRE_OBJ_SHARED | WIRE_OBJ_COPY);
	assert_true(client_ask(c, &q, WIRE_OBJ_CREATE, sizeof(q), &a) > 0);
	assert_int_equal(a.header.type, WIRE_OBJ_INFO);
	*fd = c->fd[0];
	return ((struct wire_object_info *)&a)->upload;
}

static void close_shared(struct client *c, uint64_t upload)
{
	static union answer a;
	struct wire_object q;

	question(&q, "", WIRE_OBJ_AT_CLOSE);
	q.upload = upload;
	assert_true(client_ask(c, &q, WIRE_OBJ_COMMIT, sizeof(q), &a) > 0);
	assert_int_equal(a.header.type, WIRE_OBJ_INFO);
}

/* An open brings what a rename, whose record is being written, is about to move. */
static void test_an_open_meets_a_rename(void **state)
{
	static const char *const names[2] = { "here", "there" };
	struct wire_object rename, open;
	struct world *w = *state;
	static union answer a;
	struct client c[2];

	assert_int_equal(put(w->t, "files", names[0], 3 * MIB, 1), 0);
	assert_int_equal(put(w->t, "files", "large", 6 * MIB, 2), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(client_open(&c[i], &w->d), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(is(w->t, "files", "large", 6 * MIB, 2), 1); /* it leaves memory */
		question(&rename, names[i & 1], 0);
		snprintf(rename.other, sizeof(rename.other), "%s", names[!(i & 1)]);
		question(&open, names[i & 1], 0);
		client_header(&c[0], &rename, WIRE_OBJ_RENAME, sizeof(rename));
		client_header(&c[1], &open, WIRE_OBJ_OPEN, sizeof(open));
		assert_true(send(c[0].sock, &rename, sizeof(rename), MSG_NOSIGNAL) > 0);
		assert_true(send(c[1].sock, &open, sizeof(open), MSG_NOSIGNAL) > 0);
		assert_true(client_receive(&c[0], &a) > 0);
		assert_int_equal(a.header.type, WIRE_DONE);
		assert_true(client_receive(&c[1], &a) > 0);
		if (a.header.type == WIRE_OBJ_INFO)
			close(c[1].fd[0]);
		else
			assert_int_equal(a.error.error, -ENOENT);
		assert_int_equal(is(w->t, "files", names[!(i & 1)], 3 * MIB, 1), 1);
		for (int k = 0; k < 1000 && status(w, "cxl_held"); k++)
			usleep(2000);
	}
	daemon_check(&w->d);
	for (int i = 0; i < 2; i++)
		client_close(&c[i]);
}

/* A sync looks at what its writer cuts off meanwhile. */
static void test_a_writer_cuts_what_is_synced(void **state)
{
	struct world *w = *state;
	static union answer a;
	struct wire_object q;
	struct client c;
	uint64_t upload;
	pid_t cutter;
	int fd;

	assert_int_equal(client_open(&c, &w->d), 0);
	upload = begin_shared(&c, "cut", &fd);
	assert_int_equal(ftruncate(fd, 2 * MIB), 0);
	close(fd);
	close_shared(&c, upload);
	upload = begin_shared(&c, "cut", &fd);
	cutter = fork();
	if (cutter == 0)
		for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
			CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, 2 * MIB) == 0);
	for (int i = 0; i < 300; i++) {
		question(&q, "", WIRE_OBJ_AT_CLOSE);
		q.upload = upload;
		assert_true(client_ask(&c, &q, WIRE_OBJ_SYNC, sizeof(q), &a) > 0);
	}
	kill(cutter, SIGKILL);
	waitpid(cutter, NULL, 0);
	close(fd);
	client_close(&c);
}

#define STUCK 80u

/* Who keeps open what he has closed holds up nobody else's. */
static void test_what_is_kept_open_holds_up_nobody(void **state)
{
	struct tier_object_info info = { .flags = TIER_OBJECT_PENDING };
	struct world *w = *state;
	int fd[STUCK], last;
	uint64_t upload;
	struct client c;
	char name[16];

	assert_int_equal(client_open(&c, &w->d), 0);
	for (uint32_t i = 0; i < STUCK; i++) {
		snprintf(name, sizeof(name), "stuck%u", i);
		upload = begin_shared(&c, name, &fd[i]);
		close_shared(&c, upload);
	}
	upload = begin_shared(&c, "last", &last);
	close_shared(&c, upload);
	close(last);
	for (int i = 0; i < 1000 && info.flags & TIER_OBJECT_PENDING; i++) {
		usleep(2000);
		assert_int_equal(tier_object_stat(w->t, "files", "last", &info), 0);
	}
	assert_false(info.flags & TIER_OBJECT_PENDING);
	for (uint32_t i = 0; i < STUCK; i++)
		close(fd[i]);
	client_close(&c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_rot_is_found),
		T(test_kills_lose_nothing_that_was_committed),
		T(test_the_catalog_is_written_anew),
		T(test_an_open_meets_a_rename),
		T(test_a_writer_cuts_what_is_synced),
		T(test_what_is_kept_open_holds_up_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
