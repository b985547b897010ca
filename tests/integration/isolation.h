/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three real users: the daemon as a service under a uid of its own, a victim that stores and reads
 * all the time and verifies what it reads, and an attacker. Each attack says what it got; after
 * each the victim must have noticed nothing: every read right, none refused, and still going on.
 * Where we cannot become these users the tests skip.
 */
#ifndef TIER_TESTS_ISOLATION_H
#define TIER_TESTS_ISOLATION_H

#include <poll.h>
#include <sys/prctl.h>

#include "tests/integration/child.h"
#include "tests/integration/tierctl_json.h"
#include "tests/lib/own_memory.h"
#include "tests/lib/users.h"

#include <tier.h>

#define UID_DAEMON 4300u
#define UID_VICTIM 4301u
#define UID_ATTACKER 4302u
#define UID_READER 4303u /* in the victim's group */
#define ATTACKED_PAGES 6u
#define ATTACKED_BLOCKS 48u
#define ATTACKED_BYTES (ATTACKED_PAGES * 4096u)

/* What the victim tells, in memory that only these tests share. */
struct victim_board {
	uint64_t stop, ready;
	uint64_t reads, puts, wrong, refused;
	int64_t refused_by; /* the last error */
	uint64_t slowest_ns;
	int32_t pid;
	/* secrets that an attacker may know and that must be of no use */
	uint64_t pin;
	tier_block block;
};

struct isolation {
	struct daemon d;
	const char *const *settings; /* that it was started with */
	struct victim_board *board;
	pid_t victim;
};

/* Become that user for good, as a login would: no groups, and a /proc of one's own. */
HELPER void become(uint32_t uid, uint32_t gid)
{
	CHECK(setgroups(0, NULL) == 0);
	CHECK(setgid(gid) == 0 && setuid(uid) == 0);
	CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGSEGV, SIG_DFL); /* cmocka's handler is the parent's */
	signal(SIGBUS, SIG_DFL);
}

HELPER tier_key secret_key(uint32_t n)
{
	tier_key key;

	CHECK(tier_key_opaque(&key, &n, sizeof(n), NULL) == 0);
	return key;
}

HELPER uint8_t secret_byte(uint32_t n, uint32_t page)
{
	return (uint8_t)(0x80 | (n * 5 + page * 11));
}

HELPER tier *connect_to(const struct daemon *d)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = d->socket,
					  .staging_bytes = 4u << 20, .readers = 4 };
	tier *t;

	CHECK(tier_connect(&t, &o) == 0);
	return t;
}

HELPER tier_context *create_as(tier *t, const char *name, uint32_t mode)
{
	struct tier_context_options o = { .size = sizeof(o), .mode = mode };
	tier_geometry *g;
	tier_context *c;

	CHECK(tier_geometry_preset(&g, "tiny") == 0);
	CHECK(tier_context_create(t, name, g, &o, &c) == 0);
	tier_geometry_free(g);
	return c;
}

/* Durable where it must stay: what only serves later reuse may make way for others. */
HELPER int64_t put_secret_as(tier_context *c, uint32_t n, uint32_t flags)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = flags };
	static uint8_t data[ATTACKED_BYTES];
	tier_key key = secret_key(n);

	for (uint32_t page = 0; page < ATTACKED_PAGES; page++)
		memset(data + page * 4096, secret_byte(n, page), 4096);
	return tier_put_copy(c, &key, 1, data, &o);
}

HELPER int64_t put_secret(tier_context *c, uint32_t n)
{
	return put_secret_as(c, n, 0);
}

/* 1 = read and right, 0 = wrong bytes, or the error. */
HELPER int64_t read_secret(tier_reader *r, tier_context *c, uint32_t n, uint32_t page)
{
	struct tier_page at = { .page = page };
	tier_key key = secret_key(n);
	struct tier_lease lease;
	struct tier_found found;
	int64_t good = 1;
	int rc;

	if (tier_match(c, &key, 1, &found) != 1)
		return -ENOENT;
	at.block = found.block;
	rc = tier_read_pages(r, c, &at, 1, time_now_ns() + 60 * NS_PER_S, &lease);
	if (rc != 1)
		return rc < 0 ? rc : lease.error;
	for (uint32_t i = 0; i < 4096; i++)
		good &= ((const uint8_t *)lease.data)[i] == secret_byte(n, page);
	tier_release(r, &lease);
	return good;
}

