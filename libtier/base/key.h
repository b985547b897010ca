/*
 * Block keys: 32 bytes of SHA-256 that name a block by everything before it. A key is computed by
 * the caller's side and never by the daemon, which only compares. The framing is part of the
 * format: changing a byte of it makes every stored block unfindable.
 *
 *   chain  = SHA-256("tier-key-chain-1\0" ‖ has_parent:u8 ‖ [parent:32] ‖ salt_len:u64 ‖ salt
 *                    ‖ count:u64 ‖ tokens:u32[count])
 *   opaque = SHA-256("tier-key-opaque1\0" ‖ key_len:u64 ‖ key ‖ salt_len:u64 ‖ salt)
 *
 * Integers are little-endian. Each variable part follows its length, so no two inputs run together
 * to the same bytes, and the two kinds cannot meet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_KEY_H
#define TIER_BASE_KEY_H

#include <stddef.h>
#include <stdint.h>

#define KEY_BYTES 32
#define KEY_HEX_BYTES (2 * KEY_BYTES + 1)

/* The key of the block of count tokens that follows parent (NULL: the first block of a sequence).
 * Zero, or -ENOMEM. */
int key_chain(uint8_t out[KEY_BYTES], const uint8_t *parent, const void *salt, size_t salt_len,
	      const uint32_t *tokens, size_t count);

/* What the blocks of one sequence have in common. */
struct key_sequence {
	const uint8_t *parent; /* key before the first block, or NULL */
	const void *salt;
	size_t salt_len;
	size_t block_tokens; /* tokens in each block */
};

/* The keys of block_count consecutive blocks: out[i] is key_chain of out[i - 1] and the i-th
 * block_tokens of tokens. Cheaper than as many calls of key_chain. Zero, or -ENOMEM. */
int key_chain_list(uint8_t (*out)[KEY_BYTES], const struct key_sequence *seq,
		   const uint32_t *tokens, size_t block_count);

/* The keys of a block's beginnings: out[i] is key_chain of the first seq->block_tokens - i tokens,
 * which must be one at least. Zero, or -ENOMEM. */
int key_tails(uint8_t (*out)[KEY_BYTES], const struct key_sequence *seq, const uint32_t *tokens,
	      size_t out_count);

/* The digest of an engine's own key. Zero, or -ENOMEM. */
int key_opaque(uint8_t out[KEY_BYTES], const void *key, size_t key_len, const void *salt,
	       size_t salt_len);

struct key_name {
	const void *bytes;
	size_t len;
};

/* The same for many names with one salt. Cheaper than as many calls. Zero, or -ENOMEM. */
int key_names(uint8_t (*out)[KEY_BYTES], const struct key_name *names, size_t count,
	      const struct key_name *salt);

/* 64 lower-case hex digits and a NUL; returns text. */
char *key_print(char text[KEY_HEX_BYTES], const uint8_t key[KEY_BYTES]);

/* The reverse: exactly 64 hex digits of either case, else -EINVAL and out is untouched. */
int key_parse(uint8_t out[KEY_BYTES], const char *text);

#endif
