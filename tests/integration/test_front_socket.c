/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket of a live daemon: handshake, contexts, operators' questions, and everything that a
 * client must not be able to do there. After each case the daemon must still serve.
 */
#include "tests/integration/front_client.h"
#include "tests/lib/users.h"

/* ---- messages ------------------------------------------------------------------------------ */

/* The answer must be ERROR -EPROTO (or nothing, for what is no packet), then the end. */
static void expect_protocol_error(struct client *c)
{
	union answer a;
	ssize_t n = client_receive(c, &a);

	if (n > 0) {
		assert_int_equal(a.header.type, WIRE_ERROR);
		assert_int_equal(a.error.error, -EPROTO);
		assert_true(a.error.text[0] != '\0');
		n = client_receive(c, &a);
	}
	assert_int_equal(n, 0);
}

static void send_and_lose(const void *message, size_t bytes, bool greeted)
{
	struct client c;

	if (greeted)
		assert_int_equal(client_open(&c, &the_daemon), 0);
	else
		assert_int_equal(client_connect(&c, &the_daemon), 0);
	assert_int_equal(send(c.sock, message, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
	expect_protocol_error(&c);
	if (greeted) {
		assert_int_equal(atomic_load_acquire_u32(&c.region->closed), 1);
		/* An empty packet cannot be told from a hang-up. */
		assert_int_equal(c.region->connection_error, bytes ? EPROTO : 0);
	}
	client_close(&c);
}

static void test_bad_messages_end_the_connection(void **state)
{
	struct wire_hello hello = { .header = { WIRE_MAGIC, ABI_VERSION, WIRE_HELLO,
						sizeof(hello), 1 } };
	struct wire_ctx ctx = { .header = { WIRE_MAGIC, ABI_VERSION, WIRE_CTX_OPEN, sizeof(ctx),
					    1 } };
	struct wire_admin admin = { .header = { WIRE_MAGIC, ABI_VERSION, WIRE_ADMIN, 0, 1 },
				    .verb = "status" };
	uint8_t longer[sizeof(ctx) + 8] __attribute__((aligned(8))) = { 0 };
	struct wire_hello bad;

	(void)state;
	send_and_lose("x", 1, false);
	send_and_lose("x", 1, true);
	send_and_lose(&hello, sizeof(hello) - 1, false); /* length is not what was sent */
	send_and_lose(&hello, sizeof(hello.header), false);
	send_and_lose(&hello, sizeof(hello), true); /* a second HELLO */
	send_and_lose(&ctx, sizeof(ctx), false);    /* before HELLO */
	bad = hello;
	bad.header.magic++;
	send_and_lose(&bad, sizeof(bad), false);
	bad = hello;
	bad.header.version++;
	send_and_lose(&bad, sizeof(bad), false);
	bad.header.version = ABI_VERSION - 1; /* an old one, too */
	send_and_lose(&bad, sizeof(bad), false);
	bad = hello;
	bad.header.type = 999;
	send_and_lose(&bad, sizeof(bad), false);
	bad = hello;
	bad.header.type = WIRE_WELCOME;
	send_and_lose(&bad, sizeof(bad), false);
	bad = hello;
	bad.reserved[63] = 1;
	send_and_lose(&bad, sizeof(bad), false);
	ctx.reserved[0] = 1;
	send_and_lose(&ctx, sizeof(ctx), true);
	ctx.reserved[0] = 0;
	memcpy(longer, &ctx, sizeof(ctx));
	((struct wire_header *)(void *)longer)->length = sizeof(longer);
	send_and_lose(longer, sizeof(longer), true); /* more than its kind has */
	ctx.header.length = sizeof(ctx) - 1;
	send_and_lose(&ctx, sizeof(ctx) - 1, true);
	send_and_lose(&ctx, sizeof(ctx), true); /* says less than it is */
	admin.header.length = WIRE_MESSAGE_MAX;
	send_and_lose(&admin, sizeof(admin), true); /* says more */
	daemon_serves(&the_daemon);
}

static void test_oversized_and_empty_packets(void **state)
{
	static uint8_t big[100000];
	struct wire_header h = { WIRE_MAGIC, ABI_VERSION, WIRE_ADMIN, sizeof(big), 1 };

	(void)state;
	memcpy(big, &h, sizeof(h));
	send_and_lose(big, sizeof(big), true);
	send_and_lose(big, 0, true);
	send_and_lose(big, 0, false);
	daemon_serves(&the_daemon);
}

static void test_noise(void **state)
{
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 400; round++) {
		uint8_t bytes[4096];
		struct wire_header *h = (void *)bytes;
		size_t count;
		struct client c;
		union answer a;

		for (size_t i = 0; i < sizeof(bytes); i++) {
			seed = seed * 1664525 + 1013904223;
			bytes[i] = round % 3 ? (uint8_t)(seed >> 24) : 0;
		}
		count = round % 2 ? sizeof(struct wire_ctx) : 1 + seed % sizeof(bytes);
		*h = (struct wire_header){ WIRE_MAGIC, ABI_VERSION, (uint16_t)(seed >> 8) % 14,
					   (uint32_t)count, 1 };
		if (round % 2)
			h->type = (uint16_t)(WIRE_CTX_CREATE + round / 2 % 6);
		if (round % 4)
			assert_int_equal(client_open(&c, &the_daemon), 0);
		else
			assert_int_equal(client_connect(&c, &the_daemon), 0);
		assert_true(send(c.sock, bytes, count, MSG_NOSIGNAL) > 0);
		client_receive(&c, &a);
		client_close(&c);
	}
	daemon_serves(&the_daemon);
}

/* Descriptors that a client sends along are not kept. */
static void test_descriptors_of_clients_are_dropped(void **state)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = { 0 };
	struct wire_admin ask = { .verb = "status" };
	struct iovec iov = { &ask, sizeof(ask) };
	struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			       .msg_controllen = sizeof(control) };
	struct cmsghdr *m = CMSG_FIRSTHDR(&head);
	int fd[4] = { 0, 1, 2, 0 }, before;
	struct client c;
	union answer a;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	before = daemon_fds(&the_daemon);
	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(m), fd, sizeof(fd));
	for (int i = 0; i < 50; i++) {
		client_header(&c, &ask, WIRE_ADMIN, sizeof(ask));
		assert_true(sendmsg(c.sock, &head, MSG_NOSIGNAL) > 0);
		assert_true(client_receive(&c, &a) > 0);
		assert_int_equal(a.header.type, WIRE_TEXT);
	}
	/* Those of earlier clients may go meanwhile. */
	for (int i = 0; i < PATIENCE_MS / 10 && daemon_fds(&the_daemon) > before; i++)
		usleep(10000);
	assert_true(daemon_fds(&the_daemon) <= before);
	client_close(&c);
}

