/* SPDX-License-Identifier: Apache-2.0 */
/* A trace against the core alone; see replay.h, shell.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/replay/replay.h"
#include "bench/replay/shell.h"
#include "libtier/base/time.h"

#define TAKE_IDS 1024u /* keys copied at once, but for a request that has more */

/* Beside its segments, of which one in 16 bytes is summary. */
#define STORE_OVERHEAD (2u << 20)

static int serve(struct shell *s, struct outcome *out, const struct trace *t,
		 const struct trace_request *r, const uint8_t (*key)[32])
{
	uint32_t hit = shell_read(s, key, r->id_count);
	int error = 0;

	outcome_add(out, t, r, hit);
	for (uint32_t at = hit; at < r->id_count && !error; at += REPLAY_PUT_BLOCKS) {
		uint32_t left = r->id_count - at;

		error = shell_put(s, key, at, left < REPLAY_PUT_BLOCKS ? left : REPLAY_PUT_BLOCKS);
	}
	return error;
}

/* Processor time: it never waits, and others may be using the machine. */
static uint64_t cpu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Requests from q on whose keys are copied at once; returns the one behind them. */
static size_t take(uint8_t (*key)[32], const struct prepared *p, size_t q)
{
	uint32_t count = 0;

	for (; q < p->trace->request_count; q++) {
		const struct trace_request *r = &p->trace->request[q];

		if (count && count + r->id_count > TAKE_IDS)
			break;
		for (uint32_t i = 0; i < r->id_count; i++)
			memcpy(key[count++], p->key[p->number[r->id_first + i]].bytes,
			       sizeof(*key));
	}
	return q;
}

/*
 * The keys of some requests stand side by side before the clock runs, as an engine has them; of
 * some, for the clock takes longer than a short request.
 */
static int replay(struct outcome *out, const struct prepared *p, struct shell *s)
{
	uint8_t(*key)[32] = calloc(TRACE_REQUEST_IDS_MAX, sizeof(*key));
	uint64_t ns = 0;
	int error = key ? 0 : -ENOMEM;

	for (size_t q = 0; q < p->trace->request_count && !error;) {
		size_t end = take(key, p, q);
		uint64_t begin_ns = cpu_now_ns();

		for (uint32_t at = 0; q < end && !error; q++) {
			const struct trace_request *r = &p->trace->request[q];

			error = serve(s, out, p->trace, r, (const uint8_t(*)[32])key + at);
			at += r->id_count;
		}
		ns += cpu_now_ns() - begin_ns;
	}
	out->seconds = (double)ns / 1e9;
	free(key);
	return error;
}

static int replay_shell(struct outcome *out, const struct prepared *p,
			const struct shell_options *options)
{
	struct shell_counts counts;
	struct shell *s = NULL;
	int error = shell_open(&s, options);

	*out = (struct outcome){ .hit = out->hit };
	if (error)
		return error;
	error = replay(out, p, s);
	shell_counts(s, &counts);
	out->put_blocks = counts.put_blocks;
	out->dropped_blocks = counts.dropped_blocks;
	out->fetched_blocks = counts.fetched_blocks;
	out->device_bytes = counts.device_bytes;
	shell_close(s);
	return error;
}

static struct shell_options options_of(const struct prepared *p, const char *policy,
				       uint64_t capacity)
{
	return (struct shell_options){
		.policy = policy,
		.page_bytes = REPLAY_PAGE_BYTES,
		.block_tokens = p->trace->block_tokens,
		.bytes = capacity * REPLAY_PAGE_BYTES,
		.put_blocks = REPLAY_PUT_BLOCKS,
	};
}

int replay_core(struct outcome *out, const struct prepared *p, const char *policy,
		uint64_t capacity)
{
	const struct shell_options options = options_of(p, policy, capacity);

	return replay_shell(out, p, &options);
}

int replay_flash(struct outcome *out, const struct prepared *p, const char *policy,
		 const uint64_t capacity[2], bool admit_all)
{
	struct shell_options options = options_of(p, policy, capacity[0]);

	options.nvme_bytes = capacity[1] * REPLAY_PAGE_BYTES / 15 * 16 + STORE_OVERHEAD;
	options.admit_all = admit_all;
	return replay_shell(out, p, &options);
}
