/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Soft retention: what tenants say of their own blocks. A TTL runs by the monotonic clock; across a
 * restart by the store's clock, which is the wall clock but never falls back: neither behind what
 * it was while the daemon ran nor behind the newest record. So a clock that was set back makes no
 * TTL longer than the put asked for (the time that the daemon was down may then not count), and one
 * that was set forward lets blocks lapse early, which costs them their place in the order, no more.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tierd/core/state.h"

void retain_clock(struct core *c, uint64_t wall_ms)
{
	uint64_t now_ms = c->now_ns / MS;

	if (wall_ms < DISK_WRITTEN_MS_MAX && wall_ms > now_ms + c->retain.ahead_ms)
		c->retain.ahead_ms = wall_ms - now_ms;
}

uint64_t retain_now_ms(const struct core *c)
{
	return c->now_ns / MS + c->retain.ahead_ms;
}

/* ---- what puts say ------------------------------------------------------------------------ */

static void keep(struct context *x, uint32_t slot, uint32_t priority)
{
	struct block_meta *m = &x->meta[slot];

	x->kept_blocks -= m->keep != 0;
	m->keep = priority & KEEP_PRIORITY;
	x->kept_blocks += m->keep != 0;
}

static void lapse(struct context *x, uint32_t slot, uint32_t at_ms)
{
	struct block_meta *m = &x->meta[slot];

	x->kept_blocks += m->keep == 0;
	m->keep |= KEEP_TTL;
	x->lapse_ms[slot] = at_ms;
	x->lapse_high = x->lapse_high > slot ? x->lapse_high : slot + 1;
}

void retain_say(struct core *c, struct context *x, uint32_t slot, uint32_t priority,
		uint32_t ttl_ms)
{
	keep(x, slot, priority);
	if (ttl_ms)
		lapse(x, slot, (uint32_t)(c->now_ns / MS) + ttl_ms);
}

/* ---- what records say --------------------------------------------------------------------- */

uint32_t retain_word(const struct core *c, const struct context *x, uint32_t slot)
{
	const struct block_meta *m = &x->meta[slot];
	int32_t left = (int32_t)(x->lapse_ms[slot] - (uint32_t)(c->now_ns / MS));
	uint32_t units;

	if (!(m->keep & KEEP_TTL))
		return m->keep & KEEP_PRIORITY;
	units = left > 0 ? ((uint32_t)left + DISK_KEEP_UNIT_MS - 1) / DISK_KEEP_UNIT_MS : 0;
	return disk_keep(m->keep & KEEP_PRIORITY, true, units);
}

int retain_recovered(struct core *c, struct context *x, uint32_t slot, uint32_t word,
		     uint64_t written_ms)
{
	uint64_t **at = &c->retain.lapse_ms[x->index];

	if (written_ms > c->retain.newest_ms)
		c->retain.newest_ms = written_ms;
	keep(x, slot, disk_keep_priority(word));
	if (!disk_keep_lapses(word))
		return 0;
	if (!*at)
		*at = calloc(x->plan.blocks_max, sizeof(**at));
	if (!*at)
		return -ENOMEM;
	lapse(x, slot, 0);
	(*at)[slot] = written_ms + (uint64_t)disk_keep_units(word) * DISK_KEEP_UNIT_MS;
	return 0;
}

static void resume(struct core *c, struct context *x, const uint64_t *lapse_ms)
{
	uint64_t now_ms = retain_now_ms(c);

	for (uint32_t slot = 0; slot < x->lapse_high; slot++) {
		uint64_t left = lapse_ms[slot] > now_ms ? lapse_ms[slot] - now_ms : 0;

		assert(left <= ABI_TTL_MS_MAX); /* no record is newer than now */
		if (x->meta[slot].keep & KEEP_TTL)
			x->lapse_ms[slot] = (uint32_t)(c->now_ns / MS) + (uint32_t)left;
	}
}

void retain_recovery_end(struct core *c)
{
	retain_clock(c, c->retain.newest_ms);
	for (uint32_t i = 0; i < c->contexts_high; i++)
		if (c->context[i] && c->retain.lapse_ms[i])
			resume(c, c->context[i], c->retain.lapse_ms[i]);
	retain_close(c);
}

void retain_close(struct core *c)
{
	for (uint32_t i = 0; i < ABI_CONTEXTS_MAX; i++) {
		free(c->retain.lapse_ms[i]);
		c->retain.lapse_ms[i] = NULL;
	}
}
