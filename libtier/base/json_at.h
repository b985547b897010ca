/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a JSON document by path, for who speaks to the daemon and has jansson. */
#ifndef TIER_BASE_JSON_AT_H
#define TIER_BASE_JSON_AT_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What stands at "tiers.0.used": names of members, numbers of elements. NULL = it is not there. */
static inline const json_t *json_at(const json_t *document, const char *path)
{
	char name[64];

	while (document && *path) {
		size_t length = strcspn(path, ".");

		if (length >= sizeof(name))
			return NULL;
		memcpy(name, path, length);
		name[length] = '\0';
		path += length + (path[length] == '.');
		if (json_is_array(document))
			document = json_array_get(document, strtoul(name, NULL, 10));
		else
			document = json_object_get(document, name);
	}
	return document;
}

#endif
