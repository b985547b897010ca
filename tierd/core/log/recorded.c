/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys may have a record in the store: what is deleted and never was there needs no
 * tombstone. Else who deletes keys of his invention fills the log of all with them.
 *
 *   lsn[hash of context and key] = the highest lsn of a run that names a key of this hash
 *
 * A key whose place says less than the oldest run that any segment shows has no record. More keys
 * than places only mean a tombstone too many. The hash is keyed: which keys share a place is
 * nobody's to know, or one that is there would do for any number that is not.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

#define PLACES_MIN (1u << 12)
#define PLACES_MAX (1u << 22) /* 32 MiB, touched as they are used */

/* Two for each block of the smallest size that fits all devices. */
int recorded_open(struct core *c)
{
	uint64_t blocks = 0;
	uint32_t places = PLACES_MIN;

	for (uint32_t i = 0; i < c->drives; i++) {
		const struct disk_super *s = &c->drive[i]->super;

		blocks += s->segment_count * s->segment_bytes / DISK_SECTOR;
	}
	while (places < PLACES_MAX && places < 2 * blocks)
		places *= 2;
	c->recorded.lsn = calloc(places, sizeof(*c->recorded.lsn));
	c->recorded.places = places;
	return c->recorded.lsn ? 0 : -ENOMEM;
}

void recorded_close(struct core *c)
{
	free(c->recorded.lsn);
}

/* As in splitmix64, with the secret stirred in before each of the words. */
static uint64_t *place_of(const struct core *c, uint64_t uid, const uint8_t *key)
{
	uint64_t z = c->config.secret ^ uid, word;

	for (uint32_t i = 0; i < ABI_KEY_BYTES / sizeof(word); i++) {
		memcpy(&word, key + i * sizeof(word), sizeof(word));
		z = (z ^ word) + c->config.secret;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		z ^= z >> 31;
	}
	return &c->recorded.lsn[z & (c->recorded.places - 1)];
}

/* A record of this lsn names the key, or will once it is written. */
void recorded_add(struct core *c, const struct context *x, const uint8_t *key, uint64_t lsn)
{
	uint64_t *place = place_of(c, x->spec.uid, key);

	assert(lsn);
	if (*place < lsn)
		*place = lsn;
}

/* May a record of the key come back? oldest: store_oldest_lsn, now. */
bool recorded_may(const struct core *c, const struct context *x, const uint8_t *key,
		  uint64_t oldest)
{
	uint64_t lsn = *place_of(c, x->spec.uid, key);

	return !oldest || (lsn && lsn >= oldest);
}
