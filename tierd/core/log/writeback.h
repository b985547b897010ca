/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on its way to the store or back out of suspect: runs, the cleaner, blocks that no flush
 * has covered, blocks that recovery has still to read; and how the rest of the core calls
 * writeback.c, clean.c, flush.c and prove.c. A part of state.h, which includes it.
 */
#ifndef TIERD_CORE_WRITEBACK_H
#define TIERD_CORE_WRITEBACK_H

#include "tierd/core/unit/block_meta.h"
#include "tierd/core/core.h"
#include "tierd/core/log/catalog.h"
#include "tierd/core/unit/store.h"

struct core;
struct context;
struct drive;

#define CORE_LOGS 2u       /* DISK_LOG_* */
#define CORE_RUNS_MAX 9u   /* one of the cache log, then those of the durable one: */
#define CORE_RUN_FIRST(log) ((log) == DISK_LOG_CACHE ? 0u : 1u)
#define CORE_RUN_END(log) ((log) == DISK_LOG_CACHE ? 1u : CORE_RUNS_MAX)
#define TOMBS_MAX 4096u    /* deletions waiting for their record */
#define TOMBS_RECORD 1024u /* in one record */

/*
 * Blocks of a context that wait to be written to one log, the oldest first. Each log has its own:
 * who waits for a durable block waits for nothing that is only kept for reuse.
 */
struct dirty {
	struct block_list list;
	uint32_t due;	   /* the first so many have waited as long as a block may */
	uint64_t since_ns; /* no other has waited for longer */
	uint64_t grow_until_ns, grow_look_ns; /* a run waits for more, at most; looks. 0 = none */
	uint64_t full_since_ns; /* no room on NVMe since; 0 = there is */
	uint64_t full_retry_ns; /* ... and looked for not before */
};

/* What runs of all drives share. */
struct writeback {
	uint32_t context[CORE_LOGS]; /* round robin: who comes next in each log */
	uint32_t *crc;               /* scratch of a record */
	struct disk_block *tombs;    /* likewise */
	bool draining; /* all that is dirty is written now: who waits for that */
	struct token token[CORE_TOKENS_MAX];
	uint32_t tokens;
};

struct tomb {
	uint64_t context_uid;
	struct disk_block block;
};

/*
 * Tombstones of a context that the store may still need, by what they void: the newest first. An
 * age is over when no segment shows anything as old as its bound (D8).
 */
#define TOMB_AGES 4u
struct tomb_sum {
	struct {
		uint64_t bound, keys;
	} age[TOMB_AGES];
};

/*
 * Deletions that wait for their record, in the order in which they get it. What the cleaner carries
 * has a queue of its own: it must not wait behind others, which may wait for it.
 */
enum tombs_kind { TOMBS_NEW = 0, TOMBS_CARRIED, TOMBS_KINDS };

struct tombs {
	struct tomb *tomb; /* ring of TOMBS_MAX */
	uint64_t queued, written, flushed;
	uint64_t sync;          /* written when the flush under way began */
	uint64_t full_since_ns; /* no room for their record since; 0 = there is */
};

enum run_phase { RUN_FREE = 0, RUN_HEADER, RUN_HEADER_SYNC, RUN_DATA, RUN_RECORD };

struct run {
	enum run_phase phase;
	struct drive *log; /* of the device that it is written to */
	struct context *ctx;
	struct store_run place;
	uint32_t blocks; /* 0: a tombstone record of `tombs` keys */
	uint32_t tombs;
	enum tombs_kind tomb_kind;
	uint64_t tomb_first; /* in the queue */
	uint32_t slot[DISK_RUN_BLOCKS_MAX];
	uint32_t generation[DISK_RUN_BLOCKS_MAX];
	uint32_t absent; /* D14, by place in the record; the keys of these: */
	uint8_t named[DISK_RUN_BLOCKS_MAX][ABI_KEY_BYTES];
	struct disk_record head;
	uint64_t voids; /* before it began: the header waits for a catalog that says them */
	uint64_t header_sync; /* RUN_HEADER_SYNC: the flush that makes the header durable */
	uint32_t outstanding;
	uint32_t cursor; /* next page in D7 order, of blocks * pages a block */
	uint64_t written;
	bool failed;
	bool suspect; /* a flush failed meanwhile: what was written may be gone */
	bool lost;    /* it failed for blocks whose memory is gone: no fault of the device */
	uint8_t *buf;      /* header or record */
	uint8_t *next_buf; /* a larger one, for a context created meanwhile, or NULL */
	size_t buf_bytes;  /* of the largest */
};

