/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client region: one memfd a client, made and sealed by the daemon, mapped writable by both.
 *
 *   offset          what
 *   0               struct abi_region_header
 *   sq_offset       submission entries, 64 bytes each, sq_entries of them
 *   cq_offset       completion entries, 32 bytes each, cq_entries of them
 *   reader_offset   struct abi_reader, readers_max of them
 *   stream_offset   struct abi_stream, streams_max of them (ABI_REGION_STREAMS)
 *
 * The staging arena is a second memfd: the client allocates in it as it likes; the daemon copies
 * what an entry names once, then checks the copy (I3).
 *
 * Life of a request
 *   1. The client writes its arguments into the arena, an entry at sq_tail, and raises sq_tail
 *      (release).
 *   2. It reads sq_wake after a full fence; non-zero = the daemon sleeps: write the eventfd.
 *   3. The daemon reads the entry once, raises sq_head, acts, and in the end writes a completion
 *      at cq_tail and raises cq_tail (release); if cq_wait is set it writes the client's eventfd.
 *   4. The client reads the completion and raises cq_head.
 *
 * R1  Arguments in the arena must stay as they are until the request's completion.
 * R2  The daemon takes an entry only while (requests in flight + unread completions) < cq_entries:
 *     completions are never lost; a client that does not read them gets -EAGAIN from its full SQ.
 * R3  Either side clamps what the other wrote: tail - head > entries is a protocol error that ends
 *     the connection.
 *     The counters run through all 32 bits. Where they begin is the daemon's to say: the client
 *     takes sq_tail and cq_head from the header (ABI_RING_BEGIN).
 * R4  A connection that ends with goodbye set is over at once; any other one's leases last until
 *     its process is dead, whatever its slots look like now: a reader may be about to be opened.
 * R5  When it has mapped both memfds the client seals them with ABI_CLIENT_SEALS, before its first
 *     request and its first question about a context: from then on nobody can punch holes, so no
 *     access of the daemon stands in a page fault for as long as a client likes. Who did not is
 *     refused; its memory is not looked at.
 *
 * Life of a stream (ABI_OP_STREAM)
 *   1. The client chooses an abi_stream that it does not use, writes released = generation:32 | 0
 *      and submits the request with that number and generation.
 *   2. The daemon writes layers, usable, ready = 0, then generation (release); as layers come it
 *      lowers usable if it must, then raises ready (release).
 *   3. The client reads generation, ready (both acquire), then usable: of the layers below ready
 *      the first usable blocks are in memory, until it releases them. It sleeps by setting wait,
 *      then looking once more; the daemon signals its completion eventfd.
 *   4. The client raises the low half of released: it needs the layers below no more. Then the
 *      doorbell, as for a request.
 *   5. The request is answered when the last layer came, at the deadline, or when it was cancelled;
 *      ended is set. What it still needs then is let go when released says closed, names another
 *      generation, or some time has passed.
 *
 * S1  ready never falls, usable never rises within one generation.
 * S2  The daemon reads released once a look, and clamps it: layers in all, never backwards. What a
 *     client writes there costs only its own stream.
 */
#ifndef TIER_ABI_RING_H
#define TIER_ABI_RING_H

#include "libtier/abi/hazard.h"

#define ABI_REGION_MAGIC 0x314e475252454954ull /* "TIERRGN1" */

/* Of region and staging, by the client (R5): mappings that are there stay writable; no new ones. */
#define ABI_CLIENT_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

/* abi_region_header.features */
#define ABI_REGION_STREAMS 1u /* stream_offset and streams_max are there */
#define ABI_STREAMS_MAX 32u

/* Shortly before the counters' wrap: every connection passes it, not only those of years. */
#define ABI_RING_BEGIN (UINT32_MAX - 20)

/*
 * abi_region_header.closed. Every answer that the daemon gave is in the completion ring before.
 * HANDOVER: another daemon takes over, and listens where this one did (abi/handover.h); what was
 * not answered may be asked of it again.
 */
#define ABI_CLOSED 1u
#define ABI_CLOSED_HANDOVER 2u

