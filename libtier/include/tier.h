/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtier: a host's GPU memory, CXL memory and NVMe as one store for shared KV context.
 *
 * This header is the manual, in reading order; families have their own, included at its end.
 *
 *   Conventions
 *   - Functions return 0, a count or a negative errno; tier_error_text() tells the story. All that
 *     ask the daemon: also -ENOTCONN, -ETIMEDOUT, -EPROTO, -EBUSY; of a context: -ENOENT, removed.
 *   - All sizes are bytes, all times nanoseconds; deadlines are absolute CLOCK_MONOTONIC, 0 means
 *     the daemon's default. Option structs carry their size first: set it with sizeof; all other
 *     members may be zero. They grow only at the end; structs without a size never grow.
 *   - Handles are made by the library and live until their close function; pointers to keys,
 *     blocks and options are only read during the call, unless said otherwise.
 *   - "any thread" = may be called from any thread at any time, also with the same handle.
 *   - After fork() a child must not use handles it inherited: calls return -EOWNERDEAD.
 *
 *   When the daemon goes away look-ups and leases go on over the last state or miss, requests end
 *   with -ENOTCONN, the next one or tier_check() re-attaches; blocks found before are -ESTALE. Over
 *   an upgrade no call fails: all wait for the next daemon; blocks, leases, pins, puts go on.
 */
#ifndef TIER_H
#define TIER_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tier tier;                   /* one connection to the host's daemon */
typedef struct tier_context tier_context;   /* an open context */
typedef struct tier_reader tier_reader;     /* one thread's right to hold leases */
typedef struct tier_geometry tier_geometry; /* what a block is made of */
typedef struct tier_put tier_put;           /* a put under way */
typedef struct tier_plan tier_plan;         /* the accesses to come */
typedef struct tier_stream tier_stream;     /* a prefix on its way, layer by layer */

/* Tiers, fastest first. */
#define TIER_HBM 0u
#define TIER_CXL 1u
#define TIER_NVME 2u
#define TIER_REMOTE 3u /* [later] */
#define TIER_COUNT 4u

/* ---- errors ------------------------------------------------------------------------------ */

/* This thread's last failure, until its next call: what failed, on what, what to do. Never NULL. */
const char *tier_error_text(void);

/* A fixed text for an errno of this library, negative or positive; its version, "1.2.3". */
const char *tier_strerror(int error);
const char *tier_version(void);

/* ---- connect ----------------------------------------------------------------------------- */

struct tier_connect_options {
	size_t size;
	const char *socket; /* NULL = $TIER_SOCKET, $XDG_RUNTIME_DIR/tier.sock, /run/tier/... */
	const char *name;       /* for the operator's eyes; NULL = the program's name */
	uint64_t staging_bytes; /* arena for puts and arguments; 0 = 64 MiB */
	uint32_t requests;      /* submission entries, a power of two; 0 = 1024 */
	uint32_t readers;       /* most tier_reader handles at a time, <= 64; 0 = 16 */
};

/*
 * Connect to the daemon. Registers the process for membarrier: call it before starting threads
 * (6-26 ms beside another thread, else microseconds). options may be NULL.
 * Errors: -ENOENT/-ECONNREFUSED no daemon there (start tierd), -EACCES socket not ours,
 * -EPROTO versions differ, -EPERM our uid is the overflow uid, -EUSERS too many clients (or
 * connections of our user), -EDQUOT leases of our user's ended connections keep too much memory,
 * -ETIMEDOUT/-ENOTCONN the daemon does not answer or hung up, -EMFILE, -EINVAL an option.
 */
int tier_connect(tier **out, const struct tier_connect_options *options);

/*
 * Close the connection, with all contexts, readers and puts still open through it. Requests under
 * way are abandoned. NULL is fine. No other thread may be inside a call with this handle.
 */
void tier_close(tier *t);

/*
 * Look whether the daemon is still the one we know, and re-attach if it is not. Cheap (one system
 * call); engines that only read call it once a step or a second. Returns 0: nothing changed, 1:
 * re-attached (but over an upgrade blocks found before are stale), or -ENOTCONN: no daemon, reads
 * miss. Any thread.
 */
int tier_check(tier *t);

/* ---- geometry ---------------------------------------------------------------------------- */

/* What a part is (its page count per block is layers * groups). */
#define TIER_KIND_DENSE 1u
#define TIER_KIND_SPARSE 2u
#define TIER_KIND_FOLLOWS 3u /* kind_arg: the layer whose selection it follows */
#define TIER_KIND_WINDOW 4u  /* kind_arg: tokens */
#define TIER_KIND_STATE 5u
#define TIER_KIND_INDEX 6u /* the sidecar: a block without it is absent */
#define TIER_HIT_EVERY 1u
#define TIER_HIT_LAST 2u /* hit_arg: blocks */
#define TIER_SHARD_GROUPS 1u
#define TIER_SHARD_REPLICATED 2u

/* How a page's bytes lie; all zero = opaque. Engines share pages only where it is equal. */
struct tier_layout {
	uint32_t element_bits;
	char order[8];      /* of L B H N C K (layer block head token channel K/V) */
	uint64_t stride[6]; /* bytes, for each letter */
};

