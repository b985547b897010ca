/*
 * Keys of numbered blocks, as policies see them: scattered, each of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_POLICY_KEY_H
#define TIER_TESTS_POLICY_KEY_H

#include <stdint.h>
#include <string.h>

#include "libtier/abi/common.h"

static inline void key_bytes(uint8_t key[ABI_KEY_BYTES], uint32_t number)
{
	memset(key, 0, ABI_KEY_BYTES);
	number = (number + 1) * 2654435761u;
	memcpy(key, &number, sizeof(number));
}

#endif
