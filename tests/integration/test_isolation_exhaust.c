/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks that take instead of look: connections, contexts, descriptors, staging, pins, leases,
 * requests, memory; each up to its limit, and held. And a process that outlives its parent. The
 * victim must find room for what it does all the time.
 */
#include "tests/integration/isolation.h"

#define HOLD_US 300000 /* how long what was taken is held */

/* ---- connections ----------------------------------------------------------------------------- */

static void by_connections(struct isolation *w)
{
	static struct client c[128];
	uint32_t got = 0;
	int rc = 0;

	while (got < COUNT(c) && (rc = client_open(&c[got], &w->d)) == 0)
		got++;
	CHECK(rc == -EUSERS && got == 48); /* three quarters of clients.max */
	for (uint32_t i = 0; i < 200; i++) { /* connections without a word */
		struct client silent;

		CHECK(client_connect(&silent, &w->d) == 0);
	}
	usleep(HOLD_US);
	CHECK(client_nop(&c[0]));
}

static void test_connections(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "connections and silent connections", by_connections);
}

/* ---- contexts and memory --------------------------------------------------------------------- */

/* As many contexts as it may own, each filled until the tiers must evict. */
static void by_contexts(struct isolation *w)
{
	static uint8_t data[32 * ATTACKED_BYTES];
	tier *t = connect_to(&w->d);
	struct tier_context_options o = { .size = sizeof(o) };
	tier_context *c[8];
	tier_key keys[32];
	tier_geometry *g;
	char name[16];
	uint32_t got = 0;
	int rc = 0;

	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	while (got < COUNT(c) && rc == 0) {
		snprintf(name, sizeof(name), "hoard-%u", got);
		rc = tier_context_create(t, name, g, &o, &c[got]);
		got += rc == 0;
	}
	CHECK(rc == -EDQUOT && got == 6); /* user.contexts */
	for (uint32_t n = 0; n < 60; n++) {
		int64_t put;

		for (uint32_t i = 0; i < 32; i++)
			keys[i] = secret_key(20000 + n * 32 + i);
		put = tier_put_copy(c[n % got], keys, 32, data, NULL);
		CHECK(put >= 0 || put == -ENOSPC || put == -ETIMEDOUT || put == -EAGAIN);
	}
	for (uint32_t i = 0; i < got; i++) {
		snprintf(name, sizeof(name), "hoard-%u", i);
		CHECK(tier_context_remove(t, name) == 0);
	}
	tier_close(t);
}

static void test_contexts(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "contexts, filled until tiers evict", by_contexts);
}

/* ---- puts and pins --------------------------------------------------------------------------- */

static void by_puts(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c = create_as(t, "puts", 0600);
	struct tier_put_options o = { .size = sizeof(o),
				      .deadline_ns = time_now_ns() + 3600 * NS_PER_S };
	tier_put *p;
	uint32_t got = 0;
	int rc = 0;

	while (got < 4096 && rc == 0) {
		tier_key key = secret_key(30000 + got);

		rc = tier_put_begin(c, &key, 1, &o, &p);
		got += rc == 0;
	}
	CHECK(rc == -EDQUOT && got == 16); /* client.puts */
	usleep(HOLD_US);
	/* All of it is dropped with us, half written as it is. */
}

static void test_puts_never_committed(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "staging never committed", by_puts);
}

static void by_pins(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_key key = secret_key(0);
	struct tier_found found;
	tier_context *c;
	uint64_t pin;
	uint32_t got = 0;
	int64_t rc = 1;

	CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
	CHECK(tier_match(c, &key, 1, &found) == 1);
	while (got < 65536 && rc >= 0) {
		rc = tier_pin(c, &found.block, 1, TIER_CXL, 0, &pin);
		got += rc >= 0;
	}
	CHECK(rc == -EDQUOT && got == 64); /* client.pins */
	usleep(HOLD_US);
}

