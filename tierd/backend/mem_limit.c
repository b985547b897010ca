/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups, read at start-up only; see mem_limit.h. */
#include "tierd/backend/mem_limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/cleanup.h"

/* What the two versions of control groups call the same things. */
struct version {
	const char *folder; /* below the root */
	const char *most, *used;
	const char *cache[2]; /* in memory.stat: pages of files, which the kernel takes back */
};

static const struct version version_2 = {
	.folder = "",
	.most = "memory.max",
	.used = "memory.current",
	.cache = { "inactive_file", "active_file" },
};

static const struct version version_1 = {
	.folder = "/memory",
	.most = "memory.limit_in_bytes",
	.used = "memory.usage_in_bytes",
	.cache = { "total_inactive_file", "total_active_file" },
};

static FILE *open_file(const char *folder, const char *name)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return NULL;
	return fopen(path, "re");
}

/* The number in a file of a group; "max" and what is not there are none. */
static bool read_number(const char *folder, const char *name, uint64_t *out)
{
	FILE *f CLEANUP_FCLOSE = open_file(folder, name);

	return f && fscanf(f, "%" SCNu64, out) == 1;
}

/* Of what the group uses: what would leave if somebody wanted the room. Memfds are not in it. */
static uint64_t read_cache(const char *folder, const struct version *v)
{
	FILE *f CLEANUP_FCLOSE = open_file(folder, "memory.stat");
	char line[128], name[64];
	uint64_t bytes, cache = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %" SCNu64, name, &bytes) == 2 &&
		    (!strcmp(name, v->cache[0]) || !strcmp(name, v->cache[1])))
			cache += bytes;
	return cache;
}

static void read_group(struct mem_limit *out, const char *folder, const struct version *v)
{
	uint64_t most, used, cache, left;

	if (!read_number(folder, v->most, &most))
		return;
	if (most < out->most) {
		out->most = most;
		snprintf(out->says, sizeof(out->says), "%.140s/%s", folder, v->most);
	}
	if (!read_number(folder, v->used, &used))
		return;
	cache = read_cache(folder, v);
	used = used > cache ? used - cache : 0; /* counted at different times */
	left = used < most ? most - used : 0;
	if (left < out->room)
		out->room = left;
}

/* The group at that path, and those above it. */
static void read_groups(struct mem_limit *out, const char *path, const struct version *v,
			const char *root)
{
	char folder[PATH_MAX], *slash;
	size_t top = strlen(root) + strlen(v->folder);

	if (snprintf(folder, sizeof(folder), "%s%s%s", root, v->folder, path[1] ? path : "") >=
	    (int)sizeof(folder))
		return;
	do {
		read_group(out, folder, v);
		slash = strrchr(folder, '/');
		if (slash)
			*slash = '\0';
	} while (slash && strlen(folder) >= top);
}

static bool has_memory(char *controllers)
{
	char *rest = NULL, *one = strtok_r(controllers, ",", &rest);

	while (one && strcmp(one, "memory") != 0)
		one = strtok_r(NULL, ",", &rest);
	return one;
}

/* A group of the process: "0::/path" is of version 2, "4:memory:/path" of version 1. */
static void read_line(struct mem_limit *out, char *line, const char *root)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	line[strcspn(line, "\n")] = '\0';
	if (!path || path[1] != '/')
		return;
	*controllers++ = *path++ = '\0';
	if (!*controllers)
		read_groups(out, path, &version_2, root);
	else if (has_memory(controllers))
		read_groups(out, path, &version_1, root);
}

void mem_limit_read(struct mem_limit *out, uint64_t host, const char *group, const char *root)
{
	FILE *f CLEANUP_FCLOSE = fopen(group, "re");
	char line[PATH_MAX];

	*out = (struct mem_limit){ .most = host, .room = UINT64_MAX, .says = "the host" };
	while (f && fgets(line, sizeof(line), f))
		read_line(out, line, root);
}
