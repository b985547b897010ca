/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVMe commands past the block layer: /dev/ngXnY, the generic device of a namespace, which takes
 * them as entries of io_uring. The block device stays open, exclusively: it keeps others away, and
 * what start-up reads and writes, and discards, go through it. A command is neither split nor
 * tried again by the kernel, so both are done here and in nvme.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/file.h"
#include "libtier/base/log.h"
#include "tierd/backend/nvme.h"

#define PAGE 4096u
#define MOST_ALIGN (64u << 10)
#define COMMAND_BLOCKS_MAX 65536u /* the field has 16 bits */

enum { OP_FLUSH = 0, OP_WRITE = 1, OP_READ = 2 };

_Static_assert(sizeof(struct nvme_uring_cmd) <= 80, "an entry of 128 bytes has room for it");

/* ---- opening ------------------------------------------------------------------------------- */

/* A whole namespace's generic device: nvme0n1 -> /dev/ng0n1. */
static int generic_path(const struct nvme_file *block, char *path, size_t bytes)
{
	char disk[NAME_MAX + 1];
	unsigned controller, namespace;
	int rc = nvme_file_disk(block, disk, sizeof(disk)), end = 0;

	if (rc)
		return rc;
	if (sscanf(disk, "nvme%un%u%n", &controller, &namespace, &end) != 2 || disk[end])
		return -ENOTTY;
	snprintf(path, bytes, "/dev/ng%un%u", controller, namespace);
	return 0;
}

/*
 * What one command may carry: the controller's limit, and as many pieces as it takes if each page
 * is one.
 */
static uint64_t most_bytes(const struct nvme_file *block, uint32_t lba_shift)
{
	uint64_t most = nvme_file_limit(block, "max_hw_sectors_kb") << 10;
	uint64_t segments = nvme_file_limit(block, "max_segments");
	uint64_t blocks = (uint64_t)COMMAND_BLOCKS_MAX << lba_shift;

	if (segments > 1 && most > (segments - 1) * PAGE)
		most = (segments - 1) * PAGE;
	most = most < blocks ? most : blocks;
	return most < MOST_ALIGN ? most / PAGE * PAGE : most / MOST_ALIGN * MOST_ALIGN;
}

/* The first sector must read alike both ways: else a wrong device, or a format with metadata. */
static int compare(const struct nvme_pass *p, const struct nvme_file *block)
{
	uint8_t *buf CLEANUP_FREE = aligned_alloc(PAGE, 2ul * PAGE);
	struct nvme_passthru_cmd64 cmd = { .opcode = OP_READ, .nsid = p->nsid, .data_len = PAGE };
	int rc;

	if (!buf)
		return -ENOMEM;
	cmd.addr = (uintptr_t)buf;
	cmd.cdw12 = (PAGE >> p->lba_shift) - 1;
	rc = ioctl(p->fd, NVME_IOCTL_IO64_CMD, &cmd);
	if (rc)
		return rc < 0 ? -errno : -EIO;
	rc = file_read(block->fd, buf + PAGE, PAGE, 0);
	if (rc)
		return rc;
	return memcmp(buf, buf + PAGE, PAGE) ? -EPROTO : 0;
}

static int look(struct nvme_pass *p, const struct nvme_file *block)
{
	int sector, id = ioctl(p->fd, NVME_IOCTL_ID), of_block = ioctl(block->fd, NVME_IOCTL_ID);

	if (id < 0 || of_block < 0 || ioctl(block->fd, BLKSSZGET, &sector))
		return -errno;
	if (id != of_block)
		return -EPROTO;
	p->nsid = (uint32_t)id;
	p->lba_shift = (uint32_t)__builtin_ctz((unsigned)sector);
	p->most = most_bytes(block, p->lba_shift);
	if (p->lba_shift > 12 || !p->most)
		return -EPROTO;
	return compare(p, block);
}

int nvme_pass_open(const char *name, const struct nvme_file *block, struct nvme_pass *out)
{
	char path[NAME_MAX + 16] = "";
	int rc = block->device ? generic_path(block, path, sizeof(path)) : -ENOTTY;

	*out = (struct nvme_pass){ .fd = -1 };
	if (rc == 0) {
		out->fd = open(path, O_RDWR | O_CLOEXEC);
		rc = out->fd < 0 ? -errno : look(out, block);
	}
	if (rc == 0)
		return 0;
	nvme_pass_close(out);
	log_error(NULL, "no passthrough to the store's device", name,
		  rc == -ENOTTY ? "it is for whole namespaces such as /dev/nvme0n1: else write "
				  "nvme.backend = file" :
		  rc == -EACCES || rc == -EPERM ?
				  "the generic device beside it (/dev/ng0n1) must be readable "
				  "and writable" : "write nvme.backend = file",
		  "generic=%s error=\"%s\" errno=%d", path, strerror(-rc), -rc);
	return rc;
}

void nvme_pass_close(const struct nvme_pass *p)
{
	if (p->fd >= 0)
		close(p->fd);
}

/* ---- commands ------------------------------------------------------------------------------ */

static struct nvme_uring_cmd *command(const struct nvme_pass *p, struct io_uring_sqe *sqe,
				      uint8_t opcode)
{
	struct nvme_uring_cmd *cmd = (void *)((uint8_t *)sqe + offsetof(struct io_uring_sqe, cmd));

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, p->fd, NULL, 0, 0);
	sqe->cmd_op = NVME_URING_CMD_IO;
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = opcode;
	cmd->nsid = p->nsid;
	return cmd;
}

void nvme_pass_transfer(const struct nvme_pass *p, struct io_uring_sqe *sqe,
			const struct nvme_transfer *t)
{
	struct nvme_uring_cmd *cmd = command(p, sqe, t->write ? OP_WRITE : OP_READ);
	uint64_t block = t->offset >> p->lba_shift;

	if (t->count == 1) {
		cmd->addr = (uintptr_t)t->iov[0].iov_base;
		cmd->data_len = (uint32_t)t->iov[0].iov_len;
	} else {
		sqe->cmd_op = NVME_URING_CMD_IO_VEC;
		cmd->addr = (uintptr_t)t->iov;
		cmd->data_len = t->count;
	}
	cmd->cdw10 = (uint32_t)block;
	cmd->cdw11 = (uint32_t)(block >> 32);
	cmd->cdw12 = (uint32_t)(t->bytes >> p->lba_shift) - 1;
}

void nvme_pass_flush(const struct nvme_pass *p, struct io_uring_sqe *sqe)
{
	command(p, sqe, OP_FLUSH);
}
