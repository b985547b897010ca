/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two NVMe logs write for each byte put when the trace goes through them, by the core
 * alone: prompts in the trace's order, each putting what of it is not there.
 *
 *   durable log  an engine keeps 70, 85 or 95 % of it: before a prompt puts, the blocks that no
 *                prompt used for longest are deleted, ends of prefixes first, until there is room
 *   cache log    the context's quota is as much of it: at the quota the daemon lets the oldest ends
 *                of prefixes go; and without a quota, where the log goes round
 *
 * Counted are all bytes that went to the device, records, headers, what the cleaner moved and what
 * went back from memory included, once twice the log was written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/clean.h"
#include "bench/replay/replay.h"
#include "bench/replay/shell.h"
#include "tierd/core/unit/policy_ops.h"

#define SEGMENTS 192u
#define MEMORY_BYTES (64u << 20)
#define NONE UINT32_MAX
#define DELETE_MAX 64u /* in one request */
#define ROUND 100u     /* no quota: the log is as full as it can be */

/* What the engine believes to be stored, the one used last first. Blocks by their number. */
struct lru {
	uint32_t *next, *previous; /* of count + 1: the last is the list's head */
	uint32_t head, live, most; /* most 0 = the daemon sees to that */
};

struct wear {
	const struct prepared *p;
	struct shell *s;
	struct lru lru;
	uint8_t (*key)[32]; /* of the present prompt */
	uint64_t log_blocks;
	struct shell_counts from; /* when it was warm */
};

/* ---- the engine's list --------------------------------------------------------------------- */

static bool listed(const struct lru *l, uint32_t n)
{
	return l->next[n] != NONE;
}

static void unlist(struct lru *l, uint32_t n)
{
	l->next[l->previous[n]] = l->next[n];
	l->previous[l->next[n]] = l->previous[n];
	l->next[n] = NONE;
	l->live--;
}

static void list_first(struct lru *l, uint32_t n)
{
	if (listed(l, n))
		unlist(l, n);
	l->next[n] = l->next[l->head];
	l->previous[n] = l->head;
	l->previous[l->next[n]] = n;
	l->next[l->head] = n;
	l->live++;
}

static int lru_open(struct lru *l, uint32_t count, uint32_t most)
{
	l->next = malloc((count + 1) * sizeof(*l->next));
	l->previous = malloc((count + 1) * sizeof(*l->previous));
	if (!l->next || !l->previous)
		return -ENOMEM;
	memset(l->next, 0xff, count * sizeof(*l->next));
	l->head = l->next[count] = l->previous[count] = count;
	l->most = most;
	return 0;
}

/* Delete the oldest until `room` more find it. */
static int make_room(struct wear *w, uint32_t room)
{
	uint8_t key[DELETE_MAX][32];
	struct lru *l = &w->lru;
	int error = 0;

	while (l->most && l->live + room > l->most && l->live && !error) {
		uint32_t n = 0;

		for (; n < DELETE_MAX && l->live && l->live + room > l->most; n++) {
			uint32_t oldest = l->previous[l->head];

			memcpy(key[n], w->p->key[oldest].bytes, sizeof(key[n]));
			unlist(l, oldest);
		}
		error = shell_delete(w->s, (const uint8_t(*)[32])key, n);
	}
	return error;
}

/* ---- the trace ----------------------------------------------------------------------------- */

static int serve(struct wear *w, const struct trace_request *r)
{
	const uint32_t *number = &w->p->number[r->id_first];
	uint32_t hit, fits = r->id_count;
	int error;

	if (w->lru.most && fits > w->lru.most)
		fits = w->lru.most;
	for (uint32_t i = 0; i < fits; i++)
		memcpy(w->key[i], w->p->key[number[i]].bytes, sizeof(*w->key));
	hit = shell_read(w->s, (const uint8_t(*)[32])w->key, fits);
	for (uint32_t i = hit; i-- > 0;) /* the first block was used last: ends go first */
		list_first(&w->lru, number[i]);
	error = make_room(w, fits - hit);
	for (uint32_t at = hit; at < fits && !error; at += REPLAY_PUT_BLOCKS) {
		uint32_t left = fits - at;

		error = shell_put(w->s, (const uint8_t(*)[32])w->key, at,
				  left < REPLAY_PUT_BLOCKS ? left : REPLAY_PUT_BLOCKS);
	}
	for (uint32_t i = fits; i-- > 0 && !error;)
		list_first(&w->lru, number[i]);
	return error;
}