static void test_pins_never_released(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "pins never released", by_pins);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The next plan of this user, by connection c. Returns 0 or the refusal. */
static int plan_next(tier_context *c)
{
	tier_key key = secret_key(0);
	struct tier_access access[2] = { { .time_us = 0 } };
	struct tier_found found;
	tier_plan *p;

	CHECK(tier_match(c, &key, 1, &found) == 1);
	access[0].block = access[1].block = found.block;
	return tier_plan_begin(c, access, 2, NULL, &p);
}

/* Two of each connection; and the texts tell whose limit it is. */
static void take_plans(struct isolation *w)
{
	tier_context *c[4];

	for (uint32_t i = 0; i < COUNT(c); i++)
		CHECK(tier_context_open(connect_to(&w->d), "shared", NULL, &c[i]) == 0);
	for (uint32_t i = 0; i < 6; i++)
		CHECK(plan_next(c[i / 2]) == 0);
	CHECK(plan_next(c[2]) == -ENOBUFS);
	CHECK(strstr(tier_error_text(), "this connection has 2"));
	CHECK(plan_next(c[3]) == -ENOBUFS);
	CHECK(strstr(tier_error_text(), "this user has 6 of the 8"));
}

static void beside_plans(struct isolation *w)
{
	tier_context *c;

	CHECK(tier_context_open(connect_to(&w->d), "shared", NULL, &c) == 0);
	CHECK(plan_next(c) == 0);
	CHECK(plan_next(c) == 0);
}

