/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden model is told what the RTL decided on, in its order, and says what must come of it.
 * All that the RTL shows is compared in the cycle in which it shows: the decision, every tag and
 * age of the set, answers with their bytes, flash commands; and at the end what has no port.
 */
#include <string.h>

#include "bench.h"

static const char *const WHAT[] = { "hit", "miss", "join", "retry", "filled", "broken", "failed",
				    "refused", "staged", "held", "skipped", "freed", "cleans",
				    "passed" };

static uint32_t bits_of(const uint32_t *words, uint32_t at, uint32_t count)
{
	uint32_t value = 0;

	for (uint32_t i = 0; i < count; i++)
		value |= (words[(at + i) / 32] >> (at + i) % 32 & 1u) << i;
	return value;
}

static void compare_set(struct bench *b, uint32_t set)
{
	uint32_t width = b->shape.tag_bits + 6;

	for (uint32_t w = 0; w < DEVICE_WAYS; w++) {
		uint32_t rtl = bits_of(b->out.did_set, w * width, width);
		uint32_t model = device_way(b->model, set, w);

		if (rtl != model)
			bench_differ(b, "set %u way %u after %s: RTL tag %x age %u state %u, "
				     "model tag %x age %u state %u", set, w,
				     WHAT[b->out.did_what], rtl >> 6, rtl >> 2 & 15, rtl & 3,
				     model >> 6, model >> 2 & 15, model & 3);
	}
}

/* A decision about a way of the cache. */
static bool of_way(const struct bench *b, const struct device_verdict *v)
{
	bool of_unit = v->id >= b->shape.mshrs && v->id < b->shape.mshrs + b->shape.units;

	return v->what == DEVICE_CLEANS || (v->what <= DEVICE_BROKEN && !of_unit);
}

static void compare_verdict(struct bench *b, const struct device_verdict *v)
{
	const struct pins_out *out = &b->out;

	cover_decision(b, v);
	if (out->did_what != v->what) {
		bench_differ(b, "decision on line %llx (way %u): RTL %s, model %s",
			     (unsigned long long)v->line, v->way, WHAT[out->did_what],
			     WHAT[v->what]);
		return;
	}
	if (v->what == DEVICE_FAILED || v->what == DEVICE_REFUSED)
		return;
	if (v->what < DEVICE_FREED && out->did_flit >> b->shape.line_log != v->line)
		bench_differ(b, "%s: RTL line %llx, model %llx", WHAT[v->what],
			     (unsigned long long)out->did_flit >> b->shape.line_log,
			     (unsigned long long)v->line);
	if (of_way(b, v) && v->what != DEVICE_RETRY && out->did_way != v->way)
		bench_differ(b, "%s of line %llx: RTL way %u, model %u", WHAT[v->what],
			     (unsigned long long)v->line, out->did_way, v->way);
	if (v->what != DEVICE_HIT && v->what != DEVICE_RETRY && v->what != DEVICE_PASSED &&
	    out->did_who != v->id)
		bench_differ(b, "%s: RTL register %u, model %u", WHAT[v->what], out->did_who,
			     v->id);
	if (v->what == DEVICE_MISS &&
	    (out->did_evicts != v->evicts || out->did_dirty != v->dirty ||
	     (v->evicts && out->did_victim != v->victim)))
		bench_differ(b, "eviction: RTL %u dirty %u line %llx, model %u dirty %u line %llx",
			     out->did_evicts, out->did_dirty,
			     (unsigned long long)out->did_victim, v->evicts, v->dirty,
			     (unsigned long long)v->victim);
	if (of_way(b, v))
		compare_set(b, v->set);
}

/* Is it this request's turn? */
static bool takes_turn(struct bench *b, struct line *l, uint16_t id, const char *name)
{
	if (l->count == 0 || l->id[l->head] != id) {
		bench_differ(b, "request %u out of turn among those that %s", id, name);
		return false;
	}
	line_get(l);
	return true;
}

static bool may_be_decided(struct bench *b, struct ask *a, uint16_t id, bool failing)
{
	if (failing)
		return a->state == ASK_FAILED && takes_turn(b, &b->failed, id, "failed");
	switch (a->state) {
	case ASK_NEW: /* none passes those that try again; two cycles are the pipeline's */
		return b->again.count == 0 ||
		       b->ask[b->again.id[b->again.head]].since + 2 > b->cycle;
	case ASK_CAME:
		return takes_turn(b, &b->came, id, "waited");
	case ASK_AGAIN:
		return takes_turn(b, &b->again, id, "try again");
	default:
		return false;
	}
}

