/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From actions to backends and back; see dispatch.h. A read is fed back only after its pieces were
 * verified: small ones here, which is cheaper than waking a worker, the rest by the workers.
 */
#include "tierd/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/bounce.h"
#include "tierd/shell.h"

/* What reads to verify, copies and a discard need at a time, which find a job always. */
#define JOBS_KEPT (CORE_IO_MAX + CORE_COPIES_MAX + 1u)
/* A prepare is a hint: it is dropped rather than that others find no job. */
#define PREPARE_JOBS_FREE (JOBS_KEPT + 256u)

static void begin_copy(struct shell *s, struct core_copy *copy, struct core_io *io);

/* One that was bounced has its bytes where they belong first, and its own addresses again. */
static void feed_io(struct shell *s, struct core_io *io)
{
	struct core_event event = { .kind = CORE_EV_IO_DONE, .io = io };
	struct core_copy *copy = bounce_out(s->dispatch.bounces, io);

	if (copy)
		begin_copy(s, copy, io);
	else
		turn_feed(&s->loop.turn, &event);
}

/* ---- the trace ----------------------------------------------------------------------------- */

static void note_io(struct shell *s, enum trace_phase phase, const struct core_io *io)
{
	trace_note(&s->trace, (struct trace_record){
		.kind = io->write ? TRACE_WRITE : TRACE_READ, .phase = (uint8_t)phase,
		.who = (uint16_t)io->device, .klass = io->klass, .id = (uintptr_t)io,
		.res = phase == TRACE_END && io->res < 0 ? (int16_t)io->res : 0,
		.bytes = io->bytes });
}

static void note_flush(struct shell *s, enum trace_phase phase, uint32_t drive, int res)
{
	trace_note(&s->trace, (struct trace_record){ .kind = TRACE_FLUSH, .phase = (uint8_t)phase,
						     .who = (uint16_t)drive,
						     .res = (int16_t)res });
}

static uint64_t job_bytes(const struct job *job)
{
	uint64_t bytes = 0;

	if (job->kind == JOB_VERIFY)
		return job->io->bytes;
	if (job->kind != JOB_COPY)
		return job->range.bytes;
	for (uint32_t i = 0; i < job->copy->count; i++)
		bytes += job->copy->item[i].bytes;
	return bytes;
}

static void note_job(struct shell *s, enum trace_phase phase, const struct job *job)
{
	static const uint8_t kind[] = {
		[JOB_COPY] = TRACE_COPY,       [JOB_VERIFY] = TRACE_VERIFY,
		[JOB_PREPARE] = TRACE_PREPARE, [JOB_PUNCH] = TRACE_PUNCH,
		[JOB_DISCARD] = TRACE_DISCARD,
	};

	if (s->trace.on)
		trace_add(&s->trace, (struct trace_record){
			.kind = kind[job->kind], .phase = (uint8_t)phase, .klass = job->klass,
			.id = (uintptr_t)job, .bytes = job_bytes(job) });
}

static void begin_job(struct shell *s, struct job *job)
{
	note_job(s, TRACE_BEGIN, job);
	worker_submit(s->workers, job);
}

/* ---- the device ---------------------------------------------------------------------------- */

static void watch_start(struct stopwatch *watch, const struct core_io *io)
{
	if (!watch->io)
		*watch = (struct stopwatch){ io, time_now_ns() };
}

static void watch_stop(struct stopwatch *watch, const struct core_io *io, struct hist *hist)
{
	if (watch->io != io)
		return;
	hist_record(hist, time_now_ns() - watch->since_ns);
	watch->io = NULL;
}

static int submit_once(struct shell *s, const struct deferred *d)
{
	struct io_uring *ring = &s->loop.ring;

	return d->io ? s->drive_ops->submit(s->drive[d->io->device].device, ring, d->io) :
		       s->drive_ops->submit_flush(s->drive[d->device].device, ring, d->token);
}

