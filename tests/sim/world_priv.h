/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the world's files share: one struct, made by world_run, used by one thread.
 *   world.c   moves, actions, life        client.c  what clients ask
 *   model.c   what must be true           owner.c   contexts, and what owners do
 *   device.c  the store's device and its faults
 *   inside.c  what only the core's own words show: why there is no room, heads, classes
 *   ahead.c   what clients say of the time to come
 *   habit.c   what they do after what they did before
 *   reader.c  leases, and the processor's store buffer
 *   foresight.c  prefetches: when bytes may be committed
 *   stream.c     streams: what their watermarks promise
 *   path.c       two paths into HBM: a failing one costs nobody a page
 *   image.c      what the device would show after a crash at this moment
 *   theirs.c     what is whose: budgets, reservations, puts, conversations, dead clients' memory
 *   bytes.c      what a client writes of a put, and where
 *   lives.c      contexts removed and made again: which of them a crash may bring back
 *   wide.c       worlds with settings, sizes and requests that are rare
 */
#ifndef TESTS_SIM_WORLD_PRIV_H
#define TESTS_SIM_WORLD_PRIV_H

#include <stdio.h>

#include "libtier/base/crc32c.h"
#include "tests/sim/world.h"
#include "tierd/core/io/sched.h"
#include "tierd/core/unit/store.h"

#define WORLD_CONTEXTS 2u /* 0 has NVMe; 1 lives in memory only */
#define WORLD_CLIENTS 3u
#define WORLD_BARRED 1u /* a context that some clients have not opened */
#define WORLD_KEYS 256u
#define WORLD_CONVERSATIONS 8u
#define WORLD_SLOTS 512u /* of a context, whose write-back is watched */
#define WORLD_PLANS 2u /* of a client */
#define WORLD_ACCESSES 48u
#define WORLD_LEASES 16u
#define WORLD_LOANS 24u /* slabs in devices of clients */
#define WORLD_LEADS 128u /* blocks whose first layers are pinned, watched at a time */
#define WORLD_LIVES 4u /* of a context's name, whose removal is not durable */
#define WORLD_READERS 2u /* of a client */
#define WORLD_BAG 16384u
#define WORLD_MOVE_EVENTS 1000000u /* a pause of all takes some ten thousand */
#define WORLD_DEPTH 24u /* of the device, at most */
#define WORLD_ASKS 8u /* requests of a client under way */
#define WORLD_FORK 32u /* keys that are a multiple of it all stand behind the first so many */
#define WORLD_RUN 8u  /* keys of one request, at most */
#define WORLD_SALTS 4u /* of a context; 0 is the public one */
#define BLOCK_BYTES (6 * PAGE + STATE_BYTES)
#define CXL_BYTES (10u << 20)
#define CXL_TIGHT_BYTES (8u << 20)
#define HBM_BYTES (8u << 20)
#define WORLD_DRIVES 2u
#define NVME_BYTES (16u << 20)
#define NVME_SMALL_BYTES (7u << 19)
#define SEGMENT_SMALL_BYTES (160u << 10)
#define STAGING_BYTES (3u << 20)
#define ARENA_PIECE (STAGING_BYTES / WORLD_ASKS)
#define ARENA_PLANS (STAGING_BYTES - 4096u) /* their positions: behind all arguments */
#define ARENA_ARGS (ARENA_PIECE - 8192u) /* arguments at the end of each ask's piece */
#define PAGE 4096u
#define STATE_BYTES (3 * PAGE) /* pages of part "state": so there are two classes, mostly */
#define STATE_MOST (5 * PAGE)  /* ... in wide worlds */
#define MSEC 1000000ull
/* Of owners' requests; nobody waits for the answers to others. */
#define TOKEN_MAKE 1u
#define TOKEN_REMOVE 2u
#define TOKEN_EPOCH 3u
#define TOKEN_OTHER 4u
#define TOKEN_REMOVED 5u

