/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core: all of the daemon's decisions, as a state machine (invariant I9).
 *
 * It receives events and queues actions; the shell (tierd/dispatch.c, or the simulator) carries
 * actions out and feeds their completions back. The core makes no system call, reads no clock and
 * no random source, and never blocks. It reads and writes shared memory that the shell mapped for
 * it: indexes, tiers, and (copied once, then judged) the clients' arguments and access logs.
 *
 *      shell                                core
 *        core_event(REQUEST, sqe)     ->      put.c / fetch.c / pin.c
 *        core_action_next()           <-      COPY, READ, WRITE, FENCE, SCAN ...
 *        (worker, io_uring)
 *        core_event(COPY_DONE ...)    ->      publishes, goes on
 *        core_action_next()           <-      COMPLETE
 *
 * One thread calls everything here. A pointer in an action (io, copy, batch) is the core's and
 * stays valid until its completion has been fed back.
 */
#ifndef TIERD_CORE_CORE_H
#define TIERD_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>

#include "libtier/abi/handover.h"
#include "libtier/abi/ring.h"
#include "libtier/base/list.h"

struct core;

/* Limits. Everything that queues has one; each is memory taken at start. */
#define CORE_CLIENTS_MAX 1024u
#define CORE_REQUESTS_MAX 1024u   /* in progress on the host; more wait in their rings */

#define CORE_DRIVES_MAX 8u          /* devices of the store */
#define CORE_IO_MAX 512u          /* device operations under way */
#define CORE_COPIES_MAX 256u      /* copy jobs under way */
#define CORE_SEGMENTS_IO 64u      /* pieces of one device operation or copy job */
#define CORE_DEPTH_MAX 64u        /* most operations that the device may have at a time */
#define CORE_PINS_MAX 65536u
#define CORE_STREAMS_MAX 64u      /* more wait */
#define CORE_RESERVATIONS_MAX 4096u
#define CORE_LENDS_MAX 65536u     /* slabs in devices of clients, by client */
#define CORE_LENDS_CLIENT_MAX CORE_ITEMS_MAX
#define CORE_RETIRE_BATCH 256u    /* pages of one retire batch */
#define CORE_BATCHES_MAX 1024u
#define CORE_ADDRESSES_MAX (64ull << 40) /* bytes that all contexts' mappings may span */
#define CORE_FAILURES_MAX 3u      /* writes or flushes in a row that fail: the store is failing */

#define CORE_TOKENS_MAX 2048u     /* control calls waiting for the catalog, or for a drain */
#define CORE_ITEMS_MAX 4096u      /* looked at in one event, whatever clients do: unit/meter.h */

/* Bytes; 0 = none. Over `soft`: gives first when room is short. `hard` is never exceeded. */
struct core_limit {
	uint64_t soft, hard;
};

/*
 * Zeroed memory for large tables that are looked at a few times a request: blocks' metadata,
 * conversations. All zero: the C library's.
 */
struct core_cold {
	void *arg;
	void *(*alloc)(void *arg, size_t count, size_t bytes);
	void (*free)(void *arg, void *memory); /* NULL is fine */
};

