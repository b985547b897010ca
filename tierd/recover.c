/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a store back; see recover.h. The super block has a copy, the catalog two slots written in
 * turn (abi/disk.h D6): one of each may be damaged.
 */
#include "tierd/recover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libtier/abi/geometry_check.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/summaries.h"

int recover_explain(struct shell *s, const struct shell_drive *d, int rc, const char *what,
		    const char *advice)
{
	log_error(&s->log, what, d->path, advice, "error=\"%s\" errno=%d",
		  strerror(-rc), -rc);
	return rc;
}

/* ---- super block --------------------------------------------------------------------------- */

/* Sector 0, or the one after it that has the copy. */
static int read_sector(struct shell *s, struct shell_drive *d, uint8_t *buf, uint64_t at,
		       struct disk_super *super)
{
	int rc = s->drive_ops->pread(d->device, buf, DISK_SECTOR, at);

	return rc ? rc : disk_super_open(buf, super);
}

/* One of the two is enough, whether the other one is damaged or cannot be read at all. */
static int read_either(struct shell *s, struct shell_drive *d, uint8_t *buf,
		       struct disk_super *super)
{
	int first = read_sector(s, d, buf, 0, super), rc = first;

	if (first == 0)
		return 0;
	if (first != -EPROTO)
		rc = read_sector(s, d, buf, DISK_SECTOR, super);
	if (rc == -EPROTO)
		return recover_explain(s, d, rc, "the store is of another version of tier",
			       "use the tierd that made it, or another path");
	if (rc && (rc != -EBADMSG || first != -EBADMSG))
		return recover_explain(s, d, rc, "the store cannot be read", "look at its device");
	if (rc)
		return recover_explain(s, d, rc, "this is not a tier store",
			       "give another path; --format destroys what is there");
	log_warn(&s->log, "the super block was damaged; its copy was used", d->path,
		 "look at the device", "");
	return 1;
}

int recover_super(struct shell *s, struct shell_drive *d, struct disk_super *super)
{
	uint8_t *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, DISK_SECTOR);
	char why[128] = "";
	int rc, used_copy;

	if (!buf)
		return -ENOMEM;
	if (s->drive_ops->bytes(d->device) < 2 * DISK_SECTOR)
		return recover_explain(s, d, -EBADMSG, "this is not a tier store",
			       "give another path; --format destroys what is there");
	used_copy = read_either(s, d, buf, super);
	if (used_copy < 0)
		return used_copy;
	rc = store_super_check(super, why, sizeof(why));
	if (rc)
		return recover_explain(s, d, rc, "the store's super block contradicts itself", why);
	if (super->segment_offset + super->segment_count * super->segment_bytes >
	    s->drive_ops->bytes(d->device))
		return recover_explain(s, d, -EFBIG,
				       "the store is shorter than its super block says",
			       "it was cut off: tierctl check --repair gives it its length "
			       "again");
	if (!used_copy)
		return 0;
	memcpy(buf, super, sizeof(*super));
	rc = s->drive_ops->pwrite(d->device, buf, DISK_SECTOR, 0);
	if (rc)
		log_error(&s->log, "the super block cannot be written again",
			  d->path, "look at the device: only the copy is left",
			  "errno=%d", -rc);
	return 0;
}

/* ---- catalog ------------------------------------------------------------------------------- */

/* The valid slot with the higher sequence; the other one is in bytes as well, after it. */
static int judge_slots(struct shell *s, uint8_t *bytes, uint64_t slot_bytes,
		       const struct disk_catalog **best)
{
	uint64_t id = s->core_config.super.store_id;
	int rc = -EBADMSG;

	*best = NULL;
	for (uint32_t slot = 0; slot < 2; slot++) {
		const struct disk_catalog *head;
		const struct disk_context *context;
		int one = disk_catalog_open(bytes + slot * slot_bytes, slot_bytes, id, &head,
					    &context);

		if (one == -EPROTO)
			rc = one;
		if (one || (head->sequence & 1) != slot)
			continue;
		if (*best && (*best)->sequence > head->sequence)
			continue;
		*best = head;
		s->catalog.context = context;
		s->catalog.count = head->count;
		s->catalog.limit = disk_catalog_limits(head);
		s->catalog.limits = head->limit_count;
	}
	return *best ? 0 : rc;
}