static int submit(struct shell *s, const struct deferred *d)
{
	int rc;

	rc = submit_once(s, d);
	if (rc == -EAGAIN) {
		io_uring_submit(&s->loop.ring);
		rc = submit_once(s, d);
	}
	return rc;
}

static void fail(struct shell *s, const struct deferred *d, int rc)
{
	struct core_event event = { .kind = CORE_EV_SYNC_DONE };

	s->dispatch.ios--;
	if (d->io) {
		d->io->res = rc;
		note_io(s, TRACE_END, d->io);
		feed_io(s, d->io);
		return;
	}
	note_flush(s, TRACE_END, d->device, rc);
	event.sync.device = d->device;
	event.sync.token = d->token;
	event.sync.res = rc;
	turn_feed(&s->loop.turn, &event);
}

/* What the ring has no room for waits its turn, in order. */
static void submit_or_defer(struct shell *s, struct deferred d)
{
	struct dispatch *p = &s->dispatch;
	int rc = p->deferred_head != p->deferred_tail ? -EAGAIN : submit(s, &d);

	if (rc == -EAGAIN) {
		assert(p->deferred_tail - p->deferred_head < DISPATCH_DEFERRED_MAX);
		p->deferred[p->deferred_tail++ % DISPATCH_DEFERRED_MAX] = d;
	} else if (rc) {
		fail(s, &d, rc);
	}
}

static void submit_deferred(struct shell *s)
{
	struct dispatch *p = &s->dispatch;

	while (p->deferred_head != p->deferred_tail) {
		struct deferred d = p->deferred[p->deferred_head % DISPATCH_DEFERRED_MAX];
		int rc = submit(s, &d);

		if (rc == -EAGAIN)
			return;
		p->deferred_head++;
		if (rc)
			fail(s, &d, rc);
	}
}

/* Memory that only copies reach is no place for the drive to read into, or to write from. */
static struct core_copy *bounce(struct shell *s, struct core_io *io)
{
	bool device = s->obs.tier[ABI_TIER_CXL].device && !io->direct;

	return device ? bounce_in(s->dispatch.bounces, io) : NULL;
}

static void do_read(struct shell *s, const struct core_action *a)
{
	s->dispatch.ios++;
	watch_start(&s->dispatch.reading[a->io->klass], a->io);
	note_io(s, TRACE_BEGIN, a->io);
	bounce(s, a->io);
	if (!prepare_hold(&s->dispatch.prepare, a->io))
		submit_or_defer(s, (struct deferred){ .io = a->io });
}

static void do_write(struct shell *s, const struct core_action *a)
{
	struct core_copy *copy;

	s->dispatch.ios++;
	watch_start(&s->dispatch.writing, a->io);
	note_io(s, TRACE_BEGIN, a->io);
	copy = bounce(s, a->io);
	if (copy)
		begin_copy(s, copy, a->io);
	else
		submit_or_defer(s, (struct deferred){ .io = a->io });
}

static void do_sync(struct shell *s, const struct core_action *a)
{
	s->dispatch.ios++;
	s->dispatch.sync_since_ns[a->sync.device] = time_now_ns();
	note_flush(s, TRACE_BEGIN, a->sync.device, 0);
	submit_or_defer(s, (struct deferred){ .device = a->sync.device, .token = a->sync.token });
}

/* A read has come: verify it, here or by a worker. */
static void verify(struct shell *s, struct core_io *io)
{
	struct dispatch *p = &s->dispatch;
	struct job *job = NULL;

	if (p->verify_bytes + io->bytes > DISPATCH_VERIFY_BYTES)
		job = worker_job(s->workers);
	if (!job) {
		p->verify_bytes += (uint32_t)io->bytes;
		worker_verify(io);
		feed_io(s, io);
		return;
	}
	job->kind = JOB_VERIFY;
	job->klass = io->klass;
	job->brief = io->klass == ABI_CLASS_DEMAND;
	job->io = io;
	begin_job(s, job);
}