enum ask_kind { ASK_NONE, ASK_RESERVE, ASK_RESERVED, ASK_COMMIT, ASK_OTHER };

struct ask {
	enum ask_kind kind;
	uint8_t op, mode;
	uint32_t context, first, count;
	bool durable;
	uint32_t shards, shard;
	uint64_t parts;
	uint64_t epoch;
	uint64_t handle;
	uint64_t sequence;   /* when it was asked for; a put, when its room was */
	uint64_t submitted;  /* the last entry of it, in the same count */
	uint64_t target;     /* cancel: sequence of the ask that it cancels */
	bool may_begin;      /* prefetch: it is, or was, near enough to its deadline */
	bool wild;           /* to be refused: not his, not there, outside of the arena */
	bool chosen;         /* its keys are: by habit.c, and its tier is HBM */
	bool stale;          /* it names a block that is not there */
	bool refused;        /* -ENOSPC was decided, and judged, but not yet answered */
	bool unhurried;      /* at rest since long before its deadline: must not be late */
	struct abi_block_ref in_cxl[WORLD_RUN]; /* fetch to HBM: whole in CXL when asked for, */
	bool sound;          /* ... all of them */
	uint64_t copies_failed; /* ... when so many copies had failed */
	uint64_t pages;      /* bit = page of each block that is asked for; 0 = all */
	uint32_t undisputed; /* delete: bit i = no commit of key i was under way then */
	uint64_t deadline_ns;
	uint64_t staging; /* offset of its arena piece */
};

#define WORLD_LINES 3u   /* progress lines of a client */
#define WORLD_HOLD (20 * MSEC) /* an answered stream's layers are kept that long */

/* A stream as its client knows it. */
struct world_stream {
	bool used;
	bool loose; /* the client wrote nonsense, or let go: nothing is promised any more */
	bool stale; /* the line's word was not this one's when it began */
	uint64_t begun_ticks;
	uint32_t ask, context, tier, first, count;
	uint32_t generation;
	uint32_t ready, usable;  /* last seen */
	uint32_t released;
	uint64_t ended_ns;       /* 0 = not yet */
	uint32_t told, told_end; /* line.ready and .ended after the event before */
	struct abi_block_ref block[WORLD_RUN];
};

struct world_room { /* a reservation that was granted */
	uint64_t id;    /* 0 = none */
	uint32_t context;
	uint64_t deadline_ns;
};

struct world_client {
	uint32_t state; /* 0 dead, 1 alive, 2 connection gone, process still there */
	uint8_t *staging;
	struct abi_reader *reader; /* WORLD_READERS of them */
	struct abi_stream *line; /* WORLD_LINES of them */
	struct abi_stream *dead_line; /* ... of the one before, whose process is dead */
	struct world_stream stream[WORLD_LINES];
	uint32_t generation;
	struct ask ask[WORLD_ASKS];
	uint64_t plan[WORLD_PLANS]; /* handles; 0 = none */
	uint32_t plan_context[WORLD_PLANS];
	uint64_t old_handle; /* of a put that has ended: for stale entries */
	uint64_t old_room;   /* of a reservation that was handed back */
	struct world_room room;
	uint64_t old_pin;    /* ... of a pin in context 0 */
	bool barred;         /* context WORLD_BARRED is not open to it */
	bool reads_only[WORLD_CONTEXTS];
	bool over;           /* the daemon is about to end its connection */
	uint32_t fetched_context, fetched_first, fetched; /* to HBM, just now; so many keys */
	bool woken; /* in this event */
};

struct world_pin {
	uint64_t id; /* 0 = none */
	uint32_t client, context, tier, first, count;
	uint64_t deadline_ns;
	uint64_t resident[WORLD_RUN]; /* bit = page that was there when the pin was acknowledged */
	struct abi_block_ref block[WORLD_RUN]; /* then: one that came later is not pinned */
	uint32_t there;    /* bit = block that has not left the service since, on whatever tier */
	uint32_t epoch;    /* then */
	uint64_t gone; /* then: the core's counts of blocks that do not verify, or find no quota */
};

