/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients are given: sealed memory of our making, and descriptors over the socket (W3). Our
 * seals keep a client from shrinking it under us (SIGBUS), its own (R5) from punching holes. It
 * must set those itself: they refuse every later writable mapping, and setting one waits for the
 * punch that is under way. That it is set says that none is, and that is asked without waiting.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "tierd/front/front_priv.h"

#define GRANT_FDS_MAX WIRE_SLAB_PIECES_MAX

/*
 * Most bytes of answers that a client may have left unread when it is sent descriptors: a handful
 * of messages. Descriptors on their way count against the daemon's limit of open files; a client
 * that asks and never reads must not use it up for all.
 */
#define GRANT_UNREAD_MAX 8192

#define GRANT_BRIEF_BLOCKS (2u << 20 >> 9) /* of staging, in units of stat: freed at once */

int grant_shared(struct shared *out, const char *label, uint64_t bytes, int protection)
{
	int fd CLEANUP_CLOSE = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *addr, *apart = NULL;

	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	addr = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED)
		return -errno;
	/* What we write must be mapped before the seal; to read it can be mapped after it. */
	if (protection & PROT_WRITE)
		apart = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (apart == MAP_FAILED) {
		munmap(addr, bytes);
		return -ENOMEM;
	}
	*out = (struct shared){ .fd = take_fd(&fd), .addr = addr, .bytes = bytes, .apart = apart };
	return 0;
}

/* ---- end ----------------------------------------------------------------------------------- */

struct remains {
	struct shared region, staging;
};

static void release(struct shared *shared)
{
	if (shared->apart)
		munmap(shared->apart, shared->bytes);
	if (shared->addr) {
		munmap(shared->addr, shared->bytes);
		close(shared->fd);
	}
	*shared = (struct shared){ .fd = -1 };
}

static void *release_remains(void *arg)
{
	struct remains *r = arg;

	release(&r->region);
	release(&r->staging);
	free(r);
	return NULL;
}

/* Most often we have the last descriptor, and its end frees the pages; or a hole is in the way. */
static bool takes_long(const struct connection *s)
{
	struct stat st;

	if (!s->staging.addr)
		return false;
	return s->region.apart || fstat(s->staging.fd, &st) || st.st_blocks > GRANT_BRIEF_BLOCKS;
}

/* Of a thread's own: nothing else refers to it. */
static bool release_aside(const struct connection *s)
{
	struct remains *r = malloc(sizeof(*r));
	pthread_t thread;

	if (!r)
		return false;
	*r = (struct remains){ s->region, s->staging };
	if (pthread_create(&thread, NULL, release_remains, r)) {
		free(r);
		return false;
	}
	pthread_detach(thread);
	return true;
}

void grant_release(struct connection *s)
{
	if (takes_long(s) && release_aside(s)) {
		s->region = s->staging = (struct shared){ .fd = -1 };
		return;
	}
	release(&s->region);
	release(&s->staging);
}

/* ---- begin --------------------------------------------------------------------------------- */

static bool is_sealed(const struct shared *shared)
{
	int seals = fcntl(shared->fd, F_GET_SEALS);

	return seals >= 0 && (seals & ABI_CLIENT_SEALS) == ABI_CLIENT_SEALS;
}

static int settle(struct shared *m)
{
	void *at = m->apart ? mremap(m->apart, m->bytes, m->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
				     m->addr) :
			      mmap(m->addr, m->bytes, PROT_READ, MAP_SHARED | MAP_FIXED, m->fd, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	m->apart = NULL;
	return 0;
}

int grant_settle(struct connection *s)
{
	int rc;

	if (s->settled)
		return 0;
	if (!is_sealed(&s->region) || !is_sealed(&s->staging))
		return -EPROTO;
	rc = s->region.apart ? settle(&s->region) : 0;
	if (rc == 0)
		rc = settle(&s->staging);
	s->settled = rc == 0;
	return rc;
}

const char *grant_unsettled(int error)
{
	return error == -EPROTO ? "its rings and staging can be punched under the daemon, its "
				  "library did not seal them; update the library" :
				  "the daemon cannot map its rings and staging; it has no memory";
}

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + ABI_PAGE_ALIGN - 1) & ~(uint64_t)(ABI_PAGE_ALIGN - 1);
}

int grant_region(struct front *f, struct connection *s)
{
	uint64_t sq = ABI_PAGE_ALIGN;
	uint64_t cq = sq + page_up((uint64_t)s->sq_entries * sizeof(struct abi_sqe));
	uint64_t readers = cq + page_up((uint64_t)s->cq_entries * sizeof(struct abi_cqe));
	uint64_t streams = readers + page_up((uint64_t)s->readers_max * sizeof(struct abi_reader));
	uint64_t total = streams + page_up(ABI_STREAMS_MAX * sizeof(struct abi_stream));
	struct abi_region_header *header;
	int rc = grant_shared(&s->region, "tier-region", total, PROT_READ | PROT_WRITE);

	if (rc)
		return rc;
	header = s->region.apart;
	s->header = s->region.addr;
	s->sq = (const void *)((uint8_t *)s->region.addr + sq);
	s->cq = (void *)((uint8_t *)s->region.addr + cq);
	s->readers = (const void *)((uint8_t *)s->region.addr + readers);
	s->streams = (void *)((uint8_t *)s->region.addr + streams);
	s->sq_head = s->cq_tail = ABI_RING_BEGIN;
	*header = (struct abi_region_header){
		.magic = ABI_REGION_MAGIC,
		.version = ABI_VERSION,
		.features = ABI_REGION_STREAMS,
		.boot_token = f->config.boot_token,
		.total_bytes = total,
		.sq_entries = s->sq_entries,
		.cq_entries = s->cq_entries,
		.readers_max = s->readers_max,
		.streams_max = ABI_STREAMS_MAX,
		.sq_offset = sq,
		.cq_offset = cq,
		.reader_offset = readers,
		.staging_bytes = s->staging.bytes,
		.stream_offset = streams,
		.sq_tail = ABI_RING_BEGIN,
		.cq_head = ABI_RING_BEGIN,
		.sq_head = ABI_RING_BEGIN,
		.cq_tail = ABI_RING_BEGIN,
		.sq_wake = 1, /* parked: the first request rings the doorbell */
	};
	return 0;
}

static bool is_behind(const struct connection *s)
{
	int unread = 0;

	return ioctl(s->sock, SIOCOUTQ, &unread) == 0 && unread > GRANT_UNREAD_MAX;
}

int grant_send(struct connection *s, const void *message, size_t bytes, const int *fd,
	       uint32_t count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(GRANT_FDS_MAX * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)message, .iov_len = bytes };
	struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count && is_behind(s))
		return -EAGAIN;
	if (count) {
		struct cmsghdr *c;

		head.msg_control = control.bytes;
		head.msg_controllen = CMSG_SPACE(count * sizeof(int));
		c = CMSG_FIRSTHDR(&head);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fd, count * sizeof(int));
	}
	while (sendmsg(s->sock, &head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}
