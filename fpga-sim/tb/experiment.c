/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One point of an experiment in the RTL, still in lock-step with the model: two passes of a stream
 * from an empty device. Beside it the same by the model's own clock, which must be within 5 %.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define NEAR 0.05

static int parse(struct bench *b, const char *text, struct point *p)
{
	const char *size = strchr(text, ':');

	*p = (struct point){ .mshrs = b->shape.mshrs, .slots = b->slots };
	if (!size)
		return -1;
	p->size = strtod(size + 1, NULL);
	p->windows = !strncmp(text, "windows:", 8);
	p->cleaned = !strncmp(text, "cleaned:", 8);
	p->dirty = p->scattered = p->cleaned || !strncmp(text, "cliff:", 6);
	return p->size <= 0 || (!p->windows && !p->dirty && strncmp(text, "clean:", 6)) ? -1 : 0;
}

static void setting(struct bench *b, uint32_t offset, uint64_t *of_model, uint64_t value)
{
	b->setting = of_model;
	bench_set_register(b, offset, value);
	b->setting = NULL;
}

static void clean_ahead(struct bench *b, const struct exp_setting *set)
{
	struct device_settings *s = device_settings(b->model);

	b->phase.clean_wait = set->clean_wait;
	setting(b, DEVICE_REG_CLEAN_WAIT, &s->clean_wait, set->clean_wait);
	setting(b, DEVICE_REG_DIRTY_MOST, &s->dirty_most, set->dirty_most);
}

static void open_window(struct bench *b, uint64_t lines)
{
	struct device_prefetch *p = &b->window[0].asked;

	*p = (struct device_prefetch){ .deadline = UINT64_MAX, .lead = UINT64_MAX,
				       .limit = b->shape.units,
				       .length = (uint32_t)(lines >> b->shape.unit_log) };
	bench_prefetch(b, 0);
}

/* The host looks at the watermark and gives back what it has read. False: all is over. */
static bool poll_window(struct bench *b)
{
	uint64_t mark = bench_register(b, DEVICE_REG_WIN_MARK(0));

	readers_allow(b->readers, mark << b->shape.unit_log);
	bench_set_register(b, DEVICE_REG_WIN_RELEASE(0), b->readers->unit_done);
	return bench_register(b, DEVICE_REG_WIN_STATE(0)) & DEVICE_OPEN;
}

static uint64_t run_pass(struct bench *b, const struct exp_setting *set, uint64_t lines)
{
	uint64_t begin = b->cycle, poll = begin;
	bool open = set->windows;

	readers_begin(b->readers, set, 0, lines);
	b->readers->link_at = (double)begin;
	if (open)
		open_window(b, lines);
	while ((!readers_end(b->readers) || open) && b->differences == 0) {
		bench_cycle(b);
		if (open && b->cycle >= poll) {
			poll = b->cycle + set->poll_cycles;
			open = poll_window(b);
		}
	}
	return b->cycle - begin;
}

int experiment_run(struct bench *b, const char *text)
{
	struct point_rates rates = point_rates();
	struct clock_outcome model, second = { 0 };
	struct exp_setting set;
	uint64_t cycles, all, lines;
	struct point p;
	double off;

	if (parse(b, text, &p)) {
		fprintf(stderr, "fpga: --experiment %s: write cliff:SIZE, cleaned:SIZE, clean:SIZE "
			"or windows:SIZE; 1 is DRAM's\n", text);
		return 2;
	}
	set = point_setting(&p, &rates, b->shape.sets_log);
	if (set.units != b->shape.units || set.unit_log != b->shape.unit_log) {
		fprintf(stderr, "fpga: experiments need %u units of %u lines: make fpga-exp\n",
			set.units, 1u << set.unit_log);
		return 2;
	}
	if (point_twice(&p, &rates, b->shape.sets_log, &model, &all))
		return 2;
	lines = point_lines(&p, b->shape.sets_log);
	b->phase = (struct phase){ .name = "experiment", .dram_cycles = set.dram_latency,
				    .drive_room = BENCH_FLASH, .dram_room = BENCH_DRAM };
	if (set.dirty_most)
		clean_ahead(b, &set);
	b->readers = calloc(1, sizeof(*b->readers));
	if (!b->readers)
		return 2;
	cycles = run_pass(b, &set, lines);
	second.cycles = run_pass(b, &set, lines);
	second.flits = b->readers->done;
	cycles += second.cycles;
	off = (double)all / (double)cycles - 1;
	printf("fpga-exp: %-12s RTL %10llu cycles, second pass %5.2f GB/s; model's clock %10llu, "
	       "%5.2f GB/s, %+.2f %%; %u mismatches%s\n", text, (unsigned long long)cycles,
	       point_rate(&rates, &second), (unsigned long long)all, point_rate(&rates, &model),
	       100 * off, b->differences, off > NEAR || off < -NEAR ? "; TOO FAR" : "");
	free(b->readers);
	b->readers = NULL;
	return b->differences > 0 || off > NEAR || off < -NEAR;
}
