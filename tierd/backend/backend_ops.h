/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam to hardware (I11): a memory tier gives out shareable, sparse memory; a drive moves
 * pieces between memory and a store. One file, one backend. Every slot is filled: what a backend
 * cannot do is a named function returning -ENOSYS.
 */
#ifndef TIERD_BACKEND_BACKEND_OPS_H
#define TIERD_BACKEND_BACKEND_OPS_H

#include <stdbool.h>

#include "tierd/core/core.h"

/* What a probe found, for the operator (I12: emulation says so). */
struct backend_info {
	char name[32];      /* "memfd", "numa", "host", "file" ... */
	char detail[128];   /* "CPU-less node 1, 1 GiB", "emulates GPU memory in host DRAM" */
	bool emulated;      /* stands in for hardware that is not there */
	bool device;        /* memory of a device: not the host's, no processor can touch it */
	bool direct;        /* of HBM: a block device can read straight into it */
	bool own_memory;    /* not the host's: no control group counts it */
	bool grants;        /* clients can be given the right to write a part (W10) */
	uint64_t capacity_auto; /* bytes a size of `auto` means here; 0 = none */
	uint64_t capacity_most; /* bytes that there are; 0 = what the host has */
	uint64_t nodes;     /* bit i: of NUMA node i; 0 = of none that could be named */
};

/* ---- memory ------------------------------------------------------------------------------- */

struct mem_private; /* a backend's own of a region */

struct mem_region {
	int fd;        /* sealed, 0600; the daemon's own; -1 = none. Clients get share()'s */
	void *addr;    /* the daemon's mapping; of a device: addresses that only copy() knows */
	uint64_t bytes;
	uint64_t nodes; /* bit i: NUMA node i is one that it is bound to; 0 = to none */
	uint32_t owner; /* uid whose bytes it holds, set by who had it created */
	struct mem_private *own;
};

struct mem_ops {
	const char *name;
	/*
	 * Look at the host; no lasting effect. nodes: by bit the NUMA nodes that the operator
	 * names, 0 = none; only where nodes can be named. Errors: -ENODEV not here, info->detail
	 * says why where there is more to say.
	 */
	int (*probe)(uint64_t nodes, struct backend_info *info);
	/*
	 * Before all that follows: take what the tier needs, of bytes in all, of what the probe
	 * found. *self is replaced by what serves until close, where the backend has a state of its
	 * own. Errors: -ENOMEM; the backend's.
	 */
	int (*open)(const struct mem_ops **self, const struct backend_info *info, uint64_t bytes);
	/* After the last region is gone and the last copy has ended. */
	void (*close)(const struct mem_ops *self);
	/* A sparse region, F_SEAL_SHRINK|GROW|SEAL, mapped and bound to the tier's memory. */
	int (*create)(const struct mem_ops *self, struct mem_region *region, const char *label,
		      uint64_t bytes);
	/*
	 * A descriptor by which one client maps the region, read-only; the caller closes it. client
	 * is a number of the caller's, for revoke().
	 * Errors: -EOPNOTSUPP the processor cannot read this memory, clients do without; -EMFILE.
	 */
	int (*share)(const struct mem_region *region, uint64_t client);
	/*
	 * Nobody reads the region any more through descriptors that were shared with this client:
	 * it gets SIGBUS, others go on. Returns how many pieces of ABI_HUGE a device of somebody's
	 * may still read: asked again it counts those that some device has had all the time.
	 * Errors: -EOPNOTSUPP this memory is there for as long as it is mapped.
	 */
	int (*revoke)(const struct mem_region *region, uint64_t client);
	/*
	 * A descriptor by which its holder may write this range, of whole ABI_HUGE, until commit(),
	 * and back it; the caller closes it. The loop's thread. Errors: -EOPNOTSUPP it has no such
	 * rights; -EBUSY somebody may write some of it; -ENOMEM, -EMFILE.
	 */
	int (*grant)(const struct mem_region *region, uint64_t offset, uint64_t bytes);
	/*
	 * Nobody but us stores there from now on; the bytes stay. What a device could still write
	 * is copied to other memory, which takes the place of that. Worker threads. Errors: those
	 * of prepare, -EIO; nobody stores there then, and its bytes are anything.
	 */
	int (*commit)(const struct mem_region *region, uint64_t offset, uint64_t bytes);
	/* The memory goes, whoever has it mapped. */
	void (*destroy)(struct mem_region *region);
	/* We let go of it: who has it mapped keeps it as it is, and nobody else can have it. */
	void (*leave)(struct mem_region *region);
	/*
	 * Back a 2 MiB-aligned range with memory, huge pages if they can be had. New memory is
	 * zero, but a device's: that is as it was, and no client can see it. Any thread. Returns
	 * in how many pieces of ABI_HUGE somebody else had set the memory's policy, or memory was
	 * of another node; it is where it belongs now, as far as the kernel could move it.
	 */
	int (*prepare)(const struct mem_region *region, uint64_t offset, uint64_t bytes);
	/* Give a 2 MiB-aligned range back to the host (hole). Any thread. */
	int (*punch)(const struct mem_region *region, uint64_t offset, uint64_t bytes);
	/*
	 * A client's device is going to map or register [offset, offset + bytes), which is backed
	 * and stays so meanwhile: descriptors of equal pieces, *count of them, for fd[*count] and
	 * the caller to close; none where the client registers what share() gave it. The loop's
	 * thread. Errors: -EAGAIN it is not backed; -EFBIG more pieces than *count; -EOPNOTSUPP
	 * what is registered would move elsewhere; the device's.
	 */
	int (*lend)(const struct mem_region *region, uint64_t offset, uint64_t bytes, int *fd,
		    uint32_t *count);
	/* Physical bytes behind the region (st_blocks): clients' touches of holes show here. */
	int64_t (*resident)(const struct mem_region *region);
	/*
	 * Pages of a shared mapping that the caller made come from the tier's memory from now on,
	 * whoever touches them first. Errors: -EOPNOTSUPP they come from ordinary memory; those of
	 * mbind.
	 */
	int (*bind)(const struct mem_ops *self, void *addr, uint64_t bytes);
	/*
	 * What this copy reads of the tier is read soon, by its deadline: a device may begin to
	 * bring it. The loop's thread; copy() follows. Errors: -ENOSYS it needs no hints.
	 */
	int (*hint)(const struct mem_ops *self, const struct core_copy *copy);
	/*
	 * Carry a copy job out, to or from this tier, and checksum if asked: what is stored where
	 * no processor can read it cannot be, -EOPNOTSUPP. Worker threads.
	 */
	void (*copy)(const struct mem_ops *self, struct core_copy *copy);
};

