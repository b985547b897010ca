/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's own data: what its files share and nobody else may see. Everything is owned by the one
 * thread that calls core_event. Pools are taken at core_open; per-context memory at creation.
 */
#ifndef TIERD_CORE_STATE_H
#define TIERD_CORE_STATE_H

#include "tierd/core/unit/block_meta.h"
#include "tierd/core/op/park.h"
#include "tierd/core/core.h"
#include "tierd/core/signal.h"
#include "tierd/core/place/evacuate.h"
#include "tierd/core/unit/descs.h"
#include "tierd/core/unit/index.h"
#include "tierd/core/book/lane.h"
#include "tierd/core/unit/ledger.h"
#include "tierd/core/unit/meter.h"
#include "tierd/core/unit/page.h"
#include "tierd/core/hint/plan.h"
#include "tierd/core/unit/policy_ops.h"
#include "tierd/core/io/sched.h"
#include "tierd/core/hint/conversation.h"
#include "tierd/core/unit/predict.h"
#include "tierd/core/log/recover.h"
#include "tierd/core/book/retain.h"
#include "tierd/core/unit/space.h"
#include "tierd/core/unit/store.h"
#include "tierd/core/unit/tenants.h"
#include "tierd/core/log/writeback.h"

#define CORE_ACTIONS_MAX 8192u /* queued for the shell; every producer is bounded below this */
#define CORE_RUN_IOS 8u        /* writes of one run under way */
#define CORE_IO_BYTES_MAX (1u << 20)
#define CORE_PIN_CHUNKS 65536u
#define CORE_PIN_CHUNK_REFS 62u

#define PUT_BLOCKS_MAX (ABI_ARG_BYTES_MAX / ABI_KEY_BYTES)

#define CONTEXT_SALTS 256u /* accounts a context: that of no salt, of "other", and of salts */

#define MS 1000000ull

/* ---- contexts ----------------------------------------------------------------------------- */

struct context {
	bool used;
	bool closing;  /* removal under way */
	bool leaving;  /* ... and not all that clients had of it has ended */
	struct meter_pass conversations_leave, pins_leave;
	bool listed;   /* a durable catalog names it: only then can it be found */
	bool listing;  /* ... the catalog being written does */
	uint64_t epoch_listed, epoch_listing; /* the epochs that these say */
	bool sweeping; /* blocks of old epochs may still be there */
	uint32_t id;    /* as clients know it: index and generation */
	uint32_t index; /* in core.context, bitmaps, lists, hazard words */
	uint32_t attached;
	uint32_t sweep_slot;
	uint64_t epoch_seen; /* highest in any record: a raised epoch that a crash undid */
	struct disk_context spec;
	struct core_context_plan plan;
	struct core_context_memory memory;
	struct index ix;
	struct descs descs; /* of its pages: which have memory */
	struct block_meta *meta;
	struct block_uses uses;
	struct siblings siblings;
	struct tenants tenants;
	uint32_t *lapse_ms;    /* by slot, of those with KEEP_TTL; touched only for them */
	uint32_t *streamed_ms; /* by slot: last asked for by a stream, if any did; likewise */
	uint32_t lapse_high, streamed_high; /* what was touched of either: slots below */
	struct space *space[ABI_MEM_TIERS]; /* NULL = tier not used */
	const struct policy_ops *policy;
	struct lanes lanes; /* its instances */
	uint8_t *page_part; /* page number -> part */
	uint32_t part_class[ABI_PARTS_MAX];
	struct think think; /* of all its tenants */
	uint32_t classes;
	uint32_t block_places[ABI_PARTS_MAX]; /* of each class, of a whole block */
	struct block_list pending;
	struct dirty dirty[CORE_RUNS_MAX];
	uint32_t slots_live;  /* block slots in use, dropped ones included */
	uint32_t punching;    /* slabs */
	uint32_t unretired;   /* dropped blocks with pages that are still to be retired */
	uint32_t nvme_cursor; /* evict_nvme: next slot to look at */
	struct {
		uint32_t slot, page;
	} left_at[ABI_MEM_TIERS]; /* evict.c: of a block, the page where its leaving goes on */
	uint64_t index_ready[INDEX_AREAS]; /* up to these offsets it has huge pages */
	uint64_t blocks, blocks_pending, nvme_bytes, dirty_bytes;
	uint32_t put_copies; /* copy jobs of puts under way: their ends make room for the next */
	uint64_t refused; /* blocks that are PERSIST_REFUSED */
	uint64_t pinned[ABI_MEM_TIERS]; /* bytes that pins keep: once, however many they are */
	uint64_t pages_resident[ABI_MEM_TIERS];
	uint64_t retiring[ABI_MEM_TIERS]; /* bytes between retire and free */
	uint64_t gone_token;
	uint64_t moving[ABI_MEM_TIERS];   /* bytes of new places of pages that move */
	uint64_t detached;                /* places not free yet that no page names any more */
	struct ledger salts;
	uint64_t lead_ns[ABI_MEM_TIERS]; /* lead.c: not looked at before */
	uint64_t kept_blocks; /* with a priority or a TTL */
	uint64_t reserved_most_blocks; /* that reservations may come to and did not draw yet */
	uint32_t user;        /* its owner's, in core.tables */
	bool mapped;          /* its addresses are in the sums there */
	uint64_t begun;       /* groups of descriptors that blocks which are pending may come to */
	uint64_t table_bytes; /* as the sums in core.tables have it */
	bool descs_short;     /* somebody found no memory for descriptors: idle ones are given up */
};

