/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peers that tierbench measures beside tier: each one that is installed keeps blocks and gives
 * the same bytes back, says which are there, and misses what is not; the ends of a text protocol
 * read replies wherever they are cut.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/peers/peer.h"
#include "bench/peers/wire.h"
#include "bench/trace/gen.h"
#include "bench/micro/pool.h"
#include "tests/lib/unit.h"

#define BLOCKS 6u
#define BLOCK_BYTES (3u * PEER_PAGE_BYTES)
#define SET_BYTES ((size_t)BLOCKS * BLOCK_BYTES)

struct world {
	struct bench bench;
	struct bench_results results;
	struct peer peer;
	char *dir, *shm;
	char tierd[256];
	int fd;
	uint8_t *memory; /* the set, and as much to read into */
};

static struct world *world_begin(const struct peer_ops *ops)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *build = getenv("BUILD");

	assert_non_null(w);
	snprintf(w->tierd, sizeof(w->tierd), "%s/tierd", build ? build : "build/plain");
	w->bench = (struct bench){
		.tierd = w->tierd, .top = ".", .built = "build", .results = &w->results
	};
	assert_int_equal(service_dir_make(&w->dir, NULL), 0);
	assert_int_equal(service_dir_make(&w->shm, "/dev/shm"), 0);
	w->fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(w->fd, 2 * SET_BYTES), 0);
	w->memory = mmap(NULL, 2 * SET_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
	assert_true(w->memory != MAP_FAILED);
	for (uint32_t i = 0; i < SET_BYTES / PEER_PAGE_BYTES; i++) {
		tier_key key;

		pool_key(&key, i / 3);
		gen_page(w->memory + (size_t)i * PEER_PAGE_BYTES, PEER_PAGE_BYTES, &key, i % 3);
	}
	w->peer = (struct peer){ .ops = ops,
				 .spec = { .bench = &w->bench,
					   .dir = w->dir,
					   .shm = w->shm,
					   .block_bytes = BLOCK_BYTES,
					   .blocks = BLOCKS,
					   .memory_bytes = 64 << 20,
					   .memory_fd = w->fd,
					   .memory = w->memory,
					   .memory_at_most = 2 * SET_BYTES } };
	return w;
}

static void world_end(struct world *w)
{
	w->peer.ops->close(&w->peer);
	munmap(w->memory, 2 * SET_BYTES);
	close(w->fd);
	service_dir_remove(w->dir);
	service_dir_remove(w->shm);
	free(w);
}

static int same(void *arg, uint32_t block, uint32_t page, const uint8_t *bytes)
{
	struct world *w = arg;

	return memcmp(bytes, w->memory + ((size_t)block * 3 + page) * PEER_PAGE_BYTES,
		      PEER_PAGE_BYTES)
		       ? -EBADMSG
		       : 0;
}

static void keeps_blocks(const struct peer_ops *ops)
{
	struct world *w = world_begin(ops);
	struct peer *p = &w->peer;
	uint8_t *to = w->memory + SET_BYTES;

	assert_int_equal(ops->open(p), 0);
	assert_true(*p->label && *p->settings);
	assert_int_equal(ops->find(p, 0, BLOCKS), 0);
	assert_int_equal(ops->put(p, 0, 2, w->memory), 0);
	assert_int_equal(ops->put(p, 3, 3, w->memory + (size_t)3 * BLOCK_BYTES), 0);
	assert_int_equal(ops->find(p, 0, BLOCKS), 2);
	assert_int_equal(ops->find(p, 3, 3), 3);
	assert_int_equal(ops->get(p, 3, 3, to), 0);
	assert_memory_equal(to, w->memory + (size_t)3 * BLOCK_BYTES, (size_t)3 * BLOCK_BYTES);
	assert_int_equal(ops->get(p, 0, 3, to), -ENODATA);
	/* What came after the miss is not taken for the next answer. */
	memset(to, 0, SET_BYTES);
	assert_int_equal(ops->get(p, 1, 1, to), 0);
	assert_memory_equal(to, w->memory + BLOCK_BYTES, BLOCK_BYTES);
	if (ops->visit)
		assert_int_equal(ops->visit(p, 3, 3, same, w), 0);
	assert_int_equal(ops->remove(p, 0, BLOCKS), 0);
	assert_int_equal(ops->find(p, 0, 1), 0);
	assert_int_equal(ops->put(p, 0, 1, w->memory), 0);
	assert_int_equal(ops->find(p, 0, 1), 1);
	world_end(w);
}

