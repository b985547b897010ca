/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog: what makes contexts, epochs and limits survive. Changes that come while it is being
 * written share the next write; every caller is answered after the flush that covers his.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

void catalog_write(struct core *c, uint64_t token, uint64_t value)
{
	if (!core_home(c)) {
		core_reply(c, token, 0, value);
		return;
	}
	if (c->catalog.tokens == CORE_TOKENS_MAX) {
		core_reply(c, token, -EAGAIN, 0); /* the change stands; only its answer is lost */
	} else if (token) {
		c->catalog.token[c->catalog.tokens++] = (struct token){ token, value, 0 };
	}
	c->catalog.dirty = true;
}

static void catalog_written(struct core *c, struct core_io *io)
{
	bool failed = io->res < 0 || (uint64_t)io->res != io->bytes;

	core_io_put(c, io);
	if (failed)
		core_home(c)->write_retry_ns = c->now_ns + 1000 * MS;
	if (failed || c->catalog.suspect) {
		c->catalog.running = false;
		c->catalog.suspect = false;
		c->catalog.dirty = true; /* the same slot again: the sequence was not used */
		c->catalog.sequence--;
		return;
	}
	c->catalog.sync = ++core_home(c)->write_seq;
	sync_want(core_home(c));
}

/* Up to two entries of an account; returns how many. out may be NULL. */
static uint32_t limits_of(const struct context *x, const struct holding *a, struct disk_limit *out)
{
	struct disk_limit limit = { .context_uid = x->spec.uid, .salt = a->key };
	struct disk_limit pins = { .context_uid = x->spec.uid | DISK_LIMIT_PINS, .salt = a->key };
	uint32_t n = 0;
	bool holds = false, pinned = false;

	for (uint32_t t = 0; t < ABI_TIER_COUNT; t++) {
		limit.soft[t] = a->limit[t].soft;
		limit.hard[t] = a->limit[t].hard;
		holds |= limit.soft[t] || limit.hard[t];
	}
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		pinned |= (pins.hard[t] = a->pin_limit[t]) != 0;
	if (holds && out)
		out[n] = limit;
	n += holds;
	if (pinned && out)
		out[n] = pins;
	return n + pinned;
}

/* Salts with limits of their own: into `out`, unless it is NULL. Returns how many there are. */
static uint32_t limits_list(const struct core *c, struct disk_limit *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->contexts_high; i++) {
		const struct context *x = c->context[i];

		for (uint32_t k = 0; x && !x->closing && k < x->salts.count; k++)
			n += limits_of(x, &x->salts.account[k], out ? out + n : NULL);
	}
	if (out && c->aside.limits)
		memcpy(out + n, c->aside.limit, c->aside.limits * sizeof(*out));
	return n + c->aside.limits;
}

/* Has the catalog room for so many contexts and limits more? */
bool catalog_room(const struct core *c, uint32_t contexts, uint32_t limits)
{
	uint64_t all = (uint64_t)limits_list(c, NULL) + limits;

	return !core_home(c) ||
	       disk_catalog_bytes(c->contexts + c->aside.count + contexts, all) <=
		       c->config.super.catalog_bytes;
}

static int64_t catalog_encode(struct core *c)
{
	struct disk_context *list = c->catalog.list;
	struct disk_catalog head;
	uint32_t n = 0;

	memset(&head, 0, sizeof(head));
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		struct context *x = c->context[i];

		if (!x || x->closing || n == c->catalog.max)
			continue;
		list[n++] = x->spec;
		x->listing = true;
		x->epoch_listing = x->spec.epoch;
	}
	for (uint32_t i = 0; i < c->aside.count && n < c->catalog.max; i++)
		list[n++] = c->aside.context[i];
	c->catalog.voids_listing = c->catalog.voids;
	head.store_id = c->config.super.store_id;
	head.sequence = ++c->catalog.sequence;
	head.next_uid = c->next_uid;
	head.count = n;
	head.limit_count = limits_list(c, c->catalog.limits);
	head.drive_count = c->config.listed_count;
	memcpy(head.drive, c->config.listed, sizeof(head.drive));
	return disk_catalog_seal(c->catalog.buf, c->config.super.catalog_bytes, &head, list,
				 c->catalog.limits);
}

void catalog_step(struct core *c)
{
	const struct disk_super *s = &c->config.super;
	struct core_io *io;
	int64_t bytes;

	if (!c->catalog.dirty || c->catalog.running || !c->actions.io_free ||
	    c->now_ns < core_home(c)->write_retry_ns)
		return;
	c->catalog.dirty = false;
	c->catalog.running = true;
	c->catalog.flying = c->catalog.tokens;
	bytes = catalog_encode(c);
	assert(bytes > 0); /* catalog_room was asked before each context and limit */
	io = core_io_get(c, ABI_CLASS_DEMAND, SCHED_DAEMON);
	io->write = 1;
	io->offset = s->catalog_offset + (c->catalog.sequence & 1) * s->catalog_bytes;
	io->bytes = (uint64_t)bytes;
	io->piece[0] = (struct core_io_piece){ .addr = c->catalog.buf, .bytes = (uint32_t)bytes };
	io->piece_count = 1;
	io->priv.done = catalog_written;
	c->metrics.record_bytes += (uint64_t)bytes;
	sched_io(c, io);
}

/*
 * A flush has failed: a write that waited for it may be gone. The same slot again. So may one that
 * the device has done and nobody has told us of.
 */
void catalog_again(struct core *c)
{
	c->catalog.suspect = c->catalog.running && !c->catalog.sync;
	if (!c->catalog.running || !c->catalog.sync)
		return;
	c->catalog.running = false;
	c->catalog.sync = 0;
	c->catalog.dirty = true;
	c->catalog.sequence--;
}

/* A flush has completed: does it cover the catalog's last write? */
void catalog_synced(struct core *c)
{
	if (!c->catalog.running || !c->catalog.sync || core_home(c)->sync_seq < c->catalog.sync)
		return;
	for (uint32_t i = 0; i < c->contexts_high; i++) {
		struct context *x = c->context[i];

		if (!x || !x->listing)
			continue;
		x->listed = true;
		x->epoch_listed = x->epoch_listing;
	}
	for (uint32_t i = 0; i < c->catalog.flying; i++)
		core_reply(c, c->catalog.token[i].token, 0, c->catalog.token[i].value);
	assert(c->catalog.voids_listed <= c->catalog.voids_listing &&
	       c->catalog.voids_listing <= c->catalog.voids);
	c->catalog.voids_listed = c->catalog.voids_listing;
	drain_listed(c);
	c->catalog.tokens -= c->catalog.flying;
	memmove(c->catalog.token, c->catalog.token + c->catalog.flying,
		c->catalog.tokens * sizeof(c->catalog.token[0]));
	c->catalog.flying = 0;
	c->catalog.running = false;
	c->catalog.sync = 0;
}

/*
 * May the header of a segment that was opened after so many voids be written? It ends a former life
 * for good. Where a new epoch or a removal had ended that one's blocks, a crash that loses only the
 * catalog would bring the old epoch back without what was durable in it.
 */
bool catalog_voids(const struct core *c, uint64_t voids)
{
	assert(voids <= c->catalog.voids);
	return c->catalog.voids_listed >= voids;
}
