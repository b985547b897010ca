/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit of a put: which pages it brings, their way from staging into CXL, and for durable puts
 * the wait for the log.
 *
 *   narrow  what only another writer announced is not waited for
 *   copy    staging is copied while it is checksummed; each block is visible when its last page is
 *           in (I5), retained as its put says
 *   gap     a page that another put was to bring, and has not: it is copied after all
 *   durable all blocks are clean in the durable log, then a flush
 */
#include <assert.h>
#include <errno.h>

#include "tierd/core/state.h"

#define PUT_COPIES 4u /* copy jobs of one put under way */

/* ---- the shard --------------------------------------------------------------------------- */

static uint32_t shard_groups(const struct abi_part *part, const struct abi_put_args *a,
			     uint32_t *first)
{
	*first = 0;
	if (a->shards < 2 || part->shard_rule == ABI_SHARD_REPLICATED)
		return part->groups;
	*first = (uint32_t)((uint64_t)a->shard * part->groups / a->shards);
	return (uint32_t)((uint64_t)(a->shard + 1) * part->groups / a->shards) - *first;
}

/* How many pages and bytes of each block the put brings. */
void shard_measure(const struct context *x, struct put *p)
{
	const struct abi_geometry *g = context_geometry(x);

	p->pages = 0;
	p->block_bytes = 0;
	for (uint32_t i = 0; i < g->part_count; i++) {
		uint32_t first, n = shard_groups(&g->part[i], &p->args, &first);

		if (!(p->args.parts >> i & 1))
			continue;
		p->pages += g->part[i].layers * n;
		p->block_bytes += (uint64_t)g->part[i].layers * n * g->part[i].page_stride;
	}
}

/* The k-th page of the shard: order of abi/ring.h. */
struct shard_page shard_page(const struct context *x, const struct put *p, uint32_t k)
{
	const struct abi_geometry *g = context_geometry(x);
	struct shard_page out = { 0, 0, 0 };

	for (uint32_t i = 0; i < g->part_count; i++) {
		const struct abi_part *part = &g->part[i];
		uint32_t first, n = shard_groups(part, &p->args, &first);

		if (!(p->args.parts >> i & 1) || !n)
			continue;
		if (k < part->layers * n) {
			out.page = part->page_base + k;
			if (n < part->groups) /* mostly not, and dividing takes long */
				out.page += k / n * (part->groups - n) + first;
			out.offset += (uint64_t)k * part->page_stride;
			return out;
		}
		k -= part->layers * n;
		out.offset += (uint64_t)part->layers * n * part->page_stride;
	}
	assert(!"k is below p->pages");
	return out;
}

/* The same for one block, from p->look on. 1, 0, or -EAGAIN: not known yet. */
static int block_gap(struct core *c, struct put *p, uint32_t slot, uint32_t *state)
{
	const struct context *x = p->ctx;
	uint32_t parts = index_block(&x->ix, slot)->parts;

	for (; p->look < p->pages; p->look++) {
		uint32_t page = shard_page(x, p, p->look).page;
		const struct abi_page *d = index_page(&x->ix, slot, page);

		if (meter_spent(&c->meter))
			return -EAGAIN;
		meter_charge(&c->meter, 1);
		*state = page_state(d, ABI_TIER_CXL);
		if (*state != ABI_PAGE_READY && page_usable(d, ABI_TIER_CXL) &&
		    parts >> x->page_part[page] & 1)
			return 1;
	}
	p->look = 0;
	return 0;
}

/*
 * A page of a block that is not whole, though all that this put has to bring was begun: another
 * put's copy of it was stepped over, and has failed since or may yet fail. The cursor goes back to
 * it: 1. There is none, what is still missing is another shard's: 0. -EAGAIN: not known yet.
 */
