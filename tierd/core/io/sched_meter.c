/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operations cost, from what was measured while running.
 *
 * Bandwidth of a channel: bytes that it moved over the time in which something was under way, taken
 * each SAMPLE_NS of such time, as a moving average. A sample of a time in which little was under
 * way says what was asked for, not what the channel can do: it can only raise the estimate (as
 * BBR's application-limited samples do). So does one of a time that reads and writes shared, until
 * there has been no other for MIXED_MAX samples: costs of reads and writes differ. And one of
 * copies to HBM beside reads into it: where the two share something, each read would make copies
 * look slower, and so bring more reads (path.c). Latency: the time of an operation beyond its
 * bytes' time, taken while little is under way.
 */
#include <assert.h>

#include "tierd/core/io/sched_priv.h"

#define FULL_BYTES (512u << 10)  /* under way from here on: the channel is kept busy */
#define LITTLE_BYTES (256u << 10)
#define OP_NS 4000u              /* of device time of an operation, beyond its bytes */
#define SAMPLE_NS (5 * MS)
#define MIXED_MAX 200u           /* samples: a second of busy time */
#define WINDOW_NS (100 * MS)
#define SECOND_NS 1000000000ull

static const uint64_t first_bandwidth[SCHED_CHANNELS] = {
	[SCHED_READ] = 1000000000, [SCHED_WRITE] = 1000000000, [SCHED_TO_HBM] = 4000000000,
	[SCHED_FROM_HBM] = 4000000000, [SCHED_TO_CXL] = 4000000000,
};

static uint64_t bytes_ns(uint64_t bytes, uint64_t bandwidth)
{
	return (uint64_t)((double)bytes * (double)SECOND_NS / (double)bandwidth);
}

/* Until something was measured. */
void meter_open(struct sched *s)
{
	for (uint32_t i = 0; i < SCHED_CHANNELS; i++)
		s->channel[i].bandwidth = first_bandwidth[i];
}

static uint64_t bandwidth_of(const struct core *c, uint32_t channel)
{
	return c->sched->channel[channel].bandwidth;
}

uint64_t meter_cost(const struct core *c, uint32_t channel, uint64_t bytes)
{
	return OP_NS + bytes_ns(bytes, bandwidth_of(c, channel));
}

uint64_t sched_under_way_ns(const struct core *c)
{
	const struct sched_channel_state *read = &c->sched->channel[SCHED_READ];
	const struct sched_channel_state *write = &c->sched->channel[SCHED_WRITE];

	return bytes_ns(read->bytes, read->bandwidth) + bytes_ns(write->bytes, write->bandwidth);
}

static uint64_t device_bytes(const struct sched *s, uint32_t channel)
{
	if (!sched_is_device(channel))
		return s->channel[channel].bytes;
	return s->channel[SCHED_READ].bytes + s->channel[SCHED_WRITE].bytes;
}

void meter_fly(struct core *c, struct sched_node *node, uint64_t bytes)
{
	struct sched *s = c->sched;
	struct sched_channel_state *l = &s->channel[node->channel];

	assert(node->state == SCHED_IDLE);
	node->state = SCHED_FLYING;
	node->bytes = bytes;
	node->since_ns = c->now_ns;
	node->cost_ns = meter_cost(c, node->channel, bytes);
	if (!l->ops++)
		l->busy_since_ns = c->now_ns;
	l->bytes += bytes;
	node->beside = device_bytes(s, node->channel);
	node->mixed = node->beside > l->bytes || (node->channel == SCHED_TO_HBM && s->direct_ops);
	if (!sched_is_device(node->channel) || node->klass == ABI_CLASS_DEMAND)
		return;
	s->background_ops++;
	s->background_ns += node->cost_ns;
}

static uint64_t busy_ns(const struct core *c, const struct sched_channel_state *l)
{
	return l->busy_ns + (l->ops ? c->now_ns - l->busy_since_ns : 0);
}

static void sample_bandwidth(const struct core *c, struct sched_channel_state *l,
			     const struct sched_node *node)
{
	uint64_t ns = busy_ns(c, l) - l->sample_busy_ns, bytes = l->moved - l->sample_moved, rate;
	uint32_t most = sched_is_device(node->channel) ? MIXED_MAX : UINT32_MAX;

	l->sample_full += node->beside >= FULL_BYTES ? node->bytes : 0;
	l->sample_mixed += node->mixed ? node->bytes : 0;
	if (ns < SAMPLE_NS)
		return;
	rate = (uint64_t)((double)bytes * (double)SECOND_NS / (double)ns);
	l->mixed_count = 8 * l->sample_mixed >= bytes ? l->mixed_count + 1 : 0;
	if ((2 * l->sample_full >= bytes && (!l->mixed_count || l->mixed_count > most)) ||
	    rate > l->bandwidth)
		l->bandwidth = (3 * l->bandwidth + rate) / 4 + 1;
	l->sample_busy_ns += ns;
	l->sample_moved += bytes;
	l->sample_full = l->sample_mixed = 0;
}

static void sample_latency(struct sched_channel_state *l, const struct sched_node *node,
			   uint64_t ns)
{
	uint64_t own = bytes_ns(node->beside, l->bandwidth);

	if (node->beside > LITTLE_BYTES)
		return;
	own = ns > own ? ns - own : 0;
	l->latency_ns = l->latency_ns ? (7 * l->latency_ns + own) / 8 : own;
}

void meter_land(struct core *c, struct sched_node *node, bool good)
{
	struct sched *s = c->sched;
	struct sched_channel_state *l = &s->channel[node->channel];

	assert(node->state == SCHED_FLYING);
	assert(l->ops > 0 && l->bytes >= node->bytes);
	node->state = SCHED_IDLE;
	l->bytes -= node->bytes;
	if (!--l->ops)
		l->busy_ns += c->now_ns - l->busy_since_ns;
	if (good) {
		l->moved += node->bytes;
		sample_bandwidth(c, l, node);
		sample_latency(l, node, c->now_ns - node->since_ns);
	}
	if (!sched_is_device(node->channel))
		return;
	if (node->klass == ABI_CLASS_DEMAND) {
		s->demand_ns = c->now_ns;
		return;
	}
	assert(s->background_ops > 0 && s->background_ns >= node->cost_ns);
	s->background_ops--;
	s->background_ns -= node->cost_ns;
}

/* ---- what is told ------------------------------------------------------------------------- */

void meter_refresh(struct core *c)
{
	struct core_metrics *m = &c->metrics;

	for (uint32_t i = 0; i < SCHED_CHANNELS; i++) {
		struct sched_channel_state *l = &c->sched->channel[i];
		uint64_t busy = busy_ns(c, l), passed = c->now_ns - l->window_ns;
		uint32_t idle;

		if (passed < WINDOW_NS)
			continue;
		idle = (uint32_t)(1000 - 1000 * (busy - l->window_busy_ns) / passed);
		l->idle_permille = l->window_ns ? (l->idle_permille + idle) / 2 : idle;
		l->window_ns = c->now_ns;
		l->window_busy_ns = busy;
	}
	m->read_bandwidth = c->sched->channel[SCHED_READ].bandwidth;
	m->read_latency_ns = c->sched->channel[SCHED_READ].latency_ns;
	m->read_idle = c->sched->channel[SCHED_READ].idle_permille;
	m->write_bandwidth = c->sched->channel[SCHED_WRITE].bandwidth;
	m->write_latency_ns = c->sched->channel[SCHED_WRITE].latency_ns;
	m->write_idle = c->sched->channel[SCHED_WRITE].idle_permille;
	m->copy_bandwidth = c->sched->channel[SCHED_TO_HBM].bandwidth;
	m->writeback_share = c->sched->writeback_share;
}

void sched_channel_stats(const struct core *c, enum sched_channel channel,
			 struct sched_channel_stats *out)
{
	const struct sched_channel_state *l = &c->sched->channel[channel];

	*out = (struct sched_channel_stats){
		.bandwidth = bandwidth_of(c, channel),
		.latency_ns = l->latency_ns,
		.busy_ns = busy_ns(c, l),
		.bytes = l->moved,
		.idle_permille = l->idle_permille,
		.under_way = l->ops,
	};
	for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++) {
		out->queued[k] = l->queue[k].count;
		out->queued_bytes[k] = l->queue[k].bytes;
	}
}

