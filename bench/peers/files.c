/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain files, one a block, named by its key: on tmpfs, and with O_DIRECT on the disk, where all
 * pieces of a request are under way at once by io_uring. A file appears whole: it is written under
 * another name first.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/peers/peer.h"
#include "libtier/base/cleanup.h"

#define DEPTH 32u
#define PIECE_BYTES (1u << 20)

#define BLOCKS_MAX 256u /* of one request */

struct files {
	int dir;
	struct io_uring ring;
	bool direct;
};

/* ---- one block after the other: memory ------------------------------------------------------ */

static int transfer_plain(int fd, uint8_t *at, size_t bytes, bool put)
{
	while (bytes) {
		ssize_t n = put ? write(fd, at, bytes) : read(fd, at, bytes);

		if (n <= 0)
			return n ? -errno : -EIO;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* ---- all pieces of a request at once: the disk ---------------------------------------------- */

static int take(struct files *f, uint32_t *ahead)
{
	struct io_uring_cqe *got;
	int error = io_uring_submit_and_wait(&f->ring, 1);

	if (error >= 0)
		error = io_uring_wait_cqe(&f->ring, &got);
	if (error)
		return error;
	if (got->res != (int)got->user_data)
		error = got->res < 0 ? got->res : -EIO;
	io_uring_cqe_seen(&f->ring, got);
	--*ahead;
	return error;
}

static int transfer_direct(struct files *f, const int *fd, uint32_t count, uint8_t *at,
			   size_t bytes, bool put)
{
	size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
	uint32_t pieces = (uint32_t)(bytes / piece), ahead = 0;
	int error = 0;

	for (uint32_t i = 0; i < count * pieces && !error; i++, ahead++) {
		size_t offset = i % pieces * piece;
		struct io_uring_sqe *sqe;

		if (ahead == DEPTH && (error = take(f, &ahead)))
			break;
		sqe = io_uring_get_sqe(&f->ring);
		if (put)
			io_uring_prep_write(sqe, fd[i / pieces], at + i * piece, (unsigned)piece,
					    offset);
		else
			io_uring_prep_read(sqe, fd[i / pieces], at + i * piece, (unsigned)piece,
					   offset);
		sqe->user_data = piece;
	}
	while (ahead) {
		int one = take(f, &ahead);

		error = error ? error : one;
		if (one && one != -EIO)
			return one;
	}
	return error;
}

/* ---- requests ------------------------------------------------------------------------------- */

static int open_block(struct files *f, uint32_t block, bool put)
{
	char name[PEER_KEY_BYTES + 4];
	int direct = f->direct ? O_DIRECT : 0, fd;

	peer_key(name, block);
	if (put)
		memcpy(name + PEER_KEY_BYTES - 1, ".new", 5);
	fd = openat(f->dir, name, (put ? O_WRONLY | O_CREAT : O_RDONLY) | O_CLOEXEC | direct, 0600);
	return fd >= 0 ? fd : errno == ENOENT ? -ENODATA : -errno;
}

/* It is there from now on, whole. */
static int publish(struct files *f, uint32_t block)
{
	char name[PEER_KEY_BYTES], made[PEER_KEY_BYTES + 4];

	peer_key(name, block);
	snprintf(made, sizeof(made), "%s.new", name);
	return renameat(f->dir, made, f->dir, name) ? -errno : 0;
}

static int transfer(struct peer *p, uint32_t first, uint32_t count, uint8_t *at, bool put)
{
	struct files *f = p->state;
	size_t bytes = p->spec.block_bytes;
	int fd[BLOCKS_MAX], error = count > BLOCKS_MAX ? -E2BIG : 0;
	uint32_t opened = 0;

	for (; opened < count && !error; opened++) {
		fd[opened] = open_block(f, first + opened, put);
		if ((error = fd[opened] < 0 ? fd[opened] : 0))
			break;
		if (!f->direct)
			error = transfer_plain(fd[opened], at + opened * bytes, bytes, put);
	}
	if (!error && f->direct)
		error = transfer_direct(f, fd, count, at, bytes, put);
	for (uint32_t i = 0; i < opened; i++) {
		close(fd[i]);
		if (put && !error)
			error = publish(f, first + i);
	}
	return error;
}

static int files_put(struct peer *p, uint32_t first, uint32_t count, const uint8_t *from)
{
	return transfer(p, first, count, (uint8_t *)(uintptr_t)from, true);
}

static int files_get(struct peer *p, uint32_t first, uint32_t count, uint8_t *to)
{
	return transfer(p, first, count, to, false);
}

/* A file on tmpfs can be mapped and read in place. */
static int files_visit(struct peer *p, uint32_t first, uint32_t count, peer_reader *read, void *arg)
{
	size_t bytes = p->spec.block_bytes;
	int error = 0;

	for (uint32_t i = first; i < first + count && !error; i++) {
		int fd CLEANUP_CLOSE = open_block(p->state, i, false);
		uint8_t *at =
			fd < 0 ? MAP_FAILED
			       : mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);

		if (at == MAP_FAILED)
			return fd < 0 ? fd : -errno;
		for (uint32_t k = 0; k < bytes / PEER_PAGE_BYTES && !error; k++)
			error = read(arg, i, k, at + (size_t)k * PEER_PAGE_BYTES);
		munmap(at, bytes);
	}
	return error;
}

static int files_find(struct peer *p, uint32_t first, uint32_t count)
{
	struct files *f = p->state;
	char name[PEER_KEY_BYTES];
	uint32_t i = 0;

	for (; i < count; i++) {
		peer_key(name, first + i);
		if (faccessat(f->dir, name, R_OK, 0))
			break;
	}
	return (int)i;
}

static int files_remove(struct peer *p, uint32_t first, uint32_t count)
{
	struct files *f = p->state;
	char name[PEER_KEY_BYTES];

	for (uint32_t i = 0; i < count; i++) {
		peer_key(name, first + i);
		if (unlinkat(f->dir, name, 0) && errno != ENOENT)
			return -errno;
	}
	return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void files_close(struct peer *p)
{
	struct files *f = p->state;

	if (!f)
		return;
	if (f->direct)
		io_uring_queue_exit(&f->ring);
	files_remove(p, 0, p->spec.blocks);
	close(f->dir);
	free(f);
	p->state = NULL;
}

static int open_in(struct peer *p, const char *dir, bool direct)
{
	struct files *f = calloc(1, sizeof(*f));
	int error;

	if (!f)
		return -ENOMEM;
	f->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	error = f->dir < 0 ? -errno : direct ? io_uring_queue_init(DEPTH, &f->ring, 0) : 0;
	if (error) {
		if (f->dir >= 0)
			close(f->dir);
		free(f);
		return error;
	}
	f->direct = direct;
	p->state = f;
	snprintf(p->label, sizeof(p->label), "%s", p->ops->name);
	return 0;
}

static int open_tmpfs(struct peer *p)
{
	snprintf(p->settings, sizeof(p->settings),
		 "a file a block on tmpfs, write and rename; read(2), and mmap(MAP_POPULATE) where "
		 "bytes are read in place");
	return p->spec.shm ? open_in(p, p->spec.shm, false) : -ENOENT;
}

/* The folder is the child's, too. */
static int join_tmpfs(struct peer *p)
{
	(void)p;
	return 0;
}

static int open_direct(struct peer *p)
{
	snprintf(p->settings, sizeof(p->settings),
		 "a file a block on the disk of tier's store, O_DIRECT, io_uring with %u pieces of "
		 "up to 1 MiB under way, write and rename, no fsync",
		 DEPTH);
	return open_in(p, p->spec.dir, true);
}

const struct peer_ops peer_tmpfs = {
	.name = "files on tmpfs",
	.open = open_tmpfs,
	.join = join_tmpfs,
	.put = files_put,
	.get = files_get,
	.visit = files_visit,
	.find = files_find,
	.remove = files_remove,
	.close = files_close,
};

const struct peer_ops peer_direct = {
	.name = "files, O_DIRECT",
	.open = open_direct,
	.put = files_put,
	.get = files_get,
	.find = files_find,
	.remove = files_remove,
	.close = files_close,
};