static void io_done(struct shell *s, struct core_io *io)
{
	struct dispatch *p = &s->dispatch;

	p->ios--;
	note_io(s, TRACE_END, io);
	if (io->write)
		watch_stop(&p->writing, io, &p->write);
	else
		watch_stop(&p->reading[io->klass], io, &p->read[io->klass]);
	io->bad_mask = 0;
	if (io->res == -EFAULT && io->write)
		worker_find_gone(io);
	else if (io->res == -EFAULT && !io->direct)
		worker_mend(io);
	if (io->write || !io->verify || io->res < 0 || (uint64_t)io->res != io->bytes) {
		feed_io(s, io);
	} else if (p->landed_count == DISPATCH_LANDED_MAX) {
		verify(s, io);
	} else {
		turn_feed(&s->loop.turn,
			  &(struct core_event){ .kind = CORE_EV_IO_LANDED, .io = io });
		p->landed[p->landed_count++] = io;
	}
}

/* Whose operation it is. */
static uint32_t drive_of(const struct shell *s, uint64_t data)
{
	uint32_t i = 0;

	while (!s->drive_ops->owns(s->drive[i].device, data)) {
		i++;
		assert(i < s->drives);
	}
	return i;
}

void dispatch_completion(struct shell *s, uint64_t data, int res)
{
	struct core_event event = { .kind = CORE_EV_SYNC_DONE };
	uint32_t drive = drive_of(s, data), bit = 1u << drive;
	uint64_t token = 0;
	struct core_io *io = s->drive_ops->complete(s->drive[drive].device, &s->loop.ring, data,
						    &res, &token);

	if (io) {
		io_done(s, io);
	} else if (token) {
		s->dispatch.ios--;
		note_flush(s, TRACE_END, drive, res);
		hist_record(&s->dispatch.sync, time_now_ns() - s->dispatch.sync_since_ns[drive]);
		if (res < 0 && !(s->dispatch.flush_failed & bit))
			log_error(&s->log, "the store cannot be flushed", s->drive[drive].path,
				  "look at its device; what it should have kept is written again",
				  "error=\"%s\" errno=%d", strerror(-res), -res);
		s->dispatch.flush_failed &= ~bit;
		s->dispatch.flush_failed |= res < 0 ? bit : 0;
		event.sync.device = drive;
		event.sync.token = token;
		event.sync.res = res;
		turn_feed(&s->loop.turn, &event);
	}
}

/* ---- the workers --------------------------------------------------------------------------- */

/* io: of a copy from or to its bounce buffer; NULL: the core's own. */
static void begin_copy(struct shell *s, struct core_copy *copy, struct core_io *io)
{
	bool cxl = copy->src_tier == ABI_TIER_CXL || copy->dst_tier == ABI_TIER_CXL;
	struct job *job = worker_job(s->workers);

	assert(job); /* there are more jobs than the core has copies and reads */
	job->kind = JOB_COPY;
	job->klass = copy->klass;
	job->brief = false;
	job->copy = copy;
	job->io = io;
	/* The GPU's own engine moves bytes both ways; so does a device that stands for CXL. */
	if (cxl && s->obs.tier[ABI_TIER_CXL].device)
		job->ops = s->mem[ABI_TIER_CXL];
	else
		job->ops = s->mem[copy->src_tier == ABI_TIER_HBM ? ABI_TIER_HBM : copy->dst_tier];
	if (copy->src_tier == ABI_TIER_CXL)
		job->ops->hint(job->ops, copy);
	if (copy->in_place) /* it waits for the job: the core counts it as lent */
		job->region = &memory_find(s->memory, copy->context_id)->mem[copy->dst_tier];
	begin_job(s, job);
}

static void do_copy(struct shell *s, const struct core_action *a)
{
	begin_copy(s, a->copy, NULL);
}

