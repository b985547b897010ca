/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user may keep KV blocks in instead of tier, each behind the same few calls: an instance of
 * its own, started in a temporary directory at the settings that its documentation gives for large
 * values, and a client that hands bytes over with as few copies as the protocol allows.
 */
#ifndef TIER_BENCH_PEERS_PEER_H
#define TIER_BENCH_PEERS_PEER_H

#include "bench/bench.h"

#define PEER_PAGE_BYTES 65536u
#define PEER_PIDS 3u
#define PEER_KEY_BYTES 65u /* 64 hexadecimal digits of the block's key, NUL */

/* The same for every peer of a run. */
struct peer_spec {
	struct bench *bench;
	const char *dir;	 /* of its own: sockets, logs, stores */
	const char *shm;	 /* the same on tmpfs; NULL = there is none */
	uint32_t block_bytes;	 /* a multiple of PEER_PAGE_BYTES */
	uint32_t blocks;	 /* numbered from 0; block i has the key pool_key(i) */
	uint64_t memory_bytes;	 /* what it may hold in memory */
	uint64_t flash_bytes;	 /* on flash, beside memory; 0 = memory only */
	int memory_fd;		 /* where bytes come from and go to: */
	uint8_t *memory;	 /* memory_fd mapped, */
	uint64_t memory_at_most; /* so many bytes */
};

struct peer;

/* Blocks of one request, where they lie: read in place. 0, or what visit then returns. */
typedef int peer_reader(void *arg, uint32_t block, uint32_t page, const uint8_t *bytes);

/*
 * All return 0 or a negative errno and have said why. A request is a run of blocks first, first + 1
 * ..., which the peer may batch, overlap and reorder as it likes; it is done when this returns.
 * Bytes come from, and go to, spec->memory.
 */
struct peer_ops {
	const char *name;
	const char *needs; /* the program that must be installed; NULL = none */
	const char *install; /* how; NULL = make setup-peers */
	int (*open)(struct peer *p);
	/* In a child, of an open one: a client of its own to the same servers, in p->state, until
	 * the child ends. NULL: what it keeps is one client's. */
	int (*join)(struct peer *p);
	/* Store blocks; whoever looks them up from now on finds them. */
	int (*put)(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from);
	/* Copy blocks to `to`. -ENODATA: one is not there. */
	int (*get)(struct peer *p, uint32_t first, uint32_t count, uint8_t *to);
	/* Show each page where it lies; NULL: it can only be copied. */
	int (*visit)(struct peer *p, uint32_t first, uint32_t count, peer_reader *read, void *arg);
	/* How many of the blocks are there, from the first. */
	int (*find)(struct peer *p, uint32_t first, uint32_t count);
	int (*remove)(struct peer *p, uint32_t first, uint32_t count);
	void (*close)(struct peer *p);
	/* The server ends well and begins again, at *began_ns, over what it left; NULL: close,
	 * open. */
	int (*restart)(struct peer *p, uint64_t *began_ns);
};

struct peer {
	const struct peer_ops *ops;
	struct peer_spec spec;
	void *state;
	char label[BENCH_TEXT]; /* name and version, once open */
	char settings[4096];	/* what was set, and why */
	pid_t pid[PEER_PIDS];	/* its servers */
	pid_t client;		/* its client, when that is another process */
	uint64_t took_ns;	/* by such a client's clock, the last call; else 0 */
};

extern const struct peer_ops peer_tier, peer_redis, peer_memcached, peer_mooncake,
	peer_mooncake_tcp, peer_tmpfs, peer_direct, peer_lmcache, peer_lmcache_disk,
	peer_lmcache_server;

/* The key of a block in text, for peers whose keys are text. */
void peer_key(char out[PEER_KEY_BYTES], uint32_t block);

/* Open it, unless what it needs is not there, or a light run leaves it out: -ECANCELED. */
int peer_open(struct peer *p);

/* Why one is left out that could not be opened, or failed. */
void peer_why(char why[BENCH_TEXT], const struct peer_ops *ops, int error);

/* The bytes of blocks first ..., and whether they are right. Errors: -EBADMSG, said. */
void peer_fill(uint8_t *at, uint32_t blocks, uint32_t block_bytes);
int peer_verify(const struct peer *p, uint32_t first, uint32_t count, const uint8_t *at);

/* Memory that children share, NULL = none. */
uint8_t *peer_memory(int *fd, uint64_t bytes);

#endif
