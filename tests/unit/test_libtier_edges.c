/*
 * Where limits are met: of descriptors, of an answer's length, of a struct's size, of how often and
 * how soon something is tried again. Against a real socket and a real ring (test_libtier_fake.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/test_libtier_world.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "libtier/src/connection.h"

/* ---- the socket ------------------------------------------------------------------------------ */

/* Lets the process have so many more descriptors; returns what it could have before. */
static struct rlimit leave_descriptors(uint32_t count)
{
	int next = dup(0);
	struct rlimit before, now;

	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	now = before;
	now.rlim_cur = (rlim_t)next + count;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	return before;
}

/* In a process of its own, for the daemon of this one needs descriptors, too. */
static int client_at_its_limit(const char *path)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = path };
	tier_context *c, *again;
	struct rlimit before;
	tier *t;
	int open, rc;

	if (tier_connect(&t, &o) || tier_context_open(t, "ctx", NULL, &c))
		return 1;
	open = fake_open_fds();
	before = leave_descriptors(2);
	rc = tier_context_open(t, "ctx", NULL, &again);
	if (rc != -EMFILE || !strstr(tier_error_text(), "limit of open files"))
		return 2;
	setrlimit(RLIMIT_NOFILE, &before);
	if (fake_open_fds() != open)
		return 3;
	/* That costs no other context, and not the connection. */
	if (tier_check(t) != 0 || tier_context_open(t, "ctx", NULL, &again))
		return 4;
	tier_close(t);
	return 0;
}

