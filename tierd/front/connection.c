/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a connection; the states are drawn in front_priv.h. What ends when:
 *
 *   hang-up or error   the connection: rings, puts, pins, staging. The core is told GONE.
 *   process dead       the leases. The core is told DEAD; memory goes when no job refers to it.
 *   over its budget    the leases, where the tier's memory can be taken back: the core is told
 *                      REVOKED when no device reads it any more.
 *
 * A client that hung up by itself and left no reader open can hold no lease: it counts as dead at
 * once, so that a process may connect and close as often as it likes.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "tierd/front/front_priv.h"

/* ---- slots --------------------------------------------------------------------------------- */

struct connection *connection_find(struct front *f, uint32_t id, uint32_t generation)
{
	struct connection *s = id < f->slots ? &f->connection[id] : NULL;

	return s && s->state != CONNECTION_FREE && s->generation == generation ? s : NULL;
}

/* Empty but for its number. */
static void slot_clear(struct connection *s)
{
	uint32_t id = s->id, generation = s->generation;

	*s = (struct connection){ .id = id, .generation = generation + 1, .sock = -1, .pidfd = -1,
				  .doorbell = -1, .event = -1 };
	s->region.fd = s->staging.fd = -1;
	list_init(&s->watched_link);
	list_init(&s->posted_link);
}

static void close_fd(struct front *f, int *fd, bool watched)
{
	if (*fd < 0)
		return;
	if (watched)
		watch_remove(f, *fd);
	close(*fd);
	*fd = -1;
}

/* Questions that are open when the connection ends. */
static void drop_questions(struct front *f, struct connection *s)
{
	f->waiting -= s->again != NULL;
	f->listings -= s->listing != NULL;
	free(s->listing);
	s->listing = NULL;
	free(s->again);
	free(s->text);
	s->again = NULL;
	s->text = NULL;
}

void connection_free(struct front *f, struct connection *s)
{
	f->greeting -= s->state == CONNECTION_GREETING;
	f->dead -= s->state == CONNECTION_DEAD;
	f->revoking -= s->revoking;
	f->former -= s->former;
	close_fd(f, &s->sock, true);
	close_fd(f, &s->pidfd, true);
	close_fd(f, &s->doorbell, true);
	close_fd(f, &s->event, false);
	grant_release(s);
	drop_questions(f, s);
	list_remove(&s->watched_link);
	list_remove(&s->posted_link);
	slot_clear(s);
}

struct connection *connection_greet(struct front *f, struct turn *t)
{
	struct connection *oldest = NULL;

	for (uint32_t i = f->config.clients_max; i < f->slots; i++) {
		struct connection *s = &f->connection[i];

		if (s->state == CONNECTION_FREE) {
			oldest = s;
			break;
		}
		if (!oldest || s->since_ns < oldest->since_ns)
			oldest = s;
	}
	assert(oldest);
	if (oldest->state != CONNECTION_FREE)
		connection_free(f, oldest);
	oldest->state = CONNECTION_GREETING;
	oldest->since_ns = t->now_ns;
	f->greeting++;
	return oldest;
}

/* Slots are used in turn: a late look at an old number finds nobody for as long as possible. */
struct connection *connection_slot(struct front *f)
{
	for (uint32_t i = 0; i < f->config.clients_max; i++) {
		struct connection *s = &f->connection[(f->next_slot + i) % f->config.clients_max];

		if (s->state != CONNECTION_FREE)
			continue;
		f->next_slot = (s->id + 1) % f->config.clients_max;
		return s;
	}
	return NULL;
}

