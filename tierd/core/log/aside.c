/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that are set aside: the catalog names them, and they cannot be made now (no memory, a
 * tier that became smaller, a policy that is not there any more). One user's context must not keep
 * all others from starting, and what it stored must not be lost for it. So each stays in the
 * catalog as it is, with its limits, and each segment that shows a record of it is held: not
 * cleaned, not dropped, not used anew. It comes back with a start at which it can be made; until
 * then it has no blocks, and its name is taken.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

void aside_close(struct core *c)
{
	free(c->aside.context);
	free(c->aside.limit);
}

int core_context_aside(struct core *c, const struct disk_context *spec)
{
	struct disk_context *list;

	assert(spec->uid);
	if (c->aside.count >= ABI_CONTEXTS_MAX)
		return -ENFILE;
	list = realloc(c->aside.context, (c->aside.count + 1) * sizeof(*list));
	if (!list)
		return -ENOMEM;
	c->aside.context = list;
	list[c->aside.count++] = *spec;
	return 0;
}

int core_aside_at(const struct core *c, uint32_t i, struct disk_context *out)
{
	if (i >= c->aside.count)
		return -ENOENT;
	*out = c->aside.context[i];
	return 0;
}

const struct disk_context *core_aside_find(const struct core *c, const char *name)
{
	for (uint32_t i = 0; i < c->aside.count; i++)
		if (!strcmp(c->aside.context[i].name, name))
			return &c->aside.context[i];
	return NULL;
}

bool aside_is(const struct core *c, uint64_t uid)
{
	for (uint32_t i = 0; i < c->aside.count; i++)
		if (c->aside.context[i].uid == uid)
			return true;
	return false;
}

/* A limit of the recovered catalog: kept with its context. */
int aside_limit(struct core *c, const struct disk_limit *limit)
{
	struct disk_limit *list =
		realloc(c->aside.limit, (c->aside.limits + 1) * sizeof(*list));

	if (!list)
		return -ENOMEM;
	c->aside.limit = list;
	list[c->aside.limits++] = *limit;
	return 0;
}

/* A record of one: its segment stays, and its data is not taken for proven by what is flushed. */
void aside_record(struct core *c, const struct store_view *v, bool unsure)
{
	store_hold(c->store, v->segment);
	if (unsure && c->aside.lsn < v->head->lsn)
		c->aside.lsn = v->head->lsn;
}

/* All records were seen. */
void aside_recovered(struct core *c)
{
	if (c->aside.lsn <= store_flushed_lsn(c->store))
		return;
	flushed_freeze(c);
	flushed_suspects(c); /* nobody reads these before they come back */
}
