/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvme tier's two halves: nvme_file.c finds, locks and fills the file or device; nvme.c moves
 * pieces through io_uring. Included by those two and registry.c only.
 */
#ifndef TIERD_BACKEND_NVME_H
#define TIERD_BACKEND_NVME_H

#include "tierd/backend/backend_ops.h"

extern const struct drive_ops drive_nvme;

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

/* What the host holds of it. Errors: negative errno. */
int nvme_file_backing(const struct nvme_file *f, struct drive_backing *out);

#endif