struct tier_part {
	const char *name; /* [a-z0-9._-]{1,23}; in answers valid as long as the geometry */
	uint32_t kind;
	uint32_t kind_arg;
	uint32_t hit_rule; /* 0 = TIER_HIT_EVERY */
	uint32_t hit_arg;
	uint32_t shard_rule; /* 0 = TIER_SHARD_GROUPS */
	uint32_t preferred_tier; /* told to who opens the context; nothing is moved by it yet */
	uint32_t layers;
	uint32_t groups;
	uint32_t page_bytes;  /* bytes of one page: one layer, one group, block_tokens tokens */
	uint32_t page_stride; /* answers only: page_bytes padded */
	uint32_t page_base;   /* answers only: page number of (layer 0, group 0) */
	uint32_t layer_first; /* the model's number of this part's layer 0 */
	struct tier_layout layout;
};

struct tier_geometry_options {
	size_t size;
	uint32_t block_tokens; /* 0 = 128 */
	uint32_t page_align;   /* 0 = 4096; 512, 1024, 2048 for memory-only contexts */
	uint32_t part_count;   /* 1..16 */
	const struct tier_part *part;
};

/*
 * Make a geometry of parts. Errors: -EINVAL a member is out of range (the text says which),
 * -E2BIG more than 65,536 pages a block, -ENOMEM. Free with tier_geometry_free. Any thread.
 */
int tier_geometry_new(tier_geometry **out, const struct tier_geometry_options *options);

/*
 * A well-known geometry: "llama-3-70b", "llama-3.1-8b", "qwen3-30b-a3b", "msa-109b", "msa-428b",
 * "tiny" (for tests: 2 layers, 2 groups, 4 KiB pages, a 4 KiB sidecar a layer); the i-th one's
 * name, NULL after the last. Errors: -ENOENT no such preset. Any thread.
 */
int tier_geometry_preset(tier_geometry **out, const char *name);
const char *tier_geometry_preset_name(uint32_t i);

/* NULL is fine. Contexts keep their own copy. */
void tier_geometry_free(tier_geometry *g);

/* Its numbers. Any thread. */
uint32_t tier_geometry_block_tokens(const tier_geometry *g);
uint32_t tier_geometry_pages(const tier_geometry *g);       /* pages a block */
uint64_t tier_geometry_block_bytes(const tier_geometry *g); /* padded bytes a block */
uint32_t tier_geometry_part_count(const tier_geometry *g);

/* Describe part i. Errors: -ENOENT. Any thread. */
int tier_geometry_part(const tier_geometry *g, uint32_t i, struct tier_part *out);

/* The page number of (part, layer, group), or -EINVAL when out of range. Any thread. */
int64_t tier_geometry_page(const tier_geometry *g, uint32_t part, uint32_t layer, uint32_t group);

/* ---- context ----------------------------------------------------------------------------- */

/* What makes two engines' KV interchangeable; strings may be NULL. */
struct tier_fingerprint {
	size_t size;
	const char *model;    /* name and weights revision */
	const char *adapter;  /* LoRA and the like */
	const char *elements; /* "bf16", "fp8-e4m3" ... */
	const char *layout;   /* the engine's name for its layout */
	const char *hash;     /* how keys are made */
	uint32_t block_tokens, reserved;
	const void *probe; /* any bytes that must agree: a digest of known tokens' keys, say */
	size_t probe_bytes;
};

/* SHA-256 over the members, unambiguously framed. Errors: -EINVAL. Any thread. */
int tier_fingerprint_digest(uint8_t out[32], const struct tier_fingerprint *f);

#define TIER_QUOTA_NONE UINT64_MAX /* the context does not use the tier */
#include <tier_owner.h> /* flags: TIER_CREATE_EXCLUSIVE, TIER_OPEN_FOREIGN; whose one is */

struct tier_context_options {
	size_t size;
	uint32_t flags;
	uint32_t mode;              /* 0 = 0600; others: r reads, pins; w puts, deletes, migrates */
	uint64_t quota[TIER_COUNT]; /* 0 = the whole tier; TIER_QUOTA_NONE */
	uint64_t blocks_max;        /* 0 = from the quotas, which bound it */
	const char *policy;         /* eviction: "reuse" (NULL), "lru" */
	uint8_t fingerprint[32];
};

/*
 * Create a context, or open it when one of that name has the same geometry and fingerprint: its
 * other options stay what they were. name: [A-Za-z0-9._-]{1,63}. options may be NULL. Errors:
 * -EEXIST (exclusive; or another user's: tier_owner.h), -ESTALE geometry or fingerprint differ,
 * -EACCES, -EINVAL, -ENOSPC quotas do not fit a block, -EDQUOT our user owns as many as it may,
 * -EMFILE our limit of open files, -ENOTCONN. Blocks. Any thread.
 */
int tier_context_create(tier *t, const char *name, const tier_geometry *g,
			const struct tier_context_options *options, tier_context **out);