/* ---- begin --------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t wanted, uint32_t least, uint32_t most)
{
	uint32_t n = least;

	while (n < wanted && n < most)
		n *= 2;
	return n;
}

static void take_name(struct connection *s, const char name[32])
{
	for (uint32_t i = 0; i + 1 < sizeof(s->name) && name[i]; i++) {
		unsigned char byte = (unsigned char)name[i];

		s->name[i] = byte < 0x20 || byte >= 0x7f || byte == '"' ? '?' : (char)byte;
	}
}

/* What the client wants, within our limits. */
static int make_shared(struct front *f, struct connection *s, const struct wire_hello *hello)
{
	uint64_t staging = hello->staging_bytes ? hello->staging_bytes : CONNECTION_STAGING_DEFAULT;
	uint32_t entries = hello->sq_entries ? hello->sq_entries : CONNECTION_SQ_DEFAULT;
	uint32_t readers = hello->readers ? hello->readers : CONNECTION_READERS_DEFAULT;
	int rc;

	if (staging > f->config.staging_max)
		staging = f->config.staging_max;
	staging = (staging + ABI_PAGE_ALIGN - 1) & ~(uint64_t)(ABI_PAGE_ALIGN - 1);
	s->sq_entries = power_of_two(entries, CONNECTION_SQ_MIN, CONNECTION_SQ_MAX);
	s->cq_entries = 2 * s->sq_entries;
	s->readers_max = readers < ABI_READERS_MAX ? readers : ABI_READERS_MAX;
	take_name(s, hello->name);
	rc = grant_shared(&s->staging, "tier-staging", staging, PROT_READ);
	if (rc)
		return rc;
	rc = grant_region(f, s);
	if (rc)
		return rc;
	s->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->doorbell < 0 || s->event < 0)
		return -EMFILE;
	return watch_add(f, s, WATCH_DOORBELL, s->doorbell, EPOLLIN | EPOLLET);
}

/* The client's own things move from the lobby; the epoll set must name the new slot. */
static void move_in(struct front *f, struct connection *s, struct connection *lobby)
{
	s->sock = lobby->sock;
	s->pidfd = lobby->pidfd;
	s->uid = lobby->uid;
	s->gid = lobby->gid;
	s->pid = lobby->pid;
	s->operator_ = lobby->operator_;
	s->events = lobby->events;
	lobby->sock = lobby->pidfd = -1;
	watch_change(f, s, WATCH_SOCKET, s->sock, s->events | EPOLLRDHUP);
	watch_change(f, s, WATCH_PROCESS, s->pidfd, EPOLLIN);
	connection_free(f, lobby);
}

int connection_begin(struct front *f, struct turn *t, struct connection *lobby,
		     const struct wire_hello *hello, struct connection **out)
{
	struct core_event event = { .kind = CORE_EV_CLIENT_OPEN };
	struct connection *s = connection_slot(f);
	int rc = s ? make_shared(f, s, hello) : -EUSERS;

	if (rc) {
		if (s)
			connection_free(f, s);
		return rc;
	}
	move_in(f, s, lobby);
	s->state = CONNECTION_OPEN;
	s->since_ns = t->now_ns;
	s->device = hello->features & WIRE_HELLO_DEVICE;
	event.open = (struct core_client_open){
		.client = s->id,
		.uid = s->uid,
		.gid = s->gid,
		.operator_ = s->operator_,
		.staging = s->staging.addr,
		.staging_bytes = s->staging.bytes,
		.readers = s->readers,
		.readers_max = s->readers_max,
		.streams = s->streams,
		.streams_max = ABI_STREAMS_MAX,
	};
	turn_feed(t, &event);
	log_info(f->config.log, "client connected", s->name, "client=%u pid=%d uid=%u", s->id,
		 s->pid, s->uid);
	*out = s;
	return 0;
}

/* ---- end ----------------------------------------------------------------------------------- */

/* OPEN -> GONE */
static void gone(struct front *f, struct turn *t, struct connection *s, int error)
{
	struct core_event event = {
		.kind = CORE_EV_CLIENT_GONE,
		.client = s->id,
		.error = error,
	};

	assert(s->state == CONNECTION_OPEN);
	s->state = CONNECTION_GONE;
	grant_settle(s); /* one that never asked for anything is to see this, too */
	atomic_store_relaxed_u64(&s->header->connection_error, (uint64_t)-(int64_t)error);
	atomic_store_release_u32(&s->header->closed,
				 f->handing ? ABI_CLOSED_HANDOVER : ABI_CLOSED);
	ring_unwatch(f, s);
	list_remove(&s->posted_link);
	s->owes_wake = s->must_wake = false;
	ring_out_signal(f, &s->event, 1);
	close_fd(f, &s->sock, true);
	close_fd(f, &s->doorbell, true);
	drop_questions(f, s);
	object_connection_gone(f, s);
	turn_feed(t, &event);
}