/*
 * A catalog of which a crash left a part: its head is voided before the next one is written there.
 * If a part of that one came through in turn, the old head could verify with the new entries, and
 * what it says was never answered (a context removed, say) would come true after all.
 */
static int void_torn(struct shell *s, uint8_t *bytes, const struct disk_catalog *best)
{
	const struct disk_super *super = &s->core_config.super;
	uint64_t at = (best->sequence & 1 ? 0 : 1) * super->catalog_bytes;
	const struct disk_catalog *head;
	const struct disk_context *context;
	int rc;

	if (!disk_catalog_open(bytes + at, super->catalog_bytes, super->store_id, &head, &context))
		return 0;
	memset(bytes + at, 0, DISK_SECTOR);
	rc = s->drive_ops->pwrite(s->drive[0].device, bytes + at, DISK_SECTOR,
			      super->catalog_offset + at);
	return rc ? rc : s->drive_ops->flush(s->drive[0].device);
}

/* What its head says it has, if that can be: a slot is made for many more contexts. */
static int read_slot(struct shell *s, uint8_t *to, uint64_t at)
{
	const struct shell_drive *d = &s->drive[0];
	const struct disk_catalog *head = (const void *)to;
	uint64_t bytes = s->core_config.super.catalog_bytes, rest;
	int rc = s->drive_ops->pread(d->device, to, sizeof(*head), at);

	if (rc || head->magic != DISK_CATALOG_MAGIC || head->count > ABI_CONTEXTS_MAX ||
	    disk_catalog_bytes(head->count, head->limit_count) > bytes)
		return rc; /* disk_catalog_open says more */
	rest = disk_catalog_bytes(head->count, head->limit_count) - sizeof(*head);
	return rest ? s->drive_ops->pread(d->device, to + sizeof(*head), rest, at + sizeof(*head))
		    : 0;
}

static int read_catalog(struct shell *s)
{
	const struct disk_super *super = &s->core_config.super;
	const struct disk_catalog *best;
	uint8_t *bytes = aligned_alloc(DISK_SECTOR, 2 * super->catalog_bytes);
	int rc = -ENOMEM;

	if (!bytes)
		return recover_explain(s, &s->drive[0], rc, "no memory for the catalog", NULL);
	s->catalog.bytes = bytes;
	for (uint32_t slot = 0; slot < 2; slot++) {
		uint64_t at = slot * super->catalog_bytes;

		rc = read_slot(s, bytes + at, super->catalog_offset + at);
		if (rc)
			break;
	}
	if (rc)
		return recover_explain(s, &s->drive[0], rc, "the catalog cannot be read",
				       "look at the device");
	rc = judge_slots(s, bytes, super->catalog_bytes, &best);
	if (rc)
		return recover_explain(s, &s->drive[0], rc,
				       "both copies of the catalog are damaged",
			       "restore the store from a backup, or --format to begin anew");
	rc = void_torn(s, bytes, best);
	if (rc)
		return recover_explain(s, &s->drive[0], rc, "the catalog cannot be written",
				       "look at the device");
	s->catalog.head = *best;
	s->core_config.next_uid = best->next_uid;
	s->core_config.catalog_sequence = best->sequence;
	return 0;
}

int recover_catalog_again(struct shell *s, const struct disk_catalog *head)
{
	const struct disk_super *super = &s->core_config.super;
	uint8_t *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, super->catalog_bytes);
	uint64_t at = super->catalog_offset + (head->sequence & 1) * super->catalog_bytes;
	int64_t bytes;
	int rc;

	if (!buf)
		return -ENOMEM;
	bytes = disk_catalog_seal(buf, super->catalog_bytes, head, s->catalog.context,
				  s->catalog.limit);
	if (bytes < 0)
		return (int)bytes;
	rc = s->drive_ops->pwrite(s->drive[0].device, buf, (size_t)bytes, at);
	return rc ? rc : s->drive_ops->flush(s->drive[0].device);
}