/*
 * Open a context, mapped once for all its handles. fingerprint may be NULL: do not check. Errors:
 * -ENOENT also if not ours to open (I4), -ESTALE, -EMFILE our limit of files, -ENOTCONN. Blocks.
 */
int tier_context_open(tier *t, const char *name, const uint8_t fingerprint[32], tier_context **out);

/* Close it: its leases must have been released. NULL is fine. */
void tier_context_close(tier_context *c);

/* Remove a context with all its blocks, in every tier. Owner only. Blocks. Any thread. */
int tier_context_remove(tier *t, const char *name);

/*
 * Raise the epoch: every block stored so far is invalid at once (new weights, say). Returns when
 * that is durable. epoch: in = the new value or 0 for the next one, out = the value; may be NULL.
 * Errors: -EINVAL not larger than the present one, -ENOENT, -EACCES, -ENOTCONN. Blocks.
 */
int tier_context_raise_epoch(tier *t, const char *name, uint64_t *epoch);

/* Its geometry, as long as it is open; the present epoch, from shared memory. Any thread. */
const tier_geometry *tier_context_geometry(const tier_context *c);
uint64_t tier_context_epoch(const tier_context *c);

/* ---- keys -------------------------------------------------------------------------------- */

typedef struct tier_key {
	uint8_t bytes[32];
} tier_key;

/* What keeps equal tokens of two tenants apart. */
struct tier_salt {
	const void *bytes;
	size_t count;
};

/*
 * Keys of a token sequence's whole blocks: key i = SHA-256(key i-1 | salt | tokens of block i).
 * parent may be NULL (the sequence's start), so may salt (none, as one of count 0).
 * Writes token_count / block_tokens keys to out. Errors: -EINVAL, -ENOMEM. Any thread.
 */
int tier_key_chain(tier_key *out, const tier_key *parent, const struct tier_salt *salt,
		   const uint32_t *tokens, size_t token_count, uint32_t block_tokens);

/* Key for an engine's own block name (without its layer-group index); the rest is as above. */
int tier_key_opaque(tier_key *out, const void *name, size_t name_bytes,
		    const struct tier_salt *salt);

/* ---- match ------------------------------------------------------------------------------- */

/*
 * A block that was found. A copy of it may go to another process with the same context open. It
 * protects nothing: the block can leave at any time, and then says -ESTALE.
 */
typedef struct tier_block {
	uint32_t slot;
	uint32_t generation;
} tier_block;

#define TIER_MISS 0u
#define TIER_PENDING 1u
#define TIER_HIT 2u

struct tier_found {
	tier_block block; /* when state is TIER_HIT or TIER_PENDING */
	uint8_t state;    /* TIER_MISS ... */
	uint8_t tier;     /* TIER_HIT: the slowest tier that some page must come from; a hint */
	uint16_t reserved;
};

/*
 * Look up keys in prefix order. Returns how many blocks from the first are usable: all hits, and
 * each part present by its hit rule. found (count entries) may be NULL. Moves and protects nothing;
 * waits <= 20 ms for a daemon stopped amid an entry. Errors: -EINVAL, -EOWNERDEAD. Any thread.
 */
int64_t tier_match(tier_context *c, const tier_key *keys, uint32_t count, struct tier_found *found);

/*
 * A tail is a last block with fewer tokens. Its key is tier_key_chain's with block_tokens = their
 * number; it is put like any block, with the one before it as parent, but nothing comes behind it.
 * Who puts a longer block of the same tokens names it in tier_put_options.replaces.
 */
struct tier_tail {
	const tier_key *parent; /* of the block before it; NULL = the sequence's start */
	const struct tier_salt *salt;
	const uint32_t *tokens; /* that follow; from the block_tokens-th on they are passed over */
	size_t count;
};

/*
 * Find the longest tail that is stored of these tokens. Returns how many it has; 0: there is none,
 * key and found (one each, may be NULL) are as they were. Looks up a key for each possible length,
 * in batches, the longest first. Errors: -EINVAL, -ENOMEM, -EOWNERDEAD. Any thread.
 */
int64_t tier_match_tail(tier_context *c, const struct tier_tail *tail, tier_key *key,
			struct tier_found *found);

/* ---- lease: the hot read ----------------------------------------------------------------- */

/*
 * A reader holds up to 1,024 leases; close gives back what it holds (NULL is fine). One thread at a
 * time: no call with it beside another. Errors: -EAGAIN all of the connection are in use, -ENOMEM.
 */
int tier_reader_open(tier *t, tier_reader **out);
void tier_reader_close(tier_reader *r);

struct tier_lease {
	const void *data; /* the page where it lies; NULL when error is set */
	uint32_t bytes;   /* page_bytes of its part */
	uint16_t tier;    /* TIER_HBM or TIER_CXL */
	uint16_t slot;    /* the library's */
	int32_t error;    /* lists: 0 or why this page was not leased */
	uint32_t stream;  /* the library's */
};

struct tier_page {
	tier_block block;
	uint32_t page; /* tier_geometry_page() */
};

