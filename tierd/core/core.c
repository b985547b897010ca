/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's front door: its memory, the one switch that hands each event to the file that owns it,
 * and the table that says who hears of what (signal.h). Who does what
 * afterwards is in docs/design.md; nothing is decided here.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/state.h"

/* ---- life --------------------------------------------------------------------------------- */

static void config_defaults(struct core_config *k)
{
	if (!k->dirty_percent)
		k->dirty_percent = 50;
	if (!k->pin_percent)
		k->pin_percent = 50;
	if (!k->request_deadline_ns)
		k->request_deadline_ns = 2000 * MS;
	if (!k->put_deadline_ns)
		k->put_deadline_ns = 10000 * MS;
	if (!k->writeback_age_ns)
		k->writeback_age_ns = 200 * MS;
	/*
	 * More would only queue in the kernel, in order of arrival, where nothing urgent can pass.
	 * Random 64 KiB pages come 5 % faster than with 24; of large ones fewer fill the device, so
	 * they are bounded by time (SCHED_BUDGET_DEMAND_NS).
	 */
	if (!k->device_depth)
		k->device_depth = 64;
	if (!k->writeback_percent)
		k->writeback_percent = 10;
	if (!k->walk_items)
		k->walk_items = METER_WALK;
	if (!k->starve_ns)
		k->starve_ns = 20 * MS;
	if (!k->discard_quiet_ns)
		k->discard_quiet_ns = 20 * MS;
	if (!k->discard_late_ns)
		k->discard_late_ns = 1000 * MS;
	if (!k->stream_share)
		k->stream_share = 8;
	if (!k->stream_hold_ns)
		k->stream_hold_ns = 10000 * MS;
	if (!k->stream_again_ns)
		k->stream_again_ns = 10000 * MS;
	if (!k->next_uid)
		k->next_uid = 1;
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		uint64_t bytes = k->slab_bytes[tier];

		if (!bytes)
			bytes = k->capacity[tier] / 1024 & ~(uint64_t)(ABI_HUGE - 1);
		if (bytes < ABI_HUGE)
			bytes = ABI_HUGE;
		k->slab_bytes[tier] = bytes > 32 * ABI_HUGE ? 32 * ABI_HUGE : bytes;
	}
}

static void take_ns(uint64_t *to, uint64_t ns)
{
	*to = ns ? ns : *to;
}

void core_reload(struct core *c, const struct core_config *to)
{
	struct core_config *k = &c->config;

	take_ns(&k->request_deadline_ns, to->request_deadline_ns);
	take_ns(&k->put_deadline_ns, to->put_deadline_ns);
	take_ns(&k->writeback_age_ns, to->writeback_age_ns);
	take_ns(&k->starve_ns, to->starve_ns);
	take_ns(&k->stream_hold_ns, to->stream_hold_ns);
	take_ns(&k->stream_again_ns, to->stream_again_ns);
	k->yield = to->yield;
	k->admit_all = to->admit_all;
	k->user_connections = to->user_connections;
}

static int pools_alloc(struct core *c)
{
	c->actions.ring = calloc(CORE_ACTIONS_MAX, sizeof(*c->actions.ring));
	c->context = calloc(ABI_CONTEXTS_MAX, sizeof(*c->context));
	c->client = calloc(CORE_CLIENTS_MAX + 1, sizeof(*c->client)); /* the last: ourselves */
	c->requests.table = calloc(CORE_REQUESTS_MAX, sizeof(*c->requests.table));
	c->requests.orders = calloc(CORE_CLIENTS_MAX + 1, sizeof(*c->requests.orders));
	c->puts.table = calloc(CORE_REQUESTS_MAX, sizeof(*c->puts.table));
	c->puts.of = calloc(CORE_CLIENTS_MAX, sizeof(*c->puts.of));
	c->actions.io = calloc(CORE_IO_MAX, sizeof(*c->actions.io));
	c->actions.copy = calloc(CORE_COPIES_MAX, sizeof(*c->actions.copy));
	c->reclaim.batch = calloc(CORE_BATCHES_MAX, sizeof(*c->reclaim.batch));
	c->pins.table = calloc(CORE_PINS_MAX, sizeof(*c->pins.table));
	c->streams.table = calloc(CORE_STREAMS_MAX, sizeof(*c->streams.table));
	c->pins.chunk = calloc(CORE_PIN_CHUNKS, sizeof(*c->pins.chunk));
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		c->tombs[i].tomb = calloc(TOMBS_MAX, sizeof(*c->tombs[i].tomb));
	c->writeback.tombs = calloc(TOMBS_RECORD, sizeof(*c->writeback.tombs));
	c->writeback.crc = calloc(DISK_RUN_BLOCKS_MAX * (size_t)ABI_PAGES_PER_BLOCK_MAX, 4);
	if (!c->actions.ring || !c->context || !c->client || !c->requests.table || !c->puts.table ||
	    !c->requests.orders || !c->puts.of ||
	    !c->actions.io || !c->actions.copy || !c->reclaim.batch || !c->pins.table ||
	    !c->pins.chunk || !c->tombs[TOMBS_NEW].tomb || !c->tombs[TOMBS_CARRIED].tomb ||
	    !c->writeback.tombs || !c->writeback.crc || !c->streams.table)
		return -ENOMEM;
	return 0;
}