/* ---- the store ----------------------------------------------------------------------------- */

static int open_existing(struct shell *s, uint64_t bytes)
{
	struct drive_options options = {
		.path = s->config.store_path,
		.buffered = s->config.nvme_buffered,
	};
	int rc = s->drive_ops->open(&s->drive[0].device, &options);

	if (rc)
		return rc; /* explained by the backend */
	rc = recover_super(s, &s->drive[0], &s->core_config.super);
	if (rc)
		return rc;
	if (s->config.nvme_size.kind != UNITS_AUTO &&
	    s->drive_ops->bytes(s->drive[0].device) != bytes)
		log_warn(&s->log, "the store keeps the size it was made with",
			 s->config.store_path, "nvme.size counts for new stores only",
			 "bytes=%llu", (unsigned long long)s->drive_ops->bytes(s->drive[0].device));
	return 0;
}

int recover_store(struct shell *s, uint64_t bytes)
{
	struct disk_super *super = &s->core_config.super;
	struct stat st = { .st_size = 0 };
	bool there = stat(s->config.store_path, &st) == 0;
	bool device = there && S_ISBLK(st.st_mode);
	int rc;

	s->formatted = s->options.format || (!device && st.st_size == 0);
	rc = s->formatted && !s->options.format ? drives_home_missing(s) : 0;
	if (rc)
		return rc;
	rc = s->formatted ? format_store(s, &s->drive[0], bytes, device, super)
			  : open_existing(s, bytes);
	if (rc == 0)
		rc = read_catalog(s);
	if (rc) {
		recover_store_close(s);
		return rc;
	}
	s->drive[0].super = *super;
	s->drives = 1;
	s->core_config.capacity[ABI_TIER_NVME] = drives_capacity(super);
	if (super->home)
		rc = recover_explain(s, &s->drive[0], -EINVAL, "this is a further drive of a store",
				     "name the store's first drive first in store.path");
	if (rc == 0)
		rc = drives_begin(s);
	if (rc) {
		recover_store_close(s);
		return rc;
	}
	s->obs.store = s->config.store_path;
	s->obs.super = *super;
	return 0;
}

void recover_store_close(struct shell *s)
{
	free(s->catalog.bytes);
	s->catalog = (struct catalog){ .bytes = NULL };
	drives_end(s);
	if (s->drive[0].device)
		s->drive_ops->close(s->drive[0].device);
	s->drive[0].device = NULL;
}

/* ---- contexts ------------------------------------------------------------------------------ */

/* It stays in the catalog, and what it stored in its segments; all others serve. */
static int set_aside(struct shell *s, const struct disk_context *spec, int error, const char *why)
{
	struct obs_aside *a;
	int rc = core_context_aside(s->core, spec);

	log_error(&s->log, "a context of the catalog cannot be made; it is set aside", spec->name,
		  why, "errno=%d", -error);
	if (rc)
		return recover_explain(s, &s->drive[0], rc,
				       "no memory for contexts that are set aside", NULL);
	a = realloc(s->obs.aside, (s->obs.asides + 1) * sizeof(*a));
	if (!a)
		return recover_explain(s, &s->drive[0], -ENOMEM,
				       "no memory for contexts that are set aside",
				       NULL);
	s->obs.aside = a;
	a = &a[s->obs.asides++];
	memcpy(a->name, spec->name, sizeof(a->name));
	a->owner_uid = spec->owner_uid;
	a->error = error;
	snprintf(a->why, sizeof(a->why), "%s", why);
	return 0;
}

int recover_contexts(struct shell *s)
{
	char why[FRONT_WHY_BYTES] = "";
	uint32_t id;

	/* Those whose memory was left first: they are to have the indexes that they had. */
	for (uint32_t n = 0; n < 2 * s->catalog.count; n++) {
		const struct disk_context *spec = &s->catalog.context[n % s->catalog.count];
		int rc = abi_geometry_check(&spec->geometry, why, sizeof(why));

		if (handover_has(s, spec) != (n < s->catalog.count))
			continue;

		if (rc == 0)
			rc = shell_context_make(s, spec, 0, &id, why);
		if (rc)
			rc = set_aside(s, spec, rc, why);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < s->catalog.limits; i++)
		if (core_limit_restore(s->core, &s->catalog.limit[i]))
			log_error(&s->log, "a limit of the catalog is not in force", "",
				  "set it again when salts have left their accounts", "salt=%llu",
				  (unsigned long long)s->catalog.limit[i].salt);
	free(s->catalog.bytes);
	s->catalog = (struct catalog){ .bytes = NULL };
	return 0;
}

