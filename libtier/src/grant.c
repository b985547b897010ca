/*
 * Standing grants: single pages of blocks that another host holds. tierd-net receives and verifies
 * them in memory that is mapped here for reading alone (abi/net.h, OPEN), and they are copied from
 * there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "libtier/src/error.h"
#include "libtier/src/hosts.h"

#define READ_NS (1 * NS_PER_S)

struct tier_grant {
	int fd; /* to tierd-net */
	const void *window;
	const tier_geometry *g;
	uint32_t blocks;
	uint64_t id; /* of the last PICK */
	int error;   /* of the connection: it is of no use any more */
	struct {
		struct net_pick m;
		struct net_pick_page page[NET_FRAME_PAGES_MAX];
	} ask;
	union hosts_answer answer;
};

static void drop(struct tier_grant *g)
{
	if (g->window)
		munmap((void *)(uintptr_t)g->window, NET_PICK_BYTES);
	if (g->fd >= 0)
		close(g->fd);
	free(g);
}

int64_t tier_grant_open(tier_context *c, const tier_key *keys, uint32_t count,
			const struct tier_hosts_options *options, struct tier_hosts *out,
			tier_grant **to)
{
	struct hosts_begun begun CLEANUP(hosts_begun_close) = { NET_OPEN, -1, -1, 0 };
	struct tier_grant *g;
	int64_t blocks;
	int rc;

	if (!out || !to)
		return error_note(-EINVAL, "tier_grant_open: out or g is NULL");
	*to = NULL;
	blocks = hosts_begin(c, keys, count, options, out, &begun);
	if (blocks <= 0)
		return blocks;
	g = calloc(1, sizeof(*g));
	if (!g)
		return error_note(-ENOMEM, "hosts: out of memory");
	g->fd = take_fd(&begun.fd);
	g->g = tier_context_geometry(c);
	g->blocks = (uint32_t)blocks;
	rc = hosts_map(begun.memory, NET_PICK_BYTES, &g->window);
	if (rc) {
		drop(g);
		return rc;
	}
	*to = g;
	return blocks;
}

/* A page's bytes; 0: there is none such. */
static uint32_t page_bytes(const struct tier_grant *g, const struct tier_grant_page *p)
{
	struct tier_part part;

	for (uint32_t i = 0; p->block < g->blocks && tier_geometry_part(g->g, i, &part) == 0; i++)
		if (p->page - part.page_base < part.layers * part.groups)
			return part.page_bytes;
	return 0;
}

static int check(const struct tier_grant *g, const struct tier_grant_page *pages, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t bytes = page_bytes(g, &pages[i]);

		if (!bytes || !pages[i].to)
			return error_set(-EINVAL, "hosts: entry %u: no such page, or no place", i);
		if (bytes > NET_PICK_BYTES)
			return error_set(-EINVAL, "hosts: a page of more than %u bytes",
					 NET_PICK_BYTES);
	}
	return 0;
}

/* As many as one PICK may have, from the first. */
static uint32_t fill(struct tier_grant *g, const struct tier_grant_page *pages, uint32_t count,
		     uint64_t until_ns)
{
	struct net_pick *m = &g->ask.m;
	uint32_t bytes = 0, n = 0;

	for (; n < count && n < NET_FRAME_PAGES_MAX; n++) {
		uint32_t more = page_bytes(g, &pages[n]);

		if (bytes + more > NET_PICK_BYTES)
			break;
		bytes += more;
		g->ask.page[n] = (struct net_pick_page){ pages[n].block, pages[n].page };
	}
	*m = (struct net_pick){
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_PICK,
			    .length = (uint32_t)(sizeof(*m) + n * sizeof(g->ask.page[0])) },
		.id = ++g->id, .wait_ns = until_ns, .count = n,
	};
	return n;
}

/* From the window to where they belong: how many. */
static int64_t take(struct tier_grant *g, struct tier_grant_page *pages, uint32_t count)
{
	const struct net_picked *m = &g->answer.picked.m;
	const struct net_picked_page *got = g->answer.picked.page;
	uint32_t at = 0;
	int64_t came = 0;

	if (m->header.type != NET_PICKED || m->id != g->id || (!m->error && m->count != count))
		return error_note(-EPROTO, "hosts: that is no answer to what was picked");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t bytes = page_bytes(g, &pages[i]);

		pages[i].error = m->error ? m->error : got[i].error;
		if (pages[i].error)
			continue;
		if (bytes > m->bytes - at)
			return error_note(-EPROTO, "hosts: fewer bytes came than pages");
		memcpy(pages[i].to, (const uint8_t *)g->window + at, bytes);
		at += bytes;
		came++;
	}
	return m->error && m->error != -ENODATA && m->error != -ETIMEDOUT ?
		       error_set(m->error, "hosts: the epoch is another one, or the context is "
					   "not shared any more; open again") : came;
}

static int64_t exchange(struct tier_grant *g, struct tier_grant_page *pages, uint32_t count,
			uint64_t until_ns)
{
	int none CLEANUP_CLOSE = -1;
	int rc = hosts_send(g->fd, &g->ask.m.header, until_ns + HOSTS_GRACE_NS);

	if (rc == 0)
		rc = hosts_receive(g->fd, &g->answer, &none, until_ns + HOSTS_GRACE_NS);
	return rc ? rc : take(g, pages, count);
}

int64_t tier_grant_read(tier_grant *g, struct tier_grant_page *pages, uint32_t count,
			uint64_t deadline_ns)
{
	uint64_t until_ns = deadline_ns ? deadline_ns : time_now_ns() + READ_NS;
	int64_t came = 0, n;
	uint32_t at = 0;
	int rc;

	if (!g || (count && !pages))
		return error_note(-EINVAL, "tier_grant_read: no grant, or no pages");
	rc = check(g, pages, count);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < count; i++)
		pages[i].error = -ETIMEDOUT;
	while (at < count && !g->error && (!at || time_now_ns() < until_ns)) {
		uint32_t some = fill(g, pages + at, count - at, until_ns);

		n = exchange(g, pages + at, some, until_ns);
		if (n < 0)
			g->error = (int)n; /* what it would say next is not known */
		came += n < 0 ? 0 : n;
		at += some;
	}
	return g->error ? error_set(g->error, "hosts: the grant is over; open again") : came;
}

void tier_grant_close(tier_grant *g)
{
	if (g)
		drop(g);
}
