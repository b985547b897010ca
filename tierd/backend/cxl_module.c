/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CXL memory through the kernel module tier_mem (kernel-mod/, docs/kernel-mod.md): memory that is
 * onlined for nobody else, of which clients get descriptors that can be taken back one by one, and
 * whose holes nobody can fill by touching them. Where the module has ordinary memory alone it says
 * "emulated".
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "libtier/abi/tier_mem.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"
#include "tierd/backend/mem_common.h"

_Static_assert(TIER_MEM_CHUNK == ABI_HUGE, "a slot is the unit in which memory is given");

static int module_status(struct tier_mem_status *status)
{
	int fd CLEANUP_CLOSE = open(TIER_MEM_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, TIER_MEM_STATUS, status))
		return -errno;
	return status->version == TIER_MEM_VERSION ? 0 : -EPROTO;
}

static int module_probe(uint64_t nodes, struct backend_info *info)
{
	struct tier_mem_status status;
	char text[UNITS_TEXT_BYTES];

	(void)nodes;
	if (module_status(&status) || !status.total)
		return -ENODEV;
	*info = (struct backend_info){
		.name = "module",
		.emulated = status.ordinary == status.total,
		.own_memory = true,
		.grants = true,
		.capacity_auto = status.free * TIER_MEM_CHUNK,
		.capacity_most = (status.total - status.retired) * TIER_MEM_CHUNK,
	};
	snprintf(info->detail, sizeof(info->detail), "tier_mem, %s in %" PRIu64 " chunks%s",
		 units_print_bytes(text, status.total * TIER_MEM_CHUNK), status.total,
		 info->emulated ? " of ordinary memory" : "");
	return 0;
}

static int module_create(const struct mem_ops *self, struct mem_region *region, const char *label,
			 uint64_t bytes)
{
	int device CLEANUP_CLOSE = open(TIER_MEM_DEVICE, O_RDWR | O_CLOEXEC);
	struct tier_mem_create args = { .bytes = bytes };
	int fd CLEANUP_CLOSE = -1, rc;

	(void)self;
	if (device < 0)
		return -errno;
	/* As memfds have it: whose the mapping is shows in /proc/PID/maps. */
	rc = snprintf(args.label, sizeof(args.label), "tier_mem:%s", label);
	if (rc >= (int)sizeof(args.label))
		return -EINVAL;
	fd = ioctl(device, TIER_MEM_CREATE, &args);
	if (fd < 0)
		return -errno;
	rc = mem_map(region, fd, bytes);
	if (rc == 0)
		take_fd(&fd);
	return rc;
}

static int module_share(const struct mem_region *region, uint64_t client)
{
	struct tier_mem_client args = { .client = client };
	int fd = ioctl(region->fd, TIER_MEM_SHARE, &args);

	return fd < 0 ? -errno : fd;
}

static int module_revoke(const struct mem_region *region, uint64_t client)
{
	struct tier_mem_client args = { .client = client };

	return ioctl(region->fd, TIER_MEM_REVOKE, &args) ? -errno : (int)args.pinned;
}

static void module_leave(struct mem_region *region)
{
	if (!region->bytes)
		return;
	ioctl(region->fd, TIER_MEM_LEAVE);
	mem_leave(region);
}

/* The owner's last descriptor and mapping gone, the module revokes what clients have. */
static void module_destroy(struct mem_region *region)
{
	mem_leave(region);
}

static int request(const struct mem_region *region, unsigned long what, uint64_t offset,
		   uint64_t bytes)
{
	struct tier_mem_slots args = {
		.first = (uint32_t)(offset / ABI_HUGE),
		.count = (uint32_t)(bytes / ABI_HUGE),
	};

	if (offset % ABI_HUGE || bytes % ABI_HUGE || offset > region->bytes ||
	    bytes > region->bytes - offset)
		return -EINVAL;
	return bytes && ioctl(region->fd, what, &args) ? -errno : 0;
}

static int module_prepare(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	return request(region, TIER_MEM_FILL, offset, bytes);
}

static int module_punch(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	return request(region, TIER_MEM_PUNCH, offset, bytes);
}

static int module_grant(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	struct tier_mem_slots args = {
		.first = (uint32_t)(offset / ABI_HUGE),
		.count = (uint32_t)(bytes / ABI_HUGE),
	};
	int rc = module_prepare(region, offset, bytes); /* a hole would be SIGBUS for the client */

	if (rc)
		return rc;
	rc = ioctl(region->fd, TIER_MEM_GRANT, &args);
	return rc < 0 ? -errno : rc;
}

/* By the kernel: memory that is gone or has poison is an error, no signal. */
static int move_bytes(void *bounce, uint8_t *at, uint64_t bytes, bool back)
{
	const struct iovec ours = { bounce, bytes }, theirs = { at, bytes };
	ssize_t n = back ? process_vm_writev(getpid(), &ours, 1, &theirs, 1, 0) :
			   process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0);

	return n == (ssize_t)bytes ? 0 : -EIO;
}

/* Other memory in place of this, with its bytes: what is pinned keeps the old one (K5). */
static int replace(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	void *bounce = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *at = (uint8_t *)region->addr + offset;
	int rc;

	if (bounce == MAP_FAILED)
		return -ENOMEM;
	rc = move_bytes(bounce, at, bytes, false);
	if (module_punch(region, offset, bytes) == 0 && rc == 0)
		rc = module_prepare(region, offset, bytes);
	if (rc == 0)
		rc = move_bytes(bounce, at, bytes, true);
	munmap(bounce, bytes);
	return rc;
}

static int module_commit(const struct mem_region *region, uint64_t offset, uint64_t bytes)
{
	int rc = request(region, TIER_MEM_COMMIT, offset, bytes);

	return rc == -EBUSY ? replace(region, offset, bytes) : rc;
}

const struct mem_ops mem_cxl_module = {
	.name = "module",
	.probe = module_probe,
	.open = mem_open,
	.close = mem_close,
	.create = module_create,
	.share = module_share,
	.revoke = module_revoke,
	.lend = mem_lend,
	.grant = module_grant,
	.commit = module_commit,
	.destroy = module_destroy,
	.leave = module_leave,
	.prepare = module_prepare,
	.punch = module_punch,
	.resident = mem_resident,
	.bind = mem_bind_none,
	.hint = mem_hint_none,
	.copy = mem_copy,
};
