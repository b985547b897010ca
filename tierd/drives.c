/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The further drives of a store, at start-up: which of the paths have them, which are to be made,
 * and which that the catalog names are not there. One that is missing costs its own blocks, until
 * it is there at a later start: so nothing is made anew in its place.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "tierd/recover.h"

uint64_t drives_capacity(const struct disk_super *super)
{
	return super->segment_count * (super->segment_bytes - super->summary_bytes);
}

/* Its number among those that the catalog names; -ENOENT = it is none of them. */
static int listed_at(const struct shell *s, uint64_t store_id)
{
	const struct core_config *c = &s->core_config;

	for (uint32_t i = 0; i < c->listed_count; i++)
		if (c->listed[i].store_id == store_id)
			return (int)i;
	return -ENOENT;
}

/* Is there anything at the path that may be a store? A device always is. */
static bool is_there(const char *path, bool *device)
{
	struct stat st;

	*device = stat(path, &st) == 0 && S_ISBLK(st.st_mode);
	return *device || (stat(path, &st) == 0 && st.st_size > 0);
}

static int refuse(struct shell *s, struct shell_drive *d, const char *what, const char *advice)
{
	return recover_explain(s, d, -EINVAL, what, advice);
}

/* Nobody's: where a super block and its copy would be there are zeros. */
static bool is_blank(struct shell *s, const char *path)
{
	struct drive_options options = { .path = path, .buffered = s->config.nvme_buffered };
	uint8_t *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, 2ul * DISK_SECTOR);
	struct drive *device = NULL;
	bool blank = buf && s->drive_ops->open(&device, &options) == 0 &&
		     s->drive_ops->pread(device, buf, 2ul * DISK_SECTOR, 0) == 0;

	for (uint32_t i = 0; blank && i < 2 * DISK_SECTOR; i++)
		blank = buf[i] == 0;
	if (device)
		s->drive_ops->close(device);
	return blank;
}

int drives_home_missing(struct shell *s)
{
	struct disk_super super;

	for (uint32_t i = 1; i < CORE_DRIVES_MAX && s->drive[i].path; i++) {
		struct shell_drive d = { .path = s->drive[i].path };
		struct drive_options options = { .path = d.path,
						 .buffered = s->config.nvme_buffered };
		bool device, member;

		if (!is_there(d.path, &device) || (device && is_blank(s, d.path)) ||
		    s->drive_ops->open(&d.device, &options))
			continue;
		member = !recover_super(s, &d, &super) && super.home;
		s->drive_ops->close(d.device);
		if (!member)
			continue;
		log_error(&s->log, "the store's first drive, which has its catalog, is not there",
			  s->drive[0].path,
			  "bring it back: its store_id is told; without it nothing of the others "
			  "can be read, and --format begins anew on all",
			  "store_id=0x%016" PRIx64 " further=%s", super.home, d.path);
		return -ENOENT;
	}
	return 0;
}

/* Open what is there. 0: it is one of ours; -ECHILD: it was, and is passed over. */
static int open_old(struct shell *s, struct shell_drive *d)
{
	struct drive_options options = { .path = d->path, .buffered = s->config.nvme_buffered };
	uint64_t home = s->core_config.super.store_id;
	int rc = s->drive_ops->open(&d->device, &options);

	if (rc == 0)
		rc = recover_super(s, d, &d->super);
	if (rc)
		return rc; /* explained */
	rc = recover_flush(s, d); /* one that cannot is as good as not there */
	if (rc)
		return rc;
	if (d->super.home != home)
		return refuse(s, d, d->super.home ? "this drive is of another store" :
						    "this is a store by itself",
			      "give another path, or remove it if nothing of it is needed");
	if (listed_at(s, d->super.store_id) >= 0)
		return 0;
	log_warn(&s->log, "a drive that was taken out of the store is not used", d->path,
		 "take it out of store.path; to add it anew remove the file, or overwrite its "
		 "first 8 KiB", "");
	return -ECHILD;
}

/* Before the catalog names another drive, older daemons must refuse the store. */
static int mark_home(struct shell *s)
{
	struct disk_super *super = &s->core_config.super;
	uint8_t *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, DISK_SECTOR);
	int rc = buf ? 0 : -ENOMEM;

	if (rc || super->features & DISK_FEATURE_HOME)
		return rc;
	super->features |= DISK_FEATURE_HOME;
	disk_super_again(super);
	memcpy(buf, super, sizeof(*super));
	for (uint64_t at = 0; at <= DISK_SECTOR && rc == 0; at += DISK_SECTOR)
		rc = s->drive_ops->pwrite(s->drive[0].device, buf, DISK_SECTOR, at);
	if (rc == 0)
		rc = s->drive_ops->flush(s->drive[0].device);
	s->drive[0].super = *super;
	return rc;
}

