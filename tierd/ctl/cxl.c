/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions and their decoders out of /sys/bus/cxl/devices; see cxl.h. What cannot be read shows as a
 * question mark: a device may go at any moment.
 */
#include "tierd/ctl/cxl.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/units.h"

#define TARGETS_MAX 16
#define TEXT 64

/* A file's first line; false: it is not there. */
static bool line_of(const char *root, const char *device, const char *name, char text[TEXT])
{
	FILE *f CLEANUP_FCLOSE = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/sys/bus/cxl/devices/%s/%s", root, device, name);
	f = fopen(path, "re");
	if (!f || !fgets(text, TEXT, f)) {
		snprintf(text, TEXT, "?");
		return false;
	}
	text[strcspn(text, "\n")] = '\0';
	return true;
}

static const char *bytes_of(const char *root, const char *device, const char *name,
			    char text[UNITS_TEXT_BYTES])
{
	char line[TEXT];

	if (!line_of(root, device, name, line))
		return "?";
	return units_print_bytes(text, strtoull(line, NULL, 0));
}

static void show_region(const char *root, const char *region, FILE *to)
{
	char commit[TEXT], decoder[TEXT], mode[TEXT], target[32], bytes[UNITS_TEXT_BYTES];

	line_of(root, region, "commit", commit);
	fprintf(to, "  cxl %-14s %s, %s", region, bytes_of(root, region, "size", bytes),
		commit[0] == '1' ? "committed" : commit[0] == '0' ? "not committed" : "?");
	for (int i = 0; i < TARGETS_MAX; i++) {
		snprintf(target, sizeof(target), "target%d", i);
		if (!line_of(root, region, target, decoder))
			break;
		if (!decoder[0])
			continue;
		line_of(root, decoder, "mode", mode);
		fprintf(to, ", %s (%s, %s)", decoder, mode,
			bytes_of(root, decoder, "dpa_size", bytes));
	}
	fprintf(to, "\n");
}

void ctl_cxl_regions(const char *root, FILE *to)
{
	struct dirent **list = NULL;
	char path[512];
	int count;

	snprintf(path, sizeof(path), "%s/sys/bus/cxl/devices", root);
	count = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		if (!strncmp(list[i]->d_name, "region", 6))
			show_region(root, list[i]->d_name, to);
		free(list[i]);
	}
	free(list);
}
