/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that stop, die, fork and lose their socket while they hold things. What a reader holds
 * stays as it is until its process is dead, and not longer; nobody else waits for it.
 */
#include "tests/integration/child.h"
#include "tests/integration/front_client.h"

#include <sys/prctl.h>

#include <tier.h>

#define BLOCK_BYTES (6 * 4096u)
#define HELD 32u     /* blocks that are leased, all pages: 768 KiB */
#define CROWD 900u   /* blocks that push everything else out: 21 MiB into 16 */

struct user {
	tier *t;
	tier_context *c;
	tier_reader *r;
};

struct world {
	struct daemon d;
	struct user own;
	int up[2], down[2]; /* a byte from the child, a byte to it */
	uint32_t next;      /* key */
};

static const char *const settings[] = { "hbm.size=0", "cxl.size=16MiB", "nvme.size=96MiB",
					"put.deadline=1s", NULL };

static void open_user(const struct daemon *d, struct user *u)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = 4u << 20, .readers = 2 };
	tier_geometry *g;

	CHECK(tier_connect(&u->t, &o) == 0);
	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	CHECK(tier_context_create(u->t, "kv", g, NULL, &u->c) == 0);
	CHECK(tier_reader_open(u->t, &u->r) == 0);
	tier_geometry_free(g);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	daemon_folder(&w->d);
	daemon_start(&w->d, settings);
	open_user(&w->d, &w->own);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	tier_close(w->own.t);
	daemon_stop(&w->d);
	daemon_remove(&w->d);
	free(w);
	return 0;
}

static tier_key key_of(uint32_t n)
{
	tier_key key;

	CHECK(tier_key_opaque(&key, &n, sizeof(n), NULL) == 0);
	return key;
}

static uint8_t byte_of(uint32_t n)
{
	return (uint8_t)(n * 13 + 7);
}

static void put(struct user *u, uint32_t first, uint32_t count)
{
	static uint8_t data[HELD * BLOCK_BYTES];
	uint64_t give_up = time_now_ns() + PATIENCE_MS * NS_PER_MS;
	tier_key keys[HELD];

	CHECK(count <= HELD);
	for (uint32_t i = 0; i < count; i++) {
		keys[i] = key_of(first + i);
		memset(data + i * BLOCK_BYTES, byte_of(first + i), BLOCK_BYTES);
	}
	/* A put that serves only later reuse may be dropped while write-back is behind. */
	while (tier_put_copy(u->c, keys, count, data, NULL) != count) {
		CHECK(time_now_ns() < give_up);
		usleep(2000);
	}
}

/* All of it must find room, whoever stands still meanwhile. */
static void crowd(struct world *w)
{
	for (uint32_t i = 0; i < CROWD; i += 30)
		put(&w->own, 100000 + w->next + i, 30); /* which has an end to its patience */
	w->next += CROWD;
}

/* Wherever the blocks are: where write-back is behind, the first may have left again. */
static void lease_all(struct user *u, uint32_t first, struct tier_lease *lease)
{
	for (uint32_t i = 0; i < HELD; i++) {
		tier_key key = key_of(first + i);
		struct tier_found found;
		struct tier_page page[6];

		CHECK(tier_match(u->c, &key, 1, &found) == 1);
		for (uint32_t k = 0; k < 6; k++)
			page[k] = (struct tier_page){ found.block, k };
		CHECK(tier_read_pages(u->r, u->c, page, 6,
				      time_now_ns() + PATIENCE_MS * NS_PER_MS, lease + 6 * i) == 6);
	}
}

static void verify_all(const struct tier_lease *lease, uint32_t first)
{
	for (uint32_t i = 0; i < HELD * 6; i++)
		for (uint32_t k = 0; k < 4096; k++)
			CHECK(((const uint8_t *)lease[i].data)[k] == byte_of(first + i / 6));
}

static void delete_all(struct world *w, uint32_t first)
{
	tier_key keys[HELD];

	for (uint32_t i = 0; i < HELD; i++)
		keys[i] = key_of(first + i);
	assert_int_equal(tier_delete(w->own.c, keys, HELD), HELD);
}

/* A number of the daemon's status, the sum of all members of that name, but for what is told again
 * under an old one. */
static int64_t status(struct world *w, const char *member)
{
	char name[64], *text, *at;
	int64_t sum = 0;

	snprintf(name, sizeof(name), "\"%s\":", member);
	assert_int_equal(tier_admin(w->own.t, "status", NULL, &text), 0);
	at = strstr(text, "\"sessions\"");
	assert_non_null(at);
	memset(at, ' ', strcspn(at, "}"));
	for (at = text; (at = strstr(at, name)); at++)
		sum += atoll(at + strlen(name));
	free(text);
	return sum;
}

