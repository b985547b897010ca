/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies behind the device: a DRAM controller that answers in order after its latency, and a
 * drive that answers commands in any order, with an error now and then, sometimes twice. The drive
 * moves a line at any time between command and answer, so that an order which the RTL forgot to
 * keep shows in the bytes.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static uint32_t line_bytes(const struct bench *b)
{
	return DEVICE_FLIT << b->shape.line_log;
}

static uint32_t poison_words(const struct bench *b)
{
	return b->shape.line_log > 6 ? 1u << (b->shape.line_log - 6) : 1;
}

int parts_open(struct bench *b)
{
	uint64_t places = b->stage_place + ((uint64_t)b->shape.units << b->shape.unit_log);
	uint64_t lines = 1ull << (b->shape.sets_log + b->shape.tag_bits);
	int rc;

	b->answering = -1;
	b->dram = calloc(places, line_bytes(b));
	b->dram_poison = calloc(places * poison_words(b), 8);
	if (!b->dram || !b->dram_poison)
		return -ENOMEM;
	rc = media_open(&b->drive, lines, b->shape.line_log);
	return rc ? rc : media_open(&b->golden, lines, b->shape.line_log);
}

void parts_close(struct bench *b)
{
	media_close(&b->drive);
	media_close(&b->golden);
	free(b->dram);
	free(b->dram_poison);
}

/* --- DRAM */

static void do_access(struct bench *b, struct access *a)
{
	uint64_t flit = a->flit & ((1ull << b->shape.line_log) - 1);
	uint64_t place = a->flit >> b->shape.line_log;
	uint64_t *word = &b->dram_poison[place * poison_words(b) + flit / 64];
	uint64_t bit = 1ull << flit % 64;
	uint8_t *bytes = b->dram + a->flit * DEVICE_FLIT;

	if (a->done)
		return;
	a->done = true;
	if (a->write) {
		memcpy(bytes, a->data, DEVICE_FLIT);
		*word = a->poison ? *word | bit : *word & ~bit;
	} else {
		memcpy(a->data, bytes, DEVICE_FLIT);
		a->poison = *word & bit;
	}
}

static void dram_drive(struct bench *b)
{
	struct access *a = &b->access[b->access_head];

	b->in.dram_ready = b->access_count < b->phase.dram_room &&
			   !bench_chance(b, b->phase.stalls) &&
			   (b->out.dram_valid || !b->phase.late_ready);
	b->in.mem_valid = b->access_count > 0 && a->due <= b->cycle;
	if (!b->in.mem_valid)
		return;
	do_access(b, a);
	b->in.mem_poison = a->poison;
	memcpy(b->in.mem_data, a->data, DEVICE_FLIT);
}

static void dram_sample(struct bench *b)
{
	const struct pins_out *out = &b->out;
	struct access *a;

	if (b->in.mem_valid && out->mem_ready) {
		b->access_head = (b->access_head + 1) % BENCH_DRAM;
		b->access_count--;
		b->accesses_done++;
	}
	if (!out->dram_valid || !b->in.dram_ready)
		return;
	a = &b->access[(b->access_head + b->access_count++) % BENCH_DRAM];
	*a = (struct access){ .write = out->dram_write, .flit = out->dram_flit,
			      .poison = out->dram_write && out->dram_wpoison,
			      .due = b->cycle + b->phase.dram_cycles };
	if (a->write)
		memcpy(a->data, out->dram_wdata, DEVICE_FLIT);
}

/* --- flash */

static void move_line(struct bench *b, const struct order *o, uint32_t i)
{
	uint8_t *place = b->dram + (o->place + i) * line_bytes(b), *bytes;
	uint64_t *words = b->dram_poison + (o->place + i) * poison_words(b), *marks;

	if (o->error) {
		if (!o->write) /* part of it came */
			memset(place, 0xee, line_bytes(b) / 2);
		return;
	}
	bytes = media_line(&b->drive, o->line + i, &marks);
	if (o->write) {
		memcpy(bytes, place, line_bytes(b));
		memcpy(marks, words, poison_words(b) * 8);
	} else {
		memcpy(place, bytes, line_bytes(b));
		memcpy(words, marks, poison_words(b) * 8);
	}
}

static void move_lines(struct bench *b, struct order *o)
{
	for (uint32_t i = 0; !o->moved && i < o->lines; i++)
		move_line(b, o, i);
	o->moved = true;
}

static void forget(struct bench *b, struct order *o)
{
	o->used = false;
	b->orders--;
}

