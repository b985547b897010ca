/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the world's clients: opened on any keys, read, released layer by layer or in jumps,
 * closed, cancelled, forgotten, and told nonsense. What must hold: the watermark never falls and
 * never lies (a page of a layer below it is in memory, with the right bytes, until it is released,
 * its block leaves the service, or the daemon has kept it long enough), each answer fits it, and
 * whoever waits for a layer is woken when it is there.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"

/* The layers of client.c's geometry as a model has them: kv 0-1, index 1-2, state 3. */
#define LAYERS 4u

static uint32_t pages_of(uint32_t layer, uint32_t page[4])
{
	switch (layer) {
	case 0:
		page[0] = 0, page[1] = 1;
		return 2;
	case 1:
		page[0] = 2, page[1] = 3, page[2] = 4;
		return 3;
	case 2:
		page[0] = 5;
		return 1;
	default:
		page[0] = 6;
		return 1;
	}
}

/* ---- asking ------------------------------------------------------------------------------- */

/* Is the line still that of a stream whose answer has not come? */
static bool waits(const struct world *w, uint32_t client, const struct world_stream *s)
{
	const struct ask *a = &w->client[client].ask[s->ask];

	return s->used && !s->ended_ns && a->kind != ASK_NONE && a->op == ABI_OP_STREAM;
}

/* Completes the entry, with a line of the client's. False: none is free. */
bool streams_ask(struct world *w, uint32_t client, uint32_t i, struct abi_sqe *sqe)
{
	static const uint32_t window[] = { 0, 0, 2 * 3 * PAGE, 3 * 3 * PAGE, PAGE };
	struct world_client *k = &w->client[client];
	const struct ask *a = &k->ask[i];
	uint32_t line = world_below(w, WORLD_LINES);
	struct world_stream *s = &k->stream[line];

	if (waits(w, client, s))
		return false;
	*s = (struct world_stream){ .used = true, .ask = i, .context = a->context,
				    .tier = sqe->tier, .first = a->first, .count = a->count,
				    .generation = ++k->generation, .usable = a->count };
	for (uint32_t n = 0; n < a->count; n++) {
		uint32_t slot;
		const struct abi_block *b = model_find(w, a->context, a->first + n, &slot);

		if (b)
			s->block[n] = (struct abi_block_ref){ slot, b->generation };
	}
	sqe->stream = (uint16_t)line;
	sqe->generation = s->generation;
	sqe->handle = (uint64_t)window[world_below(w, 5)] * a->count;
	sqe->mode = world_chance(w, 200000) ? ABI_MODE_CACHE : ABI_MODE_STREAM;
	sqe->klass = (uint8_t)world_below(w, ABI_CLASS_SPECULATIVE + 1);
	k->line[line].wait = world_below(w, 3);
	s->begun_ticks = w->ticks;
	s->stale = s->loose = world_chance(w, 50000);
	if (!s->stale) /* else the word of the one before stays: this one ends at once */
		k->line[line].released = abi_stream_released(s->generation, 0);
	w->result->streams++;
	return true;
}

/* ---- what is promised --------------------------------------------------------------------- */

static void check_page(struct world *w, const struct world_stream *s, uint32_t n, uint32_t page)
{
	struct world_context *x = &w->context[s->context];
	uint32_t slot;
	const struct abi_block *b = model_find(w, s->context, s->first + n, &slot);
	uint64_t word;

	/* A block that was deleted or did not verify is gone: no stream keeps it. */
	if (!b || slot != s->block[n].slot || b->generation != s->block[n].generation ||
	    !(b->parts >> model_page_part(page) & 1))
		return;
	word = model_desc(w, s->context, slot, page)->word[s->tier];
	if (abi_word_state(word) != ABI_PAGE_READY)
		world_fail(w, "P3: key %u page %u is below the watermark and in state %u of tier "
			      "%u", s->first + n, page, abi_word_state(word), s->tier);
	else if (!model_page_is(w, s->context, s->first + n, page,
				x->mem[s->tier] + abi_word_addr(word)))
		world_fail(w, "P3: key %u page %u: a layer was announced with wrong bytes",
			   s->first + n, page);
}

/* The prefix that the answer tells is there, but for layers that were let go. */
static void usable_check(struct world *w, const struct world_stream *s, const struct abi_cqe *cqe)
{
	if (!w->context[s->context].made || w->context[s->context].removing)
		return;
	for (uint32_t layer = s->released; layer < LAYERS; layer++) {
		uint32_t page[4], pages = pages_of(layer, page);

		for (uint32_t i = 0; i < cqe->value * pages && i < s->count * pages; i++)
			check_page(w, s, i / pages, page[i % pages]);
	}
}