struct core_config {
	struct core_cold cold;
	uint64_t boot_token;
	uint64_t secret; /* random, and told to nobody */
	uint64_t capacity[ABI_TIER_COUNT];      /* bytes; 0 = no such tier */
	uint64_t slab_bytes[ABI_MEM_TIERS];     /* 0 = clamp(capacity/1024, 2 MiB, 64 MiB) */
	struct disk_super super;                /* the store, when capacity[NVME] > 0 */
	struct disk_super more[CORE_DRIVES_MAX - 1]; /* its further drives */
	uint32_t drives;                        /* all of them; 0 = 1, if there is a store */
	struct disk_drive listed[CORE_DRIVES_MAX - 1]; /* further ones, as the catalog names them */
	uint32_t listed_count;                  /* more than there are: some are missing */
	uint32_t discard_none;                  /* bits: drives that take no discards */
	uint64_t next_uid;                      /* from the recovered catalog; 1 at format */
	uint64_t catalog_sequence;
	bool admit_all;                         /* write what the policy would refuse, too */
	uint32_t dirty_percent;                 /* of CXL; most that waits for write-back; 0 = 50 */
	uint32_t pin_percent;                   /* of a tier; 0 = 50 */
	struct core_limit salt_limit[ABI_TIER_COUNT];   /* of a salt without one; soft 0 = fair */
	struct core_limit client_limit[ABI_TIER_COUNT]; /* of a client without one */
	uint64_t salt_pins[ABI_MEM_TIERS];   /* bytes that pins of a salt's blocks may claim; */
	uint64_t client_pins_bytes[ABI_MEM_TIERS]; /* ... that pins of a client may; 0 = all */
	uint64_t request_deadline_ns;           /* default; 0 = 2 s */
	uint64_t put_deadline_ns;               /* default for incomplete puts; 0 = 10 s */
	uint64_t writeback_age_ns;              /* a dirty block waits no longer; 0 = 200 ms */
	uint32_t device_depth;                  /* operations on the device at a time; 0 = 64 */
	uint32_t writeback_percent;             /* of the device's time, at least; 0 = 10 */
	uint64_t starve_ns;                     /* background waits no longer; 0 = 20 ms */
	uint64_t place_bytes; /* CXL grants such pieces to who writes them (W10); 0 = it cannot */
	bool direct;                            /* the device can write into HBM */
	bool yield;                             /* background only when there is no demand */
	bool discard;                           /* tell the device what dead segments held */
	uint64_t discard_quiet_ns;              /* ... after so long with nothing else; 0 = 20 ms */
	uint64_t discard_late_ns;               /* ... or a step so long after the last; 0 = 1 s */
	/* Limits (account.c); 0 = none but what the tables hold. */
	uint32_t user_connections;              /* of one uid */
	uint32_t client_requests;               /* in progress; more wait in the ring */
	uint32_t client_puts;                   /* begun and not committed */
	uint32_t client_pins;
	uint32_t quarantine_percent; /* of a tier: what one client's leases may keep evicted */
	uint64_t table_bytes; /* memory that the tables of all contexts may take */
	uint32_t contexts_most; /* that the host has mappings for */
	uint32_t walk_items;  /* after so many of an event walks wait; 0 = METER_WALK (meter.h) */
	uint32_t stream_share;                  /* streams get one in so many bytes; 0 = 8 */
	uint64_t stream_hold_ns;                /* kept after the answer, at most; 0 = 10 s */
	uint64_t stream_again_ns;               /* streamed twice within: stays; 0 = 10 s */
};

/* ---- what actions work on ----------------------------------------------------------------- */

#define CORE_RANGE_INDEX ABI_MEM_TIERS /* as a tier: the context's index */

/* A piece of a context's memory in one tier; of NVMe: of a device's store. */
struct core_range {
	union {
		uint32_t context_id;
		uint32_t device;
	};
	uint32_t tier;
	uint64_t offset;
	uint64_t bytes;
};

/* An operation as the scheduler sees it (sched.h); nobody else looks inside. */
struct sched_node {
	struct list link;
	uint64_t deadline_ns, expires_ns;
	uint64_t since_ns; /* queued, then: under way */
	uint64_t bytes;    /* not issued yet, then: under way */
	uint64_t cost_ns;  /* device time, estimated */
	uint64_t beside;   /* bytes under way at issue, its own included */
	uint32_t client, order;
	uint32_t cut;      /* pieces issued in units; of a unit: where it begins */
	uint32_t flying;   /* units under way */
	int32_t error;     /* how it will end */
	uint8_t klass, channel, state;
	uint8_t device;  /* 0 for copies */
	bool mixed;      /* issued while the device's other channel was busy */
	bool background; /* counts as a background read of the pool */
	bool joined;     /* others wait for it too */
	bool waited;     /* of a durable run: somebody waits for it */
};

/* One device operation: pieces of memory against one contiguous place of the store. */
struct core_io_piece {
	void *addr;
	uint32_t bytes;
	uint32_t seed; /* D5; with expect */
	uint32_t crc;  /* READ: what must come out */
};
struct core_io {
	struct core_io_piece piece[CORE_SEGMENTS_IO];
	uint32_t piece_count;
	uint8_t write;
	uint8_t klass;  /* ABI_CLASS_* */
	uint8_t verify; /* READ: check each piece's CRC */
	uint8_t direct; /* READ: into HBM */
	uint32_t device; /* whose store it is */
	uint64_t offset; /* in the store */
	uint64_t bytes;
	uint64_t deadline_ns;
	/* set by the shell before IO_DONE */
	int32_t res;       /* bytes moved, or negative errno; short is an error the core sees */
	/* READ with verify: bit i = piece i did not verify; WRITE: ... its memory is gone */
	uint64_t bad_mask;
	/* the core's own */
	struct io_private {
		void (*done)(struct core *c, struct core_io *io);
		void *owner;
		uint32_t slot[CORE_SEGMENTS_IO];
		uint32_t page[CORE_SEGMENTS_IO];
		struct sched_node node;
		struct core_io *next;
	} priv;
};

