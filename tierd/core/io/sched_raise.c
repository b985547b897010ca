/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raising: somebody waits for a page that a queued operation of a less urgent class brings. It goes
 * with the more urgent class from then on; what is under way is not changed.
 */
#include "tierd/core/io/sched_priv.h"

static void raise_node(struct core *c, struct sched_node *node, uint32_t klass,
		       uint64_t deadline_ns)
{
	queue_remove(c, node);
	node->klass = (uint8_t)klass;
	if (!node->deadline_ns || (deadline_ns && deadline_ns < node->deadline_ns))
		node->deadline_ns = deadline_ns;
	if (!deadline_ns || !node->expires_ns)
		node->expires_ns = 0;
	else if (node->expires_ns < deadline_ns)
		node->expires_ns = deadline_ns;
	node->joined = true;
	c->metrics.raised++;
	sched_enqueue(c, node);
}

/* What brings a page: a read from this place of the store, or a copy to this address. */
struct sought {
	uint64_t offset;
	uint32_t device;
	bool cxl, hbm; /* reads into these */
	const void *dst;
};

static bool brings(struct sched_node *node, const struct sought *s)
{
	const struct core_copy *copy;
	const struct core_io *io;

	if (sched_is_device(node->channel)) {
		io = io_of(node);
		return (io->direct ? s->hbm : s->cxl) && s->device == io->device &&
		       s->offset - io->offset < io->bytes;
	}
	copy = copy_of(node);
	for (uint32_t i = 0; i < copy->count; i++)
		if (copy->item[i].dst == s->dst)
			return true;
	return false;
}

/* Of write-back and clean-up there is none: what they read brings nobody a page. */
static struct sched_node *find_below(const struct sched_channel_state *l, uint32_t klass,
				     const struct sought *s)
{
	for (uint32_t k = klass + 1; k <= ABI_CLASS_SPECULATIVE; k++)
		list_each(f, &l->queue[k].ring)
			list_each(n, &list_entry(f, struct sched_flow, ring)->nodes) {
				struct sched_node *node = list_entry(n, struct sched_node, link);

				if (brings(node, s))
					return node;
			}
	return NULL;
}

bool sched_outranks(const struct core *c, uint64_t nvme, uint32_t klass, bool direct)
{
	const struct sought s = { .offset = abi_nvme_offset(nvme),
				  .device = abi_nvme_device(nvme), .cxl = !direct, .hbm = direct };

	return find_below(&c->sched[s.device].channel[SCHED_READ], klass, &s) != NULL;
}

bool sched_outranks_copy(const struct core *c, const void *dst, uint32_t klass)
{
	const struct sought s = { .dst = dst };

	return find_below(&c->sched->channel[SCHED_TO_HBM], klass, &s) != NULL;
}

bool sched_raise(struct core *c, uint64_t nvme, uint32_t klass, uint64_t deadline_ns)
{
	const struct sought s = { .offset = abi_nvme_offset(nvme),
				  .device = abi_nvme_device(nvme), .cxl = true, .hbm = true };
	struct sched_node *node = find_below(&c->sched[s.device].channel[SCHED_READ], klass, &s);

	if (!node)
		return false;
	io_of(node)->klass = (uint8_t)klass;
	raise_node(c, node, klass, deadline_ns);
	return true;
}

bool sched_raise_copy(struct core *c, const void *dst, uint32_t klass, uint64_t deadline_ns)
{
	const struct sought s = { .dst = dst };
	struct sched_node *node = find_below(&c->sched->channel[SCHED_TO_HBM], klass, &s);

	if (!node)
		return false;
	copy_of(node)->klass = (uint8_t)klass;
	raise_node(c, node, klass, deadline_ns);
	return true;
}
