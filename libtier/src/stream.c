/*
 * Streams: a request whose progress is read from its own line in the client region (abi_stream in
 * libtier/abi/ring.h). Asking is a submission like any other; looking takes no lock; only waiting
 * for what is not there yet goes through wait.c.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/src/ask.h"
#include "libtier/src/attach.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"
#include "libtier/src/submit.h"
#include "libtier/src/wait.h"

#define STREAM_BLOCKS_MAX (ABI_ARG_BYTES_MAX / (uint32_t)sizeof(struct abi_block_ref))

/* ---- looking --------------------------------------------------------------------------------- */

static struct abi_stream *line_of(const struct tier_stream *s)
{
	return (struct abi_stream *)(uintptr_t)atomic_load_acquire_u64(&s->line_word);
}

static struct attachment *home_of(const struct tier_stream *s)
{
	return (struct attachment *)(uintptr_t)atomic_load_acquire_u64(&s->home_word);
}

/* The line speaks of us once the daemon has taken the request. */
static bool is_ours(const struct tier_stream *s)
{
	return atomic_load_acquire_u32(&line_of(s)->generation) == s->generation;
}

uint32_t tier_stream_ready(const tier_stream *s)
{
	if (!s || connection_orphaned(s->t->alive) || !is_ours(s))
		return 0;
	return atomic_load_acquire_u32(&line_of(s)->ready);
}

/* Of the ready layers. The daemon lowers it before it raises ready. */
static uint32_t usable(const struct tier_stream *s)
{
	uint32_t n = atomic_load_relaxed_u32(&line_of(s)->usable);

	return n < s->count ? n : s->count;
}

