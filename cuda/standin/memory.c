/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the stand-in: handles, addresses, mappings, registered host memory; see standin.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/standin/inside.h"

#define CURRENT_HANDLE_BIT 1ull /* of an allocation that may be exported */

static struct memory *memory_of(uint64_t handle)
{
	for (struct memory *m = standin.memories; m; m = m->next)
		if (m == (struct memory *)(uintptr_t)(handle & ~CURRENT_HANDLE_BIT))
			return m;
	return NULL;
}

/* With the list locked. */
static void put(struct memory *m)
{
	struct memory **link = &standin.memories;

	if (--m->refs)
		return;
	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
	standin.used -= m->bytes;
	munmap(m->window, m->bytes);
	close(m->fd);
	free(m);
}

/* Takes over the descriptor, also when it fails. */
static cuda_result adopt(uint64_t *handle, int fd, size_t bytes, bool shared)
{
	struct memory *m = calloc(1, sizeof(*m));
	void *window = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (!m || window == MAP_FAILED) {
		if (window != MAP_FAILED)
			munmap(window, bytes);
		free(m);
		close(fd);
		return CUDA_OUT_OF_MEMORY;
	}
	*m = (struct memory){ .fd = fd, .bytes = bytes, .refs = 1, .window = window };
	list_lock();
	m->next = standin.memories;
	standin.memories = m;
	standin.used += bytes;
	standin.left.handles++;
	list_unlock();
	*handle = (uint64_t)(uintptr_t)m | (shared ? CURRENT_HANDLE_BIT : 0);
	return 0;
}

static cuda_result do_memory_info(size_t *free_bytes, size_t *all)
{
	ENTER(memory_info, true);
	*all = STANDIN_DEVICE_BYTES;
	*free_bytes = STANDIN_DEVICE_BYTES - standin.used;
	return 0;
}

static cuda_result do_granularity(size_t *bytes, const struct cuda_allocation *what, int32_t flags)
{
	ENTER(granularity, false);
	(void)flags;
	*bytes = STANDIN_GRANULE;
	return what->type == CUDA_PINNED ? 0 : CUDA_INVALID_VALUE;
}

