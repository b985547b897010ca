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

#define LINKS_MAX 16u

static void tell_progress(void *arg, uint64_t done, uint64_t total)
{
	uint64_t *told_ns = arg, now = time_now_ns();

	if (now - *told_ns < NS_PER_S)
		return;
	*told_ns = now;
	notify_status("writing the new store: %llu%%",
		      (unsigned long long)(total ? done * 100 / total : 100));
}

static int write_catalog(struct shell *s, struct shell_drive *d, const struct disk_super *super,
			 void *buf)
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
	rc = s->drive_ops->pwrite(d->device, buf, DISK_SECTOR, first);
	if (rc)
		return rc;
	bytes = disk_catalog_seal(buf, DISK_SECTOR, &head, NULL, NULL);
	if (bytes < 0)
		return (int)bytes;
	return s->drive_ops->pwrite(d->device, buf, (size_t)bytes, second);
}

/* Catalog, flush, super block and its copy, flush: the super block speaks of what is there. */
static int write_store(struct shell *s, struct shell_drive *d, struct disk_super *super)
{
	void *buf CLEANUP_FREE = aligned_alloc(DISK_SECTOR, DISK_SECTOR);
	int rc;

	if (!buf)
		return -ENOMEM;
	rc = write_catalog(s, d, super, buf);
	if (rc == 0)
		rc = s->drive_ops->flush(d->device);
	disk_super_seal(super);
	memcpy(buf, super, sizeof(*super));
	if (rc == 0)
		rc = s->drive_ops->pwrite(d->device, buf, DISK_SECTOR, 0);
	if (rc == 0)
		rc = s->drive_ops->pwrite(d->device, buf, DISK_SECTOR, DISK_SECTOR);
	return rc ? rc : s->drive_ops->flush(d->device);
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

static int no_plan(struct shell *s, struct shell_drive *d, int rc)
{
	if (rc == -E2BIG)
		return recover_explain(s, d, rc, "the store would have too many segments",
				       "lower nvme.size, or raise nvme.segment");
	return recover_explain(s, d, rc, "the store is too small for its segments",
			       "raise nvme.size, or lower nvme.segment");
}

static int fill(struct shell *s, struct shell_drive *d, struct disk_super *super)
{
	uint64_t id;
	int rc;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return recover_explain(s, d, -EIO, "no random bytes for the store's id", NULL);
	rc = store_super_plan(super, s->drive_ops->bytes(d->device), s->config.nvme_segment, id);
	if (rc)
		return no_plan(s, d, rc);
	super->home = d->home;
	rc = write_store(s, d, super);
	if (rc)
		recover_explain(s, d, rc, "the new store cannot be written", "look at its device");
	return rc;
}

/* Where the path leads: a link is followed, and the new store lies where it points to. */
static int follow(const char *path, char real[CONFIG_PATH_BYTES])
{
	snprintf(real, CONFIG_PATH_BYTES, "%s", path);
	for (uint32_t i = 0; i < LINKS_MAX; i++) {
		char to[CONFIG_PATH_BYTES], folder[CONFIG_PATH_BYTES];
		ssize_t len = readlink(real, to, sizeof(to) - 1);
		int n;

		if (len < 0) /* no link, or nothing there yet */
			return errno == EINVAL || errno == ENOENT ? 0 : -errno;
		to[len] = '\0';
		memcpy(folder, real, sizeof(folder));
		n = to[0] == '/' ? snprintf(real, CONFIG_PATH_BYTES, "%s", to) :
				   snprintf(real, CONFIG_PATH_BYTES, "%s/%s", dirname(folder), to);
		if (n >= (int)CONFIG_PATH_BYTES)
			return -ENAMETOOLONG;
	}
	return -ELOOP;
}

/* What is at path, as it is, locked until it is closed. NULL: there is nothing. */
static int hold(struct shell *s, const char *path, struct drive **held)
{
	struct drive_options options = { .path = path, .buffered = s->config.nvme_buffered };

	*held = NULL;
	return access(path, F_OK) ? 0 : s->drive_ops->open(held, &options);
}

/* What a format left that was killed never was a store: the next one may be smaller. What of it is
 * written already serves again. */
static int cut_left_over(struct shell *s, struct shell_drive *d,
			 const struct drive_options *options)
{
	struct drive *left;
	int rc = hold(s, options->path, &left);

	if (!left)
		return rc;
	if (s->drive_ops->bytes(left) > options->bytes &&
	    truncate(options->path, (off_t)options->bytes))
		rc = recover_explain(s, d, -errno, "what a killed format left cannot be cut",
				     "remove it: the store's name with .new behind it");
	s->drive_ops->close(left);
	return rc;
}

/* Make it at path, give it the name real. */
static int make_file(struct shell *s, struct shell_drive *d, const struct drive_options *options,
		     const char *real,
		     struct disk_super *super)
{
	struct drive *former;
	int rc;

	/* A daemon that has it would go on writing into a file without a name. */
	rc = hold(s, d->path, &former);
	if (rc)
		return rc;
	rc = cut_left_over(s, d, options);
	if (rc == 0)
		rc = s->drive_ops->open(&d->device, options); /* explains its failures itself */
	if (rc == 0) {
		rc = fill(s, d, super);
		if (rc == 0 && rename(options->path, real))
			rc = recover_explain(s, d, -errno, "the new store cannot be given its name",
					     NULL);
		if (rc == 0)
			rc = sync_folder(real);
		if (rc)
			unlink(options->path);
	}
	s->drive_ops->close(former);
	return rc;
}

static int make_on_device(struct shell *s, struct shell_drive *d,
			  const struct drive_options *options,
			  struct disk_super *super)
{
	int rc = s->drive_ops->open(&d->device, options);

	return rc ? rc : fill(s, d, super);
}

int format_store(struct shell *s, struct shell_drive *d, uint64_t bytes, bool device,
		 struct disk_super *super)
{
	char real[CONFIG_PATH_BYTES], path[CONFIG_PATH_BYTES + 8];
	uint64_t told_ns = 0;
	struct drive_options options = {
		.path = device ? d->path : path,
		.bytes = bytes,
		.buffered = s->config.nvme_buffered,
		.progress = tell_progress,
		.arg = &told_ns,
	};
	int rc = 0;

	/* Before all of it is written. */
	if (!device)
		rc = store_super_plan(super, bytes, s->config.nvme_segment, 1);
	if (rc)
		return no_plan(s, d, rc);
	rc = follow(d->path, real);
	if (rc)
		return recover_explain(s, d, rc, "the link to the store cannot be followed",
				       "name the file itself");
	snprintf(path, sizeof(path), "%s.new", real);
	log_info(&s->log, "formatting a new store", d->path, "bytes=%llu",
		 (unsigned long long)bytes);
	rc = device ? make_on_device(s, d, &options, super)
		    : make_file(s, d, &options, real, super);
	if (rc && d->device) {
		s->drive_ops->close(d->device);
		d->device = NULL;
	}
	return rc;
}