/* A write has its bytes and goes to the drive; a read is where it belongs. */
static void bounced(struct shell *s, const struct job *job)
{
	struct core_event event = { .kind = CORE_EV_IO_DONE, .io = job->io };
	int rc = job->copy->res;

	if (job->io->write && rc) {
		fail(s, &(struct deferred){ .io = job->io }, rc);
	} else if (job->io->write) {
		submit_or_defer(s, (struct deferred){ .io = job->io });
	} else {
		job->io->res = rc ? rc : job->io->res;
		bounce_end(s->dispatch.bounces, job->io);
		turn_feed(&s->loop.turn, &event);
	}
}

static void punched(struct shell *s, const struct core_range *range, int res)
{
	struct core_event event = { .kind = CORE_EV_PUNCH_DONE, .range = *range };

	if (res)
		log_warn(&s->log, "punching memory failed", obs_tier_name[range->tier],
			 "the memory stays with the daemon until the context goes", "errno=%d",
			 -res);
	s->holes.punched += range->bytes;
	turn_feed(&s->loop.turn, &event);
}

static const struct mem_region *region_of(const struct shell *s, const struct core_range *range)
{
	const struct context_memory *memory = memory_find(s->memory, range->context_id);

	if (memory && range->tier == CORE_RANGE_INDEX)
		return &memory->index;
	return memory && range->tier < ABI_MEM_TIERS ? &memory->mem[range->tier] : NULL;
}

/* A job of which there must be one, to be handed over. */
static struct job *memory_job(struct shell *s, enum job_kind kind, const struct core_range *range)
{
	struct job *job = worker_job(s->workers);

	job->kind = kind;
	job->klass = kind == JOB_PREPARE ? ABI_CLASS_DEMAND : ABI_CLASS_CLEANUP;
	job->brief = kind == JOB_PREPARE && range->tier != CORE_RANGE_INDEX;
	job->ops = range->tier == CORE_RANGE_INDEX ? mem_index : s->mem[range->tier];
	job->region = region_of(s, range);
	job->range = *range;
	return job;
}

static uint8_t *memory_of(const struct mem_region *region, const struct core_range *range)
{
	return (uint8_t *)region->addr + range->offset;
}

/* Huge pages of a tier come before its bytes or never; those of an index may come later. */
static void refuse_prepare(struct shell *s, const struct core_range *range)
{
	struct core_event event = { .kind = CORE_EV_PREPARE_REFUSED, .range = *range };

	if (range->tier == CORE_RANGE_INDEX)
		turn_feed(&s->loop.turn, &event);
}

/* By areas, so that reads into the first need not wait for the last. */
static void do_prepare(struct shell *s, const struct core_action *a)
{
	struct core_range range = a->range;
	const struct mem_region *region = region_of(s, &range);
	uint64_t end = range.offset + range.bytes;

	for (; region && range.offset < end; range.offset += range.bytes) {
		if (worker_jobs_free(s->workers) <= PREPARE_JOBS_FREE) {
			refuse_prepare(s, &range);
			return;
		}
		if (range.tier != CORE_RANGE_INDEX) {
			uint64_t left = end - range.offset;

			range.bytes = left < PREPARE_AREA ? left : PREPARE_AREA;
			prepare_begin(&s->dispatch.prepare, memory_of(region, &range));
		}
		begin_job(s, memory_job(s, JOB_PREPARE, &range));
	}
}

/* Also where the context has gone meanwhile: its region is there as long as the job, and the next
 * context's may lie at the same address. */
static void prepared(struct shell *s, const struct job *job)
{
	struct prepare *p = &s->dispatch.prepare;
	struct job *punch;
	struct core_io *io;

	s->obs.memory_foreign += job->res > 0 ? (uint64_t)job->res : 0;
	if (job->range.tier == CORE_RANGE_INDEX)
		return;
	prepare_end(p, memory_of(job->region, &job->range));
	while ((io = prepare_release(p)))
		submit_or_defer(s, (struct deferred){ .io = io });
	while ((punch = prepare_release_punch(p)))
		begin_job(s, punch);
}