/* What the attacker has taken it keeps as long as another attack, of the reader, lasts. */
static void attack_held(struct isolation *w, void (*take)(struct isolation *), const char *what,
			void (*beside)(struct isolation *))
{
	int told[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(told), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		become(UID_ATTACKER, UID_ATTACKER);
		take(w);
		CHECK(write(told[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	close(told[1]);
	assert_int_equal(read(told[0], &byte, 1), 1); /* it has them all */
	close(told[0]);
	attack_as(w, UID_READER, UID_READER, what, beside);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void test_plans_never_ended(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack_held(w, take_plans, "plans beside another's", beside_plans);
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* All slots of all readers, over whatever it may read, again and again, and none is given back. */
static void by_leases(struct isolation *w)
{
	static struct tier_lease lease[4096];
	tier *t = connect_to(&w->d);
	tier_reader *r[4];
	tier_context *c;
	uint32_t got = 0;

	CHECK(tier_context_open(t, "shared", NULL, &c) == 0);
	for (uint32_t i = 0; i < 4; i++)
		CHECK(tier_reader_open(t, &r[i]) == 0);
	CHECK(tier_reader_open(t, &(tier_reader *){ NULL }) == -EAGAIN);
	for (uint32_t i = 0; i < 4096; i++) {
		tier_key key = secret_key(i % ATTACKED_BLOCKS);
		int rc = tier_lease_key(r[i / 1024], c, &key, i % ATTACKED_PAGES, 0,
					&lease[i]);

		CHECK(rc == 0 || rc == -ENODATA);
		got += rc == 0;
		if (i % 1024 == 1023 && got == i + 1) {
			key = secret_key(0);
			CHECK(tier_lease_key(r[i / 1024], c, &key, 0, 0,
					     &(struct tier_lease){ 0 }) == -EAGAIN);
		}
	}
	CHECK(got > 0);
	usleep(HOLD_US);
}

static void test_leases_never_released(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "leases never released", by_leases);
}

/* ---- slabs in devices ------------------------------------------------------------------------ */

#define LENT_BLOCKS 1600u /* 37 MiB of a tier of 48 */
#define LENT_A_PUT 80u
#define LENT_TRIES 2000u

/* Says that its devices have all slabs of another user's context, and never lets go. */
static void lend_all(struct isolation *w)
{
	struct client c;
	union answer a;
	uint32_t got = 0, id;
	uint64_t bytes;
	int refused = 0;

	CHECK(client_open(&c, &w->d) == 0);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "lent", &a) == 0);
	id = a.info.context_id;
	bytes = a.info.mem_bytes[1];
	for (uint64_t at = 0; at < bytes; at += 2 * MIB) {
		struct wire_slab m = { .context_id = id, .tier = 1, .offset = at };

		CHECK(client_ask(&c, &m, WIRE_SLAB_TAKE, sizeof(m), &a) > 0);
		got += a.header.type == WIRE_SLAB;
		if (a.header.type == WIRE_ERROR && a.error.error != -EAGAIN)
			refused = a.error.error;
	}
	printf("#   %u slabs of %llu MiB (%d)\n", got, (unsigned long long)(bytes / MIB), refused);
	fflush(stdout);
	CHECK(got > 0 && refused == -EDQUOT);
	/* Its index would be charged to its owner, who did not ask for that. */
	CHECK(client_ask(&c, &(struct wire_slab){ .context_id = id, .tier = 2 }, WIRE_SLAB_TAKE,
			 sizeof(struct wire_slab), &a) > 0);
	CHECK(a.header.type == WIRE_ERROR && a.error.error == -EDQUOT);
}

/* In CXL alone. */
static tier_context *create_lent(tier *t, const char *name, uint32_t mode)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = mode };
	tier_geometry *g;
	tier_context *c;

	o.quota[TIER_HBM] = o.quota[TIER_NVME] = TIER_QUOTA_NONE;
	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	CHECK(tier_context_create(t, name, g, &o, &c) == 0);
	tier_geometry_free(g);
	return c;
}

static uint32_t put_lent(tier_context *c)
{
	static uint8_t data[LENT_A_PUT * ATTACKED_BYTES];
	const struct tier_put_options o = { .size = sizeof(o), .flags = TIER_PUT_APART };
	tier_key key[LENT_A_PUT];
	uint32_t put = 0;

	for (uint32_t n = 0; n < LENT_BLOCKS; n += LENT_A_PUT) {
		int64_t rc;

		for (uint32_t i = 0; i < LENT_A_PUT; i++)
			key[i] = secret_key(50000 + n + i);
		rc = tier_put_copy(c, key, LENT_A_PUT, data, &o);
		put += rc > 0 ? (uint32_t)rc : 0;
	}
	return put;
}

/* Blocks of it that are in CXL. */
static uint32_t lent_there(tier_context *c)
{
	struct tier_found found;
	uint32_t there = 0;

	for (uint32_t n = 0; n < LENT_BLOCKS; n++) {
		tier_key key = secret_key(50000 + n);

		there += tier_match(c, &key, 1, &found) == 1 && found.tier == TIER_CXL;
	}
	return there;
}

/* More than half of the tier; what attacks before this one had may have to go first. */
static void make_lent(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	tier_context *c = create_lent(t, "lent", 0644);
	uint32_t there = 0;

	for (uint32_t i = 0; i < LENT_TRIES && there * ATTACKED_BYTES < 32 * MIB; i++) {
		usleep(i ? 10000 : 0);
		put_lent(c);
		there = lent_there(c);
	}
	CHECK(there * ATTACKED_BYTES >= 32 * MIB);
	tier_close(t);
}

/* It goes, and who comes next has at least what no device may keep. */
static void beside_lent(struct isolation *w)
{
	tier *t = connect_to(&w->d);
	uint32_t put, there;
	tier_context *c;

	CHECK(tier_context_remove(t, "lent") == 0);
	c = create_lent(t, "next", 0600);
	put = put_lent(c);
	there = lent_there(c);
	printf("#   %u of %u put beside it, %u are in CXL\n", put, LENT_BLOCKS, there);
	fflush(stdout);
	CHECK(there * ATTACKED_BYTES > 8 * MIB);
	CHECK(tier_context_remove(t, "next") == 0);
}

static void test_slabs_in_devices(void **state)
{
	struct isolation *w = isolation_of(state);

	if (!w)
		return;
	attack_as(w, UID_READER, UID_READER, "a context that all may read", make_lent);
	attack_held(w, lend_all, "slabs that devices keep", beside_lent);
}

/* ---- rings and the socket -------------------------------------------------------------------- */

/* Full rings of eight connections, completions never read. */
static void by_rings(struct isolation *w)
{
	static struct client c[8];
	uint64_t end = time_now_ns() + HOLD_US * NS_PER_US;

	for (uint32_t i = 0; i < COUNT(c); i++)
		CHECK(client_open(&c[i], &w->d) == 0);
	while (time_now_ns() < end)
		for (uint32_t i = 0; i < COUNT(c); i++)
			client_push(&c[i], &(struct abi_sqe){ .op = ABI_OP_NOP });
}

static void test_full_rings(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "full rings, answers never read", by_rings);
}

