/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvme tier: pieces of memory against a contiguous place of the store, O_DIRECT through the
 * loop's io_uring. Entries are only queued here; the loop submits them once a turn. Nothing is
 * allocated or cleared per operation. What a read brought is checked by the workers, not here.
 *
 * Order of durability (D1) is the core's: a flush covers the writes whose completions it was given
 * before it asked, and those are on the device by then.
 */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "libtier/base/file.h"
#include "tierd/backend/nvme.h"

#define OPS_MAX (CORE_IO_MAX + 8u) /* the core's, and flushes */
#define RETRIES_MAX 16u            /* of one operation that the kernel asks to try again */
#define LOGICAL_SECTOR 512u        /* a transfer that ends inside of one met the end of the file */

/* What one operation needs until its completion, the kernel's view of its pieces included. */
struct nvme_op {
	struct core_io *io; /* NULL: a flush */
	uint64_t token;     /* flush */
	uint64_t done;      /* bytes */
	uint32_t retries;
	struct nvme_op *next_free;
	struct iovec iov[CORE_SEGMENTS_IO];
};

struct drive {
	struct nvme_file store;
	struct io_uring *ring; /* where the file is registered */
	int file;              /* fd, or its index in the ring's table */
	unsigned sqe_flags;
	struct nvme_op *free;
	struct nvme_op op[OPS_MAX];
};

/* ---- life ---------------------------------------------------------------------------------- */

static int nvme_open(struct drive **out, const struct drive_options *options)
{
	struct drive *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	rc = nvme_file_open(options, &d->store);
	if (rc) {
		free(d);
		return rc;
	}
	for (uint32_t i = OPS_MAX; i-- > 0;) {
		d->op[i].next_free = d->free;
		d->free = &d->op[i];
	}
	*out = d;
	return 0;
}

static void nvme_close(struct drive *d)
{
	if (!d)
		return;
	nvme_file_close(&d->store);
	free(d);
}

static int nvme_backing(struct drive *d, struct drive_backing *out)
{
	return nvme_file_backing(&d->store, out);
}

static uint64_t nvme_bytes(const struct drive *d)
{
	return d->store.bytes;
}

static int nvme_pread(struct drive *d, void *buf, size_t bytes, uint64_t offset)
{
	return file_read(d->store.fd, buf, bytes, offset);
}

static int nvme_pwrite(struct drive *d, const void *buf, size_t bytes, uint64_t offset)
{
	if (offset > d->store.bytes || bytes > d->store.bytes - offset)
		return -ENOSPC; /* a file would grow */
	return file_write(d->store.fd, buf, bytes, offset);
}

static int nvme_flush(struct drive *d)
{
	return fdatasync(d->store.fd) ? -errno : 0;
}

static enum drive_discard nvme_discards(const struct drive *d)
{
	return nvme_file_discards(&d->store);
}

static int nvme_discard(const struct drive *d, uint64_t offset, uint64_t bytes)
{
	assert(offset <= d->store.bytes && bytes <= d->store.bytes - offset);
	return nvme_file_discard(&d->store, offset, bytes);
}

/* ---- operations ---------------------------------------------------------------------------- */

/* The file is registered with the ring at the first use, which saves a look-up per operation. A
 * ring that has a table already is somebody else's to order: then the plain descriptor does. */
static void use_ring(struct drive *d, struct io_uring *ring)
{
	bool registered = io_uring_register_files(ring, &d->store.fd, 1) == 0;

	d->ring = ring;
	d->file = registered ? 0 : d->store.fd;
	d->sqe_flags = registered ? IOSQE_FIXED_FILE : 0;
}

static struct nvme_op *op_get(struct drive *d)
{
	struct nvme_op *op = d->free;

	if (!op)
		return NULL;
	d->free = op->next_free;
	op->done = 0;
	op->retries = 0;
	return op;
}

static void op_put(struct drive *d, struct nvme_op *op)
{
	assert(op >= d->op && op < d->op + OPS_MAX);
	op->next_free = d->free;
	d->free = op;
}

/* An operation with its place in the ring. NULL: one of both is full. */
static struct nvme_op *op_begin(struct drive *d, struct io_uring *ring,
				struct io_uring_sqe **sqe)
{
	struct nvme_op *op;

	if (d->ring != ring)
		use_ring(d, ring);
	op = op_get(d);
	if (!op)
		return NULL;
	*sqe = io_uring_get_sqe(ring);
	if (!*sqe) {
		op_put(d, op);
		return NULL;
	}
	return op;
}

