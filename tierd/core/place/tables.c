/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: memory beside the tiers that contexts make grow (I18): the lines and page descriptors of
 * their indexes, and what the core keeps for each block. It is charged to the context and to who
 * owns it, who may have three quarters of all there is (core_config.table_bytes), so that no user's
 * geometry takes what others need.
 *
 *   a slot was used     it counts for all that tables may keep for a block, whatever they do now:
 *                       so nothing that comes later (a pin, a hold, a sibling, a fetch) can grow
 *                       them beyond
 *   a lane was named    the same for an instance of the policy in each tier, with so many slots
 *   a put is begun      its new blocks count for the groups of descriptors that they may touch and
 *                       that have no memory yet (descs.h); no room for these, for the slot or for
 *                       its lane, no block
 *   its pages come      the groups that they touch count, and stay with the slot
 *   committed, dropped  what was only announced does not count any more
 *   short of room       free slots' groups are given up; the shell takes their memory
 *   devices have it     an index that is registered has all its memory, and counts so (lend.c)
 *
 * Only a start passes the limits: what was there comes back. The audit holds the sums against them,
 * and what was touched against the sums.
 *
 * Addresses are counted as well: an index spans what its blocks may come to, most of it untouched,
 * and the daemon, like each client, has 128 TiB of them.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tierd/core/state.h"

/* Of a slot: its line and its share of full buckets, and as many lines again that overflow. */
#define INDEX_SLOT_BYTES                                                                          \
	(sizeof(struct abi_block) + 2 * (sizeof(struct abi_bucket) / ABI_BUCKET_SLOTS + 1))
/* ... and what is the daemon's own, but for versions and groups of descriptors: */
#define OWN_SLOT_BYTES                                                                            \
	(sizeof(struct block_meta) + sizeof(struct block_use) + sizeof(struct sibling) +          \
	 sizeof(struct tenant) + 2 * sizeof(uint32_t))
#define IDLE_LOOKS 256u /* slots */
#define LENT_NS (200 * MS) /* so long is waited for an index that devices have */

int tables_open(struct core *c)
{
	c->tables.user = calloc(ABI_CONTEXTS_MAX, sizeof(*c->tables.user));
	return c->tables.user ? 0 : -ENOMEM;
}

void tables_close(struct core *c)
{
	free(c->tables.user);
}

/* Of what all have, so much one user may have; of a context's slots, one salt. */
static uint64_t user_most(uint64_t all)
{
	return all / 4 * 3;
}

/* ---- users -------------------------------------------------------------------------------- */

static struct tables_user *user_find(const struct core *c, uint32_t uid)
{
	for (uint32_t i = 0; i < c->tables.users_high; i++)
		if (c->tables.user[i].contexts && c->tables.user[i].uid == uid)
			return &c->tables.user[i];
	return NULL;
}

static struct tables_user *user_take(struct core *c, uint32_t uid)
{
	struct tables_user *u = user_find(c, uid);

	for (uint32_t i = 0; !u; i++) {
		assert(i < ABI_CONTEXTS_MAX); /* each has a context */
		if (c->tables.user[i].contexts)
			continue;
		u = &c->tables.user[i];
		*u = (struct tables_user){ .uid = uid };
		if (c->tables.users_high <= i)
			c->tables.users_high = i + 1;
	}
	return u;
}

/* ---- addresses ---------------------------------------------------------------------------- */

static uint64_t addresses_of(const struct core_context_plan *plan)
{
	uint64_t bytes = plan->index_bytes;

	for (uint32_t tier = 0; tier < ABI_MEM_TIERS; tier++)
		bytes += plan->mem_bytes[tier];
	return bytes;
}

static int may_map(const struct core *c, const struct disk_context *spec,
		   const struct core_context_plan *plan, char *why, size_t why_bytes)
{
	const struct tables_user *u = user_find(c, spec->owner_uid);
	uint64_t more = addresses_of(plan), most = CORE_ADDRESSES_MAX, used = c->tables.addresses;
	bool host = more > most || used > most - more;

	if (!host) {
		most = spec->owner_uid ? user_most(most) : most;
		used = u ? u->addresses : 0;
		if (more <= most && used <= most - more)
			return 0;
	}
	snprintf(why, why_bytes,
		 "its maps span %" PRIu64 " MiB (%" PRIu64 " blocks of %u page descriptors), and "
		 "%" PRIu64 " of %" PRIu64 " MiB for %s are taken; lower blocks_max or its quotas",
		 more >> 20, plan->blocks_max, spec->geometry.pages_per_block, used >> 20,
		 most >> 20, host ? "all" : "its owner");
	return host ? -ENOSPC : -EDQUOT;
}