/* ---- contexts ------------------------------------------------------------------------------ */

static void tiny_geometry(struct abi_geometry *g)
{
	memset(g, 0, sizeof(*g));
	g->part_count = 1;
	g->block_tokens = 16;
	g->pages_per_block = 4;
	g->page_align = ABI_PAGE_ALIGN;
	g->block_bytes = 4 * 4096;
	g->part[0] = (struct abi_part){ .kind = ABI_KIND_DENSE, .hit_rule = ABI_HIT_EVERY,
					.shard_rule = ABI_SHARD_GROUPS, .layers = 2, .groups = 2,
					.page_bytes = 4096, .page_stride = 4096 };
	snprintf(g->part[0].name, sizeof(g->part[0].name), "kv");
}

static int ask_context(struct client *c, uint16_t type, struct wire_ctx *m, union answer *a)
{
	ssize_t n = client_ask(c, m, type, sizeof(*m), a);

	assert_true(n > 0);
	assert_int_equal(a->header.seq, c->seq);
	if (a->header.type == WIRE_ERROR)
		return a->error.error;
	for (int i = 0; i < c->fds; i++)
		if (type != WIRE_CTX_CREATE)
			close(c->fd[i]);
	return 0;
}

static void context_message(struct wire_ctx *m, const char *name)
{
	memset(m, 0, sizeof(*m));
	snprintf(m->name, sizeof(m->name), "%s", name);
	tiny_geometry(&m->geometry);
}

