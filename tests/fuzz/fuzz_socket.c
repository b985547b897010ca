/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's front against hostile clients: messages on real sockets (made in a pair, so that no
 * listener is needed), scribbling over the whole client region, doorbells, hang-ups and deaths,
 * with a real core behind it whose actions are carried out at once or later.
 *
 * Must hold: nothing but the offender's connection suffers, every answer is a message of the
 * protocol, and when all have gone no connection, descriptor or block of memory is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/host.h"
#include "tierd/front/front_priv.h"

#define MSEC 1000000ull
#define ACTIVE_NS MSEC /* without entries until a client is parked */
#define PEERS 3u
#define TEMPLATES 10u
#define CLIENTS 4u
#define STAGING_MAX (1u << 20)

enum command { CONNECT, RAW, MESSAGE, READ, HANGUP, DEATH, SCRIBBLE, SUBMIT, TURN, HOLD, CARRY,
	       STARVE, COMMANDS };

static struct {
	struct host host;
	struct front *front;
	struct log log;
	struct obs obs;
	int peer[PEERS]; /* our ends; -1 = none */
	union message {
		uint8_t bytes[sizeof(struct wire_ctx)];
		struct wire_object object;
		struct wire_header header;
		struct wire_hello hello;
		struct wire_ctx ctx;
		struct wire_slab slab;
		struct wire_place place;
		struct wire_admin admin;
		struct wire_error error;
	} message[TEMPLATES];
	size_t message_bytes[TEMPLATES];
	uint32_t fds; /* open before the first input */
} sock;

/* ---- the shell ------------------------------------------------------------------------------ */

static int shell_create(struct shell *s, struct disk_context *spec, uint64_t token,
			uint32_t *id, char why[FRONT_WHY_BYTES])
{
	char text[256] = "no memory";
	uint32_t i = 0;
	int rc;

	(void)s;
	while (i < HOST_CONTEXTS && sock.host.context[i].made)
		i++;
	if (i == HOST_CONTEXTS)
		return -ENFILE;
	rc = host_context_create(&sock.host, i, spec, token, text);
	if (rc)
		snprintf(why, FRONT_WHY_BYTES, "%s", text);
	*id = sock.host.context[i].id;
	return rc;
}

static void shell_gone(struct shell *s, uint32_t id)
{
	struct host_context *x = host_context_of(&sock.host, id);

	(void)s;
	FUZZ_CHECK(x);
	host_context_free(&sock.host, (uint32_t)(x - sock.host.context));
}

static int shell_grant(struct shell *s, uint32_t id, uint64_t client,
		       int fd[FRONT_CONTEXT_FDS])
{
	(void)s;
	(void)client;
	FUZZ_CHECK(host_context_of(&sock.host, id));
	for (uint32_t i = 0; i < FRONT_CONTEXT_FDS; i++) {
		fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		FUZZ_CHECK(fd[i] >= 0);
	}
	return 0;
}

static uint64_t jobs_mark(struct shell *s)
{
	(void)s;
	return 1;
}

/* A copy out of somebody's staging that is not carried out yet keeps all of them. */
static bool jobs_passed(struct shell *s, uint64_t mark)
{
	(void)s;
	(void)mark;
	for (uint32_t i = 0; i < sock.host.bag_count; i++)
		if (sock.host.bag[i].kind == CORE_AC_COPY)
			return false;
	return true;
}

static uint32_t shell_revoke(struct shell *s, uint64_t client, uint32_t *tiers)
{
	(void)s;
	(void)client;
	*tiers = 0;
	return 0;
}

static int shell_slab(struct shell *s, const struct core_range *range, int *fd, uint32_t *count)
{
	(void)s;
	FUZZ_CHECK(host_context_of(&sock.host, range->context_id));
	FUZZ_CHECK(range->tier < ABI_MEM_TIERS && range->bytes % ABI_HUGE == 0);
	*count = 1;
	fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd[0] < 0 ? -errno : 0;
}

static int shell_place(struct shell *s, const struct core_range *range)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)s;
	FUZZ_CHECK(host_context_of(&sock.host, range->context_id));
	FUZZ_CHECK(range->tier == ABI_TIER_CXL && range->bytes);
	return fd < 0 ? -errno : fd;
}

static int shell_upgrade(struct shell *s, char why[FRONT_WHY_BYTES])
{
	(void)s;
	snprintf(why, FRONT_WHY_BYTES, "there is no program");
	return -ENOENT;
}

static const struct front_ops ops = { shell_create, shell_gone, shell_grant, shell_revoke,
				      shell_slab, shell_place, shell_upgrade, jobs_mark,
				      jobs_passed };

