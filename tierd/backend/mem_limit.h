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

/*
 * Bytes that the control groups (v2) of a process still let it have, the tightest of its group and
 * those above; UINT64_MAX when there is no limit, or none that can be read. group is a file like
 * MEM_LIMIT_GROUP, root a folder like MEM_LIMIT_ROOT.
 */
uint64_t mem_limit_room(const char *group, const char *root);

#endif
