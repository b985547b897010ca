/*
 * An index of names in shared memory; see names.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/base/names.h"

#include <errno.h>
#include <string.h>

#include "libtier/base/atomic.h"

#define WORDS (sizeof(struct abi_names_slot) / sizeof(uint64_t))
#define TRIES 64u /* of a slot that changes while it is read */

/* ---- keys ---------------------------------------------------------------------------------- */

/* Both halves of a product: each bit of it depends on most bits of a and b. */
static uint64_t fold(uint64_t a, uint64_t b)
{
	__uint128_t x = (__uint128_t)a * b;

	return (uint64_t)x ^ (uint64_t)(x >> 64);
}

void names_key(const struct abi_names *n, const char *name, uint32_t bytes, uint64_t key[2])
{
	uint64_t a = n->seed[0] ^ bytes, b = n->seed[1] + bytes;

	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word = 0;

		memcpy(&word, name + at, bytes - at < 8 ? bytes - at : 8);
		a = fold(a ^ word, 0x9e3779b97f4a7c15ull) + b;
		b = fold(b ^ word, 0xd6e8feb86659fd93ull) ^ (a << 1);
	}
	key[0] = fold(a ^ b, 0xa0761d6478bd642full);
	key[1] = fold(b, a ^ 0xe7037ed1a0b428dbull);
	if (key[0] <= ABI_NAMES_DEAD)
		key[0] += 2;
}

/* ---- write --------------------------------------------------------------------------------- */

void names_begin(struct abi_names *n, uint32_t slots, uint64_t generation, uint64_t seed)
{
	n->magic = ABI_NAMES_MAGIC;
	n->abi_version = ABI_VERSION;
	n->slots = slots;
	n->generation = generation;
	n->seed[0] = fold(seed ^ generation, 0x8ebc6af09c88c6e3ull);
	n->seed[1] = fold(seed + generation, 0x589965cc75374cc3ull);
}

void names_state(struct abi_names *n, uint32_t state)
{
	atomic_store_release_u32(&n->state, state);
}

uint32_t names_place(const struct abi_names *n, const uint64_t key[2], bool *new, bool *dead)
{
	uint32_t mask = n->slots - 1, at = (uint32_t)key[0] & mask, free = UINT32_MAX;

	for (;; at = (at + 1) & mask) {
		const struct abi_names_slot *s = &n->slot[at];

		*new = s->key[0] == 0;
		if (*new || (s->key[0] == key[0] && s->key[1] == key[1]))
			break;
		if (s->key[0] == ABI_NAMES_DEAD && free == UINT32_MAX)
			free = at;
	}
	*dead = *new && free != UINT32_MAX;
	return *dead ? free : at;
}

void names_put(struct abi_names *n, uint32_t slot, const struct abi_names_slot *what)
{
	uint64_t *to = (uint64_t *)&n->slot[slot], sequence = to[0];
	const uint64_t *from = (const uint64_t *)what;

	/* Whoever sees a word of the new state sees an odd or a later sequence behind it. */
	atomic_store_relaxed_u64(&to[0], sequence + 1);
	for (uint32_t i = 1; i < WORDS; i++)
		atomic_store_release_u64(&to[i], from[i]);
	atomic_store_release_u64(&to[0], sequence + 2);
}

/* ---- read ---------------------------------------------------------------------------------- */

uint32_t names_judge(const struct abi_names *n, uint64_t bytes)
{
	uint32_t slots;

	if (bytes < sizeof(*n) || n->magic != ABI_NAMES_MAGIC || n->abi_version != ABI_VERSION)
		return 0;
	slots = n->slots;
	return slots && slots <= ABI_NAMES_SLOTS_MAX && !(slots & (slots - 1)) &&
			       bytes >= names_bytes(slots) ? slots : 0;
}

/* The whole slot as it was at one time. False: it changes all the time. */
static bool read_slot(const struct abi_names_slot *s, struct abi_names_slot *what)
{
	const uint64_t *from = (const uint64_t *)s;
	uint64_t *to = (uint64_t *)what;

	for (uint32_t i = 0; i < TRIES; i++) {
		to[0] = atomic_load_acquire_u64(&from[0]);
		/* Acquire: the sequence is read again behind each of them. */
		for (uint32_t k = 1; k < WORDS; k++)
			to[k] = atomic_load_acquire_u64(&from[k]);
		if (!(to[0] & 1) && atomic_load_relaxed_u64(&from[0]) == to[0])
			return true;
	}
	return false;
}

int names_look(const struct abi_names *n, uint32_t slots, const char *name, uint32_t bytes,
	       struct abi_names_slot *what, uint32_t *slot)
{
	uint64_t key[2], generation = atomic_load_acquire_u64(&n->generation);
	int rc = -EAGAIN;

	/* N3: what one that is being filled lacks says nothing, were it READY behind it. */
	if (atomic_load_acquire_u32(&n->state) == ABI_NAMES_FILLING)
		return -EAGAIN;
	names_key(n, name, bytes, key);
	*slot = (uint32_t)key[0] & (slots - 1);
	for (uint32_t i = 0; i < slots; i++, *slot = (*slot + 1) & (slots - 1)) {
		uint64_t there = atomic_load_acquire_u64(&n->slot[*slot].key[0]);

		if (there == 0)
			rc = -ENOENT;
		if (there == 0)
			break;
		if (there != key[0])
			continue;
		if (!read_slot(&n->slot[*slot], what))
			break;
		if (what->key[0] != key[0] || what->key[1] != key[1])
			continue;
		rc = what->word >> 32 & ABI_NAMES_ASK ? -EAGAIN : 0;
		break;
	}
	if (atomic_load_acquire_u32(&n->state) != ABI_NAMES_READY)
		return -ESTALE;
	/* Another index may have taken the place of this one meanwhile. */
	return atomic_load_relaxed_u64(&n->generation) == generation ? rc : -EAGAIN;
}