static void test_contexts(void **state)
{
	struct client c;
	struct wire_ctx m;
	union answer a;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	context_message(&m, "alpha");
	m.fingerprint[0] = 7;
	assert_int_equal(ask_context(&c, WIRE_CTX_OPEN, &m, &a), -ENOENT);
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), 0);
	assert_int_equal(a.header.type, WIRE_CTX_INFO);
	assert_int_equal(c.fds, 3);
	assert_int_equal(a.info.writable, 1);
	assert_true(a.info.index_bytes > 8192);
	assert_true(a.info.mem_bytes[ABI_TIER_CXL] >= 64 << 20);
	/* Read-only, and only that. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fcntl(c.fd[i], F_GETFL) & O_ACCMODE, O_RDONLY);
		assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, c.fd[i], 0) ==
			    MAP_FAILED);
		assert_int_equal(ftruncate(c.fd[i], 0), -1);
		close(c.fd[i]);
	}
	assert_int_equal(ask_context(&c, WIRE_CTX_OPEN, &m, &a), 0);
	m.flags = WIRE_CTX_EXCLUSIVE;
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EEXIST);
	m.flags = 0;
	m.fingerprint[0] = 8;
	assert_int_equal(ask_context(&c, WIRE_CTX_OPEN, &m, &a), -ESTALE);
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -ESTALE);
	m.fingerprint[0] = 7;
	m.geometry.block_tokens = 32;
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -ESTALE);
	m.epoch = 5;
	assert_int_equal(ask_context(&c, WIRE_CTX_EPOCH, &m, &a), 0);
	assert_int_equal(a.done.value, 5);
	assert_int_equal(ask_context(&c, WIRE_CTX_EPOCH, &m, &a), -EINVAL);
	m.epoch = 0;
	assert_int_equal(ask_context(&c, WIRE_CTX_EPOCH, &m, &a), 0);
	assert_int_equal(a.done.value, 6);
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), 0);
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), -ENOENT);
	client_close(&c);
}

static void test_bad_contexts_are_refused(void **state)
{
	static const char *const names[] = { "", "a b", "a/b", "../x", "\xff" };
	struct client c;
	struct wire_ctx m;
	union answer a;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (size_t i = 0; i < COUNT(names); i++) {
		context_message(&m, names[i]);
		assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	}
	context_message(&m, "x");
	memset(m.name, 'x', sizeof(m.name)); /* no NUL */
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	context_message(&m, "x");
	m.name[10] = 'y'; /* bytes behind the NUL */
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	context_message(&m, "x");
	m.flags = 0x80;
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	context_message(&m, "x");
	m.mode = 04777;
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	context_message(&m, "x");
	memset(m.policy, 'p', sizeof(m.policy));
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	context_message(&m, "x");
	snprintf(m.policy, sizeof(m.policy), "astrology");
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), -EINVAL);
	context_message(&m, "x");
	m.geometry.part_count = 17;
	assert_true(ask_context(&c, WIRE_CTX_CREATE, &m, &a) < 0);
	context_message(&m, "x");
	m.geometry.part[0].page_stride = 1;
	assert_true(ask_context(&c, WIRE_CTX_CREATE, &m, &a) < 0);
	context_message(&m, "x");
	m.quota[ABI_TIER_CXL] = UINT64_MAX;
	assert_true(ask_context(&c, WIRE_CTX_CREATE, &m, &a) < 0);
	context_message(&m, "x");
	m.blocks_max = UINT64_MAX / 2;
	assert_true(ask_context(&c, WIRE_CTX_CREATE, &m, &a) < 0);
	assert_true(client_nop(&c));
	client_close(&c);
}

/* One answer to a create: the context's id, or 0 when another geometry was first. */
static uint32_t created(struct client *c)
{
	union answer a;

	assert_true(client_receive(c, &a) > 0);
	assert_int_equal(a.header.seq, c->seq);
	if (a.header.type == WIRE_ERROR) {
		assert_int_equal(a.error.error, -ESTALE);
		return 0;
	}
	assert_int_equal(a.header.type, WIRE_CTX_INFO);
	for (int k = 0; k < c->fds; k++)
		close(c->fd[k]);
	return a.info.context_id + 1;
}

/* The ranks of an engine start at once and all create the context: each of them gets the same one,
 * but for whoever wants another geometry; or only that one, when it came first. */