static struct turn turn_begin(void)
{
	sock.host.now_ns += 1000;
	fuzz_clock_ns = sock.host.now_ns;
	return (struct turn){ .core = sock.host.core, .now_ns = sock.host.now_ns };
}

static void complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	front_complete(sock.front, client, cqe);
}

static void reply(void *arg, uint64_t token, int32_t res, uint64_t value)
{
	struct turn t = turn_begin();

	(void)arg;
	front_reply(sock.front, &t, token, res, value);
}

static void end(void *arg, uint32_t client, int32_t error, const char *why)
{
	struct turn t = turn_begin();

	(void)arg;
	front_end(sock.front, &t, client, error, why);
}

static void run_turn(void)
{
	struct turn t = turn_begin();

	front_tick(sock.front, &t);
	front_events(sock.front, &t);
	front_poll(sock.front, &t, ACTIVE_NS);
	host_look(&sock.host);
	front_flush(sock.front);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void do_connect(struct fuzz_input *in, uint32_t peer)
{
	uint8_t how = fuzz_u8(in);
	struct turn t = turn_begin();
	struct connection *s;
	int pair[2];

	if (sock.peer[peer] >= 0)
		return;
	FUZZ_CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
	s = connection_greet(sock.front, &t);
	s->sock = pair[0];
	s->uid = s->gid = HOST_OWNER + (how & 1);
	s->operator_ = how & 2;
	s->events = EPOLLIN;
	FUZZ_CHECK(watch_add(sock.front, s, WATCH_SOCKET, pair[0], EPOLLIN | EPOLLRDHUP) == 0);
	sock.peer[peer] = pair[1];
}

static void send_bytes(uint32_t peer, const void *bytes, size_t count)
{
	if (sock.peer[peer] >= 0 && count)
		send(sock.peer[peer], bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void do_raw(struct fuzz_input *in, uint32_t peer)
{
	static uint8_t bytes[2 * WIRE_MESSAGE_MAX];
	size_t count = fuzz_u8(in), room = fuzz_u8(in) << 9;

	/* The rest of a long message is zeros: its length is what matters. */
	memset(bytes, 0, sizeof(bytes));
	fuzz_take(in, bytes, count);
	send_bytes(peer, bytes, count > room ? count : room);
}

/* A message as the library sends it, patched. */
static void do_message(struct fuzz_input *in, uint32_t peer)
{
	uint8_t how = fuzz_u8(in);
	uint32_t which = how % 16 % TEMPLATES;
	size_t count = sock.message_bytes[which];
	union message m = sock.message[which];

	if (which > 0 && which < 5) /* one of four names */
		m.ctx.name[0] = (char)('a' + (how >> 4 & 3));
	if (how & 128)
		fuzz_patch(in, m.bytes, count, 1);
	if (how & 64) /* its length may have been patched: let it be true */
		m.header.length = (uint32_t)count;
	send_bytes(peer, m.bytes, count);
}

/* Region and staging, as a client does that wants to be served (R5). */
static void seal_rights(struct msghdr *head)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(head);
	int fd[2];

	FUZZ_CHECK(c && c->cmsg_len >= CMSG_LEN(sizeof(fd)));
	memcpy(fd, CMSG_DATA(c), sizeof(fd));
	for (uint32_t i = 0; i < 2; i++)
		FUZZ_CHECK(fcntl(fd[i], F_ADD_SEALS, ABI_CLIENT_SEALS) == 0);
}

static void close_rights(struct msghdr *head)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c; c = CMSG_NXTHDR(head, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);
		int fd[8];

		FUZZ_CHECK(c->cmsg_type == SCM_RIGHTS && bytes <= sizeof(fd));
		memcpy(fd, CMSG_DATA(c), bytes);
		for (size_t i = 0; i < bytes / sizeof(int); i++)
			close(fd[i]);
	}
}