/* What the cleaner does with its segment (clean.c), in this order; idle again after STOP. */
enum clean_phase {
	CLEAN_IDLE = 0,
	CLEAN_TOMBS,  /* reads the summary, queues the tombstones that are still needed */
	CLEAN_GATHER, /* chooses the blocks of the next run; none left: STOP */
	CLEAN_HEADER,
	CLEAN_HEADER_SYNC,
	CLEAN_DATA,
	CLEAN_DATA_SYNC,
	CLEAN_RECORD,
	CLEAN_RECORD_SYNC,
	CLEAN_STOP, /* waits for the tombstones' flush */
};

#define CLEAN_RUNS 16u	   /* of one batch: they share their flushes */
#define CLEAN_CHUNKS 4u	   /* writes being filled or written */
#define CLEAN_WINDOW 1024u /* blocks among which neighbours are looked for */

struct clean_chunk {
	struct core_io *io; /* the write; NULL = free */
	struct cleaner *cleaner;
	struct run *run;
	uint8_t *data;	    /* CORE_IO_BYTES_MAX, for pages that are not in CXL */
	uint32_t next;	    /* pieces before it are there or being read */
	uint32_t reads;	    /* under way */
	bool writing;
};

struct cleaner {
	enum clean_phase phase;
	struct drive *to; /* what is moved goes there: its own drive, unless that is drained */
	uint32_t segment;
	bool hot;	 /* of the cache log: what is hot is kept, the rest dropped */
	bool all;	 /* ... or all of it */
	uint32_t budget; /* hot: halves of blocks that may still be kept */
	bool spare;	 /* half a block is left of the last hot one's budget */
	struct run run[CLEAN_RUNS]; /* their phases and failures are the batch's */
	uint32_t passed; /* blocks that were looked at for the next one that may move */
	uint32_t runs, at; /* of the batch; the one whose header, data or record is next */
	uint32_t next;	 /* ... when what is under way is written */
	bool failed;	 /* the batch */
	bool recorded;	 /* a record of it may be there */
	bool busy;	 /* header, record or summary is under way */
	bool by_record;	 /* the segment's runs, as they are: clean_gather_run */
	uint64_t voids;	 /* as a run's, of the batch */
	uint64_t need;	 /* *_SYNC: this flush */
	uint64_t summary_next; /* first byte of the summary that was not read */
	size_t part_bytes, part_cursor; /* of the part that was read, into chunk[0].data */
	uint64_t tombs;	    /* carried ones queued up to here */
	uint32_t failures;  /* of this segment */
	uint64_t retry_ns;  /* not before */
	uint32_t victims;   /* since `opened` was noted */
	uint64_t opened;    /* segments opened for what was moved, then */
	uint64_t ended_ns;    /* when it became idle */
	uint32_t dead;       /* permille of the segment, when it was chosen */
	bool lives;          /* something does in it, then */
	uint32_t dead_least; /* that a segment must have: with less nothing was gained */
	uint64_t dead_sum;   /* since `opened` was noted */
	struct clean_chunk chunk[CLEAN_CHUNKS];
	uint32_t *window;    /* CLEAN_WINDOW slots */
	uint32_t *by_parent; /* hash of these by parent: index + 1; twice as many */
};

