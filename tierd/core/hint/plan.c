/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out plans. The client writes its position into its own staging memory; each tick copies
 * that word, judges it, lets Belady's cursor run ahead, lets go of victims whose last planned use
 * is over, and loads what is due: time-to-use <= time-to-ready + margin (P2), from the pace
 * measured or the times given. Loads may be a little ahead of the victims' leaving (slack).
 *
 * Blocks of the plan's tier image are passed over by eviction while there is anything else
 * (block_use.planned): a preference, no pin, so nobody can be stalled by a plan. A plan that is
 * wrong (half of what it had loaded was not read when its turn was over) is given up: what follows
 * is demand. The word of a client is never more than that: the position is cut to the count.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "tierd/core/state.h"

#define LOOK_NS (1 * MS)
#define LOOK_IDLE_NS (100 * MS) /* at readers that pause: a sixteenth of their pause, at most */
#define MARGIN_NS (3 * MS)
#define JUDGE_BEHIND 8u /* accesses: the reader's log may be that late */
#define JUDGE_STEP 64u  /* at a look */
#define TRUST_ONE 65536u
#define SLACK_SHARE 32u /* of the budget: loads ahead of their victims' leaving */
#define LOAD_NS (10000 * MS) /* a load's own deadline */

/* ---- life --------------------------------------------------------------------------------- */

int plans_open(struct core *c)
{
	c->plans.table = calloc(PLANS_MAX, sizeof(*c->plans.table));
	c->plans.next_ns = UINT64_MAX;
	for (uint32_t i = 0; c->plans.table && i < PLANS_MAX; i++) {
		struct plan *p = &c->plans.table[i];

		p->memory = calloc(1, belady_bytes(PLAN_ACCESSES_MAX));
		p->time_us = calloc(PLAN_ACCESSES_MAX, sizeof(*p->time_us));
		p->loaded = calloc(PLAN_ACCESSES_MAX / 8, 1);
		if (!p->memory || !p->time_us || !p->loaded)
			return -ENOMEM;
	}
	return c->plans.table ? 0 : -ENOMEM;
}

void plans_close(struct core *c)
{
	for (uint32_t i = 0; c->plans.table && i < PLANS_MAX; i++) {
		free(c->plans.table[i].memory);
		free(c->plans.table[i].time_us);
		free(c->plans.table[i].loaded);
	}
	free(c->plans.table);
}

/* One more, or less, wants the block to be there. */
void plan_mark(struct context *x, struct abi_block_ref ref, uint32_t tier, bool in)
{
	struct block_use *use;

	if (index_block(&x->ix, ref.slot)->generation != ref.generation)
		return; /* the block went; so did its marks */
	use = block_use_make(x, ref.slot);
	if (in && use->planned[tier] < UINT16_MAX)
		use->planned[tier]++;
	else if (!in && use->planned[tier])
		use->planned[tier]--;
	block_use_settle(x, ref.slot);
}

/* The block's place in the tier image is taken or given up. */
static void image(struct plan *p, uint32_t node, bool in)
{
	plan_mark(p->ctx, p->belady.node[node].ref, p->tier, in);
}

/*
 * Take all marks back: what the image holds when all is decided, and more what has not left yet,
 * less the loads that are still to come. A walk: false = there is more. Belady's work is over.
 */
static bool let_go(struct core *c, struct plan *p)
{
	struct belady *b = &p->belady;

	meter_charge(&c->meter, 2 * (p->op_tail - p->op_head));
	for (uint32_t i = p->op_load; i != p->op_tail; i++)
		image(p, p->op[i % PLAN_OPS].node, true);
	for (uint32_t i = p->op_head; i != p->op_tail; i++)
		if (p->op[i % PLAN_OPS].victim != BELADY_NONE)
			image(p, p->op[i % PLAN_OPS].victim, false);
	p->op_head = p->op_load = p->op_tail = 0;
	for (; b->cached && !meter_spent(&c->meter); meter_charge(&c->meter, 1))
		image(p, b->heap[--b->cached], false);
	return !b->cached;
}

/* An ended one's place is free when all is let go. */
static void plan_leave(struct core *c, struct plan *p)
{
	assert(c->plans.count > 0 && p->ended);
	if (!let_go(c, p))
		return;
	p->ctx = NULL;
	c->plans.count--;
}

