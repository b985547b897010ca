/*
 * CRC32C against the vectors of RFC 3720 (iSCSI), appendix B.4, and against a bit-by-bit
 * computation over odd lengths and offsets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/crc32c.h"
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>

/* The definition: reflected polynomial 0x82F63B78, one bit at a time. */
static uint32_t crc32c_slow(const uint8_t *p, size_t len)
{
	uint32_t crc = 0xffffffffu;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
	}
	return ~crc;
}

static void test_vectors(void **state)
{
	uint8_t bytes[32];

	(void)state;
	assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283u);
	assert_int_equal(crc32c(0, "", 0), 0);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x8A9136AAu);
	memset(bytes, 0xff, sizeof(bytes));
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x62A8AB43u);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(crc32c(0, bytes, sizeof(bytes)), 0x46DD794Eu);
}

static void test_agrees_with_definition(void **state)
{
	uint8_t bytes[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 131 + (i >> 3));
	for (size_t offset = 0; offset < 17; offset++)
		for (size_t len = 0; len < 900; len += 13)
			assert_int_equal(crc32c(0, bytes + offset, len),
					 crc32c_slow(bytes + offset, len));
}

static void test_continues(void **state)
{
	static const char digits[] = "123456789";

	(void)state;
	for (size_t cut = 0; cut <= 9; cut++)
		assert_int_equal(crc32c(crc32c(0, digits, cut), digits + cut, 9 - cut),
				 0xE3069283u);
}

static void test_copy_sums_what_it_stores(void **state)
{
	static const size_t lens[] = { 0, 1, 4096, 16383, 16384, 16385, 65536, 100003 };
	const size_t max = 100003;
	uint8_t *src = malloc(max), *dst = malloc(max + 1);

	(void)state;
	assert_non_null(src);
	assert_non_null(dst);
	for (size_t i = 0; i < max; i++)
		src[i] = (uint8_t)(i ^ (i >> 7));
	for (size_t i = 0; i < COUNT(lens); i++) {
		memset(dst, 0xee, max + 1);
		assert_int_equal(crc32c_copy(dst, src, lens[i]), crc32c(0, src, lens[i]));
		assert_memory_equal(dst, src, lens[i]);
		assert_int_equal(dst[lens[i]], 0xee);
	}
	free(src);
	free(dst);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_agrees_with_definition),
		cmocka_unit_test(test_continues),
		cmocka_unit_test(test_copy_sums_what_it_stores),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