/* ---- segments ------------------------------------------------------------------------------ */

static int take_segment(struct shell *s, uint32_t drive, uint32_t segment, struct summaries *sm)
{
	const struct shell_drive *d = &s->drive[drive];
	int unread, rc;
	void *summary = summaries_next(sm, &unread);

	if (unread) /* the rest of the store is no loss */
		log_error(&s->log, "a segment cannot be read whole; what its bad sectors named is "
			  "lost", d->path, "look at the device", "segment=%u errno=%d",
			  segment, -unread);
	rc = core_recover_segment(s->core, drive, segment, summary, d->super.summary_bytes);
	if (unread)
		core_recover_unread(s->core, drive, segment);
	return rc == -ENOMEM ? rc : 0;
}

/* What is read below must not be in a volatile cache only: answers are built upon it. */
int recover_flush(struct shell *s, const struct shell_drive *d)
{
	int rc = s->drive_ops->flush(d->device);

	return rc ? recover_explain(s, d, rc, "the store cannot be flushed", "look at its device")
		  : 0;
}

/* The others were flushed when they were opened. */
static int read_drive(struct shell *s, uint32_t drive, uint64_t *told)
{
	const struct shell_drive *d = &s->drive[drive];
	struct summaries *sm;
	int rc = drive ? 0 : recover_flush(s, d);

	if (rc)
		return rc;
	rc = summaries_open(&sm, s->drive_ops, d->device, &d->super);
	if (rc)
		return recover_explain(s, d, rc, "the segments cannot be read",
				       "is there enough memory, and may it have threads?");
	for (uint32_t i = 0; i < d->super.segment_count && rc == 0; i++) {
		rc = take_segment(s, drive, i, sm);
		if (time_now_ns() - *told < NS_PER_S)
			continue;
		*told = time_now_ns();
		notify_status("recovering: segment %u of %llu", i,
			      (unsigned long long)d->super.segment_count);
	}
	summaries_close(sm);
	return rc;
}

int recover_segments(struct shell *s)
{
	uint64_t begun = time_now_ns(), told = begun;
	int rc = 0;

	if (!s->drives)
		return 0;
	for (uint32_t i = 0; i < s->drives && !s->formatted && rc == 0; i++)
		rc = read_drive(s, i, &told);
	if (rc == 0)
		rc = core_recover_finish(s->core, &s->obs.recovery);
	if (rc)
		return recover_explain(s, &s->drive[0], rc, "recovery failed",
				       "is there enough memory?");
	s->obs.recovery_ns = time_now_ns() - begun;
	log_info(&s->log, "recovered", s->config.store_path,
		 "ms=%llu segments=%llu records=%llu bad=%llu blocks=%llu stale=%llu unproven=%llu "
		 "orphaned=%llu unreached=%llu aside=%llu bytes=%llu",
		 (unsigned long long)(s->obs.recovery_ns / NS_PER_MS),
		 (unsigned long long)s->obs.recovery.segments,
		 (unsigned long long)s->obs.recovery.records,
		 (unsigned long long)s->obs.recovery.records_bad,
		 (unsigned long long)s->obs.recovery.blocks,
		 (unsigned long long)s->obs.recovery.blocks_stale,
		 (unsigned long long)s->obs.recovery.blocks_unproven,
		 (unsigned long long)s->obs.recovery.blocks_orphaned,
		 (unsigned long long)s->obs.recovery.blocks_unreached,
		 (unsigned long long)s->obs.recovery.blocks_aside,
		 (unsigned long long)s->obs.recovery.bytes);
	return 0;
}