/* ---- requests ----------------------------------------------------------------------------- */

enum request_phase {
	REQUEST_FREE = 0,
	REQUEST_RUN,     /* step() when woken */
	REQUEST_PARKED,  /* parked: a prefetch that is not due (park.c) */
	REQUEST_SPACE,   /* waits for room in a memory tier */
	REQUEST_WRITTEN, /* a durable put: waits for write-back */
	REQUEST_SYNC,    /* waits for a flush */
	REQUEST_ORDER,   /* drain, cancel: waits for other requests */
};

struct request {
	enum request_phase phase;
	uint32_t client;
	uint32_t account;
	struct abi_sqe sqe;
	uint64_t seq; /* order of arrival */
	uint64_t since_ns, deadline_ns;
	struct context *ctx;
	uint8_t *arg; /* CORE_ARG_BYTES_MAX, its own copy */
	bool cancelled, late;
	bool wanted;          /* migrate: write-back was told of the block at the cursor */
	bool queued;          /* in the queue of its phase */
	bool answered;        /* the completion was sent */
	uint32_t connection;  /* of its client: numbers are used again */
	uint32_t outstanding; /* ios and copies under way for it */
	uint32_t cursor;      /* first item not known to be done */
	uint32_t total;
	uint32_t held;        /* fetch: refs [released, held) carry a hold */
	uint32_t released;
	bool holding;         /* ... some are still to be held */
	bool ending;          /* ... nothing is looked for any more: what came is counted */
	uint32_t usable;      /* ending: blocks or pages that are there, before the one at ... */
	uint32_t counting;    /* ... this page of the next block, or page of the list */
	uint32_t stripe;      /* fetch: so many blocks come whole before the next ones */
	uint32_t built;       /* fetch: items before it are there or on their way */
	uint32_t counted;     /* fetch: items before it were looked at once */
	bool room;            /* ... waits for places, not for others' pages */
	uint32_t joined;      /* fetch: items before it raised what others had queued for them */
	uint32_t losses;      /* ... when the scheduler had lost so many */
	bool leaving;         /* ... one of these pages was on its way out: all look again */
	int32_t error;        /* first error; ends it when outstanding is 0 */
	uint32_t status;
	uint8_t path_bad;     /* fetch: PATH_* that failed it */
	bool foreseen;        /* what it brings is staged until a reader comes */
	bool parked;          /* in core.parked */
	uint64_t use_ns;      /* parked: to be there then */
	/* Of the core's own requests: */
	bool charged;         /* to its account's requests */
	void (*ended)(struct core *c, struct request *r, uint64_t value);
	void *owner; /* for whom it is; NULL = nobody any more */
	uint64_t pin;              /* pin, prefetch: that which keeps what came, */
	uint32_t protected_blocks; /* ... and so many blocks */
	bool guard;                /* one of our own: pinned when it came, */
	uint32_t guard_client, guard_layers; /* ... for whom, how much of it, */
	uint64_t guard_ns;         /* ... until then */
	uint32_t moved;       /* migrate: blocks that are where they should be */
	uint64_t read_bytes, copy_bytes;   /* prefetch: to be moved, by the last look */
	uint64_t begun_ns, transfer_ns;    /* ... when it was due, how long it should take */
	uint64_t room_ns;                  /* ... and room for it before that */
	struct put *put;
	struct stream *stream;
	uint64_t sync_seq; /* REQUEST_SYNC: needs this flush */
	uint64_t tomb_seq; /* delete: needs the tombstones up to here */
	uint64_t epoch;    /* put-reserve that waits for slots: in which it was asked for */
	bool given;        /* ... idle descriptors were given up for it, once */
	struct request *next; /* in the queue of its phase */
};

