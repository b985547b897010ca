/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients over a handover (abi/handover.h). Their connections end with the daemon, as always; what
 * goes on is what their readers hold. The next daemon has each of them gone and not dead, with its
 * region and its process, until that holds nothing: the former daemon took every word back, so
 * through what it granted nobody begins a lease any more.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tierd/front/front_priv.h"

bool front_leave(const struct front *f, uint32_t *at, struct handover_client *out, int *region,
		 int *process)
{
	for (; *at < f->config.clients_max; (*at)++) {
		const struct connection *s = &f->connection[*at];

		/* One that never settled has opened no context. */
		if (s->state != CONNECTION_GONE || !s->settled)
			continue;
		memset(out, 0, sizeof(*out));
		*out = (struct handover_client){
			.uid = s->uid,
			.gid = s->gid,
			.pid = s->pid,
			.readers_max = s->readers_max,
			.region_bytes = s->region.bytes,
			.reader_offset = (uint64_t)((const uint8_t *)s->readers -
						    (const uint8_t *)s->region.addr),
		};
		memcpy(out->name, s->name, sizeof(out->name));
		core_client_attached(f->config.core, s->id, out->attached);
		*region = s->region.fd;
		*process = s->pidfd;
		(*at)++;
		return true;
	}
	return false;
}

/* Its rings are over: only its readers are looked at. It was sealed, so none can be punched. */
static int region_map(struct connection *s, const struct handover_client *k)
{
	uint64_t readers = (uint64_t)k->readers_max * sizeof(struct abi_reader);
	struct stat st;
	void *addr;

	if (k->readers_max > ABI_READERS_MAX || k->reader_offset % ABI_PAGE_ALIGN ||
	    k->reader_offset > k->region_bytes || readers > k->region_bytes - k->reader_offset ||
	    fstat(s->region.fd, &st) || (uint64_t)st.st_size != k->region_bytes)
		return -EBADMSG;
	addr = mmap(NULL, k->region_bytes, PROT_READ, MAP_SHARED, s->region.fd, 0);
	if (addr == MAP_FAILED)
		return -ENOMEM;
	s->region.addr = addr;
	s->region.bytes = k->region_bytes;
	s->header = addr;
	s->readers = (const void *)((const uint8_t *)addr + k->reader_offset);
	s->readers_max = k->readers_max;
	s->settled = true;
	return 0;
}

static void tell_core(struct turn *t, const struct connection *s, const struct handover_client *k)
{
	struct core_event event = { .kind = CORE_EV_CLIENT_OPEN };

	event.open = (struct core_client_open){
		.client = s->id,
		.uid = s->uid,
		.gid = s->gid,
		.readers = s->readers,
		.readers_max = s->readers_max,
	};
	turn_feed(t, &event);
	core_client_attach_all(t->core, s->id, k->attached);
	event = (struct core_event){ .kind = CORE_EV_CLIENT_GONE, .client = s->id };
	turn_feed(t, &event);
}

int front_take(struct front *f, struct turn *t, const struct handover_client *k, int region,
	       int process)
{
	struct connection *s = connection_slot(f);
	int rc;

	if (!s) {
		close(region);
		close(process);
		return -EUSERS;
	}
	s->region.fd = region;
	s->pidfd = process;
	s->state = CONNECTION_GONE;
	s->former = true;
	f->former++;
	s->uid = k->uid;
	s->gid = k->gid;
	s->pid = k->pid;
	memcpy(s->name, k->name, sizeof(s->name));
	s->name[sizeof(s->name) - 1] = '\0';
	s->since_ns = t->now_ns;
	rc = region_map(s, k);
	if (rc == 0)
		rc = watch_add(f, s, WATCH_PROCESS, s->pidfd, EPOLLIN);
	if (rc) {
		if (!s->region.addr)
			close(region);
		connection_free(f, s);
		return rc;
	}
	tell_core(t, s, k);
	return 0;
}

void handover_look(struct front *f, struct turn *t)
{
	f->former_next_ns = t->now_ns + FRONT_REVOKE_NS;
	for (uint32_t i = 0; f->former && i < f->config.clients_max; i++) {
		struct connection *s = &f->connection[i];

		if (s->former && connection_holds_nothing(s))
			connection_dead(f, t, s);
	}
}
