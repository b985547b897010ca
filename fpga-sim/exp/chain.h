/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of numbers, first in first out, linked through an array: next[one] comes after one. */
#ifndef TIER_FPGA_CHAIN_H
#define TIER_FPGA_CHAIN_H

#include <stdint.h>

#define CHAIN_NONE UINT32_MAX

struct chain {
	uint32_t head, tail; /* head: CHAIN_NONE when it is empty */
};

static inline void chain_append(uint32_t *next, struct chain *l, uint32_t one)
{
	next[one] = CHAIN_NONE;
	if (l->head == CHAIN_NONE)
		l->head = one;
	else
		next[l->tail] = one;
	l->tail = one;
}

static inline uint32_t chain_take(const uint32_t *next, struct chain *l)
{
	uint32_t one = l->head;

	if (one != CHAIN_NONE)
		l->head = next[one];
	return one;
}

#endif