/* One copy job. */
struct core_copy_item {
	void *dst;
	const void *src;
	uint32_t bytes;
	uint32_t pad;  /* of these, at the end: not copied, but zeros */
	uint32_t seed; /* the CRC starts from here */
	uint32_t crc;  /* set by the shell when checksum is on: over what was stored at dst */
};
struct core_copy {
	struct core_copy_item item[CORE_SEGMENTS_IO];
	uint32_t count;
	uint8_t klass;
	uint8_t checksum;
	uint8_t src_tier; /* ABI_TIER_*, or ABI_TIER_COUNT for a client's staging */
	uint8_t dst_tier;
	/*
	 * Nothing is copied (src is NULL): the client that may write dst loses the right to, then
	 * it is padded and summed where it is.
	 */
	uint8_t in_place;
	uint32_t context_id; /* ... of that context's memory */
	uint32_t order; /* layer, among equal deadlines */
	uint64_t deadline_ns;
	int32_t res; /* set by the shell: 0 or negative errno */
	struct copy_private {
		void (*done)(struct core *c, struct core_copy *copy);
		void *owner;
		uint32_t slot[CORE_SEGMENTS_IO];
		uint32_t page[CORE_SEGMENTS_IO];
		struct sched_node node;
		struct core_copy *next;
	} priv;
};

#define CORE_DETACHED 1u      /* the page has moved on */
#define CORE_DETACHED_HELD 2u /* found leased, and quarantined: no page names it any more */

/* A batch of retired places between unpublishing and freeing (design, section 4). */
struct core_batch {
	uint64_t place[CORE_RETIRE_BATCH]; /* abi_place() words */
	uint32_t slot[CORE_RETIRE_BATCH];
	uint32_t page[CORE_RETIRE_BATCH];
	uint64_t era[CORE_RETIRE_BATCH]; /* the fence behind which it came */
	uint32_t held[CORE_RETIRE_BATCH]; /* in which pass of scans a reader was seen there last, */
	uint16_t seen_by[CORE_RETIRE_BATCH]; /* ... 1 + that client */
	uint32_t chain[CORE_RETIRE_BATCH]; /* of the scan's table: 1 + the next entry there */
	uint8_t detached[CORE_RETIRE_BATCH]; /* 0: its page still names it */
	uint32_t count, marked; /* of these, seen in this pass */
	bool kept; /* all of them were found leased before */
	uint64_t since_ns;
	struct core_batch *next;
};

/* ---- events ------------------------------------------------------------------------------- */

enum core_event_kind {
	CORE_EV_TICK = 1,     /* time passed; also sent before any other event of a loop turn */
	CORE_EV_CLIENT_OPEN,  /* a connection began */
	CORE_EV_CLIENT_GONE,  /* it ended: its requests, puts and pins are dropped; leases stay */
	CORE_EV_CLIENT_REVOKED, /* gone, and it reads nothing more in these tiers */
	CORE_EV_CLIENT_DEAD,  /* its process is dead: leases end, memory may be unmapped */
	CORE_EV_REQUEST,      /* an entry of its ring, copied */
	CORE_EV_IO_LANDED,    /* optional: the device is done with a read that is still verified */
	CORE_EV_IO_DONE,
	CORE_EV_COPY_DONE,
	CORE_EV_FENCE_DONE,
	CORE_EV_SCAN_DONE,
	CORE_EV_PUNCH_DONE,
	CORE_EV_PREPARE_REFUSED, /* of an index: there was nobody to do it now */
	CORE_EV_DISCARD_DONE,
	CORE_EV_SYNC_DONE,
	CORE_EV_CLOCK,        /* the wall clock: before recovery, then every second or so */
};