/* What is done to a dead segment's data (discard.c), in this order. */
enum discard_phase {
	DISCARD_IDLE = 0,
	DISCARD_HEADER, /* of a life without records, so that none of before is found, */
	DISCARD_SYNC,	/* ... flushed */
	DISCARD_DATA,
};

struct discarder {
	enum discard_phase phase;
	struct store_run place; /* the header's; only what store_discard_begin sets of it */
	uint64_t need;	   /* SYNC: this flush */
	uint64_t next;	   /* DATA: first byte of the segment that was not discarded, */
	uint64_t bytes;	   /* ... and how many from there on are being */
	uint64_t used_ns;  /* when anything else was last under way */
	uint64_t held_ns;  /* since when steps wait for quiet; the last step that was taken */
	uint64_t retry_ns; /* not before */
	bool busy;	   /* header or discard is under way */
	bool failed;	   /* ... and a flush failed meanwhile */
	bool wanted;	   /* ... and somebody wants the segment */
	bool looked;	   /* nothing is left to be discarded, until something goes on */
	bool off;	   /* the device has no discards */
	uint8_t *buf;	   /* the header */
};

/* A block of the durable log that no flush has covered yet. */
#define UNFLUSHED_MAX 4096u

struct unflushed {
	uint32_t context_id;
	struct abi_block_ref ref;
	uint64_t seq; /* of the flush it needs */
	uint64_t suspected; /* older records up to this lsn may be without data; 0 = none is */
};

/* Blocks that recovery found and whose data is still to be read (prove.c). */
struct prove_ref {
	uint32_t context_id;
	struct abi_block_ref ref;
};

struct prover {
	struct prove_ref *ref; /* [next, count) are to be read */
	uint32_t count, next;
	uint32_t left;  /* neither proven nor gone */
	uint32_t page;  /* of ref[next], the first that was not read */
	uint32_t tries;
	bool reading;
	uint64_t retry_ns;
	uint8_t *buf;
	uint32_t buf_bytes; /* a page of any context, or CORE_IO_BYTES_MAX */
};

/*
 * One drive: its store, with a durable and a cache log; what is being written there, moved, read
 * and discarded; which of its writes a flush has covered; how it fares. The first is the home of
 * what is of all: the catalog and tombstones.
 */
struct drive {
	uint32_t device; /* its number: in core.log, and in places */
	uint32_t first;  /* segments of the devices before it: numbers theirs among all */
	uint64_t first_record; /* ... and sectors at which these may have a record */
	struct disk_super super;
	struct store *store;
	struct block_list *segment_blocks; /* by segment */
	struct run run[CORE_RUNS_MAX];
	uint64_t write_seq; /* records whose write has completed */
	uint64_t sync_seq;  /* ... that a completed flush covers */
	uint64_t sync_started;
	uint64_t sync_lsn;   /* what flushed_lsn becomes by it; 0 = it stays */
	bool sync_wanted, sync_running;
	uint64_t sync_since_ns; /* since when one waits for runs, or is under way; 0 = neither */
	uint64_t sync_ns;	/* what the last one took */
	bool flushed_frozen; /* flushed_lsn does not move: see flush.c */
	uint64_t unfreeze_tombs;
	uint64_t aside_lsn; /* aside.c: of their last record whose data is not known to be there */
	uint64_t flush_retry_ns;
	uint64_t write_retry_ns; /* after a failed write: not before */
	uint32_t flush_failures, write_failures, read_failures; /* since the last success */
	uint32_t dropping; /* evict_segment: 1 + what goes; of its blocks so many may still stay, */
	uint32_t keep;
	uint32_t unseen;   /* ... pinned ones first: so many are yet to be looked at for these */
	int64_t kept;	   /* evict_oldest: segments up to it are; -ENOENT = none was met */
	bool leaving;	   /* drain.c: it takes no runs, and its blocks move elsewhere, */
	bool lost;	   /* ... those that cannot be read are given up, */
	bool no_room;	   /* ... and there was no room for some */
	uint64_t unlisted; /* core.voids when the catalog ceased to name it; 0 = it does */
	struct unflushed *unflushed; /* ring of UNFLUSHED_MAX, by seq */
	uint64_t unflushed_head, unflushed_tail;
	struct prover prover;
	struct cleaner cleaner;
	struct discarder discarder;
};

