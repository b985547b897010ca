/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit's part about what is under way: who needs a block to stay or puts it, what requests and
 * runs wait for, what the scheduler has on the device, and the tables of foresight. Like the others
 * it recounts from the operations and references themselves.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/audit/audit_priv.h"
#include "tierd/core/io/sched_priv.h"

/* ---- blocks ------------------------------------------------------------------------------- */

/* Who needs one block. Who is needed has an entry of what is in use, by which these go. */
struct need {
	uint32_t holds, writers;
	uint32_t marks[ABI_MEM_TIERS]; /* of conversations whose users are back, */
	uint32_t leads[ABI_MEM_TIERS]; /* and of those that are away, */
	uint32_t layers[ABI_MEM_TIERS]; /* most of which are kept */
};

static struct need *need_of(const struct context *x, struct need *n, uint32_t slot)
{
	assert(slot < x->ix.slots_used);
	return &n[x->meta[slot].use <= x->uses.high ? x->meta[slot].use : 0];
}

static void need_of_requests(const struct core *c, const struct context *x, struct need *n)
{
	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];
		size_t item_bytes = r->sqe.op == ABI_OP_FETCH_PAGES ? sizeof(struct abi_page_ref)
								    : sizeof(struct abi_block_ref);

		if (r->phase == REQUEST_FREE || r->ctx != x)
			continue;
		for (uint32_t k = r->released; k < r->held; k++) {
			uint32_t slot;

			memcpy(&slot, r->arg + k * item_bytes, sizeof(slot));
			if (slot != ABI_SLOT_NONE)
				need_of(x, n, slot)->holds++;
		}
	}
	for (uint32_t i = 0; i < c->streams.high; i++) {
		const struct stream *s = &c->streams.table[i];

		for (uint32_t k = 0; s->used && s->ctx == x && k < s->held; k++)
			need_of(x, n, s->ref[k].slot)->holds++;
	}
}

static void need_of_puts(const struct core *c, const struct context *x, struct need *n)
{
	for (uint32_t i = 0; i < CORE_REQUESTS_MAX; i++) {
		const struct put *p = &c->puts.table[i];

		for (uint32_t k = 0; p->used && p->ctx == x && k < p->done; k++) {
			struct need *of = need_of(x, n, p->ref[k].slot);

			of->writers += bit_get(p->mine, k);
			of->holds += bit_get(p->kept, k);
		}
	}
}

static void need_of_run(const struct run *run, const struct context *x, struct need *n)
{
	for (uint32_t i = 0; run->ctx == x && i < run->blocks; i++)
		need_of(x, n, run->slot[i])->holds++;
}

static void need_of_log(const struct drive *dv, const struct context *x, struct need *n)
{
	const struct prover *p = &dv->prover;

	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE)
			need_of_run(&dv->run[i], x, n);
	for (uint32_t i = 0; i < CLEAN_RUNS; i++)
		need_of_run(&dv->cleaner.run[i], x, n);
	if (p->reading && p->ref[p->next].context_id == x->id)
		need_of(x, n, p->ref[p->next].ref.slot)->holds++;
}

/* What is written, read to prove it, or moved to another segment. */
static void need_of_daemon(const struct core *c, const struct context *x, struct need *n)
{
	for (uint32_t i = 0; i < c->drives; i++)
		need_of_log(c->drive[i], x, n);
	for (uint32_t i = 0; c->evacuation.ctx == x && i < CORE_COPIES_MAX; i++) {
		const struct core_copy *copy = &c->actions.copy[i];

		if (copy->src_tier != copy->dst_tier)
			continue;
		for (uint32_t k = 0; k < copy->count; k++) /* pages side by side: one hold */
			need_of(x, n, copy->priv.slot[k])->holds +=
				!k || copy->priv.slot[k] != copy->priv.slot[k - 1];
	}
}

