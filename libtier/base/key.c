/*
 * Block keys on libcrypto's SHA-256; see key.h for the framing, which is part of the format.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/key.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tokens and lengths are hashed as they lie in memory, which must be little-endian"
#endif

/* Both with their NUL: 17 bytes each. */
static const char domain_chain[] = "tier-key-chain-1";
static const char domain_opaque[] = "tier-key-opaque1";

static int add(EVP_MD_CTX *md, const void *bytes, size_t len)
{
	/* libcrypto fails only when it cannot get memory. */
	return len == 0 || EVP_DigestUpdate(md, bytes, len) == 1 ? 0 : -ENOMEM;
}

static int add_counted(EVP_MD_CTX *md, uint64_t count, const void *bytes, size_t len)
{
	int rc = add(md, &count, sizeof(count));

	return rc ? rc : add(md, bytes, len);
}

static int finish(EVP_MD_CTX *md, uint8_t out[KEY_BYTES])
{
	return EVP_DigestFinal_ex(md, out, NULL) == 1 ? 0 : -ENOMEM;
}

static int chain_one(EVP_MD_CTX *md, uint8_t out[KEY_BYTES], const struct key_sequence *seq,
		     const uint32_t *tokens)
{
	uint8_t has_parent = seq->parent != NULL;
	int rc;

	/* NULL: the algorithm that the context has already, without another look-up. */
	if (EVP_DigestInit_ex(md, NULL, NULL) != 1)
		return -ENOMEM;
	rc = add(md, domain_chain, sizeof(domain_chain));
	if (rc == 0)
		rc = add(md, &has_parent, sizeof(has_parent));
	if (rc == 0)
		rc = add(md, seq->parent, has_parent ? KEY_BYTES : 0);
	if (rc == 0)
		rc = add_counted(md, seq->salt_len, seq->salt, seq->salt_len);
	if (rc == 0)
		rc = add_counted(md, seq->block_tokens, tokens,
				 seq->block_tokens * sizeof(*tokens));
	return rc ? rc : finish(md, out);
}

int key_chain_list(uint8_t (*out)[KEY_BYTES], const struct key_sequence *seq,
		   const uint32_t *tokens, size_t block_count)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	struct key_sequence at = *seq;
	int rc = 0;

	if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
		rc = -ENOMEM;
	for (size_t i = 0; i < block_count && rc == 0; i++) {
		rc = chain_one(md, out[i], &at, tokens + i * seq->block_tokens);
		at.parent = out[i];
	}
	EVP_MD_CTX_free(md);
	return rc;
}

int key_tails(uint8_t (*out)[KEY_BYTES], const struct key_sequence *seq, const uint32_t *tokens,
	      size_t out_count)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	struct key_sequence at = *seq;
	int rc = 0;

	if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
		rc = -ENOMEM;
	for (size_t i = 0; i < out_count && rc == 0; i++, at.block_tokens--)
		rc = chain_one(md, out[i], &at, tokens);
	EVP_MD_CTX_free(md);
	return rc;
}

int key_chain(uint8_t out[KEY_BYTES], const uint8_t *parent, const void *salt, size_t salt_len,
	      const uint32_t *tokens, size_t count)
{
	const struct key_sequence seq = {
		.parent = parent,
		.salt = salt,
		.salt_len = salt_len,
		.block_tokens = count,
	};

	return key_chain_list((uint8_t (*)[KEY_BYTES])out, &seq, tokens, 1);
}

int key_names(uint8_t (*out)[KEY_BYTES], const struct key_name *names, size_t count,
	      const struct key_name *salt)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int rc = 0;

	if (!md || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1)
		rc = -ENOMEM;
	for (size_t i = 0; i < count && rc == 0; i++) {
		if (EVP_DigestInit_ex(md, NULL, NULL) != 1)
			rc = -ENOMEM;
		if (rc == 0)
			rc = add(md, domain_opaque, sizeof(domain_opaque));
		if (rc == 0)
			rc = add_counted(md, names[i].len, names[i].bytes, names[i].len);
		if (rc == 0)
			rc = add_counted(md, salt->len, salt->bytes, salt->len);
		if (rc == 0)
			rc = finish(md, out[i]);
	}
	EVP_MD_CTX_free(md);
	return rc;
}

int key_opaque(uint8_t out[KEY_BYTES], const void *key, size_t key_len, const void *salt,
	       size_t salt_len)
{
	const struct key_name name = { key, key_len }, own = { salt, salt_len };

	return key_names((uint8_t (*)[KEY_BYTES])out, &name, 1, &own);
}

char *key_print(char text[KEY_HEX_BYTES], const uint8_t key[KEY_BYTES])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < KEY_BYTES; i++) {
		text[2 * i] = digits[key[i] >> 4];
		text[2 * i + 1] = digits[key[i] & 15];
	}
	text[2 * KEY_BYTES] = '\0';
	return text;
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -EINVAL;
}

int key_parse(uint8_t out[KEY_BYTES], const char *text)
{
	uint8_t key[KEY_BYTES];

	for (size_t i = 0; i < KEY_BYTES; i++) {
		int high = digit_value(text[2 * i]);
		/* A text that ends early has its NUL judged first, and is read no further. */
		int low = high < 0 ? high : digit_value(text[2 * i + 1]);

		if (low < 0)
			return -EINVAL;
		key[i] = (uint8_t)(high << 4 | low);
	}
	if (text[2 * KEY_BYTES] != '\0')
		return -EINVAL;
	memcpy(out, key, KEY_BYTES);
	return 0;
}
