/*
 * CRC32C on isa-l; see crc32c.h for the contract.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/crc32c.h"

#include <isa-l/crc.h>
#include <stdbool.h>
#include <string.h>

/* Half of a first-level data cache of 32 KiB: the chunk is still there when it is summed. */
#define COPY_CHUNK_BYTES ((size_t)16 << 10)

/* isa-l takes the length as an int. */
#define SUM_CHUNK_BYTES ((size_t)1 << 30)

/*
 * A seed or a header is summed by the processor's instruction in less time than isa-l, made for
 * long buffers, takes to begin.
 */
#define SHORT_BYTES 96u

#if defined(__x86_64__)
static bool has_instruction(void)
{
	return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2")))
static uint32_t sum_short(uint32_t crc, const unsigned char *at, size_t len)
{
	uint64_t sum = crc, word;
	uint32_t half;

	for (; len >= sizeof(word); at += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = __builtin_ia32_crc32di(sum, word);
	}
	if (len >= sizeof(half)) { /* of a page's seed this is all the rest */
		memcpy(&half, at, sizeof(half));
		sum = __builtin_ia32_crc32si((uint32_t)sum, half);
		at += sizeof(half);
		len -= sizeof(half);
	}
	for (; len > 0; at++, len--)
		sum = __builtin_ia32_crc32qi((uint32_t)sum, *at);
	return (uint32_t)sum;
}
#else
static bool has_instruction(void)
{
	return false;
}

static uint32_t sum_short(uint32_t crc, const unsigned char *at, size_t len)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)at, (int)len, crc);
}
#endif

uint32_t crc32c(uint32_t crc, const void *buf, size_t len)
{
	const unsigned char *at = buf;

	/* Both leave out the inversion before and after that the standard value has. */
	crc = ~crc;
	if (len <= SHORT_BYTES && has_instruction())
		return ~sum_short(crc, at, len);
	while (len > 0) {
		size_t n = len < SUM_CHUNK_BYTES ? len : SUM_CHUNK_BYTES;

		/* The cast drops const: isa-l's prototype lacks it, its code only loads. */
		crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)n, crc);
		at += n;
		len -= n;
	}
	return ~crc;
}

uint32_t crc32c_copy(void *restrict dst, const void *restrict src, size_t len)
{
	unsigned char *to = dst;
	const unsigned char *from = src;
	uint32_t crc = 0;

	while (len > 0) {
		size_t n = len < COPY_CHUNK_BYTES ? len : COPY_CHUNK_BYTES;

		memcpy(to, from, n);
		crc = crc32c(crc, to, n);
		to += n;
		from += n;
		len -= n;
	}
	return crc;
}
