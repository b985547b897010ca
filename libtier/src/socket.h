/*
 * The daemon's socket (libtier/abi/wire.h): connect, ask, get the answer with its descriptors.
 * Every wait has a deadline, and no call raises SIGPIPE. The caller holds the connection's wire
 * lock, for a client has at most one question open (W1).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_SOCKET_H
#define TIER_SRC_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "libtier/abi/wire.h"

#define MESSAGE_FDS_MAX WIRE_SLAB_PIECES_MAX

struct socket {
	int fd; /* -1 = none */
	uint32_t seq;
};

/* An answer. Its descriptors are the receiver's: taken, or closed by message_drop. */
struct message {
	union {
		struct wire_header header;
		struct wire_welcome welcome;
		struct wire_ctx_info info;
		struct wire_done done;
		struct wire_usage_list usage;
		struct wire_slab slab;
		struct wire_place place;
		struct wire_text text;
		struct wire_error error;
		uint8_t bytes[WIRE_MESSAGE_MAX];
	};
	uint32_t fd_count;
	int fd[MESSAGE_FDS_MAX];
};

/* path: one that fits sun_path. Errors: -ENOENT, -ECONNREFUSED, -EACCES, -ETIMEDOUT, -EMFILE ... */
int socket_open(struct socket *s, const char *path, uint64_t deadline_ns);
void socket_close(struct socket *s);

/*
 * Send a question of `bytes` bytes whose header lies at its start (filled in here but for type).
 * Errors: -ENOTCONN the daemon hung up, -ETIMEDOUT.
 */
int socket_send(struct socket *s, struct wire_header *question, size_t bytes, uint64_t deadline_ns);

/*
 * The next answer to the last question; it has at least the size of its type. Errors: -ENOTCONN,
 * -ETIMEDOUT, -EPROTO, -EMFILE (our limit of open files; the connection goes on), or what the
 * daemon answered as an error.
 */
int socket_receive(struct socket *s, struct message *answer, uint16_t type, uint64_t deadline_ns);

void message_drop(struct message *m);

/* Takes descriptor i out of the message. */
int message_take_fd(struct message *m, uint32_t i);

/* Has the other side hung up? One system call. */
bool socket_hung_up(const struct socket *s);

#endif
