/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module of objects in the shell: what of the tiers it gets, where its folder lies, which
 * contexts are its own, and the end of its life.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtier/base/cleanup.h"
#include "tierd/object/files.h"
#include "tierd/object/object.h"
#include "tierd/shell.h"

#define FOLDER ".objects"
#define NVME_PERCENT 10u

uint64_t objects_share(const struct shell *s, uint64_t cxl)
{
	uint64_t bytes = units_resolve(&s->config.object_cxl, cxl, 0);

	return bytes / ABI_PAGE_ALIGN * ABI_PAGE_ALIGN;
}

static int name_folder(struct shell *s)
{
	char *path = s->config.object_path;
	size_t bytes = sizeof(s->config.object_path);

	if (path[0])
		return 0;
	return (size_t)snprintf(path, bytes, "%s" FOLDER, s->config.store_path) < bytes ?
		       0 : -ENAMETOOLONG;
}

static int list_contexts(struct shell *s, struct objects_context **out, uint32_t *count)
{
	struct objects_context *list = calloc(ABI_CONTEXTS_MAX, sizeof(*list));
	struct core_context_stats stats;
	int64_t id = core_context_next(s->core, UINT32_MAX);

	if (!list)
		return -ENOMEM;
	for (; id >= 0; id = core_context_next(s->core, (uint32_t)id))
		if (core_context_stats(s->core, (uint32_t)id, &stats) == 0 &&
		    stats.spec.kind == DISK_KIND_OBJECT)
			list[(*count)++] = (struct objects_context){
				stats.spec.uid, stats.spec.epoch,
				stats.spec.owner_uid && stats.spec.owner_uid != s->obs.uid ?
					stats.spec.owner_uid : OBJECT_NO_USER };
	*out = list;
	return 0;
}

static uint64_t disk_share(const struct shell *s)
{
	uint64_t all;

	object_files_room(s->config.store_path, &all);
	return units_resolve(&s->config.object_nvme, all, all / 100 * NVME_PERCENT);
}

int objects_begin(struct shell *s)
{
	struct objects_config config = {
		.path = s->config.object_path,
		.store_id = s->obs.super.store_id,
		.anew = s->formatted,
		.buffered = s->config.nvme_buffered,
		.direct = s->config.object_direct,
		.most = { s->object_cxl, disk_share(s) },
		.seed = s->obs.boot_token,
		.wait_ns = s->config.request_deadline,
		.mem = s->mem[ABI_TIER_CXL],
		.wake_fd = s->loop.fd[LOOP_WORKERS],
		.log = &s->log,
	};
	struct objects_context *context CLEANUP_FREE = NULL;
	int rc;

	if (!s->object_cxl)
		return 0;
	if (!s->drives) {
		log_error(&s->log, "objects need a store", "object.cxl",
			  "set object.cxl = 0, or give nvme.size a size", "");
		return -EINVAL;
	}
	rc = name_folder(s);
	if (rc == 0)
		rc = list_contexts(s, &context, &config.contexts);
	config.context = context;
	if (rc == 0)
		rc = objects_open(&s->objects, &config);
	s->obs.objects = s->objects;
	return rc;
}

void objects_end(struct shell *s)
{
	if (s->objects)
		objects_close(s->objects);
	s->objects = NULL;
}