#define TIER_LEASE_CXL 1u /* the CXL copy, even when HBM has one (CPU readers) */
#define TIER_LEASE_LAST 2u /* with a stream's number: tier_stream_last */
#define TIER_LEASE_NO_USE 4u /* no use by this host's engines: nothing stays longer for it */

/*
 * Lease one page: from now until tier_release the bytes at lease->data do not change, move or
 * vanish. No system call, never waits, never touches the daemon.
 * Errors: -ENODATA not in memory now (tier_fetch it), -ESTALE the block has gone (match again),
 * -EAGAIN all 1,024 slots of the reader are held, -EINVAL, -EOWNERDEAD. The reader's thread only.
 */
int tier_lease_page(tier_reader *r, tier_context *c, tier_block block, uint32_t page,
		    uint32_t flags, struct tier_lease *lease);

/* Look up and lease in one: as tier_lease_page with a key. -ENOENT: no such block. */
int tier_lease_key(tier_reader *r, tier_context *c, const tier_key *key, uint32_t page,
		   uint32_t flags, struct tier_lease *lease);

/*
 * Lease many pages, their memory misses overlapped. Returns how many were leased; each entry's
 * error says which were not. Errors as a whole: -EAGAIN not enough slots left for count (nothing
 * is leased), -EINVAL, -EOWNERDEAD. The reader's thread only.
 */
int tier_lease_pages(tier_reader *r, tier_context *c, const struct tier_page *pages,
		     uint32_t count, uint32_t flags, struct tier_lease *leases);

/* One page of each of many blocks: what one layer and group of sparse attention selects. */
struct tier_selection {
	const tier_block *blocks;
	uint32_t count;
	uint32_t page;  /* tier_geometry_page() */
	uint32_t flags; /* TIER_LEASE_CXL, or what tier_stream_last gave */
};

/*
 * The same for a selection, with selection->count leases: a call for each (layer, group), or
 * tier_lease_pages for a mixed list. Errors as a whole: also -EINVAL when there is no such page.
 */
int tier_lease_blocks(tier_reader *r, tier_context *c, const struct tier_selection *selection,
		      struct tier_lease *leases);

/* Give a lease back. Entries with data == NULL are skipped. Same thread. */
void tier_release(tier_reader *r, struct tier_lease *lease);
void tier_release_many(tier_reader *r, struct tier_lease *leases, uint32_t count);

/* Where copies of pages go. */
struct tier_into {
	void *dst;
	size_t stride;  /* from one page to the next, -EINVAL for a larger page; 0 = packed */
	int32_t *error; /* one entry a page: 0 or why it was not copied; NULL = not wanted */
};

/*
 * Copy pages to into->dst under leases of its own; a page that is not copied leaves its room as
 * it was. Returns how many were copied. Does not wait: fetch first. Errors as a whole: -EAGAIN no
 * slot of the reader is free, -EINVAL, -EOWNERDEAD. The reader's thread only.
 */
int tier_gather(tier_reader *r, tier_context *c, const struct tier_page *pages, uint32_t count,
		const struct tier_into *into);

/*
 * Lease pages, fetching to CXL what is not there, up to the deadline (0 = the daemon's default).
 * Returns how many are leased; others have the fetch's error. Blocks. The reader's thread.
 */
int tier_read_pages(tier_reader *r, tier_context *c, const struct tier_page *pages,
		    uint32_t count, uint64_t deadline_ns, struct tier_lease *leases);

/* ---- put --------------------------------------------------------------------------------- */

#define TIER_PUT_DURABLE 1u /* complete when it survives power loss; pushes back with -EAGAIN */
#define TIER_PUT_APART 2u /* no prefix, each block for itself; without depth, parent, replaces */
#define TIER_PRIORITY_NORMAL 0u
#define TIER_PRIORITY_LOW 1u  /* leaves before the others */
#define TIER_PRIORITY_HIGH 2u /* leaves after the others */

struct tier_put_options {
	size_t size;
	uint32_t flags;
	uint32_t depth;         /* blocks of the prefix before the first key; 0 = its start */
	const tier_key *parent; /* key before the first; must be there unless depth is 0 */
	uint64_t salt;          /* tenant for accounting, no tier_salt of keys; 0 = public */
	uint64_t parts;         /* bit p: part p is carried; 0 = all */
	uint32_t shard, shards; /* shard of shards; 0 of 0 = unsharded, see below */
	uint64_t deadline_ns; /* an incomplete block is dropped then; 0 = default */
	uint64_t reservation; /* of tier_reserve: its room is taken first; 0 = none */
	uint32_t priority, reserved; /* TIER_PRIORITY_*: who leaves first when room is short; 0 */
	uint64_t ttl_ns;      /* among the first to leave after it; 0 = none; at most 14 days */
	const tier_key *replaces; /* leaves when all of the put is whole: a tail; NULL = none */
};