/* It is its client's no more. What it has marked is let go in this turn and the next ones. */
static void plan_end(struct core *c, struct plan *p)
{
	struct client *k = &c->client[p->client];

	if (p->ended)
		return;
	request_owner_gone(c, p);
	assert(c->plans.count > 0 && k->connection == p->client_connection);
	account_give(c, k->account, k, ACCOUNT_PLANS);
	p->flying = 0;
	p->ended = true;
	plan_leave(c, p);
	if (p->ctx)
		c->plans.next_ns = c->now_ns;
}

/*
 * Of the budget's places some are for loads ahead of their victims' leaving, and of a plan for a
 * whole tier some must stay free, or eviction would make that room of the image (ROOM_AHEAD_SHARE,
 * or a little more by evict_room_ahead's rounding; a segment's end may leave a block over).
 */
static void image_open(struct plan *p, uint64_t budget)
{
	uint32_t blocks = budget < PLAN_ACCESSES_MAX ? (uint32_t)budget : PLAN_ACCESSES_MAX, other;

	p->slack = blocks / SLACK_SHARE ? blocks / SLACK_SHARE : 1;
	p->slack = p->slack < PLAN_OPS / 2 ? p->slack : PLAN_OPS / 2;
	other = p->slack + blocks / ROOM_AHEAD_SHARE + 2;
	belady_init(&p->belady, p->memory, PLAN_ACCESSES_MAX, blocks > other ? blocks - other : 1);
	assert(p->slack && p->belady.capacity <= blocks);
}

/* A place of the table. Errors: -EAGAIN one that has ended is letting go; -ENOBUFS. */
static int plan_place(struct core *c, struct plan **out)
{
	int err = -ENOBUFS;

	for (uint32_t i = 0; i < PLANS_MAX; i++) {
		struct plan *p = &c->plans.table[i];

		if (p->ctx && p->ended) {
			plan_leave(c, p);
			err = -EAGAIN;
		}
		if (!p->ctx) {
			*out = p;
			return 0;
		}
	}
	return err;
}

static int plan_begin(struct core *c, struct request *r, struct plan **out)
{
	const struct abi_plan_args *args = (const struct abi_plan_args *)r->arg;
	struct client *k = &c->client[r->client];
	uint64_t most = r->ctx->plan.quota[r->sqe.tier], bytes = fetch_range_bytes(r);
	uint64_t budget = args->budget_bytes ? args->budget_bytes : most / 4 * 3;
	struct plan *p = NULL;
	int err = account_may(c, k, ACCOUNT_PLANS) ? plan_place(c, &p) : -ENOBUFS;

	if (err)
		return err;
	for (uint32_t i = 0; i < sizeof(args->reserved); i++)
		if (args->reserved[i])
			return -EINVAL;
	if (args->position_offset % 8 || k->open.staging_bytes < 8 ||
	    args->position_offset > k->open.staging_bytes - 8)
		return -EFAULT;
	if (!bytes || budget > most || budget < 2 * bytes)
		return -EINVAL;
	*p = (struct plan){ .memory = p->memory, .time_us = p->time_us, .loaded = p->loaded };
	memset(p->loaded, 0, PLAN_ACCESSES_MAX / 8);
	p->client = r->client;
	p->client_connection = r->connection;
	p->ctx = r->ctx;
	p->id = ++c->plans.seq * PLANS_MAX + (uint64_t)(p - c->plans.table);
	p->position_word = k->open.staging + args->position_offset;
	p->trust = TRUST_ONE;
	p->start_ns = args->start_ns;
	p->access_ns = args->access_ns;
	p->moved_ns = c->now_ns;
	p->block_bytes = bytes;
	p->part_first = r->sqe.part_first;
	p->part_count = r->sqe.part_count;
	p->layer_first = r->sqe.layer_first;
	p->layer_count = r->sqe.layer_count;
	p->tier = r->sqe.tier;
	image_open(p, budget / bytes);
	meter_charge_words(&c->meter, PLAN_ACCESSES_MAX); /* two slots of its hash for each */
	account_take(c, k, ACCOUNT_PLANS);
	c->plans.count++;
	c->metrics.plans++;
	*out = p;
	return 0;
}

