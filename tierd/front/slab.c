/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages about slabs that devices of clients have (wire.h W5, W6). The core decides and keeps the
 * books (place/lend.c); the shell has the descriptors.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "tierd/front/front_priv.h"

static void answer(struct front *f, struct turn *t, struct connection *s,
		   const struct core_range *range, const int *fd, uint32_t count)
{
	struct wire_slab *m;

	m = (void *)control_message(f, WIRE_SLAB, sizeof(*m), f->in.header.seq);
	m->context_id = range->context_id;
	m->tier = range->tier;
	m->offset = range->offset;
	m->bytes = range->bytes;
	m->pieces = count;
	control_grant(f, t, s, fd, count);
}

static const char *refusal(int error)
{
	switch (error) {
	case -ENOENT:
		return "slab: this client has no such context open, or it has no such tier";
	case -EACCES:
		return "slab: HBM is for the context's owner alone; read from CXL";
	case -EAGAIN:
		return "slab: there is no memory, or it is wanted back; read from CXL";
	case -EDQUOT:
		return "slab: this client's devices have too many, or tables (index.size) no room "
		       "for a whole index; leave some";
	case -EFBIG:
		return "slab: it has more pieces than a message carries; pages are too large";
	case -EOPNOTSUPP:
		return "slab: this memory would move elsewhere if it were registered; online it as "
		       "kernel memory (ZONE_NORMAL)";
	default:
		return "slab: its device gives no descriptor; see the daemon's log";
	}
}

static const char *judge(const struct wire_slab *m, bool takes)
{
	if (!control_zero(m->reserved, sizeof(m->reserved)) || m->reserved0 || m->pieces ||
	    (takes && m->bytes))
		return "slab: reserved bytes are not zero";
	return m->tier <= WIRE_SLAB_INDEX ? NULL : "slab: no such memory tier";
}

static struct core_range range_of(const struct wire_slab *m)
{
	return (struct core_range){ { m->context_id }, m->tier, m->offset, m->bytes };
}

void slab_take(struct front *f, struct turn *t, struct connection *s)
{
	struct core_range range = range_of(&f->in.slab);
	const char *wrong = judge(&f->in.slab, true);
	uint32_t count = WIRE_SLAB_PIECES_MAX;
	int fd[WIRE_SLAB_PIECES_MAX], rc;

	if (!wrong && range.tier == ABI_TIER_HBM && !s->device)
		wrong = "slab: the client did not say that it maps HBM";
	if (wrong) {
		control_error(f, t, s, -EINVAL, wrong);
		return;
	}
	rc = core_slab_lend(f->config.core, s->id, &range);
	if (rc == 0) {
		rc = f->config.ops->slab_lend(f->config.shell, &range, fd, &count);
		if (rc)
			core_slab_leave(f->config.core, s->id, &range);
	}
	if (rc) {
		control_error(f, t, s, rc, refusal(rc));
		return;
	}
	answer(f, t, s, &range, fd, count);
	for (uint32_t i = 0; i < count; i++)
		close(fd[i]);
}

void slab_leave(struct front *f, struct turn *t, struct connection *s)
{
	struct core_range range = range_of(&f->in.slab), wanted;
	const char *wrong = judge(&f->in.slab, false);
	int rc = 0;

	if (wrong) {
		control_error(f, t, s, -EINVAL, wrong);
		return;
	}
	if (range.bytes)
		rc = core_slab_leave(f->config.core, s->id, &range);
	if (rc) {
		control_error(f, t, s, rc, "slab: the client's devices do not have it");
		return;
	}
	core_slab_wanted(f->config.core, s->id, &range, &wanted);
	answer(f, t, s, &wanted, NULL, 0);
}

void slab_tick(struct front *f)
{
	uint64_t all = core_slab_recalls(f->config.core, CORE_CLIENTS_MAX);

	for (uint32_t i = 0; f->recalls != all && i < f->config.clients_max; i++)
		if (f->connection[i].state == CONNECTION_OPEN)
			atomic_store_release_u64(&f->connection[i].header->slabs_wanted,
						 core_slab_recalls(f->config.core, i));
	f->recalls = all;
}