/* A block whose first layers the core has pinned, at the last look. */
struct world_lead {
	uint64_t pin, looked, pages;
	struct abi_block_ref ref;
};

struct world_lease {
	uint64_t place;      /* published; 0 = none */
	const uint8_t *data; /* NULL = not looked at again, or none */
	uint64_t word;
	bool buffered; /* the place, or the era, is in the store buffer: no scan sees it */
	uint64_t era;  /* a kernel, which names no place (abi/hazard.h H4): of its launch; else 0 */
	uint32_t client, context, n, page, tier;
	uint32_t slot, generation; /* of the block */
	uint32_t index;            /* of the hazard slot */
};

/* A slab that a device of a client has. */
struct world_loan {
	uint32_t client, context;
	struct core_range range; /* bytes 0 = none */
};

/* A block that was seen behind another one, until it is seen to have gone. */
struct world_link {
	uint32_t context, slot, generation; /* its own */
	bool seen;
	uint64_t alone_ns; /* its parent has gone and nothing keeps it, for so long */
};

/* What the outside knows of one conversation. */
struct world_conversation {
	uint32_t client;
	bool away;            /* a turn has ended */
	uint64_t use_ns;      /* its blocks may come shortly before this */
	uint64_t patience_ns; /* ... and not after this */
	uint32_t context;
	uint32_t count;
	struct abi_block_ref ref[WORLD_RUN];
	uint64_t rest_ns;     /* after a return: until then the rest may come */
	uint32_t holder, context_id; /* who ended its last turn, and where; */
	uint64_t known_ns;    /* ... the core remembers that for so long, at least */
};

/* Keys whose blocks are visible while a read of theirs does not verify. */
struct world_rotten {
	uint32_t count, n[CORE_SEGMENTS_IO];
};

#define WORLD_HOLDERS 16u

/* wide.c: a connection as it was at the last look. */
struct world_holder {
	uint64_t key, hard[ABI_TIER_COUNT], held[ABI_TIER_COUNT];
};

#define WORLD_WRITERS 64u

/* A put as it was at the last look. */
struct world_writer {
	uint64_t handle, looked;
	uint64_t pending; /* bit = block that waits for it, or for another's bytes */
};

/* theirs.c: at the last look. */
struct world_theirs {
	uint64_t pins; /* a sum that tells whether one came or went */
	uint64_t host[ABI_MEM_TIERS]; /* bytes that pins claim; of */
	uint64_t context[WORLD_CONTEXTS][ABI_MEM_TIERS];
	uint64_t salt[WORLD_CONTEXTS][WORLD_SALTS][ABI_MEM_TIERS];
	uint64_t client[WORLD_CLIENTS][ABI_MEM_TIERS];
	uint64_t promises[WORLD_CONTEXTS]; /* bytes that reservations may come to, */
	uint64_t beside[WORLD_CONTEXTS];   /* and what pins and readers held beside them */
	struct world_writer writer[WORLD_WRITERS];
	uint64_t has[WORLD_CONTEXTS][ABI_TIER_COUNT]; /* bytes that a context is charged for */
	uint64_t looked;  /* at puts */
	uint64_t dropped; /* visible blocks, by the core's count */
	struct world_holder holder[WORLD_HOLDERS];
};

/* What the outside knows of one key of one context. */
struct world_key {
	uint64_t put_epochs;   /* bit e % 64: a commit in epoch e was sent */
	bool durable;        /* acknowledged durable, and nothing since could have removed it */
	uint64_t put_sequence; /* when the last commit was sent */
	bool deleted;        /* delete was acknowledged, no put was sent since it was asked for */
	bool doomed;         /* its deletion was asked for, at any time */
	bool voided;         /* what was stored under it did not verify: not offered again */
	bool ghost;          /* a dead client's commit may still land; until the next quiet */
	uint8_t said[WORLD_SALTS]; /* bits: how puts of the salt want it kept; SAID_TTL, priority */
};

