/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, bytes of pages, and the board's cells; see crash.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "tests/integration/crash.h"

#define VERSION_BITS 32u
#define WORDS (CRASH_PAGE_BYTES / sizeof(uint64_t))

void crash_fail(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "crash: pid %d: %s (library: %s)\n", getpid(), text, tier_error_text());
	fflush(stderr);
	_exit(1);
}

uint64_t crash_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * 0x2545f4914f6cdd1dull;
}

uint32_t crash_below(uint64_t *state, uint32_t below)
{
	return (uint32_t)((crash_random(state) >> 32) * below >> 32);
}

tier_key crash_key(uint32_t worker, uint32_t key)
{
	uint32_t name[2] = { worker, key };
	tier_key out;

	if (tier_key_opaque(&out, name, sizeof(name), NULL))
		crash_fail("a key");
	return out;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static uint64_t tag_of(uint32_t worker, uint32_t key, uint32_t number, uint64_t version)
{
	return (uint64_t)(worker + 1) << 56 | (uint64_t)key << 40 | (uint64_t)number << 32 |
	       (version & UINT32_MAX);
}

static uint64_t word_of(uint64_t tag, size_t i)
{
	uint64_t x = (tag + i) * 0x9e3779b97f4a7c15ull;

	return x ^ x >> 29;
}

void crash_fill(uint8_t *page, uint32_t worker, uint32_t key, uint32_t number, uint64_t version)
{
	uint64_t tag = tag_of(worker, key, number, version), word;

	memcpy(page, &tag, sizeof(tag));
	for (size_t i = 1; i < WORDS; i++) {
		word = word_of(tag, i);
		memcpy(page + i * sizeof(word), &word, sizeof(word));
	}
}

uint64_t crash_verify(const uint8_t *page, uint32_t worker, uint32_t key, uint32_t number)
{
	uint64_t tag, word;

	memcpy(&tag, page, sizeof(tag));
	if (tag >> VERSION_BITS != tag_of(worker, key, number, 0) >> VERSION_BITS)
		crash_fail("worker %u key %u page %u: the page is another's: tag %016llx", worker,
			   key, number, (unsigned long long)tag);
	for (size_t i = 1; i < WORDS; i++) {
		memcpy(&word, page + i * sizeof(word), sizeof(word));
		if (word != word_of(tag, i))
			crash_fail("worker %u key %u page %u: torn or wrong at byte %zu, version "
				   "%llu", worker, key, number, i * sizeof(word),
				   (unsigned long long)(tag & UINT32_MAX));
	}
	return tag & UINT32_MAX;
}

/* ---- cells --------------------------------------------------------------------------------- */

uint64_t crash_cell(enum crash_state state, uint64_t version)
{
	return (uint64_t)state << 56 | version;
}

enum crash_state crash_state_of(uint64_t cell)
{
	return (enum crash_state)(cell >> 56);
}

uint64_t crash_version_of(uint64_t cell)
{
	return cell & ((1ull << 56) - 1);
}

uint64_t crash_look(const struct crash_board *b, uint32_t worker, uint32_t key)
{
	return atomic_load_acquire_u64(&b->worker[worker].cell[key]);
}

void crash_set(struct crash_worker *w, uint32_t key, enum crash_state state, uint64_t version)
{
	atomic_store_release_u64(&w->cell[key], crash_cell(state, version));
}
