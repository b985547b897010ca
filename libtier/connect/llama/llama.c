/*
 * Loads and stores sequences of llama.cpp: a page is one layer's keys or values of a block of
 * tokens, and is copied from where it lies straight into the state that the engine takes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libtier/connect/llama/state.h"
#include "libtier/connect/llama/tier_llama.h"

#define BLOCK_TOKENS 32u
#define TOKENS_MAX (1u << 28)
#define ERROR_BYTES 512u
#define ROUNDS 8 /* of fetching what left before it was copied */

struct tier_llama {
	struct {
		size_t (*get_size)(void *llama, int32_t sequence, uint32_t flags);
		size_t (*get_data)(void *llama, uint8_t *to, size_t bytes, int32_t, uint32_t flags);
		size_t (*set_data)(void *llama, const uint8_t *, size_t bytes, int32_t, uint32_t);
	} engine;
	struct state_shape shape;
	tier_geometry *geometry;
	tier_context *context;
	tier_reader *reader;
	uint32_t block_tokens, put_flags;
	uint32_t fetch_most; /* blocks that there was room for in memory at a time */
	uint32_t stride[2]; /* bytes that a page of keys, of values takes in a put */
	const struct tier_salt *salt;
	struct tier_piece *pieces; /* of one block */
	uint8_t *state; /* of the last load or store: grown, not given back */
	size_t state_room;
	struct tier_llama_loaded loaded;
	char error[ERROR_BYTES];
};

/* A prompt's blocks: what is stored of it; lists with an entry a block, and one for a tail. */
struct prompt {
	struct tier_found *found; /* the memory of all lists begins here */
	tier_block *blocks;
	tier_key *keys;  /* of all its whole blocks */
	tier_key tail;   /* the stored tail's, when it has tokens */
	uint32_t whole;  /* blocks stored, */
	uint32_t tokens; /* and tokens, with the tail */
};

static __attribute__((format(printf, 3, 4))) int fail(tier_llama *d, int error,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->error, sizeof(d->error), format, args);
	va_end(args);
	return error;
}

