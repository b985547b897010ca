/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler; see sched.h for the rules. Here: what goes next, in what units, and how queued
 * work ends early.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/io/sched_priv.h"

#define FEW 8u                     /* operations that a client finds room for in a scarce pool */
#define OWED_MOST_NS (2 * (int64_t)MS) /* write-back cannot save up more */
#define PRESSED_SHARE 50u

/* ---- life, pools -------------------------------------------------------------------------- */

static void drive_open(struct core *c, struct sched *s)
{
	for (uint32_t channel = 0; channel < SCHED_CHANNELS; channel++)
		for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++)
			list_init(&s->channel[channel].queue[k].ring);
	list_init(&s->flow_free);
	for (uint32_t i = 0; i < SCHED_FLOWS; i++)
		list_push_back(&s->flow_free, &s->flow[i].ring);
	for (uint32_t i = 0; i < SCHED_UNITS; i++) {
		s->unit[i].priv.next = s->unit_free;
		s->unit_free = &s->unit[i];
	}
	meter_open(s);
	s->expires_ns = UINT64_MAX;
	s->writeback_share = c->config.writeback_percent;
}

int sched_open(struct core *c)
{
	c->sched = calloc(sched_count(c), sizeof(*c->sched));
	if (!c->sched)
		return -ENOMEM;
	for (uint32_t i = 0; i < sched_count(c); i++)
		drive_open(c, &c->sched[i]);
	return 0;
}

void sched_close(struct core *c)
{
	free(c->sched);
}

static bool few_or_plenty(uint32_t own, uint32_t used, uint32_t most)
{
	return own < FEW || used < most - most / 4;
}

/* Reads that are not urgent; the core's own among them: what it stages for clients. */
static bool is_background(uint32_t klass, uint32_t client)
{
	if (client == SCHED_DAEMON)
		return klass == ABI_CLASS_DEADLINE || klass == ABI_CLASS_SPECULATIVE;
	return klass != ABI_CLASS_DEMAND;
}

bool sched_admits_io(const struct core *c, uint32_t klass, uint32_t client)
{
	const struct sched *s = c->sched;

	assert(klass < ABI_CLASS_COUNT && client <= SCHED_DAEMON);
	if (client == SCHED_DAEMON && !is_background(klass, client))
		return true;
	if (!few_or_plenty(s->ios[client], c->actions.ios, CORE_IO_MAX))
		return false;
	return klass == ABI_CLASS_DEMAND ||
	       (s->background_ios < SCHED_BACKGROUND_IOS &&
		few_or_plenty(s->ios[client], s->background_ios, SCHED_BACKGROUND_IOS));
}

void sched_io_taken(struct core *c, struct core_io *io, uint32_t client)
{
	io->priv.node = (struct sched_node){ .client = client };
	io->priv.node.background = is_background(io->klass, client);
	c->sched->ios[client]++;
	c->sched->background_ios += io->priv.node.background;
}

void sched_io_left(struct core *c, const struct core_io *io)
{
	assert(c->sched->ios[io->priv.node.client] > 0);
	assert(io->priv.node.state == SCHED_IDLE);
	c->sched->ios[io->priv.node.client]--;
	c->sched->background_ios -= io->priv.node.background;
}

bool sched_admits_copy(const struct core *c, uint32_t client)
{
	return few_or_plenty(c->sched->copies[client], c->actions.copies, CORE_COPIES_MAX);
}

void sched_copy_taken(struct core *c, struct core_copy *copy, uint32_t client)
{
	copy->priv.node = (struct sched_node){ .client = client };
	c->sched->copies[client]++;
}

void sched_copy_left(struct core *c, const struct core_copy *copy)
{
	assert(c->sched->copies[copy->priv.node.client] > 0);
	assert(copy->priv.node.state == SCHED_IDLE);
	c->sched->copies[copy->priv.node.client]--;
}

void sched_copy_add(struct core_copy *copy, const struct core_copy_item *item, uint32_t slot,
		    uint32_t page)
{
	uint32_t n = copy->count++;

	assert(n < CORE_SEGMENTS_IO);
	copy->item[n] = *item;
	copy->priv.slot[n] = slot;
	copy->priv.page[n] = page;
	copy->priv.node.bytes += item->bytes;
}

bool sched_copy_full(const struct core_copy *copy)
{
	return copy->count == CORE_SEGMENTS_IO || copy->priv.node.bytes >= SCHED_COPY_BYTES;
}