/*
 * Reserve room to write `count` blocks of a prefix: staging memory of ours, PENDING in the index.
 * options may be NULL. Only the caller's staging is at stake until commit. Shard s of n writes
 * groups s * groups / n up to (s + 1) * groups / n of each part, all of a replicated one; a block
 * is found when all n have committed it, so only the last one's completion counts every block.
 * Errors: -ENOBUFS the staging arena is full (commit or abort others, or connect with more),
 * -EAGAIN the request ring is full or (durable) the daemon is behind, -EACCES context is read-only
 * for us, -ENOSPC, -EDQUOT too many puts of ours are open, -ESTALE the epoch was raised meanwhile,
 * -ENOENT also no such reservation, -ENOTSUP durable without NVMe, -EINVAL (also over 2,044 keys).
 * Waits for the daemon's word. Any thread; one thread at a time for one put.
 */
int tier_put_begin(tier_context *c, const tier_key *keys, uint32_t count,
		   const struct tier_put_options *options, tier_put **out);

/*
 * Where to write (block i of the put, part, layer, group): page_stride bytes, 4096-aligned, NULL
 * when out of range or not in the shard; padding is zeros. Pages of 2 MiB: it may ask the daemon.
 */
void *tier_put_data(tier_put *p, uint32_t block, uint32_t part, uint32_t layer, uint32_t group);

/* 1 when block i, of the first 64, was stored when the put began: writing it is needless. */
int tier_put_exists(const tier_put *p, uint32_t block);

/*
 * Hand the bytes over; the handle is gone. A completion with user_data follows: value = how many
 * of its blocks are now whole and visible, also with an error; result 0, status TIER_DROPPED when a
 * best-effort put was not taken; -ESTALE the epoch was raised meanwhile, -ENOSPC, -ETIMEDOUT,
 * -EBADMSG other bytes are stored under a key, -EIO (durable) the device fails, -ECANCELED. Returns
 * -EAGAIN when the ring is full: the put lives on, try again.
 */
int tier_put_commit(tier_put *p, uint64_t user_data);

/* Drop it. NULL is fine. */
void tier_put_abort(tier_put *p);

/*
 * All of it in one call, copying from data: for each block, part carried, layer, group of the
 * shard: page_stride bytes. Puts larger than the arena go in pieces. Returns the number of blocks
 * whole and visible. Blocks. Any thread.
 */
int64_t tier_put_copy(tier_context *c, const tier_key *keys, uint32_t count, const void *data,
		      const struct tier_put_options *options);

/* ---- reserve ------------------------------------------------------------------------------ */

struct tier_reserve_options { /* blocks that a request is going to put */
	size_t size;
	uint32_t expected;      /* granted at once; 0 = the daemon predicts, p95 too */
	uint32_t p95;           /* what it may come to; 0 = expected */
	uint32_t step;          /* growth ahead of need, p95 at most; 0 = a quarter of expected */
	uint32_t role, prompt_tokens; /* role: for the predictor, your own */
	uint64_t salt;          /* as the puts' */
	uint64_t deadline_ns;   /* the reservation ends then, in ten minutes at most; 0 = in one */
};

struct tier_reserved {
	uint64_t id;          /* for tier_put_options.reservation, tier_reserve_end */
	uint32_t blocks, p95; /* granted so far; given or predicted */
};

/*
 * Set room in CXL aside: puts under the reservation take it, and meet no eviction on their way.
 * options may be NULL. Ends with tier_reserve_end, at the deadline, or with the connection.
 * Errors: -EDQUOT the sum of all reservations' p95 is too large (later), -ENOSPC nothing can go,
 * -EAGAIN too many (of our user 3,072), -ETIMEDOUT, -EACCES, -EINVAL, -ENOTCONN. Both block.
 */
int tier_reserve(tier_context *c, const struct tier_reserve_options *options,
		 struct tier_reserved *out);

/* Hand the rest back. Returns the blocks put under it. Errors: -ENOENT it has ended, -ENOTCONN. */
int64_t tier_reserve_end(tier_context *c, uint64_t reservation);

/* ---- ask --------------------------------------------------------------------------------- */

/* Which pages of each block: all zero = every page. */
struct tier_range {
	uint16_t part_first, part_count;   /* count 0 = all */
	uint16_t layer_first, layer_count; /* within each part; count 0 = all */
}; /* -EINVAL when no part has such a layer */

/*
 * How urgent a fetch is. The more urgent goes first; all but demand goes in small units and in the
 * time that demand leaves. A page on its way gets the most urgent class of those who wait for it.
 */
#define TIER_CLASS_DEMAND 0u      /* somebody waits */
#define TIER_CLASS_DEADLINE 1u    /* needed at the deadline; a prefetch's with one */
#define TIER_CLASS_SPECULATIVE 2u /* perhaps needed: idle bandwidth only; ... without one */

/*
 * What a fetch asks for. No ask (NULL) is every page, in TIER_CXL, by the daemon's default
 * deadline, a demand, with user_data 0. Note that an ask whose tier is left 0 means TIER_HBM.
 */
struct tier_ask {
	size_t size;
	uint32_t tier;                  /* TIER_HBM, which is 0, or TIER_CXL */
	const struct tier_range *range; /* of blocks; NULL = every page, and for lists of pages */
	uint64_t deadline_ns;           /* 0 = the daemon's default */
	uint64_t user_data;             /* of the completion; the waiting forms have none */
	uint32_t klass;                 /* TIER_CLASS_*; prefetch, migrate: 0 = by the deadline */
	uint32_t reserved;              /* 0 */
};

