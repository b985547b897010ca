/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in memory stays when the daemon's program is started anew, by `tierctl upgrade` or by a
 * service manager that keeps descriptors (here: the test, which speaks its protocol): blocks that
 * were never written, blocks that were, and what somebody reads meanwhile. What is in doubt goes: a
 * list that was taken before, that is rotten, or of another size of the tier.
 */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "libtier/abi/handover.h"
#include "tests/integration/kv_world.h"

#define BLOCKS 300u /* 7 of the 16 MiB */
#define FEW 24u /* fewer than are written at once */
#define OTHERS 1000u /* more than there is room for */
#define KEPT_MAX 64u

static const char *const never_written[] = { "writeback.age=10min", NULL };
static const char *const small[] = { "cxl.size=16MiB", NULL };
static const char *const smaller[] = { "cxl.size=8MiB", NULL };

/* ---- blocks -------------------------------------------------------------------------------- */

/* Blocks [from, from + count), each behind the one before it. */
static void put_blocks(struct world *w, uint32_t from, uint32_t count, uint32_t flags)
{
	uint8_t *data = malloc(64 * BLOCK_BYTES);
	tier_key key[64], parent;

	for (uint32_t at = 0; at < count; at += 64) {
		uint32_t n = count - at < 64 ? count - at : 64;
		struct tier_put_options o = { .size = sizeof(o), .flags = flags, .depth = at,
					      .parent = at ? &parent : NULL, .salt = 5 };

		for (uint32_t i = 0; i < n; i++) {
			key[i] = world_key(from + at + i);
			world_fill(data + i * BLOCK_BYTES, from + at + i);
		}
		assert_int_equal(tier_put_copy(w->c, key, n, data, &o), n);
		parent = key[n - 1];
	}
	free(data);
}

/* So many others, one by one: what is over the dirty limit waits until some were written. */
static void put_others(struct world *w, uint32_t from)
{
	uint8_t *data = malloc(BLOCK_BYTES);

	for (uint32_t i = 0; i < OTHERS; i++) {
		tier_key key = world_key(from + i);
		int64_t rc;

		world_fill(data, from + i);
		while ((rc = tier_put_copy(w->c, &key, 1, data, NULL)) == 0)
			usleep(1000);
		assert_int_equal(rc, 1);
	}
	free(data);
}

static uint32_t count_blocks(struct world *w, uint32_t from, uint32_t count)
{
	tier_key *key = calloc(count, sizeof(*key));
	int64_t found;

	for (uint32_t i = 0; i < count; i++)
		key[i] = world_key(from + i);
	found = tier_match(w->c, key, count, NULL);
	free(key);
	assert_true(found >= 0);
	return (uint32_t)found;
}

/* All of them lie in memory, byte by byte. */
static void check_blocks(struct world *w, uint32_t from, uint32_t count)
{
	uint8_t *want = malloc(BLOCK_BYTES);

	assert_int_equal(count_blocks(w, from, count), count);
	for (uint32_t i = from; i < from + count; i++) {
		tier_key key = world_key(i);

		world_fill(want, i);
		for (uint32_t page = 0; page < BLOCK_PAGES; page++) {
			struct tier_lease lease;

			assert_int_equal(tier_lease_key(w->r, w->c, &key, page, 0, &lease), 0);
			assert_memory_equal(lease.data, want + page * 4096, 4096);
			tier_release(w->r, &lease);
		}
	}
	free(want);
}

/* ---- the daemon ---------------------------------------------------------------------------- */

static json_t *ask(struct world *w, const char *verb)
{
	json_t *answer;
	char *text;

	if (tier_admin(w->t, verb, NULL, &text))
		fail_msg("%s: %s", verb, tier_error_text());
	answer = json_loads(text, 0, NULL);
	free(text);
	assert_non_null(answer);
	return answer;
}

static uint64_t taken(struct world *w, const char *what)
{
	json_t *status = ask(w, "status");
	json_t *one = json_object_get(json_object_get(status, "handover"), what);
	uint64_t value = (uint64_t)json_integer_value(one);

	assert_non_null(one);
	json_decref(status);
	return value;
}

/* Attached to the next daemon. */
static void await(struct world *w)
{
	uint64_t end = time_now_ns() + LONG_NS;

	while (tier_check(w->t) != 1) {
		assert_true(time_now_ns() < end);
		usleep(1000);
	}
}

static void upgrade(struct world *w)
{
	tier_check(w->t);
	json_decref(ask(w, "upgrade"));
	await(w);
}

/* ---- an upgrade ---------------------------------------------------------------------------- */

