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
#define STATUS_FINAL 0x4000        /* of NVMe: "do not retry" */

/* What one operation needs until its completion, the kernel's view of its pieces included. */
struct nvme_op {
	struct core_io *io; /* NULL: a flush */
	uint64_t token;     /* flush */
	uint64_t done;      /* bytes */
	uint64_t asked;     /* bytes of the entry that is under way */
	uint32_t retries;
	struct nvme_op *next_free;
	struct iovec iov[CORE_SEGMENTS_IO];
};

struct drive {
	struct nvme_file store;
	struct nvme_pass pass; /* where bytes go when it is open */
	struct io_uring *ring; /* where the file is registered */
	int file;              /* fd, or its index in the ring's table */
	unsigned sqe_flags;
	struct nvme_op *free;
	struct nvme_op op[OPS_MAX];
};

/* ---- life ---------------------------------------------------------------------------------- */

static int open_as(struct drive **out, const struct drive_options *options, bool pass)
{
	struct drive *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->pass.fd = -1;
	rc = nvme_file_open(options, &d->store);
	if (rc)
		goto free_drive;
	rc = pass ? nvme_pass_open(options->path, &d->store, &d->pass) : 0;
	if (rc)
		goto close_file;
	for (uint32_t i = OPS_MAX; i-- > 0;) {
		d->op[i].next_free = d->free;
		d->free = &d->op[i];
	}
	*out = d;
	return 0;

close_file:
	nvme_file_close(&d->store);
free_drive:
	free(d);
	return rc;
}

static int nvme_open(struct drive **out, const struct drive_options *options)
{
	return open_as(out, options, false);
}

static int pass_open(struct drive **out, const struct drive_options *options)
{
	return open_as(out, options, true);
}

