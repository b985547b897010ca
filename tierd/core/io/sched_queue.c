/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's queues: one a class and channel, in it a flow a client. Flows take turns by
 * device time (deficit round robin, Shreedhar and Varghese 1995); within a flow the earliest
 * deadline is first.
 *
 * Raising: somebody waits for a page that a queued operation of a less urgent class brings. It goes
 * with the more urgent class from then on; what is under way is not changed.
 */
#include <assert.h>

#include "tierd/core/io/sched_priv.h"

#define TURN_NS 200000 /* device time of one turn */

static struct sched_queue *queue_of(struct sched *s, const struct sched_node *node)
{
	return &s->channel[node->channel].queue[node->klass];
}

static struct sched_flow *flow_get(struct sched *s, const struct sched_node *node)
{
	uint16_t *at = &s->flow_of[node->channel][node->klass][node->client];
	struct sched_flow *f;

	if (*at)
		return &s->flow[*at - 1];
	assert(!list_empty(&s->flow_free)); /* a flow has a node: there are as many */
	f = list_entry(s->flow_free.next, struct sched_flow, ring);
	list_remove(&f->ring);
	list_push_back(&queue_of(s, node)->ring, &f->ring);
	list_init(&f->nodes);
	f->credit_ns = TURN_NS;
	f->client = node->client;
	*at = (uint16_t)(f - s->flow + 1);
	return f;
}

static bool goes_before(const struct sched_node *a, const struct sched_node *b)
{
	uint64_t da = a->deadline_ns ? a->deadline_ns : UINT64_MAX;
	uint64_t db = b->deadline_ns ? b->deadline_ns : UINT64_MAX;

	return da != db ? da < db : a->order < b->order;
}

void queue_insert(struct core *c, struct sched_node *node)
{
	struct sched *s = sched_of(c, node);
	struct sched_queue *q = queue_of(s, node);
	struct sched_flow *f = flow_get(s, node);
	struct list *at = f->nodes.prev;

	assert(node->state == SCHED_IDLE);
	while (at != &f->nodes &&
	       goes_before(node, list_entry(at, struct sched_node, link)))
		at = at->prev;
	list_insert_after(at, &node->link);
	node->state = SCHED_QUEUED;
	q->count++;
	q->bytes += node->bytes;
	s->queued++;
	if (node->expires_ns && node->expires_ns < s->expires_ns)
		s->expires_ns = node->expires_ns;
}

void queue_remove(struct core *c, struct sched_node *node)
{
	struct sched *s = sched_of(c, node);
	struct sched_queue *q = queue_of(s, node);
	uint16_t *at = &s->flow_of[node->channel][node->klass][node->client];
	struct sched_flow *f = &s->flow[*at - 1];

	assert(node->state == SCHED_QUEUED && *at);
	assert(q->count > 0 && q->bytes >= node->bytes);
	list_remove(&node->link);
	node->state = SCHED_IDLE;
	q->count--;
	q->bytes -= node->bytes;
	s->queued--;
	if (!list_empty(&f->nodes))
		return;
	list_remove(&f->ring);
	list_push_back(&s->flow_free, &f->ring);
	*at = 0;
}

/* So many of its bytes were issued; it stays where it is. */
void queue_shrink(struct core *c, struct sched_node *node, uint64_t bytes)
{
	struct sched_queue *q = queue_of(sched_of(c, node), node);

	assert(node->state == SCHED_QUEUED && node->bytes >= bytes && q->bytes >= bytes);
	node->bytes -= bytes;
	q->bytes -= bytes;
}

/* Whose turn it is; NULL = empty. */
struct sched_node *queue_first(const struct sched_queue *q)
{
	const struct sched_flow *f;

	if (!q->count)
		return NULL;
	f = list_entry(q->ring.next, const struct sched_flow, ring);
	return list_entry(f->nodes.next, struct sched_node, link);
}

static bool queue_agrees(const struct sched_queue *q)
{
	uint64_t bytes = 0;
	uint32_t count = 0;

	list_each(f, &q->ring) {
		const struct sched_flow *flow = list_entry(f, struct sched_flow, ring);

		if (list_empty(&flow->nodes))
			return false;
		list_each(n, &flow->nodes) {
			const struct sched_node *node = list_entry(n, struct sched_node, link);

			if (node->state != SCHED_QUEUED || node->client != flow->client)
				return false;
			bytes += node->bytes;
			count++;
		}
	}
	return bytes == q->bytes && count == q->count;
}

bool sched_has(const struct sched_node *node)
{
	return node->state != SCHED_IDLE;
}

static bool lanes_agree(const struct sched *s)
{
	uint32_t queued = 0;

	for (uint32_t channel = 0; channel < SCHED_CHANNELS; channel++)
		for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++) {
			if (!queue_agrees(&s->channel[channel].queue[k]))
				return false;
			queued += s->channel[channel].queue[k].count;
		}
	return queued == s->queued;
}

bool sched_agrees(const struct core *c)
{
	uint32_t ios = 0, copies = 0;

	for (uint32_t i = 0; i < sched_count(c); i++)
		if (!lanes_agree(&c->sched[i]))
			return false;
	for (uint32_t client = 0; client <= SCHED_DAEMON; client++) {
		ios += c->sched->ios[client];
		copies += c->sched->copies[client];
	}
	return ios == c->actions.ios && copies == c->actions.copies;
}

/* The first flow, whose node this is, uses device time; a turn that is used up ends. */
void queue_charge(struct core *c, struct sched_node *node, uint64_t ns)
{
	struct sched *s = sched_of(c, node);
	struct sched_queue *q = queue_of(s, node);
	struct sched_flow *f = list_entry(q->ring.next, struct sched_flow, ring);

	assert(node->state == SCHED_QUEUED && f->client == node->client);
	f->credit_ns -= (int64_t)ns;
	while (f->credit_ns <= 0) {
		f->credit_ns += TURN_NS;
		list_remove(&f->ring);
		list_push_back(&q->ring, &f->ring);
		f = list_entry(q->ring.next, struct sched_flow, ring);
	}
}

/* ---- raising ------------------------------------------------------------------------------- */

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