/* Of indexes, which lie in ordinary memory whatever the tiers are. */
extern const struct mem_ops *const mem_index;

/*
 * By tier, best first; the config may name one, and NUMA nodes by bit (0 = none), which only some
 * take. NULL = none of that name / probed; *info says why where the probe does.
 */
const struct mem_ops *mem_backend(uint32_t tier, const char *name, uint64_t nodes,
				  struct backend_info *info);

/*
 * Huge pages of a memfd that is no region. mem_map_aligned maps all of it, shared, at a multiple of
 * ABI_HUGE, for munmap to take away; or MAP_FAILED. In that, at multiples of ABI_HUGE: mem_back
 * puts memory behind up to ABI_HUGE bytes, a huge page where one can be had (errors: madvise's);
 * mem_collapse makes huge pages of those that are there, of whole areas (false: of some it cannot).
 * Bytes stay as they are. They wait for every processor: any thread but the loop's.
 */
void *mem_map_aligned(int fd, uint64_t bytes, int protection);
int mem_back(void *at, uint64_t bytes);
bool mem_collapse(void *at, uint64_t bytes);

/* Names of all that there are for a memory tier, here or not. */
void mem_backend_names(uint32_t tier, char *text, size_t bytes);

/* ---- drive -------------------------------------------------------------------------------- */

struct drive;
struct io_uring;

struct drive_options {
	const char *path;
	uint64_t bytes;     /* preallocate (and write) a file to this size; 0 = as it is */
	bool buffered;      /* allow the page cache where O_DIRECT is refused (tmpfs) */
	void (*progress)(void *arg, uint64_t done, uint64_t total); /* preallocation; may be NULL */
	void *arg;
};

struct drive_backing {
	uint64_t bytes;     /* its length */
	uint64_t allocated; /* of them on the medium, by st_blocks; a device: all */
	uint64_t holes;     /* bytes that are not; a device has none */
	uint64_t hole;      /* where the first one is */
};

/* Who is told what a store does not need any more. */
enum drive_discard {
	DRIVE_DISCARD_NONE,
	DRIVE_DISCARD_DEVICE, /* the device: room for its own work */
	DRIVE_DISCARD_FILE,   /* the file system: the room is anybody's, and may not come back */
};

/*
 * The loop thread owns the ring and passes it in. user_data of the entries is
 * (pointer | DRIVE_TAG); the loop hands completions with that tag to complete().
 */
struct drive_ops {
	const char *name;
	unsigned ring_flags; /* io_uring's, that the ring must be set up with */
	int (*probe)(const struct drive_options *options, struct backend_info *info);
	int (*open)(struct drive **out, const struct drive_options *options);
	void (*close)(struct drive *d);
	uint64_t (*bytes)(const struct drive *d);
	/* What the host has set aside for it. Errors: negative errno of the calls. */
	int (*backing)(struct drive *d, struct drive_backing *out);
	/* Blocking whole transfers, for start-up and recovery only. Errors: as base/file.h. */
	int (*pread)(struct drive *d, void *buf, size_t bytes, uint64_t offset);
	int (*pwrite)(struct drive *d, const void *buf, size_t bytes, uint64_t offset);
	int (*flush)(struct drive *d);
	enum drive_discard (*discards)(const struct drive *d);
	/*
	 * Whole sectors whose bytes nobody needs: anything may be read there afterwards. Blocks,
	 * any thread, beside operations elsewhere. Errors: -EOPNOTSUPP not here; negative errno.
	 */
	int (*discard)(const struct drive *d, uint64_t offset, uint64_t bytes);
	/* Queue one io / a flush on the ring; -EAGAIN = ring full, again later. */
	int (*submit)(struct drive *d, struct io_uring *ring, struct core_io *io);
	int (*submit_flush)(struct drive *d, struct io_uring *ring, uint64_t token);
	/* Is the completion of one of its operations? */
	bool (*owns)(const struct drive *d, uint64_t data);
	/*
	 * A completion of ours: returns the io (res set; short transfers are continued or become
	 * -EIO here), NULL with *token set for a flush (whose result is *res then), or NULL and
	 * *token 0: goes on. Tokens are not 0.
	 */
	struct core_io *(*complete)(struct drive *d, struct io_uring *ring, uint64_t data,
				    int *res, uint64_t *token);
};

#define DRIVE_TAG 1ull /* lowest bit of user_data: an io; second bit: a flush token */
#define DRIVE_TAG_FLUSH 2ull

/* NULL: there is none of that name. */
const struct drive_ops *drive_backend(const char *name);

#endif