/* drive.c */
int drives_open(struct core *c);
void drives_close(struct core *c);
struct core_io *drive_io_get(struct core *c, const struct drive *dv, uint32_t klass);
bool drives_failing(const struct core *c);
bool drive_usable(const struct core *c, const struct drive *dv);
bool drive_is_bad(const struct core *c, const struct drive *dv);
bool drive_misread(const struct core_io *io);
bool block_unreadable(const struct core *c, const struct context *x, uint32_t slot);
struct drive *drives_target(const struct core *c, const struct drive *from);
bool drives_missing(const struct core *c);
uint64_t drives_retry_ns(const struct core *c);
bool drives_idle(const struct core *c, uint32_t kind);
struct run *drive_run_free(struct drive *dv, uint32_t kind);
const struct run *drive_run(const struct core *c, uint32_t i);
void drive_read_begin(struct core *c, const struct core_io *io);
void drive_read_end(struct core *c, const struct core_io *io);
void drive_read_bad(struct core *c, uint32_t pages);
bool drives_room_soon(const struct core *c, uint32_t kind);
bool drives_unflushed_room(const struct core *c, uint32_t blocks);
uint32_t drives_by_room(const struct core *c, uint32_t kind, struct drive *by[CORE_DRIVES_MAX]);
uint64_t drives_oldest_lsn(const struct core *c);
uint64_t drives_next_tick(const struct core *c);

/* writeback.c */
void writeback_step(struct core *c);
uint64_t writeback_next_tick(const struct core *c);
bool writeback_full(const struct core *c, const struct context *x);
bool tombs_full(const struct core *c);
bool tombs_wait(const struct core *c);
int writeback_reserve(struct core *c, const struct abi_geometry *g);
void run_head(struct core *c, struct run *run);
void run_item(const struct run *run, uint32_t i, uint32_t *block, uint32_t *page);
void run_record(struct core *c, struct run *run);
uint8_t *run_buffer(struct run *run);
void run_place(struct core *c, struct run *run, uint32_t i);
void run_void(struct core *c, struct run *run, uint32_t i);

/* dirty.c */
void writeback_enqueue(struct core *c, struct context *x, uint32_t slot);
void writeback_promise(struct core *c, struct context *x, uint32_t slot);
bool writeback_durable(struct core *c, struct context *x, uint32_t slot);
void writeback_again(struct core *c, struct context *x, uint32_t slot);
uint32_t dirty_chain(const struct context *x, uint32_t first, uint32_t chain[DISK_RUN_BLOCKS_MAX]);
bool dirty_grows(const struct core *c, const struct context *x, struct dirty *d,
		 const uint32_t *chain, uint32_t n);
bool dirty_due(const struct core *c, const struct context *x, const struct dirty *d);
uint64_t dirty_next_tick(const struct core *c, const struct context *x);
uint32_t admit_run(const struct core *c, const struct context *x, const uint32_t *chain,
		   uint32_t n);
uint32_t admit_first(struct core *c, struct context *x, uint32_t log);
void admit_refuse(struct core *c, struct context *x, uint32_t slot);
int admit_over_quota(struct core *c, struct context *x, uint32_t slot);
void admit_give_up(struct core *c, struct context *x, uint32_t log);
void admit_again(struct core *c, struct context *x, uint32_t slot, bool wanted);

/* clean.c */
int clean_open(struct drive *dv);
void clean_close(struct drive *dv);
bool clean_begin(struct core *c, struct drive *dv);
bool clean_busy(const struct drive *dv);
bool clean_stuck(const struct core *c, const struct drive *dv);
bool clean_moves(const struct drive *dv, const struct context *x);
void clean_step(struct core *c, struct drive *dv);
void clean_flush_failed(struct core *c, struct drive *to);
uint64_t clean_next_tick(const struct core *c, const struct drive *dv);