static struct plan *plan_find(struct core *c, const struct request *r)
{
	struct plan *p = &c->plans.table[r->sqe.handle % PLANS_MAX];

	return p->ctx == r->ctx && p->id == r->sqe.handle && p->client == r->client &&
			       p->client_connection == r->connection && !p->ended
		       ? p
		       : NULL;
}

static int plan_append(struct core *c, struct plan *p, const struct request *r, size_t head)
{
	const struct abi_access *a = (const struct abi_access *)(r->arg + head);

	meter_charge_table(&c->meter, r->sqe.count);
	for (uint32_t i = 0; i < r->sqe.count; i++) {
		uint32_t at = p->belady.count;

		/* A block that is not there is an access nobody can plan; demand will say so. */
		if (a[i].reserved)
			return -EINVAL;
		if (!fetch_block_there(p->ctx, a[i].block))
			continue;
		if (belady_add(&p->belady, a[i].block))
			return -ENOBUFS;
		p->time_us[at] = a[i].time_us;
	}
	c->metrics.plan_accesses += r->sqe.count;
	c->plans.next_ns = c->now_ns;
	return 0;
}

static void plan_request(struct core *c, struct request *r)
{
	bool begin = r->sqe.mode == ABI_PLAN_BEGIN;
	struct plan *p = NULL;
	uint64_t lack = 0;
	int err = 0;

	if (begin)
		err = plan_begin(c, r, &p);
	else if (!(p = plan_find(c, r)))
		err = -ENOENT;
	if (!err && r->sqe.mode == ABI_PLAN_END)
		plan_end(c, p);
	else if (!err)
		err = plan_append(c, p, r, begin ? sizeof(struct abi_plan_args) : 0);
	if (err == -EAGAIN && !r->late) {
		request_go_on(c, r);
		return;
	}
	err = err == -EAGAIN ? -ETIMEDOUT : err;
	if (err == -ENOBUFS && !p)
		lack = account_lack(c, &c->client[r->client], ACCOUNT_PLANS);
	if (err && begin && p)
		plan_end(c, p);
	request_end(c, r, err, err ? 0 : r->sqe.mode == ABI_PLAN_END ? p->position : p->id,
		    err ? lack : p->wrong);
}

/* ---- the reader --------------------------------------------------------------------------- */

static void position_read(struct core *c, struct plan *p)
{
	uint64_t word = atomic_load_acquire_u64((const uint64_t *)(const void *)p->position_word);
	uint32_t to = word < p->belady.count ? (uint32_t)word : p->belady.count;
	uint64_t each;

	if (to <= p->position)
		return;
	each = (c->now_ns - p->moved_ns) / (to - p->position);
	if (p->position) /* the first step says nothing of the pace */
		p->access_ns = p->access_ns ? (p->access_ns * 3 + each) / 4 : each + 1;
	p->position = to;
	p->moved_ns = c->now_ns;
	assert(p->position <= p->belady.count);
}

/* An access whose block we may have brought: was it read? Asked once. */
static void judge_access(struct core *c, struct plan *p, uint32_t i)
{
	const struct belady_node *node = &p->belady.node[p->belady.access[i].node];
	bool used = !block_use(p->ctx, node->ref.slot)->staged[p->tier];

	if (!(p->loaded[i / 8] >> (i % 8) & 1))
		return;
	p->loaded[i / 8] &= (uint8_t)~(1u << i % 8);
	p->trust = p->trust - p->trust / 16 + (used ? TRUST_ONE / 16 : 0);
	c->metrics.plan_right += used;
}

/* Were the blocks that we brought read by the time their turn was over? */
static void judge(struct core *c, struct plan *p)
{
	uint32_t end = p->position > JUDGE_BEHIND ? p->position - JUDGE_BEHIND : 0;

	if (p->judged < end)
		evict_drain_logs(c);
	for (uint32_t n = 0; p->judged < end && n < JUDGE_STEP; n++, p->judged++)
		judge_access(c, p, p->judged);
	if (p->trust >= TRUST_ONE / 2)
		return;
	p->wrong = true;
	let_go(c, p);
	c->metrics.plans_wrong++;
}

/* ---- carrying it out ---------------------------------------------------------------------- */

static bool decided(const struct plan *p)
{
	return p->belady.cursor == p->belady.count || p->op_tail - p->op_head == PLAN_OPS;
}

