/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small host around the real core: a device in memory, three kinds of contexts, three clients. It
 * carries the core's actions out, at once or when it is told to, and looks at what the core asks
 * for: device operations inside the device, scans that miss no hazard word, ranges inside a
 * context's memory. Used by the targets that need a core; tests/sim has the faithful world.
 */
#ifndef TIER_TESTS_FUZZ_HOST_H
#define TIER_TESTS_FUZZ_HOST_H

#include "tierd/core/core.h"
#include "tierd/core/unit/store.h"
#include "tests/fuzz/fuzz.h"

#define HOST_CLIENTS 3u
#define HOST_CONTEXTS 4u
#define HOST_KIND_STORE 0u  /* 4 KiB pages, has NVMe: 2 kv, 1 index, 1 state page a block */
#define HOST_KIND_MEMORY 1u /* pages of 512 and 1024 bytes, memory only */
#define HOST_KIND_LARGE 2u  /* 12 KiB pages: a few puts fill its tiers */
#define HOST_BAG 8192u
#define HOST_STAGING (1u << 20)
#define HOST_READERS 2u
#define HOST_LINES 2u /* streams of a client */
#define HOST_HBM (6u << 20)
#define HOST_CXL (10u << 20)
#define HOST_CATALOG (32u << 10)  /* seven contexts */
#define HOST_SEGMENTS 12u
#define HOST_SEGMENT (128u << 10)
#define HOST_SUMMARY (32u << 10)
#define HOST_NVME ((8u << 10) + 2 * HOST_CATALOG + HOST_SEGMENTS * HOST_SEGMENT)
#define HOST_PUT_DATA 4096u /* of the staging: where host_commit says that the bytes are */
#define HOST_OWNER 7u /* uid of clients and contexts */

/* What befalls the next device operation or copy. */
enum host_fault { HOST_WELL, HOST_FAILS, HOST_SHORT, HOST_ROTTEN };

struct host_client {
	uint32_t state; /* 0 none, 1 open, 2 connection gone, process there */
	uint8_t *staging;
	struct abi_reader *readers;
	struct abi_stream *lines;
};

struct host_context {
	bool made, removing;
	uint32_t id;
	uint32_t attached; /* bit i: client i */
	void *index;
	uint8_t *mem[ABI_MEM_TIERS];
	uint64_t mem_bytes[ABI_MEM_TIERS];
	struct disk_context spec;
};

/* Told of what the core answers; any may be NULL. */
struct host_ears {
	void (*complete)(void *arg, uint32_t client, const struct abi_cqe *cqe);
	void (*reply)(void *arg, uint64_t token, int32_t res, uint64_t value);
	void (*end)(void *arg, uint32_t client, int32_t error, const char *why);
	void (*wake)(void *arg, uint32_t client);
	void (*prepare)(void *arg, const struct core_range *range);
	void *arg;
};

struct host {
	struct core *core;
	uint64_t now_ns;
	struct disk_super super;
	uint8_t *disk;
	uint64_t disk_bytes; /* HOST_NVME, unless a test brings its own */
	uint64_t staging_bytes; /* of each client: HOST_STAGING, likewise */
	uint32_t uid;  /* of clients that open; 0 = HOST_OWNER */
	bool held;     /* actions wait in the bag for host_carry */
	uint64_t cxl_bytes; /* of what is booted next: so much CXL (0 = HOST_CXL) */
	uint64_t table_bytes; /* ... and so much for tables (0 = no limit) */
	uint32_t walk_items;  /* ... and so many items for walks in an event (0 = the usual) */
	bool discard;  /* its device takes discards, */
	int discard_res; /* ... and answers so */
	bool blind;    /* others open clients: scans are not checked */
	const uint8_t *gone; /* memory of a page: no write that has it can read it */
	enum host_fault fault;
	struct core_action *bag;
	uint32_t bag_count;
	struct host_ears ears;
	struct abi_cqe answer; /* the last completion */
	struct host_client client[HOST_CLIENTS];
	struct host_context context[HOST_CONTEXTS];
};

/* Once: the memory. */
void host_init(struct host *h);

/* A core on what the device holds; no context, no client. catalog: of the device, or NULL. */
void host_boot(struct host *h, const struct disk_catalog *catalog);
void host_halt(struct host *h);

/* The spec of a new context of this kind, named after i. */
void host_spec(struct disk_context *spec, uint32_t kind, uint32_t i);

/* Make context i and let the catalog name it. Returns the core's answer. */
int host_context_make(struct host *h, uint32_t i, const struct disk_context *spec);
/* The same without carrying anything out; why (256 bytes) says what is wrong with the spec. */
int host_context_create(struct host *h, uint32_t i, const struct disk_context *spec,
			uint64_t token, char *why);
void host_context_remove(struct host *h, uint32_t i);
/* Its bytes are not the core's any more. */
void host_context_free(struct host *h, uint32_t i);
/* By the core's id; NULL = none. */
struct host_context *host_context_of(struct host *h, uint32_t id);

void host_client_open(struct host *h, uint32_t i);
void host_client_attach(struct host *h, uint32_t i);
void host_client_gone(struct host *h, uint32_t i);
void host_client_dead(struct host *h, uint32_t i);

/* Others have fed the core: look at its actions. */
void host_look(struct host *h);

/* Feed an event at the host's time; carry the actions out unless they are held. */
void host_event(struct host *h, struct core_event *e);
void host_tick(struct host *h, uint64_t ns);
/* Feed an entry of a client's ring. False: the core takes none now, or the client is not open. */
bool host_request(struct host *h, uint32_t client, const struct abi_sqe *sqe);

/* Carry out the i-th action of the bag; all of them. */
void host_carry(struct host *h, uint32_t i);
void host_carry_all(struct host *h);

/* A key that hangs on n alone, never zero. */
void host_key(uint32_t n, uint8_t key[ABI_KEY_BYTES]);

/*
 * Client 0 reserves args->count blocks in context 0, with the keys of `first` on; and commits the
 * put that the last answer names. -EBUSY, false: the request was not taken.
 */
int host_reserve(struct host *h, const struct abi_put_args *args, uint32_t first, uint16_t flags);
bool host_commit(struct host *h, uint16_t flags);

/* A client's request about context 0 by `count` keys of `first` on; the rest as sqe has it. */
bool host_request_keys(struct host *h, uint32_t client, struct abi_sqe sqe, uint32_t first,
		       uint32_t count);

/* Let time pass until nothing is under way; false: something still is after `rounds` ticks. */
bool host_settle(struct host *h, uint32_t rounds);

/* Every sum must be right. */
void host_audit(struct host *h);

/* End all clients, remove all contexts, settle: nothing may be left. */
void host_empty(struct host *h);

#endif
