/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages by RDMA READ (rdma-core's verbs): one queue pair a connection, in a protection domain of
 * its own, made by a message of that connection (PATH), so by nobody else. What is registered is
 * memory of tierd-net's own and never tierd's, in which a hole can be punched at any time
 * (decisions/047).
 *
 * W1  Memory is given back only after its registration has ended, and after the queue pair that
 *     could write there has; so nobody reads there what came later, and nothing is written late.
 * W2  It is there while a grant is open, not longer; with it goes its key.
 * W3  All of it together is at most --rdma-memory; without room bytes go by TCP.
 *
 * A queue pair belongs to its connection's thread. After an error it is of no use but to be closed.
 */
#ifndef TIERD_NET_VERBS_H
#define TIERD_NET_VERBS_H

#include <stdbool.h>

#include "libtier/abi/net.h"

#define VERBS_FRAME_BYTES (2u << 20) /* what a frame has room for */

struct verbs_device;
struct verbs;

/* Is rdma-core in this build? */
bool verbs_built_in(void);

/*
 * A device by its name; RoCE by the GID that is our address. NULL, with why in text: there is none,
 * or not now.
 */
struct verbs_device *verbs_device(const char *name, const uint8_t address[16], uint64_t bytes_max,
				  char *text, size_t text_bytes);
/* Bytes that are registered at this moment. */
uint64_t verbs_pinned(const struct verbs_device *d);

/*
 * A queue pair that does nothing yet; `ours` says how to reach it. reads: ours reads, the other one
 * is read from. verbs_connect takes what the other end said of its own.
 */
int verbs_open(struct verbs **out, struct verbs_device *d, bool reads, struct net_path *ours);
int verbs_connect(struct verbs *v, const struct net_path *theirs);
void verbs_close(struct verbs *v);

/*
 * Memory for frames, registered: of one who reads, room for one. -ENOBUFS: W3, or what the system
 * lets us lock (RLIMIT_MEMLOCK). It is there until verbs_unlend, or verbs_close.
 */
int verbs_lend(struct verbs *v);
void verbs_unlend(struct verbs *v);
/* The place of a frame, and what the other end must know of it. NULL: nothing is lent. */
uint8_t *verbs_frame(const struct verbs *v, uint32_t frame);
void verbs_tell(const struct verbs *v, uint32_t frame, struct net_places *m);

/*
 * Read the pages of m into our frame 0. -ETIMEDOUT: not by the deadline; -ECANCELED: `stop` became
 * readable; -ENOTCONN: who is at the other end of `line` hung up; -EIO: refused, or not reached.
 */
int verbs_read(struct verbs *v, const struct net_places *m, int stop, int line,
	       uint64_t deadline_ns);

#endif