struct abi_region_header {
	uint64_t magic;
	uint32_t version;
	uint32_t features;
	uint64_t boot_token;
	uint64_t total_bytes;
	uint32_t sq_entries; /* powers of two */
	uint32_t cq_entries;
	uint32_t readers_max;
	uint32_t streams_max;
	uint64_t sq_offset;
	uint64_t cq_offset;
	uint64_t reader_offset;
	uint64_t staging_bytes;
	uint64_t stream_offset;
	uint8_t reserved1[128 - 88];
	/* line: written by the client */
	uint32_t sq_tail;
	uint32_t cq_head;
	uint32_t cq_wait; /* not 0: the client sleeps, or is about to, on its completion eventfd;
			     1 + the processor that it was on (1, too, if it cannot say) */
	uint32_t goodbye; /* 1: the client holds no lease and takes none any more (R4) */
	uint32_t reserved2[12];
	/* line: written by the daemon */
	uint32_t sq_head;
	uint32_t cq_tail;
	uint32_t sq_wake; /* 1: the daemon sleeps, or is about to, on the doorbell eventfd */
	uint32_t closed;  /* ABI_CLOSED*: the daemon ended the connection */
	uint64_t connection_error; /* positive errno, when closed */
	uint64_t slabs_wanted; /* rises: ask with WIRE_SLAB_LEAVE what is wanted back (wire.h W5) */
	uint64_t reserved3[4];
}; /* 256 bytes */

/* abi_sqe.op */
#define ABI_OP_NOP 0u
#define ABI_OP_PUT_RESERVE 1u /* arg: abi_put_args + keys. value = put handle */
#define ABI_OP_PUT_COMMIT 2u  /* handle = put; data_offset: the bytes */
#define ABI_OP_PUT_ABORT 3u   /* handle = put */
#define ABI_OP_FETCH 4u       /* blocks of arg (refs or keys) x parts x layers -> tier */
#define ABI_OP_FETCH_PAGES 5u /* arg: abi_page_ref[count] -> tier */
#define ABI_OP_PIN 6u         /* blocks of arg; tier; deadline. value = pin handle */
#define ABI_OP_UNPIN 7u       /* handle = pin */
#define ABI_OP_DELETE 8u      /* blocks of arg */
#define ABI_OP_CANCEL 9u      /* handle = user_data of an earlier request of this client */
#define ABI_OP_DRAIN 10u      /* completes when every earlier request has, but parked prefetches */
#define ABI_OP_PREFETCH 11u   /* as FETCH; with a deadline begun late. aux = blocks protected */
#define ABI_OP_MIGRATE 12u    /* blocks of arg -> tier, NVMe too; out of those above it, whole.
			       * As PUT_RESERVE, DELETE, RESERVE: -EACCES for who may not write */
#define ABI_OP_STREAM 13u       /* blocks of arg x parts x layers, layer by layer -> tier */
#define ABI_OP_CONVERSATION 14u /* mode = ABI_CONVERSATION_*; arg: its args + abi_block_ref[] */
#define ABI_OP_PLAN 15u         /* mode = ABI_PLAN_*; arg: [abi_plan_args +] abi_access[count] */
#define ABI_OP_OBJECT 16u       /* [later] -ENOSYS */
#define ABI_OP_MEM 17u          /* [later] -ENOSYS */
#define ABI_OP_RESERVE 18u      /* handle 0: arg: abi_reserve_args. value = reservation handle;
			       * aux = p95:32 | blocks granted:32. Else: hand it back; value =
			       * blocks drawn */
#define ABI_OP_COUNT 19u

#define ABI_ARG_BYTES_MAX 65536u /* of one request: 2,044 keys of a put, 4,096 pages of a fetch */

/* abi_sqe.flags */
#define ABI_SQE_KEYS 1u    /* arg holds 32-byte keys, not abi_block_ref */
#define ABI_SQE_DURABLE 2u /* put: complete when durable; delete: likewise */
#define ABI_SQE_APART 4u   /* PUT_RESERVE: each key begins a prefix of its own; depth is 0 */