int tier_stream_look(tier_stream *s, struct tier_stream_progress *out)
{
	struct tier_stream_progress own = { .size = 0 };
	size_t size;

	if (!s || !out || out->size < sizeof(size) || out->size > 4096)
		return error_note(-EINVAL, "stream: no handle, or set size with sizeof");
	size = out->size;
	if (connection_orphaned(s->t->alive))
		return error_note(-EOWNERDEAD, "stream: it belongs to the parent process");
	own.ready = tier_stream_ready(s);
	if (is_ours(s)) {
		own.usable = usable(s);
		own.layers = atomic_load_relaxed_u32(&line_of(s)->layers);
	}
	{
		LOCK_SCOPE(&s->t->lock);
		submit_collect(s->t);
		wait_handover(s->t);
		if (s->rq->state == REQUEST_DONE) {
			own.ended = 1;
			own.status = s->rq->completion.status;
			own.result = s->rq->completion.result;
			own.whole = (uint32_t)s->rq->completion.value;
		}
	}
	if (own.ended)
		own.ready = tier_stream_ready(s);
	own.size = size;
	memset(out, 0, size);
	memcpy(out, &own, size < sizeof(own) ? size : sizeof(own));
	return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check_options(const struct tier_context *c, const struct tier_stream_options *o)
{
	const struct tier_range *range = o->range;
	uint32_t parts = c->geometry.abi.part_count;

	if (o->tier >= ABI_MEM_TIERS || o->mode >= ABI_MODE_COUNT ||
	    o->klass > TIER_CLASS_SPECULATIVE || o->reserved)
		return error_set(-EINVAL, "stream: tier %u, mode %u or class %u is unknown",
				 o->tier, o->mode, o->klass);
	if (range && (range->part_first >= parts || range->part_count > parts - range->part_first ||
		      (range->part_count == 0 && range->part_first != 0) ||
		      (range->layer_count == 0 && range->layer_first != 0)))
		return error_set(-EINVAL, "stream: parts %u + %u are not within the %u of the "
					  "context, or a first without a count",
				 range->part_first, range->part_count, parts);
	return 0;
}

static struct submission submission_of(struct tier_stream *s, const tier_block *blocks,
				       const struct tier_stream_options *o)
{
	struct submission out = {
		.context = s->c,
		.entry = { .op = ABI_OP_STREAM,
			   .klass = (uint8_t)o->klass,
			   .tier = (uint8_t)o->tier,
			   .mode = (uint8_t)o->mode,
			   .deadline_ns = o->deadline_ns,
			   .handle = o->window_bytes,
			   .stream = (uint16_t)s->number,
			   .generation = s->generation },
		.args = { .blocks = blocks, .count = s->count },
		.owner = REQUEST_WAITER,
	};

	if (o->range) {
		out.entry.part_first = o->range->part_first;
		out.entry.part_count = o->range->part_count;
		out.entry.layer_first = o->range->layer_first;
		out.entry.layer_count = o->range->layer_count;
	}
	return out;
}

/* A line of the present attachment, marked as ours. */
static int line_get(struct tier_stream *s) REQUIRES(s->t->lock)
{
	struct attachment *a = connection_attachment(s->t);
	uint32_t i = 0;

	if (!a->lines)
		return error_note(-ENOTSUP, "stream: the daemon has none; update it");
	while (i < a->streams_max && a->stream_used >> i & 1)
		i++;
	if (i == a->streams_max)
		return error_set(-EAGAIN, "stream: %u are open; close one", a->streams_max);
	a->stream_used |= 1ull << i;
	a->streams++;
	if (!++a->stream_serial)
		a->stream_serial = 1;
	atomic_store_release_u64(&s->home_word, (uintptr_t)a);
	s->number = i;
	atomic_store_release_u64(&s->line_word, (uintptr_t)&a->lines[i]);
	s->generation = a->stream_serial;
	atomic_store_relaxed_u32(&line_of(s)->wait, 0);
	atomic_store_release_u64(&line_of(s)->released, abi_stream_released(s->generation, 0));
	return 0;
}

static void line_put(struct tier_stream *s) REQUIRES(s->t->lock)
{
	if (!s->unanswered)
		home_of(s)->stream_used &= ~(1ull << s->number);
	home_of(s)->streams--;
	for (uint32_t i = 0; i < s->moves; i++)
		s->former[i]->streams--;
}

/* In one line. Returns whether it was raised. */
static bool raise_released(struct abi_stream *line, uint64_t released)
{
	uint64_t before = atomic_load_relaxed_u64(&line->released);

	while (before >> 32 == released >> 32 && before < released)
		if (atomic_cas_u64(&line->released, &before, released))
			return true;
	return false;
}

static struct tier_stream *stream_of(struct tier *t, const struct request *rq) REQUIRES(t->lock)
{
	list_each(at, &t->streams) {
		struct tier_stream *s = list_entry(at, struct tier_stream, link);

		if (s->rq == rq)
			return s;
	}
	return NULL;
}

int stream_move(struct tier *t, const struct request *rq)
{
	struct tier_stream *s = stream_of(t, rq);
	struct attachment *a = connection_attachment(t);
	const struct abi_stream *before;
	struct abi_stream *line;

	if (!s || s->moves == STREAM_MOVES_MAX || atomic_load_acquire_u64(&s->layer_word) ||
	    s->number >= a->streams_max || a->stream_used >> s->number & 1)
		return -ENOTCONN;
	before = line_of(s);
	line = &a->lines[s->number];
	a->stream_used |= 1ull << s->number;
	a->streams++;
	if (a->stream_serial < s->generation)
		a->stream_serial = s->generation;
	atomic_store_relaxed_u32(&line->wait, atomic_load_relaxed_u32(&before->wait));
	atomic_store_relaxed_u64(&line->released, abi_stream_released(s->generation, 0));
	atomic_store_release_u64(&a->stream_word[s->number], (uintptr_t)s);
	s->former[s->moves++] = home_of(s); /* who looks at the line at this moment does so there */
	atomic_store_release_u64(&s->home_word, (uintptr_t)a);
	atomic_store_release_u64(&s->line_word, (uintptr_t)line);
	/* Our word before this look; tier_stream_release does the reverse. */
	full_fence();
	raise_released(line, atomic_load_acquire_u64(&before->released));
	return 0;
}

static int submit_stream(struct tier_stream *s, const tier_block *blocks,
			 const struct tier_stream_options *o) REQUIRES(s->t->lock)
{
	struct submission entry;
	int rc = line_get(s);

	if (rc)
		return rc;
	entry = submission_of(s, blocks, o);
	s->range = entry.entry;
	rc = submit_entry(s->t, &entry, &s->rq);
	if (rc == -EAGAIN) {
		submit_collect(s->t);
		rc = submit_entry(s->t, &entry, &s->rq);
	}
	if (rc)
		line_put(s);
	else
		list_push_back(&s->t->streams, &s->link);
	if (rc == 0)
		atomic_store_release_u64(&home_of(s)->stream_word[s->number], (uintptr_t)s);
	return rc;
}

int tier_stream_open(tier_context *c, const tier_block *blocks, uint32_t count,
		     const struct tier_stream_options *options, tier_stream **out)
{
	struct tier_stream_options o;
	struct tier_stream *s;
	int rc = context_check(c);

	if (rc == 0 && !out)
		rc = error_note(-EINVAL, "tier_stream_open: out is NULL");
	if (rc == 0)
		rc = ask_check_list("stream", blocks, count, STREAM_BLOCKS_MAX);
	if (rc == 0)
		rc = options_read(&o, sizeof(o), options);
	if (rc == 0 && !options)
		o.tier = TIER_CXL; /* all zero would be TIER_HBM */
	if (rc == 0)
		rc = check_options(c, &o);
	if (rc == 0)
		rc = attach_ensure(c->t);
	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_note(-ENOMEM, "stream: out of memory");
	*s = (struct tier_stream){ .t = c->t, .c = c, .count = count,
				   .deadline_ns = o.deadline_ns };
	list_init(&s->link);
	LOCK_SCOPE(&s->t->lock);
	do {
		submit_collect(s->t);
		wait_handover(s->t);
		rc = submit_stream(s, blocks, &o);
	} while (rc == -ENOTCONN && s->t->handover_ns);
	if (rc)
		free(s);
	else
		*out = s;
	return rc;
}

/* ---- last leases ----------------------------------------------------------------------------- */

/* Of one layer: how many pages a block has in it, and how many last leases came back. */
struct stream_layer {
	uint32_t pages;
	uint32_t used; /* atomic */
};

/* The layers of the model that the range has: [*first, *end). */
static void layers_of(const struct tier_stream *s, uint32_t *first, uint32_t *end)
{
	const struct abi_geometry *g = &s->c->geometry.abi;

	*first = UINT32_MAX;
	*end = 0;
	for (uint32_t p = 0; p < g->part_count; p++) {
		const struct abi_part *part = &g->part[p];

		if (s->range.part_count && p - s->range.part_first >= s->range.part_count)
			continue;
		*first = part->layer_first < *first ? part->layer_first : *first;
		if (part->layer_first + part->layers > *end)
			*end = part->layer_first + part->layers;
	}
	if (!s->range.layer_count)
		return;
	if (s->range.layer_first + s->range.layer_count < *end)
		*end = (uint32_t)s->range.layer_first + s->range.layer_count;
	*first = s->range.layer_first > *first ? s->range.layer_first : *first;
}

static struct stream_layer *layers_new(const struct tier_stream *s, uint32_t first, uint32_t end)
{
	const struct abi_geometry *g = &s->c->geometry.abi;
	struct stream_layer *layer = calloc(end - first, sizeof(*layer));

	for (uint32_t p = 0; layer && p < g->part_count; p++)
		for (uint32_t k = first; k < end; k++)
			if ((!s->range.part_count ||
			     p - s->range.part_first < s->range.part_count) &&
			    k - g->part[p].layer_first < g->part[p].layers)
				layer[k - first].pages += g->part[p].groups;
	return layer;
}

uint32_t tier_stream_last(tier_stream *s)
{
	uint64_t none = 0;
	uint32_t first, end;

	if (!s || connection_orphaned(s->t->alive))
		return 0;
	if (!atomic_load_acquire_u64(&s->layer_word)) {
		struct stream_layer *layer;

		layers_of(s, &first, &end);
		layer = first < end ? layers_new(s, first, end) : NULL;
		if (!layer)
			return 0;
		if (!atomic_cas_u64(&s->layer_word, &none, (uintptr_t)layer))
			free(layer); /* another thread was faster */
	}
	return TIER_LEASE_LAST | s->number << 8 | (s->generation & 0xff) << 16;
}

uint32_t stream_leased(const struct map *m, uint32_t page, uint32_t flags)
{
	const struct abi_part *part = &m->geometry.part[map_part_of(m, page)];
	uint32_t layer = part->layer_first + (page - part->page_base) / part->groups;

	return 1u << 31 | (flags >> 16 & 0xff) << 22 | (flags >> 8 & 0x3f) << 16 |
	       (layer & 0xffff);
}

/* Layers whose pages were all given back, from the first that is not released yet. */
static void release_used(struct tier_stream *s, const struct stream_layer *layer, uint32_t layers)
{
	uint32_t k = (uint32_t)atomic_load_relaxed_u64(&line_of(s)->released), done = k;

	while (done < layers && done < tier_stream_ready(s) &&
	       atomic_load_relaxed_u32(&layer[done].used) >= layer[done].pages * usable(s))
		done++;
	if (done > k)
		tier_stream_release(s, done);
}

void stream_used(struct tier *t, uint64_t number, uint32_t remembered)
{
	struct attachment *a = connection_attachment(t);
	struct stream_layer *layer;
	struct tier_stream *s;
	uint32_t first, end, k = remembered & 0xffff;

	/* Lines and their serials begin anew with each attachment. */
	if (a->number != number || (remembered >> 16 & 0x3f) >= ABI_STREAMS_MAX)
		return;
	s = (struct tier_stream *)(uintptr_t)atomic_load_acquire_u64(
		&a->stream_word[remembered >> 16 & 0x3f]);
	if (!s || (s->generation & 0xff) != (remembered >> 22 & 0xff))
		return;
	layer = (struct stream_layer *)(uintptr_t)atomic_load_acquire_u64(&s->layer_word);
	layers_of(s, &first, &end);
	if (!layer || k < first || k >= end)
		return;
	atomic_add_u32(&layer[k - first].used, 1);
	release_used(s, layer, end - first);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The stream is over and the layer is not there. */
static int explain(const struct tier_stream *s, uint32_t layer)
{
	static const char *const why[] = { "ended", "is late", "missed blocks", "was dropped" };
	const struct tier_completion *got = &s->rq->completion;
	uint32_t first, end;

	if (got->result == -EMSGSIZE)
		return error_set(-EMSGSIZE, "stream: it needs a window of %llu bytes, more than "
					    "asked for or than the share for streams; ask for "
					    "fewer blocks, or lower stream.share",
				 (unsigned long long)got->aux);
	if (got->result)
		return submit_explain("stream", got);
	layers_of(s, &first, &end);
	if (first + layer >= end)
		return error_set(-ENODATA, "stream: there is no layer %u, its last is %u", layer,
				 end - first - 1);
	return error_set(-ENODATA, "stream: it %s before the layer came",
			 why[got->status <= TIER_DROPPED ? got->status : 0]);
}

static int64_t answer(const struct tier_stream *s)
{
	uint32_t n = usable(s);

	if (n > 0)
		return n;
	return error_note(-ENODATA, "stream: no block of it is left");
}

/* Ask for a wake-up at the layer, at the latest. */
static void want(struct tier_stream *s, uint32_t layer)
{
	uint32_t before = atomic_load_relaxed_u32(&line_of(s)->wait);

	if (!before || layer + 1 < before)
		atomic_store_relaxed_u32(&line_of(s)->wait, layer + 1);
	/* wait before our last look at ready; the daemon does the reverse */
	full_fence();
}

static int64_t wait_layer(struct tier_stream *s, uint32_t layer, uint64_t until_ns)
	REQUIRES(s->t->lock)
{
	for (;;) {
		bool ended;

		want(s, layer);
		submit_collect(s->t);
		ended = s->rq->state == REQUEST_DONE; /* before the look: the line is older */
		if (tier_stream_ready(s) > layer)
			return answer(s);
		if (ended)
			return explain(s, layer);
		if (time_now_ns() >= until_ns)
			return error_note(-ETIMEDOUT, "stream: the layer is not ready yet");
		wait_step(s->t, until_ns);
	}
}

int64_t tier_stream_wait(tier_stream *s, uint32_t layer, uint64_t deadline_ns)
{
	uint64_t until_ns;
	int64_t n;

	if (!s)
		return error_note(-EINVAL, "stream: no handle");
	if (connection_orphaned(s->t->alive))
		return error_note(-EOWNERDEAD, "stream: it belongs to the parent process");
	if (layer == UINT32_MAX)
		return error_note(-ENODATA, "stream: no stream has such a layer");
	if (likely(tier_stream_ready(s) > layer))
		return answer(s);
	until_ns = deadline_ns ? deadline_ns : submit_until(s->deadline_ns, SUBMIT_DEFAULT_NS);
	LOCK_SCOPE(&s->t->lock);
	s->waiters++;
	n = wait_layer(s, layer, until_ns);
	if (!--s->waiters)
		atomic_store_relaxed_u32(&line_of(s)->wait, 0);
	return n;
}

/* ---- letting go ------------------------------------------------------------------------------ */

void tier_stream_release(tier_stream *s, uint32_t layer)
{
	struct abi_stream *line;
	uint64_t released;
	bool raised;

	if (!s || connection_orphaned(s->t->alive))
		return;
	layer = layer < ABI_STREAM_CLOSED ? layer : ABI_STREAM_CLOSED - 1;
	released = abi_stream_released(s->generation, layer);
	do { /* once more where it has moved meanwhile */
		line = line_of(s);
		raised = raise_released(line, released);
		full_fence();
	} while (line_of(s) != line);
	if (raised)
		submit_doorbell(home_of(s));
}

/* Is it still unanswered? Then its id, for a cancel. */
static bool is_open(struct tier_stream *s, uint64_t *wire_id)
{
	LOCK_SCOPE(&s->t->lock);
	submit_collect(s->t);
	*wire_id = s->rq->wire_id;
	return s->rq->state != REQUEST_DONE && !home_of(s)->dead;
}

/* Cancel it and wait until it is answered. */
static void cancel(struct tier_stream *s)
{
	struct submission order = { .entry = { .op = ABI_OP_CANCEL,
					       .klass = ABI_CLASS_DEMAND } };
	struct tier_completion got;

	/* -ENOENT: it ended meanwhile. In either case its own answer comes first. */
	if (is_open(s, &order.entry.handle))
		(void)submit_call(s->t, &order, submit_until(0, SUBMIT_LONG_NS), &got);
}

void tier_stream_close(tier_stream *s)
{
	struct abi_stream *line;

	if (!s || connection_orphaned(s->t->alive))
		return;
	cancel(s);
	LOCK_SCOPE(&s->t->lock);
	submit_collect(s->t);
	s->unanswered = s->rq->state != REQUEST_DONE;
	submit_forget(s->t, s->rq);
	line = line_of(s);
	atomic_store_release_u64(&line->released,
				 atomic_load_relaxed_u64(&line->released) | ABI_STREAM_CLOSED);
	submit_doorbell(home_of(s));
	list_remove(&s->link);
	atomic_store_release_u64(&home_of(s)->stream_word[s->number], 0);
	line_put(s);
	free((void *)(uintptr_t)s->layer_word);
	free(s);
}