/* What the daemon sends is of the protocol, whatever was asked. */
static void do_read(uint32_t peer)
{
	static union {
		uint8_t bytes[WIRE_MESSAGE_MAX + 1];
		struct wire_error error;
	} m;
	const struct wire_header *h = &m.error.header;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;

	while (sock.peer[peer] >= 0) {
		struct iovec iov = { m.bytes, sizeof(m.bytes) };
		struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
				       .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(sock.peer[peer], &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n <= 0)
			return;
		if ((size_t)n >= sizeof(*h) && h->type == WIRE_WELCOME)
			seal_rights(&head);
		close_rights(&head);
		FUZZ_CHECK((size_t)n >= sizeof(*h) && (size_t)n <= WIRE_MESSAGE_MAX);
		FUZZ_CHECK(h->magic == WIRE_MAGIC && h->length == (size_t)n);
		FUZZ_CHECK(h->type == WIRE_WELCOME || h->type == WIRE_CTX_INFO ||
			   h->type == WIRE_DONE || h->type == WIRE_TEXT || h->type == WIRE_ERROR ||
			   h->type == WIRE_USAGE_LIST || h->type == WIRE_SLAB ||
			   h->type == WIRE_PLACE);
		if (h->type == WIRE_ERROR)
			FUZZ_CHECK((size_t)n == sizeof(m.error) && m.error.error < 0 &&
				   m.error.text[0]);
	}
}

static void do_hangup(uint32_t peer)
{
	if (sock.peer[peer] >= 0)
		close(sock.peer[peer]);
	sock.peer[peer] = -1;
}

/* The n-th connection that has shared memory; NULL = none has. */
static struct connection *connection_of(uint32_t n)
{
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct connection *s = &sock.front->connection[(n + i) % CLIENTS];

		if (s->state == CONNECTION_OPEN || s->state == CONNECTION_GONE)
			return s;
	}
	return NULL;
}

static void do_death(struct fuzz_input *in)
{
	struct connection *s = connection_of(fuzz_u8(in));
	struct turn t = turn_begin();

	if (s)
		connection_process_dead(sock.front, &t, s);
	host_look(&sock.host);
}

