/* SPDX-License-Identifier: Apache-2.0 */
/* A sparse layer in memory of the device, and graphs of its kernels; see layer.h. */
#include "cuda/device/layer.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/test/outside.h"
#include "libtier/base/time.h"

#define REPEATS_MOST 32u
#define ROUNDS 5u
#define CTAS_PER_SM 2u
#define KEY_BYTES ((uint64_t)MSA_TOKENS * MSA_DIM * 2) /* of a block */
#define TEMPLATE_BLOCKS 32u

/* ---- memory: what the host writes goes there as one ------------------------------------------ */

struct image {
	uint64_t at; /* as kernels see it */
	unsigned char *host;
	uint64_t used, bytes;
};

static uint64_t place(struct image *i, uint64_t bytes)
{
	const uint64_t offset = i->used;

	i->used += (bytes + 255) / 256 * 256;
	return offset;
}

static void *host_of(const struct image *i, uint64_t offset)
{
	return i->host + offset;
}

static cuda_result copy_in(const struct door *d, uint64_t at, const void *from, uint64_t bytes)
{
	cuda_result told = d->cu.copy(at, (uintptr_t)from, bytes, d->stream);

	return told ? told : d->cu.stream_wait(d->stream);
}

static cuda_result take(struct door *d, uint64_t bytes, struct door_memory *out)
{
	cuda_result told = door_take(d, bytes, out);

	if (told == 0)
		outside_allow((const void *)(uintptr_t)out->seen, bytes, true);
	return told;
}

/* A device address from one that the kernels know. */
static void *pointer(uint64_t at)
{
	return (void *)(uintptr_t)at;
}

/* ---- what is in it --------------------------------------------------------------------------- */

void layer_fill_pages(const struct layer *l, void *to)
{
	uint32_t seed = 11;

	msa_fill(to, l->page_bytes / (MSA_DIM * 2), MSA_EXACT, &seed);
}

/* The same keys again and again: what they are worth nobody times. */
static cuda_result fill_keys(struct layer *l)
{
	uint16_t *some = malloc(TEMPLATE_BLOCKS * KEY_BYTES);
	cuda_result told = some ? 0 : CUDA_OUT_OF_MEMORY;
	uint32_t seed = 5;

	if (some)
		msa_fill(some, TEMPLATE_BLOCKS * MSA_TOKENS, MSA_EXACT, &seed);
	for (uint32_t set = 0; set < LAYER_SETS; set++)
		for (uint32_t b = 0; b < l->blocks && told == 0; b += TEMPLATE_BLOCKS) {
			const uint32_t n = l->blocks - b < TEMPLATE_BLOCKS ? l->blocks - b
									    : TEMPLATE_BLOCKS;

			told = copy_in(l->d, l->keys[set].at + b * KEY_BYTES, some, n * KEY_BYTES);
		}
	free(some);
	return told;
}

static cuda_result fill_pages(struct layer *l)
{
	void *some = malloc(l->page_bytes);
	cuda_result told;

	if (!some)
		return CUDA_OUT_OF_MEMORY;
	layer_fill_pages(l, some);
	told = copy_in(l->d, l->pages.at, some, l->page_bytes);
	free(some);
	return told;
}

/* Page of head h and block b: those of a repeat lie side by side, and then it begins anew. */
static void write_tables(const struct layer *l, uint64_t *word, uint64_t pages)
{
	for (uint32_t h = 0; h < LAYER_HEADS; h++)
		for (uint32_t b = 0; b < l->blocks; b++)
			word[(uint64_t)h * l->blocks + b] =
				pages + ((uint64_t)b * LAYER_HEADS + h) * MSA_PAGE_BYTES %
						l->page_bytes;
}

cuda_result layer_pages_at(struct layer *l, uint64_t pages)
{
	const uint64_t bytes = (uint64_t)LAYER_HEADS * l->blocks * sizeof(uint64_t);
	uint64_t *word = malloc(bytes);
	cuda_result told;

	if (!word)
		return CUDA_OUT_OF_MEMORY;
	write_tables(l, word, pages);
	told = copy_in(l->d, l->rest.at + (l->table_of[1] - l->rest.seen), word, bytes);
	free(word);
	l->layer.page = l->main.page = pointer(l->table_of[1]);
	return told;
}

