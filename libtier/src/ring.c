/*
 * Rings; see ring.h for the contract and libtier/abi/ring.h for the format.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/ring.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "libtier/base/atomic.h"
#include "libtier/src/error.h"

#define RING_ENTRIES_MAX 65536u

static bool is_power_of_two(uint32_t n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

static bool inside(uint64_t offset, uint64_t count, uint64_t item, uint64_t bytes)
{
	return offset >= sizeof(struct abi_region_header) && offset % 64 == 0 && offset <= bytes &&
	       count <= (bytes - offset) / item;
}

int ring_open(struct ring *r, void *region, uint64_t bytes)
{
	struct abi_region_header h;

	memcpy(&h, region, sizeof(h));
	if (h.magic != ABI_REGION_MAGIC || h.version != ABI_VERSION)
		return error_set(-EPROTO, "the client region has magic %llx version %u, not "
					  "version %u; update the older of library and daemon",
				 (unsigned long long)h.magic, h.version, ABI_VERSION);
	if (h.total_bytes > bytes || !is_power_of_two(h.sq_entries) ||
	    !is_power_of_two(h.cq_entries) || h.sq_entries > RING_ENTRIES_MAX ||
	    h.cq_entries > RING_ENTRIES_MAX || h.readers_max > ABI_READERS_MAX ||
	    !inside(h.sq_offset, h.sq_entries, sizeof(struct abi_sqe), bytes) ||
	    !inside(h.cq_offset, h.cq_entries, sizeof(struct abi_cqe), bytes) ||
	    !inside(h.reader_offset, h.readers_max, sizeof(struct abi_reader), bytes))
		return error_note(-EPROTO, "the client region's header does not fit its mapping; "
					   "daemon and library are of different versions");
	*r = (struct ring){
		.shared = region,
		.sqe = (void *)((uint8_t *)region + h.sq_offset),
		.cqe = (void *)((uint8_t *)region + h.cq_offset),
		.sq_entries = h.sq_entries,
		.cq_entries = h.cq_entries,
		.sq_tail = h.sq_tail,
		.cq_head = h.cq_head,
	};
	return 0;
}

int ring_push(struct ring *r, const struct abi_sqe *entry)
{
	uint32_t used = r->sq_tail - atomic_load_acquire_u32(&r->shared->sq_head);

	if (used > r->sq_entries)
		return -EPROTO;
	if (used == r->sq_entries)
		return -EAGAIN;
	r->sqe[r->sq_tail & (r->sq_entries - 1)] = *entry;
	r->sq_tail++;
	atomic_store_release_u32(&r->shared->sq_tail, r->sq_tail);
	return 0;
}

bool ring_must_ring(const struct ring *r)
{
	/* Our sq_tail before our look at sq_wake; the daemon does the reverse before it sleeps. */
	full_fence();
	return atomic_load_relaxed_u32(&r->shared->sq_wake) != 0;
}

int ring_pop(struct ring *r, struct abi_cqe *entry)
{
	uint32_t ready = atomic_load_acquire_u32(&r->shared->cq_tail) - r->cq_head;

	if (ready == 0)
		return 0;
	if (ready > r->cq_entries)
		return -EPROTO;
	*entry = r->cqe[r->cq_head & (r->cq_entries - 1)];
	r->cq_head++;
	atomic_store_release_u32(&r->shared->cq_head, r->cq_head);
	return 1;
}

bool ring_ready(const struct ring *r)
{
	return atomic_load_acquire_u32(&r->shared->cq_tail) != r->cq_head;
}

void ring_ask_wake(struct ring *r, bool on)
{
	int cpu = on ? sched_getcpu() : -1;

	atomic_store_relaxed_u32(&r->shared->cq_wait, (uint32_t)on + (cpu > 0 ? (uint32_t)cpu : 0));
	/* Our cq_wait before our next look at cq_tail; the daemon does the reverse. */
	if (on)
		full_fence();
}

bool ring_closed(const struct ring *r)
{
	return atomic_load_acquire_u32(&r->shared->closed) != 0;
}

bool ring_handed_over(const struct ring *r)
{
	return atomic_load_acquire_u32(&r->shared->closed) == ABI_CLOSED_HANDOVER;
}