static void test_many_create_the_same(void **state)
{
	enum { RANKS = 8 };
	struct client c[RANKS];
	struct wire_ctx m;
	union answer a;

	(void)state;
	for (int i = 0; i < RANKS; i++)
		assert_int_equal(client_open(&c[i], &the_daemon), 0);
	for (int round = 0; round < 10; round++) {
		uint32_t first, odd, id;

		for (int i = 0; i < RANKS; i++) {
			context_message(&m, "common");
			m.geometry.block_tokens += i == RANKS - 1;
			client_header(&c[i], &m, WIRE_CTX_CREATE, sizeof(m));
			assert_true(send(c[i].sock, &m, sizeof(m), MSG_NOSIGNAL) > 0);
		}
		first = created(&c[0]);
		for (int i = 1; i < RANKS - 1; i++) {
			id = created(&c[i]);
			assert_int_equal(id, first);
		}
		odd = created(&c[RANKS - 1]);
		assert_true((first == 0) != (odd == 0));
		context_message(&m, "common");
		assert_int_equal(ask_context(&c[round % RANKS], WIRE_CTX_REMOVE, &m, &a), 0);
	}
	for (int i = 0; i < RANKS; i++)
		client_close(&c[i]);
}

/* Two connections make, open and remove contexts; nothing is left behind. */
static void test_contexts_come_and_go(void **state)
{
	struct client c[2];
	struct wire_ctx m;
	union answer a;
	int before;

	(void)state;
	assert_int_equal(client_open(&c[0], &the_daemon), 0);
	assert_int_equal(client_open(&c[1], &the_daemon), 0);
	before = daemon_fds(&the_daemon);
	for (int i = 0; i < 30; i++) {
		context_message(&m, "brief");
		assert_int_equal(ask_context(&c[0], WIRE_CTX_CREATE, &m, &a), 0);
		for (int k = 0; k < c[0].fds; k++)
			close(c[0].fd[k]);
		assert_int_equal(ask_context(&c[1], WIRE_CTX_OPEN, &m, &a), 0);
		assert_int_equal(ask_context(&c[i % 2], WIRE_CTX_REMOVE, &m, &a), 0);
		assert_int_equal(ask_context(&c[1], WIRE_CTX_OPEN, &m, &a), -ENOENT);
	}
	assert_true(client_nop(&c[0]));
	for (int i = 0; i < PATIENCE_MS / 10 && daemon_fds(&the_daemon) > before; i++)
		usleep(10000);
	assert_true(daemon_fds(&the_daemon) <= before); /* earlier clients may go meanwhile */
	client_close(&c[0]);
	client_close(&c[1]);
}

/* ---- other users --------------------------------------------------------------------------- */