static void write_index(struct layer *l, struct image *i)
{
	const uint64_t q = place(i, LAYER_HEADS * MSA_DIM * 2), table = place(i, 4);
	const uint64_t position = place(i, LAYER_HEADS * 4);
	const uint64_t page = place(i, (uint64_t)LAYER_SETS * l->blocks * 8);
	const uint64_t score = place(i, (uint64_t)LAYER_HEADS * l->blocks * 4);
	const uint64_t chosen = place(i, LAYER_HEADS * MSA_TOP * 4);
	uint32_t seed = 3;

	msa_fill(host_of(i, q), LAYER_HEADS, MSA_EXACT_Q, &seed);
	for (uint32_t h = 0; h < LAYER_HEADS; h++)
		((uint32_t *)host_of(i, position))[h] = l->blocks * MSA_TOKENS - 1;
	for (uint32_t set = 0; set < LAYER_SETS; set++) {
		uint64_t *word = (uint64_t *)host_of(i, page) + (uint64_t)set * l->blocks;

		for (uint32_t b = 0; b < l->blocks; b++)
			word[b] = l->keys[set].seen + b * KEY_BYTES;
		l->index[set] = (struct msa_index){
			.q = pointer(i->at + q),
			.position = pointer(i->at + position),
			.table = pointer(i->at + table),
			.page = pointer(i->at + page + (uint64_t)set * l->blocks * 8),
			.score = pointer(i->at + score),
			.chosen = pointer(i->at + chosen),
			.requests = 1, .rows = LAYER_HEADS, .blocks = l->blocks, .span = l->span,
		};
	}
}

static void write_decode(struct layer *l, struct image *i)
{
	const uint64_t q = place(i, LAYER_HEADS * MSA_ROWS * MSA_DIM * 2);
	const uint64_t position = place(i, LAYER_HEADS * 4), table = place(i, LAYER_HEADS * 4);
	const uint64_t parts = (uint64_t)LAYER_HEADS * MSA_TOP * MSA_ROWS;
	const uint64_t part = place(i, parts * MSA_DIM * 4), state = place(i, parts * 2 * 4);
	const uint64_t out = place(i, LAYER_OUT * 4);
	const uint64_t mains = place(i, (uint64_t)l->repeats * LAYER_HEADS * MSA_TOP * 4);
	uint32_t seed = 9;

	for (uint32_t n = 0; n < 2; n++)
		l->table_of[n] = i->at + place(i, (uint64_t)LAYER_HEADS * l->blocks * 8);
	write_tables(l, host_of(i, l->table_of[0] - i->at), l->pages.seen);
	msa_fill(host_of(i, q), LAYER_HEADS * MSA_ROWS, MSA_EXACT_Q, &seed);
	for (uint32_t h = 0; h < LAYER_HEADS; h++) {
		((uint32_t *)host_of(i, position))[h] = l->blocks * MSA_TOKENS - 1;
		((uint32_t *)host_of(i, table))[h] = h;
	}
	for (uint32_t n = 0; n < l->repeats * LAYER_HEADS * MSA_TOP; n++)
		((int32_t *)host_of(i, mains))[n] =
			(int32_t)(n / (LAYER_HEADS * MSA_TOP) * MSA_TOP + n % MSA_TOP);
	l->layer = (struct msa_decode){
		.q = pointer(i->at + q), .chosen = l->index[0].chosen,
		.position = pointer(i->at + position), .table = pointer(i->at + table),
		.page = pointer(l->table_of[0]), .part = pointer(i->at + part),
		.state = pointer(i->at + state), .out = pointer(i->at + out),
		.queries = LAYER_HEADS, .rows = MSA_ROWS, .blocks = l->blocks, .scale_log2 = 1,
	};
	l->main = l->layer;
	l->main.chosen = pointer(i->at + mains);
}

static cuda_result fill_rest(struct layer *l)
{
	struct image i = { .at = l->rest.seen, .bytes = l->rest.bytes };
	cuda_result told;

	i.host = calloc(1, i.bytes);
	if (!i.host)
		return CUDA_OUT_OF_MEMORY;
	write_index(l, &i);
	write_decode(l, &i);
	told = i.used <= i.bytes ? copy_in(l->d, l->rest.at, i.host, i.used) : CUDA_INVALID_VALUE;
	free(i.host);
	return told;
}

