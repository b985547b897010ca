/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive's ways: it is drained, kept after all, and added anew at a later start, empty; or it
 * dies, but for the first, until the next crash. Blocks that were promised are owed through all of
 * it (image.c asks of a crash at any time what the drives that its catalog names would show), and
 * at rest what was to be drained is, unless it has no room to go to.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world_priv.h"
#include "tierd/core/state.h"
#include "tierd/core/unit/store_priv.h"

static uint64_t id_of(const struct world *w, uint32_t drive)
{
	return w->super.store_id + drive;
}

static struct disk_drive entry(const struct world *w, uint32_t drive)
{
	return (struct disk_drive){ id_of(w, drive),
				    w->super.segment_count *
					    (w->super.segment_bytes - w->super.summary_bytes) };
}

static void sectors_write(struct world *w, uint64_t at, const void *bytes, uint64_t n)
{
	memcpy(w->disk + at, bytes, n);
	memcpy(w->stable + at, bytes, n);
	memset(w->unstable + at / DISK_SECTOR, 0, n / DISK_SECTOR);
	memset(w->lost + at / DISK_SECTOR, 0, n / DISK_SECTOR);
}

/* The last one, empty; the catalog names it before anything is written there. */
static void add(struct world *w, const struct disk_catalog *old, const struct disk_context *list)
{
	struct disk_catalog head = *old;
	uint8_t *buf = calloc(1, w->super.catalog_bytes), *none = calloc(1, NVME_BYTES);
	int64_t bytes;

	assert(buf && none && head.drive_count + 1 < w->disks);
	sectors_write(w, (uint64_t)(head.drive_count + 1) * NVME_BYTES, none, NVME_BYTES);
	head.drive[head.drive_count] = entry(w, head.drive_count + 1);
	head.drive_count++;
	head.sequence++;
	bytes = disk_catalog_seal(buf, w->super.catalog_bytes, &head, list,
				  disk_catalog_limits(old));
	assert(bytes > 0);
	sectors_write(w, w->super.catalog_offset + (head.sequence & 1) * w->super.catalog_bytes,
		      buf, (uint64_t)bytes);
	free(buf);
	free(none);
}

bool drives_boot(struct world *w, const struct disk_catalog *head,
		 const struct disk_context *list, struct core_config *config)
{
	bool added = head && head->drive_count + 1 < w->disks && world_chance(w, 500000);
	uint32_t listed = head ? head->drive_count + added : w->disks - 1;

	memset(config, 0, sizeof(*config));
	config->drives = w->drives = 1 + listed;
	config->listed_count = listed;
	for (uint32_t i = 0; i < listed; i++) {
		config->more[i] = w->super;
		config->more[i].store_id = id_of(w, i + 1);
		config->listed[i] = head && i < head->drive_count ? head->drive[i]
								  : entry(w, i + 1);
	}
	w->result->drives_added += added;
	if (added)
		add(w, head, list);
	return added;
}

bool drives_owner(struct world *w)
{
	bool keep;

	if (w->drives < 2 || !world_chance(w, 60000))
		return false;
	keep = world_chance(w, 250000);
	core_drive_set(w->core, id_of(w, 1), keep ? CORE_DRIVE_KEEP : CORE_DRIVE_DRAIN,
		       TOKEN_OTHER);
	return true;
}

void drives_fate(struct world *w)
{
	if (w->disks > 1 && world_chance(w, 100000))
		w->dead = true;
}

/* The device is well, or dead, and time has passed. */
void drives_quiet(struct world *w)
{
	for (uint32_t i = 1; i < w->core->drives; i++) {
		const struct drive *dv = w->core->drive[i];

		if (!dv->leaving || w->dead)
			continue;
		w->result->drained += drive_drained(w->core, dv);
		if (!drive_drained(w->core, dv) && !dv->no_room)
			world_fail(w, "at rest drive %u is not drained, %llu bytes lie there", i,
				   (unsigned long long)dv->store->live);
		if (!drive_drained(w->core, dv) && !model_full(w) &&
		    store_free(core_home(w->core)->store) > 2 * STORE_RESERVE)
			world_fail(w, "drive %u has no room to go to, and there is", i);
	}
}