/* ---- the victim ------------------------------------------------------------------------------ */

HELPER void note(struct victim_board *b, int64_t rc, uint64_t since_ns)
{
	uint64_t took = time_now_ns() - since_ns;

	b->wrong += rc == 0;
	if (rc < 0) {
		b->refused++;
		b->refused_by = rc;
	}
	if (took > b->slowest_ns)
		b->slowest_ns = took;
}

HELPER void victim_prepare(struct isolation *w, tier *t, tier_context *c)
{
	tier_context *shared = create_as(t, "shared", 0644);
	tier_key key = secret_key(0);
	struct tier_found found;
	tier_put *p;

	for (uint32_t n = 0; n < ATTACKED_BLOCKS; n++) {
		CHECK(put_secret_as(c, n, TIER_PUT_DURABLE) == 1);
		CHECK(put_secret_as(shared, n, TIER_PUT_DURABLE) == 1);
	}
	tier_context_close(create_as(t, "group", 0640));
	CHECK(tier_match(c, &key, 1, &found) == 1);
	w->board->block = found.block;
	CHECK(tier_pin(c, &found.block, 1, TIER_CXL, 0, &w->board->pin) == 1);
	key = secret_key(9999);
	CHECK(tier_put_begin(c, &key, 1, &(struct tier_put_options){
			.size = sizeof(struct tier_put_options),
			.deadline_ns = time_now_ns() + 600 * NS_PER_S }, &p) == 0);
}

HELPER void __attribute__((noreturn)) victim_run(struct isolation *w)
{
	struct victim_board *b = w->board;
	uint32_t random = 1;
	tier_context *c;
	tier_reader *r;
	tier *t;

	become(UID_VICTIM, UID_VICTIM);
	t = connect_to(&w->d);
	c = create_as(t, "private", 0600);
	CHECK(tier_reader_open(t, &r) == 0);
	victim_prepare(w, t, c);
	b->pid = getpid();
	atomic_store_release_u64(&b->ready, 1);
	while (!atomic_load_acquire_u64(&b->stop)) {
		uint64_t begun = time_now_ns();
		int64_t rc;

		random = random * 1664525 + 1013904223;
		rc = read_secret(r, c, random >> 8 & 31, (random >> 16) % ATTACKED_PAGES);
		note(b, rc, begun);
		atomic_store_release_u64(&b->reads, b->reads + 1);
		if (random >> 24 == 7) { /* now and then it writes, and looks at it */
			uint32_t n = 1000 + (random >> 8) % 64;

			begun = time_now_ns();
			rc = put_secret(c, n);
			note(b, rc == 1 ? 1 : rc < 0 ? rc : -EIO, begun);
			b->puts++;
		}
		if (random >> 24 < 64)
			usleep(50);
	}
	/* What was pinned is still, what was begun still is. */
	CHECK(tier_unpin(c, b->pin) == 0);
	tier_close(t);
	_exit(0);
}

/* ---- the world ------------------------------------------------------------------------------- */