static int shard_gap(struct core *c, struct request *r, uint32_t *state)
{
	struct put *p = r->put;
	int gap = 0;

	for (; p->gap < p->done; p->gap++) {
		uint32_t slot = p->ref[p->gap].slot;

		if (meter_spent(&c->meter))
			return -EAGAIN;
		meter_charge(&c->meter, 1);
		if (!bit_get(p->mine, p->gap) || p->ctx->meta[slot].flags & BLOCK_DROPPED ||
		    index_block(&p->ctx->ix, slot)->state != ABI_BLOCK_PENDING)
			p->look = 0;
		else if ((gap = block_gap(c, p, slot, state)))
			break;
	}
	if (gap > 0)
		r->cursor = p->gap * p->pages + p->look;
	if (gap >= 0)
		p->gap = p->look = 0;
	return gap;
}

/* ---- the copies -------------------------------------------------------------------------- */

int64_t put_alloc(struct core *c, struct put *p, uint32_t slot, uint32_t page)
{
	int64_t place = -ENOENT;

	if (p->reservation)
		place = reserve_draw(c, p, slot, page);
	if (place >= 0)
		return place;
	place = place_for(c, p->ctx, slot, page, ABI_TIER_CXL);
	if (place >= 0 && p->reservation)
		reserve_beside(c, p);
	return place;
}

static void page_abandon(struct core *c, struct context *x, uint32_t slot, uint32_t page)
{
	struct abi_page *d = index_page(&x->ix, slot, page);

	space_free(x->space[ABI_TIER_CXL], page_addr(d, ABI_TIER_CXL));
	page_free(d, ABI_TIER_CXL);
	block_page_freed(c, x, slot, page, ABI_TIER_CXL);
}

static int page_copied(struct core *c, const struct request *r, const struct core_copy *copy,
		       uint32_t i)
{
	struct context *x = r->ctx;
	uint32_t slot = copy->priv.slot[i], page = copy->priv.page[i];
	struct abi_page *d = index_page(&x->ix, slot, page);
	bool pending = index_block(&x->ix, slot)->state == ABI_BLOCK_PENDING;

	if (copy->res || x->meta[slot].flags & BLOCK_DROPPED) {
		page_abandon(c, x, slot, page);
		return copy->res;
	}
	if (!pending && d->crc != copy->item[i].crc) {
		page_abandon(c, x, slot, page); /* not the bytes stored under this key */
		return -EBADMSG;
	}
	d->crc = copy->item[i].crc;
	c->metrics.put_bytes += copy->item[i].bytes;
	page_publish(d, ABI_TIER_CXL);
	block_resident(c, x, slot, page, ABI_TIER_CXL);
	if (x->meta[slot].settle == SETTLE_MISREAD)
		path_repair(c, x, slot);
	assert(!pending || block_use(x, slot)->missing > 0);
	if (pending && !--block_use_make(x, slot)->missing) {
		block_commit(c, x, slot);
		writeback_enqueue(c, x, slot);
		put_retain_block(c, r->put, slot); /* before a record can be written */
	}
	return 0;
}

static void put_copied(struct core *c, struct core_copy *copy)
{
	struct request *r = copy->priv.owner;

	put_places_settled(c, r->ctx, copy);
	for (uint32_t i = 0; i < copy->count; i++) {
		int err = page_copied(c, r, copy, i);

		if (err && !r->error)
			r->error = err;
	}
	core_copy_put(c, copy);
	r->ctx->put_copies--;
	request_landed(c, r);
}

static void copy_submit(struct core *c, struct request *r, struct core_copy *copy)
{
	if (!copy)
		return;
	r->outstanding++;
	r->ctx->put_copies++;
	sched_copy(c, copy);
}

static struct core_copy *copy_begin(struct core *c, struct request *r)
{
	struct core_copy *copy = core_copy_get(c, ABI_CLASS_DEMAND, r->client);

	if (!copy)
		return NULL;
	copy->deadline_ns = r->deadline_ns;
	copy->checksum = 1;
	copy->src_tier = ABI_TIER_COUNT;
	copy->dst_tier = ABI_TIER_CXL;
	copy->priv.done = put_copied;
	copy->priv.owner = r;
	return copy;
}