/* Run a case in a child under another user; skipped without the right to. */
static void as_user(uid_t uid, gid_t gid, void (*body)(void))
{
	int status = 0;
	pid_t pid;

	if (!users_can_be_others())
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (setgid(gid) || setuid(uid))
			_exit(1);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* In a child, a failed assertion must not run the parent's cmocka: plain exits. */
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "child: line %d: %s\n", __LINE__, #x);                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static int ask_verb(struct client *c, const char *verb, const char *json, union answer *a)
{
	struct {
		struct wire_admin head;
		char json[256];
	} m;
	size_t bytes = sizeof(m.head) + strlen(json);

	memset(&m, 0, sizeof(m));

	snprintf(m.head.verb, sizeof(m.head.verb), "%s", verb);
	snprintf(m.json, sizeof(m.json), "%s", json);
	if (client_ask(c, &m, WIRE_ADMIN, bytes, a) <= 0)
		return -ENOTCONN;
	return a->header.type == WIRE_ERROR ? a->error.error : 0;
}

static void stranger(void)
{
	struct client c;
	struct wire_ctx m;
	union answer a;
	char path[64];

	CHECK(client_open(&c, &the_daemon) == 0);
	CHECK(c.welcome.flags & WIRE_ISOLATED);
	context_message(&m, "private");
	CHECK(ask_context(&c, WIRE_CTX_OPEN, &m, &a) == -ENOENT);
	CHECK(ask_context(&c, WIRE_CTX_REMOVE, &m, &a) == -ENOENT);
	CHECK(ask_context(&c, WIRE_CTX_EPOCH, &m, &a) == -ENOENT);
	CHECK(ask_context(&c, WIRE_CTX_CREATE, &m, &a) == -EACCES);
	context_message(&m, "shared");
	CHECK(client_ask(&c, &m, WIRE_CTX_OPEN, sizeof(m), &a) > 0);
	CHECK(a.header.type == WIRE_CTX_INFO);
	CHECK(a.info.writable == 0);
	/* Not even through /proc: the inode is another user's, 0600. */
	for (int i = 0; i < c.fds; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", c.fd[i]);
		CHECK(i == 2 || open(path, O_RDWR) < 0 || !a.info.mem_bytes[0]);
		CHECK(fchmod(c.fd[i], 0666) < 0);
		CHECK(fcntl(c.fd[i], F_ADD_SEALS, F_SEAL_WRITE) < 0);
		close(c.fd[i]);
	}
	CHECK(ask_context(&c, WIRE_CTX_REMOVE, &m, &a) == -EACCES);
	CHECK(ask_verb(&c, "status", "", &a) == 0);
	CHECK(ask_verb(&c, "stat", "", &a) == -EPERM);
	CHECK(ask_verb(&c, "clients", "", &a) == -EPERM);
	CHECK(ask_verb(&c, "drain", "", &a) == -EPERM);
	CHECK(client_nop(&c));
	client_close(&c);
}

static void test_strangers_see_what_they_may(void **state)
{
	struct client c;
	struct wire_ctx m;
	union answer a;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	context_message(&m, "private");
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), 0);
	for (int k = 0; k < c.fds; k++)
		close(c.fd[k]);
	context_message(&m, "shared");
	m.mode = 0644;
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), 0);
	for (int k = 0; k < c.fds; k++)
		close(c.fd[k]);
	as_user(4321, 4321, stranger);
	as_user(4321, 0, stranger); /* in root's group is not root */
	context_message(&m, "private");
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), 0);
	context_message(&m, "shared");
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), 0);
	client_close(&c);
}

static void owner(void)
{
	struct client c;
	struct wire_ctx m;
	union answer a;

	CHECK(client_open(&c, &the_daemon) == 0);
	context_message(&m, "theirs");
	CHECK(ask_context(&c, WIRE_CTX_CREATE, &m, &a) == 0);
	client_close(&c);
}

/* What nobody else may see an operator may still remove, and learn whose it is. */
static void test_operators_manage_what_is_not_theirs(void **state)
{
	struct client c;
	struct wire_ctx m;
	union answer a;

	(void)state;
	as_user(4321, 4322, owner);
	assert_int_equal(client_open(&c, &the_daemon), 0);
	assert_int_equal(ask_verb(&c, "context", "{\"context\":\"theirs\"}", &a), 0);
	a.bytes[a.header.length] = 0;
	assert_non_null(strstr((char *)a.bytes + sizeof(a.text), "\"owner_uid\":4321,"));
	assert_non_null(strstr((char *)a.bytes + sizeof(a.text), "\"owner_gid\":4322,"));
	assert_non_null(strstr((char *)a.bytes + sizeof(a.text), "\"mode\":\"0600\""));
	context_message(&m, "theirs");
	m.epoch = 7;
	assert_int_equal(ask_context(&c, WIRE_CTX_EPOCH, &m, &a), 0);
	assert_int_equal(a.done.value, 7);
	m.epoch = 0;
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), 0);
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), -ENOENT);
	client_close(&c);
}

static void nobody(void)
{
	struct client c;

	CHECK(client_open(&c, &the_daemon) == -ENOTCONN);
}

static void test_the_overflow_uid_is_refused(void **state)
{
	(void)state;
	as_user(65534, 65534, nobody);
	daemon_serves(&the_daemon);
}

/* ---- questions ----------------------------------------------------------------------------- */