/* ---- estimates ---------------------------------------------------------------------------- */

/* Bytes of the same class that would go before. */
static uint64_t bytes_before(const struct sched_queue *q, uint64_t deadline_ns)
{
	uint64_t bytes = 0;

	if (!deadline_ns)
		return q->bytes;
	list_each(at, &q->ring)
		list_each(n, &list_entry(at, struct sched_flow, ring)->nodes) {
			const struct sched_node *node = list_entry(n, struct sched_node, link);

			if (!node->deadline_ns || node->deadline_ns > deadline_ns)
				break;
			bytes += node->bytes;
		}
	return bytes;
}

/* Bytes a second at which a class goes beside the others. */
static uint64_t pace(const struct core *c, uint32_t channel, uint32_t klass)
{
	const struct sched_channel_state *l = &c->sched->channel[channel];
	uint64_t unit = SCHED_UNIT_BUSY, bandwidth = bandwidth_of(c, channel), ns, at_once;
	uint64_t least;

	if (!sched_is_device(channel) || klass == ABI_CLASS_DEMAND)
		return bandwidth;
	if (channel == SCHED_READ &&
	    c->sched->channel[SCHED_WRITE].queue[ABI_CLASS_WRITEBACK].count)
		bandwidth = bandwidth * (100 - c->sched->writeback_share) / 100;
	least = bandwidth * gap_percent(c, l->latency_ns) / 100;
	if (sched_yields(c))
		return least ? least : unit * SECOND_NS / c->config.starve_ns;
	if (!sched_demand(c, gap_busy_ns(c)))
		return bandwidth;
	at_once = SCHED_BUDGET_BUSY_NS / meter_cost(c, channel, unit);
	ns = l->latency_ns + bytes_ns(unit, bandwidth);
	unit = unit * SECOND_NS / (ns ? ns : 1) * (at_once ? at_once : 1);
	unit = unit > least ? unit : least;
	return unit < bandwidth ? unit : bandwidth;
}

static uint64_t channel_ns(const struct core *c, uint32_t channel, uint32_t klass,
			   uint64_t deadline_ns)
{
	const struct sched_channel_state *l = &c->sched->channel[channel];
	uint64_t ns = bytes_ns(l->bytes, bandwidth_of(c, channel));

	for (uint32_t k = 0; k < klass; k++)
		ns += bytes_ns(l->queue[k].bytes, pace(c, channel, k));
	return ns + bytes_ns(bytes_before(&l->queue[klass], deadline_ns), pace(c, channel, klass));
}

uint64_t sched_ready_ns(const struct core *c, enum sched_channel channel, uint64_t bytes,
			uint32_t klass, uint64_t deadline_ns)
{
	uint64_t ns =
		c->sched->channel[channel].latency_ns + bytes_ns(bytes, pace(c, channel, klass));

	if (!sched_is_device(channel))
		return ns + channel_ns(c, channel, klass, deadline_ns);
	return ns + channel_ns(c, SCHED_READ, klass, deadline_ns) +
	       channel_ns(c, SCHED_WRITE, klass, deadline_ns);
}