/*
 * Bring pages into a memory tier. The completion's value = blocks usable from the first (all
 * pages of the range there), status READY, LATE (deadline passed), MISS (a block has gone).
 * ask may be NULL. Returns 0, -EAGAIN ring full, -ENOTCONN, -EINVAL, -E2BIG ask has a member that
 * this library does not know. Any thread.
 */
int tier_fetch_start(tier_context *c, const tier_block *blocks, uint32_t count,
		     const struct tier_ask *ask);

/* The same for single pages; value = pages there. -EINVAL also when ask has a range. */
int tier_fetch_pages_start(tier_context *c, const struct tier_page *pages, uint32_t count,
			   const struct tier_ask *ask);

/* Fetch and wait. Returns the completion's value or its error. Blocks. Any thread. */
int64_t tier_fetch(tier_context *c, const tier_block *blocks, uint32_t count,
		   const struct tier_ask *ask);
int64_t tier_fetch_pages(tier_context *c, const struct tier_page *pages, uint32_t count,
			 const struct tier_ask *ask);

/*
 * Foresight: blocks will be read at ask->deadline_ns. Nothing moves yet. The daemon begins as late
 * as is safe, by the queues, residency and bandwidth of that moment, so fast memory is not held in
 * vain. The completion comes when all is there or at the deadline: value = blocks usable from the
 * first, aux = blocks protected until shortly after the deadline (fewer when the pin budget is used
 * up), status READY, LATE, MISS, or DROPPED: not accepted, because 64 of ours wait already (aux >>
 * 40 is 4), 384 of this user (5), 512 on the host (1), or the deadline is more than ten minutes
 * away (0). Without a deadline it begins at once and protects nothing. tier_cancel ends it. ask as
 * for tier_fetch_start. Returns 0, -EAGAIN ring full, -ENOTCONN, -EINVAL. Any thread.
 */
int tier_prefetch(tier_context *c, const tier_block *blocks, uint32_t count,
		  const struct tier_ask *ask);

/* What happened in a conversation. */
#define TIER_CONVERSATION_TURN_END 1u /* a turn is over; blocks are what the next one begins with */
#define TIER_CONVERSATION_RETURN 2u   /* the user is back: the next turn begins */
#define TIER_CONVERSATION_CLOSE 3u    /* nobody will come back */

struct tier_conversation_options {
	size_t size;
	uint32_t tier;                  /* where the next turn will read from; as in tier_ask */
	uint32_t count;                 /* blocks; TURN_END only, as all that follows */
	const tier_block *blocks;       /* in prefix order; the first 8,184 are kept */
	const struct tier_range *range; /* parts; no layers. NULL = all */
	uint64_t salt;                  /* tenant: whose think times are alike */
	uint64_t return_ns;             /* a hint: back at that time; 0 = not known */
	uint64_t layer_ns;              /* computing one layer takes so long; 0 = not known */
	uint64_t user_data;             /* of the completion */
};

/*
 * Conversations: when a turn ends it is known what comes next, but not when. The daemon learns how
 * long users of a tenant think. When one may be back, it has the first layers in the tier: so many
 * that the others stream in while these are computed (all of them when layer_ns is 0). They come as
 * late as is safe, in idle time, within half of the pin budget. RETURN fetches the rest at once;
 * all is protected until the turn ends. If nobody returns, the layers go and it is forgotten.
 *
 * id is the caller's, one a conversation, for one connection at a time. Only TURN_END needs
 * options. Completion: TURN_END value = blocks kept; RETURN status READY with aux = layers there
 * (all, or the first as above), LATE when they are not, MISS: unknown id. The host keeps 4,096
 * conversations; when full, one of the user with the most goes. Results: -EBUSY another client's,
 * -ENOBUFS 2,048 of ours away, -ENOENT unknown to CLOSE. Returns 0, -EAGAIN, -ENOTCONN, -EINVAL.
 */
int tier_conversation(tier_context *c, uint64_t id, uint32_t event,
		      const struct tier_conversation_options *options);

#define TIER_PLAN_ACCESSES_MAX 131072u

struct tier_access {
	tier_block block;
	uint32_t time_us; /* after options->start_ns; in rising order */
	uint32_t reserved;
};

struct tier_plan_options {
	size_t size;
	uint32_t tier;                  /* where they will be read; as in tier_ask */
	uint32_t reserved;
	const struct tier_range *range; /* the same of every block; NULL = every page */
	uint64_t start_ns;              /* of time_us; 0 = no times, the pace is measured */
	uint64_t access_ns;             /* a first guess of one access' time; 0 = measured */
	uint64_t budget_bytes;          /* of the tier; 0 = three quarters of the context's quota */
};