static void copy_page(struct core *c, struct request *r, struct core_copy *copy,
		      const struct shard_page *s, uint64_t offset)
{
	struct put *p = r->put;
	struct put_place *own = put_place_of(p, r->cursor);
	struct context *x = r->ctx;
	uint32_t slot = p->ref[s->block].slot;
	const struct core_copy_item item = {
		.dst = (uint8_t *)x->memory.mem[ABI_TIER_CXL] + offset,
		.src = own ? NULL : c->client[r->client].open.staging + r->sqe.arg_offset +
				    s->block * p->block_bytes + s->offset,
		.bytes = page_stride(x, s->page),
		.pad = page_padding(x, s->page),
		.seed = store_page_seed(index_block(&x->ix, slot)->key, block_salt(x, slot),
					s->page),
	};

	block_page_taken(c, x, slot, s->page, ABI_TIER_CXL, offset);
	sched_copy_add(copy, &item, slot, s->page);
	if (!own)
		return;
	put_copy_in_place(copy, x);
	put_place_forget(p, own);
}

/* Does item `cursor` (*s) want a copy? Blocks that are whole or gone are stepped over at once. */
static bool wants_copy(struct request *r, struct shard_page *s)
{
	const struct put *p = r->put;
	struct context *x = r->ctx;
	uint32_t i = r->cursor / p->pages;
	uint32_t slot = p->ref[i].slot, state;
	const struct abi_page *d;

	if (!put_mine(p, i) || x->meta[slot].flags & BLOCK_DROPPED) {
		r->cursor = (i + 1) * p->pages;
		return false;
	}
	*s = shard_page(x, p, r->cursor - i * p->pages);
	s->block = i;
	d = index_page(&x->ix, slot, s->page);
	state = page_state(d, ABI_TIER_CXL);
	if (index_block(&x->ix, slot)->parts >> x->page_part[s->page] & 1 &&
	    (state == ABI_PAGE_ABSENT ||
	     (state != ABI_PAGE_READY &&
	      index_block(&x->ix, slot)->state == ABI_BLOCK_COMMITTED)) &&
	    page_usable(d, ABI_TIER_CXL))
		return true;
	r->cursor++;
	return false;
}

/* A place for the page; -EAGAIN while it is leaving or on its way (durable puts). */
static int64_t copy_place(struct core *c, struct request *r, const struct shard_page *s)
{
	uint32_t slot = r->put->ref[s->block].slot, page = s->page;
	const struct abi_page *d = index_page(&r->ctx->ix, slot, page);
	const struct put_place *own = put_place_of(r->put, r->cursor);

	if (page_state(d, ABI_TIER_CXL) != ABI_PAGE_ABSENT)
		return -EAGAIN;
	if (!own)
		return put_alloc(c, r->put, slot, page);
	/* It was charged to nobody until now. */
	return quota_left(c, r->ctx, slot, ABI_TIER_CXL) < page_stride(r->ctx, page) ?
		       -EDQUOT : (int64_t)own->offset;
}

/* Pages that the put may still want at once, the one at the cursor first: no more need to leave. */
static uint64_t pages_ahead(const struct request *r)
{
	assert(r->cursor < r->total);
	return r->total - r->cursor < CORE_SEGMENTS_IO ? r->total - r->cursor : CORE_SEGMENTS_IO;
}

/*
 * It waits for room, as others may that hold as much: what is promised to the durable log by now
 * stays by that alone until it is written, and then makes room for the rest.
 */
static void put_let_go(struct core *c, struct put *p)
{
	if (p->durable)
		meter_charge(&c->meter, p->done);
	for (uint32_t i = 0; p->durable && i < p->done; i++) {
		uint32_t slot = p->ref[i].slot;

		if (!bit_get(p->kept, i))
			continue;
		if (block_alive(p->ctx, p->ref[i]))
			writeback_durable(c, p->ctx, slot);
		if (block_alive(p->ctx, p->ref[i]) && !(p->ctx->meta[slot].flags & BLOCK_DURABLE))
			continue;
		p->kept[i / 64] &= ~(1ull << i % 64);
		block_unhold(c, p->ctx, slot);
	}
}

/*
 * No place for a page of the block: start what makes room. 0: wait for it. What requests and
 * streams of the context hold can leave once they are over, and they end by their deadlines, as
 * this put does; and what puts are copying, this one too, when it is written.
 */