static void test_no_descriptors_left(void **state)
{
	struct world *w = *state;
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(client_at_its_limit(w->fake->path));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Longer than any message, but with a length that would do. */
static void answer_long(struct fake_client *k, const struct wire_header *q)
{
	static uint8_t bytes[2 * WIRE_MESSAGE_MAX];
	struct wire_text *m = (void *)bytes;

	memset(bytes, 'x', sizeof(bytes));
	*m = (struct wire_text){ .header = { .magic = WIRE_MAGIC, .version = ABI_VERSION,
					     .type = WIRE_TEXT, .length = WIRE_MESSAGE_MAX,
					     .seq = q->seq } };
	assert_int_equal(send(k->sock, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
}

static void test_an_answer_longer_than_any(void **state)
{
	struct world *w = *state;
	char *reply;

	w->fake->admin = answer_long;
	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), -EPROTO);
	assert_null(reply);
	w->fake->admin = NULL;
	/* Who cannot be understood is not asked again: a new connection, with whoever is there. */
	assert_int_equal(world_attach(w), 1);
}

/* Its text ends where the message does, whatever lay in the memory that it is put into. */
static void answer_a_page(struct fake_client *k, const struct wire_header *q)
{
	struct {
		struct wire_text t;
		char text[1000];
	} m = { .t = { .header = { .type = WIRE_TEXT, .seq = q->seq } } };

	memset(m.text, 'x', sizeof(m.text));
	fake_send(k, &m, sizeof(m.t) + sizeof(m.text), NULL, 0);
}

static void test_an_answer_has_an_end(void **state)
{
	struct world *w = *state;
	char *reply = NULL;

	w->fake->admin = answer_a_page;
	mallopt(M_PERTURB, 0x5a); /* no memory is all zeros by chance */
	assert_int_equal(tier_admin(w->t, "status", NULL, &reply), 0);
	mallopt(M_PERTURB, 0);
	assert_int_equal(strlen(reply), 1000);
	free(reply);
	w->fake->admin = NULL;
}

static void test_why_no_answer_came_is_told(void **state)
{
	static struct message answer;
	struct socket s;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	s.fd = pair[0];
	assert_int_equal(socket_receive(&s, &answer, WIRE_DONE, 1), -ETIMEDOUT);
	assert_non_null(strstr(tier_error_text(), "did not answer in time"));
	close(pair[1]);
	assert_int_equal(socket_receive(&s, &answer, WIRE_DONE, 1), -ENOTCONN);
	assert_non_null(strstr(tier_error_text(), "hung up"));
	socket_close(&s);
	assert_int_equal(socket_receive(&s, &answer, WIRE_DONE, 1), -EBADF);
	assert_non_null(strstr(tier_error_text(), strerror(EBADF)));
}

/* Piece after piece, for ever. */
static void answer_endless(struct fake_client *k, const struct wire_header *q)
{
	static uint8_t bytes[WIRE_MESSAGE_MAX];
	struct wire_text *m = (void *)bytes;
	const struct timeval patience = { .tv_sec = 20 };
	int flags = fcntl(k->sock, F_GETFL);

	memset(bytes, 'x', sizeof(bytes));
	*m = (struct wire_text){ .header = { .magic = WIRE_MAGIC, .version = ABI_VERSION,
					     .type = WIRE_TEXT, .length = sizeof(bytes),
					     .seq = q->seq }, .more = 1 };
	fcntl(k->sock, F_SETFL, flags & ~O_NONBLOCK);
	setsockopt(k->sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	/* Half as much again as a client takes: then it must have hung up. */
	for (uint64_t sent = 0; sent < 384ull << 20; sent += sizeof(bytes))
		if (send(k->sock, bytes, sizeof(bytes), MSG_NOSIGNAL) < 0)
			return;
	m->more = 0;
	send(k->sock, bytes, sizeof(bytes), MSG_NOSIGNAL);
}

static void *ask_status(void *arg)
{
	char *reply = NULL;
	int rc = tier_admin(arg, "status", NULL, &reply);

	free(reply);
	return (void *)(intptr_t)rc;
}

static void test_an_answer_without_an_end(void **state)
{
	struct world *w = *state;
	pthread_t thread;
	void *rc;

	w->fake->admin = answer_endless;
	assert_int_equal(pthread_create(&thread, NULL, ask_status, w->t), 0);
	pthread_join(thread, &rc);
	assert_int_equal((int)(intptr_t)rc, -E2BIG);
	/* The rest of it is not taken for another answer. */
	tier_close(w->t);
	w->fake->admin = NULL;
	w->t = world_connect(w);
}

/* What is left of a caller's struct that is older, and so shorter, than ours. */
static void test_counters_of_an_older_caller(void **state)
{
	struct world *w = *state;
	union {
		struct tier_counters counters;
		uint8_t bytes[sizeof(struct tier_counters) + 64];
	} u;
	size_t size = offsetof(struct tier_counters, lookups) + sizeof(u.counters.lookups);

	memset(&u, 0xa5, sizeof(u));
	u.counters.size = size;
	assert_int_equal(tier_counters(w->t, &u.counters), 0);
	assert_int_equal(u.counters.size, size);
	for (size_t i = size; i < sizeof(u); i++)
		assert_int_equal(u.bytes[i], 0xa5);
	/* And of one that is newer: what we do not know is 0. */
	memset(&u, 0xa5, sizeof(u));
	u.counters.size = sizeof(u);
	assert_int_equal(tier_counters(w->t, &u.counters), 0);
	for (size_t i = sizeof(u.counters); i < sizeof(u); i++)
		assert_int_equal(u.bytes[i], 0);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int listen_at(const char *path, int backlog)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static int call_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(a.sun_path, path, strlen(path) + 1);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Takes callers after a while, and hangs up on them. */
static void *accept_late(void *arg)
{
	int listener = *(int *)arg;

	usleep(50000);
	for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd))
		;
	return NULL;
}

/* Many connect at a time: whom the queue has no room for waits. */
static void test_a_full_queue_of_callers(void **state)
{
	struct world *w = *state;
	struct tier_connect_options o = { .size = sizeof(o), .socket = w->fake->path };
	int listener, caller[8];
	pthread_t thread;
	tier *t;

	fake_stop(w->fake, false);
	listener = listen_at(w->fake->path, 0);
	for (uint32_t i = 0; i < COUNT(caller); i++)
		caller[i] = call_at(w->fake->path);
	assert_int_equal(caller[COUNT(caller) - 1], -1);
	assert_int_equal(pthread_create(&thread, NULL, accept_late, &listener), 0);
	assert_int_equal(tier_connect(&t, &o), -ENOTCONN);
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < COUNT(caller); i++)
		if (caller[i] >= 0)
			close(caller[i]);
	close(listener);
	fake_start(w->fake);
}