static bool is_marked(const struct conversation_marks *m, uint32_t i)
{
	return i >= m->from && i < m->to;
}

static void need_of_conversation(const struct conversation *s, uint32_t i, struct need *n)
{
	bool lead = is_marked(&s->leads, i);

	n->marks[s->tier] += is_marked(&s->await, i);
	n->leads[s->tier] += lead;
	if (lead && s->lead_layers > n->layers[s->tier])
		n->layers[s->tier] = s->lead_layers;
}

static void need_of_conversations(const struct core *c, const struct context *x, struct need *n)
{
	for (uint32_t i = 0; c->conversations.count && i < c->conversations.high; i++) {
		const struct conversation *s = &c->conversations.table[i];
		uint32_t at = 0;

		if (s->state == CONVERSATION_FREE || s->ctx != x)
			continue;
		assert(s->tier < ABI_MEM_TIERS);
		for (uint32_t k = s->chunks; k; k = c->conversations.chunk[k - 1].next)
			for (uint32_t m = 0; m < c->conversations.chunk[k - 1].count; m++, at++) {
				struct abi_block_ref ref = c->conversations.chunk[k - 1].ref[m];

				if (ref.slot != ABI_SLOT_NONE && ref.slot < x->ix.slots_used &&
				    index_block(&x->ix, ref.slot)->generation == ref.generation)
					need_of_conversation(s, at, need_of(x, n, ref.slot));
			}
	}
}

static void compare_needs(struct audit *a, const struct context *x, uint32_t slot,
			  const struct need *n, bool plans)
{
	const struct block_use *use = block_use(x, slot);
	/* These have no leads, but something else in their place (block_use.h). */
	bool pending = index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING ||
		       x->meta[slot].flags & BLOCK_DROPPED;

	if (n->holds != use->hold)
		audit_tell(a, "context %s: block %u: counted %u holds, the counter says %u",
			   x->spec.name, slot, n->holds, (uint32_t)use->hold);
	if (n->writers != use->writers)
		audit_tell(a, "context %s: block %u: counted %u writers, the counter says %u",
			   x->spec.name, slot, n->writers, use->writers);
	/* A plan's marks are not told apart from what it has decided. */
	for (uint32_t t = 0; !plans && t < ABI_MEM_TIERS; t++)
		if (n->marks[t] != use->planned[t])
			audit_tell(a, "context %s: block %u: %u want it in tier %u, the counter "
				   "says %u", x->spec.name, slot, n->marks[t], t, use->planned[t]);
	for (uint32_t t = 0; !pending && t < ABI_MEM_TIERS; t++)
		if (n->leads[t] != use->leads[t].count || n->layers[t] > use->leads[t].layers ||
		    !use->leads[t].count != !use->leads[t].layers)
			audit_tell(a, "context %s: block %u: in %u leads of tier %u, %u layers, "
				   "the counters say %u, %u", x->spec.name, slot, n->leads[t], t,
				   n->layers[t], (uint32_t)use->leads[t].count,
				   (uint32_t)use->leads[t].layers);
}

void audit_needs(struct audit *a, const struct context *x)
{
	struct need *needs = calloc(x->uses.high + (size_t)1, sizeof(*needs));
	bool plans = x->closing; /* marks of its plans go with its blocks */

	if (!needs) {
		audit_tell(a, "out of memory for the recount");
		return;
	}
	for (uint32_t i = 0; i < PLANS_MAX; i++)
		plans = plans || a->c->plans.table[i].ctx == x;
	need_of_requests(a->c, x, needs);
	need_of_puts(a->c, x, needs);
	need_of_daemon(a->c, x, needs);
	need_of_conversations(a->c, x, needs);
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		if (x->meta[slot].use && x->meta[slot].use <= x->uses.high)
			compare_needs(a, x, slot, &needs[x->meta[slot].use], plans);
	if (needs[0].holds || needs[0].writers || needs[0].marks[0] || needs[0].marks[1])
		audit_tell(a, "context %s: a block is needed and not known to be", x->spec.name);
	free(needs);
}