static void due(struct bench *b, struct ask *a, uint16_t id, const struct device_verdict *v)
{
	struct answers *to = a->request.write ? &b->writes : &b->reads;
	struct answer *one = &to->due[(to->head + to->count++) % BENCH_IDS];

	a->state = ASK_DECIDED;
	b->accesses_due += !v->error;
	*one = (struct answer){ .id = id, .error = v->error, .poison = v->poison };
	memcpy(one->data, v->data, DEVICE_FLIT);
}

static void decide_request(struct bench *b, bool failing)
{
	uint16_t id = b->out.did_id;
	struct ask *a = &b->ask[id % BENCH_IDS];
	struct device_verdict v;

	if (!may_be_decided(b, a, id, failing)) {
		bench_differ(b, "%s of request %u in state %d, while %u try again",
			     WHAT[b->out.did_what], id, (int)a->state, b->again.count);
		return;
	}
	if (b->out.did_write != a->request.write)
		bench_differ(b, "request %u: RTL write %u", id, b->out.did_write);
	if (failing)
		device_fail(b->model, &a->request, &v);
	else
		device_request(b->model, &a->request, &v);
	compare_verdict(b, &v);
	if (v.what == DEVICE_MISS || v.what == DEVICE_JOIN) {
		a->state = ASK_WAITS;
		line_put(&b->waits[v.id], id);
		if (v.what == DEVICE_MISS)
			b->fence[v.id] = b->accesses_due;
	} else if (v.what == DEVICE_RETRY) {
		a->state = ASK_AGAIN;
		a->since = b->cycle;
		line_put(&b->again, id);
	} else {
		due(b, a, id, &v);
	}
}

static void decide_end(struct bench *b)
{
	uint32_t id = b->out.did_who;
	struct device_verdict v;
	bool failed;

	if (!device_at_end(b->model, id, &failed)) {
		bench_differ(b, "%s of register %u, which has no end due", WHAT[b->out.did_what],
			     id);
		return;
	}
	device_fill(b->model, id, &v);
	compare_verdict(b, &v);
	if (id >= b->shape.mshrs) /* who waited for a unit or a cleaning asks the cache next */
		failed = false;
	while (b->waits[id].count > 0) {
		uint16_t ask = line_get(&b->waits[id]);

		b->ask[ask].state = failed ? ASK_FAILED : ASK_CAME;
		line_put(failed ? &b->failed : &b->came, ask);
	}
}

static void decide_window(struct bench *b)
{
	uint32_t window = b->out.did_window;
	struct device_verdict v;
	bool freed = b->out.did_what == DEVICE_FREED;

	if (!device_may(b->model, window, freed ? DEVICE_FREED : DEVICE_HELD, b->cycle)) {
		bench_differ(b, "%s of window %u, which may not", WHAT[b->out.did_what], window);
		return;
	}
	if (freed)
		device_free(b->model, window, &v);
	else
		device_probe(b->model, window, &v);
	compare_verdict(b, &v);
	if (!freed)
		b->fence[v.id] = b->accesses_due;
}

static void decide_cleaning(struct bench *b)
{
	bool begins = b->out.did_what == DEVICE_CLEANS, reads = device_reads(b->model);
	struct device_verdict v;

	device_clean(b->model, begins, &v);
	if (b->out.did_flit >> b->shape.line_log != v.set)
		bench_differ(b, "%s: RTL set %llx, model %x", WHAT[b->out.did_what],
			     (unsigned long long)b->out.did_flit >> b->shape.line_log, v.set);
	compare_verdict(b, &v);
	if (!begins)
		return;
	cover_hit(b, reads ? COVER_clean_waited : COVER_clean_idle);
	if (reads && b->cycle - b->clean_since + 4 < b->phase.clean_wait)
		bench_differ(b, "a cleaning that does not yield to reads, %llu cycles after the "
			     "last", (unsigned long long)(b->cycle - b->clean_since));
	b->clean_since = b->starves_since = b->cycle;
	b->fence[v.id] = b->accesses_due;
}

/* Reads or not, in the end one begins. */
void lockstep_starves(struct bench *b)
{
	if (!device_over(b->model))
		b->clean_since = b->cycle;
	if (!device_can_clean(b->model))
		b->starves_since = b->cycle;
	else if (b->cycle - b->starves_since > b->phase.clean_wait + BENCH_STARVES)
		bench_differ(b, "no cleaning began in %u cycles",
			     b->phase.clean_wait + BENCH_STARVES);
}

