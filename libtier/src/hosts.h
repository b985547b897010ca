/*
 * How libtier speaks with tierd-net: shared by calls with one answer (hosts.c), streams from afar
 * (far.c) and standing grants (grant.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_SRC_HOSTS_H
#define TIER_SRC_HOSTS_H

#include "libtier/abi/net.h"
#include "libtier/src/connection.h"

#define HOSTS_GRACE_NS (5 * NS_PER_MS) /* for the answer that it is late */

/* What tierd-net says to an engine. */
union hosts_answer {
	struct net_header header;
	struct net_placed placed;
	struct net_word word;
	struct {
		struct net_picked m;
		struct net_picked_page page[NET_FRAME_PAGES_MAX];
	} picked;
};

/* Has it a size? NULL is fine. */
int hosts_check_out(const struct tier_hosts *out);
int hosts_send(int fd, const struct net_header *m, uint64_t deadline_ns);
/*
 * The next message, PLACED or (where passed is not NULL) LAYER or PICKED; *passed: the descriptor
 * that came with it, if *passed was negative and one did. -ENOTCONN, -ETIMEDOUT, -EPROTO.
 */
int hosts_receive(int fd, union hosts_answer *m, int *passed, uint64_t deadline_ns);
void hosts_tell(struct tier_hosts *out, const struct net_placed *m);

/* STREAM or OPEN, begun: a connection of its own, and the memory that what comes will lie in. */
struct hosts_begun {
	uint16_t type;
	int fd, memory; /* -1: none */
	uint64_t deadline_ns;
};

/* How many blocks come; 0: none does, *out says why. */
int64_t hosts_begin(tier_context *c, const tier_key *keys, uint32_t count,
		    const struct tier_hosts_options *options, struct tier_hosts *out,
		    struct hosts_begun *begun);
/* What was not taken of it. */
void hosts_begun_close(struct hosts_begun *begun);
/* Memory that tierd-net passed, for reading alone. */
int hosts_map(int memory, uint64_t bytes, const void **at);

#endif