/* ---- operations --------------------------------------------------------------------------- */

/* What is under way, by whom it is for. */
struct flights {
	uint32_t request[CORE_REQUESTS_MAX];
	uint32_t run[CORE_DRIVES_MAX][CORE_RUNS_MAX];
	uint32_t chunk[CORE_DRIVES_MAX][CLEAN_CHUNKS];
	uint32_t put_copies, moves; /* copies of puts; within a tier */
	uint32_t ios[CORE_CLIENTS_MAX + 1], copies[CORE_CLIENTS_MAX + 1]; /* taken from the pools */
	uint32_t background;
};

/* Which of the entries of a table is it? `count` = none. */
static uint32_t entry_of(const void *owner, const void *table, size_t bytes, uint32_t count)
{
	size_t at = ((uintptr_t)owner - (uintptr_t)table) / bytes;

	return (uintptr_t)owner >= (uintptr_t)table && at < count ? (uint32_t)at : count;
}

static void count_io(const struct core *c, const struct core_io *io, struct flights *f)
{
	const void *owner = io->priv.owner;
	uint32_t r =
		entry_of(owner, c->requests.table, sizeof(*c->requests.table), CORE_REQUESTS_MAX);

	if (r < CORE_REQUESTS_MAX)
		f->request[r]++;
	for (uint32_t i = 0; i < c->drives; i++) {
		const struct drive *dv = c->drive[i];
		uint32_t run = entry_of(owner, dv->run, sizeof(*dv->run), CORE_RUNS_MAX);
		uint32_t chunk = entry_of(owner, dv->cleaner.chunk, sizeof(*dv->cleaner.chunk),
					  CLEAN_CHUNKS);

		if (run < CORE_RUNS_MAX)
			f->run[i][run]++;
		if (chunk < CLEAN_CHUNKS && !io->write)
			f->chunk[i][chunk]++;
	}
}

static void count_copy(const struct core *c, const struct core_copy *copy, struct flights *f)
{
	uint32_t r = entry_of(copy->priv.owner, c->requests.table, sizeof(*c->requests.table),
			      CORE_REQUESTS_MAX);

	f->moves += copy->src_tier == copy->dst_tier;
	if (copy->src_tier == copy->dst_tier || r == CORE_REQUESTS_MAX)
		return;
	f->request[r]++;
	f->put_copies += copy->src_tier == ABI_TIER_COUNT;
}

static void count_flights(const struct core *c, struct flights *f)
{
	bool io_free[CORE_IO_MAX] = { false }, copy_free[CORE_COPIES_MAX] = { false };

	for (const struct core_io *io = c->actions.io_free; io; io = io->priv.next) {
		assert(io < c->actions.io + CORE_IO_MAX && !io_free[io - c->actions.io]);
		io_free[io - c->actions.io] = true;
	}
	for (const struct core_copy *copy = c->actions.copy_free; copy; copy = copy->priv.next) {
		assert(copy < c->actions.copy + CORE_COPIES_MAX);
		assert(!copy_free[copy - c->actions.copy]);
		copy_free[copy - c->actions.copy] = true;
	}
	for (uint32_t i = 0; i < CORE_IO_MAX; i++) {
		const struct sched_node *node = &c->actions.io[i].priv.node;

		if (io_free[i])
			continue;
		assert(node->client <= SCHED_DAEMON);
		f->ios[node->client]++;
		f->background += node->background;
		if (sched_has(node))
			count_io(c, &c->actions.io[i], f);
	}
	for (uint32_t i = 0; i < CORE_COPIES_MAX; i++) {
		const struct sched_node *node = &c->actions.copy[i].priv.node;

		if (copy_free[i])
			continue;
		assert(node->client <= SCHED_DAEMON);
		f->copies[node->client]++;
		if (sched_has(node))
			count_copy(c, &c->actions.copy[i], f);
	}
}