struct put {
	bool used, committing;
	bool expired; /* not used any more, since nobody committed it by its deadline */
	uint32_t client, account;
	uint64_t handle;
	struct context *ctx;
	uint64_t epoch;
	struct abi_put_args args;
	uint64_t reservation; /* 0 = none */
	bool durable;
	uint64_t deadline_ns;
	uint32_t needs, whole;     /* parts that a block must have to be whole; their pages */
	uint32_t pages;            /* of a block in this shard */
	uint64_t block_bytes;      /* likewise */
	uint64_t room;             /* while reserving: bytes left to its context's tables, */
	bool short_of_tables;      /* ... and that they were too few, */
	bool collides;             /* ... or that its chain in the index is full */
	const uint8_t *keys;       /* while reserving: in the request's arguments */
	struct abi_block_ref *ref; /* args.count of them */
	uint64_t mine[PUT_BLOCKS_MAX / 64]; /* bit i: block i counts us as a writer */
	uint64_t kept[PUT_BLOCKS_MAX / 64]; /* bit i: block i is held until it is durable */
	uint32_t done;             /* references made */
	uint32_t brought, before;  /* new blocks of the prompt with these; slot before the next */
	bool brings;               /* ... which has one at least */
	bool joined;               /* the prompt brought the block before the next one, too */
	uint32_t written;          /* durable: blocks known to be in the durable log */
	/* Walks that go on where they were in the event before: */
	uint32_t prepared;         /* committing: blocks that are ready to be copied to, */
	uint32_t look;             /* ... page of the next one's part, or of the gap's block */
	uint32_t begun;            /* ... of that block: parts that somebody brings */
	uint32_t gap;              /* ... blocks that were looked at for gaps */
	bool ending, freeing;      /* over: what came is counted and kept, then it lets go */
	bool replaced;             /* ... what it replaces has left */
	bool shared;               /* ... of a block that others still write */
	int32_t res;               /* ... its answer, */
	uint32_t counted, visible; /* ... blocks counted, of these whole, */
	uint32_t kept_on, freed;   /* ... retained, let go */
	struct put *next_freeing;  /* ... nobody else comes back to it */
	struct put *next;          /* free list, or its client's */
};

/* Tables that all share (account.c). */
enum account_kind {
	ACCOUNT_REQUESTS = 0,
	ACCOUNT_PUTS,
	ACCOUNT_PINS, ACCOUNT_PIN_CHUNKS,
	ACCOUNT_PLANS, ACCOUNT_RESERVATIONS,
	ACCOUNT_STREAMS,
	ACCOUNT_PARKED,  /* parked: also those that the core parks for a user's conversations */
	ACCOUNT_CONVERSATIONS, /* never refused for a user's sake: who has most forgets one */
	ACCOUNT_REFS,    /* ... likewise: chunks of what conversations will read */
	ACCOUNT_KINDS,
};

/* Room for all connections' users, and those of requests, puts and streams that outlive theirs. */
#define CORE_ACCOUNTS_MAX (CORE_CLIENTS_MAX + 2u * CORE_REQUESTS_MAX + CORE_STREAMS_MAX + 1u)

struct account {
	uint32_t uid;
	uint32_t connections; /* open, or gone and not dead */
	uint32_t used[ACCOUNT_KINDS];
	uint64_t held[ABI_MEM_TIERS]; /* bytes its leases keep in quarantine, at the last look */
	uint64_t windows[ABI_MEM_TIERS]; /* bytes of the stream pool that it has */
};

/* The prompt that a client puts, perhaps in several puts each of which goes on where one ended. */
struct prompt {
	uint32_t context_id;
	uint32_t tail; /* slot of its last block so far */
	uint32_t brought; /* new blocks so far */
	bool joined;      /* its last one was new, too */
};

/*
 * What a client's stream of kernels may still read (abi/hazard.h H4): nothing that was unpublished
 * up to fence `clear`. At any time one snapshot of its era_begin is waited for: it was taken behind
 * fence `fence`, and later ones ask for another.
 */
