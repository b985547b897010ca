/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that several hosts have mapped and that is not coherent between them: a CXL pool. It is
 * one more way of a grant's pages, beside the socket: the holder stores them there and tells the
 * requester where. Pure state, as proto.h: whose each extent is, which places of ours are taken,
 * and the order of steps. pool.c makes them of etcd, of the device and of cache lines; the
 * simulator makes them of a model of each, with a cache a host; tests/model/pool.pml has the steps.
 *
 * X1  An extent has one owner, by etcd. A claim is conditional on the record's revision and names
 *     the revision of its owner's record under member/, which is under the owner's lease: when that
 *     one is gone or written anew, the extent is free. Who loses the lease stores nothing.
 * X2  Who claims an extent stores nothing there until all grants of the owner before are over: its
 *     lease and its longest grant by the pool, and a 32nd, for clocks drift (G3).
 * X3  Stored, flushed, then told, by message: nothing in the pool says that something is there. The
 *     reader drops its lines after it was told and before it loads; it stores nothing (R3).
 * X4  A place is stored to again when its reader has said COPIED, or its grant is over, a 32nd
 *     later.
 * X5  What is loaded is copied once, then judged as if it had come by the socket. Behind the last
 *     COPIED the holder says whether all of it was kept until then (R1).
 */
#ifndef TIERD_NET_POOL_H
#define TIERD_NET_POOL_H

#include "tierd/net/agree.h"
#include "tierd/net/proto.h"

#define POOL_MAGIC 0x4c4f4f5052454954ull /* "TIERPOOL" */
#define POOL_VERSION 1u
#define POOL_LINE 64u     /* what a cache writes back and drops */
#define POOL_FIRST 4096u  /* the first extent; the header is before it, and never changes */
#define POOL_EXTENTS_MAX 4096u
#define POOL_OWNED_MAX 4u
#define POOL_PLACES_MAX 64u /* of ours, at a time */
#define POOL_REST_MAX_NS (600ull * 1000 * 1000 * 1000)

struct pool_header {
	uint64_t magic;
	uint32_t version;
	uint32_t extents;
	uint64_t id; /* never 0: two with one are one pool */
	uint64_t bytes; /* of the whole device */
	uint64_t extent_bytes;
	uint64_t place_bytes; /* an extent is of so large places: a frame each */
	uint32_t reserved[3];
	uint32_t crc; /* of what is before it */
}; /* 64 bytes */

/* A header for a device of that size; extents is 0: it is too small. */
void pool_format(struct pool_header *h, uint64_t id, uint64_t bytes, uint64_t extent_bytes,
		 uint64_t place_bytes);
/* NULL: it is one of a device of that size. Else what is wrong with it, to be shown. */
const char *pool_judge(const struct pool_header *h, uint64_t bytes);

/* ---- owners ---------------------------------------------------------------------------------- */

/* pool/ID/N of etcd, and its part of member/. */
struct pool_record {
	uint32_t extent;
	uint64_t incarnation;
	int64_t entered; /* the revision of its owner's record under member/ */
	uint64_t rest_ns;
	int64_t mod;
};

struct pool_member {
	uint64_t incarnation;
	int64_t mod;
};

/* POOL_READ's answer: of one moment. */
struct pool_seen {
	const struct pool_record *record;
	const struct pool_member *member;
	uint32_t records, members;
	uint64_t now_ns; /* when it, or the answer to a CLAIM, was there */
};

struct pool_extent {
	uint64_t incarnation; /* of its owner; 0 = none */
	int64_t entered, mod;
	uint64_t rest_ns;
	uint64_t from_ns; /* ours: stored to from then on (X2) */
	bool dead;        /* its owner has lost it */
};

struct pool_place {
	uint64_t offset, grant; /* 0 = free */
	uint64_t order, until_ns;
};

struct pool {
	struct pool_header header;
	uint64_t incarnation; /* ours */
	uint64_t grant_ns;    /* the longest grant that goes by the pool */
	uint64_t rest_ns;     /* that, and our lease */
	struct pool_extent *extent; /* header.extents of them: the caller's, zero */
	struct pool_place place[POOL_PLACES_MAX];
	uint64_t orders;
	int64_t entered; /* our record under member/, when the extents were last read; 0 = lost */
	uint32_t first;  /* where we begin to look for a free one */
	bool read, tried; /* in this turn */
};

/* Parts of agree.h's turn: POOL_READ, POOL_CLAIM, or nothing more to do. */
void pool_begin(struct pool *p);
bool pool_next(struct pool *p, int64_t entered, struct agree_call *c);
void pool_answered(struct pool *p, const struct agree_call *c, const struct agree_answer *r);
/* The lease is lost. */
void pool_lost(struct pool *p);

/* ---- a frame --------------------------------------------------------------------------------- */

/* The steps of a holder and of a reader; what is done, and what comes next. */
enum pool_step { POOL_BEGIN, POOL_STORE, POOL_FLUSH, POOL_TELL, POOL_DROP, POOL_LOAD, POOL_END };
enum pool_step pool_holder(enum pool_step done);
enum pool_step pool_reader(enum pool_step done);

/*
 * A place for so many bytes of that grant (a number used once), or 0: they go by the socket.
 * lease_ns: until when what etcd agreed on holds.
 */
uint64_t pool_take(struct pool *p, const struct serve *s, uint64_t grant, uint32_t bytes,
		   uint64_t now_ns, uint64_t lease_ns);
/* Is it still ours, so that it may be told of? */
bool pool_ours(const struct pool *p, uint64_t offset, uint64_t now_ns, uint64_t lease_ns);
/* It was not told of after all. */
void pool_undo(struct pool *p, uint64_t offset);
/* COPIED: the grant's oldest place is free. False: it was not kept until now. */
bool pool_kept(struct pool *p, uint64_t grant, uint64_t now_ns, uint64_t lease_ns);
/* Reader: do these bytes lie in one extent of that host's life? 0 or -ESTALE. */
int pool_within(const struct pool *p, uint64_t incarnation, uint64_t offset, uint32_t bytes);

#endif
