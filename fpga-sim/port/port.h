/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated device as the daemon has it (tierd/backend/cxl_sim.c): the golden model in this
 * process, or the RTL in its own behind a shared ring (ring.h). One line of flash at a time, and
 * each call ends when the device is at rest: so both decide the same in the same order, and give
 * flash the same commands. One thread at a time.
 */
#ifndef TIER_FPGA_PORT_H
#define TIER_FPGA_PORT_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_FLIT 64u
#define SIM_LINE 4096u     /* bytes of a line: `move` crosses none */
#define SIM_GHZ 0.4        /* the device's clock, stated, not placed */

/* What flash was told since the device began, in order. */
struct sim_flash {
	uint64_t reads, writes;
	uint64_t units; /* of the reads: for windows */
	uint64_t hash; /* over each command: what, first line, lines */
};

/* Data that are read soon, of whole units (docs/fpga.md, stream windows). */
struct sim_stage {
	uint64_t address, bytes;
	uint64_t cycles; /* from now to its deadline, by the device's clock */
	uint32_t class;  /* 0 .. 3 */
};

struct sim_port {
	const char *name;     /* which of the two */
	uint64_t capacity;    /* bytes of flash */
	uint32_t unit_bytes;
	/*
	 * Whole flits of one line, from or to *data. Errors: -EIO the device refuses, or is gone,
	 * or model and RTL differ.
	 */
	int (*move)(struct sim_port *p, bool write, uint64_t address, uint8_t *data,
		    uint32_t bytes);
	/* Bring them; they are here when it returns. Errors: -EBUSY no window or no room; -EIO. */
	int (*stage)(struct sim_port *p, const struct sim_stage *s);
	/* What was staged from this address on is not needed any more. */
	int (*release)(struct sim_port *p, uint64_t address);
	struct sim_flash (*flash)(const struct sim_port *p);
	void (*close)(struct sim_port *p);
};

/* The golden model, with at least so many bytes of flash. Errors: -ENOMEM. */
int sim_model_open(struct sim_port **out, uint64_t bytes);
/* What serves the ring of this path. Errors: those of open and mmap; -EPROTO it is no such ring. */
int sim_ring_open(struct sim_port **out, const char *path);

static inline void sim_flash_note(struct sim_flash *f, bool write, uint64_t line, uint32_t lines)
{
	f->reads += !write;
	f->writes += write;
	f->units += lines > 1;
	f->hash = (f->hash ^ (line << 8 | lines << 1 | write)) * 0x9e3779b97f4a7c15u;
	f->hash ^= f->hash >> 29;
}

#endif