static void audit_log_work(struct audit *a, const struct drive *dv, const struct flights *f)
{
	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		if (dv->run[i].phase != RUN_FREE)
			audit_compare(a, "write-back", "writes of a run", f->run[dv->device][i],
				      dv->run[i].outstanding);
	for (uint32_t i = 0; i < CLEAN_CHUNKS; i++)
		if (dv->cleaner.chunk[i].io)
			audit_compare(a, "cleaner", "reads", f->chunk[dv->device][i],
				      dv->cleaner.chunk[i].reads);
}

static void audit_waited(struct audit *a, const struct flights *f)
{
	const struct core *c = a->c;
	uint64_t put_copies = 0;

	for (uint32_t i = 0; i < c->requests.high; i++)
		if (c->requests.table[i].phase != REQUEST_FREE &&
		    f->request[i] != c->requests.table[i].outstanding)
			audit_tell(a,
				   "a request of client %u: counted %u operations for it, the "
				   "counter says %u",
				   c->requests.table[i].client, f->request[i],
				   c->requests.table[i].outstanding);
	for (uint32_t i = 0; i < c->drives; i++)
		audit_log_work(a, c->drive[i], f);
	for (uint32_t i = 0; i < c->contexts_high; i++)
		put_copies += c->context[i] ? c->context[i]->put_copies : 0;
	audit_compare(a, "host", "copies of puts", f->put_copies, put_copies);
	audit_compare(a, "host", "copies within a tier", f->moves, c->evacuation.copies);
}

static void audit_pools(struct audit *a, const struct flights *f)
{
	const struct sched *s = a->c->sched;
	uint64_t ios = 0, copies = 0;

	for (uint32_t i = 0; i <= SCHED_DAEMON; i++) {
		ios += f->ios[i];
		copies += f->copies[i];
		if (f->ios[i] != s->ios[i] || f->copies[i] != s->copies[i])
			audit_tell(a, "client %u: counted %u device operations and %u copies of "
				   "the pools, the scheduler says %u and %u", i, f->ios[i],
				   f->copies[i], s->ios[i], s->copies[i]);
	}
	audit_compare(a, "host", "device operations of the pool", ios, a->c->actions.ios);
	audit_compare(a, "host", "copies of the pool", copies, a->c->actions.copies);
	audit_compare(a, "host", "background reads of the pool", f->background, s->background_ios);
}

/* ---- the device --------------------------------------------------------------------------- */

struct air {
	uint32_t drive;
	uint64_t ops[SCHED_CHANNELS], bytes[SCHED_CHANNELS];
	uint64_t background_ops, background_ns;
};

static void count_node(const struct sched_node *node, struct air *n)
{
	if (node->state != SCHED_FLYING || node->device != n->drive)
		return;
	assert(node->channel < SCHED_CHANNELS);
	n->ops[node->channel]++;
	n->bytes[node->channel] += node->bytes;
	if (!sched_is_device(node->channel) || node->klass == ABI_CLASS_DEMAND)
		return;
	n->background_ops++;
	n->background_ns += node->cost_ns;
}

static bool is_direct(const struct core_io *io)
{
	uint32_t state = io->priv.node.state;

	return io->direct && (state == SCHED_FLYING || state == SCHED_LANDED);
}