static void wait_status(struct world *w, const char *member, int64_t value)
{
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && status(w, member) != value; i++)
		usleep(10000);
	assert_int_equal(status(w, member), value);
}

/* ---- children -------------------------------------------------------------------------------- */

/* Shut down every socket that this process has, as somebody else in it might; or close them. */
static void lose_sockets(bool keep)
{
	for (int fd = 0; fd < 256; fd++) {
		int domain = 0;
		socklen_t len = sizeof(domain);

		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) || domain != AF_UNIX)
			continue;
		if (keep)
			shutdown(fd, SHUT_RDWR);
		else
			close(fd);
	}
}

static pid_t spawn(struct world *w, void (*body)(struct world *w, struct user *u))
{
	struct user u;
	pid_t pid;

	assert_int_equal(pipe(w->up), 0);
	assert_int_equal(pipe(w->down), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	lose_sockets(false); /* the parent's */
	open_user(&w->d, &u);
	body(w, &u);
	_exit(0);
}

static void close_pipes(struct world *w)
{
	close(w->up[0]);
	close(w->up[1]);
	close(w->down[0]);
	close(w->down[1]);
}

/* In the child: the parent does something now. */
static void your_turn(struct world *w)
{
	char byte;

	CHECK(write(w->up[1], "x", 1) == 1);
	CHECK(read(w->down[0], &byte, 1) == 1);
}

static void wait_turn(struct world *w)
{
	struct pollfd p = { .fd = w->up[0], .events = POLLIN };
	char byte;

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(read(w->up[0], &byte, 1), 1);
}

static void go_on(struct world *w)
{
	assert_int_equal(write(w->down[1], "x", 1), 1);
}

static void must_end(struct world *w, pid_t pid)
{
	int code;

	assert_int_equal(waitpid(pid, &code, 0), pid);
	assert_int_equal(code, 0);
	close_pipes(w);
}

static void must_die(struct world *w, pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close_pipes(w);
}

/* ---- stopped --------------------------------------------------------------------------------- */

static void hold_leases(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];

	lease_all(u, 0, lease);
	your_turn(w);
	verify_all(lease, 0);
	tier_release_many(u->r, lease, HELD * 6);
	CHECK(tier_check(u->t) == 0);
	put(u, 5000, 1);
	tier_close(u->t);
}

static void test_a_stopped_client_stops_nobody(void **state)
{
	struct world *w = *state;
	pid_t pid;

	put(&w->own, 0, HELD);
	pid = spawn(w, hold_leases);
	wait_turn(w);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	delete_all(w, 0);
	for (uint32_t i = 0; i < 3; i++) {
		crowd(w);
		usleep(700000);
	}
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	assert_int_equal(kill(pid, SIGCONT), 0);
	go_on(w);
	must_end(w, pid);
	wait_status(w, "quarantined", 0);
}

static void evict_all(struct world *w)
{
	char *reply;

	assert_int_equal(tier_admin(w->own.t, "evict", "{\"context\":\"kv\",\"tier\":\"cxl\"}",
				    &reply), 0);
	free(reply);
}

/* What it reads leaves and comes back to others, to other places, while it stands still. */
static void test_a_stopped_reader_keeps_no_page_from_others(void **state)
{
	static struct tier_lease lease[HELD * 6];
	struct world *w = *state;
	pid_t pid;

	put(&w->own, 0, HELD);
	wait_status(w, "dirty", 0);
	pid = spawn(w, hold_leases);
	wait_turn(w);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	for (uint32_t i = 0; i < PATIENCE_MS / 10; i++) {
		evict_all(w); /* what the daemon was busy with stays for once */
		if (status(w, "quarantined") == HELD * BLOCK_BYTES)
			break;
		usleep(10000);
	}
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	lease_all(&w->own, 0, lease);
	verify_all(lease, 0);
	tier_release_many(w->own.r, lease, HELD * 6);
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	assert_int_equal(kill(pid, SIGCONT), 0);
	go_on(w);
	must_end(w, pid);
	wait_status(w, "quarantined", 0);
	delete_all(w, 0);
}

/* Past every deadline: minutes in `make crash-long`, by this variable. */
static uint32_t stop_seconds(void)
{
	const char *text = getenv("TIER_STOP_SECONDS");

	return text ? (uint32_t)atoi(text) : 4;
}