/* Each takes mappings of the daemon's, and who connects needs some, too. */
static int may_have(const struct core *c, const struct disk_context *spec, char *why,
		    size_t why_bytes)
{
	const struct tables_user *u = user_find(c, spec->owner_uid);
	uint32_t most = c->config.contexts_most;

	if (!most || c->contexts < most * 3 / 4)
		return 0;
	if (c->contexts >= most) {
		snprintf(why, why_bytes, "there are %u contexts, as many as the host has mappings "
			 "for (vm.max_map_count); remove some, or raise it", c->contexts);
		return -ENOSPC;
	}
	if (spec->uid || !spec->owner_uid || !u || u->contexts < most * 3 / 4)
		return 0;
	snprintf(why, why_bytes, "user %u owns %u contexts, three quarters of what the host has "
		 "mappings for (vm.max_map_count); remove some, or raise it",
		 spec->owner_uid, u->contexts);
	return -EDQUOT;
}

/* Is there room for a context of this plan? -EDQUOT its owner's is taken, -ENOSPC all is. */
int tables_may_make(const struct core *c, const struct disk_context *spec,
		    const struct core_context_plan *plan, char *why, size_t why_bytes)
{
	const struct tables_user *u = user_find(c, spec->owner_uid);
	uint64_t memory = c->config.table_bytes;
	int err = may_map(c, spec, plan, why, why_bytes);

	if (!err)
		err = may_have(c, spec, why, why_bytes);
	if (err || spec->uid) /* one that was made before is to come back */
		return err;
	if (c->drives && u && spec->owner_uid && u->contexts >= c->catalog.max * 3 / 4) {
		snprintf(why, why_bytes, "user %u owns %u contexts, three quarters of what the "
			 "store's catalog holds; remove some, or format a larger store",
			 spec->owner_uid, u->contexts);
		return -EDQUOT;
	}
	if (!memory)
		return 0;
	if (c->tables.bytes + plan->empty_bytes > memory) {
		snprintf(why, why_bytes, "%" PRIu64 " of %" PRIu64 " MiB for tables of contexts "
			 "(index.size) are taken; remove some, or raise it",
			 c->tables.bytes >> 20, memory >> 20);
		return -ENOSPC;
	}
	if ((u ? u->bytes : 0) + plan->empty_bytes > user_most(memory)) {
		snprintf(why, why_bytes, "user %u has %" PRIu64 " of %" PRIu64 " MiB that a user's "
			 "contexts may take for tables (three quarters of index.size); remove some",
			 spec->owner_uid, u ? u->bytes >> 20 : 0, user_most(memory) >> 20);
		return -EDQUOT;
	}
	return 0;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Shared and private memory for the context's blocks and pages that was touched so far, at most. */
uint64_t tables_of(const struct context *x)
{
	uint64_t slots = x->ix.slots_used;

	if (!x->ix.header)
		return 0; /* it is being made */
	return (x->index_lent ? x->plan.index_bytes
			      : index_bytes_used(&x->ix) + descs_bytes(&x->descs)) +
	       descs_own_bytes(&x->descs, slots) + slots * sizeof(struct block_meta) +
	       block_uses_bytes(&x->uses) + siblings_bytes(&x->siblings) +
	       tenants_bytes(&x->tenants) +
	       (x->lapse_high + (uint64_t)x->streamed_high) * sizeof(uint32_t) +
	       lanes_bytes(&x->lanes, slots) +
	       (x->former ? lanes_bytes(x->former, slots) : 0) + x->spec.geometry.pages_per_block;
}

/* The same that it may come to, with so many slots and the lanes that it has. */
static uint64_t most_of(const struct context *x, uint64_t slots)
{
	uint64_t shared = slots * INDEX_SLOT_BYTES + descs_bytes(&x->descs);

	return x->plan.empty_bytes + (x->index_lent ? x->plan.index_bytes : shared) +
	       descs_own_bytes(&x->descs, slots) + slots * OWN_SLOT_BYTES +
	       lanes_most(&x->lanes, slots) + (x->former ? lanes_most(x->former, slots) : 0) +
	       x->begun * DESCS_GROUP_BYTES;
}

uint64_t tables_most(const struct context *x)
{
	return x->ix.header ? most_of(x, x->ix.slots_used) : 0;
}

void tables_join(struct core *c, struct context *x)
{
	struct tables_user *u = user_take(c, x->spec.owner_uid);

	u->contexts++;
	x->user = (uint32_t)(u - c->tables.user);
	x->table_bytes = 0;
	u->addresses += addresses_of(&x->plan);
	c->tables.addresses += addresses_of(&x->plan);
}

void tables_leave(struct core *c, struct context *x)
{
	struct tables_user *u = &c->tables.user[x->user];

	assert(u->contexts && u->bytes >= x->table_bytes);
	u->bytes -= x->table_bytes;
	u->addresses -= addresses_of(&x->plan);
	c->tables.bytes -= x->table_bytes;
	c->tables.addresses -= addresses_of(&x->plan);
	u->contexts--;
}

static void charge(struct core *c, struct context *x, uint64_t more)
{
	c->tables.user[x->user].bytes += more; /* modulo 2^64 */
	c->tables.bytes += more;
	x->table_bytes += more;
	assert(x->table_bytes <= c->tables.user[x->user].bytes);
	assert(c->tables.user[x->user].bytes <= c->tables.bytes);
}

/* The sums follow what it may come to. */
void tables_count(struct core *c, struct context *x)
{
	charge(c, x, most_of(x, x->ix.slots_used) - x->table_bytes);
}

/* What a start brought back of it is there, within the limits or not. */
void tables_come_back(struct core *c, struct context *x)
{
	struct tables_user *u = &c->tables.user[x->user];

	tables_count(c, x);
	u->brought = u->bytes;
	c->tables.brought = c->tables.bytes;
}

/* Bytes by which tables of the context's owner may grow, and whose limit that is. */
static uint64_t room_of(const struct core *c, const struct context *x, uint32_t *limit)
{
	uint64_t all = c->config.table_bytes, host, user;

	*limit = ABI_LIMIT_HOST;
	if (!all)
		return UINT64_MAX;
	host = all > c->tables.bytes ? all - c->tables.bytes : 0;
	user = user_most(all);
	user = user > c->tables.user[x->user].bytes ? user - c->tables.user[x->user].bytes : 0;
	if (user < host)
		*limit = ABI_LIMIT_USER;
	return user < host ? user : host;
}

/* The same, of what is there now. */
uint64_t tables_room(struct core *c, struct context *x, uint32_t *limit)
{
	tables_count(c, x);
	return room_of(c, x, limit);
}

/* Its index gets all of its memory. False: there is no room for that, or it may cost nothing. */
bool tables_lend(struct core *c, struct context *x, bool costs)
{
	uint32_t limit;
	uint64_t room = tables_room(c, x, &limit), before = x->table_bytes;

	x->index_lent++;
	tables_count(c, x);
	if (x->table_bytes <= before || (costs && x->table_bytes - before <= room))
		return true;
	x->index_lent--;
	tables_count(c, x);
	return false;
}

/*
 * The context is to have that policy's lanes, too, until its blocks have gone over: is there room?
 * Errors: -ENOSPC, -EDQUOT.
 */
int tables_may_swap(struct core *c, struct context *x, const struct lanes *next)
{
	uint32_t limit;
	uint64_t room = tables_room(c, x, &limit);

	if (lanes_most(next, x->ix.slots_used) <= room)
		return 0;
	return limit == ABI_LIMIT_USER ? -EDQUOT : -ENOSPC;
}

/* For the answer: tables are what there is no room in. */
uint64_t tables_held(uint32_t limit)
{
	return (uint64_t)limit << 8 * ABI_HELD_LIMIT |
	       (uint64_t)(1 + ABI_HELD_TABLES) << 8 * ABI_HELD_TIER;
}

/*
 * Groups of descriptors of the slot that these parts have and that have no memory yet. Apart:
 * mostly descs_backed knows that there are none.
 */
static __attribute__((noinline)) uint32_t fresh(const struct context *x, uint32_t slot,
						uint64_t parts)
{
	const struct abi_geometry *g = &x->spec.geometry;
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->part_count; i++)
		if (parts >> i & 1)
			n += descs_fresh(&x->descs, slot, g->part[i].page_base,
					 g->part[i].layers * g->part[i].groups);
	return n;
}

