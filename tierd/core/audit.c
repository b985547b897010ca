/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit (I7): recounts every byte of every tier from the ground up (descriptors, block lines)
 * and compares with what the counters say. It shares no arithmetic with the code that keeps them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tierd/core/audit_priv.h"

struct recount {
	uint64_t blocks, pending, live_slots;
	uint64_t resident[ABI_MEM_TIERS]; /* pages */
	uint64_t bytes[ABI_MEM_TIERS];	  /* of places that a word names */
	uint64_t retiring[ABI_MEM_TIERS];
	uint64_t streamed[ABI_MEM_TIERS]; /* bytes of places of the stream pool */
	uint64_t claims[ABI_MEM_TIERS];   /* of streams on pages */
	uint64_t dirty, nvme;
	uint64_t staged; /* bytes brought ahead and not read */
};

void audit_tell(struct audit *a, const char *format, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	a->wrong++;
	if (a->tell)
		a->tell(a->arg, text);
}

void audit_compare(struct audit *a, const char *context, const char *what, uint64_t counted,
		   uint64_t kept)
{
	if (counted != kept)
		audit_tell(a, "context %s: %s: counted %llu, the counter says %llu", context, what,
		     (unsigned long long)counted, (unsigned long long)kept);
}

static void audit_page(struct audit *a, const struct context *x, uint32_t slot, uint32_t page,
		       struct recount *n)
{
	const struct abi_page *d = index_page(&x->ix, slot, page);

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		uint32_t state = page_state(d, t), bytes = page_stride(x, page);

		n->claims[t] += d->claim[t] & (CLAIM_POOL - 1);
		n->streamed[t] += d->claim[t] & CLAIM_POOL ? bytes : 0;
		if (d->claim[t] == CLAIM_POOL && state == ABI_PAGE_READY)
			audit_tell(a, "context %s: block %u page %u: a stream's page in tier %u is "
				"nobody's", x->spec.name, slot, page, t);
		if (state == ABI_PAGE_ABSENT)
			continue;
		n->bytes[t] += bytes;
		n->resident[t] += state == ABI_PAGE_READY;
		if (state == ABI_PAGE_RETIRING || state == ABI_PAGE_QUARANTINED)
			n->retiring[t] += bytes;
		if (!x->space[t] || !space_is_live(x->space[t], page_addr(d, t)))
			audit_tell(a,
				   "context %s: block %u page %u: tier %u place is not handed out",
			     x->spec.name, slot, page, t);
	}
}

/* In the eviction order are the blocks with a page that is not a stream's, and no others. */
static void audit_policy(struct audit *a, const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		uint32_t streamed = 0, cached = 0;
		bool in = m->flags & BLOCK_IN_POLICY << t;

		for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
			const struct abi_page *d = index_page(&x->ix, slot, page);

			if (page_state(d, t) != ABI_PAGE_READY)
				continue;
			if (d->claim[t] & CLAIM_POOL)
				streamed++;
			else
				cached++;
		}
		if (in != (cached > 0))
			audit_tell(a,
				   "context %s: block %u has %u pages in tier %u for the "
				   "cache and is "
				"%s its order", x->spec.name, slot, cached, t,
			     in ? "in" : "not in");
		if (streamed != m->streamed[t])
			audit_tell(a,
				   "context %s: block %u: counted %u pages of streams in tier "
				   "%u, the "
				"counter says %u", x->spec.name, slot, streamed, t, m->streamed[t]);
	}
}