#define SAID_TTL 8u
#define SAID_TTL_MS 200u /* at most */

/* A context from being made to being removed; see lives.c. */
struct world_life {
	uint64_t number;     /* 0 = none */
	uint64_t epoch;      /* the last one acknowledged */
	bool made, removed;  /* acknowledged */
	struct world_key key[WORLD_KEYS];
};

struct world_context {
	bool made, removing;
	uint32_t id;
	uint64_t epoch;
	uint8_t *index;
	const struct abi_index_header *header;
	uint8_t *mem[ABI_MEM_TIERS];
	uint64_t hbm_bytes; /* of mem */
	struct abi_geometry geometry;
	struct world_life now, past[WORLD_LIVES];
	/* hard limits that were set, and what was held then or since, whichever is less */
	uint64_t hard[WORLD_SALTS][ABI_TIER_COUNT], held[WORLD_SALTS][ABI_TIER_COUNT];
};

struct world {
	const struct world_faults *faults;
	struct world_result *result;
	uint64_t left;  /* pages that had left before the present event */
	bool anew;      /* what context 0 held was voided: clients put it again */
	bool crash_due; /* right after an acknowledgement is when a crash tells most */
	bool trace, fair; /* fair: everyone waits, the device is well */
	uint64_t random, now_ns, sequence, ticks;
	uint64_t wall_ms; /* what the wall clock is ahead of now_ns: it is set, too */
	uint64_t lives; /* of all contexts, so far */
	bool clients_limited; /* some connection has, or had, a limit of its own */
	uint32_t move_events; /* of the present move */
	uint32_t last_context, last_first; /* of the last ask by key */
	uint64_t lead_ns;  /* so long before its time of use a prefetch may begin */
	uint64_t copies_failed; /* to HBM, since the start */
	uint64_t foreseen; /* the core's count of bytes brought ahead of use, at the last look */
	struct core *core;
	struct core_action *bag;
	uint32_t bag_count;
	uint32_t depth; /* of the device */
	uint64_t starve_ns;
	uint64_t late_ns, discard_ns; /* beside others so long after the last; which was then */
	struct world_client client[WORLD_CLIENTS];
	struct world_context context[WORLD_CONTEXTS];
	struct world_lease lease[WORLD_LEASES];
	struct world_loan loan[WORLD_LOANS];
	struct world_pin pin[WORLD_LEASES];
	struct world_conversation conversation[WORLD_CONVERSATIONS];
	struct world_conversation conversation_was; /* before what was asked of one last */
	struct world_lead lead[WORLD_LEADS];
	struct world_link link[WORLD_CONTEXTS][WORLD_KEYS];
	struct world_theirs theirs;
	uint64_t patience_ns; /* what is late may be so much more: walks have many turns (wide.c) */
	uint64_t looked; /* at heads */
	uint64_t linked_ns, passed_ns; /* at blocks and those before them; since then */
	/* at the last look at write-back */
	uint64_t run_events, run_lsn[WORLD_DRIVES][9]; /* then; of its runs, 0 = none */
	bool queued[WORLD_SLOTS];

	/* device.c */
	struct disk_super super; /* of the first; the others differ by their store_id alone */
	uint32_t disks;    /* each has NVME_BYTES of what follows */
	uint32_t drives;   /* of these in the store: the others were drained */
	uint32_t mood_drive; /* whose mood it is; `disks` = of all */
	bool dead;         /* all but the first fail until the next crash */
	uint32_t mood;     /* 0 well, 1 silent, 2 failing, 3 full */
	uint8_t *disk;     /* what reads see */
	uint8_t *stable;   /* what survives a crash for sure */
	uint8_t *unstable; /* by sector, see device.c */
	uint8_t *lost;     /* by sector: it was taken, and is gone */
	bool flushing[WORLD_DRIVES];
	struct core_io *landed[WORLD_DEPTH]; /* written, not yet told */
	uint32_t landed_count;
	uint64_t misread[CORE_IO_MAX]; /* of operations in units: pieces that were garbled */

