/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket: bind it (replacing what a dead daemon left), accept, find out who the peer
 * is. A peer under the overflow uid is somebody whose real uid we cannot know (an unmapped user of
 * a container): it is refused, since all of these would be one user.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "tierd/front/front_priv.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define BACKLOG 128
#define OVERFLOW_UID 65534u
#define ACCEPT_BATCH 16

/* ---- the socket ---------------------------------------------------------------------------- */

static void address_of(const char *path, struct sockaddr_un *at)
{
	*at = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(at->sun_path, sizeof(at->sun_path), "%s", path);
}

/* 0: nothing is there, 1: a socket that nobody listens on any more. */
static int look_at(const struct sockaddr_un *at, char *why)
{
	int fd CLEANUP_CLOSE = -1;
	struct stat st;

	if (lstat(at->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, FRONT_WHY_BYTES, "something that is not a socket is there; remove "
						"it or give another path");
		return -EEXIST;
	}
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0 || errno != ECONNREFUSED) {
		snprintf(why, FRONT_WHY_BYTES, "another daemon listens there; stop it or give "
						"another path");
		return -EADDRINUSE;
	}
	return 1;
}

int front_look(const char *path, char why[FRONT_WHY_BYTES])
{
	struct sockaddr_un at;
	int rc;

	address_of(path, &at);
	rc = look_at(&at, why);
	return rc == -EEXIST || rc == -EADDRINUSE ? rc : 0;
}

/* It listens already, where it should: a former daemon's. */
static bool listens(const struct front *f)
{
	struct sockaddr_un at = { .sun_family = 0 };
	socklen_t bytes = sizeof(at), len = sizeof(int);
	int on = 0;

	return f->config.listening > 0 &&
	       !getsockname(f->config.listening, (struct sockaddr *)&at, &bytes) &&
	       at.sun_family == AF_UNIX && strcmp(at.sun_path, f->config.socket) == 0 &&
	       !getsockopt(f->config.listening, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) && on;
}

static int take_socket(struct front *f)
{
	int rc = watch_add(f, NULL, WATCH_LISTEN, f->config.listening, EPOLLIN);

	if (rc == 0 && chmod(f->config.socket, f->config.socket_mode))
		rc = -errno;
	f->listener = f->config.listening;
	snprintf(f->bound, sizeof(f->bound), "%s", f->config.socket);
	return rc;
}

int front_leave_socket(struct front *f)
{
	int fd = f->listener;

	f->bound[0] = '\0';
	f->closing = f->handing = true;
	watch_remove(f, fd);
	f->listener = -1;
	return fd;
}

int front_listen(struct front *f, char why[FRONT_WHY_BYTES])
{
	int fd CLEANUP_CLOSE = -1;
	struct sockaddr_un at;
	mode_t mask;
	int rc;

	if (listens(f))
		return take_socket(f);
	if (f->config.listening > 0)
		close(f->config.listening);
	address_of(f->config.socket, &at);
	snprintf(why, FRONT_WHY_BYTES, "see that the folder exists and may be written");
	rc = look_at(&at, why);
	if (rc > 0)
		rc = unlink(at.sun_path) ? -errno : 0;
	if (rc)
		return rc;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	mask = umask(0177);
	rc = bind(fd, (struct sockaddr *)&at, sizeof(at)) ? -errno : 0;
	umask(mask);
	if (rc)
		return rc;
	memcpy(f->bound, at.sun_path, sizeof(f->bound));
	if (chmod(at.sun_path, f->config.socket_mode) || listen(fd, BACKLOG))
		return -errno;
	rc = watch_add(f, NULL, WATCH_LISTEN, fd, EPOLLIN);
	if (rc)
		return rc;
	f->listener = take_fd(&fd);
	return 0;
}

void listen_stop(struct front *f)
{
	/* While we listen nobody else takes the path: what is unlinked here is ours. */
	if (f->bound[0])
		unlink(f->bound);
	f->bound[0] = '\0';
	if (f->listener >= 0) {
		watch_remove(f, f->listener);
		close(f->listener);
		f->listener = -1;
	}
}

/* ---- peers --------------------------------------------------------------------------------- */

bool listen_has_pidfd(void)
{
	socklen_t len = sizeof(int);
	int pair[2], fd = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return false;
	if (getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		close(fd);
	close(pair[0]);
	close(pair[1]);
	return fd >= 0;
}

static int peer_pidfd(const struct front *f, int sock, int32_t pid)
{
	socklen_t len = sizeof(int);
	int fd;

	if (f->peer_pidfd)
		return getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) ? -errno : fd;
	/* Before 6.5: by number, at once; the peer has just connected and waits for us. */
	fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	return fd >= 0 ? fd : -ESRCH;
}

static void refuse(struct front *f, uint32_t uid, const char *what, const char *advice)
{
	char object[32];

	snprintf(object, sizeof(object), "uid %u", uid);
	log_warn(f->config.log, what, object, advice, "");
}

static void greet(struct front *f, struct turn *t, int sock)
{
	struct ucred peer = { .pid = 0 };
	socklen_t len = sizeof(peer);
	int fd CLEANUP_CLOSE = sock;
	int pidfd CLEANUP_CLOSE = -1;
	struct connection *s;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return;
	if (peer.uid == OVERFLOW_UID) {
		refuse(f, peer.uid, "client refused: its user is not mapped here",
		       "run it under a user that this host knows");
		return;
	}
	pidfd = peer_pidfd(f, fd, peer.pid);
	if (pidfd < 0) {
		refuse(f, peer.uid, "client refused: its process cannot be watched",
		       "run it in a pid namespace that the daemon sees");
		return;
	}
	s = connection_greet(f, t);
	s->sock = take_fd(&fd);
	s->pidfd = take_fd(&pidfd);
	s->uid = peer.uid;
	s->gid = peer.gid;
	s->pid = peer.pid;
	s->operator_ = peer.uid == 0 || peer.uid == geteuid();
	s->events = EPOLLIN;
	if (watch_add(f, s, WATCH_SOCKET, s->sock, EPOLLIN | EPOLLRDHUP) ||
	    watch_add(f, s, WATCH_PROCESS, s->pidfd, EPOLLIN))
		connection_free(f, s);
}

/* No descriptor left: take the caller off the queue all the same, or the loop would spin. */
static void turn_away(struct front *f)
{
	int fd;

	close(f->spare_fd);
	fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	f->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	log_warn(f->config.log, "client turned away: no descriptors left", f->config.socket,
		 "raise the limit of open files (LimitNOFILE)", "");
}

void listen_accept(struct front *f, struct turn *t)
{
	for (int i = 0; i < ACCEPT_BATCH && f->listener >= 0; i++) {
		int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			greet(f, t, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE)
			turn_away(f);
		return;
	}
}