static void test_questions(void **state)
{
	static const char *const verbs[] = { "status", "stat", "contexts", "check", "pins",
					     "requests", "clients", "drain" };
	struct client c;
	union answer a;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (size_t i = 0; i < COUNT(verbs); i++) {
		assert_int_equal(ask_verb(&c, verbs[i], "", &a), 0);
		assert_int_equal(a.header.type, WIRE_TEXT);
		while (a.text.more)
			assert_true(client_receive(&c, &a) > 0);
	}
	assert_int_equal(ask_verb(&c, "nonsense", "", &a), -ENOENT);
	assert_int_equal(ask_verb(&c, "", "", &a), -ENOENT);
	assert_int_equal(ask_verb(&c, "context", "", &a), -EINVAL);
	assert_int_equal(ask_verb(&c, "context", "{\"context\":5}", &a), -EINVAL);
	assert_int_equal(ask_verb(&c, "context", "{\"context\":\"nobody\"}", &a), -ENOENT);
	assert_int_equal(ask_verb(&c, "context", "[1,2", &a), -EINVAL);
	assert_int_equal(ask_verb(&c, "context", "[]", &a), -EINVAL);
	assert_int_equal(ask_verb(&c, "evict", "{\"tier\":\"cxl\"}", &a), -EINVAL);
	assert_true(client_nop(&c));
	client_close(&c);
}

/* A document longer than the socket's buffer, read slowly, then another question. */
static void test_long_answers_wait_for_the_reader(void **state)
{
	struct client c;
	struct wire_ctx m;
	union answer a;
	size_t bytes = 0;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (int i = 0; i < 60; i++) {
		char name[32];

		snprintf(name, sizeof(name), "many-%d", i);
		context_message(&m, name);
		assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), 0);
		for (int k = 0; k < c.fds; k++)
			close(c.fd[k]);
	}
	assert_int_equal(ask_verb(&c, "contexts", "", &a), 0);
	for (;;) {
		bytes += a.header.length - sizeof(a.text);
		if (!a.text.more)
			break;
		usleep(1000);
		assert_true(client_receive(&c, &a) > 0);
		assert_int_equal(a.header.type, WIRE_TEXT);
	}
	assert_true(bytes > 32768);
	for (int i = 0; i < 60; i++) {
		snprintf(m.name, sizeof(m.name), "many-%d", i);
		memset(m.name + strlen(m.name), 0, sizeof(m.name) - strlen(m.name));
		assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), 0);
	}
	client_close(&c);
}

/* More answers than the socket holds, for one who asks ahead and reads later: all of them come. */
static void test_answers_wait_for_who_asks_ahead(void **state)
{
	enum { QUESTIONS = 60 };
	struct wire_admin ask = { .verb = "stat" };
	struct client c;
	union answer a;
	size_t bytes = 0;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (int i = 0; i < QUESTIONS; i++) {
		client_header(&c, &ask, WIRE_ADMIN, sizeof(ask));
		assert_int_equal(send(c.sock, &ask, sizeof(ask), MSG_NOSIGNAL),
				 (ssize_t)sizeof(ask));
	}
	usleep(100000); /* the socket is full by now */
	for (uint32_t ended = 0; ended < QUESTIONS; ended += !a.text.more) {
		assert_true(client_receive(&c, &a) > 0);
		assert_int_equal(a.header.type, WIRE_TEXT);
		assert_int_equal(a.header.seq, c.seq - QUESTIONS + 1 + ended);
		bytes += a.header.length;
	}
	assert_true(bytes > 600000); /* three times what a socket holds */
	client_close(&c);
}

