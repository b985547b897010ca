/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host's kernel has: checked at start, where its absence can be explained, and shown in
 * the status.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "libtier/base/cleanup.h"
#include "tierd/shell.h"

/* The asymmetric fence of the lease protocol (abi/hazard.h): nothing can replace it. */
static int probe_membarrier(struct obs *obs, struct log *log)
{
	long have = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
	long need = MEMBARRIER_CMD_GLOBAL_EXPEDITED | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;

	if (have < 0 || (have & need) != need ||
	    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0)) {
		log_error(log, "no membarrier(GLOBAL_EXPEDITED)", "kernel",
			  "use Linux 4.16 or newer with CONFIG_MEMBARRIER; in a container allow "
			  "the call (seccomp)", "");
		return -ENOSYS;
	}
	obs_fact(obs, "membarrier", "global expedited");
	return 0;
}

static void probe_version(struct obs *obs, struct log *log)
{
	struct utsname name;
	int major = 0, minor = 0;

	if (uname(&name))
		return;
	obs_fact(obs, "kernel", "%.60s", name.release);
	if (sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
	    (major < 6 || (major == 6 && minor < 1)))
		log_warn(log, "this kernel is older than what tier is tested with", name.release,
			 "use Linux 6.1 or newer", "");
}

/* Huge pages for shared memory: how the tiers' memory is mapped by clients. */
static void probe_huge_pages(struct obs *obs)
{
	FILE *f CLEANUP_FCLOSE = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	char line[128] = "", *open, *close_;

	if (!f || !fgets(line, sizeof(line), f)) {
		obs_fact(obs, "huge pages", "none for shared memory");
		return;
	}
	open = strchr(line, '[');
	close_ = open ? strchr(open, ']') : NULL;
	if (close_)
		*close_ = '\0';
	obs_fact(obs, "huge pages", "shmem_enabled is %s; memory is collapsed on demand",
		 close_ ? open + 1 : "unknown");
}

/* A descriptor for each client's socket, process and rings, and for each context's memory. */
static void raise_files(struct obs *obs)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	obs_fact(obs, "open files", "%llu", (unsigned long long)limit.rlim_max);
}

#define MAPS_A_CONTEXT 32u
#define MAPS_A_CLIENT 8u
#define MAPS_OF_ITS_OWN 8192u /* libraries, threads, what malloc takes by itself */

uint32_t kernel_contexts(uint32_t clients)
{
	uint64_t taken = MAPS_OF_ITS_OWN + (uint64_t)clients * MAPS_A_CLIENT, most;
	FILE *f CLEANUP_FCLOSE = fopen("/proc/sys/vm/max_map_count", "re");

	if (!f || fscanf(f, "%" SCNu64, &most) != 1)
		return 0;
	return most > taken + MAPS_A_CONTEXT ? (uint32_t)((most - taken) / MAPS_A_CONTEXT) : 1;
}

int kernel_probe(struct obs *obs, struct log *log)
{
	probe_version(obs, log);
	probe_huge_pages(obs);
	raise_files(obs);
	return probe_membarrier(obs, log);
}