struct core_client_open {
	uint32_t client; /* the shell's number, < CORE_CLIENTS_MAX */
	uint32_t uid, gid;
	bool operator_;                /* root or the daemon's own uid */
	const uint8_t *staging;
	uint64_t staging_bytes;
	const struct abi_reader *readers; /* in the client region: never trusted */
	uint32_t readers_max;
	struct abi_stream *streams; /* likewise; may be NULL; until DEAD */
	uint32_t streams_max;
};

struct core_event {
	enum core_event_kind kind;
	uint64_t now_ns; /* CLOCK_MONOTONIC; never goes back */
	union {
		struct core_client_open open;
		struct {
			uint32_t client; /* GONE, REVOKED, DEAD */
			int32_t error;   /* GONE: for what the daemon ended it; 0: it left */
			uint32_t tiers;  /* REVOKED: a bit each */
		};
		struct {
			uint32_t client;
			struct abi_sqe sqe;
		} request;
		struct core_io *io;
		struct core_copy *copy;
		struct core_batch *batch; /* FENCE_DONE */
		struct core_range range;  /* PUNCH_DONE, PREPARE_REFUSED */
		struct {
			uint32_t device;
			uint64_t token;
			int res;
		} sync;
		struct {
			uint32_t device;
			int res; /* -EOPNOTSUPP = never again */
		} discard;
		uint64_t wall_ms; /* CLOCK: since 1970; may go back */
	};
};

/* ---- actions ------------------------------------------------------------------------------ */

/* A flush of one device. */
struct core_sync {
	uint32_t device;
	uint64_t token;
};

enum core_action_kind {
	CORE_AC_READ = 1, /* io: device -> memory, then verify each piece's CRC */
	CORE_AC_WRITE,    /* io: memory -> device */
	CORE_AC_SYNC,     /* fdatasync of everything whose WRITE has been fed back */
	CORE_AC_COPY,     /* copy: memory -> memory, checksummed on the way */
	CORE_AC_FENCE,    /* membarrier(GLOBAL_EXPEDITED), then FENCE_DONE */
	CORE_AC_SCAN,     /* core_scan(), then SCAN_DONE; a separate event on purpose */
	CORE_AC_PREPARE,  /* range: back it with (huge) memory; a hint, an index's may be refused */
	CORE_AC_PUNCH,    /* range: give the memory back, then PUNCH_DONE */
	CORE_AC_DISCARD,  /* range of the store, of tier NVMe: what it holds is not needed */
	CORE_AC_COMPLETE, /* put the entry into the client's completion ring */
	CORE_AC_REPLY,    /* answer a control call that was given this token */
	CORE_AC_WAKE,     /* signal the client's completion eventfd, asked for by abi_stream.wait */
	CORE_AC_END,      /* end the client's connection for this error */
};

struct core_action {
	enum core_action_kind kind;
	union {
		struct core_io *io;
		struct core_copy *copy;
		struct core_batch *batch;
		struct core_range range;
		struct core_sync sync;
		struct {
			uint32_t client;
			struct abi_cqe cqe;
		} complete;
		uint32_t wake; /* client */
		struct {
			uint64_t token;
			int32_t res;
			uint64_t value;
		} reply;
		struct {
			uint32_t client;
			int32_t error; /* negative errno */
			const char *why;
		} end;
	};
};

/* ---- life --------------------------------------------------------------------------------- */

/* Errors: -EINVAL (config), -ENOMEM. All memory but the contexts' is taken here. */
int core_open(struct core **out, const struct core_config *config);
void core_close(struct core *c);

/*
 * The operator's other mind: of to, all times that are not 0, yield, admit_all and user_connections
 * are in force from now on. All else stays as it was opened with.
 */
void core_reload(struct core *c, const struct core_config *to);

/* Feed one event. Never fails; what it finds wrong with a client ends that client's connection. */
void core_event(struct core *c, const struct core_event *event);

/* Take the next action; false when there is none now. */
bool core_action_next(struct core *c, struct core_action *out);

/* May the number of a dead client be another one's? Not before all that it had has ended. */
bool core_client_over(const struct core *c, uint32_t client);

/* Is a TICK wanted at once, since walks are under way that go on a share in each turn? */
bool core_goes_on(const struct core *c);

/* Is a deletion under way that has dropped blocks? Asked again, it would count none of them. */
bool core_deleting(const struct core *c);

/* May the shell feed one more REQUEST of this client? Otherwise it stays in the ring (I8). */
bool core_accepts(const struct core *c, uint32_t client);

