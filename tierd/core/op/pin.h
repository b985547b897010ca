/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: which blocks somebody keeps in a tier, and the calls of pin.c. */
#ifndef TIERD_CORE_OP_PIN_H
#define TIERD_CORE_OP_PIN_H

#include "tierd/core/core.h"

struct context;
struct core;
struct request;
struct meter_pass;

#define CORE_PIN_CHUNKS 65536u
#define CORE_PIN_CHUNK_REFS 62u

struct pin_chunk {
	struct pin_chunk *next;
	uint32_t count;
	struct abi_block_ref ref[CORE_PIN_CHUNK_REFS];
};

struct pin {
	bool used;
	uint32_t client; /* its owner; pins end with the owner's connection */
	uint32_t owner;  /* ... its account in the ledger of clients, which lives as long */
	struct context *ctx;
	uint32_t tier, blocks;
	uint32_t layers; /* 0 = whole blocks */
	uint64_t id, deadline_ns;
	uint64_t bytes; /* asked for, whoever else holds them, also of blocks that went */
	struct pin_chunk *chunk;
	bool ending;    /* nobody finds it any more: what is left of it goes, by pin_work */
	uint32_t next_free; /* ending: 1 + the next one that is */
};

/* What a pin is asked for with. */
struct pin_ask {
	uint32_t client;
	uint32_t tier;
	struct context *ctx;
	uint64_t deadline_ns; /* UINT64_MAX = until unpin */
	uint32_t layers;      /* the first of each part only; 0 = all */
	const struct abi_block_ref *ref;
	uint32_t count;
	uint64_t id;    /* in, out: 0 = begin one */
	uint32_t at;    /* in, out: so many were pinned before */
	uint32_t limit; /* out: whose limit was met, ABI_LIMIT_* */
};

struct pins {
	struct pin *table;
	uint32_t free, count, high, chunks_high;
	uint32_t ending; /* 1 + the first; 0 = none */
	uint32_t looked; /* of the look at deadlines, where it goes on */
	uint64_t next_ns, seq;
	uint64_t bytes[ABI_MEM_TIERS]; /* of all contexts */
	struct pin_chunk *chunk, *chunk_free;
};

uint64_t pin_block_bytes(const struct context *x, uint32_t slot, uint32_t layers);
void pin_lost(struct core *c, struct context *x, uint32_t slot);
void pin_until(struct core *c, struct pin *p, uint64_t deadline_ns);
int64_t pin_take(struct core *c, struct pin_ask *ask);
void pin_end(struct core *c, struct pin *p);
void pin_drop(struct core *c, uint64_t id);
bool pin_leave(struct core *c, uint32_t client, const struct context *x, struct meter_pass *pass);
void pin_work(struct core *c);
void pin_tick(struct core *c);
uint64_t pin_next(const struct core *c);

#endif