#define ASKED 40u

/* What was asked for before it stood still has its answers, all of them, and no more. */
static void stand_still(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];
	struct tier_completion done[ASKED + 1];
	struct tier_found found;
	tier_key key = key_of(0), new = key_of(7500);
	uint64_t pin;
	tier_put *p;
	int n;

	lease_all(u, 0, lease);
	CHECK(tier_match(u->c, &key, 1, &found) == 1);
	CHECK(tier_pin(u->c, &found.block, 1, TIER_CXL, 0, &pin) == 1);
	CHECK(tier_put_begin(u->c, &new, 1, NULL, &p) == 0);
	for (uint32_t i = 0; i < ASKED; i++)
		CHECK(tier_fetch_start(u->c, &found.block, 1, NULL) == 0);
	your_turn(w);
	verify_all(lease, 0);
	tier_release_many(u->r, lease, HELD * 6);
	n = tier_wait(u->t, done, ASKED, ASKED + 1, PATIENCE_MS * NS_PER_MS);
	CHECK(n == ASKED);
	/* Its put has run out: it says so, and nothing of it is seen. */
	CHECK(tier_put_commit(p, 7) == 0);
	CHECK(tier_wait(u->t, done, 1, 1, PATIENCE_MS * NS_PER_MS) == 1);
	CHECK(done[0].user_data == 7 && done[0].result < 0);
	CHECK(tier_match(u->c, &new, 1, NULL) == 0);
	CHECK(tier_check(u->t) == 0);
	put(u, 7500, 1);
	tier_close(u->t);
}

static void test_stopped_past_all_deadlines(void **state)
{
	struct world *w = *state;
	uint64_t end = time_now_ns() + stop_seconds() * NS_PER_S;
	pid_t pid;

	put(&w->own, 0, HELD);
	pid = spawn(w, stand_still);
	wait_turn(w);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	delete_all(w, 0);
	for (crowd(w); time_now_ns() < end; crowd(w))
		usleep(500000);
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	assert_int_equal(kill(pid, SIGCONT), 0);
	go_on(w);
	must_end(w, pid);
	wait_status(w, "quarantined", 0);
	wait_status(w, "pins", 0);
}

/* ---- killed ---------------------------------------------------------------------------------- */

static void hold_everything(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];
	struct tier_found found;
	tier_key key = key_of(0), new;
	uint64_t pin;
	tier_put *p;

	lease_all(u, 0, lease);
	CHECK(tier_match(u->c, &key, 1, &found) == 1);
	for (uint32_t i = 0; i < 20; i++) {
		CHECK(tier_pin(u->c, &found.block, 1, TIER_CXL, 0, &pin) == 1);
		new = key_of(7000 + i);
		CHECK(tier_put_begin(u->c, &new, 1, NULL, &p) == 0);
		memset(tier_put_data(p, 0, 0, 0, 0), 0xee, 4096);
		CHECK(tier_fetch_start(u->c, &found.block, 1, NULL) == 0);
	}
	your_turn(w);
}

static void test_a_killed_client_leaves_nothing(void **state)
{
	struct world *w = *state;
	tier_key key = key_of(7003);
	struct tier_lease lease;
	pid_t pid;

	put(&w->own, 0, HELD);
	pid = spawn(w, hold_everything);
	wait_turn(w);
	delete_all(w, 0);
	assert_true(status(w, "pins") > 0);
	must_die(w, pid);
	wait_status(w, "quarantined", 0);
	wait_status(w, "pins", 0);
	wait_status(w, "open", 1);
	wait_status(w, "ended", 0);
	/* Its half-written blocks are free for others, with others' bytes. */
	assert_int_equal(tier_match(w->own.c, &key, 1, NULL), 0);
	put(&w->own, 7000, 20);
	assert_int_equal(tier_lease_key(w->own.r, w->own.c, &key, 0, 0, &lease), 0);
	assert_int_equal(*(const uint8_t *)lease.data, byte_of(7003));
	tier_release(w->own.r, &lease);
}

/* Killed between commit and answer: the block is whole or absent. */
static void commit_and_die(struct world *w, struct user *u)
{
	tier_key key = key_of(8000);
	tier_put *p;

	CHECK(tier_put_begin(u->c, &key, 1, NULL, &p) == 0);
	for (uint32_t i = 0; i < 6; i++)
		memset(i < 4 ? tier_put_data(p, 0, 0, i / 2, i % 2) :
			       tier_put_data(p, 0, 1, i - 4, 0), byte_of(8000), 4096);
	CHECK(write(w->up[1], "x", 1) == 1);
	tier_put_commit(p, 1);
	pause();
}