/*
 * May the salt make the table grow? While others have blocks there it has three quarters of the
 * slots that there can be; from then on what it puts takes slots that are free.
 */
static bool salt_may(const struct context *x, uint64_t salt, uint64_t left)
{
	uint32_t account = ledger_find(&x->salts, salt);
	uint64_t slots = x->ix.slots_used, own;

	assert(slots < x->ix.blocks_max);
	if (!salt)
		return true;
	if (account == LEDGER_NONE && !x->salts.free)
		account = LEDGER_OTHER;
	own = account == LEDGER_NONE ? 0 : x->salts.account[account].uses;
	slots += left < x->ix.blocks_max - slots ? left : x->ix.blocks_max - slots;
	return own >= x->slots_live || own < user_most(slots);
}

/*
 * A slot is about to be taken, for a block of that salt. Returns 0, or whose limit it is that lets
 * no table grow for a new one (ABI_LIMIT_*).
 */
uint32_t tables_slot(struct core *c, struct context *x, uint64_t salt)
{
	uint64_t slots = x->ix.slots_used, more, room;
	uint32_t limit;

	if (x->ix.slots_free || slots == x->ix.blocks_max)
		return ABI_LIMIT_NONE;
	more = most_of(x, slots + 1) - most_of(x, slots);
	room = room_of(c, x, &limit);
	if (more > room)
		return limit;
	if (!salt_may(x, salt, room / more))
		return ABI_LIMIT_SALT;
	charge(c, x, more);
	return ABI_LIMIT_NONE;
}

