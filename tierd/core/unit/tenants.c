/* SPDX-License-Identifier: Apache-2.0 */
/* Salts and accounts that blocks share; see tenants.h. */
#include "tierd/core/unit/tenants.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/unit/table_new.h"

#define CHAINS_MAX 16384u
#define CHAIN_BLOCKS 16u /* a chain for so many blocks: tenants are fewer */

int tenants_open(struct tenants *t, uint32_t blocks_max)
{
	*t = (struct tenants){ .most = blocks_max, .chains = 1 };
	while (t->chains < CHAINS_MAX && t->chains < blocks_max / CHAIN_BLOCKS)
		t->chains *= 2;
	t->entry = table_new((size_t)blocks_max + 1, sizeof(*t->entry));
	t->chain = calloc(t->chains, sizeof(*t->chain));
	if (t->entry && t->chain)
		return 0;
	tenants_close(t);
	return -ENOMEM;
}

void tenants_close(struct tenants *t)
{
	free(t->entry);
	free(t->chain);
	memset(t, 0, sizeof(*t));
}

static uint32_t *chain_of(const struct tenants *t, uint64_t salt)
{
	return &t->chain[(salt * 0x9e3779b97f4a7c15ull >> 32) & (t->chains - 1)];
}

static uint32_t entry_new(struct tenants *t)
{
	uint32_t i = t->free;

	if (i) {
		t->free = t->entry[i].next;
		return i;
	}
	assert(t->high < t->most);
	return ++t->high;
}

static bool is_of(const struct tenant *e, uint64_t salt, uint32_t account, uint32_t lane)
{
	return e->salt == salt && e->account == account && e->lane == lane;
}

uint32_t tenant_take(struct tenants *t, uint64_t salt, uint32_t account, uint32_t lane)
{
	uint32_t *chain = chain_of(t, salt), i = *chain, n = 0;

	if (!salt && !account && !lane)
		return TENANT_NONE;
	for (; i && !is_of(&t->entry[i], salt, account, lane); n++)
		i = t->entry[i].next;
	if (i) {
		t->entry[i].blocks++;
		return i;
	}
	i = entry_new(t);
	t->entry[i] = (struct tenant){
		.salt = salt,
		.blocks = 1,
		.account = (uint16_t)account,
		.lane = (uint8_t)lane,
		.chained = n < TENANT_WALK,
	};
	if (t->entry[i].chained) {
		t->entry[i].next = *chain;
		*chain = i;
	}
	return i;
}

void tenant_drop(struct tenants *t, uint32_t i)
{
	struct tenant *e = &t->entry[i];
	uint32_t *link = chain_of(t, e->salt);

	if (i == TENANT_NONE)
		return;
	assert(i <= t->high && e->blocks > 0);
	if (--e->blocks)
		return;
	while (e->chained && *link != i) {
		assert(*link);
		link = &t->entry[*link].next;
	}
	if (e->chained)
		*link = e->next;
	*e = (struct tenant){ .next = t->free };
	t->free = i;
}

size_t tenants_bytes(const struct tenants *t)
{
	return (t->high + (size_t)1) * sizeof(*t->entry) + t->chains * sizeof(*t->chain);
}
