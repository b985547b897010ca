/* SPDX-License-Identifier: Apache-2.0 */
/* What Redis and memcached have in common: a pipeline of commands, one a key, then the replies. */
#ifndef TIER_BENCH_PEERS_TEXT_H
#define TIER_BENCH_PEERS_TEXT_H

#include "bench/peers/peer.h"
#include "bench/peers/wire.h"

enum text_verb { TEXT_SET, TEXT_GET, TEXT_FIND, TEXT_REMOVE };

struct text {
	struct wire wire;
	char log[SERVICE_PATH_BYTES], socket[SERVICE_PATH_BYTES];
	/* Write the command; of TEXT_SET all that comes before the value. */
	int (*command)(struct wire *w, enum text_verb verb, const char *key, uint32_t bytes);
	/* What a good reply begins with (of TEXT_GET: before the value's length), and a miss. */
	const char *good[4], *miss[4];
};

int text_put(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from);
int text_get(struct peer *p, uint32_t first, uint32_t count, uint8_t *to);
int text_find(struct peer *p, uint32_t first, uint32_t count);
int text_remove(struct peer *p, uint32_t first, uint32_t count);

/* Start argv, connect to the socket it makes. What it says when it does not come up is printed. */
int text_open(struct peer *p, const char *const argv[], const char *socket);
int text_join(struct peer *p);
void text_close(struct peer *p);

#endif