static void test_killed_in_a_commit(void **state)
{
	struct world *w = *state;
	tier_key key = key_of(8000);
	uint32_t whole = 0;

	for (uint32_t i = 0; i < 30; i++) {
		pid_t pid = spawn(w, commit_and_die);
		struct tier_lease lease;

		wait_turn(w);
		usleep(i * 10);
		must_die(w, pid);
		wait_status(w, "open", 1);
		if (tier_match(w->own.c, &key, 1, NULL) == 0)
			continue;
		whole++;
		for (uint32_t page = 0; page < 6; page++) {
			assert_int_equal(tier_lease_key(w->own.r, w->own.c, &key, page, 0, &lease),
					 0);
			assert_int_equal(((const uint8_t *)lease.data)[4095], byte_of(8000));
			tier_release(w->own.r, &lease);
		}
		assert_int_equal(tier_delete(w->own.c, &key, 1), 1);
	}
	printf("# %u of 30 killed commits were whole, the others absent\n", whole);
}

/* ---- forked ---------------------------------------------------------------------------------- */

/* Every call with an inherited handle says so; what was leased is not the child's any more. */
static void act_as_child(struct user *u)
{
	struct tier_lease lease;
	struct tier_found found;
	tier_key key = key_of(0);
	tier_reader *r;
	uint64_t pin;
	tier_put *p;

	CHECK(tier_match(u->c, &key, 1, &found) == -EOWNERDEAD);
	CHECK(tier_lease_key(u->r, u->c, &key, 0, 0, &lease) == -EOWNERDEAD);
	CHECK(tier_put_begin(u->c, &key, 1, NULL, &p) == -EOWNERDEAD);
	CHECK(tier_fetch(u->c, &(tier_block){ 0, 0 }, 1, NULL) == -EOWNERDEAD);
	CHECK(tier_pin(u->c, &(tier_block){ 0, 0 }, 1, TIER_CXL, 0, &pin) == -EOWNERDEAD);
	CHECK(tier_delete(u->c, &key, 1) == -EOWNERDEAD);
	CHECK(tier_reader_open(u->t, &r) == -EOWNERDEAD);
	CHECK(tier_check(u->t) == -EOWNERDEAD);
}

static void hold_and_fork(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];
	char byte;

	lease_all(u, 0, lease);
	if (fork() == 0) {
		alarm(300); /* nobody waits for it, if the test fails */
		act_as_child(u);
		your_turn(w); /* twice: the parent dies between */
		act_as_child(u);
		CHECK(write(w->up[1], "x", 1) == 1);
		_exit(read(w->down[0], &byte, 1) != 1);
	}
	for (;;)
		pause();
}

static void test_leases_end_with_the_process_not_the_socket(void **state)
{
	struct world *w = *state;
	pid_t pid;

	put(&w->own, 0, HELD);
	pid = spawn(w, hold_and_fork);
	wait_turn(w);
	delete_all(w, 0);
	crowd(w);
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	/* The child keeps socket and descriptors open; only the parent is dead. */
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	wait_status(w, "quarantined", 0);
	wait_status(w, "open", 1);
	go_on(w);
	wait_turn(w);
	go_on(w);
	close_pipes(w);
}

/* ---- the socket ------------------------------------------------------------------------------ */

static void lose_socket(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];
	struct tier_found found;
	tier_key key = key_of(0);
	int rc;

	lease_all(u, 0, lease);
	lose_sockets(true);
	your_turn(w); /* the blocks are deleted, memory is wanted by all */
	verify_all(lease, 0);
	rc = tier_check(u->t);
	CHECK(rc == 1 || rc == -ENOTCONN);
	verify_all(lease, 0);
	tier_release_many(u->r, lease, HELD * 6);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && rc < 0; i++) {
		usleep(10000);
		rc = tier_check(u->t);
	}
	CHECK(rc >= 0);
	CHECK(tier_match(u->c, &key, 1, &found) == 0);
	put(u, 6000, 2);
	tier_close(u->t);
}

static void test_a_socket_is_shut_under_a_reader(void **state)
{
	struct world *w = *state;
	pid_t pid;

	put(&w->own, 0, HELD);
	pid = spawn(w, lose_socket);
	wait_turn(w);
	wait_status(w, "ended", 1);
	delete_all(w, 0);
	crowd(w);
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	go_on(w);
	must_end(w, pid);
	wait_status(w, "quarantined", 0);
	wait_status(w, "ended", 0);
}

