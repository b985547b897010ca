/* SPDX-License-Identifier: Apache-2.0 */
/* What another user may do to objects: see none, change none. */
#include "tests/integration/object_world.h"
#include "tests/lib/users.h"

#define UID_DAEMON 4300u
#define UID_OWNER 4301u
#define UID_OTHER 4302u

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
		cmocka_unit_test(test_others_see_and_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
