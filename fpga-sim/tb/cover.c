/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has met (cover.h), seen in the model's state, the bench's, and at the pins. */
#include "cover.h"

#include <stdio.h>

#include "bench.h"
#include "inside.h"

void cover_hit(struct bench *b, enum cover point)
{
	b->covered.times[point]++;
}

static void becomes(struct bench *b, enum cover point, bool now)
{
	if (now && !b->covered.now[point])
		cover_hit(b, point);
	b->covered.now[point] = now;
}

void cover_cycle(struct bench *b)
{
	const struct device_counters *n;
	uint64_t mshrs, units;

	n = device_counters(b->model);
	mshrs = n->misses - n->fills - n->broken_fills;
	units = n->units_taken - n->units_freed;
	becomes(b, COVER_slots_full, b->inside == b->slots);
	becomes(b, COVER_slots_empty, b->inside == 0);
	becomes(b, COVER_mshrs_full, mshrs == b->shape.mshrs);
	becomes(b, COVER_mshrs_empty, mshrs == 0);
	becomes(b, COVER_units_full, units == b->shape.units);
	becomes(b, COVER_units_empty, units == 0);
	becomes(b, COVER_drive_full, b->drives.orders >= b->phase.drive_room);
	becomes(b, COVER_drive_empty, b->drives.orders == 0);
	becomes(b, COVER_queue_full,
		nvme_used(b->nvme, 0, true) == nvme_entries(b->nvme) - 1);
	becomes(b, COVER_dram_full, b->access_count >= b->phase.dram_room);
	becomes(b, COVER_dram_empty, b->access_count == 0);
	becomes(b, COVER_answer_held_back, (b->out.r_valid && !b->in.r_ready) ||
						   (b->out.b_valid && !b->in.b_ready));
}

static void skipped(struct bench *b, const struct device_verdict *v)
{
	if (line_leaves(b->model, v->line))
		cover_hit(b, COVER_skipped_leaving);
	else if (unit_of(b->model, v->line) < device_ids(b->model))
		cover_hit(b, COVER_skipped_other_unit);
	else
		cover_hit(b, COVER_skipped_cached);
}

static enum cover why_again(const struct bench *b, const struct device_verdict *v)
{
	if (v->id == b->shape.mshrs)
		return COVER_retry_no_register;
	return v->way == DEVICE_WAYS ? COVER_retry_all_pending : COVER_retry_leaving;
}

/* A set that is read in the cycle in which it is written. */
static void forwarded(struct bench *b, const struct device_verdict *v)
{
	struct covered *c = &b->covered;
	bool cache = v->what <= DEVICE_BROKEN && !is_unit(b->model, v->id);

	if (cache && c->last_write + 1 == b->cycle && c->last_set == v->set)
		cover_hit(b, COVER_set_forwarded);
	if (cache && v->what != DEVICE_JOIN && v->what != DEVICE_RETRY) {
		c->last_write = b->cycle;
		c->last_set = v->set;
	}
}

void cover_decision(struct bench *b, const struct device_verdict *v)
{
	static const enum cover plain[] = {
		[DEVICE_HIT] = COVER_hit, [DEVICE_MISS] = COVER_miss,
		[DEVICE_FILLED] = COVER_filled, [DEVICE_BROKEN] = COVER_broken,
		[DEVICE_FAILED] = COVER_failed, [DEVICE_REFUSED] = COVER_refused,
		[DEVICE_STAGED] = COVER_staged, [DEVICE_HELD] = COVER_held,
		[DEVICE_FREED] = COVER_freed, [DEVICE_CLEANS] = COVER_clean_begins,
		[DEVICE_PASSED] = COVER_clean_passes,
	};

	forwarded(b, v);
	if (v->what == DEVICE_JOIN)
		cover_hit(b, is_unit(b->model, v->id)	 ? COVER_join_unit :
			     is_cleaner(b->model, v->id) ? COVER_join_cleaning :
							   COVER_join_miss);
	else if (v->what == DEVICE_FILLED && is_cleaner(b->model, v->id))
		cover_hit(b, COVER_clean_ends);
	else if (v->what == DEVICE_BROKEN && is_cleaner(b->model, v->id))
		cover_hit(b, COVER_clean_given_up);
	else if (v->what == DEVICE_RETRY)
		cover_hit(b, why_again(b, v));
	else if (v->what == DEVICE_SKIPPED)
		skipped(b, v);
	else
		cover_hit(b, plain[v->what]);
	if (v->what == DEVICE_MISS && v->evicts)
		cover_hit(b, v->dirty ? COVER_evicts_dirty : COVER_evicts_clean);
	if (v->what == DEVICE_HELD && b->model->windows[b->out.did_window].begin_at > 0 &&
	    b->model->windows[b->out.did_window].taken == 1)
		cover_hit(b, COVER_window_began_late);
	if (v->what == DEVICE_MISS && v->drops)
		cover_hit(b, COVER_dropped);
	if (v->poison && !v->error)
		cover_hit(b, v->what == DEVICE_STAGED ? COVER_poison_staged : COVER_poison_read);
}

