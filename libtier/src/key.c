/*
 * Keys and fingerprints as the caller sees them. How a key is framed is libtier/base/key.h's; the
 * framing of a fingerprint is here, and changing a byte of it makes every engine disagree.
 *
 *   fingerprint = SHA-256("tier-fingerprint1\0" | for each of model, adapter, elements, layout,
 *                 hash: present:u8, length:u64, bytes | block_tokens:u32 | probe_bytes:u64 | probe)
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <tier.h>

#include "libtier/base/key.h"
#include "libtier/src/error.h"
#include "libtier/src/options.h"

_Static_assert(sizeof(tier_key) == KEY_BYTES, "a key is its digest");

/* No salt and an empty one are the same key. */
static struct tier_salt salt_of(const struct tier_salt *salt)
{
	return salt ? *salt : (struct tier_salt){ .count = 0 };
}

int tier_key_chain(tier_key *out, const tier_key *parent, const struct tier_salt *salt,
		   const uint32_t *tokens, size_t token_count, uint32_t block_tokens)
{
	const struct tier_salt own = salt_of(salt);
	const struct key_sequence sequence = {
		.parent = parent ? parent->bytes : NULL,
		.salt = own.bytes,
		.salt_len = own.count,
		.block_tokens = block_tokens,
	};
	int rc;

	if (block_tokens == 0 || (own.count > 0 && !own.bytes))
		return error_note(-EINVAL, "tier_key_chain: block_tokens is 0, or the salt's "
					   "bytes are NULL");
	if (token_count / block_tokens == 0)
		return 0;
	if (!out || !tokens)
		return error_note(-EINVAL, "tier_key_chain: out and tokens must not be NULL");
	rc = key_chain_list((uint8_t(*)[KEY_BYTES])out, &sequence, tokens,
			    token_count / block_tokens);
	return rc ? error_note(rc, "tier_key_chain: libcrypto failed") : 0;
}

int tier_key_opaque(tier_key *out, const void *name, size_t name_bytes,
		    const struct tier_salt *salt)
{
	const struct tier_salt own = salt_of(salt);
	int rc;

	if (!out || (name_bytes > 0 && !name) || (own.count > 0 && !own.bytes))
		return error_note(-EINVAL, "tier_key_opaque: a pointer is NULL");
	rc = key_opaque(out->bytes, name, name_bytes, own.bytes, own.count);
	return rc ? error_note(rc, "tier_key_opaque: libcrypto failed") : 0;
}

_Static_assert(sizeof(struct tier_name) == sizeof(struct key_name) &&
		       offsetof(struct tier_name, count) == offsetof(struct key_name, len),
	       "a caller's name is a name");

int tier_key_names(tier_key *out, const struct tier_name *names, uint32_t count,
		   const struct tier_salt *salt)
{
	const struct tier_salt own = salt_of(salt);
	const struct key_name by = { own.bytes, own.count };
	int rc;

	if (count > 0 && (!out || !names))
		return error_note(-EINVAL, "tier_key_names: out and names must not be NULL");
	if (own.count > 0 && !own.bytes)
		return error_note(-EINVAL, "tier_key_names: the salt's bytes are NULL");
	for (uint32_t i = 0; i < count; i++)
		if (names[i].count > 0 && !names[i].bytes)
			return error_set(-EINVAL, "tier_key_names: name %u is NULL", i);
	rc = key_names((uint8_t(*)[KEY_BYTES])out, (const struct key_name *)names, count, &by);
	return rc ? error_note(rc, "tier_key_names: libcrypto failed") : 0;
}

static bool add(EVP_MD_CTX *md, const void *bytes, size_t count)
{
	return count == 0 || EVP_DigestUpdate(md, bytes, count) == 1;
}

static bool add_counted(EVP_MD_CTX *md, const void *bytes, uint64_t count)
{
	return add(md, &count, sizeof(count)) && add(md, bytes, count);
}

/* Absent is not the same as empty. */
static bool add_text(EVP_MD_CTX *md, const char *text)
{
	uint8_t present = text != NULL;

	return add(md, &present, 1) && add_counted(md, text, text ? strlen(text) : 0);
}

static bool add_fingerprint(EVP_MD_CTX *md, const struct tier_fingerprint *f)
{
	static const char domain[] = "tier-fingerprint1";

	return EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 && add(md, domain, sizeof(domain)) &&
	       add_text(md, f->model) && add_text(md, f->adapter) && add_text(md, f->elements) &&
	       add_text(md, f->layout) && add_text(md, f->hash) &&
	       add(md, &f->block_tokens, sizeof(f->block_tokens)) &&
	       add_counted(md, f->probe, f->probe_bytes);
}

int tier_fingerprint_digest(uint8_t out[32], const struct tier_fingerprint *f)
{
	struct tier_fingerprint own;
	EVP_MD_CTX *md;
	bool done;
	int rc;

	if (!out || !f)
		return error_note(-EINVAL, "tier_fingerprint_digest: a pointer is NULL");
	rc = options_read(&own, sizeof(own), f);
	if (rc)
		return rc;
	if (own.reserved != 0 || (own.probe_bytes > 0 && !own.probe))
		return error_note(-EINVAL, "tier_fingerprint_digest: reserved is not 0, or probe "
					   "is NULL with probe_bytes");
	md = EVP_MD_CTX_new();
	done = md && add_fingerprint(md, &own) && EVP_DigestFinal_ex(md, out, NULL) == 1;
	EVP_MD_CTX_free(md);
	return done ? 0 : error_note(-ENOMEM, "tier_fingerprint_digest: libcrypto failed");
}
