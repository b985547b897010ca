/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passthrough DEVICE: random reads of 4 KiB from an NVMe device by the daemon's own drive, through
 *     the block layer and past it in turns, and what one costs: time, and time of this process'
 *     processors. In a guest that is emulated the two compare with each other alone.
 */
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "libtier/base/time.h"
#include "tierd/backend/nvme.h"

#define PAGE 4096u
#define DEPTH 32u
#define READS 6000u
#define ROUNDS 5

static uint64_t state = 1;
static struct core_io io[DEPTH];

static void fail(const char *what, int rc)
{
	printf("passthrough: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void ask(const struct drive_ops *ops, struct drive *d, struct io_uring *ring, uint32_t i)
{
	uint64_t pages = ops->bytes(d) / PAGE;

	state = state * 6364136223846793005ull + 1442695040888963407ull;
	io[i].offset = (state >> 33) % pages * PAGE;
	if (ops->submit(d, ring, &io[i]))
		fail("submit", -EAGAIN);
}

static void reads(const struct drive_ops *ops, struct drive *d, struct io_uring *ring)
{
	uint32_t asked = 0, done = 0;

	for (; asked < DEPTH; asked++)
		ask(ops, d, ring, asked);
	while (done < READS) {
		struct io_uring_cqe *cqe;
		struct core_io *got;
		uint64_t token, data;
		int res;

		io_uring_submit_and_wait(ring, 1);
		while (!io_uring_peek_cqe(ring, &cqe)) {
			data = cqe->user_data;
			res = cqe->res;
			io_uring_cqe_seen(ring, cqe);
			got = ops->complete(d, ring, data, &res, &token);
			if (!got || got->res != (int)PAGE)
				fail("a read", got ? got->res : -EIO);
			done++;
			if (asked++ < READS)
				ask(ops, d, ring, (uint32_t)(got - io));
		}
	}
}

static void measure(const struct drive_ops *ops, const char *device)
{
	struct drive_options options = { .path = device };
	uint64_t begun, cpu;
	struct io_uring ring;
	struct drive *d;
	int rc = ops->open(&d, &options);

	if (rc)
		fail("open", rc);
	rc = io_uring_queue_init(DEPTH, &ring, ops->ring_flags | IORING_SETUP_SINGLE_ISSUER |
				 IORING_SETUP_DEFER_TASKRUN);
	if (rc)
		fail("io_uring", rc);
	begun = time_now_ns();
	cpu = cpu_ns();
	reads(ops, d, &ring);
	printf("figure: %.1f us of a read of 4 KiB by %s\n",
	       (double)(time_now_ns() - begun) / 1e3 / READS, ops->name);
	printf("figure: %.1f us of its processors' time by %s\n",
	       (double)(cpu_ns() - cpu) / 1e3 / READS, ops->name);
	io_uring_queue_exit(&ring);
	ops->close(d);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	for (uint32_t i = 0; i < DEPTH; i++) {
		io[i].piece[0].addr = aligned_alloc(PAGE, PAGE);
		io[i].piece[0].bytes = PAGE;
		io[i].bytes = PAGE;
		io[i].piece_count = 1;
	}
	for (int i = 0; i < ROUNDS; i++) {
		measure(&drive_nvme, argv[1]);
		measure(&drive_nvme_pass, argv[1]);
	}
	return 0;
}
