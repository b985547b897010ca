/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host that streams: opens windows by the prefetch registers, watches their progress,
 * releases, drains and cancels, all at random, while host.c asks. Progress must never go back, nor
 * be ahead of the model's; what a window says when it is closed must be what the model says.
 */
#include "bench.h"

#define LENGTH_MOST 24u /* units */
#define RELEASE_MOST 8u /* units beyond the watermark */
#define SOON 3000u      /* cycles: a deadline that may be met or not */

static uint64_t unit_bytes(const struct bench *b)
{
	return (uint64_t)DEVICE_FLIT << (b->shape.line_log + b->shape.unit_log);
}

static uint64_t pick_deadline(struct bench *b, struct host_window *w)
{
	uint32_t kind = (uint32_t)bench_random(b) % 3;

	w->must_late = kind == 0;
	w->may_late = kind == 1;
	return kind == 0 ? 0 : kind == 1 ? b->cycle + SOON : UINT64_MAX;
}

static void begin(struct bench *b, uint32_t i)
{
	struct host_window *w = &b->window[i];
	struct device_prefetch *p = &w->asked;
	uint64_t line = (bench_random(b) % b->phase.tags << b->shape.sets_log) |
			bench_random(b) % b->phase.sets;

	*w = (struct host_window){ .first = line >> b->shape.unit_log << b->shape.unit_log };
	p->address = line * DEVICE_FLIT << b->shape.line_log;
	if (bench_chance(b, 30)) /* its end, or beyond */
		p->address = device_capacity(b->model) - bench_random(b) % 4 * unit_bytes(b);
	else if (bench_chance(b, 30))
		p->address += bench_beyond(b, 64);
	p->length = bench_random(b) % LENGTH_MOST;
	p->limit = bench_random(b) % (b->shape.units + 2);
	p->class = bench_random(b) % 4;
	p->deadline = pick_deadline(b, w);
	p->lead = bench_chance(b, 600) ? UINT64_MAX : bench_random(b) % (2 * SOON);
	bench_prefetch(b, i);
	bench_cycle(b);
	bench_cycle(b);
	device_state(b->model, i, w->must_late ? UINT64_MAX : 0);
	w->open = true;
	if (bench_chance(b, 300)) /* soon: what it begins first is being looked up */
		bench_set_register(b, DEVICE_REG_WIN_GO(i), 3);
}

/* A window that the device has closed says what the model says. */
static void closed(struct bench *b, uint32_t i, uint64_t state)
{
	struct host_window *w = &b->window[i];
	uint64_t mark = bench_register(b, DEVICE_REG_WIN_MARK(i));
	uint32_t want = device_state(b->model, i, 0);

	if (w->may_late)
		want = (want & ~(uint32_t)DEVICE_LATE) | (state & DEVICE_LATE);
	if (want & DEVICE_LATE)
		cover_hit(b, COVER_window_late);
	if (want & DEVICE_NOT_TAKEN)
		cover_hit(b, COVER_window_refused);
	if (state != want)
		bench_differ(b, "window %u: RTL state %02llx, model %02x", i,
			     (unsigned long long)state, want);
	if (mark != device_mark(b->model, i))
		bench_differ(b, "window %u: RTL watermark %llu, model %u", i,
			     (unsigned long long)mark, device_mark(b->model, i));
	w->open = false;
}

static void watch(struct bench *b, uint32_t i, uint64_t state)
{
	struct host_window *w = &b->window[i];
	uint64_t mark = bench_register(b, DEVICE_REG_WIN_MARK(i));
	bool rests = b->answered == b->asked && b->asked >= b->phase.requests;

	if (mark < w->mark || mark > device_mark(b->model, i))
		bench_differ(b, "window %u: RTL watermark %llu after %u, model %u", i,
			     (unsigned long long)mark, w->mark, device_mark(b->model, i));
	if (w->may_late && state & DEVICE_LATE && b->cycle <= w->asked.deadline)
		bench_differ(b, "window %u: late before its deadline", i);
	w->mark = (uint32_t)mark;
	if (state & DEVICE_BAD || rests || bench_chance(b, 30))
		bench_set_register(b, DEVICE_REG_WIN_GO(i), 3);
	else if (bench_chance(b, 60))
		bench_set_register(b, DEVICE_REG_WIN_GO(i), 2);
	else if (!(state & DEVICE_STOPPED) && w->asked.length > mark + RELEASE_MOST &&
		 bench_chance(b, 100))
		/* it is open, and stays so, not all being released: this changes nothing */
		bench_set_register(b, DEVICE_REG_WIN_GO(i), 1);
	if (bench_chance(b, 700))
		bench_set_register(b, DEVICE_REG_WIN_RELEASE(i),
				   bench_random(b) %
				   (mark + (bench_chance(b, 200) ? RELEASE_MOST : 2)));
}

void stream_step(struct bench *b)
{
	uint32_t i = (uint32_t)bench_random(b) % b->phase.windows;
	uint64_t state;

	if (!b->window[i].open && bench_chance(b, 100)) { /* changes nothing that is to be seen */
		bench_set_register(b, DEVICE_REG_WIN_GO(i), 3);
		return;
	}
	if (!b->window[i].open) {
		if (b->asked < b->phase.requests)
			begin(b, i);
		return;
	}
	state = bench_register(b, DEVICE_REG_WIN_STATE(i));
	if (!(state & DEVICE_OPEN))
		closed(b, i, state);
	else
		watch(b, i, state);
}

bool stream_rests(const struct bench *b)
{
	for (uint32_t i = 0; i < DEVICE_WINDOWS; i++) {
		if (b->window[i].open)
			return false;
	}
	return true;
}

bool stream_line(struct bench *b, uint64_t *line)
{
	const struct host_window *w = &b->window[bench_random(b) % b->phase.windows];
	uint64_t lines = 1ull << (b->shape.sets_log + b->shape.tag_bits);
	uint64_t near = (uint64_t)w->mark + 4;

	if (!w->open)
		return false;
	/* near the watermark: what is staged, on its way, and not yet begun */
	near = near > 8 ? near - 8 + bench_random(b) % 8 : bench_random(b) % near;
	*line = w->first + (near << b->shape.unit_log) +
		bench_random(b) % (1u << b->shape.unit_log);
	return *line < lines;
}