/* Empty this segment into another drive's log. all: of a cached one everything, while it fits. */
void clean_from(struct drive *dv, struct drive *to, uint32_t segment, bool all);

/* drain.c */
void drain_move(struct core *c, struct drive *dv);
void drain_gave_up(struct core *c, struct drive *dv, uint32_t segment);
void drain_listed(struct core *c);
void drain_recovered(struct core *c);
bool drive_drained(const struct core *c, const struct drive *dv);

/* discard.c */
int discard_open(struct drive *dv);
void discard_close(struct drive *dv);
bool discard_busy(const struct drive *dv);
void discard_step(struct core *c, struct drive *dv);
void discard_done(struct core *c, struct drive *dv, int res);
bool discard_release(struct drive *dv);
void discard_flush_failed(struct drive *dv);
uint64_t discard_next_tick(const struct core *c, const struct drive *dv);

/* flush.c */
void flush_step(struct core *c, struct drive *dv);
bool drive_failing(const struct drive *dv);
void flush_done(struct core *c, struct drive *dv, int res);
void flush_suspect(struct core *c, struct context *x, uint32_t slot);
uint64_t flush_next_tick(const struct core *c, const struct drive *dv);
bool unflushed_room(const struct drive *dv, uint32_t blocks);
void unflushed_add(struct drive *dv, struct context *x, uint32_t slot,
		   uint64_t suspected);
void flushed_freeze(struct drive *dv);
void flushed_suspects(struct core *c);

/* aside.c */
bool aside_is(const struct core *c, uint64_t uid);
int aside_limit(struct core *c, const struct disk_limit *limit);
void aside_record(struct core *c, const struct store_view *v, bool unsure);
void aside_recovered(struct core *c);
void aside_close(struct core *c);

/* prove.c */
int prove_begin(struct core *c, struct drive *dv);
void prove_step(struct core *c, struct drive *dv);
void prove_end(struct drive *dv);
bool prove_fails(const struct core *c, const struct context *x, uint32_t slot);
uint64_t prove_next_tick(const struct core *c, const struct drive *dv);

/* drop.c */
bool evict_store(struct core *c, struct drive *dv);
bool evict_store_for(struct core *c, struct drive *dv, enum store_stream stream);
int64_t evict_oldest(struct core *c, struct drive *dv);
bool evict_segment(struct core *c, struct drive *dv, uint32_t segment);
/* A write of a run's data is over: blocks whose memory is gone leave. False: there were none. */
bool drop_lost(struct core *c, const struct run *run, const struct core_io *io);
void evict_ahead(struct core *c, struct drive *dv);

/* tombs.c */
bool tombstone(struct core *c, struct context *x, const uint8_t *key, uint64_t up_to_lsn);
bool tombs_room(const struct tombs *t, uint32_t keys);
void tomb_count(struct context *x, uint64_t bound);
void tombs_write(struct core *c);
bool tombs_may(struct core *c, struct context *x, uint64_t oldest);
void tomb_push(struct tombs *t, uint64_t context_uid, const uint8_t *key, uint64_t up_to_lsn);
int recorded_open(struct core *c);
void recorded_close(struct core *c);
void recorded_add(struct core *c, const struct context *x, const uint8_t *key, uint64_t lsn);
bool recorded_may(const struct core *c, const struct context *x, const uint8_t *key,
		  uint64_t oldest);

/* catalog.c */
void catalog_write(struct core *c, uint64_t token, uint64_t value);
void catalog_step(struct core *c);
bool catalog_room(const struct core *c, uint32_t contexts, uint32_t limits);
void catalog_synced(struct core *c);
void catalog_again(struct core *c);
bool catalog_voids(const struct core *c, uint64_t voids);

#endif