cuda_result layer_open(struct layer *l, struct door *d, uint32_t tokens)
{
	int32_t sms = 1;
	cuda_result told = d->cu.device_attribute(&sms, CUDA_ATTRIBUTE_MULTIPROCESSORS, 0);

	*l = (struct layer){ .d = d, .blocks = tokens / MSA_TOKENS };
	l->repeats = l->blocks / MSA_TOP < REPEATS_MOST ? l->blocks / MSA_TOP : REPEATS_MOST;
	l->page_bytes = l->repeats * LAYER_MAIN_BYTES;
	/* As many CTAs as there is room for at a time. */
	sms = sms < 1 ? 1 : sms;
	l->span = (l->blocks + (uint32_t)sms * CTAS_PER_SM - 1) / ((uint32_t)sms * CTAS_PER_SM);
	l->span = l->span < MSA_SPAN_MOST ? l->span : MSA_SPAN_MOST;
	for (uint32_t set = 0; set < LAYER_SETS && told == 0; set++)
		told = take(d, l->blocks * KEY_BYTES, &l->keys[set]);
	if (told == 0)
		told = take(d, l->page_bytes, &l->pages);
	if (told == 0)
		told = take(d, (4u << 20) + (uint64_t)l->blocks * 128, &l->rest);
	if (told == 0)
		told = fill_keys(l);
	if (told == 0)
		told = fill_pages(l);
	return told ? told : fill_rest(l);
}

void layer_close(struct layer *l)
{
	for (uint32_t set = 0; set < LAYER_SETS; set++)
		door_give_back(l->d, &l->keys[set]);
	door_give_back(l->d, &l->pages);
	door_give_back(l->d, &l->rest);
}

cuda_result layer_out(struct layer *l, float *out)
{
	const uint64_t at = l->rest.at + ((uintptr_t)l->layer.out - l->rest.seen);
	cuda_result told = l->d->cu.copy((uintptr_t)out, at, LAYER_OUT * sizeof(*out),
					 l->d->stream);

	return told ? told : l->d->cu.stream_wait(l->d->stream);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static cuda_result add_decode(struct door *d, const struct msa_decode *p)
{
	cuda_result told = door_launch(d, "msa_decode_part", p->queries * MSA_TOP, MSA_THREADS,
				       MSA_DECODE_SHARED, p);

	return told ? told : door_launch(d, "msa_decode_merge", p->queries, MSA_THREADS, 0, p);
}

static cuda_result add_layer(struct layer *l, const struct msa_index *i)
{
	const uint32_t spans = (i->blocks + i->span - 1) / i->span;
	cuda_result told = door_launch(l->d, "msa_index_score_bf16", i->requests * spans,
				       MSA_THREADS, MSA_SCORE_SHARED(2), i);

	if (told == 0)
		told = door_launch(l->d, "msa_index_choose", i->requests * i->rows, MSA_THREADS,
				   MSA_CHOOSE_SHARED(i->blocks), i);
	return told ? told : add_decode(l->d, &l->layer);
}

/* What is launched until then is captured. The first launch of a kernel may load it: not here. */
static cuda_result finish(struct door *d, cuda_result told, struct cuda_run **out)
{
	struct cuda_graph *graph = NULL;
	cuda_result end = d->starts.capture_end(d->stream, &graph);

	told = told ? told : end;
	return told ? told : d->starts.graph_make(out, graph, 0);
}

cuda_result layer_graph(struct layer *l, uint32_t count, struct cuda_run **out)
{
	cuda_result told = add_layer(l, &l->index[0]);

	if (told == 0)
		told = l->d->cu.stream_wait(l->d->stream);
	if (told == 0)
		told = l->d->starts.capture_begin(l->d->stream, CUDA_CAPTURE_RELAXED);
	if (told)
		return told;
	for (uint32_t n = 0; n < count && told == 0; n++)
		told = add_layer(l, &l->index[n % LAYER_SETS]);
	return finish(l->d, told, out);
}

cuda_result layer_main_graph(struct layer *l, struct cuda_run **out)
{
	struct msa_decode p = l->main;
	cuda_result told = add_decode(l->d, &p);

	if (told == 0)
		told = l->d->cu.stream_wait(l->d->stream);
	if (told == 0)
		told = l->d->starts.capture_begin(l->d->stream, CUDA_CAPTURE_RELAXED);
	if (told)
		return told;
	for (uint32_t n = 0; n < l->repeats && told == 0; n++) {
		told = add_decode(l->d, &p);
		p.chosen += LAYER_HEADS * MSA_TOP;
	}
	return finish(l->d, told, out);
}

cuda_result layer_time(struct door *d, struct cuda_run *run, uint64_t *ns)
{
	cuda_result told = 0;

	*ns = UINT64_MAX;
	for (uint32_t i = d->window ? ROUNDS : 0; i <= ROUNDS && told == 0; i++) {
		const uint64_t since = time_now_ns();
		uint64_t took;

		told = d->starts.graph_launch(run, d->stream);
		if (told == 0)
			told = d->cu.stream_wait(d->stream);
		took = time_now_ns() - since;
		*ns = i && took < *ns ? took : *ns; /* the first is not counted */
	}
	return told;
}