static void ring_bell(const struct connection *s)
{
	uint64_t one = 1;

	if (s->state == CONNECTION_OPEN)
		FUZZ_CHECK(write(s->doorbell, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN);
}

/* Any byte of the region is the client's to write. */
static void do_scribble(struct fuzz_input *in)
{
	struct connection *s = connection_of(fuzz_u8(in));

	if (!s) {
		uint8_t lost[64];

		fuzz_patch(in, lost, sizeof(lost), 1);
		return;
	}
	if (s->state == CONNECTION_OPEN)
		grant_settle(s); /* what is written before is seen after */
	fuzz_patch(in, s->region.addr, s->region.bytes, 8);
	ring_bell(s);
}

static void do_submit(struct fuzz_input *in)
{
	struct connection *s = connection_of(fuzz_u8(in));
	uint32_t count = 1 + fuzz_u8(in) % 24;
	struct abi_sqe sqe = { .op = fuzz_u8(in) % (ABI_OP_COUNT + 1), .flags = ABI_SQE_KEYS };

	sqe.context_id = fuzz_u8(in) & 3;
	sqe.count = fuzz_u8(in);
	sqe.arg_bytes = sqe.count * ABI_KEY_BYTES + (sqe.op == ABI_OP_PUT_RESERVE ? 128 : 0);
	if (!s || s->state != CONNECTION_OPEN)
		return;
	for (uint32_t i = 0; i < count; i++) {
		sqe.user_data = i;
		((struct abi_sqe *)(uintptr_t)s->sq)[(s->sq_head + i) & (s->sq_entries - 1)] = sqe;
	}
	s->header->sq_tail = s->sq_head + count;
	s->header->cq_head = s->cq_tail;
	ring_bell(s);
}

/* ---- the run ------------------------------------------------------------------------------ */

/* Sockets, shared memory, eventfds: what the front makes. libFuzzer opens files at any time. */
static uint32_t count_fds(void)
{
	static const char *const kinds[] = { "socket:", "/memfd:tier", "anon_inode:" };
	uint32_t count = 0;

	for (int fd = 0; fd < 96; fd++) {
		char link[32], name[32] = "";

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (readlink(link, name, sizeof(name) - 1) <= 0)
			continue;
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			count += strncmp(name, kinds[i], strlen(kinds[i])) == 0;
	}
	return count;
}

/* The front outlives its core here: closing one takes the kernel 20 ms. */
static void begin(void)
{
	host_boot(&sock.host, NULL);
	sock.obs = (struct obs){ .core = sock.host.core, .version = "fuzz", .socket = "/nowhere",
				 .uid = HOST_OWNER, .super = sock.host.super };
	sock.front->config.core = sock.host.core;
	for (uint32_t i = 0; i < PEERS; i++)
		sock.peer[i] = -1;
}

static void finish(void)
{
	fuzz_alloc_left = 0;
	sock.host.held = false;
	host_carry_all(&sock.host);
	for (uint32_t i = 0; i < PEERS; i++) {
		run_turn();
		do_read(i);
		do_hangup(i);
	}
	run_turn();
	for (uint32_t i = 0; i < sock.front->slots; i++) {
		struct connection *s = &sock.front->connection[i];
		struct turn t = turn_begin();

		FUZZ_CHECK(s->state != CONNECTION_GREETING && s->state != CONNECTION_OPEN);
		if (s->state == CONNECTION_GONE)
			connection_process_dead(sock.front, &t, s);
		host_look(&sock.host);
	}
	host_settle(&sock.host, 100);
	run_turn();
	for (uint32_t i = 0; i < sock.front->slots; i++)
		FUZZ_CHECK(sock.front->connection[i].state == CONNECTION_FREE);
	host_audit(&sock.host);
	host_empty(&sock.host);
	host_halt(&sock.host);
	/* What was never sealed ends in a thread of its own. */
	for (uint32_t i = 0; i < 5000 && count_fds() != sock.fds; i++)
		usleep(1000);
	FUZZ_CHECK(count_fds() == sock.fds);
	for (uint32_t i = 0; i < sock.front->pending_max; i++)
		FUZZ_CHECK(sock.front->pending[i].kind == PENDING_FREE);
	fuzz_clock_ns = 0;
}

static void do_command(struct fuzz_input *in)
{
	uint8_t byte = fuzz_u8(in);
	uint32_t peer = (byte >> 4) % PEERS;

	switch ((enum command)(byte % 16 % COMMANDS)) {
	case CONNECT:
		do_connect(in, peer);
		break;
	case RAW:
		do_raw(in, peer);
		break;
	case MESSAGE:
		do_message(in, peer);
		break;
	case READ:
		do_read(peer);
		break;
	case HANGUP:
		do_hangup(peer);
		break;
	case DEATH:
		do_death(in);
		break;
	case SCRIBBLE:
		do_scribble(in);
		break;
	case SUBMIT:
		do_submit(in);
		break;
	case HOLD:
		sock.host.held = !sock.host.held;
		break;
	case CARRY:
		host_carry(&sock.host, sock.host.bag_count ? byte % sock.host.bag_count : 0);
		break;
	case STARVE:
		fuzz_alloc_left = 1 + (byte >> 4);
		break;
	default:
		sock.host.now_ns += (byte >> 4) * 100 * MSEC;
	}
}

void fuzz_one(struct fuzz_input *in)
{
	begin();
	while (in->left) {
		do_command(in);
		run_turn();
	}
	finish();
}

/* ---- messages ------------------------------------------------------------------------------- */

static void template(uint32_t i, uint16_t type, size_t bytes)
{
	sock.message[i].header = (struct wire_header){ .magic = WIRE_MAGIC, .version = ABI_VERSION,
						       .type = type, .length = (uint32_t)bytes,
						       .seq = i };
	sock.message_bytes[i] = bytes;
}

static void open_front(void)
{
	struct front_config config = {
		.socket = "/nowhere",
		.clients_max = CLIENTS,
		.staging_max = STAGING_MAX,
		.user_contexts = HOST_CONTEXTS - 1,
		.places = true,
		.boot_token = 0x70cea,
		.obs = &sock.obs,
		.log = &sock.log,
		.ops = &ops,
	};

	FUZZ_CHECK(front_open(&sock.front, &config) == 0);
	sock.fds = count_fds();
}

void fuzz_open(void)
{
	static const uint16_t types[] = { WIRE_CTX_CREATE, WIRE_CTX_OPEN, WIRE_CTX_REMOVE,
					  WIRE_CTX_EPOCH };
	struct wire_hello *hello = &sock.message[0].hello;
	struct wire_admin *admin = &sock.message[5].admin;
	static const char args[] = "{\"context\":\"a\",\"tier\":\"cxl\"}";
	struct disk_context spec;

	host_init(&sock.host);
	sock.host.blind = true;
	sock.host.ears = (struct host_ears){ .complete = complete, .reply = reply, .end = end };
	sock.log.level = LOG_LEVEL_ERROR;
	template(0, WIRE_HELLO, sizeof(*hello));
	hello->features = WIRE_HELLO_DEVICE;
	hello->staging_bytes = 64 << 10;
	hello->sq_entries = 16;
	hello->readers = 2;
	snprintf(hello->name, sizeof(hello->name), "fuzz");
	for (uint32_t i = 0; i < 4; i++) {
		struct wire_ctx *m = &sock.message[1 + i].ctx;

		host_spec(&spec, i & 1, i);
		m->blocks_max = spec.blocks_max;
		memcpy(m->quota, spec.quota, sizeof(m->quota));
		m->geometry = spec.geometry;
		template(1 + i, types[i], sizeof(*m));
	}
	snprintf(admin->verb, sizeof(admin->verb), "evict");
	memcpy(admin + 1, args, sizeof(args) - 1);
	template(5, WIRE_ADMIN, sizeof(*admin) + sizeof(args) - 1);
	snprintf(sock.message[6].object.context, 8, "a");
	snprintf(sock.message[6].object.name, 8, "name");
	template(6, WIRE_OBJ_OPEN, sizeof(struct wire_object));
	for (uint32_t i = 7; i < 9; i++) {
		sock.message[i].slab.context_id = 1u << 16; /* the first one of all */
		sock.message[i].slab.tier = ABI_TIER_CXL;
		template(i, i == 7 ? WIRE_SLAB_TAKE : WIRE_SLAB_LEAVE, sizeof(struct wire_slab));
	}
	sock.message[9].place.put = CORE_REQUESTS_MAX; /* the first one of all */
	template(9, WIRE_PLACE, sizeof(struct wire_place));
	open_front();
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_message(struct fuzz_seed *s, uint32_t peer, uint8_t how)
{
	fuzz_put_u8(s, (uint8_t)(MESSAGE | peer << 4));
	fuzz_put_u8(s, how);
}

static void put_hello(struct fuzz_seed *s, uint32_t peer, uint8_t who)
{
	fuzz_put_u8(s, (uint8_t)(CONNECT | peer << 4));
	fuzz_put_u8(s, who);
	put_message(s, peer, 0);
}

static void seed_starved(void)
{
	static struct fuzz_seed s;

	put_hello(&s, 0, 2);
	for (uint8_t i = 1; i < TEMPLATES; i++) {
		fuzz_put_u8(&s, STARVE);
		put_message(&s, 0, i == 3 ? 2 : i);
	}
	fuzz_seed_end(&s, "starved");
	put_hello(&s, 0, 0);
	put_hello(&s, 1, 0);
	fuzz_put_u8(&s, HOLD);
	put_message(&s, 0, 1);
	fuzz_put_u8(&s, STARVE | 1 << 4);
	put_message(&s, 1, 1);
	fuzz_put_u8(&s, HOLD);
	fuzz_seed_end(&s, "both-make-it");
}

void fuzz_seeds(void)
{
	static const uint8_t words[] = { SCRIBBLE, 0, 16, 0, 12, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
					 0, 0, 0 };
	static struct fuzz_seed s;

	seed_starved();
	put_hello(&s, 0, 2);
	for (uint8_t i = 1; i < TEMPLATES; i++) /* create, open, remove, epoch, admin */
		put_message(&s, 0, i == 3 ? 2 : i);
	put_message(&s, 0, 3);
	fuzz_put_u8(&s, READ);
	fuzz_seed_end(&s, "operator");
	put_hello(&s, 0, 0);
	put_message(&s, 0, 1);
	put_hello(&s, 1, 1);
	put_message(&s, 1, 2); /* another's */
	put_message(&s, 1, 3);
	fuzz_put(&s, words, sizeof(words));
	for (uint8_t op = 0; op < 12; op++) {
		static const uint8_t rest[] = { 3, 0, 0, 2 };

		fuzz_put_u8(&s, SUBMIT);
		fuzz_put_u8(&s, op & 1);
		fuzz_put_u8(&s, rest[0]);
		fuzz_put_u8(&s, op);
		fuzz_put(&s, rest + 1, 2);
	}
	fuzz_put_u8(&s, HANGUP);
	fuzz_put_u8(&s, DEATH);
	fuzz_seed_end(&s, "rings");
	put_hello(&s, 2, 0);
	put_message(&s, 2, 1 | 128);
	fuzz_put_patch(&s, offsetof(struct wire_ctx, blocks_max), "\0\0\0\0\1", 5);
	fuzz_put_patch(&s, offsetof(struct wire_ctx, geometry.part[0].layers), "\2", 1);
	fuzz_put_u16(&s, 0);
	fuzz_put_u8(&s, 0);
	put_message(&s, 2, 5 | 128);
	fuzz_put_patch(&s, offsetof(struct wire_header, length), "\0\1\0\0", 4);
	fuzz_put_u16(&s, 0);
	fuzz_put_u8(&s, 0);
	fuzz_seed_end(&s, "patched");
	put_hello(&s, 2, 0);
	fuzz_put_u8(&s, RAW | 2 << 4);
	fuzz_put_u8(&s, 16);
	fuzz_put_u8(&s, 127);
	fuzz_put(&s, &sock.message[5], 16);
	fuzz_seed_end(&s, "raw");
}
