/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of the device's drives, from the page alone (nvme.h). */
#include "nvme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ADMIN 0u
#define IO 1u
#define DOORBELLS 0x1000u

enum opcode { OP_CREATE_SQ = 1, OP_WRITE = 1, OP_READ = 2, OP_CREATE_CQ = 5, OP_ABORT = 8 };

/* What the start has to do next. */
enum step { SET_AQA, SET_ASQ, SET_ACQ, SET_CC, GET_CSTS, WAIT_CQ, WAIT_SQ, STARTED, OUT };

struct queue {
	uint8_t (*entry)[NVME_ENTRY];
	uint32_t tail, taken, rung;            /* of submission */
	uint32_t head, head_rung, phase;       /* of completion */
};

struct drive {
	enum step step;
	struct queue queue[2];
};

struct nvme {
	struct nvme_shape shape;
	struct device_shape of;
	struct device_counters *count;
	struct drive drive[NVME_DRIVES_MAX];
	uint32_t id_bits;
	uint8_t where[DEVICE_IDS_MAX];      /* the drive that has a register's command */
	uint32_t last[DEVICE_IDS_MAX];      /* the number of its last command, */
	bool good[DEVICE_IDS_MAX];          /* ... which was answered as done */
};

int nvme_open(struct nvme **out, const struct nvme_shape *shape, const struct device_shape *of,
	      struct device_counters *count)
{
	struct nvme *n;

	if (shape->drives < 1 || shape->drives > NVME_DRIVES_MAX || shape->queue_log < 1 ||
	    shape->queue_log > 9 || of->line_log < 6 || of->line_log + of->unit_log > 14)
		return -EINVAL;
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	*n = (struct nvme){ .shape = *shape, .of = *of, .count = count, .id_bits = 1 };
	while (1u << n->id_bits < of->mshrs + of->units + of->cleans)
		n->id_bits++;
	for (uint32_t i = 0; i < 2 * NVME_DRIVES_MAX; i++) {
		struct queue *q = &n->drive[i / 2].queue[i % 2];

		q->phase = 1;
		q->entry = calloc(nvme_entries(n), NVME_ENTRY);
		if (!q->entry) {
			nvme_close(n);
			return -ENOMEM;
		}
	}
	*out = n;
	return 0;
}

void nvme_close(struct nvme *n)
{
	if (!n)
		return;
	for (uint32_t i = 0; i < 2 * NVME_DRIVES_MAX; i++)
		free(n->drive[i / 2].queue[i % 2].entry);
	free(n);
}

uint32_t nvme_entries(const struct nvme *n)
{
	return 1u << n->shape.queue_log;
}

static uint32_t behind(const struct nvme *n, uint32_t from, uint32_t to)
{
	return (to - from) & (nvme_entries(n) - 1);
}

static uint32_t id_of(const struct nvme *n, uint32_t cid)
{
	return cid & ((1u << n->id_bits) - 1);
}

/* --- submission */

static void put(uint8_t *entry, uint32_t at, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		entry[at + i] = (uint8_t)(value >> 8 * i);
}

static void enter(struct nvme *n, struct queue *q, const uint8_t entry[NVME_ENTRY])
{
	memcpy(q->entry[q->tail], entry, NVME_ENTRY);
	q->tail = behind(n, 0, q->tail + 1);
}

static uint32_t drive_of(const struct nvme *n, uint64_t line)
{
	return (uint32_t)(line >> n->of.unit_log) % n->shape.drives;
}

static uint64_t first_block(const struct nvme *n, uint64_t line)
{
	uint64_t unit = (line >> n->of.unit_log) / n->shape.drives;
	uint64_t index = line & ((1ull << n->of.unit_log) - 1);

	return (unit << n->of.unit_log | index) << (n->of.line_log - 6);
}

static void write_command(const struct nvme *n, const struct device_command *c, uint8_t *entry)
{
	uint64_t at = c->place * (DEVICE_FLIT << n->of.line_log);
	uint32_t blocks = c->lines << (n->of.line_log - 6);

	put(entry, 0, c->write ? OP_WRITE : OP_READ, 1);
	put(entry, 2, c->cid, 2);
	put(entry, 4, 1, 4);
	put(entry, 16, NVME_METADATA + at / NVME_BLOCK * 8, 8);
	put(entry, 24, at, 8);
	if (blocks == 2)
		put(entry, 32, at + NVME_BLOCK, 8);
	else if (blocks > 2)
		put(entry, 32, NVME_LISTS + at, 8);
	put(entry, 40, first_block(n, c->line), 8);
	put(entry, 48, blocks - 1, 4);
}

