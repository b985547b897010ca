/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front on a real core, in the hands of a test: one turn at a time, with a clock of the test's
 * own, and a peer that is this process itself. Its shell makes no contexts.
 */
#ifndef TIER_TESTS_FRONT_TURNS_H
#define TIER_TESTS_FRONT_TURNS_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tierd/front/front.h"

#define MS 1000000ull
#define ACTIVE_NS MS /* without entries until a client is parked */
#define STAGING_MAX (1u << 20)
#define CLIENTS 80u /* more than are woken at a time */

/* The shell that the front sees: jobs are over when the test says so. */
struct shell {
	uint64_t mark, passed;
	uint32_t contexts_gone;
	uint64_t revoked; /* the last client that was */
	uint32_t asked, pinned;
};

static inline int no_context(struct shell *s, struct disk_context *spec, uint64_t token,
			     uint32_t *id, char why[FRONT_WHY_BYTES])
{
	(void)s;
	(void)spec;
	(void)token;
	(void)id;
	snprintf(why, FRONT_WHY_BYTES, "this shell makes none");
	return -ENOMEM;
}

static inline void context_gone(struct shell *s, uint32_t id)
{
	(void)id;
	s->contexts_gone++;
}

static inline int no_grant(struct shell *s, uint32_t id, uint64_t client,
			   int fd[FRONT_CONTEXT_FDS])
{
	(void)s;
	(void)id;
	(void)client;
	(void)fd;
	return -ENOENT;
}

static inline uint64_t jobs_mark(struct shell *s)
{
	return ++s->mark;
}

static inline bool jobs_passed(struct shell *s, uint64_t mark)
{
	return s->passed >= mark;
}

/* Memory that can be taken back, once no device has it pinned. */
static inline uint32_t take_back(struct shell *s, uint64_t client, uint32_t *tiers)
{
	s->revoked = client;
	s->asked++;
	*tiers = s->pinned ? 0 : 1u << ABI_TIER_CXL;
	return s->pinned;
}

static inline int no_slab(struct shell *s, const struct core_range *range, int *fd,
			  uint32_t *count)
{
	(void)s;
	(void)range;
	(void)fd;
	(void)count;
	return -ENOENT;
}

static inline int upgrade(struct shell *s, char why[FRONT_WHY_BYTES])
{
	(void)s;
	why[0] = '\0';
	return -ENOENT;
}

static inline int no_place(struct shell *s, const struct core_range *range)
{
	(void)s;
	(void)range;
	return -ENOENT;
}

static const struct front_ops ops = { no_context, context_gone, no_grant, take_back, no_slab,
				      no_place, upgrade, jobs_mark, jobs_passed };

struct fixture {
	struct core *core;
	struct front *front;
	struct shell shell;
	struct obs obs;
	struct log log;
	char path[108];
	uint64_t now_ns;
	uint32_t hopeful; /* of the last turn */
	uint32_t beside;  /* atomic: how the client beside the loop ended */
};

static struct fixture fx;

static inline int setup(void **state)
{
	struct core_config config = { .boot_token = 42, .capacity = { 0, 64 << 20 } };
	struct front_config front = { .socket_mode = 0600, .clients_max = CLIENTS,
				      .staging_max = STAGING_MAX, .boot_token = 42, .ops = &ops,
				      .shell = &fx.shell };
	const char *tmp = getenv("TMPDIR");
	char why[FRONT_WHY_BYTES];

	(void)state;
	memset(&fx, 0, sizeof(fx));
	fx.now_ns = 1000 * MS;
	fx.log.level = LOG_LEVEL_ERROR;
	fx.obs.uid = geteuid();
	assert_int_equal(core_open(&fx.core, &config), 0);
	snprintf(fx.path, sizeof(fx.path), "%s/tier-front-%d", tmp ? tmp : "/tmp", getpid());
	fx.obs.core = fx.core;
	front.socket = fx.path;
	front.core = fx.core;
	front.obs = &fx.obs;
	front.log = &fx.log;
	assert_int_equal(front_open(&fx.front, &front), 0);
	assert_int_equal(front_listen(fx.front, why), 0);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	front_close(fx.front);
	core_close(fx.core);
	assert_int_equal(access(fx.path, F_OK), -1);
	return 0;
}

/* One turn after `later` ns; returns the events that were fed. */
static inline uint32_t turn(uint64_t later)
{
	struct core_action action;
	struct turn t = { .core = fx.core, .now_ns = fx.now_ns += later };

	front_tick(fx.front, &t);
	front_events(fx.front, &t);
	fx.hopeful = front_poll(fx.front, &t, ACTIVE_NS);
	while (core_action_next(fx.core, &action)) {
		if (action.kind == CORE_AC_COMPLETE)
			front_complete(fx.front, action.complete.client, &action.complete.cqe);
		else if (action.kind == CORE_AC_END)
			front_end(fx.front, &t, action.end.client, action.end.error,
				  action.end.why);
		else if (action.kind == CORE_AC_REPLY)
			front_reply(fx.front, &t, action.reply.token, action.reply.res,
				    action.reply.value);
		else
			fail_msg("unexpected action %d", action.kind);
	}
	front_flush(fx.front);
	return t.fed;
}

/* ---- the peer ------------------------------------------------------------------------------ */

struct peer {
	int sock, fd[4];
	struct abi_region_header *region;
	uint64_t bytes;
	uint32_t client;
};

static inline int dial(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", fx.path);
	assert_int_equal(connect(sock, (struct sockaddr *)&at, sizeof(at)), 0);
	return sock;
}

static inline void take_welcome(struct peer *p)
{
	char control[CMSG_SPACE(4 * sizeof(int))];
	struct wire_welcome welcome;
	struct iovec iov = { &welcome, sizeof(welcome) };
	struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			       .msg_controllen = sizeof(control) };
	struct stat st;

	assert_int_equal(recvmsg(p->sock, &head, MSG_DONTWAIT), (ssize_t)sizeof(welcome));
	assert_int_equal(welcome.header.type, WIRE_WELCOME);
	assert_int_equal(welcome.boot_token, 42);
	p->client = welcome.client_id;
	memcpy(p->fd, CMSG_DATA(CMSG_FIRSTHDR(&head)), sizeof(p->fd));
	assert_int_equal(fstat(p->fd[0], &st), 0);
	p->bytes = (uint64_t)st.st_size;
	p->region = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd[0], 0);
	assert_true(p->region != MAP_FAILED);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fcntl(p->fd[i], F_ADD_SEALS, ABI_CLIENT_SEALS), 0);
}

static inline void greet_with(struct peer *p, struct wire_hello hello)
{
	hello.header = (struct wire_header){ WIRE_MAGIC, ABI_VERSION, WIRE_HELLO, sizeof(hello),
					     1 };
	p->sock = dial();
	turn(0);
	assert_int_equal(send(p->sock, &hello, sizeof(hello), 0), (ssize_t)sizeof(hello));
	turn(0);
	take_welcome(p);
}

static inline void greet(struct peer *p)
{
	greet_with(p, (struct wire_hello){ .sq_entries = 8 });
}

static inline void leave(struct peer *p)
{
	p->region->goodbye = 1;
	munmap(p->region, p->bytes);
	for (int i = 0; i < 4; i++)
		close(p->fd[i]);
	close(p->sock);
}

#endif
