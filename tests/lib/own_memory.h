/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's own memory: what is its alone, less the tiers and the objects in them. */
#ifndef TIER_TESTS_OWN_MEMORY_H
#define TIER_TESTS_OWN_MEMORY_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/unit.h"

#define MIB (1ull << 20)

/* Its own: what no file backs, and its memfds but the tiers'. */
static inline __attribute__((unused)) uint64_t own_memory(int pid)
{
	char path[64], line[512], name[256];
	uint64_t bytes = 0;
	bool counts = false;
	struct dirent *e;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long from, to, kib;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			counts = !strstr(line, "/memfd:");
		else if (counts && (sscanf(line, "Private_Clean: %lu", &kib) == 1 ||
				    sscanf(line, "Private_Dirty: %lu", &kib) == 1))
			bytes += kib << 10;
	}
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, name, sizeof(name) - 1);
		struct stat st;

		if (n <= 0)
			continue;
		name[n] = '\0';
		if (strncmp(name, "/memfd:", 7) || strstr(name, "tier-cxl") ||
		    strstr(name, "tier-hbm") || strstr(name, "tier-object") ||
		    fstatat(dirfd(dir), e->d_name, &st, 0))
			continue;
		bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return bytes;
}

#endif