/* Decide as far ahead as the ring goes: a walk. */
static void decide(struct core *c, struct plan *p)
{
	for (; !decided(p) && c->meter.items < meter_ahead(&c->meter); meter_charge(&c->meter, 1))
		if (belady_step(&p->belady, &p->op[p->op_tail % PLAN_OPS]))
			p->op_tail++;
}

/* Victims whose last use before their leaving is over; what was not read says so before it goes. */
static void retire(struct core *c, struct plan *p)
{
	bool drained = false;

	for (; p->op_head != p->op_load; p->op_head++) {
		const struct belady_op *op = &p->op[p->op_head % PLAN_OPS];
		const struct belady_node *v;

		if (op->victim == BELADY_NONE)
			continue;
		if (op->after >= p->position)
			return;
		v = &p->belady.node[op->victim];
		image(p, op->victim, false);
		if (!fetch_block_there(p->ctx, v->ref) ||
		    block_use(p->ctx, v->ref.slot)->planned[p->tier])
			continue;
		if (!drained)
			evict_drain_logs(c);
		drained = true;
		judge_access(c, p, op->after);
		evict_block(c, p->ctx, v->ref.slot, p->tier);
	}
}

static uint64_t use_ns(const struct core *c, const struct plan *p, uint32_t access)
{
	if (p->start_ns)
		return p->start_ns + p->time_us[access] * 1000ull;
	if (access <= p->position)
		return c->now_ns;
	return p->moved_ns + (access - p->position) * p->access_ns;
}

static void loaded(struct core *c, struct request *r, uint64_t value)
{
	struct plan *p = r->owner;

	(void)value;
	if (!p)
		return;
	assert(p->flying > 0);
	p->flying--;
	c->plans.next_ns = c->now_ns;
}

static bool is_there(const struct plan *p, uint32_t node)
{
	struct abi_block_ref ref = p->belady.node[node].ref;

	return !fetch_block_there(p->ctx, ref) ||
	       p->ctx->meta[ref.slot].there[p->tier].pages == block_pages(p->ctx, ref.slot);
}

/*
 * Up to where loads are due. They share the device, so the latest start of each follows from the
 * last one that is decided, backwards (park_latest). A run of loads that the reader outpaces
 * begins while the reads before it need none. What is not due yet says when to look again.
 */
static uint32_t due(const struct core *c, struct plan *p)
{
	uint64_t queue = sched_ready_ns(c, SCHED_READ, 0, ABI_CLASS_DEADLINE, 0);
	uint64_t batch = sched_ready_ns(c, SCHED_READ, PLAN_BATCH * p->block_bytes,
					ABI_CLASS_DEADLINE, 0) - queue;
	uint64_t each = (batch + batch / 4) / PLAN_BATCH, start = UINT64_MAX, next = UINT64_MAX;
	uint64_t begin = c->now_ns + queue + queue / 4 + MARGIN_NS + c->parked.slip_ns;
	uint32_t i = p->op_tail;

	assert(p->op_tail - p->op_load <= PLAN_OPS);
	for (; i != p->op_load && start > begin; i--) {
		next = start;
		start = park_latest(use_ns(c, p, p->op[(i - 1) % PLAN_OPS].access), start, each);
	}
	next = start > begin ? start : next;
	p->due_ns = next == UINT64_MAX ? next : c->now_ns + (next - begin);
	return start > begin ? i : i + 1;
}

/*
 * Gather what is due; the batch goes as one request, in order. Each that is over lets the next ones
 * begin, so there are several of them in the slack, or the device would idle in between.
 */
static uint32_t gather(struct plan *p, uint32_t end, struct abi_block_ref *ref)
{
	uint32_t batch = p->slack / 4 < PLAN_BATCH ? p->slack / 4 + 1 : PLAN_BATCH, n = 0;

	for (; p->op_load != end && n < batch; p->op_load++) {
		const struct belady_op *op = &p->op[p->op_load % PLAN_OPS];

		if (p->op_load - p->op_head >= p->slack && op->victim != BELADY_NONE)
			break;
		if (!p->access_ns && !p->start_ns && op->access >= p->position + PLAN_BATCH)
			break; /* no pace is known yet */
		image(p, op->node, true);
		if (op->access < p->position || is_there(p, op->node))
			continue;
		p->loaded[op->access / 8] |= (uint8_t)(1u << op->access % 8);
		ref[n++] = p->belady.node[op->node].ref;
	}
	return n;
}