static void test_what_is_no_socket(void **state)
{
	struct tier_connect_options o = { .size = sizeof(o), .socket = "/dev/null" };
	tier *t;

	(void)state;
	assert_int_equal(tier_connect(&t, &o), -ECONNREFUSED);
	assert_string_equal(tier_error_text(), "connect: /dev/null is no socket; set TIER_SOCKET "
					       "to where tierd listens");
}

/* How many have called since the last time; all are hung up on. */
static uint32_t calls_at(int listener)
{
	uint32_t calls = 0;

	for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; calls++)
		close(fd);
	return calls;
}

/*
 * A daemon that is there and does not answer costs its time-out once in a while, not at each call:
 * engines go on without it.
 */
static void test_a_silent_daemon_is_not_asked_at_each_call(void **state)
{
	struct world *w = *state;
	bool judged = false;
	int listener;

	fake_stop(w->fake, false);
	listener = listen_at(w->fake->path, 16);
	assert_int_equal(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
	/* What matters is that nobody calls; on a crowded machine it is time to call by then. */
	for (uint32_t tries = 0; tries < 20 && !judged; tries++) {
		uint64_t begin = time_now_ns();
		uint32_t calls;

		/* The time-out, when all but this long has gone by. */
		while (tier_check(w->t) != -ENOTCONN || calls_at(listener) == 0) {
			usleep(1000);
			begin = time_now_ns();
		}
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(tier_check(w->t), -ENOTCONN);
			usleep(CONNECTION_BACKOFF_NS / 1000);
		}
		calls = calls_at(listener);
		judged = time_now_ns() - begin < 2 * CONNECTION_REATTACH_NS;
		if (judged)
			assert_int_equal(calls, 0);
	}
	assert_true(judged);
	close(listener);
	unlink(w->fake->path);
	fake_start(w->fake);
}

/* ---- contexts over a restart ----------------------------------------------------------------- */

/* Who made a context exclusively makes it again in a daemon that has forgotten it. */
static void test_an_exclusive_context_is_made_again(void **state)
{
	struct world *w = *state;
	struct tier_context_options o = { .size = sizeof(o), .flags = TIER_CREATE_EXCLUSIVE };
	tier_geometry *g;
	tier_context *c;

	assert_int_equal(tier_geometry_preset(&g, "tiny"), 0);
	assert_int_equal(tier_context_create(w->t, "own", g, &o, &c), 0);
	tier_geometry_free(g);
	assert_int_equal(w->fake->asked.flags, WIRE_CTX_EXCLUSIVE);
	fake_stop(w->fake, true);
	fake_start(w->fake);
	assert_int_equal(world_attach(w), 1);
	/* Another of our processes may have been faster. */
	assert_int_equal(w->fake->asked.header.type, WIRE_CTX_CREATE);
	assert_int_equal(w->fake->asked.flags, 0);
	tier_context_close(c);
}

static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "/memfd:tier-test") != NULL;
	fclose(maps);
	return count;
}

/* A context that is closed leaves no mapping of a former daemon's, either. */
static void test_a_closed_context_is_unmapped_everywhere(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(1);
	tier_context *c;
	tier_put *p;
	int before;

	w->fake->other = 7; /* no map of w->c's is its */
	assert_int_equal(tier_context_open(w->t, "ctx", NULL, &c), 0);
	assert_int_equal(tier_put_begin(w->c, &key, 1, NULL, &p), 0);
	fake_restart(w->fake);
	assert_int_equal(world_attach(w), 1);
	before = mappings(); /* the former attachment stays for the put */
	tier_context_close(c);
	assert_int_equal(mappings(), before - 2 * (1 + ABI_MEM_TIERS));
	tier_put_abort(p);
}

/* ---- streams --------------------------------------------------------------------------------- */

