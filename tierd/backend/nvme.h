/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvme tier's parts: nvme_file.c finds, locks and fills the file or device; nvme.c moves
 * pieces through io_uring; nvme_pass.c has the commands for those that go past the block layer.
 * Included by those three and registry.c only.
 */
#ifndef TIERD_BACKEND_NVME_H
#define TIERD_BACKEND_NVME_H

#include "tierd/backend/backend_ops.h"

extern const struct drive_ops drive_nvme, drive_nvme_pass;

/* An open one. */
struct nvme_file {
	int fd;
	bool device;
	uint64_t bytes;
};

/* Look at the path without creating or changing anything. Errors: -ENODEV, -EACCES ... */
int nvme_file_probe(const struct drive_options *options, struct backend_info *info);

/*
 * Open, lock for this process alone, and bring to options->bytes with written extents. Each error
 * is explained in the log here. Errors: -EBUSY another daemon has it, -EOPNOTSUPP no O_DIRECT
 * there, -ENOSPC, -EFBIG, -EINVAL neither file nor block device, and what open(2) says.
 */
int nvme_file_open(const struct drive_options *options, struct nvme_file *out);

/* Unlock and close. The lock is given back at once even while a ring still refers to the file. */
void nvme_file_close(const struct nvme_file *f);

enum drive_discard nvme_file_discards(const struct nvme_file *f);
int nvme_file_discard(const struct nvme_file *f, uint64_t offset, uint64_t bytes);

/* The name of its disk, or partition, in /sys/block. Errors: negative errno; -ERANGE. */
int nvme_file_disk(const struct nvme_file *f, char *name, size_t bytes);

/* A limit of its disk's queue, by its name in sysfs; 0: it is not told. */
uint64_t nvme_file_limit(const struct nvme_file *f, const char *name);

/* What the host holds of it. Errors: negative errno. */
int nvme_file_backing(const struct nvme_file *f, struct drive_backing *out);

/* ---- past the block layer (nvme.backend = passthrough) -------------------------------------- */

struct iovec;
struct io_uring_sqe;

struct nvme_pass {
	int fd; /* the generic device; -1: not used */
	uint32_t nsid, lba_shift;
	uint64_t most; /* bytes of a command */
};

struct nvme_transfer {
	bool write;
	uint32_t count;
	const struct iovec *iov; /* until it is submitted */
	uint64_t offset, bytes;
};

/*
 * The generic device of an open block device, which must be a whole namespace. Each error is
 * explained in the log here. Errors: -ENOTTY none of NVMe, -EPROTO it is not the same, what open(2)
 * says.
 */
int nvme_pass_open(const char *name, const struct nvme_file *block, struct nvme_pass *out);
void nvme_pass_close(const struct nvme_pass *p);

/*
 * Entries of 128 bytes; user_data and flags are the caller's. Results: 0, a status of NVMe (> 0),
 * or a negative errno.
 */
void nvme_pass_transfer(const struct nvme_pass *p, struct io_uring_sqe *sqe,
			const struct nvme_transfer *t);
void nvme_pass_flush(const struct nvme_pass *p, struct io_uring_sqe *sqe);

#endif
