/*
 * Loads and stores sequences of llama.cpp: a page is one layer's keys or values of a block of
 * tokens, and is copied from where it lies straight into the state that the engine takes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <errno.h>
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
	struct tier_part part[2]; /* keys, values */
	const struct tier_salt *salt;
	struct tier_piece *pieces; /* the pages of one block */
	uint8_t *state; /* of the last load or store: grown, not given back */
	size_t state_room, list_room;
	/* The prompt that was looked up: lists with an entry a block, and one for a tail. */
	struct tier_found *found; /* the memory of all lists begins here */
	tier_block *blocks;
	tier_key *keys;  /* of all its whole blocks */
	tier_key tail;   /* the stored tail's, when it has tokens */
	uint32_t whole;  /* blocks stored, */
	uint32_t tokens; /* and tokens, with the tail */
	struct tier_llama_loaded loaded;
	char error[ERROR_BYTES];
};

/* The error, and what the handle says of it; told: of libtier's own, its words. No side effects. */
#define fail(d, error_, ...) (snprintf((d)->error, sizeof((d)->error), __VA_ARGS__), (error_))
#define least(a, b) ((a) < (b) ? (a) : (b))
#define told(d, result) ((result) < 0 ? fail(d, result, "%s", tier_error_text()) : (result))

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
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

/*
 * The sequence's state, into d->state; its shape is learnt at first, then the same. Returns how
 * many tokens it holds, from the first.
 */
static int64_t get_state(tier_llama *d, void *llama, int32_t sequence)
{
	size_t bytes = d->engine.get_size(llama, sequence, 0);
	const char *why;
	struct state_shape shape;
	int64_t r = room(d, bytes + 1);

	if (r < 0)
		return r;
	if (d->engine.get_data(llama, d->state, bytes, sequence, 0) != bytes)
		return fail(d, -EPROTO, "the engine did not give sequence %d's state", sequence);
	r = state_learn(&shape, d->state, bytes, &why);
	if (r < 0)
		return fail(d, (int)r, "the state of sequence %d: %s", sequence, why);
	if (d->context && memcmp(&shape, &d->shape, sizeof(shape)) != 0)
		return fail(d, -EINVAL, "sequence %d is not as when the door was opened", sequence);
	d->shape = shape;
	return r;
}