/* ---- queueing ----------------------------------------------------------------------------- */

static uint32_t class_count(const struct sched *s, uint32_t klass)
{
	return s->channel[SCHED_READ].queue[klass].count +
	       s->channel[SCHED_WRITE].queue[klass].count;
}

void sched_enqueue(struct core *c, struct sched_node *node)
{
	struct sched *s = sched_of(c, node);

	if (sched_is_device(node->channel)) {
		if (node->klass == ABI_CLASS_DEMAND) {
			gap_over(c, s);
			s->demand_ns = c->now_ns;
		} else if (!class_count(s, node->klass)) {
			s->waits_ns[node->klass] = c->now_ns;
		}
	}
	node->since_ns = c->now_ns;
	queue_insert(c, node);
}

void sched_io(struct core *c, struct core_io *io)
{
	struct sched_node *node = &io->priv.node;

	assert(io->piece_count > 0 && io->bytes > 0);
	assert(!io->write || !io->deadline_ns); /* what is to be written does not lapse */
	node->channel = io->write ? SCHED_WRITE : SCHED_READ;
	node->device = (uint8_t)io->device;
	node->klass = io->klass;
	node->deadline_ns = io->deadline_ns;
	node->expires_ns = io->deadline_ns;
	node->bytes = io->bytes;
	sched_enqueue(c, node);
}

static uint8_t copy_channel(const struct core_copy *copy)
{
	if (copy->dst_tier == ABI_TIER_HBM)
		return SCHED_TO_HBM;
	return copy->src_tier == ABI_TIER_HBM ? SCHED_FROM_HBM : SCHED_TO_CXL;
}

void sched_copy(struct core *c, struct core_copy *copy)
{
	struct sched_node *node = &copy->priv.node;

	assert(copy->count > 0);
	node->channel = copy_channel(copy);
	node->klass = copy->klass;
	node->deadline_ns = copy->deadline_ns;
	node->expires_ns = copy->src_tier == ABI_TIER_COUNT ? 0 : copy->deadline_ns;
	node->order = copy->order;
	sched_enqueue(c, node);
}

/* ---- what goes next ----------------------------------------------------------------------- */

bool sched_sees(const struct core *c, const struct sched *s, uint64_t within_ns)
{
	return sched_demand_there(s) || (s->demand_ns && c->now_ns - s->demand_ns < within_ns);
}

bool sched_demand(const struct core *c, uint64_t within_ns)
{
	for (uint32_t i = 0; i < sched_count(c); i++)
		if (sched_sees(c, &c->sched[i], within_ns))
			return true;
	return false;
}

static uint32_t unit_bytes(const struct core *c, const struct sched *s, uint32_t klass)
{
	if (klass == ABI_CLASS_DEMAND)
		return CORE_IO_BYTES_MAX;
	return sched_sees(c, s, gap_busy_ns(s)) ? SCHED_UNIT_BUSY : SCHED_UNIT_BYTES;
}

uint32_t sched_unit_bytes(const struct core *c, uint32_t klass)
{
	uint32_t least = CORE_IO_BYTES_MAX;

	for (uint32_t i = 0; i < sched_count(c); i++) {
		uint32_t bytes = unit_bytes(c, &c->sched[i], klass);

		least = bytes < least ? bytes : least;
	}
	return least;
}

/* Bytes that a node's next unit is about. */
static uint64_t next_bytes(const struct core *c, const struct sched_node *node)
{
	uint32_t unit = unit_bytes(c, sched_of(c, node), node->klass);

	return node->bytes < unit ? node->bytes : unit;
}

/* For how long after demand background lets it pass: the next may still come. */
static uint64_t yield_ns(const struct sched *s)
{
	const struct sched_gaps *g = &s->gaps;
	uint64_t gap = g->shortest_ns + g->shortest_ns / 4;

	gap = g->busy_ns > gap ? g->busy_ns : gap;
	return gap > SCHED_YIELD_NS ? gap : SCHED_YIELD_NS;
}

/* Does background let demand pass now? */
bool sched_yields(const struct core *c, const struct sched *s)
{
	return c->config.yield && sched_sees(c, s, yield_ns(s));
}

/* No demand is there, or to be expected soon. */
static bool is_calm(const struct core *c, const struct sched *s)
{
	return gap_foreseen(s) ? gap_end(c, s) != 0 : !sched_demand_there(s);
}

