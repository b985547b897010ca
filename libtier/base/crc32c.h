/*
 * CRC32C (Castagnoli), the checksum of every page, header and log record. The arithmetic is that
 * of isa-l, which picks the fastest instructions of the machine at run time. Both sides call this
 * file, and nothing else computes a checksum.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_CRC32C_H
#define TIER_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * The CRC of len bytes at buf, continuing from crc (0 to begin), so that
 * crc32c(crc32c(0, a, n), a + n, m) == crc32c(0, a, n + m).
 * crc32c(0, "123456789", 9) is 0xE3069283.
 */
#define CRC32C_POLY 0x82f63b78u /* reversed: what the last bit of a text changes the sum by */
uint32_t crc32c(uint32_t crc, const void *buf, size_t len);

/*
 * Copies len bytes and returns the CRC32C of what was stored. The source may be memory that another
 * process can write: each byte of it is read once, and the sum is taken over the destination,
 * chunk by chunk while the chunk is in the first-level cache. dst and src must not overlap, and
 * nobody else may write dst meanwhile.
 */
uint32_t crc32c_copy(void *restrict dst, const void *restrict src, size_t len);

#endif