/* When the core next wants a TICK even if nothing happens; UINT64_MAX = it does not. */
uint64_t core_next_tick(const struct core *c);

/* How long the device still has to do with what it was given, by what was measured. */
uint64_t core_device_ns(const struct core *c);

/*
 * Read some of the clients' hazard slots, from where the last call ended, and mark what is held of
 * all places whose fence is over. Called for AC_SCAN.
 */
void core_scan(struct core *c);

/* ---- contexts ----------------------------------------------------------------------------- */

/*
 * Sizes of the memory that a context of this spec needs; fills the spec's defaults in. Planning a
 * planned spec again changes nothing: a tier that is not used stays UINT64_MAX in the spec.
 */
struct core_context_plan {
	uint64_t index_bytes;
	uint64_t blocks_max; /* of the spec, but no more than the quotas can hold */
	uint64_t mem_bytes[ABI_MEM_TIERS]; /* of the sparse memfds; 0 = tier not used */
	uint64_t most[ABI_TIER_COUNT];     /* what it was made for; 0 = tier not used */
	uint64_t quota[ABI_TIER_COUNT];    /* in force */
	uint64_t empty_bytes; /* of tables, while it has no block */
};
/* Errors: -EINVAL, -ENOSPC, -EDQUOT; why says what to change. */
int core_context_plan(const struct core *c, struct disk_context *spec,
		      struct core_context_plan *plan, char *why, size_t why_bytes);

/*
 * A context's tables are as large as it may become, and what counts of one is what was touched. So
 * none is smaller than this, from which on the shell's calloc gives each a mapping of its own: in
 * a shared one it would write zeros all over what was somebody's before.
 */
#define CORE_TABLE_BYTES (256u << 10)

/* Mapped by the shell, zero-filled; the core's until core_context_gone says so. */
struct core_context_memory {
	void *index;
	void *mem[ABI_MEM_TIERS];
	uint32_t at; /* 1 + the index that its id is to have (handover), 0 = any */
	const void *former;    /* a former daemon's index, until core_handover_take; NULL = none */
	uint64_t former_slots; /* ... of which so many were used */
};

/*
 * Make a context. spec.uid 0 = a new one (written to the catalog: REPLY with the token when that
 * is durable), else one from the catalog at recovery (no reply).
 * Errors: -EEXIST, -ENFILE, -ENOMEM, -EINVAL.
 */
int core_context_create(struct core *c, const struct disk_context *spec,
			const struct core_context_memory *memory, uint64_t token, uint32_t *id);

/*
 * Before any segment is fed: a context of the catalog that cannot be made now. It stays there, with
 * its limits, and so does what it stored; its name is taken. Errors: -ENOMEM, -ENFILE.
 */
int core_context_aside(struct core *c, const struct disk_context *spec);
/* The i-th of them, -ENOENT: no more. And by its name; NULL = none. */
int core_aside_at(const struct core *c, uint32_t i, struct disk_context *out);
const struct disk_context *core_aside_find(const struct core *c, const char *name);

/*
 * Find a context by name for a client with these credentials. Errors: -ENOENT (also: not allowed).
 */
struct core_context_view {
	uint32_t id;
	bool writable;
	bool owner;
	const struct disk_context *spec; /* the core's; valid until the next core call */
	uint64_t index_bytes;
	uint64_t mem_bytes[ABI_MEM_TIERS];
};
int core_context_find(struct core *c, const char *name, uint32_t uid, uint32_t gid,
		      struct core_context_view *view);

/* The client has the context open from now: its requests and hazard words count. */
int core_context_attach(struct core *c, uint32_t client, const struct core_context_view *view);
/* Indexes of those that it has open, a bit each; and back, for reading, of those that are there. */
void core_client_attached(const struct core *c, uint32_t client,
			  uint64_t bits[ABI_CONTEXTS_MAX / 64]);
void core_client_attach_all(struct core *c, uint32_t client,
			    const uint64_t bits[ABI_CONTEXTS_MAX / 64]);

/*
 * REPLY with the token when no catalog names it any more, however long readers hold its pages; and
 * REPLY with `gone` when the last of them let go and the shell may unmap. Both with its id.
 */
int core_context_remove(struct core *c, uint32_t id, uint64_t token, uint64_t gone);

