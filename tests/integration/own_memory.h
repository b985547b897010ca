/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's own memory, beside what the accounts in `tierctl status` allow. */
#ifndef TIER_TESTS_OWN_MEMORY_H
#define TIER_TESTS_OWN_MEMORY_H

#include "tests/integration/isolation.h"
#include "tests/integration/tierctl_json.h"

#define MIB (1ull << 20)

/* Its own: what no file backs, and its memfds but the tiers'. */
HELPER uint64_t own_memory(const struct daemon *d)
{
	char path[64], line[512], name[256];
	uint64_t bytes = 0;
	bool counts = false;
	struct dirent *e;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", d->pid);
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
	snprintf(path, sizeof(path), "/proc/%d/fd", d->pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, name, sizeof(name) - 1);
		struct stat st;

		if (n <= 0)
			continue;
		name[n] = '\0';
		if (strncmp(name, "/memfd:", 7) || strstr(name, "tier-cxl") ||
		    strstr(name, "tier-hbm") || fstatat(dirfd(dir), e->d_name, &st, 0))
			continue;
		bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return bytes;
}

/* Until the daemon's own memory is no more than that. */
HELPER uint64_t own_memory_falls(const struct daemon *d, uint64_t to)
{
	uint64_t own = own_memory(d);

	for (uint32_t i = 0; i < PATIENCE_MS / 100 && own > to; i++) {
		usleep(100000);
		own = own_memory(d);
	}
	return own;
}

HELPER void below_the_sum(const struct daemon *d, const char *when)
{
	uint64_t own = own_memory(d), most = tierctl_number(d, "status", "memory.most");

	printf("# %s: the daemon's own memory %llu MiB, its accounts allow %llu MiB\n", when,
	       (unsigned long long)(own / MIB), (unsigned long long)(most / MIB));
	fflush(stdout);
	assert_true(most > 0);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(own <= most);
#endif
}

#endif
