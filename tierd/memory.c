/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts' memory by id; see memory.h. The index lies in a sealed memfd of ours, in ordinary
 * memory: it is read at every look-up, so it does not belong to a slower tier. The rest comes from
 * the tiers' backends.
 */
#include "tierd/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "tierd/backend/mem_common.h"

struct memory {
	const struct mem_ops *ops[ABI_MEM_TIERS];
	struct context_memory *context[ABI_CONTEXTS_MAX]; /* by index of the id */
	struct context_memory *retired;
};

int memory_open(struct memory **out, const struct mem_ops *const ops[ABI_MEM_TIERS])
{
	struct memory *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		m->ops[t] = ops[t];
	*out = m;
	return 0;
}

/* Readers keep what they have leased, and read on: it goes with their last mapping. */
void memory_leave(struct memory *m, struct context_memory *made)
{
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		if (made->mem[t].bytes)
			m->ops[t]->leave(&made->mem[t]);
	mem_leave(&made->index);
	free(made);
}

void memory_close(struct memory *m)
{
	for (uint32_t i = 0; i < ABI_CONTEXTS_MAX; i++)
		if (m->context[i])
			memory_leave(m, m->context[i]);
	while (m->retired) {
		struct context_memory *made = m->retired;

		m->retired = made->next;
		memory_unmake(m, made);
	}
	free(m);
}

static uint64_t resident(const struct mem_ops *ops, const struct mem_region *region)
{
	int64_t bytes = region->fd < 0 ? 0 : ops->resident(region);

	return bytes < 0 ? 0 : (uint64_t)bytes;
}

uint64_t memory_unmake(struct memory *m, struct context_memory *made)
{
	uint64_t given = 0;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		if (!made->mem[t].bytes)
			continue;
		given += resident(m->ops[t], &made->mem[t]);
		m->ops[t]->destroy(&made->mem[t]);
	}
	if (made->index.bytes)
		mem_destroy(&made->index);
	free(made);
	return given;
}

int memory_make(struct memory *m, const struct disk_context *spec,
		const struct core_context_plan *plan, struct context_memory **out)
{
	static const char *const tier_name[ABI_MEM_TIERS] = { "hbm", "cxl" };
	struct context_memory *made = calloc(1, sizeof(*made));
	char name[32 + ABI_NAME_BYTES];
	const char *label = spec->name;
	int rc;

	if (!made)
		return -ENOMEM;
	snprintf(name, sizeof(name), "tier-index-%.*s", (int)ABI_NAME_BYTES, label);
	rc = mem_create(&made->index, name, plan->index_bytes);
	if (!rc)
		rc = mem_policy_first(&made->index);
	for (uint32_t t = 0; t < ABI_MEM_TIERS && rc == 0; t++) {
		if (plan->mem_bytes[t] == 0)
			continue;
		snprintf(name, sizeof(name), "tier-%s-%.*s", tier_name[t], (int)ABI_NAME_BYTES,
			 label);
		rc = m->ops[t] ? m->ops[t]->create(m->ops[t], &made->mem[t], name,
						   plan->mem_bytes[t]) : -ENODEV;
		if (rc)
			made->mem[t].bytes = 0;
		made->mem[t].owner = spec->owner_uid;
	}
	if (rc) {
		memory_unmake(m, made);
		return rc;
	}
	*out = made;
	return 0;
}

/* Memory that lies in a memfd, as mem_create seals it. */
static bool is_ours(int fd, uint64_t bytes)
{
	int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
	const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct stat st;

	return seals >= 0 && (seals & want) == want && !fstat(fd, &st) &&
	       (uint64_t)st.st_size == bytes && (st.st_mode & 0777) == 0600 &&
	       st.st_uid == geteuid();
}

int memory_take(const struct memory *m, struct context_memory *made, uint32_t tier, int fd)
{
	struct mem_region *fresh = &made->mem[tier], taken;
	int rc;

	if (!fresh->bytes || !is_ours(fresh->fd, fresh->bytes) || !is_ours(fd, fresh->bytes))
		return -EINVAL;
	rc = mem_map(&taken, fd, fresh->bytes);
	if (rc)
		return rc;
	taken.nodes = fresh->nodes;
	taken.owner = fresh->owner;
	madvise(taken.addr, taken.bytes, MADV_HUGEPAGE);
	mem_policy_first(&taken);
	m->ops[tier]->destroy(fresh);
	*fresh = taken;
	return 0;
}

static struct context_memory *find(const struct memory *m, uint32_t id)
{
	uint32_t index = ABI_CONTEXT_INDEX(id);
	struct context_memory *made = index < ABI_CONTEXTS_MAX ? m->context[index] : NULL;

	return made && made->id == id ? made : NULL;
}

static void retire(struct memory *m, struct context_memory *made,
		   const struct worker_pool *workers)
{
	m->context[ABI_CONTEXT_INDEX(made->id)] = NULL;
	made->mark = worker_mark(workers);
	made->next = m->retired;
	m->retired = made;
}

