/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the front asks of the shell: memory for contexts, their descriptors, and whether jobs that
 * may touch a client's staging are over.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tierd/shell.h"

int shell_context_make(struct shell *s, const struct disk_context *spec, uint64_t token,
		       uint32_t *id, char why[FRONT_WHY_BYTES])
{
	struct disk_context planned = *spec;
	struct core_context_plan plan = { .index_bytes = 0 };
	struct core_context_memory memory = { .at = 0 };
	struct context_memory *made;
	int rc = core_context_plan(s->core, &planned, &plan, why, FRONT_WHY_BYTES);

	if (rc)
		return rc;
	rc = memory_make(s->memory, spec, &plan, &made);
	if (rc) {
		snprintf(why, FRONT_WHY_BYTES, "its memory cannot be made: %s", strerror(-rc));
		return rc;
	}
	handover_memory(s, spec, &plan, made, &memory);
	memory.index = made->index.addr;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		memory.mem[t] = made->mem[t].addr;
	rc = core_context_create(s->core, spec, &memory, token, id);
	if (rc) {
		snprintf(why, FRONT_WHY_BYTES, rc == -ENFILE ?
			 "there are too many contexts; remove some, or format a larger store" :
			 "the core cannot create it (out of memory?)");
		if (memory.at)
			memory_leave(s->memory, made);
		else
			memory_unmake(s->memory, made);
		return rc;
	}
	memory_adopt(s->memory, *id, made, s->workers);
	if (spec->policy[0] && strcmp(spec->policy, planned.policy) != 0)
		log_warn(&s->log, "the context's eviction policy is no more", spec->name,
			 "it has the default", "was=%s now=%s", spec->policy, planned.policy);
	return 0;
}

static int context_create(struct shell *s, struct disk_context *spec, uint64_t token,
			  uint32_t *id, char why[FRONT_WHY_BYTES])
{
	return shell_context_make(s, spec, token, id, why);
}

static void context_gone(struct shell *s, uint32_t id)
{
	memory_retire(s->memory, id, s->workers);
}

static int context_grant(struct shell *s, uint32_t id, uint64_t client,
			 int fd[FRONT_CONTEXT_FDS])
{
	return memory_grant(s->memory, id, client, fd);
}

static uint32_t context_revoke(struct shell *s, uint64_t client, uint32_t *tiers)
{
	return memory_revoke(s->memory, client, tiers);
}

static int slab_lend(struct shell *s, const struct core_range *range, int *fd, uint32_t *count)
{
	return memory_lend(s->memory, range, fd, count);
}

static int place_grant(struct shell *s, const struct core_range *range)
{
	return memory_grant_write(s->memory, range);
}

static int upgrade(struct shell *s, char why[FRONT_WHY_BYTES])
{
	if (access(s->handover.program, X_OK)) {
		int rc = -errno;

		snprintf(why, FRONT_WHY_BYTES, "%.180s cannot be run: %s", s->handover.program,
			 strerror(-rc));
		return rc;
	}
	s->loop.upgrade = true;
	return 0;
}

static uint64_t jobs_mark(struct shell *s)
{
	return worker_mark(s->workers);
}

static bool jobs_passed(struct shell *s, uint64_t mark)
{
	return worker_passed(s->workers, mark);
}

const struct front_ops shell_front_ops = {
	.context_create = context_create,
	.context_gone = context_gone,
	.context_grant = context_grant,
	.context_revoke = context_revoke,
	.slab_lend = slab_lend,
	.place_grant = place_grant,
	.upgrade = upgrade,
	.jobs_mark = jobs_mark,
	.jobs_passed = jobs_passed,
};