/* A client that asks and asks and never reads costs only itself. */
static void test_a_client_that_does_not_read(void **state)
{
	struct wire_admin ask = { .verb = "stat" };
	struct client c;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	for (int i = 0; i < 2000; i++) {
		client_header(&c, &ask, WIRE_ADMIN, sizeof(ask));
		if (send(c.sock, &ask, sizeof(ask), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	}
	daemon_serves(&the_daemon);
	client_close(&c);
	daemon_serves(&the_daemon);
}

/* Descriptors in unread answers count against the daemon's limit: it sends few, then hangs up. */
static void test_descriptors_are_not_hoarded(void **state)
{
	struct client c, hoarder;
	struct wire_ctx m;
	union answer a;
	int answers = 0;

	(void)state;
	assert_int_equal(client_open(&c, &the_daemon), 0);
	context_message(&m, "hoard");
	assert_int_equal(ask_context(&c, WIRE_CTX_CREATE, &m, &a), 0);
	for (int k = 0; k < c.fds; k++)
		close(c.fd[k]);
	assert_int_equal(client_open(&hoarder, &the_daemon), 0);
	for (int i = 0; i < 200; i++) {
		client_header(&hoarder, &m, WIRE_CTX_OPEN, sizeof(m));
		if (send(hoarder.sock, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			usleep(1000);
	}
	assert_true(client_hung_up(&hoarder));
	while (client_receive(&hoarder, &a) > 0) {
		answers++;
		for (int k = 0; k < hoarder.fds; k++)
			close(hoarder.fd[k]);
	}
	assert_in_range(answers, 1, 16);
	assert_int_equal(ask_context(&c, WIRE_CTX_REMOVE, &m, &a), 0);
	client_close(&hoarder);
	client_close(&c);
}

/* ---- crowds -------------------------------------------------------------------------------- */

static void test_connections_without_hello(void **state)
{
	struct client c[200];

	(void)state;
	for (size_t i = 0; i < COUNT(c); i++) {
		while (client_connect(&c[i], &the_daemon) == -EAGAIN)
			close(c[i].sock);
		if (i % 50 == 0)
			daemon_serves(&the_daemon);
	}
	daemon_serves(&the_daemon);
	for (size_t i = 0; i < COUNT(c); i++)
		close(c[i].sock);
	daemon_serves(&the_daemon);
}

/* One process may connect and close for ever: connections without an open reader leave at once. */
static void test_connect_and_close(void **state)
{
	int before, after = 0;

	(void)state;
	daemon_serves(&the_daemon);
	before = daemon_fds(&the_daemon);
	for (int i = 0; i < 1500; i++)
		daemon_serves(&the_daemon);
	for (int i = 0; i < PATIENCE_MS / 10; i++) {
		after = daemon_fds(&the_daemon);
		if (after <= before)
			break;
		usleep(10000);
	}
	assert_true(after <= before + 1);
}

static void test_connections_are_counted(void **state)
{
	static const char *const extra[] = { "clients.max=2", "nvme.size=0", NULL };
	struct daemon d;
	struct client c[3];

	(void)state;
	daemon_folder(&d);
	daemon_start(&d, extra);
	assert_int_equal(client_open(&c[0], &d), 0);
	assert_int_equal(client_open(&c[1], &d), 0);
	assert_int_equal(client_open(&c[2], &d), -EUSERS);
	client_close(&c[2]);
	client_close(&c[1]);
	while (client_open(&c[1], &d) == -EUSERS) { /* until the daemon has seen that it left */
		client_close(&c[1]);
		usleep(10000);
	}
	assert_true(client_nop(&c[1]));
	/* With a reader open the connection stays until the process is dead: it may hold leases. */
	c[1].region->sq_wake = 0;
	((struct abi_reader *)((uint8_t *)c[1].region + c[1].region->reader_offset))->owned = 1;
	client_close(&c[1]);
	usleep(100000);
	assert_int_equal(client_open(&c[2], &d), -EUSERS);
	client_close(&c[2]);
	client_close(&c[0]);
	daemon_stop(&d);
	daemon_remove(&d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_messages_end_the_connection),
		cmocka_unit_test(test_oversized_and_empty_packets),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_descriptors_of_clients_are_dropped),
		cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_bad_contexts_are_refused),
		cmocka_unit_test(test_many_create_the_same),
		cmocka_unit_test(test_contexts_come_and_go),
		cmocka_unit_test(test_strangers_see_what_they_may),
		cmocka_unit_test(test_operators_manage_what_is_not_theirs),
		cmocka_unit_test(test_the_overflow_uid_is_refused),
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_long_answers_wait_for_the_reader),
		cmocka_unit_test(test_answers_wait_for_who_asks_ahead),
		cmocka_unit_test(test_a_client_that_does_not_read),
		cmocka_unit_test(test_descriptors_are_not_hoarded),
		cmocka_unit_test(test_connections_without_hello),
		cmocka_unit_test(test_connect_and_close),
		cmocka_unit_test(test_connections_are_counted),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("front socket", tests, the_daemon_setup,
					   the_daemon_teardown);
}