void lockstep_decision(struct bench *b)
{
	b->last_decision = b->cycle;
	if (b->out.did_what == DEVICE_FILLED || b->out.did_what == DEVICE_BROKEN)
		decide_end(b);
	else if (b->out.did_what >= DEVICE_CLEANS)
		decide_cleaning(b);
	else if (b->out.did_what >= DEVICE_HELD)
		decide_window(b);
	else
		decide_request(b, b->out.did_what == DEVICE_FAILED);
}

void lockstep_answer(struct bench *b, struct answers *a, const struct answer *got)
{
	const struct answer *want = &a->due[a->head];
	bool read = a == &b->reads;

	if (a->count == 0) {
		bench_differ(b, "an answer to request %u that nobody decided", got->id);
		return;
	}
	if (want->id != got->id || want->error != got->error)
		bench_differ(b, "answer to %s %u: RTL %u error %u, model error %u",
			     read ? "read" : "write", want->id, got->id, got->error, want->error);
	if (read && (want->poison != got->poison || memcmp(want->data, got->data, DEVICE_FLIT)))
		bench_differ(b, "data of read %u at %llx: RTL poison %u %02x%02x.., model poison "
			     "%u %02x%02x..", want->id,
			     (unsigned long long)b->ask[want->id].request.address, got->poison,
			     got->data[0], got->data[1], want->poison, want->data[0],
			     want->data[1]);
	b->ask[want->id].state = ASK_FREE;
	if (b->serve)
		serve_answer(b, &b->ask[want->id], got);
	if (b->readers && b->ask[want->id].reader == READER_RANDOM)
		readers_delay(b->readers, b->cycle - b->ask[want->id].at);
	if (b->readers)
		readers_answer(b->readers, b->ask[want->id].reader);
	line_put(&b->free_ids, want->id);
	a->head = (a->head + 1) % BENCH_IDS;
	a->count--;
	b->answered++;
	b->inside--;
}

uint32_t lockstep_register(const struct bench *b, uint32_t cid)
{
	uint32_t bits = 1;

	while (1u << bits < b->shape.mshrs + b->shape.units + b->shape.cleans)
		bits++;
	return cid & ((1u << bits) - 1);
}

void lockstep_offer(struct bench *b)
{
	uint32_t id = lockstep_register(b, b->out.abort_cid);
	struct device_command c;

	if (!b->out.abort_valid ||
	    (device_next(b->model, id, &c) && c.abort))
		return;
	if (!b->phase.timeout || b->cycle - b->given_at[id] <= b->phase.timeout)
		bench_differ(b, "register %u: an abort %llu cycles after its command", id,
			     (unsigned long long)(b->cycle - b->given_at[id]));
	if (device_expire(b->model, id))
		bench_differ(b, "an abort of register %u, which has no command under way", id);
}

void lockstep_abort(struct bench *b)
{
	uint32_t id = lockstep_register(b, b->out.abort_cid);
	struct device_command c = { 0 };

	if (!device_next(b->model, id, &c) || !c.abort || c.cid != b->out.abort_cid) {
		bench_differ(b, "abort of register %u: RTL number %x, model %x", id,
			     b->out.abort_cid, c.cid);
		return;
	}
	if (!nvme_room(b->nvme, &c))
		bench_differ(b, "an abort of register %u, for which its queue has no room", id);
	nvme_submit(b->nvme, &c);
	cover_abort(b, id);
	device_give(b->model, id);
}

void lockstep_command(struct bench *b)
{
	const struct pins_out *out = &b->out;
	struct device_command c;
	uint32_t id = lockstep_register(b, out->cmd_cid);
	uint32_t lines = out->cmd_unit ? 1u << b->shape.unit_log : 1;

	if (!device_next(b->model, id, &c)) {
		bench_differ(b, "a command of register %u, which has none to give", id);
		return;
	}
	if (c.abort || c.write != out->cmd_write || c.line != out->cmd_line ||
	    c.place != out->cmd_place ||
	    c.cid != out->cmd_cid || c.lines != lines)
		bench_differ(b, "command: RTL %s line %llx place %llx number %x, model %s line "
			     "%llx place %llx number %x", out->cmd_write ? "write" : "read",
			     (unsigned long long)out->cmd_line, (unsigned long long)out->cmd_place,
			     out->cmd_cid, c.write ? "write" : "read", (unsigned long long)c.line,
			     (unsigned long long)c.place, c.cid);
	if ((int64_t)(b->accesses_done - b->fence[id]) < 0)
		bench_differ(b, "a command of register %u before DRAM is done with its place",
			     id);
	if (!nvme_room(b->nvme, &c))
		bench_differ(b, "a command of register %u, for which its queue has no room", id);
	nvme_submit(b->nvme, &c);
	if (b->serve)
		sim_flash_note(&b->serve->flash, c.write, c.line, c.lines);
	b->given_at[id] = b->cycle;
	device_give(b->model, id);
}