static int copy_room(struct core *c, struct request *r, const struct shard_page *s, int64_t lack)
{
	uint32_t slot = r->put->ref[s->block].slot;
	uint64_t bytes = page_stride(r->ctx, s->page);
	int err = 0;

	put_let_go(c, r->put);
	if (lack == -ENOSPC)
		err = evict_room(c, r->ctx, ABI_TIER_CXL, bytes * pages_ahead(r));
	else if (lack == -EDQUOT)
		err = evict_account(c, r->ctx, slot, ABI_TIER_CXL, bytes);
	if (err == -ENOSPC && (r->ctx->put_copies || request_holds(c, r->ctx)))
		err = 0;
	return err;
}

/* Start what copies can start. False: it waits for room, or failed for want of it. */
static bool put_copy(struct core *c, struct request *r)
{
	struct core_copy *copy = NULL;

	while (r->cursor < r->total && r->outstanding < PUT_COPIES) {
		struct shard_page s;
		int64_t offset;

		if (meter_spent(&c->meter)) {
			request_go_on(c, r);
			break;
		}
		meter_charge(&c->meter, 1);
		if (!wants_copy(r, &s))
			continue;
		/* A job is all in place, or not at all. */
		if (copy && copy->count && copy->in_place != !!put_place_of(r->put, r->cursor)) {
			copy_submit(c, r, copy);
			copy = NULL;
			continue;
		}
		if (!copy)
			copy = copy_begin(c, r);
		offset = copy ? copy_place(c, r, &s) : -EAGAIN;
		if (offset < 0) {
			if (copy && copy->count)
				copy_submit(c, r, copy);
			else if (copy)
				core_copy_put(c, copy);
			r->error = copy_room(c, r, &s, offset);
			if (!r->error)
				request_wait_space(c, r);
			return !!r->error;
		}
		copy_page(c, r, copy, &s, (uint64_t)offset);
		r->cursor++;
		if (sched_copy_full(copy)) {
			copy_submit(c, r, copy);
			copy = NULL;
		}
	}
	copy_submit(c, r, copy);
	return true;
}

/* ---- commit ------------------------------------------------------------------------------- */

static uint64_t put_visible(const struct put *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->done; i++)
		n += block_alive(p->ctx, p->ref[i]) &&
		     index_block(&p->ctx->ix, p->ref[i].slot)->state == ABI_BLOCK_COMMITTED;
	return n;
}

/* For operators: blocks, and how many of them are what the put promises. */
static void put_view(const struct core *c, const struct request *r, struct core_request_view *out)
{
	const struct put *p = r->put;

	(void)c;
	if (!p)
		return;
	out->count = p->args.count;
	out->done = p->durable ? p->written : (uint32_t)put_visible(p);
	assert(out->done <= out->count);
}

/*
 * Has anyone a page of the part in CXL, or on its way there? 1 yes, 0 no, -EAGAIN: not known yet;
 * it is looked at from p->look on.
 */
static int part_begun(struct core *c, struct put *p, uint32_t slot, uint32_t part)
{
	const struct context *x = p->ctx;
	const struct abi_part *q = &x->spec.geometry.part[part];
	uint32_t pages = block_words(x, slot) ? q->layers * q->groups : 0;
	int begun = 0;

	for (; !begun && p->look < pages; p->look++) {
		if (meter_spent(&c->meter))
			return -EAGAIN;
		meter_charge(&c->meter, 1);
		begun = page_state(index_page(&x->ix, slot, q->page_base + p->look),
				   ABI_TIER_CXL) != ABI_PAGE_ABSENT;
	}
	p->look = 0;
	return begun;
}

/* A pending block does not wait for the part any more. */
static void narrow_part(struct core *c, struct put *p, uint32_t slot, uint32_t part)
{
	struct context *x = p->ctx;

	index_block(&x->ix, slot)->parts &= ~(1u << part);
	block_use_make(x, slot)->missing -=
		x->spec.geometry.part[part].layers * x->spec.geometry.part[part].groups;
	if (block_use(x, slot)->missing)
		return;
	block_commit(c, x, slot);
	writeback_enqueue(c, x, slot);
	put_retain_block(c, p, slot);
}

