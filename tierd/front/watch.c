/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epoll set of the front: the listening socket, and for each connection its socket, its process
 * and its doorbell. What is reported carries slot and generation, so that a report about a
 * connection that has ended meanwhile finds nobody.
 *
 * Doorbells are watched edge-triggered and never read: the client holds the same open file and
 * could make a read of ours block.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/front/front_priv.h"

#define WATCH_BATCH 64
#define USER_NS (200 * NS_PER_US) /* a turn: who took longer with questions asks on in the next */

static uint64_t pack(const struct connection *s, enum watch_kind kind)
{
	uint64_t id = s ? s->id : 0;
	uint64_t generation = s ? s->generation : 0;

	return (uint64_t)kind << 56 | id << 32 | generation;
}

int watch_add(struct front *f, const struct connection *s, enum watch_kind kind, int fd,
	      uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = pack(s, kind) };

	return epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

void watch_change(struct front *f, const struct connection *s, enum watch_kind kind, int fd,
		  uint32_t events)
{
	struct epoll_event e = { .events = events, .data.u64 = pack(s, kind) };

	epoll_ctl(f->epoll, EPOLL_CTL_MOD, fd, &e);
}

void watch_remove(struct front *f, int fd)
{
	epoll_ctl(f->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void watch_socket(struct front *f, struct connection *s, uint32_t events)
{
	if (s->sock < 0 || s->events == events)
		return;
	s->events = events;
	watch_change(f, s, WATCH_SOCKET, s->sock, events | EPOLLRDHUP);
}

/*
 * What users' questions took of this turn. A question is one message, but one user may have
 * hundreds of connections that all ask: what is put off is still there to be reported, and comes in
 * turn.
 */
struct spent {
	uint32_t users;
	struct {
		uint32_t uid;
		uint64_t ns;
	} user[WATCH_BATCH];
};

static uint64_t *spent_by(struct spent *all, uint32_t uid)
{
	uint32_t i = 0;

	while (i < all->users && all->user[i].uid != uid)
		i++;
	if (i == all->users) {
		all->user[i].uid = uid;
		all->user[i].ns = 0;
		all->users++;
	}
	return &all->user[i].ns;
}

static void socket_event(struct front *f, struct turn *t, struct connection *s, uint32_t events,
			 struct spent *all)
{
	uint64_t *spent = spent_by(all, s->uid), begun;

	if (s->sock < 0)
		return;
	if (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) {
		connection_end(f, t, s, 0, "hung up");
		return;
	}
	if (*spent >= USER_NS)
		return;
	begun = time_now_ns();
	if (events & EPOLLOUT)
		admin_continue(f, t, s);
	else if (events & EPOLLIN)
		control_receive(f, t, s);
	*spent += time_now_ns() - begun;
}

static void doorbell_event(struct front *f, struct turn *t, struct connection *s)
{
	int rc = grant_settle(s);

	if (rc)
		connection_end(f, t, s, rc, grant_unsettled(rc));
	else
		ring_watch(f, s, t->now_ns);
}

static void report(struct front *f, struct turn *t, const struct epoll_event *e,
		   struct spent *spent)
{
	enum watch_kind kind = (enum watch_kind)(e->data.u64 >> 56);
	struct connection *s;

	if (kind == WATCH_LISTEN) {
		listen_accept(f, t);
		return;
	}
	s = connection_find(f, (uint32_t)(e->data.u64 >> 32) & 0xffffff, (uint32_t)e->data.u64);
	if (!s)
		return;
	if (kind == WATCH_SOCKET)
		socket_event(f, t, s, e->events, spent);
	else if (kind == WATCH_PROCESS)
		connection_process_dead(f, t, s);
	else if (kind == WATCH_DOORBELL && s->state == CONNECTION_OPEN)
		doorbell_event(f, t, s);
}

void front_events(struct front *f, struct turn *t)
{
	struct epoll_event events[WATCH_BATCH];
	int count = epoll_wait(f->epoll, events, WATCH_BATCH, 0);
	struct spent spent;

	spent.users = 0;
	for (int i = 0; i < count; i++)
		report(f, t, &events[i], &spent);
}

int front_fd(const struct front *f)
{
	return f->epoll;
}