/* The pieces behind the first op->done bytes, neighbours in memory as one. */
static uint32_t fill_iov(struct nvme_op *op)
{
	const struct core_io *io = op->io;
	uint64_t skip = op->done;
	uint32_t n = 0;

	for (uint32_t i = 0; i < io->piece_count; i++) {
		uint8_t *at = io->piece[i].addr;
		size_t bytes = io->piece[i].bytes;

		if (skip >= bytes) {
			skip -= bytes;
			continue;
		}
		at += skip;
		bytes -= skip;
		skip = 0;
		if (n && (uint8_t *)op->iov[n - 1].iov_base + op->iov[n - 1].iov_len == at) {
			op->iov[n - 1].iov_len += bytes;
			continue;
		}
		op->iov[n++] = (struct iovec){ .iov_base = at, .iov_len = bytes };
	}
	assert(n > 0);
	return n;
}

static void prepare(struct drive *d, struct nvme_op *op, struct io_uring_sqe *sqe)
{
	struct core_io *io = op->io;
	uint64_t offset = io->offset + op->done;
	uint32_t n = fill_iov(op);

	if (n == 1 && io->write)
		io_uring_prep_write(sqe, d->file, op->iov[0].iov_base,
				    (unsigned)op->iov[0].iov_len, offset);
	else if (n == 1)
		io_uring_prep_read(sqe, d->file, op->iov[0].iov_base,
				   (unsigned)op->iov[0].iov_len, offset);
	else if (io->write)
		io_uring_prep_writev(sqe, d->file, op->iov, n, offset);
	else
		io_uring_prep_readv(sqe, d->file, op->iov, n, offset);
	sqe->flags |= d->sqe_flags;
	io_uring_sqe_set_data64(sqe, (uintptr_t)op | DRIVE_TAG);
}

static int nvme_submit(struct drive *d, struct io_uring *ring, struct core_io *io)
{
	struct io_uring_sqe *sqe;
	struct nvme_op *op;

	assert(io->piece_count > 0 && io->piece_count <= CORE_SEGMENTS_IO);
	assert(io->bytes > 0 && io->bytes <= INT32_MAX);
	/* Beyond the end a read would fail, but a write would make the file grow. */
	assert(io->offset <= d->store.bytes && io->bytes <= d->store.bytes - io->offset);
	op = op_begin(d, ring, &sqe);
	if (!op)
		return -EAGAIN;
	op->io = io;
	prepare(d, op, sqe);
	return 0;
}

static int nvme_submit_flush(struct drive *d, struct io_uring *ring, uint64_t token)
{
	struct io_uring_sqe *sqe;
	struct nvme_op *op;

	assert(token);
	op = op_begin(d, ring, &sqe);
	if (!op)
		return -EAGAIN;
	op->io = NULL;
	op->token = token;
	io_uring_prep_fsync(sqe, d->file, IORING_FSYNC_DATASYNC);
	sqe->flags |= d->sqe_flags;
	io_uring_sqe_set_data64(sqe, (uintptr_t)op | DRIVE_TAG | DRIVE_TAG_FLUSH);
	return 0;
}

static struct core_io *finish(struct drive *d, struct nvme_op *op, int res)
{
	struct core_io *io = op->io;

	io->res = res;
	op_put(d, op);
	return io;
}

/* The rest of an operation, or the same once more. */
static struct core_io *go_on(struct drive *d, struct io_uring *ring, struct nvme_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe) {
		/* Rare enough to spend a system call: the queue is full of this turn's entries. */
		io_uring_submit(ring);
		sqe = io_uring_get_sqe(ring);
	}
	if (!sqe)
		return finish(d, op, -EIO);
	prepare(d, op, sqe);
	return NULL;
}

static struct core_io *nvme_complete(struct drive *d, struct io_uring *ring, uint64_t data,
				     int res, uint64_t *token)
{
	struct nvme_op *op = (struct nvme_op *)(uintptr_t)(data & ~(DRIVE_TAG | DRIVE_TAG_FLUSH));
	struct core_io *io = op->io;

	assert(op >= d->op && op < d->op + OPS_MAX);
	*token = 0;
	if (data & DRIVE_TAG_FLUSH) {
		*token = op->token;
		op_put(d, op);
		return NULL;
	}
	if ((res == -EAGAIN || res == -EINTR) && op->retries++ < RETRIES_MAX)
		return go_on(d, ring, op);
	if (res < 0)
		return finish(d, op, res);
	op->done += (uint64_t)res;
	assert(op->done <= io->bytes);
	if (op->done == io->bytes)
		return finish(d, op, (int)io->bytes);
	if (res == 0 || op->done % LOGICAL_SECTOR)
		return finish(d, op, -EIO);
	return go_on(d, ring, op);
}

const struct drive_ops drive_nvme = {
	.name = "file",
	.probe = nvme_file_probe,
	.open = nvme_open,
	.close = nvme_close,
	.bytes = nvme_bytes,
	.backing = nvme_backing,
	.pread = nvme_pread,
	.pwrite = nvme_pwrite,
	.flush = nvme_flush,
	.discards = nvme_discards,
	.discard = nvme_discard,
	.submit = nvme_submit,
	.submit_flush = nvme_submit_flush,
	.complete = nvme_complete,
};