/*
 * First commit wins: a pending block no longer waits for parts of rule "last n" that only another,
 * perhaps hung, writer announced. If these were all that it waited for, it is whole now. False: it
 * is not known yet whether they have begun.
 */
static bool narrow(struct core *c, struct put *p, uint32_t i)
{
	struct context *x = p->ctx;
	uint32_t slot = p->ref[i].slot, foreign;
	struct abi_block *b = index_block(&x->ix, slot);
	int begun;

	meter_charge(&c->meter, 1);
	if (!put_mine(p, i) || b->state != ABI_BLOCK_PENDING)
		return true;
	foreign = b->parts & ~p->args.parts; /* mostly none */
	if (foreign)
		foreign &= ~p->needs;
	for (; foreign; foreign &= foreign - 1) {
		uint32_t part = (uint32_t)__builtin_ctz(foreign);

		begun = p->begun >> part & 1 ? 1 : part_begun(c, p, slot, part);
		if (begun < 0)
			return false;
		p->begun |= (uint32_t)begun << part;
		if (!begun)
			narrow_part(c, p, slot, part);
	}
	p->begun = 0;
	return true;
}

/*
 * All of its blocks are clean in the durable log? A block that went meanwhile fails the put.
 * -EAGAIN: not all were looked at.
 */
static int put_written(struct core *c, struct request *r)
{
	struct put *p = r->put;

	for (; p->written < p->done; p->written++) {
		struct abi_block_ref ref = p->ref[p->written];

		/* again: who brought the rest may have failed */
		if (meter_spent(&c->meter) || !narrow(c, p, p->written))
			return -EAGAIN;
		if (!block_alive(p->ctx, ref))
			r->error = -ENOSPC;
		else if (prove_fails(c, p->ctx, ref.slot))
			r->error = -EIO;
		else if (!writeback_durable(c, p->ctx, ref.slot))
			return 0;
		else if (p->ctx->meta[ref.slot].settle == SETTLE_WRITTEN) /* else a flush has it */
			p->drives |= 1u << block_drive(c, p->ctx, ref.slot)->device;
	}
	return 1;
}

/* Does a durable catalog say the context's epoch? Recovery takes blocks of that one alone. */
static bool epoch_listed(const struct core *c, const struct context *x)
{
	return !c->drives || x->epoch_listed == x->spec.epoch;
}

static void put_durable_step(struct core *c, struct request *r)
{
	if (!r->syncing) {
		int written = put_written(c, r);

		if (written <= 0) {
			r->phase = REQUEST_WRITTEN;
			if (written < 0)
				request_go_on(c, r);
			return;
		}
		request_sync_from(c, r, r->put->drives ? r->put->drives : 1);
	}
	if (request_synced(c, r) && epoch_listed(c, r->ctx)) {
		put_end(c, r, r->error);
		return;
	}
	r->phase = REQUEST_SYNC; /* the catalog's flush wakes it, too */
	request_sync_want(c, r);
}

static int put_trouble(const struct request *r)
{
	if (r->error)
		return r->error;
	if (r->late)
		return -ETIMEDOUT;
	return r->put->epoch != r->ctx->spec.epoch ? -ESTALE : 0;
}

/*
 * Is all of it done, though it was cancelled or its time was over while the last bytes came? A
 * durable put wants more: that it survives is not known.
 */
static bool put_done(struct core *c, const struct request *r, int trouble)
{
	const struct put *p = r->put;

	meter_charge(&c->meter, p->done);

	assert(trouble && !r->outstanding);
	return (trouble == -ECANCELED || trouble == -ETIMEDOUT) && !p->durable &&
	       !r->ctx->closing && p->epoch == r->ctx->spec.epoch &&
	       put_visible(p) == p->args.count;
}

/* What a durable put finds stored without durability must stay in CXL until it is written again. */
static void put_keep(struct put *p, uint32_t i)
{
	if (!put_mine(p, i) || !block_alive(p->ctx, p->ref[i]))
		return;
	block_hold(p->ctx, p->ref[i].slot);
	p->kept[i / 64] |= 1ull << i % 64;
}