/* Some block is in that lane: it is charged with the next count, in whichever lanes it is. */
void tables_lane(struct context *x, uint32_t lane)
{
	x->lanes.named |= (uint8_t)(1u << lane);
	if (x->former)
		x->former->named |= (uint8_t)(1u << lane);
}

/* A block comes into that lane. False: there is no room for its instances. */
static bool lane_comes(struct core *c, struct context *x, uint32_t lane, uint32_t *limit)
{
	uint8_t named = x->lanes.named, former = x->former ? x->former->named : 0;
	uint64_t room, more;

	if (named >> lane & 1)
		return true;
	room = tables_room(c, x, limit);
	tables_lane(x, lane);
	more = most_of(x, x->ix.slots_used) - x->table_bytes;
	if (more <= room) {
		charge(c, x, more);
		return true;
	}
	x->lanes.named = named;
	if (x->former)
		x->former->named = former;
	return false;
}

/*
 * A new block with these parts, in a slot that was just taken; its lane is known. What it may come
 * to is announced. Returns 0, or whose limit it is that has no room for it: nothing was done.
 */
uint32_t tables_begin(struct core *c, struct context *x, uint32_t slot, uint64_t parts)
{
	uint32_t groups = descs_backed(&x->descs, slot) ? 0 : fresh(x, slot, parts), limit;
	uint64_t bytes = (uint64_t)groups * DESCS_GROUP_BYTES;

	if (!lane_comes(c, x, block_lane(x, slot), &limit) || bytes > room_of(c, x, &limit))
		return limit;
	if (groups)
		block_use_make(x, slot)->begun = groups;
	x->begun += groups;
	charge(c, x, bytes);
	return ABI_LIMIT_NONE;
}

/* A group of it has memory now: what was announced is there. (What a start brings back was not.) */
void tables_touched(struct context *x, uint32_t slot)
{
	if (!block_use(x, slot)->begun)
		return;
	assert(x->begun);
	block_use_make(x, slot)->begun--;
	x->begun--;
}

/* It is pending no more, and has block_use.begun: what it took counts by itself. */
void tables_settled(struct context *x, uint32_t slot)
{
	struct block_use *use = block_use_make(x, slot);

	assert(use->begun && x->begun >= use->begun);
	x->begun -= use->begun;
	use->begun = 0;
}

/* ---- giving up ---------------------------------------------------------------------------- */

static bool is_idle(const struct context *x, uint32_t slot)
{
	return index_block(&x->ix, slot)->state == ABI_BLOCK_FREE &&
	       !(x->meta[slot].flags & BLOCK_DROPPED);
}

/* Ask for it, if there can be anything: whoever waits for room is woken then. */
bool tables_want(struct context *x)
{
	x->descs_short = x->ix.slots_free && x->descs.per_slot >= 2 * DESCS_GROUP;
	return x->descs_short;
}

bool core_index_idle(struct core *c, uint32_t id, struct core_range *range)
{
	struct context *x = core_context(c, id);

	*range = (struct core_range){ .context_id = id, .tier = CORE_RANGE_INDEX };
	if (x && x->descs_short && x->index_lent) {
		if (c->now_ns < x->index_wanted_ns + LENT_NS)
			return false;
		x->descs_short = false; /* those who wait are refused */
		request_wake_space(c);
	}
	for (uint32_t n = 0; x && x->descs_short && n < IDLE_LOOKS; n++) {
		uint32_t slot = x->descs.idle_next++;
		uint64_t group, count;

		if (slot >= x->ix.slots_used) {
			x->descs.idle_next = 0;
			x->descs_short = false;
			request_wake_space(c);
			return false;
		}
		if (!is_idle(x, slot) || !descs_inside(&x->descs, slot, &group, &count))
			continue;
		range->offset = x->ix.header->desc_offset + group * DESCS_GROUP_BYTES;
		range->bytes = count * DESCS_GROUP_BYTES;
		break;
	}
	return x && x->descs_short;
}

void core_index_given(struct core *c, const struct core_range *range)
{
	struct context *x = core_context(c, range->context_id);
	uint64_t group;

	if (!x)
		return;
	group = (range->offset - x->ix.header->desc_offset) / DESCS_GROUP_BYTES;
	descs_forget(&x->descs, group, range->bytes / DESCS_GROUP_BYTES);
	request_wake_space(c);
}