static bool starved(const struct core *c, const struct sched *s, uint32_t klass)
{
	uint64_t most = c->config.starve_ns;

	if (sched_yields(c, s) && is_calm(c, s))
		most -= most / 4;
	return class_count(s, klass) && c->now_ns - s->waits_ns[klass] >= most;
}

static bool fits(const struct core *c, const struct sched_node *node)
{
	const struct sched *s = sched_of(c, node);
	uint64_t ns = s->background_ns + meter_cost(s, node->channel, next_bytes(c, node));
	uint64_t end = gap_end(c, s);
	/* To wait for the gap's end would keep it from a device that may be idle. */
	bool overdue = sched_waits(c, s, node->klass) >= c->config.starve_ns;

	if (!sched_sees(c, s, gap_busy_ns(s)))
		return !s->background_ops || ns <= SCHED_BUDGET_IDLE_NS;
	if (ns <= gap_budget_ns(c, s) && c->now_ns + ns <= end)
		return true;
	if (end && sched_yields(c, s) && !overdue)
		return false;
	if (gap_holds(c, s) && !starved(c, s, node->klass))
		return false;
	return !s->background_ops || ns <= SCHED_BUDGET_BUSY_NS;
}

/* The class's next, of reads and writes: who has waited longer. */
static struct sched_node *first_of(struct sched *s, uint32_t klass)
{
	struct sched_node *read = queue_first(&s->channel[SCHED_READ].queue[klass]);
	struct sched_node *write = queue_first(&s->channel[SCHED_WRITE].queue[klass]);

	if (!read || !write)
		return read ? read : write;
	return write->since_ns < read->since_ns ? write : read;
}

uint64_t sched_waits(const struct core *c, const struct sched *s, uint32_t klass)
{
	assert(klass != ABI_CLASS_DEMAND && klass < ABI_CLASS_COUNT);
	return class_count(s, klass) ? c->now_ns - s->waits_ns[klass] : 0;
}

uint64_t sched_waits_ns(const struct core *c, uint32_t drive, uint32_t klass)
{
	return sched_waits(c, &c->sched[drive], klass);
}

/* The background class that has starved longest. */
static struct sched_node *starved_first(const struct core *c, struct sched *s)
{
	uint32_t found = ABI_CLASS_DEMAND;

	for (uint32_t k = ABI_CLASS_DEMAND + 1; k < ABI_CLASS_COUNT; k++)
		if (starved(c, s, k) && (found == ABI_CLASS_DEMAND ||
					 s->waits_ns[k] < s->waits_ns[found]))
			found = k;
	return found == ABI_CLASS_DEMAND ? NULL : first_of(s, found);
}

static struct sched_node *background_first(struct sched *s)
{
	for (uint32_t k = ABI_CLASS_DEMAND + 1; k < ABI_CLASS_COUNT; k++)
		if (class_count(s, k))
			return first_of(s, k);
	return NULL;
}

/*
 * Write-back that is owed its next unit. What someone waits for has that ahead of what others use:
 * between two of its writes none is queued, so nothing would be owed.
 */
static struct sched_node *owed_first(const struct core *c, struct sched *s)
{
	struct sched_node *node = queue_first(&s->channel[SCHED_WRITE].queue[ABI_CLASS_WRITEBACK]);
	int64_t cost;

	if (node && node->waited && s->writeback_ns > -OWED_MOST_NS && is_calm(c, s))
		return node;
	if (class_count(s, ABI_CLASS_WRITEBACK))
		node = first_of(s, ABI_CLASS_WRITEBACK);
	if (!node)
		return NULL;
	cost = (int64_t)meter_cost(s, node->channel, next_bytes(c, node));
	if (sched_yields(c, s) && !is_calm(c, s))
		cost = OWED_MOST_NS;
	return s->writeback_ns >= (cost < OWED_MOST_NS ? cost : OWED_MOST_NS) ? node : NULL;
}

/* Small reads take a deep queue to be fast; large ones come late in it, all together. */
static struct sched_node *demand_first(struct sched *s)
{
	struct sched_node *node = first_of(s, ABI_CLASS_DEMAND);
	uint64_t most = node->bytes > SCHED_SMALL_BYTES ? SCHED_BUDGET_DEMAND_NS :
							  SCHED_BUDGET_SMALL_NS;

	return meter_under_way_ns(s) < most ? node : NULL;
}

/* The node of a drive whose next unit goes now; NULL = none may. */
static struct sched_node *pick(const struct core *c, struct sched *s)
{
	bool held = sched_yields(c, s) && !gap_end(c, s);
	struct sched_node *node = starved_first(c, s);

