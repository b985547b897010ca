/*
 * The daemon of libtier's tests (test_libtier_fake.h): questions on the socket, and the descriptors
 * that go with the answers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_TESTS_LIBTIER_FAKE_SOCKET_H
#define TIER_TESTS_LIBTIER_FAKE_SOCKET_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "libtier/base/atomic.h"
#include "tests/unit/test_libtier_fake_context.h"

static inline void fake_send(struct fake_client *k, void *message, size_t bytes, const int *fds,
			     uint32_t fd_count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec iov = { message, bytes };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct wire_header *w = message;

	w->magic = WIRE_MAGIC;
	w->version = ABI_VERSION;
	w->length = (uint32_t)bytes;
	if (fd_count > 0) {
		struct cmsghdr *c;

		h.msg_control = control;
		h.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	/* A client that has gone is no concern of ours. */
	if (sendmsg(k->sock, &h, MSG_NOSIGNAL) < 0)
		return;
}

static inline void fake_error(struct fake_client *k, uint32_t seq, int error, const char *text)
{
	struct wire_error e = { .header = { .type = WIRE_ERROR, .seq = seq }, .error = error };

	snprintf(e.text, sizeof(e.text), "%s", text);
	fake_send(k, &e, sizeof(e), NULL, 0);
}

/* An error with a descriptor, which nobody is to keep. */
static inline void fake_stale(struct fake_client *k, uint32_t seq)
{
	struct wire_error e = { .header = { .type = WIRE_ERROR, .seq = seq }, .error = -EIO,
				.text = "of another question" };

	fake_send(k, &e, sizeof(e), &k->sock, 1);
}

static inline void fake_hello(struct fake *f, struct fake_client *k, const struct wire_hello *q)
{
	struct wire_welcome w = { .header = { .type = WIRE_WELCOME, .seq = q->header.seq } };
	uint64_t sq = sizeof(struct abi_region_header);
	uint64_t cq = sq + FAKE_SQ * sizeof(struct abi_sqe);
	uint64_t readers = cq + FAKE_CQ * sizeof(struct abi_cqe);
	uint64_t streams;
	int fds[4];

	k->region_bytes = readers + f->readers_max * sizeof(struct abi_reader);
	k->region_bytes = (k->region_bytes + sizeof(struct abi_stream) - 1) &
			  ~(sizeof(struct abi_stream) - 1);
	streams = k->region_bytes;
	k->region_bytes += FAKE_STREAMS * sizeof(struct abi_stream);
	k->staging_bytes = q->staging_bytes < f->staging_max ? q->staging_bytes : f->staging_max;
	fds[0] = fake_memfd(k->region_bytes);
	fds[1] = fake_memfd(k->staging_bytes);
	fds[2] = k->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fds[3] = k->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	k->region = fake_map(fds[0], k->region_bytes);
	k->staging = fake_map(fds[1], k->staging_bytes);
	*k->region = (struct abi_region_header){
		.magic = ABI_REGION_MAGIC,
		.version = ABI_VERSION,
		.features = ABI_REGION_STREAMS,
		.boot_token = f->boot_token + f->region_boot,
		.total_bytes = k->region_bytes,
		.sq_entries = FAKE_SQ,
		.cq_entries = FAKE_CQ,
		.readers_max = f->readers_max,
		.sq_offset = sq,
		.cq_offset = cq,
		.reader_offset = readers,
		.staging_bytes = k->staging_bytes,
		.stream_offset = streams + f->stream_lie,
		.streams_max = FAKE_STREAMS,
		.sq_tail = ABI_RING_BEGIN,
		.cq_head = ABI_RING_BEGIN,
		.sq_head = ABI_RING_BEGIN,
		.cq_tail = ABI_RING_BEGIN,
		.sq_wake = 1,
	};
	k->sq_head = k->cq_tail = ABI_RING_BEGIN;
	k->lines = (void *)((uint8_t *)k->region + streams);
	w.boot_token = f->boot_token;
	w.flags = f->places ? WIRE_PLACES : 0;
	w.staging_bytes = k->staging_bytes + f->staging_lie;
	fake_send(k, &w, sizeof(w), fds, 4);
	close(fds[0]);
	close(fds[1]);
}