static void audit_drive(struct audit *a, uint32_t drive)
{
	const struct sched *s = &a->c->sched[drive];
	struct air n = { .drive = drive };

	for (uint32_t i = 0; i < CORE_IO_MAX; i++)
		count_node(&a->c->actions.io[i].priv.node, &n);
	for (uint32_t i = 0; i < SCHED_UNITS; i++)
		count_node(&s->unit[i].priv.node, &n);
	for (uint32_t i = 0; i < CORE_COPIES_MAX; i++)
		count_node(&a->c->actions.copy[i].priv.node, &n);
	for (uint32_t channel = 0; channel < SCHED_CHANNELS; channel++) {
		audit_compare(a, "scheduler", "operations under way", n.ops[channel],
			      s->channel[channel].ops);
		audit_compare(a, "scheduler", "bytes under way", n.bytes[channel],
			      s->channel[channel].bytes);
	}
	audit_compare(a, "scheduler", "background operations", n.background_ops, s->background_ops);
	audit_compare(a, "scheduler", "their device time", n.background_ns, s->background_ns);
}

static void audit_device(struct audit *a)
{
	uint64_t direct = 0;

	for (uint32_t i = 0; i < CORE_IO_MAX; i++)
		direct += is_direct(&a->c->actions.io[i]);
	for (uint32_t d = 0; d < sched_count(a->c); d++) {
		for (uint32_t i = 0; i < SCHED_UNITS; i++)
			direct += is_direct(&a->c->sched[d].unit[i]);
		audit_drive(a, d);
	}
	audit_compare(a, "scheduler", "reads into HBM", direct, a->c->sched->direct_ops);
}

/* ---- foresight ---------------------------------------------------------------------------- */

static void audit_conversations(struct audit *a)
{
	const struct conversations *t = &a->c->conversations;
	uint64_t count = 0, awaited = 0, chunks = 0, free = 0, chunks_free = 0;

	for (uint32_t i = 0; i < t->high; i++) {
		const struct conversation *s = &t->table[i];
		uint64_t blocks = 0;

		if (s->state == CONVERSATION_FREE)
			continue;
		count++;
		awaited += s->awaited;
		for (uint32_t at = s->chunks; at; at = t->chunk[at - 1].next, chunks++)
			blocks += t->chunk[at - 1].count;
		audit_compare(a, "a conversation", "blocks", blocks, s->blocks);
	}
	for (uint32_t i = t->free; i && free <= t->high; i = t->table[i - 1].next)
		free++;
	for (uint32_t i = t->chunk_free; i && chunks_free <= t->chunks_high;
	     i = t->chunk[i - 1].next)
		chunks_free++;
	audit_compare(a, "host", "conversations", count, t->count);
	audit_compare(a, "host", "conversations whose users are back", awaited, t->awaited);
	audit_compare(a, "host", "places of conversations", count + free, t->high);
	audit_compare(a, "host", "places of conversations' blocks", chunks + chunks_free,
		      t->chunks_high);
}

/* Parked prefetches, and loads of plans. */
static void audit_foresight(struct audit *a)
{
	const struct core *c = a->c;
	uint64_t parked = 0, plans = 0, flying[PLANS_MAX] = { 0 };

	for (uint32_t i = 0; i < c->requests.high; i++) {
		const struct request *r = &c->requests.table[i];
		uint32_t p = entry_of(r->owner, c->plans.table, sizeof(*c->plans.table), PLANS_MAX);

		if (r->phase == REQUEST_FREE)
			continue;
		parked += r->parked;
		if (p < PLANS_MAX)
			flying[p] += !r->answered;
	}
	for (uint32_t i = 0; i < PLANS_MAX; i++) {
		plans += c->plans.table[i].ctx != NULL;
		if (c->plans.table[i].ctx)
			audit_compare(a, "a plan", "loads under way", flying[i],
				      c->plans.table[i].flying);
	}
	audit_compare(a, "host", "parked prefetches", parked, c->parked.count);
	audit_compare(a, "host", "plans", plans, c->plans.count);
}

void audit_work(struct audit *a)
{
	struct flights *f = calloc(1, sizeof(*f));

	if (!f) {
		audit_tell(a, "out of memory for the recount");
		return;
	}
	count_flights(a->c, f);
	audit_waited(a, f);
	audit_pools(a, f);
	audit_device(a);
	audit_conversations(a);
	audit_foresight(a);
	free(f);
}