/*
 * Plans: the accesses to come, in order. The daemon places by next use (Belady): the block whose
 * next use is furthest away leaves first, and the next ones are loaded just in time, by the pace of
 * the reader. A plan is a preference: it never stalls demand or blocks of other readers. One whose
 * loaded blocks are not read is given up, and its later accesses are ordinary demand.
 *
 * Blocks that are not stored now are left out. options may be NULL. Errors: -ENOBUFS two plans of
 * ours, six of our user's or eight in all, or a full arena, -EINVAL (also a budget above the quota
 * or below two blocks), -ENOTCONN. Blocks. End it before tier_close.
 */
int tier_plan_begin(tier_context *c, const struct tier_access *accesses, uint32_t count,
		    const struct tier_plan_options *options, tier_plan **out);

/* Accesses before position are over: one store, any thread. It is over: blocks, NULL is fine. */
void tier_plan_advance(tier_plan *p, uint32_t position);
void tier_plan_end(tier_plan *p);

/*
 * Move blocks to ask->tier and out of the tiers above it. TIER_NVME: their copies in memory leave
 * once they are written (-EINVAL in a context without NVMe); pinned ones stay. Completion: value =
 * blocks where they should be (upwards: usable from the first), status READY, LATE (the deadline
 * came first), MISS (a block has gone); result -EDQUOT, -ENOSPC no room, -EACCES without w.
 * Blocks leave whole: -EINVAL with a range, but to TIER_HBM. Returns as tier_prefetch. Any thread.
 */
int tier_migrate(tier_context *c, const tier_block *blocks, uint32_t count,
		 const struct tier_ask *ask);

/*
 * Keep blocks at `tier` or above until unpin or the deadline (0 = until unpin, or the end of our
 * process). Moves no data: what is not there yet stays on NVMe, and is protected once it comes.
 * Every process of our user that has the context open can use *pin. Pins have a budget (half of a
 * tier): the first blocks that fit it are protected. What anybody has pinned already takes nothing
 * of it. Returns the number of blocks now resident and protected, which is 0 when all lie on NVMe.
 * Errors: -EDQUOT not one fits the budget, or too many pins of ours, -ESTALE. Blocks. Any thread.
 */
int64_t tier_pin(tier_context *c, const tier_block *blocks, uint32_t count, uint32_t tier,
		 uint64_t deadline_ns, uint64_t *pin);

/* Errors: -ENOENT unknown, ended, or not ours to see. Blocks. Any thread. */
int tier_unpin(tier_context *c, uint64_t pin);

/*
 * Delete blocks by key, in prefix order, in every tier; readers under a lease keep their bytes.
 * Returns how many there were; durable then. Errors: -EACCES read-only for us. Blocks. Any thread.
 */
int64_t tier_delete(tier_context *c, const tier_key *keys, uint32_t count);

/*
 * Cancel the requests submitted with user_data; their completions come when their last byte has
 * stopped moving, with -ECANCELED, or as they would have. Errors: -ENOENT. Blocks. Any thread.
 */
int tier_cancel(tier *t, uint64_t user_data);

/* Returns when all submitted before, but prefetches not yet due, has completed. Any thread. */
int tier_drain(tier *t);

/* ---- stream ------------------------------------------------------------------------------ */

/*
 * A prefix that is read layer by layer while it is on its way: open; for each layer wait, lease,
 * release. Layers are the model's (tier_part.layer_first + the part's), 0 = the range's first.
 */
#define TIER_MODE_STREAM 0u /* pages come, are read and go; they push nothing else out */
#define TIER_MODE_CACHE 1u  /* pages stay until they are evicted; up to half of the tier */

struct tier_stream_options {
	size_t size;
	uint32_t tier;                  /* TIER_HBM, which is 0, or TIER_CXL */
	uint32_t mode;                  /* TIER_MODE_STREAM, which is 0, or TIER_MODE_CACHE */
	uint32_t klass;                 /* TIER_CLASS_*; SPECULATIVE: DROPPED rather than waiting */
	uint32_t reserved;
	const struct tier_range *range; /* NULL = all; its layers are the model's, see above */
	uint64_t deadline_ns;           /* 0 = the daemon's default; in ten minutes at most */
	uint64_t window_bytes;          /* most in the tier at a time; 0 = 128 MiB, or two layers */
};

/*
 * Begin to bring blocks of a prefix (at most 8,192, in order) into a memory tier. options may be
 * NULL: every page, to TIER_CXL. tier_stream_wait tells refusals. TIER_MODE_CACHE: only the first
 * blocks come that fit half of what the context may have; it ends with TIER_MISSED then. One with
 * over 3/4 of the stream pool ends with TIER_LATE when another user waited for 30 s. Streams read
 * in step each say window_bytes, or the first has all. Errors: -EAGAIN 32 of this connection are
 * open, or the ring is full, -ENOTSUP older daemon, -ENOTCONN, -EINVAL, -ENOMEM. Any thread.
 */
int tier_stream_open(tier_context *c, const tier_block *blocks, uint32_t count,
		     const struct tier_stream_options *options, tier_stream **out);

/*
 * How many layers are ready, from the first: their pages can be leased until they are released.
 * Never falls. Read from shared memory: no system call, no lock. Any thread.
 */
uint32_t tier_stream_ready(const tier_stream *s);

