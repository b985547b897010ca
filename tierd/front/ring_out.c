/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion rings and the wake-ups of those who wait for them.
 *
 * A wake-up must not let a client stop the loop: the client holds the same open eventfd, can clear
 * its O_NONBLOCK and fill its counter, and a write(2) of ours would then wait for that client. So
 * the kernel signals it for us: an asynchronous read of one byte of our own that names the eventfd
 * as its IOCB_FLAG_RESFD; that signal never waits. Where there is no aio, write(2) has to do, and
 * the operator is told.
 */
#include <assert.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libtier/base/atomic.h"
#include "libtier/base/time.h"
#include "tierd/front/front_priv.h"

#define SIGNAL_BATCH 64

/* ---- wake-ups ------------------------------------------------------------------------------ */

int ring_out_open(struct front *f)
{
	aio_context_t aio = 0;

	f->aio_fd = memfd_create("tier-wake", MFD_CLOEXEC);
	if (f->aio_fd < 0 || ftruncate(f->aio_fd, 4096))
		return -errno;
	if (syscall(SYS_io_setup, SIGNAL_BATCH, &aio))
		aio = 0;
	f->aio = aio;
	return 0;
}

void ring_out_close(struct front *f)
{
	if (f->aio)
		syscall(SYS_io_destroy, f->aio);
	close(f->aio_fd);
	f->aio = 0;
}

static void signal_by_write(const int *fd, uint32_t count)
{
	uint64_t one = 1;

	for (uint32_t i = 0; i < count; i++)
		while (write(fd[i], &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

static void signal_by_aio(struct front *f, const int *fd, uint32_t count)
{
	struct iocb block[SIGNAL_BATCH], *list[SIGNAL_BATCH];
	struct io_event done[SIGNAL_BATCH];
	struct timespec none = { 0, 0 };
	uint32_t begun = 0;

	for (uint32_t i = 0; i < count; i++) {
		block[i] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD,
			.aio_fildes = (uint32_t)f->aio_fd,
			.aio_buf = (uintptr_t)&f->aio_byte,
			.aio_nbytes = 1,
			.aio_flags = IOCB_FLAG_RESFD,
			.aio_resfd = (uint32_t)fd[i],
		};
		list[i] = &block[i];
	}
	while (begun < count) {
		long n = syscall(SYS_io_submit, f->aio, count - begun, list + begun);

		/* The first of the rest cannot be signalled at all: pass it over. */
		begun += n > 0 ? (uint32_t)n : 1;
	}
	syscall(SYS_io_getevents, f->aio, 0, SIGNAL_BATCH, done, &none);
}

void ring_out_signal(struct front *f, const int *fd, uint32_t count)
{
	assert(count <= SIGNAL_BATCH);
	if (f->aio)
		signal_by_aio(f, fd, count);
	else
		signal_by_write(fd, count);
}

/* ---- completions --------------------------------------------------------------------------- */

static void sample_end(struct front *f, uint32_t client, uint64_t user_data)
{
	for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++) {
		struct sample *sample = &f->sample[k];

		if (!sample->running || sample->user_data != user_data || sample->client != client)
			continue;
		sample->running = false;
		hist_record(&f->latency[k], time_now_ns() - sample->since_ns);
	}
}

static void owe(struct front *f, struct connection *s)
{
	if (s->owes_wake)
		return;
	s->owes_wake = true;
	list_push_back(&f->posted, &s->posted_link);
}

void front_complete(struct front *f, uint32_t client, const struct abi_cqe *cqe)
{
	struct connection *s = client < f->config.clients_max ? &f->connection[client] : NULL;

	if (!s || s->state != CONNECTION_OPEN)
		return;
	assert(s->in_flight > 0);
	sample_end(f, client, cqe->user_data);
	s->cq[s->cq_tail & (s->cq_entries - 1)] = *cqe;
	s->cq_tail++;
	s->in_flight--;
	s->posted++;
	atomic_store_release_u32(&s->header->cq_tail, s->cq_tail);
	owe(f, s);
}

void front_wake(struct front *f, uint32_t client)
{
	struct connection *s = client < f->config.clients_max ? &f->connection[client] : NULL;

	if (!s || s->state != CONNECTION_OPEN)
		return;
	s->must_wake = true;
	owe(f, s);
}

void front_flush(struct front *f)
{
	int fd[SIGNAL_BATCH];
	uint32_t count = 0, here;

	slab_tick(f);
	if (list_empty(&f->posted))
		return;
	/* Our cq_tail before the look at cq_wait; the client does the reverse. */
	full_fence();
	here = (uint32_t)sched_getcpu() + 1;
	list_each(at, &f->posted) {
		struct connection *s = list_entry(at, struct connection, posted_link);
		uint32_t waits = atomic_load_relaxed_u32(&s->header->cq_wait);
		bool must = s->must_wake;

		list_remove(at);
		s->owes_wake = s->must_wake = false;
		if (!must && waits == 0)
			continue;
		f->woke_here |= waits && waits == here;
		fd[count++] = s->event;
		if (count == SIGNAL_BATCH) {
			ring_out_signal(f, fd, count);
			count = 0;
		}
	}
	if (count)
		ring_out_signal(f, fd, count);
}

bool front_woke_here(struct front *f)
{
	bool here = f->woke_here;

	f->woke_here = false;
	return here;
}

void front_describe(const struct front *f, struct obs *o)
{
	obs_fact(o, "client processes", "%s",
		 f->peer_pidfd ? "watched by SO_PEERPIDFD" :
				 "watched by pidfd_open (before Linux 6.5)");
	obs_fact(o, "wake-ups", "%s",
		 f->aio ? "by the kernel (aio): no client can delay them" :
			  "by write(2), no aio here: a hostile client could stop the daemon");
	for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++)
		obs_latency(o, "request", obs_class_name[k], &f->latency[k]);
}