HELPER int isolation_begin(void **state, const char *const *settings)
{
	struct isolation *w;

	*state = NULL;
	if (!users_can_be_others())
		return 0;
	w = calloc(1, sizeof(*w));
	daemon_folder(&w->d);
	w->d.uid = UID_DAEMON;
	assert_int_equal(chown(w->d.folder, UID_DAEMON, UID_DAEMON), 0);
	w->settings = settings;
	daemon_start(&w->d, settings);
	w->board = mmap(NULL, sizeof(*w->board), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(w->board != MAP_FAILED);
	w->victim = fork();
	if (w->victim == 0)
		victim_run(w);
	for (uint32_t i = 0; i < PATIENCE_MS && !atomic_load_acquire_u64(&w->board->ready); i++)
		usleep(1000);
	assert_int_equal(atomic_load_acquire_u64(&w->board->ready), 1);
	*state = w;
	return 0;
}

HELPER int isolation_setup(void **state)
{
	static const char *const settings[] = { "clients.max=64", "hbm.size=8MiB",
						"user.contexts=6", "cxl.size=48MiB",
						"put.deadline=600s", "client.pins=64",
						"client.puts=16", NULL };

	return isolation_begin(state, settings);
}

HELPER int isolation_teardown(void **state)
{
	struct isolation *w = *state;
	int status;

	if (!w)
		return 0;
	atomic_store_release_u64(&w->board->stop, 1);
	assert_int_equal(waitpid(w->victim, &status, 0), w->victim);
	assert_int_equal(status, 0);
	daemon_stop(&w->d);
	daemon_remove(&w->d);
	free(w);
	return 0;
}

/* The world, or NULL when the test was skipped. */
HELPER struct isolation *isolation_of(void **state)
{
	if (!*state) {
		print_message("we cannot become the daemon's, a victim's and an attacker's "
			      "user\n");
		skip();
	}
	return *state;
}

/* The daemon's own memory is no more than its accounts allow, and these keep to their limit. */
HELPER void below_the_sum(const struct daemon *d, const char *when)
{
	json_t *status = tierctl_json(d, "status");
	uint64_t own = own_memory(d->pid), most = number_in(status, "memory.most");
	uint64_t tables = number_in(status, "memory.tables");

	printf("# %s: the daemon's own memory %llu MiB, its accounts allow %llu MiB; tables %llu "
	       "KiB\n", when, (unsigned long long)(own / MIB), (unsigned long long)(most / MIB),
	       (unsigned long long)(tables >> 10));
	fflush(stdout);
	assert_true(most > 0);
	assert_true(tables <= number_in(status, "memory.tables_most"));
	json_decref(status);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(own <= most);
#endif
}

/* Until the attack is over, or its process has ended before that. */
HELPER bool attack_is_over(pid_t pid, int done)
{
	struct pollfd p = { .fd = done, .events = POLLIN };
	siginfo_t dead = { .si_pid = 0 };

	while (poll(&p, 1, 10) == 0)
		if (waitid(P_PID, (id_t)pid, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    dead.si_pid == pid)
			return false;
	return p.revents & POLLIN;
}

/* Run an attack as that user beside the victim, for its length and a moment more. */
HELPER void attack_as(struct isolation *w, uint32_t uid, uint32_t gid, const char *name,
		      void (*body)(struct isolation *w))
{
	struct victim_board *b = w->board, before;
	uint64_t begun = time_now_ns(), reads;
	int status, done[2], seen[2];
	pid_t pid;

	b->slowest_ns = 0;
	before = *b;
	assert_int_equal(pipe2(done, O_CLOEXEC) | pipe2(seen, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(seen[1]);
		become(uid, gid);
		body(w);
		CHECK(write(done[1], "", 1) == 1);
		(void)!read(seen[0], &status, 1); /* all that it has is still there */
		_exit(0);
	}
	if (attack_is_over(pid, done[0]))
		below_the_sum(&w->d, name);
	for (uint32_t i = 0; i < 2; i++) {
		close(done[i]);
		close(seen[i]);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	usleep(50000);
	/* On a crowded machine its turn comes later. */
	for (uint32_t i = 0; i < PATIENCE_MS && atomic_load_acquire_u64(&b->reads) == before.reads;
	     i++)
		usleep(1000);
	reads = atomic_load_acquire_u64(&b->reads) - before.reads;
	printf("# %s: victim: %llu reads (%.0f/s), %llu puts, %llu wrong, %llu refused (%lld), "
	       "slowest %.1f ms\n", name, (unsigned long long)reads,
	       (double)reads * 1e9 / (double)(time_now_ns() - begun),
	       (unsigned long long)(b->puts - before.puts),
	       (unsigned long long)(b->wrong - before.wrong),
	       (unsigned long long)(b->refused - before.refused), (long long)b->refused_by,
	       (double)b->slowest_ns / 1e6);
	assert_int_equal(status, 0);
	assert_int_equal(b->wrong, 0);
	assert_int_equal(b->refused, 0);
	assert_true(reads > 0);
	assert_int_equal(waitpid(w->victim, &status, WNOHANG), 0);
	assert_int_equal(waitpid(w->d.pid, &status, WNOHANG), 0);
}

HELPER void attack(struct isolation *w, const char *name, void (*body)(struct isolation *w))
{
	attack_as(w, UID_ATTACKER, UID_ATTACKER, name, body);
}

/* A context message of the raw protocol. Returns 0 with the answer, or the daemon's error. */
HELPER int ask_context(struct client *c, uint16_t type, const char *name, union answer *a)
{
	struct wire_ctx m = { .mode = 0 };

	snprintf(m.name, sizeof(m.name), "%s", name);
	if (client_ask(c, &m, type, sizeof(m), a) <= 0)
		return -ENOTCONN;
	return a->header.type == WIRE_ERROR ? a->error.error : 0;
}

#endif
