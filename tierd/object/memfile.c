/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of one object; see memfile.h. */
#include "tierd/object/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL /* of the kernel's ABI; older C library headers lack it */
#define MFD_NOEXEC_SEAL 0x0008u
#endif

#define BOUND_BYTES (1ull << 40) /* of the file's range: no object is longer */

/* Where its pages come from is a property of the file's range, and stays when the mapping goes. */
static void bind_range(const struct mem_ops *ops, int fd)
{
	void *at = mmap(NULL, BOUND_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (at == MAP_FAILED)
		return;
	ops->bind(ops, at, BOUND_BYTES);
	munmap(at, BOUND_BYTES);
}

/* The kernel counts those who opened a file, and memfd_create is none of them: leases need it. */
static int open_again(int fd)
{
	int rc = fchmod(fd, 0600) ? -errno : memfile_share(fd, O_RDWR);

	close(fd);
	return rc;
}

int memfile_make(const struct mem_ops *ops)
{
	int fd = memfd_create("tier-object", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create("tier-object", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	fd = open_again(fd);
	if (fd >= 0 && ops)
		bind_range(ops, fd);
	return fd;
}

int memfile_fix_length(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) ? -errno : 0;
}

int memfile_seal(int fd)
{
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		return -errno;
	/* Whoever has one of its descriptors may open it by that for reading. */
	fchmod(fd, 0644);
	fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
	return 0;
}

int memfile_share(int fd, int flags)
{
	char path[40];
	int own;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, flags | O_CLOEXEC);
	return own < 0 ? -errno : own;
}

bool memfile_is_ours(int fd)
{
	/* The kernel grants a write lease only where no other open file of the inode lives. */
	if (fcntl(fd, F_SETLEASE, F_WRLCK))
		return errno != EAGAIN && errno != EBUSY;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return true;
}
