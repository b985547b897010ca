/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a world (kv_world.h) whose bytes tell them apart; BLOCKS is defined before this. */
#ifndef TIER_TESTS_DEVICE_BLOCKS_H
#define TIER_TESTS_DEVICE_BLOCKS_H

#include "tests/integration/kv_world.h"

HELPER tier_key key_of(uint32_t n)
{
	tier_key key;

	assert_int_equal(tier_key_opaque(&key, &n, sizeof(n), SALT("device", 6)), 0);
	return key;
}

HELPER uint8_t byte_of(uint32_t block, uint32_t page)
{
	return (uint8_t)(block * 7 + page * 3 + 1);
}

/* The keys of BLOCKS of them, from the one of that number on. */
HELPER void keys_of(tier_key *key, uint32_t first)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		key[i] = key_of(first + i);
}

HELPER void find_blocks(tier_context *c, uint32_t first, tier_block *block)
{
	struct tier_found found[BLOCKS];
	tier_key key[BLOCKS];

	keys_of(key, first);
	assert_int_equal(tier_match(c, key, BLOCKS, found), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		block[i] = found[i].block;
}

/* *block: where they are found. */
HELPER void put_blocks(tier_context *c, uint32_t first, const void *data, tier_block *block)
{
	tier_key key[BLOCKS];

	keys_of(key, first);
	assert_int_equal(tier_put_copy(c, key, BLOCKS, data, NULL), BLOCKS);
	find_blocks(c, first, block);
}

HELPER void put_and_find(struct world *w, tier_block *block)
{
	uint8_t *data = malloc(BLOCKS * BLOCK_BYTES);

	assert_non_null(data);
	for (uint32_t i = 0; i < BLOCKS; i++)
		for (uint32_t page = 0; page < BLOCK_PAGES; page++)
			memset(data + i * BLOCK_BYTES + page * 4096, byte_of(i, page), 4096);
	put_blocks(w->c, 0, data, block);
	free(data);
}

/* What tierctl would ask; the answer is not looked at. */
HELPER void admin(struct world *w, const char *verb, const char *arguments)
{
	char *reply = NULL;

	if (tier_admin(w->t, verb, arguments, &reply))
		fail_msg("%s: %s", verb, tier_error_text());
	free(reply);
}

#endif