static bool hold_streams(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)c;
	*silent = e->op == ABI_OP_STREAM;
	return *silent;
}

struct waiting {
	tier_stream *s;
	uint32_t layer;
	int64_t got;
};

static void *wait_layer(void *arg)
{
	struct waiting *x = arg;

	x->got = tier_stream_wait(x->s, x->layer, time_now_ns() + 60 * NS_PER_S);
	return NULL;
}

/* Two threads wait for two layers: the line asks for the nearer one, and for none in the end. */
static void test_the_nearer_layer_is_asked_for(void **state)
{
	struct world *w = *state;
	tier_block b[2] = { world_block(w, 1), world_block(w, 2) };
	struct waiting far = { .layer = 5 }, near = { .layer = 2 };
	struct abi_stream *line = &w->fake->client[0].lines[0];
	const uint64_t one = 1;
	pthread_t thread[2];
	tier_stream *s;

	w->fake->hook = hold_streams;
	assert_int_equal(tier_stream_open(w->c, b, 2, NULL, &s), 0);
	line->layers = 8;
	line->usable = 77; /* more than there are */
	atomic_store_release_u32(&line->generation,
				 (uint32_t)(atomic_load_relaxed_u64(&line->released) >> 32));
	near.s = far.s = s;
	assert_int_equal(pthread_create(&thread[0], NULL, wait_layer, &near), 0);
	while (atomic_load_acquire_u32(&line->wait) != 3)
		usleep(1000);
	assert_int_equal(pthread_create(&thread[1], NULL, wait_layer, &far), 0);
	usleep(20000);
	assert_int_equal(atomic_load_acquire_u32(&line->wait), 3);
	atomic_store_release_u32(&line->ready, 8);
	assert_int_equal(write(w->fake->client[0].event, &one, sizeof(one)), sizeof(one));
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	assert_int_equal(near.got, 2);
	assert_int_equal(far.got, 2);
	assert_int_equal(atomic_load_acquire_u32(&line->wait), 0);
	w->fake->hook = NULL;
	fake_restart(w->fake); /* the request is never answered else */
	assert_int_equal(world_attach(w), 1);
	tier_stream_close(s);
}

/* ---- lists longer than one request ----------------------------------------------------------- */

/* What came of each kind: for hooks, which run in the daemon's thread. */
static struct seen {
	uint32_t asked, next;
	bool wrong;
} seen;

static bool half_is_there(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)silent;
	if (e->op != ABI_OP_FETCH)
		return false;
	c->value = e->count / 2;
	return true;
}

/* What lies behind the first key of a request leaves with it, uncounted by the next one, as of a
 * prefix. */
static bool delete_prefix(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	static uint32_t there = UINT32_MAX;
	uint32_t first;

	(void)silent;
	if (e->op != ABI_OP_DELETE)
		return false;
	memcpy(&first, f->client[0].staging + e->arg_offset, sizeof(first));
	c->value = first < there ? e->count : 0;
	there = first < there ? first : there;
	return true;
}

static void test_lists_of_several_requests(void **state)
{
	enum { BLOCKS = 2 * (ABI_ARG_BYTES_MAX / 8) + 10 };
	enum { KEYS = 2 * (ABI_ARG_BYTES_MAX / 32) + 10 };
	struct world *w = *state;
	tier_block *block = calloc(BLOCKS, sizeof(*block));
	tier_key *key = calloc(KEYS, sizeof(*key));

	assert_int_equal(tier_fetch(w->c, block, BLOCKS, NULL), BLOCKS);
	assert_int_equal(w->fake->ops[ABI_OP_FETCH], 3);
	/* Behind a gap nothing is usable: it is not asked for. */
	w->fake->hook = half_is_there;
	assert_int_equal(tier_fetch(w->c, block, BLOCKS, NULL), ABI_ARG_BYTES_MAX / 16);
	assert_int_equal(w->fake->ops[ABI_OP_FETCH], 4);
	w->fake->hook = delete_prefix;
	for (uint32_t i = 0; i < KEYS; i++)
		memcpy(key[i].bytes, &i, sizeof(i));
	assert_int_equal(tier_delete(w->c, key, KEYS), KEYS);
	assert_int_equal(w->fake->ops[ABI_OP_DELETE], 3);
	w->fake->hook = NULL;
	free(block);
	free(key);
}