/* Messages with descriptors, in numbers: the daemon must not keep one. */
static void by_sent_descriptors(struct isolation *w)
{
	char control[CMSG_SPACE(16 * sizeof(int))] = { 0 };
	struct client c;

	for (uint32_t i = 0; i < 100; i++) {
		struct wire_ctx m = { .mode = 0 };
		struct iovec iov = { &m, sizeof(m) };
		struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
				       .msg_controllen = sizeof(control) };
		struct cmsghdr *at = CMSG_FIRSTHDR(&head);
		union answer a;

		if (i % 10 == 0)
			CHECK(client_open(&c, &w->d) == 0);
		at->cmsg_level = SOL_SOCKET;
		at->cmsg_type = SCM_RIGHTS;
		at->cmsg_len = CMSG_LEN(16 * sizeof(int));
		for (int k = 0; k < 16; k++)
			memcpy(CMSG_DATA(at) + (size_t)k * sizeof(int), &c.sock, sizeof(int));
		client_header(&c, &m, WIRE_CTX_OPEN, sizeof(m));
		snprintf(m.name, sizeof(m.name), "private");
		CHECK(sendmsg(c.sock, &head, MSG_NOSIGNAL) == (ssize_t)sizeof(m));
		CHECK(client_receive(&c, &a) > 0);
		CHECK(a.header.type == WIRE_ERROR && a.error.error == -ENOENT && c.fds == 0);
		if (i % 10 == 9)
			client_close(&c);
	}
}

static void test_sent_descriptors(void **state)
{
	struct isolation *w = isolation_of(state);
	int before, after;

	if (!w)
		return;
	before = daemon_fds(&w->d);
	attack(w, "descriptors sent over the socket", by_sent_descriptors);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && (after = daemon_fds(&w->d)) > before; i++)
		usleep(10000);
	assert_true(after <= before);
}

/* ---- holes ----------------------------------------------------------------------------------- */

