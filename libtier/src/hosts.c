/*
 * Asking tierd-net on its UNIX socket, one message each way (abi/net.h); a connection that is idle
 * is kept for the next call. Nothing of it runs unless an engine calls; every wait ends with the
 * caller's deadline.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "libtier/base/time.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/hosts.h"

#define HOSTS_DEFAULT_NS (1 * NS_PER_S)
#define HOSTS_DELETE_NS (30 * NS_PER_S)
#define HOSTS_MAX_NS (60 * NS_PER_S)

static int wait_ready(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now = time_now_ns();
	struct timespec left = time_to_timespec(deadline_ns > now ? deadline_ns - now : 0);
	int n = ppoll(&p, 1, &left, NULL);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n ? 0 : error_note(-ETIMEDOUT, "hosts: tierd-net does not answer; is it stopped?");
}

static int open_socket(const char *path, uint64_t deadline_ns)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd CLEANUP_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return error_set(-errno, "hosts: no socket: %s", strerror(errno));
	if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s.net", path) >= sizeof(a.sun_path))
		return error_set(-EINVAL, "hosts: %s.net is too long for a socket", path);
	while (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return error_set(-ENOTCONN, "hosts: nobody listens on %s; start tierd-net",
					 a.sun_path);
		if (errno != EAGAIN && errno != EINTR)
			return error_set(-errno, "hosts: %s: %s", a.sun_path, strerror(errno));
		if (time_now_ns() >= deadline_ns)
			return error_set(-ETIMEDOUT, "hosts: tierd-net on %s takes nobody",
					 a.sun_path);
		usleep(500);
	}
	return take_fd(&fd);
}

static int hung_up(void)
{
	return error_note(-ENOTCONN, "hosts: tierd-net hung up");
}

static int send_all(int fd, const void *bytes, size_t left, uint64_t deadline_ns)
{
	const char *at = bytes;

	while (left) {
		ssize_t n = send(fd, at, left, MSG_NOSIGNAL);
		int rc;

		if (n > 0) {
			at += n;
			left -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return hung_up();
		rc = wait_ready(fd, POLLOUT, deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}

/* Bytes of a message, and the descriptor that comes with them. */
static ssize_t take_bytes(int fd, void *to, size_t bytes, int *passed)
{
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { to, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n;
	int got;

	if (!passed)
		return recv(fd, to, bytes, 0);
	n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	for (struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL; h; h = CMSG_NXTHDR(&msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(&got, CMSG_DATA(h), sizeof(got));
		if (*passed < 0)
			*passed = got;
		else
			close(got);
	}
	return n;
}

static int not_of_this_protocol(void)
{
	return error_note(-EPROTO, "hosts: the answer is not of this protocol; are tierd-net and "
				   "libtier of one version?");
}

int hosts_receive(int fd, union hosts_answer *m, int *passed, uint64_t deadline_ns)
{
	size_t have = 0, want = sizeof(m->header);
	int64_t whole;

	for (;;) {
		ssize_t n = take_bytes(fd, (char *)m + have, want - have, passed);
		int rc;

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return hung_up();
		have += n > 0 ? (size_t)n : 0;
		whole = net_check(m, have);
		if (whole > 0)
			return 0;
		if (have >= sizeof(m->header)) {
			uint16_t type = m->header.type;

			if (whole < 0 || m->header.length > sizeof(*m) || have > want ||
			    (type != NET_PLACED &&
			     !(passed && (type == NET_LAYER || type == NET_PICKED))))
				return not_of_this_protocol();
			want = m->header.length;
		}
		rc = n > 0 ? 0 : wait_ready(fd, POLLIN, deadline_ns);
		if (rc)
			return rc;
	}
}

void hosts_tell(struct tier_hosts *out, const struct net_placed *m)
{
	struct tier_hosts own = {
		.size = out->size,
		.local = m->local,
		.usable = m->usable,
		.hosts = m->hosts,
		.answered = m->answered,
		.status = m->status,
		.bytes = m->bytes,
		.first_ns = m->first_ns,
		.all_ns = m->all_ns,
		.compute_ns = m->compute_ns,
	};

	memcpy(own.host, m->host, sizeof(own.host));
	memcpy(out, &own, out->size < sizeof(own) ? out->size : sizeof(own));
}

static int take_idle(struct tier *t)
{
	LOCK_SCOPE(&t->lock);
	return take_fd(&t->hosts_fd);
}

/* Takes the connection, unless another one is kept already. */
static void keep_idle(struct tier *t, int *fd)
{
	LOCK_SCOPE(&t->lock);
	if (t->hosts_fd < 0)
		t->hosts_fd = take_fd(fd);
}

int hosts_send(int fd, const struct net_header *m, uint64_t deadline_ns)
{
	return send_all(fd, m, m->length, deadline_ns);
}

/* fd is the connection kept from before, or negative: a new one is made. */
static int ask_once(struct tier *t, int fd, const struct net_want *m, union hosts_answer *answer)
{
	uint64_t deadline_ns = m->deadline_ns + HOSTS_GRACE_NS;
	int own CLEANUP_CLOSE = fd < 0 ? open_socket(t->path, deadline_ns) : fd;
	int rc = own < 0 ? own : hosts_send(own, &m->header, deadline_ns);

	if (rc == 0)
		rc = hosts_receive(own, answer, NULL, deadline_ns);
	if (rc == 0 && !m->flags)
		keep_idle(t, &own);
	return rc;
}

static int64_t exchange(struct tier *t, const struct net_want *m, struct tier_hosts *out)
{
	union hosts_answer answer;
	int fd = take_idle(t);
	int rc = ask_once(t, fd, m, &answer);

	if (rc == -ENOTCONN && fd >= 0) /* it lay idle for too long, or tierd-net is a new one */
		rc = ask_once(t, -1, m, &answer);
	if (rc)
		return rc;
	if (answer.placed.error)
		return error_set(answer.placed.error, "hosts: %s", answer.placed.text);
	if (out)
		hosts_tell(out, &answer.placed);
	return answer.placed.usable;
}

static int read_options(struct tier_hosts_options *o, const struct tier_hosts_options *from,
			uint64_t default_ns)
{
	uint64_t now = time_now_ns();
	int rc = options_read(o, sizeof(*o), from);

	if (rc)
		return rc;
	if (o->klass > TIER_CLASS_SPECULATIVE || o->reserved)
		return error_note(-EINVAL, "hosts: no such class, or reserved is not 0");
	if (!o->deadline_ns)
		o->deadline_ns = now + default_ns;
	if (o->deadline_ns <= now)
		return error_note(-ETIMEDOUT, "hosts: the deadline has passed");
	if (o->deadline_ns - now > HOSTS_MAX_NS)
		return error_note(-EINVAL, "hosts: the deadline is over a minute away");
	return 0;
}

static int check_keys(tier_context *c, const tier_key *keys, uint32_t count)
{
	int rc = context_check(c);

	if (rc == 0 && (!keys || !count || count > NET_LOCAL_KEYS_MAX))
		rc = error_set(-EINVAL, "hosts: no keys, or over %u", NET_LOCAL_KEYS_MAX);
	return rc;
}

int hosts_check_out(const struct tier_hosts *out)
{
	if (out && out->size < sizeof(out->size))
		return error_note(-EINVAL, "hosts: out->size is not set; set it with sizeof");
	return 0;
}

/* A message's type, and above it its flags. */
#define PULL_AND_GO_ON (NET_PULL | NET_WANT_GO_ON << 16)

/* What is asked for, judged: *out is to be freed. what: a type, above it flags. */
static int want(tier_context *c, const tier_key *keys, uint32_t count,
		const struct tier_hosts_options *options, uint32_t what, struct net_want **out)
{
	uint16_t type = (uint16_t)what;
	uint32_t flags = what >> 16;
	struct tier_hosts_options o;
	struct net_want *m;
	int rc = check_keys(c, keys, count);

	if (rc == 0)
		rc = read_options(&o, options,
				  type == NET_DELETE ? HOSTS_DELETE_NS : HOSTS_DEFAULT_NS);
	if (rc)
		return rc;
	m = calloc(1, sizeof(*m) + count * sizeof(*keys));
	if (!m)
		return error_note(-ENOMEM, "hosts: out of memory");
	m->header = (struct net_header){ .magic = NET_MAGIC, .version = NET_VERSION, .type = type };
	m->header.length = (uint32_t)(sizeof(*m) + count * sizeof(*keys));
	memcpy(m->context, c->name, sizeof(m->context));
	m->deadline_ns = o.deadline_ns;
	m->token_ns = o.token_ns;
	m->salt = o.salt;
	m->klass = flags && !o.klass ? TIER_CLASS_DEADLINE : o.klass;
	m->flags = flags;
	m->count = count;
	memcpy(m + 1, keys, count * sizeof(*keys));
	*out = m;
	return 0;
}

/* keys[count] and what they are asked for; out may be NULL. */
static int64_t ask(tier_context *c, const tier_key *keys, uint32_t count,
		   const struct tier_hosts_options *options, struct tier_hosts *out, uint32_t what)
{
	struct net_want *m CLEANUP_FREE = NULL;
	int rc = hosts_check_out(out);

	if (rc == 0)
		rc = want(c, keys, count, options, what, &m);
	return rc ? rc : exchange(c->t, m, out);
}

int64_t tier_locate(tier_context *c, const tier_key *keys, uint32_t count,
		    const struct tier_hosts_options *options, struct tier_hosts *out)
{
	return ask(c, keys, count, options, out, NET_LOCATE);
}

int64_t tier_pull(tier_context *c, const tier_key *keys, uint32_t count,
		  const struct tier_hosts_options *options, struct tier_hosts *out)
{
	return ask(c, keys, count, options, out, NET_PULL);
}

int tier_prefetch_keys(tier_context *c, const tier_key *keys, uint32_t count,
		       const struct tier_hosts_options *options)
{
	int64_t rc = ask(c, keys, count, options, NULL, PULL_AND_GO_ON);

	return rc < 0 ? (int)rc : 0;
}

/* ---- what lasts: streams from afar, standing grants ------------------------------------------ */

static int first_word(struct tier *t, const struct net_want *m, struct hosts_begun *begun,
		      struct net_placed *placed)
{
	uint64_t until_ns = m->deadline_ns + HOSTS_GRACE_NS;
	union hosts_answer answer;
	int rc;

	begun->deadline_ns = m->deadline_ns;
	begun->fd = open_socket(t->path, until_ns);
	rc = begun->fd < 0 ? begun->fd : hosts_send(begun->fd, &m->header, until_ns);
	if (rc == 0)
		rc = hosts_receive(begun->fd, &answer, &begun->memory, until_ns);
	if (rc)
		return rc;
	*placed = answer.placed;
	if (answer.header.type != NET_PLACED || placed->local > placed->usable ||
	    placed->usable > m->count)
		return error_note(-EPROTO, "hosts: a stream or a grant does not begin like one");
	return placed->error ? error_set(placed->error, "hosts: %s", placed->text) : 0;
}

int64_t hosts_begin(tier_context *c, const tier_key *keys, uint32_t count,
		    const struct tier_hosts_options *options, struct tier_hosts *out,
		    struct hosts_begun *begun)
{
	struct net_want *m CLEANUP_FREE = NULL;
	struct net_placed placed;
	int rc = hosts_check_out(out);

	if (rc == 0)
		rc = want(c, keys, count, options, begun->type, &m);
	if (rc == 0)
		rc = first_word(c->t, m, begun, &placed);
	if (rc)
		return rc;
	hosts_tell(out, &placed);
	return begun->memory < 0 ? 0 : placed.usable - placed.local;
}

void hosts_begun_close(struct hosts_begun *begun)
{
	cleanup_close(&begun->fd);
	cleanup_close(&begun->memory);
}

int hosts_map(int memory, uint64_t bytes, const void **at)
{
	struct stat st;
	void *to;

	if (fstat(memory, &st) || (uint64_t)st.st_size < bytes)
		return error_note(-EPROTO, "hosts: the memory of what comes is too short");
	to = mmap(NULL, bytes, PROT_READ, MAP_SHARED, memory, 0);
	if (to == MAP_FAILED)
		return error_set(-errno, "hosts: the memory of what comes: %s", strerror(errno));
	*at = to;
	return 0;
}

/* ---- a prefix, wherever it is -------------------------------------------------------------- */

struct keys_wanted {
	tier_context *c;
	const tier_key *keys;
	uint32_t count;
	struct tier_ask ask; /* of what is here */
};

/* What is here of it, into the tier. */
static int64_t fetch_here(const struct keys_wanted *w)
{
	struct tier_found *found CLEANUP_FREE = calloc(w->count, sizeof(*found));
	tier_block *block CLEANUP_FREE = calloc(w->count, sizeof(*block));
	int64_t usable;

	if (!found || !block)
		return error_note(-ENOMEM, "hosts: out of memory");
	usable = tier_match(w->c, w->keys, w->count, found);
	for (int64_t i = 0; i < usable; i++)
		block[i] = found[i].block;
	return usable <= 0 ? usable : tier_fetch(w->c, block, (uint32_t)usable, &w->ask);
}

/* Nobody to ask, or nothing to share, is how a host alone is. */
static bool alone(int64_t rc)
{
	return rc == -ENOTCONN || rc == -ENOENT;
}

int64_t tier_fetch_keys(tier_context *c, const tier_key *keys, uint32_t count, uint32_t level,
			const struct tier_hosts_options *options, struct tier_hosts *out)
{
	struct keys_wanted w = { .c = c, .keys = keys, .count = count };
	struct tier_hosts came = { .size = sizeof(came), .status = TIER_MISSED };
	struct tier_hosts_options o;
	int64_t here, pulled;
	int rc = hosts_check_out(out);

	if (rc == 0)
		rc = check_keys(c, keys, count);
	if (rc == 0)
		rc = read_options(&o, options, HOSTS_DEFAULT_NS);
	if (rc)
		return rc;
	o.size = sizeof(o); /* NULL has none */
	w.ask = (struct tier_ask){ .size = sizeof(w.ask), .tier = level, .klass = o.klass,
				   .deadline_ns = o.deadline_ns };
	here = fetch_here(&w);
	came.local = here > 0 ? (uint32_t)here : 0;
	if (here >= 0 && here < count && time_now_ns() < o.deadline_ns) {
		pulled = tier_pull(c, keys, count, &o, &came);
		if (pulled < 0 && !alone(pulled))
			return here ? here : pulled;
		if (pulled > here)
			here = fetch_here(&w);
	}
	came.usable = here > 0 ? (uint32_t)here : 0;
	if (came.usable == count)
		came.status = TIER_READY;
	else if (time_now_ns() >= o.deadline_ns)
		came.status = TIER_LATE;
	if (out) {
		came.size = out->size;
		memcpy(out, &came, out->size < sizeof(came) ? out->size : sizeof(came));
	}
	return here;
}

int tier_hosts_delete(tier_context *c, const tier_key *keys, uint32_t count,
		      const struct tier_hosts_options *options)
{
	int64_t rc = ask(c, keys, count, options, NULL, NET_DELETE);

	return rc < 0 ? (int)rc : 0;
}