	/* image.c */
	struct store *reader[WORLD_DRIVES]; /* reads summaries; nothing is appended to it */
	uint8_t *image;         /* where sectors are put together */
	uint64_t images, looks; /* that were looked at */
	bool owed;              /* an answer was sent: more is owed than at the last look */
};

void world_fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t world_random(struct world *w);
uint32_t world_below(struct world *w, uint32_t n);
bool world_chance(struct world *w, uint32_t ppm);
void world_settle(struct world *w);
void world_event(struct world *w, struct core_event *e);

/* Whose key it is; in the public salt nobody's. */
static inline uint32_t world_salt(uint32_t n)
{
	return n / 32 % WORLD_SALTS;
}

void client_again(struct world *w);
void client_fill(struct world *w, uint32_t client, uint32_t which, uint32_t keys);
void client_open(struct world *w, uint32_t client);
void client_step(struct world *w);
void client_keys(struct world *w, struct ask *a);
void client_submit(struct world *w, uint32_t client, struct abi_sqe *sqe);
void client_completed(struct world *w, uint32_t client, const struct abi_cqe *cqe);
bool client_left(const struct world *w); /* has something left memory in this event? */
bool client_commits(const struct world *w, uint32_t context, uint32_t n);
void client_attach(struct world *w, uint32_t client);
/* Who is answered: the kind, the context and its life. */
static inline uint64_t token_of(uint32_t kind, uint32_t which, uint64_t life)
{
	return kind + 16ull * which + 256 * life;
}

void owner_evict_all(struct world *w);
void owner_step(struct world *w);
void owner_limit_restore(struct world *w, const struct disk_limit *limit);
void owner_replied(struct world *w, uint64_t token, int res, uint64_t value);
bool context_make(struct world *w, uint32_t which, const struct disk_context *from);
void context_free(struct world *w, uint32_t which);

bool lives_room(const struct world_context *x);
void lives_mark(struct disk_context *spec, uint64_t number);
void lives_begin(struct world *w, uint32_t which);
void lives_end(struct world *w, uint32_t which);
void lives_made(struct world *w, uint32_t which, uint64_t number);
void lives_raised(struct world *w, uint32_t which, uint64_t number, uint64_t epoch);
void lives_removed(struct world *w, uint32_t which, uint64_t number);
void lives_owed(struct world *w, uint32_t which, const struct disk_context *from);
void lives_found(struct world *w, uint32_t which, const struct disk_context *from);
void lives_missed(struct world *w, uint32_t which);

uint8_t model_said(struct world *w, const struct ask *a, struct abi_put_args *args);
void model_key(uint32_t n, uint8_t key[ABI_KEY_BYTES]);
uint32_t model_number(const uint8_t key[ABI_KEY_BYTES]);
void model_behind(uint32_t n, struct abi_put_args *args);
uint32_t model_page_bytes(const struct world *w, uint32_t context, uint32_t page);
void model_page(const struct world *w, uint32_t context, uint32_t n, uint32_t page, void *dst);
const struct abi_block *model_find(struct world *w, uint32_t context, uint32_t n, uint32_t *slot);
const struct abi_page *model_desc(struct world *w, uint32_t context, uint32_t slot, uint32_t page);
void reader_step(struct world *w);
void reader_fence(struct world *w);
void reader_release(struct world *w, uint32_t client, uint32_t context);
void reader_revoked(struct world *w, uint32_t client, uint32_t tier);
void reader_rest(struct world *w);

/* bytes.c */
uint64_t client_put_bytes(struct world *w, uint32_t client, const struct ask *a);

