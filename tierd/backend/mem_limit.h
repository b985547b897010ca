/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container or a service manager lets this process have: memory of a tier that takes more is
 * answered by the kernel with the end of the process, not with an error.
 */
#ifndef TIERD_BACKEND_MEM_LIMIT_H
#define TIERD_BACKEND_MEM_LIMIT_H

#include <stdint.h>

#define MEM_LIMIT_GROUP "/proc/self/cgroup"
#define MEM_LIMIT_ROOT "/sys/fs/cgroup"

#define MEM_LIMIT_SAYS 160u

/* Each is the tightest of the process' group and those above; UINT64_MAX = no limit. */
struct mem_limit {
	uint64_t most; /* bytes that there can be, memory of memfds and tmpfs included */
	uint64_t room; /* ... beside what is used now; files' pages in the cache make room */
	char says[MEM_LIMIT_SAYS]; /* who says most: a file's path, or "the host" */
};

/*
 * What a host with so many bytes and the control groups (v1 and v2) of a process let it have; a
 * limit that cannot be read is none. group is a file like MEM_LIMIT_GROUP, root a folder like
 * MEM_LIMIT_ROOT.
 */
void mem_limit_read(struct mem_limit *out, uint64_t host, const char *group, const char *root);

#endif
