/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_object.h: named objects of any length, in contexts of their own kind. Part of <tier.h>,
 * which includes this header; its conventions hold.
 *
 * An object is opened as a descriptor of the kernel: offset 0 is its first byte, st_size is exact,
 * and read, mmap, sendfile, io_uring do with it what they do with a file. It is open for reading
 * only, and its bytes never change: who puts the name again makes a new version, and those who have
 * the former one open keep it.
 *
 * Writing: tier_object_create gives a descriptor to write to, in any order; tier_object_commit
 * makes the object durable and seen, as a whole. What was not committed never was.
 *
 * Names are 1 to 255 bytes, none of them NUL. Errors that all calls have: -ENOENT no such context
 * for these credentials, -EINVAL it holds blocks, -ENOTSUP the daemon keeps no objects, -EACCES
 * these credentials may only read; those of asking the daemon.
 */
#ifndef TIER_OBJECT_H
#define TIER_OBJECT_H

#ifndef TIER_H
#error "include <tier.h>, which includes this header"
#endif

/*
 * Create a context for objects, or make sure that there is one. Of options count flags, mode and
 * the quotas of CXL and NVMe; may be NULL. Errors: as tier_context_create; -ESTALE it holds blocks.
 * tier_context_remove and tier_context_raise_epoch are for these, too. Blocks. Any thread.
 */
int tier_object_context(tier *t, const char *name, const struct tier_context_options *options);

/* ---- read -------------------------------------------------------------------------------- */

/*
 * Open an object: a descriptor of its own, O_CLOEXEC, which the caller closes. What is not in
 * memory is brought first; deadline_ns as in tier.h. Errors: -ENOENT no such object, -ETIMEDOUT it
 * did not come in time, -ENOSPC, -EDQUOT no memory for it now, -EFBIG it is larger than what memory
 * objects may have, -EMFILE. Never fewer bytes. Blocks. Any thread.
 */
int tier_object_open(tier *t, const char *context, const char *name, uint64_t deadline_ns);

#define TIER_OBJECT_RESIDENT 1u /* in memory now; a hint */
#define TIER_OBJECT_PENDING 2u  /* this connection writes it and has not committed */
struct tier_object_info {
	uint64_t size;
	uint64_t mtime_ns;  /* of the commit, since 1970 */
	uint64_t expires_ms; /* since 1970; 0 = never */
	uint64_t version;   /* grows with each put of the context; a pending one has none */
	uint32_t mode;
	uint32_t priority;
	uint32_t flags; /* TIER_OBJECT_* */
	uint32_t reserved;
};

/* Describe an object; moves nothing. Errors: -ENOENT. Blocks. Any thread. */
int tier_object_stat(tier *t, const char *context, const char *name, struct tier_object_info *out);

struct tier_object_entry {
	char name[256];
	uint64_t size;
	uint64_t mtime_ns;
	uint32_t flags;
	uint32_t reserved;
};

/*
 * List names that begin with prefix (NULL: all) in the order of their bytes, from the first one
 * behind `after` (NULL: from the start); the last name of a list is the next one's cursor. Returns
 * how many were written to list, fewer than count (<= 65536) at the end alone. Blocks. Any thread.
 */
int64_t tier_object_list(tier *t, const char *context, const char *prefix, const char *after,
			 struct tier_object_entry *list, uint32_t count);

/* ---- write ------------------------------------------------------------------------------- */

typedef struct tier_object tier_object; /* an object being written */

#define TIER_OBJECT_EXCLUSIVE 1u /* -EEXIST if there is one of that name, now or at the commit */
struct tier_object_options {
	size_t size;
	uint32_t flags;
	uint32_t mode;     /* what stat tells; 0 = 0644 */
	uint32_t priority; /* 0 to 3: those of a higher one leave memory later */
	uint32_t reserved;
	uint64_t ttl_ns; /* it is removed so long after its commit; 0 = never */
};

/*
 * Begin to write an object. options may be NULL. Errors: -EEXIST, -EMFILE too many are being
 * written. Blocks. Any thread; the handle: one at a time.
 */
int tier_object_create(tier *t, const char *context, const char *name,
		       const struct tier_object_options *options, tier_object **out);

/* Where to write: open for reading and writing, empty. It is the object's; do not close it. */
int tier_object_fd(const tier_object *o);

/*
 * Make it durable and seen under its name. The handle is gone afterwards, whatever is returned.
 * Writable mappings should be unmapped before: with them it is copied once more. Errors: -EEXIST,
 * -ENOSPC, -EDQUOT no room for it, -EFBIG. A daemon that was started meanwhile gets a copy. Blocks.
 */
int tier_object_commit(tier_object *o);

/* Drop it. NULL is fine. */
void tier_object_abort(tier_object *o);

/* Remove an object, for good. Errors: -ENOENT. Blocks. Any thread. */
int tier_object_remove(tier *t, const char *context, const char *name);

#define TIER_RENAME_EXCLUSIVE 1u /* -EEXIST if the new name is taken */
/* Give an object another name; what had it is replaced. Errors: -ENOENT, -EEXIST. Blocks. */
int tier_object_rename(tier *t, const char *context, const char *name, const char *to,
		       uint32_t flags);

/* ---- weights in layer order -------------------------------------------------------------- */

/*
 * `tier import` makes objects of a file of weights: NAME/0000, NAME/0001 ..., each the tensors of a
 * layer (or of a part of one, or of one expert), in the order in which a forward pass reads them,
 * and NAME/tensors, a text that says which tensor lies where. A stream gives one part after the
 * other, or those of a plan (experts that will be read), and has those ahead of the reader brought
 * meanwhile, within its window.
 */
typedef struct tier_object_stream tier_object_stream;

#define TIER_OBJECT_PARTS_MAX 65536u
#define TIER_OBJECT_STEPS_MAX (1u << 20)
#define TIER_OBJECT_STREAM_AGAIN 1u /* behind the last step comes the first one, for ever */
struct tier_object_stream_options {
	size_t size;
	uint64_t window_bytes; /* brought ahead of the reader; 0 = 128 MiB. One part at least */
	uint32_t flags;
	uint32_t order_count;  /* 0 = each part once, in the order of layers */
	const uint32_t *order; /* a plan: which part is read when, as often as it is; copied */
};

/*
 * Open the weights `name`; options may be NULL. Nothing is brought yet. Errors: -ENOENT no such
 * weights, -EBADMSG what is there is no table of tensors, -EINVAL an order of parts that are not
 * there. Blocks. Any thread; the stream: one at a time.
 */
int tier_object_stream_open(tier *t, const char *context, const char *name,
			    const struct tier_object_stream_options *options,
			    tier_object_stream **out);

struct tier_object_part {
	const void *data; /* mapped, read-only: valid until the next call, or close */
	uint64_t bytes;
	uint32_t part;
	uint32_t layer;
	int fd; /* the object's: dup() it to keep the bytes for longer */
	uint32_t reserved;
};

/*
 * Wait for the next part; the one before is let go. Of those that were read, the one that is read
 * again last leaves memory first when room is wanted. Errors: -ENODATA that was the last one,
 * -ETIMEDOUT it did not come by deadline_ns (0 = the daemon's own): the same part is next; -ESTALE
 * it was imported anew; those of tier_object_open.
 */
int tier_object_stream_next(tier_object_stream *s, uint64_t deadline_ns,
			    struct tier_object_part *out);

/* How many parts behind the present one are in memory, of those in the window. Blocks. */
int tier_object_stream_ready(tier_object_stream *s);

/* NULL is fine. */
void tier_object_stream_close(tier_object_stream *s);

#endif