/* Arguments and references are large and rarely all in use: calloc leaves them untouched. */
static int request_memory(struct core *c)
{
	size_t refs = ABI_ARG_BYTES_MAX / ABI_KEY_BYTES;
	uint8_t *arg = calloc(CORE_REQUESTS_MAX, ABI_ARG_BYTES_MAX);
	struct abi_block_ref *ref = calloc(CORE_REQUESTS_MAX * refs, sizeof(*ref));

	c->requests.table[0].arg = arg; /* owned here: core_close frees [0] */
	c->puts.table[0].ref = ref;
	if (!arg || !ref)
		return -ENOMEM;
	for (uint32_t i = CORE_REQUESTS_MAX; i-- > 0;) {
		c->requests.table[i].arg = arg + (size_t)i * ABI_ARG_BYTES_MAX;
		c->requests.table[i].next = c->requests.free;
		c->requests.free = &c->requests.table[i];
		c->puts.table[i].ref = ref + i * refs;
		c->puts.table[i].next = c->puts.free;
		c->puts.free = &c->puts.table[i];
	}
	return 0;
}

void core_memory_lost(struct core *c, uint32_t tier, uint64_t bytes)
{
	struct pool *pool = &c->pool[tier];

	pool->lost = bytes < pool->capacity / 2 ? bytes : pool->capacity / 2;
}

static int catalog_memory(struct core *c)
{
	const struct disk_super *s = &c->config.super;

	c->catalog.max = (uint32_t)(s->catalog_bytes / sizeof(struct disk_context)) - 1;
	c->catalog.list = calloc(c->catalog.max, sizeof(*c->catalog.list));
	c->catalog.buf = aligned_alloc(DISK_SECTOR, s->catalog_bytes);
	c->catalog.limits = calloc(1, s->catalog_bytes);
	if (!c->catalog.list || !c->catalog.buf || !c->catalog.limits || records_open(c))
		return -ENOMEM;
	return recorded_open(c);
}

static void pools_thread(struct core *c)
{
	for (uint32_t i = CORE_IO_MAX; i-- > 0;) {
		c->actions.io[i].priv.next = c->actions.io_free;
		c->actions.io_free = &c->actions.io[i];
	}
	for (uint32_t i = CORE_COPIES_MAX; i-- > 0;) {
		c->actions.copy[i].priv.next = c->actions.copy_free;
		c->actions.copy_free = &c->actions.copy[i];
	}
	for (uint32_t i = CORE_BATCHES_MAX; i-- > 0;) {
		c->reclaim.batch[i].next = c->reclaim.free;
		c->reclaim.free = &c->reclaim.batch[i];
	}
	/* Pins and chunks are threaded lazily: see pin.c. */
	c->pins.free = ABI_SLOT_NONE;
}

/* Handles of another boot's puts, pins and plans mean nothing to this one. */
static void numbers_begin(struct core *c)
{
	c->next_uid = c->config.next_uid;
	c->puts.seq = c->pins.seq = c->reserve.seq = c->config.boot_token >> 24;
	c->plans.seq = c->puts.seq;
	c->catalog.sequence = c->config.catalog_sequence;
}