/* lend.c: slabs in devices of clients. WORLD_CLIENTS: of all. */
void lend_forget(struct world *w, uint32_t client);
void lend_step(struct world *w);
void lend_rest(struct world *w);
void lend_punched(struct world *w, const struct core_range *range);
void lend_moved(struct world *w, const struct core_copy *copy);
void lend_removed(struct world *w, uint32_t context);
/* world.c: the process of a client whose connection has ended */
void world_dies(struct world *w, uint32_t i);
void reader_check(struct world *w);
void model_check_deadlines(struct world *w);
bool streams_ask(struct world *w, uint32_t client, uint32_t i, struct abi_sqe *sqe);
void streams_step(struct world *w);
void streams_answered(struct world *w, uint32_t client, uint32_t i, const struct ask *ask,
		     const struct abi_cqe *cqe);
void streams_check_all(struct world *w);
void streams_event(struct world *w);
void streams_rest(struct world *w);
void streams_forget(struct world *w, uint32_t client);
bool model_page_is(const struct world *w, uint32_t context, uint32_t n, uint32_t page,
		   const void *src);
uint32_t model_page_part(uint32_t page);
void model_put_anew(struct world *w, const struct ask *a);
void model_pinned(struct world *w, uint32_t client, const struct ask *ask, uint64_t id);
void client_rest(struct world *w);
void client_crash_soon(struct world *w); /* an answer was sent: it may be */
void client_event(struct world *w); /* one begins */
void foresight_look(struct world *w);
void foresight_check(struct world *w);
void foresight_conversation(struct world *w, uint32_t client, struct ask *a, struct abi_sqe *sqe);
void foresight_plan(struct world *w, uint32_t client, const struct ask *a,
		    const struct abi_cqe *cqe);
void foresight_died(struct world *w, uint32_t client);
void foresight_quiet(struct world *w);
void foresight_rest(struct world *w);
void foresight_settle(struct world *w);
void foresight_conversation_answered(struct world *w, const struct ask *a,
				     const struct abi_cqe *cqe);
void foresight_ready(struct world *w, const struct ask *a, const struct abi_cqe *cqe, bool left);
void theirs_boot(struct world *w);
void theirs_check(struct world *w);
void theirs_lines_anew(struct world *w, uint32_t client);
void theirs_retained(struct world *w, uint32_t context, uint32_t n, uint32_t slot);
void theirs_conversation_asked(struct world *w, uint32_t client, struct ask *a,
			       const struct abi_sqe *sqe);
void theirs_conversation_answered(struct world *w, uint32_t client, const struct ask *a,
				  const struct abi_cqe *cqe);
bool inside_pauses(const struct world *w);
void inside_check(struct world *w);
void inside_spent(struct world *w);
void inside_recovered(struct world *w);
void inside_prefixes(struct world *w);
bool inside_no_room(struct world *w, const struct ask *a, uint32_t tier);
void inside_refused(struct world *w, const struct ask *a);
bool inside_reads_again(const struct world *w, const struct core_io *io);
void inside_misread(struct world *w, const struct core_io *io, uint32_t piece);
void inside_units_end(struct world *w, const struct core_io *io);
void inside_rest(struct world *w, uint32_t context);
void inside_streams(struct world *w);
void inside_copies(struct world *w, const struct core_copy *copy);
void inside_unmoved(struct world *w, const struct core_copy *copy);
void inside_reads_or_writes(struct world *w, const struct core_io *io);
void inside_decided(struct world *w);
void inside_discards(struct world *w, const struct core_range *range);
void model_check_key(struct world *w, uint32_t context, uint32_t n);
void model_check_all(struct world *w, bool content);
void model_check_stored(struct world *w, bool durable);
bool model_full(struct world *w);
bool model_clogged(struct world *w);
void model_quiet(struct world *w);
void model_check_quotas(struct world *w);
void model_died(struct world *w, uint32_t client);

/* ahead.c */
void ahead_conversation(struct world *w, uint32_t client, uint32_t i);
void ahead_plan(struct world *w, uint32_t client, uint32_t i);
void ahead_advance(struct world *w, uint32_t client);

