/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message about places of puts (wire.h W10). The core decides and keeps the books
 * (op/put_place.c); the shell makes the descriptor, by which that place alone can be written.
 */
#include <errno.h>
#include <unistd.h>

#include "tierd/front/front_priv.h"

static const char *refusal(int error)
{
	switch (error) {
	case -ENOENT:
		return "place: this client has no such put open";
	case -EINVAL:
		return "place: the put carries no such page, or reserved bytes are not zero";
	case -EEXIST:
		return "place: somebody brings this page already";
	case -EAGAIN:
		return "place: there is no room now; write to staging";
	case -EOPNOTSUPP:
		return "place: this tier cannot be granted for writing, or the page is no whole "
		       "2 MiB; write to staging";
	default:
		return "place: the right to write it cannot be granted; write to staging";
	}
}

static int take(struct front *f, const struct connection *s, const struct wire_place *m,
		struct core_range *range)
{
	const struct core_put_page at = { m->put, m->block, m->page };
	int rc = 0;

	if (m->offset || m->bytes || !control_zero(m->reserved, sizeof(m->reserved)))
		return -EINVAL;
	rc = core_put_place(f->config.core, s->id, &at, range);
	if (rc)
		return rc;
	rc = f->config.ops->place_grant(f->config.shell, range);
	if (rc < 0)
		core_put_unplace(f->config.core, s->id, &at);
	return rc;
}

void place_take(struct front *f, struct turn *t, struct connection *s)
{
	const struct wire_place asked = f->in.place;
	struct core_range range;
	struct wire_place *m;
	int fd = take(f, s, &asked, &range);

	if (fd < 0) {
		control_error(f, t, s, fd, refusal(fd));
		return;
	}
	m = (void *)control_message(f, WIRE_PLACE, sizeof(*m), asked.header.seq);
	m->put = asked.put;
	m->block = asked.block;
	m->page = asked.page;
	m->offset = range.offset;
	m->bytes = range.bytes;
	control_grant(f, t, s, &fd, 1);
	close(fd);
}
