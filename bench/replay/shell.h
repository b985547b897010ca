/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real core with a shell that does nothing and says at once that it was done: its index, put,
 * eviction, reclaim and policy run as in the daemon, while pages and staging are addresses only, of
 * which no byte is touched. One client, which looks blocks up in the shared index and writes its
 * access log as libtier does. Knows nothing of traces; keys are 32 bytes each.
 */
#ifndef TIER_BENCH_REPLAY_SHELL_H
#define TIER_BENCH_REPLAY_SHELL_H

#include <stdbool.h>
#include <stdint.h>

struct shell;

struct shell_options {
	const char *policy;
	uint32_t page_bytes; /* of a block, which is one page */
	uint32_t block_tokens;
	uint64_t bytes;	     /* of the memory tier */
	uint32_t put_blocks; /* of one put, at most */
	uint64_t nvme_bytes; /* of the store, its overhead included; 0 = none */
	uint64_t nvme_segment; /* 0 = as for a store of that size */
	uint64_t nvme_quota;   /* what the context may hold of it; 0 = all */
	bool admit_all;	     /* every block is written to it */
	bool durable;	     /* puts are, and are answered when they are */
	uint64_t pace_ns;    /* from prompt to prompt on the core's clock; 0 = 20 ms */
};

/* Errors: -ENOMEM, -EINVAL (said on standard error). */
int shell_open(struct shell **out, const struct shell_options *options);
void shell_close(struct shell *s);

/*
 * Read the blocks from key[0] on until one is not stored; what is on NVMe alone is fetched to
 * memory first. Returns how many were there.
 */
uint32_t shell_read(struct shell *s, const uint8_t (*key)[32], uint32_t count);

/*
 * Put key[first ... first + count) of a prompt, whose block before is key[first - 1]. 0 also when
 * not all of them found room. Errors: what the core said.
 */
int shell_put(struct shell *s, const uint8_t (*key)[32], uint32_t first, uint32_t count);

/* Delete blocks; answered when that is durable. Errors: what the core said. */
int shell_delete(struct shell *s, const uint8_t (*key)[32], uint32_t count);

struct shell_counts {
	uint64_t put_blocks, dropped_blocks, access_lost;
	uint64_t fetched_blocks;
	uint64_t device_bytes; /* written to NVMe, all in all */
	uint64_t stored_bytes; /* of blocks that are there now */
};
void shell_counts(const struct shell *s, struct shell_counts *out);

#endif