bool nvme_room(const struct nvme *n, const struct device_command *c)
{
	uint32_t drive = c->abort ? n->where[id_of(n, c->cid)] : drive_of(n, c->line);
	const struct queue *q = &n->drive[drive].queue[c->abort ? ADMIN : IO];

	return n->drive[drive].step == STARTED &&
	       behind(n, q->taken, q->tail) < nvme_entries(n) - 1;
}

void nvme_submit(struct nvme *n, const struct device_command *c)
{
	uint8_t entry[NVME_ENTRY] = { 0 };
	uint32_t id = id_of(n, c->cid);

	if (c->abort) {
		put(entry, 0, OP_ABORT, 1);
		put(entry, 2, c->cid, 2);
		put(entry, 40, IO, 2);
		put(entry, 42, c->cid - (1u << n->id_bits), 2);
		enter(n, &n->drive[n->where[id]].queue[ADMIN], entry);
		return;
	}
	n->where[id] = (uint8_t)drive_of(n, c->line);
	n->last[id] = c->cid;
	n->good[id] = false;
	write_command(n, c, entry);
	enter(n, &n->drive[n->where[id]].queue[IO], entry);
}

/* --- what drives read and write */

static uint64_t queue_address(uint32_t drive, uint32_t queue, bool completion)
{
	return NVME_QUEUES + (uint64_t)drive * (1 << 20) + queue * (1 << 16) +
	       completion * (1 << 15);
}

static bool read_list(uint64_t at, uint8_t bytes[NVME_ENTRY])
{
	uint64_t data = at / NVME_BLOCK * NVME_BLOCK, first = at % NVME_BLOCK / 8;

	for (uint64_t k = 0; k < NVME_ENTRY / 8; k++)
		put(bytes, (uint32_t)k * 8, data + NVME_BLOCK * (first + k + 1), 8);
	return true;
}

bool nvme_read(const struct nvme *n, uint64_t address, uint8_t bytes[NVME_ENTRY])
{
	memset(bytes, 0, NVME_ENTRY);
	if (address % NVME_ENTRY)
		return false;
	if (address >= NVME_LISTS && address < NVME_LISTS + NVME_METADATA)
		return read_list(address - NVME_LISTS, bytes);
	for (uint32_t d = 0; d < n->shape.drives; d++)
		for (uint32_t q = 0; q < 2; q++) {
			uint64_t from = queue_address(d, q, false);
			uint64_t index = (address - from) / NVME_ENTRY;

			if (address < from || index >= nvme_entries(n))
				continue;
			memcpy(bytes, n->drive[d].queue[q].entry[index], NVME_ENTRY);
			return true;
		}
	return false;
}

static uint32_t field(const uint8_t *bytes, uint32_t at, uint32_t count)
{
	uint32_t value = 0;

	for (uint32_t i = 0; i < count; i++)
		value |= (uint32_t)bytes[at + i] << 8 * i;
	return value;
}

static void create(struct nvme *n, uint32_t drive, uint32_t cid)
{
	uint8_t entry[NVME_ENTRY] = { 0 };
	bool completion = cid == 0;

	put(entry, 0, completion ? OP_CREATE_CQ : OP_CREATE_SQ, 1);
	put(entry, 2, cid, 2);
	put(entry, 24, queue_address(drive, IO, completion), 8);
	put(entry, 40, IO, 2);
	put(entry, 42, nvme_entries(n) - 1, 2);
	put(entry, 44, 1, 2); /* it lies in one piece */
	if (!completion)
		put(entry, 46, IO, 2); /* answers go there */
	enter(n, &n->drive[drive].queue[ADMIN], entry);
}

static void start_goes_on(struct nvme *n, uint32_t drive, bool error)
{
	struct drive *d = &n->drive[drive];

	if (d->step != WAIT_CQ && d->step != WAIT_SQ)
		return; /* it is out */
	if (error)
		d->step = OUT;
	else if (++d->step == WAIT_SQ)
		create(n, drive, 1);
}

/* Which of them is next at the head, with the phase that is due? Or NULL. */
static struct queue *at_head(struct nvme *n, uint64_t address, uint32_t phase, uint32_t *drive,
			     uint32_t *which)
{
	for (uint32_t d = 0; d < n->shape.drives; d++)
		for (uint32_t i = 0; i < 2; i++) {
			struct queue *q = &n->drive[d].queue[i];

			*drive = d;
			*which = i;
			if (address == queue_address(d, i, true) + 16ull * q->head)
				return phase == q->phase ? q : NULL;
		}
	return NULL;
}