int core_open(struct core **out, const struct core_config *config)
{
	struct core *c;
	int err = -ENOMEM;

	*out = NULL;
	if (!config->capacity[ABI_TIER_CXL] || config->device_depth > CORE_DEPTH_MAX ||
	    config->writeback_percent > 50)
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->config = *config;
	config_defaults(&c->config);
	c->meter.walk = c->config.walk_items;
	numbers_begin(c);
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++) {
		c->pool[tier].capacity = c->config.capacity[tier];
		c->pool[tier].slab_bytes = c->config.slab_bytes[tier];
	}
	err = pools_alloc(c);
	if (!err)
		err = reclaim_open(c);
	if (!err)
		err = lend_open(c);
	if (!err)
		err = sched_open(c);
	if (!err)
		err = quota_open(c);
	if (!err)
		err = tables_open(c);
	if (!err)
		err = reserve_open(c);
	if (!err)
		err = request_memory(c);
	if (!err)
		err = conversations_open(c);
	if (!err)
		err = plans_open(c);
	if (!err)
		err = stream_memory(c);
	if (!err && config->capacity[ABI_TIER_NVME])
		err = drives_open(c);
	if (!err && c->drives)
		err = catalog_memory(c);
	if (err) {
		core_close(c);
		return err;
	}
	pools_thread(c);
	block_list_init(&c->dropped.unretired);
	block_list_init(&c->dropped.parents_leaving);
	block_list_init(&c->dropped.waiting);
	*out = c;
	return 0;
}

static void context_release(struct core *c, struct context *x)
{
	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		if (x->space[tier])
			space_close(x->space[tier]);
	swap_end(c, x);
	trial_end(c, x);
	lanes_close(&x->lanes);
	block_uses_close(&x->uses);
	siblings_close(&x->siblings);
	tenants_close(&x->tenants);
	descs_close(&x->descs);
	cold_free(c, x->lapse_ms);
	cold_free(c, x->streamed_ms);
	ledger_close(&x->salts);
	cold_free(c, x->meta);
	free(x->page_part);
	former_close(x->left, &x->ix);
	free(x);
}

int core_recover_finish(struct core *c, struct core_recovery *out)
{
	int err = recover_finish(c, out);

	memset(&c->metrics, 0, sizeof(c->metrics)); /* they count from here on */
	return err;
}

void core_close(struct core *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i])
			context_release(c, c->context[i]);
	recover_close(c);
	retain_close(c);
	for (uint32_t i = 0; c->client && i < CORE_CLIENTS_MAX; i++)
		free(c->client[i].attached);
	plans_close(c);
	conversations_close(c);
	drives_close(c);
	if (c->requests.table)
		free(c->requests.table[0].arg);
	if (c->puts.table)
		free(c->puts.table[0].ref);
	if (c->streams.table) {
		free(c->streams.table[0].ref);
		free(c->streams.table[0].item);
	}
	reserve_close(c);
	ledger_close(&c->owners);
	tables_close(c);
	aside_close(c);
	records_close(c);
	recorded_close(c);
	free(c->catalog.buf);
	free(c->catalog.list);
	free(c->catalog.limits);
	free(c->writeback.crc);
	free(c->writeback.tombs);
	for (uint32_t i = 0; i < TOMBS_KINDS; i++)
		free(c->tombs[i].tomb);
	free(c->pins.chunk);
	free(c->pins.table);
	free(c->streams.table);
	free(c->reclaim.batch);
	reclaim_close(c);
	lend_close(c);
	sched_close(c);
	free(c->actions.copy);
	free(c->actions.io);
	free(c->puts.of);
	free(c->puts.table);
	free(c->requests.orders);
	free(c->requests.table);
	free(c->client);
	free(c->context);
	free(c->actions.ring);
	free(c);
}

void core_context_free(struct core *c, struct context *x)
{
	c->context[x->index] = NULL;
	c->contexts--;
	tables_leave(c, x);
	context_release(c, x);
}

/* ---- clients ------------------------------------------------------------------------------ */

static void client_open(struct core *c, const struct core_client_open *open)
{
	struct client *k = &c->client[open->client];
	size_t words = ABI_CONTEXTS_MAX / 64;

	assert(open->client < CORE_CLIENTS_MAX);
	assert(k->state == 0);
	if (!k->attached) /* kept for the next client of this number */
		k->attached = calloc(2 * words, sizeof(uint64_t));
	if (!k->attached) {
		struct core_action *a = core_push(c, CORE_AC_END);

		a->end.client = open->client;
		a->end.error = -ENOMEM;
		a->end.why = "out of memory for the connection";
		return;
	}
	k->writable = k->attached + words;
	memset(k->attached, 0, 2 * words * sizeof(uint64_t));
	k->open = *open;
	k->state = 1;
	k->connection++;
	reclaim_client_open(c, open->client);
	lend_client_open(c, open->client);
	request_client_open(c, open->client);
	account_open(c, k);
	quota_client_open(c, k, open->client);
	if (c->clients_high <= open->client)
		c->clients_high = open->client + 1;
	c->metrics.connections++;
}

