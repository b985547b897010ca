/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new store: preallocate, write an empty catalog, then the super block, which makes it a store.
 * A file is made beside its path and renamed when it is whole, so that an interrupted format
 * leaves nothing that looks like a damaged store.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/recover.h"

static void tell_progress(void *arg, uint64_t done, uint64_t total)
{
	uint64_t *told_ns = arg, now = time_now_ns();

	if (now - *told_ns < NS_PER_S)
		return;
	*told_ns = now;
	notify_status("writing the new store: %llu%%",
		      (unsigned long long)(total ? done * 100 / total : 100));
}

static int write_catalog(struct shell *s, const struct disk_super *super, void *buf)
{
	struct disk_catalog head = {
		.magic = DISK_CATALOG_MAGIC,
		.version = DISK_VERSION,
		.store_id = super->store_id,
		.sequence = 1,
		.next_uid = 1,
	};
	uint64_t first = super->catalog_offset, second = first + super->catalog_bytes;
	int64_t bytes;
	int rc;

	/* D6: sequence 1 belongs into slot 1; slot 0 must hold nothing valid. */
	memset(buf, 0, DISK_SECTOR);
	rc = s->block->pwrite(s->device, buf, DISK_SECTOR, first);
	if (rc)
		return rc;
	bytes = disk_catalog_seal(buf, DISK_SECTOR, &head, NULL, NULL);
	if (bytes < 0)
		return (int)bytes;
	return s->block->pwrite(s->device, buf, (size_t)bytes, second);
}

/* Catalog, flush, super block and its copy, flush: the super block speaks of what is there. */
static int write_store(struct shell *s, struct disk_super *super)
{
	void *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, DISK_SECTOR);
	int rc;

	if (!buf)
		return -ENOMEM;
	rc = write_catalog(s, super, buf);
	if (rc == 0)
		rc = s->block->flush(s->device);
	disk_super_seal(super);
	memcpy(buf, super, sizeof(*super));
	if (rc == 0)
		rc = s->block->pwrite(s->device, buf, DISK_SECTOR, 0);
	if (rc == 0)
		rc = s->block->pwrite(s->device, buf, DISK_SECTOR, DISK_SECTOR);
	return rc ? rc : s->block->flush(s->device);
}

static int sync_folder(const char *path)
{
	char folder[CONFIG_PATH_BYTES];
	int fd CLEANUP_CLOSE = -1;

	snprintf(folder, sizeof(folder), "%s", path);
	fd = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		return -errno;
	return 0;
}

static int fill(struct shell *s, struct disk_super *super)
{
	uint64_t id;
	int rc;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return recover_explain(s, -EIO, "no random bytes for the store's id", NULL);
	rc = store_super_plan(super, s->block->bytes(s->device), s->config.nvme_segment, id);
	if (rc)
		return recover_explain(s, rc, "the store is too small for its segments",
			       "raise nvme.size, or lower nvme.segment");
	rc = write_store(s, super);
	if (rc)
		recover_explain(s, rc, "the new store cannot be written", "look at its device");
	return rc;
}

int format_store(struct shell *s, uint64_t bytes, bool device, struct disk_super *super)
{
	char path[CONFIG_PATH_BYTES + 8];
	uint64_t told_ns = 0;
	struct block_options options = {
		.path = device ? s->config.store_path : path,
		.bytes = bytes,
		.buffered = s->config.nvme_buffered,
		.progress = tell_progress,
		.arg = &told_ns,
	};
	int rc;

	snprintf(path, sizeof(path), "%s.new", s->config.store_path);
	log_info(&s->log, "formatting a new store", s->config.store_path, "bytes=%llu",
		 (unsigned long long)bytes);
	rc = s->block->open(&s->device, &options); /* explains its failures itself */
	if (rc)
		return rc;
	rc = fill(s, super);
	if (rc == 0 && !device && rename(path, s->config.store_path))
		rc = recover_explain(s, -errno, "the new store cannot be given its name", NULL);
	if (rc == 0 && !device)
		rc = sync_folder(s->config.store_path);
	if (rc) {
		s->block->close(s->device);
		s->device = NULL;
		if (!device)
			unlink(path);
	}
	return rc;
}