	if (!node && (!held || s->pressed))
		node = owed_first(c, s);
	if (node && fits(c, node))
		return node;
	if (class_count(s, ABI_CLASS_DEMAND))
		return demand_first(s);
	if (!node && !held)
		node = background_first(s);
	/* What is to go next and finds no room is not passed by smaller background. */
	return node && fits(c, node) ? node : NULL;
}

/* ---- issuing ------------------------------------------------------------------------------ */

/* Write-back is owed its share of what others use. */
static void account(struct sched *s, uint32_t klass, uint64_t ns)
{
	int64_t owed = (int64_t)(ns * s->writeback_share / (100 - s->writeback_share));

	if (!class_count(s, ABI_CLASS_WRITEBACK))
		s->writeback_ns = 0;
	else if (klass != ABI_CLASS_WRITEBACK)
		s->writeback_ns += owed;
	else
		s->writeback_ns -= (int64_t)ns;
	if (s->writeback_ns > OWED_MOST_NS)
		s->writeback_ns = OWED_MOST_NS;
	if (s->writeback_ns < -OWED_MOST_NS)
		s->writeback_ns = -OWED_MOST_NS;
}

static void push_io(struct core *c, struct core_io *io)
{
	struct sched_node *node = &io->priv.node;
	struct sched *s = sched_of(c, node);

	meter_fly(c, node, io->bytes);
	c->sched->direct_ops += io->direct;
	account(s, node->klass, node->cost_ns);
	s->waits_ns[node->klass] = c->now_ns;
	if (node->klass != ABI_CLASS_DEMAND)
		c->metrics.background_bytes += io->bytes;
	core_push(c, io->write ? CORE_AC_WRITE : CORE_AC_READ)->io = io;
}

/* The next pieces of io, up to `limit` bytes but at least one, as an operation of their own. */
static void unit_fill(struct core_io *unit, const struct core_io *io, uint64_t limit)
{
	uint32_t first = io->priv.node.cut, n = 0;

	unit->device = io->device;
	unit->offset = io->offset + io->bytes - io->priv.node.bytes;
	unit->bytes = 0;
	while (first + n < io->piece_count &&
	       (!n || unit->bytes + io->piece[first + n].bytes <= limit)) {
		unit->piece[n] = io->piece[first + n];
		unit->priv.slot[n] = io->priv.slot[first + n];
		unit->priv.page[n] = io->priv.page[first + n];
		unit->bytes += unit->piece[n++].bytes;
	}
	unit->piece_count = n;
	unit->write = io->write;
	unit->klass = io->klass;
	unit->verify = io->verify;
	unit->direct = io->direct;
	unit->deadline_ns = io->deadline_ns;
	unit->res = 0;
	unit->bad_mask = 0;
}

static bool unit_issue(struct core *c, struct core_io *io, uint64_t limit)
{
	struct sched_node *node = &io->priv.node;
	struct sched *s = sched_of(c, node);
	struct core_io *unit = s->unit_free;

	if (!unit)
		return false;
	s->unit_free = unit->priv.next;
	unit_fill(unit, io, limit);
	queue_charge(c, node, meter_cost(s, node->channel, unit->bytes));
	unit->priv.node = (struct sched_node){ .client = node->client,
					       .klass = node->klass,
					       .channel = node->channel,
					       .cut = node->cut,
					       .device = node->device };
	unit->priv.owner = io;
	node->cut += unit->piece_count;
	node->flying++;
	queue_shrink(c, node, unit->bytes);
	if (node->cut == io->piece_count) {
		queue_remove(c, node);
		node->state = SCHED_CUT;
	}
	push_io(c, unit);
	c->metrics.units++;
	return true;
}

static bool issue(struct core *c, struct sched_node *node)
{
	struct core_io *io = io_of(node);
	const struct sched *s = sched_of(c, node);
	uint64_t limit = unit_bytes(c, s, node->klass);

	if (node->cut || (io->bytes > limit && io->piece_count > 1))
		return unit_issue(c, io, limit);
	queue_charge(c, node, meter_cost(s, node->channel, io->bytes));
	queue_remove(c, node);
	push_io(c, io);
	return true;
}

