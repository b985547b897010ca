/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share: taking numbers out of the input, patching an image that real code
 * made, the check that a target states, and its seeds. A target is one file fuzz_NAME.c: it defines
 * fuzz_one and fuzz_seeds; main.c does the rest.
 */
#ifndef TIER_TESTS_FUZZ_H
#define TIER_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target's own statement about what must hold; fails the run as a crash does. */
#define FUZZ_CHECK(condition)                                                                      \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fuzz_fail(__FILE__, __LINE__, #condition);                                 \
	} while (0)

static inline __attribute__((noreturn)) void fuzz_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, what);
	abort();
}

/* ---- input -------------------------------------------------------------------------------- */

/* What is left of the input. Taking more than there is gives zeros. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static inline void fuzz_take(struct fuzz_input *in, void *out, size_t bytes)
{
	size_t there = bytes < in->left ? bytes : in->left;

	memset(out, 0, bytes);
	if (there)
		memcpy(out, in->at, there);
	in->at += there;
	in->left -= there;
}

static inline uint8_t fuzz_u8(struct fuzz_input *in)
{
	uint8_t value;

	fuzz_take(in, &value, sizeof(value));
	return value;
}

static inline uint16_t fuzz_u16(struct fuzz_input *in)
{
	uint16_t value;

	fuzz_take(in, &value, sizeof(value));
	return value;
}

static inline uint64_t fuzz_u64(struct fuzz_input *in)
{
	uint64_t value;

	fuzz_take(in, &value, sizeof(value));
	return value;
}

/*
 * Overwrite pieces of an image until the input ends: offset (16 bits, in units of `unit`), length
 * (8 bits; 0 = ends the patches), that many bytes. Small inputs reach all of a large structure.
 */
static inline void fuzz_patch(struct fuzz_input *in, void *image, size_t bytes, size_t unit)
{
	while (in->left > 3) {
		size_t offset = fuzz_u16(in) * unit;
		size_t length = fuzz_u8(in);

		if (!length)
			return;
		if (offset >= bytes) /* wrapped, so that every patch means something */
			offset %= bytes;
		if (length > bytes - offset)
			length = bytes - offset;
		fuzz_take(in, (uint8_t *)image + offset, length);
	}
}

/* ---- seeds -------------------------------------------------------------------------------- */

#define FUZZ_SEED_BYTES 16384u

/* One seed being written; fuzz_seed_end stores it as NAME in the corpus. */
struct fuzz_seed {
	uint8_t byte[FUZZ_SEED_BYTES];
	size_t bytes;
};

static inline void fuzz_put(struct fuzz_seed *s, const void *from, size_t bytes)
{
	if (bytes > sizeof(s->byte) - s->bytes)
		bytes = sizeof(s->byte) - s->bytes;
	memcpy(s->byte + s->bytes, from, bytes);
	s->bytes += bytes;
}

static inline void fuzz_put_u8(struct fuzz_seed *s, uint8_t value)
{
	fuzz_put(s, &value, sizeof(value));
}

static inline void fuzz_put_u16(struct fuzz_seed *s, uint16_t value)
{
	fuzz_put(s, &value, sizeof(value));
}

static inline void fuzz_put_u64(struct fuzz_seed *s, uint64_t value)
{
	fuzz_put(s, &value, sizeof(value));
}

/* A patch, as fuzz_patch reads it. offset is in units. */
static inline void fuzz_put_patch(struct fuzz_seed *s, uint16_t offset, const void *from,
				  uint8_t bytes)
{
	fuzz_put_u16(s, offset);
	fuzz_put_u8(s, bytes);
	fuzz_put(s, from, bytes);
}

void fuzz_seed_end(struct fuzz_seed *s, const char *name);

/* Not 0: what CLOCK_MONOTONIC says, so that a run can be repeated. */
extern uint64_t fuzz_clock_ns;

/* n: the n-th allocation from here fails, alone; 0: none does. */
extern uint32_t fuzz_alloc_left;

/* ---- what a target defines ---------------------------------------------------------------- */

/* Once, before the first input. */
void fuzz_open(void);

/* One input. Must come back from anything. */
void fuzz_one(struct fuzz_input *in);

/* Write seeds made of what the real code makes. */
void fuzz_seeds(void);

#endif