/* Its leases keep too much: it reads nothing more, whether it runs or is stopped. */
static void take_back(struct front *f, struct turn *t, struct connection *s)
{
	struct core_event event = { .kind = CORE_EV_CLIENT_REVOKED, .client = s->id };
	uint32_t pinned = f->config.ops->context_revoke(f->config.shell, connection_tag(s),
							&event.tiers);

	f->revoking += (pinned != 0) - s->revoking;
	s->revoking = pinned != 0;
	if (event.tiers)
		turn_feed(t, &event);
}

void connection_dead(struct front *f, struct turn *t, struct connection *s)
{
	struct core_event event = { .kind = CORE_EV_CLIENT_DEAD, .client = s->id };

	assert(s->state == CONNECTION_GONE);
	turn_feed(t, &event);
	object_process_dead(f, s);
	close_fd(f, &s->pidfd, true);
	f->revoking -= s->revoking;
	f->former -= s->former;
	s->revoking = s->former = false;
	s->state = CONNECTION_DEAD;
	s->mark = f->config.ops->jobs_mark(f->config.shell);
	f->dead++;
}

bool connection_holds_nothing(const struct connection *s)
{
	for (uint32_t i = 0; i < s->readers_max; i++) {
		const struct abi_reader *r = &s->readers[i];
		uint32_t high = atomic_load_acquire_u32(&r->high_water);

		if (atomic_load_acquire_u64(&r->era_done) < atomic_load_acquire_u64(&r->era_begin))
			return false;
		for (uint32_t k = 0; k < high && k < ABI_HAZARD_SLOTS; k++)
			if (atomic_load_acquire_u64(&r->slot[k]))
				return false;
	}
	return true;
}

/* Said goodbye (R4), and no reader open and no hazard word set. */
static bool quiet(const struct connection *s)
{
	if (!atomic_load_acquire_u32(&s->header->goodbye))
		return false;
	for (uint32_t i = 0; i < s->readers_max; i++)
		if (atomic_load_acquire_u32(&s->readers[i].owned))
			return false;
	return connection_holds_nothing(s);
}

void connection_end(struct front *f, struct turn *t, struct connection *s, int error,
		    const char *why)
{
	if (s->state == CONNECTION_GREETING) {
		connection_free(f, s);
		return;
	}
	if (s->state != CONNECTION_OPEN)
		return;
	if (error)
		log_warn(f->config.log, "connection ended", s->name, why,
			 "client=%u pid=%d errno=%d", s->id, s->pid, -error);
	else
		log_info(f->config.log, "client left", s->name, "client=%u pid=%d taken=%llu",
			 s->id, s->pid, (unsigned long long)s->taken);
	gone(f, t, s, error);
	if (!error && quiet(s))
		connection_dead(f, t, s);
}

void connection_process_dead(struct front *f, struct turn *t, struct connection *s)
{
	connection_end(f, t, s, 0, "");
	if (s->state == CONNECTION_GONE)
		connection_dead(f, t, s);
}

void connection_reap(struct front *f)
{
	for (uint32_t i = 0; f->dead && i < f->config.clients_max; i++) {
		struct connection *s = &f->connection[i];

		if (s->state == CONNECTION_DEAD &&
		    f->config.ops->jobs_passed(f->config.shell, s->mark) &&
		    core_client_over(f->config.core, s->id))
			connection_free(f, s);
	}
}

/* ---- the front as a whole ------------------------------------------------------------------ */

