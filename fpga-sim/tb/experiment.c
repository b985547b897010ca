/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiments in the RTL (experiment.h): here a and b, two passes of a stream from an empty device.
 */
#include "experiment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR 0.05

bool experiment_near(double rtl, double model)
{
	return model <= rtl * (1 + NEAR) && model >= rtl * (1 - NEAR);
}

static int parse(struct bench *b, const char *text, struct point *p)
{
	static const char *const name[] = { "windows:", "cleaned:", "cliff:", "clean:", "decode:",
					    "ahead:", "demand:" };
	const char *size = strchr(text, ':');
	bool known = false;

	*p = (struct point){ .mshrs = b->shape.mshrs, .slots = b->slots,
			     .line_log = b->shape.line_log };
	for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++)
		known |= !strncmp(text, name[i], strlen(name[i]));
	if (!known)
		return -1;
	p->size = strtod(size + 1, NULL);
	p->windows = !strncmp(text, "windows:", 8);
	p->cleaned = !strncmp(text, "cleaned:", 8);
	p->dirty = p->scattered = p->cleaned || !strncmp(text, "cliff:", 6);
	return p->size <= 0 && strcmp(text, "demand:0") ? -1 : 0;
}

void experiment_set(struct bench *b, uint32_t offset, uint64_t *of_model, uint64_t value)
{
	b->setting = of_model;
	bench_set_register(b, offset, value);
	b->setting = NULL;
}

static void clean_ahead(struct bench *b, const struct exp_setting *set)
{
	struct device_settings *s = device_settings(b->model);

	b->phase.clean_wait = set->clean_wait;
	experiment_set(b, DEVICE_REG_CLEAN_WAIT, &s->clean_wait, set->clean_wait);
	experiment_set(b, DEVICE_REG_DIRTY_MOST, &s->dirty_most, set->dirty_most);
}

static void open_window(struct bench *b, const struct exp_setting *set, uint64_t lines)
{
	struct device_prefetch *p = &b->window[0].asked;

	*p = (struct device_prefetch){ .deadline = UINT64_MAX, .lead = UINT64_MAX,
				       .limit = b->shape.units, .class = set->class,
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

uint64_t experiment_pass(struct bench *b, const struct exp_setting *set, uint64_t lines)
{
	uint64_t begin = b->cycle, poll = begin;
	bool open = set->windows;

	readers_begin(b->readers, set, 0, lines);
	b->readers->link_at = (double)begin;
	if (open)
		open_window(b, set, lines);
	while ((!readers_end(b->readers) || open) && b->differences == 0) {
		bench_cycle(b);
		if (open && b->cycle >= poll) {
			poll = b->cycle + set->poll_cycles;
			open = poll_window(b);
		}
	}
	return b->cycle - begin;
}

static int stream(struct bench *b, struct experiment *x, const struct point *p)
{
	uint64_t lines = point_lines(p, x->sets_log);
	struct clock_outcome model, second = { 0 };
	int rc = point_twice(p, &x->rates, x->sets_log, &model, &x->model);

	if (rc)
		return rc;
	if (x->set.dirty_most)
		clean_ahead(b, &x->set);
	x->rtl = experiment_pass(b, &x->set, lines);
	second.cycles = experiment_pass(b, &x->set, lines);
	second.flits = b->readers->done;
	x->rtl += second.cycles;
	snprintf(x->rtl_says, sizeof(x->rtl_says), "second pass %5.2f GB/s",
		 point_rate(&x->rates, &second));
	snprintf(x->model_says, sizeof(x->model_says), "%5.2f GB/s", point_rate(&x->rates, &model));
	return 0;
}

static int report(const struct bench *b, const struct experiment *x, const char *text)
{
	double off = (double)x->model / (double)x->rtl - 1;
	bool far = x->far || !experiment_near((double)x->rtl, (double)x->model);
	char name[32], line[16] = "";

	if (b->shape.line_log != 6)
		snprintf(line, sizeof(line), "/%uKiB", (64u << b->shape.line_log) >> 10);
	snprintf(name, sizeof(name), "%s%s", text, line);
	printf("fpga-exp: %-12s RTL %10llu cycles, %s; model's clock %10llu, %s, %+.2f %%; "
	       "%u mismatches%s\n", name, (unsigned long long)x->rtl, x->rtl_says,
	       (unsigned long long)x->model, x->model_says, 100 * off, b->differences,
	       far ? "; TOO FAR" : "");
	return b->differences > 0 || far;
}

/* The number behind NAME: in the text, if that begins so; else -1. */
static long number_of(const char *text, const char *name)
{
	size_t length = strlen(name);

	return strncmp(text, name, length) ? -1 : strtol(text + length, NULL, 10);
}

static int run(struct bench *b, struct experiment *x, const char *text, const struct point *p)
{
	long decode = number_of(text, "decode:"), ahead = number_of(text, "ahead:");
	long demand = number_of(text, "demand:");

	if (decode > 0 || ahead > 0)
		return experiment_decode(b, x, (uint32_t)(ahead > 0 ? ahead : decode), ahead > 0);
	if (demand >= 0)
		return experiment_demand(b, x, (uint32_t)demand);
	return stream(b, x, p);
}

int experiment_run(struct bench *b, const char *text)
{
	struct experiment x = { .rates = point_rates(),
				.sets_log = b->shape.sets_log + b->shape.line_log - 6 };
	struct point p;
	int rc;

	if (parse(b, text, &p)) {
		fprintf(stderr, "fpga: --experiment %s: write cliff:SIZE, cleaned:SIZE, clean:SIZE "
			"or windows:SIZE, 1 is DRAM's; decode:PERCENT, ahead:PERCENT, "
			"demand:UNITS\n", text);
		return 2;
	}
	x.set = point_setting(&p, &x.rates, x.sets_log);
	if (x.set.units != b->shape.units || x.set.unit_log != b->shape.unit_log) {
		fprintf(stderr, "fpga: experiments need %u units of %u lines: make fpga-exp\n",
			x.set.units, 1u << x.set.unit_log);
		return 2;
	}
	b->phase = (struct phase){ .name = "experiment", .dram_cycles = x.set.dram_latency,
				    .drive_room = BENCH_FLASH, .dram_room = BENCH_DRAM };
	b->readers = calloc(1, sizeof(*b->readers));
	if (b->readers)
		b->readers->set = &x.set;
	rc = b->readers ? run(b, &x, text, &p) : -1;
	free(b->readers);
	b->readers = NULL;
	return rc ? 2 : report(b, &x, text);
}