/* It counts once a durable catalog names it. */
static int list(struct shell *s, const struct shell_drive *d)
{
	struct core_config *c = &s->core_config;
	struct disk_catalog *head = &s->catalog.head;
	struct disk_drive *one = &c->listed[c->listed_count];
	int rc = mark_home(s);

	*one = (struct disk_drive){ d->super.store_id, drives_capacity(&d->super) };
	head->drive[head->drive_count++] = *one;
	head->sequence++;
	if (rc == 0)
		rc = recover_catalog_again(s, head);
	if (rc)
		return recover_explain(s, d, rc, "the drive cannot be added to the store",
				       "look at the first drive");
	c->listed_count++;
	c->catalog_sequence = head->sequence;
	return 0;
}

static int make(struct shell *s, struct shell_drive *d, bool device)
{
	struct drive_options options = { .path = d->path, .buffered = s->config.nvme_buffered };
	struct backend_info info;
	int rc = s->drive_ops->probe(&options, &info);

	if (rc)
		return recover_explain(s, d, rc, "the drive cannot be used",
				       "name a file in a folder that may be written, or a block "
				       "device");
	d->home = s->core_config.super.store_id;
	rc = format_store(s, d, units_resolve(&s->config.nvme_size, info.capacity_auto,
					      info.capacity_auto), device, &d->super);
	if (rc == 0)
		rc = list(s, d);
	if (rc == 0)
		log_info(&s->log, "a drive was added to the store", d->path, "bytes=%" PRIu64,
			 drives_capacity(&d->super));
	return rc;
}

static void leave(struct shell *s, struct shell_drive *d)
{
	if (d->device)
		s->drive_ops->close(d->device);
	d->device = NULL;
}

/* Those that are there, in the order of the paths; `d` moves behind them. */
static int take_old(struct shell *s, const char **path, uint32_t count, uint32_t *left)
{
	*left = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct shell_drive *d = &s->drive[s->drives];
		bool device, old = is_there(path[i], &device) && !s->options.format;
		int rc;

		*d = (struct shell_drive){ .path = path[i] };
		rc = old ? open_old(s, d) : -ENOENT;
		if (rc == 0) {
			s->drives++;
			continue;
		}
		leave(s, d);
		if (rc == -EINVAL || rc == -EBUSY)
			return rc;
		if (rc != -ECHILD)
			path[(*left)++] = path[i];
	}
	return 0;
}

/* What is told at each start until they are there again. */
static void tell_missing(struct shell *s, const char **path, uint32_t count)
{
	struct core_config *c = &s->core_config;

	for (uint32_t i = 0, k = 0; i < c->listed_count; i++) {
		bool there = false;

		for (uint32_t n = 1; n < s->drives; n++)
			there |= s->drive[n].super.store_id == c->listed[i].store_id;
		if (there)
			continue;
		log_error(&s->log, "a drive of the store is missing; its blocks are misses",
			  k < count ? path[k] : "",
			  "bring it back and start again; if it is gone for good, tierctl drive "
			  "forget",
			  "store_id=0x%016" PRIx64 " bytes=%" PRIu64, c->listed[i].store_id,
			  c->listed[i].capacity & ~DISK_DRIVE_LEAVES);
		k++;
	}
}

int drives_begin(struct shell *s)
{
	struct core_config *c = &s->core_config;
	const char *path[CORE_DRIVES_MAX];
	uint32_t count = 0, left;
	int rc;

	for (uint32_t i = 1; i < CORE_DRIVES_MAX && s->drive[i].path; i++)
		path[count++] = s->drive[i].path;
	c->listed_count = s->catalog.head.drive_count;
	memcpy(c->listed, s->catalog.head.drive, sizeof(c->listed));
	rc = take_old(s, path, count, &left);
	if (rc == 0 && s->drives - 1 < c->listed_count)
		tell_missing(s, path, left);
	for (uint32_t i = 0; i < left && rc == 0 && s->drives - 1 == c->listed_count; i++) {
		struct shell_drive *d = &s->drive[s->drives];
		bool device, there = is_there(path[i], &device);

		*d = (struct shell_drive){ .path = path[i] };
		if (there && !s->options.format && !(device && is_blank(s, path[i])))
			return refuse(s, d, "this is not a drive of the store",
				      "give another path, or a device whose first 8 KiB are zeros");
		rc = make(s, d, device);
		if (rc == 0)
			s->drives++;
		else
			leave(s, d);
	}
	for (uint32_t i = 1; i < s->drives; i++)
		c->more[i - 1] = s->drive[i].super;
	for (uint32_t i = 0; i < s->drives; i++)
		s->obs.drive[i] = s->drive[i].path;
	s->obs.drives = s->drives;
	for (uint32_t i = 0; i < c->listed_count; i++)
		c->capacity[ABI_TIER_NVME] += c->listed[i].capacity & ~DISK_DRIVE_LEAVES;
	c->drives = s->drives;
	return rc;
}

void drives_end(struct shell *s)
{
	for (uint32_t i = 1; i < CORE_DRIVES_MAX; i++)
		leave(s, &s->drive[i]);
	s->drives = 0;
}