static enum cover which_error(const struct bench *b, const struct miss *m, uint32_t id)
{
	bool last = m->tries >= b->model->settings.flash_tries;

	if (is_cleaner(b->model, id))
		return COVER_clean_error;
	if (is_unit(b->model, id))
		return last ? COVER_unit_given_up : COVER_unit_error;
	if (m->stage == WRITE_GIVEN)
		return last ? COVER_write_lost : COVER_write_error;
	return last ? COVER_read_given_up : COVER_read_error;
}

void cover_answer(struct bench *b, uint32_t id, uint32_t cid, bool error)
{
	const struct miss *m = &b->model->misses[id];
	uint32_t counts = 0xffffu >> b->model->id_bits, count = cid >> b->model->id_bits;
	bool given = m->stage == WRITE_GIVEN || m->stage == READ_GIVEN;
	uint32_t own = m->given - (m->abort == ABORT_GIVEN); /* the count of its command */

	if (given && m->abort != NO_ABORT && (own & counts) == count) {
		cover_hit(b, COVER_answer_late);
		return;
	}
	if (!given || (m->given & counts) != count) {
		cover_hit(b, COVER_answer_doubled);
		return;
	}
	if (m->abort == ABORT_GIVEN)
		cover_hit(b, error ? COVER_abort_withdrawn : COVER_abort_was_done);
	if (error)
		cover_hit(b, which_error(b, m, id));
}

static void cancelled(struct bench *b, uint32_t window)
{
	const struct window *w = &b->model->windows[window];
	uint32_t there = w->taken - w->freed, came = 0;
	enum cover point = COVER_cancel_some_came;

	for (uint32_t i = w->freed; i != w->taken; i++)
		came += b->model->misses[w->unit[i % b->shape.units]].stage == HERE;
	if (!w->open)
		point = COVER_cancel_closed;
	else if (w->drop)
		point = COVER_cancel_cancelled;
	else if (w->failed)
		point = COVER_cancel_failed;
	else if (w->stop)
		point = COVER_cancel_drained;
	else if (b->model->probing == window)
		point = COVER_cancel_looking_up;
	else if (there == 0)
		point = COVER_cancel_none_begun;
	else if (came == 0)
		point = COVER_cancel_none_came;
	else if (came == there)
		point = COVER_cancel_all_came;
	cover_hit(b, point);
}

void cover_order(struct bench *b, uint32_t window, uint32_t order)
{
	if (order == 3)
		cancelled(b, window);
	if (order == 1 && b->model->windows[window].open)
		cover_hit(b, COVER_window_open_again);
}

void cover_abort(struct bench *b, uint32_t id)
{
	bool write = b->model->misses[id].stage == WRITE_GIVEN;

	cover_hit(b, is_unit(b->model, id) ? COVER_abort_unit : write ? COVER_abort_write :
									COVER_abort_read);
}

void cover_print(const struct bench *b)
{
	static const char *const name[] = {
#define COVER_POINT(point) #point,
		COVER_POINTS(COVER_POINT)
#undef COVER_POINT
	};

	for (uint32_t i = 0; i < COVERS; i++)
		printf("cover %s %llu\n", name[i], (unsigned long long)b->covered.times[i]);
}
