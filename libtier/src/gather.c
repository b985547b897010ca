/*
 * Reads built from leases: copy pages out under leases of a moment, and lease pages after fetching
 * those that are not in memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>

#include "libtier/src/ask.h"
#include "libtier/src/error.h"
#include "libtier/src/reader.h"
#include "libtier/src/submit.h"

#define GATHER_GROUP 64u
#define FETCH_GROUP 256u
#define FETCH_ROUNDS 8u /* a page that leaves again that often stays a miss */

/* ---- gather ---------------------------------------------------------------------------------- */

struct gather {
	const struct abi_geometry *geometry;
	uint8_t *to;
	size_t stride; /* 0 = packed */
};

/* The room of a page at the destination; 0: there is no such page, or it exceeds the stride. */
static uint32_t room_of(const struct gather *g, uint32_t page)
{
	uint32_t bytes;

	if (page >= g->geometry->pages_per_block)
		return 0;
	bytes = g->geometry->part[geometry_part_of(g->geometry, page)].page_bytes;
	return g->stride != 0 && bytes > g->stride ? 0 : bytes;
}

/* Copies what was leased of a group, releases it; returns how many pages. */
static uint32_t copy_group(tier_reader *r, struct gather *g, const struct tier_page *pages,
			   struct tier_lease *leases, uint32_t count)
{
	uint32_t copied = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t bytes = room_of(g, pages[i].page);

		if (leases[i].data && bytes == 0) {
			tier_release(r, &leases[i]);
			leases[i].error = -EINVAL;
		}
		if (leases[i].data) {
			memcpy(g->to, leases[i].data, bytes);
			copied++;
		}
		g->to += g->stride ? g->stride : bytes;
	}
	tier_release_many(r, leases, count);
	return copied;
}

int tier_gather(tier_reader *r, tier_context *c, const struct tier_page *pages, uint32_t count,
		const struct tier_into *into)
{
	struct tier_lease leases[GATHER_GROUP];
	struct gather g;
	uint32_t copied = 0;
	uint32_t n;

	if (!r || !c || !into || (count > 0 && (!pages || !into->dst)))
		return error_note(-EINVAL, "tier_gather: a pointer is NULL");
	if (connection_orphaned(r->alive))
		return connection_check(r->t);
	if (count > INT32_MAX)
		return error_note(-EINVAL, "tier_gather: too many pages");
	if (into->stride && (UINTPTR_MAX - (uintptr_t)into->dst) / into->stride < count)
		return error_note(-EINVAL, "tier_gather: the stride leads beyond all memory");
	g = (struct gather){ &c->geometry.abi, into->dst, into->stride };
	for (uint32_t at = 0; at < count; at += n) {
		int rc;

		n = count - at < GATHER_GROUP ? count - at : GATHER_GROUP;
		if (n > reader_free_slots(r))
			n = reader_free_slots(r);
		if (n == 0)
			return error_note(-EAGAIN, "tier_gather: all slots of the reader are held; "
						   "release some");
		rc = tier_lease_pages(r, c, pages + at, n, 0, leases);
		if (rc < 0)
			return rc;
		copied += copy_group(r, &g, pages + at, leases, n);
		for (uint32_t i = 0; into->error && i < n; i++)
			into->error[at + i] = leases[i].error;
	}
	return (int)copied;
}

/* ---- read ------------------------------------------------------------------------------------ */

/* What a read still misses, a group at a time. */
struct missing {
	struct tier_page page[FETCH_GROUP];
	uint32_t index[FETCH_GROUP];
	uint32_t count;
	int error; /* what the daemon said to the last fetch; 0 = a page came, or left again */
};

static void find_missing(struct missing *m, const struct tier_page *pages,
			 const struct tier_lease *leases, uint32_t count)
{
	m->count = 0;
	for (uint32_t i = 0; i < count && m->count < FETCH_GROUP; i++) {
		if (leases[i].data || leases[i].error != -ENODATA)
			continue;
		m->page[m->count] = pages[i];
		m->index[m->count++] = i;
	}
}

/* Fetches a group, leases it. Returns how many more are leased; *on: another round may help. */
static uint32_t fetch_missing(tier_reader *r, tier_context *c, struct missing *m,
			      uint64_t deadline_ns, struct tier_lease *leases, bool *on)
{
	struct tier_completion completion;
	int rc = ask_fetch_pages(c, m->page, m->count, deadline_ns, &completion);
	uint32_t leased = 0;

	for (uint32_t i = 0; i < m->count; i++)
		leased += tier_lease_page(r, c, m->page[i].block, m->page[i].page, 0,
					  &leases[m->index[i]]) == 0;
	m->error = rc ? rc : submit_explain("read", &completion);
	if (!m->error && completion.status == TIER_LATE)
		m->error = -ETIMEDOUT;
	*on = !m->error && (completion.status == TIER_READY || leased > 0);
	return leased;
}

/* Pages that the last fetch did not bring: its error says more than that they are not there. */
static void tell_why(const struct missing *m, struct tier_lease *leases)
{
	for (uint32_t i = 0; m->error && i < m->count; i++)
		if (leases[m->index[i]].error == -ENODATA)
			leases[m->index[i]].error = m->error;
}

int tier_read_pages(tier_reader *r, tier_context *c, const struct tier_page *pages,
		    uint32_t count, uint64_t deadline_ns, struct tier_lease *leases)
{
	struct missing missing = { .count = 0 };
	bool on = true;
	int leased = tier_lease_pages(r, c, pages, count, 0, leases);
	uint32_t rounds = FETCH_ROUNDS + count / FETCH_GROUP;

	if (leased < 0)
		return leased;
	for (uint32_t i = 0; i < rounds && on && (uint32_t)leased < count; i++) {
		find_missing(&missing, pages, leases, count);
		if (missing.count == 0)
			break;
		leased += (int)fetch_missing(r, c, &missing, deadline_ns, leases, &on);
		on = on && (deadline_ns == 0 || time_now_ns() < deadline_ns);
	}
	tell_why(&missing, leases);
	return leased;
}
