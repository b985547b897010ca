/* SPDX-License-Identifier: Apache-2.0 */
/* The host: reads on one channel, writes on two (address and data), all offered at random. */
#include <assert.h>
#include <string.h>

#include "bench.h"

#define ADDRESS_BITS 52u /* of the host port */

void line_put(struct line *l, uint16_t id)
{
	assert(l->count < BENCH_IDS);
	l->id[(l->head + l->count++) % BENCH_IDS] = id;
}

uint16_t line_get(struct line *l)
{
	uint16_t id = l->id[l->head];

	assert(l->count > 0);
	l->head = (l->head + 1) % BENCH_IDS;
	l->count--;
	return id;
}

void host_open(struct bench *b)
{
	for (uint32_t i = 0; i < BENCH_IDS; i++)
		line_put(&b->free_ids, (uint16_t)i);
	b->ar_id = b->aw_id = b->w_id = -1;
}

static uint64_t pick_flit(struct bench *b)
{
	const struct phase *p = &b->phase;
	uint64_t flits = 1ull << b->shape.line_log;
	uint64_t lines = (uint64_t)p->sets * p->tags, line, flit;

	if (p->windows && bench_chance(b, 700) && stream_line(b, &line))
		return (line << b->shape.line_log) | bench_random(b) % flits;

	if (p->pattern == PATTERN_STREAM) {
		line = b->stream_at / flits % lines;
		flit = b->stream_at++ % flits;
	} else {
		line = bench_random(b) % lines;
		if (p->pattern == PATTERN_HOT && bench_chance(b, 900))
			line %= p->sets; /* one tag of each set */
		flit = bench_random(b) % flits;
	}
	return ((line / p->sets << b->shape.sets_log | line % p->sets) << b->shape.line_log) | flit;
}

/* A request into a free id. */
static int new_ask(struct bench *b, bool write)
{
	uint16_t id = line_get(&b->free_ids);
	struct ask *a = &b->ask[id];

	assert(a->state == ASK_FREE);
	*a = (struct ask){ .state = ASK_NEW, .request = { .write = write, .data = a->data } };
	a->request.address = pick_flit(b) * DEVICE_FLIT;
	if (bench_chance(b, b->phase.bads))
		a->request.address += bench_chance(b, 500) ? 1 + bench_random(b) % 63 :
				      bench_beyond(b, ADDRESS_BITS);
	for (uint32_t i = 0; write && i < DEVICE_FLIT; i += 8) {
		uint64_t word = bench_random(b);

		memcpy(a->data + i, &word, 8);
	}
	a->request.poison = write && bench_chance(b, b->phase.poisons);
	b->asked++;
	return id;
}

static bool may_ask(struct bench *b)
{
	return b->asked < b->phase.requests && b->free_ids.count > 0 &&
	       !bench_chance(b, b->phase.gaps);
}

static bool ready(struct bench *b, bool seen)
{
	return !bench_chance(b, b->phase.stalls) && (seen || !b->phase.late_ready);
}

/* An experiment's host: one request at a time is offered, as its link lets them out. */
static void ask_for_readers(struct bench *b)
{
	struct exp_request q;
	struct ask *a;
	uint16_t id;

	if (b->ar_id >= 0 || b->aw_id >= 0 || b->w_id >= 0 || b->free_ids.count == 0 ||
	    !readers_next(b->readers, b->cycle, &q))
		return;
	id = line_get(&b->free_ids);
	a = &b->ask[id];
	*a = (struct ask){ .state = ASK_NEW, .reader = q.reader,
			   .request = { .address = q.flit * DEVICE_FLIT, .write = q.write,
					.data = a->data } };
	memcpy(a->data, &q.flit, sizeof(q.flit));
	b->asked++;
	if (q.write)
		b->aw_id = b->w_id = id;
	else
		b->ar_id = id;
}

static void ask_at_random(struct bench *b)
{
	if (b->ar_id < 0 && b->phase.writes < 1000 && may_ask(b) &&
	    !bench_chance(b, b->phase.writes))
		b->ar_id = new_ask(b, false);
	if (b->aw_id < 0 && b->w_id < 0 && b->phase.writes > 0 && may_ask(b) &&
	    bench_chance(b, b->phase.writes))
		b->aw_id = b->w_id = new_ask(b, true);
}

void host_drive(struct bench *b)
{
	struct pins_in *in = &b->in;

	if (b->serve)
		serve_ask(b);
	else if (b->readers)
		ask_for_readers(b);
	else
		ask_at_random(b);

	in->ar_valid = b->ar_id >= 0;
	if (in->ar_valid) {
		in->ar_id = (uint16_t)b->ar_id;
		in->ar_addr = b->ask[b->ar_id].request.address;
	}
	/* Address and data begin in any order, and stay. */
	in->aw_valid = b->aw_id >= 0 && (in->aw_valid || !bench_chance(b, b->phase.gaps));
	in->w_valid = b->w_id >= 0 && (in->w_valid || !bench_chance(b, b->phase.gaps));
	if (in->aw_valid) {
		in->aw_id = (uint16_t)b->aw_id;
		in->aw_addr = b->ask[b->aw_id].request.address;
	}
	if (in->w_valid) {
		in->w_poison = b->ask[b->w_id].request.poison;
		memcpy(in->w_data, b->ask[b->w_id].data, DEVICE_FLIT);
	}
	in->r_ready = ready(b, b->out.r_valid);
	in->b_ready = ready(b, b->out.b_valid);
}

void host_sample(struct bench *b)
{
	const struct pins_in *in = &b->in;
	const struct pins_out *out = &b->out;
	struct answer got;

	b->slots_full += (in->ar_valid && !out->ar_ready) || (in->w_valid && !out->w_ready);
	b->inside += (in->ar_valid && out->ar_ready) + (in->aw_valid && out->aw_ready);
	if (in->ar_valid && out->ar_ready) {
		b->ask[b->ar_id].at = b->cycle;
		b->ar_id = -1;
	}
	if (in->aw_valid && out->aw_ready) {
		b->aw_id = -1;
		b->in.aw_valid = false;
	}
	if (in->w_valid && out->w_ready) {
		b->w_id = -1;
		b->in.w_valid = false;
	}
	if (out->r_valid && in->r_ready) {
		got = (struct answer){ .id = out->r_id, .error = out->r_resp >> 1,
				       .poison = out->r_poison };
		memcpy(got.data, out->r_data, DEVICE_FLIT);
		lockstep_answer(b, &b->reads, &got);
	}
	if (out->b_valid && in->b_ready) {
		got = (struct answer){ .id = out->b_id, .error = out->b_resp >> 1 };
		lockstep_answer(b, &b->writes, &got);
	}
}