void lockstep_completion(struct bench *b, uint16_t cid, bool error)
{
	uint32_t id = lockstep_register(b, cid);

	cover_answer(b, id, cid, error);
	if (device_answer(b->model, cid, error) != DEVICE_STRAY && b->phase.timeout &&
	    b->cycle - b->given_at[id] > b->phase.timeout + BENCH_LATE)
		bench_differ(b, "register %u: no abort in %llu cycles", id,
			     (unsigned long long)(b->cycle - b->given_at[id]));
}

void lockstep_order(struct bench *b, uint32_t offset, uint64_t value)
{
	for (uint32_t i = 0; i < DEVICE_WINDOWS; i++) {
		if (offset == DEVICE_REG_WIN_RELEASE(i))
			device_release(b->model, i, (uint32_t)value);
		if (offset != DEVICE_REG_WIN_GO(i))
			continue;
		cover_order(b, i, (uint32_t)value);
		if (value == 1)
			device_prefetch(b->model, i, &b->window[i].asked);
		else if (value == 2)
			device_drain(b->model, i);
		else if (value == 3)
			device_cancel(b->model, i);
	}
}

static void compare_counters(struct bench *b)
{
	const struct device_counters *count = device_counters(b->model);
	static const struct {
		const char *name;
		uint32_t offset;
	} registers[] = {
#define ONE(name, offset) { #name, offset },
		DEVICE_COUNTERS(ONE)
#undef ONE
	};
	const uint64_t *values = (const uint64_t *)count;

	for (size_t i = 0; i < sizeof(registers) / sizeof(*registers); i++) {
		uint64_t rtl = bench_register(b, registers[i].offset);

		if (rtl != values[i])
			bench_differ(b, "counter %s: RTL %llu, model %llu", registers[i].name,
				     (unsigned long long)rtl, (unsigned long long)values[i]);
	}
}

static void compare_place(struct bench *b, uint64_t place)
{
	uint32_t bytes = DEVICE_FLIT << b->shape.line_log;
	const uint64_t *poison, *own = b->dram_poison + place * b->golden.poison_words;
	const uint8_t *model = device_place(b->model, place, &poison);

	if (memcmp(model, b->dram + place * bytes, bytes) ||
	    memcmp(poison, own, b->golden.poison_words * 8))
		bench_differ(b, "DRAM of place %llx", (unsigned long long)place);
}

static void compare_dram(struct bench *b)
{
	for (uint64_t i = 0; i < (1ull << b->shape.sets_log) * DEVICE_WAYS; i++) {
		if (device_way(b->model, (uint32_t)(i / DEVICE_WAYS), i % DEVICE_WAYS) & 1)
			compare_place(b, i);
	}
	for (uint32_t i = 0; i < b->shape.units << b->shape.unit_log; i++) {
		uint32_t index = i & ((1u << b->shape.unit_log) - 1);

		if (device_holds(b->model, i >> b->shape.unit_log, index))
			compare_place(b, b->stage_place + i);
	}
}

void lockstep_end(struct bench *b)
{
	uint64_t line;

	if (bench_register(b, DEVICE_REG_SLOTS_USED) || bench_register(b, DEVICE_REG_MSHRS_USED) ||
	    bench_register(b, DEVICE_REG_UNITS_USED))
		bench_differ(b, "at rest, and slots, miss registers or units are in use");
	if (bench_register(b, DEVICE_REG_DIRTY_LINES) != device_dirty(b->model))
		bench_differ(b, "dirty_lines is not %u", device_dirty(b->model));
	compare_counters(b);
	compare_dram(b);
	for (uint32_t i = 0; i < BENCH_RINGS && !nvme_rung(b->nvme); i++)
		bench_cycle(b);
	if (!nvme_rung(b->nvme))
		bench_differ(b, "a doorbell has not been rung");
	line = media_differ(&b->drives.media, &b->golden);
	if (line != UINT64_MAX)
		bench_differ(b, "flash line %llx", (unsigned long long)line);
}
