/*
 * Block keys against digests computed by another SHA-256 (`openssl dgst -sha256` over the framing
 * that key.h describes), and the properties that the framing exists for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/key.h"
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>

static void assert_key(const uint8_t key[KEY_BYTES], const char *hex)
{
	char text[KEY_HEX_BYTES];

	assert_string_equal(key_print(text, key), hex);
}

static void test_chain_vectors(void **state)
{
	static const uint32_t one = 0xdeadbeef;
	uint32_t tokens[256];
	uint8_t root[KEY_BYTES], child[KEY_BYTES], key[KEY_BYTES];

	(void)state;
	for (uint32_t i = 0; i < COUNT(tokens); i++)
		tokens[i] = i;
	assert_int_equal(key_chain(root, NULL, NULL, 0, tokens, 128), 0);
	assert_key(root, "0d8876bcc624b4db92e9005a70c2e5a425876b97b7ddb100a767b686a5d29f4a");
	assert_int_equal(key_chain(child, root, "tenant-7", 8, tokens + 128, 128), 0);
	assert_key(child, "c11c8aa5d6d8cc18f75252f5d3c18835d308518d3bd02b7eb221245ea2a919bd");
	assert_int_equal(key_chain(key, NULL, "", 0, NULL, 0), 0);
	assert_key(key, "b4d4804b217b86e6856e7d3e33cb1a21795a3dcb9a774af27f4ed422dcb7a2ad");
	assert_int_equal(key_chain(key, NULL, NULL, 0, &one, 1), 0);
	assert_key(key, "c8415c6eb7e5e795abb6afc5a0687f7793e0583b73da4fc1a035f517af5317d9");
}

static void test_opaque_vectors(void **state)
{
	uint8_t key[KEY_BYTES];

	(void)state;
	assert_int_equal(key_opaque(key, "vllm:abc", 8, "tenant-7", 8), 0);
	assert_key(key, "30edfce6732c9c2e0a70c6bccd7079db62d5618f925503e40687855b4afe0cac");
	assert_int_equal(key_opaque(key, NULL, 0, NULL, 0), 0);
	assert_key(key, "f277192c98c66e7ec7476d2818838b67b7b96d192e707d2ad846f076db2f3c7a");
}

static void test_list_is_the_chain(void **state)
{
	uint32_t tokens[5 * 16];
	uint8_t list[5][KEY_BYTES], key[KEY_BYTES], parent[KEY_BYTES];
	struct key_sequence seq = { .salt = "s", .salt_len = 1, .block_tokens = 16 };

	(void)state;
	for (uint32_t i = 0; i < COUNT(tokens); i++)
		tokens[i] = i * 7919;
	memset(parent, 0x5a, sizeof(parent));
	for (int rooted = 0; rooted < 2; rooted++) {
		seq.parent = rooted ? NULL : parent;
		assert_int_equal(key_chain_list(list, &seq, tokens, 5), 0);
		for (size_t i = 0; i < 5; i++) {
			assert_int_equal(key_chain(key, i ? list[i - 1] : seq.parent, "s", 1,
						   tokens + 16 * i, 16),
					 0);
			assert_memory_equal(list[i], key, KEY_BYTES);
		}
	}
	assert_int_equal(key_chain_list(NULL, &seq, NULL, 0), 0);
}

/* Bytes that move from one field to its neighbour must change the key. */
static void test_fields_do_not_run_together(void **state)
{
	static const uint8_t zero[KEY_BYTES];
	static const uint32_t tokens[] = { 1, 2, 3, 4 };
	uint8_t a[KEY_BYTES], b[KEY_BYTES];

	(void)state;
	key_opaque(a, "ab", 2, "c", 1);
	key_opaque(b, "a", 1, "bc", 2);
	assert_memory_not_equal(a, b, KEY_BYTES);
	key_chain(a, NULL, NULL, 0, tokens, 4);
	key_chain(b, zero, NULL, 0, tokens, 4);
	assert_memory_not_equal(a, b, KEY_BYTES);
	key_chain(a, NULL, tokens, 4, tokens + 1, 3);
	key_chain(b, NULL, tokens, 8, tokens + 2, 2);
	assert_memory_not_equal(a, b, KEY_BYTES);
	key_chain(a, NULL, tokens, 16, NULL, 0);
	key_chain(b, NULL, NULL, 0, tokens, 4);
	assert_memory_not_equal(a, b, KEY_BYTES);
	key_opaque(a, "", 0, "", 0);
	key_chain(b, NULL, "", 0, NULL, 0);
	assert_memory_not_equal(a, b, KEY_BYTES);
}

static void test_parse_reads_what_print_wrote(void **state)
{
	uint8_t key[KEY_BYTES], back[KEY_BYTES];
	char text[KEY_HEX_BYTES];

	(void)state;
	for (size_t i = 0; i < KEY_BYTES; i++)
		key[i] = (uint8_t)(i * 37 + 200);
	key_print(text, key);
	assert_int_equal(key_parse(back, text), 0);
	assert_memory_equal(back, key, KEY_BYTES);
	for (char *p = text; *p; p++)
		if (*p >= 'a')
			*p = (char)(*p - 'a' + 'A');
	memset(back, 0, sizeof(back));
	assert_int_equal(key_parse(back, text), 0);
	assert_memory_equal(back, key, KEY_BYTES);
}

static void test_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		"0",
		"00",
		"0d8876bcc624b4db92e9005a70c2e5a425876b97b7ddb100a767b686a5d29f4",
		"0d8876bcc624b4db92e9005a70c2e5a425876b97b7ddb100a767b686a5d29f4a0",
		"0d8876bcc624b4db92e9005a70c2e5a425876b97b7ddb100a767b686a5d29f4g",
		" d8876bcc624b4db92e9005a70c2e5a425876b97b7ddb100a767b686a5d29f4a",
		"0d8876bcc624b4db92e9005a70c2e5a425876b97b7ddb100a767b686a5d29f4a\n",
	};
	uint8_t key[KEY_BYTES], untouched[KEY_BYTES];

	(void)state;
	memset(untouched, 0x77, sizeof(untouched));
	memcpy(key, untouched, sizeof(key));
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(key_parse(key, bad[i]), -EINVAL);
		assert_memory_equal(key, untouched, KEY_BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain_vectors),
		cmocka_unit_test(test_opaque_vectors),
		cmocka_unit_test(test_list_is_the_chain),
		cmocka_unit_test(test_fields_do_not_run_together),
		cmocka_unit_test(test_parse_reads_what_print_wrote),
		cmocka_unit_test(test_parse_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
