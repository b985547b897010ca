/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A further drive is drained: it takes no more runs, the cleaner empties its segments into the
 * others, and then the catalog no longer names it. The catalog says, too, that it leaves, so a
 * start goes on where the last one ended. Until it is drained each block lies where it lay, or
 * safely elsewhere: the drive may be kept after all, at any time.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tierd/core/state.h"

#define LOOK_NS (10 * MS) /* after what could not be moved, or where nothing can take it */

static struct drive *drive_of(const struct core *c, uint64_t store_id)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (c->drive[i]->super.store_id == store_id)
			return c->drive[i];
	return NULL;
}

static struct disk_drive *entry_of(struct core *c, uint64_t store_id)
{
	for (uint32_t i = 0; i < c->config.listed_count; i++)
		if (c->config.listed[i].store_id == store_id)
			return &c->config.listed[i];
	return NULL;
}

/* What lies on each is known: those that were to leave go on. */
void drain_recovered(struct core *c)
{
	for (uint32_t i = 0; i < c->drives; i++) {
		const struct disk_drive *d = entry_of(c, c->drive[i]->super.store_id);

		c->drive[i]->leaving = d && d->capacity & DISK_DRIVE_LEAVES;
	}
}

/*
 * The next catalog does not name it. Until that is durable it is what it was: a crash brings its
 * records back, and then tombstones void them.
 */
static void unlist(struct core *c, struct disk_drive *d)
{
	uint64_t capacity = d->capacity & ~DISK_DRIVE_LEAVES;
	uint32_t i = (uint32_t)(d - c->config.listed), left = c->config.listed_count - i - 1;

	assert(i < c->config.listed_count && capacity <= c->config.capacity[ABI_TIER_NVME]);
	c->config.capacity[ABI_TIER_NVME] -= capacity;
	memmove(d, d + 1, left * sizeof(*d));
	c->config.listed[--c->config.listed_count] = (struct disk_drive){ 0 };
	c->catalog.voids++;
}

bool drive_drained(const struct core *c, const struct drive *dv)
{
	return dv->unlisted && catalog_voids(c, dv->unlisted);
}

/* A durable catalog says what was last changed, of whatever it names. */
void drain_listed(struct core *c)
{
	for (uint32_t i = 0; i < c->drives; i++)
		if (drive_drained(c, c->drive[i]))
			store_left(c->drive[i]->store);
	if (catalog_voids(c, c->catalog.voids))
		store_missing(core_home(c)->store, drives_missing(c));
}

int core_drive_set(struct core *c, uint64_t store_id, enum core_drive_deed deed, uint64_t token)
{
	struct drive *dv = drive_of(c, store_id);
	struct disk_drive *d = entry_of(c, store_id);

	if (dv && dv == core_home(c))
		return -EINVAL;
	if (!d || (!dv && deed == CORE_DRIVE_KEEP))
		return -ENOENT;
	if (!dv && deed != CORE_DRIVE_FORGET)
		return -ENODEV;
	if (dv) {
		dv->leaving = deed != CORE_DRIVE_KEEP;
		dv->lost = deed == CORE_DRIVE_FORGET;
		d->capacity &= ~DISK_DRIVE_LEAVES;
		d->capacity |= dv->leaving ? DISK_DRIVE_LEAVES : 0;
	} else {
		unlist(c, d);
	}
	catalog_write(c, token, 0);
	return 0;
}

/* Nothing may be under way there when the cleaner begins, nor wait for its flush. */
static bool is_still(struct drive *dv)
{
	if (drive_busy(dv))
		return false;
	if (dv->unflushed_head != dv->unflushed_tail)
		sync_want(dv);
	return dv->unflushed_head == dv->unflushed_tail && !discard_busy(dv);
}

/* Cached blocks move as long as no others go for them. */
static bool has_plenty(const struct drive *to)
{
	return store_free(to->store) > 2 * STORE_RESERVE;
}

void drain_move(struct core *c, struct drive *dv)
{
	struct cleaner *k = &dv->cleaner;
	struct drive *to;
	int64_t segment;

	if (dv->unlisted || c->now_ns < k->retry_ns || !is_still(dv))
		return;
	store_seal(dv->store);
	k->retry_ns = c->now_ns + LOOK_NS; /* if nothing begins now */
	segment = store_next_live(dv->store, k->segment);
	to = drives_target(c, dv);
	if (segment >= 0 && to) {
		k->retry_ns = 0;
		clean_from(dv, to, (uint32_t)segment, has_plenty(to));
	} else if (segment < 0 && store_is_empty(dv->store)) {
		unlist(c, entry_of(c, dv->super.store_id));
		dv->unlisted = c->catalog.voids;
		catalog_write(c, 0, 0);
	}
}

/*
 * It could not be read, some times in a row: then what memory has not is given up, if it may be; a
 * share of it, and the rest when it could not be read again.
 */
void drain_gave_up(struct core *c, struct drive *dv, uint32_t segment)
{
	struct block_list *list = &dv->segment_blocks[segment];
	uint32_t left = dv->leaving && dv->lost ? list->count : 0;

	for (; left && !meter_spent(&c->meter); left--) {
		struct context *x = c->context[list->head_ctx];
		uint32_t slot = list->head;

		meter_charge(&c->meter, 1);
		if (x->meta[slot].there[ABI_TIER_CXL].pages != block_pages(x, slot))
			block_drop(c, x, slot);
		else
			block_list_turn(c, list);
	}
}