/* Where the pages of block b of `count` tokens lie in a state of `cells`. Returns how many. */
static uint32_t pieces_of(tier_llama *d, uint32_t b, uint32_t count, uint32_t cells)
{
	const struct state_shape *s = &d->shape;
	uint32_t from = b * d->block_tokens, tokens = least(d->block_tokens, count - from);

	for (uint32_t i = 0; i < 2 * s->layers; i++) {
		uint32_t part = i / s->layers, layer = i % s->layers;
		size_t row = s->part[part].bytes;

		d->pieces[i].to = d->state + state_rows_at(s, cells, part, layer) + row * from;
		d->pieces[i].page.block = d->found[b].block;
		d->pieces[i].page.page = d->part[part].page_base + layer;
		d->pieces[i].bytes = (uint32_t)row * tokens;
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
	const struct tier_geometry_options o = { .size = sizeof(o),
		.block_tokens = d->block_tokens, .part_count = 2, .part = d->part };
	int r;

	for (uint32_t p = 0; p < 2; p++) {
		d->part[p] = (struct tier_part){ .name = p ? "v" : "k", .kind = TIER_KIND_DENSE,
			.layers = s->layers, .groups = 1, .preferred_tier = TIER_CXL,
			.page_bytes = (uint32_t)least(s->part[p].bytes * d->block_tokens,
						      UINT32_MAX) };
	}
	d->pieces = calloc(2 * (size_t)s->layers, sizeof(*d->pieces));
	if (!d->pieces)
		return fail(d, -ENOMEM, "no memory for the pages of a block");
	r = tier_geometry_new(&d->geometry, &o);
	for (uint32_t p = 0; r == 0 && p < 2; p++)
		r = tier_geometry_part(d->geometry, p, &d->part[p]);
	return told(d, r);
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
		memcpy(&c, o->options, least(o->options->size, sizeof(c)));
	c.size = sizeof(c);
	snprintf(elements, sizeof(elements), "ggml-%d/%d", d->shape.part[0].type,
		 d->shape.part[1].type);
	r = tier_fingerprint_digest(c.fingerprint, &f);
	r = r ? r : tier_context_create(o->tier, o->context ? o->context : "llama", d->geometry, &c,
					&d->context);
	r = r ? r : tier_reader_open(o->tier, &d->reader);
	return told(d, r);
}

int tier_llama_open(tier_llama **out, const struct tier_llama_options *o)
{
	tier_llama *d = *out = calloc(1, sizeof(*d));
	int64_t r;

	if (!d)
		return -ENOMEM;
	d->loaded.size = sizeof(d->loaded);
	if (!o || o->size < sizeof(*o) || !o->tier || !o->model || !o->llama)
		return fail(d, -EINVAL, "size, tier, model and llama must be given");
	d->block_tokens = o->block_tokens ? o->block_tokens : BLOCK_TOKENS;
	d->fetch_most = UINT32_MAX;
	d->put_flags = o->flags & TIER_LLAMA_DURABLE ? TIER_PUT_DURABLE : 0;
	d->salt = o->salt;
	r = find_functions(d, o->library);
	r = r ? r : get_state(d, o->llama, o->sequence);
	if (r == 1)
		r = fail(d, -EINVAL, "sequence %d holds one token, not two", o->sequence);
	if (r >= 0)
		r = make_geometry(d);
	return r < 0 ? (int)r : open_context(d, o);
}

void tier_llama_close(tier_llama *d)
{
	if (!d)
		return;
	tier_reader_close(d->reader);
	tier_context_close(d->context);
	tier_geometry_free(d->geometry);
	free(d->found);
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
	return 0;
}

/* ---- match -------------------------------------------------------------------------------- */

/* Look up what is stored of a prompt. */
static int64_t match(tier_llama *d, const int32_t *tokens, uint32_t count)
{
	struct tier_tail tail = { .salt = d->salt, .tokens = (const uint32_t *)tokens };
	size_t room = blocks_of(d, count) + 1;
	int64_t r;

	if (room > d->list_room) {
		free(d->found);
		d->found = calloc(room, sizeof(*d->found) + sizeof(*d->blocks) + sizeof(*d->keys));
		d->list_room = d->found ? room : 0;
	}
	if (!d->found)
		return fail(d, -ENOMEM, "no memory for the keys of %u tokens", count);
	d->blocks = (tier_block *)(d->found + d->list_room);
	d->keys = (tier_key *)(d->blocks + d->list_room);
	r = tier_key_chain(d->keys, NULL, d->salt, tail.tokens, count, d->block_tokens);
	r = r ? r : tier_match(d->context, d->keys, count / d->block_tokens, d->found);
	d->whole = r > 0 ? (uint32_t)r : 0;
	d->tokens = d->whole * d->block_tokens;
	tail.parent = d->whole ? &d->keys[d->whole - 1] : NULL;
	tail.tokens += d->tokens;
	tail.count = count - d->tokens;
	if (r >= 0)
		r = tier_match_tail(d->context, &tail, &d->tail, &d->found[d->whole]);
	d->tokens += r > 0 ? (uint32_t)r : 0;
	return r < 0 ? told(d, r) : 0;
}

/* ---- load --------------------------------------------------------------------------------- */

/* Bring blocks from `first` on into memory. Returns how many of them are there. */
static uint32_t fetch(tier_llama *d, uint32_t first, uint32_t blocks, bool again)
{
	uint64_t begun = now_ns();
	int64_t r = blocks = least(blocks, d->fetch_most);

	for (uint32_t b = 0; b < blocks; b++) {
		d->blocks[b] = d->found[first + b].block;
		again = again || d->found[first + b].tier > TIER_CXL;
	}
	if (again)
		r = tier_fetch(d->context, d->blocks, blocks, NULL);
	if (r == -ENOSPC && blocks > 1)
		d->fetch_most = blocks / 2;
	d->loaded.fetch_ns += now_ns() - begun;
	return r < 0 ? 0 : (uint32_t)r; /* what cannot be had is computed */
}

/*
 * Copy blocks of a state of `cells`, fetching as many at a time as there is room for in memory.
 * Returns how many tokens came: fewer when blocks have left.
 */
static uint32_t gather(tier_llama *d, uint32_t cells)
{
	uint32_t blocks = blocks_of(d, cells), at = 0, misses = 0;

	while (at < blocks && misses <= ROUNDS) {
		uint32_t first = at, end = at + fetch(d, at, blocks - at, misses > 0);
		uint64_t begun = now_ns();

		for (; at < end; at++) {
			uint32_t n = pieces_of(d, at, cells, cells);

			if (tier_scatter(d->reader, d->context, d->pieces, n, NULL) < (int)n)
				break;
		}
		d->loaded.gather_ns += now_ns() - begun;
		misses = at > first ? 0 : misses + 1; /* as there was no room for so many, say */
	}
	return at < blocks ? at * d->block_tokens : cells;
}

int64_t tier_llama_load(tier_llama *d, void *llama, int32_t sequence, const int32_t *tokens,
			size_t count)
{
	uint64_t begun = now_ns(), bytes;
	struct tier_llama_loaded *l = &d->loaded;
	uint32_t wanted = 0, cells;
	int64_t r;

	*l = (struct tier_llama_loaded){ .size = sizeof(*l) };
	if (count < 2 || count > TOKENS_MAX)
		return count < 2 ? 0 : fail(d, -EINVAL, "a prompt of %zu tokens", count);
	r = match(d, tokens, (uint32_t)count);
	l->match_ns = now_ns() - begun;
	cells = least(d->tokens, (uint32_t)count - 1);
	r = r ? r : room(d, state_bytes(&d->shape, cells));
	while (r == 0 && cells != wanted) {
		wanted = cells; /* all lies elsewhere in the state of fewer */
		state_write_frame(&d->shape, d->state, cells, sequence);
		cells = gather(d, cells);
	}
	if (r < 0 || cells == 0)
		return r;
	l->tokens = cells;
	l->blocks = blocks_of(d, cells);
	l->bytes = l->blocks * tier_geometry_block_bytes(d->geometry);
	for (uint32_t b = 0; b < l->blocks; b++)
		l->from[d->found[b].tier % TIER_COUNT]++;
	begun = now_ns();
	bytes = state_bytes(&d->shape, cells);
	if (d->engine.set_data(llama, d->state, bytes, sequence, 0) != bytes)
		return fail(d, -EPROTO, "the engine does not take %u tokens' state", cells);
	l->set_ns = now_ns() - begun;
	return cells;
}

/* ---- store -------------------------------------------------------------------------------- */

/* Put the blocks that are not stored of a state of `cells`; a tail's page ends in zeroes. */
static int64_t put(tier_llama *d, const int32_t *tokens, uint32_t count, uint32_t cells)
{
	struct tier_put_options o = { .size = sizeof(o), .flags = d->put_flags, .depth = d->whole };
	uint32_t whole = count / d->block_tokens, rest = count % d->block_tokens;
	uint32_t blocks = blocks_of(d, count) - d->whole;
	uint8_t *data = calloc(blocks, tier_geometry_block_bytes(d->geometry)), *at = data;
	int64_t r = 0;

	if (!data)
		return fail(d, -ENOMEM, "no memory for the blocks of %u tokens", count);
	for (uint32_t b = 0; b < blocks; b++) {
		uint32_t pages = pieces_of(d, d->whole + b, count, cells);

		for (uint32_t i = 0; i < pages; at += d->part[i++ / d->shape.layers].page_stride)
			memcpy(at, d->pieces[i].to, d->pieces[i].bytes);
	}
	o.parent = d->whole ? &d->keys[d->whole - 1] : NULL;
	o.replaces = d->tokens % d->block_tokens ? &d->tail : NULL;
	if (rest)
		r = tier_key_chain(&d->keys[whole], whole ? &d->keys[whole - 1] : NULL, d->salt,
				   (const uint32_t *)tokens + count - rest, rest, rest);
	r = r ? r : tier_put_copy(d->context, &d->keys[d->whole], blocks, data, &o);
	free(data);
	return r < 0 ? told(d, r) : 0;
}

int64_t tier_llama_store(tier_llama *d, void *llama, int32_t sequence, const int32_t *tokens,
			 size_t count)
{
	int64_t r, held;

	if (count == 0 || count > TOKENS_MAX)
		return count ? fail(d, -EINVAL, "a prompt of %zu tokens", count) : 0;
	r = match(d, tokens, (uint32_t)count);
	if (r < 0 || d->tokens == count)
		return r < 0 ? r : (int64_t)count;
	held = get_state(d, llama, sequence);
	if (held >= 0 && (size_t)held < count)
		return fail(d, -EINVAL, "sequence %d holds %d tokens; %zu are to be stored",
			    sequence, (int)held, count);
	r = held < 0 ? held : put(d, tokens, (uint32_t)count, (uint32_t)held);
	if (r == 0 || r == -EBADMSG) /* of another's, who computed them in other steps */
		r = match(d, tokens, (uint32_t)count);
	return r < 0 ? r : (int64_t)d->tokens;
}