static int wear_open(struct wear *w, const struct prepared *p, uint32_t percent, bool durable)
{
	uint64_t quota = (uint64_t)SEGMENTS * CLEAN_SEGMENT_BLOCKS * percent / 100;
	const struct shell_options options = {
		.policy = POLICY_DEFAULT,
		.page_bytes = CLEAN_PAGE_BYTES,
		.block_tokens = p->trace->block_tokens,
		.bytes = MEMORY_BYTES,
		.put_blocks = REPLAY_PUT_BLOCKS,
		.nvme_bytes = (uint64_t)SEGMENTS * CLEAN_SEGMENT_BYTES + CLEAN_OVERHEAD_BYTES,
		.nvme_segment = CLEAN_SEGMENT_BYTES,
		.nvme_quota = durable || percent == ROUND ? 0 : quota * CLEAN_PAGE_BYTES,
		.admit_all = true,
		.durable = durable,
	};
	int error = lru_open(&w->lru, p->count, durable ? (uint32_t)quota : 0);

	w->p = p;
	w->log_blocks = (uint64_t)SEGMENTS * CLEAN_SEGMENT_BLOCKS;
	w->key = calloc(TRACE_REQUEST_IDS_MAX, sizeof(*w->key));
	if (!error && !w->key)
		error = -ENOMEM;
	return error ? error : shell_open(&w->s, &options);
}

static void wear_close(struct wear *w)
{
	shell_close(w->s);
	free(w->lru.next);
	free(w->lru.previous);
	free(w->key);
}

struct worn {
	double written; /* bytes for each byte put */
	double live;    /* of the log, in percent, in the end */
};

/* Errors: -ERANGE the trace is too short to wear the log. */
static int wear(const struct prepared *p, uint32_t percent, bool durable, struct worn *out)
{
	struct wear w = { .p = p };
	struct shell_counts now = { 0 };
	int error = wear_open(&w, p, percent, durable);

	for (size_t q = 0; q < p->trace->request_count && !error; q++) {
		error = serve(&w, &p->trace->request[q]);
		shell_counts(w.s, &now);
		if (!w.from.put_blocks && now.put_blocks >= 2 * w.log_blocks)
			w.from = now;
	}
	if (!error && (!w.from.put_blocks || now.put_blocks < w.from.put_blocks + w.log_blocks))
		error = -ERANGE;
	if (!error) {
		out->written = (double)(now.device_bytes - w.from.device_bytes) /
			       (double)(now.put_blocks - w.from.put_blocks) / CLEAN_PAGE_BYTES;
		out->live = 100.0 * (double)now.stored_bytes /
			    (double)(w.log_blocks * CLEAN_PAGE_BYTES);
	}
	wear_close(&w);
	return error;
}

static int judge(struct bench *b, const struct prepared *p, uint32_t percent, bool durable)
{
	char name[BENCH_TEXT];
	const struct bench_figure figure = {
		"clean", name, "B/B", "oldest-first cleaning at random, by calculation",
		{ BENCH_RATIO_AT_MOST, 1 }
	};
	struct worn worn = { 0 };
	int error = wear(p, percent, durable, &worn);

	snprintf(name, sizeof(name),
		 "bytes written a byte put, %u%% full, %s log, the trace (%.1f live)", percent,
		 durable ? "durable" : "cache", worn.live);
	if (percent == ROUND)
		snprintf(name, sizeof(name),
			 "bytes written a byte put, cache log going round (%.1f%% live)",
			 worn.live);
	if (error == -ERANGE)
		return bench_judge_missing(b->results, &figure, "the trace is too short");
	if (error)
		return bench_failed("the trace through a log", error);
	/* One that goes round is held to what a log of which 95 % live would cost. */
	return bench_judge_exact(
		b->results, &figure, worn.written,
		clean_oldest_first((percent == ROUND ? clean_full[CLEAN_FILLS - 1] : percent) /
				   100.0));
}

int clean_trace(struct bench *b)
{
	struct trace *t = NULL;
	struct prepared p = { 0 };
	int error = bench_trace(&t, b, 0);

	if (error)
		return error;
	error = prepare(&p, t);
	for (uint32_t durable = 0; durable < 2 && !error; durable++)
		for (uint32_t i = 0; i < CLEAN_FILLS && !error; i++)
			error = judge(b, &p, clean_full[i], durable);
	if (!error)
		error = judge(b, &p, ROUND, false);
	prepared_free(&p);
	trace_close(t);
	return error;
}