/* wide.c */
void wide_config(struct world *w, struct core_config *config);
void wide_spec(const struct world *w, uint32_t which, struct disk_context *spec);
uint32_t wide_part(const struct world *w, uint32_t which, uint32_t part, uint32_t usual);
bool wide_ask(struct world *w, uint32_t client, uint32_t i);
void wide_range(struct world *w, struct ask *a, struct abi_sqe *sqe);
bool wide_owner(struct world *w);
void wide_pages(struct world *w, uint32_t client, const struct ask *a, const struct abi_cqe *cqe);
void wide_ended(struct world *w, const struct core_action *a);
void wide_check(struct world *w);
bool wide_store_full(const struct world *w);
bool wide_spends(const struct world *w);
bool wide_limits(const struct world *w, uint32_t which, uint32_t tier);

/* habit.c */
uint8_t habit_next(struct world *w, uint32_t client, struct ask *a);
void habit_gone(struct world *w, struct ask *a);
void habit_fetched(struct world *w, uint32_t client, const struct ask *a,
		   const struct abi_cqe *cqe);
void habit_deleted(struct world *w, const struct ask *a);
void habit_committed(struct world *w, const struct world_context *x);

/* path.c */
void path_asked(struct world *w, struct ask *a, const struct abi_sqe *sqe);
void path_answered(struct world *w, const struct ask *a, const struct abi_cqe *cqe);
bool path_is_direct(const struct world *w, const struct core_io *io, uint32_t piece);
bool path_spares(struct world *w, const struct core_io *io, uint32_t piece);

void model_forgive(struct world *w, const struct core_io *io, uint32_t piece);
void model_rotten(struct world *w, const struct core_io *io, struct world_rotten *out);
void model_voided(struct world *w, const struct world_rotten *rotten);

/* What becomes of a sector at a crash, as it was last written: see device.c. */
enum device_fate { DEVICE_SAFE, DEVICE_UNSURE, DEVICE_LOSES };

enum device_fate device_fate(const struct world *w, uint64_t sector);
void device_open(struct world *w);
void device_close(struct world *w);
uint64_t device_capacity(const struct world *w); /* bytes of data */
bool device_lost(const struct world *w, uint64_t offset, uint64_t bytes);
/*
 * drives.c: what the store has at a start, by the catalog (NULL = none): fills the members of
 * config about that; true = the catalog was written anew, with one that is added. What an operator
 * and fate do to a drive. At rest, whether one that was to be drained is.
 */
bool drives_boot(struct world *w, const struct disk_catalog *head,
		 const struct disk_context *list, struct core_config *config);
bool drives_owner(struct world *w);
void drives_fate(struct world *w);
void drives_quiet(struct world *w);
bool device_answers(const struct world *w, uint32_t drive);
/* Where an operation's bytes are among those of all drives. */
static inline uint64_t device_flat(const struct core_io *io)
{
	return (uint64_t)io->device * NVME_BYTES + io->offset;
}

void image_open(struct world *w);
void image_close(struct world *w);
void image_rest(struct world *w);
void image_discards(struct world *w, const struct core_range *range);
enum image_part { IMAGE_NONE, IMAGE_HEADER, IMAGE_RECORD };
enum image_part image_part(const struct world *w, const struct core_event *e);
void image_look(struct world *w, bool flushed, enum image_part written);

void device_io(struct world *w, struct core_io *io);
bool device_is_late(struct world *w, const struct core_io *io);
bool device_wrote(struct world *w, struct core_io *io);
int device_discard(struct world *w, const struct core_range *range);
bool device_flush_begin(struct world *w, uint32_t drive);
int device_flush_end(struct world *w, uint32_t drive);
void device_crash(struct world *w);
bool device_catalog(struct world *w, const struct disk_catalog **head,
		    const struct disk_context **list);
void device_void_torn(struct world *w, uint64_t sequence);
void device_recover(struct world *w);

#endif
