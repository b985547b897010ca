/* SPDX-License-Identifier: Apache-2.0 */
/* The cycle of the bench, its registers, and what it says when something differs (bench.h). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#define IDENT 0x5449455244455631u
#define RESET_CYCLES 4u
#define REGISTER_CYCLES 100000u /* the tags are cleared within these */

uint64_t bench_random(struct bench *b)
{
	b->rng ^= b->rng << 13;
	b->rng ^= b->rng >> 7;
	b->rng ^= b->rng << 17;
	return b->rng * 0x2545f4914f6cdd1du >> 8;
}

bool bench_chance(struct bench *b, uint32_t per_mille)
{
	return per_mille > 0 && bench_random(b) % 1000 < per_mille;
}

uint64_t bench_beyond(struct bench *b, uint32_t bits)
{
	uint32_t first = (uint32_t)__builtin_ctzll(device_capacity(b->model));

	return 1ull << (first + bench_random(b) % (bits - first));
}

void bench_differ(struct bench *b, const char *fmt, ...)
{
	va_list args;

	if (b->differences++ >= BENCH_DIFFERENCES || b->quiet)
		return;
	printf("fpga: phase %s, cycle %llu: ", b->phase.name, (unsigned long long)b->cycle);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
}

void bench_cycle(struct bench *b)
{
	parts_drive(b);
	drives_drive(b);
	host_drive(b);
	rtl_settle(b->rtl, &b->in, &b->out);
	if (b->out.did)
		lockstep_decision(b);
	if (b->order_write.due && b->order_write.at <= b->cycle) {
		b->order_write.due = false;
		lockstep_order(b, b->order_write.offset, b->order_write.value);
	}
	lockstep_offer(b);
	parts_sample(b);
	drives_sample(b);
	host_sample(b);
	if (b->nvme) {
		lockstep_starves(b);
		cover_cycle(b);
	}
	rtl_tick(b->rtl);
	b->cycle++;
}

/* One access to a register; the rest of the device goes on beside it. */
static uint64_t access_register(struct bench *b, uint32_t offset, bool write, uint64_t value,
				bool wrong)
{
	uint64_t end = b->cycle + REGISTER_CYCLES;
	bool taken = false;

	b->in.reg_valid = true;
	b->in.reg_write = write;
	b->in.reg_addr = (uint16_t)offset;
	b->in.reg_wdata = value;
	b->in.reg_rready = true;
	while (b->cycle < end) {
		bench_cycle(b);
		if (b->in.reg_valid && b->out.reg_ready) {
			taken = true;
			if (b->setting)
				*b->setting = value;
			if (write && !wrong)
				b->order_write = (struct order_write){ true, offset, value,
								       b->cycle };
		}
		if (taken)
			b->in.reg_valid = false;
		if (b->out.reg_rvalid)
			break;
	}
	b->in.reg_rready = false;
	if (!b->out.reg_rvalid || b->out.reg_error != wrong)
		bench_differ(b, "register %03x: %s", offset,
			     b->out.reg_rvalid ? "an error, or none" : "no answer");
	return b->out.reg_rdata;
}

/* Answered with an error. */
static void bench_wrong_register(struct bench *b, uint32_t offset, bool write, uint64_t value)
{
	access_register(b, offset, write, value, true);
}

uint64_t bench_register(struct bench *b, uint32_t offset)
{
	return access_register(b, offset, false, 0, false);
}

void bench_set_register(struct bench *b, uint32_t offset, uint64_t value)
{
	access_register(b, offset, true, value, false);
}

void bench_prefetch(struct bench *b, uint32_t i)
{
	const struct device_prefetch *p = &b->window[i].asked;

	bench_set_register(b, DEVICE_REG_WIN_ADDR(i), p->address);
	bench_set_register(b, DEVICE_REG_WIN_LENGTH(i), p->length);
	bench_set_register(b, DEVICE_REG_WIN_DEADLINE(i), p->deadline);
	bench_set_register(b, DEVICE_REG_WIN_LEAD(i), p->lead);
	bench_set_register(b, DEVICE_REG_WIN_CLASS(i), p->class);
	bench_set_register(b, DEVICE_REG_WIN_LIMIT(i), p->limit);
	bench_set_register(b, DEVICE_REG_WIN_GO(i), 1);
}