/* Its answer came; it fits what the line says. */
void streams_answered(struct world *w, uint32_t client, uint32_t i, const struct ask *ask,
		     const struct abi_cqe *cqe)
{
	struct world_client *k = &w->client[client];

	for (uint32_t n = 0; n < WORLD_LINES; n++) {
		struct world_stream *s = &k->stream[n];
		const struct abi_stream *line = &k->line[n];

		if (!s->used || s->ended_ns || s->ask != i)
			continue;
		s->ended_ns = w->now_ns;
		if (s->stale && !cqe->res && w->ticks > s->begun_ticks)
			world_fail(w, "S2: a stream took another one's word for its own");
		s->loose |= cqe->res != 0;
		if (cqe->res || s->loose)
			continue;
		if (cqe->value > s->count || (cqe->value && !line->ended))
			world_fail(w, "stream: answer %llu of %u blocks, ended %u",
				   (unsigned long long)cqe->value, s->count, line->ended);
		if (cqe->status == ABI_STATUS_READY &&
		    (line->ready != LAYERS || line->usable != s->count || cqe->value != s->count))
			world_fail(w, "stream: READY with layer %u of %u, %u of %u blocks",
				   line->ready, LAYERS, line->usable, s->count);
		usable_check(w, s, cqe);
		if (ask->unhurried && cqe->status == ABI_STATUS_LATE && !model_clogged(w))
			world_fail(w, "I8: a stream is late on a host at rest");
	}
}

static void check(struct world *w, uint32_t client, uint32_t n)
{
	struct world_stream *s = &w->client[client].stream[n];
	const struct abi_stream *line = &w->client[client].line[n];

	if (!s->used || s->loose || line->generation != s->generation)
		return;
	if (line->ready < s->ready || line->usable > s->usable || line->ready > LAYERS)
		world_fail(w, "S1: ready %u after %u, usable %u after %u", line->ready, s->ready,
			   line->usable, s->usable);
	s->ready = line->ready;
	s->usable = line->usable;
	if (s->ended_ns && w->now_ns >= s->ended_ns + WORLD_HOLD)
		return;
	if (!w->context[s->context].made || w->context[s->context].removing)
		return;
	for (uint32_t layer = s->released; layer < s->ready; layer++) {
		uint32_t page[4], pages = pages_of(layer, page);

		for (uint32_t i = 0; i < s->usable * pages; i++)
			check_page(w, s, i / pages, page[i % pages]);
	}
}

void streams_check_all(struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t n = 0; w->client[c].state == 1 && n < WORLD_LINES; n++)
			check(w, c, n);
}

/* After each event: a client that waits and does not look is told in the same one. */
void streams_event(struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++) {
		for (uint32_t n = 0; w->client[c].state == 1 && n < WORLD_LINES; n++) {
			struct world_stream *s = &w->client[c].stream[n];
			const struct abi_stream *line = &w->client[c].line[n];

			if (!s->used || line->generation != s->generation ||
			    (line->ready == s->told && line->ended == s->told_end))
				continue;
			s->told = line->ready;
			s->told_end = line->ended;
			if (line->wait && (line->ended || line->ready >= line->wait) &&
			    !w->client[c].woken)
				world_fail(w, "P3: nobody woke client %u, who waits for layer %u",
					   c, line->wait);
		}
		w->client[c].woken = false;
	}
}

/* ---- what clients do with them ------------------------------------------------------------ */

static void release(struct world *w, uint32_t client, uint32_t n, uint32_t layer)
{
	struct world_stream *s = &w->client[client].stream[n];

	if (layer <= s->released)
		return;
	w->result->layers += layer - s->released;
	s->released = layer;
	w->client[client].line[n].released = abi_stream_released(s->generation, layer);
}

void streams_step(struct world *w)
{
	uint32_t client = world_below(w, WORLD_CLIENTS), n = world_below(w, WORLD_LINES);
	struct world_stream *s = &w->client[client].stream[n];
	struct abi_stream *line = &w->client[client].line[n];
	uint32_t dice = world_below(w, 100);

	if (w->client[client].state != 1 || !s->used)
		return;
	s->stale = false; /* whatever it writes now */
	check(w, client, n);
	if (dice < 70 && line->generation == s->generation) {
		release(w, client, n,
			dice < 50 && s->released < s->ready ? s->released + 1 : s->ready);
	} else if (dice < 75) {
		release(w, client, n, 1 + world_below(w, LAYERS)); /* ahead of what is ready */
	} else if (dice < 80) {
		s->loose = true;
		line->released |= ABI_STREAM_CLOSED;
	} else if (dice < 83) {
		s->loose = true;
		line->released = world_random(w);
		if (world_chance(w, 700000)) /* of the right stream, more layers than it has */
			line->released =
				abi_stream_released(s->generation, (uint32_t)line->released);
		line->wait = (uint32_t)world_random(w);
	} else if (dice < 90) {
		line->wait = world_below(w, LAYERS + 2);
	}
}

/* Everyone lets go. */
void streams_rest(struct world *w)
{
	for (uint32_t c = 0; c < WORLD_CLIENTS; c++)
		for (uint32_t n = 0; n < WORLD_LINES; n++)
			if (w->client[c].stream[n].used && !w->client[c].stream[n].loose)
				release(w, c, n, LAYERS);
}

void streams_forget(struct world *w, uint32_t client)
{
	memset(w->client[client].stream, 0, sizeof(w->client[client].stream));
}