/*
 * Wait until `layer` is ready or deadline_ns (0 = the stream's own). Returns the number of blocks,
 * from the first, that its pages are there for: fewer than asked for when some have gone. No system
 * call when it is there. Errors: -ENODATA the stream ended without it (late, missed, dropped:
 * tier_stream_look says which; or it has no such layer: so one waits for the end), -ETIMEDOUT,
 * -EMSGSIZE the window that it needs is larger than the daemon's share for streams (the text says
 * how large), -ENOSPC, -EBUSY, -E2BIG more than 4 Mi pages, -ENOTCONN. Any thread.
 */
int64_t tier_stream_wait(tier_stream *s, uint32_t layer, uint64_t deadline_ns);

/*
 * We are done with the layers before `layer`: their room goes to those behind. Leases of their
 * pages that are still held stay good. Layers that have not come are not brought. Any thread.
 */
void tier_stream_release(tier_stream *s, uint32_t layer);

/*
 * Flags for leases of the stream's pages: TIER_LEASE_LAST and the stream's number. Lease each page
 * with them once: a layer is released by itself when the leases of all its pages were given back.
 * Give them back before the stream is closed. Layers of parts that only some blocks carry still
 * need tier_stream_release. 0: there is no memory to count, use plain leases. Any thread.
 */
uint32_t tier_stream_last(tier_stream *s);

struct tier_stream_progress {
	size_t size;
	uint32_t layers; /* in all; 0 until the daemon has begun */
	uint32_t ready;
	uint32_t usable; /* blocks, from the first, that the ready layers are there for */
	uint32_t ended;  /* 1: no further layer comes; told a moment after the last one */
	uint32_t status; /* TIER_READY ..., when ended */
	int32_t result;  /* 0 or negative errno, when ended */
	uint32_t whole;  /* when ended: blocks, from the first, of which every layer came */
	uint32_t reserved;
};

/* Where it stands. Errors: -EINVAL. No system call. Any thread. */
int tier_stream_look(tier_stream *s, struct tier_stream_progress *out);

/*
 * End it: what is under way is cancelled, and this returns when its last byte has stopped moving;
 * layers that were not released go. Leases stay good. NULL is fine. Blocks only when it had not
 * ended. No other thread may be inside a call with this handle.
 */
void tier_stream_close(tier_stream *s);

/* ---- completions ------------------------------------------------------------------------- */
#define TIER_READY 0u
#define TIER_LATE 1u
#define TIER_MISSED 2u
#define TIER_DROPPED 3u

struct tier_completion {
	uint64_t user_data; /* the caller's; its top bit must be 0 */
	int32_t result;     /* 0 or negative errno */
	uint32_t status;    /* TIER_READY ... */
	uint64_t value;
	uint64_t aux; /* put: bit i = block i was already there (first 64) */
};

/*
 * Take up to max completions that are there. Returns their number. No system call, but for those
 * that make the descriptor of tier_event_fd quiet once it is in use. Any thread.
 */
int tier_poll(tier *t, struct tier_completion *out, uint32_t max);

/*
 * Wait until min completions could be taken, or timeout_ns have passed. Returns their number
 * (fewer after the timeout), or -ENOTCONN when the daemon went away and none will come. Any thread.
 */
int tier_wait(tier *t, struct tier_completion *out, uint32_t min, uint32_t max,
	      uint64_t timeout_ns);

/*
 * A descriptor for poll(2) and epoll(7), readable when completions may be there or the daemon went
 * away; it stays the same over a re-attach. Do not read it: tier_poll makes it quiet when it takes
 * fewer than max, so poll until then, then sleep. Ours to close. Errors: -EMFILE. Any thread.
 */
int tier_event_fd(tier *t);

/* ---- accounts and the operator's door ---------------------------------------------------- */
struct tier_counters {
	size_t size;
	uint64_t lookups, lookup_hits;
	uint64_t leases, lease_not_ready, lease_stale, lease_retries;
	uint64_t requests, completions, reattached;
};
/* What this connection did, summed over its readers; approximate while they run. Any thread. */
int tier_counters(tier *t, struct tier_counters *out);

/*
 * Ask the daemon in JSON: verbs "status", "stat", "contexts", "context", "locate", "check",
 * "evict", "drain", "pins", "requests", "clients", "quota", "quota-set" (man tierctl). args may be
 * NULL. *reply is a NUL-terminated JSON document to be freed with free(). Errors: -EPERM operator
 * only, -ENOENT no such verb or object, -EINVAL. Blocks. Any thread.
 */
int tier_admin(tier *t, const char *verb, const char *args, char **reply);
#include <tier_events.h> /* what became of blocks */
#include <tier_names.h>  /* engines' own names of blocks */
#include <tier_object.h> /* objects */
#include <tier_old.h>
#include <tier_pages.h>  /* pages into a list of places */
#include <tier_queue.h>  /* several queues of completions */
#include <tier_taken.h>  /* memory that is taken under a lease */
#include <tier_usage.h>  /* who holds what of a context */
#ifdef __cplusplus
}
#endif
#include <tier_hosts.h>
#endif