struct era {
	uint64_t clear;
	uint64_t fence; /* 0: none is waited for */
	uint64_t begin;
};

struct client {
	uint8_t state; /* 0 free, 1 open, 2 gone (waits for DEAD), 3 dead, and it still leaves */
	bool leaving;  /* gone, and not all that it had has ended */
	struct meter_pass conversations_leave, pins_leave;
	bool over;     /* its connection is being ended for what its leases keep */
	uint32_t account;
	uint32_t used[ACCOUNT_KINDS];
	uint64_t held[ABI_MEM_TIERS];      /* seen by scans since the last look */
	uint64_t held_last[ABI_MEM_TIERS]; /* ... between the two looks before */
	struct core_client_open open;
	uint64_t *attached; /* bitmaps over context ids */
	uint64_t *writable;
	uint64_t access_seen[ABI_READERS_MAX];
	struct era era[ABI_READERS_MAX];
	uint32_t readers_used; /* readers below have ever logged something */
	uint32_t drain_reader; /* whose log is heard first next time */
	struct prompt prompt;
	uint32_t connection; /* counts the clients that had this number */
	uint32_t orders;     /* requests in REQUEST_ORDER */
	uint32_t owner;      /* in the core's ledger of what clients put */
	struct put *puts;
};

/* ---- streams ------------------------------------------------------------------------------ */

#define STREAM_ITEMS_MAX (1u << 22) /* pages of one stream */

/* stream.item: what we have done about a page */
#define ITEM_COUNTED 1u /* it counts us in the target tier, */
#define ITEM_STAGE 2u   /* in CXL, on its way to HBM */
#define ITEM_MINE 4u    /* we brought it */
#define ITEM_LATE 8u    /* it was still coming at the deadline */

/* abi_page.streams: how many streams count on the page, and whether its place is the pool's. */
#define STREAMS_POOL 0x8000u

/*
 * A stream: n blocks, layer by layer. Items are numbered layer, part, block, group; those of layers
 * that a part does not have, or of parts that a block does not have, are void. The cursors follow
 * each other: dropped <= done <= copy <= issue.
 */
struct stream {
	bool used;
	bool ended; /* answered: nothing more is begun */
	bool over;  /* all its counts go, then the stream */
	bool taking;    /* not all of its blocks are held yet */
	bool finishing; /* it is counted what came: */
	uint32_t finish_status, marked, counted, there; /* ... its answer; how far that is */
	int32_t finish_error;
	uint32_t number;
	uint32_t client, connection;
	uint32_t account; /* of its user, also when its connection has ended */
	struct context *ctx;
	struct request *request; /* as long as something moves for it */
	struct abi_stream *line; /* the client's: never trusted; NULL once its connection ended */
	uint32_t generation;
	uint8_t tier, mode, klass;
	uint32_t status;
	struct abi_block_ref *ref;
	uint8_t *item;
	uint32_t held;   /* refs [0, held) carry a hold */
	uint32_t count;  /* blocks */
	uint32_t usable; /* blocks that can still be whole */
	uint32_t part_first, part_end;
	uint32_t layer_first, layers; /* the model's */
	uint32_t groups;              /* of its parts together */
	uint32_t per_layer;           /* items: groups of all blocks */
	uint32_t released;            /* layers the client is done with */
	uint32_t ready;               /* layers told */
	uint32_t window;              /* layers; 0 = waits to be admitted */
	uint32_t dropped, done, copy, issue;
	uint64_t layer_bytes; /* of its largest layer */
	uint64_t need, want;  /* bytes of window */
	uint64_t grant[ABI_MEM_TIERS];
	uint64_t until_ns; /* ended: its counts go then */
	uint64_t since_ns, deadline_ns;
	uint64_t moved, used_bytes, late, wasted;
};

/* ---- pins --------------------------------------------------------------------------------- */

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

/* ---- moves -------------------------------------------------------------------------------- */

enum move_state { MOVE_THERE, MOVE_UNDER_WAY, MOVE_BLOCKED, MOVE_GONE };

/* What one step is building. */
struct mover {
	struct core_io *io;
	struct core_copy *copy;
	uint64_t copy_bytes; /* in copy */
	uint64_t blocked_bytes;
	uint32_t blocked_tier;
	uint32_t blocked_slot; /* its account is full; ABI_SLOT_NONE = the tier is */
};