void memory_adopt(struct memory *m, uint32_t id, struct context_memory *made,
		  const struct worker_pool *workers)
{
	struct context_memory *former = m->context[ABI_CONTEXT_INDEX(id)];

	/* The core uses an index again once it let go of it; we may be told a moment later. */
	if (former)
		retire(m, former, workers);
	made->id = id;
	m->context[ABI_CONTEXT_INDEX(id)] = made;
}

void memory_retire(struct memory *m, uint32_t id, const struct worker_pool *workers)
{
	struct context_memory *made = find(m, id);

	if (made)
		retire(m, made, workers);
}

uint64_t memory_reap(struct memory *m, const struct worker_pool *workers)
{
	struct context_memory **link = &m->retired;
	uint64_t given = 0;

	while (*link) {
		struct context_memory *made = *link;

		if (!worker_passed(workers, made->mark)) {
			link = &made->next;
			continue;
		}
		*link = made->next;
		given += memory_unmake(m, made);
	}
	return given;
}

static uint32_t count_regions(const struct context_memory *made, uint64_t *bytes)
{
	uint32_t n = made->index.bytes != 0;

	*bytes += made->index.bytes;
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		if (!made->mem[t].bytes || made->mem[t].fd < 0)
			continue;
		n++;
		*bytes += made->mem[t].bytes;
	}
	return n;
}

uint32_t memory_regions(const struct memory *m, uint64_t *bytes)
{
	uint32_t n = 0;

	*bytes = 0;
	for (uint32_t i = 0; i < ABI_CONTEXTS_MAX; i++)
		if (m->context[i])
			n += count_regions(m->context[i], bytes);
	for (const struct context_memory *at = m->retired; at; at = at->next)
		n += count_regions(at, bytes);
	return n;
}

const struct context_memory *memory_next(const struct memory *m, uint32_t *index)
{
	while (*index < ABI_CONTEXTS_MAX && !m->context[*index])
		(*index)++;
	return *index < ABI_CONTEXTS_MAX ? m->context[*index] : NULL;
}

const struct context_memory *memory_find(const struct memory *m, uint32_t id)
{
	return find(m, id);
}

/*
 * What a context has not, or no processor can read, is an empty file: every client gets the same
 * count of descriptors.
 */
static int share(const struct mem_ops *ops, const struct mem_region *region, uint64_t client)
{
	int fd = region->bytes ? ops->share(region, client) : -EOPNOTSUPP;

	if (fd != -EOPNOTSUPP)
		return fd;
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int memory_grant(const struct memory *m, uint32_t id, uint64_t client,
		 int fd[1 + ABI_MEM_TIERS])
{
	const struct context_memory *made = memory_find(m, id);
	uint32_t count = 0;

	if (!made)
		return -ENOENT;
	fd[0] = mem_share(&made->index, client);
	while (fd[count] >= 0 && count < ABI_MEM_TIERS) {
		fd[count + 1] = share(m->ops[count], &made->mem[count], client);
		count++;
	}
	if (fd[count] >= 0)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		close(fd[i]);
	return fd[count];
}

int memory_lend(const struct memory *m, const struct core_range *range, int *fd, uint32_t *count)
{
	const struct context_memory *made = memory_find(m, range->context_id);

	if (made && range->tier == CORE_RANGE_INDEX) {
		*count = 0; /* as the client has it mapped */
		return 0;
	}
	if (!made || !made->mem[range->tier].bytes)
		return -ENOENT;
	return m->ops[range->tier]->lend(&made->mem[range->tier], range->offset, range->bytes, fd,
					 count);
}

int memory_grant_write(const struct memory *m, const struct core_range *range)
{
	const struct context_memory *made = memory_find(m, range->context_id);

	if (!made || !made->mem[range->tier].bytes)
		return -ENOENT;
	return m->ops[range->tier]->grant(&made->mem[range->tier], range->offset, range->bytes);
}

/* Of one context's. A bit that is missing in *tiers is one of a tier that it may still read. */
static uint32_t revoke_in(const struct memory *m, const struct context_memory *made,
			  uint64_t client, uint32_t *tiers)
{
	uint32_t pinned = 0;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		int rc = made->mem[t].bytes ? m->ops[t]->revoke(&made->mem[t], client) : 0;

		if (rc)
			*tiers &= ~(1u << t);
		pinned += rc > 0 ? (uint32_t)rc : 0;
	}
	return pinned;
}

uint32_t memory_revoke(const struct memory *m, uint64_t client, uint32_t *tiers)
{
	uint32_t pinned = 0;

	*tiers = (1u << ABI_MEM_TIERS) - 1;
	for (uint32_t i = 0; i < ABI_CONTEXTS_MAX; i++)
		if (m->context[i])
			pinned += revoke_in(m, m->context[i], client, tiers);
	for (const struct context_memory *at = m->retired; at; at = at->next)
		pinned += revoke_in(m, at, client, tiers);
	return pinned;
}
