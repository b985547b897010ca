/*
 * The daemon of libtier's tests (test_libtier_fake.h): entries of clients' rings taken, carried out
 * and answered.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_LIBTIER_FAKE_RING_H
#define TIER_TESTS_LIBTIER_FAKE_RING_H

#include <errno.h>

#include "libtier/base/atomic.h"
#include "tests/unit/test_libtier_fake_context.h"

static inline void fake_put_reserve(struct fake *f, struct fake_client *k, const struct abi_sqe *e,
				    struct abi_cqe *c)
{
	struct fake_context *x = &f->context[e->context_id];
	const uint8_t *arg = k->staging + e->arg_offset;
	uint32_t i = 0;

	while (i < 64 && f->put[i].used)
		i++;
	if (i == 64 || e->count > 64) {
		c->res = -ENOSPC;
		return;
	}
	f->put[i] = (struct fake_put){ .used = true, .context = e->context_id,
				       .count = e->count };
	memcpy(&f->put[i].args, arg, sizeof(f->put[i].args));
	for (uint32_t b = 0; b < e->count; b++) {
		tier_key key;

		memcpy(key.bytes, arg + sizeof(struct abi_put_args) + b * sizeof(key), sizeof(key));
		f->put[i].slot[b] = index_find(&x->ix, key.bytes);
		if (f->put[i].slot[b] == ABI_SLOT_NONE)
			f->put[i].slot[b] = fake_store(x, &key, ABI_BLOCK_PENDING);
		else if (index_block(&x->ix, f->put[i].slot[b])->state == ABI_BLOCK_COMMITTED)
			c->aux |= 1ull << b;
	}
	c->value = i + 1;
}

/* Unsharded puts of all parts only. */
static inline void fake_put_commit(struct fake *f, struct fake_client *k, const struct abi_sqe *e,
				   struct abi_cqe *c)
{
	struct fake_put *p = e->handle - 1 < 64 ? &f->put[e->handle - 1] : NULL;
	struct fake_context *x;
	const uint8_t *from = k->staging + e->arg_offset;

	if (!p || !p->used) {
		c->res = -ENOENT;
		return;
	}
	x = &f->context[p->context];
	for (uint32_t b = 0; b < p->count; b++) {
		bool there = index_block(&x->ix, p->slot[b])->state == ABI_BLOCK_COMMITTED;

		for (uint32_t g = 0; g < x->ix.pages_per_block; g++) {
			if (!there) {
				fake_page_ready(x, p->slot[b], g, ABI_TIER_CXL, 0);
				memcpy(x->mem[ABI_TIER_CXL] +
					       page_addr(index_page(&x->ix, p->slot[b], g),
							 ABI_TIER_CXL),
				       from, fake_stride(x, g));
			}
			from += fake_stride(x, g);
		}
		index_block_state(&x->ix, p->slot[b], ABI_BLOCK_COMMITTED);
	}
	c->value = p->count;
	p->used = false;
}

static inline void fake_delete(struct fake *f, struct fake_client *k, const struct abi_sqe *e,
			       struct abi_cqe *c)
{
	struct fake_context *x = &f->context[e->context_id];

	for (uint32_t i = 0; i < e->count; i++) {
		const uint8_t *key = k->staging + e->arg_offset + i * ABI_KEY_BYTES;
		uint32_t slot = index_find(&x->ix, key);

		if (slot == ABI_SLOT_NONE)
			continue;
		index_remove(&x->ix, slot);
		c->value++;
	}
}

static inline void fake_serve(struct fake *f, struct fake_client *k, const struct abi_sqe *e)
{
	struct abi_cqe *cq = (void *)((uint8_t *)k->region + k->region->cq_offset);
	struct abi_cqe c = { .user_data = e->user_data };
	const uint64_t one = 1;
	bool silent = false;

	f->ops[e->op < ABI_OP_COUNT ? e->op : 0]++;
	if (!f->hook || !f->hook(f, e, &c, &silent)) {
		if (e->op == ABI_OP_PUT_RESERVE)
			fake_put_reserve(f, k, e, &c);
		else if (e->op == ABI_OP_PUT_COMMIT)
			fake_put_commit(f, k, e, &c);
		else if (e->op == ABI_OP_PUT_ABORT)
			f->put[(e->handle - 1) % 64].used = false;
		else if (e->op == ABI_OP_DELETE)
			fake_delete(f, k, e, &c);
		else
			c.value = e->count;
	}
	if (silent)
		return;
	cq[k->cq_tail % FAKE_CQ] = c;
	atomic_store_release_u32(&k->region->cq_tail, ++k->cq_tail);
	full_fence();
	if (atomic_load_relaxed_u32(&k->region->cq_wait))
		assert_int_equal(write(k->event, &one, sizeof(one)), sizeof(one));
}

static inline void fake_ring(struct fake *f, struct fake_client *k)
{
	struct abi_sqe *sq = (void *)((uint8_t *)k->region + k->region->sq_offset);

	while (!f->mute && atomic_load_acquire_u32(&k->region->sq_tail) != k->sq_head &&
	       k->cq_tail - atomic_load_acquire_u32(&k->region->cq_head) < FAKE_CQ) {
		struct abi_sqe e = sq[k->sq_head % FAKE_SQ];

		atomic_store_release_u32(&k->region->sq_head, ++k->sq_head);
		fake_serve(f, k, &e);
	}
}

#endif