/* ---- scans -------------------------------------------------------------------------------- */

/*
 * A pass looks at every reader's slots once, a share in each turn, for all places that were fenced
 * before it began; the others wait for the next one.
 */
struct scan {
	uint32_t *table;   /* by hash of a place: 1 + entry (batch, index in it); 0 = none */
	uint32_t pass;     /* counts them */
	bool running;      /* slots are looked at, or what they showed is gone through */
	bool begun, over;  /* ... the first was, all were */
	bool asked;        /* an AC_SCAN is with the shell */
	uint32_t slots;    /* looked at in this turn */
	uint32_t client, reader, slot; /* where it goes on */
	struct core_batch *walk; /* ... over places, for the client's kernels: slot counts them */
	struct core_batch *fresh_head, *fresh_tail; /* fenced, and in no pass so far */
	struct core_batch *set; /* of the pass */
};

/* ---- the core ----------------------------------------------------------------------------- */

/* What the tables of contexts take (tables.c), by who owns the contexts. */
struct tables_user {
	uint32_t uid;
	uint32_t contexts; /* 0 = free */
	uint64_t bytes;    /* of memory */
	uint64_t addresses;
};
struct tables {
	struct tables_user *user; /* [ABI_CONTEXTS_MAX] */
	uint32_t users_high;
	uint64_t bytes, addresses; /* of all */
};

/* Keys that may have a record (recorded.c). */
struct recorded {
	uint64_t *lsn;
	uint32_t places; /* a power of two */
};

/* Contexts of the catalog that cannot be made now (aside.c). */
struct aside {
	struct disk_context *context;
	struct disk_limit *limit;
	uint32_t count, limits;
	uint64_t lsn; /* of their last record whose data is not known to be there; 0 = none */
};

struct token {
	uint64_t token;
	uint64_t value;
	int32_t res;
};

struct core {
	struct core_config config;
	uint64_t now_ns;
	struct core_metrics metrics;
	struct meter meter;
	uint64_t turns; /* ticks */
	struct pool pool[ABI_MEM_TIERS];
	struct store *store; /* NULL: no NVMe tier */

	struct core_action *action; /* ring of CORE_ACTIONS_MAX */
	uint32_t action_head, action_tail;

	struct context **context; /* by index, [contexts_high] */
	uint32_t contexts_high, contexts;
	uint64_t next_uid;
	uint16_t context_generation;

	struct client *client;
	uint32_t clients_high; /* clients [0, high) may be open */
	uint32_t leaving;      /* clients and contexts that are */
	struct account account[CORE_ACCOUNTS_MAX];
	uint32_t accounts_high, users; /* users: those with connections */
	struct ledger owners;  /* what clients put, by connection */

	struct request *request;
	struct request *request_free, *run_head, *run_tail;
	struct request *walk_head, *walk_tail; /* went on for an event's share, and will */
	struct request *space_head, *space_tail;
	uint32_t requests, requests_high; /* requests [0, high) may be in use */
	uint64_t request_seq;
	struct put *put, *put_free, *put_orphans; /* orphans: committing, their client has gone */
	struct put *put_freeing; /* let go by nobody's step: put_work */
	uint64_t put_seq;
	uint32_t expire_context; /* whose incomplete blocks are looked at next */

	struct sched *sched;
	struct core_io *io, *io_free;
	uint32_t ios;
	struct core_copy *copy, *copy_free;
	uint32_t copies;

	struct block_list unretired; /* dropped blocks whose pages found no room in a batch */
	/* ... whose children are to follow; cannot yet */
	struct block_list parents_leaving, waiting;
	uint64_t waiting_next_ns;
	struct core_batch *batch, *batch_free;
	struct core_batch *batch_open;                         /* collects */
	struct core_batch *quarantine_head, *quarantine_tail;  /* wait for another scan */
	uint64_t quarantine_next_ns;
	uint64_t era; /* fences that are over: behind which one places were retired */
	struct scan scan;
	uint64_t quarantined[ABI_MEM_TIERS]; /* bytes */
	uint32_t punching[ABI_MEM_TIERS];    /* slabs */
	struct evacuation evacuation;
	uint64_t spares_ns; /* the last look at empty slabs */
	uint32_t evacuate_failed[2];    /* slabs in a row that could not be emptied, */
	uint64_t evacuate_failed_ns[2]; /* ... the last one then; [1] = compacted */