static void test_what_was_never_written_stays(void **state)
{
	struct world *w = world_begin(never_written);
	pid_t pid = w->d.pid;

	*state = w;
	put_blocks(w, 0, FEW, 0);
	for (uint32_t i = 0; i < 3; i++) {
		upgrade(w);
		assert_int_equal(taken(w, "blocks"), FEW);
		assert_int_equal(taken(w, "dirty"), FEW);
		assert_int_equal(taken(w, "pages"), FEW * BLOCK_PAGES);
		assert_int_equal(taken(w, "refused"), 0);
		check_blocks(w, 0, FEW);
	}
	put_blocks(w, 0, BLOCKS, 0);
	assert_int_equal(kill(pid, 0), 0); /* one process all the time */
	json_decref(ask(w, "drain"));
	upgrade(w);
	assert_int_equal(taken(w, "dirty"), 0); /* recovery found them */
	assert_int_equal(taken(w, "blocks"), BLOCKS);
	check_blocks(w, 0, BLOCKS);
	put_blocks(w, BLOCKS, 10, TIER_PUT_DURABLE);
	daemon_check(&w->d);
}

/* No catalog names them: contexts stay by the list alone, and so do their numbers. */
static void test_without_a_store(void **state)
{
	static const char *const no_store[] = { "nvme.size=0", NULL };
	struct world *w = world_begin(no_store);
	tier_context *second;

	*state = w;
	put_blocks(w, 0, BLOCKS, 0);
	upgrade(w);
	check_blocks(w, 0, BLOCKS);
	assert_int_equal(tier_context_create(w->t, "second", w->g, NULL, &second), 0);
	upgrade(w);
	assert_int_equal(taken(w, "blocks"), BLOCKS);
	check_blocks(w, 0, BLOCKS);
	put_blocks(w, BLOCKS, BLOCKS, 0);
	upgrade(w);
	assert_int_equal(taken(w, "blocks"), 2 * BLOCKS);
	check_blocks(w, BLOCKS, BLOCKS);
}

/* A lease goes on: while it lasts its place is nobody else's, and then it is free. */
static void test_a_lease_outlives_it(void **state)
{
	struct world *w = world_begin(small);
	tier_key key[2] = { world_key(7), world_key(290) };
	struct tier_lease lease[2];
	uint8_t want[2][4096];
	json_t *clients;

	*state = w;
	put_blocks(w, 0, BLOCKS, 0);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(tier_lease_key(w->r, w->c, &key[i], 2, 0, &lease[i]), 0);
		memcpy(want[i], lease[i].data, sizeof(want[i]));
	}
	assert_int_equal(tier_delete(w->c, &key[1], 1), 1); /* a place that no page names */
	upgrade(w);
	check_blocks(w, 0, 290);
	assert_int_equal(tier_delete(w->c, key, 1), 1); /* one that a former client reads */
	for (uint32_t round = 0; round < 2; round++) { /* all of CXL is written anew */
		put_others(w, (round + 1) * 10000);
		assert_memory_equal(lease[0].data, want[0], sizeof(want[0]));
		assert_memory_equal(lease[1].data, want[1], sizeof(want[1]));
		if (round == 0)
			upgrade(w);
	}
	tier_release_many(w->r, lease, 2);
	for (uint32_t i = 0; i < 200; i++) { /* the former connections are over */
		json_t *list;

		clients = ask(w, "clients");
		list = json_object_get(clients, "clients");
		if (json_array_size(list) == 1)
			break;
		json_decref(clients);
		clients = NULL;
		usleep(20000);
	}
	assert_non_null(clients);
	json_decref(clients);
	daemon_check(&w->d);
}

/* ---- a service manager that keeps descriptors ---------------------------------------------- */

static struct {
	int sock;
	char path[200];
	uint32_t count;
	int fd[KEPT_MAX];
	char name[KEPT_MAX][32];
} keeper = { .sock = -1 };

static void keeper_open(const struct daemon *d)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	snprintf(keeper.path, sizeof(keeper.path), "%s/notify", d->folder);
	snprintf(at.sun_path, sizeof(at.sun_path), "%.100s", keeper.path);
	keeper.sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(keeper.sock, (void *)&at, sizeof(at)), 0);
	keeper.count = 0;
}

static void keeper_forget(void)
{
	for (uint32_t i = 0; i < keeper.count; i++)
		close(keeper.fd[i]);
	keeper.count = 0;
}

static void keeper_close(void)
{
	keeper_forget();
	close(keeper.sock);
}

