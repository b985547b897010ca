/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups, read at start-up only; see mem_limit.h. */
#include "tierd/backend/mem_limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libtier/base/cleanup.h"

/* The number in a file of a group; "max" and what is not there are none. */
static bool read_number(const char *folder, const char *name, uint64_t *out)
{
	char path[PATH_MAX];
	FILE *f CLEANUP_FCLOSE = NULL;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return false;
	f = fopen(path, "re");
	return f && fscanf(f, "%" SCNu64, out) == 1;
}

/* The folder of the process' group: the line "0::/path" is of version 2. */
static bool find_group(char folder[PATH_MAX], const char *group, const char *root)
{
	FILE *f CLEANUP_FCLOSE = fopen(group, "re");
	char line[PATH_MAX];

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		return snprintf(folder, PATH_MAX, "%s%s", root, line[4] ? line + 3 : "") <
		       PATH_MAX;
	}
	return false;
}

static void read_group(struct mem_limit *out, const char *folder)
{
	uint64_t most, used, left;

	if (!read_number(folder, "memory.max", &most))
		return;
	if (most < out->most) {
		out->most = most;
		snprintf(out->says, sizeof(out->says), "%.140s/memory.max", folder);
	}
	if (!read_number(folder, "memory.current", &used))
		return;
	left = used < most ? most - used : 0;
	if (left < out->room)
		out->room = left;
}

void mem_limit_read(struct mem_limit *out, uint64_t host, const char *group, const char *root)
{
	char folder[PATH_MAX], *slash;

	*out = (struct mem_limit){ .most = host, .room = UINT64_MAX, .says = "the host" };
	if (!find_group(folder, group, root))
		return;
	do {
		read_group(out, folder);
		slash = strrchr(folder, '/');
		if (slash)
			*slash = '\0';
	} while (slash && strlen(folder) >= strlen(root));
}