struct abi_sqe {
	uint8_t op;
	uint8_t klass; /* ABI_CLASS_* */
	uint16_t flags;
	uint32_t context_id;
	uint64_t user_data;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0 = the daemon's default */
	uint64_t arg_offset;  /* in the staging arena */
	uint32_t arg_bytes;
	uint32_t count; /* blocks or pages in arg */
	uint16_t part_first;
	uint16_t part_count; /* 0 = all */
	uint16_t layer_first;
	uint16_t layer_count; /* 0 = all */
	uint64_t handle; /* STREAM: bytes of its window; 0 = the daemon's default */
	uint8_t tier; /* target */
	uint8_t mode; /* STREAM: ABI_MODE_* */
	uint16_t stream; /* STREAM: number of its abi_stream */
	uint32_t generation; /* STREAM: of this use of it, not 0; all others: 0 */
}; /* 64 bytes */

/* abi_sqe.mode. Layers of a stream are the model's: abi_part.layer_first + layer of the part. */
#define ABI_MODE_STREAM 0u /* pages come, are read once and go: they never push others out */
#define ABI_MODE_CACHE 1u  /* pages stay until they are evicted */
#define ABI_MODE_COUNT 2u

struct abi_block_ref {
	uint32_t slot;
	uint32_t generation;
}; /* 8 bytes */

struct abi_page_ref {
	uint32_t slot;
	uint32_t generation;
	uint32_t page; /* page number within the block */
	uint32_t reserved;
}; /* 16 bytes */

struct abi_put_args {
	uint8_t parent[ABI_KEY_BYTES]; /* key of the block before the first; zero = root */
	uint64_t salt;                 /* tenant, for accounting; 0 = public */
	uint64_t parts;                /* bit p: the put carries part p; 0 = all */
	uint32_t count;                /* keys that follow, in prefix order */
	uint32_t depth;                /* blocks before the first */
	uint32_t shard;                /* this is shard `shard` of `shards` */
	uint32_t shards;
	uint32_t ttl_ms;   /* among the first to leave after it; 0 = none; at most ABI_TTL_MS_MAX */
	uint8_t priority;  /* ABI_PRIORITY_*: when room is short; the tenant's own blocks only */
	uint8_t reserved[27];
	uint8_t replaces[ABI_KEY_BYTES]; /* leaves when the put is whole; zero = none */
}; /* 128 bytes, then count keys of 32 bytes */

/* abi_sqe.mode of a conversation's entry */
#define ABI_CONVERSATION_TURN_END 1u /* arg, with its next prompt's blocks. value = blocks kept */
#define ABI_CONVERSATION_RETURN 2u   /* no arg. aux = layers that are there, status LATE = none */
#define ABI_CONVERSATION_CLOSE 3u    /* no arg */

struct abi_conversation_args {
	uint64_t salt;      /* whose habits these are */
	uint64_t return_ns; /* CLOCK_MONOTONIC, a hint; 0 = not known */
	uint64_t layer_ns;  /* computing one layer of the next turn takes so long; 0 = not known */
	uint8_t reserved[40];
}; /* 64 bytes, then count abi_block_ref */

/* abi_sqe.mode of a plan's entry */
#define ABI_PLAN_BEGIN 1u  /* arg: abi_plan_args + accesses. value = plan */
#define ABI_PLAN_APPEND 2u /* handle = plan; arg: accesses */
#define ABI_PLAN_END 3u    /* handle = plan; no arg. value = the position reached */

struct abi_plan_args {
	uint64_t position_offset; /* in the arena: a uint64_t of the client's, accesses done */
	uint64_t start_ns;        /* CLOCK_MONOTONIC, of time_us; 0 = there are no times */
	uint64_t access_ns;       /* expected, of one access; 0 = measured */
	uint64_t budget_bytes;    /* of the tier, for blocks of the plan; 0 = 3/4 of the quota */
	uint8_t reserved[32];
}; /* 64 bytes */

struct abi_access {
	struct abi_block_ref block;
	uint32_t time_us; /* after start_ns */
	uint32_t reserved;
}; /* 16 bytes */
#define ABI_PRIORITY_NORMAL 0u
#define ABI_PRIORITY_LOW 1u  /* leaves before the others */
#define ABI_PRIORITY_HIGH 2u /* leaves after the others */
#define ABI_TTL_MS_MAX (1000u * 3600 * 24 * 14)

/*
 * The bytes of a put, at data_offset (arg_offset of the COMMIT): for each block, for each part
 * carried, for each layer, for each group of the shard: page_stride bytes.
 */