	uint32_t drain_next; /* client whose logs are heard first next time */
	struct parked parked;
	struct staged staged;
	struct conversations conversations;
	struct plans plans;
	struct stream *stream;
	uint32_t streams, streams_high;       /* streams [0, high) may be in use */
	bool streams_busy;                    /* counts are being dropped */
	uint32_t stream_next;                 /* ... first by this one */
	uint64_t streamed[ABI_MEM_TIERS];     /* bytes of places that are the pool's */
	uint64_t stream_grants[ABI_MEM_TIERS];
	uint64_t stream_aside[ABI_MEM_TIERS]; /* bytes that others may not have */
	uint64_t stream_idle_ns;              /* what is set aside without a grant is let go then */

	struct pin *pin;
	uint32_t pin_free, pins, pins_high, chunks_high;
	uint32_t pins_ending; /* 1 + the first; 0 = none */
	uint32_t pins_looked; /* of the look at deadlines, where it goes on */
	uint64_t pinned[ABI_MEM_TIERS]; /* bytes, of all contexts */
	/* of CXL: what reservations may come to and did not draw yet */
	uint64_t reserved_most_bytes;
	uint64_t pins_next_ns;
	uint64_t pin_seq;
	struct pin_chunk *chunk, *chunk_free;

	struct reservation *reservation;
	uint32_t reservation_free, reservations, reservations_high;
	uint64_t reserve_seq;
	bool reserve_growing; /* some reservation is */
	struct predict predict;

	struct tables tables;
	struct aside aside;
	struct recorded recorded;
	struct tombs tombs[TOMBS_KINDS];
	struct run run[CORE_RUNS_MAX];
	struct block_list *segment_blocks; /* by segment */
	uint64_t write_seq; /* records whose write has completed */
	uint64_t sync_seq;  /* ... that a completed flush covers */
	uint64_t sync_started;
	uint64_t sync_lsn;   /* what flushed_lsn becomes by it; 0 = it stays */
	bool sync_wanted, sync_running, draining;
	bool flushed_frozen; /* flushed_lsn does not move: see flush.c */
	uint64_t unfreeze_tombs;
	uint64_t flush_retry_ns;
	uint32_t flush_failures, write_failures; /* since the last success */
	uint64_t suspects; /* blocks that became SETTLE_SUSPECT and were not written again since */
	struct unflushed *unflushed; /* ring of UNFLUSHED_MAX, by seq */
	uint64_t unflushed_head, unflushed_tail;
	struct prover prover;
	struct cleaner cleaner;
	uint64_t write_retry_ns; /* after a failed write: not before */
	uint32_t write_context[CORE_RUNS_MAX]; /* round robin: who comes next in each log */
	struct discarder discarder;

	uint64_t catalog_sequence;
	uint8_t *catalog_buf;
	struct disk_context *catalog_list; /* scratch, catalog_max of them */
	struct disk_limit *catalog_limits; /* likewise, of the rest of the slot */
	uint32_t catalog_max;
	uint64_t catalog_sync; /* the flush its last write needs */
	uint32_t *crc_scratch;
	struct disk_block *tomb_scratch;
	bool catalog_dirty, catalog_running, catalog_suspect; /* a flush failed during its write */
	uint64_t voids, voids_listing, voids_listed; /* epochs and removals; written, flushed */
	struct token catalog_token[CORE_TOKENS_MAX]; /* [0, flying) are in the write under way */
	uint32_t catalog_tokens, catalog_flying;
	struct token drain_token[CORE_TOKENS_MAX];
	uint32_t drain_tokens;

	struct recover recover;
	struct retain retain;
	uint64_t next_slow_ns, next_deadline_ns;
};

/* ---- small shared functions --------------------------------------------------------------- */

static inline struct context *core_context(const struct core *c, uint32_t id)
{
	uint32_t index = ABI_CONTEXT_INDEX(id);
	struct context *x = index < c->contexts_high ? c->context[index] : NULL;

	return x && x->id == id ? x : NULL;
}

/* By the number that the store knows it by, in all its lives. */
static inline struct context *core_context_by_uid(const struct core *c, uint64_t uid)
{
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->context[i]->spec.uid == uid)
			return c->context[i];
	return NULL;
}

