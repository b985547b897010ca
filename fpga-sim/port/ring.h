/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring between the daemon and the RTL's process, in a file of mode 0600 that the RTL's process
 * makes and both map: `build/fpga/bench --serve FILE` (tb/serve.c) on one side, ring.c on the
 * other. The daemon fills a slot and raises head; the server answers in the slot and raises tail.
 * Both are futex words. One daemon at a time.
 */
#ifndef TIER_FPGA_RING_H
#define TIER_FPGA_RING_H

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "port.h"

#define SIM_RING_MAGIC 0x3147495254465054u
#define SIM_RING_SLOTS 16u
#define SIM_RING_LOOK_NS 100000000L /* so often a waiter looks whether the other one is there */

enum sim_op { SIM_READ, SIM_WRITE, SIM_STAGE, SIM_RELEASE };

struct sim_slot {
	uint32_t op, bytes, class;
	int32_t res; /* 0 or negative errno, by the server */
	uint64_t address, length, cycles;
	uint8_t data[SIM_LINE];
};

struct sim_ring {
	uint64_t magic;
	int32_t server; /* process */
	uint32_t unit_bytes;
	uint64_t capacity;
	struct sim_flash flash; /* the server's, as of the last answer */
	uint32_t head __attribute__((aligned(64)));
	uint32_t tail __attribute__((aligned(64)));
	struct sim_slot slot[SIM_RING_SLOTS];
};

/* Until the word is another one than that, or a while has passed. */
static inline void sim_ring_wait(const uint32_t *word, uint32_t value)
{
	const struct timespec look = { .tv_nsec = SIM_RING_LOOK_NS };

	syscall(SYS_futex, word, FUTEX_WAIT, value, &look, NULL, 0);
}

static inline void sim_ring_raise(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
