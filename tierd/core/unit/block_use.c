/* SPDX-License-Identifier: Apache-2.0 */
/* Places for what few blocks have; see block_use.h. */
#include "tierd/core/unit/block_use.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/unit/table_new.h"

int block_uses_open(struct block_uses *u, uint32_t blocks_max)
{
	*u = (struct block_uses){ .most = blocks_max };
	u->entry = table_new((size_t)blocks_max + 1, sizeof(*u->entry));
	return u->entry ? 0 : -ENOMEM;
}

void block_uses_close(struct block_uses *u)
{
	free(u->entry);
	memset(u, 0, sizeof(*u));
}

uint32_t block_uses_take(struct block_uses *u)
{
	uint32_t i = u->free;

	assert(u->count < u->most);
	u->count++;
	if (!i)
		return ++u->high;
	u->free = u->entry[i].free;
	assert(u->free <= u->high);
	u->entry[i].free = 0; /* the rest is nought, as block_uses_give had it */
	return i;
}

void block_uses_give(struct block_uses *u, uint32_t i)
{
	assert(i && i <= u->high && u->count > 0);
	u->entry[i].free = u->free;
	u->free = i;
	u->count--;
}