/* What is there and what is not: constants, and accesses that are answered with an error. */
static void check_registers(struct bench *b)
{
	uint64_t end = b->cycle + REGISTER_CYCLES;

	while (bench_register(b, DEVICE_REG_STATUS) != 1 && b->cycle < end)
		bench_cycle(b);
	if (bench_register(b, DEVICE_REG_WAYS) != DEVICE_WAYS ||
	    bench_register(b, DEVICE_REG_WINDOWS) != DEVICE_WINDOWS ||
	    bench_register(b, DEVICE_REG_STATUS) != 1)
		bench_differ(b, "registers ways, windows or status: not what they are");
	if (bench_register(b, DEVICE_REG_CLOCK) + RESET_CYCLES > b->cycle)
		bench_differ(b, "the clock is ahead");
	bench_wrong_register(b, DEVICE_REG_CLOCK, true, 1);
	bench_wrong_register(b, DEVICE_REG_FLASH_TRIES, true, 16);
	bench_wrong_register(b, 0xff8, true, 0);
	bench_wrong_register(b, 0xff8, false, 0);
}

static uint32_t log2_of(uint64_t n)
{
	uint32_t log = 0;

	while (n >> log > 1)
		log++;
	return log;
}

static void read_shape(struct bench *b)
{
	uint64_t line = bench_register(b, DEVICE_REG_LINE) / DEVICE_FLIT;
	uint64_t sets = bench_register(b, DEVICE_REG_SETS);
	uint64_t flits = bench_register(b, DEVICE_REG_CAPACITY);

	b->shape = (struct device_shape){ .line_log = log2_of(line), .sets_log = log2_of(sets),
					  .tag_bits = log2_of(flits / line / sets),
					  .mshrs = (uint32_t)bench_register(b, DEVICE_REG_MSHRS),
					  .units = (uint32_t)bench_register(b, DEVICE_REG_UNITS) };
	b->shape.cleans = (uint32_t)bench_register(b, DEVICE_REG_CLEANS);
	b->shape.unit_log = log2_of(bench_register(b, DEVICE_REG_UNIT_LINES));
	b->stage_place = sets * DEVICE_WAYS;
	while (b->stage_place < (uint64_t)b->shape.units << b->shape.unit_log)
		b->stage_place *= 2;
	b->slots = (uint32_t)bench_register(b, DEVICE_REG_SLOTS);
}

/* Until all have started that will. */
static int open_drives(struct bench *b, uint32_t sick)
{
	struct nvme_shape shape = { .drives = (uint32_t)bench_register(b, DEVICE_REG_DRIVES) };
	uint64_t end = b->cycle + REGISTER_CYCLES;
	int rc;

	shape.queue_log = log2_of(bench_register(b, DEVICE_REG_QUEUE));
	rc = nvme_open(&b->nvme, &shape, &b->shape, device_counters(b->model));
	if (rc)
		return rc;
	drives_open(b, sick);
	while (b->cycle < end && !nvme_settled(b->nvme))
		bench_cycle(b);
	bench_cycle(b);
	if (bench_register(b, DEVICE_REG_DRIVES_READY) != nvme_started(b->nvme) ||
	    !nvme_settled(b->nvme))
		bench_differ(b, "drives_ready is not %x", nvme_started(b->nvme));
	return 0;
}

int bench_open(struct bench **out, const char *wave, uint8_t bug, uint32_t sick)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct device_store store;
	int rc;

	if (!b)
		return -ENOMEM;
	*out = b;
	b->rng = 0x9e3779b97f4a7c15u;
	b->phase.name = "reset";
	b->rtl = rtl_open(wave);
	if (!b->rtl)
		return -ENOMEM;
	host_open(b);
	b->in.rst = true;
	b->in.bug = bug;
	for (uint32_t i = 0; i < RESET_CYCLES; i++)
		bench_cycle(b);
	b->in.rst = false;
	if (bench_register(b, DEVICE_REG_IDENT) != IDENT)
		return -EIO;
	read_shape(b);
	if (b->slots > BENCH_IDS ||
	    (b->shape.mshrs + b->shape.units + b->shape.cleans) * 2 > BENCH_FLASH)
		return -EIO;
	rc = parts_open(b);
	if (rc)
		return rc;
	store = (struct device_store){ .line = media_line, .arg = &b->golden };
	rc = device_open(&b->model, &b->shape, &store);
	if (!rc)
		rc = open_drives(b, sick);
	if (!rc)
		check_registers(b);
	return rc;
}

void bench_close(struct bench *b)
{
	if (!b)
		return;
	device_close(b->model);
	nvme_close(b->nvme);
	parts_close(b);
	if (b->rtl)
		rtl_close(b->rtl);
	free(b);
}