/* REPLY with the token and the epoch when durable. epoch 0 = the next. Errors: -EINVAL. */
int core_context_epoch(struct core *c, uint32_t id, uint64_t epoch, uint64_t token);

/*
 * Another eviction policy: REPLY when it survives a restart; blocks go over in the background.
 * Errors: -ENOENT, -EINVAL no such policy, -EBUSY it is being changed, -ENOMEM.
 */
int core_policy_set(struct core *c, uint32_t id, const char *name, uint64_t token);

/*
 * What that policy would keep of the context's CXL tier in the next ns, beside the real one, which
 * it does not touch (place/trial.c). Errors: -ENOENT, -EINVAL no such policy, or the context does
 * not use CXL; -EBUSY blocks go over to another policy; -ENOMEM. One that runs ends.
 */
int core_policy_try(struct core *c, uint32_t id, const char *name, uint64_t ns);

/* The last trial; all zero = there was none. It ends early with its context or policy. */
struct core_trial {
	bool on;    /* it runs */
	bool begun; /* it knows all blocks that were there, and counts since from_ns */
	uint32_t context;
	const char *policy;
	uint64_t from_ns, until_ns;
	uint64_t blocks;     /* in CXL, now or at its end */
	uint64_t uses;       /* of blocks in CXL; reading one makes it be there first */
	uint64_t reads;      /* blocks that came back from NVMe, */
	uint64_t would_read; /* ... and that would have, had that policy chosen */
};
const struct core_trial *core_policy_tried(const struct core *c);

/* ---- places of puts ------------------------------------------------------------------------ */

struct core_put_page {
	uint64_t put;  /* its handle */
	uint32_t block;
	uint32_t page; /* among those that the put carries of a block, in their order (ring.h) */
};

/*
 * The client is going to write that page of its open put where it stays: *out. The shell grants it
 * the right to, and a copy in place ends that. Errors: -ENOENT no such open put; -EINVAL it has no
 * such page; -EOPNOTSUPP a page that is no whole pieces; -EEXIST somebody brings it already;
 * -EAGAIN no room.
 */
int core_put_place(struct core *c, uint32_t client, const struct core_put_page *at,
		   struct core_range *out);
/* Nobody was granted it: the page comes from staging. */
void core_put_unplace(struct core *c, uint32_t client, const struct core_put_page *at);

/* ---- slabs in devices of clients ----------------------------------------------------------- */

/*
 * The client's device is going to map (HBM) or to register (CXL) the slab that has the byte at
 * range.offset; range becomes the slab. Until each time was left, or the process is dead, the slab
 * keeps its memory and is not emptied. CORE_RANGE_INDEX: the index, whole, which counts as touched
 * for as long. Errors: -ENOENT no such context or tier for this client, -EACCES HBM of another
 * user's context, -EAGAIN there is no memory there, or it is wanted back; -EDQUOT too many, or no
 * room for tables.
 */
int core_slab_lend(struct core *c, uint32_t client, struct core_range *range);
/* The device has let go. Errors: -ENOENT it did not have it. */
int core_slab_leave(struct core *c, uint32_t client, const struct core_range *range);
/*
 * The first one that the client should leave of the context of `from`, none before that tier and
 * offset; false = none.
 */
bool core_slab_wanted(struct core *c, uint32_t client, const struct core_range *from,
		      struct core_range *out);
/* Rises when there is one more of the client's; CORE_CLIENTS_MAX: of any client's. */
uint64_t core_slab_recalls(const struct core *c, uint32_t client);

/* ---- limits ------------------------------------------------------------------------------- */

/*
 * May this user open one more connection? Errors: -EUSERS it has user_connections of them, -EDQUOT
 * its leases keep too much; why names the limit.
 */
int core_user_may_connect(struct core *c, uint32_t uid, char *why, size_t why_bytes);
/* Contexts that the user owns, those being made or removed included. */
uint32_t core_user_contexts(const struct core *c, uint32_t uid);
/* ---- quotas ------------------------------------------------------------------------------- */

/*
 * Set what a context, one salt of it, or a client's connection may hold of a tier. Of a context
 * hard cannot grow beyond what its memory was made for. Limits of contexts and salts survive a
 * restart, once the REPLY has come; a client's end with its connection. Limits below what is held
 * make it shrink, in the background; pins that are there stay until they end. Errors: -ENOENT;
 * -EINVAL; -E2BIG hard of a context too large; -ENOSPC the soft shares of all contexts exceed the
 * tier, no account is free for the salt, or the catalog has no room for its limit.
 */