/* ---- removed --------------------------------------------------------------------------------- */

static void hold_passing(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];

	CHECK(tier_context_open(u->t, "passing", NULL, &u->c) == 0);
	lease_all(u, 0, lease);
	your_turn(w);
	verify_all(lease, 0);
	tier_release_many(u->r, lease, HELD * 6);
	tier_close(u->t);
}

/* The owner's removal is over when it is durable; a reader keeps its pages, not the owner. */
static void test_removal_waits_for_no_reader(void **state)
{
	struct world *w = *state;
	struct user passing = w->own;
	tier_geometry *g;
	pid_t pid;

	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(w->own.t, "passing", g, NULL, &passing.c), 0);
	put(&passing, 0, HELD);
	pid = spawn(w, hold_passing);
	wait_turn(w);
	assert_int_equal(tier_context_remove(w->own.t, "passing"), 0);
	tier_context_close(passing.c);
	/* The name is free at once, for another life. */
	assert_int_equal(tier_context_create(w->own.t, "passing", g, NULL, &passing.c), 0);
	assert_int_equal(tier_match(passing.c, &(tier_key){ { 0 } }, 1, NULL), 0);
	put(&passing, 500, HELD);
	crowd(w);
	wait_status(w, "quarantined", HELD * BLOCK_BYTES);
	go_on(w);
	must_end(w, pid);
	wait_status(w, "quarantined", 0);
	assert_int_equal(tier_context_remove(w->own.t, "passing"), 0);
	tier_context_close(passing.c);
	tier_geometry_free(g);
}

/* ---- the daemon's end ------------------------------------------------------------------------ */

#define AFTER 50u /* rounds of reads once the daemon has gone */

/* Every page by a copy; what cannot be had is said, never made up. */
static void gather_all(struct user *u, const tier_block *blocks)
{
	static uint8_t data[HELD * BLOCK_BYTES];
	static int32_t error[HELD * 6];
	struct tier_into into = { .dst = data, .error = error };
	struct tier_page page[HELD * 6];

	for (uint32_t i = 0; i < HELD * 6; i++)
		page[i] = (struct tier_page){ blocks[i / 6], i % 6 };
	CHECK(tier_gather(u->r, u->c, page, HELD * 6, &into) >= 0);
	for (uint32_t i = 0; i < HELD * 6; i++)
		for (uint32_t k = 0; k < 4096; k++)
			CHECK(error[i] || data[i * 4096 + k] == byte_of(i / 6));
}

/* Leases and look-ups go on over the last state: before the stop, in it, and after it. */
static void read_over_the_end(struct world *w, struct user *u)
{
	static struct tier_lease lease[HELD * 6];
	struct pollfd gone = { .fd = w->down[0], .events = POLLIN };
	tier_block blocks[HELD];

	lease_all(u, 0, lease);
	for (uint32_t i = 0; i < HELD; i++) {
		tier_key key = key_of(i);
		struct tier_found found;

		CHECK(tier_match(u->c, &key, 1, &found) == 1);
		blocks[i] = found.block;
	}
	CHECK(write(w->up[1], "x", 1) == 1);
	while (poll(&gone, 1, 0) == 0)
		gather_all(u, blocks);
	verify_all(lease, 0);
	for (uint32_t i = 0; i < AFTER; i++)
		gather_all(u, blocks);
	verify_all(lease, 0);
	tier_release_many(u->r, lease, HELD * 6);
	tier_close(u->t);
}

static void test_leases_outlive_the_daemon(void **state)
{
	struct world *w = *state;
	pid_t pid;

	put(&w->own, 0, HELD);
	pid = spawn(w, read_over_the_end);
	wait_turn(w);
	daemon_stop(&w->d);
	go_on(w);
	must_end(w, pid);
	daemon_start(&w->d, settings);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stopped_client_stops_nobody),
		cmocka_unit_test(test_a_stopped_reader_keeps_no_page_from_others),
		cmocka_unit_test(test_stopped_past_all_deadlines),
		cmocka_unit_test(test_a_killed_client_leaves_nothing),
		cmocka_unit_test(test_killed_in_a_commit),
		cmocka_unit_test(test_leases_end_with_the_process_not_the_socket),
		cmocka_unit_test(test_a_socket_is_shut_under_a_reader),
		cmocka_unit_test(test_removal_waits_for_no_reader),
		cmocka_unit_test(test_leases_outlive_the_daemon),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("death", tests, setup, teardown);
}
