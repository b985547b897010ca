/* SPDX-License-Identifier: Apache-2.0 */
/* DRAM: its controller answers in order, after a latency. The drives behind it: drives.c. */
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

	b->dram = calloc(places, line_bytes(b));
	b->dram_poison = calloc(places * poison_words(b), 8);
	if (!b->dram || !b->dram_poison)
		return -ENOMEM;
	rc = media_open(&b->drives.media, lines, b->shape.line_log);
	return rc ? rc : media_open(&b->golden, lines, b->shape.line_log);
}

void parts_close(struct bench *b)
{
	media_close(&b->drives.media);
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

void parts_drive(struct bench *b)
{
	dram_drive(b);
}

void parts_sample(struct bench *b)
{
	dram_sample(b);
}