static void audit_block(struct audit *a, const struct context *x, uint32_t slot, struct recount *n)
{
	const struct abi_block *b = index_block(&x->ix, slot);
	const struct block_meta *m = &x->meta[slot];
	uint32_t nvme = 0, carried = 0;
	uint64_t bytes = 0;

	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		n->staged += (uint64_t)x->staged[slot].units[t] << ABI_UNIT_SHIFT;
	n->live_slots += b->state != ABI_BLOCK_FREE || m->flags & BLOCK_DROPPED;
	n->blocks += b->state == ABI_BLOCK_COMMITTED;
	n->pending += b->state == ABI_BLOCK_PENDING;
	for (uint32_t page = 0; page < x->ix.pages_per_block; page++) {
		audit_page(a, x, slot, page, n);
		if (b->state == ABI_BLOCK_FREE || !(b->parts >> x->page_part[page] & 1))
			continue;
		carried++;
		bytes += page_stride(x, page);
		nvme += index_page(&x->ix, slot, page)->nvme != 0;
	}
	if (b->state != ABI_BLOCK_COMMITTED)
		return;
	if (!a->c->plans.count && (x->staged[slot].planned[ABI_TIER_HBM] ||
				   x->staged[slot].planned[ABI_TIER_CXL]))
		audit_tell(a,
			   "context %s: block %u is kept for a plan that is not there",
			   x->spec.name,
		     slot);
	audit_policy(a, x, slot);
	if (index_find(&x->ix, b->key) != slot)
		audit_tell(a, "context %s: block %u is not found by its key", x->spec.name, slot);
	if (nvme && nvme != carried)
		audit_tell(a,
			   "context %s: block %u has %u of %u pages on NVMe",
			   x->spec.name, slot, nvme,
		     carried);
	if (m->persist == PERSIST_QUEUED || m->persist == PERSIST_WRITING)
		n->dirty += bytes;
	if (nvme) {
		n->nvme += bytes;
		a->segment[block_segment(a->c, x, slot)] += bytes;
	}
}

/* A block that was dropped while its run is being written still counts as dirty. */
static uint64_t dirty_dropped(const struct core *c, const struct context *x)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < CORE_RUNS_MAX; i++)
		for (uint32_t k = 0;
		     c->run[i].phase != RUN_FREE && c->run[i].ctx == x && k < c->run[i].blocks; k++)
			if (x->meta[c->run[i].slot[k]].flags & BLOCK_DROPPED)
				bytes += block_bytes(x, c->run[i].slot[k]);
	return bytes;
}

/* What all contexts together come to. */
struct total {
	uint64_t charged[ABI_MEM_TIERS], live[ABI_MEM_TIERS];
	uint64_t streamed[ABI_MEM_TIERS], claims[ABI_MEM_TIERS];
	uint64_t staged;
};

static void audit_context(struct audit *a, const struct context *x, struct total *sum)
{
	struct recount n;

	memset(&n, 0, sizeof(n));
	for (uint32_t slot = 0; slot < x->ix.slots_used; slot++)
		audit_block(a, x, slot, &n);
	sum->staged += n.staged;
	if (n.staged > n.bytes[ABI_TIER_HBM] + n.bytes[ABI_TIER_CXL])
		audit_tell(a, "context %s: more bytes are staged than there are", x->spec.name);
	audit_compare(a, x->spec.name, "blocks", n.blocks, x->blocks);
	audit_compare(a, x->spec.name, "pending blocks", n.pending, x->blocks_pending);
	audit_compare(a, x->spec.name, "block slots in use", n.live_slots, x->slots_live);
	audit_compare(a, x->spec.name, "dirty bytes", n.dirty + dirty_dropped(a->c, x),
		      x->dirty_bytes);
	audit_compare(a, x->spec.name, "NVMe bytes", n.nvme, x->nvme_bytes);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		struct space_stats st;

		audit_compare(a, x->spec.name, "resident pages", n.resident[t],
			      x->pages_resident[t]);
		audit_compare(a, x->spec.name, "retiring bytes", n.retiring[t], x->retiring[t]);
		if (!x->space[t])
			continue;
		space_stats(x->space[t], &st);
		audit_compare(a, x->spec.name, "bytes of places", n.bytes[t], st.live);
		sum->charged[t] += st.charged;
		sum->live[t] += st.live;
		sum->streamed[t] += n.streamed[t];
		sum->claims[t] += n.claims[t];
	}
}

/* What is begun and neither let go nor released is within the window. */
static void audit_window(struct audit *a, const struct stream *s)
{
	uint32_t first;

	if (!s->used || !s->per_layer || !s->window || !s->usable)
		return;
	first = s->dropped / s->per_layer;
	if (first < s->released)
		first = s->released;
	if (s->issue > first * s->per_layer &&
	    (s->issue - first * s->per_layer - 1) / s->per_layer + 1 > s->window)
		audit_tell(a,
			   "stream %u of client %u: layers %u to item %u of %u a layer are "
			   "more than "
			"its window of %u", s->number, s->client, first, s->issue, s->per_layer,
		     s->window);
}

