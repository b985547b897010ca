/*
 * Streams from afar: tierd-net receives what another host sends in memory that is mapped here for
 * reading alone, and says in its first line which layers are ready (abi/net.h, net_far).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "libtier/src/error.h"
#include "libtier/src/hosts.h"

struct tier_far {
	int fd; /* to tierd-net */
	const struct net_far *line;
	size_t bytes;
	uint64_t deadline_ns, block_bytes;
	uint32_t blocks, layer_first; /* the model's number of layer 0 */
	uint32_t part_count;
	uint64_t offset[ABI_PARTS_MAX]; /* of a part's first page in a block */
	struct tier_part part[ABI_PARTS_MAX];
	bool ended;
	int error; /* of the connection, if it ended so */
	struct net_placed last; /* the verdict */
};

static void lay_out(struct tier_far *f, const tier_geometry *g)
{
	uint32_t n = 0;

	f->layer_first = UINT32_MAX;
	for (; n < ABI_PARTS_MAX && tier_geometry_part(g, n, &f->part[n]) == 0; n++) {
		const struct tier_part *p = &f->part[n];

		f->offset[n] = f->block_bytes;
		f->block_bytes += (uint64_t)p->layers * p->groups * p->page_stride;
		if (p->layer_first < f->layer_first)
			f->layer_first = p->layer_first;
	}
	f->part_count = n;
}

static void drop(struct tier_far *f)
{
	if (!f)
		return;
	if (f->line)
		munmap((void *)(uintptr_t)f->line, f->bytes);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

int64_t tier_far_open(tier_context *c, const tier_key *keys, uint32_t count,
		      const struct tier_hosts_options *options, struct tier_hosts *out,
		      tier_far **to)
{
	struct hosts_begun begun CLEANUP(hosts_begun_close) = { NET_STREAM, -1, -1, 0 };
	const void *line = NULL;
	struct tier_far *f;
	int64_t blocks;
	int rc;

	if (!out || !to)
		return error_note(-EINVAL, "tier_far_open: out or f is NULL");
	*to = NULL;
	blocks = hosts_begin(c, keys, count, options, out, &begun);
	if (blocks <= 0)
		return blocks;
	f = calloc(1, sizeof(*f));
	if (!f)
		return error_note(-ENOMEM, "hosts: out of memory");
	f->fd = take_fd(&begun.fd);
	f->deadline_ns = begun.deadline_ns;
	f->blocks = (uint32_t)blocks;
	lay_out(f, tier_context_geometry(c));
	f->bytes = NET_FAR_LINE + f->blocks * f->block_bytes;
	rc = hosts_map(begun.memory, f->bytes, &line);
	f->line = line;
	if (rc) {
		drop(f);
		return rc;
	}
	*to = f;
	return blocks;
}

uint32_t tier_far_ready(const tier_far *f)
{
	return f ? atomic_load_acquire_u32(&f->line->ready) : 0;
}

/* The next word of tierd-net, or that it is late. */
static int hear(struct tier_far *f, uint64_t deadline_ns)
{
	int passed CLEANUP_CLOSE = -1;
	union hosts_answer m;
	int rc = hosts_receive(f->fd, &m, &passed, deadline_ns);

	if (rc == -ETIMEDOUT)
		return rc;
	if (rc || m.header.type == NET_PLACED) {
		f->ended = true;
		f->error = rc;
		if (rc == 0)
			f->last = m.placed;
	}
	return rc;
}

static uint32_t blocks_there(const struct tier_far *f)
{
	return f->line->blocks < f->blocks ? f->line->blocks : f->blocks;
}

int64_t tier_far_wait(tier_far *f, uint32_t layer, uint64_t deadline_ns)
{
	int rc = 0;

	if (!f)
		return error_note(-EINVAL, "tier_far_wait: no stream");
	deadline_ns = deadline_ns ? deadline_ns : f->deadline_ns + HOSTS_GRACE_NS;
	while (layer >= tier_far_ready(f) && !f->ended && rc == 0)
		rc = hear(f, deadline_ns);
	if (layer < tier_far_ready(f))
		return blocks_there(f);
	return f->error ? f->error : rc ? rc :
	       error_note(-ENODATA, "hosts: the stream ended without that layer");
}

const void *tier_far_data(const tier_far *f, uint32_t block, uint32_t part, uint32_t layer,
			  uint32_t group)
{
	uint32_t ready = tier_far_ready(f);
	const struct tier_part *p;

	if (!ready || part >= f->part_count || block >= blocks_there(f))
		return NULL;
	p = &f->part[part];
	if (layer >= p->layers || group >= p->groups ||
	    p->layer_first - f->layer_first + layer >= ready)
		return NULL;
	return (const uint8_t *)f->line + NET_FAR_LINE + block * f->block_bytes + f->offset[part] +
	       ((uint64_t)layer * p->groups + group) * p->page_stride;
}

int64_t tier_far_close(tier_far *f, struct tier_hosts *out)
{
	int64_t rc = hosts_check_out(out);

	if (!f)
		return rc;
	while (out && rc == 0 && !f->ended)
		rc = hear(f, f->deadline_ns + HOSTS_GRACE_NS);
	if (out && rc == 0)
		rc = f->error;
	/* Looked at last: the caller's loads come before this one, and what they read was there. */
	acquire_fence();
	if (out && rc == 0 && atomic_load_relaxed_u32(&f->line->gone))
		rc = error_note(-ETIMEDOUT, "hosts: the stream was closed a minute after its end");
	if (out && rc == 0) {
		hosts_tell(out, &f->last);
		rc = f->last.usable;
	}
	drop(f);
	return rc;
}
