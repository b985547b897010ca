/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What world.c (life) and device.c (the store's device) share. One struct, made by world_run.
 */
#ifndef TESTS_SIM_WORLD_PRIV_H
#define TESTS_SIM_WORLD_PRIV_H

#include "libtier/base/crc32c.h"
#include "tests/sim/world.h"
#include "tierd/core/store.h"

#define STAGING_ARGS (1u << 20) /* bytes of puts below, arguments from here on */
#define STAGING_BYTES (2u << 20)

struct world_put {
	uint32_t stage; /* 0 none, 1 reserving, 2 reserved, 3 committing */
	uint32_t first, count;
	bool durable;
	uint64_t handle;
};

struct world_client {
	uint8_t *staging;
	struct abi_reader *reader;
	struct world_put put;
	bool fetching, deleting;
	uint64_t pin;
};

struct world_lease {
	uint64_t *slot;
	const uint8_t *data; /* NULL = none */
	uint32_t n, page;
};

struct world {
	const struct world_options *options;
	struct world_result *result;
	uint64_t random, now_ns;
	struct core *core;
	uint8_t *index;
	const struct abi_index_header *index_header;
	uint8_t *mem[ABI_MEM_TIERS];
	uint32_t context_id;
	struct abi_geometry geometry;
	struct core_action *bag;
	uint32_t bag_count;
	struct world_client client[WORLD_CLIENTS];
	struct world_lease lease[WORLD_LEASES];
	bool durable[WORLD_KEYS]; /* acknowledged so, and not deleted since */

	/* device.c */
	struct disk_super super;
	uint8_t *disk;    /* what reads see */
	uint8_t *stable;  /* what survives a crash for sure */
	uint8_t *unstable; /* by sector: written since the last flush */
};

void world_fail(struct world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t world_random(struct world *w);
uint32_t world_below(struct world *w, uint32_t n);
void world_event(struct world *w, struct core_event *e);
void world_key(uint32_t n, uint8_t key[ABI_KEY_BYTES]);

void device_open(struct world *w);
void device_close(struct world *w);
void device_io(struct world *w, struct core_io *io);
void device_flush(struct world *w);
void device_crash(struct world *w);
bool device_catalog(struct world *w, const struct disk_catalog **head,
		    const struct disk_context **list);
void device_recover(struct world *w);

#endif
