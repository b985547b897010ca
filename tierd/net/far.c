/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams from afar (R7): an engine reads the layers of what another host holds while the rest is
 * on its way. Pages are received in memory that the engine has mapped for reading alone (abi/net.h,
 * net_far), verified there, and announced layer by layer; when the holder has said that its grant
 * was whole they are put like any pull's. That memory is the stream's own, so that an engine sees
 * nothing of others; it is given back when the engine hangs up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/cleanup.h"
#include "libtier/base/time.h"
#include "tierd/net/node.h"

#define KEEP_NS (60 * NS_PER_S) /* for an engine that does not hang up */
#define TELL_NS (1 * NS_PER_S)  /* to one that does not read: its words fit its socket */

/* Where the pages of each part begin within a block. */
static void lay_out(struct far *f, const tier_geometry *g)
{
	struct tier_part part;

	for (uint32_t i = 0; i < ABI_PARTS_MAX && tier_geometry_part(g, i, &part) == 0; i++) {
		f->part[i].offset = f->block_bytes;
		f->part[i].groups = part.groups;
		f->part[i].stride = part.page_stride;
		f->block_bytes += (uint64_t)part.layers * part.groups * part.page_stride;
	}
}

int far_memory(uint64_t bytes, void **out, int *for_reading)
{
	char path[40];
	int fd CLEANUP_CLOSE = memfd_create("tier-far", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *at;

	if (fd < 0)
		return -errno;
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*out = at;
	/* What the engine gets cannot be mapped to write, nor opened again by another user. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*for_reading = open(path, O_RDONLY | O_CLOEXEC);
	return *for_reading < 0 ? -errno : 0;
}

static int make_memory(struct far *f)
{
	void *at = NULL;
	int rc = far_memory(f->bytes, &at, &f->fd);

	f->line = at;
	return rc;
}

static bool enter(struct node *n)
{
	LOCK_SCOPE(&n->pullers_lock);
	if (n->fars >= n->config.pullers)
		return false;
	n->fars++;
	return true;
}

static void leave(struct node *n)
{
	LOCK_SCOPE(&n->pullers_lock);
	n->fars--;
}

int far_open(struct node *n, const struct wanted *w, uint32_t blocks, struct far **out)
{
	struct far *f;
	uint32_t most;
	int rc;

	if (!enter(n))
		return -EBUSY;
	f = calloc(1, sizeof(*f));
	if (!f) {
		leave(n);
		return -ENOMEM;
	}
	*f = (struct far){ .n = n, .fd = -1 };
	lay_out(f, tier_context_geometry(w->share->c));
	most = (uint32_t)(n->config.streams_bytes / n->config.pullers / f->block_bytes);
	most = most < NET_KEYS_MAX ? most : NET_KEYS_MAX;
	f->blocks = blocks < most ? blocks : most;
	f->bytes = NET_FAR_LINE + f->blocks * f->block_bytes;
	rc = f->blocks ? make_memory(f) : -E2BIG;
	if (rc)
		far_close(n, f);
	else
		*out = f;
	return rc;
}

void far_close(struct node *n, struct far *f)
{
	if (f->line) {
		atomic_exchange_u32(&f->line->gone, 1); /* before a byte of it goes */
		/* An engine may keep its mapping, not the memory. */
		madvise((uint8_t *)f->line + NET_FAR_LINE, f->bytes - NET_FAR_LINE, MADV_REMOVE);
		munmap(f->line, f->bytes);
	}
	if (f->fd >= 0)
		close(f->fd);
	free(f);
	leave(n);
}

void far_wait_gone(struct far *f)
{
	int rc = conn_message(f->to, time_now_ns() + KEEP_NS);

	if (rc == 0) /* nothing is to be said any more */
		log_warn(&f->n->log, "an engine speaks amid a stream", NULL,
			 "are libtier and tierd-net of one version?", "");
}

void *far_page(const struct far *f, uint32_t block, const struct shape_page *p)
{
	return (uint8_t *)f->line + NET_FAR_LINE + block * f->block_bytes +
	       f->part[p->part].offset +
	       ((uint64_t)p->layer * f->part[p->part].groups + p->group) * f->part[p->part].stride;
}

int far_announce(struct far *f, const struct pull *p, bool publishes)
{
	uint32_t layers = pull_layers(p, publishes, time_now_ns());
	struct net_word word = {
		.header = { .magic = NET_MAGIC, .version = NET_VERSION, .type = NET_LAYER,
			    .length = sizeof(word) },
		.id = layers,
	};

	if (layers <= f->line->ready)
		return 0;
	f->line->blocks = p->blocks;
	atomic_store_release_u32(&f->line->ready, layers);
	return conn_send_message(f->to, &word.header, time_now_ns() + TELL_NS);
}