int front_open(struct front **out, const struct front_config *config)
{
	struct front *f = calloc(1, sizeof(*f));
	int rc = -ENOMEM;

	if (!f)
		return rc;
	f->config = *config;
	f->listener = -1;
	f->peer_pidfd = listen_has_pidfd();
	f->slots = config->clients_max + FRONT_LOBBY;
	list_init(&f->watched);
	list_init(&f->posted);
	f->connection = calloc(f->slots, sizeof(*f->connection));
	f->pending_max = config->clients_max + FRONT_LOBBY;
	f->pending = calloc(f->pending_max, sizeof(*f->pending));
	if (!f->connection || !f->pending)
		goto free_tables;
	for (uint32_t i = 0; i < f->slots; i++) {
		f->connection[i].id = i;
		slot_clear(&f->connection[i]);
	}
	rc = -EMFILE;
	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	f->spare_fd = eventfd(0, EFD_CLOEXEC);
	if (f->epoll < 0 || f->spare_fd < 0)
		goto close_fds;
	rc = ring_out_open(f);
	if (rc)
		goto close_fds;
	*out = f;
	return 0;

close_fds:
	close_fd(f, &f->epoll, false);
	close_fd(f, &f->spare_fd, false);
free_tables:
	free(f->connection);
	free(f->pending);
	free(f);
	return rc;
}

void front_close(struct front *f)
{
	listen_stop(f);
	for (uint32_t i = 0; i < f->slots; i++)
		if (f->connection[i].state != CONNECTION_FREE)
			connection_free(f, &f->connection[i]);
	ring_out_close(f);
	close_fd(f, &f->epoll, false);
	close_fd(f, &f->spare_fd, false);
	free(f->connection);
	free(f->pending);
	free(f);
}

static void empty_lobby(struct front *f)
{
	for (uint32_t i = f->config.clients_max; i < f->slots; i++)
		if (f->connection[i].state == CONNECTION_GREETING)
			connection_free(f, &f->connection[i]);
}

void front_unlisten(struct front *f)
{
	f->closing = true;
	listen_stop(f);
	empty_lobby(f);
}

bool front_answered(const struct front *f)
{
	if (f->greeting)
		return false;
	for (uint32_t i = 0; i < f->config.clients_max; i++) {
		const struct connection *s = &f->connection[i];

		if (s->state == CONNECTION_OPEN && (s->in_flight || s->asking || s->text))
			return false;
	}
	return true;
}

void front_end(struct front *f, struct turn *t, uint32_t client, int error, const char *why)
{
	struct connection *s = client < f->config.clients_max ? &f->connection[client] : NULL;

	if (!s)
		return;
	connection_end(f, t, s, error, why);
	if (error == -EDQUOT && s->state == CONNECTION_GONE)
		take_back(f, t, s);
}

void front_end_all(struct front *f, struct turn *t, int error)
{
	empty_lobby(f); /* one that came later would not see the end */
	for (uint32_t i = 0; i < f->config.clients_max; i++)
		if (f->connection[i].state == CONNECTION_OPEN)
			gone(f, t, &f->connection[i], error);
}

void front_tick(struct front *f, struct turn *t)
{
	if (f->dead)
		connection_reap(f);
	if (f->revoking && t->now_ns >= f->revoke_next_ns) {
		f->revoke_next_ns = t->now_ns + FRONT_REVOKE_NS;
		for (uint32_t i = 0; i < f->config.clients_max; i++)
			if (f->connection[i].revoking)
				take_back(f, t, &f->connection[i]);
	}
	if (f->former && t->now_ns >= f->former_next_ns)
		handover_look(f, t);
	for (uint32_t i = f->config.clients_max; f->greeting && i < f->slots; i++) {
		struct connection *s = &f->connection[i];

		if (s->state == CONNECTION_GREETING &&
		    t->now_ns - s->since_ns > CONNECTION_GREETING_NS)
			connection_free(f, s);
	}
}

uint64_t front_next(const struct front *f)
{
	if (f->listings)
		return 0;
	/* Coarse on purpose: all are rare and none is urgent. */
	if (f->full)
		return FRONT_FULL_NS;
	if (f->dead || f->revoking || f->former)
		return FRONT_REVOKE_NS;
	return f->greeting ? CONNECTION_GREETING_NS / 5 : UINT64_MAX;
}