static void client_free(struct core *c, struct client *k)
{
	k->state = 0;
	account_close(c, k);
	while (c->clients_high && !c->client[c->clients_high - 1].state)
		c->clients_high--;
}

static void client_gone(struct core *c, uint32_t id, int error)
{
	struct client *k = &c->client[id];

	assert(id < CORE_CLIENTS_MAX);
	if (k->state != 1)
		return;
	k->state = 2;
	c->metrics.connections_ended += error != 0;
	request_client_gone(c, id);
	for (uint32_t op = 0; op < ABI_OP_COUNT; op++)
		if (core_ops[op] && core_ops[op]->client_gone)
			core_ops[op]->client_gone(c, id);
	leave_client(c, id);
	if (!k->leaving)
		quota_client_gone(c, k);
}

/* All that it had has ended: its number, once its process is dead, is another one's. */
void core_client_end(struct core *c, uint32_t id)
{
	struct client *k = &c->client[id];

	quota_client_gone(c, k);
	if (k->state == 3)
		client_free(c, k);
}

bool core_client_over(const struct core *c, uint32_t client)
{
	return c->client[client].state == 0;
}

static void client_revoked(struct core *c, uint32_t id, uint32_t tiers)
{
	assert(id < CORE_CLIENTS_MAX && c->client[id].state == 2);
	reclaim_client_revoked(c, id, tiers);
}

static void client_dead(struct core *c, uint32_t id)
{
	struct client *k = &c->client[id];

	assert(id < CORE_CLIENTS_MAX);
	if (k->state == 1)
		client_gone(c, id, 0);
	if (k->state != 2)
		return;
	lend_client_dead(c, id);
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && bit_get(k->attached, i))
			c->context[i]->attached--;
	k->state = 3;
	if (!k->leaving)
		client_free(c, k);
	c->reclaim.next_ns = 0; /* its leases are over */
}

/* ---- events ------------------------------------------------------------------------------- */

static void tick(struct core *c)
{
	sched_tick(c);
	park_tick(c);
	plan_tick(c);
	conversation_tick(c);
	request_tick(c);
	stream_tick(c);
	reclaim_tick(c);
	block_retire_tick(c);
	swap_tick(c);
	trial_tick(c);
	if (c->now_ns < c->next_slow_ns)
		return;
	c->next_slow_ns = c->now_ns + 10 * MS;
	put_tick(c);
	pin_tick(c);
	reserve_tick(c);
	prefix_tick(c);
	evict_tick(c);
	for (uint32_t i = 0; i < c->drives; i++)
		evict_ahead(c, c->drive[i]);
	if (c->staged.bytes)
		evict_drain_logs(c);
	stage_tick(c);
	context_tick(c);
}

static void dispatch(struct core *c, const struct core_event *e)
{
	switch (e->kind) {
	case CORE_EV_TICK:
		tick(c);
		break;
	case CORE_EV_CLIENT_OPEN:
		client_open(c, &e->open);
		break;
	case CORE_EV_CLIENT_GONE:
		client_gone(c, e->client, e->error);
		break;
	case CORE_EV_CLIENT_REVOKED:
		client_revoked(c, e->client, e->tiers);
		break;
	case CORE_EV_CLIENT_DEAD:
		client_dead(c, e->client);
		break;
	case CORE_EV_REQUEST:
		request_take(c, e->request.client, &e->request.sqe);
		break;
	case CORE_EV_IO_LANDED:
		sched_landed(c, e->io);
		break;
	case CORE_EV_IO_DONE:
		sched_done(c, e->io);
		break;
	case CORE_EV_COPY_DONE:
		sched_copied(c, e->copy);
		break;
	case CORE_EV_FENCE_DONE:
		reclaim_fenced(c, e->batch);
		break;
	case CORE_EV_SCAN_DONE:
		reclaim_scanned(c);
		break;
	case CORE_EV_PUNCH_DONE:
		evacuate_punched(c, &e->range);
		break;
	case CORE_EV_PREPARE_REFUSED:
		evict_prepare_refused(c, &e->range);
		break;
	case CORE_EV_DISCARD_DONE:
		discard_done(c, c->drive[e->discard.device], e->discard.res);
		break;
	case CORE_EV_SYNC_DONE:
		flush_done(c, c->drive[e->sync.device], e->sync.res);
		break;
	case CORE_EV_CLOCK:
		retain_clock(c, e->wall_ms);
		break;
	}
}