/*
 * A reservation of room in CXL for blocks to be put; deadline of the entry: its end. A put is made
 * under it by naming its handle in the PUT_RESERVE entry.
 */
#define ABI_RESERVE_BLOCKS_MAX (1u << 20)
struct abi_reserve_args {
	uint64_t salt;          /* as the puts', for the predictor */
	uint32_t expected;      /* blocks granted at once; 0 = the daemon predicts, p95 too */
	uint32_t p95;           /* blocks it may come to */
	uint32_t step;          /* blocks it grows by; 0 = a quarter of expected */
	uint32_t role;          /* the client's own classes of requests: a number for each */
	uint32_t prompt_tokens; /* nobody uses it yet */
	uint32_t predicted;     /* zero: the daemon's own */
	uint8_t reserved[32];
}; /* 64 bytes */

/* abi_cqe.status */
#define ABI_STATUS_READY 0u
#define ABI_STATUS_LATE 1u
#define ABI_STATUS_MISS 2u
#define ABI_STATUS_DROPPED 3u

struct abi_cqe {
	uint64_t user_data;
	int32_t res;     /* 0 or negative errno */
	uint32_t status; /* ABI_STATUS_* */
	uint64_t value;  /* handle, or count of usable blocks (pages) from the first */
	/* put: bit i = block i was there (first 64); pin: blocks resident; prefetch: blocks
	 * that are protected until the deadline; stream: layers ready, or, with -EMSGSIZE,
	 * the bytes of window that it needs; with -ENOSPC, and -EDQUOT of a pin: ABI_HELD_*;
	 * with -ENOBUFS of a plan or conversation, -EAGAIN of a reservation, and of a prefetch that
	 * is DROPPED, not parked: ABI_FULL_* */
	uint64_t aux;
}; /* 32 bytes */

struct abi_stream {
	/* line: written by the daemon */
	uint32_t generation; /* whose progress this is */
	uint32_t ready;      /* layers, from the first */
	uint32_t usable;     /* blocks, from the first, that they are ready for */
	uint32_t layers;     /* in all */
	uint32_t status;     /* ABI_STATUS_*, when ended */
	uint32_t ended;      /* 1: no further layer comes */
	uint32_t reserved0[10];
	/* line: written by the client */
	uint64_t released; /* generation:32 | closed:1 | layers released:31 */
	uint32_t wait;     /* wake me when so many layers are ready, or at the end; 0 = do not */
	uint32_t reserved1[13];
}; /* 128 bytes */

#define ABI_STREAM_CLOSED 0x80000000u

static inline uint64_t abi_stream_released(uint32_t generation, uint32_t released)
{
	return (uint64_t)generation << 32 | released;
}

/*
 * What holds a tier that has no room: percent of the context's quota in it, a byte each; of the
 * whole tier where ABI_HELD_LIMIT says that it is all contexts together.
 */
#define ABI_HELD_PINNED 0u
#define ABI_HELD_LEASED 1u
#define ABI_HELD_DIRTY 2u
#define ABI_HELD_RESERVED 3u
#define ABI_HELD_USED 4u /* with the above */
#define ABI_HELD_LIMIT 5u /* no percentage: whose limit it is, ABI_LIMIT_* */
#define ABI_HELD_REMOVED 6u /* of what is leased: by readers of contexts that were removed */
#define ABI_HELD_TIER 7u /* no percentage: 1 + the tier; of NVMe only USED is said */
#define ABI_HELD_TABLES 3u /* as the tier: what contexts' tables may take; LIMIT alone is said */
#define ABI_HELD_CHAIN 4u  /* likewise: too many keys begin with the same 16 bytes */

#define ABI_LIMIT_NONE 0u /* not said */
#define ABI_LIMIT_HOST 1u
#define ABI_LIMIT_CONTEXT 2u
#define ABI_LIMIT_SALT 3u
#define ABI_LIMIT_CLIENT 4u
#define ABI_LIMIT_USER 5u
#define ABI_LIMITS 6u

/* A table is full: bits where 16 of each stand, beside ABI_HELD_LIMIT, which says whose it is. */
#define ABI_FULL_USED 0u
#define ABI_FULL_MOST 16u /* of so many: the client's own, or the host's */

#endif