static void nvme_close(struct drive *d)
{
	if (!d)
		return;
	nvme_pass_close(&d->pass);
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

/* Do commands go past the block layer? */
static bool passes(const struct drive *d)
{
	return d->pass.fd >= 0;
}

/* The file is registered with the ring at the first use, which saves a look-up per operation. A
 * ring that has a table already is somebody else's to order: then the plain descriptor does. */
static void use_ring(struct drive *d, struct io_uring *ring)
{
	int fd = passes(d) ? d->pass.fd : d->store.fd;
	bool registered = io_uring_register_files(ring, &fd, 1) == 0;

	d->ring = ring;
	d->file = registered ? 0 : fd;
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

/* The pieces behind the first op->done bytes, `most` bytes of them, neighbours in memory as one. */
static uint32_t fill_iov(struct nvme_op *op, uint64_t most)
{
	const struct core_io *io = op->io;
	uint64_t skip = op->done;
	uint32_t n = 0;

	op->asked = 0;
	for (uint32_t i = 0; i < io->piece_count && op->asked < most; i++) {
		uint8_t *at = io->piece[i].addr;
		size_t bytes = io->piece[i].bytes;

		if (skip >= bytes) {
			skip -= bytes;
			continue;
		}
		at += skip;
		bytes -= skip;
		skip = 0;
		if (bytes > most - op->asked)
			bytes = most - op->asked;
		op->asked += bytes;
		if (n && (uint8_t *)op->iov[n - 1].iov_base + op->iov[n - 1].iov_len == at) {
			op->iov[n - 1].iov_len += bytes;
			continue;
		}
		op->iov[n++] = (struct iovec){ .iov_base = at, .iov_len = bytes };
	}
	assert(n > 0);
	return n;
}

static void prepare_file(const struct drive *d, struct io_uring_sqe *sqe,
			 const struct nvme_transfer *t)
{
	const struct iovec *iov = t->iov;

	if (t->count == 1 && t->write)
		io_uring_prep_write(sqe, d->file, iov->iov_base, (unsigned)iov->iov_len, t->offset);
	else if (t->count == 1)
		io_uring_prep_read(sqe, d->file, iov->iov_base, (unsigned)iov->iov_len, t->offset);
	else if (t->write)
		io_uring_prep_writev(sqe, d->file, iov, t->count, t->offset);
	else
		io_uring_prep_readv(sqe, d->file, iov, t->count, t->offset);
}

static void prepare_transfer(const struct drive *d, struct nvme_op *op, struct io_uring_sqe *sqe)
{
	bool pass = passes(d);
	struct nvme_transfer t = {
		.write = op->io->write,
		.iov = op->iov,
		.offset = op->io->offset + op->done,
	};

	t.count = fill_iov(op, pass ? d->pass.most : UINT64_MAX);
	t.bytes = op->asked;
	if (pass)
		nvme_pass_transfer(&d->pass, sqe, &t);
	else
		prepare_file(d, sqe, &t);
}

static void prepare(const struct drive *d, struct nvme_op *op, struct io_uring_sqe *sqe)
{
	if (op->io)
		prepare_transfer(d, op, sqe);
	else if (passes(d))
		nvme_pass_flush(&d->pass, sqe);
	else
		io_uring_prep_fsync(sqe, d->file, IORING_FSYNC_DATASYNC);
	sqe->fd = d->file;
	sqe->flags |= d->sqe_flags;
	io_uring_sqe_set_data64(sqe, (uintptr_t)op | DRIVE_TAG | (op->io ? 0 : DRIVE_TAG_FLUSH));
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
	prepare(d, op, sqe);
	return 0;
}

static struct core_io *finish(struct drive *d, struct nvme_op *op, int res, uint64_t *token)
{
	struct core_io *io = op->io;

	if (io)
		io->res = res;
	else
		*token = op->token;
	op_put(d, op);
	return io;
}

/* The rest of an operation, or the same once more. False: there is no room. */
static bool go_on(struct drive *d, struct io_uring *ring, struct nvme_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe) {
		/* Rare enough to spend a system call: the queue is full of this turn's entries. */
		io_uring_submit(ring);
		sqe = io_uring_get_sqe(ring);
	}
	if (sqe)
		prepare(d, op, sqe);
	return sqe;
}

static bool nvme_owns(const struct drive *d, uint64_t data)
{
	const struct nvme_op *op = (const struct nvme_op *)(uintptr_t)(data & ~3ull);

	return op >= d->op && op < d->op + OPS_MAX;
}

/* A status of NVMe is an error; the kernel tries a command again only below the block layer. */
static bool again(const struct drive *d, struct nvme_op *op, int res)
{
	bool asks = passes(d) && res > 0 ? !(res & STATUS_FINAL) :
					   res == -EAGAIN || res == -EINTR;

	return asks && op->retries++ < RETRIES_MAX;
}

static struct core_io *nvme_complete(struct drive *d, struct io_uring *ring, uint64_t data,
				     int *res, uint64_t *token)
{
	struct nvme_op *op = (struct nvme_op *)(uintptr_t)(data & ~(DRIVE_TAG | DRIVE_TAG_FLUSH));
	bool pass = passes(d);

	assert(op >= d->op && op < d->op + OPS_MAX);
	*token = 0;
	if ((op->io || pass) && again(d, op, *res)) {
		if (go_on(d, ring, op))
			return NULL;
		*res = -EIO;
	}
	if (pass && *res > 0)
		*res = -EIO;
	if (*res < 0 || !op->io)
		return finish(d, op, *res, token);
	op->done += pass ? op->asked : (uint64_t)*res;
	assert(op->done <= op->io->bytes);
	if (op->done == op->io->bytes)
		return finish(d, op, (int)op->io->bytes, token);
	if ((!pass && *res == 0) || op->done % LOGICAL_SECTOR || !go_on(d, ring, op))
		return finish(d, op, -EIO, token);
	return NULL;
}

#define DRIVE_NVME                                                                                 \
	.probe = nvme_file_probe, .close = nvme_close, .bytes = nvme_bytes,                        \
	.backing = nvme_backing, .pread = nvme_pread, .pwrite = nvme_pwrite,                       \
	.flush = nvme_flush, .discards = nvme_discards, .discard = nvme_discard,                   \
	.submit = nvme_submit, .submit_flush = nvme_submit_flush, .owns = nvme_owns,               \
	.complete = nvme_complete

const struct drive_ops drive_nvme = {
	.name = "file",
	.open = nvme_open,
	DRIVE_NVME,
};

const struct drive_ops drive_nvme_pass = {
	.name = "passthrough",
	.ring_flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
	.open = pass_open,
	DRIVE_NVME,
};