static cuda_result do_create(uint64_t *handle, size_t bytes, const struct cuda_allocation *what,
			     uint64_t flags)
{
	int fd;

	ENTER(create, true);
	if (!bytes || bytes % STANDIN_GRANULE || flags || what->type != CUDA_PINNED ||
	    what->location.type != CUDA_AT_DEVICE || what->location.id)
		return CUDA_INVALID_VALUE;
	if (standin.used + bytes > STANDIN_DEVICE_BYTES)
		return CUDA_OUT_OF_MEMORY;
	fd = memfd_create("standin-hbm", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_OUT_OF_MEMORY;
	if (ftruncate(fd, (off_t)bytes)) {
		close(fd);
		return CUDA_OUT_OF_MEMORY;
	}
	return adopt(handle, fd, bytes, what->handle_types & CUDA_HANDLE_FD);
}

static cuda_result do_release(uint64_t handle)
{
	struct memory *m;

	ENTER(release, false);
	list_lock();
	m = memory_of(handle);
	if (m) {
		put(m);
		standin.left.handles--;
	}
	list_unlock();
	return m ? 0 : CUDA_INVALID_VALUE;
}

/* The descriptor is not closed on exec: whoever gets it must see to that. */
static cuda_result do_export_fd(void *fd, uint64_t handle, int32_t type, uint64_t flags)
{
	struct memory *m;

	ENTER(export_fd, true);
	m = memory_of(handle);
	if (!m || type != CUDA_HANDLE_FD || flags || !(handle & CURRENT_HANDLE_BIT))
		return CUDA_INVALID_VALUE;
	*(int *)fd = dup(m->fd);
	return *(int *)fd < 0 ? CUDA_OUT_OF_MEMORY : 0;
}

/* A descriptor that was re-opened is not the driver's any more: read-only ones are such here. */
static cuda_result do_import_fd(uint64_t *handle, void *fd, int32_t type)
{
	int from = (int)(intptr_t)fd, own;
	struct stat st;

	ENTER(import_fd, true);
	if (type != CUDA_HANDLE_FD || fstat(from, &st) || !S_ISREG(st.st_mode) || !st.st_size ||
	    (fcntl(from, F_GETFL) & O_ACCMODE) != O_RDWR)
		return CUDA_INVALID_VALUE;
	own = fcntl(from, F_DUPFD_CLOEXEC, 0);
	return own < 0 ? CUDA_OUT_OF_MEMORY : adopt(handle, own, (size_t)st.st_size, true);
}

static cuda_result do_reserve(uint64_t *at, size_t bytes, size_t alignment, uint64_t wanted,
			      uint64_t flags)
{
	struct reservation *r;

	ENTER(reserve, true);
	(void)wanted;
	if (!bytes || bytes % STANDIN_GRANULE || flags ||
	    (alignment && alignment != STANDIN_GRANULE))
		return CUDA_INVALID_VALUE;
	r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_OUT_OF_MEMORY;
	r->raw = mmap(NULL, bytes + STANDIN_GRANULE, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->raw == MAP_FAILED) {
		free(r);
		return CUDA_OUT_OF_MEMORY;
	}
	r->at = ((uintptr_t)r->raw + STANDIN_GRANULE - 1) / STANDIN_GRANULE * STANDIN_GRANULE;
	r->bytes = bytes;
	list_lock();
	r->next = standin.reservations;
	standin.reservations = r;
	standin.left.reservations++;
	list_unlock();
	*at = r->at;
	return 0;
}

static bool is_reserved(uint64_t at, size_t bytes)
{
	for (struct reservation *r = standin.reservations; r; r = r->next)
		if (at >= r->at && at + bytes <= r->at + r->bytes)
			return true;
	return false;
}

static bool is_mapped(uint64_t at, size_t bytes)
{
	for (struct range *r = standin.ranges; r; r = r->next)
		if (at < r->at + r->bytes && r->at < at + bytes)
			return true;
	return false;
}

static cuda_result do_unreserve(uint64_t at, size_t bytes)
{
	struct reservation **link = &standin.reservations, *r;

	ENTER(unreserve, false);
	list_lock();
	while (*link && ((*link)->at != at || (*link)->bytes != bytes))
		link = &(*link)->next;
	r = *link && !is_mapped(at, bytes) ? *link : NULL;
	if (r) {
		*link = r->next;
		standin.left.reservations--;
	}
	list_unlock();
	if (!r)
		return CUDA_INVALID_VALUE;
	munmap(r->raw, r->bytes + STANDIN_GRANULE);
	free(r);
	return 0;
}

static cuda_result do_map(uint64_t at, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
	struct range *r = NULL;
	struct memory *m;

	ENTER(map, true);
	list_lock();
	m = memory_of(handle);
	if (m && !flags && !offset && bytes && at % STANDIN_GRANULE == 0 &&
	    bytes % STANDIN_GRANULE == 0 && bytes <= m->bytes && is_reserved(at, bytes) &&
	    !is_mapped(at, bytes))
		r = calloc(1, sizeof(*r));
	if (r) {
		*r = (struct range){ at, bytes, m, 0, standin.ranges };
		m->refs++;
		standin.ranges = r;
		standin.left.ranges++;
	}
	list_unlock();
	return r ? 0 : CUDA_INVALID_VALUE;
}

/* A mapping goes as it came: whole. */
static cuda_result do_unmap(uint64_t at, size_t bytes)
{
	struct range **link = &standin.ranges, *r;

	ENTER(unmap, false);
	list_lock();
	while (*link && ((*link)->at != at || (*link)->bytes != bytes))
		link = &(*link)->next;
	r = *link;
	if (r) {
		*link = r->next;
		put(r->memory);
		standin.left.ranges--;
	}
	list_unlock();
	free(r);
	return r ? 0 : CUDA_INVALID_VALUE;
}

/* Of whole mappings. */
static cuda_result do_set_access(uint64_t at, size_t bytes, const struct cuda_access *access,
				 size_t count)
{
	size_t found = 0;

	ENTER(set_access, true);
	if (count != 1 || access->location.type != CUDA_AT_DEVICE || access->location.id)
		return CUDA_INVALID_VALUE;
	list_lock();
	for (struct range *r = standin.ranges; r; r = r->next) {
		if (r->at < at || r->at + r->bytes > at + bytes)
			continue;
		r->access = access->flags;
		found += r->bytes;
	}
	list_unlock();
	return found == bytes ? 0 : CUDA_INVALID_VALUE;
}

/* May the process write there? */
static bool is_writable(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512], how[8];
	bool writable = false;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3 && from <= (uintptr_t)at &&
		    (uintptr_t)at < to)
			writable = how[1] == 'w';
	if (f)
		fclose(f);
	return writable;
}

static cuda_result do_host_register(void *at, size_t bytes, uint32_t flags)
{
	ENTER(host_register, true);
	if (!bytes || (!is_writable(at) && !(flags & CUDA_REGISTER_READ_ONLY)))
		return CUDA_INVALID_VALUE;
	if (syscall(SYS_mlock, at, bytes)) /* sanitizers make mlock() do nothing */
		return CUDA_OUT_OF_MEMORY;
	standin.left.registered++;
	return 0;
}

static cuda_result do_host_unregister(void *at)
{
	ENTER(host_unregister, true);
	(void)at;
	if (!standin.left.registered)
		return CUDA_INVALID_VALUE;
	standin.left.registered--;
	return 0;
}

/* One address space for both, as on all devices that we serve. */
static cuda_result do_host_address(uint64_t *address, void *at, uint32_t flags)
{
	ENTER(host_address, true);
	if (flags || !standin.left.registered)
		return CUDA_INVALID_VALUE;
	*address = (uint64_t)(uintptr_t)at;
	return 0;
}

void fill_memory_calls(struct cuda_driver *calls)
{
	calls->memory_info = do_memory_info;
	calls->granularity = do_granularity;
	calls->create = do_create;
	calls->release = do_release;
	calls->export_fd = do_export_fd;
	calls->import_fd = do_import_fd;
	calls->reserve = do_reserve;
	calls->unreserve = do_unreserve;
	calls->map = do_map;
	calls->unmap = do_unmap;
	calls->set_access = do_set_access;
	calls->host_register = do_host_register;
	calls->host_unregister = do_host_unregister;
	calls->host_address = do_host_address;
}