static void keep(const char *text, int fd)
{
	const char *name = strstr(text, "FDNAME=");

	if (strncmp(text, "FDSTORE=1", 9) == 0 && name && keeper.count < KEPT_MAX) {
		snprintf(keeper.name[keeper.count], 32, "%.*s", (int)strcspn(name + 7, "\n"),
			 name + 7);
		keeper.fd[keeper.count++] = fd;
	} else {
		close(fd); /* of a barrier: that is its answer */
	}
}

/* All that the daemon said so far. */
static void keeper_read(void)
{
	char text[512], control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { text, sizeof(text) - 1 };
	struct pollfd ready = { .fd = keeper.sock, .events = POLLIN };

	while (poll(&ready, 1, 0) == 1) {
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				    .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(keeper.sock, &m, MSG_CMSG_CLOEXEC);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		int fd;

		assert_true(n >= 0);
		text[n] = '\0';
		if (!c || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		keep(text, fd);
	}
}

/* Of the child: where to notify, and what was kept, from 3 on. */
static void keeper_gives(void)
{
	char names[KEPT_MAX * 33] = "", number[16];
	int high[KEPT_MAX];

	setenv("NOTIFY_SOCKET", keeper.path, 1);
	for (uint32_t i = 0; i < keeper.count; i++)
		high[i] = fcntl(keeper.fd[i], F_DUPFD_CLOEXEC, 200);
	for (uint32_t i = 0; i < keeper.count; i++) {
		dup2(high[i], 3 + (int)i);
		strcat(strcat(names, i ? ":" : ""), keeper.name[i]);
	}
	if (!keeper.count)
		return;
	snprintf(number, sizeof(number), "%u", keeper.count);
	setenv("LISTEN_FDS", number, 1);
	snprintf(number, sizeof(number), "%d", getpid());
	setenv("LISTEN_PID", number, 1);
	setenv("LISTEN_FDNAMES", names, 1);
}

/* What the daemon says meanwhile is heard. */
static void stop_by(struct world *w, int signal)
{
	int status = 0;

	assert_int_equal(kill(w->d.pid, signal), 0);
	while (waitpid(w->d.pid, &status, WNOHANG) == 0) {
		keeper_read();
		usleep(2000);
	}
	keeper_read();
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void stop(struct world *w)
{
	stop_by(w, SIGTERM);
}

static struct world *kept_world(const char *const *settings)
{
	struct world *w = calloc(1, sizeof(*w));

	daemon_folder(&w->d);
	keeper_open(&w->d);
	w->d.in_child = keeper_gives;
	daemon_start(&w->d, settings);
	keeper_read();
	assert_int_equal(tier_geometry_preset(&w->g, "tiny"), 0);
	world_open(w);
	return w;
}

static int kept_end(void **state)
{
	keeper_close(); /* nobody reads what the last one says */
	return world_end(state);
}

static void test_a_restart_keeps_it(void **state)
{
	struct world *w = kept_world(small);
	tier_key key = world_key(3);
	struct tier_lease lease;
	uint8_t want[4096];

	*state = w;
	put_blocks(w, 0, BLOCKS, 0);
	assert_int_equal(tier_lease_key(w->r, w->c, &key, 1, 0, &lease), 0);
	memcpy(want, lease.data, sizeof(want));
	stop(w);
	assert_int_equal(keeper.count, 6); /* list, memory, index, region, process, socket */
	daemon_start(&w->d, small);
	keeper_forget(); /* as it says when it has them */
	await(w);
	assert_int_equal(taken(w, "blocks"), BLOCKS);
	check_blocks(w, 0, BLOCKS);
	put_others(w, 10000);
	assert_memory_equal(lease.data, want, sizeof(want));
	tier_release(w->r, &lease);
}

struct putter {
	struct world *w;
	atomic_bool stop;
	_Atomic uint32_t done;
	uint32_t failed;
};

static void *put_on(void *arg)
{
	struct putter *p = arg;
	uint8_t *data = malloc(BLOCK_BYTES);

	for (uint32_t i = 0; !atomic_load(&p->stop); i++) {
		tier_key key = world_key(5000 + i % 100);
		int64_t rc;

		world_fill(data, 5000 + i % 100);
		rc = tier_put_copy(p->w->c, &key, 1, data, NULL);
		if (rc != 1)
			print_message("# put %u: %lld, %s\n", i, (long long)rc, tier_error_text());
		p->failed += rc != 1;
		atomic_fetch_add(&p->done, 1);
	}
	free(data);
	return NULL;
}

static void await_puts(struct putter *p)
{
	uint64_t end = time_now_ns() + LONG_NS;
	uint32_t want = atomic_load(&p->done) + 200;

	while (atomic_load(&p->done) < want) {
		assert_true(time_now_ns() < end);
		usleep(1000);
	}
}

/* SIGUSR2, as the unit has it: what is dirty is left, not written, and no call fails meanwhile. */
static void test_a_restart_that_says_so_fails_no_call(void **state)
{
	struct world *w = kept_world(never_written);
	struct putter p = { .w = w };
	pthread_t thread;

	*state = w;
	put_blocks(w, 0, FEW, 0);
	assert_int_equal(pthread_create(&thread, NULL, put_on, &p), 0);
	for (uint32_t i = 0; i < 3; i++) {
		await_puts(&p);
		stop_by(w, SIGUSR2);
		daemon_start(&w->d, never_written);
		keeper_forget();
		await_puts(&p);
		assert_int_equal(taken(w, "blocks"), FEW + 100);
		assert_true(taken(w, "dirty") > 0);
	}
	atomic_store(&p.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(p.failed, 0);
	check_blocks(w, 0, FEW);
	check_blocks(w, 5000, 100);
	daemon_check(&w->d);
}

/* The second one with the same list: the first took it, and was killed. As behind any crash. */
static void test_a_list_counts_once(void **state)
{
	struct world *w = kept_world(small);

	*state = w;
	put_blocks(w, 0, BLOCKS, 0);
	stop(w);
	daemon_start(&w->d, small);
	await(w);
	assert_int_equal(taken(w, "blocks"), BLOCKS);
	assert_int_equal(kill(w->d.pid, SIGKILL), 0);
	daemon_wait(&w->d);
	keeper_read();
	daemon_start(&w->d, small);
	await(w);
	assert_int_equal(taken(w, "blocks"), 0);
	assert_true(daemon_logged(&w->d, "a daemon took it"));
	assert_int_equal(count_blocks(w, 0, BLOCKS), BLOCKS); /* the stop had written them */
}

/* Killed at any moment of its start: the next one serves, and what it serves is right. */
static void test_killed_in_the_middle(void **state)
{
	struct world *w = kept_world(small);

	*state = w;
	put_blocks(w, 0, BLOCKS, 0);
	for (uint32_t i = 0; i < 12; i++) {
		int out;

		stop(w);
		w->d.pid = daemon_spawn(&w->d, small, &out);
		close(out);
		usleep(i * 4000);
		assert_int_equal(kill(w->d.pid, SIGKILL), 0);
		daemon_wait(&w->d);
		keeper_read();
		daemon_start(&w->d, small);
		keeper_forget();
		await(w);
		assert_int_equal(count_blocks(w, 0, BLOCKS), BLOCKS);
		if (taken(w, "blocks"))
			check_blocks(w, 0, BLOCKS);
		daemon_check(&w->d);
	}
}

static void test_what_is_in_doubt_goes(void **state)
{
	struct world *w = kept_world(small);
	struct handover_head *head;
	uint8_t byte;

	*state = w;
	put_blocks(w, 0, BLOCKS, 0);
	stop(w);
	daemon_start(&w->d, smaller); /* which also says how much it took */
	keeper_forget();
	await(w);
	assert_int_equal(taken(w, "blocks"), 0);
	assert_int_equal(count_blocks(w, 0, BLOCKS), BLOCKS);
	stop(w);
	head = mmap(NULL, sizeof(*head), PROT_READ | PROT_WRITE, MAP_SHARED, keeper.fd[0], 0);
	assert_true(head != MAP_FAILED);
	assert_true(head->magic == HANDOVER_MAGIC && head->contexts == 1 && !head->taken);
	assert_int_equal(pread(keeper.fd[0], &byte, 1, (off_t)head->bytes - 1), 1);
	byte ^= 1;
	assert_int_equal(pwrite(keeper.fd[0], &byte, 1, (off_t)head->bytes - 1), 1);
	munmap(head, sizeof(*head));
	daemon_start(&w->d, small);
	keeper_forget();
	await(w);
	assert_int_equal(taken(w, "blocks"), 0);
	assert_true(daemon_logged(&w->d, "its sum is wrong"));
	assert_int_equal(count_blocks(w, 0, BLOCKS), BLOCKS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_what_was_never_written_stays, world_end),
		cmocka_unit_test_teardown(test_without_a_store, world_end),
		cmocka_unit_test_teardown(test_a_lease_outlives_it, world_end),
		cmocka_unit_test_teardown(test_a_restart_keeps_it, kept_end),
		cmocka_unit_test_teardown(test_a_restart_that_says_so_fails_no_call, kept_end),
		cmocka_unit_test_teardown(test_a_list_counts_once, kept_end),
		cmocka_unit_test_teardown(test_killed_in_the_middle, kept_end),
		cmocka_unit_test_teardown(test_what_is_in_doubt_goes, kept_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