static inline int fake_read_only(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static inline void fake_info(struct fake *f, struct fake_client *k, uint32_t id, uint32_t seq)
{
	struct fake_context *x = &f->context[id];
	struct wire_ctx_info info = { .header = { .type = WIRE_CTX_INFO, .seq = seq },
				      .context_id = id,
				      .writable = x->writable,
				      .uid = id + 1 + f->other,
				      .index_bytes = x->index_bytes };
	int fds[1 + ABI_MEM_TIERS];

	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++)
		fds[i] = fake_read_only(x->fd[i]);
	for (uint32_t i = 0; i < ABI_MEM_TIERS; i++)
		info.mem_bytes[i] = x->ix.header->mem_bytes[i];
	fake_send(k, &info, sizeof(info), fds, 1 + ABI_MEM_TIERS);
	for (uint32_t i = 0; i < 1 + ABI_MEM_TIERS; i++)
		close(fds[i]);
}

static inline void fake_context_question(struct fake *f, struct fake_client *k,
					 const struct wire_ctx *q)
{
	uint32_t id = 0;

	f->asked = *q;
	while (id < FAKE_CONTEXTS && (!f->context[id].used || f->context[id].hidden ||
				      strcmp(f->context[id].name, q->name) != 0))
		id++;
	if (id == FAKE_CONTEXTS && q->header.type == WIRE_CTX_CREATE) {
		id = 0;
		while (id < FAKE_CONTEXTS && f->context[id].used)
			id++;
		if (id < FAKE_CONTEXTS)
			fake_context_make(f, id, q->name, &q->geometry);
	}
	if (f->refusal || id == FAKE_CONTEXTS) {
		fake_error(k, q->header.seq, f->refusal ? f->refusal : -ENOENT, "not there");
	} else if (q->header.type == WIRE_CTX_EPOCH || q->header.type == WIRE_CTX_REMOVE) {
		struct wire_done d = { .header = { .type = WIRE_DONE, .seq = q->header.seq } };
		struct index *ix = &f->context[id].ix;

		if (q->header.type == WIRE_CTX_EPOCH)
			index_epoch(ix, q->epoch ? q->epoch : ix->header->epoch + 1);
		else
			atomic_store_release_u64(&ix->header->closed, 1);
		d.value = ix->header->epoch;
		fake_send(k, &d, sizeof(d), NULL, 0);
	} else {
		fake_info(f, k, id, q->header.seq);
	}
}

static inline void fake_place(struct fake *f, struct fake_client *k, const struct wire_place *q)
{
	struct wire_place answer = { .header = { .type = WIRE_PLACE, .seq = q->header.seq },
				     .bytes = ABI_HUGE };
	int fd = fake_memfd(ABI_HUGE);

	f->placed++;
	fake_send(k, &answer, sizeof(answer), &fd, 1);
	close(fd);
}

static inline void fake_admin(struct fake_client *k, const struct wire_header *q)
{
	struct {
		struct wire_text t;
		char text[16];
	} m = { .t = { .header = { .type = WIRE_TEXT, .seq = q->seq }, .more = 1 } };

	memcpy(m.text, "{\"verb\":", 8);
	fake_send(k, &m, sizeof(m.t) + 8, NULL, 0);
	m.t.more = 0;
	memcpy(m.text, "\"ok\"}", 5);
	fake_send(k, &m, sizeof(m.t) + 5, NULL, 0);
}

static inline void fake_client_drop(struct fake_client *k)
{
	if (k->sock < 0)
		return;
	close(k->sock);
	if (k->region) {
		munmap(k->region, k->region_bytes);
		munmap(k->staging, k->staging_bytes);
		close(k->doorbell);
		close(k->event);
	}
	*k = (struct fake_client){ .sock = -1, .doorbell = -1, .event = -1 };
}

static inline void fake_question(struct fake *f, struct fake_client *k)
{
	static _Thread_local uint8_t bytes[WIRE_MESSAGE_MAX] __attribute__((aligned(8)));
	const struct wire_header *q = (const void *)bytes;
	ssize_t n = recv(k->sock, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n < (ssize_t)sizeof(*q)) {
		fake_client_drop(k);
		return;
	}
	usleep(f->delay_us);
	if (f->stale)
		fake_stale(k, q->seq - 1);
	switch (q->type) {
	case WIRE_HELLO:
		fake_hello(f, k, (const void *)bytes);
		break;
	case WIRE_ADMIN:
		(f->admin ? f->admin : fake_admin)(k, q);
		break;
	case WIRE_PLACE:
		fake_place(f, k, (const void *)bytes);
		break;
	default:
		fake_context_question(f, k, (const void *)bytes);
	}
}

#endif