/* Are the accesses those that follow? */
static bool look_at_plan(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	const uint8_t *at = f->client[0].staging + e->arg_offset;
	struct abi_access access;

	(void)silent;
	if (e->op != ABI_OP_PLAN || e->mode == ABI_PLAN_END)
		return false;
	if (e->mode == ABI_PLAN_BEGIN)
		at += sizeof(struct abi_plan_args);
	seen.asked++;
	for (uint32_t i = 0; i < e->count; i++, seen.next++) {
		memcpy(&access, at + i * sizeof(access), sizeof(access));
		seen.wrong = seen.wrong || access.block.slot != seen.next;
	}
	c->value = 7;
	return true;
}

static void test_a_plan_of_several_requests(void **state)
{
	enum { ACCESSES = 10000 };
	struct world *w = *state;
	struct tier_access *access = calloc(ACCESSES, sizeof(*access));
	tier_plan *p;

	for (uint32_t i = 0; i < ACCESSES; i++)
		access[i].block.slot = i;
	seen = (struct seen){ 0 };
	w->fake->hook = look_at_plan;
	assert_int_equal(tier_plan_begin(w->c, access, ACCESSES, NULL, &p), 0);
	assert_int_equal(seen.next, ACCESSES);
	assert_int_equal(seen.asked, 3);
	assert_false(seen.wrong);
	tier_plan_end(p);
	/* Nothing of a plan that is over stays in the arena. */
	for (uint32_t i = 0; i < 5000; i++) {
		assert_int_equal(tier_plan_begin(w->c, access, 1, NULL, &p), 0);
		tier_plan_end(p);
	}
	w->fake->hook = NULL;
	free(access);
}

/* The first one has completed, the second one is cancelled. */
static bool refuse_first(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	*silent = e->op == ABI_OP_FETCH;
	if (e->op == ABI_OP_CANCEL && f->ops[ABI_OP_CANCEL] == 1)
		c->res = -ENOENT;
	return e->op == ABI_OP_CANCEL || e->op == ABI_OP_FETCH;
}

static void test_a_cancel_of_two_of_which_one_is_over(void **state)
{
	struct world *w = *state;
	tier_block b = world_block(w, 1);

	w->fake->hook = refuse_first;
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(tier_fetch_start(w->c, &b, 1, ASK(TIER_CXL, .user_data = 5)), 0);
	assert_int_equal(tier_cancel(w->t, 5), 0);
	assert_int_equal(w->fake->ops[ABI_OP_CANCEL], 2);
	w->fake->hook = NULL;
}

/* ---- reads of what does not stay ------------------------------------------------------------- */

/* Says that the page is there; it is not. Ends what would go on for ever. */
static bool fleeting(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)silent;
	if (e->op != ABI_OP_FETCH_PAGES)
		return false;
	if (f->ops[ABI_OP_FETCH_PAGES] > 50)
		c->res = -EIO;
	usleep(5000);
	return true;
}

static void test_a_page_that_does_not_stay(void **state)
{
	struct world *w = *state;
	tier_key key = world_key(9);
	struct tier_lease lease;
	struct tier_page page = { .page = 0 };
	struct tier_found found;
	uint32_t slot;

	pthread_mutex_lock(&w->fake->lock);
	slot = fake_store(w->x, &key, ABI_BLOCK_PENDING);
	index_block_state(&w->x->ix, slot, ABI_BLOCK_COMMITTED);
	pthread_mutex_unlock(&w->fake->lock);
	tier_match(w->c, &key, 1, &found);
	assert_int_equal(found.state, TIER_HIT);
	page.block = found.block;
	w->fake->hook = fleeting;
	assert_int_equal(tier_read_pages(w->r, w->c, &page, 1, 0, &lease), 0);
	assert_int_equal(lease.error, -ENODATA);
	assert_true(w->fake->ops[ABI_OP_FETCH_PAGES] <= 10);
	/* And none is asked for when the time is over. */
	w->fake->ops[ABI_OP_FETCH_PAGES] = 0;
	assert_int_equal(tier_read_pages(w->r, w->c, &page, 1, time_now_ns() + 1, &lease), 0);
	while (!fake_ops(w->fake, ABI_OP_FETCH_PAGES)) /* its time is over: nobody waits for it */
		usleep(1000);
	assert_int_equal(w->fake->ops[ABI_OP_FETCH_PAGES], 1);
	w->fake->hook = NULL;
}