enum core_holder { CORE_HOLDER_CONTEXT, CORE_HOLDER_SALT, CORE_HOLDER_CLIENT };
struct core_quota {
	enum core_holder who;
	uint32_t context_id; /* context, salt */
	uint64_t key;        /* salt, or client */
	uint32_t tier;
	struct core_limit limit;
	uint64_t pins; /* bytes that pins may claim, within the budget of all; 0 = not set */
};
int core_quota_set(struct core *c, const struct core_quota *quota, uint64_t token);

/*
 * Of the recovered catalog, after its contexts were created: a limit is in force again. One of a
 * context that is not there is none. Errors: -ENOSPC no account is free for the salt.
 */
int core_limit_restore(struct core *c, const struct disk_limit *limit);

/*
 * So much memory of the tier was given back and is not there: somebody holds it by other ways than
 * ours. New slabs are taken only as if the tier were smaller by that, by half of it at most.
 */
void core_memory_lost(struct core *c, uint32_t tier, uint64_t bytes);

/* ---- recovery ----------------------------------------------------------------------------- */

/*
 * After the catalog's contexts were created: feed each segment's first summary_bytes, in any
 * order; then finish. The device must have been flushed before the summaries were read: what they
 * show counts as durable. summary may be what a rotten disk gives; single flipped bits are put
 * right in it. Returns records taken, or -EBADMSG when the segment's header is not valid (it is
 * then free).
 */
int core_recover_segment(struct core *c, uint32_t device, uint32_t segment, void *summary,
			 size_t bytes);
/* After it was fed as zeros: it could not be read, and may be read at another start. */
void core_recover_unread(struct core *c, uint32_t device, uint32_t segment);
struct core_recovery {
	uint64_t segments, records, records_bad, blocks, blocks_stale, bytes;
	uint64_t blocks_unproven; /* of the durable log: read in the background before they count */
	uint64_t blocks_orphaned; /* not kept: one before them in their prefix did not come back */
	uint64_t blocks_unreached; /* kept all the same, and found by no prefix until it is put */
	uint64_t blocks_aside; /* of contexts that were set aside, deleted ones included */
};
int core_recover_finish(struct core *c, struct core_recovery *out);

/* ---- handover (abi/handover.h) ------------------------------------------------------------ */

/*
 * Nothing is under way, and no event follows. Write down what the context has in CXL, and take its
 * pages' words back. Returns bytes; to NULL: how many it will be.
 */
uint64_t core_handover_leave(struct core *c, uint32_t id, void *to);

/*
 * After recovery, into a context of the same uid, epoch, geometry and index whose CXL memory is
 * the former daemon's: take what the list says lies there. Errors: -EBADMSG, -ENOSPC: no client
 * may come, this start has failed.
 */
struct core_handover {
	uint64_t blocks, pages, bytes; /* taken */
	uint64_t dirty;                /* blocks of these that recovery did not find */
	uint64_t refused;              /* blocks: recovery found others of these keys */
};
int core_handover_take(struct core *c, uint32_t id, const struct handover_context *list,
		       struct core_handover *out);

/* ---- operator ----------------------------------------------------------------------------- */

/* REPLY when everything dirty is written and synced. */
int core_drain(struct core *c, uint64_t token);

/*
 * A further drive of the store, by its store_id. DRAIN: it takes no new data, and what lies on it
 * moves to the others, over restarts, until the catalog no longer names it (core_drive_stats).
 * FORGET: likewise, but what cannot be read is given up; one that is missing is forgotten as it
 * is. KEEP: neither any more. Answered when a durable catalog says so. Errors: -ENOENT the catalog
 * names no such drive, -EINVAL it is the home, -ENODEV it is missing, and can only be forgotten.
 */
enum core_drive_deed { CORE_DRIVE_DRAIN, CORE_DRIVE_FORGET, CORE_DRIVE_KEEP };
int core_drive_set(struct core *c, uint64_t store_id, enum core_drive_deed deed, uint64_t token);

/* Evict up to `bytes` of a context from a memory tier; REPLY with the bytes freed. */
int core_evict(struct core *c, uint32_t id, uint32_t tier, uint64_t bytes, uint64_t token);

#include "tierd/core/audit/stats.h"

#endif
