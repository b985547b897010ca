/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts on the core alone; see prompt.h. */
#include "bench/space/prompt.h"

#include <errno.h>

static struct corehost_block block_at(const struct corehost_block *as, const uint64_t *id,
				      uint32_t k)
{
	struct corehost_block b = *as;

	b.key = as->key ^ id[k];
	b.depth = k;
	b.before = k ? as->key ^ id[k - 1] : 0;
	return b;
}

int prompt_serve(struct corehost *h, const struct corehost_block *as, const struct trace *t,
		 const struct trace_request *r, struct prompt_served *out)
{
	const uint64_t *id = &t->id[r->id_first];

	*out = (struct prompt_served){ .hit = 0 };
	for (; out->hit < r->id_count; out->hit++) {
		struct corehost_block b = block_at(as, id, out->hit);

		if (!corehost_get(h, &b))
			break;
	}
	for (uint32_t k = out->hit; k < r->id_count && !out->refused; k++) {
		struct corehost_block b = block_at(as, id, k);
		int64_t rc = corehost_put(h, &b);

		if (rc < 0 && rc != -ENOSPC)
			return (int)rc;
		out->refused = rc != 1;
	}
	return 0;
}