static bool grant_puts(struct fake *f, const struct abi_sqe *e, struct abi_cqe *c, bool *silent)
{
	(void)f;
	(void)silent;
	c->value = 1;
	return e->op == ABI_OP_PUT_RESERVE;
}

/* The monotonic clock of this process is so far ahead of the host's: patience takes no time. */
static atomic_uint ahead_s;
static atomic_uint looks; /* at the clock, by the thread that puts */
static pthread_t putter;

int clock_gettime(clockid_t clock, struct timespec *out)
{
	long rc = syscall(SYS_clock_gettime, clock, out);

	if (pthread_equal(pthread_self(), putter))
		atomic_fetch_add(&looks, 1);
	if (clock == CLOCK_MONOTONIC)
		out->tv_sec += atomic_load(&ahead_s);
	return (int)rc;
}

#define LOOKS 20u

/* When it has looked for room a few times all that it may wait is over. */
static void *hurry(void *done)
{
	while (atomic_load(&looks) < LOOKS)
		usleep(1000);
	atomic_store(&ahead_s, 31);
	for (uint32_t i = 0; i < 6000 && !atomic_load((atomic_bool *)done); i++)
		usleep(10000);
	if (!atomic_load((atomic_bool *)done)) {
		fprintf(stderr, "a put without room waits for ever\n");
		_exit(1);
	}
	return NULL;
}

/* Another put of this process has the whole arena and is never committed: that wait has an end. */
static void test_a_put_without_room_ends(void **state)
{
	enum { BLOCKS = (1u << 20) / (6 * 4096) };
	static uint8_t data[6 * 4096];
	struct world *w = *state;
	tier_key key[BLOCKS];
	atomic_bool done = false;
	pthread_t thread;
	tier_put *all;

	for (uint32_t i = 0; i < BLOCKS; i++)
		key[i] = world_key(i);
	assert_int_equal(connection_attachment(w->t)->arena.bytes / sizeof(data), BLOCKS);
	w->fake->hook = grant_puts;
	assert_int_equal(tier_put_begin(w->c, key, BLOCKS, NULL, &all), 0);
	putter = pthread_self();
	atomic_store(&looks, 0);
	assert_int_equal(pthread_create(&thread, NULL, hurry, &done), 0);
	assert_int_equal(tier_put_copy(w->c, key, 1, data, NULL), -ENOBUFS);
	assert_int_equal(atomic_load(&ahead_s), 31);
	atomic_store(&done, true);
	pthread_join(thread, NULL);
	tier_put_abort(all);
	w->fake->hook = NULL;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_no_descriptors_left),
		T(test_an_answer_longer_than_any),
		T(test_an_answer_has_an_end),
		T(test_why_no_answer_came_is_told),
		T(test_an_answer_without_an_end),
		T(test_counters_of_an_older_caller),
		T(test_a_full_queue_of_callers), T(test_what_is_no_socket),
		T(test_a_silent_daemon_is_not_asked_at_each_call),
		T(test_an_exclusive_context_is_made_again),
		T(test_a_closed_context_is_unmapped_everywhere),
		T(test_the_nearer_layer_is_asked_for),
		T(test_lists_of_several_requests),
		T(test_a_plan_of_several_requests),
		T(test_a_cancel_of_two_of_which_one_is_over),
		T(test_a_page_that_does_not_stay),
		T(test_a_put_without_room_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