/* What became of the command is the abort's answer; from then on the drive moves nothing for it. */
static void withdraw(struct bench *b, struct order *o)
{
	uint32_t id = lockstep_register(b, o->cid), one = lockstep_register(b, 0xffff) + 1;
	uint16_t cid = (uint16_t)(o->cid - one);
	struct order *target = b->order;

	if (!o->abort) /* withdrawn before: this is the answer's double */
		return;
	o->abort = false;
	o->moved = true;
	while (target < b->order + BENCH_FLASH && (!target->used || target->cid != cid))
		target++;
	o->error = b->went_wrong[id];
	if (target == b->order + BENCH_FLASH)
		return;
	if (!target->moved && bench_chance(b, 300))
		move_lines(b, target);
	o->error = target->error || !target->moved;
	target->moved = true;
	if (target->lost)
		forget(b, target);
}

static void choose_answer(struct bench *b)
{
	for (uint32_t i = 0; i < BENCH_FLASH && b->answering < 0 && b->orders > 0; i++) {
		if (b->order[i].used && !b->order[i].lost && b->order[i].due <= b->cycle)
			b->answering = (int)i;
	}
	if (b->answering < 0)
		return;
	withdraw(b, &b->order[b->answering]);
	move_lines(b, &b->order[b->answering]);
}

static void flash_drive(struct bench *b)
{
	struct order *o;

	b->in.cmd_ready = b->orders < b->phase.drive_room && !bench_chance(b, b->phase.stalls) &&
			  (b->out.cmd_valid || !b->phase.late_ready);
	b->in.abort_ready = !bench_chance(b, b->phase.stalls) &&
			    (b->out.abort_valid || !b->phase.late_ready);
	choose_answer(b);
	b->in.cpl_valid = b->answering >= 0;
	if (!b->in.cpl_valid)
		return;
	o = &b->order[b->answering];
	b->in.cpl_cid = o->cid;
	b->in.cpl_error = o->error;
}

static uint64_t flash_cycles(struct bench *b)
{
	uint64_t cycles = b->phase.flash_least +
			  bench_random(b) % (b->phase.flash_most - b->phase.flash_least + 1);

	return bench_chance(b, b->phase.slow) ? 32 * cycles : cycles;
}

static struct order *free_order(struct bench *b)
{
	struct order *o = b->order;

	while (o->used)
		o++;
	assert(o < b->order + BENCH_FLASH);
	b->orders++;
	return o;
}

/* As NVMe's, aborts have a queue of their own: a drive full of lost commands takes them. */
static void take_abort(struct bench *b)
{
	struct order *o = free_order(b);

	*o = (struct order){ .used = true, .abort = true, .cid = b->out.abort_cid,
			     .twice = bench_chance(b, b->phase.doubles),
			     .due = b->cycle + 1 + bench_random(b) % 32 };
}

static void take_order(struct bench *b)
{
	const struct pins_out *out = &b->out;
	struct order *o = free_order(b);

	*o = (struct order){ .used = true, .write = out->cmd_write, .cid = out->cmd_cid,
			     .line = out->cmd_line % b->drive.lines, .place = out->cmd_place,
			     .lines = out->cmd_unit ? 1u << b->shape.unit_log : 1,
			     .error = bench_chance(b, b->phase.errors),
			     .twice = bench_chance(b, b->phase.doubles),
			     .due = b->cycle + 1 + flash_cycles(b) };
	if (b->readers)
		o->due = drive_due(&b->exp_drive, b->readers->set, b->cycle, o->lines);
	if (b->serve)
		sim_flash_note(&b->serve->flash, o->write, o->line, o->lines);
	b->cid_given[lockstep_register(b, o->cid)] = o->cid;
	o->lost = bench_chance(b, b->phase.losts);
	if (o->lost)
		cover_hit(b, COVER_answer_lost);
	if (bench_chance(b, 500))
		move_lines(b, o);
}

/* An abort that comes behind this says so, too. */
static void note_answer(struct bench *b, const struct order *o)
{
	uint32_t id = lockstep_register(b, o->cid);

	if (o->cid == b->cid_given[id])
		b->went_wrong[id] = o->error;
}

static void flash_sample(struct bench *b)
{
	struct order *o;

	if (b->in.cpl_valid && b->out.cpl_ready) {
		o = &b->order[b->answering];
		note_answer(b, o);
		lockstep_completion(b, o->cid, o->error);
		b->answering = -1;
		if (o->twice) {
			o->twice = false;
			o->due = b->cycle + 1 + bench_random(b) % 8;
		} else {
			forget(b, o);
		}
	}
	if (b->out.abort_valid && b->in.abort_ready) {
		lockstep_abort(b);
		take_abort(b);
	}
	if (b->out.cmd_valid && b->in.cmd_ready) {
		lockstep_command(b);
		take_order(b);
	}
}

void parts_drive(struct bench *b)
{
	dram_drive(b);
	flash_drive(b);
}

void parts_sample(struct bench *b)
{
	dram_sample(b);
	flash_sample(b);
}