/* An error of libtier's, with its words; what is none passes. */
static int64_t told(tier_llama *d, int64_t r)
{
	return r < 0 ? fail(d, (int)r, "%s", tier_error_text()) : r;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t blocks_of(const tier_llama *d, uint32_t tokens)
{
	return (tokens + d->block_tokens - 1) / d->block_tokens;
}

/* What d->state held is gone. */
static int room(tier_llama *d, size_t bytes)
{
	if (bytes > d->state_room) {
		free(d->state);
		d->state = malloc(bytes);
		d->state_room = d->state ? bytes : 0;
	}
	return d->state ? 0 : fail(d, -ENOMEM, "no memory for a state of %zu bytes", bytes);
}

/* The sequence's state, into d->state. Returns how many tokens it holds, from the first. */
static int64_t get_state(tier_llama *d, void *llama, int32_t sequence, struct state_shape *shape)
{
	size_t bytes = d->engine.get_size(llama, sequence, 0);
	const char *why;
	int64_t r = room(d, bytes + 1);

	if (r < 0)
		return r;
	if (d->engine.get_data(llama, d->state, bytes, sequence, 0) != bytes)
		return fail(d, -EPROTO, "the engine did not give sequence %d's state", sequence);
	r = state_learn(shape, d->state, bytes, &why);
	return r >= 0 ? r : fail(d, (int)r, "the state of sequence %d is not understood: %s",
				 sequence, why);
}

/* Where the pages of a block, from token `from` on, lie in a state of `cells`. Returns how many. */
static uint32_t pieces_of(tier_llama *d, tier_block block, uint32_t from, uint32_t count,
			  uint32_t cells)
{
	const struct state_shape *s = &d->shape;

	for (uint32_t i = 0; i < 2 * s->layers; i++) {
		uint32_t part = i / s->layers, layer = i % s->layers;
		size_t row = s->part[part].bytes;
		int64_t page = tier_geometry_page(d->geometry, part, layer, 0);

		d->pieces[i] = (struct tier_piece){
			.to = d->state + state_rows_at(s, cells, part, layer) + row * from,
			.page = { block, (uint32_t)page },
			.bytes = (uint32_t)row * least(d->block_tokens, count - from) };
	}
	return 2 * s->layers;
}

/* ---- open --------------------------------------------------------------------------------- */

static int find_functions(tier_llama *d, void *library)
{
	static const char *const names[] = { "llama_state_seq_get_size_ext",
		"llama_state_seq_get_data_ext", "llama_state_seq_set_data_ext" };
	void *f[3];

	for (int i = 0; i < 3; i++) {
		f[i] = dlsym(library ? library : RTLD_DEFAULT, names[i]);
		if (!f[i])
			return fail(d, -ENOSYS, "no function %s: is this llama.cpp, of 2025-08 or "
				    "newer, and its library given?", names[i]);
	}
	memcpy(&d->engine, f, sizeof(f));
	return 0;
}

static int make_geometry(tier_llama *d)
{
	const struct state_shape *s = &d->shape;
	struct tier_part part[2];
	const struct tier_geometry_options o = { .size = sizeof(o),
		.block_tokens = d->block_tokens, .part_count = 2, .part = part };
	int r;

	for (uint32_t p = 0; p < 2; p++) {
		part[p] = (struct tier_part){ .name = p ? "v" : "k", .kind = TIER_KIND_DENSE,
			.layers = s->layers, .groups = 1, .preferred_tier = TIER_CXL,
			.page_bytes = (uint32_t)s->part[p].bytes * d->block_tokens };
		if (s->part[p].bytes > UINT32_MAX / d->block_tokens)
			return fail(d, -EINVAL, "blocks of %u tokens: too large", d->block_tokens);
	}
	r = tier_geometry_new(&d->geometry, &o);
	for (uint32_t p = 0; r == 0 && p < 2; p++) {
		r = tier_geometry_part(d->geometry, p, &part[p]);
		d->stride[p] = part[p].page_stride;
	}
	d->pieces = calloc(2 * (size_t)s->layers, sizeof(*d->pieces));
	if (r == 0 && !d->pieces)
		return fail(d, -ENOMEM, "no memory for the pages of a block");
	return (int)told(d, r);
}

static int open_context(tier_llama *d, const struct tier_llama_options *o)
{
	struct tier_context_options c = { .size = sizeof(c) };
	char elements[32];
	const struct tier_fingerprint f = { .size = sizeof(f), .model = o->model,
		.elements = elements, .layout = "llama.cpp state", .hash = "sha256",
		.block_tokens = d->block_tokens,
		.probe = d->shape.extra, .probe_bytes = d->shape.extra_bytes };
	int r;

	if (o->options)
		memcpy(&c, o->options, o->options->size < sizeof(c) ? o->options->size : sizeof(c));
	c.size = sizeof(c);
	snprintf(elements, sizeof(elements), "ggml-%d/%d", d->shape.part[0].type,
		 d->shape.part[1].type);
	r = tier_fingerprint_digest(c.fingerprint, &f);
	if (r == 0)
		r = tier_context_create(o->tier, o->context ? o->context : "llama", d->geometry, &c,
					&d->context);
	if (r == 0)
		r = tier_reader_open(o->tier, &d->reader);
	return (int)told(d, r);
}

static int open_door(tier_llama *d, const struct tier_llama_options *o)
{
	int64_t r;

	if (!o || o->size < sizeof(*o) || !o->tier || !o->model || !o->llama)
		return fail(d, -EINVAL, "size, tier, model and llama must be given");
	d->block_tokens = o->block_tokens ? o->block_tokens : BLOCK_TOKENS;
	d->fetch_most = UINT32_MAX;
	d->put_flags = o->flags & TIER_LLAMA_DURABLE ? TIER_PUT_DURABLE : 0;
	d->salt = o->salt;
	r = find_functions(d, o->library);
	if (r == 0)
		r = get_state(d, o->llama, o->sequence, &d->shape);
	if (r == 1)
		r = fail(d, -EINVAL, "sequence %d holds one token, not two", o->sequence);
	if (r >= 0)
		r = make_geometry(d);
	return r < 0 ? (int)r : open_context(d, o);
}

int tier_llama_open(tier_llama **out, const struct tier_llama_options *options)
{
	*out = calloc(1, sizeof(**out));
	return *out ? open_door(*out, options) : -ENOMEM;
}

void tier_llama_close(tier_llama *d)
{
	if (!d)
		return;
	tier_reader_close(d->reader);
	tier_context_close(d->context);
	tier_geometry_free(d->geometry);
	free(d->pieces);
	free(d->state);
	free(d);
}

const char *tier_llama_error_text(const tier_llama *d)
{
	return d && d->error[0] ? d->error : "no error";
}

int tier_llama_loaded(const tier_llama *d, struct tier_llama_loaded *out)
{
	if (out->size < sizeof(*out))
		return -EINVAL;
	*out = d->loaded;
	out->size = sizeof(*out);
	return 0;
}

/* ---- match -------------------------------------------------------------------------------- */

/* Look up what is stored of a prompt, whose lists are made if there are none; the caller frees. */
static int64_t prompt_match(tier_llama *d, struct prompt *p, const int32_t *tokens, uint32_t count)
{
	const uint32_t *text = (const uint32_t *)tokens;
	size_t room = blocks_of(d, count) + 1;
	struct tier_tail tail = { .salt = d->salt };
	int64_t r;

	if (!p->found)
		p->found = malloc(room * (sizeof(*p->found) + sizeof(*p->blocks) +
					  sizeof(*p->keys)));
	if (!p->found)
		return fail(d, -ENOMEM, "no memory for the keys of %u tokens", count);
	p->blocks = (tier_block *)(p->found + room);
	p->keys = (tier_key *)(p->blocks + room);
	r = tier_key_chain(p->keys, NULL, d->salt, text, count, d->block_tokens);
	if (r == 0)
		r = tier_match(d->context, p->keys, count / d->block_tokens, p->found);
	if (r < 0)
		return told(d, r);
	p->whole = (uint32_t)r;
	p->tokens = p->whole * d->block_tokens;
	tail.parent = p->whole ? &p->keys[p->whole - 1] : NULL;
	tail.tokens = text + p->tokens;
	tail.count = count - p->tokens;
	r = tail.count ? tier_match_tail(d->context, &tail, &p->tail, &p->found[p->whole]) : 0;
	p->tokens += r > 0 ? (uint32_t)r : 0;
	return r < 0 ? told(d, r) : 0;
}

/* ---- load --------------------------------------------------------------------------------- */

/* Copies the rows of block b into a state of `cells`. False: not all of its pages are in memory. */
static bool copy_block(tier_llama *d, const struct prompt *p, uint32_t b, uint32_t cells)
{
	uint32_t pages = pieces_of(d, p->found[b].block, b * d->block_tokens, cells, cells);

	return tier_scatter(d->reader, d->context, d->pieces, pages, NULL) == (int)pages;
}

/* Bring blocks from `first` on into memory. Returns how many of them are there. */
static uint32_t fetch(tier_llama *d, struct prompt *p, uint32_t first, uint32_t blocks, bool again)
{
	uint64_t begun = now_ns();
	int64_t r;

	r = blocks = least(blocks, d->fetch_most);
	for (uint32_t b = 0; b < blocks; b++) {
		p->blocks[b] = p->found[first + b].block;
		again = again || p->found[first + b].tier > TIER_CXL;
	}
	if (again)
		r = tier_fetch(d->context, p->blocks, blocks, NULL);
	if (r == -ENOSPC && blocks > 1)
		d->fetch_most = blocks / 2;
	d->loaded.fetch_ns += now_ns() - begun;
	return r < 0 ? 0 : (uint32_t)r; /* what cannot be had is computed */
}

/*
 * Copy blocks of a state of `cells`, fetching as many at a time as there is room for in memory.
 * Returns how many tokens came: fewer when blocks have left.
 */
static uint32_t gather(tier_llama *d, struct prompt *p, uint32_t cells)
{
	uint32_t blocks = blocks_of(d, cells), at = 0, misses = 0;

	while (at < blocks && misses <= ROUNDS) {
		uint32_t first = at, end = at + fetch(d, p, at, blocks - at, misses > 0);
		uint64_t begun = now_ns();

		while (at < end && copy_block(d, p, at, cells))
			at++;
		d->loaded.gather_ns += now_ns() - begun;
		misses = at > first ? 0 : misses + 1; /* as there was no room for so many, say */
	}
	return at < blocks ? at * d->block_tokens : cells;
}

/* The state of `cells` tokens in d->state, or of fewer. Returns of how many. */
static int64_t make_state(tier_llama *d, struct prompt *p, uint32_t cells, int32_t sequence)
{
	uint32_t wanted = 0;
	int r = room(d, state_bytes(&d->shape, cells));

	while (r == 0 && cells != wanted) {
		wanted = cells; /* all lies elsewhere in the state of fewer */
		state_write_frame(&d->shape, d->state, cells, sequence);
		cells = gather(d, p, cells);
	}
	return r < 0 ? r : (int64_t)cells;
}

static int set_state(tier_llama *d, void *llama, const struct prompt *p, uint32_t cells,
		     int32_t sequence)
{
	struct tier_llama_loaded *l = &d->loaded;
	size_t bytes = state_bytes(&d->shape, cells);
	uint64_t begun = now_ns();

	l->tokens = cells;
	l->blocks = blocks_of(d, cells);
	l->bytes = l->blocks * tier_geometry_block_bytes(d->geometry);
	for (uint32_t b = 0; b < l->blocks; b++)
		l->from[p->found[b].tier % TIER_COUNT]++;
	if (d->engine.set_data(llama, d->state, bytes, sequence, 0) != bytes)
		return fail(d, -EPROTO, "the engine does not take %u tokens' state", cells);
	l->set_ns = now_ns() - begun;
	return (int)cells;
}

int64_t tier_llama_load(tier_llama *d, void *llama, int32_t sequence, const int32_t *tokens,
			size_t count)
{
	uint64_t begun = now_ns();
	struct prompt p = { 0 };
	int64_t r;

	d->loaded = (struct tier_llama_loaded){ 0 };
	if (count < 2 || count > TOKENS_MAX)
		return count < 2 ? 0 : fail(d, -EINVAL, "a prompt of %zu tokens", count);
	r = prompt_match(d, &p, tokens, (uint32_t)count);
	d->loaded.match_ns = now_ns() - begun;
	if (r == 0)
		r = make_state(d, &p, least(p.tokens, (uint32_t)count - 1), sequence);
	if (r > 0)
		r = set_state(d, llama, &p, (uint32_t)r, sequence);
	free(p.found);
	return r;
}

/* ---- store -------------------------------------------------------------------------------- */

/* The rows of blocks from first on, as tier_put_copy takes them; a tail's page ends in zeroes. */
static uint8_t *copy_rows(tier_llama *d, uint32_t first, uint32_t count, uint32_t cells)
{
	uint32_t blocks = blocks_of(d, count);
	uint8_t *data = calloc(blocks - first, tier_geometry_block_bytes(d->geometry)), *at = data;

	for (uint32_t b = first; data && b < blocks; b++) {
		uint32_t pages = pieces_of(d, (tier_block){ 0 }, b * d->block_tokens, count, cells);

		for (uint32_t i = 0; i < pages; at += d->stride[i++ / d->shape.layers])
			memcpy(at, d->pieces[i].to, d->pieces[i].bytes);
	}
	return data;
}

static int64_t put(tier_llama *d, struct prompt *p, const int32_t *tokens, uint32_t count,
		   uint32_t cells)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = d->put_flags, .depth = p->whole };
	uint32_t whole = count / d->block_tokens, rest = count % d->block_tokens;
	uint8_t *data = copy_rows(d, p->whole, count, cells);
	int64_t r = 0;

	if (!data)
		return fail(d, -ENOMEM, "no memory for the blocks of %u tokens", count);
	o.parent = p->whole ? &p->keys[p->whole - 1] : NULL;
	o.replaces = p->tokens % d->block_tokens ? &p->tail : NULL;
	if (rest)
		r = tier_key_chain(&p->keys[whole], whole ? &p->keys[whole - 1] : NULL, d->salt,
				   (const uint32_t *)tokens + count - rest, rest, rest);
	if (r == 0)
		r = tier_put_copy(d->context, &p->keys[p->whole], blocks_of(d, count) - p->whole,
				  data, &o);
	free(data);
	return r < 0 ? told(d, r) : 0;
}

int64_t tier_llama_store(tier_llama *d, void *llama, int32_t sequence, const int32_t *tokens,
			 size_t count)
{
	struct state_shape shape;
	struct prompt p = { 0 };
	int64_t r, held;

	if (count == 0 || count > TOKENS_MAX)
		return count ? fail(d, -EINVAL, "a prompt of %zu tokens", count) : 0;
	r = prompt_match(d, &p, tokens, (uint32_t)count);
	if (r == 0 && p.tokens < count) {
		held = r = get_state(d, llama, sequence, &shape);
		if (r >= 0 && ((size_t)r < count || memcmp(&shape, &d->shape, sizeof(shape)) != 0))
			r = fail(d, -EINVAL, "sequence %d holds %d tokens, as when the door was "
				 "opened, but %zu are to be stored", sequence, (int)held, count);
		if (r >= 0)
			r = put(d, &p, tokens, (uint32_t)count, (uint32_t)held);
		if (r == 0 || r == -EBADMSG) /* of another's, who computed them in other steps */
			r = prompt_match(d, &p, tokens, (uint32_t)count);
	}
	free(p.found);
	return r < 0 ? r : (int64_t)p.tokens;
}