/* Before the first byte is copied. False: not all of its blocks are ready yet. */
static bool put_prepare(struct core *c, struct put *p)
{
	uint32_t all = p->durable ? 2 * p->done : p->done;

	for (; p->prepared < all && !meter_spent(&c->meter); p->prepared++) {
		if (p->prepared >= p->done)
			put_keep(p, p->prepared - p->done);
		else if (!narrow(c, p, p->prepared))
			break;
	}
	return p->prepared == all;
}

static void put_commit_step(struct core *c, struct request *r)
{
	int trouble = put_trouble(r), gap;
	uint32_t state;

	r->phase = REQUEST_RUN;
	if (r->put->ending) {
		put_end(c, r, 0);
		return;
	}
	if (r->error != -ECONNRESET && !put_prepare(c, r->put)) {
		request_go_on(c, r);
		return;
	}
	if (!trouble && r->cursor < r->total) {
		if (!put_copy(c, r))
			return;
		trouble = r->error;
	}
	if (r->outstanding)
		return; /* request_landed comes back */
	if (trouble)
		put_end(c, r, put_done(c, r, trouble) ? 0 : trouble);
	else if (r->cursor < r->total)
		request_wake(c, r);
	else if (!r->syncing && (gap = shard_gap(c, r, &state)))
		gap < 0			   ? request_go_on(c, r) :
		state == ABI_PAGE_ABSENT ? request_wake(c, r) :
					     request_wait_space(c, r);
	else if (!r->put->durable)
		put_end(c, r, 0);
	else
		put_durable_step(c, r);
}

/* Is it not there because it came too late? That is known until its place is another's. */
static bool put_expired(const struct core *c, const struct request *r)
{
	const struct put *p = &c->puts.table[r->sqe.handle % CORE_REQUESTS_MAX];

	assert(!p->used || !p->expired || p->freeing);
	return p->expired && p->handle == r->sqe.handle && p->client == r->client;
}

static int commit_check(struct core *c, const struct request *r, const struct put *p)
{
	const struct client *k = &c->client[r->client];
	uint64_t bytes = p->block_bytes * p->args.count;

	if (r->sqe.arg_offset % ABI_UNIT || r->sqe.arg_offset > k->open.staging_bytes ||
	    bytes > k->open.staging_bytes - r->sqe.arg_offset)
		return -EFAULT;
	return 0;
}

static void put_commit_begin(struct core *c, struct request *r)
{
	struct put *p = put_open(c, r->client, r->sqe.handle);
	int err;

	if (!p) {
		request_end(c, r, put_expired(c, r) ? -ETIMEDOUT : -ENOENT, 0, 0);
		return;
	}
	err = commit_check(c, r, p);
	if (err) {
		request_end(c, r, err, 0, 0);
		return;
	}
	c->metrics.puts++;
	r->ctx = p->ctx;
	r->put = p;
	r->total = p->args.count * p->pages;
	p->committing = true;
	p->written = 0;
	if (!p->durable && context_has_nvme(c, p->ctx) &&
	    p->ctx->dirty_bytes + p->block_bytes * p->args.count > dirty_limit(c, p->ctx)) {
		c->metrics.puts_dropped++; /* P5: it only serves later reuse */
		r->status = ABI_STATUS_DROPPED;
		put_end(c, r, 0);
		return;
	}
	put_commit_step(c, r);
}

/* A put that has copied all of its bytes wanted room in the store. */
static uint32_t put_lacks(const struct request *r)
{
	return r->cursor == r->total ? ABI_TIER_NVME : ABI_TIER_CXL;
}

static bool put_flush_failed(struct request *r)
{
	struct put *p = r->put;

	assert(!p || p->committing);
	if (p)
		p->written = p->look = p->begun = p->drives = 0;
	return p;
}

const struct op_ops op_put_commit = {
	.name = "put-commit",
	.begin = put_commit_begin,
	.step = put_commit_step,
	.flush_failed = put_flush_failed,
	.lacks = put_lacks,
	.view = put_view,
};
