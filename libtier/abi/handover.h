/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon that ends leaves for the next one: a list, in a memfd, of what lies in the CXL
 * memory of its contexts, and of clients whose leases may outlive it. Memory and indexes, the
 * clients' regions and their pidfds are descriptors beside it, by names.
 *
 *   struct handover_head
 *   each context:  struct handover_context
 *                  each block: struct handover_block, struct handover_page[pages]
 *                  struct handover_page[places]: of no block, and maybe leased
 *   each client:   struct handover_client
 *
 * Life
 *   1. The daemon answers everybody, ends all connections, and waits until no device and no worker
 *      touches memory. It writes the list and takes the word of each page that it lists back (all
 *      of them: a lease of an old client ends, none begins), then the head with its sum.
 *   2. The descriptors go to the next daemon: through exec, or through the service manager's store.
 *   3. That one judges the list (Y1), sets taken, recovers its store, then takes the blocks: a
 *      block that recovery found gets its pages back, any other one is dirty.
 *   4. Old clients count as gone and not dead: their hazard words keep what they name.
 *
 * Invariants
 *   Y1  A list counts once, whole, and only between daemons of one version of this format: magic,
 *       version and sum are right, and taken is 0. A daemon that ends in the middle leaves nothing.
 *   Y2  A context's memory counts if the catalog has its uid, epoch and geometry, and if places lie
 *       there as they did: slabs of one size, a file of one length.
 *   Y3  What is not taken is a miss. No place that an old client may read becomes another's before
 *       a fence and a scan of that client's slots.
 *   Y4  Where a context's index was left, too, a block gets the slot and generation that it had, no
 *       other block ever has both, and the new index says the same life (abi/index.h): a client's
 *       references go on.
 */
#ifndef TIER_ABI_HANDOVER_H
#define TIER_ABI_HANDOVER_H

#include "libtier/abi/disk.h"

#define HANDOVER_MAGIC 0x314f444e48524954ull /* "TIRHNDO1" */
#define HANDOVER_VERSION 2u
#define HANDOVER_NAME_BYTES 32u

/* Names of descriptors: one of these, and a context's or client's number in the list; its own: 0 */
#define HANDOVER_LIST "tier-handover-"
#define HANDOVER_MEMORY "tier-cxl-"
#define HANDOVER_INDEX "tier-index-"
#define HANDOVER_REGION "tier-region-"
#define HANDOVER_PROCESS "tier-process-"
#define HANDOVER_SOCKET "tier-socket-" /* 0: where clients queue up meanwhile */

struct handover_head {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* over all, with crc and taken zero */
	uint32_t taken;
	uint32_t contexts;
	uint32_t clients;
	uint32_t reserved0;
	uint64_t bytes; /* of all */
	uint64_t boot_token;
	uint64_t capacity; /* of CXL: a daemon with less takes nothing */
	uint64_t reserved;
}; /* 64 bytes */

struct handover_context {
	uint32_t id;
	uint32_t places;
	uint64_t blocks;
	uint64_t bytes; /* with this struct */
	uint64_t mem_bytes;
	uint64_t slab_bytes;
	uint64_t slots; /* of its index that were used */
	uint64_t reserved[2];
	struct disk_context spec;
}; /* 4160 bytes */

#define HANDOVER_DURABLE 1u /* a put asked for durability */
struct handover_block {
	uint8_t key[ABI_KEY_BYTES];
	uint8_t parent[ABI_KEY_BYTES]; /* zero: none known */
	uint64_t salt;
	uint32_t depth;
	uint32_t parts;
	uint32_t keep; /* as disk_block.keep */
	uint32_t flags; /* HANDOVER_* */
	uint32_t pages; /* that lie in memory */
	uint32_t reserved;
}; /* 96 bytes */

struct handover_page {
	uint64_t offset; /* in the context's memory */
	uint32_t page;   /* of its block, or one of the same size */
	uint32_t crc;    /* D5; of a place: zero */
}; /* 16 bytes */

struct handover_client {
	uint32_t uid, gid;
	int32_t pid;
	uint32_t readers_max;
	uint64_t region_bytes;
	uint64_t reader_offset;
	char name[32];
	uint64_t attached[ABI_CONTEXTS_MAX / 64]; /* bits: indexes of contexts that it has open */
}; /* 2112 bytes */

#endif