static void do_punch(struct shell *s, const struct core_action *a)
{
	const struct mem_region *region = region_of(s, &a->range);
	int res = 0;

	if (region && worker_jobs_free(s->workers) > JOBS_KEPT) {
		struct job *job = memory_job(s, JOB_PUNCH, &a->range);

		if (!prepare_hold_punch(&s->dispatch.prepare, job))
			begin_job(s, job);
		return;
	}
	if (region)
		res = s->mem[a->range.tier]->punch(region, a->range.offset, a->range.bytes);
	punched(s, &a->range, res);
}

static void do_discard(struct shell *s, const struct core_action *a)
{
	struct job *job = worker_job(s->workers);

	assert(job); /* as in do_copy */
	job->kind = JOB_DISCARD;
	job->klass = ABI_CLASS_CLEANUP;
	job->brief = false;
	job->patient = true;
	job->drive = s->drive_ops;
	job->device = s->drive[a->range.device].device;
	job->range = a->range;
	begin_job(s, job);
}

static void discarded(struct shell *s, uint32_t drive, int res)
{
	struct core_event event = { .kind = CORE_EV_DISCARD_DONE,
				    .discard = { .device = drive, .res = res } };

	if (res && !s->dispatch.discard_failed)
		log_warn(&s->log, "the store's dead segments cannot be discarded",
			 s->drive[drive].path,
			 res == -EOPNOTSUPP ? "its device or file system does not know how: not "
					      "tried again (nvme.discard)" : "look at its device",
			 "error=\"%s\" errno=%d", strerror(-res), -res);
	s->dispatch.discard_failed = res != 0;
	turn_feed(&s->loop.turn, &event);
}

static void job_done(struct shell *s, const struct job *job)
{
	struct core_event event = { .kind = CORE_EV_COPY_DONE, .copy = job->copy };

	note_job(s, TRACE_END, job);
	switch (job->kind) {
	case JOB_COPY:
		if (job->io) {
			bounced(s, job);
			break;
		}
		hist_record(&s->dispatch.copy[job->klass], time_now_ns() - job->begun_ns);
		turn_feed(&s->loop.turn, &event);
		break;
	case JOB_VERIFY:
		feed_io(s, job->io);
		break;
	case JOB_PREPARE:
		prepared(s, job);
		break;
	case JOB_PUNCH:
		punched(s, &job->range, job->res);
		break;
	case JOB_DISCARD:
		discarded(s, job->range.device, job->res);
		break;
	}
}

uint32_t dispatch_jobs(struct shell *s)
{
	struct job *job;
	uint32_t count = 0;

	while ((job = worker_reap(s->workers))) {
		job_done(s, job);
		worker_put(s->workers, job);
		count++;
	}
	return count;
}

/* ---- at once ------------------------------------------------------------------------------- */

static void do_fence(struct shell *s, const struct core_action *a)
{
	struct core_event event = { .kind = CORE_EV_FENCE_DONE, .batch = a->batch };
	struct trace_record note = { .kind = TRACE_FENCE, .bytes = a->batch->count };
	uint64_t begun = time_now_ns();
	long rc;

	trace_note(&s->trace, note);
	rc = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);

	assert(rc == 0); /* it worked at start (kernel.c); without it no place may be freed */
	hist_record(&s->dispatch.fence, time_now_ns() - begun);
	note.phase = TRACE_END;
	trace_note(&s->trace, note);
	turn_feed(&s->loop.turn, &event);
}

static void do_scan(struct shell *s, const struct core_action *a)
{
	struct core_event event = { .kind = CORE_EV_SCAN_DONE };

	(void)a;
	core_scan(s->core);
	turn_feed(&s->loop.turn, &event);
}