static void test_ours(void **state)
{
	(void)state;
	keeps_blocks(&peer_tier);
}

static void test_files(void **state)
{
	(void)state;
	keeps_blocks(&peer_tmpfs);
}

static void test_redis(void **state)
{
	(void)state;
	if (!process_there("redis-server"))
		skip();
	keeps_blocks(&peer_redis);
}

static void test_memcached(void **state)
{
	(void)state;
	if (!process_there("memcached"))
		skip();
	keeps_blocks(&peer_memcached);
}

static void test_mooncake(void **state)
{
	(void)state;
	if (!process_there("build/peers/bin/python"))
		skip();
	keeps_blocks(&peer_mooncake);
}

/* ---- the wire ------------------------------------------------------------------------------- */

static const char replies[] = "VA 5\r\nabcde\r\nHD\r\nVA 3\r\nxyz\r\n";

/* The other end sends the replies in pieces of so many bytes. */
static pid_t send_pieces(int fd, size_t piece)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	for (size_t at = 0; at < sizeof(replies) - 1; at += piece) {
		size_t n = sizeof(replies) - 1 - at < piece ? sizeof(replies) - 1 - at : piece;

		if (send(fd, replies + at, n, 0) != (ssize_t)n)
			_exit(1);
		usleep(500);
	}
	_exit(0);
}

static void test_replies_in_pieces(void **state)
{
	(void)state;
	for (size_t piece = 1; piece <= sizeof(replies); piece += 3) {
		static struct wire w;
		char line[WIRE_LINE_BYTES], value[8];
		int fd[2], status;
		pid_t pid;

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
		w = (struct wire){ .fd = fd[0] };
		pid = send_pieces(fd[1], piece);
		close(fd[1]);
		assert_int_equal(wire_line(&w, line), 0);
		assert_string_equal(line, "VA 5");
		assert_int_equal(wire_bytes(&w, value, 5), 0);
		assert_memory_equal(value, "abcde", 5);
		assert_int_equal(wire_line(&w, line), 0);
		assert_string_equal(line, "HD");
		assert_int_equal(wire_line(&w, line), 0);
		/* A value that is longer than was asked for is no value. */
		assert_int_equal(wire_bytes(&w, value, 2), -EPROTO);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		wire_close(&w);
	}
}

static void test_replies_that_end(void **state)
{
	static struct wire w;
	char line[WIRE_LINE_BYTES], value[64];
	char *stop, much[2 * WIRE_LINE_BYTES];
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	w = (struct wire){ .fd = fd[0] };
	assert_int_equal(send(fd[1], "VA 9\r\nabc", 9, 0), 9);
	close(fd[1]);
	assert_int_equal(wire_line(&w, line), 0);
	assert_int_equal(wire_bytes(&w, value, 9), -ECONNRESET);
	wire_close(&w);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	w = (struct wire){ .fd = fd[0] };
	stop = memset(much, 'a', sizeof(much));
	assert_int_equal(send(fd[1], stop, sizeof(much), 0), sizeof(much));
	assert_int_equal(wire_line(&w, line), -EPROTO);
	close(fd[1]);
	wire_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies_in_pieces),
		cmocka_unit_test(test_replies_that_end),
		cmocka_unit_test(test_ours),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_redis),
		cmocka_unit_test(test_memcached),
		cmocka_unit_test(test_mooncake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
