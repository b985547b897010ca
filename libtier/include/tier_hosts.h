/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that other hosts hold. tierd-net, a process beside tierd, finds them and brings them here;
 * from then on they are blocks of this host like any other: match, lease, fetch. Where it does not
 * run, or does not answer, these calls say so, and all else is as it was.
 *
 * A context is shared when each host's operator said so (tierctl context share NAME), and blocks
 * are found only in contexts of the same name, fingerprint, geometry and epoch. Part of tier.h,
 * which includes it.
 */
#ifndef TIER_HOSTS_H
#define TIER_HOSTS_H

#ifdef __cplusplus
extern "C" {
#endif

struct tier_hosts_options {
	size_t size;
	uint64_t deadline_ns; /* 0 = in a second; in a minute at most */
	uint64_t token_ns;    /* what computing a token costs: what comes later than that would be
				 done is not fetched; 0 = not known, fetch */
	uint64_t salt;        /* tenant that the blocks are charged to, as tier_put_options.salt */
	uint32_t klass;       /* TIER_CLASS_* */
	uint32_t reserved;
};

struct tier_hosts {
	size_t size;
	uint32_t local;      /* blocks, from the first, that were here */
	uint32_t usable;     /* pull: that are here now; locate: that could be */
	uint32_t hosts;      /* that were asked: those on probation are not */
	uint32_t answered;
	uint32_t status;     /* pull: TIER_READY all there; TIER_LATE the deadline came first;
				TIER_MISSED others have no more; TIER_DROPPED computing is faster */
	uint32_t reserved;
	uint64_t bytes;      /* pull: that came; locate: that would */
	uint64_t first_ns;   /* pull: after so long the first layer was there; locate: could be */
	uint64_t all_ns;     /* the same of all */
	uint64_t compute_ns; /* what computing them would take, by token_ns */
	char host[64];       /* who has them, "" = nobody */
};

/*
 * How much of a prefix (keys from the sequence's start, at most 8,000) is here or on another host,
 * and when it could be here. A hint: nothing moves, and what was found can be gone. Returns
 * out->usable. options may be NULL. Errors: -ENOTCONN no tierd-net runs here, -ENOENT the context
 * is not shared, -ETIMEDOUT, -EACCES, -EPROTO its version differs, -EINVAL, -ENOMEM. Blocks. Any
 * thread.
 */
int64_t tier_locate(tier_context *c, const tier_key *keys, uint32_t count,
		    const struct tier_hosts_options *options, struct tier_hosts *out);

/*
 * Bring what is missing of a prefix from the host that has most of it. Returns how many blocks from
 * the first are usable here now, by the deadline at the latest: each one verified, whole, and kept
 * like a put of ours. out may be NULL. Errors as above; with an error match tells what is here.
 */
int64_t tier_pull(tier_context *c, const tier_key *keys, uint32_t count,
		  const struct tier_hosts_options *options, struct tier_hosts *out);

/*
 * Fetch a prefix by its keys, wherever it is: what is here comes to `level` (TIER_HBM, _CXL) as
 * by tier_fetch, what others hold by tier_pull, unless computing is faster (token_ns). Returns how
 * many blocks from the first are in it, by the deadline at the latest; tier_match tells which they
 * are. out may be NULL; its status says why not more. Where no tierd-net runs, or the context is
 * not shared, what is here is fetched and that is no error. Errors otherwise as of these two.
 * Blocks. Any thread.
 */
int64_t tier_fetch_keys(tier_context *c, const tier_key *keys, uint32_t count, uint32_t level,
			const struct tier_hosts_options *options, struct tier_hosts *out);

/*
 * Begin to bring what others hold of a prefix, as tier_pull, and do not wait: it comes by the
 * deadline, or computing is faster, or it does not come; tier_match tells. Who wants the same
 * meanwhile (tier_fetch_keys, tier_pull) waits for this one and takes it from here. klass 0 =
 * TIER_CLASS_DEADLINE. Returns 0 when tierd-net has begun. Errors as tier_pull. Any thread.
 */
int tier_prefetch_keys(tier_context *c, const tier_key *keys, uint32_t count,
		       const struct tier_hosts_options *options);

/* A prefix that comes from afar, read layer by layer while it is on its way. */
typedef struct tier_far tier_far;

/*
 * Begin to bring what is missing of a prefix, layer by layer, as far as one host has it and
 * tierd-net has room. Returns how many blocks come: those behind the first out->local, which are
 * here, and have a stream of their own (tier_stream_open). 0: none do, *f is NULL, and out->status
 * says why. For each layer wait, read, and at the end close. options may be NULL. Errors as
 * tier_pull; -EBUSY as many are open as tierd-net has pullers, -E2BIG its --streams is too little.
 */
int64_t tier_far_open(tier_context *c, const tier_key *keys, uint32_t count,
		      const struct tier_hosts_options *options, struct tier_hosts *out,
		      tier_far **f);

/*
 * How many layers are ready, from the first, numbered as a stream's: each of their pages was
 * verified. Never falls. Read from shared memory: no system call. Any thread.
 */
uint32_t tier_far_ready(const tier_far *f);

/*
 * Wait until `layer` is ready or deadline_ns (0 = the one at open). Returns how many blocks it is
 * there for: fewer than at open when the host has fewer. Errors: -ENODATA it ended without it (so
 * one waits for the end, by a layer that there is not), -ETIMEDOUT, -ENOTCONN, -EPROTO. One thread.
 */
int64_t tier_far_wait(tier_far *f, uint32_t layer, uint64_t deadline_ns);

/*
 * A page of a ready layer, page_bytes of it, until close. block counts from out->local; layer is
 * the part's. NULL: there is no such page, or not yet. Any thread.
 */
const void *tier_far_data(const tier_far *f, uint32_t block, uint32_t part, uint32_t layer,
			  uint32_t group);

/*
 * End it, a minute after the last layer at most. out NULL: it is given up. Else this waits for the
 * end, by the deadline, and out->usable says how many blocks from the first are good: its holder
 * kept these to the end, and they were put like a pull's. WHAT WAS COMPUTED FROM OTHERS MUST NOT BE
 * KEPT. Returns out->usable, or an error: then none of it is good. f NULL is fine. One thread.
 */
int64_t tier_far_close(tier_far *f, struct tier_hosts *out);

/* A standing grant over blocks that another host holds: single pages of them are read. */
typedef struct tier_grant tier_grant;

struct tier_grant_page {
	uint32_t block; /* counts from out->local of open */
	uint32_t page;  /* tier_geometry_page() */
	void *to;       /* page_bytes of its part; written only if error is 0 */
	int32_t error;  /* -ENODATA nobody has it there now; -ETIMEDOUT it did not come in time */
	uint32_t reserved;
};

/*
 * For who reads little of a prefix that lies elsewhere (sparse attention): name the keys once, then
 * read pages. Returns how many blocks there are behind the first out->local, which are here: lease
 * those. 0: nobody has more, *g is NULL. None of it becomes a block of this host, and none is kept
 * at the other one: what has left there is -ENODATA. options may be NULL; token_ns and salt do not
 * count. Errors as tier_pull; -EBUSY as many are open as tierd-net has room for (8). Blocks.
 */
int64_t tier_grant_open(tier_context *c, const tier_key *keys, uint32_t count,
			const struct tier_hosts_options *options, struct tier_hosts *out,
			tier_grant **g);

/*
 * Read pages, in lists of up to 256 and 4 MiB one after another. Returns how many came, by the
 * deadline (0 = in a second): each one verified, and its holder has said that it stood. Its
 * last half is left to compute the others. A holder that is lost is misses, then whoever has them
 * is asked. Errors: -ESTALE the epoch is another one or the context is shared no more, -ENOTCONN
 * tierd-net ended it (nothing was read for a minute): close, open again; -ETIMEDOUT tierd-net does
 * not answer: likewise; -EPROTO, -EINVAL also: there is no such page. One thread.
 */
int64_t tier_grant_read(tier_grant *g, struct tier_grant_page *pages, uint32_t count,
			uint64_t deadline_ns);

/* NULL is fine. */
void tier_grant_close(tier_grant *g);

/*
 * Delete blocks by key, in prefix order, on every host that shares the context. Returns 0 when each
 * host that is alive has done it, durably; one that is cut off has stopped to count as alive then,
 * and does it before it shares the context again. What is put later under these keys is another
 * matter. deadline_ns 0 = in 30 s: a host that stands still is waited for until its lease is over.
 * options may be NULL; of them only the deadline counts. Errors: -EAGAIN not by all, or not at all:
 * delete again; -ENOTSUP there is no etcd to agree by; -EACCES the context is not ours to write;
 * -ENOSPC too much was deleted in this epoch, raise it; others as above. Blocks. Any thread.
 */
int tier_hosts_delete(tier_context *c, const tier_key *keys, uint32_t count,
		      const struct tier_hosts_options *options);

#ifdef __cplusplus
}
#endif

#endif