static void copies_step(struct core *c)
{
	static const uint32_t most[SCHED_CHANNELS] = {
		[SCHED_TO_HBM] = SCHED_HBM_COPIES,
		[SCHED_FROM_HBM] = SCHED_HBM_COPIES,
		[SCHED_TO_CXL] = CORE_COPIES_MAX,
	};

	for (uint32_t i = SCHED_TO_HBM; i < SCHED_CHANNELS; i++) {
		struct sched_channel_state *l = &c->sched->channel[i];
		uint32_t k = 0;

		while (k < ABI_CLASS_COUNT && l->ops < most[i]) {
			struct sched_node *node = queue_first(&l->queue[k]);

			if (!node) {
				k++;
				continue;
			}
			queue_charge(c, node, meter_cost(c->sched, i, node->bytes));
			queue_remove(c, node);
			meter_fly(c, node, node->bytes);
			core_push(c, CORE_AC_COPY)->copy = copy_of(node);
		}
	}
}

static void drive_step(struct core *c, struct sched *s)
{
	struct sched_node *node;

	while (s->queued && sched_device_ops(s) < c->config.device_depth) {
		node = pick(c, s);
		if (!node || !issue(c, node))
			return;
	}
}

void sched_step(struct core *c)
{
	if (c->sched->queued)
		copies_step(c);
	for (uint32_t i = 0; i < sched_count(c); i++)
		drive_step(c, &c->sched[i]);
}

/* ---- ends --------------------------------------------------------------------------------- */

static bool whole(const struct core_io *io)
{
	return io->res >= 0 && (uint64_t)io->res == io->bytes;
}

/* The last of an operation in units is over. */
static void cut_end(struct core *c, struct core_io *io)
{
	struct sched_node *node = &io->priv.node;

	node->state = SCHED_IDLE;
	io->res = node->error ? node->error : (int32_t)io->bytes;
	io->priv.done(c, io);
}

static void unit_done(struct core *c, struct core_io *unit)
{
	struct sched *s = sched_of(c, &unit->priv.node);
	struct core_io *io = unit->priv.owner;
	struct sched_node *node = &io->priv.node;

	assert(node->flying > 0);
	node->flying--;
	/* unit.cut is where its first piece was in the whole. */
	io->bad_mask |= unit->bad_mask << unit->priv.node.cut;
	if (!whole(unit) && !node->error)
		node->error = unit->res < 0 ? unit->res : -EIO;
	unit->priv.next = s->unit_free;
	s->unit_free = unit;
	if (node->error && node->state == SCHED_QUEUED) {
		queue_remove(c, node); /* the rest would be for nothing */
		node->state = SCHED_CUT;
	}
	if (node->state == SCHED_CUT && !node->flying)
		cut_end(c, io);
}

void sched_landed(struct core *c, struct core_io *io)
{
	meter_land(c, &io->priv.node, whole(io));
	io->priv.node.state = SCHED_LANDED;
}

void sched_done(struct core *c, struct core_io *io)
{
	const struct sched *s = sched_of(c, &io->priv.node);

	assert(c->sched->direct_ops >= io->direct);
	c->sched->direct_ops -= io->direct;
	c->sched->losses += !whole(io) || io->bad_mask; /* who waits for its pages looks again */
	if (io->priv.node.state == SCHED_LANDED)
		io->priv.node.state = SCHED_IDLE;
	else
		meter_land(c, &io->priv.node, whole(io));
	if (io >= s->unit && io < s->unit + SCHED_UNITS)
		unit_done(c, io);
	else
		io->priv.done(c, io);
}

void sched_copied(struct core *c, struct core_copy *copy)
{
	meter_land(c, &copy->priv.node, !copy->res);
	c->sched->losses += copy->res != 0;
	copy->priv.done(c, copy);
}

/* End nodes that were taken from their queues: with this error, at once or with their last unit. */
static void end_all(struct core *c, struct list *gone, int error)
{
	while (!list_empty(gone)) {
		struct sched_node *node = list_entry(gone->next, struct sched_node, link);

		list_remove(&node->link);
		c->sched->losses++;
		if (!sched_is_device(node->channel)) {
			copy_of(node)->res = error;
			copy_of(node)->priv.done(c, copy_of(node));
			continue;
		}
		node->error = error;
		node->state = SCHED_CUT;
		if (!node->flying)
			cut_end(c, io_of(node));
	}
}