static uint64_t resident(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Read where a context's memory holds nothing: the kernel allocates, the daemon takes it back. */
static void touch(int fd, uint64_t bytes, uint64_t slack)
{
	uint64_t before = resident(fd), after, sum = 0;
	const uint8_t *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(at != MAP_FAILED);
	for (uint64_t i = 0; i < bytes; i += 4096)
		sum += *(volatile const uint8_t *)(at + i);
	after = resident(fd);
	for (uint32_t i = 0; i < PATIENCE_MS / 10 && resident(fd) > before + slack; i++)
		usleep(10000);
	printf("# %llu bytes were there, %llu after the attack, %llu then (sum %llu)\n",
	       (unsigned long long)before, (unsigned long long)after,
	       (unsigned long long)resident(fd), (unsigned long long)sum);
	fflush(stdout);
	CHECK(resident(fd) <= before + slack);
}

#define OWN_SECRET 900u
#define HOLES (150u << 20)

static void by_holes(struct isolation *w)
{
	const struct tier_part parts[] = {
		{ .name = "one", .kind = TIER_KIND_DENSE, .layers = 1, .groups = 1,
		  .page_bytes = 4096 },
		{ .name = "rest", .kind = TIER_KIND_STATE, .hit_rule = TIER_HIT_LAST,
		  .hit_arg = 1, .layers = 2047, .groups = 1, .page_bytes = 4096 },
	};
	const struct tier_geometry_options wide = { .size = sizeof(wide), .part_count = 2,
						    .part = parts };
	struct tier_context_options o = { .size = sizeof(o), .blocks_max = 500000 };
	tier *t = connect_to(&w->d);
	tier_geometry *g;
	tier_context *own;
	tier_reader *r;
	struct client c;
	union answer a;

	CHECK(client_open(&c, &w->d) == 0);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "shared", &a) == 0);
	touch(c.fd[2], a.info.mem_bytes[1], 4u << 20);
	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	CHECK(tier_context_create(t, "own", g, NULL, &own) == 0);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "own", &a) == 0);
	/* Its own block lies between the holes, and stays. */
	CHECK(tier_reader_open(t, &r) == 0);
	CHECK(put_secret(own, OWN_SECRET) == 1);
	touch(c.fd[2], a.info.mem_bytes[1], 4u << 20);
	for (uint32_t page = 0; page < ATTACKED_PAGES; page++)
		CHECK(read_secret(r, own, OWN_SECRET, page) == 1);
	CHECK(tier_context_remove(t, "own") == 0);
	/* An index for far more pages than there will be: 150 MB of its holes. */
	o.quota[TIER_NVME] = TIER_QUOTA_NONE;
	CHECK(tier_geometry_new(&g, &wide) == 0);
	CHECK(tier_context_create(t, "wide", g, &o, &own) == 0);
	CHECK(ask_context(&c, WIRE_CTX_OPEN, "wide", &a) == 0);
	CHECK(a.info.index_bytes > HOLES);
	touch(c.fd[0], HOLES, 2u << 20);
	CHECK(tier_context_remove(t, "wide") == 0);
	tier_close(t);
}

static void test_holes_are_touched(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "holes of a context's memory touched", by_holes);
}

/* ---- outliving ------------------------------------------------------------------------------- */

/* In the child of a process that has died, with its maps, descriptors and socket. */
static void outlive(struct client *c, int tell)
{
	struct abi_cqe cqe;
	bool served;

	for (uint32_t i = 0; i < PATIENCE_MS && !atomic_load_acquire_u32(&c->region->closed); i++)
		usleep(1000);
	served = client_push(c, &(struct abi_sqe){ .op = ABI_OP_NOP }) &&
		 client_pop(c, &cqe, 300);
	CHECK(write(tell, served ? "y" : "n", 1) == 1);
	_exit(0);
}

static void by_child(struct isolation *w)
{
	int pipes[2];
	char byte;
	pid_t pid;

	CHECK(pipe(pipes) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct client c;

		CHECK(client_open(&c, &w->d) == 0);
		CHECK(client_nop(&c));
		pid = fork();
		if (pid == 0)
			outlive(&c, pipes[1]);
		_exit(pid < 0);
	}
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(read(pipes[0], &byte, 1) == 1);
	CHECK(byte == 'n'); /* the connection ended with the process that had opened it */
}

static void test_a_child_outlives_its_parent(void **state)
{
	struct isolation *w = isolation_of(state);

	if (w)
		attack(w, "a child that outlives its parent", by_child);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_puts_never_committed),
		cmocka_unit_test(test_pins_never_released),
		cmocka_unit_test(test_plans_never_ended),
		cmocka_unit_test(test_leases_never_released),
		cmocka_unit_test(test_slabs_in_devices),
		cmocka_unit_test(test_full_rings),
		cmocka_unit_test(test_sent_descriptors),
		cmocka_unit_test(test_holes_are_touched),
		cmocka_unit_test(test_a_child_outlives_its_parent),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("isolation, exhaust", tests, isolation_setup,
					   isolation_teardown);
}