enum nvme_taken nvme_write(struct nvme *n, uint64_t address, const uint8_t bytes[16],
			   uint32_t *cid, bool *error)
{
	uint32_t word = field(bytes, 12, 4), sqhd = field(bytes, 8, 2), drive, which, id;
	struct queue *q = at_head(n, address, word >> 16 & 1, &drive, &which);

	if (!q) {
		n->count->wrong_entries++;
		return NVME_IGNORED;
	}
	*cid = word & 0xffff;
	*error = word >> 17;
	id = id_of(n, *cid);
	q->head = behind(n, 0, q->head + 1);
	q->phase ^= q->head == 0;
	if (sqhd < nvme_entries(n) && behind(n, q->taken, sqhd) <= behind(n, q->taken, q->tail))
		q->taken = sqhd;
	if (which == ADMIN && n->drive[drive].step != STARTED) {
		start_goes_on(n, drive, *error);
		return NVME_STARTS;
	}
	if (which == ADMIN)
		*error = !n->good[id];
	else if (*cid == n->last[id])
		n->good[id] = !*error;
	return NVME_ANSWER;
}

/* --- registers of drives */

static bool ring(const struct nvme *n, uint32_t *rung, uint32_t now, uint64_t value)
{
	/* on the way from what was rung to what there is */
	bool good = value < nvme_entries(n) && value != *rung &&
		    behind(n, *rung, (uint32_t)value) <= behind(n, *rung, now);

	*rung = (uint32_t)value;
	return good;
}

bool nvme_register(struct nvme *n, uint32_t drive, uint32_t offset, uint64_t value)
{
	struct drive *d = &n->drive[drive];
	uint32_t last = nvme_entries(n) - 1;
	const struct {
		uint32_t offset;
		uint64_t value;
	} start[] = {
		[SET_AQA] = { 0x24, (uint64_t)last << 16 | last },
		[SET_ASQ] = { 0x28, queue_address(drive, ADMIN, false) },
		[SET_ACQ] = { 0x30, queue_address(drive, ADMIN, true) },
		[SET_CC] = { 0x14, 0x460001 },
	};

	if (drive >= n->shape.drives || (drive > 0 && d[-1].step < STARTED))
		return false; /* one after the other */
	if (offset < DOORBELLS) {
		if (d->step > SET_CC)
			return false;
		d->step++;
		return offset == start[d->step - 1].offset && value == start[d->step - 1].value;
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct queue *q = &d->queue[i];

		if (offset == DOORBELLS + 8 * i)
			return ring(n, &q->rung, q->tail, value);
		if (offset == DOORBELLS + 8 * i + 4)
			return ring(n, &q->head_rung, q->head, value);
	}
	return false;
}

void nvme_ready(struct nvme *n, uint32_t drive, bool fatal)
{
	n->drive[drive].step = fatal ? OUT : WAIT_CQ;
	if (!fatal)
		create(n, drive, 0);
}

/* --- what others may see */

uint32_t nvme_drives(const struct nvme *n)
{
	return n->shape.drives;
}

uint32_t nvme_started(const struct nvme *n)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < n->shape.drives; i++)
		bits |= (uint32_t)(n->drive[i].step == STARTED) << i;
	return bits;
}

bool nvme_settled(const struct nvme *n)
{
	return n->drive[n->shape.drives - 1].step >= STARTED;
}

bool nvme_rung(const struct nvme *n)
{
	for (uint32_t i = 0; i < 2 * n->shape.drives; i++) {
		const struct queue *q = &n->drive[i / 2].queue[i % 2];

		if (q->rung != q->tail || q->head_rung != q->head)
			return false;
	}
	return true;
}

uint32_t nvme_used(const struct nvme *n, uint32_t drive, bool io)
{
	const struct queue *q = &n->drive[drive].queue[io ? IO : ADMIN];

	return behind(n, q->taken, q->tail);
}

uint32_t nvme_no_head(const struct nvme *n, uint32_t drive, bool io, uint64_t which)
{
	const struct queue *q = &n->drive[drive].queue[io ? IO : ADMIN];
	uint32_t free = nvme_entries(n) - 1 - behind(n, q->taken, q->tail);

	if (which & 1 || free == 0)
		return (uint32_t)(which & 0xffff) | nvme_entries(n);
	return behind(n, 0, q->tail + 1 + (uint32_t)(which >> 1) % free);
}
