/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in between: opens, renames, writers that cut, and who keeps open what he closed. */
#include "tests/integration/object_world.h"

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

static uint64_t begin_with(struct client *c, uint32_t bytes, uint64_t seed)
{
	uint8_t *data = malloc(bytes);
	static union answer a;
	struct wire_object q;

	question(&q, "quick", WIRE_OBJ_AT_CLOSE);
	assert_true(client_ask(c, &q, WIRE_OBJ_CREATE, sizeof(q), &a) > 0);
	assert_int_equal(a.header.type, WIRE_OBJ_INFO);
	fill(data, bytes, seed);
	assert_int_equal(write_all(c->fd[0], data, bytes), 0);
	close(c->fd[0]);
	free(data);
	return ((struct wire_object_info *)&a)->upload;
}

/* The other one's answer says that the daemon has taken this message, too. */
static void send_commit(struct client *c, uint64_t upload, struct client *other)
{
	struct wire_object q;
	static union answer a;

	question(&q, "", WIRE_OBJ_AT_CLOSE);
	q.upload = upload;
	client_header(c, &q, WIRE_OBJ_COMMIT, sizeof(q));
	assert_true(send(c->sock, &q, sizeof(q), MSG_NOSIGNAL) > 0);
	question(&q, "none", 0);
	assert_true(client_ask(other, &q, WIRE_OBJ_STAT, sizeof(q), &a) > 0);
	assert_int_equal(a.header.type, WIRE_ERROR);
}

/*
 * A commit that takes long was begun, by somebody who may be dead before it ends: what others begin
 * behind it, a commit that is quicker or a removal, is not undone by it.
 */
static void test_who_is_late_undoes_nothing(void **state)
{
	struct world *w = *state;
	static union answer a;
	struct wire_object q;
	struct client c[2];
	uint64_t large, small;

	for (int i = 0; i < 2; i++)
		assert_int_equal(client_open(&c[i], &w->d), 0);
	for (int i = 0; i < 6; i++) {
		large = begin_with(&c[0], 3 * MIB, 1);
		small = begin_with(&c[1], 8, 2);
		send_commit(&c[0], large, &c[1]);
		close_shared(&c[1], small);
		assert_true(client_receive(&c[0], &a) > 0);
		assert_int_equal(a.header.type, WIRE_OBJ_INFO);
		assert_int_equal(is(w->t, "files", "quick", 8, 2), 1);
		large = begin_with(&c[0], 3 * MIB, 3);
		send_commit(&c[0], large, &c[1]);
		question(&q, "quick", 0);
		assert_true(client_ask(&c[1], &q, WIRE_OBJ_REMOVE, sizeof(q), &a) > 0);
		assert_int_equal(a.header.type, WIRE_DONE);
		assert_true(client_receive(&c[0], &a) > 0);
		assert_int_equal(a.header.type, WIRE_OBJ_INFO);
		assert_int_equal(tier_object_open(w->t, "files", "quick", 0), -ENOENT);
	}
	daemon_check(&w->d);
	for (int i = 0; i < 2; i++)
		client_close(&c[i]);
}

/* In a child: it writes in place what nobody sees yet, asks for a sync, and is killed. */
static void die_in_sync(const struct daemon *d)
{
	struct wire_object q;
	struct client c;
	uint64_t upload;
	int fd;

	CHECK(client_open(&c, d) == 0);
	upload = begin_shared(&c, "left", &fd);
	CHECK(ftruncate(fd, 3 * MIB) == 0);
	question(&q, "", WIRE_OBJ_AT_CLOSE);
	q.upload = upload;
	client_header(&c, &q, WIRE_OBJ_SYNC, sizeof(q));
	CHECK(send(c.sock, &q, sizeof(q), MSG_NOSIGNAL) > 0);
	kill(getpid(), SIGKILL);
}

/* What a dead writer had open alone is seen by nobody, though it was busy when he died. */
static void test_what_a_dead_writer_left(void **state)
{
	struct world *w = *state;
	static union answer a;
	struct wire_object q;
	struct client c;
	pid_t child;

	assert_int_equal(client_open(&c, &w->d), 0);
	for (int i = 0; i < 4; i++) {
		child = fork();
		if (child == 0)
			die_in_sync(&w->d);
		assert_int_equal(waitpid(child, NULL, 0), child);
		assert_int_equal(put(w->t, "files", "left", 8, 2), 0);
		question(&q, "left", WIRE_OBJ_SHARED);
		assert_true(client_ask(&c, &q, WIRE_OBJ_OPEN, sizeof(q), &a) > 0);
		assert_int_equal(a.header.type, WIRE_OBJ_INFO);
		close(c.fd[0]);
		assert_int_equal(((struct wire_object_info *)&a)->size, 8);
	}
	client_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_an_open_meets_a_rename, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_writer_cuts_what_is_synced, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_is_late_undoes_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_a_dead_writer_left, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_kept_open_holds_up_nobody, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