static inline bool bit_get(const uint64_t *map, uint32_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static inline const struct abi_geometry *context_geometry(const struct context *x)
{
	return &x->spec.geometry;
}

static inline uint32_t page_stride(const struct context *x, uint32_t page)
{
	return x->spec.geometry.part[x->page_part[page]].page_stride;
}

/* Bytes at its end that no engine writes. */
static inline uint32_t page_padding(const struct context *x, uint32_t page)
{
	const struct abi_part *part = &x->spec.geometry.part[x->page_part[page]];

	return part->page_stride - part->page_bytes;
}

static inline bool stream_page_charged(const struct abi_page *d, uint32_t tier)
{
	return d->streams[tier] & STREAMS_POOL;
}

static inline uint32_t stream_page_count(const struct abi_page *d, uint32_t tier)
{
	return d->streams[tier] & (STREAMS_POOL - 1);
}

static inline bool block_queued(const struct block_meta *m)
{
	return m->persist == PERSIST_QUEUED || m->persist == PERSIST_WANTED;
}

static inline bool context_has_nvme(const struct core *c, const struct context *x)
{
	return c->store && x->plan.quota[ABI_TIER_NVME];
}

/* Dirty bytes of a context: beyond them durable puts wait. */
static inline uint64_t dirty_limit(const struct core *c, const struct context *x)
{
	uint64_t cxl = c->pool[ABI_TIER_CXL].capacity;

	if (x->plan.quota[ABI_TIER_CXL] < cxl)
		cxl = x->plan.quota[ABI_TIER_CXL];
	return cxl / 100 * c->config.dirty_percent;
}

/* A flush, with the next step. */
static inline void sync_want(struct core *c)
{
	c->sync_wanted = true;
}

/* Does the block leave the service when CXL lets it go? */
static inline bool block_leaves_whole(const struct core *c, const struct context *x, uint32_t slot)
{
	return !context_has_nvme(c, x) || x->meta[slot].persist == PERSIST_REFUSED;
}

/* What a block has at the moment: to look at, all nought when it has nothing; and to change. */
static inline const struct block_use *block_use(const struct context *x, uint32_t slot)
{
	return &x->uses.entry[x->meta[slot].use];
}

static inline struct block_use *block_use_make(struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!m->use)
		m->use = block_uses_take(&x->uses) & 0x3fffffffu;
	return &x->uses.entry[m->use];
}

static inline void block_use_drop(struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!m->use)
		return;
	memset(&x->uses.entry[m->use], 0, sizeof(struct block_use));
	block_uses_give(&x->uses, m->use);
	m->use = 0;
}

static inline void block_use_settle(struct context *x, uint32_t slot)
{
	struct block_meta *m = &x->meta[slot];

	if (!m->use || !block_use_is_nought(&x->uses.entry[m->use]))
		return;
	block_uses_give(&x->uses, m->use);
	m->use = 0;
}

/* Memory words of the block that are not ABSENT. */
static inline uint32_t block_words(const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	return block_use(x, slot)->moving + m->there[ABI_TIER_HBM].pages +
	       m->there[ABI_TIER_CXL].pages;
}

static inline uint64_t block_salt(const struct context *x, uint32_t slot)
{
	return x->tenants.entry[x->meta[slot].tenant].salt;
}

static inline uint32_t block_account(const struct context *x, uint32_t slot)
{
	return x->tenants.entry[x->meta[slot].tenant].account;
}

static inline uint32_t block_lane(const struct context *x, uint32_t slot)
{
	return x->tenants.entry[x->meta[slot].tenant].lane;
}

/* Of the policy that has the block or will have it; NULL = no block of its lane came so far. */
static inline void *block_policy(const struct context *x, uint32_t slot, uint32_t tier)
{
	return x->lanes.state[tier][block_lane(x, slot)];
}

/* core.c */
void core_client_end(struct core *c, uint32_t id);
void core_context_free(struct core *c, struct context *x);

/* leave.c */
void leave_client(struct core *c, uint32_t id);
void leave_context(struct core *c, struct context *x);
void leave_work(struct core *c);

/* context.c */
void context_tick(struct core *c);
void context_maybe_gone(struct core *c, struct context *x);

#include "tierd/core/book/book.h"
#include "tierd/core/book/room.h"
#include "tierd/core/io/actions.h"
#include "tierd/core/move/move.h"
#include "tierd/core/op/op.h"
#include "tierd/core/op/put.h"
#include "tierd/core/place/place.h"

#endif