static void load(struct core *c, struct plan *p)
{
	uint32_t end = due(c, p);

	while (p->flying < PLAN_FLYING_MAX) {
		struct request *r = request_own(c, p->ctx);
		uint32_t n;

		if (!r)
			return;
		n = gather(p, end, (struct abi_block_ref *)r->arg);
		r->sqe = (struct abi_sqe){
			.op = ABI_OP_PREFETCH,
			.klass = ABI_CLASS_DEADLINE,
			.context_id = p->ctx->id,
			.count = n,
			.part_first = p->part_first,
			.part_count = p->part_count,
			.layer_first = p->layer_first,
			.layer_count = p->layer_count,
			.tier = p->tier,
		};
		r->deadline_ns = c->now_ns + LOAD_NS;
		r->foreseen = true;
		if (!n) {
			request_end(c, r, 0, 0, 0);
			return;
		}
		r->owner = p;
		r->ended = loaded;
		p->flying++;
		c->metrics.plan_loads += n;
		fetch_begin(c, r);
	}
}

static void plan_step(struct core *c, struct plan *p)
{
	if (p->ended) {
		plan_leave(c, p);
		return;
	}
	position_read(c, p);
	if (p->wrong) {
		let_go(c, p); /* what blocks are marked for after that is not its own */
		return;
	}
	judge(c, p);
	if (p->wrong)
		return;
	decide(c, p);
	retire(c, p);
	load(c, p);
	retire(c, p);
	reclaim_flush(c);
}

void plan_tick(struct core *c)
{
	uint64_t look = LOOK_IDLE_NS;

	if (!c->plans.count || c->now_ns < c->plans.next_ns)
		return;
	for (uint32_t i = 0; i < PLANS_MAX; i++) {
		struct plan *p = &c->plans.table[i];

		if (!p->ctx || p->ctx->closing)
			continue;
		plan_step(c, p);
		if (p->wrong || p->ended ? p->belady.cached : !decided(p))
			look = 0;
		if (!p->wrong && (c->now_ns - p->moved_ns) / 16 < look)
			look = (c->now_ns - p->moved_ns) / 16;
		if (!p->wrong && p->due_ns - c->now_ns < look)
			look = p->due_ns - c->now_ns;
	}
	c->plans.next_ns = c->now_ns + (look < LOOK_NS ? LOOK_NS : look);
}

uint64_t plan_next(const struct core *c)
{
	return c->plans.count ? c->plans.next_ns : UINT64_MAX;
}

static void plan_client_gone(struct core *c, uint32_t client)
{
	for (uint32_t i = 0; c->plans.count && i < PLANS_MAX; i++)
		if (c->plans.table[i].ctx && c->plans.table[i].client == client)
			plan_end(c, &c->plans.table[i]);
}

/* Its marks go with its blocks. */
static void plan_context_gone(struct core *c, struct context *x)
{
	for (uint32_t i = 0; c->plans.count && i < PLANS_MAX; i++) {
		struct plan *p = &c->plans.table[i];

		if (p->ctx != x)
			continue;
		p->belady.cached = 0;
		p->op_head = p->op_load = p->op_tail;
		if (p->ended)
			plan_leave(c, p);
		else
			plan_end(c, p);
	}
}

static bool plan_fits(const struct abi_sqe *q)
{
	return !q->flags && q->mode >= ABI_PLAN_BEGIN && q->mode <= ABI_PLAN_END;
}

static uint64_t plan_bytes(const struct abi_sqe *q)
{
	uint64_t first = q->mode == ABI_PLAN_BEGIN ? sizeof(struct abi_plan_args) : 0;

	return q->mode == ABI_PLAN_END ? 0 : first + q->count * sizeof(struct abi_access);
}

const struct op_ops op_plan = {
	.name = "plan",
	.tiers = ABI_MEM_TIERS,
	.fits = plan_fits,
	.context = true,
	.arg_bytes = plan_bytes,
	.begin = plan_request,
	.step = plan_request,
	.client_gone = plan_client_gone,
	.context_gone = plan_context_gone,
};
