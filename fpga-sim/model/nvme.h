/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden model of the device's NVMe side: what its queues hold, byte for byte, and what becomes
 * of what drives write, as docs/fpga.md ("The drives") has it. As device.h it knows no clock: its
 * caller says what was submitted, read, written and rung, in that order.
 */
#ifndef TIER_FPGA_NVME_H
#define TIER_FPGA_NVME_H

#include "device.h"

#define NVME_DRIVES_MAX 2u
#define NVME_ENTRY 64u
#define NVME_BLOCK 4096u
/* what drives see */
#define NVME_METADATA (1ull << 46)
#define NVME_LISTS (1ull << 47)
#define NVME_QUEUES (1ull << 48)

struct nvme_shape {
	uint32_t drives;    /* 1 or 2 */
	uint32_t queue_log; /* log2 of the entries of a queue */
};

/* What a drive wrote was taken as. */
enum nvme_taken {
	NVME_IGNORED, /* and counted */
	NVME_STARTS,  /* the end of an order of the start */
	NVME_ANSWER,  /* goes on to device_answer: cid, error */
};

struct nvme;

/* Errors: -EINVAL, -ENOMEM. */
int nvme_open(struct nvme **out, const struct nvme_shape *shape, const struct device_shape *of,
	      struct device_counters *count);
void nvme_close(struct nvme *n);

/* Is there room for the command, or the abort, of this register? False: it waits. */
bool nvme_room(const struct nvme *n, const struct device_command *c);
/* It enters its queue. An abort follows its command there. */
void nvme_submit(struct nvme *n, const struct device_command *c);

/* What a read of 64 bytes is answered with; false: an error. */
bool nvme_read(const struct nvme *n, uint64_t address, uint8_t bytes[NVME_ENTRY]);
/* What a write of 16 bytes comes to. */
enum nvme_taken nvme_write(struct nvme *n, uint64_t address, const uint8_t bytes[16],
			   uint32_t *cid, bool *error);

/*
 * A register of a drive is written, with this value: false, it should not be. ready: CSTS was read
 * and says so.
 */
bool nvme_register(struct nvme *n, uint32_t drive, uint32_t offset, uint64_t value);
void nvme_ready(struct nvme *n, uint32_t drive, bool fatal);

uint32_t nvme_drives(const struct nvme *n);
/* A bit for each drive that has started. */
uint32_t nvme_started(const struct nvme *n);
/* Each drive has started, or is out. */
bool nvme_settled(const struct nvme *n);
/* All doorbells have the last value. */
bool nvme_rung(const struct nvme *n);
/* Entries that are in a submission queue, as far as the drive has said. */
uint32_t nvme_used(const struct nvme *n, uint32_t drive, bool io);
uint32_t nvme_entries(const struct nvme *n); /* of a queue */
/* An SQHD that changes nothing, one of many. */
uint32_t nvme_no_head(const struct nvme *n, uint32_t drive, bool io, uint64_t which);

#endif
