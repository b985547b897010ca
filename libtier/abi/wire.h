/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on the daemon's socket (SOCK_SEQPACKET, one message a packet). The socket carries what
 * is rare: the handshake, contexts with their descriptors, operator's questions. All else goes
 * through the rings.
 *
 *   client                          daemon
 *   HELLO                 ->
 *                         <-        WELCOME + 4 fds: region, staging, doorbell, completion eventfd
 *   CTX_CREATE | CTX_OPEN ->
 *                         <-        CTX_INFO + 1 + ABI_MEM_TIERS fds: index, hbm, cxl (read-only)
 *   CTX_REMOVE | CTX_EPOCH ->
 *                         <-        DONE (epoch: when durable)
 *   SLAB_TAKE             ->
 *                         <-        SLAB + descriptors of its pieces: of HBM; none of CXL
 *   SLAB_LEAVE            ->
 *                         <-        SLAB: the next one that is wanted back, or none (bytes 0)
 *   PLACE                 ->
 *                         <-        PLACE + a descriptor, by which it may be written
 *   ADMIN (verb + JSON)   ->
 *                         <-        TEXT, TEXT ... (more = 1 but the last): one JSON document
 *   anything              <-        ERROR instead of the answer
 *
 * Messages about objects are numbers 16 to 31 (object.h).
 *
 * W1  Requests are answered in order, each by its seq; a client has at most one open at a time.
 * W2  A message whose length, version or reserved bytes are wrong gets ERROR -EPROTO, and the
 *     connection ends.
 * W3  Descriptors to memory that a client only reads are re-opened O_RDONLY; those it writes are
 *     sealed against shrinking and growing.
 * W4  In place of memory that no processor can read (a GPU's), or that a context has not, comes
 *     /dev/null: words of that tier are of no use to a client that has it mapped from there.
 * W5  A client tells of each slab before a device of its sees it: SLAB_TAKE, then it maps the
 *     pieces that it gets (HBM) or registers its own mapping (CXL, or the index, which is one
 *     slab). Until it has left it as often as it took it, or its process is dead, the slab keeps
 *     its memory and is not emptied. What is wanted back (ring.h, slabs_wanted) it leaves once its
 *     device has let go of it: kernels that may read there have ended, then it is unmapped, then
 *     SLAB_LEAVE.
 * W6  The driver's descriptors of HBM cannot be re-opened read-only (W3): who has one can write. So
 *     they go to clients of the uid that owns the context alone, which map them for reading; all
 *     others read CXL. A piece that passes to a context of another uid is made anew, and empty.
 * W10  A page of whole 2 MiB of a put that is open can be written where it stays: PLACE, then the
 *     client maps the descriptor at the answer's offset, for writing. The put's end (commit, abort,
 *     deadline) takes that right: then a store there is SIGBUS. What it says of other pages, and
 *     of this one after an ERROR, is read from staging as ever.
 */
#ifndef TIER_ABI_WIRE_H
#define TIER_ABI_WIRE_H

#include "libtier/abi/geometry.h"

#define WIRE_MAGIC 0x52454954u /* "TIER" */
#define WIRE_MESSAGE_MAX 65536u

#define WIRE_HELLO 1u
#define WIRE_WELCOME 2u
#define WIRE_CTX_CREATE 3u
#define WIRE_CTX_OPEN 4u
#define WIRE_CTX_INFO 5u
#define WIRE_CTX_REMOVE 6u
#define WIRE_CTX_EPOCH 7u
#define WIRE_DONE 8u
#define WIRE_ADMIN 9u
#define WIRE_TEXT 10u
#define WIRE_ERROR 11u
#define WIRE_CTX_USAGE 12u /* a wire_ctx with a name; for daemons that say WIRE_USAGE */
#define WIRE_USAGE_LIST 13u
#define WIRE_SLAB_TAKE 14u /* for daemons that say WIRE_SLABS */
#define WIRE_SLAB_LEAVE 15u
#define WIRE_SLAB 32u /* the answer to both; 16 to 31 are object.h's */
#define WIRE_PLACE 33u /* for daemons that say WIRE_PLACES; and the answer */

struct wire_header {
	uint32_t magic;
	uint16_t version; /* ABI_VERSION */
	uint16_t type;
	uint32_t length; /* of the whole message */
	uint32_t seq;
}; /* 16 bytes */

#define WIRE_HELLO_DEVICE 1u /* features: it maps HBM for a device, by SLAB_TAKE */
struct wire_hello {
	struct wire_header header;
	uint64_t features;
	uint64_t staging_bytes; /* wanted; 0 = default. The daemon grants at most its limit */
	uint32_t sq_entries;    /* wanted; 0 = default */
	uint32_t readers;       /* wanted; 0 = default */
	char name[32];          /* for the operator's eyes */
	uint8_t reserved[64];
}; /* 136 bytes */

#define WIRE_ISOLATED 1u /* client and daemon have different uids */
#define WIRE_OWNERS 2u   /* it tells owners of contexts, and knows WIRE_CTX_FOREIGN and _OWNED */
#define WIRE_USAGE 4u    /* it knows WIRE_CTX_USAGE */
#define WIRE_SLABS 8u    /* it lends slabs to devices (W5) */
#define WIRE_PLACES 16u  /* it grants places of puts (W10) */
struct wire_welcome {
	struct wire_header header;
	uint64_t features;
	uint64_t boot_token;
	uint64_t staging_bytes;
	uint32_t client_id;
	uint32_t flags; /* WIRE_ISOLATED and those behind it; others are passed over */
	uint8_t reserved[64];
}; /* 112 bytes */

#define WIRE_CTX_EXCLUSIVE 1u /* create: -EEXIST if it is there; else open it if it agrees */
#define WIRE_CTX_OBJECTS 2u   /* create: of kind object, without a geometry; the answer is DONE */
#define WIRE_CTX_FOREIGN 4u   /* create: also one of another user's; else -EEXIST unless it is an
			       * operator's. For daemons that say WIRE_OWNERS, others refuse it */
#define WIRE_CTX_OWNED 8u     /* open: it must be owner's, else -EEXIST; likewise */
struct wire_ctx {
	struct wire_header header;
	char name[ABI_NAME_BYTES];
	uint32_t flags;
	uint32_t mode; /* 0 = 0600 */
	uint64_t blocks_max; /* 0 = from the quotas */
	uint64_t quota[ABI_TIER_COUNT]; /* 0 = default; ~0 = none: the tier is not used */
	uint8_t fingerprint[32]; /* open: all zero = do not check */
	char policy[16];
	uint64_t epoch; /* CTX_EPOCH: the new epoch, 0 = the next one */
	uint32_t owner; /* with WIRE_CTX_OWNED: uid */
	uint8_t reserved[60];
	struct abi_geometry geometry; /* create only */
}; /* 3384 bytes */

struct wire_ctx_info {
	struct wire_header header;
	uint32_t context_id;
	uint32_t writable; /* may the client put? */
	uint64_t uid;
	uint64_t epoch;
	uint64_t index_bytes;
	uint64_t mem_bytes[ABI_MEM_TIERS];
	uint64_t quota[ABI_TIER_COUNT];
	uint32_t owner; /* uid; where WIRE_OWNERS was told */
	uint8_t reserved[60];
}; /* 160 bytes */

struct wire_done {
	struct wire_header header;
	uint64_t value; /* CTX_EPOCH: the epoch */
	uint8_t reserved[40];
}; /* 64 bytes */

#define WIRE_USAGE_PUBLIC 0u /* kind: what has no salt */
#define WIRE_USAGE_OTHER 1u  /* all salts for whom there was no account free, together */
#define WIRE_USAGE_SALT 2u
#define WIRE_USAGE_MAX 512u
struct wire_usage {
	uint64_t salt;
	uint64_t used[ABI_TIER_COUNT];
	uint64_t pinned[ABI_MEM_TIERS];
	uint32_t uses; /* blocks and connections */
	uint32_t kind;
}; /* 64 bytes */

struct wire_usage_list {
	struct wire_header header;
	uint32_t count; /* struct wire_usage that follow */
	uint32_t reserved;
}; /* 24 bytes */

#define WIRE_SLAB_PIECES_MAX 128u
#define WIRE_SLAB_INDEX ABI_MEM_TIERS /* as a tier: the context's index, one slab */
struct wire_slab {
	struct wire_header header;
	uint32_t context_id;
	uint32_t tier;
	uint64_t offset; /* TAKE: any byte of it; else its first one */
	uint64_t bytes;  /* TAKE: 0. LEAVE: 0 = it only asks, from this tier and offset on */
	uint32_t pieces; /* answer to TAKE: descriptors, of equal shares of bytes */
	uint32_t reserved0;
	uint8_t reserved[16];
}; /* 64 bytes */

struct wire_place {
	struct wire_header header;
	uint64_t put;    /* its handle (ring.h) */
	uint32_t block;  /* of the put */
	uint32_t page;   /* among those that it carries of a block, in their order there (ring.h) */
	uint64_t offset; /* answer: in the descriptor, and its bytes; else 0 */
	uint64_t bytes;
	uint8_t reserved[16];
}; /* 64 bytes */

struct wire_admin {
	struct wire_header header;
	char verb[32];
	/* JSON text up to length; may be empty */
}; /* 48 bytes */

struct wire_text {
	struct wire_header header;
	uint32_t more; /* 1: further TEXT messages follow */
	uint32_t reserved;
	/* text up to length, no NUL */
}; /* 24 bytes */

struct wire_error {
	struct wire_header header;
	int32_t error; /* negative errno */
	uint32_t reserved;
	char text[232]; /* what failed, on which object, what to do; NUL-terminated */
}; /* 256 bytes */

#endif