/*
 * What was begun and is more than one event's: a share of it each turn, whoever asks for what. Each
 * kind comes first in its turn, so none keeps the others from theirs.
 */
static void walk_on(struct core *c)
{
	static void (*const walk[])(struct core *c) = {
		put_work, pin_work, conversation_work, leave_work, request_walk,
	};
	const uint32_t kinds = sizeof(walk) / sizeof(walk[0]);

	for (uint32_t i = 0; i < kinds; i++)
		walk[(c->turns / 2 + i) % kinds](c);
}

bool core_goes_on(const struct core *c)
{
	return c->queues.run_head || c->queues.walk_head || c->puts.freeing || c->pins.ending ||
	       c->conversations.unsettled || c->leaving || c->evict.swaps ||
	       (c->evict.tried.on && !c->evict.tried.begun) ||
	       evacuate_goes_on(c) || reclaim_next(c) <= c->now_ns;
}

void core_event(struct core *c, const struct core_event *e)
{
	bool first; /* each other turn: nobody keeps walks from all of an event's share */

	assert(e->now_ns >= c->now_ns);
	c->now_ns = e->now_ns;
	meter_begin(&c->meter);
	first = e->kind == CORE_EV_TICK && c->turns++ % 2;
	dispatch(c, e);
	if (first)
		walk_on(c);
	prefix_step(c);
	evacuate_step(c);
	stream_work(c);
	request_run(c);
	reserve_grow(c);
	writeback_step(c);
	if (e->kind == CORE_EV_TICK && !first)
		walk_on(c);
	sched_step(c);
	core_looked_at(c, c->meter.items);
}

bool core_accepts(const struct core *c, uint32_t client)
{
	const struct client *k = &c->client[client];

	/* A quarter of the room is kept for those who have little in progress. */
	if (c->requests.count >= CORE_REQUESTS_MAX || !account_may(c, k, ACCOUNT_REQUESTS))
		return false;
	return c->requests.count < CORE_REQUESTS_MAX * 3 / 4 ||
	       k->used[ACCOUNT_REQUESTS] - k->used[ACCOUNT_PARKED] < 4;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t core_device_ns(const struct core *c)
{
	return sched_under_way_ns(c);
}

uint64_t core_next_tick(const struct core *c)
{
	uint64_t next;

	if (core_goes_on(c))
		return c->now_ns;
	next = min_u64(request_next_deadline(c), sched_next_tick(c));
	next = min_u64(next, min_u64(stream_next(c), prefix_next(c)));
	next = min_u64(next, min_u64(writeback_next_tick(c), drives_next_tick(c)));
	if (c->reclaim.open && c->reclaim.open->count)
		next = min_u64(next, c->reclaim.open->since_ns + MS);
	if (c->evacuation.ctx || c->dropped.unretired.count)
		next = min_u64(next, c->now_ns + MS);
	next = min_u64(next, reclaim_next(c));
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];

		if (!x)
			continue;
		if (x->pending.count || x->sweeping || x->closing)
			next = min_u64(next, c->now_ns + 10 * MS);
	}
	next = min_u64(next, min_u64(park_next(c), stage_next(c)));
	next = min_u64(next, min_u64(conversation_next(c), plan_next(c)));
	next = min_u64(next, pin_next(c));
	if (c->reserve.count)
		next = min_u64(next, c->now_ns + (c->reserve.growing ? 1 : 50) * MS);
	return next;
}

/* ---- what lower floors tell higher ones (signal.h) ---------------------------------------- */

static void block_wanted(struct core *c, struct context *x, uint32_t slot)
{
	admit_again(c, x, slot, false);
}

const struct core_signals core_signals = {
	.block_wanted = block_wanted,
	.block_gone = pin_lost,
	.room_short = lead_look,
	.page_lost = stream_lost,
	.landed = request_landed,
	.flush_failed = request_flush_failed,
	.context_idle = context_maybe_gone,
};