/* Claims are the bits of streams' items; grants are within what was set aside. */
static void audit_streams(struct audit *a, const struct total *sum)
{
	const struct core *c = a->c;
	uint64_t claims[ABI_MEM_TIERS] = { 0 }, grants[ABI_MEM_TIERS] = { 0 };

	for (uint32_t i = 0; i < c->streams_high; i++) {
		const struct stream *s = &c->stream[i];

		for (uint32_t k = s->dropped; s->used && k < s->issue; k++) {
			claims[s->tier] += (s->item[k] & ITEM_CLAIM) != 0;
			claims[ABI_TIER_CXL] += (s->item[k] & ITEM_STAGE) != 0;
		}
		for (uint32_t t = 0; s->used && t < ABI_MEM_TIERS; t++)
			grants[t] += s->grant[t];
		audit_window(a, s);
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++) {
		audit_compare(a, "(all)", "claims of streams", sum->claims[t], claims[t]);
		audit_compare(a, "(all)", "bytes of the stream pool", sum->streamed[t],
			      c->streamed[t]);
		audit_compare(a, "(all)", "windows of streams", grants[t], c->stream_grants[t]);
		if (grants[t] > c->stream_aside[t] ||
		    c->stream_aside[t] > c->pool[t].capacity / c->config.stream_share)
			audit_tell(a,
				   "windows of %llu bytes in tier %u are more than is set "
				   "aside, or "
				"that more than the pool", (unsigned long long)grants[t], t);
	}
}

/* The scheduler's counts; and nobody waits for a read that is queued behind less urgent ones. */
static void audit_sched(struct audit *a)
{
	const struct core *c = a->c;

	if (!sched_agrees(c))
		audit_tell(a, "the scheduler's queues do not hold what they count");
	for (uint32_t i = 0; i < c->requests_high; i++) {
		const struct request *r = &c->request[i];
		bool fetch = r->sqe.op == ABI_OP_FETCH || r->sqe.op == ABI_OP_FETCH_PAGES;

		if (r->phase == REQUEST_SPACE && fetch && !r->answered && fetch_outranks(c, r))
			audit_tell(a,
				   "client %u waits in class %u for a read queued below it",
				   r->client,
			     r->sqe.klass);
	}
}

uint64_t core_audit(const struct core *c, void (*tell_fn)(void *arg, const char *what), void *arg)
{
	struct audit a = { .c = c, .tell = tell_fn, .arg = arg };
	const struct core_metrics *m = &c->metrics;
	struct total sum = { .staged = 0 };
	uint32_t segments = (uint32_t)c->config.super.segment_count;

	a.segment = calloc(segments + 1, sizeof(*a.segment));
	if (!a.segment) {
		audit_tell(&a, "out of memory for the recount");
		return a.wrong;
	}
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i])
			audit_context(&a, c->context[i], &sum);
	audit_compare(&a, "(all)", "staged bytes", sum.staged, c->staged.bytes);
	audit_compare(&a, "(all)", "prefetched bytes",
		m->prefetch_used + m->prefetch_wasted + m->prefetch_failed + sum.staged,
		m->prefetch_bytes);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		audit_compare(&a, "(all)", "bytes charged to the pool", sum.charged[t],
			      c->pool[t].used);
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		audit_compare(&a, "(all)", "bytes of live places", sum.live[t], c->pool[t].live);
	audit_streams(&a, &sum);
	for (uint32_t i = 0; c->store && i < segments; i++)
		if (a.segment[i] != store_segment_live(c->store, i))
			audit_tell(&a,
				   "segment %u: counted %llu live bytes, the store says %llu", i,
			     (unsigned long long)a.segment[i],
			     (unsigned long long)store_segment_live(c->store, i));
	audit_sched(&a);
	audit_held(&a);
	free(a.segment);
	return a.wrong;
}