static void withdraw(struct core *c, struct sched *s, uint32_t client, const void *owner,
		     struct list *gone)
{
	for (uint32_t channel = 0; channel < SCHED_CHANNELS; channel++)
		for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++) {
			uint16_t at = s->flow_of[channel][k][client];

			if (!at)
				continue;
			list_each(n, &s->flow[at - 1].nodes) {
				struct sched_node *node = list_entry(n, struct sched_node, link);
				void *its = sched_is_device(channel) ? io_of(node)->priv.owner
								  : copy_of(node)->priv.owner;

				if (node->joined || (owner && its != owner))
					continue;
				queue_remove(c, node);
				list_push_back(gone, &node->link);
				c->metrics.withdrawn++;
			}
		}
}

void sched_withdraw(struct core *c, uint32_t client, const void *owner)
{
	struct list gone;

	list_init(&gone);
	for (uint32_t i = 0; i < sched_count(c); i++)
		withdraw(c, &c->sched[i], client, owner, &gone);
	end_all(c, &gone, -ECANCELED);
}

uint32_t sched_losses(const struct core *c)
{
	return c->sched->losses;
}

/* ---- time --------------------------------------------------------------------------------- */

static uint64_t queue_expire(struct core *c, struct sched_queue *q, struct list *gone)
{
	uint64_t next = UINT64_MAX;

	list_each(f, &q->ring)
		list_each(n, &list_entry(f, struct sched_flow, ring)->nodes) {
			struct sched_node *node = list_entry(n, struct sched_node, link);

			if (!node->expires_ns)
				continue;
			if (node->expires_ns > c->now_ns) {
				next = node->expires_ns < next ? node->expires_ns : next;
				continue;
			}
			queue_remove(c, node);
			list_push_back(gone, &node->link);
			c->metrics.expired++;
		}
	return next;
}

static void expire(struct core *c, struct sched *s)
{
	struct list gone;
	uint64_t next = UINT64_MAX;

	if (c->now_ns < s->expires_ns)
		return;
	list_init(&gone);
	for (uint32_t channel = 0; channel < SCHED_CHANNELS; channel++)
		for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++) {
			uint64_t at = queue_expire(c, &s->channel[channel].queue[k], &gone);

			next = at < next ? at : next;
		}
	s->expires_ns = next;
	end_all(c, &gone, -ETIME);
}

/* What write-back is owed: more as the dirty limit comes near, or when someone waits for it. */
static void press(struct core *c)
{
	uint32_t least = c->config.writeback_percent, share = least;
	bool waited = c->writeback.draining || drives_write(c, DISK_LOG_DURABLE);

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];
		uint64_t half = x ? dirty_limit(c, x) / 2 : 0, over;

		if (!x)
			continue;
		waited |= x->dirty[DISK_LOG_DURABLE].list.count != 0;
		if (!half || x->dirty_bytes <= half)
			continue;
		over = x->dirty_bytes - half < half ? x->dirty_bytes - half : half;
		over = least + over * (SCHED_WRITEBACK_MOST - least) / half;
		share = over > share ? (uint32_t)over : share;
	}
	if (waited && share < PRESSED_SHARE)
		share = PRESSED_SHARE;
	for (uint32_t i = 0; i < sched_count(c); i++) {
		c->sched[i].writeback_share = share;
		c->sched[i].pressed = share > least;
	}
}

void sched_tick(struct core *c)
{
	struct sched *s = c->sched;

	for (uint32_t i = 0; i < sched_count(c); i++)
		expire(c, &c->sched[i]);
	if (c->now_ns < s->refresh_ns)
		return;
	s->refresh_ns = c->now_ns + MS;
	press(c);
	meter_refresh(c);
}

static uint64_t drive_next(const struct core *c, const struct sched *s)
{
	uint64_t next = s->expires_ns, calm = 0, gap = gap_begins(s);

	if (s->demand_ns)
		calm = s->demand_ns + yield_ns(s);
	/* Held back behind demand: looked at again when its gap begins, or when it starves. */
	for (uint32_t k = ABI_CLASS_DEMAND + 1; k < ABI_CLASS_COUNT; k++) {
		uint64_t at = s->waits_ns[k] + c->config.starve_ns;

		if (!class_count(s, k))
			continue;
		if (calm > c->now_ns && calm < at)
			at = calm;
		if (gap > c->now_ns && gap < at)
			at = gap;
		next = at < next ? at : next;
	}
	return next;
}

uint64_t sched_next_tick(const struct core *c)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < sched_count(c); i++) {
		uint64_t at = drive_next(c, &c->sched[i]);

		next = at < next ? at : next;
	}
	return next > c->now_ns ? next : c->now_ns + MS;
}
