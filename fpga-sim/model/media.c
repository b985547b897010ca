/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of flash (media.h): mapped, not touched, so that only lines in use cost memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "media.h"

static void *take(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int media_open(struct media *m, uint64_t lines, uint32_t line_log)
{
	*m = (struct media){ .lines = lines, .line_bytes = 64u << line_log,
			     .poison_words = line_log > 6 ? 1u << (line_log - 6) : 1 };
	m->bytes = take(lines * m->line_bytes);
	m->poison = take(lines * m->poison_words * 8);
	m->known = take(lines);
	return m->bytes && m->poison && m->known ? 0 : -ENOMEM;
}

void media_close(struct media *m)
{
	if (m->bytes)
		munmap(m->bytes, m->lines * m->line_bytes);
	if (m->poison)
		munmap(m->poison, m->lines * m->poison_words * 8);
	if (m->known)
		munmap(m->known, m->lines);
}

uint8_t *media_line(void *arg, uint64_t line, uint64_t **poison)
{
	struct media *m = arg;
	uint8_t *bytes = m->bytes + line * m->line_bytes;

	*poison = m->poison + line * m->poison_words;
	if (!m->known[line]) {
		m->known[line] = 1;
		for (uint32_t i = 0; i < m->line_bytes; i += 8) {
			uint64_t word = (line * m->line_bytes + i) * 0x9e3779b97f4a7c15u;

			memcpy(bytes + i, &word, 8);
		}
	}
	return bytes;
}

uint64_t media_differ(struct media *a, struct media *b)
{
	for (uint64_t i = 0; i < a->lines; i++) {
		uint64_t *pa, *pb;
		const uint8_t *la, *lb;

		if (!a->known[i] && !b->known[i])
			continue;
		la = media_line(a, i, &pa);
		lb = media_line(b, i, &pb);
		if (memcmp(la, lb, a->line_bytes) || memcmp(pa, pb, a->poison_words * 8))
			return i;
	}
	return UINT64_MAX;
}