static void do_complete(struct shell *s, const struct core_action *a)
{
	trace_note(&s->trace, (struct trace_record){
		.now_ns = s->loop.turn.clock_ns, .kind = TRACE_REQUEST, .phase = TRACE_END,
		.who = (uint16_t)a->complete.client, .id = a->complete.cqe.user_data,
		.res = (int16_t)a->complete.cqe.res, .bytes = a->complete.cqe.value });
	front_complete(s->front, a->complete.client, &a->complete.cqe);
}

static void do_reply(struct shell *s, const struct core_action *a)
{
	if (front_reply(s->front, &s->loop.turn, a->reply.token, a->reply.res, a->reply.value))
		return;
	if (a->reply.token == SHELL_TOKEN_DRAIN)
		s->loop.drained = true;
}

static void do_wake(struct shell *s, const struct core_action *a)
{
	front_wake(s->front, a->wake);
}

static void do_end(struct shell *s, const struct core_action *a)
{
	front_end(s->front, &s->loop.turn, a->end.client, a->end.error, a->end.why);
}

static uint32_t carry_out_all(struct shell *s)
{
	static void (*const carry_out[])(struct shell *s, const struct core_action *a) = {
		[CORE_AC_READ] = do_read,	[CORE_AC_WRITE] = do_write,
		[CORE_AC_SYNC] = do_sync,	[CORE_AC_COPY] = do_copy,
		[CORE_AC_FENCE] = do_fence,	[CORE_AC_SCAN] = do_scan,
		[CORE_AC_PREPARE] = do_prepare, [CORE_AC_PUNCH] = do_punch,
		[CORE_AC_DISCARD] = do_discard,
		[CORE_AC_COMPLETE] = do_complete, [CORE_AC_REPLY] = do_reply,
		[CORE_AC_WAKE] = do_wake,	[CORE_AC_END] = do_end,
	};
	struct core_action action;
	uint32_t count = 0;

	submit_deferred(s);
	while (core_action_next(s->core, &action)) {
		carry_out[action.kind](s, &action);
		count++;
	}
	return count;
}

uint32_t dispatch_actions(struct shell *s)
{
	uint32_t count = carry_out_all(s);

	worker_kick(s->workers);
	return count;
}

uint32_t dispatch_landed(struct shell *s)
{
	struct dispatch *p = &s->dispatch;
	uint32_t count = p->landed_count, others = 0;

	if (!count)
		return 0;
	/* Demand first: its client is told before the device is given what waited for its end. */
	for (uint32_t i = 0; i < count; i++)
		if (p->landed[i]->klass == ABI_CLASS_DEMAND)
			verify(s, p->landed[i]);
		else
			p->landed[others++] = p->landed[i];
	carry_out_all(s);
	if (others < count)
		front_flush(s->front);
	if (io_uring_sq_ready(&s->loop.ring))
		io_uring_submit(&s->loop.ring);
	for (uint32_t i = 0; i < others; i++)
		verify(s, p->landed[i]);
	/* Not before: a worker that wakes up may take this processor, and the device be idle. */
	worker_kick(s->workers);
	p->landed_count = 0;
	return count;
}

bool dispatch_idle(const struct shell *s)
{
	return s->dispatch.ios == 0 && worker_passed(s->workers, worker_mark(s->workers));
}

void dispatch_describe(struct shell *s)
{
	struct dispatch *p = &s->dispatch;

	for (uint32_t k = 0; k < ABI_CLASS_COUNT; k++) {
		if (k != ABI_CLASS_CLEANUP)
			obs_latency(&s->obs, "read", obs_class_name[k], &p->read[k]);
		obs_latency(&s->obs, "copy", obs_class_name[k], &p->copy[k]);
	}
	obs_latency(&s->obs, "write", NULL, &p->write);
	obs_latency(&s->obs, "flush", NULL, &p->sync);
	obs_latency(&s->obs, "fence", NULL, &p->fence);
}
